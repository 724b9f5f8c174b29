//! Programs of Kubernetes that the cluster has, and what their versions have: `SNIC_KUBERNETES_FOLDER` may name those of another
//! version, and `SNIC_KUBELET_FOLDER` those of the node, for a kubelet may be older than the API server.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::cache;

/// First minor version with claims as the driver serves them: `resource.k8s.io/v1`, and `dra/v1` of the kubelet.
const CLAIMS_SINCE: u32 = 34;
/// Features that are not on by default. Versions before that one do not know all of them, and end when one is named.
const FEATURES: [&str; 4] = [
    "DRAConsumableCapacity",
    "DRADeviceBindingConditions",
    "DRAResourceClaimDeviceStatus",
    "DRADeviceTaints",
];

/// The folder that a variable names.
fn named(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from)
}

/// A program of Kubernetes that is built once.
pub fn kubernetes_program(name: &str) -> PathBuf {
    let of_node = || (name == "kubelet").then(|| named("SNIC_KUBELET_FOLDER"))?;
    let folder = of_node().unwrap_or_else(|| cache("SNIC_KUBERNETES_FOLDER", "kubernetes"));
    folder.join(name)
}

/// The minor version of a program: 34 of `Kubernetes v1.34.2`.
///
/// # Panics
/// It does not say its version.
fn minor(name: &str) -> u32 {
    let program = kubernetes_program(name);
    let output = Command::new(&program).arg("--version").output().expect("it was built");
    let said = String::from_utf8_lossy(&output.stdout);
    let number = said.trim().strip_prefix("Kubernetes v1.").and_then(|rest| rest.split('.').next());
    let number = number.and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("{} --version: {said:?}", program.display()))
}

/// Says why there are no claims with these programs, all of which are there.
pub fn without_claims(programs: &[&str]) -> Option<String> {
    let old = programs.iter().find(|name| minor(name) < CLAIMS_SINCE)?;
    Some(format!(
        "{} is of Kubernetes 1.{}, and claims need 1.{CLAIMS_SINCE} or later",
        kubernetes_program(old).display(),
        minor(old)
    ))
}

/// Flag of the features of a program, as far as its version has them.
pub fn feature_flag(name: &str) -> String {
    if minor(name) < CLAIMS_SINCE {
        return String::new();
    }
    format!("--feature-gates={}", FEATURES.map(|feature| format!("{feature}=true")).join(","))
}

/// The same for the API server, with policies that change objects, and the versions of its API that are not on by default.
pub fn api_flags() -> String {
    let features = feature_flag("kube-apiserver");
    if features.is_empty() {
        return features;
    }
    format!(
        "{features},MutatingAdmissionPolicy=true --runtime-config=resource.k8s.io/v1alpha3=true,\
         admissionregistration.k8s.io/v1beta1=true"
    )
}

/// Settings of the kubelet, whose clients have certificates of this authority.
pub fn kubelet_settings(authority: &Path) -> String {
    let mut settings = KUBELET.replace("CA}", &format!("{}}}", authority.display()));
    if minor("kubelet") >= CLAIMS_SINCE {
        settings += "featureGates:\n";
        settings.extend(FEATURES.map(|feature| format!("  {feature}: true\n")));
    }
    settings
}

/// Settings of the kubelet in each version.
const KUBELET: &str = "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
cgroupRoot: /snic-cluster
enforceNodeAllocatable: []
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
resolvConf: ''
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: CA}}
authorization: {mode: AlwaysAllow}
evictionHard: {memory.available: 10Mi, nodefs.available: 1Mi, imagefs.available: 1Mi}
imageGCHighThresholdPercent: 100
";
