//! `snicd doctor`: checks what XRT cards need, and says what to do for each finding. Without
//! `--hardware-test` no card is accessed, and XRT is loaded but not called.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use snic_bitstream::catalogue::{self, Catalogue};
use snic_bitstream::xclbin::{Expected, check_role};
use snic_card_xrt::{REGISTERS_BYTES, XrtCard, environment, probe};

use crate::settings::{Card, Driver, Settings, Xrt};
use crate::xrt;

/// Options of the doctor.
#[derive(Debug, clap::Args)]
pub struct Options {
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

/// What the checks of all cards of this host share.
#[derive(Clone, Copy)]
struct HostInfo<'a> {
    settings: &'a Settings,
    catalogue: &'a Catalogue,
}

/// Prints the findings and counts the problems.
#[derive(Debug, Default)]
struct Findings {
    wrong: usize,
}

impl Findings {
    fn good(&self, card: &str, what: &str) {
        println!("ok    {card}: {what}");
    }

    fn wrong(&mut self, card: &str, what: &str) {
        self.wrong += 1;
        println!("WRONG {card}: {what}");
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
pub fn run(options: &Options) -> Result<()> {
    let settings = Settings::read(&options.config)?;
    let catalogue = catalogue::builtin().context("read the built-in catalogue")?;
    let mut findings = Findings::default();
    findings.good("settings", &options.config.display().to_string());
    let host = HostInfo { settings: &settings, catalogue: &catalogue };
    for card in &settings.cards {
        match (card.driver, &card.xrt) {
            (Driver::Xrt, Some(reached)) => {
                let through = examine(card, reached, host, &mut findings);
                if let Some(through) = through.filter(|_| options.hardware_test) {
                    try_card(card.id.as_str(), &through, &mut findings);
                }
            }
            (driver, _) => {
                let kind = if driver == Driver::Soft { "software" } else { "simulated" };
                findings.good(card.id.as_str(), &format!("{kind}: nothing to check"));
            }
        }
    }
    match findings.wrong {
        0 => Ok(()),
        wrong => bail!("{wrong} problems found; see the lines that start with WRONG"),
    }
}

/// Checks everything that needs no access to the card. Returns the XRT settings if XRT can be called.
fn examine(
    card: &Card,
    reached: &Xrt,
    HostInfo { settings, catalogue }: HostInfo<'_>,
    findings: &mut Findings,
) -> Option<snic_card_xrt::Settings> {
    let id = card.id.as_str();
    let through = xrt::settings(reached, &card.id, &settings.data_dir);
    let through = findings.add(
        id,
        "the paths in its settings",
        through.map_err(|error| error.to_string()),
    )?;
    let is_usable = library(id, &through, findings);
    role(card, reached, &through.role, catalogue, findings);
    if emulation(&through).is_none() {
        driver(id, findings);
    }
    is_usable.then_some(through)
}

/// Tests the card itself, step by step.
fn try_card(id: &str, through: &snic_card_xrt::Settings, findings: &mut Findings) {
    let steps = match XrtCard::examine(through) {
        Ok(steps) => steps,
        Err(what) => return findings.wrong(id, &what),
    };
    let log = through.folder.join("worker.log");
    for step in steps {
        let result = step.problem.map_or(Ok(()), |what| {
            Err(format!("{}: {what}; see the worker's log, {}", step.step, log.display()))
        });
        findings.add(id, &step.step, result);
    }
}

fn emulation(through: &snic_card_xrt::Settings) -> Option<String> {
    let set = through.environment.get(environment::EMULATION).cloned();
    set.or_else(|| std::env::var(environment::EMULATION).ok())
}

/// Whether XRT can be called without aborting.
fn library(id: &str, through: &snic_card_xrt::Settings, findings: &mut Findings) -> bool {
    let root = std::fs::create_dir_all(&through.folder)
        .and_then(|()| environment::find_root(&through.environment, &through.folder))
        .map_err(|error| {
            format!(
                "cannot use the folder {}: {error}; make it writable for this user",
                through.folder.display()
            )
        });
    let Some(root) = findings.add(id, "the worker's folder", root) else { return false };
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
            findings.good(id, &format!("XRT {} has all required functions", version.0));
            true
        }
        Err(error) => {
            findings.wrong(id, &error.to_string());
            false
        }
    }
}

fn has_user(through: &snic_card_xrt::Settings) -> bool {
    through.environment.contains_key("USER") || std::env::var_os("USER").is_some()
}

fn role(card: &Card, reached: &Xrt, file: &Path, catalogue: &Catalogue, findings: &mut Findings) {
    let id = card.id.as_str();
    let Some(profile) = catalogue.card(&card.model) else {
        findings.wrong(
            id,
            &format!("unknown card model {}; the models are in bitstreams/cards", card.model),
        );
        return;
    };
    let name = file.display();
    let Some(bytes) =
        findings.add(id, "the role file", std::fs::read(file).map_err(|e| format!("{name}: {e}")))
    else {
        return;
    };
    let (control, interface) = (&reached.control, reached.interface);
    let expected = Expected { control, registers_bytes: REGISTERS_BYTES, interface, card: profile };
    match check_role(&bytes, &expected) {
        Ok(role) => findings.good(id, &format!("role {} for {}", role.uuid, role.platform)),
        Err(error) => findings.wrong(id, &format!("{name}: {error}")),
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
