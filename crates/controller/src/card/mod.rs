//! One card: what each region is to hold and does hold, the tables as they are and as they should
//! be, and what is under way.
//!
//! ```text
//!                 appeared                 read back
//! Absent ────────────────────► Adopting ────────────► Ready
//!   ▲ ▲                           │  ▲                  │
//!   │ └────────── lost ───────────┘  └── unknown ───────┤
//!   └──────────────────── lost ─────────────────────────┘
//! ```

mod regions;
mod tables;

use snic_domain::{Bitstream, CardId, CardProfile, DagName, RegionId, Timestamp};
use snic_planner::{Catalogue, Ledger, Plan, Reservation};
use snic_tables::{CardCounters, Ticket};

use crate::admission::rows_short;
use crate::epoch::Loop;
use crate::pages::Pages;
use crate::protocol::ControlError;
use crate::records::Placement;
use crate::rows::{FirstRows, RowPool};
pub(crate) use regions::{LoadEnded, Loading, ObservedContent, Region, Regions};
pub(crate) use tables::{Committed, Due, Ended, Tables};

use crate::states::States;

/// Why a card is there: reports and commands that name another one are refused at the door, and no card
/// is ever forgotten.
pub(crate) const KNOWN: &str = "cards that are not known were refused, and none is forgotten";

/// Whether the card can be spoken to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    /// It does not answer, for this reason.
    Absent(String),
    /// It was asked what it holds.
    Adopting(Ticket),
    /// What it holds is known.
    Ready,
}

/// What is to be booked on a card.
#[derive(Debug)]
pub(crate) struct Booking<'a> {
    pub name: &'a DagName,
    pub plan: &'a Plan,
    /// What the plan takes, and what serves meanwhile has.
    pub reservation: Reservation,
    /// A placement whose rows may be given to the plan.
    pub withdrawn: Option<&'a Placement>,
}

/// One card.
#[derive(Debug)]
pub(crate) struct CardState {
    pub profile: CardProfile,
    pub ledger: Ledger,
    pub connection: ConnectionState,
    pub regions: Regions,
    pub rows: RowPool,
    /// The spaces of tenants' NTs in its memory.
    pub pages: Pages,
    pub tables: Tables,
    /// As last read.
    pub counters: CardCounters,
    /// The loop that keeps it fair and elastic.
    pub epoch: Loop,
    /// What its chains keep.
    pub states: States,
}

impl CardState {
    pub fn new(id: CardId, profile: CardProfile) -> Self {
        Self {
            ledger: Ledger::new(id, profile.clone()),
            regions: Regions::new(profile.regions.len()),
            profile,
            connection: ConnectionState::Absent("it was not opened yet".into()),
            rows: RowPool::new(),
            pages: Pages::default(),
            tables: Tables::default(),
            counters: CardCounters::default(),
            epoch: Loop::default(),
            states: States::default(),
        }
    }

    /// Books a plan on paper: contents, reservation and table rows, in place of what the DAG held.
    ///
    /// # Errors
    /// Where rows or capacity are short of it; nothing has changed then.
    pub fn book(
        &mut self,
        booking: Booking<'_>,
        catalogue: &Catalogue,
    ) -> Result<FirstRows, ControlError> {
        let Booking { name, plan, reservation, withdrawn } = booking;
        let mut rows = self.rows.clone();
        let own = |placement: &&Placement| placement.mapping.card == *self.ledger.card();
        if let Some(withdrawn) = withdrawn.filter(own) {
            rows.give(withdrawn);
        }
        let first = rows.take(&plan.mapping).map_err(|table| rows_short(table, &plan.mapping))?;
        let before: Vec<(RegionId, Option<Bitstream>)> = plan
            .loads
            .iter()
            .map(|load| (load.region, self.ledger.content(load.region).cloned()))
            .collect();
        let set = plan.loads.iter().try_for_each(|load| {
            let content = catalogue.bitstream(&load.bitstream);
            self.ledger.set_content(load.region, content, catalogue).map_err(|e| e.to_string())
        });
        let held =
            set.and_then(|()| self.ledger.hold(name, reservation).map_err(|e| e.to_string()));
        if let Err(why) = held {
            for (region, content) in before {
                self.ledger
                    .set_content(region, content.as_ref(), catalogue)
                    .expect("nobody uses a region that was to be loaded");
            }
            return Err(ControlError::precondition(name, why));
        }
        self.rows = rows;
        Ok(first)
    }

    pub fn region(&self, region: RegionId) -> Option<&Region> {
        self.regions.get(region)
    }

    pub fn region_ids(&self) -> impl Iterator<Item = RegionId> + use<> {
        self.regions.ids()
    }

    /// When a wait of this card ends.
    pub fn next_wake_up(&self, now: Timestamp) -> Option<Timestamp> {
        if self.connection != ConnectionState::Ready {
            return None;
        }
        let states = self.states.next_wake_up();
        let times = self.regions.deadlines().chain(self.tables.next_deadline()).chain(states);
        times.filter(|&at| at > now).min()
    }
}

#[cfg(test)]
mod tests {
    use snic_planner::{Request, plan};

    use super::*;
    use crate::fixtures::{catalogue, dag, gbps, name, profile};

    fn card() -> CardState {
        CardState::new(CardId::new("card0").expect("a label"), profile(4))
    }

    fn planned(card: &CardState, of: &str, nt: &str, bandwidth: u64) -> Plan {
        let (name, dag) = (name(of), dag(nt, gbps(bandwidth)));
        let request = Request { name: &name, dag: &dag, previous: None };
        plan(&card.ledger, &catalogue(), &request).expect("there is room")
    }

    fn book(card: &mut CardState, of: &str, plan: &Plan) -> Result<FirstRows, ControlError> {
        let (name, reservation) = (name(of), plan.reservation.clone());
        let booking = Booking { name: &name, plan, reservation, withdrawn: None };
        card.book(booking, &catalogue())
    }

    /// Books a plan that does not fit (any more): everything is as it was then.
    fn is_refused_whole(card: &mut CardState, of: &str, plan: &Plan) -> ControlError {
        let before = (card.ledger.clone(), card.rows.clone());
        let error = book(card, of, plan).expect_err("it does not fit");
        assert_eq!(before, (card.ledger.clone(), card.rows.clone()));
        error
    }

    #[test]
    fn what_is_overbooked_leaves_contents_reservations_and_rows() {
        let mut card = card();
        let late = planned(&card, "late", "lb", 30);
        assert_eq!(late.loads.len(), 3, "it changes the contents of regions");
        let first = planned(&card, "first", "aes", 20);
        book(&mut card, "first", &first).expect("there is room");
        // The regions of `late` have another content by now, or what it loads is not enough.
        is_refused_whole(&mut card, "late", &late);
        let mut wide = planned(&card, "wide", "lb", 20);
        wide.reservation = wide.reservation.max(&first.reservation);
        is_refused_whole(&mut card, "wide", &wide);
    }

    #[test]
    fn what_has_no_rows_leaves_contents_and_reservations() {
        let mut card = card();
        let plan = planned(&card, "new", "lb", 30);
        while card.rows.take(&plan.mapping).is_ok() {}
        let error = is_refused_whole(&mut card, "new", &plan);
        assert!(matches!(error, ControlError::Refused(_)), "{error:?}");
    }

    #[test]
    fn rows_of_what_is_withdrawn_are_given_to_what_replaces_it() {
        let mut card = card();
        let plan = planned(&card, "new", "lb", 30);
        let rows = book(&mut card, "new", &plan).expect("there is room");
        while card.rows.take(&plan.mapping).is_ok() {}
        let placement = Placement {
            serial: 1,
            generation: 1,
            spec: dag("lb", gbps(30)).spec().clone(),
            burst: None,
            mapping: plan.mapping.clone(),
            stage_row: rows.stage,
            chain_row: rows.chain,
            instance_row: rows.instance,
        };
        let (name, reservation) = (name("new"), plan.reservation.clone());
        let booking =
            Booking { name: &name, plan: &plan, reservation, withdrawn: Some(&placement) };
        assert_eq!(card.book(booking, &catalogue()), Ok(rows));
    }
}
