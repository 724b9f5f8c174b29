//! A daemon with a software card, tenants with modules, and hosts at the card's ports.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use ring::signature::Ed25519KeyPair;
use serde_json::Value;
use snic_api::v1;
use snic_api::v1::dag::State;
use snic_card_soft::{CardFolder, Observation, SoftCard, SoftCardSettings};
use snic_domain::{Bandwidth, CardModel, DagName, DagSpec, NtConfiguration};
use snic_integration::keys::{key_pair, pem};
use snic_integration::{DaemonProcess, Home, TestClient, program};

const PATIENCE: Duration = Duration::from_secs(60);
/// Longest time of a frame through the card.
const FRAME_PATIENCE: Duration = Duration::from_secs(2);

/// Says what of the compilers is missing. In CI that is a failure.
pub fn missing() -> bool {
    let runs = |command: &mut Command| {
        let output = command.stdin(Stdio::null()).output();
        output.is_ok_and(|output| output.status.success())
    };
    let folder = tempfile::tempdir().expect("a folder");
    let probe = folder.path().join("probe.rs");
    std::fs::write(&probe, "#![no_std]").expect("a file");
    let rust = Command::new("rustc")
        .args(["--target", "wasm32-unknown-unknown", "--crate-type", "rlib", "-o"])
        .arg(folder.path().join("probe.rlib"))
        .arg(&probe)
        .output()
        .is_ok_and(|output| output.status.success());
    let c = runs(Command::new("clang").arg("--version"))
        && runs(Command::new("wasm-ld").arg("--version"));
    if rust && c {
        return false;
    }
    let what = if rust {
        "clang and lld: sudo apt-get install clang lld"
    } else {
        "Rust for WebAssembly: rustup target add wasm32-unknown-unknown"
    };
    assert!(std::env::var_os("CI").is_none(), "missing: {what}");
    eprintln!("SKIPPED: missing: {what}");
    true
}

/// The folder of the examples.
fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../wasm")
}

pub fn source(name: &str) -> String {
    std::fs::read_to_string(examples().join(name)).expect("an example")
}

fn run(command: &mut Command) {
    let output = command.output().expect("a compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A module in C, compiled as its header says.
pub fn compile_c(source: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let [from, to] = ["task.c", "task.wasm"].map(|name| folder.path().join(name));
    std::fs::write(&from, source).expect("a file");
    run(Command::new("clang")
        .args([
            "--target=wasm32",
            "-O2",
            "-nostdlib",
            "-fno-builtin",
            "-Wall",
            "-Wextra",
            "-Werror",
        ])
        .args(["-Wl,--no-entry", "-Wl,-z,stack-size=16384", "-I"])
        .arg(examples().join("../../crates/cards/nts-wasm/include"))
        .arg("-o")
        .args([&to, &from]));
    std::fs::read(to).expect("a module")
}

pub fn marker() -> Vec<u8> {
    compile_c(&source("c/marker.c"))
}

/// The UDP port of packets that have [`evil`] loop.
pub const LOOPS: u16 = 10;
/// The UDP port of packets that it works on for as long as it may.
pub const WORKS: u16 = 9;

/// A module that loops or works long by a packet's port. Else by its hop limit it loops, traps, or forwards.
pub fn evil() -> Vec<u8> {
    compile_c(
        "#include \"snic_nt.h\"\nSNIC_NETWORK_TASK\n\
         SNIC_EXPORT(\"snic_process\") uint64_t snic_process(uint32_t length) {\n\
           uint8_t *frame = snic_the_buffer + SNIC_HEADROOM;\n\
           if (frame[37] == 9)\n\
             for (int at = 0; at < 8000; at++) __asm__ volatile(\"\");\n\
           else if (frame[37] == 10 || frame[22] == 1)\n\
             for (;;) __asm__ volatile(\"\");\n\
           else if (frame[22] == 2)\n\
             __builtin_trap();\n\
           return snic_forward(SNIC_HEADROOM, length);\n\
         }\n",
    )
}

pub fn syn_limit() -> Vec<u8> {
    compile_rust(&source("rust/src/lib.rs"))
}

/// A module in Rust, compiled as its first lines say.
pub fn compile_rust(source: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let [from, to] = ["task.rs", "task.wasm"].map(|name| folder.path().join(name));
    std::fs::write(&from, source).expect("a file");
    run(Command::new("rustc")
        .args(["--edition", "2024", "--crate-type", "cdylib", "--crate-name", "syn_limit"])
        .args(["--target", "wasm32-unknown-unknown", "-C", "opt-level=2", "-C", "panic=abort"])
        .args(["-C", "link-arg=-zstack-size=16384", "-C", "strip=symbols", "-o"])
        .arg(&to)
        .arg(&from));
    std::fs::read(to).expect("a module")
}

/// Output of `snic-card check` about a module.
pub fn check(module: &[u8]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("module.wasm");
    std::fs::write(&file, module).expect("a file");
    said(&Command::new(program("snic-card")).arg("check").arg(&file).output().expect("it starts"))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// UDP over IPv4 with hop limit 64, to a station that nobody has: it leaves by the uplink.
pub fn plain() -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0x66, 0xbd, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([3, 0xe8, 7, 0xd0, 0, 26, 0, 0]);
    frame.extend(0..18);
    frame
}

/// This frame from the station of a function's host.
pub fn as_sent_by(function: usize, frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[11] = 1 + function as u8;
    frame
}

/// TCP over IPv4 that opens a connection.
pub fn syn() -> Vec<u8> {
    let mut frame = plain();
    frame[23] = 6;
    frame[34..54]
        .copy_from_slice(&[3, 0xe8, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 1, 0, 0, 0, 0, 0]);
    frame
}

/// The card of a test.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Card {
    /// The program `snic-card`.
    WithModules,
    /// `snicd` itself.
    OfDaemon,
}

pub struct Site {
    pub home: Home,
    daemon: Option<DaemonProcess>,
    client: Option<TestClient>,
    key: Ed25519KeyPair,
    signs: Option<String>,
}

/// A host at each port: that of function 0, that of function 1, and the network.
pub struct Hosts {
    ports: [UnixStream; 3],
}

impl Hosts {
    /// Sends a frame from the host of a function, and gives what comes to the network.
    ///
    /// The card refuses a function the station of another, so the frame is sent [`as_sent_by`] this one.
    pub fn through(&mut self, function: usize, frame: &[u8]) -> Option<Vec<u8>> {
        let frame = as_sent_by(function, frame);
        let length = (frame.len() as u32).to_be_bytes();
        self.ports[function].write_all(&[&length[..], &frame].concat()).expect("it is taken");
        let network = &mut self.ports[2];
        let mut length = [0; 4];
        network.read_exact(&mut length).ok()?;
        let mut frame = vec![0; u32::from_be_bytes(length) as usize];
        network.read_exact(&mut frame).expect("all of a frame");
        Some(frame)
    }

    /// Sends it again until one comes.
    pub fn until_through(&mut self, function: usize, frame: &[u8]) -> Vec<u8> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(received) = self.through(function, frame) {
                return received;
            }
            assert!(Instant::now() < until, "nothing comes through");
        }
    }
}

fn name(tenant: &str, dag: &str) -> DagName {
    DagName { tenant: tenant.parse().expect("a label"), dag: dag.parse().expect("a label") }
}

fn spec(nt: &str, told: Option<Value>) -> DagSpec {
    let mut spec = DagSpec::chain(&[nt.parse().expect("an NT type")], Bandwidth::from_mbps(100));
    spec.nodes[0].configuration = told.map(|told| NtConfiguration::new(&told.to_string()));
    spec
}

impl Site {
    pub async fn new(card: Card) -> Self {
        let home = Home::new();
        let [uplink, first, second] = Self::ports(&home);
        let mut ports = format!("uplink = {uplink:?}\nfunctions = [{first:?}, {second:?}]\n");
        if card == Card::WithModules {
            ports += &format!("program = {:?}\n", program("snic-card"));
        }
        home.write_soft_settings(&ports);
        let key = key_pair(7);
        Self { home, daemon: None, client: None, key, signs: None }
    }

    fn ports(home: &Home) -> [String; 3] {
        ["up.sock", "a.sock", "b.sock"]
            .map(|name| format!("unix:{}", home.path().join(name).display()))
    }

    /// This tenant signs its bitstreams from now on.
    pub fn trust(&mut self, tenant: &str) {
        let file = self.home.path().join("acme-2026.pem");
        std::fs::write(&file, pem(&self.key)).expect("a file");
        let mut text = std::fs::read_to_string(self.home.settings()).expect("settings");
        text += &format!("[signatures.tenants]\n{tenant} = [{file:?}]\n");
        std::fs::write(self.home.settings(), text).expect("settings");
        self.signs = Some(tenant.to_owned());
    }

    pub async fn start(&mut self) {
        self.daemon = Some(self.home.start().await);
        let socket = self.home.socket();
        self.client = TestClient::connect(&socket, "operator/test").await;
    }

    pub fn client(&self) -> &TestClient {
        self.client.as_ref().expect("it serves")
    }

    pub fn kill_daemon(&mut self) {
        self.daemon.take().expect("it runs").kill();
    }

    pub fn stop(mut self) {
        let log = self.daemon.take().expect("it runs").kill();
        assert!(!log.contains("panicked"), "{log}");
    }

    fn command(&self, tenant: &str, words: &[&str]) -> Command {
        self.command_as(&format!("tenant/{tenant}"), &format!("of-{tenant}"), words)
    }

    fn command_as(&self, identity: &str, file: &str, words: &[&str]) -> Command {
        let contexts = self.home.path().join(format!("{file}.toml"));
        let new = |words: &[&str]| {
            let mut command = Command::new(program("snicctl"));
            command.env("SNICCTL_CONFIG", &contexts).args(words).current_dir(self.home.path());
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command
        };
        if !contexts.exists() {
            let endpoint = format!("unix:{}", self.home.socket().display());
            run(&mut new(&[
                "context",
                "set",
                "it",
                "--endpoint",
                &endpoint,
                "--identity",
                identity,
            ]));
            run(&mut new(&["context", "use", "it"]));
        }
        new(words)
    }

    /// `snicctl` of a tenant; what it prints.
    pub fn snicctl(&self, tenant: &str, words: &[&str]) -> String {
        let output = self.command(tenant, words).output().expect("it starts");
        assert!(output.status.success(), "{words:?}: {}", said(&output));
        said(&output)
    }

    fn build(&self, tenant: &str, nt: &str, module: &[u8]) -> Output {
        std::fs::write(self.home.path().join(format!("{nt}.wasm")), module).expect("a file");
        let id = format!("{tenant}.{nt}");
        let module = format!("{id}={nt}.wasm");
        let (image, manifest) = (format!("{nt}.bit"), format!("{nt}.toml"));
        // A build overwrites nothing.
        let _ = std::fs::remove_file(self.home.path().join(&image));
        let _ = std::fs::remove_file(self.home.path().join(&manifest));
        let build = ["bitstream", "build", &image, "--model", "sim-16", "--nts", &id];
        let with = ["--module", &module, "--manifest", &manifest];
        self.command(tenant, &[&build[..], &with].concat()).output().expect("it starts")
    }

    /// Registers an NT type of a tenant, and uploads a bitstream with its module.
    pub fn bitstream(&self, tenant: &str, nt: &str, module: &[u8]) {
        let id = format!("{tenant}.{nt}");
        let create = ["nt", "create", &id, "--bandwidth-max", "1Gbps", "--latency-cycles", "50"];
        self.snicctl(tenant, &[&create[..], &["--lut", "1000", "--traffic", "payload"]].concat());
        self.upload(tenant, nt, &id, module);
    }

    /// Uploads a bitstream under this id, whose module is of an NT type that is registered.
    fn upload(&self, tenant: &str, nt: &str, id: &str, module: &[u8]) {
        let built = self.build(tenant, nt, module);
        assert!(built.status.success(), "{}", said(&built));
        let (image, manifest) = (format!("{nt}.bit"), format!("{nt}.toml"));
        let mut upload = vec!["bitstream", "upload", id, "--file", &image, "--manifest", &manifest];
        if self.signs.as_deref() == Some(tenant) {
            let statement = self.snicctl(
                tenant,
                &["bitstream", "statement", "--file", &image, "--manifest", &manifest],
            );
            let signature = self.key.sign(statement.as_bytes());
            std::fs::write(self.home.path().join("image.sig"), signature).expect("a file");
            upload.extend(["--signature", "image.sig"]);
        }
        self.snicctl(tenant, &upload);
    }

    /// Uploads another module for an NT type, and deletes the bitstream `old`: its DAGs move to the new one.
    pub fn replace(&self, tenant: &str, nt: &str, (old, new): (&str, &str), module: &[u8]) {
        let id = |name: &str| format!("{tenant}.{name}");
        self.upload(tenant, nt, &id(new), module);
        self.operator(&["bitstream", "delete", &id(old), "--wait"]);
    }

    fn operator(&self, words: &[&str]) {
        let mut command = self.command_as("operator/test", "operator", words);
        let output = command.output().expect("it starts");
        assert!(output.status.success(), "{words:?}: {}", said(&output));
    }

    /// Drains the region of a tenant's DAG `web`.
    pub async fn drain(&self, tenant: &str) {
        let dag = name(tenant, "web");
        let region = self.client().region_of(&dag).await;
        self.client().drain(&region).await;
        self.ready().await;
        assert_ne!(self.client().region_of(&dag).await, region, "it was drained");
        // A card has two regions for tenants' NTs.
        let request = v1::UndrainRegionRequest { name: region, ..Default::default() };
        self.client().cards().undrain_region(request).await.expect("it was drained");
    }

    /// Why no bitstream can be built from a module.
    pub fn build_fails(&self, tenant: &str, nt: &str, module: &[u8]) -> String {
        let built = self.build(tenant, nt, module);
        assert!(!built.status.success(), "{}", said(&built));
        said(&built)
    }

    /// Creates a tenant's DAG `web` of one NT.
    pub async fn create(&self, tenant: &str, nt: &str, told: Option<Value>) {
        self.create_named(tenant, "web", nt, told).await;
    }

    pub async fn create_named(&self, tenant: &str, dag: &str, nt: &str, told: Option<Value>) {
        let made = self.client().create_dag(&name(tenant, dag), &spec(nt, told)).await;
        made.expect("there is room");
    }

    /// The same, and waits until it is ready.
    pub async fn dag(&self, tenant: &str, nt: &str, told: Option<Value>) {
        let made = self.client().create_dag(&name(tenant, "web"), &spec(nt, told)).await;
        let operation = made.expect("there is room");
        self.client().wait(&operation).await.expect("it becomes ready");
    }

    pub async fn configure(&self, tenant: &str, nt: &str, told: Value) {
        let changed = self.client().update_dag(&name(tenant, "web"), &spec(nt, Some(told))).await;
        let operation = changed.expect("it is allowed");
        self.client().wait(&operation).await.expect("it becomes ready");
    }

    pub async fn lead(&self, function: u32, tenant: &str) {
        let led = self.client().lead_function(function, &name(tenant, "web")).await;
        led.expect("the DAG is there");
    }

    /// Waits until all DAGs are ready.
    pub async fn ready(&self) {
        self.until(|dags| dags.iter().all(|dag| dag.state() == State::Ready)).await;
    }

    /// Waits until the DAG of this name is ready.
    pub async fn ready_one(&self, dag: &str) {
        let is_it = |found: &v1::Dag| found.name.ends_with(dag) && found.state() == State::Ready;
        self.until(|dags| dags.iter().any(is_it)).await;
    }

    async fn until(&self, is_so: impl Fn(&[v1::Dag]) -> bool) {
        let until = Instant::now() + PATIENCE;
        loop {
            let dags = self.client().list_dags().await;
            if is_so(&dags) {
                return;
            }
            assert!(Instant::now() < until, "{dags:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until another process is the card, and the DAGs are ready on it.
    pub async fn serves_again(&self) {
        let until = Instant::now() + PATIENCE;
        while self.try_observe().is_none_or(|seen| seen.loads < 2) {
            assert!(Instant::now() < until, "no card comes back");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.ready().await;
    }

    /// Why a bitstream is rejected, as soon as it is.
    pub async fn rejection(&self, id: &str) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let request = v1::ListBitstreamsRequest::default();
            let all = self.client().bitstreams().list_bitstreams(request).await.expect("a list");
            let all = all.into_inner().bitstreams;
            let found = all.iter().find(|found| found.name.ends_with(id)).expect("it is there");
            if !found.rejection.is_empty() {
                return found.rejection.clone();
            }
            assert!(Instant::now() < until, "{found:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Connects a host to each port, as soon as the card has them.
    pub fn hosts(&self) -> Hosts {
        let connect = |name: &str| {
            let until = Instant::now() + PATIENCE;
            loop {
                if let Ok(stream) = UnixStream::connect(self.home.path().join(name)) {
                    stream.set_read_timeout(Some(FRAME_PATIENCE)).expect("a time");
                    return stream;
                }
                assert!(Instant::now() < until, "no port {name}");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        Hosts { ports: ["a.sock", "b.sock", "up.sock"].map(connect) }
    }

    /// Counts of the card.
    pub fn observe(&self) -> Observation {
        self.try_observe().expect("the card answers")
    }

    fn try_observe(&self) -> Option<Observation> {
        let [uplink, first, second] = Self::ports(&self.home);
        let port = |text: &str| text.parse().expect("a port");
        let settings = SoftCardSettings {
            model: "sim-16".into(),
            uplink: Some(port(&uplink)),
            functions: vec![port(&first), port(&second)],
            guards: Vec::new(),
            failovers: Vec::new(),
            fast_path: false,
        };
        let model = CardModel::new("sim-16").expect("a label");
        let folder = CardFolder::new(&self.home.card_folder());
        SoftCard::connect(&folder, model, &settings).ok()?.observe().ok()
    }

    /// Drops of an NT, by reason.
    pub fn dropped(&self, nt: &str) -> Vec<(String, u64)> {
        let seen = self.observe().tasks.into_iter().filter(|task| task.nt_type == nt);
        seen.flat_map(|task| task.dropped).filter(|(_, packets)| *packets > 0).collect()
    }

    /// Begins a run of traffic through a tenant's DAG.
    pub fn flood(&self, tenant: &str, words: &str) -> Child {
        let words = format!("traffic run --dag {tenant}/web {words} -o json");
        let words: Vec<_> = words.split(' ').collect();
        self.command(tenant, &words).spawn().expect("it starts")
    }

    /// The same to its end, with its report.
    pub fn traffic(&self, tenant: &str, words: &str) -> Value {
        let output = self.flood(tenant, words).wait_with_output().expect("it was started");
        assert!(output.status.success(), "{}", said(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.daemon.take().map(DaemonProcess::kill);
        self.home.kill_card();
    }
}
