//! The example program does what its documentation says.

#[path = "../../examples/two_tenants.rs"]
#[allow(dead_code, reason = "its `main` prints what `run` returns")]
mod two_tenants;

#[test]
fn the_example_places_two_dags_in_one_region_and_divides_the_rest_by_weight() {
    let text = two_tenants::run().expect("the example runs");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "tenants/acme/dags/web: region 0, slots [0, 1], FreeRegion",
            "tenants/globex/dags/web: region 0, slots [1], Shared",
            "acme may send 6 Gbit/s",
            "globex may send 4 Gbit/s",
        ]
    );
}
