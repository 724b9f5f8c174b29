//! Start-up from the store, and the checks of all state against each other.
//!
//! Start at [`recovery`]. [`quarantine`] sets records aside that cannot be used, [`set_aside`] counts them, [`inspection`] reads a store without changing it, [`check`] compares all
//! machines with the records.
//!
//! **Invariant.** After a crash the card is asked; what it does not say is unknown.

pub(crate) mod check;
pub(crate) mod inspection;
pub(crate) mod quarantine;
pub(crate) mod recovery;
pub(crate) mod set_aside;
