//! An entry, as a line and as what a caller may see of it.

use serde::{Deserialize, Serialize};
use snic_api::v1;
use snic_controller::Caller;
use snic_domain::Timestamp;

/// A call that changed something, or was to: see `AuditEntry` of the API. Fields that are empty are
/// not in its line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub number: u64,
    /// Nanoseconds since 1970.
    pub time: u64,
    pub caller: String,
    pub method: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub resource: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tenant: String,
    pub code: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub request_id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub trace_id: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub validate_only: bool,
    #[serde(default, skip_serializing_if = "is_default")]
    pub left_out: u64,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// How a caller is named in the log.
pub(crate) fn name_of(caller: &Caller) -> String {
    match caller {
        Caller::Operator(name) => format!("operator/{name}"),
        Caller::Tenant(tenant) => format!("tenant/{tenant}"),
        Caller::Orchestrator(name) => format!("orchestrator/{name}"),
    }
}

impl Entry {
    pub fn of_line(line: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(line)
    }

    /// The line, with its end.
    pub fn to_line(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        Ok(line)
    }

    /// Whether a caller may see it. A tenant does not see what another one tried on what is its
    /// own: that would tell the name of the other.
    fn is_visible_to(&self, reader: &Caller) -> bool {
        match reader {
            Caller::Operator(_) => true,
            Caller::Orchestrator(_) => false,
            Caller::Tenant(tenant) => match self.caller.split_once('/') {
                Some(("tenant", caller)) => caller == tenant.as_str(),
                Some(_) => self.tenant.strip_prefix("tenants/") == Some(tenant.as_str()),
                None => false,
            },
        }
    }

    /// What a caller is told of it: tenants get no names of operators and orchestrators.
    pub fn to_wire(&self, reader: &Caller) -> v1::AuditEntry {
        let caller = match (reader, self.caller.split_once('/')) {
            (Caller::Tenant(_), Some((kind @ ("operator" | "orchestrator"), _))) => kind,
            _ => &self.caller,
        };
        v1::AuditEntry {
            number: self.number,
            time: Some(snic_api::convert::timestamp(Timestamp::from_nanos(self.time))),
            caller: caller.to_owned(),
            method: self.method.clone(),
            resource: self.resource.clone(),
            tenant: self.tenant.clone(),
            code: self.code.clone(),
            reason: self.reason.clone(),
            request_id: self.request_id.clone(),
            trace_id: self.trace_id.clone(),
            validate_only: self.validate_only,
            left_out: self.left_out,
        }
    }
}

/// Which entries are asked for, and by whom.
#[derive(Debug, Clone)]
pub(crate) struct Filter {
    pub reader: Caller,
    /// `tenants/{tenant}`, or empty for any.
    pub tenant: String,
    pub caller: String,
    pub method: String,
    /// Nanoseconds since 1970: from the first on, before the second.
    pub times: (u64, u64),
}

impl Filter {
    pub fn takes(&self, entry: &Entry) -> bool {
        let any = |wanted: &str, found: &str| wanted.is_empty() || wanted == found;
        let short = entry.method.rsplit('/').next().unwrap_or_default();
        let by = self.tenant.strip_prefix("tenants/").unwrap_or_default();
        entry.is_visible_to(&self.reader)
            && (any(&self.tenant, &entry.tenant)
                || entry.caller.strip_prefix("tenant/") == Some(by))
            && any(&self.caller, &entry.caller)
            && (any(&self.method, &entry.method) || self.method == short)
            && (self.times.0..self.times.1).contains(&entry.time)
    }
}
