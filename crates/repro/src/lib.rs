//! Every figure and table of the papers that can be regenerated without their boards.
//!
//! A figure that is about mapping, scheduling or sharing goes the product's own way: its DAGs are
//! given to the controller, which plans them and has the card's driver load regions and program
//! tables through registers; then traffic meets the simulated card, and what is measured is held
//! against what was published. FlexPipe's run on models of its designs (`snic-offloads`), Fig. 18's on areas
//! alone.
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
//! What goes into a run stands once in [`Parameters`], with its source, and can be set for a run: names and
//! orders of NTs are a figure's own, numbers are not. What comes out is held against the paper's numbers,
//! each with what it is worth ([`NumberKind`]): predicted, derived or fitted. Every figure names parameters that
//! take its cause away, and a test expects it to fail with them ([`figures::Break`]).

pub mod figures;
mod outcome;
mod parameters;
mod plot;
pub mod report;
pub mod sweep;
mod testbed;

pub use figures::Figure;
pub use outcome::{
    Axis, Check, DataTable, Expected, ExpectedBound, FigureOutcome, NumberKind, Origin, Plot,
    Score, Series, SeriesStyle, number,
};
pub use parameters::{
    InvalidParameter, Parameter, ParameterEntry, ParameterSource, Parameters, TABLE,
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
