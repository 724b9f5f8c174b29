//! Simulated cards of a running daemon: how they are opened, and the loads that they make.
//!
//! A simulated card does nothing but when its clock is moved, and packets take the machine's time. While a
//! load runs, one thread of the card moves the clock in short steps: with the host's clock as long as the
//! machine keeps up, and down to a quarter of it where it does not, so that rates and latencies stay those of the
//! card. Loads that need more than that pause, for a card that is slower misses its driver's deadlines.
//! Nobody waits for the card for long, and loads take no more than one processor.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use snic_card_sim::{SharedLoad, SharedSimCard, SimCard};
use snic_domain::{Bandwidth, CardProfile};
use snic_ports::card::Card as _;
use snic_ports::driver::Deadlines;
use snic_ports::generator::{
    GeneratedLoad, GeneratorError, LoadReading, RunningLoad, TrafficGenerator,
};
use snic_server::shell::{CardBackend, OpenedCard};

/// Loads of one card at once: as many as the server has, which shares them between callers.
const LOADS_MAX: usize = 8;
/// Microseconds of the card's time that pass while nobody else can reach it: 3,000 of the smallest packets at
/// 100 Gbit/s, a few milliseconds of work.
const STEP_MICROS: u64 = 20;
/// Time to work before others get the card.
const WORK: Duration = Duration::from_millis(1);
/// The pause that lets others in, and the one while the card is ahead.
const TURN: Duration = Duration::from_micros(50);
const REST: Duration = Duration::from_micros(500);
/// Time that the card may fall behind and catch up again; what is more stays: its clock goes slower.
const LAG_MAX: Duration = Duration::from_millis(20);
/// A second of the host is at least 1 / `SLOWEST` of the card's: its driver lets a load take eight times as
/// long as it should.
const SLOWEST: u32 = 4;

/// A simulated card of the settings.
pub struct SimBackend {
    /// The card, which others send traffic through.
    pub card: SharedSimCard,
    pub profile: CardProfile,
}

impl CardBackend for SimBackend {
    fn open(&mut self) -> OpenedCard {
        let mut card = self.card.clone();
        card.with(SimCard::reopen);
        card.poll(snic_front::wall_clock()).map_err(|error| error.to_string())?;
        Ok((Box::new(card), self.profile.clone()))
    }

    fn prepare_role(&mut self, _force: bool) -> Result<(), String> {
        Err(no_role("a simulated"))
    }

    /// Cuts the card's power, and gives it back.
    fn reset(&mut self) -> Result<(), String> {
        self.card.with(SimCard::power_cycle);
        Ok(())
    }

    fn deadlines(&self) -> Deadlines {
        Deadlines::of(&self.profile)
    }
}

/// The answer of a card without roles.
pub fn no_role(kind: &str) -> String {
    format!("{kind} card has no role; load-role needs a card with driver = \"xrt\"")
}

/// Makes loads on a simulated card.
pub struct SimGenerator {
    card: SharedSimCard,
    rate_max: Bandwidth,
    running: Arc<Mutex<CardWork>>,
}

/// Work that runs on a card.
#[derive(Debug, Default)]
struct CardWork {
    loads: usize,
    /// Whether a thread moves the clock.
    is_driven: bool,
}

fn lock(running: &Mutex<CardWork>) -> MutexGuard<'_, CardWork> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SimGenerator {
    /// For this card.
    pub fn new(card: SharedSimCard, profile: &CardProfile) -> Self {
        Self { card, rate_max: profile.ingress, running: Arc::default() }
    }

    /// One load more. Where no thread moves the clock, it starts one.
    fn enter(&self) -> Result<LoadPlace, GeneratorError> {
        let mut running = lock(&self.running);
        if running.loads >= LOADS_MAX {
            return Err(GeneratorError::TooMany { most: LOADS_MAX as u32 });
        }
        if !running.is_driven {
            let (card, all) = (self.card.clone(), Arc::clone(&self.running));
            let thread = std::thread::Builder::new().name("sim-traffic".into());
            let started = thread.spawn(move || run(&card, &all));
            started.map_err(|error| GeneratorError::Lost(format!("start a thread: {error}")))?;
            running.is_driven = true;
        }
        running.loads += 1;
        Ok(LoadPlace(Arc::clone(&self.running)))
    }
}

/// A running load's place; given back on drop.
struct LoadPlace(Arc<Mutex<CardWork>>);

impl Drop for LoadPlace {
    fn drop(&mut self) {
        lock(&self.0).loads -= 1;
    }
}

/// Whether there is still a load. The thread that is told that there is none must end.
fn goes_on(running: &Mutex<CardWork>) -> bool {
    let mut running = lock(running);
    running.is_driven = running.loads > 0;
    running.is_driven
}

/// Moves the card's clock until no load runs any more.
fn run(card: &SharedSimCard, running: &Mutex<CardWork>) {
    let _held = card.hold_clock();
    let cycles = card.with(|card| card.profile().clock_hz * STEP_MICROS / 1_000_000);
    let mut pace = ClockBounds::default();
    let mut before = Instant::now();
    while goes_on(running) {
        let now = Instant::now();
        pace.pass(now.duration_since(before));
        before = now;
        while pace.is_due() && now.elapsed() < WORK {
            card.with(|card| card.run_for(cycles));
            pace.step();
        }
        let steps = pace.take_skip();
        if steps > 0 {
            card.with(|card| card.skip_loads(steps * cycles));
        }
        std::thread::sleep(if pace.is_due() { TURN } else { REST });
    }
}

/// Bounds on the card's clock.
#[derive(Debug, Default)]
struct ClockBounds {
    /// The host's time that the card did not have yet, without what it may never have.
    due: Duration,
    /// Time that it must have in any case.
    owed: Duration,
}

impl ClockBounds {
    const STEP: Duration = Duration::from_micros(STEP_MICROS);

    /// So much of the host's time has passed.
    fn pass(&mut self, time: Duration) {
        // A process that stood still owes nothing for that time: its card's driver does not count it either.
        let time = time.min(LAG_MAX);
        self.due = (self.due + time).min(LAG_MAX);
        self.owed += time / SLOWEST;
    }

    /// Whether the card may take a step.
    fn is_due(&self) -> bool {
        self.due >= Self::STEP
    }

    /// It took one.
    fn step(&mut self) {
        self.due = self.due.saturating_sub(Self::STEP);
        self.owed = self.owed.saturating_sub(Self::STEP);
    }

    /// Steps that it must take now without its loads, for it is too slow with them.
    fn take_skip(&mut self) -> u64 {
        if self.owed < LAG_MAX {
            return 0;
        }
        // Of 20 us each in some tens of milliseconds.
        let steps = (self.owed.as_micros() / Self::STEP.as_micros()) as u64;
        (self.due, self.owed) = (Duration::ZERO, Duration::ZERO);
        steps
    }
}

impl TrafficGenerator for SimGenerator {
    fn rate_max(&self) -> Bandwidth {
        self.rate_max
    }

    fn start(&self, load: &GeneratedLoad) -> Result<Box<dyn RunningLoad>, GeneratorError> {
        // Where the load is not valid, the place is free again at once.
        let place = self.enter()?;
        let load = self.card.start_load(load)?;
        Ok(Box::new(SimLoad { load, _place: place }))
    }
}

/// A load on a simulated card, and its place among those that the thread drives.
struct SimLoad {
    load: SharedLoad,
    _place: LoadPlace,
}

impl RunningLoad for SimLoad {
    fn read(&mut self) -> Result<LoadReading, GeneratorError> {
        self.load.read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets a machine that simulates a step in so long work for a second; gives the parts of it in which the
    /// card's clock went on with its loads, and without them.
    fn second(step: Duration) -> [f64; 2] {
        let (mut pace, mut passed) = (ClockBounds::default(), Duration::ZERO);
        let (mut with, mut without) = (0, 0);
        while passed < Duration::from_secs(1) {
            let mut turn = Duration::ZERO;
            while pace.is_due() && turn < WORK {
                turn += step;
                with += 1;
                pace.step();
            }
            without += pace.take_skip();
            turn += if pace.is_due() { TURN } else { REST };
            passed += turn;
            pace.pass(turn);
        }
        [with, without].map(|steps| steps as f64 * ClockBounds::STEP.as_secs_f64())
    }

    #[test]
    fn a_fast_machine_keeps_the_hosts_time_and_a_slow_one_a_quarter_of_it() {
        let [with, without] = second(Duration::from_micros(2));
        assert!((0.97..=1.0).contains(&with) && without == 0.0, "{with} {without}");
        // Half as fast: all of it with its loads.
        let [with, without] = second(Duration::from_micros(40));
        assert!((0.45..0.51).contains(&with) && without == 0.0, "{with} {without}");
        // A fiftieth: the rest of a quarter without them.
        let [with, without] = second(Duration::from_millis(1));
        assert!((0.015..0.025).contains(&with), "{with} {without}");
        assert!((0.20..=0.27).contains(&(with + without)), "{with} {without}");
    }

    #[test]
    fn a_process_that_stood_still_owes_nothing() {
        let mut pace = ClockBounds::default();
        pace.pass(Duration::from_secs(3_600));
        assert_eq!(pace.take_skip(), 0);
        let mut steps = 0;
        while pace.is_due() {
            pace.step();
            steps += 1;
        }
        assert_eq!(steps, 1_000, "20 ms may be caught up");
    }
}
