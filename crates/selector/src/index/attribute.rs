//! Look-up by the value of one property.

use std::collections::BTreeMap;
use std::hash::Hash;
use std::ops::Bound;

use super::SeededMap;
use super::access::{Key, Probe};
use super::interval::{Intervals, number_key};
use super::postings::{EntryId, Postings};
use crate::evaluate::{boolean_in, double_in};
use crate::value::Value;

#[derive(Clone, Debug, Default)]
pub(super) struct Attribute {
    strings: SeededMap<Box<str>, Postings>,
    numbers: SeededMap<u64, Postings>,
    booleans: [Postings; 2],
    intervals: Intervals,
    prefixes: BTreeMap<Box<str>, Postings>,
    missing: Postings,
}

impl Attribute {
    pub(super) fn insert(&mut self, probe: &Probe, id: EntryId) {
        match probe {
            Probe::Equal(Key::String(text)) => self.strings.entry(text.clone()).or_default().insert(id),
            Probe::Equal(Key::Number(key)) => self.numbers.entry(*key).or_default().insert(id),
            Probe::Equal(Key::Boolean(truth)) => self.booleans[usize::from(*truth)].insert(id),
            Probe::Within(interval) => self.intervals.insert(interval, id),
            Probe::Prefix(prefix) => self.prefixes.entry(prefix.clone()).or_default().insert(id),
            Probe::Missing => self.missing.insert(id),
        }
    }

    pub(super) fn remove(&mut self, probe: &Probe, id: EntryId) {
        match probe {
            Probe::Equal(Key::String(text)) => remove_from(&mut self.strings, text, id),
            Probe::Equal(Key::Number(key)) => remove_from(&mut self.numbers, key, id),
            Probe::Equal(Key::Boolean(truth)) => self.booleans[usize::from(*truth)].remove(id),
            Probe::Within(interval) => self.intervals.remove(interval, id),
            Probe::Prefix(prefix) => {
                if let Some(postings) = self.prefixes.get_mut(prefix) {
                    postings.remove(id);
                    if postings.is_empty() {
                        self.prefixes.remove(prefix);
                    }
                }
            }
            Probe::Missing => self.missing.remove(id),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.strings.is_empty()
            && self.numbers.is_empty()
            && self.booleans.iter().all(Postings::is_empty)
            && self.intervals.is_empty()
            && self.prefixes.is_empty()
            && self.missing.is_empty()
    }

    /// Entries that the probe finds already, about: a further one is found together with them.
    pub(super) fn shared_by(&self, probe: &Probe) -> usize {
        let postings = match probe {
            Probe::Equal(Key::String(text)) => self.strings.get(text),
            Probe::Equal(Key::Number(key)) => self.numbers.get(key),
            Probe::Equal(Key::Boolean(truth)) => Some(&self.booleans[usize::from(*truth)]),
            Probe::Within(interval) => return self.intervals.shared_by(interval),
            Probe::Prefix(prefix) => self.prefixes.get(prefix),
            Probe::Missing => Some(&self.missing),
        };
        postings.map_or(0, Postings::len)
    }

    /// Calls `visit` with every entry that a message with this value may match by one of its
    /// probes; with an entry of several probes maybe more than once.
    pub(super) fn find(&self, value: Option<&Value<'_>>, converts: bool, visit: &mut impl FnMut(EntryId)) {
        match value {
            None => self.missing.each(visit),
            Some(Value::Boolean(truth)) => self.booleans[usize::from(*truth)].each(visit),
            Some(Value::Long(number)) => self.find_number(as_double(*number), visit),
            Some(Value::Double(number)) => self.find_number(*number, visit),
            Some(Value::String(text)) => {
                self.find_string(text, visit);
                if converts {
                    self.booleans[usize::from(boolean_in(text))].each(visit);
                    double_in(text).into_iter().for_each(|number| self.find_number(number, visit));
                }
            }
            Some(Value::Other) => {}
        }
    }

    fn find_number(&self, number: f64, visit: &mut impl FnMut(EntryId)) {
        let Some(key) = number_key(number) else { return };
        if let Some(postings) = self.numbers.get(&key) {
            postings.each(visit);
        }
        self.intervals.containing(key, visit);
    }

    fn find_string(&self, text: &str, visit: &mut impl FnMut(EntryId)) {
        if let Some(postings) = self.strings.get(text) {
            postings.each(visit);
        }
        // Downwards from the text: a key that is no prefix of it shows how far any prefix can still
        // reach.
        let mut reach = text;
        let mut bound = Bound::Included(text);
        while let Some((prefix, postings)) =
            self.prefixes.range::<str, _>((Bound::Unbounded, bound)).next_back()
        {
            let shared = shared_bytes(prefix, reach);
            if shared == prefix.len() {
                postings.each(visit);
                bound = Bound::Excluded(prefix);
            } else {
                bound = Bound::Included(&reach[..shared]);
            }
            reach = &reach[..shared];
        }
    }
}

/// Numeric promotion, as in the evaluation.
#[expect(clippy::cast_precision_loss, reason = "keys are doubles; who needs the lost bits evaluates again")]
pub(super) fn as_double(number: i64) -> f64 {
    number as f64
}

/// Bytes that both begin with, whole characters alone.
fn shared_bytes(one: &str, other: &str) -> usize {
    let shared = one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count();
    (0..=shared).rev().find(|end| other.is_char_boundary(*end)).unwrap_or(0)
}

fn remove_from<K: Eq + Hash>(map: &mut SeededMap<K, Postings>, key: &K, id: EntryId) {
    if let Some(postings) = map.get_mut(key) {
        postings.remove(id);
        if postings.is_empty() {
            map.remove(key);
        }
    }
}
