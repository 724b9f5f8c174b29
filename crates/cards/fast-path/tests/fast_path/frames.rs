//! Frames, built from numbers.

use std::net::IpAddr;

use snic_card_soft::HeaderRule;
use snic_nts::FlowKey;
use snic_nts::wire::{self, Endpoint, Frame, Side};

use crate::site::STATIONS;

/// A packet of the first host to the second.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    pub from: (&'static str, u16),
    pub to: (&'static str, u16),
    pub is_tcp: bool,
    pub flags: u8,
    pub payload: usize,
}

pub const ACK: u8 = 0x10;

impl Sample {
    pub const UDP4: Self = Self {
        from: ("10.0.0.1", 1_000),
        to: ("10.1.0.1", 80),
        is_tcp: false,
        flags: ACK,
        payload: 19,
    };
    pub const UDP6: Self = Self { from: ("fd00::1", 1_000), to: ("fd01::1", 80), ..Self::UDP4 };
    pub const TCP4: Self = Self { is_tcp: true, ..Self::UDP4 };
    pub const TCP6: Self = Self { is_tcp: true, ..Self::UDP6 };
    pub const ALL: [Self; 4] = [Self::UDP4, Self::UDP6, Self::TCP4, Self::TCP6];

    /// The frame, with right checksums.
    pub fn frame(&self) -> Vec<u8> {
        let mut frame = [STATIONS[1], STATIONS[0]].concat();
        let header = if self.is_tcp { 20 } else { 8 };
        let bytes = |number: usize| (number as u16).to_be_bytes();
        let (length, protocol) = (header + self.payload, if self.is_tcp { 6 } else { 17 });
        let address = |text: &str| text.parse().expect("an address");
        match (address(self.from.0), address(self.to.0)) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                frame.extend([8, 0, 0x45, 0]);
                frame.extend(bytes(20 + length));
                frame.extend([0, 7, 0x40, 0, 64, protocol, 0, 0]);
                frame.extend([from.octets(), to.octets()].concat());
                fill_ipv4(&mut frame, 20);
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                frame.extend([0x86, 0xDD, 0x60, 0, 0, 0]);
                frame.extend(bytes(length));
                frame.extend([protocol, 64]);
                frame.extend([from.octets(), to.octets()].concat());
            }
            ends => panic!("{ends:?} are of two families"),
        }
        frame.extend([self.from.1.to_be_bytes(), self.to.1.to_be_bytes()].concat());
        if self.is_tcp {
            frame.extend([0, 0, 0, 1, 0, 0, 0, 2, 0x50, self.flags, 16, 0, 0, 0, 0, 0]);
        } else {
            frame.extend(bytes(length));
            frame.extend([0, 0]);
        }
        frame.extend((0..self.payload).map(|at| at as u8 ^ 0x5A));
        let Ok(Frame::Ip(layout)) = wire::parse(&frame) else { panic!("{self:?}: {frame:02x?}") };
        wire::fill(&mut frame, &layout);
        frame
    }

    /// Where the transport header begins.
    pub fn transport(&self) -> usize {
        if self.from.0.contains(':') { 54 } else { 34 }
    }

    /// The rule of a NAT that gives the packets this source.
    pub fn translated(&self, external: &str, port: u16) -> HeaderRule {
        let before = self.frame();
        let mut after = before.clone();
        let (key, mut layout) = FlowKey::of(&before).expect("a key");
        let address = external.parse().expect("an address");
        wire::rewrite(&mut after, &mut layout, Side::Source, Endpoint { address, port });
        let (after, _) = FlowKey::of(&after).expect("a key");
        HeaderRule::new(key, after, false).expect("of one shape")
    }

    /// The external address of its family.
    pub fn external(&self) -> &'static str {
        if self.from.0.contains(':') { "fd01::c8" } else { "10.1.0.200" }
    }
}

/// Fills in the checksum of an IPv4 header of so many bytes behind an Ethernet header.
pub fn fill_ipv4(frame: &mut [u8], bytes: usize) {
    let header = &mut frame[14..14 + bytes];
    header[10..12].fill(0);
    let words =
        header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    let sum = (sum & 0xFFFF) + (sum >> 16);
    let sum = (sum & 0xFFFF) + (sum >> 16);
    header[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}

/// Frames that no rule is for, though they are of the flow of a sample: what each is, and its bytes.
pub fn unusual(sample: &Sample) -> Vec<(&'static str, Vec<u8>)> {
    let (whole, at) = (sample.frame(), sample.transport());
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = whole.clone();
        change(&mut frame);
        if frame[12..14] == [8, 0] {
            let header = usize::from(frame[14] & 15) * 4;
            fill_ipv4(&mut frame, header);
        }
        frame
    };
    let mut all = vec![
        ("another port", changed(&|frame| frame[at] ^= 1)),
        ("another station", changed(&|frame| frame[5] ^= 1)),
        ("several stations", changed(&|frame| frame[0] |= 1)),
        ("a tag", changed(&|frame| drop(frame.splice(12..12, [0x81, 0, 0, 7])))),
        ("longer than the frame", changed(&|frame| frame.truncate(whole.len() - 1))),
    ];
    if at == 34 {
        all.extend([
            ("the first fragment", changed(&|frame| frame[20] = 0x20)),
            ("a later fragment", changed(&|frame| frame[21] = 5)),
            ("a reserved bit", changed(&|frame| frame[20] = 0x80)),
            ("ICMP", changed(&|frame| frame[23] = 1)),
            (
                "options",
                changed(&|frame| {
                    (frame[14], frame[17]) = (0x46, frame[17] + 4);
                    frame.splice(34..34, [1, 1, 1, 0]);
                }),
            ),
            ("a length below its header", changed(&|frame| frame[17] = 19)),
        ]);
        let mut wrong = whole.clone();
        wrong[24] ^= 1;
        all.push(("a wrong sum", wrong));
    } else {
        all.push((
            "an extension header",
            changed(&|frame| {
                let protocol = std::mem::replace(&mut frame[20], 0);
                frame[19] += 8;
                frame.splice(54..54, [protocol, 0, 1, 4, 0, 0, 0, 0]);
            }),
        ));
        all.push(("ICMP", changed(&|frame| frame[20] = 58)));
        all.push(("another version", changed(&|frame| frame[14] = 0x50)));
    }
    if sample.is_tcp {
        for (name, flags) in
            [("SYN", 2), ("SYN and ACK", 0x12), ("FIN", 0x11), ("RST", 0x14), ("none", 0)]
        {
            all.push((name, changed(&|frame| frame[at + 13] = flags)));
        }
        all.push(("a short TCP header", changed(&|frame| frame[at + 12] = 0x40)));
        // With bytes behind the packet, which are padding and no header.
        all.push((
            "a long TCP header",
            changed(&|frame| {
                frame[at + 12] = 0xF0;
                frame.resize(whole.len() + 40, 0);
            }),
        ));
    } else {
        all.push(("a short UDP length", changed(&|frame| frame[at + 5] = 7)));
        all.push(("a long UDP length", changed(&|frame| frame[at + 5] += 1)));
    }
    all
}
