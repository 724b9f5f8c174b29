//! Runs and dry runs of `snicctl apply` of what it printed before.

use std::process::Output;

use snic_integration::Home;

use super::{furnish, home, snicctl, text, until_ready};

fn apply(home: &Home, identity: &str, file: &str, more: &[&str]) -> Output {
    snicctl(home, identity, &[&["apply", "-f", file], more].concat())
}

/// Nobody sees a secret again, so what is printed has its digest, which stands for it when the file is given back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dag_with_a_secret_is_printed_changed_and_given_back() {
    let home = home();
    let daemon = home.start().await;
    let client = furnish(&home).await;
    let file = home.path().join("tunnel.yaml").display().to_string();
    let tunnel = format!(
        "name: acme/tunnel\nbandwidth: 1Gbps\nchain: esp -> policer\nconfiguration:\n  esp:\n    \
         local: 192.0.2.1\n    remote: 192.0.2.2\n    local_prefixes: [10.0.0.0/8]\n    \
         remote_prefixes: [10.1.0.0/16]\n    outbound: {{spi: 256, key: \"{}\"}}\n    \
         inbound: [{{spi: 257, key: \"{}\"}}]\n  policer: {{rate_bps: 8000000, burst_bytes: 16000}}\n",
        "ab".repeat(20),
        "cd".repeat(20),
    );
    std::fs::write(&file, tunnel).expect("a file");
    let applied = apply(&home, "tenant/acme", &file, &["--wait"]);
    assert!(applied.status.success(), "{}", text(&applied));
    until_ready(&client, "tenants/acme/dags/tunnel").await;
    let printed = || text(&snicctl(&home, "tenant/acme", &["dag", "get", "tunnel", "-o", "yaml"]));
    let first = printed();
    assert!(!first.contains("abab") && first.matches("sha256:").count() == 2, "{first}");
    for whole in ["spi: 256\n", "rate_bps: 8000000\n", "burst_bytes: 16000\n"] {
        assert!(first.contains(whole), "{first}");
    }
    std::fs::write(&file, first.replace("spi: 256\n", "spi: 300\n")).expect("a file");
    for (more, said) in [(&["--dry-run"][..], "would change "), (&["--wait"], "changed ")] {
        let applied = apply(&home, "tenant/acme", &file, more);
        assert!(text(&applied).starts_with(said), "{}", text(&applied));
    }
    let second = printed();
    assert!(second.contains("spi: 300\n"), "{second}");
    let digests = |text: &str| -> Vec<String> {
        text.lines().filter(|line| line.contains("sha256:")).map(str::to_owned).collect()
    };
    assert_eq!(digests(&second), digests(&first), "the secrets are what they were");
    let other = first.replace("/tunnel", "/other");
    std::fs::write(&file, other).expect("a file");
    let refused = apply(&home, "tenant/acme", &file, &[]);
    assert!(!refused.status.success() && text(&refused).contains("secret"), "{}", text(&refused));
    daemon.stop();
}
