//! Classification rules.

use snic_api::convert::{name, rule};
use snic_api::error::ApiError;
use snic_api::page::Query;
use snic_api::v1;
use snic_api::v1::classification_service_server::ClassificationService;
use snic_controller::{Command, Controller, Reply, ResourceKind, RuleView};
use snic_domain::{Caller, RuleId};
use snic_front::gate::caller;
use tonic::{Request, Response};

use super::watching::{Event, Events, WatchSpec};
use super::{MissingPolicy, RpcResult, Services, absent, etag, listing, repeat_of, reply_as};
use crate::error::OperationKind;
use crate::hub::Topic;
use crate::wire;

#[tonic::async_trait]
impl ClassificationService for Services {
    async fn create_rule(
        &self,
        request: Request<v1::CreateRuleRequest>,
    ) -> RpcResult<v1::CreateRuleResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let rule = rule::rule(&request.rule_id, request.rule.as_ref())?;
        if request.validate_only {
            self.check(&caller, Command::CreateRule(rule)).await?;
            return Ok(Response::new(Default::default()));
        }
        let repeat = repeat_of(&request.request_id)?;
        let reply =
            self.ask(&caller, repeat, Command::CreateRule(rule), OperationKind::Change).await?;
        reply_as!(reply, Reply::Rule(view) => Response::new(wire::rule(&view, &caller).into()))
    }

    async fn get_rule(
        &self,
        request: Request<v1::GetRuleRequest>,
    ) -> RpcResult<v1::GetRuleResponse> {
        let caller = caller(&request)?;
        let name = request.into_inner().name;
        let id = name::rule("name", &name).map_err(ApiError::from)?;
        let view = self.read(&caller, move |controller, _| controller.rule_view(&id)).await?;
        let view = view.filter(|view| is_visible(&caller, view)).ok_or_else(|| absent(&name))?;
        Ok(Response::new(wire::rule(&view, &caller).into()))
    }

    async fn list_rules(
        &self,
        request: Request<v1::ListRulesRequest>,
    ) -> RpcResult<v1::ListRulesResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let dag = match request.dag.as_str() {
            "" => None,
            text => Some(name::dag("dag", text).map_err(ApiError::from)?),
        };
        let query = Query::of("ListRules").with("dag", &request.dag);
        let listing = listing!(v1::Rule, query, request)?;
        let (page, revision) = self
            .page(
                &caller,
                &listing,
                move |controller, caller, after, limit| {
                    let after = after.and_then(|key| RuleId::new(key).ok());
                    let behind =
                        controller.rules().skip_while(|view| Some(&view.rule.id) <= after.as_ref());
                    let leads = |view: &RuleView| dag.as_ref().is_none_or(|d| view.rule.dag == *d);
                    let seen = |view: &RuleView| is_visible(caller, view);
                    behind.filter(seen).filter(leads).take(limit).collect()
                },
                |view: &RuleView| (view.rule.id.to_string(), wire::rule(view, &caller)),
            )
            .await?;
        Ok(Response::new(v1::ListRulesResponse {
            rules: page.items,
            next_page_token: page.next_page_token,
            revision,
            unreachable_hosts: Vec::new(),
        }))
    }

    async fn update_rule(
        &self,
        request: Request<v1::UpdateRuleRequest>,
    ) -> RpcResult<v1::UpdateRuleResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let wanted = request.rule.ok_or_else(|| ApiError::required("rule"))?;
        let id = name::rule("rule.name", &wanted.name).map_err(ApiError::from)?;
        let patch = rule::patch(&wanted, request.update_mask.as_ref())?;
        let command = Command::UpdateRule { id, patch, etag: etag(&wanted.etag) };
        if request.validate_only {
            self.check(&caller, command).await?;
            return Ok(Response::new(Default::default()));
        }
        let repeat = repeat_of(&request.request_id)?;
        let reply = self.ask(&caller, repeat, command, OperationKind::Change).await?;
        reply_as!(reply, Reply::Rule(view) => Response::new(wire::rule(&view, &caller).into()))
    }

    async fn delete_rule(
        &self,
        request: Request<v1::DeleteRuleRequest>,
    ) -> RpcResult<v1::DeleteRuleResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let id = name::rule("name", &request.name).map_err(ApiError::from)?;
        let repeat = repeat_of(&request.request_id)?;
        let command = Command::DeleteRule { id, etag: etag(&request.etag) };
        let reply = self.ask(&caller, repeat, command, OperationKind::Delete).await;
        MissingPolicy::from(request.allow_missing).or_done(reply)?;
        Ok(Response::new(Default::default()))
    }

    type WatchRulesStream = Events<v1::WatchRulesResponse>;

    async fn watch_rules(
        &self,
        request: Request<v1::WatchRulesRequest>,
    ) -> RpcResult<Self::WatchRulesStream> {
        let caller = caller(&request)?;
        let resume = request.into_inner().resume_revision;
        let topic = Topic::Resources(ResourceKind::Rule, caller.tenant().cloned());
        let reader = caller.clone();
        let piece = |controller: &Controller, caller: &Caller, after: Option<&RuleView>, most| {
            let after = after.map(|view| &view.rule.id);
            let behind = controller.rules().skip_while(|view| Some(&view.rule.id) <= after);
            behind.filter(|view| is_visible(caller, view)).take(most).collect()
        };
        let event = move |event: Event<'_, RuleView>| v1::WatchRulesResponse {
            r#type: event.kind().into(),
            rule: event.message(
                |view| wire::rule(view, &reader),
                |name| v1::Rule { name, ..Default::default() },
            ),
            revision: event.revision,
        };
        let subject = WatchSpec { topic, caller, piece, event };
        Ok(Response::new(self.watch(subject, resume).await?))
    }
}

/// A tenant sees its own rules and no others.
fn is_visible(caller: &Caller, view: &RuleView) -> bool {
    caller.may_change(view.rule.id.owner().as_ref())
}
