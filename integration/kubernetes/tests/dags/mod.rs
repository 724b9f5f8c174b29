//! The controller of `Dag` objects with a real API server, a real `snicd` and a simulated card.

mod fleet;
mod hostile;
mod life;
mod policies;
mod site;

use site::Site;

use crate::cluster::control_plane;

/// One control plane for all, one after the other: what each does to an API server of its own would take longer than the rest.
#[tokio::test(flavor = "multi_thread")]
async fn dags_of_an_api_server() {
    if let Some(why) = control_plane::missing() {
        println!("not run: {why}");
        return;
    }
    let mut site = Site::start().await;
    life::an_object_becomes_ready_changes_and_goes(&site).await;
    life::kubectl_applies_waits_and_shows(&site).await;
    life::what_the_schema_forbids_never_comes_to_the_controller(&site).await;
    life::a_placement_never_changes(&site).await;
    life::a_controller_that_is_killed_before_it_writes_creates_nothing_twice(&mut site).await;
    hostile::what_no_object_made_is_left_alone(&site).await;
    hostile::nobody_names_what_another_tenant_has(&site).await;
    hostile::a_storm_in_one_namespace_keeps_no_other_waiting(&site).await;
    life::states_are_followed_over_a_restart_of_the_server(&mut site).await;
    life::another_replica_takes_over(&mut site).await;
}
