//! Regions that do what no region should: they change nobody else's packets, and the card gets over them.

use snic_integration_rtl::{RegionConduct, SentPacket};
use snic_ports::card::Registers;
use snic_tables::DropCause;
use snic_tables::registers::*;

use crate::packets::{Pair, number, uid};

/// The region that is hostile, and the rows of the DAGs that go there and elsewhere.
const REGION: u8 = 2;
const ITS_ROW: u16 = 2;
const OTHERS: [u16; 2] = [1, 3];

/// Result of what a region does for its own packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// They come out as if nothing were.
    Out,
    /// They end as packets that an NT dropped.
    Dropped,
    /// They stay until the region is reset.
    Stuck,
    /// Each ends as the one before it, which has another length; the last one stays.
    Shifted,
}

impl Fate {
    fn sticks(self) -> bool {
        matches!(self, Self::Stuck | Self::Shifted)
    }
}

const CONDUCTS: [(RegionConduct, Fate); 13] = [
    (RegionConduct::Swallows, Fate::Stuck),
    (RegionConduct::NeverReady, Fate::Stuck),
    (RegionConduct::Duplicates, Fate::Out),
    (RegionConduct::ForgesPlace, Fate::Stuck),
    (RegionConduct::ForgesRegion, Fate::Stuck),
    (RegionConduct::NoEnd, Fate::Stuck),
    (RegionConduct::Babbles, Fate::Stuck),
    (RegionConduct::Shorter, Fate::Dropped),
    (RegionConduct::Longer, Fate::Dropped),
    (RegionConduct::NoBytes, Fate::Dropped),
    (RegionConduct::Drops, Fate::Dropped),
    (RegionConduct::Late, Fate::Shifted),
    (RegionConduct::Stutters, Fate::Out),
];

impl Pair {
    /// Packets of three DAGs in turns, those of the hostile region's more often.
    fn mixed(&mut self, count: usize) -> Vec<SentPacket> {
        let cycle = self.cycle() + 20;
        (0..count)
            .map(|place| {
                let row = if place % 8 < 2 { OTHERS[place % 8] } else { ITS_ROW };
                let bytes = 64 + place * 37 % 300;
                self.packet(Some(uid(row, 1)), bytes, cycle)
            })
            .collect()
    }

    fn pass(&mut self, packets: &[SentPacket]) {
        self.shell.process().send_packets(packets).expect("it is there");
        for _ in 0..1_000 {
            self.step(100);
            if self.shell.process().arrived_packets().expect("it is there").0 == 0 {
                return self.step(20_000);
            }
        }
        panic!("the port takes no packets");
    }

    /// Whether each packet of these DAGs came out once and in order, with its bytes, and no other of theirs did.
    fn came_out(&mut self, sent: &[SentPacket], rows: &[u16]) -> bool {
        let of_rows = |packet: &&SentPacket| {
            rows.contains(&((packet.uid.expect("there is one") & 1_023) as u16))
        };
        let all = self.received();
        rows.iter().all(|row| {
            let is_of = |packet: &&SentPacket| packet.uid == Some(uid(*row, 1));
            let expected: Vec<&[u8]> = sent.iter().filter(is_of).map(|p| &p.bytes[..]).collect();
            let of_row: Vec<u32> = sent.iter().filter(is_of).map(|p| number(&p.bytes)).collect();
            let out: Vec<&[u8]> = all
                .iter()
                .filter(|packet| of_row.contains(&number(&packet.bytes)))
                .map(|packet| &packet.bytes[..])
                .collect();
            out == expected
        }) && sent.iter().filter(of_rows).count() > 0
    }

    /// Small packets of a DAG: how many come out, and how many do not end.
    fn pass_small(&mut self, row: u16, count: usize) -> (usize, u64) {
        let cycle = self.cycle();
        let all: Vec<_> = (0..count).map(|_| self.packet(Some(uid(row, 1)), 64, cycle)).collect();
        self.pass(&all);
        (self.received().len(), self.under_way())
    }

    fn drops(&mut self, cause: DropCause) -> u64 {
        self.counter(DROPS + 8 * cause as u32)
    }

    /// Packets that came and are neither out nor dropped.
    fn under_way(&mut self) -> u64 {
        let gone: u64 = DropCause::ALL.map(|cause| self.drops(cause)).iter().sum();
        self.counter(PACKETS_IN) - self.counter(PACKETS_OUT) - gone
    }

    fn three_dags(&mut self) {
        self.region_rows();
        self.dag(OTHERS[0], 1, &vec![(0, 0b11)], true);
        self.dag(ITS_ROW, 1, &vec![(REGION, 0b1)], true);
        self.dag(OTHERS[1], 1, &vec![(1, 0b1)], false);
        self.commit();
        self.rest();
    }
}

#[test]
fn a_hostile_region_changes_nobody_elses_packets() {
    for (place, (conduct, fate)) in CONDUCTS.into_iter().enumerate() {
        let Some(mut pair) = Pair::new(70 + place as u32) else { return };
        pair.three_dags();
        pair.shell.process().set_conduct(REGION, conduct).expect("it is there");
        let sent = pair.mixed(800);
        pair.pass(&sent);
        let rows = if fate == Fate::Out { vec![1, 2, 3] } else { OTHERS.to_vec() };
        assert!(pair.came_out(&sent, &rows), "{conduct:?}");
        for row in OTHERS {
            let of_row = DAG_LOAD + 32 * u32::from(row);
            assert_eq!(pair.counter(of_row), 100, "{conduct:?}");
            assert_eq!(pair.counter(of_row), pair.counter(of_row + 24), "{conduct:?}");
            assert_eq!(pair.counter(of_row + 8), pair.counter(of_row + 16), "{conduct:?}");
        }
        let (full, by_nt) = (pair.drops(DropCause::StoreFull), pair.drops(DropCause::ByNt));
        let stuck = pair.under_way();
        assert_eq!(stuck > 0, fate.sticks(), "{conduct:?}: {stuck} under way");
        assert_eq!(
            by_nt > 0,
            matches!(fate, Fate::Dropped | Fate::Shifted),
            "{conduct:?}: {by_nt} dropped by the NT"
        );
        // A region that lets none go has half of the store at most.
        assert_eq!(full > 0, fate == Fate::Stuck, "{conduct:?}: {full} found the store full");
        assert!(stuck <= 257, "{conduct:?}: {stuck} under way");
        commit_and_reset(&mut pair, conduct, fate);
        pair.shell.process().set_conduct(REGION, RegionConduct::Good).expect("it is there");
        pair.step(100);
        pair.received();
        let before = pair.counter(PACKETS_OUT);
        let sent = pair.mixed(160);
        pair.pass(&sent);
        assert!(pair.came_out(&sent, &[1, 2, 3]), "after {conduct:?}");
        assert_eq!(pair.counter(PACKETS_OUT), before + 160, "after {conduct:?}");
        assert_eq!(pair.under_way(), 0, "after {conduct:?}");
    }
}

/// A commit waits for what is stuck, says where, and ends when the region was reset.
fn commit_and_reset(pair: &mut Pair, conduct: RegionConduct, fate: Fate) {
    let version = pair.shell.read(TABLE_VERSION).expect("there");
    pair.shell.write(COMMIT, version + 1).expect("there");
    pair.step(2_000);
    let is_stuck = fate.sticks();
    let status = pair.shell.read(COMMIT_STATUS).expect("there");
    assert_eq!(status, if is_stuck { COMMIT_BUSY } else { COMMIT_IDLE }, "{conduct:?}");
    let waits = pair.shell.read(COMMIT_WAITS).expect("there");
    assert_eq!(waits, u32::from(is_stuck) << REGION, "{conduct:?}");
    assert_eq!(pair.shell.read(TABLE_VERSION), Ok(version + 1), "{conduct:?}");
    let (stuck, before) = (pair.under_way(), pair.drops(DropCause::RegionUnavailable));
    let control = region(REGION, REGION_CONTROL);
    pair.shell.write(control, REGION_DECOUPLE | REGION_RESET).expect("there");
    assert!(stuck == 0 || is_stuck, "{conduct:?}");
    pair.step(2_500);
    assert_eq!(pair.shell.read(COMMIT_STATUS), Ok(COMMIT_IDLE), "{conduct:?}");
    assert_eq!(pair.shell.read(region(REGION, REGION_IN_FLIGHT)), Ok(0), "{conduct:?}");
    assert_eq!(pair.under_way(), 0, "{conduct:?}");
    assert_eq!(pair.drops(DropCause::RegionUnavailable), before + stuck, "{conduct:?}");
    pair.shell.process().set_conduct(REGION, RegionConduct::Good).expect("it is there");
    pair.shell.write(control, REGION_DECOUPLE | REGION_RESET).expect("there");
    pair.step(100);
    pair.shell.write(control, 0).expect("there");
}

/// A region that is taken out in the middle of packets and put back without a reset still has them: they are not taken for others.
#[test]
fn what_a_region_kept_while_it_was_out_is_not_taken_for_what_came_later() {
    let Some(mut pair) = Pair::new(90) else { return };
    pair.three_dags();
    let control = region(REGION, REGION_CONTROL);
    for round in 0..40 {
        let before = pair.counter(PACKETS_OUT) + pair.drops(DropCause::RegionUnavailable);
        let cycle = pair.cycle();
        let lost: Vec<_> =
            (0..30).map(|i| pair.packet(Some(uid(ITS_ROW, 1)), 64 + 40 * i, cycle)).collect();
        pair.shell.process().send_packets(&lost).expect("it is there");
        pair.step(60 + 13 * round);
        pair.shell.write(control, REGION_DECOUPLE).expect("there");
        pair.step(2_000);
        pair.shell.write(control, 0).expect("there");
        pair.step(3_000);
        let after = pair.counter(PACKETS_OUT) + pair.drops(DropCause::RegionUnavailable);
        assert_eq!(after, before + 30, "round {round}");
        for packet in pair.received() {
            let sent = lost.iter().find(|sent| number(&sent.bytes) == number(&packet.bytes));
            assert_eq!(packet.bytes, sent.expect("it was sent").bytes, "round {round}");
        }
        let sent = pair.mixed(40);
        pair.pass(&sent);
        assert!(pair.came_out(&sent, &[1, 2, 3]), "round {round}");
        assert_eq!(pair.under_way(), 0, "round {round}");
    }
    assert!(pair.drops(DropCause::RegionUnavailable) > 100, "too little was tried");
}

/// A place is used again, and a tag names more than the place.
#[test]
fn a_tag_of_before_a_region_was_taken_out_is_none() {
    let Some(mut pair) = Pair::new(91) else { return };
    pair.three_dags();
    let control = region(REGION, REGION_CONTROL);
    pair.shell.process().set_conduct(REGION, RegionConduct::Late).expect("it is there");
    assert_eq!(pair.pass_small(ITS_ROW, 1), (0, 1), "it came with no tag of this card");
    pair.shell.write(control, REGION_DECOUPLE).expect("there");
    pair.step(200);
    pair.shell.write(control, 0).expect("there");
    pair.step(200);
    assert_eq!(pair.pass_small(OTHERS[0], 511), (511, 0), "each other place");
    assert_eq!(pair.pass_small(ITS_ROW, 1), (0, 1), "it came with the place's tag of before");
}
