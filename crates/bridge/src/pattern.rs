//! Patterns of destination names in the options of a link.

use postroad_model::Destination;

/// Whether the destination is one of those that the pattern names: `*` stands for one word, a
/// trailing `>` for any number.
pub fn matches(pattern: &Destination, destination: &Destination) -> bool {
    if pattern.kind != destination.kind {
        return false;
    }
    let mut words = destination.name.split('.');
    for part in pattern.name.split('.') {
        if part == ">" {
            return true;
        }
        if words.next().is_none_or(|word| part != "*" && part != word) {
            return false;
        }
    }
    words.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_word_by_word() {
        let queue = Destination::queue;
        for (pattern, name, want) in [
            ("a.b", "a.b", true),
            ("a.b", "a.c", false),
            ("a.*", "a.b", true),
            ("a.*", "a.b.c", false),
            ("a.*", "a", false),
            ("a.>", "a.b.c", true),
            (">", "a", true),
            ("a", "a.b", false),
        ] {
            assert_eq!(matches(&queue(pattern), &queue(name)), want, "{pattern} {name}");
        }
        assert!(!matches(&queue(">"), &Destination::topic("a")), "kinds differ");
    }
}
