//! Indexes of complete segments: on the disk, in little memory, and created again when the disk has
//! none.

use super::damage::flipped_or_gone;
use super::service::{OPTIONS, open, payload, position, record, serve};
use crate::layout::format::{index_name, index_of};
use crate::retaining::index::INDEX_STRIDE_BYTES;
use crate::{Checkpoint, Disk, Fault, Journal, Operation, SegmentNumber, SimulatedDisk};
use bytes::Bytes;
use postroad_model::PartitionId;

const PARTITION: PartitionId = PartitionId(0);
const RECORDS: u64 = 120;
const BYTES: usize = 700;

/// Some complete segments, with records of two partitions.
fn filled() -> (SimulatedDisk, Journal<SimulatedDisk>) {
    let disk = SimulatedDisk::new(5);
    let (mut journal, _) = open(&disk);
    fill(&mut journal, &disk, 1..=RECORDS);
    (disk, journal)
}

fn fill(journal: &mut Journal<SimulatedDisk>, disk: &SimulatedDisk, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        journal.commit(&[record(0, number, BYTES), record(1, number, 20)]).unwrap();
        assert!(journal.retain(PARTITION, position(number), 1, BYTES as u64));
        serve(journal, disk);
    }
}

pub(super) fn checkpoint(journal: &mut Journal<SimulatedDisk>) {
    let state = |partition| {
        let position = journal.last_position(PartitionId(partition)).unwrap();
        Checkpoint { partition: PartitionId(partition), position, state: Bytes::from_static(b"state").into() }
    };
    journal.write_checkpoint(vec![state(0), state(1)]).unwrap();
}

fn indexes(disk: &SimulatedDisk) -> Vec<SegmentNumber> {
    let mut numbers: Vec<_> = disk.list().unwrap().iter().filter_map(|name| index_of(name)).collect();
    numbers.sort();
    numbers
}

fn complete(journal: &Journal<SimulatedDisk>) -> Vec<SegmentNumber> {
    let numbers = journal.segments().map(|segment| segment.number);
    numbers.filter(|number| *number < journal.last.segment).collect()
}

fn read_all(journal: &mut Journal<SimulatedDisk>, case: &str) {
    for number in 1..=RECORDS {
        assert_eq!(
            journal.read(PARTITION, position(number)).unwrap(),
            payload(0, number, BYTES),
            "case: {case}"
        );
        assert_eq!(
            journal.read(PartitionId(1), position(number)).unwrap(),
            payload(1, number, 20),
            "case: {case}"
        );
    }
}

#[test]
fn neither_memory_nor_a_checkpoint_grows_with_the_indexes_of_complete_segments() {
    let (disk, mut journal) = filled();
    journal.bound_indexes(2 << 10);
    let sizes = |journal: &mut Journal<SimulatedDisk>| {
        checkpoint(journal);
        let name = crate::layout::format::checkpoint_name(journal.checkpoints.last_sequence);
        let mut bytes = disk.contents(&name).unwrap();
        let end = 512 + u64::from_le_bytes(bytes[24..32].try_into().unwrap());
        bytes.truncate(end as usize);
        (journal.segments().count() as u64, journal.index_bytes(), bytes.len() as u64)
    };
    let (few, few_memory, few_bytes) = sizes(&mut journal);
    fill(&mut journal, &disk, RECORDS + 1..=10 * RECORDS);
    let (many, many_memory, many_bytes) = sizes(&mut journal);
    assert!(5 * few < many && indexes(&disk) == complete(&journal));
    // A segment takes its own entry, for each partition its range with its start, and the bytes of
    // one key.
    let per_segment = 5 * 8 + 2 * (4 + 4 + 3 * 8 + 3 * 8) + (4 + 4 + 8);
    let current = 2 * (OPTIONS.segment_bytes / INDEX_STRIDE_BYTES) * 24;
    let want = few_bytes + (many - few) * per_segment;
    assert!((want - current..=want + current).contains(&many_bytes), "{many_bytes} for {many} segments");
    let bound = (2 << 10) + current * 4;
    assert!(few_memory <= bound && many_memory <= bound, "{few_memory}, then {many_memory} bytes");
}

#[test]
fn whatever_becomes_of_an_index_every_record_is_found_and_the_index_made_anew() {
    let (source, journal) = filled();
    let complete = complete(&journal);
    assert!(3 <= complete.len());
    let name = index_name(complete[1]);
    let length = source.contents(&name).unwrap().len();
    let offsets = (0..80).step_by(8).chain((512..length).step_by(61));
    for (case, offset, disk) in flipped_or_gone(&source, &name, offsets) {
        let (mut journal, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
        assert_eq!((&recovered.damaged, &recovered.torn), (&vec![], &None), "case: {case}");
        // Indexes read at the start are known; after a checkpoint they are looked up.
        checkpoint(&mut journal);
        let (mut journal, _) = Journal::open(disk.clone(), OPTIONS).unwrap();
        // The bytes after the header that no version uses are held by its checksum as well.
        assert_eq!(journal.damaged_index(complete[1]).is_some(), offset.is_some(), "case: {case}");
        read_all(&mut journal, &case);
        assert_eq!(disk.contents(&name), source.contents(&name), "case: {case}");
    }
}

#[test]
fn an_index_of_another_segment_of_the_same_number_does_not_count() {
    let (disk, journal) = filled();
    let number = complete(&journal)[0];
    let other = SimulatedDisk::new(6);
    let (mut second, _) = open(&other);
    for at in 1..=RECORDS {
        second.commit(&[record(0, at, 3 * BYTES)]).unwrap();
        serve(&mut second, &other);
    }
    disk.set_contents(&index_name(number), other.contents(&index_name(number)).unwrap());
    let (mut journal, _) = Journal::open(disk.clone(), OPTIONS).unwrap();
    checkpoint(&mut journal);
    let (mut journal, _) = Journal::open(disk, OPTIONS).unwrap();
    read_all(&mut journal, "of another journal");
}

#[test]
fn an_index_that_cannot_be_written_stays_in_memory_until_the_next_segment() {
    let disk = SimulatedDisk::new(5);
    let (mut journal, _) = open(&disk);
    let leave_one = |journal: &mut Journal<SimulatedDisk>| {
        let before = journal.last.segment.max(SegmentNumber::FIRST);
        while journal.last.segment <= before {
            let number = journal.last_position(PARTITION).map_or(1, |last| last.get() + 1);
            journal.commit(&[record(0, number, BYTES)]).unwrap();
        }
    };
    leave_one(&mut journal);
    disk.fail(Operation::Write, 0, Fault::Full);
    let request = journal.wants_index().unwrap();
    assert!(journal.finish_index(request.write(&disk)).is_err());
    assert_eq!((indexes(&disk), journal.wants_index().is_none()), (vec![], true));
    leave_one(&mut journal);
    for _ in 0..2 {
        let request = journal.wants_index().unwrap();
        journal.finish_index(request.write(&disk)).unwrap();
    }
    assert_eq!((indexes(&disk), journal.wants_index().is_none()), (complete(&journal), true));
}

#[test]
fn an_index_goes_with_its_segment() {
    let (disk, mut journal) = filled();
    for number in 1..=RECORDS {
        assert!(journal.release(PARTITION, position(number), 0, BYTES as u64));
    }
    (0..2).for_each(|_| checkpoint(&mut journal));
    journal.wants_removal().unwrap().run(&disk);
    assert_eq!((complete(&journal), indexes(&disk)), (vec![], vec![]));
    // One left by a crash has no reference.
    disk.set_contents(&index_name(SegmentNumber(99)), vec![1; 600]);
    let (mut journal, _) = Journal::open(disk.clone(), OPTIONS).unwrap();
    journal.wants_removal().unwrap().run(&disk);
    assert_eq!(indexes(&disk), vec![]);
}

#[test]
fn an_index_that_was_made_for_a_segment_that_is_gone_goes_as_well() {
    let (disk, mut journal) = filled();
    let first = complete(&journal)[0];
    checkpoint(&mut journal);
    let (mut journal, _) = open(&disk);
    disk.remove(&index_name(first)).unwrap();
    let request = journal.near_request(PARTITION, position(1), None).unwrap().expect("a request");
    for number in 1..=RECORDS {
        assert!(journal.release(PARTITION, position(number), 0, BYTES as u64));
    }
    (0..3).for_each(|_| checkpoint(&mut journal));
    journal.wants_removal().expect("indexes of segments that are gone").run(&disk);
    let read = request.run(&disk);
    assert!(indexes(&disk).contains(&first), "whoever reads makes it");
    journal.keep_index(read.index.expect("an index"));
    journal.wants_removal().expect("an index of nothing").run(&disk);
    assert_eq!(indexes(&disk), []);
}
