//! Traffic at the simulated card: every DAG gets what it asked for, at the same time.

use snic_api::v1::Dag;
use snic_card_sim::{DagMeasurement, IMIX, Measurements, SharedSimCard, Sizes, TrafficSource};
use snic_domain::{Bandwidth, DagUid};

/// What one DAG was sent and what came out.
#[derive(Debug, Clone)]
pub struct Flow {
    /// Its resource name.
    pub dag: String,
    /// What it asked for.
    pub requested: Bandwidth,
    /// What the card counted.
    pub measured: Option<DagMeasurement>,
}

/// What a run of traffic gave.
#[derive(Debug, Clone)]
pub struct Run {
    /// By DAG, in the order given.
    pub flows: Vec<Flow>,
    /// What the card counted in all.
    pub all: Measurements,
}

/// The load, in percent of what was asked for. At all of it, random arrivals would wait for the
/// rate limiter without bound: that is queueing theory, not the card.
const LOAD_PERCENT: u64 = 80;

/// Sends each DAG most of what it asked for, in packets of the Internet mix that arrive at random
/// (Poisson), for `micros` of the card's time. Blocks while the card is simulated.
pub fn drive(card: &SharedSimCard, dags: &[Dag], micros: u64) -> anyhow::Result<Run> {
    card.with(|card| {
        card.take_measurements();
        let sources = dags
            .iter()
            .map(|dag| {
                let rate = Bandwidth::from_bps(dag.bandwidth_bps / 100 * LOAD_PERCENT);
                let uid = DagUid::from_raw(dag.uid);
                let sizes = Sizes::Mix(IMIX.to_vec());
                card.attach(TrafficSource::of_dag(uid, rate, sizes).poisson())
            })
            .collect::<Result<Vec<_>, _>>()?;
        card.run_for(micros.saturating_mul(card.profile().clock_hz) / 1_000_000);
        let all = card.take_measurements();
        for source in sources {
            card.detach(source);
        }
        let flow = |dag: &Dag| Flow {
            dag: dag.name.clone(),
            requested: Bandwidth::from_bps(dag.bandwidth_bps),
            measured: all.dag(DagUid::from_raw(dag.uid).row()).cloned(),
        };
        Ok(Run { flows: dags.iter().map(flow).collect(), all })
    })
}
