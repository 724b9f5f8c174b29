//! Every hard constraint of a plan, derived again from public state: the ledger's residuals, the
//! catalogue and the mapping. Shares no code with the planner's search.

use std::collections::{BTreeMap, BTreeSet};

use snic_domain::EmbeddingKind::{FreeRegion, Shared, Split, VictimRegion};
use snic_domain::limits::{CHAIN_SLOTS_MAX, FORK_BRANCHES_MAX, PAGE_SIZE};
use snic_domain::{
    Area, Bandwidth, Bitstream, ByteSize, ChainExplanation, Dag, DagSpec, EmbeddingKind, Form,
    FormPreference, Instance, NodeId, NtType, NtTypeId, RegionId, RegionImage, RejectionReason,
    Signer, Slot, TenantId,
};
use snic_oracles::trust::{ImageFacts, KeyHolder};
use snic_planner::{Ledger, Plan, PlanCatalogue, PlanRequest, RegionCondition};

type Checked = Result<(), String>;

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(what()) }
}

/// Checks a plan against the state that it was made for.
pub fn plan(
    ledger: &Ledger,
    catalogue: &PlanCatalogue,
    request: &PlanRequest<'_>,
    plan: &Plan,
) -> Checked {
    let contents = loads(ledger, catalogue, request, plan)?;
    order(request.dag, plan)?;
    for chain in plan.mapping.chains() {
        let nts: Vec<_> = chain.nodes.iter().map(|node| nt_of(request.dag, node)).collect();
        ensure(!chain.instances.is_empty(), || format!("{:?} has no instance", chain.nodes))?;
        let sum: Bandwidth = chain.instances.iter().map(|i| i.bandwidth).sum();
        ensure(sum == request.dag.bandwidth(), || format!("{:?} has {sum}", chain.nodes))?;
        for instance in &chain.instances {
            let region = instance.region;
            let bitstream = contents.get(&region).ok_or("an empty region")?;
            ensure(bitstream.id == instance.bitstream, || format!("region {region} differs"))?;
            ensure(instance.bandwidth > Bandwidth::ZERO && instance.bandwidth.is_whole(), || {
                format!("a share of {}", instance.bandwidth)
            })?;
            ensure(ledger.condition(region) == RegionCondition::Usable, || {
                format!("region {region} is {:?}", ledger.condition(region))
            })?;
            ensure(may_pass(&request.name.tenant, request.dag.spec(), bitstream), || {
                format!("{} is not shared with the DAG, or not trusted by it", bitstream.id)
            })?;
            ensure(instance.slots.len() == nts.len(), || "slots do not match nodes".into())?;
            ensure(instance.slots.windows(2).all(|w| w[0] < w[1]), || "slots do not rise".into())?;
            for (slot, nt) in instance.slots.iter().zip(&nts) {
                ensure(bitstream.nts.get(slot.index()) == Some(*nt), || {
                    format!("slot {} of {} is no {nt}", slot.0, bitstream.id)
                })?;
                let known = catalogue.nt(nt).ok_or("an NT that the catalogue lacks")?;
                ensure(known.is_visible_to(&request.name.tenant), || format!("{nt} is hidden"))?;
            }
        }
    }
    sums(ledger, catalogue, request, plan, &contents)?;
    latency(ledger, catalogue, request, plan)?;
    explanation(ledger, catalogue, request, plan)
}

/// The rule of trust, asked of the oracle.
pub fn may_pass(tenant: &TenantId, spec: &DagSpec, bitstream: &Bitstream) -> bool {
    let named: Vec<&str> = spec.trusted_tenants.iter().map(TenantId::as_str).collect();
    snic_oracles::trust::may_pass(tenant.as_str(), &named, image_facts(bitstream))
}

/// A bitstream, as the oracle of trust knows it.
pub fn image_facts(bitstream: &Bitstream) -> ImageFacts<'_> {
    ImageFacts {
        owner: bitstream.id.as_str().split_once('.').map(|(owner, _)| owner),
        is_shared: bitstream.shareable,
        signature: match &bitstream.signed_by {
            None => KeyHolder::Nobody,
            Some(Signer::Provider(_)) => KeyHolder::Provider,
            Some(Signer::Owner(_)) => KeyHolder::Owner,
        },
    }
}

fn nt_of<'a>(dag: &'a Dag, node: &NodeId) -> &'a NtTypeId {
    &dag.nodes().iter().find(|n| n.id == *node).expect("a node of the DAG").nt
}

/// Content of every region once the plan's loads are done.
fn loads(
    ledger: &Ledger,
    catalogue: &PlanCatalogue,
    request: &PlanRequest<'_>,
    plan: &Plan,
) -> Result<BTreeMap<RegionId, Bitstream>, String> {
    let mut contents: BTreeMap<RegionId, Bitstream> = ledger
        .profile()
        .regions()
        .filter_map(|(region, _)| Some((region, ledger.content(region)?.clone())))
        .collect();
    let mut seen = BTreeSet::new();
    for load in &plan.loads {
        let region = load.region;
        let profile = ledger.profile().region(region).ok_or("no such region")?;
        let bitstream = catalogue.bitstream(&load.bitstream).ok_or("no such bitstream")?;
        ensure(seen.insert(region), || format!("region {region} is loaded twice"))?;
        ensure(ledger.users(region).next().is_none(), || format!("region {region} is in use"))?;
        ensure(!request.previous.is_some_and(|m| m.uses(region)), || {
            format!("region {region} still serves the DAG")
        })?;
        ensure(ledger.condition(region) == RegionCondition::Usable, || "not usable".into())?;
        ensure(plan.mapping.uses(region), || format!("region {region} is loaded for nothing"))?;
        ensure(load.replaces.as_ref() == ledger.content(region).map(|b| &b.id), || {
            format!("region {region} does not hold {:?}", load.replaces)
        })?;
        ensure(bitstream.is_loadable_by(&request.name.tenant), || "not the tenant's".into())?;
        ensure(bitstream.card_model == ledger.profile().model, || "another model".into())?;
        ensure(bitstream.region_kind == profile.kind, || "another kind".into())?;
        let is_for =
            |image: &&RegionImage| image.regions.is_empty() || image.regions.contains(&region);
        let image = bitstream.images.iter().find(is_for).ok_or_else(|| {
            format!("region {region}, but {} has images for {:?}", bitstream.id, bitstream.images)
        })?;
        ensure(image.size <= profile.bitstream_max, || "too large".into())?;
        ensure(bitstream.nts.len() <= CHAIN_SLOTS_MAX, || "too long".into())?;
        let nts: Option<Vec<&NtType>> = bitstream.nts.iter().map(|n| catalogue.nt(n)).collect();
        let area: Area = nts.ok_or("an unknown NT")?.iter().map(|nt| nt.area).sum();
        ensure(profile.area.fits(area), || format!("{area} in {}", profile.area))?;
        contents.insert(region, bitstream.clone());
    }
    Ok(contents)
}

/// Every node once, every edge kept, no stage wider than the card's.
fn order(dag: &Dag, plan: &Plan) -> Checked {
    let mut place = BTreeMap::new();
    for (s, stage) in plan.mapping.stages.iter().enumerate() {
        let width = stage.branches.len();
        ensure((1..=FORK_BRANCHES_MAX).contains(&width), || format!("stage {s} has {width}"))?;
        for (b, branch) in stage.branches.iter().enumerate() {
            ensure(!branch.nodes.is_empty(), || "an empty branch".into())?;
            for (i, node) in branch.nodes.iter().enumerate() {
                let before = place.insert(node.clone(), (s, b, i));
                ensure(before.is_none(), || format!("duplicate node {node}"))?;
            }
        }
        if plan.mapping.form == Form::Sequential {
            ensure(width == 1, || "a sequential form with branches".into())?;
        }
    }
    ensure(place.len() == dag.nodes().len(), || "nodes are missing".into())?;
    for edge in &dag.spec().edges {
        let (from, to) = (place[&edge.from], place[&edge.to]);
        ensure(from.0 < to.0 || (from.0, from.1) == (to.0, to.1) && from.2 < to.2, || {
            format!("{} does not come before {}", edge.from, edge.to)
        })?;
    }
    Ok(())
}

/// Bandwidth of every NT, ingress, egress, memory and rows: what others hold and the plan's.
fn sums(
    ledger: &Ledger,
    catalogue: &PlanCatalogue,
    request: &PlanRequest<'_>,
    plan: &Plan,
    contents: &BTreeMap<RegionId, Bitstream>,
) -> Checked {
    let others: Vec<_> = ledger.reservations().filter(|(name, _)| *name != request.name).collect();
    let mut used: BTreeMap<(RegionId, Slot), Bandwidth> = BTreeMap::new();
    let mut spaces: BTreeSet<(TenantId, NtTypeId)> = BTreeSet::new();
    let nt_at = |region: RegionId, slot: Slot| contents[&region].nts[slot.index()].clone();
    for instance in plan.mapping.instances() {
        for slot in &instance.slots {
            *used.entry((instance.region, *slot)).or_default() += instance.bandwidth;
            spaces.insert((request.name.tenant.clone(), nt_at(instance.region, *slot)));
        }
    }
    let mine: Vec<_> = used.iter().map(|((r, s), b)| (*r, *s, *b)).collect();
    ensure(plan.reservation.bandwidths().eq(mine), || "the reservation differs".into())?;
    for (name, reservation) in &others {
        for (region, slot, bandwidth) in reservation.bandwidths() {
            *used.entry((region, slot)).or_default() += bandwidth;
            spaces.insert((name.tenant.clone(), nt_at(region, slot)));
        }
    }
    for ((region, slot), bandwidth) in &used {
        let max = catalogue
            .nt(&contents[region].nts[slot.index()])
            .map_or(Bandwidth::ZERO, |nt| nt.bandwidth_max);
        ensure(*bandwidth <= max, || format!("{bandwidth} of {max} in {region}/{}", slot.0))?;
    }
    let bandwidth = request.dag.bandwidth();
    let ingress: Bandwidth = others.iter().map(|(_, r)| r.ingress()).sum();
    ensure(ingress + bandwidth <= ledger.profile().ingress, || "ingress overbooked".into())?;
    let egress: Bandwidth = others.iter().map(|(_, r)| r.egress()).sum();
    ensure(egress + bandwidth <= ledger.profile().egress, || "egress overbooked".into())?;
    let memory: u64 = spaces
        .iter()
        .filter_map(|(_, nt)| catalogue.nt(nt))
        .map(|nt| nt.memory.get().div_ceil(PAGE_SIZE.get()) * PAGE_SIZE.get())
        .sum();
    ensure(ByteSize::from_bytes(memory) <= ledger.profile().memory, || "memory overbooked".into())
}

/// The form's numbers: what the mapping takes on an unloaded card, and which form is faster.
fn latency(
    ledger: &Ledger,
    catalogue: &PlanCatalogue,
    request: &PlanRequest<'_>,
    plan: &Plan,
) -> Checked {
    let form = &plan.explanation.form;
    ensure(form.chosen == plan.mapping.form, || "another form was told".into())?;
    let of =
        |node: &NodeId| catalogue.nt(nt_of(request.dag, node)).map_or(0, |nt| nt.latency.get());
    let profile = ledger.profile();
    let mut cycles = profile.core.get();
    for (i, stage) in plan.mapping.stages.iter().enumerate() {
        let longest = stage.branches.iter().map(|b| b.nodes.iter().map(of).sum::<u64>()).max();
        cycles += longest.unwrap_or(0) + if i > 0 { profile.scheduler_pass.get() } else { 0 };
    }
    let told = match form.chosen {
        Form::Sequential => form.sequential.get(),
        Form::Parallel => form.parallel.ok_or("a parallel form without its latency")?.get(),
    };
    ensure(told == cycles, || format!("{told} cycles told, {cycles} taken"))?;
    let Some(parallel) = form.parallel else {
        return ensure(form.chosen == Form::Sequential, || "no fork, but parallel".into());
    };
    if form.reason.contains("only") {
        return Ok(());
    }
    let faster = if parallel < form.sequential { Form::Parallel } else { Form::Sequential };
    let wanted = match request.dag.spec().form {
        FormPreference::Auto => faster,
        FormPreference::Sequential => Form::Sequential,
        FormPreference::Parallel => Form::Parallel,
    };
    ensure(form.chosen == wanted, || format!("{form:?}"))
}

/// Unused part of a region's content: the resource that is scarcest decides.
fn unused(ledger: &Ledger, catalogue: &PlanCatalogue, instance: &Instance, told: u32) -> Checked {
    let bitstream = catalogue.bitstream(&instance.bitstream);
    let Some(bitstream) = bitstream.or_else(|| ledger.content(instance.region)) else {
        return Ok(());
    };
    let region = ledger.profile().region(instance.region).ok_or("no such region")?.area;
    let areas: Option<Vec<Area>> =
        bitstream.nts.iter().map(|nt| catalogue.nt(nt).map(|nt| nt.area)).collect();
    let Some(areas) = areas.filter(|areas| areas.len() <= CHAIN_SLOTS_MAX) else { return Ok(()) };
    let sum: Area = areas.into_iter().sum();
    let part = |used: u32, all: u32| match (used, all) {
        (0, _) => 0,
        (_, 0) => 1_000,
        _ => (u64::from(used) * 1_000).div_ceil(u64::from(all)),
    };
    let used = [(sum.lut, region.lut), (sum.ramb36, region.ramb36), (sum.dsp, region.dsp)]
        .map(|(used, all)| part(used, all));
    let unused = 1_000u64.saturating_sub(used.into_iter().max().unwrap_or(0));
    ensure(u64::from(told) == unused, || format!("{told} permille unused, it is {unused}"))
}

/// Numbers that can be recomputed: skipped NTs, reconfigurations, headroom.
fn explanation(
    ledger: &Ledger,
    catalogue: &PlanCatalogue,
    request: &PlanRequest<'_>,
    plan: &Plan,
) -> Checked {
    let chains = &plan.explanation.chains;
    ensure(chains.len() == plan.mapping.chains().count(), || "chains are missing".into())?;
    let mut loads = 0;
    for (chain, told) in plan.mapping.chains().zip(chains) {
        ensure(chain.nodes == told.nodes, || "other nodes".into())?;
        ensure(chain.instances.len() == told.embeddings.len(), || "other instances".into())?;
        for (instance, embedding) in chain.instances.iter().zip(&told.embeddings) {
            ensure(
                (instance.region, &instance.bitstream, instance.bandwidth)
                    == (embedding.region, &embedding.bitstream, embedding.bandwidth),
                || "another embedding".into(),
            )?;
            loads += embedding.reconfigurations;
            let slots = catalogue.bitstream(&instance.bitstream).map(|b| b.nts.len());
            if let Some(slots) = slots {
                let skipped = usize::from(embedding.skipped);
                ensure(skipped + instance.slots.len() == slots, || format!("{skipped} skipped"))?;
            }
            let load = plan.loads.iter().find(|load| load.region == instance.region);
            let kind = match load {
                None => Shared,
                Some(load) if load.replaces.is_some() => VictimRegion,
                Some(_) => FreeRegion,
            };
            ensure([kind, Split].contains(&embedding.kind), || {
                format!("{:?}, but it is {kind:?}", embedding.kind)
            })?;
            ensure(embedding.new_regions == embedding.reconfigurations, || "new regions".into())?;
            ensure(embedding.interruptions == 0, || "nobody is interrupted".into())?;
            ensure((embedding.kind == Split) == (embedding.passes > 1), || {
                format!("{:?} in {} passes", embedding.kind, embedding.passes)
            })?;
            unused(ledger, catalogue, instance, embedding.unused_permille)?;
            if load.is_none() {
                let left = |slot: &Slot| {
                    let own = ledger.held(request.name).map_or(Bandwidth::ZERO, |held| {
                        held.bandwidths()
                            .filter(|(r, s, _)| (r, s) == (&instance.region, slot))
                            .map(|(_, _, b)| b)
                            .sum()
                    });
                    let taken: Bandwidth = plan
                        .reservation
                        .bandwidths()
                        .filter(|(r, s, _)| (r, s) == (&instance.region, slot))
                        .map(|(_, _, b)| b)
                        .sum();
                    (ledger.residual(instance.region, *slot) + own).get() - taken.get()
                };
                let least = instance.slots.iter().map(left).min().unwrap_or(0);
                let has_limit = |slot: &Slot| {
                    let nts = ledger.content(instance.region).map(|content| &content.nts);
                    let nt = nts.and_then(|nts| catalogue.nt(nts.get(slot.index())?));
                    nt.is_some_and(|nt| nt.packets_per_second_max.is_some())
                };
                // Where packets are limited, too, they may leave less.
                let told = embedding.headroom.get();
                let is_less = told < least && instance.slots.iter().any(has_limit);
                ensure(is_less || told == least / 1_000 * 1_000, || {
                    format!("headroom {} is {least}", embedding.headroom)
                })?;
            }
        }
        rejections(told)?;
    }
    ensure(loads as usize == plan.loads.len(), || format!("{loads} reconfigurations told"))
}

/// The kinds that were not chosen, in order, each with a reason that holds by its own numbers. A kind that costs
/// this chain no more is left out.
fn rejections(told: &ChainExplanation) -> Checked {
    let latest = told.embeddings.iter().map(|e| e.kind).max().unwrap_or(Shared);
    let rejected: Vec<EmbeddingKind> = told.rejected.iter().map(|r| r.kind).collect();
    let mut others =
        [Shared, FreeRegion, VictimRegion, Split].into_iter().filter(|kind| *kind != latest);
    ensure(rejected.iter().all(|kind| others.any(|other| other == *kind)), || {
        format!("{rejected:?} were rejected beside {latest:?}")
    })?;
    for rejection in &told.rejected {
        match &rejection.reason {
            RejectionReason::Shortage(short) => {
                ensure(short.required > short.available, || format!("{short} is no shortage"))?;
            }
            RejectionReason::CostsMore(costs) => {
                ensure(costs.least != costs.chosen, || format!("{costs} is no more"))?;
            }
        }
    }
    Ok(())
}
