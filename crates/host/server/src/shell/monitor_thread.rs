//! Reads a card's device again and again, beside the card's thread: also while the card is closed or lost.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use snic_controller::Event;
use snic_domain::{CardId, DeviceReading};
use snic_ports::device::DeviceMonitor;

use super::inbox::Inbox;
use super::message::Message;

/// Between two readings.
const INTERVAL: Duration = Duration::from_secs(2);

pub(super) struct MonitorThread {
    stop: SyncSender<()>,
    thread: JoinHandle<()>,
}

impl MonitorThread {
    /// Ends the thread, after what it reads now.
    pub fn stop(self) {
        drop(self.stop);
        if self.thread.join().is_err() {
            tracing::error!("a device's monitor panicked");
        }
    }
}

/// Starts the thread of one card.
pub(super) fn start(
    card: CardId,
    monitor: Box<dyn DeviceMonitor>,
    messages: Inbox,
) -> std::io::Result<MonitorThread> {
    let (stop, stopped) = sync_channel(0);
    let thread = std::thread::Builder::new()
        .name(format!("device-{card}"))
        .spawn(move || run(&card, monitor, &messages, &stopped))?;
    Ok(MonitorThread { stop, thread })
}

fn run(card: &CardId, mut monitor: Box<dyn DeviceMonitor>, to: &Inbox, stopped: &Receiver<()>) {
    let mut failed = None;
    loop {
        let reading = monitor.read().unwrap_or_else(|reason| {
            if failed.as_ref() != Some(&reason) {
                tracing::warn!(%card, reason, "the card's device cannot be read");
                failed = Some(reason);
            }
            // Nothing is known of it then.
            DeviceReading::default()
        });
        if reading != DeviceReading::default() {
            failed = None;
        }
        let event = Event::DeviceRead { card: card.clone(), reading: Box::new(reading) };
        to.send(Message::Event(event));
        if stopped.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}
