// The packet store: a place of 32 beats for each packet, and the list of free places.
//
// One beat is written and one read in a cycle. What is read is there two cycles later. After reset the list is filled, a place a
// cycle; until then no place is free.

module snic_store
    import snic_packet_pkg::*;
(
    input  logic         clock,
    input  logic         reset,

    input  logic         write,
    input  place_t       write_place,
    input  beat_t        write_beat,
    input  logic [511:0] write_data,
    input  place_t       read_place,
    input  beat_t        read_beat,
    output logic [511:0] read_data,

    // Places: the one that is taken next, and one that is given back.
    input  logic         take,
    output place_t       next,
    output logic [PLACE_BITS:0] free,
    input  logic         give,
    input  place_t       given
);
    logic [511:0] memory [PLACES << BEAT_BITS];
    logic [511:0] word;
    always_ff @(posedge clock) begin
        if (write) memory[{write_place, write_beat}] <= write_data;
        word      <= memory[{read_place, read_beat}];
        read_data <= word;
    end

    logic   fills;
    place_t fill;
    always_ff @(posedge clock) begin
        if (reset) begin
            fills <= 1'b1;
            fill  <= '0;
        end else if (fills) begin
            fill <= fill + 1'b1;
            if (&fill) fills <= 1'b0;
        end
    end
    // Nothing is given back before something was taken, and nothing is taken before all places are in the list.
    logic [PLACE_BITS:0] listed;
    assign free = fills ? '0 : listed;
    snic_fifo #(.WIDTH(PLACE_BITS), .DEPTH(PLACES)) list (
        .clock    (clock),
        .reset    (reset),
        .put      (fills || give),
        .put_data (fills ? fill : given),
        .take     (take),
        .first    (next),
        .count    (listed)
    );
endmodule
