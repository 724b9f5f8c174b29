//! Work that takes a thread for more than a moment: files to read, plans, checks of what was uploaded.
//!
//! ```text
//!  calls ──by level and flow──► fair queue of time ──► a few threads ──► the outcome, if anybody waits for it
//! ```
//!
//! A thread cannot be stopped when its caller gives up the call. So what has begun counts until it ends, what has not
//! is dropped, and who gives up calls and makes new ones gets no more done than who waits.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use snic_admission::FairQueue;
use snic_api::error::ApiError;
use snic_domain::Caller;
use tokio::sync::oneshot;

use crate::error::{overloaded, shutting_down};
use crate::share::{CallerFlow, CallerLevel, TIME_WEIGHTS};

/// Most work of one caller that waits.
const WAITING_MAX: usize = 256;

type Job = Box<dyn FnOnce() + Send>;

/// A few threads whose time callers share fairly. Cheap to clone.
#[derive(Clone)]
pub struct Workshop(Arc<Mutex<State>>);

struct State {
    jobs: FairQueue<CallerFlow, Job>,
    /// Threads that may begin.
    free: usize,
}

impl Workshop {
    /// A workshop that uses at most so many threads at once, 1 or more.
    pub fn new(threads: usize) -> Self {
        let jobs = FairQueue::new(TIME_WEIGHTS, WAITING_MAX);
        Self(Arc::new(Mutex::new(State { jobs, free: threads.max(1) })))
    }

    /// Has work done for a caller, after what others asked for who had less time. Runs within a tokio runtime.
    ///
    /// # Errors
    /// Too much of this caller waits; the work panicked; or the runtime stops.
    pub async fn run<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let (outcome, done) = oneshot::channel();
        self.begin(caller, move || {
            if !outcome.is_closed() {
                // A caller that has gone meanwhile needs no outcome.
                let _ = outcome.send(catch_unwind(AssertUnwindSafe(work)));
            }
        })?;
        match done.await {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(_)) => Err(ApiError::internal("work for this call")),
            Err(_) => Err(shutting_down()),
        }
    }

    fn begin(&self, caller: &Caller, job: impl FnOnce() + Send + 'static) -> Result<(), ApiError> {
        let mut state = self.0.lock();
        let (level, flow) = (CallerLevel::of(caller), CallerFlow::from(caller));
        state.jobs.push(level as usize, &flow, Box::new(job)).map_err(|(_, over)| {
            let text = "too much work of this caller waits; end some calls, or try again later";
            overloaded(text, over.limit)
        })?;
        if state.free > 0 {
            state.free -= 1;
            let shop = self.clone();
            tokio::task::spawn_blocking(move || shop.work_off());
        }
        Ok(())
    }

    /// Runs one job after the other on a thread, until none waits.
    fn work_off(&self) {
        let mut state = self.0.lock();
        while let Some((job, served)) = state.jobs.pop() {
            drop(state);
            let begun = Instant::now();
            job();
            state = self.0.lock();
            state.jobs.charge(served, begun.elapsed());
        }
        state.free += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;

    use snic_api::v1::ErrorReason;

    use super::*;

    fn tenant(id: &str) -> Caller {
        Caller::Tenant(id.parse().expect("a label"))
    }

    /// Takes the only thread of a workshop until it is told to go on.
    fn held(shop: &Workshop, caller: &Caller) -> mpsc::Sender<()> {
        let (go, wait) = mpsc::channel();
        let (begun, begins) = mpsc::channel();
        let job = move || {
            begun.send(()).expect("it is waited for");
            let _ = wait.recv(); // an error tells it to go on
        };
        shop.begin(caller, job).expect("room");
        begins.recv().expect("a thread is free");
        go
    }

    /// A tenant that gives up its calls has one job under way for each thread, however many it began, and what nobody
    /// waits for any more is never done.
    #[tokio::test]
    async fn what_is_given_up_is_not_done_and_takes_no_more_threads() {
        let shop = Workshop::new(1);
        let go = held(&shop, &tenant("acme"));
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..10 * WAITING_MAX {
            let acme = tenant("acme");
            let done = Arc::clone(&done);
            let work = shop.run(&acme, move || done.fetch_add(1, Ordering::Relaxed));
            let given_up = tokio::time::timeout(Duration::ZERO, work).await;
            assert!(given_up.is_err() || given_up.is_ok_and(|refused| refused.is_err()));
        }
        assert_eq!(shop.0.lock().jobs.len(), WAITING_MAX, "and no more of them wait");
        drop(go);
        assert_eq!(shop.run(&tenant("globex"), || 7).await.ok(), Some(7));
        while shop.0.lock().jobs.len() == WAITING_MAX {
            tokio::task::yield_now().await; // the thread has not looked at them yet
        }
        assert_eq!(shop.run(&tenant("acme"), || 8).await.ok(), Some(8));
        assert_eq!((shop.0.lock().jobs.len(), done.load(Ordering::Relaxed)), (0, 0));
    }

    /// A caller that has had much of the threads' time waits for one that has had little.
    #[tokio::test]
    async fn callers_take_turns() {
        let shop = Workshop::new(1);
        let go = held(&shop, &tenant("acme"));
        let (told, order) = mpsc::channel();
        for caller in ["acme", "acme", "acme", "globex"] {
            let told = told.clone();
            let job = move || told.send(caller).expect("it is listened to");
            shop.begin(&tenant(caller), job).expect("room");
        }
        drop((go, told));
        let order = tokio::task::spawn_blocking(move || order.iter().collect::<Vec<_>>());
        assert_eq!(order.await.expect("no panic"), ["globex", "acme", "acme", "acme"]);
    }

    #[tokio::test]
    async fn too_much_of_one_caller_is_refused_and_a_panic_is_its_own() {
        let shop = Workshop::new(1);
        let go = held(&shop, &tenant("acme"));
        for _ in 0..WAITING_MAX {
            shop.begin(&tenant("acme"), || ()).expect("room");
        }
        let refused = shop.run(&tenant("acme"), || ()).await.expect_err("too much");
        assert_eq!(refused.reason(), ErrorReason::Overloaded);
        drop(go);
        let failed = shop.run(&tenant("globex"), || panic!("on purpose")).await;
        assert_eq!(failed.map_err(|error| error.reason()), Err::<(), _>(ErrorReason::Internal));
        assert_eq!(shop.run(&tenant("globex"), || 7).await.ok(), Some(7), "the thread goes on");
    }
}
