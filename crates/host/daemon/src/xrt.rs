//! XRT cards: from the settings to an open card, and the process that calls the library.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use snic_bitstream::signature::Trust;
use snic_bitstream::xclbin::{ExpectedRole, check_role, named};
use snic_card_xrt::{
    CallDeadlines, CardSelector, DriverErrors, FIRST_REGISTER, REGISTERS_BYTES, TracedWork,
    XrtCard, XrtMonitor, device_folder, read_platform,
};
use snic_domain::{CardId, CardProfile, Digest};
use snic_ports::device::DeviceMonitor;
use snic_ports::driver::Deadlines;
use snic_server::shell::{CardBackend, OpenedCard};
use snic_server::{CardLink, CardLinks};
use snic_telemetry::metrics::instruments;
use snic_telemetry::trace;
use uuid::Uuid;

use crate::settings::XrtSettings;

/// Where Linux has its devices.
const SYSFS: &str = "/sys";

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
fn record_work(parent: &str, work: TracedWork) {
    trace::record(trace::FinishedSpan {
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

/// Requirements on a card's role file.
#[derive(Clone)]
pub struct RoleCheck {
    /// Interface UUID of the platform, where the settings give it.
    pub interface: Option<Uuid>,
    /// The provider's signature of the role, where the settings name one.
    pub signature: Option<PathBuf>,
    /// Keys whose signatures count.
    pub trust: Trust,
    pub profile: CardProfile,
}

/// Identification of a card behind XRT, and what is read of it beside its registers.
#[derive(Clone)]
pub struct XrtCardDevice {
    /// The card's name.
    pub id: CardId,
    /// Its folder in sysfs, where it is known.
    pub folder: Option<PathBuf>,
    /// Errors that its worker learns, for its monitor.
    pub errors: DriverErrors,
    /// It had a worker already.
    had_worker: Arc<AtomicBool>,
}

impl XrtCardDevice {
    /// The device of a card of the settings.
    pub fn new(id: &CardId, xrt: &XrtSettings) -> Self {
        let by_address = || match xrt.device.into() {
            CardSelector::Pci(address) => Some(device_folder(Path::new(SYSFS), address)),
            CardSelector::Number(_) => None,
        };
        let folder = xrt.sysfs.clone().or_else(by_address);
        let (errors, had_worker) = (DriverErrors::default(), Arc::default());
        Self { id: id.clone(), folder, errors, had_worker }
    }

    /// Fails where the card is not in the host.
    pub fn check_presence(&self) -> Result<(), String> {
        match self.folder.as_deref().filter(|folder| !folder.exists()) {
            None => Ok(()),
            Some(folder) => Err(format!(
                "its PCI device {} is not there: the card was removed, its slot has no power, or `device` in \
                 [cards.xrt] names another address",
                folder.display()
            )),
        }
    }

    /// Fails where a role is for another platform than the card's, as far as its driver says which that is. The
    /// interfaces decide, as in XRT's driver; the names of platforms and of what is built on them differ in some
    /// releases.
    pub fn check_platform(&self, role: &CheckedRole) -> Result<(), String> {
        let platform = self.folder.as_deref().map(read_platform).unwrap_or_default();
        if platform.takes(&role.platform, &role.interfaces) {
            return Ok(());
        }
        let name = platform.name.as_deref().unwrap_or("without a name");
        Err(format!(
            "the role {} was built against platform {} ({}), the card has platform {name} ({}); build it for the \
             card's platform, or flash the card with the role's",
            role.uuid,
            role.platform,
            named(&role.interfaces),
            named(&platform.interfaces)
        ))
    }

    /// Reads the device, where its folder is known.
    pub fn monitor(
        &self,
        settings: &snic_card_xrt::XrtCardSettings,
    ) -> Option<Box<dyn DeviceMonitor>> {
        let folder = self.folder.clone()?;
        Some(Box::new(XrtMonitor::new(settings.clone(), folder, self.errors.clone())))
    }

    /// Whether the device is there; where its folder is not known, it counts as there.
    pub fn is_present(&self) -> bool {
        self.folder.as_ref().is_none_or(|folder| folder.exists())
    }
}

/// A role that may be loaded.
pub struct CheckedRole {
    pub uuid: Uuid,
    /// The platform that it is for.
    pub platform: String,
    /// The interfaces of that platform, where the role names them.
    pub interfaces: Vec<Uuid>,
    /// Its size, in bytes.
    pub bytes: u64,
    /// The digest of the bytes that were checked.
    pub digest: Digest,
}

impl RoleCheck {
    /// Checks a role file completely, before XRT sees it.
    ///
    /// # Errors
    /// Checks the file and its signature; the error says what is wrong.
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
        let platform = role.platform.to_string();
        let (uuid, interfaces) = (role.uuid, role.interfaces);
        Ok(CheckedRole { uuid, platform, interfaces, bytes: bytes.len() as u64, digest })
    }
}

/// The settings, with time enough to load a role of this size: at least what a region's load of it could take.
pub fn patient(
    settings: &snic_card_xrt::XrtCardSettings,
    role: &CheckedRole,
    profile: &CardProfile,
) -> snic_card_xrt::XrtCardSettings {
    let mut settings = settings.clone();
    let load = Deadlines::of(profile).load(role.bytes);
    settings.deadlines.open = settings.deadlines.open.max(load);
    settings
}

/// A card behind XRT, of the settings.
pub struct XrtBackend {
    settings: snic_card_xrt::XrtCardSettings,
    check: RoleCheck,
    device: XrtCardDevice,
    /// Whether the next opening must load the role even if the card has it.
    force_role: bool,
    /// Connections of all cards, for display.
    links: CardLinks,
}

impl XrtBackend {
    /// The card of these settings, whose role is checked before each opening.
    pub const fn new(
        settings: snic_card_xrt::XrtCardSettings,
        check: RoleCheck,
        device: XrtCardDevice,
        links: CardLinks,
    ) -> Self {
        Self { settings, check, device, force_role: false, links }
    }
}

impl CardBackend for XrtBackend {
    fn open(&mut self) -> OpenedCard {
        let Self { check, device, .. } = &*self;
        device.check_presence()?;
        let role = check.check(&self.settings)?;
        device.check_platform(&role)?;
        let mut settings = patient(&self.settings, &role, &check.profile);
        settings.force_role = std::mem::take(&mut self.force_role);
        let Self { check, device, .. } = &*self;
        if device.had_worker.swap(true, Ordering::Relaxed) {
            instruments().worker_restarted(device.id.as_str());
        }
        let selector = settings.device;
        let card = XrtCard::open(check.profile.model.clone(), settings, role.digest)
            .map_err(|error| error.to_string())?;
        let id = device.id.clone();
        let observe = move |what, time: Duration| {
            instruments().accessed(id.as_str(), what, time.as_secs_f64());
        };
        let card = card.observing(Box::new(observe)).reporting_to(device.errors.clone());
        let card = if trace::is_on() { card.with_tracer(record_work) } else { card };
        let link = card.link();
        tracing::info!(role = %link.role, xrt = link.xrt_version, bulk = link.bulk, "card opened");
        let shown = CardLink {
            driver: format!("XRT {}", link.xrt_version),
            link: format!("card {selector}, worker {}", card.worker_id().unwrap_or_default()),
            shell: link.role.to_string(),
        };
        self.links.set(device.id.clone(), shown);
        Ok((Box::new(card), check.profile.clone()))
    }

    fn prepare_role(&mut self, force: bool) -> Result<(), String> {
        self.device.check_platform(&self.check.check(&self.settings)?)?;
        self.force_role = force;
        Ok(())
    }

    /// Has XRT's driver reset the card.
    fn reset(&mut self) -> Result<(), String> {
        XrtCard::reset(&self.settings)
    }

    fn is_present(&self) -> bool {
        self.device.is_present()
    }

    fn take_monitor(&mut self) -> Option<Box<dyn DeviceMonitor>> {
        self.device.monitor(&self.settings)
    }

    fn deadlines(&self) -> Deadlines {
        Deadlines::of(&self.check.profile)
    }
}
