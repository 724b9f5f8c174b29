//! The controller's calls to the API server: objects of the kind, their finalizer and status.

use std::time::Duration;

use kube::Api;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;

use super::object::{DagObject, FINALIZER, GROUP, KIND, ObjectHead, ObjectKey, VERSION, resource};

/// Owner of the fields that the controller applies.
const FIELD_MANAGER: &str = "snic-dag-controller";
/// Objects of a page of a list.
const PAGE: u32 = 500;
/// Wait before objects are listed again.
const RELIST_AFTER: Duration = Duration::from_secs(1);
/// Code of the API server for a version that it no longer keeps.
const GONE: u16 = 410;
/// Codes of the API server for an object that has gone, or was replaced by another of its name.
const REPLACED: [u16; 2] = [404, 409];

/// News of objects.
#[derive(Debug, Clone, PartialEq)]
pub enum ObjectNews {
    /// All that there are.
    Listed(Vec<ObjectHead>),
    Seen(ObjectHead),
    Gone(ObjectKey),
}

/// An error of the API server for a log: what it said, where it said something.
pub fn reason_of(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

/// Objects of all namespaces.
#[derive(Clone)]
pub struct ObjectStore {
    client: kube::Client,
}

impl std::fmt::Debug for ObjectStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectStore").finish_non_exhaustive()
    }
}

/// Why a watch ended.
enum WatchEnd {
    /// It goes on from this version.
    At(String),
    /// Objects are to be listed again.
    Relist(String),
}

impl ObjectStore {
    /// Uses this client.
    pub const fn new(client: kube::Client) -> Self {
        Self { client }
    }

    fn of(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &resource())
    }

    /// An object, if it is there.
    ///
    /// # Errors
    /// The API server's error.
    pub async fn get(&self, key: &ObjectKey) -> Result<Option<DagObject>, kube::Error> {
        let object = self.of(&key.namespace).get_opt(&key.name).await?;
        Ok(object.and_then(DagObject::of))
    }

    /// Applies a part of an object, if it is still the same one.
    async fn apply(&self, head: &ObjectHead, part: Part<'_>) -> Result<(), kube::Error> {
        let api = self.of(&head.key.namespace);
        // With the UID, an object that was replaced is not written to, and none that has gone is created.
        let mut object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": KIND,
            "metadata": {"name": head.key.name, "uid": head.uid},
        });
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        let written = match part {
            Part::Finalizer(is_there) => {
                if is_there {
                    object["metadata"]["finalizers"] = json!([FINALIZER]);
                }
                api.patch_metadata(&head.key.name, &parameters, &Patch::Apply(&object))
                    .await
                    .map(drop)
            }
            Part::Status(status) => {
                object["status"] = status.clone();
                api.patch_status(&head.key.name, &parameters, &Patch::Apply(&object))
                    .await
                    .map(drop)
            }
        };
        match written {
            Err(kube::Error::Api(error)) if REPLACED.contains(&error.code) => {
                tracing::debug!(object = %head.key, why = error.message, "the object has gone");
                Ok(())
            }
            other => other,
        }
    }

    /// Has an object wait for the controller before it goes, or no longer.
    ///
    /// # Errors
    /// The API server's error.
    pub async fn set_finalizer(
        &self,
        head: &ObjectHead,
        is_there: bool,
    ) -> Result<(), kube::Error> {
        self.apply(head, Part::Finalizer(is_there)).await
    }

    /// Writes the status of an object.
    ///
    /// # Errors
    /// The API server's error.
    pub async fn set_status(&self, head: &ObjectHead, status: &Value) -> Result<(), kube::Error> {
        self.apply(head, Part::Status(status)).await
    }

    /// Lists all objects, without their specifications: these are read when they are worked on.
    async fn list(
        &self,
        api: &Api<DynamicObject>,
    ) -> Result<(Vec<ObjectHead>, String), kube::Error> {
        let (mut heads, mut parameters) = (Vec::new(), ListParams::default().limit(PAGE));
        loop {
            let page = api.list_metadata(&parameters).await?;
            heads.extend(page.items.iter().filter_map(|object| ObjectHead::of(&object.metadata)));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => return Ok((heads, page.metadata.resource_version.unwrap_or_default())),
            }
        }
    }

    async fn follow(
        &self,
        api: &Api<DynamicObject>,
        mut version: String,
        news: &mpsc::Sender<ObjectNews>,
    ) -> WatchEnd {
        let parameters = WatchParams::default();
        let stream = match api.watch_metadata(&parameters, &version).await {
            Ok(stream) => stream,
            Err(error) => return WatchEnd::Relist(reason_of(&error)),
        };
        let mut stream = std::pin::pin!(stream);
        while let Some(event) = stream.next().await {
            let (object, has_gone) = match event {
                Ok(WatchEvent::Added(object) | WatchEvent::Modified(object)) => (object, false),
                Ok(WatchEvent::Deleted(object)) => (object, true),
                Ok(WatchEvent::Bookmark(mark)) => {
                    version = mark.metadata.resource_version;
                    continue;
                }
                Ok(WatchEvent::Error(status)) if status.code != GONE => {
                    tracing::warn!(why = status.message, "the watch of objects failed");
                    return WatchEnd::Relist(status.message);
                }
                Ok(WatchEvent::Error(status)) => return WatchEnd::Relist(status.message),
                // The connection broke; what was sent was taken.
                Err(error) => {
                    tracing::debug!(%error, "the watch of objects broke");
                    return WatchEnd::At(version);
                }
            };
            version = object.metadata.resource_version.clone().unwrap_or(version);
            let Some(head) = ObjectHead::of(&object.metadata) else { continue };
            let item = if has_gone { ObjectNews::Gone(head.key) } else { ObjectNews::Seen(head) };
            if news.send(item).await.is_err() {
                break;
            }
        }
        WatchEnd::At(version)
    }

    /// Reports objects until nobody takes them: a list, then changes with bookmarks; a list again where some were missed.
    pub async fn watch(self, news: mpsc::Sender<ObjectNews>) {
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource());
        while !news.is_closed() {
            let why = match self.list(&api).await {
                Ok((heads, mut version)) => {
                    if news.send(ObjectNews::Listed(heads)).await.is_err() {
                        return;
                    }
                    loop {
                        match self.follow(&api, version, &news).await {
                            WatchEnd::At(next) if !news.is_closed() => version = next,
                            WatchEnd::At(_) => return,
                            WatchEnd::Relist(why) => break why,
                        }
                        // A server that ends each watch at once is not asked all the time.
                        tokio::time::sleep(RELIST_AFTER).await;
                    }
                }
                Err(error) => reason_of(&error),
            };
            tracing::warn!(why, "objects are listed again");
            tokio::time::sleep(RELIST_AFTER).await;
        }
    }
}

/// A part of an object that the controller owns.
#[derive(Debug, Clone, Copy)]
enum Part<'a> {
    Finalizer(bool),
    Status(&'a Value),
}
