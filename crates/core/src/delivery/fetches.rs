//! Bodies that are on their way from the log.

use std::collections::HashMap;

use postroad_model::{ConsumerKey, MessageKey, QueueId};
use rustc_hash::FxBuildHasher;

use crate::memory::bodies::BodyLocation;

/// One that cannot go on before a body is here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiter {
    /// The consumers of this queue, or another step that works through it.
    Queue(QueueId),
    /// This browser of the queue.
    Browser(QueueId, ConsumerKey),
    /// This consumer of a link, which takes over deliveries in doubt.
    Heir(QueueId, ConsumerKey),
}

impl Waiter {
    /// The queue in which the message is due.
    pub fn queue(self) -> QueueId {
        match self {
            Waiter::Queue(id) | Waiter::Browser(id, _) | Waiter::Heir(id, _) => id,
        }
    }

    /// The browser, if it is one.
    pub fn browser(self) -> Option<ConsumerKey> {
        match self {
            Waiter::Queue(_) | Waiter::Heir(..) => None,
            Waiter::Browser(_, key) => Some(key),
        }
    }
}

/// A body that is on its way from the log.
pub struct Fetch {
    /// Which.
    pub what: BodyLocation,
    /// How large it is.
    bytes: u64,
    /// Those that wait for it.
    pub waiting: Vec<Waiter>,
}

/// All of them.
#[derive(Default)]
pub struct Fetches {
    under_way: HashMap<MessageKey, Fetch, FxBuildHasher>,
    bytes: u64,
}

impl Fetches {
    /// Their total size once they are here.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether this one is on its way.
    pub fn has(&self, key: MessageKey) -> bool {
        self.under_way.contains_key(&key)
    }

    /// The one of this key.
    pub fn get(&self, key: MessageKey) -> Option<&Fetch> {
        self.under_way.get(&key)
    }

    /// This body of this size is on its way from now on, unless it was before.
    pub fn begin(&mut self, what: BodyLocation, bytes: u64) -> &mut Fetch {
        let total = &mut self.bytes;
        self.under_way.entry(what.key).or_insert_with(|| {
            *total += bytes;
            Fetch { what, bytes, waiting: Vec::new() }
        })
    }

    /// It has come, whether it is still needed or not.
    pub fn end(&mut self, key: MessageKey) -> Fetch {
        let ended = self.under_way.remove(&key);
        let ended = ended.unwrap_or_else(|| Fetch { what: key.into(), bytes: 0, waiting: Vec::new() });
        self.bytes -= ended.bytes;
        ended
    }
}
