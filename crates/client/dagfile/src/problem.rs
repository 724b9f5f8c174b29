//! Errors in DAG files, with their position.

use std::ops::Range;

use miette::{Diagnostic, LabeledSpan, NamedSource, SourceCode};
use snic_api::text::{escaped, escaped_lines, masked};

/// An error at a position of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DagFileProblem {
    pub message: String,
    /// Its position, in bytes of the text.
    pub span: Range<usize>,
    /// A label for the position.
    pub label: String,
    /// Advice on a mend.
    pub help: Option<String>,
    /// A related position with its label.
    pub other: Option<Box<(Range<usize>, String)>>,
}

impl DagFileProblem {
    /// A problem at `span` with the label `here`.
    pub fn new(span: Range<usize>, message: impl Into<String>) -> Self {
        Self { message: message.into(), span, label: "here".into(), help: None, other: None }
    }

    /// Sets the label of the position.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = label.into();
        self
    }

    /// Sets what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Adds a related position.
    #[must_use]
    pub fn other(mut self, span: Range<usize>, label: impl Into<String>) -> Self {
        self.other = Some(Box::new((span, label.into())));
        self
    }

    /// The same problem in a text that contains this one at `offset`.
    #[must_use]
    pub fn shifted(mut self, offset: usize) -> Self {
        let shift = |span: &Range<usize>| span.start + offset..span.end + offset;
        self.span = shift(&self.span);
        if let Some(other) = &mut self.other {
            other.0 = shift(&other.0);
        }
        self
    }

    /// The same problem, but at `span` and without a related position.
    #[must_use]
    pub fn moved(mut self, span: &Range<usize>) -> Self {
        self.span = span.clone();
        self.other = None;
        self
    }
}

/// An invalid DAG file, with its text for display.
#[derive(Debug, thiserror::Error)]
#[error("{}", problem.message)]
pub struct InvalidFile {
    problem: DagFileProblem,
    file: NamedSource<String>,
    text: String,
}

impl InvalidFile {
    /// The problem in the file `name`.
    pub fn new(name: &str, text: &str, problem: DagFileProblem) -> Self {
        let clamp = |span: Range<usize>| {
            let start = text.floor_char_boundary(span.start.min(text.len()));
            start..text.ceil_char_boundary(span.end.clamp(start, text.len()))
        };
        let other = problem.other.map(|other| Box::new((clamp(other.0), other.1)));
        let problem = DagFileProblem { span: clamp(problem.span), other, ..problem };
        // What a terminal would obey is masked; places stay where they are.
        let file = NamedSource::new(name, masked(text).into_owned());
        Self { problem, file, text: text.to_owned() }
    }

    /// The same for a terminal: names and words of the file that are in its texts have no control characters.
    #[must_use]
    pub fn visible(&self) -> Self {
        let text = |text: &str| escaped_lines(text).into_owned();
        let DagFileProblem { message, span, label, help, other } = &self.problem;
        let other = other.as_deref().map(|(span, label)| Box::new((span.clone(), text(label))));
        let problem = DagFileProblem {
            message: text(message),
            span: span.clone(),
            label: text(label),
            help: help.as_deref().map(text),
            other,
        };
        Self::new(&escaped(self.file()), &self.text, problem)
    }

    /// The fault and its place.
    pub fn problem(&self) -> &DagFileProblem {
        &self.problem
    }

    /// The text of the file.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The name of the file.
    pub fn file(&self) -> &str {
        self.file.name()
    }

    /// Line and column of the problem, both from 1; columns count characters.
    pub fn position(&self) -> (usize, usize) {
        let before = &self.text[..self.problem.span.start];
        let line_start = before.rfind('\n').map_or(0, |end| end + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

impl Diagnostic for InvalidFile {
    fn help<'a>(&'a self) -> Option<Box<dyn std::fmt::Display + 'a>> {
        self.problem.help.as_ref().map(|help| Box::new(help) as Box<_>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.file)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let DagFileProblem { span, label, other, .. } = &self.problem;
        let first = LabeledSpan::new_primary_with_span(Some(label.clone()), span.clone());
        let second = other
            .iter()
            .map(|other| LabeledSpan::new_with_span(Some(other.1.clone()), other.0.clone()));
        Some(Box::new(std::iter::once(first).chain(second)))
    }
}
