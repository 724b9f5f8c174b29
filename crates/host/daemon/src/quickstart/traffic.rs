//! Traffic for the simulated card: all DAGs at the same time.

use snic_api::v1::Dag;
use snic_card_sim::{DagMeasurement, IMIX, Measurements, SharedSimCard, Sizes, TrafficSource};
use snic_domain::{Bandwidth, DagUid};

/// The traffic of one DAG and what the card measured.
#[derive(Debug, Clone)]
pub struct MeasuredDag {
    /// Its resource name.
    pub dag: String,
    /// The bandwidth that it is promised.
    pub promised: Bandwidth,
    /// Measurement of the card.
    pub measured: Option<DagMeasurement>,
}

/// The result of a run.
#[derive(Debug, Clone)]
pub struct TrafficRun {
    /// For each DAG, in the given order.
    pub flows: Vec<MeasuredDag>,
    /// Totals of the card.
    pub all: Measurements,
}

/// The load, in percent of the promised bandwidth. At 100 %, random arrivals would wait for the rate
/// limiter without bound; that is queueing theory, not the card.
pub const LOAD_PERCENT: u64 = 80;

/// Sends [`LOAD_PERCENT`] of each DAG's bandwidth for `micros` of simulated time, as packets of the Internet
/// mix with random (Poisson) arrivals. Blocks while the card is simulated.
pub fn drive(card: &SharedSimCard, dags: &[Dag], micros: u64) -> anyhow::Result<TrafficRun> {
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
        let flow = |dag: &Dag| MeasuredDag {
            dag: dag.name.clone(),
            promised: Bandwidth::from_bps(dag.bandwidth_bps),
            measured: all.dag(DagUid::from_raw(dag.uid).row()).cloned(),
        };
        Ok(TrafficRun { flows: dags.iter().map(flow).collect(), all })
    })
}
