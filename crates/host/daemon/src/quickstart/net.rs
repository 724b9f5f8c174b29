//! `snicd quickstart --net`: two hosts of this machine, each in a separate network namespace, with a
//! software card between them and a firewall in the way.
//!
//! ```text
//!   snic-guest 10.77.0.1 ── tap ── function 0 ─► DAG acme/guarded: firewall ─► uplink ── tap ── snic-net 10.77.0.2
//! ```

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use snic_bitstream::catalogue::{Catalogue, SampleDag};
use snic_card_soft::{CardFolder, PortSpec};
use snic_domain::{Bandwidth, DagName, DagSpec, NtConfiguration};

use super::client::QuickstartClient;
use super::{Identities, READY_SECONDS, not_created, ready};
use crate::settings::{CardSettings, Driver, Settings, Soft};

/// A namespace, and the TAP device in it.
struct Host {
    namespace: &'static str,
    device: &'static str,
    address: &'static str,
}

const GUEST: Host = Host { namespace: "snic-guest", device: "snic-f0", address: "10.77.0.1" };
const NET: Host = Host { namespace: "snic-net", device: "snic-up", address: "10.77.0.2" };
/// Longest time for the card to make its devices.
const DEVICES_MAX: Duration = Duration::from_secs(20);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Packets that the firewall lets through: ping, a web server at port 8000, iperf3, and what `snicctl traffic run` sends.
const RULES: &str = r#"{"rules":[{"action":"accept","protocol":"icmp"},
    {"action":"accept","protocol":"tcp","destination_ports":"8000"},
    {"action":"accept","protocol":"tcp","destination_ports":"5201"},
    {"action":"accept","protocol":"udp","destination_ports":"9"}]}"#;

/// The namespaces and the card's process, which go with it. Where the quick start is killed they stay, and the
/// next one goes on with them.
pub(super) struct Net {
    place: CardFolder,
    /// The card and the hosts of an earlier start are there.
    is_up: bool,
}

impl Net {
    /// The software card between the hosts.
    pub(super) fn card() -> CardSettings {
        let soft = Soft {
            uplink: Some(PortSpec::Tap(NET.device.into())),
            functions: vec![PortSpec::Tap(GUEST.device.into())],
            ..Soft::default()
        };
        CardSettings { driver: Driver::Soft, soft: Some(soft), ..CardSettings::simulated() }
    }

    /// Finds the card and the hosts of an earlier start that was killed. Takes away what is left of them where
    /// not all are there, for the devices go with the namespaces.
    ///
    /// # Errors
    /// Network namespaces cannot be made here.
    pub(super) fn prepare(settings: &Settings) -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "--net makes network namespaces, which needs root; without it, the quick start has a \
             simulated card and needs nothing"
        );
        let listed = Command::new("ip").args(["netns", "list"]).output();
        listed.context("run `ip netns list`: --net needs iproute2")?;
        let folder = std::path::absolute(&settings.data_dir)?;
        let place = CardFolder::new(&folder.join("cards").join("card0"));
        let is_up = is_running(&place) && [&GUEST, &NET].iter().all(|host| host.is_up());
        let net = Self { place, is_up };
        if !is_up {
            net.clear();
        }
        Ok(net)
    }

    /// The hosts, the DAG between them, and what to try.
    pub(super) async fn tour(
        &self,
        port: u16,
        identities: &Identities,
        catalogue: &Catalogue,
    ) -> Result<String> {
        let operator =
            QuickstartClient::connect(port, &identities.ca, &identities.operator).await?;
        super::register(&operator, catalogue).await?;
        if !self.is_up {
            for host in [&GUEST, &NET] {
                host.set_up().await?;
            }
        }
        let name: DagName =
            DagName { tenant: "acme".parse()?, dag: "guarded".parse().context("a label")? };
        let pair = identities.tenants.get(&name.tenant).context("the catalogue has acme")?;
        let tenant = QuickstartClient::connect(port, &identities.ca, pair).await?;
        let mut spec = DagSpec::chain(&["firewall".parse()?], Bandwidth::from_gbps(10));
        for node in &mut spec.nodes {
            node.configuration = Some(NtConfiguration::new(RULES));
        }
        let dag = SampleDag { name: name.clone(), spec, description: String::new() };
        let created = tenant.create_dag(&dag).await.map_err(|status| not_created(&name, &status));
        if let Some(operation) = created? {
            tenant.wait(&operation.name, READY_SECONDS).await?;
        }
        ready(&tenant, &name.to_string()).await?;
        operator.lead_function(0, &name).await?;
        Ok(advice())
    }

    fn clear(&self) {
        kill(&self.place);
        for host in [&GUEST, &NET] {
            // It may not be there.
            let _ = Command::new("ip").args(["netns", "delete", host.namespace]).output();
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.clear();
    }
}

impl Host {
    /// Whether it has its device with its address.
    fn is_up(&self) -> bool {
        let Self { namespace, device, address } = self;
        let arguments = ["-n", namespace, "-4", "-o", "address", "show", "dev", device, "up"];
        let output = Command::new("ip").args(arguments).output();
        output.is_ok_and(|output| {
            let shown = String::from_utf8_lossy(&output.stdout).into_owned();
            output.status.success() && shown.contains(&format!(" {address}/"))
        })
    }

    /// Moves the card's device into a new namespace, and gives it its address.
    async fn set_up(&self) -> Result<()> {
        let Self { namespace, device, address } = self;
        let link = PathBuf::from(format!("/sys/class/net/{device}"));
        let until = Instant::now() + DEVICES_MAX;
        while !link.exists() {
            ensure!(Instant::now() < until, "the card has not made the device {device}");
            tokio::time::sleep(LOOK_INTERVAL).await;
        }
        ip(&format!("netns add {namespace}"))?;
        ip(&format!("link set {device} netns {namespace}"))?;
        ip(&format!("-n {namespace} address add {address}/24 dev {device}"))?;
        ip(&format!("-n {namespace} link set {device} up"))?;
        ip(&format!("-n {namespace} link set lo up"))
    }
}

fn ip(arguments: &str) -> Result<()> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output();
    let Output { status, stderr, .. } = output.context("run ip")?;
    if !status.success() {
        bail!("ip {arguments}: {}", String::from_utf8_lossy(&stderr).trim());
    }
    Ok(())
}

/// Whether the card's process runs: it holds the lock of its file then.
fn is_running(place: &CardFolder) -> bool {
    File::open(place.pid()).is_ok_and(|file| file.try_lock().is_err())
}

/// Ends the card's process, if it runs.
pub(super) fn kill(place: &CardFolder) {
    let path: &Path = &place.pid();
    let Ok(file) = File::open(path) else { return };
    if file.try_lock().is_ok() {
        return;
    }
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let pid = text.trim().parse().ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended meanwhile.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        let until = Instant::now() + DEVICES_MAX;
        while file.try_lock().is_err() && Instant::now() < until {
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}

fn advice() -> String {
    let (guest, net, address) = (GUEST.namespace, NET.namespace, NET.address);
    format!(
        "two hosts, with the DAG acme/guarded between them; try this as root in another terminal:\n\
         \x20 ip netns exec {guest} ping -c 3 {address}\n\
         \x20 ip netns exec {net} python3 -m http.server 8000 &\n\
         \x20 ip netns exec {guest} curl -s http://{address}:8000/\n\
         \x20 ip netns exec {net} iperf3 -s -D -1\n\
         \x20 ip netns exec {guest} iperf3 -c {address}\n\
         the firewall lets nothing else through; see what it drops with\n\
         \x20 snicctl --context acme dag get guarded\n"
    )
}

#[cfg(test)]
mod tests {
    /// That they can be configured, and so change bytes, is what tenants choose them for.
    #[test]
    fn each_network_task_that_can_be_configured_has_a_type_and_a_chain_of_its_own() {
        let catalogue = snic_bitstream::catalogue::builtin().expect("valid files");
        for name in snic_nts::NT_TYPES {
            let id = name.parse().expect("a label");
            assert!(catalogue.nt_type(&id).is_some(), "no NT type {name}");
            let is_alone = catalogue.chains.iter().any(|chain| chain.nts == [id.clone()]);
            assert!(is_alone, "no chain of {name} alone");
        }
    }
}
