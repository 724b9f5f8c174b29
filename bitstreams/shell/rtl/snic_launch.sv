// The scheduler: packets that wait for a region, and when one enters it.
//
// A queue for each region, in order: lists through one memory. Of the regions whose port is free one after the other is
// looked at. The first of its queue enters when its pass of the scheduler is over and each slot that it uses has a credit; it
// is dropped where the region is not coupled. Nobody waits for a packet of another region.

module snic_launch
    import snic_map_pkg::DROP_REGION_UNAVAILABLE;
    import snic_packet_pkg::*;
#(
    parameter int unsigned REGIONS_HERE = 16,
    localparam int unsigned INDEX_BITS = $clog2(REGIONS_HERE)
) (
    input  logic         clock,
    input  logic         reset,
    input  cycle_t       now,

    input  logic         put,
    input  place_t       put_place,
    input  packet_t      put_packet,

    // The packet of a place, a cycle later.
    output place_t       packet_place,
    input  packet_t      packet,

    input  logic [REGIONS_HERE-1:0] coupled,
    input  logic [REGIONS_HERE-1:0] ports_free,
    output logic         launches,
    output logic [INDEX_BITS-1:0] launch_region,
    output place_t       launch_place,
    output packet_t      launch_packet,

    // A packet has left a region.
    input  logic         leaves,
    input  packet_t      leaving,

    // Packets of each bank that wait for a region or are in it; of both.
    output logic [REGIONS_HERE-1:0][1:0] has_packets,
    output logic [REGIONS_HERE-1:0][PLACE_BITS:0] loads,

    output logic         ends,
    output ended_t       ended,
    input  logic         ends_taken
);
    // Cycles between two looks at a queue: who is due within them is waited for.
    localparam int unsigned NEAR_CYCLES = 4;
    logic unused;
    assign unused = &{put_packet, leaving};

    typedef enum logic [1:0] {PICK, READ, CHECK, END} state_t;
    state_t state;
    logic [INDEX_BITS-1:0] region;
    logic [INDEX_BITS-1:0] picked;
    logic   picks;
    logic   drops;

    place_t links [PLACES];
    place_t [REGIONS_HERE-1:0] heads;
    place_t [REGIONS_HERE-1:0] tails;
    logic [REGIONS_HERE-1:0][PLACE_BITS:0] waiting;
    logic [REGIONS_HERE-1:0][SLOTS-1:0][6:0] held;
    logic [REGIONS_HERE-1:0][1:0][PLACE_BITS:0] of_bank;
    logic [REGIONS_HERE-1:0] puts_to;
    logic [REGIONS_HERE-1:0] takes_from;
    logic [REGIONS_HERE-1:0] leaves_from;
    place_t after;
    slots_t lacks;
    logic   is_near;

    // The next region behind the last one whose queue can be looked at.
    always_comb begin
        picks  = 1'b0;
        picked = '0;
        for (int unsigned i = REGIONS_HERE; i > 0; i--) begin
            automatic int unsigned sum = 32'(region) + i;
            automatic logic [INDEX_BITS-1:0] at = INDEX_BITS'(sum >= REGIONS_HERE ? sum - REGIONS_HERE : sum);
            if (waiting[at] != '0 && (ports_free[at] || !coupled[at])) begin
                picks  = 1'b1;
                picked = at;
            end
        end
    end

    assign packet_place = heads[region];
    assign after        = links[heads[region]];
    always_comb begin
        for (int i = 0; i < int'(SLOTS); i++)
            lacks[i] = packet.used[i] && held[region][i] >= packet.credits[i];
    end
    assign is_near  = is_due(now + cycle_t'(NEAR_CYCLES), packet.due);
    assign drops    = state == CHECK && !coupled[region];
    assign launches = state == CHECK && coupled[region] && ports_free[region] && is_due(now, packet.due) && lacks == '0;
    assign launch_region = region;
    assign launch_place  = heads[region];
    assign launch_packet = packet;

    assign ends = state == END;
    always_ff @(posedge clock) begin
        case (state)
            PICK: if (picks) begin
                region <= picked;
                state  <= READ;
            end
            READ: state <= CHECK;
            CHECK: if (drops) begin
                ended <= '{place: heads[region], has_place: 1'b1, bank: packet.bank, is_dropped: 1'b1,
                    cause: 4'(DROP_REGION_UNAVAILABLE)};
                state <= END;
            end else if (launches || !is_near || is_due(now, packet.due)) state <= PICK;
            default: if (ends_taken) state <= PICK;
        endcase
        if (reset) begin
            state  <= PICK;
            region <= '0;
        end
    end

    // The place that was the last of a queue which is empty now may be another queue's.
    logic is_linked;
    logic [INDEX_BITS-1:0] put_region;
    assign put_region = put_packet.region[INDEX_BITS-1:0];
    assign is_linked  = waiting[put_region] != (PLACE_BITS+1)'(takes_from[put_region]);
    always_ff @(posedge clock) if (put && is_linked) links[tails[put_region]] <= put_place;

    for (genvar r = 0; r < REGIONS_HERE; r++) begin : regions
        assign puts_to[r]     = put && put_packet.region == region_t'(r);
        assign takes_from[r]  = (launches || drops) && region == INDEX_BITS'(r);
        assign leaves_from[r] = leaves && leaving.region == region_t'(r);
        assign has_packets[r] = {of_bank[r][1] != '0, of_bank[r][0] != '0};
        assign loads[r]       = of_bank[r][0] + of_bank[r][1];
        always_ff @(posedge clock) begin
            if (puts_to[r]) tails[r] <= put_place;
            if (puts_to[r] && waiting[r] == (PLACE_BITS+1)'(takes_from[r])) heads[r] <= put_place;
            else if (takes_from[r]) heads[r] <= after;
            waiting[r] <= waiting[r] + (PLACE_BITS+1)'(puts_to[r]) - (PLACE_BITS+1)'(takes_from[r]);
            for (int b = 0; b < 2; b++)
                of_bank[r][b] <= of_bank[r][b] + (PLACE_BITS+1)'(puts_to[r] && put_packet.bank == 1'(b))
                    - (PLACE_BITS+1)'(takes_from[r] && drops && packet.bank == 1'(b))
                    - (PLACE_BITS+1)'(leaves_from[r] && leaving.bank == 1'(b));
            for (int i = 0; i < int'(SLOTS); i++)
                held[r][i] <= held[r][i] + 7'(takes_from[r] && launches && packet.used[i])
                    - 7'(leaves_from[r] && leaving.used[i]);
            if (reset) begin
                waiting[r] <= '0;
                of_bank[r] <= '0;
                held[r]    <= '0;
            end
        end
`ifdef SNIC_ASSERTIONS
        always_ff @(posedge clock) if (!reset) begin
            assert (!(takes_from[r] && waiting[r] == '0));
            assert (!(leaves_from[r] && loads[r] == '0));
        end
`endif
    end
endmodule
