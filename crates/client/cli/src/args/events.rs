//! Options of `events`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::Selected;

/// Selection of the events that are printed.
#[derive(Debug, Clone, Args)]
pub struct EventQuery {
    /// Keep printing new events
    #[arg(short, long, visible_alias = "follow", conflicts_with = "order_by")]
    pub watch: bool,
    /// Only events of the last 10m, 2h or the like
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub since: Option<Duration>,
    /// Only events of this severity or a higher one
    #[arg(long, value_name = "SEVERITY", default_value = "info", hide_default_value = true)]
    pub severity: EventSeverity,
    /// Selection and order.
    #[command(flatten)]
    pub selected: Selected,
}

/// Whether somebody has to look at an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum EventSeverity {
    /// Decisions of the control plane
    Info,
    /// It goes on, and not as well as it could
    Warning,
    /// Something is broken or lost
    Error,
}
