//! Selectors: which messages a subscription takes, and which entries of a queue a consumer wants.

use std::collections::BTreeMap;

use postroad_model::{ConsumerKey, EntryTag, Message, MessageKey, QueueId, Refusal};
use postroad_selector::{Properties, Selector, Value};

use crate::Partition;
use crate::bodies::Bodies;
use crate::queue::{Lane, LaneNumber, tag, untag};

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

/// The selector of a binding that is in the log. It was parsed before it got there; one that a later grammar refuses
/// takes nothing.
pub fn of_binding(text: &str) -> Option<Selector> {
    parse(text).unwrap_or_else(|_| Selector::parse("FALSE").ok())
}

/// One consumer's look at a queue.
struct Judge<'a> {
    selection: &'a mut Selection,
    bodies: &'a Bodies,
    properties_of: PropertiesOf,
    /// What it does not want.
    refused: Vec<MessageKey>,
    /// What cannot be judged before its body is read; nothing behind it is looked at.
    absent: Option<EntryTag>,
}

impl Judge<'_> {
    /// Stamp and sequence of the first entry in the lane that the consumer wants.
    fn next(&mut self, number: LaneNumber, lane: &Lane) -> Option<(u64, u64)> {
        if self.absent.is_some() {
            return None;
        }
        let judged = self.selection.judged.entry(number.0).or_default();
        for (sequence, entry) in lane.unjudged(*judged) {
            let Some(message) = self.bodies.resident(entry.key) else {
                self.absent = Some(tag(number.0, sequence));
                return None;
            };
            if self.selection.selector.matches(&*(self.properties_of)(message)) {
                return Some((entry.stamp, sequence));
            }
            self.refused.push(entry.key);
            *judged = (*judged).max(sequence + 1);
        }
        None
    }
}

impl Partition {
    /// The entry that is due for the consumer: as for others, but among those that its selector matches. Each is judged
    /// once, unless it was given back.
    pub(crate) fn next_selected(&mut self, id: QueueId, key: ConsumerKey) -> Selected {
        let Some(queue) = self.queues.get(&id) else { return Selected::Nothing };
        let Some(consumer) = self.consumers.get_mut(&key) else { return Selected::Nothing };
        let Some(selection) = &mut consumer.selection else { return Selected::Nothing };
        let mut judge = Judge {
            selection,
            bodies: &self.bodies,
            properties_of: self.properties_of,
            refused: Vec::new(),
            absent: None,
        };
        let found = queue.lanes.next(|number, lane| judge.next(number, lane));
        let Judge { refused, absent, .. } = judge;
        self.forget_bodies(refused);
        match (absent, found) {
            (Some(absent), _) => Selected::Absent(absent),
            (None, Some(entry)) => Selected::Entry(entry),
            (None, None) => Selected::Nothing,
        }
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
