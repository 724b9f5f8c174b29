//! From a placement to rows of the card's tables, and the owners of rows.

use std::collections::BTreeMap;

use snic_domain::limits::{CHAIN_ROWS, FORK_BRANCHES_MAX, INSTANCE_ROWS, STAGE_ROWS};
use snic_domain::{
    Bandwidth, DagSpec, DagUid, Infeasible, Mapping, PortLimits, Resource, Rule, Shortage,
};
use snic_tables::{
    ChainRow, ClassifierRow, DagConfiguration, DagRow, GuardRow, InstanceRow, InvalidRow, NONE,
    RateLimiterRow, RowKey, StageRow, Steering, Table, TableImage,
};

use crate::store::records::Placement;

/// Least depth of a token bucket: 43 packets of 1,500 bytes. Who sends at random at nine tenths of its
/// rate has more than that at once in one of ten thousand cases (e^(-2·43·(1-ρ)/ρ) at ρ = 0.9), so what
/// was promised does not wait in its own bucket when a neighbour takes the spare.
const BURST_BYTES_MIN: u32 = 65_536;
/// Time that a full bucket lasts at the guaranteed rate: long enough for the bursts that a sender's own
/// batching makes, short against the packet store. It does not follow the current rate: what counts as a burst
/// within the promise does not depend on what others leave.
const BURST_MICROS: u64 = 10;

/// Most instances of one DAG: its record holds the mapping up to twice beside three specs, and must not become too long
/// by what the autoscaler, an epoch or a search decides. As many are 16 virtual chains in each of 32 regions.
pub(crate) const DAG_INSTANCES_MAX: usize = 512;

/// Columns of a DAG's rows besides its placement.
#[derive(Debug, Clone)]
pub(crate) struct DagColumns {
    pub uid: DagUid,
    pub tenant: u16,
    pub payload: bool,
    pub bucket: Bucket,
    pub steering: Steering,
    /// Configuration of its NTs, where any is configured.
    pub configuration: Option<DagConfiguration>,
}

/// Settings of a DAG's token bucket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    pub rate: Bandwidth,
    pub promised: Bandwidth,
    /// The average size of the packets that were promised; `None` where only bandwidth is.
    pub packet_bytes: Option<u32>,
    pub weight: u32,
}

/// Average packet size in a bucket where a card counts packets, as the DAG states it.
pub(crate) fn packet_bytes(counts: bool, spec: &DagSpec) -> Option<u32> {
    counts.then(|| spec.packet_sizes.mean_bytes())
}

/// Number of rows that a mapping takes: stages, virtual chains, instances.
pub(crate) fn row_counts(mapping: &Mapping) -> (u16, u16, u16) {
    let count = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
    let chains = mapping.chains().count();
    (count(mapping.stages.len()), count(chains), count(mapping.instances().count()))
}

/// The rows that a placement of the DAG `uid` takes.
pub(crate) fn keys(uid: DagUid, placement: &Placement) -> impl Iterator<Item = RowKey> + use<> {
    let (stages, chains, instances) = row_counts(&placement.mapping);
    let run = |table, first: u16, count: u16| {
        (first..first.saturating_add(count)).map(move |row| RowKey { table, row })
    };
    run(Table::Dag, uid.row(), 1)
        .chain(run(Table::RateLimiter, uid.row(), 1))
        .chain(run(Table::Stage, placement.stage_row, stages))
        .chain(run(Table::Chain, placement.chain_row, chains))
        .chain(run(Table::Instance, placement.instance_row, instances))
}

/// Depth of the token bucket of a promise, in bytes.
pub(crate) fn burst_bytes(promised: Bandwidth) -> u32 {
    let bytes = promised.get() / 8 * BURST_MICROS / 1_000_000;
    u32::try_from(bytes).unwrap_or(u32::MAX).max(BURST_BYTES_MIN)
}

/// The row of a token bucket.
pub(crate) fn bucket(bucket: Bucket) -> RateLimiterRow {
    let Bucket { rate, promised, packet_bytes, weight } = bucket;
    let burst_bytes = burst_bytes(promised);
    let weight = u16::try_from(weight).unwrap_or(u16::MAX);
    let packet_bytes = u16::try_from(packet_bytes.unwrap_or(0)).unwrap_or(u16::MAX);
    let (rate_kbps, promised_kbps) = (rate.kbps(), promised.kbps());
    RateLimiterRow { rate_kbps, burst_bytes, promised_kbps, packet_bytes, weight }
}

/// Writes a placement's rows.
pub(crate) fn encode(
    image: &mut TableImage,
    columns: &DagColumns,
    placement: &Placement,
) -> Result<(), InvalidRow> {
    let stages = &placement.mapping.stages;
    let mut chain = placement.chain_row;
    let mut instance = placement.instance_row;
    for (row, (i, stage)) in (placement.stage_row..).zip(stages.iter().enumerate()) {
        let mut chains = [NONE; FORK_BRANCHES_MAX];
        for (column, branch) in chains.iter_mut().zip(&stage.branches) {
            *column = chain;
            let instances = u16::try_from(branch.instances.len()).unwrap_or(u16::MAX);
            let steering = columns.steering;
            image.set(chain, &ChainRow { first_instance: instance, instances, steering })?;
            for (at, way) in (instance..).zip(&branch.instances) {
                let columns =
                    InstanceRow::in_region(way.region.0, way.used_mask(), way.bandwidth.kbps());
                image.set(at, &columns)?;
            }
            instance += instances;
            chain += 1;
        }
        let last = i + 1 == stages.len();
        let join_mask = ((1u16 << stage.branches.len()) - 1) as u8;
        let next = if last { NONE } else { row + 1 };
        image.set(row, &StageRow { chains, join_mask, next, last })?;
    }
    image.set(columns.uid.row(), &bucket(columns.bucket))?;
    let dag = DagRow {
        tenant: columns.tenant,
        uid: columns.uid.raw(),
        first_stage: placement.stage_row,
        stages: u16::try_from(stages.len()).unwrap_or(u16::MAX),
        rate_limiter: columns.uid.row(),
        payload: columns.payload,
        configuration: columns.configuration.as_ref().map_or(0, DagConfiguration::tag),
        guest: None,
    };
    image.set(columns.uid.row(), &dag)?;
    Ok(())
}

/// The classifier row of a rule.
pub(crate) fn classifier(rule: &Rule, uid: DagUid) -> ClassifierRow {
    let prefix = |prefix: Option<snic_domain::Prefix>| {
        prefix.map_or((0, 0), |p| (u32::from(p.address) & p.mask(), p.mask()))
    };
    ClassifierRow {
        dag_uid: uid.raw(),
        priority: rule.priority,
        virtual_function: rule.matches.virtual_function,
        vni: rule.matches.vni,
        source: prefix(rule.matches.source),
        destination: prefix(rule.matches.destination),
        protocol: rule.matches.protocol,
        source_port: rule.matches.source_port,
        destination_port: rule.matches.destination_port,
        vlan: rule.matches.vlan,
    }
}

/// The row of a function's port. A request's limits were checked, so a row has room for all of them.
pub(crate) fn guard(limits: &PortLimits) -> GuardRow {
    let vlans = limits.vlans.as_ref().map(|vlans| {
        let mut vlans = vlans.iter().copied();
        std::array::from_fn(|_| vlans.next().unwrap_or(0))
    });
    GuardRow {
        macs: std::array::from_fn(|at| limits.mac_addresses.get(at).map(|mac| mac.0)),
        vlans,
        group_frames_per_second: limits.broadcasts_per_second,
    }
}

/// Runs of free rows of one table; first fit, so that the same history gives the same rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FreeRows {
    /// First row of each free run, and how long it is; runs never touch.
    runs: BTreeMap<u16, u16>,
}

impl FreeRows {
    fn new(rows: usize) -> Self {
        Self { runs: BTreeMap::from([(0, u16::try_from(rows).unwrap_or(u16::MAX))]) }
    }

    /// Takes `count` rows that follow each other. Time O(free runs).
    fn take(&mut self, count: u16) -> Option<u16> {
        let (&first, &length) = self.runs.iter().find(|&(_, &length)| length >= count)?;
        self.remove(first, length, first, count);
        Some(first)
    }

    /// Takes exactly these rows.
    fn take_at(&mut self, first: u16, count: u16) -> Result<(), RowConflict> {
        match self.runs.range(..=first).next_back() {
            Some((&start, &length)) if first + count <= start + length => {
                self.remove(start, length, first, count);
                Ok(())
            }
            _ if count == 0 => Ok(()),
            _ => Err(RowConflict),
        }
    }

    fn remove(&mut self, start: u16, length: u16, first: u16, count: u16) {
        if count == 0 {
            return;
        }
        self.runs.remove(&start);
        if first > start {
            self.runs.insert(start, first - start);
        }
        if first + count < start + length {
            self.runs.insert(first + count, start + length - first - count);
        }
    }

    fn give(&mut self, mut first: u16, mut count: u16) {
        if count == 0 {
            return;
        }
        if let Some((&start, &length)) = self.runs.range(..first).next_back()
            && start + length == first
        {
            self.runs.remove(&start);
            first = start;
            count += length;
        }
        if let Some(length) = self.runs.remove(&(first + count)) {
            count += length;
        }
        self.runs.insert(first, count);
    }
}

/// Rows belong to another placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowConflict;

/// The first row of each run that a placement has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FirstRows {
    pub stage: u16,
    pub chain: u16,
    pub instance: u16,
}

/// The rows of stages, virtual chains and instances that are free on a card.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RowPool {
    stages: FreeRows,
    chains: FreeRows,
    instances: FreeRows,
}

impl RowPool {
    pub fn new() -> Self {
        Self {
            stages: FreeRows::new(STAGE_ROWS),
            chains: FreeRows::new(CHAIN_ROWS),
            instances: FreeRows::new(INSTANCE_ROWS),
        }
    }

    /// Rows for a mapping, or the table that has no run long enough. One DAG has at most [`DAG_INSTANCES_MAX`] instances.
    pub fn take(&mut self, mapping: &Mapping) -> Result<FirstRows, Table> {
        let (stages, chains, instances) = row_counts(mapping);
        if usize::from(instances) > DAG_INSTANCES_MAX {
            return Err(Table::Instance);
        }
        let stage = self.stages.take(stages).ok_or(Table::Stage)?;
        let Some(chain) = self.chains.take(chains) else {
            self.stages.give(stage, stages);
            return Err(Table::Chain);
        };
        let Some(instance) = self.instances.take(instances) else {
            self.stages.give(stage, stages);
            self.chains.give(chain, chains);
            return Err(Table::Instance);
        };
        Ok(FirstRows { stage, chain, instance })
    }

    /// Takes the rows that a stored placement has.
    ///
    /// # Errors
    /// Not all are free; some may have been taken then.
    pub fn take_stored(&mut self, placement: &Placement) -> Result<(), RowConflict> {
        let (stages, chains, instances) = row_counts(&placement.mapping);
        self.stages.take_at(placement.stage_row, stages)?;
        self.chains.take_at(placement.chain_row, chains)?;
        self.instances.take_at(placement.instance_row, instances)
    }

    /// Gives a placement's rows back.
    pub fn give(&mut self, placement: &Placement) {
        let (stages, chains, instances) = row_counts(&placement.mapping);
        self.stages.give(placement.stage_row, stages);
        self.chains.give(placement.chain_row, chains);
        self.instances.give(placement.instance_row, instances);
    }
}

/// The reason when a table has no run of free rows that is long enough.
pub(crate) fn rows_short(table: Table, mapping: &Mapping) -> Infeasible {
    let (stages, chains, instances) = row_counts(mapping);
    let required = match table {
        Table::Stage => stages,
        Table::Chain => chains,
        _ => instances,
    };
    let (available, detail) = match usize::from(instances) > DAG_INSTANCES_MAX {
        true => (DAG_INSTANCES_MAX as u64, "most instances of one DAG".to_owned()),
        false => (0, format!("no run of free rows in the {table:?} table is long enough")),
    };
    Infeasible {
        shortages: vec![Shortage {
            resource: Resource::TableRows,
            required: required.into(),
            available,
            nodes: Vec::new(),
            detail,
        }],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A mapping with so many instances of one virtual chain.
    fn mapping(instances: usize) -> Mapping {
        let instance = snic_domain::Instance {
            region: snic_domain::RegionId(0),
            bitstream: "lb".parse().expect("a label"),
            slots: vec![snic_domain::Slot(0)],
            bandwidth: Bandwidth::from_mbps(1),
        };
        let chain = snic_domain::VirtualChain {
            nodes: vec!["n".parse().expect("a label")],
            instances: vec![instance; instances],
        };
        Mapping {
            card: "card0".parse().expect("a label"),
            form: snic_domain::Form::Sequential,
            stages: vec![snic_domain::Stage { branches: vec![chain] }],
            programs: Vec::new(),
        }
    }

    #[test]
    fn one_dag_has_no_more_instances_than_its_record_has_room_for() {
        let mut pool = RowPool::new();
        let more = mapping(DAG_INSTANCES_MAX + 1);
        assert!(matches!(pool.take(&more), Err(Table::Instance)));
        let refusal = rows_short(Table::Instance, &more);
        let short = &refusal.shortages[0];
        assert_eq!((short.required, short.available), (513, 512), "{refusal}");
        assert!(refusal.to_string().contains("instances of one DAG"), "{refusal}");
        // Nothing was taken, and the limit itself is within it.
        for dag in 0..INSTANCE_ROWS / DAG_INSTANCES_MAX {
            assert!(pool.take(&mapping(DAG_INSTANCES_MAX)).is_ok(), "DAG {dag}");
        }
        let none = rows_short(Table::Instance, &mapping(1));
        assert!(matches!(pool.take(&mapping(1)), Err(Table::Instance)));
        assert_eq!(none.shortages[0].available, 0, "{none}");
    }

    #[test]
    fn free_runs_split_and_join() {
        let mut free = FreeRows::new(10);
        assert_eq!(free.take(4), Some(0));
        assert_eq!(free.take(4), Some(4));
        assert_eq!(free.take(3), None);
        free.give(0, 4);
        assert_eq!(free.take(3), Some(0));
        free.give(4, 4);
        free.give(0, 3);
        assert_eq!(free, FreeRows::new(10));
    }

    #[test]
    fn stored_rows_are_taken_once() {
        let mut free = FreeRows::new(10);
        assert_eq!(free.take_at(3, 4), Ok(()));
        assert_eq!(free.take_at(6, 1), Err(RowConflict));
        assert_eq!(free.take_at(2, 2), Err(RowConflict));
        assert_eq!(free.take_at(7, 3), Ok(()));
        assert_eq!(free.take_at(9, 2), Err(RowConflict));
        assert_eq!(free.take(3), Some(0));
        assert_eq!(free.take(1), None);
    }

    #[test]
    fn a_bucket_holds_forty_packets_or_ten_microseconds_of_the_promise() {
        let (little, much) = (Bandwidth::from_mbps(1), Bandwidth::from_gbps(100));
        let of =
            |rate, promised| bucket(Bucket { rate, promised, packet_bytes: Some(362), weight: 2 });
        for rate in [little, much] {
            assert_eq!(of(rate, little).burst_bytes, 65_536);
            assert_eq!(of(rate, much).burst_bytes, 125_000);
        }
        let fast = of(much, little);
        assert_eq!((fast.promised_kbps, fast.packet_bytes, fast.weight), (1_000, 362, 2));
        assert_eq!(fast.rate_kbps, 100_000_000);
    }

    proptest! {
        /// Rows given out never overlap, and all come back.
        #[test]
        fn rows_are_given_out_once(counts in prop::collection::vec(1u16..40, 1..60)) {
            let mut free = FreeRows::new(512);
            let mut taken: Vec<(u16, u16)> = Vec::new();
            for (i, &count) in counts.iter().enumerate() {
                if i % 3 == 2 && !taken.is_empty() {
                    let (first, count) = taken.remove(i % taken.len());
                    free.give(first, count);
                } else if let Some(first) = free.take(count) {
                    for &(other, length) in &taken {
                        prop_assert!(first + count <= other || other + length <= first);
                    }
                    prop_assert!(first + count <= 512);
                    taken.push((first, count));
                }
            }
            for (first, count) in taken {
                free.give(first, count);
            }
            prop_assert_eq!(free, FreeRows::new(512));
        }
    }
}
