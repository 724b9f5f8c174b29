//! The panels of the table, and what each can be sorted by.

use std::cmp::Ordering;

use snic_api::render::{load_percent, state_word};
use snic_api::words::EnumWord as _;

use super::rows::ScreenRow;

/// The panels of the table below the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Panel {
    Dags,
    /// The regions of the card.
    Regions,
    /// Requested and served rates of each tenant.
    Tenants,
    Events,
}

impl Panel {
    /// All, in the order of the Tab key.
    pub const ALL: [Self; 4] = [Self::Dags, Self::Regions, Self::Tenants, Self::Events];

    /// Title on the screen.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Dags => "DAGs",
            Self::Regions => "Regions",
            Self::Tenants => "Tenants",
            Self::Events => "Events",
        }
    }

    /// Columns to sort by.
    pub const fn sorts(self) -> &'static [Sort] {
        match self {
            Self::Dags => &[Sort::Missing, Sort::Name, Sort::State, Sort::Bandwidth],
            Self::Regions => &[Sort::Name, Sort::State, Sort::Load],
            Self::Tenants => &[Sort::Name, Sort::Bandwidth],
            Self::Events => &[Sort::Time],
        }
    }
}

/// A column to sort by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sort {
    /// DAGs come by what is missing of the promise, the most first.
    Missing,
    /// Rows come by name; regions by number.
    Name,
    /// Rows come by state.
    State,
    /// Rows come by requested bandwidth, the most first.
    Bandwidth,
    /// Regions come by load of the fullest NT, the fullest first.
    Load,
    /// Events come by time, the newest first.
    Time,
}

impl Sort {
    /// Title on the screen.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Name => "name",
            Self::State => "state",
            Self::Bandwidth => "bandwidth",
            Self::Load => "load",
            Self::Time => "time",
        }
    }

    /// The order of two rows by it.
    pub fn compare(self, left: &ScreenRow<'_>, right: &ScreenRow<'_>) -> Ordering {
        match (self, left, right) {
            (Self::Missing, ScreenRow::Dag(left), ScreenRow::Dag(right)) => {
                right.shortfall_bps.cmp(&left.shortfall_bps)
            }
            (Self::State, ScreenRow::Dag(left), ScreenRow::Dag(right)) => {
                left.state().word().cmp(right.state().word())
            }
            (Self::Bandwidth, ScreenRow::Dag(left), ScreenRow::Dag(right)) => {
                right.bandwidth_bps.cmp(&left.bandwidth_bps)
            }
            (Self::State, ScreenRow::Region(left), ScreenRow::Region(right)) => {
                state_word(left.state()).cmp(state_word(right.state()))
            }
            (Self::Load, ScreenRow::Region(left), ScreenRow::Region(right)) => {
                load_percent(right).cmp(&load_percent(left))
            }
            (Self::Bandwidth, ScreenRow::Tenant(left), ScreenRow::Tenant(right)) => {
                right.requested_bps.cmp(&left.requested_bps)
            }
            // Rows come sorted by name, events from the newest.
            _ => Ordering::Equal,
        }
    }
}
