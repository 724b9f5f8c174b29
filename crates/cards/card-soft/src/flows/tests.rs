//! Two cards get the same packets: one keeps flow rules, in the other each NT processes each packet. Chains,
//! configurations, packets, pauses and changes are random; bytes, verdicts, emitted packets, counters and the state that NTs
//! would save must be the same after every step.
//!
//! `SNIC_FUZZ_PACKETS` says how many packets, `SNIC_FUZZ_SEED` from which seed; a failure prints seed and step.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use snic_domain::{Bandwidth, DagSpec, DagUid, NtConfiguration, NtNumber, NtTypeId, Timestamp};
use snic_nts::wire::{self, Frame};
use snic_nts::{Direction, Packet, Pool, Verdict};
use snic_tables::{DagConfiguration, DagRow};

use super::*;
use crate::protocol::TaskObservation;
use crate::tasks::Tasks;

mod composed;

/// Packets of one world, before another one is drawn.
const PACKETS_EACH: u64 = 400;
/// Packets where nobody says otherwise.
const PACKETS: u64 = 20_000;
/// Packets of a night.
const PACKETS_OF_A_NIGHT: u64 = 10_000_000;
/// Frames that are between two NTs at once.
const IN_FLIGHT_MAX: usize = 3;

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.replace('_', "").parse().ok()).unwrap_or(default)
}

/// Another one for each NT of these tests.
fn nt_number(nt: &str) -> NtNumber {
    NtNumber(nt.bytes().map(u32::from).sum())
}

/// Settings of an NT under which much happens within a few packets: small tables and short lives.
fn settings(nt: &str, random: &mut ChaCha8Rng) -> String {
    let lifetimes = format!(
        r#"{{"opening_s":{},"datagram_s":{},"stream_s":{},"closing_s":1}}"#,
        random.random_range(1..5),
        random.random_range(1..12),
        random.random_range(1..20)
    );
    let most = [16, 64].choose(random).expect("two");
    match nt {
        "checksum" => {
            let mode = ["verify", "fill"].choose(random).expect("two");
            format!(r#"{{"mode":"{mode}"}}"#)
        }
        "firewall" => {
            let stateful = random.random_range(0..4) > 0;
            let source = ["10.0.0.0/8", "0.0.0.0/0", "10.0.0.1/32"].choose(random).expect("three");
            format!(
                r#"{{"stateful":{stateful},"flows_max":{most},"lifetimes":{lifetimes},"rules":[
                {{"action":"accept","source":"{source}"}},{{"action":"accept","source":"2001:db8:1::/48"}},
                {{"action":"accept","source":"192.0.2.200/32"}}]}}"#
            )
        }
        "load-balancer" => format!(
            r#"{{"table":"251","flows_max":{most},"lifetimes":{lifetimes},"services":[
            {{"address":"192.0.2.1","protocol":"udp","port":80,"backends":[
             {{"address":"10.0.0.1","port":80}},{{"address":"10.0.0.2","port":80}}]}},
            {{"address":"192.0.2.1","protocol":"tcp","port":80,"backends":[{{"address":"10.0.0.1","port":80}}]}}]}}"#
        ),
        "nat" => {
            let filters = ["address-and-port-dependent", "endpoint-independent"];
            let filtering = filters.choose(random).expect("two");
            format!(
                r#"{{"filtering":"{filtering}","inside":["10.0.0.0/8","2001:db8:1::/48"],"external":["192.0.2.200","2001:db8:f::1"],
            "sessions_max":{most},"ports":"2000-2040","lifetimes":{lifetimes}}}"#
            )
        }
        _ => {
            let rate = [100_000, 100_000_000].choose(random).expect("two");
            let over = ["drop", "mark"].choose(random).expect("two");
            format!(
                r#"{{"rate_bps":{rate},"burst_bytes":4000,"over_rate":"{over}","mark_dscp":10}}"#
            )
        }
    }
}

/// A packet as its sender makes it.
#[derive(Debug, Clone, Copy)]
struct Datagram {
    from: (IpAddr, u16),
    to: (IpAddr, u16),
    is_tcp: bool,
    flags: u8,
    vlan: Option<u8>,
    station: u8,
    payload: usize,
    /// A wrong checksum of the transport.
    is_damaged: bool,
}

impl Datagram {
    fn frame(&self) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, self.station];
        if let Some(vlan) = self.vlan {
            frame.extend([0x81, 0, 0, vlan]);
        }
        let header = if self.is_tcp { 20 } else { 8 };
        let (length, protocol) = (header + self.payload, if self.is_tcp { 6 } else { 17 });
        let bytes = |number: usize| (number as u16).to_be_bytes();
        match (self.from.0, self.to.0) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let at = frame.len() + 2;
                frame.extend([8, 0, 0x45, 0]);
                frame.extend(bytes(20 + length));
                frame.extend([0, 7, 0x40, 0, 64, protocol, 0, 0]);
                frame.extend(from.octets().into_iter().chain(to.octets()));
                crate::segments::fill_ipv4_checksum(&mut frame[at..]);
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                frame.extend([0x86, 0xDD, 0x60, 0, 0, 0]);
                frame.extend(bytes(length));
                frame.extend([protocol, 64]);
                frame.extend(from.octets().into_iter().chain(to.octets()));
            }
            ends => panic!("{ends:?} are of two families"),
        }
        frame.extend(self.from.1.to_be_bytes().into_iter().chain(self.to.1.to_be_bytes()));
        if self.is_tcp {
            frame.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, self.flags, 16, 0, 0, 0, 0, 0]);
        } else {
            frame.extend(bytes(length));
            frame.extend([0, 0]);
        }
        frame.resize(frame.len() + self.payload, 0x5A);
        let Ok(Frame::Ip(layout)) = wire::parse(&frame) else { panic!("{self:?}: {frame:02x?}") };
        wire::fill(&mut frame, &layout);
        if self.is_damaged {
            *frame.last_mut().expect("it has bytes") ^= 1;
        }
        frame
    }
}

/// SYN, SYN and ACK, ACK alone and with PSH, FIN and ACK, RST.
const FLAGS: [u8; 16] = [
    0x02, 0x12, 0x10, 0x18, 0x10, 0x18, 0x10, 0x18, 0x10, 0x18, 0x10, 0x18, 0x10, 0x18, 0x11, 0x04,
];

fn datagram(random: &mut ChaCha8Rng) -> Datagram {
    let address = |text: &&str| text.parse().expect("an address");
    let inside = ["10.0.0.1", "10.0.0.2"];
    let outside =
        ["198.51.100.1", "192.0.2.1", "192.0.2.1", "192.0.2.200", "10.0.0.2", "224.0.0.1"];
    let is_inward = random.random_range(0..5) == 0;
    let mut pick = |list: &[&str]| address(list.choose(random).expect("some"));
    let (mut from, mut to): (IpAddr, IpAddr) = (pick(&inside), pick(&outside));
    if random.random_range(0..6) == 0 {
        from = address(&"2001:db8:1::1");
        to = address(["2001:db8:2::1", "2001:db8:f::1"].choose(random).expect("two"));
    } else if is_inward {
        from = address(&"198.51.100.1");
        to = address(["192.0.2.200", "192.0.2.1", "10.0.0.1"].choose(random).expect("three"));
    }
    Datagram {
        from: (from, random.random_range(1_000..1_004)),
        to: (to, [80, 80, 2_000, 2_001].choose(random).copied().expect("four")),
        is_tcp: random.random(),
        flags: *FLAGS.choose(random).expect("some"),
        vlan: (random.random_range(0..6) == 0).then_some(5),
        station: random.random_range(1..3),
        payload: random.random_range(2..60),
        is_damaged: random.random_range(0..30) == 0,
    }
}

/// One card's NTs.
struct World {
    pool: Pool,
    tasks: Tasks,
    has_rules: bool,
    in_flight: Vec<Flying>,
}

/// A frame that is behind `passed` NTs.
struct Flying {
    packet: Packet,
    flow: FrameFlow,
    passed: usize,
    uid: u32,
}

/// All that can be seen of a step.
type Seen = (Option<Verdict>, Vec<u8>, Vec<(Direction, Vec<u8>)>);

impl World {
    fn new(has_rules: bool, capacity: usize, seed: u64) -> Self {
        let pool = Pool::new(64, 2_048);
        let mut tasks = Tasks::new(&pool, ChaCha8Rng::seed_from_u64(seed));
        tasks.set_flow_table(FlowTable::new(capacity));
        Self { pool, tasks, has_rules, in_flight: Vec::new() }
    }

    fn arrive(&mut self, frame: &[u8], uid: u32) {
        let packet = self.pool.copy_of(frame).expect("a buffer");
        let flow = if self.has_rules { FrameFlow::New } else { FrameFlow::Unruled };
        self.in_flight.push(Flying { packet, flow, passed: 0, uid });
    }

    /// A frame meets its next NT, and is gone if that lets it go no further.
    fn advance(&mut self, at: usize, chain: &[&str], now: Timestamp) -> Seen {
        let Flying { packet, flow, passed, uid } = &mut self.in_flight[at];
        let key = (*uid, nt_number(chain[*passed]));
        let verdict = self.tasks.process(key, (packet, flow), now);
        let bytes = packet.bytes().to_vec();
        let made = self.tasks.made().map(|(to, made)| (to, made.bytes().to_vec())).collect();
        *passed += 1;
        let goes_on = matches!(verdict, None | Some(Verdict::Forward));
        if !goes_on || *passed == chain.len() {
            self.in_flight.remove(at);
        }
        (verdict, bytes, made)
    }

    /// Counts of NTs without those that say which way they came to be.
    fn counts(&self) -> Vec<TaskObservation> {
        let seen = self.tasks.observe().into_iter();
        seen.map(|seen| TaskObservation { by_rule: 0, ..seen }).collect()
    }
}

/// Two cards that get the same.
struct Pair {
    random: ChaCha8Rng,
    worlds: [World; 2],
    chain: Vec<&'static str>,
    now: Timestamp,
    /// Frames that left: replies turn these around.
    left: Vec<Vec<u8>>,
    /// Datagrams that came: most are sent again.
    came: Vec<Datagram>,
}

const UIDS: [u32; 2] = [1 << 10 | 1, 1 << 10 | 2];

impl Pair {
    fn new(seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut chain = vec!["nat", "firewall", "load-balancer", "policer", "checksum"];
        chain.shuffle(&mut random);
        chain.truncate(random.random_range(1..=4));
        let capacity = *[2, 8, 64].choose(&mut random).expect("three");
        let worlds = [true, false].map(|has_rules| World::new(has_rules, capacity, seed));
        let now = Timestamp::from_nanos(1_000_000_000);
        let mut pair = Self { random, worlds, chain, now, left: Vec::new(), came: Vec::new() };
        UIDS.into_iter().for_each(|uid| pair.configure(uid));
        pair
    }

    /// New settings for the NTs of a DAG; now and then one has none.
    fn configure(&mut self, uid: u32) {
        let jsons: Vec<_> = (self.chain.clone().into_iter())
            .map(|nt| {
                let json = settings(nt, &mut self.random);
                snic_nts::check(nt, &json).expect("settings of this test");
                (self.random.random_range(0..12) > 0).then_some(json)
            })
            .collect();
        self.give(uid, &jsons);
    }

    /// Gives the NTs of a DAG these settings.
    fn give(&mut self, uid: u32, jsons: &[Option<String>]) {
        let ids: Vec<_> = self.chain.iter().map(|nt| NtTypeId::new(nt).expect("a label")).collect();
        let mut spec = DagSpec::chain(&ids, Bandwidth::from_gbps(1));
        for (node, json) in spec.nodes.iter_mut().zip(jsons) {
            node.configuration = json.as_deref().map(NtConfiguration::new);
        }
        let number = |nt: &NtTypeId| nt_number(nt.as_str());
        let of = DagConfiguration::of(DagUid::from_raw(uid), &spec, number);
        let row = DagRow {
            tenant: (uid & 1) as u16,
            uid,
            first_stage: 0,
            stages: 1,
            rate_limiter: 0,
            payload: true,
            configuration: of.as_ref().map_or(0, DagConfiguration::tag),
            guest: None,
        };
        for world in &mut self.worlds {
            world.tasks.row_is(self.now, &row, of.as_ref().map(DagConfiguration::bytes));
        }
    }

    /// A packet from inside to an external endpoint of the NAT that is in use.
    fn hairpin_datagram(&mut self) -> Option<Datagram> {
        let external: IpAddr = "192.0.2.200".parse().expect("an address");
        let endpoint = self.left.iter().rev().find_map(|frame| match FlowKey::of(frame) {
            Some((_, layout)) if layout.source == external => {
                let port = [frame[layout.transport], frame[layout.transport + 1]];
                Some((u16::from_be_bytes(port), layout.protocol == 6))
            }
            _ => None,
        });
        let (port, is_tcp) = endpoint?;
        let new = datagram(&mut self.random);
        let from = ["10.0.0.1", "10.0.0.2"].choose(&mut self.random).expect("two");
        let from = (from.parse().expect("an address"), new.from.1);
        Some(Datagram { from, to: (external, port), is_tcp, ..new })
    }

    /// A frame: one of before again, an answer to one that left, a new one, or any of them damaged or in fragments.
    fn frame(&mut self) -> Vec<u8> {
        let neighbour = self.hairpin_datagram();
        let random = &mut self.random;
        let mut frame = match random.random_range(0..10) {
            0..5 if !self.came.is_empty() => {
                let again = *self.came.choose(random).expect("some");
                let flags = *FLAGS.choose(random).expect("some");
                // Hosts move now and then.
                let is_moved = random.random_range(0..10) == 0;
                let station = if is_moved { random.random_range(1..4) } else { again.station };
                let payload = random.random_range(2..60);
                Datagram { flags, station, payload, ..again }.frame()
            }
            5..9 if !self.left.is_empty() => {
                let mut answer = self.left.choose(random).expect("some").clone();
                let layout = match wire::parse(&answer) {
                    Ok(Frame::Ip(layout)) if matches!(layout.protocol, 6 | 17) => Some(layout),
                    _ => None,
                };
                if let Some(layout) = layout.filter(Layout::has_transport_header) {
                    wire::turn_around(&mut answer, &layout);
                    if layout.protocol == 6 {
                        let flags = *FLAGS.choose(random).expect("some");
                        let word = [answer[layout.transport + 12], flags];
                        let at = layout.transport;
                        wire::replace_bytes(&mut answer, at + 16, at + 12, &word);
                    }
                }
                answer
            }
            _ => {
                let is_to_neighbour = random.random_range(0..3) == 0;
                let new = neighbour.filter(|_| is_to_neighbour);
                let new = new.unwrap_or_else(|| datagram(random));
                self.came.push(new);
                new.frame()
            }
        };
        match random.random_range(0..60) {
            0 => {
                let at = random.random_range(0..frame.len());
                frame[at] ^= 1 << random.random_range(0..8);
            }
            1 => frame.truncate(random.random_range(14..=frame.len())),
            // The first of several fragments.
            2 if frame.len() >= 34 && frame[12..14] == [8, 0] => {
                frame[20] = 0x20;
                crate::segments::fill_ipv4_checksum(&mut frame[14..]);
            }
            _ => {}
        }
        frame
    }

    /// One random step on both cards.
    fn step(&mut self) -> bool {
        let in_flight = self.worlds[0].in_flight.len();
        match self.random.random_range(0..400) {
            0 => {
                let uid = *UIDS.choose(&mut self.random).expect("two");
                self.configure(uid);
            }
            1 => {
                let row = self.random.random_range(1..3);
                self.worlds.iter_mut().for_each(|world| world.tasks.row_is_gone(self.now, row));
            }
            2..=5 => {
                let millis = *[1, 50, 900, 3_000, 9_000].choose(&mut self.random).expect("five");
                self.now = self.now + Duration::from_millis(millis);
            }
            6..=160 if in_flight < IN_FLIGHT_MAX => {
                let (frame, uid) = (self.frame(), UIDS[usize::from(self.random.random_bool(0.2))]);
                self.worlds.iter_mut().for_each(|world| world.arrive(&frame, uid));
                return true;
            }
            _ if in_flight > 0 => self.advance(),
            _ => {}
        }
        self.now = self.now + Duration::from_micros(self.random.random_range(0..200));
        false
    }

    fn advance(&mut self) {
        let at = self.random.random_range(0..self.worlds[0].in_flight.len());
        let (chain, now) = (&self.chain, self.now);
        let [ruled, plain] = self.worlds.each_mut().map(|world| world.advance(at, chain, now));
        assert_eq!(ruled, plain, "what the frame became");
        let goes_on = matches!(ruled.0, None | Some(Verdict::Forward | Verdict::Reply));
        if goes_on {
            self.left.push(ruled.1);
            if self.left.len() > 12 {
                self.left.remove(self.random.random_range(0..6));
            }
        }
        if self.came.len() > 6 {
            self.came.remove(0);
        }
    }

    fn compare(&self) {
        let [ruled, plain] = &self.worlds;
        assert_eq!(ruled.counts(), plain.counts(), "counters");
        let [one, other] = [ruled, plain].map(|world| world.tasks.saved(self.now));
        assert_eq!(one, other, "what the NTs keep");
        ruled.tasks.check_flow_table();
    }
}

/// Runs so many packets; the number that rules treated, by NT type.
fn run(packets: u64) -> BTreeMap<String, u64> {
    let seed = number("SNIC_FUZZ_SEED", 1);
    let mut by_rule = BTreeMap::new();
    for seed in (seed..).take(packets.div_ceil(PACKETS_EACH) as usize) {
        let mut pair = Pair::new(seed);
        let (mut sent, mut step) = (0, 0);
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            while sent < PACKETS_EACH {
                step += 1;
                sent += u64::from(pair.step());
                if step % 8 == 0 {
                    pair.compare();
                }
            }
        }));
        assert!(ran.is_ok(), "seed {seed}, step {step}, chain {:?}", pair.chain);
        for seen in pair.worlds[0].tasks.observe() {
            *by_rule.entry(seen.nt_type).or_default() += seen.by_rule;
        }
    }
    by_rule
}

#[test]
fn packets_between_hosts_behind_one_nat_follow_a_host_that_moves() {
    let mut pair = Pair::new(1);
    pair.chain = vec!["nat"];
    pair.random = ChaCha8Rng::seed_from_u64(2);
    let nat = r#"{"inside":["10.0.0.0/8"],"external":["192.0.2.200"],"filtering":"endpoint-independent"}"#;
    pair.give(UIDS[0], &[Some(nat.to_owned())]);
    let host = |text: &str, port| (text.parse().expect("an address"), port);
    let (server, is_tcp, flags) = (host("198.51.100.1", 80), false, 0);
    let (vlan, payload, is_damaged) = (None, 20, false);
    let to_server = |station| {
        let from = host("10.0.0.2", 1_000);
        Datagram { from, to: server, is_tcp, flags, vlan, station, payload, is_damaged }
    };
    let send = |pair: &mut Pair, datagram: &Datagram| {
        let frame = datagram.frame();
        pair.worlds.iter_mut().for_each(|world| world.arrive(&frame, UIDS[0]));
        pair.advance();
        pair.compare();
        pair.left.last().expect("it left").clone()
    };
    let left = send(&mut pair, &to_server(1));
    let external = host("192.0.2.200", u16::from_be_bytes([left[34], left[35]]));
    let hairpin = Datagram { from: host("10.0.0.1", 1_001), to: external, ..to_server(3) };
    for station in [1, 2] {
        send(&mut pair, &to_server(station));
        let frames: Vec<_> = (0..4).map(|_| send(&mut pair, &hairpin)).collect();
        assert!(frames.iter().all(|frame| frame[..6] == [2, 0, 0, 0, 0, station]), "{frames:02x?}");
    }
    assert!(pair.worlds[0].tasks.observe()[0].by_rule >= 4, "by rules");
}

#[test]
fn rules_change_nothing_that_can_be_seen() {
    let packets = number("SNIC_FUZZ_PACKETS", PACKETS);
    let by_rule = run(packets);
    println!("{packets} packets; treated by rules: {by_rule:?}");
    assert_eq!(by_rule.len(), 5, "{by_rule:?}");
    assert!(by_rule.values().all(|treated| *treated > packets / 200), "{by_rule:?}");
}

#[test]
#[ignore = "nightly: 10 million packets"]
fn rules_change_nothing_in_a_night() {
    run(number("SNIC_FUZZ_PACKETS", PACKETS_OF_A_NIGHT));
}

/// A table of two tenants' flows, without cards.
struct Sharing {
    table: FlowTable,
    instance: NtInstance,
    pool: Pool,
}

impl Sharing {
    fn new(capacity: usize) -> Self {
        let mut instance = snic_nts::create("policer", 1).expect("it is there");
        let json = br#"{"rate_bps":1000000000,"burst_bytes":1000000}"#;
        instance.configure(Timestamp::ZERO, 1, json).expect("valid");
        Self { table: FlowTable::new(capacity), instance, pool: Pool::new(2, 2_048) }
    }

    /// Sends the `port`th flow's frame of a DAG; whether a rule treated it.
    fn send(&mut self, uid: u32, tenant: u16, port: u16) -> bool {
        let from = ("10.0.0.1".parse().expect("an address"), port);
        let to = ("10.0.0.2".parse().expect("an address"), 80);
        let (flags, vlan, payload) = (0, None, 20);
        let sent = Datagram {
            from,
            to,
            is_tcp: false,
            flags,
            vlan,
            station: 1,
            payload,
            is_damaged: false,
        };
        let mut packet = self.pool.copy_of(&sent.frame()).expect("a buffer");
        let (mut flow, key) = (FrameFlow::New, (uid, nt_number("policer")));
        let mut emitted = snic_nts::Emitted::new(self.pool.clone());
        let random = &mut ChaCha8Rng::seed_from_u64(1);
        let mut context = Context { now: Timestamp::ZERO, random, emitted: &mut emitted };
        let Self { table, instance, .. } = self;
        let followed = table.follow((&mut packet, &mut flow), key, instance, &mut context);
        if followed.is_none() {
            let verdict = instance.process(&mut packet, &mut context);
            let rule = instance.flow_rule(&packet, verdict);
            table.record((&packet, &mut flow), key, rule, || Some(tenant));
        }
        table.check();
        followed.is_some()
    }
}

#[test]
fn a_tenant_that_opens_many_flows_takes_no_place_from_one_with_fewer() {
    let mut sharing = Sharing::new(64);
    for port in 0..20 {
        assert!(!sharing.send(UIDS[0], 1, port), "the first of its flow");
    }
    for port in 0..10_000 {
        sharing.send(UIDS[1], 2, port);
    }
    assert_eq!(sharing.table.len(), 64);
    assert!((0..20).all(|port| sharing.send(UIDS[0], 1, port)), "all of the small tenant");
    assert!(sharing.send(UIDS[1], 2, 9_999) && !sharing.send(UIDS[1], 2, 0), "the oldest went");
    let uses: Vec<_> = sharing.table.uses().collect();
    assert_eq!(uses, [(UIDS[0], 20, 0), (UIDS[1], 44, 10_001 - 44)], "the first one came twice");
    // Another one comes, and gets its share from the one that has most.
    (0..20).for_each(|port| {
        sharing.send(UIDS[0] + 2, 3, port);
    });
    assert!(
        (0..20).all(|port| sharing.send(UIDS[0] + 2, 3, port) && sharing.send(UIDS[0], 1, port))
    );
}

#[test]
fn a_change_of_a_row_ends_the_rules_of_its_dag_and_no_others() {
    let mut sharing = Sharing::new(64);
    for uid in UIDS {
        assert!(!sharing.send(uid, 1, 1) && sharing.send(uid, 1, 1));
    }
    sharing.table.invalidate(DagUid::from_raw(UIDS[0]).row());
    assert!(!sharing.send(UIDS[0], 1, 1), "the first packet after the change");
    assert!(sharing.send(UIDS[0], 1, 1) && sharing.send(UIDS[1], 1, 1));
    sharing.table.remove_dag(UIDS[0], 1);
    assert_eq!(sharing.table.len(), 1);
    assert_eq!(sharing.table.uses().collect::<Vec<_>>(), [(UIDS[1], 1, 0)]);
    assert!(!sharing.send(UIDS[0], 1, 1) && sharing.send(UIDS[1], 1, 1));
    let json = br#"{"rate_bps":1000000000,"burst_bytes":2000000}"#;
    sharing.instance.configure(Timestamp::ZERO, 1, json).expect("valid");
    assert!(!sharing.send(UIDS[1], 1, 1), "another configuration of the NT");
}

#[test]
fn a_step_that_is_given_up_ends_the_places_of_frames_on_their_way() {
    let mut sharing = Sharing::new(4);
    assert!(!sharing.send(UIDS[0], 1, 1) && sharing.send(UIDS[0], 1, 1));
    let key = sharing.table.index.keys().next().expect("a flow").1;
    let before = sharing.table.slots[sharing.table.index[&(UIDS[0], key)] as usize].stamp;
    let json = br#"{"rate_bps":1000000000,"burst_bytes":2000000}"#;
    sharing.instance.configure(Timestamp::ZERO, 1, json).expect("valid");
    assert!(!sharing.send(UIDS[0], 1, 1) && sharing.send(UIDS[0], 1, 1), "new rules");
    let after = sharing.table.slots[sharing.table.index[&(UIDS[0], key)] as usize].stamp;
    assert_ne!(before, after, "a frame that followed the old ones follows no new ones");
}

#[test]
fn the_table_takes_the_memory_that_it_says() {
    let bytes = FLOWS_MAX * (size_of::<FlowSlot>() + 2 * size_of::<(DagFlow, u32)>());
    assert!(bytes < 24 << 20, "{bytes} bytes");
    println!("{bytes} bytes; a slot has {}", size_of::<FlowSlot>());
}
