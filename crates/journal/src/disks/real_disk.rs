//! A directory of the operating system.

use crate::disks::direct::DirectWay;
use crate::disks::disk::{Disk, DiskFile, read_part};
use crate::disks::ways::Ways;
use crate::error::OpenError;
use rustix::fs::{Advice, AtFlags, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A directory of the operating system, locked against other processes while any clone lives.
#[derive(Clone, Debug)]
pub struct RealDisk {
    locked: Arc<LockedDirectory>,
    /// The limit of all files together; `None` for the whole file system.
    bytes_max: Option<u64>,
    ways: Ways,
}

#[derive(Debug)]
struct LockedDirectory {
    path: PathBuf,
    directory: OwnedFd,
    /// Held for its lock only: the kernel releases it when the process ends, in any way. `None`:
    /// the directory was never written.
    _lock: Option<OwnedFd>,
    may_write: bool,
}

/// A file of the operating system.
#[derive(Debug)]
pub struct RealFile {
    file: OwnedFd,
    direct: DirectWay,
    ways: Ways,
}

impl RealFile {
    fn write(&self, pieces: &[io::IoSlice<'_>], offset: u64, durable: bool) -> io::Result<usize> {
        if self.ways.direct
            && let Some(written) = self.direct.write(&self.file, pieces, offset, durable)
        {
            return written;
        }
        let pieces = &pieces[..pieces.len().min(PIECES_MAX)];
        if durable {
            match rustix::io::pwritev2(&self.file, pieces, offset, ReadWriteFlags::DSYNC) {
                // The system, or this file system, does not know the flag, and has written nothing.
                Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => {}
                written => return Ok(written?),
            }
        }
        let written = rustix::io::pwritev(&self.file, pieces, offset)?;
        if durable {
            self.sync()?;
        }
        Ok(written)
    }
}

/// `IOV_MAX` of Linux: the most pieces one `pwritev` takes.
const PIECES_MAX: usize = 1024;

/// Holds the process id of the owner; never removed, as a removed lock file can be locked twice.
const LOCK_NAME: &str = "LOCK";

impl RealDisk {
    /// Opens and locks a directory, and makes it (and its parents) if there is none.
    ///
    /// # Errors
    /// [`OpenError::Locked`]: another process owns it, named by its id where that can be read.
    /// [`OpenError::Io`]: the directory cannot be made, opened or locked.
    pub fn open(path: impl AsRef<Path>) -> Result<RealDisk, OpenError> {
        let path = path.as_ref();
        let failed = |source: io::Error| OpenError::Io { file: path.to_owned(), source };
        if !path.is_dir() {
            make_directory(path).map_err(failed)?;
        }
        let directory = open_directory(path)?;
        let lock = lock(&directory, path)?;
        Ok(RealDisk::of(LockedDirectory {
            path: path.to_owned(),
            directory,
            _lock: Some(lock),
            may_write: true,
        }))
    }

    /// As [`RealDisk::open`], for readers only: the directory must exist, and may be one in which
    /// nothing can be written, as on a file system that is mounted so. Then others may look at the
    /// same time, and writes fail.
    ///
    /// # Errors
    /// Those of [`RealDisk::open`].
    pub fn open_to_look(path: impl AsRef<Path>) -> Result<RealDisk, OpenError> {
        let path = path.as_ref();
        let directory = open_directory(path)?;
        let (lock, may_write) = match lock(&directory, path) {
            Err(OpenError::Io { source, .. }) if forbids_writing(&source) => {
                (lock_to_look(&directory, path)?, false)
            }
            lock => (Some(lock?), true),
        };
        Ok(RealDisk::of(LockedDirectory { path: path.to_owned(), directory, _lock: lock, may_write }))
    }

    fn of(locked: LockedDirectory) -> RealDisk {
        RealDisk { locked: Arc::new(locked), bytes_max: None, ways: Ways::default() }
    }

    /// The same, as if the file system had this size and no other files. Existing data stays.
    pub fn limited(self, bytes_max: Option<u64>) -> RealDisk {
        RealDisk { bytes_max, ..self }
    }

    /// See [`RealDisk::limited`].
    pub fn bytes_max(&self) -> Option<u64> {
        self.bytes_max
    }

    /// The same, with files that are opened from now on written so.
    pub fn written(self, ways: Ways) -> RealDisk {
        RealDisk { ways, ..self }
    }

    /// How its files are written.
    pub fn ways(&self) -> Ways {
        self.ways
    }

    fn file(&self, file: OwnedFd) -> RealFile {
        RealFile { file, direct: DirectWay::default(), ways: self.ways }
    }

    /// Bytes of all files.
    fn used_bytes(&self) -> io::Result<u64> {
        let length = |name: &String| {
            let found = rustix::fs::statat(&self.locked.directory, name, AtFlags::SYMLINK_NOFOLLOW);
            // One that was removed since takes nothing.
            found.map_or(0, |found| u64::try_from(found.st_size).unwrap_or(0))
        };
        Ok(self.list()?.iter().map(length).sum())
    }
}

/// Makes the directory and syncs the one it lies in, so that it outlives a power cut.
fn make_directory(path: &Path) -> io::Result<()> {
    std::fs::create_dir_all(path)?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    std::fs::File::open(parent)?.sync_all()
}

fn open_directory(path: &Path) -> Result<OwnedFd, OpenError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let failed = |error: Errno| OpenError::Io { file: path.to_owned(), source: error.into() };
    rustix::fs::open(path, flags, Mode::empty()).map_err(failed)
}

fn lock(directory: &OwnedFd, path: &Path) -> Result<OwnedFd, OpenError> {
    let failed = |error: Errno| OpenError::Io { file: path.join(LOCK_NAME), source: error.into() };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let lock = rustix::fs::openat(directory, LOCK_NAME, flags, Mode::from_raw_mode(0o640)).map_err(failed)?;
    take(&lock, path, FlockOperation::NonBlockingLockExclusive)?;
    rustix::fs::ftruncate(&lock, 0).map_err(failed)?;
    let pid = format!("{}\n", std::process::id());
    rustix::io::pwrite(&lock, pid.as_bytes(), 0).map_err(failed)?;
    Ok(lock)
}

/// Without a lock file the directory was never written, and there is no writer to exclude.
fn lock_to_look(directory: &OwnedFd, path: &Path) -> Result<Option<OwnedFd>, OpenError> {
    match rustix::fs::openat(directory, LOCK_NAME, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(lock) => {
            take(&lock, path, FlockOperation::NonBlockingLockShared)?;
            Ok(Some(lock))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(OpenError::Io { file: path.join(LOCK_NAME), source: error.into() }),
    }
}

fn take(lock: &OwnedFd, path: &Path, operation: FlockOperation) -> Result<(), OpenError> {
    let file = || path.join(LOCK_NAME);
    rustix::fs::flock(lock, operation).map_err(|error| match error {
        Errno::WOULDBLOCK => OpenError::Locked { file: file(), pid: owner(lock) },
        error => OpenError::Io { file: file(), source: error.into() },
    })
}

fn forbids_writing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied)
}

/// The process id its owner wrote into the lock file; `None` if it is not there (yet).
fn owner(lock: &OwnedFd) -> Option<u32> {
    let mut text = [0_u8; 16];
    let length = rustix::io::pread(lock, &mut text, 0).ok()?;
    std::str::from_utf8(&text[..length]).ok()?.trim().parse().ok()
}

impl Disk for RealDisk {
    type File = RealFile;

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.locked.directory)? {
            if let Ok(name) = entry?.file_name().to_str() {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> io::Result<RealFile> {
        let access = if self.locked.may_write { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = access | OFlags::CLOEXEC;
        Ok(self.file(rustix::fs::openat(&self.locked.directory, name, flags, Mode::empty())?))
    }

    fn create(&self, name: &str) -> io::Result<RealFile> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o640);
        Ok(self.file(rustix::fs::openat(&self.locked.directory, name, flags, mode)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.locked.directory, from, &self.locked.directory, to)?)
    }

    fn link(&self, name: &str, other: &RealDisk, new_name: &str) -> io::Result<()> {
        let (from, to) = (&self.locked.directory, &other.locked.directory);
        Ok(rustix::fs::linkat(from, name, to, new_name, AtFlags::empty())?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.locked.directory, name, AtFlags::empty())?)
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        let found = rustix::fs::fstatvfs(&self.locked.directory)?;
        // A file system without a size of its own (tmpfs without a limit, some network ones) says 0
        // blocks.
        let free = (found.f_blocks != 0).then(|| found.f_bavail.saturating_mul(found.f_frsize));
        let Some(bytes_max) = self.bytes_max else { return Ok(free) };
        let left = bytes_max.saturating_sub(self.used_bytes()?);
        Ok(Some(free.map_or(left, |free| free.min(left))))
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.locked.directory)?)
    }

    fn check_place(&self) -> io::Result<()> {
        let held = rustix::fs::fstat(&self.locked.directory)?;
        match rustix::fs::stat(&self.locked.path) {
            Ok(found) if (held.st_dev, held.st_ino) != (found.st_dev, found.st_ino) => {
                Err(io::Error::other("another directory is in its place"))
            }
            Err(Errno::NOENT | Errno::NOTDIR) => {
                Err(io::Error::other("the directory was removed with all of its data"))
            }
            // Where the way there may not be looked at, the files can still be written.
            _ => Ok(()),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.locked.path.join(name)
    }

    fn salt(&self) -> io::Result<u64> {
        let mut salt = [0_u8; 8];
        rustix::rand::getrandom(&mut salt, rustix::rand::GetRandomFlags::empty())?;
        Ok(u64::from_le_bytes(salt))
    }

    fn wants_zeros(&self) -> bool {
        self.ways.zeroed
    }
}

impl DiskFile for RealFile {
    fn length(&self) -> io::Result<u64> {
        Ok(u64::try_from(rustix::fs::fstat(&self.file)?.st_size).unwrap_or(0))
    }

    fn names(&self) -> io::Result<u64> {
        Ok(rustix::fs::fstat(&self.file)?.st_nlink)
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, bytes)?)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::pread(&self.file, buffer, offset)?)
    }

    fn read_once(&self, part: Range<u64>, buffer: &mut Vec<u8>) -> io::Result<Range<usize>> {
        self.direct.read(&self.file, &part, buffer).unwrap_or_else(|| read_part(self, part, buffer))
    }

    fn will_need(&self, part: Range<u64>) {
        let length = NonZeroU64::new(part.end.saturating_sub(part.start));
        // A system that takes no advice reads when it is asked to.
        let _ = rustix::fs::fadvise(&self.file, part.start, length, Advice::WillNeed);
    }

    fn write_at(&self, pieces: &[io::IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.write(pieces, offset, false)
    }

    fn writes_durably(&self) -> bool {
        self.ways.one_call
    }

    fn write_durable_at(&self, pieces: &[io::IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.write(pieces, offset, true)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fdatasync(&self.file)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_nobody_can_write_several_look_and_keep_writers_out() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let opened = open_directory(path).unwrap();
        let look = || lock_to_look(&opened, path);
        assert!(look().unwrap().is_none(), "nobody has written there");
        let writer = lock(&opened, path).unwrap();
        let owner = Some(std::process::id());
        assert!(matches!(look(), Err(OpenError::Locked { pid, .. }) if pid == owner));
        drop(writer);
        let several = [look().unwrap().unwrap(), look().unwrap().unwrap()];
        assert!(matches!(lock(&opened, path), Err(OpenError::Locked { .. })));
        drop(several);
        lock(&opened, path).unwrap();
    }
}
