// Ports of a primitive of the part, for linters, which do not know it. Nothing is built of this.

module ICAPE3 #(
    parameter logic [31:0] DEVICE_ID = 32'd0
) (
    input  logic        CLK,
    input  logic        CSIB,
    input  logic        RDWRB,
    input  logic [31:0] I,
    output logic [31:0] O,
    output logic        AVAIL,
    output logic        PRDONE,
    output logic        PRERROR
);
    assign O       = DEVICE_ID ^ I ^ {31'd0, CLK ^ CSIB ^ RDWRB};
    assign AVAIL   = CLK;
    assign PRDONE  = CLK;
    assign PRERROR = CLK;
endmodule
