//! What a tenant can tell of another one that it knows nothing of.

use crate::rig::Rig;

#[tokio::test]
async fn an_nt_type_is_in_nobody_elses_way() {
    let rig = Rig::start().await;
    let mut operator = rig.furnished().await;
    let (mut acme, mut globex) =
        (rig.client("tenant/acme").await, rig.client("tenant/globex").await);
    // Of 2^32 codes these ids have the same one; found by trying, as anybody could.
    let squatted = globex.create_nt("globex.g13979", false).await.expect("the first one");
    let nt = acme.create_nt("acme.f98911", false).await.expect("it tells of nothing");
    assert_eq!(nt.code, squatted.code, "what a bitstream says is a matter of the id alone");
    acme.create_nt("acme.f14420", false).await.expect("another one");
    operator.create_nt("g8360", true).await.expect("no tenant keeps the provider from a name");
    rig.stop().await;
}
