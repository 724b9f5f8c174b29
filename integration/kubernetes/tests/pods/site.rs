//! A cluster with a tenant, a server behind the card and the driver, and looks at what pods and claims have.

use std::process::Command;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::resource::v1::{Device, ResourceClaim, ResourceSlice};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use snic_api::v1::vm_binding::State;
use snic_api::v1::{CordonCardRequest, ListBindingsRequest, UncordonCardRequest, VmBinding};
use snic_domain::{Bandwidth, DagName, DagSpec, NtConfiguration};
use snic_integration::TestClient;

use crate::cluster::objects::{self, delete, manifest};
use crate::cluster::{Cluster, run, until};

/// Longest time in which everything of a deleted pod is given back.
const GIVEN_BACK_MAX: Duration = Duration::from_secs(10);
/// A port that the firewall of the DAG lets through, and one that it does not.
pub const PORTS: [u16; 2] = [8_080, 9_090];

/// A cluster with a tenant, a server behind the card, and the driver.
pub struct Site {
    pub cluster: Cluster,
    pub daemon: TestClient,
}

impl Site {
    pub async fn start() -> Self {
        let mut site = Self::without_claims().await;
        let cluster = &mut site.cluster;
        let file = objects::path("snic-dra.yaml");
        let applied = cluster.kubectl(&format!("apply --server-side -f {}", file.display()));
        applied.unwrap_or_else(|why| panic!("{why}"));
        cluster.start_driver("");
        let slices: Api<ResourceSlice> = Api::all(cluster.client.clone());
        until("a slice", || async {
            let slices = slices.list(&ListParams::default()).await.ok()?;
            slices.items.into_iter().find(|slice| slice.spec.driver == "snic.dev")
        })
        .await;
        site
    }

    /// The same without the driver of claims.
    pub async fn without_claims() -> Self {
        let mut cluster = Cluster::start().await;
        let socket = cluster.daemon_socket();
        let daemon = TestClient::connect(&socket, "operator/test").await.expect("it serves");
        let catalogue = snic_bitstream::catalogue::builtin().expect("the built-in catalogue");
        daemon.register(&catalogue).await;
        daemon.create_tenant("acme").await.expect("a new tenant");
        daemon.create_tenant("globex").await.expect("a new tenant");
        run("ip", "netns add net");
        connect_uplink();
        for port in PORTS {
            let line = format!("netns exec net busybox nc -ll -p {port} -e /bin/echo hello");
            let mut server = Command::new("ip");
            server.args(line.split(' '));
            cluster.spawn(&format!("server-{port}"), server);
        }
        Self { cluster, daemon }
    }

    /// A DAG of acme whose firewall accepts pings and the first of the ports.
    pub async fn create_dag(&self) {
        let rules = json!({"rules": [
            {"action": "accept", "protocol": "icmp"},
            {"action": "accept", "protocol": "tcp", "destination_ports": PORTS[0].to_string()},
        ]});
        let nt = "firewall".parse().expect("a label");
        let mut spec = DagSpec::chain(&[nt], Bandwidth::from_gbps(1));
        spec.nodes[0].configuration = Some(NtConfiguration::new(&rules.to_string()));
        let (tenant, dag) = ("acme".parse().expect("a label"), "web".parse().expect("a label"));
        let name = DagName { tenant, dag };
        self.daemon.create_dag(&name, &spec).await.expect("there is room");
    }

    /// Cordons the card, or takes it into service again.
    pub async fn cordon(&self, is_cordoned: bool) {
        let name = "cards/card0".to_owned();
        if is_cordoned {
            let request = CordonCardRequest { name, ..Default::default() };
            self.daemon.cards().cordon_card(request).await.expect("it is in service");
        } else {
            let request = UncordonCardRequest { name, ..Default::default() };
            self.daemon.cards().uncordon_card(request).await.expect("it is cordoned");
        }
    }

    /// The line with this text of what `kubectl describe` shows of an object of the namespace `shop`, as soon as there is one.
    pub async fn until_described(&self, object: &str, text: &str) -> String {
        let words = format!("-n shop describe {object}");
        until(&format!("{text:?} of {object}"), || async {
            let shown = self.cluster.kubectl(&words).ok()?;
            shown.lines().find(|line| line.contains(text)).map(|line| line.trim().to_owned())
        })
        .await
    }

    pub async fn bindings(&self) -> Vec<VmBinding> {
        let request = ListBindingsRequest { parent: "tenants/-".into(), ..Default::default() };
        let reply = self.daemon.machines().list_bindings(request).await.expect("a list");
        let all = reply.into_inner().bindings.into_iter();
        all.filter(|binding| !matches!(binding.state(), State::Unbound | State::BindFailed))
            .collect()
    }

    pub async fn pod(&self, namespace: &str, name: &str) -> Option<Pod> {
        Api::namespaced(self.cluster.client.clone(), namespace).get_opt(name).await.ok()?
    }

    /// The first claim of a namespace.
    pub async fn claim(&self, namespace: &str) -> Option<ResourceClaim> {
        let claims: Api<ResourceClaim> = Api::namespaced(self.cluster.client.clone(), namespace);
        claims.list(&ListParams::default()).await.ok()?.items.into_iter().next()
    }

    /// Waits until the node's card is offered like this.
    pub async fn until_device(&self, what: &str, is_it: impl Fn(&Device) -> bool) {
        let slices: Api<ResourceSlice> = Api::all(self.cluster.client.clone());
        until(what, || async {
            let slices = slices.list(&ListParams::default()).await.ok()?.items.into_iter();
            let mut devices = slices.filter_map(|slice| slice.spec.devices).flatten();
            devices.find(|device| is_it(device)).map(drop)
        })
        .await;
    }

    pub async fn until_taint(&self, key: Option<&str>) {
        let taint = |device: &Device| device.taints.as_ref().map(|taints| taints[0].key.clone());
        self.until_device("a taint", |device| taint(device).as_deref() == key).await;
    }

    /// A reason that `kubectl describe` shows, of a pod's events or of a claim's status, as soon as one has this text.
    pub async fn until_reason(&self, namespace: &str, text: &str) -> String {
        let client = &self.cluster.client;
        let events: Api<Event> = Api::namespaced(client.clone(), namespace);
        let claims: Api<ResourceClaim> = Api::namespaced(client.clone(), namespace);
        until(text, || async {
            let claims = claims.list(&ListParams::default()).await.ok()?.items.into_iter();
            let devices = claims.filter_map(|claim| claim.status?.devices).flatten();
            let conditions = devices.filter_map(|device| device.conditions).flatten();
            let events = events.list(&ListParams::default()).await.ok()?.items.into_iter();
            let mut reasons = conditions
                .map(|condition| condition.message)
                .chain(events.filter_map(|event| event.message));
            reasons.find(|reason| reason.contains(text))
        })
        .await
    }

    /// Output of the pod's container; not that of an earlier pod of its name, whose file may be there still.
    pub async fn printed(&self, namespace: &str, pod: &str) -> String {
        let uid = self.pod(namespace, pod).await.and_then(|pod| pod.metadata.uid);
        let log = uid.map(|uid| format!("/var/log/pods/{namespace}_{pod}_{uid}/main/0.log"));
        log.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
    }

    /// The same without the API server's help: of the pod of this name in `shop` that printed last.
    pub fn printed_file(&self, pod: &str) -> String {
        let folders = std::fs::read_dir("/var/log/pods").into_iter().flatten().flatten();
        let begins = format!("shop_{pod}_");
        let ours = folders.filter(|entry| entry.file_name().to_string_lossy().starts_with(&begins));
        let logs = ours.map(|entry| entry.path().join("main/0.log"));
        let newest = logs.max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok());
        newest.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
    }

    pub async fn until_printed(&self, pod: &str, text: &str, count: usize) -> String {
        let state = || async {
            let printed = self.printed("shop", pod).await;
            (printed.matches(text).count() >= count).then_some(printed)
        };
        let waiting = tokio::time::timeout(Duration::from_secs(120), until(text, state)).await;
        let Ok(printed) = waiting else {
            panic!(
                "{pod} has not printed {text:?}: {}\n{}\n{}",
                self.printed("shop", pod).await,
                self.cluster.log("snic-dra"),
                self.cluster.log("kubelet"),
            )
        };
        printed
    }

    /// Waits until no claim of a pod of `shop` is left. A controller manager that was cut off from the API server takes a pod of
    /// the same name for the one before, and forgets the claim of that: no pod follows another before.
    async fn until_no_claim(&self) {
        until("the end of claims", || async {
            let claims: Api<ResourceClaim> = Api::namespaced(self.cluster.client.clone(), "shop");
            claims.list(&ListParams::default()).await.ok()?.items.is_empty().then_some(())
        })
        .await;
    }

    /// Waits until nothing of claims is left at the daemon, in folders, or in namespaces.
    pub async fn assert_given_back(&self) {
        let began = Instant::now();
        let mut left = vec!["not looked".to_owned()];
        while !left.is_empty() {
            assert!(
                began.elapsed() < GIVEN_BACK_MAX,
                "left: {left:?}\n{}",
                self.cluster.log("snic-dra")
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
            left = self.bindings().await.into_iter().map(|binding| binding.name).collect();
            for folder in ["/run/cdi", "/run/netns"]
                .map(Into::into)
                .into_iter()
                .chain([self.cluster.path().join("dra")])
            {
                let entries = std::fs::read_dir(folder).expect("a folder").flatten();
                let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
                left.extend(names.filter(|name| name != "net" && !name.starts_with("cni-")));
            }
            if !run("ip", "link").contains(" vf0") || !run("ip", "link").contains(" vf1") {
                left.push("an interface of the host".into());
            }
        }
        self.until_no_claim().await;
    }
}

/// Gives the card's uplink to the network behind the card.
pub fn connect_uplink() {
    run("ip", "link set up0 netns net");
    run("ip", "-n net address add 10.77.0.2/24 dev up0");
    run("ip", "-n net link set up0 up");
}

/// The objects of the example, with the pod's command.
pub fn example(command: &str) -> Vec<Value> {
    let mut objects = manifest(&objects::read("example.yaml"));
    let pod = objects.iter_mut().find(|object| object["kind"] == "Pod").expect("a pod");
    pod["spec"]["containers"][0]["command"] = json!(["sh", "-c", command]);
    objects
}

/// The same with a template of another name: templates never change.
pub fn example_with(template: &str, command: &str, change: impl Fn(&mut Value)) -> Vec<Value> {
    let mut objects = example(command);
    for object in &mut objects {
        if object["kind"] == "ResourceClaimTemplate" {
            object["metadata"]["name"] = json!(template);
            change(&mut object["spec"]["spec"]["devices"]);
        } else if object["kind"] == "Pod" {
            object["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = json!(template);
        }
    }
    objects
}

/// The container of a pod, which another start of it changes.
pub fn container_id(pod: &Pod) -> Option<String> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()?.container_id.clone()
}

/// The command of a pod that tries the ports once, and then pings until it is stopped.
pub fn tries() -> String {
    let [open, shut] = PORTS;
    format!(
        "ping -c 2 -W 2 10.77.0.2 && echo pinged; nc -w 3 10.77.0.2 {open} </dev/null; \
         nc -w 3 10.77.0.2 {shut} </dev/null || echo shut; \
         while true; do ping -c 1 -W 1 10.77.0.2 >/dev/null && echo alive; sleep 0.2; done"
    )
}

pub async fn what_a_deleted_pod_had_is_given_back(site: &Site) {
    let pods = example(&tries()).into_iter().filter(|object| object["kind"] == "Pod");
    for pod in pods {
        delete(&site.cluster.client, &pod).await;
    }
    until("the pod's end", || async { site.pod("shop", "web").await.is_none().then_some(()) })
        .await;
    site.assert_given_back().await;
}
