//! libvirt's qemu hook for the SmartNIC: binds a domain's virtual functions before it runs, and
//! unbinds them when it has ended.
//!
//! Installed as `/etc/libvirt/hooks/qemu`, or called from there; `snic-hook heartbeat` runs beside
//! it as a service. Every call ends in bounded time, whatever the daemon, the card or libvirt does.

mod daemon;
mod domain;
mod heartbeat;
mod hook;
mod settings;
mod signals;
mod spool;

use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use hook::{Action, HookCall};
use settings::{DEFAULT_PATH, Settings};
use snic_api::text::escaped_lines;
use snic_output::complain;

/// Largest domain XML that is read, in bytes; real ones have some kilobytes.
const XML_BYTES_MAX: u64 = 1 << 20;
/// Time by which a call may exceed its timeout before the program ends itself.
const GRACE: Duration = Duration::from_secs(5);

const USAGE: &str = "usage: snic-hook [--config FILE] DOMAIN OPERATION SUB-OPERATION EXTRA
       snic-hook [--config FILE] heartbeat [--once]

libvirt calls the first form, with the domain's XML on standard input. The second runs as a service
and reports to the daemon which domains run.";

enum Command {
    Hook(HookCall),
    Heartbeat { once: bool },
}

fn arguments(mut words: Vec<String>) -> Option<(PathBuf, Command)> {
    let mut config = PathBuf::from(DEFAULT_PATH);
    if words.first().is_some_and(|word| word == "--config") {
        config = words.get(1)?.into();
        words.drain(..2);
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let command = match words[..] {
        ["heartbeat"] => Command::Heartbeat { once: false },
        ["heartbeat", "--once"] => Command::Heartbeat { once: true },
        [name, operation, sub_operation, ..] => Command::Hook(HookCall {
            name: name.into(),
            operation: operation.into(),
            sub_operation: sub_operation.into(),
        }),
        _ => return None,
    };
    Some((config, command))
}

fn main() -> ExitCode {
    let Some((config, command)) = arguments(std::env::args().skip(1).collect()) else {
        complain!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&config, &command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(text) => {
            complain!("{}", escaped_lines(&text));
            ExitCode::FAILURE
        }
    }
}

fn run(config: &std::path::Path, command: &Command) -> Result<(), String> {
    // Calls that need no action must not fail because of our settings.
    if matches!(command, Command::Hook(call) if call.action() == Action::Nothing) {
        return Ok(());
    }
    let settings = Settings::read(config).map_err(|error| format!("snic-hook: {error}"));
    let settings = match (settings, command) {
        (Ok(settings), _) => settings,
        (Err(error), Command::Hook(call)) if call.action() != Action::Bind => {
            complain!("{}", escaped_lines(&error));
            return Ok(());
        }
        (Err(error), _) => return Err(error),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("snic-hook: {error}"))?;
    match command {
        Command::Heartbeat { once: true } => {
            runtime.block_on(heartbeat::beat(&settings)).map_err(|error| error.to_string())
        }
        Command::Heartbeat { once: false } => {
            let beats = signals::until_stopped("snic-hook", heartbeat::run(&settings));
            // It ends with a signal only.
            runtime.block_on(beats).map(drop).map_err(|error| format!("snic-hook: {error}"))
        }
        Command::Hook(call) => {
            end_in_time(settings.timeout() + GRACE, call.action());
            let mut xml = String::new();
            let read = std::io::stdin().take(XML_BYTES_MAX).read_to_string(&mut xml);
            if let Err(error) = read {
                let text = format!("snic-hook: the domain's XML cannot be read: {error}");
                if call.action() == Action::Bind {
                    return Err(text);
                }
                complain!("{text}");
                return Ok(());
            }
            runtime.block_on(hook::run(&settings, call, &xml))
        }
    }
}

/// Ends the program where even reading standard input takes too long: libvirt waits for it.
fn end_in_time(limit: Duration, action: Action) {
    std::thread::spawn(move || {
        std::thread::sleep(limit);
        complain!("snic-hook: no result within {limit:?}; giving up");
        std::process::exit(i32::from(action == Action::Bind));
    });
}
