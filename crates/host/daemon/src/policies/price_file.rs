//! Prices of the operator, by which budgets are counted.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use snic_usage::{PRICES_FILE, Prices};

use crate::settings::Settings;

/// The file with prices, and the text that was last accepted.
pub struct PriceFile {
    path: Option<PathBuf>,
    accepted: PathBuf,
}

impl PriceFile {
    /// The one in the folder of the policies.
    pub fn new(settings: &Settings) -> Self {
        let path = settings.policies_dir.as_ref().map(|folder| folder.join(PRICES_FILE));
        Self { path, accepted: settings.data_dir.join("policies").join(PRICES_FILE) }
    }

    /// Reads it. Gives the prices in force, none where there is no file, and why the file was rejected: what was accepted last stays then,
    /// also over a restart.
    pub fn read(&self) -> (Option<Arc<Prices>>, Option<String>) {
        let Some(path) = &self.path else { return (None, None) };
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return (None, None),
            Err(error) => return self.reject(path, &error.to_string()),
        };
        match Prices::parse(&text) {
            Ok(prices) => {
                self.accept(&text);
                (Some(Arc::new(prices)), None)
            }
            Err(error) => self.reject(path, &error),
        }
    }

    fn reject(&self, path: &Path, error: &str) -> (Option<Arc<Prices>>, Option<String>) {
        let text = format!("{}: {error}; what was accepted last stays in force", path.display());
        tracing::error!("{text}");
        let last = std::fs::read_to_string(&self.accepted).ok();
        (last.and_then(|last| Prices::parse(&last).ok()).map(Arc::new), Some(text))
    }

    fn accept(&self, text: &str) {
        if std::fs::read_to_string(&self.accepted).is_ok_and(|kept| kept == text) {
            return;
        }
        let folder = self.accepted.parent().map_or(Ok(()), std::fs::create_dir_all);
        let kept = folder.map_err(anyhow::Error::from);
        let kept =
            kept.and_then(|()| crate::secrets::write(&self.accepted, text.as_bytes(), 0o600));
        if let Err(error) = kept {
            let error = format!("{error:#}");
            tracing::warn!(error, "the accepted prices cannot be kept for the next start");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_file_does_not_take_the_prices_away_and_a_missing_one_does() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join(PRICES_FILE);
        let prices = PriceFile {
            path: Some(path.clone()),
            accepted: folder.path().join("data/policies").join(PRICES_FILE),
        };
        let read = || {
            let (prices, rejected) = prices.read();
            (prices.map(|prices| prices.currency.clone()), rejected)
        };
        assert_eq!(read(), (None, None));
        let shipped = include_str!("../../../../../policies/prices.toml");
        std::fs::write(&path, shipped).expect("it is written");
        assert_eq!(read(), (Some("EUR".to_owned()), None));
        std::fs::write(&path, "currency = 7").expect("it is written");
        let (kept, rejected) = read();
        assert_eq!(kept.as_deref(), Some("EUR"), "what was accepted last");
        assert!(rejected.expect("it is wrong").contains("prices.toml: "));
        std::fs::remove_file(&path).expect("it is there");
        assert_eq!(read(), (None, None));
    }
}
