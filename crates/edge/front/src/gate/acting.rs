//! Calls of operators' programs on behalf of a tenant, whose name is in a header. The caller is the tenant then: its quotas, its
//! share and what it owns. Policies have to allow both the tenant and the operator, so nobody may do more than before.

use http::HeaderMap;
use snic_api::connect::ACTING_FOR_HEADER;
use snic_api::error::ApiError;
use snic_api::v1::ErrorReason;
use snic_domain::Caller;

use crate::identity::CallerIdentity;

/// Caller of a request, and the operator that calls for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ActingCaller {
    /// The caller: quotas, shares and ownership are those of this one.
    pub identity: CallerIdentity,
    /// The operator that acts for the caller, if it is not the caller itself.
    pub agent: Option<CallerIdentity>,
}

/// The caller of a request with these headers, by the identity of its connection.
///
/// # Errors
/// [`ErrorReason::PermissionDenied`] where others than operators name a tenant, [`ErrorReason::IdentityMissing`] where the
/// header names none, or more than one.
pub(super) fn acting(
    identity: CallerIdentity,
    headers: &HeaderMap,
) -> Result<ActingCaller, ApiError> {
    let mut values = headers.get_all(ACTING_FOR_HEADER).iter();
    let value = match (values.next(), values.next()) {
        (None, _) => return Ok(ActingCaller { identity, agent: None }),
        (Some(value), None) => value.to_str().ok(),
        (Some(_), Some(_)) => None,
    };
    if !matches!(identity.caller(), Some(Caller::Operator(_))) {
        let text =
            format!("only operators act for tenants; leave the header {ACTING_FOR_HEADER} out");
        return Err(ApiError::new(ErrorReason::PermissionDenied, text));
    }
    let tenant = value.and_then(CallerIdentity::parse);
    let Some(tenant) = tenant.filter(|named| named.tenant().is_some()) else {
        let text = format!(
            "header {ACTING_FOR_HEADER} is malformed or repeated (expected once: tenant/<id> or tenant/<id>/<member>)"
        );
        return Err(ApiError::new(ErrorReason::IdentityMissing, text));
    };
    Ok(ActingCaller { identity: tenant, agent: Some(identity) })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn result(who: &str, named: &[&str]) -> Result<(String, Option<String>), ErrorReason> {
        let mut headers = HeaderMap::new();
        for name in named {
            headers.append(ACTING_FOR_HEADER, name.parse().expect("text"));
        }
        let found = acting(CallerIdentity::parse(who).expect("valid"), &headers);
        let text = |caller: ActingCaller| {
            (caller.identity.to_string(), caller.agent.map(|agent| agent.to_string()))
        };
        found.map(text).map_err(|error| error.reason())
    }

    #[rstest]
    #[case("tenant/acme")]
    #[case("tenant/acme/bob")]
    fn an_operator_acts_for_a_tenant(#[case] named: &str) {
        let agent = Some("operator/kubernetes".to_owned());
        assert_eq!(result("operator/kubernetes", &[named]), Ok((named.to_owned(), agent)));
        assert_eq!(result("operator/root", &[]), Ok(("operator/root".to_owned(), None)));
    }

    #[rstest]
    #[case("tenant/globex")]
    #[case("tenant/acme")]
    #[case("orchestrator/libvirt")]
    #[case("host/h1")]
    #[case("replica/r1")]
    fn nobody_else_does(#[case] who: &str) {
        assert_eq!(result(who, &["tenant/acme"]), Err(ErrorReason::PermissionDenied));
    }

    #[rstest]
    #[case(&["operator/root"])]
    #[case(&["orchestrator/libvirt"])]
    #[case(&["host/h1"])]
    #[case(&["acme"])]
    #[case(&[""])]
    #[case(&["tenant/acme", "tenant/acme"])]
    fn it_acts_for_one_tenant_and_nobody_else(#[case] named: &[&str]) {
        assert_eq!(result("operator/root", named), Err(ErrorReason::IdentityMissing));
    }
}
