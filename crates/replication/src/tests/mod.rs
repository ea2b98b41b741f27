//! Tests of this room that need more than one of its parts.

mod copied;
mod damage;
mod replicas;
