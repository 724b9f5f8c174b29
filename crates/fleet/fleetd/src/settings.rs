//! The program's settings: one TOML file.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use snic_api::certificates::{PemFile, UnusableFile, check_issuer, check_pair};
use snic_bitstream::signature::Signatures;
use snic_fleet::FleetSettings;
use snic_fleet::call_ledger::CallAges;
use snic_front::settings::TlsSettings;
use snic_store_etcd::{EtcdSettings, TlsFiles};

use crate::budgets::BudgetSettings;
pub use crate::images::{Bucket, Images};
use crate::runner::{Elections, RunnerSettings};
use crate::setting_checks::in_range;

/// All settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Address and port that clients, hosts and other replicas connect to.
    pub listen: SocketAddr,
    /// URL at which the other replicas and the hosts reach this one, such as `https://fleet1.example.org:7700`. Its host
    /// must be in the replica's certificate.
    pub address: String,
    /// Trust domain of the identities in certificates.
    #[serde(default = "trust_domain")]
    pub trust_domain: String,
    /// The replica's certificate, for `spiffe://<trust domain>/replica/<name>`, and the authority of all others.
    pub tls: TlsPaths,
    /// etcd.
    pub etcd: Etcd,
    /// Where the bitstreams' images are: the path of a folder that all replicas share, or a table with a bucket.
    pub images: Images,
    /// Folder of card profiles (`*.toml`) beside those of the catalogue, with the floor plans that uploads are checked
    /// against. The same files as on the hosts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiles_dir: Option<PathBuf>,
    /// Rules for bitstreams that are accepted. Hosts without keys load what the fleet has accepted; those with keys in their own `[signatures]` judge it by these.
    #[serde(default)]
    pub signatures: Signatures,
    /// Folder of the audit log; none is kept without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_dir: Option<PathBuf>,
    /// When hosts are lost, and how fast their DAGs move.
    #[serde(default)]
    pub hosts: Hosts,
    /// Prices, and how often budgets are looked at.
    #[serde(default)]
    pub budgets: Budgets,
    /// Ages up to which the replicas' own counts of calls are kept.
    #[serde(default)]
    pub usage: UsageAges,
    /// The read-only web page for operators: hosts, what is on each, and DAGs. Off by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub web: Option<PageSettings>,
    /// Metrics.
    #[serde(default)]
    pub telemetry: Metrics,
}

/// Metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Metrics {
    /// Address and port that serve `/metrics` for Prometheus. It needs no identity; no names of tenants are in it. Off
    /// by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<SocketAddr>,
}

/// The web page for operators, over TLS with the certificates of `tls`; browsers show an operator's certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PageSettings {
    /// Address and port of the page.
    pub listen: SocketAddr,
}

fn trust_domain() -> String {
    "snic.local".to_owned()
}

/// Files with certificates, PEM.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsPaths {
    /// The authority that signs all certificates.
    pub ca: PathBuf,
    /// The replica's certificate, for servers and for clients.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Revoked certificates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crl: Option<PathBuf>,
}

/// Parts of a replica's certificate that others will reject: its dates, its issuer, and its URI.
///
/// # Errors
/// [`UnusableFile`].
pub fn check_replica(tls: &TlsSettings, now: SystemTime) -> Result<(), UnusableFile> {
    tls.certificate.check_dates(now)?;
    check_issuer(&tls.certificate, &tls.client_authority)?;
    tls.certificate.check_uri()
}

/// Where etcd is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Etcd {
    /// URLs of its members.
    pub endpoints: Vec<String>,
    /// Certificates, for URLs with `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsPaths>,
    /// Time that a leader leads without a sign of life, in seconds: 2 to 60. A failover takes about as long.
    #[serde(default = "lease_seconds")]
    pub lease_seconds: u32,
}

const fn lease_seconds() -> u32 {
    2
}

/// When hosts are lost, and how fast their DAGs move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hosts {
    /// A host is suspected when it was not heard for so many seconds, in which the leader ran: 2 to 3,600.
    pub lease_seconds: u32,
    /// And lost when that has lasted so many seconds: 1 to 3,600.
    pub confirm_seconds: u32,
    /// DAGs of lost and draining hosts, and of a rebalance, that move in a second: 1 to 10,000.
    pub moves_per_second: u32,
}

impl Default for Hosts {
    fn default() -> Self {
        Self { lease_seconds: 10, confirm_seconds: 2, moves_per_second: 20 }
    }
}

/// Prices, and how often budgets are looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Budgets {
    /// Price file, the same on all replicas: without it no tenant and no project can have a budget. It is read again at each look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prices: Option<PathBuf>,
    /// Seconds between two looks of the leader at what was spent: 1 to 3,600. Each asks all hosts once for each tenant with a budget.
    pub period_seconds: u32,
}

impl Default for Budgets {
    fn default() -> Self {
        Self { prices: None, period_seconds: 30 }
    }
}

/// Ages up to which the replicas' own counts of calls are kept, the same on all replicas. Those of everything else are policies of hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct UsageAges {
    /// Days in which calls are kept by minute: 2 to 31.
    pub keep_1m_days: u32,
    /// Days in which calls are kept by hour: 32 to 3,660.
    pub keep_1h_days: u32,
}

impl Default for UsageAges {
    fn default() -> Self {
        Self { keep_1m_days: 8, keep_1h_days: 731 }
    }
}

impl Settings {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// It cannot be read, or a key has a value that is not allowed; the text names the key.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("read the settings {}", path.display()))?;
        Self::parse(&text).with_context(|| format!("the settings {}", path.display()))
    }

    /// Parses and checks the text of a file.
    ///
    /// # Errors
    /// A key is missing, unknown, or has a value that is not allowed; the text names the key.
    pub fn parse(text: &str) -> Result<Self> {
        let settings: Self = toml::from_str(text)?;
        if !settings.address.starts_with("https://") {
            let address = &settings.address;
            bail!("address: {address:?} is not a URL with https (expected https://<host>:<port>)");
        }
        if settings.etcd.endpoints.is_empty() {
            bail!("etcd.endpoints: no endpoints; name the URLs of 1 or more members");
        }
        settings.images.validate()?;
        in_range("etcd.lease_seconds", settings.etcd.lease_seconds, (2, 60))?;
        in_range("hosts.lease_seconds", settings.hosts.lease_seconds, (2, 3_600))?;
        in_range("hosts.confirm_seconds", settings.hosts.confirm_seconds, (1, 3_600))?;
        in_range("hosts.moves_per_second", settings.hosts.moves_per_second, (1, 10_000))?;
        in_range("budgets.period_seconds", settings.budgets.period_seconds, (1, 3_600))?;
        in_range("usage.keep_1m_days", settings.usage.keep_1m_days, (2, 31))?;
        in_range("usage.keep_1h_days", settings.usage.keep_1h_days, (32, 3_660))?;
        Ok(settings)
    }

    /// Certificates of the listener.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn listener_tls(&self) -> Result<TlsSettings> {
        let TlsPaths { ca, certificate, key, crl } = &self.tls;
        Ok(TlsSettings {
            certificate: PemFile::read("tls.certificate", certificate)?,
            key: PemFile::read("tls.key", key)?,
            client_authority: PemFile::read("tls.ca", ca)?,
            revoked: crl.as_deref().map(|path| PemFile::read("tls.crl", path)).transpose()?,
        })
    }

    /// Settings of the connection to etcd.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn etcd(&self) -> Result<EtcdSettings> {
        let mut settings = EtcdSettings::plain(self.etcd.endpoints.clone());
        if let Some(tls) = &self.etcd.tls {
            let authority = PemFile::read("etcd.tls.ca", &tls.ca)?;
            let certificate = PemFile::read("etcd.tls.certificate", &tls.certificate)?;
            let key = PemFile::read("etcd.tls.key", &tls.key)?;
            authority.check_authority()?;
            check_pair(&certificate, &key)?;
            settings.tls = Some(TlsFiles {
                authority: authority.text().into(),
                certificate: certificate.text().into(),
                key: key.text().into(),
            });
        }
        Ok(settings)
    }

    /// Settings of budgets.
    pub fn budgets(&self) -> BudgetSettings {
        let Budgets { prices, period_seconds } = &self.budgets;
        let period = Duration::from_secs(u64::from(*period_seconds));
        BudgetSettings { prices: prices.clone(), period }
    }

    /// Ages of calls.
    pub fn call_ages(&self) -> CallAges {
        let UsageAges { keep_1m_days, keep_1h_days } = self.usage;
        CallAges { minute: keep_1m_days.into(), hour: keep_1h_days.into() }
    }

    /// Settings of the replica's task.
    pub fn runner(&self) -> RunnerSettings {
        let Hosts { lease_seconds, confirm_seconds, moves_per_second } = self.hosts;
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        RunnerSettings {
            elections: Elections {
                address: self.address.clone(),
                lease_seconds: self.etcd.lease_seconds,
            },
            fleet: FleetSettings {
                lease: seconds(lease_seconds),
                confirm: seconds(confirm_seconds),
                moves_per_second: moves_per_second.into(),
                moves_burst: moves_per_second.into(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEAST: &str = r#"
        listen = "127.0.0.1:7700"
        address = "https://localhost:7700"
        images = "/var/lib/snic-fleet/images"
        [tls]
        ca = "ca.pem"
        certificate = "replica.pem"
        key = "replica.key"
        [etcd]
        endpoints = ["http://127.0.0.1:2379"]
    "#;

    #[test]
    fn the_least_settings_have_defaults_for_the_rest() {
        let settings = Settings::parse(LEAST).expect("enough");
        assert_eq!(settings.trust_domain, "snic.local");
        assert_eq!(settings.runner().elections.lease_seconds, 2);
        assert_eq!(settings.runner().fleet, FleetSettings::default());
    }

    /// The package's settings, as they are and with all that is commented out there.
    #[test]
    fn the_packaged_settings_have_every_key() {
        let text = include_str!("../package/snic-fleet.toml");
        let shipped = Settings::parse(text).expect("as shipped");
        let whole: String = text
            .lines()
            .filter(|line| !line.starts_with("# ") && !line.starts_with("images = "))
            .map(|line| format!("{}\n", line.strip_prefix('#').unwrap_or(line)))
            .collect();
        let settings = Settings::parse(&whole).expect("with all keys");
        // Without `..`, so that a new key has to be added here and there.
        let Settings {
            listen: _,
            address: _,
            trust_domain,
            tls: TlsPaths { ca: _, certificate: _, key: _, crl: Some(_) },
            etcd: Etcd { endpoints: _, tls: Some(_), lease_seconds },
            images,
            profiles_dir: Some(_),
            signatures: Signatures { allow_unsigned: false, provider, tenants: _ },
            audit_dir: Some(_),
            hosts,
            budgets: Budgets { prices: Some(_), period_seconds },
            usage,
            web: Some(PageSettings { listen: _ }),
            telemetry: Metrics { prometheus: Some(_) },
        } = settings
        else {
            panic!("{settings:?}")
        };
        let Images::Bucket(bucket) = images else { panic!("{images:?}") };
        let options = [&bucket.region, &bucket.endpoint].map(Option::is_some);
        assert!(options == [true; 2] && bucket.ca.is_some() && bucket.credentials.is_some());
        assert!(!bucket.prefix.is_empty() && !bucket.allow_http && provider.len() == 1);
        for key in ["trust_domain", "allow_http", "timeout_seconds", "moves_per_second"] {
            assert!(whole.contains(&format!("\n{key} = ")), "{key}");
        }
        assert_eq!(whole.matches("\nlease_seconds = ").count(), 2);
        assert_eq!(shipped.call_ages(), CallAges::default());
        let defaults = (shipped.trust_domain, shipped.etcd.lease_seconds, shipped.hosts);
        assert_eq!((trust_domain, lease_seconds, hosts), defaults);
        assert_eq!((period_seconds, usage), (shipped.budgets.period_seconds, shipped.usage));
        assert_eq!((shipped.signatures, shipped.web), (Signatures::default(), None));
    }

    #[test]
    fn what_is_wrong_is_named_by_its_key() {
        let cases = [
            ("https://localhost:7700", "http://localhost:7700", "address"),
            (r#"["http://127.0.0.1:2379"]"#, "[]", "etcd.endpoints"),
            ("[etcd]", "[etcd]\nlease_seconds = 1", "etcd.lease_seconds: 1 is not allowed"),
            ("[tls]", "[hosts]\nmoves_per_second = 0\n[tls]", "hosts.moves_per_second"),
            ("[tls]", "[budgets]\nperiod_seconds = 0\n[tls]", "budgets.period_seconds"),
            ("[tls]", "[usage]\nkeep_1m_days = 1\n[tls]", "usage.keep_1m_days"),
            ("[tls]", "[usage]\nkeep_1h_days = 31\n[tls]", "usage.keep_1h_days"),
            ("[tls]", "[hosts]\nmoves = 0\n[tls]", "unknown field `moves`"),
            ("listen = \"127.0.0.1:7700\"", "", "missing field `listen`"),
        ];
        for (from, to, expected) in cases {
            let error = Settings::parse(&LEAST.replace(from, to)).expect_err(expected);
            let told = format!("{error:#}");
            assert!(told.contains(expected), "{told}");
        }
    }
}
