//! The tree of patterns finds the same as evaluating every pattern.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use postroad_routing::{Pattern, PatternMap};
use proptest::prelude::*;

fn map(patterns: &[&str]) -> PatternMap<usize> {
    let mut map = PatternMap::default();
    for (number, pattern) in patterns.iter().enumerate() {
        map.get_or_insert_with(&Pattern::parse(pattern).unwrap(), || number);
    }
    map
}

fn matching(map: &PatternMap<usize>, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    map.each_match(name, &mut |pattern, _| found.push(pattern.text().to_owned()));
    found.sort();
    found
}

#[test]
fn the_narrowest_pattern_wins() {
    let patterns = [">", "a.>", "a.*", "a.b", "a.*.c", "*.b", "x.*.>", "x.y.>"];
    let map = map(&patterns);
    for (case, name, want) in [
        ("exact", "a.b", Some("a.b")),
        ("one word", "a.c", Some("a.*")),
        ("below", "a.c.d", Some("a.>")),
        ("a word in the middle", "a.d.c", Some("a.*.c")),
        ("other first word", "z.b", Some("*.b")),
        ("longest", "x.y.z", Some("x.y.>")),
        ("the rest may be nothing", "a", Some("a.>")),
        ("everything", "q", Some(">")),
    ] {
        assert_eq!(map.narrowest(name).map(|(pattern, _)| pattern.text()), want, "case: {case}");
    }
    assert_eq!(PatternMap::<u8>::default().narrowest("a"), None);
}

#[test]
fn patterns_come_and_go() {
    let mut map = map(&["a.>", "a.*", "a.b"]);
    let parse = |text| Pattern::parse(text).unwrap();
    assert_eq!((map.len(), map.get(&parse("a.*")), map.get(&parse("a"))), (3, Some(&1), None));
    *map.get_or_insert_with(&parse("a.*"), || 9) += 10;
    assert_eq!((map.len(), map.get(&parse("a.*"))), (3, Some(&11)));
    assert_eq!((map.remove(&parse("a.*")), map.remove(&parse("a.*"))), (Some(11), None));
    assert_eq!((map.len(), matching(&map, "a.b")), (2, vec!["a.>".to_owned(), "a.b".to_owned()]));
    assert_eq!((map.remove(&parse("a.>")), map.remove(&parse("a.b"))), (Some(0), Some(2)));
    assert!(map.is_empty() && matching(&map, "a.b").is_empty());
}

fn name(words: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(words), 1..5).prop_map(|words| words.join("."))
}

proptest! {
    #[test]
    fn a_look_up_finds_what_each_pattern_alone_says(
        mut patterns in prop::collection::vec(name(&["a", "b", "*", ">", ""]), 0..30),
        removed in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
        names in prop::collection::vec(name(&["a", "b", "c", ""]), 1..20),
    ) {
        let mut map = PatternMap::default();
        for text in &patterns {
            map.get_or_insert_with(&Pattern::parse(text).unwrap(), || 0);
        }
        for index in &removed {
            if patterns.is_empty() {
                break;
            }
            let text: &String = index.get(&patterns);
            let gone = Pattern::parse(text).unwrap();
            map.remove(&gone);
            patterns.retain(|text| Pattern::parse(text).unwrap() != gone);
        }
        let mut kept: Vec<Pattern> = patterns.iter().map(|text| Pattern::parse(text).unwrap()).collect();
        kept.sort_by(|one, other| one.text().cmp(other.text()));
        kept.dedup();
        prop_assert_eq!(map.len(), kept.len());
        for name in &names {
            let wanted: Vec<&Pattern> = kept.iter().filter(|pattern| pattern.matches(name)).collect();
            let texts: Vec<String> = wanted.iter().map(|pattern| pattern.text().to_owned()).collect();
            prop_assert_eq!(matching(&map, name), texts);
            let narrowest = map.narrowest(name).map(|(pattern, _)| pattern);
            prop_assert_eq!(narrowest.is_some(), !wanted.is_empty());
            if let Some(narrowest) = narrowest {
                let narrower = |other: &&Pattern| narrowest.covers(other) && !other.covers(narrowest);
                prop_assert!(!wanted.iter().copied().any(|other| narrower(&other)));
            }
        }
    }

    #[test]
    fn covering_means_matching_whatever_the_other_matches(
        wide in name(&["a", "b", "*", ">"]),
        narrow in name(&["a", "b", "*", ">"]),
        names in prop::collection::vec(name(&["a", "b", "c"]), 1..20),
    ) {
        let [wide, narrow] = [wide, narrow].map(|text| Pattern::parse(&text).unwrap());
        if wide.covers(&narrow) {
            for name in names.iter().filter(|name| narrow.matches(name)) {
                prop_assert!(wide.matches(name), "{} covers {} but not {}", wide, narrow, name);
            }
        }
    }
}
