//! Changes of resources, each on one line.

use snic_api::v1::operation::Result as Ended;
use snic_api::v1::{
    EventType, WatchBitstreamsResponse, WatchCardsResponse, WatchNtTypesResponse,
    WatchOperationsResponse, WatchRulesResponse, WatchTenantsResponse,
};
use snic_api::words::EnumWord as _;

use super::Style;
use super::text::health_word;
use super::text::{self, id};
use super::views::event_word;

/// A change of a tenant, on one line; `None` for a bookmark.
pub fn tenant_event(event: &WatchTenantsResponse, _: Style) -> Option<String> {
    let tenant = event.tenant.as_ref()?;
    Some(changed(event.r#type(), id(&tenant.name), &format!("weight {}", tenant.weight)))
}

/// A change of a network task type, on one line; `None` for a bookmark.
pub fn nt_type_event(event: &WatchNtTypesResponse, _: Style) -> Option<String> {
    let nt = event.nt_type.as_ref()?;
    Some(changed(event.r#type(), id(&nt.name), &nt.description))
}

/// A change of a bitstream, on one line; `None` for a bookmark.
pub fn bitstream_event(event: &WatchBitstreamsResponse, _: Style) -> Option<String> {
    let bitstream = event.bitstream.as_ref()?;
    Some(changed(event.r#type(), id(&bitstream.name), bitstream.state().word()))
}

/// A change of a rule, on one line; `None` for a bookmark.
pub fn rule_event(event: &WatchRulesResponse, _: Style) -> Option<String> {
    let rule = event.rule.as_ref()?;
    Some(changed(event.r#type(), id(&rule.name), &format!("to {}", text::dag(&rule.dag))))
}

/// The beginning or end of an operation, on one line; `None` for a bookmark.
pub fn operation_event(event: &WatchOperationsResponse, _: Style) -> Option<String> {
    let operation = event.operation.as_ref()?;
    let metadata = operation.metadata.clone().unwrap_or_default();
    let what = format!("{} {}", metadata.verb().word(), metadata.target);
    let how = match &operation.result {
        Some(Ended::Error(error)) => format!("failed: {}", error.message),
        _ if operation.done => "done".to_owned(),
        _ => "begun".to_owned(),
    };
    Some(changed(event.r#type(), id(&operation.name), &format!("{what}  {how}")))
}

/// A change of a card, on one line; `None` for a bookmark.
pub fn card_event(event: &WatchCardsResponse, _: Style) -> Option<String> {
    let card = event.card.as_ref()?;
    let how = format!("{} {}", health_word(card.health()), card.message);
    Some(changed(event.r#type(), id(&card.name), &how))
}

pub(super) fn changed(kind: EventType, name: &str, how: &str) -> String {
    let how = if kind == EventType::Deleted { "" } else { how };
    format!("{:<8} {name}  {how}", event_word(kind)).trim_end().to_owned()
}
