//! Regenerates figures and tables of the papers: `snic-repro all`, or some by name.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use snic_repro::{Done, Figure, Parameters, figures, regenerate, report};

/// Regenerates the figures of the SuperNIC and FlexPipe papers through the product's own planner,
/// controller and tables, on the simulated card.
#[derive(Debug, Parser)]
#[command(name = "snic-repro", version)]
struct Arguments {
    /// Which: `all`, or names such as fig8 or flexpipe-fig3. Without any, lists them.
    figures: Vec<String>,
    /// Where CSV files, SVG plots and report.html go.
    #[arg(long, default_value = "target/repro")]
    out: PathBuf,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// How many numbers are outside their tolerance.
fn run(arguments: &Arguments) -> Result<usize> {
    let chosen = choose(&arguments.figures)?;
    if chosen.is_empty() {
        figures::ALL.iter().for_each(|figure| println!("{:<16} {}", figure.id, figure.title));
        return Ok(0);
    }
    let parameters = Parameters::load()?;
    let folder = &arguments.out;
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut done: Vec<Done> = Vec::new();
    for (number, figure) in chosen.iter().enumerate() {
        println!("[{}/{}] {:<16} {}", number + 1, chosen.len(), figure.id, figure.title);
        let begin = std::time::Instant::now();
        let one =
            regenerate(figure, &parameters).with_context(|| format!("figure {}", figure.id))?;
        write(folder, figure.id, &one)?;
        say(&one, begin.elapsed());
        done.push(one);
    }
    let page = folder.join("report.html");
    std::fs::write(&page, report::html(&done, &parameters.list()))
        .with_context(|| format!("cannot write {}", page.display()))?;
    let (all, outside) = done.iter().fold((0, 0), |(all, outside), one| {
        (all + one.outcome.checks.len(), outside + one.outcome.outside())
    });
    println!("{} of {all} numbers inside their tolerance; see {}", all - outside, page.display());
    Ok(outside)
}

fn choose(names: &[String]) -> Result<Vec<&'static Figure>> {
    if names.iter().any(|name| name == "all") {
        return Ok(figures::ALL.iter().collect());
    }
    let find = |name: &String| match figures::find(name) {
        Some(figure) => Ok(figure),
        None => {
            let known: Vec<&str> = figures::ALL.iter().map(|figure| figure.id).collect();
            bail!("there is no figure {name}; there are: all, {}", known.join(", "))
        }
    };
    names.iter().map(find).collect()
}

fn write(folder: &std::path::Path, id: &str, done: &Done) -> Result<()> {
    let files = [("csv", Some(done.outcome.csv())), ("svg", done.svg.clone())];
    for (ending, text) in files {
        let path = folder.join(format!("{id}.{ending}"));
        if let Some(text) = text {
            std::fs::write(&path, text)
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

fn say(done: &Done, took: std::time::Duration) {
    let checks = &done.outcome.checks;
    for check in checks.iter().filter(|check| !check.is_inside()) {
        let (expected, tolerance) = (check.bound.expected(), check.bound.tolerance());
        let ours = snic_repro::number(check.ours);
        println!(
            "      OUTSIDE {}: {ours} {}, expected {expected} ({tolerance})",
            check.what, check.unit
        );
    }
    let inside = checks.len() - done.outcome.outside();
    println!("      {inside} of {} inside, {:.1} s", checks.len(), took.as_secs_f64());
}
