//! The control loop over all cards: samples counters, sets rates and instances, applies policies that
//! take effect at an epoch's edge. The state of a card's loop is in [`CardLoop`](crate::state::epoch).

use std::collections::BTreeMap;
use std::time::Duration;

use snic_domain::{CardId, TenantId, Timestamp};
use snic_tables::{CardCounters, RateLimiterRow, Ticket};

use crate::place::{consolidation, contents, scaling, serving};
use crate::protocol::{ControllerSettings, LogKind};
use crate::state::Core;
use crate::state::epoch::{CardLoop, CounterReading, OnCard, SampleAnswer};
use crate::store::tx::{LogSubject, Tx};

/// Interval of counter reads while nobody has a DAG: callers want to see them at all.
const IDLE: Duration = Duration::from_secs(1);

/// The shorter of the epoch and the monitor period while anybody has a DAG.
fn shortest_interval(core: &Core) -> Duration {
    if core.dags.is_empty() {
        return IDLE;
    }
    let settings = core.policies.current();
    settings.fairness.epoch.min(settings.autoscaling.monitor_period)
}

/// That, or longer while no DAG has traffic on any card.
fn sample_interval(core: &Core) -> Duration {
    let shortest = shortest_interval(core);
    if core.dags.is_empty() {
        return shortest;
    }
    let epoch = core.policies.current().fairness.epoch;
    let of_cards =
        core.loops.iter().map(|(_, card_loop)| card_loop.sample_interval(shortest, epoch));
    of_cards.min().unwrap_or(shortest)
}

/// When counters are to be read next.
pub(crate) fn next_sample(core: &Core) -> Timestamp {
    core.loops.next_sample(sample_interval(core))
}

/// Asks every card that answers for its counters. What was missed is missed.
pub(crate) fn sample(core: &mut Core, tx: &mut Tx) {
    let interval = sample_interval(core);
    let slack = core.policies.current().autoscaling.check_interval() / 2;
    if !core.loops.is_sample_due(core.now(), interval, slack) && !probes_due(core).is_empty() {
        return request_probe(core, tx);
    }
    let now = core.now();
    let missed = core.loops.sample(now, interval);
    let missed = if core.dags.is_empty() { 0 } else { missed };
    apply_settings(core, tx);
    for id in core.cards.ready() {
        let ticket = core.ticket();
        let asked = core.loops.known_mut(&id).ask(now, ticket, missed);
        if let Some(text) = asked.overrun {
            tx.note(LogKind::Overrun, LogSubject::card(&id), text);
        }
        if let Some(command) = asked.command {
            tx.card(id, command);
        }
    }
}

/// The cards whose loads are to be looked at between two samples.
fn probes_due(core: &Core) -> Vec<CardId> {
    let is_due = |card_loop: &CardLoop| card_loop.next_probe().is_some_and(|at| at <= core.now());
    let due = core.loops.iter().filter(|(_, card_loop)| is_due(card_loop));
    due.map(|(id, _)| id.clone()).collect()
}

/// Asks the cards where loads are near their capacity, between two samples.
fn request_probe(core: &mut Core, tx: &mut Tx) {
    let next = core.now() + core.policies.current().autoscaling.check_interval();
    for id in probes_due(core) {
        let ticket = core.ticket();
        if let Some(command) = core.loops.known_mut(&id).request_probe(ticket, next) {
            tx.card(id, command);
        }
    }
}

/// A card said its counters.
pub(crate) fn sampled(
    core: &mut Core,
    tx: &mut Tx,
    id: &CardId,
    ticket: Ticket,
    mut counters: CardCounters,
) {
    let now = core.now();
    core.loops.known_mut(id).keep_latencies(std::mem::take(&mut counters.latency));
    let card = core.cards.known_mut(id);
    let before = card.count(counters);
    core.usage.read(now, id, card);
    let card_loop = core.loops.known_mut(id);
    if let Some(text) = card_loop.note_faults(now, &before, card.counters()) {
        tx.note(LogKind::MemoryFault, LogSubject::card(id), text);
    }
    let span = match card_loop.answered(now, ticket) {
        SampleAnswer::Stale => return,
        SampleAnswer::First => Duration::ZERO,
        SampleAnswer::After(span) => span,
        SampleAnswer::Between(span) => return scaling::scale_between_samples(core, tx, id, span),
    };
    let after = card.counters();
    let moved = before.dags != after.dags || before.dag_drops != after.dag_drops;
    let (interval, epoch) = (shortest_interval(core), core.policies.current().fairness.epoch);
    let card_loop = core.loops.known_mut(id);
    let is_edge = card_loop.is_edge(now, interval, epoch);
    if is_edge && !span.is_zero() {
        card_loop.at_edge(now); // Where nothing is looked at the rates stay what they are.
    }
    let Some(look) = card_loop.measured_spans(span, moved, is_edge.then_some(epoch)) else {
        return;
    };
    if !look.still.is_zero() {
        measure(core, tx, id, look.still, Some(&before));
        scaling::scale(core, tx, id, look.still);
    }
    measure(core, tx, id, look.span, None);
    note_promises(core, id);
    if span.is_zero() {
        return; // Nothing is known of any load: what the card lets in stays.
    }
    compute(core, id, is_edge);
    let card_loop = core.loops.known(id);
    if card_loop.is_stale() && card_loop.is_promise_at_risk() {
        compute(core, id, true); // Rates are about to be set.
    }
    scaling::scale(core, tx, id, look.span);
    keep_spare(core, tx, id);
    let follows = is_edge || core.loops.known(id).is_promise_at_risk();
    if follows {
        set_rates(core, id);
    }
    let Core { loops, dags, registry, .. } = core;
    let is_tenant = |tenant: &TenantId| registry.tenant(tenant).is_some();
    let card_loop = loops.known_mut(id);
    card_loop.write_history(now, dags, is_tenant);
    card_loop.rates_set(follows);
}

/// Takes in the counters of a card at the end of a `span`: those before its last answer, or the latest.
fn measure(
    core: &mut Core,
    tx: &mut Tx,
    id: &CardId,
    span: Duration,
    before: Option<&CardCounters>,
) {
    let now = core.now();
    let Core { cards, loops, dags, .. } = core;
    let card = cards.known(id);
    let (line, counters) = (card.profile().ingress, before.unwrap_or(card.counters()));
    let clock_hz = card.profile().clock_hz;
    let reading = CounterReading { now, span, clock_hz, line, counters };
    if let Some(text) = loops.known_mut(id).measure(&reading, id, dags) {
        tx.note(LogKind::OddCounters, LogSubject::card(id), text);
    }
}

/// Notes the DAGs of a card whose windows of a second have begun or ceased to lack something of the promise, or were too slow. Time O(DAGs of the card).
fn note_promises(core: &mut Core, id: &CardId) {
    let Core { dags, usage, .. } = core;
    dags.visit_on_card(id, |entry| {
        let before = usage.service_fault(entry.uid());
        if before.is_none() && entry.meter().is_silent() {
            return;
        }
        if before != entry.service_fault() {
            usage.note_promise(entry.name());
        }
    });
}

/// Has the engine compute. Before that it is brought up to date with what is on the card: if it must be, else once in a
/// while.
fn compute(core: &mut Core, id: &CardId, must_renew: bool) {
    let (now, epoch) = (core.now(), core.policies.current().fairness.epoch);
    if core.loops.known_mut(id).take_renewal(now, must_renew, epoch) {
        let former = core.loops.known_mut(id).take_former();
        let on_card = OnCard { id, card: core.cards.known(id), registry: &core.registry };
        let named = on_card.topology(&core.dags, former);
        let Ticket(number) = core.ticket();
        let fairness = core.policies.current().fairness;
        core.loops.known_mut(id).renew(named, fairness, number, &mut core.dags);
    }
    load_other_cards(core, id);
    core.loops.known_mut(id).step(&core.dags, core.budgets.burst_off());
}

/// Tells a card's loop what its tenants may have on other cards: dominant shares are of all cards. Time
/// O(tenants × cards) where there are several.
fn load_other_cards(core: &mut Core, id: &CardId) {
    if core.loops.iter().count() < 2 {
        return;
    }
    let luts = |id: &CardId| u128::from(core.cards.known(id).profile().luts().max(1));
    let own = luts(id);
    let others: Vec<(u128, &CardLoop)> =
        core.loops.iter().filter(|(other, _)| *other != id).map(|(o, l)| (luts(o), l)).collect();
    let mut elsewhere = BTreeMap::new();
    for tenant in core.loops.known(id).tenants() {
        let mut sum = [0_u64; 2];
        for (luts, other) in &others {
            let [area, memory] = other.allocation(tenant);
            let area = u128::from(area) * luts / own;
            sum[0] = sum[0].saturating_add(u64::try_from(area).unwrap_or(u64::MAX));
            sum[1] = sum[1].saturating_add(memory);
        }
        elsewhere.insert(tenant.clone(), sum);
    }
    let of = |tenant: &TenantId| elsewhere.get(tenant).copied().unwrap_or_default();
    core.loops.known_mut(id).set_elsewhere(of);
}

/// Writes the rates of the last step into the target tables, where they differ.
fn set_rates(core: &mut Core, id: &CardId) {
    let Core { loops, dags, cards, budgets, .. } = core;
    let card = cards.known_mut(id);
    let counts = card.counts_packets();
    let put = |row, bucket: &RateLimiterRow| card.put_bucket(row, bucket);
    loops.known_mut(id).set_rates(dags, budgets.burst_off(), counts, put);
}

/// A DAG is about to be served by other instances: its rate follows with the same commit.
pub(crate) fn follow_at_once(core: &mut Core, id: &CardId) {
    if core.loops.known_mut(id).take_urgent() {
        compute(core, id, true);
        set_rates(core, id);
    }
}

/// One region more than is used, for chains that were scaled out: what was needed at once lately will
/// be needed at once again, and a load that jumps gives a trend no time. Only regions that hold
/// nothing are loaded for it, and only while nobody waits for a load; the chain is there as a victim.
/// Time O(chains × regions).
fn keep_spare(core: &mut Core, tx: &mut Tx, id: &CardId) {
    let policy = core.policies.current().autoscaling;
    if !(policy.enabled && policy.spare) {
        return;
    }
    let scaled = core.loops.known(id).scaled();
    let Some((bitstream, region)) = core.cards.known(id).missing_spare(scaled) else {
        return; // There is one, or no place for it.
    };
    contents::set_content(core, tx, id, region, Some(&bitstream));
    core.cards.known_mut(id).keep_spare(region);
    let text = format!("{bitstream} was scaled out: one region more than is used is kept loaded");
    let about = LogSubject { regions: vec![region], ..LogSubject::card(id) };
    tx.note(LogKind::PreLaunch, about, text);
    tx.emit_region(id, region);
}

/// Notes policies; they take effect at the next edge of an epoch.
pub(crate) fn settings_arrived(core: &mut Core, settings: ControllerSettings) {
    core.policies.arrived(settings);
}

fn apply_settings(core: &mut Core, tx: &mut Tx) {
    // At an edge of every card's epoch: rates of one epoch are all of one policy.
    let (interval, epoch) = (shortest_interval(core), core.policies.current().fairness.epoch);
    if !core.loops.iter().all(|(_, card_loop)| card_loop.is_edge(core.now(), interval, epoch)) {
        return;
    }
    let Some(before) = core.policies.take_effect() else {
        return; // They are as they were.
    };
    let settings = *core.policies.current();
    if before.consolidation != settings.consolidation {
        consolidation::begin_by_policy(core);
    }
    if before.budgets != settings.budgets {
        core.usage.note_all_spenders();
    }
    if before.placement != settings.placement {
        core.cards.set_objective(settings.placement.objective);
    }
    if before.scheduling != settings.scheduling {
        serving::reschedule_rows(core);
        contents::reschedule_rows(core);
    }
    core.loops.all_changed();
    let text =
        format!("other policies are in force: {}", settings.changes_since(&before).join("; "));
    tx.note(LogKind::PoliciesApplied, LogSubject::default(), text);
}
