//! How much memory there is for the broker, and how sizes of memory are written on the command
//! line.

use std::fs;

/// Memory assumed where the system does not say.
const BYTES_UNKNOWN: u64 = 1 << 30;

/// Units of sizes; those of two letters count in thousands, as for disks.
const UNITS: [(&str, u64); 7] = [
    ("KiB", 1 << 10),
    ("MiB", 1 << 20),
    ("GiB", 1 << 30),
    ("kB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("", 1),
];

/// The broker's own part: the program, buffers, and free memory of the allocator...
const OWN_BYTES: u64 = 42 << 20;

/// ... but no more than this number of thirty-seconds of its memory.
const OWN_PARTS_OF_32: u64 = 21;

/// Durable messages take no more than this, however much memory there is: later ones are read ahead
/// of their turn as fast.
const DURABLE_BYTES_MAX: u64 = 128 << 20;

/// Half of a segment is sorted at a time, at most: with more, writes are no larger than the disk
/// likes them.
const SORTING_BYTES_MAX: u64 = 32 << 20;

/// The limit of outstanding input: a slow disk's syncs, many times over.
const OUTSTANDING_BYTES_MAX: u64 = 128 << 20;

/// With less memory than this one password is checked at a time, as two take 14 MiB.
const TWO_CHECKS_BYTES_MIN: u64 = 128 << 20;

/// Passwords that are checked at a time.
pub fn password_checks_max(memory_bytes: u64) -> usize {
    if memory_bytes < TWO_CHECKS_BYTES_MIN { 1 } else { 2 }
}

/// The parts of the broker's memory; the rest is for the broker itself and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    /// For all messages together.
    pub messages: u64,
    /// Of that at most for durable ones: entries, headers and bodies. They make way for the others.
    pub durable: u64,
    /// Of that at most for those that are in memory alone.
    pub volatile: u64,
    /// For indexes of the journal.
    pub indexes: u64,
    /// For sorting a part of a backlog.
    pub sorting: u64,
    /// For outstanding input of clients.
    pub outstanding: u64,
    /// Of that for messages at most for open transactions.
    pub transactions: u64,
    /// Of that for messages at most for retroactive consumers.
    pub recent: u64,
    /// Of that for messages at most for the latest messages that topics retain.
    pub retained: u64,
}

impl Shares {
    /// Those of this number of bytes.
    pub fn of(memory_bytes: u64) -> Shares {
        let own = OWN_BYTES.min(memory_bytes / 32 * OWN_PARTS_OF_32);
        let durable = ((memory_bytes - own) / 2).min(DURABLE_BYTES_MAX);
        let (indexes, sorting) = (memory_bytes / 16, (memory_bytes / 16).min(SORTING_BYTES_MAX));
        let outstanding = (memory_bytes / 8).min(OUTSTANDING_BYTES_MAX);
        let messages = memory_bytes - own - indexes - sorting - outstanding;
        Shares {
            messages,
            durable,
            volatile: (memory_bytes / 4).min(messages / 2),
            indexes,
            sorting,
            outstanding,
            transactions: (memory_bytes / 8).min(messages / 3),
            recent: messages / 8,
            retained: messages / 8 * 7,
        }
    }
}

/// Bytes of the machine, or of the container or service that the broker runs in, if that may have
/// less.
pub fn machine_bytes() -> u64 {
    let read = |path: &str| fs::read_to_string(path).ok();
    let machine = read("/proc/meminfo").and_then(|info| total(&info)).unwrap_or(BYTES_UNKNOWN);
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    machine.min(group_limit(&groups, read).unwrap_or(u64::MAX))
}

/// A size, such as `512MiB`.
///
/// # Errors
/// The text is not a size: with examples.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|symbol: char| !symbol.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = (&text[..digits], text[digits..].trim_start());
    let factor = UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor);
    let bytes =
        number.parse::<u64>().ok().zip(factor).and_then(|(number, factor)| number.checked_mul(factor));
    bytes.ok_or_else(|| "a size is a number of bytes, or of KiB, MiB or GiB, such as 512MiB".to_owned())
}

/// `MemTotal` of `/proc/meminfo` (proc(5)).
fn total(info: &str) -> Option<u64> {
    let total = info.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// The least limit of the control groups that the lines of `/proc/self/cgroup` name (cgroups(7)),
/// and of those around them. Where a container sees its own group alone, that is at the root,
/// whatever the line says.
fn group_limit(groups: &str, read: impl Fn(&str) -> Option<String>) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let (_, group) = line.split_once(':')?;
        let (controllers, path) = group.split_once(':')?;
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => return None,
        };
        let outwards = std::iter::successors(Some(path.trim_end_matches('/')), |path| {
            path.rsplit_once('/').map(|(outer, _)| outer)
        });
        outwards.filter_map(|path| read(&format!("{root}{path}/{file}"))?.trim().parse().ok()).min()
    });
    limits.min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_a_unit_or_counts_bytes() {
        for (text, bytes) in [
            ("67108864", Some(64 << 20)),
            ("64MiB", Some(64 << 20)),
            ("64 MiB", Some(64 << 20)),
            ("2GiB", Some(2 << 30)),
            ("8KiB", Some(8 << 10)),
            ("3GB", Some(3_000_000_000)),
            ("1MB", Some(1_000_000)),
            ("7kB", Some(7_000)),
            ("", None),
            ("MiB", None),
            ("-1", None),
            ("1.5GiB", None),
            ("64M", None),
            ("64mib", None),
            ("17179869184GiB", None),
        ] {
            assert_eq!(parse_bytes(text).ok(), bytes, "{text}");
        }
        assert!(parse_bytes("64M").unwrap_err().ends_with("such as 512MiB"));
    }

    #[test]
    fn the_broker_itself_is_in_its_memory() {
        for (memory, messages, [durable, volatile, transactions], [indexes, sorting, outstanding]) in [
            (1 << 20, 96 << 10, [176 << 10, 48 << 10, 32 << 10], [64 << 10, 64 << 10, 128 << 10]),
            (64 << 20, 6 << 20, [11 << 20, 3 << 20, 2 << 20], [4 << 20, 4 << 20, 8 << 20]),
            (212 << 20, 117 << 20, [85 << 20, 53 << 20, 212 << 17], [212 << 16, 212 << 16, 212 << 17]),
            (
                6164 << 20,
                22_307 << 18,
                [128 << 20, 1541 << 20, 6164 << 17],
                [6164 << 16, 32 << 20, 128 << 20],
            ),
        ] {
            let (recent, retained) = (messages / 8, messages / 8 * 7);
            let shares = Shares {
                messages,
                durable,
                volatile,
                indexes,
                sorting,
                outstanding,
                transactions,
                recent,
                retained,
            };
            assert_eq!(Shares::of(memory), shares, "{memory}");
            let taken =
                messages + indexes + sorting + outstanding + OWN_BYTES.min(memory / 32 * OWN_PARTS_OF_32);
            assert_eq!(taken, memory, "all of it together");
        }
    }

    #[test]
    fn a_small_broker_checks_one_password_at_a_time() {
        assert_eq!([64 << 20, (128 << 20) - 1, 128 << 20].map(password_checks_max), [1, 1, 2]);
    }

    #[test]
    fn the_machine_says_its_total() {
        assert_eq!(total("MemTotal:       24689764 kB\nMemFree: 1 kB\n"), Some(24_689_764 << 10));
        assert_eq!(total("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn the_tightest_group_counts() {
        const V2: &str = "0::/system.slice/postroad.service\n";
        const V1: &str = "5:cpu,cpuacct:/\n4:memory:/docker/c0ffee\n0::/\n";
        let (slice, service) = (
            "/sys/fs/cgroup/system.slice/memory.max",
            "/sys/fs/cgroup/system.slice/postroad.service/memory.max",
        );
        let (v1_root, v1_own) = (
            "/sys/fs/cgroup/memory/memory.limit_in_bytes",
            "/sys/fs/cgroup/memory/docker/c0ffee/memory.limit_in_bytes",
        );
        for (case, groups, files, limit) in [
            ("no group", "", vec![], None),
            ("a group without a limit", V2, vec![(service, "max\n")], None),
            ("its own limit", V2, vec![(service, "536870912\n")], Some(512 << 20)),
            ("one around it is tighter", V2, vec![(service, "4096\n"), (slice, "1024\n")], Some(1024)),
            (
                "a container of its own view",
                "0::/\n",
                vec![("/sys/fs/cgroup/memory.max", "2048\n")],
                Some(2048),
            ),
            (
                "controllers by line",
                V1,
                vec![(v1_own, "8192\n"), (v1_root, "9223372036854771712\n")],
                Some(8192),
            ),
            ("only the root is mounted", V1, vec![(v1_root, "8192\n")], Some(8192)),
            ("what is not a number", V2, vec![(service, "\n")], None),
        ] {
            let read =
                |path: &str| files.iter().find(|(name, _)| *name == path).map(|(_, text)| (*text).to_owned());
            assert_eq!(group_limit(groups, read), limit, "{case}");
        }
    }
}
