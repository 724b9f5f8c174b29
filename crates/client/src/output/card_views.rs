//! How the ports of a software card, and programs on a card's processors, are shown.

use snic_api::render::cut;
use snic_api::v1::{Card, CardPort, Mapping};
use snic_api::words::EnumWord as _;

use super::Style;
use super::table::table;
use super::text::rate;

/// Ports that are shown of a card: its regions need room, too.
const PORTS_MAX: usize = 4;

/// Ports of a software card, those with losses first; how frames cross, of the first.
pub(super) fn port_rows(card: &Card, room: usize) -> Vec<(&'static str, String)> {
    let lost =
        |port: &CardPort| port.frames_too_slow + port.frames_not_taken + port.frames_too_long;
    let mut ports: Vec<&CardPort> = card.ports.iter().collect();
    ports.sort_by_key(|port| std::cmp::Reverse(lost(port)));
    let row = |port: &&CardPort| {
        let mut text = format!("{}: {} in, {} out", port.port, port.frames_in, port.frames_out);
        let losses = [
            (port.frames_too_slow, "lost (machine too slow)"),
            (port.frames_not_taken, "not taken by the system"),
            (port.frames_too_long, "too long"),
        ];
        for (frames, why) in losses.iter().filter(|(frames, _)| *frames > 0) {
            text += &format!(", {frames} {why}");
        }
        ("Port", cut(&text, room))
    };
    let mut rows: Vec<_> = ports.iter().take(PORTS_MAX).map(row).collect();
    if let Some(more) = ports.len().checked_sub(PORTS_MAX).filter(|more| *more > 0) {
        rows.push(("Ports", format!("{more} more")));
    }
    let mut methods: Vec<_> = card.ports.iter().map(|port| port.method.as_str()).collect();
    methods.sort_unstable();
    methods.dedup();
    rows.extend(methods.into_iter().map(|method| ("Frames", cut(method, room))));
    rows
}

/// Where each NT runs as a program.
pub(super) fn programs(mapping: &Mapping, style: Style) -> String {
    let rows = mapping.programs.iter().map(|program| {
        vec![
            program.node.clone(),
            program.processor().word().to_owned(),
            program.threads.to_string(),
            program.packet_memory().word().to_owned(),
            program.working_memory().word().to_owned(),
            rate(program.serves_bps),
        ]
    });
    let heading = ["NODE", "PROCESSOR", "THREADS", "PACKETS IN", "WORKING SET IN", "UP TO"];
    table(style, &heading, rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_with_losses_come_first_and_many_are_cut_off() {
        let port = |number: u64| CardPort {
            port: format!("tap:f{number}"),
            method: "a read and a write for each frame".into(),
            frames_in: 10,
            frames_out: 9,
            frames_too_slow: number / 5,
            ..CardPort::default()
        };
        let card = Card { ports: (0..6).map(port).collect(), ..Card::default() };
        let rows = port_rows(&card, 60);
        let lossy = "tap:f5: 10 in, 9 out, 1 lost (machine too slow)";
        assert_eq!(rows[0], ("Port", lossy.to_owned()));
        assert_eq!(rows[1], ("Port", "tap:f0: 10 in, 9 out".to_owned()));
        assert_eq!(rows[4], ("Ports", "2 more".to_owned()));
        assert_eq!(rows[5], ("Frames", "a read and a write for each frame".to_owned()));
        assert_eq!(rows.len(), 6);
        assert!(port_rows(&Card::default(), 60).is_empty());
    }
}
