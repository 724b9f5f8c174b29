//! A flood through a software card, which takes a processor for itself.

use crate::soft::hitless::judge_a_greedy_neighbour;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_greedy_neighbour_takes_nothing_of_a_promise_and_gets_instances() {
    judge_a_greedy_neighbour().await;
}
