// Two that read the card's memory share one port: the configuration controller, which asks seldom and goes first, and bulk
// transfers. The memory answers in order, so a queue of who asked says whose each beat is. Both take what they asked for.

module snic_memory_reads #(
    parameter int unsigned DEPTH = 16   // beats under way at most, a power of two
) (
    input  logic        clock,
    input  logic        reset,

    input  logic        load_arvalid,
    output logic        load_arready,
    input  logic [63:0] load_araddr,
    output logic        load_rvalid,

    input  logic        bulk_arvalid,
    output logic        bulk_arready,
    input  logic [63:0] bulk_araddr,
    output logic        bulk_rvalid,

    output logic        memory_arvalid,
    input  logic        memory_arready,
    output logic [63:0] memory_araddr,
    input  logic        memory_rvalid,
    output logic        memory_rready
);
    localparam int unsigned DEPTH_BITS = $clog2(DEPTH);

    // An offer that memory has not taken yet stays the same one's.
    logic waits;
    logic waits_load;
    logic is_load;
    logic has_room;
    logic taken;
    logic [DEPTH-1:0] of_load;
    logic [DEPTH_BITS:0] asked;
    logic [DEPTH_BITS:0] answered;

    assign is_load        = waits ? waits_load : load_arvalid;
    assign has_room       = asked - answered != (DEPTH_BITS + 1)'(DEPTH);
    assign memory_arvalid = has_room && (is_load ? load_arvalid : bulk_arvalid);
    assign memory_araddr  = is_load ? load_araddr : bulk_araddr;
    assign load_arready   = has_room && memory_arready && is_load;
    assign bulk_arready   = has_room && memory_arready && !is_load;
    assign taken          = memory_arvalid && memory_arready;
    assign memory_rready  = 1'b1;
    assign load_rvalid    = memory_rvalid && of_load[answered[DEPTH_BITS-1:0]];
    assign bulk_rvalid    = memory_rvalid && !of_load[answered[DEPTH_BITS-1:0]];

    always_ff @(posedge clock) begin
        if (reset) begin
            waits    <= 1'b0;
            asked    <= '0;
            answered <= '0;
        end else begin
            waits      <= memory_arvalid && !memory_arready;
            waits_load <= is_load;
            asked      <= asked + (DEPTH_BITS + 1)'(taken);
            answered   <= answered + (DEPTH_BITS + 1)'(memory_rvalid);
        end
        if (taken) of_load[asked[DEPTH_BITS-1:0]] <= is_load;
    end
endmodule
