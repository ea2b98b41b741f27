//! The `postroad` binary: a message broker and the tools around it.
//!
//! Sees all rooms and assembles them. It decides where a store lives, how it is written and when it
//! is given up, and nothing about messages. `cli` is the command line, `config` the configuration,
//! `runtime` the threads, `control` the control socket.
//! Never here: protocol bytes, queue decisions, journal formats.

mod cli;
mod config;
mod control;
mod runtime;

use std::process::ExitCode;
use tikv_jemallocator::Jemalloc;

/// A deep backlog leaves many small holes in memory, which slow down the system's allocator:
/// docs/decisions/0025.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    match cli::run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("postroad: {}", cli::complaint(&error));
            ExitCode::FAILURE
        }
    }
}
