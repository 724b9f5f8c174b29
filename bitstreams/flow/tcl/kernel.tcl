# Packages the shell as a kernel of Vitis, and says how v++ links it.
#
# The kernel's top is ../rtl/snic_control.v, which has the shell, a module snic_shell, in it. What Vitis has to know
# of it is in ../rtl/kernel.xml, its control protocol too, so that package_xo has nothing to guess (UG1393).

namespace eval ::snic::kernel {
    # As `control` of [cards.xrt] has it by default: NAME:INSTANCE.
    variable name snic_control
    variable instance control_0
    variable interfaces {s_axi_control m_axi packets_in packets_out}
    variable rtl [file join [file dirname [file dirname [file normalize [info script]]]] rtl]

    # Writes `out`/snic_control.xo.
    proc package {settings out} {
        variable name
        variable interfaces
        variable rtl
        file mkdir $out
        set ip [file join $out ip]
        create_project -force kernel [file join $out project] -part [dict get $settings part]
        add_files -norecurse [concat [list [file join $rtl $name.v]] [dict get $settings sources]]
        set_property top $name [current_fileset]
        update_compile_order -fileset sources_1
        ipx::package_project -root_dir $ip -vendor snic -library kernel -taxonomy /KernelIP -import_files -force
        set core [ipx::current_core]
        foreach interface $interfaces {
            ipx::associate_bus_interfaces -busif $interface -clock ap_clk $core
        }
        ipx::associate_bus_interfaces -clock ap_clk -reset ap_rst_n $core
        set_property sdx_kernel true $core
        set_property sdx_kernel_type rtl $core
        # The platform's clock is not known before v++ links.
        set_property ipi_drc {ignore_freq_hz true} $core
        ipx::create_xgui_files $core
        ipx::update_checksums $core
        ipx::save_core $core
        close_project
        package_xo -force -xo_path [file join $out $name.xo] -kernel_name $name -ip_directory $ip \
            -kernel_xml [file join $rtl kernel.xml]
    }

    # Writes v++'s configuration: the platform, one instance of the kernel, its clock and its memory.
    proc write_link {settings path} {
        variable name
        variable instance
        set hertz [dict get $settings clock_hz]
        if {![string is integer -strict $hertz] || $hertz <= 0 || $hertz % 1000000 != 0} {
            error "clock_hz = $hertz is not allowed; v++ takes whole MHz, such as 250000000"
        }
        set memory [dict get $settings memory]
        if {![regexp {^(DDR|HBM|PLRAM|bank)[0-9\[\]:]*$} $memory]} {
            error "memory = $memory is not allowed; it is one of the platform's (platforminfo), such as DDR\[0\]"
        }
        set channel [open $path w]
        puts $channel "platform=[dict get $settings platform]"
        puts $channel "kernel_frequency=[expr {$hertz / 1000000}]"
        puts $channel "save-temps=1"
        puts $channel "\n\[connectivity\]"
        puts $channel "nk=$name:1:$instance"
        puts $channel "sp=$instance.m_axi:$memory"
        close $channel
    }
}
