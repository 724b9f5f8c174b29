//! An entry: its line in the file, and what a caller may see of it.

use serde::{Deserialize, Serialize};
use snic_api::list::ListSelection;
use snic_api::text::escaped_json;
use snic_api::v1;
use snic_domain::{Caller, Timestamp};

/// The decision that the caller may.
pub const ALLOW: &str = "ALLOW";
/// The decision that the caller may not.
pub const DENY: &str = "DENY";

/// The caller's identity is that of its certificate, or of the user that opened the unix socket.
pub const PROVEN: &str = "PROVEN";
/// The program that opened the unix socket says its own name, as its user may.
pub const STATED: &str = "STATED";

/// A call that changed something or attempted to: see `AuditEntry` of the API. Empty fields are left
/// out of the line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Number in the log, ascending.
    pub number: u64,
    /// Nanoseconds since 1970.
    pub time: u64,
    /// The caller, such as `operator/root` or `tenant/acme/bob`; [`crate::NOBODY`] without an identity.
    pub caller: String,
    /// The operator that called for the caller, which is a tenant then; empty where the caller itself did.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub agent: String,
    /// [`PROVEN`] or [`STATED`]: whether the server knows the name of who called from others.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub identity: String,
    /// Where the call came from: an address with its port, or the user and process on the unix socket.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub peer: String,
    /// The method, as `Service/Method`.
    pub method: String,
    /// Name of the resource, if the request names one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// `tenants/{tenant}` that owns the resource, if known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tenant: String,
    /// The gRPC code of the reply, such as `NOT_FOUND`.
    pub code: String,
    /// The `ErrorReason` of the reply, if it is an error.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The request id, if the request has one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_id: String,
    /// The trace that the call belongs to, if any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub trace_id: String,
    /// Whether the request was only to be checked.
    #[serde(default, skip_serializing_if = "is_default")]
    pub validate_only: bool,
    /// [`ALLOW`] or [`DENY`]: whether the caller was authorized.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub decision: String,
    /// Ids of the policies that decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub policies: Vec<String>,
    /// Calls of this caller that failed, or calls without an identity, that got no entry since the last one
    /// that did.
    #[serde(default, skip_serializing_if = "is_default")]
    pub left_out: u64,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The tenant of a caller in the log, if it is `tenant/{tenant}` or `tenant/{tenant}/{member}`.
pub(crate) fn tenant_of(caller: &str) -> Option<&str> {
    caller.strip_prefix("tenant/")?.split('/').next()
}

impl Entry {
    pub(crate) fn of_line(line: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(line)
    }

    /// The line, with its line break.
    pub(crate) fn to_line(&self) -> Result<Vec<u8>, serde_json::Error> {
        // Operators look at the files in a terminal, and some fields are as callers sent them.
        let mut line = escaped_json(&serde_json::to_string(self)?).into_owned().into_bytes();
        line.push(b'\n');
        Ok(line)
    }

    /// Whether a caller may see it. A tenant does not see another tenant's attempts on its resources,
    /// because that would reveal the other's name.
    fn is_visible_to(&self, reader: &Caller) -> bool {
        match reader {
            Caller::Operator(_) => true,
            Caller::Orchestrator(_) => false,
            Caller::Tenant(tenant) => match tenant_of(&self.caller) {
                Some(caller) => caller == tenant.as_str(),
                None if self.caller == crate::NOBODY => false,
                None => self.tenant.strip_prefix("tenants/") == Some(tenant.as_str()),
            },
        }
    }

    /// The entry for this reader: tenants do not see the names of operators and orchestrators.
    pub fn to_wire(&self, reader: &Caller) -> v1::AuditEntry {
        let caller = match (reader, self.caller.split_once('/')) {
            (Caller::Tenant(_), Some((kind @ ("operator" | "orchestrator"), _))) => kind,
            _ => &self.caller,
        };
        let is_own = match reader {
            Caller::Tenant(own) => {
                self.agent.is_empty() && tenant_of(&self.caller) == Some(own.as_str())
            }
            Caller::Operator(_) | Caller::Orchestrator(_) => true,
        };
        let agent = match (reader, self.agent.split_once('/')) {
            (Caller::Tenant(_), Some((kind, _))) => kind,
            _ => &self.agent,
        };
        v1::AuditEntry {
            // It counts everybody's calls.
            number: if matches!(reader, Caller::Tenant(_)) { 0 } else { self.number },
            time: Some(snic_api::convert::timestamp(Timestamp::from_nanos(self.time))),
            caller: caller.to_owned(),
            agent: agent.to_owned(),
            // Whose calls they are not does not learn from where others manage the server.
            peer: if is_own { self.peer.clone() } else { String::new() },
            identity: if is_own { self.identity.clone() } else { String::new() },
            method: self.method.clone(),
            resource: self.resource.clone(),
            tenant: self.tenant.clone(),
            code: self.code.clone(),
            reason: self.reason.clone(),
            request_id: self.request_id.clone(),
            trace_id: self.trace_id.clone(),
            validate_only: self.validate_only,
            left_out: self.left_out,
            decision: self.decision.clone(),
            // Operators write them, and may name other tenants.
            policies: match reader {
                Caller::Operator(_) => self.policies.clone(),
                Caller::Tenant(_) | Caller::Orchestrator(_) => Vec::new(),
            },
        }
    }
}

/// The entries requested, and the reader.
#[derive(Debug, Clone)]
pub struct Filter {
    /// Only what this caller may see.
    pub reader: Caller,
    /// `tenants/{tenant}`, or empty for any.
    pub tenant: String,
    /// The caller, or empty for any.
    pub caller: String,
    /// `Service/Method` or `Method`, or empty for any.
    pub method: String,
    /// Start (included) and end (excluded), in nanoseconds since 1970.
    pub times: (u64, u64),
    /// Selection of the request, by the fields of the message that the reader gets.
    pub selection: ListSelection,
}

impl Filter {
    /// Whether an entry is requested and visible.
    pub fn matches(&self, entry: &Entry) -> bool {
        let any = |filter: &str, found: &str| filter.is_empty() || filter == found;
        let short = entry.method.rsplit('/').next().unwrap_or_default();
        let by = self.tenant.strip_prefix("tenants/").unwrap_or_default();
        entry.is_visible_to(&self.reader)
            && (any(&self.tenant, &entry.tenant) || tenant_of(&entry.caller) == Some(by))
            && any(&self.caller, &entry.caller)
            && (any(&self.method, &entry.method) || self.method == short)
            && (self.times.0..self.times.1).contains(&entry.time)
            && (self.selection.is_all()
                || self.selection.key_of(&entry.to_wire(&self.reader)).is_some())
    }
}
