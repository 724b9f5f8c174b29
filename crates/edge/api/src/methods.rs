//! Facts about methods, from their options in the proto files ([`crate::v1::MethodFacts`]): a table with a row for every
//! method. A method without a row cannot be called.
//!
//! The table says which *kind* of caller may call a method. Which resources a tenant may access is
//! decided where they are looked up, so that "absent" and "not yours" share one code path.
//!
//! Health checks need no identity, because load balancers and supervisors have none; they reveal only
//! whether the server serves. Watching health and reflection need an identity of any kind: both are
//! streams that hold resources of the server.

/// Callers that may call a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody, even without an identity.
    Open,
    /// Every identity, of any kind: the method reveals nothing about tenants.
    Identified,
    /// Tenants, for their own or published resources, and operators.
    Anyone,
    /// Programs that start virtual machines, and operators.
    Orchestrator,
    Operator,
    /// Daemons of a fleet's hosts, each for itself.
    Host,
    /// Replicas of a fleet's service.
    Replica,
}

/// Duration of a method's calls, which decides their limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Span {
    /// Replies to one message as soon as possible.
    Short,
    /// Replies once the caller has sent a stream of messages.
    Upload,
    /// Waits for an event, up to a limit of the server.
    Wait,
    /// Sends until the caller ends the stream.
    Stream,
    /// Both sides send until the caller ends the stream.
    Dialogue,
}

/// A method's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Path of the HTTP/2 request: `/package.Service/Method`.
    pub path: &'static str,
    /// Callers that may call it.
    pub access: Access,
    /// Duration of its calls.
    pub span: Span,
    /// Effect of a call.
    pub effect: MethodEffect,
    /// Whether a fleet's replica may pass on calls of it although it changes something.
    pub passed_on: bool,
    /// Whether only the host that serves the DAG in its request can answer.
    pub of_host: bool,
}

/// Effect of a method, for policies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MethodEffect {
    /// It shows something.
    Read,
    /// It changes something.
    Change,
    /// Neither: heartbeats, which keep machines bound, and backups, which hold everything at once.
    Other,
}

/// Methods of other packages, sorted by path.
pub const FOREIGN: &[Row] = &[
    foreign("/grpc.health.v1.Health/Check", Access::Open, Span::Short),
    foreign("/grpc.health.v1.Health/Watch", Access::Identified, Span::Stream),
    foreign(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        Access::Identified,
        Span::Dialogue,
    ),
    foreign(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        Access::Identified,
        Span::Dialogue,
    ),
];

const fn foreign(path: &'static str, access: Access, span: Span) -> Row {
    Row { path, access, span, effect: MethodEffect::Read, passed_on: false, of_host: false }
}

/// Resource that policies are asked about, as the facts of a method say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AskedResource {
    /// All resources at once.
    Everything,
    /// The resource with this name.
    Named(String),
    /// All resources below the one with this name.
    Below(String),
    /// None: every identity may call the method.
    Nothing,
}

/// A request of a method whose facts say what policies are asked about.
pub trait DescribedRequest {
    /// Resource that it is about.
    fn resource(&self) -> AskedResource;

    /// Whether it is only to be checked.
    fn validate_only(&self) -> bool;
}

/// A request as the audit log describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditedRequest {
    /// Name of the resource.
    pub resource: String,
    /// Name of a resource whose tenant owns it; empty where its own name says that.
    pub owner: String,
    /// Whether the request is only to be checked.
    pub validate_only: bool,
    /// The request id, if there is one.
    pub request_id: String,
}

include!(concat!(env!("OUT_DIR"), "/methods.rs"));

impl Row {
    /// Name of the method without package and service.
    pub fn method(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }

    /// Whether it changes something: then each call leaves an entry in the audit log.
    pub const fn changes(&self) -> bool {
        matches!(self.effect, MethodEffect::Change)
    }

    /// Whether a fleet's replica may pass calls of it on to a host: what reads, and what is as good twice as once.
    pub fn may_be_passed_on(&self) -> bool {
        let reads = self.effect == MethodEffect::Read
            && matches!(self.span, Span::Short | Span::Wait | Span::Stream);
        self.is_decided() && (reads || self.passed_on)
    }

    /// Whether policies decide about the method: not where everybody may call it, nor between the parts of a fleet.
    pub const fn is_decided(&self) -> bool {
        !matches!(self.access, Access::Open | Access::Identified | Access::Host | Access::Replica)
    }

    /// Whether the method is a health check or a heartbeat, by which others judge whether this
    /// server, or a machine, is alive.
    pub fn is_health(&self) -> bool {
        self.path.starts_with("/grpc.health.v1.")
            || self.path == "/snic.control.v1.OrchestrationService/Heartbeat"
    }
}

/// The methods of a server, from one table or several.
#[derive(Debug, Clone, Copy)]
pub struct Methods(&'static [&'static [Row]]);

/// The methods of `snic.control.v1`, health and reflection.
pub const CONTROL: Methods = Methods::new(&[FOREIGN, TABLE]);

/// The methods of a fleet's replica: those of `snic.control.v1`, and its own.
pub const FLEET: Methods = Methods::new(&[FOREIGN, TABLE, FLEET_TABLE]);

impl Methods {
    /// Index of tables that are each sorted by path.
    pub const fn new(tables: &'static [&'static [Row]]) -> Self {
        Self(tables)
    }

    /// The row of `Method` or `Service/Method`, among those that policies decide about. The service needs
    /// no package.
    pub fn named(self, name: &str) -> Option<Row> {
        let mut decided = self.0.iter().copied().flatten().filter(|row| row.is_decided());
        decided
            .find(|row| {
                let full = row.path.rsplit_once('.').map_or(row.path, |(_, method)| method);
                full == name || row.method() == name
            })
            .copied()
    }

    /// The row of a method. Time O(log methods).
    pub fn find(self, path: &str) -> Option<Row> {
        self.0.iter().find_map(|table| {
            let found = table.binary_search_by(|row| row.path.cmp(path));
            found.ok().and_then(|index| table.get(index)).copied()
        })
    }
}
