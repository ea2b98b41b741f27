//! How work beside the writing leaves the disk to the writing.

/// The pause between the steps of long work. The caller owns the clock, and decides.
pub trait Pace {
    /// After each step of a few hundred kilobytes, written and synced: may rest.
    fn step(&mut self);

    /// More is ready than is needed soon: waits a while, or says `false` to be done with it at
    /// once.
    fn ahead(&mut self) -> bool;
}

/// As fast as the disk goes.
impl Pace for () {
    fn step(&mut self) {}

    fn ahead(&mut self) -> bool {
        false
    }
}
