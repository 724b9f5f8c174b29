# Reads the operator's floor plan: which cells of the shell are regions, of which kind, and where.
#
#   # cell          kind      ranges of sites
#   region_0        known-nt  SLICE_X0Y60:SLICE_X28Y119 RAMB36_X0Y12:RAMB36_X2Y23
#
# A region spans whole clock regions in height, so that it shares no column of frames with anything.

namespace eval ::snic::regions {
    proc load {path} {
        set channel [open $path r]
        set text [read $channel]
        close $channel
        return [parse $text $path]
    }

    # A list of dictionaries: cell, kind, ranges, number. The first region of the file is the card's region 0.
    proc parse {text path} {
        set regions {}
        set cells {}
        set number 0
        foreach line [split $text "\n"] {
            incr number
            set line [string trim $line]
            if {$line eq "" || [string index $line 0] eq "#"} continue
            set fields [regexp -all -inline {\S+} $line]
            if {[llength $fields] < 3} {
                error "$path:$number: expected CELL KIND RANGE..., found: $line"
            }
            set ranges [lassign $fields cell kind]
            if {![regexp {^[A-Za-z_][A-Za-z0-9_/]*$} $cell]} {
                error "$path:$number: $cell is not the name of a cell"
            }
            if {$kind ni {known-nt user-nt}} {
                error "$path:$number: kind $kind; known-nt and user-nt are allowed"
            }
            foreach range $ranges {
                set site {[A-Z0-9]+_X[0-9]+Y[0-9]+}
                if {![regexp "^$site:$site\$" $range]} {
                    error "$path:$number: $range is not a range such as SLICE_X0Y60:SLICE_X28Y119"
                }
            }
            if {$cell in $cells} { error "$path:$number: duplicate cell $cell" }
            lappend cells $cell
            lappend regions [dict create cell $cell kind $kind ranges $ranges \
                number [llength $regions]]
        }
        if {[llength $regions] == 0} { error "$path: no regions" }
        return $regions
    }

    # The regions of a kind, in the order of the file.
    proc of_kind {regions kind} {
        set found {}
        foreach region $regions {
            if {[dict get $region kind] eq $kind} { lappend found $region }
        }
        if {[llength $found] == 0} { error "the floor plan has no $kind regions" }
        return $found
    }

    proc pblock {region} {
        return "pblock_[string map {/ _} [dict get $region cell]]"
    }
}
