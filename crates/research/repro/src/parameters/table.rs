//! All inputs of the figures, with their sources. No figure has a number of its own: the papers'
//! results are beside the checks, the inputs are here. How finely a run is stepped and sampled is no input.

use std::ops::RangeInclusive;

/// The source of a parameter's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParameterSource {
    /// The paper states it: where.
    Paper(&'static str),
    /// It follows from the paper: how.
    Derived(&'static str),
    /// It was fitted to a figure: which.
    Fitted(&'static str),
    /// The paper does not say: why this value.
    Assumption(&'static str),
}

impl ParameterSource {
    pub fn text(self) -> String {
        match self {
            Self::Paper(place) => place.into(),
            Self::Derived(how) => format!("derived: {how}"),
            Self::Fitted(to) => format!("fitted: {to}"),
            Self::Assumption(reason) => format!("assumption: {reason}"),
        }
    }
}

/// One parameter: a number, or several where a figure has one point for each.
#[derive(Debug)]
pub struct ParameterEntry {
    pub key: &'static str,
    pub default: &'static [f64],
    pub unit: &'static str,
    /// The allowed range.
    pub range: RangeInclusive<f64>,
    /// The source of its value.
    pub source: ParameterSource,
    /// Meaning of the parameter.
    pub what: &'static str,
}

impl ParameterEntry {
    /// Whether its values belong to things by their order, so that there must be as many.
    pub(super) fn is_by_name(&self) -> bool {
        let by_name: [&ParameterEntry; 9] = [
            &FIG9_REQUEST_PERCENT,
            &FIG8_CYCLES,
            &FLEXPIPE_MEASURED,
            &FLEXPIPE_DELAYS,
            &FLEXPIPE_WIDTHS,
            &FLEXPIPE_MHZ,
            &FLEXPIPE_HEADER_ONLY,
            &FIG5_EPOCHS,
            &BF3_THREAD_NANOS,
        ];
        by_name.iter().any(|entry| entry.key == self.key)
    }
}

macro_rules! table {
    ($($name:ident = $key:literal, $default:expr, $unit:literal, $range:expr, $source:ident($why:literal), $what:literal;)*) => {
        $(pub(crate) static $name: ParameterEntry = ParameterEntry {
            key: $key,
            default: &$default,
            unit: $unit,
            range: $range,
            source: ParameterSource::$source($why),
            what: $what,
        };)*

        /// All of them.
        pub static TABLE: &[&ParameterEntry] = &[$(&$name),*];
    };
}

table! {
    PACKET_BYTES = "packet_bytes", [1_500.0], "B", 64.0..=9_216.0,
        Assumption("figures of bandwidths do not name a size; few large packets are cheap"),
        "packets where a figure is about bandwidth";
    WARM_UP_US = "warm_up_us", [200.0], "µs", 0.0..=1e6,
        Assumption("many times a packet's way through the card"), "what is not counted at first";
    TIME_US = "time_us", [3_000.0], "µs", 10.0..=1e7,
        Assumption("thousands of packets"), "what is measured then";
    DELAY_PERCENT = "nt.delay_percent", [100.0], "%", 0.0..=1e4,
        Assumption("the catalogue's latencies, of which the paper prints none"),
        "latencies of the catalogue's NTs";
    DUMMY_CYCLES = "dummy_cycles", [10.0], "cycles", 0.0..=1e4,
        Paper("SuperNIC, 5.3: dummy NTs spin for 10 or 50 cycles"),
        "latency of dummy NTs where a figure is not about it";

    REQUEST_GBPS = "request_gbps", [10.0], "Gbit/s", 0.1..=100.0,
        Assumption("it fits, and latency alone does not depend on it"),
        "what a DAG requests where a figure is not about it";
    ENTRY_CYCLES = "entry_cycles", [1.0], "cycles", 1.0..=1e4,
        Assumption("the least: the product's DAGs have one entry, the paper's DAG-a has none"),
        "latency of the NT before DAG-a's fork";

    FIG4_UNIT_CYCLES = "fig4.unit_cycles", [4_000.0], "cycles", 10.0..=1e6,
        Assumption("many times the core and a pass, so that units can be counted"), "what an NT takes for a packet";
    FIG4_PACKETS = "fig4.packets", [6.0], "packets", 1.0..=100.0,
        Assumption("enough for each instance to have more than one"), "packets of each DAG that are there at once";

    FIG5_REGIONS = "fig5.regions", [3.0], "regions", 3.0..=32.0,
        Paper("SuperNIC, Fig. 5: chains of NT1 and NT2, of NT3 and NT4, of NT2 and NT4"), "regions of the card";
    FIG5_EPOCH_MS = "fig5.epoch_ms", [20.0], "ms", 1.0..=1e4,
        Paper("SuperNIC, 5.3: 20 ms"), "the fairness epoch";
    FIG5_NT_GBPS = "fig5.nt_gbps", [10.0], "Gbit/s", 1.0..=100.0,
        Paper("SuperNIC, Fig. 5"), "what an NT serves";
    FIG5_USER1_GBPS = "fig5.user1_gbps", [8.0], "Gbit/s", 1.0..=100.0,
        Paper("SuperNIC, Fig. 5"), "what user 1 requests, for both chains together";
    FIG5_USER2_GBPS = "fig5.user2_gbps", [14.0], "Gbit/s", 1.0..=100.0,
        Paper("SuperNIC, Fig. 5"), "what user 2 requests";
    FIG5_TOO_MUCH_GBPS = "fig5.too_much_gbps", [17.0], "Gbit/s", 1.0..=100.0,
        Derived("three chains of 10 Gbit/s have 20 for NT2 and NT4; with user 1's 8 that leaves 12 to 16"),
        "a request of user 2 that must be refused";
    FIG5_LOADS_GBPS = "fig5.loads_gbps", [6.0, 14.0, 10.0], "Gbit/s", 0.1..=100.0,
        Assumption("below, at and between what is requested; the timeline has no scale"),
        "what user 2 sends, one after the other";
    FIG5_EPOCHS = "fig5.epochs", [5.0, 10.0, 5.0], "epochs", 1.0..=1e3,
        Assumption("long enough for rates to settle"), "for how long it sends each";

    FIG7_CREDITS = "fig7.credits", [1.0, 2.0, 4.0, 8.0], "credits", 1.0..=127.0,
        Paper("SuperNIC, Fig. 7"), "initial credits";
    FIG7_BYTES = "fig7.bytes", [64.0, 128.0, 256.0, 512.0, 1_024.0], "B", 64.0..=9_216.0,
        Paper("SuperNIC, Fig. 7"), "packet sizes";
    FIG7_FULL_GBPS = "fig7.full_gbps", [100.0], "Gbit/s", 1.0..=400.0,
        Paper("SuperNIC, 5.1: enough for a 100 Gbps network"), "what counts as full bandwidth";

    FIG8_CYCLES = "fig8.cycles", [16.0, 32.0, 16.0, 32.0, 16.0, 32.0, 16.0], "cycles", 0.0..=1e4,
        Fitted("SuperNIC, Fig. 8: the single chain's totals leave NTs of 16 and 32 cycles in turn"),
        "latencies of the seven dummy NTs";

    FIG9_NT_GBPS = "fig9.nt_gbps", [64.0], "Gbit/s", 1.0..=400.0,
        Paper("SuperNIC, 5.3"), "what an NT serves";
    FIG9_CYCLES = "fig9.cycles", [50.0], "cycles", 0.0..=1e4,
        Paper("SuperNIC, 5.3: 10 or 50"), "latency of an NT";
    FIG9_REQUEST_PERCENT = "fig9.request_percent", [25.0, 25.0, 75.0], "% of an NT", 1.0..=100.0,
        Derived("a quarter of each DAG fits into one instance, three quarters need a second (Fig. 4)"),
        "what each DAG requests in S1, S2 and S3";
    FIG9_SHARE_PERCENT = "fig9.dag_a_percent", [50.0], "%", 1.0..=99.0,
        Assumption("two DAGs that both send all they can share the wire equally"),
        "DAG-a's part of what is sent";

    FIG10_REQUEST_GBPS = "fig10.request_gbps", [10.0], "Gbit/s", 0.1..=100.0,
        Derived("AES has 15 left beside DAG-D's 15"), "what DAG-A, B and C request";

    FIG11_CYCLES = "fig11.cycles", [50.0, 10.0], "cycles", 0.0..=1e4,
        Paper("SuperNIC, 5.3"), "latencies of the dummy NTs";

    FIG12_LOAD_GBPS = "fig12.load_gbps", [1.0], "Gbit/s", 0.01..=100.0,
        Assumption("latency without queues: the paper names no load"), "what is sent";
    FIG12_REQUEST_GBPS = "fig12.request_gbps", [25.0], "Gbit/s", 0.1..=100.0,
        Assumption("far from every token bucket"), "what is requested";
    PHY_MAC_NS = "phy_mac_ns", [1_104.0], "ns", 0.0..=1e6,
        Fitted("SuperNIC, 5.1: what 1.3 µs from port to port leave beside the core's 196 ns"),
        "PHY and MAC, both ways";
    ASIC_HZ = "asic.clock_hz", [2e9], "Hz", 1e6..=2e10,
        Paper("SuperNIC, 5: sNIC's parts at 2 GHz"), "clock of the projected ASIC";

    FIG14_BACKGROUND_GBPS = "fig14.background_gbps", [15.0], "Gbit/s", 0.1..=100.0,
        Paper("SuperNIC, 5.3"), "what DAG-D requests and sends";
    FIG14_REQUEST_GBPS = "fig14.request_gbps", [1.0], "Gbit/s", 0.1..=100.0,
        Assumption("next to nothing: the foreground gets what nobody else uses"),
        "what the foreground requests";
    FIG14_EPOCH_MS = "fig14.epoch_ms", [1.0], "ms", 1.0..=1e4,
        Assumption("rates settle in a few epochs, each packet of which is simulated"), "the fairness epoch";
    FIG14_SETTLE_MS = "fig14.settle_ms", [15.0], "ms", 0.0..=1e4,
        Assumption("a monitor period of 10 ms, and some epochs"), "what is not counted after each change of the load";
    FIG14_LOADS_GBPS = "fig14.loads_gbps", [5.0, 10.0, 15.0, 20.0, 30.0, 45.0, 60.0], "Gbit/s", 0.1..=100.0,
        Paper("SuperNIC, 5.3: up to 60"), "what the foreground sends";

    FIG15_NT_GBPS = "fig15.nt_gbps", [10.0], "Gbit/s", 1.0..=100.0,
        Paper("SuperNIC, 5.3: 3x is three regions"), "what an instance serves";
    FIG15_REQUEST_GBPS = "fig15.request_gbps", [20.0], "Gbit/s", 1.0..=100.0,
        Paper("SuperNIC, 5.3: two instances are launched ahead"), "what is requested";
    FIG15_LOADS_GBPS = "fig15.loads_gbps", [10.0, 20.0, 30.0, 15.0, 30.0], "Gbit/s", 0.1..=100.0,
        Paper("SuperNIC, 5.3"), "what is sent, one after the other";
    FIG15_SETTLE_MS = "fig15.settle_ms", [20.0], "ms", 0.0..=1e4,
        Assumption("two monitor periods"), "time before anything is sent";
    FIG15_MILLIS = "fig15.millis", [20.0, 10.0, 40.0, 20.0, 30.0], "ms", 1.0..=1e4,
        Paper("SuperNIC, 5.3, and the end of the plot"), "for how long it is sent";

    SCALING_PERIOD_MS = "scaling.period_ms", [10.0], "ms", 1.0..=1e4,
        Paper("the thesis: an overloaded NT gets another instance after 10 ms"), "the monitor period";
    SCALING_LOADS_GBPS = "scaling.loads_gbps", [10.0, 30.0], "Gbit/s", 0.1..=100.0,
        Assumption("the first and the third load of Fig. 15"), "what is sent, one after the other";

    FIG16_REGIONS = "fig16.regions", [3.0], "regions", 2.0..=32.0,
        Derived("the fewest that equal numbers of regions leave one of, as the static scheme does"),
        "regions that the two users share";
    FIG16_NT_MBPS = "fig16.nt_mbps", [100.0], "Mbit/s", 1.0..=1e5,
        Assumption("a hundredth of Fig. 15's bandwidth: a hundred seconds of packets can be simulated"),
        "what an NT serves";
    FIG16_REQUEST_PERCENT = "fig16.request_percent", [100.0], "% of an NT", 1.0..=100.0,
        Assumption("the same for both (5.3): a region each, as many as the static scheme gives"),
        "what each user requests";
    FIG16_LOAD1_PERCENT = "fig16.load1_percent", [155.0], "% of an NT", 1.0..=1e3,
        Assumption("a little over half of the regions, so that it is fairness that limits it"),
        "what user 1 sends at first";
    FIG16_LOAD2_PERCENT = "fig16.load2_percent", [160.0], "% of an NT", 1.0..=1e3,
        Assumption("over half of the regions"), "what user 2 sends";
    FIG16_MORE = "fig16.more", [2.0], "times", 1.0..=100.0,
        Assumption("the paper says that the load increases"), "what user 1 sends later, of that at first";
    FIG16_SECONDS = "fig16.seconds", [100.0], "s", 2.0..=1e4,
        Paper("SuperNIC, 5.3: 100 s, half of them before the rise"), "how long it runs";
    FIG16_RANGE_LOAD1 = "fig16.range_load1_percent", [40.0, 75.0, 160.0, 180.0], "% of an NT", 0.1..=1e4,
        Assumption("over half of the regions, as the first, and less than half"), "other loads of user 1 that are looked at";
    FIG16_RANGE_LOAD2 = "fig16.range_load2_percent", [40.0, 140.0, 170.0, 200.0], "% of an NT", 0.1..=1e4,
        Assumption("over half of the regions, as the first, and less than half"), "other loads of user 2 that are looked at";
    FIG16_RANGE_REQUEST = "fig16.range_request_percent", [80.0, 90.0], "% of an NT", 1.0..=100.0,
        Assumption("less than a region each"), "other requests that are looked at";
    FIG16_RANGE_MORE = "fig16.range_more", [1.5, 4.0], "times", 1.0..=100.0,
        Assumption("a smaller rise and a larger one"), "other rises that are looked at";
    FIG16_RANGE_SECONDS = "fig16.range_seconds", [4.0], "s", 2.0..=1e4,
        Assumption("long enough for epochs and a reconfiguration in each half"),
        "how long it runs with other loads, requests and rises";
    FIG16_SETTLE_S = "fig16.settle_s", [1.0], "s", 0.0..=100.0,
        Assumption("epochs and a reconfiguration; the plot is by second"),
        "what is not counted at first and after the rise";

    FIG17_IDLE_PERCENT = "fig17.idle_percent", [2.0], "% of an NT", 1.0..=1e3,
        Assumption("next to nothing"), "what user 1 sends where the gain is largest";
    FIG17_MOST_PERCENT = "fig17.most_percent", [350.0], "% of an NT", 1.0..=1e3,
        Assumption("more than three regions serve"), "what user 2 sends there";

    FIG18_SIZES = "fig18.sizes", [1.0, 2.0], "times the largest NT", 0.1..=100.0,
        Paper("SuperNIC, 5.3"), "region sizes";

    FIG19_KEYS = "fig19.keys", [100_000.0], "keys", 1_000.0..=1e6,
        Paper("SuperNIC, 5.4: 100K key-value entries"), "keys of the store";
    FIG19_OPERATIONS = "fig19.operations", [20_000.0], "operations", 1_000.0..=1e7,
        Assumption("a fifth of the paper's 100,000 (SuperNIC, 5.4): in a closed loop means move by less than a percent with more"),
        "operations that are measured of each workload";
    FIG19_WARM_UP = "fig19.warm_up", [2_000.0], "operations", 0.0..=1e7,
        Assumption("many times what is under way at once"), "operations before, which are not counted";
    FIG19_THETA = "fig19.theta", [0.99], "", 0.0..=0.999,
        Paper("SuperNIC, 5.4: Zipf accesses with 0.99"), "exponent of the keys' popularity";
    FIG19_RANKS = "fig19.ranks", [100_000.0], "ranks", 10.0..=1e12,
        Assumption("Zipf's law over the keys themselves, as the paper words it; YCSB's own client has 1e10 ranks that it hashes to keys"),
        "ranks that popularities are drawn from; more than there are keys are hashed to keys";
    FIG19_VALUE_BYTES = "fig19.value_bytes", [1_000.0], "B", 16.0..=1_300.0,
        Paper("SuperNIC, 5.4: YCSB's default of 1 KB, which is ten fields of 100 bytes"), "bytes of a value";
    FIG19_CACHE_PAIRS = "fig19.cache_pairs", [100_000.0], "pairs", 1.0..=1e6,
        Fitted("the authors' data: 4.10 µs of workload C are what a hit takes by the published parts, so all pairs are held"), "what the cache of the paper's card holds";
    FIG19_USED_LAST = "fig19.used_last", [0.0], "", 0.0..=1.0,
        Assumption("first in, first out: the paper has recently written or read pairs in a small buffer"),
        "1 if a use keeps a pair in the cache for longer";
    FIG19_HIT_NS = "fig19.hit_ns", [96.0], "ns", 0.0..=1e6,
        Derived("the catalogue's kv-cache: 24 cycles"), "what the cache takes for a request";
    FIG19_BEFORE = "fig19.before", [300_000.0], "operations", 0.0..=1e8,
        Assumption("the paper's runs follow each other; a cache that begins empty hits three quarters of 100,000 operations at most"),
        "operations that the cache has seen before a run, after the store was filled through it";
    FIG19_CLIENTS = "fig19.clients", [8.0], "clients", 1.0..=1_024.0,
        Derived("the authors' data: latency times throughput is 59.5 µs Gbit/s in all 18 cells, 8 operations of 1,000 B in units of 2^30 bits"),
        "clients, each of which waits for its answer";
    FIG19_STORE_GBPS = "fig19.store_gbps", [10.0], "Gbit/s", 0.1..=400.0,
        Paper("SuperNIC, 5.4: the Clio board's link"), "the store's link";
    FIG19_LINK_GBPS = "fig19.link_gbps", [100.0], "Gbit/s", 0.1..=400.0,
        Paper("SuperNIC, 5.4: all other links"), "the links of clients, switch and card";
    FIG19_SWITCH_NS = "fig19.switch_ns", [900.0], "ns", 0.0..=1e6,
        Paper("SuperNIC, 5.1: a commodity switch's latency is 0.8 to 1 µs"), "a crossing of the switch";
    FIG19_PHY_NS = "fig19.phy_ns", [1_104.0], "ns", 0.0..=1e6,
        Derived("SuperNIC, 5.1: 1.3 µs from port to port, of which the core takes 196 ns"), "what PHY and MAC of both ports add to a way through the card";
    FIG19_CLIENT_NS = "fig19.client_ns", [350.0], "ns", 0.0..=1e7,
        Derived("half of what two crossings of the switch leave of Clio's median of 2.5 µs (ASPLOS '22, abstract)"),
        "what a client takes for an operation";
    FIG19_STORE_NS = "fig19.store_ns", [1_420.0], "ns", 0.0..=1e7,
        Fitted("the authors' data: what all other parts leave of Clio-sNIC's 8.40 µs of workload C"),
        "what the store takes for an operation besides moving its value; it works on many at once";
    FIG19_MOVES_ONE = "fig19.store_moves_one", [1.0], "", 0.0..=1.0,
        Derived("the authors' data: Clio serves least of workload A, whose values go half each way; so reads and writes share what limits it"),
        "1 if the store moves one value at a time, at its link's rate";
    FIG19_ACK_FRAMES = "fig19.ack_frames", [0.0], "", 0.0..=1.0,
        Assumption("between client and store an answer acknowledges its request"), "1 if the store's acknowledgements are frames of their own";
    FIG19_GIVE_UP_US = "fig19.give_up_us", [100_000.0], "µs", 1.0..=1e7,
        Assumption("many times the transport's timeout of 1 ms"), "after what a client counts an operation as lost";
    FIG19_SEED = "fig19.seed", [1.0], "", 0.0..=1e9,
        Assumption("numbers move by less than a percent with it"), "what keys, operations and losses are drawn from";

    CROWD_CLIENTS = "crowd.clients", [32.0], "clients", 1.0..=1_024.0,
        Assumption("enough to fill the store's link also through the card"), "clients, each of which waits for its answer";
    CROWD_OPERATIONS = "crowd.operations", [10_000.0], "operations", 1_000.0..=1e7,
        Assumption("hit rates and throughput move by less than a percent with more"), "operations that are measured of each workload";
    CROWD_WARM_UP = "crowd.warm_up", [2_000.0], "operations", 0.0..=1e7,
        Assumption("ten times what the product's cache holds here"), "operations before, which are not counted";
    CROWD_RANKS = "crowd.ranks", [1e10], "ranks", 10.0..=1e12,
        Paper("YCSB 0.17.0, ScrambledZipfianGenerator: whatever the number of keys"), "ranks that are drawn from before they are hashed to keys";
    CROWD_CACHE_BYTES = "crowd.cache_bytes", [196_608.0], "B", 0.0..=14e6,
        Derived("SuperNIC, Fig. 6, as the catalogue reads it: 48 block RAMs of 4 KiB"), "the buffer of the product's caching NT";
    CROWD_PAIR_BYTES = "crowd.pair_bytes", [1_024.0], "B", 16.0..=1e4,
        Assumption("a value of 1,000 bytes with its key of up to 23"), "what a pair takes of it";
    CROWD_STORE_NS = "crowd.store_ns", [350.0], "ns", 0.0..=1e7,
        Derived("half of what two crossings of the switch leave of Clio's median of 2.5 µs (ASPLOS '22, abstract)"),
        "what the store takes for an operation; it works on many at once";
    CROWD_LOST_PPM = "crowd.lost_ppm", [1_000.0], "of a million", 0.0..=5e5,
        Assumption("many in a short run; the paper's network loses nothing"), "frames that the switch loses where that is tried";

    VPC_BYTES = "vpc.bytes", [64.0, 128.0, 256.0, 512.0], "B", 64.0..=9_216.0,
        Paper("the thesis's four packet sizes"), "packet sizes of the hosts with Open vSwitch";

    KARMA_USERS = "karma.users", [16.0], "users", 2.0..=1_000.0,
        Assumption("some of each kind, and an epoch of few microseconds"), "users, half of them with bursts";
    KARMA_SLICES = "karma.slices", [10.0], "slices", 2.0..=1_000.0,
        Assumption("small next to a burst"), "fair part of a user; half of it is guaranteed, half shared (the authors' alpha of 0.5)";
    KARMA_LOAD_PERCENT = "karma.load_percent", [200.0], "%", 1.0..=1e4,
        Assumption("all want more than there is, so that fairness decides"), "what each user wants on average, of its fair part";
    KARMA_BURST = "karma.burst", [5.0], "times", 1.0..=100.0,
        Assumption("a user with bursts wants something in a fifth of the epochs"), "what a burst is of the mean";
    KARMA_EPOCHS = "karma.epochs", [100_000.0], "epochs", 10.0..=1e7,
        Assumption("so many that chance moves no total by a percent"), "epochs of a run";
    KARMA_JOB_PERCENT = "karma.job_percent", [30.0], "%", 1.0..=1e4,
        Assumption("little enough for all users to end"), "a job of each user, of its fair part of the whole run";
    KARMA_CREDITS = "karma.credits", [1e9], "credits", 0.0..=1e12,
        Paper("the authors' program: so many that nobody runs out"), "credits of a user at first";
    KARMA_REMEMBERS = "karma.remembers", [1.0], "", 0.0..=1.0,
        Paper("Karma, abstract: past allocations count"), "0 if credits are forgotten each epoch";
    KARMA_SEED = "karma.seed", [1.0], "", 0.0..=1e9,
        Assumption("numbers move by less than a percent with it"), "what draws the bursts";

    TABLE1_MODEST_GBPS = "table1.modest_gbps", [8.0], "Gbit/s", 0.1..=100.0,
        Assumption("far from what the NTs serve"), "what a modest tenant requests and sends";
    TABLE1_GREEDY_TIMES = "table1.greedy_times", [10.0], "times", 1.0..=100.0,
        Assumption("as for isolation"), "what a greedy tenant sends, of what it requests";
    TABLE1_FORK_GBPS = "table1.fork_gbps", [5.0], "Gbit/s", 0.1..=10.0,
        Assumption("half of what the DAG requests"), "what a DAG with a fork is sent";

    FLEXPIPE_BYTES = "flexpipe.bytes", [64.0, 128.0, 256.0, 512.0, 1_024.0, 1_500.0], "B", 64.0..=9_216.0,
        Paper("FlexPipe, IV"), "sizes that packets are drawn from";
    FLEXPIPE_PACKETS = "flexpipe.packets", [11_000.0], "packets", 1e3..=1e8,
        Paper("FlexPipe, IV"), "packets sent";
    FLEXPIPE_MEASURED = "flexpipe.measured", [500.0, 10_500.0], "packets", 0.0..=1e8,
        Paper("FlexPipe, IV"), "first and last packet that counts";
    FLEXPIPE_SEED = "flexpipe.seed", [1.0], "", 0.0..=1e9,
        Assumption("numbers move by less than a percent with it"), "what draws sizes and flows";
    FLEXPIPE_RATES_GBPS = "flexpipe.rates_gbps", [64.0, 80.0, 96.0, 112.0, 128.0], "Gbit/s", 1.0..=400.0,
        Paper("FlexPipe, Fig. 3"), "rates of Fig. 3";
    FLEXPIPE_LATENCY_GBPS = "flexpipe.latency_gbps", [90.0], "Gbit/s", 1.0..=400.0,
        Paper("FlexPipe, Fig. 4"), "rate of Fig. 4";
    FLEXPIPE_LOADS_PERCENT = "flexpipe.loads_percent", [40.0, 50.0, 60.0, 70.0], "%", 1.0..=100.0,
        Paper("FlexPipe, Fig. 5"), "loads of Fig. 5";
    FLEXPIPE_AGAIN_PERCENT = "flexpipe.again_percent", [80.0], "%", 0.0..=100.0,
        Paper("FlexPipe, Fig. 5: a large proportion"), "share that goes round again where the designs are compared";
    FLEXPIPE_FIFO_BYTES = "flexpipe.fifo_bytes", [16_384.0], "B", 9_216.0..=1e9,
        Paper("FlexPipe, III: FIFO queues of 16 kB"), "what each queue of a pipeline holds";
    FLEXPIPE_HOP_CYCLES = "flexpipe.hop_cycles", [2.0], "cycles", 0.0..=1e4,
        Assumption("a register in the splitter, one in the arbiter"), "from one offload to the next";
    FLEXPIPE_STAGE_CYCLES = "flexpipe.stage_cycles", [1.0], "cycles", 1.0..=1e4,
        Paper("FlexPipe, II-A: each stage must be done in one clock cycle"), "what a match-action stage takes for a header";
    FLEXPIPE_DELAYS = "flexpipe.delays", [0.0, 21.0, 25.0, 0.0, 0.0, 0.0], "cycles", 0.0..=1e6,
        Fitted("FlexPipe, Table II: what its results leave of Eq. 1"),
        "delays of CRC, firewall, SHA-3, AES, JPEG decoder, RSS";
    FLEXPIPE_WIDTHS = "flexpipe.widths", [64.0, 8.0, 64.0, 128.0, 32.0, 256.0], "bit", 1.0..=512.0,
        Paper("FlexPipe, Table II"), "input widths, in that order";
    FLEXPIPE_MHZ = "flexpipe.mhz", [250.0, 150.0, 150.0, 250.0, 100.0, 200.0], "MHz", 1.0..=1e4,
        Paper("FlexPipe, Table II"), "clocks, in that order";
    FLEXPIPE_HEADER_ONLY = "flexpipe.header_only", [0.0, 1.0, 0.0, 0.0, 0.0, 1.0], "", 0.0..=1.0,
        Paper("FlexPipe, Table II"), "1 where an offload reads the header only, in that order";
    FLEXPIPE_FLOW_1 = "flexpipe.flow_1", [1.0, 2.0, 3.0, 4.0, 6.0], "", 1.0..=6.0,
        Paper("FlexPipe, IV"), "offloads that flow 1 needs, by their places in that order";
    FLEXPIPE_FLOW_2 = "flexpipe.flow_2", [1.0, 3.0, 5.0, 6.0], "", 1.0..=6.0,
        Paper("FlexPipe, IV"), "offloads that flow 2 needs, by their places in that order";
    FLEXPIPE_FLOW_3 = "flexpipe.flow_3", [1.0, 4.0, 5.0], "", 1.0..=6.0,
        Paper("FlexPipe, IV"), "offloads that flow 3 needs, by their places in that order";
    FLEXPIPE_FLOW_4 = "flexpipe.flow_4", [1.0, 2.0], "", 1.0..=6.0,
        Paper("FlexPipe, IV"), "offloads that flow 4 needs, by their places in that order";
    FLEXPIPE_TURNED_1 = "flexpipe.turned_1", [1.0, 3.0, 2.0, 4.0, 6.0], "", 1.0..=6.0,
        Assumption("the same in an order that needs a second pass of the pipeline"), "what flow 1 needs where packets go round again";
    FLEXPIPE_TURNED_2 = "flexpipe.turned_2", [1.0, 5.0, 3.0, 6.0], "", 1.0..=6.0,
        Assumption("the same in an order that needs a second pass of the pipeline"), "what flow 2 needs where packets go round again";
    FLEXPIPE_TURNED_3 = "flexpipe.turned_3", [1.0, 5.0, 4.0], "", 1.0..=6.0,
        Assumption("the same in an order that needs a second pass of the pipeline"), "what flow 3 needs where packets go round again";
    FLEXPIPE_TURNED_4 = "flexpipe.turned_4", [2.0, 1.0], "", 1.0..=6.0,
        Assumption("the same in an order that needs a second pass of the pipeline"), "what flow 4 needs where packets go round again";
    PANIC_UNIT_CREDITS = "panic.unit_credits", [3.0], "packets", 1.0..=1e6,
        Fitted("FlexPipe, Fig. 4: the ratios to PANIC and the 6.6 µs between longest and shortest latency"),
        "what a unit buffers";
    PANIC_QUEUE_PERCENT = "panic.queue_clock_percent", [50.0], "%", 1.0..=100.0,
        Fitted("FlexPipe, II: priority queues at a lower clock; half of it gives the 94 Gbit/s of Fig. 3"),
        "clock of the priority queues, of the data path's";
    PANIC_DESCRIPTOR_BEATS = "panic.descriptor_beats", [1.0], "beats", 0.0..=64.0,
        Paper("FlexPipe, II: descriptors go ahead of packets on the data path"),
        "what a packet's descriptor takes";

    BLUEFIELD2_LOADS_PERCENT = "bluefield2.loads_percent", [25.0, 50.0, 75.0, 100.0], "%", 1.0..=100.0,
        Paper("BlueField-2 study, 4"), "what is sent, of line rate";
    BLUEFIELD2_JUMBO_BYTES = "bluefield2.jumbo_bytes", [9_216.0], "B", 64.0..=9_216.0,
        Paper("BlueField-2 study, 4"), "jumbo frames";
    BLUEFIELD2_SMALL_BYTES = "bluefield2.small_bytes", [64.0], "B", 64.0..=9_216.0,
        Paper("BlueField-2 study, 4"), "small packets";
    BLUEFIELD2_KERNEL_MBPS = "bluefield2.kernel_mbps", [336.0], "Mbit/s", 1.0..=1e5,
        Paper("BlueField-2 study, 6: 0.042 GB/s without offload"),
        "what the card's own kernel handles";

    BLUEFIELD2_LINE_GBPS = "bluefield2.line_gbps", [100.0], "Gbit/s", 1.0..=400.0,
        Paper("BlueField-2 study, 3: 100GbE"), "the line";
    BLUEFIELD2_GAP_BYTES = "bluefield2.gap_bytes", [20.0], "B", 0.0..=100.0,
        Derived("IEEE 802.3: a preamble of 8 bytes before a frame, a gap of 12 after it"),
        "what a frame has on the line beside its bytes";
    BLUEFIELD2_SWITCH_GBPS = "bluefield2.switch_gbps", [200.0], "Gbit/s", 1.0..=1e3,
        Paper("SmartNIC tutorial, Table 2.1: two ports of 100 Gbit/s"), "what the card's switch moves";
    BLUEFIELD2_MPPS = "bluefield2.mpps", [215.0], "million/s", 1.0..=1e4,
        Derived("NVIDIA's manual of ConnectX-6, the generation of this card's adapter: 215 million messages a second"),
        "packets that the card's switch takes";

    BF3_GOPS_HOST = "bf3.gops_host", [7.5], "times the DPA's", 1.0..=1e3,
        Paper("BlueField-3 study, III-A"), "integer multiplications of all host cores";
    BF3_GOPS_ARM = "bf3.gops_arm", [4.7], "times the DPA's", 1.0..=1e3,
        Paper("BlueField-3 study, III-A"), "integer multiplications of all Arm cores";
    BF3_SWITCH_NANOS = "bf3.switch_nanos", [500.0], "ns", 0.0..=1e6,
        Paper("BlueField-3 study, II-A: about 500 ns"), "a crossing of the NIC's switch";
    BF3_PCIE_NANOS = "bf3.pcie_nanos", [500.0], "ns", 0.0..=1e6,
        Fitted("BlueField-3 study, Fig. 13: the host's bound is twice the DPA's"), "a crossing of the host's PCIe";
    BF3_ROUND_TRIP_NANOS = "bf3.round_trip_nanos", [2_000.0], "ns", 0.0..=1e6,
        Assumption("the study prints no time; two microseconds are usual between neighbours"),
        "round trip between two DPAs";
    BF3_L1_TIMES = "bf3.l1_latency", [10.5], "times the host's", 1.0..=1e3,
        Paper("BlueField-3 study, III-B1"), "an access of the DPA to its first cache";
    BF3_ACCESS_NANOS = "bf3.access_nanos", [100.0], "ns", 1.0..=1e5,
        Assumption("usual of DDR5; the study's times are in its plot"), "an access of Arm or host to their memory";
    BF3_ACCESS_CROSSINGS = "bf3.access_crossings", [2.0], "crossings", 0.0..=10.0,
        Derived("there and back (BlueField-3 study, Fig. 4), as a packet to Arm"), "crossings of the switch, or of PCIe, of one access";
    BF3_DPA_CACHE_NANOS = "bf3.dpa_cache_nanos", [200.0], "ns", 0.0..=1e5,
        Assumption("noticeable beside the switch; the study's times are in its plot"),
        "what looking in the DPA's second and third cache adds to an access";
    BF3_BUNCH_BYTES = "bf3.bunch_bytes", [524_288.0], "B", 1e3..=1e9,
        Paper("BlueField-3 study, Fig. 9: 512 KB"), "packets that are received before the first is read";
    BF3_DIRECT_BYTES = "bf3.direct_bytes", [131_072.0], "B", 1e3..=1e9,
        Paper("BlueField-3 study, IV-A: the latest 128 KB"), "of these, what the DPA's second cache keeps";
    BF3_BUNCH_SIZES = "bf3.bunch_sizes", [64.0, 128.0, 256.0, 512.0, 1_024.0], "B", 64.0..=9_216.0,
        Assumption("around the 1 KB of the text; the study's sizes are in the plot"), "sizes of these packets";
    BF3_RANDOM_READS = "bf3.random_reads", [0.0, 1.0, 2.0, 4.0, 8.0, 16.0], "reads", 0.0..=1e4,
        Assumption("the study's axis is in the plot"), "random reads of a packet in Fig. 11b";
    BF3_BUSY_GBPS = "bf3.busy_gbps", [400.0], "Gbit/s", 0.0..=1e4,
        Paper("BlueField-3 study, V-A: up to 400 Gbps"), "what a reflector on the host has on its PCIe beside the clock's packets";
    BF3_PCIE_GBPS = "bf3.pcie_gbps", [504.123], "Gbit/s", 1.0..=1e4,
        Derived("PCIe 5.0 x16 (Table I): 16 lanes of 32 GT/s, 128 of 130 bits"), "what the host's PCIe moves";
    BF3_TLP_BYTES = "bf3.tlp_bytes", [24.0], "B", 0.0..=1e3,
        Assumption("PCIe 5.0: a header of 16 bytes, framing and checksum of 8"), "what a transfer on PCIe has besides its payload";
    BF3_TLP_PAYLOAD = "bf3.tlp_payload", [256.0], "B", 64.0..=4_096.0,
        Assumption("the usual largest payload"), "payload of a transfer on PCIe";
    BF3_WAITS = "bf3.waits", [400_000.0], "packets", 1e3..=1e7,
        Assumption("the 999th permille of so many moves by less than a percent"), "packets that are looked at in Fig. 13b";
    BF3_SEED = "bf3.seed", [1.0], "", 0.0..=1e9,
        Assumption("the result moves by less than a percent with it"), "what draws when packets come";
    BF3_SYNC_SECONDS = "bf3.sync_seconds", [0.1], "s", 1e-6..=1e3,
        Paper("BlueField-3 study, V-A"), "time between two synchronisations";
    BF3_DRIFT_PPM = "bf3.drift_ppm", [10.0], "µs/s", 0.0..=1e4,
        Paper("BlueField-3 study, V-A"), "drift of a clock";
    BF3_MEMORY_ARM = "bf3.memory_arm", [7.6], "times the DPA's", 1.0..=1e3,
        Paper("BlueField-3 study, III-B3: up to 7.6"), "what all Arm cores read, of what the DPA reads of host memory";
    BF3_MEMORY_HOST = "bf3.memory_host", [2.7], "times the Arm's", 1.0..=1e3,
        Paper("BlueField-3 study, III-B3"), "what all host cores read";
    BF3_CHANNEL_BYTES = "bf3.channel_bytes_per_second", [38.4e9], "B/s", 1e6..=1e12,
        Derived("DDR5-4800 (Table I): 4,800 MT/s of 8 bytes"), "what a channel of the host's memory moves at most";
    BF3_HOST_CHANNELS = "bf3.host_channels", [8.0], "channels", 1.0..=64.0,
        Paper("BlueField-3 study, Table I"), "channels of the host's memory";
    BF3_DPA_READ = "bf3.dpa_read_bytes_per_second", [10.1e9], "B/s", 1e6..=1e12,
        Fitted("BlueField-3 study, Fig. 8: with host memory beside it up to 2.4 times as fast"), "what the DPA reads of DPA memory";
    BF3_DPA_WRITE = "bf3.dpa_write_bytes_per_second", [19.6e9], "B/s", 1e6..=1e12,
        Fitted("BlueField-3 study, Fig. 8: as for reading"), "what the DPA writes to DPA memory";
    BF3_ARM_READ = "bf3.arm_read_bytes_per_second", [13.2e9], "B/s", 1e6..=1e12,
        Fitted("BlueField-3 study, Fig. 16: the best buffers give 4.3 times the worst"), "what the DPA reads of Arm memory";
    BF3_ARM_WRITE = "bf3.arm_write_bytes_per_second", [25.7e9], "B/s", 1e6..=1e12,
        Assumption("as much more than it reads as with host memory"), "what the DPA writes to Arm memory";
    BF3_ENOUGH_THREADS = "bf3.enough_threads", [64.0], "threads", 1.0..=190.0,
        Assumption("a third of all: the study says that one memory needs far fewer than there are"),
        "threads that get all that a memory gives";
    BF3_SETS_KIB = "bf3.sets_kib", [256.0, 512.0, 1_024.0, 1_536.0, 2_048.0, 4_096.0, 8_192.0], "KiB", 1.0..=1e7,
        Assumption("around the caches; the study's axis is in the plot"), "working sets of Fig. 6";
    BF3_FULL_PERCENT = "bf3.full_percent", [90.0], "%", 50.0..=100.0,
        Assumption("the printed knee is a point of a plot: a tenth less is still full speed there"),
        "of the fastest, what counts as full speed in Fig. 6";
    BF3_FLOOD_THREADS = "bf3.flood_threads", [1e5], "threads", 1e3..=1e6,
        Assumption("so many that memory limits them, whatever their number"), "threads of Fig. 6's program";
    BF3_BYTES = "bf3.bytes", [1_024.0], "B", 64.0..=9_216.0,
        Paper("BlueField-3 study, IV-B and IV-C: 1 KB"), "large packets";
    BF3_SMALL_BYTES = "bf3.small_bytes", [64.0], "B", 64.0..=9_216.0,
        Paper("BlueField-3 study, IV-C"), "small packets";
    BF3_READ_PERCENT = "bf3.read_percent", [0.0, 12.5, 25.0, 50.0, 75.0, 100.0], "%", 0.0..=100.0,
        Assumption("the whole range; the study's axis is in the plot"), "shares of a packet that are read, in Fig. 11a";
    BF3_THREAD_NANOS = "bf3.thread_nanos", [973.0, 82.0, 164.0], "ns", 1.0..=1e6,
        Fitted("BlueField-3 study, IV-C: the middle of what lets all reach the line at 1 KB and none at 64 B"),
        "what a thread takes for a packet: DPA, Arm, host";
    BF3_CASE_GBPS = "bf3.case_gbps", [1.0], "Gbit/s", 0.001..=400.0,
        Assumption("little: where a case is not about bandwidth"), "what the cases of V and VI are to serve";
    BF3_LARGE_SET_MIB = "bf3.large_set_mib", [8.0], "MiB", 0.001..=1e6,
        Paper("BlueField-3 study, IV-B: a buffer of 8 MB"), "a working set that the DPA's cache does not hold";
    BF3_NFV_GBPS = "bf3.nfv_gbps", [200.0], "Gbit/s", 1.0..=400.0,
        Assumption("more than DPA memory takes, less than the line"), "what the network function of V-B is to serve";
    BF3_TUPLE_BYTES = "bf3.tuple_bytes", [16.0], "B", 1.0..=1e3,
        Paper("BlueField-3 study, V-C"), "a key with its value";
    BF3_HEADER_BYTES = "bf3.header_bytes", [64.0], "B", 1.0..=1e3,
        Paper("BlueField-3 study, V-C"), "the header of a packet of tuples";
    BF3_TUPLES = "bf3.tuples", [32.0], "tuples", 1.0..=512.0,
        Paper("BlueField-3 study, V-C: Fig. 15b"), "tuples of a packet";
    BF3_ABOVE_SECOND_PERCENT = "bf3.above_second_percent", [101.0], "%", 100.0..=200.0,
        Assumption("more than any pair of buffers serves but the best, and less than that"),
        "of what the second best pair of buffers serves, what the aggregation is to serve";
    BF3_TUPLE_COUNTS = "bf3.tuple_counts", [4.0, 8.0, 16.0, 32.0, 64.0], "tuples", 1.0..=512.0,
        Assumption("around the 32 of Fig. 15b; the study's axis is in the plot"), "tuples of a packet in Fig. 15a";
    BF3_KEYS = "bf3.keys", [1e4, 5e4, 9.8e4, 2e5, 1e6, 4e6], "keys", 1.0..=6e7,
        Assumption("around the caches; the study's axis is in the plot"), "different keys in Fig. 15b";
}

/// Entries of the four flows.
pub(crate) static FLEXPIPE_FLOWS: [&ParameterEntry; 4] =
    [&FLEXPIPE_FLOW_1, &FLEXPIPE_FLOW_2, &FLEXPIPE_FLOW_3, &FLEXPIPE_FLOW_4];
/// Entries of the same flows where packets go round again.
pub(crate) static FLEXPIPE_TURNED: [&ParameterEntry; 4] =
    [&FLEXPIPE_TURNED_1, &FLEXPIPE_TURNED_2, &FLEXPIPE_TURNED_3, &FLEXPIPE_TURNED_4];
