//! Routes and composite destinations: the addresses, and the versions, that a sent message stands
//! for.

use std::collections::BTreeMap;

use postroad_model::{
    Destination, Hold, Message, PartitionId, Publish, RoutedSend, Routing, Sent, Ticket, TransactionKey,
};
use postroad_routing::{Addressing, RoutedCopy};

use super::{Asked, OWN_TRANSACTION, Router};
use crate::translate::{change_headers, properties_of};

/// One version of a message, with where it goes in one partition.
type Share = (Sent, Hold);

impl Router {
    /// Whether routes or composite destinations change where a message goes that is sent to this
    /// address.
    pub fn is_passed_on(&self, to: &Destination, message: &Message) -> bool {
        let addressing = self.places.borrow().addressing.clone();
        if !addressing.passes_on() && !addressing.routes.takes_from(to) {
            return false;
        }
        let copies = planned(&addressing, &Sent::new(to.clone(), message.clone()));
        let goes_on =
            |copy: &RoutedCopy| copy.to != [to.clone()] || !copy.changes.is_empty() || !copy.hold.is_none();
        copies.len() != 1 || copies.iter().any(goes_on)
    }

    /// Replaces the addresses of a message by the targets of routes and composite destinations.
    pub(super) fn find_targets(&self, publish: &mut Publish) -> Targets {
        let addressing = self.places.borrow().addressing.clone();
        let takes = |to: &Destination| addressing.routes.takes_from(to);
        if publish.is_notice || !addressing.passes_on() && !publish.sent.targets().any(takes) {
            return Targets::One;
        }
        let copies = planned(&addressing, &publish.sent);
        let mut versions: Vec<Share> = copies.into_iter().map(|copy| version(&publish.sent, copy)).collect();
        match versions.len() {
            0 => Targets::None,
            // Redelivery needs a transaction: the copies of full targets are apart from the others.
            1 if versions.iter().all(|(_, hold)| hold.retry.is_none()) => {
                let (sent, hold) = versions.remove(0);
                publish.sent = sent;
                publish.routed = (!hold.is_none()).then(|| Box::new(Routing { hold, further: Vec::new() }));
                Targets::One
            }
            _ => Targets::Several(versions),
        }
    }

    /// Versions of a message reach all of their addresses or none: in the transaction that the
    /// message belongs to, or in one of its own. In one partition that is one record.
    pub(super) fn send_versions(
        &mut self,
        publish: &Publish,
        versions: Vec<Share>,
        to: &mut impl FnMut(PartitionId, postroad_model::Event),
    ) {
        let Publish { connection, ticket, transaction, resent, upload, .. } = *publish;
        let mut shares: BTreeMap<PartitionId, Vec<Share>> = BTreeMap::new();
        for (sent, hold) in versions {
            for (partition, sent) in self.by_partition(sent, upload) {
                shares.entry(partition).or_default().push((sent, hold.clone()));
            }
        }
        let own = TransactionKey { connection, number: OWN_TRANSACTION | self.spread };
        let key = transaction.unwrap_or(own);
        let missing = shares.len() as u16 + u16::from(transaction.is_none());
        self.asked.insert(ticket, Asked { missing, result: None, all: true });
        self.use_upload(upload, |has_it| shares.contains_key(&has_it), to);
        // In one partition later events follow it.
        let may_be_overtaken = 1 < shares.len() || !publish.sent.message.persistent;
        for (partition, mut versions) in shares {
            let (sent, hold) = versions.remove(0);
            let further = versions.into_iter().map(|(sent, hold)| RoutedSend { sent, hold }).collect();
            let routed = Some(Box::new(Routing { hold, further }));
            let plain = Publish::plain(connection, ticket, sent);
            let share = Publish { transaction: Some(key), resent, upload, routed, ..plain };
            self.enlist(Some(key), partition);
            self.touched.insert(partition);
            to(partition, postroad_model::Event::Publish(share));
        }
        if transaction.is_none() {
            self.commit_own(own, ticket, may_be_overtaken, to);
        }
    }

    fn commit_own(
        &mut self,
        own: TransactionKey,
        ticket: Ticket,
        holds_up: bool,
        to: &mut impl FnMut(PartitionId, postroad_model::Event),
    ) {
        self.spread += 1;
        self.pass(postroad_model::Event::Commit { transaction: own, participants: Vec::new(), ticket }, to);
        if holds_up {
            self.spreading = Some(ticket);
        }
    }

    /// The message with those of its addresses that live in each partition.
    fn by_partition(&self, sent: Sent, upload: Option<u64>) -> BTreeMap<PartitionId, Sent> {
        let mut targets: BTreeMap<PartitionId, Vec<Destination>> = BTreeMap::new();
        for target in sent.targets() {
            targets.entry(self.home_of(target, upload)).or_default().push(target.clone());
        }
        let with_targets = |mut targets: Vec<Destination>| {
            let first = targets.remove(0);
            Sent { to: first, also: targets, ..sent.clone() }
        };
        targets.into_iter().map(|(partition, targets)| (partition, with_targets(targets))).collect()
    }
}

/// The targets of a message.
pub(super) enum Targets {
    /// It has none.
    None,
    /// One version, with its addresses in place.
    One,
    /// Several versions.
    Several(Vec<Share>),
}

fn planned(addressing: &Addressing, sent: &Sent) -> Vec<RoutedCopy> {
    let properties = properties_of(&sent.message);
    addressing.routes.plan(addressing, sent.targets(), &*properties).copies
}

/// One version of the message. One whose headers cannot be read goes on as it was sent.
fn version(sent: &Sent, copy: RoutedCopy) -> Share {
    let RoutedCopy { to, changes, hold } = copy;
    let mut targets = to.into_iter();
    let first = targets.next().unwrap_or_else(|| sent.to.clone());
    let message = match changes.is_empty() {
        true => sent.message.clone(),
        false => change_headers(&sent.message, &changes),
    };
    (Sent { to: first, also: targets.collect(), message, ..sent.clone() }, hold)
}
