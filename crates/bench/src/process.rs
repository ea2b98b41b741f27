//! The operating system's data on the server's process: processor time and memory.

use std::fs;
use std::io;
use std::time::Duration;

/// Ticks of the processor clock in `/proc`, to a second: fixed by Linux for all programs (USER_HZ).
const TICKS_PER_SECOND: u64 = 100;

/// Processor time of a process on this machine.
#[derive(Clone, Copy, Debug)]
pub struct ServerTime {
    pid: u32,
}

impl ServerTime {
    /// The process of this number.
    pub fn of(pid: u32) -> ServerTime {
        ServerTime { pid }
    }

    /// The process's number.
    pub fn pid(self) -> u32 {
        self.pid
    }

    /// Whether it runs; one that ended and was not waited for does not. While any of its threads is
    /// still ending, it has its ports and locks.
    pub fn is_alive(self) -> bool {
        fs::read_to_string(format!("/proc/{}/stat", self.pid)).is_ok_and(|stat| runs(&stat))
    }

    /// Time that all its threads have spent so far, user and system; `None` if there is no such
    /// process here.
    pub fn spent(self) -> Option<Duration> {
        ticks(&fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok()?)
            .map(|ticks| Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
    }

    /// Its resident memory in MiB; `None` if there is no such process here.
    pub fn resident_mib(self) -> Option<f64> {
        resident_kib(&fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?)
            .map(|kib| kib as f64 / 1024.0)
    }
}

/// Time that the calling thread has spent so far, user and system: the first number of
/// `/proc/PID/task/TID/schedstat` (proc(5)).
pub(crate) fn own_thread_time() -> io::Result<Duration> {
    let told = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanos = told.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    Ok(Duration::from_nanos(nanos.ok_or(io::ErrorKind::InvalidData)?))
}

fn resident_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Fields 3 and 20 of `/proc/PID/stat` (proc(5)): the first thread of a process may have ended, as
/// `Z`, before others.
fn runs(stat: &str) -> bool {
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let mut fields = rest.split_whitespace();
    let ended = matches!(fields.next(), Some("Z" | "X"));
    let threads = fields.nth(16).and_then(|threads| threads.parse::<u64>().ok());
    !ended || threads.is_some_and(|threads| threads > 1)
}

/// Fields 14 and 15 of `/proc/PID/stat` (proc(5)); the name in field 2 may hold spaces and
/// brackets.
fn ticks(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_system_time_are_added() {
        for (case, stat, want) in [
            ("plain", "7 (a) S 1 1 1 0 -1 4 5 0 0 0 12 30 0 0 20", Some(42)),
            ("name with brackets", "7 (a) b) S 1 1 1 0 -1 4 5 0 0 0 1 2 0", Some(3)),
            ("cut", "7 (a) S 1", None),
        ] {
            assert_eq!(ticks(stat), want, "case: {case}");
        }
    }

    #[test]
    fn a_process_runs_until_its_last_thread_has_ended() {
        for (case, stat, want) in [
            ("runs", "7 (a) S 1 1 1 0 -1 4 5 0 0 0 12 30 0 0 20 0 9 0", true),
            ("alone", "7 (a) R 1 1 1 0 -1 4 5 0 0 0 12 30 0 0 20 0 1 0", true),
            ("its first thread has ended", "7 (a) Z 1 1 1 0 -1 4 5 0 0 0 12 30 0 0 20 0 3 0", true),
            ("all have", "7 (a) Z 1 1 1 0 -1 4 5 0 0 0 12 30 0 0 20 0 1 0", false),
            ("name with brackets", "7 (a) Z) S 1 1 1 0 -1 4 5 0 0 0 1 2 0 0 20 0 2 0", true),
            ("cut", "7 (a", false),
        ] {
            assert_eq!(runs(stat), want, "case: {case}");
        }
    }

    #[test]
    fn resident_memory_is_read_in_kib() {
        for (case, status, want) in
            [("there", "Name:\ta\nVmRSS:\t  5120 kB\n", Some(5120)), ("a kernel thread", "Name:\ta\n", None)]
        {
            assert_eq!(resident_kib(status), want, "case: {case}");
        }
    }
}
