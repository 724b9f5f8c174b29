// Windows of two regions with two slots each: NTs with configurations in slots 0 and 1 of region 0 and in slot 0 of region 1, one
// that takes none in slot 1 of region 1. Follows a file, line by line (all numbers hexadecimal):
//
//   w ADDRESS DATA          writes; ADDRESS is that of the register map
//   r ADDRESS DATA          reads, and expects DATA
//   c COMMAND STATUS        rings the doorbell, waits while the NT is busy, and expects STATUS
//   p NT UID TAG FOUND      a packet asks NT 0, 1 or 2 (region 0 slot 0, slot 1, region 1 slot 0) for a configuration
//   d INDEX DATA            word INDEX of the configuration that was found last
//   z                       all regions are loaded anew
//
// Ends with `ok` and the number of checks.

module snic_nt_configuration_tb #(
    parameter int SELECT = 0,
    parameter int WINDOW = 0,
    parameter int WORDS = 1024,
    parameter int HELD = 16
);
    localparam int PLACE_BITS = $clog2(HELD);
    localparam int WORD_BITS = $clog2(WORDS);

    logic clock = 0;
    logic reset = 1;
    always #2 clock = !clock;

    logic [31:0] select = '0;
    snic_nt_control window (.clock, .reset);
    snic_nt_control nts[4] (.clock, .reset);
    snic_nt_windows #(.REGIONS(2), .SLOTS(2)) windows (
        .clock, .reset, .select, .present(4'b1111), .window(window), .nts(nts)
    );

    logic [31:0] uid = '0, tag = '0;
    logic [2:0] found;
    logic [PLACE_BITS-1:0] place[3];
    logic [PLACE_BITS-1:0] word_place = '0;
    logic [WORD_BITS-1:0] word = '0;
    logic [31:0] word_data[3];

    for (genvar i = 0; i < 3; i++) begin : gen_nts
        // This NT has a register of its own, and refuses what begins with a certain word.
        logic own_writes, check, is_read, is_checked;
        logic [11:0] own_address, own_read_address;
        logic [31:0] own_data, own;
        logic [PLACE_BITS-1:0] check_place;
        logic [WORD_BITS:0] check_words;
        always_ff @(posedge clock) begin
            if (reset) begin
                {own, is_read, is_checked} <= '0;
            end else begin
                if (own_writes && own_address == 12'h040) own <= own_data;
                {is_read, is_checked} <= {check && !is_read && !is_checked, check && is_read};
            end
        end
        snic_nt_configuration #(.WORDS(WORDS), .HELD(HELD)) configuration (
            .clock, .reset, .control(nts[i]), .own_writes, .own_address, .own_data, .own_read_address,
            .own_read_data(own_read_address == 12'h040 ? own : 32'd0), .check, .check_place, .check_words,
            .checked(is_checked), .accepted(check_words == 0 || word_data[i] != 32'hbadc0de), .uid, .tag,
            .found(found[i]), .place(place[i]), .word_place(check ? check_place : word_place),
            .word(check ? '0 : word), .word_data(word_data[i])
        );
    end

    // The NT that takes none is the one that lets everything pass.
    snic_nt_stream into (.clock, .reset);
    snic_nt_stream outof (.clock, .reset);
    snic_nt_state state (.clock, .reset);
    assign into.valid = 1'b0;
    assign into.data = '0;
    assign into.keep = '0;
    assign into.last = 1'b0;
    assign into.descriptor = '0;
    assign outof.ready = 1'b1;
    assign state.uid = '0;
    assign state.word = '0;
    assign state.valid = 1'b0;
    assign state.write_data = '0;
    snic_nt_pass pass (
        .clock, .reset, .packets_in(into), .packets_out(outof), .control(nts[3]), .state(state)
    );

    int checks = 0;
    task automatic check_equal(input int line, input logic [31:0] expected, input logic [31:0] is);
        checks++;
        if (expected !== is) $fatal(1, "FAILED: line %0d expects %h, is %h", line, expected, is);
    endtask

    task automatic write(input logic [11:0] at, input logic [31:0] data);
        @(negedge clock);
        window.aw_valid = 1; window.aw_addr = at;
        window.w_valid = 1; window.w_data = data; window.w_strb = 4'hf;
        #1 while (!(window.aw_ready && window.w_ready)) @(negedge clock) #1;
        @(negedge clock);
        {window.aw_valid, window.w_valid} = '0;
        window.b_ready = 1;
        #1 while (!window.b_valid) @(negedge clock) #1;
        @(negedge clock);
        window.b_ready = 0;
    endtask

    task automatic read(input logic [11:0] at, output logic [31:0] data);
        @(negedge clock);
        window.ar_valid = 1; window.ar_addr = at;
        #1 while (!window.ar_ready) @(negedge clock) #1;
        @(negedge clock);
        window.ar_valid = 0;
        window.r_ready = 1;
        #1 while (!window.r_valid) @(negedge clock) #1;
        data = window.r_data;
        @(negedge clock);
        window.r_ready = 0;
    endtask

    task automatic pulse_reset();
        @(negedge clock);
        reset = 1;
        repeat (3) @(negedge clock);
        reset = 0;
    endtask

    string path, kind;
    int file, line, got, a, nt;
    logic [31:0] b, c, d, data;
    initial begin
        {window.aw_valid, window.w_valid, window.b_ready, window.ar_valid, window.r_ready} = '0;
        {window.aw_addr, window.w_data, window.w_strb, window.ar_addr} = '0;
        if (!$value$plusargs("follow=%s", path)) $fatal(1, "FAILED: no file to follow");
        file = $fopen(path, "r");
        if (file == 0) $fatal(1, "FAILED: %s cannot be read", path);
        pulse_reset();
        line = 0;
        while ($fscanf(file, "%s", kind) == 1) begin
            line++;
            case (kind)
                "w": begin
                    got = $fscanf(file, "%h %h", a, b);
                    if (a == SELECT) select = b; else write(12'(a - WINDOW), b);
                end
                "r": begin
                    got = $fscanf(file, "%h %h", a, b);
                    read(12'(a - WINDOW), data);
                    check_equal(line, b, data);
                end
                "c": begin
                    got = $fscanf(file, "%h %h", b, c);
                    write(12'h010, b);
                    read(12'h014, data);
                    while (data == 1) read(12'h014, data);
                    check_equal(line, c, data);
                end
                "p": begin
                    got = $fscanf(file, "%h %h %h %h", nt, b, c, d);
                    @(negedge clock);
                    {uid, tag} = {b, c};
                    #1 check_equal(line, d, 32'(found[nt]));
                    word_place = place[nt];
                end
                "d": begin
                    got = $fscanf(file, "%h %h", a, b);
                    word = WORD_BITS'(a);
                    @(negedge clock);
                    check_equal(line, b, word_data[nt]);
                end
                "z": pulse_reset();
                default: $fatal(1, "FAILED: line %0d says %s", line, kind);
            endcase
        end
        $display("ok %0d", checks);
        $finish;
    end

    // No access takes longer than the interface allows.
    int waited = 0;
    always @(posedge clock) begin
        waited <= (window.aw_valid || window.ar_valid || window.b_ready || window.r_ready) ? waited + 1 : 0;
        if (waited > 256) $fatal(1, "FAILED: an access takes more than 256 cycles");
    end
endmodule
