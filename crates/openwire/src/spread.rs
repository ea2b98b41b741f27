//! Clients are spread: `failover:` clients of one broker know the others of its network, and some
//! move when they have fewer clients.
//!
//! ```text
//!   links, counts of peers ──▶ ClientSpread ──▶ each session, when its client says something or is due a sign of life
//!                                  ▲                 └─▶ ConnectionControl: list of brokers, and whether to connect again
//!                                  └── clients of this broker
//! ```
//! Written by the broker a few times a minute, read by sessions: an atomic each.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// See the head of this file.
#[derive(Debug, Default)]
pub struct ClientSpread {
    /// Counts changes of the list; zero before the first.
    version: AtomicU64,
    lists: Mutex<Lists>,
    /// Clients that may still be moved.
    moves: AtomicU64,
    clients: AtomicU64,
}

#[derive(Debug, Default)]
struct Lists {
    /// For clients that stay: URLs with commas in between, this broker first.
    all: Arc<str>,
    /// For clients that move: the other brokers, that with the fewest clients first.
    onward: Arc<str>,
}

impl ClientSpread {
    /// The brokers that clients may use, this one first. A change is sent to each `failover:`
    /// client.
    pub fn set_brokers(&self, urls: &[String]) {
        let all = urls.join(",");
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if *lists.all != *all {
            lists.all = all.into();
            self.version.fetch_add(1, Ordering::Release);
        }
    }

    /// This number of clients is to move, to the first of these brokers if they can.
    pub fn set_moves(&self, clients: u64, urls: &[String]) {
        if 0 < clients {
            self.lists.lock().unwrap_or_else(PoisonError::into_inner).onward = urls.join(",").into();
        }
        self.moves.store(clients, Ordering::Release);
    }

    /// Clients connected now.
    pub fn clients(&self) -> u64 {
        self.clients.load(Ordering::Relaxed)
    }

    /// How often the list has changed.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The list for clients that stay.
    pub(crate) fn brokers(&self) -> Arc<str> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner).all.clone()
    }

    /// The list for a client that is to move; `None` if enough have moved.
    pub(crate) fn take_move(&self) -> Option<Arc<str>> {
        if self.moves.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let less = |moves: u64| moves.checked_sub(1);
        self.moves.fetch_update(Ordering::AcqRel, Ordering::Acquire, less).ok()?;
        Some(self.lists.lock().unwrap_or_else(PoisonError::into_inner).onward.clone())
    }
}

/// Counts a client for as long as it lives.
#[derive(Debug)]
pub(crate) struct CountedClient(Arc<ClientSpread>);

impl CountedClient {
    pub(crate) fn new(spread: Arc<ClientSpread>) -> CountedClient {
        spread.clients.fetch_add(1, Ordering::Relaxed);
        CountedClient(spread)
    }
}

impl Drop for CountedClient {
    fn drop(&mut self) {
        self.0.clients.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_clients_move_as_were_asked_for() {
        let spread = ClientSpread::default();
        assert_eq!(spread.take_move(), None, "balanced");
        spread.set_moves(2, &["tcp://b:1".to_owned(), "tcp://a:1".to_owned()]);
        let moved: Vec<_> = (0..4).map(|_| spread.take_move().as_deref().map(str::to_owned)).collect();
        let onward = Some("tcp://b:1,tcp://a:1".to_owned());
        assert_eq!(moved, [onward.clone(), onward, None, None]);
    }

    #[test]
    fn a_list_that_stays_the_same_is_told_once() {
        let spread = ClientSpread::default();
        for (urls, version) in [(["a", "b"], 1), (["a", "b"], 1), (["a", "c"], 2)] {
            spread.set_brokers(&urls.map(str::to_owned));
            assert_eq!(spread.version(), version, "{urls:?}");
        }
        assert_eq!(&*spread.brokers(), "a,c");
    }

    #[test]
    fn clients_are_counted_while_they_live() {
        let spread = Arc::new(ClientSpread::default());
        let clients = [(); 3].map(|()| CountedClient::new(spread.clone()));
        assert_eq!(spread.clients(), 3);
        drop(clients);
        assert_eq!(spread.clients(), 0);
    }
}
