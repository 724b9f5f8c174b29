//! The daemon's settings: one TOML file, every key with a default that `snicd config` prints.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use snic_card_xrt::CallDeadlines;
use snic_domain::{CardId, CardModel, TenantId, VirtualFunctions};

/// Smallest file of the audit log: a line has some hundreds of bytes, and in files of a few lines
/// their number would be the limit.
const AUDIT_FILE_BYTES_MIN: u64 = 64 << 10;

/// What is shown in the place of a secret.
const HIDDEN: &str = "(hidden)";

/// All settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where the store and the bitstreams are kept.
    pub data_dir: PathBuf,
    /// Folder with policy files; without one the shipped policies are in force.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policies_dir: Option<PathBuf>,
    /// The trust domain of the identities in certificates: `spiffe://<trust domain>/tenant/<id>`.
    pub trust_domain: String,
    /// Where clients connect.
    pub listen: Listen,
    /// The page for operators' browsers; off by default.
    pub web: Web,
    /// The daemon's certificate, and whom it believes.
    pub tls: Tls,
    /// Log lines.
    pub log: Log,
    /// Metrics and traces.
    pub telemetry: Telemetry,
    /// The audit log, in `audit` of the data folder: who changed what.
    pub audit: Audit,
    /// Whose bitstreams are taken.
    pub signatures: Signatures,
    /// The cards.
    pub cards: Vec<Card>,
}

/// Where clients connect; at least one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Listen {
    /// Address and port for TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp: Option<SocketAddr>,
    /// Path of a unix socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unix: Option<PathBuf>,
    /// No TLS: whoever connects is who it says it is. Only on loopback or a unix socket.
    pub insecure_plaintext: bool,
}

/// The page for operators' browsers: what the cards and DAGs do, nothing to change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Web {
    /// Address and port. The browser shows a certificate of an operator, as every client does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<SocketAddr>,
    /// No TLS, only on loopback: whoever has the key in `data_dir/page.key` may read all that an
    /// operator may. The page is opened by `http://<address>/?key=<key>`.
    pub insecure_plaintext: bool,
}

/// Certificates, as PEM files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tls {
    /// The authority whose client certificates are believed.
    pub ca: PathBuf,
    /// The daemon's certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// Whose bitstreams are taken: ed25519 public keys, as PEM files.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Signatures {
    /// Takes bitstreams without a signature too. They are shown as such.
    pub allow_unsigned: bool,
    /// Keys of the provider: good for every bitstream.
    pub provider: Vec<PathBuf>,
    /// Keys of tenants, by their id: good for their own bitstreams.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tenants: BTreeMap<TenantId, Vec<PathBuf>>,
}

/// Log lines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// What is logged: `target=level`, comma separated.
    pub filter: String,
    /// `human` or `json`.
    pub format: String,
}

/// Metrics and traces; both off by default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    /// An OpenTelemetry collector (OTLP over gRPC, such as `http://127.0.0.1:4317`), which gets
    /// metrics, traces and log lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp: Option<String>,
    /// Of calls whose caller says nothing of a trace one in so many is traced, 1 or more: tracing
    /// all of them takes processor time from the calls. Whoever sends `traceparent`, as `snicctl`
    /// does, decides for its calls.
    pub trace_one_in: u32,
    /// Where Prometheus reads `/metrics`. It needs no identity and tells names of tenants and DAGs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<SocketAddr>,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self { otlp: None, trace_one_in: 100, prometheus: None }
    }
}

/// How much of the audit log is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Audit {
    /// Size from which on the next file is begun, in bytes: 65536 or more.
    pub file_bytes_max: u64,
    /// Most files that are kept; then the oldest goes. 1 or more.
    pub files_max: usize,
}

impl Default for Audit {
    /// Half a gigabyte: some two million changes.
    fn default() -> Self {
        Self { file_bytes_max: 8 << 20, files_max: 64 }
    }
}

/// By what a card is driven.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Driver {
    /// The simulated card, inside the daemon.
    Sim,
    /// A card in this machine, through Xilinx's XRT.
    Xrt,
}

/// How a card is reached through XRT.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Xrt {
    /// The card's number, as `xbutil examine` counts them.
    #[serde(default)]
    pub device: u32,
    /// The role that the card is loaded with: an xclbin.
    pub role: PathBuf,
    /// The kernel of the role with the register map, as `kernel:instance`.
    #[serde(default = "control")]
    pub control: String,
    /// The interface that the role has to have been built against: what `xbutil examine` shows of
    /// the card's platform. Without it the role is not held against the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<uuid::Uuid>,
    /// Environment of the process that calls XRT, besides the daemon's: `XILINX_XRT` and the like.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// How long calls may take before the process is killed and the card opened anew.
    #[serde(default)]
    pub deadlines: XrtDeadlines,
}

fn control() -> String {
    snic_card_xrt::CONTROL.to_owned()
}

/// How long calls through XRT may take, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct XrtDeadlines {
    /// Opening the card and loading its role.
    pub open_ms: u64,
    /// An access to registers; one more for each word.
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
pub struct Card {
    /// Its id.
    pub id: CardId,
    /// By what it is driven.
    pub driver: Driver,
    /// Its model: one of `bitstreams/cards/`.
    pub model: CardModel,
    /// Seed of a simulated card.
    #[serde(default)]
    pub seed: u64,
    /// Its virtual functions, for machines; without them none can be bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<VirtualFunctions>,
    /// How it is reached, with `driver = "xrt"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xrt: Option<Xrt>,
}

/// The functions of the simulated card of the defaults: 64, right behind an address that stands
/// for it.
fn simulated_functions() -> VirtualFunctions {
    VirtualFunctions {
        physical_function: "0000:3b:00.0".parse().expect("an address"),
        count: 64,
        first_offset: 1,
        stride: 1,
    }
}

impl Default for Log {
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
            trust_domain: "snic.local".into(),
            listen: Listen {
                tcp: Some(SocketAddr::from(([127, 0, 0, 1], 7443))),
                unix: None,
                insecure_plaintext: false,
            },
            web: Web::default(),
            tls: Tls {
                ca: pki.join("ca.pem"),
                certificate: pki.join("server.pem"),
                key: pki.join("server.key"),
            },
            log: Log::default(),
            telemetry: Telemetry::default(),
            audit: Audit::default(),
            signatures: Signatures::default(),
            cards: vec![Card {
                id: CardId::new("card0").expect("a label"),
                driver: Driver::Sim,
                model: CardModel::new("sim-16").expect("a label"),
                seed: 1,
                functions: Some(simulated_functions()),
                xrt: None,
            }],
        }
    }
}

/// A settings file that is not used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidSettings {
    /// It cannot be read.
    #[error("settings file {path}: {source}")]
    Read {
        /// Which.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is not TOML, or a key is wrong.
    #[error("{path}:{line}: {message}")]
    Key {
        /// Which.
        path: String,
        /// Where.
        line: usize,
        /// What is wrong.
        message: String,
    },
    /// Keys that do not go together.
    #[error("{path}: {message}")]
    Contradiction {
        /// Which.
        path: String,
        /// What is wrong, with the keys.
        message: String,
    },
}

impl Settings {
    /// Reads a settings file, whole or not at all.
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
            return Err("listen: set tcp or unix, else nobody can connect".into());
        }
        for (i, card) in self.cards.iter().enumerate() {
            if self.cards[..i].iter().any(|other| other.id == card.id) {
                return Err(format!("cards[{i}].id: card {} is there twice", card.id));
            }
            match (card.driver, &card.xrt) {
                (Driver::Xrt, None) => {
                    let needed = "set at least cards.xrt.role, the xclbin of the card's role";
                    return Err(format!("cards[{i}].xrt: {needed}"));
                }
                (Driver::Sim, Some(_)) => {
                    return Err(format!("cards[{i}].xrt: only for cards with driver = \"xrt\""));
                }
                _ => {}
            }
        }
        self.check_functions()?;
        if self.audit.file_bytes_max < AUDIT_FILE_BYTES_MIN || self.audit.files_max == 0 {
            return Err(format!(
                "audit: file_bytes_max has to be {AUDIT_FILE_BYTES_MIN} or more, files_max 1 or more"
            ));
        }
        if self.telemetry.trace_one_in == 0 {
            return Err("telemetry.trace_one_in: it has to be 1 or more".into());
        }
        self.log
            .format
            .parse::<snic_telemetry::LogFormat>()
            .map_err(|e| format!("log.format: {e}"))?;
        Ok(())
    }

    fn check_functions(&self) -> Result<(), String> {
        let with = self.cards.iter().enumerate().filter_map(|(i, c)| Some((i, c.functions?)));
        let with: Vec<(usize, VirtualFunctions)> = with.collect();
        for (at, (i, functions)) in with.iter().enumerate() {
            if !functions.is_valid() {
                return Err(format!(
                    "cards[{i}].functions: {} functions with first_offset {} and stride {} do not \
                     have an address each",
                    functions.count, functions.first_offset, functions.stride
                ));
            }
            if let Some((other, _)) = with[..at].iter().find(|(_, f)| f.overlaps(functions)) {
                return Err(format!(
                    "cards[{i}].functions: some address is also one of cards[{other}]"
                ));
            }
        }
        Ok(())
    }

    /// The settings as they are shown to whoever looks into a problem: the values of environment
    /// variables and what stands before the host of a URL may be secret. Keys are in files of their
    /// own, of which only the paths are here.
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

    /// The settings as a file.
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
        assert!(error("[listen]").contains("tcp or unix"));
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
        let xrt = card.replace("sim\"\nmodel", "xrt\"\nmodel");
        assert!(error(&xrt).contains("cards[0].xrt: set at least cards.xrt.role"));
        let both = format!("{card}[cards.xrt]\nrole = \"/x\"");
        assert!(error(&both).contains("only for cards with driver"), "{}", error(&both));
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
    fn what_may_be_secret_is_not_shown() {
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
