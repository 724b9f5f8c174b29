//! The figures, in the order of the page.

mod bluefield2;
mod bluefield3;
mod bluefield3_access;
mod bluefield3_buffers;
mod flexpipe;
mod karma;
mod osmosis;
mod panic_rtl;
mod supernic_10;
mod supernic_11;
mod supernic_12;
mod supernic_14;
mod supernic_15;
mod supernic_16;
mod supernic_18;
mod supernic_19;
mod supernic_4;
mod supernic_5;
mod supernic_7;
mod supernic_8;
mod supernic_9;
mod supernic_latency;
mod supernic_table_1;
mod thesis_clio;
mod thesis_consolidation;
mod thesis_parallel;
mod thesis_pool;
mod thesis_replication;
mod thesis_scaling;
mod thesis_vpc;
mod ycsb_crowd;

use anyhow::Result;

use crate::outcome::FigureOutcome;
use crate::parameters::Parameters;

/// One figure or table.
#[derive(Debug)]
pub struct Figure {
    /// Its name on the command line.
    pub id: &'static str,
    /// Its title, for people.
    pub title: &'static str,
    /// Where it is published.
    pub source: &'static str,
    /// Its claim, in one sentence that can be wrong.
    pub claim: &'static str,
    /// Parameters that take its cause away: each puts some numbers outside that are inside without
    /// it.
    pub breaks: &'static [Break],
    pub run: fn(&Parameters) -> Result<FigureOutcome>,
}

/// A parameter that takes a figure's cause away.
#[derive(Debug)]
pub struct Break {
    pub key: &'static str,
    pub value: &'static str,
    /// Meaning of the figure.
    pub what: &'static str,
}

const fn broken(key: &'static str, value: &'static str, what: &'static str) -> Break {
    Break { key, value, what }
}

/// Causes of Figs. 19 and 20, which are of the same runs.
const YCSB_BREAKS: &[Break] = &[
    broken("fig19.clients", "32", "clients that fill the store's link"),
    broken("fig19.store_gbps", "100", "a store's link as fast as the others"),
    broken("fig19.store_moves_one", "0", "a store that moves as many values as come"),
    broken("fig19.write_moves", "1", "a store that moves what is written as fast as what is read"),
    broken("fig19.cache_pairs", "192", "a cache of the 48 block RAMs of Fig. 6"),
    broken("fig19.hit_ns", "1500", "a cache that takes 1.5 µs"),
    broken("fig19.phy_ns", "0", "a card whose ports take no time"),
];

pub const ALL: &[Figure] = &[
    Figure {
        id: "fig4",
        title: "SuperNIC Fig. 4: two DAGs that share NTs, in three ways",
        source: "SuperNIC (FPGA '24), Fig. 4 and 4.2",
        claim: "Branches side by side take three time units instead of four, and second instances serve more in the same time.",
        breaks: &[broken("fig4.unit_cycles", "60", "NTs that take no longer than the scheduler")],
        run: supernic_4::run,
    },
    Figure {
        id: "fig5",
        title: "SuperNIC Fig. 5: two users of the same chains",
        source: "SuperNIC (FPGA '24), Fig. 5 and 4.5",
        claim: "Users whose chains overlap share what is loaded: three regions serve the requests of both, and more is refused.",
        breaks: &[broken("fig5.nt_gbps", "13", "NTs that leave room for more")],
        run: supernic_5::run,
    },
    Figure {
        id: "fig7",
        title: "SuperNIC Fig. 7: throughput with different credits",
        source: "SuperNIC (FPGA '24), Fig. 7 and 5.1",
        claim: "More credits fill the port with smaller packets, and eight are enough for 100 Gbit/s.",
        breaks: &[
            broken("card.clock_hz", "200MHz", "a clock of 200 MHz"),
            broken("card.width_bits", "256", "half the data path"),
            broken("plane.credit_cycles", "9", "credits that are on their way for 9 cycles"),
        ],
        run: supernic_7::run,
    },
    Figure {
        id: "fig8",
        title: "SuperNIC Fig. 8: latency of chains of dummy NTs",
        source: "SuperNIC (FPGA '24), Fig. 8 and 5.3",
        claim: "A chain in one region passes the scheduler once; cut in two it takes one pass more, and on PANIC one for each NT.",
        breaks: &[
            broken("card.scheduler_pass_cycles", "32", "a pass of 32 cycles"),
            broken("card.clock_hz", "200MHz", "a clock of 200 MHz"),
        ],
        run: supernic_8::run,
    },
    Figure {
        id: "fig9",
        title: "SuperNIC Fig. 9: throughput of DAGs that share NTs",
        source: "SuperNIC (FPGA '24), Figs. 4 and 9, 5.3",
        claim: "Side by side (S2), a DAG serves what it serves in a row (S1); with second instances (S3) more, but not twice as much.",
        breaks: &[broken("fig9.nt_gbps", "128", "NTs that are not what limits")],
        run: supernic_9::run,
    },
    Figure {
        id: "fig10",
        title: "SuperNIC Fig. 10: DAGs that use another's NTs",
        source: "SuperNIC (FPGA '24), Fig. 10 and 5.2",
        claim: "DAG-A, B and C run in the region that DAG-D has loaded, and nothing is loaded for them.",
        breaks: &[broken("fig14.background_gbps", "25", "a DAG-D that leaves AES too little")],
        run: supernic_10::run,
    },
    Figure {
        id: "fig11",
        title: "SuperNIC Fig. 11: latency of a DAG, one after the other and side by side",
        source: "SuperNIC (FPGA '24), Fig. 11 and 5.3",
        claim: "Branches side by side save time where NTs take longer than another pass of the scheduler, and only there.",
        breaks: &[
            broken("card.scheduler_pass_cycles", "4", "a pass of 4 cycles"),
            broken("fig11.cycles", "12,10", "NTs of 12 cycles instead of 50"),
        ],
        run: supernic_11::run,
    },
    Figure {
        id: "fig12",
        title: "SuperNIC Fig. 12: latency of real DAGs",
        source: "SuperNIC (FPGA '24), Figs. 10 and 12, 5.3",
        claim: "A DAG takes up to 40 % less time on sNIC than on PANIC, and never more.",
        breaks: &[
            broken("nt.delay_percent", "50", "NTs that are twice as fast"),
            broken("card.scheduler_pass_cycles", "40", "a pass of 40 cycles"),
        ],
        run: supernic_12::latency,
    },
    Figure {
        id: "fig13",
        title: "SuperNIC Fig. 13: throughput of real DAGs",
        source: "SuperNIC (FPGA '24), Figs. 10 and 13, 5.3",
        claim: "sNIC serves as much as PANIC; a second AES doubles what DAG-D serves, for AES is its bottleneck.",
        breaks: &[broken("nt.aes.gbps", "100", "an AES of 100 Gbit/s")],
        run: supernic_12::throughput,
    },
    Figure {
        id: "fig14",
        title: "SuperNIC Fig. 14: DAGs that share another's chain",
        source: "SuperNIC (FPGA '24), Fig. 14 and 5.3",
        claim: "A DAG that shares DAG-D's region gets what DAG-D leaves of each NT: 15 Gbit/s where AES is used, 60 where not.",
        breaks: &[
            broken("nt.aes.gbps", "100", "an AES of 100 Gbit/s"),
            broken("fig14.background_gbps", "5", "a background of 5 Gbit/s"),
        ],
        run: supernic_14::run,
    },
    Figure {
        id: "fig15",
        title: "SuperNIC Fig. 15: a load that changes, and the regions that serve it",
        source: "SuperNIC (FPGA '24), Fig. 15 and 5.3",
        claim: "A load that needs a third region gets it with one reconfiguration, and what is loaded stays for the next rise.",
        breaks: &[broken(
            "card.configuration_bytes_per_second",
            "400000000",
            "a configuration port half as fast",
        )],
        run: supernic_15::run,
    },
    Figure {
        id: "fig16",
        title: "SuperNIC Fig. 16: dominant shares of two users",
        source: "SuperNIC (FPGA '24), Fig. 16 and 5.3",
        claim: "The full policy keeps the dominant shares of two users equal whatever the load of one; static space does not.",
        breaks: &[
            broken("fig16.more", "1", "a load that does not rise"),
            broken("fig16.load1_percent", "10", "a load that needs no fairness"),
        ],
        run: supernic_16::shares,
    },
    Figure {
        id: "fig17",
        title: "SuperNIC Fig. 17: aggregated throughput of two users",
        source: "SuperNIC (FPGA '24), Fig. 17 and 5.3",
        claim: "Sharing NTs in time serves most in all, sharing space alone less, and fixed parts no more than that.",
        breaks: &[broken("fig16.regions", "2", "no region beyond each user's own")],
        run: supernic_16::throughput,
    },
    Figure {
        id: "fig18",
        title: "SuperNIC Fig. 18: region size and utilisation",
        source: "SuperNIC (FPGA '24), Figs. 6 and 18, 5.3",
        claim: "The smallest NTs fill a tenth of a region of twice the largest, the largest two most of it.",
        breaks: &[broken("fig18.sizes", "1,3", "a region three times the largest NT")],
        run: supernic_18::run,
    },
    Figure {
        id: "fig19",
        title: "SuperNIC Fig. 19: latency of YCSB's workloads",
        source: "SuperNIC (FPGA '24), Fig. 19 and 5.4; the authors' data",
        claim: "The transport on the card costs Clio latency, and with the cache beside it operations take least of all systems.",
        breaks: YCSB_BREAKS,
        run: supernic_19::latency,
    },
    Figure {
        id: "fig20",
        title: "SuperNIC Fig. 20: throughput of YCSB's workloads",
        source: "SuperNIC (FPGA '24), Fig. 20 and 5.4; the authors' data",
        claim: "The transport on the card costs Clio throughput, and with the cache more is served than the store's link carries.",
        breaks: YCSB_BREAKS,
        run: supernic_19::throughput,
    },
    Figure {
        id: "ycsb-crowd",
        title: "A variant of SuperNIC Fig. 20: YCSB by 32 clients through the product's NTs",
        source: "no figure of the paper; its test bed of 5.4 with a full link",
        claim: "Where clients fill the store's link, the transport on the card costs nothing, and the cache gains what its hits save of the link.",
        breaks: &[
            broken("fig19.store_gbps", "100", "a store's link as fast as the others"),
            broken("crowd.lost_ppm", "0", "a network that loses nothing"),
        ],
        run: ycsb_crowd::run,
    },
    Figure {
        id: "thesis-replication",
        title: "SuperNIC's thesis: latency with writes to two stores",
        source: "the authors' data, data_ycsb_replication",
        claim: "The card writes to two stores in hardly more than the time of one; a client that writes twice takes up to half as long again.",
        breaks: &[
            broken("fig19.store_gbps", "100", "a store's link as fast as the others"),
            broken("fig19.phy_ns", "0", "a card whose ports take no time"),
        ],
        run: thesis_replication::run,
    },
    Figure {
        id: "thesis-vpc",
        title: "SuperNIC's thesis: firewall, NAT and AES of a virtual private cloud",
        source: "the authors' data, data_ovs",
        claim: "The card takes the network functions off a host and costs none of its throughput.",
        breaks: &[broken("nt.aes.gbps", "1", "an AES of 1 Gbit/s")],
        run: thesis_vpc::run,
    },
    Figure {
        id: "thesis-parallel",
        title: "SuperNIC's thesis: NTs side by side",
        source: "the authors' data, data_nt_parallel",
        claim: "NTs side by side take the time of one, and in pairs that of as many as there are stages.",
        breaks: &[
            broken("card.scheduler_pass_cycles", "32", "a pass of 32 cycles"),
            broken("fig8.cycles", "32,16,32,16,32,16,32", "NTs in another order"),
            broken("plane.sync_cycles", "0", "a synchronisation buffer that takes no time"),
        ],
        run: thesis_parallel::run,
    },
    Figure {
        id: "thesis-scaling",
        title: "SuperNIC's thesis: an overloaded chain gets another instance",
        source: "SuperNIC's thesis, as its data's README retells it",
        claim: "After a monitor period of overload another region is loaded, and when it is, the whole load is served.",
        breaks: &[
            broken("scaling.period_ms", "30", "a monitor period of 30 ms"),
            broken(
                "card.configuration_bytes_per_second",
                "400000000",
                "a configuration port half as fast",
            ),
        ],
        run: thesis_scaling::run,
    },
    Figure {
        id: "thesis-clio",
        title: "Clio in SuperNIC's thesis: clients, stores and bytes",
        source: "SuperNIC's thesis, evaluation of Clio; the authors' tables of threads, hosts, stores and sizes",
        claim: "Clients add throughput until the store moves values at its link's rate, then latency; stores add throughput until clients have no more.",
        breaks: &[
            broken("fig19.store_gbps", "100", "a store's link as fast as the others"),
            broken("clio.threads", "16", "hosts with twice the threads"),
            broken(
                "fig19.store_answers_first",
                "0",
                "a store that moves a value before it answers",
            ),
            broken("fig19.client_ns", "2000", "clients that take 2 µs for an operation"),
        ],
        run: thesis_clio::run,
    },
    Figure {
        id: "thesis-consolidation",
        title: "SuperNIC's thesis: hosts that share a card",
        source: "SuperNIC's thesis, appendices; the authors' data, data_conslid_cost, data_conslid_perf, data_fb_alibaba_trace",
        claim: "Hosts behind one card need the NTs of their common load instead of a set each, and lose what their common link lacks.",
        breaks: &[
            broken("consolidation.hosts", "1", "hosts that each have the whole load"),
            broken("consolidation.period_ms", "400", "a monitor period of four loads"),
        ],
        run: thesis_consolidation::run,
    },
    Figure {
        id: "thesis-pool",
        title: "SuperNIC's thesis: a pool of cards",
        source: "SuperNIC's thesis, as its data's README retells it; the authors' data, data_dist_snic",
        claim: "With a second card behind a link the foreground stays as it was, whatever the background's load, and so does what is the second card's own.",
        breaks: &[
            broken("pool.rates", "0", "cards that keep to no rates"),
            broken("pool.connected", "0", "a link that is cut"),
            broken("pool.link_gbps", "20", "a link of half the capacity"),
            broken("pool.link_ns", "10", "cables that take no time"),
            broken("pool.foreground_gbps", "15", "a foreground that leaves half of its chain"),
        ],
        run: thesis_pool::run,
    },
    Figure {
        id: "karma",
        title: "Karma: fairness over time beside DRF",
        source: "Karma (OSDI '23), abstract and its authors' program",
        claim: "With credits users of equal need get equal parts over time, nothing is idle, and whoever claims more gains nothing.",
        breaks: &[
            broken("karma.remembers", "0", "credits that are forgotten each epoch"),
            broken("karma.credits", "0", "users that begin without credits and cannot borrow"),
        ],
        run: karma::run,
    },
    Figure {
        id: "osmosis",
        title: "OSMOSIS: tenants' programs on a NIC's processors",
        source: "OSMOSIS (USENIX ATC '24, arXiv 2309.03628), abstract and its authors' program",
        claim: "Tenants of equal weight get as many processors however long their packets take, and those with small packets are done earlier.",
        breaks: &[
            broken("osmosis.limited", "0", "no limit by weight"),
            broken("osmosis.processors", "4096", "more processors than packets"),
        ],
        run: osmosis::run,
    },
    Figure {
        id: "panic-rtl",
        title: "PANIC Figs. 8c and 11a: its public RTL beside our model",
        source: "PANIC (OSDI '20), Figs. 8c and 11a, by its public RTL (opensmartnic/panic_with_cocotb, 2d7f246), simulated with Verilator 5.006",
        claim: "Three engines of a third of the load each serve all of it from 512 B on, and a packet alone takes some 65 cycles more than its engine.",
        breaks: &[
            broken("panic-rtl.engines", "2", "an engine less"),
            broken("panic-rtl.credits", "1", "engines with one credit"),
            broken("panic.queue_clock_percent", "10", "a priority queue at a tenth of the clock"),
            broken("panic-rtl.pass_cycles", "16", "SuperNIC's pass of the scheduler"),
        ],
        run: panic_rtl::run,
    },
    Figure {
        id: "latency",
        title: "SuperNIC 5.1: what the card adds to a packet's latency",
        source: "SuperNIC (FPGA '24), 5 and 5.1",
        claim: "The core takes 196 ns and a pass of the scheduler 64 of them; as an ASIC they take 25 and 8 ns.",
        breaks: &[
            broken("card.clock_hz", "200MHz", "a clock of 200 MHz"),
            broken("card.core_cycles", "60", "a core of 60 cycles"),
        ],
        run: supernic_latency::run,
    },
    Figure {
        id: "table1",
        title: "SuperNIC Table 1: what it has",
        source: "SuperNIC (FPGA '24), Table 1",
        claim: "Each property of the table's last row is seen in a run.",
        breaks: &[broken("nt.firewall.gbps", "50", "a firewall slower than the line")],
        run: supernic_table_1::run,
    },
    Figure {
        id: "flexpipe-fig3",
        title: "FlexPipe Fig. 3: throughput of three designs",
        source: "FlexPipe (preprint of October 2023), Fig. 3 and IV",
        claim: "PANIC saturates near 94 Gbit/s, where static pipeline and FlexPipe follow to 128.",
        breaks: &[broken(
            "panic.queue_clock_percent",
            "100",
            "priority queues as fast as the data path",
        )],
        run: flexpipe::figure_3,
    },
    Figure {
        id: "flexpipe-fig4",
        title: "FlexPipe Fig. 4: latency at 90 Gbit/s",
        source: "FlexPipe (preprint of October 2023), Fig. 4 and IV",
        claim: "FlexPipe is faster than a static pipeline and than PANIC for every flow, and its latencies spread least.",
        breaks: &[
            broken("flexpipe.latency_gbps", "40", "less than half the load"),
            broken("flexpipe.mhz", "250,250,250,250,250,250", "offloads as fast as the data path"),
        ],
        run: flexpipe::figure_4,
    },
    Figure {
        id: "flexpipe-fig5",
        title: "FlexPipe Fig. 5: packets that go round again",
        source: "FlexPipe (preprint of October 2023), Fig. 5 and IV",
        claim: "At 70 % load 43 % of the packets can go round again, and below saturation FlexPipe is faster than PANIC.",
        breaks: &[broken("flexpipe.loads_percent", "50,85", "a load of 85 %")],
        run: flexpipe::figure_5,
    },
    Figure {
        id: "flexpipe-table1",
        title: "FlexPipe Table I: what pipelines of offloads and of tables can do",
        source: "FlexPipe (preprint of October 2023), Table I and II",
        claim: "A static pipeline keeps up with the line, and a packet that needs few offloads passes all of them; match-action tables keep up, too, and are quicker.",
        breaks: &[
            broken("flexpipe.hop_cycles", "1000", "hops that take longer than any offload"),
            broken("flexpipe.stage_cycles", "40", "match-action stages of 40 cycles"),
        ],
        run: flexpipe::table_1,
    },
    Figure {
        id: "flexpipe-table2",
        title: "FlexPipe Table II: units for line rate",
        source: "FlexPipe (preprint of October 2023), Eq. 1 and Table II",
        claim: "Eq. 1 gives the units of each offload.",
        breaks: &[broken("flexpipe.delays", "0,0,0,0,0,0", "no delays")],
        run: flexpipe::table_2,
    },
    Figure {
        id: "bluefield2-mixes",
        title: "BlueField-2 study, Figs. 3 to 6: four mixes with offload and without",
        source: "Benchmarking of NVIDIA BlueField-2 Offloading Capabilities, 4 and 5, Figs. 3 to 6",
        claim: "With offload more than half of every mix arrives and next to all jumbo frames; without, mostly less than 1 %.",
        breaks: &[
            broken("bluefield2.kernel_mbps", "5000", "a kernel that handles 5 Gbit/s"),
            broken("bluefield2.mpps", "50", "a switch that takes 50 million packets a second"),
        ],
        run: bluefield2::run,
    },
    Figure {
        id: "bf3-compute",
        title: "BlueField-3 study, Fig. 3: what the processors compute",
        source: "Demystifying Datapath Accelerator Enhanced Off-path SmartNIC (ICNP '24), Fig. 3 and III-A",
        claim: "Arm and host are comparable, and a DPA thread is up to 26 times slower than a core.",
        breaks: &[broken("bf3.gops_host", "20", "a host that computes 20 times what the DPA does")],
        run: bluefield3::compute,
    },
    Figure {
        id: "bf3-memory",
        title: "BlueField-3 study, Figs. 4 to 8: memories and caches",
        source: "Demystifying Datapath Accelerator Enhanced Off-path SmartNIC (ICNP '24), Figs. 4 to 8 and III-B",
        claim: "The DPA reads memory far below line rate, faster with two memories, and much faster what its cache holds.",
        breaks: &[
            broken("nic.dpa.dpa.cache_bytes", "4194304", "a cache of 4 MiB"),
            broken("bf3.enough_threads", "190", "memories that need all threads"),
            broken("nic.dpa.host.read_bytes_per_second", "40000000000", "host memory at 40 GB/s"),
        ],
        run: bluefield3::memory,
    },
    Figure {
        id: "bf3-latency",
        title: "BlueField-3 study, Figs. 10 and 11a: latency of a reflector",
        source: "Demystifying Datapath Accelerator Enhanced Off-path SmartNIC (ICNP '24), Figs. 10, 11a and IV-B",
        claim: "The DPA has the lowest latency and the host the highest, and reading a packet costs the DPA its lead.",
        breaks: &[
            broken("bf3.switch_nanos", "1500", "a switch that is three times slower"),
            broken(
                "nic.dpa.thread_read_bytes_per_second",
                "5300000000",
                "a first cache ten times faster",
            ),
        ],
        run: bluefield3::reflector,
    },
    Figure {
        id: "bf3-access",
        title: "BlueField-3 study, Figs. 5, 9 and 11b: accesses to memory, and packets in caches",
        source: "Demystifying Datapath Accelerator Enhanced Off-path SmartNIC (ICNP '24), Figs. 5, 9, 11b, III-B and IV-A",
        claim: "An access of the DPA crosses the switch, takes at least five times the Arm's, and costs the DPA its lead; the latest 128 KB of packets are in its cache.",
        breaks: &[
            broken("bf3.switch_nanos", "100", "a switch that is five times faster"),
            broken("bf3.access_crossings", "0.5", "a memory nearer than the Arm's"),
            broken("bf3.direct_bytes", "65536", "half the cache for packets"),
        ],
        run: bluefield3_access::run,
    },
    Figure {
        id: "bf3-threads",
        title: "BlueField-3 study, Figs. 12 and 14: throughput by threads and buffers",
        source: "Demystifying Datapath Accelerator Enhanced Off-path SmartNIC (ICNP '24), Figs. 12, 14, IV-C and V-B",
        claim: "With 1 KB all processors reach the line, the DPA with more threads and not with packets in its own memory.",
        breaks: &[
            broken(
                "nic.dpa.dpa.receive_bps",
                "400000000000",
                "DPA memory that receives at line rate",
            ),
            broken("nic.dpa.threads_usable", "16", "a DPA with 16 threads"),
        ],
        run: bluefield3_buffers::threads,
    },
    Figure {
        id: "bf3-clock",
        title: "BlueField-3 study, Fig. 13: clock synchronisation",
        source: "Demystifying Datapath Accelerator Enhanced Off-path SmartNIC (ICNP '24), Fig. 13 and V-A",
        claim: "On the DPA the bound on a clock's error is up to half of what it is elsewhere, and less where the host's PCIe is busy.",
        breaks: &[
            broken("bf3.switch_nanos", "0", "a switch that takes no time"),
            broken("bf3.busy_gbps", "200", "a host that is half as busy"),
        ],
        run: bluefield3::clock,
    },
    Figure {
        id: "bf3-aggregation",
        title: "BlueField-3 study, Figs. 15 and 16: key-value aggregation",
        source: "Demystifying Datapath Accelerator Enhanced Off-path SmartNIC (ICNP '24), Figs. 15, 16 and V-C",
        claim: "Packets in Arm memory and aggregates in DPA memory serve most, 4.3 times what host memory for both does.",
        breaks: &[
            broken("nic.dpa.host.read_bytes_per_second", "40000000000", "host memory at 40 GB/s"),
            broken("nic.dpa.dpa.cache_bytes", "1000000000", "a cache that holds all keys"),
            broken(
                "nic.dpa.dpa.receive_bps",
                "400000000000",
                "DPA memory that receives at line rate",
            ),
            broken("bf3.memory_arm", "4", "an Arm whose memory is half as fast"),
        ],
        run: bluefield3_buffers::aggregate,
    },
    Figure {
        id: "bf3-guidelines",
        title: "BlueField-3 study, Fig. 17 and VI: where the case studies run",
        source: "Demystifying Datapath Accelerator Enhanced Off-path SmartNIC (ICNP '24), Fig. 17, V and VI",
        claim: "The choice places each of the study's cases where the study places it.",
        breaks: &[
            broken(
                "nic.dpa.dpa.receive_bps",
                "400000000000",
                "DPA memory that receives at line rate",
            ),
            broken("nic.dpa.dpa.cache_bytes", "1000000000", "a cache that holds everything"),
        ],
        run: bluefield3_buffers::guidelines,
    },
];

/// A figure by its name.
pub fn find(id: &str) -> Option<&'static Figure> {
    ALL.iter().find(|figure| figure.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for figure in ALL {
            assert_eq!(ALL.iter().filter(|other| other.id == figure.id).count(), 1);
            assert_eq!(find(figure.id).map(|found| found.title), Some(figure.title));
        }
        assert!(find("fig99").is_none());
    }
}
