//! Random selectors over random messages, against a second evaluator that was written from the
//! specification alone: an own tree, no folding, truths as numbers.

use std::collections::BTreeMap;

use postroad_selector::{Properties, Selector, Value};
use proptest::prelude::*;

/// One node: `a op b`, written the way a truth table reads.
#[derive(Clone, Debug)]
enum Tree {
    Name(&'static str),
    Whole(i64),
    Real(f64),
    Text(String),
    Bool(bool),
    Minus(Box<Tree>),
    Binary(Box<Tree>, &'static str, Box<Tree>),
    Not(Box<Tree>),
    Between(Box<Tree>, bool, Box<Tree>, Box<Tree>),
    Like(Box<Tree>, bool, String, Option<char>),
    In(&'static str, bool, Vec<String>),
    Null(Box<Tree>, bool),
}

/// The value of a node; `Unknown` is NULL, too.
#[derive(Clone, Debug, PartialEq)]
enum Yield {
    Unknown,
    Bool(bool),
    Whole(i64),
    Real(f64),
    Text(String),
    Bytes,
}

type Message = BTreeMap<&'static str, Yield>;

struct Seen<'m>(&'m Message);

impl Properties for Seen<'_> {
    fn property(&self, name: &str) -> Option<Value<'_>> {
        match self.0.get(name)? {
            Yield::Unknown => None,
            Yield::Bool(truth) => Some((*truth).into()),
            Yield::Whole(number) => Some((*number).into()),
            Yield::Real(number) => Some((*number).into()),
            Yield::Text(text) => Some(text.as_str().into()),
            Yield::Bytes => Some(Value::Other),
        }
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn text_of(tree: &Tree) -> String {
    let not = |negated: bool| if negated { "NOT " } else { "" };
    match tree {
        Tree::Name(name) => (*name).to_owned(),
        Tree::Whole(number) => number.to_string(),
        Tree::Real(number) => format!("{number:?}"),
        Tree::Text(text) => quoted(text),
        Tree::Bool(truth) => if *truth { "TRUE" } else { "false" }.to_owned(),
        Tree::Minus(inner) => format!("-({})", text_of(inner)),
        Tree::Binary(left, operator, right) => format!("({} {operator} {})", text_of(left), text_of(right)),
        Tree::Not(inner) => format!("NOT ({})", text_of(inner)),
        Tree::Between(value, negated, low, high) => {
            format!("{} {}BETWEEN {} AND {}", text_of(value), not(*negated), text_of(low), text_of(high))
        }
        Tree::Like(value, negated, pattern, escape) => {
            let escape =
                escape.map_or(String::new(), |escape| format!(" ESCAPE {}", quoted(&escape.to_string())));
            format!("{} {}LIKE {}{escape}", text_of(value), not(*negated), quoted(pattern))
        }
        Tree::In(name, negated, members) => {
            let members: Vec<String> = members.iter().map(|member| quoted(member)).collect();
            format!("{name} {}in ({})", not(*negated), members.join(", "))
        }
        Tree::Null(inner, negated) => format!("({}) IS {}NULL", text_of(inner), not(*negated)),
    }
}

fn walk(tree: &Tree, message: &Message) -> Yield {
    match tree {
        Tree::Name(name) => message.get(name).cloned().unwrap_or(Yield::Unknown),
        Tree::Whole(number) => Yield::Whole(*number),
        Tree::Real(number) => Yield::Real(*number),
        Tree::Text(text) => Yield::Text(text.clone()),
        Tree::Bool(truth) => Yield::Bool(*truth),
        Tree::Minus(inner) => match walk(inner, message) {
            Yield::Whole(number) => Yield::Whole(0_i64.wrapping_sub(number)),
            Yield::Real(number) => Yield::Real(-number),
            _ => Yield::Unknown,
        },
        Tree::Binary(left, operator, right) => binary(left, operator, right, message),
        Tree::Not(inner) => from_level(2 - level(inner, message)),
        Tree::Between(value, false, low, high) => {
            let (above, below) = (ordered(value, ">=", low, message), ordered(value, "<=", high, message));
            from_level(above.min(below))
        }
        Tree::Between(value, true, low, high) => {
            let (below, above) = (ordered(value, "<", low, message), ordered(value, ">", high, message));
            from_level(below.max(above))
        }
        Tree::Like(value, negated, pattern, escape) => match walk(value, message) {
            Yield::Unknown => Yield::Unknown,
            Yield::Text(text) => {
                let text: Vec<char> = text.chars().collect();
                let pattern: Vec<char> = pattern.chars().collect();
                Yield::Bool(like(&pattern, &text, *escape) != *negated)
            }
            _ => Yield::Bool(*negated),
        },
        Tree::In(name, negated, members) => match message.get(name) {
            Some(Yield::Text(text)) => Yield::Bool(members.contains(text) != *negated),
            _ => Yield::Unknown,
        },
        Tree::Null(inner, negated) => Yield::Bool((walk(inner, message) == Yield::Unknown) != *negated),
    }
}

/// False, unknown and true as 0, 1 and 2: AND is the minimum, OR the maximum, NOT the distance
/// from 2.
fn level(tree: &Tree, message: &Message) -> u8 {
    match walk(tree, message) {
        Yield::Bool(true) => 2,
        Yield::Unknown => 1,
        _ => 0,
    }
}

fn from_level(level: u8) -> Yield {
    match level {
        0 => Yield::Bool(false),
        1 => Yield::Unknown,
        _ => Yield::Bool(true),
    }
}

fn ordered(left: &Tree, operator: &'static str, right: &Tree, message: &Message) -> u8 {
    let compared = Tree::Binary(Box::new(left.clone()), operator, Box::new(right.clone()));
    level(&compared, message)
}

fn binary(left: &Tree, operator: &str, right: &Tree, message: &Message) -> Yield {
    match operator {
        "AND" => return from_level(level(left, message).min(level(right, message))),
        "OR" => return from_level(level(left, message).max(level(right, message))),
        _ => {}
    }
    let (left, right) = (walk(left, message), walk(right, message));
    if left == Yield::Unknown || right == Yield::Unknown {
        return Yield::Unknown;
    }
    if "=<>".contains(&operator[..1]) {
        return Yield::Bool(holds(&left, operator, &right));
    }
    match (&left, &right) {
        (Yield::Text(left), right) if operator == "+" => {
            java_text(right).map_or(Yield::Unknown, |right| Yield::Text(left.to_owned() + &right))
        }
        (Yield::Whole(left), Yield::Whole(right)) => whole(*left, operator, *right),
        _ => match (real(&left), real(&right)) {
            (Some(left), Some(right)) => Yield::Real(calculated(left, operator, right)),
            _ => Yield::Unknown,
        },
    }
}

/// As Java's `String.valueOf`: the shortest digits, and an exponent outside 10^-3 to 10^7.
fn java_text(value: &Yield) -> Option<String> {
    let number = match value {
        Yield::Text(text) => return Some(text.clone()),
        Yield::Whole(number) => return Some(number.to_string()),
        Yield::Bool(truth) => return Some(truth.to_string()),
        Yield::Real(number) => *number,
        Yield::Unknown | Yield::Bytes => return None,
    };
    if !number.is_finite() {
        return Some(number.to_string().replace("inf", "Infinity"));
    }
    let scientific = format!("{:e}", number.abs());
    let (mantissa, exponent) = scientific.split_once('e')?;
    let (digits, exponent) = (mantissa.replace('.', ""), exponent.parse::<i32>().ok()?);
    let at_least = |digits: &str| if digits.is_empty() { "0".to_owned() } else { digits.to_owned() };
    let text = if !(-3..7).contains(&exponent) {
        format!("{}.{}E{exponent}", &digits[..1], at_least(&digits[1..]))
    } else if exponent < 0 {
        format!("0.{}{digits}", "0".repeat(exponent.unsigned_abs() as usize - 1))
    } else {
        let point = exponent as usize + 1;
        let padded = format!("{digits:0<point$}");
        format!("{}.{}", &padded[..point], at_least(&padded[point..]))
    };
    Some(if number.is_sign_negative() { format!("-{text}") } else { text })
}

fn real(value: &Yield) -> Option<f64> {
    match value {
        Yield::Whole(number) => Some(*number as f64),
        Yield::Real(number) => Some(*number),
        _ => None,
    }
}

fn holds(left: &Yield, operator: &str, right: &Yield) -> bool {
    let same = match (left, right) {
        (Yield::Text(left), Yield::Text(right)) => left == right,
        (Yield::Bool(left), Yield::Bool(right)) => left == right,
        (Yield::Whole(left), Yield::Whole(right)) => left == right,
        _ => real(left).is_some_and(|left| real(right) == Some(left)),
    };
    let less = |left: &Yield, right: &Yield| match (left, right) {
        (Yield::Whole(left), Yield::Whole(right)) => left < right,
        _ => matches!((real(left), real(right)), (Some(left), Some(right)) if left < right),
    };
    let numbers = real(left).is_some() && real(right).is_some();
    match operator {
        "=" => same,
        "<>" => !same,
        "<" => less(left, right),
        "<=" => less(left, right) || (numbers && same),
        ">" => less(right, left),
        _ => less(right, left) || (numbers && same),
    }
}

fn whole(left: i64, operator: &str, right: i64) -> Yield {
    let wide = match operator {
        "+" => i128::from(left) + i128::from(right),
        "-" => i128::from(left) - i128::from(right),
        "*" => i128::from(left) * i128::from(right),
        "%" if right != 0 => i128::from(left) % i128::from(right),
        _ => return Yield::Real(calculated(left as f64, operator, right as f64)),
    };
    Yield::Whole(wide as i64)
}

fn calculated(left: f64, operator: &str, right: f64) -> f64 {
    match operator {
        "+" => left + right,
        "-" => left - right,
        "*" => left * right,
        "/" => left / right,
        _ => left % right,
    }
}

fn like(pattern: &[char], text: &[char], escape: Option<char>) -> bool {
    match pattern {
        [] => text.is_empty(),
        [first, next, rest @ ..]
            if Some(*first) == escape && (['_', '%'].contains(next) || Some(*next) == escape) =>
        {
            text.first() == Some(next) && like(rest, &text[1..], escape)
        }
        ['%', rest @ ..] => (0..=text.len()).any(|skipped| like(rest, &text[skipped..], escape)),
        ['_', rest @ ..] => !text.is_empty() && like(rest, &text[1..], escape),
        [first, rest @ ..] => text.first() == Some(first) && like(rest, &text[1..], escape),
    }
}

fn name() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["a", "b", "c", "missing", "$d", "e.f"])
}

fn short_text() -> impl Strategy<Value = String> {
    "[ab_%'é]{0,4}"
}

fn number() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        3 => name().prop_map(Tree::Name),
        3 => (-3..4_i64).prop_map(Tree::Whole),
        1 => any::<i64>().prop_map(Tree::Whole),
        2 => (-6..7_i32).prop_map(|number| Tree::Real(f64::from(number) / 4.0)),
        1 => prop::num::f64::NORMAL.prop_map(Tree::Real),
    ];
    leaf.prop_recursive(3, 8, 2, |inner| {
        let operator = prop::sample::select(vec!["+", "-", "*", "/", "%"]);
        prop_oneof![
            3 => (inner.clone(), operator, inner.clone())
                .prop_map(|(left, operator, right)| Tree::Binary(Box::new(left), operator, Box::new(right))),
            1 => inner.prop_map(|inner| Tree::Minus(Box::new(inner))),
        ]
    })
}

fn condition() -> impl Strategy<Value = Tree> {
    let order = prop::sample::select(vec!["=", "<>", "<", "<=", ">", ">="]);
    let equal = prop::sample::select(vec!["=", "<>"]);
    let escape = prop::option::of(prop::sample::select(vec!['_', '%', 'a', 'é', '!']));
    let members = prop::collection::vec(short_text(), 1..4);
    let leaf = prop_oneof![
        6 => (number(), order, number())
            .prop_map(|(left, operator, right)| Tree::Binary(Box::new(left), operator, Box::new(right))),
        2 => (name(), equal.clone(), short_text()).prop_map(|(name, operator, text)| {
            Tree::Binary(Box::new(Tree::Name(name)), operator, Box::new(Tree::Text(text)))
        }),
        1 => (name(), equal, any::<bool>()).prop_map(|(name, operator, truth)| {
            Tree::Binary(Box::new(Tree::Name(name)), operator, Box::new(Tree::Bool(truth)))
        }),
        2 => (number(), any::<bool>(), number(), number()).prop_map(|(value, negated, low, high)| {
            Tree::Between(Box::new(value), negated, Box::new(low), Box::new(high))
        }),
        2 => (name(), any::<bool>(), short_text(), escape).prop_map(|(name, negated, pattern, escape)| {
            Tree::Like(Box::new(Tree::Name(name)), negated, pattern, escape)
        }),
        1 => (name(), any::<bool>(), members).prop_map(|(name, negated, members)| Tree::In(name, negated, members)),
        1 => (number(), any::<bool>()).prop_map(|(inner, negated)| Tree::Null(Box::new(inner), negated)),
        1 => any::<bool>().prop_map(Tree::Bool),
        2 => name().prop_map(Tree::Name),
    ];
    leaf.prop_recursive(4, 24, 2, |inner| {
        let operator = prop::sample::select(vec!["AND", "OR"]);
        prop_oneof![
            4 => (inner.clone(), operator, inner.clone())
                .prop_map(|(left, operator, right)| Tree::Binary(Box::new(left), operator, Box::new(right))),
            1 => inner.clone().prop_map(|inner| Tree::Not(Box::new(inner))),
            1 => (inner, any::<bool>()).prop_map(|(inner, negated)| {
                // A property alone is a value to IS NULL; joined with itself it is a condition.
                let condition = Tree::Binary(Box::new(inner.clone()), "AND", Box::new(inner));
                Tree::Null(Box::new(condition), negated)
            }),
        ]
    })
}

fn value() -> impl Strategy<Value = Yield> {
    prop_oneof![
        1 => Just(Yield::Unknown),
        2 => any::<bool>().prop_map(Yield::Bool),
        4 => (-3..4_i64).prop_map(Yield::Whole),
        1 => any::<i64>().prop_map(Yield::Whole),
        2 => (-6..7_i32).prop_map(|number| Yield::Real(f64::from(number) / 4.0)),
        1 => any::<f64>().prop_map(Yield::Real),
        4 => short_text().prop_map(Yield::Text),
        1 => Just(Yield::Bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_evaluators_agree(tree in condition(), values in prop::collection::vec([value(), value(), value(), value(), value()], 1..6)) {
        let text = text_of(&tree);
        let selector = Selector::parse(&text);
        prop_assert!(selector.is_ok(), "{}: {:?}", text, selector);
        let negated = Selector::parse(&format!("NOT ({text})")).expect("the negation of a selector is one");
        for values in values {
            let message: Message = ["a", "b", "c", "$d", "e.f"].into_iter().zip(values).collect();
            let want = level(&tree, &message);
            let found = selector.as_ref().is_ok_and(|selector| selector.matches(&Seen(&message)));
            prop_assert_eq!(found, want == 2, "{} of {:?}", text, message);
            prop_assert_eq!(negated.matches(&Seen(&message)), want == 0, "NOT ({}) of {:?}", text, message);
        }
    }

    #[test]
    fn no_text_is_worse_than_an_error(text in "[ab '()<>=+*/%,.0-9xXlLeEdD#é\n-]{0,40}|(NOT |AND |OR |IN |IS |NULL |LIKE |ESCAPE |BETWEEN |a |1 |'x' |\\(|\\)|, |= |< |- ){0,30}") {
        if let Err(error) = Selector::parse(&text) {
            prop_assert!(error.position <= text.chars().count(), "{:?}: {:?}", text, error);
        }
    }
}
