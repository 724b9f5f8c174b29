//! Usage at the end of each event: where DAGs are now, and an interval that is over.

use crate::state::Core;
use crate::store::tx::Tx;

/// Notes where the DAGs are whose records this event changes, in the same batch, and closes an interval that is over. Time
/// O(those DAGs); once in ten seconds O(all accounts).
pub(crate) fn follow(core: &mut Core, tx: &mut Tx) {
    let now = core.now();
    for name in tx.touched_dags() {
        core.usage.follow(now, &name, core.dags.get(&name));
    }
    for write in core.usage.close(now) {
        tx.put_usage(write);
    }
}
