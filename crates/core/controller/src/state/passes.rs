//! Consolidations under way: what each has still to do, and when the next one begins on its own.
//!
//! ```text
//!          begin            next_round                found              next_move, moved
//!  (none) ───────► no moves ───────────► searched ───────────► moves ──────────────────► one move less
//!                     ▲  │ no rounds left    │ nothing to gain                               │
//!                     │  └──────► end ◄──────┘                                               │ things changed:
//!                     └─────────────────────────────────────────────────────────────────────┘ give_up_moves
//! ```
//!
//! A move that finds no room in a table is left out, and the next one is tried: it may free what this one needs. A pass that
//! could make none of its moves ends with the reason.
//!
//! The search runs elsewhere and takes its time; of each card one is under way at most.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use snic_domain::{CardId, OperationId, Timestamp};

use crate::protocol::{ControlError, DagMoves, PlannedMove, SearchNo};

/// Number of times that the moves are searched again because things changed, before the pass ends.
const ROUNDS_MAX: u32 = 8;

/// Shortest time between searches for passes that begin because a DAG found no room.
const PAUSE: Duration = Duration::from_secs(1);

/// A pass under way.
#[derive(Debug, Clone)]
struct Pass {
    card: CardId,
    reconfigurations_left: u32,
    rounds_left: u32,
    moves: VecDeque<PlannedMove>,
    /// Whether the last search found nothing to gain.
    is_futile: bool,
    /// Moves that were begun.
    made: u32,
    /// Whether one of the last search was.
    has_moved: bool,
    /// Whether things changed since the last search, so that the next one may find something else.
    is_overtaken: bool,
    /// Moves of the last search that were not made, and the first reason.
    not_made: u32,
    obstacle: Option<ControlError>,
}

/// Party that waits for a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Searcher {
    /// A pass under way.
    Pass(OperationId),
    /// One that begins if there is something to gain.
    NewPass,
}

/// All passes, by their operations.
#[derive(Debug, Default)]
pub(crate) struct Passes {
    pending: BTreeMap<OperationId, Pass>,
    /// The searches under way, with their numbers.
    searches: BTreeMap<CardId, (Searcher, SearchNo)>,
    /// The last search of a card that found nothing to gain, of those for a new pass.
    futile: BTreeMap<CardId, SearchNo>,
    /// The last search that has begun.
    last_search: SearchNo,
    /// When the next one begins on its own.
    begins: Option<Timestamp>,
    /// When the last one was looked for.
    looked: Option<Timestamp>,
    /// Whether a pass has moves to try that this event has no time for.
    is_put_off: bool,
}

impl Passes {
    /// An operation moves DAGs of a card together, with at most this many reconfigurations.
    pub fn begin(&mut self, operation: &OperationId, card: &CardId, reconfigurations_max: u32) {
        let pass = Pass {
            card: card.clone(),
            reconfigurations_left: reconfigurations_max,
            rounds_left: ROUNDS_MAX,
            moves: VecDeque::new(),
            is_futile: false,
            made: 0,
            has_moved: false,
            is_overtaken: false,
            not_made: 0,
            obstacle: None,
        };
        self.pending.insert(operation.clone(), pass);
    }

    /// An operation has ended.
    pub fn end(&mut self, operation: &OperationId) {
        self.pending.remove(operation);
    }

    /// The operations of the passes under way, by id.
    pub fn operations(&self) -> impl Iterator<Item = &OperationId> {
        self.pending.keys()
    }

    /// The pass of a card, if one is under way.
    pub fn on(&self, card: &CardId) -> Option<&OperationId> {
        self.pending.iter().find(|(_, pass)| pass.card == *card).map(|(operation, _)| operation)
    }

    /// The card of a pass, if it has not ended.
    pub fn card(&self, operation: &OperationId) -> Option<&CardId> {
        self.pending.get(operation).map(|pass| &pass.card)
    }

    fn pass(&mut self, operation: &OperationId) -> &mut Pass {
        self.pending.get_mut(operation).expect("it goes on until its operation ends")
    }

    /// A search begins, unless one of the card is under way.
    pub fn search(&mut self, card: &CardId, searcher: Searcher) {
        self.last_search.0 += 1;
        self.searches.entry(card.clone()).or_insert((searcher, self.last_search));
    }

    /// The last search that has begun.
    pub const fn last_search(&self) -> SearchNo {
        self.last_search
    }

    /// Whether a card is searched.
    pub fn is_searched(&self, card: &CardId) -> bool {
        self.searches.contains_key(card)
    }

    /// The search of a card has ended; says who waited for it, unless that pass has ended.
    pub fn searched(&mut self, card: &CardId) -> Option<Searcher> {
        let (searcher, _) = self.searches.remove(card)?;
        match &searcher {
            Searcher::Pass(operation) => self.pending.contains_key(operation).then_some(searcher),
            Searcher::NewPass => Some(searcher),
        }
    }

    /// The search under way found nothing to gain, with all that a new pass may load.
    pub fn found_nothing(&mut self, card: &CardId) {
        if let Some((Searcher::NewPass, number)) = self.searches.get(card) {
            self.futile.insert(card.clone(), *number);
        }
    }

    /// Whether DAGs of a card may yet be moved: a pass or a search is under way, or one is to begin, and none after this
    /// search has found nothing to gain.
    pub fn may_make_room(&self, card: &CardId, after: SearchNo) -> bool {
        let is_looked_at = self.on(card).is_some() || self.is_searched(card);
        let was_futile = self.futile.get(card).is_some_and(|search| *search > after);
        is_looked_at || (self.begins.is_some() && !was_futile)
    }

    /// These moves were found, and are to be made next.
    pub fn plan(&mut self, operation: &OperationId, moves: Vec<PlannedMove>) {
        let pass = self.pass(operation);
        pass.is_futile = moves.is_empty();
        pass.moves = moves.into();
        (pass.has_moved, pass.is_overtaken, pass.not_made, pass.obstacle) = (false, false, 0, None);
    }

    /// The move that is to be made now, which is in the plan no more.
    pub fn next_move(&mut self, operation: &OperationId) -> Option<PlannedMove> {
        self.pass(operation).moves.pop_front()
    }

    /// A move was begun, with this many loads.
    pub fn moved(&mut self, operation: &OperationId, loads: u32) {
        let pass = self.pass(operation);
        pass.reconfigurations_left = pass.reconfigurations_left.saturating_sub(loads);
        pass.made += 1;
        pass.has_moved = true;
    }

    /// A move found no room.
    pub fn refuse_move(&mut self, operation: &OperationId, why: ControlError) {
        let pass = self.pass(operation);
        pass.not_made += 1;
        pass.obstacle.get_or_insert(why);
    }

    /// Moves of a pass until now; none of one that has ended.
    pub fn moves(&self, operation: &OperationId) -> DagMoves {
        let pass = self.pending.get(operation);
        pass.map_or(DagMoves::default(), |pass| DagMoves {
            made: pass.made,
            left: pass.not_made + u32::try_from(pass.moves.len()).unwrap_or(u32::MAX),
        })
    }

    /// The reason for which a pass without another round made no move, where it had some to make.
    pub fn obstacle(&self, operation: &OperationId) -> Option<&ControlError> {
        self.pending.get(operation).filter(|pass| pass.made == 0)?.obstacle.as_ref()
    }

    /// Things changed: the move that was to be made now, and those behind it, are not what they were planned as. The reason
    /// of a move that was refused before stays: this one may have needed it.
    pub fn give_up_moves(&mut self, operation: &OperationId, why: ControlError) {
        let pass = self.pass(operation);
        pass.not_made += u32::try_from(pass.moves.len()).unwrap_or(u32::MAX).saturating_add(1);
        pass.moves.clear();
        pass.is_overtaken = true;
        pass.obstacle.get_or_insert(why);
    }

    /// Begins another round, if there may be one: with at most this many reconfigurations. There is none after
    /// a search that found nothing, or nothing that has room: the next one would find the same.
    pub fn next_round(&mut self, operation: &OperationId) -> Option<u32> {
        let pass = self.pass(operation);
        let would_differ = pass.has_moved || pass.is_overtaken;
        if pass.is_futile || (pass.not_made > 0 && !would_differ) {
            return None;
        }
        pass.rounds_left = pass.rounds_left.checked_sub(1)?;
        Some(pass.reconfigurations_left)
    }

    /// Begins the steps of an event.
    pub const fn begin_steps(&mut self) {
        self.is_put_off = false;
    }

    /// The rest of a pass's moves is for the next event.
    pub const fn put_off(&mut self) {
        self.is_put_off = true;
    }

    /// Whether a pass goes on with the next event, for which it need not wait.
    pub const fn is_put_off(&self) -> bool {
        self.is_put_off
    }

    /// Something was freed: after this time the rest may be put together, where a policy says so.
    pub fn begin_later(&mut self, now: Timestamp, after: Option<Duration>) {
        self.begins = self.begins.or(after.map(|after| now + after));
    }

    /// A DAG found no room: what was freed is put together now, not later. At most one search in a second, however
    /// many are refused, and none where nothing was freed since the last one.
    pub fn begin_sooner(&mut self, now: Timestamp) {
        let soonest = self.looked.map_or(now, |looked| now.max(looked + PAUSE));
        self.begins = self.begins.map(|at| at.min(soonest));
    }

    /// The time for it has come; says whether it had.
    pub fn take_begin(&mut self, now: Timestamp) -> bool {
        let has_come = self.begins.is_some_and(|at| at <= now);
        if has_come {
            (self.begins, self.looked) = (None, Some(now));
        }
        has_come
    }

    /// Another policy: what was to come by the one before is forgotten.
    pub const fn forget_begin(&mut self) {
        self.begins = None;
    }

    /// When the next pass begins on its own.
    pub const fn begins(&self) -> Option<Timestamp> {
        self.begins
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn operation(id: &str) -> OperationId {
        OperationId::new(id).expect("a label")
    }

    #[test]
    fn a_pass_looks_again_so_often_and_with_what_is_left() {
        let (card, first) = (CardId::new("card0").expect("a label"), operation("op-1"));
        let mut passes = Passes::default();
        passes.begin(&first, &card, 3);
        assert_eq!((passes.on(&card), passes.card(&first)), (Some(&first), Some(&card)));
        assert_eq!(passes.next_round(&first), Some(3));
        passes.moved(&first, 2);
        assert_eq!(passes.next_round(&first), Some(1));
        passes.moved(&first, 2);
        let rounds: Vec<_> = std::iter::from_fn(|| passes.next_round(&first)).collect();
        assert_eq!(rounds, [0; ROUNDS_MAX as usize - 2]);
        assert!(passes.next_move(&first).is_none());
        passes.end(&first);
        assert_eq!((passes.on(&card), passes.operations().count()), (None, 0));
    }

    #[test]
    fn a_search_is_for_who_asked_for_it_as_long_as_that_lasts() {
        let (card, first) = (CardId::new("card0").expect("a label"), operation("op-1"));
        let mut passes = Passes::default();
        passes.search(&card, Searcher::NewPass);
        passes.begin(&first, &card, 3);
        passes.search(&card, Searcher::Pass(first.clone()));
        assert!(passes.is_searched(&card));
        assert_eq!(passes.searched(&card), Some(Searcher::NewPass), "one at a time");
        passes.search(&card, Searcher::Pass(first.clone()));
        assert_eq!(passes.searched(&card), Some(Searcher::Pass(first.clone())));
        passes.search(&card, Searcher::Pass(first.clone()));
        passes.end(&first);
        assert_eq!(passes.searched(&card), None, "it has ended");
        passes.search(&card, Searcher::NewPass);
        assert_eq!(passes.searched(&card), Some(Searcher::NewPass));
        assert_eq!(passes.searched(&card), None, "nobody has asked");
    }

    #[test]
    fn after_a_search_that_finds_nothing_there_is_no_other_round() {
        let (card, first) = (CardId::new("card0").expect("a label"), operation("op-1"));
        let mut passes = Passes::default();
        passes.begin(&first, &card, 3);
        assert_eq!(passes.next_round(&first), Some(3));
        passes.plan(&first, Vec::new());
        assert_eq!(passes.next_round(&first), None);
    }

    #[test]
    fn a_pass_that_could_make_no_move_says_why_and_does_not_search_again() {
        let (card, first) = (CardId::new("card0").expect("a label"), operation("op-1"));
        let why = || ControlError::precondition("cards/card0", "no rows");
        let mut passes = Passes::default();
        passes.begin(&first, &card, 3);
        passes.refuse_move(&first, why());
        assert_eq!(passes.moves(&first), DagMoves { made: 0, left: 1 });
        assert_eq!(passes.obstacle(&first), Some(&why()));
        assert_eq!(passes.next_round(&first), None);
        // Another one of the same search had room: what was refused may have room now.
        passes.moved(&first, 1);
        passes.refuse_move(&first, why());
        assert_eq!(passes.moves(&first), DagMoves { made: 1, left: 2 });
        assert_eq!(passes.obstacle(&first), None);
        assert_eq!(passes.next_round(&first), Some(2));
        passes.end(&first);
        assert_eq!(passes.moves(&first), DagMoves::default());
    }

    /// Overtaken moves are searched again, and if that happens each time, the pass says why nothing moved.
    #[test]
    fn a_pass_whose_moves_are_overtaken_searches_again_and_keeps_the_reason() {
        let (card, first) = (CardId::new("card0").expect("a label"), operation("op-1"));
        let short = || ControlError::precondition("cards/card0", "no rows");
        let changed = || ControlError::precondition("cards/card0", "things changed");
        let mut passes = Passes::default();
        passes.begin(&first, &card, 3);
        passes.refuse_move(&first, short());
        passes.give_up_moves(&first, changed());
        assert_eq!(passes.moves(&first), DagMoves { made: 0, left: 2 });
        assert_eq!(passes.obstacle(&first), Some(&short()), "the second may have needed the first");
        assert_eq!(passes.next_round(&first), Some(3));
        let mut rounds = 1;
        loop {
            passes.plan(&first, Vec::new());
            passes.pass(&first).is_futile = false;
            assert_eq!(passes.obstacle(&first), None, "a new search");
            passes.give_up_moves(&first, changed());
            if passes.next_round(&first).is_none() {
                break;
            }
            rounds += 1;
        }
        assert_eq!((rounds, passes.obstacle(&first)), (ROUNDS_MAX, Some(&changed())));
        passes.moved(&first, 1);
        assert_eq!(passes.obstacle(&first), None, "something was moved");
        passes.end(&first);
    }

    #[test]
    fn the_first_that_is_freed_says_when_a_pass_begins() {
        let mut passes = Passes::default();
        let now = Timestamp::ZERO + SECOND;
        passes.begin_later(now, None);
        assert_eq!(passes.begins(), None, "no policy says so");
        passes.begin_later(now, Some(SECOND));
        passes.begin_later(now + SECOND, Some(SECOND));
        assert_eq!(passes.begins(), Some(now + SECOND));
        passes.forget_begin();
        assert_eq!(passes.begins(), None);
    }

    #[test]
    fn refusals_hasten_a_pass_and_not_more_than_one_in_a_second() {
        let mut passes = Passes::default();
        let at = |millis| Timestamp::ZERO + Duration::from_millis(millis);
        passes.begin_sooner(at(0));
        assert!(!passes.take_begin(at(0)), "nothing was freed");
        passes.begin_later(at(0), Some(60 * SECOND));
        assert!(!passes.take_begin(at(10)));
        passes.begin_sooner(at(10));
        assert!(passes.take_begin(at(10)));
        assert_eq!(passes.begins(), None);
        passes.begin_later(at(20), Some(60 * SECOND));
        passes.begin_sooner(at(30));
        assert_eq!(passes.begins(), Some(at(1_010)));
        passes.begin_sooner(at(5_000));
        assert_eq!(passes.begins(), Some(at(1_010)), "never later");
    }
}
