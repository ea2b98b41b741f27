//! The `postroad` binary: a message broker and the tools around it.
//!
//! The only room that sees all others; it assembles them and decides nothing itself. `cli` is what people type,
//! `config` what they configure, `runtime` the threads, `control` what is asked of them on the same machine.
//! Never here: protocol bytes, queue decisions, journal formats.

mod cli;
mod config;
mod control;
mod runtime;

use std::process::ExitCode;
use tikv_jemallocator::Jemalloc;

/// What a deep backlog leaves behind is many small holes, among which the system's allocator looks for long: docs/decisions/0025.
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
