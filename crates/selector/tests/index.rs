//! The index finds the same as evaluating every selector.

use std::collections::BTreeMap;

use postroad_selector::{Properties, Selector, SelectorIndex, Value};
use proptest::prelude::*;

#[derive(Clone, Debug, Default)]
struct Message(BTreeMap<String, Value<'static>>);

impl Properties for Message {
    fn property(&self, name: &str) -> Option<Value<'_>> {
        self.0.get(name).cloned()
    }
}

fn message(properties: &[(&str, Value<'static>)]) -> Message {
    Message(properties.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect())
}

fn found<P: Properties>(index: &SelectorIndex<u32>, message: &P) -> Vec<u32> {
    let mut keys = Vec::new();
    index.matching(message, |key| keys.push(*key));
    keys.sort_unstable();
    keys
}

fn selector(text: &str) -> Selector {
    Selector::parse(text).expect(text)
}

#[test]
fn keys_come_and_go() {
    let mut index = SelectorIndex::new();
    let (red, blue) = (selector("c = 'red'"), selector("c = 'blue'"));
    assert_eq!(index.insert(1, red.clone()), None);
    assert_eq!(index.insert(2, selector("c='red'")), None);
    assert_eq!(index.insert(3, blue.clone()), None);
    let (is_red, is_blue) = (message(&[("c", "red".into())]), message(&[("c", "blue".into())]));
    assert_eq!((found(&index, &is_red), found(&index, &is_blue)), (vec![1, 2], vec![3]));
    assert_eq!(index.get(&2).map(Selector::text), Some("c='red'"));
    assert_eq!(index.insert(1, blue.clone()), Some(red.clone()));
    assert_eq!((found(&index, &is_red), found(&index, &is_blue)), (vec![2], vec![1, 3]));
    assert_eq!((index.remove(&2), index.remove(&2)), (Some(red), None));
    assert_eq!((found(&index, &is_red), found(&index, &is_blue)), (vec![], vec![1, 3]));
    assert_eq!((index.remove(&3), index.len(), index.is_empty()), (Some(blue), 1, false));
    assert_eq!(found(&index, &is_blue), vec![1]);
}

#[test]
fn conjuncts_that_can_be_looked_up() {
    for (text, scanned) in [
        ("a = 1", 0),
        ("1 = a", 0),
        ("a = 'x' AND b <> 2", 0),
        ("a = TRUE", 0),
        ("a", 0),
        ("a IN ('x', 'y')", 0),
        ("a < 5", 0),
        ("5 < a", 0),
        ("a BETWEEN 1 AND 5", 0),
        ("a BETWEEN 5 AND 1", 0),
        ("a LIKE 'x%'", 0),
        ("a LIKE 'x'", 0),
        ("a IS NULL", 0),
        ("a = 1 OR b = 2", 0),
        ("(a = 1 AND c <> 2) OR b LIKE 'x%y'", 0),
        ("b <> 1 AND a = 1", 0),
        ("FALSE", 0),
        ("convert_string_expressions:a = 1", 0),
        ("TRUE", 1),
        ("a <> 1", 1),
        ("NOT a = 1", 1),
        ("a LIKE '%x'", 1),
        ("a = 1 OR b <> 2", 1),
        ("a = b", 1),
        ("a + 1 = 2", 1),
        ("a IS NOT NULL", 1),
        ("a NOT IN ('x')", 1),
    ] {
        let mut index = SelectorIndex::new();
        index.insert(1, selector(text));
        assert_eq!(index.scanned(), scanned, "{text}");
        index.remove(&1);
        assert_eq!(index.scanned(), 0, "{text}");
    }
}

/// Counts how often each property was asked for.
struct Counted(Message, std::cell::RefCell<BTreeMap<String, usize>>);

impl Properties for Counted {
    fn property(&self, name: &str) -> Option<Value<'_>> {
        *self.1.borrow_mut().entry(name.to_owned()).or_default() += 1;
        self.0.property(name)
    }
}

fn asked(index: &SelectorIndex<u32>, message: Message) -> Vec<(String, usize)> {
    let counted = Counted(message, Default::default());
    found(index, &counted);
    counted.1.into_inner().into_iter().collect()
}

#[test]
fn selectors_that_are_not_found_are_not_evaluated() {
    let mut index = SelectorIndex::new();
    for key in 0..10_000 {
        index.insert(key, selector(&format!("kind = 'order' AND id = {key} AND other > 1")));
    }
    let matching = message(&[("kind", "order".into()), ("id", 77.into()), ("other", 2.into())]);
    assert_eq!(found(&index, &matching), vec![77]);
    // The first was found by its kind, before others shared it; the rest are found by their number.
    let one = |name: &str, count: usize| (name.to_owned(), count);
    assert_eq!(asked(&index, matching), vec![one("id", 2), one("kind", 2), one("other", 1)]);
    let other = message(&[("kind", "bill".into()), ("id", (-1).into()), ("other", 2.into())]);
    assert_eq!(asked(&index, other), vec![one("id", 1), one("kind", 1)]);
}

#[test]
fn a_property_named_twice_is_looked_up_once() {
    let counted = Counted(message(&[("a", 4.into())]), Default::default());
    assert!(selector("a > 1 AND a < 9 AND a + a = 8 AND NOT a = 5").matches(&counted));
    assert_eq!(counted.1.into_inner(), BTreeMap::from([("a".to_owned(), 1)]));
}

#[test]
fn large_numbers_are_told_apart() {
    let base = 1_i64 << 53;
    let mut index = SelectorIndex::new();
    index.insert(0, selector(&format!("a = {base}")));
    index.insert(1, selector(&format!("a = {}", base + 1)));
    index.insert(2, selector(&format!("a > {base}")));
    index.insert(3, selector(&format!("a = {base}.0")));
    index.insert(4, selector(&format!("a < {}", base + 1)));
    assert_eq!(found(&index, &message(&[("a", base.into())])), vec![0, 3, 4]);
    assert_eq!(found(&index, &message(&[("a", (base + 1).into())])), vec![1, 2, 3]);
}

#[test]
fn prefixes_of_prefixes() {
    let mut index = SelectorIndex::new();
    for (key, prefix) in (0..).zip(["a", "ab", "abc", "abd", "aé", "b", "abcde", "aba"]) {
        index.insert(key, selector(&format!("s LIKE '{prefix}%'")));
    }
    for (text, want) in [
        ("abcd", vec![0, 1, 2]),
        ("abcdef", vec![0, 1, 2, 6]),
        ("abe", vec![0, 1]),
        ("aè", vec![0]),
        ("aéz", vec![0, 4]),
        ("", vec![]),
        ("c", vec![]),
        ("az", vec![0]),
    ] {
        assert_eq!(found(&index, &message(&[("s", text.into())])), want, "{text}");
    }
}

fn literal() -> impl Strategy<Value = String> {
    prop_oneof![
        (-3..4_i64).prop_map(|number| number.to_string()),
        (-3..4_i64).prop_map(|number| format!("{number}.5")),
        Just("9007199254740993".to_owned()),
        Just("9007199254740992.0".to_owned()),
        Just("-0.0".to_owned()),
    ]
}

fn condition() -> impl Strategy<Value = String> {
    let name = || prop_oneof![Just("a"), Just("b"), Just("c")];
    let text =
        || prop_oneof![Just("x"), Just("xy"), Just("xyz"), Just("1"), Just("true"), Just("-2"), Just("")];
    let order = prop_oneof![Just("="), Just("<"), Just("<="), Just(">"), Just(">="), Just("<>")];
    let leaf = prop_oneof![
        4 => (name(), order, literal()).prop_map(|(name, order, value)| format!("{name} {order} {value}")),
        1 => (name(), literal()).prop_map(|(name, value)| format!("{value} >= {name}")),
        2 => (name(), text()).prop_map(|(name, text)| format!("{name} = '{text}'")),
        1 => (name(), text(), text()).prop_map(|(name, one, two)| format!("{name} IN ('{one}', '{two}')")),
        2 => (name(), literal(), literal()).prop_map(|(name, low, high)| format!("{name} BETWEEN {low} AND {high}")),
        1 => (name(), text()).prop_map(|(name, text)| format!("{name} LIKE '{text}%'")),
        1 => (name(), text()).prop_map(|(name, text)| format!("{name} LIKE '{text}_%'")),
        1 => name().prop_map(|name| format!("{name} IS NULL")),
        1 => name().prop_map(|name| format!("{name} IS NOT NULL")),
        1 => name().prop_map(|name| format!("{name} = TRUE")),
        1 => name().prop_map(|name| format!("{name} = FALSE")),
        1 => name().prop_map(str::to_owned),
    ];
    leaf.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            4 => prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| format!("({})", parts.join(" AND "))),
            3 => prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| format!("({})", parts.join(" OR "))),
            1 => inner.prop_map(|part| format!("NOT ({part})")),
        ]
    })
}

fn value() -> impl Strategy<Value = Option<Value<'static>>> {
    prop_oneof![
        1 => Just(None),
        4 => (-4..5_i64).prop_map(|number| Some(number.into())),
        2 => (-8..9_i32).prop_map(|number| Some((f64::from(number) / 2.0).into())),
        1 => any::<f64>().prop_map(|number| Some(number.into())),
        1 => prop_oneof![Just(9_007_199_254_740_992), Just(9_007_199_254_740_993), Just(i64::MIN)]
            .prop_map(|number: i64| Some(number.into())),
        4 => prop_oneof![Just("x"), Just("xy"), Just("xyzz"), Just("1"), Just("TRUE"), Just("-2"), Just(" 2"), Just("1.5"), Just("")]
            .prop_map(|text| Some(text.into())),
        1 => any::<bool>().prop_map(|truth| Some(truth.into())),
        1 => Just(Some(Value::Other)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_index_agrees_with_asking_every_selector(
        conditions in prop::collection::vec((condition(), any::<bool>()), 1..40),
        removed in prop::collection::vec(0..40_u32, 0..20),
        messages in prop::collection::vec((value(), value(), value()), 1..10),
    ) {
        let mut index = SelectorIndex::new();
        let mut all = BTreeMap::new();
        for (key, (text, converts)) in (0..).zip(&conditions) {
            let text = format!("{}{text}", if *converts { "convert_string_expressions:" } else { "" });
            index.insert(key, selector(&text));
            all.insert(key, selector(&text));
        }
        for round in [&[][..], &removed] {
            for key in round {
                prop_assert_eq!(index.remove(key), all.remove(key));
            }
            for (a, b, c) in messages.clone() {
                let properties = [("a", a), ("b", b), ("c", c)].into_iter();
                let message = Message(
                    properties.filter_map(|(name, value)| Some((name.to_owned(), value?))).collect(),
                );
                let want: Vec<u32> =
                    all.iter().filter(|(_, one)| one.matches(&message)).map(|(key, _)| *key).collect();
                prop_assert_eq!(found(&index, &message), want, "{:?} of {:?}", message, all);
            }
        }
        for key in all.keys() {
            index.remove(key);
        }
        prop_assert_eq!((index.len(), index.scanned()), (0, 0));
        prop_assert_eq!(asked(&index, Message::default()), vec![]);
    }
}
