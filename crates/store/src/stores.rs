//! All stores of a broker: the data directory, which is the main one, and the further stores of its
//! configuration. Each has a journal and partitions of its own; none is ever recreated without an
//! operator's command.
//!
//! A further store is made in steps, each of which a crash may follow:
//! ```text
//!  the main store has an identity ─▶ the directory names its main store ─▶ its journal begins
//!      ─▶ the main store lists it: from here on it must be there
//! ```
//!
//! Never here: the use of an opened store.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use postroad_core::{LastRecord, Partition, Settings, encode_record, places_of_leaving, sends_in_record};
use postroad_journal::{
    Disk, Journal, JournalFile, Keys, LostSegment, OpenError, Payload, RealDisk, Record, Ways,
};
use postroad_model::{
    Command, Compression, Destination, DestinationKind, MessageKey, PartitionId, PartitionRange, Placement,
    Position,
};
use postroad_routing::{Addressing, MAIN_STORE, is_wildcard};

use crate::layout::{FurtherLayout, LAYOUT_FILE, Layout, StoreMembership, new_identity, unfinished};
use crate::opening::Opening;
use crate::store::{JournalFiles, Store, StoreError};

/// Names that may be in a directory in which a store is made: the lock, an unfinished layout, and
/// files of a new file system.
const HARMLESS: [&str; 4] = [".", "..", "LOCK", "lost+found"];

/// The last resort.
const LOST: &str = "If it is lost, `postroad store abandon` continues without its messages";

/// The directories of a broker.
#[derive(Clone, Copy, Debug)]
pub struct Directories<'a> {
    /// The data directory.
    pub main: &'a Path,
    /// Its partitions, if it is a new one.
    pub partitions: u16,
    /// Limit for the bytes of its files together, as far as the journal can keep it.
    pub disk_bytes_max: Option<u64>,
    /// Those beside it.
    pub further: &'a [FurtherStore],
    /// Chooses how a new one is written, which it keeps to from then on.
    pub choose: fn(&Path) -> Ways,
}

/// A store beside the main one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FurtherStore {
    /// Its name.
    pub name: String,
    /// Its directory.
    pub path: PathBuf,
    /// Its partitions, if it is a new one.
    pub partitions: u16,
    /// As [`Directories::disk_bytes_max`].
    pub disk_bytes_max: Option<u64>,
}

/// One of the stores.
pub struct NamedStore {
    /// Its name.
    pub name: Arc<str>,
    /// Its directory.
    pub path: PathBuf,
    /// The partitions that live in it.
    pub range: PartitionRange,
    /// The disk, for jobs beside the journal.
    pub disk: RealDisk,
    /// The journal.
    pub journal: Journal<RealDisk>,
}

/// See the head of this file.
pub struct Stores {
    /// The main one first.
    pub stores: Vec<NamedStore>,
    /// Every partition, recovered.
    pub partitions: BTreeMap<PartitionId, Partition>,
    /// How many partitions there are.
    pub placement: Placement,
    /// Where addresses live, and which topics feed them.
    pub addressing: Arc<Addressing>,
}

/// A directory that is locked, and will be opened.
pub struct Found {
    /// The store's name.
    pub name: String,
    /// Its directory.
    pub path: PathBuf,
    /// The locked directory.
    pub disk: RealDisk,
    /// Its layout, as found or as new.
    pub layout: Layout,
    /// It was listed by the main store, or is that.
    known: bool,
}

impl Stores {
    /// Opens or makes the directories. `settings` makes those of one partition. Addresses that are
    /// in another partition than `addressing` says stay there.
    ///
    /// # Errors
    /// [`StoreError`]: one is in use, missing, another's, damaged, of a newer version, or refused
    /// by the system.
    pub fn open(
        directories: Directories<'_>,
        keys: Keys,
        mut addressing: Addressing,
        settings: impl Fn(PartitionId, Placement, u64) -> Settings,
    ) -> Result<Stores, StoreError> {
        // That of the first store covers the look at all directories.
        let mut opening = Some(Opening::begin());
        let found = find_all(directories)?;
        let main = found[0].layout.clone();
        let (placement, starts) = (main.placement(), main.starts + 1);
        let mut opened = Stores {
            stores: Vec::with_capacity(found.len()),
            partitions: BTreeMap::new(),
            placement,
            addressing: Arc::default(),
        };
        let mut layouts = Vec::with_capacity(found.len());
        let current = keys.current();
        for Found { name, path, disk, layout, known } in found {
            let (range, settings) = (layout.range(), |id| settings(id, placement, starts));
            let opening = opening.take().unwrap_or_else(Opening::begin);
            let disk = disk.written(layout.ways());
            let store = Store::recover(disk, range, keys.clone(), settings, opening)?;
            tell(&store);
            let Store { disk, mut journal, mut partitions, .. } = store;
            if !known
                && let Some(first) = opened.partitions.get(&PartitionId(0))
                && !read_everywhere(first, &mut journal, &mut partitions)?
            {
                let reason = "its creation was not finished, and wildcard subscriptions have changed since: empty the directory";
                return Err(StoreError::Further { name, path, reason: reason.to_owned() });
            }
            if name != MAIN_STORE {
                addressing.homes.place(&name, range);
            }
            opened.partitions.append(&mut partitions);
            layouts.push((path.clone(), layout));
            opened.stores.push(NamedStore { name: name.into(), path, range, disk, journal });
        }
        if let Some(key) = current {
            tracing::info!(%key, "new records are encrypted");
        }
        opened.settle(addressing)?;
        // Behind the first segments: one that was started and has none has lost them. The main one,
        // which lists the others, comes last.
        for (path, mut layout) in layouts.into_iter().rev() {
            layout.starts = starts;
            layout.write(&path)?;
        }
        Ok(opened)
    }

    /// Settles where each address is: in the partition that holds its messages or jobs, otherwise
    /// by the rules.
    ///
    /// # Errors
    /// A record of a job cannot be read.
    pub fn settle(&mut self, addressing: Addressing) -> Result<(), StoreError> {
        let mut held = Held::default();
        for (id, partition) in &self.partitions {
            partition.held_addresses().for_each(|address| hold(&mut held, address, *id));
        }
        for (queue, from, place) in
            places_of_leaving(self.partitions.iter().map(|(id, partition)| (*id, partition)))
        {
            let holders = held.entry(queue.clone()).or_default();
            holders.remove(&from);
            holders.insert(place);
            if let Some(target) = self.partitions.get_mut(&place) {
                target.expect_queue(queue, from);
            }
        }
        let queues: BTreeSet<Destination> = held.keys().cloned().collect();
        // With one store rules change no place of an address that has jobs, as it is that of its
        // name.
        if self.placement.has_further() {
            for store in &mut self.stores {
                for id in store.range.iter() {
                    let Some(partition) = self.partitions.get(&id) else { continue };
                    let addresses = addresses_of_jobs(&mut store.journal, id, partition);
                    // A queue may have left a job after, which sends after it.
                    for address in addresses.iter().filter(|address| !queues.contains(*address)) {
                        hold(&mut held, address, id);
                    }
                }
            }
        }
        let addressing = Arc::new(settled(addressing, self.placement, &held));
        for partition in self.partitions.values_mut() {
            partition.address_by(addressing.clone());
        }
        self.addressing = addressing;
        Ok(())
    }
}

/// Which partitions hold something of an address.
type Held = BTreeMap<Destination, BTreeSet<PartitionId>>;

fn hold(held: &mut Held, address: &Destination, id: PartitionId) {
    if !is_wildcard(&address.name) && !address.temporary {
        held.entry(address.clone()).or_default().insert(id);
    }
}

/// Logs the faults of a store, and continues.
fn tell(store: &Store) {
    for damage in &store.report.damaged {
        tracing::error!(%damage, "a partition is stopped");
    }
    for LostSegment { damage, messages } in &store.report.lost {
        tracing::error!(%damage, messages, "messages of the last checkpoint are unreadable; all others are served");
    }
    for file in &store.report.skipped_checkpoints {
        tracing::error!(file = %file.display(), "a checkpoint is damaged; using the previous one");
    }
    if let Some(torn) = &store.report.torn {
        let file = torn.file.display();
        tracing::info!(%file, offset = torn.offset, "truncated an unconfirmed write");
    }
}

/// Rules may have changed since an address was first used: an address with contents stays in its
/// store, and a topic stays with the queues that it feeds.
fn settled(mut addressing: Addressing, placement: Placement, held: &Held) -> Addressing {
    for (address, holders) in held {
        let home = addressing.partition_of(placement, address);
        let used = if holders.contains(&home) { home } else { *holders.first().unwrap_or(&home) };
        if 1 < holders.len() {
            tracing::error!(%address, ?holders, ?used, "it is in several partitions, of which only one is used");
        }
        if used != home {
            addressing.settle(address, used);
        }
    }
    for queue in held.keys().filter(|address| address.kind == DestinationKind::Queue) {
        let place = addressing.partition_of(placement, queue);
        for feed in addressing.feeds_of(queue) {
            let home = addressing.partition_of(placement, &feed.topic);
            if is_wildcard(&feed.topic.name) || home == place {
                continue;
            }
            let lives_there = |other: &Destination| {
                *other == feed.topic
                    || addressing.partition_of(placement, other) == home
                        && addressing.feeds_of(other).iter().any(|also| also.topic == feed.topic)
            };
            if held.keys().any(lives_there) {
                tracing::warn!(%queue, "it receives nothing from its virtual topic, because it was created in another partition; delete it when it is empty");
            } else {
                addressing.settle(&feed.topic, place);
            }
        }
    }
    addressing
}

/// The targets of jobs. A job that cannot be read is logged when it is due.
fn addresses_of_jobs(
    journal: &mut Journal<RealDisk>,
    id: PartitionId,
    partition: &Partition,
) -> BTreeSet<Destination> {
    let (mut addresses, mut last) = (BTreeSet::new(), LastRecord::default());
    for key in partition.job_messages() {
        let MessageKey::Durable { position, ordinal } = key else { continue };
        let read = || sends_in_record(&journal.read(id, position)?).map_err(anyhow::Error::from);
        if let Some(sent) = last.sends(id, position, read).ok().and_then(|sends| sends.get(ordinal)) {
            addresses.extend(sent.targets().cloned());
        }
    }
    addresses
}

/// A new store's partitions get all consumers that read in every partition, as the other partitions
/// have. `false` if one has a different set.
fn read_everywhere(
    other: &Partition,
    journal: &mut Journal<RealDisk>,
    partitions: &mut BTreeMap<PartitionId, Partition>,
) -> Result<bool, StoreError> {
    let commands = other.read_everywhere();
    // One that has anything has these: they are its first group.
    let mut begun = partitions.values().filter(|partition| partition.applied().is_some());
    if begun.any(|partition| partition.read_everywhere() != commands) {
        return Ok(false);
    }
    let new = partitions.iter().filter(|(_, partition)| partition.applied().is_none()).map(|(id, _)| *id);
    let positions = || std::iter::successors(Some(Position::FIRST), |position| Some(position.next()));
    let record = |partition: PartitionId, position: Position, command: &Command| {
        let payload = Payload::from(encode_record(command, Compression::None));
        Record { partition, position, payload, reserve: false, key: None }
    };
    let group: Vec<Record> = new
        .flat_map(|id| {
            positions().zip(&commands).map(move |(position, command)| record(id, position, command))
        })
        .collect();
    if group.is_empty() {
        return Ok(true);
    }
    journal.commit(&group).map_err(StoreError::First)?;
    for partition in partitions.values_mut().filter(|partition| partition.applied().is_none()) {
        for (position, command) in positions().zip(&commands) {
            partition.apply(position, command.clone(), &mut Vec::new());
        }
    }
    Ok(true)
}

/// Locks all directories, and finds the state of each.
pub fn find_all(directories: Directories<'_>) -> Result<Vec<Found>, StoreError> {
    let Directories { main: directory, partitions, disk_bytes_max, further, choose } = directories;
    let disk = RealDisk::open(directory)?.limited(disk_bytes_max);
    let journal = JournalFiles::in_directory(directory)?;
    // A store that was begun and has held nothing yet is made again, because its configuration may
    // have changed.
    let is_begun = |layout: &Layout| 0 < layout.starts || layout.identity.is_some() || journal.is_some();
    let known = Layout::find(directory)?.filter(is_begun);
    let is_new = known.is_none();
    let mut layout = match (known, journal) {
        (Some(layout), _) => layout,
        (None, None) => Layout::new(partitions, 0).written(choose(directory)),
        (None, Some(journal)) => {
            return Err(StoreError::LayoutGone { directory: directory.to_owned(), journal });
        }
    };
    if let Some(StoreMembership { name, .. }) = layout.further {
        return Err(StoreError::NotMain { directory: directory.to_owned(), name });
    }
    if 0 < layout.starts && !has_segments(directory, &disk)? {
        let reason = format!(
            "the store was in use, but all its segments are missing: restore them, or remove {LAYOUT_FILE} to create an empty store"
        );
        return Err(StoreError::Layout { file: directory.to_owned(), reason });
    }
    let is_configured = |store: &&FurtherLayout| further.iter().any(|of| of.name == store.name);
    if let Some(missing) = layout.stores.iter().find(|store| !is_configured(store)) {
        let (directory, name) = (directory.to_owned(), missing.name.clone());
        return Err(StoreError::Unnamed { directory, name });
    }
    let main_identity = main_identity(directory, &mut layout, is_new, further.is_empty())?;
    let mut found = Vec::with_capacity(further.len());
    // In the order of their partitions, as the layout lists them; new ones follow.
    let listed = layout.stores.clone();
    for (store, own) in listed.iter().zip(&mut layout.stores) {
        for of in further.iter().filter(|of| of.name == store.name) {
            let is = find_listed(of, store, &main_identity, choose)?;
            (own.identity, own.given_up) = (is.layout.identity.clone().unwrap_or_default(), false);
            found.push(is);
        }
    }
    for of in further.iter().filter(|of| listed.iter().all(|store| store.name != of.name)) {
        let first = layout.end();
        let new = find_new(of, first, &main_identity, choose)?;
        let identity = new.layout.identity.clone().unwrap_or_default();
        let partitions = new.layout.partitions;
        if u16::MAX - first <= partitions {
            return Err(of.wrong(format!("{first} partitions and {partitions} more are too many")));
        }
        let name = of.name.clone();
        layout.stores.push(FurtherLayout { name, identity, first, partitions, given_up: false });
        found.push(new);
    }
    let name = MAIN_STORE.to_owned();
    found.insert(0, Found { name, path: directory.to_owned(), disk, layout, known: true });
    Ok(found)
}

/// The identity by which further stores know the main one; empty if there never were any.
fn main_identity(
    directory: &Path,
    layout: &mut Layout,
    is_new: bool,
    is_alone: bool,
) -> Result<String, StoreError> {
    if let Some(identity) = &layout.identity {
        return Ok(identity.clone());
    }
    let mut identity = String::new();
    if !is_alone {
        let io = |source| StoreError::Io { file: directory.join(LAYOUT_FILE), source };
        identity = new_identity().map_err(io)?;
        layout.identity = Some(identity.clone());
    }
    if is_new || !is_alone {
        // Ahead of the journal: a journal without a layout has lost it.
        layout.write(directory)?;
    }
    Ok(identity)
}

/// A store that must be there, unless it was given up.
fn find_listed(
    of: &FurtherStore,
    store: &FurtherLayout,
    main: &str,
    choose: fn(&Path) -> Ways,
) -> Result<Found, StoreError> {
    let is = |layout: Layout| layout.identity.as_ref() == Some(&store.identity);
    // It may have turned up again.
    if store.given_up && !Layout::find(&of.path)?.is_some_and(is) {
        tracing::warn!(store = store.name, path = %of.path.display(), "store abandoned by the operator; creating an empty one");
        let of = FurtherStore { partitions: store.partitions, ..of.clone() };
        return find_new(&of, store.first, main, choose);
    }
    find_known(of, store, main)
}

/// A store that must be there.
fn find_known(of: &FurtherStore, store: &FurtherLayout, main: &str) -> Result<Found, StoreError> {
    if !of.path.is_dir() {
        return Err(of.wrong(format!("there is no such directory; is its device mounted? {LOST}")));
    }
    let Some(layout) = Layout::find(&of.path)? else {
        return Err(of.wrong(match JournalFiles::in_directory(&of.path)? {
            Some(journal) => format!(
                "its {LAYOUT_FILE} is missing, but there is a journal ({journal}): restore the file from a copy, or recreate it with `postroad store repair` and --of the data directory"
            ),
            None => format!("there is no {LAYOUT_FILE} in it; is its device mounted? {LOST}"),
        }));
    };
    let belongs = StoreMembership { name: store.name.clone(), of: main.to_owned(), first: store.first };
    if layout.further.as_ref() != Some(&belongs)
        || layout.identity.as_ref() != Some(&store.identity)
        || layout.partitions != store.partitions
    {
        return Err(of.another(&layout, main));
    }
    let disk = of.lock()?;
    if !has_segments(&of.path, &disk)? {
        return Err(
            of.wrong(format!("it was in use, but all its segments are missing: restore them. {LOST}"))
        );
    }
    Ok(Found { name: of.name.clone(), path: of.path.clone(), disk, layout, known: true })
}

/// A store that is to be made, or was being made when the broker ended.
fn find_new(
    of: &FurtherStore,
    first: u16,
    main: &str,
    choose: fn(&Path) -> Ways,
) -> Result<Found, StoreError> {
    let disk = of.lock()?;
    let belongs = StoreMembership { name: of.name.clone(), of: main.to_owned(), first };
    let layout = match Layout::find(&of.path)? {
        Some(layout) if layout.further.as_ref() == Some(&belongs) && layout.identity.is_some() => layout,
        Some(layout) => return Err(of.another(&layout, main)),
        None => {
            let io = |source| StoreError::Io { file: of.path.clone(), source };
            let names = disk.list().map_err(io)?;
            if let Some(name) =
                names.iter().find(|name| !HARMLESS.contains(&name.as_str()) && **name != unfinished())
            {
                return Err(of.wrong(format!("a new store needs an empty directory, and {name} is in it")));
            }
            let mut layout = Layout::new(of.partitions, 0).written(choose(&of.path));
            (layout.identity, layout.further) = (Some(new_identity().map_err(io)?), Some(belongs));
            layout.write(&of.path)?;
            layout
        }
    };
    Ok(Found { name: of.name.clone(), path: of.path.clone(), disk, layout, known: false })
}

impl FurtherStore {
    fn lock(&self) -> Result<RealDisk, OpenError> {
        Ok(RealDisk::open(&self.path)?.limited(self.disk_bytes_max))
    }

    fn wrong(&self, reason: String) -> StoreError {
        StoreError::Further { name: self.name.clone(), path: self.path.clone(), reason }
    }

    /// The directory is something else than a store of the data directory with the identity `main`.
    fn another(&self, layout: &Layout, main: &str) -> StoreError {
        self.wrong(match &layout.further {
            Some(StoreMembership { name, of, .. }) if of != main => format!(
                "it holds the store {name} of another data directory; a backup has one directory per store, as given with --store"
            ),
            Some(StoreMembership { name, first, .. }) => format!(
                "it holds the store {name} of this data directory with partitions from {first}: another store, or one that was abandoned"
            ),
            None => "it is itself a data directory".to_owned(),
        })
    }
}

/// Whether there is one segment at least. Without any in a directory that was in use before, all
/// its messages would be gone without a word.
fn has_segments(directory: &Path, disk: &RealDisk) -> Result<bool, StoreError> {
    let names = disk.list().map_err(|source| StoreError::Io { file: directory.to_owned(), source })?;
    Ok(names.iter().any(|name| JournalFile::of(name) == Some(JournalFile::Segment)))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use postroad_journal::{Checkpoint, Damage};
    use postroad_model::{Binding, Changes, Chunks, Message, Schedule, Sent, Subscription, TransactionId};
    use postroad_routing::DestinationPattern;
    use tempfile::TempDir;

    use super::*;
    use crate::test_message;

    fn further(home: &TempDir, name: &str) -> FurtherStore {
        let path = home.path().join(name);
        FurtherStore { name: name.to_owned(), path, partitions: 1, disk_bytes_max: None }
    }

    fn open(home: &TempDir, further: &[FurtherStore], rules: &[(&str, &str)]) -> Result<Stores, String> {
        let main = home.path().join("data");
        let mut addressing = Addressing::default();
        for (pattern, store) in rules {
            addressing.homes.set_policy(&DestinationPattern::parse(pattern).unwrap(), Some(store));
        }
        let choose = |_: &Path| Ways::default();
        let directories = Directories { main: &main, partitions: 1, disk_bytes_max: None, further, choose };
        Stores::open(directories, Keys::default(), addressing, Settings::at_rest)
            .map_err(|error| error.to_string())
    }

    /// Puts records into the main store.
    fn put(stores: &mut Stores, commands: &[Command]) {
        let (journal, partition) = (&mut stores.stores[0].journal, PartitionId(0));
        for command in commands {
            let position = journal.last_position(partition).map_or(Position::FIRST, Position::next);
            let payload = Payload::from(encode_record(command, Compression::None));
            journal.commit(&[Record { partition, position, payload, reserve: false, key: None }]).unwrap();
        }
    }

    fn due_later(to: &str) -> Command {
        let message = test_message();
        let schedule = Schedule::once("job".into(), u64::MAX);
        Command::Enqueue(Sent {
            schedule: Some(Box::new(schedule)),
            ..Sent::new(Destination::queue(to), message)
        })
    }

    fn subscribe(topic: &str) -> Command {
        let (topic, name) = (Destination::topic(topic), "1:c:s".into());
        Command::Subscribe(Subscription { name, topic, selector: "".into(), skips: None, shared: false })
    }

    #[test]
    fn a_damaged_message_of_a_prepared_transaction_stops_its_partition_if_subscriptions_judge_it() {
        for (case, to, stops) in [
            ("a queue", Destination::queue("a"), false),
            (
                "a topic: which subscriptions take it may depend on what is in it",
                Destination::topic("a"),
                true,
            ),
        ] {
            let home = tempfile::tempdir().unwrap();
            let id = TransactionId { coordinator: PartitionId(0), incarnation: 1, number: 1 };
            let body = Bytes::from_static(b"a body that nobody else has");
            let message = Message { bytes: body.clone(), ..test_message() };
            let changes = Changes { sends: vec![Sent::new(to, message)], ..Changes::default() };
            put(&mut open(&home, &[], &[]).unwrap(), &[Command::Prepare { id, changes }]);
            let mut opened = open(&home, &[], &[]).unwrap();
            let partition = &opened.partitions[&PartitionId(0)];
            let (partition, position, state) = (PartitionId(0), Position::FIRST, partition.snapshot_pieces());
            let journal = &mut opened.stores[0].journal;
            journal.write_checkpoint(vec![Checkpoint { partition, position, state }]).unwrap();
            drop(opened);
            let segment = home.path().join("data/0000000000000001.segment");
            let mut bytes = std::fs::read(&segment).unwrap();
            let at = bytes.windows(body.len()).position(|part| part == body).expect("its body is there");
            bytes[at] ^= 1;
            std::fs::write(&segment, &bytes).unwrap();
            for start in 1..=2 {
                let opened = open(&home, &[], &[]).unwrap();
                let stopped: Vec<&Damage> = opened.stores[0].journal.stopped().collect();
                let of: Vec<_> = stopped.iter().map(|damage| damage.partition).collect();
                assert_eq!(of, vec![Some(partition); usize::from(stops)], "{case}, start {start}");
                let prepared = opened.partitions[&partition].prepared_messages();
                assert_eq!(prepared, u64::from(!stops), "{case}, start {start}");
            }
            bytes[at] ^= 1;
            std::fs::write(&segment, bytes).unwrap();
            let opened = open(&home, &[], &[]).unwrap();
            assert_eq!(opened.partitions[&partition].prepared_messages(), 1, "{case}: it is whole again");
        }
    }

    #[test]
    fn what_exists_stays_where_it_is_and_what_is_new_goes_to_its_store() {
        let home = tempfile::tempdir().unwrap();
        let stores = [further(&home, "fast")];
        let fed = Binding {
            topic: Destination::topic("VirtualTopic.x"),
            queue: Destination::queue("Consumer.A.VirtualTopic.x"),
            selectors: vec!["".into()],
        };
        let declare = |name| Command::Declare { queue: Destination::queue(name) };
        let there = [declare("old"), subscribe("read"), Command::Bind(fed), due_later("later")];
        put(&mut open(&home, &stores, &[]).unwrap(), &there);
        let rules = [("queue://>", "fast"), ("topic://>", "fast"), ("queue://not", "main")];
        for start in 1..=2 {
            let opened = open(&home, &stores, &rules).unwrap();
            for (case, address, want) in [
                ("a queue", Destination::queue("old"), 0),
                ("a topic that is read", Destination::topic("read"), 0),
                ("a topic by what it feeds", Destination::topic("VirtualTopic.x"), 0),
                ("what it feeds later", Destination::queue("Consumer.B.VirtualTopic.x"), 0),
                ("where a job will send", Destination::queue("later"), 0),
                ("a new queue", Destination::queue("new"), 1),
                ("a new topic", Destination::topic("new"), 1),
                ("a new queue of the main store", Destination::queue("not"), 0),
            ] {
                let partition = opened.addressing.partition_of(opened.placement, &address);
                assert_eq!(partition, PartitionId(want), "start {start}: {case}");
            }
        }
    }

    #[test]
    fn a_store_is_written_as_was_chosen_when_it_was_made() {
        const CHOSEN: Ways = Ways { direct: false, one_call: true, zeroed: false };
        let home = tempfile::tempdir().unwrap();
        let (main, old, fast) = (home.path().join("data"), home.path().join("old"), [further(&home, "fast")]);
        let open = |main: &Path, further: &[FurtherStore], choose: fn(&Path) -> Ways| {
            let directories = Directories { main, partitions: 1, disk_bytes_max: None, further, choose };
            let opened =
                Stores::open(directories, Keys::default(), Addressing::default(), Settings::at_rest).unwrap();
            opened.stores.iter().map(|store| store.disk.ways()).collect::<Vec<_>>()
        };
        let never: fn(&Path) -> Ways = |path| panic!("{} is not new", path.display());
        assert_eq!(open(&main, &[], |_| CHOSEN), [CHOSEN]);
        assert_eq!(open(&main, &[], never), [CHOSEN]);
        assert_eq!(open(&main, &fast, |_| Ways::default()), [CHOSEN, Ways::default()], "each its own");
        assert_eq!(open(&main, &fast, never), [CHOSEN, Ways::default()]);
        open(&old, &[], |_| Ways::default());
        let text = std::fs::read_to_string(old.join(LAYOUT_FILE)).unwrap();
        assert!(text.contains("\"version\": 1") && !text.contains("written"), "{text}");
        assert_eq!(open(&old, &[], never), [Ways::default()], "one that says nothing of it");
    }

    /// Files of a directory: names and bytes.
    fn files(directory: &Path) -> BTreeMap<String, Vec<u8>> {
        let file = |entry: std::fs::DirEntry| {
            (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
        };
        std::fs::read_dir(directory).unwrap().map(|entry| file(entry.unwrap())).collect()
    }

    #[test]
    fn a_journal_without_its_layout_is_refused_and_nothing_is_changed() {
        let home = tempfile::tempdir().unwrap();
        let (main, fast) = (home.path().join("data"), further(&home, "fast"));
        let declare = [Command::Declare { queue: Destination::queue("old") }];
        put(&mut open(&home, &[], &[]).unwrap(), &declare);
        put(&mut open(&home, std::slice::from_ref(&fast), &[]).unwrap(), &declare);
        let gone = format!("{} is missing, but there is a journal", main.join(LAYOUT_FILE).display());
        for (case, directory, want) in [
            ("the main store", &main, gone.as_str()),
            ("a further one", &fast.path, "its layout.json is missing, but there is a journal (segments: "),
        ] {
            let layout = std::fs::read(directory.join(LAYOUT_FILE)).unwrap();
            std::fs::remove_file(directory.join(LAYOUT_FILE)).unwrap();
            let before = files(directory);
            let error = open(&home, std::slice::from_ref(&fast), &[]).err().unwrap();
            assert!(error.contains(want), "case: {case}: {error}");
            assert_eq!(files(directory), before, "case: {case}");
            std::fs::write(directory.join(LAYOUT_FILE), layout).unwrap();
        }
        open(&home, &[fast], &[]).unwrap();
    }

    #[test]
    fn a_start_that_ended_before_its_journal_begins_anew() {
        let home = tempfile::tempdir().unwrap();
        let main = home.path().join("data");
        std::fs::create_dir(&main).unwrap();
        let ways = Ways { direct: false, ..Ways::default() };
        for (case, layout) in [
            ("a directory with nothing but what a file system has", None),
            ("a layout alone, by another configuration", Some(Layout::new(4, 0).written(ways))),
        ] {
            std::fs::create_dir_all(main.join("lost+found")).unwrap();
            std::fs::write(main.join(unfinished()), "{").unwrap();
            layout.inspect(|layout| layout.write(&main).unwrap());
            assert_eq!(open(&home, &[], &[]).unwrap().placement, Placement::over(1), "case: {case}");
            assert_eq!(Layout::find(&main).unwrap().unwrap().starts, 1, "case: {case}");
            std::fs::remove_dir_all(&main).unwrap();
            std::fs::create_dir(&main).unwrap();
        }
        // Ended between the journal and the count of starts.
        open(&home, &[], &[]).unwrap();
        let mut layout = Layout::find(&main).unwrap().unwrap();
        layout.starts = 0;
        layout.write(&main).unwrap();
        assert_eq!(open(&home, &[], &[]).unwrap().placement, Placement::over(1));
    }

    #[test]
    fn a_log_of_more_partitions_than_its_layout_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let main = home.path().join("data");
        let choose = |_: &Path| Ways::default();
        let directories =
            Directories { main: &main, partitions: 4, disk_bytes_max: None, further: &[], choose };
        let mut stores =
            Stores::open(directories, Keys::default(), Addressing::default(), Settings::at_rest).unwrap();
        let payload = encode_record(&Command::Declare { queue: Destination::queue("q") }, Compression::None);
        let (partition, position, payload) = (PartitionId(3), Position::FIRST, Payload::from(payload));
        let record = Record { partition, position, payload, reserve: false, key: None };
        stores.stores[0].journal.commit(&[record]).unwrap();
        drop(stores);
        Layout::new(1, 1).write(&main).unwrap();
        let error = open(&home, &[], &[]).err().unwrap();
        let want = "the log has records of partition 3, but layout.json lists only 0 to 0";
        assert!(error.starts_with(want), "{error}");
    }

    #[test]
    fn a_new_store_has_what_reads_everywhere_once() {
        let home = tempfile::tempdir().unwrap();
        put(&mut open(&home, &[], &[]).unwrap(), &[subscribe("a.>"), subscribe("b")]);
        put(&mut open(&home, &[], &[]).unwrap(), &[subscribe("a.>")]);
        let stores = [further(&home, "fast"), further(&home, "slow")];
        let layout = home.path().join("data").join(LAYOUT_FILE);
        open(&home, &stores[..1], &[]).unwrap();
        // A crash right before the new store was listed.
        let mut unlisted = Layout::find(&home.path().join("data")).unwrap().unwrap();
        unlisted.stores.clear();
        unlisted.write(&home.path().join("data")).unwrap();
        put(&mut open(&home, &[], &[]).unwrap(), &[Command::Unsubscribe { name: "1:c:s".into() }]);
        let error = open(&home, &stores, &[]).err().unwrap();
        assert!(error.contains("wildcard subscriptions have changed since"), "{error}");
        put(&mut open(&home, &[], &[]).unwrap(), &[subscribe("a.>")]);
        for start in 1..=2 {
            let opened = open(&home, &stores, &[]).unwrap();
            assert_eq!(opened.placement, Placement { partitions: 3, hashed: 1 }, "start {start}");
            for id in [1, 2].map(PartitionId) {
                let partition = &opened.partitions[&id];
                assert_eq!(partition.read_everywhere(), [subscribe("a.>")], "start {start}: {id:?}");
                assert_eq!(partition.applied(), Some(Position::FIRST), "start {start}: {id:?}");
            }
        }
        assert!(std::fs::read_to_string(layout).unwrap().contains("\"name\": \"slow\""));
    }

    #[test]
    fn a_store_that_was_given_up_begins_anew_and_one_that_turns_up_in_time_does_not() {
        let home = tempfile::tempdir().unwrap();
        let main = home.path().join("data");
        let stores = [further(&home, "fast"), further(&home, "slow")];
        let applied = |opened: &Stores, id: u16| opened.partitions[&PartitionId(id)].applied();
        let give_up = || {
            let mut layout = Layout::find(&main).unwrap().unwrap();
            layout.stores[0].given_up = true;
            layout.write(&main).unwrap();
        };
        put(&mut open(&home, &stores, &[]).unwrap(), &[subscribe("a.>")]);
        let payload = encode_record(&Command::Declare { queue: Destination::queue("q") }, Compression::None);
        for (number, id) in [(1, PartitionId(1)), (2, PartitionId(2))] {
            let (position, payload) = (Position::FIRST, Payload::from(payload.clone()));
            let record = Record { partition: id, position, payload, reserve: false, key: None };
            open(&home, &stores, &[]).unwrap().stores[number].journal.commit(&[record]).unwrap();
        }
        let old = Layout::find(&stores[0].path).unwrap().unwrap();
        give_up();
        let opened = open(&home, &stores, &[]).unwrap();
        assert_eq!(applied(&opened, 1), Some(Position::FIRST), "it is there after all");
        assert!(opened.partitions[&PartitionId(1)].read_everywhere().is_empty());
        drop(opened);
        assert!(!std::fs::read_to_string(main.join(LAYOUT_FILE)).unwrap().contains("given_up"));

        let away = home.path().join("away");
        std::fs::rename(&stores[0].path, &away).unwrap();
        let error = open(&home, &stores, &[]).err().unwrap();
        assert!(error.contains("`postroad store abandon` continues without"), "{error}");
        give_up();
        let others = [FurtherStore { partitions: 7, ..stores[0].clone() }, stores[1].clone()];
        for start in 1..=3 {
            let opened = open(&home, &others, &[]).unwrap();
            assert_eq!(opened.placement, Placement { partitions: 3, hashed: 1 }, "start {start}");
            assert_eq!(opened.partitions[&PartitionId(1)].read_everywhere(), [subscribe("a.>")]);
            assert_eq!(
                applied(&opened, 2),
                Some(Position::FIRST),
                "start {start}: nothing of the other is lost"
            );
            drop(opened);
            if start == 1 {
                // As if it had ended right before the new one was listed.
                let mut layout = Layout::find(&main).unwrap().unwrap();
                (layout.stores[0].identity, layout.stores[0].given_up) =
                    (old.identity.clone().unwrap(), true);
                layout.write(&main).unwrap();
            }
        }
        std::fs::remove_dir_all(&stores[0].path).unwrap();
        std::fs::rename(away, &stores[0].path).unwrap();
        let error = open(&home, &stores, &[]).err().unwrap();
        assert!(error.contains("another store, or one that was abandoned"), "{error}");
    }

    #[test]
    fn a_store_is_added_beside_large_messages() {
        let home = tempfile::tempdir().unwrap();
        let Command::Enqueue(sent) = due_later("large") else { panic!("it is no message") };
        let chunks = Chunks { bytes: 4, piece_bytes: 4, positions: [Position::FIRST].into() };
        let message = sent.message.with_chunks(Some(Arc::new(chunks)));
        let sent = Sent { message, schedule: None, ..sent };
        put(
            &mut open(&home, &[], &[]).unwrap(),
            &[Command::Chunk(Bytes::from_static(b"body")), Command::Enqueue(sent)],
        );
        let opened = open(&home, &[further(&home, "fast")], &[]).unwrap();
        assert_eq!(opened.placement, Placement { partitions: 2, hashed: 1 });
        let queues: Vec<u64> = opened.partitions[&PartitionId(0)].queues().map(|(_, held)| held).collect();
        assert_eq!(queues, [1], "it stays where it is");
    }

    #[test]
    fn a_store_that_is_not_what_it_was_is_refused_and_nothing_is_made() {
        let home = tempfile::tempdir().unwrap();
        let (fast, slow) = (further(&home, "fast"), further(&home, "slow"));
        let both = [fast.clone(), slow.clone()];
        open(&home, &both, &[]).unwrap();
        let at =
            |store: &FurtherStore, path: &str| FurtherStore { path: home.path().join(path), ..store.clone() };
        let renamed = FurtherStore { name: "quick".to_owned(), ..fast.clone() };
        std::fs::create_dir(home.path().join("empty")).unwrap();
        std::fs::create_dir(home.path().join("used")).unwrap();
        std::fs::write(home.path().join("used").join("letters.txt"), "text").unwrap();
        let (exchanged, new) = (at(&fast, "slow"), further(&home, "used"));
        for (case, stores, want) in [
            ("unnamed", vec![slow.clone()], "its store fast has messages"),
            ("renamed", vec![renamed, slow.clone()], "its store fast has messages"),
            (
                "missing",
                vec![at(&fast, "gone"), slow.clone()],
                "there is no such directory; is its device mounted?",
            ),
            (
                "empty",
                vec![at(&fast, "empty"), slow.clone()],
                "there is no layout.json in it; is its device mounted?",
            ),
            (
                "another's",
                vec![exchanged, at(&slow, "fast")],
                "it holds the store slow of this data directory with partitions from 2",
            ),
            ("the main one", vec![at(&fast, "data"), slow.clone()], "it is itself a data directory"),
            ("new among other files", vec![fast.clone(), slow.clone(), new], "letters.txt is in it"),
        ] {
            let error = open(&home, &stores, &[]).err().unwrap_or_else(|| panic!("case: {case}: it opened"));
            assert!(error.contains(want), "case: {case}: {error}");
        }
        assert!(!home.path().join("gone").exists(), "nothing is made in place of what is missing");
        let other = tempfile::tempdir().unwrap();
        let error = open(&other, &both, &[]).err().unwrap();
        assert!(error.contains("it holds the store fast"), "another broker's: {error}");
        std::fs::rename(home.path().join("data"), home.path().join("main")).unwrap();
        std::fs::rename(&fast.path, home.path().join("data")).unwrap();
        let error = open(&home, &[], &[]).err().unwrap();
        assert!(error.contains("is the store fast of another data directory"), "{error}");
    }
}
