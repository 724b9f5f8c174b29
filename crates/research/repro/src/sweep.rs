//! One figure over a range of one parameter: which numbers stay inside their tolerance, and up to
//! where.

use anyhow::{Context, Result, bail, ensure};

use crate::figures::Figure;
use crate::outcome::{Axis, DataTable, FigureOutcome, Plot, Series, number};
use crate::parameters::Parameters;

/// Most values of a sweep: each is a whole run of the figure.
const VALUES_MAX: usize = 100;
/// Lines of the plot besides the share of numbers inside; more cannot be told apart.
const LINES_MAX: usize = 9;

/// Values from `low..high`, both included, in equal steps, or as they are listed with commas.
///
/// # Errors
/// The text is neither, or has more than a hundred values.
pub fn values(text: &str, steps: usize) -> Result<Vec<f64>> {
    let number = |part: &str| -> Result<f64> {
        let value = part.trim().parse::<f64>().ok().filter(|value| value.is_finite());
        value.with_context(|| format!("not a number: {part} (expected e.g. 0.9..1.2 or 1,2,4)"))
    };
    let values = match text.split_once("..") {
        None => text.split(',').map(number).collect::<Result<Vec<_>>>()?,
        Some((low, high)) => {
            let (low, high) = (number(low)?, number(high)?);
            ensure!(low < high && steps > 1, "no range: {text} in {steps} steps");
            let step = (high - low) / (steps - 1) as f64;
            (0..steps).map(|at| low + step * at as f64).collect()
        }
    };
    ensure!(values.len() <= VALUES_MAX, "{} values (allowed: {VALUES_MAX})", values.len());
    Ok(values)
}

/// Runs a figure with each value of a parameter.
///
/// # Errors
/// The parameters reject a key or value. A run that fails is a row of the table.
pub fn run(
    figure: &Figure,
    parameters: &Parameters,
    key: &str,
    values: &[f64],
) -> Result<FigureOutcome> {
    let mut runs = Vec::new();
    for value in values {
        let mut with = parameters.clone();
        with.set(key, &value.to_string())?;
        runs.push((*value, (figure.run)(&with)));
    }
    let Some(checks) = runs.iter().find_map(|(_, run)| run.as_ref().ok()).map(|run| &run.checks)
    else {
        bail!("{} runs with no value of {key}", figure.id);
    };
    let names: Vec<String> = checks.iter().map(|check| check.what.clone()).collect();
    let mut table =
        DataTable { columns: vec![key.into(), "inside".into(), "of".into()], rows: Vec::new() };
    table.columns.extend(names.iter().cloned());
    let mut inside = Vec::new();
    let mut lines = vec![Vec::new(); names.len()];
    for (value, run) in &runs {
        let mut cells = vec![number(*value)];
        match run {
            Err(error) => cells.extend(["0".into(), "0".into(), format!("{error:#}")]),
            Ok(run) => {
                let held = run.checks.len() - run.outside();
                inside.push((*value, held as f64 / run.checks.len().max(1) as f64));
                cells.extend([held.to_string(), run.checks.len().to_string()]);
                for (check, line) in run.checks.iter().zip(&mut lines) {
                    cells.push(number(check.ours));
                    let reference = check.expected.bound.reference();
                    if reference != 0.0 && check.ours.is_finite() {
                        line.push((*value, check.ours / reference));
                    }
                }
            }
        }
        cells.resize(table.columns.len(), String::new());
        table.rows.push(cells);
    }
    let mut series = vec![Series::ours("numbers inside", inside)];
    let named = names.into_iter().zip(lines).filter(|(_, line)| !line.is_empty());
    series.extend(named.take(LINES_MAX).map(|(name, line)| Series::ours(name, line)));
    let (x, y) = ("Value of the parameter", "Ours, as a part of what is expected");
    let plot = Some(Plot { x, y, axis: Axis::Linear, series });
    Ok(FigureOutcome { table, plot, ..FigureOutcome::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_both_its_ends_and_a_list_its_values() {
        assert_eq!(values("1..2", 3).expect("a range"), [1.0, 1.5, 2.0]);
        assert_eq!(values("1,4, 2", 9).expect("a list"), [1.0, 4.0, 2.0]);
        for (text, steps) in [("2..1", 3), ("1..2", 1), ("a..b", 3), ("1,,2", 3), ("0..1", 101)] {
            assert!(values(text, steps).is_err(), "{text} in {steps} steps");
        }
    }
}
