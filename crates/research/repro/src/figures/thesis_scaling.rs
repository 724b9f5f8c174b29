//! The thesis's scaling: an overloaded NT gets another instance after a monitor period, and a reconfiguration later it serves.

use std::time::Duration;

use anyhow::{Context, Result};
use snic_card_sim::{Sizes, TrafficSource};
use snic_controller::ControllerSettings;
use snic_domain::{CardId, RegionState, Timestamp};

use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series};
use crate::parameters::{
    DUMMY_CYCLES, FIG15_NT_GBPS, FIG15_REQUEST_GBPS, FIG15_SETTLE_MS, PACKET_BYTES, Parameters,
    SCALING_LOADS_GBPS, SCALING_PERIOD_MS, gbps,
};
use crate::testbed::{Setup, Testbed, nt};

/// Steps of the session: far shorter than a reconfiguration.
const STEP: Duration = Duration::from_micros(50);
const MS: Duration = Duration::from_millis(1);
/// Milliseconds with each load.
const MILLIS: [u64; 2] = [10, 40];

/// Times in milliseconds from the rise of the load on.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    /// When the load of another region began.
    begun: Option<f64>,
    /// When that region held the chain.
    held: Option<f64>,
}

/// Observations of a run.
#[derive(Default)]
struct Timeline {
    served: Vec<(f64, f64)>,
    times: Times,
}

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let whole = watch(parameters)?;
    let mut outcome = FigureOutcome::default();
    let of = |time: Option<f64>| time.unwrap_or(f64::INFINITY);
    let thesis = |bound| Expected::predicted(Origin::Published, bound);
    let begun = of(whole.times.begun);
    let after = thesis(ExpectedBound::Between(10.0, 11.0));
    outcome.check("Overload until another instance is loaded", "ms", after, begun);
    let takes = of(whole.times.held) - begun;
    outcome.check("Reconfiguration", "ms", thesis(ExpectedBound::Share(5.0, 0.1)), takes);
    let mean = |from: usize, to: usize| {
        let part = whole.served.get(from..to).unwrap_or_default();
        part.iter().map(|(_, served)| served).sum::<f64>() / (to - from) as f64
    };
    let rise = MILLIS[0] as usize;
    let served = |value| thesis(ExpectedBound::Share(value, 0.05));
    outcome.check("served before the rise", "Gbit/s", served(10.0), mean(1, rise));
    outcome.check("served until it is loaded", "Gbit/s", served(20.0), mean(rise + 1, rise + 15));
    outcome.check("served from then on", "Gbit/s", served(30.0), mean(rise + 17, rise + 40));
    outcome.plot = Some(Plot {
        x: "Time (ms)",
        y: "Throughput (Gbit/s)",
        axis: Axis::Linear,
        series: vec![Series::ours("served", whole.served)],
    });
    outcome.note(
        "From the product's controller, driver and card: a chain with two instances whose load rises from 10 to 30 Gbit/s at 10 ms. The thesis waits for a whole \
         monitor period of 10 ms, and a reconfiguration takes 5 ms; the autoscaler's policy has both. As it ships it also loads free regions without \
         waiting, for a load that comes near what serves it (pre_launch): Fig. 15 has that. The thesis's epoch of 20 µs is not compared: the product's shortest is a millisecond. Nor are its 3 µs \
         for DRF, which are a time of its processor.",
    );
    Ok(outcome)
}

fn watch(parameters: &Parameters) -> Result<Timeline> {
    let (cycles, rate) = (parameters.count(&DUMMY_CYCLES), parameters.gbps(&FIG15_NT_GBPS));
    let (card, options) = (parameters.card.clone(), parameters.options());
    let nts = vec![nt("dummy", cycles, rate)?];
    let mut testbed = Testbed::new(&Setup { card, options, nts, chains: vec![&["dummy"]] })?;
    let mut settings = ControllerSettings::default();
    settings.autoscaling.pre_launch = false;
    settings.autoscaling.monitor_period = parameters.millis(&SCALING_PERIOD_MS);
    testbed.policies(settings)?;
    let dag = testbed.chain("chain", &["dummy"], parameters.gbps(&FIG15_REQUEST_GBPS))?;
    // Policies count from the end of an epoch on; then the first millisecond begins with a monitor period.
    testbed.live(parameters.millis(&FIG15_SETTLE_MS) * 3, STEP)?;
    let wait = testbed.controller.next_sample().since(testbed.now());
    testbed.live(wait, STEP)?;
    testbed.card.take_measurements();
    let mut seen = Timeline::default();
    let bytes = Sizes::Fixed(parameters.count(&PACKET_BYTES) as u32);
    for (phase, (load, millis)) in
        parameters.all(&SCALING_LOADS_GBPS).iter().zip(MILLIS).enumerate()
    {
        let source = testbed.send(TrafficSource::of_dag(dag.uid, gbps(*load), bytes.clone()))?;
        let since = testbed.now();
        for _ in 0..millis {
            for _ in 0..MS.as_micros() / STEP.as_micros() {
                testbed.live(STEP, STEP)?;
                if phase > 0 {
                    note(&testbed, since, &mut seen.times)?;
                }
            }
            let measured = testbed.card.take_measurements();
            let served = measured.dag(dag.uid.row()).map_or(0.0, |dag| dag.served.gbps_f64());
            seen.served.push((seen.served.len() as f64, served));
        }
        testbed.card.detach(source);
    }
    Ok(seen)
}

fn note(testbed: &Testbed, since: Timestamp, times: &mut Times) -> Result<()> {
    let card = testbed.controller.card_view(&CardId::new("card0")?).context("the card is there")?;
    let now = testbed.now().since(since).as_secs_f64() * 1e3;
    let count =
        |state: fn(&RegionState) -> bool| card.regions.iter().filter(|(_, of)| state(of)).count();
    if count(|state| matches!(state, RegionState::Reconfiguring)) > 0 {
        times.begun.get_or_insert(now);
    }
    if count(|state| matches!(state, RegionState::Active | RegionState::Victim)) > 2 {
        times.held.get_or_insert(now);
    }
    Ok(())
}
