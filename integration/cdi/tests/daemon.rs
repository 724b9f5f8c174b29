//! Files of bindings, as a daemon's bindings come and go.

use std::path::{Path, PathBuf};
use std::time::Duration;

use snic_api::connect::Target;
use snic_api::v1::bind_vm_request::Chains;
use snic_api::v1::{BindVmRequest, DagNames, UnbindVmRequest};
use snic_cdi::sync::follow;
use snic_cdi::{Host, Spec, SpecFolder};
use snic_integration::{Home, TestClient, furnished};

const ONE: &str = "123e4567-e89b-42d3-a456-426614174000";
const TWO: &str = "123e4567-e89b-42d3-a456-426614174001";

fn target(home: &Home) -> Target {
    Target {
        endpoint: format!("unix:{}", home.socket().display()),
        identity: Some("orchestrator/cdi".into()),
        ..Target::default()
    }
}

async fn bind(client: &TestClient, uuid: &str, functions: u32) {
    let names = vec!["tenants/acme/dags/web".to_owned()];
    let request = BindVmRequest {
        vm: uuid.into(),
        tenant: "tenants/acme".into(),
        chains: Some(Chains::Dags(DagNames { names })),
        functions,
        ..Default::default()
    };
    client.machines().bind_vm(request).await.expect("it is bound");
}

async fn unbind(client: &TestClient, uuid: &str) {
    let request = UnbindVmRequest { vm: uuid.into(), tenant: String::new(), ..Default::default() };
    client.machines().unbind_vm(request).await.expect("it is unbound");
}

fn file(folder: &Path, uuid: &str) -> PathBuf {
    folder.join(format!("snic.dev-vf_{uuid}.json"))
}

async fn until(what: impl Fn() -> bool) {
    let waited = async {
        while !what() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), waited).await.expect("it comes to that");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_as_the_bindings_are() {
    let home = Home::new();
    let path = home.path().join("cdi");
    let folder = SpecFolder::open(&path, Host::new(home.path())).expect("a folder");
    let absent = follow(&target(&home), &folder, true).await.expect_err("nobody is there");
    assert!(absent.to_string().contains("does not answer"), "{absent}");

    let daemon = home.start().await;
    let client = furnished(&home, &["web"]).await;
    bind(&client, ONE, 2).await;
    // A binding that ended while nobody looked.
    std::fs::write(file(&path, TWO), "{}").expect("a file");
    follow(&target(&home), &folder, true).await.expect("all was told");
    assert!(!file(&path, TWO).exists());
    let text = std::fs::read_to_string(file(&path, ONE)).expect("a file");
    let spec: Spec = serde_json::from_str(&text).expect("a specification");
    assert_eq!(spec.check(), Ok(()));
    assert_eq!((&*spec.kind, spec.devices.len()), ("snic.dev/vf", 2));
    let written = std::fs::metadata(file(&path, ONE)).and_then(|data| data.modified());
    follow(&target(&home), &folder, true).await.expect("all was told");
    let again = std::fs::metadata(file(&path, ONE)).and_then(|data| data.modified());
    assert_eq!(written.expect("a time"), again.expect("a time"), "it was not touched");

    let (at, kept) = (target(&home), folder.clone());
    let following = tokio::spawn(async move { follow(&at, &kept, false).await });
    bind(&client, TWO, 1).await;
    until(|| file(&path, TWO).exists()).await;
    unbind(&client, TWO).await;
    until(|| !file(&path, TWO).exists()).await;
    // What is bound stays so while the daemon is down.
    let _ = daemon.kill();
    following.await.expect("no panic").expect_err("the daemon is gone");
    assert!(file(&path, ONE).exists());
}
