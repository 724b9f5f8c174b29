//! YAML, and therefore JSON, as a tree whose nodes know their position in the file.
//!
//! Only what a DAG file needs: one document of mappings, sequences and scalars. Anchors are rejected, so
//! that no small file can expand into a large one. This is why the tree is not `saphyr`'s `MarkedYaml`,
//! whose loader copies what an anchor names.

use std::iter::Peekable;
use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput};

use super::problem::DagFileProblem;

/// Deepest nesting. A DAG file needs four levels, and its configurations some more; the builder is
/// recursive.
const DEPTH_MAX: usize = 16;

/// A node of the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlNode {
    /// Its position, in bytes of the text.
    pub span: Range<usize>,
    pub value: Value,
    /// Whether it is a scalar in quotes, or a block: a text even where it looks like a number.
    pub is_quoted: bool,
}

/// The value of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text; a number is the text of its digits.
    Scalar(String),
    List(Vec<YamlNode>),
    /// A mapping in the order of the file, without duplicate keys.
    Map(Vec<(YamlKey, YamlNode)>),
}

/// A key of a mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct YamlKey {
    /// Its position, in bytes of the text.
    pub span: Range<usize>,
    pub text: String,
}

impl YamlNode {
    /// Whether it is a plain `null`, or nothing at all.
    pub fn is_null(&self) -> bool {
        let is_word = |text: &str| matches!(text, "" | "~" | "null");
        matches!(&self.value, Value::Scalar(text) if !self.is_quoted && is_word(text))
    }

    /// Its kind, for messages.
    pub fn kind(&self) -> &'static str {
        match self.value {
            Value::Scalar(_) => "a text",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }
}

/// Parses the only document of `text`.
///
/// # Errors
/// [`DagFileProblem`] with its position in `text`.
pub fn parse(text: &str) -> Result<YamlNode, DagFileProblem> {
    let mut roots = read(text, 1)?;
    Ok(roots.swap_remove(0))
}

/// Parses all documents of `text`, at least one.
///
/// # Errors
/// [`DagFileProblem`] with its position in `text`.
pub fn documents(text: &str) -> Result<Vec<YamlNode>, DagFileProblem> {
    let mut roots = read(text, usize::MAX)?;
    // Nothing stands between two separators, or behind the last one.
    roots.retain(|root| !root.is_null());
    match roots.is_empty() {
        true => Err(DagFileProblem::new(text.len()..text.len(), "the file is empty")),
        false => Ok(roots),
    }
}

fn read(text: &str, most: usize) -> Result<Vec<YamlNode>, DagFileProblem> {
    let places = CharOffsets::new(text);
    let mut builder = Builder { events: Parser::new_from_str(text).peekable(), places: &places };
    let end = text.len()..text.len();
    let mut roots = Vec::new();
    while let Some((event, span)) = builder.next()? {
        match event {
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            Event::StreamEnd => break,
            _ if roots.len() == most => {
                let problem =
                    DagFileProblem::new(places.span(span), "the file contains a second document");
                return Err(problem.help(
                    "a DAG file has one DAG; `snicctl apply -f` takes files with several resources",
                ));
            }
            other => roots.push(builder.node(other, span, 0)?),
        }
    }
    match roots.is_empty() {
        true => Err(DagFileProblem::new(end, "the file is empty")),
        false => Ok(roots),
    }
}

struct Builder<'a> {
    events: Peekable<Parser<'a, StrInput<'a>>>,
    places: &'a CharOffsets,
}

impl<'a> Builder<'a> {
    fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, DagFileProblem> {
        self.events.next().transpose().map_err(|error| self.scan_error(&error))
    }

    /// The next event inside a collection that began at `start`.
    fn inside(&mut self, start: Span) -> Result<(Event<'a>, Span), DagFileProblem> {
        let open = || DagFileProblem::new(self.places.span(start), "this is not closed");
        self.events.next().transpose().map_err(|error| self.scan_error(&error))?.ok_or_else(open)
    }

    fn scan_error(&self, error: &ScanError) -> DagFileProblem {
        let start = self.places.byte(error.marker().index());
        DagFileProblem::new(start..start, format!("not valid YAML or JSON: {}", error.info()))
    }

    fn node(
        &mut self,
        event: Event<'a>,
        span: Span,
        depth: usize,
    ) -> Result<YamlNode, DagFileProblem> {
        let place = self.places.span(span);
        if depth > DEPTH_MAX {
            let message = format!("nested more than {DEPTH_MAX} levels deep");
            return Err(DagFileProblem::new(place, message));
        }
        match event {
            Event::Scalar(_, _, anchor, _)
            | Event::SequenceStart(anchor, _)
            | Event::MappingStart(anchor, _)
                if anchor != 0 =>
            {
                Err(DagFileProblem::new(place, "anchors (`&`) and aliases (`*`) are not supported"))
            }
            Event::Scalar(text, style, ..) => Ok(YamlNode {
                span: place,
                value: Value::Scalar(text.into_owned()),
                is_quoted: style != ScalarStyle::Plain,
            }),
            Event::SequenceStart(..) => self.list(span, depth),
            Event::MappingStart(..) => self.map(span, depth),
            _ => {
                Err(DagFileProblem::new(place, "anchors (`&`) and aliases (`*`) are not supported"))
            }
        }
    }

    fn list(&mut self, start: Span, depth: usize) -> Result<YamlNode, DagFileProblem> {
        let mut items = Vec::new();
        loop {
            let (event, span) = self.inside(start)?;
            if matches!(event, Event::SequenceEnd) {
                let place = self.places.span(start).start..self.places.span(span).end;
                return Ok(YamlNode { span: place, value: Value::List(items), is_quoted: false });
            }
            items.push(self.node(event, span, depth + 1)?);
        }
    }

    fn map(&mut self, start: Span, depth: usize) -> Result<YamlNode, DagFileProblem> {
        let mut entries: Vec<(YamlKey, YamlNode)> = Vec::new();
        loop {
            let (event, span) = self.inside(start)?;
            if matches!(event, Event::MappingEnd) {
                let place = self.places.span(start).start..self.places.span(span).end;
                return Ok(YamlNode { span: place, value: Value::Map(entries), is_quoted: false });
            }
            let key = self.node(event, span, depth + 1)?;
            let Value::Scalar(text) = key.value else {
                return Err(DagFileProblem::new(key.span, "a key must be a plain word"));
            };
            let key = YamlKey { span: key.span, text };
            if let Some((first, _)) = entries.iter().find(|(other, _)| other.text == key.text) {
                let problem =
                    DagFileProblem::new(key.span, format!("duplicate key `{}`", key.text));
                return Err(problem.label("second use").other(first.span.clone(), "first use"));
            }
            let (event, span) = self.inside(start)?;
            let value = self.node(event, span, depth + 1)?;
            entries.push((key, value));
        }
    }
}

/// Maps the parser's positions, which count characters, to bytes.
struct CharOffsets(Vec<usize>);

impl CharOffsets {
    fn new(text: &str) -> Self {
        let starts = text.char_indices().map(|(byte, _)| byte);
        Self(starts.chain(std::iter::once(text.len())).collect())
    }

    fn byte(&self, index: usize) -> usize {
        self.0.get(index).or(self.0.last()).copied().unwrap_or(0)
    }

    fn span(&self, span: Span) -> Range<usize> {
        let start = self.byte(span.start.index());
        start..self.byte(span.end.index()).max(start)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry<'a>(node: &'a YamlNode, key: &str) -> &'a YamlNode {
        let Value::Map(entries) = &node.value else { panic!("{node:?}") };
        &entries.iter().find(|(found, _)| found.text == key).expect(key).1
    }

    #[test]
    fn nodes_know_their_bytes() {
        let text = "# größe\nname: wéb # here\nchain: \"a -> b\"\nlist: [x, 'y']\n";
        let root = parse(text).expect("valid");
        assert_eq!(&text[entry(&root, "name").span.clone()], "wéb");
        assert_eq!(&text[entry(&root, "chain").span.clone()], "\"a -> b\"");
        let Value::List(items) = &entry(&root, "list").value else { panic!("a list") };
        assert_eq!(&text[items[1].span.clone()], "'y'");
        assert_eq!(items[1].value, Value::Scalar("y".into()));
    }

    #[test]
    fn json_is_yaml() {
        let text = "{\n\t\"name\": \"web\",\n\t\"nodes\": [{\"id\": \"a\"}], \"n\": 1.5e3}";
        let root = parse(text).expect("valid");
        assert_eq!(entry(&root, "name").value, Value::Scalar("web".into()));
        assert_eq!(entry(&root, "n").value, Value::Scalar("1.5e3".into()));
    }

    #[test]
    fn unsupported_yaml_is_rejected_with_its_position() {
        for (text, message, at) in [
            ("", "empty", ""),
            ("# nothing\n", "empty", ""),
            ("a: 1\na: 2\n", "duplicate key `a`", "a"),
            ("a: &x 1\nb: *x\n", "anchors", "1"),
            ("a: 1\n---\nb: 2\n", "second document", ""),
            ("[x]: 1\n", "a key must be a plain word", "[x]"),
        ] {
            let problem = parse(text).expect_err(text);
            assert!(problem.message.contains(message), "{problem:?}");
            assert!(text[problem.span.clone()].contains(at), "{problem:?}");
        }
    }

    #[test]
    fn broken_yaml_is_refused_where_it_breaks() {
        let problem = parse("name: web\nchain: [a -> b, c] -> d\n").expect_err("no YAML");
        assert!(problem.message.contains("not valid YAML or JSON"), "{problem:?}");
        assert!((10..35).contains(&problem.span.start), "{problem:?}");
    }

    #[test]
    fn depth_is_limited() {
        let problem = parse(&"[".repeat(20_000)).expect_err("deep");
        assert!(problem.span.end <= 20_000, "{problem:?}");
        let problem = parse(&format!("{}{}", "[".repeat(30), "]".repeat(30))).expect_err("deep");
        assert!(problem.message.contains("nested more than"), "{problem:?}");
    }

    proptest! {
        #[test]
        fn any_text_is_a_tree_or_an_error_inside_it(
            text in "([a-c]: |[a-cé\"'&*!|>%@,#-]|- |\n|  |\\[|\\]|\\{|\\}|:)*"
        ) {
            match parse(&text) {
                Ok(node) => prop_assert!(text.get(node.span).is_some()),
                Err(problem) => prop_assert!(text.get(problem.span.clone()).is_some(), "{problem:?}"),
            }
        }
    }
}
