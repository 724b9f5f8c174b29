//! Hosts for machines and reservations of a fleet, as tables.

use snic_api::fleet_v1::{FindHostsResponse, HostRefusal, Reservation};

use super::Style;
use super::table::{properties, table};
use super::text::{id, rate, time, yes};

/// Hosts that were found, and why the others have no room.
pub fn found(of: &FindHostsResponse, style: Style) -> String {
    let rows = of.hosts.iter().map(|host| {
        vec![
            id(&host.host).to_owned(),
            host.card.clone(),
            host.functions_left.to_string(),
            rate(host.ingress_left_bps),
            host.loads.to_string(),
            yes(host.preferred).to_owned(),
        ]
    });
    let header = ["HOST", "CARD", "FUNCTIONS LEFT", "BANDWIDTH LEFT", "LOADS", "PREFERRED"];
    let hosts = match of.hosts.is_empty() {
        true => "no host has room\n".to_owned(),
        false => table(style, &header, rows.collect()),
    };
    let counted = |of: &HostRefusal| format!("{} {}", of.hosts, of.description);
    let refusals: Vec<String> = of.refusals.iter().map(counted).collect();
    let mut text = hosts;
    if !refusals.is_empty() {
        text += &format!("\nOther hosts: {}\n", refusals.join(", "));
    }
    if !of.first_refusal.is_empty() {
        text += &format!("On the first card tried: {}\n", of.first_refusal);
    }
    text
}

/// Name of a reservation in the form that commands accept: `acme/UUID`.
fn short(name: &str) -> String {
    let rest = name.strip_prefix("tenants/").unwrap_or(name);
    rest.replacen("/reservations/", "/", 1)
}

/// Reservations, one per row.
pub fn reservations(all: &[Reservation], style: Style) -> String {
    let rows = all.iter().map(|of| {
        vec![
            short(&of.name),
            id(&of.host).to_owned(),
            of.card.clone(),
            format!("{} of {}", of.functions.saturating_sub(of.functions_used), of.functions),
            rate(of.bandwidth_bps.saturating_sub(of.bandwidth_used_bps)),
            yes(of.enforced).to_owned(),
            time(of.expire_time.as_ref()),
        ]
    });
    let header = ["RESERVATION", "HOST", "CARD", "FUNCTIONS", "BANDWIDTH", "ENFORCED", "ENDS"];
    table(style, &header, rows.collect())
}

/// A reservation, field by field.
pub fn reservation(of: &Reservation, style: Style) -> String {
    let functions = format!("{} ({} taken up)", of.functions, of.functions_used);
    let bandwidth =
        format!("{} ({} taken up)", rate(of.bandwidth_bps), rate(of.bandwidth_used_bps));
    let vm = if of.vm.is_empty() { "any of the tenant".to_owned() } else { of.vm.clone() };
    let rows = [
        ("Reservation", short(&of.name)),
        ("Host", id(&of.host).to_owned()),
        ("Card", of.card.clone()),
        ("Functions", functions),
        ("Bandwidth", bandwidth),
        ("Machine", vm),
        ("Enforced by its host", yes(of.enforced).to_owned()),
        ("Ends", time(of.expire_time.as_ref())),
    ];
    properties(style, &rows)
}
