//! Tables that fit into the width of a terminal.

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, Color, ColumnConstraint, ContentArrangement, Table, Width};
pub use snic_api::render::WIDTH;

use super::Style;

/// Names up to this length are never broken, so that they can be copied. The name of an operation is a UUID.
const FIRST_CHARS_MAX: usize = 36;
/// Columns between two columns of a table.
const GAP: usize = 2;

/// A table with a heading, or a sentence if it has no rows. Words are whole; where they find no room beside each other, each
/// row is a block of lines.
pub fn table(style: Style, heading: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return "nothing found\n".to_owned();
    }
    let Some(widths) = column_widths(style.width, heading, &rows) else {
        return blocks(style, heading, rows);
    };
    let mut table = plain(style);
    table.set_header(heading.to_vec());
    for row in rows {
        table.add_row(row.into_iter().map(|text| coloured(text, style)).collect::<Vec<_>>());
    }
    for (column, width) in table.column_iter_mut().zip(widths) {
        column.set_padding((0, GAP as u16));
        column.set_constraint(ColumnConstraint::Absolute(Width::Fixed((width + GAP) as u16)));
    }
    text_of(&table)
}

/// Characters of a text, and of its longest word.
fn lengths(text: &str) -> (usize, usize) {
    let longest = |parts: &mut dyn Iterator<Item = &str>| {
        parts.map(|part| part.chars().count()).max().unwrap_or_default()
    };
    (longest(&mut text.lines()), longest(&mut text.split_whitespace()))
}

/// The width of each column without its gap: at least its longest word, and of the first all of it, for it is copied. What
/// is left goes to those that need the least. `None` where there is not enough for all words.
fn column_widths(width: usize, heading: &[&str], rows: &[Vec<String>]) -> Option<Vec<usize>> {
    let column = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| lengths(cell));
        let all = cells.chain([lengths(heading[at])]);
        all.fold((0, 0), |(all, word), (a, w)| (all.max(a), word.max(w)))
    };
    let wanted: Vec<(usize, usize)> = (0..heading.len()).map(column).collect();
    let mut widths: Vec<usize> = wanted.iter().map(|(_, word)| *word).collect();
    if let Some((first, (all, _))) = widths.first_mut().zip(wanted.first()) {
        *first = (*first).max((*all).min(FIRST_CHARS_MAX));
    }
    // No gap stands behind the last column.
    let taken: usize = widths.iter().map(|width| width + GAP).sum::<usize>().saturating_sub(GAP);
    let mut left = width.checked_sub(taken)?;
    let mut order: Vec<usize> = (0..widths.len()).collect();
    order.sort_by_key(|at| wanted[*at].0.saturating_sub(widths[*at]));
    for (done, at) in order.iter().enumerate() {
        let lacks = wanted[*at].0.saturating_sub(widths[*at]);
        let given = lacks.min(left / (order.len() - done));
        widths[*at] += given;
        left -= given;
    }
    Some(widths)
}

/// Each row as a block: its first cell, then the others with their headings, indented.
fn blocks(style: Style, heading: &[&str], rows: Vec<Vec<String>>) -> String {
    let widest = heading.iter().skip(1).map(|head| head.chars().count()).max().unwrap_or_default();
    let mut all = String::new();
    for row in rows {
        for (at, (head, cell)) in
            heading.iter().zip(row).enumerate().filter(|(_, (_, c))| !c.is_empty())
        {
            let start = match at {
                0 => String::new(),
                _ => format!("  {head:<widest$}  "),
            };
            let room = style.width.saturating_sub(start.chars().count()).max(1);
            for (line, text) in wrapped(&cell, room).into_iter().enumerate() {
                let start =
                    if line == 0 { start.clone() } else { " ".repeat(start.chars().count()) };
                all += &(start + &text + "\n");
            }
        }
    }
    all
}

/// A text in lines of at most `room` characters, broken between words; a longer word is broken.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        let line = lines.last_mut().expect("there is one from the beginning");
        let used = line.chars().count();
        if used > 0 && used + 1 + word.len() <= room {
            line.push(' ');
            line.extend(word);
            continue;
        }
        if used > 0 {
            lines.push(String::new());
        }
        while word.len() > room {
            let rest = word.split_off(room);
            *lines.last_mut().expect("as above") = word.into_iter().collect();
            lines.push(String::new());
            word = rest;
        }
        lines.last_mut().expect("as above").extend(word);
    }
    lines
}

/// The properties of a resource, one per line; empty ones are omitted.
pub fn properties(style: Style, rows: &[(&str, String)]) -> String {
    let mut table = plain(style);
    for (key, value) in rows.iter().filter(|(_, value)| !value.is_empty()) {
        table.add_row(vec![Cell::new(format!("{key}:")), coloured(value.clone(), style)]);
    }
    if table.is_empty() { String::new() } else { lines(&mut table) }
}

/// A title with a body; empty if the body is empty.
pub fn section(title: &str, body: &str) -> String {
    if body.is_empty() { String::new() } else { format!("\n{title}\n{body}") }
}

fn plain(style: Style) -> Table {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(u16::try_from(style.width + GAP).unwrap_or(u16::MAX));
    if style.is_colour {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table
}

fn lines(table: &mut Table) -> String {
    let widths = table.column_max_content_widths();
    for (column, width) in table.column_iter_mut().zip(widths) {
        column.set_padding((0, GAP as u16));
        if column.index == 0 {
            let whole = Width::Fixed(width.min(FIRST_CHARS_MAX as u16) + GAP as u16);
            column.set_constraint(ColumnConstraint::LowerBoundary(whole));
        }
    }
    text_of(table)
}

fn text_of(table: &Table) -> String {
    table.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn coloured(text: String, style: Style) -> Cell {
    let colour = match text.as_str() {
        _ if !style.is_colour => None,
        "READY" | "ACTIVE" | "OK" | "TRUE" | "DONE" => Some(Color::Green),
        "PENDING" | "PROVISIONING" | "LOADING" | "DRAINING" | "RECOVERING" | "RUNNING" => {
            Some(Color::Yellow)
        }
        "FAILED" | "FAULTY" | "LOST" | "DEGRADED" | "IMPAIRED" | "FALSE" => Some(Color::Red),
        _ => None,
    };
    let cell = Cell::new(text);
    match colour {
        Some(colour) => cell.fg(colour),
        None => cell,
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use proptest::prelude::*;

    use super::*;

    const PLAIN: Style = Style { is_colour: false, width: WIDTH, now: SystemTime::UNIX_EPOCH };

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let rows = vec![vec!["web".into(), "READY".into()], vec!["edge-long".into(), "".into()]];
        let text = table(PLAIN, &["NAME", "STATE"], rows);
        assert_eq!(text, "NAME       STATE\nweb        READY\nedge-long\n");
        assert_eq!(table(PLAIN, &["NAME"], vec![]), "nothing found\n");
    }

    #[test]
    fn colours_come_only_where_they_are_wanted() {
        let rows = || vec![vec!["READY".into()]];
        assert!(!table(PLAIN, &["STATE"], rows()).contains('\x1b'));
        let coloured = Style { is_colour: true, ..PLAIN };
        assert!(table(coloured, &["STATE"], rows()).contains("\x1b["));
    }

    #[test]
    fn properties_without_a_value_are_left_out() {
        let rows = [("Name", "web".to_owned()), ("Error", String::new())];
        assert_eq!(properties(PLAIN, &rows), "Name:  web\n");
        assert_eq!(properties(PLAIN, &rows[1..]), "");
    }

    #[test]
    fn where_words_find_no_room_each_row_is_a_block() {
        let rows = || {
            vec![
                vec![
                    "acme/web".into(),
                    "PROVISIONING".into(),
                    "its rows are not on the card".into(),
                ],
                vec!["acme/api".into(), String::new(), "ready".into()],
            ]
        };
        let style = |width| Style { width, ..PLAIN };
        let heading = ["DAG", "STATE", "REASON"];
        let side_by_side = "\
DAG       STATE         REASON
acme/web  PROVISIONING  its rows are
                        not on the
                        card
acme/api                ready
";
        assert_eq!(table(style(36), &heading, rows()), side_by_side);
        let in_blocks = "\
acme/web
  STATE   PROVISIONING
  REASON  its rows are
          not on the
          card
acme/api
  REASON  ready
";
        assert_eq!(table(style(23), &heading, rows()), in_blocks);
    }

    proptest! {
        #[test]
        fn every_width_is_kept_and_no_word_is_broken(
            rows in prop::collection::vec(prop::collection::vec("[a-zé/ -]{0,90}", 6), 1..5),
            width in 40_usize..200,
        ) {
            let style = Style { width, ..PLAIN };
            let text = table(style, &["A", "B", "C", "D", "E", "F"], rows.clone());
            prop_assert!(text.lines().all(|line| line.chars().count() <= width), "{}", text);
            let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).count();
            let all: usize = rows.iter().flatten().map(|cell| letters(cell)).sum();
            prop_assert!(letters(&text) >= all, "nothing is lost: {}", text);
            // A word is broken only where no line has room for it.
            let shown: Vec<&str> = text.split_whitespace().collect();
            for word in rows.iter().flat_map(|row| row.iter().flat_map(|cell| cell.split_whitespace())) {
                let is_long = word.chars().count() > width - 5;
                prop_assert!(is_long || shown.contains(&word), "{:?} in\n{}", word, text);
            }
        }
    }
}
