//! The offer of a node to the scheduler: a `ResourceSlice` with a device for each card, whose virtual functions and bandwidth
//! claims share.
//!
//! A card that is lost, or that takes no more, has a taint: pods move from a lost one, and no new ones come to the others.

use std::collections::BTreeMap;

use k8s_openapi::api::resource::v1::{
    CapacityRequestPolicy, CapacityRequestPolicyRange, Device, DeviceAttribute, DeviceCapacity,
    DeviceTaint, ResourcePool, ResourceSliceSpec,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use snic_api::v1::Card;
use snic_api::v1::card::Health;

use crate::dra::DRIVER;
use crate::dra::settings::{DraSettings, OfferedCard};
use crate::dra::status::{REFUSED, SERVED};

/// Most types of network tasks that are attributes: a device has at most 32 attributes and capacities.
const NT_TYPES_MAX: usize = 22;
/// Longest text of an attribute, in bytes.
const TEXT_BYTES_MAX: usize = 64;
/// Longest name of an attribute, in bytes.
const NAME_BYTES_MAX: usize = 32;

/// State of the daemon's cards, as last read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeInventory {
    /// The cards.
    pub cards: Vec<Card>,
    /// Types of network tasks that every tenant may use, by id.
    pub nt_types: Vec<String>,
    /// Bound functions of each card, by its id.
    pub bound: BTreeMap<String, BoundCount>,
    /// Whether the daemon answers; what was read stays while it does not.
    pub is_reachable: bool,
}

/// Bound functions of a card.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BoundCount {
    /// All of them.
    pub all: u32,
    /// Those that no claim has: of virtual machines, or of the device plugin.
    pub others: u32,
}

/// Why no pod may be given functions of a card, or why those that have some must go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Taint {
    key: &'static str,
    effect: &'static str,
}

const fn taint(key: &'static str, effect: &'static str) -> Option<Taint> {
    Some(Taint { key, effect })
}

/// The taint of a card: the worst that is true of it.
fn taint_of(known: &OfferedCard, inventory: &NodeInventory) -> Option<Taint> {
    let Some(card) = find(inventory, &known.id) else {
        return taint("snic.dev/unknown", "NoSchedule");
    };
    if !inventory.is_reachable {
        return taint("snic.dev/daemon-unreachable", "NoSchedule");
    }
    match card.health() {
        Health::Lost => return taint("snic.dev/lost", "NoExecute"),
        Health::Recovering => return taint("snic.dev/recovering", "NoSchedule"),
        _ => {}
    }
    if card.regions > 0 && card.regions_cordoned == card.regions {
        return taint("snic.dev/cordoned", "NoSchedule");
    }
    if card.device.as_ref().is_some_and(|device| !device.accepts_dags) {
        return taint("snic.dev/hot", "NoSchedule");
    }
    let are_taken = bound(inventory, known).others >= known.functions;
    if are_taken { taint("snic.dev/taken", "NoSchedule") } else { None }
}

fn text(value: &str) -> DeviceAttribute {
    let mut end = value.len().min(TEXT_BYTES_MAX);
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    DeviceAttribute { string: Some(value[..end].to_owned()), ..DeviceAttribute::default() }
}

fn bound(inventory: &NodeInventory, known: &OfferedCard) -> BoundCount {
    inventory.bound.get(&known.id).copied().unwrap_or_default()
}

/// The PCIe root that a card is below, such as `pci0000:00`.
fn pcie_root(settings: &DraSettings, address: &str) -> Option<String> {
    let device = settings.sysfs.join("bus/pci/devices").join(address);
    let target = std::fs::read_link(device).ok()?;
    let parts = target.iter().filter_map(|part| part.to_str());
    parts.into_iter().find(|part| part.starts_with("pci")).map(str::to_owned)
}

fn attributes(
    settings: &DraSettings,
    known: &OfferedCard,
    inventory: &NodeInventory,
) -> BTreeMap<String, DeviceAttribute> {
    let mut attributes = BTreeMap::from([("card".to_owned(), text(&known.id))]);
    if let Some(card) = find(inventory, &known.id) {
        attributes.insert("model".into(), text(&card.model));
        attributes.insert("driver".into(), text(&card.driver));
    }
    attributes.extend(known.tenant.as_ref().map(|tenant| ("tenant".into(), text(tenant))));
    let left = known.functions.saturating_sub(bound(inventory, known).all);
    let left = DeviceAttribute { int: Some(left.into()), ..DeviceAttribute::default() };
    attributes.insert("functionsLeft".into(), left);
    let root = known.pci_address.as_ref().and_then(|address| pcie_root(settings, address));
    attributes.extend(root.map(|root| ("resource.kubernetes.io/pcieRoot".into(), text(&root))));
    // A name is an identifier of C, which has no `-`.
    let names = inventory.nt_types.iter().map(|id| format!("nt_{}", id.replace('-', "_")));
    let names = names.filter(|name| name.len() <= NAME_BYTES_MAX).take(NT_TYPES_MAX);
    let yes = || DeviceAttribute { bool: Some(true), ..DeviceAttribute::default() };
    attributes.extend(names.map(|name| (name, yes())));
    attributes
}

fn capacity(known: &OfferedCard, inventory: &NodeInventory) -> BTreeMap<String, DeviceCapacity> {
    let quantity = |value: u64| Quantity(value.to_string());
    // A result of a claim is one function; more of them are asked for as `count`.
    let one = CapacityRequestPolicy {
        default: Some(quantity(1)),
        valid_values: Some(vec![quantity(1)]),
        ..CapacityRequestPolicy::default()
    };
    // The scheduler subtracts what claims have. Less than one is no capacity; a taint says it then.
    let offered = known.functions.saturating_sub(bound(inventory, known).others).max(1);
    let functions =
        DeviceCapacity { value: quantity(u64::from(offered)), request_policy: Some(one) };
    let mut capacity = BTreeMap::from([("functions".to_owned(), functions)]);
    if let Some(card) = find(inventory, &known.id) {
        // A claim that names no bandwidth reserves none: what its DAG is promised is the daemon's to say.
        let any = CapacityRequestPolicy {
            default: Some(quantity(0)),
            valid_range: Some(CapacityRequestPolicyRange {
                min: quantity(0),
                ..Default::default()
            }),
            ..CapacityRequestPolicy::default()
        };
        let bandwidth = DeviceCapacity {
            value: quantity(card.ingress_bps.min(card.egress_bps)),
            request_policy: Some(any),
        };
        capacity.insert("bandwidth".into(), bandwidth);
    }
    capacity
}

fn find<'a>(inventory: &'a NodeInventory, id: &str) -> Option<&'a Card> {
    let is_it = |card: &&Card| card.name.strip_prefix("cards/") == Some(id);
    inventory.cards.iter().find(is_it)
}

/// The slice of a node.
pub fn slice(settings: &DraSettings, inventory: &NodeInventory) -> ResourceSliceSpec {
    let conditions = |name: &str| settings.binding_conditions.then(|| vec![name.to_owned()]);
    let device = |known: &OfferedCard| {
        let taint = taint_of(known, inventory);
        let taint = taint.map(|Taint { key, effect }| DeviceTaint {
            key: key.into(),
            effect: effect.into(),
            ..DeviceTaint::default()
        });
        Device {
            name: known.id.clone(),
            allow_multiple_allocations: Some(true),
            attributes: Some(attributes(settings, known, inventory)),
            capacity: Some(capacity(known, inventory)),
            binding_conditions: conditions(SERVED),
            binding_failure_conditions: conditions(REFUSED),
            binds_to_node: settings.binding_conditions.then_some(true),
            taints: taint.map(|taint| vec![taint]),
            ..Device::default()
        }
    };
    ResourceSliceSpec {
        driver: DRIVER.into(),
        node_name: Some(settings.node.clone()),
        pool: ResourcePool { name: settings.node.clone(), generation: 1, resource_slice_count: 1 },
        devices: Some(settings.cards.iter().map(device).collect()),
        ..ResourceSliceSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use snic_api::v1::CardDevice;

    use super::*;

    fn settings() -> DraSettings {
        let card = OfferedCard { id: "card0".into(), functions: 8, ..OfferedCard::default() };
        DraSettings { node: "n1".into(), cards: vec![card], ..DraSettings::default() }
    }

    fn inventory(change: fn(&mut Card)) -> NodeInventory {
        let mut card = Card {
            name: "cards/card0".into(),
            model: "sim-16".into(),
            regions: 16,
            ingress_bps: 100_000_000_000,
            egress_bps: 200_000_000_000,
            ..Card::default()
        };
        card.set_health(Health::Ok);
        change(&mut card);
        let nt_types = vec!["load-balancer".into()];
        let bound = BTreeMap::from([("card0".into(), BoundCount { all: 3, others: 1 })]);
        NodeInventory { cards: vec![card], nt_types, bound, is_reachable: true }
    }

    fn only(inventory: &NodeInventory) -> Device {
        let devices = slice(&settings(), inventory).devices.expect("devices");
        let [device] = <[Device; 1]>::try_from(devices).expect("one card");
        device
    }

    #[test]
    fn a_card_offers_its_functions_and_its_bandwidth() {
        let device = only(&inventory(|_| {}));
        assert_eq!(device.allow_multiple_allocations, Some(true));
        let capacity = device.capacity.expect("capacities");
        assert_eq!(capacity["functions"].value.0, "7", "one is a virtual machine's");
        assert_eq!(capacity["bandwidth"].value.0, "100000000000", "the narrower direction");
        let attributes = device.attributes.expect("attributes");
        assert_eq!(attributes["model"].string.as_deref(), Some("sim-16"));
        assert_eq!(attributes["nt_load_balancer"].bool, Some(true));
        assert_eq!(attributes["functionsLeft"].int, Some(5));
        assert!(!attributes.contains_key("tenant"));
        assert_eq!(device.taints, None);
    }

    #[rstest]
    #[case(|card: &mut Card| card.set_health(Health::Lost), "snic.dev/lost NoExecute")]
    #[case(|card: &mut Card| card.set_health(Health::Recovering), "snic.dev/recovering NoSchedule")]
    #[case(|card: &mut Card| card.regions_cordoned = 16, "snic.dev/cordoned NoSchedule")]
    #[case(|card: &mut Card| card.regions_cordoned = 15, "")]
    #[case(|card: &mut Card| card.device = Some(CardDevice::default()), "snic.dev/hot NoSchedule")]
    #[case(|card: &mut Card| card.name = "cards/other".into(), "snic.dev/unknown NoSchedule")]
    fn a_card_that_takes_nothing_has_a_taint(#[case] change: fn(&mut Card), #[case] taint: &str) {
        let taints = only(&inventory(change)).taints.unwrap_or_default();
        let words: Vec<_> = taints.iter().map(|t| format!("{} {}", t.key, t.effect)).collect();
        assert_eq!(words.join(" "), taint);
    }

    #[test]
    fn a_card_whose_functions_all_belong_to_others_has_a_taint() {
        let mut known = inventory(|_| {});
        known.bound.insert("card0".into(), BoundCount { all: 8, others: 8 });
        let device = only(&known);
        assert_eq!(device.taints.expect("a taint")[0].key, "snic.dev/taken");
        let capacity = device.capacity.expect("capacities");
        assert_eq!(capacity["functions"].value.0, "1", "a default of 1 has to be valid");
    }

    #[test]
    fn a_card_says_whose_it_is_and_below_which_root() {
        let sysfs = tempfile::tempdir().expect("a folder");
        let devices = sysfs.path().join("bus/pci/devices");
        std::fs::create_dir_all(&devices).expect("a folder");
        let target = "../../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0";
        std::os::unix::fs::symlink(target, devices.join("0000:3b:00.0")).expect("a link");
        let mut settings = settings();
        settings.sysfs = sysfs.path().to_owned();
        settings.cards[0].pci_address = Some("0000:3b:00.0".into());
        settings.cards[0].tenant = Some("acme".into());
        let device = slice(&settings, &inventory(|_| {})).devices.expect("devices").remove(0);
        let attributes = device.attributes.expect("attributes");
        let root = attributes["resource.kubernetes.io/pcieRoot"].string.as_deref();
        assert_eq!(root, Some("pci0000:3a"));
        assert_eq!(attributes["tenant"].string.as_deref(), Some("acme"));
    }

    #[test]
    fn nothing_is_scheduled_while_the_daemon_does_not_answer() {
        let known = NodeInventory { is_reachable: false, ..inventory(|_| {}) };
        let taints = only(&known).taints.expect("a taint");
        assert_eq!(taints[0].key, "snic.dev/daemon-unreachable");
    }

    #[test]
    fn names_and_texts_have_the_lengths_that_the_api_server_takes() {
        let mut long = inventory(|card| card.model = "ü".repeat(80));
        long.nt_types = (0..100).map(|n| format!("type-{n}")).chain(["t".repeat(40)]).collect();
        let attributes = only(&long).attributes.expect("attributes");
        assert!(attributes.len() <= 30, "{}", attributes.len());
        assert!(attributes.keys().all(|name| name.len() <= 32));
        assert_eq!(attributes["model"].string.as_ref().map(String::len), Some(64));
    }
}
