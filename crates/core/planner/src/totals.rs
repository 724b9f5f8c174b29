//! Sums of all reservations of a card.

use snic_domain::Bandwidth;

use crate::processor_use::ProcessorUse;
use crate::{Reservation, TableRows};

/// Reservations of the resources of the whole card.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) ingress: Bandwidth,
    pub(crate) egress: Bandwidth,
    /// Bytes of the packet store.
    pub(crate) store: u64,
    /// Beats read from the packet store per second.
    pub(crate) reads: u64,
    /// Thousandths of an entry of the synchronisation buffer.
    pub(crate) sync: u64,
    /// Look-ups of the scheduler per second.
    pub(crate) lookups: u64,
    /// Bytes of the on-board memory per second.
    pub(crate) memory_rate: u64,
    pub(crate) rows: TableRows,
    pub(crate) programs: ProcessorUse,
}

impl Totals {
    pub(crate) fn add(&mut self, reservation: &Reservation) {
        self.ingress += reservation.ingress;
        self.egress += reservation.egress;
        self.store = self.store.saturating_add(reservation.store);
        self.reads = self.reads.saturating_add(reservation.reads);
        self.sync = self.sync.saturating_add(reservation.sync);
        self.lookups = self.lookups.saturating_add(reservation.lookups);
        self.memory_rate = self.memory_rate.saturating_add(reservation.memory_rate);
        self.rows = self.rows.zip(reservation.rows, u32::saturating_add);
        self.programs = self.programs.plus(reservation.programs);
    }

    pub(crate) fn subtract(&mut self, reservation: &Reservation) {
        self.ingress = self.ingress - reservation.ingress;
        self.egress = self.egress - reservation.egress;
        self.store = self.store.saturating_sub(reservation.store);
        self.reads = self.reads.saturating_sub(reservation.reads);
        self.sync = self.sync.saturating_sub(reservation.sync);
        self.lookups = self.lookups.saturating_sub(reservation.lookups);
        self.memory_rate = self.memory_rate.saturating_sub(reservation.memory_rate);
        self.rows = self.rows.zip(reservation.rows, u32::saturating_sub);
        self.programs = self.programs.minus(reservation.programs);
    }
}
