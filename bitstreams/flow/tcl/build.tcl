# The steps in Vivado: the shell once, then each chain in the regions that it is for.
#
#   shell:  synthesis │ one Pblock a region │ place and route with empty regions │ static part, locked
#           │ shell.bit │ shell.frames.bit (every frame with its address) │ a report a Pblock
#   role:   what v++ linked │ its partition divided into the regions │ place and route │ the same files, but in
#           place of shell.bit the checkpoint from which v++ makes the xclbin
#   chain:  synthesis of the wrapper, out of context │ static part + wrapper │ place and route
#           │ timing, area │ pr_verify │ partial bitstream with logic locations │ size
#
# A step that fails ends the run: no bitstream is written from a design that misses timing, or that does
# not fit the static part.

namespace eval ::snic::build {
    # Writes everything of the shell to the folder `out`. `settings`: part, top, sources, constraints, jobs.
    proc shell {settings regions out} {
        file mkdir $out
        set_param general.maxThreads [dict get $settings jobs]
        create_project -in_memory -part [dict get $settings part]
        foreach file [dict get $settings sources] { read_verilog -sv $file }
        foreach file [dict get $settings constraints] { read_xdc $file }
        synth_design -top [dict get $settings top] -part [dict get $settings part]
        foreach region $regions {
            set_property HD.RECONFIGURABLE true [get_cells [dict get $region cell]]
            place_pblock $region
        }
        implement "the shell" $regions $out
        write_bitstream -force [file join $out shell.bit]
        write_static $regions $out
    }

    # The same from a role that v++ linked for `settings`' platform: `routed` is its routed design, `synthesised`
    # the platform's partition in it after synthesis. The partition (platform_cell) is divided into the regions
    # (UG909, nested DFX), and put together again for the bitstream that XRT loads: role.dcp.
    proc role {settings regions routed synthesised out} {
        file mkdir $out
        set_param general.maxThreads [dict get $settings jobs]
        set partition [dict get $settings platform_cell]
        set cells {}
        foreach region $regions {
            set cell [dict get $region cell]
            if {![string match "$partition/*" $cell]} {
                error "region $cell is not in the platform's partition $partition"
            }
            lappend cells $cell
        }
        open_checkpoint $routed
        pr_subdivide -cell $partition -subcells $cells $synthesised
        foreach region $regions { place_pblock $region }
        implement "the role" $regions $out
        write_static $regions $out
        open_checkpoint [file join $out shell.dcp]
        pr_recombine -cell $partition
        write_checkpoint -force [file join $out role.dcp]
        close_project
    }

    proc place_pblock {region} {
        set pblock [::snic::regions::pblock $region]
        create_pblock $pblock
        add_cells_to_pblock [get_pblocks $pblock] [get_cells [dict get $region cell]]
        resize_pblock [get_pblocks $pblock] -add [dict get $region ranges]
        # No route of the shell inside, so that a region's frames are the region's alone.
        set_property CONTAIN_ROUTING true [get_pblocks $pblock]
        set_property EXCLUDE_PLACEMENT true [get_pblocks $pblock]
        set_property SNAPPING_MODE ON [get_pblocks $pblock]
    }

    # Places and routes, and writes the design and a report a Pblock.
    proc implement {what regions out} {
        opt_design
        place_design
        route_design
        check_timing_met $what
        write_checkpoint -force [file join $out shell.dcp]
        foreach region $regions {
            set pblock [::snic::regions::pblock $region]
            report_property [get_pblocks $pblock] -file [file join $out $pblock.rpt]
        }
    }

    # Every frame with its address, which `card import-floorplan` reads; then what chains are placed into.
    proc write_static {regions out} {
        set_property BITSTREAM.GENERAL.PERFRAMECRC YES [current_design]
        write_bitstream -force [file join $out shell.frames.bit]
        set_property BITSTREAM.GENERAL.PERFRAMECRC NO [current_design]
        foreach region $regions {
            update_design -cell [get_cells [dict get $region cell]] -black_box
        }
        lock_design -level routing
        write_checkpoint -force [file join $out static.dcp]
        close_project
    }

    # Builds one chain for `regions` on the shell in `shell`. Returns a dictionary: `identity`, and `files`,
    # the bitstreams with the number of their region.
    proc chain {manifest settings regions shell out} {
        file mkdir $out
        set name [::snic::manifest::name $manifest]
        set part [dict get $manifest part]
        if {$part ne [dict get $settings part]} {
            error "the manifest is for part $part, the shell for [dict get $settings part]"
        }
        set_param general.maxThreads [dict get $settings jobs]
        set wrapper [file join $out $name.sv]
        set sources [dict get $settings nt_sources]
        set identity [::snic::identity::of_build $manifest $sources]
        ::snic::wrapper::save $manifest $identity $wrapper
        create_project -in_memory -part $part
        foreach file $sources { read_verilog -sv $file }
        read_verilog -sv $wrapper
        synth_design -top snic_chain -part $part -mode out_of_context
        set synthesised [file join $out $name.synth.dcp]
        write_checkpoint -force $synthesised
        close_project
        set files {}
        foreach region $regions {
            set file [in_region $manifest $region $synthesised $shell $out]
            dict set files $file [dict get $region number]
        }
        return [dict create identity $identity files $files]
    }

    proc in_region {manifest region synthesised shell out} {
        set cell [dict get $region cell]
        set base [file join $out "[::snic::manifest::name $manifest].[string map {/ _} $cell]"]
        open_checkpoint [file join $shell static.dcp]
        read_checkpoint -cell [get_cells $cell] $synthesised
        opt_design
        place_design
        route_design
        check_timing_met "the chain in $cell"
        report_utilization -pblocks [get_pblocks [::snic::regions::pblock $region]] \
            -file $base.utilization.rpt
        write_checkpoint -force $base.dcp
        pr_verify -initial [file join $shell shell.dcp] -additional $base.dcp
        # One region's frames alone, each once: not compressed, not encrypted, with a CRC.
        set_property BITSTREAM.GENERAL.COMPRESS FALSE [current_design]
        set_property BITSTREAM.GENERAL.CRC ENABLE [current_design]
        write_bitstream -force -logic_location_file -cell [get_cells $cell] $base.bit
        close_project
        check_size $base.bit [dict get $manifest constraints.bitstream_bytes_max]
        return $base.bit
    }

    proc check_timing_met {what} {
        set path [get_timing_paths -max_paths 1 -nworst 1 -setup]
        set slack [get_property SLACK $path]
        if {$slack < 0} { error "$what misses timing by [expr {-$slack}] ns" }
        set path [get_timing_paths -max_paths 1 -nworst 1 -hold]
        set slack [get_property SLACK $path]
        if {$slack < 0} { error "$what misses hold time by [expr {-$slack}] ns" }
    }

    proc check_size {path most} {
        set bytes [file size $path]
        if {$bytes > $most} {
            error "$path has $bytes bytes; the region takes at most $most: make the region smaller, or\
                the limit in the card profile larger"
        }
    }
}
