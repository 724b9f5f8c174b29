//! XRT without a usable card: the shim that does nothing, no shim, no XRT. And another role on a
//! card that has one.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use snic_bitstream::catalogue;
use snic_card_sim::{SharedSimCard, SimCard};
use snic_card_xrt::{CardSelector, XrtCard};
use snic_domain::{CardProfile, Digest};
use snic_integration::{Home, program};
use snic_integration_xrt::daemon::write_settings;
use snic_integration_xrt::device::{Clock, Device, Garbage};
use snic_integration_xrt::emulation::{self, Emulation, SOCKET_ID};
use snic_integration_xrt::serve::{self, DeviceFailure, Shared, Trap, lock};
use snic_ports::card::{Buffers as _, CardError, Registers as _};
use snic_tables::registers::{MAGIC, MAGIC_VALUE};
use uuid::Uuid;

fn profile() -> CardProfile {
    let catalogue = catalogue::builtin().expect("the built-in catalogue is valid");
    catalogue.card(&"sim-16".parse().expect("a label")).expect("there").clone()
}

fn open(emulation: &Emulation, shim: &str) -> Result<XrtCard, String> {
    let opened = XrtCard::open(profile().model, emulation.settings(shim), emulation.role());
    opened.map_err(|error| error.to_string())
}

/// The device of an emulated card, in threads of this process.
fn serve_card(emulation: &Emulation) -> Arc<Shared> {
    let sim = SharedSimCard::new(SimCard::new(profile(), 1).expect("a valid profile"));
    let shared = Shared::new(Device::new(sim, true, Clock::Wall));
    serve::start(&shared, emulation.user(), SOCKET_ID).expect("threads");
    shared
}

#[test]
fn the_shim_that_does_nothing_has_everything_but_registers() {
    if !emulation::is_there() {
        return;
    }
    let emulation = Emulation::new(profile());
    let findings = XrtCard::examine(&emulation.settings("noop"), emulation.role());
    let (last, others) = findings.split_last().expect("steps");
    for step in ["open the card", "load the role", "ask for the role's UUID", "copy a buffer"] {
        assert!(others.iter().any(|finding| finding.step.starts_with(step)), "{findings:#?}");
    }
    assert!(others.iter().all(|finding| finding.problem.is_none()), "{findings:#?}");
    assert_eq!(last.step, "read a register");
    let problem = last.problem.as_deref().expect("noop has none");
    assert!(problem.contains("xrtKernelReadRegister"), "{problem}");
    let error = open(&emulation, "noop").map(|_| ()).expect_err("a card without registers");
    assert!(error.contains("reading 0x100") && error.contains("xrtKernelReadRegister"), "{error}");
}

#[test]
fn where_xrt_would_abort_the_card_is_absent_with_a_reason() {
    if !emulation::is_there() {
        return;
    }
    let emulation = Emulation::new(profile());
    let with = |name: &str, value: &str| {
        let mut settings = emulation.settings("hw_emu");
        settings.environment.insert(name.to_owned(), value.to_owned());
        let error = XrtCard::open(profile().model, settings, emulation.role()).map(|_| ());
        error.expect_err("XRT would abort").to_string()
    };
    assert!(with("XILINX_XRT", "").contains("install the package libxrt1"));
    let error = with("XILINX_XRT", "/nonexistent");
    assert!(error.contains("/nonexistent/lib/libxrt_hwemu.so.2 is not there"), "{error}");
    for other in ["card", ""] {
        assert!(with("XCL_EMULATION_MODE", other).contains("XRT knows noop, sw_emu and hw_emu"));
    }
}

#[test]
fn without_a_card_the_real_shim_says_so() {
    if !emulation::is_there() {
        return;
    }
    let emulation = Emulation::new(profile());
    let mut settings = emulation.settings("hw_emu");
    settings.environment.remove("XCL_EMULATION_MODE");
    let error = XrtCard::open(profile().model, settings, emulation.role()).map(|_| ());
    let error = error.expect_err("no card is in this machine").to_string();
    assert!(error.contains("opening card 0 (xrtDeviceOpen) failed"), "{error}");
}

#[test]
fn a_card_that_answers_garbage_is_refused_long_before_a_role_would_be_loaded() {
    if !emulation::is_there() {
        return;
    }
    /// Without garbage a card opens in well under a second; opening with a role may take 120 s.
    const REFUSED_WITHIN: Duration = Duration::from_secs(5);
    let garbage: [(&str, Garbage, &str); 5] = [
        ("all ones", |_, _| u32::MAX, "starts with 0xffffffff"),
        ("all zeros", |_, _| 0, "starts with 0x00000000"),
        ("another map", |at, _| at, "starts with 0x00000100"),
        ("a mark that changes", |_, n| MAGIC_VALUE + (n / 2 % 2) as u32, "starts with 0x534e4944"),
        (
            "capabilities that change",
            |at, n| if at == MAGIC { MAGIC_VALUE } else { 0x1000_0000 + (n % 4) as u32 },
            "(register 0x108) were 0x10000001 and are 0x10000003 now",
        ),
    ];
    for (what, garbage, expected) in garbage {
        let emulation = Emulation::new(profile());
        let shared = serve_card(&emulation);
        lock(&shared.device).garbage = Some(garbage);
        let began = Instant::now();
        let error = open(&emulation, "hw_emu").map(|_| ()).expect_err(what);
        let took = began.elapsed();
        println!("{what}: refused after {took:.2?}: {error}");
        assert!(error.contains(expected), "{what}: {error}");
        assert!(error.contains("reading the first registers:"), "{what}: {error}");
        assert!(!expected.starts_with("starts") || error.contains("instead of 0x534e4943"));
        assert!(took < REFUSED_WITHIN, "{what}: {took:?}");
        shared.stop();
    }
    for failure in [DeviceFailure::Garbage, DeviceFailure::Hang, DeviceFailure::Short] {
        let emulation = Emulation::new(profile());
        let shared = serve_card(&emulation);
        *lock(&shared.trap) = Some(Trap { at: MAGIC, write: false, failure });
        let mut settings = emulation.settings("hw_emu");
        settings.deadlines.access = Duration::from_millis(400);
        let began = Instant::now();
        let error = XrtCard::open(profile().model, settings, emulation.role()).map(|_| ());
        let error = error.expect_err("it has no answer that XRT understands").to_string();
        let took = began.elapsed();
        println!("{failure:?}: refused after {took:.2?}: {error}");
        assert!(error.contains("reading the first registers:"), "{failure:?}: {error}");
        assert!(took < REFUSED_WITHIN, "{failure:?}: {took:?}");
        // The fault is over: the next worker opens the card.
        let mut card = open(&emulation, "hw_emu").expect("it opens");
        assert_eq!(card.read(MAGIC), Ok(MAGIC_VALUE), "{failure:?}");
        shared.stop();
    }
}

#[test]
fn another_role_is_loaded_by_another_worker_once_the_card_is_closed() {
    if !emulation::is_there() {
        return;
    }
    let emulation = Emulation::new(profile());
    let shared = serve_card(&emulation);
    let mut card = open(&emulation, "hw_emu").expect("it opens");
    assert_eq!(card.link().role, Uuid::from_u128(1));
    let buffer = card.stage(&[7; 5_000]).expect("there is room");
    drop(card);
    let other = emulation.write_role("other.xclbin", 2);
    let mut settings = emulation.settings("hw_emu");
    let digest = Digest::of(&std::fs::read(&other).expect("it was written"));
    (settings.role, settings.force_role) = (other, true);
    let error = XrtCard::open(profile().model, settings.clone(), emulation.role()).map(|_| ());
    let error = error.expect_err("these are not the bytes that were checked").to_string();
    assert!(error.contains("has changed since it was checked"), "{error}");
    let mut card =
        XrtCard::open(profile().model, settings.clone(), digest).expect("it opens by force too");
    assert_eq!(card.link().role, Uuid::from_u128(2));
    assert_eq!(card.read(MAGIC), Ok(MAGIC_VALUE), "its registers are this process's own again");
    assert_eq!(card.release(buffer), Err(CardError::NoBuffer(buffer)), "it went with its role");
    drop(card);
    settings.role = emulation.path("missing.xclbin");
    let missing = XrtCard::open(profile().model, settings, digest).map(|_| ());
    assert!(matches!(missing, Err(CardError::Lost(_))), "{missing:?}");
    shared.stop();
}

/// Runs `snicd doctor`; returns whether it found no fault, and its output.
fn doctor(home: &Home, hardware_test: bool) -> (bool, String) {
    let mut command = Command::new(program("snicd"));
    command.arg("doctor").arg("--config").arg(home.settings());
    command.args(hardware_test.then_some("--hardware-test"));
    let output = command.output().expect("snicd starts");
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn the_doctor_says_what_is_wrong_and_what_to_do() {
    if !emulation::is_there() {
        return;
    }
    let emulation = Emulation::new(profile());
    let home = Home::new();
    write_settings(&home, &[&emulation], "noop", "");
    let (content, said) = doctor(&home, false);
    assert!(content, "{said}");
    for good in
        ["library for noop are installed", "XRT 2.13", "role 00000000-0000-0000-0000-000000000001"]
    {
        assert!(said.contains(good), "{good:?} is missing in\n{said}");
    }
    let (content, said) = doctor(&home, true);
    assert!(!content && said.contains("ok    card0: copy a buffer"), "{said}");
    assert!(said.contains("WRONG card0: read a register"), "{said}");
    assert!(!home.path().join("store").exists(), "the doctor leaves no folder behind");
    std::fs::write(emulation.path("role.xclbin"), "xclbin2\0").expect("it is there");
    let text = std::fs::read_to_string(home.settings()).expect("settings");
    std::fs::write(home.settings(), text.replace("\"noop\"", "\"hwemu\"")).expect("settings");
    let (content, said) = doctor(&home, true);
    assert!(!content && said.contains("XRT knows noop, sw_emu and hw_emu"), "{said}");
    assert!(said.contains("less than the header of an xclbin"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_misses_the_files_of_the_emulation_and_leaves_a_running_daemon_alone() {
    if !emulation::is_there() {
        return;
    }
    let emulation = Emulation::new(profile());
    let home = Home::new();
    let simulated = std::fs::read_to_string(home.settings()).expect("settings");
    write_settings(&home, &[&emulation], "hw_emu", "");
    for (file, variable) in [("emconfig.json", "EMCONFIG_PATH"), ("xrt.ini", "XRT_INI_PATH")] {
        let (content, said) = doctor(&home, false);
        assert!(content, "{said}");
        let path = emulation.path(file);
        let bytes = std::fs::read(&path).expect("it is there");
        std::fs::remove_file(&path).expect("it is there");
        let (content, said) = doctor(&home, false);
        assert!(!content && said.contains(file) && said.contains(variable), "{said}");
        std::fs::write(&path, bytes).expect("the folder takes files");
    }
    // A daemon that holds the store's lock.
    let with_xrt = std::fs::read_to_string(home.settings()).expect("settings");
    std::fs::write(home.settings(), simulated).expect("settings");
    let daemon = home.start().await;
    std::fs::write(home.settings(), with_xrt).expect("settings");
    let (content, said) = doctor(&home, true);
    assert!(!content && said.contains("not tested: the daemon runs"), "{said}");
    assert!(!said.contains("open the card"), "{said}");
    daemon.stop();
}

#[test]
fn the_doctor_finds_a_card_without_the_register_map_and_names_what_is_to_be_installed() {
    if !emulation::is_there() {
        return;
    }
    let emulation = Emulation::new(profile());
    let home = Home::new();
    write_settings(&home, &[&emulation], "hw_emu", "");
    let shared = serve_card(&emulation);
    let (content, said) = doctor(&home, true);
    assert!(content && said.contains("ok    card0: read a register"), "{said}");
    lock(&shared.device).garbage = Some(|_, _| u32::MAX);
    let (content, said) = doctor(&home, true);
    assert!(!content && said.contains("the register map starts with 0xffffffff"), "{said}");
    shared.stop();
    let text = std::fs::read_to_string(home.settings()).expect("settings");
    let table = "[cards.xrt.environment]\n";
    let text = text.replace(table, &format!("{table}XILINX_XRT = \"\"\n"));
    std::fs::write(home.settings(), text).expect("settings");
    let (content, said) = doctor(&home, false);
    assert!(!content && said.contains("install the package libxrt1"), "{said}");
}

/// OpenSSL in a folder, as the README has it.
fn openssl(folder: &Path, words: &str) {
    let mut command = Command::new("openssl");
    let command = command.args(words.split(' ')).current_dir(folder);
    let output = command.output().expect("OpenSSL is installed");
    assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_role_needs_the_providers_signature_where_unsigned_images_are_not_taken() {
    if !emulation::is_there() {
        return;
    }
    let emulation = Emulation::new(profile());
    let home = Home::new();
    let (folder, signature) = (home.path(), home.path().join("role.sig"));
    for key in ["provider", "other"] {
        openssl(folder, &format!("genpkey -algorithm ed25519 -out {key}.key"));
        openssl(folder, &format!("pkey -in {key}.key -pubout -out {key}.pem"));
    }
    let statement = format!("snic-bitstream-v1 {}\n", emulation.role());
    std::fs::write(folder.join("statement"), statement).expect("a file");
    let keys = format!("provider = [{:?}]", folder.join("provider.pem"));
    let said_with = |more: &str| {
        write_settings(&home, &[&emulation], "noop", more);
        let text = std::fs::read_to_string(home.settings()).expect("settings");
        let text = text.replace("allow_unsigned = true", &keys);
        std::fs::write(home.settings(), text).expect("settings");
        doctor(&home, false)
    };
    let (content, said) = said_with("");
    assert!(!content && said.contains("is not signed"), "{said}");
    let named = format!("role_signature = {signature:?}\n");
    for (key, is_trusted) in [("other", false), ("provider", true)] {
        openssl(
            folder,
            &format!("pkeyutl -sign -rawin -inkey {key}.key -in statement -out role.sig"),
        );
        let (content, said) = said_with(&named);
        assert_eq!(content, is_trusted, "{key}: {said}");
    }
}

#[test]
fn a_card_may_be_named_by_its_address_on_the_bus() {
    if !emulation::is_there() {
        return;
    }
    let emulation = Emulation::new(profile());
    let mut settings = emulation.settings("hw_emu");
    settings.environment.remove("XCL_EMULATION_MODE");
    settings.device = CardSelector::Pci("0000:3b:00.1".parse().expect("an address"));
    let error = XrtCard::open(profile().model, settings, emulation.role()).map(|_| ());
    let error = error.expect_err("no card is in this machine").to_string();
    assert!(error.contains("opening card 0000:3b:00.1 (xrtDeviceOpenByBDF) failed"), "{error}");
}
