//! The store: topics in a tree by word, each with its retained messages.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;

use postroad_model::MessageKey;
use postroad_routing::{NameMap, Recovery};

use super::replay::{Cursor, Replay};

/// Bytes of a retained message beside its body, at most: its place in the tree and its headers.
const KEPT_BYTES: u64 = 256;

/// This fraction of the bound may belong to one topic.
const TOPIC_SHARE: u64 = 2;

/// All that topics retain.
#[derive(Default)]
pub struct Retained {
    topics: NameMap<Topic>,
    /// Recent messages by their order, over all topics.
    recent: BTreeMap<u64, Arc<str>>,
    /// The order of the next message.
    next: u64,
    /// How many messages are retained.
    kept: u64,
    latest_bytes: u64,
    recent_bytes: u64,
    /// Of latest messages as subscribers are shown them.
    rewritten_bytes: u64,
}

struct Topic {
    name: Arc<str>,
    latest: BTreeMap<Arc<str>, Kept>,
    latest_bytes: u64,
    recent: VecDeque<Kept>,
    recent_bytes: u64,
}

/// One retained message.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    order: u64,
    at_ms: u64,
    /// The message.
    pub key: MessageKey,
    bytes: u64,
    /// The message for subscribers while the topic retains this many.
    rewritten: Option<(u64, MessageKey)>,
}

impl Kept {
    fn size(&self) -> u64 {
        self.bytes + KEPT_BYTES
    }
}

/// A message that a subscriber is to be shown.
pub struct Shown {
    pub key: MessageKey,
    /// Its topic, and its key there if it is the latest of that.
    pub topic: Arc<str>,
    pub latest: Option<Arc<str>>,
    /// How many latest messages the topic retains.
    pub count: u64,
    /// The message has been rewritten for this count.
    pub rewritten: Option<MessageKey>,
    /// When a recent one was kept.
    pub at_ms: u64,
}

impl Retained {
    fn topic(&mut self, name: &str) -> &mut Topic {
        let new = || Topic {
            name: name.into(),
            latest: BTreeMap::new(),
            latest_bytes: 0,
            recent: VecDeque::new(),
            recent_bytes: 0,
        };
        self.topics.get_or_insert_with(name, new)
    }

    fn forget_if_empty(&mut self, name: &str) {
        if self.topics.get(name).is_some_and(|topic| topic.latest.is_empty() && topic.recent.is_empty()) {
            self.topics.remove(name);
        }
    }

    /// Whether there is room for the latest message of this key, of this size, under this bound for
    /// all topics.
    pub fn has_room(&self, topic: &str, key: &str, bytes: u64, bytes_max: u64) -> bool {
        let known = self.topics.get(topic);
        let before = known.and_then(|known| known.latest.get(key)).map_or(0, Kept::size);
        let of_topic = known.map_or(0, |known| known.latest_bytes) - before + bytes + KEPT_BYTES;
        let of_all = self.latest_bytes - before + bytes + KEPT_BYTES;
        of_topic <= bytes_max / TOPIC_SHARE && of_all <= bytes_max
    }

    /// The topic retains this message as the latest of the key. Returns the messages that are
    /// retained no more.
    pub fn keep_latest(
        &mut self,
        topic: &str,
        key: &str,
        message: MessageKey,
        bytes: u64,
    ) -> Vec<MessageKey> {
        let gone = self.remove_latest(topic, key);
        let kept = Kept { order: self.next, at_ms: 0, key: message, bytes, rewritten: None };
        self.next += 1;
        self.kept += 1;
        self.latest_bytes += kept.size();
        let known = self.topic(topic);
        known.latest_bytes += kept.size();
        known.latest.insert(key.into(), kept);
        gone
    }

    /// The topic retains nothing of the key any more. Returns the messages that are retained no
    /// more.
    pub fn remove_latest(&mut self, topic: &str, key: &str) -> Vec<MessageKey> {
        let Some(known) = self.topics.get_mut(topic) else { return Vec::new() };
        let Some(kept) = known.latest.remove(key) else { return Vec::new() };
        known.latest_bytes -= kept.size();
        self.latest_bytes -= kept.size();
        self.kept -= 1;
        self.forget_if_empty(topic);
        let rewritten = kept.rewritten.map(|(_, message)| message);
        self.rewritten_bytes -= if rewritten.is_some() { kept.bytes } else { 0 };
        std::iter::once(kept.key).chain(rewritten).collect()
    }

    /// How many latest messages the topic retains.
    pub fn count(&self, topic: &str) -> u64 {
        self.topics.get(topic).map_or(0, |topic| topic.latest.len() as u64)
    }

    /// The latest message of the key has been rewritten for subscribers. Returns the one before.
    pub fn note_rewritten(&mut self, shown: &Shown, message: MessageKey) -> Option<MessageKey> {
        let known = self.topics.get_mut(&shown.topic);
        let kept = known.and_then(|known| known.latest.get_mut(shown.latest.as_deref()?))?;
        let before = kept.rewritten.replace((shown.count, message));
        self.rewritten_bytes += if before.is_none() { kept.bytes } else { 0 };
        before.map(|(_, message)| message)
    }

    /// The topic keeps this message for retroactive consumers, as the policy says; all topics
    /// together `bytes_max`. Returns the messages that are kept no more.
    pub fn keep_recent(
        &mut self,
        topic: &str,
        (message, bytes): (MessageKey, u64),
        recovery: &Recovery,
        now_ms: u64,
        bytes_max: u64,
    ) -> Vec<MessageKey> {
        let kept = Kept { order: self.next, at_ms: now_ms, key: message, bytes, rewritten: None };
        self.next += 1;
        self.kept += 1;
        self.recent_bytes += kept.size();
        let known = self.topic(topic);
        known.recent_bytes += kept.size();
        known.recent.push_back(kept);
        let name = known.name.clone();
        self.recent.insert(kept.order, name);
        let mut gone = self.trim(topic, recovery, now_ms);
        while self.recent_bytes > bytes_max
            && let Some((_, topic)) = self.recent.first_key_value()
        {
            let topic = topic.clone();
            gone.extend(self.drop_oldest(&topic));
        }
        gone
    }

    /// Drops the messages that the topic need not keep any longer, and returns them.
    pub fn trim(&mut self, topic: &str, recovery: &Recovery, now_ms: u64) -> Vec<MessageKey> {
        let over = |value: u64, max: u64| max != 0 && value > max;
        let mut gone = Vec::new();
        while let Some(known) = self.topics.get(topic)
            && let Some(oldest) = known.recent.front()
            && (!recovery.keeps()
                || over(known.recent.len() as u64, recovery.messages_max)
                || over(known.recent_bytes - KEPT_BYTES * known.recent.len() as u64, recovery.bytes_max)
                || over(now_ms.saturating_sub(oldest.at_ms), recovery.age_ms_max))
        {
            gone.extend(self.drop_oldest(topic));
        }
        gone
    }

    fn drop_oldest(&mut self, topic: &str) -> Option<MessageKey> {
        let known = self.topics.get_mut(topic)?;
        let oldest = known.recent.pop_front()?;
        known.recent_bytes -= oldest.size();
        self.recent_bytes -= oldest.size();
        self.kept -= 1;
        self.recent.remove(&oldest.order);
        self.forget_if_empty(topic);
        Some(oldest.key)
    }

    /// Bytes of the messages that it holds; they count as messages in memory too.
    pub fn body_bytes(&self) -> u64 {
        self.latest_bytes + self.recent_bytes + self.rewritten_bytes - self.overhead_bytes()
    }

    /// Bytes that it takes beside them.
    pub fn overhead_bytes(&self) -> u64 {
        KEPT_BYTES * self.kept
    }

    /// The topics of a source that keep recent messages.
    pub fn recent_topics(&self, source: &super::Source) -> Vec<Arc<str>> {
        let mut found: Vec<Arc<str>> = Vec::new();
        let mut after: Option<Arc<str>> = None;
        while let Some(topic) = self.next_topic(source, after.as_deref()) {
            if !topic.recent.is_empty() {
                found.push(topic.name.clone());
            }
            after = Some(topic.name.clone());
        }
        found
    }

    fn next_topic(&self, source: &super::Source, after: Option<&str>) -> Option<&Topic> {
        match source {
            super::Source::One(name) => self.topics.get(name).filter(|_| after.is_none()),
            super::Source::Pattern(pattern) => {
                let mut next = self.topics.next(pattern, after)?;
                while !pattern.reaches(&next.name) {
                    next = self.topics.next(pattern, Some(&next.name))?;
                }
                Some(next)
            }
        }
    }

    /// A cursor before all that is retained now, and of nothing that is retained later.
    pub fn end(&self) -> u64 {
        self.next
    }

    /// The next message of the replay, which moves on after it; `None` at its end.
    pub fn next(&self, replay: &mut Replay) -> Option<Shown> {
        loop {
            match &replay.cursor {
                Cursor::Latest(_) => match self.next_latest(replay) {
                    Some(shown) => return Some(shown),
                    None => replay.cursor = Cursor::Recent(0),
                },
                Cursor::Recent(from) => return self.next_recent(*from, replay),
            }
        }
    }

    fn next_latest(&self, replay: &mut Replay) -> Option<Shown> {
        loop {
            let Cursor::Latest(after) = &replay.cursor else { return None };
            let (topic, key) = match after {
                // The topic's message may be gone by now: then the next one is looked for.
                Some((name, key)) => (self.topics.get(name).filter(|_| key.is_some()), key.clone()),
                None => (None, None),
            };
            let from = key.as_deref().map_or(Unbounded, Excluded);
            let next = topic.and_then(|topic| {
                let mut keys = topic.latest.range::<str, _>((from, Unbounded));
                keys.find(|(_, kept)| kept.order < replay.until).map(|found| (topic, found))
            });
            if let Some((topic, (key, kept))) = next {
                replay.cursor = Cursor::Latest(Some((topic.name.clone(), Some(key.clone()))));
                return Some(topic.shown(key, kept));
            }
            let after = after.as_ref().map(|(name, _)| name.clone());
            let topic = self.next_topic(&replay.source, after.as_deref())?;
            let first = topic.latest.iter().find(|(_, kept)| kept.order < replay.until);
            let key = first.map(|(key, _)| key.clone());
            replay.cursor = Cursor::Latest(Some((topic.name.clone(), key)));
            if let Some((key, kept)) = first {
                return Some(topic.shown(key, kept));
            }
        }
    }

    fn next_recent(&self, from: u64, replay: &mut Replay) -> Option<Shown> {
        let found = match &replay.source {
            super::Source::One(name) => self.topics.get(name).and_then(|topic| {
                let at = topic.recent.partition_point(|kept| kept.order < from);
                topic.recent.get(at).map(|kept| (topic, kept))
            }),
            super::Source::Pattern(pattern) => {
                let mut later = self.recent.range(from..replay.until);
                later.find(|(_, name)| pattern.reaches(name)).and_then(|(order, name)| {
                    let topic = self.topics.get(name)?;
                    let at = topic.recent.binary_search_by_key(order, |kept| kept.order).ok()?;
                    topic.recent.get(at).map(|kept| (topic, kept))
                })
            }
        };
        let (topic, kept) = found.filter(|(_, kept)| kept.order < replay.until)?;
        replay.cursor = Cursor::Recent(kept.order + 1);
        let (topic, at_ms) = (topic.name.clone(), kept.at_ms);
        Some(Shown { key: kept.key, topic, latest: None, count: 0, rewritten: None, at_ms })
    }
}

impl Topic {
    fn shown(&self, key: &Arc<str>, kept: &Kept) -> Shown {
        let count = self.latest.len() as u64;
        let rewritten = kept.rewritten.filter(|(known, _)| *known == count).map(|(_, message)| message);
        let (topic, latest) = (self.name.clone(), Some(key.clone()));
        Shown { key: kept.key, topic, latest, count, rewritten, at_ms: 0 }
    }
}
