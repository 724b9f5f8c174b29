//! Bitstreams in an object store, named by their digest: etcd's requests are too short for them.

use std::collections::BTreeSet;
use std::path::Path as Folder;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutPayload};
use snic_domain::Digest;
use snic_ports::store::StoreError;
use tokio_stream::{Stream, StreamExt as _};

/// Blobs in a folder, which all hosts of the fleet's service share. What is stored there is synced.
///
/// # Errors
///
/// [`StoreError::Io`] if the folder cannot be made.
pub fn folder_of_blobs(folder: &Folder) -> Result<Arc<dyn ObjectStore>, StoreError> {
    let action = || format!("create {}", folder.display());
    std::fs::create_dir_all(folder).map_err(|error| StoreError::io(action(), error))?;
    match LocalFileSystem::new_with_prefix(folder) {
        Ok(files) => Ok(Arc::new(files.with_fsync(true))),
        Err(error) => Err(StoreError::io(action(), error.into())),
    }
}

/// Prefix of the names of all blobs.
const FOLDER: &str = "bitstreams";

/// Longest time of one operation of an object store, whatever it does meanwhile: longer than a bucket's own limits allow.
const OPERATION_MAX: Duration = Duration::from_secs(150);

/// Bitstreams by their digests.
#[derive(Debug, Clone)]
pub struct Blobs {
    objects: Arc<dyn ObjectStore>,
    operation_max: Duration,
}

/// Why an object store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BlobsUnusable {
    /// It says no, and will say so until somebody changes something.
    #[error("{0}")]
    Refused(String),
    /// It does not answer, or not with what was asked for. That may pass.
    #[error("{0}")]
    Away(String),
}

impl Blobs {
    /// In this store of objects.
    pub const fn new(objects: Arc<dyn ObjectStore>) -> Self {
        Self { objects, operation_max: OPERATION_MAX }
    }

    /// Checks that blobs can be stored, read, listed and removed, with a small object that is none.
    ///
    /// # Errors
    ///
    /// Checks the store; the error says what fails, why, and what to do.
    pub async fn check(&self) -> Result<(), BlobsUnusable> {
        let probe = Path::from_iter([FOLDER, &format!("check-{}", uuid::Uuid::now_v7())]);
        let what = b"written by a check of the store; it can be removed";
        let put = self.objects.put(&probe, PutPayload::from_static(what));
        self.within(put).await.map_err(|error| unusable("store", error))?;
        let read = async { self.objects.get(&probe).await?.bytes().await };
        let read = self.within(read).await.map_err(|error| unusable("read", error))?;
        if read != what.as_slice() {
            let text = "what is read is not what was stored; look at what else writes there";
            return Err(BlobsUnusable::Refused(text.to_owned()));
        }
        let mut listed = self.objects.list(Some(&Path::from(FOLDER)));
        let first = async { listed.next().await.transpose() };
        let first = self.within(first).await.map_err(|error| unusable("list", error))?;
        drop(listed);
        if first.is_none() {
            let text = "what was stored is not listed; allow s3:ListBucket below the prefix";
            return Err(BlobsUnusable::Refused(text.to_owned()));
        }
        let delete = self.objects.delete(&probe);
        self.within(delete).await.map_err(|error| unusable("remove", error))
    }

    /// Result of an operation, or an error once it has taken too long.
    async fn within<T>(
        &self,
        operation: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let limit = self.operation_max;
        tokio::time::timeout(limit, operation).await.unwrap_or_else(|_| {
            let source = format!("no answer within {} s", limit.as_secs_f32()).into();
            Err(Error::Generic { store: "images", source })
        })
    }

    /// Stores the bytes. An object that is there already is left alone if it still has its digest, and replaced if
    /// not.
    ///
    /// # Errors
    ///
    /// The bytes have another digest, or cannot be stored.
    pub async fn put(&self, digest: Digest, bytes: &[u8]) -> Result<(), StoreError> {
        self.put_since(digest, bytes, SystemTime::UNIX_EPOCH).await
    }

    /// As [`Blobs::put`], but an object last stored before `since` is stored again, which makes it too young for
    /// [`Blobs::sweep`].
    ///
    /// # Errors
    ///
    /// As [`Blobs::put`].
    pub async fn put_since(
        &self,
        digest: Digest,
        bytes: &[u8],
        since: SystemTime,
    ) -> Result<(), StoreError> {
        let actual = Digest::of(bytes);
        if actual != digest {
            return Err(StoreError::DigestMismatch { expected: digest, actual });
        }
        if self.stored_at(digest).await?.is_some_and(|stored| stored >= since)
            && self.get(digest).await.is_ok()
        {
            return Ok(());
        }
        let (path, payload) = (path(digest), PutPayload::from(bytes.to_vec()));
        let put = self.within(self.objects.put(&path, payload)).await;
        put.map(drop).map_err(|error| failed("store", digest, error))
    }

    /// The bytes, checked.
    ///
    /// # Errors
    ///
    /// There are none, they have another digest, or cannot be read.
    pub async fn get(&self, digest: Digest) -> Result<Vec<u8>, StoreError> {
        let read = async { self.objects.get(&path(digest)).await?.bytes().await };
        let bytes = self.within(read).await.map_err(|error| match error {
            Error::NotFound { .. } => StoreError::NoBlob(digest),
            error => failed("read", digest, error),
        })?;
        let actual = Digest::of(&bytes);
        if actual != digest {
            return Err(StoreError::DigestMismatch { expected: digest, actual });
        }
        Ok(bytes.into())
    }

    /// The bytes in pieces of any length, as they are read. Nobody has compared them with the digest yet, and a piece may
    /// take as long as the object store does.
    ///
    /// # Errors
    ///
    /// There are none, or the first cannot be read.
    pub async fn pieces(
        &self,
        digest: Digest,
    ) -> Result<impl Stream<Item = Result<Bytes, StoreError>> + Send + Unpin + 'static, StoreError>
    {
        let path = path(digest);
        let object = self.within(self.objects.get(&path)).await.map_err(|error| match error {
            Error::NotFound { .. } => StoreError::NoBlob(digest),
            error => failed("read", digest, error),
        })?;
        let failed = move |error| failed("read", digest, error);
        Ok(object.into_stream().map(move |piece| piece.map_err(failed)))
    }

    /// When the object was last stored, by the clock of the object store; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The object store does not say.
    pub async fn stored_at(&self, digest: Digest) -> Result<Option<SystemTime>, StoreError> {
        match self.within(self.objects.head(&path(digest))).await {
            Ok(meta) => Ok(Some(meta.last_modified.into())),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(failed("look for", digest, error)),
        }
    }

    /// Removes objects last stored before `before`, except those in `keep`: at most `most`. Returns how many it removed.
    ///
    /// # Errors
    ///
    /// The objects cannot be listed or removed.
    pub async fn sweep(
        &self,
        keep: &BTreeSet<Digest>,
        before: SystemTime,
        most: usize,
    ) -> Result<usize, StoreError> {
        let mut listed = self.objects.list(Some(&Path::from(FOLDER)));
        let mut found = Vec::new();
        while found.len() < most {
            let next = self.within(async { listed.next().await.transpose() }).await;
            let next = next.map_err(|error| StoreError::io("list the bitstreams", error.into()))?;
            let Some(object) = next else { break };
            let Some(digest) = digest_of(&object.location) else { continue };
            if !keep.contains(&digest) && SystemTime::from(object.last_modified) < before {
                found.push(digest);
            }
        }
        drop(listed);
        let mut removed = 0;
        for digest in found {
            // It may have been stored again since it was listed.
            if self.stored_at(digest).await?.is_some_and(|stored| stored < before) {
                self.delete(digest).await?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    async fn delete(&self, digest: Digest) -> Result<(), StoreError> {
        match self.within(self.objects.delete(&path(digest))).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed("remove", digest, error)),
        }
    }

    /// All digests, ascending.
    #[cfg(test)]
    async fn list(&self) -> Result<Vec<Digest>, StoreError> {
        let folder = Path::from(FOLDER);
        let listed = self.within(self.objects.list_with_delimiter(Some(&folder))).await;
        let listed = listed.map_err(|error| StoreError::io("list the bitstreams", error.into()))?;
        let mut digests: Vec<Digest> =
            listed.objects.iter().filter_map(|object| digest_of(&object.location)).collect();
        digests.sort_unstable();
        Ok(digests)
    }
}

fn digest_of(path: &Path) -> Option<Digest> {
    path.filename()?.parse().ok()
}

fn path(digest: Digest) -> Path {
    Path::from_iter([FOLDER, &digest.to_string()])
}

fn failed(verb: &str, digest: Digest, error: Error) -> StoreError {
    StoreError::io(format!("{verb} the bitstream {digest}"), error.into())
}

/// Error of a failed check of the store.
fn unusable(verb: &str, error: Error) -> BlobsUnusable {
    let hint = match &error {
        Error::NotFound { .. } => {
            "the bucket or folder does not exist; create it, or correct its name"
        }
        Error::PermissionDenied { .. } => {
            "it refuses these credentials; give them the right to put, get, list and delete objects \
             of the prefix (s3:PutObject, s3:GetObject, s3:ListBucket, s3:DeleteObject)"
        }
        Error::Unauthenticated { .. } => "there are no usable credentials",
        _ => return BlobsUnusable::Away(format!("cannot {verb} an object: {error}")),
    };
    BlobsUnusable::Refused(format!("cannot {verb} an object: {hint}: {error}"))
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;
    use object_store::throttle::{ThrottleConfig, ThrottledStore};

    use super::*;

    fn wait<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    #[test]
    fn a_rotted_object_is_refused_and_can_be_stored_again() {
        let folder_of_files = tempfile::tempdir().unwrap();
        for objects in [folder_of_blobs(folder_of_files.path()).unwrap(), Arc::new(InMemory::new())]
        {
            let (blobs, digest) = (Blobs::new(Arc::clone(&objects)), Digest::of(b"bits"));
            wait(async {
                blobs.put(digest, b"bits").await.unwrap();
                objects.put(&path(digest), PutPayload::from_static(b"bitz")).await.unwrap();
                let error = blobs.get(digest).await.unwrap_err();
                assert!(matches!(error, StoreError::DigestMismatch { .. }), "{error}");
                blobs.put(digest, b"bits").await.unwrap();
                assert_eq!(blobs.get(digest).await.unwrap(), b"bits");
                let foreign = Path::from_iter([FOLDER, "README"]);
                objects.put(&foreign, PutPayload::from_static(b"")).await.unwrap();
                assert_eq!(blobs.list().await.unwrap(), [digest]);
            });
        }
    }

    #[test]
    fn an_object_is_read_in_pieces_that_make_a_whole() {
        let folder_of_files = tempfile::tempdir().unwrap();
        for objects in [folder_of_blobs(folder_of_files.path()).unwrap(), Arc::new(InMemory::new())]
        {
            let bytes: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
            let (blobs, digest) = (Blobs::new(objects), Digest::of(&bytes));
            wait(async {
                let absent = blobs.pieces(digest).await.map(drop).unwrap_err();
                assert!(matches!(absent, StoreError::NoBlob(of) if of == digest), "{absent}");
                blobs.put(digest, &bytes).await.unwrap();
                let mut pieces = blobs.pieces(digest).await.unwrap();
                let mut whole = Vec::new();
                while let Some(piece) = pieces.next().await {
                    whole.extend(piece.unwrap());
                }
                assert!(whole == bytes, "{} bytes of {}", whole.len(), bytes.len());
            });
        }
    }

    #[test]
    fn a_sweep_removes_what_is_old_and_not_kept_so_many_at_a_time() {
        let folder_of_files = tempfile::tempdir().unwrap();
        for objects in [folder_of_blobs(folder_of_files.path()).unwrap(), Arc::new(InMemory::new())]
        {
            let blobs = Blobs::new(objects);
            let hour = Duration::from_secs(3_600);
            let (past, future) = (SystemTime::now() - hour, SystemTime::now() + hour);
            let digests: Vec<Digest> = (0..5u8).map(|i| Digest::of(&[i])).collect();
            let keep = BTreeSet::from([digests[3]]);
            wait(async {
                for i in 0..5u8 {
                    blobs.put(digests[usize::from(i)], &[i]).await.unwrap();
                }
                assert_eq!(blobs.sweep(&keep, past, 10).await.unwrap(), 0, "all are young");
                assert_eq!(blobs.sweep(&keep, future, 3).await.unwrap(), 3);
                assert_eq!(blobs.list().await.unwrap().len(), 2);
                assert_eq!(blobs.sweep(&keep, future, 3).await.unwrap(), 1);
                assert_eq!(blobs.list().await.unwrap(), [digests[3]]);
                assert_eq!(blobs.sweep(&keep, future, 3).await.unwrap(), 0);
            });
        }
    }

    #[test]
    fn what_is_stored_again_is_young_again() {
        let folder = tempfile::tempdir().unwrap();
        let (blobs, digest) =
            (Blobs::new(folder_of_blobs(folder.path()).unwrap()), Digest::of(b"bits"));
        let hour = Duration::from_secs(3_600);
        let old = SystemTime::now() - 10 * hour;
        wait(async {
            blobs.put(digest, b"bits").await.unwrap();
            let file = folder.path().join(FOLDER).join(digest.to_string());
            let age = || std::fs::File::options().write(true).open(&file).unwrap();
            age().set_modified(old).unwrap();
            blobs.put_since(digest, b"bits", old - hour).await.unwrap();
            assert!(blobs.stored_at(digest).await.unwrap().unwrap() < old + hour, "left alone");
            blobs.put_since(digest, b"bits", old + hour).await.unwrap();
            assert!(blobs.stored_at(digest).await.unwrap().unwrap() > old + hour, "stored again");
            assert_eq!(blobs.stored_at(Digest::of(b"other")).await.unwrap(), None);
        });
    }

    /// A folder on a share that does not answer has no limits of its own.
    #[test]
    fn an_operation_that_takes_too_long_ends() {
        let hour = Duration::from_secs(3_600);
        let slow = ThrottleConfig {
            wait_get_per_call: hour,
            wait_put_per_call: hour,
            wait_list_per_call: hour,
            wait_list_with_delimiter_per_call: hour,
            wait_delete_per_call: hour,
            ..ThrottleConfig::default()
        };
        let objects = Arc::new(ThrottledStore::new(InMemory::new(), slow));
        let blobs = Blobs { objects, operation_max: Duration::from_millis(10) };
        let (digest, keep) = (Digest::of(b"bits"), BTreeSet::new());
        wait(async {
            let errors = [
                blobs.put(digest, b"bits").await.unwrap_err(),
                blobs.get(digest).await.unwrap_err(),
                blobs.stored_at(digest).await.unwrap_err(),
                blobs.sweep(&keep, SystemTime::now(), 1).await.unwrap_err(),
                blobs.delete(digest).await.unwrap_err(),
                blobs.list().await.unwrap_err(),
            ];
            for error in errors {
                assert!(error.with_source().contains("no answer within 0.01 s"), "{error}");
            }
            assert!(matches!(blobs.check().await, Err(BlobsUnusable::Away(_))));
        });
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        std::fs::write(&file, b"").unwrap();
        let error = folder_of_blobs(&file.join("blobs")).unwrap_err().to_string();
        assert!(error.contains("file/blobs"), "{error}");
    }
}
