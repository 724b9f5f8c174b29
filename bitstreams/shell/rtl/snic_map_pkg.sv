// The register map and the tables for the shell: numbers only.
// Made from the crate snic-tables, whose test `shell` holds it against that and writes it; do not edit.

// A part of the shell needs a part of the map.
/* verilator lint_off UNUSEDPARAM */
package snic_map_pkg;
    localparam int unsigned ADDRESS_BITS = 22;
    typedef logic [ADDRESS_BITS-1:0] address_t;
    typedef logic [31:0] word_t;

    // Byte addresses, and places in pages.
    localparam address_t LOAD_REGION = 22'h40;
    localparam address_t LOAD_BUFFER_LOW = 22'h44;
    localparam address_t LOAD_BUFFER_HIGH = 22'h48;
    localparam address_t LOAD_BYTES = 22'h4c;
    localparam address_t LOAD_START = 22'h50;
    localparam address_t LOAD_STATUS = 22'h54;
    localparam address_t LOAD_PROGRESS = 22'h58;
    localparam address_t LOAD_ERROR = 22'h5c;
    localparam address_t BULK_BUFFER_LOW = 22'h80;
    localparam address_t BULK_BUFFER_HIGH = 22'h84;
    localparam address_t BULK_BYTES = 22'h88;
    localparam address_t BULK_START = 22'h8c;
    localparam address_t BULK_STATUS = 22'h90;
    localparam address_t MAGIC = 22'h100;
    localparam address_t LAYOUT = 22'h104;
    localparam address_t CAPABILITIES = 22'h108;
    localparam address_t REGION_COUNT = 22'h10c;
    localparam address_t IDCODE = 22'h110;
    localparam address_t BOOT_ID = 22'h114;
    localparam address_t LINK_COUNT = 22'h118;
    localparam address_t TABLE_VERSION = 22'h120;
    localparam address_t COMMIT = 22'h124;
    localparam address_t ABORT = 22'h128;
    localparam address_t COMMIT_STATUS = 22'h12c;
    localparam address_t COMMIT_WAITS = 22'h130;
    localparam address_t CLOCK_CYCLES = 22'h3ff8;
    localparam address_t PACKETS_IN = 22'h4000;
    localparam address_t PACKETS_OUT = 22'h4008;
    localparam address_t DROPS = 22'h4010;
    localparam address_t DAG_LOAD = 22'h10000;
    localparam address_t REGIONS = 22'h1000;
    localparam address_t REGION_PAGE = 22'h100;
    localparam address_t REGION_STATUS = 22'h0;
    localparam address_t REGION_CONTROL = 22'h4;
    localparam address_t REGION_IN_FLIGHT = 22'h8;
    localparam address_t REGION_DIGEST = 22'h10;
    localparam address_t REGION_DIGEST_NEXT = 22'h30;
    localparam address_t REGION_NTS = 22'h50;
    localparam address_t REGION_IDENTITY = 22'h70;
    localparam address_t ACTIVE_BANK = 22'h80000;
    localparam address_t SHADOW_BANK = 22'h100000;
    localparam address_t BANK_BYTES = 22'h70900;

    // Values.
    localparam word_t LOAD_IDLE = 32'h0;
    localparam word_t LOAD_BUSY = 32'h1;
    localparam word_t LOAD_DONE = 32'h2;
    localparam word_t LOAD_FAILED = 32'h3;
    localparam word_t LOAD_ERROR_PACKETS = 32'h1;
    localparam word_t LOAD_ERROR_REGION = 32'h2;
    localparam word_t LOAD_ERROR_BUSY = 32'h3;
    localparam word_t LOAD_ERROR_IDENTITY = 32'h4;
    localparam word_t BULK_TO_TABLES = 32'h1;
    localparam word_t BULK_TO_HOST = 32'h2;
    localparam word_t BULK_IDLE = 32'h0;
    localparam word_t BULK_BUSY = 32'h1;
    localparam word_t BULK_DONE = 32'h2;
    localparam word_t BULK_REFUSED = 32'h3;
    localparam word_t BULK_BYTES_MAX = 32'h100000;
    localparam word_t MAGIC_VALUE = 32'h534e4943;
    localparam word_t LAYOUT_VALUE = 32'h4;
    localparam word_t CAPABILITY_BULK = 32'h1;
    localparam word_t CAPABILITY_CLOCK = 32'h20;
    localparam word_t COMMIT_IDLE = 32'h0;
    localparam word_t COMMIT_BUSY = 32'h1;
    localparam word_t COMMIT_REFUSED = 32'h2;
    localparam word_t COMMIT_NO_LINK = 32'h3;
    localparam word_t CAPABILITY_LINKS = 32'h100;
    localparam word_t REGION_EMPTY = 32'h0;
    localparam word_t REGION_LOADING = 32'h1;
    localparam word_t REGION_LOADED = 32'h2;
    localparam word_t REGION_BROKEN = 32'h3;
    localparam word_t REGION_DECOUPLE = 32'h1;
    localparam word_t REGION_RESET = 32'h2;

    // Causes of drops, in the order of their counters.
    localparam int unsigned DROP_UNCLASSIFIED = 0;
    localparam int unsigned DROP_STALE_UID = 1;
    localparam int unsigned DROP_RATE_LIMITED = 2;
    localparam int unsigned DROP_STORE_FULL = 3;
    localparam int unsigned DROP_REGION_UNAVAILABLE = 4;
    localparam int unsigned DROP_NO_INSTANCE = 5;
    localparam int unsigned DROP_MIXED_VERSIONS = 6;
    localparam int unsigned DROP_MEMORY_FAULT = 7;
    localparam int unsigned DROP_BY_NT = 8;
    localparam int unsigned DROP_USED_UP = 9;
    localparam int unsigned DROP_LINK_FULL = 10;
    localparam int unsigned DROP_LINK_LOST = 11;
    localparam int unsigned DROP_NO_GUEST = 12;
    localparam int unsigned DROP_CAUSES = 13;

    // Tables, in the order in a bank.
    localparam int unsigned TABLE_CLASSIFIER = 0;
    localparam int unsigned TABLE_DAG = 1;
    localparam int unsigned TABLE_STAGE = 2;
    localparam int unsigned TABLE_CHAIN = 3;
    localparam int unsigned TABLE_INSTANCE = 4;
    localparam int unsigned TABLE_REGION = 5;
    localparam int unsigned TABLE_CREDIT = 6;
    localparam int unsigned TABLE_RATELIMITER = 7;
    localparam int unsigned TABLE_PAGE = 8;
    localparam int unsigned TABLE_GUARD = 9;
    localparam int unsigned TABLES = 10;
    localparam int unsigned BANK_WORDS = 115264;

    function automatic int unsigned table_offset(input int unsigned table_number);
        case (table_number)
            0: return 0;
            1: return 16384;
            2: return 24576;
            3: return 57344;
            4: return 61440;
            5: return 69632;
            6: return 70144;
            7: return 70208;
            8: return 74304;
            9: return 107072;
            default: return 0;
        endcase
    endfunction

    function automatic int unsigned table_rows(input int unsigned table_number);
        case (table_number)
            0: return 1024;
            1: return 1024;
            2: return 4096;
            3: return 1024;
            4: return 2048;
            5: return 32;
            6: return 32;
            7: return 1024;
            8: return 8192;
            9: return 512;
            default: return 0;
        endcase
    endfunction

    function automatic int unsigned table_row_words(input int unsigned table_number);
        case (table_number)
            0: return 16;
            1: return 8;
            2: return 8;
            3: return 4;
            4: return 4;
            5: return 16;
            6: return 2;
            7: return 4;
            8: return 4;
            9: return 16;
            default: return 0;
        endcase
    endfunction

    // Words of a row that have a column: a bit for each.
    function automatic int unsigned table_kept(input int unsigned table_number);
        case (table_number)
            0: return 2047;
            1: return 63;
            2: return 15;
            3: return 3;
            4: return 3;
            5: return 4083;
            6: return 3;
            7: return 15;
            8: return 7;
            9: return 65535;
            default: return 0;
        endcase
    endfunction

    // Columns of a row: the lowest bit, counted from bit 0 of word 0, and the number of bits.
    localparam int unsigned DAG_TENANT_LOW = 0;
    localparam int unsigned DAG_TENANT_BITS = 16;
    localparam int unsigned DAG_UID_LOW = 32;
    localparam int unsigned DAG_UID_BITS = 32;
    localparam int unsigned DAG_FIRST_STAGE_LOW = 80;
    localparam int unsigned DAG_FIRST_STAGE_BITS = 16;
    localparam int unsigned DAG_STAGES_LOW = 64;
    localparam int unsigned DAG_STAGES_BITS = 16;
    localparam int unsigned DAG_RATE_LIMITER_LOW = 96;
    localparam int unsigned DAG_RATE_LIMITER_BITS = 16;
    localparam int unsigned DAG_PAYLOAD_LOW = 30;
    localparam int unsigned DAG_PAYLOAD_BITS = 1;
    localparam int unsigned DAG_CONFIGURATION_LOW = 128;
    localparam int unsigned DAG_CONFIGURATION_BITS = 32;
    localparam int unsigned DAG_IS_GUEST_LOW = 127;
    localparam int unsigned DAG_IS_GUEST_BITS = 1;
    localparam int unsigned DAG_LINK_LOW = 112;
    localparam int unsigned DAG_LINK_BITS = 8;
    localparam int unsigned DAG_HOME_UID_LOW = 160;
    localparam int unsigned DAG_HOME_UID_BITS = 32;
    localparam int unsigned STAGE_CHAIN_FIRST_LOW = 48;
    localparam int unsigned STAGE_CHAIN_FIRST_BITS = 16;
    localparam int unsigned STAGE_JOIN_MASK_LOW = 8;
    localparam int unsigned STAGE_JOIN_MASK_BITS = 4;
    localparam int unsigned STAGE_NEXT_LOW = 96;
    localparam int unsigned STAGE_NEXT_BITS = 16;
    localparam int unsigned STAGE_LAST_LOW = 30;
    localparam int unsigned STAGE_LAST_BITS = 1;
    localparam int unsigned CHAIN_FIRST_LOW = 32;
    localparam int unsigned CHAIN_FIRST_BITS = 16;
    localparam int unsigned CHAIN_INSTANCES_LOW = 0;
    localparam int unsigned CHAIN_INSTANCES_BITS = 16;
    localparam int unsigned CHAIN_BY_FLOW_LOW = 29;
    localparam int unsigned CHAIN_BY_FLOW_BITS = 1;
    localparam int unsigned CHAIN_BY_LOAD_LOW = 30;
    localparam int unsigned CHAIN_BY_LOAD_BITS = 1;
    localparam int unsigned INSTANCE_REGION_LOW = 0;
    localparam int unsigned INSTANCE_REGION_BITS = 8;
    localparam int unsigned INSTANCE_USED_LOW = 8;
    localparam int unsigned INSTANCE_USED_BITS = 8;
    localparam int unsigned INSTANCE_ON_LINK_LOW = 30;
    localparam int unsigned INSTANCE_ON_LINK_BITS = 1;
    localparam int unsigned INSTANCE_LINK_LOW = 0;
    localparam int unsigned INSTANCE_LINK_BITS = 8;
    localparam int unsigned INSTANCE_ENTRY_LOW = 16;
    localparam int unsigned INSTANCE_ENTRY_BITS = 10;
    localparam int unsigned INSTANCE_WEIGHT_LOW = 32;
    localparam int unsigned INSTANCE_WEIGHT_BITS = 32;
    localparam int unsigned REGION_TAG_LOW = 32;
    localparam int unsigned REGION_TAG_BITS = 32;
    localparam int unsigned CREDIT_FIRST_LOW = 0;
    localparam int unsigned CREDIT_FIRST_BITS = 7;
    localparam int unsigned LIMITER_RATE_LOW = 32;
    localparam int unsigned LIMITER_RATE_BITS = 32;
    localparam int unsigned LIMITER_BURST_LOW = 64;
    localparam int unsigned LIMITER_BURST_BITS = 32;
    localparam int unsigned LIMITER_PROMISED_LOW = 96;
    localparam int unsigned LIMITER_PROMISED_BITS = 32;
    localparam int unsigned LIMITER_PACKET_LOW = 16;
    localparam int unsigned LIMITER_PACKET_BITS = 14;
    localparam int unsigned LIMITER_WEIGHT_LOW = 0;
    localparam int unsigned LIMITER_WEIGHT_BITS = 16;

    // Whether the map has a register at this address.
    function automatic logic is_register(input address_t at);
        logic known;
        known = 1'b0;
        if ((at >= 22'h40 && at <= 22'h5f)
            || (at >= 22'h80 && at <= 22'h93)
            || (at >= 22'ha0 && at <= 22'hab)
            || (at >= 22'hc0 && at <= 22'hdb)
            || (at >= 22'he0 && at <= 22'he3)
            || (at >= 22'hf0 && at <= 22'hf3)
            || (at >= 22'h100 && at <= 22'h11b)
            || (at >= 22'h120 && at <= 22'h133))
            known = 1'b1;
        if (at >= 22'h1000 && at <= 22'h2fff)
            known = at[7:0] <= 8'hb
            || at[7:0] >= 8'h10;
        if (at >= 22'h3ff8 && at <= 22'h4077)
            known = 1'b1;
        if (at >= 22'h5000 && at <= 22'h57ff)
            known = at[5:0] <= 6'h23;
        if ((at >= 22'h5800 && at <= 22'h582f)
            || (at >= 22'h5840 && at <= 22'h586f)
            || (at >= 22'h5880 && at <= 22'h58af)
            || (at >= 22'h58c0 && at <= 22'h58ef)
            || (at >= 22'h5900 && at <= 22'h592f)
            || (at >= 22'h5940 && at <= 22'h596f)
            || (at >= 22'h5980 && at <= 22'h59af)
            || (at >= 22'h59c0 && at <= 22'h59ef)
            || (at >= 22'h5a00 && at <= 22'h5a2f)
            || (at >= 22'h5a40 && at <= 22'h5a6f)
            || (at >= 22'h5a80 && at <= 22'h5aaf)
            || (at >= 22'h5ac0 && at <= 22'h5aef)
            || (at >= 22'h5b00 && at <= 22'h5b2f)
            || (at >= 22'h5b40 && at <= 22'h5b6f)
            || (at >= 22'h5b80 && at <= 22'h5baf)
            || (at >= 22'h5bc0 && at <= 22'h5bef)
            || (at >= 22'h8000 && at <= 22'h8fff)
            || (at >= 22'h10000 && at <= 22'h17fff)
            || (at >= 22'h20000 && at <= 22'h63fff)
            || (at >= 22'h80000 && at <= 22'hf08ff)
            || (at >= 22'h100000 && at <= 22'h1708ff))
            known = 1'b1;
        return known && at[1:0] == 2'd0;
    endfunction
endpackage
/* verilator lint_on UNUSEDPARAM */
