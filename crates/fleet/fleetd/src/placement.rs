//! Where a DAG may go, as its tenant says it.

use std::collections::BTreeSet;

use snic_api::convert::{FieldProblem, Problems, name};
use snic_api::error::ApiError;
use snic_api::v1;
use snic_api::v1::placement::Order;
use snic_domain::{CardModel, DagName};
use snic_fleet::placement::{CardConstraints, CardPolicy, PlacementDefaults, TenantDefaults};
use snic_fleet::protocol::FLEET_PLACEMENT;
use snic_fleet::{HostId, RackId, ZoneId};

/// Most values of each list: each is looked at for each host.
const VALUES_MAX: usize = 64;

/// Constraints and the order of cards of a new DAG; none where it says nothing.
///
/// # Errors
/// All invalid fields, by name.
pub(crate) fn read(
    wire: Option<&v1::Placement>,
) -> Result<(CardConstraints, CardPolicy), ApiError> {
    let Some(wire) = wire else { return Ok(Default::default()) };
    let mut problems = Problems::default();
    let too_many = |field: &str, count: usize| {
        let rule = format!("{count} values; at most {VALUES_MAX} are allowed");
        (count > VALUES_MAX).then(|| FieldProblem::invalid(format!("dag.placement.{field}"), rule))
    };
    let lists = [
        ("zones", wire.zones.len()),
        ("racks", wire.racks.len()),
        ("hosts", wire.hosts.len()),
        ("apart_from_hosts", wire.apart_from_hosts.len()),
        ("card_models", wire.card_models.len()),
        ("host_labels", wire.host_labels.len()),
        ("hosts_without_dags", wire.hosts_without_dags.len()),
        ("racks_without_dags", wire.racks_without_dags.len()),
    ];
    for problem in lists.into_iter().filter_map(|(field, count)| too_many(field, count)) {
        let _ = problems.keep::<()>(Err(problem));
    }
    problems.finish()?;
    let mut problems = Problems::default();
    let model = |field: String, text: &str| {
        CardModel::new(text).map_err(|error| FieldProblem::invalid(field, error))
    };
    let constraints = CardConstraints {
        zones: each(&mut problems, "dag.placement.zones", &wire.zones, |field, text| {
            ZoneId::new(text).map_err(|error| FieldProblem::invalid(field, error))
        }),
        racks: each(&mut problems, "dag.placement.racks", &wire.racks, |field, text| {
            RackId::new(text).map_err(|error| FieldProblem::invalid(field, error))
        }),
        hosts: each(&mut problems, "dag.placement.hosts", &wire.hosts, host),
        apart_from_hosts: each(
            &mut problems,
            "dag.placement.apart_from_hosts",
            &wire.apart_from_hosts,
            host,
        ),
        models: each(&mut problems, "dag.placement.card_models", &wire.card_models, model),
        labels: wire.host_labels.clone(),
        hosts_without_dags: dags(&mut problems, "hosts_without_dags", &wire.hosts_without_dags),
        racks_without_dags: dags(&mut problems, "racks_without_dags", &wire.racks_without_dags),
        ..CardConstraints::default()
    };
    let order = problems.keep(order(wire.order));
    problems.finish()?;
    Ok((constraints, order.unwrap_or_default()))
}

fn dags(problems: &mut Problems, list: &str, names: &[String]) -> BTreeSet<DagName> {
    each(problems, &format!("dag.placement.{list}"), names, |field, text| name::dag(&field, text))
}

fn host(field: String, text: &str) -> Result<HostId, FieldProblem> {
    let Some(id) = text.strip_prefix("hosts/") else {
        return Err(FieldProblem::invalid(field, format!("{text:?} is not like hosts/HOST")));
    };
    HostId::new(id).map_err(|error| FieldProblem::invalid(field, error))
}

fn order(of: i32) -> Result<CardPolicy, FieldProblem> {
    match Order::try_from(of) {
        Ok(Order::Unspecified | Order::Pack) => Ok(CardPolicy::Pack),
        Ok(Order::Spread) => Ok(CardPolicy::Spread),
        Ok(Order::Headroom) => Ok(CardPolicy::Headroom),
        Ok(Order::Loaded) => Ok(CardPolicy::Loaded),
        Err(_) => Err(FieldProblem::invalid(
            "dag.placement.order".to_owned(),
            format!("{of} is not a known order"),
        )),
    }
}

/// Values of a list of a message; `list` is the list's path, which problems name.
pub(crate) fn each<T: Ord>(
    problems: &mut Problems,
    list: &str,
    texts: &[String],
    parse: impl Fn(String, &str) -> Result<T, FieldProblem>,
) -> BTreeSet<T> {
    let parsed = texts
        .iter()
        .enumerate()
        .filter_map(|(index, text)| problems.keep(parse(format!("{list}[{index}]"), text)));
    parsed.collect()
}

/// The same on the wire; `None` where a DAG may go everywhere and cards are filled one by one, as by default.
pub(crate) fn to_wire(constraints: &CardConstraints, policy: CardPolicy) -> Option<v1::Placement> {
    fn texts<T: ToString>(of: &BTreeSet<T>) -> Vec<String> {
        of.iter().map(ToString::to_string).collect()
    }
    let hosts = |of: &BTreeSet<HostId>| of.iter().map(|host| format!("hosts/{host}")).collect();
    let order = match policy {
        CardPolicy::Pack => Order::Unspecified,
        CardPolicy::Spread => Order::Spread,
        CardPolicy::Headroom => Order::Headroom,
        CardPolicy::Loaded => Order::Loaded,
    };
    let wire = v1::Placement {
        zones: texts(&constraints.zones),
        racks: texts(&constraints.racks),
        hosts: hosts(&constraints.hosts),
        apart_from_hosts: hosts(&constraints.apart_from_hosts),
        card_models: texts(&constraints.models),
        host_labels: constraints.labels.clone(),
        order: order.into(),
        hosts_without_dags: texts(&constraints.hosts_without_dags),
        racks_without_dags: texts(&constraints.racks_without_dags),
    };
    (wire != v1::Placement::default()).then_some(wire)
}

/// Additions of the policy to a DAG's placement; `None` where it added nothing.
pub(crate) fn defaults_to_wire(defaults: &PlacementDefaults) -> Option<v1::Placement> {
    let mut constraints = CardConstraints::default();
    defaults.add_to(&mut constraints);
    to_wire(&constraints, CardPolicy::Pack)
}

/// Defaults of placements, from the text of their policy file.
///
/// # Errors
/// Where the text is wrong, as `FILE:LINE: WHY`.
pub(crate) fn defaults(text: &str) -> Result<TenantDefaults, String> {
    let defaults: TenantDefaults = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let line = text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
        format!("{FLEET_PLACEMENT}:{line}: {}", error.message().replace('\n', "; "))
    })?;
    let tables = defaults.tenants.iter().map(|(tenant, of)| (format!("tenants.{tenant}"), of));
    for (table, of) in tables.chain([("default".to_owned(), &defaults.all)]) {
        let lists = [
            ("zones", of.zones.len()),
            ("racks", of.racks.len()),
            ("card_models", of.models.len()),
            ("host_labels", of.labels.len()),
        ];
        if let Some((list, count)) = lists.into_iter().find(|(_, count)| *count > VALUES_MAX) {
            let rule = format!("at most {VALUES_MAX} are allowed");
            return Err(format!("{FLEET_PLACEMENT}: {table}.{list}: {count} values; {rule}"));
        }
    }
    Ok(defaults)
}

/// Refuses a change of where a DAG may go. What an update says of it is the same, or nothing.
///
/// # Errors
/// It says something else.
pub(crate) fn check_same(
    wanted: &v1::Placement,
    (constraints, policy): (&CardConstraints, CardPolicy),
) -> Result<(), ApiError> {
    if read(Some(wanted))? == (constraints.clone(), policy) {
        return Ok(());
    }
    let text = "it is set when the DAG is created, and not changed later; leave it as it is, or delete the DAG and \
                create it anew";
    Err(ApiError::in_field(v1::ErrorReason::InvalidField, "dag.placement", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire() -> v1::Placement {
        v1::Placement {
            zones: vec!["z1".to_owned(), "z2".to_owned()],
            racks: vec!["r1".to_owned()],
            hosts: vec!["hosts/h1".to_owned()],
            apart_from_hosts: vec!["hosts/h2".to_owned()],
            card_models: vec!["sim-16".to_owned()],
            host_labels: [("gpu".to_owned(), "yes".to_owned())].into(),
            order: Order::Headroom.into(),
            hosts_without_dags: vec!["tenants/acme/dags/a".to_owned()],
            racks_without_dags: vec!["tenants/acme/dags/b".to_owned()],
        }
    }

    #[test]
    fn a_placement_is_read_and_shown_as_it_was_said() {
        let (constraints, policy) = read(Some(&wire())).expect("it is valid");
        assert_eq!((constraints.zones.len(), policy), (2, CardPolicy::Headroom));
        assert_eq!(to_wire(&constraints, policy), Some(wire()));
        let nothing = read(None).expect("it is valid");
        assert_eq!(to_wire(&nothing.0, nothing.1), None);
        let pack = v1::Placement { order: Order::Pack.into(), ..Default::default() };
        let said = read(Some(&pack)).expect("it is valid");
        assert_eq!(said, nothing, "the default");
    }

    #[test]
    fn a_wrong_value_is_named() {
        let wrong = v1::Placement {
            zones: vec!["z1".to_owned(), "Z!".to_owned()],
            hosts: vec!["h1".to_owned()],
            order: 99,
            racks_without_dags: vec!["tenants/acme/dags/a".to_owned(), "b".to_owned()],
            ..Default::default()
        };
        let text = format!("{:?}", read(Some(&wrong)).expect_err("four values are wrong"));
        for field in [
            "placement.zones[1]",
            "placement.hosts[0]",
            "placement.order",
            "placement.racks_without_dags[1]",
        ] {
            assert!(text.contains(field), "{field}: {text}");
        }
        let many = (0..65).map(|of| format!("z{of}")).collect();
        let many = v1::Placement { zones: many, ..Default::default() };
        let text = read(Some(&many)).expect_err("64 are allowed").to_string();
        assert!(text.contains("65 values; at most 64"), "{text}");
    }

    #[test]
    fn the_file_of_defaults_is_read_and_a_fault_named() {
        let text = "[default]\nzones = [\"z1\"]\ncard_models = [\"sim-16\"]\n\n[tenants.acme]\n\
                    racks = [\"r1\"]\nhost_labels = { disk = \"ssd\" }\n";
        let read = defaults(text).expect("it is valid");
        let tenant = |id: &str| snic_domain::TenantId::new(id).expect("an id");
        let none = CardConstraints::default();
        let shown = |id: &str| defaults_to_wire(&read.of(&tenant(id), &none)).expect("some");
        assert_eq!((shown("beta").zones, shown("beta").card_models.len()), (vec!["z1".into()], 1));
        let acme = shown("acme");
        assert_eq!(
            (acme.racks, acme.zones.len(), acme.host_labels.len()),
            (vec!["r1".into()], 0, 1)
        );
        for (wrong, said) in [
            ("[default]\nzone = []\n", "fleet-placement.toml:2: unknown field `zone`"),
            ("\n[tenants.acme]\nzones = [\"Z!\"]\n", "fleet-placement.toml:3: "),
            ("[default\n", "fleet-placement.toml:1: "),
        ] {
            let why = defaults(wrong).expect_err(said);
            assert!(why.starts_with(said), "{why}");
        }
        let many: Vec<String> = (0..65).map(|of| format!("\"z{of}\"")).collect();
        let many = format!("[default]\nzones = [{}]\n", many.join(","));
        let why = defaults(&many).expect_err("64 are allowed");
        assert!(why.contains("default.zones: 65 values; at most 64"), "{why}");
    }

    #[test]
    fn a_placement_stays_as_it_is() {
        let (constraints, policy) = read(Some(&wire())).expect("it is valid");
        check_same(&wire(), (&constraints, policy)).expect("it is the same");
        let other = v1::Placement { zones: vec!["z1".to_owned()], ..wire() };
        let text = check_same(&other, (&constraints, policy)).expect_err("another").to_string();
        assert!(text.contains("create it anew"), "{text}");
    }
}
