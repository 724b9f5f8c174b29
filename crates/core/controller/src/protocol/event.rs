//! Events: requests, reports of cards, time.

use std::sync::Arc;

use snic_bitstream::signature::Trust;
use snic_domain::{CardId, CardProfile, DeviceReading, TenantId};
use snic_tables::CardReport;
use snic_usage::Prices;

use super::arrangement::Arrangement;
use super::command::{CallId, Request};
use super::policy::ControllerSettings;

#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Someone asks for a change.
    Request {
        /// Its name in the reply.
        call: CallId,
        request: Box<Request>,
    },
    /// A card was opened.
    CardAppeared {
        /// Card of the settings.
        card: CardId,
        /// Profile that it reports.
        profile: Box<CardProfile>,
    },
    /// A card could not be opened.
    CardAbsent {
        /// Card of the settings.
        card: CardId,
        reason: String,
    },
    /// A card answered.
    Card { card: CardId, report: CardReport },
    /// A card's device was read, whether or not the card answers.
    DeviceRead { card: CardId, reading: Box<DeviceReading> },
    /// The answer to `Effect::Search`.
    Searched(Arrangement),
    /// Time passed; see `Controller::next_wake_up`.
    Tick,
    /// The cards' counters are to be read: see `Controller::next_sample`.
    Sample,
    /// Other policies are to be in force, from the next edge of an epoch on.
    Settings(Box<ControllerSettings>),
    /// Other authorization policies are in force; they decide before a request comes here.
    AuthorizationChanged {
        /// Changed keys, for people.
        changes: String,
    },
    /// Other keys count for bitstreams. `None`: what was found at each upload does.
    KeysChanged(Option<Box<Trust>>),
    /// Other prices count, or none.
    PricesChanged(Option<Arc<Prices>>),
    /// Calls of tenants that were admitted since the last time.
    CallsCounted {
        calls: Vec<(TenantId, u64)>,
        /// Whether the server stops: what was counted is stored at once, not with the next close.
        is_last: bool,
    },
    /// Policies were refused; those in force stay.
    SettingsRefused {
        /// Why, with file, line and key.
        reason: String,
    },
}
