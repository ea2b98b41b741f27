//! Repair: data that survives each kind of damage, the report on the rest, and that the directory
//! opens afterwards.

use super::damage::flip;
use super::in_memory;
use super::service::{OPTIONS, open, position, record, row, serve, stored};
use crate::{
    Checkpoint, DamageKind, Disk, Fault, Journal, LostRecords, Met, Operation, ReadError, Salvage,
    SimulatedDisk, StoredRecord,
};
use bytes::Bytes;
use postroad_model::{PartitionId, Position};
use std::collections::{BTreeMap, BTreeSet};

const FIRST: &str = "0000000000000001.segment";
const SECOND: &str = "0000000000000002.segment";
const THIRD: &str = "0000000000000003.segment";
const FOURTH: &str = "0000000000000004.segment";
const NEWEST: &str = "0000000000000005.segment";

/// Records that are live at the last checkpoint, which is at 30; after it all are.
const LIVE: [u64; 3] = [2, 15, 25];

fn state(partition: u16, number: u64) -> Checkpoint {
    let state = Bytes::from(format!("up to {number}")).into();
    Checkpoint { partition: PartitionId(partition), position: position(number), state }
}

/// 42 groups of a record of 1000 bytes for partition 0 and one of 20 for partition 5, ten to a
/// segment; checkpoints at 20 and
/// 30. The groups of a segment start at 512 and take 1536 bytes each; a broker that was stopped has
///     sealed it.
fn directory() -> SimulatedDisk {
    let disk = SimulatedDisk::new(5);
    let (mut journal, _) = open(&disk);
    for number in 1..=42 {
        journal.commit(&[record(0, number, 1000), record(5, number, 20)]).unwrap();
        serve(&mut journal, &disk);
        if LIVE.contains(&number) {
            assert!(journal.retain(PartitionId(0), position(number), 1, 1000));
        }
        if number % 10 == 0 && number < 40 {
            journal.write_checkpoint(vec![state(0, number), state(5, number)]).unwrap();
        }
    }
    journal.seal().unwrap();
    disk.copy()
}

/// The result of a replay, in short.
#[derive(Debug, Default, PartialEq, Eq)]
struct Replayed {
    states: Vec<u64>,
    records: BTreeMap<u16, Vec<u64>>,
    lost: Vec<(u16, u64, u64)>,
}

fn replay(salvage: &Salvage<SimulatedDisk>) -> Replayed {
    let mut replayed = Replayed::default();
    for checkpoint in in_memory(&salvage.checkpoints()) {
        assert_eq!(checkpoint, state(checkpoint.partition.0, checkpoint.position.get()));
        replayed.states.push(checkpoint.position.get());
    }
    let shown = salvage.replay::<ReadError>(&mut |met| {
        match met {
            Met::Record(StoredRecord { partition, position, payload }) => {
                let bytes = if partition.0 == 0 { 1000 } else { 20 };
                assert_eq!(payload, stored(partition.0, position.get(), bytes).payload);
                replayed.records.entry(partition.0).or_default().push(position.get());
            }
            Met::Lost(LostRecords { partition, first, last, .. }) => {
                replayed.lost.push((partition.0, first.get(), last.get()));
            }
        }
        Ok(())
    });
    shown.unwrap();
    replayed
}

/// Repairs it, with all live that was, and can be read. Returns the names aside.
fn repair(disk: &SimulatedDisk) -> (SimulatedDisk, Vec<String>) {
    let salvage = Salvage::look(disk.clone()).unwrap();
    let mut last = BTreeMap::from([(0, 0), (5, 0)]);
    for checkpoint in salvage.checkpoints() {
        last.insert(checkpoint.partition.0, checkpoint.position.get());
    }
    let from = last[&0];
    salvage
        .replay::<ReadError>(&mut |met| {
            let (partition, to) = match met {
                Met::Record(record) => (record.partition, record.position),
                Met::Lost(lost) => (lost.partition, lost.last),
            };
            last.insert(partition.0, to.get());
            Ok(())
        })
        .unwrap();
    let live = LIVE.into_iter().filter(|number| *number <= from).chain(from + 1..=42);
    let live = live.map(|number| (PartitionId(0), position(number)));
    let live: Vec<_> = live.filter(|(partition, at)| salvage.has(*partition, *at)).collect();
    let states =
        last.into_iter().filter(|(_, last)| 0 < *last).map(|(partition, last)| state(partition, last));
    let aside = SimulatedDisk::new(1);
    let repaired = salvage.repair(&aside, OPTIONS, states.collect(), live.clone()).unwrap();
    assert_opens(disk, &live);
    (aside, repaired.aside)
}

/// It opens without a word, has all that is live, takes more, and does so a second time and without
/// its newest checkpoint.
fn assert_opens(disk: &SimulatedDisk, live: &[(PartitionId, Position)]) {
    let newest = disk.list().unwrap().into_iter().filter(|name| name.ends_with(".checkpoint")).max().unwrap();
    for lose_newest in [false, true] {
        let disk = disk.copy();
        if lose_newest {
            flip(&disk, &newest, 600);
        }
        let (mut journal, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
        assert_eq!((recovered.damaged.clone(), recovered.torn.clone()), (vec![], None));
        assert_eq!(recovered.skipped_checkpoints.len(), usize::from(lose_newest));
        assert_eq!(recovered.records().count(), 0);
        let counted = live.iter().map(|(_, position)| row(*position, 1000));
        assert_eq!(journal.recount(PartitionId(0), counted), 0, "all of it is there");
        for (partition, position) in live {
            let want = stored(partition.0, position.get(), 1000).payload;
            assert_eq!(journal.read(*partition, *position).unwrap(), want);
        }
        for used in journal.segments().collect::<Vec<_>>() {
            assert_eq!(
                journal.walk(used.number).unwrap().unwrap().run(&mut (), &mut |_| ()).unwrap(),
                vec![]
            );
        }
        let next = journal.last_position(PartitionId(0)).unwrap().next();
        journal.commit(&[record(0, next.get(), 1000)]).unwrap();
        let (_, recovered) = Journal::open(disk.copy(), OPTIONS).unwrap();
        assert_eq!(recovered.records().count(), 1);
    }
}

/// The live records that cannot be read any more.
fn gone(salvage: &Salvage<SimulatedDisk>) -> Vec<u64> {
    let live = LIVE.into_iter().chain(31..=42);
    live.filter(|number| !salvage.has(PartitionId(0), position(*number))).collect()
}

#[test]
fn each_kind_of_damage_costs_what_it_hit_and_nothing_else() {
    let group = |index: usize| 512 + 1536 * index;
    let payload = |number| DamageKind::Payload { position: position(number) };
    let both = "0000000000000002.checkpoint";
    let damaged_newest = "0000000000000003.checkpoint";
    for (name, file, offsets, want_kinds, want_gone, want_lost, want_aside) in [
        ("nothing", FIRST, &[][..], vec![], vec![], vec![], vec![]),
        (
            "a dead record of a sealed segment",
            FIRST,
            &[group(4) + 200],
            vec![payload(5)],
            vec![],
            vec![],
            vec![FIRST],
        ),
        ("a live one", SECOND, &[group(4) + 200], vec![payload(15)], vec![15], vec![], vec![SECOND]),
        (
            "the header of its group",
            FIRST,
            &[group(1) + 9],
            vec![DamageKind::Group],
            vec![],
            vec![],
            vec![FIRST],
        ),
        (
            "its entry in the table of its group",
            FIRST,
            &[group(1) + 70],
            vec![DamageKind::Group],
            vec![2],
            vec![],
            vec![FIRST],
        ),
        (
            "the length in its entry",
            FIRST,
            &[group(1) + 65],
            vec![DamageKind::Group],
            vec![2],
            vec![],
            vec![FIRST],
        ),
        (
            "the entry of another partition's record",
            FIRST,
            &[group(1) + 64 + 24 + 6],
            vec![DamageKind::Group],
            vec![],
            vec![],
            vec![FIRST],
        ),
        (
            "header and record",
            FIRST,
            &[group(1) + 9, group(1) + 200],
            vec![DamageKind::Group],
            vec![2],
            vec![],
            vec![FIRST],
        ),
        (
            "the header of a sealed segment",
            FIRST,
            &[20],
            vec![DamageKind::SegmentHeader],
            vec![],
            vec![],
            vec![FIRST],
        ),
        (
            "a record after the checkpoint",
            FOURTH,
            &[group(1) + 200],
            vec![payload(32)],
            vec![32],
            vec![(0, 32, 32)],
            vec![FOURTH],
        ),
        (
            "its entry",
            FOURTH,
            &[group(1) + 70],
            vec![DamageKind::Group],
            vec![32],
            vec![(0, 32, 32)],
            vec![FOURTH],
        ),
        (
            "the header of its group, after the checkpoint",
            FOURTH,
            &[group(1) + 9],
            vec![DamageKind::Group],
            vec![],
            vec![],
            vec![FOURTH],
        ),
        (
            "header and record, after the checkpoint",
            FOURTH,
            &[group(1) + 9, group(1) + 200],
            vec![DamageKind::Group],
            vec![32],
            vec![(0, 32, 32), (5, 32, 32)],
            vec![FOURTH],
        ),
        (
            "the header that pins the segment before",
            NEWEST,
            &[group(0) + 9],
            vec![DamageKind::Group],
            vec![],
            vec![],
            vec![NEWEST],
        ),
        (
            "the header of the newest segment",
            NEWEST,
            &[20],
            vec![DamageKind::SegmentHeader],
            vec![],
            vec![],
            vec![NEWEST],
        ),
        (
            "the header of the last group, which was sealed",
            NEWEST,
            &[group(1) + 9],
            vec![DamageKind::Group],
            vec![],
            vec![],
            vec![NEWEST],
        ),
        (
            "the last record, which was sealed",
            NEWEST,
            &[group(1) + 200],
            vec![payload(42)],
            vec![42],
            vec![(0, 42, 42)],
            vec![NEWEST],
        ),
        ("the seal itself may be a torn write", NEWEST, &[group(2) + 9], vec![], vec![], vec![], vec![]),
        (
            "the newest checkpoint",
            damaged_newest,
            &[600],
            vec![DamageKind::Checkpoint],
            vec![],
            vec![],
            vec![],
        ),
        ("its header", damaged_newest, &[3], vec![DamageKind::Checkpoint], vec![], vec![], vec![]),
        ("the one before is only looked at if it is needed", both, &[600], vec![], vec![], vec![], vec![]),
    ] {
        let disk = directory();
        offsets.iter().for_each(|offset| flip(&disk, file, *offset));
        let before = disk.contents(file).unwrap();
        let salvage = Salvage::look(disk.clone()).unwrap();
        let kinds: Vec<_> = salvage.damaged().iter().map(|damage| damage.kind).collect();
        assert_eq!(kinds, want_kinds, "case: {name}: {:?}", salvage.damaged());
        assert_eq!(gone(&salvage), want_gone, "case: {name}");
        let replayed = replay(&salvage);
        assert_eq!(replayed.lost, want_lost, "case: {name}");
        let from = if file == damaged_newest { 20 } else { 30 };
        assert_eq!(replayed.states, [from, from], "case: {name}");
        let is_lost = |number: &u64| want_lost.contains(&(0, *number, *number)) || want_gone.contains(number);
        let want: Vec<u64> = (from + 1..=42).filter(|number| !is_lost(number)).collect();
        assert_eq!(replayed.records[&0], want, "case: {name}");
        assert_eq!(disk.contents(file).unwrap(), before, "case: {name}: looking changes nothing");
        let (aside, names) = repair(&disk);
        let mut want_aside: Vec<String> = want_aside.into_iter().map(str::to_owned).collect();
        want_aside.extend(["0000000000000001.checkpoint", both, damaged_newest].map(str::to_owned));
        want_aside.sort();
        assert_eq!(names, want_aside, "case: {name}");
        if names.iter().any(|aside| aside == file) {
            assert_eq!(aside.contents(file).unwrap(), before, "case: {name}: it is kept as it was");
            assert_eq!(disk.contents(file), None, "case: {name}");
        }
    }
}

#[test]
fn what_is_missing_is_told_and_the_rest_goes_on() {
    let checkpoints = ["0000000000000002.checkpoint", "0000000000000003.checkpoint"];
    for (name, files, want_missing, want_gone, want_lost) in [
        ("a sealed segment", &[FIRST][..], 1, vec![2], vec![]),
        ("a sealed segment with nothing live", &[THIRD], 1, vec![25], vec![]),
        ("a segment after the checkpoint", &[FOURTH], 1, (31..=40).collect(), vec![(0, 31, 40), (5, 31, 40)]),
        ("the newest segment", &[NEWEST], 0, vec![41, 42], vec![]),
        ("the newest checkpoint", &checkpoints[1..], 0, vec![], vec![]),
    ] {
        let disk = directory();
        files.iter().for_each(|file| disk.remove(file).unwrap());
        let salvage = Salvage::look(disk.clone()).unwrap();
        let missing = salvage.damaged().iter().filter(|damage| damage.kind == DamageKind::SegmentMissing);
        assert_eq!(missing.count(), want_missing, "case: {name}: {:?}", salvage.damaged());
        assert_eq!(gone(&salvage), want_gone, "case: {name}");
        assert_eq!(replay(&salvage).lost, want_lost, "case: {name}");
        repair(&disk);
    }
}

#[test]
fn without_any_checkpoint_every_record_that_is_left_is_shown() {
    let disk = directory();
    for name in ["0000000000000001.checkpoint", "0000000000000002.checkpoint", "0000000000000003.checkpoint"]
    {
        flip(&disk, name, 600);
    }
    let salvage = Salvage::look(disk.clone()).unwrap();
    let kinds: Vec<_> = salvage.damaged().iter().map(|damage| damage.kind).collect();
    assert_eq!(kinds, [DamageKind::Checkpoint; 3]);
    let replayed = replay(&salvage);
    assert_eq!((replayed.states, replayed.lost), (vec![], vec![]));
    assert_eq!(replayed.records[&0], (1..=42).collect::<Vec<u64>>());
    repair(&disk);
}

#[test]
fn a_group_that_failed_is_void_even_if_what_pins_it_is_gone() {
    let disk = SimulatedDisk::new(9);
    let (mut journal, _) = open(&disk);
    for number in 1..=3 {
        journal.commit(&[record(0, number, 1000)]).unwrap();
    }
    // It is whole on the disk, and its sender got the reply that it is not durable.
    disk.fail(Operation::Sync, 0, Fault::Broken);
    assert!(journal.commit(&[record(0, 4, 500)]).is_err());
    let left = journal.segments().last().unwrap().number;
    journal.reopen().unwrap();
    for number in 4..=6 {
        journal.commit(&[record(0, number, 1000)]).unwrap();
    }
    journal.seal().unwrap();
    let entered = journal.segments().last().unwrap().number;
    assert!(left < entered);
    let disk = disk.copy();
    let name = format!("{:016x}.segment", entered.0);
    flip(&disk, &name, 512 + 9);
    let salvage = Salvage::look(disk).unwrap();
    let replayed = replay(&salvage);
    assert_eq!(replayed.records[&0], (1..=6).collect::<Vec<u64>>());
    assert_eq!(salvage.damaged().len(), 1);
}

#[test]
fn a_damaged_table_costs_the_records_whose_entries_are_damaged() {
    let lengths = [700, 0, 30, 2000, 8, 1, 5000, 64];
    for (name, bad, want) in [
        ("the first", &[0][..], vec![2, 3, 4, 5, 6, 7, 8]),
        ("the last", &[7], vec![1, 2, 3, 4, 5, 6, 7]),
        ("one between", &[3], vec![1, 2, 3, 5, 6, 7, 8]),
        ("what is between two is not known to be where it is", &[2, 5], vec![1, 2, 7, 8]),
        ("all", &[0, 1, 2, 3, 4, 5, 6, 7], vec![]),
    ] {
        for byte in [1, 6, 17] {
            let disk = SimulatedDisk::new(4);
            let (mut journal, _) = open(&disk);
            let group: Vec<_> = (1..).zip(lengths).map(|(number, bytes)| record(0, number, bytes)).collect();
            journal.commit(&group).unwrap();
            journal.seal().unwrap();
            let disk = disk.copy();
            bad.iter().for_each(|row| flip(&disk, FIRST, 512 + 64 + 24 * row + byte));
            let salvage = Salvage::look(disk).unwrap();
            assert_eq!(salvage.damaged().len(), 1, "case: {name}, byte {byte}");
            let mut records = Vec::new();
            let shown = salvage.replay::<ReadError>(&mut |met| {
                if let Met::Record(record) = met {
                    let bytes = lengths[record.position.get() as usize - 1];
                    assert_eq!(record, stored(0, record.position.get(), bytes));
                    records.push(record.position.get());
                }
                Ok(())
            });
            shown.unwrap();
            assert_eq!(records, want, "case: {name}, byte {byte}");
        }
    }
}

#[test]
fn what_the_disk_refuses_to_read_costs_that_and_nothing_else() {
    for nth in (0..60).step_by(4) {
        let disk = directory();
        // A whole stretch cannot be read, and then two of its sectors when they are tried one by
        // one.
        disk.fail(Operation::Read, nth, Fault::Broken);
        disk.fail(Operation::Read, nth + 3, Fault::Broken);
        disk.fail(Operation::Read, nth + 4, Fault::Broken);
        let salvage = Salvage::look(disk.clone()).unwrap();
        disk.clear_faults();
        let lost = gone(&salvage);
        assert!(lost.len() <= 2, "{nth}: {lost:?}");
        let told = !salvage.damaged().is_empty() || salvage.torn().is_some();
        assert!(lost.is_empty() || told, "{nth}: a silent loss of {lost:?}");
        replay(&salvage);
    }
}

#[test]
fn whatever_byte_is_flipped_the_repaired_directory_opens_and_nothing_is_lost_without_a_word() {
    let source = directory();
    for name in source.list().unwrap() {
        let length = source.contents(&name).unwrap().iter().rposition(|&byte| byte != 0).unwrap();
        // Mostly bytes of headers and tables.
        let table = |offset: &usize| (offset % 1536).abs_diff(512) < 160;
        for offset in
            (0..64).chain((512..length).filter(|offset| table(offset) || offset % 97 == 0)).step_by(101)
        {
            let disk = source.copy();
            flip(&disk, &name, offset);
            let salvage = Salvage::look(disk.clone()).unwrap();
            let lost: BTreeSet<u64> = gone(&salvage).into_iter().collect();
            assert!(lost.len() <= 1, "{name} at {offset}: one group has one of them: {lost:?}");
            let told = !salvage.damaged().is_empty() || salvage.torn().is_some();
            assert!(lost.is_empty() || told, "{name} at {offset}: a silent loss of {lost:?}");
            replay(&salvage);
            repair(&disk);
        }
    }
}

#[test]
fn a_repair_that_is_cut_short_can_be_done_again() {
    let source = directory();
    flip(&source, FOURTH, 512 + 1536 + 200);
    flip(&source, FIRST, 512 + 9);
    for operation in [Operation::Write, Operation::Sync, Operation::SyncDirectory, Operation::Rename] {
        for nth in 0..20 {
            let disk = source.copy();
            disk.fail(operation, nth, Fault::Broken);
            let salvage = Salvage::look(disk.clone()).unwrap();
            let aside = SimulatedDisk::new(1);
            let live = LIVE.into_iter().chain(31..=42).map(|number| (PartitionId(0), position(number)));
            let live: Vec<_> = live.filter(|(partition, at)| salvage.has(*partition, *at)).collect();
            let done = salvage.repair(&aside, OPTIONS, vec![state(0, 42), state(5, 42)], live.clone());
            disk.clear_faults();
            disk.crash();
            if done.is_err() && Salvage::look(disk.clone()).unwrap().damaged().is_empty() {
                // It was as good as done.
                continue;
            }
            if done.is_err() {
                assert_eq!(gone(&Salvage::look(disk.clone()).unwrap()), [32], "{operation:?} {nth}");
                repair(&disk);
            } else {
                assert_opens(&disk, &live);
            }
        }
    }
}
