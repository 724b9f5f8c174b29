//! Cards and regions; for operators.

use snic_api::convert::name;
use snic_api::error::ApiError;
use snic_api::page::Query;
use snic_api::v1;
use snic_api::v1::card_service_server::CardService;
use snic_controller::{CardView, Command, Controller, RegionView, Reply, ResourceKind};
use snic_domain::{Caller, CardId, RegionId};
use snic_front::gate::caller;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::watching::{Event, Events, WatchSpec};
use super::{
    MissingPolicy, RpcResult, Services, absent, consolidation, guarded, listing, repeat_of,
    reply_as,
};
use crate::error::{OperationKind, failure};
use crate::hub::Topic;
use crate::links::CardLinks;
use crate::wire;

/// All cards by name, those included that could never be opened.
fn cards(controller: &Controller, links: &CardLinks) -> Vec<v1::Card> {
    let known = controller.cards().map(|view| wire::card(&view));
    let absent = controller.absent_cards().map(|(id, reason)| wire::absent_card(id, reason));
    let mut all: Vec<_> = known.chain(absent).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all.iter_mut().for_each(|card| links.fill(card));
    all
}

/// The regions of one card or of all, by card and number, behind one.
pub(crate) fn regions(
    controller: &Controller,
    card: Option<&CardId>,
    after: Option<&(CardId, RegionId)>,
    limit: usize,
) -> Vec<RegionView> {
    let cards = controller.cards().filter(|view| card.is_none_or(|card| view.card == *card));
    let ids = cards.flat_map(|view| {
        let card = view.card;
        view.regions.into_iter().map(move |(region, _)| (card.clone(), region))
    });
    ids.filter(|id| after.is_none_or(|after| id > after))
        .filter_map(|(card, region)| controller.region_view(&card, region))
        .take(limit)
        .collect()
}

#[tonic::async_trait]
impl CardService for Services {
    async fn list_cards(
        &self,
        request: Request<v1::ListCardsRequest>,
    ) -> RpcResult<v1::ListCardsResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let listing = listing!(v1::Card, Query::of("ListCards"), request)?;
        let links = self.0.card_links.clone();
        let (page, revision) = self
            .page(
                &caller,
                &listing,
                move |controller, _, after, limit| {
                    let all = cards(controller, &links).into_iter();
                    let rest = all.skip_while(|card| Some(card.name.as_str()) <= after);
                    rest.take(limit).collect()
                },
                |card: &v1::Card| (card.name.clone(), card.clone()),
            )
            .await?;
        Ok(Response::new(v1::ListCardsResponse {
            cards: page.items,
            next_page_token: page.next_page_token,
            revision,
        }))
    }

    async fn get_card(
        &self,
        request: Request<v1::GetCardRequest>,
    ) -> RpcResult<v1::GetCardResponse> {
        let caller = caller(&request)?;
        let card = self.card(&caller, &request.into_inner().name).await?;
        Ok(Response::new(card.into()))
    }

    async fn list_regions(
        &self,
        request: Request<v1::ListRegionsRequest>,
    ) -> RpcResult<v1::ListRegionsResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let card = self.regions_of(&caller, &request.parent).await?;
        let query = Query::of("ListRegions").with("parent", &request.parent);
        let listing = listing!(v1::Region, query, request)?;
        let (page, revision) = self
            .page(
                &caller,
                &listing,
                move |controller, _, after, limit| {
                    let after = after.and_then(|key| name::region("page_token", key).ok());
                    regions(controller, card.as_ref(), after.as_ref(), limit)
                },
                |view: &RegionView| (name::of_region(&view.card, view.region), wire::region(view)),
            )
            .await?;
        Ok(Response::new(v1::ListRegionsResponse {
            regions: page.items,
            next_page_token: page.next_page_token,
            revision,
        }))
    }

    async fn get_region(
        &self,
        request: Request<v1::GetRegionRequest>,
    ) -> RpcResult<v1::GetRegionResponse> {
        let caller = caller(&request)?;
        let name = request.into_inner().name;
        let (card, region) = name::region("name", &name).map_err(ApiError::from)?;
        let view = self.read(&caller, move |controller, _| controller.region_view(&card, region));
        let view = view.await?.ok_or_else(|| absent(&name))?;
        Ok(Response::new(wire::region(&view).into()))
    }

    async fn drain_region(
        &self,
        request: Request<v1::DrainRegionRequest>,
    ) -> RpcResult<v1::DrainRegionResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let (name, repeat) = (&request.name, repeat_of(&request.request_id)?);
        let (card, region) = name::region("name", name).map_err(ApiError::from)?;
        let command = guarded(&request.etag, Command::DrainRegion { card, region });
        let reply = self.ask(&caller, repeat, command, OperationKind::Change).await?;
        reply_as!(reply, Reply::Operation(view) => Response::new(wire::operation(&view, &caller).into()))
    }

    async fn drain_card(
        &self,
        request: Request<v1::DrainCardRequest>,
    ) -> RpcResult<v1::DrainCardResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let (name, repeat) = (&request.name, repeat_of(&request.request_id)?);
        let card = name::card("name", name).map_err(ApiError::from)?;
        let command = guarded(&request.etag, Command::DrainCard { card });
        let reply = self.ask(&caller, repeat, command, OperationKind::Change).await?;
        reply_as!(reply, Reply::Operation(view) => Response::new(wire::operation(&view, &caller).into()))
    }

    async fn cordon_region(
        &self,
        request: Request<v1::CordonRegionRequest>,
    ) -> RpcResult<v1::CordonRegionResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let (name, repeat) = (&request.name, repeat_of(&request.request_id)?);
        let (card, region) = name::region("name", name).map_err(ApiError::from)?;
        let command = Command::Cordon { card: card.clone(), region: Some(region), on: true };
        let command = guarded(&request.etag, command);
        self.ask(&caller, repeat, command, OperationKind::Change).await?;
        let view = self.read(&caller, move |controller, _| controller.region_view(&card, region));
        let view = view.await?.ok_or_else(|| absent(name))?;
        Ok(Response::new(wire::region(&view).into()))
    }

    async fn cordon_card(
        &self,
        request: Request<v1::CordonCardRequest>,
    ) -> RpcResult<v1::CordonCardResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let (name, etag) = (&request.name, &request.etag);
        let repeat = repeat_of(&request.request_id)?;
        let card = self.cordon(&caller, (name, etag), repeat, true).await?;
        Ok(Response::new(card.into()))
    }

    async fn uncordon_card(
        &self,
        request: Request<v1::UncordonCardRequest>,
    ) -> RpcResult<v1::UncordonCardResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let (name, etag) = (&request.name, &request.etag);
        let repeat = repeat_of(&request.request_id)?;
        let card = self.cordon(&caller, (name, etag), repeat, false).await?;
        Ok(Response::new(card.into()))
    }

    async fn remove_card(
        &self,
        request: Request<v1::RemoveCardRequest>,
    ) -> RpcResult<v1::RemoveCardResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let repeat = repeat_of(&request.request_id)?;
        let card = name::card("name", &request.name).map_err(ApiError::from)?;
        let command = guarded(&request.etag, Command::RemoveCard { card });
        let reply = self.ask(&caller, repeat, command, OperationKind::Delete).await;
        MissingPolicy::from(request.allow_missing).or_done(reply)?;
        Ok(Response::new(v1::RemoveCardResponse {}))
    }

    async fn replace_card(
        &self,
        request: Request<v1::ReplaceCardRequest>,
    ) -> RpcResult<v1::ReplaceCardResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let repeat = repeat_of(&request.request_id)?;
        let card = name::card("name", &request.name).map_err(ApiError::from)?;
        let command = guarded(&request.etag, Command::ReplaceCard { card });
        self.ask(&caller, repeat, command, OperationKind::Change).await?;
        Ok(Response::new(self.card(&caller, &request.name).await?.into()))
    }

    async fn undrain_region(
        &self,
        request: Request<v1::UndrainRegionRequest>,
    ) -> RpcResult<v1::UndrainRegionResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let (name, repeat) = (&request.name, repeat_of(&request.request_id)?);
        let (card, region) = name::region("name", name).map_err(ApiError::from)?;
        let command = guarded(&request.etag, Command::UndrainRegion { card, region });
        let reply = self.ask(&caller, repeat, command, OperationKind::Change).await?;
        reply_as!(reply, Reply::Region(view) => Response::new(wire::region(&view).into()))
    }

    async fn reset_region(
        &self,
        request: Request<v1::ResetRegionRequest>,
    ) -> RpcResult<v1::ResetRegionResponse> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let (name, repeat) = (&request.name, repeat_of(&request.request_id)?);
        let (card, region) = name::region("name", name).map_err(ApiError::from)?;
        let command = guarded(&request.etag, Command::ResetRegion { card, region });
        let reply = self.ask(&caller, repeat, command, OperationKind::Delete).await?;
        reply_as!(reply, Reply::Operation(view) => Response::new(wire::operation(&view, &caller).into()))
    }

    async fn optimize_card(
        &self,
        request: Request<v1::OptimizeCardRequest>,
    ) -> RpcResult<v1::OptimizeCardResponse> {
        let caller = caller(&request)?;
        let v1::OptimizeCardRequest { name, validate_only, request_id, etag } =
            request.into_inner();
        let repeat = repeat_of(&request_id)?.filter(|_| !validate_only);
        let card = name::card("name", &name).map_err(ApiError::from)?;
        if validate_only {
            let picture = self.read(&caller, move |controller, _| {
                if !etag.is_empty() {
                    let command = Command::OptimizeCard { card: card.clone() };
                    controller.check_etag(&command, &etag)?;
                }
                controller.picture(&card)
            });
            let picture = picture
                .await?
                .map_err(|error| failure(error.into(), OperationKind::Change, &caller))?;
            let view = self.search(move || picture.consolidation()).await?;
            return Ok(Response::new(consolidation::would_be(&view)));
        }
        let command = guarded(&etag, Command::OptimizeCard { card });
        let reply = self.ask(&caller, repeat, command, OperationKind::Change).await?;
        reply_as!(reply, Reply::Operation(view) => {
            let operation = Some(wire::operation(&view, &caller));
            Response::new(v1::OptimizeCardResponse { operation, ..Default::default() })
        })
    }

    async fn load_role(
        &self,
        request: Request<v1::LoadRoleRequest>,
    ) -> RpcResult<v1::LoadRoleResponse> {
        let caller = caller(&request)?;
        let v1::LoadRoleRequest { name, force, request_id, etag } = request.into_inner();
        let repeat = repeat_of(&request_id)?;
        let card = name::card("name", &name).map_err(ApiError::from)?;
        let command = guarded(&etag, Command::LoadRole { card, force });
        let reply = self.ask(&caller, repeat, command, OperationKind::Change).await?;
        reply_as!(reply, Reply::Operation(view) => Response::new(wire::operation(&view, &caller).into()))
    }

    async fn reset_card(
        &self,
        request: Request<v1::ResetCardRequest>,
    ) -> RpcResult<v1::ResetCardResponse> {
        let caller = caller(&request)?;
        let v1::ResetCardRequest { name, force, request_id, etag } = request.into_inner();
        let repeat = repeat_of(&request_id)?;
        let card = name::card("name", &name).map_err(ApiError::from)?;
        let command = guarded(&etag, Command::ResetCard { card, force });
        let reply = self.ask(&caller, repeat, command, OperationKind::Change).await?;
        reply_as!(reply, Reply::Operation(view) => Response::new(wire::operation(&view, &caller).into()))
    }

    type WatchRegionsStream = ReceiverStream<Result<v1::WatchRegionsResponse, Status>>;

    async fn watch_regions(
        &self,
        request: Request<v1::WatchRegionsRequest>,
    ) -> RpcResult<Self::WatchRegionsStream> {
        let caller = caller(&request)?;
        let request = request.into_inner();
        let card = self.regions_of(&caller, &request.parent).await?;
        let topic = Topic::Regions(card.clone());
        let piece = move |controller: &Controller, _: &Caller, after: Option<&RegionView>, most| {
            let after = after.map(|view| (view.card.clone(), view.region));
            regions(controller, card.as_ref(), after.as_ref(), most)
        };
        let event = |event: Event<'_, RegionView>| v1::WatchRegionsResponse {
            r#type: event.kind().into(),
            region: event.message(wire::region, |name| v1::Region { name, ..Default::default() }),
            revision: event.revision,
        };
        let subject = WatchSpec { topic, caller, piece, event };
        Ok(Response::new(self.watch(subject, request.resume_revision).await?))
    }

    type WatchCardsStream = Events<v1::WatchCardsResponse>;

    async fn watch_cards(
        &self,
        request: Request<v1::WatchCardsRequest>,
    ) -> RpcResult<Self::WatchCardsStream> {
        let caller = caller(&request)?;
        let resume = request.into_inner().resume_revision;
        let topic = Topic::Resources(ResourceKind::Card, None);
        let piece = |controller: &Controller, _: &Caller, after: Option<&CardView>, most| {
            let after = after.map(|view| &view.card);
            controller.cards().skip_while(|view| Some(&view.card) <= after).take(most).collect()
        };
        let links = self.0.card_links.clone();
        let shown = move |view: &CardView| {
            let mut card = wire::card(view);
            links.fill(&mut card);
            card
        };
        let event = move |event: Event<'_, CardView>| v1::WatchCardsResponse {
            r#type: event.kind().into(),
            card: event.message(&shown, |name| v1::Card { name, ..Default::default() }),
            revision: event.revision,
        };
        let subject = WatchSpec { topic, caller, piece, event };
        Ok(Response::new(self.watch(subject, resume).await?))
    }
}

impl Services {
    async fn card(&self, caller: &Caller, name: &str) -> Result<v1::Card, ApiError> {
        name::card("name", name).map_err(ApiError::from)?;
        let links = self.0.card_links.clone();
        let cards = self.read(caller, move |controller, _| cards(controller, &links)).await?;
        let card = cards.into_iter().find(|card| card.name == name);
        card.ok_or_else(|| absent(name))
    }

    async fn cordon(
        &self,
        caller: &Caller,
        (name, etag): (&str, &str),
        repeat: Option<String>,
        on: bool,
    ) -> Result<v1::Card, ApiError> {
        let card = name::card("name", name)?;
        let command = guarded(etag, Command::Cordon { card, region: None, on });
        self.ask(caller, repeat, command, OperationKind::Change).await?;
        self.card(caller, name).await
    }

    /// Card whose regions a list or a watch is about.
    async fn regions_of(&self, caller: &Caller, parent: &str) -> Result<Option<CardId>, ApiError> {
        let Some(card) = name::card_or_all("parent", parent)? else { return Ok(None) };
        let wanted = card.clone();
        let known = self.read(caller, move |controller, _| controller.card_view(&wanted)).await?;
        known.map(|_| Some(card)).ok_or_else(|| absent(parent))
    }
}
