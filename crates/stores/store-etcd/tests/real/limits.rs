//! `Transaction::check` refuses what etcd refuses: asked without the check, by etcd's own client.

use etcd_client::{Client, Compare as PbCompare, CompareOp, Txn, TxnOp};
use snic_etcd::{
    Compare, Failed, OPERATIONS_MAX, Operation, REQUEST_BYTES_MAX, Revision, Transaction,
};

use super::cluster::{Cluster, put, runtime};

fn delete(key: &str) -> Operation {
    Operation::Delete { key: key.to_owned() }
}

fn of(operations: Vec<Operation>) -> Transaction {
    Transaction { compares: Vec::new(), operations }
}

fn unchecked(transaction: &Transaction) -> Txn {
    let compare = |compare: &Compare| match compare {
        Compare::CreatedAt(key, at) => {
            PbCompare::create_revision(key.as_str(), CompareOp::Equal, at.0)
        }
        Compare::ChangedAt(key, at) => {
            PbCompare::mod_revision(key.as_str(), CompareOp::Equal, at.0)
        }
    };
    let operation = |operation: &Operation| match operation {
        Operation::Put { key, value, .. } => TxnOp::put(key.as_str(), value.as_slice(), None),
        Operation::Delete { key } => TxnOp::delete(key.as_str(), None),
    };
    let compares: Vec<_> = transaction.compares.iter().map(compare).collect();
    let operations: Vec<_> = transaction.operations.iter().map(operation).collect();
    Txn::new().when(compares).and_then(operations)
}

#[test]
fn etcd_refuses_what_the_check_refuses() {
    let Some(cluster) = Cluster::start(1) else { return };
    let many = |count: usize| (0..count).map(|i| put(&format!("many/{i}"), "")).collect();
    let compares = |count: usize| Transaction {
        compares: (0..count).map(|i| Compare::CreatedAt(format!("{i}"), Revision(0))).collect(),
        operations: vec![put("a", "1")],
    };
    let cases = [
        ("nothing", of(vec![])),
        ("two keys", of(vec![put("a", "1"), delete("b")])),
        ("a key twice", of(vec![put("a", "1"), put("a", "2")])),
        ("a key put and deleted", of(vec![put("a", "1"), delete("a")])),
        ("a key deleted and put", of(vec![delete("a"), put("a", "1")])),
        ("a key deleted twice", of(vec![delete("a"), delete("a")])),
        ("an empty key", of(vec![put("", "1")])),
        ("an empty key deleted", of(vec![delete("")])),
        ("most operations", of(many(OPERATIONS_MAX))),
        ("one more", of(many(OPERATIONS_MAX + 1))),
        ("most compares", compares(OPERATIONS_MAX)),
        ("one compare more", compares(OPERATIONS_MAX + 1)),
        ("far too long", of(vec![put("a", &"x".repeat(REQUEST_BYTES_MAX))])),
    ];
    runtime().block_on(async {
        let mut client = Client::connect(cluster.urls(), None).await.unwrap();
        for (name, transaction) in cases {
            let real = client.txn(unchecked(&transaction)).await;
            let checked = transaction.check();
            assert_eq!(real.is_ok(), checked.is_ok(), "{name}: {real:?}, {checked:?}");
        }
    });
}

/// The longest transaction that the check lets pass is carried out by etcd.
#[test]
fn the_longest_transaction_is_carried_out() {
    let Some(cluster) = Cluster::start(1) else { return };
    let mut longest = Transaction {
        compares: (0..OPERATIONS_MAX)
            .map(|i| Compare::CreatedAt(format!("compared/{i}"), Revision(0)))
            .collect(),
        operations: (1..OPERATIONS_MAX).map(|i| put(&format!("put/{i}"), "")).collect(),
    };
    let room = REQUEST_BYTES_MAX - longest.bytes() - of(vec![put("k", "")]).bytes();
    longest.operations.push(put("k", &"v".repeat(room)));
    longest.check().unwrap();
    let mut longer = longest.clone();
    longer.operations.pop();
    longer.operations.push(put("k", &"v".repeat(room + 1)));
    assert!(matches!(longer.check(), Err(Failed::Invalid(_))));
    runtime().block_on(async {
        let mut client = Client::connect(cluster.urls(), None).await.unwrap();
        assert!(client.txn(unchecked(&longest)).await.unwrap().succeeded());
    });
}
