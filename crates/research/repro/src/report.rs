//! The page: every number beside the expected one, every plot, the parameters once.

use std::fmt::Write;
use std::ops::Add;

use crate::figures::{Break, Figure};
use crate::outcome::{Check, Expected, FigureOutcome, NumberKind, Score, number};
use crate::parameters::Parameter;

/// A figure that was regenerated.
#[derive(Debug)]
pub struct RegeneratedFigure {
    pub figure: &'static Figure,
    pub outcome: FigureOutcome,
    /// The plot, where there is one.
    pub svg: Option<String>,
}

const STYLE: &str = "body{font:15px/1.5 sans-serif;max-width:980px;margin:2em auto;padding:0 1em}\
table{border-collapse:collapse;margin:1em 0}td,th{padding:.15em .7em;border-bottom:1px solid #ddd;\
text-align:left}td.n{text-align:right;font-variant-numeric:tabular-nums}.inside{color:#00602b}\
.outside{color:#b00020;font-weight:bold}svg{max-width:100%;height:auto}";

/// The whole page as HTML without references to other files.
pub fn html(done: &[RegeneratedFigure], parameters: &[Parameter]) -> String {
    let mut page = String::new();
    let write = |page: &mut String| -> std::fmt::Result {
        write!(page, "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">")?;
        write!(page, "<title>Figures, again</title><style>{STYLE}</style>")?;
        write!(page, "<h1>The papers' figures, regenerated</h1>")?;
        claims(page, done)?;
        summary(page, done)?;
        for one in done {
            section(page, one)?;
        }
        parameters_table(page, parameters)?;
        write!(page, "</html>")
    };
    write(&mut page).expect("writing to a string cannot fail");
    page
}

/// The first table: each claim with the number that uses most of its tolerance.
fn claims(page: &mut String, done: &[RegeneratedFigure]) -> std::fmt::Result {
    write!(
        page,
        "<p>Each claim with the number that fits it worst: of those that were predicted, "
    )?;
    write!(page, "where there are any.</p><table><tr><th>Figure<th>Claim<th>Number<th>Published")?;
    write!(page, "<th>Ours<th>Tolerance<th>Kind<th>What breaks it")?;
    for RegeneratedFigure { figure, outcome, .. } in done {
        let Some(Check { what, unit, expected, ours }) = outcome.worst() else { continue };
        let class = if outcome.outside() == 0 { "inside" } else { "outside" };
        write!(page, "<tr><td><a href=\"#{0}\">{0}</a><td>{1}", figure.id, escape(figure.claim))?;
        write!(page, "<td>{}<td class=n>{}", escape(what), expected.bound.expected())?;
        write!(page, "<td class=\"n {class}\">{} {}", number(*ours), escape(unit))?;
        write!(page, "<td>{}<td>{}", expected.bound.tolerance(), expected.kind.name())?;
        let breaks: Vec<String> = figure.breaks.iter().map(|cause| escape(cause.what)).collect();
        write!(page, "<td>{}", breaks.join("; "))?;
    }
    write!(page, "</table>")
}

fn summary(page: &mut String, done: &[RegeneratedFigure]) -> std::fmt::Result {
    let scores = NumberKind::ALL.map(|kind| score(done, kind));
    let [predicted, derived, fitted, entered] = scores;
    write!(page, "<p><b>{predicted} predicted numbers are inside their tolerance.</b> ")?;
    write!(page, "Beside them, {derived} that follow from what was put in by arithmetic, and ")?;
    write!(page, "{fitted} that something was fitted to, which say nothing about the model; ")?;
    write!(page, "{entered} are inputs.</p>")?;
    write!(page, "<table><tr><th>Figure<th>Predicted<th>Derived<th>Fitted<th>Entered<th>Outside")?;
    for RegeneratedFigure { figure, outcome, .. } in done {
        let outside = outcome.outside();
        let class = if outside == 0 { "inside" } else { "outside" };
        write!(page, "<tr><td><a href=\"#{}\">{}</a>", figure.id, escape(figure.title))?;
        for kind in NumberKind::ALL {
            write!(page, "<td class=n>{}", outcome.score(kind))?;
        }
        write!(page, "<td class=\"n {class}\">{outside}")?;
    }
    write!(page, "</table>")
}

/// Number of those of a kind that are inside, over all figures.
pub fn score(done: &[RegeneratedFigure], kind: NumberKind) -> Score {
    done.iter().map(|one| one.outcome.score(kind)).fold(Score::default(), Score::add)
}

fn section(
    page: &mut String,
    RegeneratedFigure { figure, outcome, svg }: &RegeneratedFigure,
) -> std::fmt::Result {
    write!(page, "<h2 id=\"{}\">{}</h2>", figure.id, escape(figure.title))?;
    write!(page, "<p>{}</p>", escape(figure.source))?;
    write!(page, "<p><b>Claim:</b> {}</p>", escape(figure.claim))?;
    for Break { key, value, what } in figure.breaks {
        let (what, key, value) = (escape(what), escape(key), escape(value));
        write!(page, "<p>It fails with {what} (<code>--set {key}={value}</code>).</p>")?;
    }
    for note in &outcome.notes {
        write!(page, "<p>{}</p>", escape(note))?;
    }
    if let Some(svg) = svg {
        write!(page, "{svg}")?;
    }
    write!(page, "<table><tr><th>What<th>Kind<th>Origin<th>Expected<th>Ours<th>Unit")?;
    write!(page, "<th>Tolerance<th>")?;
    for check in &outcome.checks {
        let inside = if check.is_inside() { "inside" } else { "outside" };
        let Expected { kind, origin, bound } = check.expected;
        write!(page, "<tr><td>{}<td>{}<td>{}", escape(&check.what), kind.name(), origin.name())?;
        write!(page, "<td class=n>{}", bound.expected())?;
        write!(page, "<td class=n>{}<td>{}", number(check.ours), escape(check.unit))?;
        write!(page, "<td>{}<td class={inside}>{inside}", bound.tolerance())?;
    }
    write!(page, "</table>")?;
    if !outcome.table.columns.is_empty() {
        write!(page, "<table><tr>")?;
        outcome.table.columns.iter().try_for_each(|cell| write!(page, "<th>{}", escape(cell)))?;
        for row in &outcome.table.rows {
            write!(page, "<tr>")?;
            row.iter().try_for_each(|cell| write!(page, "<td>{}", escape(cell)))?;
        }
        write!(page, "</table>")?;
    }
    write!(page, "<p><a href=\"{0}.csv\">{0}.csv</a></p>", figure.id)
}

fn parameters_table(page: &mut String, parameters: &[Parameter]) -> std::fmt::Result {
    write!(page, "<h2>Parameters</h2><p>Each stands here once and counts for all figures.</p>")?;
    write!(page, "<table><tr><th>Parameter<th>Value<th>Source")?;
    for Parameter { name, value, source, changed } in parameters {
        let (name, value, source) = (escape(name), escape(value), escape(source));
        let changed = if *changed { " (set for this run)" } else { "" };
        write!(page, "<tr><td>{name}<td class=n>{value}{changed}<td>{source}")?;
    }
    write!(page, "</table>")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{ExpectedBound, Origin};

    #[test]
    fn the_page_says_for_every_number_whether_it_is_inside() {
        let mut outcome = FigureOutcome::default();
        let exact = |value| Expected::predicted(Origin::Published, ExpectedBound::Exact(value));
        outcome.check("2 NTs <b>", "ns", exact(388.0), 388.0);
        outcome.check("3 NTs", "ns", exact(452.0), 450.0);
        outcome.note("Measured & checked.");
        let figure = crate::figures::ALL.first().expect("there are figures");
        let svg = Some("<svg></svg>".into());
        let parameter = Parameter {
            name: "core".into(),
            value: "49".into(),
            source: "the paper".into(),
            changed: true,
        };
        let page = html(&[RegeneratedFigure { figure, outcome, svg }], &[parameter]);
        assert!(page.contains("<b>1 of 2 predicted numbers are inside"));
        assert!(page.contains(figure.claim) && page.contains("--set"));
        assert!(
            page.contains("<td class=inside>inside") && page.contains("<td class=outside>outside")
        );
        assert!(page.contains("2 NTs &lt;b&gt;") && page.contains("Measured &amp; checked."));
        let claim = page.find("What breaks it").expect("the first table");
        assert!(claim < page.find("<th>Predicted").expect("the second table"));
        let row = "<td>3 NTs<td class=n>452<td class=\"n outside\">450 ns<td>exact<td>predicted";
        assert!(page.contains(row) && page.contains(figure.breaks[0].what));
        assert!(page.contains("<td>core<td class=n>49 (set for this run)<td>the paper"));
    }
}
