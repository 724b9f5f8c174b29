//! The kustomize bases: `kubectl kustomize` reads them, and a real API server takes all of them, with the rights that they say.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::cluster::control_plane::{self, ControlPlane};
use crate::cluster::kubectl_says;
use crate::cluster::objects::{apply, manifest};
use crate::manifests::check;

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// The bases: for clusters from 1.34 on, and before; the numbers of their objects.
const BASES: [(&str, usize); 2] = [("manifests", 15), (".", 11)];

/// Rights of the accounts: verb and resource, and whether they are there.
const RIGHTS: [(&str, &str, bool); 16] = [
    ("snic-system:snic-dag-controller", "patch dags.snic.dev", true),
    ("snic-system:snic-dag-controller", "patch dags.snic.dev --subresource=status", true),
    ("snic-system:snic-dag-controller", "delete dags.snic.dev", false),
    ("snic-system:snic-dag-controller", "get secrets", false),
    ("snic-system:snic-dag-controller", "get pods", false),
    ("snic-system:snic-dag-controller", "update leases.coordination.k8s.io", false),
    ("kube-system:snic-dra", "watch resourceclaims.resource.k8s.io", true),
    ("kube-system:snic-dra", "patch resourceclaims.resource.k8s.io --subresource=status", true),
    ("kube-system:snic-dra", "patch resourceclaims.resource.k8s.io", false),
    ("kube-system:snic-dra", "delete resourceslices.resource.k8s.io", false),
    ("kube-system:snic-dra", "patch nodes", false),
    ("kube-system:snic-dra", "create resourcequotas", true),
    ("kube-system:snic-dra", "watch resourcequotas", true),
    ("kube-system:snic-dra", "patch resourcequotas", false),
    ("kube-system:snic-dra", "delete resourcequotas", false),
    ("kube-system:snic-dra", "get pods", false),
];

#[tokio::test(flavor = "multi_thread")]
async fn the_bases_are_taken_by_an_api_server_with_least_rights() {
    let none = Path::new("/dev/null");
    if let Err(why) = kubectl_says(none, "version --client") {
        println!("not run: {why}");
        return;
    }
    for (name, count) in BASES {
        let built = kubectl_says(none, &format!("kustomize {}", folder(name).display()));
        let objects = manifest(&built.expect("kustomize reads it"));
        assert_eq!(objects.len(), count, "{name}");
        for object in objects {
            check(&object).unwrap_or_else(|why| panic!("{name}: {why}"));
        }
    }
    if let Some(why) = control_plane::missing_for_claims() {
        println!("not run: {why}");
        return;
    }
    let plane = ControlPlane::start().await;
    let login = plane.path().join("pki/admin.kubeconfig");
    // A dry run creates nothing, so that the namespace of other objects has to be there.
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "snic-system"}});
    apply(&plane.client, &namespace).await;
    for (name, count) in BASES {
        let words =
            format!("apply --dry-run=server --validate=strict -k {}", folder(name).display());
        let said = kubectl_says(&login, &words).expect("the API server takes all of it");
        assert_eq!(said.matches("(server dry run)").count(), count, "{said}");
    }
    kubectl_says(&login, "get crd dags.snic.dev").expect_err("a dry run creates nothing");

    // A key that the API does not have is found.
    let copy = tempfile::tempdir().expect("a folder");
    let text = std::fs::read_to_string(folder("daemonset.yaml")).expect("a manifest");
    let wrong = text.replace("readOnlyRootFilesystem", "readonlyRootFilesystem");
    assert_ne!(wrong, text);
    std::fs::write(copy.path().join("daemonset.yaml"), wrong).expect("written");
    let base = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [daemonset.yaml]\n";
    std::fs::write(copy.path().join("kustomization.yaml"), base).expect("written");
    let words = format!("apply --dry-run=server --validate=strict -k {}", copy.path().display());
    let refused = kubectl_says(&login, &words).expect_err("an unknown key");
    assert!(refused.contains("readonlyRootFilesystem"), "{refused}");

    for (name, _) in BASES {
        let words = format!("apply --server-side -k {}", folder(name).display());
        kubectl_says(&login, &words).expect("applied");
    }
    for (account, right, is_there) in RIGHTS {
        let words = format!("auth can-i {right} -A --as=system:serviceaccount:{account}");
        let said = kubectl_says(&login, &words);
        assert_eq!(said.is_ok(), is_there, "{account}: {right}: {said:?}");
    }
}
