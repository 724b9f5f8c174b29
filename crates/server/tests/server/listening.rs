//! Where the server listens: TLS, plain text where it is allowed, health and reflection.

use std::time::Duration;

use snic_api::error::reason_of;
use snic_api::v1::{self, ErrorReason};
use snic_server::{Limits, ListenError, ServeError, ServerSettings, bind};
use tonic::metadata::MetadataValue;
use tonic::transport::Endpoint;
use tonic::{Code, Request};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use crate::rig::{Authority, Client, Rig, in_time, plane, settings};

fn plain(tcp: Option<&str>) -> ServerSettings {
    let tcp = tcp.map(|text| text.parse().expect("an address"));
    ServerSettings { tcp, ..settings(Limits::default()) }
}

async fn refused(settings: ServerSettings) -> ListenError {
    match bind(settings).await {
        Err(ServeError::Listen(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn plain_text_needs_the_flag_and_a_loopback_address() {
    assert!(matches!(refused(plain(None)).await, ListenError::Nowhere));
    let error = refused(plain(Some("127.0.0.1:0"))).await;
    assert!(matches!(&error, ListenError::PlainText { at } if at == "127.0.0.1:0"), "{error}");
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let error = refused(ServerSettings { plain_text: true, ..plain(Some(address)) }).await;
        assert!(matches!(error, ListenError::NotLoopback { .. }), "{error}");
        assert!(error.to_string().contains("not a loopback address"), "{error}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("socket");
    let error = refused(ServerSettings { unix: Some(socket.clone()), ..plain(None) }).await;
    assert!(matches!(error, ListenError::PlainText { .. }), "{error}");
    assert!(!socket.exists(), "nothing is bound");
}

#[tokio::test]
async fn an_address_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = taken.local_addr().expect("an address").to_string();
    let error = refused(ServerSettings { plain_text: true, ..plain(Some(&address)) }).await;
    assert!(error.to_string().contains(&address), "{error}");
}

#[tokio::test]
async fn certificates_that_are_none_are_refused_at_the_start() {
    let mut tls = Authority::new().server();
    tls.key = "no key".into();
    let settings = ServerSettings { tls: Some(tls), ..plain(Some("127.0.0.1:0")) };
    assert!(matches!(bind(settings).await, Err(ServeError::Tls(_))));
}

/// A client over plain text that says who it is.
async fn tell(client: &mut Client, who: &[&str]) -> Result<Vec<v1::Tenant>, tonic::Status> {
    let mut request = Request::new(v1::ListTenantsRequest::default());
    for who in who {
        let value: MetadataValue<_> = who.parse().expect("ASCII");
        request.metadata_mut().append("snic-identity", value);
    }
    client.tenants.list_tenants(request).await.map(|list| list.into_inner().tenants)
}

async fn over_plain_text(mut client: Client) {
    assert_eq!(tell(&mut client, &["operator/root"]).await.expect("an operator"), []);
    let status = tell(&mut client, &["tenant/acme"]).await.expect_err("a tenant");
    assert_eq!(status.code(), Code::PermissionDenied);
    for who in [&[][..], &["root"], &["tenant/ACME"], &["operator/a", "operator/b"]] {
        let status = tell(&mut client, who).await.expect_err("nobody");
        assert_eq!(reason_of(&status), Some(ErrorReason::IdentityMissing), "{who:?}: {status:?}");
        assert!(status.message().contains("operator/<name>"), "{}", status.message());
    }
}

#[tokio::test]
async fn a_unix_socket_and_loopback_serve_plain_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    // The file of a server that was killed.
    drop(std::os::unix::net::UnixListener::bind(&path).expect("bound"));
    let (plane, running, _) = plane();
    let settings =
        ServerSettings { unix: Some(path.clone()), plain_text: true, ..plain(Some("127.0.0.1:0")) };
    let bound = bind(settings.clone()).await.expect("bound");
    let port = bound.tcp_address().expect("an address").port();
    let error = refused(ServerSettings { tcp: None, ..settings }).await;
    assert!(matches!(error, ListenError::SocketInUse { .. }), "{error}");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(bound.serve(plane, async move { drop(stopped.await) }));
    let tcp = Endpoint::from_shared(format!("http://127.0.0.1:{port}")).expect("an address");
    over_plain_text(Client::new(tcp.connect().await.expect("connected"))).await;
    let unix = Endpoint::from_shared(format!("unix://{}", path.display())).expect("an address");
    over_plain_text(Client::new(unix.connect().await.expect("connected"))).await;
    drop(stop);
    server.await.expect("no panic").expect("a clean stop");
    assert!(!path.exists(), "the socket is removed");
    tokio::task::spawn_blocking(|| running.stop()).await.expect("no panic").expect("stopped");
}

/// Over TLS the header is nothing but a header.
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
async fn reflection_lists_the_services() {
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

    let rig = Rig::start().await;
    let tenant = rig.client("tenant/acme").await;
    let mut reflection = ServerReflectionClient::new(tenant.channel);
    let message_request = Some(MessageRequest::ListServices(String::new()));
    let request = ServerReflectionRequest { host: String::new(), message_request };
    let stream = reflection.server_reflection_info(tokio_stream::iter([request])).await;
    let answer = stream.expect("an answer").into_inner().message().await.expect("no error");
    let answer = answer.expect("a message").message_response;
    let Some(MessageResponse::ListServicesResponse(list)) = answer else { panic!("{answer:?}") };
    let names: Vec<String> = list.service.into_iter().map(|service| service.name).collect();
    assert!(names.contains(&"snic.control.v1.DagService".to_owned()), "{names:?}");
    rig.stop().await;
}
