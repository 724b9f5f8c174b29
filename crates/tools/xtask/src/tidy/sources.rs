//! Rust sources: `unsafe` code in few named places only, no macros that panic where nobody reads what they print, and a limit
//! on the length of files.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use anyhow::Context;
use proc_macro2::{TokenStream, TokenTree};

/// All that may contain `unsafe` code: a crate that calls a vendor's C library, and the system calls of the
/// software card's ports that have no safe names. And an example of a tenant's NT, which runs in a sandbox: its
/// exports are `unsafe` attributes.
const UNSAFE: [&str; 3] =
    ["crates/cards/card-xrt/", "crates/cards/card-soft/src/ports/system.rs", "integration/wasm/"];

/// Programs for those who work on this project, and tests of others: they may print with the macros of the standard
/// library, which panic where nobody reads.
const PRINTING: [&str; 5] = [
    "crates/tools/",
    "integration/tests/",
    "integration/xrt/",
    "integration/rtl/",
    "integration/wasm/",
];

/// Longest code before a file's tests, in lines. A longer file should be two.
const CODE_LINES_MAX: usize = 600;

/// Violations in the tracked sources.
///
/// # Errors
/// A source cannot be read.
pub fn check(root: &Path, tracked: &[String]) -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    for path in tracked.iter().filter(|path| path.ends_with(".rs")) {
        let whole = root.join(path);
        if !whole.exists() {
            continue; // deleted, and not yet committed so
        }
        let text = fs::read_to_string(&whole).with_context(|| format!("reading {path}"))?;
        wrong.extend(check_file(path, &text));
    }
    Ok(wrong)
}

fn check_file(path: &str, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if !UNSAFE.iter().any(|allowed| path.starts_with(allowed)) {
        match unsafe_lines(text) {
            Ok(lines) => wrong.extend(lines.into_iter().map(|line| {
                format!(
                    "{path}:{line}: `unsafe` code: only {} may contain it",
                    UNSAFE.join(" and ")
                )
            })),
            Err(error) => wrong.push(format!("{path}: not valid Rust: {error}")),
        }
    }
    let lines = code_lines(text);
    if is_of_program(path) {
        let printing = printing_lines(text).unwrap_or_default();
        wrong.extend(printing.into_iter().filter(|line| *line <= lines).map(|line| {
            format!(
                "{path}:{line}: this macro panics where nobody reads what it prints: use `out!` or \
                 `complain!` of snic-output"
            )
        }));
    }
    if lines > CODE_LINES_MAX && !is_test(path) && !is_generated(text) {
        wrong.push(format!("{path}: {lines} lines of code, over {CODE_LINES_MAX}: split it"));
    }
    wrong
}

/// The lines with the keyword `unsafe`: not in comments or strings, but also in attributes and macros, which the
/// compiler's lint does not cover.
fn unsafe_lines(text: &str) -> Result<Vec<usize>, proc_macro2::LexError> {
    let mut lines = Vec::new();
    let mut open = vec![TokenStream::from_str(text)?];
    while let Some(stream) = open.pop() {
        for token in stream {
            match token {
                TokenTree::Group(group) => open.push(group.stream()),
                TokenTree::Ident(word) if word == "unsafe" => {
                    lines.push(word.span().start().line);
                }
                _ => {}
            }
        }
    }
    lines.sort_unstable();
    Ok(lines)
}

/// Whether a source is part of a program that people use: not a test, a benchmark, an example, or a build script.
fn is_of_program(path: &str) -> bool {
    let (folders, file) = path.rsplit_once('/').unwrap_or(("", path));
    folders.split('/').any(|folder| folder == "src")
        && file != "tests.rs"
        && !file.ends_with("_tests.rs")
        && !PRINTING.iter().any(|allowed| path.starts_with(allowed))
}

/// The lines with a printing macro of the standard library.
fn printing_lines(text: &str) -> Result<Vec<usize>, proc_macro2::LexError> {
    let mut lines = Vec::new();
    let mut open = vec![TokenStream::from_str(text)?];
    while let Some(stream) = open.pop() {
        let mut tokens = stream.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Group(group) => open.push(group.stream()),
                TokenTree::Ident(word) => {
                    let prints =
                        ["print", "println", "eprint", "eprintln"].iter().any(|of| word == of);
                    let is_macro = |next: &TokenTree| matches!(next, TokenTree::Punct(sign) if sign.as_char() == '!');
                    if prints && tokens.peek().is_some_and(is_macro) {
                        lines.push(word.span().start().line);
                    }
                }
                _ => {}
            }
        }
    }
    lines.sort_unstable();
    Ok(lines)
}

/// The number of lines before the test module. A `#[cfg(test)]` on anything else does not count.
pub(super) fn code_lines(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let opens_tests = |index: &usize| {
        let mut after = lines[index + 1..].iter().skip_while(|line| line.starts_with("#["));
        let is_module =
            |line: &&str| line.ends_with('{') && line.split(' ').any(|word| word == "mod");
        lines[*index] == "#[cfg(test)]" && after.next().is_some_and(is_module)
    };
    (0..lines.len()).find(opens_tests).unwrap_or(lines.len())
}

pub(super) fn is_test(path: &str) -> bool {
    let (folders, file) = path.rsplit_once('/').unwrap_or(("", path));
    folders.starts_with("integration")
        || folders.split('/').any(|folder| folder == "tests" || folder == "benches")
        || file == "tests.rs"
        || file.ends_with("_tests.rs")
}

fn is_generated(text: &str) -> bool {
    text.lines().next().is_some_and(|line| line.contains("@generated"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A body of this many lines of code, and a module of tests behind it.
    fn source(code: usize, tests: usize) -> String {
        let tests = "    // more\n".repeat(tests);
        format!("{}#[cfg(test)]\nmod tests {{\n{tests}}}\n", "// code\n".repeat(code))
    }

    #[test]
    fn unsafe_is_found_as_a_word_of_the_language_only() {
        let text = r##"
//! About unsafe code.
/// unsafe in a doc comment
const A: &str = "unsafe { }";
const B: &str = r#"unsafe"#; // unsafe
/* unsafe */
fn unsafe_lines<'unsafely>() {}
"##;
        assert_eq!(unsafe_lines(text).unwrap(), [0; 0]);
    }

    #[test]
    fn unsafe_is_found_in_blocks_attributes_and_macros() {
        let text = "fn a() {\n    unsafe { b() }\n}\n#[unsafe(no_mangle)]\nfn c() {}\n\
                    macro_rules! m {\n    () => { if true { unsafe { d() } } };\n}\n";
        assert_eq!(unsafe_lines(text).unwrap(), [2, 4, 7]);
    }

    #[test]
    fn few_places_may_hold_unsafe_code() {
        let text = "unsafe fn a() {}\n";
        assert_eq!(check_file("crates/cards/card-xrt/src/lib.rs", text), [""; 0]);
        assert_eq!(
            check_file("crates/core/ports/src/lib.rs", text),
            ["crates/core/ports/src/lib.rs:1: `unsafe` code: only crates/cards/card-xrt/ and \
              crates/cards/card-soft/src/ports/system.rs and integration/wasm/ may contain it"]
        );
        assert_eq!(
            check_file("crates/cards/card-soft/src/lib.rs", text).len(),
            1,
            "one file, not its crate"
        );
        assert_eq!(check_file("crates/core/ports/tests/a.rs", text).len(), 1, "tests neither");
    }

    #[test]
    fn programs_print_only_what_may_go_unread() {
        let text = "fn a() {\n    println!(\"a\");\n    if b { std::eprint!(\"c\") }\n}\n\
                    #[cfg(test)]\nmod tests {\n    fn d() { println!() }\n}\n";
        let wrong = check_file("crates/a/b/src/main.rs", text);
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert!(wrong[0].starts_with("crates/a/b/src/main.rs:2: ") && wrong[1].contains(":3: "));
        for path in [
            "crates/a/b/tests/all.rs",
            "crates/a/b/src/c/tests.rs",
            "crates/a/b/benches/c.rs",
            "crates/a/b/examples/c.rs",
            "crates/a/b/build.rs",
            "crates/tools/xtask/src/main.rs",
        ] {
            assert_eq!(check_file(path, text), [""; 0], "{path}");
        }
        let words =
            "/// println!(\"a\")\nfn println() { let eprintln = \"print!()\"; print(eprintln) }\n";
        assert_eq!(check_file("crates/a/b/src/main.rs", words), [""; 0]);
    }

    #[test]
    fn files_that_are_not_rust_are_named() {
        let wrong = check_file("crates/a/src/lib.rs", "fn a() { \"open");
        assert!(wrong[0].starts_with("crates/a/src/lib.rs: not valid Rust"), "{wrong:?}");
    }

    #[test]
    fn length_counts_to_the_tests() {
        let path = "crates/a/src/lib.rs";
        assert_eq!(check_file(path, &source(CODE_LINES_MAX, 900)), [""; 0]);
        assert_eq!(
            check_file(path, &source(CODE_LINES_MAX + 1, 0)),
            ["crates/a/src/lib.rs: 601 lines of code, over 600: split it"]
        );
    }

    #[test]
    fn only_a_module_of_tests_ends_the_code() {
        let hidden = "#[cfg(test)]\nuse a::b;\n#[cfg(test)]\nmod tests;\nfn c() {}\n";
        assert_eq!(code_lines(hidden), 5);
        let attributed =
            "fn a() {}\n#[cfg(test)]\n#[allow(dead_code)]\npub(crate) mod tests {\n}\n";
        assert_eq!(code_lines(attributed), 1);
        assert_eq!(code_lines(""), 0);
        assert_eq!(code_lines("#[cfg(test)]"), 1);
    }

    #[test]
    fn tests_and_generated_code_may_be_long() {
        let long = "// code\n".repeat(CODE_LINES_MAX + 1);
        for path in [
            "crates/a/tests/all.rs",
            "crates/a/benches/b.rs",
            "crates/a/src/x/tests.rs",
            "crates/a/src/x_tests.rs",
            "integration/tests/src/lib.rs",
        ] {
            assert_eq!(check_file(path, &long), [""; 0], "{path}");
        }
        for path in ["crates/a/src/latests.rs", "crates/tests-of/src/lib.rs"] {
            assert_eq!(check_file(path, &long).len(), 1, "{path}");
        }
        let generated = format!("// This file is @generated by a tool.\n{long}");
        assert_eq!(check_file("crates/edge/api/src/v1.rs", &generated), [""; 0]);
    }
}
