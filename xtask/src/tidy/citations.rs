//! A document that cites a test as `[TEST: name]` is true: the test exists.

use super::{Fault, Repository};

const OPEN: &str = "[TEST: ";

pub fn check(repository: &Repository) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, text) in repository.texts().filter(|(path, _)| path.ends_with(".md")) {
        for (index, line) in text.lines().enumerate() {
            for cited in citations(line).filter(|cited| !exists(repository, cited)) {
                let right = "name a test function that exists, or write the test";
                faults.push(Fault::new(path, index + 1, format!("there is no test `{cited}`"), right));
            }
        }
    }
    faults
}

/// The names cited in one line; a text in back-ticks is an example, not a citation.
fn citations(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices(OPEN)
        .filter(|(at, _)| !line[..*at].ends_with('`'))
        .filter_map(|(at, _)| line[at + OPEN.len()..].split(']').next())
        .map(str::trim)
}

/// `name`, `room::module::name`, `Class.name` and `Class#name` all end in the function's name.
fn exists(repository: &Repository, cited: &str) -> bool {
    let name = cited.rsplit([':', '.', '#']).next().unwrap_or(cited);
    if name.is_empty() {
        return false;
    }
    repository.rust().any(|(_, source)| source.has_function(name))
        || repository.texts().any(|(path, text)| is_other_test(path) && declares(path, text, name))
}

fn is_other_test(path: &str) -> bool {
    let folder = path.starts_with("tests/") || path.starts_with("console/");
    folder && [".java", ".py", ".ts", ".tsx", ".js", ".go"].iter().any(|ending| path.ends_with(ending))
}

fn declares(path: &str, text: &str, name: &str) -> bool {
    if path.ends_with(".java") {
        text.contains(&format!("void {name}("))
    } else if path.ends_with(".py") {
        text.contains(&format!("def {name}("))
    } else if path.ends_with(".go") {
        text.contains(&format!("func {name}("))
    } else {
        text.contains(&format!("'{name}'")) || text.contains(&format!("\"{name}\""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cited_test_exists() {
        let files = [
            ("crates/mqtt/src/codec.rs", "#[cfg(test)]\nmod tests { #[test] fn keeps_order() {} }\n"),
            ("tests/jms/src/test/java/QueueTest.java", "class QueueTest { @Test void takesOne() {} }"),
            ("tests/amqp/client/client_test.go", "func TestSends(t *testing.T) {\n}\n"),
        ];
        let none: Vec<String> = Vec::new();
        for (name, row, want) in [
            ("Rust test", "| a | [TEST: keeps_order] |", none.clone()),
            ("with its module", "| a | [TEST: mqtt::codec::tests::keeps_order] |", none.clone()),
            ("Java test", "| a | [TEST: QueueTest#takesOne] |", none.clone()),
            ("Go test", "| a | [TEST: TestSends] |", none.clone()),
            ("an example", "cite it as `[TEST: name]`", none.clone()),
            (
                "one of two is missing",
                "| [TEST: takesOne] | [TEST: takesTwo] |",
                vec!["there is no test `takesTwo`".into()],
            ),
            ("part of a name", "| [TEST: keeps] |", vec!["there is no test `keeps`".into()]),
        ] {
            let repository = Repository::of(&[files[0], files[1], files[2], ("docs/protocols/mqtt.md", row)]);
            let found: Vec<String> = check(&repository).into_iter().map(|fault| fault.wrong).collect();
            assert_eq!(found, want, "case: {name}");
        }
    }
}
