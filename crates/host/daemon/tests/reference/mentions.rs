//! Settings that texts mention: what the doctor, errors and documents advise must be there to be set.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use toml::{Table, Value};

use crate::{TABLES, types};

/// Crates whose texts are not about the daemon's settings: the fleet's service has its own.
const OTHER_PROGRAMS: [&str; 4] = ["fleetd", "fleet", "store-etcd", "xtask"];
/// Sources whose texts are about other files: policies are checked in their own tests.
const OTHER_FILES: [&str; 2] = ["daemon/src/policies", "policies/src"];
/// Where `key = value` in a text is a setting.
const ADVICE: [&str; 6] = [
    "daemon/src/doctor.rs",
    "daemon/src/settings.rs",
    "daemon/src/settings/fleet.rs",
    "daemon/src/soft.rs",
    "daemon/src/wiring.rs",
    "daemon/src/xrt.rs",
];
/// Tables whose keys the user chooses.
const FREE: [&str; 2] = ["signatures.tenants", "cards.xrt.environment"];
/// Endings of names that are files.
const EXTENSIONS: [&str; 10] =
    ["yaml", "toml", "rs", "md", "txt", "json", "pem", "pcapng", "html", "bin"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// Files below a folder whose names end so, without what is built and tests.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && !matches!(&*name, "target" | ".git" | "tests" | "benches") {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|of| of == extension) {
            found.push(path);
        }
    }
    found
}

/// All settings by their whole names, such as `cards.xrt.role`, tables among them.
fn settings() -> BTreeSet<String> {
    let types = types();
    let mut all = BTreeSet::new();
    for (table, ty) in TABLES {
        for (key, kind, _) in &types[ty].fields {
            if kind != "value" {
                all.insert([table, key].join(".").trim_start_matches('.').to_owned());
            }
        }
    }
    all
}

fn is_setting(all: &BTreeSet<String>, name: &str) -> bool {
    let is_free = |table: &&str| name.strip_prefix(*table).is_some_and(|of| of.starts_with('.'));
    all.contains(name) || FREE.iter().any(is_free)
}

/// Names of settings in a text: `tls.key`, `[cards.xrt]`, `` `device` in [cards.xrt] ``; of tables that there are.
fn mentions(all: &BTreeSet<String>, text: &str) -> Vec<String> {
    let is_of_name = |c: char| c.is_ascii_lowercase() || matches!(c, '_' | '.' | '[' | ']');
    let is_border = |c: char| !(is_of_name(c) || c.is_alphanumeric() || "{}/-*@".contains(c));
    let mut found = Vec::new();
    for word in text.split(is_border) {
        let is_table = word.starts_with('[') && word.ends_with(']');
        let word =
            if is_table { word.trim_matches(['[', ']']) } else { word.trim_end_matches('.') };
        let plain = word.chars().all(is_of_name) && !word.contains(['[', ']']);
        let (first, last) = (word.split('.').next(), word.rsplit('.').next());
        let is_table_of = |first| TABLES.iter().any(|(of, _)| !of.is_empty() && *of == first);
        let is_known = first.is_some_and(is_table_of);
        let is_file = last.is_some_and(|last| EXTENSIONS.contains(&last));
        if plain && is_known && !is_file && (is_table || word.contains('.')) {
            found.push(word.to_owned());
        }
    }
    for (before, after) in text.match_indices("` in [").map(|(at, _)| text.split_at(at)) {
        let key = before.rsplit('`').next().unwrap_or_default();
        let table = after.trim_start_matches("` in [").split(']').next().unwrap_or_default();
        if all.contains(table) {
            found.push(format!("{table}.{key}"));
        }
    }
    found
}

/// Keys that a text gives a value, as in `driver = "sim"`.
fn assigned(text: &str) -> Vec<String> {
    let is_key =
        |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    let ends = text.match_indices(" = ").map(|(at, _)| &text[..at]);
    let words = ends.filter_map(|before| before.rsplit([' ', '(', '\n', ',', '{', '.']).next());
    words.filter(is_key).map(str::to_owned).collect()
}

/// All texts of a source, its documentation among them.
fn texts(tokens: TokenStream, into: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => texts(group.stream(), into),
            TokenTree::Literal(literal) => {
                if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                    into.push(text.value());
                }
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

/// The names of all values in a document.
fn names(table: &Table, prefix: &str, into: &mut Vec<String>) {
    for (key, value) in table {
        let name = format!("{prefix}{key}");
        let below = format!("{name}.");
        match value {
            Value::Table(table) => names(table, &below, into),
            Value::Array(items) => {
                items.iter().filter_map(Value::as_table).for_each(|of| names(of, &below, into));
            }
            _ => {}
        }
        into.push(name);
    }
}

#[test]
fn what_programs_say_of_settings_is_there() {
    let all = settings();
    let keys: BTreeSet<&str> = all.iter().filter_map(|name| name.rsplit('.').next()).collect();
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    let crates = root().join("crates");
    for file in files(&crates, "rs") {
        // The path below the group's folder, such as `daemon/src/main.rs`.
        let below = file.strip_prefix(&crates).expect("it is in there");
        let name = below.iter().skip(1).collect::<PathBuf>().display().to_string();
        let program = name.split('/').next().unwrap_or_default();
        let is_other = OTHER_FILES.iter().any(|other| name.starts_with(other));
        if is_other || OTHER_PROGRAMS.contains(&program) {
            continue;
        }
        let source = std::fs::read_to_string(&file).expect("a source");
        // Tests have settings that are wrong.
        let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let mut said = Vec::new();
        texts(source.parse().expect("Rust"), &mut said);
        for text in said {
            for setting in mentions(&all, &text) {
                if !is_setting(&all, &setting) {
                    wrong.push(format!("{name}: {setting}: {text:?}"));
                }
                seen.insert(setting);
            }
            for key in assigned(&text).iter().filter(|_| ADVICE.contains(&&*name)) {
                if !keys.contains(&**key) {
                    wrong.push(format!("{name}: {key}: {text:?}"));
                }
                seen.insert(format!("{key} ="));
            }
        }
    }
    assert!(wrong.is_empty(), "no such settings:\n{}", wrong.join("\n"));
    for known in
        ["signatures.provider", "cards.xrt.environment", "cards.xrt.device", "cards", "driver ="]
    {
        assert!(seen.contains(known), "{known} is advised somewhere; only {seen:?} is found");
    }
}

#[test]
fn what_documents_say_of_settings_is_there() {
    let all = settings();
    let mut wrong = Vec::new();
    let (mut inline, mut documents) = (0, 0);
    for file in files(&root(), "md") {
        let name = file.strip_prefix(root()).expect("it is in there").display().to_string();
        // Pages of the fleet's service and of Kubernetes' programs name their own settings; the log of changes says what there was.
        let is_other = [
            "crates/fleet/fleetd",
            "integration/kubernetes/dra.md",
            "integration/kubernetes/dag.md",
            "CHANGELOG.md",
        ];
        if is_other.iter().any(|other| name.starts_with(other)) {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("a document");
        for setting in mentions(&all, &text) {
            inline += 1;
            if !is_setting(&all, &setting) {
                wrong.push(format!("{name}: {setting}"));
            }
        }
        for fence in text.split("```toml").skip(1) {
            let fence = fence.split("```").next().unwrap_or_default();
            let lines = fence.lines().map(str::trim).collect::<Vec<_>>().join("\n");
            let table: Table = lines.parse().unwrap_or_else(|error| panic!("{name}: {error}"));
            if !table.keys().any(|key| all.contains(key)) {
                continue; // Another kind of file.
            }
            documents += 1;
            let mut found = Vec::new();
            names(&table, "", &mut found);
            let missing = found.into_iter().filter(|of| !is_setting(&all, of));
            wrong.extend(missing.map(|of| format!("{name}: {of}")));
        }
    }
    assert!(wrong.is_empty(), "no such settings:\n{}", wrong.join("\n"));
    assert!(inline > 20 && documents >= 5, "{inline} names, {documents} documents");
}

#[test]
fn names_are_found_in_texts_and_files_are_none() {
    let all = settings();
    let found = |text: &str| mentions(&all, text);
    assert_eq!(found("set tls.keyy, or `listen.tcp`."), ["tls.keyy", "listen.tcp"]);
    assert_eq!(found("put it into [cards.xrt.enviroment] of web.yaml"), ["cards.xrt.enviroment"]);
    assert_eq!(found("add [[cards]]; cards[0].id, crates/edge/web.x, snic.fleet.v1"), ["cards"]);
    assert_eq!(found("or `devise` in [cards.xrt]"), ["cards.xrt", "cards.xrt.devise"]);
    assert_eq!(assigned("set driver = \"sim\" (count = {})"), ["driver", "count"]);
    assert!(is_setting(&all, "signatures.tenants.acme") && !is_setting(&all, "signatures.acme"));
}
