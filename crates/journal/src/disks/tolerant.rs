//! A disk whose unreadable sectors read as zeros: for those who know damage when they see it.

use crate::disks::disk::{Disk, DiskFile};
use crate::layout::format::SECTOR_BYTES;
use std::io;
use std::path::PathBuf;

/// Another disk, on which an error while reading costs the sectors that cannot be read, and nothing
/// else.
#[derive(Clone, Debug)]
pub(crate) struct Tolerant<D>(pub D);

/// A file of a [`Tolerant`] disk.
#[derive(Debug)]
pub(crate) struct TolerantFile<F>(F);

impl<D: Disk> Disk for Tolerant<D> {
    type File = TolerantFile<D::File>;

    fn list(&self) -> io::Result<Vec<String>> {
        self.0.list()
    }

    fn open(&self, name: &str) -> io::Result<Self::File> {
        self.0.open(name).map(TolerantFile)
    }

    fn create(&self, name: &str) -> io::Result<Self::File> {
        self.0.create(name).map(TolerantFile)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.0.rename(from, to)
    }

    fn link(&self, name: &str, other: &Tolerant<D>, new_name: &str) -> io::Result<()> {
        self.0.link(name, &other.0, new_name)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        self.0.free_bytes()
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.0.sync_directory()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(name)
    }

    fn salt(&self) -> io::Result<u64> {
        self.0.salt()
    }
}

impl<F: DiskFile> DiskFile for TolerantFile<F> {
    fn length(&self) -> io::Result<u64> {
        self.0.length()
    }

    fn names(&self) -> io::Result<u64> {
        self.0.names()
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.0.allocate(bytes)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        match self.0.read_at(buffer, offset) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => self.read_sectors(buffer, offset),
            read => read,
        }
    }

    fn write_at(&self, pieces: &[io::IoSlice<'_>], offset: u64) -> io::Result<usize> {
        self.0.write_at(pieces, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }
}

impl<F: DiskFile> TolerantFile<F> {
    /// Sector by sector, the contents of the file; those that cannot be read are zeros.
    fn read_sectors(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let there = self.0.length()?.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut filled = 0;
        while filled < there {
            let at = offset + filled as u64;
            let step = ((SECTOR_BYTES - at % SECTOR_BYTES) as usize).min(there - filled);
            let sector = &mut buffer[filled..filled + step];
            if !matches!(self.0.read_at(sector, at), Ok(read) if read == step) {
                sector.fill(0);
            }
            filled += step;
        }
        Ok(there)
    }
}
