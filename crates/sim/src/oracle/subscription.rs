//! Rules of durable subscriptions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use postroad_model::{Destination, DetachCause};

use super::{Checked, Fate, MessageNumber, Oracle, Place, Spot};

/// The durable subscriptions that clients know of.
#[derive(Default)]
pub(super) struct Names {
    by_name: BTreeMap<Arc<str>, Named>,
    /// Persistent messages that were sent while the subscription was surely there.
    promised: BTreeSet<(Arc<str>, MessageNumber)>,
}

struct Named {
    topic: Destination,
    /// A reader was let in, and no client has asked for its end since.
    exists: bool,
    /// Requests to end it that clients have made.
    asked: u64,
    /// Those that have come to the broker: a reader after them begins another, if they end this
    /// one.
    told: u64,
    /// A client has asked for its end, with any result.
    may_have_ended: bool,
    /// When it was last asked to end, if that was done: nothing that was confirmed before is in it.
    ended: u64,
}

impl Names {
    /// One that has not begun.
    pub fn add(&mut self, name: Arc<str>, topic: Destination) {
        let named = Named { topic, exists: false, asked: 0, told: 0, may_have_ended: false, ended: 0 };
        self.by_name.insert(name, named);
    }

    /// Requests to end it, if none of them is still under way.
    pub fn ends_before(&self, name: &Arc<str>) -> Option<u64> {
        let named = self.by_name.get(name)?;
        (named.told == named.asked).then_some(named.told)
    }

    /// A reader was let in, after all of these requests to end it: then it is there, unless others
    /// were made since.
    pub fn exists(&mut self, name: &Arc<str>, ends_before: Option<u64>) {
        if let Some(named) = self.by_name.get_mut(name) {
            named.exists = ends_before == Some(named.asked);
        }
    }

    /// A client asks for its end.
    pub fn ending(&mut self, name: &Arc<str>) {
        if let Some(named) = self.by_name.get_mut(name) {
            (named.exists, named.asked, named.may_have_ended) = (false, named.asked + 1, true);
            self.promised.retain(|(promised, _)| promised != name);
        }
    }

    /// The broker hears of that.
    pub fn ends(&mut self, name: &Arc<str>) {
        if let Some(named) = self.by_name.get_mut(name) {
            named.told += 1;
        }
    }

    /// A persistent message is sent to the topic.
    pub fn promise(&mut self, topic: &Destination, message: MessageNumber) {
        let there = self.by_name.iter().filter(|(_, named)| named.exists && named.topic == *topic);
        self.promised.extend(there.map(|(name, _)| (name.clone(), message)));
    }

    /// A reader gets the end of its subscription.
    pub fn check_end(&self, name: &Arc<str>, cause: DetachCause) -> Checked {
        let exists = self.by_name.get(name).is_some_and(|named| named.exists);
        match cause {
            DetachCause::Deleted if exists => {
                Err(format!("the subscription {name} has ended, which nobody has asked for since it began"))
            }
            _ => Ok(()),
        }
    }

    /// Whether its messages may have gone with it.
    pub fn may_have_ended(&self, name: &Arc<str>) -> bool {
        self.by_name.get(name).is_none_or(|named| named.may_have_ended)
    }

    pub fn topic_of(&self, name: &Arc<str>) -> Option<&Destination> {
        self.by_name.get(name).map(|named| &named.topic)
    }

    /// A message comes to a reader of the subscription.
    pub fn check_age(&self, name: &Arc<str>, message: MessageNumber, confirmed: Option<u64>) -> Checked {
        let ended = self.by_name.get(name).map_or(0, |named| named.ended);
        match confirmed {
            Some(confirmed) if confirmed < ended => {
                Err(format!("message {message} is older than the subscription {name} that it came to"))
            }
            _ => Ok(()),
        }
    }

    pub fn crashed(&mut self) {
        self.by_name.values_mut().for_each(|named| named.told = named.asked);
    }
}

impl Oracle {
    /// A request for the end of a subscription was answered.
    pub(super) fn unsubscribed(&mut self, name: &Arc<str>, asked: u64, good: bool) {
        let Some(named) = self.names.by_name.get_mut(name) else { return };
        if good {
            named.ended = named.ended.max(asked);
            for ((place, _), copy) in &mut self.copies {
                copy.gone |= matches!(place, Place::Named(gone) if gone == name);
            }
        }
    }

    /// Every subscription was read to its end by a consumer that accepts everything: promised
    /// messages that have not come.
    pub(super) fn missing_from_subscriptions(&self) -> impl Iterator<Item = Spot> {
        let missing = self.names.promised.iter().filter(|(name, message)| {
            let Some(letter) = self.letters.get(message) else { return false };
            let copy = self.copies.get(&(Place::Named(name.clone()), *message));
            let ended = copy.and_then(|copy| copy.ended);
            let left = ended.is_some_and(|number| self.operations[number].fate != Fate::Aborted);
            let disputed = copy.is_some_and(|copy| copy.disputed);
            self.operations[letter.operation].fate == Fate::Committed && !left && !disputed
        });
        missing.map(|(name, message)| (Place::Named(name.clone()), *message))
    }
}
