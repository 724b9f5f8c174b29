//! Time of a decision, by the number of policies, and by the rules of a server without any.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use snic_authorization_cedar::{CedarPolicies, DEFAULT, PolicyFile};
use snic_front::access::CONTROL;
use snic_front::authorization::{Authorizer as _, BuiltIn, NamedResource, Question};
use snic_front::identity::CallerIdentity;

fn decisions(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("authorization");
    let identity = CallerIdentity::parse("tenant/acme/bob").expect("an identity");
    let row = CONTROL.named("CreateDag").expect("a method");
    let resource = NamedResource::named("tenants/acme/dags/web").seen_by(&identity);
    let (name, default) = DEFAULT;
    for more in [0, 1, 10, 100] {
        // One policy for each of many members; the last is the one that decides.
        let one = |number: usize| {
            let member = if number == 0 { "bob".to_owned() } else { format!("m{number}") };
            format!("permit (principal == Member::\"acme/{member}\", action, resource);\n")
        };
        let own: String = (0..more).rev().map(one).collect();
        let files = [(name, default), ("own.cedar", own.as_str())];
        let files = files.map(|(name, text)| PolicyFile::parse(name, text).expect("valid"));
        let policies = CedarPolicies::new(&files);
        let question =
            Question { identity: &identity, row, resource: &resource, validate_only: false };
        group.bench_function(BenchmarkId::new("rules", 3 + more), |bencher| {
            bencher.iter(|| BuiltIn.decide(black_box(&question)));
        });
        group.bench_function(BenchmarkId::new("decide", 3 + more), |bencher| {
            bencher.iter(|| policies.decide(black_box(&question)));
        });
    }
    group.finish();
}

criterion_group!(benches, decisions);
criterion_main!(benches);
