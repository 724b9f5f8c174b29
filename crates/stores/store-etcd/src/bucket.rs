//! A bucket of S3, or of a store with the same interface, such as Ceph or MinIO.

use std::path::{Path as File, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey as Key, AwsCredential};
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{
    BackoffConfig, Certificate, ClientOptions, CredentialProvider, Error, ObjectMeta, ObjectStore,
    ObjectStoreExt as _, RetryConfig,
};
use snic_ports::store::StoreError;
use tokio_stream::{Stream, StreamExt as _};

use crate::object::{ErrorKind, FOLDER, ListedObject, ObjectError, ObjectName, Pieces};

/// Longest time to make a connection to the server.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Number of times that a request is sent again that was not answered, or was answered with an error of the server.
const RETRIES_MAX: usize = 3;
/// The longest pause before it is.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Where blobs are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketSettings {
    /// The bucket's name. It exists.
    pub bucket: String,
    /// Prefix of the names of all objects; empty for none.
    pub prefix: String,
    /// The region. Without one `AWS_REGION` and `AWS_DEFAULT_REGION` of the environment say it, and then it is `us-east-1`.
    pub region: Option<String>,
    /// URL of the server, without the bucket; without one Amazon's of the region.
    pub endpoint: Option<String>,
    /// Whether that URL may be `http`: objects travel unencrypted then. Signatures still protect requests.
    pub allow_http: bool,
    /// Authorities of the server's certificate, PEM; without them those of the system.
    pub authorities: Option<String>,
    /// File with the keys, in the format of `~/.aws/credentials`; its section `[default]` is read at each request.
    /// Without one they come from the environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, or
    /// what names a web identity or a container's credentials), and last from the metadata of the machine's instance.
    pub credentials: Option<PathBuf>,
    /// Longest time of a request. With those that are sent again, an operation takes at most twice as long, and some
    /// seconds.
    pub request_timeout: Duration,
}

/// A bucket of objects.
#[derive(Debug, Clone)]
pub struct BucketObjects(Arc<dyn ObjectStore>);

impl BucketObjects {
    /// The bucket of any client, such as one in memory.
    #[cfg(test)]
    pub(crate) fn of(client: Arc<dyn ObjectStore>) -> Self {
        Self(client)
    }

    pub(crate) async fn put(&self, name: ObjectName, bytes: Bytes) -> Result<(), ObjectError> {
        Ok(self.0.put(&path(name), bytes.into()).await.map(drop)?)
    }

    pub(crate) async fn get(&self, name: ObjectName) -> Result<Bytes, ObjectError> {
        Ok(self.0.get(&path(name)).await?.bytes().await?)
    }

    pub(crate) async fn pieces(&self, name: ObjectName) -> Result<Pieces, ObjectError> {
        let pieces = self.0.get(&path(name)).await?.into_stream();
        Ok(Box::pin(pieces.map(|piece| piece.map_err(ObjectError::from))))
    }

    pub(crate) async fn stored_at(&self, name: ObjectName) -> Result<SystemTime, ObjectError> {
        Ok(self.0.head(&path(name)).await?.last_modified.into())
    }

    pub(crate) async fn delete(&self, name: ObjectName) -> Result<(), ObjectError> {
        Ok(self.0.delete(&path(name)).await?)
    }

    pub(crate) fn list(&self) -> BucketListing {
        BucketListing(self.0.list(Some(&Path::from(FOLDER))))
    }
}

/// Objects of a bucket, read page by page.
pub(crate) struct BucketListing(Pin<Box<dyn Stream<Item = Result<ObjectMeta, Error>> + Send>>);

impl BucketListing {
    pub async fn next(&mut self) -> Result<Option<ListedObject>, ObjectError> {
        while let Some(object) = self.0.next().await.transpose()? {
            let name = object.location.filename().and_then(|name| name.parse().ok());
            // What is below in a folder of others may have a name as here.
            if let Some(name) = name.filter(|name| path(*name) == object.location) {
                let stored_at = object.last_modified.into();
                return Ok(Some(ListedObject { name, stored_at }));
            }
        }
        Ok(None)
    }
}

fn path(name: ObjectName) -> Path {
    Path::from_iter([FOLDER, &name.to_string()])
}

impl From<Error> for ObjectError {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::NotFound { .. } => ErrorKind::NotFound,
            Error::PermissionDenied { .. } => ErrorKind::PermissionDenied,
            Error::Unauthenticated { .. } => ErrorKind::Unauthenticated,
            _ => ErrorKind::Other,
        };
        Self::new(kind, error.to_string())
    }
}

/// Opens a bucket, of which nothing is asked yet.
///
/// # Errors
///
/// [`StoreError::Io`] if the settings cannot be used.
pub(crate) fn open(settings: &BucketSettings) -> Result<BucketObjects, StoreError> {
    // The only linked provider; another part of the program may have installed it already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let unusable = |error: Error| {
        StoreError::io(format!("use the bucket {}", settings.bucket), std::io::Error::other(error))
    };
    let bucket = builder(settings, std::env::vars()).and_then(AmazonS3Builder::build);
    let bucket = bucket.map_err(unusable)?;
    if settings.prefix.is_empty() {
        return Ok(BucketObjects(Arc::new(bucket)));
    }
    let prefix = Path::parse(&settings.prefix).map_err(|error| unusable(error.into()))?;
    Ok(BucketObjects(Arc::new(PrefixStore::new(bucket, prefix))))
}

fn builder(
    settings: &BucketSettings,
    environment: impl Iterator<Item = (String, String)>,
) -> Result<AmazonS3Builder, Error> {
    let mut client = ClientOptions::new()
        .with_allow_http(settings.allow_http)
        .with_connect_timeout(CONNECT_MAX)
        .with_timeout(settings.request_timeout);
    if let Some(pem) = &settings.authorities {
        client = client.with_no_system_certificates(true);
        let authorities = Certificate::from_pem_bundle(pem.as_bytes())?;
        if authorities.is_empty() {
            let source = "the file of its authorities (`ca`) has no certificate in PEM".into();
            return Err(Error::Generic { store: "S3", source });
        }
        for authority in authorities {
            client = client.with_root_certificate(authority);
        }
    }
    let retries = RetryConfig {
        backoff: BackoffConfig { max_backoff: PAUSE_MAX, ..BackoffConfig::default() },
        max_retries: RETRIES_MAX,
        retry_timeout: settings.request_timeout,
    };
    let mut builder = AmazonS3Builder::new();
    // Of the environment only what says who this is: where the images are is in the settings alone.
    for (name, value) in environment.filter(|(name, _)| name.starts_with("AWS_")) {
        if let Ok(key) = name.to_ascii_lowercase().parse::<Key>()
            && says_who_or_region(&key)
        {
            builder = builder.with_config(key, value);
        }
    }
    builder = builder
        .with_bucket_name(&settings.bucket)
        // Not all servers delete several objects at once, and one at a time is enough here.
        .with_disable_bulk_delete(true)
        .with_retry(retries)
        .with_client_options(client);
    if let Some(region) = &settings.region {
        builder = builder.with_region(region);
    }
    if let Some(endpoint) = &settings.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(file) = &settings.credentials {
        builder = builder.with_credentials(Arc::new(KeyFile(file.clone())));
    }
    Ok(builder)
}

const fn says_who_or_region(key: &Key) -> bool {
    matches!(
        key,
        Key::AccessKeyId
            | Key::SecretAccessKey
            | Key::Token
            | Key::Region
            | Key::DefaultRegion
            | Key::WebIdentityTokenFile
            | Key::RoleArn
            | Key::RoleSessionName
            | Key::StsEndpoint
            | Key::ContainerCredentialsRelativeUri
            | Key::ContainerCredentialsFullUri
            | Key::ContainerAuthorizationTokenFile
            | Key::MetadataEndpoint
            | Key::ImdsV1Fallback
    )
}

/// Keys in a file, which may be replaced at any time.
#[derive(Debug)]
struct KeyFile(PathBuf);

#[tonic::async_trait]
impl CredentialProvider for KeyFile {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> Result<Arc<AwsCredential>, Error> {
        let Self(file) = self;
        let refused = |text: String| Error::Unauthenticated {
            path: file.display().to_string(),
            source: text.into(),
        };
        let text = tokio::fs::read_to_string(file).await;
        let text = text.map_err(|error| refused(format!("read {}: {error}", file.display())))?;
        parse_keys(file, &text).map(Arc::new).map_err(refused)
    }
}

/// The keys of the section `[default]`, or of what comes before any section.
fn parse_keys(file: &File, text: &str) -> Result<AwsCredential, String> {
    let (mut is_default, mut key_id, mut secret_key, mut token) = (true, None, None, None);
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[') {
            is_default = section.trim_end_matches(']').trim() == "default";
        } else if let Some((name, value)) = line.split_once('=').filter(|_| is_default) {
            let value = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
            match name.trim() {
                "aws_access_key_id" => key_id = value,
                "aws_secret_access_key" => secret_key = value,
                "aws_session_token" => token = value,
                _ => {}
            }
        }
    }
    let missing = |name: &str| format!("{} has no {name} in its section [default]", file.display());
    Ok(AwsCredential {
        key_id: key_id.ok_or_else(|| missing("aws_access_key_id"))?,
        secret_key: secret_key.ok_or_else(|| missing("aws_secret_access_key"))?,
        token,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> BucketSettings {
        BucketSettings {
            bucket: "images".into(),
            prefix: String::new(),
            region: None,
            endpoint: Some("https://s3.example.org".into()),
            allow_http: false,
            authorities: None,
            credentials: None,
            request_timeout: Duration::from_secs(30),
        }
    }

    /// Somebody's shell must not send the images elsewhere, nor unencrypted.
    #[test]
    fn the_environment_says_who_this_is_and_nothing_else() {
        let environment = [
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_REGION", "eu-central-1"),
            ("AWS_ENDPOINT_URL_S3", "http://elsewhere.example.org"),
            ("AWS_BUCKET", "other"),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_SKIP_SIGNATURE", "true"),
            ("ACCESS_KEY_ID", "other"),
        ];
        let environment = || environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
        let value = |settings: &BucketSettings, key| {
            builder(settings, environment()).unwrap().get_config_value(&key)
        };
        let of = settings();
        assert_eq!(value(&of, Key::AccessKeyId).as_deref(), Some("key"));
        assert_eq!(value(&of, Key::Region).as_deref(), Some("eu-central-1"));
        assert_eq!(value(&of, Key::Endpoint), of.endpoint);
        assert_eq!(value(&of, Key::S3Endpoint), None);
        assert_eq!(value(&of, Key::Bucket).as_deref(), Some("images"));
        assert_eq!(value(&of, Key::SkipSignature).as_deref(), Some("false"));
        let http = Key::Client(object_store::ClientConfigKey::AllowHttp);
        assert_eq!(value(&of, http).as_deref(), Some("false"));
        let said = BucketSettings { region: Some("eu-west-1".into()), ..settings() };
        assert_eq!(value(&said, Key::Region).as_deref(), Some("eu-west-1"));
    }

    #[test]
    fn keys_are_read_from_the_default_section() {
        let parse = |text| parse_keys(File::new("keys"), text);
        let text = "# of the fleet\n[other]\naws_access_key_id = no\n[default]\n\
                    aws_access_key_id = id\n aws_secret_access_key=a=b/c\nregion = x\n[more]\n\
                    aws_secret_access_key = no\n";
        let keys = parse(text).unwrap();
        assert_eq!((&*keys.key_id, &*keys.secret_key, keys.token), ("id", "a=b/c", None));
        let text = "aws_access_key_id=i\naws_secret_access_key=s\naws_session_token = t";
        assert_eq!(parse(text).unwrap().token.as_deref(), Some("t"));
        let error =
            parse("[default]\naws_access_key_id = id\naws_secret_access_key =").unwrap_err();
        assert_eq!(error, "keys has no aws_secret_access_key in its section [default]");
        assert!(
            parse("[other]\naws_access_key_id = id").unwrap_err().contains("aws_access_key_id")
        );
    }

    #[test]
    fn unusable_settings_are_refused_before_anything_is_sent() {
        let none = BucketSettings { authorities: Some("no PEM".into()), ..settings() };
        let wrong = BucketSettings { prefix: "a//b".into(), ..settings() };
        assert!(open(&settings()).is_ok());
        let error = open(&none).unwrap_err().with_source();
        assert!(error.contains("no certificate"), "{error}");
        let error = open(&wrong).unwrap_err().with_source();
        assert!(error.contains("bucket images") && error.contains("a//b"), "{error}");
    }
}
