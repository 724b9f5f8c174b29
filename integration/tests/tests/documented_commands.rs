//! Commands in all pages name programs, subcommands and options that there are, as each program's own help lists them.
//! The pages that a newcomer follows are run besides, by `pages`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use snic_integration::program;

/// Programs of this project whose commands are checked.
const PROGRAMS: [&str; 10] = [
    "snicctl",
    "snicd",
    "snic-card",
    "snic-cdi",
    "snic-device-plugin",
    "snic-dra",
    "snic-fleet",
    "snic-hook",
    "snic-repro",
    "snic-workloads",
];
/// Program whose file has another name before it is packaged.
const RENAMED: (&str, &str) = ("snic-device-plugin", "snic-kubernetes");
/// Command that its program's help does not list, for only the program itself runs it.
const INTERNAL: (&str, &str) = ("snicd", "xrt-worker");
/// Pages that speak of the past, or name test programs.
const LEFT_OUT: [&str; 2] = ["CHANGELOG.md", "REGRESSIONS.md"];
/// Pages and programs that must be among those that are checked, or the check sees nothing.
const EXPECTED: [(&str, &str); 5] = [
    ("README.md", "snicctl"),
    ("crates/host/daemon/docs/software-card.md", "snicctl"),
    ("crates/host/daemon/docs/operators.md", "snicd"),
    ("crates/fleet/fleetd/docs/operating.md", "snic-fleet"),
    ("bitstreams/README.md", "snicctl"),
];

/// Subcommands and options that the help of a command lists.
#[derive(Debug, Default, PartialEq, Eq)]
struct Help {
    subcommands: BTreeSet<String>,
    /// Options, and whether each takes a value.
    options: BTreeMap<String, bool>,
    /// It takes words that are no subcommands, too.
    has_arguments: bool,
}

impl Help {
    fn parse(text: &str) -> Self {
        let mut help = Self::default();
        let mut is_list = false;
        for line in text.lines() {
            if line.starts_with("usage: ") || line.starts_with("       snic-") {
                help.read_usage(line);
                continue;
            }
            if !line.starts_with(' ') {
                is_list = line.starts_with("Commands:");
                help.has_arguments |= line.starts_with("Arguments:");
                continue;
            }
            let entry = line.trim_start();
            if is_list && line.starts_with("  ") && !line.starts_with("   ") {
                help.subcommands.extend(entry.split_whitespace().next().map(str::to_owned));
            }
            if let Some((_, aliases)) = entry.split_once("[alias").filter(|_| is_list) {
                let aliases = aliases.trim_start_matches("es").trim_matches([':', ']', ' ']);
                help.subcommands.extend(aliases.split(", ").map(str::to_owned));
            }
            if entry.starts_with('-') {
                let end = entry.find("  ").unwrap_or(entry.len());
                let takes_value = entry[..end].contains(['<', '[']);
                for word in entry[..end].split([' ', ',', '=', '[']) {
                    if word.len() > 1 && word.starts_with('-') {
                        help.options.insert(word.trim_end_matches("...").to_owned(), takes_value);
                    }
                }
            }
        }
        help
    }

    /// Reads the usage of a program that has no list of its options, such as `usage: snic-cdi [--config FILE] [--once]`.
    fn read_usage(&mut self, line: &str) {
        for part in line.split('[').skip(1).filter(|part| part.starts_with("--")) {
            let words: Vec<&str> = part.split(']').next().unwrap_or_default().split(' ').collect();
            self.options.insert(words[0].to_owned(), words.len() > 1);
        }
    }
}

/// The help of commands, each asked for once.
#[derive(Default)]
struct Helps(BTreeMap<Vec<String>, Help>);

impl Helps {
    fn of(&mut self, path: &[String]) -> &Help {
        self.0.entry(path.to_vec()).or_insert_with(|| {
            let file = if path[0] == RENAMED.0 { RENAMED.1 } else { &path[0] };
            let output = Command::new(program(file)).args(&path[1..]).arg("--help").output();
            let output = output.expect("the program runs");
            // Small programs print their usage as an error.
            let text = [output.stdout, output.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            assert!(text.to_lowercase().contains("usage:"), "{path:?} --help: {text}");
            Help::parse(&text)
        })
    }
}

/// A word that stands for what a reader puts there.
fn is_placeholder(word: &str) -> bool {
    word.contains(['<', '>', '…', '$', '{', '*'])
        || word.ends_with("...")
        || word.chars().all(|c| c.is_ascii_uppercase() || "_-/.,=0123456789".contains(c))
}

/// The words of a line of a shell, in commands; `None` where a quote is not closed.
fn commands_of(line: &str) -> Option<Vec<Vec<String>>> {
    let (mut all, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut quote = None;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '\\') => word.get_or_insert_default().extend(chars.next()),
            (None, '#') if word.is_none() => break,
            (None, '|' | ';' | '&' | '(' | ')') => {
                words.extend(word.take());
                all.push(std::mem::take(&mut words));
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    all.push(words);
    all.retain(|words: &Vec<String>| !words.is_empty());
    quote.is_none().then_some(all)
}

/// The program of ours that a command runs, and its arguments.
fn ours(words: &[String]) -> Option<(&'static str, &[String])> {
    let is_before =
        |word: &str| word.contains('=') || ["sudo", "$", "exec", "time"].contains(&word);
    let start = words.iter().position(|word| !is_before(word))?;
    let words = &words[start..];
    if words[0] == "cargo" {
        let name = words.iter().skip_while(|word| *word != "--bin").nth(1)?;
        let own = words.iter().position(|word| word == "--")?;
        let name = PROGRAMS.iter().find(|program| *program == name)?;
        return Some((name, &words[own + 1..]));
    }
    let name = Path::new(&words[0]).file_name()?.to_str()?;
    Some((PROGRAMS.iter().find(|program| **program == name)?, &words[1..]))
}

/// Names in a command that its program does not know.
fn problems(helps: &mut Helps, name: &str, words: &[String]) -> Vec<String> {
    let (mut path, mut wrong) = (vec![name.to_owned()], Vec::new());
    let mut options: BTreeMap<String, bool> = helps.of(&path).options.clone();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let word = word.trim_matches(['[', ']']);
        if word == "--" || word == "|" || word.starts_with(['>', '<', '2']) && word.contains('>') {
            break;
        }
        if word.starts_with('-') && word.len() > 1 {
            let (option, value) = word.split_once('=').map_or((word, None), |(o, v)| (o, Some(v)));
            // `-omode` and `-it` are one letter and its value, or letters.
            let short = option.get(..2).filter(|_| !option.starts_with("--"));
            match options.get(option).or_else(|| options.get(short?)) {
                None => wrong.push(format!("{} has no option {option}", path.join(" "))),
                Some(true) if value.is_none() && short.is_none_or(|short| short == option) => {
                    words.next();
                }
                Some(_) => {}
            }
            continue;
        }
        let help = helps.of(&path);
        let is_internal = (name, word) == INTERNAL;
        if is_internal || !help.subcommands.is_empty() && is_placeholder(word) {
            break;
        }
        if help.subcommands.is_empty() || help.has_arguments && !help.subcommands.contains(word) {
            continue;
        }
        // `drain|undrain` in running text stands for two.
        let mut alternatives = word.split('|');
        if let Some(unknown) = alternatives.clone().find(|one| !help.subcommands.contains(*one)) {
            wrong.push(format!("{} has no command {unknown}", path.join(" ")));
            break;
        }
        path.extend(alternatives.next().map(str::to_owned));
        options.extend(helps.of(&path).options.clone());
    }
    wrong
}

/// The shell lines of a page with their numbers: those of its fenced blocks, and code in running text that begins with a
/// program of ours.
fn shell_lines(text: &str) -> Vec<(usize, String, bool)> {
    let (mut found, mut fence, mut unfinished) = (Vec::new(), None::<String>, String::new());
    for (number, line) in text.lines().enumerate() {
        if let Some(kind) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_some() { None } else { Some(kind.to_owned()) };
            continue;
        }
        match fence.as_deref() {
            Some(kind) if kind.starts_with("sh") || kind == "console" => {
                let line = line.trim();
                let line = match kind {
                    // Lines without a prompt are what the command prints.
                    "console" if unfinished.is_empty() => {
                        match line.strip_prefix("$ ").or_else(|| line.strip_prefix("# ")) {
                            Some(command) => command,
                            None => continue,
                        }
                    }
                    _ => line,
                };
                unfinished.push_str(line.trim_end_matches('\\'));
                if !line.ends_with('\\') {
                    found.push((number + 1, std::mem::take(&mut unfinished), true));
                }
            }
            Some(_) => {}
            None => {
                let spans = line.split('`').skip(1).step_by(2);
                let own = |span: &&str| {
                    let mut words = span.split_whitespace();
                    PROGRAMS.contains(&words.next().unwrap_or_default()) && words.next().is_some()
                };
                found.extend(spans.filter(own).map(|span| (number + 1, span.to_owned(), false)));
            }
        }
    }
    found
}

fn pages(folder: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the project's folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !name.starts_with('.') && !["target", "node_modules"].contains(&&*name)
        {
            pages(&path, all);
        } else if name.ends_with(".md") && !LEFT_OUT.contains(&&*name) {
            all.push(path);
        }
    }
}

#[test]
#[ignore = "ci: the test command does not build all programs"]
fn every_command_of_every_page_names_what_there_is() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let project = project.canonicalize().expect("it is here");
    let (mut all, mut helps) = (Vec::new(), Helps::default());
    pages(&project, &mut all);
    let (mut wrong, mut checked) = (Vec::new(), BTreeSet::new());
    for path in all {
        let page = path.strip_prefix(&project).expect("it is in it").display().to_string();
        let text = fs::read_to_string(&path).expect("a page");
        for (number, line, is_block) in shell_lines(&text) {
            let at = |why: &str| format!("{page}:{number}: `{line}`: {why}");
            // In running text `a|b` is a choice.
            let commands = match is_block {
                true => commands_of(&line),
                false => Some(vec![line.split_whitespace().map(str::to_owned).collect()]),
            };
            let Some(commands) = commands else {
                wrong.push(at("a quote is not closed"));
                continue;
            };
            for words in &commands {
                let first = words.first().map(String::as_str).unwrap_or_default();
                match ours(words) {
                    Some((name, rest)) => {
                        checked.insert((page.clone(), name));
                        wrong.extend(problems(&mut helps, name, rest).iter().map(|why| at(why)));
                    }
                    None if first.starts_with("snic-") || first.starts_with("snicd") => {
                        wrong.push(at("there is no such program"));
                    }
                    None => {}
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} commands:\n{}", wrong.len(), wrong.join("\n"));
    for (page, name) in EXPECTED {
        assert!(checked.contains(&(page.to_owned(), name)), "{name} in {page} was not checked");
    }
}

#[test]
#[ignore = "ci: the test command does not build all programs"]
fn what_there_is_not_is_found() {
    let mut helps = Helps::default();
    let mut found = |line: &str| -> Vec<String> {
        let commands = commands_of(line).expect("its quotes are closed");
        let all = commands.iter().filter_map(|words| ours(words));
        all.flat_map(|(name, rest)| problems(&mut helps, name, rest)).collect()
    };
    for right in [
        "sudo snicctl --timeout 5s dag list -A -o json | jq '.[] | .name' # all",
        "A=b target/release/snicd run --config=/x && snicctl rule create r --vf 0 --dag acme/web",
        "cargo run --release --bin snicd -- quickstart",
        "cd snicctl; other --option",
    ] {
        assert_eq!(found(right), Vec::<String>::new(), "{right}");
    }
    for (line, why) in [
        ("snicctl rule create r --virtual-function 0", "has no option --virtual-function"),
        ("snicctl dags list", "snicctl has no command dags"),
        ("snic-cdi --config /etc/snic/cdi.toml --twice", "snic-cdi has no option --twice"),
        ("cargo run --bin snicd -- quick-start", "snicd has no command quick-start"),
        ("true && snicctl dag list --nothing=1", "snicctl dag list has no option --nothing"),
    ] {
        let wrong = found(line);
        assert!(wrong.len() == 1 && wrong[0].ends_with(why), "{line}: {wrong:?}");
    }
    assert_eq!(commands_of("snicctl get 'a"), None);
}
