//! A card that serves its packets as a fluid: rates, slots and the time of a load count, packets do
//! not. What its NTs keep for a DAG is how many bytes it served of it: that must be in one place, in a
//! region or in the save area, as long as nobody says that it is lost.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use snic_controller::{CardCommand, CardCounters, CardReport};
use snic_domain::{ByteSize, CardProfile, DagUid, Digest, RegionId, ReportedChain, Timestamp};
use snic_tables::{
    CardSnapshot, ChainRow, ConfigurationWay, DagCounters, DagRow, InstanceRow, RateLimiterRow,
    RegionSnapshot, RegionStatus, StageRow, StateDone, StateOrder, Table, TableImage,
};

use crate::world::CATALOGUE;

/// Time that the card takes for a load.
pub const LOAD: Duration = Duration::from_millis(4);
pub const COMMIT: Duration = Duration::from_micros(100);
const READ: Duration = Duration::from_micros(50);
/// A monitor period, and how often counters are read.
pub const PERIOD: Duration = Duration::from_millis(10);

/// Context of a DAG: its owner, its bitstream and its content.
type Context = (DagUid, Digest, u64);

/// The card.
pub struct Card {
    pub profile: CardProfile,
    tables: TableImage,
    version: u32,
    regions: Vec<RegionStatus>,
    /// Reports of loaded regions, by the digest of what was loaded.
    chains: BTreeMap<Digest, ReportedChain>,
    /// Reports to come, with their times; the configuration port does one load at a time.
    pub says: VecDeque<(Timestamp, CardReport)>,
    port_free: Timestamp,
    /// Bytes by row: intended and served.
    pub counted: BTreeMap<u16, DagCounters>,
    /// Time of a region's last load, and its content before it.
    history: BTreeMap<u8, (Timestamp, RegionStatus)>,
    pub loads: u64,
    /// Regions that were loaded with what they held before, within two periods.
    pub thrash: u64,
    /// Bytes served that NTs keep for DAGs, by region and UID.
    contexts: BTreeMap<(u8, DagUid), u64>,
    /// Contexts in the save area, by offset.
    saved: BTreeMap<u32, Context>,
    /// Sum of all that an NT with state served of a DAG.
    pub kept_of: BTreeMap<DagUid, u64>,
}

impl Card {
    pub fn new(regions: usize) -> Self {
        let mut profile = CATALOGUE.profile.clone();
        let region = profile.regions[0].clone();
        profile.regions = vec![region; regions];
        // Room for all that churn ever has to save at once.
        profile.save_area.bytes = ByteSize::from_mib(1);
        Self {
            profile,
            tables: TableImage::default(),
            version: 0,
            regions: vec![RegionStatus::Empty; regions],
            chains: BTreeMap::new(),
            says: VecDeque::new(),
            port_free: Timestamp::ZERO,
            counted: BTreeMap::new(),
            history: BTreeMap::new(),
            loads: 0,
            thrash: 0,
            contexts: BTreeMap::new(),
            saved: BTreeMap::new(),
            kept_of: BTreeMap::new(),
        }
    }

    fn chain_of(&self, status: RegionStatus) -> ReportedChain {
        match status {
            RegionStatus::Loaded(digest) => self.chains[&digest],
            _ => ReportedChain::default(),
        }
    }

    fn say(&mut self, at: Timestamp, report: CardReport) {
        let place = self.says.partition_point(|(other, _)| *other <= at);
        self.says.insert(place, (at, report));
    }

    pub fn take(&mut self, command: CardCommand, now: Timestamp) {
        match command {
            CardCommand::ReadBack { ticket, .. } => {
                let regions = self.regions.iter().map(|status| RegionSnapshot {
                    status: *status,
                    decoupled: false,
                    was_decoupled: false,
                    chain: self.chain_of(*status),
                });
                let snapshot = Box::new(CardSnapshot {
                    boot_id: 1,
                    idcode: self.profile.idcode,
                    version: self.version,
                    tables: self.tables.clone(),
                    regions: regions.collect(),
                    configures: Some(ConfigurationWay::Shell),
                    passes_through: false,
                    guards: true,
                });
                self.say(now + READ, CardReport::ReadBack { ticket, snapshot });
            }
            CardCommand::Program { ticket, delta, .. } => {
                self.tables.apply(&delta).expect("rows that the tables have");
                self.version += 1;
                self.say(
                    now + COMMIT,
                    CardReport::Programmed {
                        ticket,
                        result: Ok(self.version),
                        unconfigured: Vec::new(),
                    },
                );
            }
            CardCommand::Load { ticket, region, digest, chain } => {
                self.chains.insert(digest, chain);
                for row in 0..Table::Instance.rows() as u16 {
                    let leads = self.tables.get::<InstanceRow>(row);
                    assert!(
                        leads.is_none_or(|i| i.region().expect("on this card") != region.0),
                        "a load stops traffic"
                    );
                }
                let begin = self.port_free.max(now);
                self.port_free = begin + LOAD;
                self.loads += 1;
                self.contexts.retain(|(of, _), _| *of != region.0);
                let new = RegionStatus::Loaded(digest);
                let held = std::mem::replace(&mut self.regions[region.index()], new);
                if let Some((at, before)) = self.history.insert(region.0, (now, held))
                    && before == new
                    && now.since(at) < 2 * PERIOD
                {
                    self.thrash += 1;
                }
                let report = CardReport::Loaded { ticket, region, result: Ok(LOAD) };
                self.say(self.port_free, report);
            }
            CardCommand::State { ticket, region, order } => {
                let done = self.move_state(region, order);
                let report = CardReport::State { ticket, region, result: Ok(done) };
                self.say(now + done.took, report);
            }
            CardCommand::LoadRole { .. } | CardCommand::Reset { .. } => {
                panic!("nobody asks for that here")
            }
            CardCommand::Sample { ticket } => {
                let dags = self.counted.iter().map(|(row, counters)| (*row, *counters)).collect();
                let counters = Box::new(CardCounters { dags, ..CardCounters::default() });
                self.say(now + READ, CardReport::Sampled { ticket, counters });
            }
        }
    }

    /// A wrapper does what it is asked; none of it while rows lead the DAG to its region.
    fn move_state(&mut self, region: RegionId, order: StateOrder) -> StateDone {
        let RegionStatus::Loaded(digest) = self.regions[region.index()] else {
            assert!(matches!(order, StateOrder::Erase { .. }), "{order:?} of an empty region");
            return self.done(0);
        };
        let unused = |uid: DagUid| {
            let rows = self.instances(uid.row());
            let of = self.tables.get::<DagRow>(uid.row()).is_some_and(|row| row.uid == uid.raw());
            assert!(
                !of || rows.iter().all(|(i, _)| i.region().expect("on this card") != region.0),
                "{order:?} in use"
            );
            (region.0, uid)
        };
        match order {
            StateOrder::Save { uid, slot } => {
                let bytes = self.contexts.remove(&unused(uid)).unwrap_or(0);
                let before = self.saved.insert(slot.offset, (uid, digest, bytes));
                assert_eq!(before, None, "two contexts in one place");
                self.done(slot.length)
            }
            StateOrder::Restore { uid, slot, .. } => {
                let place = unused(uid);
                // What stays there until it is erased counts no more.
                let bytes = match self.saved.remove(&slot.offset) {
                    Some((of, by, bytes)) if (of, by) == (uid, digest) => bytes,
                    other => panic!("{other:?} is restored to {uid:?}"),
                };
                self.contexts.insert(place, bytes);
                self.done(slot.length)
            }
            StateOrder::Clear { uid } => {
                self.contexts.remove(&unused(uid));
                self.done(0)
            }
            StateOrder::Erase { slot } => {
                self.saved.remove(&slot.offset);
                self.done(slot.length)
            }
        }
    }

    fn done(&self, bytes: u32) -> StateDone {
        let per_second = self.profile.save_area.bytes_per_second;
        let nanos = u64::from(bytes) * 1_000_000_000 / per_second;
        StateDone { bytes, check: 0, took: READ + Duration::from_nanos(nanos) }
    }

    /// So many bytes of a DAG came through its instances; those of `keeps` count them.
    pub fn count(&mut self, uid: DagUid, bytes: u64, keeps: &impl Fn(u8, u8) -> bool) {
        for (instance, part) in self.instances(uid.row()) {
            if (0..8).any(|slot| {
                instance.used_mask() >> slot & 1 == 1
                    && keeps(instance.region().expect("on this card"), slot)
            }) {
                let bytes = (bytes as f64 * part) as u64;
                *self
                    .contexts
                    .entry((instance.region().expect("on this card"), uid))
                    .or_default() += bytes;
                *self.kept_of.entry(uid).or_default() += bytes;
            }
        }
    }

    /// State kept for a DAG, in regions and in the save area.
    pub fn kept(&self, uid: DagUid) -> u64 {
        let in_regions = self.contexts.iter().filter(|((_, of), _)| *of == uid);
        let saved = self.saved.values().filter(|(of, ..)| *of == uid);
        in_regions.map(|(_, bytes)| bytes).chain(saved.map(|(_, _, bytes)| bytes)).sum()
    }

    /// The instances of a DAG with the part of its packets that each gets: of chains of one stage
    /// each one after the other.
    fn instances(&self, row: u16) -> Vec<(InstanceRow, f64)> {
        let mut all = Vec::new();
        let Some(dag) = self.tables.get::<DagRow>(row) else { return all };
        for stage in dag.first_stage..dag.first_stage + dag.stages {
            let Some(stage) = self.tables.get::<StageRow>(stage) else { continue };
            for chain in stage.chains.iter().filter_map(|chain| self.tables.get::<ChainRow>(*chain))
            {
                let rows = chain.first_instance..chain.first_instance + chain.instances;
                let rows: Vec<InstanceRow> = rows.filter_map(|row| self.tables.get(row)).collect();
                let sum: f64 = rows.iter().map(|row| f64::from(row.weight_kbps)).sum();
                all.extend(rows.iter().map(|row| (*row, f64::from(row.weight_kbps) / sum)));
            }
        }
        all
    }

    /// Served part of each DAG's load: its bucket first, then every slot in proportion.
    pub fn serve(
        &self,
        loads: &BTreeMap<u16, f64>,
        serves: &impl Fn(u8, u8) -> f64,
    ) -> BTreeMap<u16, f64> {
        let mut used: BTreeMap<(u8, u8), f64> = BTreeMap::new();
        let mut offered = BTreeMap::new();
        for (row, load) in loads {
            let Some(bucket) = self.tables.get::<RateLimiterRow>(*row) else { continue };
            let rate = load.min(f64::from(bucket.rate_kbps) * 1e3);
            let instances = self.instances(*row);
            for (instance, part) in &instances {
                for slot in (0..8).filter(|slot| instance.used_mask() >> slot & 1 == 1) {
                    *used.entry((instance.region().expect("on this card"), slot)).or_default() +=
                        rate * part;
                }
            }
            offered.insert(*row, (rate, instances));
        }
        let fits = |region: u8, slot: u8| (serves(region, slot) / used[&(region, slot)]).min(1.0);
        let served = |(row, (rate, instances)): (u16, (f64, Vec<(InstanceRow, f64)>))| {
            let worst = instances.iter().map(|(instance, _)| {
                let slots = (0..8).filter(|slot| instance.used_mask() >> slot & 1 == 1);
                slots
                    .map(|slot| fits(instance.region().expect("on this card"), slot))
                    .fold(1.0, f64::min)
            });
            (row, rate * worst.fold(1.0, f64::min))
        };
        offered.into_iter().map(served).collect()
    }
}
