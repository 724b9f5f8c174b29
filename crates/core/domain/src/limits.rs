//! The limits of the system, each with what breaks without it.

use std::time::Duration;

use crate::{Bandwidth, ByteSize, LatencyBound};

/// Most NTs of one DAG: a DAG of 64 single-NT branches already takes 64 of the 4096 stage rows,
/// and planning is quadratic in it.
pub const DAG_NODES_MAX: usize = 64;
/// Most branches of one fork or stage: the stage table's row has four virtual-chain columns.
pub const FORK_BRANCHES_MAX: usize = 4;
/// Most bytes of the configurations of one DAG's NTs, together: the card takes them in one piece between two
/// packets, and records of the store stay small.
pub const DAG_CONFIGURATION_BYTES_MAX: usize = 64 << 10;
/// Most NTs with a configuration of one tenant: each may keep tables of up to [`NT_STATE_MAX`] on a card
/// that is a process of the host.
pub const TENANT_CONFIGURATIONS_MAX: usize = 32;
/// Least bandwidth of a DAG: below it the token bucket never holds a whole packet in time.
pub const DAG_BANDWIDTH_MIN: Bandwidth = Bandwidth::from_mbps(1);
/// Most bandwidth of a DAG: what fits the 32-bit kbit/s columns, far over any port.
pub const DAG_BANDWIDTH_MAX: Bandwidth = Bandwidth::from_gbps(4_000);
/// Longest bound on the latency of a DAG's packets: a second, the length of the windows in which it is judged.
pub const DAG_LATENCY_BOUND_MAX: LatencyBound = LatencyBound::new(1_000_000_000);
/// Smallest packet, in bytes: an Ethernet frame.
pub const PACKET_BYTES_MIN: u32 = 64;
/// Largest packet, in bytes: a jumbo frame and what stands around it.
pub const PACKET_BYTES_MAX: u32 = 9_216;
/// Most sizes of a DAG's packet mix: the planner sums over them for each DAG.
pub const PACKET_SIZES_MAX: usize = 16;
/// Heaviest size of a packet mix: weights are ratios, and exact arithmetic on them must not overflow.
pub const PACKET_WEIGHT_MAX: u32 = 1_000;
/// Most credits of an NT: a column of the credit table has seven bits.
pub const CREDITS_MAX: u8 = 127;
/// Most regions of a card: the region table's rows and the crossbar's ports.
pub const REGIONS_MAX: usize = 32;
/// Most links of a card to other cards: their pages of registers.
pub const LINKS_MAX: usize = 16;
/// Most NTs of a physical chain: the used mask and the credit table have eight columns.
pub const CHAIN_SLOTS_MAX: usize = 8;
/// Rows of the DAG table, and so most DAGs of a card: a UID has ten bits for the row.
pub const DAG_ROWS: usize = 1024;
/// DAGs that one request may create.
pub const DAG_BATCH_MAX: usize = 32;
/// DAGs that one DAG may name in each list of its affinity.
pub const AFFINITY_DAGS_MAX: usize = 16;
/// Tenants that one DAG may trust.
pub const TRUSTED_TENANTS_MAX: usize = 64;
/// Rows of the stage table.
pub const STAGE_ROWS: usize = 4096;
/// Rows of the virtual-chain table.
pub const CHAIN_ROWS: usize = 1024;
/// Rows of the instance table.
pub const INSTANCE_ROWS: usize = 2048;
/// Part of the stage, virtual-chain and instance tables that no DAG is admitted into, as its reciprocal. A move has its
/// old rows and its new ones at once, so consolidations, drains and updates would stop at a full table. Four virtual chains
/// let a DAG of four move, and leave 1,020 for DAGs.
pub const SPARE_ROWS_PART: usize = 256;
/// Rows of the classifier.
pub const CLASSIFIER_ROWS: usize = 1024;
/// Virtual functions of a card that can be bound: rows of the guard table, one for each.
pub const FUNCTION_ROWS: usize = 512;
/// Most Ethernet addresses of a bound function: a row of the guard table has four.
pub const FUNCTION_MACS_MAX: usize = 4;
/// Most VLANs of a bound function: a row of the guard table has twelve.
pub const FUNCTION_VLANS_MAX: usize = 12;
/// Entries of the synchronisation buffer, and so packets of joins under way at once.
pub const SYNC_ROWS: usize = 256;
/// Rows of the page table: 10 GB in pages of 2 MB are 5,120.
pub const PAGE_ROWS: usize = 8192;
/// A page of on-board memory.
pub const PAGE_SIZE: ByteSize = ByteSize::from_mib(2);
/// Unit of the save area: whole units of what DMA engines move at once.
pub const SAVE_UNIT: ByteSize = ByteSize::from_bytes(4_096);
/// Unit of an NT's state: a beat of the data path, which is what a wrapper moves at once.
pub const STATE_UNIT: ByteSize = ByteSize::from_bytes(64);
/// Most state of one NT: four times what the block RAM of a whole region holds.
pub const NT_STATE_MAX: ByteSize = ByteSize::from_mib(16);
/// Most bytes that an NT moves in on-board memory for a packet, beside those for each of its bytes: the chain ROM has 24
/// bits for them.
pub const NT_MEMORY_BYTES_PER_PACKET_MAX: u32 = (1 << 24) - 1;
/// Largest bitstream that is taken: a region's is under 5 MB; a whole role may be larger.
pub const BITSTREAM_BYTES_MAX: ByteSize = ByteSize::from_mib(16);
/// Largest WebAssembly module of a tenant's NT.
pub const MODULE_BYTES_MAX: usize = 256 << 10;
/// Most memory of an instance of a module.
pub const MODULE_MEMORY_BYTES_MAX: usize = 2 << 20;
/// Heaviest tenant: weights are ratios, and exact arithmetic on them must not overflow.
pub const TENANT_WEIGHT_MAX: u32 = 1_000;
/// Most requests that wait for DAGs to move, and of one caller: each is planned again whenever something is freed.
pub const HELD_MAX: usize = 64;
pub const CALLER_HELD_MAX: usize = 8;
/// Most labels of a resource: each filter of a list may look at all of them.
pub const LABELS_MAX: usize = 32;
/// Longest key and longest value of a label, in characters: as DNS labels, so that the labels of other
/// systems fit. All of a resource's labels are at most 4 KB of its record.
pub const LABEL_CHARS_MAX: usize = 63;
/// Longest description, in bytes: records of the store stay small.
pub const DESCRIPTION_BYTES_MAX: usize = 1_024;
/// Time that the result of a finished operation and a request id are remembered.
pub const OPERATION_KEPT: Duration = Duration::from_secs(24 * 3600);
/// Most finished operations, request ids and ended bindings that are remembered of a tenant, of each;
/// its own oldest go first. A record is under 1 KB (`crates/core/controller`, `histories` of the examples),
/// so all three take at most 3 MB of a tenant.
pub const TENANT_HISTORY_MAX: usize = 1_000;
/// Most finished operations that are remembered of operators, and request ids of each operator and
/// orchestrator: at most 10 MB each.
pub const OPERATOR_HISTORY_MAX: usize = 10_000;
/// Most virtual functions of one machine: more do not fit a machine's PCI slots (32 of a bus).
pub const BINDING_FUNCTIONS_MAX: u16 = 32;
/// Shortest lease of a binding: a host that is busy for a moment must not lose its machines.
pub const LEASE_MIN: Duration = Duration::from_secs(5);
/// Longest lease of a binding: what outlives its host for longer is to be unbound by hand.
pub const LEASE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Longest time that a binding may take to be ready: a start of a machine waits for it.
pub const READY_WITHIN_MAX: Duration = Duration::from_secs(600);
