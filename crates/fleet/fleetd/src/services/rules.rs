//! Classification rules, each on the host that serves its DAG.

use snic_api::convert::{name, rule};
use snic_api::error::ApiError;
use snic_api::page::Query;
use snic_api::v1;
use snic_api::v1::ErrorReason;
use snic_api::v1::classification_service_client::ClassificationServiceClient;
use snic_api::v1::classification_service_server::ClassificationService;
use snic_domain::{Caller, RuleId};
use snic_fleet::HostId;
use snic_front::gate::{CallAuthorizer, caller, passage};
use snic_front::listing;
use tonic::{Request, Response, Status};

use super::gathering::{HostAnswers, HostList, HostPage, HostScope};
use super::watching::Events;
use super::{RpcResult, Services, no_watch};
use crate::passing::HostTransport;

/// The rules of hosts, by name.
struct RuleList {
    /// `tenants/{tenant}/dags/{dag}` of the only DAG that counts, or nothing.
    dag: String,
}

#[tonic::async_trait]
impl HostList for RuleList {
    type Item = v1::Rule;

    async fn page(
        &self,
        host: HostTransport,
        page: HostPage,
    ) -> Result<(Vec<v1::Rule>, String), Status> {
        let request = v1::ListRulesRequest {
            dag: self.dag.clone(),
            page_size: page.size,
            page_token: page.token,
            filter: page.filter,
            order_by: String::new(),
        };
        let reply = ClassificationServiceClient::new(host).list_rules(request).await?.into_inner();
        Ok((reply.rules, reply.next_page_token))
    }

    fn named(&self, _: &HostId, rule: v1::Rule) -> v1::Rule {
        rule
    }

    fn key(&self, _: &HostId, rule: &v1::Rule) -> String {
        // Two hosts may have a rule of one name, made there, for a DAG each.
        format!("{} {}", rule.name, rule.dag)
    }

    fn not_before(&self, key: &str) -> Option<String> {
        let (rule, _) = key.split_once(' ')?;
        Some(format!("name >= \"{rule}\""))
    }
}

#[tonic::async_trait]
impl ClassificationService for Services {
    async fn create_rule(
        &self,
        request: Request<v1::CreateRuleRequest>,
    ) -> RpcResult<v1::CreateRuleResponse> {
        let (caller, passage) = (caller(&request)?, passage(&request)?);
        let request = request.into_inner();
        let new = rule::rule(&request.rule_id, request.rule.as_ref())?;
        let host = self.host_of(&caller, new.dag).await?;
        // Of a name that is not the caller's nothing is looked up: the host refuses it.
        if caller.may_change(new.id.owner().as_ref()) {
            let there = self.places_of_rule(&caller, &new.id).await?;
            if there.found.iter().any(|(other, _)| *other != host) {
                return Err(ApiError::exists("classification rule", name::of_rule(&new.id)).into());
            }
        }
        self.rules_at(&passage, &caller, host).create_rule(request).await
    }

    async fn get_rule(
        &self,
        request: Request<v1::GetRuleRequest>,
    ) -> RpcResult<v1::GetRuleResponse> {
        let (caller, passage) = (caller(&request)?, passage(&request)?);
        let request = request.into_inner();
        let id = name::rule("name", &request.name).map_err(ApiError::from)?;
        let (host, _) = self.place_of_rule(&caller, &id).await?;
        self.rules_at(&passage, &caller, host).get_rule(request).await
    }

    async fn list_rules(
        &self,
        request: Request<v1::ListRulesRequest>,
    ) -> RpcResult<v1::ListRulesResponse> {
        let (caller, passage) = (caller(&request)?, passage(&request)?);
        let request = request.into_inner();
        let scope = match request.dag.as_str() {
            "" => caller.tenant().cloned().map_or(HostScope::All, HostScope::Tenant),
            text => HostScope::Dag(name::dag("dag", text).map_err(ApiError::from)?),
        };
        let query = Query::of("ListRules").with("dag", &request.dag);
        let listing = listing!(v1::Rule, query, request)?;
        let question = self.question_of(&passage)?;
        let hosts = match self.hosts_in(&caller, scope).await {
            // No DAG, no rules.
            Err(error) if error.reason() == ErrorReason::ResourceNotFound => Vec::new(),
            hosts => hosts?,
        };
        let list = RuleList { dag: request.dag };
        let (page, missing) = self.gathered_page(&question, &listing, (list, hosts)).await?;
        Ok(Response::new(v1::ListRulesResponse {
            rules: page.items,
            next_page_token: page.next_page_token,
            revision: 0,
            unreachable_hosts: missing.to_wire(&caller),
        }))
    }

    async fn update_rule(
        &self,
        request: Request<v1::UpdateRuleRequest>,
    ) -> RpcResult<v1::UpdateRuleResponse> {
        let (caller, passage) = (caller(&request)?, passage(&request)?);
        let request = request.into_inner();
        let wanted = request.rule.as_ref().ok_or_else(|| ApiError::required("rule"))?;
        let id = name::rule("rule.name", &wanted.name).map_err(ApiError::from)?;
        let patch = rule::patch(wanted, request.update_mask.as_ref())?;
        let (host, now) = self.place_of_rule(&caller, &id).await?;
        if let Some(dag) = patch.dag
            && self.host_of(&caller, dag.clone()).await? != host
        {
            let rule = name::of_rule(&id);
            let text = format!(
                "{rule} is on the host of {}, and another host serves {dag}; delete the rule, and create it \
                 for {dag}",
                now.dag
            );
            return Err(ApiError::in_field(ErrorReason::InvalidState, "rule.dag", text).into());
        }
        self.rules_at(&passage, &caller, host).update_rule(request).await
    }

    async fn delete_rule(
        &self,
        request: Request<v1::DeleteRuleRequest>,
    ) -> RpcResult<v1::DeleteRuleResponse> {
        let (caller, passage) = (caller(&request)?, passage(&request)?);
        let request = request.into_inner();
        let id = name::rule("name", &request.name).map_err(ApiError::from)?;
        let host = match self.place_of_rule(&caller, &id).await {
            Ok((host, _)) => host,
            Err(error)
                if request.allow_missing && error.reason() == ErrorReason::ResourceNotFound =>
            {
                return Ok(Response::new(v1::DeleteRuleResponse {}));
            }
            Err(error) => return Err(error.into()),
        };
        self.rules_at(&passage, &caller, host).delete_rule(request).await
    }

    type WatchRulesStream = Events<v1::WatchRulesResponse>;

    async fn watch_rules(
        &self,
        request: Request<v1::WatchRulesRequest>,
    ) -> RpcResult<Self::WatchRulesStream> {
        caller(&request)?;
        Err(no_watch("rules", "`snicctl rule list`"))
    }
}

impl Services {
    /// The rules of a host, in the caller's name.
    fn rules_at(
        &self,
        passage: &CallAuthorizer,
        caller: &Caller,
        host: HostId,
    ) -> ClassificationServiceClient<HostTransport> {
        let identity = passage.identity().to_string();
        let transport = HostTransport::new(self.clone(), host, caller.clone(), identity);
        ClassificationServiceClient::new(transport)
    }

    /// Hosts with a rule of this name.
    async fn places_of_rule(
        &self,
        caller: &Caller,
        id: &RuleId,
    ) -> Result<HostAnswers<v1::Rule>, ApiError> {
        let question = self.question_for(caller)?;
        let scope = id.owner().map_or(HostScope::All, HostScope::Tenant);
        let hosts = self.hosts_in(caller, scope).await?;
        let name = name::of_rule(id);
        let get = move |_: &HostId, transport| {
            let request = v1::GetRuleRequest { name: name.clone() };
            async move {
                let reply = ClassificationServiceClient::new(transport).get_rule(request).await?;
                reply.into_inner().rule.ok_or_else(|| Status::internal("a rule without a rule"))
            }
        };
        Ok(question.ask_all(hosts, get).await)
    }

    /// The host of a rule that the caller may see, and the rule.
    ///
    /// # Errors
    /// No host has it, one that did not answer may have it, or several have one of this name.
    async fn place_of_rule(
        &self,
        caller: &Caller,
        id: &RuleId,
    ) -> Result<(HostId, v1::Rule), ApiError> {
        let name = name::of_rule(id);
        let absent = || ApiError::not_found("classification rule", &name);
        if !caller.may_change(id.owner().as_ref()) {
            return Err(absent());
        }
        let HostAnswers { mut found, missing } = self.places_of_rule(caller, id).await?;
        match (found.pop(), found.is_empty()) {
            (Some(one), true) => Ok(one),
            (Some((_, rule)), false) => {
                let of = found.iter().map(|(_, rule)| rule).chain([&rule]);
                let dags: Vec<&str> = of.map(|rule| rule.dag.as_str()).collect();
                let text = format!(
                    "hosts have several rules {name}, for {}; they were made on the hosts. An operator names the host with \
                     `--host NAME`",
                    dags.join(", ")
                );
                Err(ApiError::new(ErrorReason::InvalidState, text))
            }
            (None, _) if missing.is_empty() => Err(absent()),
            (None, _) => Err(missing.may_have(&name, caller)),
        }
    }
}
