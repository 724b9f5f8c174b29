// All tables, and the commit that swaps their banks.
//
//   COMMIT of the next version: the banks are swapped (one flop), then ─► DRAIN: packets of the old bank leave ─┐
//   ABORT ────────────────────────────────────────────────────────────────────────────────────────► COPY ◄───────┘
//                                                          marked rows of the shadow bank := those of the active one
//
// Busy from reset on until the tables are clear, and from COMMIT or ABORT on until the rows are copied. Meanwhile the host
// writes no rows, and COMMIT and ABORT do nothing but that a COMMIT is noted as refused. So is one of rows that name a link, of which
// this card has none.

module snic_banks
    import snic_map_pkg::*;
#(
    localparam int unsigned INDEX_BITS = $clog2(BANK_WORDS)
) (
    input  logic                  clock,
    input  logic                  reset,

    // Pulses.
    input  logic                  commit,
    input  word_t                 commit_version,
    input  logic                  abort,
    // Packets on the card by the bank that they began with: whether there are any, and the regions that have some.
    input  logic [1:0]            used,
    input  logic [1:0][31:0]      used_by,

    output word_t                 version,
    output word_t                 status,
    output word_t                 commit_waits,

    // One access a cycle, of a word of a bank. What is read is there four cycles later.
    input  logic                  read,
    input  logic                  write,
    input  logic                  shadow,
    input  logic [INDEX_BITS-1:0] index,
    input  word_t                 write_data,
    output word_t                 read_data,

    // Whole rows for the data path, of the tables that are named: of a bank, in a cycle without an access. They are there two
    // cycles later.
    output logic                  active,
    output logic                  is_clear,
    input  logic [TABLES-1:0]     look,
    input  logic                  look_bank,
    input  logic [11:0]           look_row,
    output logic [5:0][31:0]      dag_row,
    output logic [3:0][31:0]      stage_row,
    output logic [1:0][31:0]      chain_row,
    output logic [1:0][31:0]      instance_row,
    output logic [1:0][31:0]      region_row,
    output logic [1:0][31:0]      credit_row
);
    typedef enum logic [2:0] {CLEAR, IDLE, DRAIN, START, COPY} state_t;
    state_t state;
    logic   refused;
    logic   no_link;
    logic [TABLES-1:0] names_link;
    logic   is_next;
    logic [TABLES-1:0] tables_busy;

    assign is_next      = commit_version == version + 32'd1;
    assign status       = state != IDLE ? COMMIT_BUSY : !refused ? COMMIT_IDLE : no_link ? COMMIT_NO_LINK : COMMIT_REFUSED;
    assign commit_waits = state == DRAIN ? used_by[!active] : 32'd0;
    assign is_clear     = state != CLEAR;

    always_ff @(posedge clock) begin
        if (reset) begin
            state   <= CLEAR;
            active  <= 1'b0;
            refused <= 1'b0;
            no_link <= 1'b0;
            version <= 32'd0;
        end else begin
            if (commit && (state != IDLE || !is_next)) refused <= 1'b1;
            if (commit) no_link <= state == IDLE && is_next && names_link != '0;
            case (state)
                CLEAR: if (tables_busy == '0) state <= IDLE;
                IDLE: if (commit && is_next && names_link != '0) refused <= 1'b1;
                else if (commit && is_next) begin
                    active  <= !active;
                    version <= commit_version;
                    refused <= 1'b0;
                    state   <= DRAIN;
                end else if (abort) begin
                    refused <= 1'b0;
                            state   <= START;
                end
                DRAIN: if (!used[!active]) state <= START;
                // A table is busy from the cycle behind this one on.
                START: state <= COPY;
                COPY: if (tables_busy == '0) state <= IDLE;
                default: state <= IDLE;
            endcase
        end
    end

    // The access, a cycle later. It reads the bank that is active then: only a COMMIT in the same cycle could be between,
    // and there is one access a cycle.
    logic  reads;
    logic  writes;
    logic  of_shadow;
    word_t data;
    logic [INDEX_BITS-1:0] place;
    logic [TABLES-1:0] looks;
    logic  looks_in;
    logic [12:0] looks_at; // of the longest table
    always_ff @(posedge clock) begin
        reads     <= read && !reset;
        writes    <= write && state == IDLE && !reset;
        of_shadow <= shadow;
        place     <= index;
        data      <= write_data;
        looks     <= reset ? '0 : look;
        looks_in  <= look_bank;
        looks_at  <= 13'(look_row);
    end

    logic [TABLES-1:0]       hit;
    logic [TABLES-1:0]       hit_before;
    logic [TABLES-1:0]       hit_then;
    logic [TABLES-1:0][31:0] read_words;
    logic [TABLES-1:0][15:0][31:0] rows_read;
    for (genvar t = 0; t < TABLES; t++) begin : tables
        localparam int unsigned ROWS      = table_rows(t);
        localparam int unsigned ROW_WORDS = table_row_words(t);
        localparam int unsigned FIRST     = table_offset(t);
        localparam int unsigned LAST      = FIRST + ROWS * ROW_WORDS - 1;
        localparam int unsigned ROW_BITS  = $clog2(ROWS);
        localparam int unsigned WORD_BITS = $clog2(ROW_WORDS);
        localparam int unsigned LINK_LOW  = t == TABLE_DAG ? DAG_IS_GUEST_LOW
            : t == TABLE_INSTANCE ? INSTANCE_ON_LINK_LOW : 32 * ROW_WORDS;
        logic [ROW_BITS+WORD_BITS-1:0] in_table;
        logic [ROW_WORDS-1:0][31:0] row_words;
        assign in_table = (ROW_BITS+WORD_BITS)'(place - INDEX_BITS'(FIRST));
        if (FIRST == 0) begin : lowest
            assign hit[t] = place <= INDEX_BITS'(LAST);
        end else begin : above
            assign hit[t] = place >= INDEX_BITS'(FIRST) && place <= INDEX_BITS'(LAST);
        end
        snic_table #(.ROWS(ROWS), .ROW_WORDS(ROW_WORDS), .KEPT(table_kept(t)), .LINK_WORD(LINK_LOW / 32), .LINK_BIT(LINK_LOW % 32)) rows (
            .clock      (clock),
            .reset      (reset),
            .copy       (state == START),
            .active     (active),
            .busy       (tables_busy[t]),
            .read       (reads && hit[t]),
            .write      (writes && hit[t]),
            .bank       (active ^ of_shadow),
            .row        (in_table[ROW_BITS+WORD_BITS-1:WORD_BITS]),
            .word       (in_table[WORD_BITS-1:0]),
            .write_data (data),
            .read_data  (read_words[t]),
            .look       (looks[t]),
            .look_bank  (looks_in),
            .look_row   (looks_at[ROW_BITS-1:0]),
            .row_read   (row_words),
            .names_link (names_link[t])
        );
        assign rows_read[t] = (32*16)'(row_words);
    end
    assign dag_row      = rows_read[TABLE_DAG][5:0];
    assign stage_row    = rows_read[TABLE_STAGE][3:0];
    assign chain_row    = rows_read[TABLE_CHAIN][1:0];
    assign instance_row = rows_read[TABLE_INSTANCE][1:0];
    assign region_row   = rows_read[TABLE_REGION][1:0];
    assign credit_row   = rows_read[TABLE_CREDIT][1:0];
    logic unused;
    assign unused = &rows_read;

    word_t chosen;
    always_comb begin
        chosen = 32'd0;
        for (int unsigned t = 0; t < TABLES; t++)
            if (hit_then[t]) chosen |= read_words[t];
    end
    always_ff @(posedge clock) begin
        hit_before <= hit;
        hit_then   <= hit_before;
        read_data  <= chosen;
    end
endmodule
