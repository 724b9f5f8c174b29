//! The part of a cluster that keeps objects: etcd and the API server, on free ports and in a folder, without nodes, and without
//! rights of this machine.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use k8s_openapi::api::core::v1::Namespace;
use kube::config::{KubeConfigOptions, Kubeconfig};
use snic_integration::free_address;

use super::certificates::Authority;
use super::version::{api_flags, kubernetes_program, without_claims};
use super::{cache, until};

/// Says what is missing for a control plane on this machine.
pub fn missing() -> Option<String> {
    let programs =
        [cache("SNIC_ETCD_FOLDER", "etcd").join("etcd"), kubernetes_program("kube-apiserver")];
    let absent = programs.into_iter().find(|program| !program.exists())?;
    let build = "`cargo xtask cluster --build` builds it once";
    Some(format!("{} is missing: {build}", absent.display()))
}

/// Says what is missing for a control plane with claims.
pub fn missing_for_claims() -> Option<String> {
    missing().or_else(|| without_claims(&["kube-apiserver"]))
}

/// A running control plane. All of it ends with this value.
pub struct ControlPlane {
    folder: tempfile::TempDir,
    authority: Authority,
    port: u16,
    processes: Vec<(String, Child)>,
    /// A client with all rights.
    pub client: kube::Client,
}

impl Drop for ControlPlane {
    /// The folder goes with it, so what a failed test is judged by is printed.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let names: Vec<String> = self.processes.iter().map(|(name, _)| name.clone()).collect();
            for name in names.iter().filter(|name| name.starts_with("snic")) {
                println!("{name}:\n{}", self.log(name));
            }
        }
        for (_, child) in &mut self.processes {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A client that logs in with a file.
pub async fn client(login: &Path) -> kube::Client {
    let kubeconfig = Kubeconfig::read_from(login).expect("written before");
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    kube::Client::try_from(config.expect("valid")).expect("a client")
}

impl ControlPlane {
    /// Starts one, and waits until it answers.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let authority = Authority::new(&folder.path().join("pki"));
        authority.certificate("server", "kube-apiserver", &[], &["127.0.0.1", "10.96.0.1"]);
        let port = free_address().port();
        let login = authority.login_at(port, "admin", ("admin", "system:masters"));
        let client = client(&login).await;
        let mut plane = Self { folder, authority, port, processes: Vec::new(), client };
        let store = plane.start_etcd();
        plane.start_api_server(&store);
        let client = plane.client.clone();
        until("the API server", || async { client.apiserver_version().await.ok() }).await;
        let namespaces: kube::Api<Namespace> = kube::Api::all(client);
        until("the namespace of the system", || async { namespaces.get("kube-system").await.ok() })
            .await;
        plane
    }

    fn start_etcd(&mut self) -> String {
        let [clients, peers] = [free_address(), free_address()].map(|at| format!("http://{at}"));
        let mut etcd = Command::new(cache("SNIC_ETCD_FOLDER", "etcd").join("etcd"));
        etcd.arg("--data-dir").arg(self.folder.path().join("etcd")).args([
            "--unsafe-no-fsync",
            &format!("--listen-client-urls={clients}"),
            &format!("--advertise-client-urls={clients}"),
            &format!("--listen-peer-urls={peers}"),
            &format!("--initial-advertise-peer-urls={peers}"),
            &format!("--initial-cluster=default={peers}"),
        ]);
        self.spawn("etcd", etcd);
        clients
    }

    fn start_api_server(&mut self, store: &str) {
        let pki = |name: &str| self.authority.file(name);
        let (ca, accounts, accounts_public) =
            (pki("ca.crt"), pki("accounts.key"), pki("accounts.pub"));
        let (certificate, key, port) = (pki("server.crt"), pki("server.key"), self.port);
        let mut server = Command::new(kubernetes_program("kube-apiserver"));
        let arguments = format!(
            "--etcd-servers={store} --client-ca-file={ca} --tls-cert-file={certificate} \
             --tls-private-key-file={key} --service-account-issuer=https://kubernetes.default.svc \
             --service-account-key-file={accounts_public} --service-account-signing-key-file={accounts} \
             --service-cluster-ip-range=10.96.0.0/16 --authorization-mode=Node,RBAC \
             --secure-port={port} --bind-address=127.0.0.1 --advertise-address=127.0.0.1 \
             --endpoint-reconciler-type=none {}",
            api_flags()
        );
        server.args(arguments.split_whitespace());
        self.spawn("kube-apiserver", server);
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes the file with which a program logs in as a service account.
    pub fn login(&self, namespace: &str, account: &str) -> PathBuf {
        let user = format!("system:serviceaccount:{namespace}:{account}");
        self.authority.login_at(self.port, account, (&user, "system:serviceaccounts"))
    }

    /// Starts a program, with what it prints in a file of this name.
    pub fn spawn(&mut self, name: &str, mut command: Command) {
        let path = self.log_file(name);
        let log = File::options().create(true).append(true).open(path).expect("a file");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log);
        let child = command.spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
        self.processes.push((name.to_owned(), child));
    }

    /// `kill -9` of a program, and its end.
    pub fn kill(&mut self, name: &str) {
        let at = self.processes.iter().position(|(known, _)| known == name).expect("it runs");
        let (_, mut child) = self.processes.remove(at);
        child.kill().expect("it runs");
        child.wait().expect("it was a child");
    }

    fn log_file(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }

    /// The last lines that a program printed.
    pub fn log(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.log_file(name)).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }
}
