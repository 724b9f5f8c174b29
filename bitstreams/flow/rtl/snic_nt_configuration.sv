// Configurations of NTs by their windows: what `snic_tables::registers` says from WINDOW_SELECT and WINDOW on.

`default_nettype none

// The window of the register map. It shows the registers of one NT: of the one that WINDOW_SELECT names. NT i of `nts` is slot
// i % SLOTS of region i / SLOTS. Where none is present, writes go nowhere and reads are zero.
module snic_nt_windows #(
    parameter int REGIONS = 1,
    parameter int SLOTS = 8
) (
    input wire logic                       clock,
    input wire logic                       reset,
    input wire logic [31:0]                select,    // WINDOW_SELECT
    input wire logic [(REGIONS*SLOTS)-1:0] present,   // an NT is there, and its region is coupled
    snic_nt_control.slave                  window,
    snic_nt_control.master                 nts [REGIONS*SLOTS]
);
    localparam int NTS = REGIONS * SLOTS;
    localparam int BITS = $clog2(NTS + 1);

    // An access goes to the NT that was selected when it began, whatever is selected before it ends. NTS is nobody.
    wire logic [31:0] shown = 32'(select[15:8]) * SLOTS + 32'(select[7:0]);
    wire logic exists = select[31:16] == 0 && 32'(select[7:0]) < SLOTS && shown < NTS;
    logic [BITS-1:0] selected;
    always_comb begin
        selected = BITS'(NTS);
        for (int i = 0; i < NTS; i++) if (exists && shown == i && present[i]) selected = BITS'(i);
    end

    logic writes, write_taken, reads, read_taken;
    logic [BITS-1:0] writer, reader;
    always_ff @(posedge clock) begin
        if (reset) begin
            {writes, write_taken, reads, read_taken} <= '0;
        end else begin
            if (!writes) begin
                {writes, write_taken, writer} <= {window.aw_valid && window.w_valid, 1'b0, selected};
            end else if (window.b_valid && window.b_ready) begin
                writes <= 1'b0;
            end else if (window.aw_ready) begin
                write_taken <= 1'b1;
            end
            if (!reads) begin
                {reads, read_taken, reader} <= {window.ar_valid, 1'b0, selected};
            end else if (window.r_valid && window.r_ready) begin
                reads <= 1'b0;
            end else if (window.ar_ready) begin
                read_taken <= 1'b1;
            end
        end
    end

    // Answers of all NTs, and one of nobody.
    logic [NTS:0] aw_ready, b_valid, ar_ready, r_valid;
    logic [1:0] b_resp[NTS+1], r_resp[NTS+1];
    logic [31:0] r_data[NTS+1];
    assign {aw_ready[NTS], b_valid[NTS]} = {!write_taken, write_taken};
    assign {ar_ready[NTS], r_valid[NTS]} = {!read_taken, read_taken};
    assign b_resp[NTS] = 2'b00;
    assign r_resp[NTS] = 2'b00;
    assign r_data[NTS] = 32'd0;
    for (genvar i = 0; i < NTS; i++) begin : gen_nts
        wire logic is_writer = writes && writer == BITS'(i);
        wire logic is_reader = reads && reader == BITS'(i);
        assign nts[i].aw_valid = is_writer && !write_taken;
        assign nts[i].w_valid = is_writer && !write_taken;
        assign nts[i].aw_addr = window.aw_addr;
        assign nts[i].w_data = window.w_data;
        assign nts[i].w_strb = window.w_strb;
        assign nts[i].b_ready = is_writer && window.b_ready;
        assign nts[i].ar_valid = is_reader && !read_taken;
        assign nts[i].ar_addr = window.ar_addr;
        assign nts[i].r_ready = is_reader && window.r_ready;
        assign aw_ready[i] = nts[i].aw_ready && nts[i].w_ready;
        assign b_valid[i] = nts[i].b_valid;
        assign b_resp[i] = nts[i].b_resp;
        assign ar_ready[i] = nts[i].ar_ready;
        assign r_valid[i] = nts[i].r_valid;
        assign r_resp[i] = nts[i].r_resp;
        assign r_data[i] = nts[i].r_data;
    end
    assign window.aw_ready = writes && !write_taken && aw_ready[writer];
    assign window.w_ready = window.aw_ready;
    assign window.b_valid = writes && b_valid[writer];
    assign window.b_resp = b_resp[writer];
    assign window.ar_ready = reads && !read_taken && ar_ready[reader];
    assign window.r_valid = reads && r_valid[reader];
    assign window.r_resp = r_resp[reader];
    assign window.r_data = r_data[reader];
endmodule

// The registers of an NT's window by which it takes configurations: the first 64 bytes and the second half. The NT has the rest.
//
// A packet's descriptor names a configuration (`uid`, `configuration`): `found` and `place` say where it is, in the same cycle,
// and its words are read by `word_place` and `word`, a cycle later. Its memory is HELD x WORDS words.
module snic_nt_configuration #(
    parameter int WORDS = 1024,   // of one configuration at most; a power of two
    parameter int HELD = 16,      // configurations at once: two for each DAG that is configured while it changes
    localparam int PLACE_BITS = $clog2(HELD),
    localparam int WORD_BITS = $clog2(WORDS)
) (
    input wire logic                    clock,
    input wire logic                    reset,
    snic_nt_control.slave               control,

    // The NT's own registers, at 0x040 to 0x7fc: a write, and what is at `own_read_address` in the same cycle.
    output logic                        own_writes,
    output logic [11:0]                 own_address,
    output logic [31:0]                 own_data,
    output logic [11:0]                 own_read_address,
    input wire logic [31:0]             own_read_data,

    // A configuration that is whole, until the NT says whether it is one of its own. It is read like those that are held.
    output logic                        check,
    output logic [PLACE_BITS-1:0]       check_place,
    output logic [WORD_BITS:0]          check_words,
    input wire logic                    checked,
    input wire logic                    accepted,

    // Of packets.
    input wire logic [31:0]             uid,
    input wire logic [31:0]             tag,
    output logic                        found,
    output logic [PLACE_BITS-1:0]       place,
    input wire logic [PLACE_BITS-1:0]   word_place,
    input wire logic [WORD_BITS-1:0]    word,
    output logic [31:0]                 word_data
);
    localparam logic [11:0] WORDS_MAX = 12'h000, UID = 12'h004, TAG = 12'h008, COUNT = 12'h00c;
    localparam logic [11:0] COMMAND = 12'h010, STATUS = 12'h014, OWN = 12'h040, DATA = 12'h800;
    localparam logic [31:0] KEEP = 32'd1, BEGIN = 32'd2, APPEND = 32'd3, TAKE = 32'd4;
    localparam logic [31:0] IS_IDLE = 32'd0, IS_BUSY = 32'd1, IS_DONE = 32'd2, IS_REFUSED = 32'd3;
    localparam int DATA_WORDS = 512;
    localparam int ROW_BITS = 10;   // of a UID

    typedef enum logic [1:0] {WAITS, COPIES, CHECKS} state_t;
    state_t state;

    logic [31:0] command_uid, command_tag, count, status;

    // What is held, and what has begun.
    logic [HELD-1:0] taken;
    logic [31:0] uids[HELD], tags[HELD];
    logic begun;
    logic [PLACE_BITS-1:0] begun_place;
    logic [WORD_BITS:0] length;

    // Writes: whole words, one at a time.
    wire logic writes = control.aw_valid && control.w_valid && !control.b_valid;
    wire logic is_whole = control.w_strb == 4'hf && control.aw_addr[1:0] == 2'b00;
    wire logic sets = writes && is_whole;
    wire logic rings = sets && control.aw_addr == COMMAND && state == WAITS;
    assign control.aw_ready = writes;
    assign control.w_ready = writes;
    assign own_address = control.aw_addr;
    assign own_data = control.w_data;
    assign own_writes = sets && control.aw_addr >= OWN && control.aw_addr < DATA;
    always_ff @(posedge clock) begin
        if (reset) begin
            control.b_valid <= 1'b0;
        end else begin
            control.b_valid <= writes || (control.b_valid && !control.b_ready);
            if (writes) control.b_resp <= is_whole ? 2'b00 : 2'b10;
        end
    end

    // Reads. The words of a configuration may be keys, so they are not read back.
    wire logic reads = control.ar_valid && !control.r_valid;
    assign control.ar_ready = reads;
    assign control.r_resp = 2'b00;
    assign own_read_address = control.ar_addr;
    logic [31:0] answer;
    always_comb begin
        answer = 32'd0;
        case (control.ar_addr)
            WORDS_MAX: answer = 32'(WORDS);
            UID: answer = command_uid;
            TAG: answer = command_tag;
            COUNT: answer = count;
            STATUS: answer = status;
            default: if (control.ar_addr >= OWN && control.ar_addr < DATA) answer = own_read_data;
        endcase
    end
    always_ff @(posedge clock) begin
        if (reset) begin
            control.r_valid <= 1'b0;
        end else begin
            control.r_valid <= reads || (control.r_valid && !control.r_ready);
            if (reads) control.r_data <= answer;
        end
    end

    // What is compared with the names of the next command, and with a packet's.
    logic [HELD-1:0] same_row, same, others, of_packet;
    logic [1:0] many;   // zero, one, or two and more
    always_comb begin
        many = 2'd0;
        for (int i = 0; i < HELD; i++) begin
            same_row[i] = taken[i] && uids[i][ROW_BITS-1:0] == command_uid[ROW_BITS-1:0];
            same[i] = taken[i] && uids[i] == command_uid && tags[i] == command_tag;
            of_packet[i] = taken[i] && uids[i] == uid && tags[i] == tag;
            others[i] = taken[i] && uids[i][ROW_BITS-1:0] == uids[begun_place][ROW_BITS-1:0]
                && !(uids[i] == uids[begun_place] && tags[i] == tags[begun_place]);
            if (others[i] && many != 2'd2) many = many + 2'd1;
        end
    end
    assign found = |of_packet;
    always_comb begin
        place = '0;
        for (int i = 0; i < HELD; i++) if (of_packet[i]) place = PLACE_BITS'(i);
    end

    // A free place for what begins: that of what has begun before, if there is one.
    logic is_free;
    logic [PLACE_BITS-1:0] free;
    always_comb begin
        is_free = begun;
        free = begun_place;
        for (int i = 0; i < HELD; i++) begin
            if (!is_free && !taken[i]) {is_free, free} = {1'b1, PLACE_BITS'(i)};
        end
    end

    // Words: from the window into the place of what has begun.
    logic [31:0] data[DATA_WORDS];
    logic [31:0] data_word;
    logic [9:0] copied;
    logic copies_word;
    logic [31:0] memory[HELD*WORDS];
    wire logic [9:0] next = copied + 10'd1;
    always_ff @(posedge clock) begin
        if (sets && control.aw_addr >= DATA) data[control.aw_addr[10:2]] <= control.w_data;
        data_word <= data[copied[8:0]];
        if (copies_word) memory[{begun_place, length[WORD_BITS-1:0]}] <= data_word;
        word_data <= memory[{word_place, word}];
    end

    wire logic fits = count <= 32'(DATA_WORDS) && 32'(length) + count <= 32'(WORDS);
    assign check = state == CHECKS;
    assign check_place = begun_place;
    assign check_words = length;
    always_ff @(posedge clock) begin
        if (reset) begin
            state <= WAITS;
            status <= IS_IDLE;
            {taken, begun, copies_word} <= '0;
            {command_uid, command_tag, count} <= '0;
        end else begin
            if (sets) begin
                case (control.aw_addr)
                    UID: command_uid <= control.w_data;
                    TAG: command_tag <= control.w_data;
                    COUNT: count <= control.w_data;
                    default: ;
                endcase
            end
            if (rings) begin
                status <= IS_REFUSED;
                case (control.w_data)
                    KEEP: begin
                        taken <= taken & ~(same_row & ~same);
                        status <= IS_DONE;
                    end
                    BEGIN: if (is_free) begin
                        {begun, begun_place, length} <= {1'b1, free, (WORD_BITS + 1)'(0)};
                        uids[free] <= command_uid;
                        tags[free] <= command_tag;
                        status <= IS_DONE;
                    end
                    APPEND: if (begun && fits) begin
                        {state, copied, copies_word} <= {COPIES, 10'd0, 1'b0};
                        status <= IS_BUSY;
                    end
                    TAKE: if (begun && many == 2'd2) begin
                        begun <= 1'b0;
                    end else if (begun) begin
                        {state, status} <= {CHECKS, IS_BUSY};
                    end
                    default: ;
                endcase
            end
            case (state)
                COPIES: begin
                    // A word read a cycle ago is written now.
                    copies_word <= 32'(copied) < count;
                    if (32'(copied) < count) copied <= next;
                    if (copies_word) length <= length + 1'b1;
                    if (32'(copied) >= count && !copies_word) {state, status} <= {WAITS, IS_DONE};
                end
                CHECKS: if (checked) begin
                    // It takes the place of one of the same names.
                    for (int i = 0; i < HELD; i++) begin
                        if (accepted && uids[i] == uids[begun_place] && tags[i] == tags[begun_place])
                            taken[i] <= 1'b0;
                    end
                    if (accepted) taken[begun_place] <= 1'b1;
                    {state, begun} <= {WAITS, 1'b0};
                    status <= accepted ? IS_DONE : IS_REFUSED;
                end
                default: ;
            endcase
        end
    end
endmodule

`default_nettype wire
