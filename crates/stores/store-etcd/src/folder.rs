//! Objects as files of a folder that replicas share, perhaps over the network.
//!
//! ```text
//!  <folder>/bitstreams/<digest>             an image
//!                      check-<uuid>         the probe of a check
//!                      unfinished-<uuid>    what a writer writes, or left behind when it died
//! ```
//!
//! A file gets its name once its bytes are on the disk, so that a crash at any moment, or another replica that writes the
//! same image, leaves whole files only. Whatever else is there belongs to others.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::SystemTime;

use bytes::Bytes;
use rustix::fs::OFlags;
use tokio::io::{AsyncRead as _, ReadBuf};
use tokio_stream::Stream;

use crate::object::{ErrorKind, FOLDER, ListedObject, ObjectError, ObjectName, Pieces};

/// Length of the pieces in which a file is read, in bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// A folder of objects. Its operations run in threads that may wait for a disk or a server; one that nobody waits for any
/// more still goes to its end.
#[derive(Debug, Clone)]
pub struct FolderObjects {
    root: Arc<Path>,
}

impl FolderObjects {
    /// Opens a folder, and creates it if it does not exist.
    ///
    /// # Errors
    /// It cannot be created.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        fs::create_dir_all(root)?;
        // What the path means must not change with the program's working folder.
        let root = fs::canonicalize(root)?;
        create_objects(&root)?;
        Ok(Self { root: root.into() })
    }

    pub(crate) async fn put(&self, name: ObjectName, bytes: Bytes) -> Result<(), ObjectError> {
        self.blocking(move |folder| folder.write(name, &bytes)).await
    }

    pub(crate) async fn get(&self, name: ObjectName) -> Result<Bytes, ObjectError> {
        self.blocking(move |folder| {
            let path = folder.path(name);
            let (mut file, mut bytes) = (open(&path)?, Vec::new());
            file.read_to_end(&mut bytes).map_err(|error| failed("read", &path, &error))?;
            Ok(bytes.into())
        })
        .await
    }

    pub(crate) async fn pieces(&self, name: ObjectName) -> Result<Pieces, ObjectError> {
        let path = self.path(name);
        let file = self.blocking(move |folder| open(&folder.path(name))).await?;
        let buffer = vec![0; PIECE_BYTES].into();
        Ok(Box::pin(FilePieces { file: tokio::fs::File::from_std(file), path, buffer }))
    }

    pub(crate) async fn stored_at(&self, name: ObjectName) -> Result<SystemTime, ObjectError> {
        self.blocking(move |folder| {
            let path = folder.path(name);
            let metadata = metadata(&path)?.ok_or_else(|| foreign(&path))?;
            metadata.modified().map_err(|error| failed("look for", &path, &error))
        })
        .await
    }

    pub(crate) async fn delete(&self, name: ObjectName) -> Result<(), ObjectError> {
        self.blocking(move |folder| {
            let path = folder.path(name);
            metadata(&path)?.ok_or_else(|| foreign(&path))?;
            fs::remove_file(&path).map_err(|error| failed("remove", &path, &error))
        })
        .await
    }

    pub(crate) async fn sync(&self) -> Result<(), ObjectError> {
        self.blocking(|folder| sync_folder(&folder.objects())).await
    }

    pub(crate) fn list(&self) -> FolderListing {
        FolderListing { path: self.objects(), entries: None }
    }

    fn objects(&self) -> PathBuf {
        self.root.join(FOLDER)
    }

    fn path(&self, name: ObjectName) -> PathBuf {
        self.objects().join(name.to_string())
    }

    /// Runs an operation in a thread that may wait.
    async fn blocking<T: Send + 'static>(
        &self,
        operation: impl FnOnce(&Self) -> Result<T, ObjectError> + Send + 'static,
    ) -> Result<T, ObjectError> {
        let folder = self.clone();
        let ended = tokio::task::spawn_blocking(move || operation(&folder)).await;
        ended.unwrap_or_else(|error| Err(ObjectError::new(ErrorKind::Other, error.to_string())))
    }

    fn write(&self, name: ObjectName, bytes: &[u8]) -> Result<(), ObjectError> {
        let (path, temporary) = (self.path(name), self.path(ObjectName::new_unfinished()));
        match metadata(&path) {
            // To rename would remove what somebody else put there.
            Ok(None) => {
                let text = format!("{} is not a regular file; move it away", path.display());
                return Err(ObjectError::new(ErrorKind::Other, text));
            }
            Err(error) if error.kind != ErrorKind::NotFound => return Err(error),
            Ok(Some(_)) | Err(_) => {}
        }
        let mut file = self.create(&temporary)?;
        let written = file
            .write_all(bytes)
            .and_then(|()| file.sync_all())
            .map_err(|error| failed("write", &temporary, &error))
            .and_then(|()| {
                fs::rename(&temporary, &path).map_err(|error| failed("rename to", &path, &error))
            });
        if written.is_err() {
            // The error to report is the first one; a temporary left behind is swept later.
            let _ = fs::remove_file(&temporary);
        }
        written?;
        sync_folder(&self.objects())
    }

    /// Creates a file that does not exist, and the folder of the objects if somebody removed that.
    fn create(&self, path: &Path) -> Result<File, ObjectError> {
        let create = || OpenOptions::new().write(true).create_new(true).open(path);
        let created = match create() {
            // Not the root: where it is missing, a file system is not mounted, and its place is not to be filled.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                create_objects(&self.root)
                    .map_err(|error| failed("create", &self.objects(), &error))?;
                create()
            }
            created => created,
        };
        created.map_err(|error| failed("create", path, &error))
    }
}

/// Creates the folder of the objects durably, if it does not exist.
fn create_objects(root: &Path) -> io::Result<()> {
    match fs::create_dir(root.join(FOLDER)) {
        Ok(()) => File::open(root)?.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Error of an action of the operating system on a path.
fn failed(action: &str, path: &Path, error: &io::Error) -> ObjectError {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        _ => ErrorKind::Other,
    };
    ObjectError::new(kind, format!("{action} {}: {error}", path.display()))
}

/// Error for something that has an object's name, such as a symbolic link or a folder, but is none.
fn foreign(path: &Path) -> ObjectError {
    ObjectError::new(ErrorKind::NotFound, format!("{} is not a regular file", path.display()))
}

/// Metadata of a file; `None` if there is something else under its name.
fn metadata(path: &Path) -> Result<Option<fs::Metadata>, ObjectError> {
    let found = fs::symlink_metadata(path).map_err(|error| failed("look for", path, &error))?;
    Ok(Some(found).filter(fs::Metadata::is_file))
}

/// Opens a file to be read, and nothing else: a link could lead to any file of this machine, and a pipe would not open
/// before somebody writes to it.
fn open(path: &Path) -> Result<File, ObjectError> {
    metadata(path)?.ok_or_else(|| foreign(path))?;
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let file = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path);
    let file = file.map_err(|error| failed("open", path, &error))?;
    let opened = file.metadata().map_err(|error| failed("open", path, &error))?;
    if opened.is_file() { Ok(file) } else { Err(foreign(path)) }
}

fn sync_folder(path: &Path) -> Result<(), ObjectError> {
    let synced = File::open(path).and_then(|folder| folder.sync_all());
    synced.map_err(|error| failed("sync", path, &error))
}

/// Pieces of a file.
struct FilePieces {
    file: tokio::fs::File,
    path: PathBuf,
    buffer: Box<[u8]>,
}

impl Stream for FilePieces {
    type Item = Result<Bytes, ObjectError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Self { file, path, buffer } = self.get_mut();
        let mut buffer = ReadBuf::new(buffer);
        let read = ready!(Pin::new(file).poll_read(context, &mut buffer));
        Poll::Ready(match (read, buffer.filled()) {
            (Err(error), _) => Some(Err(failed("read", path, &error))),
            (Ok(()), []) => None,
            (Ok(()), piece) => Some(Ok(Bytes::copy_from_slice(piece))),
        })
    }
}

/// Objects of a folder, read entry by entry.
pub(crate) struct FolderListing {
    path: PathBuf,
    entries: Option<tokio::fs::ReadDir>,
}

impl FolderListing {
    pub async fn next(&mut self) -> Result<Option<ListedObject>, ObjectError> {
        let Self { path, entries } = self;
        let list = |error| failed("list", path, &error);
        let entries = match entries {
            Some(entries) => entries,
            None => match tokio::fs::read_dir(&path).await {
                Ok(opened) => entries.insert(opened),
                // Nothing has been stored yet.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(list(error)),
            },
        };
        while let Some(entry) = entries.next_entry().await.map_err(list)? {
            let name = entry.file_name().to_str().and_then(|name| name.parse().ok());
            let Some(name) = name else { continue };
            let metadata = match entry.metadata().await {
                Ok(metadata) if metadata.is_file() => metadata,
                // A link or a folder; its metadata are not those of what it leads to.
                Ok(_) => continue,
                // Another replica has removed it, or finished it, since the folder was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed("look for", &entry.path(), &error)),
            };
            return Ok(Some(ListedObject { name, stored_at: metadata.modified().map_err(list)? }));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use snic_domain::Digest;
    use snic_ports::store::StoreError;

    use super::*;
    use crate::{Blobs, folder_of_blobs};

    fn wait<T>(work: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    fn future() -> SystemTime {
        SystemTime::now() + Duration::from_secs(3_600)
    }

    /// Links, folders and pipes under the name of an object: none is read, replaced or removed.
    #[test]
    fn what_is_no_regular_file_is_no_object() {
        let place = tempfile::tempdir().unwrap();
        let objects = place.path().join(FOLDER);
        let blobs = Blobs::new(folder_of_blobs(place.path()).unwrap());
        let contents: [&[u8]; 4] = [b"link", b"dangling", b"folder", b"pipe"];
        let [link, dangling, folder, pipe] =
            contents.map(|bytes| objects.join(Digest::of(bytes).to_string()));
        let secret = place.path().join("secret");
        fs::write(&secret, "link").unwrap();
        symlink(&secret, link).unwrap();
        symlink("nowhere", dangling).unwrap();
        fs::create_dir(folder).unwrap();
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
        rustix::fs::mknodat(rustix::fs::CWD, pipe, kind, mode, 0).unwrap();
        fs::write(objects.join("README"), "theirs").unwrap();
        let before = names(&objects);
        wait(async {
            assert_eq!(blobs.sweep(&BTreeSet::new(), future(), 100).await.unwrap(), 0);
            for bytes in contents {
                let digest = Digest::of(bytes);
                assert_eq!(blobs.stored_at(digest).await.unwrap(), None);
                let absent = blobs.get(digest).await.unwrap_err();
                assert!(matches!(absent, StoreError::NoBlob(_)), "{absent}");
                let absent = blobs.pieces(digest).await.map(drop).unwrap_err();
                assert!(matches!(absent, StoreError::NoBlob(_)), "{absent}");
                let refused = blobs.put(digest, bytes).await.unwrap_err().with_source();
                assert!(refused.contains("is not a regular file; move it away"), "{refused}");
            }
        });
        assert_eq!(names(&objects), before, "nothing is removed or left");
        assert_eq!(fs::read(secret).unwrap(), b"link");
    }

    /// Replicas are other processes, and write to other temporary files. The threads here do as well.
    #[test]
    fn writers_of_the_same_image_do_not_disturb_each_other_nor_readers() {
        let place = tempfile::tempdir().unwrap();
        let stores = [(); 4].map(|()| Blobs::new(folder_of_blobs(place.path()).expect("a folder")));
        let bytes: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        let digest = Digest::of(&bytes);
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            stores[0].put(digest, &bytes).await.unwrap();
            let writers = stores.map(|blobs| {
                let bytes = bytes.clone();
                tokio::spawn(async move {
                    for _ in 0..10 {
                        // All write, for what is stored is too old.
                        blobs.put_since(digest, &bytes, future()).await.unwrap();
                        assert!(blobs.get(digest).await.unwrap() == bytes);
                    }
                })
            });
            for writer in writers {
                writer.await.unwrap();
            }
        });
        assert_eq!(names(&place.path().join(FOLDER)), [digest.to_string()]);
    }

    #[test]
    fn the_folder_of_the_objects_is_made_again_but_not_the_folder_of_the_settings() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().join("images");
        let (blobs, digest) = (Blobs::new(folder_of_blobs(&root).unwrap()), Digest::of(b"bits"));
        wait(async {
            fs::remove_dir(root.join(FOLDER)).unwrap();
            assert_eq!(blobs.sweep(&BTreeSet::new(), future(), 1).await.unwrap(), 0);
            blobs.put(digest, b"bits").await.unwrap();
            assert_eq!(blobs.get(digest).await.unwrap(), b"bits");
            fs::remove_dir_all(&root).unwrap();
            let error = blobs.put(digest, b"bits").await.unwrap_err().with_source();
            assert!(error.contains("images/bitstreams: No such file or directory"), "{error}");
            let error = blobs.check().await.unwrap_err().to_string();
            assert!(error.contains("the bucket or folder does not exist; create it"), "{error}");
        });
        assert!(!root.exists());
    }
}
