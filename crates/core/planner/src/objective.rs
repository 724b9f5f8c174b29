//! Objectives that plans save first.

use serde::{Deserialize, Serialize};

/// Objective that plans for a card save first, after admitting the DAG and interrupting no other one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// The fewest new regions, then the fewest victims, then the fewest passes.
    Regions,
    /// The fewest passes, then the fewest new regions, then the fewest victims.
    Passes,
    /// As [`Self::Regions`]; as [`Self::Passes`] while table rows or ports run short: while a greater part of
    /// the rows of a table is taken than of the regions (where every row beyond the first of a DAG counts
    /// sixteen times), or of the ports of the regions in use (from half of them on).
    #[default]
    Balanced,
}
