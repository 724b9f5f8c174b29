// What the modules of the data path tell each other of a packet.

package snic_packet_pkg;
    // Places of the packet store, one for each packet, and beats of a place.
    localparam int unsigned PLACE_BITS = 9;
    localparam int unsigned BEAT_BITS  = 5;
    localparam int unsigned PLACES     = 2**PLACE_BITS;
    localparam int unsigned BEAT_BYTES = 64;
    localparam int unsigned SLOTS      = 8;

    typedef logic [PLACE_BITS-1:0] place_t;
    typedef logic [BEAT_BITS-1:0]  beat_t;
    // Bytes of a packet, up to those of a place.
    typedef logic [BEAT_BITS+6:0]  bytes_t;
    // A cycle, of which differences count.
    typedef logic [31:0]           cycle_t;
    typedef logic [4:0]            region_t;
    typedef logic [SLOTS-1:0]      slots_t;
    // What a region gets with a packet and has to say of it again: place, region, and times that the region was taken out.
    typedef logic [31:0]           tag_t;

    // A packet that came in.
    typedef struct packed {
        place_t      place;
        logic        has_place;
        logic        fits;        // the place has all of it
        logic        has_uid;
        logic [31:0] uid;
        logic [15:0] bytes;
        logic        bank;
        cycle_t      arrived;
    } arrival_t;

    // A packet on its way through a region.
    typedef struct packed {
        logic        bank;
        logic [31:0] uid;
        logic [31:0] configuration;
        bytes_t      bytes;
        logic        payload;
        logic [15:0] next;        // stage, all ones behind the last
        region_t     region;
        slots_t      used;
        logic [SLOTS-1:0][6:0] credits;
        cycle_t      due;
    } packet_t;

    // A packet that is no more.
    typedef struct packed {
        place_t     place;
        logic       has_place;
        logic       bank;
        logic       is_dropped;
        logic [3:0] cause;
    } ended_t;

    // What goes beside the first beat to a region.
    typedef struct packed {
        logic [31:0] uid;
        logic [31:0] configuration;
        logic [15:0] bytes;
        tag_t        tag;
        slots_t      used;
    } descriptor_t;

    // What a region says of a packet with its first beat.
    typedef struct packed {
        logic [15:0] bytes;
        tag_t        tag;
        logic        drop;
    } reply_t;

    function automatic bytes_t beats_of(input bytes_t bytes);
        return (bytes + bytes_t'(BEAT_BYTES - 1)) >> 6;
    endfunction

    // Whether a cycle has come.
    function automatic logic is_due(input cycle_t now, input cycle_t due);
        return now - due < 32'h8000_0000;
    endfunction
endpackage
