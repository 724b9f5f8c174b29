//! The blocks of a page that somebody follows: files to write, commands to type.

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
pub enum Block {
    /// A file: its first line is a comment with its name.
    File { name: String, text: String },
    /// Commands, which end.
    Run(String),
    /// A command that runs until it is stopped, in a terminal of its own.
    Background(String),
}

/// The blocks of a page in their order. Blocks of text, such as outputs, are none.
///
/// # Errors
/// A block is none of these.
pub fn blocks(page: &str) -> Result<Vec<Block>, String> {
    let mut found = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(kind) = line.strip_prefix("```") else { continue };
        let inside = lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```");
        let text: String = inside.map(|line| format!("{line}\n")).collect();
        found.extend(block(kind, text).map_err(|why| format!("line {}: {why}", at + 1))?);
    }
    Ok(found)
}

fn block(kind: &str, text: String) -> Result<Option<Block>, String> {
    match kind {
        "sh" => Ok(Some(Block::Run(text))),
        "sh background" if text.lines().count() == 1 => {
            Ok(Some(Block::Background(text.trim_end().to_owned())))
        }
        "yaml" | "toml" => {
            let name = text.lines().next().and_then(|line| line.strip_prefix("# "));
            let name = name.filter(|name| name.ends_with(kind) && !name.contains(' '));
            let name = name.ok_or(format!("its first line is not `# NAME.{kind}`"))?.to_owned();
            Ok(Some(Block::File { name, text }))
        }
        "text" => Ok(None),
        _ => Err(format!("nobody knows what to do with a block of {kind:?}")),
    }
}

#[test]
fn blocks_are_files_commands_and_those_that_run_on() {
    let page = "# A\n```text\nout\n```\n```yaml\n# a.yaml\nb: 1\n```\nx\n```sh\na\nb\n```\n```sh background\nc\n```\n";
    let file = Block::File { name: "a.yaml".into(), text: "# a.yaml\nb: 1\n".into() };
    let wanted = [file, Block::Run("a\nb\n".into()), Block::Background("c".into())];
    assert_eq!(blocks(page).expect("a page"), wanted);
    for wrong in ["```yaml\nb: 1\n```\n", "```\na\n```\n", "```sh background\na\nb\n```\n"] {
        blocks(wrong).expect_err(wrong);
    }
}
