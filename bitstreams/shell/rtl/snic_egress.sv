// The port where packets go out, in the order in which they left their last regions.
//
// A packet's first beat is at the port in the cycle in which it is due, where nobody is before it.

module snic_egress
    import snic_packet_pkg::*;
(
    input  logic         clock,
    input  logic         reset,
    input  cycle_t       now,

    input  logic         put,
    input  place_t       put_place,
    input  cycle_t       put_due,

    // The packet of a place, a cycle later.
    output place_t       packet_place,
    input  packet_t      packet,

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

    // A packet went out, for counters; its place is free.
    output logic         went,
    output logic [31:0]  went_uid,
    output bytes_t       went_bytes,
    output logic         ends,
    output ended_t       ended,
    input  logic         ends_taken
);
    localparam int unsigned ROOM = 8;
    // From a beat that is asked for to the port.
    localparam int unsigned READ_CYCLES = 3;

    typedef enum logic [2:0] {IDLE, READ, LOOK, SEND, END} state_t;
    state_t state;
    place_t place;
    cycle_t due;
    beat_t  asked;
    logic [PLACE_BITS:0] waiting;
    logic   take;
    place_t next_place;
    cycle_t next_due;
    bytes_t bytes;
    bytes_t last_beat;
    logic   is_last;
    logic [5:0] rest;
    logic [3:0] under_way;
    logic [3:0] ready;
    logic [1:0] comes;
    // The end of the packet with each beat that comes: whether it is, and its bytes in that beat, zero for all.
    logic [1:0][6:0] ends_with;
    logic   moves;
    logic   last_here;
    logic [5:0] rest_here;

    snic_fifo #(.WIDTH(PLACE_BITS + 32), .DEPTH(PLACES)) queue (
        .clock    (clock),
        .reset    (reset),
        .put      (put),
        .put_data ({put_place, put_due}),
        .take     (take),
        .first    ({next_place, next_due}),
        .count    (waiting)
    );
    assign take         = state == IDLE && waiting != '0;
    assign packet_place = place;
    assign last_beat    = beats_of(bytes) - bytes_t'(1);
    assign is_last      = asked == last_beat[BEAT_BITS-1:0];
    assign rest         = bytes[5:0];
    assign asks         = state == SEND && under_way != 4'(ROOM) && is_due(now + cycle_t'(READ_CYCLES), due);
    assign ask_place    = place;
    assign ask_beat     = asked;
    assign ends         = state == END;

    snic_fifo #(.WIDTH(512 + 7), .DEPTH(ROOM)) beats (
        .clock    (clock),
        .reset    (reset),
        .put      (comes[1]),
        .put_data ({ends_with[1], data}),
        .take     (moves),
        .first    ({last_here, rest_here, tdata}),
        .count    (ready)
    );
    assign tvalid = ready != '0;
    assign tlast  = last_here;
    assign tkeep  = rest_here == '0 ? '1 : ~(64'hffff_ffff_ffff_ffff << rest_here);
    assign moves  = tvalid && tready;

    always_ff @(posedge clock) begin
        went      <= 1'b0;
        comes     <= {comes[0], granted};
        ends_with <= {ends_with[0], is_last, is_last ? rest : 6'd0};
        under_way <= under_way + 4'(granted) - 4'(moves);
        case (state)
            IDLE: if (take) begin
                place <= next_place;
                due   <= next_due;
                state <= READ;
            end
            READ: state <= LOOK;
            LOOK: begin
                bytes <= packet.bytes;
                went_uid   <= packet.uid;
                went_bytes <= packet.bytes;
                ended <= '{place: place, has_place: 1'b1, bank: packet.bank, is_dropped: 1'b0, cause: '0};
                asked <= '0;
                state <= SEND;
            end
            SEND: if (granted) begin
                asked <= asked + 1'b1;
                if (asked == '0) went <= 1'b1;
                if (is_last) state <= END;
            end
            default: if (ends_taken) state <= IDLE;
        endcase
        if (reset) begin
            state     <= IDLE;
            went      <= 1'b0;
            comes     <= '0;
            under_way <= '0;
        end
    end
    logic unused;
    assign unused = &{packet, last_beat};
endmodule
