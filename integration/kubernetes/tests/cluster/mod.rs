//! A Kubernetes cluster of one node, in namespaces of its own: etcd, API server, controller manager, scheduler, kubelet,
//! containerd, `snicd` with a software card, and `snic-dra`.
//!
//! Whoever starts one enters the namespaces first ([`enter`]): of processes, so that all ends with the first; of mounts, for the
//! kubelet has folders that nothing moves; and of networks. Nothing of it remains on the machine.

pub mod certificates;
pub mod control_plane;
pub mod image;
pub mod objects;
pub mod page;
pub mod version;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use snic_integration::{DaemonProcess, Home, program};

use certificates::Authority;
pub use version::kubernetes_program;

/// Name of the node.
pub const NODE: &str = "node-1";
/// Address of the node.
pub const NODE_ADDRESS: &str = "10.99.0.1";
/// Group of processes that has those of pods.
const CGROUP: &str = "snic-cluster";
/// Longest time for a part to start, and for anything else that is waited for.
const PATIENCE: Duration = Duration::from_secs(300);
/// Programs of the cluster that are built once, and where nothing else has them.
const PROGRAMS: [&str; 8] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kubectl",
    "containerd",
    "containerd-shim-runc-v2",
    "ctr",
];
/// Programs of the distribution, with their packages.
const PACKAGED: [(&str, &str); 4] = [
    ("/usr/sbin/runc", "runc"),
    ("/usr/lib/cni/ptp", "containernetworking-plugins"),
    ("/usr/bin/busybox", "busybox-static"),
    ("/usr/sbin/ip", "iproute2"),
];

/// The folder of a program that is built once: what the variable names, else that name in `snic` of the user's cache.
fn cache(variable: &str, name: &str) -> PathBuf {
    let cached = || {
        let home = std::env::var_os("HOME").unwrap_or_else(|| "/root".into());
        Path::new(&home).join(".cache/snic").join(name)
    };
    std::env::var_os(variable).map_or_else(cached, PathBuf::from)
}

/// `kubectl` of the cluster's version, or of this machine where that was not built.
pub fn kubectl() -> Command {
    let built = kubernetes_program("kubectl");
    Command::new(if built.exists() { built } else { "kubectl".into() })
}

/// Runs it as the user of a login; returns what it prints, in the error what it complains of.
///
/// # Errors
/// It fails.
pub fn kubectl_says(login: &Path, words: &str) -> Result<String, String> {
    let mut command = kubectl();
    command.arg("--kubeconfig").arg(login).args(words.split_whitespace());
    let output = command.output().map_err(|error| format!("kubectl: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Says what is missing for a cluster with claims on this machine.
pub fn missing() -> Option<String> {
    missing_parts().or_else(|| version::without_claims(&["kube-apiserver", "kubelet"]))
}

/// Says what is missing for a cluster on this machine.
pub fn missing_parts() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("a cluster needs root".into());
    }
    let absent = PACKAGED.into_iter().find(|(path, _)| !Path::new(path).exists());
    if let Some((path, package)) = absent {
        return Some(format!("{path} is missing: apt-get install {package}"));
    }
    let mut programs = PROGRAMS.into_iter().map(kubernetes_program);
    if let Some(program) = programs.find(|program| !program.exists()) {
        return Some(format!(
            "{} is missing: `cargo xtask cluster --build` builds it once",
            program.display()
        ));
    }
    let etcd = cache("SNIC_ETCD_FOLDER", "etcd").join("etcd");
    (!etcd.exists()).then(|| format!("{} is missing: see CONTRIBUTING.md", etcd.display()))
}

/// Runs this program again with these arguments, in namespaces of its own, and returns how it ended. `started` is called with its
/// process.
pub fn enter(arguments: &[&str], started: impl FnOnce(u32)) -> ExitStatus {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.arg(std::env::current_exe().expect("the running program has a path"));
    let mut child = command.args(arguments).spawn().expect("unshare is installed");
    started(child.id());
    let status = child.wait().expect("it was a child");
    // Groups of processes are the only thing that outlives the namespaces.
    for controller in std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten() {
        let root = controller.path().join(CGROUP);
        for group in std::fs::read_dir(&root).into_iter().flatten().flatten() {
            // Files are no groups, and go with them.
            let _ = std::fs::remove_dir(group.path());
        }
        let _ = std::fs::remove_dir(root);
    }
    status
}

/// Runs a command to its end.
///
/// # Panics
/// It fails.
pub fn run(program: &str, arguments: &str) -> String {
    let mut command = Command::new(program);
    let output = command.args(arguments.split_whitespace()).output().expect("it is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Waits until something is so.
///
/// # Panics
/// It is not in time.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not after {PATIENCE:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A running cluster. All of it ends with the process that started it.
pub struct Cluster {
    home: Home,
    authority: Authority,
    processes: Vec<(String, Child)>,
    daemon: DaemonProcess,
    /// A client with all rights.
    pub client: kube::Client,
}

impl Drop for Cluster {
    /// The folder goes with it, so what a failed test is judged by is printed.
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in ["snic-dra", "kubelet", "kube-scheduler", "kube-controller-manager"] {
                println!("{name}:\n{}", self.log(name));
            }
            for words in
                ["get events -A --sort-by=.lastTimestamp", "describe pods,resourceclaims -A"]
            {
                println!("kubectl {words}:\n{}", self.kubectl(words).unwrap_or_else(|error| error));
            }
        }
    }
}

/// Mounts and addresses of the node, in the namespaces that this process is in.
fn prepare_node() {
    for folder in ["/run", "/var/lib/kubelet", "/var/log/pods", "/var/log/containers"] {
        std::fs::create_dir_all(folder).expect("a folder");
        run("mount", &format!("-t tmpfs none {folder}"));
    }
    for line in [
        "link set lo up",
        "link add node0 type veth peer name node1",
        &format!("address add {NODE_ADDRESS}/24 dev node0"),
        "link set node0 up",
        "link set node1 up",
    ] {
        run("ip", line);
    }
}

/// Settings of the daemon: the ports of the page, with a device in the place of the network; and certificates for callers from pods.
fn write_daemon_settings(home: &Home) {
    let ports = page::block("dra.md", "[cards.soft]");
    assert!(ports.contains("interface:eth1"), "{ports}");
    home.write_soft_settings(&ports.replace("interface:eth1", "tap:up0"));
    let folder = home.path().join("snic-pki").display().to_string();
    let snicd = program("snicd").display().to_string();
    for words in
        ["init", &format!("issue server --host {NODE_ADDRESS}"), "issue operator/kubernetes-dags"]
    {
        run(&snicd, &format!("pki --folder {folder} {words}"));
    }
    let settings = std::fs::read_to_string(home.settings()).expect("written before");
    let settings = settings
        .replace("count = 8", "count = 2")
        .replace("[listen]\n", &format!("[listen]\ntcp = \"{NODE_ADDRESS}:7443\"\n"));
    let file = |name: &str| format!("{folder}/{name}");
    let tls = format!(
        "[tls]\nca = {:?}\ncertificate = {:?}\nkey = {:?}\ncrl = {:?}\n",
        file("ca.pem"),
        file("server.pem"),
        file("server.key"),
        file("crl.pem")
    );
    std::fs::write(home.settings(), format!("{settings}\n{tls}")).expect("the folder takes files");
}

impl Cluster {
    /// Starts a cluster, and waits until its node is ready. The process has to be in namespaces of its own.
    pub async fn start() -> Self {
        prepare_node();
        let home = Home::new();
        write_daemon_settings(&home);
        let daemon = home.start().await;
        let authority = Authority::new(&home.path().join("pki"));
        let mut cluster = Self {
            client: Self::control_plane_client(&authority).await,
            home,
            authority,
            processes: Vec::new(),
            daemon,
        };
        cluster.start_control_plane().await;
        cluster.start_node().await;
        cluster
    }

    async fn control_plane_client(authority: &Authority) -> kube::Client {
        authority.certificate(
            "server",
            "kube-apiserver",
            &[],
            &["127.0.0.1", NODE_ADDRESS, "10.96.0.1"],
        );
        let login = authority.login("admin", "admin", "system:masters");
        let kubeconfig = kube::config::Kubeconfig::read_from(login).expect("written before");
        let options = kube::config::KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
        kube::Client::try_from(config.expect("valid")).expect("a client")
    }

    /// The folder of a cluster: logs in `log`, certificates in `pki`.
    pub fn path(&self) -> &Path {
        self.home.path()
    }

    /// The folder of the authority that the daemon and those who call it from pods have certificates of, as `snicd pki` makes it.
    pub fn daemon_certificates(&self) -> PathBuf {
        self.home.path().join("snic-pki")
    }

    /// The daemon's socket.
    pub fn daemon_socket(&self) -> PathBuf {
        self.home.socket()
    }

    /// Starts a part, with what it prints in a file of its name.
    pub fn spawn(&mut self, name: &str, mut command: Command) {
        let folder = self.home.path().join("log");
        std::fs::create_dir_all(&folder).expect("a folder");
        let log =
            File::options().create(true).append(true).open(folder.join(format!("{name}.log")));
        let log = log.expect("a file");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log);
        let child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
        self.processes.push((name.to_owned(), child));
    }

    fn spawn_component(&mut self, name: &str, arguments: &str) {
        let mut command = Command::new(kubernetes_program(name));
        command.args(arguments.split_whitespace());
        self.spawn(name, command);
    }

    /// `kill -9` of a part, and its end.
    pub fn kill(&mut self, name: &str) {
        let at = self.processes.iter().position(|(known, _)| known == name).expect("it runs");
        let (_, mut child) = self.processes.remove(at);
        child.kill().expect("it runs");
        child.wait().expect("it was a child");
    }

    async fn start_control_plane(&mut self) {
        let mut etcd = Command::new(cache("SNIC_ETCD_FOLDER", "etcd").join("etcd"));
        let store = self.home.path().join("etcd").display().to_string();
        etcd.args(["--data-dir", &store, "--unsafe-no-fsync"]);
        self.spawn("etcd", etcd);
        self.start_api_server().await;
        let pki = |name: &str| self.authority.file(name);
        let (ca, admin, accounts) = (pki("ca.crt"), pki("admin.kubeconfig"), pki("accounts.key"));
        self.spawn_component(
            "kube-controller-manager",
            &format!(
                "--kubeconfig={admin} --service-account-private-key-file={accounts} --root-ca-file={ca} \
                 --leader-elect=false {}",
                version::feature_flag("kube-controller-manager")
            ),
        );
        let scheduler = page::scheduler_settings(self.path(), Path::new(&admin));
        self.spawn_component(
            "kube-scheduler",
            &format!(
                "--config={} {}",
                scheduler.display(),
                version::feature_flag("kube-scheduler")
            ),
        );
    }

    /// Starts the API server, for the first time or again, and waits until it answers.
    pub async fn start_api_server(&mut self) {
        let pki = |name: &str| self.authority.file(name);
        let (ca, accounts, accounts_public) =
            (pki("ca.crt"), pki("accounts.key"), pki("accounts.pub"));
        let (certificate, key) = (pki("server.crt"), pki("server.key"));
        // As which it asks kubelets for logs.
        let (asks, asks_key) = (pki("admin.crt"), pki("admin.key"));
        self.spawn_component(
            "kube-apiserver",
            &format!(
                "--etcd-servers=http://127.0.0.1:2379 --client-ca-file={ca} --tls-cert-file={certificate} \
                 --tls-private-key-file={key} --service-account-issuer=https://kubernetes.default.svc \
                 --service-account-key-file={accounts_public} --service-account-signing-key-file={accounts} \
                 --service-cluster-ip-range=10.96.0.0/16 --authorization-mode=Node,RBAC \
                 --advertise-address={NODE_ADDRESS} --kubelet-preferred-address-types=InternalIP \
                 --kubelet-client-certificate={asks} --kubelet-client-key={asks_key} {}",
                version::api_flags()
            ),
        );
        let client = self.client.clone();
        until("the API server", || async { client.apiserver_version().await.ok() }).await;
    }

    async fn start_node(&mut self) {
        let folder = self.home.path().to_owned();
        let programs = cache("SNIC_KUBERNETES_FOLDER", "kubernetes");
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            std::fs::write(&path, text).expect("the folder takes files");
            path.display().to_string()
        };
        write("cni/10-ptp.conflist", &network(&folder));
        let config = write("containerd.toml", &runtime(&folder));
        let mut containerd = Command::new(programs.join("containerd"));
        let path = std::env::var("PATH").unwrap_or_default();
        containerd.args(["--config", &config]);
        containerd.env("PATH", format!("{}:{path}:/usr/sbin:/sbin", programs.display()));
        self.spawn("containerd", containerd);
        let images = image::archive(&folder);
        until("containerd", || async {
            let mut ctr = Command::new(programs.join("ctr"));
            ctr.args(["-n", "k8s.io", "images", "import"]).arg(&images);
            ctr.output().ok().filter(|output| output.status.success())
        })
        .await;
        self.authority.login("kubelet", &format!("system:node:{NODE}"), "system:nodes");
        let ca = self.authority.file("ca.crt");
        write("kubelet.yaml", &version::kubelet_settings(Path::new(&ca)));
        self.start_kubelet();
        let nodes: kube::Api<k8s_openapi::api::core::v1::Node> =
            kube::Api::all(self.client.clone());
        until("the node", || async {
            let node = nodes.get(NODE).await.ok()?;
            let conditions = node.status?.conditions.unwrap_or_default();
            conditions.iter().find(|c| c.type_ == "Ready" && c.status == "True").map(|_| ())
        })
        .await;
    }

    /// Starts the kubelet, for the first time or again.
    pub fn start_kubelet(&mut self) {
        let config = self.home.path().join("kubelet.yaml").display().to_string();
        let login = self.authority.file("kubelet.kubeconfig");
        self.spawn_component(
            "kubelet",
            &format!(
                "--config={config} --kubeconfig={login} --hostname-override={NODE} --node-ip={NODE_ADDRESS}"
            ),
        );
    }

    /// Starts the driver, for the first time or again, with the rights of its service account.
    pub fn start_driver(&mut self, more: &str) {
        let user = "system:serviceaccount:kube-system:snic-dra";
        let login = self.authority.login("driver", user, "system:serviceaccounts");
        let socket = format!("unix:{}", self.daemon_socket().display());
        let settings = self.home.path().join("dra.toml");
        // The page's, with the places of this test, and a second namespace.
        let page = page::block("dra.md", "# /etc/snic/dra.toml")
            .replace("/etc/snic/dra.kubeconfig", &login.display().to_string())
            .replace("[namespaces]\n", "[namespaces]\nbank = \"globex\"\n");
        assert!(
            page.contains(&format!("node = {NODE:?}")) && page.contains(&*login.to_string_lossy())
        );
        let text = format!(
            "program = {:?}\nstate_dir = {:?}\ninterval_seconds = 1\ncdi_dir = \"/run/cdi\"\n{more}\n{page}\
             [daemon]\nendpoint = {socket:?}\nidentity = \"orchestrator/kubernetes\"\n\
             [inventory]\nendpoint = {socket:?}\nidentity = \"operator/kubernetes\"\n",
            program("snic-dra"),
            self.home.path().join("dra"),
        );
        std::fs::write(&settings, text).expect("the folder takes files");
        let mut driver = Command::new(program("snic-dra"));
        driver.arg("--config").arg(settings);
        self.spawn("snic-dra", driver);
    }

    /// Starts the controller of DAGs, with the rights of its service account.
    #[allow(dead_code, reason = "the example starts it, which has this module, too")]
    pub fn start_dag_controller(&mut self) {
        let user = "system:serviceaccount:snic-system:snic-dag-controller";
        let login = self.authority.login("dag-controller", user, "system:serviceaccounts");
        let settings = self.home.path().join("dag-controller.toml");
        let text = format!(
            "kubeconfig = {login:?}\nlease_namespace = \"snic-system\"\n[namespaces]\nshop = \"acme\"\n\
             [server]\nendpoint = \"unix:{}\"\n",
            self.daemon_socket().display()
        );
        std::fs::write(&settings, text).expect("the folder takes files");
        let mut controller = Command::new(program("snic-dag-controller"));
        controller.arg("--config").arg(settings);
        self.spawn("snic-dag-controller", controller);
    }

    /// Runs `kubectl` with all rights, as [`kubectl_says`].
    ///
    /// # Errors
    /// It fails.
    pub fn kubectl(&self, words: &str) -> Result<String, String> {
        kubectl_says(Path::new(&self.authority.file("admin.kubeconfig")), words)
    }

    /// Loses the card: its process is killed, and cannot be started again.
    pub fn lose_card(&self) {
        let folder = self.home.card_folder();
        std::fs::rename(&folder, self.home.path().join("card-aside")).expect("it is there");
        std::fs::write(&folder, "").expect("a file in the place of the folder");
        let process = std::fs::read_to_string(self.home.path().join("card-aside/card.pid"));
        run("kill", &format!("-KILL {}", process.expect("it runs").trim()));
    }

    /// Lets a lost card start again.
    pub fn return_card(&self) {
        let folder = self.home.card_folder();
        std::fs::remove_file(&folder).expect("a file");
        std::fs::rename(self.home.path().join("card-aside"), folder).expect("it is free");
    }

    /// The process of the daemon.
    pub fn daemon_process(&self) -> u32 {
        self.daemon.id()
    }

    /// Sends a signal to a process of the cluster.
    pub fn signal(&self, process: u32, signal: &str) {
        run("kill", &format!("-{signal} {process}"));
    }

    /// The last lines that a part printed.
    pub fn log(&self, name: &str) -> String {
        let path = self.home.path().join("log").join(format!("{name}.log"));
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }
}

/// The pods' network besides their functions, from which they reach services and the node.
fn network(folder: &Path) -> String {
    let data = folder.join("addresses").display().to_string();
    format!(
        r#"{{"cniVersion": "1.0.0", "name": "pods", "plugins": [{{"type": "ptp", "ipam": {{
           "type": "host-local", "dataDir": {data:?}, "ranges": [[{{"subnet": "10.88.0.0/24"}}]],
           "routes": [{{"dst": "10.96.0.0/16"}}, {{"dst": "10.99.0.0/24"}}]}}}}]}}"#
    )
}

/// Settings of containerd.
fn runtime(folder: &Path) -> String {
    let path = |name: &str| folder.join(name).display().to_string();
    let (root, cni) = (path("containerd"), path("cni"));
    format!(
        "version = 2\nroot = {root:?}\nstate = \"/run/containerd/state\"\n\
         [grpc]\naddress = \"/run/containerd/containerd.sock\"\n\
         [plugins.\"io.containerd.grpc.v1.cri\"]\nrestrict_oom_score_adj = true\n\
         sandbox_image = {:?}\nenable_cdi = true\ncdi_spec_dirs = [\"/run/cdi\"]\n\
         [plugins.\"io.containerd.grpc.v1.cri\".cni]\nbin_dir = \"/usr/lib/cni\"\nconf_dir = {cni:?}\n\
         [plugins.\"io.containerd.grpc.v1.cri\".containerd]\nsnapshotter = \"overlayfs\"\n\
         [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\n\
         runtime_type = \"io.containerd.runc.v2\"\n",
        image::NAME
    )
}
