//! Alerts: conditions of queues and of the broker that operators are notified of.
//!
//! A task goes round over all queues, a page of them at a time: often while there are rules, and
//! else to check the ledger.
//! In: values of queues, stores and the process, and rules. Out: the alerts that are pending or
//! fire ([`Alerts`]), notifications, and the last check of the ledger.
//! Never here: files, sockets, and which URL may be called.
//! Start at [`watch`]; [`AlertState`] decides when an alert fires.

mod history;
mod ledger;
mod notify;
mod rule;
mod state;
mod watch;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch as watched;

use crate::figures::AlertFigures;

pub use ledger::{Ledger, LedgerSums};
pub use notify::{Post, Posted};
pub use rule::{AlertRule, Measure, Recipient, Severity};
pub use state::{Alert, AlertState};
pub use watch::{AlertSources, Disks, WatchCursor, WatchPage, WatchQueues, WatchRequest, watch};

/// Rules of one broker: each has a series of its own.
pub const RULES_MAX: usize = 200;

/// The rules in force, and the alerts of each. Cheap to clone.
#[derive(Clone)]
pub struct Alerts(Arc<Board>);

struct Board {
    rules: watched::Sender<Arc<[AlertRule]>>,
    state: Mutex<AlertState>,
    undelivered: AtomicU64,
    ledger: Mutex<Ledger>,
}

impl Default for Alerts {
    fn default() -> Alerts {
        let rules = watched::Sender::new(Arc::from([]));
        Alerts(Arc::new(Board {
            rules,
            state: Mutex::default(),
            undelivered: AtomicU64::new(0),
            ledger: Mutex::default(),
        }))
    }
}

/// One alert with its rule.
#[derive(Clone, Debug)]
pub struct ListedAlert {
    /// The rule.
    pub rule: AlertRule,
    /// The queue, store or broker.
    pub subject: Arc<str>,
    /// The alert.
    pub alert: Alert,
}

impl Alerts {
    /// Puts other rules in force. Alerts of rules whose name stays go on.
    pub fn follow(&self, rules: Vec<AlertRule>) {
        let rules: Arc<[AlertRule]> = rules.into();
        self.state().retain(&rules);
        self.0.rules.send_replace(rules);
    }

    /// All alerts, by the names of their rules.
    pub fn list(&self) -> Vec<ListedAlert> {
        let rules = self.rules();
        let of_name: BTreeMap<&str, &AlertRule> = rules.iter().map(|rule| (&*rule.name, rule)).collect();
        let state = self.state();
        let listed = state.iter().filter_map(|(name, subject, alert)| {
            let rule = (*of_name.get(&**name)?).clone();
            Some(ListedAlert { rule, subject: subject.clone(), alert: alert.clone() })
        });
        listed.collect()
    }

    /// Of each rule, how many alerts fire.
    pub fn figures(&self) -> Vec<AlertFigures> {
        let mut firing: BTreeMap<Arc<str>, u64> = BTreeMap::new();
        for (name, ..) in self.state().iter().filter(|(_, _, alert)| alert.fired_ms.is_some()) {
            *firing.entry(name.clone()).or_default() += 1;
        }
        let rules = self.rules();
        let figures = rules.iter().map(|rule| AlertFigures {
            alert: rule.name.to_string(),
            severity: rule.severity.name(),
            firing: firing.get(&rule.name).copied().unwrap_or(0),
        });
        figures.collect()
    }

    /// The last check of the ledger.
    pub fn ledger(&self) -> Ledger {
        self.ledger_mut().clone()
    }

    fn ledger_mut(&self) -> MutexGuard<'_, Ledger> {
        self.0.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notifications that were given up.
    pub fn undelivered(&self) -> u64 {
        self.0.undelivered.load(Ordering::Relaxed)
    }

    fn note_undelivered(&self) {
        self.0.undelivered.fetch_add(1, Ordering::Relaxed);
    }

    fn rules(&self) -> Arc<[AlertRule]> {
        self.0.rules.borrow().clone()
    }

    fn state(&self) -> MutexGuard<'_, AlertState> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
