//! An NT: configured, given packets, saved and restored.

use rand::RngCore;
use snic_domain::Timestamp;

use crate::config::{Configuration, InvalidConfiguration};
use crate::flow_rules::{FlowKey, FlowRule};
use crate::packet::{Packet, Pool, Translation};
use crate::verdict::Verdict;
use crate::wire::Layout;
use crate::{Counters, DropReason, InvalidState};

/// Direction in which a packet leaves an NT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// On, to what follows in the DAG.
    Onward,
    /// Back, to where packets of this NT come from.
    Back,
}

/// Packets that an NT makes, apart from the one it was given.
#[derive(Debug)]
pub struct Emitted {
    pool: Pool,
    packets: Vec<(Direction, Packet)>,
    missed: u64,
    /// Packets that a peer has not acknowledged.
    given_up: u64,
    /// Later fragments whose first was not let through.
    orphans: u64,
}

impl Emitted {
    /// Most packets of one call: the largest burst that a timer of an NT may send.
    pub const PACKETS_MAX: usize = 1_024;

    /// Nothing yet; packets come from `pool`.
    pub fn new(pool: Pool) -> Self {
        let packets = Vec::with_capacity(Self::PACKETS_MAX.min(pool.capacity()));
        Self { pool, packets, missed: 0, given_up: 0, orphans: 0 }
    }

    /// Emits a copy of `frame`; counted as missed when there is no buffer for it.
    pub fn copy(&mut self, direction: Direction, frame: &[u8]) {
        self.with(direction, frame, |_| ());
    }

    /// Emits a copy of `frame` after `change`; counted as missed when there is no buffer for it.
    pub fn with(&mut self, direction: Direction, frame: &[u8], change: impl FnOnce(&mut [u8])) {
        let has_room = self.packets.len() < self.packets.capacity();
        match self.pool.copy_of(frame).filter(|_| has_room) {
            Some(mut packet) => {
                change(packet.bytes_mut());
                self.packets.push((direction, packet));
            }
            None => self.missed += 1,
        }
    }

    /// Packets are lost that the NT had kept to send them again: counted as drops because of their peer.
    pub(crate) fn give_up(&mut self, packets: u64) {
        self.given_up += packets;
    }

    /// Emits a packet that `build` makes of an empty one; counted as missed when there is no buffer for it.
    ///
    /// # Errors
    /// That of `build`; nothing is emitted then.
    pub(crate) fn build<E>(
        &mut self,
        direction: Direction,
        build: impl FnOnce(&mut Packet) -> Result<(), E>,
    ) -> Result<(), E> {
        let has_room = self.packets.len() < self.packets.capacity();
        match self.pool.take().filter(|_| has_room) {
            Some(mut packet) => {
                build(&mut packet)?;
                self.packets.push((direction, packet));
            }
            None => self.missed += 1,
        }
        Ok(())
    }

    /// Fragments are lost that the NT had kept until their first one came: counted as drops.
    pub(crate) fn drop_orphans(&mut self, fragments: u64) {
        self.orphans += fragments;
    }

    /// Takes the packets out, in the order in which they were emitted.
    pub fn drain(&mut self) -> impl Iterator<Item = (Direction, Packet)> + '_ {
        self.packets.drain(..)
    }

    /// Drops what was emitted behind the first `length` packets.
    pub fn truncate(&mut self, length: usize) {
        self.packets.truncate(length);
    }

    /// Packets that wait to be taken out.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
}

/// Context of an NT, which it gets with each call.
pub struct Context<'a> {
    /// The card's time.
    pub now: Timestamp,
    /// Random numbers, from the card's seed.
    pub random: &'a mut dyn RngCore,
    /// Where additional packets go.
    pub emitted: &'a mut Emitted,
}

/// A network task. Implementations hold a fixed amount of memory once configured, and answer any
/// bytes with a verdict. Calls come from one thread.
pub trait NetworkTask: Send {
    /// Applies a configuration that its schema has accepted. Connections and other state stay where
    /// the new configuration still allows them. On an error nothing has changed.
    ///
    /// # Errors
    /// Two fields contradict each other, or the schema allows a value that has no meaning.
    fn configure(
        &mut self,
        now: Timestamp,
        configuration: &Configuration,
    ) -> Result<(), InvalidConfiguration>;

    /// Processes one packet. Packets that it makes go to the context.
    fn process(&mut self, packet: &mut Packet, context: &mut Context<'_>) -> Verdict;

    /// Rule for further packets with the [`crate::FlowKey`] of the packet that it has just processed; `None`, which is the
    /// default, has every packet come to the task.
    fn flow_rule(&self) -> Option<FlowRule> {
        None
    }

    /// Does for a packet of a rule what [`NetworkTask::process`] would do, all but the change of addresses: a timer starts
    /// again, tokens are taken. Says whether the rule holds; if not, nothing has changed.
    fn follow(
        &mut self,
        _rule: &FlowRule,
        _packet: (&mut [u8], &Layout),
        _context: &mut Context<'_>,
    ) -> bool {
        false
    }

    /// Whether a rule holds for a packet from this station, all but what a packet's bytes say. `false`, the default, keeps flows
    /// from whoever passes their packets elsewhere.
    fn holds(&self, _rule: &FlowRule, _from: [u8; 6], _now: Timestamp) -> bool {
        false
    }

    /// When [`NetworkTask::wake`] is to be called, for NTs with timers.
    fn next_wake(&self) -> Option<Timestamp> {
        None
    }

    /// Runs the timers that are due. What it emits has no packet to go back from: it goes onward, as if the station
    /// that its Ethernet header names as the source had sent it through the NTs before this one.
    fn wake(&mut self, _context: &mut Context<'_>) {}

    /// Learns the addresses that an NT behind this one gave to a packet which this one follows. Packets of both directions
    /// pass a chain in the same order, so replies come here with these addresses. Says whether this was news.
    fn learn(&mut self, _translation: &Translation, _now: Timestamp) -> bool {
        false
    }

    /// Appends the state that a load of the region would lose. Times are saved as the time left at
    /// `now`.
    fn save(&self, _now: Timestamp, _out: &mut Vec<u8>) {}

    /// Replaces its state by saved state. On an error nothing has changed.
    ///
    /// # Errors
    /// The bytes are not a state of this NT type, or do not fit its configuration.
    fn restore(&mut self, _now: Timestamp, _bytes: &[u8]) -> Result<(), InvalidState> {
        Ok(())
    }
}

/// An NT in its slot: the task, its configuration's version, its counters.
pub struct NtInstance {
    task: Box<dyn NetworkTask>,
    schema: &'static crate::config::Schema,
    configuration: Option<Configuration>,
    counters: Counters,
    /// Number of the state that flow rules belong to, from the NT's seed on.
    generation: u64,
}

impl NtInstance {
    pub(crate) fn new(
        task: Box<dyn NetworkTask>,
        schema: &'static crate::config::Schema,
        seed: u64,
    ) -> Self {
        Self { task, schema, configuration: None, counters: Counters::default(), generation: seed }
    }

    /// Checks `bytes` against the schema and applies them. On an error the old configuration stays.
    ///
    /// # Errors
    /// The version is not known, or a field is not allowed; the error names field, value and what is
    /// allowed.
    pub fn configure(
        &mut self,
        now: Timestamp,
        version: u16,
        bytes: &[u8],
    ) -> Result<(), InvalidConfiguration> {
        let configuration = self.schema.check(version, bytes)?;
        self.generation = self.generation.wrapping_add(1);
        self.task.configure(now, &configuration)?;
        self.configuration = Some(configuration);
        Ok(())
    }

    /// The configuration in force, secrets replaced by digests.
    pub fn configuration(&self) -> Option<serde_json::Value> {
        self.configuration.as_ref().map(Configuration::redacted)
    }

    /// Processes one packet, and counts it.
    pub fn process(&mut self, packet: &mut Packet, context: &mut Context<'_>) -> Verdict {
        self.counters.received += 1;
        let Self { task, counters, configuration, .. } = self;
        let verdict = match configuration {
            Some(_) => counters.observe(context, |context| task.process(packet, context)),
            None => Verdict::Drop(DropReason::Unconfigured),
        };
        counters.count(verdict);
        verdict
    }

    /// Rule for further packets with the [`crate::FlowKey`] that this packet had when it came, which has just been
    /// processed with this verdict, and learnt by the other NTs of its chain. `None` where every packet goes to the task.
    pub fn flow_rule(&self, packet: &Packet, verdict: Verdict) -> Option<FlowRule> {
        if !matches!(verdict, Verdict::Forward | Verdict::Reply) {
            return None;
        }
        let rule = self.task.flow_rule()?;
        let (origin, followed) = packet.marks();
        Some(FlowRule { generation: self.generation, verdict, origin, followed, ..rule })
    }

    /// Treats a packet as [`NtInstance::process`] would, and counts it; `layout` follows. `None` where the rule does not hold
    /// any more: then nothing has changed, and the packet is to be processed.
    pub fn follow(
        &mut self,
        rule: &FlowRule,
        packet: &mut Packet,
        layout: &mut Layout,
        context: &mut Context<'_>,
    ) -> Option<Verdict> {
        if rule.generation != self.generation {
            return None;
        }
        let Self { task, counters, .. } = self;
        let bytes = packet.bytes_mut();
        if !counters.observe(context, |context| task.follow(rule, (bytes, layout), context)) {
            return None;
        }
        rule.apply(packet.bytes_mut(), layout);
        packet.mark_as(rule.origin, rule.followed);
        counters.received += 1;
        counters.count(rule.verdict);
        Some(rule.verdict)
    }

    /// Whether a rule still holds for packets with this key: whoever passes them elsewhere asks.
    pub fn holds(&self, rule: &FlowRule, key: &FlowKey, now: Timestamp) -> bool {
        rule.generation == self.generation && self.task.holds(rule, key.source_station(), now)
    }

    /// Counts packets with this key that passed elsewhere by a rule, the last one at the context's time: timers start again from
    /// there. Says whether the rule still held then.
    pub fn passed_elsewhere(
        &mut self,
        (rule, key): (&FlowRule, &FlowKey),
        packets: u64,
        context: &mut Context<'_>,
    ) -> bool {
        self.counters.received += packets;
        self.counters.count_all(rule.verdict, packets);
        if !self.holds(rule, key, context.now) {
            return false;
        }
        let Self { task, counters, .. } = self;
        let (mut link, layout) = key.bare();
        counters.observe(context, |context| task.follow(rule, (&mut link, &layout), context))
    }

    /// Learns what [`Packet::take_translation`] says of another NT of the chain. Says whether this was news.
    pub fn learn(&mut self, translation: &Translation, now: Timestamp) -> bool {
        self.task.learn(translation, now)
    }

    /// When [`NtInstance::wake`] is to be called.
    pub fn next_wake(&self) -> Option<Timestamp> {
        self.task.next_wake()
    }

    /// Runs the timers that are due.
    pub fn wake(&mut self, context: &mut Context<'_>) {
        let task = &mut self.task;
        self.counters.observe(context, |context| task.wake(context));
    }

    /// The state that a load of the region would lose, of at most [`crate::STATE_BYTES_MAX`] bytes.
    pub fn save(&self, now: Timestamp) -> Vec<u8> {
        let mut out = Vec::new();
        self.task.save(now, &mut out);
        out
    }

    /// Restores saved state. On an error nothing has changed.
    ///
    /// # Errors
    /// The bytes are not a state of this NT type, or do not fit its configuration.
    pub fn restore(&mut self, now: Timestamp, bytes: &[u8]) -> Result<(), InvalidState> {
        self.generation = self.generation.wrapping_add(1);
        self.task.restore(now, bytes)
    }

    /// Counts of its packets.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}

impl Counters {
    /// Runs a task and counts what it emits.
    pub(crate) fn observe<T>(
        &mut self,
        context: &mut Context<'_>,
        run: impl FnOnce(&mut Context<'_>) -> T,
    ) -> T {
        let before = context.emitted.packets.len();
        let result = run(context);
        self.emitted += (context.emitted.packets.len() - before) as u64;
        self.not_emitted += std::mem::take(&mut context.emitted.missed);
        let Emitted { given_up, orphans, .. } = &mut *context.emitted;
        self.count_given_up(std::mem::take(given_up), DropReason::PeerUnreachable);
        self.count_given_up(std::mem::take(orphans), DropReason::FragmentWithoutFirst);
        result
    }

    /// Counts what becomes of packets that passed by a rule.
    fn count_all(&mut self, verdict: Verdict, packets: u64) {
        match verdict {
            Verdict::Forward => self.forwarded += packets,
            Verdict::Reply => self.replied += packets,
            // No rule has these.
            Verdict::Consume | Verdict::Drop(_) => {}
        }
    }

    /// Counts what becomes of a packet.
    pub(crate) fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Forward => self.forwarded += 1,
            Verdict::Reply => self.replied += 1,
            Verdict::Consume => self.consumed += 1,
            Verdict::Drop(reason) => self.count_drop(reason),
        }
    }
}
