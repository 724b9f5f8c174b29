// Registers of the map outside of the banks.
//
// One access a cycle; what is read is there a cycle later. What a later slice has behind a register (loads, packets, state,
// configurations, latencies) reads as zero here, as the map says of a card without that capability; a load that is started
// fails at once.

module snic_registers
    import snic_map_pkg::*;
#(
    parameter int unsigned REGIONS_HERE = 16,            // 2 to 32
    parameter word_t       IDCODE_HERE  = 32'h14b3_1093  // of the part
) (
    input  logic     clock,
    input  logic     reset,

    input  logic     read,
    input  logic     write,
    input  address_t address,
    input  word_t    write_data,
    output word_t    read_data,

    output logic     commit,
    output logic     abort,
    input  word_t    version,
    input  word_t    commit_status,
    input  word_t    commit_waits,

    output logic     bulk_start,
    output logic     bulk_to_host,
    output logic [63:0] bulk_buffer,
    output word_t    bulk_bytes,
    input  word_t    bulk_status,

    // For the decouplers of the regions.
    output logic [REGIONS_HERE-1:0] decoupled
);
    localparam int unsigned INDEX_BITS = $clog2(REGIONS_HERE);
    localparam word_t REGIONS_WORD = word_t'(REGIONS_HERE);

    word_t load_region;
    word_t load_buffer_low;
    word_t load_buffer_high;
    word_t load_bytes;
    word_t load_status;
    word_t load_error;
    word_t boot_id;
    logic [63:0] cycles;

    // A register in the page of a region; its number and place there.
    address_t   offset;
    logic       is_region;
    logic [4:0] number;
    logic       is_here;
    logic       is_control;
    logic       is_digest;
    logic       is_coupled;

    // Digests that the next loads leave, of all regions: zero after reset, which takes as many cycles as there are words.
    localparam int unsigned DIGEST_BITS = 8;
    word_t digests [2**DIGEST_BITS];
    word_t digest;
    logic  clears;
    logic  writes_digest;
    logic [DIGEST_BITS-1:0] sweep;
    logic [DIGEST_BITS-1:0] digest_at;

    assign offset     = address - REGIONS;
    assign is_region  = address >= REGIONS && offset < 22'd32 * REGION_PAGE;
    assign number     = offset[12:8];
    assign is_here    = is_region && word_t'(number) < REGIONS_WORD;
    assign is_control = is_here && offset[7:0] == 8'(REGION_CONTROL);
    assign is_digest  = is_here && offset[7:0] >= 8'(REGION_DIGEST_NEXT)
        && offset[7:0] < 8'(REGION_DIGEST_NEXT) + 8'd32;
    assign digest_at  = {number, 3'((offset[7:0] - 8'(REGION_DIGEST_NEXT)) >> 2)};
    assign digest     = digests[digest_at];
    assign is_coupled = load_region >= REGIONS_WORD || !decoupled[load_region[INDEX_BITS-1:0]];

    assign commit = write && address == COMMIT;
    assign abort  = write && address == ABORT && write_data == 32'd1;
    assign bulk_start = write && address == BULK_START
        && (write_data == BULK_TO_TABLES || write_data == BULK_TO_HOST);
    assign bulk_to_host  = write_data == BULK_TO_HOST;
    assign writes_digest = clears || (write && is_digest);

    always_ff @(posedge clock) begin
        if (writes_digest) digests[clears ? sweep : digest_at] <= clears ? 32'd0 : write_data;
        if (reset) begin
            clears <= 1'b1;
            sweep  <= '0;
        end else begin
            sweep <= sweep + 1'b1;
            if (&sweep) clears <= 1'b0;
        end
    end

    always_ff @(posedge clock) begin
        if (reset) begin
            load_region      <= 32'd0;
            load_buffer_low  <= 32'd0;
            load_buffer_high <= 32'd0;
            load_bytes       <= 32'd0;
            load_status      <= LOAD_IDLE;
            load_error       <= 32'd0;
            boot_id          <= 32'd0;
            cycles           <= 64'd0;
            bulk_buffer      <= 64'd0;
            bulk_bytes       <= 32'd0;
            decoupled        <= '0;
        end else begin
            cycles <= cycles + 64'd1;
            if (write) case (address)
                LOAD_REGION:      load_region        <= write_data;
                LOAD_BUFFER_LOW:  load_buffer_low    <= write_data;
                LOAD_BUFFER_HIGH: load_buffer_high   <= write_data;
                LOAD_BYTES:       load_bytes         <= write_data;
                BULK_BUFFER_LOW:  bulk_buffer[31:0]  <= write_data;
                BULK_BUFFER_HIGH: bulk_buffer[63:32] <= write_data;
                BULK_BYTES:       bulk_bytes         <= write_data;
                LOAD_START: if (write_data == 32'd1) begin
                    load_status <= LOAD_FAILED;
                    load_error  <= is_coupled ? LOAD_ERROR_REGION : LOAD_ERROR_NO_PORT;
                end
                // Once: the host draws it, for nothing here is random.
                BOOT_ID: if (boot_id == 32'd0) boot_id <= write_data;
                default: if (is_control)
                    decoupled[number[INDEX_BITS-1:0]] <= (write_data & REGION_DECOUPLE) != 32'd0;
            endcase
        end
    end

    word_t value;
    always_comb begin
        case (address)
            LOAD_REGION:      value = load_region;
            LOAD_BUFFER_LOW:  value = load_buffer_low;
            LOAD_BUFFER_HIGH: value = load_buffer_high;
            LOAD_BYTES:       value = load_bytes;
            LOAD_STATUS:      value = load_status;
            LOAD_ERROR:       value = load_error;
            BULK_BUFFER_LOW:  value = bulk_buffer[31:0];
            BULK_BUFFER_HIGH: value = bulk_buffer[63:32];
            BULK_BYTES:       value = bulk_bytes;
            BULK_STATUS:      value = bulk_status;
            MAGIC:            value = MAGIC_VALUE;
            LAYOUT:           value = LAYOUT_VALUE;
            CAPABILITIES:     value = CAPABILITY_BULK | CAPABILITY_CLOCK;
            REGION_COUNT:     value = REGIONS_WORD;
            IDCODE:           value = IDCODE_HERE;
            BOOT_ID:          value = boot_id;
            TABLE_VERSION:    value = version;
            COMMIT_STATUS:    value = commit_status;
            COMMIT_WAITS:     value = commit_waits;
            CLOCK_CYCLES:     value = cycles[31:0];
            CLOCK_CYCLES + 22'd4: value = cycles[63:32];
            default: value = is_control ? word_t'(decoupled[number[INDEX_BITS-1:0]])
                : is_digest ? digest : 32'd0;
        endcase
    end
    always_ff @(posedge clock) if (read) read_data <= value;
endmodule
