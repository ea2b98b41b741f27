//! Bytes that differ from committed ones: torn tails, flipped bytes, lost files, unknown versions.

use super::in_memory;
use super::service::{OPTIONS, open, payload, position, read_near, record, row, serve, stored};
use crate::disks::disk::write_all_at;
use crate::{
    Checkpoint, CheckpointError, CommitError, Damage, DamageKind, Disk, FORMAT_VERSION, Fault, Journal, Keys,
    LostSegment, OpenError, Operation, Payload, ReadError, Record, SimulatedDisk, StoredRecord, TornTail,
};
use bytes::Bytes;
use postroad_model::PartitionId;
use std::io::IoSlice;
use std::path::PathBuf;

const FIRST: &str = "0000000000000001.segment";
const SECOND: &str = "0000000000000002.segment";

/// Three groups of 2 sectors each in one segment: partition 0, 1, 0. The groups start at 512, 1536
/// and 2560.
fn three_groups() -> SimulatedDisk {
    let disk = SimulatedDisk::new(7);
    let (mut journal, _) = open(&disk);
    for (partition, number) in [(0, 1), (1, 1), (0, 2)] {
        journal.commit(&[record(partition, number, 600)]).unwrap();
    }
    disk.copy()
}

pub(super) fn flip(disk: &SimulatedDisk, name: &str, offset: usize) {
    let mut bytes = disk.contents(name).unwrap();
    bytes[offset] ^= 0x20;
    disk.set_contents(name, bytes);
}

/// Copies of the disk, in each of which one of these bytes of the file is flipped; and one without
/// the file.
pub(super) fn flipped_or_gone(
    source: &SimulatedDisk,
    name: &str,
    offsets: impl Iterator<Item = usize>,
) -> impl Iterator<Item = (String, Option<usize>, SimulatedDisk)> {
    let flipped = offsets.map(|offset| (format!("byte {offset}"), Some(offset)));
    flipped.chain([("gone".to_owned(), None)]).map(move |(case, offset)| {
        let disk = source.copy();
        match offset {
            Some(offset) => flip(&disk, name, offset),
            None => disk.remove(name).unwrap(),
        }
        (case, offset, disk)
    })
}

fn damage(partition: Option<u16>, file: &str, offset: u64, kind: DamageKind) -> Damage {
    Damage { partition: partition.map(PartitionId), file: PathBuf::from(file), offset, kind }
}

#[test]
fn a_bad_last_group_is_cut_and_a_bad_earlier_one_is_damage() {
    let all = vec![stored(0, 1, 600), stored(1, 1, 600), stored(0, 2, 600)];
    let torn = || Some(TornTail { file: PathBuf::from(FIRST), offset: 2560 });
    let bad_payload = |partition, offset| {
        damage(Some(partition), FIRST, offset, DamageKind::Payload { position: position(1) })
    };
    for (name, offset, want_records, want_damaged, want_torn) in [
        ("padding is not read", 512 + 1020, all.clone(), vec![], None),
        ("payload of the last group", 2560 + 100, all[..2].to_vec(), vec![], torn()),
        ("table of the last group", 2560 + 70, all[..2].to_vec(), vec![], torn()),
        ("checksum of the last group", 2560 + 4, all[..2].to_vec(), vec![], torn()),
        (
            "payload before the tail stops its partition",
            1536 + 100,
            vec![all[0].clone(), all[2].clone()],
            vec![bad_payload(1, 1536 + 88)],
            None,
        ),
        (
            "and all of that partition's records",
            512 + 100,
            vec![all[1].clone()],
            vec![bad_payload(0, 512 + 88)],
            None,
        ),
    ] {
        let disk = three_groups();
        flip(&disk, FIRST, offset);
        let (mut journal, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
        let records: Vec<_> = recovered.records().map(|record| record.unwrap()).collect();
        let got = (records, recovered.damaged.clone(), recovered.torn.clone());
        assert_eq!(got, (want_records, want_damaged.clone(), want_torn), "case: {name}");
        for partition in [0, 1] {
            let next = journal.last_position(PartitionId(partition)).unwrap().next().get();
            let stopped = want_damaged.iter().any(|damage| damage.partition == Some(PartitionId(partition)));
            match journal.commit(&[record(partition, next, 10)]) {
                Ok(()) => assert!(!stopped, "case: {name}"),
                Err(CommitError::PartitionStopped(stopped)) => {
                    assert_eq!(stopped.0, partition, "case: {name}")
                }
                Err(error) => panic!("case: {name}: {error}"),
            }
        }
    }
}

#[test]
fn damage_that_no_partition_can_be_named_for_fails_the_start() {
    for (name, file, offset, want) in [
        ("group header before the tail", FIRST, 512 + 9, damage(None, FIRST, 512, DamageKind::Group)),
        ("record table before the tail", FIRST, 1536 + 70, damage(None, FIRST, 1536, DamageKind::Group)),
        ("header of a segment with groups", FIRST, 20, damage(None, FIRST, 0, DamageKind::SegmentHeader)),
        ("its magic number", FIRST, 0, damage(None, FIRST, 0, DamageKind::SegmentHeader)),
    ] {
        let disk = three_groups();
        flip(&disk, file, offset);
        match Journal::open(disk, OPTIONS) {
            Err(OpenError::Damaged(got)) => assert_eq!(got, want, "case: {name}"),
            other => panic!("case: {name}: {other:?}"),
        }
    }
}

#[test]
fn every_group_of_a_sealed_segment_is_needed() {
    let disk = SimulatedDisk::new(3);
    let (mut journal, _) = open(&disk);
    for number in 1..=20 {
        journal.commit(&[record(0, number, 1000)]).unwrap();
    }
    let last = damage(None, FIRST, 14_336, DamageKind::Group);
    let copy = disk.copy();
    flip(&copy, FIRST, 14_336 + 8);
    assert!(matches!(Journal::open(copy, OPTIONS), Err(OpenError::Damaged(got)) if got == last));
    let copy = disk.copy();
    copy.remove(FIRST).unwrap();
    let gone = damage(None, FIRST, 0, DamageKind::SegmentMissing);
    assert!(matches!(Journal::open(copy, OPTIONS), Err(OpenError::Damaged(got)) if got == gone));
    let copy = disk.copy();
    let payload_of = Some(0);
    flip(&copy, SECOND, 512 + 100);
    let (_, recovered) = Journal::open(copy, OPTIONS).unwrap();
    let kind = DamageKind::Payload { position: position(11) };
    assert_eq!(recovered.damaged, vec![damage(payload_of, SECOND, 512 + 88, kind)]);
}

/// A journal with a checkpoint at 20 of 40 records, the first two segments before it.
fn with_checkpoints(live: &[u64]) -> SimulatedDisk {
    let disk = SimulatedDisk::new(5);
    let (mut journal, _) = open(&disk);
    for number in 1..=40 {
        journal.commit(&[record(0, number, 1000)]).unwrap();
        serve(&mut journal, &disk);
        if live.contains(&number) {
            assert!(journal.retain(PartitionId(0), position(number), 1, 1000));
        }
        if number % 10 == 0 && number < 40 {
            let state = Bytes::from(format!("up to {number}")).into();
            journal
                .write_checkpoint(vec![Checkpoint {
                    partition: PartitionId(0),
                    position: position(number),
                    state,
                }])
                .unwrap();
        }
    }
    disk
}

/// A further checkpoint of such a journal, at its last record.
fn write_the_next(journal: &mut Journal<SimulatedDisk>) {
    let state = Bytes::from_static(b"up to 40").into();
    let checkpoint = Checkpoint { partition: PartitionId(0), position: position(40), state };
    journal.write_checkpoint(vec![checkpoint]).unwrap();
}

#[test]
fn a_damaged_checkpoint_falls_back_to_the_one_before() {
    for (name, damaged, want) in [
        ("none", &[][..], Ok(30)),
        ("the newest", &["0000000000000003.checkpoint"][..], Ok(20)),
        (
            "both: the first segment is gone by now",
            &["0000000000000003.checkpoint", "0000000000000002.checkpoint", "0000000000000001.checkpoint"][..],
            Err(DamageKind::Checkpoint),
        ),
    ] {
        let disk = with_checkpoints(&[]).copy();
        for file in damaged {
            if disk.contents(file).is_some() {
                flip(&disk, file, 600);
            }
        }
        match (Journal::open(disk, OPTIONS), want) {
            (Ok((_, recovered)), Ok(from)) => {
                let state = Bytes::from(format!("up to {from}")).into();
                let checkpoint = Checkpoint { partition: PartitionId(0), position: position(from), state };
                assert_eq!(in_memory(&recovered.checkpoints), vec![checkpoint], "case: {name}");
                let records: Vec<_> = recovered.records().map(|record| record.unwrap()).collect();
                let want: Vec<_> = (from + 1..=40).map(|number| stored(0, number, 1000)).collect();
                assert_eq!(records, want, "case: {name}");
                assert_eq!(recovered.skipped_checkpoints.len(), damaged.len(), "case: {name}");
            }
            (Err(OpenError::Damaged(got)), Err(want)) => assert_eq!(got.kind, want, "case: {name}"),
            (got, _) => panic!("case: {name}: {got:?}"),
        }
    }
}

#[test]
fn a_checkpoint_that_the_system_does_not_read_is_not_called_damaged() {
    for (name, refusals, want) in [
        ("the newest: the one before does as well", 1, Some(20)),
        ("both: nothing is known of either", 2, None),
    ] {
        for operation in [Operation::Open, Operation::Length] {
            let disk = with_checkpoints(&[]).copy();
            (0..refusals).for_each(|nth| disk.fail(operation, nth, Fault::Broken));
            match (Journal::open(disk.clone(), OPTIONS), want) {
                (Ok((_, recovered)), Some(want)) => {
                    assert_eq!(recovered.checkpoints[0].position, position(want), "case: {name}");
                    assert_eq!(recovered.skipped_checkpoints.len(), 1, "case: {name}");
                    let (_, recovered) = Journal::open(disk, OPTIONS).unwrap();
                    assert_eq!(
                        recovered.checkpoints[0].position,
                        position(30),
                        "case: {name}, once it reads"
                    );
                }
                (Err(OpenError::Io { file, .. }), None) => {
                    assert_eq!(file, PathBuf::from("0000000000000003.checkpoint"), "case: {name}");
                    let (_, recovered) = Journal::open(disk, OPTIONS).unwrap();
                    assert_eq!(
                        recovered.checkpoints[0].position,
                        position(30),
                        "case: {name}, once it reads"
                    );
                }
                (got, _) => panic!("case: {name}, {operation:?}: {got:?}"),
            }
        }
    }
}

#[test]
fn a_checkpoint_that_the_system_does_not_read_goes_once_there_are_two_others() {
    const NEWEST: &str = "0000000000000003.checkpoint";
    let disk = with_checkpoints(&[]).copy();
    disk.fail(Operation::Open, 0, Fault::Broken);
    let (mut journal, _) = Journal::open(disk.clone(), OPTIONS).unwrap();
    // The one that was read, and the first that is written.
    for (writes, want) in [(false, true), (true, false)] {
        if writes {
            write_the_next(&mut journal);
        }
        if let Some(removal) = journal.wants_removal() {
            removal.run(&disk);
        }
        assert_eq!(disk.contents(NEWEST).is_some(), want, "written: {writes}");
    }
}

#[test]
fn nothing_is_cut_off_by_an_old_checkpoint_while_the_system_does_not_read_a_newer_one() {
    let disk = with_checkpoints(&[]).copy();
    let (mut journal, _) = Journal::open(disk.clone(), OPTIONS).unwrap();
    write_the_next(&mut journal);
    // By the newest checkpoint the last group need not be whole; by the one before it looks as if
    // it had been torn.
    let tail = crate::layout::format::segment_name(journal.last.segment);
    let payload = journal.last.offset - 600;
    drop(journal);
    flip(&disk, &tail, payload as usize);
    for operation in [Operation::Open, Operation::Length] {
        let (journal, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
        assert_eq!((journal.last_position(PartitionId(0)), recovered.damaged), (Some(position(40)), vec![]));
        drop(journal);
        disk.fail(operation, 0, Fault::Broken);
        match Journal::open(disk.clone(), OPTIONS) {
            Err(OpenError::Io { file, .. }) => {
                assert_eq!(file, PathBuf::from("0000000000000004.checkpoint"), "{operation:?}");
            }
            got => {
                panic!("{operation:?}: {:?}", got.map(|(_, recovered)| (recovered.damaged, recovered.torn)))
            }
        }
    }
}

#[test]
fn a_checkpoint_that_is_still_not_read_takes_the_place_of_no_other() {
    const REFUSED: &str = "0000000000000003.checkpoint";
    let disk = with_checkpoints(&[]).copy();
    disk.fail(Operation::Open, 0, Fault::Broken);
    let (mut journal, _) = Journal::open(disk.clone(), OPTIONS).unwrap();
    write_the_next(&mut journal);
    drop(journal);
    // It was to be removed, and the process has ended before. The next start reads the newest, and
    // is refused this one again.
    disk.fail(Operation::Open, 1, Fault::Broken);
    drop(Journal::open(disk.clone(), OPTIONS).unwrap());
    for there in ["0000000000000002.checkpoint", REFUSED, "0000000000000004.checkpoint"] {
        assert!(disk.contents(there).is_some(), "{there}");
    }
    // With the newest damaged and that one refused the one that is left does.
    flip(&disk, "0000000000000004.checkpoint", 600);
    disk.fail(Operation::Open, 1, Fault::Broken);
    let (journal, recovered) = Journal::open(disk, OPTIONS).unwrap();
    assert_eq!(recovered.checkpoints[0].position, position(20));
    assert_eq!((journal.last_position(PartitionId(0)), recovered.damaged), (Some(position(40)), vec![]));
}

#[test]
fn nothing_is_called_lost_by_an_old_checkpoint_while_the_system_does_not_read_a_newer_one() {
    let disk = with_checkpoints(&[2]).copy();
    let (mut journal, _) = Journal::open(disk.clone(), OPTIONS).unwrap();
    assert!(journal.release(PartitionId(0), position(2), 0, 1000));
    for _ in 0..2 {
        write_the_next(&mut journal);
    }
    drop(journal);
    assert!(disk.contents(FIRST).is_none(), "neither of the two needs it");
    // The newest was damaged, and a start has cleared it away.
    disk.remove("0000000000000005.checkpoint").unwrap();
    let opens_by_the_fourth = || {
        let (_, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
        assert_eq!((recovered.checkpoints[0].position, recovered.damaged), (position(40), vec![]));
    };
    opens_by_the_fourth();
    // The third is there yet, and by it the second message is live.
    assert!(disk.contents("0000000000000003.checkpoint").is_some());
    for operation in [Operation::Open, Operation::Length] {
        disk.fail(operation, 0, Fault::Broken);
        match Journal::open(disk.clone(), OPTIONS) {
            Err(OpenError::Io { file, .. }) => {
                assert_eq!(file, PathBuf::from("0000000000000004.checkpoint"), "{operation:?}");
            }
            got => panic!("{operation:?}: {:?}", got.map(|(_, recovered)| recovered.damaged)),
        }
        opens_by_the_fourth();
    }
}

#[test]
fn a_damaged_table_costs_the_record_that_was_hit_and_no_other() {
    const RECORDS: u64 = 20;
    let source = SimulatedDisk::new(3);
    let (mut journal, _) = open(&source);
    let group: Vec<_> = (1..=RECORDS).map(|number| record(0, number, 300)).collect();
    journal.commit(&group).unwrap();
    journal.commit(&[record(0, RECORDS + 1, 300)]).unwrap();
    drop(journal);
    // Header of the group, then a row of 24 bytes for each record.
    for (place, hit) in [(20, 0), (64 + 3, 1), (64 + 7 * 24 + 8, 8), (64 + 19 * 24 + 23, 20)] {
        let disk = source.copy();
        let (mut journal, _) = open(&disk);
        let byte = disk.contents(FIRST).unwrap()[512 + place] ^ 0x10;
        // In the file that the journal has open.
        write_all_at(&disk.open(FIRST).unwrap(), &mut [IoSlice::new(&[byte])], 512 + place as u64).unwrap();
        let all = (1..=RECORDS + 1).map(|number| (PartitionId(0), position(number)));
        let near = read_near(&mut journal, &all.clone().collect::<Vec<_>>()).1;
        for ((_, at), (_, near)) in all.zip(near) {
            let want = payload(0, at.get(), 300);
            match journal.read(PartitionId(0), at) {
                Ok(got) => assert!(got == want && at.get() != hit, "byte {place}, record {at:?}"),
                Err(ReadError::Damaged(damage)) => {
                    assert_eq!((at.get(), damage.kind), (hit, DamageKind::Group), "byte {place}");
                }
                Err(other) => panic!("byte {place}, record {at:?}: {other}"),
            }
            assert_eq!(near.ok(), Some(want).filter(|_| at.get() != hit), "byte {place}, record {at:?}");
        }
    }
}

#[test]
fn a_walk_finds_a_damaged_header() {
    for offset in [3, 20, 30, 40, 100, 511] {
        let disk = with_checkpoints(&[2]).copy();
        let (journal, _) = Journal::open(disk.clone(), OPTIONS).unwrap();
        let number = journal.next_sealed(None).expect("a sealed segment");
        let walk = || journal.walk(number).unwrap().expect("it is there").run(&mut (), &mut |_| ()).unwrap();
        assert_eq!(walk(), []);
        flip(&disk, &crate::layout::format::segment_name(number), offset);
        let found: Vec<_> = walk().into_iter().map(|damage| (damage.offset, damage.kind)).collect();
        // The checksum of a group is right, whatever the header says.
        assert_eq!(found, [(0, DamageKind::SegmentHeader)], "byte {offset}");
    }
}

#[test]
fn a_stopped_partition_keeps_its_last_state_and_its_counts() {
    let disk = with_checkpoints(&[2]).copy();
    let states = in_memory(&Journal::open(disk.copy(), OPTIONS).unwrap().1.checkpoints);
    // The first record after the checkpoint.
    flip(&disk, "0000000000000004.segment", 512 + 100);
    let (mut journal, recovered) = Journal::open(disk, OPTIONS).unwrap();
    let kind = DamageKind::Payload { position: position(31) };
    assert_eq!(recovered.damaged, vec![damage(Some(0), "0000000000000004.segment", 512 + 88, kind)]);
    assert_eq!((recovered.checkpoints.len(), recovered.records().count()), (0, 0), "nothing of it is served");
    let state = Checkpoint { partition: PartitionId(0), position: position(40), state: Bytes::new().into() };
    assert!(matches!(journal.write_checkpoint(vec![state]), Err(CheckpointError::BadPosition { .. })));
    assert_eq!(journal.recount(PartitionId(0), []), 0);
    for _ in 0..3 {
        assert!(journal.write_checkpoint(vec![]).is_ok(), "the stopped partition's last state is carried on");
    }
    assert_eq!(journal.checkpoints.carried, states);
    let live: u64 = journal.segments().map(|segment| segment.live_messages).sum();
    assert_eq!(live, 1, "what is live in it nobody can say anew");
}

#[test]
fn a_lost_segment_costs_the_messages_in_it_alone() {
    let disk = with_checkpoints(&[2, 12]).copy();
    let first = disk.contents(FIRST).unwrap();
    disk.remove(FIRST).unwrap();
    let gone = damage(None, FIRST, 0, DamageKind::SegmentMissing);
    let live = [row(position(2), 1000), row(position(12), 1000)];
    for start in 0..3 {
        let (mut journal, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
        assert_eq!(recovered.damaged, vec![], "start {start}: no partition is stopped");
        assert_eq!(recovered.lost, vec![LostSegment { damage: gone.clone(), messages: 1 }], "start {start}");
        assert_eq!(journal.recount(PartitionId(0), live), 0, "start {start}");
        let of_this = Damage { partition: Some(PartitionId(0)), ..gone.clone() };
        match journal.read(PartitionId(0), position(2)) {
            Err(ReadError::Damaged(told)) => assert_eq!(told, of_this, "start {start}"),
            other => panic!("start {start}: {other:?}"),
        }
        assert_eq!(
            journal.read(PartitionId(0), position(12)).unwrap(),
            payload(0, 12, 1000),
            "start {start}"
        );
        let segment = journal.next_sealed(None).expect("it is still listed");
        match journal.walk(segment) {
            Err(ReadError::Damaged(told)) => assert_eq!(told, gone, "start {start}"),
            other => panic!("start {start}: {other:?}"),
        }
        for _ in 0..2 {
            write_the_next(&mut journal);
        }
        let backup = SimulatedDisk::new(6);
        let begun = journal.begin_backup(&backup).unwrap();
        assert_eq!(begun.missing, [PathBuf::from(FIRST)], "start {start}");
        begun.finish(&backup).unwrap();
        let (_, recovered) = Journal::open(backup, OPTIONS).unwrap();
        assert_eq!(recovered.lost.len(), 1, "start {start}: whoever starts from the backup is told as well");
    }
    disk.set_contents(FIRST, first);
    let (mut journal, recovered) = Journal::open(disk, OPTIONS).unwrap();
    assert_eq!(recovered.lost, vec![], "somebody has put it back");
    assert_eq!(journal.recount(PartitionId(0), live), 0);
    assert_eq!(journal.read(PartitionId(0), position(2)).unwrap(), payload(0, 2, 1000));
}

#[test]
fn a_lost_segment_of_which_nothing_is_live_any_more_is_not_used_again() {
    let disk = with_checkpoints(&[2]).copy();
    disk.remove(FIRST).unwrap();
    let (mut journal, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
    assert_eq!(recovered.lost.len(), 1);
    assert_eq!(journal.recount(PartitionId(0), []), 0);
    for _ in 0..2 {
        write_the_next(&mut journal);
    }
    assert!(journal.segments().all(|segment| segment.number.0 != 1), "it is let go");
    for number in 41..=200 {
        journal.commit(&[record(0, number, 1000)]).unwrap();
        serve(&mut journal, &disk);
    }
    let (_, recovered) = Journal::open(disk.copy(), OPTIONS).unwrap();
    assert_eq!((recovered.lost.len(), recovered.records().count()), (0, 160));
}

#[test]
fn a_newer_version_is_refused_by_name_and_number() {
    for name in [FIRST, "0000000000000003.checkpoint"] {
        let disk = with_checkpoints(&[2]).copy();
        let name = if name == FIRST { "0000000000000005.segment" } else { name };
        let mut bytes = disk.contents(name).unwrap();
        bytes[8] = 9;
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..512]);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        disk.set_contents(name, bytes);
        let error = Journal::open(disk, OPTIONS).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{name}: format version 9, this build reads version {FORMAT_VERSION}")
        );
    }
}

#[test]
fn whatever_byte_is_flipped_no_wrong_payload_comes_back_and_nothing_is_lost_silently() {
    for keys in [Keys::default(), super::encryption::keys(Some(1), &[])] {
        flip_every_byte(&keys);
    }
}

fn flip_every_byte(keys: &Keys) {
    let source = SimulatedDisk::new(11);
    let open = |disk| Journal::open_with(disk, OPTIONS, keys.clone(), &mut |_, _| ());
    let (mut journal, _) = open(source.clone()).unwrap();
    for number in 1..=4 {
        journal.commit(&[record(0, number, 500), record(1, number, 9)]).unwrap();
        if number == 2 {
            let state = |partition| Checkpoint {
                partition: PartitionId(partition),
                position: position(2),
                state: Bytes::from_static(b"a state").into(),
            };
            journal.write_checkpoint(vec![state(0), state(1)]).unwrap();
        }
    }
    // Without it the last group could not be distinguished from a torn one.
    journal.seal().unwrap();
    let source = source.copy();
    for name in source.list().unwrap() {
        let bytes = source.contents(&name).unwrap();
        // All that is written, and the sector after it; of the zeros that follow some.
        let written = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 512).min(bytes.len());
        for offset in (0..written).chain((written..bytes.len()).step_by(97)) {
            let disk = source.copy();
            flip(&disk, &name, offset);
            let Ok((mut journal, recovered)) = open(disk) else { continue };
            for record in recovered.records() {
                let record = record.unwrap();
                let bytes = if record.partition.0 == 0 { 500 } else { 9 };
                assert_eq!(
                    record,
                    stored(record.partition.0, record.position.get(), bytes),
                    "{name} at {offset}"
                );
            }
            let wanted = [1, 2, 3, 4].map(|number| (PartitionId(0), position(number)));
            for (at, near) in read_near(&mut journal, &wanted).1 {
                let alone = journal.read(PartitionId(0), at).map_err(|error| error.to_string());
                assert_eq!(near, alone, "{name} at {offset}: record {at:?}");
                if let Ok(got) = alone {
                    assert_eq!(got, payload(0, at.get(), 500), "{name} at {offset}");
                }
            }
            assert!(
                in_memory(&recovered.checkpoints)
                    .iter()
                    .all(|checkpoint| checkpoint.state.to_bytes() == "a state"),
                "{name} at {offset}"
            );
            let told = !recovered.damaged.is_empty() || !recovered.skipped_checkpoints.is_empty();
            if !told && found_by_walking(&journal) == 0 {
                let all = (1..=4).flat_map(|number| [(0, number, 500), (1, number, 9)]);
                for (partition, number, bytes) in all {
                    let got = journal.read(PartitionId(partition), position(number)).ok();
                    let want = Some(payload(partition, number, bytes));
                    assert_eq!(got, want, "{name} at {offset}: a silent loss");
                }
            }
        }
    }
}

fn found_by_walking(journal: &Journal<SimulatedDisk>) -> usize {
    let walks = journal.segments().map(|used| journal.walk(used.number).unwrap().expect("a segment"));
    walks.map(|walk| walk.run(&mut (), &mut |_| ()).unwrap().len()).sum()
}

#[test]
fn a_segment_whose_header_could_not_be_synced_is_not_trusted_by_the_next_process() {
    for seed in 0..16 {
        let disk = SimulatedDisk::new(seed);
        let (mut journal, _) = open(&disk);
        journal.commit(&[record(0, 1, 600)]).unwrap();
        let request = journal.wants_segment().unwrap();
        // Of the zeros; of the header.
        disk.fail(Operation::Sync, 1, Fault::Dead);
        assert!(request.prepare(&disk, &mut ()).is_err());
        disk.restart();
        let (mut journal, _) = open(&disk);
        for number in 2..=20 {
            journal.commit(&[record(0, number, 900)]).unwrap();
        }
        disk.crash();
        let (_, records) = open(&disk);
        assert_eq!(records.len(), 20, "seed {seed}");
    }
}

#[test]
fn without_a_checkpoint_the_first_segment_must_be_there() {
    let gone = Some(damage(None, FIRST, 0, DamageKind::SegmentMissing));
    for (name, groups, spare, failures, remove, want) in [
        ("its groups are gone, a spare segment is left", 3, true, 0, Some(FIRST), gone.clone()),
        ("its groups are gone, later ones are left", 30, true, 0, Some(FIRST), gone),
        ("nothing was ever written", 0, true, 0, None, None),
        ("no file at all is a new directory", 3, false, 0, Some(FIRST), None),
        ("no write ever succeeded in it, nor in the next", 0, true, 3, None, None),
        ("no write ever succeeded in it, but in a later one", 3, true, 2, None, None),
    ] {
        let disk = SimulatedDisk::new(7);
        let (mut journal, _) = open(&disk);
        for failure in 0..failures {
            if failure == 0 {
                disk.fail(Operation::Write, 0, Fault::Broken);
                assert!(journal.commit(&[record(0, 1, 600)]).is_err(), "case: {name}");
            } else {
                // The new segment's header is synced, its first group is not.
                disk.fail(Operation::Sync, 1, Fault::Broken);
                assert!(journal.reopen().is_err(), "case: {name}");
            }
        }
        if 0 < failures && 0 < groups {
            journal.reopen().unwrap();
        }
        for number in 1..=groups {
            journal.commit(&[record(0, number, 900)]).unwrap();
        }
        if spare {
            serve(&mut journal, &disk);
        }
        let left = disk.copy();
        if let Some(file) = remove {
            left.remove(file).unwrap();
        }
        match (Journal::open(left, OPTIONS), want) {
            (Err(OpenError::Damaged(found)), Some(want)) => assert_eq!(found, want, "case: {name}"),
            (Ok((journal, recovered)), None) => {
                let last = if remove.is_some() { 0 } else { groups };
                let got = journal.last_position(PartitionId(0)).map_or(0, |position| position.get());
                assert_eq!((got, recovered.damaged), (last, vec![]), "case: {name}");
            }
            (got, _) => panic!("case: {name}: {:?}", got.map(|(_, recovered)| recovered.damaged)),
        }
    }
}

#[test]
fn groups_that_failed_are_no_damage_in_a_file_that_was_about_to_be_used_again() {
    for seed in 0..200 {
        let disk = SimulatedDisk::new(seed);
        let (mut journal, _) = open(&disk);
        serve(&mut journal, &disk);
        for number in 1..=15 {
            journal.commit(&[record(0, number, 900)]).unwrap();
        }
        // The first group of the next segment, and the empty one of the segment in which the
        // journal would go on.
        disk.fail(Operation::Sync, 0, Fault::Broken);
        assert!(matches!(journal.commit(&[record(0, 16, 900)]), Err(CommitError::SyncFailed { .. })));
        disk.fail(Operation::Sync, 1, Fault::Broken);
        assert!(journal.reopen().is_err());
        disk.fail(Operation::Write, 0, Fault::Broken);
        let again = journal.reopen();
        assert!(again.is_err(), "seed {seed}");
        disk.crash();
        disk.clear_faults();
        let opened = Journal::open(disk.clone(), OPTIONS);
        let (_, recovered) = opened.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(recovered.damaged, vec![], "seed {seed}");
        let records = recovered.records().map(|record| record.unwrap().position.get());
        assert!((15..=16).contains(&records.max().unwrap()), "seed {seed}");
    }
}

#[test]
fn what_could_not_be_wiped_is_found_again_by_the_next_start() {
    for seed in 0..40 {
        let disk = SimulatedDisk::new(seed);
        let (mut journal, _) = open(&disk);
        journal.commit(&[record(0, 1, 10)]).unwrap();
        journal.append(&[record(0, 2, 10)]).unwrap();
        journal.append(&[record(0, 3, 10), record(0, 4, 10)]).unwrap();
        // A power cut takes the second group, and leaves the third.
        let mut bytes = disk.contents(FIRST).unwrap();
        bytes[1024..1536].fill(0);
        disk.set_contents(FIRST, bytes);
        disk.fail(Operation::Sync, 0, Fault::Broken);
        assert!(matches!(Journal::open(disk.clone(), OPTIONS), Err(OpenError::Io { .. })), "seed {seed}");
        disk.restart();
        let (mut journal, _) = open(&disk);
        // Another second group, that ends where the former one did.
        journal.commit(&[record(0, 2, 10), record(0, 3, 10)]).unwrap();
        journal.append(&[record(0, 4, 10)]).unwrap();
        disk.crash();
        let (_, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
        assert_eq!(recovered.damaged, vec![], "seed {seed}");
        let positions: Vec<u64> = recovered.records().map(|record| record.unwrap().position.get()).collect();
        assert!([&[1, 2, 3][..], &[1, 2, 3, 4]].contains(&&positions[..]), "seed {seed}: {positions:?}");
    }
}

#[test]
fn a_segment_of_groups_that_are_void_is_gone_before_anything_could_be_made_of_it() {
    let disk = SimulatedDisk::new(8);
    let (mut journal, _) = open(&disk);
    for number in 1..=15 {
        journal.commit(&[record(0, number, 900)]).unwrap();
        serve(&mut journal, &disk);
    }
    // The second segment's groups were never synced; a power cut takes the first of them.
    for number in 16..=19 {
        journal.append(&[record(0, number, 900)]).unwrap();
    }
    assert!(journal.has_unsynced());
    let void = disk.contents(SECOND).unwrap();
    let mut bytes = void.clone();
    bytes[512..1536].fill(0);
    disk.set_contents(SECOND, bytes);
    disk.restart();
    let (journal, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
    assert_eq!(recovered.torn, Some(TornTail { file: PathBuf::from(SECOND), offset: 512 }));
    assert_eq!((journal.last_position(PartitionId(0)), recovered.damaged), (Some(position(15)), vec![]));
    drop(journal);
    // Also if the machine ends here.
    disk.crash();
    assert!(!disk.names().contains(&SECOND.to_owned()));
    // Renamed to be used again, and ended before it had its new header, it would look like this.
    disk.set_contents("0000000000000003.segment", void);
    let newer = Journal::open(disk, OPTIONS);
    assert!(matches!(newer, Err(OpenError::Damaged(found)) if found.kind == DamageKind::SegmentHeader));
}

/// A record of whose payload all but the front is the same as in others.
fn alike(number: u64, front: u8) -> Record {
    let mut bytes = vec![7; 3000];
    bytes[..100].fill(front);
    Record { payload: Payload::from(Bytes::from(bytes)), ..record(0, number, 0) }
}

#[test]
fn a_torn_first_group_of_a_segment_never_comes_back_with_the_rest_of_another_in_its_place() {
    let disk = SimulatedDisk::new(7);
    let (mut journal, _) = open(&disk);
    for number in 1..=14 {
        journal.commit(&[record(0, number, 900)]).unwrap();
        serve(&mut journal, &disk);
    }
    // A power cut takes all but the first sector of the second segment's first group.
    journal.commit(&[alike(15, 1)]).unwrap();
    let mut bytes = disk.contents(SECOND).unwrap();
    bytes[1024..].fill(0);
    disk.set_contents(SECOND, bytes.clone());
    let torn = || Journal::open(disk.clone(), OPTIONS).unwrap().1.torn;
    assert_eq!(torn(), Some(TornTail { file: PathBuf::from(SECOND), offset: 512 }));
    assert_eq!(torn(), None, "what was cut off once is not found again");
    // Another record 15 goes where the first segment has room still, and one like the first begins
    // the second segment.
    let (mut journal, _) = open(&disk);
    journal.commit(&[record(0, 15, 900)]).unwrap();
    journal.commit(&[alike(16, 2)]).unwrap();
    // Of that a power cut takes the first sector, so that the one of before is there, and leaves
    // the others.
    let mut after = disk.contents(SECOND).unwrap();
    assert!(after[512..1024] != bytes[512..1024], "the same place");
    after[512..1024].copy_from_slice(&bytes[512..1024]);
    disk.set_contents(SECOND, after);
    let fronts = |record: &StoredRecord| (record.position.get(), record.payload[0]);
    let got: Vec<_> = open(&disk).1.iter().map(fronts).collect();
    let want: Vec<_> = (1..=15).map(|number| fronts(&stored(0, number, 900))).collect();
    assert_eq!(got, want);
}
