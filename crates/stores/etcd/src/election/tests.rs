//! Candidates on the model of etcd, with pauses, lost answers and requests that arrive late.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::model::{EtcdModel, NetworkFault};

const PREFIX: &str = "election/";

/// A candidate with its connection.
struct Side {
    candidate: Candidate,
    /// Input to come, in order.
    inbox: VecDeque<ElectionEvent>,
    watch: Option<Watch>,
    /// It does nothing before this.
    paused_until: Duration,
    /// Mishap of its next request.
    mishap: NetworkFault,
}

struct Election {
    etcd: EtcdModel,
    now: Duration,
    sides: Vec<Side>,
    /// Writes of leaders that have not arrived yet.
    late: Vec<Term>,
    /// The term of the last write that was carried out.
    last_written: Revision,
}

fn ms(count: u64) -> Duration {
    Duration::from_millis(count)
}

impl Election {
    fn of(count: usize) -> Self {
        let side = |i: usize| Side {
            candidate: Candidate::new(ElectionSettings {
                prefix: PREFIX.to_owned(),
                name: format!("replica {i}"),
                lease_seconds: 3,
            }),
            inbox: VecDeque::new(),
            watch: None,
            paused_until: Duration::ZERO,
            mishap: NetworkFault::None,
        };
        Self {
            etcd: EtcdModel::new(),
            now: Duration::ZERO,
            sides: (0..count).map(side).collect(),
            late: Vec::new(),
            last_written: Revision(0),
        }
    }

    /// One candidate does one thing, unless it is paused.
    fn run(&mut self, who: usize) {
        let side = &mut self.sides[who];
        if self.now < side.paused_until {
            return;
        }
        let told = side.watch.as_mut().and_then(|watch| {
            let told = self.etcd.watch(self.now, watch, 1).transpose()?;
            if let Ok(told) = &told {
                watch.from = Revision(told.until.0 + 1);
            }
            Some(told)
        });
        if let Some(Err(_)) = told {
            side.watch = None; // it has ended
        }
        let told = told.map(ElectionEvent::Told);
        side.inbox.extend(told);
        let event = side.inbox.pop_front().unwrap_or(ElectionEvent::Tick);
        let effects = side.candidate.handle(self.now, event);
        self.carry_out(who, effects);
    }

    fn carry_out(&mut self, who: usize, effects: Vec<ElectionEffect>) {
        let side = &mut self.sides[who];
        for effect in effects {
            match effect {
                ElectionEffect::Watch(watch) => side.watch = Some(watch),
                ElectionEffect::Ask(asked, request) => {
                    let mishap = std::mem::take(&mut side.mishap);
                    let answer = self.etcd.ask_with(self.now, &request, mishap);
                    side.inbox.push_back(ElectionEvent::Answered(asked, answer));
                }
            }
        }
    }

    /// Everybody in turn, for a while, without mishaps.
    fn calm(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.now += ms(20);
            (0..self.sides.len()).for_each(|who| self.run(who));
        }
    }

    fn leaders(&self) -> Vec<usize> {
        let leads = |who: &usize| self.sides[*who].candidate.term(self.now).is_some();
        (0..self.sides.len()).filter(leads).collect()
    }

    /// A write of a leader arrives.
    fn write(&mut self, term: &Term) -> Answer {
        let put = Operation::Put { key: "log".to_owned(), value: vec![], lease: None };
        let write = Transaction { compares: vec![term.guard()], operations: vec![put] };
        self.etcd.refuse_writes(None);
        let answer = self.etcd.ask(self.now, &Request::Commit(write)).unwrap();
        if matches!(answer, Answer::Committed(_)) {
            assert!(term.since >= self.last_written, "a leader of the past has written");
            self.last_written = term.since;
        }
        answer
    }
}

#[test]
fn the_first_leads_and_the_next_one_follows_when_it_resigns() {
    let mut election = Election::of(3);
    election.run(1);
    election.calm(ms(500));
    assert_eq!(election.leaders(), [1]);
    let first = election.sides[1].candidate.term(election.now).unwrap();
    for side in &election.sides {
        assert_eq!(side.candidate.leader().unwrap().name, "replica 1");
    }
    let effects = election.sides[1].candidate.resign(election.now);
    election.carry_out(1, effects);
    election.calm(ms(500));
    let [next] = election.leaders()[..] else { panic!("one leads") };
    assert_ne!(next, 1);
    assert_eq!(election.sides[1].candidate.due(), None, "it stands no longer");
    assert!(election.sides[next].candidate.term(election.now).unwrap().since > first.since);
    assert!(matches!(election.write(&first), Answer::Refused(_)));
}

/// While etcd refuses to write, those who stand go on and follow each other; one that does not stand yet knows who leads, and
/// tries with growing pauses.
#[test]
fn an_etcd_without_room_keeps_its_candidates() {
    let mut election = Election::of(3);
    election.calm(ms(500));
    let [first] = election.leaders()[..] else { panic!("one leads") };
    let other = (first + 1) % 3;
    election.etcd.refuse_writes(Some(Refusal::NoSpace));
    election.sides[other].candidate = Candidate::new(ElectionSettings {
        prefix: PREFIX.to_owned(),
        name: "replica new".to_owned(),
        lease_seconds: 3,
    });
    election.calm(ms(60_000));
    assert_eq!(election.leaders(), [first], "its lease lives on");
    let candidate = &election.sides[other].candidate;
    assert_eq!(candidate.refusal().map(|(why, _)| why), Some(Refusal::NoSpace));
    assert_eq!(candidate.leader().unwrap().name, format!("replica {first}"));
    assert!(
        candidate.backoff.failures() < 30,
        "{} tries in a minute",
        candidate.backoff.failures()
    );
    let effects = election.sides[first].candidate.resign(election.now);
    election.carry_out(first, effects);
    election.calm(ms(6_000));
    assert_eq!(election.leaders(), [3 - first - other], "the next one that stands leads");
    election.etcd.refuse_writes(None);
    election.calm(ms(6_000));
    assert_eq!(election.sides[other].candidate.refusal(), None);
}

/// A candidate that is paused for longer than its lease leads no longer by its own clock, and what it sent is refused; once it goes
/// on it stands again.
#[test]
fn a_paused_leader_is_followed_and_its_late_write_refused() {
    let mut election = Election::of(2);
    election.run(0);
    election.calm(ms(10_000));
    assert_eq!(election.leaders(), [0], "signs of life keep it");
    let term = election.sides[0].candidate.term(election.now).unwrap();
    assert!(matches!(election.write(&term), Answer::Committed(_)));
    election.sides[0].paused_until = election.now + ms(8_000);
    election.calm(ms(1_900));
    assert_eq!(election.leaders(), [0], "its lease has not ended");
    election.calm(ms(2_000));
    assert_eq!(election.leaders(), [1]);
    assert!(matches!(election.write(&term), Answer::Refused(_)));
    election.calm(ms(6_000));
    assert_eq!(election.leaders(), [1]);
    assert_eq!(election.sides[0].candidate.leader().unwrap().name, "replica 1");
}

/// A lease is as old as its request, however late the answer comes.
#[test]
fn a_leader_whose_lease_was_granted_late_does_not_count_from_the_answer() {
    let mut election = Election::of(2);
    election.run(0); // asks for a lease
    election.now += ms(900);
    (0..3).for_each(|_| election.run(0));
    assert_eq!(election.leaders(), [0]);
    election.sides[0].paused_until = election.now + ms(5_000);
    election.calm(ms(2_400));
    assert_eq!(election.leaders(), [1]);
}

#[test]
fn a_candidate_whose_key_was_removed_stands_again() {
    let mut election = Election::of(1);
    election.calm(ms(500));
    let term = election.sides[0].candidate.term(election.now).unwrap();
    let delete = Operation::Delete { key: term.key.clone() };
    let delete = Transaction { compares: vec![], operations: vec![delete] };
    election.etcd.ask(election.now, &Request::Commit(delete)).unwrap();
    election.calm(ms(500));
    let again = election.sides[0].candidate.term(election.now).unwrap();
    assert!(again.since > term.since);
}

/// etcd's leader changes: leases are longer than they were, nobody leads in between. All the same its term is over: what
/// it sent may arrive late, and is not to be taken for what it sends in the next.
#[test]
fn a_leader_that_cannot_reach_etcd_stops_by_its_own_clock() {
    let mut election = Election::of(1);
    election.calm(ms(500));
    let term = election.sides[0].candidate.term(election.now).unwrap();
    let gone = election.now + ms(5_000);
    while election.now < gone {
        election.now += ms(20);
        election.etcd.change_leader(election.now); // the lease does not end there
        election.sides[0].mishap = NetworkFault::Unreachable;
        election.run(0);
    }
    assert_eq!(election.leaders(), []);
    election.sides[0].mishap = NetworkFault::None;
    election.calm(ms(4_000));
    let again = election.sides[0].candidate.term(election.now).unwrap();
    assert!(again.since > term.since, "nobody else led meanwhile, and it has another term");
    assert!(matches!(election.write(&term), Answer::Refused(_)));
}

proptest! {
    /// Whatever is lost, late or paused: never two leaders by their clocks, never a write of a past one; and once
    /// all goes well, one leads and all know it.
    #[test]
    fn there_is_never_more_than_one(
        steps in prop::collection::vec((0..3_usize, 0..40_u8, 0..400_u64), 0..300),
    ) {
        let mut election = Election::of(3);
        let (mut last, mut over) = (None, Vec::new());
        for (who, dice, waited) in steps {
            election.now += ms(waited);
            let side = &mut election.sides[who];
            match dice {
                0 => side.paused_until = election.now + ms(10 * waited),
                1 => side.mishap = NetworkFault::AnswerLost,
                2 => side.mishap = NetworkFault::RequestLost,
                3 => side.mishap = NetworkFault::Unreachable,
                4 => {
                    let compacted = election.etcd.revision();
                    // It was compacted to this before.
                    let _ = election.etcd.ask(election.now, &Request::Compact(compacted));
                }
                5 => election.etcd.change_leader(election.now),
                10 | 11 => election.etcd.refuse_writes(Some(Refusal::NoSpace)),
                12 => election.etcd.refuse_writes(Some(Refusal::NotPermitted)),
                13 | 14 => election.etcd.refuse_writes(None),
                6..10 if !election.late.is_empty() => {
                    let at = usize::from(dice) % election.late.len();
                    let term = election.late.swap_remove(at);
                    election.write(&term);
                }
                _ => election.run(who),
            }
            let leaders = election.leaders();
            prop_assert!(leaders.len() <= 1, "{:?} lead", leaders);
            let term = |who: &usize| election.sides[*who].candidate.term(election.now);
            let now = leaders.first().and_then(term);
            let since = now.as_ref().map(|term| term.since);
            if since != last {
                over.extend(last);
                last = since;
            }
            prop_assert!(since.is_none_or(|since| !over.contains(&since)), "a term goes on");
            election.late.extend(now);
        }
        for side in &mut election.sides {
            (side.paused_until, side.mishap) = (Duration::ZERO, NetworkFault::None);
        }
        election.etcd.refuse_writes(None);
        election.calm(ms(17_000));
        let leaders = election.leaders();
        prop_assert_eq!(leaders.len(), 1);
        let name = format!("replica {}", leaders[0]);
        for side in &election.sides {
            prop_assert_eq!(&side.candidate.leader().unwrap().name, &name);
        }
        for term in std::mem::take(&mut election.late) {
            election.write(&term);
        }
    }
}
