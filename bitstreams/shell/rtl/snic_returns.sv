// What becomes of a packet that leaves its region: it goes on to its next stage or to the port, or it is dropped.
//
// A packet at a time. It has to come back as long as it was, in as many beats as went there; tasks that change lengths come later. A
// shorter one would show what was in the store before it, so anything else ends as what its NT dropped.

module snic_returns
    import snic_map_pkg::*;
    import snic_packet_pkg::*;
#(
    // From where the scheduler lets a packet go to where its region takes it, where nobody waits.
    parameter int unsigned CROSS_CYCLES = 4,
    parameter int unsigned PASS_CYCLES  = 16,
    parameter int unsigned BACK_CYCLES  = 16
) (
    input  logic         clock,
    input  logic         reset,

    input  logic         leaves,
    input  place_t       leaves_place,
    input  logic         is_lost,
    input  bytes_t       leaves_beats,
    input  cycle_t       leaves_first,
    input  reply_t       leaves_reply,
    output logic         is_free,

    // The packet of a place, a cycle later.
    output place_t       packet_place,
    input  packet_t      packet,

    output logic         left,
    output packet_t      leaving,
    output logic         again,
    output logic         goes_out,
    output place_t       place,
    output cycle_t       due,

    output logic         ends,
    output ended_t       ended,
    input  logic         ends_taken
);
    typedef enum logic [1:0] {IDLE, READ, JUDGE, END} state_t;
    state_t state;
    logic   lost;
    bytes_t beats;
    cycle_t first;
    reply_t said;
    bytes_t beats_there;
    logic   is_whole;
    logic   is_through;
    logic   bank;
    logic [3:0] cause;

    assign is_free      = state == IDLE;
    assign packet_place = place;
    assign beats_there  = packet.payload ? beats_of(packet.bytes) : bytes_t'(1);
    assign is_whole     = beats == beats_there && said.bytes == 16'(packet.bytes);
    assign is_through   = state == JUDGE && !lost && !said.drop && is_whole;
    assign left         = state == JUDGE;
    assign leaving      = packet;
    assign again        = is_through && packet.next != '1;
    assign goes_out     = is_through && packet.next == '1;
    assign due = first - cycle_t'(CROSS_CYCLES)
        + (packet.next == '1 ? cycle_t'(BACK_CYCLES) : cycle_t'(PASS_CYCLES));
    assign ends  = state == END;
    assign ended = '{place: place, has_place: 1'b1, bank: bank, is_dropped: 1'b1, cause: cause};

    always_ff @(posedge clock) begin
        case (state)
            IDLE: if (leaves) begin
                place <= leaves_place;
                lost  <= is_lost;
                beats <= leaves_beats;
                first <= leaves_first;
                said  <= leaves_reply;
                state <= READ;
            end
            READ: state <= JUDGE;
            JUDGE: begin
                bank  <= packet.bank;
                cause <= lost ? 4'(DROP_REGION_UNAVAILABLE) : 4'(DROP_BY_NT);
                state <= is_through ? IDLE : END;
            end
            default: if (ends_taken) state <= IDLE;
        endcase
        if (reset) state <= IDLE;
    end

`ifdef SNIC_ASSERTIONS
    always_ff @(posedge clock) if (!reset) assert (!(leaves && !is_free));
`endif
    logic unused;
    assign unused = &said.tag;
endmodule
