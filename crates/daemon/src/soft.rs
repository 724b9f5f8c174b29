//! Software cards: from the settings to an open card, and the process that is the card.

use std::path::Path;

use anyhow::{Context as _, Result};
use snic_bitstream::catalogue::with_profiles;
use snic_card_soft::{CardFolder, Program, SoftCard, SoftGenerator, SoftWindow};
use snic_domain::{CardModel, CardProfile};
use snic_ports::card;
use snic_server::CardLink;

use crate::settings::{CardSettings, Settings, Soft};

/// `snicd card`: is the card in `folder` until it is killed.
pub fn serve(folder: &Path, profiles: Option<&Path>) -> Result<()> {
    let place = CardFolder::new(folder);
    let settings = place
        .read_settings()
        .with_context(|| format!("read the card's settings {}", place.settings().display()))?;
    let catalogue = with_profiles(profiles)?;
    let model = CardModel::new(&settings.model).context("the card's model")?;
    let profile = catalogue
        .card(&model)
        .with_context(|| format!("the catalogue has no card model {model}"))?
        .clone();
    snic_card_soft::serve(&place, settings, profile).context("serve the card")
}

/// How a software card is found or started.
pub struct SoftCardLauncher {
    place: CardFolder,
    program: Program,
    settings: snic_card_soft::SoftCardSettings,
}

/// Finds or starts a card; the daemon's own program is the card's process.
pub fn launcher(
    soft: &Soft,
    card: &CardSettings,
    settings: &Settings,
) -> std::io::Result<SoftCardLauncher> {
    // The card runs in another folder.
    let folder = std::path::absolute(&settings.data_dir)?.join("cards").join(card.id.as_str());
    let mut arguments =
        vec!["card".to_owned(), "--folder".to_owned(), folder.display().to_string()];
    if let Some(profiles) = &settings.profiles_dir {
        let profiles = std::path::absolute(profiles)?;
        arguments.extend(["--profiles".to_owned(), profiles.display().to_string()]);
    }
    Ok(SoftCardLauncher {
        place: CardFolder::new(&folder),
        program: Program { file: std::env::current_exe()?, arguments },
        settings: snic_card_soft::SoftCardSettings {
            model: card.model.to_string(),
            uplink: soft.uplink.clone(),
            functions: soft.functions.clone(),
        },
    })
}

/// Through what a card's packets are seen.
pub fn window(launcher: &SoftCardLauncher, profile: &CardProfile) -> SoftWindow {
    SoftWindow::new(launcher.place.clone(), profile.model.clone(), launcher.settings.clone())
}

/// Through what a card makes packets.
pub fn generator(launcher: &SoftCardLauncher, profile: &CardProfile) -> SoftGenerator {
    SoftGenerator::new(launcher.place.clone(), profile, launcher.settings.clone())
}

/// Opens a card: the process that is there, or a new one.
pub fn open(
    launcher: &SoftCardLauncher,
    profile: &CardProfile,
) -> Result<(Box<dyn card::Card>, CardLink), String> {
    let card = SoftCard::open(
        &launcher.place,
        &launcher.program,
        profile.model.clone(),
        &launcher.settings,
    )?;
    let link = CardLink {
        driver: "software".to_owned(),
        link: format!("process {}", card.link().pid),
        shell: String::new(),
    };
    tracing::info!(pid = card.link().pid, "card opened");
    Ok((Box::new(card), link))
}
