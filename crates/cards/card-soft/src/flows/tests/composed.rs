//! Rules of whole chains: what a rule says of further packets of a flow is what the steps then make of them, byte for byte.
//!
//! Chains, settings, packets, pauses and changes are those of the test of the steps. A rule is taken where a frame leaves, as a
//! card would take it, and judged by the later frames of its flow that followed the same steps.

use super::*;
use crate::HeaderRule;

/// Rules that later frames confirmed, by what they do.
type Confirmed = BTreeMap<&'static str, u64>;

/// NTs that look at each packet.
const LOOKING: [&str; 2] = ["policer", "checksum"];

/// Way of a frame through a chain by itself.
struct Passed {
    bytes: Vec<u8>,
    flow: FrameFlow,
    leaves: bool,
    /// Each NT that has a configuration treated it by a rule.
    by_rules: bool,
    /// NTs that have a configuration.
    met: Vec<&'static str>,
}

struct Composing {
    pair: Pair,
    /// Rules with the stamps of their flows.
    rules: HashMap<DagFlow, (HeaderRule, u64)>,
    confirmed: Confirmed,
}

impl Composing {
    fn new(seed: u64) -> Self {
        let mut pair = Pair::new(seed);
        if pair.random.random_range(0..4) > 0 {
            pair.chain.retain(|nt| !LOOKING.contains(nt));
        }
        Self { pair, rules: HashMap::new(), confirmed: Confirmed::new() }
    }

    fn treated_by_rules(&self) -> u64 {
        self.pair.worlds[0].tasks.observe().iter().map(|seen| seen.by_rule).sum()
    }

    fn pass(&mut self, frame: &[u8], uid: u32) -> Passed {
        let mut packet = self.pair.worlds[0].pool.copy_of(frame).expect("a buffer");
        let (mut flow, mut leaves, mut met) = (FrameFlow::New, true, Vec::new());
        let before = self.treated_by_rules();
        for nt in self.pair.chain.clone() {
            let now = self.pair.now;
            let tasks = &mut self.pair.worlds[0].tasks;
            let verdict = tasks.process((uid, nt_number(nt)), (&mut packet, &mut flow), now);
            tasks.made().for_each(drop);
            met.extend(verdict.map(|_| nt));
            leaves = matches!(verdict, None | Some(Verdict::Forward | Verdict::Reply));
            if !matches!(verdict, None | Some(Verdict::Forward)) {
                break;
            }
        }
        let by_rules = self.treated_by_rules() - before == met.len() as u64 && !met.is_empty();
        Passed { bytes: packet.bytes().to_vec(), flow, leaves, by_rules, met }
    }

    fn send(&mut self, frame: &[u8], uid: u32) {
        let passed = self.pass(frame, uid);
        if !passed.leaves {
            return;
        }
        let key = FlowKey::of(frame).map(|(key, _)| (uid, key));
        if let (Some(key), FrameFlow::At(place)) = (key, passed.flow) {
            if let Some((rule, stamp)) = self.rules.get(&key).copied()
                && (passed.by_rules, stamp) == (true, place.stamp)
            {
                let mut made = frame.to_vec();
                assert!(rule.apply(&mut made), "it is of the flow");
                assert_eq!(made, passed.bytes, "what {rule:?} makes of {frame:02x?}");
                self.count(&rule);
            }
            let rule = self.pair.worlds[0].tasks.compose(uid, &passed.flow);
            if passed.met.iter().any(|nt| LOOKING.contains(nt)) {
                assert!(rule.is_none(), "{:?} look at each packet", passed.met);
            }
            match rule {
                Some(rule) => drop(self.rules.insert(key, (rule, place.stamp))),
                None => drop(self.rules.remove(&key)),
            }
        }
        self.pair.left.push(passed.bytes);
        if self.pair.left.len() > 12 {
            let goes = self.pair.random.random_range(0..6);
            self.pair.left.remove(goes);
        }
    }

    fn count(&mut self, rule: &HeaderRule) {
        let is_tcp = rule.before().protocol() == 6;
        let kind = match (rule.before().is_ipv4(), is_tcp) {
            (true, true) => "TCP over IPv4",
            (true, false) => "UDP over IPv4",
            (false, true) => "TCP over IPv6",
            (false, false) => "UDP over IPv6",
        };
        *self.confirmed.entry(kind).or_default() += 1;
        let ends = |key: &FlowKey| (key.addresses().to_vec(), *key.ports());
        let is_rewritten = ends(rule.before()) != ends(rule.after());
        let what = if is_rewritten { "new addresses" } else { "passed on" };
        *self.confirmed.entry(what).or_default() += 1;
        for (name, is_so) in [("back", rule.is_back()), ("tagged", rule.before().tags() > 0)] {
            *self.confirmed.entry(name).or_default() += u64::from(is_so);
        }
    }

    fn step(&mut self) {
        let pair = &mut self.pair;
        match pair.random.random_range(0..200) {
            0 => {
                let uid = *UIDS.choose(&mut pair.random).expect("two");
                pair.configure(uid);
            }
            1 => {
                let millis = *[1, 900, 3_000, 9_000].choose(&mut pair.random).expect("four");
                pair.now = pair.now + Duration::from_millis(millis);
            }
            _ => {
                let mut frame = pair.frame();
                // Padding of the link is not of the packet.
                let padding = pair.random.random_range(0..8_usize).saturating_sub(4);
                frame.resize(frame.len() + padding, 0xEE);
                let uid = UIDS[usize::from(pair.random.random_bool(0.2))];
                pair.now = pair.now + Duration::from_micros(pair.random.random_range(0..200));
                if pair.came.len() > 6 {
                    pair.came.remove(0);
                }
                self.send(&frame, uid);
            }
        }
    }
}

#[test]
fn a_rule_of_a_whole_chain_makes_of_a_packet_what_its_steps_make() {
    let packets = number("SNIC_FUZZ_PACKETS", PACKETS);
    let seed = number("SNIC_FUZZ_SEED", 1);
    let mut confirmed = Confirmed::new();
    for seed in (seed..).take(packets.div_ceil(PACKETS_EACH) as usize) {
        let mut composing = Composing::new(seed);
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            (0..PACKETS_EACH).for_each(|_| composing.step());
        }));
        assert!(ran.is_ok(), "seed {seed}, chain {:?}", composing.pair.chain);
        for (what, count) in composing.confirmed {
            *confirmed.entry(what).or_default() += count;
        }
    }
    assert_eq!(confirmed.len(), 8, "{confirmed:?}");
    assert!(confirmed.values().all(|count| *count > packets / 4_000), "{confirmed:?}");
}

/// A frame from one port to port 80, over UDP.
fn frame_of(port: u16) -> Vec<u8> {
    let host = |text: &str| text.parse().expect("an address");
    let (from, to) = ((host("10.0.0.1"), port), (host("198.51.100.1"), 80));
    let (is_tcp, flags, vlan, station, payload, is_damaged) = (false, 0, None, 1, 20, false);
    Datagram { from, to, is_tcp, flags, vlan, station, payload, is_damaged }.frame()
}

#[test]
fn a_rule_of_a_chain_is_gone_with_any_of_its_steps_and_is_for_no_other_flow() {
    let mut composing = Composing::new(1);
    composing.pair.chain = vec!["nat", "firewall"];
    let nat = r#"{"inside":["10.0.0.0/8"],"external":["192.0.2.200"]}"#;
    let firewall = r#"{"stateful":true,"rules":[{"action":"accept"}]}"#;
    let settings = [Some(nat.to_owned()), Some(firewall.to_owned())];
    composing.pair.give(UIDS[0], &settings);
    let frame = frame_of(1_000);
    (0..3).for_each(|_| drop(composing.pass(&frame, UIDS[0])));
    let Passed { bytes, flow, by_rules, .. } = composing.pass(&frame, UIDS[0]);
    assert!(by_rules, "established");
    let tasks = &mut composing.pair.worlds[0].tasks;
    let rule = tasks.compose(UIDS[0], &flow).expect("both pass by headers alone");
    assert!(tasks.compose(UIDS[1], &flow).is_none(), "another DAG's");
    let mut made = frame.clone();
    assert!(rule.apply(&mut made));
    assert_eq!(made, bytes);
    let other = frame_of(1_001);
    let mut same = other.clone();
    assert!(!rule.apply(&mut same) && same == other, "another flow");
    composing.pair.give(UIDS[0], &settings);
    assert!(composing.pair.worlds[0].tasks.compose(UIDS[0], &flow).is_none(), "a new row");
}
