//! Traced messages of this partition: each of their steps is reported to the edge, which has the
//! clock.
//!
//! Known to the leader alone: no command, record or snapshot has any of it. A partition without
//! traced messages pays one comparison at each step.
//! Never here: times, trace ids, which messages are traced.

use std::collections::HashMap;

use postroad_model::{
    ConsumerKey, Effect, EntryTag, MessageKey, Outcome, QueueId, SettleCause, TraceKey, TraceStep, TracedStep,
};
use rustc_hash::FxBuildHasher;

use crate::Partition;
use crate::entries::entry_at;
use crate::leader::Leader;
use crate::leasing::is_reserving;

/// Traced messages that are followed at a time: some 200 KiB. Further ones are reported as not
/// followed.
pub const FOLLOWED_MAX: usize = 4096;

/// Queues of one message that are reported: a topic may have a hundred thousand subscriptions.
pub const QUEUES_MAX: u32 = 8;

/// See the head of this file.
#[derive(Default)]
pub struct Traces {
    followed: HashMap<MessageKey, Followed, FxBuildHasher>,
    /// Steps of this turn, to be reported at its end.
    steps: Vec<TracedStep>,
}

#[derive(Clone, Copy)]
struct Followed {
    trace: TraceKey,
    /// Queues that were reported.
    queues: u32,
}

impl Traces {
    /// Whether no message is followed.
    pub fn is_idle(&self) -> bool {
        self.followed.is_empty()
    }

    /// The message is stored under this key.
    pub fn begin(&mut self, key: MessageKey, trace: TraceKey) {
        if FOLLOWED_MAX <= self.followed.len() {
            return self.steps.push(TracedStep { trace, step: TraceStep::NotFollowed });
        }
        self.followed.insert(key, Followed { trace, queues: 0 });
    }

    /// The message went into the schedule.
    pub fn scheduled(&mut self, trace: TraceKey) {
        self.steps.push(TracedStep { trace, step: TraceStep::Scheduled });
    }

    /// The trace of this message.
    pub fn of(&self, key: MessageKey) -> Option<TraceKey> {
        if self.is_idle() {
            return None;
        }
        self.followed.get(&key).map(|followed| followed.trace)
    }

    /// No queue has the message any more.
    pub fn gone(&mut self, key: MessageKey) {
        if let Some(Followed { trace, .. }) = self.followed.remove(&key) {
            self.steps.push(TracedStep { trace, step: TraceStep::Gone });
        }
    }

    /// Reports what this step of the partition brought.
    pub fn report(&mut self, effects: &mut Vec<Effect>) {
        if !self.steps.is_empty() {
            effects.extend(self.steps.drain(..).map(|step| Effect::Trace(Box::new(step))));
        }
    }

    fn note(&mut self, key: MessageKey, step: TraceStep) {
        if let Some(trace) = self.of(key) {
            self.steps.push(TracedStep { trace, step });
        }
    }

    fn note_queue(&mut self, key: MessageKey, step: impl FnOnce() -> TraceStep) {
        let Some(followed) = self.followed.get_mut(&key).filter(|followed| followed.queues < QUEUES_MAX)
        else {
            return;
        };
        followed.queues += 1;
        self.steps.push(TracedStep { trace: followed.trace, step: step() });
    }
}

/// A queue has the message now.
pub fn ready(partition: &mut Partition, id: QueueId, key: MessageKey, tag: EntryTag) {
    if partition.leader.traces.is_idle() {
        return;
    }
    let Partition { state, leader, .. } = partition;
    let Some(queue) = state.queues.get(&id) else { return };
    leader.traces.note_queue(key, || TraceStep::Ready {
        entry: (id, tag),
        queue: queue.source.clone(),
        ahead: queue.len().saturating_sub(1),
        consumers: queue.consumers.len() as u64,
    });
}

/// The message is on its way to a consumer. Its trace goes along with the delivery.
pub fn delivered(
    leader: &mut Leader,
    entry: (QueueId, EntryTag),
    key: MessageKey,
    consumer: ConsumerKey,
) -> Option<TraceKey> {
    let trace = leader.traces.of(key)?;
    let is_leased = is_reserving(leader, consumer);
    leader.traces.note(key, TraceStep::Delivered { entry, consumer, is_leased });
    Some(trace)
}

/// A client has given its verdict on these entries.
pub fn settled(partition: &mut Partition, queue: QueueId, tags: &[EntryTag], outcome: Outcome) {
    if partition.leader.traces.is_idle() {
        return;
    }
    for tag in tags {
        let Some(key) = entry_at(partition, queue, *tag).map(|entry| entry.key) else { continue };
        partition.leader.traces.note(key, TraceStep::Settled { entry: (queue, *tag), outcome });
    }
}

/// The entry has left its queue.
pub fn ended(partition: &mut Partition, key: MessageKey, entry: (QueueId, EntryTag), cause: SettleCause) {
    if !partition.leader.traces.is_idle() {
        partition.leader.traces.note(key, TraceStep::Ended { entry, cause });
    }
}
