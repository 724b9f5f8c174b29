// The bytes of a bitstream from the card's memory, in order, as words: beats are asked for ahead, up to four at once.

module snic_load_reader #(
    parameter int unsigned WORD_BITS = 21   // of a number of words
) (
    input  logic        clock,
    input  logic        reset,

    // Begins with the first word of `buffer`; not while beats are awaited.
    input  logic        start,
    input  logic [63:0] buffer,
    input  logic [WORD_BITS-1:0] words,
    // No more beats are asked for.
    input  logic        stop,
    output logic        is_quiet,

    output logic        valid,
    output logic [31:0] word,
    input  logic        advance,

    output logic        memory_arvalid,
    input  logic        memory_arready,
    output logic [63:0] memory_araddr,
    input  logic        memory_rvalid,
    input  logic [511:0] memory_rdata
);
    localparam int unsigned DEPTH = 4;
    localparam int unsigned BEAT_BITS = WORD_BITS - 3;

    logic [WORD_BITS-1:0] at;
    logic [WORD_BITS-1:0] last;
    logic [BEAT_BITS-1:0] beats;
    logic [BEAT_BITS-1:0] next;
    // Beats that came and those that were used up, and those on their way.
    logic [2:0]   arrived;
    logic [2:0]   taken;
    logic [2:0]   awaited;
    logic         runs;
    logic         may_ask;
    logic         asks;
    logic         leaves_beat;
    logic [63:0]  base;
    logic [511:0] incoming [DEPTH];
    logic [511:0] beat_here;

    assign may_ask     = !memory_arvalid || memory_arready;
    assign asks        = may_ask && runs && !stop && next != beats
        && awaited + (arrived - taken) < 3'(DEPTH);
    assign is_quiet    = awaited == 3'd0;
    assign valid       = runs && arrived != taken && at != last;
    assign beat_here   = incoming[taken[1:0]];
    assign word        = beat_here[32*at[3:0] +: 32];
    assign leaves_beat = valid && advance && &at[3:0];

    always_ff @(posedge clock) begin
        if (reset) begin
            runs           <= 1'b0;
            awaited        <= 3'd0;
            memory_arvalid <= 1'b0;
        end else begin
            runs    <= start || (runs && !stop);
            awaited <= awaited + 3'(asks) - 3'(memory_rvalid);
            if (may_ask) memory_arvalid <= asks;
        end
        if (start) begin
            base    <= buffer;
            last    <= words;
            beats   <= BEAT_BITS'(({1'b0, words} + (WORD_BITS + 1)'(15)) >> 4);
            at      <= '0;
            next    <= '0;
            arrived <= 3'd0;
            taken   <= 3'd0;
        end else begin
            if (asks) begin
                memory_araddr <= base + 64'({next, 6'd0});
                next          <= next + 1'b1;
            end
            if (memory_rvalid) arrived <= arrived + 3'd1;
            if (leaves_beat) taken <= taken + 3'd1;
            if (valid && advance) at <= at + 1'b1;
        end
        if (memory_rvalid) incoming[arrived[1:0]] <= memory_rdata;
    end
endmodule
