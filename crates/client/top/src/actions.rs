//! Changes and questions that the keys of the screen send to the server: never without a confirmation, and only about the
//! row that was chosen when it was asked for.

use snic_api::v1::{
    CordonCardRequest, CordonRegionRequest, DrainCardRequest, DrainRegionRequest,
    ExplainDagRequest, UncordonCardRequest, UndrainRegionRequest,
};

use super::hosts::HostVerb;
use snic_client::output::explain::explanation;
use snic_client::output::{Style, text};
use snic_client::{Client, Failure, call, request_id};

/// Action on a region or a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// Nothing new is placed there.
    Cordon,
    /// New DAGs may be placed there again.
    Uncordon,
    /// DAGs leave, too.
    Drain,
}

/// Request to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyAction {
    /// Change of a region or a card, by its full name.
    Change(Verb, String),
    /// Change of a host of a fleet, by its full name.
    Host(HostVerb, String),
    /// Why a DAG is mapped as it is, by its full name.
    Explain(String),
}

impl KeyAction {
    /// The question before a change; `None` for what changes nothing.
    pub fn question(&self) -> Option<String> {
        let (verb, name) = match self {
            Self::Change(verb, name) => (verb, name),
            Self::Host(verb, name) => return verb.question(name),
            Self::Explain(_) => return None,
        };
        let what = short(name);
        Some(match verb {
            Verb::Cordon => format!("cordon {what}: nothing new is placed there"),
            Verb::Uncordon => format!("uncordon {what}: it takes new DAGs again"),
            Verb::Drain => format!("drain {what}: DAGs that find another place leave"),
        })
    }

    /// Has the server do it; what to show of it.
    ///
    /// # Errors
    /// [`Failure`]: the server's.
    pub async fn carry_out(self, client: &Client, style: Style) -> Result<String, Failure> {
        let (verb, name) = match self {
            Self::Host(verb, name) => return verb.carry_out(client, name, style).await,
            Self::Explain(name) => {
                let request = ExplainDagRequest { name };
                let found = call!(client, dags.explain_dag => explanation, request)?;
                return Ok(explanation(&found, style));
            }
            Self::Change(verb, name) => (verb, name),
        };
        let (what, etag) = (short(&name), String::new());
        let request_id = request_id();
        let is_region = name.contains("/regions/");
        let done = match (verb, is_region) {
            (Verb::Cordon, true) => {
                let request = CordonRegionRequest { name, request_id, etag };
                call!(client, cards.cordon_region => region, request)?;
                "is cordoned"
            }
            (Verb::Cordon, false) => {
                let request = CordonCardRequest { name, request_id, etag };
                call!(client, cards.cordon_card => card, request)?;
                "is cordoned"
            }
            (Verb::Uncordon, true) => {
                let request = UndrainRegionRequest { name, request_id, etag };
                call!(client, cards.undrain_region => region, request)?;
                "takes new DAGs again"
            }
            (Verb::Uncordon, false) => {
                let request = UncordonCardRequest { name, request_id, etag };
                call!(client, cards.uncordon_card => card, request)?;
                "takes new DAGs again"
            }
            (Verb::Drain, true) => {
                let request = DrainRegionRequest { name, request_id, etag };
                call!(client, cards.drain_region => operation, request)?;
                "is being drained"
            }
            (Verb::Drain, false) => {
                let request = DrainCardRequest { name, request_id, etag };
                call!(client, cards.drain_card => operation, request)?;
                "is being drained"
            }
        };
        Ok(format!("{what} {done}"))
    }
}

/// `card card0` or `region card0/3`.
fn short(name: &str) -> String {
    let noun = if name.contains("/regions/") { "region" } else { "card" };
    format!("{noun} {}", text::name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_asked_for_by_name_and_questions_are_not() {
        let region = KeyAction::Change(Verb::Drain, "cards/card0/regions/3".into());
        let asked = region.question().expect("it changes something");
        assert!(asked.starts_with("drain region card0/3:"), "{asked}");
        let card =
            KeyAction::Change(Verb::Cordon, "cards/card0".into()).question().expect("as well");
        assert!(card.starts_with("cordon card card0:"), "{card}");
        assert_eq!(KeyAction::Explain("tenants/acme/dags/web".into()).question(), None);
    }
}
