//! Dependencies between crates: the groups of `crates/`, their order, and the order of the crates in each. The pure
//! core stays pure because it cannot reach anything with I/O, and adapters stay exchangeable because
//! only the daemon names them. One dependency in a manifest could break either, so the manifests are checked against
//! these lists.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::workspace::Member;

/// One folder of `crates/`.
struct Group {
    name: &'static str,
    /// Its crates. Each may use those that stand before it here.
    crates: &'static [&'static str],
    /// Other groups that its crates may use. All stand before it in [`GROUPS`], so no arrow leads upward.
    uses: &'static [&'static str],
}

/// The groups, lower ones first. A crate without a place here is an error, so that a new crate is a decision.
#[rustfmt::skip]
const GROUPS: &[Group] = &[
    Group {
        name: "core",
        crates: &["output", "domain", "tables", "bitstream", "processors", "planner", "fairness", "autoscaler",
            "usage", "admission", "ports", "controller", "policies"],
        uses: &[],
    },
    Group { name: "stores", crates: &["store-sled", "etcd", "store-etcd"], uses: &["core"] },
    Group {
        name: "cards",
        crates: &["card-sim", "card-xrt", "nts", "card-soft", "nts-wasm", "vhost-user", "fast-path", "card"],
        uses: &["core"],
    },
    Group {
        name: "edge",
        crates: &["telemetry", "api", "audit", "front", "authorization-cedar", "web"],
        uses: &["core", "cards"],
    },
    Group { name: "fleet", crates: &["fleet", "host-link", "fleetd"], uses: &["core", "stores", "edge"] },
    Group { name: "host", crates: &["server", "daemon"], uses: &["core", "stores", "cards", "edge", "fleet"] },
    Group { name: "client", crates: &["dagfile", "client", "top", "cli"], uses: &["core", "edge"] },
    Group { name: "research", crates: &["offloads", "oracles", "repro"], uses: &["core", "cards"] },
    Group { name: "tools", crates: &["xtask"], uses: &[] },
];

/// Crates that a narrower rule holds for than the one for their place: what each must not use, and why. A name that
/// ends with `/` is a group.
#[rustfmt::skip]
const NARROWER: &[(&str, &[&str], &str)] = &[
    ("controller", &["ports", "admission"], "the core has no I/O, and knows nothing of callers' queues"),
    ("planner", &["tables", "bitstream"], "a plan knows no registers and no files"),
    ("fairness", &["tables", "bitstream", "processors", "planner"], "fairness is numbers in, numbers out"),
    ("autoscaler", &["tables", "bitstream", "processors", "planner", "fairness"], "loads in, decisions out"),
    ("usage", &["bitstream", "processors", "planner", "fairness", "autoscaler"],
        "usage is counters and times in, records out"),
    ("admission", &["domain", "tables", "bitstream", "processors", "planner", "fairness", "autoscaler", "usage"],
        "shares of callers are numbers in, numbers out"),
    ("ports", &["processors", "planner", "fairness", "autoscaler", "usage", "admission"],
        "a card knows registers, regions and bitstreams, and no tenant"),
    ("card-xrt", &["card-sim"], "a real card does not need the model"),
    ("store-etcd", &["store-sled"], "adapters do not know each other"),
    ("api", &["controller"], "the wire format does not depend on the machine behind it"),
    ("front", &["controller"], "all servers have this front"),
    ("audit", &["controller"], "all servers have this log"),
    ("authorization-cedar", &["controller"], "all servers have these policies"),
    ("host-link", &["front"], "a host's link needs no server"),
    ("fleet", &["controller", "front", "store-etcd"], "the fleet's core has no I/O"),
    ("server", &["cards/", "stores/", "fleet/"], "only the daemon names adapters"),
    ("daemon", &["card", "nts-wasm", "vhost-user", "fast-path"], "compilers and guests' memory live in another process"),
    ("repro", &["card", "nts-wasm", "vhost-user", "fast-path"], "figures need neither compilers nor guests"),
];

/// Ends of the graph: only the listed roles may depend on these, even in tests.
const ENDS: &[(&str, &[&str])] =
    &[("integration", &["integration"]), ("xtask", &[]), ("cli", &["integration"])];

/// Crate that only tests and benchmarks may depend on. It knows the public types of the crates that it is
/// compared with, so cycles through it are allowed.
const TESTS_ONLY: &str = "oracles";

/// Every forbidden arrow, every crate without a place, and a cycle if there is one.
///
/// Dev-dependencies are free except for [`ENDS`] and cycles, because tests reach further than code.
pub fn check(members: &[Member]) -> Vec<String> {
    let mut wrong = Vec::new();
    for member in members.iter().filter(|member| member.role != "integration") {
        match place(&member.role) {
            None => wrong.push(format!(
                "{}: `{}` has no place in GROUPS (crates/tools/xtask/src/arrows.rs): decide what it may \
                 depend on",
                member.manifest.display(),
                member.role
            )),
            Some(group) => {
                let folder = format!("crates/{}/", GROUPS[group].name);
                if !member.manifest.starts_with(&folder) {
                    wrong.push(format!("{}: belongs in {folder}", member.manifest.display()));
                }
            }
        }
    }
    wrong.extend(members.iter().flat_map(check_member));
    wrong.extend(cycle(members));
    wrong
}

/// The index of a crate's group.
fn place(role: &str) -> Option<usize> {
    GROUPS.iter().position(|group| group.crates.contains(&role))
}

/// The folder of `crates/` that a crate belongs in.
#[cfg(test)]
pub fn group_of(role: &str) -> Option<&'static str> {
    place(role).map(|group| GROUPS[group].name)
}

fn check_member(member: &Member) -> Vec<String> {
    let mut wrong = Vec::new();
    for edge in &member.edges {
        let end = ENDS.iter().find(|(end, _)| *end == edge.to);
        let reason = match end {
            Some((_, friends)) if friends.contains(&member.role.as_str()) => None,
            Some(_) => Some("nothing depends on it, not even tests".to_owned()),
            None if edge.dev => None,
            None if edge.to == TESTS_ONLY => Some("it is for tests and benchmarks".to_owned()),
            None => refusal(&member.role, &edge.to),
        };
        if let Some(reason) = reason {
            let manifest = member.manifest.display();
            wrong.push(format!(
                "{manifest}: `{}` must not depend on `{}`: {reason}",
                member.role, edge.to
            ));
        }
    }
    wrong
}

/// The reason why one crate must not use another, if there is one.
fn refusal(from: &str, to: &str) -> Option<String> {
    let (Some(own), Some(other)) = (place(from), place(to)) else {
        return None; // `integration`, which reaches everything, or reported as without a place
    };
    let (group, target) = (&GROUPS[own], &GROUPS[other]);
    let at = |role: &str| group.crates.iter().position(|name| *name == role);
    if own != other && !group.uses.contains(&target.name) {
        let allowed = if group.uses.is_empty() { "no other".into() } else { group.uses.join(", ") };
        return Some(format!("{} may use {allowed} beside itself", group.name));
    }
    if own == other && at(to) >= at(from) {
        return Some(format!("it does not stand before it in {}", group.name));
    }
    let folder = format!("{}/", target.name);
    let narrower = NARROWER.iter().find(|(name, barred, _)| {
        *name == from && (barred.contains(&to) || barred.contains(&folder.as_str()))
    });
    narrower.map(|(_, _, reason)| (*reason).to_owned())
}

/// A cycle, if there is one. Dev-dependencies count: cargo accepts a cycle through tests, but then builds the
/// crate twice, with types that look the same and are not. [`TESTS_ONLY`] is exempt: only `tests/` and
/// `benches/` use it, which cargo links with one build of the crate. The packages of `integration/` share a
/// role and may use each other; nothing else depends on them.
fn cycle(members: &[Member]) -> Option<String> {
    let is_exempt = |role: &str| role == "integration" || role == TESTS_ONLY;
    let mut left: Vec<&Member> = members.iter().filter(|member| !is_exempt(&member.role)).collect();
    // What uses nothing that is left is taken away, until only circles and what leads to them remain.
    loop {
        let roles: BTreeSet<&str> = left.iter().map(|member| member.role.as_str()).collect();
        let before = left.len();
        left.retain(|member| member.edges.iter().any(|edge| roles.contains(edge.to.as_str())));
        if left.is_empty() {
            return None;
        }
        if left.len() == before {
            return Some(format!("a cycle: {}", walk(&left).join(" → ")));
        }
    }
}

/// One circle among crates that each use another of them.
fn walk<'a>(left: &[&'a Member]) -> Vec<&'a str> {
    let mut path = vec![left[0].role.as_str()];
    loop {
        let here = left.iter().find(|member| member.role == path[path.len() - 1]);
        let is_left = |role: &str| left.iter().any(|member| member.role == role);
        let next = here.and_then(|member| member.edges.iter().find(|edge| is_left(&edge.to)));
        let Some(next) = next else { return path };
        let start = path.iter().position(|role| *role == next.to);
        path.push(&next.to);
        if let Some(start) = start {
            return path.split_off(start);
        }
    }
}

/// The graph as text: the groups with the groups that each uses, and one line per crate, dependencies of tests in
/// brackets.
pub fn draw(members: &[Member]) -> String {
    let width = members.iter().map(|member| member.role.len()).max().unwrap_or(0);
    let mut text = String::new();
    let mut rows: Vec<&Member> = members.iter().collect();
    rows.sort_by_key(|member| (place(&member.role).unwrap_or(GROUPS.len()), &member.role));
    let mut last = None;
    for member in rows {
        let group = place(&member.role);
        if let Some(group) = group.filter(|_| last != Some(group)) {
            let Group { name, uses, .. } = &GROUPS[group];
            let arrow =
                if uses.is_empty() { String::new() } else { format!(" → {}", uses.join(", ")) };
            writeln!(text, "{name}/{arrow}").expect("writing to a string cannot fail");
        }
        last = Some(group);
        let names = |dev: bool| {
            let edges = member.edges.iter().filter(|edge| edge.dev == dev);
            edges.map(|edge| edge.to.as_str()).collect::<Vec<_>>().join(", ")
        };
        let (code, tests) = (names(false), names(true));
        let mut line = format!("    {:width$}", member.role);
        if !code.is_empty() {
            line += &format!(" → {code}");
        }
        if !tests.is_empty() {
            line += &format!(" [tests → {tests}]");
        }
        writeln!(text, "{}", line.trim_end()).expect("writing to a string cannot fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::tests::member;

    fn is_allowed(from: &str, to: &str) -> bool {
        let target = to.strip_prefix("dev ").unwrap_or(to);
        check(&[member(from, &[to]), member(target, &[])]).is_empty()
    }

    #[test]
    fn no_group_uses_one_that_stands_behind_it_and_no_crate_has_two_places() {
        let mut seen = BTreeSet::new();
        let mut arrows = 0;
        for (at, group) in GROUPS.iter().enumerate() {
            arrows += group.uses.len();
            for name in group.uses {
                assert!(GROUPS[..at].iter().any(|before| before.name == *name), "{name}");
            }
            assert!(group.crates.iter().all(|name| seen.insert(*name)), "{}", group.name);
        }
        assert!(arrows <= 20, "{arrows} arrows between groups; at most 20 can be kept in mind");
        for (from, barred, reason) in NARROWER {
            assert!(place(from).is_some() && !reason.is_empty(), "{from}");
            for name in *barred {
                let is_group =
                    GROUPS.iter().any(|group| Some(group.name) == name.strip_suffix('/'));
                assert!(is_group || place(name).is_some(), "{name} is gone: remove it");
            }
        }
    }

    #[test]
    fn the_core_reaches_nothing_with_io() {
        for pure in ["planner", "fairness", "autoscaler", "tables", "bitstream"] {
            assert!(is_allowed(pure, "domain"));
            assert!(is_allowed("controller", pure));
            for other in ["controller", "ports", "store-sled", "api", "server"] {
                assert!(!is_allowed(pure, other), "{pure} → {other}");
            }
            assert!(!is_allowed("domain", pure));
        }
        assert!(!is_allowed("planner", "fairness"));
        for port_side in ["tables", "bitstream", "domain"] {
            assert!(is_allowed("ports", port_side));
        }
        assert!(!is_allowed("controller", "ports"), "the core has no I/O");
        assert!(!is_allowed("ports", "planner"));
        assert!(!is_allowed("api", "controller"));
    }

    #[test]
    fn only_the_daemon_names_adapters() {
        for needed in ["api", "controller", "ports", "telemetry", "domain", "front"] {
            assert!(is_allowed("server", needed));
        }
        for adapter in ["card-sim", "card-xrt", "card-soft", "store-sled", "host-link"] {
            assert!(is_allowed("daemon", adapter));
            assert!(is_allowed("integration", adapter));
            assert!(!is_allowed("server", adapter));
            assert!(!is_allowed("cli", adapter));
        }
        assert!(!is_allowed("daemon", "nts-wasm"));
        assert!(!is_allowed("daemon", "cli"));
        assert!(!is_allowed("card-xrt", "card-sim"));
        assert!(!is_allowed("store-etcd", "store-sled"));
        assert!(!is_allowed("front", "controller"));
    }

    #[test]
    fn tests_reach_further_but_not_to_the_ends() {
        assert!(is_allowed("controller", "dev card-sim"));
        for end in ["dev cli", "dev integration", "dev xtask"] {
            assert!(!is_allowed("server", end));
        }
        for from in ["daemon", "server", "domain", "cli", "integration"] {
            assert!(!is_allowed(from, "xtask"));
        }
        assert!(is_allowed("integration", "cli"));
        assert!(is_allowed("integration", "dev cli"));
        // Its packages help each other.
        assert!(is_allowed("integration", "integration"));
    }

    #[test]
    fn a_refusal_names_the_manifest_the_arrow_and_the_reason() {
        let wrong = check(&[member("store-sled", &["nts", "ports", "domain"])]);
        assert_eq!(
            wrong,
            [
                "crates/stores/store-sled/Cargo.toml: `store-sled` must not depend on `nts`: stores may use core \
              beside itself"
            ]
        );
        let wrong = check(&[member("server", &["store-sled"])]);
        assert!(wrong[0].ends_with("`store-sled`: only the daemon names adapters"), "{wrong:?}");
        let wrong = check(&[member("planner", &["controller"])]);
        assert!(wrong[0].ends_with("it does not stand before it in core"), "{wrong:?}");
    }

    #[test]
    fn a_crate_without_a_place_or_in_another_folder_is_refused() {
        let wrong = check(&[member("helpers", &[])]);
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].contains("`helpers` has no place"), "{wrong:?}");
        let mut lost = member("tables", &[]);
        lost.manifest = "crates/edge/tables/Cargo.toml".into();
        assert_eq!(check(&[lost]), ["crates/edge/tables/Cargo.toml: belongs in crates/core/"]);
    }

    #[test]
    fn a_cycle_through_tests_is_found_and_named() {
        let wrong = check(&[
            member("domain", &[]),
            member("ports", &["domain", "dev store-sled"]),
            member("store-sled", &["domain", "ports"]),
        ]);
        assert_eq!(wrong, ["a cycle: ports → store-sled → ports"]);
        let itself = check(&[member("domain", &["dev domain"])]);
        assert_eq!(itself, ["a cycle: domain → domain"]);
    }

    #[test]
    fn oracles_are_for_tests_only_and_may_know_what_they_judge() {
        assert!(is_allowed("repro", "dev oracles"));
        for from in ["fairness", "repro", "daemon", "integration"] {
            assert!(!is_allowed(from, "oracles"), "{from} depends on oracles outside tests");
        }
        let judged = member("fairness", &["domain", "dev oracles"]);
        let oracles = member("oracles", &["fairness", "domain"]);
        assert_eq!(check(&[judged, oracles, member("domain", &[])]), [""; 0]);
    }

    #[test]
    fn a_diamond_is_no_cycle() {
        let wrong = check(&[
            member("controller", &["planner", "tables"]),
            member("planner", &["domain"]),
            member("tables", &["domain"]),
            member("domain", &[]),
        ]);
        assert_eq!(wrong, [""; 0]);
    }

    #[test]
    fn the_graph_is_drawn_group_by_group() {
        let text = draw(&[
            member("controller", &["domain", "planner", "dev card-sim"]),
            member("domain", &[]),
            member("store-sled", &["domain"]),
            member("integration", &["dev daemon"]),
        ]);
        assert_eq!(
            text,
            "core/\n    controller  → domain, planner [tests → card-sim]\n    domain\nstores/ → core\n    \
             store-sled  → domain\n    integration [tests → daemon]\n"
        );
    }
}
