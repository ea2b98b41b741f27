//! A simulated spill file: the data that it takes or refuses depends on the bytes alone.

use std::sync::Arc;

use bytes::Bytes;
use postroad_model::{Spill, Spilled};

/// See the head of this file.
#[derive(Debug)]
pub struct SimulatedSpill;

#[derive(Debug)]
struct Kept(Bytes);

impl Spill for SimulatedSpill {
    fn put(&self, bytes: &Bytes) -> Option<Arc<dyn Spilled>> {
        (!bytes.len().is_multiple_of(4))
            .then(|| Arc::new(Kept(Bytes::copy_from_slice(bytes))) as Arc<dyn Spilled>)
    }
}

impl Spilled for Kept {
    fn byte_length(&self) -> usize {
        self.0.len()
    }

    fn read(&self) -> Bytes {
        self.0.clone()
    }
}
