// The look-up: which rows a packet follows, in the bank that it began with.
//
//   arrival ─► DAG ─┐                                        ┌─► a waiting packet of a region
//   from a region ──┴─► STAGE ─► CHAIN ─► INSTANCE ─► REGION ┴─► or dropped, for a cause
//
// A packet at a time, a row in three cycles or in one more for each access of the host. Packets that come back go first. A DAG
// with a token bucket, a fork and a chain of several instances are not served yet: their packets are dropped.

module snic_lookup
    import snic_map_pkg::*;
    import snic_packet_pkg::*;
#(
    parameter int unsigned REGIONS_HERE = 16,
    parameter int unsigned CREDITS = 8,       // of each slot, where no row says it
    parameter int unsigned PASS_CYCLES = 16,
    parameter int unsigned FRONT_CYCLES = 17, // from the first beat to the scheduler
    localparam int unsigned INDEX_BITS = $clog2(REGIONS_HERE)
) (
    input  logic         clock,
    input  logic         reset,

    // A packet that came, or one that comes back for its next stage.
    input  logic         has_arrival,
    input  arrival_t     arrival,
    output logic         take_arrival,
    input  logic         has_again,
    input  place_t       again_place,
    input  packet_t      again,
    output logic         take_again,

    // Rows of the tables: there two cycles behind the one in which they are granted.
    output logic [TABLES-1:0] look,
    output logic         look_bank,
    output logic [11:0]  look_row,
    input  logic         look_granted,
    input  logic [5:0][31:0] dag_row,
    input  logic [3:0][31:0] stage_row,
    input  logic [1:0][31:0] chain_row,
    input  logic [1:0][31:0] instance_row,
    input  logic [1:0][31:0] region_row,
    input  logic [1:0][31:0] credit_row,

    // What the regions hold: the first word of the digest, slots with an NT; packets that wait for each or are in it.
    input  logic [REGIONS_HERE-1:0][31:0] tags,
    input  logic [REGIONS_HERE-1:0][SLOTS-1:0] present,
    input  logic [REGIONS_HERE-1:0][PLACE_BITS:0] loads,
    input  logic [PLACE_BITS:0] free,

    // A packet of a DAG came, for the DAG's counters.
    output logic         counts,
    output logic [9:0]   count_row,
    output logic [15:0]  count_bytes,

    output logic         put,
    output place_t       put_place,
    output packet_t      put_packet,
    output logic         ends,
    output ended_t       ended,
    input  logic         ends_taken
);
    typedef enum logic [2:0] {AT_DAG, AT_STAGE, AT_CHAIN, AT_INSTANCE, AT_REGION} row_t;
    typedef enum logic [2:0] {IDLE, ASK, WAIT, USE, PUT, END} state_t;
    state_t  state;
    row_t    row;
    place_t  place;
    packet_t packet;
    arrival_t came;
    logic [15:0] index;
    logic [3:0] cause;
    logic       has_place;

    // Of the row that is there.
    logic [3:0][15:0] chains;
    logic [2:0] branches;
    logic [15:0] chain;
    logic [INDEX_BITS-1:0] number;
    logic [7:0] region_number;
    logic [SLOTS-1:0][6:0] credits;
    slots_t has_credits;
    logic   fails;
    logic [3:0] fails_for;
    logic   is_valid;

    assign chains = {stage_row[2][15:0], stage_row[2][31:16], stage_row[1][15:0],
        stage_row[STAGE_CHAIN_FIRST_LOW / 32][STAGE_CHAIN_FIRST_LOW % 32 +: STAGE_CHAIN_FIRST_BITS]};
    always_comb begin
        branches = 3'd0;
        chain = '1;
        for (int i = 0; i < 4; i++) begin
            branches += 3'(chains[i] != '1);
            chain &= chains[i];
        end
        for (int i = 0; i < int'(SLOTS); i++) begin
            credits[i] = credit_row[0][31] ? credit_row[i/4][7*(i%4) +: 7] : 7'(CREDITS);
            has_credits[i] = credits[i] != 7'd0;
        end
    end
    assign region_number = instance_row[INSTANCE_REGION_LOW / 32][INSTANCE_REGION_LOW % 32 +: INSTANCE_REGION_BITS];
    assign number = packet.region[INDEX_BITS-1:0];

    always_comb begin
        is_valid = 1'b0;
        fails = 1'b0;
        fails_for = 4'(DROP_NO_INSTANCE);
        case (row)
            AT_DAG: begin
                is_valid = dag_row[0][31];
                fails = dag_row[DAG_UID_LOW / 32] != came.uid
                    || dag_row[DAG_IS_GUEST_LOW / 32][DAG_IS_GUEST_LOW % 32];
                fails_for = 4'(DROP_STALE_UID);
            end
            AT_STAGE: begin
                is_valid = stage_row[0][31];
                fails = branches != 3'd1;
            end
            AT_CHAIN: begin
                is_valid = chain_row[0][31];
                fails = chain_row[0][CHAIN_INSTANCES_LOW +: CHAIN_INSTANCES_BITS] != 16'd1;
            end
            AT_INSTANCE: begin
                is_valid = instance_row[0][31];
                fails = instance_row[0][INSTANCE_ON_LINK_LOW] || instance_row[INSTANCE_WEIGHT_LOW / 32] == 32'd0
                    || instance_row[0][INSTANCE_USED_LOW +: INSTANCE_USED_BITS] == '0;
                if (is_valid && !fails && region_number >= 8'(REGIONS_HERE)) begin
                    fails = 1'b1;
                    fails_for = 4'(DROP_REGION_UNAVAILABLE);
                end
            end
            default: begin
                is_valid = 1'b1;
                fails_for = 4'(DROP_REGION_UNAVAILABLE);
                fails = !region_row[0][31] || region_row[REGION_TAG_LOW / 32] != tags[number]
                    || (packet.used & ~(present[number] & has_credits)) != '0;
                // One region has no more places than it leaves to the others.
                if (!fails && loads[number] > free) begin
                    fails = 1'b1;
                    fails_for = 4'(DROP_STORE_FULL);
                end
            end
        endcase
        if (!is_valid) fails = 1'b1;
    end

    assign take_again   = state == IDLE && has_again;
    assign take_arrival = state == IDLE && !has_again && has_arrival;
    always_comb begin
        look = '0;
        if (state == ASK) case (row)
            AT_DAG:      look[TABLE_DAG] = 1'b1;
            AT_STAGE:    look[TABLE_STAGE] = 1'b1;
            AT_CHAIN:    look[TABLE_CHAIN] = 1'b1;
            AT_INSTANCE: look[TABLE_INSTANCE] = 1'b1;
            default: begin
                look[TABLE_REGION] = 1'b1;
                look[TABLE_CREDIT] = 1'b1;
            end
        endcase
    end
    assign look_bank = packet.bank;
    assign look_row  = index[11:0];

    assign count_row   = came.uid[9:0];
    assign count_bytes = came.bytes;
    assign put_place   = place;
    assign put_packet  = packet;
    assign put         = state == PUT;
    assign ends        = state == END;
    assign ended       = '{place: place, has_place: has_place, bank: packet.bank, is_dropped: 1'b1, cause: cause};

    task automatic fail(input logic [3:0] for_cause);
        cause <= for_cause;
        state <= END;
    endtask

    task automatic ask(input row_t of, input logic [15:0] at, input int unsigned rows);
        row   <= of;
        index <= at;
        if (32'(at) < rows) state <= ASK;
        else fail(4'(DROP_NO_INSTANCE));
    endtask

    always_ff @(posedge clock) begin
        counts <= 1'b0;
        case (state)
            IDLE: if (has_again) begin
                place     <= again_place;
                has_place <= 1'b1;
                packet    <= again;
                ask(AT_STAGE, again.next, table_rows(TABLE_STAGE));
            end else if (has_arrival) begin
                came         <= arrival;
                place        <= arrival.place;
                has_place    <= arrival.has_place;
                packet.bank  <= arrival.bank;
                packet.uid   <= arrival.uid;
                packet.bytes <= arrival.bytes[BEAT_BITS+6:0];
                packet.due   <= arrival.arrived + cycle_t'(FRONT_CYCLES + PASS_CYCLES);
                if (arrival.has_uid) ask(AT_DAG, {6'd0, arrival.uid[9:0]}, table_rows(TABLE_DAG));
                else fail(4'(DROP_UNCLASSIFIED));
            end
            ASK: if (look_granted) state <= WAIT;
            WAIT: state <= USE;
            USE: if (row == AT_DAG) begin
                counts <= !fails && !reset;
                packet.payload       <= dag_row[0][DAG_PAYLOAD_LOW];
                packet.configuration <= dag_row[DAG_CONFIGURATION_LOW / 32];
                if (fails) fail(fails_for);
                else if (dag_row[3][15:0] != '1) fail(4'(DROP_RATE_LIMITED));
                else if (!came.fits) fail(4'(DROP_STORE_FULL));
                else ask(AT_STAGE, dag_row[2][31:16], table_rows(TABLE_STAGE));
            end else if (fails) fail(fails_for);
            else case (row)
                AT_STAGE: begin
                    packet.next <= stage_row[0][STAGE_LAST_LOW] ? '1 : stage_row[3][15:0];
                    ask(AT_CHAIN, chain, table_rows(TABLE_CHAIN));
                end
                AT_CHAIN: ask(AT_INSTANCE, chain_row[1][15:0], table_rows(TABLE_INSTANCE));
                AT_INSTANCE: begin
                    packet.region <= region_number[4:0];
                    packet.used   <= instance_row[0][INSTANCE_USED_LOW +: INSTANCE_USED_BITS];
                    ask(AT_REGION, {11'd0, region_number[4:0]}, table_rows(TABLE_REGION));
                end
                default: begin
                    packet.credits <= credits;
                    state <= PUT;
                end
            endcase
            PUT: state <= IDLE;
            END: if (ends_taken) state <= IDLE;
            default: state <= IDLE;
        endcase
        if (reset) state <= IDLE;
    end
    logic unused;
    assign unused = &{came, index, region_row};
endmodule
