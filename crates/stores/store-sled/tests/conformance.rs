//! The port's conformance suite against sled.

#![allow(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

use std::path::Path;
use std::sync::Arc;

use snic_ports::store::Store;
use snic_ports::store::conformance::StoreUnderTest;
use snic_store_sled::{SledOptions, SledStore};

struct Embedded {
    folder: tempfile::TempDir,
}

impl Embedded {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }
}

impl StoreUnderTest for Embedded {
    fn open(&mut self) -> Arc<dyn Store> {
        // Snapshots so often that every case meets them.
        let options = SledOptions { snapshot_groups: 25, ..SledOptions::default() };
        let opened = SledStore::open(&self.folder.path().join("store"), options).unwrap();
        assert_eq!(opened.recovered, None);
        Arc::new(opened.store)
    }

    fn scratch(&self) -> &Path {
        self.folder.path()
    }
}

snic_ports::store_conformance!(Embedded::new());
