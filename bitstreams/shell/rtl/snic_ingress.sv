// The port for packets: beats go to the store as they come, and a packet whose last beat is there goes to the look-up.
//
// The bank is that of the cycle of the first beat. A packet for which no place is free, or which is longer than one, is
// taken all the same and ends at its look-up: so a full store keeps nobody waiting. The port waits for the look-up, and for
// beats that come back from regions and are written in the same cycle.

module snic_ingress
    import snic_packet_pkg::*;
(
    input  logic         clock,
    input  logic         reset,
    input  cycle_t       now,

    input  logic         tvalid,
    output logic         tready,
    input  logic [63:0]  tkeep,
    input  logic         tlast,
    // With the first beat: whether a descriptor names the packet's DAG, and its UID.
    input  logic [32:0]  tuser,

    // Whether the tables are clear; the bank for packets that come; whether the store's port is another's.
    input  logic         is_open,
    input  logic         bank,
    input  logic         store_busy,

    output logic         write,
    output place_t       write_place,
    output beat_t        write_beat,
    input  place_t       next,
    input  logic [PLACE_BITS:0] free,
    output logic         take,

    // A packet began, and one is whole.
    output logic         begins,
    output logic         begins_bank,
    output logic         whole,
    output arrival_t     arrival,
    input  logic         has_room
);
    // Beats of the packet that came before this one.
    logic [9:0] count;
    logic       is_inside;
    logic       moves;
    arrival_t   packet;
    arrival_t   held;
    logic [6:0] kept;

    assign tready = is_open && !store_busy && (is_inside || has_room);
    assign moves  = tvalid && tready;
    assign begins = moves && !is_inside;
    assign begins_bank = bank;
    assign take   = begins && free != '0;

    always_comb begin
        kept = 7'd0;
        for (int i = 0; i < 64; i++) kept += 7'(tkeep[i]);
    end

    always_comb begin
        packet = held;
        if (!is_inside) begin
            packet.place     = next;
            packet.has_place = free != '0;
            packet.has_uid   = tuser[32];
            packet.uid       = tuser[31:0];
            packet.bank      = bank;
            packet.arrived   = now;
        end
        packet.fits  = packet.has_place && count < 10'(2**BEAT_BITS);
        packet.bytes = {count, 6'd0} + 16'(kept);
    end

    assign write_place = packet.place;
    assign write_beat  = count[BEAT_BITS-1:0];
    assign write       = moves && packet.fits;

    always_ff @(posedge clock) begin
        whole   <= moves && tlast && !reset;
        arrival <= packet;
        if (moves) held <= packet;
        if (reset) begin
            is_inside <= 1'b0;
            count     <= '0;
        end else if (moves) begin
            is_inside <= !tlast;
            // One that never ends stays too long.
            count <= tlast ? '0 : &count ? count : count + 1'b1;
        end
    end
endmodule
