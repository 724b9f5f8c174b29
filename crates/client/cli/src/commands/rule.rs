//! `snicctl rule`.

use prost_types::FieldMask;
use snic_api::v1::{
    CreateRuleRequest, DeleteRuleRequest, GetRuleRequest, PacketMatch, Rule, UpdateRuleRequest,
};

use super::{CliSession, gathered_list, request_id, watch};
use crate::args::{OtherRule, RuleCommand, RuleMatch};
use snic_client::Failure;
use snic_client::call;
use snic_client::names;
use snic_client::output::{changes, text, views};

pub async fn run(session: &mut CliSession, command: RuleCommand) -> Result<(), Failure> {
    match command {
        RuleCommand::Create(new) => {
            let rule_id = text::id(&names::rule(&new.name)?).to_owned();
            let dag = session.dag_name(&new.dag)?;
            let rule = Some(Rule {
                priority: new.priority,
                r#match: Some(new.matches.wire()),
                dag,
                labels: new.notes.labels(),
                description: new.notes.description,
                ..Rule::default()
            });
            let request =
                CreateRuleRequest { rule_id, rule, request_id: request_id(), validate_only: false };
            let rule = call!(session.client()?, rules.create_rule => rule, request)?;
            session.output.one(&rule, views::rule)
        }
        RuleCommand::Update(other) => update(session, other).await,
        RuleCommand::List { dag, selected } => {
            let dag = dag.map_or_else(|| Ok(String::new()), |dag| session.dag_name(&dag))?;
            gathered_list!(
                session,
                rules.list_rules(ListRulesRequest { dag }) => rules,
                selected.whole(),
                views::rules
            )
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

/// Changes what is given, and nothing else.
async fn update(session: &mut CliSession, other: OtherRule) -> Result<(), Failure> {
    let matches = other.matches.wire();
    let (labels, description) = other.notes.values();
    let given = [
        ("priority", other.priority.is_some()),
        ("match", matches != PacketMatch::default()),
        ("dag", other.dag.is_some()),
    ];
    let given = given.into_iter().filter(|(_, is_given)| *is_given);
    let mut paths: Vec<String> = given.map(|(path, _)| path.to_owned()).collect();
    paths.extend(other.notes.paths());
    if paths.is_empty() {
        let hint = "add an option, such as --priority or --dag";
        return Err(Failure::usage("nothing to change", hint));
    }
    let dag = other.dag.map_or_else(|| Ok(String::new()), |dag| session.dag_name(&dag))?;
    let rule = Rule {
        name: names::rule(&other.name)?,
        priority: other.priority.unwrap_or_default(),
        r#match: Some(matches),
        dag,
        etag: other.guard.into_etag(),
        labels,
        description,
        ..Rule::default()
    };
    let request = UpdateRuleRequest {
        rule: Some(rule),
        update_mask: Some(FieldMask { paths }),
        request_id: request_id(),
        validate_only: false,
    };
    let rule = call!(session.client()?, rules.update_rule => rule, request)?;
    session.output.one(&rule, views::rule)
}

impl RuleMatch {
    fn wire(&self) -> PacketMatch {
        PacketMatch {
            virtual_function: self.vf,
            vni: self.vni,
            source_prefix: self.source.clone(),
            destination_prefix: self.destination.clone(),
            protocol: self.protocol,
            source_port: self.source_port,
            destination_port: self.destination_port,
            vlan: self.vlan,
        }
    }
}
