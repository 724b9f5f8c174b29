//! The hosts of a fleet: the state of the screen and the effect of keys. What is kept of a host is a row, whatever its
//! cards are.

mod actions;
mod draw;
pub mod feed;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use ratatui::crossterm::event::{KeyCode, KeyEvent};
use snic_api::fleet_v1::host::Condition;
use snic_api::fleet_v1::{GetFleetResponse, Host, Rebalance};
use snic_api::text::escaped;
use snic_api::v1::EventType;
use snic_client::output::{fleet_views as words, text};

pub use actions::HostVerb;
pub use draw::draw;

use super::actions::KeyAction;
use super::model::{PAGE, silence, stepped};
use super::prompt::{KeyOutcome, Prompt, RowFilter};

/// A host, as the screen shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRow {
    pub host: String,
    /// Zone and rack: `z1/r1`.
    pub area: String,
    /// Whether it answers.
    pub condition: Condition,
    /// `draining`, `cordoned` or empty.
    pub use_word: &'static str,
    /// Number of cards.
    pub cards: usize,
    /// Number of cards that new DAGs are kept off.
    pub cards_cordoned: usize,
    /// Models of its cards, each once.
    pub models: String,
    /// Virtual functions of its cards.
    pub functions: u64,
    /// DAGs that it is to serve; `None` until that was read.
    pub dags: Option<u64>,
}

impl HostRow {
    /// Severity of a host; `has_dags` where the number of its DAGs is known.
    pub fn of(host: &Host, has_dags: bool) -> Self {
        let models = host.cards.iter().map(|card| card.model.as_str());
        let models: BTreeSet<&str> = models.filter(|model| !model.is_empty()).collect();
        Self {
            host: escaped(text::id(&host.name)).into_owned(),
            area: escaped(&format!("{}/{}", host.zone, host.rack)).into_owned(),
            condition: host.condition(),
            use_word: words::use_word(host),
            cards: host.cards.len(),
            cards_cordoned: host.cards.iter().filter(|card| card.cordoned).count(),
            models: escaped(&models.into_iter().collect::<Vec<_>>().join(", ")).into_owned(),
            functions: host.cards.iter().map(|card| u64::from(card.functions)).sum(),
            dags: has_dags.then_some(host.dags),
        }
    }

    /// The smaller, the more an operator has to look at it.
    fn rank(&self) -> u8 {
        match (self.condition, self.use_word) {
            (Condition::Lost, _) => 0,
            (Condition::Suspected, _) => 1,
            (Condition::Unspecified, _) => 2,
            (_, "cordoned") => 3,
            (_, "draining") => 4,
            (Condition::Behind, _) => 5,
            (Condition::InStep, _) => 6,
        }
    }

    /// The word for its condition.
    pub const fn condition_word(&self) -> &'static str {
        match self.condition {
            Condition::Unspecified => "UNKNOWN",
            known => words::condition(known),
        }
    }

    fn search_text(&self) -> String {
        let Self { host, area, use_word, models, .. } = self;
        format!("{host} {area} {} {use_word} {models}", self.condition_word())
    }
}

/// An update from the fleet.
#[derive(Debug, Clone)]
pub enum FleetFeed {
    Hosts(Vec<HostRow>),
    /// A host changed.
    Host(EventType, HostRow),
    /// State of the fleet, with the rebalance if there was one.
    Status(Box<(GetFleetResponse, Option<Rebalance>)>),
    /// The fleet answered.
    Alive,
    /// The fleet does not answer, with the reason; requests are retried.
    Lost(String),
}

/// A column to sort by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostSort {
    /// The hosts that need to be looked at come first.
    Worst,
    /// The hosts come by name.
    Name,
    /// The hosts come by zone and rack.
    Area,
    /// The hosts come by number of DAGs, the most first.
    Dags,
}

impl HostSort {
    const ALL: [Self; 4] = [Self::Worst, Self::Name, Self::Area, Self::Dags];

    /// Title on the screen.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Worst => "worst",
            Self::Name => "name",
            Self::Area => "rack",
            Self::Dags => "DAGs",
        }
    }

    fn compare(self, left: &HostRow, right: &HostRow) -> Ordering {
        match self {
            Self::Worst => left.rank().cmp(&right.rank()),
            // Rows come sorted by name.
            Self::Name => Ordering::Equal,
            Self::Area => left.area.cmp(&right.area),
            Self::Dags => right.dags.cmp(&left.dags),
        }
    }
}

/// The state of the screen.
#[derive(Debug, Clone, Default)]
pub struct HostsModel {
    rows: BTreeMap<String, HostRow>,
    /// State of the fleet, as it was last read.
    pub status: GetFleetResponse,
    /// The rebalance, if there was one.
    pub rebalance: Option<Rebalance>,
    has_read: bool,
    /// When the fleet last answered.
    answered: Option<SystemTime>,
    /// Why the connection is lost, if it is.
    pub lost: Option<String>,
    /// Questions and answers of the screen.
    pub prompt: Prompt,
    /// Text that rows must contain.
    pub filter: RowFilter,
    /// The chosen host: it stays chosen where its row moves.
    chosen: Option<String>,
    /// Index of the chosen row, for the one that takes its place when it goes.
    selected: usize,
    /// Index into [`HostSort::ALL`].
    sort: usize,
    /// Whether the order is reversed.
    pub is_reversed: bool,
}

impl HostsModel {
    /// Applies an update at `now`.
    pub fn take(&mut self, feed: FleetFeed, now: SystemTime) {
        match feed {
            FleetFeed::Hosts(rows) => {
                (self.answered, self.has_read, self.lost) = (Some(now), true, None);
                self.rows = rows.into_iter().map(|row| (row.host.clone(), row)).collect();
            }
            FleetFeed::Host(EventType::Deleted, row) => {
                self.rows.remove(&row.host);
            }
            FleetFeed::Host(_, row) => {
                // Watches do not tell the number of DAGs.
                let dags = self.rows.get(&row.host).and_then(|before| before.dags);
                self.rows.insert(row.host.clone(), HostRow { dags: row.dags.or(dags), ..row });
            }
            FleetFeed::Status(status) => {
                self.answered = Some(now);
                (self.status, self.rebalance) = *status;
            }
            FleetFeed::Alive => self.answered = Some(now),
            FleetFeed::Lost(why) => self.lost = Some(why),
        }
        self.follow();
    }

    /// Moves the choice to where the chosen host is now.
    fn follow(&mut self) {
        let rows = self.rows();
        let found =
            self.chosen.as_ref().and_then(|name| rows.iter().position(|row| row.host == *name));
        let selected = found.unwrap_or(self.selected).min(rows.len().saturating_sub(1));
        // A filter that is being typed keeps what was chosen before it.
        let chosen = rows.get(selected).map(|row| row.host.clone());
        (self.selected, self.chosen) = (selected, chosen);
    }

    /// Whether the hosts have been read.
    pub const fn has_read(&self) -> bool {
        self.has_read
    }

    /// Time that the fleet has said nothing, if that is too long; `None` where it is known to be lost.
    pub fn silence(&self, now: SystemTime) -> Option<Duration> {
        silence(self.answered?, now).filter(|_| self.lost.is_none())
    }

    /// The index of the chosen row.
    pub const fn selected(&self) -> usize {
        self.selected
    }

    /// The chosen host.
    pub fn chosen(&self) -> Option<&str> {
        self.chosen.as_deref()
    }

    /// The column that the table is sorted by.
    pub const fn sort(&self) -> HostSort {
        HostSort::ALL[self.sort % HostSort::ALL.len()]
    }

    /// Number of hosts with this condition.
    pub fn count(&self, condition: Condition) -> usize {
        self.rows.values().filter(|row| row.condition == condition).count()
    }

    /// Number of hosts.
    pub fn hosts(&self) -> usize {
        self.rows.len()
    }

    /// The rows of the table: filtered, in order. Time O(rows · log rows).
    pub fn rows(&self) -> Vec<&HostRow> {
        let is_wanted = |row: &&HostRow| self.filter.accepts(|| row.search_text());
        let mut rows: Vec<&HostRow> = self.rows.values().filter(is_wanted).collect();
        // The sort is stable, so equal rows stay ordered by name.
        rows.sort_by(|left, right| self.sort().compare(left, right));
        if self.is_reversed {
            rows.reverse();
        }
        rows
    }

    /// Handles a key press.
    pub fn press(&mut self, key: KeyEvent) -> KeyOutcome {
        if let Some(outcome) = self.prompt.press_any(key) {
            return outcome;
        }
        if self.filter.edit(key.code) {
            (self.selected, self.chosen) = (0, None);
            self.follow();
            return KeyOutcome::Draw;
        }
        if let Some(outcome) = self.prompt.press(key.code) {
            return outcome;
        }
        match key.code {
            KeyCode::Char('q') => return KeyOutcome::Quit,
            KeyCode::Char('?') => self.prompt.is_help = true,
            KeyCode::Enter | KeyCode::Right if self.chosen.is_some() => return KeyOutcome::Open,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::PageDown => self.step(PAGE),
            KeyCode::PageUp => self.step(-PAGE),
            KeyCode::Home => self.step(isize::MIN / 2),
            KeyCode::End => self.step(isize::MAX / 2),
            KeyCode::Char('s') => self.sort = (self.sort + 1) % HostSort::ALL.len(),
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Char('o') => {
                self.prompt.asked = self.change(|use_word| match use_word {
                    "draining" => HostVerb::Undrain,
                    "cordoned" => HostVerb::Uncordon,
                    _ => HostVerb::Cordon,
                });
            }
            KeyCode::Char('d') => self.prompt.asked = self.change(|_| HostVerb::Drain),
            KeyCode::Char('i') => {
                if let Some(action) = self.change(|_| HostVerb::Describe) {
                    return self.prompt.act(action);
                }
            }
            KeyCode::Char('/') => self.filter.is_editing = true,
            _ => {}
        }
        self.follow();
        KeyOutcome::Draw
    }

    /// Action for the chosen host.
    fn change(&self, verb: impl Fn(&str) -> HostVerb) -> Option<KeyAction> {
        let row = self.rows.get(self.chosen.as_ref()?)?;
        Some(KeyAction::Host(verb(row.use_word), format!("hosts/{}", row.host)))
    }

    fn step(&mut self, by: isize) {
        self.selected = stepped(self.selected, by, self.rows().len());
        self.chosen = None;
    }
}

#[cfg(test)]
mod draw_tests;
#[cfg(test)]
mod tests;
