// The shell without what only an FPGA has: registers, tables in two banks, bulk transfers, regions and their loads, packets.
//
// ICAPE3 and the regions are outside, behind ports.
//
//   control (AXI4-Lite) ─► front ─┬─► bus, one access a cycle ─┬─► registers ─┬─► configuration controller ─► ICAPE3
//                         bulk ───┘    the host goes first     └─► banks      └─► regions ◄─► decouplers, ROMs
//   memory  (AXI4)      ◄─► bulk, and reads of the configuration controller
//   packets (AXI4-Stream) ─► data path ─► packets; it looks rows up where the host accesses nothing

module snic_core
    import snic_map_pkg::address_t, snic_map_pkg::word_t, snic_map_pkg::ACTIVE_BANK,
        snic_map_pkg::SHADOW_BANK, snic_map_pkg::BANK_WORDS, snic_map_pkg::REGION_RESET,
        snic_map_pkg::is_register;
#(
    parameter int unsigned ADDRESS_BITS = snic_map_pkg::ADDRESS_BITS,
    parameter int unsigned REGIONS      = 16,            // 2 to 32
    parameter word_t       IDCODE       = 32'h14b3_1093, // of the part; here the VU9P
    parameter int unsigned BITSTREAM_BYTES_MAX = (4 << 20) + 2048
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
    // With the first beat: whether a descriptor names the packet's DAG (bit 32), and its UID.
    input  logic [32:0]             in_tuser,
    output logic                    out_tvalid,
    input  logic                    out_tready,
    output logic [511:0]            out_tdata,
    output logic [63:0]             out_tkeep,
    output logic                    out_tlast,

    // ICAPE3, whose clock is half of this one: each value is there for two cycles.
    output logic                    icap_csib,
    output logic                    icap_rdwrb,
    output logic [31:0]             icap_i,
    input  logic [31:0]             icap_o,
    input  logic                    icap_avail,
    input  logic                    icap_prdone,
    input  logic                    icap_prerror,

    // The regions. A word of a ROM is there a cycle after its address.
    output logic [REGIONS-1:0]      regions_reset,
    output logic [REGIONS-1:0]      regions_coupled,
    output logic [3:0]              regions_rom_address,
    input  logic [REGIONS-1:0][31:0] regions_rom_data,

    // Packets to a region, with what the shell knows of them, and from it, with what it says of them.
    output logic [REGIONS-1:0]        regions_to_tvalid,
    input  logic [REGIONS-1:0]        regions_to_tready,
    output logic [REGIONS-1:0][511:0] regions_to_tdata,
    output logic [REGIONS-1:0][63:0]  regions_to_tkeep,
    output logic [REGIONS-1:0]        regions_to_tlast,
    output logic [REGIONS-1:0][31:0]  regions_to_uid,
    output logic [REGIONS-1:0][31:0]  regions_to_configuration,
    output logic [REGIONS-1:0][15:0]  regions_to_bytes,
    output logic [REGIONS-1:0][31:0]  regions_to_tag,
    output logic [REGIONS-1:0][7:0]   regions_to_used,
    input  logic [REGIONS-1:0]        regions_from_tvalid,
    output logic [REGIONS-1:0]        regions_from_tready,
    input  logic [REGIONS-1:0][511:0] regions_from_tdata,
    input  logic [REGIONS-1:0]        regions_from_tlast,
    input  logic [REGIONS-1:0][15:0]  regions_from_bytes,
    input  logic [REGIONS-1:0][31:0]  regions_from_tag,
    input  logic [REGIONS-1:0]        regions_from_drop
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

    localparam int unsigned REGION_BITS = $clog2(REGIONS);
    logic     load_start;
    logic     load_is_possible;
    logic [REGION_BITS-1:0] load_number;
    logic [63:0] load_buffer;
    word_t    load_bytes;
    word_t    load_status;
    word_t    load_progress;
    word_t    load_error;
    logic     keeps_digest;
    logic [2:0] digest_word;
    logic [REGION_BITS-1:0] load_region;

    logic [REGION_BITS-1:0] page;
    logic     control;
    logic     rom_read;
    logic [3:0] rom_word;
    word_t    of_rom;
    logic [REGIONS-1:0]      decoupled;
    logic [REGIONS-1:0][1:0] contents;
    logic     changes;
    logic [1:0] content;
    logic     verifies;
    logic     verify_read;
    logic [3:0] verify_word;
    logic     verify_taken;
    logic     verify_valid;
    word_t    verify_data;

    logic     active;
    logic     is_clear;
    logic [snic_map_pkg::TABLES-1:0] look;
    logic     look_bank;
    logic [11:0] look_row;
    logic     look_granted;
    logic [5:0][31:0] dag_row;
    logic [3:0][31:0] stage_row;
    logic [1:0][31:0] chain_row;
    logic [1:0][31:0] instance_row;
    logic [1:0][31:0] region_row;
    logic [1:0][31:0] credit_row;
    logic [1:0] bank_used;
    logic [1:0][31:0] bank_used_by;
    logic [REGIONS-1:0][1:0] has_packets;
    logic [REGIONS-1:0][snic_packet_pkg::PLACE_BITS:0] loads;
    logic [REGIONS-1:0][31:0] tags;
    logic [REGIONS-1:0][7:0] present;
    snic_packet_pkg::descriptor_t [REGIONS-1:0] descriptors;
    snic_packet_pkg::reply_t [REGIONS-1:0] replies;
    word_t    of_counters;

    logic     bulk_arvalid;
    logic     bulk_arready;
    logic [63:0] bulk_araddr;
    logic     bulk_rvalid;
    logic     load_arvalid;
    logic     load_arready;
    logic [63:0] load_araddr;
    logic     load_rvalid;

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
    // A look-up takes a cycle from bulk transfers, and waits for an access of the host.
    assign look_granted = look != '0 && !is_front;
    assign at       = is_front ? front_address : bulk_address;
    assign data     = is_front ? front_data : bulk_data;
    assign known    = is_register(at);
    assign is_active_bank = known && at >= ACTIVE_BANK && at < SHADOW_BANK;
    assign is_shadow_bank = known && at >= SHADOW_BANK;

    always_ff @(posedge clock) begin
        known_later <= ANSWER_CYCLES'({known_later, known});
        bank_later  <= (ANSWER_CYCLES-1)'({bank_later, is_active_bank || is_shadow_bank});
        registers_later[0] <= of_registers;
        registers_later[1] <= registers_later[0];
        // A word of a ROM and a counter take two cycles more than a register, which reads as zero then.
        registers_later[2] <= registers_later[1] | of_rom | of_counters;
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
        .load_start    (load_start),
        .load_is_possible (load_is_possible),
        .load_number   (load_number),
        .load_buffer   (load_buffer),
        .load_bytes    (load_bytes),
        .load_status   (load_status),
        .load_progress (load_progress),
        .load_error    (load_error),
        .keeps_digest  (keeps_digest),
        .digest_region (load_region),
        .digest_word   (digest_word),
        .tags          (tags),
        .loads         (loads),
        .page          (page),
        .control       (control),
        .rom_read      (rom_read),
        .rom_word      (rom_word),
        .decoupled     (decoupled),
        .contents      (contents)
    );

    snic_regions #(.REGIONS_HERE(REGIONS)) regions (
        .clock               (clock),
        .reset               (reset),
        .control             (control),
        .control_region      (page),
        .control_data        (data),
        .decoupled           (decoupled),
        .contents            (contents),
        .rom_read            (rom_read),
        .rom_region          (page),
        .rom_word            (rom_word),
        .rom_data            (of_rom),
        .changes             (changes),
        .load_region         (load_region),
        .content             (content),
        .verifies            (verifies),
        .verify_read         (verify_read),
        .verify_word         (verify_word),
        .verify_taken        (verify_taken),
        .verify_valid        (verify_valid),
        .verify_data         (verify_data),
        .present             (present),
        .regions_reset       (regions_reset),
        .regions_coupled     (regions_coupled),
        .regions_rom_address (regions_rom_address),
        .regions_rom_data    (regions_rom_data)
    );

    snic_config #(.REGIONS_HERE(REGIONS), .BYTES_MAX(BITSTREAM_BYTES_MAX)) config_port (
        .clock               (clock),
        .reset               (reset),
        .start               (load_start),
        .is_possible         (load_is_possible),
        .region              (load_number),
        .buffer              (load_buffer),
        .bytes               (load_bytes),
        .region_reset        (control && (data & REGION_RESET) != 32'd0),
        .region_reset_number (page),
        .status              (load_status),
        .progress            (load_progress),
        .error               (load_error),
        .changes             (changes),
        .load_region         (load_region),
        .content             (content),
        .keeps_digest        (keeps_digest),
        .digest_word         (digest_word),
        .verifies            (verifies),
        .verify_read         (verify_read),
        .verify_word         (verify_word),
        .verify_taken        (verify_taken),
        .verify_valid        (verify_valid),
        .verify_data         (verify_data),
        .memory_arvalid      (load_arvalid),
        .memory_arready      (load_arready),
        .memory_araddr       (load_araddr),
        .memory_rvalid       (load_rvalid),
        .memory_rdata        (memory_rdata),
        .icap_csib           (icap_csib),
        .icap_rdwrb          (icap_rdwrb),
        .icap_i              (icap_i),
        .icap_o              (icap_o),
        .icap_avail          (icap_avail),
        .icap_prdone         (icap_prdone),
        .icap_prerror        (icap_prerror)
    );

    snic_memory_reads reads_of_memory (
        .clock          (clock),
        .reset          (reset),
        .load_arvalid   (load_arvalid),
        .load_arready   (load_arready),
        .load_araddr    (load_araddr),
        .load_rvalid    (load_rvalid),
        .bulk_arvalid   (bulk_arvalid),
        .bulk_arready   (bulk_arready),
        .bulk_araddr    (bulk_araddr),
        .bulk_rvalid    (bulk_rvalid),
        .memory_arvalid (memory_arvalid),
        .memory_arready (memory_arready),
        .memory_araddr  (memory_araddr),
        .memory_rvalid  (memory_rvalid),
        .memory_rready  (memory_rready)
    );

    snic_banks banks (
        .clock          (clock),
        .reset          (reset),
        .commit         (commit),
        .commit_version (data),
        .abort          (abort),
        .used           (bank_used),
        .used_by        (bank_used_by),
        .version        (version),
        .status         (commit_status),
        .commit_waits   (commit_waits),
        .read           (reads && (is_active_bank || is_shadow_bank)),
        .write          (writes && is_shadow_bank),
        .shadow         (is_shadow_bank),
        .index          (INDEX_BITS'((at - (is_shadow_bank ? SHADOW_BANK : ACTIVE_BANK)) >> 2)),
        .write_data     (data),
        .read_data      (of_banks),
        .active         (active),
        .is_clear       (is_clear),
        .look           (look_granted ? look : '0),
        .look_bank      (look_bank),
        .look_row       (look_row),
        .dag_row        (dag_row),
        .stage_row      (stage_row),
        .chain_row      (chain_row),
        .instance_row   (instance_row),
        .region_row     (region_row),
        .credit_row     (credit_row)
    );

    snic_bulk #(.ANSWER_CYCLES(ANSWER_CYCLES)) bulk (
        .clock          (clock),
        .reset          (reset),
        .start          (bulk_start),
        .to_host        (bulk_to_host),
        .buffer         (bulk_buffer),
        .bytes          (bulk_bytes),
        .status         (bulk_status),
        .bus_free       (!is_front && look == '0),
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
        .memory_arvalid (bulk_arvalid),
        .memory_arready (bulk_arready),
        .memory_araddr  (bulk_araddr),
        .memory_rvalid  (bulk_rvalid),
        .memory_rdata   (memory_rdata)
    );
    assign memory_awlen = 8'd0;
    assign memory_arlen = 8'd0;
    assign memory_wlast = 1'b1;

    snic_data_path #(.REGIONS_HERE(REGIONS)) data_path (
        .clock         (clock),
        .reset         (reset),
        .in_tvalid     (in_tvalid),
        .in_tready     (in_tready),
        .in_tdata      (in_tdata),
        .in_tkeep      (in_tkeep),
        .in_tlast      (in_tlast),
        .in_tuser      (in_tuser),
        .out_tvalid    (out_tvalid),
        .out_tready    (out_tready),
        .out_tdata     (out_tdata),
        .out_tkeep     (out_tkeep),
        .out_tlast     (out_tlast),
        .is_open       (is_clear),
        .active        (active),
        .look          (look),
        .look_bank     (look_bank),
        .look_row      (look_row),
        .look_granted  (look_granted),
        .dag_row       (dag_row),
        .stage_row     (stage_row),
        .chain_row     (chain_row),
        .instance_row  (instance_row),
        .region_row    (region_row),
        .credit_row    (credit_row),
        .bank_used     (bank_used),
        .has_packets   (has_packets),
        .loads         (loads),
        .coupled       (regions_coupled),
        .regions_reset (regions_reset),
        .tags          (tags),
        .present       (present),
        .to_tvalid     (regions_to_tvalid),
        .to_tready     (regions_to_tready),
        .to_tdata      (regions_to_tdata),
        .to_tkeep      (regions_to_tkeep),
        .to_tlast      (regions_to_tlast),
        .to_descriptor (descriptors),
        .from_tvalid   (regions_from_tvalid),
        .from_tready   (regions_from_tready),
        .from_tdata    (regions_from_tdata),
        .from_tlast    (regions_from_tlast),
        .from_reply    (replies),
        .read          (reads),
        .address       (at),
        .read_data     (of_counters)
    );
    always_comb begin
        bank_used_by = '0;
        for (int r = 0; r < int'(REGIONS); r++) begin
            bank_used_by[0][r] = has_packets[r][0];
            bank_used_by[1][r] = has_packets[r][1];
        end
    end
    for (genvar r = 0; r < REGIONS; r++) begin : boundary
        assign regions_to_uid[r]           = descriptors[r].uid;
        assign regions_to_configuration[r] = descriptors[r].configuration;
        assign regions_to_bytes[r]         = descriptors[r].bytes;
        assign regions_to_tag[r]           = descriptors[r].tag;
        assign regions_to_used[r]          = descriptors[r].used;
        assign replies[r] = '{bytes: regions_from_bytes[r], tag: regions_from_tag[r], drop: regions_from_drop[r]};
    end

    logic unused;
    assign unused = memory_rlast;
endmodule
