//! `cargo xtask bench`: runs the benchmarks and prints their medians with the machine they were
//! taken on, since a figure without its machine says nothing. The figures are read from the files
//! that criterion leaves, and only those of this run: older ones may stem from other code.
//!
//! With `--thresholds`, each median that `crates/tools/xtask/thresholds.toml` names is held against its threshold: a time, or
//! so many times another median of the same run, which says the same on a slow or busy machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context;
use serde::Deserialize;
use serde_json::Value;

use crate::command::{self, cargo};
use crate::workspace::Workspace;

/// The result of a benchmark.
#[derive(Debug, Clone, PartialEq)]
struct Median {
    name: String,
    nanoseconds: f64,
    /// Work per iteration, if the benchmark declares it.
    throughput: Option<Throughput>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Throughput {
    Elements(f64),
    Bytes(f64),
}

/// Limit of a median.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
enum Threshold {
    /// At most so long, in microseconds.
    Microseconds(f64),
    /// At most so many times another benchmark's median.
    Ratio { times: f64, of: String },
}

impl Threshold {
    /// Nanoseconds that a median may have; `None` where the other one was not measured.
    fn most(&self, medians: &[Median]) -> Option<f64> {
        match self {
            Self::Microseconds(most) => Some(most * 1_000.0),
            Self::Ratio { times, of } => Some(times * median_of(medians, of)?.nanoseconds),
        }
    }
}

fn median_of<'a>(medians: &'a [Median], name: &str) -> Option<&'a Median> {
    medians.iter().find(|median| median.name == name)
}

/// Where the thresholds are, from the root.
const THRESHOLDS: &str = "crates/tools/xtask/thresholds.toml";

/// Runs all benchmarks. Returns whether they all succeeded, and kept to the thresholds where these are asked for.
///
/// # Errors
/// Cargo cannot be started, or criterion's files or the thresholds cannot be read.
pub fn run(
    workspace: &Workspace,
    arguments: &[String],
    has_thresholds: bool,
) -> anyhow::Result<bool> {
    let thresholds = if has_thresholds {
        let text = fs::read_to_string(workspace.root.join(THRESHOLDS)).context(THRESHOLDS)?;
        toml::from_str(&text).context(THRESHOLDS)?
    } else {
        BTreeMap::new()
    };
    let selection = selection(workspace);
    if selection.is_empty() {
        println!("no benchmarks found");
        return Ok(true);
    }
    let results = workspace.target.join("criterion");
    let start = SystemTime::now();
    let mut command = cargo(&workspace.root, &["bench"]);
    command.args(selection).arg("--").args(arguments).env("CRITERION_HOME", &results);
    let success = command::succeeds(&mut command)?;
    let mut medians = Vec::new();
    for file in estimates(&results, start)? {
        medians.push(read(&file).with_context(|| format!("reading {}", file.display()))?);
    }
    medians.sort_by(|left, right| left.name.cmp(&right.name));
    println!("\n{}\n{}", machine(), table(&medians));
    let over = over(&medians, &thresholds);
    over.iter().for_each(|line| println!("{line}"));
    Ok(success && over.is_empty())
}

/// Medians over their thresholds, which are by name, and thresholds of what was not measured.
fn over(medians: &[Median], thresholds: &BTreeMap<String, Threshold>) -> Vec<String> {
    let judge = |(name, threshold): (&String, &Threshold)| {
        let (median, most) = (median_of(medians, name), threshold.most(medians));
        let Some((median, nanoseconds)) = median.zip(most) else {
            return Some(format!("{name}: has a threshold, and was not measured"));
        };
        let (took, most) = (duration(median.nanoseconds), duration(nanoseconds));
        let is_over = median.nanoseconds > nanoseconds;
        is_over.then(|| format!("{name}: {took}, over its threshold of {most}"))
    };
    thresholds.iter().filter_map(judge).collect()
}

/// The benchmark targets by name. `cargo bench` alone would also run unit tests as benchmarks, which do not
/// accept criterion's options.
fn selection(workspace: &Workspace) -> Vec<String> {
    let mut arguments = Vec::new();
    for member in workspace.members.iter().filter(|member| !member.benches.is_empty()) {
        arguments.extend(["--package".to_owned(), member.name.clone()]);
        for bench in &member.benches {
            arguments.extend(["--bench".to_owned(), bench.clone()]);
        }
    }
    arguments
}

/// The files `…/new/estimates.json` below `folder` that were written since `start`.
fn estimates(folder: &Path, start: SystemTime) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries {
            let path = entry?.path();
            let is_estimate = path.ends_with("new/estimates.json");
            if path.is_dir() {
                folders.push(path);
            } else if is_estimate && fs::metadata(&path)?.modified()? >= start {
                found.push(path);
            }
        }
    }
    Ok(found)
}

fn read(estimates: &Path) -> anyhow::Result<Median> {
    let description = fs::read_to_string(estimates.with_file_name("benchmark.json"))?;
    median(&description, &fs::read_to_string(estimates)?)
}

/// A result from criterion's two files: the description and the estimates.
fn median(description: &str, estimates: &str) -> anyhow::Result<Median> {
    let description: Value = serde_json::from_str(description)?;
    let estimates: Value = serde_json::from_str(estimates)?;
    let name = description["full_id"].as_str().context("no full_id in benchmark.json")?;
    let nanoseconds =
        estimates["median"]["point_estimate"].as_f64().context("no median in estimates.json")?;
    let figure = |unit: &str| description["throughput"][unit].as_f64();
    let throughput = figure("Elements")
        .map(Throughput::Elements)
        .or_else(|| figure("Bytes").or_else(|| figure("BytesDecimal")).map(Throughput::Bytes));
    Ok(Median { name: name.to_owned(), nanoseconds, throughput })
}

fn table(medians: &[Median]) -> String {
    let width = medians.iter().map(|median| median.name.len()).max().unwrap_or(0).max(9);
    let mut text = format!("{:width$}  {:>10}  {:>16}\n", "benchmark", "median", "rate");
    for median in medians {
        let rate = median.throughput.map(|throughput| rate(throughput, median.nanoseconds));
        let (time, rate) = (duration(median.nanoseconds), rate.unwrap_or_default());
        let line = format!("{:width$}  {time:>10}  {rate:>16}", median.name);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn duration(nanoseconds: f64) -> String {
    scaled(nanoseconds, &[(1e9, " s"), (1e6, " ms"), (1e3, " µs"), (1.0, " ns")])
}

fn rate(throughput: Throughput, nanoseconds: f64) -> String {
    let per_second = |amount: f64| amount * 1e9 / nanoseconds;
    match throughput {
        Throughput::Elements(amount) => {
            let scale = [(1e9, " G/s"), (1e6, " M/s"), (1e3, " k/s"), (1.0, " /s")];
            scaled(per_second(amount), &scale)
        }
        Throughput::Bytes(amount) => {
            let scale = [(1e9, " GB/s"), (1e6, " MB/s"), (1e3, " kB/s"), (1.0, " B/s")];
            scaled(per_second(amount), &scale)
        }
    }
}

/// `value` in the largest unit that fits, with about three significant digits.
fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let smallest = units.last().copied().unwrap_or((1.0, ""));
    let (unit, name) = units.iter().copied().find(|(unit, _)| value >= *unit).unwrap_or(smallest);
    let value = value / unit;
    let places = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.places$}{name}")
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = model(&processors).unwrap_or("unknown processor");
    format!("{model}, {cores} cores; medians")
}

fn model(processors: &str) -> Option<&str> {
    let line = processors.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::workspace::tests::member;

    const DESCRIPTION: &str = r#"{"group_id":"plan","function_id":"one dag","value_str":"1000",
        "throughput":{"Elements":1},"full_id":"plan/one dag/1000",
        "directory_name":"plan/one dag/1000","title":"plan/one dag/1000"}"#;
    const ESTIMATES: &str = r#"{"mean":{"confidence_interval":{"confidence_level":0.95,
        "lower_bound":1.0,"upper_bound":2.0},"point_estimate":999.0,"standard_error":0.1},
        "median":{"confidence_interval":{"confidence_level":0.95,"lower_bound":41000.0,
        "upper_bound":44000.0},"point_estimate":42500.0,"standard_error":9.0},"slope":null}"#;

    #[test]
    fn the_median_is_read_from_criterions_two_files() {
        assert_eq!(
            median(DESCRIPTION, ESTIMATES).unwrap(),
            Median {
                name: "plan/one dag/1000".to_owned(),
                nanoseconds: 42_500.0,
                throughput: Some(Throughput::Elements(1.0)),
            }
        );
        assert!(median("{}", ESTIMATES).unwrap_err().to_string().contains("full_id"));
        assert!(median(DESCRIPTION, "{}").unwrap_err().to_string().contains("median"));
        assert!(median(DESCRIPTION, "not json").is_err());
    }

    #[test]
    fn medians_are_held_against_their_thresholds() {
        let medians = [median(DESCRIPTION, ESTIMATES).unwrap()]; // 42.5 µs
        let judged = |text: &str| over(&medians, &toml::from_str(text).unwrap());
        assert!(judged("\"plan/one dag/1000\" = 42.5").is_empty());
        assert!(judged("").is_empty());
        let said = ["plan/one dag/1000: 42.5 µs, over its threshold of 42.4 µs"];
        assert_eq!(judged("\"plan/one dag/1000\" = 42.4"), said);
        let said = ["plan/gone: has a threshold, and was not measured"];
        assert_eq!(judged("\"plan/gone\" = 1.0"), said);
        let name = "plan/one dag/1000";
        let beside = |times: f64, of: &str| {
            judged(&format!("\"{name}\" = {{ times = {times:?}, of = \"{of}\" }}"))
        };
        assert!(beside(1.0, name).is_empty());
        let said = ["plan/one dag/1000: 42.5 µs, over its threshold of 38.2 µs"];
        assert_eq!(beside(0.9, name), said);
        assert_eq!(
            beside(9.0, "plan/gone"),
            ["plan/one dag/1000: has a threshold, and was not measured"]
        );
    }

    #[test]
    fn the_thresholds_of_the_project_can_be_read() {
        let text = include_str!("../thresholds.toml");
        let thresholds: BTreeMap<String, Threshold> = toml::from_str(text).unwrap();
        assert!(!thresholds.is_empty());
        for (name, threshold) in &thresholds {
            let (most, of) = match threshold {
                Threshold::Microseconds(most) => (most, name),
                Threshold::Ratio { times, of } => (times, of),
            };
            assert!(*most > 0.0 && !of.is_empty(), "{name}");
        }
    }

    #[test]
    fn the_table_is_aligned() {
        let bytes = Some(Throughput::Bytes(4096.0));
        let medians = [
            median(DESCRIPTION, ESTIMATES).unwrap(),
            Median { name: "encode".to_owned(), nanoseconds: 2048.0, throughput: bytes },
            Median { name: "open".to_owned(), nanoseconds: 1.5e9, throughput: None },
        ];
        assert_eq!(
            table(&medians),
            "benchmark              median              rate\n\
             plan/one dag/1000     42.5 µs          23.5 k/s\n\
             encode                2.05 µs         2.00 GB/s\n\
             open                   1.50 s\n"
        );
    }

    #[test]
    fn units_suit_the_value() {
        assert_eq!(duration(0.4), "0.40 ns");
        assert_eq!(duration(999.0), "999 ns");
        assert_eq!(duration(1_000.0), "1.00 µs");
        assert_eq!(duration(12_345_678.0), "12.3 ms");
        assert_eq!(rate(Throughput::Elements(64.0), 1e9), "64.0 /s");
    }

    #[test]
    fn only_figures_of_this_run_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, file: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(&path).unwrap();
            fs::write(path.join(file), ESTIMATES).unwrap();
            fs::write(path.join("benchmark.json"), DESCRIPTION).unwrap();
            path.join(file)
        };
        let start = SystemTime::now();
        let fresh = write("plan/one/new", "estimates.json");
        let stale = write("plan/old/new", "estimates.json");
        write("plan/one/base", "estimates.json");
        write("plan/one/new", "sample.json");
        // Clocks of file systems tick in steps: both stamps are set, one on each side.
        let stamp = |path: &Path, time| {
            fs::File::options().append(true).open(path).unwrap().set_modified(time).unwrap();
        };
        stamp(&fresh, start + Duration::from_secs(5));
        stamp(&stale, start - Duration::from_secs(5));
        assert_eq!(estimates(folder.path(), start).unwrap(), std::slice::from_ref(&fresh));
        assert_eq!(read(&fresh).unwrap(), median(DESCRIPTION, ESTIMATES).unwrap());
        assert!(estimates(&folder.path().join("absent"), start).unwrap().is_empty());
    }

    #[test]
    fn only_crates_with_benchmarks_are_run() {
        let mut planner = member("planner", &[]);
        planner.benches = vec!["plan".to_owned(), "split".to_owned()];
        let workspace = Workspace {
            root: PathBuf::new(),
            target: PathBuf::new(),
            members: vec![member("domain", &[]), planner],
            packages: Vec::new(),
        };
        let expected = ["--package", "snic-planner", "--bench", "plan", "--bench", "split"];
        assert_eq!(selection(&workspace), expected);
    }

    #[test]
    fn the_processor_is_named() {
        let text = "processor\t: 0\nmodel name\t: Some CPU @ 2.5GHz\nflags\t: a b\n";
        assert_eq!(model(text), Some("Some CPU @ 2.5GHz"));
        assert_eq!(model("processor: 0\n"), None);
    }
}
