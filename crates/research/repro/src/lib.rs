//! Every figure and table of the papers that can be regenerated without their boards.
//!
//! A figure about mapping, scheduling or sharing uses the product itself: its DAGs go to the
//! controller, which plans them and has the card's driver load regions and program tables through
//! registers; then traffic goes through the simulated card, and the measurements are compared with
//! the published numbers. FlexPipe's figures run on models of its designs (`snic-offloads`), Fig.
//! 18's on areas alone, those of the BlueField-3 study on the card model's file and the estimate that
//! places NTs on processors (`snic-processors`).
//!
//! ```text
//!  figures/*.rs ──► Testbed: controller ─► driver session ─► simulated card ◄─ traffic     testbed.rs
//!       │                                                     │
//!       ▼                                                     ▼
//!  Outcome: checks, data, plot ◄──────────────────────── measurements                  outcome.rs
//!       ▼
//!  CSV, SVG, report.html                                                     plot.rs, report.rs
//! ```
//!
//! One crate, although it has more than 4,000 lines: all figures share the parameters, the kinds of numbers
//! and the page, and no figure is used by another crate.
//!
//! [`Parameters`] has every input of a run once, with its source, and each can be set for a run: a
//! figure itself only names NTs and orders them. The results are compared with the paper's numbers,
//! each of which has a kind ([`NumberKind`]): predicted, derived, fitted or entered. Every figure names
//! parameters that take its cause away, and a test expects it to fail with them
//! ([`figures::Break`]).

pub mod figures;
mod karma;
mod outcome;
mod parameters;
mod plot;
pub mod report;
pub mod sweep;
mod testbed;
pub mod ycsb;

pub use figures::Figure;
pub use outcome::{
    Axis, Check, DataTable, Expected, ExpectedBound, FigureOutcome, NumberKind, Origin, Plot,
    Score, Series, SeriesStyle, number,
};
pub use parameters::{
    InvalidParameter, Parameter, ParameterEntry, ParameterSource, Parameters, entries,
};
pub use plot::svg;
pub use report::RegeneratedFigure;
pub use testbed::{NtSequence, Setup, Testbed, nt};

/// Regenerates one figure.
///
/// # Errors
/// The experiment cannot be run with these parameters, or its plot cannot be drawn.
pub fn regenerate(
    figure: &'static Figure,
    parameters: &Parameters,
) -> anyhow::Result<RegeneratedFigure> {
    let outcome = (figure.run)(parameters)?;
    let draw = |plot| svg(figure.title, plot);
    let svg = outcome.plot.as_ref().map(draw).transpose()?;
    Ok(RegeneratedFigure { figure, outcome, svg })
}
