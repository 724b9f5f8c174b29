//! Images of bitstreams on one host.

use std::collections::BTreeSet;

use snic_domain::BitstreamId;

/// Images of bitstreams on a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum HostImages {
    /// It has not said, so that none counts.
    #[default]
    Unknown,
    /// All that it is to have but these.
    AllBut(BTreeSet<BitstreamId>),
}

impl HostImages {
    pub(super) fn has(&self, id: &BitstreamId) -> bool {
        matches!(self, Self::AllBut(missing) if !missing.contains(id))
    }
}
