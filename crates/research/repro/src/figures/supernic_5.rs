//! Fig. 5: user 1 runs NT1→NT2 and NT3→NT4, user 2 NT2→NT4; both share what is loaded.

use std::time::Duration;

use anyhow::{Context, Result};
use snic_card_sim::{Sizes, TrafficSource};
use snic_controller::DagView;
use snic_domain::{Bandwidth, CardId, DagSpec, NtTypeId};

use crate::outcome::{Axis, Expected, ExpectedBound, FigureOutcome, Origin, Plot, Series};
use crate::parameters::{
    DUMMY_CYCLES, FIG5_EPOCH_MS, FIG5_EPOCHS, FIG5_LOADS_GBPS, FIG5_NT_GBPS, FIG5_REGIONS,
    FIG5_TOO_MUCH_GBPS, FIG5_USER1_GBPS, FIG5_USER2_GBPS, PACKET_BYTES, Parameters, gbps,
};
use crate::testbed::{Setup, Testbed, nt};

const STEP: Duration = Duration::from_micros(100);

pub(super) fn run(parameters: &Parameters) -> Result<FigureOutcome> {
    let mut outcome = FigureOutcome::default();
    let mut card = parameters.card.clone();
    let regions = parameters.value(&FIG5_REGIONS);
    card.regions.truncate(regions as usize);
    let (rate, cycles) = (parameters.gbps(&FIG5_NT_GBPS), parameters.count(&DUMMY_CYCLES));
    let each = gbps(parameters.value(&FIG5_USER1_GBPS) / 2.0);
    let (fits, too_much) =
        (parameters.gbps(&FIG5_USER2_GBPS), parameters.gbps(&FIG5_TOO_MUCH_GBPS));
    let nts = ["nt1", "nt2", "nt3", "nt4"].iter().map(|name| nt(name, cycles, rate));
    let nts = nts.collect::<Result<_>>()?;
    let chains: Vec<&[&str]> = vec![&["nt1", "nt2"], &["nt3", "nt4"], &["nt2", "nt4"]];
    let mut testbed = Testbed::new(&Setup { card, options: parameters.options(), nts, chains })?;
    testbed.tenant("one", 1)?;
    testbed.tenant("two", 1)?;
    let one = [
        testbed.dag("one", "first", chain(&["nt1", "nt2"], each)?)?,
        testbed.dag("one", "second", chain(&["nt3", "nt4"], each)?)?,
    ];
    let more = testbed.dag("two", "a", chain(&["nt2", "nt4"], too_much)?);
    let exact = |n| Expected::predicted(Origin::Computed, ExpectedBound::Exact(n));
    let admitted = f64::from(more.is_ok());
    outcome.check(format!("{too_much} for user 2 admitted"), "DAGs", exact(0.0), admitted);
    if more.is_ok() {
        // It takes the place of the load to be measured.
        return Ok(outcome);
    }
    let two = testbed.dag("two", "a", chain(&["nt2", "nt4"], fits)?)?;
    let loads = testbed.controller.card_view(&CardId::new("card0")?).context("a card")?.loads;
    outcome.check("regions loaded for all chains", "regions", exact(3.0), loads as f64);
    let seen = drive(&mut testbed, parameters, &one, &two)?;
    let about = |gbps| Expected::predicted(Origin::Published, ExpectedBound::Share(gbps, 0.03));
    let mut end = 0;
    for (load, epochs) in phases(parameters) {
        end += epochs;
        // Before the phase's last epoch, when rates have settled.
        let at = end - 2;
        let most = load.min(fits.gbps_f64());
        outcome.check(format!("user 2 at a load of {load}"), "Gbit/s", about(most), seen[1][at].1);
        outcome.check("user 1 beside that", "Gbit/s", about(each.gbps_f64() * 2.0), seen[0][at].1);
    }
    let [first, second] = seen;
    let (x, y) = ("Time (epochs)", "Throughput (Gbit/s)");
    let series = vec![Series::ours("user 1, both chains", first), Series::ours("user 2", second)];
    outcome.plot = Some(Plot { x, y, axis: Axis::Linear, series });
    outcome.note(
        "The paper gives one requested ingress bandwidth for each user: 8 Gbit/s for user 1, who has \
         two chains, and 14 for user 2. How user 1's are divided over its chains it does not say. Here \
         its 8 Gbit/s are what it sends into both together, 4 for each: were they for each, \
         NT2 and NT4, which serve 20 Gbit/s together in three regions, would have 12 left, and user \
         2's 14 could not be promised. User 2's packets pass its own chain and, beyond the 10 Gbit/s \
         of that, what user 1's chains leave of NT2 and NT4.",
    );
    Ok(outcome)
}

fn chain(nts: &[&str], bandwidth: Bandwidth) -> Result<DagSpec> {
    let nts = nts.iter().map(|nt| NtTypeId::new(nt)).collect::<Result<Vec<_>, _>>()?;
    Ok(DagSpec::chain(&nts, bandwidth))
}

/// User 2's load in Gbit/s, and for how many epochs.
fn phases(parameters: &Parameters) -> impl Iterator<Item = (f64, usize)> {
    let (loads, epochs) = (parameters.all(&FIG5_LOADS_GBPS), parameters.all(&FIG5_EPOCHS));
    loads.iter().zip(epochs).map(|(load, epochs)| (*load, epochs.max(2.0) as usize))
}

/// Served bandwidth of each user, in each epoch.
fn drive(
    testbed: &mut Testbed,
    parameters: &Parameters,
    one: &[DagView; 2],
    two: &DagView,
) -> Result<[Vec<(f64, f64)>; 2]> {
    let bytes = Sizes::Fixed(parameters.count(&PACKET_BYTES) as u32);
    let source = |dag: &DagView, rate| TrafficSource::of_dag(dag.uid, rate, bytes.clone());
    for dag in one {
        testbed.send(source(dag, gbps(parameters.value(&FIG5_USER1_GBPS) / 2.0)))?;
    }
    let mut seen = [Vec::new(), Vec::new()];
    for (load, epochs) in phases(parameters) {
        let sender = testbed.send(source(two, gbps(load)))?;
        for _ in 0..epochs {
            testbed.card.take_measurements();
            testbed.live(parameters.millis(&FIG5_EPOCH_MS), STEP)?;
            let measured = testbed.card.take_measurements();
            for (seen, dags) in seen.iter_mut().zip([&one[..], std::slice::from_ref(two)]) {
                let served = dags.iter().filter_map(|dag| measured.dag(dag.uid.row()));
                let served = served.map(|dag| dag.served.gbps_f64()).sum();
                seen.push((seen.len() as f64, served));
            }
        }
        testbed.card.detach(sender);
    }
    Ok(seen)
}
