// The shell behind `snic_control` (bitstreams/flow/rtl) on an UltraScale+ part: snic_core, and ICAPE3 at half its clock.
//
// The cells of the regions are missing: no ROM answers, so each load ends with LOAD_ERROR_IDENTITY.

module snic_shell #(
    parameter int unsigned ADDRESS_BITS = snic_map_pkg::ADDRESS_BITS,
    parameter int unsigned REGIONS      = 16,            // 2 to 32
    parameter logic [31:0] IDCODE       = 32'h14b3_1093  // of the part; here the VU9P
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
    logic        icap_clock;
    logic        icap_csib;
    logic        icap_rdwrb;
    logic [31:0] icap_i;
    logic [31:0] icap_o;
    logic        icap_avail;
    logic        icap_prdone;
    logic        icap_prerror;
    logic [REGIONS-1:0] regions_reset;
    logic [REGIONS-1:0] regions_coupled;
    logic [3:0]  regions_rom_address;
    logic [REGIONS-1:0]        regions_to_tvalid;
    logic [REGIONS-1:0][511:0] regions_to_tdata;
    logic [REGIONS-1:0][63:0]  regions_to_tkeep;
    logic [REGIONS-1:0]        regions_to_tlast;
    logic [REGIONS-1:0][31:0]  regions_to_uid;
    logic [REGIONS-1:0][31:0]  regions_to_configuration;
    logic [REGIONS-1:0][15:0]  regions_to_bytes;
    logic [REGIONS-1:0][31:0]  regions_to_tag;
    logic [REGIONS-1:0][7:0]   regions_to_used;
    logic [REGIONS-1:0]        regions_from_tready;
    logic        unused;

    // No descriptor comes with the packets of the platform, and there is no classifier: each is dropped and counted.
    snic_core #(.ADDRESS_BITS(ADDRESS_BITS), .REGIONS(REGIONS), .IDCODE(IDCODE)) core (
        .in_tuser            ('0),
        .regions_rom_data    ('0),
        .regions_to_tready   ('0),
        .regions_from_tvalid ('0),
        .regions_from_tdata  ('0),
        .regions_from_tlast  ('0),
        .regions_from_bytes  ('0),
        .regions_from_tag    ('0),
        .regions_from_drop   ('0),
        .*
    );
    assign unused = &{regions_reset, regions_coupled, regions_rom_address, regions_to_tvalid, regions_to_tdata,
        regions_to_tkeep, regions_to_tlast, regions_to_uid, regions_to_configuration, regions_to_bytes, regions_to_tag,
        regions_to_used, regions_from_tready};

    BUFGCE_DIV #(.BUFGCE_DIVIDE(2)) half (.I(clock), .CE(1'b1), .CLR(1'b0), .O(icap_clock));

    ICAPE3 #(.DEVICE_ID(IDCODE)) icap (
        .CLK     (icap_clock),
        .CSIB    (icap_csib),
        .RDWRB   (icap_rdwrb),
        .I       (icap_i),
        .O       (icap_o),
        .AVAIL   (icap_avail),
        .PRDONE  (icap_prdone),
        .PRERROR (icap_prerror)
    );
endmodule
