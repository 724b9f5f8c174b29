use std::process::{Command, Stdio};

use super::super::pcapng::{CapturedPacket, PcapngWriter};
use super::*;

/// Numbers in the byte order of a file that a test makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    Little,
    Big,
}

impl Order {
    const BOTH: [Self; 2] = [Self::Little, Self::Big];

    fn word(self, word: u32) -> [u8; 4] {
        match self {
            Self::Little => word.to_le_bytes(),
            Self::Big => word.to_be_bytes(),
        }
    }

    fn half_word(self, word: u16) -> [u8; 2] {
        match self {
            Self::Little => word.to_le_bytes(),
            Self::Big => word.to_be_bytes(),
        }
    }

    fn words(self, words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| self.word(*word)).collect()
    }
}

fn pcap_file(magic: u32, link: u32, frames: &[(&[u8], u32)], order: Order) -> Vec<u8> {
    // Version 2.4: two half words, not one word.
    let mut file = order.words(&[magic]);
    file.extend(order.half_word(2));
    file.extend(order.half_word(4));
    file.extend(order.words(&[0, 0, 65_535, link]));
    for (kept, length) in frames {
        file.extend(order.words(&[1, 2, kept.len() as u32, *length]));
        file.extend(*kept);
    }
    file
}

/// A pcapng file, block by block, as the draft's figures show them.
#[derive(Default)]
struct PcapngFile {
    bytes: Vec<u8>,
}

impl PcapngFile {
    fn block(&mut self, order: Order, kind: u32, body: &[u8]) {
        let padded = body.len().next_multiple_of(4);
        let length = order.word(padded as u32 + 12);
        self.bytes.extend(order.word(kind));
        self.bytes.extend(length);
        self.bytes.extend(body);
        // Padding that is not zero must not come out as a part of a packet.
        self.bytes.resize(self.bytes.len() + padded - body.len(), 0xee);
        self.bytes.extend(length);
    }

    fn section(&mut self, order: Order) {
        let mut body = order.word(BYTE_ORDER).to_vec();
        body.extend(order.half_word(1));
        body.extend(order.half_word(0));
        body.extend([0xff; 8]);
        body.extend(option(order, 4, b"by hand"));
        body.extend(option(order, 0, b""));
        self.block(order, SECTION, &body);
    }

    fn interface(&mut self, order: Order, link: u16, snapshot_bytes: u32) {
        let mut body = order.half_word(link).to_vec();
        body.extend([0, 0]);
        body.extend(order.word(snapshot_bytes));
        body.extend(option(order, 2, b"eth0"));
        body.extend(option(order, 9, &[9]));
        body.extend(option(order, 0, b""));
        self.block(order, INTERFACE, &body);
    }

    fn enhanced(&mut self, order: Order, interface: u32, kept: &[u8], length: u32) {
        let mut body = order.words(&[interface, 0, 7, kept.len() as u32, length]);
        body.extend(kept);
        body.resize(body.len().next_multiple_of(4), 0xee);
        body.extend(option(order, 1, b"a comment"));
        body.extend(option(order, 0, b""));
        self.block(order, ENHANCED_PACKET, &body);
    }

    fn old(&mut self, order: Order, interface: u16, kept: &[u8], length: u32) {
        let mut body = order.half_word(interface).to_vec();
        body.extend(order.half_word(3));
        body.extend(order.words(&[0, 7, kept.len() as u32, length]));
        body.extend(kept);
        self.block(order, OLD_PACKET, &body);
    }

    fn simple(&mut self, order: Order, kept: &[u8], length: u32) {
        let mut body = order.word(length).to_vec();
        body.extend(kept);
        self.block(order, SIMPLE_PACKET, &body);
    }

    /// A block that no program knows, and one with names of hosts, of which it has none.
    fn unknown(&mut self, order: Order) {
        self.block(order, 0x0bad_cafe, &order.words(&[1, 2, 3]));
        self.block(order, 4, &order.words(&[0]));
    }
}

fn option(order: Order, code: u16, value: &[u8]) -> Vec<u8> {
    let mut option = order.half_word(code).to_vec();
    option.extend(order.half_word(value.len() as u16));
    option.extend(value);
    option.resize(option.len().next_multiple_of(4), 0);
    option
}

/// Frames that tell whether bytes were exchanged, and the file that has them.
fn sections(orders: &[Order]) -> (Vec<Vec<u8>>, Vec<u8>) {
    let (mut frames, mut file) = (Vec::new(), PcapngFile::default());
    for (number, order) in orders.iter().enumerate() {
        let mut frame = |length: usize| -> Vec<u8> {
            let frame: Vec<u8> = (0..length).map(|at| (at * 7 + number) as u8).collect();
            frames.push(frame.clone());
            frame
        };
        file.section(*order);
        file.interface(*order, LINK_ETHERNET, 262_144);
        file.unknown(*order);
        file.enhanced(*order, 0, &frame(61), 61);
        file.simple(*order, &frame(62), 62);
        file.old(*order, 0, &frame(63), 63);
        file.enhanced(*order, 0, &frame(1_500), 1_500);
        file.unknown(*order);
    }
    (frames, file.bytes)
}

/// The frames that a program that did not come from here finds in a capture file; nothing where it is missing.
fn converted(program: &str, arguments: &[&str], file: &[u8]) -> Option<Vec<Vec<u8>>> {
    let folder = tempfile::tempdir().expect("a folder");
    let [from, to] = ["from", "to"].map(|name| folder.path().join(name).display().to_string());
    std::fs::write(&from, file).expect("a file");
    let place = |word: &&str| match *word {
        "FROM" => from.clone(),
        "TO" => to.clone(),
        other => other.to_owned(),
    };
    let mut command = Command::new(program);
    command.args(arguments.iter().map(place)).stdin(Stdio::null());
    let Ok(output) = command.output() else {
        println!("not run: {program} is missing");
        return None;
    };
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program}: {said}");
    // Classic pcap in this machine's order.
    let file = std::fs::read(&to).expect("it was written");
    let word = |at: usize| u32::from_ne_bytes(file[at..at + 4].try_into().expect("four"));
    let (mut frames, mut at) = (Vec::new(), PCAP_HEADER);
    while at < file.len() {
        let length = word(at + 8) as usize;
        frames.push(file[at + PCAP_RECORD..at + PCAP_RECORD + length].to_vec());
        at += PCAP_RECORD + length;
    }
    Some(frames)
}

const EDITCAP: [&str; 4] = ["-F", "pcap", "FROM", "TO"];
/// As root it would become another user, who may not write here.
const TCPDUMP: [&str; 6] = ["-Z", "root", "-r", "FROM", "-w", "TO"];

#[test]
fn a_pcapng_file_of_any_byte_order_has_the_frames_that_wireshark_and_tcpdump_find_in_it() {
    for orders in [
        &[Order::Little][..],
        &[Order::Big],
        &[Order::Little, Order::Big],
        &[Order::Big, Order::Little, Order::Big],
    ] {
        let (frames, file) = sections(orders);
        if let Some(found) = converted("editcap", &EDITCAP, &file) {
            assert_eq!(found, frames, "{orders:?}");
        }
        // libpcap refuses a file whose sections differ in byte order.
        if let [_] = orders
            && let Some(found) = converted("tcpdump", &TCPDUMP, &file)
        {
            assert_eq!(found, frames, "{orders:?}");
        }
        let read = parse(&file).expect("valid");
        assert_eq!(read.frames, frames, "{orders:?}");
        assert!(read.notices().is_empty());
        for end in 1..file.len() {
            // Never more than the file has, whatever is cut off.
            assert!(
                parse(&file[..end]).map_or(true, |read| frames.starts_with(&read.frames)),
                "{end}"
            );
        }
    }
}

#[test]
fn files_that_wireshark_and_tcpdump_write_are_read() {
    let (frames, file) = sections(&[Order::Big]);
    let folder = tempfile::tempdir().expect("a folder");
    let from = folder.path().join("from");
    std::fs::write(&from, &file).expect("a file");
    for format in ["pcap", "nsecpcap", "pcapng"] {
        let to = folder.path().join(format);
        let mut command = Command::new("editcap");
        let Ok(output) = command.args(["-F", format]).args([&from, &to]).output() else {
            println!("not run: editcap is missing");
            break;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let written = std::fs::read(&to).expect("it was written");
        assert_eq!(parse(&written).expect("valid").frames, frames, "{format}");
    }
    let to = folder.path().join("tcpdump");
    let mut command = Command::new("tcpdump");
    match command.args(["-Z", "root", "-r"]).arg(&from).arg("-w").arg(&to).output() {
        Err(_) => println!("not run: tcpdump is missing"),
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let written = std::fs::read(&to).expect("it was written");
            assert_eq!(parse(&written).expect("valid").frames, frames);
        }
    }
}

#[test]
fn a_pcap_file_of_either_byte_order_has_its_frames_with_what_was_not_kept_as_zeros() {
    let long = [7; 60];
    for order in Order::BOTH {
        for magic in [PCAP_MICROSECONDS, PCAP_NANOSECONDS] {
            let frames = [(&long[..], 60), (&long[..14], 20)];
            let file = pcap_file(magic, LINK_ETHERNET.into(), &frames, order);
            let read = parse(&file).expect("valid");
            let second = [&long[..14], &[0; 6][..]].concat();
            assert_eq!(read.frames, [long.to_vec(), second]);
            if let Some(found) = converted("tcpdump", &TCPDUMP, &file) {
                assert_eq!(found, [&long[..], &long[..14]]);
            }
            for end in 1..file.len() {
                // Never more than the file has, whatever is cut off.
                assert!(
                    parse(&file[..end]).is_ok_and(|read| read.frames.len() == 1)
                        || parse(&file[..end]).is_err()
                );
            }
        }
    }
}

#[test]
fn of_a_capture_of_snicctl_the_packets_that_came_in_are_sent() {
    let mut file = Vec::new();
    let mut writer = PcapngWriter::new(&mut file, "in").expect("written");
    for (place, fill) in [("in", 1), ("card0/0 nat", 2), ("in", 3), ("out", 4)] {
        let bytes = &[fill; 61];
        let packet = CapturedPacket { place, nanos: 5, length: 61, bytes, comment: "c" };
        writer.packet(&packet).expect("written");
    }
    let read = parse(&file).expect("valid");
    assert_eq!(read.frames, [vec![1; 61], vec![3; 61]]);
}

#[test]
fn of_a_second_interface_nothing_is_sent_and_of_what_was_not_kept_zeros() {
    for order in Order::BOTH {
        let mut file = PcapngFile::default();
        file.section(order);
        file.interface(order, LINK_ETHERNET, 61);
        file.interface(order, 105, 0);
        file.enhanced(order, 1, &[9; 80], 80);
        file.old(order, 1, &[9; 80], 80);
        // 61 bytes are kept of a packet, and three of padding follow them.
        file.simple(order, &[1; 61], 64);
        file.enhanced(order, 0, &[2; 61], 64);
        let zeros = |fill: u8| [&[fill; 61][..], &[0; 3]].concat();
        assert_eq!(parse(&file.bytes).expect("valid").frames, [zeros(1), zeros(2)]);
    }
}

#[test]
fn what_does_not_fit_is_counted() {
    let frame = [0; 9_000];
    let frames = [(&frame[..], 9_000); 100];
    let file = pcap_file(PCAP_MICROSECONDS, LINK_ETHERNET.into(), &frames, Order::Little);
    let read = parse(&file).expect("valid");
    assert_eq!((read.frames.len(), read.left_out, read.unsendable), (87, 13, 0));
    assert_eq!(read.notices(), ["the first 87 packets are sent; 13 more find no room"]);
}

#[test]
fn a_frame_that_no_card_sends_is_left_out_with_a_count_and_the_others_stay() {
    let good = [5; 100];
    let long = [6; 65_000];
    for order in Order::BOTH {
        // Of the third one the card would have to send 40,000 bytes, of which 100 were kept.
        let frames =
            [(&good[..], 100), (&long[..], 65_000), (&good[..], 40_000), (&good[..13], 13)];
        let longest = [(&long[..9_216], 9_216), (&long[..9_217], 9_217), (&good[..14], 14)];
        let all = [&frames[..], &longest[..]].concat();
        let mut file = PcapngFile::default();
        file.section(order);
        file.interface(order, LINK_ETHERNET, 0);
        for (kept, length) in &all {
            file.enhanced(order, 0, kept, *length);
        }
        let classic = pcap_file(PCAP_MICROSECONDS, LINK_ETHERNET.into(), &all, order);
        for file in [classic, file.bytes] {
            let read = parse(&file).expect("valid");
            assert_eq!(read.frames, [good.to_vec(), long[..9_216].to_vec(), good[..14].to_vec()]);
            assert_eq!((read.left_out, read.unsendable), (0, 4));
            let expected = "4 packets are left out: a card sends 14 to 9216 bytes";
            assert_eq!(read.notices(), [expected]);
        }
    }
}

#[test]
fn what_is_no_capture_is_refused_with_a_reason() {
    let pcap =
        |link, frames: &[(&[u8], u32)]| pcap_file(PCAP_MICROSECONDS, link, frames, Order::Little);
    let short = pcap(1, &[(&[0; 13], 13), (&[0; 9_217], 9_217)]);
    let pcapng = |make: &dyn Fn(&mut PcapngFile)| {
        let mut file = PcapngFile::default();
        file.section(Order::Big);
        make(&mut file);
        file.bytes
    };
    let wifi = pcapng(&|file| file.interface(Order::Big, 105, 0));
    let nowhere = pcapng(&|file| file.enhanced(Order::Big, 0, &[0; 60], 60));
    let turned = pcapng(&|file| {
        file.interface(Order::Big, LINK_ETHERNET, 0);
        file.interface(Order::Little, LINK_ETHERNET, 0);
    });
    let odd = pcapng(&|file| {
        file.bytes.extend(Order::Big.words(&[7, 14, 0]));
        file.bytes.extend([0, 0]);
    });
    let mut unequal = pcapng(&|file| file.unknown(Order::Big));
    *unequal.last_mut().expect("a byte") ^= 4;
    let mut unmarked = pcapng(&|_| {});
    unmarked[8] ^= 1;
    let mut newer = pcapng(&|_| {});
    newer[13] = 2;
    let beyond = pcapng(&|file| {
        file.interface(Order::Big, LINK_ETHERNET, 0);
        let body = Order::Big.words(&[0, 0, 0, 400, 400, 1, 2, 3]);
        file.block(Order::Big, ENHANCED_PACKET, &body);
        file.unknown(Order::Big);
    });
    for (file, said) in [
        (&b"name: web\n"[..], "not a capture file"),
        (&[], "not a capture file"),
        (&pcap(105, &[]), "link type 105"),
        (&short, "none of its 2 packets has 14 to 9216 bytes"),
        (&pcap(1, &[]), "no packets"),
        (&wifi, "link type 105"),
        (&nowhere, "of an interface that is not described"),
        (&turned, "ends in the middle of a packet"),
        (&odd, "a block of 14 bytes at byte 44; allowed: a multiple of 4 from 12 on"),
        (&unequal, "bytes at its start"),
        (&unmarked, "no byte-order mark"),
        (&newer, "pcapng version 2; allowed: 1"),
        (&beyond, "ends in the middle of a packet"),
    ] {
        let error = parse(file).expect_err(said);
        assert!(error.contains(said), "{error}");
    }
}
