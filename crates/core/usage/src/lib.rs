//! The book of usage: what each DAG has used of a card, by intervals that add up exactly.
//!
//! Pure: readings of counters, places of DAGs and times in, records out. Nothing is estimated. All amounts are integers, each
//! interval holds what was added since the interval before it was closed, and remainders are carried on, so intervals add up to
//! totals to the last unit.
//!
//! ```text
//!  place, leave ──► CardBook: clock, rows ──► Account: amounts since the last close
//!  booted, read ──►   (one a card)                │ close, once in ten seconds
//!                                                 ▼
//!                                     fine page ──► minute page ──► hour page
//!                                     (a minute)    (an hour)       (a day)
//! ```
//!
//! *Counters.* A card counts by row of its DAG table since it was powered up. The book remembers for each row its owner and the
//! counters that were taken in, and both are stored with the amounts in one batch. After a crash the next reading continues from there:
//! nothing is lost or counted twice while the card lives. A row keeps its owner until another DAG gets it; [`Book::is_clear`] says
//! when its last packet is counted, so that the next owner is charged for its own packets alone.
//!
//! *Time* is the card's own, by cycles of its clock ([`CardClock`]): a host whose clock is set loses and invents none.
//!
//! *Promises* are charged by the host's clock, from one change of their state to the next ([`Book::set_promise`]): kept, broken for a
//! cause, or unknown, where the daemon was dead or a card was not read.
//!
//! *Money.* Intervals × an operator's prices ([`Prices`]) are what a tenant has spent in a month ([`Book::spent`]), and what an export
//! charges: both compute with [`PricedMeter`], in decimals that are never rounded.
//!
//! *Gaps.* Counters that went back, jumped, or were lost with the card's power are a gap with a reason and a length, never an estimate.

#![warn(clippy::missing_errors_doc, missing_docs)]

mod account;
mod book;
mod calendar;
mod card;
mod clock;
mod decimal;
mod due;
mod key;
mod meter;
mod month_usage;
mod packed;
mod pages;
mod prices;
mod promise;
mod reading;
mod retention;
mod saved;
mod series;
mod spending;
mod sweep;
mod within;

#[cfg(test)]
mod tests;

pub use account::{Account, is_account_since};
pub use book::Book;
pub use calendar::{month, utc};
pub use clock::CardClock;
pub use decimal::{Decimal, Money};
pub use key::{AccountKey, AccountPart, NtInstances, UsageRates};
pub use meter::{ACCOUNT_NTS_MAX, Gap, Meter, MeterUnit, UsageAmounts};
pub use month_usage::MonthUsage;
pub use pages::{IntervalLevel, InvalidUsagePage, PageRange, ReadPage, UsageInterval, UsagePage};
pub use prices::{PRICES_FILE, PriceVersion, PricedCount, PricedMeter, Prices};
pub use promise::{BreakCause, Outage, PromiseState, PromiseTimes};
pub use reading::UsageReading;
pub use retention::{KeptPages, Retention};
pub use saved::{SavedAccount, SavedCard, SavedRow, UsageKey, UsageRecord, UsageWrite};
pub use series::{Point, UsageSeries};
