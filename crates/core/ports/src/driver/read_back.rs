//! Adopting a card, whatever an earlier daemon was doing when it ended.
//!
//! The order, and why:
//! 1. It is such a card at all, with this register map. One that has no boot id gets one.
//! 2. A commit under way ends by itself, and where a region keeps its packets, by a reset of that (see [`super::stuck`]); tables
//!    that never come to rest belong to a card that cannot be used, which is reported as lost. A load under way ends by itself too; where it does not,
//!    a reset of its region ends it and leaves the region broken; where that does not help either,
//!    the region is reported as loading. The rest of the card can be used all the same.
//! 3. `ABORT` only then (see [`super::program`]): rows that were written but not committed go.
//! 4. Regions that are loaded but decoupled are coupled if they report what the bitstream declares: the daemon
//!    ended between the two, and what the region holds is whole, the new bitstream or the old one. Broken
//!    ones stay decoupled, and so does what reports something else: a load that was refused left it so.
//! 5. What a wrapper does with state is ended: nobody knows of it any more.
//! 6. Everything is read. That the boot id is still the same at the end says that it is one card's
//!    state and not half of two.

use std::sync::Arc;

use snic_domain::limits::{BITSTREAM_BYTES_MAX, REGIONS_MAX};
use snic_domain::{Digest, ReportedChain, Timestamp};
use snic_tables::registers::{
    ABORT, ACTIVE_BANK, BOOT_ID, CAPABILITIES, CAPABILITY_CONFIGURE, CAPABILITY_GUARDS,
    CAPABILITY_PASS_THROUGH, CAPABILITY_WINDOWS, COMMIT_BUSY, COMMIT_STATUS, IDCODE, LAYOUT,
    LAYOUT_VALUE, LOAD_BUSY, LOAD_REGION, LOAD_STATUS, MAGIC, MAGIC_VALUE, REGION_CONTROL,
    REGION_COUNT, REGION_DECOUPLE, REGION_DIGEST, REGION_EMPTY, REGION_LOADED, REGION_LOADING,
    REGION_STATUS, STATE_BUSY, STATE_COMMAND, STATE_END, STATE_STATUS, TABLE_VERSION, region,
    state,
};
use snic_tables::{
    BANK_WORDS, CardReport, CardSnapshot, ConfigurationWay, RegionSnapshot, RegionStatus,
    TableImage, Ticket,
};

use super::load::{end_load, reported_chain};
use super::stuck::StuckRegions;
use super::{CardIdentity, Context, sample};
use crate::card::{Card, CardError};

/// A `ReadBack` under way.
#[derive(Debug)]
pub(super) struct ReadBack {
    pub(super) ticket: Ticket,
    known: Arc<[(Digest, ReportedChain)]>,
    since: Timestamp,
    stuck: StuckRegions,
}

impl ReadBack {
    /// Step 1; from here on the card must not restart.
    pub(super) fn start(
        ticket: Ticket,
        known: Arc<[(Digest, ReportedChain)]>,
        card: &mut dyn Card,
        context: &mut Context,
    ) -> Result<Self, CardError> {
        check(card, MAGIC, "the mark", MAGIC_VALUE)?;
        check(card, LAYOUT, "the version of the register map", LAYOUT_VALUE)?;
        context.known = None;
        if card.read(BOOT_ID)? == 0 {
            card.write(BOOT_ID, boot_id(context.now))?;
        }
        context.recognise(card)?;
        Ok(Self { ticket, known, since: context.now, stuck: StuckRegions::new() })
    }

    /// Steps 2 to 6.
    pub(super) fn advance(
        &mut self,
        card: &mut dyn Card,
        context: &mut Context,
    ) -> Result<Option<CardReport>, CardError> {
        let waited = context.now.since(self.since);
        if card.read(COMMIT_STATUS)? == COMMIT_BUSY {
            let limit = context.deadlines.commit;
            if waited < limit {
                return Ok(None);
            }
            if self.stuck.reset(card, context)? {
                self.since = context.now;
                return Ok(None);
            }
            let what = "packets of an old table version are still in flight after";
            return Err(CardError::Lost(format!("{what} {limit:?}")));
        }
        let loading = card.read(LOAD_STATUS)? == LOAD_BUSY;
        if loading && waited < context.deadlines.load(BITSTREAM_BYTES_MAX.get()) {
            return Ok(None);
        }
        if !loading || end_stuck_load(card)? {
            context.release_abandoned(card)?;
        }
        card.write(ABORT, 1)?;
        context.sampler.begin(card)?;
        let snapshot = Box::new(snapshot(card, &self.known, &self.stuck)?);
        context.recognise(card)?;
        context.known = Some(CardIdentity { boot_id: snapshot.boot_id, version: snapshot.version });
        context.dag_rows = sample::rows(&snapshot.tables);
        context.reads_all = true;
        context.statistics.read_backs += 1;
        Ok(Some(CardReport::ReadBack { ticket: self.ticket, snapshot }))
    }
}

/// A number for a card that cannot draw one: it differs from what the host wrote after an earlier power-up, for that was
/// earlier. Nanoseconds, whose two halves are laid over each other.
fn boot_id(now: Timestamp) -> u32 {
    let nanos = now.as_nanos();
    ((nanos ^ nanos >> 32) as u32).max(1)
}

/// Says whether the port is free now.
fn end_stuck_load(card: &mut dyn Card) -> Result<bool, CardError> {
    let number = card.read(LOAD_REGION)?;
    // The register is the host's: where an earlier one left nonsense, there is no region to reset.
    match u8::try_from(number) {
        Ok(number) if u32::from(number) < card.read(REGION_COUNT)? => end_load(number, card),
        _ => Ok(false),
    }
}

fn check(card: &mut dyn Card, at: u32, what: &str, expected: u32) -> Result<(), CardError> {
    let found = card.read(at)?;
    if found == expected {
        return Ok(());
    }
    let text = format!("not a card of this kind: {what} is {found:#010x}, not {expected:#010x}");
    Err(CardError::Lost(text))
}

fn snapshot(
    card: &mut dyn Card,
    known: &[(Digest, ReportedChain)],
    stuck: &StuckRegions,
) -> Result<CardSnapshot, CardError> {
    let count = card.read(REGION_COUNT)?;
    if count > REGIONS_MAX as u32 {
        let text = format!("the card says it has {count} regions; the map has {REGIONS_MAX}");
        return Err(CardError::Lost(text));
    }
    let region = |number| region_snapshot(card, number, known, stuck);
    let regions = (0..count as u8).map(region).collect::<Result<_, _>>()?;
    let mut words = vec![0; BANK_WORDS];
    card.read_block(ACTIVE_BANK, &mut words)?;
    let capabilities = card.read(CAPABILITIES)?;
    Ok(CardSnapshot {
        boot_id: card.read(BOOT_ID)?,
        idcode: card.read(IDCODE)?,
        version: card.read(TABLE_VERSION)?,
        tables: TableImage::from_words(words).expect("as many words as a bank has"),
        regions,
        configures: configuration_way(capabilities),
        passes_through: capabilities & CAPABILITY_PASS_THROUGH != 0,
        guards: capabilities & CAPABILITY_GUARDS != 0,
    })
}

/// Where a shell offers both, it hands configurations to NTs itself.
const fn configuration_way(capabilities: u32) -> Option<ConfigurationWay> {
    if capabilities & CAPABILITY_CONFIGURE != 0 {
        Some(ConfigurationWay::Shell)
    } else if capabilities & CAPABILITY_WINDOWS != 0 {
        Some(ConfigurationWay::Windows)
    } else {
        None
    }
}

/// Ends what its wrapper does, couples the region where it is only left decoupled, and says how it is. One that was reset for
/// it held up the tables stays decoupled: it has to be loaded again.
fn region_snapshot(
    card: &mut dyn Card,
    number: u8,
    known: &[(Digest, ReportedChain)],
    stuck: &StuckRegions,
) -> Result<RegionSnapshot, CardError> {
    if card.read(state(number, STATE_STATUS))? == STATE_BUSY {
        card.write(state(number, STATE_COMMAND), STATE_END)?;
    }
    let status = match card.read(region(number, REGION_STATUS))? {
        REGION_EMPTY => RegionStatus::Empty,
        REGION_LOADING => RegionStatus::Loading,
        REGION_LOADED => {
            let mut digest = [0; 8];
            card.read_block(region(number, REGION_DIGEST), &mut digest)?;
            RegionStatus::Loaded(Digest::from_words(digest))
        }
        // A state that the map does not have promises nothing about the content.
        _ => RegionStatus::Broken,
    };
    let chain = match status {
        RegionStatus::Loaded(_) => reported_chain(number, card)?,
        _ => ReportedChain::default(),
    };
    let control = card.read(region(number, REGION_CONTROL))?;
    let was_decoupled = control & REGION_DECOUPLE != 0;
    let mut decoupled = was_decoupled;
    let is_known =
        matches!(status, RegionStatus::Loaded(digest) if known.contains(&(digest, chain)));
    if decoupled && is_known && !stuck.contains(number) {
        card.write(region(number, REGION_CONTROL), control & !REGION_DECOUPLE)?;
        decoupled = false;
    }
    Ok(RegionSnapshot { status, decoupled, was_decoupled, chain })
}
