//! Objects of a cluster as tests write and read them.

use std::path::{Path, PathBuf};

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde::Deserialize as _;
use serde_json::Value;

/// The API of an object's kind.
fn api(client: &kube::Client, object: &Value) -> Api<DynamicObject> {
    let version = object["apiVersion"].as_str().expect("a version");
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = object["kind"].as_str().expect("a kind");
    let lower = kind.to_lowercase();
    let plural = match lower.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None if lower.ends_with('s') => format!("{lower}es"),
        None => format!("{lower}s"),
    };
    let kind = GroupVersionKind::gvk(group, version, kind);
    let resource = ApiResource::from_gvk_with_plural(&kind, &plural);
    match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// The objects of a manifest.
pub fn manifest(text: &str) -> Vec<Value> {
    let documents = serde_yaml_ng::Deserializer::from_str(text);
    documents.map(|document| Value::deserialize(document).expect("YAML")).collect()
}

/// The file of a manifest of this package.
pub fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests").join(name)
}

/// The text of a manifest of this package.
pub fn read(name: &str) -> String {
    std::fs::read_to_string(path(name)).expect("a manifest")
}

/// Applies an object, as `kubectl apply --server-side` does.
pub async fn apply(client: &kube::Client, object: &Value) {
    let name = object["metadata"]["name"].as_str().expect("a name");
    let parameters = PatchParams::apply("test").force();
    let applied = api(client, object).patch(name, &parameters, &Patch::Apply(object)).await;
    applied.unwrap_or_else(|error| panic!("{object}: {error}"));
}

/// Deletes an object.
pub async fn delete(client: &kube::Client, object: &Value) {
    let name = object["metadata"]["name"].as_str().expect("a name");
    let deleted = api(client, object).delete(name, &Default::default()).await;
    deleted.unwrap_or_else(|error| panic!("{object}: {error}"));
}
