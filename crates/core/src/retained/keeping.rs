//! Keeping: which messages enter the store, and which leave it.

use bytes::Bytes;
use postroad_model::{Destination, DestinationKind, Effect, Message, MessageKey, Retain};
use postroad_routing::Recovery;

use super::Source;
use crate::Partition;
use crate::leader::Leader;
use crate::partition::insert_volatile;
use crate::settings::Settings;
use crate::state::State;

impl Partition {
    /// The topic retains the message as the latest of its key, or none any more. Without room for a
    /// new one it is not retained, and that is counted.
    pub(crate) fn retain(
        &mut self,
        topic: &Destination,
        message: &Message,
        retain: &Retain,
        effects: &mut Vec<Effect>,
    ) {
        let bytes = message.bytes.len() as u64;
        let gone = match retain.keep {
            true if message.chunks().is_some()
                || !self.leader.retained.has_room(
                    &topic.name,
                    &retain.key,
                    bytes,
                    self.settings.retained_bytes_max,
                ) =>
            {
                self.counters.unretained += 1;
                // The one before is not the latest any more.
                self.leader.retained.remove_latest(&topic.name, &retain.key)
            }
            true => {
                let key = store_retained(&mut self.state, &mut self.leader, message, effects);
                self.leader.retained.keep_latest(&topic.name, &retain.key, key, bytes)
            }
            false => self.leader.retained.remove_latest(&topic.name, &retain.key),
        };
        self.drop_retained(gone, effects);
    }

    /// A message was published to the address: its topic keeps it, if its policy says so.
    pub(crate) fn keep_recent(&mut self, to: &Destination, message: &Message, effects: &mut Vec<Effect>) {
        // A large body is not kept in memory, and no queue would keep it on the disk.
        let Some(recovery) = recovery_of(&self.settings, to).filter(|_| message.chunks().is_none()) else {
            return;
        };
        let (now_ms, bytes_max) = (self.now_ms, self.settings.recent_bytes_max);
        let kept =
            (store_retained(&mut self.state, &mut self.leader, message, effects), message.bytes.len() as u64);
        let gone = self.leader.retained.keep_recent(&to.name, kept, &recovery, now_ms, bytes_max);
        self.drop_retained(gone, effects);
    }

    /// As [`Partition::keep_recent`], of a message that was applied. Replayed messages are older
    /// than this run, and are not proposed.
    pub(crate) fn keep_recent_of(&mut self, key: MessageKey, to: &Destination, effects: &mut Vec<Effect>) {
        if !self.leader.log.pending.is_empty()
            && recovery_of(&self.settings, to).is_some()
            && let Some(message) = self.state.bodies.resident(key).cloned()
        {
            self.keep_recent(to, &message, effects);
        }
    }

    /// Removes messages that the topics of the source need not keep any longer.
    pub(super) fn trim_recent(&mut self, source: &Source, effects: &mut Vec<Effect>) {
        if !self.settings.policies.any_recovery() {
            return;
        }
        let policies = self.settings.policies.clone();
        for topic in self.leader.retained.recent_topics(source) {
            let recovery = policies.of(&Destination::topic(&topic)).recovery;
            let gone = self.leader.retained.trim(&topic, &recovery, self.now_ms);
            self.drop_retained(gone, effects);
        }
    }

    fn drop_retained(&mut self, gone: Vec<MessageKey>, effects: &mut Vec<Effect>) {
        gone.into_iter().for_each(|key| self.drop_reference(key, effects));
    }
}

/// The messages kept by the topic; `None` for none.
fn recovery_of(settings: &Settings, to: &Destination) -> Option<Recovery> {
    let policies = Some(&settings.policies).filter(|policies| policies.any_recovery());
    let policies = policies.filter(|_| to.kind == DestinationKind::Topic && !to.temporary)?;
    Some(policies.of(to).recovery).filter(Recovery::keeps)
}

/// A message of its own, because this one may be a small part of its connection's read buffer.
fn store_retained(
    state: &mut State,
    leader: &mut Leader,
    message: &Message,
    effects: &mut Vec<Effect>,
) -> MessageKey {
    let message = Message { bytes: Bytes::copy_from_slice(&message.bytes), ..message.clone() };
    let key = insert_volatile(state, leader, message, effects);
    state.bodies.refer(key);
    key
}
