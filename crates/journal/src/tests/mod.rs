//! Tests of the whole room, through its public functions only.

mod compaction;
mod cut;
mod damage;
mod encryption;
mod fixture;
mod fuzzed;
mod index;
mod model;
mod real;
mod repair;
mod service;
pub(crate) mod simulation;
mod sorted;
mod states;

use crate::{Checkpoint, StoredCheckpoint};

/// These states, all of them in memory.
fn in_memory(stored: &[StoredCheckpoint]) -> Vec<Checkpoint> {
    stored.iter().map(|checkpoint| checkpoint.read().expect("a good checkpoint can be read")).collect()
}
