//! Requests that found no room, and wait for a consolidation that may make some.
//!
//! ```text
//!            refused, and DAGs may move          something was freed, or a search has ended
//!  request ────────────────────────────► held ──────────────────────────────────────────────► decided again
//!                                         ▲                                                       │
//!                                         └──────── refused, and DAGs may still move ─────────────┘
//! ```
//!
//! Nothing is promised to a held request, and nothing stored but that its DAG had no place, from which is said what is worth
//! building: its call is not answered yet, and after a crash its caller asks again. It is refused when no pass is left that could make room, or [`WAIT_MAX`] after it came. The one that came first is
//! decided first, one with each event, so that each has a transaction of its own. A batch is planned outside the controller, so instead
//! of a decision it gets [`Reply::PlanAgain`], and comes back with a new plan and the wait that it has had.

use snic_domain::limits::{CALLER_HELD_MAX, HELD_MAX};
use snic_domain::{BindingTarget, Timestamp};

use crate::place::consolidation::{WAIT_MAX, may_make_room};
use crate::protocol::{CallId, Caller, Command, Reply, Request, RoomWait};
use crate::state::Core;

/// A request whose call is not answered yet.
#[derive(Debug, Clone)]
pub(super) struct HeldRequest {
    pub call: CallId,
    pub request: Request,
    wait: RoomWait,
    /// Whether something was freed since it was decided last.
    is_due: bool,
}

impl HeldRequest {
    /// A request that has just come. A batch that was planned again has waited before.
    pub fn new(core: &Core, call: CallId, request: Request) -> Self {
        let before = match &request.command {
            Command::CreateDags { plan, .. } => plan.wait,
            _ => None,
        };
        let new = RoomWait { since: core.now(), after: core.passes.last_search() };
        Self { call, request, wait: before.unwrap_or(new), is_due: false }
    }

    /// The answer that it gets instead of a decision: a batch is planned elsewhere, and again while it may find room.
    pub fn plans_again(&self, core: &Core) -> Option<Reply> {
        let is_batch = matches!(self.request.command, Command::CreateDags { .. });
        (is_batch && self.may_wait(core)).then_some(Reply::PlanAgain(self.wait))
    }

    /// Whether it is to be decided again: it may find room, or it cannot wait any longer.
    fn is_due(&self, core: &Core) -> bool {
        self.is_due || core.planning.is_held_due() || !self.may_wait(core)
    }

    /// Whether it may be admitted yet.
    fn may_wait(&self, core: &Core) -> bool {
        core.now() < self.wait.since + WAIT_MAX && may_make_room(core, self.wait.after)
    }
}

/// All of them, in the order in which they came.
#[derive(Debug, Clone, Default)]
pub(super) struct HeldRequests {
    queue: Vec<HeldRequest>,
}

impl HeldRequests {
    /// A copy of a request that may have to wait: one that asks for a place, where DAGs may move and the caller has not
    /// too many that wait.
    pub fn copy(&self, core: &Core, asked: &HeldRequest) -> Option<HeldRequest> {
        let asks_for_place = match &asked.request.command {
            Command::CreateDag { validate_only, .. } | Command::UpdateDag { validate_only, .. } => {
                !validate_only
            }
            Command::CreateDags { batch, .. } => !batch.validate_only,
            Command::BindVm(spec) => matches!(spec.chains, BindingTarget::Template(_)),
            _ => false,
        };
        let may = asks_for_place && asked.may_wait(core) && self.has_room(&asked.request.caller);
        may.then(|| asked.clone())
    }

    fn has_room(&self, caller: &Caller) -> bool {
        let own = self.queue.iter().filter(|held| held.request.caller == *caller);
        self.queue.len() < HELD_MAX && own.count() < CALLER_HELD_MAX
    }

    /// A request was refused, and waits if it may yet be admitted. Says whether it does.
    pub fn hold(&mut self, core: &Core, held: HeldRequest) -> bool {
        let waits = held.may_wait(core);
        if waits {
            let held = HeldRequest { is_due: false, ..held };
            let at = self.queue.partition_point(|other| other.call < held.call);
            self.queue.insert(at, held);
        }
        waits
    }

    /// The next one that is to be decided again.
    pub fn take_due(&mut self, core: &mut Core) -> Option<HeldRequest> {
        if core.planning.take_held_due() {
            self.queue.iter_mut().for_each(|held| held.is_due = true);
        }
        let at = self.queue.iter().position(|held| held.is_due(core))?;
        Some(self.queue.remove(at))
    }

    /// When one is to be decided again, if nothing else happens before.
    pub fn next_wake_up(&self, core: &Core) -> Option<Timestamp> {
        let end = self.queue.iter().map(|held| held.wait.since + WAIT_MAX).min()?;
        let is_due = self.queue.iter().any(|held| held.is_due(core));
        Some(if is_due { core.now() } else { end })
    }

    /// Calls that wait, in the order in which they came.
    pub fn calls(&self) -> impl Iterator<Item = CallId> {
        self.queue.iter().map(|held| held.call)
    }
}
