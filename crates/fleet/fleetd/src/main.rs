//! `snic-fleet`: a replica of the fleet's service.

use std::cell::Cell;
use std::fmt::Display;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::{CommandFactory as _, Parser};
use mimalloc::MiMalloc;
use snic_api::text::escaped_lines;
use snic_audit::{AuditLog, AuditSettings};
use snic_bitstream::catalogue::{UploadRules, with_profiles};
use snic_bitstream::signature::Trust;
use snic_etcd::{Compare, Operation, Request, Revision, Transaction};
use snic_fleetd::settings::{Settings, check_replica};
use snic_fleetd::{
    ELECTIONS, FleetBound, FleetServerSettings, METHODS, MetricsPage, RECORDS, bind,
};
use snic_front::TlsReloader;
use snic_front::identity::TrustDomain;
use snic_front::settings::{FrontSettings, Limits, TlsSettings};
use snic_front::signals::StopSignals;
use snic_front::uploads::UploadCheck;
use snic_output::{self as output, complain};
use snic_store_etcd::{BlobsUnusable, EtcdConnection};
use snic_telemetry::{LogFormat, Telemetry};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// Allocator of the program: what a leader does is allocated by one thread and freed by others; see the measurements.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// A replica of the service that runs a fleet of hosts with SmartNICs.
#[derive(Debug, Parser)]
#[command(name = "snic-fleet", version)]
struct Arguments {
    /// The settings, TOML
    #[arg(
        long,
        short,
        value_name = "FILE",
        env = "SNIC_FLEET_CONFIG",
        default_value = "/etc/snic-fleet/snic-fleet.toml"
    )]
    config: PathBuf,
    /// Filter of the log
    #[arg(long, value_name = "FILTER", default_value = "info", env = "SNIC_LOG")]
    log: String,
    /// Format of the log: human or json
    #[arg(long, value_name = "FORMAT", default_value = "human")]
    log_format: LogFormat,
    /// Only check settings, certificates and keys, that etcd answers, and that images can be stored and read. Run it as
    /// the user of the service: it makes the folder of images
    #[arg(long)]
    check: bool,
    /// Print the manual page in roff
    #[arg(long, hide = true, exclusive = true)]
    man: bool,
}

/// Each host has a connection and a stream, and each other replica brings many callers' requests on one connection.
fn limits() -> Limits {
    Limits {
        connections_max: 8_192,
        streams_max: 8_192,
        calls_max: 4_096,
        turns: 1_024,
        calls_per_connection_max: 1_024,
        ..Limits::default()
    }
}

/// Files of an audit log, and their size in bytes.
const AUDIT_FILES_MAX: usize = 8;
const AUDIT_FILE_BYTES_MAX: u64 = 16 << 20;

/// Time that images are kept that no bitstream names.
const UNNAMED_IMAGES_KEPT: Duration = Duration::from_secs(3_600);

/// Time that a replica waits at its start for the store of images.
const IMAGES_MAX: Duration = Duration::from_secs(10);

/// Time that threads have to end what they do for a replica that has stopped.
const THREADS_END_MAX: Duration = Duration::from_secs(1);

fn server(settings: &Settings) -> Result<FleetServerSettings> {
    let domain = TrustDomain::new(&settings.trust_domain).context("trust_domain")?;
    let tls = settings.listener_tls()?;
    warn_about(&tls);
    let peers = peers(&tls);
    let audit = settings.audit_dir.clone().map(|folder| {
        AuditLog::open(AuditSettings {
            folder,
            file_bytes_max: AUDIT_FILE_BYTES_MAX,
            files_max: AUDIT_FILES_MAX,
        })
    });
    let audit = audit.transpose().context("audit_dir: open the audit log")?;
    let front = FrontSettings {
        tcp: Some(settings.listen),
        tls: Some(tls),
        limits: limits(),
        audit,
        ..FrontSettings::new(domain, METHODS)
    };
    Ok(FleetServerSettings {
        front,
        runner: settings.runner(),
        peers,
        images: settings.images.open()?,
        unnamed_images_kept: UNNAMED_IMAGES_KEPT,
        upload_check: UploadCheck::by_rules(upload_rules(settings)?),
        budgets: settings.budgets(),
        call_ages: settings.call_ages(),
        web: settings.web.as_ref().map(|web| web.listen),
        metrics: None,
    })
}

/// Certificate that this replica presents to others as a client, and the authority that it trusts.
fn peers(tls: &TlsSettings) -> ClientTlsConfig {
    ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(tls.client_authority.text()))
        .identity(Identity::from_pem(tls.certificate.text(), tls.key.text()))
}

/// Warns about what others will reject.
fn warn_about(tls: &TlsSettings) {
    if let Err(error) = check_replica(tls, SystemTime::now()) {
        tracing::warn!(error = error.to_string(), "others will reject the replica's certificate");
    }
}

/// Reads certificates and revocation lists again at SIGHUP. What cannot be used changes nothing.
async fn reload_on_signal(
    settings: &Settings,
    mut hangup: Signal,
    listener: TlsReloader,
    as_client: watch::Sender<ClientTlsConfig>,
) -> Result<()> {
    while hangup.recv().await.is_some() {
        let read = settings.listener_tls();
        match read.and_then(|tls| Ok(listener.reload(&tls).map(|()| tls)?)) {
            Ok(tls) => {
                warn_about(&tls);
                as_client.send_replace(peers(&tls));
                tracing::info!("certificates reloaded");
            }
            Err(error) => {
                tracing::error!("certificates are not reloaded, those before stay: {error:#}");
            }
        }
    }
    Ok(())
}

/// Keys whose signatures count, and the profiles of cards with their floor plans.
fn upload_rules(settings: &Settings) -> Result<UploadRules> {
    let trust = Trust::read(&settings.signatures)?;
    Ok(UploadRules { trust, catalogue: with_profiles(settings.profiles_dir.as_deref())? })
}

/// Prints the findings and counts the problems.
#[derive(Debug, Default)]
struct Findings {
    wrong: usize,
    /// Whether a finding could not be printed.
    is_cut: Cell<bool>,
}

impl Findings {
    /// Prints a line; one that cannot be written is on standard error at least.
    fn say(&self, line: std::fmt::Arguments<'_>) {
        if let Err(error) = output::line(line) {
            complain!("snic-fleet: print a finding: {error}: {line}");
            self.is_cut.set(true);
        }
    }

    /// The result of the whole.
    fn end(&self) -> Result<()> {
        match self.wrong {
            0 if self.is_cut.get() => {
                bail!("nothing is wrong, but not all of that could be printed")
            }
            0 => Ok(()),
            wrong => bail!("problems found: {wrong}; see the lines that start with WRONG"),
        }
    }

    fn add(&mut self, part: &str, good: impl Display, result: Result<()>) {
        match result {
            Ok(()) => self.say(format_args!("ok    {part}: {}", escaped_lines(&good.to_string()))),
            Err(error) => {
                self.wrong += 1;
                let text = output::with_remedy(format!("{error:#}"), error.chain());
                self.say(format_args!("WRONG {part}: {}", escaped_lines(&text)));
            }
        }
    }
}

/// Whether any bitstream can be accepted.
fn can_accept(settings: &Settings) -> Result<()> {
    let UploadRules { trust, .. } = upload_rules(settings)?;
    if trust.provider.is_empty() && trust.tenants.is_empty() && !trust.allows_unsigned {
        bail!("there is no key, so every bitstream is rejected; name one in signatures.provider");
    }
    Ok(())
}

/// Whether a member of etcd answers, and accepts writes of this replica.
async fn ask_etcd(settings: &Settings) -> Result<()> {
    let etcd = EtcdConnection::new(settings.etcd()?).await?;
    for prefix in [RECORDS, ELECTIONS] {
        let read = Request::Range { prefix: prefix.to_owned(), at: None, from: None, limit: 1 };
        etcd.ask(&read).await.with_context(|| format!("read {prefix}"))?;
        // etcd checks room and permission before it compares, and this compare never holds: nothing is written.
        let key = format!("{prefix}check");
        let put = Operation::Put { key: key.clone(), value: Vec::new(), lease: None };
        let compares = vec![Compare::CreatedAt(key, Revision(i64::MAX))];
        let write = Request::Commit(Transaction { compares, operations: vec![put] });
        etcd.ask(&write).await.with_context(|| format!("write {prefix}"))?;
    }
    Ok(())
}

/// Whether images can be stored and read.
async fn try_images(settings: &Settings) -> Result<()> {
    let images = settings.images.open()?;
    let checked = tokio::time::timeout(IMAGES_MAX, settings.images.check(&images)).await;
    checked.with_context(|| format!("no answer within {IMAGES_MAX:?}"))??;
    Ok(())
}

/// Certificates, key and lists of revoked certificates.
fn check_tls(settings: &Settings, now: SystemTime, findings: &mut Findings) {
    let good = "certificates, key and revocation list can be used";
    let checked = settings.listener_tls().and_then(|tls| Ok((tls.check()?, tls)));
    let (lists, tls) = match checked {
        Ok(checked) => checked,
        Err(error) => return findings.add("tls", good, Err(error)),
    };
    findings.add("tls", good, check_replica(&tls, now).map_err(Into::into));
    for list in lists {
        let problem = list.problem(now).map_or(Ok(()), |problem| Err(anyhow!(problem)));
        findings.add("tls", format!("tls.crl: {list}"), problem);
    }
}

/// Checks everything that a start needs but the listeners, which a running replica has; fails if there is a problem.
async fn check(settings: &Settings) -> Result<()> {
    let mut findings = Findings::default();
    let domain = TrustDomain::new(&settings.trust_domain);
    findings.add("trust_domain", &settings.trust_domain, domain.map(drop).map_err(Into::into));
    check_tls(settings, SystemTime::now(), &mut findings);
    findings.add("signatures", "keys and card profiles can be read", can_accept(settings));
    findings.add("etcd", settings.etcd.endpoints.join(", "), ask_etcd(settings).await);
    findings.add("images", "they can be stored and read", try_images(settings).await);
    if let Some(folder) = &settings.audit_dir {
        let tried = output::try_folder(folder).map(drop).map_err(Into::into);
        findings.add("audit_dir", format!("{} can be written", folder.display()), tried);
    }
    findings.end()
}

/// Binds the metrics page, if there is one.
async fn metrics_page(
    settings: &Settings,
    telemetry: Arc<Telemetry>,
) -> Result<Option<MetricsPage>> {
    let Some(address) = settings.telemetry.prometheus else { return Ok(None) };
    let listener = tokio::net::TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("telemetry.prometheus: {address}"))?;
    Ok(Some(MetricsPage { listener, telemetry }))
}

/// Everything of a replica that has to be there before it serves: etcd's settings, images, listeners.
async fn prepare(
    settings: &Settings,
    telemetry: Arc<Telemetry>,
) -> Result<(EtcdConnection, FleetBound)> {
    let etcd = EtcdConnection::new(settings.etcd()?).await.context("etcd.endpoints")?;
    let mut server = server(settings)?;
    server.metrics = metrics_page(settings, telemetry).await?;
    match tokio::time::timeout(IMAGES_MAX, settings.images.check(&server.images)).await {
        Ok(Ok(())) => {}
        Ok(Err(error @ BlobsUnusable::Refused(_))) => return Err(error).context("images"),
        // All but uploads and fetches of images works without them, and they may come back.
        Ok(Err(BlobsUnusable::Away(error))) => tracing::error!(error, "starting without images"),
        Err(_) => tracing::error!(waited = ?IMAGES_MAX, "starting without images: no answer"),
    }
    Ok((etcd, bind(server).await.context("listen")?))
}

async fn run(settings: &Settings, telemetry: Arc<Telemetry>) -> Result<()> {
    // A signal that nobody waits for yet ends the program, so they are awaited before anything else begins.
    let mut stops = StopSignals::of_daemon().context("wait for signals")?;
    let hangup = signal(SignalKind::hangup()).context("wait for signals")?;
    // Images may be away for seconds, and nothing is served yet that would have to end in order.
    let (etcd, bound) = tokio::select! {
        prepared = prepare(settings, telemetry) => prepared?,
        () = stops.wait() => return Ok(()),
    };
    if let Some(address) = bound.tcp_address() {
        tracing::info!(%address, "snic-fleet is up");
    }
    if let Some(address) = bound.web_address() {
        tracing::info!(%address, "the web page is served");
    }
    let listener = bound.tls_reloader().context("a replica serves over TLS only")?;
    let as_client = bound.peers_reloader();
    let shutdown = async {
        let ended = tokio::select! {
            () = stops.wait() => Ok(()),
            ended = reload_on_signal(settings, hangup, listener, as_client) => ended,
        };
        if let Err(error) = ended {
            tracing::error!("{error:#}");
        }
    };
    bound.serve(etcd, shutdown).await.context("serve")
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return output::exit_code(error.print(), error.exit_code()),
    };
    match begin(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let text = output::with_remedy(format!("{error:#}"), error.chain());
            complain!("snic-fleet: {}", escaped_lines(&text));
            ExitCode::FAILURE
        }
    }
}

fn begin(arguments: &Arguments) -> Result<()> {
    if arguments.man {
        let mut page = Vec::new();
        clap_mangen::Man::new(Arguments::command()).render(&mut page)?;
        return output::bytes(&page).context("print the manual page");
    }
    let settings = Settings::read(&arguments.config)?;
    let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
    if arguments.check {
        return runtime.block_on(check(&settings));
    }
    let (filter, format) = (&arguments.log, arguments.log_format);
    let telemetry = snic_telemetry::init(filter, format, ("snic-fleet", None));
    let telemetry = telemetry.context("set up the log and metrics")?;
    let ended = runtime.block_on(run(&settings, Arc::new(telemetry)));
    // A look at images that hangs in the system, such as for a name, does not hold up the end.
    runtime.shutdown_timeout(THREADS_END_MAX);
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unsigned bitstreams are refused unless the settings say otherwise; keys that cannot be read are named.
    #[test]
    fn the_settings_say_whose_bitstreams_are_accepted() {
        let settings = |signatures: &str| {
            let text = format!(
                "listen = \"127.0.0.1:7700\"\naddress = \"https://localhost:7700\"\nimages = \"images\"\n\
                 [tls]\nca = \"ca.pem\"\ncertificate = \"replica.pem\"\nkey = \"replica.key\"\n\
                 [etcd]\nendpoints = [\"http://127.0.0.1:2379\"]\n{signatures}"
            );
            Settings::parse(&text).expect("valid settings")
        };
        let catalogue = with_profiles(None).expect("it ships");
        let (chain, card) = (&catalogue.chains[0], catalogue.cards[0].clone());
        let (declared, bytes) = catalogue.test_bitstream(chain, &card).expect("a chain");
        let check = |text: &str| {
            let rules = upload_rules(&settings(text)).expect("no keys");
            rules.check(&bytes, &[], &declared, &catalogue.nt_types)
        };
        let refused = check("").expect_err("it is not signed");
        assert_eq!(refused.field(), "signature");
        assert!(refused.to_string().contains("the bitstream is not signed"), "{refused}");
        let allowed = check("[signatures]\nallow_unsigned = true");
        assert_eq!(allowed.expect("it may be unsigned").signed_by, None);
        let missing = settings("[signatures]\nprovider = [\"/nonexistent/key.pem\"]");
        let error = format!("{:#}", upload_rules(&missing).expect_err("there is no key"));
        assert!(error.contains("signatures: read the key /nonexistent/key.pem: "), "{error}");
    }

    /// A start and a check refuse a bucket where the program cannot use one, and say how to get a program that can.
    #[cfg(not(feature = "s3"))]
    #[test]
    fn a_program_without_s3_refuses_a_bucket() {
        let folder = tempfile::tempdir().expect("a folder");
        let [pem, key] = ["replica.pem", "replica.key"].map(|name| folder.path().join(name));
        let pair = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a pair");
        std::fs::write(&pem, pair.cert.pem()).expect("written");
        std::fs::write(&key, pair.signing_key.serialize_pem()).expect("written");
        let text = format!(
            "listen = \"127.0.0.1:0\"\naddress = \"https://localhost:7700\"\n\
             [tls]\nca = {pem:?}\ncertificate = {pem:?}\nkey = {key:?}\n\
             [images]\nbucket = \"snic-images\"\n\
             [etcd]\nendpoints = [\"http://127.0.0.1:2379\"]\n"
        );
        let settings = Settings::parse(&text).expect("valid settings");
        let wait = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let checked = wait.block_on(try_images(&settings)).expect_err("it cannot use S3");
        let started = server(&settings).map(drop).expect_err("it cannot use S3");
        for error in [checked, started] {
            let error = format!("{error:#}");
            for part in [
                "images.bucket: \"snic-images\" cannot be used",
                "this program was built without S3",
                "cargo build --release -p snic-fleetd --features s3",
            ] {
                assert!(error.contains(part), "{part}: {error}");
            }
        }
    }

    #[test]
    fn no_argument_must_be_given() {
        let arguments = Arguments::try_parse_from(["snic-fleet"]).expect("enough");
        assert_eq!(arguments.log_format, LogFormat::Human);
        assert!(arguments.config.ends_with("snic-fleet/snic-fleet.toml"), "{arguments:?}");
        let with = |format| ["snic-fleet", "--config", "fleet.toml", "--log-format", format];
        let arguments = Arguments::try_parse_from(with("json"));
        assert_eq!(arguments.expect("a format").log_format, LogFormat::Json);
        let error = Arguments::try_parse_from(with("text")).expect_err("no format");
        assert!(error.to_string().contains("human"), "{error}");
    }
}
