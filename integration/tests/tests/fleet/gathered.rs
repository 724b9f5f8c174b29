//! Reads and changes at the fleet's endpoint of what only hosts have: rules, events, shares and bindings are gathered from hosts and changed on the host of
//! their DAG. A host that does not answer is named.

use snic_api::v1;
use snic_domain::{Bandwidth, DagSpec};
use snic_integration::TestClient;
use tonic::Code;

use super::cluster::{Cluster, eventually, in_time, runtime};
use super::rig::{Cards, Fleet, name};

const MACHINES: [&str; 2] =
    ["123e4567-e89b-42d3-a456-426614174000", "223e4567-e89b-42d3-a456-426614174000"];

/// DAG `on-h0` is on host h0, and `on-h1` on h1.
async fn a_dag_on_each_host(fleet: &Fleet) {
    let acme = fleet.client(0, "tenant-acme");
    for host in 0..2 {
        let spec = DagSpec::chain(&["nat".parse().unwrap()], Bandwidth::from_gbps(1));
        let dag = name(&format!("on-h{host}"));
        let hosts = vec![format!("hosts/h{host}")];
        let placement = Some(v1::Placement { hosts, ..Default::default() });
        let create = async || acme.create_placed_dag(&dag, &spec, placement.clone()).await;
        eventually(async || match create().await {
            Ok(_) => true,
            Err(status) => status.code() == Code::AlreadyExists,
        })
        .await;
    }
    assert_eq!(fleet.served_once(&["on-h0", "on-h1"]).await, [0, 1]);
}

/// Runs `snicctl` at a replica.
fn run(fleet: &Fleet, who: &str, words: &str) -> String {
    fleet.shell(&format!("snicctl --context {who} {words} 2>&1")).unwrap_or_else(|said| said)
}

/// Operators make, list, change and delete rules of DAGs on both hosts, at one endpoint.
async fn rules(fleet: &Fleet, replica: usize) {
    let root = format!("root-r{replica}");
    let say = |words: &str| run(fleet, &root, words);
    for (rule, vni, dag) in [("one", 5, "on-h0"), ("two", 6, "on-h1"), ("three", 7, "on-h1")] {
        let made = say(&format!("--tenant acme rule create {rule} --dag {dag} --vni {vni}"));
        assert!(made.contains(rule) && made.contains(dag), "{made}");
    }
    let again = say("--tenant acme rule create one --dag on-h1 --vni 9");
    assert!(again.contains("already exists"), "the name is taken on the other host: {again}");
    let listed = say("rule list");
    let at = |rule: &str| listed.find(rule).unwrap_or_else(|| panic!("{rule} in {listed}"));
    assert!(at("one") < at("three") && at("three") < at("two"), "by name: {listed}");
    let of_dag = say("--tenant acme rule list --dag on-h1");
    assert!(!of_dag.contains("one ") && of_dag.contains("three"), "{of_dag}");
    let changed = say("rule update two --priority 77");
    assert!(changed.contains("77"), "{changed}");
    let moved = say("--tenant acme rule update two --dag on-h0");
    assert!(moved.contains("another host serves tenants/acme/dags/on-h0"), "{moved}");
    assert!(say("rule get two").contains("77"));
    let client = fleet.client(replica, "operator-root");
    let mut pages = Vec::new();
    let mut page_token = String::new();
    loop {
        let request = v1::ListRulesRequest { page_size: 1, page_token, ..Default::default() };
        let page = client.rules().list_rules(request).await.unwrap().into_inner();
        assert_eq!(page.unreachable_hosts, []);
        pages.extend(page.rules.into_iter().map(|rule| rule.name));
        page_token = page.next_page_token;
        if page_token.is_empty() {
            break;
        }
    }
    let all = ["one", "three", "two"].map(|rule| format!("classificationRules/{rule}"));
    assert_eq!(pages, all);
    assert_eq!(
        run(fleet, &format!("acme-r{replica}"), "rule list").trim(),
        "nothing found",
        "not its own"
    );
    for rule in ["one", "two", "three"] {
        assert!(say(&format!("rule delete {rule}")).contains("deleted"));
    }
    assert!(say("rule delete two").contains("does not exist"));
    assert!(say("rule delete two --allow-missing").contains("deleted"));
}

/// Machines are bound on the host of their DAG, and a tenant's rule goes with its machine.
async fn machines(fleet: &Fleet, replica: usize) {
    let (root, acme) = (format!("root-r{replica}"), format!("acme-r{replica}"));
    let say = |words: &str| run(fleet, &root, words);
    for (machine, dag) in MACHINES.iter().zip(["on-h0", "on-h1"]) {
        let bound = say(&format!("--tenant acme vm bind {machine} --dag {dag} --lease 60s"));
        assert!(bound.contains("BOUND"), "{bound}");
    }
    let both = say(&format!("--tenant acme vm bind {} --dag on-h0 --dag on-h1", MACHINES[0]));
    assert!(both.contains("have to be on one host"), "{both}");
    let elsewhere = say(&format!("--tenant acme vm bind {} --dag on-h1", MACHINES[0]));
    assert!(elsewhere.contains("unbind the machine first"), "{elsewhere}");
    let listed = say("vm list -o json");
    for part in ["hosts/h0/cards/card0", "hosts/h1/cards/card0", MACHINES[0], MACHINES[1]] {
        assert!(listed.contains(part), "{part} in {listed}");
    }
    let one = say(&format!("vm get {} -o json", MACHINES[1]));
    assert!(one.contains("hosts/h1/cards/card0") && !one.contains("hosts/h0"), "{one}");
    let request = v1::HeartbeatRequest {
        vms: vec![
            MACHINES[0].into(),
            MACHINES[1].into(),
            "323e4567-e89b-42d3-a456-426614174000".into(),
        ],
    };
    let client = fleet.client(replica, "operator-root");
    let beat = client.machines().heartbeat(request).await.unwrap().into_inner();
    assert_eq!((beat.alive.len(), beat.missing.len()), (2, 1), "{beat:?}");
    let listed = run(fleet, &acme, "rule list -o json");
    let made =
        run(fleet, &acme, "rule create acme.mine --dag on-h1 --vf 0 --vni 7 --priority 32000");
    assert!(made.contains("acme.mine"), "{made}; {listed}");
    let own = run(fleet, &acme, "rule list -o json");
    assert!(own.contains("acme.mine") && !own.contains("hosts/"), "{own}");
    assert!(run(fleet, &acme, "rule get acme.mine").contains("on-h1"));
    for machine in MACHINES {
        let ended = say(&format!("vm unbind {machine}"));
        assert!(ended.contains("UNBOUND"), "{ended}");
        assert!(say(&format!("vm get {machine}")).contains("UNBOUND"));
    }
    assert!(!run(fleet, &acme, "rule list").contains("acme.mine"), "it ends with its machine");
    assert!(say("vm get 323e4567-e89b-42d3-a456-426614174000").contains("does not exist"));
}

/// Events of both hosts in the order of time, and shares of each card and of the fleet.
async fn events_and_shares(fleet: &Fleet, replica: usize) {
    let (root, acme) = (format!("root-r{replica}"), format!("acme-r{replica}"));
    for host in ["h1", "h0", "h1"] {
        run(fleet, &root, &format!("--host {host} card cordon card0"));
        run(fleet, &root, &format!("--host {host} card uncordon card0"));
    }
    let client = fleet.client(replica, "operator-root");
    let mut told = Vec::new();
    let mut request = v1::ListEventsRequest { page_size: 2, ..Default::default() };
    loop {
        let page = client.events().list_events(request.clone()).await.unwrap().into_inner();
        assert_eq!(page.unreachable_hosts, []);
        told.extend(page.events);
        request.page_token = page.next_page_token;
        if request.page_token.is_empty() {
            break;
        }
    }
    let at = |event: &v1::Event| event.time.map(|at| (at.seconds, at.nanos));
    assert!(told.windows(2).all(|pair| at(&pair[0]) >= at(&pair[1])), "latest first: {told:?}");
    let mut own = 0;
    for host in 0..2 {
        let request = v1::ListEventsRequest { page_size: 1_000, ..Default::default() };
        let here = fleet.host(host).await;
        own += here.events().list_events(request).await.unwrap().into_inner().events.len();
    }
    assert_eq!(told.len(), own, "each event of each host once");
    let cordons = told.iter().filter(|event| event.kind() == v1::event::Kind::Cordoned);
    let cards: Vec<&str> = cordons.map(|event| event.card.as_str()).take(3).collect();
    assert_eq!(cards, ["hosts/h1/cards/card0", "hosts/h0/cards/card0", "hosts/h1/cards/card0"]);
    let shown = run(fleet, &root, "events --filter 'card = \"hosts/h0/cards/card0\"' -o json");
    assert!(shown.contains("hosts/h0/cards") && !shown.contains("hosts/h1"), "{shown}");
    assert!(!run(fleet, &acme, "events -o json").contains("hosts/"), "tenants are not told");
    let watch = run(fleet, &root, "events --watch");
    assert!(watch.contains("no watch of events") && !watch.contains("older"), "{watch}");

    let shares = run(fleet, &root, "fairness get acme");
    assert!(shares.contains("of the fleet's") && shares.contains("h1/card0"), "{shares}");
    let listed = run(fleet, &root, "fairness get -o json");
    assert!(
        listed.contains("hosts/h0/cards/card0") && listed.contains("hosts/h1/cards/card0"),
        "{listed}"
    );
    let request = v1::GetFairnessRequest { name: "tenants/acme".into() };
    let tenant = fleet.client(replica, "tenant-acme");
    let own = tenant.fairness().get_fairness(request.clone()).await.unwrap().into_inner();
    let of = |share: &v1::Fairness| (share.card.clone(), share.fleet_share_ppm);
    let own: Vec<_> = own.fairness.iter().map(of).collect();
    assert!(
        own.len() == 2 && own[0] == own[1] && own[0].0 == "cards/card0" && own[0].1 > 0,
        "{own:?}"
    );
    let zeta = fleet.client(replica, "tenant-zeta");
    let refused = zeta.fairness().get_fairness(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::NotFound, "{refused}");

    let audit = run(fleet, &root, "audit");
    assert!(audit.contains("--host NAME") && !audit.contains("older"), "{audit}");
}

/// A host that is killed is a gap, which operators are told by name.
async fn a_host_that_is_away_is_named(fleet: &mut Fleet) {
    run(fleet, "root-r0", "--tenant acme rule create one --dag on-h0 --vni 5");
    run(fleet, "root-r0", "--tenant acme rule create two --dag on-h1 --vni 6");
    fleet.kill_host(1);
    let fleet = &*fleet;
    let list = async |client: TestClient| {
        let listed = client.rules().list_rules(v1::ListRulesRequest::default()).await.unwrap();
        listed.into_inner()
    };
    let root = fleet.client(0, "operator-root");
    eventually(async || !list(root.clone()).await.unreachable_hosts.is_empty()).await;
    let listed = list(root.clone()).await;
    assert_eq!(listed.unreachable_hosts[0].host, "hosts/h1", "{listed:?}");
    assert!(!listed.unreachable_hosts[0].reason.is_empty());
    assert_eq!(listed.rules.len(), 1, "{listed:?}");
    for words in ["rule list", "events", "vm list", "fairness get", "fairness get acme"] {
        let shown = run(fleet, "root-r0", words);
        assert!(shown.contains("warning: host h1 did not answer"), "{words}: {shown}");
        let reads = !words.starts_with("vm");
        let shown = run(fleet, "acme-r0", words);
        assert!(!reads || shown.contains("of the fleet did not answer"), "{words}: {shown}");
        assert!(!shown.contains("h1 did"), "{words}: {shown}");
    }
    let open = run(fleet, "root-r0", "rule get two");
    assert!(open.contains("h1") && open.contains("may have classificationRules/two"), "{open}");
    let open = run(fleet, "root-r0", &format!("vm unbind {}", MACHINES[0]));
    assert!(open.contains("did not answer and may have"), "{open}");
    assert!(run(fleet, "root-r0", "rule get one").contains("on-h0"), "its host answers");
}

#[test]
fn what_hosts_have_is_read_and_changed_at_the_fleets_endpoint() {
    let Some(cluster) = Cluster::start(1) else { return };
    runtime().block_on(in_time(async {
        let mut fleet = Fleet::start_with(cluster, 2, (2, Cards::Simulated)).await;
        fleet.add_tenant("zeta").await;
        a_dag_on_each_host(&fleet).await;
        fleet.contexts();
        for replica in 0..2 {
            rules(&fleet, replica).await;
            machines(&fleet, replica).await;
            events_and_shares(&fleet, replica).await;
        }
        a_host_that_is_away_is_named(&mut fleet).await;
    }));
}
