//! Frames that the queue of a TAP device dropped before the card took them: the kernel counts them with the device, not with the
//! card's descriptor, and the device may be in any network namespace. Asking may wait for locks of the kernel's, so a
//! thread asks, and packets never wait for it.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::system;

/// Interval between questions of the thread.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Where `tx_dropped` is among a device's numbers in `/proc/net/dev`: behind eight of what the device received, bytes,
/// packets and errors.
const DROPPED_AT: usize = 8 + 3;

/// The frames that a TAP device dropped.
pub(super) struct TapDrops {
    /// Since the card has the device.
    total: Arc<AtomicU64>,
    taken: u64,
}

impl TapDrops {
    /// Begins to look at this device.
    pub(super) fn watch(device: &File) -> io::Result<Self> {
        let total = Arc::new(AtomicU64::new(0));
        let mut look = DropsView { device: device.try_clone()?, namespace: None, before: None };
        let weak = Arc::downgrade(&total);
        std::thread::Builder::new().name("card-drops".into()).spawn(move || look.run(&weak))?;
        Ok(Self { total, taken: 0 })
    }

    /// Frames that were dropped since the last call, as far as the thread has seen.
    pub(super) fn take(&mut self) -> u64 {
        let total = self.total.load(Ordering::Relaxed);
        let new = total.saturating_sub(self.taken);
        self.taken = total.max(self.taken);
        new
    }
}

/// The thread's view of a device.
struct DropsView {
    device: File,
    /// The namespace that the thread is in: that of the device, when it last looked.
    namespace: Option<(u64, u64)>,
    /// Drops of the device before the card had it.
    before: Option<u64>,
}

impl DropsView {
    fn run(&mut self, total: &Weak<AtomicU64>) {
        while let Some(total) = total.upgrade() {
            // A device that is gone, or a namespace that is closed to the card, says no more.
            if let Ok(dropped) = self.dropped() {
                let before = *self.before.get_or_insert(dropped);
                total.store(dropped.saturating_sub(before), Ordering::Relaxed);
            }
            drop(total);
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    fn dropped(&mut self) -> io::Result<u64> {
        let (name, namespace) = system::find_tap(&self.device)?;
        let namespace = File::from(namespace);
        let of = namespace.metadata()?;
        if self.namespace != Some((of.dev(), of.ino())) {
            system::enter_network(&namespace.into())?;
            self.namespace = Some((of.dev(), of.ino()));
        }
        let table = std::fs::read_to_string("/proc/thread-self/net/dev")?;
        dropped_of(&table, &name).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// A device's `tx_dropped` in the table of all devices.
fn dropped_of(table: &str, name: &str) -> Option<u64> {
    let numbers = table.lines().find_map(|line| {
        let (device, numbers) = line.trim_start().split_once(':')?;
        (device == name).then_some(numbers)
    })?;
    numbers.split_whitespace().nth(DROPPED_AT)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dropped_frames_of_one_device_are_found() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed multicast|bytes\n\
                     \x20   lo:  1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
                     \x20 web0:100 200 0 0 0 0 0 0 900 10 0 77 0 0 0 0\n";
        assert_eq!(dropped_of(table, "web0"), Some(77));
        assert_eq!(dropped_of(table, "lo"), Some(12));
        assert_eq!(dropped_of(table, "web"), None);
        assert_eq!(dropped_of("face", "web"), None);
    }
}
