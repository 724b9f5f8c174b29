//! Blobs in a bucket of an S3 server that others wrote: what a folder promises holds there too, whatever happens to the
//! server and on the way to it.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use snic_domain::Digest;
use snic_ports::store::StoreError;
use snic_store_etcd::{Blobs, BlobsUnusable, BucketSettings, bucket_of_blobs};

use super::cluster::{in_time, runtime};
use super::s3::{Disturbance, FLEET, Proxy, READER, S3};
use super::tls;

fn blobs(settings: &BucketSettings) -> Blobs {
    Blobs::new(bucket_of_blobs(settings).unwrap())
}

/// The other client stores and reads what this one does, under the names that operators are told.
#[test]
fn another_client_sees_the_same_objects_and_what_it_damages_is_noticed() {
    let Some(mut s3) = S3::start() else { return };
    let of = blobs(&s3.settings(FLEET));
    let (wait, digest) = (runtime(), Digest::of(b"bits"));
    wait.block_on(of.check()).unwrap();
    assert_eq!(s3.list(), [""; 0], "the check leaves nothing");
    wait.block_on(of.put(digest, b"bits")).unwrap();
    let name = format!("fleets/one/bitstreams/{digest}");
    assert_eq!(s3.list(), [name.as_str()]);
    assert_eq!(s3.get(&name), "62697473");

    let other = wait.block_on(of.put(digest, b"bitz")).unwrap_err();
    assert!(matches!(other, StoreError::DigestMismatch { .. }), "{other}");
    assert_eq!(s3.list(), [name.as_str()]);
    s3.put(&name, "bitz");
    let error = wait.block_on(of.get(digest)).unwrap_err();
    assert!(matches!(error, StoreError::DigestMismatch { .. }), "{error}");
    wait.block_on(of.put(digest, b"bits")).unwrap();
    assert_eq!(wait.block_on(of.get(digest)).unwrap(), b"bits");
    let absent = wait.block_on(of.get(Digest::of(b"absent"))).unwrap_err();
    assert!(matches!(absent, StoreError::NoBlob(_)), "{absent}");
}

#[test]
fn a_sweep_removes_what_is_old_and_not_kept_and_nothing_of_others() {
    let Some(mut s3) = S3::start() else { return };
    let of = blobs(&s3.settings(FLEET));
    let hour = Duration::from_secs(3_600);
    let (past, future) = (SystemTime::now() - hour, SystemTime::now() + hour);
    let digests: Vec<Digest> = (0..5u8).map(|i| Digest::of(&[i])).collect();
    let others = ["fleets/one/bitstreams/README".to_owned(), format!("bitstreams/{}", digests[0])];
    others.iter().for_each(|name| s3.put(name, "theirs"));
    runtime().block_on(in_time(async {
        for i in 0..5u8 {
            of.put(digests[usize::from(i)], &[i]).await.unwrap();
        }
        let keep = BTreeSet::from([digests[3]]);
        assert_eq!(of.sweep(&keep, past, 10).await.unwrap(), 0, "all are young");
        assert_eq!(of.sweep(&keep, future, 3).await.unwrap(), 3);
        assert_eq!(of.sweep(&keep, future, 3).await.unwrap(), 1);
        assert_eq!(of.sweep(&keep, future, 3).await.unwrap(), 0);
        // Stored again it is young again.
        let before = of.stored_at(digests[3]).await.unwrap().unwrap();
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        of.put_since(digests[3], &[3], before - hour).await.unwrap();
        assert_eq!(of.stored_at(digests[3]).await.unwrap(), Some(before), "left alone");
        of.put_since(digests[3], &[3], before + Duration::from_secs(1)).await.unwrap();
        assert!(of.stored_at(digests[3]).await.unwrap().unwrap() > before, "stored again");
    }));
    let left: BTreeSet<String> = s3.list().into_iter().collect();
    let kept = format!("fleets/one/bitstreams/{}", digests[3]);
    assert_eq!(left, others.into_iter().chain([kept]).collect());
}

/// A check of wrong settings says what is wrong, and that waiting does not help.
#[test]
fn a_check_says_what_is_wrong_with_a_bucket() {
    let Some(s3) = S3::start() else { return };
    let check = |settings: &BucketSettings| runtime().block_on(blobs(settings).check());
    let right = || s3.settings(FLEET);
    let refused = |settings: BucketSettings, expected: &[&str]| match check(&settings) {
        Err(BlobsUnusable::Refused(text)) => {
            assert!(expected.iter().all(|part| text.contains(part)), "{text}");
        }
        other => panic!("{expected:?}: {other:?}"),
    };
    check(&right()).unwrap();
    let missing = BucketSettings { bucket: "no-such-bucket".into(), ..right() };
    refused(missing, &["bucket or folder does not exist", "NoSuchBucket"]);
    refused(s3.settings(READER), &["cannot store", "s3:PutObject", "AccessDenied"]);

    let keys = s3.keys("changed");
    let nowhere = BucketSettings { credentials: Some(keys.clone()), ..right() };
    refused(nowhere.clone(), &["no usable credentials", keys.to_str().unwrap()]);
    let wrong = "[default]\naws_access_key_id = wrong\naws_secret_access_key = wrong\n";
    std::fs::write(&keys, wrong).unwrap();
    refused(nowhere.clone(), &["refuses these credentials", "InvalidAccessKeyId"]);
    let valid = std::fs::read_to_string(s3.keys(FLEET)).unwrap();
    let (id, _) = valid.split_once("aws_secret_access_key").unwrap();
    std::fs::write(&keys, format!("{id}aws_secret_access_key = wrong\n")).unwrap();
    refused(nowhere.clone(), &["refuses these credentials", "SignatureDoesNotMatch"]);
    // The same store once somebody puts the right keys there.
    let of = blobs(&nowhere);
    assert!(runtime().block_on(of.check()).is_err());
    std::fs::write(&keys, valid).unwrap();
    runtime().block_on(of.check()).unwrap();

    let plain = BucketSettings { allow_http: false, ..right() };
    assert!(matches!(check(&plain), Err(BlobsUnusable::Away(_))), "nothing is sent unencrypted");
    let nobody = BucketSettings { endpoint: Some("http://127.0.0.1:1".into()), ..right() };
    let begin = Instant::now();
    assert!(matches!(check(&nobody), Err(BlobsUnusable::Away(_))), "it may come back");
    assert!(begin.elapsed() < Duration::from_secs(30), "{:?}", begin.elapsed());
}

#[test]
fn a_server_is_known_by_its_certificate() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, others) = (tls::Authority::new(), tls::Authority::new());
    let (certificate, key) = ours.issue("127.0.0.1");
    let files = [("s3.pem", certificate), ("s3.key", key)].map(|(name, text)| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    });
    let Some(s3) = S3::start_with(&[&files[0], &files[1]]) else { return };
    let of = |authorities| BucketSettings { allow_http: false, authorities, ..s3.settings(FLEET) };
    let check = |settings: BucketSettings| runtime().block_on(blobs(&settings).check());
    check(of(Some(ours.pem()))).unwrap();
    for wrong in [Some(others.pem()), None] {
        let error = check(of(wrong)).unwrap_err();
        assert!(matches!(error, BlobsUnusable::Away(_)), "{error}");
    }
}

/// A bitstream of some size, which no two pieces of are the same.
fn image() -> (Digest, Vec<u8>) {
    let bytes: Vec<u8> =
        (0..300_000_u32).flat_map(|i| i.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    (Digest::of(&bytes), bytes)
}

/// Answers that end in the middle, come slowly or never, and a server that is killed: each call has the right bytes or an
/// error, in a bounded time.
#[test]
fn a_disturbed_server_gives_the_right_bytes_or_an_error_in_time() {
    let Some(mut s3) = S3::start() else { return };
    runtime().block_on(in_time(async {
        let proxy = Proxy::start(s3.port).await;
        let of = blobs(&s3.settings_at(FLEET, proxy.port));
        let (digest, bytes) = image();
        of.put(digest, &bytes).await.unwrap();
        for at in [0, 100, 50_000, 1_000_000] {
            proxy.set(Disturbance::CutOnce(at));
            assert!(of.get(digest).await.unwrap() == bytes, "cut after {at} bytes");
        }
        proxy.set(Disturbance::Slow(Duration::from_millis(1)));
        assert!(of.get(digest).await.unwrap() == bytes);
        // At this pace it would take minutes.
        proxy.set(Disturbance::Slow(Duration::from_secs(1)));
        let begin = Instant::now();
        of.get(digest).await.unwrap_err();
        proxy.set(Disturbance::Hang);
        of.get(digest).await.unwrap_err();
        of.put(Digest::of(b"new"), b"new").await.unwrap_err();
        of.sweep(&BTreeSet::new(), SystemTime::now(), 10).await.unwrap_err();
        // Each takes at most twice the timeout of 2 s and some seconds.
        assert!(begin.elapsed() < Duration::from_secs(4 * 10), "{:?}", begin.elapsed());

        proxy.set(Disturbance::Slow(Duration::from_millis(20)));
        let reading = tokio::spawn({
            let of = of.clone();
            async move { of.get(digest).await }
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        s3.kill();
        // The pieces that are under way do not come any more.
        proxy.set(Disturbance::CutOnce(0));
        reading.await.unwrap().unwrap_err();
        of.put(digest, &bytes).await.unwrap_err();
        // It is another one with other keys, and has lost everything.
        let mut s3 = tokio::task::spawn_blocking(|| s3.restart()).await.unwrap();
        let absent = of.get(digest).await.unwrap_err();
        assert!(matches!(absent, StoreError::NoBlob(_)), "{absent}");
        of.put(digest, &bytes).await.unwrap();
        assert!(of.get(digest).await.unwrap() == bytes);
        assert_eq!(s3.list().len(), 1);
    }));
}
