// The shell behind `snic_control` (bitstreams/flow/rtl): registers, tables in two banks, bulk transfers.
//
// This is its first slice: no packet passes, no region is loaded. The port takes no packets, so a sender waits.
//
//   control (AXI4-Lite) ─► front ─┬─► bus, one access a cycle ─┬─► registers
//   memory  (AXI4)      ◄─► bulk ─┘    the host goes first     └─► banks

module snic_shell
    import snic_map_pkg::address_t, snic_map_pkg::word_t, snic_map_pkg::ACTIVE_BANK,
        snic_map_pkg::SHADOW_BANK, snic_map_pkg::BANK_WORDS, snic_map_pkg::is_register;
#(
    parameter int unsigned ADDRESS_BITS = snic_map_pkg::ADDRESS_BITS,
    parameter int unsigned REGIONS      = 16,            // 2 to 32
    parameter word_t       IDCODE       = 32'h14b3_1093  // of the part; here the VU9P
) (
    input  logic                    clock,
    input  logic                    reset,

    input  logic                    control_awvalid,
    output logic                    control_awready,
    input  logic [ADDRESS_BITS-1:0] control_awaddr,
    input  logic                    control_wvalid,
    output logic                    control_wready,
    input  logic [31:0]             control_wdata,
    input  logic [3:0]              control_wstrb,
    output logic                    control_bvalid,
    input  logic                    control_bready,
    output logic [1:0]              control_bresp,
    input  logic                    control_arvalid,
    output logic                    control_arready,
    input  logic [ADDRESS_BITS-1:0] control_araddr,
    output logic                    control_rvalid,
    input  logic                    control_rready,
    output logic [31:0]             control_rdata,
    output logic [1:0]              control_rresp,

    output logic                    memory_awvalid,
    input  logic                    memory_awready,
    output logic [63:0]             memory_awaddr,
    output logic [7:0]              memory_awlen,
    output logic                    memory_wvalid,
    input  logic                    memory_wready,
    output logic [511:0]            memory_wdata,
    output logic [63:0]             memory_wstrb,
    output logic                    memory_wlast,
    input  logic                    memory_bvalid,
    output logic                    memory_bready,
    output logic                    memory_arvalid,
    input  logic                    memory_arready,
    output logic [63:0]             memory_araddr,
    output logic [7:0]              memory_arlen,
    input  logic                    memory_rvalid,
    output logic                    memory_rready,
    input  logic [511:0]            memory_rdata,
    input  logic                    memory_rlast,

    input  logic                    in_tvalid,
    output logic                    in_tready,
    input  logic [511:0]            in_tdata,
    input  logic [63:0]             in_tkeep,
    input  logic                    in_tlast,
    output logic                    out_tvalid,
    input  logic                    out_tready,
    output logic [511:0]            out_tdata,
    output logic [63:0]             out_tkeep,
    output logic                    out_tlast
);
    // From an access on the bus to its answer.
    localparam int unsigned ANSWER_CYCLES = 5;
    localparam int unsigned INDEX_BITS = $clog2(BANK_WORDS);
    localparam int unsigned REGISTER_CYCLES = ANSWER_CYCLES - 2;

    // The bus, and the two that ask.
    logic     front_read;
    logic     front_write;
    address_t front_address;
    word_t    front_data;
    logic     bulk_read;
    logic     bulk_write;
    address_t bulk_address;
    word_t    bulk_data;
    logic     is_front;
    logic     reads;
    logic     writes;
    address_t at;
    word_t    data;
    logic     known;
    logic     is_active_bank;
    logic     is_shadow_bank;

    logic [ANSWER_CYCLES-1:0] known_later;
    logic [ANSWER_CYCLES-2:0] bank_later;
    word_t    of_registers;
    word_t    of_banks;
    word_t    registers_later [REGISTER_CYCLES];
    word_t    answer;

    logic     commit;
    logic     abort;
    word_t    version;
    word_t    commit_status;
    word_t    commit_waits;
    logic     bulk_start;
    logic     bulk_to_host;
    logic [63:0] bulk_buffer;
    word_t    bulk_bytes;
    word_t    bulk_status;
    logic [REGIONS-1:0] decoupled;

    snic_front #(.ANSWER_CYCLES(ANSWER_CYCLES)) front (
        .clock        (clock),
        .reset        (reset),
        .awvalid      (control_awvalid),
        .awready      (control_awready),
        .awaddr       (control_awaddr),
        .wvalid       (control_wvalid),
        .wready       (control_wready),
        .wdata        (control_wdata),
        .wstrb        (control_wstrb),
        .bvalid       (control_bvalid),
        .bready       (control_bready),
        .bresp        (control_bresp),
        .arvalid      (control_arvalid),
        .arready      (control_arready),
        .araddr       (control_araddr),
        .rvalid       (control_rvalid),
        .rready       (control_rready),
        .rdata        (control_rdata),
        .rresp        (control_rresp),
        .bus_read     (front_read),
        .bus_write    (front_write),
        .bus_address  (front_address),
        .bus_data     (front_data),
        .answer_known (known_later[ANSWER_CYCLES-1]),
        .answer_data  (answer)
    );

    assign is_front = front_read || front_write;
    assign reads    = is_front ? front_read : bulk_read;
    assign writes   = (is_front ? front_write : bulk_write) && known;
    assign at       = is_front ? front_address : bulk_address;
    assign data     = is_front ? front_data : bulk_data;
    assign known    = is_register(at);
    assign is_active_bank = known && at >= ACTIVE_BANK && at < SHADOW_BANK;
    assign is_shadow_bank = known && at >= SHADOW_BANK;

    always_ff @(posedge clock) begin
        known_later <= ANSWER_CYCLES'({known_later, known});
        bank_later  <= (ANSWER_CYCLES-1)'({bank_later, is_active_bank || is_shadow_bank});
        registers_later[0] <= of_registers;
        for (int unsigned i = 1; i < REGISTER_CYCLES; i++) registers_later[i] <= registers_later[i-1];
        answer <= bank_later[ANSWER_CYCLES-2] ? of_banks : registers_later[REGISTER_CYCLES-1];
    end

    snic_registers #(.REGIONS_HERE(REGIONS), .IDCODE_HERE(IDCODE)) registers (
        .clock         (clock),
        .reset         (reset),
        .read          (reads),
        .write         (writes),
        .address       (at),
        .write_data    (data),
        .read_data     (of_registers),
        .commit        (commit),
        .abort         (abort),
        .version       (version),
        .commit_status (commit_status),
        .commit_waits  (commit_waits),
        .bulk_start    (bulk_start),
        .bulk_to_host  (bulk_to_host),
        .bulk_buffer   (bulk_buffer),
        .bulk_bytes    (bulk_bytes),
        .bulk_status   (bulk_status),
        .decoupled     (decoupled)
    );

    snic_banks banks (
        .clock          (clock),
        .reset          (reset),
        .commit         (commit),
        .commit_version (data),
        .abort          (abort),
        // There are no packets yet.
        .waits          (32'd0),
        .version        (version),
        .status         (commit_status),
        .commit_waits   (commit_waits),
        .read           (reads && (is_active_bank || is_shadow_bank)),
        .write          (writes && is_shadow_bank),
        .shadow         (is_shadow_bank),
        .index          (INDEX_BITS'((at - (is_shadow_bank ? SHADOW_BANK : ACTIVE_BANK)) >> 2)),
        .write_data     (data),
        .read_data      (of_banks)
    );

    snic_bulk #(.ANSWER_CYCLES(ANSWER_CYCLES)) bulk (
        .clock          (clock),
        .reset          (reset),
        .start          (bulk_start),
        .to_host        (bulk_to_host),
        .buffer         (bulk_buffer),
        .bytes          (bulk_bytes),
        .status         (bulk_status),
        .bus_free       (!is_front),
        .bus_read       (bulk_read),
        .bus_write      (bulk_write),
        .bus_address    (bulk_address),
        .bus_data       (bulk_data),
        .answer_known   (known_later[ANSWER_CYCLES-1]),
        .answer_data    (answer),
        .memory_awvalid (memory_awvalid),
        .memory_awready (memory_awready),
        .memory_awaddr  (memory_awaddr),
        .memory_wvalid  (memory_wvalid),
        .memory_wready  (memory_wready),
        .memory_wdata   (memory_wdata),
        .memory_wstrb   (memory_wstrb),
        .memory_bvalid  (memory_bvalid),
        .memory_bready  (memory_bready),
        .memory_arvalid (memory_arvalid),
        .memory_arready (memory_arready),
        .memory_araddr  (memory_araddr),
        .memory_rvalid  (memory_rvalid),
        .memory_rready  (memory_rready),
        .memory_rdata   (memory_rdata)
    );
    assign memory_awlen = 8'd0;
    assign memory_arlen = 8'd0;
    assign memory_wlast = 1'b1;

    assign in_tready  = 1'b0;
    assign out_tvalid = 1'b0;
    assign out_tdata  = '0;
    assign out_tkeep  = '0;
    assign out_tlast  = 1'b0;
    logic unused;
    assign unused = &{memory_rlast, in_tvalid, in_tdata, in_tkeep, in_tlast, out_tready, decoupled};
endmodule
