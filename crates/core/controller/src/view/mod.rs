//! Views of callers: resources, conditions, diagnoses, and what each tenant may see of it.
//!
//! Start at [`views`]. [`status`] derives the conditions of a DAG; [`diagnosis`] says why a DAG is not faster; [`quotas`] counts what a tenant uses.
//!
//! **Invariant.** A tenant cannot tell another tenant's resource from one that does not exist.

pub(crate) mod budgets;
pub(crate) mod card_picture;
pub(crate) mod diagnosis;
pub(crate) mod guards;
pub(crate) mod images;
pub(crate) mod quotas;
pub(crate) mod status;
pub(crate) mod usage;
pub(crate) mod views;
