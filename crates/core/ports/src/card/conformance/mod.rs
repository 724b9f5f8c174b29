//! Cases for every card, which each adapter runs against itself.
//!
//! An adapter's tests write `snic_ports::card_conformance!(fixture())`, which makes one `#[test]`
//! of every case, so that a failure names what is broken. The cases know the port and the register
//! map only; where a whole sequence is meant, they run it through the driver's own
//! [`Session`], because that is how cards are used.

mod latency;
mod loads;
mod registers;
mod sessions;
mod states;
mod tables;
mod traffic;
mod windows;

use std::sync::Arc;
use std::time::Duration;

use snic_domain::{Digest, RegionId, ReportedChain, Timestamp};
use snic_tables::registers::{Address, REGION_DIGEST, REGION_STATUS, region};
use snic_tables::{CardCommand, CardReport, LoadFailure, TableDelta, Ticket};

use super::{Card, CardError};
use crate::driver::{Deadlines, Session};
use crate::generator::{GeneratedLoad, RunningLoad};

pub use latency::*;
pub use loads::*;
pub use registers::*;
pub use sessions::*;
pub use states::*;
pub use tables::*;
pub use traffic::*;
pub use windows::*;

/// A card under test, and what can be loaded on it.
pub struct Fixture {
    /// As after power-up: no region loaded, all tables empty, no packets. It has two regions at
    /// least, and a save area of 64 KiB or more.
    pub card: Box<dyn Card>,
    /// Whether the shell loads regions at all. Where it does not, cases that need a load are left out, and what others load
    /// before they begin is not loaded.
    pub loads: bool,
    /// Two different valid bitstreams: for region 0 and for region 1. The first keeps state.
    pub images: [Arc<[u8]>; 2],
    /// Report of a region for each of them.
    pub chains: [ReportedChain; 2],
    /// The first of them with damage that the card finds, by its packets or by what the region
    /// says of itself afterwards.
    pub damaged: Arc<[u8]>,
    /// Time that passes between two looks at the card; shorter than either image takes to
    /// load.
    pub step: Duration,
    /// Lets that much time pass on the card's own clock. A simulated card does what it does when it
    /// is polled and needs nothing here; a real one needs a sleep.
    pub wait: fn(Duration),
    /// Begins a load on the card; `None` where it makes no packets.
    pub start_load: Option<StartLoad>,
}

/// Begins a load on a card under test. The load ends when it is dropped.
pub type StartLoad = Box<dyn Fn(&GeneratedLoad) -> Box<dyn RunningLoad>>;

/// Names of all cases, so that an adapter that leaves some out can say which.
pub const CASES: &[&str] = crate::card_conformance!(@list names ());

/// Makes one `#[test]` of every case; the expression makes a fresh [`Fixture`].
#[macro_export]
macro_rules! card_conformance {
    ($fixture:expr) => {
        $crate::card_conformance! { @list each $fixture }
    };
    (@list $what:ident $argument:expr) => {
        $crate::card_conformance! { @$what $argument =>
            identity_registers_say_what_the_card_is
            the_boot_id_stays_while_the_card_is_up
            a_boot_id_is_written_once_at_most
            addresses_that_are_not_aligned_are_refused
            addresses_that_are_not_in_the_map_are_refused
            a_block_that_leaves_the_map_is_refused
            read_only_registers_keep_their_values
            a_fresh_card_counted_nothing
            the_decouple_bit_is_kept_and_the_reset_bit_clears_itself
            buffers_are_told_apart
            a_buffer_is_released_once
            buffers_given_back_make_room
            blocks_are_the_same_words_as_single_accesses
            several_blocks_are_the_same_words_as_single_accesses
            shadow_writes_are_invisible_until_the_commit
            after_a_commit_both_banks_are_the_same
            an_abort_discards_shadow_writes
            rows_written_while_a_commit_is_busy_are_ignored
            a_commit_of_another_version_is_refused
            a_second_commit_keeps_the_rows_of_the_first
            a_load_goes_from_busy_to_done
            a_loaded_region_says_what_it_holds
            what_another_chain_is_declared_for_is_not_coupled
            the_next_digest_is_not_shown_before_a_load
            a_coupled_region_is_not_loaded
            a_region_that_is_not_there_is_not_loaded
            a_damaged_image_leaves_the_region_broken
            bytes_that_are_no_bitstream_leave_the_region_broken
            a_broken_region_can_be_loaded_again
            one_load_runs_at_a_time
            a_reset_ends_a_load
            a_load_leaves_the_other_regions_alone
            a_region_can_be_loaded_again_with_the_same_image
            rows_are_programmed_and_read_back
            a_configuration_is_taken_whole_or_refused
            a_network_task_takes_a_configuration_by_its_window
            a_window_shows_a_loaded_network_task_or_zeros
            tables_are_programmed_while_a_region_is_loading
            a_fresh_card_is_read_back_as_empty
            a_load_of_a_daemon_that_is_gone_is_adopted
            shadow_writes_of_a_daemon_that_is_gone_are_discarded
            a_region_that_was_left_decoupled_is_coupled_again
            a_broken_region_stays_decoupled
            a_sample_of_a_quiet_card_has_no_errors
            a_fresh_wrapper_is_idle_and_keeps_nothing
            a_saved_state_comes_back
            a_state_comes_back_after_a_load
            a_state_is_not_restored_for_another_dag
            a_state_is_not_restored_into_another_bitstream
            a_state_that_was_erased_is_not_restored
            a_place_outside_of_the_save_area_is_refused
            registers_of_wrappers_keep_what_the_host_writes
            what_comes_in_goes_out_or_is_dropped_for_a_cause
            parts_of_latencies_sum_up_and_as_many_packets_are_sampled_as_the_rule_says
        }
    };
    (@names $none:expr => $($case:ident)*) => {
        &[$(stringify!($case)),*]
    };
    (@each $fixture:expr => $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                $crate::card::conformance::$case($fixture);
            }
        )*
    };
}

/// Takes what a step of a case needs to succeed, or fails the case with what was being done.
trait Needed<T> {
    fn needed(self, what: &str) -> T;
}

impl<T> Needed<T> for Result<T, CardError> {
    #[track_caller]
    fn needed(self, what: &str) -> T {
        match self {
            Ok(value) => value,
            Err(error) => panic!("{what}: {error}"),
        }
    }
}

/// Number of looks of a case before it gives up: far more than a load or a commit takes.
const LOOKS_MAX: usize = 100_000;

/// A fixture in use: the card, the time, a session.
struct Rig {
    card: Box<dyn Card>,
    loads: bool,
    images: [Arc<[u8]>; 2],
    chains: [ReportedChain; 2],
    damaged: Arc<[u8]>,
    step: Duration,
    wait: fn(Duration),
    start_load: Option<StartLoad>,
    now: Timestamp,
    session: Session,
    tickets: u64,
}

impl Rig {
    fn new(fixture: Fixture) -> Self {
        let Fixture { card, loads, images, chains, damaged, step, wait, start_load } = fixture;
        let session = Session::new(Deadlines::default());
        let now = Timestamp::ZERO;
        let tickets = 0;
        let mut rig = Self {
            card,
            loads,
            images,
            chains,
            damaged,
            step,
            wait,
            start_load,
            now,
            session,
            tickets,
        };
        rig.card.poll(rig.now).needed("the first poll");
        rig
    }

    #[track_caller]
    fn read(&mut self, at: Address) -> u32 {
        self.card.read(at).needed(&format!("reading {at:#x}"))
    }

    #[track_caller]
    fn write(&mut self, at: Address, value: u32) {
        self.card.write(at, value).needed(&format!("writing {value:#x} to {at:#x}"));
    }

    #[track_caller]
    fn read_words(&mut self, at: Address, count: usize) -> Vec<u32> {
        let mut words = vec![0; count];
        self.card.read_block(at, &mut words).needed(&format!("reading {count} words at {at:#x}"));
        words
    }

    fn tick(&mut self) {
        (self.wait)(self.step);
        self.now = self.now + self.step;
    }

    /// Polls until the register has another value than `value`; says which.
    #[track_caller]
    fn while_it_reads(&mut self, at: Address, value: u32) -> u32 {
        for _ in 0..LOOKS_MAX {
            let read = self.read(at);
            if read != value {
                return read;
            }
            self.tick();
            self.card.poll(self.now).needed("a poll");
        }
        panic!("register {at:#x} still reads {value} after {LOOKS_MAX} steps of {:?}", self.step);
    }

    const fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// One step of the session, a moment later.
    fn step_once(&mut self) -> Vec<CardReport> {
        self.tick();
        self.session.step(self.card.as_mut(), self.now)
    }

    /// Steps until the session has nothing to do any more; says what came to an end.
    #[track_caller]
    fn finish(&mut self) -> Vec<CardReport> {
        let mut reports = Vec::new();
        for _ in 0..LOOKS_MAX {
            reports.extend(self.step_once());
            if self.session.is_idle() {
                return reports;
            }
        }
        panic!(
            "after {LOOKS_MAX} steps of {:?} the session has only got to {reports:?}",
            self.step
        );
    }

    /// Result of a command that runs alone.
    #[track_caller]
    fn run(&mut self, command: CardCommand, bytes: Option<Arc<[u8]>>) -> CardReport {
        self.session.submit(command, bytes);
        let mut reports = self.finish();
        assert_eq!(reports.len(), 1, "one report: {reports:?}");
        reports.remove(0)
    }

    /// Images that a host knows.
    fn known(&self) -> Arc<[(Digest, ReportedChain)]> {
        let digests = self.images.iter().map(|image| Digest::of(image));
        digests.zip(self.chains).collect()
    }

    fn submit_load(&mut self, number: u8, bytes: &Arc<[u8]>) {
        let image = self.images.iter().position(|image| image == bytes).unwrap_or_default();
        self.submit_load_as(number, bytes, self.chains[image]);
    }

    /// Loads bytes that are declared to be this chain.
    fn submit_load_as(&mut self, number: u8, bytes: &Arc<[u8]>, chain: ReportedChain) {
        let (ticket, digest) = (self.ticket(), Digest::of(bytes));
        let command = CardCommand::Load { ticket, region: RegionId(number), digest, chain };
        self.session.submit(command, Some(Arc::clone(bytes)));
    }

    #[track_caller]
    fn load(&mut self, number: u8, bytes: &Arc<[u8]>) -> Result<Duration, LoadFailure> {
        self.submit_load(number, bytes);
        self.end_load(number)
    }

    /// End of the load under way.
    #[track_caller]
    fn end_load(&mut self, number: u8) -> Result<Duration, LoadFailure> {
        match &self.finish()[..] {
            [CardReport::Loaded { region, result, .. }] if *region == RegionId(number) => {
                result.clone()
            }
            other => panic!("a load of region {number} was answered by {other:?}"),
        }
    }

    /// Loads the image of region 0 or 1.
    #[track_caller]
    fn load_well(&mut self, number: u8) -> Digest {
        let image = Arc::clone(&self.images[usize::from(number)]);
        if let Err(failure) = self.load(number, &image) {
            panic!("the valid image of region {number} was not loaded: {failure}");
        }
        Digest::of(&image)
    }

    /// Loads it where the card loads anything: for cases that are about something else.
    #[track_caller]
    fn load_where_possible(&mut self, number: u8) {
        if self.loads {
            self.load_well(number);
        }
    }

    #[track_caller]
    fn program(&mut self, delta: TableDelta) -> u32 {
        let ticket = self.ticket();
        match self.run(
            CardCommand::Program {
                ticket,
                delta,
                configurations: Vec::new(),
                windows: Default::default(),
                rates_only: false,
            },
            None,
        ) {
            CardReport::Programmed { result: Ok(version), .. } => version,
            other => panic!("rows were not programmed: {other:?}"),
        }
    }

    #[track_caller]
    fn status(&mut self, number: u8) -> u32 {
        self.read(region(number, REGION_STATUS))
    }

    #[track_caller]
    fn digest(&mut self, number: u8) -> [u32; 8] {
        std::array::from_fn(|word| self.read(region(number, REGION_DIGEST) + 4 * word as u32))
    }
}

#[cfg(test)]
mod tests {
    //! The suite against a register file that does what the map says, so that an adapter's failure
    //! is the adapter's.

    use super::*;
    use crate::card::fake::{FakeCard, chain_of, image};

    fn fixture() -> Fixture {
        let mut card = FakeCard::new();
        card.faults.checks_images = true;
        let mut damaged = image(b"nat -> firewall").to_vec();
        damaged[100] ^= 1;
        Fixture {
            card: Box::new(card),
            loads: true,
            images: [image(b"nat -> firewall"), image(b"aes")],
            chains: [image(b"nat -> firewall"), image(b"aes")].map(|image| chain_of(&image)),
            damaged: damaged.into(),
            step: Duration::from_millis(1),
            wait: |_| (),
            start_load: None,
        }
    }

    crate::card_conformance!(fixture());

    /// The suite finds what is wrong with a card.
    mod bad_cards {
        use super::*;
        use crate::card::conformance as suite;
        use crate::card::fake::FakeFaults;

        fn bad(faults: FakeFaults) -> Fixture {
            let mut card = FakeCard::new();
            card.faults = faults;
            Fixture { card: Box::new(card), ..fixture() }
        }

        #[test]
        #[should_panic(expected = "the active bank after the commit")]
        fn that_corrupt_a_row() {
            let faults = FakeFaults { corrupt_word: Some(0), ..FakeFaults::default() };
            suite::shadow_writes_are_invisible_until_the_commit(bad(faults));
        }

        #[test]
        #[should_panic(expected = "it was not refused")]
        fn that_restore_for_anybody() {
            let faults = FakeFaults { restores_anything: true, ..FakeFaults::default() };
            suite::a_state_is_not_restored_for_another_dag(bad(faults));
        }

        #[test]
        #[should_panic(expected = "the commit's end")]
        fn that_refuse_commits() {
            let faults = FakeFaults { refuse_commit: true, ..FakeFaults::default() };
            suite::after_a_commit_both_banks_are_the_same(bad(faults));
        }

        #[test]
        #[should_panic(expected = "the valid image of region 0 was not loaded")]
        fn that_name_another_bitstream() {
            let faults = FakeFaults { load_leaves_other_word: Some(7), ..FakeFaults::default() };
            suite::a_region_that_was_left_decoupled_is_coupled_again(bad(faults));
        }

        #[test]
        #[should_panic(expected = "the valid image of region 0 was not loaded")]
        fn that_report_another_chain() {
            let faults = FakeFaults { load_reports_other_word: Some(11), ..FakeFaults::default() };
            suite::a_region_that_was_left_decoupled_is_coupled_again(bad(faults));
        }

        #[test]
        #[should_panic(expected = "what is no bitstream was loaded")]
        fn that_load_anything() {
            suite::bytes_that_are_no_bitstream_leave_the_region_broken(bad(FakeFaults::default()));
        }

        #[test]
        #[should_panic(expected = "still reads 1 after")]
        fn that_never_end_a_load() {
            let faults = FakeFaults { load_hangs: true, ..FakeFaults::default() };
            suite::a_load_goes_from_busy_to_done(bad(faults));
        }

        #[test]
        #[should_panic(expected = "pulled out")]
        fn that_go_away() {
            let faults = FakeFaults { lost_after: Some(20), ..FakeFaults::default() };
            suite::a_fresh_card_counted_nothing(bad(faults));
        }
    }
}
