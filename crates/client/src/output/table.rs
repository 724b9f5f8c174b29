//! Tables that fit into [`WIDTH`] columns.

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, Color, ColumnConstraint, ContentArrangement, Table, Width};
pub use snic_api::render::WIDTH;

use super::Style;

/// Names up to this length are never broken, so that they can be copied. The name of an operation is a UUID.
const FIRST_CHARS_MAX: u16 = 36;

/// A table with a heading, or a sentence if it has no rows.
pub fn table(style: Style, heading: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return "nothing found\n".to_owned();
    }
    let mut table = plain(style);
    table.set_header(heading.to_vec());
    for row in rows {
        table.add_row(row.into_iter().map(|text| coloured(text, style)).collect::<Vec<_>>());
    }
    lines(&mut table)
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
        .set_width(u16::try_from(WIDTH).unwrap_or(u16::MAX));
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
        column.set_padding((0, 2));
        if column.index == 0 {
            let whole = Width::Fixed(width.min(FIRST_CHARS_MAX) + 2);
            column.set_constraint(ColumnConstraint::LowerBoundary(whole));
        }
    }
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

    const PLAIN: Style = Style { is_colour: false, now: SystemTime::UNIX_EPOCH };

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

    proptest! {
        #[test]
        fn no_table_is_wider_than_a_terminal(
            rows in prop::collection::vec(prop::collection::vec("[a-zé/ -]{0,90}", 6), 1..5)
        ) {
            let text = table(PLAIN, &["A", "B", "C", "D", "E", "F"], rows.clone());
            prop_assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{}", text);
            let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).count();
            let all: usize = rows.iter().flatten().map(|cell| letters(cell)).sum();
            prop_assert_eq!(letters(&text), all + 6, "nothing is lost");
        }
    }
}
