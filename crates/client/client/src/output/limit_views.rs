//! Limits of network task types and cards besides bandwidth, as words.

use snic_api::v1::{Card, NtType};

use super::text;

/// Most packets of one copy; empty without a limit.
pub fn packets(nt: &NtType) -> String {
    match nt.packets_per_second_max {
        0 => String::new(),
        most => format!("at most {most} a second"),
    }
}

/// Traffic of one copy with on-board memory; empty where it moves nothing.
pub fn memory_traffic(nt: &NtType) -> String {
    let packet = format!("{} bytes a packet", nt.memory_bytes_per_packet);
    let byte = format!("{} for each of its bytes", nt.memory_bytes_per_packet_byte);
    match (nt.memory_bytes_per_packet, nt.memory_bytes_per_packet_byte) {
        (0, 0) => String::new(),
        (_, 0) => packet,
        (0, _) => format!("{} bytes for each byte of a packet", nt.memory_bytes_per_packet_byte),
        _ => format!("{packet}, {byte}"),
    }
}

/// Limits of a card that all of its regions share; empty where none is counted.
pub fn card(card: &Card) -> String {
    let memory = match card.memory_bytes_per_second {
        0 => None,
        rate => Some(format!("memory {}/s", text::size(rate))),
    };
    let lookups = match card.scheduler_lookups_per_cycle {
        0 => None,
        1 => Some("1 look-up a cycle".to_owned()),
        more => Some(format!("{more} look-ups a cycle")),
    };
    let reads = match card.packet_store_beats_per_cycle {
        0 => None,
        1 => Some("1 beat of the packet store a cycle".to_owned()),
        more => Some(format!("{more} beats of the packet store a cycle")),
    };
    memory.into_iter().chain(lookups).chain(reads).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_says_its_packets_and_its_traffic() {
        let nt = |packets_per_second_max, memory_bytes_per_packet, memory_bytes_per_packet_byte| {
            let nt = NtType {
                packets_per_second_max,
                memory_bytes_per_packet,
                memory_bytes_per_packet_byte,
                ..NtType::default()
            };
            (packets(&nt), memory_traffic(&nt))
        };
        let words = |packets: &str, traffic: &str| (packets.to_owned(), traffic.to_owned());
        assert_eq!(nt(0, 0, 0), words("", ""));
        assert_eq!(nt(20_000_000, 64, 0), words("at most 20000000 a second", "64 bytes a packet"));
        assert_eq!(nt(0, 0, 2), words("", "2 bytes for each byte of a packet"));
        assert_eq!(nt(0, 64, 1), words("", "64 bytes a packet, 1 for each of its bytes"));
    }

    #[test]
    fn a_card_says_what_is_counted() {
        let of = |memory_bytes_per_second, scheduler_lookups_per_cycle| {
            let (rate, lookups) = (memory_bytes_per_second, scheduler_lookups_per_cycle);
            card(&Card {
                memory_bytes_per_second: rate,
                scheduler_lookups_per_cycle: lookups,
                ..Card::default()
            })
        };
        assert_eq!(of(0, 0), "");
        assert_eq!(of(0, 1), "1 look-up a cycle");
        assert_eq!(of(1 << 30, 4), "memory 1 GiB/s, 4 look-ups a cycle");
        let reads = |packet_store_beats_per_cycle| {
            card(&Card { packet_store_beats_per_cycle, ..Card::default() })
        };
        assert_eq!(reads(1), "1 beat of the packet store a cycle");
        assert_eq!(reads(4), "4 beats of the packet store a cycle");
    }
}
