//! The card driver: sequences of register accesses, written once for every card.
//!
//! A card does the slow things (letting packets finish, loading a region) by itself once a register
//! started them. A [`Session`] starts them, and finds out by polling; [`Session::step`] does what
//! can be done now and never waits, so that one thread drives a real card between two sleeps, and a
//! simulation drives a simulated one under virtual time.
//!
//! ```text
//!  submit ──► queue ──┬─► program lane   Banks ──rows, COMMIT──► Packets ──read back──► Programmed
//!                     │                    │ still busy            │ still busy: regions that keep packets are reset
//!                     │                    └──────► DrainTimeout ◄─┘        refused, other rows: ABORT
//!                     │
//!                     ├─► load lane      Draining ──stage, decouple, start──► Loading ──couple──► Loaded
//!                     │                    │ packets stay, port busy           │ error, late
//!                     │                    └──► failed, still coupled          └──► failed, decoupled
//!                     │                                                             (late: reset)
//!                     │
//!                     ├─► state lane     ──whose, where, command──► Busy ──check──► State
//!                     │                                               │ refused, late: ended
//!                     │
//!                     ├─► Sample         at once
//!                     │
//!                     ├─► ReadBack       alone: Settling ──ABORT, couple, read all──► snapshot
//!                     │
//!                     └─► LoadRole, Reset  alone: no packet in any region ──► Released, as if lost;
//!                                        a Reset at once without all that, whatever is under way
//!
//!  any state ──card lost, card restarted──► Lost: empty, and deaf until a ReadBack is submitted
//! ```
//!
//! A step moves at most [`STEP_WORDS`] words of tables: rows are written and read back a piece at a
//! time, and a `Sample` goes ahead of all that is under way, so that it never waits for a large commit.
//!
//! One `Program` and one `Load` run at a time, each kind in the order submitted, and side by side:
//! a load takes milliseconds in which tables are still programmed. A `Load` waits for every
//! `Program` submitted before it, because one of them may take away the rows that lead to its
//! region; a `Program` does not wait for loads. A `State` waits for every `Program` and `Load`
//! submitted before it, and every `Load` for every `State`: what is saved is what packets left behind,
//! and it is saved before it is lost. A `ReadBack` and a `LoadRole` wait for everything
//! before them, and everything behind them waits for them.

mod latency;
mod load;
mod program;
mod read_back;
mod role;
mod sample;
mod state;
mod stuck;
#[cfg(test)]
mod tests;
mod traces;
mod windows;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use snic_domain::limits::DAG_ROWS;
use snic_domain::{CardProfile, Timestamp};
use snic_tables::{CardCommand, CardReport, Table, Ticket, registers};

use crate::card::{Card, CardError};
use load::Load;
use program::Program;
use read_back::ReadBack;
use state::State;
use traces::Traces;
pub use windows::{ConfigurationEncoder, text_words};

/// Times after which a step counts as failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadlines {
    /// Until a region that no row leads to has no packet left (and the configuration port is free).
    /// 200 ms: a full packet store drains through one region in about 3 ms.
    pub drain: Duration,
    /// Until the packets that began with the old tables are gone. 200 ms, for the same reason.
    pub commit: Duration,
    /// Time that every load may take, whatever its size. 100 ms: start and identification.
    pub load_margin: Duration,
    /// Time that a region's wrapper may take to save or restore state. 100 ms: 16 MiB, the most that an NT
    /// keeps, at a hundredth of what one channel of DDR4 moves.
    pub state: Duration,
    /// The slowest configuration port that counts as working, in bytes per second.
    /// 100 MB/s: an eighth of what a 32-bit port at 200 MHz does (SuperNIC, 4.1).
    pub load_bytes_per_second: u64,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            drain: Duration::from_millis(200),
            commit: Duration::from_millis(200),
            load_margin: Duration::from_millis(100),
            state: Duration::from_millis(100),
            load_bytes_per_second: 100_000_000,
        }
    }
}

/// Share of a configuration port's rate below which it does not count as working: an eighth.
const LOAD_RATE_DIVISOR: u64 = 8;

impl Deadlines {
    /// Those of a card: a load may take eight times as long as its configuration port needs. One through
    /// MCAP, at 3 to 6 MB/s (PG213), takes more than a second for 4 MB.
    pub fn of(profile: &CardProfile) -> Self {
        let rate = profile.configuration_bytes_per_second;
        Self { load_bytes_per_second: rate / LOAD_RATE_DIVISOR, ..Self::default() }
    }

    /// Time that a load of `bytes` may take; a rate of zero counts as one byte per second.
    pub fn load(&self, bytes: u64) -> Duration {
        let nanos =
            u128::from(bytes) * 1_000_000_000 / u128::from(self.load_bytes_per_second.max(1));
        self.load_margin
            .saturating_add(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

/// Counts of a session since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Words written to the shadow bank.
    pub words_written: u64,
    /// Rows written to the shadow bank.
    pub rows_written: u64,
    /// Commits asked for, refused ones included.
    pub commits: u64,
    /// Configurations of DAGs sent to the card.
    pub configurations: u64,
    /// Writes and erasures at windows of NTs that did not take them.
    pub windows_refused: u64,
    /// Loads started on the card.
    pub loads: u64,
    /// Loads that failed, whether they were started or not.
    pub loads_failed: u64,
    /// Bytes of the bitstreams of the loads started.
    pub bytes_loaded: u64,
    /// Regions that kept packets of old tables for too long, and were reset.
    pub regions_reset: u64,
    /// Contexts saved and restored.
    pub states_moved: u64,
    pub read_backs: u64,
    pub samples: u64,
}

/// Words of tables that one step writes and reads back, up to the end of a row. A write over PCIe takes
/// about 0.1 µs and a read 1 µs: a sample of counters waits a millisecond at most. A DAG's rows are
/// some 100 words.
pub const STEP_WORDS: usize = 1_024;

/// Identity of the card: when either changes behind the session's back, what the controller
/// believes about the card is wrong.
#[derive(Debug, Clone, Copy)]
struct CardIdentity {
    boot_id: u32,
    version: u32,
}

/// State that the steps share.
#[derive(Debug)]
struct Context {
    deadlines: Deadlines,
    statistics: Statistics,
    now: Timestamp,
    /// Words of tables that this step may still move.
    words_left: usize,
    known: Option<CardIdentity>,
    /// Rows of DAGs whose counters are read: as many as were in the tables at once, or all before
    /// the first read-back.
    dag_rows: usize,
    /// The next sample reads all rows: DAGs that have left may have counted in higher ones.
    reads_all: bool,
    /// Memory of samples about the ones before.
    sampler: sample::Sampler,
    /// Buffers of loads that did not end in time: the card may still read them.
    abandoned: Vec<u64>,
    /// Form in which NTs take their configurations.
    encoder: ConfigurationEncoder,
    /// Reports of regions that were reset in this step.
    stuck: Vec<CardReport>,
}

#[derive(Debug)]
struct QueuedCommand {
    command: CardCommand,
    bytes: Option<Arc<[u8]>>,
}

/// Runs [`CardCommand`]s on a card, without ever waiting for it.
#[derive(Debug)]
pub struct Session {
    context: Context,
    queue: VecDeque<QueuedCommand>,
    program: Option<Program>,
    load: Option<Load>,
    state: Option<State>,
    read_back: Option<ReadBack>,
    traces: Traces,
    lost: bool,
    /// A reset that waits for nothing.
    reset: Option<Ticket>,
}

impl Session {
    /// A session that has nothing to do.
    pub const fn new(deadlines: Deadlines) -> Self {
        let statistics = Statistics {
            words_written: 0,
            rows_written: 0,
            commits: 0,
            configurations: 0,
            windows_refused: 0,
            loads: 0,
            loads_failed: 0,
            bytes_loaded: 0,
            regions_reset: 0,
            states_moved: 0,
            read_backs: 0,
            samples: 0,
        };
        let now = Timestamp::ZERO;
        let context = Context {
            deadlines,
            statistics,
            now,
            words_left: 0,
            known: None,
            dag_rows: DAG_ROWS,
            reads_all: false,
            sampler: sample::Sampler::new(),
            abandoned: Vec::new(),
            encoder: text_words,
            stuck: Vec::new(),
        };
        let queue = VecDeque::new();
        let traces = Traces::new();
        Self {
            context,
            queue,
            program: None,
            load: None,
            state: None,
            read_back: None,
            traces,
            lost: false,
            reset: None,
        }
    }

    /// The same session, which gives NTs with windows their configurations in this form; without, as text.
    #[must_use]
    pub const fn encoding(mut self, encoder: ConfigurationEncoder) -> Self {
        self.context.encoder = encoder;
        self
    }

    /// Queues a command; it starts in the next [`Session::step`] that finds its lane free.
    ///
    /// `bytes` is the bitstream of a [`CardCommand::Load`], `None` where the store has none (the
    /// load fails then) and for every other command. Its digest is the caller's promise.
    ///
    /// After [`CardReport::Lost`], what was submitted before the controller heard of it is ended
    /// by that report too: commands are dropped until a [`CardCommand::ReadBack`] is submitted. A
    /// [`CardCommand::Reset`] at once is the exception: the card is released with the next step.
    pub fn submit(&mut self, command: CardCommand, bytes: Option<Arc<[u8]>>) {
        if let CardCommand::Reset { ticket, at_once: true } = command {
            self.forget();
            self.reset = Some(ticket);
            return;
        }
        if self.lost && !matches!(command, CardCommand::ReadBack { .. }) {
            return;
        }
        self.lost = false;
        self.queue.push_back(QueuedCommand { command, bytes });
    }

    /// Says that the step with this ticket, submitted next, is of a trace: see [`Card::trace`].
    pub fn trace(&mut self, ticket: Ticket, parent: String) {
        self.traces.add(ticket, parent);
    }

    /// Tells the card what time it is, does what can be done now, and says what came to an end.
    ///
    /// A [`CardReport::Stuck`] answers none. Each command is answered once, unless a [`CardReport::Lost`] ends all of them; that report
    /// is the last of its step, and so is a [`CardReport::Released`]. Time never goes backwards.
    pub fn step(&mut self, card: &mut dyn Card, now: Timestamp) -> Vec<CardReport> {
        if let Some(ticket) = self.reset.take() {
            return vec![CardReport::Released { ticket }];
        }
        let mut reports = Vec::new();
        if self.lost {
            return reports;
        }
        self.context.now = now;
        self.context.words_left = STEP_WORDS;
        if let Err(error) = self.run(card, &mut reports) {
            self.forget();
            let reason = match error {
                CardError::Lost(reason) => reason,
                other => other.to_string(),
            };
            reports.push(CardReport::Lost { reason });
        }
        reports
    }

    /// Whether nothing is queued and nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
            && self.program.is_none()
            && self.load.is_none()
            && self.state.is_none()
            && self.read_back.is_none()
    }

    /// Whether the next step goes on with what this one left for it: no need to wait in between.
    pub fn is_ready(&self) -> bool {
        self.reset.is_some() || self.program.as_ref().is_some_and(Program::is_ready)
    }

    /// Counts since the session was made.
    pub const fn statistics(&self) -> Statistics {
        self.context.statistics
    }

    fn forget(&mut self) {
        self.queue.clear();
        (self.program, self.load, self.state, self.read_back) = (None, None, None, None);
        self.context.known = None;
        self.context.sampler = sample::Sampler::new();
        self.context.abandoned.clear();
        self.context.stuck.clear();
        self.traces.forget();
        self.lost = true;
    }

    fn run(&mut self, card: &mut dyn Card, out: &mut Vec<CardReport>) -> Result<(), CardError> {
        card.poll(self.context.now)?;
        if self.is_idle() {
            return Ok(());
        }
        self.traces.turn(card, None);
        self.context.recognise(card)?;
        while let Some(at) = self.first_sample() {
            self.start(at, card, out)?;
        }
        loop {
            let before = out.len();
            self.advance(card, out)?;
            let started = self.start_next(card, out)?;
            if self.lost || !started && out.len() == before {
                return Ok(());
            }
        }
    }

    /// Lets each lane go as far as it can.
    fn advance(&mut self, card: &mut dyn Card, out: &mut Vec<CardReport>) -> Result<(), CardError> {
        let (context, traces) = (&mut self.context, &mut self.traces);
        if let Some(program) = &mut self.program {
            traces.turn(card, Some(program.ticket));
            let report = program.advance(card, context)?;
            out.append(&mut context.stuck);
            if let Some(report) = report {
                traces.end(card, program.ticket)?;
                self.program = None;
                out.push(report);
            }
        }
        if let Some(load) = &mut self.load {
            traces.turn(card, Some(load.ticket()));
            if let Some(report) = load.advance(card, context)? {
                traces.end(card, load.ticket())?;
                self.load = None;
                out.push(report);
            }
        }
        if let Some(state) = &mut self.state {
            traces.turn(card, Some(state.ticket));
            if let Some(report) = state.advance(card, context)? {
                traces.end(card, state.ticket)?;
                self.state = None;
                out.push(report);
            }
        }
        if let Some(read_back) = &mut self.read_back {
            traces.turn(card, Some(read_back.ticket));
            let report = read_back.advance(card, context)?;
            out.append(&mut context.stuck);
            if let Some(report) = report {
                traces.end(card, read_back.ticket)?;
                self.read_back = None;
                out.push(report);
            }
        }
        Ok(())
    }

    /// Starts the first command whose lane is free, if there is one.
    fn start_next(
        &mut self,
        card: &mut dyn Card,
        out: &mut Vec<CardReport>,
    ) -> Result<bool, CardError> {
        match self.first_ready() {
            Some(at) => self.start(at, card, out).map(|()| true),
            None => Ok(false),
        }
    }

    /// Starts the command at this place of the queue.
    fn start(
        &mut self,
        at: usize,
        card: &mut dyn Card,
        out: &mut Vec<CardReport>,
    ) -> Result<(), CardError> {
        let Some(QueuedCommand { command, bytes }) = self.queue.remove(at) else { return Ok(()) };
        let now = self.context.now;
        self.traces.turn(card, Some(command.ticket()));
        match command {
            CardCommand::Program { ticket, delta, configurations, windows, .. } => {
                let rows = delta.rows().filter(|(key, _)| key.table == Table::Dag);
                let rows = rows.map(|(key, _)| usize::from(key.row) + 1).max().unwrap_or(0);
                self.context.dag_rows = self.context.dag_rows.max(rows);
                self.program = Some(Program::new(ticket, delta, configurations, windows, now));
            }
            CardCommand::Load { ticket, region, digest, chain } => {
                let order = load::Order { ticket, region, digest, chain, bytes };
                self.load = Some(Load::new(order, now));
            }
            CardCommand::State { ticket, region, order } => {
                self.state = Some(State::new(ticket, region, order, now));
            }
            CardCommand::ReadBack { ticket, known } => {
                self.read_back = Some(ReadBack::start(ticket, known, card, &mut self.context)?);
            }
            CardCommand::LoadRole { ticket, .. } | CardCommand::Reset { ticket, .. } => {
                match role::obstacle(card)? {
                    Some(reason) => {
                        self.traces.end(card, ticket)?;
                        out.push(CardReport::NotReleased { ticket, reason });
                    }
                    None => {
                        self.forget();
                        out.push(CardReport::Released { ticket });
                    }
                }
            }
            CardCommand::Sample { ticket } => {
                let Context { dag_rows, reads_all, sampler, .. } = &mut self.context;
                let rows = if std::mem::take(reads_all) { DAG_ROWS } else { *dag_rows };
                let counters = Box::new(sampler.counters(card, rows)?);
                self.context.statistics.samples += 1;
                out.push(CardReport::Sampled { ticket, counters });
            }
        }
        Ok(())
    }

    /// Where in the queue a sample is that may go ahead of everything.
    fn first_sample(&self) -> Option<usize> {
        let waits_alone = |command: &CardCommand| {
            matches!(
                command,
                CardCommand::ReadBack { .. }
                    | CardCommand::LoadRole { .. }
                    | CardCommand::Reset { .. }
            )
        };
        if self.read_back.is_some() {
            return None;
        }
        let ahead = self.queue.iter().take_while(|waiting| !waits_alone(&waiting.command));
        ahead.enumerate().find_map(|(at, waiting)| {
            matches!(waiting.command, CardCommand::Sample { .. }).then_some(at)
        })
    }

    /// Where in the queue the first command is that may start; see the module's head for the order.
    fn first_ready(&self) -> Option<usize> {
        if self.read_back.is_some() {
            return None;
        }
        let (mut program_ahead, mut load_ahead) = (self.program.is_some(), self.load.is_some());
        let mut state_ahead = self.state.is_some();
        for (at, QueuedCommand { command, .. }) in self.queue.iter().enumerate() {
            match command {
                CardCommand::Sample { .. } => return Some(at),
                CardCommand::ReadBack { .. }
                | CardCommand::LoadRole { .. }
                | CardCommand::Reset { .. } => {
                    let busy = program_ahead || load_ahead || state_ahead;
                    return (at == 0 && !busy).then_some(at);
                }
                CardCommand::Program { .. } if !program_ahead => return Some(at),
                CardCommand::Program { .. } => program_ahead = true,
                CardCommand::Load { .. } if !load_ahead && !program_ahead && !state_ahead => {
                    return Some(at);
                }
                CardCommand::Load { .. } => load_ahead = true,
                CardCommand::State { .. } if !load_ahead && !program_ahead && !state_ahead => {
                    return Some(at);
                }
                CardCommand::State { .. } => state_ahead = true,
            }
        }
        None
    }
}

impl Context {
    /// Words of tables were moved.
    const fn spend(&mut self, words: usize) {
        self.words_left = self.words_left.saturating_sub(words);
    }

    /// Takes note of which card this is, or fails where it is no longer the one of the last time.
    fn recognise(&mut self, card: &mut dyn Card) -> Result<(), CardError> {
        let boot_id = card.read(registers::BOOT_ID)?;
        match self.known {
            Some(known) if known.boot_id != boot_id => Err(CardError::Lost(format!(
                "the card restarted: its boot id was {:#010x} and is {boot_id:#010x}",
                known.boot_id
            ))),
            Some(_) => Ok(()),
            None => {
                let version = card.read(registers::TABLE_VERSION)?;
                self.known = Some(CardIdentity { boot_id, version });
                Ok(())
            }
        }
    }

    /// Gives back the buffers of loads that ended too late. Only while no load is under way.
    fn release_abandoned(&mut self, card: &mut dyn Card) -> Result<(), CardError> {
        self.abandoned.drain(..).try_for_each(|buffer| release(card, buffer))
    }
}

/// Gives a buffer back; one that the card does not know any more needs no giving back.
fn release(card: &mut dyn Card, buffer: u64) -> Result<(), CardError> {
    match card.release(buffer) {
        Err(CardError::NoBuffer(_)) => Ok(()),
        other => other,
    }
}
