//! Runs of traffic: a card makes packets for a DAG, and the caller is told what becomes of them.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use snic_api::convert::binding::duration_to_wire as duration;
use snic_api::convert::dag::packet_sizes;
use snic_api::convert::name;
use snic_api::error::ApiError;
use snic_api::v1;
use snic_api::v1::ErrorReason;
use snic_controller::DropCause;
use snic_domain::{Bandwidth, Caller, CardId, DagName, DagUid};
use snic_front::error::shutting_down;
use snic_front::share::{CallerFlow, CallerLevel};
use snic_ports::generator::{
    GeneratedHeaders, GeneratedLoad, GeneratedPackets, GeneratorError, LoadCounts, LoadReading,
    RunningLoad,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Response, Status};

use super::card_work::{blocking, invalid_state};
use super::{RpcResult, Services, absent, stopped};
use crate::wire;

/// Duration of a run: a card's port and a processor are everybody's.
const DURATION_DEFAULT: Duration = Duration::from_secs(10);
const DURATION_MAX: Duration = Duration::from_secs(600);
/// The smallest and the longest frame that a run's frames may have, their number, and their bytes in all: one
/// message takes them to the server, and one to a card's process.
const FRAME_BYTES_MIN: usize = 14;
const FRAME_BYTES_MAX: usize = 9_216;
const FRAMES_MAX: usize = 4_096;
const FRAMES_BYTES_MAX: usize = 768 << 10;
const FLOWS_MAX: u32 = 1_024;
/// Addresses for measurements (RFC 2544), the first port for private use, and the port whose service discards
/// all (RFC 863).
const SOURCE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
const DESTINATION: Ipv4Addr = Ipv4Addr::new(198, 19, 0, 1);
const SOURCE_PORT: u32 = 49_152;
const DESTINATION_PORT: u32 = 9;
/// Between two messages.
const PERIOD: Duration = Duration::from_secs(1);
/// Time that the last packets have to leave, looked at so often.
const DRAIN_MAX: Duration = Duration::from_millis(200);
const DRAIN_LOOK: Duration = Duration::from_millis(5);
/// Messages queued for a slow client; then the run waits, and the next message has what it missed.
const MESSAGES_WAITING: usize = 2;

type Messages = mpsc::Sender<Result<v1::RunTrafficResponse, Status>>;
pub(super) type TrafficStream = ReceiverStream<Result<v1::RunTrafficResponse, Status>>;

/// DAG whose packets a run sends, and its duration.
struct Run {
    caller: Caller,
    name: DagName,
    uid: DagUid,
    card: CardId,
    duration: Duration,
}

impl Services {
    pub(super) async fn start_traffic(
        &self,
        caller: Caller,
        request: v1::RunTrafficRequest,
    ) -> RpcResult<TrafficStream> {
        let name = name::dag("name", &request.name).map_err(ApiError::from)?;
        let duration = run_duration(request.duration.as_ref())?;
        let packets = packets(&request)?;
        if request.rate_bps == 0 {
            let rule = "0 bit/s; allowed: 1 bit/s to what the card's port takes in";
            return Err(invalid("rate_bps", rule).into());
        }
        let view = self.dag(&caller, name.clone()).await?;
        let Some(card) = view.mapping.as_ref().map(|mapping| mapping.card.clone()) else {
            let text = "the DAG has no place on a card, so no packets can pass it; `conditions` \
                        say why";
            return Err(invalid_state(&name, text).into());
        };
        let Some(generator) = self.0.card_links.generator(&card) else {
            let text = format!(
                "{card} makes no packets; only simulated and software cards do (`driver = \"sim\"` \
                 or \"soft\"): send from a host or a virtual machine instead"
            );
            return Err(invalid_state(&name, &text).into());
        };
        let rate_bps = rate(request.rate_bps, generator.rate_max())?;
        let place =
            self.0.traffic_runs.enter(CallerLevel::of(&caller), CallerFlow::from(&caller))?;
        let uid = view.uid;
        let load = GeneratedLoad { uid: uid.raw(), rate_bps, packets, duration };
        let load = blocking(move || generator.start(&load)).await?;
        let load = load.map_err(|error| not_made(&error))?;
        let (sender, messages) = mpsc::channel(MESSAGES_WAITING);
        let run = Run { caller, name, uid, card, duration };
        let services = self.clone();
        tokio::spawn(async move {
            if let Err(error) = services.report(load, &run, &sender).await {
                // The task does not wait for a reader that accepts nothing.
                let _ = sender.try_send(Err(error.into()));
            }
            drop(place);
        });
        Ok(Response::new(ReceiverStream::new(messages)))
    }

    /// Tells what becomes of the packets until the time is over, the reader disconnects, the DAG or the card
    /// goes, or the server stops.
    async fn report(
        &self,
        mut load: Box<dyn RunningLoad>,
        run: &Run,
        sender: &Messages,
    ) -> Result<(), ApiError> {
        let mut stopping = self.0.stopping.clone();
        let end = tokio::time::Instant::now() + run.duration;
        loop {
            let next = end.min(tokio::time::Instant::now() + PERIOD);
            tokio::select! {
                () = tokio::time::sleep_until(next) => {}
                () = sender.closed() => break,
                () = stopped(&mut stopping) => return Err(shutting_down()),
            }
            let is_over = tokio::time::Instant::now() >= end;
            let (back, reading) = blocking(move || {
                let reading = if is_over { last(load.as_mut()) } else { load.read() };
                (load, reading)
            })
            .await?;
            load = back;
            let reading = reading.map_err(|error| not_made(&error))?;
            tokio::select! {
                sent = sender.send(Ok(message(&reading))) => if sent.is_err() { break },
                () = stopped(&mut stopping) => return Err(shutting_down()),
            }
            if is_over {
                break;
            }
            run.check(self).await?;
        }
        // It notifies the card, which may take its time.
        blocking(move || drop(load)).await
    }
}

impl Run {
    /// Whether the DAG is still there, and on this card.
    async fn check(&self, services: &Services) -> Result<(), ApiError> {
        let view = services.dag(&self.caller, self.name.clone()).await?;
        // A new DAG of the same name is another DAG.
        if view.uid != self.uid {
            return Err(absent(&self.name.to_string()));
        }
        match view.mapping.as_ref().map(|mapping| &mapping.card) {
            Some(card) if *card == self.card => Ok(()),
            _ => {
                let text = format!("the DAG is no longer on {}, so the run has ended", self.card);
                Err(invalid_state(&self.name, &text))
            }
        }
    }
}

/// Reads until no packet is under way any more, as far as that is soon. Latencies of the last moment are those
/// of few packets, so those of the first reading stand for what is new.
fn last(load: &mut dyn RunningLoad) -> Result<LoadReading, GeneratorError> {
    let begun = Instant::now();
    let mut last = load.read()?;
    while (last.is_sending || last.total.under_way() > 0) && begun.elapsed() < DRAIN_MAX {
        std::thread::sleep(DRAIN_LOOK);
        let mut next = load.read()?;
        let more = std::mem::replace(&mut next.recent, last.recent);
        add(&mut next.recent, &more);
        last = next;
    }
    Ok(last)
}

fn add(sum: &mut LoadCounts, more: &LoadCounts) {
    sum.elapsed += more.elapsed;
    sum.packets_offered += more.packets_offered;
    sum.bytes_offered += more.bytes_offered;
    sum.packets_served += more.packets_served;
    sum.bytes_served += more.bytes_served;
    sum.packets_made += more.packets_made;
    sum.drops.iter_mut().zip(more.drops).for_each(|(sum, more)| *sum += more);
}

fn invalid(field: &str, rule: impl std::fmt::Display) -> ApiError {
    ApiError::in_field(ErrorReason::InvalidField, field, rule)
}

fn run_duration(asked: Option<&prost_types::Duration>) -> Result<Duration, ApiError> {
    let Some(asked) = asked else { return Ok(DURATION_DEFAULT) };
    let duration = Duration::try_from(*asked).ok();
    let allowed = Duration::from_millis(1)..=DURATION_MAX;
    duration.filter(|duration| allowed.contains(duration)).ok_or_else(|| {
        let seconds = asked.seconds;
        invalid(
            "duration",
            format_args!("{seconds} s; allowed: 0.001 to {} s", DURATION_MAX.as_secs()),
        )
    })
}

fn rate(asked: u64, most: Bandwidth) -> Result<u64, ApiError> {
    if (1..=most.get()).contains(&asked) {
        return Ok(asked);
    }
    let rule = format_args!(
        "{asked} bit/s; allowed: 1 to {} bit/s, which the card's port takes in",
        most.get()
    );
    Err(invalid("rate_bps", rule))
}

/// Packets that a request asks for.
fn packets(request: &v1::RunTrafficRequest) -> Result<GeneratedPackets, ApiError> {
    if !request.frames.is_empty() {
        return frames(request);
    }
    let sizes = packet_sizes(&request.packet_sizes);
    sizes.check().map_err(|error| invalid("packet_sizes", error))?;
    let sizes = sizes.sizes().iter().map(|size| (size.bytes, size.weight)).collect();
    Ok(GeneratedPackets::Mix { sizes, headers: headers(request.headers.as_ref())? })
}

fn frames(request: &v1::RunTrafficRequest) -> Result<GeneratedPackets, ApiError> {
    let frames = &request.frames;
    if !request.packet_sizes.is_empty() || request.headers.is_some() {
        let rule = "not together with `packet_sizes` or `headers`: frames are sent as they are";
        return Err(invalid("frames", rule));
    }
    let bytes: usize = frames.iter().map(Vec::len).sum();
    if frames.len() > FRAMES_MAX || bytes > FRAMES_BYTES_MAX {
        let rule = format_args!(
            "{} frames of {bytes} bytes in all; allowed: up to {FRAMES_MAX} frames of {FRAMES_BYTES_MAX} bytes in all",
            frames.len()
        );
        return Err(invalid("frames", rule));
    }
    let allowed = FRAME_BYTES_MIN..=FRAME_BYTES_MAX;
    match frames.iter().position(|frame| !allowed.contains(&frame.len())) {
        Some(at) => {
            let rule = format_args!(
                "{} bytes; allowed: {FRAME_BYTES_MIN} to {FRAME_BYTES_MAX}",
                frames[at].len()
            );
            Err(invalid(&format!("frames[{at}]"), rule))
        }
        None => Ok(GeneratedPackets::Frames(frames.clone())),
    }
}

fn headers(asked: Option<&v1::PacketHeaders>) -> Result<GeneratedHeaders, ApiError> {
    let none = v1::PacketHeaders::default();
    let asked = asked.unwrap_or(&none);
    let source = address("headers.source", &asked.source, SOURCE)?;
    let destination = address("headers.destination", &asked.destination, DESTINATION)?;
    if source.is_ipv4() != destination.is_ipv4() {
        let rule =
            format_args!("{destination} is not of the same IP version as the source {source}");
        return Err(invalid("headers.destination", rule));
    }
    let is_tcp = match asked.protocol.as_str() {
        "" | "udp" => false,
        "tcp" => true,
        other => {
            let rule = format_args!("\"{other}\"; allowed: \"udp\", \"tcp\"");
            return Err(invalid("headers.protocol", rule));
        }
    };
    let flows = if asked.flows == 0 { 1 } else { asked.flows };
    if flows > FLOWS_MAX {
        let rule = format_args!("{flows} flows; allowed: 1 to {FLOWS_MAX}");
        return Err(invalid("headers.flows", rule));
    }
    let source_port = port("headers.source_port", asked.source_port, SOURCE_PORT)?;
    let most = u32::from(u16::MAX) - u32::from(source_port) + 1;
    if flows > most {
        let rule = format_args!("{flows} flows from port {source_port} on; allowed: up to {most}");
        return Err(invalid("headers.flows", rule));
    }
    Ok(GeneratedHeaders {
        source,
        destination,
        is_tcp,
        source_port,
        destination_port: port(
            "headers.destination_port",
            asked.destination_port,
            DESTINATION_PORT,
        )?,
        // At most 1,024.
        flows: flows as u16,
    })
}

fn address(field: &str, asked: &str, default: Ipv4Addr) -> Result<IpAddr, ApiError> {
    if asked.is_empty() {
        return Ok(default.into());
    }
    let rule = format_args!("\"{asked}\" is not an IP address (expected e.g. {default})");
    asked.parse().map_err(|_| invalid(field, rule))
}

fn port(field: &str, asked: u32, default: u32) -> Result<u16, ApiError> {
    let port = if asked == 0 { default } else { asked };
    let rule = format_args!("port {asked}; allowed: 1 to {}", u16::MAX);
    u16::try_from(port).map_err(|_| invalid(field, rule))
}

fn not_made(error: &GeneratorError) -> ApiError {
    let error = match error {
        GeneratorError::TooMany { .. } => ApiError::new(ErrorReason::Overloaded, error),
        GeneratorError::Invalid(what) => return invalid("packet_sizes", what),
        GeneratorError::Ended => ApiError::new(ErrorReason::CardUnavailable, error),
        GeneratorError::Lost(reason) => {
            // The reason names files and processes of this host.
            tracing::warn!(reason, "a card makes no packets");
            let text = "the card does not answer; try again later";
            ApiError::new(ErrorReason::CardUnavailable, text)
        }
    };
    error.retry_after(snic_front::error::RETRY_SOON)
}

fn message(reading: &LoadReading) -> v1::RunTrafficResponse {
    v1::RunTrafficResponse {
        total: Some(counts(&reading.total)),
        recent: Some(counts(&reading.recent)),
    }
}

fn counts(counts: &LoadCounts) -> v1::TrafficCounts {
    let drops = DropCause::ALL.iter().zip(counts.drops).filter(|(_, packets)| *packets > 0);
    let nanos = |nanos| Some(duration(Duration::from_nanos(nanos)));
    let latency = counts.latency;
    v1::TrafficCounts {
        elapsed: Some(duration(counts.elapsed)),
        packets_offered: counts.packets_offered,
        bytes_offered: counts.bytes_offered,
        packets_served: counts.packets_served,
        bytes_served: counts.bytes_served,
        packets_emitted: counts.packets_made,
        drops: drops
            .map(|(cause, packets)| v1::PacketDrops {
                cause: wire::cause_word(*cause).to_owned(),
                packets,
            })
            .collect(),
        latency: (counts.packets_served > 0).then(|| v1::PacketLatency {
            min: nanos(latency.min),
            mean: nanos(latency.mean),
            p50: nanos(latency.p50),
            p90: nanos(latency.p90),
            p99: nanos(latency.p99),
            p999: nanos(latency.p999),
            max: nanos(latency.max),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> v1::RunTrafficRequest {
        v1::RunTrafficRequest { rate_bps: 1, ..v1::RunTrafficRequest::default() }
    }

    #[test]
    fn what_is_not_set_is_imix_to_an_address_for_measurements() {
        let packets = packets(&request()).expect("valid");
        let GeneratedPackets::Mix { sizes, headers } = packets else { panic!("{packets:?}") };
        assert_eq!(sizes, [(64, 7), (594, 4), (1_518, 1)]);
        assert_eq!(headers.destination.to_string(), "198.19.0.1");
        assert_eq!((headers.is_tcp, headers.destination_port, headers.flows), (false, 9, 1));
        assert_eq!(run_duration(None).expect("valid"), DURATION_DEFAULT);
    }

    #[test]
    fn each_wrong_field_is_named() {
        let with = |headers: v1::PacketHeaders| v1::RunTrafficRequest {
            headers: Some(headers),
            ..request()
        };
        let none = v1::PacketHeaders::default();
        let size = v1::dag::PacketSize { bytes: 63, weight: 1 };
        for (request, field) in [
            (with(v1::PacketHeaders { source: "host".into(), ..none.clone() }), "headers.source"),
            (
                with(v1::PacketHeaders { source: "2001:db8::1".into(), ..none.clone() }),
                "headers.destination",
            ),
            (
                with(v1::PacketHeaders { protocol: "sctp".into(), ..none.clone() }),
                "headers.protocol",
            ),
            (
                with(v1::PacketHeaders { source_port: 65_536, ..none.clone() }),
                "headers.source_port",
            ),
            (with(v1::PacketHeaders { flows: 1_025, ..none.clone() }), "headers.flows"),
            (
                with(v1::PacketHeaders { flows: 2, source_port: 65_535, ..none.clone() }),
                "headers.flows",
            ),
            (v1::RunTrafficRequest { packet_sizes: vec![size], ..request() }, "packet_sizes"),
            (v1::RunTrafficRequest { frames: vec![vec![0; 13]], ..request() }, "frames[0]"),
            (v1::RunTrafficRequest { frames: vec![vec![0; 60]; 4_097], ..request() }, "frames"),
            (v1::RunTrafficRequest { frames: vec![vec![0; 9_216]; 86], ..request() }, "frames"),
            (v1::RunTrafficRequest { frames: vec![vec![0; 60]], ..with(none.clone()) }, "frames"),
        ] {
            let error = packets(&request).expect_err(field);
            let named = error.message().split(": ").next();
            assert_eq!(named, Some(field), "{}", error.message());
        }
    }

    #[test]
    fn rates_and_times_have_ends() {
        let most = Bandwidth::from_gbps(100);
        assert!(rate(0, most).is_err() && rate(most.get() + 1, most).is_err());
        assert_eq!(rate(most.get(), most).expect("the highest"), most.get());
        let seconds = |seconds| run_duration(Some(&prost_types::Duration { seconds, nanos: 0 }));
        assert!(seconds(-1).is_err() && seconds(0).is_err() && seconds(601).is_err());
        assert_eq!(seconds(600).expect("the longest"), DURATION_MAX);
    }
}
