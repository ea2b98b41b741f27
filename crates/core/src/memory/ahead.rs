//! Bodies that were read back or given back, and that nobody has taken yet: what leaves again where memory is too short for all.

use std::collections::VecDeque;

use crate::memory::bodies::Sought;

/// Those that somebody has taken are swept out once there may be as many of them as of the others, and so many more.
const SWEPT_MIN: usize = 1024;

/// See the head of this file.
#[derive(Default)]
pub struct Ahead {
    /// What they take together.
    bytes: u64,
    /// The oldest first; among them some that are no longer ahead.
    order: VecDeque<Sought>,
    sweep_at: usize,
}

impl Ahead {
    /// What they take together.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// One more of so many bytes; `is_ahead` tells which of the others still are.
    pub fn add(&mut self, body: Sought, bytes: u64, is_ahead: impl Fn(&Sought) -> bool) {
        self.bytes += bytes;
        self.order.push_back(body);
        if self.sweep_at.max(SWEPT_MIN) <= self.order.len() {
            self.order.retain(is_ahead);
            self.sweep_at = 2 * self.order.len() + SWEPT_MIN;
        }
    }

    /// One of so many bytes is ahead no longer.
    pub fn remove(&mut self, bytes: u64) {
        self.bytes -= bytes;
    }

    /// The oldest, which may be ahead no longer.
    pub fn oldest(&mut self) -> Option<Sought> {
        self.order.pop_front()
    }
}
