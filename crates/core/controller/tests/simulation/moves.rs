//! Moving DAGs together under traffic: not a packet is lost, and none is sent twice or too late.

use std::time::Duration;

use snic_controller::{CallId, Command, Event, Reply, Request};
use snic_domain::{Bandwidth, Caller, DagId, DagName, DagSpec, NtTypeId, Quota, Tenant, TenantId};

use crate::world::{CATALOGUE, World, card_id};

fn ask(world: &mut World, command: Command) -> Reply {
    let caller = Caller::Operator("simulation".into());
    let request = Box::new(Request { caller, request_id: None, command });
    world.handle(Event::Request { call: CallId(0), request });
    world.commit(usize::MAX);
    let (_, result) = world.replies.pop().expect("all is durable");
    result.expect("there is room")
}

fn name(number: usize) -> DagName {
    let tenant = TenantId::new("t0").expect("a label");
    DagName { tenant, dag: DagId::new(&format!("d{number}")).expect("a label") }
}

fn create(world: &mut World, number: usize, nts: &[&str], gbps: u64) {
    let nts: Vec<NtTypeId> = nts.iter().map(|nt| NtTypeId::new(nt).expect("a label")).collect();
    let spec = DagSpec::chain(&nts, Bandwidth::from_gbps(gbps));
    ask(world, Command::CreateDag { name: name(number), spec, validate_only: false });
    take_next_steps(world, Duration::from_millis(30));
}

/// In steps shorter than a packet's time between two.
fn take_next_steps(world: &mut World, time: Duration) {
    let end = world.now + time;
    while world.now < end {
        world.commit(usize::MAX);
        world.keep_traffic();
        world.pass(Duration::from_micros(50));
    }
}

fn fill(world: &mut World) {
    let quota = Quota { bandwidth_max: Bandwidth::from_gbps(1_000), ..Quota::default() };
    let id = TenantId::new("t0").expect("a label");
    ask(
        world,
        Command::CreateTenant(Tenant {
            id,
            weight: 1,
            quota,
            notes: Default::default(),
            project: None,
        }),
    );
    for nt in CATALOGUE.nts.iter().cloned() {
        ask(world, Command::CreateNtType(nt));
    }
    for bitstream in CATALOGUE.bitstreams.iter().cloned() {
        ask(world, Command::CreateBitstream(bitstream));
    }
}

#[test]
fn no_packet_is_lost_while_dags_move() {
    // An odd seed has six regions.
    let mut world = World::new(1);
    world.loads.silent = true;
    world.settings.consolidation.after = None;
    world.crash();
    fill(&mut world);
    // An `aes` serves 10 Gbit/s: three regions, of which one is needed when the first three are gone.
    for (number, gbps) in [8, 7, 6, 2, 3, 2].into_iter().enumerate() {
        create(&mut world, number, &["aes"], gbps);
    }
    for number in 0..3 {
        ask(&mut world, Command::DeleteDag { name: name(number), etag: None });
    }
    take_next_steps(&mut world, Duration::from_millis(10));
    let view = world.controller.picture(&card_id()).expect("it is ready").consolidation();
    assert_eq!((view.moves.len(), view.freed.len()), (2, 2), "{view:?}");

    world.card.take_measurements();
    let before = world.card.accesses().loads;
    ask(&mut world, Command::OptimizeCard { card: card_id() });
    take_next_steps(&mut world, Duration::from_millis(60));
    for dag in world.controller.dags(None) {
        let regions: Vec<_> = dag.mapping.iter().flat_map(|m| m.instances()).collect();
        assert!(regions.iter().all(|i| !view.freed.contains(&i.region)), "{}", dag.name);
    }
    assert_eq!(world.card.accesses().loads - before, u64::from(view.reconfigurations));
    let after = world.card.measurements();
    assert!(after.drops().iter().all(|drops| *drops == 0), "{:?}", after.drops());
    for dag in world.controller.dags(None) {
        let counters = after.dag(dag.uid.row()).expect("it has traffic").counters;
        let (sent, out) = (counters.packets_in, counters.packets_out);
        assert!(sent > 100 && sent - out <= 1, "{}: {sent} packets, {out} came out", dag.name);
    }
}
