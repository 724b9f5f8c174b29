# What the ROM of a region says of a build, and what the manifest of a bitstream says of it.
#
# A bitstream cannot contain its own digest. Its ROM has a number made from what goes into the build: the
# wrapper and the sources of the NTs. The manifest beside the bitstream names it; whoever signs binds both to
# the digest of the bytes (`snicctl bitstream statement`), and the daemon reads the ROM after each load.

namespace eval ::snic::identity {
    # The first hexadecimal digits of the SHA-256 digest of a text.
    proc digits {text count} {
        return [string range [exec sha256sum << $text] 0 [expr {$count - 1}]]
    }

    # The code of an NT: the first four bytes of the digest of its id.
    proc code {nt} { return [digits $nt 8] }

    # Of a build: 32 hexadecimal digits.
    proc of_build {manifest sources} {
        set text [::snic::wrapper::text $manifest [string repeat 0 32]]
        foreach source $sources {
            set channel [open $source rb]
            append text "\n// " [file tail $source] "\n" [binary encode hex [read $channel]]
            close $channel
        }
        return [digits $text 32]
    }

    # Writes the manifest of a bitstream: `path` with the order's keys, behind what the flow has to add.
    # `regions` is empty where the shell's configuration controller relocates it.
    proc save {manifest_file identity regions path} {
        set channel [open $manifest_file r]
        set order [read $channel]
        close $channel
        set channel [open $path w]
        puts $channel "identity = \"$identity\""
        puts $channel "regions = \[[join $regions {, }]\]"
        puts -nonewline $channel $order
        close $channel
    }
}
