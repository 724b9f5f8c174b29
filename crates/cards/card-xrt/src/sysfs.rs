//! Readings of a card in sysfs, for what XRT has no C function.
//!
//! | what | where, under `bus/pci/devices/ADDRESS` | unit | source |
//! |---|---|---|---|
//! | link | `current_link_speed`, `current_link_width`, `max_…` | GT/s, lanes | Linux, `Documentation/ABI/testing/sysfs-bus-pci` |
//! | temperatures, power | `xmc.*/xmc_…` | °C, µW; 0 where there is no such sensor | XRT 2.13, `device_linux.cpp`, `sensor.cpp` |
//! | the same of other drivers | `hwmon/hwmon*/`, `*/hwmon/hwmon*/` | m°C, µW | Linux, `Documentation/hwmon/sysfs-interface.rst` |
//! | firewall | `firewall.*/detected_level`, `detected_status` | 0 where nothing was detected | XRT 2.13, `device_linux.cpp` |
//! | platform | `interface_uuids`, `rom.*/VBNV` | | XRT 2.13, `device_linux.cpp` |
//!
//! XRT has the same values behind its C++ function `xrt::device::get_info`, which throws what a caller in another
//! language cannot catch. Its hwmon devices named `hwmon_sdm` are left out: no document says their units.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use snic_domain::{
    AxiFirewall, DeviceReading, PciAddress, PcieLink, SENSORS_MAX, Sensor, SensorKind,
};
use uuid::Uuid;

/// Most bytes of an entry: longer ones are none of those that are read.
const ENTRY_BYTES: u64 = 4_096;
/// Most entries of a folder that are looked at.
const ENTRIES_MAX: usize = 4_096;
/// Numbers of sensors of a hwmon device that are looked for.
const HWMON_NUMBERS: std::ops::RangeInclusive<u32> = 1..=32;

/// Temperatures of XRT's management controller, and how people call them.
const XMC_TEMPERATURES: [(&str, &str); 13] = [
    ("xmc_fpga_temp", "FPGA"),
    ("xmc_hbm_temp", "FPGA HBM"),
    ("xmc_se98_temp0", "PCB top front"),
    ("xmc_se98_temp1", "PCB top rear"),
    ("xmc_se98_temp2", "PCB bottom front"),
    ("xmc_ddr_temp0", "DDR 0"),
    ("xmc_ddr_temp1", "DDR 1"),
    ("xmc_ddr_temp2", "DDR 2"),
    ("xmc_ddr_temp3", "DDR 3"),
    ("xmc_cage_temp0", "Cage 0"),
    ("xmc_cage_temp1", "Cage 1"),
    ("xmc_cage_temp2", "Cage 2"),
    ("xmc_cage_temp3", "Cage 3"),
];

/// A card's folder in a sysfs.
pub fn device_folder(sysfs: &Path, address: PciAddress) -> PathBuf {
    sysfs.join("bus/pci/devices").join(address.to_string())
}

/// The platform on a card, as far as its driver says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CardPlatform {
    /// The interfaces that it has; none where the driver does not say.
    pub interfaces: Vec<Uuid>,
    /// Its name (VBNV: vendor, board, name, version).
    pub name: Option<String>,
}

impl CardPlatform {
    /// Whether a role for that platform may be loaded, as far as this is known: the card has to have all interfaces
    /// that the role names, as XRT's driver sees it. Where one of both names none, the platforms' names decide.
    pub fn takes(&self, platform: &str, interfaces: &[Uuid]) -> bool {
        match (self.interfaces.as_slice(), interfaces) {
            ([], _) | (_, []) => self.name.as_deref().is_none_or(|name| name == platform),
            (has, needed) => needed.iter().all(|interface| has.contains(interface)),
        }
    }
}

/// Reads which platform is on the card in this folder.
pub fn read_platform(device: &Path) -> CardPlatform {
    let interfaces = text(&device.join("interface_uuids")).unwrap_or_default();
    let interfaces = interfaces.split_whitespace().filter_map(|word| Uuid::try_parse(word).ok());
    let interfaces = interfaces.filter(|uuid| !uuid.is_nil()).collect();
    let name = part(device, "rom").and_then(|rom| text(&rom.join("VBNV")));
    CardPlatform { interfaces, name: name.filter(|name| !name.is_empty()) }
}

/// Reads all that is known of the card in this folder. What does not answer is unknown.
pub(crate) fn read_device(device: &Path) -> DeviceReading {
    let mut sensors = part(device, "xmc").map(|xmc| of_xmc(&xmc)).unwrap_or_default();
    if sensors.is_empty() {
        sensors = hwmon_folders(device).iter().flat_map(|folder| of_hwmon(folder)).collect();
    }
    sensors.truncate(SENSORS_MAX);
    let firewall = part(device, "firewall").and_then(|firewall| of_firewall(&firewall));
    DeviceReading { sensors, link: of_link(device), firewall, errors: Vec::new() }
}

/// A text of the kernel, without what surrounds it.
fn text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(ENTRY_BYTES).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8(bytes).ok()?;
    Some(text.trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned())
}

/// A whole number, decimal or hexadecimal.
fn number(text: &str) -> Option<i64> {
    match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(folder).into_iter().flatten().flatten().take(ENTRIES_MAX);
    let mut all: Vec<PathBuf> = all.map(|entry| entry.path()).collect();
    all.sort();
    all
}

fn has_name(path: &Path, test: impl Fn(&str) -> bool) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(test)
}

/// The folder of a part of XRT's driver: `xmc.u.19922944` of `xmc`.
fn part(device: &Path, name: &str) -> Option<PathBuf> {
    let is_it = |found: &str| {
        found.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    entries(device).into_iter().find(|path| has_name(path, is_it) && path.is_dir())
}

fn of_xmc(xmc: &Path) -> Vec<Sensor> {
    let sensor = |entry: &str, name: &str, kind, milli: fn(i64) -> Option<i64>| {
        let path = xmc.join(entry);
        if !path.exists() {
            return None;
        }
        match text(&path).as_deref().map(number) {
            // As XRT says it: there is no such sensor.
            Some(Some(0)) => None,
            read => Some(Sensor {
                name: name.to_owned(),
                kind,
                milli: read.flatten().and_then(milli),
                limit_milli: None,
            }),
        }
    };
    let temperatures = XMC_TEMPERATURES.iter().filter_map(|(entry, name)| {
        sensor(entry, name, SensorKind::Temperature, |celsius| celsius.checked_mul(1_000))
    });
    let power = sensor("xmc_power", "Card", SensorKind::Power, |micro| Some(micro / 1_000));
    temperatures.chain(power).collect()
}

/// The folders of hwmon devices of a card and of the parts of its driver.
fn hwmon_folders(device: &Path) -> Vec<PathBuf> {
    let undocumented = |path: &PathBuf| has_name(path, |name| name.starts_with("hwmon_sdm"));
    let parents = entries(device).into_iter().filter(|path| !undocumented(path));
    let parents = std::iter::once(device.to_owned()).chain(parents);
    let of = |parent: PathBuf| {
        let all = entries(&parent.join("hwmon")).into_iter();
        all.filter(|path| has_name(path, |name| name.starts_with("hwmon")))
    };
    parents.flat_map(of).collect()
}

fn of_hwmon(folder: &Path) -> Vec<Sensor> {
    let value = |entry: String| text(&folder.join(entry)).as_deref().and_then(number);
    let sensor = |prefix: &str, kind, inputs: &[&str], limits: &[&str], divisor: i64| {
        let input =
            inputs.iter().find(|input| folder.join(format!("{prefix}_{input}")).exists())?;
        let limit = limits.iter().find_map(|limit| value(format!("{prefix}_{limit}")));
        let name = text(&folder.join(format!("{prefix}_label"))).filter(|name| !name.is_empty());
        Some(Sensor {
            name: name.unwrap_or_else(|| prefix.to_owned()),
            kind,
            milli: value(format!("{prefix}_{input}")).map(|value| value / divisor),
            limit_milli: limit.map(|limit| limit / divisor),
        })
    };
    let temperature = |number: u32| {
        let prefix = format!("temp{number}");
        sensor(&prefix, SensorKind::Temperature, &["input"], &["crit", "max"], 1)
    };
    let power = |number: u32| {
        let prefix = format!("power{number}");
        sensor(&prefix, SensorKind::Power, &["input", "average"], &["crit", "max"], 1_000)
    };
    let temperatures = HWMON_NUMBERS.filter_map(temperature);
    temperatures.chain(HWMON_NUMBERS.filter_map(power)).collect()
}

fn of_firewall(firewall: &Path) -> Option<AxiFirewall> {
    let level = number(&text(&firewall.join("detected_level"))?)?;
    if level == 0 {
        return Some(AxiFirewall::Quiet);
    }
    let status = text(&firewall.join("detected_status")).unwrap_or_default();
    let name = text(&firewall.join("detected_level_name")).unwrap_or_default();
    let words: Vec<&str> =
        [name.as_str(), status.as_str()].into_iter().filter(|word| !word.is_empty()).collect();
    // A level below zero is none that a driver has.
    Some(AxiFirewall::Tripped {
        level: u32::try_from(level).ok()?,
        status: words.join(", status "),
    })
}

fn of_link(device: &Path) -> Option<PcieLink> {
    let speed = |name: &str| text(&device.join(name)).as_deref().and_then(megatransfers);
    let lanes = |name: &str| text(&device.join(name)).as_deref().and_then(lanes);
    let link = PcieLink {
        speed_mts: speed("current_link_speed"),
        lanes: lanes("current_link_width"),
        speed_mts_max: speed("max_link_speed"),
        lanes_max: lanes("max_link_width"),
    };
    (link != PcieLink::default()).then_some(link)
}

/// `8.0 GT/s PCIe` in megatransfers per second; the kernel says `Unknown` where it does not know.
fn megatransfers(text: &str) -> Option<u32> {
    let giga: f64 = text.split_once(" GT/s")?.0.trim().parse().ok()?;
    // The fastest of PCIe 7.0 is 128 GT/s.
    (giga > 0.0 && giga <= 1_000.0).then(|| (giga * 1_000.0).round() as u32)
}

/// The kernel says 0 or 255 where it does not know.
fn lanes(text: &str) -> Option<u32> {
    text.parse().ok().filter(|lanes| (1..=32).contains(lanes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A folder of a card, with these entries.
    fn device(entries: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in entries {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().expect("in the folder")).expect("a folder");
            std::fs::write(path, text).expect("a file");
        }
        folder
    }

    fn named(reading: &DeviceReading) -> Vec<(&str, Option<i64>, Option<i64>)> {
        let sensors = reading.sensors.iter();
        sensors.map(|sensor| (sensor.name.as_str(), sensor.milli, sensor.limit_milli)).collect()
    }

    /// As the driver of a U280 has it (`xocl`, 2.13): `0` stands for a sensor that the card lacks.
    const U280: [(&str, &str); 13] = [
        ("current_link_speed", "8.0 GT/s PCIe\n"),
        ("current_link_width", "16\n"),
        ("max_link_speed", "8.0 GT/s PCIe\n"),
        ("max_link_width", "16\n"),
        ("xmc.u.19922944/xmc_fpga_temp", "43\n"),
        ("xmc.u.19922944/xmc_hbm_temp", "47\n"),
        ("xmc.u.19922944/xmc_se98_temp0", "0\n"),
        ("xmc.u.19922944/xmc_power", "28514000\n"),
        ("firewall.u.2097152/detected_level", "0\n"),
        ("firewall.u.2097152/detected_status", "0\n"),
        ("interface_uuids", "862c7020a250293e32036f19956669e5\n"),
        ("rom.u.0/VBNV", "xilinx_u280_gen3x16_xdma_base_1\n"),
        ("romance/VBNV", "another\n"),
    ];

    #[test]
    fn a_card_takes_roles_for_the_interfaces_that_it_has_and_else_for_its_name() {
        let uuid = Uuid::from_u128;
        let card = |interfaces: &[u128], name: Option<&str>| CardPlatform {
            interfaces: interfaces.iter().copied().map(Uuid::from_u128).collect(),
            name: name.map(str::to_owned),
        };
        let both = card(&[1, 2], Some("u280"));
        assert!(both.takes("another", &[uuid(1)]) && both.takes("u280", &[uuid(2), uuid(1)]));
        assert!(!both.takes("u280", &[uuid(3)]) && !both.takes("u280", &[uuid(1), uuid(3)]));
        // A role without interfaces, and a card whose driver names none.
        assert!(both.takes("u280", &[]) && !both.takes("u250", &[]));
        let named = card(&[], Some("u280"));
        assert!(named.takes("u280", &[uuid(3)]) && !named.takes("u250", &[uuid(3)]));
        let unknown = card(&[], None);
        assert!(unknown.takes("u280", &[uuid(3)]) && card(&[1], None).takes("u280", &[]));
    }

    #[test]
    fn a_card_is_read_as_its_driver_has_it() {
        let folder = device(&U280);
        let reading = read_device(folder.path());
        let expected = [
            ("FPGA", Some(43_000), None),
            ("FPGA HBM", Some(47_000), None),
            ("Card", Some(28_514), None),
        ];
        assert_eq!(named(&reading), expected);
        let link = reading.link.expect("it has one");
        assert_eq!(
            (link.speed_mts, link.lanes, link.is_degraded()),
            (Some(8_000), Some(16), Some(false))
        );
        assert_eq!(reading.firewall, Some(AxiFirewall::Quiet));
        let platform = read_platform(folder.path());
        assert_eq!(platform.name.as_deref(), Some("xilinx_u280_gen3x16_xdma_base_1"));
        let interface = Uuid::try_parse("862c7020-a250-293e-3203-6f19956669e5").expect("a UUID");
        assert_eq!(platform.interfaces, [interface]);
    }

    #[test]
    fn a_firewall_that_tripped_is_told_with_its_level() {
        let folder = device(&[
            ("firewall.u.1/detected_level", "2\n"),
            ("firewall.u.1/detected_status", "0x80000\n"),
        ]);
        let tripped = AxiFirewall::Tripped { level: 2, status: "0x80000".into() };
        assert_eq!(read_device(folder.path()).firewall, Some(tripped));
    }

    #[test]
    fn a_hwmon_device_says_its_limits_where_the_card_has_no_management_controller() {
        let entries = [
            ("hwmon/hwmon3/temp1_input", "51250\n"),
            ("hwmon/hwmon3/temp1_label", "die\n"),
            ("hwmon/hwmon3/temp1_crit", "97000\n"),
            ("hwmon/hwmon3/temp1_max", "85000\n"),
            ("hwmon/hwmon3/power1_average", "31000000\n"),
            ("hwmon_sdm.u.1/hwmon/hwmon4/temp1_input", "51\n"),
        ];
        let expected = [("die", Some(51_250), Some(97_000)), ("power1", Some(31_000), None)];
        assert_eq!(named(&read_device(device(&entries).path())), expected);
        let all: Vec<_> = entries.into_iter().chain(U280).collect();
        assert!(named(&read_device(device(&all).path())).iter().all(|(name, ..)| *name != "die"));
    }

    #[test]
    fn what_does_not_answer_is_unknown_and_never_zero() {
        let nowhere = read_device(Path::new("/nonexistent"));
        assert_eq!(nowhere, DeviceReading::default());
        let folder = device(&[
            ("current_link_speed", "Unknown\n"),
            ("current_link_width", "255\n"),
            ("max_link_width", "16\n"),
            ("xmc.u.1/xmc_fpga_temp", "\n"),
            ("firewall.u.1/detected_status", "0\n"),
        ]);
        let reading = read_device(folder.path());
        assert_eq!(named(&reading), [("FPGA", None, None)]);
        let link = reading.link.expect("something is known");
        assert_eq!((link.speed_mts, link.lanes, link.lanes_max), (None, None, Some(16)));
        assert_eq!(reading.firewall, None);
        assert_eq!(read_platform(folder.path()), CardPlatform::default());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_value_or_unknown(
            bytes in prop::collection::vec(any::<u8>(), 0..40),
            entry in 0..U280.len(),
        ) {
            let folder = device(&U280);
            std::fs::write(folder.path().join(U280[entry].0), &bytes).expect("a file");
            let reading = read_device(folder.path());
            let _ = read_platform(folder.path());
            // Only bytes that say a number say a temperature, and it is that number.
            let said = String::from_utf8(bytes).ok();
            let said = said.map(|text| text.trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned());
            let said = said.and_then(|text| number(&text));
            let milli = reading.sensors.iter().find(|sensor| sensor.name == "FPGA").map(|s| s.milli);
            if U280[entry].0.ends_with("fpga_temp") {
                let expected = match said {
                    Some(0) => None,
                    said => Some(said.and_then(|celsius| celsius.checked_mul(1_000))),
                };
                prop_assert_eq!(milli, expected);
            } else {
                prop_assert_eq!(milli, Some(Some(43_000)));
            }
        }

        #[test]
        fn a_speed_is_that_of_its_text(mega in 1_u32..1_000_000) {
            let text = format!("{}.{:03} GT/s PCIe", mega / 1_000, mega % 1_000);
            prop_assert_eq!(megatransfers(&text), Some(mega));
        }
    }
}
