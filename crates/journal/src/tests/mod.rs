//! Tests of the whole room, through its public functions only.

mod model;
mod service;
mod simulation;
