//! The NTs of the DAGs: which number is which type, their configurations and what they keep.
//!
//! State that an NT keeps for a DAG is in the card's memory, by DAG and NT, as SuperNIC keeps it in on-board
//! memory behind a page table: all instances of an NT see the same tables, and a region can be loaded
//! again under them. It begins with the DAG's first configuration of that NT. An NT without a configuration
//! passes packets on as they are; one whose configuration is not understood drops them.
//!
//! ```text
//!            row with a tag                  row gone                   60 s, a fifth one of the tenant,
//!   nothing ────────────────► in force ─────────────────► put by ───────────────────────► nothing
//!                              │    ▲ row with another tag  │  ▲           another DAG in the row
//!                              └────┘                       └──┘ row is back: as it was
//! ```

mod elsewhere;

use std::collections::BTreeMap;
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use snic_domain::{DagUid, NtNumber, NtTypeId, Timestamp};
use snic_nts::{
    Context, Counters, Direction, DropReason, Emitted, NtInstance, Packet, Pool, Verdict,
};
use snic_tables::DagRow;
use snic_tables::configuration::{NtEntry, entries};

use crate::flows::{FLOWS_MAX, FlowTable, FrameFlow};
use crate::protocol::TaskObservation;

/// An NT of a DAG: the DAG's UID and the NT type's number.
pub(crate) type TaskKey = (u32, NtNumber);

/// Time that the state of a DAG's NTs is put by while the DAG has no row: a drain takes its rows away until
/// what its regions keep has been moved.
pub(crate) const PUT_BY: Duration = Duration::from_secs(60);
/// DAGs of one tenant whose NTs' tables are put by at once: who makes and deletes DAGs all the time gets no
/// more memory for it.
const PUT_BY_MAX: usize = 4;

/// A DAG whose NTs have configurations.
#[derive(Debug, Clone, Copy)]
struct ConfiguredDag {
    tenant: u16,
    /// Tag of its configurations.
    tag: u32,
    /// Since when it has no row.
    put_by: Option<Timestamp>,
}

struct Task {
    name: String,
    /// `None` where there is no such NT here: it drops everything.
    instance: Option<NtInstance>,
    dropped: u64,
    /// Packets that a flow rule treated.
    by_rule: u64,
}

/// The NTs of all DAGs.
pub(crate) struct Tasks {
    tasks: BTreeMap<TaskKey, Task>,
    /// DAGs by UID.
    dags: BTreeMap<u32, ConfiguredDag>,
    /// When to look for what is put by for too long.
    look_at: Option<Timestamp>,
    /// No timer is due before.
    wake_at: Option<Timestamp>,
    /// Configurations of DAGs that came into force.
    configured: u64,
    /// NTs that did not take theirs.
    refused: u64,
    flows: FlowTable,
    random: ChaCha8Rng,
    pub(crate) emitted: Emitted,
}

impl Tasks {
    pub(crate) fn new(pool: &Pool, random: ChaCha8Rng) -> Self {
        Self {
            tasks: BTreeMap::new(),
            dags: BTreeMap::new(),
            look_at: None,
            wake_at: None,
            configured: 0,
            refused: 0,
            flows: FlowTable::new(FLOWS_MAX),
            random,
            emitted: Emitted::new(pool.clone()),
        }
    }

    /// Works on a packet, by the rules of its flow where there are some; `None` where the NT has no configuration for its DAG,
    /// or does not touch bytes.
    pub(crate) fn process(
        &mut self,
        key: TaskKey,
        (packet, flow): (&mut Packet, &mut FrameFlow),
        now: Timestamp,
    ) -> Option<Verdict> {
        let task = self.tasks.get_mut(&key)?;
        let Some(instance) = &mut task.instance else {
            task.dropped += 1;
            return Some(Verdict::Drop(DropReason::Unconfigured));
        };
        let mut context = Context { now, random: &mut self.random, emitted: &mut self.emitted };
        let followed = self.flows.follow((packet, flow), key, instance, &mut context);
        if followed.is_some() {
            task.by_rule += 1;
            return followed;
        }
        let verdict = instance.process(packet, &mut context);
        self.flows.note_processed(row_of(key.0));
        let is_keyed = !matches!(flow, FrameFlow::Unruled);
        let rule = if is_keyed { instance.flow_rule(packet, verdict) } else { None };
        let tenant = || Some(self.dags.get(&key.0)?.tenant);
        self.flows.record((packet, flow), key, rule, tenant);
        self.wake_at = earlier(self.wake_at, instance.next_wake());
        if let Some(translation) = packet.take_translation() {
            let nts_of_dag = (key.0, NtNumber(0))..=(key.0, NtNumber(u32::MAX));
            for (_, other) in self.tasks.range_mut(nts_of_dag).filter(|(other, _)| **other != key) {
                if let Some(instance) = &mut other.instance
                    && instance.learn(&translation, now)
                {
                    self.flows.note_learnt(row_of(key.0));
                }
            }
        }
        Some(verdict)
    }

    /// The time until the next timer is due.
    pub(crate) fn due_in(&self, now: Timestamp) -> Option<Duration> {
        self.wake_at.map(|at| at.since(now))
    }

    /// Runs the timers that are due; `take` gets each frame that an NT made. The timers of DAGs without a row stand
    /// still: nothing that they sent could pass.
    pub(crate) fn wake(&mut self, now: Timestamp, mut take: impl FnMut(TaskKey, Packet)) {
        if self.wake_at.is_none_or(|at| now < at) {
            return;
        }
        self.wake_at = None;
        for (key, task) in &mut self.tasks {
            let is_away = self.dags.get(&key.0).is_none_or(|held| held.put_by.is_some());
            let Some(instance) = task.instance.as_mut().filter(|_| !is_away) else { continue };
            if instance.next_wake().is_some_and(|at| at <= now) {
                let mut context =
                    Context { now, random: &mut self.random, emitted: &mut self.emitted };
                instance.wake(&mut context);
                self.emitted.drain().for_each(|(_, packet)| take(*key, packet));
            }
            self.wake_at = earlier(self.wake_at, instance.next_wake());
        }
    }

    /// Context that an NT gets with each call.
    pub(crate) fn context(&mut self, now: Timestamp) -> Context<'_> {
        Context { now, random: &mut self.random, emitted: &mut self.emitted }
    }

    /// Frames that the last packet's NT made.
    pub(crate) fn made(&mut self) -> impl Iterator<Item = (Direction, Packet)> + '_ {
        self.emitted.drain()
    }

    /// New packets find this row of a DAG; `bytes` are the configurations that came with it.
    pub(crate) fn row_is(&mut self, now: Timestamp, dag: &DagRow, bytes: Option<&[u8]>) {
        self.flows.invalidate(row_of(dag.uid));
        self.forget(|uid, _| row_of(uid) == row_of(dag.uid) && uid != dag.uid);
        if dag.configuration == 0 {
            self.forget(|uid, _| uid == dag.uid);
            return;
        }
        let before = self.dags.get(&dag.uid).map(|held| held.tag);
        let held = ConfiguredDag { tenant: dag.tenant, tag: dag.configuration, put_by: None };
        self.dags.insert(dag.uid, held);
        if before != Some(dag.configuration) {
            self.configured += 1;
            self.configure(now, dag.uid, bytes.unwrap_or_default());
        }
        // Its timers run again.
        self.wake_at = Some(now);
    }

    /// A row of the DAG table is empty from now on.
    pub(crate) fn row_is_gone(&mut self, now: Timestamp, row: u16) {
        self.flows.invalidate(row);
        let Some((_, held)) = self.dags.iter_mut().find(|(uid, _)| row_of(**uid) == row) else {
            return;
        };
        held.put_by = held.put_by.or(Some(now));
        self.look_at = self.look_at.or(Some(now + PUT_BY));
        let tenant = held.tenant;
        self.shed(tenant);
    }

    /// The one of a tenant that is put by the longest goes, where there are too many.
    fn shed(&mut self, tenant: u16) {
        let of_tenant = self.dags.iter().filter(|(_, held)| held.tenant == tenant);
        let put_by: Vec<_> =
            of_tenant.filter_map(|(uid, held)| Some((held.put_by?, *uid))).collect();
        if put_by.len() > PUT_BY_MAX
            && let Some((_, oldest)) = put_by.into_iter().min()
        {
            self.forget(|uid, _| uid == oldest);
        }
    }

    /// Removes what was put by for too long.
    pub(crate) fn expire(&mut self, now: Timestamp) {
        if self.look_at.is_none_or(|at| now < at) {
            return;
        }
        self.forget(|_, held| held.put_by.is_some_and(|since| now.since(since) >= PUT_BY));
        let oldest = self.dags.values().filter_map(|held| held.put_by).min();
        self.look_at = oldest.map(|since| since + PUT_BY);
    }

    /// All that was kept is gone.
    pub(crate) fn clear(&mut self) {
        self.forget(|_, _| true);
    }

    fn forget(&mut self, goes: impl Fn(u32, &ConfiguredDag) -> bool) {
        let Self { dags, flows, .. } = self;
        dags.retain(|uid, held| {
            let is_kept = !goes(*uid, held);
            if !is_kept {
                flows.remove_dag(*uid, held.tenant);
            }
            is_kept
        });
        let dags = &self.dags;
        self.tasks.retain(|(uid, _), _| dags.contains_key(uid));
    }

    /// Gives the NTs of a DAG their configurations. What they keep stays, and those that have none any
    /// more pass packets on as they are.
    fn configure(&mut self, now: Timestamp, uid: u32, bytes: &[u8]) {
        // The model has looked at the bytes already.
        let entries = entries(bytes).unwrap_or_default();
        self.tasks.retain(|(of, nt), _| *of != uid || entries.iter().any(|e| e.number == *nt));
        for entry in entries {
            let seed = rand::RngCore::next_u64(&mut self.random);
            let task = self.tasks.entry((uid, entry.number)).or_insert_with(|| Task {
                name: entry.nt_type.to_owned(),
                instance: snic_nts::create(entry.nt_type, seed).ok(),
                dropped: 0,
                by_rule: 0,
            });
            // What a module does with a configuration is seen by its packets.
            if !task.configure(now, &entry) && !is_of_tenant(entry.nt_type) {
                self.refused += 1;
            }
        }
    }

    /// Flows that have rules.
    pub(crate) fn flows(&self) -> usize {
        self.flows.len()
    }

    /// Use of the flow table by DAG: UIDs, flows, and flows that others took the place of.
    pub(crate) fn flow_uses(&self) -> impl Iterator<Item = (u32, u32, u64)> + '_ {
        self.flows.uses()
    }

    /// Counts of the NTs.
    pub(crate) fn observe(&self) -> Vec<TaskObservation> {
        let observe = |(&(uid, _), task): (&TaskKey, &Task)| {
            let mut seen = TaskObservation {
                uid,
                nt_type: task.name.clone(),
                tag: self.dags.get(&uid).map_or(0, |held| held.tag),
                by_rule: task.by_rule,
                ..TaskObservation::default()
            };
            match &task.instance {
                Some(instance) => seen.count(instance.counters()),
                None => {
                    seen.received = task.dropped;
                    let name = DropReason::Unconfigured.name().to_owned();
                    seen.dropped = vec![(name, task.dropped)];
                }
            }
            seen
        };
        self.tasks.iter().map(observe).collect()
    }

    /// Configurations of DAGs that came into force, and NTs that did not take theirs.
    pub(crate) const fn configurations(&self) -> (u64, u64) {
        (self.configured, self.refused)
    }
}

#[cfg(test)]
impl Tasks {
    /// Replaces the flow table by an empty one.
    pub(crate) fn set_flow_table(&mut self, flows: FlowTable) {
        self.flows = flows;
    }

    /// The rule of a whole chain for the flow of a frame that has left it.
    pub(crate) fn compose(&self, uid: u32, flow: &FrameFlow) -> Option<crate::HeaderRule> {
        self.flows.compose(uid, flow)
    }

    pub(crate) fn check_flow_table(&self) {
        self.flows.check();
    }

    /// The state that the NTs would save.
    pub(crate) fn saved(&self, now: Timestamp) -> Vec<Vec<u8>> {
        let instances = self.tasks.values().filter_map(|task| task.instance.as_ref());
        instances.map(|instance| instance.save(now)).collect()
    }
}

/// The earlier of two times.
fn earlier(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

/// Whether an NT type is a tenant's own: its name has the tenant's in front.
fn is_of_tenant(nt_type: &str) -> bool {
    NtTypeId::new(nt_type).is_ok_and(|id| id.owner().is_some())
}

/// A UID names its row in its low bits.
const fn row_of(uid: u32) -> u16 {
    DagUid::from_raw(uid).row()
}

impl Task {
    /// Whether the NT took it; where not, it does what it did.
    fn configure(&mut self, now: Timestamp, entry: &NtEntry<'_>) -> bool {
        let Ok(schema) = snic_nts::schema(entry.nt_type) else { return false };
        let taken = self
            .instance
            .as_mut()
            .map(|instance| instance.configure(now, schema.version, entry.json.as_bytes()).is_ok());
        taken.unwrap_or(false)
    }
}

impl TaskObservation {
    pub(crate) fn count(&mut self, counters: &Counters) {
        self.received = counters.received;
        self.forwarded = counters.forwarded;
        self.replied = counters.replied;
        self.consumed = counters.consumed;
        self.emitted = counters.emitted;
        self.dropped = counters.drops().map(|(why, n)| (why.name().to_owned(), n)).collect();
    }
}

impl std::fmt::Debug for Tasks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tasks").field("of", &self.tasks.keys()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use snic_domain::{Bandwidth, DagSpec, NtConfiguration, NtTypeId};
    use snic_tables::DagConfiguration;

    use super::*;

    struct Bench {
        pool: Pool,
        tasks: Tasks,
        now: Timestamp,
    }

    fn uid(row: u16, incarnation: u32) -> DagUid {
        DagUid::new(row, incarnation).expect("it fits")
    }

    fn configurations(of: DagUid, nts: &[(&str, &str)]) -> DagConfiguration {
        let ids: Vec<_> = nts.iter().map(|(nt, _)| NtTypeId::new(nt).expect("a label")).collect();
        let mut spec = DagSpec::chain(&ids, Bandwidth::from_gbps(1));
        for (node, (_, json)) in spec.nodes.iter_mut().zip(nts) {
            node.configuration = Some(NtConfiguration::new(json));
        }
        DagConfiguration::of(of, &spec, |nt| number(nt.as_str())).expect("it has some")
    }

    /// Another one for each NT of these tests.
    fn number(nt: &str) -> NtNumber {
        NtNumber(nt.bytes().map(u32::from).sum())
    }

    /// UDP from port 1000 to port 2000.
    const FRAME: [u8; 60] = {
        let head = [
            2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0x66,
            0xbd, 10, 0, 0, 1, 10, 0, 0, 2, 3, 0xe8, 7, 0xd0, 0, 26,
        ];
        let mut frame = [0; 60];
        let mut at = 0;
        while at < head.len() {
            frame[at] = head[at];
            at += 1;
        }
        frame
    };

    impl Bench {
        fn new() -> Self {
            let pool = Pool::new(8, 2_048);
            let tasks = Tasks::new(&pool, ChaCha8Rng::seed_from_u64(1));
            Self { pool, tasks, now: Timestamp::from_nanos(1) }
        }

        fn row(&mut self, tenant: u16, of: DagUid, nts: &[(&str, &str)]) {
            let configuration = (!nts.is_empty()).then(|| configurations(of, nts));
            let row = DagRow {
                tenant,
                uid: of.raw(),
                first_stage: 0,
                stages: 1,
                rate_limiter: 0,
                payload: false,
                configuration: configuration.as_ref().map_or(0, DagConfiguration::tag),
                guest: None,
            };
            self.tasks.row_is(self.now, &row, configuration.as_ref().map(DagConfiguration::bytes));
        }

        fn send(&mut self, of: DagUid, nt: &str) -> Option<Verdict> {
            let mut packet = self.pool.copy_of(&FRAME).expect("a buffer");
            let frame = (&mut packet, &mut FrameFlow::New);
            self.tasks.process((of.raw(), number(nt)), frame, self.now)
        }
    }

    const OPEN: &str = r#"{"rules":[],"default":"accept"}"#;
    const CLOSED: &str = r#"{"rules":[]}"#;
    const DENIED: Option<Verdict> = Some(Verdict::Drop(DropReason::Rule));

    #[test]
    fn each_dag_has_its_own_and_a_change_keeps_what_was_learnt() {
        let mut bench = Bench::new();
        let (one, other) = (uid(1, 1), uid(2, 1));
        bench.row(1, one, &[("firewall", OPEN)]);
        bench.row(2, other, &[("firewall", CLOSED)]);
        assert_eq!(bench.send(one, "firewall"), Some(Verdict::Forward));
        assert_eq!(bench.send(other, "firewall"), DENIED);
        assert_eq!(bench.send(one, "nat"), None, "no configuration");
        bench.row(1, one, &[("firewall", CLOSED)]);
        assert_eq!(bench.send(one, "firewall"), DENIED, "the new rules are in force");
        let seen = bench.tasks.observe();
        assert_eq!((seen[0].received, seen[0].forwarded), (2, 1), "one and the same NT: {seen:?}");
        bench.row(1, one, &[]);
        assert_eq!(bench.send(one, "firewall"), None, "told nothing any more");
        assert_eq!(bench.send(other, "firewall"), DENIED, "another DAG's is as it was");
    }

    #[test]
    fn an_invalid_configuration_drops_every_packet() {
        let mut bench = Bench::new();
        let dag = uid(1, 1);
        bench.row(1, dag, &[("firewall", r#"{"rulez":[]}"#), ("router", "{}")]);
        for nt in ["firewall", "router"] {
            let verdict = bench.send(dag, nt);
            assert_eq!(verdict, Some(Verdict::Drop(DropReason::Unconfigured)), "{nt}");
        }
        assert_eq!(bench.tasks.configurations(), (1, 2));
        bench.row(1, dag, &[("firewall", OPEN)]);
        assert_eq!(bench.send(dag, "firewall"), Some(Verdict::Forward));
        bench.row(1, dag, &[("firewall", r#"{"rulez":[]}"#)]);
        assert_eq!(bench.send(dag, "firewall"), Some(Verdict::Forward), "the former one holds");
    }

    #[test]
    fn a_row_that_comes_back_finds_what_was_kept_and_another_dag_does_not() {
        let mut bench = Bench::new();
        let dag = uid(1, 1);
        bench.row(1, dag, &[("firewall", OPEN)]);
        bench.send(dag, "firewall");
        bench.tasks.row_is_gone(bench.now, 1);
        bench.now = bench.now + Duration::from_secs(59);
        bench.tasks.expire(bench.now);
        bench.row(1, dag, &[("firewall", OPEN)]);
        assert_eq!(bench.tasks.observe()[0].received, 1, "as it was");
        bench.tasks.row_is_gone(bench.now, 1);
        bench.row(1, uid(1, 2), &[("firewall", OPEN)]);
        let seen = bench.tasks.observe();
        assert_eq!((seen.len(), seen[0].received), (1, 0), "{seen:?}");
        bench.tasks.row_is_gone(bench.now, 1);
        bench.now = bench.now + PUT_BY;
        bench.tasks.expire(bench.now);
        assert!(bench.tasks.observe().is_empty());
    }

    #[test]
    fn a_tenant_that_makes_and_deletes_dags_gets_no_more_memory() {
        let mut bench = Bench::new();
        bench.row(7, uid(1_000, 1), &[("firewall", OPEN)]);
        bench.tasks.row_is_gone(bench.now, 1_000);
        for row in 0..900 {
            bench.now = bench.now + Duration::from_nanos(1);
            bench.row(1, uid(row, 1), &[("firewall", OPEN)]);
            bench.tasks.row_is_gone(bench.now, row);
            assert!(bench.tasks.tasks.len() <= PUT_BY_MAX + 1);
        }
        assert!(bench.tasks.dags.contains_key(&uid(1_000, 1).raw()), "another tenant's stays");
    }

    #[test]
    fn timers_run_while_the_dag_has_a_row_and_stand_still_while_it_has_none() {
        let mut bench = Bench::new();
        let told = r#"{"local":"10.0.0.1","peer":"10.0.0.2","timeout_ms":100}"#;
        let of = uid(1, 1);
        bench.row(1, of, &[("go-back-n", told)]);
        let wake = |bench: &mut Bench, millis: u64| {
            bench.now = bench.now + Duration::from_millis(millis);
            let mut frames = Vec::new();
            bench.tasks.wake(bench.now, |key, packet| {
                assert_eq!(key, (of.raw(), number("go-back-n")));
                frames.push(packet.bytes().to_vec());
            });
            frames
        };
        assert!(wake(&mut bench, 1).is_empty());
        assert_eq!(bench.tasks.due_in(bench.now), None, "nothing is waited for");
        assert_eq!(bench.send(of, "go-back-n"), Some(Verdict::Consume));
        let made: Vec<_> = bench.tasks.made().map(|(_, packet)| packet.bytes().to_vec()).collect();
        assert_eq!(made.len(), 1);
        assert_eq!(bench.tasks.due_in(bench.now), Some(Duration::from_millis(100)));
        assert!(wake(&mut bench, 99).is_empty());
        assert_eq!(wake(&mut bench, 1), made, "the same again");
        bench.tasks.row_is_gone(bench.now, 1);
        assert!(wake(&mut bench, 50_000).is_empty());
        assert_eq!(bench.tasks.due_in(bench.now), None);
        bench.row(1, of, &[("go-back-n", told)]);
        assert_eq!(wake(&mut bench, 0), made, "what is kept was put by with the rest");
        assert_eq!(bench.tasks.due_in(bench.now), Some(Duration::from_millis(400)));
    }
}
