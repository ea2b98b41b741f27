//! The live records of a partition. The journal may compact away a record that does not count, so
//! none may count again.

use std::collections::HashMap;

use postroad_model::{MessageKey, MessageRow, Position};

/// How often each message of a record of a partition counts.
#[derive(Default)]
pub struct Kept {
    /// By record and ordinal.
    counts: HashMap<(Position, u32), u64>,
    /// The last record when the broker started.
    found: Option<Position>,
}

impl Kept {
    /// The live records at a start, and the last record that was found then.
    pub fn at_start(live: impl Iterator<Item = MessageRow>, found: Option<Position>) -> Kept {
        let mut counts = HashMap::new();
        for key in live.flat_map(|row| row.keys()) {
            if let MessageKey::Durable { position, ordinal } = key {
                *counts.entry((position, ordinal)).or_default() += 1;
            }
        }
        Kept { counts, found }
    }

    /// The first messages of a record count once more.
    pub fn retain(&mut self, position: Position, count: u32) -> Result<(), String> {
        for ordinal in 0..count {
            match self.counts.get_mut(&(position, ordinal)) {
                None if Some(position) <= self.found => {
                    return Err(format!("{position:?} did not count at the start, and counts now"));
                }
                Some(0) => return Err(format!("{position:?} did not count any more, and counts again")),
                Some(before) => *before += 1,
                None => {
                    self.counts.insert((position, ordinal), 1);
                }
            }
        }
        Ok(())
    }

    /// A message of a record counts once less.
    pub fn release(&mut self, position: Position, ordinal: u32) -> Result<(), String> {
        let count = self.counts.get_mut(&(position, ordinal)).filter(|count| 0 < **count);
        *count.ok_or_else(|| format!("message {ordinal} of {position:?} is released once too often"))? -= 1;
        Ok(())
    }
}
