//! Commits explain themselves: a subject of at most 72 characters, an empty line, and a body.
//!
//! Held since the rule exists. A copy without that part of the history has nothing to check.

use super::{Fault, Repository};

const SUBJECT_MAX: usize = 72;

/// One commit after the rule began.
#[derive(Clone, Debug)]
pub struct Commit {
    pub id: String,
    pub message: String,
}

pub fn check(repository: &Repository) -> Vec<Fault> {
    let mut faults = Vec::new();
    for commit in repository.commits() {
        let mut lines = commit.message.lines();
        let subject = lines.next().unwrap_or_default();
        let length = subject.chars().count();
        let mut fault = |wrong: String, right: &str| {
            faults.push(Fault::new(&format!("commit {}", commit.id), 1, wrong, right));
        };
        if SUBJECT_MAX < length {
            fault(format!("a subject of {length} characters"), "at most 72");
        }
        if lines.next().is_some_and(|line| !line.is_empty()) {
            fault(format!("no empty line after \"{subject}\""), "subject, empty line, body");
        } else if lines.all(|line| line.trim().is_empty()) {
            fault(format!("\"{subject}\" has no body"), "say why");
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_have_a_short_subject_and_a_body() {
        let long = format!("room: {}\n\nWhy.", "x".repeat(67));
        for (name, message, want) in [
            ("good", "room: what changed\n\nWhy.\n", None),
            ("no body", "room: what changed\n", Some("\"room: what changed\" has no body")),
            ("no empty line", "room: a\nb", Some("no empty line after \"room: a\"")),
            ("long", long.as_str(), Some("a subject of 73 characters")),
        ] {
            let mut repository = Repository::of(&[]);
            repository.add_commit("1", message);
            let faults = check(&repository);
            assert_eq!(faults.first().map(|fault| fault.wrong.as_str()), want, "case: {name}");
        }
    }
}
