//! `snicd doctor`: checks what the daemon and XRT cards need, and says what to do for each finding. Without
//! `--hardware-test` no card is accessed, and XRT is loaded but not called. Nothing is left behind.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context as _, Result, bail};
use snic_api::text::escaped_lines;
use snic_bitstream::signature::Trust;
use snic_card_soft::PortSpec;
use snic_card_xrt::{XrtCard, environment, probe};
use snic_domain::CardProfile;
use snic_front::RevocationStatus;
use snic_output::{self as output, complain, remedy};
use snic_store_sled::is_in_use;
use tempfile::TempDir;

use crate::settings::{CardSettings, Driver, Settings, XrtSettings};
use crate::wiring::KnownCards;
use crate::xrt::{CheckedRole, RoleCheck, XrtCardDevice, patient};
use crate::{fleet, policies, serving, store, xrt};

/// Options of the doctor.
#[derive(Debug, clap::Args)]
pub struct DoctorOptions {
    /// Settings file.
    #[arg(long, short, default_value = "/etc/snic/snicd.toml")]
    config: PathBuf,
    /// Also test the hardware: open each card, load its role, claim the register map, copy a buffer
    /// and read a register. Stop the daemon first. Tables and regions are not changed.
    #[arg(long)]
    hardware_test: bool,
}

/// Present in sysfs while the driver of XRT cards is loaded.
const DRIVER: &str = "/sys/bus/pci/drivers/xocl";
/// Folder of the driver's device nodes.
const DEVICES: &str = "/dev/dri";
/// A certificate that ends sooner is a problem already.
const ENDS_SOON: Duration = Duration::from_secs(14 * 24 * 3_600);
/// Lines of a worker's log that are shown with a problem.
const LOG_LINES: usize = 5;

/// Facts that the checks of all cards of this host share.
#[derive(Clone, Copy)]
struct HostInfo<'a> {
    settings: &'a Settings,
    known: &'a KnownCards,
}

/// Prints the findings and counts the problems.
#[derive(Debug, Default)]
struct Findings {
    wrong: usize,
    /// Whether a finding could not be printed.
    is_cut: Cell<bool>,
}

impl Findings {
    /// Prints a line; one that cannot be written is on standard error at least.
    fn say(&self, line: std::fmt::Arguments<'_>) {
        if let Err(error) = output::line(line) {
            complain!("snicd: print a finding: {error}: {line}");
            self.is_cut.set(true);
        }
    }

    /// The result of the whole.
    fn end(&self) -> Result<()> {
        match self.wrong {
            0 if self.is_cut.get() => {
                bail!("nothing is wrong, but not all of that could be printed")
            }
            0 => Ok(()),
            wrong => bail!("problems found: {wrong}; see the lines that start with WRONG"),
        }
    }

    fn good(&self, card: &str, what: &str) {
        self.say(format_args!("ok    {card}: {}", escaped_lines(what)));
    }

    fn wrong(&mut self, card: &str, what: &str) {
        self.wrong += 1;
        self.say(format_args!("WRONG {card}: {}", escaped_lines(what)));
    }

    fn add<T>(&mut self, card: &str, good: &str, result: Result<T, String>) -> Option<T> {
        match result {
            Ok(value) => {
                self.good(card, good);
                Some(value)
            }
            Err(what) => {
                self.wrong(card, &what);
                None
            }
        }
    }
}

/// Checks everything; fails if there is a problem.
pub fn run(options: &DoctorOptions) -> Result<()> {
    let settings = Settings::read(&options.config)?;
    let mut findings = Findings::default();
    findings.good("settings", &options.config.display().to_string());
    data_folder(&settings, &mut findings);
    if settings.data_dir.join("db").is_dir() {
        set_aside_records(&settings, &mut findings);
    }
    credentials(&settings, &mut findings);
    fleet_link(&settings, &mut findings);
    signatures(&settings, &mut findings);
    let policies = policies::load(settings.policies_dir.as_deref());
    findings.add("policies", "all are valid", policies.map_err(|error| error.to_string()));
    let of_fleet = policies::fleet_file_names(&settings);
    if !of_fleet.is_empty() {
        let names = of_fleet.join(", ");
        findings
            .good("policies of the fleet", &format!("{names}; in force instead of this host's"));
    }
    let rules = policies::check_authorization(&settings);
    findings.add("authorization policies", "all are valid", rules);
    let known = KnownCards::read(&settings).map_err(|error| format!("{error:#}"));
    let Some(known) = findings.add("profiles", "all are valid", known) else {
        bail!("problems found: {}; see the lines that start with WRONG", findings.wrong);
    };
    if settings.cards.is_empty() {
        findings.wrong("cards", "there is no [[cards]] in the settings, so no DAG fits; add one");
    }
    let host = HostInfo { settings: &settings, known: &known };
    for card in &settings.cards {
        match (card.driver, &card.xrt) {
            (Driver::Xrt, Some(reached)) => {
                let id = card.id.as_str();
                let scratch = tempfile::tempdir().context("make a temporary folder")?;
                let through = examine(card, reached, host, &scratch, &mut findings);
                if let Some((through, role)) = through.filter(|_| options.hardware_test) {
                    match is_in_use(&settings.data_dir) {
                        Ok(false) => try_card(id, &through, &role, &mut findings),
                        Ok(true) => findings.wrong(
                            id,
                            "not tested: the daemon runs and uses it; stop the daemon first",
                        ),
                        Err(error) => findings.wrong(id, &format!("not tested: {error}")),
                    }
                }
            }
            (driver, _) => match known.find(card) {
                Err(wrong) => findings.wrong(card.id.as_str(), &wrong),
                Ok(_) if driver == Driver::Soft => software(card, &mut findings),
                Ok(_) => findings.good(card.id.as_str(), "simulated: nothing to check"),
            },
        }
    }
    findings.end()
}

/// The store and the audit log must be able to write: a file is written and synced in each of their folders, and removed.
fn data_folder(settings: &Settings, findings: &mut Findings) {
    for folder in [settings.data_dir.clone(), settings.data_dir.join("audit")] {
        let shown = folder.display();
        match output::try_folder(&folder) {
            Ok(true) => findings.good("data_dir", &format!("{shown} can be written")),
            Ok(false) => {
                findings
                    .good("data_dir", &format!("{shown} is not there yet; the daemon makes it"));
            }
            Err(error) => {
                let advice = remedy(error.kind()).map_or_else(String::new, |it| format!("; {it}"));
                let text = format!(
                    "{shown} cannot be written ({error}): a daemon that runs refuses changes, and one that starts may end \
                     at once{advice}"
                );
                findings.wrong("data_dir", &text);
            }
        }
    }
}

/// Records that an earlier start set aside, which nobody is served. Only the daemon can say while it runs.
fn set_aside_records(settings: &Settings, findings: &mut Findings) {
    let ask_daemon =
        "the daemon runs; `snicctl maintenance status` says whether it set records aside";
    let counted = match is_in_use(&settings.data_dir) {
        Ok(true) => return findings.good("store", ask_daemon),
        Ok(false) => store::set_aside_count(&settings.data_dir),
        // The folder was named above.
        Err(_) => return,
    };
    let counted = counted.map_err(|error| format!("{error:#}")).and_then(|count| match count {
        0 => Ok(()),
        count => Err(format!(
            "{count} records are set aside and not served; `snicd store check` lists them, `snicd store take-out FILE` \
             moves them to a file"
        )),
    });
    findings.add("store", "no record is set aside", counted);
}

/// The program and the sockets of a software card.
fn software(card: &CardSettings, findings: &mut Findings) {
    let id = card.id.as_str();
    let Some(soft) = &card.soft else {
        return findings.good(id, "software: no ports, so it forwards no packet");
    };
    if let Some(program) = soft.program.as_ref().filter(|program| !program.is_file()) {
        findings.wrong(id, &format!("software: program = {program:?} is not a file"));
    }
    for port in soft.ports() {
        let (PortSpec::Unix(path) | PortSpec::VhostUser(path)) = port else { continue };
        let folder = path.parent().filter(|folder| folder.is_dir());
        if folder.is_none() {
            findings.wrong(id, &format!("software: port {port}: its folder is missing; make it"));
        }
    }
    if let Some(port) = soft.shared_memory_port() {
        findings.good(
            id,
            &format!(
                "software: port {port}: share the guest's memory with memfd (sealed, no huge pages), and have QEMU \
                 reconnect"
            ),
        );
    }
    findings.good(id, "software: program and sockets are looked at");
}

/// Certificates, where something listens on TCP.
fn credentials(settings: &Settings, findings: &mut Findings) {
    let web = settings.web.listen.is_some() && !settings.web.insecure_plaintext;
    if settings.listen.tcp.is_none() && !web {
        return findings.good("tls", "not needed: nothing listens on TCP");
    }
    let read = serving::tls(settings).map_err(|error| {
        format!("{error:#}; `snicd pki` makes certificates, if you have no authority")
    });
    let Some(tls) = findings.add("tls", "the files can be read", read) else { return };
    let checked = tls.check().map_err(|error| error.to_string());
    let good = "certificates, key and revocation list can be used";
    let lists = findings.add("tls", good, checked).unwrap_or_default();
    for concern in serving::concerns(&tls) {
        findings.wrong("tls", &concern.to_string());
    }
    revocation(&lists, SystemTime::now(), findings);
    for (key, pem) in [("certificate", &tls.certificate), ("ca", &tls.client_authority)] {
        let left = serving::end_of_certificate(pem)
            .map(|end| end.duration_since(SystemTime::now()).unwrap_or_default());
        let days = |left: Duration| left.as_secs() / (24 * 3_600);
        match left {
            // An expired one was named above.
            Some(left) if left.is_zero() && key == "certificate" => {}
            Some(left) if left < ENDS_SOON => {
                findings.wrong("tls", &format!("tls.{key} ends in {} days; renew it", days(left)));
            }
            Some(left) => findings.good("tls", &format!("tls.{key} ends in {} days", days(left))),
            // What cannot be parsed was named above.
            None => {}
        }
    }
}

/// Lists of revoked certificates: each that counts must be current.
fn revocation(lists: &[RevocationStatus], now: SystemTime, findings: &mut Findings) {
    for list in lists {
        findings.add("tls", &format!("tls.crl: {list}"), list.problem(now).map_or(Ok(()), Err));
    }
}

/// Certificates of the link to the fleet.
fn fleet_link(settings: &Settings, findings: &mut Findings) {
    let checked = fleet::check_link(settings).map_err(|error| format!("{error:#}"));
    if settings.fleet.is_some() {
        findings.add("fleet", "the link's certificates and key can be used", checked);
    }
}

/// Keys that bitstreams are signed with.
fn signatures(settings: &Settings, findings: &mut Findings) {
    let read = Trust::read(&settings.signatures)
        .map_err(|error| format!("{:#}", anyhow::Error::from(error)));
    let Some(trust) = findings.add("signatures", "the keys can be read", read) else { return };
    if trust.allows_unsigned {
        findings.good("signatures", "unsigned bitstreams are accepted (allow_unsigned)");
    } else if trust.provider.is_empty() && trust.tenants.is_empty() {
        findings.wrong(
            "signatures",
            "there is no key, so every bitstream is rejected; name one in signatures.provider",
        );
    }
}

/// Checks everything that needs no access to the card. XRT's own files go to a folder that is gone
/// afterwards: what this user owned in the daemon's folder, the daemon could not write. Returns the XRT
/// settings, with that folder, and the role, if XRT can be called with it.
fn examine(
    card: &CardSettings,
    reached: &XrtSettings,
    HostInfo { settings, known }: HostInfo<'_>,
    scratch: &TempDir,
    findings: &mut Findings,
) -> Option<(snic_card_xrt::XrtCardSettings, CheckedRole)> {
    let id = card.id.as_str();
    let through = xrt::settings(reached, &card.id, &settings.data_dir);
    let mut through = findings.add(
        id,
        "the paths in its settings",
        through.map_err(|error| error.to_string()),
    )?;
    owner(id, &settings.data_dir, &through.folder, findings);
    emulation_files(id, &through, findings);
    through.folder = scratch.path().to_owned();
    let is_usable = library(id, &through, findings);
    if emulation(&through).is_none() {
        driver(id, findings);
    }
    let host = HostInfo { settings, known };
    let role = role(card, reached, &through, host, findings)?;
    let device = XrtCardDevice::new(&card.id, reached);
    if device.folder.is_some() {
        let fits = device.check_presence().and_then(|()| device.check_platform(&role.0));
        findings.add(id, "the role is for the card's platform, as far as its driver says", fits)?;
    }
    let through = patient(&through, &role.0, &role.1);
    is_usable.then_some((through, role.0))
}

/// The daemon must be able to write its worker's folder.
fn owner(id: &str, data_dir: &Path, folder: &Path, findings: &mut Findings) {
    let user = |path: &Path| std::fs::metadata(path).ok().map(|found| found.uid());
    let (Some(store), Some(worker)) = (user(data_dir), user(folder)) else { return };
    if store != worker {
        let folder = folder.display();
        findings.wrong(
            id,
            &format!(
                "{folder} belongs to user {worker}, the store to user {store}; run \
                 `chown -R {store} {folder}`"
            ),
        );
    }
}

/// Files that XRT's emulation of hardware reads, from paths in the environment or its working folder.
fn emulation_files(id: &str, through: &snic_card_xrt::XrtCardSettings, findings: &mut Findings) {
    if emulation(through).as_deref() != Some("hw_emu") {
        return;
    }
    let set = |name: &str| {
        let set = through.environment.get(name).cloned().or_else(|| std::env::var(name).ok());
        set.map(PathBuf::from)
    };
    let configuration = set("EMCONFIG_PATH").unwrap_or_else(|| through.folder.clone());
    let configuration = configuration.join("emconfig.json");
    if !configuration.exists() {
        findings.wrong(
            id,
            &format!(
                "{} is not there, so the emulation has no card; write it with emconfigutil, and set \
                 EMCONFIG_PATH in [cards.xrt.environment] to its folder",
                configuration.display()
            ),
        );
    }
    let ini = set("XRT_INI_PATH").unwrap_or_else(|| through.folder.join("xrt.ini"));
    if !ini.exists() {
        findings.wrong(
            id,
            &format!(
                "{} is not there, so the emulation starts the vendor's simulator; write it, and set \
                 XRT_INI_PATH in [cards.xrt.environment] to it",
                ini.display()
            ),
        );
    }
}

/// Tests the card itself, step by step.
fn try_card(
    id: &str,
    through: &snic_card_xrt::XrtCardSettings,
    role: &CheckedRole,
    findings: &mut Findings,
) {
    let steps = XrtCard::examine(through, role.digest);
    let log = std::fs::read_to_string(through.folder.join("worker.log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n      | ");
    for step in steps {
        let log = if last.is_empty() { String::new() } else { format!("\n      | {last}") };
        let result = step.problem.map_or(Ok(()), |what| Err(format!("{}: {what}{log}", step.step)));
        findings.add(id, &step.step, result);
    }
}

fn emulation(through: &snic_card_xrt::XrtCardSettings) -> Option<String> {
    let set = through.environment.get(environment::EMULATION).cloned();
    set.or_else(|| std::env::var(environment::EMULATION).ok())
}

/// Whether XRT can be called without aborting.
fn library(id: &str, through: &snic_card_xrt::XrtCardSettings, findings: &mut Findings) -> bool {
    let root = environment::find_root(&through.environment, &through.folder)
        .map_err(|error| format!("cannot use the folder {}: {error}", through.folder.display()));
    let root = match root {
        Ok(root) => root,
        Err(what) => {
            findings.wrong(id, &what);
            return false;
        }
    };
    let mode = emulation(through);
    let shim = environment::shim(root.as_deref(), mode.as_deref());
    let good = match &mode {
        None => "XRT's environment and its library for cards are installed".to_owned(),
        Some(mode) => format!("XRT's environment and its library for {mode} are installed"),
    };
    if findings.add(id, &good, shim.map_err(|error| error.to_string())).is_none() {
        return false;
    }
    if mode.as_deref() == Some("hw_emu") && !has_user(through) {
        findings.wrong(
            id,
            "USER is not set, but hw_emu names its sockets after it; set USER in cards.xrt.environment",
        );
    }
    // The shim was found, so there is a root.
    match probe(root.as_deref().unwrap_or(Path::new(""))) {
        Ok(version) => {
            let good = format!("XRT {} has all required functions", version.0);
            let registers = environment::check_registers(&version, mode.as_deref());
            findings.add(id, &good, registers.map_err(|error| error.to_string())).is_some()
        }
        Err(error) => {
            findings.wrong(id, &error.to_string());
            false
        }
    }
}

fn has_user(through: &snic_card_xrt::XrtCardSettings) -> bool {
    through.environment.contains_key("USER") || std::env::var_os("USER").is_some()
}

/// The card's role, if it may be loaded, and the card's profile.
fn role(
    card: &CardSettings,
    reached: &XrtSettings,
    through: &snic_card_xrt::XrtCardSettings,
    HostInfo { settings, known }: HostInfo<'_>,
    findings: &mut Findings,
) -> Option<(CheckedRole, CardProfile)> {
    let id = card.id.as_str();
    let Some(profile) = known.catalogue.card(&card.model) else {
        findings.wrong(id, &known.unknown_model(card));
        return None;
    };
    let check = RoleCheck {
        interface: reached.interface,
        signature: reached.role_signature.clone(),
        // Keys that cannot be read were named above.
        trust: Trust::read(&settings.signatures).unwrap_or_default(),
        profile: profile.clone(),
    };
    match check.check(through) {
        Ok(role) => {
            findings.good(id, &format!("role {} for {}", role.uuid, role.platform));
            Some((role, profile.clone()))
        }
        Err(what) => {
            findings.wrong(id, &what);
            None
        }
    }
}

/// A physical card needs the driver and device nodes that this user may open.
fn driver(id: &str, findings: &mut Findings) {
    if !Path::new(DRIVER).exists() {
        findings.wrong(
            id,
            "the driver xocl is not loaded; install XRT's kernel modules, then run `modprobe xocl`",
        );
        return;
    }
    let is_card = |name: &str| name.starts_with("renderD");
    let devices: Vec<PathBuf> = std::fs::read_dir(DEVICES)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_str().is_some_and(is_card))
        .map(|entry| entry.path())
        .collect();
    let open = |path: &PathBuf| -> std::io::Result<File> {
        OpenOptions::new().read(true).write(true).open(path)
    };
    if devices.iter().any(|device| open(device).is_ok()) {
        findings.good(id, "the driver is loaded and its devices can be opened");
    } else {
        let what = format!(
            "none of {DEVICES}/renderD* can be opened; check that a card is installed and that this user is in the group render"
        );
        findings.wrong(id, &what);
    }
}
