//! Bodies that were read back or returned, and are not in flight: they leave again where memory is
//! too short for all.

use std::collections::VecDeque;
use std::num::NonZero;

use crate::memory::bodies::BodyLocation;

/// Those in flight are swept out once there may be as many of them as of the others, and this many
/// more.
const SWEPT_MIN: usize = 1024;

/// The mark of a body while it is ahead: another one each time.
pub type Mark = NonZero<u32>;

/// See the head of this file.
#[derive(Default)]
pub struct ReadAhead {
    /// Their total size.
    bytes: u64,
    /// The oldest first, each with the mark that it got; among them some that are no longer ahead.
    order: VecDeque<(BodyLocation, Mark)>,
    last: u32,
    sweep_at: usize,
}

impl ReadAhead {
    /// Their total size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// One more of this size; `is_ahead` says which of the others still are, by their marks.
    pub fn add(
        &mut self,
        body: BodyLocation,
        bytes: u64,
        is_ahead: impl Fn(BodyLocation, Mark) -> bool,
    ) -> Mark {
        if self.sweep_at.max(SWEPT_MIN) <= self.order.len() {
            self.order.retain(|(body, mark)| is_ahead(*body, *mark));
            self.sweep_at = 2 * self.order.len() + SWEPT_MIN;
        }
        self.bytes += bytes;
        self.last = self.last.wrapping_add(1);
        let mark = Mark::new(self.last).unwrap_or(Mark::MAX);
        self.order.push_back((body, mark));
        mark
    }

    /// One of this size is ahead no longer.
    pub fn remove(&mut self, bytes: u64) {
        self.bytes -= bytes;
    }

    /// The oldest, which may be ahead no longer.
    pub fn oldest(&mut self) -> Option<(BodyLocation, Mark)> {
        self.order.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postroad_model::{MessageKey, Position};

    #[test]
    fn one_that_comes_and_goes_leaves_nothing_behind() {
        let body = BodyLocation::from(MessageKey::Durable { position: Position::FIRST, ordinal: 0 });
        let (mut ahead, mut current) = (ReadAhead::default(), None);
        for _ in 0..20 * SWEPT_MIN {
            if current.take().is_some() {
                ahead.remove(7);
            }
            current = Some(ahead.add(body, 7, |_, mark| Some(mark) == current));
            assert!(ahead.order.len() <= 2 * SWEPT_MIN, "{}", ahead.order.len());
        }
        assert_eq!(ahead.bytes(), 7);
        let marks = std::iter::from_fn(|| ahead.oldest()).map(|(_, mark)| mark);
        assert_eq!(marks.last(), current, "the last one is there");
    }
}
