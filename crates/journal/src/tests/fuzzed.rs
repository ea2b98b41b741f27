//! The fuzz target's edits with their checksums put right, from a seed: random bytes after valid
//! checksums.

use super::in_memory;
use super::service::{OPTIONS, open, position, record};
use super::simulation::Random;
use crate::{Checkpoint, Disk, Journal, Met, ReadError, Salvage, SimulatedDisk};
use bytes::Bytes;
use postroad_model::PartitionId;

fn reseal(bytes: &mut [u8]) {
    if bytes.starts_with(b"PR-CHKPT") {
        let length = u64::from_le_bytes(bytes[24..32].try_into().unwrap()) as usize;
        let body = bytes.get(512..512_usize.saturating_add(length)).map(crc32c::crc32c);
        bytes[32..36].copy_from_slice(&body.unwrap_or(0).to_le_bytes());
    }
    let header = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..512]);
    bytes[12..16].copy_from_slice(&header.to_le_bytes());
    for offset in (512..bytes.len()).step_by(512) {
        let group = &mut bytes[offset..];
        if group.starts_with(b"PRGR") {
            let count = u32::from_le_bytes(group[56..60].try_into().unwrap()) as usize;
            if let Some(table) = group.get(64..64 + count.saturating_mul(24)) {
                let checksum = crc32c::crc32c(table).to_le_bytes();
                group[60..64].copy_from_slice(&checksum);
            }
            let checksum =
                crc32c::crc32c_append(crc32c::crc32c(&group[8..64]), &(offset as u64).to_le_bytes());
            group[4..8].copy_from_slice(&checksum.to_le_bytes());
        }
    }
}

/// Fourteen groups of two records each, with a checkpoint in the middle.
fn written() -> SimulatedDisk {
    let source = SimulatedDisk::new(9);
    let (mut journal, _) = open(&source);
    for number in 1..=14 {
        journal.commit(&[record(0, number, 1200), record(1, number, 8)]).unwrap();
        if number == 6 {
            let state = |partition| Checkpoint {
                partition: PartitionId(partition),
                position: record(0, number, 0).position,
                state: Bytes::from_static(b"state").into(),
            };
            journal.write_checkpoint(vec![state(0), state(1)]).unwrap();
        }
    }
    source.copy()
}

/// Opens it, reads all records of both partitions and commits one more; false if it cannot be
/// opened.
fn use_it(disk: &SimulatedDisk) -> bool {
    let Ok((mut journal, recovered)) = Journal::open(disk.clone(), OPTIONS) else { return false };
    in_memory(&recovered.checkpoints);
    recovered.records().for_each(|record| drop(record.unwrap()));
    for number in 1..=15 {
        for partition in [0, 1] {
            let wanted = PartitionId(partition);
            let found = journal.read_many(wanted, position(number), 3, 4000).unwrap_or_default();
            let rises = found.is_sorted_by(|one, next| one.position < next.position);
            assert!(rises, "a record came twice: {partition}, {number}");
        }
    }
    let next = journal.last_position(PartitionId(0)).map_or(1, |last| last.get() + 1);
    let _ = journal.commit(&[record(0, next, 5000)]);
    true
}

/// Records that a repair would keep; 0 if it finds none of the files readable.
fn salvaged(disk: &SimulatedDisk) -> usize {
    let mut kept = 0;
    if let Ok(salvage) = Salvage::look(disk.clone()) {
        let _ = salvage.replay::<ReadError>(&mut |met| {
            kept += usize::from(matches!(met, Met::Record(_)));
            Ok(())
        });
    }
    kept
}

#[test]
fn wrong_bytes_under_right_checksums_never_panic() {
    let source = written();
    let names = source.list().unwrap();
    let mut opened = 0;
    for seed in 0..1500 {
        let mut random = Random(seed);
        let disk = source.copy();
        let name = &names[random.below(names.len() as u64) as usize];
        let mut bytes = disk.contents(name).unwrap();
        for _ in 0..1 + random.below(2) {
            // Headers and tables, where the numbers are; in a checkpoint all of it.
            let groups = if name.ends_with(".segment") { random.below(8) * 1536 } else { 0 };
            let offset = [random.below(64), 512 + groups + random.below(112), 512 + random.below(600)];
            let offset = offset[random.below(3) as usize] as usize;
            bytes[offset] = [0, 1, 0xff, random.below(256) as u8][random.below(4) as usize];
        }
        reseal(&mut bytes);
        disk.set_contents(name, bytes);
        let _ = salvaged(&disk.copy());
        opened += usize::from(use_it(&disk));
    }
    assert!(100 < opened, "only {opened} journals could be opened");
}

/// A group whose header has a valid checksum and no length: reading goes on behind it instead of
/// staying at it for good.
#[test]
fn a_group_without_length_holds_up_no_reader() {
    const LENGTH: usize = 48;
    let source = written();
    let name = source.list().unwrap().into_iter().find(|name| name.ends_with(".segment")).unwrap();
    let groups = (512..source.contents(&name).unwrap().len()).step_by(512);
    let groups = groups.filter(|&at| source.contents(&name).unwrap()[at..].starts_with(b"PRGR"));
    let groups: Vec<usize> = groups.collect();
    assert!(3 < groups.len(), "{groups:?}");
    for group in groups {
        let disk = source.copy();
        let mut bytes = disk.contents(&name).unwrap();
        bytes[group + LENGTH..group + LENGTH + 6].fill(0);
        reseal(&mut bytes);
        disk.set_contents(&name, bytes);
        assert!(0 < salvaged(&disk.copy()), "group at {group}");
        use_it(&disk);
    }
}
