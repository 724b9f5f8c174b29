//! The manifests are valid: Kubernetes' own types, generated from its published API, know every key and take every value.

use std::collections::BTreeSet;

use k8s_openapi::Resource;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::admissionregistration::v1beta1::{
    MutatingAdmissionPolicy, MutatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, PodSpec, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaimTemplate};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use serde::de::DeserializeOwned;
use serde::{Deserialize as _, Serialize};
use serde_json::Value;
use snic_kubernetes::dags::settings::DagControllerSettings;
use snic_kubernetes::dags::{crd, lease, object};
use snic_kubernetes::dra::DRIVER;
use snic_kubernetes::dra::parameters::FunctionParameters;
use snic_kubernetes::settings::Settings;

use crate::cluster::objects::{self, manifest};

const MANIFEST: &str = include_str!("../daemonset.yaml");

/// The first place where `read` does not say what `written` says: a key that the API does not have, another value, or a
/// required key that was left out and has no value.
fn difference(written: &Value, read: &Value, place: &str) -> Option<String> {
    match (written, read) {
        (Value::Object(written), Value::Object(read)) => {
            let mut written_keys = written.iter();
            let other = written_keys.find_map(|(key, value)| {
                let place = format!("{place}.{key}");
                match read.get(key) {
                    Some(read) => difference(value, read, &place),
                    None => Some(format!("{place}: unknown key")),
                }
            });
            let missing = || read.keys().find(|key| !written.contains_key(*key));
            other.or_else(|| missing().map(|key| format!("{place}.{key}: missing")))
        }
        (Value::Array(written), Value::Array(read)) if written.len() == read.len() => {
            let mut pairs = written.iter().zip(read).enumerate();
            pairs.find_map(|(at, (written, read))| {
                difference(written, read, &format!("{place}[{at}]"))
            })
        }
        // A limit of a schema is a number with a fraction to Kubernetes' types.
        (Value::Number(written), Value::Number(read)) if written.as_f64() == read.as_f64() => None,
        _ => (written != read).then(|| format!("{place}: {written} is read as {read}")),
    }
}

/// Reads an object strictly: no key may be unknown, and none missing.
fn typed<T: Resource + DeserializeOwned + Serialize>(object: &Value) -> Result<T, String> {
    let read: T = serde_json::from_value(object.clone()).map_err(|error| error.to_string())?;
    let again = serde_json::to_value(&read).map_err(|error| error.to_string())?;
    difference(object, &again, T::KIND).map_or(Ok(read), Err)
}

/// Content of the plugin's manifest.
#[derive(Debug)]
struct Manifest {
    settings: ConfigMap,
    plugin: DaemonSet,
}

fn read(text: &str) -> Result<Manifest, String> {
    let mut objects = Vec::new();
    for document in serde_yaml_ng::Deserializer::from_str(text) {
        objects.push(Value::deserialize(document).map_err(|error| error.to_string())?);
    }
    match &objects[..] {
        [settings, plugin] => Ok(Manifest { settings: typed(settings)?, plugin: typed(plugin)? }),
        others => Err(format!("{} objects", others.len())),
    }
}

fn pod(plugin: &DaemonSet) -> &PodSpec {
    plugin.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()).expect("a pod")
}

#[test]
fn every_key_and_value_is_one_of_kubernetes() {
    read(MANIFEST).expect("valid");
}

#[test]
fn what_kubernetes_does_not_know_is_named() {
    for (good, bad, said) in [
        (
            "hostPath: {path: /sys,",
            "hostpath: {path: /sys,",
            "DaemonSet.spec.template.spec.volumes[5].hostpath: unknown key",
        ),
        (
            "readOnlyRootFilesystem",
            "readonlyRootFilesystem",
            "securityContext.readonlyRootFilesystem: unknown key",
        ),
        ("mountPath: /etc/snic", "mountpath: /etc/snic", "mountpath: unknown key"),
        (
            "name: settings, mountPath: /etc/snic,",
            "name: settings,",
            "volumeMounts[0].mountPath: missing",
        ),
        ("runAsUser: 0", "runAsUser: root", "expected i64"),
        ("drop: [\"ALL\"]", "drop: ALL", "expected a sequence"),
        ("kind: DaemonSet", "kind: Daemonset", "expected DaemonSet"),
        ("apiVersion: apps/v1", "apiVersion: apps/v1beta1", "expected apps/v1"),
        (
            "namespace: kube-system\ndata:",
            "namespace: kube-system\ndate:",
            "ConfigMap.date: unknown key",
        ),
    ] {
        assert!(MANIFEST.contains(good), "{good}");
        let error = read(&MANIFEST.replace(good, bad)).expect_err(bad);
        assert!(error.contains(said), "{bad}: {error}");
    }
}

/// The parts fit together as the API server checks beyond keys and types, and as the kubelet and the plugin would find later.
#[test]
fn the_parts_fit_together() {
    let Manifest { settings, plugin } = read(MANIFEST).expect("valid");
    let spec = plugin.spec.as_ref().expect("a specification");
    let labels = spec.template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    let labels = labels.expect("labels");
    let selected = spec.selector.match_labels.as_ref().expect("a selector");
    assert!(selected.iter().all(|(key, value)| labels.get(key) == Some(value)), "{selected:?}");
    assert_eq!(plugin.metadata.namespace, settings.metadata.namespace);

    let pod = pod(&plugin);
    let volumes = pod.volumes.as_ref().expect("volumes");
    let names: BTreeSet<_> = volumes.iter().map(|volume| &volume.name).collect();
    assert_eq!(names.len(), volumes.len(), "each name once");
    let container = &pod.containers[0];
    let mounts = container.volume_mounts.as_ref().expect("mounts");
    assert_eq!(mounts.iter().map(|mount| &mount.name).collect::<BTreeSet<_>>(), names);
    let maps = volumes.iter().filter_map(|volume| volume.config_map.as_ref());
    let maps: Vec<_> = maps.map(|map| map.name.as_str()).collect();
    assert_eq!(maps, [settings.metadata.name.as_deref().expect("a name")]);
    for path in volumes.iter().filter_map(|volume| volume.host_path.as_ref()) {
        let kind = path.type_.as_deref().expect("a type");
        assert!(["Directory", "DirectoryOrCreate"].contains(&kind), "{kind}");
    }

    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("device-plugin.toml");
    let text = &settings.data.as_ref().expect("settings")["device-plugin.toml"];
    let node =
        container.env.as_ref().is_some_and(|all| all.iter().any(|one| one.name == "NODE_NAME"));
    assert!(node, "the plugin reads the node's name there");
    std::fs::write(&file, format!("node = \"node-1\"\n{text}")).expect("written");
    let settings = Settings::read(&file).expect("valid settings");
    let mounted =
        |path: &std::path::Path| mounts.iter().any(|mount| path.starts_with(&mount.mount_path));
    assert!(mounted(&settings.kubelet_dir) && mounted(&settings.pod_resources));
    assert!(mounted(&settings.sysfs) && mounted(settings.cdi_dir.as_ref().expect("set")));
}

/// Checks an object by the type of its kind.
pub fn check(object: &Value) -> Result<(), String> {
    match object["kind"].as_str().expect("a kind") {
        "Namespace" => typed::<Namespace>(object).map(drop),
        "Pod" => typed::<Pod>(object).map(drop),
        "ServiceAccount" => typed::<ServiceAccount>(object).map(drop),
        "ClusterRole" => typed::<ClusterRole>(object).map(drop),
        "ClusterRoleBinding" => typed::<ClusterRoleBinding>(object).map(drop),
        "DeviceClass" => typed::<DeviceClass>(object).map(drop),
        "Role" => typed::<Role>(object).map(drop),
        "RoleBinding" => typed::<RoleBinding>(object).map(drop),
        "ConfigMap" => typed::<ConfigMap>(object).map(drop),
        "DaemonSet" => typed::<DaemonSet>(object).map(drop),
        "Deployment" => typed::<Deployment>(object).map(drop),
        "CustomResourceDefinition" => typed::<CustomResourceDefinition>(object).map(drop),
        "ValidatingAdmissionPolicy" => typed::<ValidatingAdmissionPolicy>(object).map(drop),
        "ValidatingAdmissionPolicyBinding" => {
            typed::<ValidatingAdmissionPolicyBinding>(object).map(drop)
        }
        "MutatingAdmissionPolicy" => typed::<MutatingAdmissionPolicy>(object).map(drop),
        "MutatingAdmissionPolicyBinding" => {
            typed::<MutatingAdmissionPolicyBinding>(object).map(drop)
        }
        "ResourceClaimTemplate" => typed::<ResourceClaimTemplate>(object).map(drop),
        other => Err(format!("{other}: no type")),
    }
}

#[test]
fn the_driver_of_claims_and_its_example_are_valid_and_fit() {
    let driver = manifest(&objects::read("snic-dra.yaml"));
    let example = manifest(&objects::read("example.yaml"));
    let many_pods = manifest(&objects::read("many-pods.yaml"));
    for object in driver.iter().chain(&example).chain(&many_pods) {
        check(object).unwrap_or_else(|why| panic!("{why}"));
    }
    let template = example.iter().find(|object| object["kind"] == "ResourceClaimTemplate");
    let devices = &template.expect("a template")["spec"]["spec"]["devices"];
    assert_eq!(devices["config"][0]["opaque"]["driver"], DRIVER);
    let parameters = RawExtension(devices["config"][0]["opaque"]["parameters"].clone());
    FunctionParameters::parse(&parameters).expect("the driver takes them");
    let class = driver.iter().find(|object| object["kind"] == "DeviceClass").expect("a class");
    assert_eq!(devices["requests"][0]["exactly"]["deviceClassName"], class["metadata"]["name"]);
    let mut wrong = class.clone();
    wrong["spec"]["selectors"][0]["cel"]["expresion"] = "true".into();
    assert!(check(&wrong).expect_err("a typing error").contains("expresion: unknown key"));
}

#[test]
fn the_definition_of_the_kind_is_what_the_program_prints() {
    let printed = crd::manifest().expect("YAML");
    let hint = "generate it again: snic-dag-controller --print-crd";
    assert_eq!(objects::read("dags.snic.dev.yaml"), printed, "{hint}");
    check(&manifest(&printed)[0]).expect("valid");
}

/// Rules of a role as `group/resource: verbs`.
fn rights(role: &Value) -> BTreeSet<String> {
    let words = |list: &Value| {
        let words = list.as_array().expect("a list").iter();
        words.map(|word| word.as_str().expect("a word").to_owned()).collect::<Vec<_>>().join(",")
    };
    let rules = role["rules"].as_array().expect("rules").iter();
    let right = |rule: &Value| {
        let named = rule.get("resourceNames").map(|names| format!(" {}", words(names)));
        let (groups, resources) = (words(&rule["apiGroups"]), words(&rule["resources"]));
        format!("{groups}/{resources}{}: {}", named.unwrap_or_default(), words(&rule["verbs"]))
    };
    rules.map(right).collect()
}

#[test]
fn the_controller_has_the_least_rights_and_settings_that_it_reads() {
    let objects = manifest(&objects::read("snic-dag-controller.yaml"));
    for object in &objects {
        check(object).unwrap_or_else(|why| panic!("{why}"));
    }
    let find = |kind: &str| objects.iter().find(|object| object["kind"] == kind).expect(kind);
    let dags = format!("{}/{}", object::GROUP, object::PLURAL);
    let expected = [format!("{dags}: get,list,watch,patch"), format!("{dags}/status: patch")];
    assert_eq!(rights(find("ClusterRole")), BTreeSet::from(expected));
    let leases = "coordination.k8s.io/leases";
    let expected = [format!("{leases}: create"), format!("{leases} {}: get,update", lease::NAME)];
    assert_eq!(rights(find("Role")), BTreeSet::from(expected));
    let account = find("ServiceAccount");
    for binding in ["ClusterRoleBinding", "RoleBinding"] {
        let subject = &find(binding)["subjects"][0];
        assert_eq!(subject["name"], account["metadata"]["name"]);
        assert_eq!(subject["namespace"], account["metadata"]["namespace"]);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("dag-controller.toml");
    let text = find("ConfigMap")["data"]["dag-controller.toml"].as_str().expect("settings");
    let pod = &find("Deployment")["spec"]["template"]["spec"];
    let variables = pod["containers"][0]["env"].as_array().expect("variables").iter();
    let names: Vec<&str> = variables.filter_map(|variable| variable["name"].as_str()).collect();
    assert_eq!(
        names,
        ["POD_NAME", "POD_NAMESPACE"],
        "the program reads them where the settings say nothing"
    );
    std::fs::write(&file, format!("lease_namespace = \"a\"\nreplica = \"b\"\n{text}"))
        .expect("written");
    let settings = DagControllerSettings::read(&file).expect("valid settings");
    assert!(settings.namespaces.contains_key("shop"));
    assert_eq!(pod["serviceAccountName"], account["metadata"]["name"]);
}

#[test]
fn the_example_of_a_dag_is_a_dag_file() {
    let objects = manifest(&objects::read("dag-example.yaml"));
    let dag = objects.iter().find(|object| object["kind"] == object::KIND).expect("a DAG");
    assert_eq!(dag["apiVersion"], format!("{}/{}", object::GROUP, object::VERSION));
    snic_dagfile::parse("spec", &dag["spec"].to_string()).expect("valid");
}
