// What the shell has of each region: its decoupler, its reset, what it holds, and the way to its ROM.
//
//                 ┌ coupled: nothing but a region whose ROM was verified, that is not decoupled and not being reset
//   region ═══════╪══► crossbar
//          ─ ROM ─╪──► open to the host where the region is loaded, to the controller where it verifies one
//
// A ROM word is there three cycles after it was asked for, whatever the region does: all regions get the same address, and
// a word of one of them is taken. The host goes first. What a region that is neither loaded nor verified says is not looked at.

module snic_regions
    import snic_map_pkg::*;
#(
    parameter int unsigned REGIONS_HERE = 16,
    parameter int unsigned RESET_CYCLES = 16,
    localparam int unsigned INDEX_BITS = $clog2(REGIONS_HERE)
) (
    input  logic                  clock,
    input  logic                  reset,

    // The host's REGION_CONTROL.
    input  logic                  control,
    input  logic [INDEX_BITS-1:0] control_region,
    input  word_t                 control_data,
    output logic [REGIONS_HERE-1:0] decoupled,
    // One of REGION_EMPTY to REGION_BROKEN for each.
    output logic [REGIONS_HERE-1:0][1:0] contents,

    // A word of a ROM for the host; zero unless the region is loaded.
    input  logic                  rom_read,
    input  logic [INDEX_BITS-1:0] rom_region,
    input  logic [3:0]            rom_word,
    output word_t                 rom_data,

    // The configuration controller: what a region holds from now on, and the ROM of the region that it verifies.
    input  logic                  changes,
    input  logic [INDEX_BITS-1:0] load_region,
    input  logic [1:0]            content,
    input  logic                  verifies,
    input  logic                  verify_read,
    input  logic [3:0]            verify_word,
    output logic                  verify_taken,
    output logic                  verify_valid,
    output word_t                 verify_data,

    // Slots with an NT, as the ROM said it when it was verified.
    output logic [REGIONS_HERE-1:0][7:0] present,
    output logic [REGIONS_HERE-1:0] regions_reset,
    output logic [REGIONS_HERE-1:0] regions_coupled,
    output logic [3:0]              regions_rom_address,
    input  logic [REGIONS_HERE-1:0][31:0] regions_rom_data
);
    localparam int unsigned COUNT_BITS = $clog2(RESET_CYCLES + 1);

    for (genvar r = 0; r < REGIONS_HERE; r++) begin : regions
        logic [COUNT_BITS-1:0] count;
        logic is_controlled;
        logic is_load;
        assign is_controlled = control && control_region == INDEX_BITS'(r);
        assign is_load       = load_region == INDEX_BITS'(r);

        always_ff @(posedge clock) begin
            if (reset) begin
                decoupled[r] <= 1'b0;
                contents[r]  <= 2'(REGION_EMPTY);
                count        <= '0;
            end else begin
                if (is_controlled) decoupled[r] <= (control_data & REGION_DECOUPLE) != 32'd0;
                if (changes && is_load) contents[r] <= content;
                if (is_controlled && (control_data & REGION_RESET) != 32'd0) count <= COUNT_BITS'(RESET_CYCLES);
                else if (count != '0) count <= count - 1'b1;
            end
        end

        // A region is held in reset while it is written, and until its ROM is looked at.
        always_ff @(posedge clock) begin
            regions_reset[r] <= reset || count != '0
                || (contents[r] == 2'(REGION_LOADING) && !(verifies && is_load));
            regions_coupled[r] <= !reset && count == '0 && !decoupled[r] && contents[r] == 2'(REGION_LOADED);
        end
    end

    // The way to a ROM: the address, the region's own cycle, what came.
    logic [1:0] for_host;
    logic [1:0] for_controller;
    logic [1:0][INDEX_BITS-1:0] from;
    logic       is_open;
    logic       host_valid;
    word_t      word;

    // Which word the controller takes.
    logic [2:0][3:0] words;
    always_ff @(posedge clock) begin
        words <= {words[1:0], verify_word};
        if (verify_valid && !words[2][3]) present[load_region][words[2][2:0]] <= verify_data != 32'd0;
    end

    assign verify_taken = verify_read && !rom_read;
    assign is_open      = for_controller[1] ? verifies
        : for_host[1] && contents[from[1]] == 2'(REGION_LOADED);
    assign rom_data     = host_valid ? word : 32'd0;
    assign verify_data  = word;

    always_ff @(posedge clock) begin
        regions_rom_address <= rom_read ? rom_word : verify_word;
        from           <= {from[0], rom_read ? rom_region : load_region};
        for_host       <= {for_host[0], rom_read && !reset};
        for_controller <= {for_controller[0], verify_taken && !reset};
        word           <= is_open ? regions_rom_data[from[1]] : 32'd0;
        host_valid     <= for_host[1];
        verify_valid   <= for_controller[1] && !reset;
    end

`ifdef SNIC_ASSERTIONS
    for (genvar r = 0; r < REGIONS_HERE; r++) begin : coupling
        always_ff @(posedge clock) if (!reset)
            assert (!(regions_coupled[r] && regions_reset[r]));
    end
`endif
endmodule
