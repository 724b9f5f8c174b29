//! Requests that a real etcd refuses for good, and those that it answers meanwhile.

use std::process::{Command, Stdio};

use snic_etcd::{
    Answer, Compare, Failed, Operation, Refusal, Request, Revision, Transaction, Watch,
};
use snic_store_etcd::{EtcdConnection, EtcdSettings};

use super::cluster::{Cluster, commit, eventually, get, in_time, program, put, read, runtime};
use super::tls::Authority;

fn refused(outcome: Result<Answer, Failed>) -> Refusal {
    match outcome {
        Err(Failed::Refused { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

/// A transaction whose compare never holds.
fn never(key: &str) -> Request {
    let compares = vec![Compare::CreatedAt(key.to_owned(), Revision(i64::MAX))];
    Request::Commit(Transaction { compares, operations: vec![put(key, "")] })
}

/// As the model with its alarm: only what takes room is refused. With room it goes on over the same connection.
#[test]
fn a_full_etcd_refuses_what_takes_room() {
    let Some(cluster) = Cluster::start_with_options(&["--quota-backend-bytes", "4194304"]) else {
        return;
    };
    runtime().block_on(in_time(async {
        let connection = cluster.connect().await;
        let Ok(Answer::Granted(lease, _)) = connection.ask(&Request::Grant { seconds: 60 }).await
        else {
            panic!("there is room")
        };
        assert!(connection.ask(&never("a")).await.is_ok_and(|of| matches!(of, Answer::Refused(_))));
        connection.ask(&commit(vec![put("a", "1")])).await.unwrap();
        let failed = cluster.fill().await;
        assert_eq!(refused(Err(failed.clone())), Refusal::NoSpace);
        assert!(failed.to_string().contains("database space exceeded"), "{failed}");
        for request in [commit(vec![put("b", "1")]), never("a"), Request::Grant { seconds: 5 }] {
            assert_eq!(refused(connection.ask(&request).await), Refusal::NoSpace, "{request:?}");
        }
        assert_eq!(read(&connection, "a").await.unwrap().len(), 1);
        assert!(matches!(connection.ask(&Request::KeepAlive(lease)).await, Ok(Answer::Alive(..))));
        let watch = Watch { prefix: "a".to_owned(), from: Revision(1) };
        let mut watching = connection.watch(watch).unwrap();
        assert_eq!(watching.next().await.unwrap().changes.len(), 1);
        let delete = Operation::Delete { key: "a".to_owned() };
        connection.ask(&commit(vec![delete])).await.unwrap();
        assert_eq!(connection.ask(&Request::Revoke(lease)).await, Ok(Answer::Ended(lease)));
        cluster.make_room().await;
        connection.ask(&commit(vec![put("b", "1")])).await.unwrap();
    }));
}

#[test]
fn what_is_too_large_for_this_etcd_is_refused_as_that() {
    let options = ["--max-request-bytes", "65536", "--max-txn-ops", "16"];
    let Some(cluster) = Cluster::start_with_options(&options) else { return };
    runtime().block_on(in_time(async {
        let connection = cluster.connect().await;
        let many = (0..17).map(|number| put(&format!("many/{number}"), "")).collect();
        let long = |bytes: usize| commit(vec![put("long", &"x".repeat(bytes))]);
        // Of the last one etcd's gRPC server has read nothing.
        for request in [commit(many), long(100_000), long(1_000_000)] {
            assert_eq!(refused(connection.ask(&request).await), Refusal::TooLarge);
        }
        assert_eq!(read(&connection, "").await.unwrap(), []);
        connection.ask(&long(60_000)).await.unwrap();
    }));
}

/// With users, who are known by their certificates: one may read only, one nothing, and one does not exist.
#[test]
fn what_a_user_may_not_do_is_refused_as_that() {
    let authority = Authority::new();
    let folder = tempfile::tempdir().unwrap();
    let root = authority.named_client("root", &authority);
    let Some(cluster) = Cluster::start_with_tls((authority.member(folder.path()), root.clone()))
    else {
        return;
    };
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    };
    let certificate = file("root.pem", &root.certificate);
    let (key, ca) = (file("root.key", &root.key), file("client-ca.pem", &root.authority));
    let control = |words: &str| {
        let mut command = Command::new(program("etcdctl"));
        command.env("ETCDCTL_API", "3").arg("--endpoints").arg(cluster.urls().join(","));
        command.arg("--cert").arg(&certificate).arg("--key").arg(&key).arg("--cacert").arg(&ca);
        let output = command.args(words.split(' ')).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    };
    for words in [
        "user add root --no-password",
        "user grant-role root root",
        "role add reader",
        "role grant-permission reader read --prefix=true /snic/",
        "user add reader.example --no-password",
        "user grant-role reader.example reader",
        "user add nobody.example --no-password",
        "put /snic/a 1",
        "auth enable",
    ] {
        control(words);
    }
    runtime().block_on(in_time(async {
        let with = async |name: &str| {
            let tls = Some(authority.named_client(name, &authority));
            let settings = EtcdSettings { tls, ..EtcdSettings::plain(cluster.urls()) };
            EtcdConnection::new(settings).await.unwrap()
        };
        let reader = with("reader.example").await;
        // What was under way when users were switched on is compared with their older state.
        eventually(async || read(&reader, "/snic/").await.is_ok()).await;
        for request in [commit(vec![put("/snic/a", "2")]), never("/snic/a"), get("/other/")] {
            assert_eq!(refused(reader.ask(&request).await), Refusal::NotPermitted, "{request:?}");
        }
        // Since 3.6 only root may ask a member for its version; a watch goes without.
        let watch = Watch { prefix: "/snic/".to_owned(), from: Revision(1) };
        let mut watching = reader.watch(watch).unwrap();
        assert_eq!(watching.next().await.unwrap().changes.len(), 1);
        for name in ["nobody.example", "stranger.example"] {
            let other = with(name).await;
            for request in [commit(vec![put("/snic/a", "2")]), get("/snic/")] {
                let outcome = other.ask(&request).await;
                assert_eq!(refused(outcome), Refusal::NotPermitted, "{name}: {request:?}");
            }
            let watch = Watch { prefix: "/snic/".to_owned(), from: Revision(1) };
            let failed = other.watch(watch).unwrap().next().await.unwrap_err();
            assert_eq!(failed.refusal().map(|(why, _)| why), Some(Refusal::NotPermitted), "{name}");
        }
        assert_eq!(read(&reader, "/snic/").await.unwrap()[0].value, b"1");
    }));
}
