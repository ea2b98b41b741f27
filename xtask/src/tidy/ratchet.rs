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

/// The list as it may be from now on.
pub struct Shrunk {
    /// Each count at most as it was, without needless lines; comments kept.
    pub list: String,
    /// Places that are over their limit, and would need a higher or a new line.
    pub refused: Vec<String>,
}

/// Lowers the list to the counts. It is never given a line or a higher count: text in such places
/// must be corrected.
pub fn shrunk(text: &str, rules: &[(&str, Counts)]) -> Shrunk {
    let mut list: String =
        text.lines().take_while(|line| line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    let mut refused = Vec::new();
    for (rule, counts) in rules {
        let before = lines(text, rule);
        for (place, found) in counts.over() {
            let most = before.get(place).map(|(_, most)| *most);
            if let Some(most) = most {
                list.push_str(&format!("{rule} {place} {}\n", found.min(most)));
            }
            if most.is_none_or(|most| most < found) {
                refused.push(format!("{rule} {place} {found}, at most {}", most.unwrap_or_default()));
            }
        }
    }
    Shrunk { list, refused }
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
        for (name, found, list, want, refused) in [
            ("less", 9, "# why\nrule docs 15\nrule gone 3\n", "# why\nrule docs 9\n", None),
            ("not more", 9, "rule docs 8\n", "rule docs 8\n", Some("rule docs 9, at most 8")),
            ("no first line of a rule", 9, "# why\n", "# why\n", Some("rule docs 9, at most 0")),
            ("no new place", 9, "rule other 3\n", "", Some("rule docs 9, at most 0")),
            ("a place that is always allowed", 1, "rule docs 8\n", "", None),
        ] {
            let shrunk = shrunk(list, &[("rule", counted(found))]);
            assert_eq!(shrunk.list, want, "case: {name}");
            assert_eq!(shrunk.refused.first().map(String::as_str), refused, "case: {name}");
        }
    }
}
