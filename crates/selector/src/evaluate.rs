//! Three-valued evaluation (JMS 3.8.1.2): `None` is the value NULL, or the truth unknown.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::cmp::Ordering;

use crate::expression::{Arithmetic, Comparison, Double, Expression, Literal, Program, Property};
use crate::value::{Properties, Value};

/// Properties whose values are kept during one evaluation; a selector with more of them that are
/// named twice is rare, and is right without.
pub(crate) const CELLS: usize = 4;

impl Program {
    /// Unknown is no match.
    pub(crate) fn matches<P: Properties + ?Sized>(&self, properties: &P) -> bool {
        self.truth(properties) == Some(true)
    }

    pub(crate) fn truth<P: Properties + ?Sized>(&self, properties: &P) -> Option<bool> {
        Evaluation { properties, converts: self.converts, cells: Default::default() }.truth(&self.root)
    }
}

/// The truth of a part of a program.
pub(crate) fn truth_of<P: Properties + ?Sized>(
    program: &Program,
    part: &Expression,
    properties: &P,
) -> Option<bool> {
    Evaluation { properties, converts: program.converts, cells: Default::default() }.truth(part)
}

/// One evaluation of one program against one message.
struct Evaluation<'p, P: ?Sized> {
    properties: &'p P,
    converts: bool,
    cells: [OnceCell<Option<Value<'p>>>; CELLS],
}

impl<'p, P: Properties + ?Sized> Evaluation<'p, P> {
    fn truth(&self, expression: &Expression) -> Option<bool> {
        match expression {
            Expression::And(parts) => self.all(parts, false),
            Expression::Or(parts) => self.all(parts, true),
            Expression::Not(inner) => self.truth(inner).map(|truth| !truth),
            Expression::Compare(comparison, sides) => {
                let [left, right] = &**sides;
                let (left, right) = (self.value(left)?, self.value(right)?);
                Some(compare(*comparison, &left, &right, self.converts))
            }
            Expression::Between(parts) => self.between(parts),
            Expression::NotBetween(parts) => self.not_between(parts),
            Expression::Like(inner, pattern) => match self.value(inner)? {
                Value::String(text) => Some(pattern.matches(&text)),
                _ => Some(false),
            },
            Expression::In(property, members) => match self.property(property)? {
                Value::String(text) => Some(members.binary_search_by(|member| (**member).cmp(&text)).is_ok()),
                _ => None,
            },
            Expression::IsNull(inner) => Some(self.value(inner).is_none()),
            Expression::Truth(property) => match self.property(property)? {
                Value::Boolean(truth) => Some(truth),
                _ => Some(false),
            },
            Expression::XPath(xpath) => Some(xpath.matches(self.properties.body().as_deref())),
            Expression::Literal(Literal::Boolean(truth)) => Some(*truth),
            Expression::Literal(_)
            | Expression::Property(_)
            | Expression::Negate(_)
            | Expression::Arithmetic(..) => None,
        }
    }

    /// AND stops at the first false, OR at the first true: `stops` is the result then.
    fn all(&self, parts: &[Expression], stops: bool) -> Option<bool> {
        let mut unknown = false;
        for part in parts {
            match self.truth(part) {
                Some(truth) if truth == stops => return Some(stops),
                Some(_) => {}
                None => unknown = true,
            }
        }
        (!unknown).then_some(!stops)
    }

    /// `value >= low AND value <= high`.
    fn between(&self, [value, low, high]: &[Expression; 3]) -> Option<bool> {
        let value = self.value(value)?;
        let above = self.bound(Comparison::GreaterOrEqual, &value, low);
        if above == Some(false) {
            return above;
        }
        match self.bound(Comparison::LessOrEqual, &value, high) {
            Some(true) => above,
            below => below,
        }
    }

    /// `value < low OR value > high`, which is not the negation of the above for values that are
    /// not numbers.
    fn not_between(&self, [value, low, high]: &[Expression; 3]) -> Option<bool> {
        let value = self.value(value)?;
        let below = self.bound(Comparison::Less, &value, low);
        if below == Some(true) {
            return below;
        }
        match self.bound(Comparison::Greater, &value, high) {
            Some(false) => below,
            above => above,
        }
    }

    fn bound(&self, comparison: Comparison, value: &Value<'_>, bound: &Expression) -> Option<bool> {
        self.value(bound).map(|bound| compare(comparison, value, &bound, self.converts))
    }

    fn value<'v>(&'v self, expression: &'v Expression) -> Option<Value<'v>> {
        match expression {
            Expression::Literal(literal) => literal_value(literal),
            Expression::Property(property) => self.property(property),
            Expression::Negate(inner) => match self.value(inner)? {
                Value::Long(value) => Some(Value::Long(value.wrapping_neg())),
                Value::Double(value) => Some(Value::Double(-value)),
                _ => None,
            },
            Expression::Arithmetic(operation, sides) => {
                let [left, right] = &**sides;
                calculate(*operation, self.value(left)?, self.value(right)?)
            }
            condition => self.truth(condition).map(Value::Boolean),
        }
    }

    fn property(&self, property: &Property) -> Option<Value<'_>> {
        match property.cell {
            None => self.properties.property(&property.name),
            Some(cell) => self.cells[usize::from(cell)]
                .get_or_init(|| self.properties.property(&property.name))
                .as_ref()
                .map(Value::reborrow),
        }
    }
}

fn literal_value(literal: &Literal) -> Option<Value<'_>> {
    match literal {
        Literal::Null => None,
        Literal::Boolean(value) => Some(Value::Boolean(*value)),
        Literal::Long(value) => Some(Value::Long(*value)),
        Literal::Double(value) => Some(Value::Double(value.0)),
        Literal::String(value) => Some(Value::String(Cow::Borrowed(value))),
    }
}

/// Values of unlike types are not equal and have no order; neither have strings and booleans.
fn compare(comparison: Comparison, left: &Value<'_>, right: &Value<'_>, converts: bool) -> bool {
    if converts && let Some((left, right)) = converted(left, right) {
        return compare(comparison, &left, &right, false);
    }
    match comparison {
        Comparison::Equal => equal(left, right),
        Comparison::NotEqual => !equal(left, right),
        Comparison::Less => order(left, right).is_some_and(Ordering::is_lt),
        Comparison::LessOrEqual => order(left, right).is_some_and(Ordering::is_le),
        Comparison::Greater => order(left, right).is_some_and(Ordering::is_gt),
        Comparison::GreaterOrEqual => order(left, right).is_some_and(Ordering::is_ge),
    }
}

fn equal(left: &Value<'_>, right: &Value<'_>) -> bool {
    match (left, right) {
        (Value::Boolean(left), Value::Boolean(right)) => left == right,
        (Value::String(left), Value::String(right)) => left == right,
        _ => order(left, right).is_some_and(Ordering::is_eq),
    }
}

/// Numeric promotion of Java: a long that meets a double becomes one.
#[expect(clippy::cast_precision_loss, reason = "JMS 3.8.1.1 wants Java's promotion")]
fn order(left: &Value<'_>, right: &Value<'_>) -> Option<Ordering> {
    match (left, right) {
        (Value::Long(left), Value::Long(right)) => Some(left.cmp(right)),
        (Value::Long(left), Value::Double(right)) => (*left as f64).partial_cmp(right),
        (Value::Double(left), Value::Long(right)) => left.partial_cmp(&(*right as f64)),
        (Value::Double(left), Value::Double(right)) => left.partial_cmp(right),
        _ => None,
    }
}

/// Both sides with a string read as the type that it meets; `None` where there is nothing to
/// convert.
fn converted<'a>(left: &'a Value<'_>, right: &'a Value<'_>) -> Option<(Value<'a>, Value<'a>)> {
    match (left, right) {
        (Value::String(_), Value::String(_)) => None,
        (Value::String(text), other) => Some((read_as(text, other), other.reborrow())),
        (other, Value::String(text)) => Some((other.reborrow(), read_as(text, other))),
        _ => None,
    }
}

/// [`Value::Other`], which equals nothing, where the text is no such value.
fn read_as(text: &str, like: &Value<'_>) -> Value<'static> {
    match like {
        Value::Boolean(_) => Value::Boolean(boolean_in(text)),
        Value::Long(_) => text.parse().map_or(Value::Other, Value::Long),
        Value::Double(_) => double_in(text).map_or(Value::Other, Value::Double),
        Value::String(_) | Value::Other => Value::Other,
    }
}

/// Java reads every other text as false.
pub(crate) fn boolean_in(text: &str) -> bool {
    text.eq_ignore_ascii_case("true")
}

/// Every text that is read as a long is also read as a double here.
pub(crate) fn double_in(text: &str) -> Option<f64> {
    let text = text.trim();
    let numeric = |character: char| character.is_ascii_digit() || "+-.eE".contains(character);
    if text.chars().all(numeric) { text.parse().ok() } else { None }
}

#[expect(clippy::cast_precision_loss, reason = "JMS 3.8.1.1 wants Java's promotion")]
fn calculate<'v>(operation: Arithmetic, left: Value<'v>, right: Value<'v>) -> Option<Value<'v>> {
    match (left, right) {
        (Value::String(left), right) if operation == Arithmetic::Add => {
            let mut text = left.into_owned();
            append(&mut text, &right)?;
            Some(Value::String(Cow::Owned(text)))
        }
        (Value::Long(left), Value::Long(right)) => Some(calculate_longs(operation, left, right)),
        (Value::Long(left), Value::Double(right)) => Some(calculate_doubles(operation, left as f64, right)),
        (Value::Double(left), Value::Long(right)) => Some(calculate_doubles(operation, left, right as f64)),
        (Value::Double(left), Value::Double(right)) => Some(calculate_doubles(operation, left, right)),
        _ => None,
    }
}

/// Wraps around as Java does; a quotient is a double, as it is for ActiveMQ.
#[expect(clippy::cast_precision_loss, reason = "a quotient is a double")]
fn calculate_longs<'v>(operation: Arithmetic, left: i64, right: i64) -> Value<'v> {
    match operation {
        Arithmetic::Add => Value::Long(left.wrapping_add(right)),
        Arithmetic::Subtract => Value::Long(left.wrapping_sub(right)),
        Arithmetic::Multiply => Value::Long(left.wrapping_mul(right)),
        Arithmetic::Remainder if right != 0 => Value::Long(left.wrapping_rem(right)),
        Arithmetic::Divide | Arithmetic::Remainder => calculate_doubles(operation, left as f64, right as f64),
    }
}

fn calculate_doubles<'v>(operation: Arithmetic, left: f64, right: f64) -> Value<'v> {
    Value::Double(match operation {
        Arithmetic::Add => left + right,
        Arithmetic::Subtract => left - right,
        Arithmetic::Multiply => left * right,
        Arithmetic::Divide => left / right,
        Arithmetic::Remainder => left % right,
    })
}

fn append(text: &mut String, value: &Value<'_>) -> Option<()> {
    match value {
        Value::String(value) => text.push_str(value),
        Value::Long(value) => text.push_str(&value.to_string()),
        Value::Boolean(value) => text.push_str(if *value { "true" } else { "false" }),
        Value::Double(value) => text.push_str(&java_double(*value)),
        Value::Other => return None,
    }
    Some(())
}

/// A double as Java writes it: `1.5`, `100.0`, `1.0E7`, `Infinity`.
fn java_double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value < 0.0 { "-Infinity" } else { "Infinity" }.to_owned();
    }
    if value == 0.0 || (1e-3..1e7).contains(&value.abs()) {
        return format!("{value:?}");
    }
    let scientific = format!("{value:E}");
    match scientific.split_once('E') {
        Some((mantissa, exponent)) if !mantissa.contains('.') => format!("{mantissa}.0E{exponent}"),
        _ => scientific,
    }
}

/// The result as a literal; `None` where there is none.
pub(crate) fn calculate_literals(operation: Arithmetic, left: &Literal, right: &Literal) -> Option<Literal> {
    match calculate(operation, literal_value(left)?, literal_value(right)?)? {
        Value::Boolean(value) => Some(Literal::Boolean(value)),
        Value::Long(value) => Some(Literal::Long(value)),
        Value::Double(value) => Some(Literal::Double(Double(value))),
        Value::String(value) => Some(Literal::String(value.into())),
        Value::Other => None,
    }
}
