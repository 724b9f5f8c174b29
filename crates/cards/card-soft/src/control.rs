//! The card process: its place, its socket, and a thread for each connection. Requests are read whole
//! before the card's thread sees them, so that no slow daemon holds up packets.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, BufReader, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};

use rustix::fs::{FlockOperation, flock};
use snic_domain::{CardModel, CardProfile};
use snic_nts::ModuleRuntime;
use snic_ports::card::image;
use snic_ports::remote::{receive, send};

use crate::SoftCardSettings;
use crate::machine::{Job, Machine};
use crate::offload::{FlowOffload, OpenOffload};
use crate::poller::{Notifier, Poller};
use crate::ports::OpenPort;
use crate::process::CardFolder;
use crate::protocol::ControlReply;
use crate::switch::Switch;

/// Connections at once: the daemon's, those of captures and loads, and of people who look.
const CONNECTIONS_MAX: usize = 24;

/// Why a card process ended.
#[derive(Debug, thiserror::Error)]
pub enum SoftCardFailure {
    /// Another process serves this place.
    #[error("another process has the card in {0}: stop that one first")]
    Taken(String),
    /// A file or the socket of its place.
    #[error("{what}: {source}")]
    Place {
        what: String,
        #[source]
        source: io::Error,
    },
    /// A port, or the card's profile.
    #[error("{0}")]
    Card(String),
}

/// Parts that one program has for its card and others have not, since they take long to build.
#[derive(Debug, Default)]
pub struct CardExtras {
    /// Runs the WebAssembly modules of bitstreams, which are refused without it.
    pub modules: Option<Arc<dyn ModuleRuntime>>,
    /// Opens vhost-user ports, which are refused without it.
    pub vhost_user: Option<OpenPort>,
    /// Makes a fast path, where the settings want one.
    pub offload: Option<OpenOffload>,
    /// Beginning of all random numbers of the card and its NTs, such as a NAT's ports, for tests that compare two cards. Without it
    /// nobody outside can know them.
    pub seed: Option<u64>,
}

/// Serves a card at its place until the process is killed: that is a power loss of the card.
///
/// # Errors
/// The place is taken or cannot be used, or a port cannot be opened.
pub fn serve(
    place: &CardFolder,
    settings: SoftCardSettings,
    profile: CardProfile,
    extras: CardExtras,
) -> Result<(), SoftCardFailure> {
    let failed = |what: String| move |source| SoftCardFailure::Place { what, source };
    std::fs::create_dir_all(place.folder())
        .map_err(failed(format!("create {}", place.folder().display())))?;
    let _lock = lock(place)?;
    let mut offload = open_offload(&settings, extras.offload);
    let switch = Switch::open(&settings, extras.vhost_user, offload.as_deref_mut())
        .map_err(SoftCardFailure::Card)?;
    let machine = Machine::new(profile, settings, switch, extras.modules, extras.seed)
        .map_err(SoftCardFailure::Card)?
        .with_fast_path(offload);
    let socket = place.socket();
    // Whoever left it is dead: the lock is ours.
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket)
        .and_then(|listener| {
            std::fs::set_permissions(&socket, Permissions::from_mode(0o600))?;
            Ok(listener)
        })
        .map_err(failed(format!("listen at {}", socket.display())))?;
    run(machine, listener).map_err(failed("start the card's threads".to_owned()))
}

/// Is the card in a folder, as its settings there say, until the process is killed: all that a program does
/// that is a card.
///
/// # Errors
/// As [`serve`]; and the settings cannot be read, or no profile has their model.
pub fn serve_folder(
    folder: &Path,
    profiles: Option<&Path>,
    extras: CardExtras,
) -> Result<(), SoftCardFailure> {
    let place = CardFolder::new(folder);
    let settings = place.read_settings().map_err(|source| {
        let what = format!("read the card's settings {}", place.settings().display());
        SoftCardFailure::Place { what, source }
    })?;
    let catalogue = image::catalogue::with_profiles(profiles)
        .map_err(|error| SoftCardFailure::Card(error.to_string()))?;
    let profile = CardModel::new(&settings.model).ok().and_then(|model| catalogue.card(&model));
    let Some(profile) = profile.cloned() else {
        let model = settings.model;
        return Err(SoftCardFailure::Card(format!("the catalogue has no card model {model}")));
    };
    serve(&place, settings, profile, extras)
}

/// The card at a listener, until nobody can ask any more.
fn run(machine: Machine, listener: UnixListener) -> io::Result<()> {
    let notifier = Notifier::new()?;
    let mut poller = Poller::new(notifier.clone(), machine.switch().fds())?;
    let (jobs, inbox) = sync_channel(CONNECTIONS_MAX);
    std::thread::Builder::new().name("card-listener".into()).spawn(move || {
        let open = Arc::new(AtomicUsize::new(0));
        for stream in listener.incoming().filter_map(Result::ok) {
            if open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                open.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let (requests, left) = (
                RequestQueue { jobs: jobs.clone(), notifier: notifier.clone() },
                Arc::clone(&open),
            );
            let thread = std::thread::Builder::new().name("card-connection".into());
            let started = thread.spawn(move || {
                // A connection that breaks is over; the card goes on.
                let _ = requests.serve(stream);
                left.fetch_sub(1, Ordering::Relaxed);
            });
            if started.is_err() {
                open.fetch_sub(1, Ordering::Relaxed);
            }
        }
    })?;
    machine
        .run(&inbox, &mut poller)
        .map_err(|failure| io::Error::other(format!("fast path: {failure}")))
}

/// The fast path that the settings want; where there is none, the card's log has why.
fn open_offload(
    settings: &SoftCardSettings,
    open: Option<OpenOffload>,
) -> Option<Box<dyn FlowOffload>> {
    if !settings.fast_path {
        return None;
    }
    let Some(open) = open else {
        snic_output::complain!(
            "no fast path: this program has none; snic-card has, where it was built with the feature fast-path"
        );
        return None;
    };
    open().map_err(|why| snic_output::complain!("no fast path: {why}")).ok()
}

fn lock(place: &CardFolder) -> Result<File, SoftCardFailure> {
    let path = place.pid();
    let what = format!("lock {}", path.display());
    let failed = |source| SoftCardFailure::Place { what: what.clone(), source };
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            file.set_len(0).map_err(failed)?;
            writeln!(&file, "{}", std::process::id()).map_err(failed)?;
            Ok(file)
        }
        Err(rustix::io::Errno::WOULDBLOCK) => {
            Err(SoftCardFailure::Taken(place.folder().display().to_string()))
        }
        Err(error) => Err(failed(error.into())),
    }
}

/// Where a connection hands in what it is asked.
struct RequestQueue {
    jobs: SyncSender<Job>,
    notifier: Notifier,
}

impl RequestQueue {
    fn serve(&self, stream: UnixStream) -> io::Result<()> {
        let mut reader = BufReader::new(stream.try_clone()?);
        let mut writer = stream;
        let (answer, answers) = sync_channel::<(ControlReply, Vec<u8>)>(1);
        loop {
            let (request, payload) = receive(&mut reader)?;
            let job = Job { request, payload, answer: answer.clone() };
            if self.jobs.send(job).is_err() {
                return Ok(());
            }
            self.notifier.notify();
            let Ok((reply, payload)) = answers.recv() else { return Ok(()) };
            send(&mut writer, &reply, &payload)?;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A card without ports at a socket in `place`, in threads of this process.
    pub(crate) fn start(place: &CardFolder, profile: CardProfile) {
        let model = profile.model.to_string();
        let settings = SoftCardSettings {
            model,
            uplink: None,
            functions: Vec::new(),
            guards: Vec::new(),
            failovers: Vec::new(),
            fast_path: false,
        };
        let machine = Machine::new(profile, settings, Switch::default(), None, None)
            .expect("a valid profile");
        let listener = UnixListener::bind(place.socket()).expect("a new folder");
        std::thread::spawn(move || run(machine, listener));
    }

    #[test]
    fn a_place_is_served_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = CardFolder::new(folder.path());
        let _first = lock(&place).expect("free");
        assert!(matches!(lock(&place), Err(SoftCardFailure::Taken(_))));
    }
}
