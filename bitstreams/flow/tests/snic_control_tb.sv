// The kernel with a shell that is late in all that it does. FIRST and LAST are the ends of the register map, as the
// daemon has them. Ends with `ok` and the number of checks.

module snic_control_tb #(
    parameter int FIRST = 0,
    parameter int LAST = 0
);
    logic clock = 0;
    logic reset_n = 0;
    always #2 clock = !clock;

    logic        awvalid = 0, wvalid = 0, bready = 0, arvalid = 0, rready = 0;
    logic        awready, wready, bvalid, arready, rvalid;
    logic [21:0] awaddr, araddr;
    logic [31:0] wdata, rdata;
    logic [3:0]  wstrb;
    logic [1:0]  bresp, rresp;

    snic_control kernel (
        .ap_clk(clock), .ap_rst_n(reset_n),
        .s_axi_control_awvalid(awvalid), .s_axi_control_awready(awready), .s_axi_control_awaddr(awaddr),
        .s_axi_control_wvalid(wvalid), .s_axi_control_wready(wready), .s_axi_control_wdata(wdata),
        .s_axi_control_wstrb(wstrb),
        .s_axi_control_bvalid(bvalid), .s_axi_control_bready(bready), .s_axi_control_bresp(bresp),
        .s_axi_control_arvalid(arvalid), .s_axi_control_arready(arready), .s_axi_control_araddr(araddr),
        .s_axi_control_rvalid(rvalid), .s_axi_control_rready(rready), .s_axi_control_rdata(rdata),
        .s_axi_control_rresp(rresp),
        .m_axi_awvalid(), .m_axi_awready(1'b0), .m_axi_awaddr(), .m_axi_awlen(), .m_axi_wvalid(),
        .m_axi_wready(1'b0), .m_axi_wdata(), .m_axi_wstrb(), .m_axi_wlast(), .m_axi_bvalid(1'b0),
        .m_axi_bready(), .m_axi_arvalid(), .m_axi_arready(1'b0), .m_axi_araddr(), .m_axi_arlen(),
        .m_axi_rvalid(1'b0), .m_axi_rready(), .m_axi_rdata('0), .m_axi_rlast(1'b0),
        .packets_in_tvalid(1'b0), .packets_in_tready(), .packets_in_tdata('0), .packets_in_tkeep('0),
        .packets_in_tlast(1'b0),
        .packets_out_tvalid(), .packets_out_tready(1'b0), .packets_out_tdata(), .packets_out_tkeep(),
        .packets_out_tlast()
    );

    int checks = 0;
    task automatic check(input string what, input logic condition);
        checks++;
        if (!condition) $fatal(1, "FAILED: %s", what);
    endtask

    // A master that is late as well: `late` cycles between address and data, and before it takes the answer.
    task automatic write(input int at, input logic [31:0] data, input logic [3:0] bytes, input int late);
        @(negedge clock);
        awvalid = 1; awaddr = at[21:0];
        repeat (late) @(negedge clock);
        wvalid = 1; wdata = data; wstrb = bytes;
        #1 while (!(awready && wready)) @(negedge clock) #1;
        @(negedge clock);
        awvalid = 0; wvalid = 0; awaddr = '1; wdata = '1;
        while (!bvalid) @(negedge clock);
        repeat (late) begin
            @(negedge clock);
            check("an answer stays until it is taken", bvalid);
        end
        bready = 1;
        @(negedge clock);
        bready = 0;
        #1 check("one answer a write", !bvalid);
    endtask

    task automatic read(input int at, input int late, output logic [31:0] data, output logic [1:0] answer);
        @(negedge clock);
        arvalid = 1; araddr = at[21:0];
        #1 while (!arready) @(negedge clock) #1;
        @(negedge clock);
        arvalid = 0; araddr = '1;
        while (!rvalid) @(negedge clock);
        repeat (late) begin
            data = rdata;
            @(negedge clock);
            check("data stays until it is taken", rvalid && rdata == data);
        end
        data = rdata;
        answer = rresp;
        rready = 1;
        @(negedge clock);
        rready = 0;
        #1 check("one answer a read", !rvalid);
    endtask

    logic [31:0] data;
    logic [1:0]  answer;
    initial begin
        repeat (4) @(negedge clock);
        reset_n = 1;
        repeat (2) @(negedge clock);

        read(0, 0, data, answer);
        check("idle, not done, after a reset", data == 32'h4);
        write(0, 1, 4'hf, 2);
        read(0, 3, data, answer);
        check("a start is done at once: done, ready, idle, and no longer started", data == 32'he);
        read(0, 0, data, answer);
        check("done is shown once", data == 32'h4);
        write(0, 0, 4'hf, 0);
        read(0, 0, data, answer);
        check("no start without its bit", data == 32'h4);

        write(16, 32'h89abcdef, 4'hf, 0);
        write(20, 32'h01234567, 4'hf, 1);
        read(16, 0, data, answer);
        check("the argument, low word", data == 32'h89abcdef);
        read(20, 1, data, answer);
        check("the argument, high word", data == 32'h01234567);
        write(16, 32'hffffffff, 4'h2, 0);
        read(16, 0, data, answer);
        check("the bytes that are written", data == 32'h89abffef);
        check("none of it reached the shell", kernel.shell.writes == 0 && kernel.shell.reads == 0);

        for (int at = 24; at < FIRST; at += 4) begin
            write(at, 32'hffffffff, 4'hf, 0);
            read(at, 0, data, answer);
            check("nothing between the argument and the map", data == 0 && answer == 0);
        end
        check("nor did that", kernel.shell.writes == 0 && kernel.shell.reads == 0);

        for (int late = 0; late < 4; late++) begin
            int places [3];
            places[0] = FIRST;
            places[1] = LAST;
            places[2] = 32'h1000 + 4 * late;
            foreach (places[i]) begin
                automatic int at = places[i];
                write(at, ~at, 4'hf, late);
                check("a write of the map is the shell's, with its address",
                    kernel.shell.last_address == at[21:0] && kernel.shell.last_data == ~at);
                read(at, late, data, answer);
                check("a read of the map is the shell's", data == (at ^ 32'h5a5a5a5a) && answer == 2'b10);
            end
        end
        check("each access reached the shell once", kernel.shell.writes == 12 && kernel.shell.reads == 12);

        // Both at a time: each takes its own way.
        @(negedge clock);
        awvalid = 1; awaddr = FIRST[21:0]; wvalid = 1; wdata = 7; wstrb = 4'hf;
        arvalid = 1; araddr = LAST[21:0];
        #1 check("a write and a read are taken at once", awready && wready && arready);
        @(negedge clock);
        awvalid = 0; wvalid = 0; arvalid = 0;
        while (!(bvalid && rvalid)) @(negedge clock);
        check("both are answered", rdata == (LAST ^ 32'h5a5a5a5a) && kernel.shell.last_data == 7);
        bready = 1; rready = 1;
        @(negedge clock);
        bready = 0; rready = 0;
        check("and reached the shell once", kernel.shell.writes == 13 && kernel.shell.reads == 13);
        check("one address and one word a write", kernel.shell.addresses == 13 && kernel.shell.words == 13);
        $display("ok %0d", checks);
        $finish;
    end
    initial begin
        repeat (20000) @(negedge clock);
        $fatal(1, "FAILED: an access does not end");
    end
endmodule

// A shell that takes its time, and answers a read with its address.
module snic_shell #(
    parameter ADDRESS_BITS = 22
) (
    input  wire clock, input wire reset,
    input  wire control_awvalid, output logic control_awready, input wire [ADDRESS_BITS-1:0] control_awaddr,
    input  wire control_wvalid, output logic control_wready, input wire [31:0] control_wdata,
    input  wire [3:0] control_wstrb,
    output logic control_bvalid, input wire control_bready, output wire [1:0] control_bresp,
    input  wire control_arvalid, output logic control_arready, input wire [ADDRESS_BITS-1:0] control_araddr,
    output logic control_rvalid, input wire control_rready, output logic [31:0] control_rdata,
    output wire [1:0] control_rresp,
    output wire memory_awvalid, input wire memory_awready, output wire [63:0] memory_awaddr,
    output wire [7:0] memory_awlen, output wire memory_wvalid, input wire memory_wready,
    output wire [511:0] memory_wdata, output wire [63:0] memory_wstrb, output wire memory_wlast,
    input  wire memory_bvalid, output wire memory_bready,
    output wire memory_arvalid, input wire memory_arready, output wire [63:0] memory_araddr,
    output wire [7:0] memory_arlen, input wire memory_rvalid, output wire memory_rready,
    input  wire [511:0] memory_rdata, input wire memory_rlast,
    input  wire in_tvalid, output wire in_tready, input wire [511:0] in_tdata, input wire [63:0] in_tkeep,
    input  wire in_tlast,
    output wire out_tvalid, input wire out_tready, output wire [511:0] out_tdata,
    output wire [63:0] out_tkeep, output wire out_tlast
);
    int                      writes = 0, reads = 0, addresses = 0, words = 0, cycle = 0;
    logic [ADDRESS_BITS-1:0] last_address, read_address;
    logic [31:0]             last_data;
    logic                    has_address = 0, has_data = 0, has_read = 0;
    assign control_bresp = 2'b00;
    assign control_rresp = 2'b10;
    assign {memory_awvalid, memory_awaddr, memory_awlen, memory_wvalid, memory_wdata, memory_wstrb} = '0;
    assign {memory_wlast, memory_bready, memory_arvalid, memory_araddr, memory_arlen, memory_rready} = '0;
    assign {in_tready, out_tvalid, out_tdata, out_tkeep, out_tlast} = '0;

    // Now addresses are taken long before data, now the other way round.
    always_comb begin
        control_awready = control_awvalid && cycle % (cycle[5] ? 2 : 11) == 0;
        control_wready = control_wvalid && cycle % (cycle[5] ? 11 : 2) == 0;
        control_arready = control_arvalid && !has_read && cycle % 4 == 0;
        control_bvalid = has_address && has_data && cycle % 2 == 0;
        control_rvalid = has_read && cycle % 7 == 0;
        control_rdata = 32'(read_address) ^ 32'h5a5a5a5a;
    end
    always_ff @(posedge clock) begin
        cycle <= cycle + 1;
        if (control_awvalid && control_awready) begin
            has_address <= 1; addresses <= addresses + 1; last_address <= control_awaddr;
        end
        if (control_wvalid && control_wready) begin
            has_data <= 1; words <= words + 1; last_data <= control_wdata;
        end
        if (control_bvalid && control_bready) begin
            has_address <= 0; has_data <= 0; writes <= writes + 1;
        end
        if (control_arvalid && control_arready) begin has_read <= 1; read_address <= control_araddr; end
        if (control_rvalid && control_rready) begin has_read <= 0; reads <= reads + 1; end
    end
endmodule
