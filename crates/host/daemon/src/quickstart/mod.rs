//! `snicd quickstart`: from nothing to packets through the paper's DAGs in one command.
//!
//! It runs the normal daemon with a development certificate authority, an embedded store and a simulated
//! card, and does through the public API what an operator and tenants would do by hand.

mod client;
mod hosts;
mod net;
mod report;
mod traffic;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, Result, anyhow, ensure};
use snic_api::replies::ItemOf as _;
use snic_api::text::escaped;
use snic_api::v1::{self, Dag, region};
use snic_bitstream::catalogue::{self, Catalogue};
use snic_bitstream::signature::Signatures;
use snic_domain::{DagName, TenantId};
use snic_front::gate::PassedCalls;
use snic_front::signals::StopSignals;
use snic_output::out;
use tonic::{Code, Status};

use crate::pki::{Authority, CertificateSubject, Pair};
use crate::secrets::write;
use crate::serving;
use crate::settings::{CardSettings, Listen, Settings, Tls, Web};
use crate::wiring::Daemon;
use client::QuickstartClient;

/// Seconds until a DAG must be ready. Loading all sixteen regions takes a tenth of a second.
const READY_SECONDS: i64 = 60;

/// Validity of the certificates; the authority's is ten times as long.
const VALID: Duration = Duration::from_secs(365 * 24 * 3_600);
/// Validity that a certificate must have left to be used again: longer than a quick start runs.
const VALID_LEFT: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Options of `snicd quickstart`.
#[derive(Debug, clap::Args)]
pub struct QuickstartOptions {
    /// Folder for the store, certificates and contexts; created if missing
    /// [default: snic-quickstart in the user's data folder, with --hosts or --net snic-quickstart-hosts or -net]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Loopback address and port to listen on; port 0 picks a free port
    #[arg(long, default_value = "127.0.0.1:7443")]
    listen: SocketAddr,
    /// Loopback address and port of the web page, without TLS; port 0 picks a free port
    #[arg(long, default_value = "127.0.0.1:7444")]
    web: SocketAddr,
    /// Duration of the traffic, in microseconds of simulated time
    #[arg(long, default_value_t = 2_000, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    traffic_us: u64,
    /// Make two network namespaces with a software card between them, and print what to try; needs root
    #[arg(long)]
    net: bool,
    /// Run two hosts inside this process that exchange real packets through a software card
    #[arg(long, conflicts_with = "net")]
    hosts: bool,
    /// Exit when everything is printed, instead of at Ctrl-C
    #[arg(long)]
    exit: bool,
}

fn default_folder(options: &QuickstartOptions) -> Result<PathBuf> {
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let base = data.filter(|path| path.is_absolute()).or_else(home);
    Ok(base.context("neither XDG_DATA_HOME nor HOME is set; choose a folder with --dir")?.join(
        match options {
            QuickstartOptions { net: true, .. } => "snic-quickstart-net",
            QuickstartOptions { hosts: true, .. } => "snic-quickstart-hosts",
            _ => "snic-quickstart",
        },
    ))
}

/// The card that a quick start of this kind shows.
fn card(options: &QuickstartOptions, data_dir: &Path) -> Result<CardSettings> {
    match options {
        QuickstartOptions { net: true, .. } => Ok(net::Net::card()),
        QuickstartOptions { hosts: true, .. } => hosts::Hosts::card(data_dir),
        _ => Ok(CardSettings::simulated()),
    }
}

/// The identities that the quick start uses.
struct Identities {
    ca: PathBuf,
    operator: Pair,
    tenants: BTreeMap<TenantId, Pair>,
}

/// Runs the quick start until it is told to stop.
pub async fn run(options: QuickstartOptions) -> Result<()> {
    let began = Instant::now();
    // First: a signal that comes while it starts must not leave half of it behind.
    let mut stops = StopSignals::of_terminal().context("wait for signals")?;
    let dir = options.dir.clone().map_or_else(|| default_folder(&options), Ok)?;
    // Absolute, because the contexts name files in it and are used from any folder.
    let dir = std::path::absolute(&dir).with_context(|| format!("find {}", dir.display()))?;
    let catalogue = catalogue::builtin();
    let catalogue = catalogue.context("read the built-in catalogue")?;
    let data_dir = dir.join("store");
    let mut settings = Settings {
        cards: vec![card(&options, &data_dir)?],
        data_dir,
        listen: Listen { tcp: Some(options.listen), ..Listen::default() },
        // Browsers have no certificate yet, so the page uses a key.
        web: Web { listen: Some(options.web), insecure_plaintext: true },
        // The test images below are not signed.
        signatures: Signatures { allow_unsigned: true, ..Signatures::default() },
        ..Settings::default()
    };
    out!("snic quick start in {}", dir.display())?;
    // First, because it fails where another quick start uses the folder: its certificates must stay.
    let net = options.net.then(|| net::Net::prepare(&settings)).transpose()?;
    let daemon = Daemon::start(&settings)?;
    // Behind it, because its card goes with it: that of another quick start in this folder must stay.
    let mut hosts = options.hosts.then(|| hosts::Hosts::prepare(&settings)).transpose()?;
    let identities = identities(&dir, &mut settings, &catalogue)?;
    let (diagnostics, no_fleet) = (serving::diagnostics(&settings, None), PassedCalls::default());
    let server = serving::start(&settings, &daemon, diagnostics, no_fleet).await?;
    let port = server.port().context("the daemon listens on TCP")?;
    out!("the daemon listens on https://127.0.0.1:{port} (mutual TLS)")?;
    if let Some(page) = server.page() {
        let key = serving::page_key(&settings.data_dir)?.in_address();
        out!(
            "the web page is at http://{page}/{key} (the address contains a key: keep it private)"
        )?;
    }
    let contexts = dir.join("snicctl.toml");
    write(&contexts, contexts_file(port, &identities)?.as_bytes(), 0o600)?;
    let tour = async {
        if let Some(net) = &net {
            out!("\n{}", net.tour(port, &identities, &catalogue).await?)?;
            out!("{}", farewell(&contexts, Some("tenants/acme/dags/guarded")))?;
            return anyhow::Ok(());
        }
        if let Some(hosts) = &mut hosts {
            out!("\n{}", hosts.tour(port, &identities, &catalogue).await?)?;
            out!("{}", farewell(&contexts, Some("tenants/acme/dags/guarded")))?;
            return anyhow::Ok(());
        }
        let dags = tour(port, &identities, &catalogue, &daemon, &options).await?;
        let farewell = farewell(&contexts, dags.first().map(|dag| dag.name.as_str()));
        out!("\ndone in {:.1} s; {farewell}", began.elapsed().as_secs_f64())?;
        anyhow::Ok(())
    };
    tokio::select! {
        result = tour => result?,
        () = stops.wait() => {
            server.stop().await?;
            daemon.stop()?;
            return Ok(out!("stopped early")?);
        }
    }
    if !options.exit {
        out!("the daemon keeps running; press Ctrl-C to stop it")?;
        stops.wait().await;
    }
    server.stop().await?;
    daemon.stop()?;
    Ok(out!("stopped")?)
}

/// The certificates of an earlier start, or new ones where some are missing or end soon. The authority
/// stays, so that more tenants can get theirs.
fn identities(dir: &Path, settings: &mut Settings, catalogue: &Catalogue) -> Result<Identities> {
    let late = SystemTime::now() + VALID_LEFT;
    let folder = dir.join("pki");
    let usable = Authority::open(&folder).ok().filter(|authority| {
        authority.ends() > late && authority.trust_domain() == settings.trust_domain
    });
    let mut authority = match usable {
        Some(authority) => authority,
        None => Authority::create(&folder, &settings.trust_domain, VALID * 10)?,
    };
    let mut pair = |subject: CertificateSubject| {
        let pair = authority.pair(subject.name());
        let is_there = pair.certificate.exists() && pair.key.exists();
        match authority.valid(subject.name(), late).filter(|_| is_there) {
            Some(_) => Ok(pair),
            None => authority.issue(&subject, VALID),
        }
    };
    let server = pair(CertificateSubject::Server(Vec::new()))?;
    let operator = pair(CertificateSubject::Client("operator/admin".to_owned()))?;
    let tenants = catalogue.tenants.iter().map(|tenant| {
        let subject = CertificateSubject::Client(format!("tenant/{}", tenant.id));
        Ok((tenant.id.clone(), pair(subject)?))
    });
    let tenants = tenants.collect::<Result<_>>()?;
    let (ca, crl) = (authority.ca(), Some(authority.crl()));
    settings.tls = Tls { ca: ca.clone(), certificate: server.certificate, key: server.key, crl };
    Ok(Identities { ca, operator, tenants })
}

/// Contexts for `snicctl`, one for each identity.
fn contexts_file(port: u16, identities: &Identities) -> Result<String> {
    let context = |pair: &Pair, tenant: Option<&TenantId>| {
        let mut table = toml::Table::new();
        let path = |path: &Path| toml::Value::String(path.display().to_string());
        table.insert("endpoint".into(), format!("https://localhost:{port}").into());
        if let Some(tenant) = tenant {
            table.insert("tenant".into(), tenant.to_string().into());
        }
        table.insert("ca".into(), path(&identities.ca));
        table.insert("certificate".into(), path(&pair.certificate));
        table.insert("key".into(), path(&pair.key));
        toml::Value::Table(table)
    };
    let mut contexts = toml::Table::new();
    contexts.insert("operator".into(), context(&identities.operator, None));
    for (tenant, pair) in &identities.tenants {
        contexts.insert(tenant.to_string(), context(pair, Some(tenant)));
    }
    let mut file = toml::Table::new();
    file.insert("current".into(), "operator".into());
    file.insert("contexts".into(), toml::Value::Table(contexts));
    toml::to_string(&file).context("write the contexts of snicctl")
}

/// Does what a new user would do, step by step.
async fn tour(
    port: u16,
    identities: &Identities,
    catalogue: &Catalogue,
    daemon: &Daemon,
    options: &QuickstartOptions,
) -> Result<Vec<Dag>> {
    let operator = QuickstartClient::connect(port, &identities.ca, &identities.operator).await?;
    register(&operator, catalogue).await?;
    let dags = submit(port, identities, catalogue, &operator).await?;
    out!("{}", report::heading("Regions").trim_end())?;
    out!("{}", region_map(&operator).await?.trim_end())?;
    out!("{}", report::heading("Mappings").trim_end())?;
    for dag in &dags {
        let request = v1::ExplainDagRequest { name: dag.name.clone() };
        let explanation = operator.dags().explain_dag(request).await.item()?;
        out!("{}", report::mapping(dag, &explanation))?;
    }
    if dags.is_empty() {
        out!("no traffic is sent: none of the samples is on the card")?;
        return Ok(dags);
    }
    let card =
        daemon.simulated.values().next().context("the quick start has a simulated card")?.clone();
    let (sent, micros) = (dags.clone(), options.traffic_us);
    out!(
        "sending {} % of what each DAG is promised, in packets at random times, for {micros} us of \
         simulated time ...",
        traffic::LOAD_PERCENT
    )?;
    let run = tokio::task::spawn_blocking(move || traffic::drive(&card, &sent, micros)).await??;
    out!("{}", report::heading("Traffic").trim_end())?;
    out!("{}", report::traffic(&run).trim_end())?;
    let errors = run.all.errors();
    out!("misrouted packets (wrong region, instance or table version): {errors}")?;
    ensure!(errors == 0, "{errors} packets were misrouted; this is a bug");
    Ok(dags)
}

/// The catalogue: NT types, tenants, bitstreams.
async fn register(operator: &QuickstartClient, catalogue: &Catalogue) -> Result<()> {
    let mut new = 0;
    for nt in &catalogue.nt_types {
        new += usize::from(operator.create_nt_type(nt).await?);
    }
    out!("NT types: {} registered, {} new", catalogue.nt_types.len(), new)?;
    for tenant in &catalogue.tenants {
        operator.create_tenant(tenant).await?;
        out!("tenant {}: identity spiffe://snic.local/tenant/{}", tenant.id, tenant.id)?;
    }
    let model = &CardSettings::simulated().model;
    let profile = catalogue.card(model).context("the default card is in the catalogue")?;
    let mut bytes_in_all = 0;
    let mut count = 0;
    for chain in catalogue.chains_for(model) {
        let (bitstream, bytes) = catalogue.test_bitstream(chain, profile)?;
        bytes_in_all += bytes.len();
        count += 1;
        operator.upload(&bitstream, bytes).await?;
    }
    out!("bitstreams: {count} for {model}, {} MiB in total", bytes_in_all >> 20)?;
    Ok(())
}

/// Submits the sample DAGs, each as its tenant, and waits until all are ready. Those for which the user's own DAGs leave no
/// room are left out.
async fn submit(
    port: u16,
    identities: &Identities,
    catalogue: &Catalogue,
    operator: &QuickstartClient,
) -> Result<Vec<Dag>> {
    let progress = tokio::spawn(show_regions(operator.clone()));
    let mut dags = Vec::new();
    for sample in &catalogue.dags {
        let pair = &identities.tenants[&sample.name.tenant];
        let tenant = QuickstartClient::connect(port, &identities.ca, pair).await?;
        let submitted = Instant::now();
        let operation = match tenant.create_dag(sample).await {
            Err(status) if status.code() == Code::ResourceExhausted => {
                let why = escaped(status.message());
                out!("{}: left out, for DAGs of yours leave no room for it: {why}", sample.name)?;
                continue;
            }
            created => created.map_err(|status| not_created(&sample.name, &status))?,
        };
        if let Some(operation) = &operation {
            out!("{}: submitted, {}", sample.name, sample.spec.bandwidth)?;
            tenant.wait(&operation.name, READY_SECONDS).await?;
        }
        let dag = ready(&tenant, &sample.name.to_string()).await?;
        let took = submitted.elapsed().as_secs_f64() * 1e3;
        out!("{}: READY after {took:.1} ms", sample.name)?;
        dags.push(dag);
    }
    progress.abort();
    Ok(dags)
}

/// The error where a DAG of a quick start cannot be created.
fn not_created(name: &DagName, status: &Status) -> anyhow::Error {
    let why = escaped(status.message());
    match status.code() {
        Code::ResourceExhausted => anyhow!(
            "{name} cannot be created: {why}; choose another folder with --dir, or delete DAGs of yours while \
             `snicd run` serves this one"
        ),
        _ => anyhow!("{name} cannot be created: {why}"),
    }
}

/// Waits until a DAG is ready. After a restart this takes a moment.
async fn ready(client: &QuickstartClient, name: &str) -> Result<Dag> {
    let until = Instant::now() + Duration::from_secs(READY_SECONDS.unsigned_abs());
    loop {
        let request = v1::GetDagRequest { name: name.to_owned() };
        let dag = client.dags().get_dag(request).await.item()?;
        if dag.state() == v1::dag::State::Ready {
            return Ok(dag);
        }
        let why = dag.conditions.last().map_or("", |c| c.message.as_str());
        ensure!(Instant::now() < until, "{name} is not ready: {why}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Prints regions while they are reconfigured.
async fn show_regions(operator: QuickstartClient) -> Result<()> {
    let request = v1::WatchRegionsRequest { parent: "cards/card0".into(), ..Default::default() };
    let mut events = operator.cards().watch_regions(request).await?.into_inner();
    let mut began: BTreeMap<String, Instant> = BTreeMap::new();
    while let Some(event) = events.message().await? {
        let Some(region) = event.region else { continue };
        match region.state() {
            region::State::Reconfiguring if !began.contains_key(&region.name) => {
                out!("  {}: loading {} ...", region.name, region.bitstream)?;
                began.insert(region.name, Instant::now());
            }
            region::State::Active => {
                if let Some(began) = began.remove(&region.name) {
                    let took = began.elapsed().as_secs_f64() * 1e3;
                    out!("  {}: active after {took:.1} ms", region.name)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

async fn region_map(operator: &QuickstartClient) -> Result<String> {
    let name = "cards/card0".to_owned();
    let card = operator.cards().get_card(v1::GetCardRequest { name: name.clone() }).await.item()?;
    let request = v1::ListRegionsRequest { parent: name, page_size: 32, ..Default::default() };
    let regions = operator.cards().list_regions(request).await?.into_inner().regions;
    Ok(snic_api::render::region_map(&card, &regions))
}

/// Advice on what to try next.
fn farewell(contexts: &Path, dag: Option<&str>) -> String {
    let of_dag = |dag| {
        format!(
            "\x20 snicctl dag explain {dag}\n\
             \x20 snicctl traffic run --dag {dag} --rate 1Gbps --size imix --for 5s\n"
        )
    };
    format!(
        "try this in another terminal:\n\
         \x20 export SNICCTL_CONFIG={}\n\
         \x20 cargo build --profile quick --bin snicctl && alias snicctl=target/quick/snicctl\n\
         \x20 snicctl card get card0\n\
         \x20 snicctl region list\n\
         {}\
         \x20 snicctl --context acme dag list\n",
        contexts.display(),
        dag.map(of_dag).unwrap_or_default()
    )
}
