//! NTs that did not take a DAG's configuration, and the time at which they are asked again.
//!
//! An NT may be a tenant's own and never answer, and a commit waits for it as long as the driver's patience lasts, with everybody's
//! rows. So each DAG is asked more and more seldom, and a commit asks NTs of few DAGs of a tenant: of one, as long as any refuses,
//! and [`SPACING`] later of the next; of twice as many each time, up to [`BATCH_MAX`], while all of them take it. Tenants do not wait
//! for each other's turns.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use snic_domain::{DagName, DagUid, TenantId, Timestamp};
use snic_tables::WindowSlot;

/// Time after the first refusal; twice as long after each further one.
const FIRST_WAIT: Duration = Duration::from_secs(10);
/// The longest time from one question to the next.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// Least time between questions to the NTs of two DAGs of a tenant, after one refused.
const SPACING: Duration = Duration::from_secs(10);
/// Most DAGs of a tenant whose NTs one commit asks again.
const BATCH_MAX: usize = 16;

/// The NTs of one DAG.
#[derive(Debug, Clone, PartialEq, Eq)]
struct RefusedDag {
    name: DagName,
    at: BTreeSet<(u8, u8)>,
    /// Refusals so far.
    times: u32,
    /// Next question; [`Timestamp::ZERO`] where it was not asked since the card was read back.
    due: Timestamp,
}

/// Questions to the NTs of a tenant's DAGs.
#[derive(Debug)]
struct Turn {
    /// DAGs by the time of their next question.
    due: BTreeSet<(Timestamp, DagUid)>,
    /// DAGs of the last questions that are not answered yet.
    asked: BTreeSet<DagUid>,
    /// Whether one of the last questions was refused.
    is_refused: bool,
    /// DAGs that the next commit may ask.
    batch: usize,
    /// Earliest time of the next questions.
    not_before: Timestamp,
}

impl Turn {
    const fn new() -> Self {
        Self {
            due: BTreeSet::new(),
            asked: BTreeSet::new(),
            is_refused: false,
            batch: 1,
            not_before: Timestamp::ZERO,
        }
    }

    fn next(&self) -> Option<Timestamp> {
        let (due, _) = self.due.first()?;
        Some((*due).max(self.not_before))
    }

    /// A question to a DAG's NTs was answered. After the last one it shows when the next ones may be asked, and how many.
    fn answered(&mut self, now: Timestamp, uid: DagUid, is_refused: bool) {
        if !self.asked.remove(&uid) {
            return;
        }
        self.is_refused |= is_refused;
        if self.asked.is_empty() {
            (self.batch, self.not_before) = match self.is_refused {
                true => (1, now + SPACING),
                false => ((2 * self.batch).min(BATCH_MAX), now),
            };
        }
    }
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
    turns: BTreeMap<TenantId, Turn>,
    /// Tenants by the time of their next questions.
    next: BTreeSet<(Timestamp, TenantId)>,
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
        let mut of = self.dags.remove(&uid).unwrap_or_else(new);
        let before = of.due;
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
        self.turn(&name.tenant, |turn| {
            turn.due.remove(&(before, uid));
            if !of.at.is_empty() {
                turn.due.insert((of.due, uid));
            }
            turn.answered(now, uid, is_refused);
        });
        if !of.at.is_empty() {
            self.dags.insert(uid, of);
        }
    }

    /// These NTs of a DAG may not have its configuration, as the store says: they are asked as soon as their tenant's turn comes.
    pub fn restore(&mut self, (uid, name): (DagUid, &DagName), at: BTreeSet<(u8, u8)>) {
        self.remove(Timestamp::ZERO, uid);
        let of = RefusedDag { name: name.clone(), at, times: 0, due: Timestamp::ZERO };
        self.turn(&name.tenant, |turn| turn.due.insert((of.due, uid)));
        self.dags.insert(uid, of);
    }

    /// Forgets all of a DAG.
    pub fn remove(&mut self, now: Timestamp, uid: DagUid) {
        let Some(of) = self.dags.remove(&uid) else { return };
        self.turn(&of.name.tenant, |turn| {
            turn.due.remove(&(of.due, uid));
            turn.answered(now, uid, false);
        });
    }

    /// Forgets all NTs of the card.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Changes a tenant's turn, and notes when its next questions are due.
    fn turn<T>(&mut self, tenant: &TenantId, change: impl FnOnce(&mut Turn) -> T) -> T {
        let turn = self.turns.entry(tenant.clone()).or_insert_with(Turn::new);
        let before = turn.next();
        let result = change(turn);
        let after = turn.next();
        if before != after {
            if let Some(before) = before {
                self.next.remove(&(before, tenant.clone()));
            }
            if let Some(after) = after {
                self.next.insert((after, tenant.clone()));
            }
        }
        if after.is_none() {
            self.turns.remove(tenant);
        }
        result
    }

    /// Time at which the next NTs are to be asked.
    pub fn next(&self) -> Option<Timestamp> {
        self.next.first().map(|(next, _)| *next)
    }

    /// DAGs whose NTs are asked now: of each tenant whose turn it is those that have waited for longest. They count as asked.
    pub fn take_due(&mut self, now: Timestamp) -> Vec<DueDag> {
        let due = self.next.iter().take_while(|(next, _)| *next <= now);
        let tenants: Vec<TenantId> = due.map(|(_, tenant)| tenant.clone()).collect();
        let mut all = Vec::new();
        for tenant in tenants {
            let uids = self.turn(&tenant, |turn| {
                let due = turn.due.iter().take_while(|(due, _)| *due <= now).take(turn.batch);
                let uids: Vec<DagUid> = due.map(|(_, uid)| *uid).collect();
                turn.asked = uids.iter().copied().collect();
                turn.is_refused = false;
                turn.not_before = now + SPACING;
                uids
            });
            for uid in uids {
                all.extend(self.ask(now, &tenant, uid));
            }
        }
        all
    }

    /// A DAG's NTs are asked: until they have answered they count as if they refused.
    fn ask(&mut self, now: Timestamp, tenant: &TenantId, uid: DagUid) -> Option<DueDag> {
        let of = self.dags.get_mut(&uid)?;
        let before = of.due;
        of.times = of.times.max(1);
        of.due = now + wait(of.times);
        let (after, asked) = (of.due, DueDag { uid, name: of.name.clone(), at: of.at.clone() });
        self.turn(tenant, |turn| {
            turn.due.remove(&(before, uid));
            turn.due.insert((after, uid));
        });
        Some(asked)
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

    fn name_of_globex() -> DagName {
        DagName { tenant: TenantId::new("globex").expect("a label"), ..name("b") }
    }

    fn asked(refused: &mut RefusedWindows, now: u64) -> Vec<u16> {
        refused.take_due(at(now)).iter().map(|due| due.uid.row()).collect()
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
        assert!(refused.turns.is_empty(), "nothing is left of the tenant");
    }

    #[test]
    fn after_a_start_more_and_more_are_asked_at_once_while_they_take_it() {
        let mut refused = RefusedWindows::default();
        (1..=60).for_each(|row| refused.restore((uid(row), &name("a")), [(3, 1)].into()));
        let mut counts = Vec::new();
        while refused.next().is_some_and(|next| next <= at(5)) {
            let rows = asked(&mut refused, 5);
            assert!(asked(&mut refused, 5).is_empty(), "they have not answered yet");
            counts.push(rows.len());
            for row in rows {
                refused.ended(at(5), (uid(row), &name("a")), [end(3, false)].into_iter());
            }
        }
        assert_eq!(counts, [1, 2, 4, 8, 16, 16, 13]);
    }

    #[test]
    fn a_tenant_whose_tasks_hang_has_one_dag_asked_at_a_time_and_holds_up_no_other() {
        let mut refused = RefusedWindows::default();
        (1..=30).for_each(|row| refused.restore((uid(row), &name("a")), [(3, 1)].into()));
        (31..=32).for_each(|row| {
            refused.restore((uid(row), &name_of_globex()), [(4, 1)].into());
        });
        let mut questions = Vec::new();
        for now in 5..46 {
            while refused.next().is_some_and(|next| next <= at(now)) {
                for row in asked(&mut refused, now) {
                    questions.push((now, row));
                    let (of, is_lacking) = match row {
                        31.. => (name_of_globex(), false),
                        _ => (name("a"), true),
                    };
                    refused.ended(
                        at(now),
                        (uid(row), &of),
                        [end(3 + u8::from(row > 30), is_lacking)].into_iter(),
                    );
                }
            }
        }
        let expected = [(5, 1), (5, 31), (5, 32), (15, 2), (25, 3), (35, 4), (45, 5)];
        assert_eq!(questions, expected);
    }

    #[test]
    fn one_refusal_in_a_batch_ends_the_batches() {
        let mut refused = RefusedWindows::default();
        (1..=9).for_each(|row| refused.restore((uid(row), &name("a")), [(3, 1)].into()));
        let mut questions = Vec::new();
        for now in [5, 6, 7, 8, 15, 16, 26] {
            let rows = asked(&mut refused, now);
            for &row in &rows {
                refused.ended(at(now), (uid(row), &name("a")), [end(3, row == 2)].into_iter());
            }
            questions.push(rows);
        }
        let expected: [&[u16]; 7] = [&[1], &[2, 3], &[], &[], &[], &[4], &[5, 6]];
        assert_eq!(questions, expected);
    }

    #[test]
    fn questions_that_nobody_answered_hold_up_the_next_for_a_while_only() {
        let mut refused = RefusedWindows::default();
        (1..=3).for_each(|row| refused.restore((uid(row), &name("a")), [(3, 1)].into()));
        assert_eq!(asked(&mut refused, 5), [1]);
        assert_eq!((asked(&mut refused, 14), asked(&mut refused, 15)), (vec![], vec![2]));
        refused.remove(at(16), uid(2));
        assert_eq!(asked(&mut refused, 16), [3, 1], "a DAG that is gone refuses nothing");
    }

    #[test]
    fn no_two_dags_are_asked_at_once_and_the_one_that_waited_for_longest_is_first() {
        let mut refused = RefusedWindows::default();
        for row in [2, 1, 3] {
            let of = (uid(row), &name("a"));
            refused.ended(at(row.into()), of, [end(row as u8, true)].into_iter());
        }
        let mut questions = Vec::new();
        for now in 0..40 {
            questions.extend(asked(&mut refused, now).into_iter().map(|row| (now, row)));
        }
        assert_eq!(questions, [(11, 1), (21, 2), (31, 3)]);
    }
}
