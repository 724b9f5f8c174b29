//! The frames of a load: made once, and sent as copies that differ in their flow.

use rand::Rng as _;
use rand_chacha::ChaCha8Rng;
use snic_nts::wire::{self, Frame, TunnelHeader, protocol};
use snic_nts::{Packet, Pool};
use snic_ports::generator::{GeneratedHeaders, GeneratedPackets};

use crate::FRAME_BYTES_MAX;

/// Stations of frames that are made: local ones, which nobody has.
const SOURCE_STATION: [u8; 6] = [2, 0x5e, 0x10, 0, 0, 1];
const DESTINATION_STATION: [u8; 6] = [2, 0x5e, 0x10, 0, 0, 2];
/// The least that an Ethernet frame has: two stations and a type.
const HEADER_BYTES: usize = wire::ETHERNET_BYTES;
const UDP_BYTES: usize = 8;
const UDP_CHECKSUM: usize = 6;
const TCP_BYTES: usize = 20;
const TCP_CHECKSUM: usize = 16;
/// Fixed bytes of a TCP header: its length in words, the flag ACK, and a window.
const TCP_FIXED: [u8; 4] = [0x50, 0x10, 0xff, 0xff];
const HOPS: u8 = 64;

/// A frame of one size, of the first flow.
#[derive(Debug)]
pub(crate) struct Template {
    frame: Vec<u8>,
    weight: u32,
}

/// Frames that a load sends.
#[derive(Debug)]
pub(crate) enum FramePattern {
    /// Drawn by weight; flow by flow.
    Mix {
        templates: Vec<Template>,
        weights: u32,
        headers: GeneratedHeaders,
        /// Where the source port stands in each, and the checksum that covers it.
        source_port_at: usize,
        checksum_at: usize,
    },
    /// In their order.
    InOrder(Vec<Vec<u8>>),
}

/// The transport checksum of UDP and TCP packets, from the start of their header.
const fn checksum_in(headers: &GeneratedHeaders) -> usize {
    if headers.is_tcp { TCP_CHECKSUM } else { UDP_CHECKSUM }
}

fn network_bytes(headers: &GeneratedHeaders) -> usize {
    if headers.source.is_ipv4() { 20 } else { 40 }
}

/// A frame of `bytes` bytes of the first flow, with right lengths and checksums.
fn build(headers: &GeneratedHeaders, bytes: usize) -> Result<Vec<u8>, String> {
    let transport = HEADER_BYTES + network_bytes(headers);
    let least = transport + if headers.is_tcp { TCP_BYTES } else { UDP_BYTES };
    if !(least..=FRAME_BYTES_MAX).contains(&bytes) {
        let protocol = if headers.is_tcp { "TCP" } else { "UDP" };
        return Err(format!(
            "a frame of {bytes} bytes; allowed with these headers ({protocol}): {least} to {FRAME_BYTES_MAX}"
        ));
    }
    let outer = TunnelHeader {
        source: headers.source,
        destination: headers.destination,
        protocol: if headers.is_tcp { protocol::TCP } else { protocol::UDP },
        traffic_class: 0,
        hop_limit: HOPS,
        fragmentation: None,
        flow_label: 0,
    };
    let mut frame = vec![0; bytes];
    let ethernet =
        wire::ethernet_header_bytes(DESTINATION_STATION, SOURCE_STATION, outer.ether_type());
    frame[..HEADER_BYTES].copy_from_slice(&ethernet);
    outer.write(bytes - transport, &mut frame[HEADER_BYTES..transport]);
    let header = &mut frame[transport..];
    header[..2].copy_from_slice(&headers.source_port.to_be_bytes());
    header[2..4].copy_from_slice(&headers.destination_port.to_be_bytes());
    if headers.is_tcp {
        header[12..16].copy_from_slice(&TCP_FIXED);
    } else {
        // A frame is shorter than 64 KiB.
        header[4..6].copy_from_slice(&((bytes - transport) as u16).to_be_bytes());
    }
    let Ok(Frame::Ip(layout)) = wire::parse(&frame) else {
        return Err("the headers make no IP packet".to_owned());
    };
    wire::fill(&mut frame, &layout);
    Ok(frame)
}

impl FramePattern {
    /// The frames of a load.
    ///
    /// # Errors
    /// In words: a frame is too short or too long, or there is none.
    pub(crate) fn new(packets: &GeneratedPackets) -> Result<Self, String> {
        match packets {
            GeneratedPackets::Mix { sizes, headers } => {
                if headers.source.is_ipv4() != headers.destination.is_ipv4() {
                    return Err("source and destination are of two IP versions".to_owned());
                }
                let template = |(bytes, weight): &(u32, u32)| {
                    let frame = build(headers, *bytes as usize)?;
                    Ok(Template { frame, weight: *weight })
                };
                let templates: Vec<_> =
                    sizes.iter().map(template).collect::<Result<_, String>>()?;
                let weights = templates.iter().map(|template| template.weight).sum();
                if weights == 0 {
                    return Err("no size of a packet".to_owned());
                }
                let source_port_at = HEADER_BYTES + network_bytes(headers);
                let checksum_at = source_port_at + checksum_in(headers);
                let headers = GeneratedHeaders { flows: headers.flows.max(1), ..*headers };
                Ok(Self::Mix { templates, weights, headers, source_port_at, checksum_at })
            }
            GeneratedPackets::Frames(frames) => {
                let allowed = HEADER_BYTES..=FRAME_BYTES_MAX;
                match frames.iter().find(|frame| !allowed.contains(&frame.len())) {
                    _ if frames.is_empty() => Err("no frames".to_owned()),
                    Some(frame) => Err(format!(
                        "a frame of {} bytes; allowed: {HEADER_BYTES} to {FRAME_BYTES_MAX}",
                        frame.len()
                    )),
                    None => Ok(Self::InOrder(frames.clone())),
                }
            }
        }
    }

    /// Number of the next frame, where so many were sent before.
    pub(crate) fn choose(&self, sent: u64, random: &mut ChaCha8Rng) -> usize {
        match self {
            Self::InOrder(frames) => (sent % frames.len() as u64) as usize,
            Self::Mix { templates, weights, .. } => {
                let mut draw = random.random_range(0..*weights);
                let chosen = templates.iter().position(|template| match draw < template.weight {
                    true => true,
                    false => {
                        draw -= template.weight;
                        false
                    }
                });
                chosen.unwrap_or(0)
            }
        }
    }

    /// Bytes of that frame.
    pub(crate) fn bytes(&self, at: usize) -> usize {
        match self {
            Self::InOrder(frames) => frames[at].len(),
            Self::Mix { templates, .. } => templates[at].frame.len(),
        }
    }

    /// That frame, of the flow whose turn it is; `None` without a free buffer.
    pub(crate) fn make(&self, at: usize, sent: u64, pool: &Pool) -> Option<Packet> {
        match self {
            Self::InOrder(frames) => pool.copy_of(&frames[at]),
            Self::Mix { templates, headers, source_port_at, checksum_at, .. } => {
                let mut packet = pool.copy_of(&templates[at].frame)?;
                let flow = (sent % u64::from(headers.flows)) as u16;
                if flow > 0 {
                    let port = headers.source_port.wrapping_add(flow).to_be_bytes();
                    wire::replace_bytes(packet.bytes_mut(), *checksum_at, *source_port_at, &port);
                }
                Some(packet)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use snic_nts::wire::{Flow, Verified};

    use super::*;

    fn headers(source: &str, destination: &str, is_tcp: bool) -> GeneratedHeaders {
        GeneratedHeaders {
            source: source.parse().expect("an address"),
            destination: destination.parse().expect("an address"),
            is_tcp,
            source_port: 65_534,
            destination_port: 9,
            flows: 4,
        }
    }

    #[test]
    fn frames_are_packets_that_the_parser_accepts_with_right_checksums_in_every_flow() {
        let pool = Pool::new(4, FRAME_BYTES_MAX);
        for (source, destination) in [("198.18.0.1", "198.19.0.1"), ("2001:db8::1", "2001:db8::2")]
        {
            for is_tcp in [false, true] {
                let headers = headers(source, destination, is_tcp);
                let sizes = vec![(80, 1), (594, 1), (1_518, 1), (9_216, 1)];
                let pattern = FramePattern::new(&GeneratedPackets::Mix { sizes, headers });
                let pattern = pattern.expect("they fit");
                for (at, bytes) in [80, 594, 1_518, 9_216].into_iter().enumerate() {
                    for flow in 0..8_u16 {
                        let packet = pattern.make(at, u64::from(flow), &pool).expect("a buffer");
                        assert_eq!((packet.len(), pattern.bytes(at)), (bytes, bytes));
                        let Ok(Frame::Ip(layout)) = wire::parse(packet.bytes()) else {
                            panic!("not an IP packet: {:?}", packet.bytes());
                        };
                        assert_eq!(layout.end, bytes, "no padding");
                        assert_eq!(wire::verify(packet.bytes(), &layout), Verified::Right);
                        let seen = Flow::of(packet.bytes(), &layout);
                        assert_eq!(
                            (seen.source, seen.destination),
                            (headers.source, headers.destination)
                        );
                        let port = 65_534_u16.wrapping_add(flow % 4);
                        assert_eq!((seen.source_port, seen.destination_port), (port, 9));
                    }
                }
            }
        }
    }

    #[test]
    fn sizes_come_as_often_as_their_weights_say() {
        let headers = headers("198.18.0.1", "198.19.0.1", false);
        let sizes = vec![(64, 7), (594, 4), (1_518, 1)];
        let pattern = FramePattern::new(&GeneratedPackets::Mix { sizes, headers }).expect("valid");
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut counts = [0_u32; 3];
        (0..120_000).for_each(|sent| counts[pattern.choose(sent, &mut random)] += 1);
        // Four standard deviations of a binomial draw.
        for (count, weight) in counts.into_iter().zip([7.0, 4.0, 1.0]) {
            let (n, p) = (120_000.0, weight / 12.0);
            let deviation = f64::sqrt(n * p * (1.0 - p));
            assert!((f64::from(count) - n * p).abs() < 4.0 * deviation, "{counts:?}");
        }
    }

    #[test]
    fn frames_of_a_file_come_in_their_order_and_unchanged() {
        let frames = vec![vec![1; 14], vec![2; 60]];
        let pattern = FramePattern::new(&GeneratedPackets::Frames(frames.clone()));
        let pattern = pattern.expect("valid");
        let (pool, mut random) = (Pool::new(1, FRAME_BYTES_MAX), ChaCha8Rng::seed_from_u64(1));
        for sent in 0..5 {
            let at = pattern.choose(sent, &mut random);
            let packet = pattern.make(at, sent, &pool).expect("a buffer");
            assert_eq!(packet.bytes(), &frames[(sent % 2) as usize][..]);
        }
    }

    #[test]
    fn what_is_no_frame_is_refused_with_what_is_allowed() {
        let v4 = headers("198.18.0.1", "198.19.0.1", true);
        let mixed = headers("198.18.0.1", "2001:db8::2", true);
        let mix = |sizes, headers| GeneratedPackets::Mix { sizes, headers };
        for (packets, said) in [
            (mix(vec![(53, 1)], v4), "allowed with these headers (TCP): 54 to 9216"),
            (mix(vec![(9_217, 1)], v4), "54 to 9216"),
            (mix(vec![(64, 1)], mixed), "two IP versions"),
            (mix(Vec::new(), v4), "no size"),
            (GeneratedPackets::Frames(Vec::new()), "no frames"),
            (GeneratedPackets::Frames(vec![vec![0; 13]]), "allowed: 14 to 9216"),
        ] {
            let error = FramePattern::new(&packets).expect_err("not valid");
            assert!(error.contains(said), "{error}");
        }
    }
}
