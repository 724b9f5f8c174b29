//! A watch that goes on where it was when a member fails.
//!
//! ```text
//!            opened          events, bookmark
//!  closed ───────────► open ──────────────────► told; `from` is behind it
//!    ▲                  │
//!    └── failure: next member, the same `from`   compacted: ends
//! ```
//!
//! etcd is asked for one revision more than is wanted, which is passed over. A compaction removes the deletions of
//! its own revision, and yet watches may begin there (in 3.4, and later until
//! <https://github.com/etcd-io/etcd/issues/19179>): they would miss them without a word. One that begins before it is
//! told that the history is gone.

use std::time::Duration;

use etcd_client::{Event, EventType, WatchOptions, WatchResponse, WatchStream};
use snic_etcd::{Change, Failed, Refusal, Revision, Watch, WatchUpdate};

use crate::connection::EtcdConnection;
use crate::failures::failed;
use crate::keys::range_of;
use crate::member::{ANSWER_BYTES_MAX, record};

/// Wait of a watch before it tries the members once more after none could be reached.
const RETRY: Duration = Duration::from_millis(200);

/// A watch. Dropping it ends it.
pub struct EtcdWatchStream {
    connection: EtcdConnection,
    watch: Watch,
    stream: Option<Open>,
    /// Failures since something was told.
    failures: usize,
}

struct Open {
    stream: WatchStream,
    member: usize,
    /// Whether bookmarks can be asked for.
    can_ask: bool,
}

impl std::fmt::Debug for EtcdWatchStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watching").field("watch", &self.watch).finish_non_exhaustive()
    }
}

impl EtcdConnection {
    /// Begins a watch. It connects when it is asked for the first time.
    ///
    /// # Errors
    ///
    /// [`Failed::Invalid`] for a watch from before revision 1.
    pub fn watch(&self, watch: Watch) -> Result<EtcdWatchStream, Failed> {
        watch.check()?;
        Ok(EtcdWatchStream::new(self.clone(), watch))
    }
}

impl EtcdWatchStream {
    pub(crate) const fn new(connection: EtcdConnection, watch: Watch) -> Self {
        Self { connection, watch, stream: None, failures: 0 }
    }

    /// The first revision that has not been told.
    pub const fn from(&self) -> Revision {
        self.watch.from
    }

    /// Waits for what is told next. A call that is dropped before it returns loses nothing.
    ///
    /// # Errors
    ///
    /// [`Failed::Compacted`]: the watch has ended, everything is to be read again.
    /// [`Failed::Unreachable`] after no member could be reached: the next call tries again. Until then nobody
    /// knows what has changed. A refusal ([`Failed::refusal`]): the next call tries again, too. Each call that fails takes
    /// 200 ms or longer.
    pub async fn next(&mut self) -> Result<WatchUpdate, Failed> {
        loop {
            let outcome = match &mut self.stream {
                Some(open) => open.stream.message().await,
                None => {
                    self.open().await?;
                    continue;
                }
            };
            match outcome {
                Ok(Some(response)) => match self.take(&response) {
                    Ok(Some(told)) => {
                        self.failures = 0;
                        self.watch.from = Revision(told.until.0 + 1);
                        return Ok(told);
                    }
                    Ok(None) => {}
                    Err(failed) if failed.refusal().is_some() => {
                        // The next call would hear the same.
                        tokio::time::sleep(RETRY).await;
                        return Err(failed);
                    }
                    Err(failed) => return Err(failed),
                },
                Ok(None) => self.close(),
                Err(error) => {
                    tracing::debug!(%error, prefix = self.watch.prefix, "a watch broke");
                    self.close();
                }
            }
        }
    }

    /// Asks for a bookmark, which [`EtcdWatchStream::next`] tells. Returns whether the member can give one at once; others
    /// give one every ten minutes on their own (`--experimental-watch-progress-notify-interval`).
    ///
    /// Members older than 3.4.31 and 3.5.13 cannot: theirs may come before the changes that it covers
    /// (<https://github.com/etcd-io/etcd/issues/15220>), or never. Kubernetes asks for the same versions.
    pub async fn request_bookmark(&mut self) -> bool {
        match &mut self.stream {
            Some(open) if open.can_ask => open.stream.request_progress().await.is_ok(),
            _ => false,
        }
    }

    async fn open(&mut self) -> Result<(), Failed> {
        if self.failures >= self.connection.member_count() {
            // Each member failed since the last call that told something or failed.
            self.failures = 0;
            tokio::time::sleep(RETRY).await;
            return Err(Failed::Unreachable("no member keeps the watch open".to_owned()));
        }
        let (at, member) = self.connection.member();
        let mut client = member.client();
        let (begin, end) = range_of(&self.watch.prefix, None);
        let options = WatchOptions::new()
            .with_range(end)
            .with_start_revision(self.watch.from.0.saturating_sub(1).max(1))
            .with_progress_notify();
        let mut watches = client.watch_client().max_decoding_message_size(ANSWER_BYTES_MAX);
        let opening = async {
            let of = |error| failed(error, Revision(0));
            let can_ask = match client.status().await.map_err(of) {
                Ok(status) => gives_bookmarks(status.version()),
                // Since 3.6 only root may ask. The members that refuse this are all young enough.
                Err(Failed::Refused { why: Refusal::NotPermitted, .. }) => true,
                Err(failed) => return Err(failed),
            };
            Ok((can_ask, watches.watch(begin, Some(options)).await.map_err(of)?))
        };
        match tokio::time::timeout(self.connection.timeout(), opening).await {
            Ok(Ok((can_ask, stream))) => {
                self.stream = Some(Open { stream, member: at, can_ask });
                return Ok(());
            }
            Ok(Err(failed)) => {
                if failed.refusal().is_some() {
                    // The next call would hear the same.
                    tokio::time::sleep(RETRY).await;
                    return Err(failed);
                }
            }
            Err(_) => self.connection.renew(at, &member).await,
        }
        self.connection.leave(at);
        self.failures += 1;
        Ok(())
    }

    fn close(&mut self) {
        if let Some(open) = self.stream.take() {
            self.connection.leave(open.member);
            self.failures += 1;
        }
    }

    fn take(&mut self, response: &WatchResponse) -> Result<Option<WatchUpdate>, Failed> {
        if response.compact_revision() > 0 {
            self.stream = None;
            return Err(Failed::Compacted(Revision(response.compact_revision() + 1)));
        }
        if response.canceled() {
            self.close();
            let said = response.cancel_reason();
            // Without permission a watch is made and ended at once.
            return if said.contains("permission denied") {
                Err(Failed::Refused { why: Refusal::NotPermitted, said: said.to_owned() })
            } else {
                Ok(None)
            };
        }
        if response.created() {
            // It carries the revision of the store, whose changes may not have been told.
            return Ok(None);
        }
        let from = self.watch.from.0;
        let events = response.events().iter();
        let changes: Vec<Change> = events
            .filter(|event| event.kv().is_some_and(|kv| kv.mod_revision() >= from))
            .filter_map(change)
            .collect();
        // A response has whole revisions, but not all that are there: what counts is its last event.
        let last = response.events().last().and_then(Event::kv).map(|kv| kv.mod_revision());
        let until =
            Revision(last.unwrap_or_else(|| {
                response.header().map_or(0, etcd_client::ResponseHeader::revision)
            }));
        Ok((until >= self.watch.from).then_some(WatchUpdate { changes, until }))
    }
}

fn change(event: &Event) -> Option<Change> {
    let found = match record(event.kv()?.clone()) {
        Ok(found) => found,
        Err(failed) => {
            tracing::warn!(%failed, "a watch passes over a key");
            return None;
        }
    };
    Some(match event.event_type() {
        EventType::Put => Change::Put(found),
        EventType::Delete => Change::Deleted { key: found.key, at: found.changed },
    })
}

/// Whether a member of this version (`3.5.13`) gives bookmarks that can be believed.
fn gives_bookmarks(version: &str) -> bool {
    let mut numbers = version.split(['.', '-', '+']).map(|part| part.parse::<u32>().unwrap_or(0));
    let mut next = || numbers.next().unwrap_or(0);
    match (next(), next(), next()) {
        (3, 4, patch) => patch >= 31,
        (3, 5, patch) => patch >= 13,
        (major, minor, _) => (major, minor) >= (3, 6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bookmarks_are_asked_for_from_the_versions_on_that_keep_their_order() {
        let (yes, no) = (true, false);
        for (version, expected) in [
            ("3.4.23", no),
            ("3.4.31", yes),
            ("3.5.12", no),
            ("3.5.13", yes),
            ("3.6.0-rc.1", yes),
            ("3.3.27", no),
            ("4.0.0", yes),
            ("", no),
        ] {
            assert_eq!(gives_bookmarks(version), expected, "{version:?}");
        }
    }
}
