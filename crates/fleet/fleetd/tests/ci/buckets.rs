//! Images in a bucket of S3: uploaded at one replica, fetched at another, and what still works while S3 does not.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use snic_api::v1;
use snic_api::v1::bitstream_service_client::BitstreamServiceClient;
use snic_domain::Digest;
use snic_store_etcd::{Blobs, BucketSettings, bucket_of_blobs};
use tonic::Code;

use crate::cluster::{Cluster, eventually, in_time, runtime};
use crate::host;
use crate::rig::{Client, Rig};
use crate::s3::{BUCKET, Disturbance, FLEET, Proxy, READER, S3};

const CHAIN: [&str; 2] = ["firewall", "nat"];

async fn is_registered(client: &Client, id: &str) -> bool {
    let request = v1::GetBitstreamRequest { name: format!("bitstreams/{id}") };
    BitstreamServiceClient::new(client.0.clone()).get_bitstream(request).await.is_ok()
}

#[test]
fn an_image_goes_from_one_replica_to_a_host_at_another_whatever_happens_to_its_bucket() {
    let Some(cluster) = Cluster::start(1) else { return };
    let Some(mut s3) = S3::start() else { return };
    runtime().block_on(in_time(async {
        let proxy = Proxy::start(s3.port).await;
        // Longer than all takes that does not wait for it.
        let request_timeout = Duration::from_secs(10);
        let settings = BucketSettings { request_timeout, ..s3.settings_at(FLEET, proxy.port) };
        let bucket = bucket_of_blobs(&settings).unwrap();
        let rig = Rig::with_images_in(cluster, 2, Blobs::new(bucket)).await;
        rig.leader().await;
        let (root, other) =
            (rig.client(0, "operator/root").await, rig.client(1, "operator/root").await);
        root.provide("h1", &CHAIN).await;
        root.create_tenant("acme", "").await.unwrap();
        let stored = s3.list();
        assert_eq!(stored.len(), 1, "{stored:?}");
        let digest: Digest = stored[0].rsplit('/').next().unwrap().parse().unwrap();
        let h1 = rig.connect(1, "host/h1").await;
        let image = host::fetch(h1.clone(), digest).await.unwrap();
        assert_eq!(Digest::of(&image), digest);
        // A host that has it gets DAGs that need it.
        let hosts = vec![rig.connect(0, "host/h1").await, rig.connect(1, "host/h1").await];
        let running = tokio::spawn(host::run(hosts));
        let acme = rig.client(1, "tenant/acme").await;
        let begun = acme.create_dag(("acme", "one"), &CHAIN, "").await.unwrap();
        assert!(acme.wait(&begun.name).await.unwrap().done);

        // Both replicas go on while the bucket does not answer; what needs it is told to try again.
        proxy.set(Disturbance::Hang);
        let upload = tokio::spawn({
            let root = root.clone();
            async move { root.upload("late", &CHAIN, 32_768, "").await }
        });
        let fetched = tokio::spawn(host::fetch(h1.clone(), digest));
        for (client, tenant) in [(&root, "globex"), (&other, "initech")] {
            client.create_tenant(tenant, "").await.unwrap();
        }
        let begun = acme.create_dag(("acme", "two"), &CHAIN, "").await.unwrap();
        assert!(acme.wait(&begun.name).await.unwrap().done);
        assert!(!upload.is_finished() && !fetched.is_finished(), "others did not wait for them");
        for refused in [upload.await.unwrap().unwrap_err(), fetched.await.unwrap().unwrap_err()] {
            assert_eq!(refused.code(), Code::Unavailable, "{refused:?}");
            assert!(refused.message().contains("try again later"), "{refused:?}");
        }
        assert!(!is_registered(&root, "late").await);

        // It is killed while it gives an image, and comes back empty: the image is uploaded again, for another id.
        proxy.set(Disturbance::Slow(Duration::from_millis(200)));
        let fetched = tokio::spawn(host::fetch(h1.clone(), digest));
        tokio::time::sleep(Duration::from_millis(300)).await;
        s3.kill();
        proxy.set(Disturbance::CutOnce(0));
        assert_eq!(fetched.await.unwrap().unwrap_err().code(), Code::Unavailable);
        s3 = tokio::task::spawn_blocking(|| s3.restart()).await.unwrap();
        assert_eq!(host::fetch(h1.clone(), digest).await.unwrap_err().code(), Code::Unavailable);
        root.upload("again", &CHAIN, 16_384, "").await.unwrap();
        assert_eq!(host::fetch(h1, digest).await.unwrap(), image);
        assert_eq!(s3.list(), stored);
        running.abort();
    }));
}

#[test]
fn images_that_no_bitstream_names_leave_the_bucket() {
    let Some(cluster) = Cluster::start(1) else { return };
    let Some(mut s3) = S3::start() else { return };
    runtime().block_on(in_time(async {
        let proxy = Proxy::start(s3.port).await;
        let request_timeout = Duration::from_secs(50);
        let settings = BucketSettings { request_timeout, ..s3.settings_at(FLEET, proxy.port) };
        let bucket = Blobs::new(bucket_of_blobs(&settings).unwrap());
        let mut rig = Rig::start_with(cluster, 1, (bucket, Duration::from_secs(6))).await;
        rig.leader().await;
        let root = rig.client(0, "operator/root").await;
        root.provide("h1", &CHAIN).await;
        let named = s3.list();
        assert_eq!(named.len(), 1);
        let old = format!("fleets/one/bitstreams/{}", Digest::of(b"old"));
        let foreign = "fleets/one/bitstreams/README".to_owned();
        s3.put(&old, "old");
        s3.put(&foreign, "theirs");
        let s3 = std::sync::Mutex::new(s3);
        let list = || s3.lock().unwrap().list();
        eventually(async || !list().contains(&old)).await;
        let left = list();
        assert!(left.contains(&named[0]) && left.contains(&foreign), "{left:?}");
        // A replica ends at once in the middle of a sweep, too: there is one in each second.
        proxy.set(Disturbance::Hang);
        tokio::time::sleep(Duration::from_secs(3)).await;
        let begin = Instant::now();
        rig.stop(0).await;
        assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
    }));
}

/// The program itself, with its settings: what is wrong is told before it serves anybody.
#[test]
fn the_program_refuses_a_bucket_that_it_cannot_use() {
    let Some(s3) = S3::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    crate::checking::write_certificate(folder.path());
    let run = |bucket: &str, user: &str, arguments: &[&str]| -> Output {
        let path = |name: &str| folder.path().join(name).display().to_string();
        let text = format!(
            "listen = \"127.0.0.1:0\"\naddress = \"https://localhost:1\"\n\
             [tls]\nca = {:?}\ncertificate = {:?}\nkey = {:?}\n\
             [etcd]\nendpoints = [\"http://127.0.0.1:1\"]\n\
             [images]\nbucket = {bucket:?}\nendpoint = \"http://127.0.0.1:{}\"\n\
             allow_http = true\ncredentials = {:?}\ntimeout_seconds = 2\n",
            path("replica.pem"),
            path("replica.pem"),
            path("replica.key"),
            s3.port,
            s3.keys(user),
        );
        let file = folder.path().join("fleet.toml");
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_snic-fleet"));
        command.arg("--config").arg(&file).args(arguments).output().unwrap()
    };
    let right = run(BUCKET, FLEET, &["--check"]);
    let text = String::from_utf8_lossy(&right.stdout);
    assert!(text.contains("ok    images: "), "{right:?}");
    for (bucket, user, expected) in [
        ("no-such-bucket", FLEET, "the bucket or folder does not exist"),
        (BUCKET, READER, "it refuses these credentials"),
        (BUCKET, "nobody", "there are no usable credentials"),
    ] {
        for arguments in [&["--check"][..], &[]] {
            let Output { status, stdout, stderr } = run(bucket, user, arguments);
            let text = String::from_utf8([stdout, stderr].concat()).unwrap();
            assert!(!status.success() && text.contains(expected), "{text}");
            assert!(text.contains("images"), "{text}");
        }
    }
}
