//! Log lines about calls: what, who, how it ended, how long it took. Calls that succeed are in it at the level `debug`.

use std::io::Write;
use std::sync::{Arc, Mutex};

use snic_api::v1;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::rig::Rig;

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic while it is held").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

/// Log of a thread.
struct Kept {
    _here: tracing::subscriber::DefaultGuard,
    _other: tracing::Dispatch,
}

impl Log {
    /// The log of this thread from now on.
    /// While a process has one subscriber, the thread that reaches a line first decides for all
    /// threads whether the line is wanted, and the threads of other tests have no subscriber. With
    /// two subscribers, all are asked.
    fn of_this_thread(level: LevelFilter) -> (Self, Kept) {
        let log = Self::default();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_max_level(level)
            .with_writer(log.clone())
            .finish();
        let other = tracing::Dispatch::new(tracing_subscriber::registry());
        (log, Kept { _here: tracing::subscriber::set_default(subscriber), _other: other })
    }

    fn text(&self) -> String {
        let bytes = self.0.lock().expect("no panic while it is held").clone();
        String::from_utf8(bytes).expect("text")
    }
}

/// Lines at a level about a call that fails, one that succeeds, and one that is cut off.
async fn logged(level: LevelFilter) -> String {
    // The server's tasks run on the test's thread.
    let (log, _kept) = Log::of_this_thread(level);
    let rig = Rig::start().await;
    let mut acme = rig.client("tenant/acme").await;
    acme.get_dag("tenants/acme/dags/web").await.expect_err("absent");
    let mut operator = rig.client("operator/root").await;
    operator.create_tenant("acme").await.expect("made");
    let request = v1::WatchDagsRequest { parent: "tenants/-".into(), resume_revision: 0 };
    let mut events = operator.dags.watch_dags(request).await.expect("a watch").into_inner();
    events.message().await.expect("no error").expect("a bookmark");
    rig.stop().await;
    log.text()
}

const ABSENT: [&str; 3] = ["DagService/GetDag", "caller=\"tenant\"", "rpc.grpc.status_code=5"];
const MADE: [&str; 3] =
    ["TenantService/CreateTenant", "caller=\"operator\"", "rpc.grpc.status_code=0"];
const CUT_OFF: [&str; 3] =
    ["DagService/WatchDags", "caller=\"operator\"", "rpc.grpc.status_code=14"];

/// Lines about the end of calls of this method.
fn ends<'a>(text: &'a str, method: &str) -> Vec<&'a str> {
    let ended = |line: &&str| line.contains(method) && line.contains("call ended");
    text.lines().filter(ended).collect()
}

#[tokio::test]
async fn a_call_leaves_a_line() {
    let text = logged(LevelFilter::DEBUG).await;
    for [method, caller, status] in [ABSENT, MADE, CUT_OFF] {
        let lines = ends(&text, method);
        let [line] = lines[..] else { panic!("{method}: {lines:?} in {text}") };
        assert!(line.contains(caller) && line.contains(status), "{line}");
        assert!(line.contains("latency_us="), "{line}");
    }
    assert!(!text.contains("root"), "names of callers are not logged with every call: {text}");
}

#[tokio::test]
async fn calls_that_succeed_do_not_fill_the_log() {
    let text = logged(LevelFilter::INFO).await;
    let told = [ABSENT, MADE, CUT_OFF].map(|[method, ..]| ends(&text, method).len());
    assert_eq!(told, [1, 0, 1], "{text}");
}

#[tokio::test]
async fn a_caller_whose_calls_fail_does_not_fill_the_log() {
    let (log, _kept) = Log::of_this_thread(LevelFilter::INFO);
    let rig = Rig::start().await;
    let mut acme = rig.client("tenant/acme").await;
    let begun = std::time::Instant::now();
    for _ in 0..200 {
        acme.get_dag("tenants/acme/dags/web").await.expect_err("absent");
    }
    let seconds = begun.elapsed().as_secs() as usize + 1;
    rig.stop().await;
    let lines = ends(&log.text(), ABSENT[0]).len();
    assert!((10..=10 * seconds).contains(&lines), "{lines} lines within {seconds} s");
}
