//! An election among replicas, by etcd's recipe: each creates a key with a lease of its own, and the one that was
//! created first leads, until its lease ends. Pure: events in, effects out.
//!
//! ```text
//!             lease            key                  others
//!  Resting ──► Granting ──► Entering ──► Listing ──► Standing: waits, or leads
//!     ▲                                                 │
//!     └───────────── the lease or the key is gone ◄─────┘
//! ```
//!
//! Two things keep a leader of the past from doing harm. It stops calling itself a leader when its lease has ended by
//! its own clock, counted from when the last sign of life was *sent* ([`Candidate::term`]). And whatever it sent
//! before, however late that arrives, is refused: its transactions hold only while its key is the one that it created
//! ([`Term::guard`]). The first needs clocks that run about equally fast; the second needs nothing.
//!
//! A term that has ended by that clock never goes on, even if etcd has the key still: whoever led forgot what it was about
//! to write, and must not take an earlier transaction for a later one. It gives the lease up and stands with another key.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::{
    Answer, Change, Compare, Failed, LeaseId, Operation, Record, Refusal, Request, Revision,
    Transaction, Watch, WatchUpdate,
};

/// Most candidates of an election. With more, nobody can tell who leads by one look.
pub const CANDIDATES_MAX: usize = 1_000;

/// Longest pause of a candidate that etcd refuses: it stands at most so long after etcd accepts writes again.
pub const REFUSED_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Settings of a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ElectionSettings {
    /// Prefix of the keys of this election, and no others.
    pub prefix: String,
    /// Name of the candidate, such as its address.
    pub name: String,
    /// Time that it leads without a sign of life, in seconds, 1 or more; etcd grants 2 or more.
    pub lease_seconds: u32,
}

/// The time during which one candidate leads. A later one has a larger `since`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Term {
    /// The key of the candidate.
    pub key: String,
    /// When it was created: the fencing token.
    pub since: Revision,
}

impl Term {
    /// Condition of each transaction of the leader.
    pub fn guard(&self) -> Compare {
        Compare::CreatedAt(self.key.clone(), self.since)
    }
}

/// Leader, as far as a candidate knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leader {
    pub name: String,
    /// Since when it leads.
    pub term: Term,
}

/// Purpose of a request. Comes back with the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestPurpose {
    attempt: u64,
    step: Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    Grant,
    Enter,
    List,
    /// The leader, for one that etcd does not let stand.
    Look,
    Beat,
    Resign,
}

/// Input of a candidate.
#[derive(Debug)]
pub enum ElectionEvent {
    /// Time went on: see [`Candidate::due`].
    Tick,
    /// The outcome of a request.
    Answered(RequestPurpose, Result<Answer, Failed>),
    /// News of the watch, or why there is none. After [`Failed::Compacted`] or [`Failed::Invalid`] it has ended.
    Told(Result<WatchUpdate, Failed>),
}

/// Work that is done for a candidate.
#[derive(Debug, PartialEq, Eq)]
pub enum ElectionEffect {
    /// Ask etcd, and answer with [`ElectionEvent::Answered`], also if there is no answer.
    Ask(RequestPurpose, Request),
    /// Watch this instead of what was watched before.
    Watch(Watch),
}

/// One candidate. Time is a duration since any moment and never goes back.
#[derive(Debug)]
pub struct Candidate {
    settings: ElectionSettings,
    /// Counts how often it began; answers of earlier times are passed over.
    attempt: u64,
    state: State,
    /// When the last request was sent that is tried again if it fails.
    asked_at: Duration,
    /// Step that is tried again, and its time.
    again: Option<(Duration, Step)>,
    /// Why etcd refused the last request, if it did.
    refusal: Option<(Refusal, String)>,
    backoff: Backoff,
    /// The candidates when it looked last, while etcd does not let it stand.
    others: Candidates,
}

#[derive(Debug)]
enum State {
    /// Without a lease, until the next tick that is due.
    Resting,
    Granting,
    Entering(Lease),
    Listing(Lease),
    Standing(Lease, Candidates),
    Resigned,
}

#[derive(Debug)]
struct Lease {
    id: LeaseId,
    lasts: Duration,
    /// When it ends at the earliest, by this clock.
    ends: Duration,
    /// When a sign of life is due.
    beat_at: Duration,
    /// When the sign of life was sent that has not been answered.
    beat_sent: Option<Duration>,
}

/// The candidates' keys: when each was created, and its name.
type Candidates = BTreeMap<String, (Revision, String)>;

impl Candidate {
    /// One that begins with its first tick.
    pub fn new(settings: ElectionSettings) -> Self {
        let (asked_at, again) = (Duration::ZERO, Some((Duration::ZERO, Step::Grant)));
        // Candidates have names of their own, so they pause differently.
        let seed = settings
            .name
            .bytes()
            .fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let first = pause(&settings);
        let backoff = Backoff::new((first, REFUSED_PAUSE_MAX.max(first)), seed);
        let (attempt, state, refusal, others) = (0, State::Resting, None, Candidates::new());
        Self { settings, attempt, state, asked_at, again, refusal, backoff, others }
    }

    /// The term, while this candidate leads and its lease has not ended by its own clock.
    pub fn term(&self, now: Duration) -> Option<Term> {
        let State::Standing(lease, candidates) = &self.state else { return None };
        let mine = self.key(lease.id);
        let leader = first(candidates)?;
        (now < lease.ends && leader.term.key == mine).then_some(leader.term)
    }

    /// Leader, as far as it is known: whoever was told of last. `None` if nobody, or nothing is known yet.
    pub fn leader(&self) -> Option<Leader> {
        match &self.state {
            State::Standing(_, candidates) => first(candidates),
            // Seconds old: others may lead meanwhile, and whoever is asked and leads no more says so.
            _ if self.refusal.is_some() => first(&self.others),
            _ => None,
        }
    }

    /// Why etcd refuses to let it stand, if it does.
    pub fn refusal(&self) -> Option<(Refusal, String)> {
        self.refusal.clone()
    }

    /// The candidate's lease, for other keys that are to end with it.
    pub const fn lease(&self) -> Option<LeaseId> {
        match self.held() {
            Some(lease) => Some(lease.id),
            None => None,
        }
    }

    /// When the next tick has something to do.
    pub fn due(&self) -> Option<Duration> {
        let beat = self.held().filter(|lease| lease.beat_sent.is_none()).map(|it| it.beat_at);
        self.again.map(|(at, _)| at).into_iter().chain(beat).min()
    }

    /// Takes an event in.
    pub fn handle(&mut self, now: Duration, event: ElectionEvent) -> Vec<ElectionEffect> {
        let mut effects: Vec<_> = self.give_up(now).into_iter().collect();
        effects.extend(match event {
            ElectionEvent::Tick => Vec::new(),
            ElectionEvent::Answered(asked, _) if asked.attempt != self.attempt => Vec::new(),
            ElectionEvent::Answered(asked, outcome) => self.answered(now, asked.step, outcome),
            ElectionEvent::Told(told) => self.apply_update(now, told),
        });
        effects.extend(self.tick(now)); // many events in a row do not keep it from what is due
        effects
    }

    /// Ends a lease that is over by this clock, before anything that was heard late makes it longer.
    fn give_up(&mut self, now: Duration) -> Option<ElectionEffect> {
        let lease = self.held().filter(|lease| lease.ends <= now)?.id;
        self.attempt += 1;
        self.state = State::Resting;
        self.again = Some((now, Step::Grant));
        let asked = RequestPurpose { attempt: self.attempt, step: Step::Resign };
        Some(ElectionEffect::Ask(asked, Request::Revoke(lease)))
    }

    /// Stands no longer: another candidate leads at once.
    pub fn resign(&mut self, now: Duration) -> Vec<ElectionEffect> {
        let lease = self.lease();
        self.state = State::Resigned;
        self.again = None;
        self.attempt += 1;
        let request = lease.map(Request::Revoke);
        request.map(|request| self.ask(now, Step::Resign, request)).into_iter().collect()
    }

    fn tick(&mut self, now: Duration) -> Vec<ElectionEffect> {
        let mut effects = Vec::new();
        if let Some((_, step)) = self.again.take_if(|(at, _)| *at <= now) {
            effects.extend(self.step(now, step));
        }
        let is_due = |lease: &&mut Lease| lease.beat_sent.is_none() && lease.beat_at <= now;
        if let Some(lease) = self.held_mut().filter(is_due) {
            lease.beat_sent = Some(now);
            let request = Request::KeepAlive(lease.id);
            let asked = RequestPurpose { attempt: self.attempt, step: Step::Beat };
            effects.push(ElectionEffect::Ask(asked, request));
        }
        effects
    }

    /// Asks what a step asks, in the state that it is for.
    fn step(&mut self, now: Duration, step: Step) -> Option<ElectionEffect> {
        let request = match (step, &self.state) {
            (Step::Grant, State::Resting | State::Granting) => {
                self.state = State::Granting;
                Request::Grant { seconds: self.settings.lease_seconds }
            }
            (Step::Enter, State::Entering(lease)) => self.entry(lease.id),
            (Step::List, State::Listing(_) | State::Standing(..)) | (Step::Look, _) => {
                Request::Range {
                    prefix: self.settings.prefix.clone(),
                    at: None,
                    from: None,
                    limit: CANDIDATES_MAX,
                }
            }
            _ => return None,
        };
        Some(self.ask(now, step, request))
    }

    fn ask(&mut self, now: Duration, step: Step, request: Request) -> ElectionEffect {
        self.asked_at = now;
        ElectionEffect::Ask(RequestPurpose { attempt: self.attempt, step }, request)
    }

    /// Creates the key, unless an earlier try whose answer was lost has done so.
    fn entry(&self, lease: LeaseId) -> Request {
        let key = self.key(lease);
        let value = self.settings.name.clone().into_bytes();
        let compares = vec![Compare::CreatedAt(key.clone(), Revision(0))];
        let operations = vec![Operation::Put { key, value, lease: Some(lease) }];
        Request::Commit(Transaction { compares, operations })
    }

    fn answered(
        &mut self,
        now: Duration,
        step: Step,
        outcome: Result<Answer, Failed>,
    ) -> Vec<ElectionEffect> {
        // A sign of life takes no room, so its answer does not say that etcd accepts writes again.
        match (step, &outcome) {
            (Step::Look | Step::Resign, _) | (Step::Beat, Ok(_)) => {}
            (_, Err(failed)) => self.refusal = failed.refusal(),
            (_, Ok(_)) => {
                self.refusal = None;
                self.backoff.succeeded();
            }
        }
        match (step, outcome) {
            (Step::Grant, Ok(Answer::Granted(id, seconds))) => {
                let lasts = Duration::from_secs(u64::from(seconds));
                // The lease counts from the moment it was asked for, not from the answer: etcd's own count began
                // somewhere between the two. So by this clock it ends no later than by etcd's, and a leader stops
                // acting before another one can be elected, however long the answer was on its way.
                let ends = self.asked_at + lasts;
                let beat_at = self.asked_at + lasts / 3;
                self.state = State::Entering(Lease { id, lasts, ends, beat_at, beat_sent: None });
                self.step(now, Step::Enter).into_iter().collect()
            }
            (Step::Enter, Ok(Answer::Committed(_) | Answer::Refused(_))) => {
                if let State::Entering(lease) = self.take_state() {
                    self.state = State::Listing(lease);
                }
                self.step(now, Step::List).into_iter().collect()
            }
            (Step::List, Ok(Answer::Range { records, more, now: at })) if !more => {
                self.listed(now, candidates(records), at)
            }
            (Step::Look, Ok(Answer::Range { records, .. })) => {
                self.others = candidates(records);
                Vec::new()
            }
            (Step::Beat, outcome) => self.beaten(now, outcome),
            (Step::Enter, Err(Failed::LeaseEnded)) => self.restart(now),
            (Step::Resign, _) => Vec::new(), // at worst the lease ends by itself
            (Step::Look, _) => Vec::new(),   // it looks again when it is refused again
            (step, _) if self.refusal.is_some() => {
                self.again = Some((now + self.backoff.next_pause(), step));
                self.step(now, Step::Look).into_iter().collect()
            }
            (step, _) => {
                self.again = Some((now + self.pause(), step));
                Vec::new()
            }
        }
    }

    fn listed(
        &mut self,
        now: Duration,
        candidates: Candidates,
        at: Revision,
    ) -> Vec<ElectionEffect> {
        let (State::Listing(lease) | State::Standing(lease, _)) = self.take_state() else {
            return Vec::new();
        };
        if !candidates.contains_key(&self.key(lease.id)) {
            return self.restart(now);
        }
        self.state = State::Standing(lease, candidates);
        let (prefix, from) = (self.settings.prefix.clone(), Revision(at.0 + 1));
        vec![ElectionEffect::Watch(Watch { prefix, from })]
    }

    fn beaten(&mut self, now: Duration, outcome: Result<Answer, Failed>) -> Vec<ElectionEffect> {
        let pause = self.pause();
        let Some(lease) = self.held_mut() else { return Vec::new() };
        let sent = lease.beat_sent.take();
        match (outcome, sent) {
            (Ok(Answer::Alive(..)), Some(sent)) => {
                // As with the grant: etcd restarted the lease after the request was sent, so its end by this clock
                // counts from there.
                lease.ends = lease.ends.max(sent + lease.lasts);
                lease.beat_at = sent + lease.lasts / 3;
                Vec::new()
            }
            (Ok(Answer::Ended(_)), _) => self.restart(now),
            _ => {
                lease.beat_at = now + pause;
                Vec::new()
            }
        }
    }

    fn apply_update(
        &mut self,
        now: Duration,
        told: Result<WatchUpdate, Failed>,
    ) -> Vec<ElectionEffect> {
        let State::Standing(lease, candidates) = &mut self.state else { return Vec::new() };
        let told = match told {
            Ok(told) => told,
            Err(Failed::Compacted(_) | Failed::Invalid(_)) => {
                return self.step(now, Step::List).into_iter().collect();
            }
            // What was told before still holds, until the watch goes on.
            Err(_) => return Vec::new(),
        };
        for change in told.changes {
            match change {
                Change::Put(record) => {
                    let name = String::from_utf8_lossy(&record.value).into_owned();
                    candidates.insert(record.key, (record.created, name));
                }
                Change::Deleted { key, .. } => {
                    candidates.remove(&key);
                }
            }
        }
        let is_gone = !candidates.contains_key(&key(&self.settings, lease.id));
        if is_gone { self.restart(now) } else { Vec::new() }
    }

    /// Starts again with another lease.
    fn restart(&mut self, now: Duration) -> Vec<ElectionEffect> {
        self.attempt += 1;
        self.state = State::Resting;
        self.again = Some((now, Step::Grant));
        self.tick(now)
    }

    /// Wait before something that failed is tried again.
    fn pause(&self) -> Duration {
        pause(&self.settings)
    }

    fn key(&self, lease: LeaseId) -> String {
        key(&self.settings, lease)
    }

    fn take_state(&mut self) -> State {
        std::mem::replace(&mut self.state, State::Resting)
    }

    const fn held(&self) -> Option<&Lease> {
        match &self.state {
            State::Entering(lease) | State::Listing(lease) | State::Standing(lease, _) => {
                Some(lease)
            }
            State::Resting | State::Granting | State::Resigned => None,
        }
    }

    const fn held_mut(&mut self) -> Option<&mut Lease> {
        match &mut self.state {
            State::Entering(lease) | State::Listing(lease) | State::Standing(lease, _) => {
                Some(lease)
            }
            State::Resting | State::Granting | State::Resigned => None,
        }
    }
}

/// The pause of a candidate with these settings before it asks again.
fn pause(settings: &ElectionSettings) -> Duration {
    Duration::from_secs(u64::from(settings.lease_seconds)) / 20
}

/// The key of the candidate with a lease.
fn key(settings: &ElectionSettings, lease: LeaseId) -> String {
    format!("{}{lease}", settings.prefix)
}

/// Candidates by their records.
fn candidates(records: Vec<Record>) -> Candidates {
    let candidates = records.into_iter().map(|record| {
        let name = String::from_utf8_lossy(&record.value).into_owned();
        (record.key, (record.created, name))
    });
    candidates.collect()
}

/// The candidate whose key was created first.
fn first(candidates: &Candidates) -> Option<Leader> {
    let (key, (since, name)) = candidates.iter().min_by_key(|(_, (since, _))| *since)?;
    let term = Term { key: key.clone(), since: *since };
    Some(Leader { name: name.clone(), term })
}

#[cfg(test)]
mod tests;
