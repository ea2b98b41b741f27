//! A replica that has ended begins again from its disk: the process takes its own place, with the
//! same arguments.
//!
//! All connections of clients are closed by that, and nothing that only a leader knows is left.

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

/// A replica that ends again and again does not keep a processor busy.
const PAUSE: Duration = Duration::from_millis(250);

/// Where the system shows the program that runs, should its file have been replaced.
const PROGRAM: &str = "/proc/self/exe";

/// The exit code if cannot restart the process: a supervisor is to try it later (EX_TEMPFAIL of
/// sysexits.h).
const EXIT_AGAIN: i32 = 75;

/// Begins again.
pub fn restart(reason: &str) -> ! {
    tracing::warn!(reason, "this replica restarts from its disk, as a follower");
    std::thread::sleep(PAUSE);
    let program = std::env::current_exe().ok().filter(|program| program.exists());
    let program = program.unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = Command::new(program).args(std::env::args_os().skip(1)).exec();
    tracing::error!(%error, "cannot restart the process");
    std::process::exit(EXIT_AGAIN)
}
