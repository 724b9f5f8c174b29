//! A host with an FPGA card and a card with processors, with real processes: what a tenant says of a DAG in a
//! file decides where its NT runs, and `dag explain` says why.

use snic_integration::commands::shell;
use snic_integration::{Home, TestClient};

const CARD: &str = "[[cards]]\nid = \"dpu0\"\ndriver = \"sim\"\nmodel = \"bluefield-3\"\n";

/// Registers an NT type that the model's file has programs of; on an FPGA card it would take memory.
async fn register(client: &TestClient) {
    let mut catalogue = snic_bitstream::catalogue::builtin().expect("the built-in catalogue");
    catalogue.nt_types.retain(|nt| nt.id.as_str() == "nat");
    let [nt] = &mut catalogue.nt_types[..] else { panic!("the catalogue has it") };
    assert!(nt.memory.get() > 0, "{nt:?}");
    nt.id = "l2-reflector".parse().expect("a label");
    client.register_nt_types(&catalogue).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_asks_for_low_latency_and_guideline_1_places_and_is_explained() {
    let home = Home::new();
    home.write_settings(CARD);
    let daemon = home.start().await;
    let client = snic_integration::furnished(&home, &[]).await;
    register(&client).await;
    let folder = home.path().display();
    let said = |lines: &str| shell(&home, &format!("cd {folder}\n{lines}"));
    // Explanations are broken into lines of 80 columns.
    let run = |lines: &str| {
        let printed = said(lines).unwrap_or_else(|error| panic!("{lines}: {error}"));
        printed.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let endpoint = home.socket().display().to_string();
    run(&format!(
        "snicctl context set it --endpoint unix:{endpoint} --identity tenant/acme\nsnicctl context use it"
    ));
    let file = |more: &str| {
        let text = format!("name: web\nbandwidth: 24Gbps\nchain: l2-reflector\n{more}\n");
        std::fs::write(home.path().join("web.yaml"), text).expect("the folder takes files");
    };

    file("packet_sizes: 1024\nlatency_sensitive: true");
    run("snicctl dag create -f web.yaml --wait");
    let why = run("snicctl dag explain web");
    assert!(why.contains("DPA, 95 threads, packets in DPA memory"), "{why}");
    assert!(why.contains("decided by guideline 1"), "{why}");
    assert!(why.contains("guideline 1 (simple, near the network, packets in DPA memory)"), "{why}");
    assert!(why.contains("not a card of model sim-16"), "{why}");
    let dag = run("snicctl dag get web");
    assert!(dag.contains("low latency"), "{dag}");

    // What is printed can be edited and is what is asked for.
    run(
        "snicctl dag get web -o yaml | sed 's/latency_sensitive: true/latency_sensitive: false/' > now.yaml",
    );
    run("snicctl dag update web -f now.yaml --wait");
    let why = run("snicctl dag explain web");
    assert!(why.contains("DPA, 12 threads, packets in Arm memory"), "{why}");
    assert!(!run("snicctl dag get web").contains("low latency"));

    // Without sizes its packets are IMIX: more threads, and the explanation says what nobody measured.
    file("");
    run("snicctl dag update web -f web.yaml --wait");
    let why = run("snicctl dag explain web");
    assert!(why.contains("DPA, 35 threads, packets in Arm memory"), "{why}");
    assert!(why.contains("not measured: 64 and 594 bytes (counted as 1024)"), "{why}");
    daemon.kill();
}
