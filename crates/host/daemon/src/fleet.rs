//! The link to a fleet, if the settings name one: what it asks of this host, and where the epoch is remembered.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result};
use clap::Args;
use snic_api::certificates::{PemFile, UnusableFile, check_issuer, check_pair};
use snic_api::fleet_v1::AnswerResponse;
use snic_bitstream::catalogue::{Catalogue, with_profiles};
use snic_controller::{AssignedDag, FleetChange, ProvisionName};
use snic_domain::{Bitstream, BitstreamId, CardId, DagName, Digest, FunctionUse, NtType};
use snic_fleet::placement::{CardSpec, HostSpec};
use snic_fleet::protocol::{Attachments, CardFaults, Epoch, HostPolicies, Numbered, PolicyFiles};
use snic_fleet::{RackId, ZoneId};
use snic_front::gate::{PassedCall, PassedCalls};
use snic_host_link::{HostFailure, HostLink, LinkSettings, LinkStatus, LinkTls, LinkedHost};
use snic_output::out;
use snic_server::shell::{ControlPlane, OutOfUse, ShellError};
use snic_telemetry::metrics::{FleetReading, set_fleet};
use tokio::sync::watch;

use crate::policies::PolicyKeeper;
use crate::secrets;
use crate::settings::{FleetMembership, Settings};

/// The file in the data folder with the highest epoch that was seen.
const EPOCH_FILE: &str = "fleet-epoch.json";

/// `snicd host-spec`.
#[derive(Debug, Args)]
pub struct HostSpecOptions {
    /// Settings file
    #[arg(long, short, default_value = "/etc/snic/snicd.toml")]
    config: PathBuf,
    /// The zone that the host stands in
    #[arg(long)]
    zone: String,
    /// The rack in the zone
    #[arg(long)]
    rack: String,
    /// Labels for selectors: NAME=VALUE
    #[arg(long = "label", value_parser = label)]
    labels: Vec<(String, String)>,
}

fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Prints what this host is, as JSON, for its registration with a fleet.
pub fn print_host_spec(options: HostSpecOptions) -> Result<()> {
    let settings = Settings::read(&options.config)?;
    let zone = ZoneId::new(&options.zone).context("zone")?;
    let rack = RackId::new(&options.rack).context("rack")?;
    let labels = options.labels.into_iter().collect();
    let spec = host_spec(&settings, zone, rack, labels)?;
    out!("{}", serde_json::to_string_pretty(&spec)?)?;
    Ok(())
}

/// Specification of a host with these settings.
fn host_spec(
    settings: &Settings,
    zone: ZoneId,
    rack: RackId,
    labels: BTreeMap<String, String>,
) -> Result<HostSpec> {
    let catalogue = with_profiles(settings.profiles_dir.as_deref())?;
    let mut cards = BTreeMap::new();
    for card in &settings.cards {
        let profile = catalogue.card(&card.model).cloned();
        let profile = profile.with_context(|| {
            format!("card {}: there is no profile of model {}", card.id, card.model)
        })?;
        let functions = card.functions.map_or(0, |functions| functions.count.into());
        cards.insert(card.id.clone(), CardSpec { profile, functions, is_cordoned: false });
    }
    Ok(HostSpec { zone, rack, labels, is_cordoned: false, cards })
}

/// Starts the link that the settings ask for.
pub fn start(
    settings: &Settings,
    plane: ControlPlane,
    (api, policies): (PassedCalls, PolicyKeeper),
) -> Result<Option<HostLink>> {
    let Some(fleet) = &settings.fleet else { return Ok(None) };
    let tls = TlsFiles::of(settings, fleet);
    tls.read()?; // What is missing at the start is told at once.
    if let Err(error) = check_link_at(&tls, SystemTime::now()) {
        // It may be replaced while the daemon runs.
        tracing::warn!(error = error.to_string(), "the fleet will reject this host's certificate");
    }
    let host = DaemonHost {
        plane,
        api,
        policies,
        tls,
        epoch_file: settings.data_dir.join(EPOCH_FILE),
        cards: settings.cards.iter().map(|card| card.id.clone()).collect(),
        catalogue: Arc::new(with_profiles(settings.profiles_dir.as_deref())?),
    };
    let link = LinkSettings {
        endpoints: fleet.endpoints.clone(),
        beat: Duration::from_millis(fleet.beat_ms),
    };
    let link = HostLink::start(link, Arc::new(host));
    tokio::spawn(observe(link.status()));
    Ok(Some(link))
}

/// Keeps the metrics of the link up to date until it ends.
async fn observe(mut status: watch::Receiver<LinkStatus>) {
    loop {
        let reading = {
            let status = status.borrow_and_update();
            FleetReading {
                is_up: status.endpoint.is_some(),
                epoch: status.epoch.0,
                dags: status.pending_dags,
                provisions: status.pending_provisions,
            }
        };
        set_fleet(reading);
        if status.changed().await.is_err() {
            return;
        }
    }
}

/// The files of the certificates, which may be replaced at any time.
#[derive(Clone)]
struct TlsFiles {
    ca: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl TlsFiles {
    /// Those of the fleet; each that is not set is that of the daemon.
    fn of(settings: &Settings, fleet: &FleetMembership) -> Self {
        let own =
            |own: &Option<PathBuf>, of_server: &PathBuf| own.as_ref().unwrap_or(of_server).clone();
        Self {
            ca: own(&fleet.ca, &settings.tls.ca),
            certificate: own(&fleet.certificate, &settings.tls.certificate),
            key: own(&fleet.key, &settings.tls.key),
        }
    }

    /// Reads and checks them, but for what depends on the time.
    fn read(&self) -> Result<LinkTls, UnusableFile> {
        let authority = PemFile::read("fleet.ca", &self.ca)?;
        let certificate = PemFile::read("fleet.certificate", &self.certificate)?;
        let key = PemFile::read("fleet.key", &self.key)?;
        authority.check_authority()?;
        check_pair(&certificate, &key)?;
        Ok(LinkTls { authority, certificate, key })
    }
}

/// Whether a fleet would accept this host's certificate at a time: its dates, its issuer and its URI.
fn check_link_at(files: &TlsFiles, now: SystemTime) -> Result<(), UnusableFile> {
    let LinkTls { authority, certificate, key: _ } = files.read()?;
    certificate.check_dates(now)?;
    check_issuer(&certificate, &authority)?;
    certificate.check_uri()
}

/// Checks the certificates of the link to a fleet, if the settings have one.
pub fn check_link(settings: &Settings) -> Result<()> {
    match &settings.fleet {
        Some(fleet) => Ok(check_link_at(&TlsFiles::of(settings, fleet), SystemTime::now())?),
        None => Ok(()),
    }
}

/// This daemon, as its link to a fleet needs it.
struct DaemonHost {
    plane: ControlPlane,
    api: PassedCalls,
    policies: PolicyKeeper,
    tls: TlsFiles,
    epoch_file: PathBuf,
    /// As in the settings.
    cards: Vec<CardId>,
    catalogue: Arc<Catalogue>,
}

fn failure(error: ShellError) -> HostFailure {
    match error {
        ShellError::Control(snic_controller::ControlError::StoreUnavailable { .. }) => {
            HostFailure::Unavailable(error.to_string())
        }
        ShellError::Control(error) => HostFailure::Refused(error.to_string()),
        ShellError::Store(_) | ShellError::Stopped | ShellError::Overloaded { .. } => {
            HostFailure::Unavailable(error.to_string())
        }
    }
}

fn read_epoch(path: &Path) -> Result<Epoch> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| {
            format!("{} holds no epoch; restore it from a backup", path.display())
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Epoch::default()),
        Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
    }
}

fn write_epoch(path: &Path, epoch: Epoch) -> Result<()> {
    secrets::write_durably(path, &serde_json::to_vec(&epoch)?)
}

/// On a thread that may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T, HostFailure> {
    let done = tokio::task::spawn_blocking(work).await;
    let done = done.map_err(|error| HostFailure::Unavailable(error.to_string()))?;
    done.map_err(|error| HostFailure::Unavailable(format!("{error:#}")))
}

#[tonic::async_trait]
impl LinkedHost for DaemonHost {
    async fn answer(&self, call: AnswerResponse) -> http::Response<tonic::body::Body> {
        let AnswerResponse { path, caller, message, timeout_ms } = call;
        let timeout = Duration::from_millis(timeout_ms);
        self.api.call(PassedCall { path, caller, message: message.into(), timeout }).await
    }

    async fn tls(&self) -> Result<LinkTls, HostFailure> {
        let files = self.tls.clone();
        blocking(move || Ok(files.read()?)).await
    }

    async fn epoch(&self) -> Result<Epoch, HostFailure> {
        let path = self.epoch_file.clone();
        blocking(move || read_epoch(&path)).await
    }

    async fn remember(&self, epoch: Epoch) -> Result<(), HostFailure> {
        let path = self.epoch_file.clone();
        blocking(move || write_epoch(&path, epoch)).await
    }

    async fn assigned(&self) -> Result<Vec<(DagName, AssignedDag)>, HostFailure> {
        self.plane.assigned_dags().await.map_err(failure)
    }

    async fn progress(
        &self,
        names: Vec<DagName>,
    ) -> Result<Vec<(DagName, Option<AssignedDag>)>, HostFailure> {
        self.plane.assigned(names).await.map_err(failure)
    }

    async fn provisions(&self) -> Result<Vec<(ProvisionName, u64)>, HostFailure> {
        self.plane.provisions().await.map_err(failure)
    }

    async fn change(&self, change: FleetChange) -> Result<(), HostFailure> {
        self.plane.change_for_fleet(change).await.map(drop).map_err(failure)
    }

    async fn register(
        &self,
        bitstream: Bitstream,
        number: u64,
        image: Vec<u8>,
    ) -> Result<(), HostFailure> {
        let nts = self.plane.nt_types_of(bitstream.nts.clone()).await.map_err(failure)?;
        let (declared, catalogue) = (bitstream.clone(), Arc::clone(&self.catalogue));
        let checked = move || Ok((checked(&catalogue, &declared, &nts, &image), image));
        let (result, image) = blocking(checked).await?;
        let digest = result.map_err(HostFailure::Refused)?;
        let registered = self.plane.provide_bitstream(bitstream, number, (digest, image)).await;
        registered.map(drop).map_err(failure)
    }

    async fn bitstream(&self, id: BitstreamId) -> Result<Option<Bitstream>, HostFailure> {
        self.plane.bitstream_of(id).await.map_err(failure)
    }

    async fn policies(&self) -> Result<HostPolicies, HostFailure> {
        let policies = self.policies.clone();
        blocking(move || Ok(policies.of_fleet())).await
    }

    async fn set_policies(
        &self,
        files: Numbered<PolicyFiles>,
    ) -> Result<HostPolicies, HostFailure> {
        let policies = self.policies.clone();
        blocking(move || policies.set_for_fleet(files)).await
    }

    async fn attachments(&self) -> Result<Attachments, HostFailure> {
        self.plane.attachments().await.map_err(failure)
    }

    async fn functions(&self) -> Result<FunctionUse, HostFailure> {
        self.plane.function_use().await.map_err(failure)
    }

    async fn faults(&self) -> Result<BTreeMap<CardId, CardFaults>, HostFailure> {
        let found = self.plane.out_of_use().await.map_err(failure)?;
        let faults = |(card, of): (_, OutOfUse)| {
            let OutOfUse { is_lost: is_gone, faulty, cordoned } = of;
            let (regions, cordoned) =
                (faulty.into_iter().collect(), cordoned.into_iter().collect());
            (card, CardFaults { is_gone, regions, cordoned })
        };
        // A card of the settings that the controller does not know was removed, or was never seen.
        let gone = CardFaults { is_gone: true, ..CardFaults::default() };
        let unknown = self.cards.iter().filter(|card| !found.contains_key(*card));
        let unknown: Vec<_> = unknown.map(|card| (card.clone(), gone.clone())).collect();
        let mut all: BTreeMap<_, _> = found.into_iter().map(faults).chain(unknown).collect();
        all.retain(|_, of| *of != CardFaults::default());
        Ok(all)
    }
}

/// The digest of an image, if it is one of its bitstream's and what that says. The fleet checked who signed it.
fn checked(
    catalogue: &Catalogue,
    declared: &Bitstream,
    nts: &[NtType],
    image: &[u8],
) -> Result<Digest, String> {
    let digest = Digest::of(image);
    let of =
        declared.images.with_digest(digest).ok_or("digest: the bitstream has no such image")?;
    let declared = &declared.with_only(of);
    let (has, modules) = catalogue
        .check_image(image, declared, nts)
        .map_err(|error| format!("{}: {error}", error.field()))?;
    // The fleet plans with what it was told.
    if has != declared.images.first().regions {
        return Err(format!("regions: it has the frames of {has:?} alone; upload it with these"));
    }
    match declared.modules.iter().find(|slot| !modules.contains(slot)) {
        None => Ok(digest),
        Some(slot) => Err(format!("modules: slot {} has none; upload it again", slot.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_remembered_and_a_damaged_file_is_not_taken_for_a_new_host() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(EPOCH_FILE);
        assert_eq!(read_epoch(&path).expect("a new host"), Epoch::default());
        write_epoch(&path, Epoch(7)).expect("there is room");
        write_epoch(&path, Epoch(9)).expect("there is room");
        assert_eq!(read_epoch(&path).expect("own file"), Epoch(9));
        std::fs::write(&path, "x").expect("there is room");
        let error = read_epoch(&path).expect_err("it is damaged").to_string();
        assert!(error.contains("holds no epoch"), "{error}");
    }

    #[test]
    fn a_host_is_described_by_its_settings() {
        let card = crate::settings::CardSettings::simulated();
        let settings = Settings { cards: vec![card], ..Settings::default() };
        let zone = || ZoneId::new("z1").expect("a label");
        let rack = || RackId::new("r1").expect("a label");
        let spec = host_spec(&settings, zone(), rack(), BTreeMap::new()).expect("known models");
        let card = spec.cards.values().next().expect("it has one");
        assert_eq!((card.profile.model.to_string().as_str(), card.functions), ("sim-16", 64));
        let json = serde_json::to_string(&spec).expect("text keys");
        assert_eq!(serde_json::from_str::<HostSpec>(&json).expect("own output"), spec);
        let unknown = snic_domain::CardModel::new("no-such-model").expect("a label");
        let mut settings = settings;
        settings.cards[0].model = unknown;
        let error = host_spec(&settings, zone(), rack(), BTreeMap::new()).expect_err("unknown");
        assert!(error.to_string().contains("no-such-model"), "{error}");
    }
}
