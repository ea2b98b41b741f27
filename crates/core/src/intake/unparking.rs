//! Unparking: all addresses at which sends wait are looked at again, some in each step.
//!
//! A round goes through them in their order. Another cause that comes meanwhile begins one more
//! round after it, so none keeps those at its end from their turn.

use postroad_model::Destination;

/// Addresses that one step looks at, and sends that it lets in.
pub const LOOKED_MAX: usize = 256;

/// See the head of this file.
#[derive(Default)]
pub struct Unparking {
    /// The last address of the round that was looked at, with `None` before the first.
    at: Option<Option<Destination>>,
    /// One more round follows.
    again: bool,
}

impl Unparking {
    /// Begins a round, at once or after the one that is under way.
    pub fn begin(&mut self) {
        match &self.at {
            Some(Some(_)) => self.again = true,
            _ => self.at = Some(None),
        }
    }

    /// Where the round is, if one is under way.
    pub fn at(&self) -> Option<Option<&Destination>> {
        self.at.as_ref().map(Option::as_ref)
    }

    /// This address was looked at.
    pub fn pass(&mut self, to: Destination) {
        self.at = Some(Some(to));
    }

    /// The round is over.
    pub fn end(&mut self) {
        self.at = std::mem::take(&mut self.again).then_some(None);
    }

    /// When it goes on.
    pub fn next_ms(&self, now_ms: u64) -> Option<u64> {
        self.at.is_some().then_some(now_ms + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_that_is_under_way_ends_before_the_next_begins() {
        let mut unparking = Unparking::default();
        assert_eq!((unparking.at(), unparking.next_ms(3)), (None, None));
        unparking.begin();
        unparking.begin();
        assert_eq!(unparking.at(), Some(None));
        let to = Destination::queue("a");
        unparking.pass(to.clone());
        unparking.begin();
        assert_eq!((unparking.at(), unparking.next_ms(3)), (Some(Some(&to)), Some(4)));
        unparking.end();
        assert_eq!(unparking.at(), Some(None));
        unparking.end();
        assert_eq!(unparking.at(), None);
    }
}
