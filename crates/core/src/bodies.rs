//! The messages of a partition: each once, however many queues hold it.

use std::collections::HashMap;

use bytes::Bytes;
use postroad_model::{Message, MessageKey};
use rustc_hash::FxBuildHasher;

use crate::partition::Memory;

/// What a message takes beside its body while it is here: its headers, and the entries that point to it.
const HEADERS_BYTES: u64 = 200;

/// All messages that some queue or prepared transaction refers to, but for those in folded pages.
#[derive(Default)]
pub struct Bodies {
    stored: HashMap<MessageKey, Stored, FxBuildHasher>,
    /// Bytes of durable messages that are in memory.
    pub resident_bytes: u64,
    /// Bytes of messages that are only in memory.
    pub volatile_bytes: u64,
    /// Messages in folded pages.
    pub folded: u64,
}

struct Stored {
    message: Message,
    bytes: u64,
    references: u32,
    pins: u32,
    resident: bool,
}

impl Bodies {
    /// Stores a message with no reference yet.
    pub fn insert(&mut self, key: MessageKey, message: Message) {
        let bytes = message.bytes.len() as u64;
        *self.account(key) += bytes;
        self.stored.insert(key, Stored { message, bytes, references: 0, pins: 0, resident: true });
    }

    /// Stores a durable message whose body stays on disk until it is asked for.
    pub fn insert_absent(&mut self, key: MessageKey, message: Message, bytes: u64) {
        self.stored.insert(key, Stored { message, bytes, references: 0, pins: 0, resident: false });
    }

    /// What all of them take.
    pub fn memory(&self) -> Memory {
        let (resident_bytes, volatile_bytes) = (self.resident_bytes, self.volatile_bytes);
        let messages = self.stored.len() as u64 + self.folded;
        Memory { messages, folded_messages: self.folded, resident_bytes, volatile_bytes }
    }

    /// What those that are here take, but for the bodies of messages that are only in memory.
    pub fn with_headers(&self) -> u64 {
        self.resident_bytes + self.stored.len() as u64 * HEADERS_BYTES
    }

    fn account(&mut self, key: MessageKey) -> &mut u64 {
        match key {
            MessageKey::Durable { .. } => &mut self.resident_bytes,
            MessageKey::Volatile(_) => &mut self.volatile_bytes,
        }
    }

    /// One more queue or transaction holds it.
    pub fn refer(&mut self, key: MessageKey) {
        self.claim(key);
    }

    /// One more queue holds it: its headers, if it is there.
    pub fn claim(&mut self, key: MessageKey) -> Option<&Message> {
        let stored = self.stored.get_mut(&key)?;
        stored.references += 1;
        Some(&stored.message)
    }

    /// One queue fewer holds it; the size of its body if that was the last one, and the message is gone.
    pub fn unrefer(&mut self, key: MessageKey) -> Option<u64> {
        let stored = self.stored.get_mut(&key)?;
        stored.references = stored.references.saturating_sub(1);
        if stored.references > 0 {
            return None;
        }
        let bytes = stored.bytes;
        self.forget(key);
        Some(bytes)
    }

    /// Takes a message out that will come back with [`Bodies::insert_absent`], or never.
    pub fn forget(&mut self, key: MessageKey) {
        if let Some(stored) = self.stored.remove(&key)
            && stored.resident
        {
            *self.account(key) -= stored.bytes;
        }
    }

    /// Headers and size of a message that one queue holds and no consumer has.
    pub fn referred_once(&self, key: MessageKey) -> Option<(&Message, u64)> {
        let stored = self.stored.get(&key).filter(|stored| stored.references == 1 && stored.pins == 0)?;
        Some((&stored.message, stored.bytes))
    }

    /// The message, if its body is in memory.
    pub fn resident(&self, key: MessageKey) -> Option<&Message> {
        self.stored.get(&key).filter(|stored| stored.resident).map(|stored| &stored.message)
    }

    /// The message's headers, whether or not the body is here, and the size of the body.
    pub fn headers(&self, key: MessageKey) -> Option<(&Message, u64)> {
        self.stored.get(&key).map(|stored| (&stored.message, stored.bytes))
    }

    /// A consumer holds it: the body stays in memory.
    pub fn pin(&mut self, key: MessageKey) {
        if let Some(stored) = self.stored.get_mut(&key) {
            stored.pins += 1;
        }
    }

    /// One consumer fewer holds it.
    pub fn unpin(&mut self, key: MessageKey) {
        if let Some(stored) = self.stored.get_mut(&key) {
            stored.pins = stored.pins.saturating_sub(1);
        }
    }

    /// What a message that is only in memory takes there; zero for others.
    pub fn volatile_size(&self, key: MessageKey) -> u64 {
        match key {
            MessageKey::Volatile(_) => self.stored.get(&key).map_or(0, |stored| stored.bytes),
            MessageKey::Durable { .. } => 0,
        }
    }

    /// Takes the body of a durable message out of memory; it can be read back from the log.
    pub fn evict(&mut self, key: MessageKey) {
        if let MessageKey::Durable { .. } = key
            && let Some(stored) = self.stored.get_mut(&key)
            && stored.resident
            && stored.pins == 0
        {
            stored.resident = false;
            stored.message.bytes = Bytes::new();
            self.resident_bytes -= stored.bytes;
        }
    }

    /// Puts a body back that was read from the log.
    pub fn restore(&mut self, key: MessageKey, message: Message) {
        if let Some(stored) = self.stored.get_mut(&key)
            && !stored.resident
        {
            stored.resident = true;
            stored.message = message;
            self.resident_bytes += stored.bytes;
        }
    }

    /// Every durable message, in no particular order.
    pub fn durable(&self) -> impl Iterator<Item = (MessageKey, &Message, u64)> {
        self.stored
            .iter()
            .filter(|(key, _)| matches!(key, MessageKey::Durable { .. }))
            .map(|(key, stored)| (*key, &stored.message, stored.bytes))
    }
}
