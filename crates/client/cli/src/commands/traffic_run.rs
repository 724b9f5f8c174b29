//! `snicctl traffic run`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use snic_api::v1::dag::PacketSize;
use snic_api::v1::{
    PacketHeaders, PacketLatency, RunTrafficRequest, RunTrafficResponse, TrafficCounts,
};
use snic_client::Failure;
use snic_client::output::{Style, table};
use tonic::Streaming;

use super::{CliSession, capture_file};
use crate::args::{HeaderOptions, PacketChoice, RunOptions};

/// Packets that network tasks took in are not lost.
const USED_UP: &str = "USED_UP";
/// Less than this part of the asked rate, or of the host's time, is told.
const NOTED_BELOW: f64 = 0.95;

/// Counts of the packets of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrafficReport {
    /// `tenants/{tenant}/dags/{dag}`.
    pub dag: String,
    /// Bits per second that were asked for.
    pub asked_bps: u64,
    /// Duration by the host's clock.
    pub seconds: f64,
    /// Duration by the card's clock.
    pub card_seconds: f64,
    /// Bits per second that the card made.
    pub offered_bps: u64,
    /// Bits per second that left the DAG.
    pub served_bps: u64,
    /// Packets that the card made.
    pub packets_offered: u64,
    /// Packets that left the DAG.
    pub packets_served: u64,
    /// Packets that network tasks made while these passed.
    pub packets_emitted: u64,
    /// Packets that did not leave, by cause.
    pub dropped: BTreeMap<String, u64>,
    /// Lost part, in percent of the packets.
    pub lost_percent: f64,
    /// Latencies in nanoseconds; none where no packet left.
    pub latency_ns: Option<LatencyReport>,
}

/// Latencies of packets, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LatencyReport {
    pub min: u64,
    pub mean: u64,
    pub p50: u64,
    /// Exceeded by one packet in ten.
    pub p90: u64,
    /// Exceeded by one packet in a hundred.
    pub p99: u64,
    /// Exceeded by one packet in a thousand.
    pub p999: u64,
    pub max: u64,
}

fn time(time: Option<&prost_types::Duration>) -> Duration {
    time.and_then(|time| Duration::try_from(*time).ok()).unwrap_or_default()
}

fn latency(latency: &PacketLatency) -> LatencyReport {
    let nanos = |of: &Option<prost_types::Duration>| {
        u64::try_from(time(of.as_ref()).as_nanos()).unwrap_or(u64::MAX)
    };
    LatencyReport {
        min: nanos(&latency.min),
        mean: nanos(&latency.mean),
        p50: nanos(&latency.p50),
        p90: nanos(&latency.p90),
        p99: nanos(&latency.p99),
        p999: nanos(&latency.p999),
        max: nanos(&latency.max),
    }
}

/// Bits per second of bytes in a time; 0 in no time.
fn bps(bytes: u64, seconds: f64) -> u64 {
    if seconds > 0.0 { (bytes as f64 * 8.0 / seconds).round() as u64 } else { 0 }
}

/// The sum of losses: drops without what network tasks took in.
fn lost(counts: &TrafficCounts) -> u64 {
    counts.drops.iter().filter(|drops| drops.cause != USED_UP).map(|drops| drops.packets).sum()
}

fn percent(part: u64, all: u64) -> f64 {
    if all > 0 { part as f64 * 100.0 / all as f64 } else { 0.0 }
}

fn report(name: &str, asked_bps: u64, host: Duration, counts: &TrafficCounts) -> TrafficReport {
    let card_seconds = time(counts.elapsed.as_ref()).as_secs_f64();
    let drops = counts.drops.iter().map(|drops| (drops.cause.clone(), drops.packets));
    let came = counts.packets_offered + counts.packets_emitted;
    TrafficReport {
        dag: name.to_owned(),
        asked_bps,
        seconds: host.as_secs_f64(),
        card_seconds,
        offered_bps: bps(counts.bytes_offered, card_seconds),
        served_bps: bps(counts.bytes_served, card_seconds),
        packets_offered: counts.packets_offered,
        packets_served: counts.packets_served,
        packets_emitted: counts.packets_emitted,
        dropped: drops.collect(),
        lost_percent: percent(lost(counts), came),
        latency_ns: counts.latency.as_ref().map(latency),
    }
}

/// A rate in four digits.
fn rate(bps: u64) -> String {
    let scaled = |unit: f64, name: &str| {
        let value = bps as f64 / unit;
        let digits = if value >= 100.0 {
            1
        } else if value >= 10.0 {
            2
        } else {
            3
        };
        format!("{value:.digits$} {name}")
    };
    match bps {
        1_000_000_000.. => scaled(1e9, "Gbps"),
        1_000_000.. => scaled(1e6, "Mbps"),
        1_000.. => scaled(1e3, "kbps"),
        _ => format!("{bps} bps"),
    }
}

fn short(nanos: u64) -> String {
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.2} µs", nanos as f64 / 1e3),
        _ => format!("{:.2} ms", nanos as f64 / 1e6),
    }
}

/// Progress of a run, in a line.
fn progress(message: &RunTrafficResponse) -> String {
    let none = TrafficCounts::default();
    let total = message.total.as_ref().unwrap_or(&none);
    let recent = message.recent.as_ref().unwrap_or(&none);
    let seconds = time(recent.elapsed.as_ref()).as_secs_f64();
    let (offered, served) = (bps(recent.bytes_offered, seconds), bps(recent.bytes_served, seconds));
    let came = recent.packets_offered + recent.packets_emitted;
    let p99 = recent.latency.as_ref().map(|seen| short(latency(seen).p99));
    format!(
        "{:7.1} s  offered {:>11}  served {:>11}  lost {:6.2} %  p99 {}",
        time(total.elapsed.as_ref()).as_secs_f64(),
        rate(offered),
        rate(served),
        percent(lost(recent), came),
        p99.as_deref().unwrap_or("-")
    )
}

/// The report for people.
pub fn render(report: &TrafficReport, style: Style) -> String {
    let seconds = report.card_seconds;
    let pps = |packets: u64| {
        if seconds > 0.0 { format!("{:.0}", packets as f64 / seconds) } else { "0".to_owned() }
    };
    let row = |name: &str, offered: String, served: String| vec![name.to_owned(), offered, served];
    let rows = vec![
        row("Rate", rate(report.offered_bps), rate(report.served_bps)),
        row("Packets", report.packets_offered.to_string(), report.packets_served.to_string()),
        row("Packets/s", pps(report.packets_offered), pps(report.packets_served)),
    ];
    let mut out = table::table(style, &["", "OFFERED", "SERVED"], rows);
    let causes: Vec<String> =
        report.dropped.iter().map(|(cause, packets)| format!("{packets} {cause}")).collect();
    let causes = if causes.is_empty() { "none".to_owned() } else { causes.join(", ") };
    out.push_str(&format!("\nLost     {:.2} %; dropped: {causes}\n", report.lost_percent));
    if let Some(LatencyReport { min, p50, p90, p99, p999, max, .. }) = report.latency_ns {
        let [min, p50, p90, p99, p999, max] = [min, p50, p90, p99, p999, max].map(short);
        out.push_str(&format!(
            "Latency  min {min}, median {p50}, p90 {p90}, p99 {p99}, p99.9 {p999}, max {max}\n"
        ));
    }
    if report.packets_emitted > 0 {
        let made = report.packets_emitted;
        out.push_str(&format!("{made} packets were made by network tasks, such as answers\n"));
    }
    if report.seconds > 0.0 && seconds < report.seconds * NOTED_BELOW {
        out.push_str(&format!(
            "this machine does not simulate as many packets in time: {seconds:.1} s of the card's \
             time took {:.1} s\n",
            report.seconds
        ));
    }
    if (report.offered_bps as f64) < report.asked_bps as f64 * NOTED_BELOW {
        out.push_str(&format!(
            "the card made less than the {} asked for\n",
            rate(report.asked_bps)
        ));
    }
    out
}

fn headers(options: &HeaderOptions) -> Option<PacketHeaders> {
    let text = |address: Option<std::net::IpAddr>| address.map(|a| a.to_string());
    options.is_any().then(|| PacketHeaders {
        source: text(options.source).unwrap_or_default(),
        destination: text(options.destination).unwrap_or_default(),
        protocol: options.protocol.clone().unwrap_or_default(),
        source_port: options.source_port.map(u32::from).unwrap_or_default(),
        destination_port: options.destination_port.map(u32::from).unwrap_or_default(),
        flows: options.flows.map(u32::from).unwrap_or_default(),
    })
}

fn request(name: &str, options: &RunOptions) -> Result<RunTrafficRequest, Failure> {
    let duration: Duration = options.duration.into();
    let mut request = RunTrafficRequest {
        name: name.to_owned(),
        rate_bps: options.rate.get(),
        // What is too long for the message is refused by the server, as what is too long for a run.
        duration: Some(
            duration.try_into().unwrap_or(prost_types::Duration { seconds: i64::MAX, nanos: 0 }),
        ),
        headers: headers(&options.headers),
        ..RunTrafficRequest::default()
    };
    match &options.size {
        PacketChoice::Imix => {}
        PacketChoice::Sizes(sizes) => {
            let size = |(bytes, weight): &(u32, u32)| PacketSize { bytes: *bytes, weight: *weight };
            request.packet_sizes = sizes.iter().map(size).collect();
        }
        PacketChoice::Capture(_) if request.headers.is_some() => {
            return Err(Failure::Usage {
                message: "packets of a capture have their own headers".to_owned(),
                hint: "leave --source, --destination, --protocol, ports and --flows out".to_owned(),
            });
        }
        PacketChoice::Capture(path) => {
            let capture = capture_file::read(path)?;
            capture.notices().iter().for_each(|notice| snic_output::complain!("{notice}"));
            request.frames = capture.frames;
        }
    }
    Ok(request)
}

/// Follows a run to its end, and prints how it goes on; gives the last counts, where there were any.
async fn follow(
    mut stream: Streaming<RunTrafficResponse>,
) -> Result<Option<TrafficCounts>, tonic::Status> {
    let mut last = None;
    loop {
        let message = tokio::select! {
            message = stream.message() => message?,
            // Without the signal, the time ends it.
            Ok(()) = tokio::signal::ctrl_c() => return Ok(last),
        };
        let Some(message) = message else { return Ok(last) };
        // Standard output is the report's.
        snic_output::complain!("{}", progress(&message));
        last = message.total.or(last);
    }
}

pub async fn run(session: &mut CliSession, options: RunOptions) -> Result<(), Failure> {
    let name = session.dag_name(&options.dag)?;
    let request = request(&name, &options)?;
    let client = session.client()?;
    let begun = std::time::Instant::now();
    let stream = snic_client::open!(client, traffic.run_traffic, request);
    let stream = stream.map_err(|status| client.failure(status))?;
    let counts = follow(stream).await.map_err(|status| client.failure(status))?;
    let Some(counts) = counts else {
        return Err(Failure::Usage {
            message: "the run was ended before there was anything to report".to_owned(),
            hint: "let it run for at least a second".to_owned(),
        });
    };
    // Counts are some moments old when they come, and a run takes a moment to end.
    let host = begun.elapsed().min(options.duration.into());
    let report = report(&name, options.rate.get(), host, &counts);
    let text = render(&report, session.output.style());
    session.output.plain(&report, &text)
}

#[cfg(test)]
mod tests {
    use snic_api::v1::PacketDrops;

    use super::*;

    fn plain() -> Style {
        Style {
            is_colour: false,
            width: snic_client::output::WIDTH,
            now: std::time::SystemTime::UNIX_EPOCH,
        }
    }

    fn nanos(nanos: i32) -> Option<prost_types::Duration> {
        Some(prost_types::Duration { seconds: 0, nanos })
    }

    fn counts() -> TrafficCounts {
        let drops = |cause: &str, packets| PacketDrops { cause: cause.into(), packets };
        TrafficCounts {
            elapsed: Some(prost_types::Duration { seconds: 2, nanos: 0 }),
            packets_offered: 1_000,
            bytes_offered: 1_250_000,
            packets_served: 890,
            bytes_served: 1_000_000,
            packets_emitted: 0,
            drops: vec![drops("RATE_LIMITED", 100), drops("USED_UP", 10)],
            latency: Some(PacketLatency {
                min: nanos(236),
                mean: nanos(400),
                p50: nanos(300),
                p90: nanos(900),
                p99: nanos(1_500),
                p999: nanos(2_500_000),
                max: nanos(3_000_000),
            }),
        }
    }

    #[test]
    fn the_report_says_rates_losses_by_cause_and_latencies() {
        let report = report("tenants/acme/dags/web", 5_000_000, Duration::from_secs(2), &counts());
        assert_eq!((report.offered_bps, report.served_bps), (5_000_000, 4_000_000));
        assert!((report.lost_percent - 10.0).abs() < 1e-9, "what was used up is not lost");
        let text = render(&report, plain());
        for part in [
            "Rate       5.000 Mbps  4.000 Mbps",
            "Packets/s  500         445",
            "Lost     10.00 %; dropped: 100 RATE_LIMITED, 10 USED_UP",
            "Latency  min 236 ns, median 300 ns, p90 900 ns, p99 1.50 µs, p99.9 2.50 ms, max 3.00 ms",
        ] {
            assert!(text.contains(part), "{part} in:\n{text}");
        }
        assert!(!text.contains("machine") && !text.contains("made"), "{text}");
    }

    #[test]
    fn a_machine_that_is_too_slow_is_told() {
        let slow = report("d", 5_000_000, Duration::from_secs(4), &counts());
        assert!(render(&slow, plain()).contains("2.0 s of the card's time took 4.0 s"));
        let less = report("d", 6_000_000, Duration::from_secs(2), &counts());
        let text = render(&less, plain());
        assert!(text.contains("the card made less than the 6.000 Mbps asked for"), "{text}");
    }

    #[test]
    fn a_run_without_packets_divides_by_nothing() {
        let report = report("d", 1, Duration::ZERO, &TrafficCounts::default());
        assert_eq!((report.offered_bps, report.latency_ns), (0, None));
        assert!(render(&report, plain()).contains("dropped: none"));
        let line = progress(&RunTrafficResponse::default());
        assert!(line.ends_with("p99 -"), "{line}");
    }
}
