//! Files with several resources, for `snicctl apply -f`: the documents of one YAML stream, or one JSON object.
//!
//! ```yaml
//! kind: tenant                 # optional where the name or the keys say it: tenant, nt-type, bitstream, dag, rule
//! name: acme                   # or tenants/acme, as `get -o yaml` prints it
//! weight: 2
//! quota: {bandwidth_max_bps: 40Gbps}
//! ---
//! name: acme/web
//! bandwidth: 10Gbps
//! chain: nat -> aes
//! ```
//!
//! A DAG is written as in a DAG file; other resources have the fields of the API, where bandwidths and sizes may have
//! units.

use std::ops::Range;

use serde_json::{Map, Number, Value as Json};

use super::problem::{DagFileProblem, InvalidFile};
use super::yaml::{self, Value, YamlKey, YamlNode};
use super::{DagFile, nearest, parse, quantity};

/// Most documents of a file.
const DOCUMENTS_MAX: usize = 4_096;

/// Kind of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DocumentKind {
    Tenant,
    /// A network task type.
    NtType,
    Bitstream,
    Dag,
    /// A classification rule.
    Rule,
}

impl DocumentKind {
    /// All of them, each before those that need it.
    pub const ALL: [Self; 5] = [Self::Tenant, Self::NtType, Self::Bitstream, Self::Dag, Self::Rule];

    /// Its name in files.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tenant => "tenant",
            Self::NtType => "nt-type",
            Self::Bitstream => "bitstream",
            Self::Dag => "dag",
            Self::Rule => "rule",
        }
    }

    /// Kind with a full name of the API.
    fn of_name(name: &str) -> Option<Self> {
        match name.split('/').collect::<Vec<_>>()[..] {
            ["tenants", _, "dags", _] => Some(Self::Dag),
            ["tenants", _] => Some(Self::Tenant),
            ["ntTypes", _] => Some(Self::NtType),
            ["bitstreams", _] => Some(Self::Bitstream),
            ["classificationRules", _] => Some(Self::Rule),
            _ => None,
        }
    }
}

/// One resource of a file.
#[derive(Debug, Clone)]
pub struct Document {
    pub kind: DocumentKind,
    /// Its name as it is written; an id or a full name.
    pub name: Option<String>,
    file: String,
    text: String,
    place: Range<usize>,
    entries: Vec<(YamlKey, YamlNode)>,
}

/// The resources in the text of the file called `file`.
///
/// # Errors
/// [`InvalidFile`] at the first document that cannot be read, or that says not what it is.
pub fn documents(file: &str, text: &str) -> Result<Vec<Document>, Box<InvalidFile>> {
    let failed = |problem| Box::new(InvalidFile::new(file, text, problem));
    let roots = yaml::documents(text).map_err(failed)?;
    // A list, as `list -o yaml` prints it, stands for what is in it.
    let parts = |root: YamlNode| match root.value {
        Value::List(items) => items,
        _ => vec![root],
    };
    let roots: Vec<YamlNode> = roots.into_iter().flat_map(parts).collect();
    if roots.len() > DOCUMENTS_MAX {
        let problem = DagFileProblem::new(
            roots[DOCUMENTS_MAX].span.clone(),
            format!("{} documents; at most {DOCUMENTS_MAX} are allowed in a file", roots.len()),
        );
        return Err(failed(problem.help("divide the file")));
    }
    roots.into_iter().map(|root| document(file, text, root).map_err(failed)).collect()
}

fn document(file: &str, text: &str, root: YamlNode) -> Result<Document, DagFileProblem> {
    let what = root.kind();
    let Value::Map(entries) = root.value else {
        let problem = DagFileProblem::new(root.span, "a resource must be a mapping");
        return Err(problem.label(format!("this is {what}")));
    };
    let of = |key: &str| entries.iter().find(|(entry, _)| entry.text == key).map(|(_, node)| node);
    let name = of("name").map(scalar).transpose()?;
    let kind = match of("kind") {
        Some(node) => {
            let word = scalar(node)?;
            let known = || DocumentKind::ALL.into_iter().map(DocumentKind::word);
            DocumentKind::ALL.into_iter().find(|kind| kind.word() == word).ok_or_else(|| {
                let problem =
                    DagFileProblem::new(node.span.clone(), format!("unknown kind `{word}`"));
                problem.help(meant(&word, known()))
            })?
        }
        None => {
            let is_dag = of("chain").or_else(|| of("nodes")).is_some();
            let by_name = name.as_deref().and_then(DocumentKind::of_name);
            by_name.or(is_dag.then_some(DocumentKind::Dag)).ok_or_else(|| {
                let place = root.span.start..root.span.start;
                let problem = DagFileProblem::new(place, "it does not say what it is");
                problem.help("add `kind:` tenant, nt-type, bitstream, dag or rule, or a full name such as tenants/acme")
            })?
        }
    };
    let (file, text) = (file.to_owned(), text.to_owned());
    Ok(Document { kind, name, file, text, place: root.span, entries })
}

/// Guess of what was meant, and the known names.
fn meant<'a>(word: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let all = known.clone().collect::<Vec<_>>().join(", ");
    match nearest(word, known) {
        Some(meant) => format!("did you mean `{meant}`? There are {all}"),
        None => format!("use one of {all}"),
    }
}

fn scalar(node: &YamlNode) -> Result<String, DagFileProblem> {
    match &node.value {
        Value::Scalar(text) => Ok(text.clone()),
        _ => {
            let message = format!("expected a text, got {}", node.kind());
            Err(DagFileProblem::new(node.span.clone(), message))
        }
    }
}

impl Document {
    /// The DAG that it is, its name in [`Document::name`].
    ///
    /// # Errors
    /// [`InvalidFile`] as [`parse`] gives it, at its place in the whole file.
    pub fn dag(&self) -> Result<DagFile, Box<InvalidFile>> {
        // Everything else is blank, so that positions are those of the whole file.
        let blank = |text: &str| -> String {
            text.chars()
                .flat_map(|c| std::iter::repeat_n(if c == '\n' { c } else { ' ' }, c.len_utf8()))
                .collect()
        };
        let (before, rest) = self.text.split_at(self.place.start);
        let (own, after) = rest.split_at(self.place.len());
        let mut own = own.to_owned();
        if let Some((key, node)) = self.entries.iter().find(|(key, _)| key.text == "kind") {
            let start = key.span.start - self.place.start;
            let mut end = node.span.end - self.place.start;
            // In a flow mapping the comma goes, too.
            let rest = &own[end..];
            let comma = rest.trim_start().strip_prefix(',').map(|after| rest.len() - after.len());
            end += comma.filter(|_| own.starts_with('{')).unwrap_or(0);
            own.replace_range(start..end, &blank(&own[start..end]));
        }
        parse(&self.file, &format!("{}{own}{}", blank(before), blank(after))).map_err(|invalid| {
            Box::new(InvalidFile::new(&self.file, &self.text, invalid.problem().clone()))
        })
    }

    /// Whether it has this key.
    pub fn has(&self, key: &str) -> bool {
        self.entries.iter().any(|(entry, _)| entry.text == key)
    }

    /// The text of a key, if it has it.
    ///
    /// # Errors
    /// [`InvalidFile`] where it is no text.
    pub fn text_of(&self, key: &str) -> Result<Option<String>, Box<InvalidFile>> {
        let found = self.entries.iter().find(|(entry, _)| entry.text == key);
        found.map(|(_, node)| scalar(node)).transpose().map_err(|problem| self.invalid(problem))
    }

    /// Its fields but `kind` and those of `left_out`, as JSON with the API's names. `known` are all fields there are.
    ///
    /// # Errors
    /// [`InvalidFile`] at a key that is none of them.
    pub fn fields(&self, known: &[&str], left_out: &[&str]) -> Result<Json, Box<InvalidFile>> {
        let mut fields = Map::new();
        for (key, node) in &self.entries {
            if key.text == "kind" || left_out.contains(&key.text.as_str()) {
                continue;
            }
            if !known.contains(&key.text.as_str()) {
                let message = format!("unknown key `{}` of this {}", key.text, self.kind.word());
                let problem = DagFileProblem::new(key.span.clone(), message).label("unknown");
                let shown = known.iter().copied().filter(|word| !left_out.contains(word));
                return Err(self.invalid(problem.help(meant(&key.text, shown))));
            }
            fields.insert(key.text.clone(), json(&key.text, node).map_err(|p| self.invalid(p))?);
        }
        Ok(Json::Object(fields))
    }

    /// The names of its fields; of a mapping in it each entry, as `quota.dags_max`.
    pub fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        for (key, node) in self.entries.iter().filter(|(key, _)| key.text != "kind") {
            match &node.value {
                Value::Map(inner) if !inner.is_empty() && key.text != "labels" => {
                    paths.extend(
                        inner.iter().map(|(part, _)| format!("{}.{}", key.text, part.text)),
                    );
                }
                _ => paths.push(key.text.clone()),
            }
        }
        paths
    }

    /// An error about the field at a path, or about the whole document where the file does not name it.
    pub fn error_in(&self, path: &str, message: &str, help: Option<String>) -> InvalidFile {
        let mut span = self.place.start..self.place.start;
        let mut entries = &self.entries;
        for part in path.split(['.', '[']) {
            let Some((_, node)) = entries.iter().find(|(key, _)| key.text == part) else { break };
            span = node.span.clone();
            let Value::Map(inner) = &node.value else { break };
            entries = inner;
        }
        let problem = DagFileProblem { help, ..DagFileProblem::new(span, message) };
        InvalidFile::new(&self.file, &self.text, problem)
    }

    fn invalid(&self, problem: DagFileProblem) -> Box<InvalidFile> {
        Box::new(InvalidFile::new(&self.file, &self.text, problem))
    }
}

/// A value, where a bandwidth or a size may have a unit.
fn json(key: &str, node: &YamlNode) -> Result<Json, DagFileProblem> {
    Ok(match &node.value {
        Value::Map(entries) => {
            let entries =
                entries.iter().map(|(key, node)| Ok((key.text.clone(), json(&key.text, node)?)));
            Json::Object(entries.collect::<Result<_, DagFileProblem>>()?)
        }
        Value::List(items) => {
            Json::Array(items.iter().map(|item| json(key, item)).collect::<Result<_, _>>()?)
        }
        Value::Scalar(text) if node.is_quoted => Json::String(text.clone()),
        Value::Scalar(_) if node.is_null() => Json::Null,
        Value::Scalar(text) => match text.as_str() {
            "true" => Json::Bool(true),
            "false" => Json::Bool(false),
            text => match text.parse::<Number>() {
                Ok(number) => Json::Number(number),
                Err(_) => with_unit(key, text, node)?,
            },
        },
    })
}

fn with_unit(key: &str, text: &str, node: &YamlNode) -> Result<Json, DagFileProblem> {
    let begins = text.starts_with(|first: char| first.is_ascii_digit());
    let number = match key {
        key if begins && key.ends_with("_bps") => quantity::bandwidth(text).map(|rate| rate.get()),
        key if begins && key.ends_with("_bytes") => quantity::size(text).map(|size| size.get()),
        _ => return Ok(Json::String(text.to_owned())),
    };
    let wrong = |error: String| DagFileProblem::new(node.span.clone(), error);
    number.map(|number| Json::Number(number.into())).map_err(|error| wrong(error.to_string()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FILE: &str = "# a tenant and its DAG\nkind: tenant\nname: acme\nweight: 2\n\
                        quota: {bandwidth_max_bps: 40Gbps, dags_max: 5}\nlabels: {tier: \"1\"}\n\
                        ---\n{kind: dag, name: acme/größe, bandwidth: 10Gbps, chain: nat -> fierwall}\n\
                        ---\nname: ntTypes/pad\nmemory_bytes: 2MiB\n";

    fn parsed() -> Vec<Document> {
        documents("all.yaml", FILE).expect("valid")
    }

    #[test]
    fn a_file_has_resources_of_several_kinds() {
        let all = parsed();
        let kinds: Vec<_> = all.iter().map(|document| document.kind).collect();
        assert_eq!(kinds, [DocumentKind::Tenant, DocumentKind::Dag, DocumentKind::NtType]);
        let fields = all[0].fields(&["name", "weight", "quota", "labels"], &["name"]);
        let expected = json!({"weight": 2, "quota": {"bandwidth_max_bps": 40_000_000_000_u64, "dags_max": 5},
            "labels": {"tier": "1"}});
        assert_eq!(fields.expect("known keys"), expected);
        let paths = ["name", "weight", "quota.bandwidth_max_bps", "quota.dags_max", "labels"];
        assert_eq!(all[0].paths(), paths);
        let size = all[2].fields(&["name", "memory_bytes"], &["name"]).expect("known keys");
        assert_eq!(size, json!({"memory_bytes": 2 << 20}));
    }

    #[test]
    fn a_dag_in_the_middle_has_the_lines_of_the_whole_file() {
        let dag = parsed()[1].dag().expect("a DAG");
        assert_eq!(dag.name.as_deref(), Some("acme/größe"));
        let wrong =
            dag.error_in("dag.nodes[1].nt_type", "no such type", None).expect("it is there");
        assert_eq!(wrong.position(), (8, 64));
        let broken = FILE.replace("bandwidth: 10Gbps", "bandwidht: 10Gbps");
        let broken =
            documents("all.yaml", &broken).expect("YAML")[1].dag().expect_err("no such key");
        assert_eq!((broken.position(), broken.file()), ((8, 31), "all.yaml"));
    }

    #[test]
    fn what_is_wrong_is_said_where_it_stands() {
        let wrong = parsed()[0].fields(&["name", "wait", "labels"], &[]).expect_err("weight");
        assert_eq!(wrong.position(), (4, 1));
        assert_eq!(wrong.problem().help.as_deref(), Some("use one of name, wait, labels"));
        let quota = parsed()[0].error_in("quota.dags_max", "too many", None);
        assert_eq!(quota.position(), (5, 46));
        let whole = parsed()[0].error_in("description", "too long", None);
        assert_eq!(whole.position(), (2, 1));
        for (text, message, at) in [
            ("kind: tenat\nname: a\n", "unknown kind `tenat`", (1, 7)),
            ("name: acme\n", "it does not say what it is", (1, 1)),
            ("kind: rule\n---\n- x\n", "a resource must be a mapping", (3, 3)),
            ("- {name: tenants/a}\n- {name: a}\n", "it does not say what it is", (2, 3)),
            ("", "the file is empty", (1, 1)),
        ] {
            let wrong = documents("x.yaml", text).expect_err(text);
            assert_eq!((wrong.problem().message.as_str(), wrong.position()), (message, at));
        }
        let rate =
            documents("x.yaml", "name: ntTypes/a\nbandwidth_max_bps: 10Gbit\n").expect("YAML");
        let rate = rate[0].fields(&["name", "bandwidth_max_bps"], &[]).expect_err("no such unit");
        assert_eq!(rate.position(), (2, 20));
    }
}
