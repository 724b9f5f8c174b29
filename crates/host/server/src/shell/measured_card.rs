//! A card whose thread measures how long the parts of programming its tables take, for the trace of the call.

use std::time::SystemTime;

use snic_domain::{CardModel, Timestamp};
use snic_ports::card::{Address, Buffers, Card, CardError, ProgramPart, Registers};
use snic_telemetry::trace::{FinishedSpan, record};

/// The part that is under way.
struct PendingSample {
    parent: String,
    part: ProgramPart,
    at: SystemTime,
}

/// Passes everything on to the card, and records a span for each part that has ended.
pub(super) struct MeasuredCard<'a> {
    card: &'a mut dyn Card,
    /// The trace that accesses are for.
    parent: Option<String>,
    begun: Option<PendingSample>,
}

impl<'a> MeasuredCard<'a> {
    pub fn new(card: &'a mut dyn Card) -> Self {
        Self { card, parent: None, begun: None }
    }

    fn end_part(&mut self) {
        let Some(PendingSample { parent, part, at }) = self.begun.take() else { return };
        let name = match part {
            ProgramPart::Write => "snic.tables.write",
            ProgramPart::Packets => "snic.tables.packets",
            ProgramPart::ReadBack => "snic.tables.read_back",
        };
        let times = (at, SystemTime::now());
        record(FinishedSpan { parent, name, times, numbers: Vec::new() });
    }
}

impl Registers for MeasuredCard<'_> {
    fn read(&mut self, at: Address) -> Result<u32, CardError> {
        self.card.read(at)
    }

    fn write(&mut self, at: Address, value: u32) -> Result<(), CardError> {
        self.card.write(at, value)
    }

    fn read_block(&mut self, at: Address, words: &mut [u32]) -> Result<(), CardError> {
        self.card.read_block(at, words)
    }

    fn read_blocks(&mut self, blocks: &mut [(Address, &mut [u32])]) -> Result<(), CardError> {
        self.card.read_blocks(blocks)
    }

    fn write_block(&mut self, at: Address, words: &[u32]) -> Result<(), CardError> {
        self.card.write_block(at, words)
    }
}

impl Buffers for MeasuredCard<'_> {
    fn stage(&mut self, bytes: &[u8]) -> Result<u64, CardError> {
        self.card.stage(bytes)
    }

    fn release(&mut self, address: u64) -> Result<(), CardError> {
        self.card.release(address)
    }
}

impl Card for MeasuredCard<'_> {
    fn model(&self) -> &CardModel {
        self.card.model()
    }

    fn poll(&mut self, now: Timestamp) -> Result<(), CardError> {
        self.card.poll(now)
    }

    fn trace(&mut self, parent: Option<&str>) {
        self.parent = parent.map(str::to_owned);
        self.card.trace(parent);
    }

    fn trace_part(&mut self, part: ProgramPart) {
        self.end_part();
        let at = SystemTime::now();
        self.begun = self.parent.clone().map(|parent| PendingSample { parent, part, at });
        self.card.trace_part(part);
    }

    fn trace_ended(&mut self, parent: &str) -> Result<(), CardError> {
        if self.begun.as_ref().is_some_and(|begun| begun.parent == parent) {
            self.end_part();
        }
        self.card.trace_ended(parent)
    }
}
