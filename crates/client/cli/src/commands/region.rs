//! `snicctl region`.

use snic_api::v1::{
    CordonRegionRequest, DrainRegionRequest, GetRegionRequest, ResetRegionRequest,
    UndrainRegionRequest, WatchRegionsRequest,
};

use super::{CliSession, card, list, request_id};
use crate::args::RegionCommand;
use snic_client::Client;
use snic_client::Failure;
use snic_client::call;
use snic_client::follow;
use snic_client::names;
use snic_client::output::views;

pub async fn run(session: &mut CliSession, command: RegionCommand) -> Result<(), Failure> {
    let client = session.client()?;
    match command {
        RegionCommand::List { card, selected } => {
            let parent = parent(card)?;
            list!(
                session,
                cards.list_regions(ListRegionsRequest { parent }) => regions,
                selected,
                views::regions
            )
        }
        RegionCommand::Get { name } => {
            let request = GetRegionRequest { name: region(&client, &name).await? };
            let region = call!(client, cards.get_region => region, request)?;
            session.output.one(&region, views::region)
        }
        RegionCommand::Drain { name, wait, guard } => {
            let request = DrainRegionRequest {
                name: region(&client, &name).await?,
                request_id: request_id(),
                etag: guard.into_etag(),
            };
            let operation = call!(client, cards.drain_region => operation, request)?;
            session.finish(&client, operation, wait).await
        }
        RegionCommand::Cordon { name, guard } => {
            let request = CordonRegionRequest {
                name: region(&client, &name).await?,
                request_id: request_id(),
                etag: guard.into_etag(),
            };
            let region = call!(client, cards.cordon_region => region, request)?;
            session.output.one(&region, views::region)
        }
        RegionCommand::Undrain { name, guard } => {
            let request = UndrainRegionRequest {
                name: region(&client, &name).await?,
                request_id: request_id(),
                etag: guard.into_etag(),
            };
            let region = call!(client, cards.undrain_region => region, request)?;
            session.output.one(&region, views::region)
        }
        RegionCommand::Reset { name, wait, guard } => {
            let request = ResetRegionRequest {
                name: region(&client, &name).await?,
                request_id: request_id(),
                etag: guard.into_etag(),
            };
            let operation = call!(client, cards.reset_region => operation, request)?;
            session.finish(&client, operation, wait).await
        }
        RegionCommand::Watch { card } => {
            let parent = parent(card)?;
            let open = async |resume_revision| {
                let request = WatchRegionsRequest { parent: parent.clone(), resume_revision };
                snic_client::open!(client, cards.watch_regions, request)
            };
            follow(&client, open, |event| {
                session.output.event(&event, views::region_event)?;
                Ok(event.revision)
            })
            .await
        }
    }
}

fn parent(card: Option<String>) -> Result<String, Failure> {
    card.map_or_else(|| Ok("cards/-".to_owned()), |card| names::card(&card))
}

/// The whole name of a region; the only card counts where none is named.
async fn region(client: &Client, text: &str) -> Result<String, Failure> {
    let only = if names::is_region_alone(text) { Some(card::only(client).await?) } else { None };
    names::region(text, only.as_deref())
}
