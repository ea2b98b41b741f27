//! The `postroad-bench` binary: the command line of the measurements.
//!
//! Each measurement is a sub-command, and a file in `cli` that reads its arguments and prints its
//! result.
//! Never here: the measuring, which is the library beside it.

mod cli;

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;

/// The allocator of the broker: a load generator with another one would not be comparable with
/// earlier figures.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    match cli::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("postroad-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}
