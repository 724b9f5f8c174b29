//! etcd processes that end with their test.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use snic_etcd::{Answer, Failed, Operation, Record, Request, Revision, Transaction};
use snic_store_etcd::{EtcdConnection, EtcdSettings, TlsFiles};

/// Longest time of something that usually takes a second.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Members of one cluster on this machine. They are killed when it is dropped, also by a panic.
pub struct Cluster {
    members: Vec<Process>,
    /// Options of each member.
    options: Vec<String>,
    tls: Option<TlsFiles>,
    folder: tempfile::TempDir,
}

/// Where a member runs.
pub struct Seat {
    pub name: String,
    pub address: String,
    /// First words of its command, such as a program that enters a namespace.
    pub enter: Vec<String>,
}

struct Process {
    seat: Seat,
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
    fn client_url(&self, scheme: &str) -> String {
        format!("{scheme}://{}:{}", self.seat.address, self.client)
    }

    fn peer_url(&self) -> String {
        format!("http://{}:{}", self.seat.address, self.peer)
    }

    /// SIGKILL, also if it is stopped.
    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Programs that are of one version: what one saves another may not restore.
const TOGETHER: [&str; 3] = ["etcd", "etcdctl", "etcdutl"];

/// A program of etcd, such as `etcdctl`: in the folder that `SNIC_ETCD_FOLDER` names, in `snic/etcd` of the user's cache,
/// where a newer etcd than the distribution's can be put, or on the search path where the folder does not have all of them.
pub fn program(name: &str) -> PathBuf {
    let of_home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(of_home);
    let cached = cache.map(|cache| cache.join("snic/etcd"));
    let folder = std::env::var_os("SNIC_ETCD_FOLDER").map(PathBuf::from).or(cached);
    let has_all = |folder: &PathBuf| TOGETHER.iter().all(|of| folder.join(of).is_file());
    folder.filter(has_all).map_or_else(|| name.into(), |folder| folder.join(name))
}

/// Whether there is etcd; says so if not.
pub fn is_here() -> bool {
    let mut command = Command::new(program("etcd"));
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let is_here = command.status().is_ok_and(|status| status.success());
    if !is_here {
        println!("not run: etcd is missing");
    }
    is_here
}

/// So many ports that nobody uses now, none of those that the kernel gives to connections: what is stopped and started
/// again at its address would now and then find it taken by one.
pub fn free_ports(count: usize) -> Vec<u16> {
    /// The kernel's begin at 32768.
    const FIRST: u32 = 10_000;
    /// Ports for each process, so that those of tests that run side by side differ.
    const OF_PROCESS: u32 = 500;
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let first = FIRST + std::process::id() % 44 * OF_PROCESS;
    let candidates = (0..OF_PROCESS).map(|_| {
        let next = ASKED.fetch_add(1, Ordering::Relaxed) % OF_PROCESS;
        u16::try_from(first + next).unwrap()
    });
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let ports: Vec<u16> = candidates.filter(is_free).take(count).collect();
    assert_eq!(ports.len(), count, "too few free ports from {first} on");
    ports
}

impl Cluster {
    /// Starts so many members, and waits until they answer; `None` if there is no etcd.
    pub fn start(count: usize) -> Option<Self> {
        Self::start_with(local(count), Vec::new(), None)
    }

    /// Starts a member at each seat.
    pub fn start_at(seats: Vec<Seat>) -> Option<Self> {
        Self::start_with(seats, Vec::new(), None)
    }

    /// Starts one member with options of its own, such as a small quota.
    pub fn start_with_options(options: &[&str]) -> Option<Self> {
        let options = options.iter().map(ToString::to_string).collect();
        Self::start_with(local(1), options, None)
    }

    /// Starts a member with options for TLS; the certificates are a client's.
    pub fn start_with_tls((options, client): (Vec<String>, TlsFiles)) -> Option<Self> {
        Self::start_with(local(1), options, Some(client))
    }

    fn start_with(
        seats: Vec<Seat>,
        mut options: Vec<String>,
        tls: Option<TlsFiles>,
    ) -> Option<Self> {
        if !is_here() {
            return None;
        }
        let count = seats.len();
        let ports = free_ports(2 * count);
        let members: Vec<Process> = seats
            .into_iter()
            .zip(ports.chunks(2))
            .map(|(seat, ports)| Process { seat, client: ports[0], peer: ports[1], child: None })
            .collect();
        let named = |member: &Process| format!("{}={}", member.seat.name, member.peer_url());
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
        let url = |member: &Process| member.client_url(self.scheme());
        self.members.iter().map(url).collect()
    }

    const fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// A connection to all members.
    pub async fn connect(&self) -> EtcdConnection {
        EtcdConnection::new(EtcdSettings::plain(self.urls())).await.unwrap()
    }

    pub fn kill(&mut self, member: usize) {
        self.members[member].kill();
    }

    /// Starts a member again after it was killed, with what it has on disk.
    pub fn restart(&mut self, member: usize) {
        let scheme = self.scheme();
        start(&mut self.members[member], scheme, &self.options, self.folder.path());
    }

    /// The process of a member that runs.
    pub fn process(&self, member: usize) -> Option<u32> {
        self.members[member].child.as_ref().map(Child::id)
    }

    /// Sends a signal to a member, such as `STOP`.
    pub fn signal(&self, member: usize, signal: &str) {
        let pid = self.process(member).unwrap().to_string();
        assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
    }

    /// Output of `etcdctl` with all members as endpoints.
    ///
    /// # Errors
    /// The error is what it prints where it fails.
    pub fn control(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = Command::new(program("etcdctl"));
        command.args(["--endpoints", &self.urls().join(","), "--command-timeout", "20s"]);
        command.env("ETCDCTL_API", "3");
        let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    }

    /// Writes to etcd until it has no room left: what it says then.
    pub async fn fill(&self) -> Failed {
        let connection = self.connect().await;
        for number in 0..10_000 {
            let value = "x".repeat(200_000);
            if let Err(failed) =
                connection.ask(&commit(vec![put(&format!("fill/{number}"), &value)])).await
            {
                return failed;
            }
        }
        panic!("it has room for 2 GB");
    }

    /// Gives etcd room again, as its documentation says: compacts, defragments, disarms.
    pub async fn make_room(&self) {
        self.control(&["del", "--prefix", "fill/"]).unwrap();
        let connection = self.connect().await;
        let Ok(Answer::Range { now, .. }) = connection.ask(&get("none")).await else {
            panic!("reads go on")
        };
        connection.ask(&Request::Compact(now)).await.unwrap();
        self.control(&["defrag"]).unwrap();
        self.control(&["alarm", "disarm"]).unwrap();
    }

    /// Saves what a member has.
    pub fn back_up(&self, member: usize, file: &Path) {
        let mut command = Command::new(program("etcdctl"));
        command.env("ETCDCTL_API", "3").args(["--endpoints", &self.urls()[member]]);
        command.args(["snapshot", "save"]).arg(file).stdin(Stdio::null());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// All members are lost, with their disks. Others take their places, with what was saved.
    pub async fn restore(&mut self, file: &Path) {
        for member in 0..self.members.len() {
            self.lose(member);
        }
        for member in &self.members {
            // Since 3.6 a program of its own restores.
            let of_its_own = program("etcdutl");
            let own = if of_its_own.is_absolute() { of_its_own } else { program("etcdctl") };
            let mut command = Command::new(own);
            command.env("ETCDCTL_API", "3").args(["snapshot", "restore"]).arg(file);
            command.args(["--name", &member.seat.name, "--data-dir"]);
            command.arg(self.folder.path().join(&member.seat.name)).args(&self.options);
            command.args(["--initial-cluster-token", "restored-1"]);
            command.args(["--initial-advertise-peer-urls", &member.peer_url()]);
            let output = command.stdin(Stdio::null()).output().unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        (0..self.members.len()).for_each(|member| self.restart(member));
        self.wait().await;
    }

    /// A member and its disk are lost.
    pub fn lose(&mut self, member: usize) {
        self.kill(member);
        let name = &self.members[member].seat.name;
        std::fs::remove_dir_all(self.folder.path().join(name)).unwrap();
    }

    /// Another member with the name of one that was lost takes its place. It can be tried again.
    ///
    /// # Errors
    /// Replaces a member; the error is what `etcdctl` says where the others have no quorum.
    pub fn replace(&mut self, member: usize) -> Result<(), String> {
        let (name, peer) =
            (self.members[member].seat.name.clone(), self.members[member].peer_url());
        let listed = self.control(&["member", "list"])?;
        let known = listed.lines().find(|line| line.contains(&peer));
        // One that was added and has not started has no name yet.
        let is_added = known.is_some_and(|line| !line.contains(&format!(" {name},")));
        if let Some(id) = known.and_then(|line| line.split(',').next()).filter(|_| !is_added) {
            self.control(&["member", "remove", id])?;
        }
        if !is_added {
            self.control(&["member", "add", &name, "--peer-urls", &peer])?;
        }
        let mut options = self.options.clone();
        options.extend(["--initial-cluster-state".to_owned(), "existing".to_owned()]);
        let scheme = self.scheme();
        start(&mut self.members[member], scheme, &options, self.folder.path());
        Ok(())
    }
}

/// Seats on the loopback.
fn local(count: usize) -> Vec<Seat> {
    let seat = |number| Seat {
        name: format!("m{number}"),
        address: "127.0.0.1".to_owned(),
        enter: Vec::new(),
    };
    (0..count).map(seat).collect()
}

fn start(member: &mut Process, scheme: &str, options: &[String], folder: &Path) {
    let (client, peer) = (member.client_url(scheme), member.peer_url());
    let mut words = member.seat.enter.iter().map(PathBuf::from).chain([program("etcd")]);
    let child = Command::new(words.next().unwrap())
        .env_clear()
        .args(words)
        .arg("--data-dir")
        .arg(folder.join(&member.seat.name))
        .args(["--name", &member.seat.name])
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

/// Result that a test waits for, or its failure. A whole story has more time than each of its steps.
pub async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(3 * PATIENCE, what).await.expect("it does not happen")
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

/// Records whose keys begin with a prefix, now.
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
