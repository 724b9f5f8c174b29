//! `snic-card check` as an author of modules uses it.

use std::process::Command;

/// Whether a file is good, and what is said of it.
fn check(name: &str, bytes: &[u8]) -> (bool, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join(name);
    std::fs::write(&file, bytes).expect("a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_snic-card"));
    let output = command.arg("check").arg(&file).output().expect("it starts");
    let said = [&output.stdout[..], &output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

const MODULE: &str = r#"(module
    (memory (export "memory") 1)
    (func (export "snic_abi_version") (result i32) i32.const 1)
    (func (export "snic_buffer") (result i32) i32.const 1024)
    (func (export "snic_process") (param i32) (result i64) i64.const 0))"#;

#[test]
fn a_module_is_good_or_it_is_said_what_is_wrong() {
    let bytes = |text: &str| wat::parse_str(text).expect("valid text");
    let (is_good, said) = check("good.wasm", &bytes(MODULE));
    assert!(is_good && said.contains("good.wasm: good, "), "{said}");
    let no_buffer = MODULE.replace("i32.const 1024", "i32.const 65000");
    for (wrong, says) in [
        (bytes(&MODULE.replace("snic_process", "process")), "it does not export snic_process"),
        (bytes(&no_buffer), "its buffer of 9344 bytes at 65000 ends behind its memory"),
        (MODULE.as_bytes().to_vec(), "is neither a module nor a bitstream"),
    ] {
        let (is_good, said) = check("wrong.wasm", &wrong);
        assert!(!is_good && said.contains(says), "{said}");
    }
}
