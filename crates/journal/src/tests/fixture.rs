//! Kept directories under `fixtures/journal`: whatever becomes of the code, these open like this.
//! After a deliberate change of the format, `cargo test -p postroad-journal --lib make_ --
//! --ignored` writes them again.

use super::compaction::{PARTITION, kept, pass_through};
use super::encryption::key;
use super::in_memory;
use super::service::{OPTIONS, open, payload, position, read_near, record, row, serve, stored};
use crate::layout::format::{segment_name, sorted_of};
use crate::{
    Checkpoint, DamageKind, Disk, FORMAT_VERSION, Journal, KeySet, Keys, OpenError, Record, SimulatedDisk,
};
use bytes::Bytes;
use postroad_model::PartitionId;
use std::collections::BTreeSet;
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
    let state = Bytes::from(format!("state of {partition} at {number}")).into();
    Checkpoint { partition: PartitionId(partition), position: position(number), state }
}

const CHANGED_SEGMENT: &str = "0000000000000003.segment";
const CHECKPOINT: &str = "0000000000000002.checkpoint";

/// A plain directory; the same with a bit flipped in three places; and with three groups at the end
/// that were never synced, of which a power cut took the second.
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
    store("plain", &disk);
    for (name, file, offset) in [
        ("damaged-checkpoint", CHECKPOINT, 530),
        ("damaged-payload", CHANGED_SEGMENT, 700),
        ("damaged-group", CHANGED_SEGMENT, 520),
    ] {
        let damaged = disk.copy();
        let mut bytes = damaged.contents(file).unwrap();
        bytes[offset] ^= 1;
        damaged.set_contents(file, bytes);
        store(name, &damaged);
    }
    for number in 25..=27 {
        journal.append(&[record(0, number, 1000)]).unwrap();
    }
    let torn = disk.copy();
    let (name, group) = (segment_name(journal.last.segment), journal.last.offset as usize - 2 * 1536);
    let mut bytes = torn.contents(&name).unwrap();
    bytes[group..group + 512].fill(0);
    torn.set_contents(&name, bytes);
    store("torn-tail", &torn);
}

#[test]
fn a_directory_opens_without_the_tail_that_a_power_cut_took() {
    let disk = load("torn-tail");
    let (mut journal, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
    let cut = journal.last.offset;
    assert_eq!(recovered.torn.as_ref().map(|torn| torn.offset), Some(cut));
    let last = recovered.records().map(|record| record.unwrap()).last().unwrap();
    assert_eq!(last, stored(0, 25, 1000));
    // The third group is intact after the lost one, and must not come back after another of the
    // same size in its place.
    journal.commit(&[record(0, 26, 1000)]).unwrap();
    let (_, recovered) = Journal::open(disk, OPTIONS).unwrap();
    assert_eq!(recovered.torn, None);
    assert_eq!(recovered.records().map(|record| record.unwrap()).last(), Some(stored(0, 26, 1000)));
}

#[test]
fn a_plain_directory_opens() {
    for (name, checkpointed, skipped) in [("plain", 16, 0), ("damaged-checkpoint", 8, 1)] {
        let (mut journal, recovered) = Journal::open(load(name), OPTIONS).unwrap();
        let want_states = vec![state(0, checkpointed), state(5, checkpointed - 1)];
        assert_eq!(in_memory(&recovered.checkpoints), want_states, "case: {name}");
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
fn a_broken_directory_is_refused_or_stops_a_partition() {
    let (_, recovered) = Journal::open(load("damaged-payload"), OPTIONS).unwrap();
    let kinds: Vec<_> = recovered.damaged.iter().map(|damage| (damage.partition, damage.kind)).collect();
    assert_eq!(kinds, vec![(Some(PartitionId(0)), DamageKind::Payload { position: position(21) })]);
    assert_eq!(in_memory(&recovered.checkpoints), vec![state(5, 15)]);
    match Journal::open(load("damaged-group"), OPTIONS) {
        Err(OpenError::Damaged(damage)) => {
            assert_eq!(
                damage.to_string(),
                format!("{CHANGED_SEGMENT}: damaged at byte 512: no valid group, though later ones exist")
            );
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_directory_of_the_next_version_is_refused() {
    for (name, file) in [
        ("plain", CHANGED_SEGMENT),
        ("plain", "0000000000000002.checkpoint"),
        ("torn-tail", "0000000000000002.checkpoint"),
        ("indexed", "0000000000000008.checkpoint"),
        ("indexed", "0000000000000004-0000000000000008-0000000000000007.compacted"),
    ] {
        let disk = load(name);
        let mut bytes = disk.contents(file).unwrap();
        bytes[8] = FORMAT_VERSION as u8 + 1;
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..512]);
        bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
        disk.set_contents(file, bytes);
        let error = Journal::open(disk, OPTIONS).unwrap_err().to_string();
        let (next, known) = (FORMAT_VERSION + 1, FORMAT_VERSION);
        assert_eq!(
            error,
            format!("{file}: format version {next}, this build reads version {known}"),
            "{name}"
        );
    }
}

/// With a key from record 9 on and another from record 17 on, and a tenant's for every third.
#[test]
#[ignore = "writes fixtures/journal"]
fn make_encrypted_fixture() {
    let disk = SimulatedDisk::new(3);
    for (keys, numbers) in
        [(Keys::default(), 1..=8), (encrypted(Some(1), &[]), 9..=16), (encrypted(Some(2), &[1]), 17..=24)]
    {
        let tenant = keys.current().map(|_| key(100).id());
        let (mut journal, _) = Journal::open_with(disk.clone(), OPTIONS, keys, &mut |_, _| ()).unwrap();
        for number in numbers {
            let own = tenant.filter(|_| number % 3 == 0);
            let first = Record { key: own, ..record(0, number, 1000) };
            journal.commit(&[first, record(5, number, 50)]).unwrap();
            serve(&mut journal, &disk);
            assert!(journal.retain(PartitionId(0), position(number), 1, 1000));
        }
        let last = journal.last_position(PartitionId(0)).unwrap().get();
        if last < 24 {
            journal.write_checkpoint(vec![state(0, last), state(5, last - 1)]).unwrap();
        }
    }
    store("encrypted", &disk);
}

/// The journal's keys, and a tenant's.
fn encrypted(current: Option<u8>, former: &[u8]) -> Keys {
    let own = KeySet { current: current.map(key), former: former.iter().copied().map(key).collect() };
    Keys::new(own, [KeySet { current: Some(key(100)), former: Vec::new() }])
}

#[test]
fn an_encrypted_directory_opens_with_its_keys() {
    let keys = encrypted(Some(2), &[1]);
    let opened = Journal::open_with(load("encrypted"), OPTIONS, keys, &mut |_, _| ());
    let (mut journal, recovered) = opened.unwrap();
    assert_eq!((&recovered.damaged, &recovered.torn), (&vec![], &None));
    assert_eq!(in_memory(&recovered.checkpoints), vec![state(0, 16), state(5, 15)]);
    let records: Vec<_> = recovered.records().map(|record| record.unwrap()).collect();
    let want = (16..=24).flat_map(|number| [stored(0, number, 1000), stored(5, number, 50)]).skip(1);
    assert_eq!(records, want.collect::<Vec<_>>());
    for number in 1..=24 {
        let payload = journal.read(PartitionId(0), position(number)).unwrap();
        assert_eq!(payload, stored(0, number, 1000).payload);
    }
    let ids = [None, Some(key(1).id()), Some(key(2).id()), Some(key(100).id())];
    assert_eq!(journal.bytes_by_key().into_keys().collect::<BTreeSet<_>>(), BTreeSet::from(ids));
    let error = Journal::open(load("encrypted"), OPTIONS).unwrap_err().to_string();
    let want = "0000000000000002.checkpoint: encrypted with key ";
    assert!(error.starts_with(want) && error.ends_with(", and no key is given"), "{error}");
}

/// With indexes beside complete segments, and a compacted segment.
#[test]
#[ignore = "writes fixtures/journal"]
fn make_indexed_fixture() {
    let disk = SimulatedDisk::new(4);
    let (mut journal, _) = open(&disk);
    pass_through(&mut journal, &disk, 1..=130);
    store("indexed", &disk);
}

#[test]
fn a_directory_with_indexes_and_a_compacted_segment_opens() {
    let disk = load("indexed");
    let indexes = |disk: &SimulatedDisk| {
        let names = disk.list().unwrap().into_iter().filter(|name| name.ends_with(".index"));
        names.map(|name| (disk.contents(&name).unwrap(), name)).collect::<Vec<_>>()
    };
    let of_then = indexes(&disk);
    assert!(!of_then.is_empty() && disk.list().unwrap().iter().any(|name| name.ends_with(".compacted")));
    let (mut journal, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
    assert_eq!((&recovered.damaged, &recovered.torn), (&vec![], &None));
    assert_eq!(journal.recount(PARTITION, kept(130).map(|number| row(position(number), 1000))), 0);
    for number in kept(130) {
        assert_eq!(journal.read(PARTITION, position(number)).unwrap(), payload(0, number, 1000));
    }
    assert_eq!(indexes(&disk), of_then, "they are as this version would make them");
}

/// Records come in turns for eight addresses.
fn sort_key(payload: &[u8]) -> u32 {
    u32::from(payload.first().copied().unwrap_or(0) % 8)
}

/// With sorted copies of the segments that are complete, their records in bundles.
#[test]
#[ignore = "writes fixtures/journal"]
fn make_sorted_fixture() {
    let disk = SimulatedDisk::new(5);
    let (mut journal, _) = open(&disk);
    journal.sort_by(sort_key, 8 << 10);
    for number in 1..=48 {
        journal.commit(&[record(0, number, 700), record(5, number, 20)]).unwrap();
        assert!(journal.retain(PARTITION, position(number), 1, 700));
        serve(&mut journal, &disk);
    }
    while let Some(request) = journal.wants_sorting() {
        journal.finish_sorting(request.run(&disk, &mut ())).unwrap();
    }
    store("sorted", &disk);
}

#[test]
fn a_directory_with_sorted_copies_opens_and_is_read_from_them() {
    let disk = load("sorted");
    let copies: Vec<_> = disk.names().iter().filter_map(|name| sorted_of(name)).collect();
    assert_eq!(copies.len(), 3);
    let (mut journal, recovered) = Journal::open(disk.clone(), OPTIONS).unwrap();
    assert_eq!((&recovered.damaged, &recovered.torn), (&vec![], &None));
    assert_eq!(journal.recount(PARTITION, (1..=48).map(|number| row(position(number), 700))), 0);
    let wanted: Vec<_> = (1..=48)
        .filter(|number| journal.sorted_copy(PARTITION, position(*number)).is_some())
        .map(|number| (PARTITION, position(number)))
        .collect();
    assert!(24 <= wanted.len(), "{} records are in copies", wanted.len());
    for (number, _) in copies {
        // The segment itself is not looked at.
        let name = segment_name(number);
        let mut bytes = disk.contents(&name).unwrap();
        bytes[512..].fill(0);
        disk.set_contents(&name, bytes);
    }
    let mut got = read_near(&mut journal, &wanted).1;
    got.sort_by_key(|(at, _)| *at);
    let want: Vec<_> = wanted.iter().map(|&(_, at)| (at, Ok(payload(0, at.get(), 700)))).collect();
    assert_eq!(got, want);
}
