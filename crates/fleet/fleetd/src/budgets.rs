//! Budgets: their settings, and the prices of this replica.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use snic_usage::Prices;

/// Settings of budgets.
#[derive(Debug, Clone)]
pub struct BudgetSettings {
    /// The operator's prices; without them there are no budgets.
    pub prices: Option<PathBuf>,
    /// Time between two looks at what was spent.
    pub period: Duration,
}

impl Default for BudgetSettings {
    fn default() -> Self {
        Self { prices: None, period: Duration::from_secs(30) }
    }
}

/// The file with prices, and those that were read last.
#[derive(Debug)]
pub(crate) struct ReplicaPrices {
    path: Option<PathBuf>,
    accepted: Mutex<Option<Arc<Prices>>>,
}

impl ReplicaPrices {
    pub fn new(path: Option<PathBuf>) -> Self {
        Self { path, accepted: Mutex::default() }
    }

    /// Reads the file. A wrong one changes nothing; where it is gone, there are no prices.
    pub fn read(&self) -> Option<Arc<Prices>> {
        let path = self.path.as_ref()?;
        let mut accepted = self.accepted.lock();
        match std::fs::read_to_string(path) {
            Ok(text) => match Prices::parse(&text) {
                Ok(prices) => *accepted = Some(Arc::new(prices)),
                Err(error) => {
                    let path = path.display();
                    tracing::warn!(%path, error, "the prices are wrong; what was in force stays");
                }
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => *accepted = None,
            Err(error) => {
                let path = path.display();
                tracing::warn!(%path, %error, "the prices cannot be read; what was in force stays");
            }
        }
        accepted.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_file_changes_nothing_and_a_missing_one_takes_the_prices_away() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("prices.toml");
        let prices = ReplicaPrices::new(Some(path.clone()));
        let currency = || prices.read().map(|prices| prices.currency.clone());
        assert_eq!(currency(), None);
        let shipped = include_str!("../../../../policies/prices.toml");
        std::fs::write(&path, shipped).expect("written");
        let before = currency();
        assert!(before.is_some());
        std::fs::write(&path, "currency = 1").expect("written");
        assert_eq!(currency(), before);
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(currency(), None);
        assert!(ReplicaPrices::new(None).read().is_none());
    }
}
