//! Floods for modules that loop, and the rate of a neighbour beside them.

use crate::modules;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_module_that_loops_or_traps_harms_only_its_tenant() {
    modules::a_module_that_loops_or_traps_harms_only_its_tenant().await;
}
