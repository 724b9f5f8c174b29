//! The schema of policies, from the methods' facts: a policy that names a method that does not exist
//! is refused.

use std::fmt::Write as _;

use snic_front::access::{Access, MethodEffect, Row, TABLE};

/// Text before the actions.
const HEAD: &str = r#"// Types, actions and attributes of authorization policies. Written by a test from the methods' facts
// (proto/snic/control/v1): SNIC_WRITE=1 cargo test -p snic-authorization-cedar

// Everything at once, as in a list over all tenants or cards, and the server itself: Everything::"all".
entity Everything;

// A tenant: Tenant::"acme". As principal it is the tenant's own certificate; as resource, what belongs to it as a whole.
entity Tenant in [Everything];

// A member of a tenant: Member::"acme/bob", in Tenant::"acme".
entity Member in [Tenant] = { "tenant": Tenant };

// Operator::"alice", Orchestrator::"host1".
entity Operator, Orchestrator;

// Resources: Dag::"acme/web", NtType::"acme.filter", Bitstream::"acme.filter", Rule::"acme.web",
// Operation::"7", Binding::"123e4567-e89b-42d3-a456-426614174000". They are in the tenant that owns them, as far
// as their names or the request tell. What a tenant asks about is in that tenant.
entity Dag, NtType, Bitstream, Rule, Operation, Binding in [Tenant, Everything];

// Card::"a" and Region::"a/3", which is in Card::"a".
entity Card in [Tenant, Everything];
entity Region in [Card, Tenant, Everything];

// A name that is none: the request will be rejected.
entity Unknown in [Tenant, Everything];

// What methods do, and for whom they are. Heartbeat and DownloadBackup are neither reads nor changes.
action "Read", "Change", "TenantMethod", "OrchestratorMethod", "OperatorMethod";
"#;

/// Groups of a method's action.
pub(crate) fn groups(row: Row) -> Vec<&'static str> {
    let effect = match row.effect {
        MethodEffect::Read => Some("Read"),
        MethodEffect::Change => Some("Change"),
        MethodEffect::Other => None,
    };
    let callers = match row.access {
        Access::Anyone => Some("TenantMethod"),
        Access::Orchestrator => Some("OrchestratorMethod"),
        Access::Operator => Some("OperatorMethod"),
        Access::Open | Access::Identified | Access::Host | Access::Replica => None,
    };
    effect.into_iter().chain(callers).collect()
}

/// The methods that policies decide about.
pub(crate) fn methods() -> impl Iterator<Item = Row> {
    TABLE.iter().copied().filter(Row::is_decided)
}

pub(crate) fn text() -> String {
    let mut text = HEAD.to_owned();
    for row in methods() {
        let principals = match row.access {
            Access::Anyone => "Tenant, Member, Operator",
            Access::Orchestrator => "Orchestrator, Operator",
            _ => "Operator",
        };
        let _ = write!(
            text,
            "\naction \"{}\" in [{}] appliesTo {{\n  principal: [{principals}],\n  resource: [\
             Everything, Tenant, Dag, NtType, Bitstream, Rule, Operation, Binding, Card, Region, \
             Unknown],\n  context: {{ \"validate_only\": Bool }},\n}};\n",
            row.method(),
            groups(row).iter().map(|group| format!("\"{group}\"")).collect::<Vec<_>>().join(", "),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_that_ships_is_that_of_the_methods() {
        let path = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../../policies/authorization/snic.cedarschema"
        );
        if std::env::var_os("SNIC_WRITE").is_some() {
            std::fs::write(path, text()).expect("written");
        }
        let shipped = std::fs::read_to_string(path).expect("it ships");
        assert_eq!(shipped, text(), "SNIC_WRITE=1 writes it anew");
    }

    #[test]
    fn every_decided_method_has_an_action_of_its_own() {
        let mut names: Vec<&str> = methods().map(|row| row.method()).collect();
        assert!(names.len() > 60, "{names:?}");
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }
}
