//! Every figure and table of the papers that can be regenerated without their boards.
//!
//! A figure that is about mapping, scheduling or sharing goes the product's own way: its DAGs are
//! given to the controller, which plans them and has the card's driver load regions and program
//! tables through registers; then traffic meets the simulated card, and what is measured is held
//! against what was published.
//!
//! ```text
//!  figures/*.rs ──► Lab: controller ─► driver session ─► simulated card ◄─ traffic     lab.rs
//!       │                                                     │
//!       ▼                                                     ▼
//!  Outcome: checks, data, plot ◄──────────────────────── measurements                  outcome.rs
//!       ▼
//!  CSV, SVG, report.html                                                     plot.rs, report.rs
//! ```
//!
//! No figure has a constant of its own: what can be chosen is the workload that the paper names,
//! and the parameters that stand once in [`Parameters`].

pub mod figures;
mod lab;
mod outcome;
mod parameters;
mod plot;
pub mod report;

pub use figures::Figure;
pub use lab::{Chain, Lab, Setup, nt};
pub use outcome::{Axis, Bound, Check, Origin, Outcome, Plot, Series, Style, Table, number};
pub use parameters::{Parameter, Parameters};
pub use plot::svg;
pub use report::Done;

/// Regenerates one figure.
pub fn regenerate(figure: &'static Figure, parameters: &Parameters) -> anyhow::Result<Done> {
    let outcome = (figure.run)(parameters)?;
    let draw = |plot| svg(figure.title, plot);
    let svg = outcome.plot.as_ref().map(draw).transpose()?;
    Ok(Done { figure, outcome, svg })
}
