// Registers of the map outside of the banks.
//
// One access a cycle; what is read is there a cycle later, but for a word of a region's ROM, which is snic_regions'. What a
// later slice has behind a register (packets, state, configurations, latencies) reads as zero here, as the map says of a card
// without that capability.

module snic_registers
    import snic_map_pkg::*;
#(
    parameter int unsigned REGIONS_HERE = 16,            // 2 to 32
    parameter word_t       IDCODE_HERE  = 32'h14b3_1093, // of the part
    localparam int unsigned INDEX_BITS  = $clog2(REGIONS_HERE)
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

    output logic     load_start,
    output logic     load_is_possible,   // the region exists and is decoupled
    output logic [INDEX_BITS-1:0] load_number,
    output logic [63:0] load_buffer,
    output word_t    load_bytes,
    input  word_t    load_status,
    input  word_t    load_progress,
    input  word_t    load_error,
    // A word of a region's next digest becomes that of its digest.
    input  logic     keeps_digest,
    input  logic [INDEX_BITS-1:0] digest_region,
    input  logic [2:0] digest_word,
    output logic [REGIONS_HERE-1:0][31:0] tags,
    input  logic [REGIONS_HERE-1:0][9:0]  loads,

    // The page of a region: its control register is written, a word of its ROM is read.
    output logic [INDEX_BITS-1:0] page,
    output logic     control,
    output logic     rom_read,
    output logic [3:0] rom_word,
    input  logic [REGIONS_HERE-1:0]      decoupled,
    input  logic [REGIONS_HERE-1:0][1:0] contents
);
    localparam word_t REGIONS_WORD = word_t'(REGIONS_HERE);

    word_t load_region;
    word_t boot_id;
    logic [63:0] cycles;

    // A register in the page of a region; its number and place there.
    address_t   offset;
    logic [7:0] place;
    logic [4:0] number;
    logic       is_here;
    logic       is_digest;
    logic       is_next;
    logic       is_rom;

    // Digests that the next loads leave, and those that the last ones left, of all regions. The former are zero after reset,
    // which takes as many cycles as there are words; the latter are shown of a loaded region only.
    localparam int unsigned DIGEST_BITS = 8;
    word_t digests_next [2**DIGEST_BITS];
    word_t digests_held [2**DIGEST_BITS];
    logic  clears;
    logic  writes_next;
    logic  is_loaded;
    logic [1:0] region_content;
    logic [DIGEST_BITS-1:0] sweep;
    logic [DIGEST_BITS-1:0] digest_at;
    logic [DIGEST_BITS-1:0] kept_at;

    assign offset    = address - REGIONS;
    assign place     = offset[7:0];
    assign number    = offset[12:8];
    assign page      = number[INDEX_BITS-1:0];
    assign is_here   = address >= REGIONS && offset < 22'd32 * REGION_PAGE && word_t'(number) < REGIONS_WORD;
    assign is_digest = is_here && place >= 8'(REGION_DIGEST) && place < 8'(REGION_DIGEST) + 8'd32;
    assign is_next   = is_here && place >= 8'(REGION_DIGEST_NEXT) && place < 8'(REGION_DIGEST_NEXT) + 8'd32;
    assign is_rom    = is_here && place >= 8'(REGION_NTS) && place < 8'(REGION_IDENTITY) + 8'd16;
    assign digest_at = {number, place[4:2] - 3'(8'(REGION_DIGEST) >> 2)};
    assign kept_at   = {5'(digest_region), digest_word};
    assign region_content = contents[page];
    assign is_loaded = region_content == 2'(REGION_LOADED);

    assign commit = write && address == COMMIT;
    assign abort  = write && address == ABORT && write_data == 32'd1;
    assign bulk_start = write && address == BULK_START
        && (write_data == BULK_TO_TABLES || write_data == BULK_TO_HOST);
    assign bulk_to_host = write_data == BULK_TO_HOST;
    assign load_start   = write && address == LOAD_START && write_data == 32'd1;
    assign load_number  = load_region[INDEX_BITS-1:0];
    assign load_is_possible = load_region < REGIONS_WORD && decoupled[load_number];
    assign control      = write && is_here && place == 8'(REGION_CONTROL);
    assign rom_read     = read && is_rom;
    assign rom_word     = 4'((place - 8'(REGION_NTS)) >> 2);
    assign writes_next  = clears || (write && is_next);

    always_ff @(posedge clock) begin
        if (writes_next) digests_next[clears ? sweep : digest_at] <= clears ? 32'd0 : write_data;
        if (keeps_digest) digests_held[kept_at] <= digests_next[kept_at];
        if (keeps_digest && digest_word == 3'd0) tags[digest_region] <= digests_next[kept_at];
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
            load_buffer      <= 64'd0;
            load_bytes       <= 32'd0;
            boot_id          <= 32'd0;
            cycles           <= 64'd0;
            bulk_buffer      <= 64'd0;
            bulk_bytes       <= 32'd0;
        end else begin
            cycles <= cycles + 64'd1;
            if (write) case (address)
                LOAD_REGION:      load_region        <= write_data;
                LOAD_BUFFER_LOW:  load_buffer[31:0]  <= write_data;
                LOAD_BUFFER_HIGH: load_buffer[63:32] <= write_data;
                LOAD_BYTES:       load_bytes         <= write_data;
                BULK_BUFFER_LOW:  bulk_buffer[31:0]  <= write_data;
                BULK_BUFFER_HIGH: bulk_buffer[63:32] <= write_data;
                BULK_BYTES:       bulk_bytes         <= write_data;
                // Once: the host draws it, for nothing here is random.
                BOOT_ID: if (boot_id == 32'd0) boot_id <= write_data;
                default: ;
            endcase
        end
    end

    word_t value;
    always_comb begin
        case (address)
            LOAD_REGION:      value = load_region;
            LOAD_BUFFER_LOW:  value = load_buffer[31:0];
            LOAD_BUFFER_HIGH: value = load_buffer[63:32];
            LOAD_BYTES:       value = load_bytes;
            LOAD_STATUS:      value = load_status;
            LOAD_PROGRESS:    value = load_progress;
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
            default: begin
                value = 32'd0;
                if (is_next) value = digests_next[digest_at];
                if (is_digest && is_loaded) value = digests_held[digest_at];
                if (is_here && place == 8'(REGION_STATUS)) value = word_t'(region_content);
                if (is_here && place == 8'(REGION_IN_FLIGHT)) value = word_t'(loads[page]);
                if (is_here && place == 8'(REGION_CONTROL)) value = word_t'(decoupled[page]);
            end
        endcase
    end
    always_ff @(posedge clock) if (read) read_data <= value;
endmodule
