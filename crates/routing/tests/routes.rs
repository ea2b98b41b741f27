//! Routes: the indexed plan against a plain scan of all rules, and its cost with many targets.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::borrow::Cow;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use postroad_model::{Destination, HeaderChanges, HeaderValue};
use postroad_routing::{
    Addressing, Changed, DestinationPattern, Distribution, HOPS_MAX, HeaderChange, HeaderRule, Recipients,
    Route, RouteTarget, Routed, Routes, Throttle,
};
use postroad_selector::{Properties, Selector, Value};
use proptest::prelude::*;

/// A message with these properties.
#[derive(Clone, Debug, Default)]
struct Sent {
    properties: BTreeMap<&'static str, i64>,
    texts: BTreeMap<&'static str, String>,
    asked: Cell<u64>,
}

impl Properties for Sent {
    fn property(&self, name: &str) -> Option<Value<'_>> {
        self.asked.set(self.asked.get() + 1);
        let text = self.texts.get(name).map(|text| Value::String(Cow::Borrowed(text)));
        text.or_else(|| self.properties.get(name).map(|value| Value::Long(*value)))
    }
}

fn route(name: &str, from: &str, to: &[&str]) -> Route {
    Route {
        name: name.into(),
        from: DestinationPattern::parse(from).unwrap(),
        consumes: true,
        selector: None,
        headers: Vec::new(),
        distribution: Distribution::All,
        targets: to.iter().map(|to| target(to, None)).collect(),
        otherwise: Vec::new(),
        recipients: None,
        delay_ms: 0,
        throttle: None,
        redelivery: None,
        dead_letter: None,
    }
}

fn target(to: &str, selector: Option<&str>) -> RouteTarget {
    RouteTarget {
        destination: Destination::queue(to),
        selector: selector.map(|text| Selector::parse(text).unwrap()),
        headers: Vec::new(),
        delay_ms: 0,
    }
}

fn plan(rules: Vec<Route>, to: &str, message: &Sent) -> Routed {
    let routes = Routes::new(rules, &Addressing::default()).unwrap();
    routes.plan(&Addressing::default(), [Destination::queue(to)].iter(), message)
}

fn names(routed: &Routed) -> Vec<Vec<&str>> {
    routed.copies.iter().map(|copy| copy.to.iter().map(|to| &*to.name).collect()).collect()
}

/// Every address that gets a message, with the changes of its headers.
type Outcome = BTreeSet<(String, Vec<(String, Option<String>)>)>;

fn shown(changes: &HeaderChanges) -> Vec<(String, Option<String>)> {
    changes.iter().map(|(name, value)| (name.to_owned(), value.map(HeaderValue::text))).collect()
}

/// The same by asking every rule and every target.
fn scan(
    rules: &[Route],
    to: &Destination,
    changes: &HeaderChanges,
    passed: &[usize],
    message: &Sent,
    out: &mut Outcome,
) {
    let seen = Changed { message, changes };
    let mut is_consumed = false;
    for (number, rule) in rules.iter().enumerate() {
        let matches = |selector: &Option<Selector>, of: &dyn Properties| {
            selector.as_ref().is_none_or(|selector| selector.matches(of))
        };
        if !rule.is_from(to)
            || passed.contains(&number)
            || passed.len() >= HOPS_MAX
            || !matches(&rule.selector, &seen)
        {
            continue;
        }
        let mut own = changes.clone();
        for HeaderRule { name, change } in &rule.headers {
            match change {
                HeaderChange::Set(value) => own.put(name.clone(), Some(value.clone())),
                _ => own.put(name.clone(), None),
            }
        }
        let changed = Changed { message, changes: &own };
        let mut found: Vec<&RouteTarget> =
            rule.targets.iter().filter(|target| matches(&target.selector, &changed)).collect();
        if found.is_empty() {
            found = rule.otherwise.iter().filter(|target| matches(&target.selector, &changed)).collect();
        } else if rule.distribution == Distribution::First {
            found.truncate(1);
        }
        found.retain(|target| target.destination != *to);
        let passed = [passed, &[number]].concat();
        for target in &found {
            scan(rules, &target.destination, &own, &passed, message, out);
        }
        is_consumed |= !found.is_empty() && rule.consumes;
    }
    if !is_consumed {
        out.insert((to.to_string(), shown(changes)));
    }
}

const ADDRESSES: [&str; 6] = ["a", "b", "a.b", "a.c", "b.c", "c"];
const PATTERNS: [&str; 6] =
    ["queue://a", "queue://a.*", "queue://a.>", "queue://b.c", "queue://*", "queue://>"];
const SELECTORS: [&str; 8] = [
    "x = 1",
    "x > 1",
    "x = 1 AND y = 2",
    "y = 1 OR y = 2",
    "z IS NULL",
    "x <> 2",
    "z = 3 OR x = 1",
    "y BETWEEN 0 AND 1",
];

fn selectors() -> impl Strategy<Value = Option<Selector>> {
    proptest::option::of((0..SELECTORS.len()).prop_map(|at| Selector::parse(SELECTORS[at]).unwrap()))
}

fn header_rules() -> impl Strategy<Value = Vec<HeaderRule>> {
    let rule = (0..3_usize, proptest::option::of(0..3)).prop_map(|(name, value)| HeaderRule {
        name: ["x", "y", "z"][name].into(),
        change: value.map_or(HeaderChange::Remove, |value| HeaderChange::Set(HeaderValue::Int(value))),
    });
    proptest::collection::vec(rule, 0..2)
}

fn targets(max: usize) -> impl Strategy<Value = Vec<RouteTarget>> {
    let one = (0..ADDRESSES.len(), selectors())
        .prop_map(|(to, selector)| RouteTarget { selector, ..target(ADDRESSES[to], None) });
    proptest::collection::vec(one, 0..max)
}

fn rules() -> impl Strategy<Value = Vec<Route>> {
    let parts = (
        0..PATTERNS.len(),
        any::<bool>(),
        selectors(),
        header_rules(),
        any::<bool>(),
        targets(5),
        targets(2),
    );
    let one = parts.prop_map(|(from, consumes, selector, headers, first, targets, otherwise)| Route {
        consumes,
        selector,
        headers,
        distribution: if first { Distribution::First } else { Distribution::All },
        targets,
        otherwise,
        ..route("", PATTERNS[from], &[])
    });
    proptest::collection::vec(one, 0..5)
}

proptest! {
    #[test]
    fn the_index_finds_what_a_plain_scan_finds(
        rules in rules(),
        to in 0..ADDRESSES.len(),
        values in proptest::collection::vec(proptest::option::of(0..4_i64), 3),
    ) {
        let named = ["x", "y", "z"].into_iter().zip(values);
        let properties = named.filter_map(|(name, value)| Some((name, value?))).collect();
        let message = Sent { properties, ..Sent::default() };
        // Cycles are refused at load.
        if let Ok(routes) = Routes::new(rules.clone(), &Addressing::default()) {
            let to = Destination::queue(ADDRESSES[to]);
            let mut want = Outcome::new();
            scan(&rules, &to, &HeaderChanges::default(), &[], &message, &mut want);
            let routed = routes.plan(&Addressing::default(), [to].iter(), &message);
            let mut got = Outcome::new();
            for copy in &routed.copies {
                for to in &copy.to {
                    prop_assert!(got.insert((to.to_string(), shown(&copy.changes))), "{} twice", to);
                }
            }
            prop_assert_eq!(got, want);
        }
    }
}

#[test]
fn a_message_costs_the_targets_that_match() {
    let asked = |targets: usize| {
        let each = |number: usize| target(&format!("t{number}"), Some(&format!("x = {number}")));
        let rule = Route { targets: (0..targets).map(each).collect(), ..route("r", "queue://in", &[]) };
        let message = Sent { properties: BTreeMap::from([("x", 7)]), ..Sent::default() };
        let routed = plan(vec![rule], "in", &message);
        assert_eq!(names(&routed), [["t7"]]);
        message.asked.get()
    };
    assert_eq!(asked(10), asked(1_000), "properties asked for");
}

#[test]
fn recipients_that_lead_back_end_at_the_bound() {
    let recipients = Some(Recipients { header: "next".into(), delimiter: ",".into(), allow: Vec::new() });
    let rules = (0..20).map(|number| Route {
        recipients: recipients.clone(),
        ..route(&format!("r{number}"), &format!("queue://q{number}"), &[])
    });
    let all: Vec<String> = (0..20).map(|number| format!("q{number}")).collect();
    let message = Sent { texts: BTreeMap::from([("next", all.join(","))]), ..Sent::default() };
    let routes = Routes::new(rules.collect(), &Addressing::default()).unwrap();
    let routed = routes.plan(&Addressing::default(), [Destination::queue("q0")].iter(), &message);
    let reached: usize = routed.copies.iter().map(|copy| copy.to.len()).sum();
    assert!(reached <= 20, "{reached}");
    let chain = |number: usize| Route {
        headers: vec![HeaderRule {
            name: "next".into(),
            change: HeaderChange::Set(HeaderValue::String(format!("q{}", number + 1).as_str().into())),
        }],
        recipients: recipients.clone(),
        ..route(&format!("r{number}"), &format!("queue://q{number}"), &[])
    };
    let routes = Routes::new((0..30).map(chain).collect(), &Addressing::default()).unwrap();
    let routed = routes.plan(&Addressing::default(), [Destination::queue("q0")].iter(), &Sent::default());
    assert_eq!(names(&routed), [[format!("q{HOPS_MAX}").as_str()]]);
    let cut: u64 = routes.counted().map(|(_, counters)| counters.figures().cut).sum();
    assert_eq!(cut, 1);
}

#[test]
fn versions_are_shared_by_the_targets_that_need_the_same() {
    let set =
        |value| vec![HeaderRule { name: "h".into(), change: HeaderChange::Set(HeaderValue::Int(value)) }];
    let with =
        |to: &str, headers: Vec<HeaderRule>, delay_ms| RouteTarget { headers, delay_ms, ..target(to, None) };
    let rule = Route {
        targets: vec![
            with("a", set(1), 0),
            with("b", set(2), 0),
            with("c", set(1), 0),
            with("d", Vec::new(), 5),
            with("e", Vec::new(), 0),
        ],
        consumes: false,
        throttle: Some(Throttle { messages: 1, period_ms: 1 }),
        ..route("r", "queue://in", &[])
    };
    let routed = plan(vec![rule], "in", &Sent::default());
    assert_eq!(names(&routed), [vec!["in"], vec!["a", "c"], vec!["b"], vec!["d"], vec!["e"]]);
    let paced: Vec<bool> = routed.copies.iter().map(|copy| copy.hold.pace.is_some()).collect();
    assert_eq!(paced, [false, true, true, true, true]);
}
