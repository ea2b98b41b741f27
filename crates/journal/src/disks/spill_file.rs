//! Data that memory has no room for, in files without names: they disappear with the process.
//!
//! ```text
//! part of 4 MiB   [ page | page | page …            ]    laid out ahead, so that a full disk is known before anything is written
//! ```
//! Parts are filled one after the other and never written twice; one goes once nothing in it is
//! needed. Data is needed in order, mostly, so that they go in order, too.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use postroad_model::{Spill, Spilled};
use rustix::fs::FallocateFlags;

/// Smaller data is not worth its entry in memory.
const BYTES_MIN: usize = 512;

/// Bytes to a part.
const PART_BYTES: u64 = 4 << 20;

/// The name that a part has until it is open.
const NAME: &str = "spilled";

/// See the head of this file.
#[derive(Debug)]
pub struct SpillFile {
    directory: PathBuf,
    filling: Mutex<Filling>,
}

#[derive(Debug, Default)]
struct Filling {
    part: Option<Part>,
    /// Bytes that are not taken before the next attempt: there was no room for a part.
    refused: u64,
}

#[derive(Debug)]
struct Part {
    file: Arc<File>,
    used: u64,
}

#[derive(Debug)]
struct Stretch {
    file: Arc<File>,
    offset: u64,
    length: usize,
    checksum: u32,
}

impl SpillFile {
    /// In this directory, which need not be there yet.
    pub fn new(directory: &Path) -> SpillFile {
        SpillFile { directory: directory.to_owned(), filling: Mutex::default() }
    }

    fn part(&self) -> io::Result<Part> {
        let name = self.directory.join(NAME);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&name)?;
        fs::remove_file(&name)?;
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, PART_BYTES)?;
        Ok(Part { file: Arc::new(file), used: 0 })
    }

    fn write(&self, bytes: &Bytes) -> io::Result<Stretch> {
        let mut filling = self.filling.lock().unwrap_or_else(PoisonError::into_inner);
        let Filling { part, refused } = &mut *filling;
        let length = bytes.len() as u64;
        if 0 < *refused {
            *refused = refused.saturating_sub(length);
            return Err(io::ErrorKind::StorageFull.into());
        }
        let part = match part {
            Some(part) if part.used + length <= PART_BYTES => part,
            full => full.insert(self.part().inspect_err(|_| *refused = PART_BYTES)?),
        };
        part.file.write_all_at(bytes, part.used)?;
        let (file, offset) = (part.file.clone(), part.used);
        part.used += length;
        Ok(Stretch { file, offset, length: bytes.len(), checksum: crc32c::crc32c(bytes) })
    }
}

impl Spill for SpillFile {
    fn put(&self, bytes: &Bytes) -> Option<Arc<dyn Spilled>> {
        let is_wanted = (BYTES_MIN..=PART_BYTES as usize).contains(&bytes.len());
        let stretch = is_wanted.then(|| self.write(bytes))?.ok()?;
        Some(Arc::new(stretch))
    }
}

impl Stretch {
    fn try_read(&self) -> io::Result<Bytes> {
        let mut bytes = vec![0; self.length];
        self.file.read_exact_at(&mut bytes, self.offset)?;
        if crc32c::crc32c(&bytes) != self.checksum {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "its checksum is wrong"));
        }
        Ok(bytes.into())
    }
}

impl Spilled for Stretch {
    fn byte_length(&self) -> usize {
        self.length
    }

    fn read(&self) -> Bytes {
        self.try_read().unwrap_or_else(|error| end(&error))
    }
}

/// Without these entries the process cannot continue. The next start finds them in the journal.
fn end(error: &io::Error) -> ! {
    eprintln!("postroad ends: paged entries cannot be read back from the disk: {error}");
    std::process::abort()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(number: usize, length: usize) -> Bytes {
        (0..length).map(|at| (at * 31 + number) as u8).collect()
    }

    #[test]
    fn what_was_spilled_comes_back_and_its_files_have_no_names() {
        let directory = tempfile::tempdir().unwrap();
        let spill = SpillFile::new(directory.path());
        let lengths = (0..40).map(|number| BYTES_MIN + number * 70_000);
        let put: Vec<_> = lengths
            .enumerate()
            .map(|(number, length)| (bytes(number, length), spill.put(&bytes(number, length)).unwrap()))
            .collect();
        for (number, (bytes, spilled)) in put.iter().enumerate().rev() {
            assert_eq!((spilled.read(), spilled.byte_length()), (bytes.clone(), bytes.len()), "{number}");
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_is_too_small_or_has_no_room_stays_where_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let spill = SpillFile::new(directory.path());
        for (length, want) in
            [(0, false), (BYTES_MIN - 1, false), (BYTES_MIN, true), (4 << 20, true), ((4 << 20) + 1, false)]
        {
            assert_eq!(spill.put(&bytes(1, length)).is_some(), want, "{length} bytes");
        }
        let later = SpillFile::new(&directory.path().join("later"));
        assert!(later.put(&bytes(1, 1 << 20)).is_none(), "there is no such directory");
        fs::create_dir(directory.path().join("later")).unwrap();
        let taken: Vec<bool> = (0..6).map(|_| later.put(&bytes(1, 1 << 20)).is_some()).collect();
        assert_eq!(taken, [false, false, false, false, true, true], "it is tried again now and then");
    }

    #[test]
    fn what_has_changed_on_the_disk_is_not_taken_for_what_was_put_there() {
        let directory = tempfile::tempdir().unwrap();
        let spill = SpillFile::new(directory.path());
        let stretch = spill.write(&bytes(1, 600)).unwrap();
        assert_eq!(stretch.try_read().unwrap(), bytes(1, 600));
        stretch.file.write_all_at(b"X", 77).unwrap();
        assert_eq!(stretch.try_read().unwrap_err().to_string(), "its checksum is wrong");
        stretch.file.set_len(500).unwrap();
        assert!(stretch.try_read().is_err(), "it is shorter");
    }
}
