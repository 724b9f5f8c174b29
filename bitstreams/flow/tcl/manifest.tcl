# Reads what `snicctl bitstream recommend` writes: one manifest, one chain.
#
# A manifest is TOML, of which only what the daemon writes is understood: tables, and keys with a
# string, an integer or a list of strings; regions are a list of integers. Anything else is an error,
# so that nothing is built from a manifest that was read half.

namespace eval ::snic::manifest {
    # Keys that a build needs, and what their values look like.
    variable required {
        part {^[A-Za-z0-9-]+$}
        card_model {^[a-z0-9-]+$}
        nts {^[a-z0-9.-]+( [a-z0-9.-]+)*$}
        region_kind {^(known-nt|user-nt)$}
        constraints.slots_max {^[1-9][0-9]*$}
        constraints.clock_hz {^[1-9][0-9]*$}
        constraints.width_bits {^[1-9][0-9]*$}
        constraints.bitstream_bytes_max {^[1-9][0-9]*$}
        constraints.region_area.lut {^[0-9]+$}
        constraints.region_area.ramb36 {^[0-9]+$}
        constraints.region_area.dsp {^[0-9]+$}
    }

    # Keys that a manifest may have beside them.
    variable optional {
        build_regions {^[0-9]+( [0-9]+)*$}
    }

    # The manifest in a file, as a dictionary; tables become dotted keys.
    proc load {path} {
        set channel [open $path r]
        set text [read $channel]
        close $channel
        return [parse $text $path]
    }

    proc parse {text path} {
        variable required
        variable optional
        set manifest [dict create]
        set table ""
        set number 0
        foreach line [split $text "\n"] {
            incr number
            set line [string trim $line]
            if {$line eq "" || [string index $line 0] eq "#"} continue
            if {[regexp {^\[([a-z0-9_.]+)\]$} $line -> name]} {
                set table "$name."
                continue
            }
            if {![regexp {^([a-z0-9_]+)\s*=\s*(.+)$} $line -> key value]} {
                error "$path:$number: not a table or KEY = VALUE: $line"
            }
            if {[dict exists $manifest $table$key]} {
                error "$path:$number: duplicate key $table$key"
            }
            dict set manifest $table$key [value $key $value "$path:$number"]
        }
        dict for {key pattern} $required {
            if {![dict exists $manifest $key]} {
                error "$path: key $key is missing; write the manifest with snicctl bitstream recommend"
            }
            if {![regexp $pattern [dict get $manifest $key]]} {
                error "$path: $key = [dict get $manifest $key] is not allowed; expected $pattern"
            }
        }
        dict for {key pattern} $optional {
            if {[dict exists $manifest $key] && ![regexp $pattern [dict get $manifest $key]]} {
                error "$path: $key = [dict get $manifest $key] is not allowed; expected $pattern"
            }
        }
        set slots [llength [dict get $manifest nts]]
        if {$slots > [dict get $manifest constraints.slots_max]} {
            error "$path: $slots NTs; at most [dict get $manifest constraints.slots_max] fit a region"
        }
        return $manifest
    }

    proc value {key text place} {
        if {[regexp {^-?[0-9]+$} $text]} { return $text }
        if {[regexp {^"([^"\\]*)"$} $text -> string]} { return $string }
        if {[regexp {^\[(.*)\]$} $text -> items]} {
            set list {}
            foreach item [split $items ","] {
                set item [string trim $item]
                if {$item eq ""} continue
                # Regions alone are named by numbers.
                if {$key eq "build_regions" && [regexp {^[0-9]+$} $item]} {
                    lappend list $item
                } elseif {[regexp {^"([^"\\]+)"$} $item -> string]} {
                    lappend list $string
                } else {
                    error "$place: not a string: $item"
                }
            }
            return $list
        }
        error "$place: not a string, an integer or a list of strings: $text"
    }

    # A name for files: the NTs in their order.
    proc name {manifest} {
        return [string map {. -} [join [dict get $manifest nts] "_"]]
    }
}
