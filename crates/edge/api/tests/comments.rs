//! The proto files are the documentation of the API: everything in them has a comment.

use std::fs;
use std::path::Path;

/// The proto files with their lines.
fn proto_files() -> Vec<(String, Vec<String>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../proto/snic");
    let mut files = Vec::new();
    for package in ["control/v1", "fleet/v1"] {
        for entry in fs::read_dir(root.join(package)).expect("the folder of the proto files") {
            let path = entry.expect("an entry").path();
            let text = fs::read_to_string(&path).expect("a text");
            files.push((path.display().to_string(), text.lines().map(str::to_owned).collect()));
        }
    }
    assert!(files.len() >= 10, "{} files", files.len());
    files
}

/// Whether a line declares something: a message, enum, service, rpc, oneof, field or enum value.
fn declares(line: &str) -> bool {
    let line = line.trim_start();
    let block = ["message ", "enum ", "service ", "rpc ", "oneof "];
    block.iter().any(|word| line.starts_with(word))
        || ((line.ends_with(';') || line.ends_with(" ["))
            && line.contains(" = ")
            && !["syntax", "option"].iter().any(|word| line.starts_with(word)))
}

#[test]
fn every_declaration_has_a_comment_right_before_it() {
    let mut count = 0;
    for (file, lines) in proto_files() {
        for (before, line) in lines.iter().zip(lines.iter().skip(1)).filter(|(_, l)| declares(l)) {
            assert!(before.trim_start().starts_with("// "), "{file}: {line}");
            count += 1;
        }
    }
    assert!(count > 300, "{count} declarations found");
}

#[test]
fn comments_are_sentences_in_lines_of_100() {
    for (file, lines) in proto_files() {
        for (line, next) in lines.iter().zip(lines.iter().skip(1)) {
            assert!(line.chars().count() <= 100, "{file}: {line}");
            let last = line.trim_start().starts_with("//") && !next.trim_start().starts_with("//");
            let ends = [".", ")", ":"].iter().any(|end| line.ends_with(end));
            assert!(!last || ends, "{file}: {line}");
        }
    }
}

#[test]
fn quantities_carry_their_unit() {
    let units = ["_bps", "_bytes", "_cycles", "_hz", "_nanos", "_per_second"];
    for (file, lines) in proto_files() {
        for line in lines {
            for word in ["bandwidth", "latency", "clock"] {
                // A message says the units of its fields itself.
                let is_number = line.trim_start().starts_with(char::is_lowercase)
                    && !line.trim_start().starts_with("bool ");
                let field = is_number && line.contains(" = ") && line.contains(&format!(" {word}"));
                let unit = units.iter().any(|unit| line.contains(&format!("{unit} =")));
                assert!(!field || unit || line.contains("//"), "{file}: {line}");
            }
        }
    }
}
