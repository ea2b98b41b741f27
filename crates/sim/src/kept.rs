//! What a partition counts as live. The journal may compact away a record that does not count, so none may count again.

use std::collections::HashMap;

use postroad_model::{MessageRow, Position};

/// How often each record of a partition counts.
#[derive(Default)]
pub struct Kept {
    counts: HashMap<Position, u64>,
    /// The last record when the broker started.
    found: Option<Position>,
}

impl Kept {
    /// What was live at a start, and the last record that was found then.
    pub fn at_start(live: impl Iterator<Item = MessageRow>, found: Option<Position>) -> Kept {
        let mut counts = HashMap::new();
        for row in live {
            let first = row.first.get();
            for position in (first..first + row.records).filter_map(Position::new) {
                *counts.entry(position).or_default() += u64::from(row.messages);
            }
        }
        Kept { counts, found }
    }

    /// A record counts so many times more.
    pub fn retain(&mut self, position: Position, count: u32) -> Result<(), String> {
        match self.counts.get_mut(&position) {
            None if Some(position) <= self.found => {
                Err(format!("{position:?} did not count at the start, and counts now"))
            }
            Some(0) => Err(format!("{position:?} did not count any more, and counts again")),
            Some(before) => {
                *before += u64::from(count);
                Ok(())
            }
            None => {
                self.counts.insert(position, u64::from(count));
                Ok(())
            }
        }
    }

    /// A record counts once less.
    pub fn release(&mut self, position: Position) -> Result<(), String> {
        let count = self.counts.get_mut(&position).filter(|count| 0 < **count);
        *count.ok_or_else(|| format!("{position:?} is released once too often"))? -= 1;
        Ok(())
    }
}
