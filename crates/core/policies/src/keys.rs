//! Tests over every key of every policy file. The keys are read from the types, so none is forgotten.

use std::path::Path;

use syn::{Fields, Item, Type};

use super::tests::{error, with};
use super::{SHIPPED, Source, settings_of};

/// Kind of a key's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    Word,
    Switch,
}

/// A key: its file, its table (empty at the top), its name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Key {
    file: &'static str,
    table: String,
    name: String,
    kind: Kind,
}

impl Key {
    fn path(&self) -> String {
        if self.table.is_empty() {
            self.name.clone()
        } else {
            format!("{}.{}", self.table, self.name)
        }
    }

    /// A file that sets this key only; it stands in line 2.
    fn set(&self, value: &str) -> String {
        let table = if self.table.is_empty() { String::new() } else { format!("[{}]", self.table) };
        format!("{table}\n{} = {value}\n", self.name)
    }

    /// Its line in the file that ships, and the comment above it.
    fn shipped(&self) -> (String, String) {
        let (_, text) = SHIPPED.iter().find(|(name, _)| *name == self.file).expect("it ships");
        let (mut table, mut comment) = (String::new(), String::new());
        for line in text.lines() {
            if let Some(header) = line.strip_prefix('[') {
                table = header.trim_end_matches(']').to_owned();
            } else if let Some(text) = line.strip_prefix('#') {
                comment += text;
                continue;
            } else if table == self.table && line.starts_with(&format!("{} = ", self.name)) {
                return (line.to_owned(), comment);
            }
            comment.clear();
        }
        panic!("{} is not in the {} that ships", self.path(), self.file);
    }
}

/// Type written inside `Option<…>`, and for `Spanned<…>` too: the last name of the innermost type.
fn innermost(ty: &Type) -> String {
    let Type::Path(path) = ty else { panic!("a type by its name") };
    let last = path.path.segments.last().expect("a name");
    match &last.arguments {
        syn::PathArguments::AngleBracketed(inner) => match inner.args.first() {
            Some(syn::GenericArgument::Type(ty)) => innermost(ty),
            _ => panic!("a type inside"),
        },
        _ => last.ident.to_string(),
    }
}

/// The keys, from the source of the types: a type named after its file, then its tables.
fn keys() -> Vec<Key> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/files.rs");
    let source = std::fs::read_to_string(path).expect("a source");
    let items = syn::parse_file(&source).expect("Rust").items;
    let fields = |of: &str| -> Vec<(String, String)> {
        let found = items.iter().find_map(|item| match item {
            Item::Struct(item) if item.ident == of => Some(&item.fields),
            _ => None,
        });
        let Some(Fields::Named(fields)) = found else { panic!("{of} has no named fields") };
        let one = |field: &syn::Field| {
            (field.ident.as_ref().expect("named").to_string(), innermost(&field.ty))
        };
        fields.named.iter().map(one).collect()
    };
    let mut keys = Vec::new();
    for (file, _) in SHIPPED {
        let stem = file.trim_end_matches(".toml");
        let root = format!("{}{}File", stem[..1].to_uppercase(), &stem[1..]);
        let mut open = vec![(String::new(), root)];
        while let Some((table, ty)) = open.pop() {
            for (name, ty) in fields(&ty) {
                let kind = match ty.as_str() {
                    "u64" => Kind::Number,
                    "String" => Kind::Word,
                    "bool" => Kind::Switch,
                    _ => {
                        let dot = if table.is_empty() { "" } else { "." };
                        open.push((format!("{table}{dot}{name}"), ty));
                        continue;
                    }
                };
                keys.push(Key { file, table: table.clone(), name, kind });
            }
        }
    }
    keys
}

/// The range in a comment: "… 1 to 100 …"; a name stands for the value of another key of the table.
fn range(key: &Key) -> (u64, u64) {
    let (_, comment) = key.shipped();
    let words: Vec<&str> = comment.split_whitespace().collect();
    let number = |word: &str| {
        let word = word.trim_end_matches(['.', ';', ',']);
        word.parse::<u64>().ok().or_else(|| {
            let other = keys().into_iter().find(|k| k.table == key.table && k.name == word)?;
            other.shipped().0.split_once(" = ")?.1.parse().ok()
        })
    };
    let ranges = words.windows(3).filter(|three| three[1] == "to");
    let mut ranges = ranges.filter_map(|three| Some((number(three[0])?, number(three[2])?)));
    ranges.next().unwrap_or_else(|| panic!("{}: {} says no range", key.file, key.path()))
}

#[test]
fn there_are_keys_and_each_file_has_some() {
    let keys = keys();
    for (file, text) in SHIPPED {
        let of_file = keys.iter().filter(|key| key.file == file).count();
        let shipped = text.lines().filter(|line| !line.starts_with('#') && line.contains(" = "));
        assert_eq!(of_file, shipped.count(), "{file}: as many keys in the types as in the file");
        assert!(of_file > 0, "{file}");
    }
    assert!(keys.len() > 20, "{keys:?}");
}

#[test]
fn every_key_ships_with_its_documentation() {
    for key in keys() {
        let (_, comment) = key.shipped();
        assert!(comment.len() > 30, "{}: {} is documented by {comment:?}", key.file, key.path());
    }
}

#[test]
fn every_number_has_a_range_that_is_documented_and_checked() {
    for key in keys().iter().filter(|key| key.kind == Kind::Number) {
        let (least, most) = range(key);
        let fine = |n: u64| with(&[(key.file, &key.set(&n.to_string()))]);
        let at_ends = [least, most].map(fine);
        for (n, settings) in [least, most].into_iter().zip(at_ends) {
            // A contradiction to another key is another thing than a value out of range.
            let refused = settings.err().filter(|error| error.contains("is not allowed"));
            assert_eq!(refused, None, "{} = {n}", key.path());
        }
        let wrong = [least.checked_sub(1), most.checked_add(1), Some(u64::MAX >> 1)];
        for n in wrong.into_iter().flatten() {
            let says = format!("{}:2: {} = {n} is not allowed: ", key.file, key.path());
            let error = error(key.file, &key.set(&n.to_string()));
            assert!(error.starts_with(&says), "{error}");
            assert!(error.ends_with(&format!(" to {most}")), "{error}");
        }
    }
}

#[test]
fn every_key_refuses_what_is_no_value_of_it_with_key_and_line() {
    for key in keys() {
        let wrong: &[&str] = match key.kind {
            Kind::Number => &["-1", "1.5", "nan", "\"ten\"", "true", "[]", "99999999999999999999"],
            Kind::Word => &["\"\"", "\"nonsense\"", "0", "true"],
            Kind::Switch => &["0", "\"yes\"", "nan"],
        };
        for value in wrong {
            let error = error(key.file, &key.set(value));
            assert!(error.starts_with(&format!("{}:2: ", key.file)), "{error}");
            assert!(error.contains(&key.path()), "{value}: {error}");
        }
        let twice = format!("{}{} = {}", key.set("1"), key.name, "1");
        assert!(error(key.file, &twice).starts_with(&format!("{}:", key.file)));
    }
}

#[test]
fn every_word_that_is_documented_is_taken_and_counts() {
    for key in keys().iter().filter(|key| key.kind == Kind::Word) {
        let (_, comment) = key.shipped();
        let words: Vec<&str> = comment.split('"').skip(1).step_by(2).collect();
        assert!(words.len() > 1, "{}: {comment}", key.path());
        let mut meant: Vec<_> = Vec::new();
        for word in words {
            let settings = with(&[(key.file, &key.set(&format!("{word:?}")))]).expect(word);
            assert!(!meant.contains(&settings), "{word} means what another word means");
            meant.push(settings);
        }
    }
}

#[test]
fn every_key_changes_something() {
    for key in keys() {
        let default = with(&[]).expect("what ships");
        let values = match key.kind {
            Kind::Number => [range(&key).0, range(&key).1].map(|n| n.to_string()).to_vec(),
            Kind::Switch => vec!["false".into(), "true".into()],
            Kind::Word => continue, // above
        };
        let changed = values.iter().any(|value| {
            let settings = with(&[(key.file, &key.set(value))]);
            settings.is_ok_and(|settings| settings != default)
        });
        assert!(changed, "{} changes nothing", key.path());
    }
}

/// Whatever the values, a file is taken or refused with a place: no combination of keys panics.
#[test]
fn all_pairs_of_keys_at_their_ends_have_an_answer() {
    let ends = |key: &Key| -> Vec<String> {
        match key.kind {
            Kind::Number => [range(key).0, range(key).1].map(|n| n.to_string()).to_vec(),
            Kind::Switch => vec!["false".into(), "true".into()],
            Kind::Word => vec![key.shipped().0.split_once(" = ").expect("a line").1.to_owned()],
        }
    };
    let keys = keys();
    for (at, one) in keys.iter().enumerate() {
        for other in &keys[at + 1..] {
            for (a, b) in
                ends(one).iter().flat_map(|a| ends(other).into_iter().map(move |b| (a, b)))
            {
                let texts = SHIPPED.map(|(name, _)| {
                    let of = |key: &Key, value: &str| {
                        if key.file == name { key.set(value) } else { String::new() }
                    };
                    // Keys of one table under one header.
                    match one.file == other.file && one.table == other.table && one.file == name {
                        true => format!("{}{} = {b}\n", one.set(a), other.name),
                        // What is at the top comes first.
                        false if other.table.is_empty() => of(other, &b) + &of(one, a),
                        false => of(one, a) + &of(other, &b),
                    }
                });
                let names = SHIPPED.map(|(name, _)| name);
                let sources: Vec<Source<'_>> = names
                    .iter()
                    .zip(&texts)
                    .map(|(name, text)| Source { path: (*name).to_owned(), text })
                    .collect();
                let answer = settings_of(sources.as_array().expect("as many"));
                if let Err(error) = answer.map(|_| ()).map_err(|error| error.to_string()) {
                    let places = error.contains(&one.path()) || error.contains(&other.path());
                    assert!(places, "{} and {}: {error}", one.path(), other.path());
                }
            }
        }
    }
}
