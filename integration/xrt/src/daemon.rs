//! A daemon whose cards are driven through XRT, and the processes of these cards.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use snic_domain::CardProfile;
use snic_integration::{Home, program};

use crate::control::{Ask, DeviceReport, ask};
use crate::emulation::Emulation;
use crate::serve::{DeviceFailure, Trap};

/// Longest time of the start of a device.
const PATIENCE: Duration = Duration::from_secs(20);

/// An emulated card: its device is a separate process.
pub struct XrtCardProcess {
    /// The settings of its worker.
    pub emulation: Emulation,
    device: Option<Child>,
    starts: u32,
    has_bulk: bool,
}

impl XrtCardProcess {
    /// A card of this profile, switched on, with the seed 1.
    pub fn new(profile: CardProfile) -> Self {
        Self::with_bulk(profile, true)
    }

    /// The same, whose shell moves tables and counters in bulk or not.
    pub fn with_bulk(profile: CardProfile, has_bulk: bool) -> Self {
        let (emulation, device, starts) = (Emulation::new(profile), None, 0);
        let mut card = Self { emulation, device, starts, has_bulk };
        card.start();
        card
    }

    fn control(&self) -> PathBuf {
        self.emulation.path(&format!("control-{}", self.starts))
    }

    /// Switches the card on: nothing is loaded, and the boot id is another one.
    ///
    /// # Panics
    /// Where the device does not start.
    pub fn start(&mut self) {
        self.starts += 1;
        let device = Command::new(program("snic-xrt-device"))
            .args([self.emulation.user(), &self.control().display().to_string()])
            .args([self.starts.to_string(), self.has_bulk.to_string()])
            .stdin(Stdio::null())
            .spawn()
            .expect("the device starts");
        self.device = Some(device);
        let until = Instant::now() + PATIENCE;
        while !self.control().exists() {
            assert!(Instant::now() < until, "the device does not listen");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Kills the process with SIGKILL and waits until it is gone.
    pub fn kill(&mut self) {
        if let Some(mut device) = self.device.take() {
            // It may have ended by itself.
            let _ = device.kill();
            let _ = device.wait();
        }
    }

    /// Waits until the device has ended by itself.
    ///
    /// # Panics
    /// Where it does not.
    pub fn wait_for_end(&mut self) {
        let until = Instant::now() + PATIENCE;
        let device = self.device.as_mut().expect("it was started");
        while device.try_wait().expect("a child").is_none() {
            assert!(Instant::now() < until, "the device did not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a request to the device.
    ///
    /// # Panics
    /// It does not reply.
    pub fn ask(&self, question: &Ask) -> DeviceReport {
        ask(&self.control(), question).expect("the device answers")
    }

    /// Sets the next fault.
    ///
    /// # Panics
    /// The device does not reply, unless the fault kills it: it may die before its reply, because
    /// the daemon writes rows again by itself.
    pub fn trap(&self, trap: Trap) {
        let is_deadly = trap.failure == DeviceFailure::Die;
        let answer = ask(&self.control(), &Ask::Trap(Some(trap)));
        assert!(is_deadly || answer.is_ok(), "the device does not answer: {answer:?}");
    }
}

impl Drop for XrtCardProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Writes the settings of a daemon with these cards: `card0`, `card1` …; `more` goes into the table
/// of each.
///
/// # Panics
/// Where they cannot be written.
pub fn write_settings(home: &Home, cards: &[&Emulation], shim: &str, more: &str) {
    let (store, socket) = (home.path().join("store"), home.socket());
    let user = rustix::process::geteuid().as_raw();
    let mut text = format!(
        "data_dir = {store:?}\n\
         [listen]\nunix = {socket:?}\n\
             [[listen.unix_peers]]\nuser = {user}\n\
             identities = [\"operator/*\", \"tenant/*\", \"orchestrator/*\"]\n\
         [log]\nfilter = \"info\"\n\
         [signatures]\nallow_unsigned = true\n"
    );
    for (number, emulation) in cards.iter().enumerate() {
        let (model, role) = (&emulation.profile().model, emulation.path("role.xclbin"));
        text += &format!(
            "[[cards]]\nid = \"card{number}\"\ndriver = \"xrt\"\nmodel = \"{model}\"\n\
             [cards.xrt]\nrole = {role:?}\n{more}[cards.xrt.environment]\n"
        );
        for (name, value) in emulation.environment(shim) {
            text += &format!("{name} = {value:?}\n");
        }
    }
    std::fs::write(home.settings(), text).expect("the folder takes files");
}
