// The interfaces between a region's wrapper and its NTs: ../NT-INTERFACE.md says what they mean.

`default_nettype none

// Packets: AXI4-Stream with a descriptor, which is valid with the first beat.
interface snic_nt_stream #(
    parameter int WIDTH = 512
) (
    input wire logic clock,
    input wire logic reset
);
    // What the shell knows of a packet before its first byte.
    typedef struct packed {
        logic [31:0] uid;             // the packet's DAG
        logic [31:0] configuration;   // tag of the DAG's configurations; zero where it has none
        logic [15:0] bytes;           // length of the packet
        logic [31:0] tag;             // of the shell: goes out as it came in
        logic        drop;            // out: the packet ends here
    } descriptor_t;

    logic                 valid;
    logic                 ready;
    logic [WIDTH-1:0]     data;
    logic [(WIDTH/8)-1:0] keep;
    logic                 last;
    descriptor_t          descriptor;

    modport source(
        input clock, reset, ready,
        output valid, data, keep, last, descriptor
    );
    modport sink(
        input clock, reset, valid, data, keep, last, descriptor,
        output ready
    );

    // What AXI4-Stream asks of a source: nothing changes while it waits. A simulation stops where
    // that is not so.
`ifndef SYNTHESIS
    logic                 waits;
    logic [WIDTH-1:0]     data_before;
    logic [(WIDTH/8)-1:0] keep_before;
    logic                 last_before;
    always_ff @(posedge clock) begin
        waits <= valid && !ready && !reset;
        data_before <= data;
        keep_before <= keep;
        last_before <= last;
        if (waits && !reset) begin
            if (!valid) $fatal(1, "valid fell before ready");
            if (data != data_before || keep != keep_before || last != last_before)
                $fatal(1, "a beat changed while it waited");
        end
    end
`endif
endinterface

// Registers of one NT: AXI4-Lite, a window of 4 KiB.
interface snic_nt_control (
    input wire logic clock,
    input wire logic reset
);
    logic        aw_valid;
    logic        aw_ready;
    logic [11:0] aw_addr;
    logic        w_valid;
    logic        w_ready;
    logic [31:0] w_data;
    logic [3:0]  w_strb;
    logic        b_valid;
    logic        b_ready;
    logic [1:0]  b_resp;
    logic        ar_valid;
    logic        ar_ready;
    logic [11:0] ar_addr;
    logic        r_valid;
    logic        r_ready;
    logic [31:0] r_data;
    logic [1:0]  r_resp;

    modport master(
        input clock, reset, aw_ready, w_ready, b_valid, b_resp, ar_ready, r_valid, r_data, r_resp,
        output aw_valid, aw_addr, w_valid, w_data, w_strb, b_ready, ar_valid, ar_addr, r_ready
    );
    modport slave(
        input clock, reset, aw_valid, aw_addr, w_valid, w_data, w_strb, b_ready, ar_valid, ar_addr,
            r_ready,
        output aw_ready, w_ready, b_valid, b_resp, ar_ready, r_valid, r_data, r_resp
    );
endinterface

// The state that an NT keeps for one DAG: words of 64 bytes, as the save area counts them.
interface snic_nt_state (
    input wire logic clock,
    input wire logic reset
);
    typedef enum logic [1:0] {
        IDLE  = 2'd0,
        READ  = 2'd1,
        WRITE = 2'd2,
        CLEAR = 2'd3
    } command_t;

    command_t     command;
    logic [31:0]  uid;
    logic [23:0]  word;
    logic         valid;
    logic         ready;
    logic [511:0] write_data;
    logic         read_valid;
    logic [511:0] read_data;

    modport master(
        input clock, reset, ready, read_valid, read_data,
        output command, uid, word, valid, write_data
    );
    modport slave(
        input clock, reset, command, uid, word, valid, write_data,
        output ready, read_valid, read_data
    );
endinterface

// Two streams as one: what a wrapper has at its ends.
module snic_nt_join (
    snic_nt_stream.sink   from,
    snic_nt_stream.source to
);
    assign to.valid = from.valid;
    assign to.data = from.data;
    assign to.keep = from.keep;
    assign to.last = from.last;
    assign to.descriptor = from.descriptor;
    assign from.ready = to.ready;
endmodule

// What a region says of the chain in it: twelve words, which the shell shows at REGION_NTS (0 to 7, the first
// slot first) and REGION_IDENTITY (8 to 11, the most significant first). It is part of the region, so it is what
// was loaded that answers.
module snic_chain_rom #(
    parameter logic [255:0] NTS = '0,
    parameter logic [127:0] IDENTITY = '0
) (
    input wire logic   clock,
    input wire logic [3:0] address,
    output logic [31:0] data
);
    localparam logic [511:0] WORDS = {NTS, IDENTITY, 128'd0};
    always_ff @(posedge clock) data <= WORDS[{4'd15 - address, 5'd0} +: 32];
endmodule

// An NT that lets every packet pass and keeps no state: a starting point for new ones.
module snic_nt_pass (
    input wire logic      clock,
    input wire logic      reset,
    snic_nt_stream.sink   packets_in,
    snic_nt_stream.source packets_out,
    snic_nt_control.slave control,
    snic_nt_state.slave   state
);
    snic_nt_join join_streams (.from(packets_in), .to(packets_out));

    // No registers: writes go nowhere, reads are zero.
    logic write_done;
    logic read_done;
    wire logic writes = control.aw_valid && control.w_valid && !write_done;
    wire logic reads = control.ar_valid && !read_done;
    always_ff @(posedge clock) begin
        if (reset) begin
            write_done <= 1'b0;
            read_done  <= 1'b0;
        end else begin
            write_done <= writes || (write_done && !control.b_ready);
            read_done  <= reads || (read_done && !control.r_ready);
        end
    end
    assign control.aw_ready = writes;
    assign control.w_ready = writes;
    assign control.b_valid = write_done;
    assign control.b_resp = 2'b00;
    assign control.ar_ready = reads;
    assign control.r_valid = read_done;
    assign control.r_data = 32'd0;
    assign control.r_resp = 2'b00;

    // No state: every word reads as zero.
    logic state_read;
    always_ff @(posedge clock) begin
        state_read <= !reset && state.valid && state.command == 2'd1;
    end
    assign state.ready = 1'b1;
    assign state.read_valid = state_read;
    assign state.read_data = 512'd0;
endmodule

`default_nettype wire
