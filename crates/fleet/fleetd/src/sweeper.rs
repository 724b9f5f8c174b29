//! Removes images that no bitstream names: of refused uploads, and of bitstreams that were deleted.
//!
//! An image is stored before its bitstream is registered, at any replica. So only images that were stored long ago are
//! removed, and an upload stores an image again that has reached half of that age. The clocks of replicas and object store
//! may differ by nearly as much.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use snic_domain::Digest;
use snic_fleet::protocol::{
    Denied, FleetAsk, FleetCommand, FleetItem, FleetList, FleetReply, LIST_MAX,
};
use snic_store_etcd::Blobs;
use tokio::sync::watch;

use crate::runner::{Leadership, RunnerHandle};

/// Most images that one pass removes.
const REMOVED_MAX: usize = 1_000;
/// Passes while an image reaches the age at which it is removed.
const PASSES: u32 = 6;

/// Images, and how long those without a bitstream are kept.
#[derive(Debug)]
pub(crate) struct KeptImages {
    pub images: Blobs,
    pub kept: Duration,
}

impl KeptImages {
    /// Stores an image so that no sweep removes it before its bitstream is registered.
    ///
    /// # Errors
    /// As [`Blobs::put`].
    pub async fn put(
        &self,
        digest: Digest,
        bytes: &[u8],
    ) -> Result<(), snic_ports::store::StoreError> {
        self.images.put_since(digest, bytes, SystemTime::now() - self.kept / 2).await
    }
}

/// Sweeps now and then while this replica leads, until `stopping`.
pub(crate) async fn run(
    images: Arc<KeptImages>,
    runner: RunnerHandle,
    mut stopping: watch::Receiver<bool>,
) {
    loop {
        tokio::select! {
            _ = stopping.wait_for(|stopping| *stopping) => return,
            () = tokio::time::sleep(images.kept / PASSES) => {}
        }
        if *runner.leadership().borrow() == Leadership::Own {
            tokio::select! {
                // A store that does not answer must not delay the end.
                _ = stopping.wait_for(|stopping| *stopping) => return,
                () = pass(&images, &runner) => {}
            }
        }
    }
}

async fn pass(images: &KeptImages, runner: &RunnerHandle) {
    let before = SystemTime::now() - images.kept;
    let named = match named(runner).await {
        Ok(named) => named,
        Err(denied) => return tracing::debug!(%denied, "images are not swept this time"),
    };
    match images.images.sweep(&named, before, REMOVED_MAX).await {
        Ok(0) => {}
        Ok(removed) => tracing::info!(removed, "images that no bitstream names were removed"),
        Err(error) => {
            let error = error.with_source();
            tracing::warn!(error, "images that no bitstream names cannot be removed");
        }
    }
}

/// The digests of all bitstreams, by pages: the leader answers others between them.
async fn named(runner: &RunnerHandle) -> Result<BTreeSet<Digest>, Denied> {
    let (mut named, mut after) = (BTreeSet::new(), None);
    loop {
        let command = FleetCommand::List { of: FleetList::Bitstreams, after, most: LIST_MAX };
        let ask = FleetAsk { tenant: None, id: None, validate_only: false, command };
        let FleetReply::Items { items, next, .. } = runner.ask(ask).await? else {
            return Err(Denied::Invalid("the leader did not answer with a list".into()));
        };
        for item in items {
            if let FleetItem::Bitstream(of, _) = item {
                named.extend(of.images.iter().map(|image| image.digest));
            }
        }
        match next {
            None => return Ok(named),
            next => after = next,
        }
    }
}
