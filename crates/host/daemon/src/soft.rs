//! Software cards: from the settings to an open card, and the process that is the card.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use snic_card_soft::{CardExtras, CardFolder, Program, SoftCard, SoftGenerator, SoftWindow};
use snic_domain::{CardId, CardProfile};
use snic_ports::driver::Deadlines;
use snic_server::shell::{CardBackend, OpenedCard};
use snic_server::{CardLink, CardLinks};

use crate::settings::{CardSettings, Settings, Soft};
use crate::simulated::no_role;

/// `snicd card`: is the card in `folder` until it is killed. It runs no WebAssembly modules and has no vhost-user
/// ports: that is what the program `snic-card` is for.
pub fn serve(folder: &Path, profiles: Option<&Path>) -> Result<()> {
    snic_card_soft::serve_folder(folder, profiles, CardExtras::default()).context("serve the card")
}

/// Launcher that finds or starts a software card.
pub struct SoftCardLauncher {
    place: CardFolder,
    program: Program,
    settings: snic_card_soft::SoftCardSettings,
}

/// Finds or starts a card; the daemon's own program is the card's process, unless the settings name another.
pub fn launcher(
    soft: &Soft,
    card: &CardSettings,
    settings: &Settings,
) -> std::io::Result<SoftCardLauncher> {
    // The card runs in another folder.
    let folder = std::path::absolute(&settings.data_dir)?.join("cards").join(card.id.as_str());
    let (file, verb) = match &soft.program {
        Some(program) => (std::path::absolute(program)?, "serve"),
        None => (std::env::current_exe()?, "card"),
    };
    let mut arguments = vec![verb.to_owned(), "--folder".to_owned(), folder.display().to_string()];
    if let Some(profiles) = &settings.profiles_dir {
        let profiles = std::path::absolute(profiles)?;
        arguments.extend(["--profiles".to_owned(), profiles.display().to_string()]);
    }
    Ok(SoftCardLauncher {
        place: CardFolder::new(&folder),
        program: Program { file, arguments },
        settings: snic_card_soft::SoftCardSettings {
            model: card.model.to_string(),
            uplink: soft.uplink.clone(),
            functions: soft.functions.clone(),
            guards: soft.guards.clone(),
            failovers: soft.failovers.clone(),
            fast_path: soft.fast_path,
        },
    })
}

/// Time that the modules of a bitstream may take to be compiled: eight of 256 KiB, on a busy machine. Chosen,
/// not measured.
const COMPILE_LIMIT: Duration = Duration::from_secs(30);

/// Through what a card's packets are seen.
pub fn window(launcher: &SoftCardLauncher, profile: &CardProfile) -> SoftWindow {
    SoftWindow::new(launcher.place.clone(), profile.model.clone(), launcher.settings.clone())
}

/// Through what a card makes packets.
pub fn generator(launcher: &SoftCardLauncher, profile: &CardProfile) -> SoftGenerator {
    SoftGenerator::new(launcher.place.clone(), profile, launcher.settings.clone())
}

/// A software card of the settings.
pub struct SoftBackend {
    /// Name of the card.
    pub id: CardId,
    /// Finds or starts the card's process.
    pub launcher: SoftCardLauncher,
    pub profile: CardProfile,
    /// Connections of all cards, for display.
    pub links: CardLinks,
}

impl CardBackend for SoftBackend {
    /// Opens the process that is there, or starts a new one.
    fn open(&mut self) -> OpenedCard {
        let SoftCardLauncher { place, program, settings } = &self.launcher;
        let card = SoftCard::open(place, program, self.profile.model.clone(), settings)?;
        let link = CardLink {
            driver: "software".to_owned(),
            link: format!("process {}", card.link().pid),
            shell: String::new(),
        };
        tracing::info!(pid = card.link().pid, "card opened");
        self.links.set(self.id.clone(), link);
        Ok((Box::new(card), self.profile.clone()))
    }

    fn prepare_role(&mut self, _force: bool) -> Result<(), String> {
        Err(no_role("a software"))
    }

    /// Kills the card's process; opening the card starts another one.
    fn reset(&mut self) -> Result<(), String> {
        self.launcher.place.kill().map_err(|error| format!("the card's process: {error}"))
    }

    /// Leaves time for modules: the load of a bitstream with modules ends when they are compiled.
    fn deadlines(&self) -> Deadlines {
        Deadlines { load_margin: COMPILE_LIMIT, ..Deadlines::of(&self.profile) }
    }
}
