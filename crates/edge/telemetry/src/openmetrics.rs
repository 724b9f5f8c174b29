//! Metrics in the text format of OpenMetrics 1.0, which Prometheus asks for first.
//!
//! It differs from Prometheus' own format: a counter's family is named without `_total`, bounds of buckets are written as floating-point
//! numbers, quotes are escaped in help texts, too, and `# EOF` at the end says that nothing was cut off.
//!
//! Source: the OpenMetrics specification, version 1.0.0, "Text Format".

use std::fmt::Write as _;

use prometheus::proto::{LabelPair, Metric, MetricFamily, MetricType};

/// The content type.
pub(crate) const FORMAT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Whether a header `accept` asks for this format no less than for Prometheus' own.
pub(crate) fn is_preferred(accept: &str) -> bool {
    let weight = |kind: &str| {
        let of = |item: &str| {
            let mut parts = item.split(';').map(str::trim);
            parts.next().filter(|named| named.eq_ignore_ascii_case(kind))?;
            let mut weight = 1.0;
            for parameter in parts {
                match parameter.split_once('=') {
                    Some(("q", text)) => weight = text.parse().unwrap_or(0.0),
                    Some(("version", version)) if kind == KIND && version != "1.0.0" => {
                        return None;
                    }
                    _ => {}
                }
            }
            Some(weight)
        };
        accept.split(',').filter_map(|item| of(item.trim())).fold(0.0, f64::max)
    };
    let own = weight(KIND);
    own > 0.0 && own >= weight("text/plain")
}

const KIND: &str = "application/openmetrics-text";
/// Suffix of a counter's samples.
const TOTAL: &str = "_total";

/// All families, and the end.
pub(crate) fn exposition(families: &[MetricFamily]) -> String {
    let mut text = String::new();
    for family in families {
        write_family(&mut text, family);
    }
    text + "# EOF\n"
}

/// The name of a family and its kind. A counter whose samples are not named `_total` is of no kind that the format knows.
fn kind(family: &MetricFamily) -> Option<(&str, &'static str)> {
    let name = family.name();
    match family.get_field_type() {
        MetricType::COUNTER => match name.strip_suffix(TOTAL) {
            Some(family) => Some((family, "counter")),
            None => Some((name, "unknown")),
        },
        MetricType::GAUGE => Some((name, "gauge")),
        MetricType::HISTOGRAM => Some((name, "histogram")),
        // There are none: what they say cannot be added up.
        MetricType::SUMMARY | MetricType::UNTYPED => None,
    }
}

fn write_family(text: &mut String, family: &MetricFamily) {
    let Some((name, kind)) = kind(family) else { return };
    let _ = writeln!(text, "# TYPE {name} {kind}");
    if !family.help().is_empty() {
        let _ = writeln!(text, "# HELP {name} {}", escaped(family.help()));
    }
    for metric in family.get_metric() {
        match family.get_field_type() {
            MetricType::COUNTER => {
                write_sample(text, family.name(), (metric, None), metric.get_counter().get_value());
            }
            MetricType::GAUGE => {
                write_sample(text, name, (metric, None), metric.get_gauge().get_value());
            }
            MetricType::HISTOGRAM => write_histogram(text, name, metric),
            MetricType::SUMMARY | MetricType::UNTYPED => {}
        }
    }
}

fn write_histogram(text: &mut String, name: &str, metric: &Metric) {
    let histogram = metric.get_histogram();
    let count = histogram.get_sample_count() as f64;
    let bucket = format!("{name}_bucket");
    let mut is_closed = false;
    for of in histogram.get_bucket() {
        is_closed |= of.upper_bound().is_infinite();
        let bound = number(of.upper_bound());
        write_sample(text, &bucket, (metric, Some(&bound)), of.cumulative_count() as f64);
    }
    if !is_closed {
        write_sample(text, &bucket, (metric, Some("+Inf")), count);
    }
    write_sample(text, &format!("{name}_count"), (metric, None), count);
    write_sample(text, &format!("{name}_sum"), (metric, None), histogram.get_sample_sum());
}

/// A line: name, labels, value.
fn write_sample(text: &mut String, name: &str, (of, bound): (&Metric, Option<&str>), value: f64) {
    let label = |pair: &LabelPair| format!("{}=\"{}\"", pair.name(), escaped(pair.value()));
    let labels = of.get_label().iter().map(label);
    let labels: Vec<String> = labels.chain(bound.map(|bound| format!("le=\"{bound}\""))).collect();
    let labels =
        if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
    let _ = writeln!(text, "{name}{labels} {}", number(value));
}

/// A number as the format has it: with a point, or an exponent.
fn number(value: f64) -> String {
    match value {
        of if of == f64::INFINITY => "+Inf".to_owned(),
        of if of == f64::NEG_INFINITY => "-Inf".to_owned(),
        of if of.is_nan() => "NaN".to_owned(),
        of => format!("{of:?}"),
    }
}

/// Backslashes, quotes and ends of lines, escaped.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use prometheus::{CounterVec, Gauge, Histogram, HistogramOpts, Opts, Registry};

    use super::*;

    #[test]
    fn families_are_written_as_the_format_says() {
        let registry = Registry::new();
        let counter =
            CounterVec::new(Opts::new("snic_calls_total", "Calls \"of\" a\nday"), &["by"]);
        let counter = counter.expect("a name");
        counter.with_label_values(&["a\"b\\c\nd"]).inc_by(3.0);
        let gauge = Gauge::new("snic_cards", "Cards").expect("a name");
        gauge.set(2.5);
        let opts = HistogramOpts::new("snic_seconds", "Time").buckets(vec![1.0, 2.5]);
        let histogram = Histogram::with_opts(opts).expect("buckets");
        [0.5, 2.0, 9.0].into_iter().for_each(|of| histogram.observe(of));
        registry.register(Box::new(counter)).expect("once");
        registry.register(Box::new(gauge)).expect("once");
        registry.register(Box::new(histogram)).expect("once");
        let text = exposition(&registry.gather());
        let lines: Vec<&str> = text.lines().collect();
        let due = [
            "# TYPE snic_calls counter",
            "# HELP snic_calls Calls \\\"of\\\" a\\nday",
            "snic_calls_total{by=\"a\\\"b\\\\c\\nd\"} 3.0",
            "# TYPE snic_cards gauge",
            "# HELP snic_cards Cards",
            "snic_cards 2.5",
            "# TYPE snic_seconds histogram",
            "# HELP snic_seconds Time",
            "snic_seconds_bucket{le=\"1.0\"} 1.0",
            "snic_seconds_bucket{le=\"2.5\"} 2.0",
            "snic_seconds_bucket{le=\"+Inf\"} 3.0",
            "snic_seconds_count 3.0",
            "snic_seconds_sum 11.5",
            "# EOF",
        ];
        assert_eq!(lines, due);
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn it_is_written_for_those_who_prefer_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        for accept in [prometheus, KIND, "text/plain, application/openmetrics-text; version=1.0.0"]
        {
            assert!(is_preferred(accept), "{accept}");
        }
        let others = [
            "",
            "*/*",
            "text/plain;version=0.0.4",
            "application/openmetrics-text;version=0.0.1",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=0.3, text/plain;q=0.9",
        ];
        assert!(others.iter().all(|accept| !is_preferred(accept)));
    }

    #[test]
    fn numbers_have_a_point_or_a_word() {
        let all = [1.0, -0.5, 1e300, f64::INFINITY, f64::NEG_INFINITY, f64::NAN].map(number);
        assert_eq!(all, ["1.0", "-0.5", "1e300", "+Inf", "-Inf", "NaN"]);
    }
}
