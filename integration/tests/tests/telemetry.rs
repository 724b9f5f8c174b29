//! Observability: one trace from the call to the card, metrics that Prometheus reads, and the rules
//! and the dashboard that use them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

use snic_integration::{
    Collector, Home, PARENT, TRACE, TestClient, attribute, commands::operate_with, create_in_trace,
    free_address, hex, metrics_page,
};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../telemetry")
}

/// promtool's output; `None` if it is not installed.
fn promtool(words: &[&str], input: &str) -> Option<(bool, String)> {
    let child = Command::new("promtool")
        .args(words)
        .current_dir(folder())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        eprintln!("SKIPPED: promtool is missing");
        return None;
    };
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(input.as_bytes()).expect("promtool reads");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    Some((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

/// The names of our metrics in a text, those of calls and of the process among them.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    let is_ours = |word: &&str| {
        // `rpc_method` and the like are names of labels.
        word.starts_with("snic_") || word.starts_with("process_") || word.starts_with("rpc_server_")
    };
    words.filter(is_ours).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_trace_shows_the_way_of_a_dag_and_the_metrics_what_is() {
    let collector = Collector::keeping();
    let (otlp, _serving) = collector.serve().await;
    let home = Home::new();
    let prometheus = free_address();
    home.write_settings(&format!(
        "[telemetry]\notlp = \"http://{otlp}\"\nprometheus = \"{prometheus}\""
    ));
    let daemon = home.start().await;
    let client = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
    let catalogue = snic_bitstream::catalogue::builtin().expect("the built-in catalogue");
    client.register(&catalogue).await;
    client.create_tenant("acme").await.expect("a tenant");
    client.create_tenant("acme").await.expect_err("it exists");
    create_in_trace(&client).await;
    let page = page_with(prometheus, "snic_promise_known_seconds_total").await;
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");

    let spans = collector.spans(TRACE);
    let of = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let [rpc] = of("snic.control.v1.DagService/CreateDag")[..] else {
        panic!("one call: {spans:?}")
    };
    assert_eq!(hex(&rpc.parent_span_id), PARENT, "the client's span is the parent");
    let says = |span, key, value: &str| assert_eq!(attribute(span, key).as_deref(), Some(value));
    says(rpc, "rpc.system", "grpc");
    says(rpc, "rpc.service", "snic.control.v1.DagService");
    says(rpc, "rpc.method", "CreateDag");
    says(rpc, "rpc.grpc.status_code", "0");
    says(rpc, "snic.tenant", "acme");
    assert_eq!(rpc.kind(), SpanKind::Server);
    for step in ["snic.plan", "snic.intent", "snic.reconfigure", "snic.tables"] {
        assert!(!of(step).is_empty(), "no {step}: {spans:?}");
        let children = of(step).iter().all(|span| span.parent_span_id == rpc.span_id);
        assert!(children, "{step} belongs to the call: {spans:?}");
        of(step).into_iter().for_each(|span| says(span, "snic.tenant", "acme"));
    }
    let (load, tables) = (of("snic.reconfigure")[0], of("snic.tables"));
    let last = tables.last().expect("there is one");
    let mut at = last.start_time_unix_nano;
    for part in ["snic.tables.write", "snic.tables.packets", "snic.tables.read_back"] {
        let parts = of(part);
        let of_last = parts.iter().find(|part| part.parent_span_id == last.span_id);
        let part = of_last.unwrap_or_else(|| panic!("no {part} in {last:?}: {parts:?}"));
        assert!(at <= part.start_time_unix_nano, "one part follows the other: {part:?}");
        at = part.end_time_unix_nano;
    }
    assert!(at <= last.end_time_unix_nano, "they are within: {last:?}");
    assert!(load.end_time_unix_nano <= last.start_time_unix_nano, "rows follow the load");
    says(load, "snic.card", "card0");
    assert!(attribute(load, "snic.region").is_some(), "{load:?}");
    says(of("snic.plan")[0], "snic.event", "request");
    check_lines(&collector, &log);
    check_page(&page);
}

/// Log lines and metrics that reached the collector, beside the log on standard error.
fn check_lines(collector: &Collector, log: &str) {
    let lines = collector.lines();
    let changed = |line: &&String| line.as_str() == "DAG changed state";
    assert!(lines.iter().filter(changed).count() >= 2, "{lines:?}");
    // Those of the traced call, of the rejected one, and of the first of a hundred without a trace; other calls are not
    // in the log either.
    let ended = lines.iter().filter(|line| line.as_str() == "call ended").count();
    assert_eq!((ended, log.matches("call ended").count()), (3, 3), "{lines:?}\n{log}");
    let exported = collector.metrics();
    for metric in [
        "rpc.server.call.duration",
        "snic.reconfiguration.duration",
        "snic.region.state",
        "snic.dags",
        "snic.dag.unserved",
        "snic.build.info",
        "process.cpu.time",
    ] {
        assert!(exported.contains(metric), "{metric} is not in {exported:?}");
    }
}

/// The page for Prometheus once it has a metric that takes some seconds to have a value.
async fn page_with(address: SocketAddr, metric: &str) -> String {
    for _ in 0..300 {
        let page = metrics_page(address);
        if names(&page).contains(metric) {
            return page;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{metric} never has a value");
}

/// The page for Prometheus, with what is made of it.
fn check_page(page: &str) {
    let present = names(page);
    for needed in ["snic_region_state", "snic_dags", "snic_admission_refusals_total"] {
        assert!(present.contains(needed), "{needed} is not in {page}");
    }
    let load = "snic_reconfiguration_duration_seconds_count{card=\"card0\",";
    assert!(page.contains(load), "{page}");
    assert!(page.contains("snic_admission_refusals_total{") && page.contains("\"exists\""));
    if let Some((fine, said)) = promtool(&["check", "metrics"], page) {
        assert!(fine, "{said}\n{page}");
    }
    // All metrics of the rules and the dashboard exist, except those of packets that nobody sent, of software cards
    // and of cards behind XRT.
    for file in ["rules.yaml", "dashboard.json"] {
        let text = std::fs::read_to_string(folder().join(file)).expect("the file");
        for name in names(&text).iter().filter(|name| !name.contains("_bytes_total")) {
            let known = present.contains(name)
                || [
                    "snic_vm_bindings",
                    "snic_tenant_dominant_share_ratio",
                    "snic_card_port_lost_total",
                    "snic_dag_nt_dropped_total",
                    // Of tenants with a budget: `budgets.rs`.
                    "snic_budget_spent",
                    "snic_budget_limit",
                    // Of DAGs whose traffic was measured twice.
                    "snic_dag_load_bytes_per_second",
                    "snic_dag_throughput_bytes_per_second",
                    // Of DAGs of which packets were sampled.
                    "snic_dag_latency_seconds",
                    "snic_dag_latency_part_seconds",
                    "snic_dag_latency_planned_seconds",
                    // Of cards with sensors, which are behind XRT: `integration/xrt/tests/device.rs`.
                    "snic_card_condition",
                    "snic_card_temperature_celsius",
                    "snic_card_power_watts",
                    "snic_card_access_duration_seconds_bucket",
                    "snic_card_worker_restarts_total",
                    // Of TLS: `certificates.rs`.
                    "snic_tls_crl_this_update_seconds",
                    "snic_tls_crl_next_update_seconds",
                    "snic_tls_handshakes_rejected_total",
                    // Of replicas: `crates/fleet/fleetd/tests/ci/refusing.rs`.
                    "snic_fleet_store_refused_ratio",
                    "snic_fleet_leader_ratio",
                    "snic_fleet_evacuation_held_ratio",
                    "snic_fleet_hosts",
                    "snic_fleet_dags_unplaced",
                    "snic_fleet_queue",
                    "snic_fleet_budgets",
                    "snic_fleet_etcd_duration_seconds_bucket",
                ]
                .contains(&name.as_str());
            assert!(known, "{file} asks for {name}, which is not in {page}");
        }
    }
}

/// Each call of `snicctl` is a trace of its own; the server samples them as it is configured, the trace that a caller
/// continues as that caller decided.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_call_is_one_trace_that_is_sampled_as_configured() {
    let collector = Collector::keeping();
    let (otlp, _serving) = collector.serve().await;
    let home = Home::new();
    home.write_settings(&format!("[telemetry]\notlp = \"http://{otlp}\"\ntrace_one_in = 4"));
    let daemon = home.start().await;
    let snicctl = |given: &str, words: &str| {
        operate_with(&home, given, words).unwrap_or_else(|said| panic!("{words}: {said}"));
    };
    // Twelve calls, of which three are sampled.
    (0..12).for_each(|_| snicctl("", "tenant list"));
    let of = |digit: char, flags: &str| {
        let ids = [32, 16].map(|digits| digit.to_string().repeat(digits));
        format!("TRACEPARENT=00-{}-{}-{flags}", ids[0], ids[1])
    };
    (0..3).for_each(|_| snicctl(&of('a', "01"), "tenant list"));
    (0..5).for_each(|_| snicctl(&of('b', "00"), "tenant list"));
    // A client that exports spans itself has the root.
    let exporting = format!("OTEL_EXPORTER_OTLP_ENDPOINT=http://{otlp}");
    snicctl(&exporting, "nt list");
    // A watch has no end: its span ends when it is open.
    snicctl(&format!("{exporting} timeout 2"), "tenant watch || true");
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");
    let name = "snic.control.v1.TenantService/ListTenants";
    let spans = collector.all_spans();
    let mut by_trace: BTreeMap<String, usize> = BTreeMap::new();
    for span in spans.iter().filter(|span| span.name == name) {
        *by_trace.entry(hex(&span.trace_id)).or_default() += 1;
    }
    let roots: Vec<_> = spans.iter().filter(|span| span.kind() == SpanKind::Client).collect();
    let [list, watch] = roots[..] else { panic!("two calls of that kind: {roots:?}") };
    for (root, method) in [(list, "ListNtTypes"), (watch, "WatchTenants")] {
        assert_eq!((&*root.name, root.parent_span_id.len()), (method, 0));
        let of_server = |span: &&Span| span.name.ends_with(&format!("/{method}"));
        let child = spans.iter().find(of_server).expect("the server's");
        assert_eq!((&child.trace_id, &child.parent_span_id), (&root.trace_id, &root.span_id));
    }
    let given = |digit: &str| by_trace.get(&digit.repeat(32)).copied();
    assert_eq!((given("a"), given("b")), (Some(3), None), "{by_trace:?}");
    let own: Vec<usize> =
        by_trace.iter().filter(|(id, _)| **id != "a".repeat(32)).map(|(_, n)| *n).collect();
    assert_eq!(own, [1, 1, 1], "one call is one trace, and one in four is sampled: {by_trace:?}");
}

#[test]
fn the_rules_are_valid_and_fire() {
    for words in [&["check", "rules", "rules.yaml"][..], &["test", "rules", "rules-test.yaml"]] {
        if let Some((fine, said)) = promtool(words, "") {
            assert!(fine, "{said}");
        }
    }
}
