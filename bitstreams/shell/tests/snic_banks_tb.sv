// Packets of the old bank: a commit waits for them, and leaves their rows alone.

module snic_banks_tb
    import snic_map_pkg::*;
;
    localparam int unsigned INDEX_BITS = $clog2(BANK_WORDS);
    localparam logic [INDEX_BITS-1:0] RATE = INDEX_BITS'(table_offset(TABLE_RATELIMITER) + 4 * 7 + 1);

    logic  clock = 1'b0;
    logic  reset = 1'b1;
    logic  commit = 1'b0;
    logic  abort = 1'b0;
    word_t commit_version = 32'd0;
    word_t waits = 32'd0;
    word_t version;
    word_t status;
    word_t commit_waits;
    logic  read = 1'b0;
    logic  write = 1'b0;
    logic  shadow = 1'b0;
    logic [INDEX_BITS-1:0] index = RATE;
    word_t write_data = 32'd0;
    word_t read_data;
    logic [1:0] used;
    logic [1:0][31:0] used_by;
    logic  active;
    logic  is_clear;
    logic [TABLES-1:0] look = '0;
    logic  look_bank = 1'b0;
    logic [11:0] look_row = 12'd0;
    logic [5:0][31:0] dag_row;
    logic [3:0][31:0] stage_row;
    logic [1:0][31:0] chain_row;
    logic [1:0][31:0] instance_row;
    logic [1:0][31:0] region_row;
    logic [1:0][31:0] credit_row;
    int    checks = 0;

    snic_banks banks (.*);

    // The first bank is the old one of the commit below, and nobody waits for packets of the other.
    assign used    = {1'b1, waits != 32'd0};
    assign used_by = {32'hf0, waits};

    always #2 clock = !clock;

    task automatic check(input word_t is, input word_t expected, input string what);
        if (is !== expected) begin
            $display("%s: %0d, expected %0d", what, is, expected);
            $fatal;
        end
        checks++;
    endtask

    task automatic cycles(input int count);
        repeat (count) @(negedge clock);
    endtask

    task automatic put(input word_t data);
        {write, shadow, write_data} = {1'b1, 1'b1, data};
        cycles(1);
        {write, shadow} = 2'b00;
        cycles(2);
    endtask

    task automatic get(input logic of_shadow, output word_t data);
        {read, shadow} = {1'b1, of_shadow};
        cycles(1);
        read = 1'b0;
        cycles(3);
        data = read_data;
    endtask

    task automatic ask(input logic for_commit, input word_t next);
        {commit, abort, commit_version} = {for_commit, !for_commit, next};
        cycles(1);
        {commit, abort} = 2'b00;
    endtask

    task automatic both(input word_t active_is, input word_t shadow_is, input string what);
        word_t data;
        get(1'b0, data);
        check(data, active_is, {what, ", the active bank"});
        get(1'b1, data);
        check(data, shadow_is, {what, ", the shadow bank"});
    endtask

    initial begin
        cycles(4);
        reset = 1'b0;
        while (status == COMMIT_BUSY) cycles(1);
        put(32'd5);
        both(32'd0, 32'd5, "before the commit");
        waits = 32'b101;
        ask(1'b1, 32'd1);
        check(version, 32'd1, "the version");
        for (int i = 0; i < 20; i++) begin
            check(status, COMMIT_BUSY, "while packets of the old bank are under way");
            check(commit_waits, waits, "the regions that are waited for");
            both(32'd5, 32'd0, "while packets of the old bank are under way");
            put(32'd9);
            ask(1'b0, 32'd0);
            ask(1'b1, 32'd2);
            if (i == 10) waits = 32'b100;
            cycles(50);
        end
        waits = 32'd0;
        cycles(1);
        check(commit_waits, 32'd0, "regions that are waited for without packets");
        while (status == COMMIT_BUSY) cycles(1);
        both(32'd5, 32'd5, "after the commit");
        check(status, COMMIT_REFUSED, "the commits in between");
        check(version, 32'd1, "the version");
        // An abort waits for nobody: packets read the active bank.
        waits = 32'b1;
        put(32'd6);
        ask(1'b0, 32'd0);
        check(commit_waits, 32'd0, "regions that an abort waits for");
        while (status == COMMIT_BUSY) cycles(1);
        both(32'd5, 32'd5, "after the abort");
        check(status, COMMIT_IDLE, "the status after the abort");
        $display("ok %0d", checks);
        $finish;
    end
endmodule
