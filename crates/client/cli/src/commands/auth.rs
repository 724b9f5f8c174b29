//! `snicctl auth`.

use snic_api::v1::{CheckAccessRequest, CheckAccessResponse, WhoAmIRequest, WhoAmIResponse};
use tonic::Status;

use super::CliSession;
use crate::args::AuthCommand;
use snic_client::Failure;
use snic_client::call;
use snic_client::output::Style;

/// Nouns of methods by the collections of names.
const NOUNS: [(&str, &str, &str); 8] = [
    ("tenants", "Tenant", "Tenants"),
    ("dags", "Dag", "Dags"),
    ("ntTypes", "NtType", "NtTypes"),
    ("bitstreams", "Bitstream", "Bitstreams"),
    ("classificationRules", "Rule", "Rules"),
    ("operations", "Operation", "Operations"),
    ("cards", "Card", "Cards"),
    ("regions", "Region", "Regions"),
];

/// Runs the command.
pub async fn run(session: &mut CliSession, command: AuthCommand) -> Result<(), Failure> {
    let client = session.client()?;
    match command {
        AuthCommand::Whoami => {
            let who = call!(client, authorization.who_am_i, WhoAmIRequest {})?;
            session.output.one(&who, identity)
        }
        AuthCommand::CanI { action, resource, identity } => {
            let request =
                CheckAccessRequest { method: method(&action, &resource)?, resource, identity };
            let answer = call!(client, authorization.check_access, request)?;
            session.output.one(&answer, line)?;
            match answer.allowed {
                true => Ok(()),
                false => Err(Status::permission_denied("not allowed").into()),
            }
        }
    }
}

fn identity(who: &WhoAmIResponse, _: Style) -> String {
    format!("{}\n", who.identity)
}

fn line(answer: &CheckAccessResponse, _: Style) -> String {
    let word = if answer.allowed { "yes" } else { "no" };
    let by = match &answer.policies[..] {
        [] => String::new(),
        policies => format!(" ({})", policies.join(", ")),
    };
    format!("{word}: {}{by}\n", answer.reason)
}

/// The method for a verb and the resource that it is about, such as `get` and `tenants/acme/dags/web`.
fn method(action: &str, resource: &str) -> Result<String, Failure> {
    if action.starts_with(|first: char| first.is_ascii_uppercase()) {
        return Ok(action.to_owned());
    }
    let unclear = || {
        Failure::usage(
            format!("it is not clear what to {action} here: {resource:?}"),
            "name a resource, such as tenants/acme/dags/web, or a method, such as CreateDag",
        )
    };
    let (verb, is_plural) = match action {
        "bind" => return Ok("BindVm".to_owned()),
        "unbind" => return Ok("UnbindVm".to_owned()),
        "upload" => return Ok("UploadBitstream".to_owned()),
        verb => (verb, ["list", "watch"].contains(&verb)),
    };
    // Names alternate collections and ids: the last collection is what they name.
    let parts: Vec<&str> = resource.split('/').collect();
    let collection = parts.iter().step_by(2).next_back().copied().unwrap_or_default();
    let found = NOUNS.iter().find(|(name, ..)| *name == collection);
    let (_, one, many) = found.ok_or_else(unclear)?;
    let mut letters = verb.chars();
    let first = letters.next().ok_or_else(unclear)?.to_ascii_uppercase();
    let noun = if is_plural { many } else { one };
    Ok(format!("{first}{}{noun}", letters.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verb_and_a_resource_make_a_method() {
        let cases = [
            ("CreateDag", "", "CreateDag"),
            ("get", "tenants/acme/dags/web", "GetDag"),
            ("list", "tenants/acme/dags/web", "ListDags"),
            ("delete", "tenants/acme", "DeleteTenant"),
            ("reset", "cards/a/regions/3", "ResetRegion"),
            ("cordon", "cards/a", "CordonCard"),
            ("retry", "bitstreams/acme.x", "RetryBitstream"),
            ("bind", "vmBindings/x", "BindVm"),
        ];
        for (action, resource, expected) in cases {
            assert_eq!(method(action, resource).expect("clear"), expected);
        }
        for (action, resource) in [("get", ""), ("get", "web"), ("", "tenants/acme")] {
            assert!(method(action, resource).is_err(), "{action} {resource}");
        }
    }

    /// Every method that this makes is one of the API, if the verb is.
    #[test]
    fn the_nouns_are_those_of_the_api() {
        let text = String::from_utf8_lossy(snic_api::FILE_DESCRIPTOR_SET).into_owned();
        for (name, one, many) in NOUNS {
            assert!(text.contains(&format!("Get{one}")), "{name}");
            assert!(text.contains(&format!("List{many}")), "{name}");
        }
    }
}
