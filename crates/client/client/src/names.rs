//! Converts names as people write them, short or full, to names of the API.

use snic_api::names::{
    BitstreamName, CardName, DagName, NtTypeName, OperationName, RegionName, ResourceName,
    RuleName, TenantName, VmBindingName,
};

use crate::failure::Failure;

const NO_TENANT: &str =
    "use the full name (acme/web), or set the tenant with --tenant, SNICCTL_TENANT or the context";

/// `acme` or `tenants/acme`.
///
/// # Errors
/// The text is neither of the two, or the id in it is not valid.
pub fn tenant(text: &str) -> Result<String, Failure> {
    in_collection::<TenantName<'_>>("tenants", text)
}

/// `nat` or `ntTypes/nat`.
///
/// # Errors
/// The text is neither of the two, or the id in it is not valid.
pub fn nt_type(text: &str) -> Result<String, Failure> {
    in_collection::<NtTypeName<'_>>("ntTypes", text)
}

/// `nat-sim-16` or `bitstreams/nat-sim-16`.
///
/// # Errors
/// The text is neither of the two, or the id in it is not valid.
pub fn bitstream(text: &str) -> Result<String, Failure> {
    in_collection::<BitstreamName<'_>>("bitstreams", text)
}

/// `card0` or `cards/card0`.
///
/// # Errors
/// The text is neither of the two, or the id in it is not valid.
pub fn card(text: &str) -> Result<String, Failure> {
    in_collection::<CardName<'_>>("cards", text)
}

/// `web-http` or `classificationRules/web-http`.
///
/// # Errors
/// The text is neither of the two, or the id in it is not valid.
pub fn rule(text: &str) -> Result<String, Failure> {
    in_collection::<RuleName<'_>>("classificationRules", text)
}

/// The UUID of a virtual machine, or `vmBindings/{uuid}`.
///
/// # Errors
/// The text is neither of the two, or the id in it is not valid.
pub fn binding(text: &str) -> Result<String, Failure> {
    in_collection::<VmBindingName<'_>>("vmBindings", text)
}

/// The id of an operation, or `operations/{id}`.
///
/// # Errors
/// The text is neither of the two, or the id in it is not valid.
pub fn operation(text: &str) -> Result<String, Failure> {
    in_collection::<OperationName<'_>>("operations", text)
}

/// `h1` or `hosts/h1`. Servers check the rest.
pub fn host(text: &str) -> String {
    prefixed("hosts", text)
}

/// `shop` or `projects/shop`. Servers check the rest.
pub fn project(text: &str) -> String {
    prefixed("projects", text)
}

fn prefixed(collection: &str, text: &str) -> String {
    let is_full = text.strip_prefix(collection).is_some_and(|rest| rest.starts_with('/'));
    if is_full { text.to_owned() } else { format!("{collection}/{text}") }
}

/// A zone `z1` or `zones/z1`, or a rack `z1/r1` or `zones/z1/racks/r1`. Servers check the rest.
pub fn area(text: &str) -> String {
    match text.split('/').collect::<Vec<_>>().as_slice() {
        ["zones", ..] => text.to_owned(),
        [zone, rack] => format!("zones/{zone}/racks/{rack}"),
        _ => prefixed("zones", text),
    }
}

/// `web` of `tenant`, `acme/web` or `tenants/acme/dags/web`.
///
/// # Errors
/// The text is none of the three, an id in it is not valid, or the tenant is neither in it nor given.
pub fn dag(text: &str, tenant: Option<&str>) -> Result<String, Failure> {
    let whole = match text.split('/').collect::<Vec<_>>().as_slice() {
        [dag] => {
            let tenant = tenant.ok_or_else(|| {
                Failure::usage(format!("the tenant of DAG {dag:?} is missing"), NO_TENANT)
            })?;
            format!("{}/dags/{dag}", self::tenant(tenant)?)
        }
        [tenant, dag] if *tenant != "tenants" => format!("tenants/{tenant}/dags/{dag}"),
        _ => text.to_owned(),
    };
    checked::<DagName<'_>>(&whole)?;
    Ok(whole)
}

/// `card0/3` or `cards/card0/regions/3`; `3` of `only_card`, if there is one.
///
/// # Errors
/// The text is none of the three, a part of it is not valid, or it names no card and there is not exactly one.
pub fn region(text: &str, only_card: Option<&str>) -> Result<String, Failure> {
    let whole = match text.split('/').collect::<Vec<_>>().as_slice() {
        [region] => {
            let card = only_card.ok_or_else(|| {
                let message = format!("the card of region {region:?} is missing");
                Failure::usage(message, "use the full name, such as card0/3")
            })?;
            format!("{}/regions/{region}", self::card(card)?)
        }
        [card, region] => format!("cards/{card}/regions/{region}"),
        _ => text.to_owned(),
    };
    checked::<RegionName<'_>>(&whole)?;
    Ok(whole)
}

/// Whether a region is written without its card.
pub fn is_region_alone(text: &str) -> bool {
    !text.contains('/')
}

fn in_collection<'a, N: ResourceName<'a>>(
    collection: &str,
    text: &'a str,
) -> Result<String, Failure> {
    if !text.contains('/') && !text.is_empty() && text != "-" {
        return Ok(format!("{collection}/{text}"));
    }
    checked::<N>(text)?;
    Ok(text.to_owned())
}

fn checked<'a, N: ResourceName<'a>>(text: &'a str) -> Result<N, Failure> {
    N::parse(text).map_err(|error| Failure::usage(error.to_string(), ""))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn areas_and_hosts_may_be_short() {
        for (short, full) in [("z1", "zones/z1"), ("z1/r1", "zones/z1/racks/r1")] {
            assert_eq!((area(short), area(full)), (full.to_owned(), full.to_owned()));
        }
        assert_eq!(area("a/b/c"), "zones/a/b/c", "the server refuses it by this name");
        assert_eq!((host("h1.x"), host("hosts/h1.x")), ("hosts/h1.x".into(), "hosts/h1.x".into()));
        assert_eq!(project("projects"), "projects/projects");
    }

    #[rstest]
    #[case("web", Some("acme"), "tenants/acme/dags/web")]
    #[case("web", Some("tenants/acme"), "tenants/acme/dags/web")]
    #[case("globex/web", Some("acme"), "tenants/globex/dags/web")]
    #[case("tenants/globex/dags/web", None, "tenants/globex/dags/web")]
    fn dags_are_short_or_whole(
        #[case] text: &str,
        #[case] tenant: Option<&str>,
        #[case] name: &str,
    ) {
        assert_eq!(dag(text, tenant).unwrap(), name);
    }

    #[test]
    fn a_dag_without_a_tenant_says_where_to_put_it() {
        let Failure::Usage { message, hint } = dag("web", None).unwrap_err() else { panic!() };
        assert!(message.contains("tenant") && hint.contains("--tenant"), "{message} {hint}");
    }

    #[rstest]
    #[case("3", Some("cards/card0"), "cards/card0/regions/3")]
    #[case("card1/3", Some("cards/card0"), "cards/card1/regions/3")]
    #[case("cards/c/regions/31", None, "cards/c/regions/31")]
    fn regions_are_short_or_whole(
        #[case] text: &str,
        #[case] card: Option<&str>,
        #[case] name: &str,
    ) {
        assert_eq!(region(text, card).unwrap(), name);
    }

    #[test]
    fn other_names_get_their_collection() {
        assert_eq!(tenant("acme").unwrap(), "tenants/acme");
        assert_eq!(nt_type("ntTypes/acme.nat").unwrap(), "ntTypes/acme.nat");
        assert_eq!(bitstream("b").unwrap(), "bitstreams/b");
        assert_eq!(rule("r").unwrap(), "classificationRules/r");
        assert_eq!(operation("o").unwrap(), "operations/o");
    }

    #[rstest]
    #[case("")]
    #[case("-")]
    #[case("tenants/")]
    #[case("cards/c")]
    #[case("tenants/a/dags/x")]
    fn what_names_no_tenant_is_refused(#[case] text: &str) {
        assert_eq!(tenant(text).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn names_without_a_dag_or_region_are_refused() {
        for text in ["", "/", "a/", "/b", "tenants/a", "tenants/a/dags/b/c", "cards/c/dags/x"] {
            assert!(dag(text, Some("acme")).is_err(), "{text}");
        }
        assert!(region("3", None).is_err());
        assert!(region("a/b/c", None).is_err());
    }
}
