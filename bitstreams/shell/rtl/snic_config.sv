// The configuration controller: loads a region through ICAPE3, and verifies what the region says of itself.
//
//            ┌──────────────────────────────── fails, or its region is reset ─────────────────────────────┐
//            ▼                                                                                           │
//   reset ─► ABORTING ─► FREE ──a load──► HEADER ─► STREAM ─► FLUSH ─► SETTLE ─► VERIFY ─► LOADED, FREE  │
//            port free      waits here      .bit      words    PRDONE    reset ends  ROM read twice ─────┤
//                           (BUSY)            └────────┴──────────┴───────────────────────┴──────────────┘
//
// ICAPE3 takes at most 200 MHz. Its clock is half of this one, made from it (BUFGCE_DIV), with no known phase: each value
// is held for two cycles, so each is seen once. Bytes go over the pins with their bits mirrored, as SelectMAP has them.
// A load ends well where each stream in it ended (DALIGN low, PRDONE high) with no error (PRERROR low, CFGERR_B high)
// since the first synchronisation, and then the ROM could be read twice with the same, plausible words. Anything else
// leaves the region broken, and the port is aborted, which ends whatever stream it is in.

module snic_config
    import snic_map_pkg::*;
#(
    parameter int unsigned REGIONS_HERE = 16,
    parameter int unsigned BYTES_MAX    = (4 << 20) + 2048,
    localparam int unsigned INDEX_BITS  = $clog2(REGIONS_HERE)
) (
    input  logic        clock,
    input  logic        reset,

    // LOAD_START, and the registers in front of it.
    input  logic        start,
    input  logic        is_possible,    // the region exists and is decoupled
    input  logic [INDEX_BITS-1:0] region,
    input  logic [63:0] buffer,
    input  word_t       bytes,
    // REGION_RESET of this region.
    input  logic        region_reset,
    input  logic [INDEX_BITS-1:0] region_reset_number,
    output word_t       status,
    output word_t       progress,
    output word_t       error,

    // What the region holds from now on, and a word of its next digest that becomes that of its digest.
    output logic        changes,
    output logic [INDEX_BITS-1:0] load_region,
    output logic [1:0]  content,
    output logic        keeps_digest,
    output logic [2:0]  digest_word,

    output logic        verifies,
    output logic        verify_read,
    output logic [3:0]  verify_word,
    input  logic        verify_taken,
    input  logic        verify_valid,
    input  word_t       verify_data,

    output logic        memory_arvalid,
    input  logic        memory_arready,
    output logic [63:0] memory_araddr,
    input  logic        memory_rvalid,
    input  logic [511:0] memory_rdata,

    // ICAPE3.
    output logic        icap_csib,
    output logic        icap_rdwrb,
    output logic [31:0] icap_i,
    input  logic [31:0] icap_o,
    input  logic        icap_avail,
    input  logic        icap_prdone,
    input  logic        icap_prerror
);
    localparam int unsigned WORD_BITS = $clog2(BYTES_MAX / 4 + 1);
    localparam int unsigned BYTE_BITS = WORD_BITS + 2;
    // Cycles between the last word and the look at PRDONE, at most until it is high, and of a region's reset after a load.
    localparam logic [8:0] FLUSH_CYCLES = 9'd64, FLUSH_CYCLES_MAX = 9'd320, SETTLE_CYCLES = 9'd32;
    // Of an abort: a NOOP is written, RDWRB changes while the port is selected, and then there is quiet.
    localparam logic [8:0] ABORT_WRITES = 9'd2, ABORT_READS = 9'd16, ABORT_ENDS = 9'd80;
    localparam word_t NOOP = 32'h2000_0000;
    localparam logic [3:0] ROM_NTS = 4'd8, ROM_LAST = 4'd11;

    typedef enum logic [2:0] {ABORTING, FREE, HEADER, STREAM, FLUSH, SETTLE, VERIFY} state_t;
    typedef logic [BYTE_BITS-1:0] bytes_t;
    state_t state;
    logic   busy;
    logic   has_ended;
    logic   has_failed;
    logic   phase;
    logic [8:0] count;

    logic   accepts;
    logic   is_valid_request;
    logic   is_killed;
    logic   fails;
    logic   succeeds;
    logic [1:0] failure;
    logic [INDEX_BITS-1:0] number;
    bytes_t length;
    bytes_t done;
    logic [63:0] base;

    logic   reader_start;
    logic   reader_quiet;
    logic   has_word;
    logic   advance;
    word_t  here;

    logic [1:0]  lane;
    logic        header_valid;
    logic        header_ends;
    logic        header_refuses;
    logic [31:0] data_bytes;
    bytes_t      behind_header;

    logic [WORD_BITS-1:0] left;
    word_t  carried;
    logic   sends;
    word_t  sent;

    logic   is_synced;
    logic   was_synced;
    logic   has_error;

    logic   awaits;
    logic   is_second;
    logic   ended_nts;
    logic   has_identity;
    logic   is_plausible;
    word_t  seen [16];
    logic   unused;

    // Bytes in the order of the file, the bits of each mirrored.
    function automatic word_t on_pins(input word_t in_memory);
        word_t pins;
        for (int unsigned i = 0; i < 4; i++)
            for (int unsigned b = 0; b < 8; b++) pins[8*(3-i) + b] = in_memory[8*i + 7 - b];
        return pins;
    endfunction

    assign status   = busy ? LOAD_BUSY : !has_ended ? LOAD_IDLE : has_failed ? LOAD_FAILED : LOAD_DONE;
    assign progress = word_t'(done);
    assign verifies = state == VERIFY;
    assign unused   = &{icap_o[31:8], icap_o[5:0]};

    assign is_valid_request = bytes <= word_t'(BYTES_MAX) && buffer[5:0] == 6'd0;
    assign accepts   = start && !busy && is_possible && is_valid_request;
    assign is_killed = busy && region_reset && region_reset_number == load_region;
    assign changes   = accepts || is_killed || fails || succeeds;
    assign content   = accepts ? 2'(REGION_LOADING) : succeeds && !is_killed ? 2'(REGION_LOADED) : 2'(REGION_BROKEN);

    // That of the load under way; of the next one with LOAD_START.
    assign load_region = busy ? number : region;

    assign is_synced = icap_o[6];
    assign has_error = (was_synced || is_synced) && (icap_prerror || !icap_o[7]);

    assign header_valid  = state == HEADER && has_word && done != length;
    assign behind_header = length - done - bytes_t'(1);
    assign sends = state == STREAM && phase && icap_avail && left != '0 && has_word;
    assign sent  = 32'({here, carried} >> {lane == 2'd0 ? 3'd4 : {1'b0, lane}, 3'd0});
    assign advance = sends || (header_valid && (lane == 2'd3 || header_ends));
    assign reader_start = state == FREE && busy && !is_killed;

    always_comb begin
        fails   = 1'b0;
        failure = 2'(LOAD_ERROR_PACKETS);
        case (state)
            HEADER: fails = header_refuses || done == length
                || (header_ends && (data_bytes != word_t'(behind_header) || data_bytes[1:0] != 2'd0));
            STREAM: fails = has_error;
            FLUSH:  fails = has_error || (count >= FLUSH_CYCLES && !was_synced) || count == FLUSH_CYCLES_MAX;
            VERIFY: begin
                fails   = verify_valid && !is_plausible;
                failure = 2'd0;
            end
            default: ;
        endcase
        succeeds = state == VERIFY && verify_valid && is_plausible && is_second && verify_word == ROM_LAST;
    end

    // Registers of the host.
    always_ff @(posedge clock) begin
        if (reset) begin
            busy       <= 1'b0;
            has_ended  <= 1'b0;
            has_failed <= 1'b0;
            error      <= 32'd0;
        end else if (accepts) begin
            busy       <= 1'b1;
            has_ended  <= 1'b0;
            error      <= 32'd0;
            number     <= region;
            base       <= buffer;
            length     <= bytes_t'(bytes);
        end else begin
            if (start) begin
                error <= busy ? LOAD_ERROR_BUSY : is_possible ? LOAD_ERROR_PACKETS : LOAD_ERROR_REGION;
                if (!busy) {has_ended, has_failed} <= 2'b11;
            end
            if (busy && (is_killed || fails || succeeds)) begin
                busy       <= 1'b0;
                has_ended  <= 1'b1;
                has_failed <= is_killed || fails;
                error      <= is_killed ? LOAD_ERROR_PACKETS : !fails ? 32'd0
                    : failure == 2'd0 ? LOAD_ERROR_IDENTITY : LOAD_ERROR_PACKETS;
            end
        end
    end

    always_ff @(posedge clock) begin
        phase <= !phase;
        if (reset) begin
            state <= ABORTING;
            phase <= 1'b0;
            count <= 9'd0;
        end else if (busy && (is_killed || fails)) begin
            // Nothing of the port is known after a part of a stream; a load that still waits leaves it as it is.
            if (state != FREE && state != ABORTING) begin
                state <= state == VERIFY ? FREE : ABORTING;
                count <= 9'd0;
            end
        end else case (state)
            // Even counts begin where the pins may change.
            ABORTING: if (count != 9'd0 || (icap_avail && phase)) begin
                count <= count + 9'd1;
                if (count == ABORT_ENDS) begin
                    count <= 9'd0;
                    if (!is_synced && reader_quiet) state <= FREE;
                end
            end
            FREE: if (reader_start) state <= HEADER;
            HEADER: if (header_ends) state <= STREAM;
            STREAM: if (phase && left == '0) begin
                state <= FLUSH;
                count <= 9'd0;
            end
            FLUSH: begin
                count <= count + 9'd1;
                if (count >= FLUSH_CYCLES && !is_synced && icap_prdone) begin
                    state <= SETTLE;
                    count <= 9'd0;
                end
            end
            SETTLE: begin
                count <= count + 9'd1;
                if (count == SETTLE_CYCLES) state <= VERIFY;
            end
            VERIFY: if (succeeds) state <= FREE;
            default: state <= ABORTING;
        endcase
    end

    // The stream: bytes of the header, then words.
    always_ff @(posedge clock) begin
        if (reset || accepts) done <= '0;
        else if (header_valid) done <= done + bytes_t'(1);
        else if (sends) done <= done + bytes_t'(4);
        if (state == FREE) begin
            lane       <= 2'd0;
            was_synced <= 1'b0;
        end else begin
            if (is_synced) was_synced <= 1'b1;
            if (header_valid) begin
                lane <= lane + 2'd1;
                left <= WORD_BITS'(data_bytes >> 2);
            end
            if (sends) left <= left - 1'b1;
        end
        if (advance) carried <= here;
    end

    // The pins, held for two cycles each.
    always_ff @(posedge clock) begin
        if (reset) begin
            icap_csib  <= 1'b1;
            icap_rdwrb <= 1'b0;
        end else if (phase) begin
            icap_csib  <= !(sends || (state == ABORTING && count < ABORT_READS && (count != 9'd0 || icap_avail)));
            icap_rdwrb <= state == ABORTING && count >= ABORT_WRITES && count < ABORT_READS + 9'd2;
            icap_i     <= on_pins(state == ABORTING ? {NOOP[7:0], NOOP[15:8], NOOP[23:16], NOOP[31:24]} : sent);
        end
    end

    // The ROM, word by word: codes of NTs without a gap, an identity, and all of it the same a second time.
    assign verify_read  = state == VERIFY && !awaits;
    assign keeps_digest = verify_valid && !is_second && verify_word < ROM_NTS;
    assign digest_word  = verify_word[2:0];
    always_comb begin
        if (is_second) is_plausible = verify_data == seen[verify_word];
        else if (verify_word == 4'd0) is_plausible = verify_data != 32'd0;
        else if (verify_word < ROM_NTS) is_plausible = verify_data == 32'd0 || !ended_nts;
        else is_plausible = verify_word != ROM_LAST || has_identity || verify_data != 32'd0;
    end

    always_ff @(posedge clock) begin
        if (state != VERIFY) begin
            awaits       <= 1'b0;
            is_second    <= 1'b0;
            verify_word  <= 4'd0;
            ended_nts    <= 1'b0;
            has_identity <= 1'b0;
        end else begin
            awaits <= (awaits || verify_taken) && !verify_valid;
            if (verify_valid) begin
                verify_word <= verify_word == ROM_LAST ? 4'd0 : verify_word + 4'd1;
                if (verify_word == ROM_LAST) is_second <= 1'b1;
                if (verify_data == 32'd0) ended_nts <= 1'b1;
                if (verify_word >= ROM_NTS && verify_data != 32'd0) has_identity <= 1'b1;
            end
        end
        if (verify_valid && !is_second) seen[verify_word] <= verify_data;
    end

    snic_bit_header header (
        .clock      (clock),
        .restart    (state == FREE),
        .valid      (header_valid),
        .data       (here[8*lane +: 8]),
        .ends       (header_ends),
        .refuses    (header_refuses),
        .data_bytes (data_bytes)
    );

    snic_load_reader #(.WORD_BITS(WORD_BITS)) reader (
        .clock          (clock),
        .reset          (reset),
        .start          (reader_start),
        .buffer         (base),
        .words          (WORD_BITS'((length + bytes_t'(3)) >> 2)),
        .stop           (state == ABORTING || state == FREE),
        .is_quiet       (reader_quiet),
        .valid          (has_word),
        .word           (here),
        .advance        (advance),
        .memory_arvalid (memory_arvalid),
        .memory_arready (memory_arready),
        .memory_araddr  (memory_araddr),
        .memory_rvalid  (memory_rvalid),
        .memory_rdata   (memory_rdata)
    );
endmodule
