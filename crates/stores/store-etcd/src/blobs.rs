//! Bitstreams in an object store, named by their digest: etcd's requests are too short for them.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use snic_domain::Digest;
use snic_ports::store::StoreError;
use tokio_stream::{Stream, StreamExt as _};

#[cfg(feature = "s3")]
use crate::bucket::{self, BucketSettings};
use crate::folder::FolderObjects;
use crate::object::{ErrorKind, ObjectError, ObjectName};
use crate::objects::Objects;

/// Blobs in a folder, which all hosts of the fleet's service share. What is stored there is synced.
///
/// # Errors
///
/// [`StoreError::Io`] if the folder cannot be made.
pub fn folder_of_blobs(folder: &Path) -> Result<Objects, StoreError> {
    let opened = FolderObjects::open(folder).map(Objects::Folder);
    opened.map_err(|error| StoreError::io(format!("create {}", folder.display()), error))
}

/// Blobs in a bucket. Nothing is asked of it yet: [`Blobs::check`] does.
///
/// # Errors
///
/// [`StoreError::Io`] if the settings cannot be used.
#[cfg(feature = "s3")]
pub fn bucket_of_blobs(settings: &BucketSettings) -> Result<Objects, StoreError> {
    bucket::open(settings).map(Objects::Bucket)
}

/// Longest time of one operation of an object store, whatever it does meanwhile: longer than a bucket's own limits allow.
const OPERATION_MAX: Duration = Duration::from_secs(150);

/// Bitstreams by their digests.
#[derive(Debug, Clone)]
pub struct Blobs {
    objects: Objects,
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
    pub const fn new(objects: Objects) -> Self {
        Self { objects, operation_max: OPERATION_MAX }
    }

    /// Checks that blobs can be stored, read, listed and removed, with a small object that is none.
    ///
    /// # Errors
    ///
    /// Checks the store; the error says what fails, why, and what to do.
    pub async fn check(&self) -> Result<(), BlobsUnusable> {
        let probe = ObjectName::new_probe();
        let what = Bytes::from_static(b"written by a check of the store; it can be removed");
        let put = self.objects.put(probe, what.clone());
        self.within(put).await.map_err(|error| self.unusable("store", error))?;
        let read = self.within(self.objects.get(probe)).await;
        if read.map_err(|error| self.unusable("read", error))? != what {
            let text = "what is read is not what was stored; look at what else writes there";
            return Err(BlobsUnusable::Refused(text.to_owned()));
        }
        let mut listed = self.objects.list();
        let first = self.within(listed.next()).await;
        if first.map_err(|error| self.unusable("list", error))?.is_none() {
            let text = "what was stored is not listed; allow s3:ListBucket below the prefix";
            return Err(BlobsUnusable::Refused(text.to_owned()));
        }
        drop(listed);
        let deleted = self.within(self.objects.delete(probe)).await;
        deleted.map_err(|error| self.unusable("remove", error))
    }

    /// Result of an operation, or an error once it has taken too long.
    async fn within<T>(
        &self,
        operation: impl Future<Output = Result<T, ObjectError>>,
    ) -> Result<T, ObjectError> {
        let limit = self.operation_max;
        tokio::time::timeout(limit, operation).await.unwrap_or_else(|_| {
            let text = format!("no answer within {} s", limit.as_secs_f32());
            Err(ObjectError::new(ErrorKind::Other, text))
        })
    }

    /// Error of a failed check of the store.
    fn unusable(&self, verb: &str, error: ObjectError) -> BlobsUnusable {
        let hint = match (error.kind, &self.objects) {
            (ErrorKind::NotFound, _) => {
                "the bucket or folder does not exist; create it, or correct its name"
            }
            (ErrorKind::PermissionDenied, Objects::Folder(_)) => {
                "the folder's permissions forbid it; let the user of this program list, read, write and \
                 remove files there"
            }
            #[cfg(feature = "s3")]
            (ErrorKind::PermissionDenied, Objects::Bucket(_)) => {
                "it refuses these credentials; give them the right to put, get, list and delete \
                 objects of the prefix (s3:PutObject, s3:GetObject, s3:ListBucket, s3:DeleteObject)"
            }
            #[cfg(feature = "s3")]
            (ErrorKind::Unauthenticated, _) => "there are no usable credentials",
            (ErrorKind::Other, _) => {
                return BlobsUnusable::Away(format!("cannot {verb} an object: {error}"));
            }
        };
        BlobsUnusable::Refused(format!("cannot {verb} an object: {hint}: {error}"))
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
            let synced = self.within(self.objects.sync()).await;
            return synced.map_err(|error| failed("store", digest, error));
        }
        let bytes = Bytes::copy_from_slice(bytes);
        let put = self.within(self.objects.put(ObjectName::Image(digest), bytes)).await;
        put.map_err(|error| failed("store", digest, error))
    }

    /// The bytes, checked.
    ///
    /// # Errors
    ///
    /// There are none, they have another digest, or cannot be read.
    pub async fn get(&self, digest: Digest) -> Result<Vec<u8>, StoreError> {
        let read = self.within(self.objects.get(ObjectName::Image(digest))).await;
        let bytes = read.map_err(|error| not_read(digest, error))?;
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
        let opened = self.within(self.objects.pieces(ObjectName::Image(digest))).await;
        let pieces = opened.map_err(|error| not_read(digest, error))?;
        Ok(pieces.map(move |piece| piece.map_err(|error| failed("read", digest, error))))
    }

    /// When the object was last stored, by the clock of the object store; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The object store does not say.
    pub async fn stored_at(&self, digest: Digest) -> Result<Option<SystemTime>, StoreError> {
        let stored = self.stored(ObjectName::Image(digest)).await;
        stored.map_err(|error| failed("look for", digest, error))
    }

    async fn stored(&self, name: ObjectName) -> Result<Option<SystemTime>, ObjectError> {
        match self.within(self.objects.stored_at(name)).await {
            Ok(stored) => Ok(Some(stored)),
            Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes objects last stored before `before`, except those in `keep`: at most `most`. Returns how many it removed.
    /// Among them is what checks and writers left that died.
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
        let mut listed = self.objects.list();
        let mut found = Vec::new();
        while found.len() < most {
            let next = self.within(listed.next()).await;
            let next = next.map_err(|error| StoreError::io("list the bitstreams", error.into()))?;
            let Some(object) = next else { break };
            let is_kept =
                matches!(object.name, ObjectName::Image(digest) if keep.contains(&digest));
            if !is_kept && object.stored_at < before {
                found.push(object.name);
            }
        }
        drop(listed);
        let mut removed = 0;
        for name in found {
            let failed =
                |verb, error: ObjectError| StoreError::io(format!("{verb} {name}"), error.into());
            let stored = self.stored(name).await.map_err(|error| failed("look for", error))?;
            // It may have been stored again since it was listed.
            if stored.is_some_and(|stored| stored < before) {
                self.delete(name).await.map_err(|error| failed("remove", error))?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    async fn delete(&self, name: ObjectName) -> Result<(), ObjectError> {
        match self.within(self.objects.delete(name)).await {
            Err(error) if error.kind == ErrorKind::NotFound => Ok(()),
            deleted => deleted,
        }
    }
}

fn failed(verb: &str, digest: Digest, error: ObjectError) -> StoreError {
    StoreError::io(format!("{verb} the bitstream {digest}"), error.into())
}

fn not_read(digest: Digest, error: ObjectError) -> StoreError {
    match error.kind {
        ErrorKind::NotFound => StoreError::NoBlob(digest),
        _ => failed("read", digest, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    /// A store to be tested, and a way to put there what is of others.
    struct Store {
        blobs: Blobs,
        put_foreign: Box<dyn Fn(&str)>,
        _folder: Option<tempfile::TempDir>,
    }

    fn folder() -> Store {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::new(folder_of_blobs(folder.path()).unwrap());
        let objects = folder.path().join("bitstreams");
        let put_foreign = Box::new(move |name: &str| {
            let file = objects.join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "theirs").unwrap();
        });
        Store { blobs, put_foreign, _folder: Some(folder) }
    }

    #[cfg(feature = "s3")]
    fn bucket() -> Store {
        use object_store::ObjectStoreExt as _;

        let objects = std::sync::Arc::new(object_store::memory::InMemory::new());
        let blobs = Blobs::new(Objects::Bucket(bucket::BucketObjects::of(objects.clone())));
        let put_foreign = Box::new(move |name: &str| {
            let path = object_store::path::Path::from(format!("bitstreams/{name}"));
            wait(objects.put(&path, "theirs".into())).unwrap();
        });
        Store { blobs, put_foreign, _folder: None }
    }

    /// All kinds of stores, which have to do the same.
    fn stores() -> Vec<Store> {
        vec![
            folder(),
            #[cfg(feature = "s3")]
            bucket(),
        ]
    }

    /// The names of all objects, ascending.
    async fn list(blobs: &Blobs) -> Vec<String> {
        let (mut listed, mut names) = (blobs.objects.list(), Vec::new());
        while let Some(object) = listed.next().await.unwrap() {
            names.push(object.name.to_string());
        }
        names.sort_unstable();
        names
    }

    #[test]
    fn a_rotted_object_is_refused_and_can_be_stored_again() {
        for Store { blobs, put_foreign, _folder } in stores() {
            let digest = Digest::of(b"bits");
            put_foreign("README");
            put_foreign(&format!("mine/{}", Digest::of(b"other")));
            wait(async {
                let other = blobs.put(digest, b"bitz").await.unwrap_err();
                assert!(matches!(other, StoreError::DigestMismatch { .. }), "{other}");
                blobs.put(digest, b"bits").await.unwrap();
                let bitz = Bytes::from_static(b"bitz");
                blobs.objects.put(ObjectName::Image(digest), bitz).await.unwrap();
                let error = blobs.get(digest).await.unwrap_err();
                assert!(matches!(error, StoreError::DigestMismatch { .. }), "{error}");
                blobs.put(digest, b"bits").await.unwrap();
                assert_eq!(blobs.get(digest).await.unwrap(), b"bits");
                assert_eq!(list(&blobs).await, [digest.to_string()]);
            });
        }
    }

    #[test]
    fn an_object_is_read_in_pieces_that_make_a_whole() {
        for Store { blobs, _folder, .. } in stores() {
            let bytes: Vec<u8> = (0..300_000u32).flat_map(u32::to_le_bytes).collect();
            let digest = Digest::of(&bytes);
            wait(async {
                let absent = blobs.pieces(digest).await.map(drop).unwrap_err();
                assert!(matches!(absent, StoreError::NoBlob(of) if of == digest), "{absent}");
                let absent = blobs.get(digest).await.unwrap_err();
                assert!(matches!(absent, StoreError::NoBlob(of) if of == digest), "{absent}");
                blobs.put(digest, &bytes).await.unwrap();
                let whole = read_whole(&blobs, digest).await;
                assert!(whole == bytes, "{} bytes of {}", whole.len(), bytes.len());
                blobs.put(Digest::of(b""), b"").await.unwrap();
                assert_eq!(read_whole(&blobs, Digest::of(b"")).await, b"");
            });
        }
    }

    async fn read_whole(blobs: &Blobs, digest: Digest) -> Vec<u8> {
        let (mut pieces, mut whole) = (blobs.pieces(digest).await.unwrap(), Vec::new());
        while let Some(piece) = pieces.next().await {
            whole.extend(piece.unwrap());
        }
        whole
    }

    #[test]
    fn a_sweep_removes_what_is_old_and_not_kept_so_many_at_a_time() {
        for Store { blobs, put_foreign, _folder } in stores() {
            let hour = Duration::from_secs(3_600);
            let (past, future) = (SystemTime::now() - hour, SystemTime::now() + hour);
            let digests: Vec<Digest> = (0..5u8).map(|i| Digest::of(&[i])).collect();
            let keep = BTreeSet::from([digests[3]]);
            put_foreign("README");
            wait(async {
                assert_eq!(blobs.sweep(&keep, future, 10).await.unwrap(), 0, "there is nothing");
                for i in 0..5u8 {
                    blobs.put(digests[usize::from(i)], &[i]).await.unwrap();
                }
                assert_eq!(blobs.sweep(&keep, past, 10).await.unwrap(), 0, "all are young");
                assert_eq!(blobs.sweep(&keep, future, 3).await.unwrap(), 3);
                assert_eq!(list(&blobs).await.len(), 2);
                assert_eq!(blobs.sweep(&keep, future, 3).await.unwrap(), 1);
                assert_eq!(list(&blobs).await, [digests[3].to_string()]);
                assert_eq!(blobs.sweep(&keep, future, 3).await.unwrap(), 0);
                assert_eq!(blobs.get(digests[3]).await.unwrap(), [3]);
            });
        }
    }

    #[test]
    fn a_sweep_removes_what_checks_and_writers_left_that_died() {
        for Store { blobs, _folder, .. } in stores() {
            let hour = Duration::from_secs(3_600);
            let (past, future) = (SystemTime::now() - hour, SystemTime::now() + hour);
            let names = [ObjectName::new_probe(), ObjectName::new_unfinished()];
            wait(async {
                for name in names {
                    blobs.objects.put(name, Bytes::from_static(b"half")).await.unwrap();
                }
                assert_eq!(blobs.sweep(&BTreeSet::new(), past, 10).await.unwrap(), 0);
                assert_eq!(list(&blobs).await.len(), 2, "a writer may still be at it");
                assert_eq!(blobs.sweep(&BTreeSet::new(), future, 10).await.unwrap(), 2);
                assert_eq!(list(&blobs).await, [""; 0]);
            });
        }
    }

    #[test]
    fn a_check_passes_and_leaves_nothing() {
        for Store { blobs, put_foreign, _folder } in stores() {
            put_foreign("README");
            wait(async {
                blobs.check().await.unwrap();
                assert_eq!(list(&blobs).await, [""; 0]);
                assert_eq!(blobs.stored_at(Digest::of(b"bits")).await.unwrap(), None);
                let name = ObjectName::Image(Digest::of(b"bits"));
                blobs.delete(name).await.expect("what is gone need not be removed");
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
            let file = folder.path().join("bitstreams").join(digest.to_string());
            let age = || std::fs::File::options().write(true).open(&file).unwrap();
            age().set_modified(old).unwrap();
            blobs.put_since(digest, b"bits", old - hour).await.unwrap();
            assert!(blobs.stored_at(digest).await.unwrap().unwrap() < old + hour, "left alone");
            blobs.put_since(digest, b"bits", old + hour).await.unwrap();
            assert!(blobs.stored_at(digest).await.unwrap().unwrap() > old + hour, "stored again");
            assert_eq!(blobs.stored_at(Digest::of(b"other")).await.unwrap(), None);
        });
    }

    /// Each operation of a store that answers nothing ends, and says why.
    async fn assert_each_ends(objects: Objects) {
        let blobs = Blobs { objects, operation_max: Duration::from_millis(10) };
        let (digest, keep) = (Digest::of(b"bits"), BTreeSet::new());
        let errors = [
            blobs.put(digest, b"bits").await.unwrap_err(),
            blobs.get(digest).await.unwrap_err(),
            blobs.pieces(digest).await.map(drop).unwrap_err(),
            blobs.stored_at(digest).await.unwrap_err(),
            blobs.sweep(&keep, SystemTime::now(), 1).await.unwrap_err(),
        ];
        for error in errors {
            assert!(error.with_source().contains("no answer within 0.01 s"), "{error}");
        }
        let error = blobs.delete(ObjectName::Image(digest)).await.unwrap_err();
        assert_eq!(error.to_string(), "no answer within 0.01 s");
        assert!(matches!(blobs.check().await, Err(BlobsUnusable::Away(_))));
    }

    /// A folder on a share that does not answer has no limits of its own. Its threads wait, here for another one.
    #[test]
    fn an_operation_on_a_folder_that_takes_too_long_ends() {
        let folder = folder();
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().max_blocking_threads(1).build().unwrap();
        let (go_on, held) = std::sync::mpsc::channel::<()>();
        runtime.block_on(async {
            let busy = tokio::task::spawn_blocking(move || held.recv());
            assert_each_ends(folder.blobs.objects.clone()).await;
            drop(go_on);
            busy.await.unwrap().unwrap_err();
        });
    }

    #[cfg(feature = "s3")]
    #[test]
    fn an_operation_on_a_bucket_that_takes_too_long_ends() {
        use object_store::memory::InMemory;
        use object_store::throttle::{ThrottleConfig, ThrottledStore};

        let hour = Duration::from_secs(3_600);
        let slow = ThrottleConfig {
            wait_get_per_call: hour,
            wait_put_per_call: hour,
            wait_list_per_call: hour,
            wait_list_with_delimiter_per_call: hour,
            wait_delete_per_call: hour,
            ..ThrottleConfig::default()
        };
        let objects = std::sync::Arc::new(ThrottledStore::new(InMemory::new(), slow));
        wait(assert_each_ends(Objects::Bucket(bucket::BucketObjects::of(objects))));
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
