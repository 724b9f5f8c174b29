//! DAG files: the input of `snicctl dag create -f`.
//!
//! ```yaml
//! name: web                    # `web` or `tenants/acme/dags/web`
//! tenant: acme                 # optional: else from the name, --tenant or the context
//! bandwidth: 10Gbps            # bps, kbps, Mbps, Gbps, Tbps; a plain number is bit/s
//! form: auto                   # optional: auto, sequential or parallel
//! packet_sizes: imix           # optional: imix, one size (64), or a mix ({64: 7, 594: 4, 1518: 1})
//! trusted_tenants: [acme]      # optional: tenants whose own images the packets may pass
//! card_affinity: {with: [db], apart_from: [web-2], preferred: true}   # optional: DAGs on the same card, or not
//! placement: {zones: [z1], order: spread}   # optional, in a fleet: where it may go; apart from other DAGs by
//!                                           # hosts_without_dags: [web-2], racks_without_dags: [db]
//! latency_sensitive: true      # optional: low latency matters more than threads
//! refuse_idle_tasks: true      # optional: refused where a task would pass packets on unchanged
//! latency_bound: 50us          # optional: 99 of 100 packets are to pass in this time; ns, us, ms, s
//! labels: {app: web}           # optional: for filters of lists
//! description: shop front      # optional: for people
//! chain: nat -> [firewall, kv-cache] -> aes
//! ```
//!
//! The same in full, instead of `chain`:
//!
//! ```yaml
//! nodes: [{id: nat, type: nat}, {id: aes, type: aes}]
//! edges: [{from: nat, to: aes}]
//! ```
//!
//! Configurations of tasks stand with their nodes, or by node id beside a chain; a task without one passes
//! packets on as they are:
//!
//! ```yaml
//! chain: nat -> firewall
//! configuration:
//!   firewall: {rules: [{action: accept, protocol: tcp, destination_ports: "443"}]}
//! ```
//!
//! The output of `snicctl dag get -o yaml` can be edited and used for an update: the API's spellings
//! (`bandwidth_bps`, `nt_type`) are accepted, its `etag` guards the update, and fields that only the server
//! sets are ignored.
//!
//! Everything that can be checked without the server is checked here, because only here an error has a
//! line and a column.

mod affinity;
mod chain;
mod documents;
mod notes;
mod object;
mod packet_sizes;
mod paths;
mod placement;
mod places;
mod problem;
pub mod quantity;
mod yaml;

use std::collections::BTreeMap;
use std::ops::Range;

use snic_api::convert;
use snic_api::v1::dag::{self, Form};
use snic_domain::limits::DAG_LATENCY_BOUND_MAX;
use snic_domain::{
    Bandwidth, Dag, DagSpec, FormPreference, InvalidDag, LatencyBound, NodeId, NtConfiguration,
    PacketSizes, TenantId,
};

pub use self::documents::{Document, DocumentKind, documents};
use self::packet_sizes::packet_sizes;
use self::places::SourceMap;
pub use self::places::nearest;
pub use self::problem::{DagFileProblem, InvalidFile};
use self::yaml::{Value, YamlKey, YamlNode};

/// Largest file that is read. A DAG with 64 tasks needs a few kilobytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Fields of a DAG that only the server sets.
const OUTPUT_ONLY: [&str; 17] = [
    "uid",
    "state",
    "generation",
    "observed_generation",
    "conditions",
    "mapping",
    "rate_limit_bps",
    "states",
    "traffic",
    "unserved_bps",
    "shortfall_bps",
    "fleet_card",
    "placement_defaults",
    "fleet_managed",
    "create_time",
    "update_time",
    "warnings",
];
const KEYS: &str = "name, tenant, bandwidth, form, packet_sizes, trusted_tenants, card_affinity, placement, latency_sensitive, refuse_idle_tasks, latency_bound, labels, description, configuration, and chain or nodes and edges";

/// A DAG file, checked as far as possible without the server.
#[derive(Debug, Clone, PartialEq)]
pub struct DagFile {
    /// The name as written in the file: an id or a full name.
    pub name: Option<String>,
    /// The tenant as written in the file.
    pub tenant: Option<String>,
    /// The resource, without its name; other DAGs are named as in the file: see [`Self::resource_of`].
    pub dag: snic_api::v1::Dag,
    places: SourceMap,
}

/// Parses the text of the file called `file`.
///
/// # Errors
/// [`InvalidFile`] with the position of the first error.
pub fn parse(file: &str, text: &str) -> Result<DagFile, Box<InvalidFile>> {
    let root = yaml::parse(text).map_err(|problem| explain_scan_error(text, problem));
    root.and_then(|root| Reader { file, text }.file(&root))
        .map_err(|problem| Box::new(InvalidFile::new(file, text, problem)))
}

/// A chain that YAML takes for something else is the most likely reason for invalid YAML.
fn explain_scan_error(text: &str, problem: DagFileProblem) -> DagFileProblem {
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let key = line.trim_start().trim_start_matches('"').strip_prefix("chain");
        let value =
            key.and_then(|rest| rest.trim_start_matches('"').trim_start().strip_prefix(':'));
        if let Some(value) = value.map(str::trim) {
            let start = offset + line.rfind(value).unwrap_or(0);
            if value.starts_with('[') {
                return chain::parse(value).map_or_else(|found| found.shifted(start), |_| problem);
            }
            if value.contains(": ") && !value.starts_with(['"', '\'']) {
                return DagFileProblem::new(start..start + value.len(), "not valid YAML")
                    .label("a colon followed by a space starts a mapping")
                    .help(format!("put the chain in quotes: chain: \"{value}\""));
            }
        }
        offset += line.len();
    }
    problem
}

/// The graph of a file, with the positions of its parts.
#[derive(Default)]
struct Graph {
    spec_nodes: Vec<snic_domain::Node>,
    spec_edges: Vec<snic_domain::Edge>,
    node_spans: Vec<Range<usize>>,
    edge_spans: Vec<Range<usize>>,
    /// Configurations of nodes, by their place.
    configurations: BTreeMap<usize, prost_types::Struct>,
    configuration_spans: BTreeMap<usize, Range<usize>>,
    whole: Range<usize>,
}

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
}

impl Reader<'_> {
    fn file(&self, root: &YamlNode) -> Result<DagFile, DagFileProblem> {
        let Value::Map(entries) = &root.value else {
            let problem = DagFileProblem::new(root.span.clone(), "a DAG file must be a mapping");
            return Err(problem
                .label(format!("this is {}", root.kind()))
                .help(format!("use the keys {KEYS}")));
        };
        let fields = Fields::new(entries)?;
        let (bandwidth, bandwidth_span) = match fields.bandwidth {
            Some(node) => (rate(node)?, node.span.clone()),
            None => return Err(missing(root, "bandwidth", "add `bandwidth: 10Gbps`")),
        };
        let form = fields.form.map_or(Ok(Form::Unspecified), form)?;
        let graph = match (fields.chain, fields.nodes) {
            (Some(chain), None) => self.chain(chain, fields.edges)?,
            (None, Some(nodes)) => full(nodes, fields.edges)?,
            (Some(chain), Some(nodes)) => {
                let problem =
                    DagFileProblem::new(nodes.span.clone(), "both chain and nodes are given");
                return Err(problem
                    .label("remove one of them")
                    .other(chain.span.clone(), "the other one"));
            }
            (None, None) => {
                return Err(missing(
                    root,
                    "chain",
                    "add `chain: nat -> aes`, or `nodes` and `edges`",
                ));
            }
        };
        let graph = match fields.configuration {
            Some(node) => configured(graph, node)?,
            None => graph,
        };
        let name = fields.name.map(text).transpose()?;
        let tenant = fields.tenant.map(text).transpose()?;
        let etag = fields.etag.map(text).transpose()?.unwrap_or_default();
        // Without them, the server's default holds.
        let sizes = fields.packet_sizes.map(packet_sizes).transpose()?;
        let trusted = fields.trusted_tenants.map(trusted_tenants).transpose()?;
        let affinity = fields.card_affinity.map(affinity::affinity).transpose()?;
        let latency_sensitive = fields.latency_sensitive.map(affinity::yes_or_no).transpose()?;
        let refuse_idle_tasks = fields.refuse_idle_tasks.map(affinity::yes_or_no).transpose()?;
        let latency_bound = fields.latency_bound.map(latency_bound).transpose()?;
        check(&graph, bandwidth, &bandwidth_span)?;
        let dag = snic_api::v1::Dag {
            packet_sizes: sizes
                .as_ref()
                .map(convert::dag::packet_sizes_to_wire)
                .unwrap_or_default(),
            trusted_tenants: trusted.unwrap_or_default(),
            card_affinity: affinity.flatten(),
            placement: fields.placement.map(placement::placement).transpose()?.flatten(),
            latency_sensitive: latency_sensitive.unwrap_or_default(),
            refuse_idle_tasks: refuse_idle_tasks.unwrap_or_default(),
            latency_bound_nanos: latency_bound.unwrap_or_default().get(),
            labels: fields.labels.map(notes::labels).transpose()?.unwrap_or_default(),
            description: fields
                .description
                .map(notes::description)
                .transpose()?
                .unwrap_or_default(),
            ..resource(&graph, bandwidth, form, etag)
        };
        let places = SourceMap::of(self, &fields, &graph);
        Ok(DagFile { name, tenant, dag, places })
    }

    fn chain(&self, node: &YamlNode, edges: Option<&YamlNode>) -> Result<Graph, DagFileProblem> {
        let Value::Scalar(value) = &node.value else {
            let problem = DagFileProblem::new(node.span.clone(), "a chain must be a text");
            return Err(problem
                .label(format!("this is {}", node.kind()))
                .help("write `chain: nat -> firewall`; quote a chain that ends with a fork"));
        };
        if let Some(edges) = edges {
            let problem =
                DagFileProblem::new(edges.span.clone(), "edges are not allowed with a chain");
            return Err(problem.help("use `nodes` and `edges`, or `chain` alone"));
        }
        let chain = self.placed(value, node)?;
        let id = |index: usize| chain.tasks[index].id.clone();
        let edges = chain.edges.iter();
        Ok(Graph {
            spec_nodes: chain
                .tasks
                .iter()
                .map(|task| snic_domain::Node::new(task.id.clone(), task.nt.clone()))
                .collect(),
            spec_edges: edges
                .clone()
                .map(|(from, to)| snic_domain::Edge { from: id(*from), to: id(*to) })
                .collect(),
            node_spans: chain.tasks.iter().map(|task| task.span.clone()).collect(),
            edge_spans: edges.map(|(_, to)| chain.tasks[*to].span.clone()).collect(),
            configurations: BTreeMap::new(),
            configuration_spans: BTreeMap::new(),
            whole: node.span.clone(),
        })
    }

    /// Parses a chain so that positions in it are positions in the file. A chain ignores white space, so
    /// the file's own text is parsed if it differs from the YAML value in white space only.
    fn placed(&self, value: &str, node: &YamlNode) -> Result<chain::ParsedChain, DagFileProblem> {
        let raw = &self.text[node.span.clone()];
        let squeezed = |text: &str| text.split_whitespace().collect::<String>();
        let (first, rest) = raw.split_once('\n').unwrap_or((raw, ""));
        let block = first.starts_with(['|', '>']).then_some(rest);
        let quoted = ['"', '\''].into_iter().find_map(|quote| {
            raw.trim_end().strip_prefix(quote).and_then(|inner| inner.strip_suffix(quote))
        });
        let source = block.or(quoted).unwrap_or(raw);
        if squeezed(source) != squeezed(value) {
            return chain::parse(value).map_err(|problem| problem.moved(&node.span));
        }
        let offset = node.span.start + (source.as_ptr() as usize - raw.as_ptr() as usize);
        let shift = |problem: DagFileProblem| problem.shifted(offset);
        let mut chain = chain::parse(source).map_err(shift)?;
        for task in &mut chain.tasks {
            task.span = task.span.start + offset..task.span.end + offset;
        }
        Ok(chain)
    }
}

/// The entries of a file by meaning.
#[derive(Default)]
struct Fields<'a> {
    name: Option<&'a YamlNode>,
    tenant: Option<&'a YamlNode>,
    bandwidth: Option<&'a YamlNode>,
    form: Option<&'a YamlNode>,
    packet_sizes: Option<&'a YamlNode>,
    trusted_tenants: Option<&'a YamlNode>,
    card_affinity: Option<&'a YamlNode>,
    placement: Option<&'a YamlNode>,
    latency_sensitive: Option<&'a YamlNode>,
    refuse_idle_tasks: Option<&'a YamlNode>,
    latency_bound: Option<&'a YamlNode>,
    labels: Option<&'a YamlNode>,
    description: Option<&'a YamlNode>,
    chain: Option<&'a YamlNode>,
    nodes: Option<&'a YamlNode>,
    edges: Option<&'a YamlNode>,
    configuration: Option<&'a YamlNode>,
    etag: Option<&'a YamlNode>,
}

impl<'a> Fields<'a> {
    fn new(entries: &'a [(YamlKey, YamlNode)]) -> Result<Self, DagFileProblem> {
        let mut fields = Self::default();
        for (key, node) in entries {
            let field = match key.text.as_str() {
                "name" => &mut fields.name,
                "tenant" => &mut fields.tenant,
                "bandwidth" | "bandwidth_bps" => &mut fields.bandwidth,
                "form" => &mut fields.form,
                "packet_sizes" => &mut fields.packet_sizes,
                "trusted_tenants" => &mut fields.trusted_tenants,
                "card_affinity" => &mut fields.card_affinity,
                "placement" => &mut fields.placement,
                "latency_sensitive" => &mut fields.latency_sensitive,
                "refuse_idle_tasks" => &mut fields.refuse_idle_tasks,
                "latency_bound" | "latency_bound_nanos" => &mut fields.latency_bound,
                "labels" => &mut fields.labels,
                "description" => &mut fields.description,
                "chain" => &mut fields.chain,
                "nodes" => &mut fields.nodes,
                "edges" => &mut fields.edges,
                "configuration" => &mut fields.configuration,
                "etag" => &mut fields.etag,
                other if OUTPUT_ONLY.contains(&other) => continue,
                _ => return Err(unknown(key, KEYS)),
            };
            if let Some(first) = field {
                let problem = DagFileProblem::new(key.span.clone(), "a field is given twice");
                return Err(problem.label("second value").other(first.span.clone(), "first value"));
            }
            *field = Some(node);
        }
        Ok(fields)
    }
}

fn unknown(key: &YamlKey, known: &str) -> DagFileProblem {
    let problem = DagFileProblem::new(key.span.clone(), format!("unknown key `{}`", key.text));
    let words = known.split([',', ' ']).filter(|word| !word.is_empty());
    let help = match nearest(&key.text, words) {
        Some(meant) => format!("did you mean `{meant}`? The keys are {known}"),
        None => format!("use {known}"),
    };
    problem.label("unknown").help(help)
}

fn missing(node: &YamlNode, what: &str, help: &str) -> DagFileProblem {
    let place = node.span.start..node.span.start;
    DagFileProblem::new(place, format!("missing key `{what}`")).label("here").help(help)
}

fn text(node: &YamlNode) -> Result<String, DagFileProblem> {
    match &node.value {
        Value::Scalar(text) => Ok(text.clone()),
        _ => Err(DagFileProblem::new(
            node.span.clone(),
            format!("expected a text, got {}", node.kind()),
        )),
    }
}

fn latency_bound(node: &YamlNode) -> Result<LatencyBound, DagFileProblem> {
    let problem = |message: String| DagFileProblem::new(node.span.clone(), message);
    let asked =
        quantity::latency_bound(&text(node)?).map_err(|error| problem(error.to_string()))?;
    if asked > DAG_LATENCY_BOUND_MAX {
        return Err(problem(InvalidDag::LatencyBound { asked }.to_string()));
    }
    Ok(asked)
}

fn rate(node: &YamlNode) -> Result<Bandwidth, DagFileProblem> {
    let text = text(node)?;
    quantity::bandwidth(&text)
        .map_err(|error| DagFileProblem::new(node.span.clone(), error.to_string()))
}

fn form(node: &YamlNode) -> Result<Form, DagFileProblem> {
    let word = text(node)?.to_ascii_lowercase();
    // The API's own output says `FORM_PARALLEL`.
    match word.strip_prefix("form_").unwrap_or(&word) {
        "auto" | "unspecified" => Ok(Form::Unspecified),
        "sequential" => Ok(Form::Sequential),
        "parallel" => Ok(Form::Parallel),
        _ => {
            let problem = DagFileProblem::new(node.span.clone(), "unknown form");
            Err(problem.help("use auto, sequential or parallel"))
        }
    }
}

/// Ids of tenants, or their full names; as full names.
fn trusted_tenants(node: &YamlNode) -> Result<Vec<String>, DagFileProblem> {
    let name = |item: &YamlNode| {
        let text = text(item)?;
        let id = TenantId::new(text.strip_prefix("tenants/").unwrap_or(&text));
        let problem = |error: snic_domain::InvalidId| {
            DagFileProblem::new(item.span.clone(), error.to_string())
        };
        id.map(|id| convert::name::of_tenant(&id)).map_err(problem)
    };
    items(node, "trusted_tenants")?.iter().map(name).collect()
}

/// The graph of `nodes` and `edges`.
fn full(nodes: &YamlNode, edges: Option<&YamlNode>) -> Result<Graph, DagFileProblem> {
    let mut graph = Graph { whole: nodes.span.clone(), ..Graph::default() };
    for item in items(nodes, "nodes")? {
        let keys = [&["id"][..], &["type", "nt_type", "nt"], &["configuration"]];
        let [id, nt, told] = keyed(item, keys)?;
        let nt = match nt {
            Some(nt) => chain::type_id(&text(nt)?, &nt.span)?,
            None => {
                return Err(missing(item, "type", "add the type of the node: `type: firewall`"));
            }
        };
        let id = id.ok_or_else(|| missing(item, "id", "add an id for the node: `id: fw`"))?;
        // Output has an empty one where none is set.
        if let Some(told) = told.filter(|told| !told.is_null()) {
            graph.configurations.insert(graph.spec_nodes.len(), object::object(told)?);
        }
        graph.spec_nodes.push(snic_domain::Node::new(node_id(id)?, nt));
        graph.node_spans.push(id.span.clone());
    }
    for item in edges.map_or(Ok(&[][..]), |edges| items(edges, "edges"))? {
        let [from, to] = keyed(item, [&["from", "from_node"], &["to", "to_node"]])?;
        let from = from.ok_or_else(|| missing(item, "from", "write `{from: a, to: b}`"))?;
        let to = to.ok_or_else(|| missing(item, "to", "write `{from: a, to: b}`"))?;
        graph.spec_edges.push(snic_domain::Edge { from: node_id(from)?, to: node_id(to)? });
        graph.edge_spans.push(from.span.start..to.span.end.max(from.span.end));
    }
    Ok(graph)
}

fn items<'a>(node: &'a YamlNode, what: &str) -> Result<&'a [YamlNode], DagFileProblem> {
    match &node.value {
        Value::List(items) => Ok(items),
        _ => {
            let message = format!("`{what}` must be a list, got {}", node.kind());
            Err(DagFileProblem::new(node.span.clone(), message))
        }
    }
}

/// The values of some keys of a mapping. Each key may have several spellings.
fn keyed<'a, const KEYS: usize>(
    node: &'a YamlNode,
    keys: [&[&str]; KEYS],
) -> Result<[Option<&'a YamlNode>; KEYS], DagFileProblem> {
    let known = keys.map(|names| names[0]).join(" and ");
    let Value::Map(entries) = &node.value else {
        let message = format!("expected a mapping with {known}, got {}", node.kind());
        return Err(DagFileProblem::new(node.span.clone(), message));
    };
    let mut found = [None; KEYS];
    for (key, value) in entries {
        match keys.iter().position(|names| names.contains(&key.text.as_str())) {
            Some(index) => found[index] = Some(value),
            None => return Err(unknown(key, &known)),
        }
    }
    Ok(found)
}

/// The graph with what the key `configuration` says, by node id.
fn configured(mut graph: Graph, node: &YamlNode) -> Result<Graph, DagFileProblem> {
    let Value::Map(entries) = &node.value else {
        let message = format!("`configuration` must be a mapping, got {}", node.kind());
        return Err(DagFileProblem::new(node.span.clone(), message)
            .help("write the id of a node and what it is told: `firewall: {rules: []}`"));
    };
    for (key, told) in entries {
        let mut nodes = graph.spec_nodes.iter();
        let Some(index) = nodes.position(|node| node.id.as_str() == key.text) else {
            let ids: Vec<&str> = graph.spec_nodes.iter().map(|node| node.id.as_str()).collect();
            let problem = DagFileProblem::new(key.span.clone(), format!("no node `{}`", key.text));
            return Err(problem.label("unknown").help(format!("the nodes are {}", ids.join(", "))));
        };
        graph.configuration_spans.insert(index, told.span.clone());
        if graph.configurations.insert(index, object::object(told)?).is_some() {
            let message = format!("node `{}` has a configuration already", key.text);
            return Err(DagFileProblem::new(key.span.clone(), message).label("second one"));
        }
    }
    Ok(graph)
}

fn node_id(node: &YamlNode) -> Result<NodeId, DagFileProblem> {
    let text = text(node)?;
    NodeId::new(&text).map_err(|error| DagFileProblem::new(node.span.clone(), error.to_string()))
}

/// The API's checks that need no server, with positions that the API cannot know.
fn check(graph: &Graph, bandwidth: Bandwidth, rate: &Range<usize>) -> Result<(), DagFileProblem> {
    let mut nodes = graph.spec_nodes.clone();
    for (index, told) in &graph.configurations {
        let json =
            convert::object::to_json(told).map(|json| NtConfiguration::new(&json.to_string()));
        nodes[*index].configuration = json.ok();
    }
    let spec = DagSpec {
        nodes,
        edges: graph.spec_edges.clone(),
        bandwidth,
        form: FormPreference::Auto,
        packet_sizes: PacketSizes::default(),
        trusted_tenants: Default::default(),
        card_affinity: Default::default(),
        latency_sensitive: false,
        refuse_idle_tasks: false,
        latency_bound: Default::default(),
        notes: Default::default(),
    };
    let Err(error) = Dag::new(spec) else { return Ok(()) };
    let node = |id: &NodeId| {
        let index = graph.spec_nodes.iter().position(|node| node.id == *id);
        index.map_or_else(|| graph.whole.clone(), |index| graph.node_spans[index].clone())
    };
    let message = error.to_string();
    Err(match &error {
        InvalidDag::Empty
        | InvalidDag::TooManyTrusted { .. }
        | InvalidDag::TooManyNeighbours { .. }
        | InvalidDag::ContradictoryAffinity { .. }
        | InvalidDag::LatencyBound { .. }
        | InvalidDag::TooManyNodes { .. }
        | InvalidDag::ConfigurationTooLong { .. } => DagFileProblem::new(graph.whole.clone(), message),
        InvalidDag::ConfiguredTwice { first, index, .. } => {
            DagFileProblem::new(graph.node_spans[*index].clone(), message)
                .label("second node of this type")
                .other(node(first), "first one")
        }
        InvalidDag::DuplicateNode { node: id, index } => {
            DagFileProblem::new(graph.node_spans[*index].clone(), message)
                .label("second use")
                .other(node(id), "first use")
        }
        InvalidDag::UnknownNode { index, .. } | InvalidDag::UselessEdge { index, .. } => {
            DagFileProblem::new(graph.edge_spans[*index].clone(), message)
        }
        InvalidDag::Cycle { node: id } => DagFileProblem::new(node(id), message)
            .label("packets would return to this node")
            .help("remove one of the edges of the cycle"),
        InvalidDag::TwoEntries { first, second } => DagFileProblem::new(node(second), message)
            .label("no edge leads here")
            .other(node(first), "and none leads here")
            .help(
                "add an edge, or an entry that leads to both; split parts that do not meet into two DAGs",
            ),
        InvalidDag::TooManyBranches { node: id, .. } => DagFileProblem::new(node(id), message)
            .label("forks here")
            .help("fork in two steps, or chain some of the branches"),
        InvalidDag::Bandwidth { .. } | InvalidDag::PacketSizes(_) => {
            DagFileProblem::new(rate.clone(), message)
        }
    })
}

fn resource(graph: &Graph, bandwidth: Bandwidth, form: Form, etag: String) -> snic_api::v1::Dag {
    let nodes = graph.spec_nodes.iter().enumerate().map(|(index, node)| dag::Node {
        id: node.id.to_string(),
        nt_type: format!("ntTypes/{}", node.nt),
        configuration: graph.configurations.get(&index).cloned(),
    });
    let edges = graph
        .spec_edges
        .iter()
        .map(|edge| dag::Edge { from_node: edge.from.to_string(), to_node: edge.to.to_string() });
    snic_api::v1::Dag {
        nodes: nodes.collect(),
        edges: edges.collect(),
        bandwidth_bps: bandwidth.get(),
        form: form.into(),
        etag,
        ..snic_api::v1::Dag::default()
    }
}

#[cfg(test)]
mod tests;
