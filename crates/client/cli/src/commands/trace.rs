//! Times of packets in each part of the card, from what was seen of them.

use std::collections::BTreeMap;

use serde::Serialize;
use snic_api::v1::PacketSighting;
use snic_api::v1::packet_sighting::Step;
use snic_client::output::{Style, table, text};

/// Packets that are followed at once; more than a card has.
const UNDER_WAY_MAX: usize = 65_536;
/// Parts of one packet: a DAG has at most 64 nodes.
const PARTS_MAX: usize = 512;
/// Times that are kept of each part: enough for a 99th percentile of a minute's packets.
const TIMES_MAX: usize = 1_000_000;

/// A packet that has not left yet.
#[derive(Debug, Clone)]
struct TracedPacket {
    arrived: u64,
    /// The last step outside of regions, or the last NT.
    before: u64,
    /// Last step in each region.
    in_region: BTreeMap<String, u64>,
    /// Time in each part so far.
    parts: Vec<(String, u64)>,
}

/// Times of packets, by part of the card.
#[derive(Debug, Default)]
pub struct PacketTrace {
    under_way: BTreeMap<u64, TracedPacket>,
    /// Times by part, with its place in the order that packets meet them.
    parts: BTreeMap<String, (usize, Vec<u64>)>,
    dropped: BTreeMap<String, u64>,
    /// Packets that left or were dropped.
    ended: u64,
    lost: u64,
}

/// Times of one part, in nanoseconds.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct PartTimes {
    pub part: String,
    /// Passes of packets.
    pub count: usize,
    /// Half of them took at most this.
    pub median_ns: u64,
    /// Time that 99 of a hundred took at most.
    pub p99_ns: u64,
    pub max_ns: u64,
}

/// Result of a trace.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct TraceReport {
    /// Times by part, in the order that packets meet them.
    pub parts: Vec<PartTimes>,
    /// Packets that were followed to their end.
    pub packets: u64,
    /// Those of them that were dropped, by cause.
    pub dropped: BTreeMap<String, u64>,
    /// Sightings that are missing because the card saw more than could be fetched.
    pub sightings_lost: u64,
}

fn nanos(sighting: &PacketSighting) -> u64 {
    let time = sighting.time.unwrap_or_default();
    let seconds = u64::try_from(time.seconds).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.nanos).unwrap_or(0)
}

impl PacketTrace {
    /// Packets that were followed to their end.
    pub const fn packets(&self) -> u64 {
        self.ended
    }

    /// Sightings are missing: times across the gap would be wrong, so packets under way are given up.
    pub fn lost(&mut self, sightings: u64) {
        if sightings > 0 {
            self.lost += sightings;
            self.under_way.clear();
        }
    }

    /// The next sighting.
    pub fn saw(&mut self, sighting: &PacketSighting) {
        let (now, packet) = (nanos(sighting), sighting.packet);
        if matches!(sighting.step(), Step::Arrived | Step::Made) {
            if self.under_way.len() < UNDER_WAY_MAX {
                let begun = TracedPacket {
                    arrived: now,
                    before: now,
                    in_region: BTreeMap::new(),
                    parts: Vec::new(),
                };
                self.under_way.insert(packet, begun);
            }
            return;
        }
        // Packets that were under way when the trace began are not followed.
        let Some(under_way) = self.under_way.get_mut(&packet) else { return };
        let region = text::region(&sighting.region);
        let since = match sighting.step() {
            Step::Entered | Step::Passed => under_way.in_region.get(&sighting.region).copied(),
            _ => None,
        };
        let took = now.saturating_sub(since.unwrap_or(under_way.before));
        let part = match sighting.step() {
            Step::Admitted => "token bucket".to_owned(),
            Step::Scheduled => "scheduler".to_owned(),
            Step::Entered => format!("credits of {region}"),
            Step::Passed if sighting.node.is_empty() => format!("a task in {region}"),
            Step::Passed => format!("{} in {region}", sighting.node),
            Step::Left => "way out".to_owned(),
            Step::Dropped => {
                self.under_way.remove(&packet);
                self.ended += 1;
                *self.dropped.entry(sighting.drop_cause.clone()).or_default() += 1;
                return;
            }
            Step::Unspecified | Step::Arrived | Step::Made => return,
        };
        match sighting.step() {
            Step::Scheduled | Step::Entered => {
                under_way.in_region.insert(sighting.region.clone(), now);
            }
            Step::Passed => {
                under_way.in_region.insert(sighting.region.clone(), now);
                under_way.before = now;
            }
            _ => under_way.before = now,
        }
        if under_way.parts.len() < PARTS_MAX {
            under_way.parts.push((part, took));
        }
        if sighting.step() == Step::Left
            && let Some(left) = self.under_way.remove(&packet)
        {
            self.ended += 1;
            let whole = ("whole card".to_owned(), now.saturating_sub(left.arrived));
            left.parts.into_iter().chain([whole]).for_each(|(part, took)| self.add(part, took));
        }
    }

    fn add(&mut self, part: String, nanos: u64) {
        let next = self.parts.len();
        let (_, times) = self.parts.entry(part).or_insert_with(|| (next, Vec::new()));
        if times.len() < TIMES_MAX {
            times.push(nanos);
        }
    }

    /// Result of the trace.
    pub fn report(self) -> TraceReport {
        let mut parts: Vec<_> = self.parts.into_iter().collect();
        // `whole card` is met with the first packet that leaves, before others' rarer parts.
        parts.sort_by_key(|(name, (order, _))| (name == "whole card", *order));
        let times = |(part, (_, mut times)): (String, (usize, Vec<u64>))| {
            times.sort_unstable();
            PartTimes {
                part,
                count: times.len(),
                median_ns: at_rank(&times, 50),
                p99_ns: at_rank(&times, 99),
                max_ns: at_rank(&times, 100),
            }
        };
        TraceReport {
            parts: parts.into_iter().map(times).collect(),
            packets: self.ended,
            dropped: self.dropped,
            sightings_lost: self.lost,
        }
    }
}

/// The nearest rank of sorted times; 0 where there are none.
fn at_rank(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    rank.checked_sub(1).and_then(|at| sorted.get(at)).copied().unwrap_or(0)
}

fn short(nanos: u64) -> String {
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.2} µs", nanos as f64 / 1e3),
        _ => format!("{:.2} ms", nanos as f64 / 1e6),
    }
}

/// The report for people.
pub fn render(report: &TraceReport, style: Style) -> String {
    let rows = report.parts.iter().map(|times| {
        let [median, p99, max] = [times.median_ns, times.p99_ns, times.max_ns].map(short);
        vec![times.part.clone(), times.count.to_string(), median, p99, max]
    });
    let mut out = table::table(style, &["PART", "PASSES", "MEDIAN", "P99", "MAX"], rows.collect());
    let dropped: Vec<String> =
        report.dropped.iter().map(|(cause, count)| format!("{count} {cause}")).collect();
    let dropped = if dropped.is_empty() { "none".to_owned() } else { dropped.join(", ") };
    out.push_str(&format!("\n{} packets; dropped: {dropped}\n", report.packets));
    if report.sightings_lost > 0 {
        out.push_str(&format!(
            "{} sightings were too many to fetch: packets at those times are not counted\n",
            report.sightings_lost
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(packet: u64, at: i32, step: Step, region: &str, node: &str) -> PacketSighting {
        let mut sighting = PacketSighting {
            time: Some(prost_types::Timestamp { seconds: 5, nanos: at }),
            packet,
            region: region.into(),
            node: node.into(),
            ..PacketSighting::default()
        };
        sighting.set_step(step);
        sighting
    }

    fn packet(number: u64, begin: i32) -> Vec<PacketSighting> {
        let region = "cards/card0/regions/3";
        vec![
            seen(number, begin, Step::Arrived, "", ""),
            seen(number, begin + 10, Step::Admitted, "", ""),
            seen(number, begin + 90, Step::Scheduled, region, ""),
            seen(number, begin + 100, Step::Entered, region, ""),
            seen(number, begin + 300, Step::Passed, region, "nat"),
            seen(number, begin + 700, Step::Passed, region, "firewall"),
            seen(number, begin + 750, Step::Left, "", ""),
        ]
    }

    #[test]
    fn each_part_has_the_time_between_its_ends_and_they_sum_up() {
        let mut trace = PacketTrace::default();
        // Two packets whose steps interleave, and the end of one that arrived before.
        trace.saw(&seen(9, 0, Step::Left, "", ""));
        let (first, second) = (packet(1, 0), packet(2, 5));
        first.iter().zip(&second).for_each(|(a, b)| {
            trace.saw(a);
            trace.saw(b);
        });
        let report = trace.report();
        let medians: Vec<_> =
            report.parts.iter().map(|part| (&*part.part, part.count, part.median_ns)).collect();
        assert_eq!(
            medians,
            [
                ("token bucket", 2, 10),
                ("scheduler", 2, 80),
                ("credits of card0/3", 2, 10),
                ("nat in card0/3", 2, 200),
                ("firewall in card0/3", 2, 400),
                ("way out", 2, 50),
                ("whole card", 2, 750),
            ]
        );
        assert_eq!(report.packets, 2);
    }

    #[test]
    fn drops_are_counted_by_cause_and_a_gap_spoils_no_times() {
        let mut trace = PacketTrace::default();
        trace.saw(&seen(1, 0, Step::Arrived, "", ""));
        let cause =
            || PacketSighting { drop_cause: "BY_NT".into(), ..seen(1, 50, Step::Dropped, "", "") };
        trace.saw(&cause());
        trace.saw(&cause());
        trace.saw(&seen(2, 0, Step::Arrived, "", ""));
        trace.lost(7);
        trace.saw(&seen(2, 999_999, Step::Left, "", ""));
        let report = trace.report();
        assert_eq!((report.packets, report.dropped["BY_NT"], report.sightings_lost), (1, 1, 7));
        assert!(report.parts.is_empty(), "{:?}", report.parts);
    }

    #[test]
    fn percentiles_are_of_the_nearest_rank() {
        let times: Vec<u64> = (1..=200).collect();
        assert_eq!([50, 99, 100].map(|percent| at_rank(&times, percent)), [100, 198, 200]);
        assert_eq!(at_rank(&[], 50), 0);
        assert_eq!(at_rank(&[4], 1), 4);
    }
}
