//! etcd processes that end with their test.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use snic_etcd::{Answer, Failed, Operation, Record, Request, Revision, Transaction};
use snic_store_etcd::{EtcdConnection, EtcdSettings, TlsFiles};

/// How long something may take that usually takes a second.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Members of one cluster on this machine. They are killed when it is dropped, also by a panic.
pub struct Cluster {
    members: Vec<Process>,
    /// Options of each member.
    options: Vec<String>,
    tls: Option<TlsFiles>,
    folder: tempfile::TempDir,
}

struct Process {
    name: String,
    client: u16,
    peer: u16,
    child: Option<Child>,
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Process {
    /// SIGKILL, also if it is stopped.
    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether there is etcd; says so if not.
pub fn is_here() -> bool {
    let mut command = Command::new("etcd");
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let is_here = command.status().is_ok_and(|status| status.success());
    if !is_here {
        println!("not run: etcd is missing");
    }
    is_here
}

/// So many ports that nobody uses now.
fn free_ports(count: usize) -> Vec<u16> {
    let listeners: Vec<_> =
        (0..count).map(|_| TcpListener::bind(("127.0.0.1", 0)).unwrap()).collect();
    listeners.iter().map(|listener| listener.local_addr().unwrap().port()).collect()
}

impl Cluster {
    /// Starts so many members, and waits until they answer; `None` if there is no etcd.
    pub fn start(count: usize) -> Option<Self> {
        Self::start_with(count, Vec::new(), None)
    }

    /// Starts a member with options for TLS; the certificates are a client's.
    pub fn start_with_tls((options, client): (Vec<String>, TlsFiles)) -> Option<Self> {
        Self::start_with(1, options, Some(client))
    }

    fn start_with(count: usize, mut options: Vec<String>, tls: Option<TlsFiles>) -> Option<Self> {
        if !is_here() {
            return None;
        }
        let ports = free_ports(2 * count);
        let members: Vec<Process> = (0..count)
            .map(|i| {
                let (client, peer) = (ports[2 * i], ports[2 * i + 1]);
                Process { name: format!("m{i}"), client, peer, child: None }
            })
            .collect();
        let named = |member: &Process| format!("{}=http://127.0.0.1:{}", member.name, member.peer);
        let initial = members.iter().map(named).collect::<Vec<_>>().join(",");
        options.extend(["--initial-cluster".to_owned(), initial]);
        let folder = tempfile::tempdir().unwrap();
        let mut cluster = Self { members, options, tls, folder };
        (0..count).for_each(|member| cluster.restart(member));
        runtime().block_on(cluster.wait());
        Some(cluster)
    }

    /// Waits until each member answers reads, which takes a leader.
    async fn wait(&self) {
        for url in self.urls() {
            let settings = EtcdSettings { tls: self.tls.clone(), ..EtcdSettings::plain(vec![url]) };
            let connection = EtcdConnection::new(settings).await.unwrap();
            let read = get("ready");
            eventually(async || connection.ask(&read).await.is_ok()).await;
        }
    }

    pub fn urls(&self) -> Vec<String> {
        let url = |member: &Process| format!("{}://127.0.0.1:{}", self.scheme(), member.client);
        self.members.iter().map(url).collect()
    }

    const fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// A connection to all members.
    pub async fn connect(&self) -> EtcdConnection {
        EtcdConnection::new(EtcdSettings::plain(self.urls())).await.unwrap()
    }

    /// SIGKILL.
    pub fn kill(&mut self, member: usize) {
        self.members[member].kill();
    }

    /// Starts a member again after it was killed, with what it has on disk.
    pub fn restart(&mut self, member: usize) {
        let scheme = self.scheme();
        start(&mut self.members[member], scheme, &self.options, self.folder.path());
    }

    /// Sends a signal to a member, such as `STOP`.
    pub fn signal(&self, member: usize, signal: &str) {
        let pid = self.members[member].child.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }
}

fn start(member: &mut Process, scheme: &str, options: &[String], folder: &Path) {
    let client = format!("{scheme}://127.0.0.1:{}", member.client);
    let peer = format!("http://127.0.0.1:{}", member.peer);
    let child = Command::new("etcd")
        .env_clear()
        .arg("--data-dir")
        .arg(folder.join(&member.name))
        .args(["--name", &member.name])
        .args(options)
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
        .args(["--experimental-watch-progress-notify-interval", "1s", "--log-level", "error"])
        .args(["--logger", "zap"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    member.child = Some(child.unwrap());
}

/// Waits until something holds.
pub async fn eventually(holds: impl AsyncFn() -> bool) {
    let begin = Instant::now();
    while !holds().await {
        assert!(begin.elapsed() < PATIENCE, "it does not happen");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What a test waits for, or its failure.
pub async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, what).await.expect("it does not happen")
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

pub fn put(key: &str, value: &str) -> Operation {
    Operation::Put { key: key.to_owned(), value: value.into(), lease: None }
}

pub fn commit(operations: Vec<Operation>) -> Request {
    Request::Commit(Transaction { compares: Vec::new(), operations })
}

/// Reads what begins with a key.
pub fn get(prefix: &str) -> Request {
    Request::Range { prefix: prefix.to_owned(), at: None, from: None, limit: 10_000 }
}

/// What begins with a key now.
pub async fn read(connection: &EtcdConnection, prefix: &str) -> Result<Vec<Record>, Failed> {
    match connection.ask(&get(prefix)).await? {
        Answer::Range { records, .. } => Ok(records),
        other => panic!("{other:?}"),
    }
}

/// The revision of a transaction that was carried out.
pub fn revision_of(answer: &Answer) -> Revision {
    match answer {
        Answer::Committed(revision) => *revision,
        other => panic!("{other:?}"),
    }
}
