//! Logs, metrics and traces: set-up and the names used.
//!
//! Every program of the project writes its log to standard error, so that standard output stays
//! for what it was asked for; one line an event, for people or as JSON.

mod export;
mod logs;
pub mod metrics;
mod tail;
pub mod trace;

use std::str::FromStr;

pub use export::{METRICS_INTERVAL, Otlp, Telemetry};
pub use tail::last_lines;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// The target of lines that stay on standard error: those of calls that went well and that nobody
/// traces. A collector has their number and their time from the metrics.
pub const UNREMARKABLE: &str = "snic_server::unremarkable";

/// How log lines look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    #[default]
    Human,
    /// One JSON object a line.
    Json,
}

/// A text that names no log format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no log format; use \"human\" or \"json\"")]
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
    /// The filter is none.
    #[error("log filter {filter:?} is not valid; an example is \"info,snic_server=debug\"")]
    Filter {
        /// The filter.
        filter: String,
        /// What is wrong.
        #[source]
        source: ParseError,
    },
    /// Nothing can be exported to this endpoint.
    #[error("telemetry cannot be exported: {0}")]
    Export(String),
    /// It was set up before.
    #[error("logging is set up already")]
    Again,
}

/// Sets up logging for the whole process. `filter` is a list of `target=level`, comma separated, as
/// `tracing_subscriber::filter::Targets` reads it.
pub fn init_log(filter: &str, format: LogFormat) -> Result<(), InvalidLog> {
    let set = tracing_subscriber::registry().with(lines(filter, format)?).try_init();
    set.map_err(|_| InvalidLog::Again)
}

/// Sets up logging, and metrics and traces with it. With a collector all of it goes there too, and
/// this is called inside of tokio.
pub fn init(
    filter: &str,
    format: LogFormat,
    otlp: Option<Otlp<'_>>,
) -> Result<Telemetry, InvalidLog> {
    let lines = lines(filter, format)?;
    let telemetry = Telemetry::new(otlp)?;
    let of_traces = Targets::new()
        .with_target(trace::CALL, LevelFilter::INFO)
        .with_target(trace::TARGET, LevelFilter::DEBUG);
    let spans = telemetry.tracer().map(|tracer| {
        // Where in the source a step begins and on which thread tells nobody anything.
        let layer = tracing_opentelemetry::layer().with_tracer(tracer);
        layer.with_location(false).with_threads(false).with_filter(of_traces)
    });
    // What the exporter itself does is not exported.
    let ours = Targets::new()
        .with_target("snic", LevelFilter::INFO)
        .with_target(trace::TARGET, LevelFilter::OFF)
        .with_target(UNREMARKABLE, LevelFilter::OFF);
    let logs = telemetry.exported_lines().map(|lines| lines.with_filter(ours));
    let set = tracing_subscriber::registry().with(spans).with(logs).with(lines).try_init();
    set.map_err(|_| InvalidLog::Again)?;
    Ok(telemetry)
}

/// Lines on standard error.
fn lines<S>(filter: &str, format: LogFormat) -> Result<impl Layer<S>, InvalidLog>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    let targets: Targets = filter
        .parse()
        .map_err(|source| InvalidLog::Filter { filter: filter.to_owned(), source })?;
    let lines = tracing_subscriber::fmt::layer().with_writer(|| tail::Kept).with_ansi(false);
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
    fn formats_are_named() {
        assert_eq!("json".parse(), Ok(LogFormat::Json));
        assert_eq!("human".parse(), Ok(LogFormat::Human));
        let error = "xml".parse::<LogFormat>().expect_err("no format");
        assert!(error.to_string().contains("\"xml\""), "{error}");
    }

    #[test]
    fn a_bad_filter_is_named_and_a_second_set_up_refused() {
        let error = init_log("snic=loud", LogFormat::Human).expect_err("no level");
        assert!(error.to_string().contains("snic=loud"), "{error}");
        assert!(init_log("info", LogFormat::Human).is_ok());
        assert!(matches!(init_log("info", LogFormat::Json), Err(InvalidLog::Again)));
    }
}
