/*
 * The fast path of a software card: packets of flows with a rule are rewritten and sent on in the kernel.
 *
 * Runs at tcx ingress of each port. Whatever has no rule, or is out of its DAG's bucket, goes to the port's slow device, unchanged, and from
 * there to the card. Nothing goes on to the host's own network.
 *
 * Keys and values are the byte arrays that `src/layout.rs` writes.
 */
#include <linux/bpf.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define big16(value) __builtin_bswap16(value)

/* Helpers of the kernel, by their numbers (linux/bpf.h). */
static void *(*const look_up)(const void *map, const void *key) = (void *)1;
static u64 (*const nanoseconds)(void) = (void *)5;
static long (*const store)(struct __sk_buff *, u32 at, const void *, u32 bytes, u64 flags) = (void *)9;
static long (*const correct_ipv4)(struct __sk_buff *, u32 at, u64 from, u64 to, u64 flags) = (void *)10;
static long (*const correct)(struct __sk_buff *, u32 at, u64 from, u64 to, u64 flags) = (void *)11;
static long (*const redirect)(u32 device, u64 flags) = (void *)23;
static long (*const make_writable)(struct __sk_buff *, u32 bytes) = (void *)39;
static long (*const redirect_to_peer)(u32 device, u64 flags) = (void *)155;

/* Flags of `correct`. */
#define PSEUDO_HEADER (1ULL << 4)
#define ZERO_IS_NONE (1ULL << 5)
/* Since Linux 6.16: the packet is IPv6, so its addresses are in no checksum of the IP header. */
#define IS_IPV6 (1ULL << 7)
#define INVALID_FLAG -22

#define DROP 2

/* Twice the slots: rules of an older version stay until there is no room. */
#define FLOWS 32768
#define SLOTS 16384
#define DAG_ROWS 1024
#define PORTS 256

#define ETHERNET 14
#define IPV4 20
#define IPV6 40
#define TCP 20
#define UDP 8
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17
#define FIN_SYN_RST 7
#define ACK 16
/* Largest headers that are looked at. */
#define HEADERS (ETHERNET + IPV6 + TCP)

struct flow {
	u32 port;
	u8 stations[12];
	u8 protocol;
	u8 version;
	u16 zero;
	u8 addresses[32];
	u8 ports[4];
};

struct rule {
	/* Of the card's tables, and of the DAG's row. */
	u32 version;
	u32 generation;
	u32 row;
	u32 slot;
	u32 out;
	u32 flags;
	/* Added to the checksum over the addresses and over the ports. */
	u32 addresses_change;
	u32 ports_change;
	u8 stations[12];
	u8 addresses[32];
	u8 ports[4];
};

/* The device's other end gets the packet as if it had come in by there. */
#define TO_PEER 1
/* Addresses or ports change. */
#define REWRITES 2

struct profile {
	u32 generation;
	u32 flags;
	/* Time of a byte in 2^-16 ns, and of the whole bucket in 2^-6 ns. */
	u64 byte_time;
	u64 bucket_time;
	/* Packets of its flows that went to the card, so far. */
	u64 slow;
};

/* There is such a DAG. */
#define VALID 1
/* Rules hold until one more packet went to the card. */
#define ORDERED 2
/* Packets are dropped: the card is to catch up. */
#define HELD_BACK 4

struct use {
	u64 packets;
	u64 bytes;
	u64 last;
};

struct counts {
	u64 packets;
	u64 bytes;
	/* Of flows with a rule, out of profile. */
	u64 beyond_packets;
	u64 beyond_bytes;
	/* Lost because a packet could not be changed. */
	u64 failed;
	/* Dropped while they were held back. */
	u64 held_back;
};

#define MAP(name, kind, entries, key_type, value_type)                                                                           \
	struct {                                                                                                                     \
		int(*type)[kind];                                                                                                        \
		int(*max_entries)[entries];                                                                                              \
		key_type *key;                                                                                                           \
		value_type *value;                                                                                                       \
	} name SECTION(".maps")

MAP(flows, BPF_MAP_TYPE_HASH, FLOWS, struct flow, struct rule);
MAP(version, BPF_MAP_TYPE_ARRAY, 1, u32, u32);
MAP(profiles, BPF_MAP_TYPE_ARRAY, DAG_ROWS, u32, struct profile);
/* When each bucket is full again, in 2^-6 ns. Apart from the profiles: while a DAG has one, only the program writes it. */
MAP(buckets, BPF_MAP_TYPE_ARRAY, DAG_ROWS, u32, u64);
/* Packets of flows with rules that went to the card, by row. */
MAP(slow_packets, BPF_MAP_TYPE_ARRAY, DAG_ROWS, u32, u64);
/* Times that the program began or ended on a processor: odd while it runs. */
MAP(running, BPF_MAP_TYPE_PERCPU_ARRAY, 1, u32, u64);
MAP(dags, BPF_MAP_TYPE_PERCPU_ARRAY, DAG_ROWS, u32, struct counts);
/* Uses of rules by their slots. Apart from the rules: a rule that is replaced loses no count. */
MAP(uses, BPF_MAP_TYPE_ARRAY, SLOTS, u32, struct use);
/* Slow devices of ports. */
MAP(ports, BPF_MAP_TYPE_HASH, PORTS, u32, u32);

/* Headers of a packet, all of them and up to the transport's. */
struct shape {
	u32 headers;
	u32 transport;
};

/* The sum over an IPv4 header is as it should be (RFC 1071). */
INLINE int is_sum_right(const u8 *header)
{
	u32 sum = 0;
#pragma unroll
	for (int at = 0; at < IPV4; at += 2)
		sum += *(const u16 *)(header + at);
	return (sum & 0xFFFF) + (sum >> 16) == 0xFFFF;
}

/*
 * Reads a frame that may follow a rule: what `FlowKey::of` takes, but for VLAN tags and merged UDP. The latter may be what the kernel would
 * send in fragments (UFO), and nothing here tells the two apart.
 */
INLINE int read_flow(struct __sk_buff *frame, struct flow *flow, struct shape *shape)
{
	u32 length = frame->len;
	u32 wanted = length < HEADERS ? length : HEADERS;
	if (frame->data_end - frame->data < wanted && make_writable(frame, wanted))
		return 0;
	u8 *at = (u8 *)(long)frame->data, *end = (u8 *)(long)frame->data_end;
	if (at + ETHERNET + IPV4 + UDP > end || frame->vlan_present)
		return 0;
	__builtin_memcpy(flow->stations, at, 12);
	u16 type = *(u16 *)(at + 12);
	u8 *network = at + ETHERNET;
	u32 packet_end;
	if (type == big16(0x0800)) {
		u16 total = big16(*(u16 *)(network + 2));
		/* No options; all but "don't fragment" is zero. */
		if (network[0] != 0x45 || *(u16 *)(network + 6) & big16(0xBFFF) || total < IPV4 || !is_sum_right(network))
			return 0;
		packet_end = ETHERNET + total;
		flow->version = 4;
		flow->protocol = network[9];
		__builtin_memcpy(flow->addresses, network + 12, 8);
		shape->transport = ETHERNET + IPV4;
	} else if (type == big16(0x86DD)) {
		if (network + IPV6 + UDP > end || network[0] >> 4 != 6)
			return 0;
		packet_end = ETHERNET + IPV6 + big16(*(u16 *)(network + 4));
		flow->version = 6;
		flow->protocol = network[6];
		__builtin_memcpy(flow->addresses, network + 8, 32);
		shape->transport = ETHERNET + IPV6;
	} else {
		return 0;
	}
	if (packet_end > length || packet_end < shape->transport)
		return 0;
	u32 bytes = packet_end - shape->transport;
	u8 *transport = network + (flow->version == 4 ? IPV4 : IPV6);
	if (flow->protocol == PROTOCOL_TCP) {
		if (transport + TCP > end)
			return 0;
		u32 header = (transport[12] >> 4) * 4;
		if (bytes < TCP || header < TCP || header > bytes || (transport[13] & (FIN_SYN_RST | ACK)) != ACK)
			return 0;
		shape->headers = shape->transport + header;
	} else if (flow->protocol == PROTOCOL_UDP) {
		if (transport + UDP > end || bytes < UDP || frame->gso_size)
			return 0;
		u16 said = big16(*(u16 *)(transport + 4));
		if (said < UDP || said > bytes)
			return 0;
		shape->headers = shape->transport + UDP;
	} else {
		return 0;
	}
	__builtin_memcpy(flow->ports, transport, 4);
	return 1;
}

/* Packets that a merged one becomes on a wire, and their bytes. */
INLINE u64 wire_packets(struct __sk_buff *frame, const struct shape *shape, u64 *bytes)
{
	u32 segment = frame->gso_size, length = frame->len;
	*bytes = length;
	if (!segment || length <= shape->headers)
		return 1;
	u32 payload = length - shape->headers;
	u32 packets = (payload + segment - 1) / segment;
	*bytes = payload + (u64)packets * shape->headers;
	return packets;
}

/*
 * Takes a packet's bytes from a bucket, if they are there. A bucket is the time when it is full again (the generic cell rate
 * algorithm of ITU-T I.371): one word, so no processor waits for another one.
 */
INLINE int take(u32 row, const struct profile *profile, u64 bytes)
{
	u64 *full_at = look_up(&buckets, &row);
	if (!full_at)
		return 0;
	u64 cost = (bytes * profile->byte_time + 1023) >> 10;
#pragma unroll
	for (int turn = 0; turn < 4; turn++) {
		u64 now = nanoseconds() << 6;
		u64 seen = *(volatile u64 *)full_at;
		u64 next = (seen > now ? seen : now) + cost;
		if (next - now > profile->bucket_time)
			return 0;
		if (__sync_val_compare_and_swap(full_at, seen, next) == seen)
			return 1;
	}
	return 0;
}

/* Writes a rule's headers; all of the packet that is needed can be written. */
INLINE int rewrite(struct __sk_buff *frame, const struct flow *flow, const struct rule *rule, const struct shape *shape)
{
	u32 transport = shape->transport;
	if (store(frame, 0, rule->stations, sizeof(rule->stations), 0))
		return 0;
	if (!(rule->flags & REWRITES))
		return 1;
	u32 checksum = transport + (flow->protocol == PROTOCOL_TCP ? 16 : 6);
	u64 flags = flow->protocol == PROTOCOL_UDP ? ZERO_IS_NONE : 0;
	/* Where a device is still to add up the packet, the field holds the sum of the addresses, and none of the ports. */
	u64 pseudo = flags | PSEUDO_HEADER;
	long failed;
	if (flow->version == 4) {
		failed = correct(frame, checksum, 0, rule->addresses_change, pseudo);
		failed |= correct_ipv4(frame, ETHERNET + 10, 0, rule->addresses_change, 0);
		failed |= store(frame, ETHERNET + 12, rule->addresses, 8, 0);
	} else {
		failed = correct(frame, checksum, 0, rule->addresses_change, pseudo | IS_IPV6);
		if (failed == INVALID_FLAG)
			failed = correct(frame, checksum, 0, rule->addresses_change, pseudo);
		failed |= store(frame, ETHERNET + 8, rule->addresses, 32, 0);
	}
	failed |= correct(frame, checksum, 0, rule->ports_change, flags);
	failed |= store(frame, transport, rule->ports, sizeof(rule->ports), 0);
	return !failed;
}

/* The slow device of a port; a port without one takes nothing. */
INLINE int slow(u32 port)
{
	u32 *device = look_up(&ports, &port);
	return device ? redirect(*device, 0) : DROP;
}

/* The same for a packet of a flow with a rule: others of its DAG are not to overtake it. */
INLINE int slow_of(u32 port, u32 row)
{
	u64 *packets = look_up(&slow_packets, &row);
	if (packets)
		__sync_fetch_and_add(packets, 1);
	return slow(port);
}

/* Whether a DAG's rules hold: nothing of it went to the card since they were given. */
INLINE int is_in_order(const struct profile *profile, u32 row)
{
	if (!(profile->flags & ORDERED))
		return 1;
	u64 *packets = look_up(&slow_packets, &row);
	return packets && *(volatile u64 *)packets == profile->slow;
}

INLINE int pass(struct __sk_buff *frame)
{
	struct flow flow = {};
	struct shape shape = {};
	u32 port = frame->ifindex, only = 0;
	flow.port = port;
	if (!read_flow(frame, &flow, &shape))
		return slow(port);
	struct rule *rule = look_up(&flows, &flow);
	u32 *current = look_up(&version, &only);
	if (!rule)
		return slow(port);
	u32 row = rule->row, slot = rule->slot;
	if (!current || rule->version != *(volatile u32 *)current)
		return slow_of(port, row);
	struct profile *profile = look_up(&profiles, &row);
	struct counts *counts = look_up(&dags, &row);
	struct use *use = look_up(&uses, &slot);
	if (!profile || !counts || !use || !(profile->flags & VALID) || profile->generation != rule->generation)
		return slow_of(port, row);
	u64 bytes, packets = wire_packets(frame, &shape, &bytes);
	if (profile->flags & HELD_BACK) {
		counts->held_back += packets;
		return DROP;
	}
	if (!is_in_order(profile, row))
		return slow_of(port, row);
	if (!take(row, profile, bytes)) {
		counts->beyond_packets += packets;
		counts->beyond_bytes += bytes;
		return slow_of(port, row);
	}
	if (make_writable(frame, shape.headers))
		return slow_of(port, row);
	if (!rewrite(frame, &flow, rule, &shape)) {
		counts->failed += packets;
		return DROP;
	}
	counts->packets += packets;
	counts->bytes += bytes;
	__sync_fetch_and_add(&use->packets, packets);
	__sync_fetch_and_add(&use->bytes, bytes);
	use->last = nanoseconds();
	return rule->flags & TO_PEER ? redirect_to_peer(rule->out, 0) : redirect(rule->out, 0);
}

/* Notes that the program begins or ends. Nothing that is read behind the beginning is older than it. */
INLINE void note_turn(u64 *turns)
{
	u64 before = turns ? __sync_fetch_and_add(turns, 1) : 0;
	/* An addition whose result nobody wants would be no barrier. */
	asm volatile("" : : "r"(before));
}

SECTION("classifier") int forward(struct __sk_buff *frame)
{
	u32 only = 0;
	u64 *turns = look_up(&running, &only);
	note_turn(turns);
	int verdict = pass(frame);
	note_turn(turns);
	return verdict;
}

/* None of the helpers above is for programs under the GPL only. */
char license_text[] SECTION("license") = "Apache-2.0";
