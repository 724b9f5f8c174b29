//! Messages of the daemon to systemd: that it is ready, reloads, stops, and that it is alive. Without systemd nothing is told.

use std::time::Duration;

use sd_notify::NotifyState;

pub fn ready() {
    notify(&[NotifyState::Ready, NotifyState::Status("serving")]);
}

/// Says that certificates and policies are read again; [`ready`] ends that.
pub fn reloading() {
    notify(&[NotifyState::Reloading, NotifyState::Status("reloading")]);
}

pub fn stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
}

pub fn alive() {
    notify(&[NotifyState::Watchdog]);
}

/// Interval at which systemd wants to hear that the daemon is alive: half of the time after which it is killed.
pub fn watchdog() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|limit| limit / 2)
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, ?states, "systemd cannot be told");
    }
}
