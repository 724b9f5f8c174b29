//! The gRPC server of a running daemon, from start to a clean shutdown.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context as _, Result, anyhow};
use snic_api::certificates::{PemFile, UnusableFile, check_issuer};
use snic_api::v1;
use snic_front::TlsReloader;
use snic_front::gate::PassedCalls;
use snic_front::identity::TrustDomain;
use snic_front::settings::{FrontSettings, TlsSettings};
use snic_front::signals::StopSignals;
use snic_server::{
    AuditLog, AuditSettings, DiagnosticsSource, PageKey, ServerSettings, WebSettings,
};
use snic_telemetry::Telemetry;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::secrets::{hex, random, write};
use crate::settings::{Settings, Tls};
use crate::systemd;
use crate::wiring::Daemon;
use crate::{fleet, host, metrics};

/// A running server.
pub struct Serving {
    port: Option<u16>,
    page: Option<SocketAddr>,
    tls: Option<TlsReloader>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), snic_front::ServeError>>,
}

impl Serving {
    /// The TCP port, if it listens on TCP.
    pub const fn port(&self) -> Option<u16> {
        self.port
    }

    /// The address of the web page, if it is enabled.
    pub const fn page(&self) -> Option<SocketAddr> {
        self.page
    }

    /// Ends streams, waits for calls to finish, and stops listening.
    pub async fn stop(self) -> Result<()> {
        // An error means that the server has already stopped.
        let _ = self.stop.send(());
        self.task.await.context("the server's task")?.context("serve")
    }

    /// Waits until the server stops by itself, which only happens after a failure.
    async fn ended(&mut self) -> Result<()> {
        (&mut self.task).await.context("the server's task")?.context("serve")?;
        Err(anyhow!("the server stopped unexpectedly"))
    }
}

/// Binds the listeners and starts serving.
pub async fn start(
    settings: &Settings,
    daemon: &Daemon,
    diagnostics: DiagnosticsSource,
    passed_calls: PassedCalls,
) -> Result<Serving> {
    let with = ServerSettings { diagnostics, passed_calls, ..server_settings(settings, daemon)? };
    let bound = snic_server::bind(with).await.context("listen")?;
    let port = bound.tcp_address().map(|address| address.port());
    let page = bound.web_address();
    let tls = bound.tls_reloader();
    let (stop, stopped) = oneshot::channel();
    let shutdown = async move {
        // A dropped sender means stop, too.
        let _ = stopped.await;
    };
    let task = tokio::spawn(bound.serve(daemon.plane.clone(), shutdown));
    Ok(Serving { port, page, tls, stop, task })
}

/// `snicd run`: serves until a signal, then stops cleanly. `file` has the settings.
pub async fn run(settings: &Settings, file: &Path, telemetry: Arc<Telemetry>) -> Result<()> {
    // First: a signal that comes while it starts must not end it in the middle.
    let stops = StopSignals::of_daemon().context("wait for signals")?;
    let signals = (stops, signal(SignalKind::hangup()).context("wait for signals")?);
    let daemon = Daemon::start(settings)?;
    let links = daemon.links.clone();
    let mut readers = vec![tokio::spawn(links.clone().keep_ports_fresh())];
    if let Some(address) = settings.telemetry.prometheus {
        let telemetry = Arc::clone(&telemetry);
        let plane = daemon.plane.clone();
        readers.push(metrics::start(address, telemetry, plane, links.clone()).await?);
    }
    if settings.telemetry.otlp.is_some() {
        readers.push(metrics::keep_fresh(daemon.plane.clone(), links));
    }
    let api = PassedCalls::default();
    let link =
        fleet::start(settings, daemon.plane.clone(), (api.clone(), daemon.policies.clone()))?;
    let diagnostics = diagnostics(settings, Some(&telemetry));
    let result = serve((settings, file), daemon, (diagnostics, api), signals).await;
    if let Some(link) = link {
        link.stop().await;
    }
    for reader in readers {
        reader.abort();
        // It was aborted on purpose.
        let _ = reader.await;
    }
    result
}

/// Content of support bundles about this daemon; metrics only with telemetry.
pub fn diagnostics(settings: &Settings, telemetry: Option<&Arc<Telemetry>>) -> DiagnosticsSource {
    // A weak reference: the owner stops telemetry once the server has stopped.
    let telemetry = telemetry.map(Arc::downgrade).unwrap_or_default();
    let settings = settings.without_secrets().to_toml();
    let started = snic_api::convert::timestamp(snic_front::wall_clock());
    DiagnosticsSource::new(move || v1::Diagnostics {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        start_time: Some(started),
        settings: settings.clone(),
        metrics: telemetry.upgrade().map_or(String::new(), |found| found.exposition(None).1),
        log_lines: snic_telemetry::last_lines(),
        commit: host::COMMIT.to_owned(),
        operating_system: host::operating_system(),
        kernel: host::kernel(),
    })
}

async fn serve(
    (settings, file): (&Settings, &Path),
    daemon: Daemon,
    (diagnostics, api): (DiagnosticsSource, PassedCalls),
    (mut stops, hangups): (StopSignals, Signal),
) -> Result<()> {
    let mut server = start(settings, &daemon, diagnostics, api).await?;
    if let Some(port) = server.port() {
        tracing::info!(port, "snicd is up");
    }
    if let Some(address) = server.page() {
        tracing::info!(%address, "the web page is served");
    }
    systemd::ready();
    let reloader = server.tls.clone();
    let ended = tokio::select! {
        ended = server.ended() => Some(ended),
        () = daemon.ended() => Some(Err(anyhow!("the control plane stopped unexpectedly; see the log above"))),
        error = reload_on_signal((settings, file), (hangups, reloader), &daemon) => Some(Err(error)),
        () = stay_alive(&daemon) => None,
        () = stops.wait() => None,
    };
    systemd::stopping();
    match ended {
        Some(ended) => {
            // The control plane's own error says more than that it stopped.
            daemon.stop()?;
            ended
        }
        None => {
            tracing::info!("stopping");
            server.stop().await?;
            daemon.stop()
        }
    }
}

/// At SIGHUP, reads certificates, policies and keys again; what is invalid is logged, and the current one stays.
/// Returns only where signals cannot be waited for.
async fn reload_on_signal(
    (settings, file): (&Settings, &Path),
    (mut hangups, certificates): (Signal, Option<TlsReloader>),
    daemon: &Daemon,
) -> anyhow::Error {
    while hangups.recv().await.is_some() {
        systemd::reloading();
        daemon.reload_policies();
        if let Err(error) = daemon.keys.reload(file, &daemon.plane) {
            let error = format!("{error:#}");
            tracing::error!(error, "keys rejected; the current ones stay in force");
        }
        if let Some(certificates) = &certificates {
            let read = tls_with_warnings(settings);
            match read.and_then(|tls| Ok(certificates.reload(&tls)?)) {
                Ok(()) => tracing::info!("certificates reloaded"),
                Err(error) => {
                    let error = format!("{error:#}");
                    tracing::error!(error, "certificates rejected; the current ones stay in force");
                }
            }
        }
        systemd::ready();
    }
    anyhow!("the signals ended")
}

/// Tells systemd regularly that the control plane answers; ends never.
async fn stay_alive(daemon: &Daemon) {
    let Some(interval) = systemd::watchdog() else { return std::future::pending().await };
    loop {
        // One that does not answer is not alive, and systemd starts it again.
        if daemon.plane.answers().await {
            systemd::alive();
        }
        tokio::time::sleep(interval).await;
    }
}

fn server_settings(settings: &Settings, daemon: &Daemon) -> Result<ServerSettings> {
    let domain = TrustDomain::new(&settings.trust_domain).context("trust_domain")?;
    let listen = &settings.listen;
    let web_tls = settings.web.listen.is_some() && !settings.web.insecure_plaintext;
    let is_tls = listen.tcp.is_some() || web_tls;
    let tls = is_tls.then(|| tls_with_warnings(settings)).transpose()?;
    let web = settings.web.listen.map(|address| {
        let plain_text = settings.web.insecure_plaintext;
        let key = plain_text.then(|| page_key(&settings.data_dir));
        let plain_text = key.transpose()?;
        anyhow::Ok(WebSettings { address, plain_text })
    });
    let audit = AuditSettings {
        folder: settings.data_dir.join("audit"),
        file_bytes_max: settings.audit.file_bytes_max,
        files_max: settings.audit.files_max,
    };
    let audit = AuditLog::open(audit).context("open the audit log")?;
    let with = ServerSettings::new(domain, daemon.keys.upload_check());
    Ok(ServerSettings {
        front: FrontSettings {
            tcp: listen.tcp,
            tls,
            unix: listen.unix.clone(),
            unix_peers: settings.unix_peers().map_err(|error| anyhow!(error))?,
            audit: Some(audit),
            authorization: daemon.authorization.clone(),
            ..with.front
        },
        web: web.transpose()?,
        card_links: daemon.links.clone(),
        ..with
    })
}

/// The key for the web page without TLS. It is created once and kept, so that browsers stay logged in.
pub fn page_key(data_dir: &Path) -> Result<PageKey> {
    let path = data_dir.join("page.key");
    match std::fs::read_to_string(&path) {
        Ok(text) => {
            let key = PageKey::new(text.trim().to_owned());
            let wrong = || {
                format!(
                    "{} contains no valid key; delete the file to create a new one",
                    path.display()
                )
            };
            return key.is_strong().then_some(key).with_context(wrong);
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
    }
    let text = hex(&random()?);
    write(&path, format!("{text}\n").as_bytes(), 0o600)?;
    Ok(PageKey::new(text))
}

/// When the first certificate of a file ends; `None` where it cannot be parsed.
pub fn end_of_certificate(file: &PemFile) -> Option<SystemTime> {
    let all = file.certificates().ok()?;
    snic_front::identity::end_of_certificate(all.first()?)
}

/// Reads the files of the daemon's certificates.
pub fn tls(settings: &Settings) -> Result<TlsSettings> {
    let Tls { ca, certificate, key, crl } = &settings.tls;
    Ok(TlsSettings {
        certificate: PemFile::read("tls.certificate", certificate)?,
        key: PemFile::read("tls.key", key)?,
        client_authority: PemFile::read("tls.ca", ca)?,
        revoked: crl.as_deref().map(|path| PemFile::read("tls.crl", path)).transpose()?,
    })
}

/// Files that clients will reject, though the daemon can serve with it: a start must not fail for it, because the unix socket
/// needs no certificate.
pub fn concerns(tls: &TlsSettings) -> Vec<UnusableFile> {
    let dates = tls.certificate.check_dates(SystemTime::now());
    let issuer = check_issuer(&tls.certificate, &tls.client_authority);
    [dates, issuer].into_iter().filter_map(Result::err).collect()
}

/// The files, with a warning for what clients will reject.
fn tls_with_warnings(settings: &Settings) -> Result<TlsSettings> {
    let tls = tls(settings)?;
    for UnusableFile { file, cause } in concerns(&tls) {
        tracing::warn!(file, cause, "clients will reject the daemon's certificate");
    }
    Ok(tls)
}
