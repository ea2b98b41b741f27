//! Rules at rest, and once everything was drained.

use std::collections::BTreeSet;

use postroad_model::{ConnectionId, ConsumerMode, Destination, DestinationKind, Sent, Ticket};

use crate::selectors::wants;

use super::{Ask, Checked, Fate, Letter, MessageNumber, Number, Oracle, Place, Spot};

impl Oracle {
    /// Nothing is under way any more: every connected client has its answers, every subscription
    /// its messages. While memory or the queue with a limit is not empty (`may_wait`), sends to it
    /// may have to wait.
    ///
    /// # Errors
    /// The waiting clients, and their reasons.
    pub fn check_quiet(&self, connected: &BTreeSet<ConnectionId>, may_wait: bool) -> Checked {
        let parked = if may_wait { self.may_be_parked() } else { BTreeSet::new() };
        let waits = |(ticket, (connection, _)): &(&Ticket, &(ConnectionId, Ask))| {
            connected.contains(connection) && !parked.contains(ticket)
        };
        if let Some((ticket, (connection, _))) = self.asks.iter().find(waits) {
            return Err(format!("{ticket:?} of {connection:?} is never answered"));
        }
        self.check_served(connected)?;
        self.check_woken(connected)?;
        let missing = self.expected.iter().find(|(key, _)| {
            connected.contains(&key.connection)
                && self.readers.get(key).is_some_and(|reader| reader.attached && reader.credit > 0)
        });
        match missing {
            Some((key, message)) => Err(format!("message {message} does not come to subscription {key:?}")),
            None => Ok(()),
        }
    }

    /// Sends that have no answer because they may have to wait: for memory or room, or after others
    /// that do. Of two connections either may have come first.
    fn may_be_parked(&self) -> BTreeSet<Ticket> {
        let mut waiting: Vec<(Ticket, ConnectionId, &Sent)> = Vec::new();
        let mut parked: Vec<(Ticket, ConnectionId, &Sent)> = Vec::new();
        for (ticket, (connection, ask)) in &self.asks {
            let Ask::Publish(_, message) = ask else { continue };
            let Some(Letter { sent, .. }) = self.letters.get(message) else { continue };
            let by_itself = self.is_volatile(*message) || self.is_to_narrow(*message);
            if by_itself { &mut parked } else { &mut waiting }.push((*ticket, *connection, sent));
        }
        let mut next = 0;
        while let Some(&(earlier, other, before)) = parked.get(next) {
            next += 1;
            parked.extend(waiting.extract_if(.., |(ticket, connection, sent)| {
                let is_own = *connection == other && earlier < *ticket;
                // A send that waits at an address is in the way of those after it there only. One
                // that had to look in the log for earlier sends of its client comes there after
                // later sends that did not.
                let differs = before.message.persistent != sent.message.persistent;
                before.to == sent.to && (is_own || differs || *connection != other)
                    || is_own
                        && before.message.persistent == sent.message.persistent
                        && before.targets().any(|to| sent.targets().any(|same| same == to))
            }));
        }
        parked.into_iter().map(|(ticket, ..)| ticket).collect()
    }

    /// Nothing waits in a queue that a consumer of it wants and has credit for.
    fn check_served(&self, connected: &BTreeSet<ConnectionId>) -> Checked {
        for ((place, message), copy) in &self.copies {
            let Place::Queue(queue) = place else { continue };
            let letter = self.letters.get(message);
            let plain = letter.is_some_and(|letter| {
                letter.sent.message.group().is_none()
                    && letter.sent.message.expires_at_ms == 0
                    && letter.sent.schedule.is_none()
            });
            let operation = &self.operations[copy.created];
            let came = operation.fate == Fate::Committed && operation.what == "send";
            let free = self.is_free(copy);
            let here = copy.run == self.run || !copy.volatile;
            if !plain
                || !came
                || !free
                || !here
                || self.may_drop(place)
                || self.may_replace(place)
                || queue.temporary
                || self.has_perhaps_revived(place)
                || self.has_perhaps_moved(place)
            {
                continue;
            }
            let line: Vec<_> = (self.lines.get(queue).into_iter().flatten())
                .filter_map(|key| Some((key, self.readers.get(key)?)))
                .filter(|(_, reader)| reader.mode != ConsumerMode::Browse)
                .collect();
            if line.iter().any(|(_, reader)| reader.mode == ConsumerMode::Exclusive) {
                continue;
            }
            let could = line.iter().find(|(key, reader)| {
                connected.contains(&key.connection) && reader.credit > 0 && wants(&reader.selector, *message)
            });
            if let Some((key, _)) = could {
                return Err(format!("message {message} waits in {queue}, and {key:?} for it"));
            }
        }
        Ok(())
    }

    fn is_volatile(&self, message: MessageNumber) -> bool {
        self.letters.get(&message).is_none_or(|letter| {
            let is_volatile =
                |to: &Destination| to.temporary || to.kind == DestinationKind::Topic || self.is_forgetful(to);
            letter.sent.targets().all(is_volatile) || !letter.sent.message.persistent
        })
    }

    /// Every queue was emptied by consumers that accept everything: promised messages must have
    /// come out, but for those that its queue has dropped and counted.
    ///
    /// # Errors
    /// The lost or half done operations.
    pub fn check_all(&self, now_ms: u64, dropped: u64) -> Checked {
        let mut missing = self.missing_from_queues(now_ms);
        missing.extend(self.missing_from_subscriptions());
        let by_limit = missing.extract_if(.., |(place, _)| self.may_drop(place)).count() as u64;
        if let Some((place, message)) = missing.iter().find(|(place, _)| !self.may_replace(place)) {
            let copy = self.copies.get(&(place.clone(), *message)).filter(|copy| copy.delivered);
            let again =
                copy.map_or("undelivered".to_owned(), |copy| format!("after a delivery: {:?}", copy.hold));
            return Err(format!("message {message} is lost from {place:?}, {again}"));
        }
        for spot in &missing {
            self.check_superseded(spot, &missing)?;
        }
        if dropped < by_limit {
            return Err(format!(
                "{by_limit} messages left a queue by its limit, which has counted {dropped}"
            ));
        }
        self.check_repeats()?;
        self.check_tails()?;
        (0..self.operations.len()).try_for_each(|number| self.check_whole(number, now_ms))
    }

    /// Messages that came to a queue, have not ended, and were not there any more.
    fn missing_from_queues(&self, now_ms: u64) -> Vec<Spot> {
        let missing = self.copies.iter().filter(|((place, message), copy)| {
            let Place::Queue(queue) = place else { return false };
            let in_memory = queue.temporary || self.is_perhaps_forgotten(&(place.clone(), *message), copy);
            let expires = self.letters.get(message).map_or(0, |letter| letter.sent.message.expires_at_ms);
            let has_expired = expires != 0 && expires <= now_ms;
            let came = self.operations[copy.created].fate == Fate::Committed;
            let is_another = self.is_repeating(*message);
            let left = copy.ended.is_some_and(|number| self.operations[number].fate != Fate::Aborted);
            !in_memory && !is_another && !copy.gone && !copy.disputed && !has_expired && came && !left
        });
        missing.map(|(spot, _)| spot.clone()).collect()
    }

    /// An operation with an unknown fate: then nothing of it happened, or nothing of it could be
    /// seen.
    fn check_whole(&self, number: Number, now_ms: u64) -> Checked {
        let operation = &self.operations[number];
        let lasting = |spot: &&Spot| {
            let letter = self.letters.get(&spot.1);
            let expires = letter.map_or(0, |letter| letter.sent.message.expires_at_ms);
            // One that is not persistent may have been in memory only: that it is not there says
            // nothing.
            letter.is_some_and(|letter| letter.sent.message.persistent)
                && !self.may_drop(&spot.0)
                && !self.may_replace(&spot.0)
                && !matches!(&spot.0, Place::Named(name) if self.names.may_have_ended(name))
                && (expires == 0 || now_ms < expires)
                && self.copies.get(*spot).is_some_and(|copy| {
                    let is_forgotten = copy.volatile || self.is_perhaps_forgotten(spot, copy);
                    !is_forgotten && !copy.gone && !copy.disputed
                })
        };
        // Whatever came and was settled later is not there either.
        let unsettled = |spot: &&Spot| {
            let ended = self.copies.get(*spot).and_then(|copy| copy.ended);
            ended.is_none_or(|number| self.operations[number].fate == Fate::Aborted)
        };
        let sends = operation.sends.iter().filter(unsettled).find(lasting);
        // A message taken back may have left by another's verdict.
        let by_this = |spot: &&Spot| self.copies.get(*spot).is_some_and(|copy| copy.ended == Some(number));
        // A message that a power failure may have taken before was perhaps never there to be
        // settled.
        let came = |spot: &&Spot| {
            self.copies.get(*spot).is_some_and(|copy| self.operations[copy.created].fate == Fate::Committed)
        };
        let settles = operation.settles.iter().filter(by_this).filter(came).find(lasting);
        match (operation.fate, sends, settles) {
            (Fate::Asked, Some(sent), Some(settled)) => Err(format!(
                "a {} was carried out by half: {settled:?} has left, {sent:?} has not come",
                operation.what
            )),
            _ => Ok(()),
        }
    }
}
