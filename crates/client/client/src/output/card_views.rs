//! Views of the ports of a software card, of a card's device, and of programs on its processors.

use snic_api::render::cut;
use snic_api::v1::condition::Status;
use snic_api::v1::{Card, CardPort, CardSensor, Mapping};
use snic_api::words::EnumWord as _;

use super::Style;
use super::table::table;
use super::text::{health_word, id, rate};

/// Digits of a shell's UUID in lists.
const SHELL_DIGITS: usize = 8;

/// Ports that are shown of a card: its regions need room, too.
const PORTS_MAX: usize = 4;

/// The column of a card's health in a list.
const HEALTH_COLUMN: usize = 2;

/// Cards, one per row; their messages follow below.
pub fn cards(cards: &[Card], style: Style) -> String {
    let is_any_cordoned = cards.iter().any(|card| card.regions_cordoned > 0);
    let rows = cards.iter().map(|card| {
        let mut row = vec![
            id(&card.name).to_owned(),
            card.part.clone(),
            health_word(card.health()).to_owned(),
            card.driver.clone(),
            card.link.clone(),
            card.shell_uuid.get(..SHELL_DIGITS).unwrap_or_default().to_owned(),
        ];
        if is_any_cordoned {
            let cordoned = match card.regions_cordoned {
                0 => String::new(),
                some => format!("{some} of {} regions", card.regions),
            };
            row.insert(HEALTH_COLUMN + 1, cordoned);
        }
        row
    });
    let mut columns = vec!["CARD", "PART", "HEALTH", "DRIVER", "LINK", "SHELL"];
    if is_any_cordoned {
        columns.insert(HEALTH_COLUMN + 1, "CORDONED");
    }
    let mut text = table(style, &columns, rows.collect());
    for card in cards.iter().filter(|card| !card.message.is_empty()) {
        text += &format!("{}: {}\n", id(&card.name), card.message);
    }
    text
}

/// Frames that a port lost or refused, with the reason in words.
fn port_losses(port: &CardPort) -> [(u64, &'static str); 7] {
    [
        (port.frames_too_slow, "lost (machine too slow)"),
        (port.frames_not_taken, "not taken by the system"),
        (port.frames_too_long, "too long"),
        (port.frames_control, "control frames of the link"),
        (port.frames_wrong_source, "from a wrong source"),
        (port.frames_wrong_vlan, "of a wrong VLAN"),
        (port.frames_over_group_rate, "over the group rate"),
    ]
}

/// Ports of a software card, those with losses first; how frames cross, of the first.
pub(super) fn port_rows(card: &Card, room: usize) -> Vec<(&'static str, String)> {
    let mut ports: Vec<&CardPort> = card.ports.iter().collect();
    ports.sort_by_key(|port| {
        std::cmp::Reverse(port_losses(port).iter().map(|(frames, _)| frames).sum::<u64>())
    });
    let row = |port: &&CardPort| {
        let mut text = format!("{}: {} in, {} out", port.port, port.frames_in, port.frames_out);
        for (frames, why) in port_losses(port).iter().filter(|(frames, _)| *frames > 0) {
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

/// Rows about a card's device: what is known of it, and what is not as it should be.
pub(super) fn device_rows(card: &Card, room: usize) -> Vec<(&'static str, String)> {
    let Some(device) = &card.device else { return Vec::new() };
    let sensors = |all: &[CardSensor], unit: &str| -> Vec<String> {
        let one = |of: &CardSensor| match of.value {
            Some(value) => format!("{} {value:.1} {unit}", of.sensor),
            None => format!("{} unknown", of.sensor),
        };
        all.iter().map(one).collect()
    };
    let mut readings = sensors(&device.temperatures, "°C");
    readings.extend(sensors(&device.powers, "W"));
    if let Some(link) = &device.pcie_link {
        let word = |of: Option<u32>| of.map_or_else(|| "?".to_owned(), |of| of.to_string());
        let (lanes, speed) = (word(link.lanes), word(link.megatransfers_per_second));
        readings.push(format!("PCIe {lanes} lanes at {speed} MT/s"));
    }
    let not_fine = card.conditions.iter().filter(|of| of.status() != Status::True);
    let not_fine: Vec<String> = not_fine
        .map(|of| format!("{} {}: {}", of.r#type, of.status().word(), of.message))
        .collect();
    let errors = device.driver_errors.join("; ");
    vec![
        ("Device", cut(&readings.join(", "), room)),
        ("Conditions", cut(&not_fine.join("; "), room)),
        ("Driver errors", cut(&errors, room)),
    ]
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
        let refusing = CardPort {
            port: "tap:f0".into(),
            frames_control: 3,
            frames_wrong_source: 2,
            frames_wrong_vlan: 1,
            frames_over_group_rate: 4,
            ..CardPort::default()
        };
        let card = Card { ports: vec![refusing], ..Card::default() };
        let shown = "tap:f0: 0 in, 0 out, 3 control frames of the link, 2 from a wrong source, \
                     1 of a wrong VLAN, 4 over the group rate";
        assert_eq!(port_rows(&card, 200)[0].1, shown);
    }

    #[test]
    fn a_device_is_shown_with_what_is_unknown_and_what_is_not_fine() {
        let sensor =
            |name: &str, value| CardSensor { sensor: name.into(), value, ..CardSensor::default() };
        let device = snic_api::v1::CardDevice {
            temperatures: vec![sensor("FPGA", Some(97.0)), sensor("FPGA HBM", None)],
            powers: vec![sensor("Card", Some(28.5))],
            driver_errors: vec!["firewall trip".into()],
            ..Default::default()
        };
        let condition = |kind: &str, status: Status| snic_api::v1::Condition {
            r#type: kind.into(),
            status: status.into(),
            message: "FPGA is at 97.0 °C".into(),
            ..Default::default()
        };
        let conditions =
            vec![condition("Temperature", Status::False), condition("Link", Status::True)];
        let card = Card { device: Some(device), conditions, ..Card::default() };
        let rows = device_rows(&card, 80);
        assert_eq!(rows[0].1, "FPGA 97.0 °C, FPGA HBM unknown, Card 28.5 W");
        assert_eq!(rows[1].1, "Temperature FALSE: FPGA is at 97.0 °C");
        assert_eq!(rows[2].1, "firewall trip");
        assert!(device_rows(&Card::default(), 80).is_empty());
    }
}
