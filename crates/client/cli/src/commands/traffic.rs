//! `snicctl capture` and `snicctl trace`.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use snic_api::v1::packet_sighting::Step;
use snic_api::v1::{PacketSighting, WatchPacketsRequest, WatchPacketsResponse};
use snic_api::words::EnumWord as _;
use snic_client::output::{Format, Style, text};
use snic_client::{Client, Failure};
use tonic::Streaming;

use super::CliSession;
use super::pcapng::{CapturedPacket, PcapngWriter};
use super::trace::{PacketTrace, render};
use crate::args::{CaptureOptions, StopCondition, TraceOptions};

/// Mode of written files: packets are their tenant's.
const FILE_MODE: u32 = 0o600;

/// The name of the place where packets arrive.
const ARRIVED: &str = "in";

/// Next step after a message of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StreamStep {
    GoOn,
    Stop,
}

/// Hands all messages to `take` until it has enough, time is up, Ctrl-C is pressed, or the server ends.
async fn follow(
    client: &Client,
    mut stream: Streaming<WatchPacketsResponse>,
    duration: Option<Duration>,
    mut take: impl FnMut(WatchPacketsResponse) -> Result<StreamStep, Failure>,
) -> Result<(), Failure> {
    let end = async {
        match duration {
            Some(duration) => tokio::time::sleep(duration).await,
            None => std::future::pending().await,
        }
    };
    tokio::pin!(end);
    loop {
        let message = tokio::select! {
            message = stream.message() => message.map_err(|status| client.failure(status))?,
            () = &mut end => None,
            // Without the signal, the time or the count ends it.
            Ok(()) = tokio::signal::ctrl_c() => None,
        };
        match message.map(&mut take).transpose()? {
            Some(StreamStep::GoOn) => {}
            Some(StreamStep::Stop) | None => return Ok(()),
        }
    }
}

async fn open(
    client: &Client,
    name: &str,
    packet_bytes_max: u32,
) -> Result<Streaming<WatchPacketsResponse>, Failure> {
    let request = WatchPacketsRequest { name: name.to_owned(), packet_bytes_max };
    let opened = snic_client::open!(client, traffic.watch_packets, request);
    opened.map_err(|status| client.failure(status))
}

pub async fn capture(session: &mut CliSession, options: CaptureOptions) -> Result<(), Failure> {
    let name = session.dag_name(&options.dag)?;
    let client = session.client()?;
    let bytes = if options.write.is_some() || session.output.format() != Format::Table {
        options.bytes
    } else {
        0
    };
    let stream = open(&client, &name, bytes).await?;
    let mut file =
        options.write.as_deref().map(|path| CaptureFile::create(path, &name)).transpose()?;
    let (mut packets, mut lost) = (0, 0);
    let StopCondition { duration, count } = options.until;
    follow(&client, stream, duration.map(Into::into), |message| {
        lost += message.lost;
        for sighting in message.sightings.iter().filter(|sighting| is_wanted(sighting, &options.at))
        {
            match &mut file {
                Some(file) => file.add(sighting)?,
                None => session.output.event(sighting, line)?,
            }
            packets += 1;
            if count.is_some_and(|count| packets >= count) {
                return Ok(StreamStep::Stop);
            }
        }
        file.as_mut().map_or(Ok(()), CaptureFile::flush)?;
        Ok(StreamStep::GoOn)
    })
    .await?;
    if let Some(file) = &mut file {
        file.flush()?;
    }
    let missing =
        if lost > 0 { format!("; {lost} more were too many to fetch") } else { String::new() };
    // Standard output may be the capture itself.
    snic_output::complain!("{packets} packets captured{missing}");
    Ok(())
}

/// Whether to keep a sighting: with nodes, what leaves them; else each packet where its bytes may have changed.
fn is_wanted(sighting: &PacketSighting, nodes: &[String]) -> bool {
    match sighting.step() {
        Step::Passed => nodes.is_empty() || nodes.contains(&sighting.node),
        Step::Arrived | Step::Made | Step::Left | Step::Dropped => nodes.is_empty(),
        Step::Unspecified | Step::Admitted | Step::Scheduled | Step::Entered => false,
    }
}

/// Where a packet was seen, in few words.
fn place(sighting: &PacketSighting) -> String {
    match sighting.step() {
        Step::Passed => format!("{} {}", text::region(&sighting.region), sighting.node),
        Step::Arrived => ARRIVED.to_owned(),
        Step::Left => "out".to_owned(),
        Step::Dropped => format!("dropped {}", sighting.drop_cause),
        other => other.word().to_lowercase(),
    }
}

fn line(sighting: &PacketSighting, _: Style) -> Option<String> {
    let time = text::time(sighting.time.as_ref());
    let (packet, bytes) = (sighting.packet, sighting.length_bytes);
    Some(format!("{time} packet {packet} {:<24} {bytes} B", place(sighting)))
}

/// A capture file.
struct CaptureFile {
    writer: PcapngWriter<BufWriter<Box<dyn Write>>>,
    path: std::path::PathBuf,
    dag: String,
}

impl CaptureFile {
    fn create(path: &Path, dag: &str) -> Result<Self, Failure> {
        let failed = |source| Failure::Write { path: path.to_owned(), source };
        let to: Box<dyn Write> = if path.as_os_str() == "-" {
            Box::new(io::stdout())
        } else {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(FILE_MODE);
            Box::new(options.open(path).map_err(failed)?)
        };
        let writer = PcapngWriter::new(BufWriter::new(to), ARRIVED).map_err(failed)?;
        Ok(Self { writer, path: path.to_owned(), dag: text::dag(dag) })
    }

    fn failed(&self, source: io::Error) -> Failure {
        match self.path.as_os_str() == "-" {
            // Whose reader may leave, as with `| tcpdump -c 1 -r -`.
            true => Failure::Output(source),
            false => Failure::Write { path: self.path.clone(), source },
        }
    }

    fn add(&mut self, sighting: &PacketSighting) -> Result<(), Failure> {
        let time = sighting.time.unwrap_or_default();
        let seconds = u64::try_from(time.seconds).unwrap_or(0);
        let place = place(sighting);
        let comment = format!("DAG {}, packet {}, {place}", self.dag, sighting.packet);
        let packet = CapturedPacket {
            place: &place,
            nanos: seconds * 1_000_000_000 + u64::try_from(time.nanos).unwrap_or(0),
            length: sighting.length_bytes,
            bytes: &sighting.data,
            comment: &comment,
        };
        self.writer.packet(&packet).map_err(|source| self.failed(source))
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.writer.flush().map_err(|source| self.failed(source))
    }
}

pub async fn trace(session: &mut CliSession, options: TraceOptions) -> Result<(), Failure> {
    let name = session.dag_name(&options.dag)?;
    let client = session.client()?;
    let stream = open(&client, &name, 0).await?;
    let mut trace = PacketTrace::default();
    let StopCondition { duration, count } = options.until;
    follow(&client, stream, duration.map(Into::into), |message| {
        trace.lost(message.lost);
        message.sightings.iter().for_each(|sighting| trace.saw(sighting));
        Ok(if count.is_some_and(|count| trace.packets() >= count) {
            StreamStep::Stop
        } else {
            StreamStep::GoOn
        })
    })
    .await?;
    let report = trace.report();
    let text = render(&report, session.output.style());
    session.output.plain(&report, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sighting(step: Step, node: &str) -> PacketSighting {
        let mut sighting = PacketSighting {
            node: node.into(),
            region: "cards/card0/regions/3".into(),
            ..PacketSighting::default()
        };
        sighting.set_step(step);
        sighting
    }

    #[test]
    fn a_capture_has_each_packet_where_its_bytes_may_have_changed() {
        let steps = [Step::Arrived, Step::Admitted, Step::Entered, Step::Passed, Step::Left];
        let wanted = |nodes: &[String]| {
            let all =
                steps.map(|step| sighting(step, if step == Step::Passed { "nat" } else { "" }));
            let kept = all.iter().filter(|sighting| is_wanted(sighting, nodes));
            kept.map(place).collect::<Vec<_>>()
        };
        assert_eq!(wanted(&[]), ["in", "card0/3 nat", "out"]);
        assert_eq!(wanted(&["nat".to_owned()]), ["card0/3 nat"]);
        assert!(wanted(&["aes".to_owned()]).is_empty());
    }
}
