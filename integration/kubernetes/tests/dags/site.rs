//! A control plane with the definition of `Dag`, and the controller with the rights of its manifest; `snicd` with two tenants.

use std::path::PathBuf;
use std::process::Command;

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};
use snic_api::v1::Dag;
use snic_integration::{DaemonProcess, Home, TestClient, program};
use snic_kubernetes::dags::object::resource;

use crate::cluster::control_plane::ControlPlane;
use crate::cluster::objects::{self, apply, manifest};
use crate::cluster::until;

/// Name of the controller's program, its account, and its first replica.
pub const CONTROLLER: &str = "snic-dag-controller";
/// Namespace of the controller.
const NAMESPACE: &str = "snic-system";

/// Applies the definition of `Dag`, the controller's rights, and namespaces.
pub async fn furnish(plane: &ControlPlane, namespaces: &[&str]) {
    for file in ["dags.snic.dev.yaml", "snic-dag-controller.yaml"] {
        for object in manifest(&objects::read(file)) {
            apply(&plane.client, &object).await;
        }
    }
    for namespace in namespaces {
        let object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        apply(&plane.client, &object).await;
    }
    let all: Api<DynamicObject> = Api::all_with(plane.client.clone(), &resource());
    until("the kind", || async { all.list(&Default::default()).await.ok() }).await;
}

/// Starts a replica of the controller, with the rights of its service account, and a server as in its settings.
pub fn start_controller(plane: &mut ControlPlane, replica: &str, server: &str) {
    let login = plane.login(NAMESPACE, CONTROLLER);
    let settings = plane.path().join(format!("{replica}.toml"));
    let text = format!(
        "kubeconfig = {login:?}\nlease_namespace = {NAMESPACE:?}\nreplica = {replica:?}\n\
         served_seconds = 1\n[namespaces]\nshop = \"acme\"\nbank = \"globex\"\n\
         [server]\n{server}"
    );
    std::fs::write(&settings, text).expect("the folder takes files");
    let mut controller = Command::new(program(CONTROLLER));
    controller.arg("--config").arg(settings);
    plane.spawn(replica, controller);
}

/// `Dag` objects of an API server.
pub struct DagObjects(pub kube::Client);

impl DagObjects {
    pub fn dags(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.0.clone(), namespace, &resource())
    }

    /// Applies an object, as `kubectl apply --server-side` does.
    pub async fn apply(
        &self,
        namespace: &str,
        name: &str,
        spec: Value,
    ) -> Result<DynamicObject, kube::Error> {
        let object = json!({
            "apiVersion": "snic.dev/v1alpha1", "kind": "Dag",
            "metadata": {"namespace": namespace, "name": name}, "spec": spec,
        });
        let parameters = PatchParams::apply("test").force();
        self.dags(namespace).patch(name, &parameters, &Patch::Apply(&object)).await
    }

    /// Applies an object that the API server takes.
    pub async fn applied(&self, namespace: &str, name: &str, spec: Value) -> DynamicObject {
        let applied = self.apply(namespace, name, spec).await;
        applied.unwrap_or_else(|error| panic!("{namespace}/{name}: {error}"))
    }

    /// Waits until the condition of an object's present generation has this status; returns object and condition.
    pub async fn until(
        &self,
        object: &DynamicObject,
        kind: &str,
        status: &str,
    ) -> (DynamicObject, Value) {
        let metadata = &object.metadata;
        let (namespace, name) =
            (metadata.namespace.clone().expect("set"), metadata.name.clone().expect("set"));
        let dags = self.dags(&namespace);
        until(&format!("{namespace}/{name} {kind}={status}"), || async {
            let now = dags.get_opt(&name).await.ok()??;
            let conditions =
                now.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let found = conditions.into_iter().find(|one| one["type"] == kind)?;
            let is_new = found["observedGeneration"] == json!(metadata.generation);
            (is_new && found["status"] == status).then_some((now, found))
        })
        .await
    }

    /// Deletes an object, and waits until it has gone.
    pub async fn deleted(&self, namespace: &str, name: &str) {
        let dags = self.dags(namespace);
        dags.delete(name, &Default::default()).await.expect("it is there");
        until("the end of an object", || async {
            dags.get_opt(name).await.ok()?.is_none().then_some(())
        })
        .await;
    }
}

/// All of it.
pub struct Site {
    pub plane: ControlPlane,
    pub objects: DagObjects,
    pub home: Home,
    pub daemon: Option<DaemonProcess>,
    pub server: TestClient,
}

impl Site {
    /// Starts it; the namespaces `shop` and `bank` have tenants, `dev` has none.
    pub async fn start() -> Self {
        Self::over(Home::new()).await
    }

    /// The same with a folder of policy files, which is empty.
    pub async fn with_policies() -> (Self, PathBuf) {
        let home = Home::new();
        let policies = home.path().join("policies");
        let folder = policies.join("authorization");
        std::fs::create_dir_all(&folder).expect("a folder");
        let text = std::fs::read_to_string(home.settings()).expect("settings");
        let text = format!("policies_dir = {policies:?}\n{text}");
        std::fs::write(home.settings(), text).expect("settings");
        (Self::over(home).await, folder)
    }

    /// Whether the server was built with policies in files. In CI it must be.
    pub fn has_policies(&self) -> bool {
        let mut doctor = Command::new(program("snicd"));
        let output = doctor.args(["doctor", "-c"]).arg(self.home.settings()).output();
        let output = output.expect("it starts");
        let said = [output.stdout, output.stderr].concat();
        let has = !String::from_utf8_lossy(&said).contains("without them");
        assert!(has || std::env::var_os("CI").is_none(), "the tests need `--features snicd/cedar`");
        has
    }

    async fn over(home: Home) -> Self {
        let daemon = home.start().await;
        let server = connect(&home).await;
        let catalogue = snic_bitstream::catalogue::builtin().expect("the built-in catalogue");
        server.register(&catalogue).await;
        for tenant in ["acme", "globex"] {
            server.create_tenant(tenant).await.expect("a new tenant");
        }
        let plane = ControlPlane::start().await;
        let objects = DagObjects(plane.client.clone());
        furnish(&plane, &["shop", "bank", "dev"]).await;
        let mut site = Self { plane, objects, home, daemon: Some(daemon), server };
        site.start_controller(CONTROLLER);
        site
    }

    /// Starts a replica, with the rights of the service account.
    pub fn start_controller(&mut self, replica: &str) {
        let endpoint = format!("unix:{}", self.home.socket().display());
        start_controller(&mut self.plane, replica, &format!("endpoint = {endpoint:?}\n"));
    }

    /// A DAG of the server, if it exists.
    pub async fn dag(&self, name: &str) -> Option<Dag> {
        self.server.list_dags().await.into_iter().find(|dag| dag.name == name)
    }

    /// Starts the server again after `kill -9`.
    pub async fn restart_server(&mut self) {
        drop(self.daemon.take());
        self.daemon = Some(self.home.start().await);
        self.server = connect(&self.home).await;
    }
}

impl std::ops::Deref for Site {
    type Target = DagObjects;

    fn deref(&self) -> &DagObjects {
        &self.objects
    }
}

async fn connect(home: &Home) -> TestClient {
    TestClient::connect(&home.socket(), "operator/test").await.expect("it serves")
}
