//! One card in two hands: the thread that owns it as a card, and whoever sends traffic at it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use snic_domain::{CardModel, Timestamp};
use snic_ports::card::{Buffers, Card, CardError, Registers};
use snic_ports::generator::{
    GeneratedLoad, GeneratedPackets, GeneratorError, LoadReading, RunningLoad,
};
use snic_tables::registers::Address;

use crate::card::{SimCard, SourceId};
use crate::frame::FRAME_BYTES_MIN;
use crate::traffic::{Sizes, TrafficSource};

/// A handle on a simulated card; its clones are handles on the same one.
#[derive(Debug, Clone)]
pub struct SharedSimCard {
    model: CardModel,
    card: Arc<Mutex<SimCard>>,
    /// Number of holders of the clock.
    holders: Arc<AtomicUsize>,
}

/// While it lives, only [`SimCard::run_for`] and [`SimCard::skip_loads`] move the card's clock, and polls do not: packets take time to
/// simulate, and who polls must not wait for as many as a second brings.
#[derive(Debug)]
pub struct HeldClock(Arc<AtomicUsize>);

impl Drop for HeldClock {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl SharedSimCard {
    /// Takes the card.
    pub fn new(card: SimCard) -> Self {
        let (model, holders) = (card.profile().model.clone(), Arc::default());
        Self { model, card: Arc::new(Mutex::new(card)), holders }
    }

    /// Keeps polls from moving the clock.
    pub fn hold_clock(&self) -> HeldClock {
        self.holders.fetch_add(1, Ordering::SeqCst);
        HeldClock(Arc::clone(&self.holders))
    }

    /// Runs `f` on the card while no other handle does anything: traffic, faults, measurements.
    pub fn with<T>(&self, f: impl FnOnce(&mut SimCard) -> T) -> T {
        f(&mut self.lock())
    }

    /// Begins a load. Its packets come as the card's clock moves.
    ///
    /// # Errors
    /// [`GeneratorError::Invalid`] where no source makes such packets.
    pub fn start_load(&self, load: &GeneratedLoad) -> Result<SharedLoad, GeneratorError> {
        let source = TrafficSource::of_dag(load.dag(), load.rate(), sizes(&load.packets));
        let id = self.with(|card| {
            let now = card.now();
            card.attach_metered(source.between(now, now + load.duration))
        });
        let id = id.map_err(|error| GeneratorError::Invalid(error.to_string()))?;
        Ok(SharedLoad { card: self.clone(), id })
    }

    fn lock(&self) -> MutexGuard<'_, SimCard> {
        // A panic in another hand leaves the card as it was then; its checks are its own.
        self.card.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A load on a simulated card; it ends when it is dropped.
#[derive(Debug)]
pub struct SharedLoad {
    card: SharedSimCard,
    id: SourceId,
}

impl RunningLoad for SharedLoad {
    fn read(&mut self) -> Result<LoadReading, GeneratorError> {
        self.card.with(|card| card.read_load(self.id)).ok_or(GeneratorError::Ended)
    }
}

impl Drop for SharedLoad {
    fn drop(&mut self) {
        self.card.with(|card| card.detach(self.id));
    }
}

fn sizes(packets: &GeneratedPackets) -> Sizes {
    match packets {
        GeneratedPackets::Mix { sizes, .. } => Sizes::Mix(sizes.clone()),
        GeneratedPackets::Frames(frames) => {
            let bytes = |frame: &Vec<u8>| {
                // A wire has no shorter ones. Frames are far shorter than 4 GiB.
                (frame.len() as u32).max(FRAME_BYTES_MIN)
            };
            Sizes::InOrder(frames.iter().map(bytes).collect())
        }
    }
}

impl Registers for SharedSimCard {
    fn read(&mut self, at: Address) -> Result<u32, CardError> {
        self.lock().read(at)
    }

    fn write(&mut self, at: Address, value: u32) -> Result<(), CardError> {
        self.lock().write(at, value)
    }

    fn read_block(&mut self, at: Address, words: &mut [u32]) -> Result<(), CardError> {
        self.lock().read_block(at, words)
    }

    fn write_block(&mut self, at: Address, words: &[u32]) -> Result<(), CardError> {
        self.lock().write_block(at, words)
    }
}

impl Buffers for SharedSimCard {
    fn stage(&mut self, bytes: &[u8]) -> Result<u64, CardError> {
        self.lock().stage(bytes)
    }

    fn release(&mut self, address: u64) -> Result<(), CardError> {
        self.lock().release(address)
    }
}

impl Card for SharedSimCard {
    fn model(&self) -> &CardModel {
        &self.model
    }

    fn poll(&mut self, now: Timestamp) -> Result<(), CardError> {
        let mut card = self.lock();
        let is_held = self.holders.load(Ordering::SeqCst) > 0;
        let now = if is_held { card.now() } else { now };
        card.poll(now)
    }
}
