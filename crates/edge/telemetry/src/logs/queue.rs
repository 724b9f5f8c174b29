//! The queue of records to send.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Bytes of records per export, well below the 4 MiB that collectors commonly accept: a few thousand
/// lines.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// Most bytes queued; further records are counted and dropped. Enough for a second of a daemon's state
/// changes at full load.
pub(super) const QUEUED_BYTES_MAX: usize = 8 << 20;

/// Records of one target, which the protocol groups.
#[derive(Debug)]
pub(super) struct Section {
    pub target: &'static str,
    pub records: Vec<u8>,
    /// End offset of each.
    pub ends: Vec<usize>,
}

/// Records of one export.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub sections: Vec<Section>,
    bytes: usize,
}

impl Batch {
    fn push(&mut self, target: &'static str, record: &[u8]) {
        // A program has few targets.
        let found = self.sections.iter().position(|section| section.target == target);
        let at = found.unwrap_or_else(|| {
            self.sections.push(Section { target, records: Vec::new(), ends: Vec::new() });
            self.sections.len() - 1
        });
        let section = &mut self.sections[at];
        section.records.extend_from_slice(record);
        section.ends.push(section.records.len());
        self.bytes += record.len();
    }

    /// Number of records.
    pub fn len(&self) -> u64 {
        self.sections.iter().map(|section| section.ends.len() as u64).sum()
    }
}

#[derive(Debug, Default)]
struct QueueState {
    filling: Batch,
    full: VecDeque<Batch>,
    /// Bytes of all batches.
    bytes: usize,
    dropped: u64,
}

/// The queue between logging threads and the sender.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<QueueState>,
    /// Signalled when a batch is full.
    pub full: Notify,
}

impl Queue {
    pub fn push(&self, target: &'static str, record: &[u8]) {
        let mut waiting = self.waiting.lock();
        if waiting.bytes + record.len() > QUEUED_BYTES_MAX {
            waiting.dropped += 1;
            return;
        }
        waiting.bytes += record.len();
        waiting.filling.push(target, record);
        if waiting.filling.bytes >= BATCH_BYTES_MAX {
            let batch = std::mem::take(&mut waiting.filling);
            waiting.full.push_back(batch);
            drop(waiting);
            self.full.notify_one();
        }
    }

    /// The oldest lines; `None` where none waits.
    pub fn take(&self) -> Option<Batch> {
        let mut waiting = self.waiting.lock();
        let full = waiting.full.pop_front();
        let batch = full.unwrap_or_else(|| std::mem::take(&mut waiting.filling));
        waiting.bytes -= batch.bytes;
        (batch.bytes > 0).then_some(batch)
    }

    /// Counts lines that are never sent.
    pub fn lose(&self, lines: u64) {
        self.waiting.lock().dropped += lines;
    }

    /// Number of lines that were dropped since this was asked last.
    pub fn dropped(&self) -> u64 {
        std::mem::take(&mut self.waiting.lock().dropped)
    }
}

#[cfg(test)]
impl Queue {
    pub fn waiting_bytes(&self) -> usize {
        self.waiting.lock().bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_keep_their_order_by_target_and_the_queue_is_bounded() {
        let queue = Queue::default();
        assert!(queue.take().is_none());
        for (target, text) in [("a", "1"), ("b", "22"), ("a", "333")] {
            queue.push(target, text.as_bytes());
        }
        let batch = queue.take().expect("three lines");
        assert_eq!(batch.len(), 3);
        let [a, b] = &batch.sections[..] else { panic!("{batch:?}") };
        assert_eq!((a.target, &a.records[..], &a.ends[..]), ("a", &b"1333"[..], &[1, 4][..]));
        assert_eq!((b.target, &b.records[..], &b.ends[..]), ("b", &b"22"[..], &[2][..]));

        let line = vec![b'x'; 1 << 10];
        let room = QUEUED_BYTES_MAX / line.len();
        (0..room + 5).for_each(|_| queue.push("a", &line));
        assert_eq!((queue.dropped(), queue.dropped()), (5, 0));
        let first = queue.take().expect("a full batch");
        assert_eq!(first.len() * 1024, BATCH_BYTES_MAX as u64);
        queue.push("a", &line);
        assert_eq!(queue.dropped(), 0, "there is room again");
        let mut lines = first.len();
        while let Some(batch) = queue.take() {
            lines += batch.len();
        }
        assert_eq!(lines, room as u64 + 1);
        assert_eq!(queue.waiting_bytes(), 0);
    }
}
