//! The screen of a fleet's hosts: what is under way, a table, a line of keys.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row as TableRow, Table, TableState};
use snic_api::fleet_v1::host::Condition;
use snic_api::fleet_v1::rebalance::State;
use snic_client::output::fleet_views as words;

use super::{HostRow, HostsModel};
use crate::draw::{
    Theme, WIDE, bold, coloured, connection, first_line, help, last_line, long_answer, selection,
    strong,
};

const KEYS: &str = "Enter regions  i host  o cordon  d drain  / filter  s sort  ? help  q quit";

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, model: &HostsModel, theme: Theme) {
    let area = frame.area();
    let under_way = under_way(model);
    let parts = [
        Constraint::Length(1),
        Constraint::Length(u16::from(under_way.is_some())),
        Constraint::Min(3),
        Constraint::Length(1),
    ];
    let [head, middle, table, keys] = Layout::vertical(parts).areas(area);
    frame.render_widget(Paragraph::new(title(model, theme, area.width)), head);
    frame.render_widget(Paragraph::new(under_way.unwrap_or_default()), middle);
    if model.prompt.is_help {
        frame.render_widget(help(HELP), table);
    } else if let Some(text) = long_answer(&model.prompt) {
        frame.render_widget(text, table);
    } else {
        draw_table(frame, table, model, theme);
    }
    frame.render_widget(Paragraph::new(last_line(&model.prompt, &model.filter, KEYS)), keys);
}

fn title(model: &HostsModel, theme: Theme, width: u16) -> Line<'static> {
    let of = |condition, word: &str| match model.count(condition) {
        0 => String::new(),
        count => format!(", {count} {word}"),
    };
    let state = model.has_read().then(|| {
        let (hosts, status) = (model.hosts(), &model.status);
        let (lost, suspected) =
            (of(Condition::Lost, "LOST"), of(Condition::Suspected, "SUSPECTED"));
        let unplaced = match status.dags_unplaced {
            0 => String::new(),
            dags => format!(" ({dags} without a place)"),
        };
        format!("fleet of {hosts} hosts{lost}{suspected}  {} DAGs{unplaced}", status.dags)
    });
    let (text, is_well) = connection(state, model.lost.as_deref(), model.silence(theme.now));
    first_line(text, is_well, theme, width)
}

/// Drains of racks and zones, and the rebalance, while it goes on.
fn under_way(model: &HostsModel) -> Option<String> {
    let drains: Vec<String> = model.status.drains.iter().map(|name| words::area(name)).collect();
    let drains = (!drains.is_empty()).then(|| format!("draining {}", drains.join(", ")));
    let running = model.rebalance.as_ref().filter(|of| of.state() == State::Running);
    let rebalance = running.map(words::rebalance_line);
    let parts: Vec<String> = rebalance.into_iter().chain(drains).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn draw_table(frame: &mut Frame<'_>, area: Rect, model: &HostsModel, theme: Theme) {
    use Constraint::{Fill, Length, Min};
    let rows = model.rows();
    if rows.is_empty() && model.has_read() {
        let text = match model.hosts() {
            0 => {
                "No hosts. Register one: `snicd host-spec` on the host prints what\n\
                  `snicctl fleet host create NAME --from FILE` reads."
            }
            _ => "No host matches the filter. Esc shows all again.",
        };
        let block = Block::new().borders(Borders::TOP).title(tabs(model, 0));
        frame.render_widget(Paragraph::new(text).block(block), area);
        return;
    }
    let is_wide = area.width >= WIDE;
    let mut heading = vec!["HOST", "ZONE/RACK", "STATE", "USE", "CARDS", "DAGS"];
    let mut widths = vec![Min(20), Length(16), Length(9), Length(8), Length(6), Length(6)];
    if is_wide {
        heading.extend(["FUNCTIONS", "MODELS"]);
        widths.extend([Length(9), Fill(1)]);
    }
    let shown = rows.iter().map(|row| table_row(row, is_wide, theme));
    let table = Table::new(shown, widths)
        .header(TableRow::new(heading).style(strong()))
        .block(Block::new().borders(Borders::TOP).title(tabs(model, rows.len())))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .highlight_symbol("> ");
    let chosen = (!rows.is_empty()).then_some(model.selected());
    let mut state = TableState::new().with_selected(chosen);
    frame.render_stateful_widget(table, area, &mut state);
}

fn tabs(model: &HostsModel, count: usize) -> String {
    let sort = Some(model.sort().title());
    format!("[Hosts: {count}]") + &selection(sort, model.is_reversed, &model.filter)
}

fn table_row<'a>(row: &HostRow, is_wide: bool, theme: Theme) -> TableRow<'a> {
    let cards = match row.cards_cordoned {
        0 => row.cards.to_string(),
        // As in the map: nothing new is placed there.
        _ => format!("{}!", row.cards),
    };
    let mut cells = vec![
        Cell::new(row.host.clone()),
        Cell::new(row.area.clone()),
        Cell::new(row.condition_word()).style(condition_style(row.condition, theme)),
        Cell::new(row.use_word).style(coloured(theme, Color::Magenta)),
        Cell::new(cards),
        Cell::new(row.dags.map(|dags| dags.to_string()).unwrap_or_default()),
    ];
    if is_wide {
        cells.push(Cell::new(row.functions.to_string()));
        cells.push(Cell::new(row.models.clone()));
    }
    TableRow::new(cells)
}

fn condition_style(condition: Condition, theme: Theme) -> Style {
    match condition {
        Condition::Lost | Condition::Suspected => bold(theme, Color::Red),
        Condition::Behind => coloured(theme, Color::Yellow),
        Condition::InStep => coloured(theme, Color::Green),
        Condition::Unspecified => Style::new(),
    }
}

/// Text about keys and words.
const HELP: &str = "\
up, down, j, k  choose a host; PageUp, PageDown, Home, End
Enter           its regions, DAGs, tenants and events; Esc comes back
i               what the fleet knows of the host: its cards, the DAGs that stay
/               show only rows with a text, such as lost or z1/r2; Esc shows all
s, r            sort by the next column; in reverse
o, d            cordon or take back into use, and drain; asked for before it is
                done
q, Ctrl-C       quit

LOST       its lease is over, and its DAGs move
SUSPECTED  its lease is over
BEHIND     it has not yet done all that it was told
UNKNOWN    the leader has not said anything of it
!          nothing new is placed on at least one of its cards

Any key goes back.";
