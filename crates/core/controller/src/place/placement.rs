//! From plans to placements: assigns and releases regions, rows and reservations.

use std::collections::BTreeSet;

use snic_domain::{
    BitstreamId, CardAffinity, CardId, Dag, DagName, DagSpec, Notes, RegionId, TenantId,
};
use snic_planner::{Effort, PlanCatalogue, PlanRequest, Reservation, plan_within};

use crate::decide::admission;
use crate::decide::admission::{AdmissionRules, Borrower, Candidate, CardPlan};
use crate::decide::card_choice::{CardWishes, Site, fill_rank, first_place};
use crate::decide::memory_use::MemoryAllowance;
use crate::decide::mixed_cards::{CardAnswer, are_mixed, best_place};
use crate::decide::thread_use::ThreadAllowance;
use crate::place::{classification, contents, forgotten, work};
use crate::protocol::{Admission, Choice, ControlError, IdleTaskPolicy};
use crate::state::Core;
use crate::state::card::{Booking, CardMachine};
use crate::state::dags::{DagEntry, ReplacedPlacement};
use crate::store::records::{Placement, regions_of};
use crate::store::tx::Tx;
use crate::view::{quotas, views};

/// Fate of the placement that a new one replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Handover {
    /// If it serves, it does until the new one does.
    MakeBeforeBreak,
    /// It is given up at once, though the card may have its rows for a while yet.
    AtOnce,
}

/// The first card, in the order of the policy, that can take the DAG, those that answer before those that do
/// not, and then those on which its tenant is within its quota of memory; where none can, what the first one lacks.
/// `previous` is what serves the DAG meanwhile.
pub(crate) fn choose(
    core: &Core,
    name: &DagName,
    dag: &Dag,
    previous: Option<&Placement>,
) -> Result<Choice, ControlError> {
    choose_from(core, core.registry.catalogue(), name, dag, previous)
}

/// The same with another catalogue.
pub(crate) fn choose_from(
    core: &Core,
    catalogue: &PlanCatalogue,
    name: &DagName,
    dag: &Dag,
    previous: Option<&Placement>,
) -> Result<Choice, ControlError> {
    let fixed = previous.map(|p| &p.mapping.card);
    let wishes = match fixed {
        Some(_) => CardWishes::default(),
        None => wishes(core, name, dag.spec()),
    };
    let is_allowed = |id: &CardId| fixed.is_none_or(|fixed| fixed == id) && wishes.allow(id);
    let memory = memory_allowance(core, name, dag.spec());
    let pages = core.registry.pages_of(dag.spec());
    let mut cards: Vec<_> = core.cards.iter().filter(|(id, _)| is_allowed(id)).collect();
    if cards.is_empty() && core.cards.iter().next().is_some() {
        return Err(wishes.no_card().into());
    }
    let order = core.policies.current().placement.cards;
    // What was admitted is not refused for a quota, but goes where that is met, if it can.
    let is_over = |id: &CardId| memory.check(Some(id), &pages).is_err();
    let rank = |id: &CardId, card: &CardMachine| (!card.is_ready(), is_over(id), wishes.unmet(id));
    cards.sort_by_cached_key(|(id, card)| (rank(id, card), fill_rank(order, card.ledger())));
    let (effort, count) = (Effort::new(), cards.len());
    let is_mixed = are_mixed(cards.iter().map(|(_, card)| card.ledger()));
    let models: Vec<_> = match is_mixed {
        true => cards.iter().map(|(_, card)| card.profile().model.clone()).collect(),
        false => Vec::new(),
    };
    let places = (0..).zip(cards).map(|(at, (id, card))| {
        let request = PlanRequest { name, dag, previous: previous.map(|p| &p.mapping) };
        let place =
            effort.share(count - at, |part| plan_within(card.ledger(), catalogue, &request, part));
        (rank(id, card), place.map(|plan| Choice { card: id.clone(), plan }))
    });
    let found = if is_mixed {
        let answers = models.into_iter().zip(places);
        best_place(
            answers.map(|(model, (rank, place))| CardAnswer { model, rank, place }).collect(),
        )
    } else {
        first_place(order, places)
    };
    core.planning.planned(&effort);
    let choice = found.map_err(|refusal| match refusal {
        Some(refusal) => refusal.into(),
        None => ControlError::NoCard(no_card_reason(core)),
    })?;
    check_tasks(core, name, dag.spec(), &choice, IdleTaskPolicy::Warn).map(|()| choice)
}

/// Checks that no task of a DAG passes packets on unchanged at a place, where the DAG or the operator refuses that.
pub(crate) fn check_tasks(
    core: &Core,
    name: &DagName,
    spec: &DagSpec,
    choice: &Choice,
    policy: IdleTaskPolicy,
) -> Result<(), ControlError> {
    let who = match policy {
        _ if spec.refuse_idle_tasks => "the DAG's refuse_idle_tasks",
        IdleTaskPolicy::Refuse => "the operator's policy tasks.idle",
        IdleTaskPolicy::Warn => return Ok(()),
    };
    let idle = views::idle_tasks(core, spec, &choice.plan.mapping);
    if idle.is_empty() {
        return Ok(());
    }
    let tasks: Vec<String> =
        idle.iter().map(|task| format!("{} ({})", task.node, task.nt)).collect();
    let text = format!(
        "tasks would pass packets on unchanged, which {who} refuses: {}; add a configuration to each, or leave it \
         out",
        tasks.join(", ")
    );
    Err(ControlError::precondition(name, text))
}

/// Checks that a packet which waits nowhere passes a place within the bound that a DAG asks for.
pub(crate) fn check_latency(
    core: &Core,
    name: &DagName,
    spec: &DagSpec,
    choice: &Choice,
) -> Result<(), ControlError> {
    let clock_hz = core.cards.known(&choice.card).profile().clock_hz;
    let least = views::latency(core, spec, &choice.plan.mapping).duration(clock_hz);
    match spec.latency_bound.duration() {
        Some(bound) if bound < least => {
            let text = format!(
                "99 of 100 packets are to pass within {} (latency_bound_nanos), and one that waits nowhere takes {} ns \
                 where there is room; ask for that or more, for 0, or for fewer tasks",
                spec.latency_bound,
                least.as_nanos()
            );
            Err(ControlError::precondition(name, text))
        }
        _ => Ok(()),
    }
}

/// Cards that a DAG may go to, by its affinity and those of its tenant's other DAGs.
/// Time O(DAGs that these name · log DAGs).
fn wishes(core: &Core, name: &DagName, spec: &DagSpec) -> CardWishes {
    if let Some(to) = core.dags.get(name).and_then(DagEntry::assigned) {
        return CardWishes::only(&to.card);
    }
    // Only those count that one of the two affinities names.
    let CardAffinity { together_with, apart_from, .. } = &spec.card_affinity;
    let named = together_with.iter().chain(apart_from).chain(core.dags.keeping_apart_from(name));
    let named: BTreeSet<&DagName> = named.filter(|of| of.tenant == name.tenant).collect();
    let sites = named.into_iter().filter_map(|of| site(core.dags.get(of)?));
    CardWishes::of(name, &spec.card_affinity, sites)
}

/// Site of a DAG that has a place.
fn site(entry: &DagEntry) -> Option<Site<'_>> {
    let (name, affinity) = (entry.name(), &entry.spec().card_affinity);
    Some(Site { name, affinity, card: entry.card()? })
}

/// The DAGs of a tenant that have a place.
pub(crate) fn sites<'a>(core: &'a Core, tenant: &'a TenantId) -> impl Iterator<Item = Site<'a>> {
    core.dags.of_tenant(tenant).filter_map(site)
}

/// Memory that a tenant may use for a DAG, new or changed.
fn memory_allowance(core: &Core, name: &DagName, spec: &DagSpec) -> MemoryAllowance {
    let before = core.dags.get(name).map(DagEntry::counted);
    core.registry.memory_allowance(&name.tenant, before, std::iter::once(spec))
}

/// Threads that a tenant may use for a DAG, new or changed.
fn thread_allowance(core: &Core, name: &DagName) -> ThreadAllowance {
    let own = core.dags.get(name).map_or(0, DagEntry::threads);
    let others = core.dags.threads_of(&name.tenant).saturating_sub(own);
    ThreadAllowance::new(quotas::threads_max(core, &name.tenant), others)
}

/// Decides about a DAG that is new or changed, changing nothing.
pub(crate) fn decide(core: &Core, name: &DagName, dag: &Dag) -> Result<Admission, ControlError> {
    let entry = core.dags.get(name);
    // What serves stays on its card, unless the change is about cards and is refused for it.
    let stays = entry.filter(|entry| entry.serves_meanwhile().is_some());
    let wishes = match stays {
        Some(entry) if entry.spec().card_affinity == dag.spec().card_affinity => {
            CardWishes::default()
        }
        _ => wishes(core, name, dag.spec()),
    };
    decide_candidate(
        core,
        &Candidate {
            name,
            dag,
            serving: entry.and_then(DagEntry::serves_meanwhile),
            withdrawn: entry.and_then(DagEntry::replaced_at_once),
            wishes: &wishes,
            memory: &memory_allowance(core, name, dag.spec()),
            threads: thread_allowance(core, name),
        },
    )
}

/// The same about a DAG that is to be new on this card, whatever it has on another one.
pub(crate) fn decide_on(
    core: &Core,
    name: &DagName,
    dag: &Dag,
    card: &CardId,
) -> Result<Admission, ControlError> {
    decide_candidate(
        core,
        &Candidate {
            name,
            dag,
            serving: None,
            withdrawn: None,
            wishes: &CardWishes::only(card),
            memory: &memory_allowance(core, name, dag.spec()),
            threads: thread_allowance(core, name),
        },
    )
}

fn decide_candidate(core: &Core, candidate: &Candidate<'_>) -> Result<Admission, ControlError> {
    let Candidate { name, dag, .. } = *candidate;
    let cards = card_plans(core, Some(name), admission::BORROWERS_TRIED_MAX);
    let effort = Effort::new();
    let decided =
        admission::decide(&cards, core.registry.catalogue(), rules(core), candidate, &effort);
    core.planning.planned(&effort);
    decided.map_err(|rejection| rejection.into_error(dag, || no_card_reason(core)))
}

/// Admission policy of the operators.
pub(crate) fn rules(core: &Core) -> AdmissionRules {
    let settings = core.policies.current();
    AdmissionRules { policy: settings.admission, order: settings.placement.cards }
}

/// Plans on the cards, as admission looks at them; without a candidate that is there already. On each card at most so
/// many DAGs that could be made smaller, those that hold most beyond their promise. Time O(cards · log DAGs + those).
pub(crate) fn card_plans<'a>(
    core: &'a Core,
    candidate: Option<&DagName>,
    borrowers_max: usize,
) -> Vec<CardPlan<'a>> {
    let own = candidate.and_then(|name| core.dags.get(name));
    let plan = |(id, card): (&'a CardId, &'a CardMachine)| {
        let own = own.filter(|entry| entry.card() == Some(id)).map(|entry| entry.spec().bandwidth);
        let others = core.dags.borrowers_on(id).filter(|entry| Some(entry.name()) != candidate);
        CardPlan {
            id,
            ledger: card.ledger(),
            rows: card.rows(),
            is_ready: card.is_ready(),
            guaranteed: core.dags.guaranteed_on(id).saturating_sub(own.unwrap_or_default()),
            borrowers: others.filter_map(borrower).take(borrowers_max).collect(),
        }
    };
    core.cards.iter().map(plan).collect()
}

fn borrower(entry: &DagEntry) -> Option<Borrower<'_>> {
    let (name, spec, placement) = (entry.name(), entry.spec(), entry.desired()?);
    Some(Borrower { name, spec, placement })
}

/// Why there is no card to place a DAG on; for operators.
pub(crate) fn no_card_reason(core: &Core) -> String {
    let reasons = core.cards.absent().map(|(id, why)| format!("card {id}: {why}"));
    let text = reasons.collect::<Vec<_>>().join("; ");
    if text.is_empty() { "the daemon has none in its settings".into() } else { text }
}

/// Gives a DAG a place: books the plan on its card, notes what its regions are to hold, and has
/// its rows follow.
///
/// # Errors
/// Where the card has no room for it, or no rows; nothing has changed then.
pub(crate) fn assign(
    core: &mut Core,
    tx: &mut Tx,
    name: &DagName,
    choice: Choice,
    handover: Handover,
) -> Result<(), ControlError> {
    let Choice { card: id, plan } = choice;
    let entry = core.dags.known(name);
    let (serving, withdrawn) = match handover {
        Handover::MakeBeforeBreak => (entry.serves_meanwhile(), entry.replaced_at_once()),
        Handover::AtOnce => (entry.previous(), entry.desired()),
    };
    let old = serving.and_then(|serving| reservation_of(core, serving));
    let reservation =
        old.map_or_else(|| plan.reservation.clone(), |old| plan.reservation.max(&old));
    let booking = Booking { name, plan: &plan, reservation, withdrawn };
    let card = core.cards.known_mut(&id);
    let rows = card.book(booking, core.registry.catalogue())?;
    let gives_way = withdrawn.is_some();
    let uid = core.dags.known(name).uid();
    let may_keep = |core: &Core| core.dags.keeps_uid(name, &id) && core.usage.may_take(&id, uid);
    if core.dags.known(name).card().is_none() && !may_keep(core) {
        renumber(core, tx, name, &id);
    }
    let entry = core.dags.known(name);
    // A DAG may be given a place for more than it asks for.
    // Labels and description do not depend on the place.
    let spec = entry.spec().with_notes(Notes::default());
    let holds = plan.reservation.bandwidth();
    let placement = Placement {
        serial: entry.next_serial(),
        generation: entry.generation(),
        burst: (holds > spec.bandwidth).then_some(holds),
        spec,
        mapping: plan.mapping,
        stage_row: rows.stage,
        chain_row: rows.chain,
        instance_row: rows.instance,
    };
    if gives_way {
        take_away(core, name, Some(&id));
    }
    let before = core.dags.known(name).card().cloned();
    for load in &plan.loads {
        contents::set_content(core, tx, &id, load.region, Some(&load.bitstream));
    }
    core.usage.note_loads(name, plan.loads.len());
    core.dags.known_mut(name).begin(placement);
    follow_card(core, name, before.as_ref());
    core.dags.explain(tx, name, plan.explanation);
    classification::move_rules(core, tx, name);
    core.dags.set_scheduled(name);
    core.dags.mark_dirty(name);
    if !plan.loads.is_empty() && core.cards.known(&id).ledger().has_further_passes() {
        // A DAG that was cut before may have all of its NTs in one of these regions.
        core.passes.begin_later(core.now(), core.policies.current().consolidation.after);
    }
    for load in plan.loads {
        tx.emit_region(&id, load.region);
    }
    Ok(())
}

/// Gives a DAG without a place a UID in a row that is free on a card, where its own is not. What is kept for it
/// on other cards has the UID that it had, and is not its own any more.
fn renumber(core: &mut Core, tx: &mut Tx, name: &DagName, card: &CardId) {
    forgotten::forget_dag(core, tx, name);
    let counting = core.usage.counting(card);
    let uid = core
        .dags
        .next_uid(card, &counting)
        .expect("the card's ledger counts the rows of its DAG table");
    core.dags.change_uid(tx, name, uid);
}

/// A DAG that was on the card `before` may be on another one or on none now: its tenant's memory is counted by
/// cards.
fn follow_card(core: &mut Core, name: &DagName, before: Option<&CardId>) {
    let (spec, card) = core.dags.known(name).counted();
    if card != before {
        core.registry.move_dag(&name.tenant, spec, before, card);
    }
}

/// Resources that a placement takes of its card.
pub(crate) fn reservation_of(core: &Core, placement: &Placement) -> Option<Reservation> {
    let card = core.cards.known(&placement.mapping.card);
    core.registry.reservation(placement, card.profile())
}

/// Makes the ledger hold what the DAG's placements need now.
pub(crate) fn hold_again(core: &mut Core, name: &DagName) {
    let entry = core.dags.known(name);
    // While a DAG moves, two of its placements are on the books. Its packets follow the rows of the one or of the
    // other, because the tables change at one moment. So the card has to have room for the larger of both, resource by
    // resource, and not for their sum; with the sum, a DAG could often not be updated in place.
    let mut held: Option<(CardId, Reservation)> = None;
    for placement in entry.placements() {
        let more = reservation_of(core, placement);
        let more = more.expect("its spec was checked when it was admitted");
        held = Some(match held {
            Some((card, held)) => (card, held.max(&more)),
            None => (placement.mapping.card.clone(), more),
        });
    }
    // Without a placement it holds nothing: that was released with the last one.
    if let Some((id, held)) = held {
        let fits = core.cards.known_mut(&id).hold(name, held);
        debug_assert!(fits.is_ok(), "less than before does not fit: {fits:?}");
    }
    core.freed.capacity();
}

/// Takes a DAG's desired placement away, and gives its rows and reservation back; what serves
/// meanwhile stays. Its rows leave the target tables with the next refresh.
pub(crate) fn uninstall(core: &mut Core, name: &DagName) {
    take_away(core, name, None);
    hold_again(core, name);
}

/// The same, but on the card `booked` rows and reservation are those of another placement already.
fn take_away(core: &mut Core, name: &DagName, booked: Option<&CardId>) {
    let withdrawn = core.dags.known_mut(name).withdraw();
    let Some(ReplacedPlacement { placement, in_target }) = withdrawn else {
        return; // Nothing is desired: it waits for a place.
    };
    let entry = core.dags.known(name);
    let uid = entry.uid();
    let id = placement.mapping.card.clone();
    let card = core.cards.known_mut(&id);
    if in_target {
        card.clear_dag(name, uid, &placement);
    }
    if entry.target().is_none() {
        card.release_pages(name);
    }
    card.touch(name);
    if booked != Some(&id) {
        card.give_rows(&placement);
        card.release(name);
    }
    follow_card(core, name, Some(&id));
    core.freed.capacity();
    classification::retarget_rules(core, name);
    core.freed.regions(&id, regions_of(&placement));
    core.dags.mark_dirty(name);
}

/// Finds another place for a DAG: what it has must not be used any more, or an operator wants
/// a region empty. Where there is none the DAG stays without, and is tried again later.
fn replace(core: &mut Core, tx: &mut Tx, name: &DagName, spec: DagSpec) {
    let entry = core.dags.known(name);
    let dag = Dag::new(spec).expect("it was checked when it was admitted");
    let previous = entry.previous().cloned();
    let result = choose(core, name, &dag, previous.as_ref())
        .and_then(|choice| assign(core, tx, name, choice, Handover::MakeBeforeBreak));
    if let Err(error) = result {
        core.dags.set_unscheduled(name);
        if let Some(operation) = core.dags.known(name).operation().cloned() {
            work::end(core, tx, &operation, Err(error.clone()));
        }
        core.dags.known_mut(name).refused(match error {
            ControlError::Refused(refusal) => Some(refusal),
            _ => None,
        });
    }
    core.dags.store(tx, name);
    core.dags.mark_dirty(name);
}

/// Moves a DAG that is not moving yet to another place than it has: what serves it does until the card has the
/// new one. What it has borrowed does not move with it: the loop gives it some again.
///
/// # Errors
/// There is no other place; it stays.
pub(crate) fn relocate(core: &mut Core, tx: &mut Tx, name: &DagName) -> Result<(), ControlError> {
    let entry = core.dags.known(name);
    let placement = entry.desired().expect("who has no place is placed again instead").clone();
    let serves = entry.active() == Some(placement.serial);
    let dag = Dag::new(placement.spec.clone()).expect("it was checked when it was admitted");
    let choice = choose(core, name, &dag, serves.then_some(&placement))?;
    assign(core, tx, name, choice, Handover::MakeBeforeBreak)?;
    core.dags.store(tx, name);
    Ok(())
}

/// Looks for a place for a DAG that has none: see [`replace`].
pub(crate) fn place_again(core: &mut Core, tx: &mut Tx, name: &DagName) {
    let spec = core.dags.known(name).spec().clone();
    replace(core, tx, name, spec);
}

/// The DAGs that have no place may find one now: they are tried again, by name. Time O(DAGs without a place).
pub(crate) fn retry_unscheduled(core: &mut Core) {
    let Core { dags, planning, .. } = core;
    planning.waiting.fill(dags.unscheduled().map(|entry| entry.name().clone()));
}

/// Tries DAGs that have no place again, as many as one event may.
pub(crate) fn place_unscheduled(core: &mut Core, tx: &mut Tx) {
    while !core.planning.waiting.is_empty() && core.planning.may_begin() {
        let Some(name) = core.planning.waiting.pop() else { break };
        // It may have been placed or deleted since.
        if core.dags.is_unscheduled(&name) {
            place_again(core, tx, &name);
        }
    }
    if core.planning.waiting.is_due_again() {
        core.freed.capacity();
    }
}

/// DAGs have lost their place: they are placed again, those that are too many for one event with the next ones.
pub(crate) fn retry_unplaced(core: &mut Core, tx: &mut Tx, names: &[DagName]) {
    for name in names {
        if core.planning.may_begin() {
            place_again(core, tx, name);
        } else {
            core.dags.set_unscheduled(name);
            core.dags.store(tx, name);
            core.dags.mark_dirty(name);
            core.freed.capacity();
        }
    }
}

/// A region will not get what it was to hold: its DAGs go elsewhere.
pub(crate) fn abandon_content(core: &mut Core, tx: &mut Tx, id: &CardId, region: RegionId) {
    let users: Vec<DagName> = core.cards.known(id).ledger().users(region).cloned().collect();
    let mut homeless = Vec::new();
    for name in users {
        let entry = core.dags.known(&name);
        let uses = |p: Option<&Placement>| p.is_some_and(|p| p.mapping.uses(region));
        let (placement, previous) = (uses(entry.desired()), uses(entry.previous()));
        if previous {
            drop_previous(core, tx, &name);
        }
        if placement {
            uninstall(core, &name);
            homeless.push(name);
        }
    }
    contents::set_content(core, tx, id, region, None);
    core.cards.known(id).store_region(tx, region);
    retry_unplaced(core, tx, &homeless);
}

/// The card has a DAG's desired placement: gives back what served until now.
pub(crate) fn finish_move(core: &mut Core, tx: &mut Tx, name: &DagName) {
    // A new DAG, and one that was without a place, has left none.
    let left = core.dags.known_mut(name).arrived();
    if let Some(left) = left {
        give_back(core, tx, name, left);
    }
}

/// Gives back what served a DAG until its move was done.
fn drop_previous(core: &mut Core, tx: &mut Tx, name: &DagName) {
    // One that is not moving has none.
    let left = core.dags.known_mut(name).leave();
    if let Some(left) = left {
        give_back(core, tx, name, left);
    }
}

fn give_back(core: &mut Core, tx: &mut Tx, name: &DagName, left: ReplacedPlacement) {
    let ReplacedPlacement { placement, in_target } = left;
    let uid = core.dags.known(name).uid();
    let id = placement.mapping.card.clone();
    follow_card(core, name, Some(&id));
    let card = core.cards.known_mut(&id);
    if in_target {
        card.clear_dag(name, uid, &placement);
        card.release_pages(name);
    }
    card.give_rows(&placement);
    card.release(name);
    hold_again(core, name);
    core.freed.regions(&id, regions_of(&placement));
    core.dags.mark_dirty(name);
    core.dags.store(tx, name);
}

/// A bitstream that failed wherever it was loaded is not planned with any more.
pub(crate) fn reject_bitstream(core: &mut Core, tx: &mut Tx, id: &BitstreamId, reason: String) {
    core.registry.reject_bitstream(tx, id, reason);
    let held: Vec<(CardId, RegionId)> = core.cards.regions_with(id);
    for (card, region) in held {
        if core.cards.known(&card).region(region).is_some_and(|entry| !entry.is_loaded()) {
            abandon_content(core, tx, &card, region);
        }
    }
}

/// Takes a DAG off its card for good: rows and reservation. Says which card has to be told.
pub(crate) fn evict(core: &mut Core, tx: &mut Tx, name: &DagName) -> Option<CardId> {
    let card = core.dags.known(name).card().cloned();
    drop_previous(core, tx, name);
    uninstall(core, name);
    card
}
