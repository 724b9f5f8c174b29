//! Reasons for which a card drops a packet or counts an error.

/// Why a packet was dropped, or what went wrong with one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropCause {
    /// No DAG for it: no descriptor, no rule.
    Unclassified,
    /// Its UID belongs to a deleted DAG.
    StaleUid,
    /// Its DAG sent more than its rate and the queue was full.
    RateLimited,
    /// The packet store was full.
    StoreFull,
    /// Error: it reached a region that was being loaded, decoupled or broken.
    RegionUnavailable,
    /// Error: a stage had no instance for it.
    NoInstance,
    /// Error: it saw rows of two table versions.
    MixedVersions,
    /// An NT's memory access was outside its pages.
    MemoryFault,
    /// An NT dropped it, as its configuration says.
    ByNt,
    /// An NT consumed it, for example an acknowledgement: nothing is lost.
    UsedUp,
    /// The link to the card with its chain had no room for it: of those that wait and those that are away.
    LinkFull,
    /// It went to another card and did not come back in time.
    LinkLost,
    /// It came over a link, and this card serves nobody there whose packet it can be.
    NoGuest,
}

impl DropCause {
    /// All causes, in the order of the counters.
    pub const ALL: [Self; 13] = [
        Self::Unclassified,
        Self::StaleUid,
        Self::RateLimited,
        Self::StoreFull,
        Self::RegionUnavailable,
        Self::NoInstance,
        Self::MixedVersions,
        Self::MemoryFault,
        Self::ByNt,
        Self::UsedUp,
        Self::LinkFull,
        Self::LinkLost,
        Self::NoGuest,
    ];

    /// Number of causes, the first of [`DropCause::ALL`], that every card counts; cards with links count the others, too.
    pub const OF_ALL_CARDS: usize = 10;

    /// Whether it is a fault of the control plane; it must never happen.
    pub const fn is_error(self) -> bool {
        matches!(self, Self::RegionUnavailable | Self::NoInstance | Self::MixedVersions)
    }
}
