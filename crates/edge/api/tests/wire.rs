//! Statements about the API, checked on the wire and in the descriptors.

use std::collections::BTreeMap;

use prost::Message as _;
use prost_types::FileDescriptorSet;
use snic_api::FILE_DESCRIPTOR_SET;
use snic_api::error::{ApiError, DETAILS_BYTES_MAX, reason_of};
use snic_api::v1::tenant_service_client::TenantServiceClient;
use snic_api::v1::tenant_service_server::{TenantService, TenantServiceServer};
use snic_api::v1::{
    CreateTenantRequest, CreateTenantResponse, DeleteTenantRequest, DeleteTenantResponse,
    ErrorReason, GetTenantRequest, GetTenantResponse, ListTenantsRequest, ListTenantsResponse,
    UpdateTenantRequest, UpdateTenantResponse, WatchTenantsRequest, WatchTenantsResponse,
};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};
use tonic_types::StatusExt as _;

type Result<T> = std::result::Result<Response<T>, Status>;

/// Fails in the largest way there is.
struct Failing;

/// Fills every text and every place of a failure. The characters are those that take most room
/// in a header.
fn largest_failure() -> ApiError {
    let text = "€".repeat(2_000);
    let failure = ApiError::new(ErrorReason::InvalidGraph, &text).resource(&text, &text, &text);
    let failure = failure.metadata(&text, &text).field(&text, &text).violation(&text, &text);
    (0..DETAILS_BYTES_MAX).fold(failure, |failure, _| failure.precondition("", "", "€"))
}

#[tonic::async_trait]
impl TenantService for Failing {
    async fn create_tenant(&self, _: Request<CreateTenantRequest>) -> Result<CreateTenantResponse> {
        Err(largest_failure().into())
    }

    async fn get_tenant(&self, request: Request<GetTenantRequest>) -> Result<GetTenantResponse> {
        Err(ApiError::not_found("tenant", request.into_inner().name).into())
    }

    async fn list_tenants(&self, _: Request<ListTenantsRequest>) -> Result<ListTenantsResponse> {
        Err(ApiError::internal("t").into())
    }

    async fn update_tenant(&self, _: Request<UpdateTenantRequest>) -> Result<UpdateTenantResponse> {
        Err(ApiError::internal("t").into())
    }

    async fn delete_tenant(&self, _: Request<DeleteTenantRequest>) -> Result<DeleteTenantResponse> {
        Err(ApiError::internal("t").into())
    }

    type WatchTenantsStream = tonic::codegen::BoxStream<WatchTenantsResponse>;

    async fn watch_tenants(
        &self,
        _: Request<WatchTenantsRequest>,
    ) -> Result<Self::WatchTenantsStream> {
        Err(ApiError::internal("t").into())
    }
}

#[tokio::test]
async fn the_largest_error_reaches_a_client_whole() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let server = tonic::transport::Server::builder().add_service(TenantServiceServer::new(Failing));
    let server = tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let mut client =
        TenantServiceClient::connect(format!("http://{address}")).await.expect("a connection");

    let status = client.create_tenant(CreateTenantRequest::default()).await.expect_err("fails");
    assert_eq!(reason_of(&status), Some(ErrorReason::InvalidGraph), "{status:?}");
    let details = status.get_details_precondition_failure().expect("a PreconditionFailure");
    assert!(details.violations.len() > 200, "{}", details.violations.len());

    let request = GetTenantRequest { name: "tenants/a".into() };
    let status = client.get_tenant(request).await.expect_err("fails");
    assert_eq!(reason_of(&status), Some(ErrorReason::ResourceNotFound));
    server.abort();
}

/// The files of this API, without the well-known ones.
fn files() -> Vec<prost_types::FileDescriptorProto> {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).expect("a descriptor set");
    set.file.into_iter().filter(|file| file.package() == "snic.control.v1").collect()
}

#[test]
fn reflection_can_resolve_every_import() {
    let set = FileDescriptorSet::decode(FILE_DESCRIPTOR_SET).expect("a descriptor set");
    let names: Vec<_> = set.file.iter().map(|file| file.name()).collect();
    for file in &set.file {
        for import in &file.dependency {
            assert!(names.contains(&import.as_str()), "{} imports {import}", file.name());
        }
    }
}

#[test]
fn methods_keep_to_the_conventions() {
    for method in files().iter().flat_map(|file| &file.service).flat_map(|s| &s.method) {
        let name = method.name();
        assert!(method.input_type().ends_with(&format!(".{name}Request")), "{name}");
        assert!(method.output_type().ends_with(&format!(".{name}Response")), "{name}");
        let sends = ["Watch", "Download", "Run"].iter().any(|verb| name.starts_with(verb));
        assert_eq!(method.server_streaming(), sends, "{name}");
        assert_eq!(method.client_streaming(), name.starts_with("Upload"), "{name}");
    }
}

#[test]
fn requests_have_the_standard_fields() {
    for message in files().iter().flat_map(|file| &file.message_type) {
        let has = |field: &str| message.field.iter().any(|f| f.name() == field);
        let name = message.name();
        if !name.ends_with("Request") {
            continue;
        }
        let standard: &[&str] = match name {
            "BatchCreateDagsRequest" => {
                &["parent", "requests", "allow_partial", "validate_only", "request_id"]
            }
            _ if name.starts_with("Create") => &["request_id"],
            _ if name.starts_with("Update") => &["update_mask", "request_id"],
            "DeleteOperationRequest" => &["name", "request_id", "allow_missing"],
            _ if name.starts_with("Delete") => &["name", "etag", "request_id", "allow_missing"],
            // It is read from files in their order.
            "ListAuditEntriesRequest" => &["page_size", "page_token", "filter"],
            // It is added up from intervals in their order.
            "ListUsageRequest" => &["page_size", "page_token"],
            _ if name.starts_with("List") => &["page_size", "page_token", "filter", "order_by"],
            // There is one log of events, and nothing to choose from.
            "WatchEventsRequest" => &["resume_revision"],
            // Neither have their lists.
            "WatchBitstreamsRequest"
            | "WatchCardsRequest"
            | "WatchNtTypesRequest"
            | "WatchOperationsRequest"
            | "WatchRulesRequest"
            | "WatchTenantsRequest" => &["resume_revision"],
            // Packets are not kept, so there is nothing to resume from.
            "WatchPacketsRequest" => &["name"],
            // The run is the call, so to send it again is to run again.
            "RunTrafficRequest" => &["name"],
            _ if name.starts_with("Watch") => &["parent", "resume_revision"],
            "RecommendBitstreamsRequest" => &["card"],
            // The header has the request's id.
            _ if name.starts_with("Upload") => &["header", "chunk"],
            "BindVmRequest" | "UnbindVmRequest" => &["vm", "tenant", "request_id"],
            // Again is as good: it says what lives now.
            "HeartbeatRequest" => &["vms"],
            // Questions about the caller.
            "WhoAmIRequest" => &[],
            "CheckAccessRequest" => &["method", "resource"],
            // Of the server itself there is one.
            "GetMaintenanceRequest" | "GetDiagnosticsRequest" | "DownloadBackupRequest" => &[],
            "SetMaintenanceRequest" => &["active", "reason", "request_id"],
            _ if ["Get", "Diagnose", "Explain", "Wait"]
                .iter()
                .any(|verb| name.starts_with(verb)) =>
            {
                &["name"]
            }
            // What is left changes something.
            _ => &["name", "request_id"],
        };
        for field in standard {
            assert!(has(field), "{name} lacks {field}");
        }
    }
}

/// The messages of this API by name.
fn messages() -> BTreeMap<String, prost_types::DescriptorProto> {
    let all = files().into_iter().flat_map(|file| file.message_type);
    all.map(|message| (message.name().to_owned(), message)).collect()
}

fn has(message: &prost_types::DescriptorProto, field: &str) -> bool {
    message.field.iter().any(|f| f.name() == field)
}

/// Every change can be repeated and guarded, over all services; each exception has its reason.
#[test]
fn every_change_can_be_repeated_and_guarded() {
    let messages = messages();
    let reads = [
        "Get",
        "List",
        "Watch",
        "Diagnose",
        "Explain",
        "Wait",
        "Recommend",
        "Download",
        "Heartbeat",
        // The run is the call: it ends with it.
        "RunTraffic",
        "WhoAmI",
        "CheckAccess",
    ];
    // All that a file that is applied can say, and what the cards would do.
    let dry_runs = [
        "CreateTenant",
        "UpdateTenant",
        "CreateNtType",
        "UploadBitstream",
        "CreateDag",
        "BatchCreateDags",
        "UpdateDag",
        "CreateRule",
        "UpdateRule",
        "OptimizeCard",
    ];
    let unguarded = [
        // It is set as a whole, and whoever ends it need not know who began it.
        "SetMaintenance",
        // Operations change by themselves, and only these two end and forget them.
        "CancelOperation",
        "DeleteOperation",
        // A bound machine is not changed.
        "BindVm",
    ];
    let methods = files().into_iter().flat_map(|file| file.service).flat_map(|s| s.method);
    let mut changes = 0;
    for method in methods {
        let name = method.name();
        if reads.iter().any(|verb| name.starts_with(verb)) {
            continue;
        }
        changes += 1;
        let request = match name {
            "UploadBitstream" => &messages["BitstreamHeader"],
            _ => &messages[&format!("{name}Request")],
        };
        assert!(has(request, "request_id"), "{name}");
        assert_eq!(has(request, "validate_only"), dry_runs.contains(&name), "{name}");
        let deletes = ["Delete", "Remove", "Unbind"].iter().any(|verb| name.starts_with(verb));
        assert_eq!(has(request, "allow_missing"), deletes, "{name}");
        let makes = ["Create", "Upload", "BatchCreate"].iter().any(|verb| name.starts_with(verb));
        let guarded = match name.strip_prefix("Update") {
            Some(resource) => has(&messages[resource], "etag"),
            None => has(request, "etag"),
        };
        assert_eq!(guarded, !makes && !unguarded.contains(&name), "{name}");
    }
    assert!(changes > 25, "{changes} methods that change something");
}

#[test]
fn resources_can_be_noted_and_guarded() {
    let messages = messages();
    for resource in ["Bitstream", "Dag", "NtType", "Rule", "Tenant", "VmBinding"] {
        for field in ["name", "etag", "labels", "description"] {
            assert!(has(&messages[resource], field), "{resource} lacks {field}");
        }
    }
    // No request makes them, and none changes what they are.
    for resource in ["Card", "Region"] {
        for field in ["name", "etag"] {
            assert!(has(&messages[resource], field), "{resource} lacks {field}");
        }
    }
}

#[test]
fn enums_begin_with_unspecified() {
    for file in files() {
        let nested = file.message_type.iter().flat_map(|message| &message.enum_type);
        for e in file.enum_type.iter().chain(nested) {
            let first = &e.value[0];
            assert_eq!(first.number(), 0, "{}", e.name());
            assert!(first.name().ends_with("_UNSPECIFIED"), "{}", e.name());
        }
    }
}

/// Names that clients in Python would have to spell in another way.
#[test]
fn no_field_is_named_like_a_keyword_of_python() {
    let keywords = [
        "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class",
        "continue", "def", "del", "elif", "else", "except", "finally", "for", "from", "global",
        "if", "import", "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return",
        "try", "while", "with", "yield",
    ];
    fn names(message: &prost_types::DescriptorProto) -> Vec<String> {
        let own = message.field.iter().map(|field| field.name().to_owned());
        own.chain(message.nested_type.iter().flat_map(names)).collect()
    }
    let all: Vec<_> = files().iter().flat_map(|f| &f.message_type).flat_map(names).collect();
    assert!(all.len() > 300, "{} fields", all.len());
    assert!(all.iter().all(|name| !keywords.contains(&name.as_str())));
}
