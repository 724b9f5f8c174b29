//! Clients in Python and Go, built from the proto files as their READMEs say, and the examples that come
//! with them, against a real daemon; the Rust client judges what they did.

use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use snic_api::replies::ItemOf as _;
use snic_api::v1;
use snic_api::v1::dag::State;
use snic_domain::{Bandwidth, DagId, DagName, DagSpec, NtTypeId, TenantId};
use snic_integration::{DaemonProcess, Home, TestClient, furnished, program};

const WEB: &str = "tenants/acme/dags/web";

/// The folder of a client in the project.
fn folder(language: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(language)
}

/// Where the build keeps its tools: beside the programs of this build.
fn tools() -> PathBuf {
    let programs = program("snicd");
    let target = programs.parent().and_then(Path::parent).expect("it is in a target folder");
    target.join("tools")
}

/// Runs a command to its end: returns its standard output, or all its output if it failed.
fn run(command: &mut Command) -> Result<String, String> {
    let shown = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output();
    let Output { status, stdout, stderr } = output.unwrap_or_else(|e| panic!("{shown}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match status.success() {
        true => Ok(text(&stdout)),
        false => Err(text(&stdout) + &text(&stderr)),
    }
}

fn exists(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Whether a test cannot run here. In CI it fails instead.
fn lacks(programs: &[&str]) -> bool {
    let Some(missing) = programs.iter().find(|program| !exists(program)) else { return false };
    assert!(std::env::var_os("CI").is_none(), "{missing} is missing");
    println!("not run: {missing} is missing");
    true
}

/// The result of every example, in whatever language it is written.
async fn check_example(home: &Home, operator: &TestClient, example: impl Fn() -> Command) {
    let socket = format!("unix:{}", home.socket().display());
    let call = |words: &[&str]| {
        let mut command = example();
        command.args(["--endpoint", &socket, "--identity", "tenant/acme"]);
        run(command.args(["--tenant", "acme", "--dag", "web"]).args(words))
    };
    let said = call(&["--bandwidth", "5000000000", "nat", "firewall"]).expect("there is room");
    let request = v1::GetDagRequest { name: WEB.into() };
    let dag = operator.dags().get_dag(request.clone()).await.item().expect("it is there");
    assert_eq!((dag.state(), dag.bandwidth_bps), (State::Ready, 5_000_000_000));
    let edges: Vec<_> = dag.edges.iter().map(|e| (&*e.from_node, &*e.to_node)).collect();
    assert_eq!(edges, [("nat", "firewall")]);
    let stages = dag.mapping.into_iter().flat_map(|mapping| mapping.stages);
    let chains = stages.flat_map(|stage| stage.branches);
    let regions: Vec<_> =
        chains.flat_map(|chain| chain.instances).map(|i| format!("  {}\n", i.region)).collect();
    assert_eq!(said, format!("{WEB} is READY at 5 Gbit/s\n{}", regions.concat()));

    let error = call(&["nat"]).expect_err("it exists");
    assert!(error.contains("RESOURCE_EXISTS: "), "{error}");
    for _ in 0..2 {
        let said = call(&["--delete"]).expect("again is no error");
        assert_eq!(said, format!("{WEB} is deleted\n"));
    }
    assert!(operator.dags().get_dag(request).await.is_err());
    let error = call(&["--bandwidth", "1", "nat"]).expect_err("too little");
    assert!(error.contains("INVALID_FIELD: ") && error.contains("dag.bandwidth_bps: "), "{error}");
    assert!(call(&["nat", "no-such-task"]).expect_err("no such task").contains("UNKNOWN_NT_TYPE"));
}

/// Lines that a program prints until one of them comes.
fn lines_until(
    lines: &mut impl Iterator<Item = std::io::Result<String>>,
    last: &str,
) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.last().is_none_or(|line| line != last) {
        let line = lines.next().unwrap_or_else(|| panic!("it ended before {last:?}: {seen:?}"));
        seen.push(line.expect("text"));
    }
    seen
}

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The watch of every example goes on where it was when the daemon was killed.
async fn check_watch(home: &Home, daemon: DaemonProcess, mut example: Command) -> DaemonProcess {
    let socket = format!("unix:{}", home.socket().display());
    example.args(["--endpoint", &socket, "--identity", "tenant/acme", "--tenant", "acme"]);
    let mut program = Running(example.stdout(Stdio::piped()).spawn().expect("it starts"));
    let output = program.0.stdout.take().expect("it is piped");
    let mut lines = std::io::BufReader::new(output).lines();
    let name = DagName {
        tenant: TenantId::new("acme").expect("an id"),
        dag: DagId::new("web").expect("an id"),
    };
    let nat = NtTypeId::new("nat").expect("an id");
    let spec = DagSpec::chain(&[nat], Bandwidth::from_gbps(1));
    let client = TestClient::connect(&home.socket(), "tenant/acme").await.expect("a daemon");
    client.create_dag(&name, &spec).await.expect("there is room");
    lines_until(&mut lines, &format!("{WEB} is READY"));
    daemon.kill();
    let daemon = home.start().await;
    let client = TestClient::connect(&home.socket(), "tenant/acme").await.expect("a daemon");
    client.delete_dag(&name).await.expect("it is still there");
    let seen = lines_until(&mut lines, &format!("{WEB} is deleted"));
    assert!(seen.iter().all(|line| line.starts_with(WEB)), "{seen:?}");
    daemon
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_in_python_deploys_a_chain() {
    if lacks(&["python3"]) {
        return;
    }
    let environment = tools().join("python");
    run(Command::new("python3").args(["-m", "venv"]).arg(&environment)).expect("an environment");
    let python = environment.join("bin/python");
    // As in its README.
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    run(install.arg("--force-reinstall").arg(folder("python"))).expect("it builds");

    let home = Home::new();
    let daemon = home.start().await;
    let operator = furnished(&home, &[]).await;
    check_example(&home, &operator, || {
        let mut command = Command::new(&python);
        command.arg(folder("python").join("examples/deploy.py"));
        command
    })
    .await;
    let mut watch = Command::new(&python);
    watch.arg(folder("python").join("examples/watch.py"));
    check_watch(&home, daemon, watch).await.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_example_in_go_deploys_a_chain() {
    let buf = tools().join("buf/node_modules/@bufbuild/buf-linux-x64/bin");
    if lacks(&["go"]) || !buf.join("buf").is_file() && lacks(&["buf"]) {
        return;
    }
    // A copy: what is generated stays out of the project.
    let copy = tempfile::tempdir().expect("a folder");
    let module = copy.path().join("integration/go");
    std::fs::create_dir_all(&module).expect("a folder");
    let (from, proto) = (folder("go"), folder("../proto"));
    let files = ["go.mod", "go.sum", "buf.gen.yaml", "client.go", "reflection", "examples"];
    run(Command::new("cp").arg("-r").args(files.map(|file| from.join(file))).arg(&module))
        .expect("copied");
    run(Command::new("cp").arg("-r").arg(proto).arg(copy.path())).expect("copied");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([buf]);
    let path = std::env::join_paths(folders).expect("valid folders");
    let go = |words: &[&str]| {
        let mut command = Command::new("go");
        run(command.current_dir(&module).env("PATH", &path).args(words))
    };
    go(&["generate", "./..."]).expect("buf generates the stubs");
    go(&["vet", "./..."]).expect("no findings");
    let [program, watch] = ["deploy", "watch"].map(|name| copy.path().join(name));
    let output = copy.path().display().to_string();
    go(&["build", "-o", &output, "./examples/..."]).expect("they build");

    let home = Home::new();
    let daemon = home.start().await;
    let operator = furnished(&home, &[]).await;
    check_example(&home, &operator, || Command::new(&program)).await;
    // A client without any generated code.
    let endpoint = format!("unix:{}", home.socket().display());
    let mut tests = Command::new("go");
    tests.current_dir(&module).env("SNIC_ENDPOINT", endpoint).args([
        "test",
        "-count=1",
        "-v",
        "./reflection",
    ]);
    let said = run(&mut tests).unwrap_or_else(|said| panic!("{said}"));
    assert_eq!(said.matches("--- PASS").count(), 2, "{said}");
    check_watch(&home, daemon, Command::new(&watch)).await.stop();
}
