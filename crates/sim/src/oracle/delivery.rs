//! Rules of one delivery.

use std::sync::Arc;

use postroad_model::{
    ConnectionId, ConsumerKey, ConsumerMode, Delivered, Delivery, Destination, DestinationKind, EntryTag,
    Message, PartitionId, RareHeaders,
};

use crate::selectors::wants;

use super::{AT_ONCE, Checked, Fate, Hold, Letter, MessageNumber, Operation, Oracle, Place, Spot, number_of};

impl Letter {
    /// Whether the delivery equals the sent message, but for its end. Pieces of a large one are
    /// looked at elsewhere.
    fn is_unchanged(&self, got: &Message, expires_at_ms: u64) -> Result<(), &'static str> {
        if self.is_large && !self.resent && got.chunks().is_none() {
            return Err("has lost its body");
        }
        let mut got = got.clone().with_chunks(None);
        // The broker's own properties are not compared.
        if let Some(rare) = got.rare.take() {
            let rare = RareHeaders { last_value: None, returns: 0, ..(*rare).clone() };
            got.rare = (rare != RareHeaders::default()).then(|| Arc::new(rare));
        }
        match got == (Message { expires_at_ms, ..self.sent.message.clone() }) {
            true => Ok(()),
            false => Err("was changed on its way"),
        }
    }
}

impl Oracle {
    pub(super) fn delivered(
        &mut self,
        (now_ms, partition): (u64, PartitionId),
        delivery: &Delivery,
    ) -> Checked {
        let key = delivery.consumer;
        let message = number_of(&delivery.message).ok_or("a delivery without a number")?;
        let revived = self.reads_revived(key);
        let latest_ms = self.wall.latest(now_ms);
        self.repeats(latest_ms, &delivery.message)?;
        let letter = self.letters.get(&message).ok_or("a delivery of a message that nobody sent")?;
        let dead = revived || self.readers.get(&key).is_some_and(|reader| reader.source == self.dead_letters);
        let expires_at_ms = if dead { 0 } else { letter.sent.message.expires_at_ms };
        letter
            .is_unchanged(&delivery.message, expires_at_ms)
            .map_err(|what| format!("message {message} {what}"))?;
        let (from, retained) = (letter.from, letter.retained);
        let due_ms = letter.sent.schedule.as_ref().map_or(0, |schedule| schedule.due_ms);
        if latest_ms < due_ms {
            return Err(format!("message {message} was delivered at {now_ms}, but is due at {due_ms}"));
        }
        if dead {
            self.expired_into_dead_letters(latest_ms, message);
        }
        let reader = self.readers.get_mut(&key).filter(|reader| reader.attached && reader.at == partition);
        let reader = reader.ok_or_else(|| format!("message {message} was delivered to nobody: {key:?}"))?;
        if reader.credit == 0 {
            return Err(format!("message {message} was delivered to {key:?} beyond its credit"));
        }
        reader.credit -= 1;
        let (source, mode, no_local) = (reader.source.clone(), reader.mode, reader.no_local);
        let place = match (source.kind, reader.name.clone()) {
            (DestinationKind::Queue, _) if revived => Place::Queue(self.dead_letters.clone()),
            (DestinationKind::Queue, _) => Place::Queue(source.clone()),
            (DestinationKind::Topic, Some(name)) => Place::Named(name),
            (DestinationKind::Topic, None) => Place::Subscription(key),
        };
        self.check_source(&place, &source, delivery, no_local)?;
        if source.kind == DestinationKind::Topic {
            self.copy_on_arrival(&(place.clone(), message));
        }
        let spot = (place, message);
        if !self.copies.contains_key(&spot) {
            self.copy_for_fed(&spot)?;
        }
        let what = format!("message {message} in {source} for {key:?}");
        self.check_existence(&spot, delivery.tag, &what)?;
        if mode == ConsumerMode::Browse {
            return self.browsed(key, &spot, &what);
        }
        let expires = delivery.message.expires_at_ms;
        if expires != 0 && expires <= now_ms {
            return Err(format!("{what}: delivered at {now_ms}, though it expired at {expires}"));
        }
        self.check_chosen(key, &source, &what)?;
        self.check_rest((now_ms, partition), &spot, delivery, &what)?;
        self.check_free(&spot, &what)?;
        self.check_is_last(&spot, &what)?;
        self.check_count(&spot, delivery.failed_deliveries, &what)?;
        self.check_order(&spot, from, (retained, lane(delivery.tag)), &what)?;
        self.check_priority(latest_ms, &spot, &what)?;
        self.check_place(partition, &spot, delivery.tag, &what)?;
        self.check_group(delivery, &source, &spot, &what)?;
        self.expected.remove(&(key, message));
        self.holds(key, spot, delivery.tag, partition);
        Ok(())
    }

    /// A consumer has a message from now on, unless it leaves in the same turn.
    fn holds(&mut self, key: ConsumerKey, spot: Spot, tag: EntryTag, at: PartitionId) {
        self.begins_to_hold(key, &spot);
        let leaves = self.readers.get(&key).and_then(|reader| reader.leaves);
        if let Some(copy) = self.copies.get_mut(&spot) {
            copy.arrives(leaves.is_some(), in_memory(tag));
            copy.at = Some(at);
            copy.hold = if leaves.is_some() { Hold::Free } else { Hold::Held(key) };
            match leaves {
                None => {}
                Some(Delivered::All) => copy.count(1, 1),
                Some(_) => copy.count(0, 1),
            }
        }
        if let Some(reader) = self.readers.get_mut(&key) {
            reader.held.retain(|(_, held)| *held != spot);
            reader.held.push((tag, spot));
        }
    }

    /// A topic's message comes to subscriptions of its topic alone.
    fn check_source(
        &self,
        place: &Place,
        source: &Destination,
        delivery: &Delivery,
        no_local: bool,
    ) -> Checked {
        let message = number_of(&delivery.message).ok_or("a delivery without a number")?;
        let letter = self.letters.get(&message).ok_or("a delivery of a message that nobody sent")?;
        let is_later = letter.sent.schedule.is_some();
        if let Place::Named(name) = place {
            let confirmed = letter.confirmed.filter(|_| !letter.retained && !is_later);
            self.names.check_age(name, message, confirmed)?;
        }
        // The sender of a scheduled message is not known any more.
        let own = letter.from == delivery.consumer.connection && !letter.retained && !is_later;
        let selector = self.readers.get(&delivery.consumer).map(|reader| &reader.selector);
        if !selector.is_none_or(|selector| wants(selector, message)) {
            return Err(format!("message {message} came to a consumer that selects {selector:?}"));
        }
        let strays = !letter.sent.targets().any(|to| to == source) || no_local && own;
        if source.kind == DestinationKind::Topic && strays {
            return Err(format!(
                "message {message} to {} came to a subscription of {source}",
                letter.sent.to
            ));
        }
        Ok(())
    }

    /// A message whose time was over may have moved to the dead letters at any moment since.
    fn expired_into_dead_letters(&mut self, now_ms: u64, message: MessageNumber) {
        let place = Place::Queue(self.dead_letters.clone());
        let Some(letter) = self.letters.get(&message) else { return };
        let expires = letter.sent.message.expires_at_ms;
        let lasts = letter.sent.message.persistent && !letter.sent.to.temporary;
        let there = self.copies.get(&(place.clone(), message));
        let there = there.is_some_and(|copy| self.operations[copy.created].fate == Fate::Committed);
        if there || expires == 0 || now_ms < expires || !lasts {
            return;
        }
        let spot = (Place::Queue(letter.sent.to.clone()), message);
        if let Some(copy) = self.copies.get_mut(&spot) {
            copy.ended = Some(AT_ONCE);
        }
        self.copy((place, message), AT_ONCE, false);
    }

    /// It was not sure that the message comes there.
    pub(super) fn copy_on_arrival(&mut self, spot: &Spot) {
        let Some(letter) = self.letters.get(&spot.1) else { return };
        // A message agreed on by several partitions may come in a later run, and so may a scheduled
        // one: even a non-persistent one, if it went through the log because another of its queues
        // was new.
        let in_transaction = self.operations[letter.operation].what == "transaction";
        let lasts = letter.sent.message.persistent || letter.sent.schedule.is_some() || in_transaction;
        let run = if lasts { self.run } else { letter.run };
        let operation = letter.operation;
        if !self.copies.contains_key(spot) {
            self.copy(spot.clone(), operation, true);
            if let Some(copy) = self.copies.get_mut(spot) {
                copy.run = run;
            }
        }
    }

    fn check_existence(&mut self, spot: &Spot, tag: EntryTag, what: &str) -> Checked {
        let Some(copy) = self.copies.get(spot) else {
            return Err(format!("{what}: it was never sent there"));
        };
        if copy.gone {
            return Err(format!("{what}: its queue was deleted"));
        }
        // A message in the log that need not be there may be in memory alone where its queue lives
        // now, or where it went back to.
        let may_have_changed = self.has_perhaps_moved(&spot.0) || self.has_perhaps_revived(&spot.0);
        if copy.volatile && copy.run != self.run && in_memory(tag) && !may_have_changed {
            return Err(format!("{what}: it was in memory only, and came back after a crash"));
        }
        let created = copy.created;
        self.resolve(created, true, || format!("{what}: its delivery"))
    }

    fn browsed(&mut self, key: ConsumerKey, spot: &Spot, what: &str) -> Checked {
        let ended = self.copies.get(spot).filter(|copy| !copy.disputed).and_then(|copy| copy.ended);
        // A transaction is known to commit once one of its messages is seen, a branch once a client
        // gets the outcome of an overruling; other partitions may not have heard of it yet.
        let is_known_early = |ended: &Operation| !ended.sends.is_empty() || ended.branch.is_some();
        let confirmed = |ended: &Operation| ended.answered || !is_known_early(ended);
        let ended = ended.map(|number| &self.operations[number]).filter(|ended| confirmed(ended));
        let in_slices = self.taking.slices_of(spot);
        let is_left = in_slices.is_some_and(|number| self.operations[number].fate == Fate::Asked);
        if !is_left && ended.is_some_and(|ended| ended.fate == Fate::Committed) {
            return Err(format!("{what}: browsed though its end was confirmed"));
        }
        let fresh = self.readers.get_mut(&key).is_some_and(|reader| reader.browsed.insert(spot.1));
        if fresh { Ok(()) } else { Err(format!("{what}: browsed twice")) }
    }

    /// With exclusive consumers on the queue, the first of the highest priority gets everything.
    fn check_chosen(&self, key: ConsumerKey, source: &Destination, what: &str) -> Checked {
        // One that comes and goes in one turn has the queue until it goes.
        if self.readers.get(&key).is_some_and(|reader| reader.leaves.is_some()) {
            return Ok(());
        }
        let line = self.lines.get(source).into_iter().flatten();
        let exclusive = line.filter_map(|key| Some((key, self.readers.get(key)?)));
        let exclusive: Vec<_> = exclusive
            .filter(|(_, reader)| reader.mode == ConsumerMode::Exclusive && reader.leaves.is_none())
            .collect();
        let highest = exclusive.iter().map(|(_, reader)| reader.priority).max();
        let chosen = exclusive.iter().find(|(_, reader)| Some(reader.priority) == highest);
        match chosen {
            Some((chosen, _)) if source.kind == DestinationKind::Queue && **chosen != key => {
                Err(format!("{what}: {chosen:?} has the queue for itself"))
            }
            _ => Ok(()),
        }
    }

    fn check_free(&mut self, spot: &Spot, what: &str) -> Checked {
        if self.take_back(spot) {
            return Ok(());
        }
        let Some(copy) = self.copies.get(spot).filter(|copy| !copy.disputed) else { return Ok(()) };
        if let Hold::Held(holder) = copy.hold {
            return Err(format!("{what}: {holder:?} holds it already"));
        }
        let Some(number) = copy.ended else { return Ok(()) };
        let operation = &self.operations[number];
        match operation.fate {
            Fate::Aborted => Ok(()),
            Fate::Open => Err(format!("{what}: an open transaction holds it")),
            Fate::Committed => Err(format!("{what}: delivered again though its end was confirmed")),
            Fate::Asked if operation.unasked && operation.run == self.run => {
                Err(format!("{what}: delivered again in the same run though it was acknowledged"))
            }
            Fate::Asked => {
                self.resolve(number, false, || format!("{what}: its delivery"))?;
                // Later statements about it must not hold either.
                let ends_again = self.copies.get(spot).is_some_and(|copy| copy.ended.is_some());
                if ends_again { self.check_free(spot, what) } else { Ok(()) }
            }
        }
    }

    fn check_count(&mut self, spot: &Spot, found: u32, what: &str) -> Checked {
        let (run, has_revived) = (self.run, self.has_perhaps_revived(&spot.0));
        let Some(copy) = self.copies.get_mut(spot) else { return Ok(()) };
        let (low, high) = copy.failed;
        // The number of its returns is unknown, and whether they were before its transaction came
        // to its end. The count begins again.
        let low = if has_revived { 0 } else { low };
        let (low, high) = if self.taking.is_possible() { (0, u32::MAX) } else { (low, high) };
        if found < low || high < found {
            return Err(format!("{what}: delivery count {found}, not within {low} and {high}"));
        }
        if copy.seen_run != run {
            (copy.seen_run, copy.floor) = (run, found);
        }
        copy.failed = (found, found);
        Ok(())
    }

    fn check_order(
        &mut self,
        spot: &Spot,
        from: ConnectionId,
        (retained, lane): (bool, u8),
        what: &str,
    ) -> Checked {
        let Some(copy) = self.copies.get(spot) else { return Ok(()) };
        let operation = &self.operations[copy.created];
        let in_transaction = operation.what == "transaction";
        let later = |letter: &super::Letter| letter.sent.schedule.is_some();
        if operation.branch.is_some() || self.letters.get(&spot.1).is_some_and(later) {
            // It came with the decision, or when it was due, not when its client was done.
            return Ok(());
        }
        let first = !copy.delivered && copy.failed.1 == 0;
        if !first || self.selects || retained || spot.0 == Place::Queue(self.dead_letters.clone()) {
            return Ok(());
        }
        let Some(letter) = self.letters.get(&spot.1).filter(|letter| !letter.resent) else { return Ok(()) };
        let group = letter.sent.message.group().map(|group| group.id.clone());
        // A subscription keeps persistent messages in memory too, in no fixed order with
        // non-persistent ones.
        let persistent = letter.sent.message.persistent;
        // A send that waits for memory or room waits by its address.
        let by_topic = self.is_fed(spot);
        let lane = lane & !(1 | AHEAD) | u8::from(persistent) << 7 | u8::from(by_topic) << 6;
        let line = (from, in_transaction, spot.0.clone(), lane, group);
        match self.last.insert(line, spot.1) {
            Some(last) if spot.1 < last => Err(format!("{what}: delivered behind message {last}")),
            _ => Ok(()),
        }
    }
}

impl Oracle {
    /// Nothing of a higher priority is surely there and free.
    fn check_priority(&self, now_ms: u64, spot: &Spot, what: &str) -> Checked {
        let may_go = self.may_drop(&spot.0) || self.may_replace(&spot.0);
        if self.selects || may_go || !matches!(spot.0, Place::Queue(_)) {
            return Ok(());
        }
        let message = |number: &MessageNumber| self.letters.get(number).map(|letter| &letter.sent.message);
        let Some(priority) = message(&spot.1).map(|message| message.priority) else { return Ok(()) };
        let others = self.copies.range((spot.0.clone(), 0)..=(spot.0.clone(), MessageNumber::MAX));
        for (there, copy) in others {
            let number = &there.1;
            let Some(other) = message(number).filter(|other| other.priority > priority) else { continue };
            // A group waits for its consumer.
            if other.group().is_some() {
                continue;
            }
            let lasts = other.expires_at_ms == 0 || now_ms < other.expires_at_ms;
            let here = !self.is_perhaps_forgotten(there, copy);
            let free = self.is_free(copy);
            // A send in a transaction may still be on its way to a participant.
            let operation = &self.operations[copy.created];
            let later = self.letters.get(number).is_some_and(|letter| letter.sent.schedule.is_some());
            let sent_now = operation.what == "send" && !later;
            let came = operation.fate == Fate::Committed && (copy.delivered || sent_now);
            if lasts && here && free && came {
                return Err(format!("{what}: message {number} has a higher priority"));
            }
        }
        Ok(())
    }
}

impl Oracle {
    /// A group has one consumer; another gets it only when the first has left, has nothing of it,
    /// or was sent its end.
    fn check_group(&mut self, delivery: &Delivery, source: &Destination, spot: &Spot, what: &str) -> Checked {
        let Some(group) = delivery.message.group() else { return Ok(()) };
        let key = delivery.consumer;
        let exclusive =
            |key| self.readers.get(key).is_none_or(|reader| reader.mode == ConsumerMode::Exclusive);
        if source.kind != DestinationKind::Queue || exclusive(&key) {
            return Ok(());
        }
        let name = (source.clone(), group.id.clone());
        let owner = self.groups.get(&name).copied().filter(|owner| *owner != key);
        let holds = |(other, copy): (&Spot, &super::MessageCopy)| {
            let letter = self.letters.get(&other.1);
            let has = match copy.hold {
                Hold::Held(by) => Some(by),
                // Once it is asked to commit, the group may go on before the client knows.
                Hold::InTransaction(number, by) if self.operations[number].fate == Fate::Open => Some(by),
                _ => None,
            };
            has.is_some()
                && has == owner
                && letter
                    .and_then(|letter| letter.sent.message.group())
                    .is_some_and(|other| other.id == group.id)
        };
        let mut others = self.copies.range((spot.0.clone(), 0)..=(spot.0.clone(), MessageNumber::MAX));
        if let Some(owner) = owner.filter(|_| !self.taking.is_possible())
            && others.any(holds)
        {
            return Err(format!("{what}: {owner:?} has the group {}", group.id));
        }
        let begins = !self.groups.contains_key(&name) || owner.is_some();
        if begins && !delivery.first_of_group {
            return Err(format!("{what}: it begins the group {}, and does not say so", group.id));
        }
        match group.sequence < 0 {
            true => self.groups.remove(&name),
            false => self.groups.insert(name, key),
        };
        Ok(())
    }
}

/// Of a lane: its entries came from where the queue was before.
const AHEAD: u8 = 1 << 5;

/// The lane of an entry, by its tag.
pub(super) fn lane(tag: EntryTag) -> u8 {
    (tag.0 >> 56) as u8
}

/// Whether an entry is in memory only: its tag says so. (A message that is not persistent may be in
/// the log all the same, if it was sent in a transaction to a queue that was new.)
fn in_memory(tag: EntryTag) -> bool {
    tag.0 >> 56 & 1 == 1
}
