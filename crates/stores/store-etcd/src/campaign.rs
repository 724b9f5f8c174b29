//! A candidate with its connection: carries out what it asks for.

use std::time::{Duration, Instant};

use snic_etcd::election::{
    Candidate, ElectionEffect, ElectionEvent, ElectionSettings, Leader, Term,
};
use snic_etcd::{Failed, LeaseId, Refusal, WatchUpdate};
use tokio::task::JoinSet;

use crate::connection::EtcdConnection;
use crate::watching::EtcdWatchStream;

/// A candidate that takes part in an election while [`Campaign::next`] is called. Dropping it does not resign: the
/// others wait for its lease to end.
#[derive(Debug)]
pub struct Campaign {
    connection: EtcdConnection,
    candidate: Candidate,
    watching: Option<EtcdWatchStream>,
    asked: JoinSet<ElectionEvent>,
    begin: Instant,
    /// Longest time for an answer of a member: one that hangs must not cost the lease.
    limit: Duration,
}

impl Campaign {
    /// Stands for election with the first call of [`Campaign::next`].
    pub fn new(connection: EtcdConnection, settings: ElectionSettings) -> Self {
        let limit = Duration::from_secs(u64::from(settings.lease_seconds.max(2))) / 4;
        Self {
            connection,
            limit,
            candidate: Candidate::new(settings),
            watching: None,
            asked: JoinSet::new(),
            begin: Instant::now(),
        }
    }

    /// Waits for the next thing to happen, and follows it up. A call that is dropped before it returns loses nothing.
    pub async fn next(&mut self) {
        let pause = match self.candidate.due() {
            Some(due) => due.saturating_sub(self.begin.elapsed()),
            None => Duration::MAX,
        };
        let event = tokio::select! {
            Some(answered) = self.asked.join_next() => match answered {
                Ok(event) => event,
                // Requests do not panic, and nobody aborts them.
                Err(_) => return,
            },
            told = next_update(&mut self.watching) => ElectionEvent::Told(told),
            () = tokio::time::sleep(pause) => ElectionEvent::Tick,
        };
        if let ElectionEvent::Told(Err(Failed::Compacted(_) | Failed::Invalid(_))) = &event {
            self.watching = None; // it has ended
        }
        let effects = self.candidate.handle(self.begin.elapsed(), event);
        self.carry_out(effects);
    }

    /// The term, while this candidate leads: see [`Candidate::term`].
    pub fn term(&self) -> Option<Term> {
        self.candidate.term(self.begin.elapsed())
    }

    /// Leader: see [`Candidate::leader`].
    pub fn leader(&self) -> Option<Leader> {
        self.candidate.leader()
    }

    /// Why etcd refuses to let this candidate stand: see [`Candidate::refusal`].
    pub fn refusal(&self) -> Option<(Refusal, String)> {
        self.candidate.refusal()
    }

    /// The candidate's lease: see [`Candidate::lease`].
    pub fn lease(&self) -> Option<LeaseId> {
        self.candidate.lease()
    }

    /// Ends the candidate's lease, so that another leads at once. Waits until etcd has answered, or the request's time
    /// is over.
    pub async fn resign(mut self) {
        let effects = self.candidate.resign(self.begin.elapsed());
        self.carry_out(effects);
        while self.asked.join_next().await.is_some() {}
    }

    fn carry_out(&mut self, effects: Vec<ElectionEffect>) {
        for effect in effects {
            match effect {
                ElectionEffect::Ask(asked, request) => {
                    let (connection, limit) = (self.connection.clone(), self.limit);
                    self.asked.spawn(async move {
                        let answer = connection.ask_within(&request, limit).await;
                        ElectionEvent::Answered(asked, answer)
                    });
                }
                ElectionEffect::Watch(watch) => self.watching = self.connection.watch(watch).ok(),
            }
        }
    }
}

/// Next news of the watch; nothing ever without one.
async fn next_update(watching: &mut Option<EtcdWatchStream>) -> Result<WatchUpdate, Failed> {
    match watching {
        Some(watching) => watching.next().await,
        None => std::future::pending().await,
    }
}
