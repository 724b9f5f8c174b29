//! Changes and reads of what cards keep for tenants.

use snic_domain::{Bandwidth, DagName};
use snic_planner::Reservation;

use super::function_books::{KeptName, KeptRoom, KeptUser};
use super::inventory::{CardEntry, Inventory, NoSuchCard};
use crate::FleetCard;

impl Inventory {
    /// Keeps a part of a card, or another one than before under this name.
    ///
    /// # Errors
    ///
    /// [`NoSuchCard`]
    pub fn keep(
        &mut self,
        card: &FleetCard,
        name: KeptName,
        room: KeptRoom,
    ) -> Result<(), NoSuchCard> {
        self.change_card(card, |entry| drop(entry.functions.kept.insert(name, room)))
    }

    /// Keeps it no more.
    ///
    /// # Errors
    ///
    /// [`NoSuchCard`]
    pub fn keep_no_more(&mut self, card: &FleetCard, name: &KeptName) -> Result<(), NoSuchCard> {
        self.change_card(card, |entry| drop(entry.functions.kept.remove(name)))
    }

    /// Says how many functions of a card machines have, as its host reports it.
    ///
    /// # Errors
    ///
    /// [`NoSuchCard`]
    pub fn set_bound(&mut self, card: &FleetCard, bound: u32) -> Result<(), NoSuchCard> {
        let slot = self.slot(card).ok_or_else(|| NoSuchCard(card.clone()))?;
        if self.entry(slot).functions.bound != bound {
            self.change(slot, |entry| entry.functions.bound = bound);
        }
        Ok(())
    }

    /// Virtual functions that a card has left for a user.
    pub fn functions_left(&self, card: &FleetCard, user: KeptUser<'_>) -> Option<u32> {
        self.slot(card).map(|slot| self.entry(slot).functions.left(user))
    }

    /// Whether a card has as many functions free as are kept on it: a machine may have been bound before its host knew.
    pub fn has_kept_functions(&self, card: &FleetCard) -> bool {
        self.slot(card).is_some_and(|slot| self.entry(slot).functions.has_kept())
    }

    /// All that is kept, with its card.
    pub fn kept(&self) -> impl Iterator<Item = (&FleetCard, &KeptName, &KeptRoom)> {
        self.cards().filter_map(|(card, _)| self.slot(card)).flat_map(|slot| {
            let entry = self.entry(slot);
            entry.functions.kept.iter().map(|(name, of)| (&entry.name, name, of))
        })
    }
}

impl CardEntry {
    /// Whether a plan for a DAG, in place of what it holds here, leaves to others what is kept for them.
    pub fn spares_kept(&self, name: &DagName, plan: &Reservation) -> bool {
        let kept = self.functions.bandwidth_of_others(Some(&name.tenant));
        if kept == Bandwidth::ZERO {
            return true;
        }
        let held = self.ledger.held(name);
        let (before_in, before_out) =
            held.map_or_else(Default::default, |held| (held.ingress(), held.egress()));
        let fits = |left: Bandwidth, before: Bandwidth, now: Bandwidth| {
            now <= before || now + kept <= left + before
        };
        fits(self.summary.ingress_left, before_in, plan.ingress())
            && fits(self.summary.egress_left, before_out, plan.egress())
    }
}
