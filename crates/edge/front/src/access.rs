//! Access control: a table with a row for every method. A method without a row cannot be called.
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
    /// Waits for an event, up to [`crate::settings::WAIT_MAX`].
    Wait,
    /// Sends until the caller ends the stream.
    Stream,
    /// Both sides send until the caller ends the stream.
    Dialogue,
}

/// A method's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// `/package.Service/Method`.
    pub path: &'static str,
    /// Callers that may call it.
    pub access: Access,
    /// Duration of its calls.
    pub span: Span,
    /// Whether it changes something: then each call leaves an entry in the audit log.
    pub changes: bool,
}

/// The row of a method that only reads.
pub const fn row(path: &'static str, access: Access, span: Span) -> Row {
    Row { path, access, span, changes: false }
}

/// The row of a method that changes something.
pub const fn change(path: &'static str, access: Access, span: Span) -> Row {
    Row { path, access, span, changes: true }
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

use Access::{Anyone, Identified, Open, Operator, Orchestrator};
use Span::{Dialogue, Short, Stream, Upload, Wait};

/// All methods of all services, sorted by path. Heartbeats are not audited: every host sends one every
/// few seconds, and it only extends leases.
pub const TABLE: &[Row] = &[
    row("/grpc.health.v1.Health/Check", Open, Short),
    row("/grpc.health.v1.Health/Watch", Identified, Stream),
    row("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Identified, Dialogue),
    row("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Identified, Dialogue),
    row("/snic.control.v1.AuditService/ListAuditEntries", Anyone, Short),
    row("/snic.control.v1.AuthorizationService/CheckAccess", Identified, Short),
    row("/snic.control.v1.AuthorizationService/WhoAmI", Identified, Short),
    change("/snic.control.v1.BitstreamService/DeleteBitstream", Anyone, Short),
    row("/snic.control.v1.BitstreamService/GetBitstream", Anyone, Short),
    row("/snic.control.v1.BitstreamService/ListBitstreams", Anyone, Short),
    row("/snic.control.v1.BitstreamService/RecommendBitstreams", Operator, Short),
    change("/snic.control.v1.BitstreamService/RetryBitstream", Anyone, Short),
    change("/snic.control.v1.BitstreamService/UploadBitstream", Anyone, Upload),
    row("/snic.control.v1.BitstreamService/WatchBitstreams", Anyone, Stream),
    change("/snic.control.v1.CardService/CordonCard", Operator, Short),
    change("/snic.control.v1.CardService/CordonRegion", Operator, Short),
    change("/snic.control.v1.CardService/DrainCard", Operator, Short),
    change("/snic.control.v1.CardService/DrainRegion", Operator, Short),
    row("/snic.control.v1.CardService/GetCard", Operator, Short),
    row("/snic.control.v1.CardService/GetRegion", Operator, Short),
    row("/snic.control.v1.CardService/ListCards", Operator, Short),
    row("/snic.control.v1.CardService/ListRegions", Operator, Short),
    change("/snic.control.v1.CardService/LoadRole", Operator, Short),
    change("/snic.control.v1.CardService/OptimizeCard", Operator, Short),
    change("/snic.control.v1.CardService/RemoveCard", Operator, Short),
    change("/snic.control.v1.CardService/ReplaceCard", Operator, Short),
    change("/snic.control.v1.CardService/ResetCard", Operator, Short),
    change("/snic.control.v1.CardService/ResetRegion", Operator, Short),
    change("/snic.control.v1.CardService/UncordonCard", Operator, Short),
    change("/snic.control.v1.CardService/UndrainRegion", Operator, Short),
    row("/snic.control.v1.CardService/WatchCards", Operator, Stream),
    row("/snic.control.v1.CardService/WatchRegions", Operator, Stream),
    change("/snic.control.v1.ClassificationService/CreateRule", Anyone, Short),
    change("/snic.control.v1.ClassificationService/DeleteRule", Anyone, Short),
    row("/snic.control.v1.ClassificationService/GetRule", Anyone, Short),
    row("/snic.control.v1.ClassificationService/ListRules", Anyone, Short),
    change("/snic.control.v1.ClassificationService/UpdateRule", Anyone, Short),
    row("/snic.control.v1.ClassificationService/WatchRules", Anyone, Stream),
    change("/snic.control.v1.DagService/BatchCreateDags", Anyone, Short),
    change("/snic.control.v1.DagService/CreateDag", Anyone, Short),
    change("/snic.control.v1.DagService/DeleteDag", Anyone, Short),
    row("/snic.control.v1.DagService/DiagnoseDag", Anyone, Short),
    row("/snic.control.v1.DagService/ExplainDag", Anyone, Short),
    row("/snic.control.v1.DagService/GetDag", Anyone, Short),
    row("/snic.control.v1.DagService/ListDags", Anyone, Short),
    change("/snic.control.v1.DagService/UpdateDag", Anyone, Short),
    row("/snic.control.v1.DagService/WatchDags", Anyone, Stream),
    row("/snic.control.v1.EventService/ListEvents", Anyone, Short),
    row("/snic.control.v1.EventService/WatchEvents", Anyone, Stream),
    row("/snic.control.v1.FairnessService/GetFairness", Anyone, Short),
    row("/snic.control.v1.FairnessService/ListFairness", Anyone, Short),
    change("/snic.control.v1.NetworkTaskService/CreateNtType", Anyone, Short),
    change("/snic.control.v1.NetworkTaskService/DeleteNtType", Anyone, Short),
    row("/snic.control.v1.NetworkTaskService/GetNtType", Anyone, Short),
    row("/snic.control.v1.NetworkTaskService/ListNtTypes", Anyone, Short),
    row("/snic.control.v1.NetworkTaskService/WatchNtTypes", Anyone, Stream),
    change("/snic.control.v1.OperationService/CancelOperation", Anyone, Short),
    change("/snic.control.v1.OperationService/DeleteOperation", Anyone, Short),
    row("/snic.control.v1.OperationService/GetOperation", Anyone, Short),
    row("/snic.control.v1.OperationService/ListOperations", Anyone, Short),
    row("/snic.control.v1.OperationService/WaitOperation", Anyone, Wait),
    row("/snic.control.v1.OperationService/WatchOperations", Anyone, Stream),
    change("/snic.control.v1.OrchestrationService/BindVm", Orchestrator, Wait),
    row("/snic.control.v1.OrchestrationService/GetBinding", Orchestrator, Short),
    row("/snic.control.v1.OrchestrationService/Heartbeat", Orchestrator, Short),
    row("/snic.control.v1.OrchestrationService/ListBindings", Orchestrator, Short),
    change("/snic.control.v1.OrchestrationService/UnbindVm", Orchestrator, Short),
    row("/snic.control.v1.OrchestrationService/WatchBindings", Orchestrator, Stream),
    row("/snic.control.v1.SystemService/DownloadBackup", Operator, Stream),
    row("/snic.control.v1.SystemService/GetDiagnostics", Operator, Short),
    row("/snic.control.v1.SystemService/GetMaintenance", Operator, Short),
    change("/snic.control.v1.SystemService/SetMaintenance", Operator, Short),
    change("/snic.control.v1.TenantService/CreateTenant", Operator, Short),
    change("/snic.control.v1.TenantService/DeleteTenant", Operator, Short),
    row("/snic.control.v1.TenantService/GetTenant", Anyone, Short),
    row("/snic.control.v1.TenantService/ListTenants", Operator, Short),
    change("/snic.control.v1.TenantService/UpdateTenant", Operator, Short),
    row("/snic.control.v1.TenantService/WatchTenants", Operator, Stream),
    // What happens to a DAG's packets is recorded: who sends some, and, though it changes nothing, who watches.
    change("/snic.control.v1.TrafficService/RunTraffic", Anyone, Stream),
    change("/snic.control.v1.TrafficService/WatchPackets", Anyone, Stream),
];

impl Row {
    pub fn method(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }

    /// Effect of the method.
    pub fn effect(&self) -> MethodEffect {
        match self.method() {
            _ if self.changes => MethodEffect::Change,
            "Heartbeat" | "DownloadBackup" => MethodEffect::Other,
            _ => MethodEffect::Read,
        }
    }

    /// Whether a fleet's replica may pass calls of it on to a host: what reads, what shows a DAG's packets or sends some, and
    /// what takes cards and regions out of use or back, which is as good twice as once.
    pub fn may_be_passed_on(&self) -> bool {
        let reads =
            self.effect() == MethodEffect::Read && matches!(self.span, Short | Wait | Stream);
        let is_passed = reads
            || self.path.starts_with("/snic.control.v1.TrafficService/")
            || OUT_OF_USE.iter().any(|method| self.path.ends_with(method));
        self.is_decided() && is_passed
    }

    /// Whether policies decide about the method: not where everybody may call it, nor between the parts of a fleet.
    pub const fn is_decided(&self) -> bool {
        !matches!(self.access, Open | Identified | Access::Host | Access::Replica)
    }

    /// Whether the method is a health check or a heartbeat, by which others judge whether this
    /// server, or a machine, is alive.
    pub fn is_health(&self) -> bool {
        self.path.starts_with("/grpc.health.v1.")
            || self.path == "/snic.control.v1.OrchestrationService/Heartbeat"
    }
}

/// Methods that take cards and regions out of use, or back.
const OUT_OF_USE: [&str; 6] = [
    ".CardService/CordonCard",
    ".CardService/CordonRegion",
    ".CardService/DrainCard",
    ".CardService/DrainRegion",
    ".CardService/UncordonCard",
    ".CardService/UndrainRegion",
];

/// The methods of a server, from one table or several.
#[derive(Debug, Clone, Copy)]
pub struct Methods(&'static [&'static [Row]]);

/// The methods of `snic.control.v1`, health and reflection.
pub const CONTROL: Methods = Methods::new(&[TABLE]);

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
