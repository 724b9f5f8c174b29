//! A card through XRT is a card: the port's own suite, through the library and its emulation, with
//! tables in bulk and register by register.
//!
//! Workers are started once and used by one case after the other: what a case leaves on the card
//! goes with its power.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use snic_bitstream::build_test;
use snic_bitstream::catalogue::{self, Catalogue};
use snic_card_sim::{SharedSimCard, SimCard};
use snic_card_xrt::XrtCard;
use snic_domain::{ByteSize, CardModel, CardProfile, ChainIdentity, ReportedChain, Timestamp};
use snic_integration_xrt::device::{Clock, Device};
use snic_integration_xrt::emulation::{self, Emulation, SOCKET_ID};
use snic_integration_xrt::serve::{self, Shared, lock};
use snic_ports::card::conformance::{Fixture, StartLoad};
use snic_ports::card::{Buffers, Card, CardError, Registers};
use snic_tables::registers::Address;

static CATALOGUE: LazyLock<Catalogue> =
    LazyLock::new(|| catalogue::builtin().expect("the built-in catalogue is valid"));

fn profile() -> CardProfile {
    let model = CardModel::new("sim-16").expect("a label");
    CATALOGUE.card(&model).expect("the catalogue has it").clone()
}

thread_local! {
    /// The clock of this thread's card.
    static CLOCK: RefCell<Arc<AtomicU64>> = RefCell::default();
}

/// Advances the time of this thread's card.
fn wait(time: Duration) {
    CLOCK.with_borrow(|clock| clock.fetch_add(time.as_nanos() as u64, Ordering::Relaxed));
}

/// An emulated card with its worker.
struct Rig {
    clock: Arc<AtomicU64>,
    _emulation: Emulation,
    shared: Arc<Shared>,
    sim: SharedSimCard,
    card: Option<XrtCard>,
    buffers: Vec<u64>,
}

impl Rig {
    fn new(has_bulk: bool) -> Self {
        let emulation = Emulation::new(profile());
        let sim = SharedSimCard::new(SimCard::new(profile(), 7).expect("a valid profile"));
        let clock = Arc::new(AtomicU64::new(0));
        let shared =
            Shared::new(Device::new(sim.clone(), has_bulk, Clock::Set(Arc::clone(&clock))));
        serve::start(&shared, emulation.user(), SOCKET_ID).expect("threads");
        let card = XrtCard::open(profile().model, emulation.settings("hw_emu"), emulation.role());
        let card = card.unwrap_or_else(|error| {
            let log = std::fs::read_to_string(emulation.path("worker/worker.log"));
            panic!("{error}; {}", log.unwrap_or_default())
        });
        assert_eq!(card.link().bulk, has_bulk);
        Self { clock, _emulation: emulation, shared, sim, card: Some(card), buffers: Vec::new() }
    }

    /// As after power-up.
    fn restart(&mut self, has_bulk: bool) {
        self.sim.with(SimCard::power_cycle);
        let clock = Clock::Set(Arc::clone(&self.clock));
        *lock(&self.shared.device) = Device::new(self.sim.clone(), has_bulk, clock);
        CLOCK.set(Arc::clone(&self.clock));
        let card = self.card.as_mut().expect("it is taken only when dropped");
        for buffer in self.buffers.drain(..) {
            card.release(buffer).expect("it was staged");
        }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        self.card = None;
        self.shared.stop();
    }
}

/// Rigs that no case is using.
struct Pool {
    has_bulk: bool,
    rigs: Mutex<Vec<Rig>>,
}

impl Pool {
    const fn new(has_bulk: bool) -> Self {
        Self { has_bulk, rigs: Mutex::new(Vec::new()) }
    }

    fn take(&'static self) -> Pooled {
        let rig = lock(&self.rigs).pop();
        let mut rig = rig.unwrap_or_else(|| Rig::new(self.has_bulk));
        rig.restart(self.has_bulk);
        Pooled { pool: self, rig: Some(rig) }
    }
}

/// A card that goes back to its pool, unless its case failed.
struct Pooled {
    pool: &'static Pool,
    rig: Option<Rig>,
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if let Some(rig) = self.rig.take().filter(|_| !std::thread::panicking()) {
            lock(&self.pool.rigs).push(rig);
        }
    }
}

impl Pooled {
    fn card(&mut self) -> &mut XrtCard {
        let rig = self.rig.as_mut().expect("it is taken only when dropped");
        rig.card.as_mut().expect("it is taken only when dropped")
    }
}

impl Registers for Pooled {
    fn read(&mut self, at: Address) -> Result<u32, CardError> {
        self.card().read(at)
    }

    fn write(&mut self, at: Address, value: u32) -> Result<(), CardError> {
        self.card().write(at, value)
    }

    fn read_block(&mut self, at: Address, words: &mut [u32]) -> Result<(), CardError> {
        self.card().read_block(at, words)
    }

    fn read_blocks(&mut self, blocks: &mut [(Address, &mut [u32])]) -> Result<(), CardError> {
        self.card().read_blocks(blocks)
    }

    fn write_block(&mut self, at: Address, words: &[u32]) -> Result<(), CardError> {
        self.card().write_block(at, words)
    }
}

impl Buffers for Pooled {
    fn stage(&mut self, bytes: &[u8]) -> Result<u64, CardError> {
        let address = self.card().stage(bytes)?;
        self.rig.as_mut().expect("as before").buffers.push(address);
        Ok(address)
    }

    fn release(&mut self, address: u64) -> Result<(), CardError> {
        self.card().release(address)?;
        self.rig.as_mut().expect("as before").buffers.retain(|other| *other != address);
        Ok(())
    }
}

impl Card for Pooled {
    fn model(&self) -> &CardModel {
        &CATALOGUE.cards[0].model
    }

    fn poll(&mut self, now: Timestamp) -> Result<(), CardError> {
        self.card().poll(now)
    }
}

/// 20 µs at 800 MB/s.
const IMAGE_BYTES: u64 = 16_000;
const STEP: Duration = Duration::from_micros(5);

/// The first keeps state.
const CHAINS: [[&str; 2]; 2] = [["firewall", "kv-cache"], ["nat", "firewall"]];

fn images() -> [Arc<[u8]>; 2] {
    static IMAGES: LazyLock<[Arc<[u8]>; 2]> = LazyLock::new(|| {
        CHAINS.map(|chain| {
            let nt = |id: &str| CATALOGUE.nt_types.iter().find(|nt| nt.id.as_str() == id);
            let chain = chain.map(|id| nt(id).expect("in the catalogue"));
            let size = ByteSize::from_bytes(IMAGE_BYTES);
            build_test(&profile(), &chain, size).expect("a valid image").into()
        })
    });
    IMAGES.clone()
}

fn fixture(pool: &'static Pool) -> Fixture {
    let images = images();
    let mut damaged = images[0].to_vec();
    // In the chain ROM.
    let at = damaged.windows(4).position(|word| word == b"SNIC").expect("the ROM");
    damaged[at + 9] ^= 0x10;
    let card = Box::new(pool.take());
    let sim = card.rig.as_ref().expect("it was just taken").sim.clone();
    let chains = CHAINS.map(|nts| {
        let nts = nts.map(|id| id.parse().expect("a label"));
        ReportedChain::of(&nts, ChainIdentity::of_nts(&nts))
    });
    let start_load: StartLoad =
        Box::new(move |load| Box::new(sim.start_load(load).expect("a valid load")));
    Fixture {
        card,
        loads: true,
        images,
        chains,
        damaged: damaged.into(),
        step: STEP,
        wait,
        start_load: Some(start_load),
    }
}

fn pooled(pool: &'static Pool) -> Option<Fixture> {
    emulation::is_there().then(|| fixture(pool))
}

mod in_bulk {
    use super::*;

    static POOL: Pool = Pool::new(true);

    snic_ports::card_conformance!(match pooled(&POOL) {
        Some(fixture) => fixture,
        None => return,
    });
}

/// Without the cases that read whole banks: word by word these take 10 s each, and test no other
/// path.
mod register_by_register {
    use super::*;

    static POOL: Pool = Pool::new(false);

    snic_ports::card_conformance! { @each match pooled(&POOL) {
        Some(fixture) => fixture,
        None => return,
    } =>
        identity_registers_say_what_the_card_is
        the_boot_id_stays_while_the_card_is_up
        addresses_that_are_not_aligned_are_refused
        addresses_that_are_not_in_the_map_are_refused
        a_block_that_leaves_the_map_is_refused
        read_only_registers_keep_their_values
        a_fresh_card_counted_nothing
        what_comes_in_goes_out_or_is_dropped_for_a_cause
        the_decouple_bit_is_kept_and_the_reset_bit_clears_itself
        blocks_are_the_same_words_as_single_accesses
        several_blocks_are_the_same_words_as_single_accesses
        a_network_task_takes_a_configuration_by_its_window
        a_window_shows_a_loaded_network_task_or_zeros
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
        tables_are_programmed_while_a_region_is_loading
        a_sample_of_a_quiet_card_has_no_errors
    }
}
