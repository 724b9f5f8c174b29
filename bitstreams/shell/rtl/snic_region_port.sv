// One region's side of the crossbar: a packet's beats from the store to the region, and its descriptor beside the first.
//
// Beats are asked for as far as there is room for them here, so a region that takes none holds up nobody but itself. What is
// under way to a region that is taken out is dropped. A packet that was cut off by that ends with a beat of zeros when the region is
// there again, unless it was reset meanwhile; its tag is one of before.

module snic_region_port
    import snic_packet_pkg::*;
(
    input  logic         clock,
    input  logic         reset,
    input  logic         coupled,
    input  logic         region_reset,

    input  logic         start,
    input  place_t       place,
    input  beat_t        last_beat,
    input  descriptor_t  descriptor,
    output logic         is_free,

    // The store: a beat is there two cycles after it was granted.
    output logic         asks,
    output place_t       ask_place,
    output beat_t        ask_beat,
    input  logic         granted,
    input  logic [511:0] data,

    output logic         tvalid,
    input  logic         tready,
    output logic [511:0] tdata,
    output logic [63:0]  tkeep,
    output logic         tlast,
    output descriptor_t  tdescriptor
);
    localparam int unsigned ROOM = 4;

    logic  sends;
    logic  is_torn;
    logic  is_inside;
    beat_t asked;
    beat_t sent;
    beat_t end_beat;
    logic  all_asked;
    logic [2:0] under_way;
    logic [1:0] comes;
    logic [2:0] waiting;
    logic [511:0] first;
    logic  moves;
    logic  is_last;
    logic [5:0] rest;

    assign is_free   = coupled && !sends && !is_torn;
    assign asks      = sends && !all_asked && under_way != 3'(ROOM);
    assign ask_beat  = asked;
    assign is_last   = is_torn || sent == end_beat;
    assign tvalid    = coupled && (is_torn || waiting != '0);
    assign tdata     = is_torn ? '0 : first;
    assign tlast     = is_last;
    assign rest      = 6'(tdescriptor.bytes);
    assign tkeep     = is_torn || !is_last || tdescriptor.bytes >= {5'd0, sent, 6'd0} + 16'd64
        ? '1 : ~(64'hffff_ffff_ffff_ffff << rest);
    assign moves     = tvalid && tready;

    snic_fifo #(.WIDTH(512), .DEPTH(ROOM)) beats (
        .clock    (clock),
        .reset    (reset || !coupled),
        .put      (comes[1]),
        .put_data (data),
        .take     (moves && !is_torn),
        .first    (first),
        .count    (waiting)
    );

    always_ff @(posedge clock) begin
        comes     <= {comes[0], granted};
        under_way <= under_way + 3'(granted) - 3'(moves && !is_torn);
        if (start) begin
            sends       <= 1'b1;
            ask_place   <= place;
            end_beat    <= last_beat;
            tdescriptor <= descriptor;
            asked       <= '0;
            sent        <= '0;
            all_asked   <= 1'b0;
        end
        if (granted) begin
            asked     <= asked + 1'b1;
            all_asked <= asked == end_beat;
        end
        if (moves) begin
            sent      <= sent + 1'b1;
            is_inside <= !is_last;
            if (is_last) begin
                sends   <= 1'b0;
                is_torn <= 1'b0;
            end
        end
        if (!coupled) begin
            sends     <= 1'b0;
            comes     <= '0;
            under_way <= '0;
            is_inside <= 1'b0;
            if (is_inside) is_torn <= 1'b1;
        end
        if (reset || region_reset) begin
            sends     <= 1'b0;
            comes     <= '0;
            under_way <= '0;
            is_inside <= 1'b0;
            is_torn   <= 1'b0;
        end
    end
endmodule
