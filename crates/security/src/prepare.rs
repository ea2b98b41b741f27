//! Names and passwords in one form for all the ways in which Unicode may spell them (SASLprep, RFC
//! 4013).

use std::borrow::Cow;

/// The text that a client means by this one; `None` if it has forbidden characters: control
/// characters, unassigned ones, both directions of writing at once.
pub fn prepared(text: &str) -> Option<Cow<'_, str>> {
    stringprep::saslprep(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_4013_are_carried_out_to_the_letter() {
        for (case, text, want) in [
            ("a soft hyphen is mapped to nothing", "I\u{AD}X", Some("IX")),
            ("no change", "user", Some("user")),
            ("case is preserved", "USER", Some("USER")),
            ("the output is NFKC: an ordinal", "\u{AA}", Some("a")),
            ("the output is NFKC: a roman number", "\u{2168}", Some("IX")),
            ("a control character", "\u{7}", None),
            ("both directions at once", "\u{627}1", None),
            ("spelt apart or in one", "u\u{308}ber", Some("\u{fc}ber")),
        ] {
            assert_eq!(prepared(text).as_deref(), want, "case: {case}");
        }
    }
}
