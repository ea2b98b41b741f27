//! The form of a selector that is folded, evaluated and indexed.

use std::hash::{Hash, Hasher};

use crate::like::Pattern;
use crate::xpath::XPath;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Expression {
    Literal(Literal),
    Property(Property),
    Negate(Box<Expression>),
    Arithmetic(Arithmetic, Box<[Expression; 2]>),
    /// A property as a condition: unknown where it is missing, false where it is no boolean.
    Truth(Property),
    Compare(Comparison, Box<[Expression; 2]>),
    /// Value, low, high.
    Between(Box<[Expression; 3]>),
    NotBetween(Box<[Expression; 3]>),
    Like(Box<Expression>, Pattern),
    /// Sorted, without repeats.
    In(Property, Box<[Box<str>]>),
    IsNull(Box<Expression>),
    /// Over the body, not over properties.
    XPath(XPath),
    Not(Box<Expression>),
    And(Vec<Expression>),
    Or(Vec<Expression>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Literal {
    Null,
    Boolean(bool),
    Long(i64),
    Double(Double),
    String(Box<str>),
}

/// A double that equals its own bits, so that equal selectors can be found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Double(pub(crate) f64);

impl PartialEq for Double {
    fn eq(&self, other: &Double) -> bool {
        self.0.to_bits() == other.0.to_bits()
    }
}

impl Eq for Double {}

impl Hash for Double {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.to_bits().hash(state);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Property {
    pub(crate) name: Box<str>,
    /// Where its value is kept during one evaluation, if the selector names it more than once.
    pub(crate) cell: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    /// The comparison that holds with the sides changed over.
    pub(crate) fn mirrored(self) -> Comparison {
        match self {
            Comparison::Less => Comparison::Greater,
            Comparison::LessOrEqual => Comparison::GreaterOrEqual,
            Comparison::Greater => Comparison::Less,
            Comparison::GreaterOrEqual => Comparison::LessOrEqual,
            Comparison::Equal | Comparison::NotEqual => self,
        }
    }
}

impl Expression {
    /// Yields true, false or unknown, and nothing else.
    pub(crate) fn is_condition(&self) -> bool {
        match self {
            Expression::Literal(literal) => matches!(literal, Literal::Null | Literal::Boolean(_)),
            Expression::Property(_) | Expression::Negate(_) | Expression::Arithmetic(..) => false,
            _ => true,
        }
    }

    /// Calls `visit` with every property below.
    pub(crate) fn each_property(&mut self, visit: &mut impl FnMut(&mut Property)) {
        match self {
            Expression::Literal(_) | Expression::XPath(_) => {}
            Expression::Property(property) | Expression::Truth(property) | Expression::In(property, _) => {
                visit(property);
            }
            Expression::Negate(inner)
            | Expression::Like(inner, _)
            | Expression::IsNull(inner)
            | Expression::Not(inner) => inner.each_property(visit),
            Expression::Arithmetic(_, sides) | Expression::Compare(_, sides) => {
                sides.iter_mut().for_each(|side| side.each_property(visit));
            }
            Expression::Between(parts) | Expression::NotBetween(parts) => {
                parts.iter_mut().for_each(|part| part.each_property(visit));
            }
            Expression::And(parts) | Expression::Or(parts) => {
                parts.iter_mut().for_each(|part| part.each_property(visit));
            }
        }
    }
}

/// A whole condition, ready to be evaluated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Program {
    pub(crate) root: Expression,
    /// Strings are converted where they meet numbers and booleans (`convert_string_expressions:`).
    pub(crate) converts: bool,
}
