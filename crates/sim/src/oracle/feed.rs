//! Rules of queues that a topic feeds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use postroad_model::{Attach, ConsumerMode, Destination, DestinationKind, Publish, Sent};

use crate::selectors::wants;

use super::{Checked, MessageNumber, Number, Oracle, Place, Spot, number_of};

/// The queues that one topic feeds.
#[derive(Default)]
pub(super) struct Feeds {
    topic: Option<Destination>,
    queues: BTreeMap<Destination, Fed>,
    /// Messages that were sent to the topic while it was sure that the queue takes them.
    promised: BTreeSet<Spot>,
}

#[derive(Default)]
struct Fed {
    /// It takes messages that match the selectors of its consumers, and nothing else.
    selects: bool,
    /// A client got the reply that it is there: it is for good.
    exists: bool,
    /// With each of these selectors a client has asked for it, first at this time; without any, if
    /// it takes everything.
    asked_for: BTreeMap<Arc<str>, u64>,
}

impl Feeds {
    /// The queue, if this message comes to it by its topic.
    fn fed_by<'a>(
        &'a self,
        queue: &Destination,
        targets: impl Iterator<Item = &'a Destination>,
    ) -> Option<&'a Fed> {
        let mut targets = targets;
        let by_topic = self.topic.is_some() && targets.any(|to| self.topic.as_ref() == Some(to));
        self.queues.get(queue).filter(|_| by_topic)
    }

    fn asked_for(&mut self, queue: &Destination, selector: &Arc<str>, clock: u64) {
        let Some(fed) = self.queues.get_mut(queue) else { return };
        let selector = if fed.selects { selector.clone() } else { "".into() };
        fed.asked_for.entry(selector).or_insert(clock);
    }

    /// A client got the reply that the queue is there.
    pub fn exists(&mut self, queue: &Destination) {
        if let Some(fed) = self.queues.get_mut(queue) {
            fed.exists = true;
        }
    }
}

impl Oracle {
    /// From the start: the topic feeds these queues, some of them only with the selection of their
    /// consumers.
    pub fn expect_feeds(&mut self, topic: Destination, queues: &[(Destination, bool)]) {
        self.feeds.topic = Some(topic);
        let fed = |(queue, selects): &(Destination, bool)| {
            (queue.clone(), Fed { selects: *selects, ..Fed::default() })
        };
        self.feeds.queues = queues.iter().map(fed).collect();
    }

    /// How often it was sure that a message comes to a queue by its topic.
    pub fn fed(&self) -> u64 {
        self.feeds.promised.len() as u64
    }

    /// Whether the message comes to this queue by a topic.
    pub(super) fn is_fed(&self, spot: &Spot) -> bool {
        let (Place::Queue(queue), Some(letter)) = (&spot.0, self.letters.get(&spot.1)) else { return false };
        self.feeds.fed_by(queue, letter.sent.targets()).is_some()
    }

    /// A message is sent to the topic: queues that are surely there take it, unless they select.
    pub(super) fn feed(
        &mut self,
        to: &Destination,
        message: MessageNumber,
        operation: Number,
        volatile: bool,
    ) {
        if self.feeds.topic.as_ref() != Some(to) {
            return;
        }
        let sure = self.feeds.queues.iter().filter(|(_, fed)| fed.exists && !fed.selects);
        let sure: Vec<Spot> = sure.map(|(queue, _)| (Place::Queue(queue.clone()), message)).collect();
        for spot in sure {
            self.feeds.promised.insert(spot.clone());
            self.copy(spot, operation, volatile);
        }
    }

    /// A message goes to the log: queues that select take it if one of their consumers does now,
    /// because their selectors are in the log before it. Until then, while it waited for room or
    /// after other sends, consumers could come and go. Messages that wait for a commit or their
    /// time they may take or not.
    pub(super) fn feed_by_selectors(&mut self, sent: &Sent) {
        let Some(message) = number_of(&sent.message) else { return };
        let is_plain = sent.message.persistent && sent.schedule.is_none() && sent.moved.is_none();
        let is_fed =
            |queue: &Destination| self.feeds.fed_by(queue, sent.targets()).is_some_and(|fed| fed.selects);
        if !is_plain || self.feeds.topic.is_none() || self.is_to_narrow(message) {
            return;
        }
        let Some(operation) = self.letters.get(&message).map(|letter| letter.operation) else { return };
        let readers = self.readers.values().filter(|reader| {
            let stays = reader.attached && reader.leaves.is_none() && reader.mode != ConsumerMode::Browse;
            stays && is_fed(&reader.source) && wants(&reader.selector, message)
        });
        let sure: BTreeSet<Spot> =
            readers.map(|reader| (Place::Queue(reader.source.clone()), message)).collect();
        for spot in sure {
            self.feeds.promised.insert(spot.clone());
            self.copy(spot, operation, false);
        }
    }

    /// A client asks for an operation that makes the queue, if it is not there yet.
    pub(super) fn may_begin_queue(&mut self, publish: &Publish) {
        if publish.sent.to.kind == DestinationKind::Queue {
            let clock = self.clock;
            // With that alone a queue that selects takes nothing.
            if self.feeds.queues.get(&publish.sent.to).is_some_and(|fed| !fed.selects) {
                self.feeds.asked_for(&publish.sent.to, &"".into(), clock);
            }
        }
    }

    pub(super) fn may_begin_queue_for(&mut self, attach: &Attach) {
        let (clock, browses) = (self.clock, attach.mode == ConsumerMode::Browse);
        let selects = self.feeds.queues.get(&attach.source).is_some_and(|fed| fed.selects);
        if !(browses && selects) {
            self.feeds.asked_for(&attach.source, &attach.selector, clock);
        }
    }

    /// A message has come to a queue by its topic, though that was not sure: then a client had
    /// asked for such messages.
    pub(super) fn copy_for_fed(&mut self, spot: &Spot) -> Checked {
        let (Place::Queue(queue), Some(letter)) = (&spot.0, self.letters.get(&spot.1)) else { return Ok(()) };
        let Some(fed) = self.feeds.fed_by(queue, letter.sent.targets()) else { return Ok(()) };
        let confirmed = letter.confirmed.filter(|_| letter.sent.schedule.is_none()).unwrap_or(u64::MAX);
        let asked = |(selector, at): (&Arc<str>, &u64)| *at < confirmed && wants(selector, spot.1);
        if !fed.asked_for.iter().any(asked) {
            return Err(format!("message {} came to {queue}, which nobody had asked for", spot.1));
        }
        self.copy_on_arrival(spot);
        Ok(())
    }
}
