//! The most that any placement of a chain carries on a tiny scarce card: every choice of loads, every cut, and over
//! the paths of the parts the best division of the bandwidth, as a linear program.
//!
//! For one choice and one cut, all that packets take is proportional to the bandwidth on each path: bits of the NTs,
//! packets of the NTs, cycles of the ports, credits of the slots, the line, the packet store. So the most is the optimum of a small
//! linear program, solved by the simplex method.

use snic_domain::{Bitstream, Dag, DagName, NtType, RegionId, Traffic};

use super::World;
use super::book::{BEAT, Book, CLOCK, LINE, Placed};
use super::brute::options;

/// Part of a card that a chain takes for each bit/s.
struct Packets {
    crossing: Vec<(f64, f64)>,
    bits: f64,
    largest: f64,
    payload: bool,
}

impl Packets {
    fn of(dag: &Dag, nts: &[&NtType]) -> Self {
        let sizes = dag.spec().packet_sizes.sizes();
        let all: Vec<(f64, f64)> =
            sizes.iter().map(|s| (f64::from(s.bytes), f64::from(s.weight))).collect();
        Self {
            bits: all.iter().map(|(bytes, weight)| bytes * weight * 8.0).sum(),
            largest: all.iter().map(|(bytes, _)| *bytes).fold(0.0, f64::max),
            payload: nts.iter().any(|nt| nt.traffic == Traffic::Payload),
            crossing: all,
        }
    }

    fn sum(&self, cost: impl Fn(f64) -> f64) -> f64 {
        self.crossing.iter().map(|(bytes, weight)| weight * cost(*bytes)).sum::<f64>() / self.bits
    }

    fn beats(bytes: f64) -> f64 {
        (bytes / BEAT).ceil()
    }

    /// Cycles that a packet takes of a region's port.
    fn cycles(&self, bytes: f64) -> f64 {
        1.0 + if self.payload { Self::beats(bytes) } else { 1.0 }
    }

    fn port(&self) -> f64 {
        self.sum(|bytes| self.cycles(bytes).max(4.0))
    }

    /// Credits of each NT of a part.
    fn credits(&self, part: &[&NtType]) -> f64 {
        let latency: f64 = part.iter().map(|nt| nt.latency.get() as f64).sum();
        let slowest = part.iter().map(|nt| nt.bandwidth_max.get() as f64).fold(f64::MAX, f64::min);
        let limits = part.iter().filter_map(|nt| nt.packets_per_second_max);
        let limited = limits.map(|most| f64::from(most.get())).fold(f64::MAX, f64::min);
        let swallow = (self.largest * 8.0 * CLOCK / slowest).max(CLOCK / limited).ceil();
        self.sum(|_| 1.0) * (self.cycles(self.largest) + 3.0 + latency + swallow) / CLOCK
    }

    fn line(&self) -> f64 {
        self.sum(|bytes| (bytes * 8.0).max(Self::beats(bytes) * LINE / CLOCK))
    }

    fn store(&self, way: f64) -> f64 {
        self.sum(Self::beats) * BEAT * way / CLOCK
    }
}

/// A choice of loads and cuts that carries what a DAG asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Best {
    pub loads: usize,
    pub parts: usize,
}

/// Bandwidth that placements of one chain carry.
#[derive(Debug, Default)]
pub struct Exact {
    /// The most, in bit/s.
    pub most: f64,
    /// Each choice that carries what is asked for.
    pub enough: Vec<Best>,
}

/// The most that any placement of a chain of distinct NTs carries beside what is placed, and the choices that carry
/// its bandwidth. Each bitstream has an NT once. A lenient answer counts all that rounding may have left over, the
/// other one nothing of it. A wide packet store is never short.
pub fn solve(
    world: &World,
    placed: &Placed,
    name: &DagName,
    (dag, wide_store): (&Dag, bool),
    is_lenient: bool,
) -> Exact {
    let (book, mut exact) = (Book::of(world, placed), Exact::default());
    let asked = dag.bandwidth().get() as f64;
    let known = |id| world.catalogue.nt(id).filter(|nt| nt.is_visible_to(&name.tenant));
    let nts: Option<Vec<&NtType>> = dag.nodes().iter().map(|node| known(&node.nt)).collect();
    let (Some(nts), true) = (nts, book.left("dags", (0, 0), is_lenient) >= 1.0) else {
        return exact;
    };
    let packets = Packets::of(dag, &nts);
    let way = |parts: usize| {
        let nts: f64 = nts.iter().map(|nt| nt.latency.get() as f64).sum();
        49.0 + 16.0 * (parts as f64 - 1.0) + nts
    };
    let store = |parts| book.left("store", (0, 0), is_lenient) / packets.store(way(parts));
    let rows = book.left("chains", (0, 0), is_lenient).min(book.left("stages", (0, 0), is_lenient));
    let regions: Vec<RegionId> = world.ledger.profile().regions().map(|(id, _)| id).collect();
    let all: Vec<Vec<Option<Bitstream>>> =
        regions.iter().map(|region| options(world, *region, &name.tenant)).collect();
    let mut choice = vec![0; regions.len()];
    loop {
        let loads = choice.iter().filter(|at| **at > 0).count();
        let contents: Vec<Option<&Bitstream>> = (0..regions.len())
            .map(|at| match &all[at][choice[at]] {
                Some(loaded) => Some(loaded),
                None => {
                    world.ledger.content(regions[at]).filter(|b| b.is_loadable_by(&name.tenant))
                }
            })
            .collect();
        let card = Card { world, placed, book: &book, contents, choice: &choice, is_lenient };
        for cut in 0..1u32 << (nts.len() - 1) {
            let parts = cut.count_ones() as usize + 1;
            if parts as f64 > rows {
                continue;
            }
            let most = card
                .carried((&nts, cut), &packets)
                .min(book.left("line", (0, 0), is_lenient) / packets.line())
                .min(if wide_store { f64::MAX } else { store(parts) });
            exact.most = exact.most.max(most);
            if most >= asked {
                exact.enough.push(Best { loads, parts });
            }
        }
        let Some(next) = (0..choice.len()).find(|at| choice[*at] + 1 < all[*at].len()) else {
            return exact;
        };
        choice[..next].fill(0);
        choice[next] += 1;
    }
}

/// A card after one choice of loads.
struct Card<'a> {
    world: &'a World,
    placed: &'a Placed,
    book: &'a Book,
    /// Contents that the DAG may use, by region.
    contents: Vec<Option<&'a Bitstream>>,
    /// Choice for each region: 0 is its present content.
    choice: &'a [usize],
    is_lenient: bool,
}

impl Card<'_> {
    /// Bandwidth of a chain that is cut like this which the regions carry.
    fn carried(&self, (nts, cut): (&[&NtType], u32), packets: &Packets) -> f64 {
        let Self { world, placed, book, contents, choice, is_lenient } = self;
        let is_lenient = *is_lenient;
        let mut parts: Vec<Vec<&NtType>> = vec![Vec::new()];
        for (at, nt) in nts.iter().enumerate() {
            if at > 0 && cut >> (at - 1) & 1 == 1 {
                parts.push(Vec::new());
            }
            parts.last_mut().expect("there is a first").push(nt);
        }
        // Paths: of which part, through which region and slots.
        let mut paths: Vec<(usize, u8, Vec<u8>)> = Vec::new();
        for (number, part) in parts.iter().enumerate() {
            for (region, content) in (0u8..).zip(contents.iter()) {
                let Some(content) = content else { continue };
                let slot = |nt: &&NtType| content.nts.iter().position(|of| *of == nt.id);
                let slots: Option<Vec<usize>> = part.iter().map(slot).collect();
                let Some(slots) = slots.filter(|s| s.windows(2).all(|two| two[0] < two[1])) else {
                    continue;
                };
                paths.push((number, region, slots.iter().map(|slot| *slot as u8).collect()));
            }
        }
        // Unknowns: all of the chain, then each path; in Gbit/s.
        let giga = 1e9;
        let mut program = Program::new(1 + paths.len());
        for number in 0..parts.len() {
            let mut row = program.row();
            row[0] = 1.0;
            for (at, (of, ..)) in paths.iter().enumerate() {
                row[1 + at] = if *of == number { -1.0 } else { 0.0 };
            }
            program.at_most(row, 0.0);
        }
        for (region, content) in (0u8..).zip(contents.iter()) {
            let Some(content) = content else { continue };
            let is_fresh = choice[usize::from(region)] > 0;
            let left = |what, at| {
                if is_fresh {
                    Book::default().left(what, at, is_lenient)
                } else {
                    book.left(what, at, is_lenient)
                }
            };
            let mut port = program.row();
            for (at, (_, through, _)) in paths.iter().enumerate() {
                port[1 + at] = if *through == region { packets.port() * giga / 1e6 } else { 0.0 };
            }
            program.at_most(port, left("port", (region, 0)) / 1e6);
            for (slot, id) in (0u8..).zip(&content.nts) {
                let (mut bits, mut credits) = (program.row(), program.row());
                let mut number = program.row();
                for (at, (of, through, slots)) in paths.iter().enumerate() {
                    if *through == region && slots.contains(&slot) {
                        bits[1 + at] = 1.0;
                        credits[1 + at] = packets.credits(&parts[*of]) * giga;
                        number[1 + at] = packets.sum(|_| 1.0) * giga / 1e6;
                    }
                }
                let known = world.catalogue.nt(id).expect("known");
                if known.packets_per_second_max.is_some() {
                    program.at_most(number, left("packets", (region, slot)) / 1e6);
                }
                let most = known.bandwidth_max.get() as f64;
                let taken = if is_fresh { 0.0 } else { taken(placed, region, slot) };
                program.at_most(bits, (most - taken).max(0.0) / giga);
                program.at_most(credits, left("credits", (region, slot)));
            }
        }
        program.most() * giga
    }
}

/// Bandwidth of all paths through a slot, in bit/s.
fn taken(placed: &Placed, region: u8, slot: u8) -> f64 {
    let instances = placed.values().flat_map(|(_, mapping)| mapping.instances());
    let through = instances.filter(|instance| {
        instance.region.0 == region && instance.slots.iter().any(|of| of.0 == slot)
    });
    through.map(|instance| instance.bandwidth.get() as f64).sum()
}

/// Maximise the first unknown; all are at least 0, and so are all limits.
struct Program {
    unknowns: usize,
    rows: Vec<(Vec<f64>, f64)>,
}

impl Program {
    const fn new(unknowns: usize) -> Self {
        Self { unknowns, rows: Vec::new() }
    }

    fn row(&self) -> Vec<f64> {
        vec![0.0; self.unknowns]
    }

    fn at_most(&mut self, row: Vec<f64>, limit: f64) {
        self.rows.push((row, limit));
    }

    /// The simplex method with Bland's rule, which always ends.
    fn most(&self) -> f64 {
        const NOTHING: f64 = 1e-12;
        let (rows, columns) = (self.rows.len(), self.unknowns + self.rows.len());
        let mut table: Vec<Vec<f64>> = Vec::new();
        for (at, (row, limit)) in self.rows.iter().enumerate() {
            let mut all = row.clone();
            all.resize(columns, 0.0);
            all[self.unknowns + at] = 1.0;
            all.push(*limit);
            table.push(all);
        }
        let mut gain = vec![0.0; columns + 1];
        gain[0] = 1.0;
        let mut basis: Vec<usize> = (self.unknowns..columns).collect();
        while let Some(enters) = (0..columns).find(|at| gain[*at] > NOTHING) {
            let step = |row: &usize| {
                let by = table[*row][enters];
                (by > NOTHING).then(|| (table[*row][columns] / by, basis[*row], *row))
            };
            let least = (0..rows).filter_map(|row| step(&row));
            let least = least.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            let Some((_, _, leaves)) = least else { return f64::INFINITY };
            let by = table[leaves][enters];
            table[leaves].iter_mut().for_each(|cell| *cell /= by);
            let pivot = table[leaves].clone();
            for row in (0..rows).filter(|row| *row != leaves) {
                let by = table[row][enters];
                table[row].iter_mut().zip(&pivot).for_each(|(cell, of)| *cell -= by * of);
            }
            let by = gain[enters];
            gain.iter_mut().zip(&pivot).for_each(|(cell, of)| *cell -= by * of);
            basis[leaves] = enters;
        }
        -gain[columns]
    }
}
