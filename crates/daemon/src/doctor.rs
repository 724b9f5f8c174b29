//! `snicd doctor`: looks at what cards through XRT need, and says what to do for each finding.
//! Without `--hardware-test` no card is touched, and XRT is loaded but not called.

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
    /// Opens each card, loads its role, takes the register map, copies a buffer and reads a register.
    /// Not while a daemon has the cards. Tables and regions are left as they are.
    #[arg(long)]
    hardware_test: bool,
}

/// Where the driver of real cards shows itself.
const DRIVER: &str = "/sys/bus/pci/drivers/xocl";
/// Where the driver's devices are.
const DEVICES: &str = "/dev/dri";

/// What all cards have in common.
#[derive(Clone, Copy)]
struct Surroundings<'a> {
    settings: &'a Settings,
    catalogue: &'a Catalogue,
}

/// What was found, in the order in which it was looked for.
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

/// Looks, and fails where something is wrong.
pub fn run(options: &Options) -> Result<()> {
    let settings = Settings::read(&options.config)?;
    let catalogue = catalogue::builtin().context("read the built-in catalogue")?;
    let mut findings = Findings::default();
    findings.good("settings", &options.config.display().to_string());
    let surroundings = Surroundings { settings: &settings, catalogue: &catalogue };
    for card in &settings.cards {
        match (card.driver, &card.xrt) {
            (Driver::Xrt, Some(reached)) => {
                let through = examine(card, reached, surroundings, &mut findings);
                if let Some(through) = through.filter(|_| options.hardware_test) {
                    try_card(card.id.as_str(), &through, &mut findings);
                }
            }
            _ => findings.good(card.id.as_str(), "simulated, needs nothing"),
        }
    }
    match findings.wrong {
        0 => Ok(()),
        wrong => bail!("{wrong} findings to be put right"),
    }
}

/// Looks at all that can be known of a card without touching it; gives how it is reached, where XRT
/// can be called.
fn examine(
    card: &Card,
    reached: &Xrt,
    Surroundings { settings, catalogue }: Surroundings<'_>,
    findings: &mut Findings,
) -> Option<snic_card_xrt::Settings> {
    let id = card.id.as_str();
    let through = xrt::settings(reached, &card.id, &settings.data_dir);
    let through = findings.add(id, "its paths", through.map_err(|error| error.to_string()))?;
    let is_usable = library(id, &through, findings);
    role(card, reached, &through.role, catalogue, findings);
    if emulation(&through).is_none() {
        driver(id, findings);
    }
    is_usable.then_some(through)
}

/// Goes through what is needed of a card, on the card.
fn try_card(id: &str, through: &snic_card_xrt::Settings, findings: &mut Findings) {
    let steps = match XrtCard::examine(through) {
        Ok(steps) => steps,
        Err(what) => return findings.wrong(id, &what),
    };
    let log = through.folder.join("worker.log");
    for step in steps {
        let result = step.problem.map_or(Ok(()), |what| {
            Err(format!("{}: {what}; the worker's words are in {}", step.step, log.display()))
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
        .map_err(|error| format!("{}: {error}; make it writable", through.folder.display()));
    let Some(root) = findings.add(id, "its folder", root) else { return false };
    let mode = emulation(through);
    let shim = environment::shim(root.as_deref(), mode.as_deref());
    let good = match &mode {
        None => "XRT's environment and its library for cards are there".to_owned(),
        Some(mode) => format!("XRT's environment and its library for {mode} are there"),
    };
    if findings.add(id, &good, shim.map_err(|error| error.to_string())).is_none() {
        return false;
    }
    if mode.as_deref() == Some("hw_emu") && !has_user(through) {
        findings.wrong(
            id,
            "USER is not set, by which hw_emu names its sockets; set it in cards.xrt.environment",
        );
    }
    // Without a folder there was no shim.
    match probe(root.as_deref().unwrap_or(Path::new(""))) {
        Ok(version) => {
            findings.good(id, &format!("XRT {} has all functions that are needed", version.0));
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
        findings.wrong(id, &format!("there is no card model {}", card.model));
        return;
    };
    let name = file.display();
    let Some(bytes) = findings.add(
        id,
        "the role's file",
        std::fs::read(file).map_err(|e| format!("{name}: {e}")),
    ) else {
        return;
    };
    let (control, interface) = (&reached.control, reached.interface);
    let expected = Expected { control, registers_bytes: REGISTERS_BYTES, interface, card: profile };
    match check_role(&bytes, &expected) {
        Ok(role) => findings.good(id, &format!("role {} for {}", role.uuid, role.platform)),
        Err(error) => findings.wrong(id, &format!("{name}: {error}")),
    }
}

/// A real card needs the driver, and its devices open to the daemon's user.
fn driver(id: &str, findings: &mut Findings) {
    if !Path::new(DRIVER).exists() {
        findings.wrong(
            id,
            "the driver xocl is not loaded; install xrt's kernel modules, then `modprobe xocl`",
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
        findings.good(id, "the driver is loaded, and its devices can be opened");
    } else {
        let what = format!(
            "none of {DEVICES}/renderD* can be opened; is there a card, and is this user in the group render?"
        );
        findings.wrong(id, &what);
    }
}
