//! Relative links in Markdown files: the file is there, and where the link names a section, the
//! section has that heading. Links to other sites are not followed: a check that needs the network
//! fails for reasons that nobody here can fix.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::Context;

/// Every broken relative link in the tracked Markdown files.
///
/// # Errors
/// A Markdown file cannot be read.
pub fn check(root: &Path, tracked: &[String]) -> anyhow::Result<Vec<String>> {
    let mut wrong = Vec::new();
    for path in tracked.iter().filter(|path| path.ends_with(".md")) {
        let whole = root.join(path);
        if !whole.exists() {
            continue; // deleted, and not yet committed so
        }
        let text = fs::read_to_string(&whole).with_context(|| format!("reading {path}"))?;
        for (line, target) in relative_links(&text) {
            if let Some(reason) = broken(root, path, &target)? {
                wrong.push(format!("{path}:{line}: link `{target}`: {reason}"));
            }
        }
    }
    Ok(wrong)
}

/// Why a link in the file `from` leads nowhere.
fn broken(root: &Path, from: &str, target: &str) -> anyhow::Result<Option<String>> {
    let (file, section) = match target.split_once('#') {
        Some((file, section)) => (file, Some(section)),
        None => (target, None),
    };
    let path = if file.is_empty() {
        PathBuf::from(from)
    } else {
        match normalized(Path::new(from).parent().unwrap_or(Path::new("")), file) {
            Some(path) => path,
            None => return Ok(Some("leads out of the repository".to_owned())),
        }
    };
    let shown = path.display();
    if !root.join(&path).exists() {
        return Ok(Some(format!("there is no {shown}")));
    }
    let Some(section) = section else { return Ok(None) };
    let text = fs::read_to_string(root.join(&path)).with_context(|| format!("reading {shown}"))?;
    let sections = sections(&text);
    Ok((!sections.contains(section)).then(|| format!("{shown} has no heading `#{section}`")))
}

/// `folder/link` without `.` and `..`, or nothing where it leads out of the root.
fn normalized(folder: &Path, link: &str) -> Option<PathBuf> {
    let mut path = folder.to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir => {
                if !path.pop() {
                    return None;
                }
            }
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

/// Targets of inline links `[text](target)` and of definitions `[name]: target` that stay in the
/// repository, with the number of their line. Code, fenced or in a line, holds no links.
fn relative_links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (number, line) in prose(text) {
        let line = without_code(line);
        let definition = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "))
            .map(|(_, target)| target);
        let inline = line.match_indices("](").filter_map(|(start, opening)| {
            line[start + opening.len()..].split_once(')').map(|(target, _)| target)
        });
        for target in definition.into_iter().chain(inline) {
            // A title may follow: `[text](target "title")`.
            let target = target.split_whitespace().next().unwrap_or("");
            if !target.is_empty() && !target.contains(':') && !target.starts_with("//") {
                found.push((number, target.to_owned()));
            }
        }
    }
    found
}

/// The lines outside of fenced code, numbered from 1.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((index + 1, line))
    })
}

fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// The anchors of a file's headings, as GitHub and mdBook make them: in small letters, without
/// punctuation, with hyphens for spaces, and numbered where one comes again.
fn sections(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let headings = prose(text).filter_map(|(_, line)| {
        let title = line.trim_start_matches('#');
        (title.len() < line.len()).then(|| title.strip_prefix(' ')).flatten()
    });
    for title in headings {
        let is_kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
        let kept: String = title.trim().to_lowercase().chars().filter(is_kept).collect();
        let anchor = kept.replace(' ', "-");
        let mut unique = anchor.clone();
        let mut count = 0;
        while !anchors.insert(unique.clone()) {
            count += 1;
            unique = format!("{anchor}-{count}");
        }
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_in_prose_and_not_in_code() {
        let text = "See [a](docs/a.md), [b](#b \"title\") and [web](https://example.org/x).\n\
                    `[code](no.md)` and [mail](mailto:a@b)\n\
                    ```text\n[fenced](no.md)\n```\n\
                    [name]: ../c.md#part\n";
        let links = relative_links(text);
        let expected = [(1, "docs/a.md"), (1, "#b"), (6, "../c.md#part")];
        assert_eq!(links, expected.map(|(line, target)| (line, target.to_owned())));
    }

    #[test]
    fn headings_become_anchors_as_on_the_web() {
        let text = "# Who may do what?\n## `snicctl` & co.\n### Crashes\n### Crashes\n\
                    ```sh\n# a comment\n```\n#no heading\n";
        let anchors: Vec<String> = sections(text).into_iter().collect();
        assert_eq!(anchors, ["crashes", "crashes-1", "snicctl--co", "who-may-do-what"]);
    }

    #[test]
    fn a_broken_link_is_named_with_its_line_and_the_reason() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("docs")).unwrap();
        let write = |name: &str, text: &str| fs::write(root.path().join(name), text).unwrap();
        write("README.md", "# Top\n[1](docs/a.md#part) [2](#top) [3](docs)\n");
        write("docs/a.md", "## Part\n[4](../README.md)\n[5](b.md) [6](#none) [7](../../x)\n");
        let tracked = ["README.md", "docs/a.md", "deleted.md"].map(str::to_owned);
        assert_eq!(
            check(root.path(), &tracked).unwrap(),
            [
                "docs/a.md:3: link `b.md`: there is no docs/b.md",
                "docs/a.md:3: link `#none`: docs/a.md has no heading `#none`",
                "docs/a.md:3: link `../../x`: leads out of the repository",
            ]
        );
    }
}
