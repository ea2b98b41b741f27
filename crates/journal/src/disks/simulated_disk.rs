//! A disk in memory that forgets unsynced data, and fails on demand.

use crate::disks::disk::{Disk, DiskFile};
use crate::disks::simulated_state::{FileId, State};
use crate::disks::ways::Ways;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

/// A disk in memory, deterministic from a seed. Clones share it.
///
/// It keeps written and synced bytes apart. [`SimulatedDisk::crash`] is a power failure: of
/// unsynced data any subset of sectors and directory changes survives. [`SimulatedDisk::restart`]
/// is the end of the process: everything written can still be read. Handles opened before either
/// fail from then on. After a failed sync the bytes it was for can be read, but later syncs say
/// nothing of them, as on Linux.
#[derive(Clone, Debug)]
pub struct SimulatedDisk(Arc<Mutex<State>>);

/// A handle on a file of a [`SimulatedDisk`].
#[derive(Debug)]
pub struct SimulatedFile {
    disk: SimulatedDisk,
    id: FileId,
    /// Handles of an earlier life of the process are void.
    epoch: u64,
}

/// The operation of a planned fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Whatever comes next.
    Any,
    /// Listing the directory.
    List,
    /// Opening a file that exists.
    Open,
    /// Opening a file that does not exist, so that it is made.
    Create,
    /// Asking for the length of a file, or for its other names.
    Length,
    /// Asking for the space that is left, which a full disk answers.
    FreeBytes,
    /// Taking space.
    Allocate,
    /// One write call.
    Write,
    /// One sync of a file.
    Sync,
    /// One sync of the directory.
    SyncDirectory,
    /// One rename.
    Rename,
    /// Removing a name.
    Remove,
    /// Giving a file a further name.
    Link,
    /// One read call.
    Read,
}

/// The result instead of success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An input/output error; a write or sync may have had any part of its effect.
    Broken,
    /// No space; without any effect.
    Full,
    /// A read or write of fewer bytes than asked, which is no error. Other operations succeed.
    Short,
    /// As [`Fault::Broken`], and whatever is asked of the disk afterwards fails without effect,
    /// until the process or the machine ends: nothing is tidied up after it.
    Dead,
}

impl Operation {
    /// The faults of a simulation: each kind, and those of syncs twice as often.
    pub const DRAWN: [Operation; 15] = [
        Operation::List,
        Operation::Open,
        Operation::Create,
        Operation::Length,
        Operation::FreeBytes,
        Operation::Allocate,
        Operation::Write,
        Operation::Write,
        Operation::Sync,
        Operation::Sync,
        Operation::SyncDirectory,
        Operation::Rename,
        Operation::Remove,
        Operation::Link,
        Operation::Read,
    ];

    /// A fault that it can meet: the one that only its like meets, if there is one, or any
    /// operation's.
    pub fn fault(self, of_its_own: bool) -> Fault {
        match self {
            Operation::Write | Operation::Read if of_its_own => Fault::Short,
            Operation::Create | Operation::Allocate if of_its_own => Fault::Full,
            _ => Fault::Broken,
        }
    }
}

impl SimulatedDisk {
    /// An empty disk whose every decision follows from `seed`.
    pub fn new(seed: u64) -> SimulatedDisk {
        SimulatedDisk(Arc::new(Mutex::new(State::new(seed))))
    }

    /// The same, written so; there is no page cache.
    pub fn written(self, ways: Ways) -> SimulatedDisk {
        self.state().ways = ways;
        self
    }

    /// Plans a fault for the `nth` operation of this kind from now on; 0 is the next one.
    pub fn fail(&self, operation: Operation, nth: u64, fault: Fault) {
        self.state().plan(operation, nth, fault);
    }

    /// Forgets all faults planned and not yet met.
    pub fn clear_faults(&self) {
        self.state().clear_plans();
    }

    /// Forgets the [`Operation::Any`] faults that were planned and not met: whatever is tried next
    /// is another piece of work.
    pub fn clear_death(&self) {
        self.state().clear_plans_of(Operation::Any);
    }

    /// Whether it has met [`Fault::Dead`] and the process goes on all the same.
    pub fn is_dead(&self) -> bool {
        self.state().is_dead()
    }

    /// Limits the bytes of all files together; `None` lifts the limit. Stored data stays.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().set_capacity(bytes);
    }

    /// Names of all files; no operation, so that it meets no fault.
    pub fn names(&self) -> Vec<String> {
        self.state().names()
    }

    /// Bytes of all files together.
    pub fn used_bytes(&self) -> u64 {
        self.state().used_bytes()
    }

    /// The power fails and comes back.
    pub fn crash(&self) {
        self.state().crash();
    }

    /// The process ends and starts again; the operating system goes on.
    pub fn restart(&self) {
        self.state().restart();
    }

    /// A disk with the same files, all synced, without faults; changes to one do not show in the
    /// other.
    pub fn copy(&self) -> SimulatedDisk {
        SimulatedDisk(Arc::new(Mutex::new(self.state().copy())))
    }

    /// The bytes of a file; `None` if there is none of this name.
    pub fn contents(&self, name: &str) -> Option<Vec<u8>> {
        self.state().contents(name)
    }

    /// Puts a file in place, synced.
    pub fn set_contents(&self, name: &str, bytes: Vec<u8>) {
        self.state().set_contents(name, bytes);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test thread that panicked says nothing about the bytes.
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn handle(&self, id: FileId, epoch: u64) -> SimulatedFile {
        SimulatedFile { disk: self.clone(), id, epoch }
    }
}

impl Disk for SimulatedDisk {
    type File = SimulatedFile;

    fn list(&self) -> io::Result<Vec<String>> {
        self.state().list()
    }

    fn open(&self, name: &str) -> io::Result<SimulatedFile> {
        let (id, epoch) = self.state().open(name)?;
        Ok(self.handle(id, epoch))
    }

    fn create(&self, name: &str) -> io::Result<SimulatedFile> {
        let (id, epoch) = self.state().create(name)?;
        Ok(self.handle(id, epoch))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.state().rename(from, to)
    }

    /// As a copy: a file with a further name is not written any more.
    fn link(&self, name: &str, other: &SimulatedDisk, new_name: &str) -> io::Result<()> {
        self.state().check(Operation::Link)?;
        let bytes = self.contents(name).ok_or(io::ErrorKind::NotFound)?;
        other.set_contents(new_name, bytes);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.state().remove(name)
    }

    fn free_bytes(&self) -> io::Result<Option<u64>> {
        self.state().free_bytes()
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.state().sync_directory()
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(name)
    }

    fn salt(&self) -> io::Result<u64> {
        Ok(self.state().random())
    }

    fn wants_zeros(&self) -> bool {
        self.state().ways.zeroed
    }
}

impl DiskFile for SimulatedFile {
    fn length(&self) -> io::Result<u64> {
        self.disk.state().length(self.id, self.epoch)
    }

    fn names(&self) -> io::Result<u64> {
        Ok(self.disk.state().names_of(self.id))
    }

    fn allocate(&self, bytes: u64) -> io::Result<()> {
        self.disk.state().allocate(self.id, self.epoch, bytes)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        self.disk.state().read(self.id, self.epoch, buffer, offset)
    }

    fn write_at(&self, pieces: &[io::IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        self.disk.state().write(self.id, self.epoch, &bytes, offset)
    }

    fn writes_durably(&self) -> bool {
        self.disk.state().ways.one_call
    }

    fn write_durable_at(&self, pieces: &[io::IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        self.disk.state().write_durable(self.id, self.epoch, &bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.state().sync(self.id, self.epoch)
    }
}
