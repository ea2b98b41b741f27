//! A disk that is looked at and never changed.

use crate::disks::disk::{Disk, DiskFile};
use std::io;
use std::path::PathBuf;

/// Another disk, on which nothing is written, made, renamed or removed: such calls succeed and do
/// nothing. A journal opened on it shows the result of a start. Its own commits are lost.
#[derive(Clone, Debug)]
pub struct ReadOnly<D>(pub D);

/// A file of a [`ReadOnly`] disk.
#[derive(Debug)]
pub enum ReadOnlyFile<F> {
    /// One that is there.
    Found(F),
    /// One that was to be made: empty.
    Made,
}

impl<D: Disk> Disk for ReadOnly<D> {
    type File = ReadOnlyFile<D::File>;

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn open(&self, name: &str) -> io::Result<Self::File> {
        self.0.open(name).map(ReadOnlyFile::Found)
    }

    fn create(&self, name: &str) -> io::Result<Self::File> {
        match self.0.open(name) {
            Ok(file) => Ok(ReadOnlyFile::Found(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(ReadOnlyFile::Made),
            Err(error) => Err(error),
        }
    }

    fn rename(&self, _: &str, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn link(&self, name: &str, other: &ReadOnly<D>, new_name: &str) -> io::Result<()> {
        self.0.link(name, &other.0, new_name)
    }

    fn remove(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        Ok(None)
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    fn salt(&self) -> io::Result<u64> {
        self.0.salt()
    }
}

impl<F: DiskFile> DiskFile for ReadOnlyFile<F> {
    fn length(&self) -> io::Result<u64> {
        match self {
            ReadOnlyFile::Found(file) => file.length(),
            ReadOnlyFile::Made => Ok(0),
        }
    }

    fn names(&self) -> io::Result<u64> {
        match self {
            ReadOnlyFile::Found(file) => file.names(),
            ReadOnlyFile::Made => Ok(1),
        }
    }

    fn allocate(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            ReadOnlyFile::Found(file) => file.read_at(buffer, offset),
            ReadOnlyFile::Made => Ok(0),
        }
    }

    fn write_at(&self, pieces: &[io::IoSlice<'_>], _: u64) -> io::Result<usize> {
        Ok(pieces.iter().map(|piece| piece.len()).sum())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
