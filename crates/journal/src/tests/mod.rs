//! Tests of the whole room, through its public functions only.

mod service;
