# Writes the module that goes into a region: the chain's NTs one behind the other, each a slot.
#
# NT acme.filter is module nt_acme_filter, with the ports of ../rtl/snic_nt.sv. The module has a ROM too, which
# the shell shows as REGION_NTS and REGION_IDENTITY.

namespace eval ::snic::wrapper {
    proc module {nt} {
        return "nt_[string map {. _ - _} $nt]"
    }

    proc save {manifest identity path} {
        set channel [open $path w]
        puts -nonewline $channel [text $manifest $identity]
        close $channel
    }

    proc text {manifest identity} {
        set nts [dict get $manifest nts]
        set slots [llength $nts]
        set width [dict get $manifest constraints.width_bits]
        set out "// Made from a manifest for [dict get $manifest card_model]: [join $nts { -> }].\n"
        append out "module snic_chain (\n"
        append out "    input logic clock,\n    input logic reset,\n"
        append out "    input logic \[3:0\] rom_address,\n    output logic \[31:0\] rom_data,\n"
        append out "    snic_nt_stream.sink packets_in,\n    snic_nt_stream.source packets_out,\n"
        append out "    snic_nt_control.slave control \[$slots\],\n"
        append out "    snic_nt_state.slave state \[$slots\]\n);\n"
        append out "    snic_nt_stream #(.WIDTH($width)) link \[[expr {$slots + 1}]\] (.clock, .reset);\n"
        append out "    snic_nt_join join_in (.from(packets_in), .to(link\[0\]));\n"
        append out "    snic_nt_join join_out (.from(link\[$slots\]), .to(packets_out));\n"
        set codes {}
        foreach nt $nts { lappend codes "32'h[::snic::identity::code $nt]" }
        while {[llength $codes] < 8} { lappend codes "32'h00000000" }
        append out "    snic_chain_rom #(\n        .NTS({[join $codes {, }]}),\n"
        append out "        .IDENTITY(128'h$identity)\n    ) rom (.clock, .address(rom_address),\
            .data(rom_data));\n"
        set slot 0
        foreach nt $nts {
            append out "    [module $nt] slot_$slot (\n"
            append out "        .clock, .reset, .packets_in(link\[$slot\]),\
                .packets_out(link\[[incr slot]\]),\n"
            append out "        .control(control\[[expr {$slot - 1}]\]),\
                .state(state\[[expr {$slot - 1}]\])\n    );\n"
        }
        append out "endmodule\n"
        return $out
    }
}
