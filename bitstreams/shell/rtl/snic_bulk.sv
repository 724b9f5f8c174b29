// Bulk transfers: records in the card's memory, moved to the shadow bank or filled from registers at a word a cycle.
//
//   memory ─► beats (FIFO of 16) ─► words: address, count, words … ─┬─► writes to the shadow bank
//                                                                   └─► reads ─► same words, filled ─► beats ─► memory
//
// A record is checked before the first of its words moves. One that is cut, or that names what it may not touch, ends the
// transfer with BULK_REFUSED once the memory has answered all that was asked of it.
//
// The memory is AXI4 with single beats of 512 bits, up to 16 of them under way, answered in order.

module snic_bulk
    import snic_map_pkg::*;
#(
    parameter int unsigned ANSWER_CYCLES = 5   // of a read on the bus
) (
    input  logic        clock,
    input  logic        reset,

    input  logic        start,
    input  logic        to_host,
    input  logic [63:0] buffer,
    input  word_t       bytes,
    output word_t       status,

    // The bus, in cycles in which it is free.
    input  logic        bus_free,
    output logic        bus_read,
    output logic        bus_write,
    output address_t    bus_address,
    output word_t       bus_data,
    input  logic        answer_known,
    input  word_t       answer_data,

    output logic         memory_awvalid,
    input  logic         memory_awready,
    output logic [63:0]  memory_awaddr,
    output logic         memory_wvalid,
    input  logic         memory_wready,
    output logic [511:0] memory_wdata,
    output logic [63:0]  memory_wstrb,
    input  logic         memory_bvalid,
    output logic         memory_bready,
    output logic         memory_arvalid,
    input  logic         memory_arready,
    output logic [63:0]  memory_araddr,
    input  logic         memory_rvalid,
    input  logic [511:0] memory_rdata
);
    localparam int unsigned DEPTH = 16;
    localparam int unsigned DEPTH_BITS = 4;
    // Words and beats of the longest transfer.
    localparam int unsigned WORD_BITS = $clog2(32'(BULK_BYTES_MAX) / 4) + 1;
    localparam int unsigned BEAT_BITS = WORD_BITS - 4;

    localparam address_t SHADOW_END = SHADOW_BANK + BANK_BYTES;

    typedef logic [WORD_BITS-1:0] words_t;
    typedef logic [BEAT_BITS-1:0] beats_t;
    // Of a queue: one bit more than its places.
    typedef logic [DEPTH_BITS:0]  depth_t;

    typedef enum logic [1:0] {IDLE, RUN, FLUSH} state_t;
    typedef enum logic [1:0] {ADDRESS, COUNT, BODY} part_t;
    state_t state;
    part_t  part;
    logic   is_to_host;
    logic   failed;
    logic   is_valid_request;
    words_t words;
    beats_t beats;
    logic [63:0] base;

    // Beats from memory: the next to ask for, arrived ones and those taken apart, counted from the transfer's first; and those
    // that are on their way.
    beats_t next;
    depth_t arrived;
    depth_t taken;
    depth_t awaited;
    logic   may_ask;
    logic   asks;
    logic [511:0] incoming [DEPTH];

    // The word that the records are read at.
    words_t at;
    word_t  here;
    logic [511:0] beat_here;
    word_t  first;
    address_t target;
    words_t left;
    logic   has_word;
    logic   advances;
    logic   is_last;
    logic   leaves_beat;
    logic   moves;
    logic   refuses;
    logic   ends_record_badly;

    // Words on their way back to memory: as long as an answer of the bus takes.
    logic [ANSWER_CYCLES-1:0] pipe_valid;
    logic [ANSWER_CYCLES-1:0] pipe_body;
    word_t  pipe_word [ANSWER_CYCLES];
    logic   comes_out;
    word_t  word_out;
    logic   meets_nothing;

    // Beats to memory.
    logic [15:0][31:0] assembled;
    logic [15:0][31:0] assembled_next;
    logic [15:0][3:0]  filled;
    logic [3:0]   fill;
    words_t       out_left;
    logic         ends_beat;
    logic [511:0] outgoing [DEPTH];
    logic [63:0]  strobes [DEPTH];
    depth_t       put;
    depth_t       sent;
    beats_t       sent_beats;
    depth_t       unanswered;
    logic         address_taken;
    logic         data_taken;
    logic         sends;
    logic         is_done;

    assign is_valid_request = buffer[5:0] == 6'd0 && bytes[1:0] == 2'd0 && bytes <= BULK_BYTES_MAX;

    // Once asked, a beat is asked for until the memory takes it.
    assign may_ask = !memory_arvalid || memory_arready;
    assign asks    = may_ask && state == RUN && !failed && next != beats
        && awaited + (arrived - taken) < depth_t'(DEPTH);

    assign beat_here = incoming[taken[DEPTH_BITS-1:0]];
    assign here      = beat_here[32*at[3:0] +: 32];
    assign has_word  = state == RUN && !failed && at != words && arrived != taken
        && !(is_to_host && put - sent >= depth_t'(DEPTH - 2));
    assign is_last   = at == words - words_t'(1);

    // A record's head is judged when its count is there: what is left of the buffer, and what the words may touch.
    function automatic logic is_allowed(
        input logic host, input word_t first_byte, input word_t count, input words_t rest
    );
        logic [34:0] end_byte;
        end_byte = 35'(first_byte) + {1'b0, count, 2'd0};
        if (count > word_t'(rest)) return 1'b0;
        if (count == 32'd0) return 1'b1;
        if (first_byte[1:0] != 2'd0) return 1'b0;
        if (host) return end_byte <= 35'(1) << ADDRESS_BITS;
        return first_byte >= word_t'(SHADOW_BANK)
            && end_byte <= 35'(SHADOW_END);
    endfunction

    assign leaves_beat = advances && (at[3:0] == 4'd15 || is_last);
    assign moves    = has_word && part == BODY && bus_free;
    assign advances = has_word && (part != BODY || bus_free);
    assign refuses  = has_word && part == COUNT
        && !is_allowed(is_to_host, first, here, words - at - words_t'(1));
    assign ends_record_badly = has_word && part == ADDRESS && is_last;

    assign bus_read    = moves && is_to_host;
    assign bus_write   = moves && !is_to_host;
    assign bus_address = target;
    assign bus_data    = here;

    assign comes_out     = pipe_valid[ANSWER_CYCLES-1];
    assign word_out      = pipe_body[ANSWER_CYCLES-1] ? answer_data : pipe_word[ANSWER_CYCLES-1];
    assign meets_nothing = comes_out && pipe_body[ANSWER_CYCLES-1] && !answer_known;
    assign ends_beat     = comes_out && (fill == 4'd15 || out_left == words_t'(1));

    assign memory_awvalid = state != IDLE && put != sent && !address_taken && unanswered != depth_t'(DEPTH);
    assign memory_wvalid  = state != IDLE && put != sent && !data_taken && unanswered != depth_t'(DEPTH);
    assign memory_awaddr  = base + 64'({sent_beats, 6'd0});
    assign memory_wdata   = outgoing[sent[DEPTH_BITS-1:0]];
    assign memory_wstrb   = strobes[sent[DEPTH_BITS-1:0]];
    assign memory_bready  = 1'b1;
    assign sends = state != IDLE && put != sent && unanswered != depth_t'(DEPTH)
        && (address_taken || memory_awready) && (data_taken || memory_wready);

    assign is_done = (at == words && pipe_valid == '0) || failed;

    always_ff @(posedge clock) begin
        if (reset) begin
            state  <= IDLE;
            status <= BULK_IDLE;
        end else case (state)
            IDLE: if (start) begin
                state  <= is_valid_request ? RUN : IDLE;
                status <= is_valid_request ? BULK_BUSY : BULK_REFUSED;
            end
            RUN: if (is_done) state <= FLUSH;
            FLUSH: if (awaited == '0 && pipe_valid == '0 && put == sent && unanswered == '0) begin
                state  <= IDLE;
                status <= failed ? BULK_REFUSED : BULK_DONE;
            end
            default: state <= IDLE;
        endcase
    end

    // What was asked of the memory, and what came.
    always_ff @(posedge clock) begin
        if (state == IDLE) begin
            next    <= '0;
            arrived <= '0;
            awaited <= '0;
            memory_arvalid <= 1'b0;
        end else begin
            if (may_ask) memory_arvalid <= asks;
            if (asks) begin
                memory_araddr <= base + 64'({next, 6'd0});
                next          <= next + 1'b1;
            end
            if (memory_rvalid) begin
                incoming[arrived[DEPTH_BITS-1:0]] <= memory_rdata;
                arrived <= arrived + 1'b1;
            end
            awaited <= awaited + depth_t'(asks) - depth_t'(memory_rvalid);
        end
    end

    // Records.
    always_ff @(posedge clock) begin
        if (state == IDLE) begin
            base       <= buffer;
            words      <= words_t'(bytes >> 2);
            beats      <= beats_t'((bytes + 32'd63) >> 6);
            is_to_host <= to_host;
            part       <= ADDRESS;
            at         <= '0;
            taken      <= '0;
            failed     <= 1'b0;
        end else begin
            if (refuses || ends_record_badly || meets_nothing) failed <= 1'b1;
            if (advances) begin
                at <= at + 1'b1;
                if (leaves_beat) taken <= taken + 1'b1;
                case (part)
                    ADDRESS: begin
                        first <= here;
                        part  <= COUNT;
                    end
                    COUNT: begin
                        target <= address_t'(first);
                        left   <= words_t'(here);
                        part   <= here == 32'd0 ? ADDRESS : BODY;
                    end
                    default: begin
                        target <= target + 22'd4;
                        left   <= left - 1'b1;
                        if (left == words_t'(1)) part <= ADDRESS;
                    end
                endcase
            end
        end
    end

    // Back to memory.
    always_ff @(posedge clock) begin
        pipe_valid <= ANSWER_CYCLES'({pipe_valid, advances && is_to_host});
        pipe_body  <= ANSWER_CYCLES'({pipe_body, part == BODY});
        pipe_word[0] <= here;
        for (int unsigned i = 1; i < ANSWER_CYCLES; i++) pipe_word[i] <= pipe_word[i-1];
        if (reset) pipe_valid <= '0;
    end

    always_comb begin
        assembled_next = assembled;
        assembled_next[fill] = word_out;
        for (int unsigned i = 0; i < 16; i++) filled[i] = {4{4'(i) <= fill}};
    end

    always_ff @(posedge clock) begin
        if (state == IDLE) begin
            fill          <= '0;
            out_left      <= words_t'(bytes >> 2);
            put           <= '0;
            sent          <= '0;
            sent_beats    <= '0;
            unanswered    <= '0;
            address_taken <= 1'b0;
            data_taken    <= 1'b0;
        end else begin
            if (comes_out) begin
                assembled <= assembled_next;
                fill      <= fill + 1'b1;
                out_left  <= out_left - 1'b1;
            end
            if (ends_beat && !failed && !meets_nothing) begin
                outgoing[put[DEPTH_BITS-1:0]] <= assembled_next;
                strobes[put[DEPTH_BITS-1:0]]  <= filled;
                put <= put + 1'b1;
            end
            address_taken <= !sends && (address_taken || (memory_awvalid && memory_awready));
            data_taken    <= !sends && (data_taken || (memory_wvalid && memory_wready));
            if (sends) begin
                sent       <= sent + 1'b1;
                sent_beats <= sent_beats + 1'b1;
            end
            unanswered <= unanswered + depth_t'(sends) - depth_t'(memory_bvalid);
        end
    end
endmodule
