// The header of a .bit file, a byte a cycle: where the configuration data begins, and how many bytes it has.
//
//   13 fixed bytes   'a' length16 text   'b' length16 text   'c' …   'd' …   'e' length32   data
//
// What a text says is not looked at. A text of over 1,024 bytes, and any byte that is not where it has to be, is refused.

module snic_bit_header (
    input  logic        clock,
    input  logic        restart,

    input  logic        valid,
    input  logic [7:0]  data,
    // With the byte: it is the last of the header, or cannot be part of one.
    output logic        ends,
    output logic        refuses,
    // With the last byte.
    output logic [31:0] data_bytes
);
    localparam int unsigned PREAMBLE_BYTES = 13;
    localparam logic [8*PREAMBLE_BYTES-1:0] PREAMBLE = 104'h0009_0ff0_0ff0_0ff0_0ff0_0000_01;
    localparam logic [15:0] TEXT_BYTES_MAX = 16'd1024;

    typedef enum logic [2:0] {START, LETTER, LENGTH_HIGH, LENGTH_LOW, TEXT, SIZE} part_t;
    part_t       part;
    logic [2:0]  field;
    logic [3:0]  count;
    logic [15:0] left;
    logic [23:0] size;
    logic [15:0] text_bytes;

    assign text_bytes = {left[15:8], data};
    assign data_bytes = {size, data};
    assign ends       = valid && part == SIZE && count == 4'd3;

    always_comb begin
        case (part)
            START:      refuses = valid && data != PREAMBLE[8*(PREAMBLE_BYTES - 1 - 32'(count)) +: 8];
            LETTER:     refuses = valid && data != 8'h61 + 8'(field);
            LENGTH_LOW: refuses = valid && text_bytes > TEXT_BYTES_MAX;
            default:    refuses = 1'b0;
        endcase
    end

    always_ff @(posedge clock) begin
        if (restart) begin
            part  <= START;
            field <= 3'd0;
            count <= 4'd0;
        end else if (valid) case (part)
            START: begin
                count <= count + 4'd1;
                if (count == 4'(PREAMBLE_BYTES - 1)) part <= LETTER;
            end
            LETTER: begin
                count <= 4'd0;
                part  <= field == 3'd4 ? SIZE : LENGTH_HIGH;
            end
            LENGTH_HIGH: begin
                left[15:8] <= data;
                part       <= LENGTH_LOW;
            end
            LENGTH_LOW: begin
                left  <= text_bytes;
                field <= field + 3'd1;
                part  <= text_bytes == 16'd0 ? LETTER : TEXT;
            end
            TEXT: begin
                left <= left - 16'd1;
                if (left == 16'd1) part <= LETTER;
            end
            SIZE: begin
                size  <= {size[15:0], data};
                count <= count + 4'd1;
            end
            default: part <= START;
        endcase
    end
endmodule
