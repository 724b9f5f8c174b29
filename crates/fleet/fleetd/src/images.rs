//! Where the images of bitstreams are, as the settings say.

use std::fmt;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use snic_store_etcd::{Blobs, BlobsUnusable, Objects, folder_of_blobs};

use crate::setting_checks::in_range;

/// Where the images of bitstreams are. All replicas have the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Images {
    /// A folder that all replicas share.
    Folder(PathBuf),
    /// A bucket of S3, or of a store with the same interface, such as Ceph or MinIO. Only a program that was built with
    /// the feature `s3` can open it.
    Bucket(Bucket),
}

/// A bucket. Keys are never in the settings: they come from `credentials`, from the environment, or from the metadata of
/// the machine's instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bucket {
    /// Its name: 3 to 63 of a-z, 0-9, '-' and '.', a letter or digit first and last. It exists.
    pub bucket: String,
    /// Prefix of the names of all objects, without `/` at its ends, such as `fleets/one`; nothing by default.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// Its region. By default what `AWS_REGION` of the environment says, and `us-east-1` without that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// URL of the server, such as `https://ceph.example.org:7480`; Amazon's of the region by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// Whether that URL may be `http`. Images and their names can be read on the way then.
    #[serde(default, skip_serializing_if = "is_false")]
    pub allow_http: bool,
    /// File with the authorities of the server's certificate, PEM; those of the system by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// File with `aws_access_key_id` and `aws_secret_access_key` in a section `[default]`. It is read at each request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials: Option<PathBuf>,
    /// Longest time of a request, in seconds: 1 to 60. An operation is given up after about twice as long.
    #[serde(default = "timeout_seconds")]
    pub timeout_seconds: u32,
}

const fn timeout_seconds() -> u32 {
    30
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_false(value: &bool) -> bool {
    !*value
}

impl<'de> Deserialize<'de> for Images {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Images;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the path of a folder, or a table with `bucket`")
            }

            fn visit_str<E>(self, path: &str) -> Result<Images, E> {
                Ok(Images::Folder(path.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, table: A) -> Result<Images, A::Error> {
                Bucket::deserialize(MapAccessDeserializer::new(table)).map(Images::Bucket)
            }
        }

        // Each of the two with errors of its own, which an untagged enum has not.
        deserializer.deserialize_any(Either)
    }
}

impl Images {
    /// Checks what can be checked without asking anybody.
    ///
    /// # Errors
    /// A value is not allowed; the text names its key.
    pub(crate) fn validate(&self) -> Result<()> {
        let Self::Bucket(Bucket { bucket, prefix, endpoint, allow_http, timeout_seconds, .. }) =
            self
        else {
            return Ok(());
        };
        let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let is_inner = |c: char| is_end(c) || c == '-' || c == '.';
        let is_name = (3..=63).contains(&bucket.len())
            && bucket.chars().all(is_inner)
            && bucket.starts_with(is_end)
            && bucket.ends_with(is_end);
        if !is_name {
            bail!(
                "images.bucket: {bucket:?} is not a bucket's name (expected 3 to 63 of a-z, 0-9, '-' \
                 and '.', a letter or digit first and last)"
            );
        }
        if prefix.starts_with('/') || prefix.ends_with('/') || prefix.contains("//") {
            bail!("images.prefix: {prefix:?} has an empty part (expected such as \"fleets/one\")");
        }
        match endpoint.as_deref() {
            None => {}
            Some(url) if url.starts_with("https://") => {}
            Some(url) if url.starts_with("http://") && *allow_http => {}
            Some(url) if url.starts_with("http://") => bail!(
                "images.endpoint: {url:?} is not https, so that images and their names can be read on \
                 the way; use https, or set images.allow_http = true if that network is trusted"
            ),
            Some(url) => bail!(
                "images.endpoint: {url:?} is not a URL with https (expected https://<host>:<port>)"
            ),
        }
        in_range("images.timeout_seconds", *timeout_seconds, (1, 60))
    }

    /// Opens the store. A folder is made if it does not exist; of a bucket nothing is asked yet.
    ///
    /// # Errors
    /// The folder cannot be made, a file cannot be read, the settings of a bucket cannot be used, or this program was built
    /// without S3.
    pub fn open(&self) -> Result<Blobs> {
        let objects = match self {
            Self::Folder(folder) => folder_of_blobs(folder).context("images")?,
            Self::Bucket(bucket) => bucket.open()?,
        };
        Ok(Blobs::new(objects))
    }

    /// Tries the store, so that what is wrong is seen before somebody uploads.
    ///
    /// # Errors
    /// The store refuses, or cannot be reached; the text says what to do.
    pub async fn check(&self, images: &Blobs) -> Result<(), BlobsUnusable> {
        images.check().await.map_err(|error| match (self, error) {
            // A folder that does not work now will not work by itself.
            (Self::Folder(_), BlobsUnusable::Away(text)) => BlobsUnusable::Refused(text),
            (_, error) => error,
        })
    }
}

impl Bucket {
    #[cfg(feature = "s3")]
    fn open(&self) -> Result<Objects> {
        use crate::setting_checks::text;

        let ca = self.ca.as_deref().map(|ca| text("images.ca", ca)).transpose()?;
        let opened = snic_store_etcd::bucket_of_blobs(&snic_store_etcd::BucketSettings {
            bucket: self.bucket.clone(),
            prefix: self.prefix.clone(),
            region: self.region.clone(),
            endpoint: self.endpoint.clone(),
            allow_http: self.allow_http,
            authorities: ca,
            credentials: self.credentials.clone(),
            request_timeout: std::time::Duration::from_secs(self.timeout_seconds.into()),
        });
        opened.context("images")
    }

    #[cfg(not(feature = "s3"))]
    fn open(&self) -> Result<Objects> {
        bail!(
            "images.bucket: {:?} cannot be used, because this program was built without S3; install a \
             package, build it with `cargo build --release -p snic-fleetd --features s3`, or set images \
             to the path of a folder that all replicas share",
            self.bucket
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Serialize, Deserialize)]
    struct File {
        images: Images,
    }

    fn parse(text: &str) -> Result<Images> {
        let File { images } = toml::from_str(text)?;
        images.validate()?;
        Ok(images)
    }

    #[test]
    fn a_path_is_a_folder_and_a_table_is_a_bucket() {
        let folder = parse("images = \"/var/lib/snic-fleet/images\"").expect("a path");
        assert_eq!(folder, Images::Folder("/var/lib/snic-fleet/images".into()));
        let bucket = parse("[images]\nbucket = \"snic-images\"").expect("a bucket");
        let Images::Bucket(of) = &bucket else { panic!("{bucket:?}") };
        assert_eq!((of.timeout_seconds, of.allow_http, of.prefix.as_str()), (30, false, ""));
        let whole = "[images]\nbucket = \"snic-images\"\nprefix = \"fleets/one\"\n\
                     region = \"eu-central-1\"\nendpoint = \"http://10.0.0.7:7480\"\n\
                     allow_http = true\nca = \"ca.pem\"\ncredentials = \"keys\"\n\
                     timeout_seconds = 5\n";
        let images = parse(whole).expect("all keys");
        assert_eq!(toml::to_string(&File { images }).expect("text"), whole);
    }

    #[test]
    fn what_is_wrong_is_named_by_its_key() {
        let of = |rest: &str| format!("[images]\nbucket = \"snic-images\"\n{rest}");
        for (text, expected) in [
            ("images = 7".to_owned(), "the path of a folder, or a table with `bucket`"),
            ("[images]\nregion = \"x\"".to_owned(), "missing field `bucket`"),
            (of("secret_access_key = \"s\""), "unknown field `secret_access_key`"),
            ("[images]\nbucket = \"A_b\"".to_owned(), "images.bucket: \"A_b\" is not"),
            (of("prefix = \"/a\""), "images.prefix: \"/a\""),
            (of("endpoint = \"http://s3\""), "set images.allow_http = true if that network"),
            (of("endpoint = \"s3:9000\""), "images.endpoint: \"s3:9000\" is not a URL"),
            (of("timeout_seconds = 61"), "images.timeout_seconds: 61 is not allowed"),
        ] {
            let error = format!("{:#}", parse(&text).expect_err(expected));
            assert!(error.contains(expected), "{error}");
        }
    }

    #[cfg(feature = "s3")]
    #[test]
    fn a_file_of_authorities_that_is_missing_is_named() {
        let text = "[images]\nbucket = \"snic-images\"\nca = \"/nonexistent/ca.pem\"";
        let missing = parse(text).expect("valid");
        let error = format!("{:#}", missing.open().expect_err("there is no such file"));
        assert!(error.contains("images.ca: read /nonexistent/ca.pem"), "{error}");
    }

    /// The folder is gone behind an open store, as a share that is no longer mounted.
    #[tokio::test]
    async fn a_folder_that_cannot_be_written_is_refused() {
        let place = tempfile::tempdir().expect("a folder");
        let images = Images::Folder(place.path().join("images"));
        let blobs = images.open().expect("it can be made");
        images.check(&blobs).await.expect("it works");
        let left = std::fs::read_dir(place.path().join("images/bitstreams")).expect("a folder");
        assert_eq!(left.count(), 0, "the check leaves nothing");
        std::fs::remove_dir_all(place.path().join("images")).expect("removed");
        std::fs::write(place.path().join("images"), "").expect("a file in its place");
        let error = images.check(&blobs).await.expect_err("it is a file");
        assert!(matches!(error, BlobsUnusable::Refused(_)), "{error}");
    }
}
