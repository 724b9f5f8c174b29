//! Records of the book: what it continues from after a crash, and pages that are full.

use std::fmt;

use serde::{Deserialize, Serialize};
use snic_domain::{CardId, DagId, DagUid, NtTypeId, TenantId};
use snic_tables::{DagCounters, DropCause};

use crate::clock::CardClock;
use crate::key::{AccountKey, AccountPart, Remainders, UsageRates};
use crate::meter::UsageAmounts;
use crate::month_usage::MonthUsage;
use crate::pages::{IntervalLevel, UsagePage};
use crate::promise::Outage;
use crate::retention::KeptPages;

/// A card, as it was last read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedCard {
    /// Its boot id, if it was read back.
    pub boot: Option<u32>,
    /// Whether counters are known of all rows: those without a record, and not below, are zero.
    pub is_read: bool,
    /// Counters of rows that no DAG of the book had: they are from before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub strangers: Vec<(u16, [u64; 4])>,
    /// Its time.
    pub clock: CardClock,
}

/// Owner of a row and the counters that were taken in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedRow {
    /// UID of the DAG that has the row, or had it last.
    pub uid: DagUid,
    /// Account that it is counted for.
    pub account: AccountPart,
    /// Whether the DAG is on the card.
    pub is_held: bool,
    /// Counters that were taken in: packets in, bytes in, bytes out, packets out; `None` before the first reading.
    pub seen: Option<[u64; 4]>,
    /// Drops that were taken in, by cause; `None` before the first reading.
    #[serde(with = "drops")]
    pub drops: Option<[u64; DropCause::ALL.len()]>,
    /// UsageRates from `since` on.
    pub rates: UsageRates,
    /// Nanoseconds of the card's time up to which they are charged.
    pub since: u64,
}

/// Drops by cause as records hold them: those of the first causes that all cards count, and of later ones up to the last that is not
/// zero. So a version that knows fewer causes reads what it knows, and this one what that wrote.
mod drops {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
    use snic_tables::DropCause;

    type Drops = Option<[u64; DropCause::ALL.len()]>;

    #[allow(clippy::ref_option, reason = "what serde calls it with")]
    pub(super) fn serialize<S: Serializer>(drops: &Drops, to: S) -> Result<S::Ok, S::Error> {
        let counted =
            |drops: &[u64]| drops.iter().rposition(|drops| *drops > 0).map_or(0, |at| at + 1);
        let some = drops.as_ref().map(|all| &all[..counted(all).max(DropCause::OF_ALL_CARDS)]);
        some.serialize(to)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Drops, D::Error> {
        let Some(some) = Option::<Vec<u64>>::deserialize(from)? else { return Ok(None) };
        let (mut all, known) = ([0; DropCause::ALL.len()], some.len());
        let places = all.get_mut(..known);
        let places = places.filter(|_| known >= DropCause::OF_ALL_CARDS);
        let places =
            places.ok_or_else(|| D::Error::custom(format_args!("{known} causes of drops")))?;
        places.copy_from_slice(&some);
        Ok(Some(all))
    }
}

/// Counters of a row as records hold them: packets in, bytes in, bytes out, packets out.
pub(crate) const fn counters_of(counters: &DagCounters) -> [u64; 4] {
    let DagCounters { packets_in, bytes_intended, bytes_served, packets_out } = *counters;
    [packets_in, bytes_intended, bytes_served, packets_out]
}

/// An account with its open interval and the page of its shortest intervals.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedAccount {
    /// Owner of the DAG.
    pub tenant: TenantId,
    /// Name of the DAG; `None` for those without accounts of their own.
    pub dag: Option<DagId>,
    /// Second in which it began.
    pub begun: u64,
    /// Second with which its first interval began, where that is long before: nobody closed intervals meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
    /// Second in which the DAG left the card, if it did, or the end of a later interval with something of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
    pub(crate) remainders: Remainders,
    /// NT types that it counts by themselves; it never loses one, for its pages name them by their place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nts: Vec<NtTypeId>,
    /// Millisecond since 1970 up to which the promise of its DAG is charged, while there is one; of a tenant's own account, up to which what it
    /// stores is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised_ms: Option<u64>,
    /// The latest outages, the last one last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outages: Vec<Outage>,
    /// UsageAmounts since the last interval was closed.
    pub open: UsageAmounts,
    /// UsagePage that is being filled.
    pub fine: UsagePage,
}

/// Names a record of the book.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum UsageKey {
    /// Time up to which intervals are closed.
    Closed,
    /// Pages that are kept.
    Kept,
    /// A card.
    Card(CardId),
    /// A row of a card's DAG table.
    Row(CardId, u16),
    /// An account.
    Account(AccountKey),
    /// A page that is being filled, of minutes or hours.
    OpenPage(AccountKey, IntervalLevel),
    /// The days of a month that are over.
    Month(AccountKey),
    /// A page that is full, by the second that it begins with.
    FullPage(AccountKey, IntervalLevel, u64),
}

/// Before the keys of all records of the book but full pages: what it continues from.
const OPEN: &str = "usage-open/";
/// In place of a card in the keys of accounts without one; no card has this name.
const NO_CARD: &str = "-";
/// Before the keys of full pages. The book never reads them back.
pub(crate) const FULL: &str = "usage/";

impl UsageKey {
    /// Before the keys of full pages, which nobody needs at a start.
    pub const FULL_PAGES: &str = FULL;

    /// Whether a key is of a full page.
    pub fn is_full_page(key: &str) -> bool {
        key.starts_with(FULL)
    }

    /// Reads a key back; `None` if it is none of the book.
    pub fn parse(key: &str) -> Option<Self> {
        if let Some(rest) = key.strip_prefix(FULL) {
            let (account, page) = parse_account(rest)?;
            let (level, start) = page.split_once('/')?;
            return Some(Self::FullPage(account, parse_level(level)?, start.parse().ok()?));
        }
        let rest = key.strip_prefix(OPEN)?;
        let (kind, rest) = rest.split_once('/').unwrap_or((rest, ""));
        match kind {
            "closed" => Some(Self::Closed),
            "kept" => Some(Self::Kept),
            "cards" => Some(Self::Card(CardId::new(rest).ok()?)),
            "rows" => {
                let (card, row) = rest.split_once('/')?;
                Some(Self::Row(CardId::new(card).ok()?, row.parse().ok()?))
            }
            "months" => Some(Self::Month(parse_account(rest)?.0)),
            "accounts" => Some(Self::Account(parse_account(rest)?.0)),
            "pages" => {
                let (account, level) = parse_account(rest)?;
                Some(Self::OpenPage(account, parse_level(level)?))
            }
            _ => None,
        }
    }
}

fn parse_level(letter: &str) -> Option<IntervalLevel> {
    IntervalLevel::ALL.into_iter().find(|level| letter.chars().eq([level.letter()]))
}

/// The account that a text begins with, and what follows behind it.
fn parse_account(text: &str) -> Option<(AccountKey, &str)> {
    let mut parts = text.splitn(4, '/');
    let card = match parts.next()? {
        NO_CARD => None,
        card => Some(CardId::new(card).ok()?),
    };
    let (kind, name) = (parts.next()?, parts.next()?);
    let part = match kind {
        "dag" => AccountPart::Dag(DagUid::from_raw(u32::from_str_radix(name, 16).ok()?)),
        "rest" => AccountPart::Rest(TenantId::new(name).ok()?),
        "tenant" => {
            let (tenant, born) = name.split_once('@')?;
            AccountPart::Tenant(TenantId::new(tenant).ok()?, born.parse().ok()?)
        }
        _ => return None,
    };
    Some((AccountKey { card, part }, parts.next().unwrap_or_default()))
}

impl fmt::Display for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let card = self.card.as_ref().map_or(NO_CARD, CardId::as_str);
        match &self.part {
            AccountPart::Dag(uid) => write!(f, "{card}/dag/{:08x}", uid.raw()),
            AccountPart::Rest(tenant) => write!(f, "{card}/rest/{tenant}"),
            AccountPart::Tenant(tenant, born) => write!(f, "{card}/tenant/{tenant}@{born}"),
        }
    }
}

impl fmt::Display for UsageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => write!(f, "{OPEN}closed"),
            Self::Kept => write!(f, "{OPEN}kept"),
            Self::Card(card) => write!(f, "{OPEN}cards/{card}"),
            Self::Row(card, row) => write!(f, "{OPEN}rows/{card}/{row:04}"),
            Self::Account(account) => write!(f, "{OPEN}accounts/{account}"),
            Self::Month(account) => write!(f, "{OPEN}months/{account}"),
            Self::OpenPage(account, level) => {
                write!(f, "{OPEN}pages/{account}/{}", level.letter())
            }
            Self::FullPage(account, level, start) => {
                write!(f, "{FULL}{account}/{}/{start:012}", level.letter())
            }
        }
    }
}

/// A record of the book.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UsageRecord {
    /// Second up to which intervals are closed.
    Closed(u64),
    /// Pages that are kept.
    Kept(KeptPages),
    /// A card.
    Card(CardId, SavedCard),
    /// A row of a card's DAG table.
    Row(CardId, Box<SavedRow>),
    /// An account.
    Account(AccountKey, Box<SavedAccount>),
    /// A page that is being filled, of minutes or hours.
    OpenPage(AccountKey, IntervalLevel, UsagePage),
    /// The days of a month that are over.
    Month(AccountKey, MonthUsage),
    /// A page that is full; it has an entry.
    FullPage(AccountKey, IntervalLevel, UsagePage),
}

impl UsageRecord {
    /// Its key.
    pub fn key(&self) -> UsageKey {
        match self {
            Self::Closed(_) => UsageKey::Closed,
            Self::Kept(_) => UsageKey::Kept,
            Self::Card(card, _) => UsageKey::Card(card.clone()),
            Self::Row(card, row) => UsageKey::Row(card.clone(), row.uid.row()),
            Self::Account(account, _) => UsageKey::Account(account.clone()),
            Self::OpenPage(account, level, _) => UsageKey::OpenPage(account.clone(), *level),
            Self::Month(account, _) => UsageKey::Month(account.clone()),
            Self::FullPage(account, level, page) => {
                let start = page.start(*level).unwrap_or_default();
                UsageKey::FullPage(account.clone(), *level, start)
            }
        }
    }
}

/// A change of the book's records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UsageWrite {
    /// A record is new, or different.
    Put(UsageRecord),
    /// A record is gone.
    Remove(UsageKey),
}
