//! What a disk allows: writes and reads by block size, what a sync costs, and which ways of asking for one help.
//!
//! In: a directory, and how long each measurement may take. Out: a [`DiskReport`] with its verdict in words.
//! All files are made in the directory and removed again. Start at [`measure_disk`].

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use serde::Serialize;

/// Writes go round in a file of this size, like those of a journal in its segment...
const FILE_BYTES: u64 = 64 << 20;

/// ... or of this one, when somebody waits for the answer.
const SHORT_FILE_BYTES: u64 = 256 << 10;

/// Zeros are written in steps of this size: a divisor of both.
const ZERO_STEP_BYTES: usize = 256 << 10;

/// What a journal writes for a message of common size: its group, up to the next sector, in one page.
const SYNC_BLOCK_BYTES: usize = 4096;

/// Direct reads and writes want memory and offsets on such a boundary.
pub(crate) const DIRECT_ALIGN: usize = 4096;

/// Block sizes from a sector to the largest writes of a journal.
const BLOCK_BYTES: [usize; 7] = [512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// Blocks of any size up to the largest are cut out of this.
const FILL: u8 = 0xa5;

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskRow {
    /// What was done: see the names in [`measure_disk`].
    pub name: &'static str,
    /// Bytes of each operation.
    pub block_bytes: u64,
    /// How many were done.
    pub operations: u64,
    /// Bytes in a second.
    pub bytes_per_second: f64,
    /// Half of them took no longer, in microseconds.
    pub median_us: f64,
    /// Of a hundred, ninety-nine took no longer.
    pub p99_us: f64,
    /// Of a thousand, all but one.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// What was measured, and what it means.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskReport {
    /// Where.
    pub directory: PathBuf,
    /// In the order in which they were done.
    pub rows: Vec<DiskRow>,
    /// Measurements that this file system refuses, with what it said.
    pub refused: Vec<String>,
    /// What it means, in sentences.
    pub verdict: Vec<String>,
}

/// How a file is made before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Before {
    Nothing,
    Allocated,
    Zeroed,
}

/// A way of making 4 KiB durable.
struct SyncWay {
    name: &'static str,
    before: Before,
    flags: OFlags,
    sync: bool,
}

/// How the journal does it, and the others that it could choose; the first one is the journal's.
const SYNC_WAYS: [SyncWay; 6] = [
    SyncWay { name: "fdatasync, zeroed ahead", before: Before::Zeroed, flags: OFlags::empty(), sync: true },
    SyncWay { name: "fdatasync, allocated", before: Before::Allocated, flags: OFlags::empty(), sync: true },
    SyncWay { name: "fdatasync, growing file", before: Before::Nothing, flags: OFlags::empty(), sync: true },
    SyncWay { name: "O_DSYNC, zeroed ahead", before: Before::Zeroed, flags: OFlags::DSYNC, sync: false },
    SyncWay { name: "direct, fdatasync, zeroed", before: Before::Zeroed, flags: OFlags::DIRECT, sync: true },
    SyncWay {
        name: "direct, O_DSYNC, zeroed",
        before: Before::Zeroed,
        flags: OFlags::DIRECT.union(OFlags::DSYNC),
        sync: false,
    },
];

/// Measures the disk that a directory is on; `budget` is for each of about thirty rows.
///
/// # Errors
/// The directory cannot be written, or holds a file that is in the way. What only some file systems know is no error:
/// see [`DiskReport::refused`].
pub fn measure_disk(directory: &Path, budget: Duration) -> io::Result<DiskReport> {
    let mut bench = Bench::new(directory, budget, FILE_BYTES)?;
    let done = bench.all();
    // Whatever came of it, nothing is left.
    let removed = std::fs::remove_file(&bench.path);
    done?;
    removed?;
    let verdict = verdict(&bench.rows);
    Ok(DiskReport { directory: directory.to_owned(), rows: bench.rows, refused: bench.refused, verdict })
}

/// Measures only what a sync costs with and without zeros ahead: two rows.
///
/// # Errors
/// As [`measure_disk`].
pub fn measure_sync(directory: &Path, budget: Duration) -> io::Result<DiskReport> {
    let mut bench = Bench::new(directory, budget, SHORT_FILE_BYTES)?;
    let done = SYNC_WAYS.iter().take(2).try_for_each(|way| bench.sync_way(way));
    let removed = std::fs::remove_file(&bench.path);
    done?;
    removed?;
    let verdict = verdict(&bench.rows);
    Ok(DiskReport { directory: directory.to_owned(), rows: bench.rows, refused: bench.refused, verdict })
}

/// A file of zeros in the directory, open past the page cache where that can be. It is gone once it is closed.
pub(crate) fn zeroed_file(directory: &Path, bytes: u64) -> io::Result<OwnedFd> {
    let bench = Bench::new(directory, Duration::ZERO, bytes)?;
    let direct = bench.file(Before::Zeroed, OFlags::DIRECT);
    let file = direct.or_else(|_| bench.file(Before::Zeroed, OFlags::empty()));
    std::fs::remove_file(&bench.path)?;
    file
}

struct Bench {
    path: PathBuf,
    budget: Duration,
    file_bytes: u64,
    memory: Vec<u8>,
    rows: Vec<DiskRow>,
    refused: Vec<String>,
}

impl Bench {
    fn new(directory: &Path, budget: Duration, file_bytes: u64) -> io::Result<Bench> {
        let path = directory.join(format!("postroad-disk-benchmark-{}", std::process::id()));
        let largest = BLOCK_BYTES.iter().copied().max().unwrap_or(SYNC_BLOCK_BYTES);
        let memory = vec![FILL; largest + DIRECT_ALIGN];
        std::fs::File::create_new(&path)?;
        Ok(Bench { path, budget, file_bytes, memory, rows: Vec::new(), refused: Vec::new() })
    }

    fn all(&mut self) -> io::Result<()> {
        for way in &SYNC_WAYS {
            self.sync_way(way)?;
        }
        for bytes in BLOCK_BYTES {
            let file = self.file(Before::Zeroed, OFlags::empty())?;
            self.writes("write", bytes, &file, |_| Ok(()))?;
            rustix::fs::fdatasync(&file)?;
            self.writes("write, fdatasync", bytes, &file, |file| Ok(rustix::fs::fdatasync(file)?))?;
            self.reads("read, page cache", bytes, &file)?;
            if bytes.is_multiple_of(DIRECT_ALIGN) {
                match self.file(Before::Zeroed, OFlags::DIRECT) {
                    Ok(direct) => self.reads("read, direct", bytes, &direct)?,
                    Err(error) => self.refused.push(format!("direct reads: {error}")),
                }
            }
        }
        self.refused.dedup();
        Ok(())
    }

    fn sync_way(&mut self, way: &SyncWay) -> io::Result<()> {
        match self.file(way.before, way.flags) {
            Ok(file) => self.writes(way.name, SYNC_BLOCK_BYTES, &file, |file| match way.sync {
                true => Ok(rustix::fs::fdatasync(file)?),
                false => Ok(()),
            }),
            Err(error) => {
                self.refused.push(format!("{}: {error}", way.name));
                Ok(())
            }
        }
    }

    /// The file anew, made and synced; then opened with these flags.
    fn file(&self, before: Before, flags: OFlags) -> io::Result<OwnedFd> {
        let mode = Mode::from_raw_mode(0o600);
        let plain = rustix::fs::open(&self.path, OFlags::RDWR | OFlags::TRUNC | OFlags::CLOEXEC, mode)?;
        if before != Before::Nothing {
            rustix::fs::fallocate(&plain, FallocateFlags::empty(), 0, self.file_bytes)?;
        }
        if before == Before::Zeroed {
            let zeros = vec![0; ZERO_STEP_BYTES];
            for offset in (0..self.file_bytes).step_by(zeros.len()) {
                write_all(&plain, &zeros, offset)?;
            }
        }
        rustix::fs::fsync(&plain)?;
        Ok(rustix::fs::open(&self.path, OFlags::RDWR | OFlags::CLOEXEC | flags, mode)?)
    }

    fn writes(
        &mut self,
        name: &'static str,
        bytes: usize,
        file: &OwnedFd,
        then: impl Fn(&OwnedFd) -> io::Result<()>,
    ) -> io::Result<()> {
        let block = aligned(&self.memory, bytes);
        let times = repeat(self.budget, self.file_bytes / bytes as u64, bytes, |offset| {
            write_all(file, block, offset)?;
            then(file)
        })?;
        self.rows.push(row(name, bytes, times));
        Ok(())
    }

    fn reads(&mut self, name: &'static str, bytes: usize, file: &OwnedFd) -> io::Result<()> {
        let start = self.memory.as_ptr().align_offset(DIRECT_ALIGN);
        let start = if start + bytes <= self.memory.len() { start } else { 0 };
        let block = &mut self.memory[start..start + bytes];
        let times = repeat(self.budget, self.file_bytes / bytes as u64, bytes, |offset| {
            let read = rustix::io::pread(file, &mut *block, offset)?;
            if read == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        })?;
        self.rows.push(row(name, bytes, times));
        Ok(())
    }
}

/// So many bytes that begin on the boundary, of memory that has room for that.
pub(crate) fn aligned(memory: &[u8], bytes: usize) -> &[u8] {
    let start = memory.as_ptr().align_offset(DIRECT_ALIGN);
    memory.get(start..start + bytes).unwrap_or(&memory[..bytes])
}

pub(crate) fn write_all(file: &OwnedFd, mut block: &[u8], mut offset: u64) -> io::Result<()> {
    while !block.is_empty() {
        let written = rustix::io::pwrite(file, block, offset)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        (block, offset) = (&block[written..], offset + written as u64);
    }
    Ok(())
}

/// Does it again and again, round the file, until the time is up: at least eight times.
fn repeat(
    budget: Duration,
    blocks: u64,
    bytes: usize,
    mut act: impl FnMut(u64) -> io::Result<()>,
) -> io::Result<Vec<Duration>> {
    let began = Instant::now();
    let mut times = Vec::new();
    while times.len() < 8 || began.elapsed() < budget {
        let offset = times.len() as u64 % blocks * bytes as u64;
        let before = Instant::now();
        act(offset)?;
        times.push(before.elapsed());
    }
    Ok(times)
}

fn row(name: &'static str, bytes: usize, mut times: Vec<Duration>) -> DiskRow {
    let total: Duration = times.iter().sum();
    times.sort_unstable();
    let at = |share: f64| {
        let index = ((times.len() - 1) as f64 * share).round() as usize;
        times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e6)
    };
    DiskRow {
        name,
        block_bytes: bytes as u64,
        operations: times.len() as u64,
        bytes_per_second: (times.len() * bytes) as f64 / total.as_secs_f64().max(1e-9),
        median_us: at(0.5),
        p99_us: at(0.99),
        p999_us: at(0.999),
        max_us: at(1.0),
    }
}

/// A difference below this is noise.
const WORTH: f64 = 1.15;

/// What the rows mean for a broker, in sentences. Whatever was not measured is not spoken of.
fn verdict(rows: &[DiskRow]) -> Vec<String> {
    let named = |name: &str| rows.iter().find(|row| row.name == name);
    let mut said = Vec::new();
    let own = SYNC_WAYS.first().and_then(|way| named(way.name));
    if let Some(own) = own {
        let rate = 1e6 / own.median_us.max(0.001);
        said.push(format!(
            "A 4 KiB write is durable after {:.0} µs (median; {:.0} µs in the worst of a hundred): a single producer that waits for \
             each of its messages cannot exceed {rate:.0} a second here. Many producers share a sync and are not bound by this.",
            own.median_us, own.p99_us
        ));
        if let Some(allocated) = named("fdatasync, allocated") {
            said.push(compare(
                "Zeros written ahead",
                own,
                allocated,
                "Postroad zeroes segments ahead and uses them again",
            ));
        }
        let others: Vec<&DiskRow> = SYNC_WAYS.iter().skip(3).filter_map(|way| named(way.name)).collect();
        if let Some(best) = others.into_iter().min_by(|a, b| a.median_us.total_cmp(&b.median_us)) {
            let gain = own.median_us / best.median_us.max(0.001);
            said.push(if WORTH < gain {
                format!(
                    "\"{}\" would be {gain:.1} times as fast as what Postroad does, fdatasync on a file in the page cache.",
                    best.name
                )
            } else {
                "Direct or self-syncing writes win nothing: Postroad writes through the page cache and calls fdatasync.".to_owned()
            });
        }
    }
    let synced = rows.iter().filter(|row| row.name == "write, fdatasync");
    if let Some(best) = synced.max_by(|a, b| a.bytes_per_second.total_cmp(&b.bytes_per_second)) {
        let megabytes = best.bytes_per_second / 1e6;
        said.push(format!(
            "Synced writes reach {megabytes:.0} MB/s, with blocks of {} KiB: at 5 KB to a message, {:.0} messages a second; half of that \
             while a backlog grows, as new segments are zeroed first.",
            best.block_bytes >> 10,
            best.bytes_per_second / 5000.0
        ));
    }
    said
}

fn compare(what: &str, with: &DiskRow, without: &DiskRow, hence: &str) -> String {
    let gain = without.median_us / with.median_us.max(0.001);
    if WORTH < gain {
        format!(
            "{what} make a sync {gain:.1} times as fast ({:.0} µs instead of {:.0}): {hence}.",
            with.median_us, without.median_us
        )
    } else {
        format!(
            "{what} win nothing on this disk ({:.0} µs, {:.0} without). {hence} all the same.",
            with.median_us, without.median_us
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(name: &'static str, block_bytes: u64, median_us: f64) -> DiskRow {
        let bytes_per_second = block_bytes as f64 / median_us * 1e6;
        let (p99_us, p999_us, max_us) = (median_us * 2.0, median_us * 3.0, median_us * 4.0);
        DiskRow { name, block_bytes, operations: 10, bytes_per_second, median_us, p99_us, p999_us, max_us }
    }

    #[test]
    fn the_verdict_says_what_the_rows_say_and_nothing_else() {
        let zeroed = sample("fdatasync, zeroed ahead", 4096, 100.0);
        for (name, rows, want, not) in [
            ("nothing was measured", vec![], vec![], vec!["sync"]),
            (
                "zeros help",
                vec![zeroed.clone(), sample("fdatasync, allocated", 4096, 250.0)],
                vec!["10000 a second", "2.5 times"],
                vec!["win nothing", "MB/s"],
            ),
            (
                "zeros do not",
                vec![zeroed.clone(), sample("fdatasync, allocated", 4096, 101.0)],
                vec!["win nothing on this disk"],
                vec!["times as fast"],
            ),
            (
                "another way is faster",
                vec![zeroed.clone(), sample("O_DSYNC, zeroed ahead", 4096, 50.0)],
                vec!["\"O_DSYNC, zeroed ahead\" would be 2.0 times"],
                vec![],
            ),
            (
                "no way is",
                vec![zeroed, sample("direct, O_DSYNC, zeroed", 4096, 99.0)],
                vec!["win nothing: Postroad writes through"],
                vec!["would be"],
            ),
            (
                "bandwidth",
                vec![sample("write, fdatasync", 1 << 20, 2000.0)],
                vec!["524 MB/s", "1024 KiB"],
                vec![],
            ),
        ] {
            let said = verdict(&rows).join(" ");
            assert!(want.iter().all(|part| said.contains(part)), "case: {name}: {said}");
            assert!(not.iter().all(|part| !said.contains(part)), "case: {name}: {said}");
        }
    }

    #[test]
    fn a_report_has_all_rows_and_leaves_nothing_behind() {
        let directory = std::env::temp_dir().join(format!("postroad-bench-disk-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("a new directory");
        let report = measure_disk(&directory, Duration::ZERO).expect("measured");
        let blocks = |name: &str| {
            report
                .rows
                .iter()
                .filter(|row| row.name == name)
                .map(|row| row.block_bytes as usize)
                .collect::<Vec<_>>()
        };
        assert_eq!(blocks("write, fdatasync"), BLOCK_BYTES);
        assert_eq!(blocks("read, page cache"), BLOCK_BYTES);
        assert_eq!(blocks("fdatasync, zeroed ahead"), [SYNC_BLOCK_BYTES]);
        assert!(
            report
                .rows
                .iter()
                .all(|row| 8 <= row.operations && row.median_us <= row.p99_us && row.p99_us <= row.max_us)
        );
        assert!(!report.verdict.is_empty());
        assert_eq!(std::fs::read_dir(&directory).expect("it").count(), 0);
        assert!(measure_disk(&directory.join("missing"), Duration::ZERO).is_err());
        std::fs::remove_dir(&directory).expect("empty");
    }
}
