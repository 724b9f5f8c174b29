//! The chain notation of a DAG: `nat -> [firewall, kv-cache -> lb] -> aes`.
//!
//! ```text
//! chain  = step { "->" step }
//! step   = task | "[" chain { "," chain } "]"
//! task   = [ id ":" ] type
//! ```
//!
//! An arrow connects every end of its left side to every beginning of its right side. A task without an
//! id is named after its type; if that name is taken, `-2`, `-3` and so on are appended, as in a DAG that
//! the API is given as a list of types. White space is ignored, so a chain may span several lines.

use std::collections::BTreeSet;
use std::ops::Range;

use snic_domain::limits::DAG_NODES_MAX;
use snic_domain::{NodeId, NtTypeId};

use super::problem::DagFileProblem;

/// Deepest nesting of forks. The parser is recursive, so without a limit a file could exhaust the stack.
const DEPTH_MAX: usize = 16;

/// A task of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its id in the DAG.
    pub id: NodeId,
    /// Type of the NT.
    pub nt: NtTypeId,
    /// Its position, in bytes of the text.
    pub span: Range<usize>,
}

/// A parsed chain: tasks in the order of the text, and edges between them by index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParsedChain {
    pub tasks: Vec<Task>,
    /// From and to.
    pub edges: Vec<(usize, usize)>,
}

/// Parses a chain.
///
/// # Errors
/// [`DagFileProblem`] with its position in `text`.
pub fn parse(text: &str) -> Result<ParsedChain, DagFileProblem> {
    let mut parser =
        Parser { text, at: 0, token: Token::End, span: 0..0, tasks: vec![], edges: vec![] };
    parser.advance();
    if parser.token == Token::Open {
        return Err(parser.fork_without_entry());
    }
    parser.chain(0)?;
    if parser.token != Token::End {
        return Err(parser.unexpected("an arrow `->` or the end of the chain"));
    }
    let tasks = named(&parser.tasks)?;
    Ok(ParsedChain { tasks, edges: parser.edges })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    Word(&'a str),
    Arrow,
    Open,
    Close,
    Comma,
    Colon,
    End,
}

/// A task before its id is chosen.
struct Raw {
    id: Option<(NodeId, Range<usize>)>,
    nt: NtTypeId,
    span: Range<usize>,
}

/// The first and last tasks of a part of a chain.
struct Ends {
    heads: Vec<usize>,
    tails: Vec<usize>,
}

struct Parser<'a> {
    text: &'a str,
    /// Where the text continues after `token`.
    at: usize,
    token: Token<'a>,
    span: Range<usize>,
    tasks: Vec<Raw>,
    edges: Vec<(usize, usize)>,
}

impl<'a> Parser<'a> {
    fn advance(&mut self) {
        let rest = self.text[self.at..].trim_start();
        let start = self.text.len() - rest.len();
        let (token, length) = match rest.chars().next() {
            None => (Token::End, 0),
            Some('[') => (Token::Open, 1),
            Some(']') => (Token::Close, 1),
            Some(',') => (Token::Comma, 1),
            Some(':') => (Token::Colon, 1),
            Some(_) if rest.starts_with("->") => (Token::Arrow, 2),
            Some(_) => {
                let ends = |letter: char| letter.is_whitespace() || "[],:".contains(letter);
                let end = rest.find(ends).unwrap_or(rest.len());
                let end = rest.find("->").map_or(end, |arrow| arrow.min(end));
                (Token::Word(&rest[..end]), end)
            }
        };
        self.at = start + length;
        self.token = token;
        self.span = start..self.at;
    }

    fn chain(&mut self, depth: usize) -> Result<Ends, DagFileProblem> {
        let mut whole = self.step(depth)?;
        while self.token == Token::Arrow {
            self.advance();
            let next = self.step(depth)?;
            for from in &whole.tails {
                self.edges.extend(next.heads.iter().map(|to| (*from, *to)));
            }
            whole.tails = next.tails;
        }
        Ok(whole)
    }

    fn step(&mut self, depth: usize) -> Result<Ends, DagFileProblem> {
        match self.token {
            Token::Open => self.fork(depth + 1),
            Token::Word(word) => self.task(word),
            _ => Err(self.unexpected("a network task or a fork `[`")),
        }
    }

    fn fork(&mut self, depth: usize) -> Result<Ends, DagFileProblem> {
        let open = self.span.clone();
        if depth > DEPTH_MAX {
            let message = format!("forks are nested more than {DEPTH_MAX} levels deep");
            return Err(DagFileProblem::new(open, message).help("use `nodes` and `edges` instead"));
        }
        let mut whole = Ends { heads: vec![], tails: vec![] };
        loop {
            self.advance();
            let branch = self.chain(depth)?;
            whole.heads.extend(branch.heads);
            whole.tails.extend(branch.tails);
            match self.token {
                Token::Comma => {}
                Token::Close => break,
                Token::End => {
                    let problem = DagFileProblem::new(open, "this fork is not closed");
                    return Err(problem.label("opened here").help("add a `]`"));
                }
                _ => return Err(self.unexpected("an arrow `->`, a comma or `]`")),
            }
        }
        self.advance();
        Ok(whole)
    }

    fn task(&mut self, word: &'a str) -> Result<Ends, DagFileProblem> {
        let first = self.span.clone();
        self.advance();
        let (id, nt, span) = if self.token == Token::Colon {
            self.advance();
            let Token::Word(nt) = self.token else {
                return Err(self.unexpected("the type of the network task, as in `fw2: firewall`"));
            };
            let last = self.span.clone();
            self.advance();
            let id = NodeId::new(word).map_err(|error| at(&first, &error))?;
            (Some((id, first.clone())), type_id(nt, &last)?, first.start..last.end)
        } else {
            (None, type_id(word, &first)?, first)
        };
        if self.tasks.len() == DAG_NODES_MAX {
            let message = format!("a DAG has at most {DAG_NODES_MAX} network tasks");
            return Err(
                DagFileProblem::new(span, message).label("remove this one, or split the DAG")
            );
        }
        self.tasks.push(Raw { id, nt, span });
        let index = self.tasks.len() - 1;
        Ok(Ends { heads: vec![index], tails: vec![index] })
    }

    fn unexpected(&self, expected: &str) -> DagFileProblem {
        let found = match self.token {
            Token::Word(word) => format!("{:?}", snic_api::render::cut(word, 40)),
            Token::Arrow => "`->`".into(),
            Token::Open => "`[`".into(),
            Token::Close => "`]`".into(),
            Token::Comma => "`,`".into(),
            Token::Colon => "`:`".into(),
            Token::End => "end".into(),
        };
        let problem =
            DagFileProblem::new(self.span.clone(), format!("unexpected {found} in the chain"));
        problem.label(format!("expected {expected}"))
    }

    fn fork_without_entry(&self) -> DagFileProblem {
        let problem = DagFileProblem::new(self.span.clone(), "the chain begins with a fork");
        problem.label("a DAG has one entry, but nothing precedes this fork").help(
            "add the task that every packet passes first, as in \
             \"nat -> [firewall, kv-cache] -> aes\"; make branches with nothing in common separate DAGs",
        )
    }
}

fn at(span: &Range<usize>, error: &impl std::fmt::Display) -> DagFileProblem {
    DagFileProblem::new(span.clone(), error.to_string())
}

/// Parses a type, given by its id or its full name.
pub fn type_id(text: &str, span: &Range<usize>) -> Result<NtTypeId, DagFileProblem> {
    NtTypeId::new(text.strip_prefix("ntTypes/").unwrap_or(text)).map_err(|error| at(span, &error))
}

/// Gives every task a unique id. Explicit ids take precedence, wherever they are.
fn named(raw: &[Raw]) -> Result<Vec<Task>, DagFileProblem> {
    let mut taken: BTreeSet<&str> = BTreeSet::new();
    for task in raw {
        let Some((id, span)) = &task.id else { continue };
        if !taken.insert(id.as_str()) {
            let first =
                raw.iter().filter_map(|task| task.id.as_ref()).find(|(other, _)| other == id);
            let problem = DagFileProblem::new(span.clone(), format!("duplicate task id {id}"));
            let problem =
                problem.label("second use").help("choose another id; ids are unique within a DAG");
            return Err(match first {
                Some((_, span)) => problem.other(span.clone(), "first use"),
                None => problem,
            });
        }
    }
    let mut automatic: BTreeSet<String> = BTreeSet::new();
    raw.iter()
        .map(|task| {
            let id = match &task.id {
                Some((id, _)) => id.clone(),
                None => free_id(task, |id| !taken.contains(id) && !automatic.contains(id))?,
            };
            automatic.insert(id.as_str().to_owned());
            Ok(Task { id, nt: task.nt.clone(), span: task.span.clone() })
        })
        .collect()
}

/// The first free id of `aes`, `aes-2`, `aes-3` and so on.
fn free_id(task: &Raw, is_free: impl Fn(&str) -> bool) -> Result<NodeId, DagFileProblem> {
    let base = task.nt.as_str().replace('.', "-");
    let text = if is_free(&base) {
        base
    } else {
        // There are more candidates than tasks, so one is always free.
        let names = (2..=DAG_NODES_MAX + 2).map(|number| format!("{base}-{number}"));
        names.into_iter().find(|name| is_free(name)).unwrap_or(base)
    };
    NodeId::new(&text).map_err(|error| {
        at(&task.span, &error).help(format!("give it a shorter id: `x: {}`", task.nt))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use snic_domain::{Bandwidth, DagSpec};

    use super::*;

    /// Ids, and edges as `a>b`.
    fn read(text: &str) -> (Vec<String>, Vec<String>) {
        let chain = parse(text).expect(text);
        let ids: Vec<String> = chain.tasks.iter().map(|task| task.id.to_string()).collect();
        let edges = chain.edges.iter().map(|(from, to)| format!("{}>{}", ids[*from], ids[*to]));
        (ids.clone(), edges.collect())
    }

    #[rstest]
    #[case("nat", "nat", "")]
    #[case("nat -> firewall -> aes", "nat firewall aes", "nat>firewall firewall>aes")]
    #[case("nat->firewall->aes", "nat firewall aes", "nat>firewall firewall>aes")]
    #[case("go-back-n->aes", "go-back-n aes", "go-back-n>aes")]
    #[case("nat -> [fw, kv] -> aes", "nat fw kv aes", "nat>fw nat>kv fw>aes kv>aes")]
    #[case("n -> [a -> b, c] -> d", "n a b c d", "a>b n>a n>c b>d c>d")]
    #[case("n -> [a, [b, c] -> d]", "n a b c d", "b>d c>d n>a n>b n>c")]
    #[case("n\n  -> a\n", "n a", "n>a")]
    #[case("n -> [a, b] -> [c, d]", "n a b c d", "n>a n>b a>c a>d b>c b>d")]
    #[case("fw -> fw2: fw", "fw fw2", "fw>fw2")]
    #[case("aes -> nat -> aes", "aes nat aes-2", "aes>nat nat>aes-2")]
    #[case("aes -> aes-2: nat -> aes", "aes aes-2 aes-3", "aes>aes-2 aes-2>aes-3")]
    #[case("aes -> aes: nat", "aes-2 aes", "aes-2>aes")]
    #[case("acme.filter -> ntTypes/nat", "acme-filter nat", "acme-filter>nat")]
    fn chains_are_read(#[case] text: &str, #[case] ids: &str, #[case] edges: &str) {
        let (found_ids, found_edges) = read(text);
        assert_eq!((found_ids.join(" "), found_edges.join(" ")), (ids.into(), edges.into()));
    }

    #[rstest]
    #[case("", "", "expected a network task")]
    #[case("nat ->", "", "expected a network task")]
    #[case("-> nat", "->", "expected a network task")]
    #[case("nat firewall", "firewall", "expected an arrow")]
    #[case("nat -> [a b]", "b", "expected an arrow `->`, a comma")]
    #[case("nat -> [a, ] -> b", "]", "expected a network task")]
    #[case("nat -> []", "]", "expected a network task")]
    #[case("nat -> a]", "]", "expected an arrow `->` or the end")]
    #[case("fw2: -> aes", "->", "expected the type")]
    fn what_is_unexpected_is_shown(#[case] text: &str, #[case] at: &str, #[case] label: &str) {
        let problem = parse(text).expect_err(text);
        assert_eq!(&text[problem.span.clone()], at, "{problem:?}");
        assert!(problem.label.contains(label), "{problem:?}");
    }

    #[rstest]
    #[case("nat -> Aes", "Aes", "\"Aes\"")]
    #[case("nat -> Fw: aes", "Fw", "\"Fw\"")]
    #[case("nat -> [a, b", "[", "not closed")]
    #[case("[a -> b, c] -> d", "[", "begins with a fork")]
    #[case("x: nat -> x: aes", "x", "duplicate task id x")]
    fn what_is_wrong_is_said(#[case] text: &str, #[case] at: &str, #[case] message: &str) {
        let problem = parse(text).expect_err(text);
        assert_eq!(&text[problem.span.clone()], at, "{problem:?}");
        assert!(problem.message.contains(message), "{problem:?}");
    }

    #[test]
    fn a_fork_at_the_beginning_says_how_to_mend_it() {
        let help = parse("[a -> b, c] -> d").expect_err("no entry").help.expect("help");
        assert!(help.contains("nat -> [firewall, kv-cache] -> aes"), "{help}");
    }

    #[test]
    fn an_automatic_id_that_would_be_too_long_asks_for_one() {
        let text = format!("nat -> {}.{}", "a".repeat(40), "b".repeat(40));
        let problem = parse(&text).expect_err("81 characters");
        assert!(problem.help.expect("help").starts_with("give it a shorter id: `x: aaa"));
    }

    #[test]
    fn limits_end_the_parser_not_the_stack() {
        let deep = format!("a -> {}", "[".repeat(100_000));
        assert!(parse(&deep).expect_err("deep").message.contains("nested"));
        let long = vec!["a"; 70].join(" -> ");
        assert!(parse(&long).expect_err("long").message.contains("at most 64"));
    }

    proptest! {
        #[test]
        fn any_text_is_a_chain_or_an_error_inside_it(text in ".{0,60}") {
            if let Err(problem) = parse(&text) {
                prop_assert!(text.get(problem.span.clone()).is_some(), "{:?}", problem);
            }
        }

        #[test]
        fn any_tokens_are_a_chain_or_an_error_inside_them(
            tokens in prop::collection::vec("->|\\[|\\]|,|:|a|b|aes-2|é| |\n", 0..40)
        ) {
            let text = tokens.concat();
            match parse(&text) {
                Err(problem) => {
                    prop_assert!(text.get(problem.span.clone()).is_some(), "{:?}", problem);
                }
                Ok(chain) => {
                    let ids: BTreeSet<_> = chain.tasks.iter().map(|task| &task.id).collect();
                    prop_assert_eq!(ids.len(), chain.tasks.len());
                    for (from, to) in chain.edges {
                        prop_assert!(from < to, "edges lead on");
                    }
                }
            }
        }

        /// A chain of types is the same DAG, however it is given.
        #[test]
        fn ids_are_those_of_a_chain_of_types(
            types in prop::collection::vec("(aes|nat|acme\\.x|fw)", 1..20)
        ) {
            let chain = parse(&types.join(" -> "))?;
            let nts: Vec<NtTypeId> = chain.tasks.iter().map(|task| task.nt.clone()).collect();
            let spec = DagSpec::chain(&nts, Bandwidth::from_gbps(1));
            let expected: Vec<NodeId> = spec.nodes.iter().map(|node| node.id.clone()).collect();
            let found: Vec<NodeId> = chain.tasks.into_iter().map(|task| task.id).collect();
            prop_assert_eq!(found, expected);
        }
    }

    impl From<DagFileProblem> for TestCaseError {
        fn from(problem: DagFileProblem) -> Self {
            Self::fail(format!("{problem:?}"))
        }
    }
}
