//! Selectors: which messages a subscription takes, and which entries of a queue a consumer wants.

use std::collections::BTreeMap;

use postroad_model::{ConsumerKey, EntryTag, Message, MessageKey, QueueId, Refusal};
use postroad_selector::{Properties, Selector, Value};

use crate::Partition;
use crate::queue::{tag, untag};

/// How the assembly reads the headers and properties of a message, whatever its protocol.
pub type PropertiesOf = for<'a> fn(&'a Message) -> Box<dyn Properties + 'a>;

/// A message without properties.
struct Bare;

impl Properties for Bare {
    fn property(&self, _: &str) -> Option<Value<'_>> {
        None
    }
}

/// Until told otherwise no message has properties.
pub(crate) fn no_properties(_: &Message) -> Box<dyn Properties + '_> {
    Box::new(Bare)
}

/// A consumer's selector, and how far in each lane it has judged.
pub struct Selection {
    selector: Selector,
    judged: BTreeMap<u8, u64>,
}

impl Selection {
    /// A selector that has judged nothing yet.
    pub fn new(selector: Selector) -> Selection {
        Selection { selector, judged: BTreeMap::new() }
    }

    /// Whether the message matches.
    pub fn wants(&self, properties: &dyn Properties) -> bool {
        self.selector.matches(properties)
    }
}

/// What a consumer with a selector gets next.
pub enum Selected {
    /// This entry.
    Entry(EntryTag),
    /// Nothing that is there matches.
    Nothing,
    /// This entry cannot be judged before its body is read from the disk.
    Absent(EntryTag),
}

/// The selector of this text; `None` for an empty one.
///
/// # Errors
/// The text does not follow the grammar.
pub fn parse(text: &str) -> Result<Option<Selector>, Refusal> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let refused = |error: postroad_selector::SelectorError| Refusal::BadSelector {
        selector: text.into(),
        reason: error.to_string(),
    };
    Selector::parse(text).map(Some).map_err(refused)
}

/// A selector that matches nothing.
pub fn nothing() -> Option<Selector> {
    Selector::parse("FALSE").ok()
}

impl Partition {
    /// Whether the queue's subscription takes the message.
    pub(crate) fn takes(&self, queue: QueueId, key: MessageKey) -> bool {
        let selector = self.queues.get(&queue).and_then(|queue| queue.selector.as_ref());
        let Some(selector) = selector else { return true };
        self.bodies.resident(key).is_some_and(|message| selector.matches(&*(self.properties_of)(message)))
    }

    /// The oldest ready entry that the consumer's selector matches. Each entry is judged once, unless it was given back.
    pub(crate) fn next_selected(&mut self, id: QueueId, key: ConsumerKey) -> Selected {
        let mut best: Option<(u64, EntryTag)> = None;
        let lanes: Vec<u8> =
            self.queues.get(&id).map(|queue| queue.lanes.keys().copied().collect()).unwrap_or_default();
        for lane in lanes {
            match self.next_in_lane(id, key, lane) {
                Ok(Some((stamp, entry))) if best.is_none_or(|(oldest, _)| stamp < oldest) => {
                    best = Some((stamp, entry))
                }
                Ok(_) => {}
                Err(absent) => return Selected::Absent(absent),
            }
        }
        best.map_or(Selected::Nothing, |(_, entry)| Selected::Entry(entry))
    }

    /// As `next_selected`, in one lane; an entry whose body is not in memory is the error.
    fn next_in_lane(
        &mut self,
        id: QueueId,
        key: ConsumerKey,
        number: u8,
    ) -> Result<Option<(u64, EntryTag)>, EntryTag> {
        let Some(lane) = self.queues.get(&id).and_then(|queue| queue.lanes.get(&number)) else {
            return Ok(None);
        };
        let Some(consumer) = self.consumers.get_mut(&key) else { return Ok(None) };
        let Some(selection) = &mut consumer.selection else { return Ok(None) };
        let judged = selection.judged.entry(number).or_default();
        let mut refused = Vec::new();
        let mut found = Ok(None);
        for (sequence, entry) in lane.unjudged(*judged) {
            let Some(message) = self.bodies.resident(entry.key) else {
                found = Err(tag(number, sequence));
                break;
            };
            if selection.selector.matches(&*(self.properties_of)(message)) {
                found = Ok(Some((entry.stamp, tag(number, sequence))));
                break;
            }
            refused.push(entry.key);
            *judged = (*judged).max(sequence + 1);
        }
        self.forget_bodies(refused);
        found
    }

    /// Bodies that were read only to be judged leave memory again, if it is short.
    fn forget_bodies(&mut self, keys: Vec<MessageKey>) {
        for key in keys {
            if self.bodies.resident_bytes > self.settings.resident_bytes_max {
                self.bodies.evict(key);
            }
        }
    }

    /// The consumer was sent the entry: it need not be judged again.
    pub(crate) fn selected(&mut self, key: ConsumerKey, entry: EntryTag) {
        let (lane, sequence) = untag(entry);
        if let Some(selection) = self.consumers.get_mut(&key).and_then(|consumer| consumer.selection.as_mut())
        {
            let judged = selection.judged.entry(lane).or_default();
            *judged = (*judged).max(sequence + 1);
        }
    }
}
