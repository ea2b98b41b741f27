//! What the operating system says of the server's process: processor time and memory.

use std::fs;
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

    /// Whether it runs; one that ended and that nobody has asked for does not.
    pub fn is_alive(self) -> bool {
        let state = fs::read_to_string(format!("/proc/{}/stat", self.pid)).ok();
        state.is_some_and(|stat| stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.starts_with(" Z")))
    }

    /// Time that all its threads have spent so far, user and system; `None` if there is no such process here.
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

fn resident_kib(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Fields 14 and 15 of `/proc/PID/stat` (proc(5)); the name in field 2 may hold spaces and brackets.
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
    fn resident_memory_is_read_in_kib() {
        for (case, status, want) in
            [("there", "Name:\ta\nVmRSS:\t  5120 kB\n", Some(5120)), ("a kernel thread", "Name:\ta\n", None)]
        {
            assert_eq!(resident_kib(status), want, "case: {case}");
        }
    }
}
