//! Objects of the kind `Dag`, as the controller reads them.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use serde_json::Value;

/// Group of the kind.
pub const GROUP: &str = "snic.dev";
/// Version of the kind.
pub const VERSION: &str = "v1alpha1";
/// Kind of the objects.
pub const KIND: &str = "Dag";
/// Its name in paths of the API server.
pub const PLURAL: &str = "dags";
/// The finalizer: an object goes when its DAG has gone from the server.
pub const FINALIZER: &str = "snic.dev/dag";

/// Namespace and name of an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The kind, for clients of the API server.
pub fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, VERSION, KIND), PLURAL)
}

/// The part of an object's metadata that the controller acts on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectHead {
    pub key: ObjectKey,
    pub uid: String,
    /// Number of changes of the specification.
    pub generation: i64,
    /// Whether it is being deleted.
    pub is_deleting: bool,
    /// Whether it waits for the controller before it goes.
    pub has_finalizer: bool,
}

impl ObjectHead {
    /// The head of an object, unless the API server left out what each has.
    pub fn of(metadata: &ObjectMeta) -> Option<Self> {
        let key =
            ObjectKey { namespace: metadata.namespace.clone()?, name: metadata.name.clone()? };
        let mut finalizers = metadata.finalizers.iter().flatten();
        Some(Self {
            key,
            uid: metadata.uid.clone()?,
            generation: metadata.generation.unwrap_or_default(),
            is_deleting: metadata.deletion_timestamp.is_some(),
            has_finalizer: finalizers.any(|finalizer| finalizer == FINALIZER),
        })
    }
}

/// An object with its specification and the status that was last written.
#[derive(Debug, Clone, PartialEq)]
pub struct DagObject {
    pub head: ObjectHead,
    pub spec: Value,
    pub status: Value,
}

impl DagObject {
    /// Takes an object apart.
    pub fn of(mut object: DynamicObject) -> Option<Self> {
        let head = ObjectHead::of(&object.metadata)?;
        let mut part = |name: &str| object.data.get_mut(name).map(Value::take).unwrap_or_default();
        Some(Self { head, spec: part("spec"), status: part("status") })
    }

    /// Name of the DAG on the server that the status says.
    pub fn reported_dag(&self) -> Option<&str> {
        self.status.get("dag").and_then(Value::as_str)
    }
}
