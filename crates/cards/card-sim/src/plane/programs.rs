//! Packets of DAGs that run as programs.

use std::collections::BTreeMap;
use std::sync::Arc;

use snic_tables::{DropCause, NONE, RowKey, Table};

use super::{Packet, Plane};
use crate::processors::{Processors, Step};
use crate::wheel::Event;

impl Plane {
    /// Gives the card processors.
    pub(crate) fn set_processors(&mut self, processors: Processors) {
        self.processors = Some(Box::new(processors));
    }

    /// Whether the card can start what it is told; without processors nothing is a program.
    pub(crate) fn can_start(&self, bytes: &[u8]) -> bool {
        self.processors.as_ref().is_none_or(|processors| processors.can_start(bytes))
    }

    /// Rows of the DAG table changed: their programs follow.
    pub(crate) fn start_programs(
        &mut self,
        changed: &[RowKey],
        configurations: &BTreeMap<(u32, u32), Arc<[u8]>>,
    ) {
        let Some(processors) = &mut self.processors else { return };
        let rows = &self.banks.current().dags;
        for key in changed.iter().filter(|key| key.table == Table::Dag) {
            processors.row_changed(key.row, rows[usize::from(key.row)], |row| {
                configurations.get(&(row.uid, row.configuration)).cloned()
            });
        }
    }

    /// A packet of a DAG without stages begins: it goes through the DAG's programs, if it has some.
    pub(super) fn begin_programs(&mut self, at: u32) {
        let row = self.packets[at].uid.row();
        let chain = self.processors.as_mut().and_then(|processors| processors.begin(row));
        let Some(chain) = chain else { return self.drop_packet(at, DropCause::NoInstance) };
        self.packets[at].chain = Some(chain);
        self.packets[at].stage = 0;
        self.reach_program(at);
    }

    fn reach_program(&mut self, at: u32) {
        let Packet { chain, stage, bytes, .. } = self.packets[at];
        let Some((processors, chain)) = self.processors.as_mut().zip(chain) else { return };
        match processors.reach(self.timing.clock, self.now, (chain, stage), bytes) {
            Err(()) => self.drop_packet(at, DropCause::NoInstance),
            Ok(Some(received)) => self.wheel.at(received, Event::Received { packet: at }),
            Ok(None) => {
                self.packets[at].stage = NONE;
                self.leave_stages(at);
            }
        }
    }

    /// A packet lies in the memory of a program's packets.
    pub(super) fn received(&mut self, at: u32) {
        let Packet { chain, stage, bytes, claim, .. } = self.packets[at];
        let Some((processors, chain)) = self.processors.as_mut().zip(chain) else { return };
        let packet = (at, bytes, claim.is_beyond());
        match processors.run(self.timing.clock, self.now, (chain, stage), packet) {
            None => self.drop_packet(at, DropCause::NoInstance),
            Some(Step::Waits) => {}
            Some(Step::At(done)) => self.wheel.at(done, Event::Ran { packet: at }),
        }
    }

    /// A thread is done with a packet.
    pub(super) fn ran(&mut self, at: u32) {
        let Packet { chain, stage, bytes, .. } = self.packets[at];
        let (clock, now) = (self.timing.clock, self.now);
        let Some((processors, chain)) = self.processors.as_mut().zip(chain) else { return };
        let Some((network, next)) = processors.ran(clock, (chain, stage), bytes) else { return };
        if let Some(next) = next {
            let bytes = self.packets[next].bytes;
            if let Some(done) = processors.run_next(clock, now, (chain, stage), bytes) {
                self.wheel.at(done, Event::Ran { packet: next });
            }
        }
        self.wheel.at(now + network, Event::Passed { packet: at });
    }

    /// A packet is on its way to the next program.
    pub(super) fn passed(&mut self, at: u32) {
        let Packet { stage, timeline, .. } = self.packets[at];
        let number = stage.min(u8::MAX.into()) as u8;
        self.latencies.pass_nt(timeline, (number >> 3, number & 7), self.now);
        self.packets[at].stage += 1;
        self.reach_program(at);
    }

    /// A packet goes: its chain has one packet less.
    pub(super) fn end_programs(&mut self, at: u32) {
        let chain = self.packets[at].chain.take();
        if let Some((processors, chain)) = self.processors.as_mut().zip(chain) {
            processors.end(chain);
        }
    }
}
