//! NTs that did not take a DAG's configuration, and the time at which they are asked again.
//!
//! An NT may be a tenant's own and never answer, and a commit waits for it as long as the driver's patience lasts, with everybody's
//! rows. So each DAG is asked more and more seldom, and no two DAGs of a card within [`SPACING`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use snic_domain::{DagName, DagUid, Timestamp};
use snic_tables::WindowSlot;

/// Time after the first refusal; twice as long after each further one.
const FIRST_WAIT: Duration = Duration::from_secs(10);
/// The longest time from one question to the next.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// Least time between questions to the NTs of two DAGs of a card.
const SPACING: Duration = Duration::from_secs(10);

/// The NTs of one DAG.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RefusedDag {
    name: DagName,
    at: BTreeSet<(u8, u8)>,
    /// Refusals so far.
    times: u32,
    due: Timestamp,
}

/// A DAG whose NTs are asked again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DueDag {
    pub uid: DagUid,
    pub name: DagName,
    /// Their regions and slots.
    pub at: BTreeSet<(u8, u8)>,
}

/// NTs of a card that did not take configurations.
#[derive(Debug, Default)]
pub(super) struct RefusedWindows {
    dags: BTreeMap<DagUid, RefusedDag>,
    /// Earliest time of the next question.
    not_before: Timestamp,
}

/// Time from the last of so many refusals to the next question.
fn wait(times: u32) -> Duration {
    FIRST_WAIT.saturating_mul(1 << times.saturating_sub(1).min(16)).min(LONGEST_WAIT)
}

impl RefusedWindows {
    /// A commit ended at these windows of a DAG; with each is said whether its NT lacks the configuration.
    pub fn ended(
        &mut self,
        now: Timestamp,
        (uid, name): (DagUid, &DagName),
        ends: impl Iterator<Item = (WindowSlot, bool)>,
    ) {
        let new = || RefusedDag { name: name.clone(), at: BTreeSet::new(), times: 0, due: now };
        let of = self.dags.entry(uid).or_insert_with(new);
        let mut is_refused = false;
        for (WindowSlot { region, slot, .. }, is_lacking) in ends {
            is_refused |= is_lacking;
            match is_lacking {
                true => of.at.insert((region, slot)),
                false => of.at.remove(&(region, slot)),
            };
        }
        if is_refused {
            of.times += 1;
            of.due = now + wait(of.times);
        }
        if of.at.is_empty() {
            self.dags.remove(&uid);
        }
    }

    /// These NTs of a DAG may not have its configuration, as the store says: they are asked at once.
    pub fn restore(
        &mut self,
        now: Timestamp,
        (uid, name): (DagUid, &DagName),
        at: BTreeSet<(u8, u8)>,
    ) {
        self.dags.insert(uid, RefusedDag { name: name.clone(), at, times: 0, due: now });
    }

    /// Forgets all of a DAG.
    pub fn remove(&mut self, uid: DagUid) {
        self.dags.remove(&uid);
    }

    /// Forgets all NTs of the card.
    pub fn clear(&mut self) {
        self.dags.clear();
    }

    /// When the next NTs are to be asked.
    pub fn next(&self) -> Option<Timestamp> {
        let next =
            |of: &RefusedDag| if of.times == 0 { of.due } else { of.due.max(self.not_before) };
        self.dags.values().map(next).min()
    }

    /// DAGs whose NTs are asked now: all that were not asked since the card was read back, or else that which has waited for
    /// longest. They count as asked.
    pub fn take_due(&mut self, now: Timestamp) -> Vec<DueDag> {
        let mut due: Vec<_> = self.dags.iter_mut().filter(|(_, of)| of.due <= now).collect();
        if due.iter().any(|(_, of)| of.times == 0) {
            due.retain(|(_, of)| of.times == 0);
        } else {
            due.sort_by_key(|(_, of)| of.due);
            due.truncate(usize::from(self.not_before <= now));
        }
        if !due.is_empty() {
            self.not_before = now + SPACING;
        }
        let ask = |(uid, of): (&DagUid, &mut RefusedDag)| {
            of.times = of.times.max(1);
            of.due = now + wait(of.times);
            DueDag { uid: *uid, name: of.name.clone(), at: of.at.clone() }
        };
        due.into_iter().map(ask).collect()
    }
}

#[cfg(test)]
mod tests {
    use snic_domain::NtNumber;

    use super::*;
    use crate::fixtures::name;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs(seconds)
    }

    fn uid(row: u16) -> DagUid {
        DagUid::new(row, 1).expect("it fits")
    }

    const fn end(region: u8, is_lacking: bool) -> (WindowSlot, bool) {
        (WindowSlot { region, slot: 1, nt: NtNumber(1) }, is_lacking)
    }

    #[test]
    fn who_refuses_again_is_asked_more_and_more_seldom() {
        let mut refused = RefusedWindows::default();
        let (mut now, mut waits) = (0, Vec::new());
        for _ in 0..9 {
            refused.ended(at(now), (uid(1), &name("a")), [end(3, true)].into_iter());
            let next = refused.next().expect("it is asked again");
            waits.push(next.since(at(now)).as_secs());
            now = next.as_nanos() / 1_000_000_000;
            let due = refused.take_due(at(now)).pop().expect("it is due");
            assert_eq!((due.uid, due.at), (uid(1), [(3, 1)].into()));
        }
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
        refused.ended(at(now), (uid(1), &name("a")), [end(3, false)].into_iter());
        assert_eq!(refused.next(), None);
    }

    #[test]
    fn after_a_start_all_are_asked_at_once_and_once() {
        let mut refused = RefusedWindows::default();
        for row in [1, 2] {
            refused.restore(at(5), (uid(row), &name("a")), [(3, 1)].into());
        }
        assert_eq!(refused.next(), Some(at(5)));
        let asked: Vec<u16> = refused.take_due(at(5)).iter().map(|due| due.uid.row()).collect();
        assert_eq!(asked, [1, 2]);
        assert_eq!((refused.take_due(at(5)).len(), refused.next()), (0, Some(at(15))));
    }

    #[test]
    fn no_two_dags_are_asked_at_once_and_the_one_that_waited_for_longest_is_first() {
        let mut refused = RefusedWindows::default();
        for row in [2, 1, 3] {
            let of = (uid(row), &name("a"));
            refused.ended(at(row.into()), of, [end(row as u8, true)].into_iter());
        }
        let mut asked = Vec::new();
        for now in 0..40 {
            asked.extend(refused.take_due(at(now)).into_iter().map(|due| (now, due.uid.row())));
        }
        assert_eq!(asked, [(11, 1), (21, 2), (31, 3)]);
    }
}
