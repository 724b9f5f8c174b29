//! Counts of packets, with a counter for each reason to drop one.

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// Why a packet was dropped. The text is the name of the counter.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum DropReason {
            $($(#[$doc])* $name,)*
        }

        impl DropReason {
            /// All reasons, in the order of their counters.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The counter's name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }
        }
    };
}

drop_reasons! {
    /// The NT has no configuration yet.
    Unconfigured = "unconfigured",
    /// The frame is shorter than its headers say.
    Truncated = "truncated",
    /// A header contradicts itself.
    Malformed = "malformed",
    /// Neither IP nor ARP nor an EtherType that the configuration names: LLC, MPLS, PPPoE, more VLAN tags than are read.
    Unreadable = "unreadable",
    /// A checksum is wrong.
    BadChecksum = "bad_checksum",
    /// A rule of the firewall, or its default, drops it.
    Rule = "rule",
    /// No rule accepts it and it belongs to no connection.
    NoConnection = "no_connection",
    /// A later fragment whose first fragment was not let through, or did not come within 30 s while the later one was
    /// kept.
    FragmentWithoutFirst = "fragment_without_first",
    /// A first fragment without the whole transport header, or one that would overwrite it (RFC 3128).
    TinyFragment = "tiny_fragment",
    /// A fragment with bytes that an earlier one of its packet has brought already. Unless it repeats that one
    /// exactly, all further fragments of the packet are dropped as well (RFC 5722). A packet of more than 64
    /// fragments ends the same way.
    FragmentOverlap = "fragment_overlap",
    /// The extension headers of an IPv6 packet: hop-by-hop options behind another header, a type 0 routing header
    /// (RFC 5095), two fragment headers, or more than eight headers.
    ExtensionHeader = "extension_header",
    /// An IPv4 packet that says by which routers it goes (RFC 7126, sections 4.3 and 4.4).
    SourceRoute = "source_route",
    /// A fragment where a whole packet is needed.
    Fragment = "fragment",
    /// The table of connections, mappings or outstanding requests is full.
    TableFull = "table_full",
    /// No external port is free.
    PortsExhausted = "ports_exhausted",
    /// No mapping or static forward for the destination.
    NoMapping = "no_mapping",
    /// The transport protocol cannot be translated.
    UnsupportedProtocol = "unsupported_protocol",
    /// Over the configured rate.
    RateExceeded = "rate_exceeded",
    /// No backend to send it to.
    NoBackend = "no_backend",
    /// The packet and its new headers are larger than the largest packet.
    TooLarge = "too_large",
    /// The packet buffer has no room for new headers, or the pool has no buffer left.
    NoBuffer = "no_buffer",
    /// Its security parameters index is not ours.
    UnknownSpi = "unknown_spi",
    /// The integrity check failed.
    NotAuthentic = "not_authentic",
    /// Its sequence number was seen before or is behind the anti-replay window; for the reliable transport, it has
    /// arrived already.
    Replayed = "replayed",
    /// All sequence numbers of the key are used: a new key is needed.
    SequenceExhausted = "sequence_exhausted",
    /// Padding or next header inside the encrypted part are not what RFC 4303 says.
    BadPadding = "bad_padding",
    /// A dummy packet of RFC 4303, made to hide traffic.
    Dummy = "dummy",
    /// Its addresses are not those of the tunnel.
    NotForTunnel = "not_for_tunnel",
    /// Congestion was marked on a packet whose inner header cannot say so (RFC 6040).
    CongestionLost = "congestion_lost",
    /// Its VXLAN network identifier is not ours.
    WrongVni = "wrong_vni",
    /// A frame with a VLAN tag where RFC 7348 allows none.
    InnerVlan = "inner_vlan",
    /// A packet of the reliable transport before it is missing: it will be sent again.
    OutOfOrder = "out_of_order",
    /// The window of the reliable transport is full.
    WindowFull = "window_full",
    /// The peer of the reliable transport has not acknowledged for too long, or the transport has another peer now.
    PeerUnreachable = "peer_unreachable",
    /// Its stream of the reliable transport is not open, or not any more.
    UnknownStream = "unknown_stream",
    /// From the peer of the reliable transport, but not of the transport: it has no place in the order.
    Unnumbered = "unnumbered",
    /// An answer to no outstanding request, or to what was never sent.
    UnexpectedReply = "unexpected_reply",
    /// A tenant's module drops it.
    Module = "module",
    /// The module failed over it: a trap, such as an access outside of its memory.
    ModuleTrap = "module_trap",
    /// The module did not come to an end with the work that one packet may take.
    ModuleOutOfFuel = "module_out_of_fuel",
    /// The module answered something that is no verdict, or a frame that is not in its buffer.
    ModuleInvalidVerdict = "module_invalid_verdict",
    /// The module has failed, and waits before it begins again.
    ModuleBackoff = "module_backoff",
    /// The tenant's modules have used up the time that they may take of the card.
    ModuleOverBudget = "module_over_budget",
    /// There is no room for one more instance of a module.
    ModuleNoRoom = "module_no_room",
}

/// Counts of the packets of one NT. Every packet that went in is in exactly one of
/// `forwarded`, `replied`, `consumed` and the drops, but for those in `given_up`, which are drops besides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counters {
    /// Packets that went in.
    pub received: u64,
    /// Packets that went on.
    pub forwarded: u64,
    /// Packets sent back to where they came from.
    pub replied: u64,
    /// Packets that the NT kept or used up, such as acknowledgements.
    pub consumed: u64,
    /// Packets that the NT made.
    pub emitted: u64,
    /// Packets that the NT could not make because no buffer was free.
    pub not_emitted: u64,
    /// Drops of packets that the NT had kept, to send them again or until the first fragment comes, and that were
    /// counted as forwarded or consumed before.
    pub given_up: u64,
    dropped: [u64; DropReason::ALL.len()],
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            received: 0,
            forwarded: 0,
            replied: 0,
            consumed: 0,
            emitted: 0,
            not_emitted: 0,
            given_up: 0,
            dropped: [0; DropReason::ALL.len()],
        }
    }
}

impl Counters {
    /// Number of packets that were dropped for `reason`.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize]
    }

    /// Counts one drop.
    pub fn count_drop(&mut self, reason: DropReason) {
        self.dropped[reason as usize] += 1;
    }

    /// Counts packets that were kept and are given up.
    pub(crate) fn count_given_up(&mut self, packets: u64, reason: DropReason) {
        self.given_up += packets;
        self.dropped[reason as usize] += packets;
    }

    /// The reasons that occurred, with their counts.
    pub fn drops(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        let all = DropReason::ALL.iter().map(|reason| (*reason, self.dropped(*reason)));
        all.filter(|(_, count)| *count > 0)
    }

    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_reason_has_a_counter_and_a_name_of_its_own() {
        let names: BTreeSet<_> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), DropReason::ALL.len());
        let mut counters = Counters::default();
        for (index, reason) in DropReason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, index);
            (0..=index).for_each(|_| counters.count_drop(*reason));
        }
        let counts: Vec<_> = counters.drops().map(|(_, count)| count).collect();
        assert!(counts.iter().copied().eq(1..=DropReason::ALL.len() as u64));
        assert_eq!(counters.dropped_total(), counts.iter().sum::<u64>());
    }
}
