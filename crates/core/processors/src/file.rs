//! The files: TOML in `bitstreams/models`, and in a folder of the operator's. A mistake is reported with
//! file, line and key.

use std::collections::BTreeSet;
use std::io;
use std::num::NonZeroU32;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use snic_domain::{Bandwidth, CardModel};
use toml::Spanned;

use crate::model::{Architecture, CardShell, Implementation, NicModel, Processor, served};

/// A mistake in a file of card models.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {key}: {problem}")]
pub struct InvalidModel {
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The key, or the table.
    pub key: String,
    /// The fault, and what is allowed.
    pub problem: String,
}

/// Why a folder of card models cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UnusableModels {
    /// The folder or a file in it cannot be read.
    #[error("read the card models {}: {source}", path.display())]
    Unreadable {
        /// Path that could not be read.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A mistake in a file.
    #[error(transparent)]
    Invalid(#[from] InvalidModel),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    models: Vec<Spanned<RawModel>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawModel {
    model: CardModel,
    vendor: String,
    name: String,
    released: Option<u16>,
    architecture: Architecture,
    #[serde(rename = "line_bps", deserialize_with = "served")]
    line: Bandwidth,
    pcie: String,
    programming: Option<String>,
    luts: Option<NonZeroU32>,
    #[serde(default)]
    features: String,
    card: Option<CardShell>,
    #[serde(default)]
    processors: Vec<Spanned<Processor>>,
    #[serde(default)]
    implementations: Vec<Spanned<Implementation>>,
}

/// Card models that are compiled in: file name and text.
const BUILTIN: [(&str, &str); 2] = [
    (
        "bitstreams/models/bluefield-3.toml",
        include_str!("../../../../bitstreams/models/bluefield-3.toml"),
    ),
    (
        "bitstreams/models/inventory.toml",
        include_str!("../../../../bitstreams/models/inventory.toml"),
    ),
];

/// The card models that are compiled in.
///
/// # Errors
/// [`InvalidModel`] if a file of this project is invalid, which a test rules out.
pub fn builtin() -> Result<Vec<NicModel>, InvalidModel> {
    let mut models = Vec::new();
    for (name, text) in BUILTIN {
        models.extend(parse(name, text)?);
    }
    Ok(models)
}

/// Those that are compiled in, with those of a folder's `*.toml`. One of a model that is compiled in takes
/// its place.
///
/// # Errors
/// [`UnusableModels`], with file, line and key where there is a mistake.
pub fn with_folder(folder: Option<&Path>) -> Result<Vec<NicModel>, UnusableModels> {
    let mut models = builtin()?;
    let Some(folder) = folder else { return Ok(models) };
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| UnusableModels::Unreadable { path, source }
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed(folder))? {
        let path = entry.map_err(failed(folder))?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    for path in paths {
        let text = std::fs::read_to_string(&path).map_err(failed(&path))?;
        for model in parse(&path.display().to_string(), &text)? {
            match models.iter_mut().find(|old| old.model == model.model) {
                Some(old) => *old = model,
                None => models.push(model),
            }
        }
    }
    Ok(models)
}

/// Parses a file: one or more `[[models]]`.
///
/// # Errors
/// [`InvalidModel`] with the first mistake.
pub fn parse(file: &str, text: &str) -> Result<Vec<NicModel>, InvalidModel> {
    let here = SourceFile { file, text };
    let raw: RawFile = toml::from_str(text).map_err(|error| {
        here.error(error.span().unwrap_or_default(), None, error.message().to_owned())
    })?;
    let mut seen = BTreeSet::new();
    let mut models = Vec::with_capacity(raw.models.len());
    for raw in raw.models {
        let span = raw.span();
        let raw = raw.into_inner();
        if !seen.insert(raw.model.clone()) {
            let problem = format!("{} is a duplicate; a file has each model once", raw.model);
            return Err(here.error(span, Some("models.model"), problem));
        }
        models.push(check(&here, raw)?);
    }
    Ok(models)
}

fn check(here: &SourceFile<'_>, raw: RawModel) -> Result<NicModel, InvalidModel> {
    let mut processors: Vec<Processor> = Vec::new();
    for spanned in raw.processors {
        let span = spanned.span();
        let processor = spanned.into_inner();
        let fail = |key: &str, problem: String| Err(here.error(span.clone(), Some(key), problem));
        if processors.iter().any(|other| other.kind == processor.kind) {
            let name = processor.kind.name();
            return fail("processors.kind", format!("{name} is a duplicate; give each kind once"));
        }
        if let (Some(usable), Some(all)) = (processor.threads_usable, processor.threads)
            && usable > all
        {
            let problem = format!("{usable} is not allowed; at most the {all} threads there are");
            return fail("processors.threads_usable", problem);
        }
        let mut memories = BTreeSet::new();
        if let Some(twice) = processor.memories.iter().find(|path| !memories.insert(path.memory)) {
            let name = twice.memory.name();
            return fail("processors.memories", format!("{name} is a duplicate; give each once"));
        }
        processors.push(processor);
    }
    let mut implementations: Vec<Implementation> = Vec::new();
    for spanned in raw.implementations {
        let span = spanned.span();
        let one = spanned.into_inner();
        let fail = |key: &str, problem: String| Err(here.error(span.clone(), Some(key), problem));
        let on = processors.iter().find(|processor| processor.kind == one.on);
        let Some(processor) = on else {
            let problem = format!("{} has no {} in [[processors]]", raw.model, one.on.name());
            return fail("implementations.on", problem);
        };
        if implementations.iter().any(|other| other.nt == one.nt && other.on == one.on) {
            let problem = format!("{} on {} is a duplicate", one.nt, one.on.name());
            return fail("implementations.nt", problem);
        }
        let unreached = one.points.iter().find(|point| processor.path(point.network).is_none());
        if let Some(point) = unreached {
            let (name, kind) = (point.network.name(), one.on.name());
            let problem = format!("{name} is not among the memories of {kind}");
            return fail("implementations.measured.network", problem);
        }
        implementations.push(one);
    }
    Ok(NicModel {
        model: raw.model,
        vendor: raw.vendor,
        name: raw.name,
        released: raw.released,
        architecture: raw.architecture,
        line: raw.line,
        pcie: raw.pcie,
        programming: raw.programming,
        luts: raw.luts,
        features: raw.features,
        card: raw.card,
        processors,
        implementations,
    })
}

/// A file, for messages.
struct SourceFile<'a> {
    file: &'a str,
    text: &'a str,
}

impl SourceFile<'_> {
    /// Without a key, that of the line.
    fn error(&self, span: Range<usize>, key: Option<&str>, problem: String) -> InvalidModel {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.matches('\n').count();
        let of_line = || {
            let text = self.text.lines().nth(line).unwrap_or_default();
            text.split('=').next().unwrap_or_default().trim().to_owned()
        };
        let key = key.map_or_else(of_line, str::to_owned);
        InvalidModel { file: self.file.to_owned(), line: line + 1, key, problem }
    }
}
