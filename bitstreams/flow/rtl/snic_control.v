// The kernel that a role is for XRT: what v++ links into a platform (kernel.xml says the same to the tools).
//
//   0x00 to 0x0f   handshake of AP_CTRL_HS: XRT opens no other kernel exclusively, which register access needs
//   0x10 to 0x17   the argument: a pointer, by which XRT knows in which memory buffers have to be
//   from 0x40 on   the register map (`snic_tables::registers`), which is the shell's
//
// Nobody has to start this kernel. A start is done at once, so that a tool which runs every kernel does not hang.
// Plain Verilog, because the tools that package kernels want no interfaces at the top.

`default_nettype none

module snic_control #(
    parameter ADDRESS_BITS = 22   // of a byte in the registers; 2 to the power of it is the range in kernel.xml
) (
    input  wire                    ap_clk,
    input  wire                    ap_rst_n,

    // Registers: AXI4-Lite. One write and one read are under way at most.
    input  wire                    s_axi_control_awvalid,
    output wire                    s_axi_control_awready,
    input  wire [ADDRESS_BITS-1:0] s_axi_control_awaddr,
    input  wire                    s_axi_control_wvalid,
    output wire                    s_axi_control_wready,
    input  wire [31:0]             s_axi_control_wdata,
    input  wire [3:0]              s_axi_control_wstrb,
    output wire                    s_axi_control_bvalid,
    input  wire                    s_axi_control_bready,
    output wire [1:0]              s_axi_control_bresp,
    input  wire                    s_axi_control_arvalid,
    output wire                    s_axi_control_arready,
    input  wire [ADDRESS_BITS-1:0] s_axi_control_araddr,
    output wire                    s_axi_control_rvalid,
    input  wire                    s_axi_control_rready,
    output wire [31:0]             s_axi_control_rdata,
    output wire [1:0]              s_axi_control_rresp,

    // On-board memory: AXI4.
    output wire                    m_axi_awvalid,
    input  wire                    m_axi_awready,
    output wire [63:0]             m_axi_awaddr,
    output wire [7:0]              m_axi_awlen,
    output wire                    m_axi_wvalid,
    input  wire                    m_axi_wready,
    output wire [511:0]            m_axi_wdata,
    output wire [63:0]             m_axi_wstrb,
    output wire                    m_axi_wlast,
    input  wire                    m_axi_bvalid,
    output wire                    m_axi_bready,
    output wire                    m_axi_arvalid,
    input  wire                    m_axi_arready,
    output wire [63:0]             m_axi_araddr,
    output wire [7:0]              m_axi_arlen,
    input  wire                    m_axi_rvalid,
    output wire                    m_axi_rready,
    input  wire [511:0]            m_axi_rdata,
    input  wire                    m_axi_rlast,

    // Packets from and to the kernel that has the port's MAC: AXI4-Stream.
    input  wire                    packets_in_tvalid,
    output wire                    packets_in_tready,
    input  wire [511:0]            packets_in_tdata,
    input  wire [63:0]             packets_in_tkeep,
    input  wire                    packets_in_tlast,
    output wire                    packets_out_tvalid,
    input  wire                    packets_out_tready,
    output wire [511:0]            packets_out_tdata,
    output wire [63:0]             packets_out_tkeep,
    output wire                    packets_out_tlast
);
    localparam [ADDRESS_BITS-1:0] FIRST    = 'h40;
    localparam [ADDRESS_BITS-1:0] CONTROL  = 'h00;
    localparam [ADDRESS_BITS-1:0] ARGUMENT = 'h10;

    localparam [1:0] IDLE = 2'd0, PASSED_ON = 2'd1, WAITS = 2'd2, ANSWERS = 2'd3;

    reg         reset;
    reg         is_done;
    reg  [63:0] argument;
    always @(posedge ap_clk) reset <= !ap_rst_n;

    // Writes: taken when address and data are there, answered here or by the shell.
    reg  [1:0]              write_state;
    reg  [ADDRESS_BITS-1:0] write_address;
    reg  [31:0]             write_data;
    reg  [3:0]              write_bytes;
    reg  [1:0]              write_answer;
    reg                     address_left;
    reg                     data_left;
    wire                    shell_awready;
    wire                    shell_wready;
    wire                    shell_bvalid;
    wire [1:0]              shell_bresp;

    wire write_begins = write_state == IDLE && s_axi_control_awvalid && s_axi_control_wvalid && !reset;
    wire write_is_own = write_begins && s_axi_control_awaddr < FIRST;
    wire is_started = write_is_own && s_axi_control_awaddr == CONTROL && s_axi_control_wstrb[0]
        && s_axi_control_wdata[0];

    assign s_axi_control_awready = write_begins;
    assign s_axi_control_wready  = write_begins;
    assign s_axi_control_bvalid  = write_state == ANSWERS;
    assign s_axi_control_bresp   = write_answer;

    always @(posedge ap_clk) begin
        if (reset) begin
            write_state  <= IDLE;
            address_left <= 1'b0;
            data_left    <= 1'b0;
        end else case (write_state)
            IDLE: if (write_begins) begin
                write_address <= s_axi_control_awaddr;
                write_data    <= s_axi_control_wdata;
                write_bytes   <= s_axi_control_wstrb;
                write_answer  <= 2'b00;
                address_left  <= !write_is_own;
                data_left     <= !write_is_own;
                write_state   <= write_is_own ? ANSWERS : PASSED_ON;
            end
            PASSED_ON: begin
                if (shell_awready) address_left <= 1'b0;
                if (shell_wready)  data_left    <= 1'b0;
                if ((shell_awready || !address_left) && (shell_wready || !data_left))
                    write_state <= WAITS;
            end
            WAITS: if (shell_bvalid) begin
                write_answer <= shell_bresp;
                write_state  <= ANSWERS;
            end
            ANSWERS: if (s_axi_control_bready) write_state <= IDLE;
        endcase
    end

    integer byte_of_word;
    always @(posedge ap_clk) begin
        if (reset) argument <= 64'd0;
        else if (write_is_own)
            for (byte_of_word = 0; byte_of_word < 4; byte_of_word = byte_of_word + 1)
                if (s_axi_control_wstrb[byte_of_word]) begin
                    if (s_axi_control_awaddr == ARGUMENT)
                        argument[8*byte_of_word +: 8] <= s_axi_control_wdata[8*byte_of_word +: 8];
                    if (s_axi_control_awaddr == ARGUMENT + 4)
                        argument[32 + 8*byte_of_word +: 8] <= s_axi_control_wdata[8*byte_of_word +: 8];
                end
    end

    // Reads.
    reg  [1:0]              read_state;
    reg  [ADDRESS_BITS-1:0] read_address;
    reg  [31:0]             read_data;
    reg  [1:0]              read_answer;
    wire                    shell_arready;
    wire                    shell_rvalid;
    wire [31:0]             shell_rdata;
    wire [1:0]              shell_rresp;

    wire read_begins = read_state == IDLE && s_axi_control_arvalid && !reset;
    wire read_is_own = read_begins && s_axi_control_araddr < FIRST;

    assign s_axi_control_arready = read_begins;
    assign s_axi_control_rvalid  = read_state == ANSWERS;
    assign s_axi_control_rdata   = read_data;
    assign s_axi_control_rresp   = read_answer;

    always @(posedge ap_clk) begin
        if (reset) read_state <= IDLE;
        else case (read_state)
            IDLE: if (read_begins) begin
                read_address <= s_axi_control_araddr;
                read_answer  <= 2'b00;
                read_state   <= read_is_own ? ANSWERS : PASSED_ON;
                case (s_axi_control_araddr)
                    // ready, idle, done and start: bits 3 to 0.
                    CONTROL:      read_data <= {28'd0, is_done, 1'b1, is_done, 1'b0};
                    ARGUMENT:     read_data <= argument[31:0];
                    ARGUMENT + 4: read_data <= argument[63:32];
                    default:      read_data <= 32'd0;
                endcase
            end
            PASSED_ON: if (shell_arready) read_state <= WAITS;
            WAITS: if (shell_rvalid) begin
                read_data   <= shell_rdata;
                read_answer <= shell_rresp;
                read_state  <= ANSWERS;
            end
            ANSWERS: if (s_axi_control_rready) read_state <= IDLE;
        endcase
    end

    // Done is cleared by the read that shows it.
    always @(posedge ap_clk) begin
        if (reset) is_done <= 1'b0;
        else if (is_started) is_done <= 1'b1;
        else if (read_is_own && s_axi_control_araddr == CONTROL) is_done <= 1'b0;
    end

    snic_shell #(.ADDRESS_BITS(ADDRESS_BITS)) shell (
        .clock           (ap_clk),
        .reset           (reset),
        .control_awvalid (write_state == PASSED_ON && address_left),
        .control_awready (shell_awready),
        .control_awaddr  (write_address),
        .control_wvalid  (write_state == PASSED_ON && data_left),
        .control_wready  (shell_wready),
        .control_wdata   (write_data),
        .control_wstrb   (write_bytes),
        .control_bvalid  (shell_bvalid),
        .control_bready  (write_state == WAITS),
        .control_bresp   (shell_bresp),
        .control_arvalid (read_state == PASSED_ON),
        .control_arready (shell_arready),
        .control_araddr  (read_address),
        .control_rvalid  (shell_rvalid),
        .control_rready  (read_state == WAITS),
        .control_rdata   (shell_rdata),
        .control_rresp   (shell_rresp),
        .memory_awvalid  (m_axi_awvalid),
        .memory_awready  (m_axi_awready),
        .memory_awaddr   (m_axi_awaddr),
        .memory_awlen    (m_axi_awlen),
        .memory_wvalid   (m_axi_wvalid),
        .memory_wready   (m_axi_wready),
        .memory_wdata    (m_axi_wdata),
        .memory_wstrb    (m_axi_wstrb),
        .memory_wlast    (m_axi_wlast),
        .memory_bvalid   (m_axi_bvalid),
        .memory_bready   (m_axi_bready),
        .memory_arvalid  (m_axi_arvalid),
        .memory_arready  (m_axi_arready),
        .memory_araddr   (m_axi_araddr),
        .memory_arlen    (m_axi_arlen),
        .memory_rvalid   (m_axi_rvalid),
        .memory_rready   (m_axi_rready),
        .memory_rdata    (m_axi_rdata),
        .memory_rlast    (m_axi_rlast),
        .in_tvalid       (packets_in_tvalid),
        .in_tready       (packets_in_tready),
        .in_tdata        (packets_in_tdata),
        .in_tkeep        (packets_in_tkeep),
        .in_tlast        (packets_in_tlast),
        .out_tvalid      (packets_out_tvalid),
        .out_tready      (packets_out_tready),
        .out_tdata       (packets_out_tdata),
        .out_tkeep       (packets_out_tkeep),
        .out_tlast       (packets_out_tlast)
    );
endmodule

`default_nettype wire
