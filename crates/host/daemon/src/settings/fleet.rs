//! Settings of the fleet that a host belongs to.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The fleet that this host belongs to. Its certificate is that of a host:
/// `spiffe://<trust domain>/host/<name>`. What the fleet manages can be changed at the fleet only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FleetMembership {
    /// Replicas of the fleet, such as `https://fleet-0:7700`. One is linked to at a time, the next one when it
    /// fails or does not lead.
    pub endpoints: Vec<String>,
    /// Certificate of the authority that issues the replicas' certificates; by default `tls.ca`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The host's certificate; by default `tls.certificate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// The private key of `certificate`; by default `tls.key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// Interval between the host's signs of life, in milliseconds: 100 to 3000. The fleet suspects a host that it has
    /// not heard for 10 s.
    #[serde(default = "beat_ms")]
    pub beat_ms: u64,
}

const fn beat_ms() -> u64 {
    1_000
}

impl FleetMembership {
    pub(super) fn check(&self) -> Result<(), String> {
        if self.endpoints.is_empty() {
            return Err("fleet.endpoints: no replica; name at least one".into());
        }
        if let Some(wrong) = self.endpoints.iter().find(|of| !of.starts_with("https://")) {
            return Err(format!(
                "fleet.endpoints: {wrong:?} is not a valid endpoint (expected https://host:port)"
            ));
        }
        if !(100..=3_000).contains(&self.beat_ms) {
            return Err(format!("fleet.beat_ms = {} is not allowed: 100 to 3000", self.beat_ms));
        }
        if self.certificate.is_some() != self.key.is_some() {
            return Err("fleet: only one of certificate and key is set; set both".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::Settings;

    fn error(text: &str) -> String {
        Settings::parse("snicd.toml", text).expect_err(text).to_string()
    }

    #[test]
    fn the_membership_in_a_fleet_is_checked() {
        let text = "[fleet]\nendpoints = [\"https://fleet-0:7700\"]";
        let settings = Settings::parse("x", text).expect("enough");
        assert_eq!(settings.fleet.as_ref().map(|fleet| fleet.beat_ms), Some(1_000));
        assert_eq!(Settings::parse("x", &settings.to_toml()).expect("own output"), settings);
        assert!(error("[fleet]\nendpoints = []").contains("fleet.endpoints: no replica"));
        let plain = error("[fleet]\nendpoints = [\"http://fleet-0:7700\"]");
        assert!(plain.contains("\"http://fleet-0:7700\" is not a valid endpoint"), "{plain}");
        for beat_ms in [99, 3_001] {
            let wrong = error(&format!("{text}\nbeat_ms = {beat_ms}"));
            assert!(wrong.contains(&format!("fleet.beat_ms = {beat_ms}")), "{wrong}");
        }
        assert!(error(&format!("{text}\nkey = \"/x\"")).contains("set both"));
    }
}
