//! `snicctl rule`.

use snic_api::v1::{
    CreateRuleRequest, DeleteRuleRequest, GetRuleRequest, ListRulesRequest, PacketMatch, Rule,
};

use super::{CliSession, request_id, watch};
use crate::args::{NewRule, RuleCommand};
use snic_client::Failure;
use snic_client::call;
use snic_client::lists::{PAGE_SIZE, pages};
use snic_client::names;
use snic_client::output::{changes, text, views};

pub async fn run(session: &mut CliSession, command: RuleCommand) -> Result<(), Failure> {
    match command {
        RuleCommand::Create(new) => {
            let rule_id = text::id(&names::rule(&new.name)?).to_owned();
            let dag = session.dag_name(&new.dag)?;
            let rule = Some(resource(new, dag));
            let request = CreateRuleRequest { rule_id, rule, request_id: request_id() };
            let rule = call!(session.client()?, rules.create_rule => rule, request)?;
            session.output.one(&rule, views::rule)
        }
        RuleCommand::List { dag } => {
            let dag = dag.map_or_else(|| Ok(String::new()), |dag| session.dag_name(&dag))?;
            let client = session.client()?;
            let rules = pages(async |page_token| {
                let request = ListRulesRequest {
                    dag: dag.clone(),
                    page_size: PAGE_SIZE,
                    page_token,
                    ..Default::default()
                };
                let reply = call!(client, rules.list_rules, request)?;
                Ok((reply.rules, reply.next_page_token))
            });
            let rules = rules.await?;
            session.output.many(&rules, views::rules)
        }
        RuleCommand::Watch => {
            watch!(session, rules.watch_rules(WatchRulesRequest), changes::rule_event)
        }
        RuleCommand::Get { name } => {
            let request = GetRuleRequest { name: names::rule(&name)? };
            let rule = call!(session.client()?, rules.get_rule => rule, request)?;
            session.output.one(&rule, views::rule)
        }
        RuleCommand::Delete { name, guard } => {
            let name = names::rule(&name)?;
            let request = DeleteRuleRequest {
                name: name.clone(),
                allow_missing: guard.allow_missing,
                etag: guard.guard.into_etag(),
                request_id: request_id(),
            };
            let _ = call!(session.client()?, rules.delete_rule, request)?;
            session.deleted(&name)
        }
    }
}

fn resource(new: NewRule, dag: String) -> Rule {
    let found = PacketMatch {
        virtual_function: new.vf,
        vni: new.vni,
        source_prefix: new.source,
        destination_prefix: new.destination,
        protocol: new.protocol,
        source_port: new.source_port,
        destination_port: new.destination_port,
    };
    Rule { priority: new.priority, r#match: Some(found), dag, ..Rule::default() }
}
