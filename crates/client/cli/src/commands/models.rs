//! `snicctl card models`: card models, and what a DAG would get on each, without a server.
//!
//! A model with a card profile is planned by the planner, on an empty card with the catalogue's bitstreams;
//! one with processors by what was measured on them. What nobody knows is shown as unknown.

use serde::Serialize;
use snic_api::convert;
use snic_bitstream::catalogue::{Catalogue, with_profiles};
use snic_client::Failure;
use snic_client::output::Style;
use snic_client::output::table::{properties, section, table};
use snic_domain::limits::CHAIN_SLOTS_MAX;
use snic_domain::{
    Area, Bandwidth, Bitstream, BitstreamId, CardId, CardProfile, Cycles, Dag, DagId, DagName,
    Digest, Mapping, NtTypeId, RegionImages, RegionKind, TenantId,
};
use snic_planner::{Ledger, PlanCatalogue, PlanRequest, plan};
use snic_processors::{
    Fit, Free, NicModel, NodePlacement, Processor, RegionOffer, fit, place, with_folder,
};

use super::{CliSession, dag};
use crate::args::ModelSources;

const UNKNOWN: &str = "unknown";

/// A model: what is known of it, its regions, or both.
struct ModelFacts<'a> {
    nic: Option<&'a NicModel>,
    profile: Option<&'a CardProfile>,
}

/// One model, for tables and scripts. `None` is unknown.
#[derive(Serialize)]
struct ModelRow {
    model: String,
    vendor: Option<String>,
    released: Option<u16>,
    architecture: String,
    line_bps: u64,
    processors: Option<String>,
    #[serde(skip)]
    threads: Option<String>,
    luts: Option<u64>,
    regions: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dag: Option<DagRow>,
}

/// Result of a DAG on a model.
#[derive(Serialize)]
struct DagRow {
    fits: &'static str,
    /// At most, with what it takes.
    bandwidth_bps: Option<u64>,
    latency_nanos: Option<u64>,
    /// Parts that it takes, or why it does not fit.
    takes: String,
    /// One line for each NT and each option.
    details: Vec<String>,
}

pub(super) fn run(session: &mut CliSession, sources: &ModelSources) -> Result<(), Failure> {
    let wrong = |error: &dyn std::error::Error| Failure::usage(error.to_string(), "");
    let models = with_folder(sources.models.as_deref()).map_err(|error| wrong(&error))?;
    let catalogue = with_profiles(sources.profiles.as_deref()).map_err(|error| wrong(&error))?;
    let dag = sources.file.as_deref().map(|path| {
        let file = dag::read(path)?;
        let spec = convert::dag::spec(&file.dag).map_err(|error| wrong(&error))?;
        Dag::new(spec).map_err(|error| wrong(&error))
    });
    let dag = dag.transpose()?;
    let beside = sources.beside.as_deref().map(|name| {
        let card = catalogue.cards.iter().find(|card| card.model.as_str() == name);
        card.ok_or_else(|| {
            let known: Vec<&str> = catalogue.cards.iter().map(|card| card.model.as_str()).collect();
            let hint = format!("known card profiles: {}", known.join(", "));
            Failure::usage(format!("no card profile {name}"), &hint)
        })
    });
    let beside = beside.transpose()?;
    let mut rows: Vec<ModelRow> = all(&models, &catalogue)
        .iter()
        .map(|known| row(known, &catalogue, dag.as_ref().map(|dag| (dag, beside))))
        .collect::<Result<_, _>>()?;
    let style = session.output.style();
    let text = match &sources.model {
        Some(name) => {
            let names: Vec<String> = rows.iter().map(|row| row.model.clone()).collect();
            rows.retain(|row| row.model == *name);
            let Some(row) = rows.first() else {
                let hint = format!("known models: {}", names.join(", "));
                return Err(Failure::usage(format!("no card model {name}"), &hint));
            };
            in_full(row, style)
        }
        None if dag.is_some() => with_dag(&rows, style),
        None => overview(&rows, style),
    };
    session.output.plain(&rows, &text)
}

/// Those with card profiles first, then the others.
fn all<'a>(models: &'a [NicModel], catalogue: &'a Catalogue) -> Vec<ModelFacts<'a>> {
    let of_card = |profile: &'a CardProfile| {
        let nic = models.iter().find(|nic| nic.model == profile.model);
        ModelFacts { nic, profile: Some(profile) }
    };
    let has_profile = |nic: &&NicModel| catalogue.card(&nic.model).is_some();
    let others = models.iter().filter(|nic| !has_profile(nic));
    let others = others.map(|nic| ModelFacts { nic: Some(nic), profile: None });
    catalogue.cards.iter().map(of_card).chain(others).collect()
}

fn row(
    known: &ModelFacts<'_>,
    catalogue: &Catalogue,
    dag: Option<(&Dag, Option<&CardProfile>)>,
) -> Result<ModelRow, Failure> {
    let ModelFacts { nic, profile } = *known;
    let dag = dag.map(|(dag, beside)| match (profile, nic) {
        (Some(profile), _) => in_regions(profile, catalogue, dag),
        (None, Some(nic)) if !nic.processors.is_empty() => {
            Ok(on_processors(nic, dag, beside.map(|card| (card, catalogue))))
        }
        (None, _) => Ok(DagRow::unknown("no card profile: its regions are unknown".into())),
    });
    let name = profile.map(|one| &one.model).or(nic.map(|one| &one.model));
    let line = nic.map(|one| one.line).or(profile.map(|one| one.ingress)).unwrap_or_default();
    let has_cores = nic.filter(|one| !one.processors.is_empty());
    Ok(ModelRow {
        model: name.map(ToString::to_string).unwrap_or_default(),
        vendor: nic.map(|one| one.vendor.clone()),
        released: nic.and_then(|one| one.released),
        architecture: nic.map_or("FPGA", |one| one.architecture.name()).into(),
        line_bps: line.get(),
        processors: has_cores.map(|one| processors(&one.processors)),
        threads: has_cores.map(|one| threads(&one.processors)),
        luts: nic.and_then(|one| one.luts).map(|luts| u64::from(luts.get())),
        regions: profile.map(|one| one.regions.len()),
        dag: dag.transpose()?,
    })
}

/// Threads of each, short enough for a column.
fn threads(processors: &[Processor]) -> String {
    let one = |processor: &Processor| {
        format!("{} {}", or_unknown(processor.usable()), processor.kind.name())
    };
    processors.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn processors(processors: &[Processor]) -> String {
    let one = |processor: &Processor| {
        let cores = processor.cores.map_or(UNKNOWN.into(), |cores| cores.to_string());
        let threads =
            processor.usable().filter(|usable| Some(*usable) != processor.cores.map(u32::from));
        let threads = threads.map(|usable| format!(" ({usable} threads)")).unwrap_or_default();
        format!("{}: {cores} cores{threads}", processor.kind.name())
    };
    processors.iter().map(one).collect::<Vec<_>>().join(", ")
}

impl DagRow {
    fn unknown(takes: String) -> Self {
        let (bandwidth_bps, latency_nanos, details) = (None, None, Vec::new());
        Self { fits: Fit::Unknown.name(), bandwidth_bps, latency_nanos, takes, details }
    }
}

/// Placement of the DAG by the planner on an empty card.
fn in_regions(profile: &CardProfile, catalogue: &Catalogue, dag: &Dag) -> Result<DagRow, Failure> {
    let mut missing: Vec<&str> = Vec::new();
    for node in dag.nodes() {
        if catalogue.nt_type(&node.nt).is_none() && !missing.contains(&node.nt.as_str()) {
            missing.push(node.nt.as_str());
        }
    }
    if !missing.is_empty() {
        return Ok(DagRow::unknown(format!("not in the catalogue: {}", missing.join(", "))));
    }
    let invalid = |error: snic_domain::InvalidId| Failure::usage(error.to_string(), "");
    let mut planned = PlanCatalogue::new();
    for nt in &catalogue.nt_types {
        planned.insert_nt(nt.clone());
    }
    for chain in catalogue.chains_for(&profile.model) {
        let id = chain.bitstream_id(&profile.model).map_err(invalid)?;
        let of_kind = profile.regions.iter().filter(|region| region.kind == chain.region_kind);
        planned.insert_bitstream(Bitstream {
            images: RegionImages::for_all(
                Digest::of(id.as_str().as_bytes()),
                of_kind.map(|region| region.bitstream_max).max().unwrap_or_default(),
            ),
            id,
            nts: chain.nts.clone(),
            region_kind: chain.region_kind,
            card_model: profile.model.clone(),
            shareable: true,
            signed_by: None,
            modules: Vec::new(),
            notes: Default::default(),
            identity: None,
        });
    }
    let ledger = Ledger::new(CardId::new("card0").map_err(invalid)?, profile.clone());
    let tenant = TenantId::new("tenant").map_err(invalid)?;
    let name = DagName { tenant, dag: DagId::new("dag").map_err(invalid)? };
    let request = PlanRequest { name: &name, dag, previous: None };
    let mut built = String::new();
    let plan = plan(&ledger, &planned, &request).or_else(|_| {
        // Nobody built a bitstream: what it would be with one.
        let chains = to_build(profile, catalogue, dag);
        let names = chains.iter().map(|chain| chain.nts.iter().map(NtTypeId::as_str));
        let names: Vec<String> = names.map(|nts| nts.collect::<Vec<_>>().join(" -> ")).collect();
        built = format!(", once a bitstream is built of {}", names.join(" and of "));
        for chain in chains {
            planned.insert_bitstream(chain);
        }
        plan(&ledger, &planned, &request)
    });
    let plan = match plan {
        Ok(plan) => plan,
        Err(infeasible) => {
            let unknown = DagRow::unknown(infeasible.to_string());
            return Ok(DagRow { fits: Fit::No.name(), ..unknown });
        }
    };
    let takes = format!("{} of {} regions{built}", plan.loads.len(), profile.regions.len());
    let loads = plan.loads.iter().map(|load| format!("region {}: {}", load.region, load.bitstream));
    Ok(DagRow {
        fits: Fit::Yes.name(),
        bandwidth_bps: Some(served(&plan.mapping, profile, catalogue, dag).get()),
        latency_nanos: Some(latency(&plan.mapping, profile, catalogue, dag)),
        takes,
        details: loads.collect(),
    })
}

/// Bitstreams that would hold the DAG's NTs in the order that packets pass, each as many as fit a region.
fn to_build(profile: &CardProfile, catalogue: &Catalogue, dag: &Dag) -> Vec<Bitstream> {
    let kind = RegionKind::KnownNt;
    let region = profile.regions.iter().filter(|region| region.kind == kind);
    let Some(region) = region.max_by_key(|region| region.area.lut) else { return Vec::new() };
    let mut chains: Vec<(Vec<NtTypeId>, Area)> = Vec::new();
    for &at in dag.topological_order() {
        let Some(nt) = dag.nodes().get(at).and_then(|node| catalogue.nt_type(&node.nt)) else {
            continue;
        };
        match chains.last_mut() {
            Some((nts, area))
                if nts.len() < CHAIN_SLOTS_MAX && region.area.fits(*area + nt.area) =>
            {
                nts.push(nt.id.clone());
                *area = *area + nt.area;
            }
            _ => chains.push((vec![nt.id.clone()], nt.area)),
        }
    }
    let chains = chains.into_iter().enumerate().filter_map(|(at, (nts, _))| {
        let id = BitstreamId::new(&format!("to-build-{at}")).ok()?;
        Some(Bitstream {
            images: RegionImages::for_all(Digest::of(id.as_str().as_bytes()), region.bitstream_max),
            id,
            nts,
            region_kind: kind,
            card_model: profile.model.clone(),
            shareable: true,
            signed_by: None,
            modules: Vec::new(),
            notes: Default::default(),
            identity: None,
        })
    });
    chains.collect()
}

/// Bandwidth that the NTs of a placement and the card's ports serve at most.
fn served(mapping: &Mapping, profile: &CardProfile, catalogue: &Catalogue, dag: &Dag) -> Bandwidth {
    let mut most = profile.ingress.min(profile.egress);
    for chain in mapping.chains() {
        for node in &chain.nodes {
            let nt = dag.nodes().iter().find(|one| one.id == *node);
            let nt = nt.and_then(|one| catalogue.nt_type(&one.nt));
            let one = nt.map_or(Bandwidth::ZERO, |nt| nt.bandwidth_max);
            most = most.min(chain.instances.iter().map(|_| one).sum());
        }
    }
    most
}

/// Time of a packet on an idle card: the core with one pass of the scheduler, another pass for each
/// further stage, and in each stage the NTs of its longest branch (SuperNIC, 5.1 and 5.3).
fn latency(mapping: &Mapping, profile: &CardProfile, catalogue: &Catalogue, dag: &Dag) -> u64 {
    let cycles = |node: &snic_domain::NodeId| {
        let node = dag.nodes().iter().find(|one| one.id == *node);
        node.and_then(|node| catalogue.nt_type(&node.nt)).map_or(Cycles::ZERO, |nt| nt.latency)
    };
    let nts = mapping.stages.iter().map(|stage| {
        let branch = |chain: &snic_domain::VirtualChain| chain.nodes.iter().map(cycles).sum();
        stage.branches.iter().map(branch).max().unwrap_or(Cycles::ZERO)
    });
    let passes = mapping.stages.iter().skip(1).map(|_| profile.scheduler_pass);
    let all = profile.core + nts.sum::<Cycles>() + passes.sum::<Cycles>();
    u64::try_from(all.duration(profile.clock_hz).as_nanos()).unwrap_or(u64::MAX)
}

/// Regions of a card that an NT takes for the DAG's bandwidth: regions of its own, with one pass of the scheduler.
fn regions_of(
    profile: &CardProfile,
    catalogue: &Catalogue,
    (nt, wanted): (&NtTypeId, Bandwidth),
) -> Option<RegionOffer> {
    let nt = catalogue.nt_type(nt)?;
    let room = |region: &&snic_domain::RegionProfile| region.area.fits(nt.area);
    profile.regions.iter().find(room)?;
    let count = wanted.get().div_ceil(nt.bandwidth_max.get().max(1));
    let served = Bandwidth::from_bps(nt.bandwidth_max.get().saturating_mul(count));
    Some(RegionOffer {
        bandwidth: served.min(profile.ingress).min(profile.egress),
        latency: (profile.core + nt.latency).duration(profile.clock_hz),
        regions: u32::try_from(count).unwrap_or(u32::MAX),
    })
}

/// Placement of the DAG on an idle card by what was measured on the processors, with another card's regions beside it.
fn on_processors(nic: &NicModel, dag: &Dag, beside: Option<(&CardProfile, &Catalogue)>) -> DagRow {
    let mut free = Free::all(nic);
    let count = beside.map_or(0, |(card, _)| card.regions.len());
    free.regions = u32::try_from(count).unwrap_or(u32::MAX);
    let wanted = dag.bandwidth();
    let of_nt = |nt: &NtTypeId| {
        beside.and_then(|(card, catalogue)| regions_of(card, catalogue, (nt, wanted)))
    };
    let nodes = place(nic, of_nt, (dag, wanted), free);
    let taken = || nodes.iter().filter_map(|node| node.choice.as_ref().ok()).map(|one| &one.taken);
    let fit = fit(&nodes);
    let takes = match fit {
        Fit::Yes => taken().map(|option| option.place()).collect::<Vec<_>>().join("; "),
        Fit::Unknown => {
            let of_fit = nodes.iter().filter(|node| node.fit() == fit);
            let mut names: Vec<&str> = of_fit.map(|node| node.nt.as_str()).collect();
            names.dedup();
            format!("not measured: {}", names.join(", "))
        }
        Fit::No => {
            let of_fit = nodes.iter().filter(|node| node.fit() == fit);
            let why = of_fit.filter_map(|node| node.choice.as_ref().err()).map(ToString::to_string);
            why.collect::<Vec<_>>().join("; ")
        }
    };
    let served = taken().map(|option| option.bandwidth).min().filter(|_| fit == Fit::Yes);
    // Packets go from NT to NT: the sum is the longest that a packet takes.
    let latency: Option<std::time::Duration> = taken().map(|option| option.latency).sum();
    let latency = latency.filter(|_| fit == Fit::Yes);
    DagRow {
        fits: fit.name(),
        bandwidth_bps: served.map(Bandwidth::get),
        latency_nanos: latency.map(|all| u64::try_from(all.as_nanos()).unwrap_or(u64::MAX)),
        takes,
        details: nodes.iter().flat_map(options).collect(),
    }
}

/// Every option of one NT, the one that is taken first.
fn options(node: &NodePlacement) -> Vec<String> {
    let (taken, others) = match &node.choice {
        Ok(choice) => (Some(&choice.taken), &choice.others),
        Err(none) => (None, &none.options),
    };
    let first = match taken {
        Some(taken) => format!("{}: {taken}", node.nt),
        None if others.is_empty() => format!("{}: nobody measured one here", node.nt),
        None => format!("{}: no option serves it", node.nt),
    };
    let others = others.iter().map(|option| format!("  not {option}"));
    std::iter::once(first).chain(others).collect()
}

fn or_unknown<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| UNKNOWN.into(), |value| value.to_string())
}

fn bandwidth(bps: Option<u64>) -> String {
    or_unknown(bps.map(Bandwidth::from_bps))
}

fn nanos(nanos: Option<u64>) -> String {
    or_unknown(nanos.map(|nanos| format!("{:?}", std::time::Duration::from_nanos(nanos))))
}

fn overview(rows: &[ModelRow], style: Style) -> String {
    let cells = |row: &ModelRow| {
        let compute = match (&row.threads, row.regions) {
            (Some(threads), _) => threads.clone(),
            (None, regions) => format!("{} regions", or_unknown(regions)),
        };
        vec![
            row.model.clone(),
            row.vendor.clone().unwrap_or_default(),
            or_unknown(row.released),
            row.architecture.clone(),
            Bandwidth::from_bps(row.line_bps).to_string(),
            compute,
        ]
    };
    let heading = ["MODEL", "VENDOR", "YEAR", "KIND", "PORTS", "THREADS, REGIONS"];
    table(style, &heading, rows.iter().map(cells).collect())
}

fn with_dag(rows: &[ModelRow], style: Style) -> String {
    let cells = |row: &ModelRow| {
        let dag = row.dag.as_ref()?;
        let (most, latency) = (bandwidth(dag.bandwidth_bps), nanos(dag.latency_nanos));
        Some(vec![row.model.clone(), dag.fits.into(), most, latency, dag.takes.clone()])
    };
    let heading = ["MODEL", "FITS", "UP TO", "LATENCY", "TAKES"];
    table(style, &heading, rows.iter().filter_map(cells).collect())
}

fn in_full(row: &ModelRow, style: Style) -> String {
    let mut rows = vec![
        ("model", row.model.clone()),
        ("vendor", or_unknown(row.vendor.clone())),
        ("released", or_unknown(row.released)),
        ("architecture", row.architecture.clone()),
        ("ports", Bandwidth::from_bps(row.line_bps).to_string()),
        ("processors", row.processors.clone().unwrap_or_else(|| "none known".into())),
        ("LUTs", or_unknown(row.luts)),
        ("regions", or_unknown(row.regions)),
    ];
    let Some(dag) = &row.dag else { return properties(style, &rows) };
    rows.push(("DAG fits", dag.fits.into()));
    rows.push(("takes", dag.takes.clone()));
    rows.push(("up to", bandwidth(dag.bandwidth_bps)));
    rows.push(("latency", nanos(dag.latency_nanos)));
    let details: String = dag.details.iter().map(|line| format!("{line}\n")).collect();
    properties(style, &rows) + &section("OPTIONS", &details)
}
