//! Policies: TOML files, checked whole, whose shipped version is the default.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

/// The file that ships with the program.
const PLACEMENT: &str = include_str!("../../../policies/placement.toml");

/// A policy file that is not used.
#[derive(Debug, thiserror::Error)]
pub enum InvalidPolicy {
    /// It cannot be read.
    #[error("policy file {path}: {source}")]
    Read {
        /// Which.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It is not TOML, or a key is wrong.
    #[error("{path}:{line}: {message}")]
    Key {
        /// Which.
        path: String,
        /// Where.
        line: usize,
        /// What is wrong, and what is allowed.
        message: String,
    },
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Placement {
    #[serde(default)]
    reconfiguration: Reconfiguration,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Reconfiguration {
    attempts: Option<toml::Spanned<u64>>,
    backoff_ms: Option<toml::Spanned<u64>>,
    backoff_max_ms: Option<toml::Spanned<u64>>,
}

/// A file while it is checked.
struct Source<'a> {
    path: String,
    text: &'a str,
}

impl Source<'_> {
    fn wrong(&self, at: usize, message: String) -> InvalidPolicy {
        let line = self.text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
        InvalidPolicy::Key { path: self.path.clone(), line, message }
    }

    /// A value in its range; the default where the key is missing.
    fn value(
        &self,
        key: &str,
        value: Option<&toml::Spanned<u64>>,
        default: u64,
        (min, max): (u64, u64),
    ) -> Result<u64, InvalidPolicy> {
        let Some(value) = value else { return Ok(default) };
        let number = *value.get_ref();
        if (min..=max).contains(&number) {
            return Ok(number);
        }
        let message = format!("{key} = {number} is not allowed: {min} to {max}");
        Err(self.wrong(value.span().start, message))
    }
}

/// Reads `placement.toml` from a folder; without one, what ships.
pub fn placement(folder: Option<&Path>) -> Result<snic_controller::Settings, InvalidPolicy> {
    let Some(folder) = folder else { return parse("policies/placement.toml", PLACEMENT) };
    let path = folder.join("placement.toml");
    let name = path.display().to_string();
    let text = std::fs::read_to_string(&path)
        .map_err(|source| InvalidPolicy::Read { path: name.clone(), source })?;
    parse(&name, &text)
}

fn parse(path: &str, text: &str) -> Result<snic_controller::Settings, InvalidPolicy> {
    let source = Source { path: path.to_owned(), text };
    let policy: Placement = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        source.wrong(at, error.message().replace('\n', "; "))
    })?;
    let keys = policy.reconfiguration;
    let attempts = source.value("reconfiguration.attempts", keys.attempts.as_ref(), 3, (1, 100))?;
    let backoff =
        source.value("reconfiguration.backoff_ms", keys.backoff_ms.as_ref(), 20, (1, 60_000))?;
    let longest = source.value(
        "reconfiguration.backoff_max_ms",
        keys.backoff_max_ms.as_ref(),
        backoff.max(5_000),
        (backoff, 600_000),
    )?;
    Ok(snic_controller::Settings {
        load_attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
        backoff: Duration::from_millis(backoff),
        backoff_max: Duration::from_millis(longest),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse("placement.toml", text).expect_err(text).to_string()
    }

    #[test]
    fn the_file_that_ships_says_what_an_empty_one_means() {
        let shipped = placement(None).expect("it ships");
        assert_eq!(shipped, parse("x", "").expect("nothing set"));
        assert_eq!(shipped, snic_controller::Settings::default());
    }

    #[test]
    fn errors_name_file_line_key_and_range() {
        let text = "[reconfiguration]\nattempts = 0\n";
        assert_eq!(
            error(text),
            "placement.toml:2: reconfiguration.attempts = 0 is not allowed: 1 to 100"
        );
        assert!(error("[reconfiguration]\ntries = 3").starts_with("placement.toml:2: "));
        let crossed = "[reconfiguration]\nbackoff_ms = 100\nbackoff_max_ms = 50";
        assert!(error(crossed).contains("50 is not allowed: 100 to 600000"), "{}", error(crossed));
        assert!(error("[reconfiguration]\nattempts = -1").starts_with("placement.toml:2: "));
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = placement(Some(Path::new("/nonexistent"))).expect_err("missing");
        assert!(error.to_string().contains("/nonexistent/placement.toml"), "{error}");
    }
}
