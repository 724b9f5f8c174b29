//! The card between switch and store, with the DAGs of an arm.
//!
//! With one NT, frames of both sides pass its DAG. With both, clients and store have a DAG each: `go-back-n` that of
//! the clients, `kv-cache` that of the store. What a client sends passes first its own and then the store's, and what
//! the store or the cache answers passes the client's DAG last, as between two functions of the software card.

use anyhow::{Context, Result};
use snic_card_soft::FrameBench;
use snic_domain::{Bandwidth, DagSpec, DagUid, NtConfiguration, NtTypeId, Timestamp};

use super::end::configuration;
use super::frames::{CLIENT, REPLICAS, STORE};
use super::{Arm, CardCache, Doubling, RunInputs};
use crate::parameters::Parameters;
use crate::testbed::{NtSequence, Setup, Testbed};

/// Each DAG's promise, in Gbit/s: more than the load, and both fit the card.
const PROMISE: u64 = 40;
/// Time that the NT waits for packets on their way after it was configured, and longer.
const SETTLED: std::time::Duration = std::time::Duration::from_millis(3);

/// The sides of the card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Clients,
    Store,
}

impl Side {
    const fn other(self) -> Self {
        match self {
            Self::Clients => Self::Store,
            Self::Store => Self::Clients,
        }
    }
}

/// A frame that leaves by a port.
pub(super) struct Sent {
    pub(super) frame: Vec<u8>,
    pub(super) side: Side,
    pub(super) at: Timestamp,
}

pub(super) struct Card {
    testbed: Testbed,
    bench: FrameBench,
    /// DAGs that frames of the clients pass; those of the store the same the other way around.
    dags: Vec<DagUid>,
}

impl Card {
    pub(super) fn new(
        parameters: &Parameters,
        bed: &RunInputs,
        arm: Arm,
        window: usize,
    ) -> Result<Self> {
        let chains: Vec<NtSequence<'static>> =
            vec![&["go-back-n"], &["kv-cache"], &["kv-replication"]];
        let (card, nts) = (parameters.card.clone(), parameters.nt_types());
        let options = parameters.options();
        let mut testbed = Testbed::new(&Setup { card, options, nts, chains })?;
        let bench = FrameBench::attach(&mut testbed.card, bed.seed);
        let mut dags = Vec::new();
        for (nt, told) in Self::tasks(bed, arm, window) {
            let mut spec = DagSpec::chain(&[NtTypeId::new(nt)?], Bandwidth::from_gbps(PROMISE));
            let node = spec.nodes.first_mut().context("a chain of one NT has it")?;
            node.configuration = Some(NtConfiguration::new(&told));
            dags.push(testbed.dag("lab", nt, spec)?.uid);
        }
        testbed.pass(SETTLED)?;
        Ok(Self { testbed, bench, dags })
    }

    /// The NTs and their configurations, the clients' first.
    fn tasks(bed: &RunInputs, arm: Arm, window: usize) -> Vec<(&'static str, String)> {
        let mut tasks = Vec::new();
        if arm.transport {
            tasks.push(("go-back-n", configuration(STORE, CLIENT, window)));
        }
        let store = STORE.address;
        if arm.cache == CardCache::Product {
            let (pairs, bytes) = (bed.cache_pairs, bed.value_bytes);
            let told = format!(
                r#"{{"server":"{store}","items_max":{pairs},"value_bytes_max":{bytes},"age_max_ms":3600000,"settling_ms":1}}"#
            );
            tasks.push(("kv-cache", told));
        }
        if arm.doubling == Doubling::Card {
            let [one, other] = REPLICAS.map(|replica| replica.address);
            let told = format!(
                r#"{{"service":"{store}","replicas":[{{"address":"{one}"}},{{"address":"{other}"}}]}}"#
            );
            tasks.push(("kv-replication", told));
        }
        tasks
    }

    /// The card's time.
    pub(super) fn now(&self) -> Timestamp {
        self.testbed.card.now()
    }

    /// Whether frames are on it.
    pub(super) fn is_busy(&self) -> bool {
        self.testbed.card.packets_in_flight() > 0
    }

    /// When the next timer of its NTs is due.
    pub(super) fn next_wake(&mut self) -> Option<Timestamp> {
        self.bench.next_wake(&mut self.testbed.card)
    }

    /// A frame arrives now.
    pub(super) fn arrive(&mut self, side: Side, frame: &[u8]) -> Result<()> {
        self.inject(side, 0, frame)
    }

    /// A frame that came in by this side enters the DAG that is the `stage`th on its way.
    fn inject(&mut self, side: Side, stage: usize, frame: &[u8]) -> Result<()> {
        let at = match side {
            Side::Clients => stage,
            Side::Store => self.dags.len() - 1 - stage,
        };
        let dag = *self.dags.get(at).context("a frame passes each DAG once")?;
        let port = stage * 2 + usize::from(side == Side::Store);
        let is_in = self.bench.inject(&mut self.testbed.card, dag, port, frame);
        anyhow::ensure!(is_in, "the card has no buffer");
        Ok(())
    }

    /// Moves its time on; `out` gets each frame that leaves by a port meanwhile.
    pub(super) fn run(&mut self, until: Timestamp, out: &mut Vec<Sent>) -> Result<()> {
        use snic_ports::card::Card as _;
        self.testbed.card.poll(until).map_err(|error| anyhow::anyhow!("{error}"))?;
        while let Some(left) = self.bench.left(&mut self.testbed.card) {
            let came = if left.port % 2 == 1 { Side::Store } else { Side::Clients };
            let stage = left.port / 2;
            let frame = left.packet.bytes().to_vec();
            let has_next = stage + 1 < self.dags.len();
            match (left.back, stage) {
                (false, _) if has_next => self.inject(came, stage + 1, &frame)?,
                (false, _) => out.push(Sent { frame, side: came.other(), at: left.at }),
                (true, 0) => out.push(Sent { frame, side: came, at: left.at }),
                // It passed its own side's DAG on its way here, and so does the answer.
                (true, _) => self.inject(came.other(), stage, &frame)?,
            }
        }
        if self.next_wake().is_some_and(|at| at <= self.now()) {
            // Only the transport has timers. Its DAG is the last one for what comes from the store.
            let port = (self.dags.len() - 1) * 2 + 1;
            self.bench.wake(&mut self.testbed.card, |_| port);
        }
        Ok(())
    }

    /// Reads that the cache answered, of those that came to it.
    pub(super) fn replied(&mut self) -> u64 {
        let seen = self.bench.observe(&mut self.testbed.card);
        seen.iter().filter(|task| task.nt_type == "kv-cache").map(|task| task.replied).sum()
    }

    /// Fails if packets were lost on the card other than by its NTs.
    pub(super) fn check(&self) -> Result<()> {
        self.testbed.card.check().map_err(anyhow::Error::msg)?;
        let errors = self.testbed.card.measurements().errors();
        anyhow::ensure!(errors == 0, "packets met faults on the card");
        Ok(())
    }
}
