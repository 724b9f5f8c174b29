//! Certificates that end: expired, revoked, or of an authority that is no longer trusted.

use std::time::{Duration, SystemTime};

use snic_api::v1;
use snic_front::TlsReloader;
use snic_front::settings::Limits;
use tonic::{Code, Status};

use crate::rig::{Authority, Client, DOMAIN, Rig, in_time};

async fn list(client: &mut Client) -> Result<(), Status> {
    client.tenants.list_tenants(v1::ListTenantsRequest::default()).await.map(|_| ())
}

/// Waits until a watch that was open ends, with an error.
async fn is_cut_off(mut open: tonic::Streaming<v1::WatchDagsResponse>) {
    let end = in_time(async {
        loop {
            match open.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return None,
                Err(status) => return Some(status),
            }
        }
    });
    assert!(end.await.is_some(), "a watch does not end without an error");
}

/// Waits until a watch that was open ends, and asserts that no call of its client succeeds any more.
async fn ends(client: &mut Client, open: tonic::Streaming<v1::WatchDagsResponse>) {
    is_cut_off(open).await;
    let status = in_time(list(client)).await.expect_err("its connection is closed");
    assert!(matches!(status.code(), Code::Unavailable | Code::Unknown), "{status:?}");
}

async fn watch(client: &mut Client) -> tonic::Streaming<v1::WatchDagsResponse> {
    let request = v1::WatchDagsRequest { parent: "tenants/-".into(), resume_revision: 0 };
    in_time(client.dags.watch_dags(request)).await.expect("a watch").into_inner()
}

#[tokio::test]
async fn a_connection_ends_when_its_certificate_expires() {
    let rig = Rig::start().await;
    let uri = format!("spiffe://{DOMAIN}/operator/root");
    let end = SystemTime::now() + Duration::from_secs(4);
    let identity = rig.authority.client_until(&uri, end);
    let mut client = Client::new(rig.connect(Some(identity)).await);
    list(&mut client).await.expect("still valid");
    let open = watch(&mut client).await;
    ends(&mut client, open).await;
    assert!(SystemTime::now() > end);
    let mut other = rig.client("operator/root").await;
    list(&mut other).await.expect("another certificate is valid");
    rig.stop().await;
}

/// A connection ends at its age, with all that is open on it; its client makes another.
#[tokio::test]
async fn a_connection_ends_at_its_age() {
    let second = Duration::from_secs(1);
    let limits = Limits { connection_age_max: second, grace: second, ..Limits::default() };
    let rig = Rig::with(limits).await;
    let mut client = rig.client("operator/root").await;
    let open = watch(&mut client).await;
    is_cut_off(open).await;
    in_time(async {
        // A call may still meet the end of the old connection.
        while list(&mut client).await.is_err() {}
    })
    .await;
    rig.stop().await;
}

/// A revoked certificate is rejected from the reload on, on new connections and on open ones; other
/// clients are not disturbed. Unusable files change nothing.
#[tokio::test]
async fn certificates_are_reloaded_and_revoked() {
    let (rig, reloader): (Rig, TlsReloader) = Rig::reloadable().await;
    let uri = format!("spiffe://{DOMAIN}/operator/eve");
    let (revoked, serial) = rig.authority.client_with_serial(&uri);
    let mut eve = Client::new(rig.connect(Some(revoked.clone())).await);
    let mut root = rig.client("operator/root").await;
    let (of_eve, mut of_root) = (watch(&mut eve).await, watch(&mut root).await);
    let mut wrong = rig.authority.server();
    wrong.revoked = Some("no list".to_owned().into());
    let error = reloader.reload(&wrong).expect_err("no list");
    assert!(error.to_string().contains("revoked certificates"), "{error}");
    list(&mut eve).await.expect("nothing has changed");
    let mut settings = rig.authority.server();
    settings.revoked = Some(rig.authority.revoke(&serial).into());
    reloader.reload(&settings).expect("valid");
    ends(&mut eve, of_eve).await;
    let again = match rig.try_connect(Some(revoked)).await {
        Ok(channel) => list(&mut Client::new(channel)).await.map_err(|status| status.code()),
        Err(_) => Err(Code::Unavailable),
    };
    assert!(matches!(again, Err(Code::Unavailable | Code::Unknown)), "{again:?}");
    list(&mut root).await.expect("not revoked");
    root.create_tenant("acme").await.expect("not revoked");
    list(&mut rig.client("operator/new").await).await.expect("new connections");
    // Another authority: clients of the first one are no longer trusted.
    let mut settings = Authority::new().server();
    let first = rig.authority.server();
    (settings.certificate, settings.key) = (first.certificate, first.key);
    reloader.reload(&settings).expect("valid");
    in_time(async { while let Ok(Some(_)) = of_root.message().await {} }).await;
    list(&mut root).await.expect_err("its authority is not trusted");
    rig.stop().await;
}
