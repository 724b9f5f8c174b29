//! Inputs of the key-value stores and hosts behind SuperNIC's card.

use super::{ParameterEntry, ParameterSource};

table! {
    STORES:

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
        Fitted("the authors' data of Clio alone: what all other parts leave of the 4.841 µs in which one thread writes 1,024 bytes (data_kvs_latency)"),
        "what the store takes for an operation besides moving its value; it works on many at once";
    FIG19_MOVES_ONE = "fig19.store_moves_one", [1.0], "", 0.0..=1.0,
        Derived("the authors' data: Clio serves least of workload A, whose values go half each way; so reads and writes share what limits it"),
        "1 if the store moves one value at a time, at its link's rate";
    FIG19_SHARE_BOARD = "fig19.stores_share_board", [0.0], "", 0.0..=1.0,
        Paper("the thesis's test bed: two Clio boards"), "1 if several stores are on one board, which moves one value at a time";
    FIG19_WRITE_MOVES = "fig19.write_moves", [1.11], "times", 0.1..=10.0,
        Fitted("the authors' data of Clio alone: A beside C in all six rows of 16 and more operations under way, of two to four hosts and stores, whose mean this is"),
        "how long the store moves a value that is written, of one that is read";
    FIG19_ANSWERS_FIRST = "fig19.store_answers_first", [1.0], "", 0.0..=1.0,
        Fitted("the authors' data of Clio alone: one thread writes 1,024 bytes of memory in 3.685 µs and reads them in 4.35"),
        "1 if the store answers a write before it has moved the value";
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

    CLIO_LINK_GBPS = "clio.link_gbps", [40.0], "Gbit/s", 0.1..=400.0,
        Paper("the thesis, evaluation of Clio: 40 Gbit/s"), "the links of clients and switch in Clio's own evaluation";
    CLIO_OPERATIONS = "clio.operations", [2_000.0], "operations", 100.0..=1e7,
        Assumption("in a closed loop means move by less than a percent with more"), "operations that are measured of each cell";
    CLIO_WARM_UP = "clio.warm_up", [300.0], "operations", 0.0..=1e7,
        Assumption("many times what is under way at once"), "operations before, which are not counted";
    CLIO_THREADS = "clio.threads", [8.0], "threads", 1.0..=64.0,
        Paper("the thesis, evaluation of Clio: 8 threads of each host"), "threads of a host, each of which waits for its answer";
    CLIO_HOSTS = "clio.hosts", [2.0], "hosts", 1.0..=64.0,
        Paper("the thesis, evaluation of Clio: two hosts"), "hosts where the number of stores is varied";

    VPC_BYTES = "vpc.bytes", [64.0, 128.0, 256.0, 512.0], "B", 64.0..=9_216.0,
        Paper("the thesis's four packet sizes"), "packet sizes of the hosts with Open vSwitch";

    CONSOLIDATION_LOAD_GBPS = "consolidation.load_gbps", [24.0, 32.0], "Gbit/s", 0.1..=1e3,
        Paper("the thesis's appendix on consolidation"), "median and 95th percentile of the load";
    CONSOLIDATION_SHAPE = "consolidation.shape", [0.0], "", 0.0..=2.0,
        Assumption("loads of data centres have long tails"), "distribution of the load: 0 log-normal, 1 normal, 2 log-normal mirrored at its median";
    CONSOLIDATION_HOSTS = "consolidation.hosts", [2.0], "hosts", 1.0..=64.0,
        Fitted("the authors' data: for four hosts one NT of 60 Gbit/s does, which it does not if each has a median of 24"),
        "hosts that have this load together";
    CONSOLIDATION_UNITS = "consolidation.units", [120.0], "loads", 1.0..=1e6,
        Assumption("shares move by about a percent with more"), "loads of each host, one after the other";
    CONSOLIDATION_UNIT_MS = "consolidation.unit_ms", [30.0], "ms", 1.0..=1e6,
        Assumption("several monitor periods: the thesis scales for loads that stay"), "for how long a load stays";
    CONSOLIDATION_SCALE = "consolidation.scale", [500.0], "times", 1.0..=1e4,
        Assumption("loads, links and NTs are smaller by this, so that seconds of packets can be simulated"),
        "what all rates are divided by";
    CONSOLIDATION_PERIOD_MS = "consolidation.period_ms", [10.0], "ms", 1.0..=1e4,
        Paper("the thesis's evaluation: MONITOR_PERIOD of 10 ms"), "the monitor period";
    CONSOLIDATION_NT_GBPS = "consolidation.nt_gbps", [20.0, 30.0, 60.0, 90.0], "Gbit/s", 0.1..=1e3,
        Paper("the authors' data, data_conslid_cost"), "what an NT serves";
    CONSOLIDATION_LINKS_GBPS = "consolidation.links_gbps", [100.0, 40.0], "Gbit/s", 0.1..=1e3,
        Paper("the thesis's appendix on consolidation"), "links of hosts, and of the card";
    CONSOLIDATION_SEED = "consolidation.seed", [1.0], "", 0.0..=1e9,
        Assumption("shares move by a few percent with it"), "what loads are drawn from";
    POOL_NT_GBPS = "pool.nt_gbps", [40.0], "Gbit/s", 0.1..=400.0,
        Fitted("the authors' data, data_dist_snic: with one card the foreground has 20 beside a background, half of it"), "what the chain of a card serves";
    POOL_FOREGROUND_GBPS = "pool.foreground_gbps", [30.0], "Gbit/s", 0.1..=400.0,
        Derived("the authors' data, data_dist_snic: 30 with two cards"), "load of the DAG at home";
    POOL_BACKGROUND_PERCENT = "pool.background_percent", [0.0, 25.0, 50.0, 75.0, 100.0, 150.0, 200.0], "%", 0.0..=1e3,
        Assumption("the thesis: beyond what one card serves"), "load of the other DAG, of what the chain of a card serves";
    POOL_OWN_GBPS = "pool.own_gbps", [10.0], "Gbit/s", 0.1..=400.0,
        Assumption("a quarter of what its chain serves"), "load and promise of the second card's own DAG";
    POOL_ASKED_GBPS = "pool.asked_gbps", [28.0], "Gbit/s", 0.1..=400.0,
        Assumption("what the second card's own DAG leaves, less what the planner keeps free"), "what the second card promises to the guest, and the home card to its DAG";
    POOL_LINK_GBPS = "pool.link_gbps", [40.0], "Gbit/s", 0.1..=400.0,
        Assumption("as much as a card's chain serves"), "capacity of a link, each way";
    POOL_LINK_NS = "pool.link_ns", [450.0], "ns", 1.0..=1e6,
        Derived("half of a commodity switch's 0.8 to 1 µs (SuperNIC, 5.1): two cables are one crossing"), "latency of a cable";
    POOL_CARDS = "pool.cards", [8.0], "cards", 2.0..=17.0,
        Assumption("as many as a small rack has"), "cards of the pool";
    POOL_BYTES = "pool.bytes", [64.0, 128.0, 256.0, 512.0, 1_024.0], "B", 64.0..=9_216.0,
        Assumption("the authors' five rows name no size; those of the paper's Fig. 7"), "packet sizes of the authors' table";
    POOL_RATES = "pool.rates", [1.0], "", 0.0..=1.0,
        Paper("SuperNIC, 4.5: an epoch's rates are token buckets before the DAGs"), "1 if the cards keep to the rates of their controllers' loops";
    POOL_SETTLE_MS = "pool.settle_ms", [10.0], "ms", 0.0..=1e4,
        Assumption("ten epochs: rates rise from the promises to what is sent"), "what is not counted at first, while rates settle";
    POOL_SEED = "pool.seed", [1.0], "", 0.0..=1e9,
        Assumption("cells move by a percent with it"), "what the times of packets are drawn from";
    POOL_CONNECTED = "pool.connected", [1.0], "", 0.0..=1.0,
        Assumption("a pool is connected"), "1 if the second card's cables are";
    CAPEX_DOLLARS = "capex.dollars", [500.0, 100.0, 250.0], "$", 0.0..=1e6,
        Paper("the thesis's appendix on costs"), "prices of a NIC, of a cable and of a switch's port";
    CAPEX_SMALLER = "capex.smaller", [0.2, 0.6], "times", 0.0..=1.0,
        Paper("the thesis's appendix on costs"), "prices of a NIC and a cable to the pool, of whole ones";
    CAPEX_HOSTS = "capex.hosts", [4.0], "hosts", 1.0..=1e3,
        Paper("the thesis's appendix on costs"), "hosts of a card";
    CAPEX_NT_SHARE = "capex.nt_share", [0.9], "", 0.0..=1.0,
        Paper("the thesis's appendix on costs"), "part of a card's price that is for its NTs";
}
