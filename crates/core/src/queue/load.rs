//! How much a queue holds, and may hold.

use postroad_routing::Limit;

use super::Queue;

/// Messages, and the bytes of their bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// How many.
    pub messages: u64,
    /// How large together.
    pub bytes: u64,
}

impl Load {
    /// One more of this size.
    pub fn add(&mut self, bytes: u64) {
        self.messages += 1;
        self.bytes += bytes;
    }

    /// All these more.
    pub fn add_all(&mut self, more: Load) {
        self.messages = self.messages.saturating_add(more.messages);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }

    /// One fewer of this size.
    pub fn remove(&mut self, bytes: u64) {
        self.messages = self.messages.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// All these fewer.
    pub fn remove_all(&mut self, less: Load) {
        self.messages = self.messages.saturating_sub(less.messages);
        self.bytes = self.bytes.saturating_sub(less.bytes);
    }

    /// Whether a limit allows as much, with this size on the disk.
    pub fn is_within(self, limit: &Limit, disk_bytes: u64) -> bool {
        let fits = |max: Option<u64>, held: u64| max.is_none_or(|max| held <= max);
        fits(limit.messages_max, self.messages)
            && fits(limit.bytes_max, self.bytes)
            && fits(limit.disk_bytes_max, disk_bytes)
    }
}

impl Queue {
    /// Whether more waits for consumers than the limit allows. A single message is never too much.
    pub fn is_over(&self) -> bool {
        let waiting = Load {
            messages: self.load.messages.saturating_sub(self.away.messages),
            bytes: self.load.bytes.saturating_sub(self.away.bytes),
        };
        let on_disk = waiting.bytes.saturating_sub(self.volatile_bytes);
        waiting.messages > 1 && !waiting.is_within(&self.limit, on_disk)
    }

    /// Whether one more of this size may come, with those that are on their way and as many others.
    /// An empty queue takes any; only persistent messages take disk space.
    pub fn has_room_for(&self, bytes: u64, persistent: bool, others: Load) -> bool {
        let mut load = self.load;
        load.add_all(self.incoming);
        load.add_all(others);
        let is_empty = load.messages == 0;
        load.add(bytes);
        let on_disk = if persistent { load.bytes.saturating_sub(self.volatile_bytes) } else { 0 };
        is_empty || load.is_within(&self.limit, on_disk)
    }
}
