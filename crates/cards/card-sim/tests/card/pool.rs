//! Cards with links: a chain of a DAG runs on another card.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use snic_card_sim::{
    CardPool, FrameAtNt, FrameId, Frames, Header, InvalidPool, LinkDescriptor, LinkFrame,
    LinkMessage, MadeFrame, NtOutcome, PlaneOptions, PoolShape, Sighting, SimCard, Sizes,
    TrafficSource,
};
use snic_domain::{Bandwidth, CardProfile, LinkProfile, Timestamp};
use snic_ports::card::Registers;
use snic_tables::registers::*;
use snic_tables::{
    ChainRow, DagRow, DropCause, Guest, InstanceRow, NONE, RateLimiterRow, StageRow, Steering,
    TableImage,
};

use crate::rig::{self, Nt, Rig, uid};

const LINKS: LinkProfile =
    LinkProfile { count: 7, capacity: Bandwidth::from_gbps(100), latency_nanos: 500 };
const NT: Nt = (10, 100);
const US: Duration = Duration::from_micros(1);
/// Row of the DAG at home, and of its guest on the other card.
const HOME_ROW: u16 = 1;
const GUEST_ROW: u16 = 5;

fn linked() -> CardProfile {
    CardProfile { links: Some(LINKS), ..rig::profile() }
}

fn card(links: LinkProfile) -> Rig {
    Rig::with(CardProfile { links: Some(links), ..linked() }, 1, PlaneOptions::default())
}

/// Has the first instance of a DAG's stage on a link instead.
fn put_on_link(rig: &mut Rig, stage: u16, link: u8) {
    rig.program(|image| {
        let chain = image.get::<StageRow>(stage).expect("a stage").chains[0];
        let instance = image.get::<ChainRow>(chain).expect("a chain").first_instance;
        image.set(instance, &InstanceRow::on_link(link, GUEST_ROW, 1)).expect("there");
    });
}

/// A row of this card that serves the guest of a link.
fn serve_guest(rig: &mut Rig, link: u8, chain: u8) {
    rig.dag(GUEST_ROW, &[&[&[(chain, 1, 1)]]]);
    let guest = Some(Guest { link, home_uid: uid(HOME_ROW).raw() });
    rig.program(|image| {
        let row = image.get::<DagRow>(GUEST_ROW).expect("programmed");
        image.set(GUEST_ROW, &DagRow { guest, ..row }).expect("there");
    });
}

/// Two cards. The DAG of [`HOME_ROW`] passes a chain at home, one on the other card, and one at home again.
fn two_cards(links: LinkProfile) -> [Rig; 2] {
    let (mut home, mut other) = (card(links), card(links));
    home.load(0, &[NT]);
    home.load(1, &[NT]);
    other.load(0, &[NT]);
    let stages = home.dag(HOME_ROW, &[&[&[(0, 1, 1)]], &[&[(0, 1, 1)]], &[&[(1, 1, 1)]]]);
    put_on_link(&mut home, stages[1], 0);
    serve_guest(&mut other, links.count.min(1) - 1, 0);
    [home, other]
}

fn pool(rigs: [Rig; 2]) -> CardPool {
    let cards = rigs.into_iter().map(|rig| rig.card).collect();
    CardPool::new(cards, PoolShape::Switch).expect("they have links")
}

fn drain(pool: &mut CardPool, cards: usize) {
    pool.run_for(6_000 * US);
    pool.check().expect("nothing is lost");
    for at in 0..cards {
        assert_eq!(pool.card(at).packets_in_flight(), 0, "card {at}");
        let (came, out, drops) = pool.card(at).totals();
        assert_eq!(came, out + drops.iter().sum::<u64>(), "card {at}");
    }
    assert_eq!(pool.under_way(), 0);
}

fn drops_of(card: &SimCard, row: u16) -> BTreeMap<DropCause, u64> {
    let measured = card.measurements();
    let drops = measured.dag(row).map_or([0; DropCause::ALL.len()], |dag| dag.drops);
    DropCause::ALL.into_iter().zip(drops).filter(|(_, packets)| *packets > 0).collect()
}

/// Holds bytes. Each NT marks them, and makes the frame a byte longer; it drops those that begin with 0, and sends those
/// back that begin with 1.
#[derive(Debug, Default)]
struct Marked {
    frames: BTreeMap<u32, Vec<u8>>,
    out: Vec<(Vec<u8>, bool)>,
    made: VecDeque<MadeFrame>,
    makes: bool,
    next: u32,
}

impl Marked {
    fn insert(&mut self, bytes: Vec<u8>) -> FrameId {
        self.next += 1;
        self.frames.insert(self.next, bytes);
        FrameId(self.next)
    }

    fn of(&mut self, frame: FrameId) -> &mut Vec<u8> {
        self.frames.get_mut(&frame.0).expect("held")
    }
}

impl Frames for Marked {
    fn pass(&mut self, passage: &FrameAtNt) -> NtOutcome {
        if self.makes {
            let frame = self.insert(vec![9; 80]);
            self.made.push_back(MadeFrame { frame, bytes: 80, back: false });
        }
        let bytes = self.of(passage.frame);
        assert_eq!(bytes.len(), passage.bytes as usize);
        let mark = bytes.iter().fold(passage.nt.0 as u8, |sum, byte| sum.rotate_left(1) ^ byte);
        bytes.push(mark);
        let bytes_now = bytes.len() as u32;
        match bytes[0] {
            0 => NtOutcome::Dropped,
            1 => NtOutcome::Back { bytes: bytes_now },
            _ => NtOutcome::On { bytes: bytes_now },
        }
    }

    fn made(&mut self) -> Option<MadeFrame> {
        self.made.pop_front()
    }

    fn saw(&mut self, _: &Sighting) {}

    fn out(&mut self, frame: FrameId, back: bool, _: Timestamp) {
        let bytes = self.frames.remove(&frame.0).expect("held");
        self.out.push((bytes, back));
    }

    fn gone(&mut self, frame: FrameId, _: DropCause) {
        self.frames.remove(&frame.0).expect("held");
    }

    fn committed(
        &mut self,
        _: Timestamp,
        _: &[(u16, Option<DagRow>)],
        _: &BTreeMap<(u32, u32), Arc<[u8]>>,
    ) {
    }

    fn lend(&mut self, frame: FrameId) -> Arc<[u8]> {
        self.of(frame).as_slice().into()
    }

    fn replace(&mut self, frame: FrameId, bytes: &Arc<[u8]>) {
        *self.of(frame) = bytes.to_vec();
    }

    fn receive(&mut self, bytes: &Arc<[u8]>) -> Option<FrameId> {
        Some(self.insert(bytes.to_vec()))
    }

    fn send_back(&mut self, frame: FrameId) -> Arc<[u8]> {
        self.frames.remove(&frame.0).expect("held").into()
    }

    fn power_lost(&mut self) {
        self.frames.clear();
    }
}

fn frame(number: usize) -> Vec<u8> {
    let bytes = 64 + number * 37 % 1_400;
    (0..bytes).map(|at| (at * 7 + number * 3 + 2) as u8).collect()
}

/// Sends the frames to a card, 400 ns apart.
fn feed(card: &mut SimCard, bytes: &[u8]) {
    let marked = card.frames::<Marked>().expect("set");
    let id = marked.insert(bytes.to_vec());
    let header = Header { dag: Some(uid(HOME_ROW)), ..Header::default() };
    card.inject(id, &header, bytes.len() as u32);
}

#[test]
fn packets_of_a_remote_chain_come_out_as_of_a_local_one() {
    let first_bytes = [2, 0, 3, 1, 7, 8];
    let frames: Vec<Vec<u8>> = (0..300)
        .map(|number| {
            let mut bytes = frame(number);
            bytes[0] = first_bytes[number % first_bytes.len()];
            bytes
        })
        .collect();
    // The chain that takes packets away or turns them round is the one on the other card.
    let mut local = Rig::new();
    local.load(0, &[NT]);
    local.dag(HOME_ROW, &[&[&[(0, 1, 1)]]]);
    local.card.set_frames(Box::new(Marked::default()));
    let (mut home, mut other) = (card(LINKS), card(LINKS));
    home.load(0, &[NT]);
    other.load(0, &[NT]);
    let stages = home.dag(HOME_ROW, &[&[&[(0, 1, 1)]]]);
    put_on_link(&mut home, stages[0], 0);
    serve_guest(&mut other, 0, 0);
    let mut pool = pool([home, other]);
    (0..2).for_each(|at| pool.card(at).set_frames(Box::new(Marked::default())));
    for bytes in &frames {
        feed(&mut local.card, bytes);
        local.card.run_for(100);
        feed(pool.card(0), bytes);
        pool.run_for(Duration::from_nanos(400));
    }
    local.drain();
    drain(&mut pool, 2);
    let expected = &local.card.frames::<Marked>().expect("set").out;
    let found = &pool.card(0).frames::<Marked>().expect("set").out;
    assert_eq!(expected.len(), 250, "a sixth is dropped");
    assert_eq!(found, expected, "each byte, in the same order");
    assert_eq!(drops_of(pool.card(0), HOME_ROW), BTreeMap::from([(DropCause::ByNt, 50)]));
    let other = pool.card(1).frames::<Marked>().expect("set");
    assert!(other.out.is_empty() && other.frames.is_empty(), "nothing leaves or stays there");
    let away = pool.card(0).link_counters(0);
    assert_eq!((away.away, away.stray, away.frames_out, away.frames_in), (0, 0, 300, 300));
}

#[test]
fn a_chain_in_the_middle_of_a_dag_is_on_another_card() {
    let mut local = Rig::new();
    local.load(0, &[NT]);
    local.load(1, &[NT]);
    local.dag(HOME_ROW, &[&[&[(0, 1, 1)]], &[&[(0, 1, 1)]], &[&[(1, 1, 1)]]]);
    local.card.set_frames(Box::new(Marked::default()));
    let mut pool = pool(two_cards(LinkProfile { count: 1, ..LINKS }));
    (0..2).for_each(|at| pool.card(at).set_frames(Box::new(Marked::default())));
    for number in 0..200 {
        let mut bytes = frame(number);
        bytes[0] = 2;
        feed(&mut local.card, &bytes);
        local.card.run_for(50);
        feed(pool.card(0), &bytes);
        pool.run_for(Duration::from_nanos(200));
    }
    local.drain();
    drain(&mut pool, 2);
    let expected = &local.card.frames::<Marked>().expect("set").out;
    assert_eq!(expected.len(), 200);
    assert_eq!(&pool.card(0).frames::<Marked>().expect("set").out, expected);
}

/// Packets that tasks make for a guest have no way back: they are counted as lost, and nothing of them leaves there.
#[test]
fn what_a_guests_tasks_make_does_not_leave_the_other_card() {
    let mut pool = pool(two_cards(LinkProfile { count: 1, ..LINKS }));
    pool.card(0).set_frames(Box::new(Marked::default()));
    pool.card(1).set_frames(Box::new(Marked { makes: true, ..Marked::default() }));
    let mut bytes = frame(1);
    bytes[0] = 2;
    feed(pool.card(0), &bytes);
    drain(&mut pool, 2);
    assert_eq!(pool.card(0).frames::<Marked>().expect("set").out.len(), 1);
    assert!(pool.card(1).frames::<Marked>().expect("set").out.is_empty());
    assert_eq!(drops_of(pool.card(1), GUEST_ROW), BTreeMap::from([(DropCause::LinkLost, 1)]));
}

fn source(row: u16, gbps: u64) -> TrafficSource {
    TrafficSource::of_dag(uid(row), Bandwidth::from_gbps(gbps), Sizes::Fixed(1_024))
}

#[test]
fn a_link_that_is_cut_loses_its_packets_and_disturbs_nobody() {
    let served = |cut: bool| {
        let [mut home, other] = two_cards(LinkProfile { count: 1, ..LINKS });
        home.load(2, &[NT]);
        home.dag(2, &[&[&[(2, 1, 1)]]]);
        let mut pool = pool([home, other]);
        pool.card(0).attach(source(HOME_ROW, 10)).expect("valid");
        pool.card(0).attach(source(2, 20)).expect("valid");
        pool.run_for(500 * US);
        assert!(drops_of(pool.card(0), HOME_ROW).is_empty());
        let before = pool.card(0).take_measurements();
        pool.cut(0, 1, cut);
        pool.run_for(5_000 * US);
        let during = pool.card(0).take_measurements();
        let drops = during.dag(HOME_ROW).expect("sent").drops;
        pool.cut(0, 1, false);
        pool.run_for(3_000 * US);
        pool.card(0).take_measurements();
        pool.run_for(500 * US);
        let after = pool.card(0).take_measurements();
        pool.check().expect("nothing is lost");
        let of = |row| [&before, &during, &after].map(|m| m.dag(row).expect("sent").served);
        (of(HOME_ROW), of(2), drops, pool.losses())
    };
    let (whole, beside, drops, losses) = served(false);
    assert_eq!((drops.iter().sum::<u64>(), losses.cut), (0, 0));
    let (remote, local, drops, losses) = served(true);
    assert_eq!(local, beside, "the DAG beside it is served as before");
    assert_eq!(remote[0], whole[0]);
    assert!(remote[1].get() < whole[1].get() / 20, "nothing comes back: {remote:?}");
    assert!(
        remote[2].get().abs_diff(whole[2].get()) < whole[2].get() / 100,
        "{remote:?} {whole:?}"
    );
    let [full, lost] = [DropCause::LinkFull, DropCause::LinkLost].map(|c| drops[c as usize]);
    assert!(full > 1_000 && lost > 250, "{full} found no room, {lost} did not come back");
    assert_eq!(full + lost, drops.iter().sum::<u64>());
    assert!(losses.cut > 250, "{losses:?}");
}

/// A chain of another tenant, of another UID, of another link, of a row that is no guest's, of none.
#[test]
fn what_no_guest_can_have_sent_is_dropped_and_counted() {
    let [home, mut other] = two_cards(LinkProfile { count: 2, ..LINKS });
    other.load(1, &[NT]);
    other.dag(7, &[&[&[(1, 1, 1)]]]);
    let mut pool = pool([home, other]);
    let good = LinkDescriptor {
        home_uid: uid(HOME_ROW).raw(),
        tenant: 1,
        stage: 0,
        version: 1,
        entry: GUEST_ROW,
        token: 1 << 32,
    };
    let forged = [
        (0, LinkDescriptor { tenant: 2, ..good }, 100),
        (0, LinkDescriptor { home_uid: uid(2).raw(), ..good }, 100),
        (0, LinkDescriptor { entry: 7, ..good }, 100),
        (0, LinkDescriptor { entry: 8, ..good }, 100),
        (0, LinkDescriptor { entry: u16::MAX, ..good }, 100),
        (1, good, 100),
        (0, good, 0),
        (0, good, 100_000),
    ];
    for (link, descriptor, bytes) in forged {
        let now = pool.now();
        let message = LinkMessage::Packet;
        let frame = LinkFrame { descriptor, message, bytes, payload: Arc::default() };
        pool.card(1).link_arrives(link, now, frame);
        pool.run_for(20 * US);
    }
    let (came, out, drops) = pool.card(1).totals();
    assert_eq!((came, out, drops[DropCause::NoGuest as usize]), (8, 0, 8));
    let of_dags = [GUEST_ROW, 7].map(|row| pool.card(1).measurements().dag(row).is_some());
    assert_eq!(of_dags, [false; 2], "no DAG has them in its counts");
    assert_eq!(pool.card(1).read(link(0, LINK_REFUSED)), Ok(7));
    // The answers are for nobody at home. That of the other link goes to another card, so it stays out.
    assert_eq!(pool.card(0).read(link(0, LINK_STRAY)), Ok(7));
    // The good one is served, and its answer is for nobody.
    let frame = LinkFrame {
        descriptor: good,
        message: LinkMessage::Packet,
        bytes: 100,
        payload: Arc::default(),
    };
    let now = pool.now();
    pool.card(1).link_arrives(0, now, frame);
    drain(&mut pool, 2);
    assert_eq!(pool.card(1).totals().1, 1);
    assert_eq!(pool.card(0).link_counters(0).stray, 8);
    assert_eq!(pool.card(0).totals(), (0, 0, [0; DropCause::ALL.len()]));
}

/// An answer that names another link, stage, version, DAG or number leaves the packet where it is.
#[test]
fn an_answer_for_another_packet_is_none() {
    let [mut home, _] = two_cards(LinkProfile { count: 2, ..LINKS });
    home.send_alone(HOME_ROW, 1);
    home.card.run_for(5_000);
    let sent = home.card.take_link_frames();
    let [sent] = &sent[..] else { panic!("{sent:?}") };
    let good = sent.frame.descriptor;
    assert_eq!((good.home_uid, good.tenant, good.entry), (uid(HOME_ROW).raw(), 1, GUEST_ROW));
    let back = |descriptor, bytes| LinkFrame {
        descriptor,
        message: LinkMessage::Back { turned: false },
        bytes,
        payload: Arc::default(),
    };
    let others = [
        (1, good, 64),
        (0, LinkDescriptor { stage: good.stage + 1, ..good }, 64),
        (0, LinkDescriptor { version: good.version - 1, ..good }, 64),
        (0, LinkDescriptor { home_uid: good.home_uid + 1, ..good }, 64),
        (0, LinkDescriptor { entry: good.entry + 1, ..good }, 64),
        (0, LinkDescriptor { token: good.token + 1, ..good }, 64),
        (0, LinkDescriptor { token: good.token + (1 << 32), ..good }, 64),
        (0, LinkDescriptor { token: good.token & 0xffff_ffff, ..good }, 64),
        (0, good, 0),
        (0, good, 100_000),
    ];
    for (number, (link, descriptor, bytes)) in (1..).zip(others) {
        let now = home.card.now();
        home.card.link_arrives(link, now, back(descriptor, bytes));
        home.card.run_for(1_000);
        assert_eq!(home.card.packets_in_flight(), 1, "answer {number} is for it");
        let stray = [0, 1].map(|link| home.card.link_counters(link).stray);
        assert_eq!(stray.iter().sum::<u64>(), number);
    }
    let now = home.card.now();
    home.card.link_arrives(0, now, back(good, 64));
    home.card.run_for(1_000);
    assert_eq!((home.card.packets_in_flight(), home.card.totals().1), (0, 1));
    home.card.link_arrives(0, now, back(good, 64));
    home.card.run_for(1_000);
    assert_eq!(home.card.link_counters(0).stray, 10, "a second time it is for nobody");
    home.check();
}

/// Only the guest's packets are served by its row: not those that a sender of the other card names it for.
#[test]
fn a_sender_of_the_other_card_cannot_use_the_row_of_a_guest() {
    let mut pool = pool(two_cards(LinkProfile { count: 1, ..LINKS }));
    pool.card(1).attach(source(GUEST_ROW, 1).at_most(10)).expect("valid");
    drain(&mut pool, 2);
    let (came, out, drops) = pool.card(1).totals();
    assert_eq!((came, out, drops[DropCause::StaleUid as usize]), (10, 0, 10));
}

#[test]
fn a_card_without_such_a_link_refuses_the_rows_with_a_status_of_their_own() {
    let rows: [fn(&mut TableImage); 2] = [
        |image| {
            image.set(0, &InstanceRow::on_link(1, GUEST_ROW, 1)).expect("there");
        },
        |image| {
            let row = image.get::<DagRow>(HOME_ROW).expect("programmed");
            let guest = Some(Guest { link: 1, home_uid: 7 });
            image.set(HOME_ROW, &DagRow { guest, ..row }).expect("there");
        },
    ];
    let one = LinkProfile { count: 1, ..LINKS };
    let two = LinkProfile { count: 2, ..LINKS };
    for (links, refuses) in [(None, true), (Some(one), true), (Some(two), false)] {
        for change in rows {
            let profile = CardProfile { links, ..linked() };
            let mut rig = Rig::with(profile, 1, PlaneOptions::default());
            rig.load(0, &[NT]);
            rig.dag(HOME_ROW, &[&[&[(0, 1, 1)]]]);
            rig.card.run_for(5_000);
            let count = links.map_or(0, |links| links.count.into());
            assert_eq!(rig.card.read(LINK_COUNT), Ok(count));
            let capabilities = rig.card.read(CAPABILITIES).expect("there");
            assert_eq!(capabilities & CAPABILITY_LINKS != 0, links.is_some());
            let mut target = rig.image.clone();
            change(&mut target);
            for (key, words) in rig.image.delta_to(&target).rows() {
                let at = shadow_row(key).expect("there");
                rig.card.write_block(at, words).expect("there");
            }
            rig.card.write(COMMIT, rig.version + 1).expect("there");
            let status = rig.card.read(COMMIT_STATUS).expect("there");
            assert_eq!(status == COMMIT_NO_LINK, refuses, "{links:?}: {status}");
            if refuses {
                assert_eq!(rig.card.read(TABLE_VERSION), Ok(rig.version));
                rig.card.write(ABORT, 1).expect("there");
                rig.card.run_for(5_000);
                assert_eq!(rig.card.read(COMMIT_STATUS), Ok(COMMIT_IDLE));
                rig.program(|_| {});
                rig.send_alone(HOME_ROW, 3);
                rig.drain();
                assert_eq!(rig.card.totals().1, 3, "packets go on as before");
            }
        }
    }
}

/// The frame behind NTs with these numbers, of which a mark has the lower half.
fn marked(frame: &[u8], nts: [u8; 3]) -> Vec<u8> {
    nts.into_iter().fold(frame.to_vec(), |mut bytes, nt| {
        bytes.push(bytes.iter().fold(nt, |sum, byte| sum.rotate_left(1) ^ byte));
        bytes
    })
}

/// Each commit turns the chains before and behind the one on the other card round. Packets that are away meanwhile go on by
/// the rows that they began with.
#[test]
fn no_packet_sees_two_versions_of_its_home_cards_rows() {
    let links = LinkProfile { count: 1, ..LINKS };
    let (mut home, mut other) = (card(links), card(links));
    home.load(0, &[(10, 100)]);
    home.load(1, &[(11, 100)]);
    other.load(0, &[(12, 100)]);
    let stages = home.dag(HOME_ROW, &[&[&[(0, 1, 1)]], &[&[(0, 1, 1)]], &[&[(1, 1, 1)]]]);
    put_on_link(&mut home, stages[1], 0);
    serve_guest(&mut other, 0, 0);
    let mut pool = pool([home, other]);
    (0..2).for_each(|at| pool.card(at).set_frames(Box::new(Marked::default())));
    pool.run_for(20 * US);
    let mut number = 0;
    for round in 0..40_u8 {
        let card = pool.card(0);
        assert_eq!(card.read(COMMIT_STATUS), Ok(COMMIT_IDLE), "round {round}");
        let (before, mut image) = (card.active_tables(), card.active_tables());
        for (stage, region) in [(stages[0], round % 2), (stages[2], 1 - round % 2)] {
            let chain = image.get::<StageRow>(stage).expect("a stage").chains[0];
            let instance = image.get::<ChainRow>(chain).expect("a chain").first_instance;
            image.set(instance, &InstanceRow::in_region(region, 1, 1)).expect("there");
        }
        for (key, words) in before.delta_to(&image).rows() {
            card.write_block(shadow_row(key).expect("there"), words).expect("there");
        }
        let version = card.read(TABLE_VERSION).expect("there") + 1;
        card.write(COMMIT, version).expect("there");
        for _ in 0..40 {
            number += 1;
            let mut bytes = frame(number);
            bytes[0] = 7;
            feed(pool.card(0), &bytes);
            pool.run_for(Duration::from_nanos(400));
        }
    }
    drain(&mut pool, 2);
    let out = &pool.card(0).frames::<Marked>().expect("set").out;
    assert_eq!(out.len(), number);
    let mut turned = [0, 0];
    for (bytes, _) in out {
        let sent = &bytes[..bytes.len() - 3];
        let ways = [[10, 12, 11], [11, 12, 10]]
            .map(|ids| marked(sent, ids.map(|id| Rig::nt((id, 100)).id.code().0 as u8)));
        let way = ways.iter().position(|way| way == bytes);
        turned[way.expect("one order or the other")] += 1;
    }
    assert!(turned.iter().all(|packets| *packets > 500), "{turned:?}");
}

/// However often both cards commit, they wait for the packets that are away or of the other card, and all come back.
#[test]
fn commits_wait_for_packets_that_are_away() {
    let mut pool = pool(two_cards(LinkProfile { count: 1, ..LINKS }));
    pool.card(0).attach(source(HOME_ROW, 20)).expect("valid");
    pool.run_for(50 * US);
    let mut waited = 0;
    for round in 0..40 {
        for at in 0..2 {
            let card = pool.card(at);
            let version = card.read(TABLE_VERSION).expect("there") + 1;
            card.write(COMMIT, version).expect("there");
            assert_eq!(card.read(TABLE_VERSION), Ok(version), "round {round}");
            waited += u32::from(card.read(COMMIT_STATUS) == Ok(COMMIT_BUSY));
        }
        pool.run_for(12 * US);
        let done = [0, 1].map(|at| pool.card(at).read(COMMIT_STATUS).expect("there"));
        assert_eq!(done, [COMMIT_IDLE; 2], "packets are back after 12 µs");
    }
    assert_eq!(waited, 80);
    let (_, out, drops) = pool.card(0).totals();
    assert!(out > 1_000 && drops.iter().sum::<u64>() == 0, "{out} {drops:?}");
    assert_eq!(pool.card(1).totals().2, [0; DropCause::ALL.len()]);
}

#[test]
fn a_commit_ends_although_packets_that_are_away_never_come_back() {
    let mut pool = pool(two_cards(LinkProfile { count: 1, ..LINKS }));
    pool.card(0).attach(source(HOME_ROW, 10).at_most(50)).expect("valid");
    pool.cut(0, 1, true);
    pool.run_for(100 * US);
    let card = pool.card(0);
    let version = card.read(TABLE_VERSION).expect("there") + 1;
    card.write(COMMIT, version).expect("there");
    pool.run_for(1_800 * US);
    assert_eq!(pool.card(0).read(COMMIT_STATUS), Ok(COMMIT_BUSY), "they may still come");
    assert_eq!(pool.card(0).packets_in_flight(), 50);
    pool.run_for(200 * US);
    assert_eq!(pool.card(0).read(COMMIT_STATUS), Ok(COMMIT_IDLE));
    let lost = BTreeMap::from([(DropCause::LinkLost, 50)]);
    assert_eq!(drops_of(pool.card(0), HOME_ROW), lost);
    drain(&mut pool, 2);
}

/// The other card serves a fiftieth of what comes: home keeps no more than the window for it, and serves its other DAG whole.
#[test]
fn a_slow_card_fills_neither_the_store_of_the_home_card_nor_the_link_of_others() {
    let (mut home, mut other) = (card(LINKS), card(LINKS));
    home.load(0, &[NT]);
    other.load(0, &[(10, 1)]);
    other.load(1, &[NT]);
    let stages = home.dag(HOME_ROW, &[&[&[(0, 1, 1)]]]);
    put_on_link(&mut home, stages[0], 0);
    serve_guest(&mut other, 0, 0);
    // A second DAG through the same link, to a chain that is fast, and one that stays at home.
    let stages = home.dag(2, &[&[&[(0, 1, 1)]]]);
    home.program(|image| {
        let chain = image.get::<StageRow>(stages[0]).expect("a stage").chains[0];
        let instance = image.get::<ChainRow>(chain).expect("a chain").first_instance;
        image.set(instance, &InstanceRow::on_link(0, 6, 1)).expect("there");
    });
    home.dag(3, &[&[&[(0, 1, 1)]]]);
    other.dag(6, &[&[&[(1, 1, 1)]]]);
    let guest = Some(Guest { link: 0, home_uid: uid(2).raw() });
    other.program(|image| {
        let row = image.get::<DagRow>(6).expect("programmed");
        image.set(6, &DagRow { guest, ..row }).expect("there");
    });
    let mut pool = pool([home, other]);
    for (row, gbps) in [(HOME_ROW, 50), (2, 10), (3, 20)] {
        pool.card(0).attach(source(row, gbps)).expect("valid");
    }
    let window = linked().packet_store.get() / 4;
    for _ in 0..200 {
        pool.run_for(20 * US);
        let away = pool.card(0).link_counters(0).away;
        assert!(away <= window, "{away} bytes are away, {window} may");
    }
    let measured = pool.card(0).measurements();
    let of = |row| measured.dag(row).expect("sent");
    let slow = of(HOME_ROW);
    assert!(slow.served.gbps_f64() < 1.2, "{}", slow.served);
    let only_full = slow.drops.iter().sum::<u64>() - slow.drops[DropCause::LinkFull as usize];
    let late = slow.drops[DropCause::LinkLost as usize];
    assert_eq!(only_full, late, "{:?}", slow.drops);
    for (row, gbps) in [(2, 10.0), (3, 20.0)] {
        assert_eq!(of(row).drops.iter().sum::<u64>(), 0, "DAG {row}");
        assert!(of(row).served.gbps_f64() > 0.98 * gbps, "DAG {row}: {}", of(row).served);
    }
    pool.check().expect("nothing is lost");
}

fn limits(kbps: u32) -> RateLimiterRow {
    RateLimiterRow {
        rate_kbps: kbps,
        burst_bytes: 16_384,
        promised_kbps: kbps,
        packet_bytes: 0,
        weight: 1,
    }
}

/// The other card's own DAG has 40 Gbit/s of a region of 100; guests come with 0 to 100 Gbit/s, and 50 are promised to them.
#[test]
fn the_other_cards_own_dags_keep_their_promises_while_guests_grow() {
    let mut foreground = Vec::new();
    for guests in [0, 25, 50, 75, 100] {
        let (mut home, mut other) = (card(LINKS), card(LINKS));
        home.load(0, &[NT]);
        other.load(0, &[NT]);
        let stages = home.dag(HOME_ROW, &[&[&[(0, 1, 1)]]]);
        put_on_link(&mut home, stages[0], 0);
        serve_guest(&mut other, 0, 0);
        other.dag(9, &[&[&[(0, 1, 1)]]]);
        for (row, kbps) in [(9, 40_000_000), (GUEST_ROW, 50_000_000)] {
            other.program(|image| {
                let dag = image.get::<DagRow>(row).expect("programmed");
                image.set(row, &DagRow { rate_limiter: row, ..dag }).expect("there");
                // What guests may have beyond their promise is what is left.
                let rate = if row == 9 { kbps } else { 100_000_000 };
                let row_limits = RateLimiterRow { rate_kbps: rate, ..limits(kbps) };
                image.set(row, &row_limits).expect("there");
            });
        }
        let mut pool = pool([home, other]);
        if guests > 0 {
            pool.card(0).attach(source(HOME_ROW, guests)).expect("valid");
        }
        pool.card(1).attach(source(9, 39)).expect("valid");
        pool.run_for(500 * US);
        (0..2).for_each(|at| drop(pool.card(at).take_measurements()));
        pool.run_for(2_000 * US);
        let measured = pool.card(1).take_measurements();
        let own = measured.dag(9).expect("sent");
        assert_eq!(own.drops.iter().sum::<u64>(), 0, "with guests of {guests}");
        foreground.push(own.served.gbps_f64());
        let home = pool.card(0).take_measurements();
        let served = home.dag(HOME_ROW).map_or(0.0, |dag| dag.served.gbps_f64());
        let due = (guests as f64).min(50.0);
        assert!(served >= 0.97 * due, "guests of {guests} are served {served} of {due} Gbit/s");
        pool.check().expect("nothing is lost");
    }
    assert!(foreground.iter().all(|gbps| (gbps - 39.0).abs() < 0.2), "{foreground:?}");
}

#[test]
fn a_ring_takes_longer_the_farther_the_other_card_is_and_a_switch_always_the_same() {
    let latency = |shape, cards: usize, to: usize| {
        let mut rigs: Vec<Rig> = (0..cards).map(|_| card(LINKS)).collect();
        rigs.iter_mut().for_each(|rig| rig.load(0, &[NT]));
        let stages = rigs[0].dag(HOME_ROW, &[&[&[(0, 1, 1)]]]);
        put_on_link(&mut rigs[0], stages[0], (to - 1) as u8);
        serve_guest(&mut rigs[to], (cards - to - 1) as u8, 0);
        let cards = rigs.into_iter().map(|rig| rig.card).collect();
        let mut pool = CardPool::new(cards, shape).expect("they have links");
        pool.card(0).attach(source(HOME_ROW, 1).at_most(3)).expect("valid");
        pool.run_for(200 * US);
        pool.check().expect("nothing is lost");
        let measured = pool.card(0).measurements();
        let dag = measured.dag(HOME_ROW).expect("sent");
        assert_eq!((dag.latency.count, dag.latency.min), (3, dag.latency.max));
        dag.latency_mean_nanos()
    };
    let ring: Vec<f64> = (1..8).map(|to| latency(PoolShape::Ring, 8, to)).collect();
    let switch: Vec<f64> = (1..8).map(|to| latency(PoolShape::Switch, 8, to)).collect();
    assert!(switch.iter().all(|nanos| nanos == &switch[0]), "{switch:?}");
    // A hop more is its latency and a frame's time on the cable, there and back: 2 · (500 + 84.48) ns.
    let hop = 2.0 * (500.0 + 84.48);
    for (at, distance) in [1, 2, 3, 4, 3, 2, 1].into_iter().enumerate() {
        let expected = ring[0] + f64::from(distance - 1) * hop;
        assert!((ring[at] - expected).abs() <= 16.0, "{ring:?}: {expected} to card {}", at + 1);
    }
    assert!((switch[0] - ring[1]).abs() <= 16.0, "a switch is two cables");
}

/// Two cards of a ring send through the card between them and its neighbour: what passes takes part of the cables.
#[test]
fn traffic_that_passes_takes_bandwidth_of_the_cables_between() {
    let served = |passing: bool| {
        let mut rigs: Vec<Rig> = (0..5).map(|_| card(LINKS)).collect();
        rigs.iter_mut().for_each(|rig| rig.load(0, &[NT]));
        // Card 0 has its chain on card 2, card 1 on card 2: both use the cable from 1 to 2.
        for (from, to) in [(0, 2), (1, 2)] {
            let stages = rigs[from].dag(HOME_ROW, &[&[&[(0, 1, 1)]]]);
            put_on_link(&mut rigs[from], stages[0], (to - from - 1) as u8);
        }
        rigs[2].load(1, &[NT]);
        serve_guest(&mut rigs[2], 2, 0);
        let row = GUEST_ROW + 1;
        rigs[2].dag(row, &[&[&[(1, 1, 1)]]]);
        let guest = Some(Guest { link: 3, home_uid: uid(HOME_ROW).raw() });
        rigs[2].program(|image| {
            let dag = image.get::<DagRow>(row).expect("programmed");
            image.set(row, &DagRow { guest, ..dag }).expect("there");
        });
        rigs[1].program(|image| {
            image.set(0, &InstanceRow::on_link(0, row, 1)).expect("there");
        });
        let cards = rigs.into_iter().map(|rig| rig.card).collect();
        let mut pool = CardPool::new(cards, PoolShape::Ring).expect("they have links");
        if passing {
            pool.card(0).attach(source(HOME_ROW, 60)).expect("valid");
        }
        pool.card(1).attach(source(HOME_ROW, 60)).expect("valid");
        pool.run_for(1_000 * US);
        (0..2).for_each(|at| drop(pool.card(at).take_measurements()));
        pool.run_for(2_000 * US);
        pool.check().expect("nothing is lost");
        let of = |card: &mut SimCard| {
            let measured = card.take_measurements();
            measured.dag(HOME_ROW).map_or(0.0, |dag| dag.served.gbps_f64())
        };
        [of(pool.card(0)), of(pool.card(1))]
    };
    let alone = served(false);
    assert!(alone[1] > 59.0, "{alone:?}");
    let both = served(true);
    let sum = both[0] + both[1];
    assert!((90.0..=100.0).contains(&sum), "one cable of 100 Gbit/s: {both:?}");
}

/// Whatever is sent, cut and mended: what came into a card is out, dropped for a cause, or still there.
#[test]
fn packets_are_conserved_on_each_card_whatever_happens_to_cables() {
    let mut rigs: Vec<Rig> = (0..3).map(|_| card(LINKS)).collect();
    rigs.iter_mut().for_each(|rig| rig.load(0, &[(20, 30)]));
    for home in &mut rigs {
        // To the next card.
        let stages = home.dag(HOME_ROW, &[&[&[(0, 1, 1)]], &[&[(0, 1, 1)]]]);
        put_on_link(home, stages[1], 0);
    }
    for rig in &mut rigs {
        serve_guest(rig, 1, 0);
        rig.limit(GUEST_ROW, Bandwidth::from_gbps(8), 20_000);
    }
    let cards = rigs.into_iter().map(|rig| rig.card).collect();
    let mut pool = CardPool::new(cards, PoolShape::Ring).expect("they have links");
    for at in 0..3 {
        pool.card(at).attach(source(HOME_ROW, 6 + 6 * at as u64)).expect("valid");
    }
    for round in 0..60usize {
        pool.run_for(Duration::from_micros(100 + 37 * (round as u64 % 7)));
        pool.check().expect("nothing is lost");
        pool.cut(round % 3, (round + 1) % 3, round % 5 < 2);
        if round == 30 {
            // What was away is forgotten with the power, and answers for it are stray.
            pool.card(1).power_cycle();
        }
    }
    let causes: Vec<_> = (0..3).map(|at| pool.card(at).totals().2).collect();
    let lost = |cause: DropCause| causes.iter().map(|drops| drops[cause as usize]).sum::<u64>();
    assert!(lost(DropCause::LinkLost) > 0 && lost(DropCause::LinkFull) > 0, "{causes:?}");
    assert!(lost(DropCause::RateLimited) > 0, "{causes:?}");
}

#[test]
fn cards_that_cannot_be_connected_are_refused_with_the_reason() {
    let sim = |links| {
        let profile = CardProfile { links, ..rig::profile() };
        SimCard::new(profile, 1).expect("valid")
    };
    let one = LinkProfile { count: 1, ..LINKS };
    let of = |cards: &[Option<LinkProfile>]| {
        let cards = cards.iter().map(|links| sim(*links)).collect();
        CardPool::new(cards, PoolShape::Ring).map(|_| ())
    };
    assert_eq!(of(&[Some(one)]), Err(InvalidPool::TooFew(1)));
    let links = |card, links, cards| Err(InvalidPool::Links { card, links, cards });
    assert_eq!(of(&[None, None]), links(0, 0, 2));
    assert_eq!(of(&[Some(one); 3]), links(0, 1, 3));
    assert_eq!(of(&[Some(one), Some(LINKS)]), links(1, 7, 2));
    assert_eq!(of(&[Some(one); 2]), Ok(()));
    let wrong = [
        (LinkProfile { count: 0, ..LINKS }, "links.count"),
        (LinkProfile { count: 17, ..LINKS }, "links.count"),
        (LinkProfile { capacity: Bandwidth::ZERO, ..LINKS }, "links.capacity"),
        (LinkProfile { latency_nanos: 0, ..LINKS }, "links.latency_nanos"),
    ];
    for (links, key) in wrong {
        let profile = CardProfile { links: Some(links), ..rig::profile() };
        let error = SimCard::new(profile, 1).expect_err("no such links");
        assert_eq!(error.key, key);
    }
}

/// Steering by load sees what is away: a chain with one instance here and one there uses both.
#[test]
fn a_chain_may_have_instances_on_both_cards() {
    let (mut home, mut other) = (card(LINKS), card(LINKS));
    home.load(0, &[(10, 20)]);
    other.load(0, &[(10, 20)]);
    home.dag(HOME_ROW, &[&[&[(0, 1, 1), (0, 1, 1)]]]);
    home.program(|image| {
        image.set(1, &InstanceRow::on_link(0, GUEST_ROW, 1)).expect("there");
        let row = ChainRow { first_instance: 0, instances: 2, steering: Steering::LeastLoaded };
        image.set(0, &row).expect("there");
    });
    serve_guest(&mut other, 0, 0);
    assert_eq!(home.image.get::<StageRow>(0).expect("there").next, NONE);
    let mut pool = pool([home, other]);
    pool.card(0).attach(source(HOME_ROW, 30)).expect("valid");
    pool.run_for(200 * US);
    pool.card(0).take_measurements();
    pool.run_for(1_000 * US);
    let served = pool.card(0).take_measurements();
    let served = served.dag(HOME_ROW).expect("sent").served.gbps_f64();
    assert!(served > 29.0, "{served} Gbit/s, and one instance has 20");
}
