//! Known packets: a capture file that the test writes, its packets sent to the ports of a software card, and what went in and came out there.
//!
//! ```text
//!   acme/web   function 0 ──► uplink      acme/db   uplink ──► function 1
//!   zeta/web   function 2 ──► uplink      zeta/db   uplink ──► function 3
//! ```
//!
//! The packets of a DAG take one way, so that they have one order: what a card counted before its power failed is a beginning of it.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// DAGs, by tenant and name.
pub const DAGS: [(&str, &str); 4] =
    [("acme", "web"), ("acme", "db"), ("zeta", "web"), ("zeta", "db")];
/// Names of the ports: the uplink, and the functions.
pub const PORTS: [&str; 5] = ["up", "f0", "f1", "f2", "f3"];
/// Ports by which the packets of each DAG come and leave, as places in [`PORTS`].
const WAYS: [(usize, usize); 4] = [(1, 0), (0, 2), (3, 0), (0, 4)];
/// UDP port that the firewall of the first DAG lets pass, and one that it does not.
pub const OPEN: u16 = 4_000;
const SHUT: u16 = 9;

/// Source port of the packets of the first DAG.
const FIRST_SOURCE: u16 = 10_000;
/// Sizes of frames.
const FRAME_BYTES: std::ops::RangeInclusive<u32> = 64..=1_514;
/// Bytes of each frame that the file has; the others are zeros.
const KEPT: usize = 64;
/// Place of a frame's number behind its headers.
const NUMBER_AT: usize = 42;
/// Frames that may be on the card or in its sockets at once: few enough that no socket is ever full, so none is dropped.
const WINDOW: u64 = 64;
/// Longest time in which a frame that is not denied passes.
const PASS_MAX: Duration = Duration::from_secs(20);

/// A frame as it was seen at a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenFrame {
    pub at: Instant,
    pub number: u64,
    pub bytes: u32,
    /// Whether the firewall drops it.
    pub is_denied: bool,
}

/// Frames of each DAG, in their order.
pub type SeenFrames = [Vec<SeenFrame>; 4];

/// Frames that went into a card and came out of it, from its start to its end.
#[derive(Debug, Default)]
pub struct PortCapture {
    pub came: SeenFrames,
    pub left: SeenFrames,
}

fn station(port: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, port as u8]
}

/// The beginning of a frame of a DAG, with its number.
fn head(of: usize, (from, to): (usize, usize), (port, bytes, number): (u16, u32, u64)) -> Vec<u8> {
    let mut frame = [station(to), station(from)].concat();
    let length = bytes as u16 - 14;
    frame.extend([8, 0, 0x45, 0]);
    frame.extend(length.to_be_bytes());
    frame.extend([0, 0, 0x40, 0, 64, 17, 0, 0]);
    frame.extend([10, 77, 0, from as u8 + 1, 10, 77, 0, to as u8 + 1]);
    let words = frame[14..34].chunks(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    frame.extend((FIRST_SOURCE + of as u16).to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend((length - 20).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(number.to_be_bytes());
    frame.resize(KEPT, 0);
    frame
}

/// DAG, number and destination port of a frame.
fn read(frame: &[u8]) -> Option<(usize, u64, u16)> {
    let half = |at: usize| Some(u16::from_be_bytes(frame.get(at..at + 2)?.try_into().ok()?));
    let of = usize::from(half(34)?.checked_sub(FIRST_SOURCE)?);
    let number = frame.get(NUMBER_AT..NUMBER_AT + 8)?.try_into().ok()?;
    Some((of, u64::from_be_bytes(number), half(36)?)).filter(|(of, ..)| *of < DAGS.len())
}

/// Writes a capture of so many packets, whose DAGs and sizes follow from the seed.
pub fn write_capture(path: &Path, seed: u64, packets: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut file = BufWriter::new(File::create(path).unwrap());
    let words = |file: &mut BufWriter<File>, words: &[u32]| {
        words.iter().for_each(|word| file.write_all(&word.to_le_bytes()).unwrap());
    };
    // Classic, version 2.4, of Ethernet frames.
    words(&mut file, &[0xa1b2_c3d4, 0x0004_0002, 0, 0, KEPT as u32, 1]);
    for number in 0..packets {
        let of = rng.random_range(0..DAGS.len());
        let bytes = match rng.random_bool(0.5) {
            true => rng.random_range(FRAME_BYTES),
            false => rng.random_range(64..=200),
        };
        let port = if of == 0 && rng.random_ratio(1, 8) { SHUT } else { OPEN };
        words(&mut file, &[number as u32 / 1_000, number as u32 % 1_000, KEPT as u32, bytes]);
        file.write_all(&head(of, WAYS[of], (port, bytes, number))).unwrap();
    }
    file.flush().unwrap();
}

/// A capture file that is read frame by frame.
pub struct KnownPackets {
    file: BufReader<File>,
    /// Frame that was not sent, for the card was gone.
    back: Option<Vec<u8>>,
}

impl KnownPackets {
    pub fn open(path: &Path) -> Self {
        let mut file = BufReader::new(File::open(path).unwrap());
        file.read_exact(&mut [0; 24]).unwrap();
        Self { file, back: None }
    }

    fn next(&mut self) -> Option<Vec<u8>> {
        if let Some(frame) = self.back.take() {
            return Some(frame);
        }
        let mut record = [0; 16];
        self.file.read_exact(&mut record).ok()?;
        let word = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().unwrap()) as usize;
        let mut frame = vec![0; word(8)];
        self.file.read_exact(&mut frame).unwrap();
        frame.resize(word(12), 0);
        Some(frame)
    }
}

/// Progress of a load, and how far it may go.
#[derive(Debug, Default)]
pub struct Progress {
    /// Frames sent by all cards.
    pub sent: AtomicU64,
    /// Frames that may be sent.
    pub allowed: AtomicU64,
}

/// Hosts at the ports of a running card.
pub struct PortHosts {
    streams: Vec<UnixStream>,
    readers: Vec<JoinHandle<()>>,
    capture: Arc<Mutex<PortCapture>>,
    left: Arc<AtomicU64>,
    is_gone: Arc<AtomicBool>,
    /// Frames that were sent and are to pass.
    passing: u64,
}

/// Reads frames at a port until the card is gone.
fn take(
    stream: &UnixStream,
    port: usize,
    (capture, left): (&Mutex<PortCapture>, &AtomicU64),
) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut frame = Vec::new();
    loop {
        let mut length = [0; 4];
        stream.read_exact(&mut length)?;
        frame.resize(u32::from_be_bytes(length) as usize, 0);
        stream.read_exact(&mut frame)?;
        let (of, number, to) = read(&frame).expect("a card sends what it was sent");
        let is_hello = number >= HELLO;
        assert!(is_hello || WAYS[of].1 == port, "{} of {:?} at {port}", number, DAGS[of]);
        let (at, bytes, is_denied) = (Instant::now(), frame.len() as u32, to == SHUT);
        let seen = SeenFrame { at, number, bytes, is_denied };
        capture.lock().unwrap().left[of].push(seen);
        left.fetch_add(1, Ordering::SeqCst);
    }
}

/// Numbers of frames that are not in the file.
const HELLO: u64 = 1 << 40;

impl PortHosts {
    /// Connects to all ports, whose sockets are in a folder; functions say from which of them their stations send.
    pub fn connect(folder: &Path, card: u64, progress: &Progress) -> Self {
        let capture = Arc::new(Mutex::new(PortCapture::default()));
        let (left, is_gone) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let streams = Vec::from(PORTS.map(|port| UnixStream::connect(folder.join(port)).unwrap()));
        let readers = streams.iter().enumerate().map(|(port, stream)| {
            let stream = stream.try_clone().unwrap();
            let (capture, left) = (Arc::clone(&capture), Arc::clone(&left));
            let is_gone = Arc::clone(&is_gone);
            std::thread::spawn(move || {
                let end = take(&stream, port, (&capture, &left));
                end.expect_err("it reads until the end");
                is_gone.store(true, Ordering::SeqCst);
            })
        });
        let readers = readers.collect();
        let mut hosts = Self { streams, readers, capture, left, is_gone, passing: 0 };
        for (of, (from, to)) in WAYS.into_iter().enumerate() {
            let function = from.max(to);
            let frame = head(of, (function, 0), (OPEN, KEPT as u32, HELLO + card));
            assert!(hosts.send(function, &frame), "the card has just been started");
            progress.sent.fetch_add(1, Ordering::SeqCst);
            progress.allowed.fetch_add(1, Ordering::SeqCst);
        }
        assert!(hosts.wait_for_passing(1), "a station's first frame does not pass");
        hosts
    }

    /// Sends a frame; false where the card is gone.
    fn send(&mut self, port: usize, frame: &[u8]) -> bool {
        let (of, number, to) = read(frame).expect("a frame of ours");
        let message = [&(frame.len() as u32).to_be_bytes()[..], frame].concat();
        // Before it is sent: the card has it when the call is back, or earlier.
        let at = Instant::now();
        if self.streams[port].write_all(&message).is_err() {
            return false;
        }
        let mut capture = self.capture.lock().unwrap();
        let (bytes, is_denied) = (frame.len() as u32, to == SHUT);
        capture.came[of].push(SeenFrame { at, number, bytes, is_denied });
        self.passing += u64::from(!is_denied);
        true
    }

    /// Waits until fewer frames than these are on their way; false where the card is gone.
    fn wait_for_passing(&self, fewer: u64) -> bool {
        let until = Instant::now() + PASS_MAX;
        loop {
            let left = self.left.load(Ordering::SeqCst);
            if self.is_gone.load(Ordering::SeqCst) {
                return false;
            }
            if self.passing - left < fewer {
                return true;
            }
            assert!(Instant::now() < until, "{left} of {} frames passed", self.passing);
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Sends packets of the file, so many a second at most, until its end or the card's; true at its end.
    pub fn replay(&mut self, packets: &mut KnownPackets, rate: u32, progress: &Progress) -> bool {
        let (begin, mut sent) = (Instant::now(), 0_u32);
        while let Some(frame) = packets.next() {
            let (of, ..) = read(&frame).expect("a frame of ours");
            while progress.sent.load(Ordering::SeqCst) >= progress.allowed.load(Ordering::SeqCst) {
                if self.is_gone.load(Ordering::SeqCst) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            let due = begin + Duration::from_secs(1) * sent / rate;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if !self.wait_for_passing(WINDOW) || !self.send(WAYS[of].0, &frame) {
                packets.back = Some(frame);
                return false;
            }
            sent += 1;
            progress.sent.fetch_add(1, Ordering::SeqCst);
        }
        self.wait_for_passing(1)
    }

    /// Leaves the ports; what went in and came out until then.
    pub fn leave(self) -> PortCapture {
        for stream in self.streams {
            // The card may be gone.
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
        self.readers.into_iter().for_each(|reader| reader.join().unwrap());
        Arc::into_inner(self.capture).expect("readers have ended").into_inner().unwrap()
    }
}

/// Ports of a card whose sockets are in a folder, as its settings have them.
pub fn ports(folder: &Path) -> Vec<String> {
    let port = |name: &str| -> PathBuf { folder.join(name) };
    PORTS.iter().map(|name| format!("unix:{}", port(name).display())).collect()
}
