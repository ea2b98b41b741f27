//! Which alerts are pending, and which fire.
//!
//! ```text
//!            above             above for `lasts`
//!   (none) ────────▶ pending ────────────────────▶ firing ◀──────────┐
//!     ▲                │ not above                    │ not above    │ above `clear_at`
//!     ├────────────────┘                              ▼ `clear_at`   │
//!     └──────────────────────────────────────────── clearing ────────┘
//!                        for `lasts`
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::rule::AlertRule;

/// Alerts of all rules together; beyond that they are counted and not listed.
pub const ALERTS_MAX: usize = 10_000;

/// Values of one rule, by the queue, store or broker that they are of. A missing one is 0.
pub type Readings = BTreeMap<Arc<str>, u64>;

/// One alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alert {
    /// The value at the last look.
    pub value: u64,
    /// When the condition began to hold.
    pub since_ms: u64,
    /// When it fired, if it does.
    pub fired_ms: Option<u64>,
    /// Since when the value is low enough to resolve it, if it fires.
    pub clear_ms: Option<u64>,
}

/// An alert that begins to fire, or is resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The queue, store or broker.
    pub subject: Arc<str>,
    /// It fires; otherwise it is resolved.
    pub fires: bool,
    /// The value.
    pub value: u64,
    /// When the condition began to hold.
    pub since_ms: u64,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub struct AlertState {
    /// By the name of the rule, and the subject.
    all: BTreeMap<(Arc<str>, Arc<str>), Alert>,
    /// Conditions that held and were not listed at the last look.
    pub unlisted: u64,
}

impl AlertState {
    /// Looks at the values of one rule.
    pub fn look(&mut self, rule: &AlertRule, readings: &Readings, now_ms: u64) -> Vec<Change> {
        let first = (rule.name.clone(), Arc::from(""));
        let known = self.all.range(first..).take_while(|((name, _), _)| *name == rule.name);
        let known: BTreeSet<Arc<str>> = known.map(|((_, subject), _)| subject.clone()).collect();
        let new =
            readings.iter().filter(|(_, value)| rule.above < **value).map(|(subject, _)| subject.clone());
        let subjects: BTreeSet<Arc<str>> = new.chain(known).collect();
        let value_of = |subject: &Arc<str>| readings.get(subject).copied().unwrap_or(0);
        let look = |subject: Arc<str>| {
            let value = value_of(&subject);
            self.look_at(rule, subject, value, now_ms)
        };
        subjects.into_iter().filter_map(look).collect()
    }

    fn look_at(&mut self, rule: &AlertRule, subject: Arc<str>, value: u64, now_ms: u64) -> Option<Change> {
        let (lasts_ms, key) = (rule.lasts.as_millis() as u64, (rule.name.clone(), subject));
        if ALERTS_MAX <= self.all.len() && !self.all.contains_key(&key) {
            self.unlisted += 1;
            return None;
        }
        let begin = Alert { value, since_ms: now_ms, fired_ms: None, clear_ms: None };
        let alert = self.all.entry(key.clone()).or_insert(begin);
        alert.value = value;
        let change = |alert: &Alert, fires: bool| {
            Some(Change { subject: key.1.clone(), fires, value, since_ms: alert.since_ms })
        };
        if alert.fired_ms.is_none() {
            if value <= rule.above {
                self.all.remove(&key);
                return None;
            }
            if now_ms < alert.since_ms + lasts_ms {
                return None;
            }
            alert.fired_ms = Some(now_ms);
            return change(alert, true);
        }
        if rule.clear_at < value {
            alert.clear_ms = None;
            return None;
        }
        let clear_ms = *alert.clear_ms.get_or_insert(now_ms);
        if now_ms < clear_ms + lasts_ms {
            return None;
        }
        let resolved = change(alert, false);
        self.all.remove(&key);
        resolved
    }

    /// Forgets the alerts of rules that are no longer there, and begins to count conditions that
    /// are not listed.
    pub fn retain(&mut self, rules: &[AlertRule]) {
        let names: BTreeSet<&Arc<str>> = rules.iter().map(|rule| &rule.name).collect();
        self.all.retain(|(name, _), _| names.contains(name));
        self.unlisted = 0;
    }

    /// All alerts: the name of the rule, the subject, and the alert.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>, &Alert)> {
        self.all.iter().map(|((name, subject), alert)| (name, subject, alert))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::rule::{Measure, Severity};
    use super::*;

    fn rule() -> AlertRule {
        AlertRule {
            name: "deep".into(),
            severity: Severity::Warning,
            on: Measure::Depth,
            destinations: Vec::new(),
            above: 100,
            clear_at: 80,
            lasts: Duration::from_secs(10),
            to: Vec::new(),
        }
    }

    #[test]
    fn an_alert_fires_and_resolves_once_its_condition_lasted() {
        let (mut state, rule) = (AlertState::default(), rule());
        for (case, second, value, want) in [
            ("at the threshold", 0, 100, None),
            ("above it", 1, 101, None),
            ("not for long enough", 10, 101, None),
            ("back below it", 10, 100, None),
            ("above it again", 11, 500, None),
            ("still not for long enough", 20, 500, None),
            ("now it fires", 21, 500, Some(true)),
            ("once", 40, 500, None),
            ("below the threshold, and above the level that clears it", 50, 90, None),
            ("clear", 51, 80, None),
            ("not clear", 60, 81, None),
            ("clear again", 61, 0, None),
            ("not for long enough", 70, 0, None),
            ("resolved", 71, 0, Some(false)),
            ("once", 90, 0, None),
        ] {
            let readings = Readings::from([("queue://a".into(), value)]);
            let changes = state.look(&rule, &readings, second * 1000);
            assert_eq!(changes.first().map(|change| change.fires), want, "case: {case}, {changes:?}");
        }
        assert_eq!(state.iter().count(), 0);
    }

    #[test]
    fn a_subject_without_a_value_has_zero() {
        let (mut state, rule) = (AlertState::default(), AlertRule { lasts: Duration::ZERO, ..rule() });
        let readings = Readings::from([("queue://a".into(), 101)]);
        assert_eq!(state.look(&rule, &readings, 1).len(), 1);
        let resolved = Change { subject: "queue://a".into(), fires: false, value: 0, since_ms: 1 };
        assert_eq!(state.look(&rule, &Readings::new(), 2), [resolved]);
    }

    #[test]
    fn alerts_are_bounded_and_end_with_their_rule() {
        let (mut state, rule) = (AlertState::default(), rule());
        let readings: Readings =
            (0..ALERTS_MAX + 7).map(|number| (format!("queue://{number}").into(), 101)).collect();
        state.look(&rule, &readings, 0);
        assert_eq!((state.iter().count(), state.unlisted), (ALERTS_MAX, 7));
        state.retain(std::slice::from_ref(&rule));
        assert_eq!((state.iter().count(), state.unlisted), (ALERTS_MAX, 0));
        state.retain(&[]);
        assert_eq!(state.iter().count(), 0);
    }
}
