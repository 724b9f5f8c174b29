//! The rows of the tables (spec, section 10), each with its columns packed into words.
//!
//! Word 0 of a valid row is never zero: bit 31 is the valid bit.

use snic_domain::limits::{
    CHAIN_SLOTS_MAX, CREDITS_MAX, DAG_ROWS, FORK_BRANCHES_MAX, PACKET_BYTES_MAX,
};

use crate::layout::Table;

/// "None" in a column that names a row of another table.
pub const NONE: u16 = u16::MAX;

const VALID: u32 = 1 << 31;
/// Bit of a DAG row's word with the rate limiter: it serves a guest.
const GUEST: u32 = 1 << 31;
/// Bit of an instance row: the instance is on another card.
const ON_LINK: u32 = 1 << 30;
/// Row of the DAG table of the card that a link leads to.
const ENTRY_MASK: u32 = DAG_ROWS as u32 - 1;
/// A VNI has 24 bits (RFC 7348).
const VNI_MASK: u32 = (1 << 24) - 1;
/// A VLAN's number has 12 bits (802.1Q).
const VLAN_MASK: u16 = (1 << 12) - 1;
/// The join mask has a bit for each branch.
const JOIN_MASK: u32 = (1 << FORK_BRANCHES_MAX) - 1;
/// Bit of a credit row: above four columns of seven bits.
const PREFIX_BIT: u32 = 28;

/// Mask in a token bucket's row: the least power of two above the largest packet, less one.
const PACKET_BYTES_MASK: u32 = PACKET_BYTES_MAX.next_power_of_two() - 1;

/// Invalid words of a row.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("row {row} of table {table:?}: {reason}")]
pub struct InvalidRow {
    pub table: Table,
    pub row: u16,
    pub reason: &'static str,
}

/// A row's columns to words and back.
pub trait RowCodec: Sized {
    const TABLE: Table;

    /// Writes the columns into a zeroed slice of [`Table::row_words`] words.
    fn encode(&self, words: &mut [u32]);

    /// Reads the columns; `None` where the row is empty. Takes any words.
    fn decode(words: &[u32]) -> Option<Self>;
}

const fn halves(high: u16, low: u16) -> u32 {
    (high as u32) << 16 | low as u32
}

const fn high(word: u32) -> u16 {
    (word >> 16) as u16
}

const fn low(word: u32) -> u16 {
    word as u16
}

/// Word 0: valid. Word 1: DAG UID. Word 2: priority (high half), which of virtual function, VNI,
/// protocol, source port, destination port, VLAN count (bits 0 to 5). Word 3: VLAN (high half), virtual
/// function. Word 4: VNI. Words 5 to 8: source and mask, destination and mask. Word 9: protocol. Word 10: source and
/// destination port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassifierRow {
    /// The DAG that matching packets get.
    pub dag_uid: u32,
    /// Lower wins; ties by row.
    pub priority: u16,
    /// The virtual function, if it counts.
    pub virtual_function: Option<u16>,
    /// The VNI, if it counts; under 2^24, as on the wire. Higher bits are not kept.
    pub vni: Option<u32>,
    /// Source address and mask; a mask of zero matches all.
    pub source: (u32, u32),
    /// Destination address and mask.
    pub destination: (u32, u32),
    /// IP protocol, if it counts.
    pub protocol: Option<u8>,
    /// Source port, if it counts.
    pub source_port: Option<u16>,
    /// Destination port, if it counts.
    pub destination_port: Option<u16>,
    /// The VLAN of the outermost tag, if it counts; under 2^12, as on the wire. Higher bits are not kept.
    pub vlan: Option<u16>,
}

impl RowCodec for ClassifierRow {
    const TABLE: Table = Table::Classifier;

    fn encode(&self, words: &mut [u32]) {
        let counts = u32::from(self.virtual_function.is_some())
            | u32::from(self.vni.is_some()) << 1
            | u32::from(self.protocol.is_some()) << 2
            | u32::from(self.source_port.is_some()) << 3
            | u32::from(self.destination_port.is_some()) << 4
            | u32::from(self.vlan.is_some()) << 5;
        words[0] = VALID;
        words[1] = self.dag_uid;
        words[2] = halves(self.priority, 0) | counts;
        words[3] = halves(self.vlan.unwrap_or(0) & VLAN_MASK, self.virtual_function.unwrap_or(0));
        words[4] = self.vni.unwrap_or(0) & VNI_MASK;
        (words[5], words[6]) = self.source;
        (words[7], words[8]) = self.destination;
        words[9] = self.protocol.unwrap_or(0).into();
        words[10] = halves(self.source_port.unwrap_or(0), self.destination_port.unwrap_or(0));
    }

    fn decode(words: &[u32]) -> Option<Self> {
        let counts = |bit: u32| words[2] >> bit & 1 == 1;
        (words[0] & VALID != 0).then(|| Self {
            dag_uid: words[1],
            priority: high(words[2]),
            virtual_function: counts(0).then(|| low(words[3])),
            vni: counts(1).then_some(words[4] & VNI_MASK),
            source: (words[5], words[6]),
            destination: (words[7], words[8]),
            protocol: counts(2).then_some(words[9] as u8),
            source_port: counts(3).then(|| high(words[10])),
            destination_port: counts(4).then(|| low(words[10])),
            vlan: counts(5).then(|| high(words[3]) & VLAN_MASK),
        })
    }
}

/// Guest that a card serves for another one: packets of a DAG there that come over a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Guest {
    /// The link that its packets come over, and go back.
    pub link: u8,
    /// UID of the DAG on the card at which its packets arrive.
    pub home_uid: u32,
}

/// Word 0: valid, payload flag (bit 30), tenant (low half). Word 1: UID. Word 2: first stage,
/// stages. Word 3: guest flag (bit 31), link (bits 16 to 23), rate limiter (low half). Word 4: tag of the configurations.
/// Word 5: UID of a guest's DAG on its home card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DagRow {
    /// A number for the tenant, so that counters and pages can be kept apart; no name.
    pub tenant: u16,
    /// The whole UID: a packet whose incarnation differs is dropped.
    pub uid: u32,
    /// Row of its first stage.
    pub first_stage: u16,
    /// Number of stages.
    pub stages: u16,
    /// Row of its token bucket.
    pub rate_limiter: u16,
    /// Whether any of its NTs reads payloads.
    pub payload: bool,
    /// The tag of its NTs' configurations ([`crate::DagConfiguration`]); zero where none has one.
    pub configuration: u32,
    /// Guest whose packets come over a link: the only ones from there that the card lets in, and the only ones
    /// that this row serves.
    pub guest: Option<Guest>,
}

impl RowCodec for DagRow {
    const TABLE: Table = Table::Dag;

    fn encode(&self, words: &mut [u32]) {
        words[0] = VALID | u32::from(self.payload) << 30 | u32::from(self.tenant);
        words[1] = self.uid;
        words[2] = halves(self.first_stage, self.stages);
        words[3] = self.rate_limiter.into();
        words[4] = self.configuration;
        if let Some(Guest { link, home_uid }) = self.guest {
            words[3] |= GUEST | u32::from(link) << 16;
            words[5] = home_uid;
        }
    }

    fn decode(words: &[u32]) -> Option<Self> {
        (words[0] & VALID != 0).then(|| Self {
            tenant: low(words[0]),
            uid: words[1],
            first_stage: high(words[2]),
            stages: low(words[2]),
            rate_limiter: low(words[3]),
            payload: words[0] >> 30 & 1 == 1,
            configuration: words[4],
            guest: (words[3] & GUEST != 0)
                .then(|| Guest { link: (words[3] >> 16) as u8, home_uid: words[5] }),
        })
    }
}

/// Word 0: valid, last flag (bit 30), join mask (bits 8 to 11), branches (bits 0 to 2).
/// Words 1 and 2: rows of up to four virtual chains. Word 3: next stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageRow {
    /// Rows of the virtual chains that get a copy of the packet; [`NONE`] where there is none.
    pub chains: [u16; FORK_BRANCHES_MAX],
    /// Branches that must be back before the packet goes on: bit i for `chains[i]`, four bits.
    pub join_mask: u8,
    /// Row of the next stage; [`NONE`] in the last.
    pub next: u16,
    /// Whether the packet leaves the card after it.
    pub last: bool,
}

impl RowCodec for StageRow {
    const TABLE: Table = Table::Stage;

    fn encode(&self, words: &mut [u32]) {
        let branches = self.chains.iter().filter(|&&chain| chain != NONE).count() as u32;
        let join_mask = u32::from(self.join_mask) & JOIN_MASK;
        words[0] = VALID | u32::from(self.last) << 30 | join_mask << 8 | branches;
        words[1] = halves(self.chains[0], self.chains[1]);
        words[2] = halves(self.chains[2], self.chains[3]);
        words[3] = self.next.into();
    }

    fn decode(words: &[u32]) -> Option<Self> {
        (words[0] & VALID != 0).then(|| Self {
            chains: [high(words[1]), low(words[1]), high(words[2]), low(words[2])],
            join_mask: (words[0] >> 8 & JOIN_MASK) as u8,
            next: low(words[3]),
            last: words[0] >> 30 & 1 == 1,
        })
    }
}

/// Choice of a virtual chain's instance for a packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Steering {
    /// One after the other; by bytes where their weights differ (SuperNIC, 4.4).
    #[default]
    RoundRobin,
    /// The one whose region has the fewest bytes to do (FlexPipe, III).
    LeastLoaded,
    /// The one that has packets of the same flow, so that none overtakes another while instances come; else as in
    /// [`Steering::RoundRobin`]. Where that instance goes, what is still there may be overtaken. Flows are told apart by a hash of 8 bits
    /// of what the parser sees, for each DAG.
    ByFlow,
}

/// For how much of its chain a packet needs credits before it enters a region.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CreditReservation {
    /// For all of it (SuperNIC, 4.4): then it never comes back in the middle.
    #[default]
    Chain,
    /// For as many NTs from the first on as have one: it starts earlier, and comes back to the
    /// scheduler, for another pass, where its credits end. Packets of a flow can overtake each other.
    Prefix,
}

/// Word 0: valid, steering (bit 30: by load, else bit 29: by flow), instances (low half). Word 1: first instance. The
/// cursor is the card's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainRow {
    /// Row of its first instance; the others follow.
    pub first_instance: u16,
    /// Number of instances.
    pub instances: u16,
    /// Choice among them for a packet.
    pub steering: Steering,
}

impl RowCodec for ChainRow {
    const TABLE: Table = Table::Chain;

    fn encode(&self, words: &mut [u32]) {
        let steering = match self.steering {
            Steering::RoundRobin => 0,
            Steering::LeastLoaded => 1 << 30,
            Steering::ByFlow => 1 << 29,
        };
        words[0] = VALID | steering | u32::from(self.instances);
        words[1] = self.first_instance.into();
    }

    fn decode(words: &[u32]) -> Option<Self> {
        let steering = match words[0] >> 29 & 0b11 {
            0b00 => Steering::RoundRobin,
            0b01 => Steering::ByFlow,
            _ => Steering::LeastLoaded,
        };
        (words[0] & VALID != 0).then(|| Self {
            first_instance: low(words[1]),
            instances: low(words[0]),
            steering,
        })
    }
}

/// Place of an instance of a virtual chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstancePlace {
    /// A region of this card.
    Region {
        region: u8,
        /// Bit i: slot i is used; packets skip the others.
        used_mask: u8,
    },
    /// The card that a link leads to.
    Link {
        link: u8,
        /// Row of that card's DAG table, which says what is done there; under [`DAG_ROWS`], higher bits are not kept.
        entry: u16,
    },
}

/// Word 0: valid, place: used mask (bits 8 to 15) and region (bits 0 to 7), or flag (bit 30), entry (bits 16 to 25) and link
/// (bits 0 to 7). Word 1: weight in kbit/s.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceRow {
    pub place: InstancePlace,
    /// Its part of the virtual chain's packets, by bytes, relative to the other instances:
    /// the bandwidth reserved for it, in kbit/s; never zero.
    pub weight_kbps: u32,
}

impl InstanceRow {
    /// An instance in a region.
    pub const fn in_region(region: u8, used_mask: u8, weight_kbps: u32) -> Self {
        Self { place: InstancePlace::Region { region, used_mask }, weight_kbps }
    }

    /// Its region, where it is on this card.
    pub const fn region(&self) -> Option<u8> {
        match self.place {
            InstancePlace::Region { region, .. } => Some(region),
            InstancePlace::Link { .. } => None,
        }
    }

    /// Slots of its region that are used; none where it is on another card.
    pub const fn used_mask(&self) -> u8 {
        match self.place {
            InstancePlace::Region { used_mask, .. } => used_mask,
            InstancePlace::Link { .. } => 0,
        }
    }

    /// An instance on another card.
    pub const fn on_link(link: u8, entry: u16, weight_kbps: u32) -> Self {
        Self { place: InstancePlace::Link { link, entry }, weight_kbps }
    }
}

impl RowCodec for InstanceRow {
    const TABLE: Table = Table::Instance;

    fn encode(&self, words: &mut [u32]) {
        let place = match self.place {
            InstancePlace::Region { region, used_mask } => {
                u32::from(used_mask) << 8 | u32::from(region)
            }
            InstancePlace::Link { link, entry } => {
                ON_LINK | (u32::from(entry) & ENTRY_MASK) << 16 | u32::from(link)
            }
        };
        words[0] = VALID | place;
        words[1] = self.weight_kbps;
    }

    fn decode(words: &[u32]) -> Option<Self> {
        let place = match words[0] & ON_LINK {
            0 => InstancePlace::Region { region: words[0] as u8, used_mask: (words[0] >> 8) as u8 },
            _ => InstancePlace::Link {
                link: words[0] as u8,
                entry: (words[0] >> 16 & ENTRY_MASK) as u16,
            },
        };
        (words[0] & VALID != 0).then_some(Self { place, weight_kbps: words[1] })
    }
}

/// Word 0: valid, kind (bit 8). Word 1: first word of the bitstream's
/// digest. Words 4 to 11: numbers of NT types by slot, zero where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RegionRow {
    /// Whether it is a region for user NTs.
    pub user_nt: bool,
    /// First word of the digest of the bitstream that the rows were written for: a region that
    /// holds another one takes no packets.
    pub bitstream_tag: u32,
    /// Numbers of the NT types by slot ([`snic_domain::NtNumber`]).
    pub nts: [u32; CHAIN_SLOTS_MAX],
}

impl RowCodec for RegionRow {
    const TABLE: Table = Table::Region;

    fn encode(&self, words: &mut [u32]) {
        words[0] = VALID | u32::from(self.user_nt) << 8;
        words[1] = self.bitstream_tag;
        words[4..4 + CHAIN_SLOTS_MAX].copy_from_slice(&self.nts);
    }

    fn decode(words: &[u32]) -> Option<Self> {
        (words[0] & VALID != 0).then(|| Self {
            user_nt: words[0] >> 8 & 1 == 1,
            bitstream_tag: words[1],
            nts: std::array::from_fn(|slot| words[4 + slot]),
        })
    }
}

/// Two words: initial credits of slots 0 to 3 (7 bits each, valid bit on top) and 4 to 7. Bit 28 of
/// word 0: packets may enter with the credits of a prefix of their chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CreditRow {
    /// Initial credits by slot, 0 to 127; more are written as 127.
    pub initial: [u8; CHAIN_SLOTS_MAX],
    /// For how much of its chain a packet needs them.
    pub reservation: CreditReservation,
}

impl RowCodec for CreditRow {
    const TABLE: Table = Table::Credit;

    fn encode(&self, words: &mut [u32]) {
        let pack = |half: &[u8]| {
            half.iter()
                .enumerate()
                .fold(0, |word, (i, &n)| word | u32::from(n.min(CREDITS_MAX)) << (7 * i))
        };
        let prefix = u32::from(self.reservation == CreditReservation::Prefix);
        words[0] = VALID | prefix << PREFIX_BIT | pack(&self.initial[..4]);
        words[1] = pack(&self.initial[4..]);
    }

    fn decode(words: &[u32]) -> Option<Self> {
        (words[0] & VALID != 0).then(|| Self {
            initial: std::array::from_fn(|slot| {
                (words[slot / 4] >> (7 * (slot % 4))) as u8 & CREDITS_MAX
            }),
            reservation: match words[0] >> PREFIX_BIT & 1 {
                0 => CreditReservation::Chain,
                _ => CreditReservation::Prefix,
            },
        })
    }
}

/// Word 0: valid, promised size of packets (bits 16 to 29), weight (low half). Word 1: rate in kbit/s.
/// Word 2: burst in bytes. Word 3: what was promised, in kbit/s.
///
/// A card has up to three buckets for a row, full where the row was not valid before: one at the rate, which holds
/// packets back; one at the promised rate, [`PROMISE_DEPTH`] times as deep; and, where packets are counted, one
/// for these, as deep, in bits of packets of the promised size. When a commit changes a row, each bucket keeps what
/// it lacks, as bits and not as time: what was taken out and has not come back is still missing, at most the new
/// depth, and comes back at the new rate from then on. So a bucket that a low rate emptied passes packets at
/// a higher one at once, and nobody gains a burst because a rate changes. Packets that wait for a bucket wait
/// for what is missing at the new rate. Tokens that the promise's buckets gain while the card keeps a sender waiting with a
/// packet that is ready are not lost, for 4 µs at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimiterRow {
    /// Rate in kbit/s; zero lets nothing pass, and drops what waits.
    pub rate_kbps: u32,
    /// Depth of the bucket in bytes. It follows the promise, not the rate.
    pub burst_bytes: u32,
    /// Promised rate, in kbit/s: where packets wait, those beyond it let others pass, and they enter
    /// a region only when its NTs are done with what was let in before. Packets of no DAG, or of one without
    /// a row, are dropped, and until then they are beyond every promise.
    pub promised_kbps: u32,
    /// Bytes that a packet of the promise has on average; higher bits than 14 are not kept. Promised are so
    /// many packets as well: `promised_kbps` of packets of this size, and a card lets
    /// [`PACKETS_MARGIN`] more count as within the promise. Zero: packets are not counted.
    pub packet_bytes: u16,
    /// The tenant's weight, for cards that schedule packets by it; zero counts as one.
    pub weight: u16,
}

/// Factor by which the promise's bucket is deeper than that of the rate: packets of a sender that keeps to its
/// promise on average are seldom beyond it, however random they come.
pub const PROMISE_DEPTH: u32 = 4;

/// Part of packets beyond the promised number that counts as within the promise: one in this many. What comes in a mix
/// of sizes has more packets for a while and fewer for another; ports keep 1/25 free of promises.
pub const PACKETS_MARGIN: u32 = 32;

impl RowCodec for RateLimiterRow {
    const TABLE: Table = Table::RateLimiter;

    fn encode(&self, words: &mut [u32]) {
        let packet_bytes = u32::from(self.packet_bytes) & PACKET_BYTES_MASK;
        words[0] = VALID | packet_bytes << 16 | u32::from(self.weight);
        words[1] = self.rate_kbps;
        words[2] = self.burst_bytes;
        words[3] = self.promised_kbps;
    }

    fn decode(words: &[u32]) -> Option<Self> {
        (words[0] & VALID != 0).then(|| Self {
            rate_kbps: words[1],
            burst_bytes: words[2],
            promised_kbps: words[3],
            packet_bytes: (words[0] >> 16 & PACKET_BYTES_MASK) as u16,
            weight: low(words[0]),
        })
    }
}

/// Word 0: valid, rwx (bits 16 to 18), tenant (low half). Word 1: NT type. Word 2: virtual and
/// physical page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageRow {
    /// The tenant's number, as in the DAG row.
    pub tenant: u16,
    /// The NT type's number ([`snic_domain::NtNumber`]).
    pub nt: u32,
    /// Page in the NT's own space.
    pub virtual_page: u16,
    /// Page of the memory.
    pub physical_page: u16,
    /// Read, write, execute: bits 0, 1, 2; higher bits are not kept.
    pub rwx: u8,
}

impl RowCodec for PageRow {
    const TABLE: Table = Table::Page;

    fn encode(&self, words: &mut [u32]) {
        words[0] = VALID | u32::from(self.rwx & 7) << 16 | u32::from(self.tenant);
        words[1] = self.nt;
        words[2] = halves(self.virtual_page, self.physical_page);
    }

    fn decode(words: &[u32]) -> Option<Self> {
        (words[0] & VALID != 0).then(|| Self {
            tenant: low(words[0]),
            nt: words[1],
            virtual_page: high(words[2]),
            physical_page: low(words[2]),
            rwx: (words[0] >> 16 & 7) as u8,
        })
    }
}
