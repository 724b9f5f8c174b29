//! Room for questions that are asked of many hosts.

use snic_front::share::PermitPool;
use tokio::sync::Semaphore;

/// Questions of one kind that a replica answers at once, and those of one caller: each asks all hosts.
const QUESTIONS_MAX: usize = 16;
const QUESTIONS_PER_CALLER_MAX: usize = 2;
/// Questions to hosts at once: fewer than one caller may have passed on.
const HOSTS_AT_ONCE: usize = 8;

/// Room for questions of one kind.
#[derive(Debug)]
pub(super) struct QuestionRoom {
    pub(super) places: PermitPool,
    pub(super) hosts: Semaphore,
}

impl Default for QuestionRoom {
    fn default() -> Self {
        let places = PermitPool::passed_calls(QUESTIONS_MAX, QUESTIONS_PER_CALLER_MAX);
        Self { places, hosts: Semaphore::new(HOSTS_AT_ONCE) }
    }
}
