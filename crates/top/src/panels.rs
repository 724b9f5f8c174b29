//! The panels of the table, and what each can be sorted by.

/// The panels of the table below the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Panel {
    /// DAGs.
    Dags,
    /// The regions of the card.
    Regions,
    /// What each tenant requests and gets.
    Tenants,
    /// Recent events.
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
    /// By what is missing of the promise, the most first.
    Missing,
    /// By name; regions by number.
    Name,
    /// By state.
    State,
    /// By requested bandwidth, the most first.
    Bandwidth,
    /// By load of the fullest NT, the fullest first.
    Load,
    /// By time, the newest first.
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
}
