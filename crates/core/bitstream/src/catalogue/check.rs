//! Holds what the files say against the limits of the system and against each other.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::num::{NonZeroU32, NonZeroU64};

use snic_domain::limits::{
    BITSTREAM_BYTES_MAX, CHAIN_SLOTS_MAX, DESCRIPTION_BYTES_MAX, LINKS_MAX,
    NT_MEMORY_BYTES_PER_PACKET_MAX, NT_STATE_MAX, REGIONS_MAX, SAVE_UNIT, TENANT_WEIGHT_MAX,
};
use snic_domain::{
    Area, Bandwidth, ByteSize, CardModel, CardProfile, Cycles, Dag, DagName, DagSpec, Edge,
    FormPreference, InvalidDag, LinkProfile, MemoryTraffic, Node, NtType, NtTypeId, PacketSizes,
    Quota, RegionKind, RegionPass, RegionProfile, SaveArea, Tenant,
};
use toml::Spanned;

use super::raw::{
    RawCard, RawChain, RawChains, RawDag, RawDags, RawEdge, RawLinks, RawNode, RawNtType,
    RawNtTypes, RawRegions, RawTenant,
};
use super::table::{Checked, TableContext};
use super::{CatalogueChain, CatalogueProblem, File, InvalidCatalogue, SampleDag, floor_plan};
use crate::{FloorPlan, HEADER_TEXT_BYTES_MAX};

/// Most of a save area: offsets in it have 32 bits.
const SAVE_AREA_MAX: u64 = 1 << 31;
/// Slowest NT that is taken: a quarter of a millisecond at 250 MHz. Beyond it, a figure is more
/// likely a mistake in its unit.
const LATENCY_CYCLES_MAX: u64 = 65_535;

pub(super) fn cards(files: &[File<'_>]) -> Checked<(Vec<CardProfile>, Vec<FloorPlan>)> {
    let mut seen = BTreeSet::new();
    let (mut cards, mut plans) = (Vec::new(), Vec::new());
    for file in files {
        let at = TableContext { file, prefix: "" };
        let raw: RawCard = file.read()?;
        at.unique("model", &mut seen, &raw.model)?;
        plans.push(floor_plan::floor_plan(&at, &raw)?);
        cards.push(card(&at, raw)?);
    }
    Ok((cards, plans))
}

fn card(at: &TableContext<'_>, raw: RawCard) -> Checked<CardProfile> {
    let part = raw.part.get_ref();
    let is_text = (1..=HEADER_TEXT_BYTES_MAX).contains(&part.len())
        && part.bytes().all(|b| b.is_ascii_graphic());
    at.ensure("part", &raw.part, is_text, "give the part as in a .bit file's header")?;
    at.positive("idcode", &raw.idcode)?;
    at.positive("clock_hz", &raw.clock_hz)?;
    let width = *raw.width_bits.get_ref();
    at.ensure(
        "width_bits",
        &raw.width_bits,
        width > 0 && width.is_multiple_of(8),
        "give whole bytes",
    )?;
    at.positive("packet_store_bytes", &raw.packet_store_bytes)?;
    at.positive("configuration_bytes_per_second", &raw.configuration_bytes_per_second)?;
    at.positive("scheduler_pass_cycles", &raw.scheduler_pass_cycles)?;
    at.positive("credits_initial", &raw.credits_initial)?;
    let pass = *raw.scheduler_pass_cycles.get_ref();
    let core = *raw.core_cycles.get_ref();
    let allowed = format_args!("the core contains a pass, {pass} cycles");
    at.ensure("core_cycles", &raw.core_cycles, core >= pass, allowed)?;
    Ok(CardProfile {
        model: raw.model.into_inner(),
        part: part.clone(),
        idcode: *raw.idcode.get_ref(),
        clock_hz: *raw.clock_hz.get_ref(),
        width_bits: width,
        ingress: at.bandwidth("ingress_bps", &raw.ingress_bps)?,
        egress: at.bandwidth("egress_bps", &raw.egress_bps)?,
        memory: at.memory("memory_bytes", &raw.memory_bytes)?,
        memory_bytes_per_second: limit(
            at,
            "memory_bytes_per_second",
            &raw.memory_bytes_per_second,
            NonZeroU64::new,
        )?,
        packet_store: ByteSize::from_bytes(*raw.packet_store_bytes.get_ref()),
        packet_store_beats_per_cycle: limit(
            at,
            "packet_store_beats_per_cycle",
            &raw.packet_store_beats_per_cycle,
            NonZeroU32::new,
        )?,
        configuration_bytes_per_second: *raw.configuration_bytes_per_second.get_ref(),
        scheduler_pass: Cycles::new(pass),
        scheduler_lookups_per_cycle: limit(
            at,
            "scheduler_lookups_per_cycle",
            &raw.scheduler_lookups_per_cycle,
            NonZeroU32::new,
        )?,
        core: Cycles::new(core),
        credits_initial: *raw.credits_initial.get_ref(),
        region_pass: Some(RegionPass::SUPERNIC),
        save_area: save_area(at, &raw.save_area_bytes, &raw.memory_bytes_per_second)?,
        regions: regions(at.file, &raw.regions)?,
        processors: Vec::new(),
        links: links(at, &raw.links)?,
    })
}

/// The links to other cards, where the file has some.
fn links(at: &TableContext<'_>, raw: &Option<RawLinks>) -> Checked<Option<LinkProfile>> {
    let Some(RawLinks { count, capacity_bps, latency_nanos }) = raw else { return Ok(None) };
    let is_some = (1..=LINKS_MAX).contains(&usize::from(*count.get_ref()));
    let allowed = format_args!("1 to {LINKS_MAX} are; leave the links out where there are none");
    at.ensure("links.count", count, is_some, allowed)?;
    at.positive("links.latency_nanos", latency_nanos)?;
    Ok(Some(LinkProfile {
        count: *count.get_ref(),
        capacity: at.bandwidth("links.capacity_bps", capacity_bps)?,
        latency_nanos: *latency_nanos.get_ref(),
    }))
}

/// A limit that a file need not state; zero is none either way.
fn limit<T: Copy + Display, N>(
    at: &TableContext<'_>,
    key: &str,
    given: &Option<Spanned<T>>,
    limit: impl Fn(T) -> Option<N>,
) -> Checked<Option<N>> {
    let Some(given) = given else { return Ok(None) };
    let limit = limit(*given.get_ref());
    at.ensure(key, given, limit.is_some(), "leave it out where there is no limit; at least 1 is")?;
    Ok(limit)
}

/// Both of it, or neither.
fn save_area(
    at: &TableContext<'_>,
    bytes: &Option<Spanned<u64>>,
    rate: &Option<Spanned<u64>>,
) -> Checked<SaveArea> {
    let Some(size) = bytes.as_ref().filter(|size| *size.get_ref() > 0) else {
        return Ok(SaveArea::default());
    };
    let unit = SAVE_UNIT.get();
    let is_whole = size.get_ref().is_multiple_of(unit) && *size.get_ref() <= SAVE_AREA_MAX;
    let allowed = format_args!("whole units of {unit} bytes, at most {SAVE_AREA_MAX}, are");
    at.ensure("save_area_bytes", size, is_whole, allowed)?;
    let given = rate.as_ref().map_or(0, |rate| *rate.get_ref());
    let allowed = "a save area needs memory_bytes_per_second";
    at.ensure("memory_bytes_per_second", rate.as_ref().unwrap_or(size), given > 0, allowed)?;
    Ok(SaveArea { bytes: ByteSize::from_bytes(*size.get_ref()), bytes_per_second: given })
}

fn regions(file: &File<'_>, raw: &Spanned<Vec<RawRegions>>) -> Checked<Vec<RegionProfile>> {
    let mut regions = Vec::new();
    for (i, group) in raw.get_ref().iter().enumerate() {
        let at = TableContext { file, prefix: &format!("regions[{i}].") };
        let left = REGIONS_MAX - regions.len();
        let count = usize::from(*group.count.get_ref());
        let allowed = format_args!(
            "a card has at most {REGIONS_MAX} regions, as many as ports of its crossbar; {left} are left"
        );
        at.ensure("count", &group.count, (1..=left).contains(&count), allowed)?;
        let area = *group.area.get_ref();
        at.ensure("area", &group.area, area.lut > 0, "give LUTs")?;
        let max = ByteSize::from_bytes(*group.bitstream_max_bytes.get_ref());
        let is_allowed = max > ByteSize::ZERO && max <= BITSTREAM_BYTES_MAX;
        let allowed = format_args!("1 to {} bytes are", BITSTREAM_BYTES_MAX.get());
        at.ensure("bitstream_max_bytes", &group.bitstream_max_bytes, is_allowed, allowed)?;
        let region = RegionProfile { kind: group.kind, area, bitstream_max: max };
        regions.extend(std::iter::repeat_n(region, count));
    }
    if regions.is_empty() {
        let problem = CatalogueProblem::Range {
            value: "[]".to_owned(),
            allowed: "a card has regions".to_owned(),
        };
        return Err(file.error(raw.span(), "regions".to_owned(), problem));
    }
    Ok(regions)
}

pub(super) fn nt_types(file: File<'_>, cards: &[CardProfile]) -> Checked<Vec<NtType>> {
    let raw: RawNtTypes = file.read()?;
    let mut seen = BTreeSet::new();
    let mut nts: Vec<NtType> = Vec::new();
    for (i, raw) in raw.nt_types.into_iter().enumerate() {
        let at = TableContext { file: &file, prefix: &format!("nt-types[{i}].") };
        at.unique("id", &mut seen, &raw.id)?;
        let code = raw.id.get_ref().code();
        if let Some(other) = nts.iter().find(|other| other.id.code() == code) {
            let (nt, other) = (raw.id.get_ref().clone(), other.id.clone());
            return Err(at.error(
                "id",
                &raw.id,
                CatalogueProblem::CodeCollision { nt, other, code },
            ));
        }
        let needed = *raw.area.get_ref();
        let mut regions = cards.iter().flat_map(|card| &card.regions);
        if !regions.any(|region| region.area.fits(needed)) {
            return Err(at.error("area", &raw.area, CatalogueProblem::NoRoom { needed }));
        }
        nts.push(nt_type(&at, raw)?);
    }
    Ok(nts)
}

fn nt_type(at: &TableContext<'_>, raw: RawNtType) -> Checked<NtType> {
    let id = raw.id.get_ref().clone();
    if id.owner().is_some() {
        return Err(at.error("id", &raw.id, CatalogueProblem::Owned { id: id.to_string() }));
    }
    let latency = *raw.latency_cycles.get_ref();
    let allowed = format_args!("at most {LATENCY_CYCLES_MAX} cycles are");
    at.ensure("latency_cycles", &raw.latency_cycles, latency <= LATENCY_CYCLES_MAX, allowed)?;
    at.ensure("area", &raw.area, raw.area.get_ref().lut > 0, "give LUTs")?;
    let description = raw.description.get_ref();
    let allowed = format_args!("at most {DESCRIPTION_BYTES_MAX} bytes are");
    let is_short = description.len() <= DESCRIPTION_BYTES_MAX;
    at.ensure("description", &raw.description, is_short, allowed)?;
    Ok(NtType {
        shareable: raw.shareable,
        bandwidth_max: at.bandwidth("bandwidth_max_bps", &raw.bandwidth_max_bps)?,
        packets_per_second_max: packets(at, &raw.packets_per_second_max)?,
        latency: Cycles::new(latency),
        area: *raw.area.get_ref(),
        memory: at.memory("memory_bytes", &raw.memory_bytes)?,
        memory_traffic: memory_traffic(at, &raw)?,
        state: state(at, &raw.state_bytes)?,
        traffic: raw.traffic,
        description: description.clone(),
        id,
        labels: Default::default(),
    })
}

fn packets(at: &TableContext<'_>, most: &Option<Spanned<u64>>) -> Checked<Option<NonZeroU32>> {
    let Some(most) = most else { return Ok(None) };
    let limit = u32::try_from(*most.get_ref()).ok().and_then(NonZeroU32::new);
    let allowed = format_args!("1 to {} packets/s are", u32::MAX);
    at.ensure("packets_per_second_max", most, limit.is_some(), allowed)?;
    Ok(limit)
}

fn memory_traffic(at: &TableContext<'_>, raw: &RawNtType) -> Checked<MemoryTraffic> {
    let most = |key: &str, given: &Option<Spanned<u64>>, most: u32| -> Checked<u32> {
        let Some(given) = given else { return Ok(0) };
        let bytes = u32::try_from(*given.get_ref()).ok().filter(|bytes| *bytes <= most);
        at.ensure(key, given, bytes.is_some(), format_args!("at most {most} bytes are"))?;
        Ok(bytes.unwrap_or_default())
    };
    let packet = &raw.memory_bytes_per_packet;
    let byte = &raw.memory_bytes_per_packet_byte;
    Ok(MemoryTraffic {
        bytes_per_packet: most("memory_bytes_per_packet", packet, NT_MEMORY_BYTES_PER_PACKET_MAX)?,
        bytes_per_packet_byte: most("memory_bytes_per_packet_byte", byte, u8::MAX.into())? as u8,
    })
}

fn state(at: &TableContext<'_>, bytes: &Option<Spanned<u64>>) -> Checked<ByteSize> {
    let Some(bytes) = bytes else { return Ok(ByteSize::ZERO) };
    let (given, most) = (*bytes.get_ref(), NT_STATE_MAX.get());
    at.ensure("state_bytes", bytes, given <= most, format_args!("at most {most} bytes are"))?;
    Ok(ByteSize::from_bytes(given))
}

pub(super) fn chains(
    file: File<'_>,
    cards: &[CardProfile],
    nts: &[NtType],
) -> Checked<Vec<CatalogueChain>> {
    let raw: RawChains = file.read()?;
    let (mut seen, mut bitstreams) = (BTreeSet::new(), BTreeSet::new());
    let mut chains = Vec::new();
    for (i, raw) in raw.chains.into_iter().enumerate() {
        let at = TableContext { file: &file, prefix: &format!("chains[{i}].") };
        at.unique("id", &mut seen, &raw.id)?;
        let area = chain_area(&at, &raw.nts, nts)?;
        for (i, model) in raw.card_models.get_ref().iter().enumerate() {
            check_fits(&at, &raw, area, find_card(&at, i, model, cards)?)?;
        }
        let place = raw.id.clone();
        let chain = chain(&at, raw)?;
        for model in &chain.card_models {
            // Derived names may meet though the chains' own do not: a-b for c, a for b-c.
            let id = chain.bitstream_id(model);
            let id = id.map_err(|error| at.error("id", &place, CatalogueProblem::Id(error)))?;
            if let Some(id) = bitstreams.replace(id) {
                return Err(at.error(
                    "id",
                    &place,
                    CatalogueProblem::Duplicate { id: id.to_string() },
                ));
            }
        }
        chains.push(chain);
    }
    Ok(chains)
}

fn chain(at: &TableContext<'_>, raw: RawChain) -> Checked<CatalogueChain> {
    let id = raw.id.get_ref();
    if id.owner().is_some() {
        return Err(at.error("id", &raw.id, CatalogueProblem::Owned { id: id.to_string() }));
    }
    if raw.card_models.get_ref().is_empty() {
        let problem = CatalogueProblem::Range {
            value: "[]".to_owned(),
            allowed: "name a card model".to_owned(),
        };
        return Err(at.error("card_models", &raw.card_models, problem));
    }
    Ok(CatalogueChain {
        id: id.clone(),
        nts: raw.nts.into_inner().into_iter().map(Spanned::into_inner).collect(),
        region_kind: raw.region_kind.into_inner(),
        card_models: raw.card_models.into_inner().into_iter().map(Spanned::into_inner).collect(),
    })
}

fn find_nt<'n>(
    at: &TableContext<'_>,
    key: &str,
    id: &Spanned<NtTypeId>,
    nts: &'n [NtType],
) -> Checked<&'n NtType> {
    nts.iter()
        .find(|nt| nt.id == *id.get_ref())
        .ok_or_else(|| at.error(key, id, CatalogueProblem::UnknownNt { nt: id.get_ref().clone() }))
}

fn find_card<'c>(
    at: &TableContext<'_>,
    index: usize,
    model: &Spanned<CardModel>,
    cards: &'c [CardProfile],
) -> Checked<&'c CardProfile> {
    cards.iter().find(|card| card.model == *model.get_ref()).ok_or_else(|| {
        let problem = CatalogueProblem::UnknownCard { model: model.get_ref().clone() };
        at.error(&format!("card_models[{index}]"), model, problem)
    })
}

fn chain_area(
    at: &TableContext<'_>,
    ids: &Spanned<Vec<Spanned<NtTypeId>>>,
    nts: &[NtType],
) -> Checked<Area> {
    let count = ids.get_ref().len();
    if !(1..=CHAIN_SLOTS_MAX).contains(&count) {
        let allowed = format!("a chain has 1 to {CHAIN_SLOTS_MAX} NTs");
        let value = format!("a list of {count}");
        return Err(at.error("nts", ids, CatalogueProblem::Range { value, allowed }));
    }
    let areas = ids.get_ref().iter().enumerate();
    areas.map(|(i, id)| Ok(find_nt(at, &format!("nts[{i}]"), id, nts)?.area)).sum()
}

/// Whether some region of a card has room for a chain.
pub(super) fn has_room(card: &CardProfile, kind: RegionKind, needed: Area) -> bool {
    let mut regions = card.regions.iter().filter(|region| region.kind == kind);
    regions.any(|region| region.area.fits(needed))
}

fn check_fits(
    at: &TableContext<'_>,
    raw: &RawChain,
    needed: Area,
    card: &CardProfile,
) -> Checked<()> {
    let kind: RegionKind = *raw.region_kind.get_ref();
    if has_room(card, kind, needed) {
        return Ok(());
    }
    Err(at.error(
        "nts",
        &raw.nts,
        CatalogueProblem::Area { needed, kind, model: card.model.clone() },
    ))
}

pub(super) fn dags(file: File<'_>, nts: &[NtType]) -> Checked<(Vec<Tenant>, Vec<SampleDag>)> {
    let raw: RawDags = file.read()?;
    let mut seen = BTreeSet::new();
    let mut tenants = Vec::new();
    for (i, raw) in raw.tenants.iter().enumerate() {
        let at = TableContext { file: &file, prefix: &format!("tenants[{i}].") };
        at.unique("id", &mut seen, &raw.id)?;
        tenants.push(tenant(&at, raw)?);
    }
    let mut dags: Vec<SampleDag> = Vec::new();
    for (i, raw) in raw.dags.into_iter().enumerate() {
        let at = TableContext { file: &file, prefix: &format!("dags[{i}].") };
        if !seen.contains(raw.tenant.get_ref()) {
            let problem = CatalogueProblem::UnknownTenant { tenant: raw.tenant.get_ref().clone() };
            return Err(at.error("tenant", &raw.tenant, problem));
        }
        let name = DagName { tenant: raw.tenant.get_ref().clone(), dag: raw.id.get_ref().clone() };
        if dags.iter().any(|dag| dag.name == name) {
            return Err(at.error(
                "id",
                &raw.id,
                CatalogueProblem::Duplicate { id: name.to_string() },
            ));
        }
        let spec = dag_spec(&at, &raw, nts)?;
        dags.push(SampleDag { name, spec, description: raw.description });
    }
    Ok((tenants, dags))
}

fn tenant(at: &TableContext<'_>, raw: &RawTenant) -> Checked<Tenant> {
    let weight = *raw.weight.get_ref();
    let allowed = format_args!("1 to {TENANT_WEIGHT_MAX} are");
    at.ensure("weight", &raw.weight, (1..=TENANT_WEIGHT_MAX).contains(&weight), allowed)?;
    Ok(Tenant {
        id: raw.id.get_ref().clone(),
        weight,
        quota: Quota::default(),
        notes: Default::default(),
        project: None,
    })
}

fn dag_spec(at: &TableContext<'_>, raw: &RawDag, nts: &[NtType]) -> Checked<DagSpec> {
    let bandwidth = Bandwidth::from_bps(*raw.bandwidth_bps.get_ref());
    let mut spec = match (&raw.chain, &raw.nodes, &raw.edges) {
        (Some(chain), None, None) => {
            for (i, id) in chain.get_ref().iter().enumerate() {
                find_nt(at, &format!("chain[{i}]"), id, nts)?;
            }
            let ids: Vec<_> = chain.get_ref().iter().map(|id| id.get_ref().clone()).collect();
            DagSpec::chain(&ids, bandwidth)
        }
        (None, Some(nodes), Some(edges)) => {
            for (i, node) in nodes.get_ref().iter().enumerate() {
                find_nt(at, &format!("nodes[{i}].nt"), &node.nt, nts)?;
            }
            graph(nodes.get_ref(), edges.get_ref(), bandwidth)
        }
        _ => return Err(at.error("id", &raw.id, CatalogueProblem::Shape)),
    };
    spec.form = raw.form;
    match Dag::new(spec.clone()) {
        Ok(_) => Ok(spec),
        Err(error) => Err(dag_error(at, raw, error)),
    }
}

fn graph(nodes: &[RawNode], edges: &[RawEdge], bandwidth: Bandwidth) -> DagSpec {
    let node = |n: &RawNode| Node::new(n.id.clone(), n.nt.get_ref().clone());
    let edge = |e: &RawEdge| Edge { from: e.from.clone(), to: e.to.clone() };
    DagSpec {
        nodes: nodes.iter().map(node).collect(),
        edges: edges.iter().map(edge).collect(),
        bandwidth,
        form: FormPreference::Auto,
        packet_sizes: PacketSizes::default(),
        trusted_tenants: Default::default(),
        card_affinity: Default::default(),
        latency_sensitive: false,
        refuse_idle_tasks: false,
        latency_bound: Default::default(),
        notes: Default::default(),
    }
}

/// Finds the key of the file that a DAG's field comes from.
fn dag_error(at: &TableContext<'_>, raw: &RawDag, error: InvalidDag) -> InvalidCatalogue {
    let field = error.field();
    let (key, span) = match (&raw.chain, &raw.nodes, &raw.edges) {
        _ if field.starts_with("bandwidth") => ("bandwidth_bps", raw.bandwidth_bps.span()),
        (Some(chain), ..) => ("chain", chain.span()),
        (_, _, Some(edges)) if field.starts_with("edges") => (field.as_str(), edges.span()),
        (_, Some(nodes), _) => (field.as_str(), nodes.span()),
        _ => ("id", raw.id.span()),
    };
    at.file.error(span, format!("{}{key}", at.prefix), CatalogueProblem::Dag(error))
}
