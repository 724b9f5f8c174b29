# What make calls: vivado -mode batch -source tcl/main.tcl -tclargs COMMAND SETTINGS REGIONS …
#
#   shell SETTINGS REGIONS OUT
#   kernel SETTINGS REGIONS OUT
#   role SETTINGS REGIONS ROUTED SYNTHESISED OUT
#   chain SETTINGS REGIONS SHELL MANIFEST CELLS OUT     CELLS: manifest, all, first, or names joined by commas

set here [file dirname [file normalize [info script]]]
foreach file {manifest regions wrapper identity build kernel} { source [file join $here $file.tcl] }

namespace eval ::snic {
    variable setting_keys {
        part top sources constraints nt_sources jobs platform platform_cell memory clock_hz
    }

    # A settings file has one KEY VALUE... a line; files are named from its folder.
    proc settings {path} {
        variable setting_keys
        set channel [open $path r]
        set lines [split [read $channel] "\n"]
        close $channel
        set settings [dict create constraints {} nt_sources {} jobs 2]
        set number 0
        foreach line $lines {
            incr number
            set fields [regexp -all -inline {\S+} $line]
            if {[llength $fields] == 0 || [string index [lindex $fields 0] 0] eq "#"} continue
            set values [lassign $fields key]
            if {$key ni $setting_keys} {
                error "$path:$number: unknown key $key; known are [join $setting_keys {, }]"
            }
            if {$key in {sources constraints nt_sources}} {
                set files {}
                foreach value $values {
                    lappend files [file normalize [file join [file dirname $path] $value]]
                }
                dict set settings $key $files
            } else {
                if {[llength $values] != 1} { error "$path:$number: $key takes one value" }
                dict set settings $key [lindex $values 0]
            }
        }
        needs $path $settings {part top sources}
        return $settings
    }

    proc needs {path settings keys} {
        foreach key $keys {
            if {![dict exists $settings $key]} { error "$path: key $key is missing" }
        }
    }

    # The regions to build for. `manifest` stands for those that the manifest orders, and for the first one
    # where it orders none.
    proc chosen {regions manifest cells} {
        set kind [dict get $manifest region_kind]
        set possible [regions::of_kind $regions $kind]
        if {$cells eq "manifest" && ![dict exists $manifest build_regions]} { set cells first }
        switch -- $cells {
            all { return $possible }
            first { return [list [lindex $possible 0]] }
            manifest {
                set found {}
                foreach number [dict get $manifest build_regions] {
                    set region [lindex $regions $number]
                    if {$region ni $possible} {
                        error "the manifest orders region $number, which is no $kind region of the floor plan"
                    }
                    lappend found $region
                }
                return $found
            }
        }
        set found {}
        foreach cell [split $cells ","] {
            set match [lsearch -inline -index 1 $possible $cell]
            if {$match eq ""} { error "there is no $kind region $cell in the floor plan" }
            lappend found $match
        }
        return $found
    }

    proc main {arguments} {
        set rest [lassign $arguments command settings_file regions_file]
        set settings [settings $settings_file]
        set regions [regions::load $regions_file]
        switch -- $command {
            shell {
                lassign $rest out
                build::shell $settings $regions $out
            }
            kernel {
                lassign $rest out
                needs $settings_file $settings {platform memory clock_hz}
                kernel::package $settings $out
                kernel::write_link $settings [file join $out link.cfg]
            }
            role {
                lassign $rest routed synthesised out
                needs $settings_file $settings {platform_cell}
                build::role $settings $regions $routed $synthesised $out
            }
            chain {
                lassign $rest shell manifest_file cells out
                set manifest [manifest::load $manifest_file]
                set chosen [chosen $regions $manifest $cells]
                set built [build::chain $manifest $settings $chosen $shell $out]
                dict for {file number} [dict get $built files] {
                    # One for the first region of a group is for all of it: the daemon sees by the frames which.
                    set numbers [expr {$cells in {first manifest} ? {} : $number}]
                    identity::save $manifest_file [dict get $built identity] $numbers \
                        [file rootname $file].toml
                    puts "bitstream $file"
                }
            }
            default { error "unknown command $command; shell, kernel, role and chain are known" }
        }
    }
}

if {[info exists ::argv] && [llength $::argv] > 0} { ::snic::main $::argv }
