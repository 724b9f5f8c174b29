//! Election of the replica that works: a Lease of Kubernetes, as its own controllers use it.
//!
//! A lease is taken over when its record has not changed for its duration, by the clock of who waits: clocks of two machines
//! are never compared. A replica that cannot renew it in time ends, and is started again.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};

use super::objects::reason_of;

/// Name of the lease.
pub const NAME: &str = "snic-dag-controller";
/// Time after which a lease that nobody renews is taken over. The three times are those of Kubernetes' own controllers.
const DURATION: Duration = Duration::from_secs(15);
/// Longest time without a renewal for which its holder works on.
const RENEW_WITHIN: Duration = Duration::from_secs(10);
/// Interval of attempts.
const RETRY: Duration = Duration::from_secs(2);

/// The lease was lost.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the lease {NAME} was lost: {0}")]
pub struct LeaseLost(String);

/// Action on the lease.
#[derive(Debug, Clone, PartialEq)]
pub enum Claim {
    /// Nobody has it yet.
    Create(Box<Lease>),
    /// It is ours, or free.
    Write(Box<Lease>),
    /// Another replica has it.
    Wait(String),
}

/// A replica's view of the lease.
#[derive(Debug)]
pub struct LeaseView {
    replica: String,
    /// Holder and time of the record that was last seen to be another one, and when by this clock.
    seen: Option<(Option<String>, Option<Timestamp>, Instant)>,
}

impl LeaseView {
    /// That of a replica that knows nothing yet.
    pub fn new(replica: &str) -> Self {
        Self { replica: replica.to_owned(), seen: None }
    }

    fn record(&self, base: &LeaseSpec, is_ours: bool, now: Timestamp) -> LeaseSpec {
        let transitions = base.lease_transitions.unwrap_or_default();
        LeaseSpec {
            holder_identity: Some(self.replica.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            renew_time: Some(MicroTime(now)),
            acquire_time: match is_ours {
                true => base.acquire_time.clone(),
                false => Some(MicroTime(now)),
            },
            lease_transitions: Some(if is_ours { transitions } else { transitions + 1 }),
            ..LeaseSpec::default()
        }
    }

    /// Decides about a lease that was read just now.
    pub fn claim(&mut self, lease: Option<Lease>, clock: Instant, now: Timestamp) -> Claim {
        let Some(mut lease) = lease else {
            let first = LeaseSpec { lease_transitions: Some(-1), ..LeaseSpec::default() };
            let metadata = ObjectMeta { name: Some(NAME.to_owned()), ..ObjectMeta::default() };
            let spec = Some(self.record(&first, false, now));
            return Claim::Create(Box::new(Lease { metadata, spec }));
        };
        let base = lease.spec.take().unwrap_or_default();
        let holder = base.holder_identity.clone().filter(|holder| !holder.is_empty());
        let renewed = base.renew_time.as_ref().map(|time| time.0);
        let since = match &self.seen {
            Some((known, time, at)) if (known, time) == (&holder, &renewed) => *at,
            _ => {
                self.seen = Some((holder.clone(), renewed, clock));
                clock
            }
        };
        let is_ours = holder.as_deref() == Some(&self.replica);
        let seconds = base.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = seconds.map_or(DURATION, Duration::from_secs);
        match holder {
            Some(other) if !is_ours && clock < since + duration => Claim::Wait(other),
            _ => {
                lease.spec = Some(self.record(&base, is_ours, now));
                Claim::Write(Box::new(lease))
            }
        }
    }
}

/// One attempt: whether the lease is held after it, or who has it.
async fn attempt(
    api: &Api<Lease>,
    view: &mut LeaseView,
) -> Result<Result<(), String>, kube::Error> {
    let lease = api.get_opt(NAME).await?;
    let parameters = PostParams::default();
    // The lease that was read has its resource version: of two replicas that write, one fails.
    match view.claim(lease, Instant::now(), Timestamp::now()) {
        Claim::Create(lease) => api.create(&parameters, &lease).await.map(|_| Ok(())),
        Claim::Write(lease) => api.replace(NAME, &parameters, &lease).await.map(|_| Ok(())),
        Claim::Wait(holder) => Ok(Err(holder)),
    }
}

/// Waits until this replica holds the lease.
pub async fn acquire(api: &Api<Lease>, replica: &str) -> LeaseView {
    let mut view = LeaseView::new(replica);
    loop {
        match tokio::time::timeout(RENEW_WITHIN, attempt(api, &mut view)).await {
            Ok(Ok(Ok(()))) => {
                tracing::info!(replica, "this replica works");
                return view;
            }
            Ok(Ok(Err(holder))) => tracing::debug!(holder, "another replica works"),
            Ok(Err(error)) => tracing::warn!(why = reason_of(&error), "the lease cannot be taken"),
            Err(_) => tracing::warn!("the API server does not answer"),
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// Renews the lease until it is lost.
pub async fn hold(api: &Api<Lease>, mut view: LeaseView) -> LeaseLost {
    let mut renewed = Instant::now();
    loop {
        tokio::time::sleep(RETRY).await;
        let began = Instant::now();
        let left = (renewed + RENEW_WITHIN).saturating_duration_since(began);
        let why = match tokio::time::timeout(left, attempt(api, &mut view)).await {
            Ok(Ok(Ok(()))) => {
                renewed = began;
                continue;
            }
            Ok(Ok(Err(holder))) => return LeaseLost(format!("{holder} has it")),
            Ok(Err(error)) => reason_of(&error),
            Err(_) => "the API server does not answer".to_owned(),
        };
        if renewed.elapsed() >= RENEW_WITHIN {
            return LeaseLost(why);
        }
        tracing::warn!(why, "the lease is not renewed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::constant(seconds, 0)
    }

    fn held(claim: Claim) -> Lease {
        match claim {
            Claim::Create(lease) | Claim::Write(lease) => *lease,
            Claim::Wait(holder) => panic!("{holder} has it"),
        }
    }

    #[test]
    fn one_of_two_replicas_has_the_lease_until_it_is_silent_for_its_duration() {
        let (mut a, mut b) = (LeaseView::new("a"), LeaseView::new("b"));
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut lease = held(a.claim(None, start, at(0)));
        assert_eq!(lease.spec.as_ref().and_then(|spec| spec.lease_transitions), Some(0));
        // The clock of b's machine is an hour ahead, which says nothing.
        assert_eq!(b.claim(Some(lease.clone()), after(1), at(3_600)), Claim::Wait("a".to_owned()));
        for second in 2..40 {
            lease = held(a.claim(
                Some(lease),
                after(second),
                at(i64::try_from(second).expect("small")),
            ));
            let claim = b.claim(Some(lease.clone()), after(second), at(3_600));
            assert_eq!(claim, Claim::Wait("a".to_owned()), "after {second} s");
        }
        let silent = b.claim(Some(lease.clone()), after(39 + 14), at(3_600));
        assert_eq!(silent, Claim::Wait("a".to_owned()));
        lease = held(b.claim(Some(lease), after(39 + 15), at(3_600)));
        let spec = lease.spec.clone().expect("set");
        assert_eq!((spec.holder_identity.as_deref(), spec.lease_transitions), (Some("b"), Some(1)));
        assert_eq!(spec.acquire_time, spec.renew_time);
        assert_eq!(a.claim(Some(lease), after(55), at(55)), Claim::Wait("b".to_owned()));
    }

    #[test]
    fn a_replica_that_starts_again_under_its_name_goes_on() {
        let lease = held(LeaseView::new("a").claim(None, Instant::now(), at(0)));
        let again = held(LeaseView::new("a").claim(Some(lease), Instant::now(), at(5)));
        let spec = again.spec.expect("set");
        assert_eq!((spec.lease_transitions, spec.acquire_time), (Some(0), Some(MicroTime(at(0)))));
    }

    #[test]
    fn a_lease_that_was_given_back_is_free() {
        let mut lease = held(LeaseView::new("a").claim(None, Instant::now(), at(0)));
        lease.spec.as_mut().expect("set").holder_identity = Some(String::new());
        held(LeaseView::new("b").claim(Some(lease), Instant::now(), at(1)));
    }
}
