//! Inputs of the BlueField studies.

use super::{ParameterEntry, ParameterSource};

table! {
    NICS:

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
