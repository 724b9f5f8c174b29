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
//! decided first, one with each event, so that each has a transaction of its own.

use snic_domain::Timestamp;
use snic_domain::limits::{CALLER_HELD_MAX, HELD_MAX};

use crate::place::consolidation::{WAIT_MAX, may_make_room};
use crate::protocol::{CallId, Caller, Command, Request};
use crate::state::Core;
use crate::state::passes::SearchNo;

/// A request whose call is not answered yet.
#[derive(Debug, Clone)]
pub(super) struct HeldRequest {
    pub call: CallId,
    pub request: Request,
    /// When it came.
    since: Timestamp,
    /// The last search that had begun by then: what is found by later ones counts for it.
    after: SearchNo,
    /// Whether something was freed since it was decided last.
    is_due: bool,
}

impl HeldRequest {
    /// A request that has just come.
    pub const fn new(core: &Core, call: CallId, request: Request) -> Self {
        let after = core.passes.last_search();
        Self { call, request, since: core.now(), after, is_due: false }
    }

    /// Whether it is to be decided again: it may find room, or it cannot wait any longer.
    fn is_due(&self, core: &Core) -> bool {
        self.is_due || core.planning.is_held_due() || !self.may_wait(core)
    }

    /// Whether it may be admitted yet.
    fn may_wait(&self, core: &Core) -> bool {
        core.now() < self.since + WAIT_MAX && may_make_room(core, self.after)
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
            _ => false,
        };
        let may = asks_for_place
            && may_make_room(core, core.passes.last_search())
            && self.has_room(&asked.request.caller);
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
        let end = self.queue.iter().map(|held| held.since + WAIT_MAX).min()?;
        let is_due = self.queue.iter().any(|held| held.is_due(core));
        Some(if is_due { core.now() } else { end })
    }

    /// Calls that wait, in the order in which they came.
    pub fn calls(&self) -> impl Iterator<Item = CallId> {
        self.queue.iter().map(|held| held.call)
    }
}
