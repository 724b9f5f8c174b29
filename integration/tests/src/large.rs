//! Specs as large as they may be, and larger ones.

use serde_json::{Value, json};
use snic_domain::limits::DAG_CONFIGURATION_BYTES_MAX;
use snic_domain::{Bandwidth, DagSpec, NtConfiguration};

/// A DAG of one NT with this configuration.
///
/// # Panics
/// The type is no label.
pub fn configured(nt: &str, configuration: &Value) -> DagSpec {
    let nts = [nt.parse().expect("an NT type")];
    let mut spec = DagSpec::chain(&nts, Bandwidth::from_mbps(100));
    spec.nodes[0].configuration = Some(NtConfiguration::new(&configuration.to_string()));
    spec
}

/// Rules of a firewall: 160 bytes each as text, and a quarter more in a JSON text.
pub fn firewall_rules(count: usize) -> Value {
    let rule = |number: usize| {
        let (high, low) = (number / 250, number % 250);
        json!({
            "action": "accept",
            "protocol": "tcp",
            "source": format!("10.{high}.{low}.0/24"),
            "destination": format!("192.168.{high}.{low}/32"),
            "source_ports": "1024-65535",
            "destination_ports": format!("{}-{}", 1_000 + number, 2_000 + number),
        })
    };
    json!({ "rules": (0..count).map(rule).collect::<Vec<_>>() })
}

/// The most rules within the limit of a DAG's configurations.
///
/// # Panics
/// The limit is lower than 300 rules take.
pub fn most_firewall_rules() -> usize {
    let bytes = |count| firewall_rules(count).to_string().len();
    (300..1_024)
        .take_while(|count| bytes(*count) <= DAG_CONFIGURATION_BYTES_MAX)
        .last()
        .expect("300 fit")
}

/// Services of a load balancer with so many backends each.
pub fn balancer_services(count: usize, backends: usize) -> Value {
    let backend = |service: usize, number: usize| {
        let (high, low) = (number / 250, number % 250);
        json!({"address": format!("10.{service}.{high}.{low}"), "port": 8_080})
    };
    let service = |service: usize| {
        let backends: Vec<Value> = (0..backends).map(|number| backend(service, number)).collect();
        let address = format!("192.0.2.{service}");
        json!({"address": address, "protocol": "tcp", "port": 80, "backends": backends})
    };
    json!({"services": (0..count).map(service).collect::<Vec<_>>(), "table": "65537"})
}
