//! Why a selector does not match a message: the properties that its failing conditions compare.

use crate::evaluate;
use crate::expression::{Expression, Program};
use crate::selector::Selector;
use crate::value::{Properties, Value};

/// Properties that are named at most.
const FACTS_MAX: usize = 8;

/// A property that a failing condition compares, and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fact {
    /// Its name.
    pub property: String,
    /// Its value as a selector would write it; `None` if the message has no such property.
    pub value: Option<String>,
}

impl Selector {
    /// The properties of the conditions that are not true for this message; `None` if the selector
    /// matches. It is empty if the failing condition compares no property.
    pub fn why_not<P: Properties + ?Sized>(&self, properties: &P) -> Option<Vec<Fact>> {
        let program = self.program();
        if program.matches(properties) {
            return None;
        }
        let mut names: Vec<Box<str>> = Vec::new();
        program.failing(&program.root, properties, &mut names);
        let fact = |name: Box<str>| {
            let value = properties.property(&name).map(|value| written(&value));
            Fact { property: name.into(), value }
        };
        Some(names.into_iter().take(FACTS_MAX).map(fact).collect())
    }
}

impl Program {
    /// Collects the properties of a condition that is not true: of AND only those of its parts that
    /// are not.
    fn failing<P: Properties + ?Sized>(
        &self,
        expression: &Expression,
        properties: &P,
        names: &mut Vec<Box<str>>,
    ) {
        match expression {
            Expression::And(parts) => {
                let fails = |part: &&Expression| evaluate::truth_of(self, part, properties) != Some(true);
                parts.iter().filter(fails).for_each(|part| self.failing(part, properties, names));
            }
            Expression::Or(parts) => {
                parts.iter().for_each(|part| self.failing(part, properties, names));
            }
            other => other.clone().each_property(&mut |property| {
                if !names.contains(&property.name) {
                    names.push(property.name.clone());
                }
            }),
        }
    }
}

fn written(value: &Value<'_>) -> String {
    match value {
        Value::Boolean(true) => "TRUE".to_owned(),
        Value::Boolean(false) => "FALSE".to_owned(),
        Value::Long(value) => value.to_string(),
        Value::Double(value) => value.to_string(),
        Value::String(text) => format!("'{}'", text.replace('\'', "''")),
        Value::Other => "a value that cannot be compared".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    struct Map(BTreeMap<&'static str, Value<'static>>);

    impl Properties for Map {
        fn property(&self, name: &str) -> Option<Value<'_>> {
            self.0.get(name).map(Value::reborrow)
        }
    }

    #[test]
    fn the_failing_conditions_name_their_properties() {
        let message = Map(BTreeMap::from([
            ("colour", Value::from("blue")),
            ("size", Value::from(3)),
            ("sold", Value::from(true)),
        ]));
        for (selector, want) in [
            ("colour = 'blue'", None),
            ("colour = 'red'", Some("colour 'blue'")),
            ("colour = 'blue' AND size > 5", Some("size 3")),
            ("colour = 'red' AND size > 5", Some("colour 'blue', size 3")),
            ("weight > 5", Some("weight -")),
            ("colour = 'red' OR size BETWEEN 4 AND 5", Some("colour 'blue', size 3")),
            ("NOT sold", Some("sold TRUE")),
            ("size + weight > 5 AND sold", Some("size 3, weight -")),
            ("1 = 2", Some("")),
        ] {
            let why = Selector::parse(selector).expect("a selector").why_not(&message);
            let written = |fact: &Fact| format!("{} {}", fact.property, fact.value.as_deref().unwrap_or("-"));
            let got = why.map(|facts| facts.iter().map(written).collect::<Vec<_>>().join(", "));
            assert_eq!(got.as_deref(), want, "{selector}");
        }
    }
}
