//! Changes of the book's records. Those of pages are noted with the close that turned them; records of accounts, rows and cards are made
//! one account after the other while the changes are taken, for all of them at once are as much memory as the rest of the book.

use std::collections::VecDeque;

use super::Book;
use crate::saved::{UsageRecord, UsageWrite};

impl Book {
    /// Takes the changes of its records. They are durable together or not at all, and in this order. What is not taken is among the
    /// next ones.
    pub fn take_writes(&mut self) -> impl Iterator<Item = UsageWrite> {
        std::iter::from_fn(move || {
            while self.writes.is_empty() {
                if !self.make_writes() {
                    // A day's end writes ten times as much as other closes; its room is not kept.
                    self.writes = VecDeque::new();
                    return None;
                }
            }
            self.writes.pop_front()
        })
    }

    /// Makes the records of the next account that differs from what is stored, or of the next card behind the last of them; returns whether
    /// there was one.
    fn make_writes(&mut self) -> bool {
        let Some(key) = self.dirty.pop_first() else {
            let Some(id) = self.dirty_cards.pop_first() else { return false };
            let saved = self.card(&id).saved();
            self.writes.push_back(UsageWrite::Put(UsageRecord::Card(id, saved)));
            return true;
        };
        let Some(account) = self.accounts.get_mut(&key) else { return true };
        if let Some(id) = &key.card {
            if let Some(card) = self.cards.get_mut(id) {
                // The counters that a row's record says were taken in, and the amounts of its account, are of one moment.
                account.add_all(&card.take_pending(&key.part));
                let rows = card.rows_of(&key.part).into_iter().map(Box::new);
                let rows = rows.map(|row| UsageRecord::Row(id.clone(), row));
                self.writes.extend(rows.map(UsageWrite::Put));
            }
            // Times of rows are of the card's time, and its cycles say how far that had come.
            self.dirty_cards.insert(id.clone());
        }
        if !account.open().is_zero() {
            self.opened.insert(key.clone());
        }
        let saved = Box::new(account.saved().clone());
        self.writes.push_back(UsageWrite::Put(UsageRecord::Account(key, saved)));
        true
    }
}
