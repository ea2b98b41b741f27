//! The ways in which a journal can make a small group durable, measured side by side, and the
//! choice among them.
//!
//! In: a directory. Out: a row for each way that its file system knows, and from the rows a
//! [`Choice`] with its reasons. The usual way stays unless another is clearly better. Start at
//! [`choose`].

use std::fmt;
use std::io::{self, IoSlice};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::ReadWriteFlags;

use crate::disk::{DIRECT_ALIGN, aligned, write_all};

/// The journal's write for a message of common size: its group, up to the next sector, in one page.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// Each way has this number of writes...
const WRITES_MAX: usize = 48;

/// ... or this number at least, if they take longer than this together. Fewer say nothing.
const WRITES_MIN: usize = 8;
const TIME_USUAL: Duration = Duration::from_millis(300);

/// No further writes are begun then: the start of the broker waits.
const TIME_MAX: Duration = Duration::from_secs(2);

/// Each write has a place of its own: the second one to a place finds it written already.
const FILE_BYTES: u64 = (WRITES_MAX * BLOCK_BYTES) as u64;

/// Another way must take no more than this part of the time, in the median and for the quickest
/// tenth, or the choice would be noise: on a machine with other work medians differ by far, and the
/// quickest ones tell the cost of a way.
const WORTH: f64 = 0.8;

/// One way to write. The usual one is [`Way::default`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Past the page cache.
    pub direct: bool,
    /// Durable by the write itself, instead of by an fdatasync after it.
    pub one_call: bool,
    /// Into space that was filled with zeros before, instead of only allocated.
    pub zeroed: bool,
}

impl Default for Way {
    fn default() -> Way {
        Way { direct: true, one_call: false, zeroed: true }
    }
}

impl Way {
    /// All of them, the usual one first.
    pub fn all() -> [Way; 8] {
        let usual = Way::default();
        std::array::from_fn(|number| Way {
            direct: usual.direct ^ (number & 4 != 0),
            one_call: usual.one_call ^ (number & 2 != 0),
            zeroed: usual.zeroed ^ (number & 1 != 0),
        })
    }

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match (self.direct, self.one_call, self.zeroed) {
            (true, false, true) => "direct, fdatasync, zeroed",
            (true, false, false) => "direct, fdatasync, allocated",
            (true, true, true) => "direct, RWF_DSYNC, zeroed",
            (true, true, false) => "direct, RWF_DSYNC, allocated",
            (false, false, true) => "cached, fdatasync, zeroed",
            (false, false, false) => "cached, fdatasync, allocated",
            (false, true, true) => "cached, RWF_DSYNC, zeroed",
            (false, true, false) => "cached, RWF_DSYNC, allocated",
        }
    }

    fn with(self, setting: Setting) -> Way {
        match setting {
            Setting::Cache => Way { direct: !self.direct, ..self },
            Setting::Sync => Way { one_call: !self.one_call, ..self },
            Setting::Segments => Way { zeroed: !self.zeroed, ..self },
        }
    }
}

/// The settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Past the page cache or through it.
    Cache,
    /// How writes become durable.
    Sync,
    /// The preparation of a segment before it is used.
    Segments,
}

impl Setting {
    /// All of them.
    pub const ALL: [Setting; 3] = [Setting::Cache, Setting::Sync, Setting::Segments];

    /// The value in one way, in words.
    pub fn of(self, way: Way) -> &'static str {
        match (self, way) {
            (Setting::Cache, Way { direct: true, .. }) => "past the page cache",
            (Setting::Cache, _) => "through the page cache",
            (Setting::Sync, Way { one_call: true, .. }) => "durable writes (RWF_DSYNC)",
            (Setting::Sync, _) => "fdatasync after each write",
            (Setting::Segments, Way { zeroed: true, .. }) => "zeroed in advance",
            (Setting::Segments, _) => "only allocated",
        }
    }
}

/// The times of one way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WayRow {
    /// Which.
    pub way: Way,
    /// How many writes were measured.
    pub writes: usize,
    /// Half of them took no longer, in microseconds.
    pub median_us: f64,
    /// A tenth of them.
    pub tenth_us: f64,
}

impl WayRow {
    fn is_clearly_quicker_than(&self, other: &WayRow) -> bool {
        self.median_us < other.median_us * WORTH && self.tenth_us < other.tenth_us * WORTH
    }
}

impl fmt::Display for WayRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} µs (p10 {:.0})", self.median_us, self.tenth_us)
    }
}

/// Why one setting is as it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reason {
    /// The choice.
    pub setting: Setting,
    way: Way,
    row: Option<WayRow>,
    other: Option<WayRow>,
}

/// A way, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Which.
    pub way: Way,
    /// One for each setting: its time, and that of the other value, all else being as chosen.
    pub reasons: [Reason; 3],
}

/// Chooses by the rows: begins at the usual way, and changes one setting after the other, the one
/// that gains most first, as long as that takes a fifth off. Where nothing can be written past the
/// page cache, it begins at the way through it.
pub fn choose(rows: &[WayRow]) -> Choice {
    let of = |way: Way| rows.iter().find(|row| row.way == way && WRITES_MIN <= row.writes).copied();
    let usual = Way::default();
    let cached = usual.with(Setting::Cache);
    let mut way = if of(usual).is_none() && of(cached).is_some() { cached } else { usual };
    while let Some(now) = of(way) {
        let others = Setting::ALL.into_iter().filter_map(|setting| of(way.with(setting)));
        let better = others.filter(|other| other.is_clearly_quicker_than(&now));
        match better.min_by(|a, b| a.median_us.total_cmp(&b.median_us)) {
            Some(other) => way = other.way,
            None => break,
        }
    }
    let reason = |setting| Reason { setting, way, row: of(way), other: of(way.with(setting)) };
    Choice { way, reasons: Setting::ALL.map(reason) }
}

impl Reason {
    /// The choice, in words.
    pub fn chosen(&self) -> &'static str {
        self.setting.of(self.way)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (chosen, other) = (self.chosen(), self.setting.of(self.way.with(self.setting)));
        let Some(row) = self.row else {
            return write!(f, "{chosen} (default): too few measurements for a comparison");
        };
        let Some(of_other) = self.other else {
            return write!(f, "{chosen}: 4 KiB durable in {row}; {other} not available here");
        };
        write!(f, "{chosen}: 4 KiB durable in {row}; {other}: {of_other}")?;
        match of_other.median_us < row.median_us {
            true => write!(f, "; the difference is too small or too unsteady to change the default"),
            false => Ok(()),
        }
    }
}

/// Measures all ways, each with a file of its own, in turn: other work of the disk concerns all
/// alike. Ways that are refused have no row. Takes a fraction of a second, on a slow disk two
/// seconds; leaves nothing behind.
///
/// # Errors
/// The directory cannot be written at all.
pub fn look(directory: &Path) -> io::Result<Vec<WayRow>> {
    let mut last = None;
    let mut measured = Vec::new();
    for way in Way::all() {
        match open(directory, way, FILE_BYTES) {
            Ok(file) => measured.push((way, file, Vec::with_capacity(WRITES_MAX))),
            Err(error) => last = Some(error),
        }
    }
    if let (true, Some(error)) = (measured.is_empty(), last) {
        return Err(error);
    }
    let memory = vec![0xa5; BLOCK_BYTES + DIRECT_ALIGN];
    let block = aligned(&memory, BLOCK_BYTES);
    let began = Instant::now();
    for round in 0..WRITES_MAX {
        let is_enough = WRITES_MIN <= round && TIME_USUAL <= began.elapsed();
        if is_enough || TIME_MAX <= began.elapsed() {
            break;
        }
        // To and fro: one way may leave work for the next one.
        measured.reverse();
        measured.retain_mut(|(way, file, times)| {
            let before = Instant::now();
            let written = write(file, *way, block, (round * BLOCK_BYTES) as u64);
            times.push(before.elapsed());
            written.is_ok()
        });
    }
    measured.sort_by_key(|(way, _, _)| Way::all().iter().position(|of| of == way));
    Ok(measured.into_iter().map(|(way, _, times)| row(way, times)).collect())
}

fn row(way: Way, mut times: Vec<Duration>) -> WayRow {
    times.sort_unstable();
    let us = |at: usize| times.get(at).map_or(0.0, |time| time.as_secs_f64() * 1e6);
    WayRow { way, writes: times.len(), median_us: us(times.len() / 2), tenth_us: us(times.len() / 10) }
}

/// A file as this way wants it, without a name: it is gone once it is closed.
pub(crate) fn open(directory: &Path, way: Way, bytes: u64) -> io::Result<OwnedFd> {
    let path = directory.join(format!("postroad-disk-benchmark-{}", std::process::id()));
    let mode = Mode::from_raw_mode(0o600);
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let plain = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW, mode)?;
    let past_the_cache = if way.direct { OFlags::DIRECT } else { OFlags::empty() };
    let opened = rustix::fs::open(&path, flags | past_the_cache, mode);
    std::fs::remove_file(&path)?;
    rustix::fs::fallocate(&plain, FallocateFlags::empty(), 0, bytes)?;
    if way.zeroed {
        write_zeros(&plain, bytes)?;
    }
    rustix::fs::fsync(&plain)?;
    Ok(opened?)
}

/// Up to this number of bytes.
pub(crate) fn write_zeros(file: &OwnedFd, bytes: u64) -> io::Result<()> {
    let zeros = vec![0; 256 << 10];
    let mut offset = 0;
    while offset < bytes {
        let step = (bytes - offset).min(zeros.len() as u64) as usize;
        write_all(file, &zeros[..step], offset)?;
        offset += step as u64;
    }
    Ok(())
}

/// Writes, and makes durable.
pub(crate) fn write(file: &OwnedFd, way: Way, block: &[u8], offset: u64) -> io::Result<()> {
    if way.one_call {
        let written = rustix::io::pwritev2(file, &[IoSlice::new(block)], offset, ReadWriteFlags::DSYNC)?;
        return if written == block.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) };
    }
    write_all(file, block, offset)?;
    Ok(rustix::fs::fdatasync(file)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_way_stays_unless_another_is_clearly_better() {
        let (usual, one, allocated) = (
            Way::default(),
            Way { one_call: true, ..Way::default() },
            Way { zeroed: false, ..Way::default() },
        );
        let cached = Way { direct: false, ..usual };
        let both = Way { one_call: true, ..allocated };
        let (cached_one, far) =
            (Way { direct: false, ..one }, Way { direct: false, one_call: true, zeroed: false });
        for (case, rows, want) in [
            ("nothing is known", vec![], usual),
            ("it is the fastest", vec![(usual, 40.0), (one, 50.0), (allocated, 90.0), (cached, 60.0)], usual),
            ("another is a little faster", vec![(usual, 40.0), (one, 38.0), (cached, 33.0)], usual),
            ("another is faster", vec![(usual, 40.0), (one, 20.0), (cached, 60.0)], one),
            ("the fastest of two", vec![(usual, 40.0), (one, 30.0), (cached, 20.0)], cached),
            ("two settings gain", vec![(usual, 90.0), (one, 60.0), (allocated, 50.0), (both, 20.0)], both),
            ("the second gains too little", vec![(usual, 90.0), (allocated, 50.0), (both, 45.0)], allocated),
            ("three settings gain", vec![(usual, 90.0), (one, 60.0), (cached_one, 40.0), (far, 10.0)], far),
            (
                "only both together would",
                vec![(usual, 50.0), (one, 48.0), (allocated, 48.0), (both, 5.0)],
                usual,
            ),
            ("past the cache is refused", vec![(cached, 60.0), (cached_one, 58.0)], cached),
            ("it is refused, and another gains", vec![(cached, 60.0), (cached_one, 40.0)], cached_one),
        ] {
            let row =
                |(way, median_us)| WayRow { way, writes: WRITES_MIN, median_us, tenth_us: median_us / 2.0 };
            let choice = choose(&rows.iter().copied().map(row).collect::<Vec<_>>());
            assert_eq!(choice.way, want, "case: {case}");
            assert_eq!(choice.reasons.map(|reason| reason.setting), Setting::ALL, "case: {case}");
        }
        let few = [usual, one].map(|way| WayRow {
            way,
            writes: WRITES_MIN - 1,
            median_us: if way.one_call { 1.0 } else { 9.0 },
            tenth_us: 1.0,
        });
        assert_eq!(choose(&few).way, usual, "too few writes say nothing");
        let unsteady = few.map(|row| WayRow { writes: WRITES_MAX, ..row });
        assert_eq!(choose(&unsteady).way, usual, "what is quick is as quick");
        let quick = unsteady.map(|row| WayRow { tenth_us: row.median_us, ..row });
        assert_eq!(choose(&quick).way, one);
    }

    #[test]
    fn reasons_name_what_was_measured() {
        let (usual, one) = (Way::default(), Way { one_call: true, ..Way::default() });
        let allocated = Way { zeroed: false, ..usual };
        let row = |way, median_us| WayRow { way, writes: 48, median_us, tenth_us: 30.0 };
        let reasons = choose(&[row(usual, 40.4), row(one, 38.0), row(allocated, 90.0)]).reasons;
        assert_eq!(
            reasons.map(|reason| reason.to_string()),
            [
                "past the page cache: 4 KiB durable in 40 µs (p10 30); through the page cache not available here",
                "fdatasync after each write: 4 KiB durable in 40 µs (p10 30); durable writes \
                 (RWF_DSYNC): 38 µs (p10 30); the difference is too small or too unsteady to change the default",
                "zeroed in advance: 4 KiB durable in 40 µs (p10 30); only allocated: 90 µs (p10 30)",
            ]
        );
        let unknown = choose(&[]).reasons[0].to_string();
        assert_eq!(unknown, "past the page cache (default): too few measurements for a comparison");
    }

    #[test]
    fn every_way_that_is_known_has_a_row_and_nothing_is_left() {
        let directory = std::env::temp_dir().join(format!("postroad-bench-ways-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let rows = look(&directory).unwrap();
        let cached = rows.iter().filter(|row| !row.way.direct).count();
        assert!(4 <= cached && rows.iter().all(|row| 0 < row.writes && 0.0 < row.median_us), "{rows:?}");
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        assert!(look(&directory.join("missing")).is_err());
        std::fs::remove_dir(&directory).unwrap();
    }
}
