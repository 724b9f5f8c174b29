//! Loading a region.
//!
//! The order, and why:
//! 1. No packet in the region and the configuration port free. Until here nothing was changed: a
//!    load that cannot start leaves the region as it was, coupled and working.
//! 2. The bytes into the card's memory, still before anything is changed: there may be no room.
//! 3. Decouple: what the region drives during a load is noise, and the crossbar must not see it.
//! 4. `REGION_DIGEST_NEXT` before `LOAD_START`: the card writes it to `REGION_DIGEST` when the load
//!    ends well, so that a daemon that restarts in between still learns what was loaded.
//! 5. Start; poll; on success the region must say that it is loaded, with this digest. That much a
//!    controller says of itself; what was loaded the ROM in the region says: its NTs and its identity are
//!    read and must be those that the bitstream declares.
//! 6. Couple last: only a region that is known to hold the right thing meets packets. After a
//!    failure it stays decoupled, because it holds garbage.
//!
//! A load that does not end in time is ended by a reset of its region, or the port would be taken
//! for ever. The buffer is given back when the load ended; where even the reset did not end it, not
//! before the port is free, because the card may still be reading from it.

use std::sync::Arc;
use std::time::Duration;

use snic_domain::limits::{CHAIN_SLOTS_MAX, REGIONS_MAX};
use snic_domain::{ChainIdentity, Digest, NtCode, RegionId, ReportedChain, Timestamp};
use snic_tables::registers::{
    LOAD_BUFFER_HIGH, LOAD_BUFFER_LOW, LOAD_BUSY, LOAD_BYTES, LOAD_DONE, LOAD_ERROR,
    LOAD_ERROR_BUSY, LOAD_ERROR_IDENTITY, LOAD_ERROR_REGION, LOAD_FAILED, LOAD_REGION, LOAD_START,
    LOAD_STATUS, REGION_CONTROL, REGION_COUNT, REGION_DECOUPLE, REGION_DIGEST, REGION_DIGEST_NEXT,
    REGION_IDENTITY, REGION_IN_FLIGHT, REGION_LOADED, REGION_NTS, REGION_RESET, REGION_STATUS,
    region,
};
use snic_tables::{CardReport, LoadFailure, Ticket};

use super::{Context, release};
use crate::card::{Card, CardError};

/// A load to be made.
#[derive(Debug)]
pub(super) struct Order {
    pub(super) ticket: Ticket,
    pub(super) region: RegionId,
    pub(super) digest: Digest,
    /// Report that the region has to give then.
    pub(super) chain: ReportedChain,
    pub(super) bytes: Option<Arc<[u8]>>,
}

/// A `Load` under way.
#[derive(Debug)]
pub(super) struct Load {
    order: Order,
    stage: Stage,
    since: Timestamp,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    /// Packets may be in the region, an earlier load may be under way.
    Draining,
    /// The card is loading since `since`.
    Loading { buffer: u64, limit: Duration },
}

type LoadOutcome = Option<Result<Duration, LoadFailure>>;

impl Load {
    pub(super) const fn new(order: Order, now: Timestamp) -> Self {
        Self { order, stage: Stage::Draining, since: now }
    }

    pub(super) const fn ticket(&self) -> Ticket {
        self.order.ticket
    }

    pub(super) fn advance(
        &mut self,
        card: &mut dyn Card,
        context: &mut Context,
    ) -> Result<Option<CardReport>, CardError> {
        let mut outcome = None;
        if matches!(self.stage, Stage::Draining) {
            outcome = self.begin(card, context)?;
        }
        if let Stage::Loading { buffer, limit } = self.stage {
            outcome = self.conclude(buffer, limit, card, context)?;
        }
        let Some(result) = outcome else { return Ok(None) };
        context.statistics.loads_failed += u64::from(result.is_err());
        let Order { ticket, region, .. } = self.order;
        Ok(Some(CardReport::Loaded { ticket, region, result }))
    }

    const fn register(&self, register: u32) -> u32 {
        region(self.order.region.0, register)
    }

    /// Steps 1 to 5.
    fn begin(
        &mut self,
        card: &mut dyn Card,
        context: &mut Context,
    ) -> Result<LoadOutcome, CardError> {
        let regions = card.read(REGION_COUNT)?.min(REGIONS_MAX as u32);
        if u32::from(self.order.region.0) >= regions {
            return Ok(Some(Err(LoadFailure::Controller { code: LOAD_ERROR_REGION })));
        }
        let Some(bytes) = self.order.bytes.clone() else {
            let text = format!("the store holds no bitstream of digest {}", self.order.digest);
            return Ok(Some(Err(LoadFailure::NoBytes(text))));
        };
        let packets = card.read(self.register(REGION_IN_FLIGHT))?;
        let port_busy = card.read(LOAD_STATUS)? == LOAD_BUSY;
        if packets > 0 || port_busy {
            return Ok(self.drained_too_late(packets, context));
        }
        context.release_abandoned(card)?;
        match card.stage(&bytes) {
            Ok(buffer) => self.start(buffer, bytes.len() as u64, card, context).map(|()| None),
            Err(error @ CardError::NoMemory { .. }) => {
                Ok(Some(Err(LoadFailure::NoBytes(error.to_string()))))
            }
            Err(error) => Err(error),
        }
    }

    fn drained_too_late(&self, packets: u32, context: &Context) -> LoadOutcome {
        let waited = context.now.since(self.since);
        (waited >= context.deadlines.drain).then_some(Err(match packets {
            0 => LoadFailure::Controller { code: LOAD_ERROR_BUSY },
            packets => LoadFailure::DrainTimeout { packets, waited },
        }))
    }

    fn start(
        &mut self,
        buffer: u64,
        bytes: u64,
        card: &mut dyn Card,
        context: &mut Context,
    ) -> Result<(), CardError> {
        card.write(self.register(REGION_CONTROL), REGION_DECOUPLE)?;
        card.write_block(self.register(REGION_DIGEST_NEXT), &self.order.digest.words())?;
        card.write(LOAD_REGION, self.order.region.0.into())?;
        card.write(LOAD_BUFFER_LOW, buffer as u32)?;
        card.write(LOAD_BUFFER_HIGH, (buffer >> 32) as u32)?;
        // Bitstreams are far under 4 GiB (`limits::BITSTREAM_BYTES_MAX`); a longer one is cut
        // short here, and the card refuses what is cut.
        card.write(LOAD_BYTES, u32::try_from(bytes).unwrap_or(u32::MAX))?;
        card.write(LOAD_START, 1)?;
        self.stage = Stage::Loading { buffer, limit: context.deadlines.load(bytes) };
        self.since = context.now;
        context.statistics.loads += 1;
        context.statistics.bytes_loaded += bytes;
        Ok(())
    }

    /// Steps 5 and 6.
    fn conclude(
        &self,
        buffer: u64,
        limit: Duration,
        card: &mut dyn Card,
        context: &mut Context,
    ) -> Result<LoadOutcome, CardError> {
        let took = context.now.since(self.since);
        let result = match card.read(LOAD_STATUS)? {
            LOAD_BUSY if took < limit => return Ok(None),
            LOAD_BUSY => {
                if !end_load(self.order.region.0, card)? {
                    context.abandoned.push(buffer);
                    return Ok(Some(Err(LoadFailure::Timeout(limit))));
                }
                Err(LoadFailure::Timeout(limit))
            }
            LOAD_DONE if self.holds_the_bitstream(card)? => {
                let reported = reported_chain(self.order.region.0, card)?;
                match reported.check(&self.order.chain) {
                    Ok(()) => {
                        card.write(self.register(REGION_CONTROL), 0)?;
                        Ok(took)
                    }
                    Err(mismatch) => Err(LoadFailure::OtherChain(mismatch)),
                }
            }
            LOAD_DONE => Err(LoadFailure::Controller { code: LOAD_ERROR_IDENTITY }),
            LOAD_FAILED => Err(LoadFailure::Controller { code: card.read(LOAD_ERROR)? }),
            other => {
                return Err(CardError::Lost(format!(
                    "the configuration controller forgot a load: its status is {other}"
                )));
            }
        };
        release(card, buffer)?;
        Ok(Some(result))
    }

    fn holds_the_bitstream(&self, card: &mut dyn Card) -> Result<bool, CardError> {
        let mut digest = [0; 8];
        card.read_block(self.register(REGION_DIGEST), &mut digest)?;
        let status = card.read(self.register(REGION_STATUS))?;
        Ok(status == REGION_LOADED && Digest::from_words(digest) == self.order.digest)
    }
}

/// Report of the ROM in a region.
pub(super) fn reported_chain(number: u8, card: &mut dyn Card) -> Result<ReportedChain, CardError> {
    let (mut nts, mut identity) = ([0; CHAIN_SLOTS_MAX], [0; 4]);
    let at = |register| region(number, register);
    card.read_blocks(&mut [(at(REGION_NTS), &mut nts), (at(REGION_IDENTITY), &mut identity)])?;
    Ok(ReportedChain { nts: nts.map(NtCode), identity: ChainIdentity::from_words(identity) })
}

/// Ends the load of a region by resetting it, which leaves it broken and decoupled; says whether
/// the port is free now.
pub(super) fn end_load(number: u8, card: &mut dyn Card) -> Result<bool, CardError> {
    card.write(region(number, REGION_CONTROL), REGION_DECOUPLE | REGION_RESET)?;
    Ok(card.read(LOAD_STATUS)? != LOAD_BUSY)
}
