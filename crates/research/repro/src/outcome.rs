//! The result of a figure: numbers compared with the published ones, the data behind them, a plot.

use std::cmp::Ordering;

/// Where an expected number comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Printed in the paper's text or in a table.
    Published,
    /// Read off the paper's plots.
    Plot,
    /// In the authors' tables behind their plots.
    Data,
    /// Seen in a simulation of the authors' hardware description.
    Rtl,
    /// The paper gives a curve without numbers: its order, knee or saturation is checked.
    Shape,
    /// Computed by hand from what the paper says.
    Computed,
}

impl Origin {
    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Published => "published",
            Self::Plot => "plot",
            Self::Data => "authors' data",
            Self::Rtl => "authors' RTL, simulated",
            Self::Shape => "shape",
            Self::Computed => "computed",
        }
    }
}

/// Significance of a number inside its tolerance for the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum NumberKind {
    /// The result of a run, to which nothing was fitted: it could have been wrong.
    Predicted,
    /// It follows from the inputs by arithmetic that the run repeats: it shows that the parts fit
    /// together.
    Derived,
    /// An input was fitted to it: it says nothing.
    Fitted,
    /// It was typed in and is printed for completeness.
    Entered,
}

impl NumberKind {
    /// All of them, the one that says most first.
    pub const ALL: [Self; 4] = [Self::Predicted, Self::Derived, Self::Fitted, Self::Entered];

    /// In a word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Predicted => "predicted",
            Self::Derived => "derived",
            Self::Fitted => "fitted",
            Self::Entered => "entered",
        }
    }
}

/// The expected value of a number, its source and its kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Expected {
    pub kind: NumberKind,
    pub origin: Origin,
    pub bound: ExpectedBound,
}

impl Expected {
    /// A number to which nothing was fitted.
    pub const fn predicted(origin: Origin, bound: ExpectedBound) -> Self {
        Self { kind: NumberKind::Predicted, origin, bound }
    }

    /// A number that follows from the inputs.
    pub const fn derived(origin: Origin, bound: ExpectedBound) -> Self {
        Self { kind: NumberKind::Derived, origin, bound }
    }

    /// A number to which an input was fitted.
    pub const fn fitted(origin: Origin, bound: ExpectedBound) -> Self {
        Self { kind: NumberKind::Fitted, origin, bound }
    }

    /// A number that is an input.
    pub const fn entered(value: f64) -> Self {
        let (kind, origin) = (NumberKind::Entered, Origin::Published);
        Self { kind, origin, bound: ExpectedBound::Exact(value) }
    }
}

/// When a number counts as equal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ExpectedBound {
    /// To the last digit.
    Exact(f64),
    /// Within this share of it: 0.15 is ±15 %.
    Share(f64, f64),
    /// Within this much of it.
    Margin(f64, f64),
    /// No more than this.
    AtMost(f64),
    /// No less than this.
    AtLeast(f64),
    /// From the first to the second.
    Between(f64, f64),
}

impl ExpectedBound {
    /// Whether a number is inside.
    pub fn holds(self, ours: f64) -> bool {
        let (low, high) = self.range();
        // Sums of decimal fractions are off by less than this.
        let slack = 1e-9 * ours.abs().max(1.0);
        ours.is_finite() && low - slack <= ours && ours <= high + slack
    }

    fn range(self) -> (f64, f64) {
        match self {
            Self::Exact(value) => (value, value),
            Self::Share(value, share) => (value - value.abs() * share, value + value.abs() * share),
            Self::Margin(value, margin) => (value - margin, value + margin),
            Self::AtMost(high) => (f64::NEG_INFINITY, high),
            Self::AtLeast(low) => (low, f64::INFINITY),
            Self::Between(low, high) => (low, high),
        }
    }

    /// The used part of the tolerance: 1 at its edge, 0 where a bound has no middle and holds.
    pub fn strain(self, ours: f64) -> f64 {
        let (low, high) = self.range();
        match (self.holds(ours), (high - low) / 2.0) {
            (true, half) if half > 0.0 && half.is_finite() => {
                (ours - f64::midpoint(low, high)).abs() / half
            }
            (true, _) => 0.0,
            (false, half) if half > 0.0 && half.is_finite() && ours.is_finite() => {
                (ours - f64::midpoint(low, high)).abs() / half
            }
            (false, _) => f64::INFINITY,
        }
    }

    /// The number that ours is compared with: the middle of a range.
    pub fn reference(self) -> f64 {
        match self {
            Self::Exact(v) | Self::Share(v, _) | Self::Margin(v, _) => v,
            Self::AtMost(v) | Self::AtLeast(v) => v,
            Self::Between(low, high) => f64::midpoint(low, high),
        }
    }

    /// The expected value, for people.
    pub fn expected(self) -> String {
        match self {
            Self::Exact(v) | Self::Share(v, _) | Self::Margin(v, _) => number(v),
            Self::AtMost(v) => format!("≤ {}", number(v)),
            Self::AtLeast(v) => format!("≥ {}", number(v)),
            Self::Between(low, high) => format!("{} to {}", number(low), number(high)),
        }
    }

    /// The tolerance, for people.
    pub fn tolerance(self) -> String {
        match self {
            Self::Exact(_) => "exact".into(),
            Self::Share(_, share) => format!("±{} %", number(share * 100.0)),
            Self::Margin(_, margin) => format!("±{}", number(margin)),
            Self::AtMost(_) | Self::AtLeast(_) | Self::Between(..) => "bound".into(),
        }
    }
}

/// A number without meaningless digits.
pub fn number(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() || text == "-0" { "0".into() } else { text.into() }
}

/// A number compared with its expected value.
#[derive(Debug, Clone, PartialEq)]
pub struct Check {
    /// Quantity that it measures.
    pub what: String,
    pub unit: &'static str,
    /// The expected value.
    pub expected: Expected,
    /// The measured value.
    pub ours: f64,
}

impl Check {
    /// Whether it is inside its tolerance.
    pub fn is_inside(&self) -> bool {
        self.expected.bound.holds(self.ours)
    }
}

/// Number of those that are inside their tolerance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Score {
    /// The number of those inside.
    pub inside: usize,
    /// The number of all.
    pub all: usize,
}

impl Score {
    fn of(check: &Check) -> Self {
        Self { inside: usize::from(check.is_inside()), all: 1 }
    }
}

impl std::ops::Add for Score {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { inside: self.inside + other.inside, all: self.all + other.all }
    }
}

impl std::fmt::Display for Score {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {}", self.inside, self.all)
    }
}

/// Style of a series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeriesStyle {
    /// Our results: a line with marks, or filled bars.
    Ours,
    /// The paper's results: hollow marks.
    Paper,
}

/// Points that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Ours or the paper's.
    pub style: SeriesStyle,
    /// The points. In a bar plot `x` is the index of the category.
    pub points: Vec<(f64, f64)>,
}

impl Series {
    pub fn ours(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), style: SeriesStyle::Ours, points }
    }

    /// The paper's results.
    pub fn paper(name: impl Into<String>, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), style: SeriesStyle::Paper, points }
    }
}

/// Scale of the x axis.
#[derive(Debug, Clone, PartialEq)]
pub enum Axis {
    Linear,
    /// Powers of two: packet sizes, counts.
    Doubling,
    /// Names; series are bars side by side.
    Categories(Vec<String>),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    /// The label of the x axis.
    pub x: &'static str,
    /// The label of the y axis, with the unit.
    pub y: &'static str,
    /// The x axis.
    pub axis: Axis,
    pub series: Vec<Series>,
}

/// A table without a plot's form.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DataTable {
    pub columns: Vec<String>,
    /// Its rows, as long as the head.
    pub rows: Vec<Vec<String>>,
}

/// The result of a figure.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FigureOutcome {
    /// The numbers that are compared.
    pub checks: Vec<Check>,
    /// The plot, if one is useful.
    pub plot: Option<Plot>,
    /// More data; if empty, the plot's points are the data.
    pub table: DataTable,
    /// Notes for readers: how it was measured, what the paper leaves open.
    pub notes: Vec<String>,
}

impl FigureOutcome {
    /// Adds a number.
    pub fn check(
        &mut self,
        what: impl Into<String>,
        unit: &'static str,
        expected: Expected,
        ours: f64,
    ) {
        self.checks.push(Check { what: what.into(), unit, expected, ours });
    }

    /// Adds a sentence.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Numbers outside their tolerance.
    pub fn outside(&self) -> usize {
        self.checks.iter().filter(|check| !check.is_inside()).count()
    }

    /// The number that uses most of its tolerance, predicted if any is.
    pub fn worst(&self) -> Option<&Check> {
        let rank = |check: &&Check| {
            let is_predicted = check.expected.kind == NumberKind::Predicted;
            (is_predicted, check.expected.bound.strain(check.ours))
        };
        self.checks.iter().max_by(|a, b| rank(a).partial_cmp(&rank(b)).unwrap_or(Ordering::Equal))
    }

    /// Number of those of a kind that are inside, and number of all.
    pub fn score(&self, kind: NumberKind) -> Score {
        let of_kind = self.checks.iter().filter(|check| check.expected.kind == kind);
        of_kind.fold(Score::default(), |score, check| score + Score::of(check))
    }

    /// The data as comma-separated values.
    pub fn csv(&self) -> String {
        let mut text = String::new();
        let mut line = |cells: &[String]| {
            let cells: Vec<String> = cells.iter().map(|cell| csv_cell(cell)).collect();
            text.push_str(&cells.join(","));
            text.push('\n');
        };
        if !self.table.columns.is_empty() {
            line(&self.table.columns);
            self.table.rows.iter().for_each(|row| line(row));
            return text;
        }
        let Some(plot) = &self.plot else { return text };
        line(&["series".into(), "whose".into(), plot.x.into(), plot.y.into()]);
        for series in &plot.series {
            let whose = if series.style == SeriesStyle::Ours { "ours" } else { "paper" };
            for &(x, y) in &series.points {
                let x = match &plot.axis {
                    Axis::Categories(names) => names.get(x as usize).cloned().unwrap_or_default(),
                    Axis::Linear | Axis::Doubling => number(x),
                };
                line(&[series.name.clone(), whose.into(), x, number(y)]);
            }
        }
        text
    }
}

fn csv_cell(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_at_their_edges_and_not_beyond() {
        let share = ExpectedBound::Share(100.0, 0.15);
        assert!(share.holds(85.0) && share.holds(115.0));
        assert!(!share.holds(84.9) && !share.holds(115.1));
        assert!(
            ExpectedBound::Margin(0.5, 0.05).holds(0.45)
                && !ExpectedBound::Margin(0.5, 0.05).holds(0.44)
        );
        assert!(
            ExpectedBound::Exact(388.0).holds(388.0) && !ExpectedBound::Exact(388.0).holds(389.0)
        );
        assert!(ExpectedBound::AtMost(1.0).holds(-3.0) && !ExpectedBound::AtMost(1.0).holds(1.1));
        assert!(ExpectedBound::AtLeast(1.0).holds(3.0) && !ExpectedBound::AtLeast(1.0).holds(0.9));
        assert!(!ExpectedBound::Between(1.0, 2.0).holds(f64::NAN), "no number is inside nothing");
    }

    #[test]
    fn each_kind_of_number_is_counted_alone() {
        let mut outcome = FigureOutcome::default();
        let one = ExpectedBound::Exact(1.0);
        outcome.check("a", "", Expected::predicted(Origin::Published, one), 1.0);
        outcome.check("b", "", Expected::predicted(Origin::Published, one), 2.0);
        outcome.check("c", "", Expected::fitted(Origin::Plot, one), 1.0);
        let scores = NumberKind::ALL.map(|kind| outcome.score(kind).to_string());
        assert_eq!(scores, ["1 of 2", "0 of 0", "1 of 1", "0 of 0"]);
        assert_eq!(outcome.outside(), 1);
    }

    #[test]
    fn the_worst_number_is_that_which_uses_most_of_its_tolerance() {
        let mut outcome = FigureOutcome::default();
        assert_eq!(outcome.worst(), None);
        let share = ExpectedBound::Share(100.0, 0.1);
        outcome.check("fitted", "", Expected::fitted(Origin::Plot, share), 150.0);
        outcome.check("near", "", Expected::predicted(Origin::Plot, share), 101.0);
        outcome.check("far", "", Expected::predicted(Origin::Plot, share), 95.0);
        let bound = ExpectedBound::AtLeast(1.0);
        outcome.check("bound", "", Expected::predicted(Origin::Plot, bound), 9.0);
        let worst = |outcome: &FigureOutcome| outcome.worst().map(|check| check.what.clone());
        assert_eq!(worst(&outcome).as_deref(), Some("far"));
        outcome.check("below", "", Expected::predicted(Origin::Plot, bound), 0.0);
        assert_eq!(worst(&outcome).as_deref(), Some("below"));
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(0.388), "0.388");
        assert_eq!(number(64.0), "64");
        assert_eq!(number(-0.0), "0");
        assert_eq!(ExpectedBound::Share(11.0, 0.15).tolerance(), "±15 %");
        assert_eq!(ExpectedBound::AtMost(1.0).expected(), "≤ 1");
    }

    #[test]
    fn cells_with_commas_are_quoted() {
        let table = DataTable {
            columns: vec!["a".into(), "b".into()],
            rows: vec![vec!["1,5".into(), "say \"x\"".into()]],
        };
        let outcome = FigureOutcome { table, ..FigureOutcome::default() };
        assert_eq!(outcome.csv(), "a,b\n\"1,5\",\"say \"\"x\"\"\"\n");
    }

    #[test]
    fn a_plot_is_its_own_data() {
        let plot = Plot {
            x: "NTs",
            y: "µs",
            axis: Axis::Categories(vec!["two".into(), "three".into()]),
            series: vec![Series::ours("sNIC", vec![(0.0, 0.388), (1.0, 0.452)])],
        };
        let outcome = FigureOutcome { plot: Some(plot), ..FigureOutcome::default() };
        assert_eq!(
            outcome.csv(),
            "series,whose,NTs,µs\nsNIC,ours,two,0.388\nsNIC,ours,three,0.452\n"
        );
    }
}
