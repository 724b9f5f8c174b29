use miette::GraphicalReportHandler;
use proptest::prelude::*;
use rstest::rstest;

use super::*;

const WEB: &str = "\
# The web edge.
name: web
tenant: acme
bandwidth: 10Gbps
chain: nat -> [firewall, kv-cache] -> aes
";

fn ids(file: &DagFile) -> Vec<&str> {
    file.dag.nodes.iter().map(|node| node.id.as_str()).collect()
}

/// The error as it is printed, without colours.
fn shown(text: &str) -> String {
    let error = parse("web.yaml", text).expect_err(text);
    let theme = miette::GraphicalTheme::unicode_nocolor();
    let handler = GraphicalReportHandler::new_themed(theme).with_width(80).with_links(false);
    let mut shown = String::new();
    handler.render_report(&mut shown, error.as_ref()).unwrap();
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    shown
}

#[test]
fn a_file_with_a_chain_is_read() {
    let file = parse("web.yaml", WEB).unwrap();
    assert_eq!((file.name.as_deref(), file.tenant.as_deref()), (Some("web"), Some("acme")));
    assert_eq!(file.dag.bandwidth_bps, 10_000_000_000);
    assert_eq!(ids(&file), ["nat", "firewall", "kv-cache", "aes"]);
    let edges: Vec<_> =
        file.dag.edges.iter().map(|e| format!("{}>{}", e.from_node, e.to_node)).collect();
    assert_eq!(edges, ["nat>firewall", "nat>kv-cache", "firewall>aes", "kv-cache>aes"]);
    assert_eq!(file.dag.nodes[1].nt_type, "ntTypes/firewall");
}

#[rstest]
#[case(
    "bandwidth: 10Gbps\nnodes: [{id: n, type: nat}, {id: a, nt_type: ntTypes/aes}]\nedges:\n- from: n\n  to: a\n"
)]
#[case("bandwidth_bps: 10000000000\nchain: 'n: nat -> a: aes'\nform: FORM_UNSPECIFIED\n")]
#[case("bandwidth: 10000 Mbit/s\nchain: \"n:nat -> a:aes\"\nform: auto\n")]
#[case("bandwidth: 10Gbps\nchain: n:nat\n  -> a:aes\n")]
#[case("bandwidth: 10Gbps\nchain: |\n  n: nat\n  -> a: aes\n")]
#[case("bandwidth: 10Gbps\nchain: >-\n  n: nat ->\n  a: aes\n")]
#[case("{\"bandwidth\": \"10Gbps\", \"chain\": \"n: nat -> a: aes\"}")]
#[case("{\"bandwidth\": 10000000000, \"chain\": \"n: nat \\u002d> a: aes\"}")]
fn one_dag_has_many_spellings(#[case] text: &str) {
    let file = parse("x", text).expect(text);
    assert_eq!(ids(&file), ["n", "a"]);
    assert_eq!(file.dag.edges.len(), 1);
    assert_eq!(file.dag.bandwidth_bps, 10_000_000_000);
    assert_eq!(file.dag.nodes[1].nt_type, "ntTypes/aes");
}

#[rstest]
#[case("imix", &[(64, 7), (594, 4), (1_518, 1)])]
#[case("64", &[(64, 1)])]
#[case("{64: 7, 594: 4}", &[(64, 7), (594, 4)])]
#[case("[{bytes: 64, weight: 3}, {bytes: 1500}]", &[(64, 3), (1_500, 1)])]
fn packet_sizes_are_a_word_a_number_or_a_mix(#[case] text: &str, #[case] sizes: &[(u32, u32)]) {
    let file = parse("x", &format!("bandwidth: 1Gbps\nchain: nat\npacket_sizes: {text}\n"));
    let read = file.expect(text).dag.packet_sizes;
    let read: Vec<_> = read.iter().map(|size| (size.bytes, size.weight)).collect();
    assert_eq!(read, sizes);
    let without = parse("x", "bandwidth: 1Gbps\nchain: nat\n").expect("optional");
    assert_eq!(without.dag.packet_sizes, [], "the server's default");
}

#[test]
fn printed_dags_are_accepted_as_input() {
    let text = "\
name: tenants/acme/dags/web
uid: 1024
nodes:
- id: nat
  nt_type: ntTypes/nat
edges: []
bandwidth_bps: 1000000
form: SEQUENTIAL
state: READY
generation: 1
observed_generation: 1
conditions:
- type: Ready
  status: 'TRUE'
mapping:
  stages: []
rate_limit_bps: 1000000
etag: abc
create_time: 2026-01-01T00:00:00Z
update_time: 2026-01-01T00:00:00Z
";
    let file = parse("x", text).unwrap();
    assert_eq!(file.name.as_deref(), Some("tenants/acme/dags/web"));
    assert_eq!((file.dag.form(), file.dag.etag.as_str()), (Form::Sequential, "abc"));
    assert_eq!(file.dag.uid, 0, "what the server says is not sent back");
}

#[test]
fn a_file_says_where_in_a_fleet_a_dag_may_go() {
    use snic_api::v1::{Placement, placement::Order};
    let of = |text: &str| {
        let file = format!("bandwidth: 1Gbps\nchain: nat\nplacement: {text}\n");
        parse("x", &file).expect(text).resource_of("tenants/acme").placement
    };
    let all = "{zones: [z1, z2], racks: [r1], hosts: [h1], apart_from_hosts: [hosts/h2], card_models: [sim-16], \
               host_labels: {gpu: yes}, order: spread, hosts_without_dags: [tenants/acme/dags/b, a, b], \
               racks_without_dags: [c]}";
    let text = |of: &[&str]| of.iter().map(ToString::to_string).collect::<Vec<_>>();
    let expected = Placement {
        zones: text(&["z1", "z2"]),
        racks: text(&["r1"]),
        hosts: text(&["hosts/h1"]),
        apart_from_hosts: text(&["hosts/h2"]),
        card_models: text(&["sim-16"]),
        host_labels: [("gpu".to_owned(), "yes".to_owned())].into(),
        order: Order::Spread.into(),
        hosts_without_dags: text(&["tenants/acme/dags/a", "tenants/acme/dags/b"]),
        racks_without_dags: text(&["tenants/acme/dags/c"]),
    };
    assert_eq!(of(all), Some(expected));
    assert_eq!(
        of("{order: ORDER_LOADED}").map(|of| of.order()),
        Some(Order::Loaded),
        "as output has it"
    );
    assert_eq!(of("null"), None);
    assert_eq!(of("{order: pack}"), None, "as by default");
    assert_eq!(of("{zones: [z2, z1, z2]}").map(|of| of.zones), Some(text(&["z1", "z2"])));
    let wrong = "bandwidth: 1Gbps\nchain: nat\nplacement: {order: nearest}\n";
    let wrong = format!("{:?}", parse("x", wrong).expect_err("no such order"));
    assert!(wrong.contains("unknown order"), "{wrong}");
    let wrong = "bandwidth: 1Gbps\nchain: nat\nplacement: {racks_without_dags: [A b]}\n";
    let wrong = format!("{:?}", parse("x", wrong).expect_err("no name of a DAG"));
    assert!(wrong.contains("write the id of a DAG of the same tenant"), "{wrong}");
}

#[test]
fn an_affinity_names_dags_by_id_or_full_name() {
    let read = |text: &str| {
        let file = format!("bandwidth: 1Gbps\nchain: nat\ncard_affinity: {text}\n");
        parse("x", &file).expect(text).resource_of("tenants/acme").card_affinity
    };
    let full = read("{with: [db, tenants/acme/dags/log], apart_from: [web-2], preferred: true}");
    let full = full.expect("it is given");
    assert_eq!(full.together_with, ["tenants/acme/dags/db", "tenants/acme/dags/log"]);
    assert_eq!(
        (&full.apart_from[..], full.preferred),
        (&["tenants/acme/dags/web-2".into()][..], true)
    );
    assert!(!read("{with: [db]}").expect("it is given").preferred);
    assert_eq!(read("null"), None, "as output has it");
}

#[test]
fn trusted_tenants_are_ids_or_names() {
    let read = |text: &str| {
        let file = format!("bandwidth: 1Gbps\nchain: nat\ntrusted_tenants: {text}\n");
        parse("x", &file).expect(text).dag.trusted_tenants
    };
    assert_eq!(read("[acme, tenants/beta]"), ["tenants/acme", "tenants/beta"]);
    assert!(read("[]").is_empty());
}

/// Places of errors: `line:column`, and a part of the message, label or help.
#[rstest]
#[case("", "1:1", "the file is empty")]
#[case("- a\n", "1:1", "a DAG file must be a mapping")]
#[case("name: web\nchain: nat\n", "1:1", "missing key `bandwidth`")]
#[case("name: web\nbandwidth: 1Gbps\n", "1:1", "missing key `chain`")]
#[case("bandwidth: 1GBps\nchain: nat\n", "1:12", "\"GBps\"")]
#[case("bandwidth: 1kbps\nchain: nat\n", "1:12", "bandwidth 1000 bit/s is not allowed")]
#[case("bandwidth: 1Gbps\nchian: nat\n", "2:1", "unknown key `chian`")]
#[case("bandwidth: 1Gbps\nchian: nat\n", "2:1", "did you mean `chain`?")]
#[case("bandwith: 1Gbps\nchain: nat\n", "1:1", "did you mean `bandwidth`?")]
#[case("bandwidth: 1Gbps\nform: fast\nchain: nat\n", "2:7", "use auto, sequential")]
#[case("bandwidth: 1Gbps\nchain: a\npacket_sizes: 63\n", "3:15", "give 64 to 9216 bytes")]
#[case("bandwidth: 1Gbps\nchain: a\npacket_sizes: {64: x}\n", "3:20", "not a whole number")]
#[case("bandwidth: 1Gbps\nchain: a\npacket_sizes: small\n", "3:15", "write `imix`")]
#[case("bandwidth: 1Gbps\nchain: a\npacket_sizes: []\n", "3:15", "0 packet sizes; give 1 to 16")]
#[case("bandwidth: 1Gbps\nchain: a\nlabels: web\n", "3:9", "labels must be a mapping")]
#[case("bandwidth: 1Gbps\nchain: a\nlabels: {App: web}\n", "3:10", "\"App\" is not a key")]
#[case("bandwidth: 1Gbps\nchain: a\nlabels: {app: a b}\n", "3:15", "of app is not allowed")]
#[case("bandwidth: 1Gbps\nchain: nat -> Aes\n", "2:15", "\"Aes\"")]
#[case("bandwidth: 1Gbps\nchain: \"nat -> Aes\"\n", "2:16", "\"Aes\"")]
#[case("bandwidth: 1Gbps\nchain: >\n  nat ->\n  Aes\n", "4:3", "\"Aes\"")]
#[case("bandwidth: 1Gbps\nchain: a\ntrusted_tenants: [Acme]\n", "3:19", "\"Acme\"")]
#[case("bandwidth: 1Gbps\nchain: a\ntrusted_tenants: acme\n", "3:18", "must be a list")]
#[case("bandwidth: 1Gbps\nchain: a\ncard_affinity: {on: [b]}\n", "3:17", "unknown key `on`")]
#[case("bandwidth: 1Gbps\nchain: a\ncard_affinity: {with: b}\n", "3:23", "must be a list")]
#[case("bandwidth: 1Gbps\nchain: a\ncard_affinity: {with: [B]}\n", "3:24", "\"B\"")]
#[case("bandwidth: 1Gbps\nchain: a\ncard_affinity: {preferred: 2}\n", "3:28", "true or false")]
#[case("bandwidth: 1Gbps\nchain: a\nlatency_sensitive: yes\n", "3:20", "true or false")]
#[case("größe: 1\n", "1:1", "`größe`")]
#[case("{\"bandwidth\": \"1Gbps\", \"chain\": \"nat -> Aes\"}", "1:41", "\"Aes\"")]
#[case("bandwidth: 1Gbps\nchain: \"nat \\x2d> Aes\"\n", "2:8", "\"Aes\"")]
#[case("bandwidth: 1Gbps\nchain: [nat, aes]\n", "2:8", "write `chain: nat -> firewall`")]
#[case("bandwidth: 1Gbps\nchain: [a -> b, c] -> d\n", "2:8", "one entry")]
#[case("bandwidth: 1Gbps\nchain: \"[a -> b, c] -> d\"\n", "2:9", "one entry")]
#[case("bandwidth: 1Gbps\nchain: nat -> fw2: firewall\n", "2:8", "put the chain in quotes")]
#[case("bandwidth: 1Gbps\nchain: a\nnodes: []\n", "3:8", "both chain and nodes")]
#[case("bandwidth: 1Gbps\nchain: a\nedges: []\n", "3:8", "not allowed with a chain")]
#[case("bandwidth: 1Gbps\nbandwidth_bps: 1\nchain: a\n", "2:1", "given twice")]
#[case("bandwidth: 1Gbps\nchain: a -> [b, c, d, e, f]\n", "2:8", "5 branches")]
#[case("bandwidth: 1Gbps\nnodes: []\n", "2:8", "no nodes")]
#[case("bandwidth: 1Gbps\nnodes: nat\n", "2:8", "`nodes` must be a list")]
#[case("bandwidth: 1Gbps\nnodes: [nat]\n", "2:9", "a mapping with id and type")]
#[case("bandwidth: 1Gbps\nnodes: [{id: a}]\n", "2:9", "missing key `type`")]
#[case("bandwidth: 1Gbps\nnodes: [{type: a}]\n", "2:9", "missing key `id`")]
#[case("bandwidth: 1Gbps\nnodes: [{id: A, type: a}]\n", "2:14", "\"A\"")]
fn mistakes_have_a_line_and_a_column(#[case] text: &str, #[case] at: &str, #[case] what: &str) {
    let error = parse("x", text).expect_err(text);
    let (line, column) = error.position();
    let DagFileProblem { message, label, help, .. } = error.problem();
    let all = format!("{message} | {label} | {}", help.as_deref().unwrap_or_default());
    assert_eq!(format!("{line}:{column}"), at, "{all}");
    assert!(all.contains(what), "{all}");
}

/// The checks of a graph point at the nodes and edges of the file.
#[rstest]
#[case("[{from: a, to: b}, {from: b, to: c}, {from: c, to: b}]", "cycle")]
#[case("[{from: a, to: b}]", "one entry")]
#[case("[{from: a, to: x}]", "names node x")]
#[case("[{from: a, to: a}]", "loop")]
#[case("[{from: a}]", "missing key `to`")]
#[case("[{from: a, to: b, cost: 1}]", "unknown key `cost`")]
fn a_graph_that_is_wrong_is_refused_in_its_place(#[case] edges: &str, #[case] what: &str) {
    let nodes = "[{id: a, type: nat}, {id: b, type: aes}, {id: c, type: aes}]";
    let text = format!("bandwidth: 1Gbps\nnodes: {nodes}\nedges: {edges}\n");
    let error = parse("x", &text).expect_err(edges);
    assert!(error.to_string().contains(what), "{error}");
    assert!(error.position().0 >= 2, "{:?}", error.position());
}

#[test]
fn an_error_in_a_chain_is_drawn() {
    insta::assert_snapshot!(shown(&WEB.replace("kv-cache]", "KV-cache]")));
}

#[test]
fn a_fork_without_an_entry_is_drawn_with_what_to_do() {
    insta::assert_snapshot!(shown("bandwidth: 1Gbps\nchain: [a -> b, c] -> d\n"));
}

#[test]
fn two_entries_are_both_shown() {
    let text = "bandwidth: 1Gbps\nnodes:\n- {id: a, type: nat}\n- {id: b, type: aes}\n";
    insta::assert_snapshot!(shown(text));
}

proptest! {
    #[test]
    fn any_file_is_a_dag_or_an_error_inside_it(
        lines in prop::collection::vec(
            "(name|tenant|bandwidth|form|chain|nodes|edges|x): ?(web|1Gbps|auto|\\[|a -> \\[b, é\\]|[-a-z:>\"'\\[\\] ,|]{0,12})",
            0..6
        )
    ) {
        let text = lines.join("\n");
        if let Err(error) = parse("x", &text) {
            let (line, column) = error.position();
            prop_assert!(line <= text.lines().count().max(1) + 1 && column >= 1);
            prop_assert!(text.get(error.problem().span.clone()).is_some());
        }
    }

    /// However white space is set, a chain is the same and its errors point at the same words.
    #[test]
    fn errors_in_chains_point_at_the_word(
        before in "( |\n  ){1,3}", after in "( |\n  ){1,3}", style in 0..3_usize
    ) {
        let chain = format!("nat{before}->{after}Aes");
        let value = match style {
            0 => format!("|\n  {chain}"),
            1 => format!("'{chain}'"),
            _ => chain,
        };
        let text = format!("bandwidth: 1Gbps\nchain: {value}\n");
        let error = parse("x", &text).expect_err("an upper-case type");
        prop_assert_eq!(&text[error.problem().span.clone()], "Aes", "{}", text);
    }
}

#[test]
fn labels_and_descriptions_are_taken_over() {
    let file =
        "bandwidth: 1Gbps\nchain: nat\nlabels: {app: web, tier: 1}\ndescription: shop front\n";
    let dag = parse("x", file).expect("valid").dag;
    let labels = [("app", "web"), ("tier", "1")].map(|(k, v)| (k.to_owned(), v.to_owned()));
    assert_eq!(dag.labels, labels.into());
    assert_eq!(dag.description, "shop front");
}
