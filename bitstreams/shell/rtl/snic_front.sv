// The host's side: AXI4-Lite, one access at a time, each over within a few cycles whatever its address.
//
// What is written or read goes to `bus` for one cycle and is answered ANSWER_CYCLES later. An address without a register
// is answered with DECERR and all ones, as over PCIe; a write of less than a word with SLVERR, and nothing is written.

module snic_front
    import snic_map_pkg::*;
#(
    parameter int unsigned ANSWER_CYCLES = 5
) (
    input  logic     clock,
    input  logic     reset,

    input  logic     awvalid,
    output logic     awready,
    input  address_t awaddr,
    input  logic     wvalid,
    output logic     wready,
    input  word_t    wdata,
    input  logic [3:0] wstrb,
    output logic     bvalid,
    input  logic     bready,
    output logic [1:0] bresp,
    input  logic     arvalid,
    output logic     arready,
    input  address_t araddr,
    output logic     rvalid,
    input  logic     rready,
    output word_t    rdata,
    output logic [1:0] rresp,

    output logic     bus_read,
    output logic     bus_write,
    output address_t bus_address,
    output word_t    bus_data,
    input  logic     answer_known,
    input  word_t    answer_data
);
    localparam logic [1:0] OKAY = 2'b00, SLVERR = 2'b10, DECERR = 2'b11;
    localparam int unsigned COUNT_BITS = $clog2(ANSWER_CYCLES + 1);

    typedef enum logic [2:0] {IDLE, ASK, WAIT, ANSWER_WRITE, ANSWER_READ} state_t;
    state_t state;
    logic   writes;
    logic   is_whole;
    // The next access is a read where both wait.
    logic   read_first;
    logic   takes_write;
    logic   takes_read;
    logic [COUNT_BITS-1:0] count;

    assign takes_write = state == IDLE && awvalid && wvalid && !(read_first && arvalid);
    assign takes_read  = state == IDLE && arvalid && !takes_write;
    assign awready     = takes_write && !reset;
    assign wready      = takes_write && !reset;
    assign arready     = takes_read && !reset;
    assign bus_write   = state == ASK && writes && is_whole;
    assign bus_read    = state == ASK && !bus_write;
    assign bvalid      = state == ANSWER_WRITE;
    assign rvalid      = state == ANSWER_READ;

    always_ff @(posedge clock) begin
        if (reset) begin
            state      <= IDLE;
            read_first <= 1'b0;
        end else case (state)
            IDLE: if (takes_write || takes_read) begin
                state       <= ASK;
                writes      <= takes_write;
                is_whole    <= wstrb == 4'hf;
                read_first  <= takes_write;
                bus_address <= takes_write ? awaddr : araddr;
                bus_data    <= wdata;
            end
            ASK: begin
                state <= WAIT;
                count <= COUNT_BITS'(1);
            end
            WAIT: begin
                count <= count + 1'b1;
                if (count == COUNT_BITS'(ANSWER_CYCLES)) begin
                    state <= writes ? ANSWER_WRITE : ANSWER_READ;
                    bresp <= !answer_known ? DECERR : is_whole ? OKAY : SLVERR;
                    rresp <= answer_known ? OKAY : DECERR;
                    rdata <= answer_known ? answer_data : 32'hffff_ffff;
                end
            end
            ANSWER_WRITE: if (bready) state <= IDLE;
            ANSWER_READ:  if (rready) state <= IDLE;
            default: state <= IDLE;
        endcase
    end
endmodule
