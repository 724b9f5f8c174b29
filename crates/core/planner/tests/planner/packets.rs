//! Parts of a card that packets of many sizes take, counted again from the mappings alone: whatever is planned, one packet
//! at a time, never loads a port, the credits, the line, the packet store, the synchronisation buffer or the tables
//! beyond what promises may take.

use crate::support;
use crate::support::book::{Book, Placed, ROWS, scarce, sizes};
use crate::support::random::{Event, NTS, TENANTS, events, worlds};
use crate::support::{nt_id, validate};
use proptest::prelude::*;
use snic_domain::{CardId, Dag, DagSpec, Traffic};
use snic_planner::{Ledger, PlanRequest, plan};

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn what_is_planned_fits_the_card_packet_by_packet(
        random in worlds(), events in events(24), first in 0usize..7, payload in any::<bool>()
    ) {
        let mut world = random.build();
        let contents: Vec<_> =
            random.regions.iter().zip(0u8..).map(|(_, at)| world.ledger.content(snic_domain::RegionId(at)).cloned()).collect();
        let card = scarce(world.ledger.profile());
        world.ledger = Ledger::with_rows(CardId::new("card-0").expect("a test id"), card, ROWS);
        for id in NTS.iter().filter(|id| payload || **id != "a") {
            let mut nt = world.catalogue.nt(&nt_id(id)).expect("a known NT").clone();
            nt.traffic = Traffic::Payload;
            world.catalogue.insert_nt(nt);
        }
        for (region, content) in (0u8..).map(snic_domain::RegionId).zip(&contents) {
            world.ledger.set_content(region, content.as_ref(), &world.catalogue).expect("empty");
        }
        let mut placed = Placed::new();
        for (number, event) in events.iter().enumerate() {
            let (tenant, dag, random) = match event {
                Event::Submit(tenant, dag, random) => (tenant, dag, random),
                Event::Delete(tenant, dag) => {
                    let name = support::name(&format!("{}/d{dag}", TENANTS[*tenant]));
                    world.ledger.release(&name);
                    placed.remove(&name);
                    continue;
                }
                Event::Condition(..) => continue,
            };
            let name = support::name(&format!("{}/d{dag}", TENANTS[*tenant]));
            let spec = random.build().spec().clone();
            let spec = DagSpec { packet_sizes: sizes(first + number), ..spec };
            let dag = Dag::new(spec).expect("as before");
            world.ledger.release(&name);
            placed.remove(&name);
            let request = PlanRequest { name: &name, dag: &dag, previous: None };
            if let Ok(plan) = plan(&world.ledger, &world.catalogue, &request) {
                let valid = validate::plan(&world.ledger, &world.catalogue, &request, &plan);
                prop_assert_eq!(valid, Ok(()));
                world.apply(&name, &plan);
                placed.insert(name, (dag, plan.mapping));
                let over = Book::of(&world, &placed).over();
                prop_assert!(over.is_none(), "{:?}", over);
            }
        }
    }
}
