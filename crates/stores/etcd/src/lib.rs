//! Requests to etcd by the fleet, as values: transactions, leases, watches and what comes back.
//!
//! ```text
//!  fleet (pure) ── Request ──► store-etcd ──► etcd          in production
//!       ▲        ── Request ──► model                        in the simulation
//!       └──────── Answer, Change ◄──
//! ```
//!
//! Only the part of etcd's API (v3) that the fleet needs, without its client, sockets or clock. Every write is a
//! [`Transaction`]; one that a leader sends is conditional on its election key ([`Compare::CreatedAt`]), so that a
//! leader that lost the election changes nothing, however late its request arrives.

pub mod backoff;
pub mod election;
pub mod model;
mod refusals;

use std::fmt;

pub use refusals::Refusal;

/// A revision of the whole store: it grows by one with each transaction that changes something. 0 is before
/// the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub i64);

/// A lease: keys that are attached to it are deleted when it ends. etcd's 0 means none, which is `None` here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// Most operations of one transaction, which is etcd's default (`--max-txn-ops`).
pub const OPERATIONS_MAX: usize = 128;

/// Longest request in bytes, which is etcd's default (`--max-request-bytes`, 1.5 MiB).
pub const REQUEST_BYTES_MAX: usize = 1536 * 1024;

/// Condition of a transaction's operations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compare {
    /// The key exists since this revision; [`Revision`] 0: it does not exist.
    CreatedAt(String, Revision),
    /// The key was last written at this revision; [`Revision`] 0: it does not exist.
    ChangedAt(String, Revision),
}

/// One step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Creates or replaces a record.
    Put {
        key: String,
        value: Vec<u8>,
        /// The lease with which it ends, if any.
        lease: Option<LeaseId>,
    },
    /// Removes a record; removing an absent one does nothing.
    Delete { key: String },
}

/// Operations that take effect together or not at all. etcd refuses two puts of one key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Transaction {
    /// All of them must hold, or nothing is done.
    pub compares: Vec<Compare>,
    /// Operations, at most [`OPERATIONS_MAX`].
    pub operations: Vec<Operation>,
}

impl Transaction {
    /// An upper bound of what it takes as a request, in bytes.
    pub fn bytes(&self) -> usize {
        let compares = self.compares.iter().map(Compare::bytes).sum::<usize>();
        compares + self.operations.iter().map(Operation::bytes).sum::<usize>()
    }

    /// Refuses what etcd would refuse whatever it holds: too many steps, too many bytes, an empty key, a key that is
    /// put twice, or put and deleted.
    ///
    /// # Errors
    ///
    /// [`Failed::Invalid`].
    pub fn check(&self) -> Result<(), Failed> {
        for (what, count) in
            [("operations", self.operations.len()), ("compares", self.compares.len())]
        {
            if count > OPERATIONS_MAX {
                let reason = format!("{count} {what}; a transaction has at most {OPERATIONS_MAX}");
                return Err(Failed::Invalid(reason));
            }
        }
        let bytes = self.bytes();
        if bytes > REQUEST_BYTES_MAX {
            let reason = format!("{bytes} bytes; a transaction has at most {REQUEST_BYTES_MAX}");
            return Err(Failed::Invalid(reason));
        }
        let compared = self.compares.iter().map(Compare::key);
        if compared.chain(self.operations.iter().map(Operation::key)).any(str::is_empty) {
            return Err(Failed::Invalid("a key is empty".to_owned()));
        }
        let mut keys: Vec<_> =
            self.operations.iter().map(|operation| (operation.key(), operation.is_put())).collect();
        keys.sort_unstable();
        match keys.windows(2).find(|pair| pair[0].0 == pair[1].0 && pair[1].1) {
            Some(pair) => {
                let reason = format!("the key {:?} is written twice in a transaction", pair[0].0);
                Err(Failed::Invalid(reason))
            }
            None => Ok(()),
        }
    }
}

/// Bytes of a step in a request besides keys and values: tags, lengths, revision, lease.
const STEP_BYTES: usize = 48;

impl Compare {
    /// The key that is looked at.
    pub fn key(&self) -> &str {
        match self {
            Self::CreatedAt(key, _) | Self::ChangedAt(key, _) => key,
        }
    }

    fn bytes(&self) -> usize {
        STEP_BYTES + self.key().len()
    }
}

impl Operation {
    /// The key that is changed.
    pub fn key(&self) -> &str {
        match self {
            Self::Put { key, .. } | Self::Delete { key } => key,
        }
    }

    const fn is_put(&self) -> bool {
        matches!(self, Self::Put { .. })
    }

    fn bytes(&self) -> usize {
        let value = match self {
            Self::Put { value, .. } => value.len(),
            Self::Delete { .. } => 0,
        };
        STEP_BYTES + self.key().len() + value
    }
}

/// One record, with what etcd knows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    pub key: String,
    pub value: Vec<u8>,
    /// When it was created.
    pub created: Revision,
    /// When it was last written.
    pub changed: Revision,
    /// Number of writes since it was created.
    pub version: i64,
    /// The lease with which it ends.
    pub lease: Option<LeaseId>,
}

/// Request to etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Carry out a transaction.
    Commit(Transaction),
    /// All records whose keys begin with `prefix`, in the order of their keys.
    Range {
        /// The beginning of the keys.
        prefix: String,
        /// As of this revision; `None`: as of now.
        at: Option<Revision>,
        /// From this key on, for the next page.
        from: Option<String>,
        /// At most so many.
        limit: usize,
    },
    /// A new lease that ends after `seconds` without a sign of life.
    Grant {
        /// Its time to live in seconds, at least 1. etcd may choose a longer one.
        seconds: u32,
    },
    /// A sign of life of a lease.
    KeepAlive(LeaseId),
    /// The end of a lease and its keys.
    Revoke(LeaseId),
    /// Forget what was before this revision: ranges and watches from before it fail from now on.
    Compact(Revision),
}

impl Request {
    /// Refuses what etcd would refuse whatever it holds, or would take for something else.
    ///
    /// # Errors
    ///
    /// [`Failed::Invalid`].
    pub fn check(&self) -> Result<(), Failed> {
        let refused = |reason: &str| Err(Failed::Invalid(reason.to_owned()));
        match self {
            Self::Commit(transaction) => transaction.check(),
            Self::Range { limit: 0, .. } => refused("a range of 0 records; ask for 1 or more"),
            Self::Range { at: Some(at), .. } if at.0 < 1 => {
                refused(&format!("a range as of revision {at}; the first one is 1"))
            }
            Self::Grant { seconds: 0 } => refused("a lease of 0 seconds; the shortest is 1"),
            Self::KeepAlive(LeaseId(0)) | Self::Revoke(LeaseId(0)) => {
                refused("lease 0, which is none")
            }
            Self::Compact(at) if at.0 < 1 => {
                refused(&format!("a compaction to revision {at}; the first one is 1"))
            }
            Self::Range { .. }
            | Self::Grant { .. }
            | Self::KeepAlive(_)
            | Self::Revoke(_)
            | Self::Compact(_) => Ok(()),
        }
    }
}

/// Answer of etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The transaction was carried out, and what it changed has this revision.
    Committed(Revision),
    /// A compare did not hold: nothing was done.
    Refused(Revision),
    /// Findings of [`Request::Range`].
    Range {
        records: Vec<Record>,
        /// Whether there are more behind the last one.
        more: bool,
        /// The revision of the store when it was asked.
        now: Revision,
    },
    /// The new lease and its time to live in seconds.
    Granted(LeaseId, u32),
    /// The lease lives for so many seconds more.
    Alive(LeaseId, u32),
    /// The lease ended before, or just now.
    Ended(LeaseId),
    /// History before the revision is forgotten.
    Compacted,
}

/// Why there is no [`Answer`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// Nobody knows whether it was carried out: the answer was lost, or the member stopped in between. Who needs
    /// to know asks for what should have changed.
    #[error("no answer from etcd ({0}); whether the request was carried out is open")]
    Unknown(String),
    /// The request reached no member that could carry it out: nothing was done.
    #[error("etcd cannot be reached ({0}); nothing was done")]
    Unreachable(String),
    /// The request is for something older than what etcd keeps: read all of it again. The revision is where the history
    /// begins; of a range or compaction, whose answers do not say where, the one behind that which was asked for.
    #[error("the history before revision {0} is gone; read everything again")]
    Compacted(Revision),
    /// The request breaks a rule of etcd that every member has: nothing was done.
    #[error("etcd refused the request: {0}")]
    Invalid(String),
    /// etcd refuses this until somebody changes something there: nothing was done. With etcd's own words.
    #[error("etcd refuses this, nothing was done: {said} ({why}); {}", .why.remedy())]
    Refused {
        /// The class of the refusal.
        why: Refusal,
        /// Text of etcd.
        said: String,
    },
    /// A lease that the transaction names has ended, or never was: nothing was done.
    #[error("a lease of the transaction has ended; nothing was done")]
    LeaseEnded,
}

impl Failed {
    /// The refusal, if etcd did nothing and would answer the same once more. `None`: the outcome is open
    /// ([`Failed::Unknown`]), or another request, or the same one later, may be answered.
    pub fn refusal(&self) -> Option<(Refusal, String)> {
        match self {
            Self::Refused { why, said } => Some((*why, said.clone())),
            Self::Invalid(said) => Some((Refusal::Malformed, said.clone())),
            Self::Unknown(_) | Self::Unreachable(_) | Self::Compacted(_) | Self::LeaseEnded => None,
        }
    }
}

/// Subject and start of a watch. A reader that has everything until R goes on with `from` R + 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Watch {
    /// The beginning of the keys.
    pub prefix: String,
    /// The first revision whose changes are told, at least 1.
    pub from: Revision,
}

impl Watch {
    /// Refuses what etcd would take for something else.
    ///
    /// # Errors
    ///
    /// [`Failed::Invalid`].
    pub fn check(&self) -> Result<(), Failed> {
        match self.from.0 {
            1.. => Ok(()),
            from => {
                let reason = format!("a watch from revision {from}; the first one is 1");
                Err(Failed::Invalid(reason))
            }
        }
    }
}

/// News of a watch: the next changes, in the order of revisions, all of a revision at once. Without changes it
/// is a bookmark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchUpdate {
    pub changes: Vec<Change>,
    /// All changes up to this revision have been told, its own included.
    pub until: Revision,
}

/// One change that a watch tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A record was written.
    Put(Record),
    /// A record was removed, or its lease ended.
    Deleted { key: String, at: Revision },
}
