//! Folding: constants are evaluated once, without a message, and nested AND and OR are flattened.

use crate::evaluate::CELLS;
use crate::expression::{Arithmetic, Double, Expression, Literal, Program, Property};
use crate::value::{Properties, Value};

struct Nothing;

impl Properties for Nothing {
    fn property(&self, _name: &str) -> Option<Value<'_>> {
        None
    }
}

impl Expression {
    pub(crate) fn negated(self) -> Expression {
        match self {
            Expression::Not(inner) => *inner,
            Expression::Literal(Literal::Boolean(truth)) => Expression::Literal(Literal::Boolean(!truth)),
            Expression::Literal(Literal::Null) => self,
            other => Expression::Not(Box::new(other)),
        }
    }

    pub(crate) fn and(parts: Vec<Expression>) -> Expression {
        join(parts, false)
    }

    pub(crate) fn or(parts: Vec<Expression>) -> Expression {
        join(parts, true)
    }

    /// The same condition, as a literal where all below it is literal.
    pub(crate) fn folded(self, converts: bool) -> Expression {
        let constant = match &self {
            Expression::Compare(_, sides) => sides.iter().all(is_literal),
            Expression::Between(parts) | Expression::NotBetween(parts) => parts.iter().all(is_literal),
            Expression::Like(inner, _) | Expression::IsNull(inner) => is_literal(inner),
            _ => false,
        };
        if !constant {
            return self;
        }
        let truth = Program { root: self, converts }.truth(&Nothing);
        Expression::Literal(truth.map_or(Literal::Null, Literal::Boolean))
    }

    /// Minus this; a literal where it is one.
    pub(crate) fn minus(self) -> Expression {
        match self {
            Expression::Literal(Literal::Long(value)) => {
                Expression::Literal(Literal::Long(value.wrapping_neg()))
            }
            Expression::Literal(Literal::Double(Double(value))) => {
                Expression::Literal(Literal::Double(Double(-value)))
            }
            other => Expression::Negate(Box::new(other)),
        }
    }

    pub(crate) fn arithmetic(operation: Arithmetic, left: Expression, right: Expression) -> Expression {
        if let (Expression::Literal(left), Expression::Literal(right)) = (&left, &right)
            && let Some(value) = crate::evaluate::calculate_literals(operation, left, right)
        {
            return Expression::Literal(value);
        }
        Expression::Arithmetic(operation, Box::new([left, right]))
    }
}

fn is_literal(expression: &Expression) -> bool {
    matches!(expression, Expression::Literal(_))
}

/// Joins by AND, or by OR where `decides` is true: a part that is `decides` decides all, its
/// opposite nothing.
fn join(parts: Vec<Expression>, decides: bool) -> Expression {
    let mut flat = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            Expression::And(inner) if !decides => flat.extend(inner),
            Expression::Or(inner) if decides => flat.extend(inner),
            Expression::Literal(Literal::Boolean(truth)) if truth == decides => return part,
            Expression::Literal(Literal::Boolean(_)) => {}
            other => flat.push(other),
        }
    }
    match (flat.len(), flat.pop()) {
        (1, Some(only)) => only,
        (_, Some(last)) => {
            flat.push(last);
            if decides { Expression::Or(flat) } else { Expression::And(flat) }
        }
        (_, None) => Expression::Literal(Literal::Boolean(!decides)),
    }
}

impl Program {
    /// Gives the first properties that are named more than once a cell, so that each is looked up
    /// once.
    pub(crate) fn new(mut root: Expression, converts: bool) -> Program {
        let mut names: Vec<Box<str>> = Vec::new();
        root.each_property(&mut |property: &mut Property| {
            property.cell = None;
            names.push(property.name.clone());
        });
        names.sort_unstable();
        let mut repeated: Vec<&Box<str>> =
            names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| &pair[0]).collect();
        repeated.dedup();
        repeated.truncate(CELLS);
        root.each_property(&mut |property: &mut Property| {
            let cell = repeated.iter().position(|name| **name == property.name);
            property.cell = cell.and_then(|cell| u8::try_from(cell).ok());
        });
        Program { root, converts }
    }
}
