//! Access to one selector: the conjunct that is looked up, and the residual condition.

use std::ops::RangeInclusive;

use super::attribute::as_double;
use super::interval::number_key;
use crate::evaluate::{boolean_in, double_in};
use crate::expression::{Comparison, Double, Expression, Literal, Program, Property};
use crate::like::Pattern;

/// A value that a property may equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    String(Box<str>),
    /// See [`number_key`].
    Number(u64),
    Boolean(bool),
}

/// One look-up by the value of a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    Equal(Key),
    Within(RangeInclusive<u64>),
    Prefix(Box<str>),
    Missing,
}

/// Every message that matches the selector is found by one of the probes.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) probes: Vec<(Box<str>, Probe)>,
    /// One message may be found by several of them.
    pub(super) repeats: bool,
}

/// A possible access, before one is chosen.
struct Candidate {
    access: Access,
    /// Indexes of the conjuncts that hold for whatever the probes find.
    proves: Vec<usize>,
}

/// Below 2^53 a long and its double are one to one, and a look-up by the double is exact.
const EXACT_LONG_MAX: u64 = (1 << 53) - 1;

/// Costs of false candidates, beside the other entries of the probe: messages whose value lies in
/// an interval with two ends or begins with a prefix, in one with a single end, and those that are
/// true, or have none.
const COST_EQUAL: usize = 1;
const COST_PREFIX: usize = 4;
const COST_WITHIN: usize = 16;
const COST_ONE_END: usize = 512;
const COST_COMMON: usize = 1024;

impl Access {
    /// The cheapest access and the residual condition; `None` where no conjunct can be looked up.
    ///
    /// `shared` is how many entries a probe of a property finds already.
    pub(super) fn choose(
        program: &Program,
        shared: impl Fn(&str, &Probe) -> usize,
    ) -> Option<(Access, Option<Program>)> {
        let conjuncts = match &program.root {
            Expression::And(conjuncts) => conjuncts.as_slice(),
            other => std::slice::from_ref(other),
        };
        let best = cheapest(conjuncts, program.converts, &shared)?;
        let left: Vec<Expression> = conjuncts
            .iter()
            .enumerate()
            .filter(|(index, _)| !best.proves.contains(index))
            .map(|(_, conjunct)| conjunct.clone())
            .collect();
        let residual = (!left.is_empty()).then(|| Program::new(Expression::and(left), program.converts));
        Some((best.access, residual))
    }

    fn cost(&self, shared: &impl Fn(&str, &Probe) -> usize) -> usize {
        self.probes.iter().map(|(name, probe)| probe.cost() + shared(name, probe)).sum()
    }
}

impl Probe {
    fn cost(&self) -> usize {
        match self {
            Probe::Equal(Key::Boolean(_)) | Probe::Missing => COST_COMMON,
            Probe::Equal(_) => COST_EQUAL,
            Probe::Prefix(_) => COST_PREFIX,
            Probe::Within(interval) if interval.start() == &LOWEST || interval.end() == &HIGHEST => {
                COST_ONE_END
            }
            Probe::Within(_) => COST_WITHIN,
        }
    }
}

fn cheapest(
    conjuncts: &[Expression],
    converts: bool,
    shared: &impl Fn(&str, &Probe) -> usize,
) -> Option<Candidate> {
    let mut candidates: Vec<Candidate> = Vec::new();
    for (index, conjunct) in conjuncts.iter().enumerate() {
        let Some((access, exact)) = lookup(conjunct, converts, shared) else { continue };
        let proves = if exact { vec![index] } else { Vec::new() };
        let candidate = Candidate { access, proves };
        match candidates.iter_mut().find_map(|other| other.narrowed_by(&candidate)) {
            Some(()) => {}
            None => candidates.push(candidate),
        }
    }
    candidates.into_iter().min_by_key(|candidate| candidate.access.cost(shared))
}

impl Candidate {
    /// Two intervals of one property become their intersection: `a >= 1 AND a < 5`.
    fn narrowed_by(&mut self, other: &Candidate) -> Option<()> {
        let [(name, Probe::Within(interval))] = self.access.probes.as_mut_slice() else { return None };
        let [(same, Probe::Within(second))] = other.access.probes.as_slice() else { return None };
        if name != same {
            return None;
        }
        *interval = *interval.start().max(second.start())..=*interval.end().min(second.end());
        if interval.is_empty() {
            // Nothing is in both: no message is to be found.
            self.access.probes.clear();
        }
        self.proves.extend(&other.proves);
        Some(())
    }
}

/// The access by one conjunct, and whether its result is exactly the matches of the conjunct.
fn lookup(
    conjunct: &Expression,
    converts: bool,
    shared: &impl Fn(&str, &Probe) -> usize,
) -> Option<(Access, bool)> {
    let (name, probes, exact) = match conjunct {
        Expression::Or(parts) => return either(parts, converts, shared),
        Expression::Compare(comparison, sides) => compared(*comparison, sides, converts)?,
        Expression::Between(parts) => between(parts)?,
        Expression::Like(value, pattern) => like(value, pattern)?,
        Expression::In(property, members) => {
            let members = members.iter().map(|member| Probe::Equal(Key::String(member.clone())));
            (&*property.name, members.collect(), true)
        }
        Expression::IsNull(value) => (property_name(value)?, vec![Probe::Missing], true),
        Expression::Truth(property) => (&*property.name, vec![Probe::Equal(Key::Boolean(true))], true),
        Expression::Literal(Literal::Null | Literal::Boolean(false)) => {
            return Some((Access { probes: Vec::new(), repeats: false }, true));
        }
        _ => return None,
    };
    let probes = probes.into_iter().map(|probe| (name.into(), probe)).collect();
    // One value is equal to one member; but one that is converted may be found as string and as
    // number.
    Some((Access { probes, repeats: converts }, exact && !converts))
}

/// All branches of an OR, if each has an access.
fn either(
    parts: &[Expression],
    converts: bool,
    shared: &impl Fn(&str, &Probe) -> usize,
) -> Option<(Access, bool)> {
    let mut probes = Vec::new();
    for part in parts {
        let conjuncts = match part {
            Expression::And(conjuncts) => conjuncts.as_slice(),
            other => std::slice::from_ref(other),
        };
        for probe in cheapest(conjuncts, converts, shared)?.access.probes {
            probes.push(probe);
        }
    }
    Some((Access { probes, repeats: true }, false))
}

/// Property, look-ups, and whether they are exact.
type Lookup<'e> = (&'e str, Vec<Probe>, bool);

fn property_name(expression: &Expression) -> Option<&str> {
    match expression {
        Expression::Property(Property { name, .. }) => Some(name),
        _ => None,
    }
}

fn compared(comparison: Comparison, sides: &[Expression; 2], converts: bool) -> Option<Lookup<'_>> {
    let (name, comparison, literal) = match sides {
        [Expression::Property(property), Expression::Literal(literal)] => {
            (&*property.name, comparison, literal)
        }
        [Expression::Literal(literal), Expression::Property(property)] => {
            (&*property.name, comparison.mirrored(), literal)
        }
        _ => return None,
    };
    if comparison == Comparison::Equal {
        let (keys, exact) = equal_keys(literal, converts)?;
        return Some((name, keys.into_iter().map(Probe::Equal).collect(), exact));
    }
    let (key, exact) = bound(literal)?;
    // The next key is the next double: between the two there is no value.
    let interval = match comparison {
        Comparison::Less if exact => LOWEST..=key.saturating_sub(1),
        Comparison::Greater if exact => key.saturating_add(1)..=HIGHEST,
        Comparison::Less | Comparison::LessOrEqual => LOWEST..=key,
        Comparison::Greater | Comparison::GreaterOrEqual => key..=HIGHEST,
        Comparison::Equal | Comparison::NotEqual => return None,
    };
    Some((name, vec![Probe::Within(interval)], exact))
}

/// Keys are compared among numbers alone; the ends are beyond both infinities.
const LOWEST: u64 = 0;
const HIGHEST: u64 = u64::MAX;

fn equal_keys(literal: &Literal, converts: bool) -> Option<(Vec<Key>, bool)> {
    let mut keys = Vec::new();
    match literal {
        Literal::Null => return None,
        Literal::Boolean(truth) => keys.push(Key::Boolean(*truth)),
        Literal::String(text) => {
            keys.push(Key::String(text.clone()));
            if converts {
                keys.push(Key::Boolean(boolean_in(text)));
                keys.extend(double_in(text).and_then(number_key).map(Key::Number));
            }
        }
        Literal::Long(_) | Literal::Double(_) => {
            let (key, exact) = bound(literal)?;
            return Some((vec![Key::Number(key)], exact));
        }
    }
    Some((keys, true))
}

/// The number's key, and whether looking it up is as good as comparing with the number.
fn bound(literal: &Literal) -> Option<(u64, bool)> {
    match literal {
        Literal::Long(value) => {
            Some((number_key(as_double(*value))?, value.unsigned_abs() <= EXACT_LONG_MAX))
        }
        Literal::Double(Double(value)) => Some((number_key(*value)?, true)),
        Literal::Null | Literal::Boolean(_) | Literal::String(_) => None,
    }
}

fn between([value, low, high]: &[Expression; 3]) -> Option<Lookup<'_>> {
    let (Expression::Literal(low), Expression::Literal(high)) = (low, high) else { return None };
    let (name, (low, low_exact), (high, high_exact)) = (property_name(value)?, bound(low)?, bound(high)?);
    let probes = if low <= high { vec![Probe::Within(low..=high)] } else { Vec::new() };
    Some((name, probes, low_exact && high_exact))
}

fn like<'e>(value: &'e Expression, pattern: &Pattern) -> Option<Lookup<'e>> {
    let (name, prefix) = (property_name(value)?, pattern.prefix());
    if pattern.is_text() {
        return Some((name, vec![Probe::Equal(Key::String(prefix.into()))], true));
    }
    (!prefix.is_empty()).then(|| (name, vec![Probe::Prefix(prefix.into())], pattern.is_prefix()))
}
