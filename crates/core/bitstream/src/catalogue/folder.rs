//! Card profiles of an operator, read at run time.

use std::io;
use std::path::{Path, PathBuf};

use super::{Catalogue, File, InvalidCatalogue, builtin};

/// Why a folder of card profiles cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UnusableProfiles {
    /// The folder or a file in it cannot be read.
    #[error("read the card profiles {}: {source}", path.display())]
    Unreadable {
        /// Path that could not be read.
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A mistake in a file, or in one that is compiled in, which a test rules out.
    #[error(transparent)]
    Invalid(#[from] InvalidCatalogue),
}

/// The catalogue that is compiled in, with the card profiles (`*.toml`) of a folder. A profile of a model
/// that is compiled in takes its place.
///
/// # Errors
///
/// [`UnusableProfiles`], with the file, its line and its key where there is a mistake in it.
pub fn with_profiles(folder: Option<&Path>) -> Result<Catalogue, UnusableProfiles> {
    let catalogue = builtin()?;
    let Some(folder) = folder else { return Ok(catalogue) };
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| UnusableProfiles::Unreadable { path, source }
    };
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed(folder))? {
        let path = entry.map_err(failed(folder))?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            paths.push(path);
        }
    }
    paths.sort_unstable();
    let mut texts = Vec::with_capacity(paths.len());
    for path in &paths {
        let text = std::fs::read_to_string(path).map_err(failed(path))?;
        texts.push((path.display().to_string(), text));
    }
    let files: Vec<_> = texts.iter().map(|(name, text)| File { name, text }).collect();
    Ok(catalogue.with_cards(&files)?)
}

#[cfg(test)]
mod tests {
    use super::super::BUILTIN;
    use super::*;

    fn folder(files: &[(&str, String)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("a file");
        }
        folder
    }

    fn profile(model: &str, regions: u8) -> String {
        let text = BUILTIN.cards[0].text.replace("\"sim-16\"", &format!("{model:?}"));
        text.replace("count = 14", &format!("count = {regions}"))
    }

    #[test]
    fn a_profile_of_the_folder_is_there_beside_those_compiled_in() {
        let folder =
            folder(&[("mine.toml", profile("mine", 3)), ("notes.txt", "no TOML [".into())]);
        let catalogue = with_profiles(Some(folder.path())).expect("valid");
        let regions = |model: &str| {
            let card = catalogue.cards.iter().find(|card| card.model.as_str() == model);
            card.map(|card| card.regions.len())
        };
        assert_eq!((regions("mine"), regions("sim-16")), (Some(5), Some(16)));
        let plan = catalogue.floor_plans.iter().find(|plan| plan.model.as_str() == "mine");
        assert!(plan.is_some());
    }

    #[test]
    fn one_of_the_same_model_takes_the_place_and_loses_chains_that_do_not_fit() {
        let small = profile("sim-16", 2).replace("lut = 60_000", "lut = 2_000");
        let folder = folder(&[("sim-16.toml", small)]);
        let catalogue = with_profiles(Some(folder.path())).expect("valid");
        let model = BUILTIN.cards[0].name;
        let card = &catalogue.cards[0];
        assert_eq!(
            (card.regions.len(), catalogue.cards.len()),
            (4, BUILTIN.cards.len()),
            "{model}"
        );
        let before = builtin().expect("valid");
        let (few, many) =
            (catalogue.chains_for(&card.model).count(), before.chains_for(&card.model).count());
        assert!(few < many, "{few} of {many} chains fit 2,000 LUTs");
    }

    #[test]
    fn a_mistake_is_answered_with_file_line_and_key() {
        let folder = folder(&[("mine.toml", profile("mine", 99))]);
        let error = with_profiles(Some(folder.path())).expect_err("too many regions").to_string();
        let file = folder.path().join("mine.toml").display().to_string();
        assert!(error.starts_with(&file) && error.contains("regions[0].count"), "{error}");
        let missing = folder.path().join("missing");
        let error = with_profiles(Some(&missing)).expect_err("no folder").to_string();
        assert!(error.contains("missing"), "{error}");
    }

    #[test]
    fn two_files_of_one_model_are_a_mistake() {
        let folder = folder(&[("a.toml", profile("mine", 3)), ("b.toml", profile("mine", 4))]);
        let error = with_profiles(Some(folder.path())).expect_err("twice").to_string();
        assert!(error.contains("b.toml") && error.contains("mine"), "{error}");
    }
}
