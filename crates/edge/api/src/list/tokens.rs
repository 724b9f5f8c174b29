//! Words of filters.

/// A word of a filter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Token {
    /// A field, a value without quotes, or `AND` and `NOT`.
    Word(String),
    /// A value in quotes.
    Text(String),
    Operator(Operator),
}

/// Comparison of a field with a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Has,
}

impl Operator {
    /// All of them; a longer one before the one that it begins with.
    const ALL: [(&'static str, Self); 7] = [
        ("!=", Self::NotEqual),
        ("<=", Self::LessOrEqual),
        (">=", Self::GreaterOrEqual),
        ("=", Self::Equal),
        ("<", Self::Less),
        (">", Self::Greater),
        (":", Self::Has),
    ];
}

/// Whether a character is part of a word. A colon is part of a value such as a time or a MAC address, but
/// not of a field.
fn is_in_word(c: char, in_value: bool) -> bool {
    c.is_ascii_alphanumeric() || "._/-*+".contains(c) || (in_value && c == ':')
}

/// The words of a filter.
///
/// # Errors
/// A character that begins no word, or a text without its closing quote.
pub(super) fn tokens(filter: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut rest = filter.trim_start();
    while let Some(first) = rest.chars().next() {
        let found = Operator::ALL.iter().find(|(sign, _)| rest.starts_with(sign));
        if let Some((sign, operator)) = found {
            tokens.push(Token::Operator(*operator));
            rest = &rest[sign.len()..];
        } else if first == '"' {
            let (text, behind) = quoted(&rest[1..])?;
            tokens.push(Token::Text(text));
            rest = behind;
        } else {
            let in_value = matches!(tokens.last(), Some(Token::Operator(_)));
            let end = rest.find(|c| !is_in_word(c, in_value)).unwrap_or(rest.len());
            if end == 0 {
                return Err(unexpected(first));
            }
            tokens.push(Token::Word(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        rest = rest.trim_start();
    }
    Ok(tokens)
}

/// A text up to its closing quote, and what is behind; `\` takes the next character as it is.
fn quoted(rest: &str) -> Result<(String, &str), String> {
    let mut text = String::new();
    let mut chars = rest.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((text, &rest[at + 1..])),
            '\\' => text.extend(chars.next().map(|(_, escaped)| escaped)),
            c => text.push(c),
        }
    }
    Err("a text has no closing quote".to_owned())
}

fn unexpected(c: char) -> String {
    let hint = match c {
        '(' | ')' => "parentheses are not part of filters: send one request for each alternative",
        '\'' => "put texts in double quotes",
        _ => "put values with such characters in double quotes",
    };
    format!("{c:?} is not expected here; {hint}")
}
