//! Every figure, and each with its cause taken away.

use snic_repro::{Check, FigureOutcome, NumberKind, Parameters, figures, regenerate};

/// Runs made short, by figure: what is inside stays inside.
const SHORT: [(&str, &str, &str); 18] = [
    ("thesis-pool", "pool.bytes", "64,1024"),
    ("thesis-pool", "pool.background_percent", "0,50,200"),
    ("karma", "karma.epochs", "2000"),
    ("fig14", "fig14.loads_gbps", "5,15,60"),
    ("fig16", "fig16.seconds", "6"),
    ("fig16", "fig16.range_seconds", "2"),
    ("fig17", "fig16.seconds", "6"),
    ("fig17", "fig16.range_seconds", "3"),
    ("fig19", "fig19.operations", "1000"),
    ("fig19", "fig19.warm_up", "300"),
    ("fig20", "fig19.operations", "1000"),
    ("fig20", "fig19.warm_up", "300"),
    ("thesis-replication", "fig19.operations", "1000"),
    ("thesis-replication", "fig19.warm_up", "300"),
    ("thesis-clio", "clio.operations", "1000"),
    ("ycsb-crowd", "crowd.operations", "3000"),
    ("ycsb-crowd", "crowd.warm_up", "500"),
    ("flexpipe-fig5", "flexpipe.loads_percent", "50,70"),
];

fn parameters(id: &str) -> Parameters {
    let mut parameters = Parameters::load().expect("our own files");
    for (_, key, value) in SHORT.iter().filter(|(figure, ..)| *figure == id) {
        parameters.set(key, value).expect("allowed");
    }
    parameters
}

fn outcome(id: &str, parameters: &Parameters) -> FigureOutcome {
    let figure = figures::find(id).expect("it is listed");
    regenerate(figure, parameters).expect("it runs").outcome
}

/// A figure whose numbers are all inside, but for those named, and that fails without its cause: each of
/// its breaks puts numbers outside that are inside without it.
fn holds(id: &str, outside: &[&str]) {
    let figure = figures::find(id).expect("it is listed");
    let outcome = outcome(id, &parameters(id));
    let wrong: Vec<_> = outcome.checks.iter().filter(|check| !check.is_inside()).collect();
    let names: Vec<&str> = wrong.iter().map(|check| check.what.as_str()).collect();
    assert_eq!(names, outside, "{id}: {wrong:?}");
    assert!(!outcome.checks.is_empty(), "a figure without numbers says nothing");
    assert!(outcome.csv().lines().count() > 1);
    let held: Vec<bool> = outcome.checks.iter().map(Check::is_inside).collect();
    assert!(!figure.breaks.is_empty(), "{id} names nothing that it depends on");
    for cause in figure.breaks {
        let mut without = parameters(id);
        without.set(cause.key, cause.value).expect("allowed");
        let broken = regenerate(figure, &without).expect("it runs").outcome;
        let lost =
            broken.checks.iter().zip(&held).filter(|(check, held)| **held && !check.is_inside());
        assert!(lost.count() > 0, "{id} holds with {}: {:?}", cause.what, broken.checks);
    }
}

macro_rules! figures_hold {
    (
        before a merge { $($name:ident = $id:literal, $outside:expr;)* }
        at night { $($long:ident = $long_id:literal, $long_outside:expr;)* }
    ) => {
        $(#[test]
        #[ignore = "ci: seconds to half a minute"]
        fn $name() {
            holds($id, &$outside);
        })*

        $(#[test]
        #[ignore = "nightly: minutes"]
        fn $long() {
            holds($long_id, &$long_outside);
        })*

        #[test]
        fn every_figure_is_here() {
            let here = [$($id,)* $($long_id),*];
            let is_missing = |id: &&str| !here.contains(id);
            let missing = figures::ALL.iter().map(|figure| figure.id).filter(is_missing);
            assert_eq!(missing.collect::<Vec<_>>(), [""; 0]);
        }
    };
}

figures_hold! {
    before a merge {
        supernic_4_takes_three_units_instead_of_four = "fig4", [];
        supernic_5_shares_what_is_loaded = "fig5", [];
        supernic_7_has_the_points_of_the_plot_but_two = "fig7", ["4 credits, 128 B", "2 credits, 256 B"];
        supernic_8_takes_a_pass_more_for_each_region = "fig8", [];
        supernic_9_gains_less_than_twice = "fig9", [];
        supernic_10_loads_nothing_for_later_dags = "fig10", [];
        supernic_11_pays_for_a_pass = "fig11", [];
        supernic_12_takes_up_to_40_percent_less = "fig12", [];
        supernic_13_is_limited_by_aes = "fig13", [];
        supernic_14_shares_what_is_left = "fig14", [];
        supernic_15_loads_what_is_needed = "fig15", [];
        supernic_17_gains_by_sharing_and_less_than_the_most = "fig17",
            ["full over static at most: one user next to idle"];
        supernic_18_has_the_smallest_pair_and_not_the_largest = "fig18", ["2×, the largest two"];
        supernic_19_is_quickest_with_the_cache = "fig19", [];
        supernic_20_serves_most_with_the_cache = "fig20", [];
        ycsb_of_a_crowd_fills_the_link = "ycsb-crowd", [];
        thesis_replication_costs_little_on_the_card = "thesis-replication",
            [
                "A: Clio-R",
                "A: writing twice by the client, to once",
                "B: Clio-R",
                "B: writing twice by the client, to once",
                "B: what the client's second write takes more than the card's",
            ];
        thesis_vpc_costs_the_host_nothing = "thesis-vpc", [];
        thesis_scaling_waits_a_period = "thesis-scaling", [];
        thesis_parallel_takes_a_stage = "thesis-parallel",
            [
                "All side by side, 5 NTs",
                "All side by side, 6 NTs",
                "Half side by side, 6 NTs",
                "All side by side, 7 NTs",
                "Half side by side, 7 NTs",
            ];
        thesis_pool_keeps_the_foreground = "thesis-pool", [];
        thesis_clio_fills_its_link = "thesis-clio",
            [
                "2 threads of a host, A",
                "2 threads of a host, B",
                "4 threads of a host, A",
                "4 threads of a host, B",
                "4 threads of a host, C",
                "2 hosts, C",
                "4 stores, A",
                "16 bytes of a value, read",
                "16 bytes of a value, write",
                "64 bytes of a value, read",
                "64 bytes of a value, write",
                "256 bytes of a value, read",
                "256 bytes of a value, write",
                "16 bytes of memory, read",
                "16 bytes of memory, write",
                "64 bytes of memory, read",
                "256 bytes of memory, read",
            ];
        osmosis_divides_processors_by_weight = "osmosis", [];
        panic_rtl_shares_a_load = "panic-rtl",
            [
                "Fig. 8c, 128 B: three engines under full load",
                "2048 B: a packet alone",
                "Fig. 11a, pattern 3: no engine",
            ];
        karma_makes_bursts_equal = "karma", [];
        supernic_latency_is_core_and_scheduler = "latency", [];
        supernic_table_1_is_seen_in_runs = "table1", [];
        flexpipe_3_saturates_panic = "flexpipe-fig3", [];
        flexpipe_4_is_fastest = "flexpipe-fig4", ["StaticPipe: longest less shortest latency"];
        flexpipe_5_has_its_knee = "flexpipe-fig5", [];
        flexpipe_table_1_has_a_pipeline_that_is_not_flexible = "flexpipe-table1", [];
        flexpipe_table_2_follows_from_its_equation = "flexpipe-table2", [];
        bluefield2_needs_offload_and_prints_losses_that_none_of_its_limits_has = "bluefield2-mixes",
            [
                "UDP, small (Fig. 3), with offload: largest loss of all loads",
                "SYN (Fig. 4), with offload: largest loss of all loads",
            ];
        bluefield3_prints_a_thread_that_does_not_scale = "bf3-compute",
            ["A host core over a DPA thread, with linear scaling"];
        bluefield3_reads_its_cache = "bf3-memory", [];
        bluefield3_is_near_the_network = "bf3-latency", [];
        bluefield3_waits_for_memory = "bf3-access", [];
        bluefield3_needs_threads = "bf3-threads", [];
        bluefield3_keeps_clocks = "bf3-clock", [];
        bluefield3_aggregates_in_the_right_memory = "bf3-aggregation",
            ["Net-Host+Agg-DPA over the slowest with packets in DPA memory"];
        bluefield3_cases_run_where_the_study_has_them = "bf3-guidelines", [];
    }
    at night {
        supernic_16_is_equal_where_loads_and_promises_allow_it = "fig16", [];
        thesis_consolidation_needs_the_nts_of_the_sum = "thesis-consolidation",
            [
                "2 hosts, NTs of 30 Gbit/s: area and time saved",
                "4 hosts, NTs of 20 Gbit/s: area and time saved",
                "40 Gbit/s, a card each: operations",
                "40 Gbit/s, one card: operations",
                "40 Gbit/s: operations with one card, to a card each",
            ];
    }
}

/// The card as shipped has sixteen regions; of four as few are loaded.
#[test]
#[ignore = "ci: seconds"]
fn supernic_15_loads_as_much_on_a_small_card() {
    let mut small = parameters("fig15");
    small.set("card.regions", "4").expect("allowed");
    let outcome = outcome("fig15", &small);
    assert_eq!(outcome.outside(), 0, "{:?}", outcome.checks);
}

/// With every pair held neither popularity nor eviction is a cause of Fig. 19; with a small cache both are.
#[test]
#[ignore = "ci: seconds to half a minute"]
fn supernic_19_has_neither_popularity_nor_eviction_for_a_cause() {
    let cached = |pairs: &str, other: Option<(&str, &str)>| {
        let mut parameters = parameters("fig19");
        parameters.set("fig19.cache_pairs", pairs).expect("allowed");
        if let Some((key, value)) = other {
            parameters.set(key, value).expect("allowed");
        }
        let outcome = outcome("fig19", &parameters);
        let cells = outcome.checks.iter().filter(|check| check.what.ends_with("Clio-sNIC-$"));
        cells.map(|check| (check.is_inside(), check.ours)).take(3).collect::<Vec<_>>()
    };
    let scrambled = ("fig19.ranks", "1e10");
    let used_last = ("fig19.used_last", "1");
    let farthest = |one: &[(bool, f64)], other: &[(bool, f64)]| {
        one.iter().zip(other).map(|(a, b)| (a.1 / b.1 - 1.0).abs()).fold(0.0, f64::max)
    };
    let (all, few) = (cached("100000", None), cached("3000", None));
    // Popularity moves a small cache's cells by a quarter, the order of use by some percent.
    for (other, least) in [(scrambled, 0.1), (used_last, 0.015)] {
        let same = cached("100000", Some(other));
        assert!(same.iter().all(|cell| cell.0), "{}: {same:?}", other.0);
        assert!(farthest(&same, &all) < 0.03, "{}: {same:?}, {all:?}", other.0);
        let moved = cached("3000", Some(other));
        assert!(farthest(&moved, &few) > least, "{}: {moved:?}, {few:?}", other.0);
    }
}

#[test]
#[ignore = "ci: seconds"]
fn a_slower_clock_stretches_what_is_counted_in_cycles() {
    let mut slow = parameters("fig8");
    slow.set("card.clock_hz", "200MHz").expect("allowed");
    let (fast, slow) = (outcome("fig8", &parameters("fig8")), outcome("fig8", &slow));
    for (fast, slow) in fast.checks.iter().zip(&slow.checks) {
        assert!((slow.ours - fast.ours * 1.25).abs() < 1e-6, "{}", fast.what);
    }
}

#[test]
#[ignore = "ci: seconds"]
fn every_figure_says_what_its_numbers_are_worth() {
    for figure in figures::ALL {
        assert!(figure.claim.ends_with('.') && figure.claim.len() > 20, "{}", figure.id);
    }
    let outcome = outcome("fig8", &parameters("fig8"));
    let counts = NumberKind::ALL.map(|kind| outcome.score(kind).all);
    assert_eq!(counts, [12, 0, 6, 0], "the single chain is fitted, the passes are predicted");
}
