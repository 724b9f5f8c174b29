//! Comma-separated values (RFC 4180).

/// A line of fields. A field is in quotes where a reader would take it for several (section 2).
pub fn line(fields: impl IntoIterator<Item = String>) -> String {
    let fields: Vec<String> = fields.into_iter().map(field).collect();
    fields.join(",") + "\n"
}

fn field(text: String) -> String {
    match text.contains(['"', ',', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_others_stays_one_field() {
        let fields = ["plain", "a, \"b\"", "two\nlines", ""].map(str::to_owned);
        assert_eq!(line(fields), "plain,\"a, \"\"b\"\"\",\"two\nlines\",\n");
    }
}
