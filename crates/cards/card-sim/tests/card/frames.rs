//! Packets with bytes: NTs make them longer and shorter, make more of them, drop them and use them up. What
//! they took of the packet store comes back, whatever happens to them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::rig::{Rig, uid};
use proptest::prelude::*;
use snic_card_sim::{FrameAtNt, FrameId, Frames, Header, MadeFrame, NtOutcome, Sighting};
use snic_domain::Timestamp;
use snic_tables::{DagRow, DropCause};

/// Act of the NTs, one after the other.
#[derive(Debug, Clone, Copy)]
enum Deed {
    Resize(u32),
    Back(u32),
    Make(u32, bool),
    Drop,
    UseUp,
}

/// Holds no bytes, and does what it is told.
#[derive(Debug)]
struct Told {
    deeds: Vec<Deed>,
    next: usize,
    made: VecDeque<MadeFrame>,
    numbers: u32,
    ended: u64,
}

impl Frames for Told {
    fn pass(&mut self, passage: &FrameAtNt) -> NtOutcome {
        let deed = self.deeds[self.next % self.deeds.len()];
        self.next += 1;
        match deed {
            Deed::Resize(bytes) => NtOutcome::On { bytes },
            Deed::Back(bytes) => NtOutcome::Back { bytes },
            Deed::Make(bytes, back) => {
                self.numbers += 1;
                self.made.push_back(MadeFrame { frame: FrameId(self.numbers), bytes, back });
                NtOutcome::On { bytes: passage.bytes }
            }
            Deed::Drop => NtOutcome::Dropped,
            Deed::UseUp => NtOutcome::UsedUp,
        }
    }

    fn made(&mut self) -> Option<MadeFrame> {
        self.made.pop_front()
    }

    fn saw(&mut self, _: &Sighting) {}

    fn out(&mut self, _: FrameId, _: bool, _: Timestamp) {
        self.ended += 1;
    }

    fn gone(&mut self, _: FrameId, _: DropCause) {
        self.ended += 1;
    }

    fn committed(
        &mut self,
        _: Timestamp,
        _: &[(u16, Option<DagRow>)],
        _: &BTreeMap<(u32, u32), Arc<[u8]>>,
    ) {
    }

    fn power_lost(&mut self) {}
}

fn deed() -> impl Strategy<Value = Deed> {
    let bytes = || 64_u32..=9_000;
    prop_oneof![
        4 => bytes().prop_map(Deed::Resize),
        1 => bytes().prop_map(Deed::Back),
        2 => (bytes(), any::<bool>()).prop_map(|(bytes, back)| Deed::Make(bytes, back)),
        1 => Just(Deed::Drop),
        1 => Just(Deed::UseUp),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn resources_taken_by_frames_are_released(
        deeds in proptest::collection::vec(deed(), 1..20),
        frames in proptest::collection::vec((64_u32..=9_000, 0_u64..2_000), 1..60),
    ) {
        let mut rig = Rig::new();
        rig.load(0, &[(10, 100), (12, 40)]);
        rig.dag(1, &[&[&[(0, 3, 1)]]]);
        let told = Told { deeds, next: 0, made: VecDeque::new(), numbers: 1_000, ended: 0 };
        rig.card.set_frames(Box::new(told));
        let header = Header { dag: Some(uid(1)), ..Header::default() };
        for (number, (bytes, pause)) in (0..).zip(&frames) {
            rig.card.inject(FrameId(number), &header, *bytes);
            rig.card.run_for(*pause);
            rig.check();
        }
        rig.card.run_for(1_000_000);
        rig.check();
        prop_assert_eq!(rig.card.packets_in_flight(), 0);
        let told = rig.card.frames::<Told>().expect("it was set");
        let made = u64::from(told.numbers - 1_000);
        prop_assert_eq!(told.ended, frames.len() as u64 + made, "each frame leaves once");
    }
}
