//! Writing and reading past the page cache, where the file system allows it.
//!
//! A group that goes to the disk by way of the page cache is copied there, marked, looked for and
//! sent by the sync; one that goes straight is sent by the write. It also leaves no pages behind
//! for the system to write back or to throw others out for. The price is alignment: unaligned bytes
//! are first copied into a buffer here. Long single reads come without a page of the system's for
//! each 4 KiB, which is found, charged, filled, copied from and given back.
//!
//! Reasons and measurements: docs/decisions/0011-past-the-page-cache.md.
//!
//! Never here: syncs (a direct write may still be in the device's own cache, unless it was asked to
//! be durable), the meaning of the bytes.

use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::OnceLock;

/// Offsets and lengths are multiples of this: the journal's sector. A device with larger sectors
/// refuses, and is written by way of the page cache then.
const ALIGN_BYTES: u64 = crate::layout::format::SECTOR_BYTES;

/// Where buffers begin: the largest sector that devices have.
pub(crate) const BUFFER_ALIGN_BYTES: usize = 4096;

/// The most that one call writes; a larger group takes several.
const STEP_BYTES: usize = 1 << 20;

thread_local! {
    /// Each thread that writes has one; it grows to the largest write, [`STEP_BYTES`] at most.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The way past the page cache to one file; opened by the first write that can take it.
#[derive(Debug, Default)]
pub(crate) struct DirectWay(OnceLock<Option<OwnedFd>>);

impl DirectWay {
    /// Writes as much of `pieces` at `offset` as one call takes, as [`crate::DiskFile::write_at`]
    /// does. `None`: this file, or this write, has to go by way of the page cache. `durable`: see
    /// [`crate::DiskFile::write_durable_at`].
    pub(crate) fn write(
        &self,
        file: &OwnedFd,
        pieces: &[IoSlice<'_>],
        offset: u64,
        durable: bool,
    ) -> Option<io::Result<usize>> {
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let aligned = offset.is_multiple_of(ALIGN_BYTES) && (length as u64).is_multiple_of(ALIGN_BYTES);
        if !aligned || length == 0 {
            return None;
        }
        let way = self.way(file)?;
        let written = match pieces {
            [piece] if piece.as_ptr().align_offset(BUFFER_ALIGN_BYTES) == 0 => {
                put(way, &piece[..length.min(STEP_BYTES)], offset, durable)
            }
            _ => BUFFER.with_borrow_mut(|buffer| {
                let begin = gather(pieces, length.min(STEP_BYTES), buffer);
                put(way, &buffer[begin..begin + length.min(STEP_BYTES)], offset, durable)
            }),
        };
        match written {
            // Larger sectors, or a file system that accepts the flag and not the writes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => None,
            // Never half a sector: the rest could not go this way.
            Ok(written) if !(written as u64).is_multiple_of(ALIGN_BYTES) => {
                Some(Ok(written - written % ALIGN_BYTES as usize)).filter(|_| ALIGN_BYTES <= written as u64)
            }
            Ok(written) => Some(Ok(written)),
            Err(error) => Some(Err(error.into())),
        }
    }

    /// Reads a part of the file into `buffer`, which grows as it must, and returns its place there.
    /// `None`: this file has to be read by way of the page cache.
    pub(crate) fn read(
        &self,
        file: &OwnedFd,
        part: &Range<u64>,
        buffer: &mut Vec<u8>,
    ) -> Option<io::Result<Range<usize>>> {
        let way = self.way(file)?;
        let align = BUFFER_ALIGN_BYTES as u64;
        let start = part.start - part.start % align;
        let length = (part.end.max(start) - start).next_multiple_of(align) as usize;
        if buffer.len() < length + BUFFER_ALIGN_BYTES {
            *buffer = vec![0; length + BUFFER_ALIGN_BYTES];
        }
        let begin = aligned_begin(buffer);
        let mut filled = 0;
        while start + (filled as u64) < part.end {
            match rustix::io::pread(way, &mut buffer[begin + filled..begin + length], start + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(Errno::INTR) => {}
                // Larger sectors, a file system that accepts the flag and not the reads, or part of
                // a sector at the end of the file.
                Err(Errno::INVAL | Errno::OPNOTSUPP) if filled == 0 => return None,
                Err(Errno::INVAL) => break,
                Err(error) => return Some(Err(error.into())),
            }
        }
        let end = filled.min((part.end - start) as usize);
        let from = ((part.start - start) as usize).min(end);
        Some(Ok(begin + from..begin + end))
    }

    fn way(&self, file: &OwnedFd) -> Option<&OwnedFd> {
        self.0.get_or_init(|| open_past_the_cache(file)).as_ref()
    }
}

fn put(way: &OwnedFd, bytes: &[u8], offset: u64, durable: bool) -> Result<usize, Errno> {
    match durable {
        true => rustix::io::pwritev2(way, &[IoSlice::new(bytes)], offset, ReadWriteFlags::DSYNC),
        false => rustix::io::pwrite(way, bytes, offset),
    }
}

/// The same file once more, by the name that the kernel has for it: its own may have changed.
fn open_past_the_cache(file: &OwnedFd) -> Option<OwnedFd> {
    let name = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    rustix::fs::open(name, OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()).ok()
}

/// The first aligned place in the memory of a buffer, which must have room for one. Less than the
/// alignment, or, as the contract of `align_offset` allows, no answer: then the write is refused,
/// and goes by way of the page cache.
pub(crate) fn aligned_begin(buffer: &[u8]) -> usize {
    buffer.as_ptr().align_offset(BUFFER_ALIGN_BYTES).min(BUFFER_ALIGN_BYTES)
}

/// Copies the first `length` bytes of `pieces` into `buffer`, from the aligned place on that it
/// returns.
fn gather(pieces: &[IoSlice<'_>], length: usize, buffer: &mut Vec<u8>) -> usize {
    if buffer.len() < length + BUFFER_ALIGN_BYTES {
        *buffer = vec![0; length.next_power_of_two() + BUFFER_ALIGN_BYTES];
    }
    let begin = aligned_begin(buffer);
    let (mut at, end) = (begin, begin + length);
    for piece in pieces {
        let part = piece.len().min(end - at);
        buffer[at..at + part].copy_from_slice(&piece[..part]);
        at += part;
    }
    begin
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disks::disk::{write_all_at, write_all_durable_at};
    use crate::{Disk, DiskFile, RealDisk, Ways};

    #[test]
    fn what_is_written_in_any_way_is_read_back() {
        for (number, durable) in (0..4).flat_map(|number| [(number, false), (number, true)]) {
            let ways = Ways { direct: number & 1 == 0, one_call: number & 2 == 0, zeroed: true };
            write_and_read_back(ways, durable);
        }
    }

    fn write_and_read_back(ways: Ways, durable: bool) {
        let directory = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(directory.path()).unwrap().written(ways);
        let bytes: Vec<u8> = (0..3 * STEP_BYTES + 1024).map(|at| (at / 7) as u8).collect();
        for (case, offset, length, piece) in [
            ("one sector", 512, 512, 512),
            ("pieces that end anywhere", 1024, 8192, 100),
            ("more than one call takes", 512, 3 * STEP_BYTES + 512, 5000),
            ("more pieces than the system takes", 512, 1 << 20, 64),
            ("not a sector", 512, 700, 700),
            ("between sectors", 700, 512, 512),
            ("behind the end of the file", 1 << 20, 4096, 4096),
        ] {
            let file = disk.create(case).unwrap();
            let mut pieces: Vec<_> = bytes[..length].chunks(piece).map(IoSlice::new).collect();
            match durable {
                true => write_all_durable_at(&file, &mut pieces, offset).unwrap(),
                false => write_all_at(&file, &mut pieces, offset).and_then(|()| file.sync()).unwrap(),
            }
            let mut read = vec![0; length];
            let got = crate::disks::disk::read_full_at(&file, &mut read, offset).unwrap();
            let case = format!("case: {case}, {ways:?}, durable: {durable}");
            assert!((got, &read[..]) == (length, &bytes[..length]), "{case}");
            assert_eq!(file.length().unwrap(), offset + length as u64, "{case}");
        }
    }

    #[test]
    fn what_is_read_once_is_what_is_there() {
        let directory = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(directory.path()).unwrap();
        let file = disk.create("file").unwrap();
        let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at / 7) as u8).collect();
        write_all_at(&file, &mut [IoSlice::new(&bytes)], 0).unwrap();
        let mut buffer = Vec::new();
        for (case, part, want) in [
            ("nothing", 4096..4096, 4096..4096),
            ("a byte", 4095..4096, 4095..4096),
            ("what is aligned", 4096..12_288, 4096..12_288),
            ("what begins and ends anywhere", 5..200_001, 5..200_001),
            ("to the end", 299_000..300_000, 299_000..300_000),
            ("beyond the end", 299_000..400_000, 299_000..300_000),
            ("behind the end, in its page", 300_001..300_010, 300_000..300_000),
            ("far behind the end", 400_000..400_010, 300_000..300_000),
        ] {
            let place = file.read_once(part, &mut buffer).unwrap();
            assert!(buffer[place] == bytes[want], "case: {case}");
        }
        // The last write, which is not on the disk yet.
        write_all_at(&file, &mut [IoSlice::new(&[9; 700])], 1000).unwrap();
        let place = file.read_once(900..1800, &mut buffer).unwrap();
        let read = &buffer[place];
        assert_eq!((&read[..100], &read[100..800]), (&bytes[900..1000], &[9; 700][..]));
    }

    #[test]
    fn a_later_write_is_seen_however_the_earlier_one_was_written() {
        let directory = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(directory.path()).unwrap();
        let file = disk.create("file").unwrap();
        let mut read = [0; 2048];
        for (round, offset, length) in
            [(1, 0, 2048), (2, 100, 300), (3, 512, 512), (4, 700, 700), (5, 0, 1024)]
        {
            let before = read;
            write_all_at(&file, &mut [IoSlice::new(&[round; 2048][..length])], offset).unwrap();
            assert_eq!(crate::disks::disk::read_full_at(&file, &mut read, 0).unwrap(), 2048);
            let mut want = before;
            want[offset as usize..offset as usize + length].fill(round);
            assert!(read == want, "round {round}");
        }
    }
}
