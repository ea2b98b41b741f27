//! What must come to durable subscriptions, and what may not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use postroad_model::{Attach, Destination};

use super::{Checked, Fate, MessageNumber, Oracle, Place};

/// The durable subscriptions that clients know of.
#[derive(Default)]
pub(super) struct Names {
    by_name: BTreeMap<Arc<str>, Named>,
    /// Persistent messages that were sent while the subscription was surely there.
    promised: BTreeSet<(Arc<str>, MessageNumber)>,
}

struct Named {
    topic: Destination,
    /// A reader was let in, and nobody has asked for its end since.
    exists: bool,
    /// Requests to end it that are under way.
    ending: u32,
    /// Somebody has asked for its end, whatever came of that.
    may_have_ended: bool,
    /// When it was last asked to end, if that was done: nothing that was confirmed before is in it.
    ended: u64,
}

impl Names {
    /// A reader asks for a subscription, which perhaps begins by that.
    pub fn asked_for(&mut self, attach: &Attach) {
        let Some(name) = &attach.subscription else { return };
        self.by_name.entry(name.clone()).or_insert_with(|| Named {
            topic: attach.source.clone(),
            exists: false,
            ending: 0,
            may_have_ended: false,
            ended: 0,
        });
    }

    /// A reader was let in.
    pub fn exists(&mut self, name: &Arc<str>) {
        if let Some(named) = self.by_name.get_mut(name) {
            named.exists = named.ending == 0;
        }
    }

    /// Somebody asks for its end.
    pub fn ending(&mut self, name: &Arc<str>) {
        if let Some(named) = self.by_name.get_mut(name) {
            (named.exists, named.ending, named.may_have_ended) = (false, named.ending + 1, true);
            self.promised.retain(|(promised, _)| promised != name);
        }
    }

    /// A persistent message is sent to the topic.
    pub fn promise(&mut self, topic: &Destination, message: MessageNumber) {
        let there = self.by_name.iter().filter(|(_, named)| named.exists && named.topic == *topic);
        self.promised.extend(there.map(|(name, _)| (name.clone(), message)));
    }

    /// Whether what was in it may have gone with it.
    pub fn may_have_ended(&self, name: &Arc<str>) -> bool {
        self.by_name.get(name).is_none_or(|named| named.may_have_ended)
    }

    /// Whether the message was sent while the subscription was surely there.
    pub fn is_promised(&self, name: &Arc<str>, message: MessageNumber) -> bool {
        self.promised.contains(&(name.clone(), message))
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
        self.by_name.values_mut().for_each(|named| named.ending = 0);
    }
}

impl Oracle {
    /// Somebody who had asked for the end of a subscription was answered.
    pub(super) fn unsubscribed(&mut self, name: &Arc<str>, asked: u64, good: bool) {
        let Some(named) = self.names.by_name.get_mut(name) else { return };
        named.ending = named.ending.saturating_sub(1);
        if good {
            named.ended = named.ended.max(asked);
            for ((place, _), copy) in &mut self.copies {
                copy.gone |= matches!(place, Place::Named(gone) if gone == name);
            }
        }
    }

    /// Every subscription was read to its end by a consumer that accepts everything.
    pub(super) fn check_promised(&self) -> Checked {
        for (name, message) in &self.names.promised {
            let Some(letter) = self.letters.get(message) else { continue };
            let copy = self.copies.get(&(Place::Named(name.clone()), *message));
            let ended = copy.and_then(|copy| copy.ended);
            let left = ended.is_some_and(|number| self.operations[number].fate != Fate::Aborted);
            if self.operations[letter.operation].fate == Fate::Committed && !left {
                let again = if copy.is_some() { "after a delivery" } else { "undelivered" };
                return Err(format!("message {message} is lost from the subscription {name}, {again}"));
            }
        }
        Ok(())
    }
}
