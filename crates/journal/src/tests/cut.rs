//! Groups that were never committed by a majority are cut off, and do not come back.

use super::service::{OPTIONS, open, position, record, serve, stored};
use crate::{
    Checkpoint, CutError, Fault, Journal, Operation, ReadError, Record, SimulatedDisk, StoredRecord,
};
use postroad_model::PartitionId;

/// Groups of a record of each of two partitions, `from` to `through`.
fn commit(disk: &SimulatedDisk, from: u64, through: u64) -> Journal<SimulatedDisk> {
    let (mut journal, _) = open(disk);
    for number in from..=through {
        journal.commit(&[record(0, number, 1000), record(5, number, 50)]).unwrap();
        serve(&mut journal, disk);
    }
    journal
}

fn groups(through: u64) -> Vec<StoredRecord> {
    (1..=through).flat_map(|number| [stored(0, number, 1000), stored(5, number, 50)]).collect()
}

#[test]
fn what_is_cut_off_does_not_come_back_and_its_positions_are_given_again() {
    for (all, kept) in [(3, 1), (40, 39), (40, 30), (40, 1), (40, 40)] {
        let disk = SimulatedDisk::new(all + kept);
        commit(&disk, 1, all).cut_behind(PartitionId(5), position(kept)).unwrap();
        disk.crash();
        assert_eq!(open(&disk).1, groups(kept), "{kept} of {all}");
        // As many as there were, so that they come to the same places.
        let (mut journal, _) = open(&disk);
        for number in kept + 1..=all + 3 {
            journal.commit(&[record(0, number, 1000), record(5, number, 50)]).unwrap();
            serve(&mut journal, &disk);
        }
        for number in 1..=all + 3 {
            let payload = journal.read(PartitionId(0), position(number)).unwrap();
            assert_eq!(payload, stored(0, number, 1000).payload, "{kept} of {all}");
        }
        disk.crash();
        assert_eq!(open(&disk).1, groups(all + 3), "{kept} of {all}");
        commit(&disk, all + 4, all + 5).cut_behind(PartitionId(0), position(all + 4)).unwrap();
        assert_eq!(open(&disk).1, groups(all + 4), "cut again");
    }
}

#[test]
fn a_disk_that_dies_meanwhile_leaves_all_or_what_is_to_stay() {
    let (mut whole, mut cut) = (0, 0);
    for seed in 0..400 {
        let disk = SimulatedDisk::new(seed);
        let journal = commit(&disk, 1, 30);
        disk.fail(Operation::Any, seed % 20, Fault::Dead);
        let done = journal.cut_behind(PartitionId(0), position(12)).is_ok();
        if seed % 2 == 0 {
            disk.crash()
        } else {
            disk.restart()
        }
        disk.clear_faults();
        let found = open(&disk).1;
        assert!(found == groups(12) || !done && found == groups(30), "seed {seed}: {done}, {}", found.len());
        (whole, cut) = (whole + u64::from(found.len() == 60), cut + u64::from(found.len() == 24));
        if found.len() == 60 {
            open(&disk).0.cut_behind(PartitionId(0), position(12)).unwrap();
        }
        disk.crash();
        assert_eq!(open(&disk).1, groups(12), "seed {seed}");
    }
    assert!(whole > 20 && cut > 20, "{whole} whole, {cut} cut");
}

#[test]
fn what_a_checkpoint_knows_is_not_cut_off() {
    let disk = SimulatedDisk::new(1);
    let mut journal = commit(&disk, 1, 20);
    let state = |partition, number| Checkpoint {
        partition: PartitionId(partition),
        position: position(number),
        state: bytes::Bytes::from("state").into(),
    };
    journal.write_checkpoint(vec![state(0, 10), state(5, 10)]).unwrap();
    let refused = journal.cut_behind(PartitionId(0), position(19));
    assert!(matches!(refused, Err(CutError::Checkpointed { .. })), "{refused:?}");
    // It knows that there are 20, though its states are those of 10.
    let refused = open(&disk).0.cut_behind(PartitionId(0), position(15));
    assert!(matches!(refused, Err(CutError::Checkpointed { .. })), "{refused:?}");
    commit(&disk, 21, 30).cut_behind(PartitionId(0), position(20)).unwrap();
    assert_eq!(open(&disk).0.last_position(PartitionId(5)), Some(position(20)));
    let unknown = open(&disk).0.cut_behind(PartitionId(0), position(21));
    assert!(matches!(unknown, Err(CutError::Unreadable(ReadError::NotFound { .. }))), "{unknown:?}");
}

#[test]
fn a_group_is_read_whole_by_any_of_its_records() {
    let disk = SimulatedDisk::new(1);
    let mut journal = commit(&disk, 1, 40);
    let frees = Record { reserve: true, ..record(5, 42, 0) };
    let last = vec![record(5, 41, 10), frees, record(0, 41, 9000)];
    journal.append(&last).unwrap();
    for number in 1..=40 {
        let group = vec![record(0, number, 1000), record(5, number, 50)];
        for partition in [0, 5] {
            assert_eq!(journal.read_group(PartitionId(partition), position(number)).unwrap(), group);
        }
    }
    for (partition, number) in [(5, 41), (5, 42), (0, 41)] {
        assert_eq!(journal.read_group(PartitionId(partition), position(number)).unwrap(), last);
    }
    let missing = journal.read_group(PartitionId(0), position(42));
    assert!(matches!(missing, Err(ReadError::NotFound { .. })));
    drop(journal);
    let (journal, _) = Journal::open(disk, OPTIONS).unwrap();
    assert_eq!(journal.read_group(PartitionId(5), position(3)).unwrap().len(), 2);
}

#[test]
fn groups_are_read_on_from_one_to_the_end_of_their_segment() {
    let disk = SimulatedDisk::new(1);
    let mut journal = commit(&disk, 1, 40);
    journal.seal().unwrap();
    let group = |number| vec![record(0, number, 1000), record(5, number, 50)];
    let mut next = 1;
    let mut looks = 0;
    while next <= 40 {
        let groups = journal.read_groups(PartitionId(5), position(next), u64::MAX).unwrap();
        let read = groups.len() as u64;
        assert_eq!(groups, (next..next + read).map(group).collect::<Vec<_>>(), "from {next}");
        (next, looks) = (next + read, looks + 1);
    }
    assert!((2..=8).contains(&looks), "one look at each segment, not {looks}");
    let few = journal.read_groups(PartitionId(5), position(3), 2000).unwrap();
    assert_eq!(few, [group(3), group(4)], "until there are as many bytes");
}

#[test]
fn segments_that_other_replicas_need_stay_whole() {
    let meta = PartitionId(5);
    let state = |partition, number| Checkpoint {
        partition: PartitionId(partition),
        position: position(number),
        state: bytes::Bytes::from("state").into(),
    };
    for (case, floor, live) in [("nothing is live", 12, false), ("something is live in each", 12, true)] {
        let disk = SimulatedDisk::new(1);
        let (mut journal, _) = open(&disk);
        journal.keep_from(meta, position(floor));
        for number in 1..=60 {
            journal.commit(&[record(0, number, 1000), record(5, number, 50)]).unwrap();
            if live && number % 8 == 0 {
                assert!(journal.retain(PartitionId(0), position(number), 1, 1000));
            }
            serve(&mut journal, &disk);
        }
        for _ in 0..4 {
            journal.write_checkpoint(vec![state(0, 60), state(5, 60)]).unwrap();
            while let Some(request) = journal.wants_compaction() {
                journal.finish_compaction(request.run(&disk, &mut ())).unwrap();
            }
        }
        let first = journal.first_whole(meta, u64::MAX).unwrap();
        assert!(first <= position(floor) && position(1) < first, "{case}: {first:?}");
        for number in floor..=60 {
            assert_eq!(journal.read_group(meta, position(number)).unwrap().len(), 2, "{case}: {number}");
        }
        assert!(
            journal.read_group(meta, position(1)).is_err(),
            "{case}: below the floor nothing is kept for it"
        );
        // The floor rises: segments below go with the next checkpoints.
        journal.keep_from(meta, position(50));
        for _ in 0..3 {
            journal.write_checkpoint(vec![state(0, 60), state(5, 60)]).unwrap();
            while let Some(request) = journal.wants_compaction() {
                journal.finish_compaction(request.run(&disk, &mut ())).unwrap();
            }
        }
        let risen = journal.first_whole(meta, u64::MAX).unwrap();
        assert!(first < risen && risen <= position(50), "{case}: {risen:?}");
        let within = journal.first_whole(meta, 1).unwrap();
        assert!(risen <= within && within <= position(60), "{case}: {within:?}");
    }
}
