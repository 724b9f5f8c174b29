//! Attributes of the spans of events and requests.

use snic_controller::{CardReport, Command, Event, FleetChange, Request};
use snic_domain::TenantId;

/// The kind of event, in a word or two.
pub(super) const fn word(event: &Event) -> &'static str {
    match event {
        Event::Request { .. } => "request",
        Event::CardAppeared { .. } => "card appeared",
        Event::CardAbsent { .. } => "card absent",
        Event::Card { report, .. } => match report {
            CardReport::Loaded { .. } => "region loaded",
            CardReport::Programmed { .. } => "tables programmed",
            CardReport::ReadBack { .. } => "card read back",
            CardReport::State { .. } => "state moved",
            CardReport::Sampled { .. } => "counters sampled",
            CardReport::Released { .. } => "card released",
            CardReport::NotReleased { .. } => "not released",
            CardReport::NotReset { .. } => "not reset",
            CardReport::Stuck { .. } => "region stuck",
            CardReport::Lost { .. } => "card lost",
        },
        Event::DeviceRead { .. } => "device read",
        Event::Searched(_) => "card searched",
        Event::Tick => "tick",
        Event::Sample => "sample due",
        Event::KeysChanged(_) => "keys changed",
        Event::PricesChanged(_) => "prices",
        Event::CallsCounted { .. } => "calls counted",
        Event::Settings(_) | Event::SettingsRefused { .. } | Event::AuthorizationChanged { .. } => {
            "policies"
        }
    }
}

/// The tenant that a request is for: the owner of the changed resource, or else the caller.
pub(super) fn tenant_of(request: &Request) -> Option<&TenantId> {
    match &request.command {
        Command::CreateTenant(tenant) => Some(&tenant.id),
        Command::UpdateTenant { id, .. } | Command::DeleteTenant { id, .. } => Some(id),
        Command::CreateDag { name, .. }
        | Command::UpdateDag { name, .. }
        | Command::DeleteDag { name, .. } => Some(&name.tenant),
        Command::CreateDags { batch, .. } => Some(&batch.tenant),
        Command::CreateRule(rule) => Some(&rule.dag.tenant),
        Command::BindVm(binding) => Some(&binding.tenant),
        Command::Fleet(FleetChange::Assign(assignment)) => Some(&assignment.name.tenant),
        Command::Fleet(FleetChange::Withdraw { name, .. }) => Some(&name.tenant),
        Command::UnbindVm { tenant: Some(tenant), .. } => Some(tenant),
        _ => request.caller.tenant(),
    }
}
