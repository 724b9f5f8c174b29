//! A daemon in a separate process, and its folder.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use snic_domain::{Bandwidth, DagName, DagSpec};

use crate::TestClient;

/// Longest time for a daemon to start or to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where a program of the workspace is: beside the tests that are running.
///
/// # Panics
/// Where it was not built.
pub fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the running test has a path");
    let folder = test.parent().and_then(Path::parent).expect("tests are in target/<profile>/deps");
    let program = folder.join(name);
    assert!(
        program.exists(),
        "{} is not there; run `cargo test --workspace`, which builds it",
        program.display()
    );
    program
}

/// The folder of a daemon: settings, store, socket.
pub struct Home {
    folder: tempfile::TempDir,
    /// First words of its commands, such as a program that enters a namespace.
    enter: Vec<String>,
}

impl Default for Home {
    fn default() -> Self {
        Self::new()
    }
}

impl Home {
    /// A new one, with settings for a simulated card and a unix socket in plain text.
    pub fn new() -> Self {
        Self::entered_by(Vec::new())
    }

    /// The same for a daemon whose command begins with these words, such as those of a program that enters a namespace.
    pub fn entered_by(enter: Vec<String>) -> Self {
        let home = Self { folder: tempfile::tempdir().expect("a temporary folder"), enter };
        home.write_settings("");
        home
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The settings file.
    pub fn settings(&self) -> PathBuf {
        self.path().join("snicd.toml")
    }

    pub fn socket(&self) -> PathBuf {
        self.path().join("snicd.sock")
    }

    /// Writes the settings, with more behind them.
    pub fn write_settings(&self, more: &str) {
        self.write_settings_for("sim", more);
    }

    /// Writes the settings for a software card with these ports, as in the table `cards.soft`.
    pub fn write_soft_settings(&self, ports: &str) {
        self.write_settings_for("soft", &format!("[cards.soft]\n{ports}\n"));
    }

    /// The folder of the software card.
    pub fn card_folder(&self) -> PathBuf {
        self.path().join("store/cards/card0")
    }

    /// The process id of the software card, if there is one.
    pub fn card_pid(&self) -> Option<u32> {
        let text = std::fs::read_to_string(self.card_folder().join("card.pid")).ok()?;
        text.trim().parse().ok()
    }

    /// `kill -9` of the software card: a power loss.
    pub fn kill_card(&self) {
        let pid = self.card_pid().and_then(|pid| rustix::process::Pid::from_raw(pid.cast_signed()));
        if let Some(pid) = pid {
            // It may have ended already.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }

    fn write_settings_for(&self, driver: &str, more: &str) {
        let (store, socket) = (self.path().join("store"), self.socket());
        let user = rustix::process::geteuid().as_raw();
        let text = format!(
            "data_dir = {store:?}\n\
             [listen]\nunix = {socket:?}\n\
             [[listen.unix_peers]]\nuser = {user}\n\
             identities = [\"operator/*\", \"tenant/*\", \"orchestrator/*\"]\n\
             [log]\nfilter = \"info\"\n\
             [[cards]]\nid = \"card0\"\ndriver = {driver:?}\nmodel = \"sim-16\"\n\
             functions = {{ physical_function = \"0000:3b:00.0\", count = 8, first_offset = 1, \
             stride = 1 }}\n{more}\n\
             [signatures]\nallow_unsigned = true\n"
        );
        std::fs::write(self.settings(), text).expect("the folder takes files");
    }

    /// `snicd run` with these settings, not started.
    pub fn command(&self) -> Command {
        let mut words = self.enter.iter().map(Into::into).chain([program("snicd")]);
        let mut command = Command::new(words.next().expect("the program at least"));
        command.args(words);
        command.arg("run").arg("--config").arg(self.settings());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs the daemon until it ends by itself; returns its status and its standard error.
    pub fn run_to_end(&self) -> (ExitStatus, String) {
        let output = self.command().output().expect("snicd starts");
        (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Starts the daemon, and waits until it serves.
    pub async fn start(&self) -> DaemonProcess {
        // The socket of a daemon that was killed is still there.
        let _ = std::fs::remove_file(self.socket());
        let mut child = self.command().spawn().expect("snicd starts");
        let stderr = child.stderr.take().expect("it is piped");
        let log = std::thread::spawn(move || {
            BufReader::new(stderr).lines().map_while(Result::ok).collect::<Vec<_>>().join("\n")
        });
        let mut daemon = DaemonProcess { child: Some(child), log: Some(log) };
        let until = Instant::now() + PATIENCE;
        while TestClient::connect(&self.socket(), "operator/test").await.is_none() {
            daemon.assert_runs();
            assert!(Instant::now() < until, "snicd does not serve after {PATIENCE:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        daemon
    }
}

impl Drop for Home {
    /// A software card outlives its daemon, and would outlive the test.
    fn drop(&mut self) {
        self.kill_card();
    }
}

/// A running daemon; killed when dropped.
pub struct DaemonProcess {
    child: Option<Child>,
    log: Option<std::thread::JoinHandle<String>>,
}

impl DaemonProcess {
    fn assert_runs(&mut self) {
        let ended = self.child.as_mut().and_then(|child| child.try_wait().expect("a child"));
        if let Some(status) = ended {
            let log = self.log.take().and_then(|log| log.join().ok()).unwrap_or_default();
            panic!("snicd ended with {status}:\n{log}");
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.as_ref().expect("it is taken only by kill and stop").id()
    }

    /// `kill -9`, now.
    pub fn kill(mut self) -> String {
        let mut child = self.child.take().expect("it is taken only here and in stop");
        child.kill().expect("it runs");
        child.wait().expect("it was a child");
        self.log.take().and_then(|log| log.join().ok()).unwrap_or_default()
    }

    /// Asks it to stop, and waits until it has.
    pub fn stop(mut self) -> (ExitStatus, String) {
        let mut child = self.child.take().expect("it is taken only here and in kill");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
        let status = child.wait().expect("it was a child");
        let mut out = String::new();
        if let Some(mut stdout) = child.stdout.take() {
            stdout.read_to_string(&mut out).expect("text");
        }
        (status, self.log.take().and_then(|log| log.join().ok()).unwrap_or_default())
    }
}

impl Drop for DaemonProcess {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// An operator's client of a daemon that has the catalogue, tenant `acme`, and these DAGs of it,
/// which may not be ready yet.
///
/// # Panics
/// The daemon rejects a request.
pub async fn furnished(home: &Home, dags: &[&str]) -> TestClient {
    let client = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
    let catalogue = snic_bitstream::catalogue::builtin().expect("the built-in catalogue");
    client.register(&catalogue).await;
    client.create_tenant("acme").await.expect("a tenant");
    let spec = DagSpec::chain(&["nat".parse().expect("an NT type")], Bandwidth::from_gbps(1));
    for dag in dags {
        let (tenant, dag) = ("acme".parse().expect("a label"), dag.parse().expect("a label"));
        client.create_dag(&DagName { tenant, dag }, &spec).await.expect("there is room");
    }
    client
}
