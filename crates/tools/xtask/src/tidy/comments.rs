//! Doc comments are noun phrases or verbs in the third person: the number of those that begin with a question word only falls.

use std::fs;
use std::path::Path;

use anyhow::Context;

/// Words that a doc comment should not begin with.
const WORDS: [&str; 8] = ["Who", "What", "Which", "Whose", "Whom", "How", "Of", "By"];

/// Largest number of doc lines that begin with one of them. Lower it when some go.
const LINES_MAX: usize = 0;

/// A complaint with the places, if there are more than allowed.
///
/// # Errors
/// A source cannot be read.
pub fn check(root: &Path, tracked: &[String]) -> anyhow::Result<Vec<String>> {
    let mut places = Vec::new();
    for path in tracked.iter().filter(|path| path.ends_with(".rs") && root.join(path).exists()) {
        let text =
            fs::read_to_string(root.join(path)).with_context(|| format!("reading {path}"))?;
        places.extend(lines(&text).map(|line| format!("{path}:{line}")));
    }
    Ok(complaint(&places).into_iter().collect())
}

/// Numbers of the doc lines that begin with a question word, from 1.
fn lines(text: &str) -> impl Iterator<Item = usize> {
    let begins = |line: &str| {
        let doc = line.trim_start();
        let doc = doc.strip_prefix("/// ").or_else(|| doc.strip_prefix("//! "));
        let first = doc.map(|doc| doc.split(|c: char| !c.is_alphanumeric()).next());
        first.flatten().is_some_and(|word| WORDS.contains(&word))
    };
    text.lines().enumerate().filter(move |(_, line)| begins(line)).map(|(at, _)| at + 1)
}

fn complaint(places: &[String]) -> Option<String> {
    (places.len() > LINES_MAX).then(|| {
        format!(
            "{} doc lines begin with {}, at most {LINES_MAX} may; write a noun phrase or a verb in the third \
             person: {}",
            places.len(),
            WORDS.join(", "),
            places.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn question_words_are_found_at_the_beginning_of_doc_lines_only() {
        let text = "//! Who asks.\n/// Number of what.\n    /// By id: all.\n// What of it.\n/// Whoever.\nfn a() {}\n/// How.";
        assert_eq!(lines(text).collect::<Vec<_>>(), [1, 3, 7]);
    }

    #[test]
    fn one_more_than_allowed_is_too_many() {
        let places = vec![String::from("a.rs:1"); LINES_MAX + 1];
        assert_eq!(complaint(&places[1..]), None);
        assert!(complaint(&places).expect("too many").contains("a.rs:1"));
    }
}
