//! Text of others on its way to a person: descriptions, names that were refused, reasons, messages of a server.
//!
//! A terminal obeys some characters instead of showing them (ESC and C1 begin commands), some have no width, and some
//! change the order in which a line is read (bidirectional controls). In what a person reads they stand as escapes.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character does something other than show itself: controls (C0, DEL, C1), separators of lines and paragraphs,
/// bidirectional controls, and characters without width.
pub const fn is_hidden(character: char) -> bool {
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

/// A text on one line, with every hidden character as an escape such as `\u{1b}`, a line break as `\n`.
pub fn escaped(text: &str) -> Cow<'_, str> {
    replaced(text, is_hidden, |escape, character| escape.extend(character.escape_default()))
}

/// The same, but line breaks and tabs stay: for texts of several lines.
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    let is_escaped = |character| is_hidden(character) && !matches!(character, '\n' | '\t');
    replaced(text, is_escaped, |escape, character| escape.extend(character.escape_default()))
}

/// A name that was refused, on one line and cut to a number of characters before its hidden ones are escaped.
pub fn shortened(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => escaped(text).into_owned(),
        Some((end, _)) => format!("{}…", escaped(&text[..end])),
    }
}

/// JSON whose strings have every hidden character as `\uXXXX`: the same value for whoever parses it.
pub fn escaped_json(json: &str) -> Cow<'_, str> {
    // Line breaks and tabs of JSON stand between its values; in strings they are escapes already.
    let is_escaped = |character| is_hidden(character) && !matches!(character, '\n' | '\r' | '\t');
    replaced(json, is_escaped, |escape, character| {
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(escape, "\\u{unit:04x}").expect("a String takes all");
        }
    })
}

/// A text of the same length in bytes in which every hidden character but line breaks and tabs is a visible one: places in
/// the text stay where they are.
pub fn masked(text: &str) -> Cow<'_, str> {
    let is_masked = |character| is_hidden(character) && !matches!(character, '\n' | '\t');
    replaced(text, is_masked, |mask, character| {
        mask.push(match character.len_utf8() {
            1 => '?',
            2 => '·',
            3 => '\u{fffd}',
            _ => '\u{1f7ae}', // ASTERISK WITH FIVE BALANCED SPOKES: any that takes four bytes
        });
    })
}

/// The text with some characters replaced; borrowed where there are none.
fn replaced(
    text: &str,
    is_replaced: impl Fn(char) -> bool,
    mut replace: impl FnMut(&mut String, char),
) -> Cow<'_, str> {
    if !text.contains(&is_replaced) {
        return Cow::Borrowed(text);
    }
    let mut result = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if is_replaced(character) {
            replace(&mut result, character);
        } else {
            result.push(character);
        }
    }
    Cow::Owned(result)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn controls_are_escapes_and_other_text_is_as_it_was() {
        let plain = "Grüße, 日本語, a \\ b, “x”, 👍";
        assert!(matches!(escaped(plain), Cow::Borrowed(same) if same == plain));
        assert_eq!(escaped("a\x1b[2Jb\u{9b}31mc"), "a\\u{1b}[2Jb\\u{9b}31mc");
        assert_eq!(escaped("x\u{202e}y\u{200f}z\n"), "x\\u{202e}y\\u{200f}z\\n");
        assert_eq!(escaped_lines("a\n\tb\r\u{2028}"), "a\n\tb\\r\\u{2028}");
    }

    /// Unicode 15, table of Bidi_Control (PropList.txt), and the general categories Cc, Zl and Zp.
    #[test]
    fn every_control_of_the_unicode_tables_is_hidden() {
        let bidi = ['\u{61c}', '\u{200e}', '\u{200f}'];
        let ranges = ('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}');
        for character in bidi.into_iter().chain(ranges).chain(['\u{2028}', '\u{2029}']) {
            assert!(is_hidden(character), "{:04x}", u32::from(character));
        }
        for character in ('\0'..='\u{10ffff}').filter(|character| character.is_control()) {
            assert!(is_hidden(character), "{:04x}", u32::from(character));
        }
        // A letter, a space or a sign is not.
        let shown = ('\0'..='\u{10ffff}').filter(|c| c.is_alphanumeric() || *c == ' ');
        assert_eq!(shown.filter(|character| is_hidden(*character)).collect::<String>(), "");
    }

    #[test]
    fn a_refused_name_is_cut() {
        assert_eq!(shortened("é\x1béé", 4), "é\\u{1b}éé");
        assert_eq!(shortened("é\x1béé", 2), "é\\u{1b}…");
        assert_eq!(shortened(&"x".repeat(1 << 20), 3), "xxx…");
    }

    fn hostile() -> impl Strategy<Value = String> {
        let signs = prop::sample::select(
            "\x1b\u{7}\x08\u{7f}\u{85}\u{9b}\u{61c}\u{200b}\u{202e}\u{2028}\u{2066}\u{e0041}\n\r\taé\\\"{}👍"
                .chars()
                .collect::<Vec<_>>(),
        );
        prop::collection::vec(signs, 0..40).prop_map(|signs| signs.into_iter().collect())
    }

    proptest! {
        #[test]
        fn nothing_hidden_is_left(text in hostile()) {
            prop_assert!(!escaped(&text).chars().any(is_hidden));
            let lines = escaped_lines(&text);
            prop_assert!(!lines.chars().any(|c| is_hidden(c) && c != '\n' && c != '\t'));
            let mask = masked(&text);
            prop_assert_eq!(mask.len(), text.len());
            for (at, character) in text.char_indices() {
                prop_assert!(mask.is_char_boundary(at));
                prop_assert_eq!(is_hidden(character) && !matches!(character, '\n' | '\t'), !mask[at..].starts_with(character));
            }
        }

        /// serde_json judges: what it parses is what it wrote.
        #[test]
        fn json_stays_the_same_value(text in hostile()) {
            let json = serde_json::to_string_pretty(&serde_json::json!({ &text: [&text] })).expect("it is");
            let shown = escaped_json(&json);
            prop_assert!(!shown.chars().any(|c| is_hidden(c) && c != '\n'));
            let parsed: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
            prop_assert_eq!(parsed, serde_json::json!({ &text: [&text] }));
        }
    }
}
