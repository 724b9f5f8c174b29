//! Fig. 5: user 1 runs NT1→NT2 and NT3→NT4, user 2 NT2→NT4; both share what is loaded.

use std::time::Duration;

use anyhow::{Context, Result};
use snic_card_sim::{Options, Sizes, TrafficSource};
use snic_controller::DagView;
use snic_domain::{Bandwidth, CardId, DagSpec, NtTypeId};

use crate::lab::{Lab, Setup, nt};
use crate::outcome::{Axis, Bound, Origin, Outcome, Plot, Series};
use crate::parameters::Parameters;

const STEP: Duration = Duration::from_micros(100);
/// User 2's load in Gbit/s, and for how many epochs.
const LOADS: [(u64, u64); 3] = [(6, 5), (14, 10), (10, 5)];
/// What user 1 asks for with each of its two chains, and user 2 with its one, in Gbit/s.
const EACH: u64 = 4;
const ASKED: u64 = 14;
const EPOCH: Duration = Duration::from_millis(20);

pub(super) fn run(parameters: &Parameters) -> Result<Outcome> {
    let mut outcome = Outcome::default();
    let mut card = parameters.card.clone();
    card.regions.truncate(3);
    let ten = Bandwidth::from_gbps(10);
    let nts = ["nt1", "nt2", "nt3", "nt4"].iter().map(|name| nt(name, 10, ten));
    let nts = nts.collect::<Result<_>>()?;
    let chains: Vec<&[&str]> = vec![&["nt1", "nt2"], &["nt3", "nt4"], &["nt2", "nt4"]];
    let mut lab = Lab::new(&Setup { card, options: Options::default(), nts, chains })?;
    lab.tenant("one", 1)?;
    lab.tenant("two", 1)?;
    let one = [
        lab.dag("one", "first", chain(&["nt1", "nt2"], EACH)?)?,
        lab.dag("one", "second", chain(&["nt3", "nt4"], EACH)?)?,
    ];
    let more = lab.dag("two", "a", chain(&["nt2", "nt4"], ASKED + 3)?);
    let two = lab.dag("two", "a", chain(&["nt2", "nt4"], ASKED)?)?;
    let exact = |n| (Origin::Derived, Bound::Exact(n));
    let most = f64::from(more.is_ok());
    outcome.check("17 Gbit/s promised beside twice 4", "DAGs", exact(0.0), most);
    let loads = lab.controller.card_view(&CardId::new("card0")?).context("a card")?.loads;
    outcome.check("regions loaded for all chains", "regions", exact(3.0), loads as f64);
    let seen = drive(&mut lab, &one, &two)?;
    let about = |gbps| (Origin::Derived, Bound::Share(gbps, 0.03));
    for (what, gbps, at) in [("6", 6.0, 3), ("14", 14.0, 12), ("10", 10.0, 18)] {
        outcome.check(format!("user 2 at a load of {what}"), "Gbit/s", about(gbps), seen[1][at].1);
        outcome.check("user 1 beside that", "Gbit/s", about(8.0), seen[0][at].1);
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

fn chain(nts: &[&str], gbps: u64) -> Result<DagSpec> {
    let nts = nts.iter().map(|nt| NtTypeId::new(nt)).collect::<Result<Vec<_>, _>>()?;
    Ok(DagSpec::chain(&nts, Bandwidth::from_gbps(gbps)))
}

/// By user, what is served in each epoch.
fn drive(lab: &mut Lab, one: &[DagView; 2], two: &DagView) -> Result<[Vec<(f64, f64)>; 2]> {
    let source = |dag: &DagView, gbps| {
        TrafficSource::of_dag(dag.uid, Bandwidth::from_gbps(gbps), Sizes::Fixed(1_500))
    };
    for dag in one {
        lab.send(source(dag, EACH))?;
    }
    let mut seen = [Vec::new(), Vec::new()];
    for (gbps, epochs) in LOADS {
        let sender = lab.send(source(two, gbps))?;
        for _ in 0..epochs {
            lab.card.take_measurements();
            lab.live(EPOCH, STEP)?;
            let measured = lab.card.take_measurements();
            for (seen, dags) in seen.iter_mut().zip([&one[..], std::slice::from_ref(two)]) {
                let served = dags.iter().filter_map(|dag| measured.dag(dag.uid.row()));
                let served = served.map(|dag| dag.served.gbps_f64()).sum();
                seen.push((seen.len() as f64, served));
            }
        }
        lab.card.detach(sender);
    }
    Ok(seen)
}
