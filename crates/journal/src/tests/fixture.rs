//! Kept directories of format version 1 under `fixtures/journal`: whatever becomes of the code, these open like this.

use super::service::{OPTIONS, open, position, record, serve, stored};
use crate::{Checkpoint, DamageKind, Disk, Journal, OpenError, SimulatedDisk};
use bytes::Bytes;
use postroad_model::PartitionId;
use std::fs;
use std::path::{Path, PathBuf};

fn directory(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/journal").join(name)
}

fn load(name: &str) -> SimulatedDisk {
    let disk = SimulatedDisk::new(1);
    for entry in fs::read_dir(directory(name)).unwrap() {
        let entry = entry.unwrap();
        disk.set_contents(entry.file_name().to_str().unwrap(), fs::read(entry.path()).unwrap());
    }
    disk
}

fn store(name: &str, disk: &SimulatedDisk) {
    fs::create_dir_all(directory(name)).unwrap();
    for file in disk.list().unwrap() {
        fs::write(directory(name).join(&file), disk.contents(&file).unwrap()).unwrap();
    }
}

fn state(partition: u16, number: u64) -> Checkpoint {
    let state = Bytes::from(format!("state of {partition} at {number}"));
    Checkpoint { partition: PartitionId(partition), position: position(number), state }
}

const CHANGED_SEGMENT: &str = "0000000000000003.segment";
const CHANGED_CHECKPOINT: &str = "0000000000000002.checkpoint";

/// Run by hand when a new format version is made, never to change an old fixture.
#[test]
#[ignore = "writes fixtures/journal"]
fn make_fixtures() {
    let disk = SimulatedDisk::new(1);
    let (mut journal, _) = open(&disk);
    for number in 1..=24 {
        journal.commit(&[record(0, number, 1000), record(5, number, 50)]).unwrap();
        serve(&mut journal, &disk);
        assert!(journal.retain(PartitionId(0), position(number), 1, 1000));
        if number % 8 == 0 && number < 24 {
            journal.write_checkpoint(vec![state(0, number), state(5, number - 1)]).unwrap();
        }
    }
    let version_1 = disk.copy();
    store("version-1", &version_1);
    for (name, file, change) in [
        ("damaged-payload", CHANGED_SEGMENT, 700),
        ("damaged-group", CHANGED_SEGMENT, 520),
        ("damaged-checkpoint", CHANGED_CHECKPOINT, 530),
    ] {
        let broken = version_1.copy();
        let mut bytes = broken.contents(file).unwrap();
        bytes[change] ^= 1;
        broken.set_contents(file, bytes);
        store(name, &broken);
    }
    let newer = version_1.copy();
    let mut bytes = newer.contents(CHANGED_SEGMENT).unwrap();
    bytes[8] = 2;
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..512]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    newer.set_contents(CHANGED_SEGMENT, bytes);
    store("newer-version", &newer);
}

#[test]
fn a_directory_of_version_1_opens() {
    for (name, checkpointed, skipped) in [("version-1", 16, 0), ("damaged-checkpoint", 8, 1)] {
        let (mut journal, recovered) = Journal::open(load(name), OPTIONS).unwrap();
        let want_states = vec![state(0, checkpointed), state(5, checkpointed - 1)];
        assert_eq!(recovered.checkpoints, want_states, "case: {name}");
        assert_eq!(
            (recovered.skipped_checkpoints.len(), recovered.torn.clone()),
            (skipped, None),
            "case: {name}"
        );
        let records: Vec<_> = recovered.records().map(|record| record.unwrap()).collect();
        let mut want = vec![stored(5, checkpointed, 50)];
        want.extend(
            (checkpointed + 1..=24).flat_map(|number| [stored(0, number, 1000), stored(5, number, 50)]),
        );
        assert_eq!(records, want, "case: {name}");
        for number in 1..=24 {
            let payload = journal.read(PartitionId(0), position(number)).unwrap();
            assert_eq!(payload, stored(0, number, 1000).payload, "case: {name}");
        }
        let live: u64 = journal.segments().map(|segment| segment.live_messages).sum();
        assert_eq!(live, checkpointed, "case: {name}: counted up to the checkpoint");
        journal.commit(&[record(0, 25, 10)]).unwrap();
    }
}

#[test]
fn a_broken_directory_of_version_1_is_refused_or_stops_a_partition() {
    let (_, recovered) = Journal::open(load("damaged-payload"), OPTIONS).unwrap();
    let kinds: Vec<_> = recovered.damaged.iter().map(|damage| (damage.partition, damage.kind)).collect();
    assert_eq!(kinds, vec![(Some(PartitionId(0)), DamageKind::Payload { position: position(21) })]);
    assert_eq!(recovered.checkpoints, vec![state(5, 15)]);
    match Journal::open(load("damaged-group"), OPTIONS) {
        Err(OpenError::Damaged(damage)) => {
            assert_eq!(
                damage.to_string(),
                format!("{CHANGED_SEGMENT}: damaged at byte 512: no valid group, though later ones exist")
            );
        }
        other => panic!("{other:?}"),
    }
    let error = Journal::open(load("newer-version"), OPTIONS).unwrap_err();
    assert_eq!(error.to_string(), format!("{CHANGED_SEGMENT}: format version 2, this program knows 1"));
}
