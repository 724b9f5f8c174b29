//! Objects in which images are kept: files of a folder, or objects of a bucket.

use std::time::SystemTime;

use bytes::Bytes;

#[cfg(feature = "s3")]
use crate::bucket::{BucketListing, BucketObjects};
use crate::folder::{FolderListing, FolderObjects};
use crate::object::{ListedObject, ObjectError, ObjectName, Pieces};

/// A store of objects.
#[derive(Debug, Clone)]
pub enum Objects {
    /// Files of a folder.
    Folder(FolderObjects),
    /// Objects of a bucket.
    #[cfg(feature = "s3")]
    Bucket(BucketObjects),
}

impl Objects {
    /// Stores an object, in place of one that has the name already. Readers see the one or the other, never a part.
    ///
    /// # Errors
    /// It cannot be stored.
    pub(crate) async fn put(&self, name: ObjectName, bytes: Bytes) -> Result<(), ObjectError> {
        match self {
            Self::Folder(folder) => folder.put(name, bytes).await,
            #[cfg(feature = "s3")]
            Self::Bucket(bucket) => bucket.put(name, bytes).await,
        }
    }

    /// Reads a whole object.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub(crate) async fn get(&self, name: ObjectName) -> Result<Bytes, ObjectError> {
        match self {
            Self::Folder(folder) => folder.get(name).await,
            #[cfg(feature = "s3")]
            Self::Bucket(bucket) => bucket.get(name).await,
        }
    }

    /// Opens an object to be read in pieces of any length.
    ///
    /// # Errors
    /// There is none, or it cannot be opened.
    pub(crate) async fn pieces(&self, name: ObjectName) -> Result<Pieces, ObjectError> {
        match self {
            Self::Folder(folder) => folder.pieces(name).await,
            #[cfg(feature = "s3")]
            Self::Bucket(bucket) => bucket.pieces(name).await,
        }
    }

    /// Time at which an object was last stored, by the clock of the store.
    ///
    /// # Errors
    /// There is none, or the store does not say.
    pub(crate) async fn stored_at(&self, name: ObjectName) -> Result<SystemTime, ObjectError> {
        match self {
            Self::Folder(folder) => folder.stored_at(name).await,
            #[cfg(feature = "s3")]
            Self::Bucket(bucket) => bucket.stored_at(name).await,
        }
    }

    /// Removes an object.
    ///
    /// # Errors
    /// It cannot be removed. Some stores also report an object that does not exist.
    pub(crate) async fn delete(&self, name: ObjectName) -> Result<(), ObjectError> {
        match self {
            Self::Folder(folder) => folder.delete(name).await,
            #[cfg(feature = "s3")]
            Self::Bucket(bucket) => bucket.delete(name).await,
        }
    }

    /// Makes durable what others have stored: they may have died before they did.
    ///
    /// # Errors
    /// The operating system refuses.
    pub(crate) async fn sync(&self) -> Result<(), ObjectError> {
        match self {
            Self::Folder(folder) => folder.sync().await,
            // A bucket shows an object once it is durable.
            #[cfg(feature = "s3")]
            Self::Bucket(_) => Ok(()),
        }
    }

    /// Begins a list of all objects.
    pub(crate) fn list(&self) -> Listing {
        match self {
            Self::Folder(folder) => Listing::Folder(folder.list()),
            #[cfg(feature = "s3")]
            Self::Bucket(bucket) => Listing::Bucket(bucket.list()),
        }
    }
}

/// A list of objects in no certain order, which is read as far as it is asked for.
pub(crate) enum Listing {
    Folder(FolderListing),
    #[cfg(feature = "s3")]
    Bucket(BucketListing),
}

impl Listing {
    /// The next object; `None` at the end.
    ///
    /// # Errors
    /// The store cannot be listed.
    pub async fn next(&mut self) -> Result<Option<ListedObject>, ObjectError> {
        match self {
            Self::Folder(listing) => listing.next().await,
            #[cfg(feature = "s3")]
            Self::Bucket(listing) => listing.next().await,
        }
    }
}
