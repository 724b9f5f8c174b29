//! The figures that take no time to regenerate, whole; the others are run by hand.

use snic_repro::{Parameters, figures, regenerate};

fn inside(id: &str) {
    let figure = figures::find(id).expect("it is listed");
    let done = regenerate(figure, &Parameters::load().expect("our own files")).expect("it runs");
    for check in &done.outcome.checks {
        assert!(check.is_inside(), "{id}: {check:?}");
    }
    assert!(!done.outcome.checks.is_empty(), "a figure without numbers says nothing");
    assert!(done.outcome.csv().lines().count() > 1);
}

#[test]
fn supernic_8_comes_out_of_the_whole_stack_exactly() {
    inside("fig8");
}

#[test]
fn supernic_11_comes_out_of_the_whole_stack() {
    inside("fig11");
}
