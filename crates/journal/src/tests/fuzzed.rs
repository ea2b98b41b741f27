//! The fuzz target's edits with their checksums put right, from a seed: random bytes after valid
//! checksums.

use super::in_memory;
use super::service::{OPTIONS, open, record};
use super::simulation::Random;
use crate::{Checkpoint, Disk, Journal, SimulatedDisk};
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

#[test]
fn wrong_bytes_under_right_checksums_never_panic() {
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
    let source = source.copy();
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
        let Ok((mut journal, recovered)) = Journal::open(disk, OPTIONS) else { continue };
        opened += 1;
        in_memory(&recovered.checkpoints);
        let records: Vec<_> = recovered.records().map(|record| record.unwrap()).collect();
        for record in
            records.iter().chain([&super::service::stored(0, 1, 0), &super::service::stored(1, 3, 0)])
        {
            let _ = journal.read_many(record.partition, record.position, 3, 4000);
        }
        let next = journal.last_position(PartitionId(0)).map_or(1, |last| last.get() + 1);
        let _ = journal.commit(&[record(0, next, 5000)]);
    }
    assert!(100 < opened, "only {opened} journals could be opened");
}
