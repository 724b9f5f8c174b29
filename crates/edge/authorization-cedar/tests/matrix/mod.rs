//! The server's own matrix of identities and methods, with its real connections and certificates, on the default
//! policies.

use std::sync::Arc;

use snic_authorization_cedar::{CedarPolicies, DEFAULT, PolicyFile};
use snic_front::access::CONTROL;
use snic_front::authorization::{Authorization, Authorizer as _, NamedResource, Question};
use snic_front::identity::CallerIdentity;
use tonic::Code;

#[allow(dead_code, reason = "the server's tests use all of it")]
#[path = "../../../../host/server/tests/server/matrix.rs"]
mod matrix;
#[allow(dead_code, reason = "the server's tests use all of it")]
#[path = "../../../../host/server/tests/server/raw.rs"]
mod raw;
#[allow(dead_code, reason = "the server's tests use all of it")]
#[path = "../../../../host/server/tests/server/rig.rs"]
mod rig;

use matrix::{KINDS, Kind, MATRIX};
use raw::call;
use rig::{Rig, in_time};

fn default_policies() -> CedarPolicies {
    let (name, text) = DEFAULT;
    CedarPolicies::new([&PolicyFile::parse(name, text).expect("it ships")])
}

const fn who(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::Nobody => None,
        Kind::Tenant => Some("tenant/acme"),
        Kind::Orchestrator => Some("orchestrator/libvirt"),
        Kind::Operator => Some("operator/root"),
    }
}

/// The policies alone, without the server's table before them.
#[test]
fn the_default_policies_say_what_the_matrix_says() {
    let policies = default_policies();
    let mut cells = 0;
    for row in MATRIX {
        let method = CONTROL.find(row.path).expect("a method");
        if !method.is_decided() {
            continue;
        }
        for kind in KINDS {
            let Some(who) = who(kind) else { continue };
            let identity = &CallerIdentity::parse(who).expect("an identity");
            for name in ["", "tenants/acme", "tenants/acme/dags/web", "cards/a", "operations/7"] {
                let resource = &NamedResource::below(name).seen_by(identity);
                let question = Question { identity, row: method, resource, validate_only: false };
                let allowed = policies.decide(&question).allowed;
                assert_eq!(allowed, row.allows(kind), "{who} {} {name}", row.path);
                cells += 1;
            }
        }
    }
    assert!(cells > 1_000, "{cells}");
}

#[tokio::test]
async fn each_kind_of_caller_may_call_what_the_matrix_says_and_nothing_else() {
    let authorization = Authorization::new(Arc::new(default_policies()));
    let rig = Rig::adjusted(|settings| settings.front.authorization = authorization).await;
    for kind in KINDS {
        let channel = match who(kind) {
            None => rig.connect(None).await,
            Some(who) => rig.client(who).await.channel,
        };
        for row in MATRIX {
            let answer = in_time(call(&channel, row.path, vec![Vec::new()])).await;
            let expected = match kind {
                _ if row.allows(kind) => None,
                Kind::Nobody => Some(Code::Unauthenticated),
                _ => Some(Code::PermissionDenied),
            };
            let refusal = answer.as_ref().err().map(tonic::Status::code);
            let refusal = refusal.filter(|code| {
                [Code::Unauthenticated, Code::PermissionDenied, Code::Unimplemented].contains(code)
            });
            assert_eq!(refusal, expected, "{kind:?} {}: {answer:?}", row.path);
        }
    }
    rig.stop().await;
}
