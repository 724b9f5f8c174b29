//! The queue of the controller's thread.
//!
//! ```text
//!  cards, store ──────────► first come, first served ──┐
//!                                                      ├──► the thread
//!  calls ──by level and flow──► fair queue of time ────┘
//! ```
//!
//! Messages from cards and the store go first: they are few, bounded by the commands sent to them,
//! and everything else depends on them. Calls share the rest of the thread's time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use snic_admission::{FairQueue, Overflow, TakenItem};
use snic_front::share::{CallerFlow, CallerLevel, TIME_WEIGHTS};

use super::message::Message;

/// Most waiting calls of one flow. The gate lets fewer in; but a caller may give up calls faster than the
/// thread gets to them.
const FLOW_MAX: usize = 2_048;

/// Both ends. Cheap to clone.
#[derive(Clone)]
pub(super) struct Inbox(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    arrived: Condvar,
}

struct State {
    first: VecDeque<Message>,
    calls: FairQueue<CallerFlow, Message>,
    closed: bool,
}

/// Why a message was not queued.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotQueued {
    /// The thread has ended.
    Closed,
    /// The flow has its share of waiting calls.
    Full(Overflow),
}

/// A message, and the flow that its time is charged to.
pub(super) type Received = (Message, Option<TakenItem<CallerFlow>>);

impl Inbox {
    pub fn new() -> Self {
        let calls = FairQueue::new(TIME_WEIGHTS, FLOW_MAX);
        let state = State { first: VecDeque::new(), calls, closed: false };
        Self(Arc::new(Shared { state: Mutex::new(state), arrived: Condvar::new() }))
    }

    /// Queues a message that goes first. If the thread has ended, it is dropped.
    pub fn send(&self, message: Message) {
        let mut state = self.0.state.lock();
        if !state.closed {
            state.first.push_back(message);
            self.0.arrived.notify_one();
        }
    }

    /// Queues a call.
    pub fn call(
        &self,
        level: CallerLevel,
        flow: &CallerFlow,
        message: Message,
    ) -> Result<(), NotQueued> {
        let mut state = self.0.state.lock();
        if state.closed {
            return Err(NotQueued::Closed);
        }
        let queued = state.calls.push(level as usize, flow, message);
        queued.map_err(|(_, overflow)| NotQueued::Full(overflow))?;
        self.0.arrived.notify_one();
        Ok(())
    }

    /// The next message; `None` if none arrives in time.
    pub fn receive(&self, timeout: Duration) -> Option<Received> {
        let until = Instant::now() + timeout;
        let mut state = self.0.state.lock();
        loop {
            if let Some(message) = state.first.pop_front() {
                return Some((message, None));
            }
            if let Some((message, served)) = state.calls.pop() {
                return Some((message, Some(served)));
            }
            if self.0.arrived.wait_until(&mut state, until).timed_out() {
                return None;
            }
        }
    }

    /// Charges a flow for the time that its message took.
    pub fn charge(&self, served: TakenItem<CallerFlow>, time: Duration) {
        self.0.state.lock().calls.charge(served, time);
    }

    /// Calls that wait.
    pub fn waiting(&self) -> usize {
        self.0.state.lock().calls.len()
    }

    /// Accepts no more messages, and drops the waiting ones: their callers get an error.
    pub fn close(&self) {
        let mut state = self.0.state.lock();
        state.closed = true;
        let left = std::mem::take(&mut state.first);
        let calls = std::mem::replace(&mut state.calls, FairQueue::new(TIME_WEIGHTS, FLOW_MAX));
        drop(state);
        // Not under the lock: dropping a message may run the code of its callers.
        drop((left, calls));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    fn read() -> Message {
        Message::Read(Box::new(|_| Box::new(|| ())), None)
    }

    fn tenant(id: &str) -> CallerFlow {
        CallerFlow::Tenant(id.parse().expect("a label"))
    }

    #[test]
    fn events_of_cards_and_store_are_handled_before_calls() {
        let inbox = Inbox::new();
        inbox.call(CallerLevel::Tenants, &tenant("acme"), read()).expect("room");
        inbox.send(Message::Stop);
        assert!(matches!(inbox.receive(SOON), Some((Message::Stop, None))));
        assert!(matches!(inbox.receive(SOON), Some((Message::Read(..), Some(_)))));
        assert!(inbox.receive(Duration::ZERO).is_none());
    }

    #[test]
    fn a_tenant_that_floods_delays_another_by_one_call() {
        let inbox = Inbox::new();
        for _ in 0..1_000 {
            inbox.call(CallerLevel::Tenants, &tenant("acme"), read()).expect("room");
        }
        for _ in 0..100 {
            let (_, served) = inbox.receive(SOON).expect("one waits");
            inbox.charge(served.expect("a call"), Duration::from_millis(1));
        }
        inbox.call(CallerLevel::Tenants, &tenant("globex"), Message::Stop).expect("room");
        let mut ahead = 0;
        while let Some((message, served)) = inbox.receive(SOON) {
            inbox.charge(served.expect("a call"), Duration::from_millis(1));
            if matches!(message, Message::Stop) {
                break;
            }
            ahead += 1;
        }
        assert!(ahead <= 1, "{ahead} calls of another tenant went first");
    }

    #[test]
    fn a_closed_one_takes_nothing_and_keeps_nothing() {
        let inbox = Inbox::new();
        inbox.call(CallerLevel::Tenants, &tenant("acme"), read()).expect("room");
        inbox.close();
        let refused = inbox.call(CallerLevel::Tenants, &tenant("acme"), read());
        assert_eq!(refused, Err(NotQueued::Closed));
        inbox.send(Message::Stop);
        assert!(inbox.receive(Duration::ZERO).is_none());
        assert_eq!(inbox.waiting(), 0);
    }
}
