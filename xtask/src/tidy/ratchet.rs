//! Limits that older text does not keep yet: a list of allowed counts that may only shrink.
//!
//! One line of the list is `RULE PLACE COUNT`. Every rule of prose counts its faults per place and
//! compares.

use std::collections::BTreeMap;

use super::{Fault, Repository};

/// The list of all rules of prose.
pub const LIST: &str = "xtask/src/prose.txt";
/// A count may fall this far below its line before the line must follow, so that two changes of one
/// day do not meet in it.
const SLACK_MIN: usize = 5;

/// Faults of one rule by place: how many, and the first one to show.
#[derive(Default)]
pub struct Counts(BTreeMap<String, Count>);

#[derive(Default)]
struct Count {
    found: usize,
    allowed: usize,
    first: Option<Fault>,
}

impl Counts {
    /// Adds a fault that belongs to `place`, of which `allowed` are never too many.
    pub fn add(&mut self, place: &str, allowed: usize, fault: Fault) {
        let count = self.0.entry(place.to_owned()).or_default();
        count.found += 1;
        count.allowed = allowed;
        count.first.get_or_insert(fault);
    }

    /// Compares with the lines of `rule` in the list.
    pub fn check(self, rule: &str, repository: &Repository) -> Vec<Fault> {
        let mut listed = lines(repository.text(LIST).unwrap_or_default(), rule);
        let mut faults = Vec::new();
        for (place, count) in self.0 {
            if count.found <= count.allowed {
                continue;
            }
            let line = listed.remove(place.as_str());
            match (line, count.first) {
                (Some((at, most)), _) if count.found <= most => {
                    if count.found + (most / 10).max(SLACK_MIN) < most {
                        let wrong = format!("`{rule} {place}` allows {most} and {} are left", count.found);
                        faults.push(Fault::new(LIST, at, wrong, "run `cargo xtask shrink`"));
                    }
                }
                (line, Some(mut first)) => {
                    let most = line.map_or(count.allowed, |(_, most)| most);
                    first.wrong = format!("{} ({} in {place}, at most {most})", first.wrong, count.found);
                    faults.push(first);
                }
                (_, None) => {}
            }
        }
        let needless = listed.into_iter().map(|(place, (at, _))| {
            Fault::new(LIST, at, format!("`{rule} {place}` needs no line"), "run `cargo xtask shrink`")
        });
        faults.extend(needless);
        faults
    }

    /// Places over their limit, with how many faults each has.
    pub fn over(&self) -> impl Iterator<Item = (&str, usize)> {
        let over = self.0.iter().filter(|(_, count)| count.allowed < count.found);
        over.map(|(place, count)| (place.as_str(), count.found))
    }
}

/// Place, line number and count of each line of `rule`.
fn lines<'a>(text: &'a str, rule: &str) -> BTreeMap<&'a str, (usize, usize)> {
    let mut lines = BTreeMap::new();
    for (index, line) in text.lines().enumerate() {
        let mut words = line.split_whitespace();
        if let (Some(named), Some(place), Some(Ok(most))) =
            (words.next(), words.next(), words.next().map(str::parse))
            && named == rule
        {
            lines.insert(place, (index + 1, most));
        }
    }
    lines
}

/// The list without needless lines: each count at most as it was, comments kept. New lines only
/// where the list has none of that rule at all, which is how a rule begins.
pub fn shrunk(text: &str, rules: &[(&str, Counts)]) -> String {
    let mut out: String =
        text.lines().take_while(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    for (rule, counts) in rules {
        let before = lines(text, rule);
        for (place, found) in counts.over() {
            let most = before.get(place).map(|(_, most)| *most);
            if let Some(most) = most.or(before.is_empty().then_some(found)) {
                out.push_str(&format!("{rule} {place} {}\n", found.min(most)));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(found: usize) -> Counts {
        let mut counts = Counts::default();
        for line in 1..=found {
            counts.add("docs", 1, Fault::new("docs/a.md", line, "wrong", "right"));
        }
        counts
    }

    #[test]
    fn counts_may_only_shrink() {
        for (name, found, list, want) in [
            ("within what is always allowed", 1, "", None),
            ("over it", 2, "", Some("wrong (2 in docs, at most 1)")),
            ("listed", 9, "rule docs 9", None),
            ("over its line", 10, "rule docs 9", Some("wrong (10 in docs, at most 9)")),
            ("a little less", 9, "rule docs 14", None),
            ("much less", 9, "rule docs 15", Some("`rule docs` allows 15 and 9 are left")),
            ("none left", 0, "rule docs 2", Some("`rule docs` needs no line")),
            ("another rule", 2, "other docs 9", Some("wrong (2 in docs, at most 1)")),
        ] {
            let faults = counted(found).check("rule", &Repository::of(&[(LIST, list)]));
            assert_eq!(faults.first().map(|fault| fault.wrong.as_str()), want, "case: {name}");
        }
    }

    #[test]
    fn shrinking_never_allows_more() {
        for (name, found, list, want) in [
            ("less", 9, "# why\nrule docs 15\nrule gone 3\n", "# why\nrule docs 9\n"),
            ("not more", 9, "rule docs 8\n", "rule docs 8\n"),
            ("a rule that begins", 9, "# why\n", "# why\nrule docs 9\n"),
            ("no new place", 9, "rule other 3\n", ""),
        ] {
            assert_eq!(shrunk(list, &[("rule", counted(found))]), want, "case: {name}");
        }
    }
}
