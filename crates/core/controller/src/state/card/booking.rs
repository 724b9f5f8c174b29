//! Reservations on a card and their table rows.

use snic_domain::{Bitstream, DagName, RegionId};
use snic_planner::{Plan, PlanCatalogue, Reservation};
use snic_tables::CreditRow;

use super::CardMachine;
use crate::decide::rows::{FirstRows, RowConflict, RowPool, rows_short};
use crate::protocol::ControlError;
use crate::store::records::Placement;

/// A placement to be booked on a card.
#[derive(Debug)]
pub(crate) struct Booking<'a> {
    pub name: &'a DagName,
    pub plan: &'a Plan,
    /// Maximum of what the plan takes and what serves meanwhile has.
    pub reservation: Reservation,
    /// A placement whose rows may be given to the plan.
    pub withdrawn: Option<&'a Placement>,
}

impl CardMachine {
    /// Books a plan on paper: contents, reservation and table rows, in place of what the DAG held.
    ///
    /// # Errors
    /// Where rows or capacity are short of it; nothing has changed then.
    pub fn book(
        &mut self,
        booking: Booking<'_>,
        catalogue: &PlanCatalogue,
    ) -> Result<FirstRows, ControlError> {
        let Booking { name, plan, reservation, withdrawn } = booking;
        let mut rows = self.rows.clone();
        let own = |placement: &&Placement| placement.mapping.card == self.id;
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
        self.refresh_credits();
        self.rows = rows;
        Ok(first)
    }

    /// Takes the rows that a stored placement has.
    ///
    /// # Errors
    /// Another DAG has one of them.
    pub fn restore_rows(&mut self, placement: &Placement) -> Result<(), RowConflict> {
        self.rows.take_stored(placement)
    }

    /// A DAG holds this from now on.
    ///
    /// # Errors
    /// It does not fit; nothing has changed then.
    pub fn hold(&mut self, name: &DagName, reservation: Reservation) -> Result<(), String> {
        self.ledger.hold(name, reservation).map_err(|error| error.to_string())?;
        self.refresh_credits();
        Ok(())
    }

    /// A DAG holds what it was promised before, though ports or credits may be short of it: its promise is older
    /// than the rule that counts them.
    ///
    /// # Errors
    /// NTs, memory or table rows are short of it; nothing has changed then.
    pub fn restore_hold(&mut self, name: &DagName, reservation: Reservation) -> Result<(), String> {
        let restored = self.ledger.restore(name, reservation);
        restored.map(|_| ()).map_err(|error| error.to_string())
    }

    /// A DAG holds nothing any more.
    pub fn release(&mut self, name: &DagName) {
        self.ledger.release(name);
        self.refresh_credits();
    }

    /// The credits of loaded regions follow what is promised in them.
    fn refresh_credits(&mut self) {
        for region in self.region_ids() {
            let at = u16::from(region.0);
            let initial = self.ledger.credits(region);
            let row = self.tables.target().get::<CreditRow>(at);
            if let Some(row) = row.filter(|row| row.initial != initial) {
                self.tables.put(at, &CreditRow { initial, ..row });
            }
        }
    }

    /// The rows that are taken are those of these placements, which are all that the card has.
    ///
    /// # Errors
    /// Two placements have the same row, or others are taken than theirs.
    pub fn check_rows<'p>(
        &self,
        mut placements: impl Iterator<Item = &'p Placement>,
    ) -> Result<(), String> {
        let mut rows = RowPool::new();
        placements
            .try_for_each(|placement| rows.take_stored(placement))
            .map_err(|_| "two placements have the same row".to_owned())?;
        if rows == self.rows { Ok(()) } else { Err("rows of no placement are taken".into()) }
    }

    /// The rows of a placement are free.
    pub fn give_rows(&mut self, placement: &Placement) {
        self.rows.give(placement);
    }
}

#[cfg(test)]
mod tests {
    use snic_planner::{PlanRequest, plan};

    use snic_domain::CardId;

    use super::*;
    use crate::fixtures::{catalogue, dag, gbps, name, profile};

    fn card() -> CardMachine {
        CardMachine::new(
            CardId::new("card0").expect("a label"),
            profile(4),
            snic_planner::Objective::default(),
        )
    }

    fn planned(card: &CardMachine, of: &str, nt: &str, bandwidth: u64) -> Plan {
        let (name, dag) = (name(of), dag(nt, gbps(bandwidth)));
        let request = PlanRequest { name: &name, dag: &dag, previous: None };
        plan(&card.ledger, &catalogue(), &request).expect("there is room")
    }

    fn book(card: &mut CardMachine, of: &str, plan: &Plan) -> Result<FirstRows, ControlError> {
        let (name, reservation) = (name(of), plan.reservation.clone());
        let booking = Booking { name: &name, plan, reservation, withdrawn: None };
        card.book(booking, &catalogue())
    }

    /// Books a plan that does not fit (any more): everything is as it was then.
    fn is_refused_whole(card: &mut CardMachine, of: &str, plan: &Plan) -> ControlError {
        let before = (card.ledger.clone(), card.rows.clone());
        let error = book(card, of, plan).expect_err("it does not fit");
        assert_eq!(before, (card.ledger.clone(), card.rows.clone()));
        error
    }

    #[test]
    fn a_refused_booking_leaves_contents_reservations_and_rows_unchanged() {
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
    fn without_free_rows_contents_and_reservations_stay_unchanged() {
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
