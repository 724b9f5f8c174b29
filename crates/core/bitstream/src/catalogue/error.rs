//! Faults of a catalogue, and their places.

use std::ops::Range;

use serde::de::DeserializeOwned;
use snic_domain::{Area, CardModel, InvalidDag, InvalidId, NtCode, NtTypeId, RegionKind, TenantId};

use super::File;
use crate::upload::kind_name;

/// A mistake in a catalogue file: `bitstreams/chains.toml:7: chains[1].nts[0]: NT type nut …`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {key}: {problem}")]
pub struct InvalidCatalogue {
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The key, as a path where the file could be parsed.
    pub key: String,
    pub problem: CatalogueProblem,
}

/// Fault of a catalogue file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogueProblem {
    /// No TOML, an unknown or missing key, or a value of the wrong type.
    #[error("{0}")]
    Toml(String),
    /// A value outside of its range.
    #[error("{value} is not allowed; {allowed}")]
    Range { value: String, allowed: String },
    /// The same id twice.
    #[error("{id} is a duplicate; ids are unique")]
    Duplicate { id: String },
    /// Two NTs with one code.
    #[error("NT types {nt} and {other} have the same code {:#010x}; rename one of them", code.0)]
    CodeCollision { nt: NtTypeId, other: NtTypeId, code: NtCode },
    /// An NT of a tenant.
    #[error("{id} belongs to a tenant; the catalogue holds what is the provider's")]
    Owned { id: String },
    /// An NT that no card has room for.
    #[error("the NT needs {needed}; no region of any card has that much")]
    NoRoom { needed: Area },
    /// An NT that is not in the catalogue.
    #[error("NT type {nt} is not in the catalogue")]
    UnknownNt { nt: NtTypeId },
    /// A card model without a profile.
    #[error("card model {model} has no profile")]
    UnknownCard { model: CardModel },
    /// A tenant that the file does not list.
    #[error("tenant {tenant} is not in this file")]
    UnknownTenant { tenant: TenantId },
    /// A chain that fits no region of a card.
    #[error("the NTs need {needed}; no {} region of card model {model} has that much", kind_name(*kind))]
    Area {
        needed: Area,
        /// The kind of region.
        kind: RegionKind,
        model: CardModel,
    },
    /// A DAG that is none.
    #[error(transparent)]
    Dag(InvalidDag),
    /// An id that is none.
    #[error(transparent)]
    Id(InvalidId),
    /// Neither a chain nor a graph, or both.
    #[error("give either `chain`, or `nodes` and `edges`")]
    Shape,
}

impl File<'_> {
    /// Reads the file as a `T`.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, InvalidCatalogue> {
        toml::from_str(self.text).map_err(|error| {
            let span = error.span().unwrap_or_default();
            let key = self.key_at(span.start);
            self.error(span, key, CatalogueProblem::Toml(error.message().to_owned()))
        })
    }

    /// A mistake at a place of this file.
    pub(super) fn error(
        &self,
        span: Range<usize>,
        key: String,
        problem: CatalogueProblem,
    ) -> InvalidCatalogue {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        InvalidCatalogue { file: self.name.to_owned(), line, key, problem }
    }

    /// The key before or at a place: the last of the text's lines up to there that has one. Only
    /// for messages about files that could not be parsed.
    fn key_at(&self, at: usize) -> String {
        let end = self
            .text
            .get(at..)
            .and_then(|rest| rest.find('\n'))
            .map_or(self.text.len(), |n| at + n);
        let lines = self.text.get(..end).unwrap_or_default().lines().rev();
        let key = |line: &str| {
            let line = line.trim();
            match line.split_once('=') {
                _ if line.starts_with('#') => None,
                Some((key, _)) => Some(key.trim().to_owned()),
                None => line.strip_prefix('[').map(|_| line.to_owned()),
            }
        };
        lines.filter_map(key).next().unwrap_or_else(|| "file".to_owned())
    }
}
