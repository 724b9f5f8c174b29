//! The fast path of a card whose ports, and whose fast path, are in memory.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use snic_bitstream::catalogue;
use snic_card_sim::BucketState;
use snic_domain::{
    Bandwidth, ByteSize, CardModel, DagSpec, DagUid, Digest, NtConfiguration, NtNumber, NtTypeId,
};
use snic_nts::{Packet, Pool};
use snic_ports::card::{Buffers as _, Registers as _};
use snic_ports::remote::to_bytes;
use snic_tables::registers::*;
use snic_tables::{
    ChainRow, ClassifierRow, CreditReservation, CreditRow, DagConfiguration, DagRow, InstanceRow,
    NONE, RateLimiterRow, RegionRow, StageRow, Steering, TableImage,
};

use super::*;
use crate::SoftCardSettings;
use crate::flows::FlowTable;
use crate::machine::Job;
use crate::ports::{Port, Received, Sent};
use crate::protocol::{ControlReply, ControlRequest};
use crate::switch::Switch;

const ROW: u16 = 1;
const RATE_KBPS: u32 = 8_000;

/// A port whose frames are in memory.
#[derive(Clone, Default)]
struct Wire {
    waiting: Arc<Mutex<VecDeque<Vec<u8>>>>,
    left: Arc<Mutex<Vec<Vec<u8>>>>,
    drops: Arc<AtomicU64>,
}

impl Port for Wire {
    fn method(&self) -> &'static str {
        "memory"
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn receive(&mut self, pool: &Pool) -> io::Result<Received> {
        let frame = self.waiting.lock().expect("one thread").pop_front();
        let packet = frame.and_then(|frame| pool.copy_of(&frame));
        Ok(packet.map_or(Received::Nothing, Received::Frame))
    }

    fn send(&mut self, frames: &mut Vec<Packet>) -> Sent {
        let mut left = self.left.lock().expect("one thread");
        left.extend(frames.iter().map(|frame| frame.bytes().to_vec()));
        Sent::each(frames, |_| Ok(()))
    }

    fn take_drops(&mut self) -> u64 {
        self.drops.swap(0, Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
struct FakeState {
    /// One for each key, as in a program's table.
    rules: Vec<OffloadRule>,
    handed_over: BTreeMap<u16, BucketState>,
    counts: OffloadCounts,
    uses: BTreeMap<u32, OffloadUse>,
    /// Calls in their order.
    calls: Vec<&'static str>,
    fails: bool,
}

impl FakeState {
    /// Packets of a rule pass, if it holds. Says how many did.
    fn pass(&mut self, slot: u32, packets: u64) -> u64 {
        let of_slot = self.rules.iter().find(|rule| rule.slot == slot);
        let Some(rule) = of_slot else { return 0 };
        if !self.handed_over.contains_key(&rule.row) {
            return 0;
        }
        self.counts.packets += packets;
        self.counts.bytes += 100 * packets;
        let used = self.uses.entry(slot).or_default();
        (used.packets, used.bytes) = (used.packets + packets, used.bytes + 100 * packets);
        packets
    }
}

#[derive(Debug, Clone, Default)]
struct Fake(Arc<Mutex<FakeState>>);

impl Fake {
    fn state(&self) -> MutexGuard<'_, FakeState> {
        self.0.lock().expect("one thread")
    }

    fn note(&self, call: &'static str) -> Result<MutexGuard<'_, FakeState>, OffloadFailure> {
        let mut state = self.state();
        state.calls.push(call);
        if state.fails { Err(OffloadFailure("it was told to fail".to_owned())) } else { Ok(state) }
    }
}

impl FlowOffload for Fake {
    fn open_port(&mut self, _: &str, _: &str) -> Result<u32, OffloadFailure> {
        Ok(0)
    }

    fn give(&mut self, rule: &OffloadRule) -> Result<(), OffloadFailure> {
        let mut state = self.note("give")?;
        let key = |rule: &OffloadRule| (rule.port, *rule.headers.before());
        state.rules.retain(|other| key(other) != key(rule));
        state.rules.push(*rule);
        Ok(())
    }

    fn end(&mut self, rules: &[OffloadRule]) -> Result<(), OffloadFailure> {
        let mut state = self.note("end")?;
        state.rules.retain(|rule| !rules.contains(rule));
        Ok(())
    }

    fn end_all(&mut self) -> Result<(), OffloadFailure> {
        let mut state = self.note("end all")?;
        state.rules.clear();
        state.handed_over.clear();
        Ok(())
    }

    fn slow_packets(&mut self, _: u16) -> Result<u64, OffloadFailure> {
        Ok(0)
    }

    fn hand_over(&mut self, row: u16, of: &BucketState, _: u64) -> Result<(), OffloadFailure> {
        self.note("hand over")?.handed_over.insert(row, *of);
        Ok(())
    }

    fn hold_back(&mut self, _: u16) -> Result<(), OffloadFailure> {
        self.note("hold back").map(drop)
    }

    fn take_back(&mut self, row: u16) -> Result<(), OffloadFailure> {
        self.note("take back")?.handed_over.remove(&row);
        Ok(())
    }

    fn passed(&mut self, _: u16) -> Result<OffloadCounts, OffloadFailure> {
        Ok(self.state().counts)
    }

    fn rule_use(&mut self, slot: u32) -> Result<OffloadUse, OffloadFailure> {
        Ok(self.state().uses.get(&slot).copied().unwrap_or_default())
    }
}

/// A card with a firewall in a DAG of function 0, which has a rate.
struct Bench {
    machine: Machine,
    fake: Fake,
    function: Wire,
    uplink: Wire,
}

impl Bench {
    fn new() -> Self {
        let catalogue = catalogue::builtin().expect("the built-in catalogue");
        let model = CardModel::new("sim-16").expect("a label");
        let profile = catalogue.card(&model).expect("it is there").clone();
        let settings = SoftCardSettings {
            model: model.to_string(),
            uplink: None,
            functions: Vec::new(),
            guards: Vec::new(),
            failovers: Vec::new(),
            fast_path: true,
        };
        let (uplink, function, fake) = (Wire::default(), Wire::default(), Fake::default());
        let mut switch = Switch::default();
        switch.add(Side::Uplink, "uplink".to_owned(), Box::new(uplink.clone()));
        switch.add(Side::Function(0), "function".to_owned(), Box::new(function.clone()));
        switch.set_fast();
        let machine = Machine::new(profile, settings, switch, None, None).expect("a valid profile");
        let machine = machine.with_fast_path(Some(Box::new(fake.clone())));
        let mut bench = Self { machine, fake, function, uplink };
        bench.program(&catalogue);
        bench
    }

    /// Sends a datagram of function 0, from this port.
    fn send(&mut self, port: u16) {
        let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0];
        frame.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0x66, 0xbd, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend([port.to_be_bytes(), [7, 0xd0]].concat());
        frame.extend([0, 26, 0, 0]);
        frame.resize(60, 0);
        self.function.waiting.lock().expect("one thread").push_back(frame);
    }

    /// Turns until something is so.
    fn until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let until = Instant::now() + Duration::from_secs(10);
        while !is_so(self) {
            assert!(Instant::now() < until, "not {what}: {:?}", self.fake.state());
            self.machine.turn();
        }
    }

    /// Sends datagrams until their flow has a rule and its DAG is handed over; the rule's slot.
    fn hand_over(&mut self, port: u16) -> u32 {
        for _ in 0..3 {
            self.send(port);
            self.until("taken", |bench| bench.function.waiting.lock().expect("one").is_empty());
            self.until("gone", |bench| bench.machine.card.packets_in_flight() == 0);
        }
        self.until("handed over", |bench| bench.fake.state().handed_over.contains_key(&ROW));
        let port = port.to_be_bytes();
        let state = self.fake.state();
        let of = state.rules.iter().find(|rule| rule.headers.before().ports()[..2] == port);
        of.expect("a rule").slot
    }

    fn ask(&mut self, request: ControlRequest, payload: Vec<u8>) -> ControlReply {
        let (answer, answers) = std::sync::mpsc::sync_channel(1);
        self.machine.do_job(Job { request, payload, answer });
        answers.recv().expect("an answer").0
    }

    /// Writes registers in one request, as a driver does.
    fn write(&mut self, writes: &[(Address, Vec<u32>)]) {
        let runs = writes.iter().map(|(at, words)| Run { at: *at, words: words.len() as u32 });
        let words: Vec<u32> = writes.iter().flat_map(|(_, words)| words.clone()).collect();
        let request = ControlRequest::Write { runs: runs.collect() };
        assert_eq!(self.ask(request, to_bytes(&words)), ControlReply::Done);
    }

    /// Packets and bytes of the DAG that came in, and that went out.
    fn counts(&mut self) -> [u64; 4] {
        let mut words = [0; DAG_LOAD_ROW as usize / 4];
        let at = DAG_LOAD + u32::from(ROW) * DAG_LOAD_ROW;
        self.machine.card.read_block(at, &mut words).expect("there");
        std::array::from_fn(|at| u64::from(words[2 * at]) | u64::from(words[2 * at + 1]) << 32)
    }

    fn wait_for(&mut self, at: Address, value: u32) {
        self.until("done", |bench| bench.machine.card.read(at).expect("there") == value);
    }

    fn program(&mut self, catalogue: &catalogue::Catalogue) {
        let id: NtTypeId = "firewall".parse().expect("a label");
        let nt = catalogue.nt_types.iter().find(|nt| nt.id == id).expect("built in");
        let profile = self.machine.card.profile().clone();
        let bytes = snic_bitstream::build_test(&profile, &[nt], ByteSize::from_bytes(64 << 10));
        let bytes = bytes.expect("fits");
        let uid = DagUid::new(ROW, 1).expect("it fits");
        let mut spec = DagSpec::chain(&[id], Bandwidth::from_gbps(10));
        let rules =
            r#"{"rules":[{"action":"accept","protocol":"udp"}],"lifetimes":{"opening_s":3}}"#;
        spec.nodes[0].configuration = Some(NtConfiguration::new(rules));
        let told = DagConfiguration::of(uid, &spec, |nt| NtNumber(nt.code().0)).expect("told");
        let words = Digest::of(&bytes).words();
        let card = &mut self.machine.card;
        let (image, configuration) =
            (card.stage(&bytes).expect("room"), card.stage(told.bytes()).expect("room"));
        card.write(region(0, REGION_CONTROL), REGION_DECOUPLE).expect("there");
        card.write_block(region(0, REGION_DIGEST_NEXT), &words).expect("there");
        for (at, value) in [
            (LOAD_REGION, 0),
            (LOAD_BUFFER_LOW, image as u32),
            (LOAD_BUFFER_HIGH, (image >> 32) as u32),
            (LOAD_BYTES, bytes.len() as u32),
            (LOAD_START, 1),
            (CONFIGURE_BUFFER_LOW, configuration as u32),
            (CONFIGURE_BUFFER_HIGH, (configuration >> 32) as u32),
            (CONFIGURE_BYTES, told.bytes().len() as u32),
            (CONFIGURE_UID, uid.raw()),
            (CONFIGURE_TAG, told.tag()),
            (CONFIGURE_START, 1),
        ] {
            card.write(at, value).expect("there");
        }
        self.wait_for(LOAD_STATUS, LOAD_DONE);
        self.wait_for(CONFIGURE_STATUS, CONFIGURE_DONE);
        self.machine.card.write(region(0, REGION_CONTROL), 0).expect("there");
        let mut target = TableImage::default();
        fill(&mut target, (nt.id.code().0, words[0]), profile.credits_initial, told.tag());
        let card = &mut self.machine.card;
        for (key, words) in TableImage::default().delta_to(&target).rows() {
            card.write_block(shadow_row(key).expect("there"), words).expect("there");
        }
        card.write(COMMIT, 1).expect("there");
        self.wait_for(TABLE_VERSION, 1);
        self.wait_for(COMMIT_STATUS, COMMIT_IDLE);
    }
}

/// Address and words of a row in the shadow bank.
fn bench_row<R: snic_tables::RowCodec>(row: u16, content: &R) -> (Address, Vec<u32>) {
    let mut target = TableImage::default();
    target.set(row, content).expect("there");
    let delta = TableImage::default().delta_to(&target);
    let (key, words) = delta.rows().next().expect("one row");
    (shadow_row(key).expect("there"), words.to_vec())
}

/// The tables of a card with one NT in region 0.
fn fill(target: &mut TableImage, (code, digest): (u32, u32), credits: u8, tag: u32) {
    let nts = std::array::from_fn(|slot| if slot == 0 { code } else { 0 });
    target.set(0, &RegionRow { user_nt: false, bitstream_tag: digest, nts }).expect("there");
    let initial = [credits; 8];
    let credits = CreditRow { initial, reservation: CreditReservation::Chain };
    target.set(0, &credits).expect("there");
    target.set(0, &InstanceRow::in_region(0, 1, 1)).expect("there");
    let chain = ChainRow { first_instance: 0, instances: 1, steering: Steering::RoundRobin };
    target.set(0, &chain).expect("there");
    let chains = [0, NONE, NONE, NONE];
    target.set(0, &StageRow { chains, join_mask: 1, next: NONE, last: true }).expect("there");
    let limit = RateLimiterRow {
        rate_kbps: RATE_KBPS,
        burst_bytes: 10_000,
        promised_kbps: RATE_KBPS,
        packet_bytes: 0,
        weight: 1,
    };
    target.set(0, &limit).expect("there");
    let uid = DagUid::new(ROW, 1).expect("it fits").raw();
    let dag = DagRow {
        tenant: 1,
        uid,
        first_stage: 0,
        stages: 1,
        rate_limiter: 0,
        payload: true,
        configuration: tag,
        guest: None,
    };
    target.set(ROW, &dag).expect("there");
    let rule = ClassifierRow {
        dag_uid: uid,
        priority: 0,
        virtual_function: Some(0),
        vni: None,
        source: (0, 0),
        destination: (0, 0),
        protocol: None,
        source_port: None,
        destination_port: None,
        vlan: None,
    };
    target.set(0, &rule).expect("there");
}

#[test]
fn a_dag_is_handed_over_when_its_frames_have_left_and_its_next_frame_takes_it_back() {
    let mut bench = Bench::new();
    let slot = bench.hand_over(1_000);
    assert_eq!(bench.uplink.left.lock().expect("one thread").len(), 3);
    assert_eq!(bench.fake.state().pass(slot, 50), 50);
    assert_eq!(bench.counts(), [3, 180, 180, 3], "nobody has asked yet");
    let ControlReply::Seen(seen) = bench.ask(ControlRequest::Observe, Vec::new()) else { panic!() };
    assert_eq!(bench.counts(), [53, 5_180, 5_180, 53]);
    assert_eq!((seen.fast_packets, seen.packets_in, seen.packets_out), (50, 53, 53));
    assert_eq!((seen.tasks[0].received, seen.tasks[0].forwarded), (53, 53));
    assert_eq!((seen.ports[1].received, seen.ports[0].sent), (53, 53));
    // A new flow.
    bench.send(2_000);
    bench.fake.state().pass(slot, 50);
    bench.until("taken back", |bench| !bench.fake.state().handed_over.contains_key(&ROW));
    assert_eq!(bench.fake.state().pass(slot, 50), 0, "the DAG is the card's");
    bench.until("again", |bench| bench.fake.state().handed_over.contains_key(&ROW));
    assert_eq!(bench.counts(), [104, 10_240, 10_240, 104], "they were counted");
}

#[test]
fn the_bucket_goes_along_and_comes_back_without_what_has_passed() {
    let mut bench = Bench::new();
    let slot = bench.hand_over(1_000);
    let before = bench.fake.state().handed_over[&ROW];
    let limit = before.limit.expect("it has a rate");
    assert_eq!((limit.rate_kbps, limit.burst_bytes), (RATE_KBPS, 10_000));
    // As much as passes in 50 ms.
    bench.fake.state().pass(slot, 500);
    bench.send(2_000);
    bench.until("taken back", |bench| !bench.fake.state().handed_over.contains_key(&ROW));
    assert_eq!(bench.machine.card.dag_packets_in_flight(ROW), 1, "it waits for tokens");
    let began = Instant::now();
    bench.until("again", |bench| bench.fake.state().handed_over.contains_key(&ROW));
    // All but what the bucket holds, 10 ms.
    assert!(began.elapsed() > Duration::from_millis(30), "{:?}", began.elapsed());
}

#[test]
fn whatever_is_written_ends_all_rules_first() {
    let mut bench = Bench::new();
    let slot = bench.hand_over(1_000);
    bench.fake.state().pass(slot, 5);
    let decoupled = [(region(3, REGION_CONTROL), vec![REGION_DECOUPLE])];
    bench.write(&decoupled);
    assert_eq!(bench.fake.state().pass(slot, 5), 0);
    assert!(bench.fake.state().calls.ends_with(&["end all"]), "{:?}", bench.fake.state().calls);
    assert_eq!(bench.counts()[0], 8, "what had passed counts");
    let again = bench.hand_over(1_000);
    assert_eq!(bench.fake.state().pass(again, 5), 5, "its next packets bring the rule again");
}

#[test]
fn a_commit_of_rates_alone_leaves_the_rules_and_gives_the_new_rate() {
    let mut bench = Bench::new();
    let slot = bench.hand_over(1_000);
    bench.fake.state().pass(slot, 5);
    bench.fake.state().calls.clear();
    let rate = |row, rate_kbps| {
        let promised_kbps = rate_kbps;
        bench_row(
            row,
            &RateLimiterRow {
                rate_kbps,
                burst_bytes: 10_000,
                promised_kbps,
                packet_bytes: 0,
                weight: 1,
            },
        )
    };
    bench.write(&[rate(0, RATE_KBPS / 2)]);
    assert_eq!(bench.fake.state().pass(slot, 5), 5, "a row that is not committed changes nothing");
    bench.write(&[(COMMIT, vec![2])]);
    assert_eq!(bench.fake.state().pass(slot, 5), 0, "the card has the DAG while the rate changes");
    bench.until("again", |bench| bench.fake.state().handed_over.contains_key(&ROW));
    let limit = bench.fake.state().handed_over[&ROW].limit.expect("it has a rate");
    assert_eq!(limit.rate_kbps, RATE_KBPS / 2);
    assert_eq!(bench.fake.state().pass(slot, 5), 5, "without a packet that brought the rule again");
    assert!(!bench.fake.state().calls.contains(&"end all"), "{:?}", bench.fake.state().calls);
    // The rate of another DAG.
    bench.write(&[rate(7, 1_000), (COMMIT, vec![3])]);
    assert_eq!(bench.fake.state().pass(slot, 5), 5);
    assert_eq!(
        bench.counts()[0],
        18 - 5,
        "what has passed since the DAG was handed over is not asked for"
    );
    bench.ask(ControlRequest::Read { at: DAG_LOAD, words: 1 }, Vec::new());
    assert_eq!(bench.counts()[0], 3 + 20);
}

#[test]
fn rows_that_a_refused_commit_left_behind_end_all_rules_with_the_next() {
    let mut bench = Bench::new();
    let slot = bench.hand_over(1_000);
    let chain = ChainRow { first_instance: 0, instances: 1, steering: Steering::LeastLoaded };
    bench.write(&[bench_row(3, &chain)]);
    assert_eq!(bench.fake.state().pass(slot, 5), 5);
    bench.write(&[(COMMIT, vec![99])]);
    assert_eq!(bench.machine.card.read(COMMIT_STATUS).expect("there"), COMMIT_REFUSED);
    let slot = bench.hand_over(1_000);
    bench.write(&[(COMMIT, vec![2])]);
    assert_eq!(bench.fake.state().pass(slot, 5), 0);
}

#[test]
fn each_dag_that_waits_has_its_turn() {
    let mut flows = FastFlows { waiting: (0..20).collect(), ..FastFlows::default() };
    let turns: Vec<Vec<u16>> = (0..4).map(|_| flows.next_waiting()).collect();
    let all: Vec<u16> = turns.concat();
    assert_eq!(all, (0..20).chain(0..12).collect::<Vec<u16>>());
}

#[test]
fn packets_are_held_back_only_where_the_card_loses_some() {
    let mut bench = Bench::new();
    bench.hand_over(1_000);
    for lost in [0, 1] {
        let until = Instant::now() + Duration::from_millis(if lost == 0 { 50 } else { 5_000 });
        let is_held = |bench: &Bench| bench.fake.state().calls.contains(&"hold back");
        while !is_held(&bench) && Instant::now() < until {
            bench.function.drops.fetch_add(lost, Ordering::Relaxed);
            bench.send(1_000);
            bench.machine.turn();
            // Less than its rate: nothing waits for tokens.
            std::thread::sleep(Duration::from_micros(100));
        }
        assert_eq!(is_held(&bench), lost == 1);
    }
    bench.until("again", |bench| bench.fake.state().handed_over.contains_key(&ROW));
}

#[test]
fn a_capture_sees_all_packets() {
    let mut bench = Bench::new();
    let slot = bench.hand_over(1_000);
    let uid = DagUid::new(ROW, 1).expect("it fits").raw();
    let reply = bench.ask(ControlRequest::Capture { uid, bytes: 64 }, Vec::new());
    let ControlReply::Capturing { id } = reply else { panic!("{reply:?}") };
    assert_eq!(bench.fake.state().pass(slot, 5), 0);
    for _ in 0..3 {
        bench.send(1_000);
        (0..20).for_each(|_| _ = bench.machine.turn());
    }
    assert!(bench.fake.state().handed_over.is_empty());
    bench.ask(ControlRequest::EndCapture { id }, Vec::new());
    bench.hand_over(1_000);
}

#[test]
fn a_flow_whose_connection_expires_loses_its_rule() {
    let mut bench = Bench::new();
    let slot = bench.hand_over(1_000);
    // The firewall forgets it before the card would give up its rule.
    bench.machine.start -= Duration::from_secs(4);
    bench.machine.turned = bench.machine.now();
    let (began, is_slot) = (Instant::now(), |rule: &OffloadRule| rule.slot == slot);
    bench.until("ended", |bench| !bench.fake.state().rules.iter().any(is_slot));
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[test]
fn a_flow_that_loses_its_place_in_the_table_loses_its_rule() {
    let mut bench = Bench::new();
    bench.machine.datapath().tasks.set_flow_table(FlowTable::new(1));
    bench.hand_over(1_000);
    bench.hand_over(2_000);
    let ports = |rule: &OffloadRule| *rule.headers.before().ports();
    let of: Vec<_> = bench.fake.state().rules.iter().map(ports).collect();
    assert_eq!(of, [[0x07, 0xD0, 0x07, 0xD0]], "from port 2,000");
}

#[test]
fn a_card_that_cannot_end_a_rule_ends_itself() {
    let mut bench = Bench::new();
    bench.hand_over(1_000);
    bench.fake.state().fails = true;
    bench.send(2_000);
    bench.until("a failure", |bench| bench.machine.fast.failure.is_some());
}
