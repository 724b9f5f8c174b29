// The data path: packets from the port through regions to the port.
//
//   in ─► ingress ─► store                                        store ─► egress ─► out
//            └─► look-up ─► queues of regions ─► ports ═► regions ═► ledger ─► returns ─┤
//                   ▲                                                                  │
//                   └───────────────────────────────── next stage ◄────────────────────┘
//
// A place of the store is a packet's for as long as it is on the card, and its number names it everywhere. One that is no more gives the
// place back and is counted: four parts may have one, one of them a cycle.

module snic_data_path
    import snic_map_pkg::*;
    import snic_packet_pkg::*;
#(
    parameter int unsigned REGIONS_HERE = 16,
    localparam int unsigned INDEX_BITS = $clog2(REGIONS_HERE)
) (
    input  logic         clock,
    input  logic         reset,

    input  logic         in_tvalid,
    output logic         in_tready,
    input  logic [511:0] in_tdata,
    input  logic [63:0]  in_tkeep,
    input  logic         in_tlast,
    input  logic [32:0]  in_tuser,
    output logic         out_tvalid,
    input  logic         out_tready,
    output logic [511:0] out_tdata,
    output logic [63:0]  out_tkeep,
    output logic         out_tlast,

    // Tables.
    input  logic         is_open,
    input  logic         active,
    output logic [TABLES-1:0] look,
    output logic         look_bank,
    output logic [11:0]  look_row,
    input  logic         look_granted,
    input  logic [5:0][31:0] dag_row,
    input  logic [3:0][31:0] stage_row,
    input  logic [1:0][31:0] chain_row,
    input  logic [1:0][31:0] instance_row,
    input  logic [1:0][31:0] region_row,
    input  logic [1:0][31:0] credit_row,
    // Packets that began with each bank: whether there are any, and in which regions.
    output logic [1:0]   bank_used,
    output logic [REGIONS_HERE-1:0][1:0] has_packets,
    output logic [REGIONS_HERE-1:0][PLACE_BITS:0] loads,

    // Regions.
    input  logic [REGIONS_HERE-1:0] coupled,
    input  logic [REGIONS_HERE-1:0] regions_reset,
    input  logic [REGIONS_HERE-1:0][31:0] tags,
    input  logic [REGIONS_HERE-1:0][SLOTS-1:0] present,
    output logic [REGIONS_HERE-1:0]        to_tvalid,
    input  logic [REGIONS_HERE-1:0]        to_tready,
    output logic [REGIONS_HERE-1:0][511:0] to_tdata,
    output logic [REGIONS_HERE-1:0][63:0]  to_tkeep,
    output logic [REGIONS_HERE-1:0]        to_tlast,
    output descriptor_t [REGIONS_HERE-1:0] to_descriptor,
    input  logic [REGIONS_HERE-1:0]        from_tvalid,
    output logic [REGIONS_HERE-1:0]        from_tready,
    input  logic [REGIONS_HERE-1:0][511:0] from_tdata,
    input  logic [REGIONS_HERE-1:0]        from_tlast,
    input  reply_t [REGIONS_HERE-1:0]      from_reply,

    input  logic         read,
    input  address_t     address,
    output word_t        read_data
);
    localparam int unsigned ARRIVALS = 16;

    cycle_t now;
    always_ff @(posedge clock) now <= reset ? '0 : now + 1'b1;

    // The store.
    logic   in_write;
    place_t in_place;
    beat_t  in_beat;
    logic   back_write;
    place_t back_place;
    beat_t  back_beat;
    logic [511:0] back_data;
    logic   take;
    place_t next;
    logic [PLACE_BITS:0] free;
    place_t read_place;
    beat_t  read_beat;
    logic [511:0] store_data;
    ended_t ended;
    logic   ends;

    snic_store store (
        .clock       (clock),
        .reset       (reset),
        .write       (in_write || back_write),
        .write_place (back_write ? back_place : in_place),
        .write_beat  (back_write ? back_beat : in_beat),
        .write_data  (back_write ? back_data : in_tdata),
        .read_place  (read_place),
        .read_beat   (read_beat),
        .read_data   (store_data),
        .take        (take),
        .next        (next),
        .free        (free),
        .give        (ends && ended.has_place),
        .given       (ended.place)
    );

    // Arrivals.
    logic     begins;
    logic     begins_bank;
    logic     whole;
    arrival_t arrival;
    arrival_t first_arrival;
    logic     take_arrival;
    logic [$clog2(ARRIVALS):0] arrivals;
    snic_ingress ingress (
        .clock       (clock),
        .reset       (reset),
        .now         (now),
        .tvalid      (in_tvalid),
        .tready      (in_tready),
        .tkeep       (in_tkeep),
        .tlast       (in_tlast),
        .tuser       (in_tuser),
        .is_open     (is_open),
        .bank        (active),
        .store_busy  (back_write),
        .write       (in_write),
        .write_place (in_place),
        .write_beat  (in_beat),
        .next        (next),
        .free        (free),
        .take        (take),
        .begins      (begins),
        .begins_bank (begins_bank),
        .whole       (whole),
        .arrival     (arrival),
        .has_room    (arrivals < 5'(ARRIVALS - 2))
    );
    snic_fifo #(.WIDTH($bits(arrival_t)), .DEPTH(ARRIVALS)) arriving (
        .clock    (clock),
        .reset    (reset),
        .put      (whole),
        .put_data (arrival),
        .take     (take_arrival),
        .first    (first_arrival),
        .count    (arrivals)
    );

    // Packets by place, for each of the four that read them.
    logic    put;
    place_t  put_place;
    packet_t put_packet;
    logic [3:0][PLACE_BITS-1:0] reader_places;
    packet_t [3:0] reader_packets;
    for (genvar i = 0; i < 4; i++) begin : readers
        logic [$bits(packet_t)-1:0] packets [PLACES];
        always_ff @(posedge clock) begin
            if (put) packets[put_place] <= put_packet;
            reader_packets[i] <= packets[reader_places[i]];
        end
    end

    // Packets for their next stage: a place, then what is known of it.
    logic    again;
    place_t  returned;
    cycle_t  due;
    logic    take_again;
    place_t  again_place;
    cycle_t  again_due;
    logic [PLACE_BITS:0] agains;
    logic    again_read;
    packet_t again_packet;
    snic_fifo #(.WIDTH(PLACE_BITS + 32), .DEPTH(PLACES)) coming_again (
        .clock    (clock),
        .reset    (reset),
        .put      (again),
        .put_data ({returned, due}),
        .take     (take_again),
        .first    ({again_place, again_due}),
        .count    (agains)
    );
    assign reader_places[0] = again_place;
    always_ff @(posedge clock) again_read <= agains != '0 && !take_again && !reset;
    always_comb begin
        again_packet     = reader_packets[0];
        again_packet.due = again_due;
    end

    logic       counts;
    logic [9:0] count_row;
    logic [15:0] count_bytes;
    logic   lookup_ends;
    ended_t lookup_ended;
    logic [3:0] ends_taken;
    snic_lookup #(.REGIONS_HERE(REGIONS_HERE)) lookup (
        .clock        (clock),
        .reset        (reset),
        .has_arrival  (arrivals != '0),
        .arrival      (first_arrival),
        .take_arrival (take_arrival),
        .has_again    (again_read),
        .again_place  (again_place),
        .again        (again_packet),
        .take_again   (take_again),
        .look         (look),
        .look_bank    (look_bank),
        .look_row     (look_row),
        .look_granted (look_granted),
        .dag_row      (dag_row),
        .stage_row    (stage_row),
        .chain_row    (chain_row),
        .instance_row (instance_row),
        .region_row   (region_row),
        .credit_row   (credit_row),
        .tags         (tags),
        .present      (present),
        .loads        (loads),
        .free         (free),
        .counts       (counts),
        .count_row    (count_row),
        .count_bytes  (count_bytes),
        .put          (put),
        .put_place    (put_place),
        .put_packet   (put_packet),
        .ends         (lookup_ends),
        .ended        (lookup_ended),
        .ends_taken   (ends_taken[0])
    );

    logic    launches;
    logic [INDEX_BITS-1:0] launch_region;
    place_t  launch_place;
    packet_t launch_packet;
    tag_t    launch_tag;
    logic    left;
    packet_t leaving;
    logic [REGIONS_HERE-1:0] ports_free;
    logic    launch_ends;
    ended_t  launch_ended;
    snic_launch #(.REGIONS_HERE(REGIONS_HERE)) launch (
        .clock         (clock),
        .reset         (reset),
        .now           (now),
        .put           (put),
        .put_place     (put_place),
        .put_packet    (put_packet),
        .packet_place  (reader_places[1]),
        .packet        (reader_packets[1]),
        .coupled       (coupled),
        .ports_free    (ports_free),
        .launches      (launches),
        .launch_region (launch_region),
        .launch_place  (launch_place),
        .launch_packet (launch_packet),
        .leaves        (left),
        .leaving       (leaving),
        .has_packets   (has_packets),
        .loads         (loads),
        .ends          (launch_ends),
        .ended         (launch_ended),
        .ends_taken    (ends_taken[1])
    );

    // The crossbar: who reads the store, one behind the other; the last one is the egress.
    descriptor_t descriptor;
    bytes_t      launch_beats;
    logic [REGIONS_HERE:0] asks;
    logic [REGIONS_HERE:0] granted;
    place_t [REGIONS_HERE:0] ask_places;
    beat_t  [REGIONS_HERE:0] ask_beats;
    logic [INDEX_BITS:0] asker;
    logic [INDEX_BITS:0] asked_before;
    assign launch_beats = launch_packet.payload ? beats_of(launch_packet.bytes) : bytes_t'(1);
    assign descriptor = '{uid: launch_packet.uid, configuration: launch_packet.configuration,
        bytes: 16'(launch_packet.bytes), tag: launch_tag, used: launch_packet.used};
    always_comb begin
        asker   = '0;
        granted = '0;
        for (int unsigned i = REGIONS_HERE + 1; i > 0; i--) begin
            automatic int unsigned sum = 32'(asked_before) + i;
            automatic logic [INDEX_BITS:0] at = (INDEX_BITS+1)'(sum > REGIONS_HERE ? sum - REGIONS_HERE - 1 : sum);
            if (asks[at]) asker = at;
        end
        granted[asker] = asks[asker];
    end
    assign read_place = ask_places[asker];
    assign read_beat  = ask_beats[asker];
    always_ff @(posedge clock) begin
        if (asks != '0) asked_before <= asker;
        if (reset) asked_before <= '0;
    end
    for (genvar r = 0; r < REGIONS_HERE; r++) begin : ports
        snic_region_port to_region (
            .clock        (clock),
            .reset        (reset),
            .coupled      (coupled[r]),
            .region_reset (regions_reset[r]),
            .start        (launches && launch_region == INDEX_BITS'(r)),
            .place        (launch_place),
            .last_beat    (beat_t'(launch_beats - bytes_t'(1))),
            .descriptor   (descriptor),
            .is_free      (ports_free[r]),
            .asks         (asks[r]),
            .ask_place    (ask_places[r]),
            .ask_beat     (ask_beats[r]),
            .granted      (granted[r]),
            .data         (store_data),
            .tvalid       (to_tvalid[r]),
            .tready       (to_tready[r]),
            .tdata        (to_tdata[r]),
            .tkeep        (to_tkeep[r]),
            .tlast        (to_tlast[r]),
            .tdescriptor  (to_descriptor[r])
        );
    end

    logic   leaves;
    place_t leaves_place;
    logic   is_lost;
    bytes_t leaves_beats;
    cycle_t leaves_first;
    reply_t leaves_reply;
    logic   returns_free;
    snic_ledger #(.REGIONS_HERE(REGIONS_HERE)) ledger (
        .clock         (clock),
        .reset         (reset),
        .now           (now),
        .coupled       (coupled),
        .regions_reset (regions_reset),
        .launches      (launches),
        .launch_region (launch_region),
        .launch_place  (launch_place),
        .launch_tag    (launch_tag),
        .tvalid        (from_tvalid),
        .tready        (from_tready),
        .tdata         (from_tdata),
        .tlast         (from_tlast),
        .reply         (from_reply),
        .write         (back_write),
        .write_place   (back_place),
        .write_beat    (back_beat),
        .write_data    (back_data),
        .leaves        (leaves),
        .leaves_place  (leaves_place),
        .is_lost       (is_lost),
        .leaves_beats  (leaves_beats),
        .leaves_first  (leaves_first),
        .leaves_reply  (leaves_reply),
        .is_free       (returns_free)
    );

    logic   goes_out;
    logic   returns_end;
    ended_t returns_ended;
    snic_returns returns (
        .clock        (clock),
        .reset        (reset),
        .leaves       (leaves),
        .leaves_place (leaves_place),
        .is_lost      (is_lost),
        .leaves_beats (leaves_beats),
        .leaves_first (leaves_first),
        .leaves_reply (leaves_reply),
        .is_free      (returns_free),
        .packet_place (reader_places[2]),
        .packet       (reader_packets[2]),
        .left         (left),
        .leaving      (leaving),
        .again        (again),
        .goes_out     (goes_out),
        .place        (returned),
        .due          (due),
        .ends         (returns_end),
        .ended        (returns_ended),
        .ends_taken   (ends_taken[2])
    );

    logic   went;
    logic [31:0] went_uid;
    bytes_t went_bytes;
    logic   egress_ends;
    ended_t egress_ended;
    snic_egress egress (
        .clock        (clock),
        .reset        (reset),
        .now          (now),
        .put          (goes_out),
        .put_place    (returned),
        .put_due      (due),
        .packet_place (reader_places[3]),
        .packet       (reader_packets[3]),
        .asks         (asks[REGIONS_HERE]),
        .ask_place    (ask_places[REGIONS_HERE]),
        .ask_beat     (ask_beats[REGIONS_HERE]),
        .granted      (granted[REGIONS_HERE]),
        .data         (store_data),
        .tvalid       (out_tvalid),
        .tready       (out_tready),
        .tdata        (out_tdata),
        .tkeep        (out_tkeep),
        .tlast        (out_tlast),
        .went         (went),
        .went_uid     (went_uid),
        .went_bytes   (went_bytes),
        .ends         (egress_ends),
        .ended        (egress_ended),
        .ends_taken   (ends_taken[3])
    );

    // Packets that are no more.
    always_comb begin
        ends_taken = '0;
        ended = lookup_ended;
        if (egress_ends) begin
            ends_taken[3] = 1'b1;
            ended = egress_ended;
        end else if (returns_end) begin
            ends_taken[2] = 1'b1;
            ended = returns_ended;
        end else if (launch_ends) begin
            ends_taken[1] = 1'b1;
            ended = launch_ended;
        end else ends_taken[0] = lookup_ends;
    end
    assign ends = ends_taken != '0;

    logic [1:0][15:0] of_bank;
    for (genvar b = 0; b < 2; b++) begin : banks
        assign bank_used[b] = of_bank[b] != '0;
        always_ff @(posedge clock) begin
            of_bank[b] <= of_bank[b] + 16'(begins && begins_bank == 1'(b)) - 16'(ends && ended.bank == 1'(b));
            if (reset) of_bank[b] <= '0;
        end
    end

    snic_counters counters (
        .clock          (clock),
        .reset          (reset),
        .came           (begins),
        .dropped        (ends && ended.is_dropped),
        .cause          (ended.cause),
        .intended       (counts),
        .intended_row   (count_row),
        .intended_bytes (count_bytes),
        .served         (went),
        .served_row     (went_uid[9:0]),
        .served_bytes   (16'(went_bytes)),
        .read           (read),
        .address        (address),
        .read_data      (read_data)
    );
    logic unused;
    assign unused = &{went_uid[31:10], launch_packet};
endmodule
