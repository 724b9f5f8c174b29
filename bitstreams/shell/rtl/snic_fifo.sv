// A queue in LUT RAM: what is first is there without being asked for. Who fills it sees to it that there is room.

module snic_fifo #(
    parameter int unsigned WIDTH = 8,
    parameter int unsigned DEPTH = 16, // a power of two
    localparam int unsigned INDEX_BITS = $clog2(DEPTH)
) (
    input  logic                clock,
    input  logic                reset,
    input  logic                put,
    input  logic [WIDTH-1:0]    put_data,
    input  logic                take,
    output logic [WIDTH-1:0]    first,
    output logic [INDEX_BITS:0] count
);
    logic [WIDTH-1:0]      memory [DEPTH];
    logic [INDEX_BITS-1:0] head;
    logic [INDEX_BITS-1:0] tail;

    assign first = memory[head];
    always_ff @(posedge clock) begin
        if (put) memory[tail] <= put_data;
        if (reset) begin
            head  <= '0;
            tail  <= '0;
            count <= '0;
        end else begin
            if (put) tail <= tail + 1'b1;
            if (take) head <= head + 1'b1;
            count <= count + (INDEX_BITS+1)'(put) - (INDEX_BITS+1)'(take);
        end
    end

`ifdef SNIC_ASSERTIONS
    always_ff @(posedge clock) if (!reset) begin
        assert (!(take && count == '0));
        assert (!(put && !take && count == (INDEX_BITS+1)'(DEPTH)));
    end
`endif
endmodule
