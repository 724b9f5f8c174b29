//! Looks at budgets: the task that has the leader add up what was spent.

use std::time::Duration;

use tokio::sync::watch;

use crate::runner::{Leadership, RunnerHandle};
use crate::services::Services;
use crate::services::usage::spending::SpendingLevels;

/// Looks at budgets now and then while this replica leads, until `stopping`.
pub(crate) async fn run(
    services: Services,
    period: Duration,
    runner: RunnerHandle,
    mut stopping: watch::Receiver<bool>,
) {
    let mut levels = SpendingLevels::default();
    loop {
        tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => return,
            () = tokio::time::sleep(period) => {}
        }
        if *runner.leadership().borrow() != Leadership::Own {
            levels = SpendingLevels::default();
            continue;
        }
        tokio::select! {
            // A host that does not answer must not delay the end.
            _ = stopping.wait_for(|stopping| *stopping) => return,
            looked = services.look_at_budgets(&mut levels) => {
                if let Err(error) = looked {
                    tracing::warn!(%error, "budgets are not looked at this time");
                }
            }
        }
    }
}
