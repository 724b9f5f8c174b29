//! The screen: a map of the regions, a table, a line of keys. Colours only repeat what the text says, so
//! that nothing is lost without them.

use std::time::{Duration, SystemTime};

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row as TableRow, Table, TableState};
use snic_api::render::{cut, load_percent, state_word};
use snic_api::v1::region::State;
use snic_api::v1::{Card, Dag, DagTraffic, Region, card, dag};
use snic_api::words::EnumWord as _;

use super::actions::KeyAction;
use super::model::{Model, RATES_KEPT, number, tenant_of};
use super::panels::{Panel, Sort};
use super::prompt::{Prompt, RowFilter, is_long};
use super::rows::ScreenRow;
use snic_client::output::diagnosis::diagnosis;
use snic_client::output::{self, latency_views, text, views};

/// Narrowest cell of the map, in columns: `12 DRAINING 100%` and a gap.
const CELL_WIDTH: u16 = 19;
/// Columns that names of DAGs keep on any screen that is not narrower.
const NAME: u16 = 40;
/// From this width on there are more columns.
pub const WIDE: u16 = 140;
/// The map takes at most one of this many parts of the screen; the rest is for the table.
const MAP_SHARE: u16 = 2;
/// Colours of tenants, chosen by a sum over their letters; none is a colour of a state.
const TENANT_COLOURS: [Color; 6] = [
    Color::Cyan,
    Color::Blue,
    Color::LightMagenta,
    Color::LightBlue,
    Color::LightCyan,
    Color::White,
];

/// Colours and the current time.
#[derive(Debug, Clone, Copy)]
pub struct Theme {
    /// Whether to use colours.
    pub is_colour: bool,
    /// The current time.
    pub now: SystemTime,
}

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, model: &Model, theme: Theme) {
    let area = frame.area();
    let map = map_lines(model, theme, area.width, area.height / MAP_SHARE);
    let map_height = u16::try_from(map.len()).unwrap_or(u16::MAX);
    let parts = [
        Constraint::Length(1),
        Constraint::Length(map_height),
        Constraint::Min(3),
        Constraint::Length(1),
    ];
    let [head, middle, table, keys] = Layout::vertical(parts).areas(area);
    frame.render_widget(Paragraph::new(title(model, theme, area.width)), head);
    frame.render_widget(Paragraph::new(map), middle);
    match model.detail {
        _ if model.prompt.is_help => frame.render_widget(help(HELP), table),
        _ if let Some(text) = long_answer(&model.prompt) => frame.render_widget(text, table),
        Some(scroll) => draw_detail(frame, table, model, theme, scroll),
        None => draw_table(frame, table, model, theme),
    }
    frame.render_widget(Paragraph::new(key_line(model)), keys);
}

fn title(model: &Model, theme: Theme, width: u16) -> Line<'static> {
    let (dags, ready) = model.dag_counts();
    let card = model.card().map(|card| {
        let (place, of) = model.card_place();
        let place = if of > 1 { format!(" {place}/{of}") } else { String::new() };
        format!("{} ({}){place} {}  ", text::id(&card.name), card.model, health(card))
    });
    let state = model.has_read().then(|| format!("{ready} of {dags} DAGs ready"));
    let state = state.map(|dags| card.unwrap_or_default() + &dags);
    let host = model.host.as_ref().map(|host| format!("host {host}: ")).unwrap_or_default();
    let (state, is_well) = connection(state, model.lost.as_deref(), model.silence(theme.now));
    first_line(host + &state, is_well, theme, width)
}

/// Line about the server; that it answers, and its state.
pub fn connection(
    state: Option<String>,
    lost: Option<&str>,
    silence: Option<Duration>,
) -> (String, bool) {
    match (lost, silence, state) {
        (Some(why), ..) => (format!("NOT CONNECTED, retrying: {why}"), false),
        (None, Some(silence), _) => {
            let seconds = silence.as_secs();
            (format!("NO ANSWER for {seconds} s: what is shown may be old"), false)
        }
        (None, None, Some(state)) => (state, true),
        (None, None, None) => ("connecting ...".to_owned(), true),
    }
}

/// The first line of a screen, with the time at its end.
pub fn first_line(text: String, is_well: bool, theme: Theme, width: u16) -> Line<'static> {
    let clock = clock(theme.now);
    let room = usize::from(width).saturating_sub(clock.len() + 2);
    let style = if is_well { strong() } else { bold(theme, Color::Red) };
    let left = cut(&text, room);
    let gap = room.saturating_sub(left.chars().count()) + 2;
    Line::from(vec![Span::styled(left, style), Span::raw(" ".repeat(gap) + &clock)])
}

fn health(card: &Card) -> &'static str {
    match card.health() {
        card::Health::Ok => "OK",
        card::Health::Impaired => "IMPAIRED",
        card::Health::Lost => "LOST",
        card::Health::Recovering => "RECOVERING",
        card::Health::Unspecified => "UNKNOWN",
    }
}

/// Hours, minutes and seconds of a time, in UTC as in every listing.
fn clock(time: SystemTime) -> String {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    format!("{:02}:{:02}:{:02}Z", since / 3_600 % 24, since / 60 % 60, since % 60)
}

/// The regions side by side: two lines each if there is room, else one.
fn map_lines(model: &Model, theme: Theme, width: u16, height: u16) -> Vec<Line<'static>> {
    let regions = model.regions();
    if regions.is_empty() {
        return Vec::new();
    }
    let columns = usize::from((width / CELL_WIDTH).max(1)).min(regions.len());
    let cell = usize::from(width) / columns;
    let rows = regions.len().div_ceil(columns);
    let is_tall = rows * 2 <= usize::from(height);
    let mut lines = Vec::new();
    for row in regions.chunks(columns) {
        let states = row.iter().flat_map(|region| {
            let owners = if is_tall { Vec::new() } else { owners(region, theme, cell) };
            padded(state_spans(region, model, theme, owners), cell)
        });
        lines.push(Line::from(states.collect::<Vec<_>>()));
        if is_tall {
            let owned = row.iter().flat_map(|region| {
                let mut spans = vec![Span::raw("   ")];
                spans.extend(owners(region, theme, cell.saturating_sub(4)));
                padded(spans, cell)
            });
            lines.push(Line::from(owned.collect::<Vec<_>>()));
        }
    }
    lines
}

fn state_spans(
    region: &Region,
    model: &Model,
    theme: Theme,
    owners: Vec<Span<'static>>,
) -> Vec<Span<'static>> {
    let state = region.state();
    let mark = if region.cordoned { "!" } else { " " };
    let mut spans = vec![
        Span::raw(format!("{:>2}{mark}", number(region))),
        Span::styled(state_word(state), state_style(state, theme)),
    ];
    let more = match (state, model.time_left(region, theme.now)) {
        (State::Reconfiguring, Some(left)) => format!(" {}", short(left)),
        (State::Active | State::Draining, _) => {
            load_percent(region).map(|load| format!(" {load}%")).unwrap_or_default()
        }
        _ => String::new(),
    };
    spans.push(Span::raw(more));
    if !owners.is_empty() {
        spans.push(Span::raw(" "));
        spans.extend(owners);
    }
    spans
}

/// A remaining time, in at most five characters.
fn short(left: Duration) -> String {
    match left.as_millis() {
        millis @ 0..1_000 => format!("{millis}ms"),
        _ => format!("{}s", left.as_secs()),
    }
}

/// The tenants of a region; if there are none, its bitstream.
fn owners(region: &Region, theme: Theme, width: usize) -> Vec<Span<'static>> {
    let mut tenants: Vec<&str> = region.users.iter().map(|user| tenant_of(&user.dag)).collect();
    tenants.sort_unstable();
    tenants.dedup();
    if tenants.is_empty() {
        let holds = cut(text::id(&region.bitstream), width);
        return vec![Span::styled(holds, Style::new().add_modifier(Modifier::DIM))];
    }
    let mut spans = Vec::new();
    for (place, tenant) in tenants.into_iter().enumerate() {
        if place > 0 {
            spans.push(Span::raw(","));
        }
        spans.push(Span::styled(tenant.to_owned(), tenant_style(tenant, theme)));
    }
    spans
}

/// Spans cut or padded to a width; the last column stays empty.
fn padded(spans: Vec<Span<'static>>, width: usize) -> Vec<Span<'static>> {
    let mut left = width.saturating_sub(1);
    let mut out = Vec::new();
    for span in spans {
        let content = cut(&span.content, left);
        left -= content.chars().count();
        out.push(Span::styled(content, span.style));
    }
    out.push(Span::raw(" ".repeat(left + 1)));
    out
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme) {
    let rows = model.rows();
    let (heading, widths) = columns(model.panel, area.width);
    let header = TableRow::new(heading.iter().copied()).style(strong());
    let shown = rows.iter().map(|row| table_row(row, model, theme, area.width));
    let table = Table::new(shown, widths)
        .header(header)
        .block(Block::new().borders(Borders::TOP).title(tabs(model, rows.len())))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .highlight_symbol("> ");
    let chosen = (!rows.is_empty()).then_some(model.selected);
    let mut state = TableState::new().with_selected(chosen);
    frame.render_stateful_widget(table, area, &mut state);
}

/// The panels, the open one in brackets, with sort order and filter.
fn tabs(model: &Model, count: usize) -> String {
    let names = Panel::ALL.iter().enumerate().map(|(place, panel)| {
        let name = format!("{} {}", place + 1, panel.title());
        if *panel == model.panel { format!("[{name}: {count}]") } else { name }
    });
    let sort = Some(model.sort()).filter(|sort| *sort != Sort::Time).map(Sort::title);
    let names = names.collect::<Vec<_>>().join("  ");
    names + &selection(sort, model.is_reversed, &model.filter)
}

/// Sorting and filter of the rows, behind the title of a table.
pub fn selection(sort: Option<&str>, is_reversed: bool, filter: &RowFilter) -> String {
    let mut text = sort.map(|sort| format!("  by {sort}")).unwrap_or_default();
    if is_reversed {
        text += ", reversed";
    }
    if !filter.is_empty() {
        text += &format!("  matching \"{}\"", filter.text());
    }
    text + " "
}

/// The columns of a panel. Names keep their width; what finds no room is left out on the right.
fn columns(panel: Panel, width: u16) -> (&'static [&'static str], Vec<Constraint>) {
    use Constraint::{Fill, Length, Min};
    match panel {
        Panel::Dags if width >= WIDE => (
            &["DAG", "STATE", "PROMISED", "RATE", "OFFERED", "SERVED", "LATELY", "P99", "REGIONS"],
            [Min(NAME)]
                .into_iter()
                .chain([12, 12, 12, 12, 12].map(Length))
                .chain([Length(RATES_KEPT as u16), Length(10), Fill(1)])
                .collect(),
        ),
        Panel::Dags => (
            &["DAG", "STATE", "PROMISED", "SERVED", "REGIONS"],
            vec![Min(NAME), Length(12), Length(11), Length(11), Fill(1)],
        ),
        Panel::Regions => (
            &["REGION", "STATE", "LOAD", "CHAIN (capitals: network tasks in use)"],
            vec![Length(10), Length(8), Length(5), Fill(1)],
        ),
        Panel::Tenants => (
            &["TENANT", "DAGS", "READY", "REQUESTED", "RATE", "GETS", "REGIONS"],
            vec![Fill(1), Length(5), Length(5), Length(14), Length(14), Length(8), Length(7)],
        ),
        Panel::Events => (&["TIME", "EVENT"], vec![Length(9), Fill(1)]),
    }
}

fn dag_row<'a>(dag: &Dag, model: &Model, theme: Theme, width: u16) -> TableRow<'a> {
    let state = match dag.shortfall_bps {
        0 => Cell::new(dag.state().word()).style(dag_style(dag, theme)),
        _ => Cell::new("BELOW").style(bold(theme, Color::Red)),
    };
    let of = |rate: fn(&DagTraffic) -> u64| dag.traffic.as_ref().map_or(0, rate);
    let (offered, served) = (of(|traffic| traffic.offered_bps), of(|traffic| traffic.served_bps));
    let mut cells =
        vec![Cell::new(text::dag(&dag.name)), state, Cell::new(short_rate(dag.bandwidth_bps))];
    if width >= WIDE {
        cells.push(Cell::new(short_rate(dag.rate_limit_bps)));
        cells.push(Cell::new(short_rate(offered)));
    }
    cells.push(Cell::new(short_rate(served)));
    if width >= WIDE {
        cells.push(Cell::new(sparkline(model.rates_of(&dag.name))));
        cells.push(Cell::new(p99(dag)));
    }
    cells.push(Cell::new(regions_of(dag)));
    TableRow::new(cells)
}

/// Time that 99 % of a DAG's packets do not exceed; empty where none was sampled.
fn p99(dag: &Dag) -> String {
    let lately = dag.traffic.as_ref().and_then(latency_views::lately);
    lately.and_then(|of| of.total).map(|of| latency_views::time(of.p99_nanos)).unwrap_or_default()
}

/// A rate with three digits, which fits into eleven columns.
fn short_rate(bps: u64) -> String {
    let (unit_bps, unit) = match bps {
        0..1_000 => return format!("{bps} bit/s"),
        1_000..1_000_000 => (1_000, "kbit/s"),
        1_000_000..1_000_000_000 => (1_000_000, "Mbit/s"),
        _ => (1_000_000_000, "Gbit/s"),
    };
    let (whole, permille) = (bps / unit_bps, bps % unit_bps * 1_000 / unit_bps);
    let digits = match whole {
        0..10 => format!("{whole}.{:02}", permille / 10),
        10..100 => format!("{whole}.{}", permille / 100),
        _ => whole.to_string(),
    };
    let digits = if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        &digits
    };
    format!("{digits} {unit}")
}

/// Rates as bars, the largest one full.
fn sparkline(rates: impl Iterator<Item = u64>) -> String {
    const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let rates: Vec<u64> = rates.collect();
    let most = rates.iter().copied().max().unwrap_or_default().max(1);
    let bar = |rate: &u64| (u128::from(*rate) * 8).div_ceil(most.into()) as usize;
    rates.iter().map(|rate| BARS[bar(rate).min(8)]).collect()
}

fn table_row<'a>(row: &ScreenRow<'_>, model: &Model, theme: Theme, width: u16) -> TableRow<'a> {
    match row {
        ScreenRow::Dag(dag) => dag_row(dag, model, theme, width),
        ScreenRow::Region(region) => TableRow::new(vec![
            Cell::new(text::region(&region.name)),
            Cell::new(state_word(region.state())).style(state_style(region.state(), theme)),
            Cell::new(load_percent(region).map(|load| format!("{load}%")).unwrap_or_default()),
            Cell::new(chain(region)),
        ]),
        ScreenRow::Tenant(tenant) => TableRow::new(vec![
            Cell::new(tenant.tenant.clone()).style(tenant_style(&tenant.tenant, theme)),
            Cell::new(tenant.dags.to_string()),
            Cell::new(tenant.ready.to_string()),
            Cell::new(text::rate(tenant.requested_bps)),
            Cell::new(text::rate(tenant.rate_bps)),
            Cell::new(percent(tenant.rate_bps, tenant.requested_bps)),
            Cell::new(tenant.regions.to_string()),
        ]),
        ScreenRow::Event(event) => {
            TableRow::new(vec![Cell::new(clock(event.at)), Cell::new(event.text.clone())])
        }
    }
}

fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => String::new(),
        _ => format!("{}%", u128::from(part) * 100 / u128::from(whole)),
    }
}

/// The numbers of the regions that a DAG is in.
fn regions_of(dag: &Dag) -> String {
    let stages = dag.mapping.iter().flat_map(|mapping| &mapping.stages);
    let instances = stages.flat_map(|stage| &stage.branches).flat_map(|chain| &chain.instances);
    let mut numbers: Vec<u32> =
        instances.filter_map(|instance| text::id(&instance.region).parse().ok()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
    numbers.join(" ")
}

/// The NTs of a region in their order; those that somebody uses in capitals.
fn chain(region: &Region) -> String {
    let slots = region.slots.iter().enumerate().map(|(index, slot)| {
        let is_used = region
            .users
            .iter()
            .any(|user| user.slots.iter().any(|used| usize::try_from(*used) == Ok(index)));
        let nt = text::id(&slot.nt_type);
        if is_used { nt.to_uppercase() } else { nt.to_owned() }
    });
    slots.collect::<Vec<_>>().join(" > ")
}

/// The chosen row in full.
fn draw_detail(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme, scroll: u16) {
    let width = usize::from(area.width).max(output::WIDTH_MIN);
    let style = output::Style { is_colour: false, width, now: theme.now };
    let rows = model.rows();
    let (title, body) = match rows.get(model.selected) {
        Some(ScreenRow::Dag(dag)) => {
            let found = model.diagnosis_of(&dag.name).map(|found| diagnosis(found, style));
            let found = found.map(|text| text + "\n").unwrap_or_default();
            (text::dag(&dag.name), found + &views::dag(dag, style))
        }
        Some(ScreenRow::Region(region)) => {
            (text::region(&region.name), views::region(region, style))
        }
        Some(ScreenRow::Tenant(tenant)) => {
            (tenant.tenant.clone(), tenant_detail(model, &tenant.tenant))
        }
        Some(ScreenRow::Event(event)) => (clock(event.at), event.text.clone()),
        None => (String::new(), "it is gone".to_owned()),
    };
    // The end stays in sight.
    let lines = u16::try_from(body.lines().count()).unwrap_or(u16::MAX);
    let scroll = scroll.min(lines.saturating_sub(area.height.saturating_sub(1)));
    let block = Block::new().borders(Borders::TOP).title(format!("{title} "));
    frame.render_widget(Paragraph::new(body).block(block).scroll((scroll, 0)), area);
}

/// The DAGs of a tenant with their current rates.
fn tenant_detail(model: &Model, tenant: &str) -> String {
    let line = |dag: &Dag| {
        let name = cut(text::id(&dag.name), 24);
        let state = dag.state().word();
        let (asked, rate) = (text::rate(dag.bandwidth_bps), text::rate(dag.rate_limit_bps));
        format!("{name:<24} {state:<12} requested {asked}, rate {rate}\n")
    };
    model.dags_of(tenant).map(line).collect()
}

fn key_line(model: &Model) -> Line<'static> {
    let keys = match (model.detail, model.has_hosts) {
        (Some(_), _) => "up/down scroll  Enter/Esc back  q quit",
        (None, false) => {
            "Tab/1-4 panel  Enter open  e why  o cordon  d drain  / filter  ? help  q quit"
        }
        (None, true) => "Tab/1-4 panel  Enter open  e why  Esc hosts  / filter  ? help  q quit",
    };
    last_line(&model.prompt, &model.filter, keys)
}

/// The last line of a screen: what is asked, what was said, the filter that is edited, or what keys there are.
pub fn last_line(prompt: &Prompt, filter: &RowFilter, keys: &'static str) -> Line<'static> {
    if let Some(question) = prompt.asked.as_ref().and_then(KeyAction::question) {
        return Line::styled(format!("{question}? y/n"), strong());
    }
    if let Some(done) = prompt.done.as_ref().filter(|done| !is_long(done)) {
        let (Ok(text) | Err(text)) = done;
        return Line::styled(text.trim_end().to_owned(), strong());
    }
    let text = if filter.is_editing {
        format!("filter: {}_   Enter keep  Esc clear", filter.text())
    } else {
        keys.to_owned()
    };
    Line::styled(text, Style::new().add_modifier(Modifier::DIM))
}

/// Text about keys and words.
const HELP: &str = "\
Tab, 1 to 4     the next panel, or one by its number
up, down, j, k  choose a row; PageUp, PageDown, Home, End
Enter           open the row; of a DAG also why it is not faster
/               show only rows with a text; Esc shows all again
s, r            sort by the next column; in reverse
c               the map of the next card
e               explain why the DAG is mapped as it is
o, d            cordon or uncordon, and drain: among regions the chosen one,
                elsewhere the card of the map; asked for before it is done
q, Ctrl-C       quit

BELOW   less is served than the smaller of promise and load; such DAGs come first
!       nothing new is placed in the region
LATELY  what was served at the last readings, the largest one full

Any key goes back.";

/// An explanation of keys, in the place of the table.
pub fn help(text: &'static str) -> Paragraph<'static> {
    Paragraph::new(text).block(Block::new().borders(Borders::TOP).title("Help "))
}

/// Answer of an action, in the place of the table; `None` if there is room for it on the last line.
pub fn long_answer(prompt: &Prompt) -> Option<Paragraph<'static>> {
    let (Ok(text) | Err(text)) = prompt.done.as_ref().filter(|done| is_long(done))?;
    let block = Block::new().borders(Borders::TOP).title("Any key goes back ");
    Some(Paragraph::new(text.clone()).block(block))
}

pub const fn strong() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

pub fn bold(theme: Theme, colour: Color) -> Style {
    coloured(theme, colour).add_modifier(Modifier::BOLD)
}

pub fn coloured(theme: Theme, colour: Color) -> Style {
    if theme.is_colour { Style::new().fg(colour) } else { Style::new() }
}

fn state_style(state: State, theme: Theme) -> Style {
    match state {
        State::Active => coloured(theme, Color::Green),
        State::Reconfiguring => bold(theme, Color::Yellow),
        State::Draining => coloured(theme, Color::Magenta),
        State::Faulty => bold(theme, Color::Red),
        State::Victim => coloured(theme, Color::DarkGray),
        State::Free | State::Unknown | State::Unspecified => Style::new(),
    }
}

fn dag_style(dag: &Dag, theme: Theme) -> Style {
    match dag.state() {
        dag::State::Ready => coloured(theme, Color::Green),
        dag::State::Pending | dag::State::Provisioning => coloured(theme, Color::Yellow),
        dag::State::Degraded | dag::State::Failed => bold(theme, Color::Red),
        dag::State::Deleting | dag::State::Unspecified => Style::new(),
    }
}

fn tenant_style(tenant: &str, theme: Theme) -> Style {
    let sum: usize = tenant.bytes().map(usize::from).sum();
    coloured(theme, TENANT_COLOURS[sum % TENANT_COLOURS.len()])
}

#[cfg(test)]
#[path = "draw_tests.rs"]
mod tests;
