//! The same control plane with the simulated card embedded: the reference for results through XRT.

use std::path::PathBuf;
use std::sync::Arc;

use snic_bitstream::catalogue::Catalogue;
use snic_bitstream::check_upload;
use snic_card_sim::{SharedSimCard, SimCard};
use snic_controller::{Controller, ControllerSettings, Scheme};
use snic_domain::{CardId, CardProfile, NtTypeId};
use snic_front::identity::TrustDomain;
use snic_front::uploads::{Upload, UploadCheck, UploadFindings, UploadProblem};
use snic_ports::card::Card as _;
use snic_ports::store::memory::MemoryStore;
use snic_server::ServerSettings;
use snic_server::shell::{self, CardSlot, ControlPlaneThreads, OpenedCard};
use tokio::sync::oneshot;

/// A control plane that serves on a unix socket.
pub struct Embedded {
    pub card: SharedSimCard,
    folder: tempfile::TempDir,
    _stop: oneshot::Sender<()>,
    running: Option<ControlPlaneThreads>,
}

impl Embedded {
    /// Starts one with a card of this profile and the seed 1.
    ///
    /// # Panics
    /// Where it does not start.
    pub async fn start(catalogue: &Catalogue, profile: &CardProfile) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let card = SharedSimCard::new(SimCard::new(profile.clone(), 1).expect("a valid profile"));
        let mut settings = ControllerSettings::default();
        // Rates that follow the load would differ by the moment at which they were set.
        settings.fairness.scheme = Scheme::Static;
        settings.autoscaling.enabled = false;
        let controller = Controller::recover(settings, [], 7, snic_front::wall_clock());
        let (shared, offered) = (card.clone(), profile.clone());
        let open = Box::new(move || -> OpenedCard {
            let mut card = shared.clone();
            card.poll(snic_front::wall_clock()).map_err(|error| error.to_string())?;
            Ok((Box::new(card), offered.clone()))
        });
        let slot = CardSlot::of_registers(CardId::new("card0").expect("a label"), open);
        let store = Arc::new(MemoryStore::new());
        let (plane, running) =
            shell::start(controller.expect("an empty store"), store, vec![slot]).expect("threads");
        let cards = catalogue.cards.clone();
        let check = UploadCheck::new(move |upload: Upload<'_>| {
            let nt = |id: &NtTypeId| upload.nts.iter().find(|nt| nt.id == *id);
            check_upload(upload.bytes, upload.declared, &cards, nt)
                .map(|_| UploadFindings::default())
                .map_err(|error| UploadProblem { field: error.field(), what: error.to_string() })
        });
        let domain = TrustDomain::new("snic.test").expect("a domain");
        let mut settings = ServerSettings::new(domain, check);
        settings.front.unix = Some(folder.path().join("snicd.sock"));
        settings.front.unix_peers = snic_integration::everybody();
        let bound = snic_server::bind(settings).await.expect("it listens");
        let (stop, stopped) = oneshot::channel();
        tokio::spawn(bound.serve(plane, async move {
            // A dropped sender means stop, too.
            let _ = stopped.await;
        }));
        Self { card, folder, _stop: stop, running: Some(running) }
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.path().join("snicd.sock")
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            // Its store is memory.
            let _ = running.stop();
        }
    }
}
