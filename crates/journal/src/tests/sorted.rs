//! Sorted copies of segments: reads of them agree with the segment, in any state of the copy.

use super::damage::flipped_or_gone;
use super::index::checkpoint;
use super::service::{OPTIONS, open, payload, position, read_near, record, row, serve};
use crate::layout::format::sorted_of;
use crate::{Disk, Fault, Journal, Operation, SegmentNumber, SimulatedDisk};
use postroad_model::{PartitionId, Position};

const PARTITION: PartitionId = PartitionId(0);
const RECORDS: u64 = 120;
const BYTES: usize = 700;

/// Less than a segment has.
const HELD_BYTES: u64 = 8 << 10;

/// Records come in turns for eight addresses: see [`payload`].
fn sort_key(payload: &[u8]) -> u32 {
    u32::from(payload.first().copied().unwrap_or(0) % 8)
}

fn fill(journal: &mut Journal<SimulatedDisk>, disk: &SimulatedDisk, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        journal.commit(&[record(0, number, BYTES), record(1, number, 20)]).unwrap();
        assert!(journal.retain(PARTITION, position(number), 1, BYTES as u64));
        serve(journal, disk);
    }
}

/// A backlog, of which every segment has the copy that it is to have.
fn sorted(by: fn(&[u8]) -> u32) -> (SimulatedDisk, Journal<SimulatedDisk>) {
    let disk = SimulatedDisk::new(5);
    let (mut journal, _) = open(&disk);
    journal.sort_by(by, HELD_BYTES);
    fill(&mut journal, &disk, 1..=RECORDS);
    sort(&mut journal, &disk);
    (disk, journal)
}

fn sort(journal: &mut Journal<SimulatedDisk>, disk: &SimulatedDisk) {
    while let Some(request) = journal.wants_sorting() {
        journal.finish_sorting(request.run(disk, &mut ())).unwrap();
    }
}

fn copies(disk: &SimulatedDisk) -> Vec<SegmentNumber> {
    let mut numbers: Vec<_> = disk.list().unwrap().iter().filter_map(|name| sorted_of(name)).collect();
    numbers.sort();
    numbers.into_iter().map(|(number, _)| number).collect()
}

/// The size of each of them.
fn copy_bytes(disk: &SimulatedDisk) -> Vec<u64> {
    let mut names: Vec<String> =
        disk.list().unwrap().into_iter().filter(|name| sorted_of(name).is_some()).collect();
    names.sort();
    names.iter().map(|name| disk.contents(name).unwrap().len() as u64).collect()
}

fn numbers(journal: &Journal<SimulatedDisk>) -> Vec<SegmentNumber> {
    journal.segments().map(|segment| segment.number).collect()
}

/// Reads the records of one address one after the other, and checks them.
fn read_all(journal: &mut Journal<SimulatedDisk>, case: &str) {
    for address in 0..8 {
        let of_address = (1..=RECORDS).filter(|number| sort_key(&payload(0, *number, 1)) == address);
        let wanted: Vec<(PartitionId, Position)> =
            of_address.map(|number| (PARTITION, position(number))).collect();
        let (_, mut got) = read_near(journal, &wanted);
        got.sort_by_key(|(at, _)| *at);
        let want: Vec<_> = wanted.iter().map(|(_, at)| (*at, Ok(payload(0, at.get(), BYTES)))).collect();
        assert_eq!(got, want, "case: {case}, address {address}");
    }
}

#[test]
fn a_backlog_of_many_addresses_gets_copies_and_is_read_from_them() {
    let (disk, mut journal) = sorted(sort_key);
    let all = numbers(&journal);
    let old = &all[..all.len() - 1];
    assert!(3 <= old.len());
    assert_eq!(copies(&disk), old, "all but the one that is filled");
    read_all(&mut journal, "of this run");
    // The segment itself is not looked at.
    let wanted = [(PARTITION, position(1)), (PARTITION, position(9))];
    let file = crate::layout::format::segment_name(all[0]);
    let mut bytes = disk.contents(&file).unwrap();
    bytes[512..].fill(0);
    disk.set_contents(&file, bytes);
    let want = [1, 9].map(|number| (position(number), Ok(payload(0, number, BYTES))));
    assert_eq!(read_near(&mut journal, &wanted), (1, want.to_vec()));
}

#[test]
fn copies_are_late_while_five_segments_or_more_want_one() {
    let disk = SimulatedDisk::new(5);
    let (mut journal, _) = open(&disk);
    journal.sort_by(sort_key, HELD_BYTES);
    fill(&mut journal, &disk, 1..=3 * RECORDS);
    let left = numbers(&journal).len() - 1;
    let mut late = Vec::new();
    while let Some(request) = journal.wants_sorting() {
        late.push(request.is_late());
        journal.finish_sorting(request.run(&disk, &mut ())).unwrap();
    }
    assert!(6 <= left);
    let want: Vec<bool> = (1..=left).rev().map(|waiting| 5 <= waiting).collect();
    assert_eq!(late, want);
}

#[test]
fn whichever_records_of_a_row_are_wanted_they_are_read_from_the_copy() {
    let bytes = |number: u64| 1 + number as usize * 613 % 2_000;
    let disk = SimulatedDisk::new(5);
    let (mut journal, _) = open(&disk);
    journal.sort_by(sort_key, HELD_BYTES);
    for number in 1..=RECORDS {
        journal.commit(&[record(0, number, bytes(number)), record(1, number, 20)]).unwrap();
        assert!(journal.retain(PARTITION, position(number), 1, bytes(number) as u64));
        serve(&mut journal, &disk);
    }
    sort(&mut journal, &disk);
    let last = journal.segments().map(|segment| segment.number).max();
    for number in copies(&disk) {
        assert_ne!(Some(number), last);
        let name = crate::layout::format::segment_name(number);
        let mut bytes = disk.contents(&name).unwrap();
        bytes[512..].fill(0);
        disk.set_contents(&name, bytes);
    }
    for step in [1, 2, 3, 8, 16, 24, 40] {
        for first in 1..=8 {
            let in_copies = |number: &u64| journal.sorted_copy(PARTITION, position(*number)).is_some();
            let wanted: Vec<u64> = (first..=RECORDS).step_by(step).filter(in_copies).collect();
            let keys: Vec<_> = wanted.iter().map(|number| (PARTITION, position(*number))).collect();
            let (_, mut got) = read_near(&mut journal, &keys);
            got.sort_by_key(|(at, _)| *at);
            let want =
                wanted.iter().map(|number| (position(*number), Ok(payload(0, *number, bytes(*number)))));
            assert_eq!(got, want.collect::<Vec<_>>(), "every {step} from {first} on");
        }
    }
}

const IN_GROUP: u64 = 160;

fn small(number: u64) -> usize {
    30 + number as usize % 7
}

/// A backlog of small records, of this journal, with its copies.
fn sorted_small(disk: &SimulatedDisk, by: fn(&[u8]) -> u32, held_bytes: u64) -> Journal<SimulatedDisk> {
    let (mut journal, _) = open(disk);
    journal.sort_by(by, held_bytes);
    for group in 0..8 {
        let numbers = 1 + group * IN_GROUP..=(group + 1) * IN_GROUP;
        let records: Vec<_> = numbers.clone().map(|number| record(0, number, small(number))).collect();
        journal.commit(&records).unwrap();
        for number in numbers {
            assert!(journal.retain(PARTITION, position(number), 1, small(number) as u64));
        }
        serve(&mut journal, disk);
    }
    sort(&mut journal, disk);
    journal
}

/// With more addresses than can be held in memory: their payloads are found one by one.
#[test]
fn of_very_many_addresses_each_has_its_row() {
    let disk = SimulatedDisk::new(5);
    let mut journal = sorted_small(&disk, |payload| u32::from(payload[0]) % 150, HELD_BYTES);
    let first = copies(&disk)[0];
    let name = crate::layout::format::segment_name(first);
    let mut contents = disk.contents(&name).unwrap();
    contents[512..].fill(0);
    disk.set_contents(&name, contents);
    let wanted: Vec<_> = (1..=IN_GROUP).map(|number| (PARTITION, position(number))).collect();
    let (_, mut got) = read_near(&mut journal, &wanted);
    got.sort_by_key(|(at, _)| *at);
    let want = wanted.iter().map(|(_, at)| (*at, Ok(payload(0, at.get(), small(at.get())))));
    assert_eq!(got, want.collect::<Vec<_>>());
}

/// With any limit of memory: an address has one row in a segment.
#[test]
fn each_address_has_one_row_of_a_segment_sorted_in_several_chunks() {
    for held_bytes in [4 << 10, 1 << 20] {
        let disk = SimulatedDisk::new(5);
        let mut journal = sorted_small(&disk, sort_key, held_bytes);
        let (mut rows, mut records) = (0, 0);
        for address in 0..8 {
            let (mut end, mut segment) = (0, None);
            for number in (1..=8 * IN_GROUP).filter(|number| sort_key(&payload(0, *number, 1)) == address) {
                let Some(copy) = journal.sorted_copy(PARTITION, position(number)) else { continue };
                let bundle = copy.place(PARTITION, position(number)).expect("every record is live").bundle;
                let is_other = segment.replace(copy.segment.number) != Some(copy.segment.number);
                rows += u32::from(is_other || ![bundle.start, bundle.end].contains(&end));
                records += 1;
                end = bundle.end;
            }
        }
        let segments = copies(&disk).len() as u32;
        assert!(segments > 1 && records > 100 * segments, "{records} records of {segments} segments");
        assert_eq!(rows, 8 * segments, "{held_bytes} bytes at a time");
    }
}

#[test]
fn nothing_is_copied_that_lies_in_order_or_is_mostly_gone() {
    let few: fn(&[u8]) -> u32 = |payload| sort_key(payload) % 3;
    for (case, by, live) in [("few addresses", few, true), ("mostly gone", sort_key, false)] {
        let disk = SimulatedDisk::new(5);
        let (mut journal, _) = open(&disk);
        journal.sort_by(by, HELD_BYTES);
        fill(&mut journal, &disk, 1..=RECORDS);
        for number in (1..=RECORDS).filter(|number| !live && number % 3 != 0) {
            assert!(journal.release(PARTITION, position(number), 0, BYTES as u64));
        }
        sort(&mut journal, &disk);
        assert_eq!(copies(&disk), [], "case: {case}");
    }
}

#[test]
fn whatever_becomes_of_a_copy_every_record_is_read() {
    let (source, mut journal) = sorted(sort_key);
    checkpoint(&mut journal);
    let names = source.list().unwrap();
    let name = names.into_iter().filter(|name| sorted_of(name).is_some()).min().unwrap();
    let length = source.contents(&name).unwrap().len();
    let offsets = (0..64).step_by(8).chain((512..length).step_by(487));
    for (case, _, disk) in flipped_or_gone(&source, &name, offsets) {
        let (mut journal, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
        assert_eq!((&recovered.damaged, &recovered.torn), (&vec![], &None), "case: {case}");
        read_all(&mut journal, &case);
    }
    let half = source.contents(&name).unwrap()[..length / 2].to_vec();
    source.set_contents(&name, half);
    let (mut journal, _) = open(&source);
    read_all(&mut journal, "cut off");
}

#[test]
fn a_copy_goes_with_its_segment() {
    let (disk, mut journal) = sorted(sort_key);
    let before = copies(&disk);
    checkpoint(&mut journal);
    for number in 1..=RECORDS {
        assert!(journal.release(PARTITION, position(number), 0, BYTES as u64));
    }
    (0..2).for_each(|_| checkpoint(&mut journal));
    journal.wants_removal().expect("files of segments that are gone").run(&disk);
    assert!(!before.is_empty());
    assert_eq!(copies(&disk), []);
}

#[test]
fn a_start_keeps_copies_of_segments_that_are_there_and_removes_others() {
    let (disk, mut journal) = sorted(sort_key);
    checkpoint(&mut journal);
    let before = copies(&disk);
    let any = disk.list().unwrap().into_iter().find(|name| sorted_of(name).is_some()).unwrap();
    let bytes = disk.contents(&any).unwrap();
    for other in ["00000000000000ff-0000000000000001.sorted", "0000000000000001-00000000000000ff.sorted"] {
        disk.set_contents(other, bytes.clone());
    }
    let (mut journal, _) = open(&disk);
    journal.wants_removal().expect("copies of nothing").run(&disk);
    assert_eq!(copies(&disk), before);
    journal.sort_by(sort_key, HELD_BYTES);
    assert!(journal.wants_sorting().is_none(), "what is live is not known yet");
    assert_eq!(journal.recount(PARTITION, (1..=RECORDS).map(|number| row(position(number), 700))), 0);
    sort(&mut journal, &disk);
    assert_eq!(copies(&disk), before);
    read_all(&mut journal, "after a start");
}

#[test]
fn a_disk_without_room_gets_no_copies_and_loses_the_newest_that_it_has() {
    let (disk, mut journal) = sorted(sort_key);
    let before = copies(&disk);
    let used = |disk: &SimulatedDisk| -> u64 {
        let names = disk.list().unwrap();
        names.iter().map(|name| disk.contents(name).unwrap().len() as u64).sum()
    };
    disk.set_capacity(Some(used(&disk) + OPTIONS.segment_bytes * 11));
    let mut number = RECORDS;
    let mut commit = |journal: &mut Journal<SimulatedDisk>| {
        number += 1;
        let committed = journal.commit(&[record(0, number, BYTES), record(1, number, 20)]).is_ok();
        committed && journal.retain(PARTITION, position(number), 1, BYTES as u64)
    };
    (0..80).for_each(|_| assert!(commit(&mut journal)));
    sort(&mut journal, &disk);
    assert_eq!(copies(&disk), before, "what is to come needs the room");
    disk.set_capacity(None);
    (0..16).for_each(|_| assert!(commit(&mut journal)));
    sort(&mut journal, &disk);
    let all = numbers(&journal);
    assert_eq!(copies(&disk), all[..all.len() - 1], "with room there is one of each");
    // Room for less than eight is left, and nothing was refused yet: the size of the last two and a
    // byte of the one before are missing.
    let [.., third, second, first] = copy_bytes(&disk)[..] else { panic!("three and more") };
    assert!(0 < third && first + second < OPTIONS.segment_bytes * 8);
    disk.set_capacity(Some(used(&disk) + OPTIONS.segment_bytes * 8 - first - second - 1));
    journal.take_stock();
    journal.wants_removal().expect("room").run(&disk);
    assert_eq!(copies(&disk), all[..all.len() - 1 - 3], "the newest make room, as many as that takes");
    sort(&mut journal, &disk);
    assert_eq!(copies(&disk), all[..all.len() - 1 - 3], "and do not come back there");
    assert!(journal.wants_removal().is_none(), "nor do others go");
    read_all(&mut journal, "without the newest");
    disk.set_capacity(Some(0));
    while commit(&mut journal) {}
    assert!(copy_bytes(&disk).iter().sum::<u64>() < OPTIONS.segment_bytes * 8);
    let refused = journal.wants_segment().expect("an order").prepare(&disk, &mut ());
    journal.provide(refused);
    journal.wants_removal().expect("room").run(&disk);
    assert_eq!(copies(&disk), [], "one refused makes room for all eight");
    read_all(&mut journal, "without more of them");
    disk.set_capacity(None);
    serve(&mut journal, &disk);
    sort(&mut journal, &disk);
    let all = numbers(&journal);
    assert_eq!(copies(&disk), all[..all.len() - 1], "with room they come back");
    read_all(&mut journal, "with copies again");
}

#[test]
fn a_copy_that_cannot_be_written_leaves_nothing() {
    let disk = SimulatedDisk::new(5);
    let (mut journal, _) = open(&disk);
    journal.sort_by(sort_key, HELD_BYTES);
    fill(&mut journal, &disk, 1..=RECORDS);
    let request = journal.wants_sorting().expect("an order");
    disk.fail(Operation::Write, 0, Fault::Broken);
    let answer = request.run(&disk, &mut ());
    disk.clear_faults();
    assert!(journal.finish_sorting(answer).is_err(), "it is told");
    assert_eq!(copies(&disk), []);
    read_all(&mut journal, "without copies");
}

#[test]
fn a_copy_that_the_end_of_the_process_left_unfinished_is_made_anew() {
    let (disk, mut journal) = sorted(sort_key);
    checkpoint(&mut journal);
    let names = disk.list().unwrap().into_iter().filter(|name| sorted_of(name).is_some());
    let whole: Vec<_> = names.map(|name| (disk.contents(&name).unwrap(), name)).collect();
    let unfinished = disk.copy();
    let (bytes, name) = &whole[0];
    // The header is written last.
    let half = [&[0; 512], &bytes[512..bytes.len() / 2]].concat();
    unfinished.set_contents(name, half);
    for (case, by, want) in
        [("of use", sort_key as fn(&[u8]) -> u32, Some(bytes)), ("of no use", |_| 0, None)]
    {
        let disk = unfinished.copy();
        let (mut journal, _) = open(&disk);
        journal.sort_by(by, HELD_BYTES);
        assert_eq!(journal.recount(PARTITION, (1..=RECORDS).map(|number| row(position(number), 700))), 0);
        read_all(&mut journal, case);
        sort(&mut journal, &disk);
        assert!(disk.contents(name).as_ref() == want, "case: {case}");
        for (bytes, name) in &whole[1..] {
            assert!(disk.contents(name).as_ref() == Some(bytes), "case: {case}: {name} is left alone");
        }
        // Not through the handle on the former file.
        let read = read_near(&mut journal, &[(PARTITION, position(1))]).1;
        assert_eq!(read, [(position(1), Ok(payload(0, 1, BYTES)))], "case: {case}");
        let copy = journal.sorted_copy(PARTITION, position(1));
        assert_eq!(copy.is_some(), want.is_some(), "case: {case}");
    }
}
