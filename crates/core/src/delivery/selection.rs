//! Selectors: which messages a subscription takes, and which entries of a queue a consumer wants.

use std::collections::BTreeMap;

use postroad_model::{ConsumerKey, ConsumerMode, EntryTag, Message, MessageKey, QueueId, Refusal};
use postroad_selector::{AtDelivery, Properties, Selector, Value};

use crate::Partition;
use crate::clock::Clock;
use crate::leader::Leader;
use crate::memory::bodies::Bodies;
use crate::memory::packing::is_short_of_memory;
use crate::protocols::Protocols;
use crate::queue::{Entry, Groups, Lane, LaneNumber, Lanes, Look, Offers, Verdict, View, tag, untag};
use crate::settings::Settings;
use crate::state::State;

/// How the assembly reads the headers and properties of a message, whatever its protocol.
pub type PropertiesOf = for<'a> fn(&'a Message) -> Box<dyn Properties + 'a>;

/// A message without properties.
struct Bare;

impl Properties for Bare {
    fn property(&self, _: &str) -> Option<Value<'_>> {
        None
    }
}

/// The default: no message has properties.
pub(crate) fn no_properties(_: &Message) -> Box<dyn Properties + '_> {
    Box::new(Bare)
}

/// The selection of a consumer, if not everything, and its position in each lane.
pub struct Selection {
    selector: Option<Selector>,
    views: BTreeMap<u8, View>,
    /// The last offer of messages of groups that it has taken up.
    offer: u64,
}

impl Selection {
    /// A selector that has judged nothing yet; `None` takes everything that no message group
    /// forbids.
    pub fn new(selector: Option<Selector>) -> Selection {
        Selection { selector, views: BTreeMap::new(), offer: 0 }
    }

    /// Its selector.
    pub fn selector(&self) -> Option<&Selector> {
        self.selector.as_ref()
    }

    /// Whether the message matches.
    pub fn wants(&self, properties: &dyn Properties) -> bool {
        self.selector.as_ref().is_none_or(|selector| selector.matches(properties))
    }

    /// Whether messages are judged by their contents.
    pub fn has_selector(&self) -> bool {
        self.selector.is_some()
    }

    /// Looks again at messages that are free since it last looked.
    pub fn take_up(&mut self, offers: &Offers) {
        if self.offer == offers.last() {
            return;
        }
        for (lane, view) in &mut self.views {
            if let Some(cursor) = offers.since(self.offer, *lane) {
                view.step_back(cursor);
            }
        }
        self.offer = offers.last();
    }

    /// The offer of its own messages is nothing new for it.
    pub fn skip_offer(&mut self, number: u64) {
        self.offer = number;
    }

    /// Of all entries only this one matches, and perhaps later ones of its lane.
    pub fn go_to(&mut self, lanes: &Lanes, wanted: EntryTag) {
        let (wanted_lane, sequence) = untag(wanted);
        for (number, lane) in lanes.iter() {
            let cursor = if number.0 == wanted_lane { sequence } else { lane.next_sequence() };
            self.views.entry(number.0).or_default().go_to(cursor, lane.return_of(cursor));
        }
    }

    /// Whether it has judged this entry of the queue, which is ready, and does not want it.
    pub fn has_refused(&self, lanes: &Lanes, entry: EntryTag) -> bool {
        let (number, sequence) = untag(entry);
        let lane = lanes.get(LaneNumber(number));
        lane.zip(self.views.get(&number)).is_some_and(|(lane, view)| view.has_refused(lane, sequence))
    }

    /// How far it has looked, by lane.
    pub fn views(&self) -> &BTreeMap<u8, View> {
        &self.views
    }
}

/// The next message of a consumer with a selector.
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

/// The selector of a binding that is in the log. It was parsed before it got there; one that a
/// later grammar refuses takes nothing.
pub fn of_binding(text: &str) -> Option<Selector> {
    parse(text).unwrap_or_else(|_| Selector::parse("FALSE").ok())
}

/// One consumer's look at a queue.
struct Judge<'a> {
    key: ConsumerKey,
    selector: Option<&'a Selector>,
    /// The groups of the queue, if they bind the consumer.
    groups: Option<&'a Groups>,
    bodies: &'a Bodies,
    properties_of: PropertiesOf,
    now_ms: u64,
    /// Its selector rejects it.
    refused: Vec<MessageKey>,
    /// It cannot be judged before its body is read; nothing behind it is looked at.
    absent: Option<EntryTag>,
}

impl Judge<'_> {
    /// Stamp and sequence of the first entry in the lane that the consumer wants.
    fn next(&mut self, view: &mut View, number: LaneNumber, lane: &Lane) -> Option<(u64, u64)> {
        if self.absent.is_some() {
            return None;
        }
        match view.look(lane, |entry| self.judge(entry)) {
            Look::Found(stamp, sequence) => Some((stamp, sequence)),
            Look::Unknown(sequence) => {
                self.absent = Some(tag(number.0, sequence));
                None
            }
            Look::Nothing => None,
        }
    }

    fn judge(&mut self, entry: &Entry) -> Verdict {
        if let Some(groups) = self.groups
            && let Some(group) = self.bodies.headers(entry).and_then(|(headers, _)| headers.group())
            && !groups.admits(&group.id, self.key)
        {
            return Verdict::Refused;
        }
        let Some(selector) = self.selector else { return Verdict::Wanted };
        let Some(message) = self.bodies.resident(entry) else { return Verdict::Unknown };
        let properties = (self.properties_of)(message);
        if selector.matches(&AtDelivery::new(properties, entry.deliveries(), self.now_ms)) {
            return Verdict::Wanted;
        }
        self.refused.push(entry.key);
        Verdict::Refused
    }
}

/// The message's properties as its next delivery shows them, after this many earlier ones.
pub fn at_delivery<'m>(
    clock: &Clock,
    protocols: &Protocols,
    message: &'m Message,
    failed_deliveries: u32,
) -> AtDelivery<'m> {
    AtDelivery::new((protocols.properties_of)(message), failed_deliveries, clock.wall_ms())
}

/// How often the entry was delivered without success; its page is open.
pub fn failed_deliveries(state: &State, id: QueueId, entry: EntryTag) -> u32 {
    let (_, sequence) = untag(entry);
    let lane = state.queues.get(&id).and_then(|queue| queue.lanes.get(LaneNumber::of_tag(entry)));
    lane.and_then(|lane| lane.get(sequence)).map_or(0, Entry::deliveries)
}

/// The consumer was sent the entry: it need not be judged again.
pub fn selected(leader: &mut Leader, key: ConsumerKey, entry: EntryTag) {
    let (lane, sequence) = untag(entry);
    if let Some(selection) =
        leader.delivery.consumers.get_mut(&key).and_then(|consumer| consumer.selection.as_mut())
    {
        selection.views.entry(lane).or_default().pass(sequence);
    }
}

/// Bodies that were read only to be judged leave memory again, if it is short.
fn forget_bodies(state: &mut State, leader: &mut Leader, settings: &Settings, keys: Vec<MessageKey>) {
    for key in keys {
        if is_short_of_memory(state, leader, settings) {
            state.bodies.evict(key);
        }
    }
}

/// The entry that is due for the consumer: as for others, but among those that its selector
/// matches and whose group is not another's. Each is judged once, unless it was given back.
pub fn next_selected(partition: &mut Partition, id: QueueId, key: ConsumerKey) -> Selected {
    let Some(queue) = partition.state.queues.get(&id) else { return Selected::Nothing };
    let Some(consumer) = partition.leader.delivery.consumers.get_mut(&key) else { return Selected::Nothing };
    let exclusive = consumer.mode == ConsumerMode::Exclusive;
    let Some(selection) = &mut consumer.selection else { return Selected::Nothing };
    if let Some(groups) = &queue.groups {
        selection.take_up(&groups.offers);
    }
    let Selection { selector, views, .. } = selection;
    let mut judge = Judge {
        key,
        selector: selector.as_ref(),
        // An exclusive consumer gets everything.
        groups: queue.groups.as_deref().filter(|_| !exclusive),
        bodies: &partition.state.bodies,
        properties_of: partition.protocols.properties_of,
        now_ms: partition.clock.wall_ms(),
        refused: Vec::new(),
        absent: None,
    };
    let found = queue.lanes.next(|number, lane| judge.next(views.entry(number.0).or_default(), number, lane));
    let Judge { refused, absent, .. } = judge;
    forget_bodies(&mut partition.state, &mut partition.leader, &partition.settings, refused);
    match (absent, found) {
        (Some(absent), _) => Selected::Absent(absent),
        (None, Some(entry)) => Selected::Entry(entry),
        (None, None) => Selected::Nothing,
    }
}
