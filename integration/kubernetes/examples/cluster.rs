//! A Kubernetes cluster on this machine, with a software card and the DRA driver, until Ctrl-C: what `cargo xtask cluster` runs.

#[path = "../tests/cluster/mod.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod cluster;

use std::process::ExitCode;

use snic_integration::{TestClient, program};

use cluster::Cluster;
use cluster::objects::{apply, manifest, read};

fn main() -> ExitCode {
    if let Some(why) = cluster::missing() {
        eprintln!("error: {why}");
        return ExitCode::FAILURE;
    }
    if std::process::id() != 1 {
        let status = cluster::enter(&[], |unshare| {
            println!(
                "a shell in the cluster's namespaces, from another terminal:\n  \
                 nsenter --mount --net --pid --target $(cat /proc/{unshare}/task/{unshare}/children) bash"
            );
        });
        return if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    runtime.block_on(async {
        tokio::select! {
            () = serve() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    });
    ExitCode::SUCCESS
}

/// Starts the cluster, says how to use it, and goes on until the future is dropped.
async fn serve() {
    let mut cluster = Cluster::start().await;
    let socket = cluster.daemon_socket();
    let daemon = TestClient::connect(&socket, "operator/test").await.expect("it serves");
    let catalogue = snic_bitstream::catalogue::builtin().expect("the built-in catalogue");
    daemon.register(&catalogue).await;
    daemon.create_tenant("acme").await.expect("a new tenant");
    for file in ["snic-dra.yaml", "dags.snic.dev.yaml", "snic-dag-controller.yaml"] {
        for object in manifest(&read(file)) {
            // The controller runs beside the cluster, for there is no registry with its image.
            if object["kind"] != "Deployment" {
                apply(&cluster.client, &object).await;
            }
        }
    }
    cluster.start_driver("");
    cluster.start_dag_controller();
    let folder = cluster.path().display();
    println!(
        "in that shell:\n  export KUBECONFIG={folder}/pki/admin.kubeconfig\n  \
         export PATH=$PATH:{}\n  kubectl get nodes,resourceslices\n  \
         snicctl --endpoint unix:{} --identity tenant/acme dag list\n  \
         kubectl apply -f integration/kubernetes/manifests/dag-example.yaml\n  \
         kubectl -n shop get dags -o wide\n  \
         kubectl apply -f integration/kubernetes/manifests/example.yaml\n\
         logs are in {folder}/log; Ctrl-C ends all of it",
        program("snicctl").parent().expect("a folder").display(),
        socket.display(),
    );
    std::future::pending::<()>().await;
}
