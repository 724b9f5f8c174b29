//! `snicctl card`.

use snic_api::v1::{
    Card, CordonCardRequest, DrainCardRequest, GetCardRequest, LoadRoleRequest,
    OptimizeCardRequest, RemoveCardRequest, ReplaceCardRequest, UncordonCardRequest,
};

use super::{CliSession, floor_plan, models, request_id, watch};
use crate::args::CardCommand;
use snic_client::Client;
use snic_client::Failure;
use snic_client::call;
use snic_client::lists;
use snic_client::names;
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
        CardCommand::List => {
            let cards = lists::cards(&client).await?;
            session.output.many(&cards, views::cards)
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
            session.output.one(&card, |card, style| views::card_map(card, &regions, style))
        }
        CardCommand::Cordon { name } => cordon(session, &client, name).await,
        CardCommand::Uncordon { name } => uncordon(session, &client, name).await,
        CardCommand::Remove { name } => remove(session, &client, &name).await,
        CardCommand::Replace { name } => replace(session, &client, &name).await,
        CardCommand::Drain { name, wait } => {
            let request = DrainCardRequest {
                name: named(&client, name).await?,
                request_id: request_id(),
                ..Default::default()
            };
            let operation = call!(client, cards.drain_card => operation, request)?;
            session.finish(&client, operation, wait).await
        }
        CardCommand::Optimize { name, dry_run, wait } => {
            let name = named(&client, name).await?;
            let request =
                OptimizeCardRequest { name, validate_only: dry_run, request_id: request_id() };
            let reply = call!(client, cards.optimize_card, request)?;
            if dry_run {
                return session.output.one(&reply, consolidation::moves);
            }
            let missing = || Failure::Reply("the reply has no operation".into());
            session.finish(&client, reply.operation.ok_or_else(missing)?, wait).await
        }
        CardCommand::LoadRole { name, force, wait } => {
            let request = LoadRoleRequest {
                name: named(&client, name).await?,
                force,
                request_id: request_id(),
                ..Default::default()
            };
            let operation = call!(client, cards.load_role => operation, request)?;
            session.finish(&client, operation, wait).await
        }
    }
}

async fn cordon(
    session: &mut CliSession,
    client: &Client,
    name: Option<String>,
) -> Result<(), Failure> {
    let name = named(client, name).await?;
    let request = CordonCardRequest { name, request_id: request_id(), ..Default::default() };
    let card = call!(client, cards.cordon_card => card, request)?;
    session.output.one(&card, row)
}

async fn uncordon(
    session: &mut CliSession,
    client: &Client,
    name: Option<String>,
) -> Result<(), Failure> {
    let name = named(client, name).await?;
    let request = UncordonCardRequest { name, request_id: request_id(), ..Default::default() };
    let card = call!(client, cards.uncordon_card => card, request)?;
    session.output.one(&card, row)
}

async fn remove(session: &mut CliSession, client: &Client, name: &str) -> Result<(), Failure> {
    let name = names::card(name)?;
    let request =
        RemoveCardRequest { name: name.clone(), request_id: request_id(), ..Default::default() };
    let _ = call!(client, cards.remove_card, request)?;
    session.deleted(&name)
}

async fn replace(session: &mut CliSession, client: &Client, name: &str) -> Result<(), Failure> {
    let request = ReplaceCardRequest {
        name: names::card(name)?,
        request_id: request_id(),
        ..Default::default()
    };
    let card = call!(client, cards.replace_card => card, request)?;
    session.output.one(&card, row)
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
