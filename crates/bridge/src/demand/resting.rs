//! Messages that the peer has refused: they are sent again after a pause.

use std::sync::Arc;

use postroad_model::{ConsumerKey, EntryTag, Event, Outcome, Settle};
use postroad_openwire::network::Forwarder;

use super::DemandEngine;
use super::refused::say;

/// First delay before a message that the peer refused is sent again.
const REST_MS: u64 = 1000;

/// Each further refusal in a row doubles that, up to 32 seconds.
const REST_DOUBLINGS_MAX: u32 = 5;

/// A message that the peer has refused.
#[derive(Debug)]
pub(super) struct Resting {
    pub(super) consumer: ConsumerKey,
    tag: EntryTag,
    reason: Arc<str>,
}

impl DemandEngine {
    /// The peer has refused a message: it is tried again after a pause, which grows while all are
    /// refused.
    pub(super) fn rest(&mut self, (consumer, tag): (ConsumerKey, EntryTag), reason: &str, now_ms: u64) {
        let Some(subscription) = self.subscriptions.get_mut(&consumer.number) else { return };
        subscription.refusals = subscription.refusals.saturating_add(1);
        if subscription.refusals == 1 {
            let source = &subscription.target.source;
            say(&mut self.remark, format!("the peer refuses a message of {source}: {reason}"));
        }
        let doublings = (subscription.refusals - 1).min(REST_DOUBLINGS_MAX);
        let due_ms = now_ms.saturating_add(REST_MS << doublings);
        self.resting.entry(due_ms).or_default().push(Resting { consumer, tag, reason: reason.into() });
        self.count_resting();
    }

    pub(super) fn count_resting(&self) {
        if let Some(link) = &self.link {
            link.figures.resting.set(self.resting.values().map(|each| each.len() as u64).sum());
        }
    }

    /// Pauses may be over.
    pub(super) fn wake_resting(&mut self, now_ms: u64, events: &mut Vec<Event>) {
        while let Some(first) = self.resting.first_entry().filter(|first| *first.key() <= now_ms) {
            for Resting { consumer, tag, reason } in first.remove() {
                // Counted, so that a message which is refused again and again becomes a dead
                // letter.
                let failed = self.only_for(consumer).is_none();
                let (tags, outcome) = (vec![tag], Outcome::Released { failed });
                let (transaction, reason, ticket) = (None, Some(reason), None);
                events.push(Event::Settle(Settle { consumer, tags, outcome, transaction, reason, ticket }));
                self.settled(consumer.number, events);
            }
            self.count_resting();
        }
    }
}
