//! Flows of the card whose packets pass by a fast path ([`FlowOffload`]): which, since when, and what has passed.
//!
//! The fast path has an effect on a DAG only between [`Machine::hand_over_idle`] and the DAG's next frame ([`Machine::take_back`]). Rules
//! of its flows are compared with the NTs' tables when it is handed over, for then nothing but time can end them until it is taken back.
//! Whatever is written to the card ends all rules first, but for rates ([`writes`]): the next frame of each flow brings its rule again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use snic_domain::Timestamp;
use snic_domain::limits::DAG_ROWS;
use snic_nts::FlowKey;
use snic_nts::wire::protocol;
use snic_ports::card::Registers as _;
use snic_ports::remote::Run;
use snic_tables::registers::{
    ACTIVE_BANK, Address, COMMIT, COMMIT_REFUSED, COMMIT_STATUS, DAG_LOAD, REGIONS, STATES,
};

use self::writes::{WriteEffect, WrittenRows};
use super::Machine;
use crate::datapath::FrameRoute;
use crate::flows::{FlowOffer, FlowSteps};
use crate::offload::{FlowOffload, OffloadCounts, OffloadFailure, OffloadRule, OffloadUse};
use crate::switch::{PortPoll, Side};

/// Interval at which NTs are told of the packets of each rule. The shortest timer of an NT is a second.
const ACCOUNT_INTERVAL: Duration = Duration::from_millis(100);
/// Rules whose use one turn reads at most.
const ACCOUNTS_PER_TURN: usize = 256;
/// Time without a packet after which a rule is given up. The next packet of its flow brings it again.
const IDLE_MAX: Duration = Duration::from_secs(10);
/// DAGs that one turn tries to hand over.
const HANDED_PER_TURN: usize = 8;
/// Time in which a DAG could not be handed over, with none of its frames on the card, after which its packets are held back until
/// the card has caught up.
const CROWDED_MAX: Duration = Duration::from_millis(5);
/// Longest time in which a DAG's packets are held back, and the time until they may be again.
const HELD_MAX: Duration = Duration::from_millis(50);
const HELD_AGAIN: Duration = Duration::from_secs(1);
/// Time between two comparisons of a DAG's rules with its NTs' tables, for each rule: they take a tenth of the card's time at most.
const COMPARED_EACH: Duration = Duration::from_micros(1);
/// The UDP port of VXLAN (RFC 7348): rules of the classifier look into its packets.
const VXLAN_PORT: u16 = 4_789;

/// A rule that was given.
#[derive(Debug)]
struct GivenRule {
    offer: FlowOffer,
    flow: (FlowKey, FlowSteps),
    rule: OffloadRule,
    /// Ports that packets come in and leave by.
    ports: [usize; 2],
    /// Use that NTs know of.
    seen: OffloadUse,
    used: Timestamp,
    /// It holds no more; what it has counted is still to be told.
    is_over: bool,
}

/// A DAG with rules.
#[derive(Debug, Default)]
struct FastDag {
    /// Slots of its rules.
    slots: BTreeSet<u32>,
    /// Ports that their packets come in by.
    ports: BTreeSet<usize>,
    /// Since when its packets are held back.
    held_back: Option<Timestamp>,
    /// When it may be held back again.
    crowd_at: Timestamp,
    /// Since when it could not be handed over though none of its frames was on the card, and the losses of its port then.
    crowded: Option<(Timestamp, u64)>,
    /// State of the DAG's NTs that its rules were compared with.
    compared: Option<u32>,
    /// When they may be compared again.
    compare_at: Timestamp,
}

/// The rules of a card.
#[derive(Debug, Default)]
pub(crate) struct FastFlows {
    offload: Option<Box<dyn FlowOffload>>,
    dags: BTreeMap<u16, FastDag>,
    /// Rows of DAGs that are handed over.
    handed_over: BTreeSet<u16>,
    /// Rows of DAGs with rules that are not, and the one to begin with in the next turn.
    waiting: BTreeSet<u16>,
    next_waiting: u16,
    /// Rows that have counted since the model was last told.
    counting: BTreeSet<u16>,
    written: WrittenRows,
    given: HashMap<u32, GivenRule>,
    /// Counts of rows that the model knows of.
    seen: Vec<OffloadCounts>,
    /// Rules whose use is still to be read in this round, and when the next round begins.
    round: Vec<u32>,
    round_at: Timestamp,
    packets: u64,
    /// Changes of stations that the rules know of.
    stations: u64,
    /// Reason why the card must not go on.
    pub(super) failure: Option<OffloadFailure>,
}

impl FastFlows {
    pub(super) fn new(offload: Option<Box<dyn FlowOffload>>) -> Self {
        let seen = vec![OffloadCounts::default(); DAG_ROWS];
        Self { offload, seen, ..Self::default() }
    }

    pub(super) const fn is_on(&self) -> bool {
        self.offload.is_some()
    }

    /// Flows with rules, and packets that passed by them.
    pub(super) fn totals(&self) -> (usize, u64) {
        (self.dags.values().map(|dag| dag.slots.len()).sum(), self.packets)
    }

    /// Flows of a DAG's row that have rules.
    pub(super) fn flows_of(&self, row: u16) -> usize {
        self.dags.get(&row).map_or(0, |dag| dag.slots.len())
    }

    /// Whether a DAG is handed over.
    pub(super) fn passes(&self) -> bool {
        !self.handed_over.is_empty()
    }

    /// Whether a DAG waits to be handed over.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Files a DAG by what it has and waits for.
    fn file(&mut self, row: u16) {
        let waits = self.dags.get(&row).is_some_and(|dag| !dag.slots.is_empty());
        match waits && !self.handed_over.contains(&row) {
            true => self.waiting.insert(row),
            false => self.waiting.remove(&row),
        };
    }

    /// The DAGs that are tried next: each has its turn, however many there are that cannot be handed over.
    fn next_waiting(&mut self) -> Vec<u16> {
        let first = self.next_waiting;
        let behind = self.waiting.range(first..).chain(self.waiting.range(..first));
        let rows: Vec<u16> = behind.take(HANDED_PER_TURN).copied().collect();
        self.next_waiting = rows.last().map_or(0, |last| last.wrapping_add(1));
        rows
    }

    /// The longest time that the card may wait while there are rules.
    pub(super) fn wait_max(&self) -> Option<Duration> {
        (!self.given.is_empty()).then_some(ACCOUNT_INTERVAL)
    }

    /// Calls the fast path. A failure that may leave something passing ends the card.
    fn call<T>(
        &mut self,
        call: impl FnOnce(&mut dyn FlowOffload) -> Result<T, OffloadFailure>,
    ) -> Option<T> {
        match call(self.offload.as_deref_mut()?) {
            Ok(result) => Some(result),
            Err(failure) => {
                self.failure = Some(failure);
                None
            }
        }
    }

    /// Rules with these slots hold no more; says which had been given.
    fn end(&mut self, slots: &[u32]) -> Vec<u32> {
        let mut rules = Vec::new();
        for slot in slots {
            let Some(given) = self.given.get_mut(slot).filter(|given| !given.is_over) else {
                continue;
            };
            given.is_over = true;
            rules.push(given.rule);
            let row = given.rule.row;
            if let Some(dag) = self.dags.get_mut(&row) {
                dag.slots.remove(slot);
            }
            self.file(row);
        }
        if !rules.is_empty() {
            self.call(|path| path.end(&rules));
        }
        rules.iter().map(|rule| rule.slot).collect()
    }
}

/// Whether rules of the classifier see nothing of a flow's packets but its key.
fn is_classified_by_key(key: &FlowKey) -> bool {
    let [.., high, low] = *key.ports();
    key.protocol() != protocol::UDP || u16::from_be_bytes([high, low]) != VXLAN_PORT
}

impl Machine {
    /// A card with a fast path, whose ports the switch has opened.
    pub(crate) fn with_fast_path(mut self, offload: Option<Box<dyn FlowOffload>>) -> Self {
        self.fast = FastFlows::new(offload.filter(|_| self.switch.has_fast_ports()));
        self.datapath().offers = self.fast.is_on();
        self
    }

    /// A frame of a DAG is about to enter the model: the DAG is the card's from here on, with the tokens that are left.
    pub(super) fn take_back(&mut self, row: u16) {
        if self.fast.handed_over.remove(&row) {
            self.fast.call(|path| path.take_back(row));
            self.charge(row);
            self.fast.counting.remove(&row);
            self.fast.file(row);
        }
    }

    /// The model counts what has passed of a DAG, and takes its tokens.
    fn charge(&mut self, row: u16) {
        let Some(counts) = self.fast.call(|path| path.passed(row)) else { return };
        let seen = std::mem::replace(&mut self.fast.seen[usize::from(row)], counts);
        let (packets, bytes) = (counts.packets - seen.packets, counts.bytes - seen.bytes);
        let lost = counts.lost - seen.lost;
        if packets > 0 {
            self.card.passed_elsewhere(row, packets, bytes);
            self.fast.packets += packets;
        }
        let port = self.fast.dags.get(&row).and_then(|dag| dag.ports.first().copied());
        if let Some(port) = port.filter(|_| lost > 0) {
            self.switch.add_too_slow(port, lost);
        }
    }

    /// The model counts what has passed of each DAG.
    pub(super) fn charge_all(&mut self) {
        let rows: Vec<u16> = self.fast.counting.iter().copied().collect();
        rows.into_iter().for_each(|row| self.charge(row));
    }

    /// The model counts what has passed, where registers are about to be read that count.
    pub(super) fn charge_for(&mut self, at: Address, words: u32) {
        let end = at.saturating_add(words.saturating_mul(4));
        let counts = [(REGIONS, STATES), (DAG_LOAD, ACTIVE_BANK)];
        if counts.iter().any(|(first, behind)| at < *behind && end > *first) {
            self.charge_all();
        }
    }

    /// Registers are about to be written: ends what would see a change by halves.
    pub(super) fn before_write(&mut self, runs: &[Run]) {
        if !self.fast.is_on() {
            return;
        }
        match self.fast.written.note(runs) {
            WriteEffect::Nothing => {}
            WriteEffect::All => self.end_all_rules(),
            WriteEffect::Rates(limiters) => {
                let has_new = |row: &u16| {
                    self.card.limiter_of(*row).is_some_and(|limiter| limiters.contains(&limiter))
                };
                let rows: Vec<u16> =
                    self.fast.handed_over.iter().copied().filter(has_new).collect();
                rows.into_iter().for_each(|row| self.take_back(row));
            }
        }
    }

    /// Registers were written.
    pub(super) fn after_write(&mut self, runs: &[Run]) {
        let commits = runs.iter().any(|run| run.at == COMMIT);
        // What a refused commit left in the shadow bank comes with the next one.
        if commits && self.card.read(COMMIT_STATUS).is_ok_and(|status| status != COMMIT_REFUSED) {
            self.fast.written.committed();
        }
    }

    /// Ends all rules: what is about to change is not to be seen by halves.
    pub(super) fn end_all_rules(&mut self) {
        if !self.fast.is_on() {
            return;
        }
        self.datapath().end_offers();
        if self.fast.given.is_empty() {
            return;
        }
        self.fast.call(|path| path.end_all());
        self.charge_all();
        self.fast.dags.clear();
        for rows in [&mut self.fast.handed_over, &mut self.fast.waiting, &mut self.fast.counting] {
            rows.clear();
        }
        for given in self.fast.given.values_mut() {
            given.is_over = true;
        }
        let slots: Vec<u32> = self.fast.given.keys().copied().collect();
        slots.into_iter().for_each(|slot| self.datapath().tasks.note_taken_back(slot));
    }

    /// Ends the rules of flows whose steps were given up while frames passed; and all of them where stations have moved.
    pub(super) fn end_stale_rules(&mut self) {
        if !self.fast.is_on() {
            return;
        }
        let changes = self.switch.station_changes();
        if std::mem::replace(&mut self.fast.stations, changes) != changes {
            self.end_all_rules();
        }
        let ended = self.datapath().tasks.take_ended();
        if !ended.is_empty() {
            self.fast.end(&ended);
        }
    }

    /// Ends rules, and has their flows' packets come here.
    fn give_up(&mut self, slots: &[u32]) {
        for slot in self.fast.end(slots) {
            self.datapath().tasks.note_taken_back(slot);
        }
    }

    /// Gives the flow of a frame that leaves a rule.
    pub(super) fn give(&mut self, offer: &FlowOffer, way: FrameRoute, out: usize) {
        let ports = [way.from, out];
        // It came through another DAG before, whose packets have these addresses at no port.
        if way.to.is_some() && matches!(self.switch.side(way.from), Side::Function(_)) {
            return;
        }
        let [Some(port), Some(to)] = ports.map(|port| self.switch.fast_port(port)) else { return };
        let row = snic_domain::DagUid::from_raw(offer.uid).row();
        let rule = OffloadRule { headers: offer.rule, port, out: to, row, slot: offer.slot };
        let now = self.card.now();
        let tasks = &self.datapath().tasks;
        let Some(flow) = tasks.steps_of(offer).filter(|_| tasks.holds(offer, now)) else { return };
        if !is_classified_by_key(&flow.0) {
            return;
        }
        self.account(offer.slot);
        let Some(seen) = self.fast.call(|path| path.rule_use(offer.slot)) else { return };
        let taken = self.fast.offload.as_mut().is_some_and(|path| path.give(&rule).is_ok());
        if !taken {
            return;
        }
        let given = GivenRule { offer: *offer, flow, rule, ports, seen, used: now, is_over: false };
        self.fast.given.insert(offer.slot, given);
        let dag = self.fast.dags.entry(row).or_default();
        dag.slots.insert(offer.slot);
        dag.ports.insert(way.from);
        self.fast.file(row);
        self.datapath().tasks.note_given(offer);
        // A frame that the fast path did not know of may have come since.
        self.take_back(row);
    }

    /// Hands DAGs over that have no frame here. Says how many frames came meanwhile.
    pub(super) fn hand_over_idle(&mut self) -> usize {
        if !self.fast.waits() || !self.datapath().captures.is_empty() {
            return 0;
        }
        let rows = self.fast.next_waiting();
        rows.into_iter().map(|row| self.hand_over(row)).sum()
    }

    /// Hands a DAG over where none of its frames is on the card or waits at a port of its rules.
    fn hand_over(&mut self, row: u16) -> usize {
        let now = self.card.now();
        self.let_go(row, now);
        if self.card.dag_packets_in_flight(row) > 0 {
            return 0;
        }
        if !self.compare(row, now) {
            return 0;
        }
        let Some(bucket) = self.card.bucket(row) else { return 0 };
        let Some(slow) = self.fast.call(|path| path.slow_packets(row)) else { return 0 };
        let ports = self.fast.dags.get(&row).map(|dag| dag.ports.clone()).unwrap_or_default();
        for port in ports {
            match self.switch.receive(port, &self.pool, now) {
                PortPoll::Nothing => continue,
                PortPoll::Frame(arrival) => self.arrive(arrival.packet, arrival.from),
                PortPoll::Lost => {}
            }
            if self.card.dag_packets_in_flight(row) > 0 {
                self.note_crowded(row, port, now);
            }
            return 1;
        }
        self.fast.call(|path| path.hand_over(row, &bucket, slow));
        if let Some(dag) = self.fast.dags.get_mut(&row) {
            (dag.held_back, dag.crowded) = (None, None);
        }
        self.fast.handed_over.insert(row);
        self.fast.counting.insert(row);
        self.fast.file(row);
        0
    }

    /// A DAG could not be handed over, for a frame of its own came by a port meanwhile. Where they come faster than the card takes them, and
    /// the port has lost some, its packets are lost at once until those that wait are through.
    fn note_crowded(&mut self, row: u16, port: usize, now: Timestamp) {
        let losses = self.switch.losses(port);
        let Some(dag) = self.fast.dags.get_mut(&row) else { return };
        if dag.held_back.is_some() || now < dag.crowd_at {
            return;
        }
        let (since, before) = *dag.crowded.get_or_insert((now, losses));
        if now.since(since) >= CROWDED_MAX && losses > before {
            (dag.held_back, dag.crowded) = (Some(now), None);
            self.fast.counting.insert(row);
            self.fast.call(|path| path.hold_back(row));
        }
    }

    /// Ends what holds a DAG's packets back where that was in vain: others keep its ports busy.
    fn let_go(&mut self, row: u16, now: Timestamp) {
        let Some(dag) = self.fast.dags.get_mut(&row) else { return };
        if dag.held_back.is_some_and(|since| now.since(since) >= HELD_MAX) {
            (dag.held_back, dag.crowd_at) = (None, now + HELD_AGAIN);
            self.fast.call(|path| path.take_back(row));
            self.charge(row);
            self.fast.counting.remove(&row);
        }
    }

    /// Compares a DAG's rules with what its NTs keep, and ends those that hold no more. `false` where that is too early.
    fn compare(&mut self, row: u16, now: Timestamp) -> bool {
        let processed = self.datapath().tasks.processed(row);
        let Some(dag) = self.fast.dags.get_mut(&row) else { return false };
        if dag.compared == Some(processed) {
            return true;
        }
        if now < dag.compare_at {
            return false;
        }
        dag.compare_at = now + COMPARED_EACH * dag.slots.len() as u32;
        dag.compared = Some(processed);
        let slots: Vec<u32> = dag.slots.iter().copied().collect();
        let frames = self.card.frames::<crate::datapath::Datapath>();
        let tasks = &frames.expect("the frames were set when the card was made").tasks;
        let given = &self.fast.given;
        let is_stale =
            |slot: &u32| given.get(slot).is_none_or(|given| !tasks.holds(&given.offer, now));
        let stale: Vec<u32> = slots.into_iter().filter(is_stale).collect();
        if !stale.is_empty() {
            self.give_up(&stale);
        }
        true
    }

    /// Tells NTs, ports and the model what has passed, a part of the rules in each turn.
    pub(super) fn account_some(&mut self, now: Timestamp) {
        if self.fast.given.is_empty() {
            return;
        }
        if self.fast.round.is_empty() {
            if now < self.fast.round_at {
                return;
            }
            self.fast.round_at = now + ACCOUNT_INTERVAL;
            self.charge_all();
            self.fast.round = self.fast.given.keys().copied().collect();
        }
        let left = self.fast.round.len().saturating_sub(ACCOUNTS_PER_TURN);
        let slots = self.fast.round.split_off(left);
        slots.into_iter().for_each(|slot| self.account(slot));
    }

    /// Tells NTs, ports and the model all that has passed.
    pub(super) fn account_all(&mut self) {
        self.charge_all();
        let slots: Vec<u32> = self.fast.given.keys().copied().collect();
        slots.into_iter().for_each(|slot| self.account(slot));
    }

    /// Tells NTs and ports what has passed by the rule of a slot, if there is one.
    fn account(&mut self, slot: u32) {
        if !self.fast.given.contains_key(&slot) {
            return;
        }
        let Some(use_now) = self.fast.call(|path| path.rule_use(slot)) else { return };
        let now = self.now();
        let Some(given) = self.fast.given.get_mut(&slot) else { return };
        let packets = use_now.packets - given.seen.packets;
        let bytes = use_now.bytes - given.seen.bytes;
        given.seen = use_now;
        let (uid, flow, ports, row) = (given.offer.uid, given.flow, given.ports, given.rule.row);
        let goes;
        if packets > 0 {
            let last = Timestamp::ZERO + now.since(Timestamp::ZERO + use_now.ago);
            given.used = last;
            self.switch.note_passed(ports, flow.0.stations(), (packets, bytes), last);
            goes = !self.datapath().tasks.passed_elsewhere(uid, flow, packets, last);
        } else {
            let (offer, used) = (given.offer, given.used);
            goes = now.since(used) >= IDLE_MAX || !self.datapath().tasks.holds(&offer, now);
        }
        let is_over = given_is_over(&self.fast, slot);
        if goes && !is_over {
            self.give_up(&[slot]);
            // Another packet may have passed until it was ended.
            return self.account(slot);
        }
        if is_over {
            self.fast.given.remove(&slot);
            if let Some(dag) = self.fast.dags.get_mut(&row) {
                dag.slots.remove(&slot);
            }
            self.fast.file(row);
        }
    }
}

/// Whether the rule of a slot holds no more.
fn given_is_over(fast: &FastFlows, slot: u32) -> bool {
    fast.given.get(&slot).is_some_and(|given| given.is_over)
}

mod writes;

#[cfg(test)]
mod tests;
