//! The inside of the simulated disk: written data, synced data, and planned faults.

use crate::disks::simulated_disk::{Fault, Operation};
use crate::disks::ways::Ways;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// A file, whatever its name.
pub(crate) type FileId = u64;

const SECTOR: usize = 512;

#[derive(Debug, Default)]
pub(crate) struct State {
    seed: u64,
    /// Counts the lives of the process.
    epoch: u64,
    last_id: FileId,
    files: BTreeMap<FileId, File>,
    names: BTreeMap<String, FileId>,
    synced_names: BTreeMap<String, FileId>,
    /// Changes of names since the last sync of the directory.
    changes: Vec<Change>,
    done: BTreeMap<Operation, u64>,
    plans: BTreeMap<(Operation, u64), Fault>,
    /// [`Fault::Dead`] was met in this life of the process.
    dead: bool,
    capacity: Option<u64>,
    pub(crate) ways: Ways,
}

#[derive(Clone, Debug, Default)]
struct File {
    /// The result of a read.
    written: Vec<u8>,
    /// The data that certainly survives a power failure.
    synced: Vec<u8>,
    /// Sectors the next sync makes durable.
    unsynced: BTreeSet<usize>,
}

#[derive(Clone, Debug)]
enum Change {
    Set(String, FileId),
    Rename(String, String),
    Remove(String),
}

fn broken() -> io::Error {
    io::Error::from_raw_os_error(5)
}

fn full() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

impl State {
    pub(crate) fn new(seed: u64) -> State {
        State { seed, ..State::default() }
    }

    /// SplitMix64 (Steele, Lea, Flood 2014).
    pub(crate) fn random(&mut self) -> u64 {
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.seed;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn coin(&mut self) -> bool {
        self.random() & 1 == 0
    }

    pub(crate) fn plan(&mut self, operation: Operation, nth: u64, fault: Fault) {
        let done = self.done.get(&operation).copied().unwrap_or(0);
        self.plans.insert((operation, done + nth), fault);
    }

    pub(crate) fn clear_plans(&mut self) {
        self.plans.clear();
    }

    pub(crate) fn clear_plans_of(&mut self, operation: Operation) {
        self.plans.retain(|(planned, _), _| *planned != operation);
    }

    pub(crate) fn set_capacity(&mut self, bytes: Option<u64>) {
        self.capacity = bytes;
    }

    pub(crate) fn used_bytes(&self) -> u64 {
        self.names.values().filter_map(|id| self.files.get(id)).map(|file| file.written.len() as u64).sum()
    }

    pub(crate) fn free_bytes(&mut self) -> io::Result<Option<u64>> {
        self.check(Operation::FreeBytes)?;
        Ok(self.capacity.map(|capacity| capacity.saturating_sub(self.used_bytes())))
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead
    }

    /// Counts one operation; the fault planned for it, if any.
    ///
    /// # Errors
    /// The disk is dead already: nothing has an effect any more.
    fn fault(&mut self, operation: Operation) -> io::Result<Option<Fault>> {
        if self.dead {
            return Err(broken());
        }
        let mut met = |operation| {
            let done = self.done.entry(operation).or_insert(0);
            *done += 1;
            self.plans.remove(&(operation, *done - 1))
        };
        let (of_any, own) = (met(Operation::Any), met(operation));
        let fault = of_any.or(own);
        self.dead = fault == Some(Fault::Dead);
        Ok(fault)
    }

    /// As [`State::fault`], for operations that succeed or fail as a whole.
    pub(crate) fn check(&mut self, operation: Operation) -> io::Result<()> {
        match self.fault(operation)? {
            Some(Fault::Broken | Fault::Dead) => Err(broken()),
            Some(Fault::Full) => Err(full()),
            Some(Fault::Short) | None => Ok(()),
        }
    }

    pub(crate) fn list(&mut self) -> io::Result<Vec<String>> {
        self.check(Operation::List)?;
        Ok(self.names())
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.names.keys().cloned().collect()
    }

    pub(crate) fn names_of(&self, file: FileId) -> u64 {
        self.names.values().filter(|&&id| id == file).count() as u64
    }

    pub(crate) fn open(&mut self, name: &str) -> io::Result<(FileId, u64)> {
        self.check(Operation::Open)?;
        self.find(name)
    }

    fn find(&self, name: &str) -> io::Result<(FileId, u64)> {
        let id = self.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok((*id, self.epoch))
    }

    pub(crate) fn create(&mut self, name: &str) -> io::Result<(FileId, u64)> {
        if self.names.contains_key(name) {
            return self.open(name);
        }
        self.check(Operation::Create)?;
        let id = self.add(File::default());
        self.names.insert(name.to_owned(), id);
        self.changes.push(Change::Set(name.to_owned(), id));
        self.find(name)
    }

    fn add(&mut self, file: File) -> FileId {
        self.last_id += 1;
        self.files.insert(self.last_id, file);
        self.last_id
    }

    pub(crate) fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.check(Operation::Rename)?;
        let change = Change::Rename(from.to_owned(), to.to_owned());
        if !apply(&mut self.names, &change) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.changes.push(change);
        Ok(())
    }

    pub(crate) fn remove(&mut self, name: &str) -> io::Result<()> {
        self.check(Operation::Remove)?;
        let change = Change::Remove(name.to_owned());
        if !apply(&mut self.names, &change) {
            return Err(io::ErrorKind::NotFound.into());
        }
        self.changes.push(change);
        Ok(())
    }

    pub(crate) fn sync_directory(&mut self) -> io::Result<()> {
        self.check(Operation::SyncDirectory)?;
        self.synced_names = self.names.clone();
        self.changes.clear();
        Ok(())
    }

    fn file(&mut self, id: FileId, epoch: u64) -> io::Result<&mut File> {
        if epoch != self.epoch {
            return Err(broken());
        }
        self.files.get_mut(&id).ok_or_else(broken)
    }

    pub(crate) fn length(&mut self, id: FileId, epoch: u64) -> io::Result<u64> {
        self.check(Operation::Length)?;
        Ok(self.file(id, epoch)?.written.len() as u64)
    }

    pub(crate) fn allocate(&mut self, id: FileId, epoch: u64, bytes: u64) -> io::Result<()> {
        self.check(Operation::Allocate)?;
        self.grow(id, epoch, bytes)
    }

    fn grow(&mut self, id: FileId, epoch: u64, bytes: u64) -> io::Result<()> {
        let (used, capacity) = (self.used_bytes(), self.capacity);
        let file = self.file(id, epoch)?;
        let more = bytes.saturating_sub(file.written.len() as u64);
        if 0 < more {
            if capacity.is_some_and(|capacity| capacity < used + more) {
                return Err(full());
            }
            file.written.resize(bytes as usize, 0);
        }
        Ok(())
    }

    pub(crate) fn read(
        &mut self,
        id: FileId,
        epoch: u64,
        buffer: &mut [u8],
        offset: u64,
    ) -> io::Result<usize> {
        let fault = self.fault(Operation::Read)?;
        if matches!(fault, Some(Fault::Broken | Fault::Dead)) {
            return Err(broken());
        }
        let file = self.file(id, epoch)?;
        let rest = file.written.get(offset as usize..).unwrap_or_default();
        let mut length = buffer.len().min(rest.len());
        if fault == Some(Fault::Short) {
            length = length.div_ceil(2);
        }
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }

    pub(crate) fn write(&mut self, id: FileId, epoch: u64, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let length = match self.fault(Operation::Write)? {
            None => bytes.len(),
            Some(Fault::Full) => return Err(full()),
            Some(Fault::Short) => bytes.len().div_ceil(2),
            Some(Fault::Broken | Fault::Dead) => {
                let length = self.random() as usize % (bytes.len() + 1);
                self.put(id, epoch, &bytes[..length], offset)?;
                return Err(broken());
            }
        };
        self.put(id, epoch, &bytes[..length], offset)?;
        Ok(length)
    }

    fn put(&mut self, id: FileId, epoch: u64, bytes: &[u8], offset: u64) -> io::Result<()> {
        let (start, end) = (offset as usize, offset as usize + bytes.len());
        self.grow(id, epoch, end as u64)?;
        let file = self.file(id, epoch)?;
        file.written[start..end].copy_from_slice(bytes);
        file.unsynced.extend(start / SECTOR..end.div_ceil(SECTOR));
        Ok(())
    }

    /// Writes, and makes these sectors durable, and no others.
    pub(crate) fn write_durable(
        &mut self,
        id: FileId,
        epoch: u64,
        bytes: &[u8],
        offset: u64,
    ) -> io::Result<usize> {
        let written = self.write(id, epoch, bytes, offset)?;
        let (start, end) = (offset as usize, offset as usize + written);
        let others = &mut self.file(id, epoch)?.unsynced;
        let kept: Vec<usize> = others
            .extract_if(.., |sector| !(start / SECTOR..end.div_ceil(SECTOR)).contains(sector))
            .collect();
        let synced = self.sync(id, epoch);
        self.file(id, epoch)?.unsynced.extend(kept);
        synced.map(|()| written)
    }

    pub(crate) fn sync(&mut self, id: FileId, epoch: u64) -> io::Result<()> {
        let was_dead = self.dead;
        let failed = self.check(Operation::Sync);
        if was_dead {
            return failed;
        }
        let sectors = std::mem::take(&mut self.file(id, epoch)?.unsynced);
        // After a failure some of the bytes are durable, and the rest counts as synced all the
        // same.
        let kept = sectors.into_iter().filter(|_| failed.is_ok() || self.coin()).collect();
        let file = self.file(id, epoch)?;
        if failed.is_ok() {
            file.synced.resize(file.written.len(), 0);
        }
        file.keep(kept);
        failed
    }

    pub(crate) fn crash(&mut self) {
        let ids: Vec<FileId> = self.files.keys().copied().collect();
        for id in ids {
            let length = self.coin();
            let Some(mut file) = self.files.remove(&id) else { continue };
            if length {
                file.synced.resize(file.written.len(), 0);
            }
            let kept = std::mem::take(&mut file.unsynced).into_iter().filter(|_| self.coin()).collect();
            file.keep(kept);
            file.written.clone_from(&file.synced);
            self.files.insert(id, file);
        }
        for change in std::mem::take(&mut self.changes) {
            if self.coin() {
                apply(&mut self.synced_names, &change);
            }
        }
        self.names = self.synced_names.clone();
        self.restart();
    }

    pub(crate) fn restart(&mut self) {
        self.epoch += 1;
        self.dead = false;
        // A power cut may yet leave the making of a file and not its removal.
        let made = self.changes.iter().filter_map(|change| match change {
            Change::Set(_, id) => Some(id),
            Change::Rename(..) | Change::Remove(_) => None,
        });
        let named: BTreeSet<FileId> =
            self.names.values().chain(self.synced_names.values()).chain(made).copied().collect();
        self.files.retain(|id, _| named.contains(id));
    }

    pub(crate) fn copy(&self) -> State {
        let mut copy = State { ways: self.ways, ..State::new(self.seed) };
        for name in self.names.keys() {
            copy.set_contents(name, self.contents(name).unwrap_or_default());
        }
        copy
    }

    pub(crate) fn contents(&self, name: &str) -> Option<Vec<u8>> {
        Some(self.files.get(self.names.get(name)?)?.written.clone())
    }

    pub(crate) fn set_contents(&mut self, name: &str, bytes: Vec<u8>) {
        let id = self.add(File { written: bytes.clone(), synced: bytes, unsynced: BTreeSet::new() });
        self.names.insert(name.to_owned(), id);
        self.synced_names.insert(name.to_owned(), id);
    }
}

impl File {
    /// Makes sectors durable, as far as the durable length reaches.
    fn keep(&mut self, sectors: Vec<usize>) {
        let length = self.synced.len().min(self.written.len());
        for sector in sectors {
            let (start, end) = ((sector * SECTOR).min(length), ((sector + 1) * SECTOR).min(length));
            self.synced[start..end].copy_from_slice(&self.written[start..end]);
        }
    }
}

/// Changes the names; false if the change is impossible.
fn apply(names: &mut BTreeMap<String, FileId>, change: &Change) -> bool {
    match change {
        Change::Set(name, id) => {
            names.insert(name.clone(), *id);
            true
        }
        Change::Remove(name) => names.remove(name).is_some(),
        Change::Rename(from, to) => match names.remove(from) {
            Some(id) => {
                names.insert(to.clone(), id);
                true
            }
            None => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_disk_does_nothing_more_until_the_process_ends() {
        for nth in 0..4 {
            let mut state = State::new(nth);
            let (id, epoch) = state.create("a").unwrap();
            state.write(id, epoch, &[1; SECTOR], 0).unwrap();
            state.plan(Operation::Any, nth, Fault::Dead);
            let done = [
                state.write(id, epoch, &[2; SECTOR], 0).map(drop),
                state.create("b").map(drop),
                state.rename("a", "c"),
                state.remove("a"),
            ];
            assert_eq!(done.map(|done| done.is_ok()), [0, 1, 2, 3].map(|at| at < nth), "{nth}");
            assert!(state.is_dead());
            let failed = [
                state.list().map(drop),
                state.open("a").map(drop),
                state.length(id, epoch).map(drop),
                state.free_bytes().map(drop),
                state.allocate(id, epoch, 9000),
                state.read(id, epoch, &mut [0], 0).map(drop),
                state.sync(id, epoch),
                state.sync_directory(),
            ];
            assert!(failed.iter().all(Result::is_err), "{nth}: {failed:?}");
            let names = state.names();
            state.restart();
            assert_eq!((state.is_dead(), state.list().unwrap()), (false, names), "{nth}");
        }
    }

    #[test]
    fn every_operation_can_fail_and_succeeds_the_next_time() {
        use Operation::{
            Allocate, Any, Create, FreeBytes, Length, List, Open, Read, Remove, Rename, Sync, SyncDirectory,
            Write,
        };
        type Act = fn(&mut State, (FileId, u64)) -> io::Result<()>;
        let cases: [(Operation, Act); 13] = [
            (Any, |state, _| state.sync_directory()),
            (List, |state, _| state.list().map(drop)),
            (Open, |state, _| state.open("a").map(drop)),
            (Create, |state, _| state.create("b").map(drop)),
            (Length, |state, (id, epoch)| state.length(id, epoch).map(drop)),
            (FreeBytes, |state, _| state.free_bytes().map(drop)),
            (Allocate, |state, (id, epoch)| state.allocate(id, epoch, 100)),
            (Read, |state, (id, epoch)| state.read(id, epoch, &mut [0], 0).map(drop)),
            (Write, |state, (id, epoch)| state.write(id, epoch, b"text", 0).map(drop)),
            (Sync, |state, (id, epoch)| state.sync(id, epoch)),
            (SyncDirectory, |state, _| state.sync_directory()),
            (Rename, |state, _| state.rename("a", "c")),
            (Remove, |state, _| state.remove("a")),
        ];
        for (operation, act) in cases {
            let mut state = State::new(1);
            let file = state.create("a").unwrap();
            state.plan(operation, 0, Fault::Broken);
            let done = [act(&mut state, file), act(&mut state, file)].map(|done| done.is_ok());
            assert_eq!(done, [false, true], "{operation:?}");
        }
    }

    #[test]
    fn a_file_whose_removal_a_power_cut_takes_back_can_be_read() {
        for seed in 0..100 {
            let mut state = State::new(seed);
            let (id, epoch) = state.create("a").unwrap();
            state.write(id, epoch, b"text", 0).unwrap();
            state.remove("a").unwrap();
            state.restart();
            state.crash();
            if let Ok((id, epoch)) = state.open("a") {
                assert!(state.length(id, epoch).is_ok(), "seed {seed}");
            }
        }
    }
}
