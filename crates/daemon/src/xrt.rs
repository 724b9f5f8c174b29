//! XRT cards: from the settings to an open card, and the process that calls the library.

use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use snic_bitstream::xclbin::{Expected, check_role};
use snic_card_xrt::{CallDeadlines, REGISTERS_BYTES, Work, XrtCard};
use snic_domain::{CardId, CardProfile};
use snic_ports::card::Card;
use snic_server::CardLink;
use snic_telemetry::trace;

use crate::settings::Xrt;

/// `snicd xrt-worker`: serves the daemon at the other end of its standard input.
pub fn work() -> Result<()> {
    let socket = std::io::stdin().as_fd().try_clone_to_owned().context("the daemon's socket")?;
    snic_card_xrt::serve(UnixStream::from(socket)).context("serve the daemon")
}

/// The settings of an XRT card; the daemon's own program is the worker.
pub fn settings(
    xrt: &Xrt,
    id: &CardId,
    data_dir: &Path,
) -> std::io::Result<snic_card_xrt::Settings> {
    let deadlines = CallDeadlines {
        open: Duration::from_millis(xrt.deadlines.open_ms),
        access: Duration::from_millis(xrt.deadlines.access_ms),
        buffer: Duration::from_millis(xrt.deadlines.buffer_ms),
        ..CallDeadlines::default()
    };
    Ok(snic_card_xrt::Settings {
        program: (std::env::current_exe()?, vec!["xrt-worker".to_owned()]),
        // The worker runs in it.
        folder: std::path::absolute(data_dir)?.join("xrt").join(id.as_str()),
        device: xrt.device,
        role: std::path::absolute(&xrt.role)?,
        force_role: false,
        control: xrt.control.clone(),
        environment: xrt.environment.clone(),
        deadlines,
    })
}

/// Records what a worker did for a step as a child span of the step.
fn tell(parent: &str, work: Work) {
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

/// Checks a card's role file completely, before XRT reads it.
pub fn check(
    settings: &snic_card_xrt::Settings,
    interface: Option<uuid::Uuid>,
    profile: &CardProfile,
) -> Result<(), String> {
    let role = settings.role.display();
    let bytes = std::fs::read(&settings.role).map_err(|error| format!("role {role}: {error}"))?;
    let control = &settings.control;
    let expected = Expected { control, registers_bytes: REGISTERS_BYTES, interface, card: profile };
    check_role(&bytes, &expected).map_err(|error| format!("role {role}: {error}"))?;
    Ok(())
}

/// Opens a card after checking its role.
pub fn open(
    settings: &snic_card_xrt::Settings,
    interface: Option<uuid::Uuid>,
    profile: &CardProfile,
) -> Result<(Box<dyn Card>, CardLink), String> {
    check(settings, interface, profile)?;
    let card = XrtCard::open(profile.model.clone(), settings.clone())
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
