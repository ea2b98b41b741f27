//! Keeping: which messages enter the store, and which leave it.

use bytes::Bytes;
use postroad_model::{Destination, DestinationKind, Effect, Message, MessageKey, Retain};
use postroad_routing::Recovery;

use super::Source;
use crate::Partition;
use crate::entries::{drop_reference, insert_volatile};
use crate::leader::Leader;
use crate::settings::Settings;
use crate::state::State;

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

/// The topic retains the message as the latest of its key, or none any more. Without room for a
/// new one it is not retained, and that is counted.
pub fn retain_message(
    partition: &mut Partition,
    topic: &Destination,
    message: &Message,
    retain: &Retain,
    effects: &mut Vec<Effect>,
) {
    let bytes = message.bytes.len() as u64;
    let gone = match retain.keep {
        true if message.chunks().is_some()
            || !partition.leader.retained.has_room(
                &topic.name,
                &retain.key,
                bytes,
                partition.settings.retained_bytes_max,
            ) =>
        {
            partition.counters.unretained += 1;
            // The one before is not the latest any more.
            partition.leader.retained.remove_latest(&topic.name, &retain.key)
        }
        true => {
            let key = store_retained(&mut partition.state, &mut partition.leader, message, effects);
            partition.leader.retained.keep_latest(&topic.name, &retain.key, key, bytes)
        }
        false => partition.leader.retained.remove_latest(&topic.name, &retain.key),
    };
    drop_retained(partition, gone, effects);
}

/// A message was published to the address: its topic keeps it, if its policy says so.
pub fn keep_recent(
    partition: &mut Partition,
    to: &Destination,
    message: &Message,
    effects: &mut Vec<Effect>,
) {
    // A large body is not kept in memory, and no queue would keep it on the disk.
    let Some(recovery) = recovery_of(&partition.settings, to).filter(|_| message.chunks().is_none()) else {
        return;
    };
    let (now_ms, bytes_max) = (partition.now_ms, partition.settings.recent_bytes_max);
    let kept = (
        store_retained(&mut partition.state, &mut partition.leader, message, effects),
        message.bytes.len() as u64,
    );
    let gone = partition.leader.retained.keep_recent(&to.name, kept, &recovery, now_ms, bytes_max);
    drop_retained(partition, gone, effects);
}

/// As [`keep_recent`], of a message that was applied. Replayed messages are older
/// than this run, and are not proposed.
pub fn keep_recent_of(
    partition: &mut Partition,
    key: MessageKey,
    to: &Destination,
    effects: &mut Vec<Effect>,
) {
    if !partition.leader.log.pending.is_empty()
        && recovery_of(&partition.settings, to).is_some()
        && let Some(message) = partition.state.bodies.resident(key).cloned()
    {
        keep_recent(partition, to, &message, effects);
    }
}

/// Removes messages that the topics of the source need not keep any longer.
pub fn trim_recent(partition: &mut Partition, source: &Source, effects: &mut Vec<Effect>) {
    if !partition.settings.policies.any_recovery() {
        return;
    }
    let policies = partition.settings.policies.clone();
    for topic in partition.leader.retained.recent_topics(source) {
        let recovery = policies.of(&Destination::topic(&topic)).recovery;
        let gone = partition.leader.retained.trim(&topic, &recovery, partition.now_ms);
        drop_retained(partition, gone, effects);
    }
}

fn drop_retained(partition: &mut Partition, gone: Vec<MessageKey>, effects: &mut Vec<Effect>) {
    gone.into_iter().for_each(|key| drop_reference(partition, key, effects));
}
