//! Sequence numbers of 32 bits on the wire (2.8.10), counted in 64 bits here, where they never come
//! round.

/// Counts up from zero. On the wire its lower half stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sequence(pub u64);

impl Sequence {
    /// As it stands on the wire.
    pub fn wire(self) -> u32 {
        self.0 as u32
    }

    /// The number that the peer means: of those with this lower half the nearest to `self`, the
    /// next one to be used. `None` if it would lie before the first.
    pub fn nearest(self, wire: u32) -> Option<Sequence> {
        let behind = i64::from(wire.wrapping_sub(self.wire()) as i32);
        self.0.checked_add_signed(behind).map(Sequence)
    }

    /// Takes this number, and goes on to the next.
    pub fn take(&mut self) -> Sequence {
        let taken = *self;
        self.0 += 1;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_on_the_wire_come_round() {
        let round = 1 << 32;
        for (case, next, wire, want) in [
            ("just sent", 5, 4, Some(4)),
            ("to be sent", 5, 5, Some(5)),
            ("ahead", 5, 9, Some(9)),
            ("before the round", round + 2, u32::MAX, Some(round - 1)),
            ("after the round", round + 2, 1, Some(round + 1)),
            ("before the first", 5, u32::MAX, None),
        ] {
            assert_eq!(Sequence(next).nearest(wire), want.map(Sequence), "case: {case}");
        }
    }
}
