//! Usage at the end of each event: where DAGs are now, whether their promises are kept, and an interval that is over.

use crate::react::budgets;
use crate::state::Core;
use crate::state::usage::Usage;
use crate::store::tx::Tx;
use crate::view::usage::{promise_state, rates};

/// Notes where the DAGs are whose records this event changes, or to which a machine's functions lead that it changes, in the same
/// batch, and closes an interval that is over. Time O(those DAGs); once in ten seconds O(accounts that were used).
pub(crate) fn follow(core: &mut Core, tx: &mut Tx) {
    let now = core.now();
    let mut changed = tx.touched_dags();
    for vm in tx.touched_bindings() {
        core.usage.follow_binding(&vm, core.bindings.get(&vm), &mut changed);
    }
    for name in changed {
        let entry = core.dags.get(&name).map(|entry| (entry, rates(core, entry)));
        core.usage.follow(now, &name, entry);
        core.usage.note_promise(&name);
    }
    for tenant in tx.touched_tenants() {
        Usage::follow_stored(core, now, &tenant);
    }
    core.usage.count_loads(now);
    for name in core.usage.take_noted_promises() {
        core.usage.follow_promise(now, &name, core.dags.get(&name), promise_state);
    }
    if core.usage.is_close_due(now) {
        let Core { usage, cards, .. } = core;
        cards.iter().for_each(|(id, card)| usage.take_in(id, card));
    }
    let ages = core.policies.current().usage_ages;
    for write in core.usage.close(now, &ages) {
        tx.put_usage(write);
    }
    budgets::follow(core, tx);
}
