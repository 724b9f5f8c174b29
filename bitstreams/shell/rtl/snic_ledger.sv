// The ledger: which packets are in each region, in the order in which they entered. What a region says of itself is not believed.
//
// A region is in order, so the next packet that it lets go is the first one here, and its tag has to be that one's: place, region,
// and how often the region was taken out. What comes without it is taken and forgotten, as is what has no end.
// Packets of a region that is not coupled end, one in two cycles.
//
//   regions ─► one beat a cycle, in turns ─► tag? ─► store
//                                              └─► with the last beat: the packet leaves the region

module snic_ledger
    import snic_packet_pkg::*;
#(
    parameter int unsigned REGIONS_HERE = 16,
    localparam int unsigned INDEX_BITS = $clog2(REGIONS_HERE)
) (
    input  logic         clock,
    input  logic         reset,
    input  cycle_t       now,
    input  logic [REGIONS_HERE-1:0] coupled,
    input  logic [REGIONS_HERE-1:0] regions_reset,

    // A packet enters.
    input  logic         launches,
    input  logic [INDEX_BITS-1:0] launch_region,
    input  place_t       launch_place,
    output tag_t         launch_tag,

    input  logic [REGIONS_HERE-1:0]        tvalid,
    output logic [REGIONS_HERE-1:0]        tready,
    input  logic [REGIONS_HERE-1:0][511:0] tdata,
    input  logic [REGIONS_HERE-1:0]        tlast,
    input  reply_t [REGIONS_HERE-1:0]      reply,

    output logic         write,
    output place_t       write_place,
    output beat_t        write_beat,
    output logic [511:0] write_data,

    // A packet is out of its region, or was lost in it: how many beats came, when the first, and what the region said of it.
    output logic         leaves,
    output place_t       leaves_place,
    output logic         is_lost,
    output bytes_t       leaves_beats,
    output cycle_t       leaves_first,
    output reply_t       leaves_reply,
    input  logic         is_free
);
    // As many as a slot can have credits.
    localparam int unsigned HELD_BITS  = 7;
    localparam int unsigned EPOCH_BITS = 32 - PLACE_BITS - 5;
    typedef logic [EPOCH_BITS-1:0] epoch_t;

    place_t held [REGIONS_HERE << HELD_BITS];
    logic [REGIONS_HERE-1:0][HELD_BITS-1:0] heads;
    logic [REGIONS_HERE-1:0][HELD_BITS-1:0] tails;
    logic [REGIONS_HERE-1:0][HELD_BITS:0]   counts;
    epoch_t [REGIONS_HERE-1:0] epochs;
    logic [REGIONS_HERE-1:0] was_coupled;
    logic [REGIONS_HERE-1:0] pops;

    assign launch_tag = {epochs[launch_region], 5'(launch_region), launch_place};
    always_ff @(posedge clock) if (launches) held[{launch_region, tails[launch_region]}] <= launch_place;

    // The region whose turn it is: a beat of it, or the loss of what was in it. None in the cycle behind one that may end a packet, so
    // that one ends at a time.
    logic [INDEX_BITS-1:0] turn;
    logic [INDEX_BITS-1:0] chosen;
    logic   chooses;
    logic   loses;
    logic   ends_next;
    logic [REGIONS_HERE-1:0] wants;
    for (genvar r = 0; r < REGIONS_HERE; r++) begin : turns
        assign wants[r]  = coupled[r] ? tvalid[r] : counts[r] != '0;
        assign tready[r] = chooses && chosen == INDEX_BITS'(r) && coupled[r];
    end
    always_comb begin
        chooses = 1'b0;
        chosen  = '0;
        for (int unsigned i = REGIONS_HERE; i > 0; i--) begin
            automatic int unsigned sum = 32'(turn) + i;
            automatic logic [INDEX_BITS-1:0] at = INDEX_BITS'(sum >= REGIONS_HERE ? sum - REGIONS_HERE : sum);
            if (wants[at] && !ends_next && is_free) begin
                chooses = 1'b1;
                chosen  = at;
            end
        end
    end
    assign loses = !coupled[chosen];

    // The beat, a cycle later.
    logic   has_beat;
    logic   has_loss;
    logic   is_last;
    reply_t said;
    logic [511:0] data;
    cycle_t taken;
    assign ends_next = (has_beat && is_last) || has_loss;
    always_ff @(posedge clock) begin
        has_beat <= chooses && !loses && !reset;
        has_loss <= chooses && loses && !reset;
        if (chooses) turn <= chosen;
        if (reset) turn <= '0;
        is_last <= tlast[chosen];
        said    <= reply[chosen];
        data    <= tdata[chosen];
        taken   <= now;
    end

    // What came of each region's packet so far.
    logic [REGIONS_HERE-1:0] is_inside;
    logic [REGIONS_HERE-1:0] is_ours;
    logic [REGIONS_HERE-1:0][BEAT_BITS:0] beats;
    cycle_t [REGIONS_HERE-1:0] firsts;
    reply_t [REGIONS_HERE-1:0] replies;
    place_t first;
    logic   begins;
    logic   ours;
    logic [BEAT_BITS:0] beat;

    assign first  = held[{turn, heads[turn]}];
    assign begins = !is_inside[turn];
    assign ours   = begins ? counts[turn] != '0 && said.tag == {epochs[turn], 5'(turn), first} : is_ours[turn];
    assign beat   = begins ? '0 : beats[turn];
    assign write       = has_beat && ours && !beat[BEAT_BITS];
    assign write_place = first;
    assign write_beat  = beat[BEAT_BITS-1:0];
    assign write_data  = data;

    assign leaves       = (has_beat && is_last && ours) || has_loss;
    assign leaves_place = first;
    assign is_lost      = has_loss;
    assign leaves_beats = bytes_t'(beat) + bytes_t'(1);
    assign leaves_first = begins ? taken : firsts[turn];
    assign leaves_reply = begins ? said : replies[turn];

    for (genvar r = 0; r < REGIONS_HERE; r++) begin : regions
        assign pops[r] = leaves && turn == INDEX_BITS'(r);
        always_ff @(posedge clock) begin
            was_coupled[r] <= coupled[r];
            if (launches && launch_region == INDEX_BITS'(r)) tails[r] <= tails[r] + 1'b1;
            if (pops[r]) heads[r] <= heads[r] + 1'b1;
            counts[r] <= counts[r] + (HELD_BITS+1)'(launches && launch_region == INDEX_BITS'(r))
                - (HELD_BITS+1)'(pops[r]);
            if (was_coupled[r] && !coupled[r]) epochs[r] <= epochs[r] + 1'b1;
            if (has_beat && turn == INDEX_BITS'(r)) begin
                is_inside[r] <= !is_last;
                is_ours[r]   <= ours;
                // A packet without end stays too long.
                beats[r] <= beat[BEAT_BITS] ? beat : beat + 1'b1;
                if (begins) begin
                    firsts[r]  <= taken;
                    replies[r] <= said;
                end
            end
            if (!coupled[r]) is_ours[r] <= 1'b0;
            if (regions_reset[r]) is_inside[r] <= 1'b0;
            if (reset) begin
                heads[r]     <= '0;
                tails[r]     <= '0;
                counts[r]    <= '0;
                epochs[r]    <= '0;
                is_inside[r] <= 1'b0;
                was_coupled[r] <= 1'b0;
            end
        end
`ifdef SNIC_ASSERTIONS
        always_ff @(posedge clock) if (!reset) begin
            assert (!(pops[r] && counts[r] == '0));
            assert (!counts[r][HELD_BITS] || counts[r] == (HELD_BITS+1)'(2**HELD_BITS));
        end
`endif
    end
endmodule
