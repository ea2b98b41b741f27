//! The journal in service, on the simulated disk: commit, read, checkpoint, recycle, full and
//! broken disks.

use super::in_memory;
use crate::{
    Checkpoint, CheckpointError, CommitError, Disk, Fault, Journal, NearRecords, Operation, Options, Pace,
    Payload, ReadError, Record, Recovered, SimulatedDisk, Space, StoredRecord, Ways,
};
use bytes::Bytes;
use postroad_model::{MessageRow, PartitionId, Position};

pub(super) const OPTIONS: Options = Options {
    segment_bytes: 16 << 10,
    checkpoint_bytes: 24 << 10,
    dead_segments_max: 2,
    checkpoint_share: 0,
};

pub(super) fn position(number: u64) -> Position {
    Position::new(number).unwrap()
}

/// One message of this size in one record.
pub(super) fn row(first: Position, body_bytes: u64) -> MessageRow {
    MessageRow::of_one(first, 0, body_bytes)
}

pub(super) fn payload(partition: u16, number: u64, bytes: usize) -> Bytes {
    (0..bytes).map(|index| (index as u64 * 7 + number * 13 + u64::from(partition)) as u8).collect()
}

pub(super) fn record(partition: u16, number: u64, bytes: usize) -> Record {
    let whole = payload(partition, number, bytes);
    let cut = bytes / 3;
    let payload = Payload::from([whole.slice(..cut), whole.slice(cut..)]);
    Record {
        partition: PartitionId(partition),
        position: position(number),
        payload,
        reserve: false,
        key: None,
    }
}

pub(super) fn stored(partition: u16, number: u64, bytes: usize) -> StoredRecord {
    let payload = payload(partition, number, bytes);
    StoredRecord { partition: PartitionId(partition), position: position(number), payload }
}

pub(super) fn open(disk: &SimulatedDisk) -> (Journal<SimulatedDisk>, Vec<StoredRecord>) {
    let (journal, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
    let records = records(&recovered);
    (journal, records)
}

fn records(recovered: &Recovered<<SimulatedDisk as Disk>::File>) -> Vec<StoredRecord> {
    assert_eq!(recovered.damaged, vec![]);
    recovered.records().map(|record| record.unwrap()).collect()
}

pub(super) fn serve(journal: &mut Journal<SimulatedDisk>, disk: &SimulatedDisk) {
    if let Some(request) = journal.wants_segment() {
        journal.provide(request.prepare(disk, &mut ()));
    }
    while let Some(request) = journal.wants_index() {
        journal.finish_index(request.write(disk)).unwrap();
    }
}

#[test]
fn every_sync_of_groups_is_timed_and_a_write_that_is_durable_by_itself_is_one() {
    for one_call in [false, true] {
        let disk = SimulatedDisk::new(1).written(Ways { one_call, ..Ways::default() });
        let (mut journal, _) = open(&disk);
        let timed = |journal: &Journal<SimulatedDisk>| journal.sync_micros().counts().iter().sum::<u64>();
        assert_eq!(timed(&journal), 0, "one call: {one_call}");
        journal.commit(&[record(0, 1, 100)]).unwrap();
        journal.commit(&[record(0, 2, 100)]).unwrap();
        assert_eq!(timed(&journal), 2, "one call: {one_call}: each commit");
        journal.append(&[record(0, 3, 100)]).unwrap();
        assert_eq!(timed(&journal), 2, "one call: {one_call}: what is only written");
        journal.sync().unwrap();
        journal.sync().unwrap();
        assert_eq!(
            timed(&journal),
            3,
            "one call: {one_call}: its sync, and none where nothing waits for one"
        );
        disk.fail(if one_call { Operation::Write } else { Operation::Sync }, 0, Fault::Broken);
        journal.commit(&[record(0, 4, 100)]).unwrap_err();
        assert_eq!(timed(&journal), 4, "one call: {one_call}: one that fails took its time, too");
    }
}

#[test]
fn what_was_committed_comes_back_in_order_after_a_power_cut() {
    for (name, groups) in [
        ("nothing", vec![]),
        ("one record", vec![vec![(0, 1, 1000)]]),
        ("an empty payload", vec![vec![(0, 1, 0)]]),
        ("two partitions in one group", vec![vec![(0, 1, 10), (7, 1, 600), (0, 2, 0)], vec![(7, 2, 5)]]),
        ("more than one segment", (1..=60).map(|number| vec![(0, number, 900)]).collect()),
        ("larger than a segment", vec![vec![(0, 1, 10)], vec![(0, 2, 50_000)], vec![(0, 3, 10)]]),
        ("more pieces than one write takes", vec![(1..=1500).map(|number| (0, number, 3)).collect()]),
    ] {
        let disk = SimulatedDisk::new(1);
        let (mut journal, before) = open(&disk);
        assert_eq!(before, vec![], "case: {name}");
        let mut want = Vec::new();
        for group in &groups {
            let records: Vec<Record> = group.iter().map(|&(p, n, b)| record(p, n, b)).collect();
            journal.commit(&records).unwrap();
            want.extend(group.iter().map(|&(p, n, b)| stored(p, n, b)));
            serve(&mut journal, &disk);
        }
        disk.crash();
        let (mut journal, got) = open(&disk);
        assert_eq!(got, want, "case: {name}");
        for record in &want {
            assert_eq!(
                journal.read(record.partition, record.position).unwrap(),
                record.payload,
                "case: {name}"
            );
        }
        assert_eq!(open(&disk).1, want, "case: {name}, opened twice");
    }
}

fn settle(partition: u16, number: u64) -> Record {
    Record { reserve: true, ..record(partition, number, 8) }
}

#[test]
fn positions_are_dense_or_nothing_is_written() {
    let (mut journal, _) = open(&SimulatedDisk::new(1));
    journal.commit(&[record(0, 1, 10), record(0, 2, 10)]).unwrap();
    for (name, group, want) in [
        ("a partition starts at 1", vec![record(1, 2, 1)], (1, 1, 2)),
        ("no gap", vec![record(0, 4, 1)], (0, 3, 4)),
        ("no repeat", vec![record(0, 2, 1)], (0, 3, 2)),
        ("no gap inside a group", vec![record(0, 3, 1), record(0, 5, 1)], (0, 4, 5)),
    ] {
        match journal.commit(&group) {
            Err(CommitError::NotDense { partition, expected, found }) => {
                assert_eq!((partition.0, expected.get(), found.get()), want, "case: {name}");
            }
            other => panic!("case: {name}: {other:?}"),
        }
        assert_eq!(journal.last_position(PartitionId(0)), Some(position(2)), "case: {name}");
    }
    journal.commit(&[]).unwrap();
    journal.commit(&[record(0, 3, 1), record(1, 1, 1)]).unwrap();
}

#[test]
fn after_a_failed_sync_the_group_is_void_and_service_goes_on() {
    for (name, operation, restart, one_call) in [
        ("sync fails", Operation::Sync, false, false),
        ("sync fails, then the process ends", Operation::Sync, true, false),
        ("write fails", Operation::Write, false, false),
        ("the sync of a write fails", Operation::Sync, false, true),
        ("the sync of a write fails, then the process ends", Operation::Sync, true, true),
    ] {
        let disk = SimulatedDisk::new(2).written(Ways { one_call, ..Ways::default() });
        let (mut journal, _) = open(&disk);
        journal.commit(&[record(0, 1, 10)]).unwrap();
        disk.fail(operation, 0, Fault::Broken);
        let failed = journal.commit(&[record(0, 2, 3000)]).unwrap_err();
        let is_sync = matches!(failed, CommitError::SyncFailed { offset: 1024, .. });
        let is_write = matches!(failed, CommitError::WriteFailed { offset: 1024, .. });
        assert_eq!(
            (is_sync, is_write),
            (operation == Operation::Sync && !one_call, operation == Operation::Write || one_call),
            "case: {name}"
        );
        assert!(journal.needs_reopen(), "case: {name}");
        assert!(matches!(journal.commit(&[record(0, 2, 1)]), Err(CommitError::NeedsReopen)), "case: {name}");
        // The new segment fails as well, once.
        disk.fail(Operation::Sync, 1, Fault::Broken);
        assert!(journal.reopen().is_err(), "case: {name}");
        journal.reopen().unwrap();
        journal.commit(&[record(0, 2, 20)]).unwrap();
        if restart {
            disk.restart()
        } else {
            disk.crash()
        }
        assert_eq!(open(&disk).1, vec![stored(0, 1, 10), stored(0, 2, 20)], "case: {name}");
    }
}

#[test]
fn on_a_full_disk_settles_still_fit_and_service_resumes_by_itself() {
    let disk = SimulatedDisk::new(4);
    let (mut journal, _) = open(&disk);
    disk.set_capacity(Some(disk.used_bytes()));
    let request = journal.wants_segment().unwrap();
    assert!(journal.wants_segment().is_none(), "one order at a time");
    let refused = request.prepare(&disk, &mut ()).unwrap_err();
    assert!(refused.is_full());
    assert_eq!(journal.space(), Space::Ample, "not known yet");
    journal.provide(Err(refused));
    assert_eq!(journal.space(), Space::Low);
    let mut number = 1;
    let refused = loop {
        match journal.commit(&[record(0, number, 900)]) {
            Ok(()) => number += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, CommitError::NoSpace { group_bytes: 1024 }), "{refused}");
    let before = number;
    while journal.commit(&[settle(0, number)]).is_ok() {
        number += 1;
    }
    assert_eq!((before, number - before), (15, 3), "1 KiB kept back, and what a larger group could not use");
    disk.set_capacity(None);
    serve(&mut journal, &disk);
    assert_eq!(journal.space(), Space::Ample);
    journal.commit(&[record(0, number, 900)]).unwrap();
}

#[test]
fn while_space_is_low_checkpoints_are_due_as_long_as_they_free_a_segment() {
    let disk = SimulatedDisk::new(4);
    let (mut journal, _) = open(&disk);
    for number in 1..=20 {
        journal.commit(&[record(0, number, 900)]).unwrap();
    }
    assert!(!journal.checkpoint_due(), "not enough was committed");
    // More than half of it, so there is nothing to compact.
    let live = 1..=10;
    live.clone().for_each(|number| assert!(journal.retain(PartitionId(0), position(number), 1, 1000)));
    let refuse = |journal: &mut Journal<SimulatedDisk>| {
        disk.fail(Operation::Allocate, 0, Fault::Full);
        serve(journal, &disk);
    };
    refuse(&mut journal);
    assert_eq!(
        (journal.space(), journal.checkpoint_due()),
        (Space::Low, false),
        "all that is sealed is live"
    );
    live.for_each(|number| assert!(journal.release(PartitionId(0), position(number), 0, 1000)));
    for made in 0..2 {
        assert!(journal.checkpoint_due(), "after {made} checkpoints");
        let state = Bytes::from_static(b"state").into();
        let whole = Checkpoint { partition: PartitionId(0), position: position(20), state };
        journal.write_checkpoint(vec![whole]).unwrap();
    }
    assert!(!journal.checkpoint_due(), "nothing is left to free");
    assert_eq!(journal.segments().map(|segment| segment.number.0).collect::<Vec<_>>(), vec![2]);
    serve(&mut journal, &disk);
    assert_eq!(journal.space(), Space::Ample, "the freed segment is used again");
}

#[test]
fn checkpoints_are_so_much_rarer_as_states_are_larger() {
    let options = Options { checkpoint_share: 4, ..OPTIONS };
    // Records of 1 KiB with their headers; a checkpoint is due after 24 of them, or 4 KiB for each
    // KiB of states, but 96 of them unless the states are larger than that.
    let cases = [(100, 24), (6 << 10, 24), (8 << 10, 32), (10 << 10, 40), (30 << 10, 96), (99 << 10, 99)];
    for (state_bytes, want) in cases {
        let disk = SimulatedDisk::new(1);
        let mut number = 0;
        let mut until_due = |journal: &mut Journal<SimulatedDisk>| {
            let began = number;
            while !journal.checkpoint_due() {
                number += 1;
                journal.commit(&[record(0, number, 900)]).unwrap();
                serve(journal, &disk);
            }
            (number - began, position(number))
        };
        let (mut journal, _) = Journal::open(disk.clone(), options).unwrap();
        let (records, at) = until_due(&mut journal);
        assert_eq!(records, 24, "there is no state yet");
        let state = Bytes::from(vec![7; state_bytes]).into();
        journal
            .write_checkpoint(vec![Checkpoint { partition: PartitionId(0), position: at, state }])
            .unwrap();
        assert_eq!(until_due(&mut journal).0, want, "state of {state_bytes} bytes");
        disk.restart();
        let (journal, _) = Journal::open(disk.clone(), options).unwrap();
        assert!(journal.checkpoint_due(), "what was committed counts after a start, too");
    }
}

#[test]
fn a_segment_that_cannot_be_made_for_another_reason_than_space_is_named_once_it_is_needed() {
    let disk = SimulatedDisk::new(4);
    let (mut journal, _) = open(&disk);
    let refuse = || disk.fail(Operation::Create, 0, Fault::Broken);
    refuse();
    serve(&mut journal, &disk);
    assert_eq!(journal.space(), Space::Ample, "it says nothing of space");
    // 1 KiB each, in a segment of 16 KiB with its header, and 1 KiB kept back.
    for number in 1..=14 {
        journal.commit(&[record(0, number, 900)]).unwrap();
    }
    refuse();
    let error = journal.commit(&[record(0, 15, 900)]).unwrap_err();
    assert!(matches!(&error, CommitError::NoSegment(_)), "{error}");
    assert!(error.to_string().contains("os error 5"), "{error}");
    journal.commit(&[record(0, 15, 900)]).unwrap();
}

#[test]
fn a_new_segment_leaves_room_for_a_checkpoint_or_takes_nothing() {
    for (name, free_bytes, want) in
        [("a segment and a sixteenth", 17 << 10, true), ("a byte less", (17 << 10) - 1, false)]
    {
        let disk = SimulatedDisk::new(4);
        let (mut journal, _) = open(&disk);
        let before = disk.used_bytes();
        disk.set_capacity(Some(before + free_bytes));
        // Allocation is not even tried where it cannot succeed.
        disk.fail(Operation::Allocate, if want { 1 } else { 0 }, Fault::Broken);
        let made = journal.wants_segment().unwrap().prepare(&disk, &mut ());
        assert_eq!(made.as_ref().err().map(|error| error.is_full()), (!want).then_some(true), "case: {name}");
        assert_eq!(disk.used_bytes() - before, if want { 16 << 10 } else { 0 }, "case: {name}");
    }
}

#[test]
fn reads_many_up_to_its_limits() {
    let disk = SimulatedDisk::new(6);
    let (mut journal, _) = open(&disk);
    for number in 1..=30 {
        journal.commit(&[record(0, number, 900), record(1, number, 10)]).unwrap();
    }
    for (name, from, records_max, bytes_max, want) in [
        ("one", 3, 1, u64::MAX, 3..=3),
        ("some", 3, 4, u64::MAX, 3..=6),
        ("bytes", 3, 9, 2000, 3..=4),
        ("at least one", 3, 9, 1, 3..=3),
        ("to the end of a segment", 8, 9, u64::MAX, 8..=10),
        ("the last", 30, 9, u64::MAX, 30..=30),
    ] {
        let got = journal.read_many(PartitionId(0), position(from), records_max, bytes_max).unwrap();
        assert_eq!(got, want.map(|number| stored(0, number, 900)).collect::<Vec<_>>(), "case: {name}");
    }
    for (partition, number) in [(0, 31), (2, 1)] {
        let got = journal.read(PartitionId(partition), position(number));
        assert!(matches!(got, Err(ReadError::NotFound { .. })));
    }
}

/// A record, or why it cannot be had.
type Answer = (Position, Result<Bytes, String>);

/// Reads these as their requests come together: how many requests those are, and each record or why
/// it cannot be had.
pub(super) fn read_near(
    journal: &mut Journal<SimulatedDisk>,
    wanted: &[(PartitionId, Position)],
) -> (usize, Vec<Answer>) {
    let (mut requests, mut got) = (Vec::new(), Vec::new());
    for (partition, position) in wanted {
        match journal.near_request(*partition, *position, requests.last_mut()) {
            Ok(request) => requests.extend(request),
            Err(error) => got.push((*position, Err(error.to_string()))),
        }
    }
    let count = requests.len();
    for mut request in requests {
        loop {
            let NearRecords { records, rest, index } = request.run(&journal.disk);
            index.into_iter().for_each(|index| journal.keep_index(index));
            assert!(!records.is_empty());
            let records = records.into_iter();
            got.extend(records.map(|(at, record)| (at, record.map_err(|error| error.to_string()))));
            let Some(rest) = rest else { break };
            request = rest;
        }
    }
    (count, got)
}

#[test]
fn more_records_than_are_read_in_one_go_are_several_requests() {
    let options = Options { segment_bytes: 1 << 20, ..OPTIONS };
    let (mut journal, _) = Journal::open(SimulatedDisk::new(6), options).unwrap();
    for group in 0..10 {
        journal.commit(&(1..=60).map(|one| record(0, 60 * group + one, 10)).collect::<Vec<_>>()).unwrap();
    }
    let all: Vec<_> = (1..=600).map(|number| (PartitionId(0), position(number))).collect();
    let (count, got) = read_near(&mut journal, &all);
    let want: Vec<Answer> = (1..=600).map(|number| (position(number), Ok(payload(0, number, 10)))).collect();
    assert_eq!((count, got), (2, want));
}

#[test]
fn records_that_lie_close_together_are_read_in_one_go() {
    let disk = SimulatedDisk::new(6);
    let (mut journal, _) = open(&disk);
    for number in 0..20 {
        let group =
            (1..=9).flat_map(|one| [record(0, 9 * number + one, 60), record(1, 9 * number + one, 10)]);
        journal.commit(&group.collect::<Vec<_>>()).unwrap();
    }
    let all: Vec<u64> = (1..=180).collect();
    for (name, wanted, requests) in [
        ("of one group", &[(0, 1), (0, 2), (0, 9)][..], 1),
        ("of several, with gaps", &[(0, 3), (0, 12), (0, 14), (0, 25)], 1),
        ("of several segments", &[(0, 9), (0, 170), (0, 180)], 2),
        ("backwards", &[(0, 5), (0, 4)], 2),
        ("the same again", &[(0, 5), (0, 5)], 2),
        ("of two partitions", &[(0, 5), (1, 6), (1, 7), (0, 8)], 3),
        ("one that never was ends nothing", &[(0, 5), (2, 1), (0, 6)], 1),
        ("all of several segments", &all.iter().map(|number| (1, *number)).collect::<Vec<_>>(), 2),
    ] {
        let places = wanted.iter().map(|(partition, number)| (PartitionId(*partition), position(*number)));
        let (count, mut got) = read_near(&mut journal, &places.collect::<Vec<_>>());
        assert_eq!(count, requests, "case: {name}");
        let mut want: Vec<_> = wanted
            .iter()
            .map(|(partition, number)| {
                let record = journal.read(PartitionId(*partition), position(*number));
                (position(*number), record.map_err(|error| error.to_string()))
            })
            .collect();
        got.sort_by_key(|(at, _)| *at);
        want.sort_by_key(|(at, _)| *at);
        assert_eq!(got, want, "case: {name}");
    }
}

#[test]
fn much_that_lies_close_together_is_read_in_several_goes() {
    const LARGE: usize = 400 << 10;
    let options = Options { segment_bytes: 8 << 20, ..OPTIONS };
    let disk = SimulatedDisk::new(6);
    let (mut journal, _) = Journal::open(disk.clone(), options).unwrap();
    let group: Vec<Record> = (1..=5).map(|number| record(0, number, LARGE)).collect();
    journal.commit(&group).unwrap();
    let mut request = journal.near_request(PartitionId(0), position(1), None).unwrap().unwrap();
    for number in 2..=5 {
        let own = journal.near_request(PartitionId(0), position(number), Some(&mut request)).unwrap();
        assert!(own.is_none());
    }
    let (mut goes, mut rest) = (Vec::new(), Some(request));
    while let Some(NearRecords { records, rest: left, .. }) = rest.map(|rest| rest.run(&disk)) {
        for (at, record) in &records {
            assert_eq!(record.as_ref().unwrap(), &payload(0, at.get(), LARGE));
        }
        goes.push(records.len());
        rest = left;
    }
    assert_eq!(goes, [3, 2]);
}

#[test]
fn what_a_start_had_to_read_counts_towards_the_next_checkpoint() {
    let disk = SimulatedDisk::new(9);
    let mut starts = 0;
    for number in 1..=30 {
        let (mut journal, read) = open(&disk);
        starts += 1;
        assert_eq!(read.len(), number as usize - 1, "start {starts}");
        if journal.checkpoint_due() {
            let state = Bytes::from_static(b"state").into();
            let whole = Checkpoint { partition: PartitionId(0), position: position(number - 1), state };
            journal.write_checkpoint(vec![whole]).unwrap();
            assert!(!journal.checkpoint_due(), "it counts anew");
            break;
        }
        journal.commit(&[record(0, number, 1000)]).unwrap();
    }
    // 24 KiB in groups of 1.5 KiB each.
    assert_eq!(starts, 17);
    let (journal, read) = open(&disk);
    assert_eq!((read.len(), journal.checkpoint_due()), (0, false), "nothing is left to be read");
}

#[test]
fn segments_are_recycled_once_two_checkpoints_cover_them_and_nothing_in_them_is_live() {
    let disk = SimulatedDisk::new(8);
    let (mut journal, _) = open(&disk);
    let checkpoint = |journal: &mut Journal<SimulatedDisk>, number| {
        let state = Bytes::from_static(b"state").into();
        let whole = Checkpoint { partition: PartitionId(0), position: position(number), state };
        journal.write_checkpoint(vec![whole]).unwrap();
        journal.segments().map(|segment| segment.number.0).collect::<Vec<_>>()
    };
    for number in 1..=30 {
        journal.commit(&[record(0, number, 1000)]).unwrap();
    }
    assert!(journal.checkpoint_due());
    assert!(
        journal.retain(PartitionId(0), position(1), 1, 1000)
            && !journal.retain(PartitionId(0), position(31), 1, 1000)
    );
    assert_eq!(checkpoint(&mut journal, 30), vec![1, 2, 3], "one checkpoint");
    assert!(!journal.checkpoint_due());
    journal.commit(&[record(0, 31, 1000)]).unwrap();
    assert_eq!(checkpoint(&mut journal, 31), vec![1, 3, 4], "two checkpoints, one live record");
    assert!(
        journal.release(PartitionId(0), position(1), 0, 1000)
            && !journal.release(PartitionId(0), position(1), 0, 1000)
    );
    assert_eq!(checkpoint(&mut journal, 31), vec![1, 4], "the older checkpoint still counts it as live");
    assert_eq!(checkpoint(&mut journal, 31), vec![4]);
    assert!(matches!(journal.read(PartitionId(0), position(1)), Err(ReadError::NotFound { .. })));
    let missing = journal.write_checkpoint(vec![]);
    assert!(matches!(missing, Err(CheckpointError::PartitionMissing(PartitionId(0)))));
    let names = disk.list().unwrap().into_iter().filter(|name| name.ends_with(".segment")).count();
    assert_eq!(names, 3, "the current one and two dead ones kept for reuse");
    let request = journal.wants_segment().unwrap();
    journal.provide(request.prepare(&disk, &mut ()));
    let names = disk.list().unwrap().into_iter().filter(|name| name.ends_with(".segment")).count();
    assert_eq!(names, 3, "a dead one was used again");
}

#[test]
fn a_checkpoint_counts_all_messages_of_a_record() {
    let disk = SimulatedDisk::new(6);
    let (mut journal, _) = open(&disk);
    journal.commit(&[record(0, 1, 1000)]).unwrap();
    assert!(journal.retain(PartitionId(0), position(1), 7, 900));
    let state = Bytes::from_static(b"seven").into();
    let checkpoint = Checkpoint { partition: PartitionId(0), position: position(1), state };
    journal.write_checkpoint(vec![checkpoint.clone()]).unwrap();
    let (mut journal, recovered) = Journal::open(disk.copy(), OPTIONS).unwrap();
    assert_eq!(
        (in_memory(&recovered.checkpoints), recovered.skipped_checkpoints),
        (vec![checkpoint], vec![])
    );
    for recounted in [false, true] {
        if recounted {
            let live = (0..7).map(|message| MessageRow::of_one(position(1), message, 100));
            assert_eq!(journal.recount(PartitionId(0), live), 0);
        }
        let counted: Vec<u64> = journal.segments().map(|segment| segment.live_messages).collect();
        assert_eq!(counted, [7], "recounted: {recounted}");
    }
    let released: Vec<bool> =
        (0..8).map(|message| journal.release(PartitionId(0), position(1), message, 100)).collect();
    assert_eq!(released, [true, true, true, true, true, true, true, false]);
}

/// Lets the journal write while zeros are waited for, and counts.
struct Turns<'j> {
    journal: &'j mut Journal<SimulatedDisk>,
    waits: u64,
    steps: u64,
}

impl Pace for Turns<'_> {
    fn step(&mut self) {
        self.steps += 1;
    }

    fn ahead(&mut self) -> bool {
        self.waits += 1;
        let last = self.journal.last_position(PartitionId(0)).map_or(0, |last| last.get());
        self.journal.commit(&[record(0, last + 1, 60_000)]).unwrap();
        self.waits < 8
    }
}

#[test]
fn the_next_segment_is_zeroed_no_further_ahead_than_needed() {
    let options = Options { segment_bytes: 2 << 20, ..OPTIONS };
    let disk = SimulatedDisk::new(2);
    let (mut journal, _) = Journal::open(disk.clone(), options).unwrap();
    let request = journal.wants_segment().expect("an order");
    let mut turns = Turns { journal: &mut journal, waits: 0, steps: 0 };
    let made = request.prepare(&disk, &mut turns);
    // Eight steps of 256 KiB. The first segment has half of a regular one's size, so that the sixth
    // step is the first to wait.
    assert_eq!((turns.steps, turns.waits, made.is_ok()), (8, 5, true));
    journal.provide(made);
    let waits = |filled: usize| {
        let (mut journal, _) = Journal::open(SimulatedDisk::new(3), options).unwrap();
        journal.commit(&[record(0, 1, filled)]).unwrap();
        let request = journal.wants_segment().expect("an order");
        let mut turns = Turns { journal: &mut journal, waits: 0, steps: 0 };
        request.prepare(&disk, &mut turns).unwrap();
        turns.waits
    };
    assert_eq!(
        (waits(100_000) > 0, waits(1_700_000)),
        (true, 0),
        "with groups close behind it does not wait"
    );
}

#[test]
fn while_nobody_writes_the_next_segment_is_zeroed_to_its_end() {
    struct Idle(u64);
    impl Pace for Idle {
        fn step(&mut self) {}
        fn ahead(&mut self) -> bool {
            self.0 += 1;
            true
        }
    }
    let options = Options { segment_bytes: 4 << 20, ..OPTIONS };
    let disk = SimulatedDisk::new(2);
    let (mut journal, _) = Journal::open(disk.clone(), options).unwrap();
    let mut idle = Idle(0);
    let request = journal.wants_segment().expect("an order");
    journal.provide(request.prepare(&disk, &mut idle));
    assert_eq!(
        (idle.0, journal.space()),
        (0, Space::Ample),
        "behind a first segment of 1 MiB it is never ahead"
    );
    for position in 1..=20 {
        journal.commit(&[record(0, position, 60_000)]).unwrap();
    }
    let request = journal.wants_segment().expect("another");
    journal.provide(request.prepare(&disk, &mut idle));
    assert_eq!(idle.0, 16 - 5, "one wait for each step of 256 KiB that is ahead");
}

#[test]
fn a_backup_of_a_journal_without_groups_opens() {
    // The first segment is shorter than others.
    let options = Options { segment_bytes: 2 << 20, ..OPTIONS };
    let disk = SimulatedDisk::new(2);
    for start in 1..=3 {
        let (mut journal, _) = Journal::open(disk.clone(), options).unwrap();
        serve(&mut journal, &disk);
        let to = SimulatedDisk::new(3);
        journal.begin_backup(&to).unwrap().finish(&to).unwrap();
        let opened = Journal::open(to, options);
        assert!(opened.is_ok(), "start {start}: {}", opened.unwrap_err());
    }
}

#[test]
fn a_segment_that_the_end_of_the_process_left_unfinished_is_not_used_as_it_is() {
    let disk = SimulatedDisk::new(2);
    let (mut journal, _) = open(&disk);
    journal.commit(&[record(0, 1, 10)]).unwrap();
    // Its space was taken, and its zeros and its header are still to come.
    let name = "0000000000000002.segment";
    disk.set_contents(name, vec![0; OPTIONS.segment_bytes as usize]);
    let (mut journal, _) = open(&disk);
    let request = journal.wants_segment().expect("an order");
    assert_eq!((request.recycle.as_deref(), disk.contents(name)), (None, None));
    journal.provide(request.prepare(&disk, &mut ()));
    for number in 2..=40 {
        journal.commit(&[record(0, number, 900)]).unwrap();
        serve(&mut journal, &disk);
    }
    assert_eq!(open(&disk).1.len(), 40);
}
