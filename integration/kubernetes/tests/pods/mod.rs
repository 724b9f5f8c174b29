//! Pods of a real cluster whose packets pass DAGs of a software card: unmodified busybox, kubelet, scheduler, containerd.

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
use snic_integration::{TestClient, program};

use crate::cluster::objects::{self, apply, delete, manifest};
use crate::cluster::{self, Cluster, run, until};

/// Longest time in which everything of a deleted pod is given back.
const GIVEN_BACK_MAX: Duration = Duration::from_secs(10);
/// A port that the firewall of the DAG lets through, and one that it does not.
const PORTS: [u16; 2] = [8_080, 9_090];

/// A cluster with a tenant, a server behind the card, and the driver.
struct Site {
    cluster: Cluster,
    daemon: TestClient,
}

impl Site {
    async fn start() -> Self {
        let mut cluster = Cluster::start().await;
        let socket = cluster.daemon_socket();
        let daemon = TestClient::connect(&socket, "operator/test").await.expect("it serves");
        let catalogue = snic_bitstream::catalogue::builtin().expect("the built-in catalogue");
        daemon.register(&catalogue).await;
        daemon.create_tenant("acme").await.expect("a new tenant");
        daemon.create_tenant("globex").await.expect("a new tenant");
        run("ip", "netns add net");
        run("ip", "link set up0 netns net");
        run("ip", "-n net address add 10.77.0.2/24 dev up0");
        run("ip", "-n net link set up0 up");
        for port in PORTS {
            let line = format!("netns exec net busybox nc -ll -p {port} -e /bin/echo hello");
            let mut server = Command::new("ip");
            server.args(line.split(' '));
            cluster.spawn(&format!("server-{port}"), server);
        }
        for object in manifest(&objects::read("snic-dra.yaml")) {
            apply(&cluster.client, &object).await;
        }
        cluster.start_driver("");
        let slices: Api<ResourceSlice> = Api::all(cluster.client.clone());
        until("a slice", || async {
            let slices = slices.list(&ListParams::default()).await.ok()?;
            slices.items.into_iter().find(|slice| slice.spec.driver == "snic.dev")
        })
        .await;
        Self { cluster, daemon }
    }

    /// A DAG of acme whose firewall accepts pings and the first of the ports.
    async fn create_dag(&self) {
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

    async fn bindings(&self) -> Vec<VmBinding> {
        let request = ListBindingsRequest { parent: "tenants/-".into(), ..Default::default() };
        let reply = self.daemon.machines().list_bindings(request).await.expect("a list");
        let all = reply.into_inner().bindings.into_iter();
        all.filter(|binding| !matches!(binding.state(), State::Unbound | State::BindFailed))
            .collect()
    }

    async fn pod(&self, namespace: &str, name: &str) -> Option<Pod> {
        Api::namespaced(self.cluster.client.clone(), namespace).get_opt(name).await.ok()?
    }

    /// The first claim of a namespace.
    async fn claim(&self, namespace: &str) -> Option<ResourceClaim> {
        let claims: Api<ResourceClaim> = Api::namespaced(self.cluster.client.clone(), namespace);
        claims.list(&ListParams::default()).await.ok()?.items.into_iter().next()
    }

    /// Waits until the node's card is offered like this.
    async fn until_device(&self, what: &str, is_it: impl Fn(&Device) -> bool) {
        let slices: Api<ResourceSlice> = Api::all(self.cluster.client.clone());
        until(what, || async {
            let slices = slices.list(&ListParams::default()).await.ok()?.items.into_iter();
            let mut devices = slices.filter_map(|slice| slice.spec.devices).flatten();
            devices.find(|device| is_it(device)).map(drop)
        })
        .await;
    }

    async fn until_taint(&self, key: Option<&str>) {
        let taint = |device: &Device| device.taints.as_ref().map(|taints| taints[0].key.clone());
        self.until_device("a taint", |device| taint(device).as_deref() == key).await;
    }

    /// A reason that `kubectl describe` shows, of a pod's events or of a claim's status, as soon as one has this text.
    async fn until_reason(&self, namespace: &str, text: &str) -> String {
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
    async fn printed(&self, namespace: &str, pod: &str) -> String {
        let uid = self.pod(namespace, pod).await.and_then(|pod| pod.metadata.uid);
        let log = uid.map(|uid| format!("/var/log/pods/{namespace}_{pod}_{uid}/main/0.log"));
        log.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default()
    }

    async fn until_printed(&self, pod: &str, text: &str, count: usize) -> String {
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

    /// Waits until nothing of claims is left at the daemon, in folders, or in namespaces.
    async fn assert_given_back(&self) {
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
    }
}

/// The objects of the example, with the pod's command.
fn example(command: &str) -> Vec<Value> {
    let mut objects = manifest(&objects::read("example.yaml"));
    let pod = objects.iter_mut().find(|object| object["kind"] == "Pod").expect("a pod");
    pod["spec"]["containers"][0]["command"] = json!(["sh", "-c", command]);
    objects
}

/// The same with a template of another name: templates never change.
fn example_with(template: &str, command: &str, change: impl Fn(&mut Value)) -> Vec<Value> {
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

/// The command of a pod that tries the ports once, and then pings until it is stopped.
fn tries() -> String {
    let [open, shut] = PORTS;
    format!(
        "ping -c 2 -W 2 10.77.0.2 && echo pinged; nc -w 3 10.77.0.2 {open} </dev/null; \
         nc -w 3 10.77.0.2 {shut} </dev/null || echo shut; \
         while true; do ping -c 1 -W 1 10.77.0.2 >/dev/null && echo alive; sleep 0.2; done"
    )
}

#[test]
fn a_pod_in_a_real_cluster_sends_through_its_dag() {
    if let Some(why) = cluster::missing() {
        println!("not run: {why}");
        return;
    }
    let part = ["--exact", "pods::the_life_of_pods", "--ignored", "--nocapture"];
    let status = cluster::enter(&part, |_| {});
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "part: of a_pod_in_a_real_cluster_sends_through_its_dag"]
async fn the_life_of_pods() {
    assert_eq!(std::process::id(), 1, "only in namespaces of its own");
    let mut site = Site::start().await;
    a_pod_waits_for_its_dag_and_sends_through_it(&site).await;
    restarts_change_nothing_for_a_pod(&mut site).await;
    what_a_deleted_pod_had_is_given_back(&site).await;
    a_driver_that_is_killed_before_it_has_bound_goes_on(&mut site).await;
    a_cordoned_card_takes_no_pod(&site).await;
    a_claim_that_loses_its_pod_before_a_kubelet_asked_is_given_back(&site).await;
    without_binding_conditions_the_kubelet_asks(&mut site).await;
    no_namespace_reaches_the_dags_of_another(&site).await;
}

async fn a_pod_waits_for_its_dag_and_sends_through_it(site: &Site) {
    for object in example(&tries()) {
        apply(&site.cluster.client, &object).await;
    }
    // The DAG is not there yet. The pod waits, says why, and sends nothing.
    let why = site.until_reason("shop", "dags/web").await;
    println!("why the pod waits: {why}");
    assert_eq!(site.printed("shop", "web").await, "", "no packet before the card serves the DAG");
    assert_eq!(site.bindings().await, []);
    site.create_dag().await;
    let printed = site.until_printed("web", "alive", 3).await;
    println!("{printed}");
    assert!(printed.contains("pinged") && printed.contains("hello"), "{printed}");
    assert!(printed.contains("shut") && printed.matches("hello").count() == 1, "{printed}");
    let claim = site.claim("shop").await.expect("a claim");
    let device = claim.status.and_then(|status| status.devices).expect("a status").remove(0);
    let network = device.network_data.expect("the pod's interface");
    assert_eq!(network.interface_name.as_deref(), Some("snic0"));
    assert_eq!(network.ips, Some(vec!["10.77.0.1/24".to_owned()]));
    let condition = device.conditions.expect("a condition").remove(0);
    assert_eq!((&*condition.type_, &*condition.status), ("snic.dev/Served", "True"));
    // What the firewall dropped is counted where a tenant looks.
    let contexts = site.cluster.path().join("contexts.toml");
    let snicctl = |line: &str| {
        let mut command = Command::new(program("snicctl"));
        command.env("SNICCTL_CONFIG", &contexts).args(line.split(' '));
        String::from_utf8_lossy(&command.output().expect("it starts").stdout).into_owned()
    };
    let endpoint = format!("unix:{}", site.cluster.daemon_socket().display());
    snicctl(&format!("context set acme --endpoint {endpoint} --identity tenant/acme"));
    until("drops of the firewall", || async {
        let shown = snicctl("--context acme dag get web");
        let is_it = |line: &str| line.starts_with("Task drops:") && line.contains("firewall: ");
        shown.lines().find(|line| is_it(line)).map(|line| println!("{line}"))
    })
    .await;
}

async fn restarts_change_nothing_for_a_pod(site: &mut Site) {
    let before = site.pod("shop", "web").await.expect("it runs");
    let bound = site.bindings().await;
    assert_eq!(bound.len(), 1);
    site.cluster.kill("kubelet");
    site.cluster.kill("snic-dra");
    site.cluster.start_kubelet();
    site.cluster.start_driver("");
    site.cluster.kill("kube-apiserver");
    tokio::time::sleep(Duration::from_secs(10)).await;
    site.cluster.start_api_server().await;
    let alive = site.printed("shop", "web").await.matches("alive").count();
    site.until_printed("web", "alive", alive + 50).await;
    let after = site.pod("shop", "web").await.expect("it runs");
    let container = |pod: &Pod| {
        let status = pod.status.clone().and_then(|status| status.container_statuses);
        status.and_then(|all| all[0].container_id.clone())
    };
    assert!(container(&before).is_some());
    assert_eq!(container(&before), container(&after), "the container was started again");
    assert_eq!(site.bindings().await[0].etag, bound[0].etag, "it was bound again");
}

async fn what_a_deleted_pod_had_is_given_back(site: &Site) {
    let pods = example(&tries()).into_iter().filter(|object| object["kind"] == "Pod");
    for pod in pods {
        delete(&site.cluster.client, &pod).await;
    }
    until("the pod's end", || async { site.pod("shop", "web").await.is_none().then_some(()) })
        .await;
    site.assert_given_back().await;
}

/// The daemon stands still while the driver binds: the driver has noted the claim, and bound nothing, when it is killed.
async fn a_driver_that_is_killed_before_it_has_bound_goes_on(site: &mut Site) {
    let daemon = site.cluster.daemon_process();
    site.cluster.signal(daemon, "STOP");
    // Its card gets a taint after a while, and the scheduler may be slower than that.
    let objects = example_with("tolerant", &tries(), |devices| {
        devices["requests"][0]["exactly"]["tolerations"] =
            json!([{"key": "snic.dev/daemon-unreachable", "operator": "Exists"}]);
    });
    for object in objects {
        apply(&site.cluster.client, &object).await;
    }
    let records = site.cluster.path().join("dra");
    until("a note", || async { std::fs::read_dir(&records).ok()?.flatten().next() }).await;
    site.cluster.kill("snic-dra");
    site.cluster.signal(daemon, "CONT");
    site.cluster.start_driver("");
    site.until_printed("web", "alive", 3).await;
    assert_eq!(site.bindings().await.len(), 1);
    what_a_deleted_pod_had_is_given_back(site).await;
}

/// The scheduler is told by a taint, and the pod starts when the card is back in service.
async fn a_cordoned_card_takes_no_pod(site: &Site) {
    let name = "cards/card0".to_owned();
    let request = CordonCardRequest { name: name.clone(), ..Default::default() };
    site.daemon.cards().cordon_card(request).await.expect("it is in service");
    site.until_taint(Some("snic.dev/cordoned")).await;
    for object in example(&tries()) {
        apply(&site.cluster.client, &object).await;
    }
    let why = site.until_reason("shop", "cannot allocate all claims").await;
    println!("a cordoned card: {why}");
    assert_eq!(site.bindings().await, []);
    let request = UncordonCardRequest { name, ..Default::default() };
    site.daemon.cards().uncordon_card(request).await.expect("it is cordoned");
    site.until_taint(None).await;
    site.until_printed("web", "alive", 1).await;
    what_a_deleted_pod_had_is_given_back(site).await;
}

/// A DAG that is never there keeps a pod waiting, assigned to no node. Another pod is deleted when it is bound, which the kubelet
/// may never hear of.
async fn a_claim_that_loses_its_pod_before_a_kubelet_asked_is_given_back(site: &Site) {
    let objects = example_with("later", "echo started", |devices| {
        devices["config"][0]["opaque"]["parameters"]["dag"] = json!("later");
    });
    for object in objects {
        apply(&site.cluster.client, &object).await;
    }
    site.until_reason("shop", "tenants/acme/dags/later").await;
    let pod = site.pod("shop", "web").await.expect("it waits");
    assert_eq!(pod.spec.expect("a specification").node_name, None, "assigned to no node yet");
    what_a_deleted_pod_had_is_given_back(site).await;
    for object in example("echo started") {
        apply(&site.cluster.client, &object).await;
    }
    until("a binding", || async { (site.bindings().await.len() == 1).then_some(()) }).await;
    what_a_deleted_pod_had_is_given_back(site).await;
}

async fn without_binding_conditions_the_kubelet_asks(site: &mut Site) {
    site.cluster.kill("snic-dra");
    site.cluster.start_driver("binding_conditions = false");
    site.until_device("no conditions", |device| device.binding_conditions.is_none()).await;
    for object in example(&tries()) {
        apply(&site.cluster.client, &object).await;
    }
    site.until_printed("web", "alive", 1).await;
    what_a_deleted_pod_had_is_given_back(site).await;
}

async fn no_namespace_reaches_the_dags_of_another(site: &Site) {
    for (namespace, said) in
        [("bank", "tenants/globex/dags/web"), ("other", "namespace other has no tenant")]
    {
        for mut object in example("echo started") {
            match object["kind"].as_str() {
                Some("Namespace") => object["metadata"]["name"] = json!(namespace),
                _ => object["metadata"]["namespace"] = json!(namespace),
            }
            apply(&site.cluster.client, &object).await;
        }
        let why = site.until_reason(namespace, said).await;
        println!("{namespace}: {why}");
        assert!(!why.contains("acme"), "{why}");
        assert_eq!(site.printed(namespace, "web").await, "");
    }
    assert_eq!(site.bindings().await, []);
}
