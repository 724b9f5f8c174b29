//! Choice of a virtual chain's instance for a packet (SuperNIC, 4.4): one after the other, as far as packets are alike.
//!
//! Each instance is owed its part of every packet's bytes, and the one that is owed most gets the packet; ties go to the
//! first row. What is owed never grows beyond one packet for each instance. By packets alone one of two equal instances
//! would get all the large ones where large and small ones alternate, as data and acknowledgements do, and more than it
//! serves.
//!
//! Where a chain is steered by flow, an instance that still has packets of the flow at hand gets the next one, so that none overtakes
//! another, also when instances come. It is owed for it as for any other, so flows that begin go to the others meanwhile. A flow
//! without packets there goes where the next packet would. Flows of a DAG with the same hash stay together.

use std::collections::BTreeMap;

use snic_tables::{ChainRow, DropCause, InstancePlace, InstanceRow, RowKey, Steering, Table};

use crate::decoded::Decoded;

/// Memory of the scheduler about instances, by row.
#[derive(Debug)]
pub(crate) struct InstanceSelector {
    owed: Box<[i64]>,
    /// Flows with packets in regions.
    flows: BTreeMap<FlowAtStage, HeldFlow>,
}

/// Packets of flows with one hash, of one DAG, on one branch of one of its stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowAtStage {
    pub(crate) dag: u16,
    /// Stages before it.
    pub(crate) stage: u8,
    pub(crate) branch: u8,
    pub(crate) hash: u8,
}

/// Region of flows, and their packets there.
#[derive(Debug, Clone, Copy)]
struct HeldFlow {
    region: u8,
    packets: u32,
}

/// Bytes that an instance is owed at most, or has had too many, for each unit of its chain's weights: a flow stays where it is, however
/// much that is.
const OWED_BYTES_MAX: i64 = 1 << 16;

impl Default for InstanceSelector {
    fn default() -> Self {
        Self { owed: vec![0; Table::Instance.rows()].into(), flows: BTreeMap::new() }
    }
}

impl InstanceSelector {
    /// Rows changed: what was owed to their instances is no more.
    pub(crate) fn forget(&mut self, rows: &Decoded, changed: &[RowKey]) {
        for key in changed {
            match key.table {
                Table::Instance => self.owed[usize::from(key.row)] = 0,
                Table::Chain => {
                    if let Some(chain) = rows.chains[usize::from(key.row)] {
                        self.owed[range(chain)].fill(0);
                    }
                }
                _ => {}
            }
        }
    }

    /// The instance of `chain` that gets a packet of `bytes`. Where the chain is steered by it, `flow` is the packet's, or `load` says
    /// how much there is to do.
    #[inline]
    pub(crate) fn choose(
        &mut self,
        rows: &Decoded,
        chain: u16,
        (bytes, flow): (u32, FlowAtStage),
        load: impl Fn(InstancePlace) -> u64,
    ) -> Result<u16, DropCause> {
        let row = rows.chains.get(usize::from(chain)).copied().flatten();
        let row = row.ok_or(DropCause::NoInstance)?;
        let all = range(row);
        if row.steering == Steering::LeastLoaded {
            return least_loaded(rows, all, load).ok_or(DropCause::NoInstance);
        }
        let weight = |at: usize| rows.instances[at].as_ref().map_or(0, weight);
        let first = all.clone().next().ok_or(DropCause::NoInstance)?;
        let held = match row.steering {
            Steering::ByFlow => self.flows.get(&flow).map(|held| held.region),
            _ => None,
        };
        let kept = held.and_then(|held| {
            let is_there = |at: &usize| {
                let place = rows.instances[*at].as_ref().map(|row| row.place);
                weight(*at) > 0
                    && matches!(place, Some(InstancePlace::Region { region, .. }) if region == held)
            };
            all.clone().find(is_there)
        });
        let chosen =
            if all.len() == 1 { first } else { self.most_owed(all, kept, (bytes, weight)) };
        if weight(chosen) == 0 { Err(DropCause::NoInstance) } else { Ok(chosen as u16) }
    }

    fn most_owed(
        &mut self,
        all: std::ops::Range<usize>,
        kept: Option<usize>,
        (bytes, weight): (u32, impl Fn(usize) -> u32),
    ) -> usize {
        let mut best = all.start;
        let mut sum = 0;
        for at in all.clone() {
            let part = i64::from(weight(at)) * i64::from(bytes);
            self.owed[at] += part;
            sum += part;
            if weight(at) > 0 && (weight(best) == 0 || self.owed[at] > self.owed[best]) {
                best = at;
            }
        }
        let chosen = kept.unwrap_or(best);
        self.owed[chosen] -= sum;
        if kept.is_some() {
            let weights: i64 = all.clone().map(|at| i64::from(weight(at))).sum();
            let most = OWED_BYTES_MAX * weights;
            for owed in &mut self.owed[all] {
                *owed = (*owed).clamp(-most, most);
            }
        }
        chosen
    }

    /// A packet of a flow goes to a region.
    pub(crate) fn hold(&mut self, flow: FlowAtStage, region: u8) {
        let held = self.flows.entry(flow).or_insert(HeldFlow { region, packets: 0 });
        // Where the one before is none of the chain's any more, what is there may be overtaken.
        held.region = region;
        held.packets += 1;
    }

    /// A packet of a flow has left its region, or is lost there.
    pub(crate) fn release(&mut self, flow: FlowAtStage) {
        let held = self.flows.get_mut(&flow).expect("each packet is held once, and leaves once");
        held.packets -= 1;
        if held.packets == 0 {
            self.flows.remove(&flow);
        }
    }
}

fn weight(row: &InstanceRow) -> u32 {
    row.weight_kbps
}

/// The instance whose region has the least to do, by `load`; ties to the first row.
fn least_loaded(
    rows: &Decoded,
    all: std::ops::Range<usize>,
    load: impl Fn(InstancePlace) -> u64,
) -> Option<u16> {
    let usable = |at: &usize| rows.instances[*at].as_ref().is_some_and(|row| weight(row) > 0);
    let load_of = |at: &usize| rows.instances[*at].as_ref().map_or(u64::MAX, |row| load(row.place));
    all.filter(usable).min_by_key(load_of).map(|at| at as u16)
}

/// The instances' rows, as far as the table has them.
fn range(chain: ChainRow) -> std::ops::Range<usize> {
    let first = usize::from(chain.first_instance);
    let end = (first + usize::from(chain.instances)).min(Table::Instance.rows());
    first.min(end)..end
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FLOW: FlowAtStage = FlowAtStage { dag: 1, stage: 0, branch: 0, hash: 0 };

    fn chain(first_instance: u16, instances: usize) -> ChainRow {
        ChainRow { first_instance, instances: instances as u16, steering: Steering::RoundRobin }
    }

    fn idle(_: InstancePlace) -> u64 {
        0
    }

    fn rows(weights: &[u32]) -> Decoded {
        let mut rows = Decoded::default();
        rows.chains[5] = Some(chain(10, weights.len()));
        for (at, &weight_kbps) in weights.iter().enumerate() {
            rows.instances[10 + at] = Some(InstanceRow::in_region(0, 1, weight_kbps));
        }
        rows
    }

    #[test]
    fn equal_weights_take_turns_where_packets_are_equal() {
        let rows = rows(&[7, 7, 7]);
        let mut spread = InstanceSelector::default();
        let chosen: Vec<_> = [594; 6]
            .map(|bytes| spread.choose(&rows, 5, (bytes, FLOW), idle).expect("an instance"))
            .into();
        assert_eq!(chosen, [10, 11, 12, 10, 11, 12]);
    }

    #[test]
    fn packets_that_alternate_are_spread_by_their_bytes() {
        let rows = rows(&[7, 7]);
        let mut spread = InstanceSelector::default();
        let mut bytes = [0; 2];
        for size in [64, 1_500].repeat(100) {
            let at = spread.choose(&rows, 5, (size, FLOW), idle).expect("an instance");
            bytes[usize::from(at) - 10] += size;
        }
        assert!(bytes[0].abs_diff(bytes[1]) <= 1_500, "{bytes:?}");
    }

    #[test]
    fn a_chain_without_a_usable_instance_has_none() {
        let mut spread = InstanceSelector::default();
        let none = Err(DropCause::NoInstance);
        assert_eq!(spread.choose(&Decoded::default(), 5, (64, FLOW), idle), none);
        assert_eq!(spread.choose(&rows(&[]), 5, (64, FLOW), idle), none);
        assert_eq!(spread.choose(&rows(&[0, 0]), 5, (64, FLOW), idle), none);
        assert_eq!(spread.choose(&rows(&[1]), 4, (64, FLOW), idle), none);
        assert_eq!(spread.choose(&rows(&[1]), u16::MAX, (64, FLOW), idle), none);
        let mut gap = rows(&[1]);
        gap.instances[10] = None;
        assert_eq!(spread.choose(&gap, 5, (64, FLOW), idle), none);
        gap.chains[5] = Some(chain(u16::MAX, 9));
        assert_eq!(spread.choose(&gap, 5, (64, FLOW), idle), none);
    }

    #[test]
    fn where_the_chain_says_so_the_load_of_the_region_decides() {
        let mut rows = rows(&[5, 5, 0, 5]);
        for (at, region) in [(10, 3), (11, 1), (12, 0), (13, 1)] {
            let row = rows.instances[at].expect("made above");
            rows.instances[at] = Some(InstanceRow::in_region(region, 1, row.weight_kbps));
        }
        let by_load = ChainRow { steering: Steering::LeastLoaded, ..chain(10, 4) };
        rows.chains[5] = Some(by_load);
        let mut spread = InstanceSelector::default();
        let load = |place| match place {
            InstancePlace::Region { region, .. } => [0, 700, 0, 900][usize::from(region)],
            InstancePlace::Link { .. } => 0,
        };
        let chosen: Vec<_> = (0..3).map(|_| spread.choose(&rows, 5, (64, FLOW), load)).collect();
        assert_eq!(chosen, [Ok(11); 3], "of equals the first, and none without a weight");
        assert_eq!(spread.choose(&rows, 5, (64, FLOW), |_| 7), Ok(10));
    }

    #[test]
    fn an_instance_of_no_weight_gets_nothing() {
        let rows = rows(&[0, 3, 1]);
        let mut spread = InstanceSelector::default();
        for _ in 0..40 {
            assert_ne!(spread.choose(&rows, 5, (64, FLOW), idle), Ok(10));
        }
    }

    proptest! {
        #[test]
        fn bytes_follow_the_weights(
            weights in prop::collection::vec(1_u32..100_000, 2..6),
            sizes in prop::collection::vec(64_u32..1_519, 500..600),
        ) {
            let rows = rows(&weights);
            let mut spread = InstanceSelector::default();
            let mut bytes = vec![0_u64; weights.len()];
            for &size in &sizes {
                let at = spread.choose(&rows, 5, (size, FLOW), idle).expect("an instance");
                bytes[usize::from(at) - 10] += u64::from(size);
            }
            let total: f64 = sizes.iter().map(|&size| f64::from(size)).sum();
            let sum: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
            for (&got, &weight) in bytes.iter().zip(&weights) {
                let due = total * f64::from(weight) / sum;
                let slack = 1_518.0 * weights.len() as f64;
                prop_assert!((got as f64 - due).abs() <= slack, "{got} of {due}");
            }
        }
    }
}
