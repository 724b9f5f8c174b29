// Counters of packets, of 64 bits, at the addresses of the map: those of the card, and those of each DAG.
//
// A DAG's are in two memories, in and out, each twice: one copy is counted in, the other one read by the host. A packet of one kind in
// three cycles at most. They are zero after reset, which takes a cycle for each row. What the host reads is there three cycles
// later, a half at a time, and zero where it asked for something else.

module snic_counters
    import snic_map_pkg::*;
    import snic_packet_pkg::*;
(
    input  logic        clock,
    input  logic        reset,

    input  logic        came,
    input  logic        dropped,
    input  logic [3:0]  cause,
    input  logic        intended,
    input  logic [9:0]  intended_row,
    input  logic [15:0] intended_bytes,
    input  logic        served,
    input  logic [9:0]  served_row,
    input  logic [15:0] served_bytes,

    input  logic        read,
    input  address_t    address,
    output word_t       read_data
);
    localparam int unsigned ROWS = 1024;

    logic [63:0] packets_in;
    logic [63:0] packets_out;
    logic [DROP_CAUSES-1:0][63:0] drops;
    always_ff @(posedge clock) begin
        packets_in  <= packets_in + 64'(came);
        packets_out <= packets_out + 64'(served);
        for (int i = 0; i < int'(DROP_CAUSES); i++)
            drops[i] <= drops[i] + 64'(dropped && cause == 4'(i));
        if (reset) begin
            packets_in  <= '0;
            packets_out <= '0;
            drops       <= '0;
        end
    end

    // A row's counters: packets and bytes of each side.
    logic [1:0]       counts;
    logic [1:0][9:0]  rows;
    logic [1:0][15:0] bytes;
    logic [1:0][63:0] of_packets;
    logic [1:0][63:0] of_bytes;
    logic [9:0] host_row;
    logic       clears;
    logic [9:0] sweep;
    assign counts = {served, intended};
    assign rows   = {served_row, intended_row};
    assign bytes  = {served_bytes, intended_bytes};
    always_ff @(posedge clock) begin
        sweep <= sweep + 1'b1;
        if (&sweep) clears <= 1'b0;
        if (reset) begin
            clears <= 1'b1;
            sweep  <= '0;
        end
    end
    for (genvar s = 0; s < 2; s++) begin : sides
        logic [127:0] counted [ROWS];
        logic [127:0] shown [ROWS];
        logic [127:0] was;
        logic [127:0] host;
        logic [127:0] after;
        logic         reads;
        logic [9:0]   row;
        logic [15:0]  more;
        assign after = clears ? '0 : {was[127:64] + 64'(more), was[63:0] + 64'd1};
        assign {of_bytes[s], of_packets[s]} = host;
        always_ff @(posedge clock) begin
            reads <= counts[s] && !reset;
            row   <= rows[s];
            more  <= bytes[s];
            was <= counted[rows[s]];
            host   <= shown[host_row];
            if (clears || reads) begin
                counted[clears ? sweep : row] <= after;
                shown[clears ? sweep : row]   <= after;
            end
        end
`ifdef SNIC_ASSERTIONS
        always_ff @(posedge clock) if (!reset) assert (!(reads && counts[s] && rows[s] == row));
`endif
    end

    // The host: the address, the row, the half.
    address_t at;
    address_t then;
    logic     asked;
    logic     answers;
    logic [63:0] value;
    address_t offset;
    assign offset   = at - DAG_LOAD;
    assign host_row = offset[14:5];
    always_comb begin
        value = '0;
        if (then >= DAG_LOAD && then < DAG_LOAD + 22'(32 * ROWS)) begin
            case (then[4:3])
                2'd0: value = of_packets[0];
                2'd1: value = of_bytes[0];
                2'd2: value = of_bytes[1];
                default: value = of_packets[1];
            endcase
        end
        if (then[21:3] == PACKETS_IN[21:3]) value = packets_in;
        if (then[21:3] == PACKETS_OUT[21:3]) value = packets_out;
        for (int i = 0; i < int'(DROP_CAUSES); i++)
            if (then[21:3] == DROPS[21:3] + 19'(i)) value = drops[i];
    end
    always_ff @(posedge clock) begin
        at      <= address;
        asked   <= read;
        then    <= at;
        answers <= asked;
        read_data <= !answers ? '0 : then[2] ? value[63:32] : value[31:0];
    end
    logic unused;
    assign unused = &{offset[21:15], offset[4:0], then[1:0]};
endmodule
