//! `snicctl top` on a terminal of its own, at the fleet's endpoint: the hosts, and from there what is on one.

use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use snic_integration::program;

use super::cluster::{Cluster, in_time, runtime};
use super::rig::{Cards, Fleet};

const ROWS: usize = 24;
const COLUMNS: usize = 80;
const POLL: Duration = Duration::from_millis(50);
/// Longest time of a screen, and of a host until it is lost.
const SHOWN_MAX: Duration = Duration::from_secs(20);

/// Content of a terminal.
struct Shown {
    cells: Vec<Vec<char>>,
    at: (usize, usize),
    /// Part of an escape sequence, until its end.
    sequence: Option<String>,
}

impl Shown {
    fn new() -> Self {
        Self { cells: vec![vec![' '; COLUMNS]; ROWS], at: (0, 0), sequence: None }
    }

    /// Takes what a program writes: text, moves of the cursor, and erasure. All else changes no text.
    fn write(&mut self, letter: char) {
        if let Some(sequence) = &mut self.sequence {
            sequence.push(letter);
            let is_end = letter.is_ascii_alphabetic() || (letter == '[' && sequence.len() > 1);
            if is_end {
                let sequence = self.sequence.take().unwrap_or_default();
                self.control(&sequence);
            }
            return;
        }
        match letter {
            '\x1b' => self.sequence = Some(String::new()),
            letter if letter.is_control() => {}
            letter => {
                let (row, column) = self.at;
                if let Some(cell) = self.cells.get_mut(row).and_then(|row| row.get_mut(column)) {
                    *cell = letter;
                }
                self.at.1 += 1;
            }
        }
    }

    fn control(&mut self, sequence: &str) {
        if let Some(to) = sequence.strip_prefix('[').and_then(|rest| rest.strip_suffix('H')) {
            let mut numbers = to.split(';').map(|number| number.parse().unwrap_or(1_usize) - 1);
            self.at = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        } else if sequence == "[2J" {
            self.cells = Self::new().cells;
        }
    }

    fn text(&self) -> String {
        self.cells.iter().map(|row| row.iter().collect::<String>() + "\n").collect()
    }
}

/// A program on a terminal.
struct Typed {
    child: OwnedChild,
    keys: ChildStdin,
    shown: Arc<Mutex<Shown>>,
}

impl Typed {
    fn start(line: &str, settings: &Path) -> Self {
        let line = format!("stty rows {ROWS} cols {COLUMNS}; exec {line}");
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        command.env("SNICCTL_CONFIG", settings).env("TERM", "xterm");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().unwrap();
        let (keys, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let shown = Arc::new(Mutex::new(Shown::new()));
        let screen = Arc::clone(&shown);
        std::thread::spawn(move || {
            let (mut bytes, mut begun) = ([0; 4096], Vec::new());
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                begun.extend_from_slice(&bytes[..read]);
                // A letter may be cut in two.
                let whole = match std::str::from_utf8(&begun) {
                    Ok(text) => text.len(),
                    Err(error) => error.valid_up_to(),
                };
                let text: Vec<u8> = begun.drain(..whole).collect();
                let mut screen = screen.lock().unwrap();
                String::from_utf8(text).unwrap().chars().for_each(|letter| screen.write(letter));
            }
        });
        Self { child: OwnedChild(child), keys, shown }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    fn text(&self) -> String {
        self.shown.lock().unwrap().text()
    }

    /// Waits until a line has all these words.
    async fn shows(&self, words: &[&str]) {
        let has = |line: &str| words.iter().all(|word| line.contains(word));
        let found = async {
            while !self.text().lines().any(has) {
                tokio::time::sleep(POLL).await;
            }
        };
        let waited = tokio::time::timeout(SHOWN_MAX, found).await;
        assert!(waited.is_ok(), "{words:?} in\n{}", self.text());
    }
}

/// Dropping it ends it.
struct OwnedChild(Child);

impl Drop for OwnedChild {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Hosts first; Enter shows the regions and DAGs of one, Esc comes back, also from one that is gone.
#[test]
fn top_goes_from_a_fleets_hosts_to_the_regions_of_one() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let mut fleet = Fleet::start_with(cluster, 1, (2, Cards::Software)).await;
        fleet.create(0, "web", 1).await;
        let host = fleet.served_once(&["web"]).await[0];
        let (name, other) = (format!("h{host}"), format!("h{}", 1 - host));
        let settings = fleet.contexts();
        let once = fleet.shell("snicctl --context root-r0 top --once").unwrap();
        assert!(once.starts_with("fleet of 2 hosts"), "{once}");
        // Tenants see their DAGs, and neither hosts nor cards.
        let own = fleet.shell("snicctl --context acme-r0 top --once").unwrap();
        assert!(own.starts_with("1 of 1 DAGs ready") && own.contains("acme/web"), "{own}");
        let snicctl = program("snicctl").display().to_string();
        let mut top = Typed::start(&format!("{snicctl} --context root-r0 top"), &settings);
        top.shows(&["fleet of 2 hosts", "1 DAGs"]).await;
        top.shows(&[&name, "IN_STEP", &format!("z1/r{host}"), " 1 "]).await;
        top.press(&format!("/{name}\r"));
        top.shows(&["> ", &name]).await;
        top.press("\r");
        top.shows(&[&format!("host {name}: card0"), "1 of 1 DAGs ready"]).await;
        top.shows(&["acme/web", "READY"]).await;
        top.press("2");
        top.shows(&["[2 Regions"]).await;
        top.press("\x1b");
        top.shows(&["fleet of 2 hosts"]).await;
        top.shows(&["matching"]).await;

        // A host that is gone comes first, and what is chosen stays chosen.
        fleet.kill_host(1 - host);
        top.press("\x1b");
        top.shows(&[&other, "LOST"]).await;
        top.press("\x1b[H");
        top.shows(&["> ", &other, "LOST"]).await;
        top.press("\r");
        top.shows(&[&format!("host {other}: NOT CONNECTED"), "not linked"]).await;
        top.press("\x1b");
        top.shows(&["fleet of 2 hosts", "1 LOST"]).await;
        top.press("q");
        let ended = tokio::task::spawn_blocking(move || top.child.0.wait().unwrap());
        assert!(ended.await.unwrap().success());
    }));
}
