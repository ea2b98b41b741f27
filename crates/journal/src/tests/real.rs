//! The room on a directory of the operating system.

use super::service::{OPTIONS, position, record, stored};
use crate::{Checkpoint, CommitError, Journal, OpenError, Options, RealDisk, Space, Ways};
use postroad_model::PartitionId;

#[test]
fn a_directory_keeps_what_was_committed_and_belongs_to_one_process() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("new/journal");
    let want: Vec<_> = (1..=30).map(|number| stored(0, number, 900)).collect();
    let disk = RealDisk::open(&path).unwrap();
    let (mut journal, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
    assert_eq!(recovered.records().count(), 0);
    for number in 1..=30 {
        journal.commit(&[record(0, number, 900)]).unwrap();
        if let Some(request) = journal.wants_segment() {
            let disk = disk.clone();
            journal.provide(std::thread::spawn(move || request.prepare(&disk, &mut ())).join().unwrap());
        }
    }
    let owner = Some(std::process::id());
    assert!(matches!(RealDisk::open(&path), Err(OpenError::Locked { pid, .. }) if pid == owner));
    drop((journal, recovered, disk));
    let (mut journal, recovered) = Journal::open(RealDisk::open(&path).unwrap(), OPTIONS).unwrap();
    let records: Vec<_> = recovered.records().map(|record| record.unwrap()).collect();
    assert_eq!(records, want);
    for stored in &want {
        assert_eq!(journal.read(stored.partition, stored.position).unwrap(), stored.payload);
    }
}

#[test]
fn whoever_looks_makes_nothing_and_keeps_writers_out() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("journal");
    assert!(matches!(RealDisk::open_to_look(&path), Err(OpenError::Io { .. })));
    assert!(!path.exists());
    drop(RealDisk::open(&path).unwrap());
    let looking = RealDisk::open_to_look(&path).unwrap();
    let owner = Some(std::process::id());
    assert!(matches!(RealDisk::open(&path), Err(OpenError::Locked { pid, .. }) if pid == owner));
    drop(looking);
    RealDisk::open(&path).unwrap();
}

#[test]
fn a_directory_is_read_however_it_was_written() {
    let directory = tempfile::tempdir().unwrap();
    let mut number = 0;
    for way in 0..16 {
        let ways = Ways { direct: way & 1 == 0, one_call: way & 2 == 0, zeroed: way & 4 == 0 };
        let disk = RealDisk::open(directory.path()).unwrap().written(ways);
        let (mut journal, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
        let records: Vec<_> = recovered.records().map(|record| record.unwrap()).collect();
        let want: Vec<_> = (1..=number).map(|number| stored(0, number, 900)).collect();
        assert_eq!((records, recovered.torn), (want, None), "before {ways:?}");
        for round in 0..12 {
            number += 1;
            // Some are made durable by those after them, across segments.
            match round % 3 {
                0 => journal.commit(&[record(0, number, 900)]).unwrap(),
                _ => journal.append(&[record(0, number, 900)]).unwrap(),
            }
            if let Some(request) = journal.wants_segment() {
                journal.provide(request.prepare(&disk, &mut ()));
            }
        }
        journal.sync().unwrap();
        let kept = stored(0, number, 900);
        assert_eq!(journal.read(kept.partition, kept.position).unwrap(), kept.payload, "{ways:?}");
    }
}

#[test]
fn a_limit_leaves_what_it_leaves_and_is_told_when_it_is_reached() {
    let directory = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(directory.path()).unwrap().limited(Some(200 << 10));
    let options = Options {
        segment_bytes: 64 << 10,
        checkpoint_bytes: 1 << 20,
        dead_segments_max: 2,
        checkpoint_share: 0,
    };
    let (mut journal, _) = Journal::open(disk.clone(), options).unwrap();
    let mut number = 0;
    let refused = loop {
        number += 1;
        match journal.commit(&[record(0, number, 20_000)]) {
            Ok(()) => {}
            Err(refused) => break refused,
        }
        if let Some(request) = journal.wants_segment() {
            journal.provide(request.prepare(&disk, &mut ()));
        }
    };
    assert!(matches!(refused, CommitError::NoSpace { .. }), "{refused:?}");
    let used: u64 = std::fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!((128 << 10..=200 << 10).contains(&used) && 6 <= number, "{used} bytes, {number} records");
    assert_eq!(journal.space(), Space::Low);
    drop((journal, disk));
    // Without the limit it goes on.
    let disk = RealDisk::open(directory.path()).unwrap();
    let (mut journal, _) = Journal::open(disk, options).unwrap();
    journal.commit(&[record(0, number, 20_000)]).unwrap();
}

#[test]
fn nobody_writes_to_a_file_that_a_backup_has() {
    let parent = tempfile::tempdir().unwrap();
    let disk = RealDisk::open(parent.path().join("data")).unwrap();
    let options = Options {
        segment_bytes: 64 << 10,
        checkpoint_bytes: 1 << 20,
        dead_segments_max: 4,
        checkpoint_share: 0,
    };
    let (mut journal, _) = Journal::open(disk.clone(), options).unwrap();
    let mut number = 0;
    let mut fill = |journal: &mut Journal<RealDisk>, records: u64| {
        for _ in 0..records {
            number += 1;
            journal.commit(&[record(0, number, 9000)]).unwrap();
            if let Some(request) = journal.wants_segment() {
                journal.provide(request.prepare(&disk, &mut ()));
            }
        }
        let state = Checkpoint {
            partition: PartitionId(0),
            position: position(number),
            state: bytes::Bytes::new().into(),
        };
        journal.write_checkpoint(vec![state]).unwrap();
        number
    };
    let before = fill(&mut journal, 40);
    let copy = parent.path().join("copy");
    let elsewhere = RealDisk::open(&copy).unwrap();
    let backup = journal.begin_backup(&elsewhere).unwrap();
    // Everything the backup has is recycled here before it is whole.
    for _ in 0..4 {
        fill(&mut journal, 40);
    }
    backup.finish(&elsewhere).unwrap();
    drop(elsewhere);
    for round in 0..2 {
        let disk = RealDisk::open(&copy).unwrap();
        let (mut journal, recovered) = Journal::open(disk.clone(), options).unwrap();
        assert_eq!((recovered.damaged, recovered.torn), (vec![], None), "round {round}");
        let last = before + round * 40;
        assert_eq!(journal.last_position(PartitionId(0)), Some(position(last)), "round {round}");
        // The backup goes its own way, and the journal that it was made of is none the worse for
        // that.
        for number in last + 1..=last + 40 {
            journal.commit(&[record(0, number, 9000)]).unwrap();
        }
    }
    drop((journal, disk));
    let (_, recovered) = Journal::open(RealDisk::open(parent.path().join("data")).unwrap(), options).unwrap();
    assert_eq!((recovered.damaged, recovered.torn), (vec![], None));
}

#[test]
fn a_directory_that_is_not_where_it_was_is_told_until_it_is_back() {
    let home = tempfile::tempdir().unwrap();
    let (first, second, link) = (home.path().join("1"), home.path().join("2"), home.path().join("link"));
    std::fs::create_dir(&second).unwrap();
    let journal_at =
        |path: &std::path::Path| Journal::open(RealDisk::open(path).unwrap(), OPTIONS).unwrap().0;
    drop(journal_at(&first));
    std::os::unix::fs::symlink(&first, &link).unwrap();
    let mut journal = journal_at(&link);
    journal.commit(&[record(0, 1, 900)]).unwrap();
    let said = |journal: &Journal<RealDisk>| {
        journal.check_place().map_err(|error| error.to_string().rsplit(": ").next().unwrap().to_owned())
    };
    let point_to = |target: &std::path::Path| {
        std::fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(target, &link).unwrap();
    };
    let gone = Err("the directory was removed with all of its data".to_owned());
    for (case, target, want) in [
        ("it is there", &first, Ok(())),
        ("nothing is there", &home.path().join("none"), gone),
        ("another one", &second, Err("another directory is in its place".to_owned())),
        (
            "a file in the way",
            &first.join("LOCK/d"),
            Err("the directory was removed with all of its data".to_owned()),
        ),
        ("it cannot be looked at", &link, Ok(())),
        ("it is there again", &first, Ok(())),
    ] {
        point_to(target);
        assert_eq!(said(&journal), want, "case: {case}");
    }
    journal.commit(&[record(0, 2, 900)]).unwrap();
    std::fs::remove_file(first.join("0000000000000001.segment")).unwrap();
    assert_eq!(said(&journal), Err("the file was removed".to_owned()));
}
