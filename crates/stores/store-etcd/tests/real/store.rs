//! The port's conformance suite against etcd and a folder of blobs, and what a store does when etcd is away.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use snic_ports::store::conformance::StoreUnderTest;
use snic_ports::store::{Batch, Store, StoreError};
use snic_store_etcd::{EtcdSettings, EtcdStore, EtcdStoreSettings, folder_of_blobs};

use super::cluster::{Cluster, is_here};

/// The cases share an etcd while any of them runs.
fn shared() -> Arc<Cluster> {
    static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
    // A case that failed left it whole.
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let cluster = Arc::new(Cluster::start(1).unwrap());
        *shared = Arc::downgrade(&cluster);
        cluster
    })
}

pub fn settings(urls: Vec<String>, prefix: &str, blobs: &Path) -> EtcdStoreSettings {
    EtcdStoreSettings {
        etcd: EtcdSettings::plain(urls),
        prefix: prefix.to_owned(),
        blobs: folder_of_blobs(blobs).unwrap(),
        patience: Duration::from_secs(30),
    }
}

struct InEtcd {
    cluster: Arc<Cluster>,
    prefix: String,
    folder: tempfile::TempDir,
}

impl InEtcd {
    /// A store of its own; `None` without etcd.
    fn new() -> Option<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let prefix = format!("/store/{}", COUNT.fetch_add(1, Ordering::Relaxed));
        is_here().then(|| Self { cluster: shared(), prefix, folder: tempfile::tempdir().unwrap() })
    }
}

impl StoreUnderTest for InEtcd {
    fn open(&mut self) -> Arc<dyn Store> {
        let blobs = self.folder.path().join("blobs");
        let settings = settings(self.cluster.urls(), &self.prefix, &blobs);
        Arc::new(EtcdStore::open(settings).unwrap())
    }

    fn scratch(&self) -> &Path {
        self.folder.path()
    }
}

snic_ports::store_conformance!(match InEtcd::new() {
    Some(subject) => subject,
    None => return,
});

#[test]
fn changes_wait_while_etcd_is_away_and_fail_once_patience_ends() {
    let Some(mut cluster) = Cluster::start(1) else { return };
    let folder = tempfile::tempdir().unwrap();
    let settings = settings(cluster.urls(), "p", folder.path());
    let store = EtcdStore::open(settings.clone()).unwrap();
    store.apply(Batch::new().put("before", "1")).unwrap();
    cluster.kill(0);
    std::thread::scope(|scope| {
        let change = scope.spawn(|| store.apply(Batch::new().put("meanwhile", "1")));
        while store.unavailable().is_none() {
            std::thread::sleep(Duration::from_millis(10));
        }
        cluster.restart(0);
        change.join().unwrap().unwrap();
    });
    assert_eq!(store.unavailable(), None);
    assert_eq!(store.scan("").unwrap().len(), 2);
    drop(store);

    let impatient = EtcdStoreSettings { patience: Duration::ZERO, ..settings };
    let store = EtcdStore::open(impatient).unwrap();
    cluster.kill(0);
    let error = store.apply(Batch::new().put("lost", "1")).unwrap_err();
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
    cluster.restart(0);
    let error = store.apply(Batch::new().put("late", "1")).unwrap_err();
    assert!(matches!(error, StoreError::Stopped(_)), "{error}");
}

#[test]
fn a_store_with_an_unusable_prefix_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for prefix in ["", &"p".repeat(101)] {
        let settings = settings(vec!["http://127.0.0.1:1".to_owned()], prefix, folder.path());
        let error = EtcdStore::open(settings).unwrap_err().with_source();
        assert!(error.contains("1 to 100"), "{error}");
    }
}
