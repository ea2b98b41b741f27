//! Tests of the whole room, through its public functions only.

mod compaction;
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
