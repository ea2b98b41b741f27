//! The log in a journal behaves as a list of entries, over power cuts and replaced ends.

use bytes::Bytes;
use postroad_journal::{Disk, Fault, Journal, Operation, Options, Payload, Record, SimulatedDisk};
use postroad_model::{PartitionId, Position};

use super::random::Random;
use crate::{
    BatchError, Entry, EntryId, EntryKind, EntryLog, Index, JournalLog, JournalLogError, Members, NodeId,
    Term, decode_batch, encode_batch,
};

const OPTIONS: Options = Options {
    segment_bytes: 16 << 10,
    checkpoint_bytes: 24 << 10,
    checkpoint_share: 0,
    dead_segments_max: 2,
};

fn open(disk: &SimulatedDisk) -> JournalLog<SimulatedDisk> {
    JournalLog::open(disk.clone(), OPTIONS).unwrap().0
}

fn contents(log: &impl EntryLog) -> Vec<Entry> {
    let last = log.last();
    if last == Index(0) { Vec::new() } else { log.entries(Index(1), last, u64::MAX).unwrap() }
}

fn record(partition: u16, position: u64, bytes: usize) -> Record {
    Record {
        partition: PartitionId(partition),
        position: Position::new(position).unwrap(),
        payload: Payload::from(Bytes::from(vec![position as u8; bytes])),
        reserve: position.is_multiple_of(3),
        key: None,
    }
}

/// The next entries after `before`, of a term; partition 3 gets a record in each batch.
fn some_entries(before: &[Entry], term: u64, count: u64, random: &mut Random) -> Vec<Entry> {
    let mut position = before.iter().filter(|entry| entry.kind == EntryKind::Batch).count() as u64;
    let entry = |place: u64| {
        let id = EntryId { index: Index(before.len() as u64 + place + 1), term: Term(term) };
        if random.one_in(6) {
            return Entry { id, kind: EntryKind::Opening, payload: Bytes::new() };
        }
        if random.one_in(6) {
            let payload = Members::first((1..=id.index.0 % 8 + 1).filter_map(NodeId::new)).encode();
            return Entry { id, kind: EntryKind::Members, payload };
        }
        position += 1;
        let payload = encode_batch(&[record(3, position, random.below(3000) as usize)]);
        Entry { id, kind: EntryKind::Batch, payload }
    };
    (0..count).map(entry).collect()
}

#[test]
fn a_log_in_a_journal_is_a_list_of_entries() {
    let (mut replaced, mut failures) = (0, 0);
    for seed in 0..50 {
        let mut random = Random::new(seed);
        let disk = SimulatedDisk::new(seed);
        let (mut log, mut model, mut term) = (open(&disk), Vec::<Entry>::new(), 1);
        for _ in 0..25 {
            term += random.below(2);
            let keep =
                if random.one_in(4) { random.below(model.len() as u64 + 1) as usize } else { model.len() };
            let count = 1 + random.below(6);
            let entries = some_entries(&model[..keep], term, count, &mut random);
            if random.one_in(8) {
                disk.fail(Operation::Any, random.below(20), Fault::Dead);
            }
            replaced += u64::from(keep < model.len());
            let written = log.append(&entries);
            disk.clear_faults();
            let whole: Vec<Entry> = model[..keep].iter().chain(&entries).cloned().collect();
            if written.is_ok() && !disk.is_dead() {
                model = whole;
            } else {
                failures += 1;
                drop(log);
                disk.crash();
                log = open(&disk);
                let found = contents(&log);
                // The old end, or the new one as far as it came.
                assert!(found == model || found.len() >= keep && whole.starts_with(&found), "seed {seed}");
                assert!(written.is_err() || found == whole, "seed {seed}: what was synced is there");
                model = found;
            }
            if random.one_in(5) {
                disk.crash();
                log = open(&disk);
            }
            assert_eq!(contents(&log), model, "seed {seed}");
            let terms = model.iter().map(|entry| log.term(entry.id.index));
            assert!(terms.eq(model.iter().map(|entry| Some(entry.id.term))), "seed {seed}");
            assert_eq!(log.term(log.last().next()), None);
        }
    }
    assert!(replaced > 100 && failures > 30, "{replaced} replaced, {failures} failures");
}

#[test]
fn terms_come_back_from_a_checkpoint() {
    let disk = SimulatedDisk::new(1);
    let mut random = Random::new(1);
    let mut log = open(&disk);
    let mut model = Vec::new();
    for term in [1, 1, 4, 4, 9] {
        let entries = some_entries(&model, term, 5, &mut random);
        log.append(&entries).unwrap();
        model.extend(entries);
    }
    let states = |log: &mut JournalLog<SimulatedDisk>, through: Index| {
        let meta = log.checkpoint(through);
        let journal = log.journal_mut().unwrap();
        let partition = PartitionId(3);
        let position = journal.last_position(partition).unwrap();
        let state = Bytes::from("state").into();
        journal
            .write_checkpoint(vec![meta, postroad_journal::Checkpoint { partition, position, state }])
            .unwrap();
    };
    states(&mut log, Index(25));
    let more = some_entries(&model, 9, 3, &mut random);
    log.append(&more).unwrap();
    model.extend(more);
    disk.crash();
    let log = open(&disk);
    assert_eq!(contents(&log), model);
    assert_eq!(
        [5, 11, 20, 25, 28].map(|index| log.term(Index(index))),
        [1, 4, 4, 9, 9].map(|term| Some(Term(term)))
    );
}

#[test]
fn the_journal_of_a_lone_broker_is_no_log_of_a_group() {
    let disk = SimulatedDisk::new(1);
    let (mut journal, _) = Journal::open(disk.clone(), OPTIONS).unwrap();
    journal.commit(&[record(0, 1, 10)]).unwrap();
    drop(journal);
    let refused = JournalLog::open(disk.clone(), OPTIONS).map(|_| ());
    assert!(matches!(refused, Err(JournalLogError::NotReplicated)), "{refused:?}");
    assert!(disk.list().is_ok());
}

#[test]
fn a_batch_comes_back_as_it_was_and_a_damaged_one_is_refused() {
    let records = vec![record(0, 1, 10), record(7, 3, 0), record(0, 2, 1000)];
    let payload = encode_batch(&records);
    assert_eq!(decode_batch(payload.clone()), Ok(records));
    for length in 4..payload.len() {
        assert_eq!(decode_batch(payload.slice(..length)), Err(BatchError::Length), "{length} bytes");
    }
    type Change = fn(&mut Vec<u8>);
    let cases: [(&str, Change, BatchError); 5] = [
        ("no record", |bytes| bytes[..4].fill(0), BatchError::Empty),
        ("more records than bytes", |bytes| bytes[3] = 255, BatchError::Length),
        ("a position of zero", |bytes| bytes[6..14].fill(0), BatchError::Field),
        ("an unknown flag", |bytes| bytes[14] = 2, BatchError::Field),
        ("bytes left over", |bytes| bytes.push(0), BatchError::Length),
    ];
    for (name, change, error) in cases {
        let mut bytes = payload.to_vec();
        change(&mut bytes);
        assert_eq!(decode_batch(bytes.into()), Err(error), "case: {name}");
    }
}

/// A log whose terms begin at these entries.
fn with_runs(runs: &[(u64, u64)], last: u64) -> JournalLog<SimulatedDisk> {
    let mut log = open(&SimulatedDisk::new(9));
    let term = |index| runs.iter().rev().find(|(first, _)| *first <= index).map_or(0, |(_, term)| *term);
    let entry = |index| Entry {
        id: EntryId { index: Index(index), term: Term(term(index)) },
        kind: EntryKind::Opening,
        payload: Bytes::new(),
    };
    log.append(&(1..=last).map(entry).collect::<Vec<_>>()).unwrap();
    log
}

#[test]
fn logs_of_two_eras_share_the_entries_before_they_parted() {
    let jump = crate::ERA_TERMS + 3;
    for (case, own, former, want) in [
        ("the mirror lagged", vec![(1, 1), (5, 3), (9, jump)], (vec![(1, 1), (5, 3)], 20), Some((8, 3))),
        ("the other lagged", vec![(1, 1), (5, 3), (9, jump)], (vec![(1, 1), (5, 3)], 6), Some((6, 3))),
        ("both had the same", vec![(1, 1), (5, 3), (9, jump)], (vec![(1, 1), (5, 3)], 8), Some((8, 3))),
        ("it was led by another", vec![(1, 1), (5, 3), (9, jump)], (vec![(1, 1), (4, 2)], 9), Some((3, 1))),
        (
            "it went on in later terms",
            vec![(1, 1), (5, 3), (9, jump)],
            (vec![(1, 1), (5, 3), (7, 4)], 30),
            Some((6, 3)),
        ),
        ("no era has ended", vec![(1, 1), (5, 3), (9, 4)], (vec![(1, 1), (5, 3)], 20), None),
        ("nothing in common", vec![(1, 2), (9, jump)], (vec![(1, 1)], 20), Some((0, 0))),
    ] {
        let own = with_runs(&own, 12);
        let former = with_runs(&former.0, former.1);
        let shared = own.shared_with(&former.runs(), former.last());
        assert_eq!(shared.map(|it| (it.index.0, it.term.0)), want, "case: {case}");
        if let Some(shared) = shared {
            let mut cut = former;
            cut.cut_to(shared.index).unwrap();
            assert_eq!((cut.last(), cut.term(cut.last())), (shared.index, Some(shared.term)), "case: {case}");
        }
    }
}
