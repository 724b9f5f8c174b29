//! Lifetime of a flow, by what was seen of it. Firewall and NAT follow TCP from SYN to FIN or RST
//! by its flags; sequence numbers are not checked.

use std::hash::Hash;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use snic_domain::Timestamp;

use crate::aging::{AgingTable, EntryId};
use crate::config::{Field, Kind};
use crate::wire::TcpFlags;

/// Classes of flow tables: how long flows live without packets.
pub(crate) const OPENING: usize = 0;
pub(crate) const DATAGRAM: usize = 1;
pub(crate) const STREAM: usize = 2;
pub(crate) const CLOSING: usize = 3;
/// Number of classes.
pub(crate) const CLASSES: usize = 4;
/// Number of expired flows that one packet removes: more than it can add, so that they never pile up.
pub(crate) const EXPIRED_PER_PACKET: usize = 4;

/// A UDP or ICMP flow is not given up for another one before it was silent for two minutes (RFC 4787,
/// REQ-5; RFC 5508, REQ-2 asks for less).
pub(crate) const DATAGRAM_IDLE_MIN: Duration = Duration::from_secs(120);
/// An established TCP connection is not given up for another one before it was silent for 2 hours and 4
/// minutes (RFC 5382, REQ-5).
pub(crate) const STREAM_IDLE_MIN: Duration = Duration::from_secs(7_440);
/// Time that a NAT keeps a TCP connection that is not yet established, and a UDP flow without a reply (RFC 7857,
/// section 2.1).
const NAT_OPENING_S: u64 = 240;
const OPENING_S: u64 = 30;

const SECONDS: Kind = Kind::Integer { min: 1, max: 604_800 };

/// The field of the four lifetimes.
pub(crate) const LIFETIMES: Field = Field::optional(
    "lifetimes",
    Kind::Object(&[
        Field::optional(
            "opening_s",
            SECONDS,
            "A flow without reply; 30 by default, for NAT 240 (RFC 7857).",
        ),
        Field::optional(
            "datagram_s",
            SECONDS,
            "A silent UDP or ICMP flow; 300 by default (RFC 4787).",
        ),
        Field::optional(
            "stream_s",
            SECONDS,
            "A silent TCP connection; 7440 by default (RFC 5382).",
        ),
        Field::optional(
            "closing_s",
            SECONDS,
            "A closed TCP connection; 240 by default (RFC 5382).",
        ),
    ]),
    "How long flows live without packets, in seconds.",
);

/// The four lifetimes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Lifetimes {
    opening_s: Option<u64>,
    datagram_s: u64,
    stream_s: u64,
    closing_s: u64,
}

impl Default for Lifetimes {
    fn default() -> Self {
        Self { opening_s: None, datagram_s: 300, stream_s: 7_440, closing_s: 240 }
    }
}

impl Lifetimes {
    /// Lifetimes by class, of a table that rules or a service fill.
    pub(crate) fn by_class(&self) -> [Duration; CLASSES] {
        self.with_opening(OPENING_S)
    }

    /// Lifetimes by class, of a table that translates addresses.
    pub(crate) fn of_nat_by_class(&self) -> [Duration; CLASSES] {
        self.with_opening(NAT_OPENING_S)
    }

    fn with_opening(&self, opening_by_default: u64) -> [Duration; CLASSES] {
        let opening_s = self.opening_s.unwrap_or(opening_by_default);
        [opening_s, self.datagram_s, self.stream_s, self.closing_s].map(Duration::from_secs)
    }
}

/// Progress of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// The other side has sent something.
    pub(crate) is_replied: bool,
    /// Sides that have sent a FIN: the opener, the other.
    closed: [bool; 2],
}

impl Progress {
    /// Records a packet of the flow; returns the flow's class from now on.
    pub(crate) fn follow(
        &mut self,
        class: usize,
        flags: Option<TcpFlags>,
        is_reply: bool,
    ) -> usize {
        self.is_replied |= is_reply;
        let Some(flags) = flags else {
            return if self.is_replied { DATAGRAM } else { OPENING };
        };
        self.closed[usize::from(is_reply)] |= flags.fin();
        let is_confirmed = self.is_replied && !is_reply && flags.ack() && !flags.syn();
        match class {
            _ if flags.rst() || self.closed == [true; 2] => CLOSING,
            OPENING if is_confirmed => STREAM,
            class => class,
        }
    }
}

/// Whether further packets like one of a flow leave the flow as this one did: it changed neither class nor progress. Those
/// with other flags than ACK and PSH have no [`crate::FlowKey`].
pub(crate) fn is_steady(before: (usize, Progress), after: (usize, Progress), is_tcp: bool) -> bool {
    let has_steady_class = match after.0 {
        STREAM => true,
        OPENING | DATAGRAM => !is_tcp,
        _ => false,
    };
    has_steady_class && before == after
}

/// Whether a packet may open a connection.
pub(crate) fn opens(flags: TcpFlags) -> bool {
    flags.syn() && !flags.ack() && !flags.rst() && !flags.fin()
}

/// The flow of a full table to give up for a new one: the one closed longest ago, then the oldest one without
/// a reply, then one that was silent for longer than its protocol asks for. `None` where all are in use.
pub(crate) fn spare_flow<K, V>(table: &AgingTable<K, V, CLASSES>, now: Timestamp) -> Option<EntryId>
where
    K: Copy + Eq + Hash,
{
    let silent = |class: usize, least: Duration| {
        table.oldest(class).filter(|id| table.idle(*id, now) >= least)
    };
    table
        .oldest(CLOSING)
        .or_else(|| table.oldest(OPENING))
        .or_else(|| silent(DATAGRAM, DATAGRAM_IDLE_MIN))
        .or_else(|| silent(STREAM, STREAM_IDLE_MIN))
}
