//! From the fields of a request to lines of its file: the server's errors name fields, people look at lines.

use std::ops::Range;

use crate::{DagFile, DagFileProblem, Fields, Graph, InvalidFile, Reader};

/// The parts of a file, by the paths of the fields that they become.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SourceMap {
    pub file: String,
    pub text: String,
    /// Paths such as `dag.nodes[2]`, and where they are in the text, in bytes.
    pub fields: Vec<(String, Range<usize>)>,
}

impl SourceMap {
    pub fn of(reader: &Reader<'_>, fields: &Fields<'_>, graph: &Graph) -> Self {
        let plain = [
            ("dag_id", fields.name),
            ("parent", fields.tenant),
            ("dag.bandwidth_bps", fields.bandwidth),
            ("dag.form", fields.form),
            ("dag.packet_sizes", fields.packet_sizes),
            ("dag.trusted_tenants", fields.trusted_tenants),
            ("dag.card_affinity", fields.card_affinity),
            ("dag.placement", fields.placement),
            ("dag.latency_sensitive", fields.latency_sensitive),
            ("dag.refuse_idle_tasks", fields.refuse_idle_tasks),
            ("dag.latency_bound_nanos", fields.latency_bound),
            ("dag.etag", fields.etag),
            ("dag.nodes", fields.chain.or(fields.nodes)),
            ("dag.edges", fields.chain.or(fields.edges)),
        ];
        let plain = plain
            .into_iter()
            .filter_map(|(path, node)| node.map(|node| (path.to_owned(), node.span.clone())));
        let each = |path: &'static str, spans: &[Range<usize>]| -> Vec<(String, Range<usize>)> {
            let of = |(i, span): (usize, &Range<usize>)| (format!("{path}[{i}]"), span.clone());
            spans.iter().enumerate().map(of).collect()
        };
        let told = graph.configuration_spans.iter();
        let told = told.map(|(i, span)| (format!("dag.nodes[{i}].configuration"), span.clone()));
        let fields = plain
            .chain(each("dag.nodes", &graph.node_spans))
            .chain(each("dag.edges", &graph.edge_spans))
            .chain(told);
        let (file, text) = (reader.file.to_owned(), reader.text.to_owned());
        Self { file, text, fields: fields.collect() }
    }
}

/// Whether a path is that of a field, or of a part of it.
fn is_within(path: &str, field: &str) -> bool {
    path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

impl DagFile {
    /// The server's error about a field of the request, at the place in this file that says it; `None` if
    /// the file does not. The path is that of the API, such as `dag.nodes[2].nt_type`.
    pub fn error_in(&self, path: &str, message: &str, help: Option<String>) -> Option<InvalidFile> {
        let SourceMap { file, text, fields } = &self.places;
        let known = fields.iter().filter(|(field, _)| is_within(path, field));
        let (_, span) = known.max_by_key(|(field, _)| field.len())?;
        let problem = DagFileProblem { help, ..DagFileProblem::new(span.clone(), message) };
        Some(InvalidFile::new(file, text, problem))
    }
}

/// The word that was most likely meant: at most a third of the letters are wrong, missing, too
/// many or swapped. `None` if there is none. Time O(letters of the word × letters of all others).
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let slips_max = (word.chars().count() / 3).max(1);
    let rated = known.into_iter().map(|other| (strsim::osa_distance(word, other), other));
    let similar = rated.filter(|(slips, _)| (1..=slips_max).contains(slips));
    similar.min_by_key(|(slips, _)| *slips).map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse;

    const WEB: &str = "name: web\nbandwidth: 1Gbps\nchain: nat -> fierwall\n";

    fn line(text: &str, path: &str) -> Option<(usize, usize)> {
        let file = parse("web.yaml", text).expect("valid");
        file.error_in(path, "no", None).map(|error| error.position())
    }

    #[test]
    fn fields_of_the_server_are_found_in_the_file() {
        assert_eq!(line(WEB, "dag.nodes[1].nt_type"), Some((3, 15)));
        assert_eq!(line(WEB, "dag.nodes[0]"), Some((3, 8)));
        assert_eq!(line(WEB, "dag.nodes"), Some((3, 8)));
        assert_eq!(line(WEB, "dag.bandwidth_bps"), Some((2, 12)));
        assert_eq!(line(WEB, "dag_id"), Some((1, 7)));
        // Fields that the file does not have.
        assert_eq!(line(WEB, "dag.form"), None);
        assert_eq!(line(WEB, "request_id"), None);
        assert_eq!(line(WEB, "dag.bandwidth"), None);
    }

    #[test]
    fn a_configuration_and_an_edge_have_places_of_their_own() {
        let text = "bandwidth: 1Gbps\nnodes:\n- {id: a, type: nat}\n- {id: b, type: aes}\n\
                    edges:\n- {from: a, to: b}\nconfiguration:\n  b: {key: x}\nform: parallel\n\
                    packet_sizes: 64\ntrusted_tenants: [acme]\n";
        assert_eq!(line(text, "dag.nodes[1].nt_type"), Some((4, 8)));
        assert_eq!(line(text, "dag.edges[0].to_node"), Some((6, 10)));
        assert_eq!(line(text, "dag.nodes[1].configuration.key"), Some((8, 6)));
        assert_eq!(line(text, "dag.form"), Some((9, 7)));
        assert_eq!(line(text, "dag.packet_sizes[0].bytes"), Some((10, 15)));
        assert_eq!(line(text, "dag.trusted_tenants[0]"), Some((11, 18)));
    }

    #[test]
    fn a_slip_of_the_fingers_is_found_and_another_word_is_not() {
        let known = ["nat", "firewall", "load-balancer", "aes"];
        assert_eq!(nearest("fierwall", known), Some("firewall"));
        assert_eq!(nearest("loadbalancer", known), Some("load-balancer"));
        assert_eq!(nearest("compress", known), None);
        assert_eq!(nearest("nta", known), Some("nat"));
        assert_eq!(nearest("nat", ["nat"]), None);
    }
}
