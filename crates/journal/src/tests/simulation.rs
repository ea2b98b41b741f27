//! Seeded simulation: random groups, faults, crashes, checkpoints and recycling against a model.
//!
//! `POSTROAD_JOURNAL_SEED=n` replays one seed; `POSTROAD_JOURNAL_SEEDS=n` runs the first n.

use super::encryption::key;
use super::model::{Model, Step, decode_step};
use super::service::{read_near, row};
use crate::{
    Checkpoint, CheckpointError, CheckpointRequest, CommitError, CompactedSegment, CompactionError,
    CompactionRequest, Disk, Fault, IndexError, IndexRequest, Journal, KeySet, Keys, OpenError, Operation,
    Options, Record, Recovered, RemovalRequest, SegmentRequest, SimulatedDisk, SortRequest, Sorting, Ways,
    WrittenCheckpoint, WrittenIndex,
};
use bytes::Bytes;
use postroad_model::PartitionId;
use std::panic::{AssertUnwindSafe, catch_unwind};

const SEEDS: u64 = 2000;
const STEPS: u64 = 150;

/// Less than a segment may have: several chunks are sorted into a copy.
const HELD_BYTES: u64 = 2 << 10;

const OPTIONS: Options = Options {
    segment_bytes: 16 << 10,
    checkpoint_bytes: 24 << 10,
    dead_segments_max: 2,
    checkpoint_share: 0,
};

/// SplitMix64.
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    fn one_in(&mut self, bound: u64) -> bool {
        self.below(bound) == 0
    }
}

#[test]
fn acknowledged_is_recovered_and_failed_never_reappears() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seeds = match number("POSTROAD_JOURNAL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("POSTROAD_JOURNAL_SEEDS").unwrap_or(SEEDS),
    };
    let many = SEEDS <= seeds.end - seeds.start;
    let mut total = Counts::default();
    for seed in seeds {
        match catch_unwind(AssertUnwindSafe(|| Run::new(seed).all())) {
            Ok(counts) => total.add(&counts),
            Err(panic) => {
                println!("replay with POSTROAD_JOURNAL_SEED={seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    println!("{total:?}");
    let Counts {
        compactions,
        segments_compacted,
        torn,
        segments_recycled,
        appends,
        lost_tails,
        backups,
        rotations,
        indexes,
        spoiled_indexes,
        copies,
        cuts,
        ends,
        ..
    } = total;
    let rare = [
        compactions,
        segments_compacted,
        torn,
        segments_recycled,
        appends,
        lost_tails,
        backups,
        rotations,
        indexes,
        spoiled_indexes,
        copies,
        cuts,
    ];
    for (phase, count) in Phase::ALL.into_iter().zip(ends.0) {
        assert!(!many || SEEDS / 15 < count, "it hardly ever ended in {phase:?}: {total:?}");
    }
    assert!(!many || rare.iter().all(|&count| SEEDS / 3 < count), "hardly anything happened: {total:?}");
}

/// Counts of events, so that a simulation which exercises nothing is noticed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    commits: u64,
    failed_commits: u64,
    refused_commits: u64,
    reopens: u64,
    crashes: u64,
    restarts: u64,
    checkpoints: u64,
    torn: u64,
    segments_recycled: u64,
    damaged_checkpoints: u64,
    compactions: u64,
    failed_compactions: u64,
    segments_compacted: u64,
    appends: u64,
    lost_tails: u64,
    backups: u64,
    rotations: u64,
    completed_rotations: u64,
    indexes: u64,
    spoiled_indexes: u64,
    copies: u64,
    cuts: u64,
    ends: Ends,
}

/// The operation during which the disk died, and the process or the machine with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Append,
    Seal,
    Segment,
    Index,
    Checkpoint,
    Compaction,
    Sorting,
    /// Of the keys: leaving a segment for them, and compaction that writes with other ones.
    Rotation,
    Recovery,
}

impl Phase {
    const ALL: [Phase; 9] = [
        Phase::Append,
        Phase::Seal,
        Phase::Segment,
        Phase::Index,
        Phase::Checkpoint,
        Phase::Compaction,
        Phase::Sorting,
        Phase::Rotation,
        Phase::Recovery,
    ];
}

/// How often it ended in each [`Phase`].
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Ends([u64; Phase::ALL.len()]);

impl Ends {
    fn add(&mut self, phase: Phase) {
        self.0[phase as usize] += 1;
    }
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.commits += other.commits;
        self.failed_commits += other.failed_commits;
        self.refused_commits += other.refused_commits;
        self.reopens += other.reopens;
        self.crashes += other.crashes;
        self.restarts += other.restarts;
        self.checkpoints += other.checkpoints;
        self.torn += other.torn;
        self.segments_recycled += other.segments_recycled;
        self.damaged_checkpoints += other.damaged_checkpoints;
        self.compactions += other.compactions;
        self.failed_compactions += other.failed_compactions;
        self.segments_compacted += other.segments_compacted;
        self.appends += other.appends;
        self.lost_tails += other.lost_tails;
        self.backups += other.backups;
        self.rotations += other.rotations;
        self.completed_rotations += other.completed_rotations;
        self.indexes += other.indexes;
        self.spoiled_indexes += other.spoiled_indexes;
        self.copies += other.copies;
        self.cuts += other.cuts;
        self.ends.0.iter_mut().zip(other.ends.0).for_each(|(own, other)| *own += other);
    }
}

type File = <SimulatedDisk as Disk>::File;
type Written = Result<WrittenCheckpoint, CheckpointError>;

struct Run {
    random: Random,
    disk: SimulatedDisk,
    journal: Journal<SimulatedDisk>,
    model: Model,
    /// Orders that another thread has not served yet.
    segment_request: Option<SegmentRequest>,
    checkpoint_request: Option<CheckpointRequest>,
    checkpoint_answer: Option<Written>,
    compaction_request: Option<CompactionRequest<File>>,
    compaction_answer: Option<Result<CompactedSegment<File>, CompactionError>>,
    removal: Option<RemovalRequest>,
    index_request: Option<IndexRequest>,
    index_answer: Option<Result<WrittenIndex, IndexError>>,
    sort_request: Option<SortRequest<File>>,
    sort_answer: Option<Sorting>,
    /// Checkpoints written since one was damaged.
    checkpoints_in_a_row: u64,
    counts: Counts,
    /// Whether groups are appended, and not only committed.
    lags: bool,
    /// Starts with other keys so far; `None` in runs without any.
    rotations: Option<u8>,
}

/// Of partition 2 everything has a tenant's key.
const TENANT: PartitionId = PartitionId(2);

/// The keys after this number of changes: each change brings others, every fourth none at all. All
/// former ones stay known.
fn keys(rotations: Option<u8>) -> Keys {
    let Some(count) = rotations else { return Keys::default() };
    let set = |first: u8| KeySet {
        current: (count % 4 != 3).then(|| key(first + count)),
        former: (first..first + count).map(key).collect(),
    };
    Keys::new(set(0), [set(100)])
}

/// As if payloads of different length were for different addresses.
fn sort_key(payload: &[u8]) -> u32 {
    payload.len() as u32 % 8
}

impl Run {
    fn new(seed: u64) -> Run {
        let ways = Ways { one_call: seed % 5 < 2, zeroed: !seed.is_multiple_of(7), ..Ways::default() };
        let disk = SimulatedDisk::new(seed).written(ways);
        let rotations = (seed % 3 == 2).then_some((seed % 4) as u8);
        let (mut journal, _) =
            Journal::open_with(disk.clone(), OPTIONS, keys(rotations), &mut |_, _| ()).unwrap();
        journal.sort_by(sort_key, HELD_BYTES);
        Run {
            random: Random(seed ^ 0x5eed),
            disk,
            journal,
            model: Model::default(),
            segment_request: None,
            checkpoint_request: None,
            checkpoint_answer: None,
            compaction_request: None,
            compaction_answer: None,
            removal: None,
            index_request: None,
            index_answer: None,
            sort_request: None,
            sort_answer: None,
            checkpoints_in_a_row: 0,
            counts: Counts::default(),
            lags: seed % 2 == 1,
            rotations,
        }
    }

    fn all(mut self) -> Counts {
        for _ in 0..STEPS {
            self.step();
        }
        self.disk.clear_faults();
        self.disk.set_capacity(None);
        self.stop(true);
        self.rekey_everything();
        self.settle_everything();
        self.counts
    }

    fn step(&mut self) {
        match self.random.below(60) {
            0..18 => self.commit(),
            18..22 | 41..46 => self.settle_some(),
            46..53 => self.compact(),
            53 if self.random.one_in(2) => self.stop_in_a_compaction(),
            54 if self.random.one_in(2) => self.ripen(),
            22..26 => {
                self.serve_segment();
                self.serve_index();
                (0..self.random.below(6)).for_each(|_| self.serve_sorting());
            }
            26..30 => self.checkpoint(),
            30..32 => self.read_one(),
            32..34 => self.plan_fault(),
            34 => self.squeeze(),
            35 => self.disk.set_capacity(None),
            36 => self.spoil_an_index(),
            37 if self.random.one_in(2) => self.stop(true),
            38 => self.stop_in_a_commit(),
            56 | 57 => {
                self.sync();
            }
            55 => self.back_up(),
            58 | 59 => self.stop_in_a_job(),
            39 if self.random.one_in(3) => self.stop(false),
            40 if self.random.one_in(4) => self.go_astray(),
            _ => self.disk.clear_faults(),
        }
    }

    fn commit(&mut self) {
        let count = 1 + self.random.below(4);
        let mut group = Vec::new();
        for _ in 0..count {
            let partition = self.random.below(3) as u16;
            let bytes = match self.random.below(20) {
                0 => 20_000,
                1..4 => 3000,
                4..10 => 500,
                _ => self.random.below(100),
            };
            self.model.enqueue(
                &mut group,
                PartitionId(partition),
                bytes as usize,
                self.random.below(256) as u8,
            );
        }
        self.commit_group(group);
    }

    fn settle_some(&mut self) {
        let mut group = Vec::new();
        for _ in 0..8 {
            let nth = self.random.below(1000);
            self.model.settle(&mut group, PartitionId(self.random.below(3) as u16), nth);
        }
        self.commit_group(group);
    }

    fn commit_group(&mut self, mut group: Vec<Record>) {
        let tenant = self.rotations.map(|count| key(100 + count).id());
        for record in group.iter_mut().filter(|record| record.partition == TENANT) {
            record.key = tenant;
        }
        if self.journal.needs_reopen() {
            assert!(matches!(self.journal.commit(&group), Err(CommitError::NeedsReopen)) || group.is_empty());
            if self.journal.reopen().is_err() {
                return;
            }
            self.counts.reopens += 1;
            // From here on the failed group is void.
            self.model.open_group = None;
            self.model.all_synced();
            return;
        }
        let append = self.lags && !self.random.one_in(4);
        let written = if append { self.journal.append(&group) } else { self.journal.commit(&group) };
        match written {
            Ok(()) => {
                self.counts.commits += 1;
                apply(&mut self.journal, &group);
                if self.journal.has_unsynced() {
                    self.counts.appends += 1;
                    self.model.appended(group);
                } else {
                    self.model.acknowledged(&group);
                    self.model.all_synced();
                }
            }
            Err(CommitError::WriteFailed { .. } | CommitError::SyncFailed { .. }) => {
                self.counts.failed_commits += 1;
                self.model.open_group = Some(group);
            }
            Err(CommitError::NoSpace { .. } | CommitError::NoSegment(_)) => self.counts.refused_commits += 1,
            Err(error) => panic!("{error}"),
        }
    }

    /// A backup opens as the journal would after a power cut now.
    fn back_up(&mut self) {
        self.disk.clear_faults();
        let elsewhere = SimulatedDisk::new(1);
        let Ok(backup) = self.journal.begin_backup(&elsewhere) else { return };
        self.model.all_synced();
        let (last, live) = (self.model.checkpoints(), self.model.live());
        // Later records are not in it.
        self.commit();
        backup.finish(&elsewhere).unwrap();
        let keys = keys(self.rotations);
        let (mut journal, recovered) = Journal::open_with(elsewhere, OPTIONS, keys, &mut |_, _| ()).unwrap();
        assert_eq!((&recovered.damaged, &recovered.torn), (&vec![], &None));
        for Checkpoint { partition, position, .. } in last {
            assert_eq!(journal.last_position(partition), Some(position));
        }
        for (partition, position) in live {
            let payload = journal.read(partition, position).unwrap();
            assert_eq!(payload, self.model.payload(partition, position));
        }
        self.counts.backups += 1;
    }

    /// Makes appended groups durable; `false` if that failed.
    fn sync(&mut self) -> bool {
        let synced = self.journal.sync().is_ok();
        if synced {
            self.model.all_synced();
        }
        synced
    }

    fn serve_segment(&mut self) {
        match self.segment_request.take() {
            Some(request) => self.journal.provide(request.prepare(&self.disk, &mut ())),
            None => self.segment_request = self.journal.wants_segment(),
        }
    }

    /// The next step of an index on its way to the disk.
    fn serve_index(&mut self) {
        if let Some(answer) = self.index_answer.take() {
            self.counts.indexes += u64::from(self.journal.finish_index(answer).is_ok());
        } else if let Some(request) = self.index_request.take() {
            self.index_answer = Some(request.write(&self.disk));
        } else {
            self.index_request = self.journal.wants_index();
        }
    }

    /// The next step of a sorted copy.
    fn serve_sorting(&mut self) {
        if let Some(answer) = self.sort_answer.take() {
            self.counts.copies += u64::from(answer.has_copy());
            // One that failed is tried again at the next start, or never.
            let _ = self.journal.finish_sorting(answer);
        } else if let Some(request) = self.sort_request.take() {
            self.sort_answer = Some(request.run(&self.disk, &mut ()));
        } else {
            self.sort_request = self.journal.wants_sorting();
        }
    }

    /// An index beside a segment is removed, or one of its bytes changes: the next user creates it
    /// again. Or a sorted copy is: the next reader goes on to the segment.
    fn spoil_an_index(&mut self) {
        let names = self.disk.names().into_iter();
        let indexes: Vec<String> =
            names.filter(|name| name.ends_with(".index") || name.ends_with(".sorted")).collect();
        let Some(name) = indexes.get(self.random.below(1000) as usize % indexes.len().max(1)) else { return };
        match self.disk.contents(name) {
            Some(mut bytes) if !bytes.is_empty() && !self.random.one_in(3) => {
                let offset = self.random.below(bytes.len() as u64) as usize;
                bytes[offset] ^= 1 << self.random.below(8);
                self.disk.set_contents(name, bytes);
            }
            _ => drop(self.disk.remove(name)),
        }
        self.counts.spoiled_indexes += 1;
    }

    fn checkpoint(&mut self) {
        if let Some(answer) = self.checkpoint_answer.take() {
            let before = self.journal.segments().count();
            if self.journal.finish_checkpoint(answer).is_ok() {
                self.counts.checkpoints += 1;
                self.checkpoints_in_a_row += 1;
            }
            self.counts.segments_recycled += (before - self.journal.segments().count()) as u64;
        } else if let Some(request) = self.checkpoint_request.take() {
            self.checkpoint_answer = Some(request.write(&self.disk, &mut ()));
        } else if self.sync() {
            self.checkpoint_request = Some(self.journal.begin_checkpoint(self.model.checkpoints()).unwrap());
        }
    }

    /// Leaves little in some segments, and makes the checkpoints that a compaction waits for.
    fn ripen(&mut self) {
        self.disk.clear_faults();
        self.disk.set_capacity(None);
        for round in 0..3 {
            (0..6).for_each(|_| self.commit());
            (0..self.random.below(5 - round)).for_each(|_| self.settle_some());
            while self.checkpoint_request.is_some() || self.checkpoint_answer.is_some() {
                self.checkpoint();
            }
            (0..3).for_each(|_| self.checkpoint());
        }
        if self.compaction_request.is_none() && self.compaction_answer.is_none() {
            self.compaction_request = self.journal.wants_compaction();
        }
    }

    /// The next step of a compaction, wherever it is.
    fn compact(&mut self) {
        if let Some(removal) = self.removal.take() {
            removal.run(&self.disk);
        } else if let Some(answer) = self.compaction_answer.take() {
            let before = self.journal.segments().count();
            match self.journal.finish_compaction(answer) {
                Ok(()) => self.counts.compactions += 1,
                Err(_) => self.counts.failed_compactions += 1,
            }
            self.counts.segments_compacted += (before - self.journal.segments().count()) as u64;
            self.removal = self.journal.wants_removal();
        } else if let Some(request) = self.compaction_request.take() {
            self.compaction_answer = Some(request.run(&self.disk, &mut ()));
        } else {
            self.compaction_request = self.journal.wants_compaction();
            self.removal = self.journal.wants_removal();
        }
    }

    /// Ends the process or the machine while a compacted segment is written, named or taken in.
    fn stop_in_a_compaction(&mut self) {
        self.ripen();
        use Operation::{Create, Rename, Sync, SyncDirectory, Write};
        let operation = [Create, Write, Sync, SyncDirectory, Rename][self.random.below(5) as usize];
        self.disk.fail(operation, self.random.below(3), Fault::Broken);
        for _ in 0..self.random.below(5) {
            self.compact();
        }
        let power_cut = !self.random.one_in(3);
        self.stop(power_cut);
    }

    /// The disk does nothing more after one of the next operations, mostly of the very next.
    fn plan_death(&mut self) {
        let most = 1 << (1 + self.random.below(6));
        self.disk.fail(Operation::Any, self.random.below(most), Fault::Dead);
    }

    /// Ends the process or the machine within a piece of work, so that nothing is tidied up after
    /// it.
    fn stop_in_a_job(&mut self) {
        let mut phase = Phase::ALL[self.random.below(Phase::ALL.len() as u64 - 1) as usize];
        if self.rotations.is_some() && self.random.one_in(3) {
            phase = Phase::Rotation;
        }
        match phase {
            Phase::Compaction | Phase::Rotation => self.ripen(),
            _ => {
                self.disk.clear_faults();
                self.disk.set_capacity(None);
            }
        }
        // An answer may be waited for first; a journal that failed begins none.
        for _ in 0..2 {
            if phase == Phase::Checkpoint && self.checkpoint_request.is_none() {
                self.checkpoint();
            }
        }
        let outdated = self.is_outdated();
        self.plan_death();
        match phase {
            Phase::Append => self.commit(),
            Phase::Seal => drop(self.journal.seal()),
            Phase::Segment => (0..2).for_each(|_| self.serve_segment()),
            Phase::Index => (0..3).for_each(|_| self.serve_index()),
            Phase::Checkpoint => (0..2).for_each(|_| self.checkpoint()),
            Phase::Compaction => (0..4).for_each(|_| self.compact()),
            Phase::Sorting => (0..3).for_each(|_| self.serve_sorting()),
            Phase::Rotation => {
                drop(self.journal.seal());
                (0..6).for_each(|_| self.compact());
            }
            Phase::Recovery => {}
        }
        if self.disk.is_dead() && (phase != Phase::Rotation || outdated) {
            self.counts.ends.add(phase);
        }
        let power_cut = !self.random.one_in(3);
        self.stop(power_cut);
    }

    /// Whether something is on the disk that would be encrypted with another key now.
    fn is_outdated(&self) -> bool {
        let keys = keys(self.rotations);
        self.journal.bytes_by_key().into_keys().any(|key| keys.target(key) != key)
    }

    fn read_one(&mut self) {
        self.disk.clear_faults();
        let nth = self.random.below(1000);
        let Some((partition, position)) = self.model.pick(PartitionId(self.random.below(3) as u16), nth)
        else {
            return;
        };
        let many = 1 + self.random.below(5) as usize;
        let records = self.journal.read_many(partition, position, many, 4000).unwrap();
        assert!(!records.is_empty() && records.len() <= many);
        assert_eq!(records.first().map(|record| record.position), Some(position));
        assert!(records.is_sorted_by_key(|record| record.position));
        for record in &records {
            assert_eq!(record.payload, self.model.payload(partition, record.position));
        }
        let wanted: Vec<_> = records.iter().map(|record| (partition, record.position)).collect();
        let mut near = read_near(&mut self.journal, &wanted).1;
        // Records in a sorted copy come first.
        near.sort_by_key(|(position, _)| *position);
        for (record, (position, near)) in records.iter().zip(near) {
            assert_eq!((record.position, Ok(record.payload.clone())), (position, near));
        }
    }

    fn plan_fault(&mut self) {
        let operation = Operation::DRAWN[self.random.below(Operation::DRAWN.len() as u64) as usize];
        let fault = operation.fault(self.random.one_in(2));
        self.disk.fail(operation, self.random.below(6), fault);
    }

    fn squeeze(&mut self) {
        let used = self.disk.used_bytes();
        self.disk.set_capacity(Some(used + self.random.below(20_000)));
    }

    /// Ends the process, with or without the machine, and opens the journal again, twice.
    fn stop(&mut self, power_cut: bool) {
        self.segment_request = None;
        self.checkpoint_request = None;
        self.checkpoint_answer = None;
        self.compaction_request = None;
        self.compaction_answer = None;
        self.removal = None;
        self.index_request = None;
        self.index_answer = None;
        self.sort_request = None;
        self.sort_answer = None;
        if power_cut {
            self.counts.crashes += 1;
            self.disk.crash();
        } else {
            self.counts.restarts += 1;
            self.disk.restart();
        }
        self.damage_checkpoint();
        if let Some(rotations) = self.rotations.as_mut().filter(|_| self.random.one_in(3)) {
            *rotations += 1;
            self.counts.rotations += 1;
        }
        let (recovered, cut) = self.open();
        self.counts.torn += u64::from(recovered.torn.is_some());
        let (mut states, lost) = self.model.recover(power_cut || cut, &recovered);
        self.counts.lost_tails += u64::from(lost);
        if self.random.one_in(2) {
            // Data that was recovered once must stay recovered.
            self.disk.crash();
            let (recovered, _) = self.open();
            let again = self.model.recover(false, &recovered);
            assert_eq!(again, (states, false));
            states = again.0;
        }
        self.model.take_over(states);
        self.check_live();
        // Only now the journal knows which are live, not only how many.
        let live = self.model.live();
        for partition in (0..3).map(PartitionId) {
            let own = live.iter().filter(|(owner, _)| *owner == partition);
            let own =
                own.map(|&(_, position)| row(position, self.model.payload(partition, position).len() as u64));
            assert_eq!(self.journal.recount(partition, own), 0);
        }
        let counted: u64 = self.journal.segments().map(|segment| segment.live_messages).sum();
        assert_eq!(counted, live.len() as u64);
        self.journal.take_stock();
    }

    /// Groups that are not applied come after the committed ones, and are cut off again; the disk
    /// may die in it.
    fn go_astray(&mut self) {
        self.stop(false);
        self.disk.clear_faults();
        self.disk.set_capacity(None);
        let mut group = Vec::new();
        self.model.enqueue(&mut group, PartitionId(0), 100, 7);
        self.journal.commit(&group).unwrap();
        self.model.acknowledged(&group);
        self.disk.restart();
        let opened = Journal::open_with(self.disk.clone(), OPTIONS, keys(self.rotations), &mut |_, _| ());
        let (mut astray, _) = opened.unwrap();
        let mut strays = Vec::new();
        for _ in 0..1 + self.random.below(5) {
            let (partition, bytes) = (self.random.below(2) as u16, 1 + self.random.below(9000) as usize);
            self.model.enqueue(&mut strays, PartitionId(partition), bytes, 9);
        }
        strays.iter().for_each(|stray| astray.commit(std::slice::from_ref(stray)).unwrap());
        if self.random.one_in(2) {
            self.disk.fail(Operation::Any, self.random.below(16), Fault::Dead);
        }
        let (partition, position) = (group[0].partition, group[0].position);
        match astray.cut_behind(partition, position) {
            Ok(()) => self.counts.cuts += 1,
            // All of them are there, or none.
            Err(_) => self.model.open_group = Some(strays),
        }
        self.disk.clear_faults();
        let power_cut = self.random.one_in(2);
        self.stop(power_cut);
    }

    /// Ends the process or the machine while a group is being written or synced.
    fn stop_in_a_commit(&mut self) {
        self.disk.clear_faults();
        let operation = [Operation::Write, Operation::Sync][self.random.below(2) as usize];
        self.disk.fail(operation, 0, Fault::Broken);
        self.commit();
        let power_cut = !self.random.one_in(4);
        self.stop(power_cut);
    }

    /// Damages the newest checkpoint, if the two newest are good.
    fn damage_checkpoint(&mut self) {
        let names = self.disk.names().into_iter().filter(|name| name.ends_with(".checkpoint"));
        if let Some(newest) = names.max()
            && 2 <= self.checkpoints_in_a_row
            && self.random.one_in(2)
        {
            let mut bytes = self.disk.contents(&newest).unwrap();
            let place = self.random.below(64.min(bytes.len() as u64)) as usize;
            bytes[place] ^= 1;
            self.disk.set_contents(&newest, bytes);
            self.checkpoints_in_a_row = 0;
            self.counts.damaged_checkpoints += 1;
        }
    }

    /// Opens the journal, whatever comes in between; the second says whether the machine ended
    /// meanwhile.
    fn open(&mut self) -> (Recovered<<SimulatedDisk as Disk>::File>, bool) {
        if self.random.one_in(3) {
            self.plan_death();
        }
        let mut cut = false;
        let (journal, recovered) = loop {
            let opened = Journal::open_with(self.disk.clone(), OPTIONS, keys(self.rotations), &mut |_, _| ());
            let died = self.disk.is_dead();
            match opened {
                Ok(opened) if !died => break opened,
                Ok(_) | Err(OpenError::Io { .. }) if died => {
                    self.counts.ends.add(Phase::Recovery);
                    match self.random.one_in(2) {
                        true => self.disk.crash(),
                        false => self.disk.restart(),
                    }
                    cut = true;
                    if !self.random.one_in(3) {
                        self.disk.clear_faults();
                    }
                }
                Err(OpenError::Io { .. }) => {
                    self.disk.clear_faults();
                    self.disk.set_capacity(None);
                }
                Err(error) => panic!("{error}"),
                Ok(_) => unreachable!("of a dead disk above"),
            }
        };
        // Later reads must find their data.
        self.disk.clear_faults();
        self.journal = journal;
        // Some are held, and most are not.
        self.journal.bound_indexes(1 << 10);
        self.journal.sort_by(sort_key, HELD_BYTES);
        assert_eq!(recovered.damaged, vec![]);
        for record in recovered.records() {
            let record = record.unwrap();
            apply_one(&mut self.journal, record.partition, record.position, &record.payload);
        }
        (recovered, cut)
    }

    /// The journal's live records agree with the model, and all of them can be read.
    fn check_live(&mut self) {
        self.disk.clear_faults();
        let counted: u64 = self.journal.segments().map(|segment| segment.live_messages).sum();
        let live = self.model.live();
        assert_eq!(counted, live.len() as u64);
        let near = read_near(&mut self.journal, &live).1;
        assert_eq!(near.len(), live.len());
        for (position, payload) in near {
            let of_any = live.iter().any(|(partition, at)| {
                *at == position && payload.as_ref() == Ok(&self.model.payload(*partition, position))
            });
            assert!(of_any, "{position:?}: {payload:?}");
        }
        for (partition, position) in live {
            let payload = self.journal.read(partition, position).unwrap();
            assert_eq!(payload, self.model.payload(partition, position));
        }
    }

    /// A broker at rest comes to the current keys by itself.
    fn rekey_everything(&mut self) {
        if self.rotations.is_none() || !self.journal.wants_seal() {
            return;
        }
        self.journal.seal().unwrap();
        self.model.all_synced();
        // One that failed before is tried again.
        self.journal.want_checkpoint();
        // One compaction takes four steps, and as many segments as may move may need one each.
        for _ in 0..4 * (8 + self.journal.segments().count()) {
            if self.journal.checkpoint_due() {
                self.journal.write_checkpoint(self.model.checkpoints()).unwrap();
            }
            self.compact();
        }
        let keys = keys(self.rotations);
        let outdated: Vec<_> =
            self.journal.bytes_by_key().into_keys().filter(|&key| keys.target(key) != key).collect();
        assert_eq!(outdated, []);
        self.check_live();
        self.counts.completed_rotations += 1;
    }

    /// With nothing live and two checkpoints, the disk is free again.
    fn settle_everything(&mut self) {
        for _ in 0..4 {
            let mut group = Vec::new();
            for partition in 0..3 {
                while self.model.settle(&mut group, PartitionId(partition), 0) {}
                self.model.enqueue(&mut group, PartitionId(partition), 9000, 1);
            }
            self.commit_group(group);
            let states: Vec<Checkpoint> = self.model.checkpoints();
            assert!(self.sync());
            self.journal.write_checkpoint(states).unwrap();
        }
        let segments = self.journal.segments().count();
        assert!(segments <= 6, "{segments} segments left");
    }
}

fn apply(journal: &mut Journal<SimulatedDisk>, group: &[Record]) {
    for record in group {
        apply_one(journal, record.partition, record.position, &record.payload.to_bytes());
    }
}

fn apply_one(
    journal: &mut Journal<SimulatedDisk>,
    partition: PartitionId,
    position: postroad_model::Position,
    payload: &Bytes,
) {
    match decode_step(payload) {
        Step::Enqueue => assert!(journal.retain(partition, position, 1, payload.len() as u64)),
        Step::Settle(target) => assert!(journal.release(partition, target, 0, 500)),
    }
}
