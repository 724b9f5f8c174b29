# Runs the flow without Vivado: every command of the tools is a stub that writes down that it was
# called, and anything that is no stub and no Tcl is an error. Prints `ok` and the number of checks.

set root [file dirname [file dirname [file normalize [info script]]]]
set argv {}
source [file join $root tcl main.tcl]

set checks 0
proc check {what condition} {
    incr ::checks
    if {![uplevel 1 [list expr $condition]]} {
        puts stderr "FAILED: $what"
        exit 1
    }
}
proc check_error {what pattern script} {
    incr ::checks
    if {![catch {uplevel 1 $script} message]} {
        puts stderr "FAILED: $what: no error"
        exit 1
    }
    if {![string match $pattern $message]} {
        puts stderr "FAILED: $what: $message"
        exit 1
    }
}

# The tools.
set calls {}
set slack 0.1
set bytes 1000
set stubs {
    set_param create_project close_project read_verilog read_xdc synth_design opt_design place_design
    route_design write_checkpoint open_checkpoint read_checkpoint create_pblock add_cells_to_pblock
    resize_pblock set_property report_property report_utilization update_design lock_design pr_verify
    pr_subdivide pr_recombine add_files update_compile_order package_xo
    ipx::package_project ipx::associate_bus_interfaces ipx::create_xgui_files ipx::update_checksums
    ipx::save_core
}
namespace eval ipx {}
foreach stub $stubs {
    proc $stub {args} [format {lappend ::calls [linsert $args 0 %s]} $stub]
}
foreach stub {get_cells get_pblocks} {
    proc $stub {name} [format {return "%s:$name"} $stub]
}
proc current_design {} { return design }
proc current_fileset {} { return fileset }
proc ipx::current_core {} { return core }
proc get_timing_paths {args} { return path }
proc get_property {property object} {
    if {$property ne "SLACK"} { error "unexpected property $property" }
    return $::slack
}
proc write_bitstream {args} {
    lappend ::calls [linsert $args 0 write_bitstream]
    set channel [open [lindex $args end] w]
    puts -nonewline $channel [string repeat x $::bytes]
    close $channel
}
rename unknown {}
proc unknown {name args} { error "no such command: $name" }

proc names {} {
    set names {}
    foreach call $::calls { lappend names [lindex $call 0] }
    return $names
}
# Whether the commands were called in this order, others between them or not.
proc in_order {wanted} {
    set rest [names]
    foreach name $wanted {
        set at [lsearch -exact $rest $name]
        if {$at < 0} { return 0 }
        set rest [lrange $rest [expr {$at + 1}] end]
    }
    return 1
}
proc count {name} { return [llength [lsearch -all -exact [names] $name]] }

# A work folder with settings, a floor plan and a manifest.
set work [file join [expr {[info exists env(TMPDIR)] ? $env(TMPDIR) : "/tmp"}] snic-flow-[pid]]
file mkdir $work
proc put {name text} {
    set path [file join $::work $name]
    set channel [open $path w]
    puts -nonewline $channel $text
    close $channel
    return $path
}
set settings [put shell.conf "# the shell\npart xcvu9p-flgb2104-2-e\ntop shell\nsources shell.sv\
    regs.sv\nnt_sources nat.sv\nconstraints pins.xdc\njobs 4\n"]
set regions [put regions.conf "# cell kind ranges\n\
    region_0 known-nt SLICE_X0Y60:SLICE_X28Y119 RAMB36_X0Y12:RAMB36_X2Y23\n\
    region_1 known-nt SLICE_X0Y120:SLICE_X28Y179\n\
    region_2 user-nt SLICE_X40Y60:SLICE_X68Y119\n"]
set good {part = "xcvu9p-flgb2104-2-e"
card_model = "htg-9200"
nts = ["firewall", "acme.nat-64"]
region_kind = "known-nt"

[constraints]
slots_max = 8
clock_hz = 250000000
width_bits = 512
bitstream_bytes_max = 4194304

[constraints.region_area]
lut = 60000
ramb36 = 108
dsp = 340

[constraints.nts_area]
lut = 1332
ramb36 = 0
dsp = 0
}
set manifest [put chain.toml $good]
put nat.sv "module nt_firewall; endmodule\n"
set out [file join $work out]

# The shell.
::snic::main [list shell $settings $regions $out]
check "one Pblock a region" {[count create_pblock] == 3}
check "a region becomes reconfigurable before placement" \
    {[in_order {synth_design set_property create_pblock add_cells_to_pblock resize_pblock place_design}]}
check "the shell in its order" {[in_order {
    create_project read_verilog read_xdc synth_design opt_design place_design route_design
    write_checkpoint report_property write_bitstream set_property write_bitstream set_property
    update_design lock_design write_checkpoint close_project
}]}
check "every cell is emptied before the static part is written" {[count update_design] == 3}
check "both bitstreams" {[file exists $out/shell.bit] && [file exists $out/shell.frames.bit]}
check "frames with addresses only in the second" {
    [lsearch $calls {set_property BITSTREAM.GENERAL.PERFRAMECRC YES design}] >
    [lsearch $calls [list write_bitstream -force $out/shell.bit]]
}
check "routes of the shell stay out" {
    {set_property CONTAIN_ROUTING true get_pblocks:pblock_region_0} in $calls
}

# A chain, in every region of its kind.
set calls {}
::snic::main [list chain $settings $regions $out $manifest all $out]
check "synthesised once" {[count synth_design] == 1}
check "a run a region" {[count route_design] == 2 && [count pr_verify] == 2}
check "no bitstream before the check against the shell" {[in_order {
    synth_design close_project open_checkpoint read_checkpoint opt_design place_design route_design
    report_utilization write_checkpoint pr_verify set_property write_bitstream close_project
    open_checkpoint pr_verify write_bitstream
}]}
set bit $out/firewall_acme-nat-64.region_0.bit
check "named by chain and region" {[file exists $bit]}
check "of one cell, with logic locations" {
    [list write_bitstream -force -logic_location_file -cell get_cells:region_0 $bit] in $calls
}
check "with a CRC, not compressed" {
    {set_property BITSTREAM.GENERAL.CRC ENABLE design} in $calls &&
    {set_property BITSTREAM.GENERAL.COMPRESS FALSE design} in $calls
}
set channel [open $out/firewall_acme-nat-64.sv]
set wrapper [read $channel]
close $channel
check "a module a slot, in the chain's order" {
    [regexp {nt_firewall slot_0.*nt_acme_nat_64 slot_1} $wrapper]
}
check "links between them" {
    [string match {*packets_in(link\[0\])*packets_out(link\[1\])*packets_in(link\[1\])*packets_out(link\[2\])*} $wrapper]
}

proc text_of {path} {
    set channel [open $path]
    set text [read $channel]
    close $channel
    return $text
}
proc identity_of {path} {
    regexp -line {^identity = "([0-9a-f]{32})"$} [text_of $path] -> identity
    return $identity
}
set built $out/firewall_acme-nat-64.region_0.toml
set identity [identity_of $built]
check "the ROM has the identity that the manifest names" {
    [string match "*.IDENTITY(128'h$identity)*" $wrapper]
}
set codes "32'h[::snic::identity::code firewall], 32'h[::snic::identity::code acme.nat-64], 32'h00000000, "
check "the ROM has the codes of the NTs" {[string first $codes $wrapper] > 0}
check "one build of a chain in all regions, each with its number" {
    [identity_of $out/firewall_acme-nat-64.region_1.toml] eq $identity &&
    [string match "*\nregions = \\\[1\\\]\n*" [text_of $out/firewall_acme-nat-64.region_1.toml]]
}
check "the order follows" {[string first $good [text_of $built]] > 0}

set calls {}
::snic::main [list chain $settings $regions $out $manifest first $out]
check "the first region alone" {[count pr_verify] == 1}
check "the same build again, for every region" {
    [identity_of $built] eq $identity && [string match "*\nregions = \\\[\\\]\n*" [text_of $built]]
}
put nat.sv "module nt_firewall; wire other; endmodule\n"
::snic::main [list chain $settings $regions $out $manifest first $out]
check "other sources, another identity" {[identity_of $built] ne $identity}
set calls {}
::snic::main [list chain $settings $regions $out $manifest first $out]
set calls {}
::snic::main [list chain $settings $regions $out $manifest region_1 $out]
check "a named region" {[file exists $out/firewall_acme-nat-64.region_1.bit] && [count pr_verify] == 1}

# A role for XRT: the kernel and how it is linked.
proc conf {name text} { return [put $name "part xcu280-fsvh2892-2L-e\ntop snic_control\nsources shell.sv\n$text"] }
set vitis [conf vitis.conf "platform xilinx_u280_gen3x16_xdma_base_1\nmemory DDR\[0\]\nclock_hz 250000000\n\
    platform_cell level0_i/ulp\n"]
set role [file join $work role]
set calls {}
::snic::main [list kernel $vitis $regions $role]
check "packaged from a saved core" {[in_order {
    create_project add_files set_property update_compile_order ipx::package_project
    ipx::associate_bus_interfaces set_property ipx::save_core close_project package_xo
}]}
set sources [lindex [lsearch -inline -index 0 $calls add_files] end]
check "the kernel's top and the shell's sources" {
    [file tail [lindex $sources 0]] eq "snic_control.v" && [file exists [lindex $sources 0]] &&
    [lindex $sources 1] eq [file join $work shell.sv] && {set_property top snic_control fileset} in $calls
}
foreach interface {s_axi_control m_axi packets_in packets_out} {
    check "$interface has the clock" {
        [list ipx::associate_bus_interfaces -busif $interface -clock ap_clk core] in $calls
    }
}
set packaged [lrange [lsearch -inline -index 0 $calls package_xo] 2 end]
check "as what kernel.xml says, not as package_xo guesses" {
    [dict get $packaged -xo_path] eq [file join $role snic_control.xo] &&
    [dict get $packaged -kernel_name] eq "snic_control" && [file exists [dict get $packaged -kernel_xml]] &&
    ![dict exists $packaged -ctrl_protocol]
}
check "how it is linked" {[text_of [file join $role link.cfg]] eq "platform=xilinx_u280_gen3x16_xdma_base_1
kernel_frequency=250
save-temps=1

\[connectivity\]
nk=snic_control:1:control_0
sp=control_0.m_axi:DDR\[0\]
"}
foreach {what from to pattern} {
    "no platform" "platform xilinx_u280_gen3x16_xdma_base_1" "" "*key platform is missing*"
    "no memory" "memory DDR\[0\]" "" "*key memory is missing*"
    "a memory that is none" "DDR\[0\]" "flash" "memory = flash is not allowed*"
    "a clock between two" "250000000" "250000001" "clock_hz = 250000001 is not allowed*"
    "no number" "250000000" "fast" "clock_hz = fast is not allowed*"
} {
    set text [string map [list $from $to] [text_of $vitis]]
    check "$what: changed" {$text ne [text_of $vitis]}
    check_error $what $pattern { ::snic::main [list kernel [put bad.conf $text] $regions $role] }
}

# The linked role, divided into regions.
set shell_of level0_i/ulp/control_0/inst/shell
set inside [put inside.conf "$shell_of/region_0 known-nt SLICE_X0Y60:SLICE_X28Y119\n\
    $shell_of/region_1 known-nt SLICE_X0Y120:SLICE_X28Y179\n"]
set calls {}
::snic::main [list role $vitis $inside routed.dcp ulp.dcp $role]
check "divided, placed, and its static part written" {[in_order {
    open_checkpoint pr_subdivide create_pblock place_design route_design write_checkpoint report_property
    write_bitstream update_design lock_design write_checkpoint close_project
    open_checkpoint pr_recombine write_checkpoint close_project
}]}
check "the platform's partition into both regions" {
    [list pr_subdivide -cell level0_i/ulp -subcells [list $shell_of/region_0 $shell_of/region_1] ulp.dcp] in $calls
}
check "regions are made reconfigurable by that alone" {[lsearch $calls "*HD.RECONFIGURABLE*"] < 0}
check "put together again for v++, from the filled design" {
    [lrange $calls end-3 end] eq [list \
        [list open_checkpoint [file join $role shell.dcp]] {pr_recombine -cell level0_i/ulp} \
        [list write_checkpoint -force [file join $role role.dcp]] close_project]
}
check "no bitstream of the device but the one with addresses" {[count write_bitstream] == 1}
set calls {}
::snic::main [list chain $settings $regions $role $manifest first $out]
check "chains are placed into it as into a shell" {
    [list open_checkpoint [file join $role static.dcp]] in $calls &&
    [lsearch $calls "pr_verify -initial [file join $role shell.dcp] *"] > 0
}
check_error "a region outside of the platform's partition" "region region_0 is not in*" {
    ::snic::main [list role $vitis $regions routed.dcp ulp.dcp $role]
}
check_error "no partition" "*key platform_cell is missing*" {
    ::snic::main [list role $settings $inside routed.dcp ulp.dcp $role]
}

# What the manifest orders.
set calls {}
::snic::main [list chain $settings $regions $out $manifest manifest $out]
check "the first region where the manifest orders none" {[count pr_verify] == 1}
proc with_regions {list} {
    return [put order.toml [string map [list "\n\[constraints\]" "build_regions = $list\n\n\[constraints\]"] $::good]]
}
set calls {}
::snic::main [list chain $settings $regions $out [with_regions {[0, 1]}] manifest $out]
check "each region that it orders, one after the other" {[count pr_verify] == 2}
check "for whatever group has its frames" {
    [string match "*\nregions = \\\[\\\]\n*" [text_of $out/firewall_acme-nat-64.region_1.toml]]
}
check_error "a region of another kind" "*region 2, which is no known-nt region*" {
    ::snic::main [list chain $settings $regions $out [with_regions {[0, 2]}] manifest $out]
}
check_error "no numbers" "*build_regions = a is not allowed*" {
    ::snic::main [list chain $settings $regions $out [with_regions {["a"]}] manifest $out]
}

# What must not become a bitstream.
set calls {}
set slack -0.25
check_error "timing" "*misses timing by 0.25 ns*" {
    ::snic::main [list chain $settings $regions $out $manifest first $out]
}
check "nothing written" {[count write_bitstream] == 0}
check_error "the shell's timing" "the shell misses timing*" {
    ::snic::main [list shell $settings $regions $out]
}
check_error "the role's timing" "the role misses timing*" {
    ::snic::main [list role $vitis $inside routed.dcp ulp.dcp $role]
}
check "no static part of it" {[count lock_design] == 0}
set slack 0.0
set bytes 4194305
check_error "size" "*has 4194305 bytes; the region takes at most 4194304*" {
    ::snic::main [list chain $settings $regions $out $manifest first $out]
}
set bytes 10
check_error "a region that is not there" "there is no known-nt region region_2*" {
    ::snic::main [list chain $settings $regions $out $manifest region_2 $out]
}
check_error "another part" "*shell for xcvu9p*" {
    set other [put other.toml [string map {flgb2104-2-e fsvh2892-2-e} $good]]
    ::snic::main [list chain $settings $regions $out $other first $out]
}
foreach {what from to pattern} {
    "a key is missing" {region_kind = "known-nt"} {} "*region_kind is missing*"
    "a key is duplicate" {region_kind = "known-nt"} "part = \"b\"" "*duplicate key part*"
    "no NTs" {["firewall", "acme.nat-64"]} {[]} "*nts =  is not allowed*"
    "an NT that is no name" {"firewall"} {"x; exec"} "*nts = *not allowed*"
    "a list of numbers" {["firewall", "acme.nat-64"]} {[1, 2]} "*not a string: 1*"
    "Tcl in a string" {"known-nt"} {"[exec true]"} "*region_kind = *not allowed*"
    "a float" {512} {512.5} "*not a string, an integer or a list*"
    "too many" {slots_max = 8} {slots_max = 1} "*2 NTs; at most 1*"
    "no TOML" {[constraints]} {constraints} "*:6: not a table or KEY = VALUE*"
} {
    set text [string map [list $from $to] $good]
    check "$what: changed" {$text ne $good}
    check_error $what $pattern { ::snic::manifest::parse $text chain.toml }
}
foreach {what line pattern} {
    "too few fields" "region_0 known-nt" "*expected CELL KIND RANGE*"
    "another kind" "region_0 nt SLICE_X0Y0:SLICE_X1Y1" "*kind nt;*"
    "no range" "region_0 known-nt SLICE_X0Y0" "*is not a range*"
    "Tcl in a cell" "[list \[exit\]] known-nt SLICE_X0Y0:SLICE_X1Y1" "*not the name of a cell*"
    "nothing" "# only a comment" "*no regions*"
    "twice" "a known-nt S_X0Y0:S_X1Y1\na known-nt S_X0Y0:S_X1Y1" "*"
} {
    check_error $what $pattern { ::snic::regions::parse $line regions.conf }
}
check_error "an unknown setting" "*unknown key colour*" {
    ::snic::settings [put bad.conf "part a\ncolour red\n"]
}
check_error "a missing setting" "*key top is missing*" {
    ::snic::settings [put bad.conf "part a\nsources b.sv\n"]
}
check_error "an unknown command" "unknown command clean*" {
    ::snic::main [list clean $settings $regions $out]
}

file delete -force $work
puts "ok $checks"
