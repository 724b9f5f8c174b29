//! Inputs of SuperNIC's figures and tables, but for those of its key-value store.

use super::{ParameterEntry, ParameterSource};

table! {
    SUPERNIC:

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

    TABLE1_MODEST_GBPS = "table1.modest_gbps", [8.0], "Gbit/s", 0.1..=100.0,
        Assumption("far from what the NTs serve"), "what a modest tenant requests and sends";
    TABLE1_GREEDY_TIMES = "table1.greedy_times", [10.0], "times", 1.0..=100.0,
        Assumption("as for isolation"), "what a greedy tenant sends, of what it requests";
    TABLE1_FORK_GBPS = "table1.fork_gbps", [5.0], "Gbit/s", 0.1..=10.0,
        Assumption("half of what the DAG requests"), "what a DAG with a fork is sent";
}
