//! `snicd quickstart --hosts`: two hosts inside this process that exchange real packets through a software card. It
//! needs no rights: the card's ports are unix sockets.
//!
//! ```text
//!   guest 10.77.0.1 ── socket ── function 0 ─► DAG acme/guarded: firewall ─► kv-cache ─► uplink ── socket ── net 10.77.0.2
//! ```

mod host;
mod talk;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use snic_bitstream::catalogue::{Catalogue, SampleDag};
use snic_card_soft::{CardFolder, PortSpec};
use snic_domain::{Bandwidth, DagName, DagSpec, NtConfiguration};

use super::client::QuickstartClient;
use super::{Identities, READY_SECONDS, not_created, ready};
use crate::settings::{CardSettings, Driver, Settings, Soft};
use talk::{Talk, VALUE};

/// Longest time for the card to make its sockets.
const SOCKETS_MAX: Duration = Duration::from_secs(20);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// Between two pings while the quick start runs.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// Number of reads of the value until the card answers, and the time between: many settling times of the cache.
const GETS_MAX: usize = 100;
const GET_REST: Duration = Duration::from_millis(100);

/// Packets that the firewall lets through: ping, a server at TCP port 8000, memcached, and what `snicctl traffic run` sends.
const RULES: &str = r#"{"rules":[{"action":"accept","protocol":"icmp"},
    {"action":"accept","protocol":"tcp","destination_ports":"8000"},
    {"action":"accept","protocol":"udp","destination_ports":"11211"},
    {"action":"accept","protocol":"udp","destination_ports":"9"}]}"#;
const CACHE: &str = r#"{"server":"10.77.0.2"}"#;

/// The card's ports, and its process, which goes with the value.
pub(super) struct Hosts {
    place: CardFolder,
    ports: [PathBuf; 2],
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// The sockets of function 0 and of the uplink.
fn ports(data_dir: &Path) -> Result<[PathBuf; 2]> {
    let folder = std::path::absolute(data_dir)?;
    Ok(["guest.sock", "net.sock"].map(|name| folder.join(name)))
}

/// A port at this path.
fn port(path: &Path) -> Result<PortSpec> {
    let spec = format!("unix:{}", path.display());
    spec.parse().map_err(|error| anyhow!("{error}; choose a shorter folder with --dir"))
}

impl Hosts {
    /// The software card between the hosts.
    pub(super) fn card(data_dir: &Path) -> Result<CardSettings> {
        let [guest, net] = ports(data_dir)?;
        let soft =
            Soft { uplink: Some(port(&net)?), functions: vec![port(&guest)?], ..Soft::default() };
        Ok(CardSettings { driver: Driver::Soft, soft: Some(soft), ..CardSettings::simulated() })
    }

    /// Finds the ports.
    pub(super) fn prepare(settings: &Settings) -> Result<Self> {
        let folder = std::path::absolute(&settings.data_dir)?;
        let place = CardFolder::new(&folder.join("cards").join("card0"));
        let ports = ports(&settings.data_dir)?;
        Ok(Self { place, ports, stop: Arc::default(), thread: None })
    }

    /// The DAG between the hosts, and what they have to say to each other.
    pub(super) async fn tour(
        &mut self,
        port: u16,
        identities: &Identities,
        catalogue: &Catalogue,
    ) -> Result<String> {
        let operator =
            QuickstartClient::connect(port, &identities.ca, &identities.operator).await?;
        super::register(&operator, catalogue).await?;
        let name: DagName =
            DagName { tenant: "acme".parse()?, dag: "guarded".parse().context("a label")? };
        let pair = identities.tenants.get(&name.tenant).context("the catalogue has acme")?;
        let tenant = QuickstartClient::connect(port, &identities.ca, pair).await?;
        let nts = ["firewall".parse()?, "kv-cache".parse()?];
        let mut spec = DagSpec::chain(&nts, Bandwidth::from_gbps(1));
        for (node, configuration) in spec.nodes.iter_mut().zip([RULES, CACHE]) {
            node.configuration = Some(NtConfiguration::new(configuration));
        }
        let dag = SampleDag { name: name.clone(), spec, description: String::new() };
        let created = tenant.create_dag(&dag).await.map_err(|status| not_created(&name, &status));
        if let Some(operation) = created? {
            tenant.wait(&operation.name, READY_SECONDS).await?;
        }
        ready(&tenant, &name.to_string()).await?;
        operator.lead_function(0, &name).await?;
        let until = Instant::now() + SOCKETS_MAX;
        while !self.ports.iter().all(|path| path.exists()) {
            ensure!(Instant::now() < until, "the card has not made its sockets");
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        let ports = self.ports.clone();
        // The hosts wait for each other, so they have a thread.
        let talked = tokio::task::spawn_blocking(move || {
            let mut talk = Talk::connect(&ports)?;
            let said = run_talk(&mut talk)?;
            anyhow::Ok((talk, said))
        });
        let (mut talk, said) = talked.await??;
        let stop = Arc::clone(&self.stop);
        let thread = std::thread::Builder::new().name("quickstart-hosts".into()).spawn(move || {
            // Where the card is gone, the hosts are silent.
            while !stop.load(Ordering::Relaxed) && talk.ping_once(PING_INTERVAL).is_ok() {}
        });
        self.thread = Some(thread.context("start a thread")?);
        Ok(said)
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        super::net::kill(&self.place);
    }
}

/// Reads the value until the card answers; says how often the server was asked. A cache that was just configured
/// keeps nothing for its settling time.
fn gets_until_cached(talk: &mut Talk) -> Result<u32> {
    for _ in 0..GETS_MAX {
        let before = talk.requests();
        let value = talk.get_value().context("get of a value")?;
        ensure!(value == VALUE, "the value came back changed; this is a bug");
        if talk.requests() == before {
            return Ok(before);
        }
        talk.rest(GET_REST)?;
    }
    bail!("the card did not answer one of {GETS_MAX} gets; this is a bug")
}

/// Lets the hosts talk, and says what came of it.
fn run_talk(talk: &mut Talk) -> Result<String> {
    let pings = talk.pings(5).context("ping")?;
    let [fastest, slowest] = [pings.first(), pings.last()].map(|took| took.copied());
    let micros = |time: Option<Duration>| time.unwrap_or_default().as_micros();
    let transfer = talk.transfer(4 << 20, 8_000).context("TCP transfer")?;
    let rate = transfer.bytes as f64 * 8.0 / transfer.took.as_secs_f64() / 1e6;
    let asked = gets_until_cached(talk)?;
    let is_open = talk.opens(8_002)?;
    ensure!(!is_open, "port 8002 was reached past the firewall; this is a bug");
    Ok(format!(
        "two hosts inside this process, with the DAG acme/guarded between them:\n\
         \x20 guest 10.77.0.1 -- function 0 -- firewall -> kv-cache -- uplink -- net 10.77.0.2\n\
         ping:      5 of 5 came back, after {} to {} us\n\
         TCP 8000:  {} MiB from guest to net, each byte as it was sent, at {rate:.0} Mbit/s\n\
         UDP 11211: get greeting = {VALUE:?}, by the server at first (asked: {asked}), then by the card's \
         cache\n\
         TCP 8002:  no answer, for the firewall drops it\n\
         guest pings net once a second from now on; watch it with\n\
         \x20 snicctl --context acme capture --dag guarded\n\
         \x20 snicctl --context acme trace --dag guarded --for 5s\n\
         and send more packets through the same DAG with\n\
         \x20 snicctl --context acme traffic run --dag guarded --rate 500Mbps --size imix --for 5s \
         --destination 10.77.0.2 --destination-port 11211\n",
        micros(fastest),
        micros(slowest),
        transfer.bytes >> 20,
    ))
}
