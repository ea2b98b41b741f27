//! The only way of this room to a disk: one flat directory of files.

use std::io;
use std::ops::Range;
use std::path::PathBuf;

/// One directory on one device. Clones share it.
///
/// Entries made, renamed or removed are durable only after [`Disk::sync_directory`].
pub trait Disk: Clone + Send + 'static {
    /// An open file.
    type File: DiskFile;

    /// Names of all files, in no order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Opens a file that exists, for reading and writing.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Opens a file for reading and writing, and makes it, empty, if there is none.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Gives a file another name; a file that had it is replaced. Atomic.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file's name; the file goes with its last open handle.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Gives a file a further name in another directory of the same device; it must not have a file
    /// of that name yet.
    fn link(&self, name: &str, other: &Self, new_name: &str) -> io::Result<()>;

    /// Bytes that files may still take; `None` if the file system does not say.
    fn free_bytes(&self) -> io::Result<Option<u64>>;

    /// Makes all entries made, renamed and removed so far durable.
    fn sync_directory(&self) -> io::Result<()>;

    /// Fails if the directory was moved or replaced: data written now would not be found at the
    /// configured path.
    fn check_place(&self) -> io::Result<()> {
        Ok(())
    }

    /// Where a file is, for error messages.
    fn path(&self, name: &str) -> PathBuf;

    /// A number that has not been used before on this disk and cannot be guessed.
    fn salt(&self) -> io::Result<u64>;

    /// Whether space pays for being filled with zeros before it is used.
    fn wants_zeros(&self) -> bool {
        true
    }
}

/// An open file. Threads may share it.
pub trait DiskFile: Send + Sync + 'static {
    /// Length in bytes.
    fn length(&self) -> io::Result<u64>;

    /// The number of its names: with more than one, a reader by another name must find it
    /// unchanged; it has none once it was removed.
    fn names(&self) -> io::Result<u64>;

    /// Takes space for the first `bytes` bytes and makes the file at least that long; new bytes
    /// read as zero.
    fn allocate(&self, bytes: u64) -> io::Result<()>;

    /// Reads up to `buffer.len()` bytes at `offset`; fewer only at the end of the file or if
    /// interrupted.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Reads data that will not be read again soon, past the system's page cache where possible;
    /// less only at the end of the file. `buffer` grows as it must; the answer is where in it the
    /// part lies.
    fn read_once(&self, part: Range<u64>, buffer: &mut Vec<u8>) -> io::Result<Range<usize>>
    where
        Self: Sized,
    {
        read_part(self, part, buffer)
    }

    /// Says that this part will be read soon, so that the disk may begin. Nothing depends on it.
    fn will_need(&self, _part: Range<u64>) {}

    /// Writes pieces one after the other at `offset`; returns the bytes written, which may be
    /// fewer.
    fn write_at(&self, pieces: &[io::IoSlice<'_>], offset: u64) -> io::Result<usize>;

    /// Whether data that must be durable at once is to be written by
    /// [`DiskFile::write_durable_at`].
    fn writes_durably(&self) -> bool {
        false
    }

    /// As [`DiskFile::write_at`], and its bytes are durable afterwards; earlier writes are not
    /// affected. After an error nothing is known of these bytes, as after one of
    /// [`DiskFile::sync`].
    fn write_durable_at(&self, pieces: &[io::IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let written = self.write_at(pieces, offset)?;
        self.sync()?;
        Ok(written)
    }

    /// Makes all bytes written so far durable. After an error nothing is known of any byte written
    /// since the last success, and a later success on this handle says nothing of them either.
    fn sync(&self) -> io::Result<()>;
}

/// Writes all `pieces` at `offset`, in as few calls as short writes allow.
pub(crate) fn write_all_at<F: DiskFile>(
    file: &F,
    pieces: &mut [io::IoSlice<'_>],
    offset: u64,
) -> io::Result<()> {
    write_all(pieces, offset, |pieces, offset| file.write_at(pieces, offset))
}

/// The same by [`DiskFile::write_durable_at`].
pub(crate) fn write_all_durable_at<F: DiskFile>(
    file: &F,
    pieces: &mut [io::IoSlice<'_>],
    offset: u64,
) -> io::Result<()> {
    write_all(pieces, offset, |pieces, offset| file.write_durable_at(pieces, offset))
}

fn write_all(
    mut pieces: &mut [io::IoSlice<'_>],
    mut offset: u64,
    write: impl Fn(&[io::IoSlice<'_>], u64) -> io::Result<usize>,
) -> io::Result<()> {
    io::IoSlice::advance_slices(&mut pieces, 0);
    while !pieces.is_empty() {
        match write(pieces, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                offset += written as u64;
                io::IoSlice::advance_slices(&mut pieces, written);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Fills `buffer` from `offset`; returns the bytes read, fewer than asked only at the end of the
/// file.
pub(crate) fn read_full_at<F: DiskFile + ?Sized>(
    file: &F,
    buffer: &mut [u8],
    offset: u64,
) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Reads a part of the file to the beginning of `buffer`; less only at the end of the file. Where
/// it lies then.
pub(crate) fn read_part<F: DiskFile>(
    file: &F,
    part: Range<u64>,
    buffer: &mut Vec<u8>,
) -> io::Result<Range<usize>> {
    buffer.resize(part.end.saturating_sub(part.start) as usize, 0);
    Ok(0..read_full_at(file, buffer, part.start)?)
}

/// Puts bytes in the place of others, and syncs them.
pub(crate) fn overwrite<F: DiskFile, const N: usize>(
    file: &F,
    offset: u64,
    bytes: &[u8; N],
) -> io::Result<()> {
    let write = |bytes: &[u8]| write_all_at(file, &mut [io::IoSlice::new(bytes)], offset);
    let mut before = [0; N];
    read_full_at(file, &mut before, offset)?;
    let written = write(bytes).and_then(|()| file.sync());
    if written.is_err() {
        // The new ones may be in the page cache only: the next start must find the data that is on
        // the disk.
        let _ = write(&before);
    }
    written
}

/// Whether an error says that the device, the quota or the file size limit is exhausted.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
