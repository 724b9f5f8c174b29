//! `snicctl card`.

use snic_api::v1::{
    Card, CordonCardRequest, DrainCardRequest, GetCardRequest, LoadRoleRequest,
    OptimizeCardRequest, RemoveCardRequest, ReplaceCardRequest, ResetCardRequest,
    UncordonCardRequest,
};

use super::{CliSession, floor_plan, list, models, request_id, watch};
use crate::args::CardCommand;
use snic_client::Client;
use snic_client::Failure;
use snic_client::call;
use snic_client::lists;
use snic_client::names;
use snic_client::output::visible::shown;
use snic_client::output::{Format, Style, changes, consolidation, text, views};

pub async fn run(session: &mut CliSession, command: CardCommand) -> Result<(), Failure> {
    let command = match command {
        CardCommand::ImportFloorplan(sources) => return floor_plan::import(&sources),
        CardCommand::Models(arguments) => return models::run(session, &arguments),
        command => command,
    };
    let client = session.client()?;
    match command {
        CardCommand::ImportFloorplan(_) | CardCommand::Models(_) => {
            unreachable!("it needs no server")
        }
        CardCommand::List(selected) => {
            list!(session, cards.list_cards(ListCardsRequest {}) => cards, selected, views::cards)
        }
        CardCommand::Watch => {
            watch!(session, cards.watch_cards(WatchCardsRequest), changes::card_event)
        }
        CardCommand::Get { name } => {
            let name = named(&client, name).await?;
            let request = GetCardRequest { name: name.clone() };
            let card = call!(client, cards.get_card => card, request)?;
            if session.output.format() != Format::Table {
                return session.output.one(&card, |_, _| String::new());
            }
            let regions = lists::regions(&client, &name).await?;
            let regions: Vec<_> = regions.into_iter().map(shown).collect();
            session.output.one(&card, |card, style| views::card_map(card, &regions, style))
        }
        change => carry_out(session, &client, change).await,
    }
}

/// The changes of a card.
async fn carry_out(
    session: &mut CliSession,
    client: &Client,
    change: CardCommand,
) -> Result<(), Failure> {
    match change {
        CardCommand::Cordon { name, guard } => {
            let (name, etag) = (named(client, name).await?, guard.into_etag());
            let request = CordonCardRequest { name, request_id: request_id(), etag };
            let card = call!(client, cards.cordon_card => card, request)?;
            session.output.one(&card, row)
        }
        CardCommand::Uncordon { name, guard } => {
            let (name, etag) = (named(client, name).await?, guard.into_etag());
            let request = UncordonCardRequest { name, request_id: request_id(), etag };
            let card = call!(client, cards.uncordon_card => card, request)?;
            session.output.one(&card, row)
        }
        CardCommand::Remove { name, guard } => {
            let request = RemoveCardRequest {
                name: names::card(&name)?,
                request_id: request_id(),
                allow_missing: guard.allow_missing,
                etag: guard.guard.into_etag(),
            };
            let name = request.name.clone();
            let _ = call!(client, cards.remove_card, request)?;
            session.deleted(&name)
        }
        CardCommand::Replace { name, guard } => {
            let (name, etag) = (names::card(&name)?, guard.into_etag());
            let request = ReplaceCardRequest { name, request_id: request_id(), etag };
            let card = call!(client, cards.replace_card => card, request)?;
            session.output.one(&card, row)
        }
        CardCommand::Drain { name, wait, guard } => {
            let (name, etag) = (named(client, name).await?, guard.into_etag());
            let request = DrainCardRequest { name, request_id: request_id(), etag };
            let operation = call!(client, cards.drain_card => operation, request)?;
            session.finish(client, operation, wait).await
        }
        CardCommand::Optimize { name, dry_run: validate_only, wait, guard } => {
            let (name, etag) = (named(client, name).await?, guard.into_etag());
            let request =
                OptimizeCardRequest { name, validate_only, request_id: request_id(), etag };
            let reply = call!(client, cards.optimize_card, request)?;
            if validate_only {
                return session.output.one(&reply, consolidation::moves);
            }
            let missing = || Failure::Reply("the reply has no operation".into());
            session.finish(client, reply.operation.ok_or_else(missing)?, wait).await
        }
        CardCommand::LoadRole { name, force, wait, guard } => {
            let (name, etag) = (named(client, name).await?, guard.into_etag());
            let request = LoadRoleRequest { name, force, request_id: request_id(), etag };
            let operation = call!(client, cards.load_role => operation, request)?;
            session.finish(client, operation, wait).await
        }
        CardCommand::Reset { name, force, wait, guard } => {
            let (name, etag) = (names::card(&name)?, guard.into_etag());
            let request = ResetCardRequest { name, force, request_id: request_id(), etag };
            let operation = call!(client, cards.reset_card => operation, request)?;
            session.finish(client, operation, wait).await
        }
        CardCommand::ImportFloorplan(_)
        | CardCommand::Models(_)
        | CardCommand::List(_)
        | CardCommand::Watch
        | CardCommand::Get { .. } => unreachable!("it changes nothing"),
    }
}

/// A card's full name; without a name, that of the only card.
pub(super) async fn named(client: &Client, name: Option<String>) -> Result<String, Failure> {
    match name {
        Some(name) => names::card(&name),
        None => only(client).await,
    }
}

/// The name of the only card.
pub(super) async fn only(client: &Client) -> Result<String, Failure> {
    let cards = lists::cards(client).await?;
    match cards.as_slice() {
        [card] => Ok(card.name.clone()),
        [] => Err(Failure::usage("the server has no card", "the server's log says why")),
        several => {
            let names: Vec<&str> = several.iter().map(|card| text::id(&card.name)).collect();
            let hint = format!("choose one of {}", names.join(", "));
            Err(Failure::usage("the server has several cards", hint))
        }
    }
}

fn row(card: &Card, style: Style) -> String {
    views::cards(std::slice::from_ref(card), style)
}
