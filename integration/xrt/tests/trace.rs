//! One trace from the client to the process that calls XRT.

use snic_bitstream::catalogue;
use snic_integration::{
    Collector, Home, PARENT, TRACE, TestClient, attribute, create_in_trace, hex,
};
use snic_integration_xrt::daemon::{XrtCardProcess, write_settings};
use snic_integration_xrt::emulation;

/// Bytes of a bitstream are more than this.
const BITSTREAM_BYTES_MIN: u64 = 1 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn spans_of_the_worker_are_children_of_their_step() {
    if !emulation::is_there() {
        return;
    }
    let catalogue = catalogue::builtin().expect("the built-in catalogue");
    let profile = catalogue.card(&"sim-16".parse().expect("a label")).expect("there").clone();
    let card = XrtCardProcess::new(profile);
    let collector = Collector::keeping();
    let (otlp, _serving) = collector.serve().await;
    let home = Home::new();
    write_settings(&home, &[&card.emulation], "hw_emu", "");
    let text = std::fs::read_to_string(home.settings()).expect("settings");
    let telemetry = format!("{text}[telemetry]\notlp = \"http://{otlp}\"\n");
    std::fs::write(home.settings(), telemetry).expect("settings");
    let daemon = home.start().await;
    let snicd = daemon.id();
    let client = TestClient::connect(&home.socket(), "operator/test").await.expect("it serves");
    client.register(&catalogue).await;
    client.create_tenant("acme").await.expect("a tenant");
    create_in_trace(&client).await;
    let (status, log) = daemon.stop();
    assert!(status.success(), "{log}");

    let spans = collector.spans(TRACE);
    let of = |name: &str| spans.iter().filter(|span| span.name == name).collect::<Vec<_>>();
    let number = |span, key| -> u64 {
        attribute(span, key).and_then(|text| text.parse().ok()).expect("a number")
    };
    let [rpc] = of("snic.control.v1.DagService/CreateDag")[..] else { panic!("{spans:#?}") };
    assert_eq!(hex(&rpc.parent_span_id), PARENT);
    let work = of("snic.xrt");
    for (step, numbers) in [("snic.reconfigure", "snic.bytes"), ("snic.tables", "snic.words")] {
        let of_step = of(step);
        assert!(!of_step.is_empty(), "no {step}: {spans:#?}");
        for step in of_step {
            assert_eq!(step.parent_span_id, rpc.span_id);
            let below = work.iter().filter(|work| work.parent_span_id == step.span_id);
            let [work] = below.collect::<Vec<_>>()[..] else { panic!("{spans:#?}") };
            assert!(number(work, numbers) > 0 && number(work, "snic.accesses") > 0, "{work:?}");
            assert!(work.start_time_unix_nano <= work.end_time_unix_nano);
            assert!(work.start_time_unix_nano >= step.start_time_unix_nano, "{work:?} {step:?}");
            assert_ne!(number(work, "process.pid"), u64::from(snicd), "another process");
        }
    }
    let load = work.iter().find(|work| number(work, "snic.bytes") > 0).expect("a load");
    assert!(number(load, "snic.bytes") > BITSTREAM_BYTES_MIN, "{load:?}");
    assert!(work.iter().all(|work| work.parent_span_id != rpc.span_id), "it is of a step");
}
