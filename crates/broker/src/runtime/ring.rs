//! Rings between threads: bounded, one producer, one consumer, with a waker for the consumer.
//!
//! A sender never waits: what finds no room stays with the sender, in order, until the next try.
//! Its amount is bounded by what connections may have outstanding.

use std::collections::VecDeque;
use std::sync::Arc;

use rtrb::{Consumer, Producer, PushError, RingBuffer};

/// Messages that a ring holds: a few turns' worth, so that the sender's own queue stays empty.
const RING_MESSAGES: usize = 1024;

/// Wakes the thread that reads a ring.
pub trait Wake: Send + Sync {
    /// May be called at any time, from any thread; a wake-up of an awake thread is kept for its next sleep.
    fn wake(&self);
}

impl Wake for tokio::sync::Notify {
    fn wake(&self) {
        self.notify_one();
    }
}

impl Wake for std::thread::Thread {
    fn wake(&self) {
        self.unpark();
    }
}

/// The sending end.
pub struct Sender<T> {
    ring: Producer<T>,
    waiting: VecDeque<T>,
    sent: bool,
}

/// The receiving end.
pub type Receiver<T> = Consumer<T>;

/// A new ring.
pub fn ring<T>() -> (Sender<T>, Receiver<T>) {
    let (producer, consumer) = RingBuffer::new(RING_MESSAGES);
    (Sender { ring: producer, waiting: VecDeque::new(), sent: false }, consumer)
}

impl<T> Sender<T> {
    /// Puts a message behind all earlier ones.
    pub fn send(&mut self, message: T) {
        self.waiting.push_back(message);
        self.push_waiting();
    }

    fn push_waiting(&mut self) {
        while let Some(message) = self.waiting.pop_front() {
            if let Err(PushError::Full(message)) = self.ring.push(message) {
                self.waiting.push_front(message);
                return;
            }
            self.sent = true;
        }
    }

    /// Tries again with what found no room; `true` if the receiver has something new and is to be woken.
    pub fn flush(&mut self) -> bool {
        self.push_waiting();
        std::mem::take(&mut self.sent) || !self.waiting.is_empty()
    }
}

/// A sender with the receiver's waker.
pub struct WakingSender<T> {
    /// The ring.
    pub sender: Sender<T>,
    /// The reader's waker.
    pub waker: Arc<dyn Wake>,
}

impl<T> WakingSender<T> {
    /// Wakes the receiver if there is something new for it.
    pub fn flush(&mut self) {
        if self.sender.flush() {
            self.waker.wake();
        }
    }
}
