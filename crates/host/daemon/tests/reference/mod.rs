//! `SETTINGS.md` is generated from the types of the settings: their fields, their documentation, and the
//! defaults that the daemon prints. `SNIC_WRITE=1 cargo test -p snicd --test daemon reference::` writes it.

mod mentions;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use syn::{Attribute, Expr, Fields, Item, Lit, Meta};

/// The parsed sources: the settings, and the types that they use from other crates.
const SOURCES: [&str; 7] = [
    "src/settings.rs",
    "src/settings/fleet.rs",
    "src/settings/soft.rs",
    "../../core/domain/src/function.rs",
    "../../core/bitstream/src/signature.rs",
    "../../cards/card-soft/src/port_guard.rs",
    "../../cards/card-soft/src/failover.rs",
];

/// Tables in the order of the reference, with their types.
pub const TABLES: [(&str, &str); 18] = [
    ("", "Settings"),
    ("listen", "Listen"),
    ("listen.unix_peers", "UnixPeer"),
    ("tls", "Tls"),
    ("log", "LogSettings"),
    ("telemetry", "TelemetrySettings"),
    ("web", "Web"),
    ("audit", "Audit"),
    ("signatures", "Signatures"),
    ("fleet", "FleetMembership"),
    ("cards", "CardSettings"),
    ("cards.functions", "VirtualFunctions"),
    ("cards.xrt", "XrtSettings"),
    ("cards.soft", "Soft"),
    ("cards.soft.guards", "FunctionGuard"),
    ("cards.soft.failovers", "Failover"),
    ("cards.xrt.deadlines", "XrtDeadlines"),
    ("cards.driver", "Driver"),
];

/// A type: its documentation, and its fields or values.
#[derive(Debug, Default)]
pub struct Described {
    doc: String,
    fields: Vec<(String, String, String)>,
}

/// The documentation of an item, as one paragraph.
fn doc(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(text) => match &text.lit {
                Lit::Str(text) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join(" ")
}

/// A type in the words of a settings file.
fn kind(ty: &syn::Type) -> String {
    let syn::Type::Path(path) = ty else { return "?".into() };
    let last = path.path.segments.last().expect("a type has a name");
    let inner = || match &last.arguments {
        syn::PathArguments::AngleBracketed(inner) => {
            let types = inner.args.iter().filter_map(|argument| match argument {
                syn::GenericArgument::Type(ty) => Some(kind(ty)),
                _ => None,
            });
            types.collect::<Vec<_>>()
        }
        _ => Vec::new(),
    };
    match last.ident.to_string().as_str() {
        "Option" => format!("{}, optional", inner().concat()),
        "Vec" | "BTreeSet" => format!("list of {}", inner().concat()),
        "BTreeMap" => format!("table of {}", inner().last().cloned().unwrap_or_default()),
        "u64" | "u32" | "u16" | "usize" => "integer".into(),
        "bool" => "true or false".into(),
        "PathBuf" => "path".into(),
        "SocketAddr" => "address:port".into(),
        "OsUser" => "user name or number".into(),
        "XrtDevice" => "PCI address or number".into(),
        "PciAddress" => "PCI address".into(),
        "String" | "CardId" | "CardModel" | "TenantId" | "PortSpec" | "Uuid" | "Mac" => {
            "text".into()
        }
        own => {
            let table = TABLES.iter().find(|(_, ty)| *ty == own);
            let (table, _) = table.unwrap_or_else(|| panic!("{own} is not among the tables"));
            format!("[`{table}`](#{})", table.replace('.', ""))
        }
    }
}

pub fn types() -> BTreeMap<String, Described> {
    let mut types = BTreeMap::new();
    for source in SOURCES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        let text = std::fs::read_to_string(&path).expect("a source");
        for item in syn::parse_file(&text).expect("Rust").items {
            match item {
                Item::Struct(found) => {
                    let Fields::Named(fields) = &found.fields else { continue };
                    let one = |field: &syn::Field| {
                        let name = field.ident.as_ref().expect("named").to_string();
                        let known = TABLES.iter().any(|(_, ty)| found.ident == ty);
                        let ty = if known { kind(&field.ty) } else { String::new() };
                        (name, ty, doc(&field.attrs))
                    };
                    let fields = fields.named.iter().map(one).collect();
                    let described = Described { doc: doc(&found.attrs), fields };
                    types.insert(found.ident.to_string(), described);
                }
                Item::Enum(found) => {
                    let one = |variant: &syn::Variant| {
                        let name = format!("\"{}\"", variant.ident.to_string().to_lowercase());
                        (name, "value".to_owned(), doc(&variant.attrs))
                    };
                    let fields = found.variants.iter().map(one).collect();
                    let described = Described { doc: doc(&found.attrs), fields };
                    types.insert(found.ident.to_string(), described);
                }
                _ => {}
            }
        }
    }
    types
}

/// The defaults, as the daemon prints them.
fn defaults() -> String {
    let printed = Command::new(env!("CARGO_BIN_EXE_snicd")).arg("config").output();
    String::from_utf8(printed.expect("snicd starts").stdout).expect("text")
}

fn reference() -> String {
    let types = types();
    let mut text =
        "# Settings of `snicd`\n\nGenerated from the types in `src/settings.rs`. The settings \
                    file is TOML. Unknown keys are errors; omitted keys have their defaults.\n"
            .to_owned();
    for (table, ty) in TABLES {
        let described = &types[ty];
        let title = if table.is_empty() { "Top level".into() } else { format!("`{table}`") };
        text += &format!(
            "\n## {title}\n\n{}\n\n| key | type | meaning |\n|---|---|---|\n",
            described.doc
        );
        for (name, kind, what) in &described.fields {
            assert!(!what.is_empty(), "{ty}.{name} is not documented");
            text += &format!("| `{name}` | {kind} | {what} |\n");
        }
    }
    text + &format!("\n## Defaults\n\n```toml\n{}```\n", defaults())
}

#[test]
fn the_reference_is_what_the_types_say() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("SETTINGS.md");
    let made = reference();
    if std::env::var_os("SNIC_WRITE").is_some() {
        std::fs::write(&path, &made).expect("written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        there == made,
        "SETTINGS.md is not up to date; run SNIC_WRITE=1 cargo test -p snicd --test daemon"
    );
    // Every default that is printed is a key that is described.
    for line in defaults().lines() {
        if let Some((key, _)) = line.split_once(" = ") {
            assert!(made.contains(&format!("| `{key}` |")), "{key} is not described");
        }
    }
}
