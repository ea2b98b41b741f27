//! Recent messages: what topics keep in memory for subscribers that come later and ask for what they have missed.
//!
//! Known to this run alone. Each topic keeps what its policy says, and all topics together what fits a bound of the
//! partition: beyond it the oldest message goes, of whichever topic. What is too old goes when its topic is looked at.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use postroad_model::{Attach, Destination, DestinationKind, Message, MessageKey};
use postroad_routing::{Pattern, Recovery};
use postroad_selector::Selector;

use crate::Partition;

/// What keeping a message takes beside its bytes, at most.
const KEPT_BYTES: u64 = 256;

/// See the head of this file.
#[derive(Default)]
pub struct Recent {
    by_topic: BTreeMap<Destination, Topic>,
    /// All that is kept, by its order: the oldest first.
    topics: BTreeMap<u64, Destination>,
    next: u64,
    bytes: u64,
}

#[derive(Default)]
struct Topic {
    kept: VecDeque<Kept>,
    bytes: u64,
}

struct Kept {
    order: u64,
    at_ms: u64,
    message: Message,
}

fn size(message: &Message) -> u64 {
    message.bytes.len() as u64 + KEPT_BYTES
}

impl Recent {
    /// One more message of a topic, at `now_ms`; all topics together keep `bytes_max`.
    fn keep(
        &mut self,
        topic: &Destination,
        message: &Message,
        recovery: &Recovery,
        now_ms: u64,
        bytes_max: u64,
    ) {
        // Of its own, for the message may be a small part of what was read from its connection at once.
        let message = Message { bytes: Bytes::copy_from_slice(&message.bytes), ..message.clone() };
        let (order, bytes) = (self.next, size(&message));
        self.next += 1;
        self.bytes += bytes;
        self.topics.insert(order, topic.clone());
        let known = self.by_topic.entry(topic.clone()).or_default();
        known.bytes += bytes;
        known.kept.push_back(Kept { order, at_ms: now_ms, message });
        self.trim(topic, recovery, now_ms);
        while self.bytes > bytes_max
            && let Some((_, topic)) = self.topics.first_key_value()
        {
            let topic = topic.clone();
            self.drop_oldest(&topic);
        }
    }

    /// What all that is kept takes.
    pub fn byte_length(&self) -> u64 {
        self.bytes
    }

    /// What the topic need not keep any longer goes.
    fn trim(&mut self, topic: &Destination, recovery: &Recovery, now_ms: u64) {
        let over = |value: u64, max: u64| max != 0 && value > max;
        while let Some(known) = self.by_topic.get(topic)
            && let Some(oldest) = known.kept.front()
            && (!recovery.keeps()
                || over(known.kept.len() as u64, recovery.messages_max)
                || over(known.bytes - KEPT_BYTES * known.kept.len() as u64, recovery.bytes_max)
                || over(now_ms.saturating_sub(oldest.at_ms), recovery.age_ms_max))
        {
            self.drop_oldest(topic);
        }
    }

    fn drop_oldest(&mut self, topic: &Destination) {
        let Some(known) = self.by_topic.get_mut(topic) else { return };
        if let Some(oldest) = known.kept.pop_front() {
            let bytes = size(&oldest.message);
            known.bytes -= bytes;
            self.bytes -= bytes;
            self.topics.remove(&oldest.order);
        }
        if known.kept.is_empty() {
            self.by_topic.remove(topic);
        }
    }

    /// The topics of this name or pattern that keep something.
    fn topics_of(&self, source: &Destination) -> Vec<Destination> {
        let pattern = Pattern::parse(&source.name).ok().filter(Pattern::is_wildcard);
        match pattern {
            Some(pattern) => {
                self.by_topic.keys().filter(|topic| pattern.matches(&topic.name)).cloned().collect()
            }
            None => self.by_topic.get_key_value(source).map(|(topic, _)| topic.clone()).into_iter().collect(),
        }
    }

    /// What these topics keep, in the order in which it was sent.
    fn of(&self, topics: &[Destination]) -> Vec<&Message> {
        let known = topics.iter().filter_map(|topic| self.by_topic.get(topic));
        let mut kept: Vec<&Kept> = known.flat_map(|topic| &topic.kept).collect();
        kept.sort_unstable_by_key(|kept| kept.order);
        kept.into_iter().map(|kept| &kept.message).collect()
    }
}

impl Partition {
    /// A message was published to the address: its topic keeps it, if its policy says so.
    pub(crate) fn keep_recent(&mut self, to: &Destination, message: &Message) {
        // A large body is not kept in memory, and nobody else would keep it on the disk.
        if let Some(recovery) = self.recovery_of(to).filter(|_| message.chunks().is_none()) {
            self.recent.keep(to, message, &recovery, self.now_ms, self.settings.recent_bytes_max);
        }
    }

    /// As [`Partition::keep_recent`], of a message that was carried out. What is replayed was sent before this run, and
    /// nobody proposes it.
    pub(crate) fn keep_recent_of(&mut self, key: MessageKey, to: &Destination) {
        if !self.proposals.is_empty()
            && self.recovery_of(to).is_some()
            && let Some(message) = self.bodies.resident(key).cloned()
        {
            self.keep_recent(to, &message);
        }
    }

    /// What the topic keeps; `None` for nothing.
    fn recovery_of(&self, to: &Destination) -> Option<Recovery> {
        let policies = Some(&self.settings.policies).filter(|policies| policies.any_recovery());
        let policies = policies.filter(|_| to.kind == DestinationKind::Topic && !to.temporary)?;
        Some(policies.of(to).recovery).filter(Recovery::keeps)
    }

    /// What a new subscriber is to be shown of what it has missed: the newest that fits the share of one queue.
    pub(crate) fn missed_by(&mut self, attach: &Attach, selector: Option<&Selector>) -> Vec<Message> {
        let properties_of = self.properties_of;
        let wants =
            |message: &Message| selector.is_none_or(|selector| selector.matches(&*properties_of(message)));
        let mut topics = self.recent.topics_of(&attach.source);
        let policies = self.settings.policies.clone();
        topics.retain(|topic| attach.retroactive || policies.of(topic).recovery.always);
        for topic in &topics {
            self.recent.trim(topic, &policies.of(topic).recovery, self.now_ms);
        }
        let local = |message: &Message| {
            attach.no_local && attach.client.is_some() && message.client() == attach.client.as_ref()
        };
        let missed = self.recent.of(&topics).into_iter().rev();
        let mut room = self.queue_share();
        let mut missed: Vec<Message> = missed
            .filter(|message| !local(message) && wants(message))
            .take_while(|message| {
                let fits = message.bytes.len() as u64 <= room;
                room = room.saturating_sub(message.bytes.len() as u64);
                fits
            })
            .cloned()
            .collect();
        missed.reverse();
        missed
    }
}
