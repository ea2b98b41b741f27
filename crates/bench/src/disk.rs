//! The limits of a disk: writes and reads by block size, the cost of a sync, and the best way to
//! sync.
//!
//! In: a directory, and how long each measurement may take. Out: a [`DiskReport`] with its verdict
//! in words. All files are made in the directory and removed again.
//! Start at [`measure_disk`].

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use serde::Serialize;

use crate::ways::{self, BLOCK_BYTES as SYNC_BLOCK_BYTES, Way, WayRow, choose};

/// Writes go round in a file of this size, like those of a journal in its segment...
const FILE_BYTES: u64 = 64 << 20;

/// ... or of this one, when a user waits for the answer.
const SHORT_FILE_BYTES: u64 = 256 << 10;

/// Direct reads and writes want memory and offsets on such a boundary.
pub(crate) const DIRECT_ALIGN: usize = 4096;

/// Block sizes from a sector to the largest writes of a journal.
const BLOCK_BYTES: [usize; 7] = [512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// Blocks of any size up to the largest are cut out of this.
const FILL: u8 = 0xa5;

/// One measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskRow {
    /// The operation: see the names in [`measure_disk`].
    pub name: &'static str,
    /// Bytes of each operation.
    pub block_bytes: u64,
    /// How many were done.
    pub operations: u64,
    /// Bytes in a second.
    pub bytes_per_second: f64,
    /// A tenth of them took no longer, in microseconds.
    pub p10_us: f64,
    /// Half of them.
    pub median_us: f64,
    /// Of a hundred, ninety-nine took no longer.
    pub p99_us: f64,
    /// Of a thousand, all but one.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// The measurements, and their meaning.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DiskReport {
    /// Where.
    pub directory: PathBuf,
    /// In the order in which they were done.
    pub rows: Vec<DiskRow>,
    /// Measurements that this file system refuses, with its errors.
    pub refused: Vec<String>,
    /// The meaning, in sentences.
    pub verdict: Vec<String>,
}

/// Writes past the page cache, block by block, with a sync after each; and through it.
const SYNCED: [&str; 2] = ["write, direct, fdatasync", "write, fdatasync"];

/// Measures the disk that a directory is on; `budget` is for each of about forty rows.
///
/// # Errors
/// The directory cannot be written. Features of some file systems only are no error: see
/// [`DiskReport::refused`].
pub fn measure_disk(directory: &Path, budget: Duration) -> io::Result<DiskReport> {
    let mut bench = Bench::new(directory, budget, FILE_BYTES);
    bench.all()?;
    let mut verdict = verdict(&bench.rows);
    if let Some(kind) = memory_kind(directory) {
        verdict.insert(
            0,
            format!("This is no disk but memory ({kind}): whatever is synced here is gone with the machine, and the figures below say nothing of a store that is to last."),
        );
    }
    Ok(DiskReport { directory: directory.to_owned(), rows: bench.rows, refused: bench.refused, verdict })
}

/// The name of the file system, if the directory is in memory alone.
pub fn memory_kind(directory: &Path) -> Option<&'static str> {
    // Their numbers, from linux/magic.h.
    let kinds = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];
    let found = rustix::fs::statfs(directory).ok()?.f_type as u32;
    kinds.into_iter().find_map(|(number, name)| (number == found).then_some(name))
}

/// Measures only the usual way of a journal to make 4 KiB durable: past the page cache, or through
/// it where that is refused. Behind each write and its sync it waits for `pause`: the layers below
/// a disk may be slower for a sender that does not continue at once.
///
/// # Errors
/// The directory cannot be written.
pub fn measure_sync(directory: &Path, budget: Duration, pause: Duration) -> io::Result<DiskRow> {
    let bench = Bench { pause, ..Bench::new(directory, budget, SHORT_FILE_BYTES) };
    let usual = Way::default();
    match bench.way(usual) {
        Ok(row) => Ok(row),
        Err(_) => bench.way(Way { direct: false, ..usual }),
    }
}

/// A file of zeros in the directory, open past the page cache where that can be. It is gone once it
/// is closed.
pub(crate) fn zeroed_file(directory: &Path, bytes: u64) -> io::Result<OwnedFd> {
    let usual = Way::default();
    ways::open(directory, usual, bytes)
        .or_else(|_| ways::open(directory, Way { direct: false, ..usual }, bytes))
}

struct Bench {
    directory: PathBuf,
    budget: Duration,
    /// Behind each operation.
    pause: Duration,
    file_bytes: u64,
    memory: Vec<u8>,
    rows: Vec<DiskRow>,
    refused: Vec<String>,
}

impl Bench {
    fn new(directory: &Path, budget: Duration, file_bytes: u64) -> Bench {
        let largest = BLOCK_BYTES.iter().copied().max().unwrap_or(SYNC_BLOCK_BYTES);
        let memory = vec![FILL; largest + DIRECT_ALIGN];
        let (directory, rows, refused) = (directory.to_owned(), Vec::new(), Vec::new());
        Bench { directory, budget, pause: Duration::ZERO, file_bytes, memory, rows, refused }
    }

    fn all(&mut self) -> io::Result<()> {
        for way in Way::all() {
            match self.way(way) {
                Ok(row) => self.rows.push(row),
                Err(error) => self.refused.push(format!("{}: {error}", way.name())),
            }
        }
        let cached = Way { direct: false, ..Way::default() };
        for bytes in BLOCK_BYTES {
            let file = ways::open(&self.directory, cached, self.file_bytes)?;
            self.writes("write", bytes, &file, |_| Ok(()))?;
            rustix::fs::fdatasync(&file)?;
            self.writes(SYNCED[1], bytes, &file, |file| Ok(rustix::fs::fdatasync(file)?))?;
            self.reads("read, page cache", bytes, &file)?;
            if bytes.is_multiple_of(DIRECT_ALIGN) {
                match ways::open(&self.directory, Way::default(), self.file_bytes) {
                    Ok(direct) => {
                        self.writes(SYNCED[0], bytes, &direct, |file| Ok(rustix::fs::fdatasync(file)?))?;
                        self.reads("read, direct", bytes, &direct)?;
                    }
                    Err(error) => self.refused.push(format!("direct reads and larger writes: {error}")),
                }
            }
        }
        self.refused.dedup();
        Ok(())
    }

    /// A way of making 4 KiB durable.
    fn way(&self, way: Way) -> io::Result<DiskRow> {
        let file = ways::open(&self.directory, way, self.file_bytes)?;
        let block = aligned(&self.memory, SYNC_BLOCK_BYTES);
        let blocks = self.file_bytes / SYNC_BLOCK_BYTES as u64;
        let write = |offset| ways::write(&file, way, block, offset);
        let times = repeat(self.budget, self.pause, blocks, SYNC_BLOCK_BYTES, write)?;
        Ok(row(way.name(), SYNC_BLOCK_BYTES, times))
    }

    fn writes(
        &mut self,
        name: &'static str,
        bytes: usize,
        file: &OwnedFd,
        then: impl Fn(&OwnedFd) -> io::Result<()>,
    ) -> io::Result<()> {
        let block = aligned(&self.memory, bytes);
        let times = repeat(self.budget, self.pause, self.file_bytes / bytes as u64, bytes, |offset| {
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
        let times = repeat(self.budget, self.pause, self.file_bytes / bytes as u64, bytes, |offset| {
            let read = rustix::io::pread(file, &mut *block, offset)?;
            if read == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        })?;
        self.rows.push(row(name, bytes, times));
        Ok(())
    }
}

/// This number of bytes that begin on the boundary, of memory that has room for that.
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

/// Does it again and again, round the file, until the time is up: at least eight times. A pause is
/// no sleep, from which a machine wakes when it likes.
fn repeat(
    budget: Duration,
    pause: Duration,
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
        let time = before.elapsed();
        times.push(time);
        while before.elapsed() < time + pause {
            std::hint::spin_loop();
        }
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
        p10_us: at(0.1),
        median_us: at(0.5),
        p99_us: at(0.99),
        p999_us: at(0.999),
        max_us: at(1.0),
    }
}

/// The meaning of the rows for a broker, in sentences. Missing measurements are not mentioned.
fn verdict(rows: &[DiskRow]) -> Vec<String> {
    let timed = Way::all().into_iter().filter_map(|way| {
        let row = rows.iter().find(|row| row.name == way.name())?;
        let (median_us, tenth_us) = (row.median_us, row.p10_us);
        Some(WayRow { way, writes: row.operations as usize, median_us, tenth_us })
    });
    let choice = choose(&timed.collect::<Vec<_>>());
    let mut said = Vec::new();
    if let Some(own) = rows.iter().find(|row| row.name == choice.way.name()) {
        let rate = 1e6 / own.median_us.max(0.001);
        said.push(format!(
            "Write mode of a new store here: {}. A 4 KiB write is durable in {:.0} µs (median; p99 {:.0} µs): a single \
             producer that waits for each message reaches {rate:.0} messages a second at most. Many producers \
             share a sync and are not limited by this.",
            own.name, own.median_us, own.p99_us
        ));
        said.extend(choice.reasons.map(|reason| format!("Why: {reason}.")));
    }
    let best = SYNCED.iter().find_map(|name| {
        let synced = rows.iter().filter(|row| row.name == *name);
        synced.max_by(|a, b| a.bytes_per_second.total_cmp(&b.bytes_per_second))
    });
    if let Some(best) = best {
        let megabytes = best.bytes_per_second / 1e6;
        let zeros = match choice.way.zeroed {
            true => "; half of that while a backlog grows, as new segments are zeroed first",
            false => "",
        };
        said.push(format!(
            "Synced writes reach {megabytes:.0} MB/s, with blocks of {} KiB: at 5 KB to a message, {:.0} messages a second{zeros}.",
            best.block_bytes >> 10,
            best.bytes_per_second / 5000.0
        ));
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(name: &'static str, block_bytes: u64, median_us: f64) -> DiskRow {
        let bytes_per_second = block_bytes as f64 / median_us * 1e6;
        let (p99_us, p999_us, max_us) = (median_us * 2.0, median_us * 3.0, median_us * 4.0);
        let p10_us = median_us / 2.0;
        DiskRow {
            name,
            block_bytes,
            operations: 10,
            bytes_per_second,
            p10_us,
            median_us,
            p99_us,
            p999_us,
            max_us,
        }
    }

    #[test]
    fn the_verdict_says_what_the_rows_say_and_nothing_else() {
        let usual = sample("direct, fdatasync, zeroed", 4096, 100.0);
        let (own, cached) = ("of a new store here: direct, fdatasync, zeroed", "cached, fdatasync, zeroed");
        for (name, rows, want, not) in [
            ("nothing was measured", vec![], vec![], vec!["sync"]),
            (
                "zeros help",
                vec![usual.clone(), sample("direct, fdatasync, allocated", 4096, 250.0)],
                vec![own, "10000 messages a second", "100 µs (p10 50); only allocated: 250 µs (p10 125)."],
                vec!["MB/s", "too small"],
            ),
            (
                "another way is a little faster",
                vec![usual.clone(), sample("direct, RWF_DSYNC, zeroed", 4096, 90.0)],
                vec![own, "90 µs (p10 45); the difference is too small"],
                vec![],
            ),
            (
                "another way is faster",
                vec![usual.clone(), sample("direct, RWF_DSYNC, zeroed", 4096, 50.0)],
                vec![
                    "store here: direct, RWF_DSYNC, zeroed",
                    "20000 messages a second",
                    "in 50 µs (p10 25); fdatasync",
                ],
                vec!["too small"],
            ),
            (
                "past the page cache is refused",
                vec![sample(cached, 4096, 200.0)],
                vec![cached, "5000 messages a second", "past the page cache not available here"],
                vec!["too small"],
            ),
            (
                "bandwidth, as the journal writes",
                vec![sample(SYNCED[1], 1 << 20, 1000.0), sample(SYNCED[0], 1 << 20, 2000.0)],
                vec!["524 MB/s", "1024 KiB"],
                vec![],
            ),
            ("bandwidth", vec![sample(SYNCED[1], 1 << 20, 1000.0)], vec!["1049 MB/s"], vec![]),
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
        assert_eq!(blocks("cached, fdatasync, zeroed"), [SYNC_BLOCK_BYTES]);
        assert!(
            report
                .rows
                .iter()
                .all(|row| 8 <= row.operations && row.median_us <= row.p99_us && row.p99_us <= row.max_us)
        );
        assert!(!report.verdict.is_empty());
        assert_eq!(std::fs::read_dir(&directory).expect("it").count(), 0);
        assert!(measure_disk(&directory.join("missing"), Duration::ZERO).is_err());
        let synced = measure_sync(&directory, Duration::ZERO, Duration::ZERO).expect("measured");
        assert!(synced.name.ends_with("fdatasync, zeroed") && 8 <= synced.operations, "{synced:?}");
        let (pause, began) = (Duration::from_millis(5), Instant::now());
        let paused = measure_sync(&directory, Duration::ZERO, pause).expect("measured");
        assert!(8 <= paused.operations && 8 * pause <= began.elapsed(), "{paused:?}");
        std::fs::remove_dir(&directory).expect("empty");
    }
}
