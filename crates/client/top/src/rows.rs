//! Rows of the tables.

use std::time::SystemTime;

use snic_api::render::state_word;
use snic_api::v1::{Dag, Region};
use snic_api::words::EnumWord as _;
use snic_client::output::text;

/// A tenant, summed over its DAGs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TenantRow {
    pub tenant: String,
    /// Number of DAGs.
    pub dags: usize,
    /// Number of ready DAGs.
    pub ready: usize,
    /// Requested bandwidth, bits per second.
    pub requested_bps: u64,
    /// Current rate, bits per second.
    pub rate_bps: u64,
    /// Number of regions that it uses.
    pub regions: usize,
}

/// An event with the time it was seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRow {
    /// When it was seen.
    pub at: SystemTime,
    pub text: String,
}

/// A row of the table.
#[derive(Debug, Clone)]
pub enum ScreenRow<'a> {
    Dag(&'a Dag),
    Region(&'a Region),
    Tenant(TenantRow),
    Event(&'a EventRow),
}

impl ScreenRow<'_> {
    /// The text that a filter searches.
    pub fn search_text(&self) -> String {
        match self {
            Self::Dag(dag) => format!("{} {}", text::dag(&dag.name), dag.state().word()),
            Self::Region(region) => {
                let users: Vec<&str> = region.users.iter().map(|user| &*user.dag).collect();
                let state = state_word(region.state());
                format!("{} {state} {} {}", region.name, region.bitstream, users.join(" "))
            }
            Self::Tenant(tenant) => tenant.tenant.clone(),
            Self::Event(event) => event.text.clone(),
        }
    }
}
