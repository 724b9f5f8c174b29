//! Text of others in log lines: a line in a terminal or a journal is one line, and has nothing that a terminal obeys.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::LogFormat;

/// Whether a character does something other than show itself; the same as in `snic_api::text`, which this crate does not
/// depend on.
const fn is_hidden(character: char) -> bool {
    matches!(
        character,
        '\0'..='\u{1f}'
            | '\u{7f}'..='\u{9f}'
            | '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

/// An event's line with every hidden character but the line break at its end as an escape: `\u{1b}` in text, `\u001b` in
/// JSON, which stays the same value.
pub(crate) fn escaped_line(line: &str, format: LogFormat) -> Cow<'_, str> {
    let text = line.strip_suffix('\n').unwrap_or(line);
    if !text.contains(is_hidden) {
        return Cow::Borrowed(line);
    }
    let mut result = String::with_capacity(line.len() + 16);
    for character in text.chars() {
        match format {
            _ if !is_hidden(character) => result.push(character),
            LogFormat::Human => result.extend(character.escape_default()),
            LogFormat::Json => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    write!(result, "\\u{unit:04x}").expect("a String takes all");
                }
            }
        }
    }
    result.push_str(&line[text.len()..]);
    Cow::Owned(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_characters_are_hidden_as_elsewhere() {
        for character in '\0'..='\u{10ffff}' {
            assert_eq!(is_hidden(character), snic_api::text::is_hidden(character), "{character:?}");
        }
    }

    #[test]
    fn an_event_is_one_line_without_controls() {
        let line = "WARN a\x1b[2J\u{202e}b\nERROR forged\n";
        let shown = "WARN a\\u{1b}[2J\\u{202e}b\\nERROR forged\n";
        assert_eq!(escaped_line(line, LogFormat::Human), shown);
        assert_eq!(escaped_line("plain\n", LogFormat::Human), "plain\n");
        let json = escaped_line("{\"a\":\"\u{9b}\u{e0041}\"}\n", LogFormat::Json);
        assert_eq!(json, "{\"a\":\"\\u009b\\udb40\\udc41\"}\n");
    }
}
