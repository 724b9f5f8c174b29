//! Inputs of other designs: Karma, OSMOSIS, FlexPipe, PANIC.

use super::{ParameterEntry, ParameterSource};

table! {
    DESIGNS:

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

    OSMOSIS_PROCESSORS = "osmosis.processors", [32.0], "processors", 1.0..=4_096.0,
        Paper("OSMOSIS, the authors' program: four clusters of eight"), "processors of the NIC";
    OSMOSIS_CLOCK_HZ = "osmosis.clock_hz", [1e9], "Hz", 1e6..=1e11,
        Paper("PsPIN, the NIC that OSMOSIS is built into: 1 GHz"), "clock of the processors";
    OSMOSIS_GBPS = "osmosis.gbps", [400.0], "Gbit/s", 1.0..=1e4,
        Paper("OSMOSIS, abstract: 400 Gbit/s"), "the link, which is full";
    OSMOSIS_BYTES = "osmosis.bytes", [128.0], "B", 64.0..=9_216.0,
        Paper("OSMOSIS, the authors' trace of two tenants"), "packets of two tenants, one after the other";
    OSMOSIS_ITERATIONS = "osmosis.iterations", [256.0, 512.0], "iterations", 1.0..=1e6,
        Paper("OSMOSIS, the authors' program"), "what each of two tenants' programs runs for a packet";
    OSMOSIS_CYCLES = "osmosis.cycles", [3.0], "cycles", 1.0..=1e3,
        Assumption("a multiplication, an addition, a branch"), "what an iteration takes";
    OSMOSIS_PACKETS = "osmosis.packets", [1_000.0], "packets", 1.0..=1e5,
        Assumption("so many that begin and end do not count"), "packets of each of two tenants";
    OSMOSIS_WEIGHTS = "osmosis.weights", [1.0, 3.0], "", 1.0..=255.0,
        Assumption("one other than equal"), "weights of two tenants where they differ";
    OSMOSIS_MIX_PACKETS = "osmosis.mix_packets", [500.0], "packets", 1.0..=1e5,
        Paper("OSMOSIS, the authors' trace of four tenants"), "packets of four tenants, in random order";
    OSMOSIS_MIX_BYTES = "osmosis.mix_bytes", [64.0, 64.0, 64.0, 128.0, 4_096.0, 4_096.0, 3_072.0, 4_096.0], "B", 64.0..=9_216.0,
        Paper("OSMOSIS, the authors' generator of traces"), "smallest and largest packet of each of four tenants";
    OSMOSIS_MIX_CYCLES = "osmosis.mix_cycles", [100.0, 1.5], "cycles", 0.0..=1e4,
        Assumption("few instructions for a word; the authors print none"), "what a program takes for a packet, and for each byte";
    OSMOSIS_LIMITED = "osmosis.limited", [1.0], "", 0.0..=1.0,
        Paper("OSMOSIS: weight-limited"), "0 if a tenant may have more processors than its weight's part while others wait";
    OSMOSIS_SEED = "osmosis.seed", [1.0], "", 0.0..=1e9,
        Assumption("numbers move by a few percent with it"), "what draws tenants and sizes";

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
        Paper("PANIC's public RTL, which FlexPipe ran: a PLL makes 125 MHz for the priority queues of the data path's 250"),
        "clock of the priority queues, of the data path's";
    PANIC_DESCRIPTOR_BEATS = "panic.descriptor_beats", [1.0], "beats", 0.0..=64.0,
        Paper("FlexPipe, II: descriptors go ahead of packets on the data path"),
        "what a packet's descriptor takes";

    PANIC_RTL_BYTES = "panic-rtl.bytes", [64.0, 128.0, 256.0, 512.0, 1_024.0, 2_048.0], "B", 64.0..=2_048.0,
        Paper("PANIC's RTL, its test bench of Fig. 8c, which doubles from 64 B to 2,048 B"),
        "packets of one size, where three engines share the load";
    PANIC_RTL_ENGINES = "panic-rtl.engines", [3.0], "engines", 1.0..=16.0,
        Paper("PANIC's RTL, the credits that the scheduler of its test bench of Fig. 8c looks at"), "engines that share the load";
    PANIC_RTL_CREDITS = "panic-rtl.credits", [6.0], "packets", 1.0..=64.0,
        Paper("PANIC's RTL, its test bench of Fig. 8c"), "credits of each engine";
    PANIC_RTL_CYCLES_PER_BYTE = "panic-rtl.cycles_per_byte", [0.06], "cycles", 0.0..=100.0,
        Paper("PANIC's RTL, its parser: 6 cycles for 100 bytes, less its beats and two cycles of the engine"),
        "what an engine takes for a byte, the packet's own beats included";
    PANIC_RTL_PASS_CYCLES = "panic-rtl.pass_cycles", [54.0], "cycles", 0.0..=1e4,
        Fitted("PANIC's RTL, simulated: the latency of a packet of 64 B with nothing else sent"),
        "from the parser through memory, queue and crossbar to an engine, beside descriptors and hops";
    PANIC_RTL_GBPS = "panic-rtl.gbps", [102.0], "Gbit/s", 1.0..=128.0,
        Paper("PANIC's RTL, its test bench of Fig. 11a: a beat of 512 bits in 102 of 128 cycles of 4 ns"), "what is sent of three flows together";
    PANIC_RTL_CHAIN_BYTES = "panic-rtl.chain_bytes", [1_472.0], "B", 64.0..=9_216.0,
        Paper("PANIC's RTL, its test bench of Fig. 11a: 23 beats"), "packets of the three flows";
    PANIC_RTL_CHAIN_CREDITS = "panic-rtl.chain_credits", [2.0], "packets", 1.0..=64.0,
        Paper("PANIC's RTL, its test bench of Fig. 11a: two of an AES engine, four of one for SHA-3"), "credits of each engine of the chain";
    PANIC_RTL_UNIT_GBPS = "panic-rtl.unit_gbps", [46.4, 64.0], "Gbit/s", 1.0..=400.0,
        Derived("PANIC's RTL, simulated: what two engines of a type serve where everything is for them"),
        "rates of two SHA-3 engines, and of two AES engines";
    PANIC_RTL_PATTERN_1 = "panic-rtl.pattern_1", [3.0, 5.0, 2.0], "tenths", 0.0..=10.0,
        Paper("PANIC's RTL, its test bench of Fig. 11a"), "parts of the load in pattern 1: of SHA-3 and AES, of AES alone, of no engine";
    PANIC_RTL_PATTERN_2 = "panic-rtl.pattern_2", [1.0, 6.0, 3.0], "tenths", 0.0..=10.0,
        Paper("PANIC's RTL, its test bench of Fig. 11a"), "parts of the load in pattern 2: of SHA-3 and AES, of AES alone, of no engine";
    PANIC_RTL_PATTERN_3 = "panic-rtl.pattern_3", [3.0, 3.0, 4.0], "tenths", 0.0..=10.0,
        Paper("PANIC's RTL, its test bench of Fig. 11a"), "parts of the load in pattern 3: of SHA-3 and AES, of AES alone, of no engine";
    PANIC_RTL_PATTERN_4 = "panic-rtl.pattern_4", [6.0, 4.0, 0.0], "tenths", 0.0..=10.0,
        Paper("PANIC's RTL, its test bench of Fig. 11a"), "parts of the load in pattern 4: of SHA-3 and AES, of AES alone, of no engine";
}

/// Entries of the four flows.
pub(crate) static FLEXPIPE_FLOWS: [&ParameterEntry; 4] =
    [&FLEXPIPE_FLOW_1, &FLEXPIPE_FLOW_2, &FLEXPIPE_FLOW_3, &FLEXPIPE_FLOW_4];
/// Entries of the same flows where packets go round again.
pub(crate) static FLEXPIPE_TURNED: [&ParameterEntry; 4] =
    [&FLEXPIPE_TURNED_1, &FLEXPIPE_TURNED_2, &FLEXPIPE_TURNED_3, &FLEXPIPE_TURNED_4];
