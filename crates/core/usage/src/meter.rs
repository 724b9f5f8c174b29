//! Meters and amounts.

use serde::de::{SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use snic_tables::DropCause;

use crate::promise::BreakCause;

/// Unit of a meter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MeterUnit {
    /// Milliseconds.
    Milliseconds,
    /// Thousands of bits: bits per second of a promise, times seconds, divided by 1,000.
    Kilobits,
    /// Bytes of packets.
    Bytes,
    /// Packets.
    Packets,
    /// Millionths of a card's area, times seconds.
    AreaSeconds,
    /// Mebibytes, times milliseconds.
    MebibyteMilliseconds,
    /// Loads of regions.
    Loads,
    /// Calls of the API.
    Calls,
    /// Bytes, times seconds.
    ByteSeconds,
}

impl MeterUnit {
    /// Word for people.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Kilobits => "kbit",
            Self::Bytes => "bytes",
            Self::Packets => "packets",
            Self::AreaSeconds => "ppm·s",
            Self::MebibyteMilliseconds => "MiB·ms",
            Self::Loads => "loads",
            Self::Calls => "calls",
            Self::ByteSeconds => "B·s",
        }
    }
}

/// Reason for a gap. The time of a gap is counted, in milliseconds of the card's clock, at least 1 where there was one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gap {
    /// The card was not read for a while, and its counters went on: nothing is missing, but when in this time it was used is not known.
    Late,
    /// The card lost its counters with its power, or was reset: what it counted after the last reading is missing.
    CardRestarted,
    /// Counters were smaller than before although the card did not restart: what they counted in between is missing.
    CountersBack,
    /// Counters rose by more than the card's ports carry: not counted.
    CountersJumped,
    /// The card was used before its counters were read for the first time: what it counted until then is missing.
    FirstReading,
    /// The row was given to the next DAG before the last packets of the one before were counted: some may be in the other's amounts.
    RowReused,
    /// The daemon did not run, or died before it had stored what it counted: calls in this time are missing, and nothing is charged for what was
    /// stored in it.
    NotRunning,
}

impl Gap {
    /// All reasons, in the order of their meters.
    pub const ALL: [Self; 7] = [
        Self::Late,
        Self::CardRestarted,
        Self::CountersBack,
        Self::CountersJumped,
        Self::FirstReading,
        Self::RowReused,
        Self::NotRunning,
    ];

    /// Name for people and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Late => "gap_late",
            Self::CardRestarted => "gap_card_restarted",
            Self::CountersBack => "gap_counters_back",
            Self::CountersJumped => "gap_counters_jumped",
            Self::FirstReading => "gap_first_reading",
            Self::RowReused => "gap_row_reused",
            Self::NotRunning => "gap_not_running",
        }
    }
}

/// A quantity that is counted. The numbers of meters are part of the records: new ones are added at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Meter {
    /// Time on the card.
    Life,
    /// Promised bandwidth × time.
    Promised,
    /// Regions with an instance of the DAG × time.
    Regions,
    /// Bytes that came in, before rate limiting.
    BytesIn,
    /// Bytes that went out.
    BytesServed,
    /// Packets that came in.
    PacketsIn,
    /// Packets that went out.
    PacketsServed,
    /// Packets that were dropped.
    Dropped(DropCause),
    /// Packets that went out beyond what was promised.
    PacketsBeyond,
    /// Bytes that went out beyond what was promised.
    BytesBeyond,
    /// Time in which its promise was broken for this cause.
    PromiseBroken(BreakCause),
    /// Time in which something is missing or not known.
    Gap(Gap),
    /// Area of the card's regions that the promise takes, as if the DAG were alone, × time.
    Area,
    /// On-board memory × time.
    Memory,
    /// Regions that were loaded for its places.
    Loads,
    /// Functions of virtual machines that lead to it × time.
    Functions,
    /// Time in which it had a promise, kept, broken or unknown.
    PromiseTime,
    /// Time of that in which nobody could see whether it was kept.
    PromiseUnknown,
    /// Calls of the API that were admitted.
    ApiCalls,
    /// Bytes of bitstreams that are stored × time.
    Stored,
    /// Instances of NTs of one type × time: of the type with this number in the account's list, or of those that have none.
    Nt(u8),
}

/// Meters before those of drops.
const PLAIN: [Meter; 7] = [
    Meter::Life,
    Meter::Promised,
    Meter::Regions,
    Meter::BytesIn,
    Meter::BytesServed,
    Meter::PacketsIn,
    Meter::PacketsServed,
];
/// Meters of what went out beyond the promise.
const BEYOND: [Meter; 2] = [Meter::PacketsBeyond, Meter::BytesBeyond];
/// Meters that came after those of gaps.
const LATER: [Meter; 8] = [
    Meter::Area,
    Meter::Memory,
    Meter::Loads,
    Meter::Functions,
    Meter::PromiseTime,
    Meter::PromiseUnknown,
    Meter::ApiCalls,
    Meter::Stored,
];
const CAUSES: usize = DropCause::ALL.len();
/// First number of what is beyond the promise: room for more causes of drops before it.
const FIRST_BEYOND: usize = 22;
/// First number of a broken promise.
const FIRST_BROKEN: usize = 24;
/// First number of a gap: no more causes of broken promises fit before it.
const FIRST_GAP: usize = 32;
/// First number of the later ones: room for more gaps before it.
const FIRST_LATER: usize = 40;
/// First number of NTs: there is no more room before it. Numbers that are free are left of causes of drops and of gaps.
const FIRST_NT: usize = 48;
/// Meters of NTs: the last one is of all types that have no number in the account's list.
const NTS: usize = 16;
/// Places of meters in [`Meter::all`].
const BEYOND_AT: usize = PLAIN.len() + CAUSES;
const BROKEN_AT: usize = BEYOND_AT + BEYOND.len();
const GAPS_AT: usize = BROKEN_AT + BreakCause::ALL.len();
const LATER_AT: usize = GAPS_AT + Gap::ALL.len();
const NTS_AT: usize = LATER_AT + LATER.len();
/// Number of meters.
const METERS: usize = NTS_AT + NTS;

/// Numbers that meters have in records, which never change.
const NUMBERS: usize = u64::BITS as usize;
/// Place of a number that no meter has.
const NO_PLACE: u8 = u8::MAX;
/// Place of the meter with each number.
const PLACES: [u8; NUMBERS] = {
    let mut places = [NO_PLACE; NUMBERS];
    let runs = [
        (0, 0, PLAIN.len() + CAUSES),
        (FIRST_BEYOND, BEYOND_AT, BEYOND.len()),
        (FIRST_BROKEN, BROKEN_AT, BreakCause::ALL.len()),
        (FIRST_GAP, GAPS_AT, Gap::ALL.len()),
        (FIRST_LATER, LATER_AT, LATER.len()),
        (FIRST_NT, NTS_AT, NTS),
    ];
    let mut run = 0;
    while run < runs.len() {
        let (number, place, count) = runs[run];
        let mut at = 0;
        while at < count {
            assert!(places[number + at] == NO_PLACE, "two meters have one number");
            places[number + at] = (place + at) as u8;
            at += 1;
        }
        run += 1;
    }
    places
};
/// The numbers that meters have, as a set.
const KNOWN: u64 = {
    let (mut set, mut number) = (0, 0);
    while number < NUMBERS {
        if PLACES[number] != NO_PLACE {
            set |= 1 << number;
        }
        number += 1;
    }
    set
};

/// Place of the meter with a number.
fn place_of(number: usize) -> Option<usize> {
    let place = *PLACES.get(number)?;
    (place != NO_PLACE).then_some(usize::from(place))
}

/// NT types that one account counts by themselves; those beyond are counted together.
pub const ACCOUNT_NTS_MAX: usize = NTS - 1;

impl Meter {
    /// All meters, in their order.
    pub fn all() -> impl Iterator<Item = Self> {
        let drops = DropCause::ALL.into_iter().map(Self::Dropped);
        let broken = BreakCause::ALL.into_iter().map(Self::PromiseBroken);
        let gaps = Gap::ALL.into_iter().map(Self::Gap);
        let nts = (0..NTS as u8).map(Self::Nt);
        let counted = PLAIN.into_iter().chain(drops).chain(BEYOND);
        counted.chain(broken).chain(gaps).chain(LATER).chain(nts)
    }

    /// Place in [`Meter::all`].
    const fn index(self) -> usize {
        match self {
            Self::Life => 0,
            Self::Promised => 1,
            Self::Regions => 2,
            Self::BytesIn => 3,
            Self::BytesServed => 4,
            Self::PacketsIn => 5,
            Self::PacketsServed => 6,
            Self::Dropped(cause) => PLAIN.len() + cause as usize,
            Self::PacketsBeyond => BEYOND_AT,
            Self::BytesBeyond => BEYOND_AT + 1,
            Self::PromiseBroken(cause) => BROKEN_AT + cause as usize,
            Self::Gap(gap) => GAPS_AT + gap as usize,
            Self::Area => LATER_AT,
            Self::Memory => LATER_AT + 1,
            Self::Loads => LATER_AT + 2,
            Self::Functions => LATER_AT + 3,
            Self::PromiseTime => LATER_AT + 4,
            Self::PromiseUnknown => LATER_AT + 5,
            Self::ApiCalls => LATER_AT + 6,
            Self::Stored => LATER_AT + 7,
            Self::Nt(nt) if (nt as usize) < NTS => NTS_AT + nt as usize,
            Self::Nt(_) => METERS - 1,
        }
    }

    /// Its unit.
    pub const fn unit(self) -> MeterUnit {
        match self {
            Self::Life
            | Self::Regions
            | Self::Gap(_)
            | Self::Functions
            | Self::PromiseTime
            | Self::PromiseUnknown
            | Self::PromiseBroken(_)
            | Self::Nt(_) => MeterUnit::Milliseconds,
            Self::Area => MeterUnit::AreaSeconds,
            Self::Memory => MeterUnit::MebibyteMilliseconds,
            Self::Loads => MeterUnit::Loads,
            Self::ApiCalls => MeterUnit::Calls,
            Self::Stored => MeterUnit::ByteSeconds,
            Self::Promised => MeterUnit::Kilobits,
            Self::BytesIn | Self::BytesServed | Self::BytesBeyond => MeterUnit::Bytes,
            Self::PacketsIn | Self::PacketsServed | Self::PacketsBeyond | Self::Dropped(_) => {
                MeterUnit::Packets
            }
        }
    }
}

/// An amount for each meter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct UsageAmounts([u64; METERS]);

impl Default for UsageAmounts {
    fn default() -> Self {
        Self::ZERO
    }
}

impl UsageAmounts {
    /// Nothing.
    pub(crate) const ZERO: Self = Self([0; METERS]);

    /// The amount of a meter.
    pub const fn get(&self, meter: Meter) -> u64 {
        self.0[meter.index()]
    }

    /// Adds to a meter.
    pub(crate) const fn add(&mut self, meter: Meter, amount: u64) {
        let sum = &mut self.0[meter.index()];
        // 2^64 bytes are a terabit per second for four years and a half: one DAG in one interval never has them.
        *sum = sum.saturating_add(amount);
    }

    /// Adds the amounts of another interval, meter by meter.
    pub const fn add_all(&mut self, other: &Self) {
        let mut at = 0;
        while at < METERS {
            self.0[at] = self.0[at].saturating_add(other.0[at]);
            at += 1;
        }
    }

    /// The amounts that are not zero, in the order of the numbers of their meters, each with that number.
    fn numbered(&self) -> impl Iterator<Item = (usize, u64)> + Clone {
        let placed = PLACES.iter().enumerate().filter(|(_, place)| **place != NO_PLACE);
        let amounts = placed.map(|(number, place)| (number, self.0[usize::from(*place)]));
        amounts.filter(|(_, amount)| *amount > 0)
    }

    /// The set of meters that are not zero: bit n for number n.
    pub(crate) fn meters(&self) -> u64 {
        self.numbered().fold(0, |set, (number, _)| set | 1 << number)
    }

    /// The amounts that are not zero, in the order of the numbers of their meters.
    pub(crate) fn listed(&self) -> impl Iterator<Item = u64> + Clone {
        self.numbered().map(|(_, amount)| amount)
    }

    /// Whether there is a meter for each number of a set.
    pub(crate) const fn has_meters(meters: u64) -> bool {
        meters & !KNOWN == 0
    }

    /// Adds the amounts of a set of meters, in the order of their numbers; `None` if it has a meter that there is not.
    pub(crate) fn add_listed(
        &mut self,
        meters: u64,
        listed: impl Iterator<Item = u64>,
    ) -> Option<()> {
        let mut left = meters;
        for amount in listed.take(meters.count_ones() as usize) {
            let sum = &mut self.0[place_of(left.trailing_zeros() as usize)?];
            *sum = sum.saturating_add(amount);
            left &= left - 1;
        }
        Some(())
    }

    /// Whether nothing was used, and nothing is missing.
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|amount| *amount == 0)
    }

    /// The meters that are not zero, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (Meter, u64)> {
        Meter::all().zip(self.0).filter(|(_, amount)| *amount > 0)
    }
}

impl std::fmt::Debug for UsageAmounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// A list of numbers of meters, each before its amount.
impl Serialize for UsageAmounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for (number, amount) in self.numbered() {
            list.serialize_element(&number)?;
            list.serialize_element(&amount)?;
        }
        list.end()
    }
}

impl<'de> Deserialize<'de> for UsageAmounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct List;
        impl<'de> Visitor<'de> for List {
            type Value = UsageAmounts;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("numbers of meters, each before its amount")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<UsageAmounts, A::Error> {
                use serde::de::Error;
                let mut amounts = UsageAmounts::default();
                while let Some(number) = list.next_element::<usize>()? {
                    let place = place_of(number)
                        .ok_or_else(|| A::Error::custom(format!("no meter has number {number}")))?;
                    let amount = list
                        .next_element()?
                        .ok_or_else(|| A::Error::custom(format!("meter {number} has no amount")))?;
                    amounts.0[place] = amounts.0[place].saturating_add(amount);
                }
                Ok(amounts)
            }
        }
        deserializer.deserialize_seq(List)
    }
}
