//! XRT cards: from the settings to an open card, and the process that calls the library.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use snic_bitstream::signature::Trust;
use snic_bitstream::xclbin::{ExpectedRole, check_role};
use snic_card_xrt::{CallDeadlines, FIRST_REGISTER, REGISTERS_BYTES, TracedWork, XrtCard};
use snic_domain::{CardId, CardProfile, Digest};
use snic_ports::card::Card;
use snic_server::CardLink;
use snic_telemetry::trace;
use uuid::Uuid;

use crate::settings::XrtSettings;

/// `snicd xrt-worker`: serves the daemon at the other end of its standard input.
pub fn work() -> Result<()> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().context("the daemon's socket")?;
    snic_card_xrt::serve(UnixStream::from(socket)).context("serve the daemon")
}

/// The settings of an XRT card; the daemon's own program is the worker.
pub fn settings(
    xrt: &XrtSettings,
    id: &CardId,
    data_dir: &Path,
) -> std::io::Result<snic_card_xrt::XrtCardSettings> {
    let deadlines = CallDeadlines {
        open: Duration::from_millis(xrt.deadlines.open_ms),
        access: Duration::from_millis(xrt.deadlines.access_ms),
        buffer: Duration::from_millis(xrt.deadlines.buffer_ms),
        ..CallDeadlines::default()
    };
    Ok(snic_card_xrt::XrtCardSettings {
        program: (std::env::current_exe()?, vec!["xrt-worker".to_owned()]),
        // The worker runs in it.
        folder: std::path::absolute(data_dir)?.join("xrt").join(id.as_str()),
        device: xrt.device.into(),
        role: std::path::absolute(&xrt.role)?,
        force_role: false,
        control: xrt.control.clone(),
        environment: xrt.environment.clone(),
        deadlines,
    })
}

/// Records what a worker did for a step as a child span of the step.
fn tell(parent: &str, work: TracedWork) {
    trace::record(trace::RemoteSpan {
        parent: parent.to_owned(),
        name: "snic.xrt",
        times: (work.first, work.last),
        numbers: vec![
            ("snic.accesses", work.accesses),
            ("snic.words", work.words),
            ("snic.bytes", work.bytes),
            ("process.pid", work.pid.into()),
        ],
    });
}

/// What a card's role file must be.
#[derive(Clone)]
pub struct RoleCheck {
    /// Interface UUID of the platform, where the settings give it.
    pub interface: Option<Uuid>,
    /// The provider's signature of the role, where the settings name one.
    pub signature: Option<PathBuf>,
    /// Whose signatures count.
    pub trust: Trust,
    /// The card.
    pub profile: CardProfile,
}

/// A role that may be loaded.
pub struct CheckedRole {
    /// Its UUID.
    pub uuid: Uuid,
    /// The platform that it is for.
    pub platform: String,
    /// The digest of the bytes that were checked.
    pub digest: Digest,
}

impl RoleCheck {
    /// Checks a role file completely, before XRT sees it.
    ///
    /// # Errors
    /// What is wrong with the file or its signature.
    pub fn check(&self, settings: &snic_card_xrt::XrtCardSettings) -> Result<CheckedRole, String> {
        let name = settings.role.display();
        let failed = |error: &dyn std::fmt::Display| format!("role {name}: {error}");
        let bytes = std::fs::read(&settings.role).map_err(|error| failed(&error))?;
        let expected = ExpectedRole {
            control: &settings.control,
            registers_bytes: REGISTERS_BYTES,
            first_register: FIRST_REGISTER,
            interface: self.interface,
            card: &self.profile,
        };
        let role = check_role(&bytes, &expected).map_err(|error| failed(&error))?;
        let digest = Digest::of(&bytes);
        let signature = match &self.signature {
            Some(path) => std::fs::read(path)
                .map_err(|error| format!("role_signature {}: {error}", path.display()))?,
            None => Vec::new(),
        };
        self.trust.signer_of_role(digest, &signature).map_err(|error| failed(&error))?;
        Ok(CheckedRole { uuid: role.uuid, platform: role.platform.to_string(), digest })
    }
}

/// Opens a card after checking its role.
pub fn open(
    settings: &snic_card_xrt::XrtCardSettings,
    check: &RoleCheck,
) -> Result<(Box<dyn Card>, CardLink), String> {
    let role = check.check(settings)?.digest;
    let card = XrtCard::open(check.profile.model.clone(), settings.clone(), role)
        .map_err(|error| error.to_string())?;
    let card = if trace::is_on() { card.telling(tell) } else { card };
    let link = card.link();
    tracing::info!(role = %link.role, xrt = link.xrt_version, bulk = link.bulk, "card opened");
    let shown = CardLink {
        driver: format!("XRT {}", link.xrt_version),
        link: format!("card {}, worker {}", settings.device, card.worker_id().unwrap_or_default()),
        shell: link.role.to_string(),
    };
    Ok((Box::new(card), shown))
}
