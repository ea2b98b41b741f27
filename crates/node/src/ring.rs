//! Rings between threads: bounded, one producer, one consumer, with a waker for the consumer.
//!
//! A sender never waits: events without room stay with the sender, in order, until the next try.
//! Their number is bounded by the limit of outstanding events of connections.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

use rtrb::{Consumer, Producer, PushError, RingBuffer};

/// Messages that a ring holds: a few turns' worth, so that the sender's own queue stays empty.
const RING_MESSAGES: usize = 1024;

/// Wakes the thread that reads a ring.
pub trait Wake: Send + Sync {
    /// May be called at any time, from any thread; a wake-up of an awake thread is kept for its
    /// next sleep.
    fn wake(&self);
}

impl Wake for tokio::sync::Notify {
    fn wake(&self) {
        self.notify_one();
    }
}

/// Wakes a thread that is started after its rings were made.
#[derive(Default)]
pub struct ThreadWaker(OnceLock<Thread>);

impl ThreadWaker {
    /// The thread runs now.
    pub fn set(&self, thread: Thread) {
        // If it was set before, it is the same thread.
        let _ = self.0.set(thread);
    }
}

impl Wake for ThreadWaker {
    fn wake(&self) {
        if let Some(thread) = self.0.get() {
            thread.unpark();
        }
    }
}

/// The sending end.
pub struct Sender<T> {
    ring: Producer<T>,
    waiting: VecDeque<T>,
    sent: bool,
}

/// The receiving end.
pub struct Receiver<T> {
    ring: Consumer<T>,
    /// Messages taken since the ring was last empty.
    taken: usize,
    /// Wakes the sender.
    sender: Arc<dyn Wake>,
}

/// A new ring; `sender` wakes the thread that sends.
pub fn ring<T>(sender: Arc<dyn Wake>) -> (Sender<T>, Receiver<T>) {
    let (producer, consumer) = RingBuffer::new(RING_MESSAGES);
    let receiver = Receiver { ring: consumer, taken: 0, sender };
    (Sender { ring: producer, waiting: VecDeque::new(), sent: false }, receiver)
}

impl<T> Receiver<T> {
    /// The oldest message. After the last one a sender that may have found the ring full is woken,
    /// to send on: a ring that was full gives at least as many messages as it holds before it is
    /// empty.
    pub fn pop(&mut self) -> Option<T> {
        match self.ring.pop() {
            Ok(message) => {
                self.taken += 1;
                Some(message)
            }
            Err(_) => {
                if std::mem::take(&mut self.taken) >= RING_MESSAGES {
                    self.sender.wake();
                }
                None
            }
        }
    }
}

impl<T> Sender<T> {
    /// Puts a message after all earlier ones.
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

    /// Tries again the events without room; `true` if the receiver has something new and is to be
    /// woken.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_sender_that_found_no_room_is_woken_once_there_is_some() {
        let wakes = Arc::new(Count::default());
        let (mut sender, mut receiver) = ring(wakes.clone());
        let all: Vec<usize> = (0..3 * RING_MESSAGES + 1).collect();
        all.iter().for_each(|number| sender.send(*number));
        let mut got = Vec::new();
        for round in 1..=3 {
            got.extend(std::iter::from_fn(|| receiver.pop()));
            assert_eq!((got.len(), wakes.0.load(Ordering::Relaxed)), (round * RING_MESSAGES, round));
            assert!(sender.flush(), "there is more");
        }
        got.extend(std::iter::from_fn(|| receiver.pop()));
        assert_eq!((got, wakes.0.load(Ordering::Relaxed)), (all, 3));
    }
}
