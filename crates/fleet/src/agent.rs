//! The host's side: which orders it carries out, and what it reports.
//!
//! It keeps serving whatever happens to the fleet, and does nothing that an older leader wants: it remembers the highest
//! epoch that it has seen. Orders may be lost, repeated or late. What counts is the comparison with every beat: a digest
//! for each card of what it serves. Where it differs the leader asks for the list, and sends what is missing.

use std::collections::BTreeMap;

use snic_domain::{CardId, DagName, DagSpec, Digest, RegionId};

use crate::protocol::{Epoch, HostOrder, HostReport, OrderKind};
use crate::records::PlaceRecord;

/// The digest of what a card serves: of the names and serials of its DAGs, in order.
pub fn holdings_digest<'a>(dags: impl Iterator<Item = (&'a DagName, u64)>) -> Digest {
    let mut text = String::new();
    for (name, serial) in dags {
        text.push_str(&format!("{name} {serial}\n"));
    }
    Digest::of(text.as_bytes())
}

/// What happens to the agent.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentEvent {
    /// An order arrived.
    Order(HostOrder),
    /// The host's controller carried out [`AgentEffect::Serve`], or refused it.
    Served {
        /// Which DAG.
        name: DagName,
        /// On which card.
        card: CardId,
        /// Which place of it.
        serial: u64,
        /// Why not, with regions that take nothing.
        result: Result<(), (String, Vec<RegionId>)>,
    },
    /// It is time to say that the host lives.
    BeatDue,
}

/// What the agent wants done, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum AgentEffect {
    /// Remember the epoch durably, before what follows.
    Remember(Epoch),
    /// Send a report. It may be lost.
    Report(HostReport),
    /// Have the controller serve a DAG.
    Serve {
        /// Its name.
        name: DagName,
        /// What it is.
        spec: Box<DagSpec>,
        /// Where.
        place: Box<PlaceRecord>,
    },
    /// Have the controller serve it no more.
    Stop {
        /// Its name.
        name: DagName,
        /// On which card.
        card: CardId,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Holding {
    serial: u64,
    is_served: bool,
}

/// The host's part of the fleet.
#[derive(Debug, Clone)]
pub struct HostAgent {
    epoch: Epoch,
    sequence: u64,
    cards: BTreeMap<CardId, BTreeMap<DagName, Holding>>,
}

impl HostAgent {
    /// After a start: the epoch that it remembers, and what its controller serves, by card.
    pub fn new(epoch: Epoch, served: BTreeMap<CardId, BTreeMap<DagName, u64>>) -> Self {
        let holding = |(name, serial)| (name, Holding { serial, is_served: true });
        let of_card = |(card, dags): (CardId, BTreeMap<DagName, u64>)| {
            (card, dags.into_iter().map(holding).collect())
        };
        Self { epoch, sequence: 0, cards: served.into_iter().map(of_card).collect() }
    }

    /// What an event leads to.
    pub fn handle(&mut self, event: AgentEvent) -> Vec<AgentEffect> {
        match event {
            AgentEvent::Order(order) => self.order(order),
            AgentEvent::Served { name, card, serial, result } => {
                self.served(name, &card, serial, result).into_iter().collect()
            }
            AgentEvent::BeatDue => vec![self.beat()],
        }
    }

    /// The highest epoch that it has seen.
    pub const fn epoch(&self) -> Epoch {
        self.epoch
    }

    fn order(&mut self, order: HostOrder) -> Vec<AgentEffect> {
        let mut effects = Vec::new();
        if order.epoch > self.epoch {
            (self.epoch, self.sequence) = (order.epoch, 0);
            effects.push(AgentEffect::Remember(self.epoch));
        }
        if order.epoch < self.epoch || order.sequence <= self.sequence {
            return effects;
        }
        self.sequence = order.sequence;
        match order.what {
            OrderKind::Greet => effects.push(self.beat()),
            OrderKind::List(card) => {
                let dags = self.served_on(&card).map(|(name, of)| (name.clone(), of)).collect();
                let report = HostReport::Holds { epoch: self.epoch, card, dags };
                effects.push(AgentEffect::Report(report));
            }
            OrderKind::Put { name, spec, place } => self.put(name, spec, place, &mut effects),
            OrderKind::Remove { name, card, serial } => {
                let dags = self.cards.entry(card.clone()).or_default();
                if dags.get(&name).is_some_and(|held| held.serial == serial) {
                    dags.remove(&name);
                    effects.push(AgentEffect::Stop { name, card });
                }
            }
        }
        effects
    }

    fn put(
        &mut self,
        name: DagName,
        spec: Box<DagSpec>,
        place: Box<PlaceRecord>,
        effects: &mut Vec<AgentEffect>,
    ) {
        let (card, serial) = (place.card.card.clone(), place.serial);
        let dags = self.cards.entry(card.clone()).or_default();
        match dags.get(&name) {
            Some(held) if held.serial == serial && held.is_served => {
                effects.push(AgentEffect::Report(HostReport::Applied { name, serial }));
                return;
            }
            Some(held) if held.serial >= serial => return,
            Some(_) => effects.push(AgentEffect::Stop { name: name.clone(), card }),
            None => {}
        }
        dags.insert(name.clone(), Holding { serial, is_served: false });
        effects.push(AgentEffect::Serve { name, spec, place });
    }

    fn served(
        &mut self,
        name: DagName,
        card: &CardId,
        serial: u64,
        result: Result<(), (String, Vec<RegionId>)>,
    ) -> Option<AgentEffect> {
        let dags = self.cards.get_mut(card)?;
        let Some(held) = dags.get_mut(&name) else {
            // It was to be stopped while it was begun.
            return result.is_ok().then(|| AgentEffect::Stop { name, card: card.clone() });
        };
        if held.serial != serial {
            return None;
        }
        Some(AgentEffect::Report(match result {
            Ok(()) => {
                held.is_served = true;
                HostReport::Applied { name, serial }
            }
            Err((reason, faulty)) => {
                dags.remove(&name);
                HostReport::Refused { name, serial, reason, faulty }
            }
        }))
    }

    fn served_on(&self, card: &CardId) -> impl Iterator<Item = (&DagName, u64)> {
        let dags = self.cards.get(card).into_iter().flatten();
        dags.filter(|(_, held)| held.is_served).map(|(name, held)| (name, held.serial))
    }

    fn beat(&self) -> AgentEffect {
        let digest = |card: &CardId| (card.clone(), holdings_digest(self.served_on(card)));
        AgentEffect::Report(HostReport::Beat {
            epoch: self.epoch,
            sequence: self.sequence,
            digests: self.cards.keys().map(digest).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use snic_domain::{Bandwidth, DagId, Form, Mapping, TenantId};
    use snic_planner::Reservation;

    use super::*;
    use crate::{FleetCard, HostId};

    fn name() -> DagName {
        let tenant = TenantId::new("acme").expect("a test id");
        DagName { tenant, dag: DagId::new("web").expect("a test id") }
    }

    fn card() -> CardId {
        CardId::new("card0").expect("a test id")
    }

    fn order(epoch: i64, sequence: u64, what: OrderKind) -> AgentEvent {
        AgentEvent::Order(HostOrder { epoch: Epoch(epoch), sequence, what })
    }

    fn put(serial: u64) -> OrderKind {
        let host = HostId::new("h0").expect("a test name");
        let mapping = Mapping { card: card(), form: Form::Sequential, stages: Vec::new() };
        let place = PlaceRecord {
            card: FleetCard { host, card: card() },
            serial,
            mapping,
            reservation: Reservation::default(),
        };
        let spec = Box::new(DagSpec::chain(&[], Bandwidth::ZERO));
        OrderKind::Put { name: name(), spec, place: Box::new(place) }
    }

    fn served(serial: u64) -> AgentEvent {
        AgentEvent::Served { name: name(), card: card(), serial, result: Ok(()) }
    }

    fn agent() -> HostAgent {
        HostAgent::new(Epoch(5), [(card(), [(name(), 7)].into())].into())
    }

    /// What an order of an earlier epoch, an earlier order, or one for an earlier place wants is not done.
    #[test]
    fn old_orders_change_nothing() {
        let remove = |serial| OrderKind::Remove { name: name(), card: card(), serial };
        let mut agent = agent();
        assert_eq!(agent.handle(order(4, 9, remove(7))), []);
        assert_eq!(agent.handle(order(5, 3, remove(6))), [], "the place before");
        assert_eq!(agent.handle(order(5, 4, put(6))), [], "the place before");
        assert_eq!(agent.handle(order(5, 4, remove(7))), [], "an order with the number of another");
        let stop = AgentEffect::Stop { name: name(), card: card() };
        assert_eq!(agent.handle(order(5, 5, remove(7))), [stop]);
    }

    #[test]
    fn a_later_epoch_is_remembered_before_its_order_is_carried_out() {
        let mut agent = agent();
        let effects = agent.handle(order(6, 1, put(8)));
        let kinds = matches!(
            effects.as_slice(),
            [AgentEffect::Remember(Epoch(6)), AgentEffect::Stop { .. }, AgentEffect::Serve { .. }]
        );
        assert!(kinds, "{effects:?}");
        assert_eq!(agent.handle(served(7)), [], "the place before");
        let applied = HostReport::Applied { name: name(), serial: 8 };
        assert_eq!(agent.handle(served(8)), [AgentEffect::Report(applied)]);
    }

    /// What was to be stopped while it was begun is stopped once it has begun.
    #[test]
    fn what_is_begun_too_late_is_stopped() {
        let mut agent = HostAgent::new(Epoch(5), BTreeMap::new());
        agent.handle(order(5, 1, put(8)));
        agent.handle(order(5, 2, OrderKind::Remove { name: name(), card: card(), serial: 8 }));
        let stop = AgentEffect::Stop { name: name(), card: card() };
        assert_eq!(agent.handle(served(8)), [stop]);
    }

    #[test]
    fn two_places_of_a_dag_have_different_digests() {
        let digest = |serial| holdings_digest([(&name(), serial)].into_iter());
        assert_ne!(digest(7), digest(8));
        assert_eq!(digest(7), digest(7));
    }
}
