//! The state of the screen and the effect of keys. It needs no terminal and no connection.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::{Duration, SystemTime};

use ratatui::crossterm::event::{KeyCode, KeyEvent};
use snic_api::render::state_word;
use snic_api::v1::{Card, Dag, Diagnosis, Event, EventType, Region, region};
use snic_api::words::EnumWord as _;

use snic_api::text::escaped;
use snic_client::Failure;
use snic_client::output::text;

use super::actions::{KeyAction, Verb};
use super::panels::{Panel, Sort};
use super::prompt::{KeyOutcome, Prompt, RowFilter};
use super::rows::{EventRow, ScreenRow, TenantRow};

/// Events that are kept for scrolling.
const EVENTS_MAX: usize = 500;
/// Lines that a page key scrolls.
pub const PAGE: isize = 10;
/// Rates that are kept of a DAG, one a snapshot.
pub const RATES_KEPT: usize = 20;
/// Time that the server may say nothing until the screen says so. It is asked twice a second, so that a server that
/// hangs is noticed within two seconds.
const SILENCE_MAX: Duration = Duration::from_millis(1_500);

/// Everything that one poll reads from the server.
#[derive(Debug, Clone, Default)]
pub struct PolledState {
    /// The cards; empty for tenants, who cannot see them.
    pub cards: Vec<Card>,
    /// The regions of all cards; empty for tenants.
    pub regions: Vec<Region>,
    /// The DAGs that the caller may see.
    pub dags: Vec<Dag>,
    /// Sizes of bitstreams in bytes by name, for the duration of loads.
    pub bitstream_bytes: BTreeMap<String, u64>,
}

/// An update from the server.
#[derive(Debug, Clone)]
pub enum Feed {
    /// The current state of everything.
    Snapshot(Box<PolledState>),
    /// A region changed.
    Region(EventType, Box<Region>),
    /// A DAG changed.
    Dag(EventType, Box<Dag>),
    /// Why the opened DAG is as fast as it is.
    Diagnosis(Box<Diagnosis>),
    /// An event of the server, also from before this screen was opened.
    Event(Box<Event>),
    /// The server answered.
    Alive,
    /// The server does not answer, with the reason; requests are retried.
    Lost(String),
}

impl Feed {
    /// The server does not answer.
    pub fn lost(why: &Failure) -> Self {
        Self::Lost(escaped(&why.to_string()).into_owned())
    }
}

/// The state of the screen.
#[derive(Debug, Clone)]
pub struct Model {
    cards: Vec<Card>,
    regions: BTreeMap<String, Region>,
    dags: BTreeMap<String, Dag>,
    bitstream_bytes: BTreeMap<String, u64>,
    /// When each running reconfiguration was first seen.
    loading_since: BTreeMap<String, SystemTime>,
    events: VecDeque<EventRow>,
    has_read: bool,
    diagnosis: Option<Diagnosis>,
    /// Served rates of each DAG at the last snapshots, in bits per second, the oldest first.
    rates: BTreeMap<String, VecDeque<u64>>,
    /// When the server last answered.
    answered: Option<SystemTime>,
    /// Questions and answers of the screen.
    pub prompt: Prompt,
    /// The host of a fleet whose daemon answers, if one was named.
    pub host: Option<String>,
    /// Whether Esc goes back to the hosts of the fleet.
    pub has_hosts: bool,
    /// Why the connection is lost, if it is.
    pub lost: Option<String>,
    /// The open panel.
    pub panel: Panel,
    /// Index of the selected row.
    pub selected: usize,
    /// Index into [`Panel::sorts`].
    sort: usize,
    /// Whether the order is reversed.
    pub is_reversed: bool,
    /// Text that rows must contain.
    pub filter: RowFilter,
    /// Scroll position of the opened row, if one is open.
    pub detail: Option<u16>,
    /// Index of the shown card.
    card: usize,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            cards: Vec::new(),
            regions: BTreeMap::new(),
            dags: BTreeMap::new(),
            bitstream_bytes: BTreeMap::new(),
            loading_since: BTreeMap::new(),
            events: VecDeque::new(),
            has_read: false,
            diagnosis: None,
            rates: BTreeMap::new(),
            answered: None,
            prompt: Prompt::default(),
            host: None,
            has_hosts: false,
            lost: None,
            panel: Panel::Dags,
            selected: 0,
            sort: 0,
            is_reversed: false,
            filter: RowFilter::default(),
            detail: None,
            card: 0,
        }
    }
}

impl Model {
    /// Model of the daemon at the endpoint, or of a host; `has_hosts` where Esc goes back to the hosts.
    pub fn of(host: Option<String>, has_hosts: bool) -> Self {
        Self { host, has_hosts, ..Self::default() }
    }

    /// Applies an update at `now`.
    pub fn take(&mut self, feed: Feed, now: SystemTime) {
        match feed {
            Feed::Snapshot(snapshot) => {
                self.answered = Some(now);
                self.replace(*snapshot, now);
            }
            Feed::Alive => self.answered = Some(now),
            Feed::Event(event) => self.server_event(&event, now),
            Feed::Region(EventType::Deleted, region) => {
                self.regions.remove(&region.name);
            }
            Feed::Region(_, region) => self.region(*region, now),
            Feed::Dag(EventType::Deleted, dag) => {
                if self.dags.remove(&dag.name).is_some() {
                    self.add_event(now, format!("{} deleted", text::dag(&dag.name)));
                }
            }
            Feed::Dag(_, dag) => self.dag(*dag, now),
            Feed::Diagnosis(found) => self.diagnosis = Some(*found),
            Feed::Lost(why) => self.lost = Some(why),
        }
        self.selected = self.selected.min(self.rows().len().saturating_sub(1));
    }

    /// Time that the server has said nothing, if that is too long; `None` where it is known to be lost.
    pub fn silence(&self, now: SystemTime) -> Option<Duration> {
        silence(self.answered?, now).filter(|_| self.lost.is_none())
    }

    /// Recent served rates of a DAG, in bits per second, the oldest first.
    pub fn rates_of(&self, dag: &str) -> impl Iterator<Item = u64> {
        self.rates.get(dag).into_iter().flatten().copied()
    }

    fn note_rates(&mut self, dags: &[Dag]) {
        let mut before = std::mem::take(&mut self.rates);
        for dag in dags {
            // Those of DAGs that are gone stay behind.
            let mut rates = before.remove(&dag.name).unwrap_or_default();
            rates.push_back(dag.traffic.as_ref().map_or(0, |traffic| traffic.served_bps));
            if rates.len() > RATES_KEPT {
                rates.pop_front();
            }
            self.rates.insert(dag.name.clone(), rates);
        }
    }

    /// Adds an event where it belongs by its time.
    fn server_event(&mut self, event: &Event, now: SystemTime) {
        let at = event.time.and_then(|time| SystemTime::try_from(time).ok()).unwrap_or(now);
        let text = format!("{} {}", event.kind().word(), event.message).trim_end().to_owned();
        let row = EventRow { at, text };
        // After a reconnection the server sends all again.
        if self.events.contains(&row) {
            return;
        }
        let place = self.events.partition_point(|other| other.at > at);
        self.events.insert(place, row);
        self.events.truncate(EVENTS_MAX);
    }

    fn replace(&mut self, snapshot: PolledState, now: SystemTime) {
        self.lost = None;
        self.note_rates(&snapshot.dags);
        self.cards = snapshot.cards;
        self.card = self.card.min(self.cards.len().saturating_sub(1));
        self.bitstream_bytes = snapshot.bitstream_bytes;
        let first = !std::mem::replace(&mut self.has_read, true);
        let dags: HashSet<&str> = snapshot.dags.iter().map(|dag| &*dag.name).collect();
        let gone: Vec<String> =
            self.dags.keys().filter(|name| !dags.contains(&***name)).cloned().collect();
        for name in gone {
            self.dags.remove(&name);
            self.add_event(now, format!("{} deleted", text::dag(&name)));
        }
        let regions: HashSet<&str> = snapshot.regions.iter().map(|region| &*region.name).collect();
        self.regions.retain(|name, _| regions.contains(&**name));
        if first {
            // What existed before is no event.
            self.dags = snapshot.dags.into_iter().map(|dag| (dag.name.clone(), dag)).collect();
            self.regions = snapshot.regions.into_iter().map(|r| (r.name.clone(), r)).collect();
            return;
        }
        snapshot.dags.into_iter().for_each(|dag| self.dag(dag, now));
        snapshot.regions.into_iter().for_each(|region| self.region(region, now));
    }

    fn dag(&mut self, dag: Dag, now: SystemTime) {
        let before = self.dags.get(&dag.name).map(Dag::state);
        if before != Some(dag.state()) && self.has_read {
            let (name, state) = (text::dag(&dag.name), dag.state().word());
            self.add_event(now, format!("{name} {state}"));
        }
        self.dags.insert(dag.name.clone(), dag);
    }

    fn region(&mut self, region: Region, now: SystemTime) {
        let before = self.regions.get(&region.name).map(Region::state);
        let loading = region.state() == region::State::Reconfiguring;
        if before != Some(region.state()) {
            let name = text::region(&region.name);
            let with = text::id(&region.bitstream);
            if self.has_read {
                self.add_event(now, format!("{name} {} {with}", state_word(region.state())));
            }
            if loading {
                self.loading_since.insert(region.name.clone(), now);
            }
        }
        if !loading {
            self.loading_since.remove(&region.name);
        }
        self.regions.insert(region.name.clone(), region);
    }

    fn add_event(&mut self, at: SystemTime, text: String) {
        self.events.push_front(EventRow { at, text: text.trim_end().to_owned() });
        self.events.truncate(EVENTS_MAX);
    }

    /// Whether a snapshot has been read.
    pub const fn has_read(&self) -> bool {
        self.has_read
    }

    /// The card whose map is shown.
    pub fn card(&self) -> Option<&Card> {
        self.cards.get(self.card)
    }

    /// The number of the shown card, from 1, and the number of cards.
    pub fn card_place(&self) -> (usize, usize) {
        (self.card + 1, self.cards.len())
    }

    /// The DAG that is opened, whose diagnosis is to be read.
    pub fn opened_dag(&self) -> Option<String> {
        self.detail?;
        match self.rows().get(self.selected)? {
            ScreenRow::Dag(dag) => Some(dag.name.clone()),
            _ => None,
        }
    }

    /// The last diagnosis of a DAG, if it was read.
    pub fn diagnosis_of(&self, dag: &str) -> Option<&Diagnosis> {
        self.diagnosis.as_ref().filter(|found| found.dag == dag)
    }

    /// The number of DAGs, and of ready DAGs.
    pub fn dag_counts(&self) -> (usize, usize) {
        let is_ready = |dag: &&Dag| dag.state() == snic_api::v1::dag::State::Ready;
        (self.dags.len(), self.dags.values().filter(is_ready).count())
    }

    /// The regions of the card, by number.
    pub fn regions(&self) -> Vec<&Region> {
        let Some(card) = self.card() else { return Vec::new() };
        let prefix = format!("{}/", card.name);
        let of_card = self.regions.values().filter(|region| region.name.starts_with(&prefix));
        let mut regions: Vec<&Region> = of_card.collect();
        regions.sort_by_key(|region| number(region));
        regions
    }

    /// The remaining time of a running reconfiguration, from the bitstream's size and the speed of the card's
    /// configuration port; `None` if unknown.
    pub fn time_left(&self, region: &Region, now: SystemTime) -> Option<Duration> {
        let since = self.loading_since.get(&region.name)?;
        let port = self.card()?.config_port_bytes_per_second;
        let bytes = *self.bitstream_bytes.get(&region.bitstream)?;
        if port == 0 {
            return None;
        }
        let all = Duration::from_secs_f64(bytes as f64 / port as f64);
        Some(all.saturating_sub(now.duration_since(*since).unwrap_or_default()))
    }

    /// The DAGs of a tenant, by name.
    pub fn dags_of(&self, tenant: &str) -> impl Iterator<Item = &Dag> {
        self.dags.values().filter(move |dag| tenant_of(&dag.name) == tenant)
    }

    /// Requested and served rates of each tenant.
    fn tenants(&self) -> Vec<TenantRow> {
        let mut rows: BTreeMap<&str, TenantRow> = BTreeMap::new();
        for dag in self.dags.values() {
            let tenant = tenant_of(&dag.name);
            let row = rows.entry(tenant).or_default();
            row.tenant = tenant.to_owned();
            row.dags += 1;
            row.ready += usize::from(dag.state() == snic_api::v1::dag::State::Ready);
            row.requested_bps = row.requested_bps.saturating_add(dag.bandwidth_bps);
            row.rate_bps = row.rate_bps.saturating_add(dag.rate_limit_bps);
        }
        for region in self.regions.values() {
            let mut tenants: Vec<&str> =
                region.users.iter().map(|user| tenant_of(&user.dag)).collect();
            tenants.sort_unstable();
            tenants.dedup();
            for tenant in tenants {
                if let Some(row) = rows.get_mut(tenant) {
                    row.regions += 1;
                }
            }
        }
        rows.into_values().collect()
    }

    /// The column that the table is sorted by.
    pub fn sort(&self) -> Sort {
        let sorts = self.panel.sorts();
        sorts[self.sort % sorts.len()]
    }

    /// The rows of the table: filtered, in order. Time O(rows · log rows).
    pub fn rows(&self) -> Vec<ScreenRow<'_>> {
        let all: Vec<ScreenRow<'_>> = match self.panel {
            Panel::Dags => self.dags.values().map(ScreenRow::Dag).collect(),
            Panel::Regions => self.regions().into_iter().map(ScreenRow::Region).collect(),
            Panel::Tenants => self.tenants().into_iter().map(ScreenRow::Tenant).collect(),
            Panel::Events => self.events.iter().map(ScreenRow::Event).collect(),
        };
        let wanted = |row: &ScreenRow<'_>| self.filter.accepts(|| row.search_text());
        let mut rows: Vec<ScreenRow<'_>> = all.into_iter().filter(wanted).collect();
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
            self.selected = 0;
            return KeyOutcome::Draw;
        }
        if let Some(outcome) = self.prompt.press(key.code) {
            return outcome;
        }
        match key.code {
            KeyCode::Char('q') => return KeyOutcome::Quit,
            KeyCode::Char('?') => self.prompt.is_help = true,
            KeyCode::Esc | KeyCode::Backspace if self.detail.is_some() => self.detail = None,
            KeyCode::Esc if self.has_hosts && self.filter.is_empty() => return KeyOutcome::Back,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Enter if self.detail.is_none() => {
                self.detail = (!self.rows().is_empty()).then_some(0);
            }
            KeyCode::Enter => self.detail = None,
            KeyCode::Tab | KeyCode::Right => self.turn(1),
            KeyCode::BackTab | KeyCode::Left => self.turn(Panel::ALL.len() - 1),
            KeyCode::Char(digit @ '1'..='4') => self.open(digit as usize - '1' as usize),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::PageDown => self.step(PAGE),
            KeyCode::PageUp => self.step(-PAGE),
            KeyCode::Home => self.step(isize::MIN / 2),
            KeyCode::End => self.step(isize::MAX / 2),
            KeyCode::Char('s') => self.sort = (self.sort + 1) % self.panel.sorts().len(),
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Char('c') => self.card = (self.card + 1) % self.cards.len().max(1),
            KeyCode::Char('o') => {
                self.prompt.asked = self.change(|is_cordoned| match is_cordoned {
                    true => Verb::Uncordon,
                    false => Verb::Cordon,
                })
            }
            KeyCode::Char('d') => self.prompt.asked = self.change(|_| Verb::Drain),
            KeyCode::Char('e') => {
                if let Some(ScreenRow::Dag(dag)) = self.rows().get(self.selected) {
                    let action = KeyAction::Explain(dag.name.clone());
                    return self.prompt.act(action);
                }
            }
            KeyCode::Char('/') => {
                self.filter.is_editing = true;
                self.detail = None;
            }
            _ => {}
        }
        KeyOutcome::Draw
    }

    /// A change of what is chosen: of a region among regions, else of the card whose map is shown.
    fn change(&self, verb: impl Fn(bool) -> Verb) -> Option<KeyAction> {
        if self.panel == Panel::Regions {
            let rows = self.rows();
            let Some(ScreenRow::Region(region)) = rows.get(self.selected) else { return None };
            return Some(KeyAction::Change(verb(region.cordoned), region.name.clone()));
        }
        let card = self.card()?;
        let regions = self.regions();
        let is_cordoned = !regions.is_empty() && regions.iter().all(|region| region.cordoned);
        Some(KeyAction::Change(verb(is_cordoned), card.name.clone()))
    }

    fn turn(&mut self, by: usize) {
        let here = Panel::ALL.iter().position(|panel| *panel == self.panel).unwrap_or_default();
        self.open((here + by) % Panel::ALL.len());
    }

    fn open(&mut self, panel: usize) {
        self.panel = Panel::ALL[panel];
        (self.selected, self.sort, self.is_reversed, self.detail) = (0, 0, false, None);
    }

    /// Moves the selection, or scrolls the opened row.
    fn step(&mut self, by: isize) {
        if let Some(line) = self.detail {
            let to = isize::try_from(line).unwrap_or(isize::MAX).saturating_add(by);
            self.detail = Some(u16::try_from(to.clamp(0, 1_000)).unwrap_or_default());
            return;
        }
        self.selected = stepped(self.selected, by, self.rows().len());
    }
}

/// The index that is `by` rows from `here`, or the first or last of `rows`.
pub fn stepped(here: usize, by: isize, rows: usize) -> usize {
    let last = isize::try_from(rows).unwrap_or(isize::MAX).saturating_sub(1);
    let to = isize::try_from(here).unwrap_or(isize::MAX).saturating_add(by);
    usize::try_from(to.clamp(0, last.max(0))).unwrap_or_default()
}

/// Time that a server has said nothing that last answered at `answered`, if that is too long.
pub fn silence(answered: SystemTime, now: SystemTime) -> Option<Duration> {
    let silence = now.duration_since(answered).unwrap_or_default();
    (silence > SILENCE_MAX).then_some(silence)
}

/// The number of a region in its card.
pub fn number(region: &Region) -> u32 {
    text::id(&region.name).parse().unwrap_or(u32::MAX)
}

/// The tenant of a DAG's name.
pub fn tenant_of(dag: &str) -> &str {
    let rest = dag.strip_prefix("tenants/").unwrap_or(dag);
    rest.split('/').next().unwrap_or(rest)
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
