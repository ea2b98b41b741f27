//! Compaction: disk space, readability of records, and damaged or newer files.

use super::service::{OPTIONS, open, payload, position, record, row, serve};
use crate::{
    Checkpoint, CompactionError, DamageKind, Disk, FORMAT_VERSION, Fault, Journal, OpenError, Operation,
    Options, Pace, ReadError, SegmentUse, SimulatedDisk,
};
use bytes::Bytes;
use postroad_model::{MessageRow, PartitionId};

pub(super) const PARTITION: PartitionId = PartitionId(0);

/// Of this number of records one stays.
const KEPT_EVERY: u64 = 40;

fn state(number: u64) -> Checkpoint {
    Checkpoint {
        partition: PARTITION,
        position: position(number),
        state: Bytes::from(number.to_string()).into(),
    }
}

/// Commits records of 1000 bytes, of which nearly all are released at once, and does everything the
/// journal wants.
pub(super) fn pass_through(
    journal: &mut Journal<SimulatedDisk>,
    disk: &SimulatedDisk,
    numbers: std::ops::RangeInclusive<u64>,
) {
    for number in numbers {
        journal.commit(&[record(0, number, 1000)]).unwrap();
        assert!(journal.retain(PARTITION, position(number), 1, 1000));
        if number % KEPT_EVERY != 0 {
            assert!(journal.release(PARTITION, position(number), 0, 1000));
        }
        keep_up(journal, disk, number);
    }
}

fn keep_up(journal: &mut Journal<SimulatedDisk>, disk: &SimulatedDisk, number: u64) {
    serve(journal, disk);
    if journal.checkpoint_due() {
        journal.write_checkpoint(vec![state(number)]).unwrap();
    }
    while let Some(request) = journal.wants_compaction() {
        let done = request.run(disk, &mut ());
        journal.finish_compaction(done).unwrap();
    }
    if let Some(removal) = journal.wants_removal() {
        removal.run(disk);
    }
}

fn compacted(journal: &Journal<SimulatedDisk>) -> Vec<SegmentUse> {
    journal.segments().filter(|segment| segment.compacted_from.is_some()).collect()
}

pub(super) fn kept(through: u64) -> impl Iterator<Item = u64> {
    (1..=through).filter(|number| number % KEPT_EVERY == 0)
}

/// Bytes of all files but checkpoints.
fn taken(disk: &SimulatedDisk) -> u64 {
    let names = disk.list().unwrap().into_iter().filter(|name| !name.contains("checkpoint"));
    names.map(|name| disk.contents(&name).unwrap().len() as u64).sum()
}

#[test]
fn one_unconsumed_message_in_each_segment_costs_twice_its_bytes_and_a_fixed_reserve() {
    let disk = SimulatedDisk::new(8);
    let (mut journal, _) = open(&disk);
    // Segments that wait for two checkpoints, and the current, the spare and the dead segments.
    let reserve = 3 * OPTIONS.checkpoint_bytes + 4 * OPTIONS.segment_bytes;
    for through in [1000, 2000, 4000_u64] {
        let first = journal.last_position(PARTITION).map_or(1, |last| last.get() + 1);
        pass_through(&mut journal, &disk, first..=through);
        let live = kept(through).count() as u64 * 1000;
        let taken = taken(&disk);
        assert!(taken <= 2 * live + reserve, "{taken} bytes for {live} live ones after {through} records");
        for number in kept(through) {
            assert_eq!(journal.read(PARTITION, position(number)).unwrap(), payload(0, number, 1000));
        }
    }
    assert!(!compacted(&journal).is_empty());
    disk.crash();
    let (mut journal, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
    assert_eq!(recovered.damaged, vec![]);
    assert_eq!(journal.recount(PARTITION, kept(4000).map(|number| row(position(number), 1000))), 0);
    for number in kept(4000) {
        assert_eq!(journal.read(PARTITION, position(number)).unwrap(), payload(0, number, 1000));
    }
    // The search for one that was left out must not end at the next that was not.
    let missing = [1, 39, 41, 799].map(|number| journal.read(PARTITION, position(number)));
    assert!(missing.iter().all(|read| matches!(read, Err(ReadError::NotFound { .. }))), "{missing:?}");
    // When the last of them goes, so do the files.
    kept(4000).for_each(|number| assert!(journal.release(PARTITION, position(number), 0, 1000)));
    pass_through(&mut journal, &disk, 4001..=4039);
    for _ in 0..2 {
        journal.write_checkpoint(vec![state(4039)]).unwrap();
    }
    keep_up(&mut journal, &disk, 4039);
    assert_eq!(compacted(&journal), vec![]);
    assert!(disk.list().unwrap().iter().all(|name| !name.ends_with(".compacted")));
}

/// Whether a record stays: of those at first and at last one in forty, between them all.
fn stays(number: u64) -> bool {
    number.is_multiple_of(KEPT_EVERY) || (100..150).contains(&number)
}

/// Commits records, and does all that the journal wants but compaction.
fn fill(journal: &mut Journal<SimulatedDisk>, disk: &SimulatedDisk, numbers: std::ops::RangeInclusive<u64>) {
    for number in numbers {
        journal.commit(&[record(0, number, 1000)]).unwrap();
        assert!(journal.retain(PARTITION, position(number), 1, 1000));
        if !stays(number) {
            assert!(journal.release(PARTITION, position(number), 0, 1000));
        }
        serve(journal, disk);
        if journal.checkpoint_due() {
            journal.write_checkpoint(vec![state(number)]).unwrap();
        }
    }
}

#[test]
fn neighbours_of_a_segment_that_is_gone_are_compacted_without_it() {
    for is_open in [true, false] {
        let disk = SimulatedDisk::new(14);
        let (mut journal, _) = open(&disk);
        for number in 1..=400 {
            journal.commit(&[record(0, number, 1000)]).unwrap();
            assert!(journal.retain(PARTITION, position(number), 1, 1000));
            serve(&mut journal, &disk);
        }
        for number in (1..=400).filter(|number| number % KEPT_EVERY != 0) {
            assert!(journal.release(PARTITION, position(number), 0, 1000));
        }
        journal.write_checkpoint(vec![state(400)]).unwrap();
        let gone = journal.segments.find(PARTITION, position(200)).unwrap().header.number;
        disk.remove(&crate::layout::format::segment_name(gone)).unwrap();
        if !is_open {
            let recovered;
            (journal, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
            assert_eq!(recovered.lost.len(), 1);
            assert_eq!(journal.recount(PARTITION, kept(400).map(|number| row(position(number), 1000))), 0);
        }
        for _ in 0..8 {
            journal.write_checkpoint(vec![state(400)]).unwrap();
            keep_up(&mut journal, &disk, 400);
        }
        let left: Vec<SegmentUse> = journal.segments().collect();
        let taken: u64 = left.iter().filter(|segment| segment.number != gone).map(|one| one.file_bytes).sum();
        assert!(taken < 4 * OPTIONS.segment_bytes, "open: {is_open}: {left:?}");
        assert!(left.iter().any(|segment| segment.number == gone), "it may be put back");
        for number in kept(400) {
            match journal.read(PARTITION, position(number)) {
                Ok(got) => assert_eq!(got, payload(0, number, 1000), "open: {is_open}"),
                Err(ReadError::Damaged(damage)) => assert_eq!(damage.kind, DamageKind::SegmentMissing),
                Err(error) => panic!("open: {is_open}, record {number}: {error}"),
            }
        }
    }
}

#[test]
fn a_power_cut_gives_no_name_to_what_an_earlier_attempt_has_left() {
    for (seed, synced) in (0..200).flat_map(|seed| [(seed, 0), (seed, 1)]) {
        let disk = SimulatedDisk::new(seed);
        let (mut journal, _) = open(&disk);
        fill(&mut journal, &disk, 1..=250);
        while let Some(request) = journal.wants_compaction() {
            journal.finish_compaction(request.run(&disk, &mut ())).unwrap();
        }
        fill(&mut journal, &disk, 251..=350);
        let failing = journal.wants_compaction().expect("segments with little in them");
        disk.fail(Operation::Write, 0, Fault::Broken);
        journal.finish_compaction(failing.run(&disk, &mut ())).unwrap_err();
        let request = journal.wants_compaction().expect("others behind those with more");
        disk.fail(Operation::SyncDirectory, synced, Fault::Broken);
        let _ = request.run(&disk, &mut ());
        disk.crash();
        disk.clear_faults();
        let (mut journal, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
        assert_eq!(recovered.damaged, vec![], "seed {seed}");
        let live = || (1..=350).filter(|number| stays(*number));
        assert_eq!(journal.recount(PARTITION, live().map(|number| row(position(number), 1000))), 0);
        for number in live() {
            assert_eq!(journal.read(PARTITION, position(number)).unwrap(), payload(0, number, 1000));
        }
    }
}

#[test]
fn while_the_disk_is_short_of_space_starts_that_are_cut_off_compact_all_the_same() {
    const SIZE: u64 = 32 << 10;
    let options = Options { segment_bytes: 1 << 20, checkpoint_bytes: 1 << 40, ..OPTIONS };
    let disk = SimulatedDisk::new(12);
    let (mut journal, _) = Journal::open(disk.clone(), options).unwrap();
    for number in 1..=400 {
        journal.commit(&[record(0, number, SIZE as usize)]).unwrap();
        assert!(journal.retain(PARTITION, position(number), 1, SIZE));
        if number % KEPT_EVERY != 0 {
            assert!(journal.release(PARTITION, position(number), 0, SIZE));
        }
        serve(&mut journal, &disk);
        if number <= 2 {
            journal.write_checkpoint(vec![state(number)]).unwrap();
        }
    }
    let mut taken = disk.used_bytes();
    disk.set_capacity(Some(taken + 2 * options.segment_bytes));
    // Twice that gain is enough: the disk is short of space no more.
    for (start, looks, gain) in [("first", true, 5 << 19), ("second", true, 5 << 19), ("third", false, 0)] {
        disk.crash();
        let (mut journal, _) = Journal::open(disk.clone(), options).unwrap();
        assert_eq!(journal.recount(PARTITION, kept(400).map(|number| row(position(number), SIZE))), 0);
        journal.take_stock();
        let mut checkpoints = 0;
        while journal.checkpoint_due() {
            journal.write_checkpoint(vec![state(400)]).unwrap();
            checkpoints += 1;
        }
        assert_eq!((1..=2).contains(&checkpoints), looks, "{checkpoints} checkpoints at the {start} start");
        // The power fails after one step.
        if let Some(request) = journal.wants_compaction() {
            journal.finish_compaction(request.run(&disk, &mut Restless)).unwrap();
        }
        if let Some(removal) = journal.wants_removal() {
            removal.run(&disk);
        }
        let left = disk.used_bytes();
        assert!(gain == 0 || left + gain <= taken, "{taken} bytes before the {start} start, {left} after it");
        taken = left;
    }
}

/// No step rests.
struct Restless;

impl Pace for Restless {
    fn step(&mut self) {
        panic!("there is no time for a rest");
    }

    fn ahead(&mut self) -> bool {
        false
    }
}

/// A directory with one compacted segment, and its name.
fn with_a_compacted_segment() -> (SimulatedDisk, String) {
    let disk = SimulatedDisk::new(9);
    let (mut journal, _) = open(&disk);
    pass_through(&mut journal, &disk, 1..=200);
    let name = disk.list().unwrap().into_iter().find(|name| name.ends_with(".compacted")).expect("compacted");
    (disk.copy(), name)
}

#[test]
fn whatever_byte_of_a_compacted_segment_is_flipped_at_most_one_payload_is_lost() {
    let (source, name) = with_a_compacted_segment();
    let length = source.contents(&name).unwrap().len();
    for offset in 0..length {
        let disk = source.copy();
        let mut bytes = disk.contents(&name).unwrap();
        bytes[offset] ^= 0x10;
        disk.set_contents(&name, bytes);
        let (mut journal, recovered) = match Journal::open(disk, OPTIONS) {
            Ok(opened) => opened,
            Err(error) => panic!("byte {offset}: {error}"),
        };
        assert_eq!(recovered.damaged, vec![], "byte {offset}: no partition is stopped");
        assert_eq!(recovered.lost, vec![], "byte {offset}: header and index stand in for one another");
        let mut lost = 0;
        for number in kept(200) {
            match journal.read(PARTITION, position(number)) {
                Ok(got) => assert_eq!(got, payload(0, number, 1000), "byte {offset}, record {number}"),
                Err(ReadError::Damaged(told)) => {
                    assert_eq!(told.file.to_str(), Some(&*name), "byte {offset}, record {number}");
                    lost += 1;
                }
                Err(other) => panic!("byte {offset}, record {number} is not told as damaged: {other}"),
            }
        }
        assert!(lost <= 1, "byte {offset}: {lost} records are lost");
    }
}

fn flip(disk: &SimulatedDisk, name: &str, offset: usize) {
    let mut bytes = disk.contents(name).unwrap();
    bytes[offset] ^= 0x10;
    disk.set_contents(name, bytes);
}

#[test]
fn what_a_checkpoint_says_of_a_compacted_segment_stands_in_for_its_header_and_index() {
    let (source, name) = with_a_compacted_segment();
    let (mut journal, _) = Journal::open(source.clone(), OPTIONS).unwrap();
    assert_eq!(journal.recount(PARTITION, kept(200).map(|number| row(position(number), 1000))), 0);
    let number = compacted(&journal)[0].number;
    journal.write_checkpoint(vec![state(200)]).unwrap();
    let walked = |journal: &Journal<SimulatedDisk>| {
        journal.walk(number).unwrap().expect("a segment").run(&mut (), &mut |_| ()).unwrap()
    };
    assert_eq!(walked(&journal), []);
    let (length, end) =
        (source.contents(&name).unwrap().len(), 512 + compacted(&journal)[0].used_bytes as usize);
    // Every byte that says something: the rest of the sector is in its checksum.
    for offset in (0..80).chain([511]).chain(end..length) {
        let disk = source.copy();
        flip(&disk, &name, offset);
        if (8..12).contains(&offset) && Journal::open(disk.clone(), OPTIONS).is_err() {
            continue;
        }
        let (mut journal, recovered) = Journal::open(disk, OPTIONS).unwrap();
        assert_eq!(recovered.damaged, vec![], "byte {offset}");
        assert_eq!(journal.recount(PARTITION, kept(200).map(|number| row(position(number), 1000))), 0);
        for number in kept(200) {
            assert_eq!(
                journal.read(PARTITION, position(number)).unwrap(),
                payload(0, number, 1000),
                "byte {offset}"
            );
        }
        let told = walked(&journal);
        assert_eq!(
            told.iter().map(|damage| (damage.offset, damage.kind)).collect::<Vec<_>>(),
            [(0, DamageKind::SegmentHeader)],
            "byte {offset}"
        );
    }
}

#[test]
fn a_damaged_file_is_listed_and_stays_however_often_the_journal_starts() {
    let (source, name) = with_a_compacted_segment();
    let whole = source.contents(&name).unwrap();
    let mut both = whole.clone();
    both[20] ^= 0x10;
    both[whole.len() - 60..].fill(0);
    for damaged in [both, whole[..whole.len() / 2].to_vec(), vec![0; whole.len()], Vec::new()] {
        let disk = source.copy();
        disk.set_contents(&name, damaged);
        for start in 0..4 {
            let (mut journal, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
            assert_eq!(recovered.damaged, vec![], "start {start}: no partition is stopped");
            let damage = &recovered.lost.first().expect("its messages are told").damage;
            assert_eq!(
                (damage.file.to_str(), damage.kind),
                (Some(&*name), DamageKind::SegmentHeader),
                "start {start}"
            );
            for _ in 0..3 {
                journal.write_checkpoint(vec![state(200)]).unwrap();
                if let Some(removal) = journal.wants_removal() {
                    removal.run(&disk);
                }
            }
        }
        disk.set_contents(&name, whole.clone());
        let (mut journal, recovered) = Journal::open(disk, OPTIONS).unwrap();
        assert_eq!((recovered.damaged, recovered.lost), (vec![], vec![]), "it is whole again");
        assert_eq!(journal.recount(PARTITION, kept(200).map(|number| row(position(number), 1000))), 0);
        for number in kept(200) {
            assert_eq!(journal.read(PARTITION, position(number)).unwrap(), payload(0, number, 1000));
        }
    }
}

#[test]
fn a_damaged_compacted_segment_counts_for_nothing_while_all_that_it_was_made_of_is_there() {
    let source = SimulatedDisk::new(11);
    let (mut journal, _) = open(&source);
    for number in 1..=60 {
        journal.commit(&[record(0, number, 1000)]).unwrap();
        assert!(journal.retain(PARTITION, position(number), 1, 1000));
        serve(&mut journal, &source);
    }
    for number in (1..=59).filter(|number| number % 5 != 0) {
        assert!(journal.release(PARTITION, position(number), 0, 1000));
    }
    for _ in 0..2 {
        journal.write_checkpoint(vec![state(60)]).unwrap();
    }
    // The process ends before it takes the new file in.
    let made = journal.wants_compaction().expect("an order").run(&source, &mut ()).unwrap();
    drop((journal, made));
    let name =
        source.list().unwrap().into_iter().find(|name| name.ends_with(".compacted")).expect("compacted");
    let length = source.contents(&name).unwrap().len();
    for (case, bytes) in [
        ("empty", Vec::new()),
        ("header", vec![0; length]),
        ("index", source.contents(&name).unwrap()[..length - 512].to_vec()),
    ] {
        let disk = source.copy();
        disk.set_contents(&name, bytes);
        for start in ["first", "second"] {
            let (mut journal, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
            assert_eq!(recovered.damaged, vec![], "{case}, {start} start");
            for number in (5..=60).step_by(5) {
                let read = journal.read(PARTITION, position(number)).unwrap();
                assert_eq!(read, payload(0, number, 1000), "{case}, {start} start, record {number}");
            }
            journal.wants_removal().expect("what is damaged").run(&disk);
            assert!(disk.contents(&name).is_none(), "{case}, {start} start");
            disk.set_contents(&name, vec![1; 600]);
        }
    }
}

#[test]
fn what_cannot_be_read_stays_where_it_is_and_is_tried_again_ever_more_rarely() {
    let disk = SimulatedDisk::new(10);
    let (mut journal, _) = open(&disk);
    for number in 1..=60 {
        journal.commit(&[record(0, number, 1000)]).unwrap();
        assert!(journal.retain(PARTITION, position(number), 1, 1000));
        serve(&mut journal, &disk);
    }
    for number in (1..=59).filter(|&number| number != 5) {
        assert!(journal.release(PARTITION, position(number), 0, 1000));
    }
    for _ in 0..2 {
        journal.write_checkpoint(vec![state(60)]).unwrap();
    }
    let name = "0000000000000001.segment";
    let mut bytes = disk.contents(name).unwrap();
    // Each group has three sectors, and the payload is after 88 bytes of header and table.
    bytes[512 + 4 * 1536 + 88 + 100] ^= 1;
    disk.set_contents(name, bytes);
    let done = journal.wants_compaction().expect("an order").run(&disk, &mut ());
    match journal.finish_compaction(done) {
        Err(CompactionError::Damaged(damage)) => {
            assert_eq!(damage.kind, DamageKind::Payload { position: position(5) });
            assert_eq!(damage.file.to_str(), Some(name));
        }
        other => panic!("{other:?}"),
    }
    let next = |journal: &mut Journal<SimulatedDisk>| {
        for checkpoints in 1.. {
            journal.write_checkpoint(vec![state(60)]).unwrap();
            if let Some(request) = journal.wants_compaction() {
                return (checkpoints, journal.finish_compaction(request.run(&disk, &mut ())).is_ok());
            }
        }
        unreachable!("the loop has no end")
    };
    assert_eq!([(); 3].map(|()| next(&mut journal)), [(3, false), (5, false), (9, false)]);
    assert!(disk.contents(name).is_some());
    assert!(disk.list().unwrap().iter().all(|name| !name.contains("compact")));
    let mut bytes = disk.contents(name).unwrap();
    bytes[512 + 4 * 1536 + 88 + 100] ^= 1;
    disk.set_contents(name, bytes);
    assert_eq!(next(&mut journal), (17, true), "it can be read by then");
}

#[test]
fn a_newer_compacted_segment_is_refused_by_name_and_number() {
    let (disk, name) = with_a_compacted_segment();
    let mut bytes = disk.contents(&name).unwrap();
    bytes[8] = 9;
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..512]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    disk.set_contents(&name, bytes);
    match Journal::open(disk, OPTIONS) {
        Err(error @ OpenError::UnknownVersion { .. }) => {
            assert_eq!(
                error.to_string(),
                format!("{name}: format version 9, this build reads version {FORMAT_VERSION}")
            );
        }
        other => panic!("{other:?}"),
    }
}

/// Messages of a record in the test below, each of this size.
const MESSAGES: u8 = 40;
const MESSAGE_BYTES: usize = 100;

fn message(record: u64, ordinal: u8) -> Vec<u8> {
    let mut bytes = vec![record as u8; MESSAGE_BYTES];
    bytes[0] = ordinal;
    bytes
}

/// Those messages that are needed; they say themselves which they are.
fn needed_messages(payload: &[u8], is_needed: &dyn Fn(u32) -> bool) -> Option<(u32, Vec<u8>)> {
    let messages = payload.chunks(MESSAGE_BYTES).filter(|message| is_needed(message[0].into()));
    let left: Vec<u8> = messages.flatten().copied().collect();
    (left.len() < payload.len()).then_some(((left.len() / MESSAGE_BYTES) as u32, left))
}

#[test]
fn what_is_not_needed_of_a_record_takes_no_space() {
    const RECORDS: u64 = 300;
    let left: Vec<u8> = (0..MESSAGES).filter(|ordinal| ordinal % 4 == 3).collect();
    let disk = SimulatedDisk::new(14);
    let (mut journal, _) = open(&disk);
    journal.shorten_by(needed_messages);
    for number in 1..=RECORDS {
        let payload: Vec<u8> = (0..MESSAGES).flat_map(|ordinal| message(number, ordinal)).collect();
        let payload = crate::Payload::from(Bytes::from(payload));
        journal.commit(&[crate::Record { payload, ..record(0, number, 0) }]).unwrap();
        let bytes = u64::from(MESSAGES) * MESSAGE_BYTES as u64;
        assert!(journal.retain(PARTITION, position(number), MESSAGES.into(), bytes));
        for ordinal in (0..MESSAGES).filter(|ordinal| !left.contains(ordinal)) {
            assert!(journal.release(PARTITION, position(number), ordinal.into(), MESSAGE_BYTES as u64));
        }
        assert!(
            !journal.release(PARTITION, position(number), 0, MESSAGE_BYTES as u64),
            "it is needed no more"
        );
        keep_up(&mut journal, &disk, number);
    }
    // How many have nothing but these messages; the others have all, or the earlier needed part.
    let check = |journal: &mut Journal<SimulatedDisk>, want: &[u8]| {
        let mut shorter = 0;
        for number in 1..=RECORDS {
            let read = journal.read(PARTITION, position(number)).unwrap();
            let of = |ordinals: &[u8]| -> Vec<u8> {
                ordinals.iter().flat_map(|&ordinal| message(number, ordinal)).collect()
            };
            let all: Vec<u8> = (0..MESSAGES).collect();
            assert!([want, &left, &all].map(of).contains(&read.to_vec()), "{number}: {} bytes", read.len());
            shorter += u64::from(read == of(want));
        }
        shorter
    };
    let used =
        |journal: &Journal<SimulatedDisk>| journal.segments().map(|segment| segment.file_bytes).sum::<u64>();
    let shorter = check(&mut journal, &left);
    assert!(RECORDS / 2 < shorter, "{shorter} of {RECORDS} have nothing that is not needed");
    let before = used(&journal);
    let live = RECORDS * (left.len() * MESSAGE_BYTES) as u64;
    assert!(before <= 2 * live + 8 * OPTIONS.segment_bytes, "{before} bytes for {live}");
    // The rest is compacted again, and a start knows which messages it has.
    let (mut journal, _) = Journal::open(disk.clone(), OPTIONS).unwrap();
    journal.shorten_by(needed_messages);
    let rows = (1..=RECORDS).flat_map(|number| {
        let row =
            move |&ordinal: &u8| MessageRow::of_one(position(number), ordinal.into(), MESSAGE_BYTES as u64);
        left.iter().map(row)
    });
    assert_eq!(journal.recount(PARTITION, rows), 0);
    for number in 1..=RECORDS {
        for ordinal in left.iter().filter(|ordinal| **ordinal != 7) {
            assert!(journal.release(PARTITION, position(number), (*ordinal).into(), MESSAGE_BYTES as u64));
        }
    }
    pass_through_behind(&mut journal, &disk, RECORDS);
    let shorter = check(&mut journal, &[7]);
    assert!(RECORDS / 2 < shorter, "{shorter} of {RECORDS} are left with one message");
    for number in 1..=RECORDS {
        assert!(journal.release(PARTITION, position(number), 7, MESSAGE_BYTES as u64));
    }
    assert_eq!(journal.segments().map(|segment| segment.live_messages).sum::<u64>(), 0);
}

/// Unneeded records, until the checkpoints before them cover everything before.
fn pass_through_behind(journal: &mut Journal<SimulatedDisk>, disk: &SimulatedDisk, last: u64) {
    for number in last + 1..=last + 200 {
        journal.commit(&[record(0, number, 1000)]).unwrap();
        keep_up(journal, disk, number);
    }
}
