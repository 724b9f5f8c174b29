//! Generates the kubelet's interfaces from `proto/`, without a protoc on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files =
        ["deviceplugin.proto", "dra.proto", "pluginregistration.proto", "podresources.proto"];
    let descriptors = protox::compile(files, ["proto"])?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
