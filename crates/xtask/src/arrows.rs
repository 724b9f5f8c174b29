//! Which crate may depend on which. The pure core stays pure because it cannot reach anything with I/O, and
//! adapters stay exchangeable because only the daemon names them. One dependency in a manifest could
//! break either, so the manifests are checked against this table.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::workspace::Member;

/// The dependencies that a row allows. A name that ends with `*` matches all names with that prefix.
enum To {
    Only(&'static [&'static str]),
    AnyBut(&'static [&'static str]),
}

/// One row per role; the first matching row applies. A crate without a row is an error, so that a new crate
/// is a decision.
const ARROWS: &[(&str, To)] = &[
    ("domain", To::Only(&[])),
    ("planner", To::Only(&["domain", "processors"])),
    ("processors", To::Only(&["domain"])), // implementations of NTs outside of regions
    ("fairness", To::Only(&["domain"])),
    ("autoscaler", To::Only(&["domain"])),
    ("admission", To::Only(&[])),
    ("tables", To::Only(&["domain"])),
    ("bitstream", To::Only(&["domain"])),
    (
        "controller",
        To::Only(&[
            "planner",
            "processors",
            "fairness",
            "autoscaler",
            "tables",
            "bitstream",
            "domain",
        ]),
    ),
    ("ports", To::Only(&["tables", "bitstream", "domain"])),
    ("policies", To::Only(&["controller", "domain"])), // what files set is the controller's
    ("offloads", To::Only(&["domain"])),               // other designs of a card, for figures
    // One model, two clocks: the software card is the simulated one with bytes.
    ("card-soft", To::Only(&["card-sim", "nts", "ports", "domain", "tables"])),
    ("card-sim", To::Only(&["ports", "processors", "domain", "tables"])),
    ("card-*", To::Only(&["ports", "domain", "tables"])),
    ("nts", To::Only(&["domain"])),
    ("nts-wasm", To::Only(&["domain", "nts"])), // the runtime for modules: large, only in the program `card`
    ("vhost-user", To::Only(&["card-soft", "nts"])), // ports through a guest's memory, only in the program `card`
    ("card", To::Only(&["bitstream", "card-soft", "nts", "nts-wasm", "vhost-user"])),
    ("etcd", To::Only(&[])), // what is asked of etcd, as values
    ("fleet", To::Only(&["domain", "etcd", "fairness", "planner"])),
    ("store-etcd", To::Only(&["domain", "etcd", "ports"])),
    ("store-*", To::Only(&["ports", "domain"])),
    ("api", To::Only(&["domain"])),
    ("host-link", To::Only(&["api", "controller", "domain", "fleet"])), // not `server`: tests need none
    (
        "server",
        To::Only(&[
            "admission",
            "api",
            "audit",
            "controller",
            "front",
            "ports",
            "telemetry",
            "domain",
            "web",
        ]),
    ),
    // What stands before the services of any server. Of the controller it knows only who calls.
    ("front", To::Only(&["admission", "api", "audit", "controller", "domain", "nts", "telemetry"])),
    (
        "fleetd",
        To::Only(&[
            "api",
            "audit",
            "bitstream",
            "controller",
            "domain",
            "etcd",
            "fleet",
            "front",
            "policies",
            "ports",
            "store-etcd",
            "telemetry",
            "web",
        ]),
    ),
    // Decides what the front asks.
    ("authorization-*", To::Only(&["controller", "front"])),
    ("audit", To::Only(&["api", "controller", "domain"])),
    ("web", To::Only(&["api"])),
    ("telemetry", To::Only(&[])),
    ("dagfile", To::Only(&["api", "domain"])),
    ("client", To::Only(&["api", "dagfile", "domain"])),
    ("top", To::Only(&["api", "client"])),
    // bitstream: test images; planner and processors: what a DAG would get on a model; tables: whether a role has
    // room for the register map. All without a server.
    (
        "cli",
        To::Only(&[
            "api",
            "bitstream",
            "client",
            "dagfile",
            "domain",
            "planner",
            "processors",
            "tables",
            "top",
        ]),
    ),
    (
        "repro",
        To::AnyBut(&[
            "card",
            "cli",
            "client",
            "dagfile",
            "nts-wasm",
            "top",
            "vhost-user",
            "xtask",
            "daemon",
            "api",
            "server",
        ]),
    ),
    (
        "daemon",
        To::AnyBut(&[
            "card",
            "cli",
            "client",
            "dagfile",
            "nts",
            "nts-wasm",
            "top",
            "vhost-user",
            "xtask",
        ]),
    ),
    ("integration", To::AnyBut(&[])),
    // References for tests and benchmarks.
    ("oracles", To::Only(&["fairness", "planner", "controller", "domain"])),
    ("xtask", To::Only(&[])),
];

/// Ends of the graph: only the listed roles may depend on these, even in tests.
const ENDS: &[(&str, &[&str])] =
    &[("integration", &["integration"]), ("xtask", &[]), ("cli", &["integration"])];

/// What only tests and benchmarks may depend on. Each knows the public types of the crates that it is
/// compared with, so cycles through it are allowed.
const TESTS_ONLY: &str = "oracles";

/// Every forbidden arrow, every crate without a row, and a cycle if there is one.
///
/// Dev-dependencies are free except for [`ENDS`] and cycles, because tests reach further than code.
pub fn check(members: &[Member]) -> Vec<String> {
    let mut wrong = Vec::new();
    for member in members {
        match row(&member.role) {
            None => wrong.push(format!(
                "{}: `{}` has no row in ARROWS (crates/xtask/src/arrows.rs): decide what it may \
                 depend on",
                member.manifest.display(),
                member.role
            )),
            Some(allowed) => wrong.extend(check_member(member, allowed)),
        }
    }
    wrong.extend(cycle(members));
    wrong
}

fn row(role: &str) -> Option<&'static To> {
    ARROWS.iter().find(|(name, _)| matches(name, role)).map(|(_, to)| to)
}

fn check_member(member: &Member, allowed: &To) -> Vec<String> {
    let mut wrong = Vec::new();
    for edge in &member.edges {
        let end = ENDS.iter().find(|(end, _)| *end == edge.to);
        let refused = match end {
            Some((_, friends)) => !friends.contains(&member.role.as_str()),
            None => !edge.dev && (edge.to == TESTS_ONLY || !allowed.holds(&edge.to)),
        };
        if refused {
            wrong.push(format!(
                "{}: `{}` must not depend on `{}`{}; it may depend on {allowed}",
                member.manifest.display(),
                member.role,
                edge.to,
                if edge.dev { ", not even in tests" } else { "" },
            ));
        }
    }
    wrong
}

impl To {
    fn holds(&self, role: &str) -> bool {
        let among = |names: &[&str]| names.iter().any(|name| matches(name, role));
        match self {
            Self::Only(names) => among(names),
            Self::AnyBut(names) => !among(names),
        }
    }
}

impl std::fmt::Display for To {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Only([]) => out.write_str("no other crate of the workspace"),
            Self::Only(names) => out.write_str(&names.join(", ")),
            Self::AnyBut([]) => out.write_str("any crate"),
            Self::AnyBut(names) => write!(out, "anything but {}", names.join(", ")),
        }
    }
}

fn matches(name: &str, role: &str) -> bool {
    match name.strip_suffix('*') {
        Some(beginning) => role.starts_with(beginning),
        None => name == role,
    }
}

/// A cycle, if there is one. Dev-dependencies count: cargo accepts a cycle through tests, but then builds the
/// crate twice, with types that look the same and are not. [`TESTS_ONLY`] is exempt: only `tests/` and
/// `benches/` use it, which cargo links with one build of the crate. The packages of `integration/` share a
/// role and may use each other; nothing else depends on them.
fn cycle(members: &[Member]) -> Option<String> {
    let mut graph: BTreeMap<&str, &Member> =
        members.iter().map(|member| (member.role.as_str(), member)).collect();
    graph.remove("integration");
    graph.remove(TESTS_ONLY);
    let mut done = Vec::new();
    graph.keys().find_map(|start| visit(start, &graph, &mut Vec::new(), &mut done))
}

fn visit<'a>(
    role: &'a str,
    graph: &BTreeMap<&'a str, &'a Member>,
    path: &mut Vec<&'a str>,
    done: &mut Vec<&'a str>,
) -> Option<String> {
    if let Some(first) = path.iter().position(|on_path| *on_path == role) {
        return Some(format!("a cycle: {} → {role}", path[first..].join(" → ")));
    }
    if done.contains(&role) {
        return None;
    }
    path.push(role);
    let edges = graph.get(role).map_or(&[][..], |member| &member.edges);
    let found = edges.iter().find_map(|edge| visit(&edge.to, graph, path, done));
    path.pop();
    done.push(role);
    found
}

/// The graph as text: one line per crate, dependencies of tests in brackets.
pub fn draw(members: &[Member]) -> String {
    let width = members.iter().map(|member| member.role.len()).max().unwrap_or(0);
    let mut text = String::new();
    for member in members {
        let names = |dev: bool| {
            let edges = member.edges.iter().filter(|edge| edge.dev == dev);
            edges.map(|edge| edge.to.as_str()).collect::<Vec<_>>().join(", ")
        };
        let (code, tests) = (names(false), names(true));
        let mut line = format!("{:width$}", member.role);
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

    /// The arrows of ARCHITECTURE.md, in both directions.
    #[test]
    fn the_table_says_what_the_architecture_says() {
        for pure in ["planner", "fairness", "autoscaler", "tables", "bitstream"] {
            assert!(is_allowed(pure, "domain"));
            assert!(is_allowed("controller", pure));
            assert!(!is_allowed(pure, "controller"));
            assert!(!is_allowed(pure, "ports"));
            assert!(!is_allowed("domain", pure));
        }
        assert!(!is_allowed("planner", "fairness"));
        for port_side in ["tables", "bitstream", "domain"] {
            assert!(is_allowed("ports", port_side));
        }
        assert!(!is_allowed("controller", "ports"), "the core has no I/O");
        assert!(!is_allowed("api", "controller"));
        for needed in ["api", "controller", "ports", "telemetry", "domain"] {
            assert!(is_allowed("server", needed));
        }
        assert!(!is_allowed("server", "store-sled"), "only the daemon names adapters");
    }

    #[test]
    fn adapters_reach_ports_and_never_each_other() {
        for adapter in ["card-sim", "card-xrt", "store-sled", "store-etcd"] {
            assert!(is_allowed(adapter, "ports"));
            assert!(is_allowed(adapter, "domain"));
            for other in ["card-sim", "card-xrt", "store-sled", "store-etcd"] {
                assert!(!is_allowed(adapter, other));
            }
        }
        assert!(is_allowed("card-sim", "tables"));
        assert!(!is_allowed("store-sled", "tables"));
    }

    #[test]
    fn programs_and_tests_are_ends() {
        for adapter in ["card-sim", "store-sled", "server"] {
            assert!(is_allowed("daemon", adapter));
            assert!(is_allowed("integration", adapter));
            assert!(!is_allowed("cli", adapter));
        }
        assert!(!is_allowed("daemon", "cli"));
        assert!(is_allowed("integration", "cli"));
        assert!(is_allowed("integration", "daemon"));
        for from in ["daemon", "server", "domain", "cli"] {
            assert!(!is_allowed(from, "xtask"));
            assert!(!is_allowed(from, "integration"));
        }
        assert!(!is_allowed("integration", "xtask"));
        // Its packages help each other.
        assert!(is_allowed("integration", "integration"));
    }

    #[test]
    fn tests_reach_further_but_not_to_the_ends() {
        assert!(is_allowed("controller", "dev card-sim"));
        for end in ["dev cli", "dev integration", "dev xtask"] {
            assert!(!is_allowed("server", end));
        }
        assert!(is_allowed("integration", "dev cli"));
    }

    #[test]
    fn a_refusal_names_the_manifest_the_arrow_and_what_is_allowed() {
        let wrong = check(&[member("store-sled", &["tables", "ports", "domain"])]);
        assert_eq!(
            wrong,
            ["crates/store-sled/Cargo.toml: `store-sled` must not depend on `tables`; it may \
              depend on ports, domain"]
        );
        let wrong = check(&[member("domain", &["dev xtask"])]);
        assert!(wrong[0].contains("`xtask`, not even in tests"), "{wrong:?}");
        assert!(wrong[0].ends_with("may depend on no other crate of the workspace"), "{wrong:?}");
    }

    #[test]
    fn a_crate_without_a_row_is_refused() {
        let wrong = check(&[member("helpers", &[])]);
        assert_eq!(wrong.len(), 1);
        assert!(wrong[0].contains("`helpers` has no row"), "{wrong:?}");
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
    fn the_graph_is_drawn_one_line_a_crate() {
        let text = draw(&[
            member("controller", &["domain", "planner", "dev card-sim"]),
            member("domain", &[]),
            member("integration", &["dev daemon"]),
        ]);
        assert_eq!(
            text,
            "controller  → domain, planner [tests → card-sim]\n\
             domain\n\
             integration [tests → daemon]\n"
        );
    }
}
