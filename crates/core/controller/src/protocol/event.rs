//! Events: requests, reports of cards, time.

use snic_domain::{CardId, CardProfile, DeviceReading};
use snic_tables::CardReport;

use super::arrangement::Arrangement;
use super::command::{CallId, Request};
use super::policy::ControllerSettings;

/// Something happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Someone asks for a change.
    Request {
        /// Its name in the reply.
        call: CallId,
        /// What is asked.
        request: Box<Request>,
    },
    /// A card was opened.
    CardAppeared {
        /// Which, by the settings.
        card: CardId,
        /// What it offers.
        profile: Box<CardProfile>,
    },
    /// A card could not be opened.
    CardAbsent {
        /// Which, by the settings.
        card: CardId,
        /// Why.
        reason: String,
    },
    /// A card answered.
    Card {
        /// Which.
        card: CardId,
        /// What.
        report: CardReport,
    },
    /// A card's device was read, whether or not the card answers.
    DeviceRead {
        /// Which card's.
        card: CardId,
        /// What it says.
        reading: Box<DeviceReading>,
    },
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
        /// Which.
        changes: String,
    },
    /// Policies were refused; those in force stay.
    SettingsRefused {
        /// Why, with file, line and key.
        reason: String,
    },
}
