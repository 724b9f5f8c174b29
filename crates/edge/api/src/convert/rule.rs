//! Classification rules.

use std::net::Ipv4Addr;

use prost_types::FieldMask;
use snic_domain::{Match, Prefix, Rule, RulePatch};

use super::mask::Mask;
use super::{FieldProblem, Problems, id, name, notes, number};
use crate::error::ApiError;
use crate::names::excerpt;
use crate::v1;

/// VNIs have 24 bits.
const VNI_MAX: u32 = (1 << 24) - 1;
const VLAN_MAX: u16 = 4_094;
/// Virtual functions, ports and priorities have 16.
const U16_MAX: u32 = u16::MAX as u32;

/// Converts a new rule.
///
/// # Errors
/// [`ApiError`] with all invalid fields.
pub fn rule(rule_id: &str, rule: Option<&v1::Rule>) -> Result<Rule, ApiError> {
    let mut problems = Problems::default();
    let id = problems.keep(id("rule_id", rule_id));
    let missing = || ApiError::required("rule");
    let Some(rule) = rule else { return Err(missing()) };
    let priority = problems.keep(number("rule.priority", rule.priority, U16_MAX));
    let matches = rule.r#match.as_ref().ok_or_else(|| FieldProblem::required("rule.match"));
    let matches = problems.keep(matches).map(|matches| packet_match(&mut problems, matches));
    let dag = problems.keep(name::dag("rule.dag", &rule.dag));
    let notes = notes::notes(&mut problems, "rule", &rule.labels, &rule.description);
    problems.finish()?;
    let rule = || Some(Rule { id: id?, priority: priority?, matches: matches?, dag: dag?, notes });
    rule().ok_or_else(missing)
}

/// The fields of a rule that an update may set.
const SETTABLE: &[&str] = &["priority", "match", "dag", "labels", "description"];

/// Converts an update.
///
/// # Errors
/// [`ApiError`] with all invalid fields.
pub fn patch(rule: &v1::Rule, mask: Option<&FieldMask>) -> Result<RulePatch, ApiError> {
    let mask = Mask::read(mask, SETTABLE)?;
    let mut problems = Problems::default();
    let missing = || FieldProblem::required("rule.match");
    let set = mask.has("match", rule.r#match.is_some());
    let wanted = set.then(|| problems.keep(rule.r#match.as_ref().ok_or_else(missing))).flatten();
    let patch = RulePatch {
        priority: mask
            .has("priority", rule.priority != 0)
            .then(|| problems.keep(number("rule.priority", rule.priority, U16_MAX)))
            .flatten(),
        matches: wanted.map(|wanted| packet_match(&mut problems, wanted)),
        dag: mask
            .has("dag", !rule.dag.is_empty())
            .then(|| problems.keep(name::dag("rule.dag", &rule.dag)))
            .flatten(),
        notes: notes::patch(&mut problems, "rule", &mask, (&rule.labels, &rule.description)),
    };
    problems.finish().map(|()| patch)
}

fn packet_match(problems: &mut Problems, wire: &v1::PacketMatch) -> Match {
    if *wire == v1::PacketMatch::default() {
        let rule = "the rule would match every packet; set at least one field";
        problems.keep(Err::<(), _>(FieldProblem::invalid("rule.match", rule)));
    }
    let mut small = |field: &str, value: Option<u32>| {
        value
            .and_then(|value| problems.keep(number(&format!("rule.match.{field}"), value, U16_MAX)))
    };
    let virtual_function = small("virtual_function", wire.virtual_function);
    let source_port = small("source_port", wire.source_port);
    let destination_port = small("destination_port", wire.destination_port);
    let protocol = wire
        .protocol
        .and_then(|value| problems.keep(number("rule.match.protocol", value, u8::MAX.into())));
    let vni = wire.vni.and_then(|value| problems.keep(number("rule.match.vni", value, VNI_MAX)));
    let vlan = wire.vlan.and_then(|value| {
        let value = problems.keep(number::<u16>("rule.match.vlan", value, VLAN_MAX.into()))?;
        let rule = format!("0 is not allowed: 1 to {VLAN_MAX}");
        let is_none = (value == 0).then(|| FieldProblem::invalid("rule.match.vlan", rule));
        problems.keep(is_none.map_or(Ok(value), Err))
    });
    let mut prefix = |field: &str, text: &str| {
        (!text.is_empty())
            .then(|| problems.keep(prefix(&format!("rule.match.{field}"), text)))
            .flatten()
    };
    Match {
        source: prefix("source_prefix", &wire.source_prefix),
        destination: prefix("destination_prefix", &wire.destination_prefix),
        virtual_function,
        vni,
        protocol,
        source_port,
        destination_port,
        vlan,
    }
}

fn prefix(field: &str, text: &str) -> Result<Prefix, FieldProblem> {
    let invalid = |what: &str| {
        let rule = format!("{:?} {what} (expected e.g. 10.1.0.0/16, or an address)", excerpt(text));
        FieldProblem::invalid(field, rule)
    };
    let (address, digits) = text.split_once('/').unwrap_or((text, "32"));
    let address: Ipv4Addr = address.parse().map_err(|_| invalid("has no valid IPv4 address"))?;
    let length = (0..=32u8).find(|length| length.to_string() == digits);
    let length = length.ok_or_else(|| invalid("has no prefix length from 0 to 32"))?;
    let prefix = Prefix { address, length };
    if u32::from(address) & !prefix.mask() != 0 {
        return Err(invalid("has bits set after its prefix length"));
    }
    Ok(prefix)
}

fn prefix_to_wire(prefix: Option<Prefix>) -> String {
    prefix.map(|prefix| format!("{}/{}", prefix.address, prefix.length)).unwrap_or_default()
}

/// Converts a rule, without the fields that the server adds: etag, time.
pub fn rule_to_wire(rule: &Rule) -> v1::Rule {
    let matches = &rule.matches;
    v1::Rule {
        name: name::of_rule(&rule.id),
        priority: rule.priority.into(),
        r#match: Some(v1::PacketMatch {
            virtual_function: matches.virtual_function.map(u32::from),
            vni: matches.vni,
            source_prefix: prefix_to_wire(matches.source),
            destination_prefix: prefix_to_wire(matches.destination),
            protocol: matches.protocol.map(u32::from),
            source_port: matches.source_port.map(u32::from),
            destination_port: matches.destination_port.map(u32::from),
            vlan: matches.vlan.map(u32::from),
        }),
        dag: rule.dag.to_string(),
        labels: rule.notes.labels.as_map().clone(),
        description: rule.notes.description.as_str().to_owned(),
        ..v1::Rule::default()
    }
}
