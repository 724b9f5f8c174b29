//! Steps: the threads' time, shared fairly among callers, one step of a call at a time.
//!
//! ```text
//!  call is woken ──► queue of its flow ──a place is free──► woken again ──► runs until it waits ──► flow is charged
//! ```
//!
//! The runtime's threads serve whatever is ready in the order in which it became ready, whoever it is for. When the
//! store has written, many of one caller's calls become ready at once, and another caller's one behind them would
//! wait until all are answered. So a call that is ready only queues here, which costs little, and few go on at
//! once: those of the flow that has had the least time ([`snic_admission::FairQueue`]). Connections take a step for each
//! piece that they read ([`crate::pieces`]), for it takes time to begin the calls in it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use parking_lot::Mutex;
use slab::Slab;
use snic_admission::{FairQueue, TakenItem};

use crate::share::{CallerFlow, CallerLevel, TIME_WEIGHTS};

/// The threads' time. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct FairScheduler(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    /// Calls that are ready, by their places in `calls`.
    ready: FairQueue<CallerFlow, usize>,
    calls: Slab<Stage>,
    /// Calls that may go on beside those that do.
    free: usize,
}

/// A call that does not wait for something else.
#[derive(Debug)]
enum Stage {
    /// It is in the queue; whom to wake.
    Ready(Waker),
    /// It may go on.
    Chosen(TakenItem<CallerFlow>),
    /// It was dropped while it was in the queue.
    Gone,
}

/// Takes steps, one at a time.
#[derive(Debug)]
pub(crate) struct SchedulerHandle {
    steps: FairScheduler,
    level: CallerLevel,
    flow: CallerFlow,
    /// Its place among those that are ready; `None` while it waits for something else.
    place: Option<usize>,
    /// The step that it is in.
    step: Option<RunningStep>,
}

/// A step that is taken, and since when.
#[derive(Debug)]
struct RunningStep {
    served: TakenItem<CallerFlow>,
    begun: Instant,
}

/// A call that takes its steps in turn; see the module.
#[derive(Debug)]
pub(crate) struct FairFuture<F> {
    stepper: SchedulerHandle,
    call: Pin<Box<F>>,
}

/// Ends a step on drop, also if the call panics.
struct EndsStep<'a>(&'a mut SchedulerHandle);

impl FairScheduler {
    /// For a runtime with so many threads: each may be busy with a step.
    pub fn of_threads(threads: usize) -> Self {
        let ready = FairQueue::new(TIME_WEIGHTS, usize::MAX);
        Self(Arc::new(Mutex::new(State { ready, calls: Slab::new(), free: threads })))
    }

    /// This call, with its steps charged to the flow.
    pub fn take<F: Future>(&self, level: CallerLevel, flow: CallerFlow, call: F) -> FairFuture<F> {
        FairFuture { stepper: self.stepper(level, flow), call: Box::pin(call) }
    }

    /// Something else whose steps are charged to the flow.
    pub fn stepper(&self, level: CallerLevel, flow: CallerFlow) -> SchedulerHandle {
        SchedulerHandle { steps: self.clone(), level, flow, place: None, step: None }
    }
}

impl State {
    /// Puts a call into the queue. Time O(log flows), as for choosing one.
    fn queue(&mut self, level: CallerLevel, flow: &CallerFlow, waker: &Waker) -> usize {
        let place = self.calls.insert(Stage::Ready(waker.clone()));
        let pushed = self.ready.push(level as usize, flow, place);
        assert!(pushed.is_ok(), "calls are limited before they get here");
        place
    }

    /// Chooses who goes on. Returns whom to wake.
    fn choose(&mut self) -> Vec<Waker> {
        let mut chosen = Vec::new();
        while self.free > 0
            && let Some((place, served)) = self.ready.pop()
        {
            if let Stage::Ready(waker) = &self.calls[place] {
                chosen.push(waker.clone());
                self.calls[place] = Stage::Chosen(served);
                self.free -= 1;
            } else {
                self.calls.remove(place);
            }
        }
        chosen
    }

    /// Takes the step of a call that was chosen; one that was not is woken when it is.
    fn step(&mut self, place: usize, waker: &Waker) -> Option<TakenItem<CallerFlow>> {
        match &mut self.calls[place] {
            Stage::Ready(current) => {
                current.clone_from(waker);
                None
            }
            _ => match self.calls.remove(place) {
                Stage::Chosen(served) => Some(served),
                Stage::Ready(_) | Stage::Gone => None,
            },
        }
    }
}

impl SchedulerHandle {
    /// Waits for its turn; then a step has begun, which lasts until [`SchedulerHandle::end`].
    pub fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.steps.0.lock();
        let Some(place) = self.place else {
            // Also if it is next: what became ready together with it comes into the queue first.
            self.place = Some(state.queue(self.level, &self.flow, cx.waker()));
            let chosen = state.choose();
            drop(state);
            chosen.into_iter().for_each(Waker::wake);
            return Poll::Pending;
        };
        let served = state.step(place, cx.waker());
        drop(state);
        let Some(served) = served else { return Poll::Pending };
        self.place = None;
        self.step = Some(RunningStep { served, begun: Instant::now() });
        Poll::Ready(())
    }

    /// Ends the step that it is in, if it is in one, and charges its time.
    pub fn end(&mut self) {
        if let Some(step) = self.step.take() {
            self.charge(step);
        }
    }

    fn charge(&self, RunningStep { served, begun }: RunningStep) {
        let mut state = self.steps.0.lock();
        state.ready.charge(served, begun.elapsed());
        state.free += 1;
        let chosen = state.choose();
        drop(state);
        chosen.into_iter().for_each(Waker::wake);
    }
}

impl Drop for SchedulerHandle {
    fn drop(&mut self) {
        self.end();
        let Some(place) = self.place.take() else { return };
        let mut state = self.steps.0.lock();
        if matches!(state.calls[place], Stage::Ready(_)) {
            // The queue still has its place.
            state.calls[place] = Stage::Gone;
        } else if let Stage::Chosen(served) = state.calls.remove(place) {
            drop(state);
            self.charge(RunningStep { served, begun: Instant::now() });
        }
    }
}

impl<F: Future> Future for FairFuture<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { stepper, call } = &mut *self;
        ready!(stepper.poll_begin(cx));
        let _step = EndsStep(stepper);
        call.as_mut().poll(cx)
    }
}

impl Drop for EndsStep<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::rc::Rc;
    use std::task::Wake;

    use proptest::prelude::*;

    use super::*;

    fn tenant(number: u8) -> CallerFlow {
        CallerFlow::Tenant(format!("t{number}").parse().expect("a label"))
    }

    /// The runtime's queue: tasks that were woken, first come first served.
    type Woken = Arc<Mutex<VecDeque<usize>>>;

    struct WakeTask(usize, Woken);

    impl Wake for WakeTask {
        fn wake(self: Arc<Self>) {
            let mut woken = self.1.lock();
            if !woken.contains(&self.0) {
                woken.push_back(self.0);
            }
        }
    }

    type Call = Pin<Box<dyn Future<Output = ()>>>;

    /// Waker of a call that waits.
    type Waits = Rc<RefCell<Option<Waker>>>;

    /// A runtime with one thread, and calls that wait for something else between their steps.
    struct Runtime {
        steps: FairScheduler,
        woken: Woken,
        /// `None` once it has ended.
        calls: Vec<Option<(Call, Waits)>>,
        /// Callers whose steps were taken.
        taken: Rc<RefCell<Vec<u8>>>,
    }

    impl Runtime {
        fn new(threads: usize) -> Self {
            let (steps, woken) = (FairScheduler::of_threads(threads), Woken::default());
            Self { steps, woken, calls: Vec::new(), taken: Rc::default() }
        }

        /// Begins a call of so many steps, each but the last of which ends with a wait.
        fn call(&mut self, flow: u8, mut waits: u32) {
            let (waker, taken) = (Waits::default(), Rc::clone(&self.taken));
            let own = Rc::clone(&waker);
            let work = std::future::poll_fn(move |cx| {
                taken.borrow_mut().push(flow);
                if waits == 0 {
                    return Poll::Ready(());
                }
                waits -= 1;
                *own.borrow_mut() = Some(cx.waker().clone());
                Poll::Pending
            });
            let call = self.steps.take(CallerLevel::Tenants, tenant(flow), work);
            self.woken.lock().push_back(self.calls.len());
            self.calls.push(Some((Box::pin(call), waker)));
        }

        /// Makes ready what this call waits for.
        fn ready(&self, call: usize) {
            let waker = self.calls[call].as_ref().and_then(|(_, waker)| waker.borrow_mut().take());
            waker.into_iter().for_each(Waker::wake);
        }

        /// Makes ready what all calls wait for.
        fn all_ready(&self) {
            (0..self.calls.len()).for_each(|call| self.ready(call));
        }

        /// Runs the first task of the queue; `false` if there is none.
        fn run(&mut self) -> bool {
            let Some(number) = self.woken.lock().pop_front() else { return false };
            let waker = Waker::from(Arc::new(WakeTask(number, Arc::clone(&self.woken))));
            if let Some((call, _)) = &mut self.calls[number]
                && call.as_mut().poll(&mut Context::from_waker(&waker)).is_ready()
            {
                self.calls[number] = None;
            }
            true
        }

        fn run_all(&mut self) {
            while self.run() {}
        }
    }

    #[test]
    fn a_call_that_becomes_ready_behind_hundreds_of_another_caller_is_next() {
        let mut runtime = Runtime::new(2);
        (0..300).for_each(|_| runtime.call(1, 1));
        runtime.call(2, 1);
        runtime.run_all();
        runtime.taken.borrow_mut().clear();
        // The store has written.
        runtime.all_ready();
        runtime.run_all();
        let ahead = runtime.taken.borrow().iter().position(|flow| *flow == 2);
        assert!(ahead.is_some_and(|ahead| ahead <= 2), "{ahead:?} went first, of two threads");
        assert!(runtime.calls.iter().all(Option::is_none));
    }

    #[test]
    fn no_more_calls_are_let_go_on_than_there_are_threads() {
        let steps = FairScheduler::of_threads(3);
        let mut cx = Context::from_waker(Waker::noop());
        let mut calls: Vec<_> = (0..9)
            .map(|number| Box::pin(steps.take(CallerLevel::Tenants, tenant(number), async {})))
            .collect();
        for call in &mut calls {
            assert!(call.as_mut().poll(&mut cx).is_pending());
        }
        let chosen = |steps: &FairScheduler| {
            let state = steps.0.lock();
            state.calls.iter().filter(|(_, stage)| matches!(stage, Stage::Chosen(_))).count()
        };
        assert_eq!(chosen(&steps), 3);
        drop(calls.remove(0));
        assert_eq!(chosen(&steps), 3, "one was given up, another goes on");
        drop(calls);
        assert_eq!(steps.0.lock().free, 3);
    }

    #[test]
    fn a_call_that_panics_gives_its_step_back() {
        let (steps, mut cx) = (FairScheduler::of_threads(1), Context::from_waker(Waker::noop()));
        let call = async { panic!("a mistake") };
        let mut call = Box::pin(steps.take(CallerLevel::Tenants, tenant(1), call));
        assert!(call.as_mut().poll(&mut cx).is_pending(), "it queues");
        let poll = std::panic::AssertUnwindSafe(|| {
            let _ = call.as_mut().poll(&mut cx);
        });
        assert!(std::panic::catch_unwind(poll).is_err());
        let mut other = Box::pin(steps.take(CallerLevel::Tenants, tenant(2), async { 7 }));
        assert_eq!(other.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending);
        assert_eq!(other.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(7));
    }

    #[derive(Debug, Clone)]
    enum Act {
        /// A call of this flow, with so many waits.
        Call(u8, u32),
        /// Makes ready what the n-th call waits for.
        Ready(usize),
        /// The runtime runs a task.
        Run,
        /// The n-th call is given up.
        Drop(usize),
    }

    proptest! {
        /// Whatever comes, waits, and is given up: no wake-up is lost, and nothing is left behind.
        #[test]
        fn every_call_that_is_ready_goes_on(
            threads in 1..4usize,
            acts in prop::collection::vec(
                prop_oneof![
                    (0..4u8, 0..3u32).prop_map(|(flow, steps)| Act::Call(flow, steps)),
                    (0..99usize).prop_map(Act::Ready),
                    Just(Act::Run),
                    (0..99usize).prop_map(Act::Drop),
                ],
                0..200,
            ),
        ) {
            let mut runtime = Runtime::new(threads);
            for act in acts {
                let calls = runtime.calls.len();
                match act {
                    Act::Call(flow, waits) => runtime.call(flow, waits),
                    Act::Run => _ = runtime.run(),
                    Act::Ready(_) | Act::Drop(_) if calls == 0 => {}
                    Act::Ready(which) => runtime.ready(which % calls),
                    Act::Drop(which) => drop(runtime.calls[which % calls].take()),
                }
            }
            // All that they wait for comes: at most twice.
            for _ in 0..3 {
                runtime.run_all();
                runtime.all_ready();
            }
            runtime.run_all();
            prop_assert!(runtime.calls.iter().all(Option::is_none), "some wait for ever");
            let mut state = runtime.steps.0.lock();
            prop_assert_eq!(state.free, threads);
            // Those that were given up in the queue leave it when they are next.
            state.choose();
            prop_assert!(state.calls.is_empty());
        }
    }
}
