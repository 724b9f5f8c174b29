//! Effects of writes to the card on flows with rules.
//!
//! A rule holds what NTs decided, so nearly every write ends it. Fairness, though, changes rates each epoch, and a rate is in no
//! rule: a commit that changes nothing but rates takes the DAGs back whose rates they are, for as long as the commit takes. So it is
//! kept in mind which rows of the shadow bank were written since it last became active.

use std::collections::BTreeSet;

use snic_ports::remote::Run;
use snic_tables::Table;
use snic_tables::registers::{ACTIVE_BANK, BANK_BYTES, COMMIT, DAG_LATENCY, SHADOW_BANK};

/// Effect of a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum WriteEffect {
    /// None on any flow.
    Nothing,
    /// A commit changes these rows of the rate limiter, and nothing else.
    Rates(BTreeSet<u16>),
    /// It may change what packets of any flow get.
    All,
}

/// Rows of the shadow bank that were written since it last became active.
#[derive(Debug, Default)]
pub(super) struct WrittenRows {
    rates: BTreeSet<u16>,
    /// Rows of other tables, too.
    others: bool,
}

impl WrittenRows {
    /// The effect of writes that are about to be carried out, in their order.
    pub(super) fn note(&mut self, runs: &[Run]) -> WriteEffect {
        let (mut commits, mut all) = (false, false);
        for run in runs {
            let Some(end) = run.words.checked_mul(4).and_then(|bytes| run.at.checked_add(bytes))
            else {
                return WriteEffect::All;
            };
            match run.at {
                SHADOW_BANK.. if end <= SHADOW_BANK + BANK_BYTES && !commits => {
                    self.shadow(run.at, end)
                }
                DAG_LATENCY..ACTIVE_BANK if end <= ACTIVE_BANK => {}
                COMMIT if run.words == 1 => commits = true,
                _ => all = true,
            }
        }
        match commits {
            _ if all || commits && self.others => WriteEffect::All,
            true => WriteEffect::Rates(self.rates.clone()),
            false => WriteEffect::Nothing,
        }
    }

    /// Words of the shadow bank are written, up to the register `end`.
    fn shadow(&mut self, at: u32, end: u32) {
        let first = Table::RateLimiter.offset() as u32 * 4 + SHADOW_BANK;
        let row_bytes = Table::RateLimiter.row_words() as u32 * 4;
        let behind = first + Table::RateLimiter.rows() as u32 * row_bytes;
        if at < first || end > behind {
            self.others = true;
        } else if at < end {
            let row = |at: u32| ((at - first) / row_bytes) as u16;
            self.rates.extend(row(at)..=row(end - 1));
        }
    }

    /// The shadow bank became active, and is a copy of it again.
    pub(super) fn committed(&mut self) {
        *self = Self::default();
    }
}
