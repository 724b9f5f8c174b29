//! NTs as programs: where a card has processors and no regions.
//!
//! `snic_processors` chooses implementation, threads and buffers of one NT after the other, by what was measured
//! and by the BlueField-3 study's guidelines; here that becomes a plan that a ledger holds. The NTs run one after
//! the other, each on threads that no other program has.

use snic_domain::{
    Bandwidth, ByteSize, CardProfile, Cycles, Explanation, Form, FormChoice, Infeasible, Mapping,
    NtProgram, ProcessorKind, ProgramExplanation, Resource, Shortage,
};
use snic_processors::{
    Choice, Free, Guideline, NicModel, NodePlacement, Objection, Offer, PlacementOption, choose,
    place,
};

use crate::job::unknown_nt;
use crate::processor_use::ProcessorUse;
use crate::{Ledger, Plan, PlanCatalogue, PlanRequest, Reservation};

/// Part of a program's bandwidth that promises may take, in percent, as of a region's port: packets do not come
/// evenly, and a queue at threads that are always busy has no end.
const PROMISED_PERCENT: u64 = 96;
/// Most alternatives of an NT that are explained: an explanation is a record of limited size.
const REJECTED_MAX: usize = 8;

impl Ledger {
    /// Rest of the card's processors beside what `own`, a reservation of the ledger, holds.
    fn processors_left(&self, own: ProcessorUse) -> ProcessorUse {
        ProcessorUse::limits(self.profile()).minus(self.processors_used().minus(own))
    }

    /// Threads of a kind of processor that programs hold.
    pub fn threads_used(&self, kind: ProcessorKind) -> u32 {
        self.processors_used().threads[kind as usize]
    }

    /// The first resource of processors that a reservation is short of: which, what it needs, what there is.
    pub(crate) fn processors_short(
        &self,
        reservation: &Reservation,
    ) -> Option<(Resource, u64, u64)> {
        let left = self.processors_left(ProcessorUse::default());
        reservation.programs.beside(left).find(|(_, needed, left)| needed > left)
    }

    /// Rest of each resource of processors that a reservation holds, where it is tightest.
    pub(crate) fn processor_headroom(
        &self,
        own: &Reservation,
    ) -> [Option<(Resource, u64, u64)>; 3] {
        let left = self.processors_left(ProcessorUse::default());
        let known = |(_, held, left): &(Resource, u64, u64)| *held > 0 && *left < u64::MAX / 2;
        [Resource::Threads, Resource::ReceiveBandwidth, Resource::ProgramMemory].map(|resource| {
            let of = own.programs.beside(left).filter(|(of, ..)| *of == resource).filter(known);
            of.min_by_key(|(_, held, left)| left / held)
        })
    }

    /// Processors that `own` may choose from.
    fn free(&self, own: ProcessorUse) -> Free {
        let (left, others) = (self.processors_left(own), self.processors_used().minus(own));
        let mut free = Free::default();
        for processor in &self.profile().processors {
            let kind = processor.kind;
            free.threads.insert(kind, left.threads[kind as usize]);
            for path in &processor.memories {
                let memory = path.memory;
                free.memory.insert(memory, ByteSize::from_bytes(left.memory[memory as usize]));
                let received = others.received[kind as usize][memory as usize];
                if received > 0 {
                    free.received.insert((kind, memory), Bandwidth::from_bps(received));
                }
            }
        }
        free
    }
}

/// Whether plans for a card are programs.
pub(crate) fn runs_programs(profile: &CardProfile) -> bool {
    profile.regions.is_empty() && !profile.processors.is_empty()
}

/// Plans one DAG on a card's processors; changes nothing.
///
/// # Errors
/// [`Infeasible`] with what each NT is short of.
pub(crate) fn plan(
    ledger: &Ledger,
    catalogue: &PlanCatalogue,
    request: &PlanRequest<'_>,
) -> Result<Plan, Infeasible> {
    let PlanRequest { name, dag, .. } = *request;
    let unknown =
        dag.nodes().iter().filter(|node| catalogue.usable_nt(&node.nt, &name.tenant).is_none());
    let unknown: Vec<Shortage> = unknown.map(unknown_nt).collect();
    if !unknown.is_empty() {
        return Err(Infeasible { shortages: unknown });
    }
    let profile = ledger.profile();
    let Some(model) = catalogue.model(&profile.model) else {
        let detail = format!("nobody measured NTs on cards of model {}", profile.model);
        return Err(whole(Resource::NtBandwidth, (dag.bandwidth().get(), 0), detail));
    };
    let own = ledger.held(name).map(|held| held.programs).unwrap_or_default();
    let free = ledger.free(own);
    let nodes = place(model, |_| None, (dag, with_room(dag.bandwidth())), free.clone());
    let short: Vec<Shortage> =
        nodes.iter().filter_map(|node| shortage(model, node, &free)).collect();
    if !short.is_empty() {
        return Err(Infeasible { shortages: short });
    }
    let placed = nodes.iter().filter_map(|node| Some((node, node.choice.as_ref().ok()?)));
    let (programs, why) =
        placed.map(|(node, choice)| (program(node, choice), explain(node, choice))).unzip();
    let mapping = Mapping {
        card: ledger.card().clone(),
        form: Form::Sequential,
        stages: Vec::new(),
        programs,
    };
    let reservation = Reservation::of(&mapping, dag, catalogue, profile);
    check_card(ledger, request, &reservation)?;
    let reason = "its NTs run one after the other as programs on the card's processors".to_owned();
    let (sequential, parallel) = (Cycles::ZERO, None);
    let form = FormChoice { chosen: Form::Sequential, sequential, parallel, reason };
    let (chains, other_cards) = (Vec::new(), Vec::new());
    let explanation = Explanation { form, chains, programs: why, other_cards };
    Ok(Plan { mapping, loads: Vec::new(), reservation, explanation })
}

/// Bandwidth that has to be served so that this much may be promised.
fn with_room(bandwidth: Bandwidth) -> Bandwidth {
    let all = u128::from(bandwidth.get()) * 100;
    Bandwidth::from_bps(u64::try_from(all.div_ceil(PROMISED_PERCENT.into())).unwrap_or(u64::MAX))
}

fn whole(resource: Resource, (required, available): (u64, u64), detail: String) -> Infeasible {
    Infeasible {
        shortages: vec![Shortage { resource, required, available, nodes: Vec::new(), detail }],
    }
}

/// Ingress, egress and the row of the DAG table.
fn check_card(
    ledger: &Ledger,
    request: &PlanRequest<'_>,
    reservation: &Reservation,
) -> Result<(), Infeasible> {
    let held = ledger.held(request.name).cloned().unwrap_or_default();
    let ingress = ledger.ingress_residual() + held.ingress();
    let egress = ledger.egress_residual() + held.egress();
    let rows = u64::from(ledger.rows_residual().dags) + u64::from(held.rows().dags);
    let needed = [
        (Resource::IngressBandwidth, reservation.ingress().get(), ingress.get()),
        (Resource::EgressBandwidth, reservation.egress().get(), egress.get()),
        (Resource::TableRows, reservation.rows().dags.into(), rows),
    ];
    match needed.into_iter().find(|(_, needed, left)| needed > left) {
        Some((resource, needed, left)) => {
            Err(whole(resource, (needed, left), "left on the card for promises".into()))
        }
        None => Ok(()),
    }
}

fn program(node: &NodePlacement, choice: &Choice) -> NtProgram {
    let taken = &choice.taken;
    let (processor, setting) = taken.setting.expect("no regions were offered");
    NtProgram {
        node: node.node.clone(),
        nt: node.nt.clone(),
        processor,
        threads: setting.threads,
        network: setting.network,
        working: setting.working,
        working_set: taken.working_set,
        serves: taken.bandwidth,
        latency: taken.latency,
    }
}

fn explain(node: &NodePlacement, choice: &Choice) -> ProgramExplanation {
    let guidelines = |list: &[Guideline]| list.iter().map(Guideline::to_string).collect::<Vec<_>>();
    ProgramExplanation {
        node: node.node.clone(),
        nt: node.nt.clone(),
        chosen: format!("{}; {}", choice.taken, choice.decided_by()),
        guidelines: guidelines(&choice.taken.follows),
        against: guidelines(&choice.taken.against),
        rejected: choice.others.iter().take(REJECTED_MAX).map(ToString::to_string).collect(),
    }
}

/// Shortage of an NT: on a card that nobody uses it would have a place, or nowhere.
fn shortage(model: &NicModel, node: &NodePlacement, free: &Free) -> Option<Shortage> {
    let NodePlacement { nt, demand, choice, .. } = node;
    let Err(none) = choice else { return None };
    let short = |resource, required: u64, available: u64, detail: String| {
        let nodes = vec![node.node.clone()];
        Some(Shortage { resource, required, available, nodes, detail })
    };
    let offers = Offer::of_model(model, nt);
    let Ok(Choice { taken, .. }) = choose(demand, &offers, &Free::all(model)) else {
        let best = none.options.iter().map(served).max().unwrap_or_default();
        return short(Resource::NtBandwidth, demand.bandwidth.get(), best.get(), none.to_string());
    };
    let (kind, setting) = taken.setting?;
    let place = format!("for {nt} as {}", taken.place());
    let threads = free.threads.get(&kind).copied().unwrap_or_default();
    if threads < setting.threads {
        return short(Resource::Threads, setting.threads.into(), threads.into(), place);
    }
    let memory = free.memory.get(&setting.working).copied().unwrap_or_default();
    if memory < taken.working_set {
        return short(Resource::ProgramMemory, taken.working_set.get(), memory.get(), place);
    }
    let path = model.processor(kind)?.path(setting.network)?;
    let received = free.received.get(&(kind, setting.network)).copied().unwrap_or_default();
    let left = path.receive.unwrap_or(model.line).saturating_sub(received);
    if left < taken.receives {
        return short(Resource::ReceiveBandwidth, taken.receives.get(), left.get(), place);
    }
    // What the DAG's other NTs take counts, too: together they do not fit.
    short(
        Resource::Threads,
        setting.threads.into(),
        threads.into(),
        format!("{place}, beside its other NTs"),
    )
}

/// Bandwidth that an option is known to serve.
fn served(option: &PlacementOption) -> Bandwidth {
    let is_unknown = |objection: &Objection| matches!(objection, Objection::Unmeasured(_));
    if option.objections.iter().any(is_unknown) { Bandwidth::ZERO } else { option.bandwidth }
}
