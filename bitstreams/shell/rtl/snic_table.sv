// One table, in two banks.
//
// Words of a row lie beside each other, each in a memory of its own with one read and one write a cycle, so that a row is
// read and copied in one cycle. Words without a column are not kept. The host writes words of the shadow bank; each row
// that it writes is marked, and `copy` makes marked rows of the shadow bank those of the active one again:
//
//   reset ─► CLEAR: all rows and marks to zero ─► IDLE ──copy──► WALK: a word of marks or a row a cycle ─► LAST ─► IDLE
//
// Reads of the host and of the data path go first, and hold the walk up for a cycle each. While the table is cleared it reads as zero.

module snic_table #(
    parameter int unsigned ROWS      = 32,   // a power of two, at least 32
    parameter int unsigned ROW_WORDS = 16,   // a power of two, at least 2
    parameter int unsigned KEPT      = 'hffff,
    // The bit of a valid row that says that it names a link; no word: no row does.
    parameter int unsigned LINK_WORD = ROW_WORDS,
    parameter int unsigned LINK_BIT  = 0,
    localparam int unsigned ROW_BITS  = $clog2(ROWS),
    localparam int unsigned WORD_BITS = $clog2(ROW_WORDS)
) (
    input  logic                 clock,
    input  logic                 reset,

    // The walk: a pulse, and the bank that rows are copied from.
    input  logic                 copy,
    input  logic                 active,
    output logic                 busy,

    // One access a cycle, of a word. What is read is there two cycles later. Only the shadow bank is written, and only
    // while no table is busy.
    input  logic                 read,
    input  logic                 write,
    input  logic                 bank,
    input  logic [ROW_BITS-1:0]  row,
    input  logic [WORD_BITS-1:0] word,
    input  logic [31:0]          write_data,
    output logic [31:0]          read_data,

    // The data path reads a row of either bank in a cycle without an access; the row is there a cycle later.
    input  logic                 look,
    input  logic                 look_bank,
    input  logic [ROW_BITS-1:0]  look_row,
    output logic [ROW_WORDS-1:0][31:0] row_read,

    // Whether a row of the shadow bank names a link.
    output logic                 names_link
);
    localparam int unsigned MARK_WORDS = ROWS / 32;
    localparam int unsigned MARK_BITS  = ROWS > 32 ? $clog2(MARK_WORDS) : 1;
    localparam logic [MARK_BITS-1:0] MARK_LAST = MARK_BITS'(MARK_WORDS - 1);

    typedef enum logic [1:0] {CLEAR, IDLE, WALK, LAST} state_t;
    state_t state;

    // Rows and banks to clear.
    logic [ROW_BITS:0]    sweep;
    // The word of marks that the walk is at, and its marks.
    logic [MARK_BITS-1:0] at;
    logic [31:0]          marks [MARK_WORDS];
    logic [MARK_BITS-1:0] mark_index;
    logic [31:0]          marked;
    logic [31:0]          left;
    logic [4:0]           lowest;
    logic                 reads;
    logic                 takes_row;
    logic                 ends_word;
    // A row was read for the walk, and is written now.
    logic                 moves;
    logic [ROW_BITS-1:0]  moved_row;

    function automatic logic [4:0] lowest_bit(input logic [31:0] bits);
        logic [4:0] index;
        index = 5'd0;
        for (int i = 31; i >= 0; i--)
            if (bits[i]) index = 5'(i);
        return index;
    endfunction

    function automatic logic [MARK_BITS-1:0] mark_of(input logic [ROW_BITS-1:0] of_row);
        return MARK_BITS'(32'(of_row) >> 5);
    endfunction

    assign mark_index = state == WALK ? at : mark_of(row);
    assign marked     = marks[mark_index];
    assign lowest     = lowest_bit(marked);
    assign left       = marked & (marked - 32'd1);
    assign reads      = read || look;
    assign takes_row  = state == WALK && !reads && marked != 32'd0;
    assign ends_word  = state == WALK && !reads && left == 32'd0;
    assign busy       = state != IDLE;

    always_ff @(posedge clock) begin
        moves     <= takes_row && !reset;
        moved_row <= ROW_BITS'(32'({at, lowest}));
        if (reset) begin
            state <= CLEAR;
            sweep <= '0;
            at    <= '0;
        end else case (state)
            CLEAR: begin
                sweep <= sweep + 1'b1;
                if (&sweep) state <= IDLE;
            end
            IDLE: begin
                at <= '0;
                if (copy) state <= WALK;
            end
            WALK: if (ends_word) begin
                at <= at + 1'b1;
                if (at == MARK_LAST) state <= LAST;
            end
            LAST: state <= IDLE;
            default: state <= CLEAR;
        endcase
    end

    always_ff @(posedge clock) begin
        if (state == CLEAR)              marks[mark_of(sweep[ROW_BITS-1:0])] <= 32'd0;
        else if (takes_row)              marks[mark_index] <= left;
        else if (state == IDLE && write) marks[mark_index] <= marked | 32'd1 << row[4:0];
    end

    // Addresses of rows in the memories: the bank on top.
    logic [ROW_BITS:0]  read_at;
    logic [ROW_BITS:0]  write_at;
    logic                 was_cleared;
    logic [WORD_BITS-1:0] word_read;

    assign read_at  = look ? {look_bank, look_row} : read ? {bank, row} : {active, ROW_BITS'(32'({at, lowest}))};
    assign write_at = state == CLEAR ? sweep : moves ? {!active, moved_row} : {!active, row};

    for (genvar w = 0; w < ROW_WORDS; w++) begin : words
        if (KEPT[w]) begin : kept
            logic [31:0] memory [2*ROWS];
            logic [31:0] data;
            logic [31:0] word_of_row;
            logic        writes;
            assign row_read[w] = word_of_row;
            assign data   = state == CLEAR ? 32'd0 : moves ? row_read[w] : write_data;
            assign writes = state == CLEAR || moves || (state == IDLE && write && word == WORD_BITS'(w));
            always_ff @(posedge clock) begin
                if (writes) memory[write_at] <= data;
                if (reads || takes_row) word_of_row <= memory[read_at];
            end
        end else begin : left_out
            assign row_read[w] = 32'd0;
        end
    end

    // Rows of the shadow bank that are valid, and those with the bit; how many are both. The walk makes them the active bank's again.
    if (LINK_WORD < ROW_WORDS) begin : links
        logic [ROWS-1:0]   valid;
        logic [ROWS-1:0]   linked;
        logic [ROW_BITS:0] count;
        logic [ROW_BITS-1:0] at_row;
        logic sets_valid;
        logic sets_link;
        logic is_valid;
        logic is_linked;
        logic was_one;
        assign at_row     = moves ? moved_row : row;
        assign sets_valid = moves || (state == IDLE && write && word == '0);
        assign sets_link  = moves || (state == IDLE && write && word == WORD_BITS'(LINK_WORD));
        assign is_valid   = !sets_valid ? valid[at_row] : moves ? row_read[0][31] : write_data[31];
        assign is_linked  = !sets_link ? linked[at_row] : moves ? row_read[LINK_WORD][LINK_BIT] : write_data[LINK_BIT];
        assign was_one    = valid[at_row] && linked[at_row];
        assign names_link = count != '0;
        always_ff @(posedge clock) begin
            valid[at_row]  <= is_valid;
            linked[at_row] <= is_linked;
            count <= count + (ROW_BITS+1)'(is_valid && is_linked) - (ROW_BITS+1)'(was_one);
            if (state == CLEAR || reset) begin
                valid  <= '0;
                linked <= '0;
                count  <= '0;
            end
        end
    end else begin : no_links
        assign names_link = 1'b0;
    end

    always_ff @(posedge clock) begin
        was_cleared <= state == CLEAR;
        word_read   <= word;
        read_data   <= was_cleared ? 32'd0 : row_read[word_read];
    end

`ifdef SNIC_ASSERTIONS
    always_ff @(posedge clock) if (!reset) assert (!(look && (read || state == CLEAR)));
    // The host's write and the walk's would meet at the one port.
    always_ff @(posedge clock) if (!reset) assert (!(write && (read || state != IDLE)));
`endif
endmodule
