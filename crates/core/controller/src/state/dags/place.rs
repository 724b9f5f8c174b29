//! Where a DAG is placed and where it is going: the only writer of placements.
//!
//! ```text
//!                 begin                     begin(next)
//!   Unplaced ───────────────► At ──────────────────────────────► Moving
//!      ▲                      │ ▲                                │  │ ▲
//!      ├──────────────────────┘ └────── arrived, abort ──────────┘  │ │
//!      │        withdraw        ▲                          withdraw │ │ begin(next)
//!      │                        └────────── abort ────────┐         ▼ │
//!      └───────────────────────────── leave ───────────── Stranded ───┘
//! ```
//!
//! While a DAG is `Moving`, the placement that it leaves serves until the card has the next one. It is
//! `Stranded` when what it was moving to is gone and nothing else was found: the old placement serves on.
//! The store has a placement as a pair, the desired one and the one before; see [`PlacementState::stored`].

use snic_domain::{CardId, Infeasible, TenantId};

use crate::store::records::Placement;

/// Where a DAG is placed and where it is going.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PlacementState {
    /// Nowhere. If one was looked for, why none was found.
    Unplaced(Option<Infeasible>),
    /// There, or to be there: the card may not have it yet.
    At(Placement),
    /// On its way from one to the other.
    Moving {
        /// Serves until the next one does.
        serving: Placement,
        /// The one that is desired.
        next: Placement,
    },
    /// Still where it was, and no place is known for what is desired.
    Stranded {
        /// Serves what was desired before.
        serving: Placement,
        /// If a place was looked for, why none was found.
        why: Option<Infeasible>,
    },
}

impl Default for PlacementState {
    fn default() -> Self {
        Self::Unplaced(None)
    }
}

impl PlacementState {
    /// From the store: the desired placement, and the one before it that serves meanwhile.
    pub fn stored(desired: Option<Placement>, previous: Option<Placement>) -> Self {
        match (desired, previous) {
            (None, None) => Self::Unplaced(None),
            (Some(placement), None) => Self::At(placement),
            (Some(next), Some(serving)) => Self::Moving { serving, next },
            (None, Some(serving)) => Self::Stranded { serving, why: None },
        }
    }

    /// The desired placement, if one is known.
    pub const fn desired(&self) -> Option<&Placement> {
        match self {
            Self::At(placement) | Self::Moving { next: placement, .. } => Some(placement),
            Self::Unplaced(_) | Self::Stranded { .. } => None,
        }
    }

    /// The placement that is left and serves until another one does.
    pub const fn previous(&self) -> Option<&Placement> {
        match self {
            Self::Moving { serving, .. } | Self::Stranded { serving, .. } => Some(serving),
            Self::Unplaced(_) | Self::At(_) => None,
        }
    }

    /// All placements: the desired one first.
    pub fn placements(&self) -> impl Iterator<Item = &Placement> {
        self.desired().into_iter().chain(self.previous())
    }

    /// The placement with this serial.
    pub fn placement(&self, serial: u64) -> Option<&Placement> {
        self.placements().find(|placement| placement.serial == serial)
    }

    /// The card of its placements: they are all on one.
    pub fn card(&self) -> Option<&CardId> {
        self.placements().next().map(|placement| &placement.mapping.card)
    }

    /// Why no place was found.
    pub const fn why(&self) -> Option<&Infeasible> {
        match self {
            Self::Unplaced(why) | Self::Stranded { why, .. } => why.as_ref(),
            Self::At(_) | Self::Moving { .. } => None,
        }
    }

    /// A placement is desired; what is there serves until the card has it.
    ///
    /// # Panics
    /// While the DAG moves already: the placement that would be lost holds rows and a reservation.
    pub fn begin(&mut self, next: Placement) {
        *self = match std::mem::take(self) {
            Self::Unplaced(_) => Self::At(next),
            Self::At(serving) | Self::Stranded { serving, .. } => {
                debug_assert_eq!(serving.mapping.card, next.mapping.card, "one card for both");
                Self::Moving { serving, next }
            }
            Self::Moving { .. } => panic!("a move begins when the one before is over"),
        };
    }

    /// The card serves the desired placement: gives the one that it left, if any.
    pub fn arrived(&mut self) -> Option<Placement> {
        match std::mem::take(self) {
            Self::Moving { serving, next } => {
                *self = Self::At(next);
                Some(serving)
            }
            other => {
                debug_assert!(matches!(other, Self::At(_)), "what arrives was desired: {other:?}");
                *self = other;
                None
            }
        }
    }

    /// Makes the serving placement the desired one again, as a placement of `generation`; gives the one that was desired
    /// instead, if one was. Without one that serves nothing changes.
    pub fn abort(&mut self, generation: u64) -> Option<Placement> {
        match std::mem::take(self) {
            Self::Moving { serving, next } => {
                *self = Self::At(Placement { generation, ..serving });
                Some(next)
            }
            Self::Stranded { serving, .. } => {
                *self = Self::At(Placement { generation, ..serving });
                None
            }
            other => {
                *self = other;
                None
            }
        }
    }

    /// Nothing is desired any more, what serves meanwhile stays: gives what was desired.
    pub fn withdraw(&mut self) -> Option<Placement> {
        match std::mem::take(self) {
            Self::At(placement) => Some(placement),
            Self::Moving { serving, next } => {
                *self = Self::Stranded { serving, why: None };
                Some(next)
            }
            other => {
                *self = other;
                None
            }
        }
    }

    /// Ends the service of the placement that served meanwhile, and gives it.
    pub fn leave(&mut self) -> Option<Placement> {
        match std::mem::take(self) {
            Self::Moving { serving, next } => {
                *self = Self::At(next);
                Some(serving)
            }
            Self::Stranded { serving, why } => {
                *self = Self::Unplaced(why);
                Some(serving)
            }
            other => {
                *self = other;
                None
            }
        }
    }

    /// A tenant is gone, and no placement trusts it any more; those of one generation are of the next one now.
    pub fn forget_trust(&mut self, tenant: &TenantId, from: u64, to: u64) {
        let placements: [Option<&mut Placement>; 2] = match self {
            Self::At(placement) => [Some(placement), None],
            Self::Moving { serving, next } => [Some(serving), Some(next)],
            Self::Stranded { serving, .. } => [Some(serving), None],
            Self::Unplaced(_) => [None, None],
        };
        for placement in placements.into_iter().flatten() {
            placement.spec.trusted_tenants.remove(tenant);
            if placement.generation == from {
                placement.generation = to;
            }
        }
    }

    /// A place was looked for and not found.
    pub fn refused(&mut self, refusal: Option<Infeasible>) {
        match self {
            Self::Unplaced(why) | Self::Stranded { why, .. } => *why = refusal,
            Self::At(_) | Self::Moving { .. } => {
                debug_assert!(false, "a place is looked for where none is desired");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use snic_domain::{Bandwidth, CardId, DagSpec, Form, Mapping, NtTypeId};

    use super::*;

    fn placement(serial: u64) -> Placement {
        let nt = NtTypeId::new("nat").expect("a label");
        Placement {
            serial,
            generation: serial,
            spec: DagSpec::chain(&[nt], Bandwidth::from_gbps(1)),
            burst: None,
            mapping: Mapping {
                card: CardId::new("card0").expect("a label"),
                form: Form::Sequential,
                stages: Vec::new(),
                programs: Vec::new(),
            },
            stage_row: 0,
            chain_row: 0,
            instance_row: 0,
        }
    }

    #[derive(Debug, Clone, Copy)]
    enum Verb {
        Begin,
        Arrived,
        Abort,
        Withdraw,
        Leave,
    }

    fn verb() -> impl Strategy<Value = Verb> {
        let all = [Verb::Begin, Verb::Arrived, Verb::Abort, Verb::Withdraw, Verb::Leave];
        prop::sample::select(all.to_vec())
    }

    /// The same on the pair that is stored.
    fn model(pair: &mut (Option<u64>, Option<u64>), verb: Verb, serial: u64) -> Option<u64> {
        match verb {
            Verb::Begin => {
                pair.1 = pair.1.or(pair.0);
                pair.0 = Some(serial);
                None
            }
            Verb::Arrived | Verb::Leave => pair.1.take(),
            Verb::Abort if pair.1.is_some() => {
                let next = pair.0.take();
                pair.0 = pair.1.take();
                next
            }
            Verb::Abort => None,
            Verb::Withdraw => pair.0.take(),
        }
    }

    proptest! {
        /// Whatever happens in whatever order: the place is what the stored pair says, no placement
        /// is lost, and none is given back twice.
        #[test]
        fn a_place_is_its_stored_pair(verbs in prop::collection::vec(verb(), 0..40)) {
            let (mut place, mut pair) = (PlacementState::default(), (None, None));
            let mut gone = Vec::new();
            let mut begun = 0;
            for (serial, verb) in (1u64..).zip(verbs) {
                let given = match verb {
                    Verb::Begin if matches!(place, PlacementState::Moving { .. }) => continue,
                    Verb::Begin => {
                        begun += 1;
                        place.begin(placement(serial));
                        None
                    }
                    Verb::Arrived if place.desired().is_none() => continue,
                    Verb::Arrived => place.arrived(),
                    Verb::Abort => place.abort(9),
                    Verb::Withdraw => place.withdraw(),
                    Verb::Leave => place.leave(),
                };
                let expected = model(&mut pair, verb, serial);
                prop_assert_eq!(given.as_ref().map(|p| p.serial), expected, "{:?}", verb);
                gone.extend(expected);
                let is = (place.desired().map(|p| p.serial), place.previous().map(|p| p.serial));
                prop_assert_eq!(is, pair, "after {:?}", verb);
                let again = PlacementState::stored(place.desired().cloned(), place.previous().cloned());
                prop_assert_eq!(&again, &place);
                prop_assert_eq!(gone.len() + place.placements().count(), begun);
            }
            gone.sort_unstable();
            let count = gone.len();
            gone.dedup();
            prop_assert_eq!(gone.len(), count, "given back twice");
        }
    }

    #[test]
    fn the_serving_place_has_the_new_generation_after_an_abort() {
        let mut place = PlacementState::At(placement(1));
        place.begin(placement(2));
        assert_eq!(place.abort(5).map(|p| p.serial), Some(2));
        let PlacementState::At(serving) = place else { panic!("{place:?}") };
        assert_eq!((serving.serial, serving.generation), (1, 5));
    }

    #[test]
    #[should_panic(expected = "when the one before is over")]
    fn a_move_does_not_begin_during_another() {
        let mut place = PlacementState::default();
        (1..=3).for_each(|serial| place.begin(placement(serial)));
    }
}
