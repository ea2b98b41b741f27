//! Links to other brokers, as operators see them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{ConsumerKey, Destination};

/// What [`link_to`] puts ahead of the id of the peer.
const LINK_TO: &str = "link to ";

/// The name by which consumers of links to this peer take over deliveries in doubt (see
/// [`crate::Attach::steals`]).
pub fn link_to(peer_id: &str) -> Arc<str> {
    format!("{LINK_TO}{peer_id}").into()
}

/// The id of the peer in a name that [`link_to`] has made.
pub fn peer_of_link(name: &str) -> Option<&str> {
    name.strip_prefix(LINK_TO)
}

/// A count or measure that one connection writes and operators read.
#[derive(Debug, Default)]
pub struct Figure(AtomicU64);

impl Figure {
    /// Adds to the count.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// From here on it is this.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// As it was last written.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The figures of one connection of a link. All start at zero.
#[derive(Debug, Default)]
pub struct LinkFigures {
    /// Messages sent to the peer.
    pub dispatched: Figure,
    /// Bytes of them on the wire.
    pub dispatched_bytes: Figure,
    /// Messages that the peer confirmed.
    pub forwarded: Figure,
    /// Messages that the peer refused.
    pub refused: Figure,
    /// Messages that the peer sent.
    pub received: Figure,
    /// Consumers and durable subscriptions of the peer that want messages.
    pub demand: Figure,
    /// Messages sent that the peer has not answered.
    pub in_flight: Figure,
    /// When the oldest of them was sent, in milliseconds since 1970; zero if there is none.
    pub oldest_sent_ms: Figure,
    /// Messages that the peer refused and that are sent again after a pause.
    pub resting: Figure,
    /// When the peer last answered anything, in milliseconds since 1970.
    pub heard_ms: Figure,
    /// One more than the clients that the peer has; zero if it has not said.
    pub clients: Figure,
    /// The queues that the peer has demand for.
    pub queues: LinkQueues,
}

/// The queues that consumers at the peer of a link read. Written when demand changes, never on a
/// message's way.
#[derive(Debug, Default)]
pub struct LinkQueues(Mutex<QueuesOfLink>);

/// Why a link does not serve a queue that consumers at its peer read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkBar {
    /// Its include or exclude leaves the queue out.
    Excluded,
    /// The demand has passed as many brokers as its `consumer_ttl` permits.
    TooFar,
    /// The demand has passed this broker: the consumers have another path to it.
    OwnPath,
}

/// See [`LinkQueues`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueuesOfLink {
    /// The subscriptions of the link, with the queue that each reads.
    pub read: BTreeMap<ConsumerKey, Destination>,
    /// Queues that the options of the link exclude, with the remote consumer that reads each.
    pub excluded: BTreeSet<(Destination, Arc<str>)>,
    /// Queues that remote consumers read which the link does not serve, by its rules for networks.
    pub barred: BTreeSet<(Destination, Arc<str>, LinkBar)>,
}

impl LinkQueues {
    /// Subscriptions and excluded queues that one link lists; further ones are left out.
    pub const LISTED_MAX: usize = 1024;

    fn lock(&self) -> MutexGuard<'_, QueuesOfLink> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The link has subscribed to a queue.
    pub fn subscribed(&self, consumer: ConsumerKey, queue: &Destination) {
        let mut queues = self.lock();
        if queues.read.len() < LinkQueues::LISTED_MAX {
            queues.read.insert(consumer, queue.clone());
        }
    }

    /// A subscription of the link has ended.
    pub fn unsubscribed(&self, consumer: ConsumerKey) {
        self.lock().read.remove(&consumer);
    }

    /// A remote consumer reads a queue that the link excludes.
    pub fn excluded(&self, queue: &Destination, by: &Arc<str>) {
        let mut queues = self.lock();
        if queues.excluded.len() < LinkQueues::LISTED_MAX {
            queues.excluded.insert((queue.clone(), by.clone()));
        }
    }

    /// A remote consumer reads a queue, and the link does not serve it.
    pub fn barred(&self, queue: &Destination, by: &Arc<str>, bar: LinkBar) {
        let mut queues = self.lock();
        if queues.barred.len() < LinkQueues::LISTED_MAX {
            queues.barred.insert((queue.clone(), by.clone(), bar));
        }
    }

    /// This remote consumer has gone.
    pub fn released(&self, by: &Arc<str>) {
        let mut queues = self.lock();
        if !queues.excluded.is_empty() {
            queues.excluded.retain(|(_, holder)| holder != by);
        }
        if !queues.barred.is_empty() {
            queues.barred.retain(|(_, holder, _)| holder != by);
        }
    }

    /// As they are now.
    pub fn copy(&self) -> QueuesOfLink {
        self.lock().clone()
    }
}

/// The broker at the other end of a connection, once it was let in.
#[derive(Clone, Debug)]
pub struct LinkedPeer {
    /// The link's name, as its initiator has it.
    pub link: Arc<str>,
    /// Id of the peer.
    pub peer_id: Arc<str>,
    /// Name of the peer.
    pub peer_name: Arc<str>,
    /// Where its clients reach the peer.
    pub peer_url: Arc<str>,
    /// The swimlane of the peer; empty for none.
    pub swimlane: Arc<str>,
    /// This broker belongs to another swimlane.
    pub crosses_swimlanes: bool,
    /// Messages go both ways.
    pub is_duplex: bool,
    /// How it does.
    pub figures: Arc<LinkFigures>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ConnectionId;

    #[test]
    fn queues_of_a_link_are_bounded_and_leave_with_their_consumers() {
        let queues = LinkQueues::default();
        let key = |number| ConsumerKey::new(ConnectionId::new(0, 1), number);
        for number in 0..2 * LinkQueues::LISTED_MAX as u32 {
            queues.subscribed(key(number), &Destination::queue(&format!("q{number}")));
            queues.excluded(&Destination::queue(&format!("x{number}")), &format!("c{}", number % 2).into());
            let by = format!("c{}", number % 2).into();
            queues.barred(&Destination::queue(&format!("x{number}")), &by, LinkBar::TooFar);
        }
        let QueuesOfLink { read, excluded, barred } = queues.copy();
        let max = LinkQueues::LISTED_MAX;
        assert_eq!((read.len(), excluded.len(), barred.len()), (max, max, max));
        queues.unsubscribed(key(0));
        queues.released(&"c0".into());
        let QueuesOfLink { read, excluded, barred } = queues.copy();
        assert_eq!((read.len(), excluded.len(), barred.len()), (max - 1, max / 2, max / 2));
    }
}
