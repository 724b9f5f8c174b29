//! The daemon's settings: one TOML file, every key with a default that `snicd config` prints.

mod fleet;
mod soft;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snic_bitstream::signature::Signatures;
use snic_card_soft::{Failover, FunctionGuard};
use snic_card_xrt::{CallDeadlines, CardSelector};
use snic_domain::{CardId, CardModel, PciAddress, VirtualFunctions};
use snic_front::identity::UnixPeers;

pub use fleet::FleetMembership;
pub use soft::Soft;

/// Smallest file size of the audit log: an entry has some hundred bytes, and with smaller files
/// `files_max` would keep only a few entries.
const AUDIT_FILE_BYTES_MIN: u64 = 64 << 10;

/// Printed instead of a secret.
const HIDDEN: &str = "(hidden)";

/// All settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Folder for the store, the bitstreams and the audit log.
    pub data_dir: PathBuf,
    /// Folder with policy files. Without one, the policies that ship with the program apply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policies_dir: Option<PathBuf>,
    /// Folder with card profiles (`*.toml`, as in `bitstreams/cards`), beside those that are compiled in; one of
    /// the same model takes the place of the compiled-in one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profiles_dir: Option<PathBuf>,
    /// Trust domain of the identities in client certificates: `spiffe://<trust domain>/tenant/<id>`.
    pub trust_domain: String,
    /// Addresses that clients connect to.
    pub listen: Listen,
    /// The web page for operators. Off by default.
    pub web: Web,
    /// The daemon's certificate, and the authority that client certificates must come from.
    pub tls: Tls,
    /// The log.
    pub log: LogSettings,
    /// Metrics and traces.
    pub telemetry: TelemetrySettings,
    /// The audit log in `data_dir/audit`: who changed what.
    pub audit: Audit,
    /// Rules for bitstreams that are accepted.
    pub signatures: Signatures,
    /// The fleet that this host belongs to. Without it, the host belongs to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetMembership>,
    /// The cards. Without any, DAGs are rejected.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cards: Vec<CardSettings>,
}

/// Addresses that clients connect to. Set at least one of `tcp` and `unix`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Listen {
    /// TCP address and port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<SocketAddr>,
    /// Path of a unix socket. Its owner and group may connect; the kernel tells which user does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unix: Option<PathBuf>,
    /// Users of the unix socket. Others have no identity there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unix_peers: Vec<UnixPeer>,
}

/// A user of this host, and what it is on the unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UnixPeer {
    /// Name or number of the user.
    pub user: OsUser,
    /// Its identities: `operator/<name>`, `tenant/<id>`, `tenant/<id>/<member>`, `orchestrator/<name>`;
    /// `*` instead of the last name allows every name. The first one applies unless the client asks for another one of these.
    pub identities: Vec<String>,
}

/// A user of this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OsUser {
    /// Its number.
    Number(u32),
    /// Its name in `/etc/passwd`.
    Name(String),
}

impl OsUser {
    /// Its number.
    ///
    /// # Errors
    /// There is no user with this name, or `/etc/passwd` cannot be read.
    pub fn number(&self) -> Result<u32, String> {
        let name = match self {
            Self::Number(number) => return Ok(*number),
            Self::Name(name) => name,
        };
        let users = std::fs::read_to_string("/etc/passwd")
            .map_err(|error| format!("cannot read /etc/passwd: {error}"))?;
        let number = users.lines().find_map(|line| {
            let mut fields = line.split(':');
            let is_it = fields.next() == Some(name);
            fields.nth(1).filter(|_| is_it)?.parse().ok()
        });
        number.ok_or_else(|| {
            format!("there is no user {name:?} in /etc/passwd; create it, or set its number")
        })
    }
}

/// The read-only web page for operators: cards, DAGs, shares and events.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Web {
    /// Address and port. Browsers must present an operator's client certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// Disables TLS, on loopback only. Anyone with the key in `data_dir/page.key` may read what an
    /// operator may read. Open the page with `http://<address>/?key=<key>`.
    pub insecure_plaintext: bool,
}

/// Certificates and keys, as PEM files. They are read again at SIGHUP (`systemctl reload snicd`).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// Certificate of the authority that issues client certificates.
    pub ca: PathBuf,
    /// The daemon's certificate.
    pub certificate: PathBuf,
    /// The private key of `certificate`.
    pub key: PathBuf,
    /// Lists of revoked certificates (CRLs) of every authority in clients' certificate chains. Of each authority the
    /// newest counts, also after its next update is due. Without them, no certificate is revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crl: Option<PathBuf>,
}

/// The log, written to standard error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// Log filter: a level such as `info`, or `target=level` pairs, separated by commas.
    pub filter: String,
    /// `human` or `json`.
    pub format: String,
}

/// Metrics and traces; both off by default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetrySettings {
    /// OpenTelemetry collector that receives metrics, traces and log lines (OTLP over gRPC), such
    /// as `http://127.0.0.1:4317`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp: Option<String>,
    /// Calls are sampled at 1/N; N is 1 or more. Tracing all calls costs processor time. Callers that send a
    /// `traceparent` decide for their calls; `snicctl` leaves it to the server unless it continues a trace.
    pub trace_one_in: u32,
    /// Address and port that serve `/metrics` for Prometheus. It needs no identity, and the metrics
    /// contain names of tenants and DAGs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<SocketAddr>,
}

impl Default for TelemetrySettings {
    fn default() -> Self {
        Self { otlp: None, trace_one_in: 100, prometheus: None }
    }
}

/// Size of the audit log that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Audit {
    /// Size at which a new file is started, in bytes: 65536 or more.
    pub file_bytes_max: u64,
    /// Number of files to keep; the oldest is deleted first. 1 or more.
    pub files_max: usize,
}

impl Default for Audit {
    /// Half a gigabyte: about two million changes.
    fn default() -> Self {
        Self { file_bytes_max: 8 << 20, files_max: 64 }
    }
}

/// Driver of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// A simulated card inside the daemon.
    Sim,
    /// A card of this host, through Xilinx's XRT.
    Xrt,
    /// A process of this host that forwards real packets. It outlives the daemon; killing it is a power
    /// loss of the card.
    Soft,
}

/// Access to a card through XRT.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct XrtSettings {
    /// The card: its PCI address, such as `"0000:3b:00.1"`, or its index in `xbutil examine`, which changes
    /// when a card is added.
    #[serde(default)]
    pub device: XrtDevice,
    /// The xclbin file with the card's role.
    pub role: PathBuf,
    /// The provider's signature of `role`, made as for a bitstream. Required unless unsigned bitstreams are
    /// accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role_signature: Option<PathBuf>,
    /// Kernel of the role that has the register map, as `kernel:instance`.
    #[serde(default = "control")]
    pub control: String,
    /// Interface UUID that the role must be built for, as `xbutil examine` shows it for the card's
    /// platform. The role is also checked against what the card's driver says of the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<uuid::Uuid>,
    /// The card's folder in sysfs, from which its sensors, link and platform are read. By default that of its PCI
    /// address; without either, none of that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sysfs: Option<PathBuf>,
    /// Additional environment variables for the process that calls XRT, such as `XILINX_XRT`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Deadlines of calls. After a deadline the process is killed and the card is opened again.
    #[serde(default)]
    pub deadlines: XrtDeadlines,
}

/// Card of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum XrtDevice {
    /// Index in `xbutil examine`.
    Number(u32),
    /// Its PCI address.
    Pci(PciAddress),
}

impl Default for XrtDevice {
    fn default() -> Self {
        Self::Number(0)
    }
}

impl From<XrtDevice> for CardSelector {
    fn from(device: XrtDevice) -> Self {
        match device {
            XrtDevice::Number(number) => Self::Number(number),
            XrtDevice::Pci(address) => Self::Pci(address),
        }
    }
}

fn control() -> String {
    snic_card_xrt::CONTROL.to_owned()
}

/// Deadlines of calls through XRT, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct XrtDeadlines {
    /// Opening the card and loading its role.
    pub open_ms: u64,
    /// A register access, per word.
    pub access_ms: u64,
    /// Copying a buffer.
    pub buffer_ms: u64,
}

impl Default for XrtDeadlines {
    fn default() -> Self {
        let deadlines = CallDeadlines::default();
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        Self {
            open_ms: ms(deadlines.open),
            access_ms: ms(deadlines.access),
            buffer_ms: ms(deadlines.buffer),
        }
    }
}

/// One card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CardSettings {
    /// Id of the card.
    pub id: CardId,
    /// Driver for this card.
    pub driver: Driver,
    /// Model of the card: one of `bitstreams/cards/`.
    pub model: CardModel,
    /// Seed of a simulated card.
    #[serde(default)]
    pub seed: u64,
    /// Virtual functions for virtual machines and pods. Without them, none can be bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<VirtualFunctions>,
    /// Access through XRT; required for `driver = "xrt"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xrt: Option<XrtSettings>,
    /// Ports and program of a card with `driver = "soft"`. Without ports it forwards no packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soft: Option<Soft>,
}

impl CardSettings {
    fn check_ports(&self) -> Result<(), String> {
        let Some(soft) = &self.soft else { return Ok(()) };
        if self.driver != Driver::Soft {
            return Err(format!(
                ": not allowed for driver = \"{}\"; remove it, or set driver = \"soft\"",
                self.driver
            ));
        }
        let declared = self.functions.map_or(0, |functions| functions.count);
        if soft.functions.len() > usize::from(declared) {
            return Err(format!(
                ".functions: {} ports for the {declared} functions that cards.functions.count declares",
                soft.functions.len()
            ));
        }
        FunctionGuard::check(&soft.guards, soft.functions.len())
            .map_err(|error| format!(".guards: {error}"))?;
        Failover::check(&soft.failovers, soft.functions.len())
            .map_err(|error| format!(".failovers: {error}"))?;
        let mut devices: Vec<_> = soft.ports().collect();
        if let (None, Some(port)) = (&soft.program, soft.shared_memory_port()) {
            return Err(format!(
                ": port {port}: snicd itself has no vhost-user ports; set program = \"/usr/bin/snic-card\", or use unix:PATH"
            ));
        }
        devices.sort_by_key(|port| port.device());
        let twice = devices.windows(2).find(|pair| pair[0].device() == pair[1].device());
        twice.map_or(Ok(()), |pair| Err(format!(": device {} is named twice", pair[0].device())))
    }
}

impl std::fmt::Display for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Sim => "sim",
            Self::Xrt => "xrt",
            Self::Soft => "soft",
        })
    }
}

impl CardSettings {
    /// The simulated card of the quick start.
    pub fn simulated() -> Self {
        Self {
            id: CardId::new("card0").expect("a label"),
            driver: Driver::Sim,
            model: CardModel::new("sim-16").expect("a label"),
            seed: 1,
            functions: Some(simulated_functions()),
            xrt: None,
            soft: None,
        }
    }
}

/// The virtual functions of the simulated card: 64, at the addresses after a made-up
/// physical function.
fn simulated_functions() -> VirtualFunctions {
    VirtualFunctions {
        physical_function: "0000:3b:00.0".parse().expect("an address"),
        count: 64,
        first_offset: 1,
        stride: 1,
    }
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { filter: "info".into(), format: "human".into() }
    }
}

impl Default for Settings {
    fn default() -> Self {
        let pki = Path::new("/etc/snic/pki");
        Self {
            data_dir: "/var/lib/snic".into(),
            policies_dir: None,
            profiles_dir: None,
            trust_domain: "snic.local".into(),
            listen: Listen {
                tcp: Some(SocketAddr::from(([127, 0, 0, 1], 7443))),
                unix: None,
                unix_peers: Vec::new(),
            },
            web: Web::default(),
            tls: Tls {
                ca: pki.join("ca.pem"),
                certificate: pki.join("server.pem"),
                key: pki.join("server.key"),
                crl: None,
            },
            log: LogSettings::default(),
            telemetry: TelemetrySettings::default(),
            audit: Audit::default(),
            signatures: Signatures::default(),
            fleet: None,
            cards: Vec::new(),
        }
    }
}

/// Why a settings file was rejected.
#[derive(Debug, thiserror::Error)]
pub enum InvalidSettings {
    /// It cannot be read.
    #[error("cannot read the settings file {path}: {source}")]
    Read {
        path: String,
        #[source]
        source: std::io::Error,
    },
    /// It is not TOML, or a key is wrong.
    #[error("{path}:{line}: {message}")]
    Key { path: String, line: usize, message: String },
    /// A value out of range, or keys that contradict each other.
    #[error("{path}: {message}")]
    Contradiction {
        path: String,
        /// The fault, naming the keys.
        message: String,
    },
}

impl Settings {
    /// Reads and checks a settings file.
    pub fn read(path: &Path) -> Result<Self, InvalidSettings> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|source| InvalidSettings::Read { path: name.clone(), source })?;
        Self::parse(&name, &text)
    }

    /// Parses the text of a settings file; `path` is for errors.
    pub fn parse(path: &str, text: &str) -> Result<Self, InvalidSettings> {
        let settings: Self = toml::from_str(text).map_err(|error| {
            let start = error.span().as_ref().map_or(0, |span: &Range<usize>| span.start);
            let line = text.bytes().take(start).filter(|byte| *byte == b'\n').count() + 1;
            let message = error.message().replace('\n', "; ");
            InvalidSettings::Key { path: path.to_owned(), line, message }
        })?;
        settings
            .check()
            .map_err(|message| InvalidSettings::Contradiction { path: path.to_owned(), message })?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), String> {
        if self.listen.tcp.is_none() && self.listen.unix.is_none() {
            return Err("listen: no address; set listen.tcp, listen.unix, or both".into());
        }
        self.unix_peers()?;
        for (i, card) in self.cards.iter().enumerate() {
            if self.cards[..i].iter().any(|other| other.id == card.id) {
                return Err(format!(
                    "cards[{i}].id: duplicate card id {}; ids must be unique",
                    card.id
                ));
            }
            match (card.driver, &card.xrt) {
                (Driver::Xrt, None) => {
                    let needed = "missing for driver = \"xrt\"; set at least cards.xrt.role, the xclbin with the card's role";
                    return Err(format!("cards[{i}].xrt: {needed}"));
                }
                (Driver::Sim | Driver::Soft, Some(_)) => {
                    return Err(format!(
                        "cards[{i}].xrt: not allowed for driver = \"{}\"; remove it, or set driver = \"xrt\"",
                        card.driver
                    ));
                }
                _ => {}
            }
            card.check_ports().map_err(|what| format!("cards[{i}].soft{what}"))?;
        }
        self.check_functions()?;
        self.fleet.as_ref().map_or(Ok(()), FleetMembership::check)?;
        if self.audit.file_bytes_max < AUDIT_FILE_BYTES_MIN || self.audit.files_max == 0 {
            return Err(format!(
                "audit: file_bytes_max = {} must be {AUDIT_FILE_BYTES_MIN} or more and files_max = \
                 {} must be 1 or more",
                self.audit.file_bytes_max, self.audit.files_max
            ));
        }
        if self.telemetry.trace_one_in == 0 {
            return Err(
                "telemetry.trace_one_in = 0 is not allowed: use 1 (trace every call) or more"
                    .into(),
            );
        }
        self.log
            .format
            .parse::<snic_telemetry::LogFormat>()
            .map_err(|e| format!("log.format: {e}"))?;
        Ok(())
    }

    /// The users of the unix socket with their identities.
    ///
    /// # Errors
    /// A user or an identity that does not exist, with its key.
    pub fn unix_peers(&self) -> Result<UnixPeers, String> {
        let mut peers = UnixPeers::default();
        for (i, peer) in self.listen.unix_peers.iter().enumerate() {
            let at = format!("listen.unix_peers[{i}]");
            let user = peer.user.number().map_err(|error| format!("{at}.user: {error}"))?;
            let allowed = peers.allow(user, &peer.identities);
            allowed.map_err(|error| format!("{at}.identities: {error}"))?;
        }
        Ok(peers)
    }

    fn check_functions(&self) -> Result<(), String> {
        let with = self.cards.iter().enumerate().filter_map(|(i, c)| Some((i, c.functions?)));
        let with: Vec<(usize, VirtualFunctions)> = with.collect();
        for (at, (i, functions)) in with.iter().enumerate() {
            if !functions.is_valid() {
                return Err(format!(
                    "cards[{i}].functions: count = {} with first_offset = {} and stride = {} does not \
                     give each function its own PCI address",
                    functions.count, functions.first_offset, functions.stride
                ));
            }
            if let Some((other, _)) = with[..at].iter().find(|(_, f)| f.overlaps(functions)) {
                return Err(format!(
                    "cards[{i}].functions: PCI addresses overlap with those of cards[{other}]"
                ));
            }
        }
        Ok(())
    }

    /// The settings without secrets, for support bundles: values of environment variables and the
    /// user part of URLs are replaced. Keys are in their own files; only the paths are here.
    pub fn without_secrets(&self) -> Self {
        let mut shown = self.clone();
        for xrt in shown.cards.iter_mut().filter_map(|card| card.xrt.as_mut()) {
            xrt.environment.values_mut().for_each(|value| HIDDEN.clone_into(value));
        }
        if let Some(otlp) = &mut shown.telemetry.otlp
            && let Some((scheme, rest)) = otlp.split_once("://")
            && let Some((_, host)) = rest.rsplit_once('@')
        {
            *otlp = format!("{scheme}://{HIDDEN}@{host}");
        }
        shown
    }

    /// The settings as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("settings have text keys and no type that TOML cannot say")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Settings::parse("snicd.toml", text).expect_err(text).to_string()
    }

    #[test]
    fn the_printed_defaults_are_read_back_as_the_defaults() {
        let text = Settings::default().to_toml();
        assert_eq!(Settings::parse("x", &text).expect("own output"), Settings::default());
        assert_eq!(Settings::parse("x", "").expect("nothing set"), Settings::default());
    }

    #[test]
    fn errors_name_file_line_and_key() {
        assert!(error("data_dir = \"/x\"\ncolour = 1").starts_with("snicd.toml:2: "), "no line");
        assert!(error("data_dir = \"/x\"\ncolour = 1").contains("colour"));
        assert!(error("[listen]\ntcp = \"here\"").starts_with("snicd.toml:2: "));
        let card = "[[cards]]\nid = \"Card 0\"\ndriver = \"sim\"\nmodel = \"sim-16\"";
        assert!(error(card).contains("Card 0"), "{}", error(card));
        let driver = "[[cards]]\nid = \"c\"\ndriver = \"magic\"\nmodel = \"sim-16\"";
        assert!(error(driver).starts_with("snicd.toml:3: "), "{}", error(driver));
    }

    #[test]
    fn contradictions_are_refused() {
        assert!(error("[listen]").contains("listen.tcp, listen.unix"));
        let card = "[[cards]]\nid = \"c\"\ndriver = \"sim\"\nmodel = \"sim-16\"\n";
        assert!(error(&card.repeat(2)).contains("cards[1].id"));
        let functions = "functions = { physical_function = \"0000:3b:00.0\", count = 4, ";
        let one = format!("{card}{functions}first_offset = 1, stride = 0 }}\n");
        assert!(error(&one).contains("cards[0].functions"), "{}", error(&one));
        let one = format!("{card}{functions}first_offset = 1, stride = 1 }}\n");
        let both = format!("{one}{}", one.replace("\"c\"", "\"d\""));
        assert!(error(&both).contains("cards[1].functions"), "{}", error(&both));
        assert!(error("[telemetry]\ntrace_one_in = 0").contains("trace_one_in"));
        assert!(error("[audit]\nfiles_max = 0").contains("audit: file_bytes_max"));
        assert!(error("[log]\nformat = \"xml\"").contains("log.format"));
        let peer = |user: &str, identity: &str| {
            error(&format!(
                "[listen]\nunix = \"/x\"\n[[listen.unix_peers]]\nuser = {user}\nidentities = [\"{identity}\"]"
            ))
        };
        let found = peer("\"nobody-has-this-name\"", "operator/root");
        assert!(found.contains("listen.unix_peers[0].user: there is no user"), "{found}");
        let found = peer("\"root\"", "operator");
        assert!(found.contains("listen.unix_peers[0].identities: \"operator\""), "{found}");
        let xrt = card.replace("sim\"\nmodel", "xrt\"\nmodel");
        assert!(error(&xrt).contains("set at least cards.xrt.role"));
        let both = format!("{card}[cards.xrt]\nrole = \"/x\"");
        assert!(error(&both).contains("not allowed for driver = \"sim\""), "{}", error(&both));
    }

    #[test]
    fn ports_of_a_software_card_are_checked() {
        let card = "[[cards]]\nid = \"c\"\ndriver = \"soft\"\nmodel = \"sim-16\"\n\
                    functions = { physical_function = \"0000:3b:00.0\", count = 1, first_offset = 1, stride = 1 }\n";
        let with = |ports: &str| format!("{card}[cards.soft]\n{ports}");
        let good = with(
            "uplink = \"interface:eth1\"\nfunctions = [\"tap:f0\"]\nprogram = \"/usr/bin/snic-card\"",
        );
        let settings = Settings::parse("x", &good).expect("valid");
        assert_eq!(Settings::parse("x", &settings.to_toml()).expect("own output"), settings);
        let wrong = error(&with("uplink = \"eth1\""));
        assert!(wrong.contains("\"eth1\" is not a port; allowed: tap:NAME"), "{wrong}");
        assert!(
            error(&with("functions = [\"tap:a\", \"tap:b\"]"))
                .contains("2 ports for the 1 functions")
        );
        let shared = "functions = [\"vhost-user:/run/vf0\"]";
        let wrong = error(&with(shared));
        assert!(
            wrong.contains("cards[0].soft: port vhost-user:/run/vf0: snicd itself has no"),
            "{wrong}"
        );
        let full = with(&format!("{shared}\nprogram = \"/usr/bin/snic-card\""));
        Settings::parse("x", &full).expect("the full program has them");
        let twice = with("uplink = \"tap:a\"\nfunctions = [\"tap:a\"]");
        assert!(error(&twice).contains("device a is named twice"));
        let guard = "[[cards.soft.guards]]\nfunction = 0\nmacs = [\"02:00:00:00:00:01\"]\nvlans = [5]\ngroup_frames_per_second = 100";
        let guarded = Settings::parse("x", &format!("{good}\n{guard}")).expect("valid");
        assert_eq!(Settings::parse("x", &guarded.to_toml()).expect("own output"), guarded);
        let other = guard.replace("function = 0", "function = 1");
        let wrong = error(&format!("{good}\n{other}"));
        assert!(wrong.contains("cards[0].soft.guards: function = 1 for function 1"), "{wrong}");
        let failover = "[[cards.soft.failovers]]\nmacs = [\"00:00:5e:00:01:33\"]\nfunctions = [0]";
        let shared = Settings::parse("x", &format!("{good}\n{failover}")).expect("valid");
        assert_eq!(Settings::parse("x", &shared.to_toml()).expect("own output"), shared);
        let other = failover.replace("functions = [0]", "functions = [1]");
        let wrong = error(&format!("{good}\n{other}"));
        assert!(wrong.contains("cards[0].soft.failovers: functions = 1 in failover 0"), "{wrong}");
        let sim = good.replace("\"soft\"", "\"sim\"");
        assert!(
            error(&sim).contains("cards[0].soft: not allowed for driver = \"sim\""),
            "{}",
            error(&sim)
        );
    }

    #[test]
    fn a_card_through_xrt_needs_only_its_role() {
        let text =
            "[[cards]]\nid = \"c\"\ndriver = \"xrt\"\nmodel = \"u280\"\n[cards.xrt]\nrole = \"/x\"";
        let settings = Settings::parse("x", text).expect("enough");
        let xrt = settings.cards[0].xrt.as_ref().expect("it is there");
        assert_eq!(xrt.control, snic_card_xrt::CONTROL);
        assert_eq!(xrt.deadlines.open_ms, 120_000);
        assert_eq!(Settings::parse("x", &settings.to_toml()).expect("own output"), settings);
    }

    #[test]
    fn possible_secrets_are_not_shown() {
        let text = "[telemetry]\notlp = \"https://me:hunter2@collector:4317\"\n\
                    [[cards]]\nid = \"c\"\ndriver = \"xrt\"\nmodel = \"u280\"\n\
                    [cards.xrt]\nrole = \"/x\"\nenvironment = { LICENSE = \"hunter2\" }";
        let shown = Settings::parse("x", text).expect("valid").without_secrets().to_toml();
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains("https://(hidden)@collector:4317"), "{shown}");
        assert!(shown.contains("LICENSE = \"(hidden)\""), "{shown}");
        assert!(shown.contains("/etc/snic/pki/server.key"), "paths are shown: {shown}");
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = Settings::read(Path::new("/nonexistent/snicd.toml")).expect_err("missing");
        assert!(error.to_string().contains("/nonexistent/snicd.toml"), "{error}");
    }
}
