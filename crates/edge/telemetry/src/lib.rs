//! Logs, metrics and traces: set-up and names.
//!
//! Every program of the project logs to standard error, one line per event, as text or JSON; standard
//! output is for results.

#![warn(clippy::missing_errors_doc)]

mod export;
mod logs;
pub mod metrics;
mod openmetrics;
mod process;
mod tail;
mod text;
pub mod trace;

use std::str::FromStr;

pub use export::{METRICS_INTERVAL, Otlp, Telemetry};
pub use process::process_readings;
pub use tail::last_lines;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// Target of lines that stay on standard error, at the level DEBUG: successful calls that are not traced. A collector gets
/// their count and duration from the metrics.
pub const UNREMARKABLE: &str = "snic_server::unremarkable";

/// Format of log lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Text for people.
    #[default]
    Human,
    /// One JSON object per line.
    Json,
}

/// An unknown log format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown log format {0:?} (allowed: \"human\", \"json\")")]
pub struct InvalidLogFormat(String);

impl FromStr for LogFormat {
    type Err = InvalidLogFormat;

    fn from_str(text: &str) -> Result<Self, InvalidLogFormat> {
        match text {
            "human" => Ok(Self::Human),
            "json" => Ok(Self::Json),
            other => Err(InvalidLogFormat(other.to_owned())),
        }
    }
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum InvalidLog {
    /// The filter is malformed.
    #[error("invalid log filter {filter:?} (expected e.g. \"info,snic_server=debug\")")]
    Filter {
        filter: String,
        #[source]
        source: ParseError,
    },
    /// The exporter cannot be set up.
    #[error("cannot set up the telemetry export: {0}")]
    Export(String),
    /// Logging is set up already.
    #[error("logging is set up already")]
    AlreadySetUp,
}

/// Says which build this process is, for the metric `snic.build.info`; the first call counts.
pub fn set_build(version: &'static str, commit: &'static str) {
    process::set_build(version, commit);
}

/// Sets up logging for the whole process. `filter` is a comma-separated list of `target=level`, as for
/// `tracing_subscriber::filter::Targets`.
///
/// # Errors
/// [`InvalidLog::Filter`] for a malformed filter, [`InvalidLog::AlreadySetUp`] at a second call.
pub fn init_log(filter: &str, format: LogFormat) -> Result<(), InvalidLog> {
    let set = tracing_subscriber::registry().with(lines(filter, format)?).try_init();
    set.map_err(|_| InvalidLog::AlreadySetUp)
}

/// Sets up logging, metrics and traces of a service. With a collector, all of them are exported; the caller must then
/// be inside a tokio runtime.
///
/// # Errors
/// [`InvalidLog`]; after [`InvalidLog::AlreadySetUp`] the earlier set-up stays in force.
pub fn init(
    filter: &str,
    format: LogFormat,
    (service, otlp): (&'static str, Option<Otlp<'_>>),
) -> Result<Telemetry, InvalidLog> {
    let lines = lines(filter, format)?;
    let telemetry = Telemetry::new(service, otlp)?;
    let of_traces = Targets::new()
        .with_target(trace::CALL, LevelFilter::INFO)
        .with_target(trace::TARGET, LevelFilter::DEBUG);
    let spans = telemetry.tracer().map(|tracer| {
        // Source location and thread of a step are of no use to anybody.
        let layer = tracing_opentelemetry::layer().with_tracer(tracer);
        layer.with_location(false).with_threads(false).with_filter(of_traces)
    });
    // The exporter's own log lines are not exported.
    let ours = Targets::new()
        .with_target("snic", LevelFilter::INFO)
        .with_target(trace::TARGET, LevelFilter::OFF)
        .with_target(UNREMARKABLE, LevelFilter::OFF);
    let logs = telemetry.exported_lines().map(|lines| lines.with_filter(ours));
    let set = tracing_subscriber::registry().with(spans).with(logs).with(lines).try_init();
    set.map_err(|_| InvalidLog::AlreadySetUp)?;
    Ok(telemetry)
}

/// Log lines on standard error.
fn lines<S>(filter: &str, format: LogFormat) -> Result<impl Layer<S>, InvalidLog>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    let targets: Targets = filter
        .parse()
        .map_err(|source| InvalidLog::Filter { filter: filter.to_owned(), source })?;
    let writer = move || tail::StderrTail(format);
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).with_ansi(false);
    let lines = match format {
        LogFormat::Human => lines.boxed(),
        LogFormat::Json => lines.json().boxed(),
    };
    Ok(lines.with_filter(targets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_parsed() {
        assert_eq!("json".parse(), Ok(LogFormat::Json));
        assert_eq!("human".parse(), Ok(LogFormat::Human));
        let error = "xml".parse::<LogFormat>().expect_err("no format");
        assert!(error.to_string().contains("\"xml\""), "{error}");
    }

    #[test]
    fn an_invalid_filter_and_a_second_set_up_are_errors() {
        let error = init_log("snic=loud", LogFormat::Human).expect_err("no level");
        assert!(error.to_string().contains("snic=loud"), "{error}");
        assert!(init_log("info", LogFormat::Human).is_ok());
        assert!(matches!(init_log("info", LogFormat::Json), Err(InvalidLog::AlreadySetUp)));
    }
}
