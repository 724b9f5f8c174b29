//! From settings to a running control plane. This is the only place that names concrete adapters.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use snic_bitstream::catalogue::{Catalogue, with_profiles};
use snic_bitstream::signature::Trust;
use snic_card_sim::{SharedSimCard, SimCard};
use snic_controller::Controller;
use snic_domain::{CardId, CardProfile};
use snic_front::authorization::Authorization;
use snic_ports::store::Store;
use snic_processors::{NicModel, builtin};
use snic_server::shell::{self, CardBackend, CardSlot, ControlPlane, ControlPlaneThreads};
use snic_server::{CardLink, CardLinks};

use crate::keys::Keys;
use crate::policies::{self, AuthorizationFiles, Policies, PolicyKeeper, PriceFile};
use crate::settings::{CardSettings, Driver, Settings};
use crate::simulated::{SimBackend, SimGenerator};
use crate::soft::SoftBackend;
use crate::store::{self, StoreAdoption};
use crate::xrt::{RoleCheck, XrtBackend};
use crate::{soft, xrt};

/// Interval between checks whether the control plane has stopped by itself.
const ENDED_INTERVAL: Duration = Duration::from_millis(200);

/// A running control plane with its simulated cards.
pub struct Daemon {
    /// The handle for the services.
    pub plane: ControlPlane,
    /// The simulated cards, for sending traffic.
    pub simulated: BTreeMap<CardId, SharedSimCard>,
    /// Connection of each card, for display.
    pub links: CardLinks,
    /// Access of callers; follows the policy files.
    pub authorization: Authorization,
    /// The policies that it follows.
    pub policies: PolicyKeeper,
    /// Keys whose signatures count.
    pub keys: Keys,
    running: ControlPlaneThreads,
    reloader: Option<policies::Reloader>,
}

impl Daemon {
    /// Opens the store, recovers its state, and starts the threads.
    pub fn start(settings: &Settings) -> Result<Self> {
        let (store, files_are_whole) = store::open(&settings.data_dir)?;
        let mut policies = Policies::new(settings);
        let (policy, mut refused) = policies.read();
        let price_file = PriceFile::new(settings);
        let (prices, wrong) = price_file.read();
        refused.extend(wrong);
        let mut rules = AuthorizationFiles::new(settings);
        let reading = rules.read()?;
        refused.extend(reading.rejected);
        let authorization = Authorization::new(reading.authorizer);
        let StoreAdoption { mut controller, is_whole, .. } = store::adopt(store.as_ref(), policy)?;
        for card in &settings.cards {
            if let Some(functions) = card.functions {
                controller.declare_functions(card.id.clone(), functions);
            }
        }
        controller.declare_fleet(settings.fleet.is_some());
        controller.declare_prices(prices);
        let keys = Keys::read(settings)?;
        controller.declare_keys(keys.for_stored());
        if files_are_whole && is_whole {
            remove_unused_blobs(store.as_ref(), &controller)?;
        }
        let known = KnownCards::read(settings)?;
        controller.declare_models(known.models.iter().cloned());
        controller.declare_region_groups(known.catalogue.region_groups());
        let mut simulated = BTreeMap::new();
        let links = CardLinks::default();
        let slots = settings
            .cards
            .iter()
            .map(|card| slot(card, settings, &known, &links, &mut simulated))
            .collect::<Result<Vec<_>>>()?;
        let (plane, running) =
            shell::start(controller, store, slots).context("start the daemon's threads")?;
        if settings.cards.is_empty() {
            tracing::warn!(
                "no cards are configured, so DAGs are rejected; add [[cards]] to the settings"
            );
        }
        // The controller shows it to operators as an event.
        refused.into_iter().for_each(|reason| plane.set_policies(Err(reason)));
        let policies = PolicyKeeper::new(policies, price_file, plane.clone());
        let reloader = settings.policies_dir.as_deref();
        let reloader = reloader.map(|folder| {
            reload(folder, &policies, Mutex::new(rules), authorization.clone(), &plane)
        });
        let reloader = reloader.transpose()?;
        Ok(Self { plane, simulated, links, authorization, policies, keys, running, reloader })
    }

    /// Waits until the control plane stops by itself, as it does when its store fails.
    pub async fn ended(&self) {
        while !self.running.has_ended() {
            tokio::time::sleep(ENDED_INTERVAL).await;
        }
    }

    /// Reads the policies again, if there is a folder of them.
    pub fn reload_policies(&self) {
        if let Some(reloader) = &self.reloader {
            reloader.reload();
        }
    }

    /// Stops all threads. Everything that was acknowledged is durable.
    pub fn stop(self) -> Result<()> {
        if let Some(reloader) = self.reloader {
            reloader.stop();
        }
        drop(self.plane);
        self.running.stop().context("stop the control plane")
    }
}

/// Reloads policies that change while the daemon runs. An invalid file is rejected; the others apply.
fn reload(
    folder: &Path,
    policies: &PolicyKeeper,
    rules: Mutex<AuthorizationFiles>,
    authorization: Authorization,
    plane: &ControlPlane,
) -> Result<policies::Reloader> {
    let (plane, policies) = (plane.clone(), policies.clone());
    policies::watch(folder, move || {
        let mut refused = Vec::new();
        // One thread reads them: a poisoned lock means that it has panicked.
        let reading = rules.lock().map(|mut rules| rules.read());
        match reading {
            Ok(Ok(reading)) => {
                refused.extend(reading.rejected);
                if !reading.changes.is_empty() {
                    authorization.replace(reading.authorizer);
                    plane.authorization_changed(reading.changes.join("; "));
                }
            }
            Ok(Err(error)) => refused.push(format!("{error:#}")),
            Err(_) => return,
        }
        let rejected = refused.len() + policies.reload();
        tracing::info!(rejected, "policies reloaded");
        refused.into_iter().for_each(|reason| plane.set_policies(Err(reason)));
    })
    .with_context(|| format!("watch the policies in {}", folder.display()))
}

/// Deletes bytes of uploads that a crash interrupted: no record names them. In a store without a
/// record, all of them are kept: it may be that the one that named them was lost.
fn remove_unused_blobs(store: &dyn Store, controller: &Controller) -> Result<()> {
    if controller.digests().next().is_none() {
        let kept = store.list_blobs().context("list the bitstreams")?.len();
        if kept > 0 {
            tracing::warn!(kept, "no record names a bitstream; their bytes are kept");
        }
        return Ok(());
    }
    let unused: BTreeSet<_> = store
        .list_blobs()
        .context("list the bitstreams")?
        .into_iter()
        .filter(|digest| !controller.uses_digest(*digest))
        .collect();
    for digest in unused {
        store.delete_blob(digest).context("delete an unreferenced bitstream")?;
        tracing::info!(%digest, "deleted the bytes of a bitstream that was never registered");
    }
    Ok(())
}

/// The cards that there can be: profiles with regions, and models with processors.
pub(crate) struct KnownCards {
    pub catalogue: Catalogue,
    models: Vec<NicModel>,
}

impl KnownCards {
    /// Those that are compiled in, with the operator's profiles.
    pub(crate) fn read(settings: &Settings) -> Result<Self> {
        let catalogue = with_profiles(settings.profiles_dir.as_deref())?;
        Ok(Self { catalogue, models: builtin().context("read the card models")? })
    }

    /// The profile of a card, and its processors where NTs run on these.
    pub(crate) fn find(
        &self,
        card: &CardSettings,
    ) -> Result<(CardProfile, Option<&NicModel>), String> {
        if let Some(profile) = self.catalogue.card(&card.model) {
            return Ok((profile.clone(), None));
        }
        let model = self.models.iter().find(|model| model.model == card.model);
        let found = model.and_then(|model| Some((model.card_profile()?, Some(model))));
        match found {
            None => Err(self.unknown_model(card)),
            Some(_) if card.driver != Driver::Sim => Err(format!(
                "only the simulated card runs network tasks on processors; set driver = \"sim\" for model {}",
                card.model
            )),
            Some(found) => Ok(found),
        }
    }

    /// The settings name a model of which there is no profile.
    pub(crate) fn unknown_model(&self, card: &CardSettings) -> String {
        let with_regions = self.catalogue.cards.iter().map(|one| one.model.as_str());
        let with_processors = self.models.iter().filter(|one| one.card.is_some());
        let known: Vec<&str> =
            with_regions.chain(with_processors.map(|one| one.model.as_str())).collect();
        format!(
            "unknown card model {}; known models: {}; for another, put its profile into profiles_dir",
            card.model,
            known.join(", ")
        )
    }
}

/// The card of some settings, with the backend of its driver.
fn slot(
    card: &CardSettings,
    settings: &Settings,
    known: &KnownCards,
    links: &CardLinks,
    simulated: &mut BTreeMap<CardId, SharedSimCard>,
) -> Result<CardSlot> {
    let found = known.find(card).map_err(anyhow::Error::msg);
    let of_card = || format!("card {}", card.id);
    let (profile, processors) = found.with_context(of_card)?;
    let backend: Box<dyn CardBackend> = match card.driver {
        Driver::Sim => {
            let backend = sim_backend(card, profile, processors, links).with_context(of_card)?;
            simulated.insert(card.id.clone(), backend.card.clone());
            Box::new(backend)
        }
        Driver::Soft => {
            Box::new(soft_backend(card, profile, settings, links).with_context(of_card)?)
        }
        Driver::Xrt => Box::new(xrt_backend(card, profile, settings, links).with_context(of_card)?),
    };
    Ok(CardSlot { id: card.id.clone(), backend })
}

fn sim_backend(
    card: &CardSettings,
    profile: CardProfile,
    processors: Option<&NicModel>,
    links: &CardLinks,
) -> Result<SimBackend> {
    let sim = match processors {
        Some(model) => {
            SimCard::with_processors(profile.clone(), card.seed, Arc::new(model.clone()))
        }
        None => SimCard::new(profile.clone(), card.seed),
    };
    let shared = SharedSimCard::new(sim?);
    let (driver, link) = ("simulated".to_owned(), "in the daemon".to_owned());
    links.set(card.id.clone(), CardLink { driver, link, shell: String::new() });
    let generator = SimGenerator::new(shared.clone(), &profile);
    links.set_generator(card.id.clone(), Arc::new(generator));
    Ok(SimBackend { card: shared, profile })
}

fn soft_backend(
    card: &CardSettings,
    profile: CardProfile,
    settings: &Settings,
    links: &CardLinks,
) -> Result<SoftBackend> {
    let soft = card.soft.clone().unwrap_or_default();
    let launcher = soft::launcher(&soft, card, settings)?;
    links.set_window(card.id.clone(), Arc::new(soft::window(&launcher, &profile)));
    let generator = soft::generator(&launcher, &profile);
    links.set_generator(card.id.clone(), Arc::new(generator));
    Ok(SoftBackend { id: card.id.clone(), launcher, profile, links: links.clone() })
}

fn xrt_backend(
    card: &CardSettings,
    profile: CardProfile,
    settings: &Settings,
    links: &CardLinks,
) -> Result<XrtBackend> {
    let reached = card.xrt.as_ref().context("checked with the settings")?;
    let through = xrt::settings(reached, &card.id, &settings.data_dir)?;
    let check = RoleCheck {
        interface: reached.interface,
        signature: reached.role_signature.clone(),
        trust: Trust::read(&settings.signatures)?,
        profile,
    };
    let device = xrt::XrtCardDevice::new(&card.id, reached);
    Ok(XrtBackend::new(through, check, device, links.clone()))
}
