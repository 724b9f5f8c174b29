//! Where a card process lives, and how it is started so that it outlives who started it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};

use crate::SoftCardSettings;

/// Time that a card process may take to open its ports and its socket.
const START_LIMIT: Duration = Duration::from_secs(10);
/// Time that a killed process may take to be gone.
const KILL_LIMIT: Duration = Duration::from_secs(2);
const LOOK_INTERVAL: Duration = Duration::from_millis(5);

/// The folder of a card process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardFolder {
    folder: PathBuf,
}

impl CardFolder {
    /// The card in this folder.
    pub fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn socket(&self) -> PathBuf {
        self.folder.join("card.sock")
    }

    /// File that its output goes to.
    pub fn log(&self) -> PathBuf {
        self.folder.join("card.log")
    }

    /// The file that the process locks while it runs. It holds the process id.
    pub fn pid(&self) -> PathBuf {
        self.folder.join("card.pid")
    }

    /// Kills the process, if there is one, and waits until it is gone: the card has lost its power.
    ///
    /// # Errors
    /// It cannot be killed, or is still there after two seconds.
    pub fn kill(&self) -> io::Result<()> {
        let file = match File::open(self.pid()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        let until = Instant::now() + KILL_LIMIT;
        // Who holds the lock is alive, and the process that the file names.
        while flock(&file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
            let text = std::fs::read_to_string(self.pid())?;
            let pid = text.trim().parse().ok().and_then(Pid::from_raw);
            if let Some(pid) = pid {
                match kill_process(pid, Signal::KILL) {
                    Ok(()) | Err(Errno::SRCH) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if Instant::now() > until {
                let what =
                    format!("{} is still held by process {}", self.pid().display(), text.trim());
                return Err(io::Error::new(io::ErrorKind::TimedOut, what));
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        Ok(())
    }

    /// File with the settings that the process gets when it starts, as JSON.
    pub fn settings(&self) -> PathBuf {
        self.folder.join("card.json")
    }

    /// Reads what the process is told.
    ///
    /// # Errors
    /// The file cannot be read, or holds something else.
    pub fn read_settings(&self) -> io::Result<SoftCardSettings> {
        let text = std::fs::read(self.settings())?;
        serde_json::from_slice(&text)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
    }
}

/// The program that serves a card, with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    pub file: PathBuf,
    /// Arguments behind the program.
    pub arguments: Vec<String>,
}

/// A connection to the card, which is started if none is there.
pub(crate) fn connect(
    place: &CardFolder,
    program: &Program,
    settings: &SoftCardSettings,
) -> Result<UnixStream, String> {
    if let Ok(stream) = UnixStream::connect(place.socket()) {
        return Ok(stream);
    }
    let mut ended = start(place, program, settings)
        .map_err(|error| format!("cannot start {}: {error}", program.file.display()))?;
    let until = Instant::now() + START_LIMIT;
    loop {
        if let Ok(stream) = UnixStream::connect(place.socket()) {
            return Ok(stream);
        }
        if ended() || Instant::now() > until {
            return Err(format!(
                "the card's process does not serve {}; its log {} ends with: {}",
                place.socket().display(),
                place.log().display(),
                last_line(&place.log())
            ));
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

fn last_line(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().next_back().unwrap_or("(nothing)").to_owned()
}

/// Starts a card process in a separate group, so that no signal for its starter reaches it. Gives what
/// says whether it has ended.
fn start(
    place: &CardFolder,
    program: &Program,
    settings: &SoftCardSettings,
) -> io::Result<impl FnMut() -> bool + use<>> {
    std::fs::create_dir_all(place.folder())?;
    std::fs::write(place.settings(), serde_json::to_vec(settings)?)?;
    let log = OpenOptions::new().create(true).append(true).open(place.log())?;
    let mut child = Command::new(&program.file)
        .args(&program.arguments)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .process_group(0)
        .spawn()?;
    let (gone, is_gone) = std::sync::mpsc::channel::<()>();
    // Takes note of its end, so that no dead process stays in the table while its starter lives.
    std::thread::Builder::new().name("card-reaper".into()).spawn(move || {
        let _ = child.wait();
        drop(gone);
    })?;
    Ok(move || is_gone.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected))
}
