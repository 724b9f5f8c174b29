//! Access of callers to methods, and which calls are audited, independent of the server's own table:
//! loosening a row there fails here. A new method needs a row in both.

/// The kinds of callers that the server tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Without an identity.
    Nobody,
    Tenant,
    Orchestrator,
    Operator,
}

pub const KINDS: [Kind; 4] = [Kind::Nobody, Kind::Tenant, Kind::Orchestrator, Kind::Operator];

/// Expectation about a method.
#[derive(Debug, Clone, Copy)]
pub struct Expected {
    /// `/package.Service/Method`.
    pub path: &'static str,
    callers: &'static str,
    /// Whether every call leaves an entry in the audit log.
    pub is_audited: bool,
}

impl Expected {
    /// Whether this kind of caller may call the method.
    pub fn allows(&self, kind: Kind) -> bool {
        let name = match kind {
            Kind::Nobody => "nobody",
            Kind::Tenant => "tenant",
            Kind::Orchestrator => "orchestrator",
            Kind::Operator => "operator",
        };
        self.callers.split(' ').any(|caller| caller == name)
    }

    /// The method without its package and service.
    pub fn method(&self) -> &'static str {
        self.path.rsplit('/').next().expect("split gives at least one part")
    }
}

const fn read(path: &'static str, callers: &'static str) -> Expected {
    Expected { path, callers, is_audited: false }
}

const fn change(path: &'static str, callers: &'static str) -> Expected {
    Expected { path, callers, is_audited: true }
}

const ALL: &str = "nobody tenant orchestrator operator";
const IDENTIFIED: &str = "tenant orchestrator operator";
const TENANTS: &str = "tenant operator";
const HOSTS: &str = "orchestrator operator";
const OPERATORS: &str = "operator";

pub const MATRIX: &[Expected] = &[
    read("/grpc.health.v1.Health/Check", ALL),
    read("/grpc.health.v1.Health/Watch", IDENTIFIED),
    read("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", IDENTIFIED),
    read("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", IDENTIFIED),
    // Who one is, and what one may do: the answers say nothing of others.
    read("/snic.control.v1.AuthorizationService/WhoAmI", IDENTIFIED),
    read("/snic.control.v1.AuthorizationService/CheckAccess", IDENTIFIED),
    // What tenants do with their own resources.
    change("/snic.control.v1.DagService/CreateDag", TENANTS),
    change("/snic.control.v1.DagService/BatchCreateDags", TENANTS),
    change("/snic.control.v1.DagService/UpdateDag", TENANTS),
    change("/snic.control.v1.DagService/DeleteDag", TENANTS),
    read("/snic.control.v1.DagService/GetDag", TENANTS),
    read("/snic.control.v1.DagService/ListDags", TENANTS),
    read("/snic.control.v1.DagService/ExplainDag", TENANTS),
    read("/snic.control.v1.DagService/DiagnoseDag", TENANTS),
    read("/snic.control.v1.DagService/WatchDags", TENANTS),
    change("/snic.control.v1.TrafficService/RunTraffic", TENANTS),
    change("/snic.control.v1.TrafficService/WatchPackets", TENANTS),
    change("/snic.control.v1.NetworkTaskService/CreateNtType", TENANTS),
    change("/snic.control.v1.NetworkTaskService/DeleteNtType", TENANTS),
    read("/snic.control.v1.NetworkTaskService/GetNtType", TENANTS),
    read("/snic.control.v1.NetworkTaskService/ListNtTypes", TENANTS),
    read("/snic.control.v1.NetworkTaskService/WatchNtTypes", TENANTS),
    change("/snic.control.v1.BitstreamService/UploadBitstream", TENANTS),
    change("/snic.control.v1.BitstreamService/DeleteBitstream", TENANTS),
    change("/snic.control.v1.BitstreamService/RetryBitstream", TENANTS),
    read("/snic.control.v1.BitstreamService/GetBitstream", TENANTS),
    read("/snic.control.v1.BitstreamService/ListBitstreams", TENANTS),
    read("/snic.control.v1.BitstreamService/WatchBitstreams", TENANTS),
    change("/snic.control.v1.ClassificationService/CreateRule", TENANTS),
    change("/snic.control.v1.ClassificationService/UpdateRule", TENANTS),
    change("/snic.control.v1.ClassificationService/DeleteRule", TENANTS),
    read("/snic.control.v1.ClassificationService/GetRule", TENANTS),
    read("/snic.control.v1.ClassificationService/ListRules", TENANTS),
    read("/snic.control.v1.ClassificationService/WatchRules", TENANTS),
    change("/snic.control.v1.OperationService/CancelOperation", TENANTS),
    change("/snic.control.v1.OperationService/DeleteOperation", TENANTS),
    read("/snic.control.v1.OperationService/GetOperation", TENANTS),
    read("/snic.control.v1.OperationService/ListOperations", TENANTS),
    read("/snic.control.v1.OperationService/WatchOperations", TENANTS),
    read("/snic.control.v1.OperationService/WaitOperation", TENANTS),
    read("/snic.control.v1.TenantService/GetTenant", TENANTS),
    read("/snic.control.v1.FairnessService/GetFairness", TENANTS),
    read("/snic.control.v1.FairnessService/ListFairness", TENANTS),
    read("/snic.control.v1.UsageService/ListUsage", TENANTS),
    read("/snic.control.v1.UsageService/GetUsage", TENANTS),
    read("/snic.control.v1.UsageService/GetSlo", TENANTS),
    read("/snic.control.v1.EventService/ListEvents", TENANTS),
    read("/snic.control.v1.EventService/WatchEvents", TENANTS),
    read("/snic.control.v1.AuditService/ListAuditEntries", TENANTS),
    // What hosts do for their virtual machines. A heartbeat changes nothing but lease times.
    change("/snic.control.v1.OrchestrationService/BindVm", HOSTS),
    change("/snic.control.v1.OrchestrationService/UnbindVm", HOSTS),
    read("/snic.control.v1.OrchestrationService/GetBinding", HOSTS),
    read("/snic.control.v1.OrchestrationService/ListBindings", HOSTS),
    read("/snic.control.v1.OrchestrationService/WatchBindings", HOSTS),
    read("/snic.control.v1.OrchestrationService/Heartbeat", HOSTS),
    // What only the provider sees or does.
    change("/snic.control.v1.TenantService/CreateTenant", OPERATORS),
    change("/snic.control.v1.TenantService/UpdateTenant", OPERATORS),
    change("/snic.control.v1.TenantService/DeleteTenant", OPERATORS),
    read("/snic.control.v1.TenantService/ListTenants", OPERATORS),
    read("/snic.control.v1.TenantService/WatchTenants", OPERATORS),
    read("/snic.control.v1.BitstreamService/RecommendBitstreams", OPERATORS),
    read("/snic.control.v1.CardService/GetCard", OPERATORS),
    read("/snic.control.v1.CardService/ListCards", OPERATORS),
    read("/snic.control.v1.CardService/GetRegion", OPERATORS),
    read("/snic.control.v1.CardService/ListRegions", OPERATORS),
    read("/snic.control.v1.CardService/WatchRegions", OPERATORS),
    read("/snic.control.v1.CardService/WatchCards", OPERATORS),
    change("/snic.control.v1.CardService/CordonCard", OPERATORS),
    change("/snic.control.v1.CardService/UncordonCard", OPERATORS),
    change("/snic.control.v1.CardService/RemoveCard", OPERATORS),
    change("/snic.control.v1.CardService/ReplaceCard", OPERATORS),
    change("/snic.control.v1.CardService/DrainCard", OPERATORS),
    change("/snic.control.v1.CardService/OptimizeCard", OPERATORS),
    change("/snic.control.v1.CardService/LoadRole", OPERATORS),
    change("/snic.control.v1.CardService/ResetCard", OPERATORS),
    change("/snic.control.v1.CardService/CordonRegion", OPERATORS),
    change("/snic.control.v1.CardService/DrainRegion", OPERATORS),
    change("/snic.control.v1.CardService/UndrainRegion", OPERATORS),
    change("/snic.control.v1.CardService/ResetRegion", OPERATORS),
    read("/snic.control.v1.SystemService/GetDiagnostics", OPERATORS),
    read("/snic.control.v1.SystemService/GetMaintenance", OPERATORS),
    read("/snic.control.v1.SystemService/DownloadBackup", OPERATORS),
    change("/snic.control.v1.SystemService/SetMaintenance", OPERATORS),
];
