//! The audit log as text.

use snic_api::v1::AuditEntry;

use super::Style;
use super::text;

/// Entries, one per line, oldest first.
pub fn entries(entries: &[AuditEntry], _: Style) -> String {
    if entries.is_empty() {
        return "no entries\n".to_owned();
    }
    entries.iter().map(|entry| line(entry) + "\n").collect()
}

fn line(entry: &AuditEntry) -> String {
    let time = text::time(entry.time.as_ref());
    let method = entry.method.rsplit('/').next().unwrap_or_default();
    let resource = if entry.resource.is_empty() { "-" } else { &entry.resource };
    let stated = Some("stated").filter(|_| entry.identity == "STATED");
    let peer = Some(entry.peer.as_str()).filter(|peer| !peer.is_empty());
    let agent = format!("by {}", entry.agent);
    let agent = Some(agent.as_str()).filter(|_| !entry.agent.is_empty());
    let from: Vec<&str> = agent.into_iter().chain(stated).chain(peer).collect();
    let from = if from.is_empty() { String::new() } else { format!(" ({})", from.join(", ")) };
    let caller = &entry.caller;
    let mut line = format!("{time} {caller}{from} {method} {resource}: {}", entry.code);
    if !entry.reason.is_empty() && entry.reason != entry.code {
        line += &format!(" ({})", entry.reason);
    }
    if entry.validate_only {
        line += ", validation only";
    }
    if !entry.policies.is_empty() {
        let verb = if entry.decision == "DENY" { "denied" } else { "allowed" };
        line += &format!(", {verb} by {}", entry.policies.join(", "));
    }
    if entry.left_out > 0 {
        line += &format!(", after {} more without an identity", entry.left_out);
    }
    line
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn an_empty_log_says_so() {
        let style = Style { is_colour: false, width: crate::output::WIDTH, now: UNIX_EPOCH };
        assert_eq!(entries(&[], style), "no entries\n");
    }

    #[test]
    fn an_entry_says_who_what_and_how_it_ended() {
        let entry = AuditEntry {
            time: Some(prost_types::Timestamp { seconds: 1, nanos: 0 }),
            caller: "tenant/acme".into(),
            method: "DagService/CreateDag".into(),
            resource: "tenants/acme/dags/web".into(),
            code: "RESOURCE_EXHAUSTED".into(),
            reason: "QUOTA_EXCEEDED".into(),
            decision: "ALLOW".into(),
            ..Default::default()
        };
        let style = Style { is_colour: false, width: crate::output::WIDTH, now: UNIX_EPOCH };
        let says = "tenant/acme CreateDag tenants/acme/dags/web: \
                    RESOURCE_EXHAUSTED (QUOTA_EXCEEDED)\n";
        assert!(entries(std::slice::from_ref(&entry), style).ends_with(says));
        let refused = AuditEntry {
            decision: "DENY".into(),
            policies: vec!["readers.cedar:2".into()],
            code: "PERMISSION_DENIED".into(),
            reason: "PERMISSION_DENIED".into(),
            ..entry.clone()
        };
        let text = entries(&[refused], style);
        assert!(text.ends_with("PERMISSION_DENIED, denied by readers.cedar:2\n"), "{text}");
        let there = AuditEntry { peer: "192.0.2.7:51612".into(), ..entry.clone() };
        let text = entries(&[there], style);
        assert!(text.contains(" tenant/acme (192.0.2.7:51612) CreateDag "), "{text}");
        let local = AuditEntry {
            identity: "STATED".into(),
            peer: "uid 0, process 7".into(),
            ..entry.clone()
        };
        let text = entries(&[local], style);
        assert!(text.contains(" tenant/acme (stated, uid 0, process 7) CreateDag "), "{text}");
        let acting = AuditEntry { agent: "operator/kubernetes".into(), ..entry.clone() };
        let text = entries(&[acting], style);
        assert!(text.contains(" tenant/acme (by operator/kubernetes) CreateDag "), "{text}");
        let proven = AuditEntry { identity: "PROVEN".into(), ..entry.clone() };
        assert!(entries(&[proven], style).ends_with(says), "the usual is not said");
        let fine = AuditEntry { code: "OK".into(), reason: String::new(), ..entry };
        let nobody = AuditEntry {
            caller: "nobody".into(),
            resource: String::new(),
            code: "UNAUTHENTICATED".into(),
            left_out: 7,
            ..fine.clone()
        };
        let text = entries(&[fine, nobody], style);
        assert!(text.contains("dags/web: OK\n"), "{text}");
        assert!(text.contains("nobody CreateDag -: UNAUTHENTICATED, after 7 more"), "{text}");
    }
}
