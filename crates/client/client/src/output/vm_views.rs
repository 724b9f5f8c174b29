//! Bindings of virtual machines as text.

use snic_api::v1::{BoundFunction, HeartbeatResponse, VmBinding, WatchBindingsResponse};
use snic_api::words::EnumWord as _;

use super::Style;
use super::table::{properties, section, table};
use super::text::{self, age, id};
use super::views::event_word;

/// Bindings, one per row.
pub fn bindings(bindings: &[VmBinding], style: Style) -> String {
    let rows = bindings.iter().map(|binding| {
        let dags: Vec<String> = binding.dags.iter().map(|dag| text::dag(&dag.name)).collect();
        vec![
            id(&binding.name).to_owned(),
            binding.state().word().to_owned(),
            dags.join(" "),
            binding.functions.len().to_string(),
            age(binding.create_time.as_ref(), style.now),
        ]
    });
    table(style, &["VM", "STATE", "DAGS", "FUNCTIONS", "AGE"], rows.collect())
}

pub fn binding(binding: &VmBinding, style: Style) -> String {
    let lease = binding.lease.map(|lease| format!("{} s", lease.seconds)).unwrap_or_default();
    let dags = binding.dags.iter().map(|dag| {
        let uid = if dag.uid == 0 { String::new() } else { format!("{:#010x}", dag.uid) };
        vec![text::dag(&dag.name), dag.state().word().to_owned(), uid]
    });
    let functions = binding.functions.iter().map(|function| {
        vec![
            function.pci_address.clone(),
            function.mac_address.clone(),
            format!("{}:{}", text::card(&function.card), function.virtual_function),
            text::dag(&function.dag),
            if function.programmed { "yes" } else { "no" }.to_owned(),
        ]
    });
    let mut text = properties(
        style,
        &[
            ("Name", binding.name.clone()),
            ("Tenant", id(&binding.tenant).to_owned()),
            ("State", binding.state().word().to_owned()),
            ("Reason", binding.reason.clone()),
            ("Template", binding.template.clone()),
            ("Lease", lease),
            ("Expires", text::time(binding.expire_time.as_ref())),
            ("Labels", text::labels(&binding.labels)),
            ("Description", binding.description.clone()),
            ("Etag", binding.etag.clone()),
            ("Created", text::time(binding.create_time.as_ref())),
        ],
    );
    if !binding.dags.is_empty() {
        let body = table(style, &["DAG", "STATE", "UID"], dags.collect());
        text += &section("DAGs", &body);
    }
    if !binding.functions.is_empty() {
        let head = ["PCI ADDRESS", "MAC ADDRESS", "FUNCTION", "DAG", "PROGRAMMED"];
        text += &section("Functions", &table(style, &head, functions.collect()));
        let head = ["FUNCTION", "SENDS FROM", "VLANS", "BROADCASTS/S", "GUARDED", "REFUSED"];
        let guards = binding.functions.iter().map(guard).collect();
        text += &section("Guards", &table(style, &head, guards));
    }
    text
}

/// Limits of what a function may send, and counts of what its port refused.
fn guard(function: &BoundFunction) -> Vec<String> {
    let vlans = function.allowed_vlans.as_ref().map_or("any".to_owned(), |vlans| {
        let ids: Vec<String> = vlans.ids.iter().map(ToString::to_string).collect();
        if ids.is_empty() { "none".to_owned() } else { ids.join(" ") }
    });
    let rate = match function.broadcasts_per_second {
        0 => "any".to_owned(),
        rate => rate.to_string(),
    };
    let refused = function.refused_frames.as_ref().map_or_else(String::new, |of| {
        let reasons = [
            (of.control, "control"),
            (of.wrong_source, "from a wrong source"),
            (of.wrong_vlan, "of a wrong VLAN"),
            (of.over_broadcast_rate, "over the rate"),
        ];
        let told = reasons.iter().filter(|(frames, _)| *frames > 0);
        let told: Vec<String> = told.map(|(frames, why)| format!("{frames} {why}")).collect();
        if told.is_empty() { "0".to_owned() } else { told.join(", ") }
    });
    vec![
        format!("{}:{}", text::card(&function.card), function.virtual_function),
        function.allowed_mac_addresses.join(" "),
        vlans,
        rate,
        if function.guarded { "yes" } else { "no" }.to_owned(),
        refused,
    ]
}

/// The result of a heartbeat.
pub fn heartbeat(reply: &HeartbeatResponse, style: Style) -> String {
    let missing = reply.missing.iter().map(|vm| vec![vm.clone(), "MISSING".to_owned()]);
    let alive = reply
        .alive
        .iter()
        .map(|binding| vec![id(&binding.name).to_owned(), binding.state().word().to_owned()]);
    table(style, &["VM", "STATE"], alive.chain(missing).collect())
}

/// A change, on one line.
pub fn event(event: &WatchBindingsResponse, _: Style) -> Option<String> {
    let binding = event.binding.as_ref()?;
    let (word, state) = (event_word(event.r#type()), binding.state().word());
    let line = format!("{word:<8} {state:<12} {} {}", id(&binding.name), binding.reason);
    Some(line.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use snic_api::v1::vm_binding::State;
    use snic_api::v1::{BoundDag, RefusedFrames, VlanIds, dag};

    use super::*;

    fn plain() -> Style {
        Style { is_colour: false, width: crate::output::WIDTH, now: SystemTime::UNIX_EPOCH }
    }

    fn bound() -> VmBinding {
        VmBinding {
            name: "vmBindings/123e4567-e89b-42d3-a456-426614174000".into(),
            tenant: "tenants/acme".into(),
            state: State::Bound.into(),
            functions: vec![BoundFunction {
                card: "cards/card0".into(),
                virtual_function: 3,
                pci_address: "0000:3b:00.4".into(),
                mac_address: "02:1f:c4:77:00:03".into(),
                dag: "tenants/acme/dags/web".into(),
                programmed: true,
                allowed_mac_addresses: vec!["52:54:00:00:00:01".into()],
                allowed_vlans: Some(VlanIds { ids: vec![5, 6] }),
                broadcasts_per_second: 0,
                guarded: true,
                refused_frames: Some(RefusedFrames { wrong_source: 3, ..Default::default() }),
            }],
            dags: vec![BoundDag {
                name: "tenants/acme/dags/web".into(),
                uid: 1024,
                state: dag::State::Ready.into(),
            }],
            ..VmBinding::default()
        }
    }

    #[test]
    fn a_machine_with_its_functions() {
        insta::assert_snapshot!(binding(&bound(), plain()));
    }

    #[test]
    fn machines() {
        let ended = VmBinding { state: State::Unbound.into(), ..VmBinding::default() };
        insta::assert_snapshot!(bindings(&[bound(), ended], plain()));
    }
}
