//! Places that flows hold for a while: connections, calls, watches, uploads.
//!
//! Each level has guaranteed places, which no other level ever takes, and all levels share the rest. A
//! flow of a level may hold as many places as its level has left. This is the dynamic threshold of shared
//! switch buffers (Choudhury and Hahne, "Dynamic Queue Length Thresholds for Shared-Memory Packet
//! Switches", 1998, with α = 1): a flow alone gets up to half of the places; with n busy flows each gets
//! 1/(n+1) of them; and one part always stays free for a flow that holds nothing yet.

use std::collections::BTreeMap;

/// A level's share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// Places that only this level uses.
    pub guaranteed: usize,
    /// Most places that one flow holds, however many are free.
    pub flow_max: usize,
}

/// A flow holds its share of the places already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OverShare {
    /// Places that the flow holds.
    pub held: usize,
    /// Places that it could hold at the moment.
    pub share: usize,
}

/// A level, and the flow of it that holds a place.
#[derive(Debug)]
pub struct LevelSeat<'a, F> {
    /// Number of the level.
    pub level: usize,
    pub flow: &'a F,
}

#[derive(Debug)]
struct LevelUse<F> {
    limits: Level,
    used: usize,
    flows: BTreeMap<F, usize>,
}

/// Places of several levels. Levels are numbered from 0 in the order of [`Room::new`].
#[derive(Debug)]
pub struct Room<F> {
    /// Places that no level is guaranteed.
    shared: usize,
    levels: Vec<LevelUse<F>>,
}

impl<F: Ord + Clone> Room<F> {
    /// An empty room with `shared` places in addition to the guaranteed ones.
    pub fn new(shared: usize, levels: impl IntoIterator<Item = Level>) -> Self {
        let places = |limits| LevelUse { limits, used: 0, flows: BTreeMap::new() };
        Self { shared, levels: levels.into_iter().map(places).collect() }
    }

    /// Places that a level could still take.
    ///
    /// # Panics
    /// Without such a level.
    pub fn free(&self, level: usize) -> usize {
        let borrowed: usize = self.levels.iter().map(LevelUse::borrowed).sum();
        let own = &self.levels[level];
        own.limits.guaranteed.saturating_sub(own.used) + (self.shared - borrowed)
    }

    /// Places that a flow holds.
    ///
    /// # Panics
    /// Without such a level.
    pub fn held(&self, level: usize, flow: &F) -> usize {
        self.levels[level].flows.get(flow).copied().unwrap_or(0)
    }

    /// Takes a place. Time O(levels + log flows).
    ///
    /// # Errors
    /// [`OverShare`]; nothing changes then.
    ///
    /// # Panics
    /// Without such a level.
    pub fn enter(&mut self, level: usize, flow: &F) -> Result<(), OverShare> {
        let held = self.held(level, flow);
        let share = self.free(level).min(self.levels[level].limits.flow_max);
        if held >= share {
            return Err(OverShare { held, share });
        }
        let places = &mut self.levels[level];
        places.used += 1;
        *places.flows.entry(flow.clone()).or_default() += 1;
        Ok(())
    }

    /// Gives a place back.
    ///
    /// # Panics
    /// Where the flow holds none: then somebody else's place would be given away.
    pub fn leave(&mut self, level: usize, flow: &F) {
        let places = &mut self.levels[level];
        let held =
            places.flows.get_mut(flow).expect("only a flow that holds a place gives it back");
        *held -= 1;
        if *held == 0 {
            places.flows.remove(flow);
        }
        places.used -= 1;
    }

    /// Gives a place back and takes one as another flow or in another level, at once: a caller is known
    /// by its address until its identity is known.
    ///
    /// # Errors
    /// [`OverShare`]; the place is given back all the same.
    ///
    /// # Panics
    /// As [`Room::leave`].
    pub fn change(
        &mut self,
        from: LevelSeat<'_, F>,
        to: LevelSeat<'_, F>,
    ) -> Result<(), OverShare> {
        self.leave(from.level, from.flow);
        self.enter(to.level, to.flow)
    }
}

impl<F> LevelUse<F> {
    /// Shared places in use.
    const fn borrowed(&self) -> usize {
        self.used.saturating_sub(self.limits.guaranteed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn level(guaranteed: usize) -> Level {
        Level { guaranteed, flow_max: usize::MAX }
    }

    /// Enters until it is refused.
    fn fill(room: &mut Room<u8>, level: usize, flow: u8) -> usize {
        let before = room.held(level, &flow);
        while room.enter(level, &flow).is_ok() {}
        room.held(level, &flow) - before
    }

    #[test]
    fn one_flow_leaves_as_many_places_as_it_holds() {
        let mut room = Room::new(6, [level(2)]);
        assert_eq!(fill(&mut room, 0, 1), 4);
        assert_eq!(room.enter(0, &1), Err(OverShare { held: 4, share: 4 }));
        assert_eq!(fill(&mut room, 0, 2), 2, "and a newcomer shares what is left");
        assert_eq!(fill(&mut room, 0, 3), 1);
    }

    #[test]
    fn guaranteed_places_are_never_lent() {
        let mut room = Room::new(4, [level(3), level(1)]);
        for flow in 0..100 {
            fill(&mut room, 1, flow);
        }
        assert_eq!(room.free(1), 0);
        assert_eq!(room.free(0), 3);
        assert_eq!(fill(&mut room, 0, 0), 2);
    }

    #[test]
    fn a_flow_has_a_limit_of_its_own() {
        let mut room = Room::new(100, [Level { guaranteed: 0, flow_max: 3 }]);
        assert_eq!(fill(&mut room, 0, 1), 3);
        assert_eq!(room.enter(0, &1), Err(OverShare { held: 3, share: 3 }));
        room.leave(0, &1);
        assert_eq!(room.enter(0, &1), Ok(()));
    }

    #[test]
    fn a_place_changes_hands_also_where_it_is_the_only_one() {
        let mut room = Room::new(1, [level(0), level(0)]);
        room.enter(0, &7).expect("free");
        assert_eq!(
            room.change(LevelSeat { level: 0, flow: &7 }, LevelSeat { level: 1, flow: &8 }),
            Ok(())
        );
        assert_eq!((room.held(0, &7), room.held(1, &8)), (0, 1));
        room.leave(1, &8);
        assert_eq!(room.free(0), 1);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Enter(usize, u8),
        Leave(usize, u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = (any::<bool>(), 0..3usize, 0..6u8).prop_map(|(enter, level, flow)| {
            if enter { Step::Enter(level, flow) } else { Step::Leave(level, flow) }
        });
        prop::collection::vec(step, 0..400)
    }

    proptest! {
        /// Whatever the others do: a level never has less than its guarantee, no more places are given
        /// out than there are, only who is over its share is refused, and a flow with nothing gets a
        /// place while there is one.
        #[test]
        fn shares_hold(
            shared in 0..40usize,
            guaranteed in prop::array::uniform3(0..20usize),
            steps in steps(),
        ) {
            let mut room = Room::new(shared, guaranteed.map(level));
            let mut held: BTreeMap<(usize, u8), usize> = BTreeMap::new();
            for step in steps {
                match step {
                    Step::Enter(at, flow) => {
                        let (mine, free) = (room.held(at, &flow), room.free(at));
                        let entered = room.enter(at, &flow);
                        prop_assert_eq!(entered.is_ok(), mine < free);
                        prop_assert!(mine > 0 || free == 0 || entered.is_ok());
                        *held.entry((at, flow)).or_default() += usize::from(entered.is_ok());
                    }
                    Step::Leave(at, flow) => {
                        if let Some(mine) = held.get_mut(&(at, flow)).filter(|mine| **mine > 0) {
                            *mine -= 1;
                            room.leave(at, &flow);
                        }
                    }
                }
                let used = |of: usize| -> usize {
                    held.iter().filter(|((at, _), _)| *at == of).map(|(_, count)| count).sum()
                };
                let all: usize = held.values().sum();
                prop_assert!(all <= shared + guaranteed.iter().sum::<usize>());
                for (at, least) in guaranteed.iter().enumerate() {
                    prop_assert!(used(at) + room.free(at) >= *least);
                }
            }
        }
    }
}
