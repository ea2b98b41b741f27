//! Memory and processor time of the broker's process, as the system counts them.

/// Zero where the system does not say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Resident memory.
    pub memory_bytes: u64,
    /// Processor time of all threads since the start, in milliseconds.
    pub cpu_ms: u64,
}

impl Process {
    pub fn now() -> Process {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Process { memory_bytes: resident(&read("/proc/self/status")), cpu_ms: cpu(&read("/proc/self/stat")) }
    }
}

/// `VmRSS:     1234 kB`
fn resident(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default() << 10
}

/// User and system time are the 14th and 15th fields, in hundredths of a second; the second may
/// have blanks in it.
fn cpu(stat: &str) -> u64 {
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok());
    ticks.sum::<u64>() * 10
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_files_are_read() {
        assert_eq!(resident("VmPeak:\t 9 kB\nVmRSS:\t    2048 kB\n"), 2 << 20);
        assert_eq!(cpu("7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0"), 2000);
        assert_eq!((resident(""), cpu("")), (0, 0));
    }
}
