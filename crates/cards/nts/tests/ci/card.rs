//! A card of the tests: NTs in a row between two wires.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use snic_domain::Timestamp;
use snic_nts::{Context, Direction, Emitted, NtInstance, Packet, Pool, Verdict, create, schema};

use super::{HELPER, PYTHON};

/// A network namespace that goes with its value.
pub struct Namespace {
    pub name: String,
}

impl Namespace {
    pub fn new(purpose: &str) -> Self {
        let name = format!("snic-nts-{}-{purpose}", std::process::id());
        run("ip", &["netns", "add", &name]);
        let namespace = Self { name };
        namespace.ip("link set lo up");
        namespace
    }

    /// Runs `ip` in it.
    pub fn ip(&self, arguments: &str) {
        let words: Vec<_> = arguments.split_whitespace().collect();
        run("ip", &[&["-n", &self.name], &words[..]].concat());
    }

    /// A program that is to run in it.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _gone = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().unwrap();
    assert!(status.success(), "{program} {arguments:?}");
}

/// A process that ends with its value.
pub struct Ending(pub Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _dead = self.0.kill();
        let _waited = self.0.wait();
    }
}

/// An NT with its settings.
pub fn nt(nt_type: &str, settings: &Value) -> NtInstance {
    let mut nt = create(nt_type, 1).unwrap();
    let version = schema(nt_type).unwrap().version;
    nt.configure(Timestamp::ZERO, version, settings.to_string().as_bytes()).unwrap();
    nt
}

/// One wire: a helper at an interface.
struct Wire {
    _helper: Ending,
    input: ChildStdin,
}

/// NTs between wires 0 and 1.
pub struct Card {
    wires: Vec<Wire>,
    frames: Receiver<(usize, Vec<u8>)>,
    sender: Sender<(usize, Vec<u8>)>,
    pub nts: Vec<NtInstance>,
    pool: Pool,
    emitted: Emitted,
    random: ChaCha8Rng,
    start: Instant,
    /// Packets of both wires meet the NTs in the same order, as on a card; otherwise those of wire 1 in reverse.
    pub has_one_order: bool,
    /// Fragments of a wire wait for the last one of their packet, and then go in reverse order.
    pub reverses_fragments: bool,
    waiting: Vec<Vec<u8>>,
}

impl Card {
    pub fn new(nts: Vec<NtInstance>) -> Self {
        let (sender, frames) = channel();
        let pool = Pool::new(256, 9_216);
        Self {
            wires: Vec::new(),
            frames,
            sender,
            nts,
            emitted: Emitted::new(pool.clone()),
            pool,
            random: ChaCha8Rng::seed_from_u64(1),
            start: Instant::now(),
            has_one_order: false,
            reverses_fragments: false,
            waiting: Vec::new(),
        }
    }

    /// Attaches the next wire to an interface of a namespace.
    pub fn attach(&mut self, namespace: &Namespace, interface: &str) {
        assert!(Path::new(HELPER).exists());
        let mut command = namespace.command(PYTHON);
        command.args([HELPER, "wire", interface]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (side, sender) = (self.wires.len(), self.sender.clone());
        std::thread::spawn(move || {
            let mut length = [0; 2];
            while output.read_exact(&mut length).is_ok() {
                let mut frame = vec![0; u16::from_be_bytes(length).into()];
                if output.read_exact(&mut frame).is_err() || sender.send((side, frame)).is_err() {
                    return;
                }
            }
        });
        self.wires.push(Wire { _helper: Ending(child), input });
    }

    /// Forwards packets until `command` has ended.
    pub fn serve(
        &mut self,
        command: &mut Command,
        mut answer: impl FnMut(&[u8]) -> Option<Vec<u8>>,
    ) -> Output {
        let mut child =
            Ending(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(90);
        while child.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "{command:?} does not end");
            match self.frames.recv_timeout(Duration::from_millis(50)) {
                Ok((side, frame)) => {
                    for frame in self.reordered(frame) {
                        self.pass(side, &frame, &mut answer);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => panic!("the wires are gone"),
            }
        }
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        child.0.stdout.take().unwrap().read_to_end(&mut stdout).unwrap();
        child.0.stderr.take().unwrap().read_to_end(&mut stderr).unwrap();
        Output { status: child.0.wait().unwrap(), stdout, stderr }
    }

    /// Takes a frame; the frames that are passed on now.
    fn reordered(&mut self, frame: Vec<u8>) -> Vec<Vec<u8>> {
        let (is_fragment, is_last) = match frame.get(12..14) {
            Some([0x08, 0]) => {
                let field = u16::from_be_bytes([frame[20], frame[21]]);
                (field & 0x3FFF != 0, field & 0x2000 == 0)
            }
            Some([0x86, 0xDD]) if frame[20] == 44 => (true, frame[57] & 1 == 0),
            _ => (false, true),
        };
        if !(self.reverses_fragments && is_fragment) {
            return vec![frame];
        }
        self.waiting.push(frame);
        if !is_last {
            return Vec::new();
        }
        let mut all = std::mem::take(&mut self.waiting);
        all.reverse();
        all
    }

    /// A frame that came from wire `side`. Wire 0 is inside: its packets meet the NTs in order, those
    /// of wire 1 in reverse. Without a second wire `answer` says what comes back.
    fn pass(
        &mut self,
        side: usize,
        frame: &[u8],
        answer: &mut impl FnMut(&[u8]) -> Option<Vec<u8>>,
    ) {
        for (to, out) in self.through(side, frame) {
            if to < self.wires.len() {
                self.send(to, &out);
            } else if let Some(back) = answer(&out) {
                for (to, out) in self.through(1, &back) {
                    self.send(to, &out);
                }
            }
        }
    }

    /// Frames that come out of the NTs, and their side.
    pub fn through(&mut self, side: usize, frame: &[u8]) -> Vec<(usize, Vec<u8>)> {
        let mut out = Vec::new();
        if let Some(packet) = self.pool.copy_of(frame) {
            self.pass_nts(side, 0, packet, &mut out);
        }
        out
    }

    /// Leads a packet through the NTs from the `first`th one on, and what they make behind it through those that follow.
    fn pass_nts(
        &mut self,
        side: usize,
        first: usize,
        mut packet: Packet,
        out: &mut Vec<(usize, Vec<u8>)>,
    ) {
        let now = Timestamp::ZERO + self.start.elapsed();
        let mut to = 1 - side;
        let count = self.nts.len();
        for step in first..count {
            let in_order = side == 0 || self.has_one_order;
            let nt = &mut self.nts[if in_order { step } else { count - 1 - step }];
            let mut context = Context { now, random: &mut self.random, emitted: &mut self.emitted };
            let verdict = nt.process(&mut packet, &mut context);
            if let Some(translation) = packet.take_translation() {
                for other in &mut self.nts {
                    other.learn(&translation, now);
                }
            }
            for (direction, made) in self.emitted.drain().collect::<Vec<_>>() {
                match direction {
                    Direction::Onward => self.pass_nts(side, step + 1, made, out),
                    Direction::Back => out.push((side, made.bytes().to_vec())),
                }
            }
            match verdict {
                Verdict::Forward => {}
                Verdict::Reply => {
                    to = side;
                    break;
                }
                Verdict::Consume | Verdict::Drop(_) => return,
            }
        }
        out.push((to, packet.bytes().to_vec()));
    }

    fn send(&mut self, side: usize, frame: &[u8]) {
        let length = u16::try_from(frame.len()).unwrap().to_be_bytes();
        let input = &mut self.wires[side].input;
        input.write_all(&[&length[..], frame].concat()).unwrap();
        input.flush().unwrap();
    }

    /// Drops of its NTs, for messages.
    pub fn drops(&self) -> String {
        let all = self.nts.iter().flat_map(|nt| nt.counters().drops());
        all.map(|(reason, count)| format!("{} {count} ", reason.name())).collect()
    }
}
