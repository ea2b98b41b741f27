//! Outstanding input of connections: each has a limit by itself, and all of a core together.

use std::cell::Cell;
use std::rc::Rc;

use postroad_model::Ticket;
use rustc_hash::FxHashMap;
use tokio::sync::Notify;

/// A connection is not read while this many bytes of its input wait for their replies: enough to
/// keep a group commit busy.
const BYTES_MAX: u64 = 4 << 20;

/// As [`BYTES_MAX`], in messages.
const MESSAGES_MAX: usize = 8192;

/// Bytes of each waiting message beside its body: its event and its record, later steps, its places
/// in tables.
const OVERHEAD_BYTES: u64 = 512;

/// A connection may have this fraction of the rest of its core's share, so that the first few busy
/// ones do not leave all others with nothing.
const PART: u64 = 4;

/// The limit of all connections of one core. One without outstanding input may always send
/// something: beyond the share it is read once, and again after the answer.
pub struct Share {
    bytes_max: u64,
    bytes: Cell<u64>,
    /// Notifies connections that wait for others.
    room: Notify,
}

impl Share {
    /// This number of bytes for the connections of a core.
    pub fn new(bytes_max: u64) -> Share {
        Share { bytes_max, bytes: Cell::new(0), room: Notify::new() }
    }

    /// Waits until the connections of the core have less outstanding.
    pub async fn freed(&self) {
        self.room.notified().await;
    }

    /// The present limit of one connection.
    fn part(&self) -> u64 {
        self.bytes_max.saturating_sub(self.bytes.get()) / PART
    }

    fn take(&self, bytes: u64) {
        self.bytes.set(self.bytes.get() + bytes);
    }

    fn give_back(&self, bytes: u64) {
        let before = self.bytes.get();
        let after = before.saturating_sub(bytes);
        self.bytes.set(after);
        // Not earlier: all would be woken for each answer that one of them gets.
        let half = self.bytes_max / 2;
        if after <= half && half < before {
            self.room.notify_waiters();
        }
    }
}

/// The outstanding input of one connection, by ticket.
pub struct Outstanding {
    share: Rc<Share>,
    tickets: FxHashMap<Ticket, u64>,
    bytes: u64,
}

impl Outstanding {
    /// Nothing yet.
    pub fn new(share: Rc<Share>) -> Outstanding {
        Outstanding { share, tickets: FxHashMap::default(), bytes: 0 }
    }

    /// This number of bytes waits for the answer to this ticket alone.
    pub fn add(&mut self, ticket: Ticket, bytes: u64) {
        self.tickets.insert(ticket, bytes);
        self.bytes += bytes;
        self.share.take(bytes + OVERHEAD_BYTES);
    }

    /// The ticket is answered, if it is one of these.
    pub fn end(&mut self, ticket: Ticket) {
        if let Some(bytes) = self.tickets.remove(&ticket) {
            self.bytes -= bytes;
            self.share.give_back(bytes + OVERHEAD_BYTES);
        }
    }

    fn taken(&self) -> u64 {
        self.bytes + self.tickets.len() as u64 * OVERHEAD_BYTES
    }

    /// Whether the connection may send more.
    pub fn has_room(&self) -> bool {
        self.bytes < BYTES_MAX && self.tickets.len() < MESSAGES_MAX && !self.waits_for_others()
    }

    fn waits_for_others(&self) -> bool {
        !self.tickets.is_empty() && self.share.part() <= self.taken()
    }

    /// Waits until the other connections of the core have less outstanding, if the connection waits
    /// for that.
    pub async fn others_have_less(&self) {
        match self.waits_for_others() {
            // Apart, for each connection would have the room for it otherwise.
            true => Box::pin(self.share.room.notified()).await,
            false => std::future::pending().await,
        }
    }
}

impl Drop for Outstanding {
    fn drop(&mut self) {
        self.share.give_back(self.taken());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The connection sends messages of this size until it is not read any more; returns its
    /// outstanding bytes.
    fn fill(outstanding: &mut Outstanding, bytes: u64) -> usize {
        for number in outstanding.tickets.len() as u64.. {
            if !outstanding.has_room() {
                break;
            }
            outstanding.add(Ticket(number), bytes);
        }
        outstanding.tickets.len()
    }

    #[test]
    fn a_connection_alone_has_bytes_or_messages_at_most() {
        for (case, bytes, want) in [
            ("large ones", 1 << 20, 4),
            ("small ones", 10, MESSAGES_MAX),
            ("one beyond the limit", 5 << 20, 1),
            ("empty ones", 0, MESSAGES_MAX),
        ] {
            let share = Rc::new(Share::new(1 << 40));
            let mut outstanding = Outstanding::new(share.clone());
            assert_eq!(fill(&mut outstanding, bytes), want, "case: {case}");
            outstanding.end(Ticket(0));
            assert!(outstanding.has_room(), "case: {case}");
            drop(outstanding);
            assert_eq!(share.bytes.get(), 0, "case: {case}");
        }
    }

    #[test]
    fn ten_thousand_connections_have_the_share_and_one_message_each() {
        const SHARE: u64 = 64 << 20;
        const MESSAGE: u64 = 16 << 10;
        const CONNECTIONS: usize = 10_000;
        let share = Rc::new(Share::new(SHARE));
        let new = || Outstanding::new(share.clone());
        let mut all: Vec<Outstanding> = std::iter::repeat_with(new).take(CONNECTIONS).collect();
        let counts: Vec<usize> = all.iter_mut().map(|own| fill(own, MESSAGE)).collect();
        assert_eq!(
            (counts[0], counts[CONNECTIONS - 1]),
            (256, 1),
            "the first has its own limit, the last one message"
        );
        let most = SHARE + CONNECTIONS as u64 * (MESSAGE + OVERHEAD_BYTES);
        assert!((SHARE..=most).contains(&share.bytes.get()), "{}", share.bytes.get());
        // Without the share each would have as much as the first.
        assert!(most < CONNECTIONS as u64 * BYTES_MAX / 100);
    }

    #[tokio::test]
    async fn who_waits_for_others_goes_on_when_they_have_less() {
        let share = Rc::new(Share::new(1 << 20));
        let (mut blocked, mut waiting) = (Outstanding::new(share.clone()), Outstanding::new(share.clone()));
        blocked.add(Ticket(1), 1 << 20);
        assert_eq!(fill(&mut waiting, 100), 1);
        let woken = {
            let mut goes_on = std::pin::pin!(waiting.others_have_less());
            let pause = std::time::Duration::from_millis(1);
            assert!(tokio::time::timeout(pause, goes_on.as_mut()).await.is_err());
            blocked.end(Ticket(1));
            tokio::time::timeout(pause, goes_on).await.is_ok()
        };
        assert!(woken && waiting.has_room());
        let pause = std::time::Duration::from_millis(1);
        assert!(
            tokio::time::timeout(pause, waiting.others_have_less()).await.is_err(),
            "it waits for nobody"
        );
    }
}
