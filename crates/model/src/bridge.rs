//! Links to other brokers, as operators see them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Messages go both ways.
    pub is_duplex: bool,
    /// How it does.
    pub figures: Arc<LinkFigures>,
}
