//! Identity and rights of the caller.

use snic_api::error::ApiError;
use snic_api::names::excerpt;
use snic_api::v1;
use snic_api::v1::ErrorReason;
use snic_api::v1::authorization_service_server::AuthorizationService;
use snic_domain::{Caller, TenantId};
use snic_front::access::{CONTROL, MethodEffect, Row};
use snic_front::authorization::{Authorizer, NamedResource, Question, ResourceType, is_within};
use snic_front::gate::passage;
use snic_front::identity::CallerIdentity;
use tonic::{Request, Response};

use super::{RpcResult, Services};

#[tonic::async_trait]
impl AuthorizationService for Services {
    async fn who_am_i(&self, request: Request<v1::WhoAmIRequest>) -> RpcResult<v1::WhoAmIResponse> {
        let passage = passage(&request)?;
        let identity = passage.identity();
        let tenant = identity.tenant().map(|id| format!("tenants/{id}"));
        Ok(Response::new(v1::WhoAmIResponse {
            identity: identity.to_string(),
            tenant: tenant.unwrap_or_default(),
        }))
    }

    async fn check_access(
        &self,
        request: Request<v1::CheckAccessRequest>,
    ) -> RpcResult<v1::CheckAccessResponse> {
        let passage = passage(&request)?;
        let request = request.into_inner();
        let row = method(&request.method)?;
        let resource = resource(&request.resource)?;
        let is_operator = matches!(passage.identity().caller(), Some(Caller::Operator(_)));
        let identity = match request.identity.as_str() {
            "" => passage.identity().clone(),
            text if text == passage.identity().to_string() => passage.identity().clone(),
            text if is_operator => identity(text)?,
            _ => return Err(not_for_others().into()),
        };
        let authorizer = passage.authorization().current();
        let mut answer = check(&*authorizer, &identity, row, &resource);
        if !is_operator {
            answer.policies.clear();
        }
        Ok(Response::new(answer))
    }
}

/// The answer of [`AuthorizationService::check_access`]: as a call would be decided, and whether the
/// caller could own what the name says.
fn check(
    authorizer: &dyn Authorizer,
    identity: &CallerIdentity,
    row: Row,
    resource: &NamedResource,
) -> v1::CheckAccessResponse {
    let method = row.method();
    let answer = |allowed, reason, policies| v1::CheckAccessResponse { allowed, reason, policies };
    if !is_within(row, identity) {
        let reason = format!("{method} is not for this kind of caller, whatever policies say");
        return answer(false, reason, Vec::new());
    }
    // Others' NT types and bitstreams may be published.
    let may_be_published = row.effect == MethodEffect::Read
        && matches!(resource.kind, ResourceType::NtType | ResourceType::Bitstream);
    if resource.is_foreign_to(identity) && !may_be_published {
        let reason = "a tenant reaches only what it owns, whatever policies say".to_owned();
        return answer(false, reason, Vec::new());
    }
    let seen = &resource.seen_by(identity);
    let question = Question { identity, row, resource: seen, validate_only: false };
    let decision = authorizer.decide(&question);
    let reason = match (decision.allowed, decision.policies.is_empty(), identity.member()) {
        (true, _, _) if resource.is_foreign_to(identity) => "allowed if it is published",
        (true, ..) => "allowed by the authorization policies",
        (false, true, Some(_)) => {
            "no authorization policy allows it; members of a tenant may do only what one allows"
        }
        (false, true, None) => "no authorization policy allows it",
        (false, false, _) => "refused by the authorization policies",
    };
    answer(decision.allowed, reason.to_owned(), decision.policies)
}

fn method(text: &str) -> Result<Row, ApiError> {
    CONTROL.named(text).ok_or_else(|| {
        let rule = format_args!(
            "{:?} is no method that policies decide about (expected e.g. CreateDag or \
             DagService/CreateDag)",
            excerpt(text)
        );
        ApiError::in_field(ErrorReason::InvalidField, "method", rule)
    })
}

fn resource(text: &str) -> Result<NamedResource, ApiError> {
    let resource = NamedResource::below(text);
    if resource.kind == ResourceType::Unknown {
        let rule = format_args!(
            "{:?} is not a resource (expected e.g. tenants/acme, tenants/acme/dags/web, cards/a, or \
             nothing for all)",
            excerpt(text)
        );
        return Err(ApiError::in_field(ErrorReason::InvalidField, "resource", rule));
    }
    Ok(resource)
}

fn identity(text: &str) -> Result<CallerIdentity, ApiError> {
    CallerIdentity::parse(text).ok_or_else(|| {
        let rule = format_args!(
            "{:?} is not an identity (expected operator/<name>, tenant/<id>, tenant/<id>/<member> or \
             orchestrator/<name>)",
            excerpt(text)
        );
        ApiError::in_field(ErrorReason::InvalidField, "identity", rule)
    })
}

fn not_for_others() -> ApiError {
    let text =
        "only operators may ask for other identities; leave identity empty to ask for yourself";
    ApiError::new(ErrorReason::PermissionDenied, text)
}

/// A binding as policies see it, with the tenant that it is for.
pub(super) fn binding(name: &str, tenant: Option<&TenantId>) -> NamedResource {
    let binding = NamedResource::named(name);
    match tenant {
        Some(tenant) => binding.owned_by(tenant.as_str()),
        None => binding,
    }
}
