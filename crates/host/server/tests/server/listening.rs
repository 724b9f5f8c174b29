//! Where the server listens: TLS, Unix sockets, health and reflection.

use std::time::Duration;

use snic_api::certificates::PemFile;
use snic_api::error::reason_of;
use snic_api::v1::audit_service_client::AuditServiceClient;
use snic_api::v1::{self, ErrorReason};
use snic_front::identity::UnixPeers;
use snic_front::settings::{Limits, TlsSettings};
use snic_front::{ListenError, ServeError};
use snic_server::{ServerSettings, bind};
use tonic::metadata::MetadataValue;
use tonic::transport::Endpoint;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::rig::{Authority, Client, Rig, in_time, settings};

fn plain(tcp: Option<&str>) -> ServerSettings {
    let tcp = tcp.map(|text| text.parse().expect("an address"));
    let mut settings = settings(Limits::default());
    settings.front.tcp = tcp;
    settings
}

fn with_tls(tls: Option<TlsSettings>, mut settings: ServerSettings) -> ServerSettings {
    settings.front.tls = tls;
    settings
}

async fn refused(settings: ServerSettings) -> ListenError {
    match bind(settings).await {
        Err(ServeError::Listen(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn tcp_is_never_served_in_plain_text() {
    assert!(matches!(refused(plain(None)).await, ListenError::Nowhere));
    for address in ["127.0.0.1:0", "0.0.0.0:0", "[::]:0"] {
        let error = refused(plain(Some(address))).await;
        assert!(matches!(&error, ListenError::PlainText { at } if at == address), "{error}");
    }
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("an address").to_string();
    let tls = Some(Authority::new().server());
    let error = refused(with_tls(tls, plain(Some(&address)))).await;
    assert!(error.to_string().contains(&address), "{error}");
}

#[tokio::test]
async fn certificates_that_are_none_are_refused_at_the_start() {
    type Part = fn(&mut TlsSettings) -> &mut PemFile;
    let parts: [(&str, Part); 4] = [
        ("the server's certificate", |tls| &mut tls.certificate),
        ("the server's certificate or key", |tls| &mut tls.key),
        ("the authority of clients", |tls| &mut tls.client_authority),
        ("the list of revoked", |tls| tls.revoked.get_or_insert(String::new().into())),
    ];
    for (part, of) in parts {
        let mut tls = Authority::new().server();
        *of(&mut tls) = PemFile::from("nothing".to_owned());
        let settings = with_tls(Some(tls), plain(Some("127.0.0.1:0")));
        let Err(ServeError::Tls(error)) = bind(settings).await else { panic!("{part}") };
        assert!(error.to_string().starts_with(part), "{error}");
    }
}

/// A client that chooses its identity by a header.
async fn tell(client: &mut Client, who: &[&str]) -> Result<Vec<v1::Tenant>, tonic::Status> {
    let mut request = Request::new(v1::ListTenantsRequest::default());
    for who in who {
        let value: MetadataValue<_> = who.parse().expect("ASCII");
        request.metadata_mut().append("snic-identity", value);
    }
    client.tenants.list_tenants(request).await.map(|list| list.into_inner().tenants)
}

fn is_nobody(status: &tonic::Status, says: &str) {
    assert_eq!(reason_of(status), Some(ErrorReason::IdentityMissing), "{status:?}");
    assert!(status.message().contains(says), "{}", status.message());
}

/// TLS on TCP and a Unix socket serve side by side, and the socket's peers are who the table says.
#[tokio::test]
async fn a_unix_sockets_peers_are_who_the_kernel_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let user = std::os::unix::fs::MetadataExt::uid(&folder.path().metadata().expect("there"));
    let mut listed = UnixPeers::default();
    listed.allow(user, ["operator/root", "tenant/*"]).expect("valid");
    let mut others = UnixPeers::default();
    others.allow(user + 1, ["operator/root"]).expect("valid");
    for unix_peers in [listed.clone(), others] {
        let is_listed = unix_peers == listed;
        let path = folder.path().join("socket");
        // The file of a server that was killed.
        drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
        let socket = path.clone();
        let rig = Rig::adjusted(|settings| {
            (settings.front.unix, settings.front.unix_peers) = (Some(socket), unix_peers);
        })
        .await;
        let mut second = plain(None);
        second.front.unix = Some(path.clone());
        let error = refused(second).await;
        assert!(matches!(error, ListenError::SocketInUse { .. }), "{error}");
        rig.client("operator/root").await.create_tenant("acme").await.expect("over TLS");
        let unix = Endpoint::from_shared(format!("unix://{}", path.display())).expect("a path");
        let mut client = Client::new(unix.connect().await.expect("connected"));
        if is_listed {
            for operator in [&[][..], &["operator/root"]] {
                assert_eq!(tell(&mut client, operator).await.expect("an operator").len(), 1);
            }
            let status = tell(&mut client, &["tenant/acme"]).await.expect_err("a tenant");
            assert_eq!(status.code(), Code::PermissionDenied);
            let refused = tell(&mut client, &["operator/admin"]).await.expect_err("not listed");
            is_nobody(&refused, "may not be operator/admin");
            for who in [&["root"][..], &["tenant/ACME"], &["operator/root", "operator/root"]] {
                is_nobody(&tell(&mut client, who).await.expect_err("nobody"), "operator/<name>");
            }
            client.create_tenant("globex").await.expect("over the socket");
            let mut log = AuditServiceClient::new(client.channel.clone());
            let request = v1::ListAuditEntriesRequest { page_size: 1, ..Default::default() };
            let last = log.list_audit_entries(request).await.expect("a page").into_inner().entries;
            let here = format!("uid {user}, process {}", std::process::id());
            assert_eq!((&*last[0].resource, &last[0].peer), ("tenants/globex", &here), "{last:?}");
        } else {
            for who in [&[][..], &["operator/root"]] {
                let status = tell(&mut client, who).await.expect_err("not listed");
                is_nobody(&status, "listen.unix_peers");
            }
        }
        rig.stop().await;
        assert!(!path.exists(), "the socket is removed");
    }
}

/// Over TLS the header has no effect.
#[tokio::test]
async fn with_certificates_the_header_counts_for_nothing() {
    let rig = Rig::start().await;
    let mut nobody = Client::new(rig.connect(None).await);
    let status = tell(&mut nobody, &["operator/root"]).await.expect_err("no certificate");
    assert_eq!(reason_of(&status), Some(ErrorReason::IdentityMissing));
    let mut tenant = rig.client("tenant/acme").await;
    let status = tell(&mut tenant, &["operator/root"]).await.expect_err("a tenant");
    assert_eq!(reason_of(&status), Some(ErrorReason::PermissionDenied));
    rig.stop().await;
}

#[tokio::test]
async fn health_is_for_everybody() {
    let rig = Rig::start().await;
    let mut health = HealthClient::new(rig.connect(None).await);
    for service in ["", "snic.control.v1.DagService", "snic.control.v1.CardService"] {
        // It serves once the control plane has answered for the first time.
        in_time(async {
            loop {
                let request = HealthCheckRequest { service: service.into() };
                match health.check(request).await {
                    Ok(answer) if answer.get_ref().status() == ServingStatus::Serving => break,
                    _ => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        })
        .await;
    }
    let request = HealthCheckRequest { service: "snic.control.v1.Other".into() };
    assert_eq!(health.check(request).await.expect_err("no service").code(), Code::NotFound);
    rig.stop().await;
}

#[tokio::test]
async fn reflection_has_the_services_and_what_errors_are_made_of() {
    use prost::Message as _;
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

    let rig = Rig::start().await;
    let tenant = rig.client("tenant/acme").await;
    let mut reflection = ServerReflectionClient::new(tenant.channel);
    let mut ask = async |wanted: MessageRequest| {
        let request =
            ServerReflectionRequest { host: String::new(), message_request: Some(wanted) };
        let stream = reflection.server_reflection_info(tokio_stream::iter([request])).await;
        let answer = stream.expect("an answer").into_inner().message().await.expect("no error");
        answer.expect("a message").message_response.expect("it is set")
    };
    let answer = ask(MessageRequest::ListServices(String::new())).await;
    let MessageResponse::ListServicesResponse(list) = answer else { panic!("{answer:?}") };
    let names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
    assert!(names.contains(&"snic.control.v1.DagService".to_owned()), "{names:?}");

    let symbols = [
        "snic.control.v1.Dag",
        "google.rpc.QuotaFailure",
        "google.rpc.ErrorInfo",
        // The response of operations that leave nothing.
        "google.protobuf.Empty",
    ];
    for symbol in symbols {
        let answer = ask(MessageRequest::FileContainingSymbol(symbol.to_owned())).await;
        let MessageResponse::FileDescriptorResponse(found) = answer else { panic!("{answer:?}") };
        let file = found.file_descriptor_proto.first().expect("a file").as_slice();
        let file = prost_types::FileDescriptorProto::decode(file).expect("a descriptor");
        assert!(symbol.starts_with(file.package()), "{symbol}: {}", file.name());
    }
    rig.stop().await;
}
