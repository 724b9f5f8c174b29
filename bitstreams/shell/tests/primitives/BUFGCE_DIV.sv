// Ports of a primitive of the part, for linters, which do not know it. Nothing is built of this.

module BUFGCE_DIV #(
    parameter int BUFGCE_DIVIDE = 1
) (
    input  logic I,
    input  logic CE,
    input  logic CLR,
    output logic O
);
    assign O = I & CE & !CLR & (BUFGCE_DIVIDE != 0);
endmodule
