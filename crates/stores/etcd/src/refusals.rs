//! Definite refusals of etcd: it did nothing, says why, and gives the same answer until somebody changes something there.

use std::fmt;

/// Why etcd refuses a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// Its database has reached its quota (`--quota-backend-bytes`): nothing that takes room is written.
    NoSpace,
    /// Whoever asks has no identity there, or may not do this.
    NotPermitted,
    /// A request has more bytes or operations than this etcd accepts (`--max-request-bytes`, `--max-txn-ops`).
    TooLarge,
    /// Its members have different data (alarm CORRUPT): nothing is read or written.
    Corrupt,
    /// It takes the request for malformed, or has no such method.
    Malformed,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::NoSpace, Self::NotPermitted, Self::TooLarge, Self::Corrupt, Self::Malformed];

    /// One word for programs.
    pub const fn word(self) -> &'static str {
        match self {
            Self::NoSpace => "NOSPACE",
            Self::NotPermitted => "NOT_PERMITTED",
            Self::TooLarge => "TOO_LARGE",
            Self::Corrupt => "CORRUPT",
            Self::Malformed => "MALFORMED",
        }
    }

    /// The remedy, for whoever operates etcd.
    pub const fn remedy(self) -> &'static str {
        match self {
            Self::NoSpace => {
                "compact and defragment etcd, or raise --quota-backend-bytes, then `etcdctl alarm \
                 disarm`"
            }
            Self::NotPermitted => {
                "give the user of the replicas' etcd certificate a role that may read and write \
                 the prefix /snic/"
            }
            Self::TooLarge => {
                "set etcd's --max-request-bytes to 1572864 and --max-txn-ops to 128 (its defaults) \
                 or more"
            }
            Self::Corrupt => {
                "find the member that differs and replace it, then `etcdctl alarm disarm`"
            }
            Self::Malformed => "use etcd 3.4 or later; if it is, this is a defect: report it",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
