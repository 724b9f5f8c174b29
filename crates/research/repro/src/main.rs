//! Regenerates figures and tables of the papers: `snic-repro all`, or some by name.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use snic_output::{complain, out};
use snic_repro::{
    Figure, FigureOutcome, NumberKind, Parameter, Parameters, RegeneratedFigure, figures,
    regenerate, report, svg, sweep,
};

/// Regenerates the figures of the SuperNIC, FlexPipe and BlueField papers through the product's own planner,
/// controller and tables, on the simulated card.
#[derive(Debug, Parser)]
#[command(name = "snic-repro", version, args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Subcommand>,
    /// Figures to regenerate: `all`, or names such as fig8 or flexpipe-fig3. Without any, lists them.
    figures: Vec<String>,
    #[command(flatten)]
    run: RunArguments,
}

#[derive(Debug, clap::Args)]
struct RunArguments {
    /// Where CSV files, SVG plots and report.html go.
    #[arg(long, default_value = "target/repro")]
    out: PathBuf,
    /// Sets a parameter for this run, e.g. fig16.more=3; may be repeated. `parameters` lists them.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = assignment)]
    set: Vec<(String, String)>,
    /// The card's clock, e.g. 200MHz: card.clock_hz.
    #[arg(long)]
    clock: Option<String>,
    /// Initial credits of a region's NTs: card.credits_initial.
    #[arg(long)]
    credits: Option<u8>,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Lists all parameters with their values and sources.
    Parameters {
        #[command(flatten)]
        run: RunArguments,
    },
    /// Runs a figure with several values of one parameter; writes a table and a plot.
    Sweep {
        /// The parameter, e.g. fig16.more.
        key: String,
        /// Its values: 1..5, or a list such as 1,2,4.
        values: String,
        /// The figure; without it, the one that the key begins with.
        #[arg(long)]
        figure: Option<String>,
        /// Number of values of a range.
        #[arg(long, default_value_t = 9)]
        steps: usize,
        #[command(flatten)]
        run: RunArguments,
    },
}

fn assignment(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').ok_or("expected KEY=VALUE, e.g. fig16.more=3")?;
    Ok((parts.0.trim().into(), parts.1.trim().into()))
}

impl RunArguments {
    fn parameters(&self) -> Result<Parameters> {
        let mut parameters = Parameters::load()?;
        if let Some(clock) = &self.clock {
            parameters.set("card.clock_hz", clock)?;
        }
        if let Some(credits) = self.credits {
            parameters.set("card.credits_initial", &credits.to_string())?;
        }
        for (key, value) in &self.set {
            parameters.set(key, value)?;
        }
        Ok(parameters)
    }

    fn folder(&self) -> Result<&Path> {
        std::fs::create_dir_all(&self.out)
            .with_context(|| format!("cannot create {}", self.out.display()))?;
        Ok(&self.out)
    }
}

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return snic_output::exit_code(error.print(), error.exit_code()),
    };
    let outside = match &arguments.command {
        Some(Subcommand::Parameters { run }) => list(run).map(|()| 0),
        Some(Subcommand::Sweep { key, values, figure, steps, run }) => {
            sweep::values(values, *steps)
                .and_then(|values| sweep_figure(run, key, figure.as_deref(), &values))
                .map(|()| 0)
        }
        None => regenerate_all(&arguments),
    };
    match outside {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            complain!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn list(run: &RunArguments) -> Result<()> {
    for Parameter { name, value, source, changed } in run.parameters()?.list() {
        let changed = if changed { " (set)" } else { "" };
        out!("{name} = {value}{changed}\n    {source}")?;
    }
    Ok(())
}

fn sweep_figure(run: &RunArguments, key: &str, figure: Option<&str>, values: &[f64]) -> Result<()> {
    let id = figure.or_else(|| key.split('.').next()).unwrap_or_default();
    let figure = figures::find(id).with_context(|| {
        format!("{key} belongs to no figure by its name: name one with --figure")
    })?;
    let outcome = sweep::run(figure, &run.parameters()?, key, values)?;
    let folder = run.folder()?;
    let name = format!("sweep-{}-{key}", figure.id);
    let svg = outcome.plot.as_ref().map(|plot| svg(&format!("{id} by {key}"), plot)).transpose()?;
    for row in &outcome.table.rows {
        out!("{key} = {:<10} {} of {} inside", row[0], row[1], row[2])?;
    }
    write(folder, &name, &outcome, svg.as_deref())?;
    out!("{}", folder.join(format!("{name}.svg")).display())?;
    Ok(())
}

/// The number of results outside their tolerance.
fn regenerate_all(arguments: &Arguments) -> Result<usize> {
    let chosen = choose(&arguments.figures)?;
    let parameters = arguments.run.parameters()?;
    if chosen.is_empty() {
        let mut all = figures::ALL.iter();
        all.try_for_each(|figure| out!("{:<16} {}", figure.id, figure.title))?;
        return Ok(0);
    }
    let folder = arguments.run.folder()?;
    let mut done: Vec<RegeneratedFigure> = Vec::new();
    for (number, figure) in chosen.iter().enumerate() {
        out!("[{}/{}] {:<16} {}", number + 1, chosen.len(), figure.id, figure.title)?;
        let begin = std::time::Instant::now();
        let one =
            regenerate(figure, &parameters).with_context(|| format!("figure {}", figure.id))?;
        write(folder, figure.id, &one.outcome, one.svg.as_deref())?;
        say(&one, begin.elapsed())?;
        done.push(one);
    }
    let page = folder.join("report.html");
    std::fs::write(&page, report::html(&done, &parameters.list()))
        .with_context(|| format!("cannot write {}", page.display()))?;
    let [predicted, derived, fitted, entered] =
        NumberKind::ALL.map(|kind| report::score(&done, kind));
    out!(
        "{predicted} predicted numbers inside (derived {derived}, fitted {fitted}, entered {entered}): {}",
        page.display()
    )?;
    Ok(done.iter().map(|one| one.outcome.outside()).sum())
}

fn choose(names: &[String]) -> Result<Vec<&'static Figure>> {
    if names.iter().any(|name| name == "all") {
        return Ok(figures::ALL.iter().collect());
    }
    let find = |name: &String| match figures::find(name) {
        Some(figure) => Ok(figure),
        None => {
            let known: Vec<&str> = figures::ALL.iter().map(|figure| figure.id).collect();
            bail!("unknown figure {name} (expected all, {})", known.join(", "))
        }
    };
    names.iter().map(find).collect()
}

fn write(folder: &Path, id: &str, outcome: &FigureOutcome, svg: Option<&str>) -> Result<()> {
    let csv = outcome.csv();
    for (ending, text) in [("csv", Some(csv.as_str())), ("svg", svg)] {
        let path = folder.join(format!("{id}.{ending}"));
        if let Some(text) = text {
            std::fs::write(&path, text)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

fn say(done: &RegeneratedFigure, took: std::time::Duration) -> std::io::Result<()> {
    let checks = &done.outcome.checks;
    for check in checks.iter().filter(|check| !check.is_inside()) {
        let bound = check.expected.bound;
        let (expected, tolerance) = (bound.expected(), bound.tolerance());
        let ours = snic_repro::number(check.ours);
        out!(
            "      OUTSIDE {}: {ours} {}, expected {expected} ({tolerance}, {})",
            check.what,
            check.unit,
            check.expected.kind.name()
        )?;
    }
    let inside = checks.len() - done.outcome.outside();
    out!("      {inside} of {} inside, {:.1} s", checks.len(), took.as_secs_f64())
}
