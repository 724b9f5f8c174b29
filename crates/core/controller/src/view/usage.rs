//! Usage that a caller sees, and rates at which DAGs use their cards.

use std::collections::BTreeMap;

use snic_domain::{ConditionStatus, NtTypeId, TenantId};
use snic_usage::{Account, AccountKey, BreakCause, IntervalLevel, PromiseState, UsageRates};

use crate::protocol::{UsageAccount, UsageView};
use crate::state::Core;
use crate::state::dags::DagEntry;
use crate::state::epoch::{OnCard, area_of_promise};
use crate::store::records::regions_of;
use crate::view::status::{ADOPTING, UNCONFIGURED};

/// Usage of a tenant, or of all. A tenant does not see that of a deleted one that had its name. Time O(accounts of the tenant).
pub(crate) fn usage(core: &Core, tenant: Option<&TenantId>) -> UsageView {
    let born = tenant.and_then(|id| core.registry.tenant(id));
    let born = born.map_or(0, |record| record.created.as_nanos() / 1_000_000_000);
    let accounts = match tenant {
        None => core.usage.accounts().map(|(key, account)| view(core, key, account)).collect(),
        Some(tenant) => {
            let own = core.usage.accounts_of(tenant).filter(|(_, account)| account.is_since(born));
            own.map(|(key, account)| view(core, key, account)).collect()
        }
    };
    UsageView {
        closed: core.usage.closed().unwrap_or_default(),
        kept: *core.usage.kept(),
        availability_ppm: core.policies.current().availability_ppm,
        accounts,
    }
}

fn view(core: &Core, key: &AccountKey, account: &Account) -> UsageAccount {
    let tenant = core.registry.tenant(account.tenant());
    UsageAccount {
        project: tenant.and_then(|record| record.tenant.project.clone()),
        key: key.clone(),
        tenant: account.tenant().clone(),
        dag: account.dag().cloned(),
        begun: account.begun(),
        first: account.first(),
        ended: account.ended(),
        nts: account.nts().to_vec(),
        outages: account.outages().to_vec(),
        open: IntervalLevel::ALL.map(|level| (level, account.page(level).clone())),
    }
}

const MEBIBYTE: u64 = 1 << 20;

/// Rates at which a DAG uses its card. Time O(its instances).
pub(crate) fn rates(core: &Core, entry: &DagEntry) -> UsageRates {
    let spec = entry.spec();
    let memory = core.registry.pages_of(spec).into_values().map(|size| size.get() / MEBIBYTE);
    let mut rates = UsageRates {
        promised: spec.bandwidth.get(),
        packets: spec.packet_sizes.packets_per_second(spec.bandwidth),
        memory: memory.fold(0, u64::saturating_add),
        functions: core.usage.functions(entry.name()),
        ..UsageRates::default()
    };
    let Some(placement) = entry.desired() else { return rates };
    rates.regions = regions_of(placement).len() as u32;
    let id = &placement.mapping.card;
    let Some(card) = core.cards.get(id) else { return rates };
    let uses = OnCard { id, card, registry: &core.registry }.uses_alone(placement);
    rates.area = area_of_promise(&uses, spec.bandwidth);
    let mut instances: BTreeMap<NtTypeId, u32> = BTreeMap::new();
    for of in uses {
        *instances.entry(of.nt).or_default() += 1;
    }
    rates.nts = instances.into();
    rates
}

/// State of a DAG's promise; `None` while nothing says that it was given one. `before` is the state that it had.
pub(crate) fn promise_state(
    entry: &DagEntry,
    before: Option<PromiseState>,
) -> Option<PromiseState> {
    let promise = entry.promise()?;
    if promise.status == ConditionStatus::True {
        return Some(entry.service_fault().map_or(PromiseState::Kept, PromiseState::Broken));
    }
    if promise.reason == ADOPTING {
        // What was broken by the loss of the card is broken until the card has said what it holds.
        return Some(match before {
            Some(PromiseState::Broken(cause)) if !cause.is_of_service() => {
                PromiseState::Broken(cause)
            }
            _ => PromiseState::Unknown,
        });
    }
    if promise.reason == UNCONFIGURED && entry.lacks_own_only() {
        // The tenant's own program fails, and nobody can see what would be served without that.
        return Some(PromiseState::Unknown);
    }
    let cause = match &*promise.reason {
        "CARD_LOST" => BreakCause::CardLost,
        "NO_PLACE" => BreakCause::NoPlace,
        UNCONFIGURED => BreakCause::ConfigurationRefused,
        _ if entry.is_stopped() => BreakCause::Stopped,
        "RECONFIGURING" | "LOAD_FAILING" | "REGION_STALLED" => BreakCause::RegionNotLoaded,
        _ => BreakCause::NotProgrammed,
    };
    Some(PromiseState::Broken(cause))
}
