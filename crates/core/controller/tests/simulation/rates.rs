//! Rates at which DAGs take of the card while time passes, by what the controller shows of them and nothing of its book, beside their bills: from
//! one close to another, while a DAG stays as it is, each meter of time is its rate × the time that is billed.

use std::collections::BTreeMap;

use snic_controller::{Controller, DagView};
use snic_domain::limits::PAGE_SIZE;
use snic_domain::{CardProfile, DagName, DagUid, NtType, NtTypeId, RegionId};

use crate::callers::operator;
use crate::usage::{Bill, bill};

/// All that a DAG takes, by the number of the meter; NTs by type, and its part of the card's area in millionths.
#[derive(Debug, Clone, PartialEq)]
struct Taken {
    rates: BTreeMap<u64, u64>,
    nts: BTreeMap<NtTypeId, u64>,
    area: f64,
}

/// DAGs that have stayed as they were.
#[derive(Debug, Default)]
pub struct RatesBook {
    taken: BTreeMap<DagUid, Taken>,
    before: BTreeMap<DagUid, Bill>,
}

fn types(controller: &Controller) -> BTreeMap<NtTypeId, NtType> {
    let caller = operator();
    let types = controller.nt_types(&caller);
    types.map(|view| (view.nt.id.clone(), view.nt)).collect()
}

/// The part of the card's area that the promise of a DAG takes as if it were alone, in millionths.
fn area(view: &DagView, types: &BTreeMap<NtTypeId, NtType>, profile: &CardProfile) -> f64 {
    let weight = |nt: &NtTypeId| f64::from(types[nt].area.lut + 1);
    let Some(mapping) = &view.mapping else { return 0.0 };
    let mut slots: BTreeMap<RegionId, BTreeMap<u8, &NtTypeId>> = BTreeMap::new();
    for instance in mapping.instances() {
        let of = slots.entry(instance.region).or_default();
        for slot in &instance.slots {
            of.insert(slot.0, &view.contents[&instance.bitstream][slot.index()]);
        }
    }
    let all: u64 = profile.regions.iter().map(|region| u64::from(region.area.lut)).sum();
    let mut area = 0.0;
    for chain in mapping.chains() {
        let of_chain: u64 = chain.instances.iter().map(|i| i.bandwidth.get()).sum();
        for instance in &chain.instances {
            let used: f64 = slots[&instance.region].values().map(|nt| weight(nt)).sum();
            let region = f64::from(profile.regions[instance.region.index()].area.lut);
            for slot in &instance.slots {
                let nt = slots[&instance.region][&slot.0];
                let part = region / all as f64 * weight(nt) / used;
                let load = view.spec.bandwidth.get() as f64 / types[nt].bandwidth_max.get() as f64;
                area += part * load * instance.bandwidth.get() as f64 / of_chain as f64;
            }
        }
    }
    area * 1e6
}

fn taken(
    view: &DagView,
    types: &BTreeMap<NtTypeId, NtType>,
    functions: &BTreeMap<DagName, u64>,
    profile: &CardProfile,
) -> Taken {
    let own: BTreeMap<&NtTypeId, u64> = view
        .spec
        .nodes
        .iter()
        .map(|node| (&node.nt, types[&node.nt].memory.get().div_ceil(PAGE_SIZE.get())))
        .collect();
    let memory = own.values().sum::<u64>() * PAGE_SIZE.get() / (1 << 20);
    let mut nts: BTreeMap<NtTypeId, u64> = BTreeMap::new();
    for instance in view.mapping.iter().flat_map(|mapping| mapping.instances()) {
        for slot in &instance.slots {
            let nt = &view.contents[&instance.bitstream][slot.index()];
            *nts.entry(nt.clone()).or_default() += 1;
        }
    }
    let functions = functions.get(&view.name).copied().unwrap_or_default();
    let rates = [(41, memory), (43, functions)].into();
    Taken { rates, nts, area: area(view, types, profile) }
}

fn all_taken(controller: &Controller, profile: &CardProfile) -> BTreeMap<DagUid, Taken> {
    let types = types(controller);
    let mut functions: BTreeMap<DagName, u64> = BTreeMap::new();
    for binding in controller.bindings_after(None, None) {
        for function in &binding.record.functions {
            *functions.entry(function.dag.clone()).or_default() += 1;
        }
    }
    let views = controller.dags(None).into_iter().filter(|view| view.mapping.is_some());
    views.map(|view| (view.uid, taken(&view, &types, &functions, profile))).collect()
}

impl RatesBook {
    /// DAGs are looked at from now on.
    pub fn begin(controller: &Controller, profile: &CardProfile) -> Self {
        Self { taken: all_taken(controller, profile), before: BTreeMap::new() }
    }

    /// Those that are not as they were are looked at no more.
    pub fn look(&mut self, controller: &Controller, profile: &CardProfile) {
        let now = all_taken(controller, profile);
        self.taken.retain(|uid, taken| now.get(uid) == Some(taken));
    }

    /// Bills up to the last close, since which nothing has changed.
    pub fn closed(&mut self, controller: &Controller, durable: &BTreeMap<String, Vec<u8>>) {
        let bills = controller.usage(None).accounts.into_iter().filter_map(|account| {
            let snic_usage::AccountPart::Dag(uid) = account.key.part else { return None };
            Some((uid, bill(&account, durable)))
        });
        self.before = bills.collect();
    }

    /// Compares what was billed since then; returns the number of DAGs.
    pub fn check(&self, controller: &Controller, durable: &BTreeMap<String, Vec<u8>>) -> u64 {
        let mut compared = 0;
        for account in controller.usage(None).accounts {
            let snic_usage::AccountPart::Dag(uid) = account.key.part else { continue };
            let Some(taken) = self.taken.get(&uid) else { continue };
            let after = bill(&account, durable);
            let before = self.before.get(&uid);
            let more = |meter: u64| {
                let of = |bill: &Bill| bill.get(&meter).copied().unwrap_or(0);
                of(&after) - before.map_or(0, of)
            };
            let life = more(0);
            let near = |meter: u64, rate: u64| {
                let found = more(meter);
                // Each meter is rounded down by itself.
                let is_near = found.abs_diff(rate * life) <= rate + 1;
                assert!(
                    is_near,
                    "{uid}: meter {meter} has {found}, not {rate} × {life}: {taken:?}"
                );
            };
            taken.rates.iter().for_each(|(meter, rate)| near(*meter, *rate));
            for (place, nt) in (48..).zip(&account.nts) {
                near(place, taken.nts.get(nt).copied().unwrap_or(0));
            }
            let known = taken.nts.keys().filter(|nt| account.nts.contains(nt)).count();
            assert!(life == 0 || known == taken.nts.len(), "{uid}: {:?}, {taken:?}", account.nts);
            let (area, due) = (more(40) as f64, taken.area * life as f64 / 1e3);
            // Areas are rounded to billionths, and promises to 2^-40 of an area.
            assert!((area - due).abs() <= 2.0 + due / 100.0, "{uid}: {area} of {due}: {taken:?}");
            compared += u64::from(life > 0);
        }
        compared
    }
}
