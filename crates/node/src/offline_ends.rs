//! Durable subscriptions that ended as they had no reader for too long: for the log and the audit.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use postroad_model::OfflineEnd;

/// Rows that wait for the audit; beyond that the oldest goes. The log has it.
const WAITING_MAX: usize = 256;

/// See the head of this file. Clones share the rows.
#[derive(Clone, Debug, Default)]
pub struct OfflineEnds(Arc<Mutex<VecDeque<(u64, OfflineEnd)>>>);

impl OfflineEnds {
    /// One has ended at this time of day.
    pub(crate) fn add(&self, at_ms: u64, ended: OfflineEnd) {
        let OfflineEnd { name, topic, messages, offline_ms } = &ended;
        tracing::info!(
            subscription = &**name,
            topic = &**topic,
            messages,
            offline_ms,
            "durable subscription ended: it had no reader for limits.offline_subscription_ms"
        );
        let mut rows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if WAITING_MAX <= rows.len() {
            rows.pop_front();
        }
        rows.push_back((at_ms, ended));
    }

    /// The rows since the last call, the oldest first, each with its time of day.
    pub fn take(&self) -> Vec<(u64, OfflineEnd)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_where_nothing_takes_them() {
        let ends = OfflineEnds::default();
        for number in 0..=WAITING_MAX as u64 {
            let (name, topic) = ("s".into(), "t".into());
            ends.add(number, OfflineEnd { name, topic, messages: number, offline_ms: 0 });
        }
        let rows = ends.clone().take();
        assert_eq!((rows.len(), rows[0].0), (WAITING_MAX, 1));
        assert!(ends.take().is_empty());
    }
}
