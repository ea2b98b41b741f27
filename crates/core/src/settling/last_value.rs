//! Last values: of the messages that have the same value of a property, a queue keeps the newest.
//!
//! The value becomes a header when the message comes in, so that the log and its snapshots know it.
//! A newer message is an entry like any other, at the end of its level; the one that it supersedes
//! leaves, or if a consumer has it, leaves when it is given back. The log hears of that as of an
//! expiry: the result follows from the log alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use postroad_model::{Effect, EntryTag, LookupMap, MessageKey, QueueId, RareHeaders, Sent, SettleCause};
use postroad_selector::Value;

use crate::Partition;
use crate::entries::entry_at;
use crate::intake::limit::set_state;
use crate::protocols::Protocols;
use crate::queue::{EntryState, LaneNumber};
use crate::settings::Settings;
use crate::settling::settle::settle_held;

/// The entries of a last-value queue by value. It is never larger than the queue.
#[derive(Default)]
pub struct LastValues {
    newest: LookupMap<Arc<str>, (MessageKey, EntryTag)>,
    /// Superseded entries that a consumer holds.
    held: BTreeSet<EntryTag>,
    /// Superseded, and to be dropped by the leader.
    leaving: BTreeSet<EntryTag>,
}

impl LastValues {
    /// One more entry with this value; the superseded one, or itself if a newer one is there.
    ///
    /// Entries come in the order of their messages, but at a start, when those of a snapshot come
    /// lane by lane.
    pub fn note(&mut self, value: &Arc<str>, key: MessageKey, tag: EntryTag) -> Option<EntryTag> {
        match self.newest.get_mut(value) {
            Some(newest) if is_newer(*newest, (key, tag)) => Some(tag),
            Some(newest) => Some(std::mem::replace(newest, (key, tag)).1),
            None => {
                self.newest.insert(value.clone(), (key, tag));
                None
            }
        }
    }

    /// An entry is superseded, in flight or not.
    pub fn supersede(&mut self, tag: EntryTag, is_in_hand: bool) {
        match is_in_hand {
            true => drop(self.held.insert(tag)),
            false => drop(self.leaving.insert(tag)),
        }
    }

    /// An entry was given back, or rests: if it is superseded it is to be dropped.
    pub fn given_back(&mut self, tag: EntryTag) {
        if self.held.remove(&tag) {
            self.leaving.insert(tag);
        }
    }

    /// An entry is gone.
    pub fn forget(&mut self, value: &Arc<str>, tag: EntryTag) {
        self.held.remove(&tag);
        self.leaving.remove(&tag);
        if self.newest.get(value).is_some_and(|(_, newest)| *newest == tag) {
            self.newest.remove(value);
        }
    }
}

/// Whether a message is newer than another. One from where the queue lived before is older than
/// messages sent to it here; messages only in memory count as they come.
fn is_newer((one, at): (MessageKey, EntryTag), (than, there): (MessageKey, EntryTag)) -> bool {
    let is_durable = |key: MessageKey| matches!(key, MessageKey::Durable { .. });
    match [at, there].map(|tag| LaneNumber::of_tag(tag).is_ahead()) {
        [false, true] => true,
        [true, false] => false,
        _ => is_durable(one) && is_durable(than) && than < one,
    }
}

/// The value by which a queue of the message's keeps the last one becomes a header of it.
pub fn note_last_value(settings: &Settings, protocols: &Protocols, sent: &mut Sent) {
    if !settings.policies.any_last_value() || sent.message.last_value().is_some() {
        return;
    }
    let name = sent.targets().find_map(|to| settings.policies.of(to).last_value.as_ref());
    let Some(name) = name else { return };
    let text: Option<Arc<str>> = match (protocols.properties_of)(&sent.message).property(name) {
        Some(Value::String(text)) => Some(text.into()),
        Some(Value::Long(number)) => Some(number.to_string().into()),
        Some(Value::Double(number)) => Some(number.to_string().into()),
        Some(Value::Boolean(truth)) => Some(truth.to_string().into()),
        Some(Value::Other) | None => None,
    };
    if text.is_some() {
        let rare = sent.message.rare.as_deref().cloned().unwrap_or_default();
        sent.message.rare = Some(Arc::new(RareHeaders { last_value: text, ..rare }));
    }
}

/// Superseded entries leave, before any delivery.
pub fn drop_superseded(partition: &mut Partition, id: QueueId, effects: &mut Vec<Effect>) {
    let is_live = partition.leader.is_live;
    let queue = partition.state.queues.get_mut(&id).filter(|_| is_live);
    let Some(last_values) = queue.and_then(|queue| queue.last_values.as_mut()) else { return };
    if last_values.leaving.is_empty() {
        return;
    }
    let superseded = std::mem::take(&mut last_values.leaving);
    // Delayed entries leave as well: a queue that moves takes them along, and by their place
    // they may come after their successors.
    let is_free = |tag: &EntryTag| {
        entry_at(partition, id, *tag)
            .is_some_and(|entry| !entry.state.is_in_hand() && entry.state != EntryState::Leased)
    };
    let (leaving, held): (Vec<EntryTag>, Vec<EntryTag>) = superseded.into_iter().partition(is_free);
    // At a start a prepared branch may have one: that leaves when it is given back.
    if let Some(last_values) =
        partition.state.queues.get_mut(&id).and_then(|queue| queue.last_values.as_mut())
    {
        last_values.held.extend(held);
    }
    // All at once: where one leaves memory a send may be let in, and the next delivery must not
    // be one of the others.
    leaving.iter().for_each(|tag| set_state(partition, id, *tag, EntryState::Leaving));
    settle_held(partition, id, &leaving, SettleCause::Replaced, None, effects);
}

/// After a start: entries that were superseded when the last run ended.
pub fn drop_all_superseded(partition: &mut Partition, effects: &mut Vec<Effect>) {
    let with_values = partition.state.queues.values().filter(|queue| queue.last_values.is_some());
    let mut ids: Vec<QueueId> = with_values.map(|queue| queue.id).collect();
    ids.sort_unstable();
    for id in ids {
        drop_superseded(partition, id, effects);
    }
}
