//! Any bytes as a journal's files: opening, reading states and replaying never panics, and opening
//! twice gives the same. A repair looks at them to the end.
//!
//! The first byte chooses: raw bytes as a segment, edits of a good journal, or such edits with all
//! checksums put right again, so that the fuzzer gets after them; and whether the journal is
//! encrypted.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use postroad_journal::{
    Checkpoint, Disk, Journal, KEY_BYTES, Key, KeySet, Keys, OpenError, Options, Payload, ReadError, Record,
    Recovered, Salvage, SimulatedDisk, StoredRecord,
};
use postroad_model::{PartitionId, Position};

const OPTIONS: Options =
    Options { segment_bytes: 16 << 10, checkpoint_bytes: 1 << 20, dead_segments_max: 1, checkpoint_share: 0 };
const SECTOR: usize = 512;

fuzz_target!(|data: &[u8]| {
    let Some((&mode, rest)) = data.split_first() else { return };
    let disk = SimulatedDisk::new(1);
    let current = (mode / 3 % 2 == 1).then(|| Key::new(&[7; KEY_BYTES]));
    let keys = Keys::new(KeySet { current, former: Vec::new() }, []);
    if mode % 3 == 0 {
        disk.set_contents("0000000000000001.segment", rest.to_vec());
    } else {
        good_journal(&disk, &keys);
        edit(&disk, rest, mode % 3 == 2);
    }
    if let Ok(salvage) = Salvage::look_with(disk.copy(), keys.clone()) {
        let _ = salvage.replay::<ReadError>(&mut |_| Ok(()));
    }
    let first = replay(&disk, &keys);
    if first.is_some() {
        disk.crash();
        assert_eq!(replay(&disk, &keys), first);
    }
});

type Opened = (Journal<SimulatedDisk>, Recovered<<SimulatedDisk as Disk>::File>);

fn open(disk: &SimulatedDisk, keys: &Keys) -> Result<Opened, OpenError> {
    Journal::open_with(disk.clone(), OPTIONS, keys.clone(), &mut |_, _| ())
}

/// Two partitions, a checkpoint in the middle, two segments.
fn good_journal(disk: &SimulatedDisk, keys: &Keys) {
    let (mut journal, _) = open(disk, keys).expect("an empty disk");
    for number in 1..=12 {
        let position = Position::new(number).expect("not zero");
        let record = |partition, bytes: usize| Record {
            partition: PartitionId(partition),
            position,
            payload: Payload::from(Bytes::from(vec![number as u8; bytes])),
            reserve: partition == 1,
            key: None,
        };
        journal.commit(&[record(0, 1200), record(1, 8)]).expect("a good disk");
        if number == 6 {
            let state = |partition| Checkpoint {
                partition: PartitionId(partition),
                position,
                state: Bytes::from_static(b"state").into(),
            };
            journal.write_checkpoint(vec![state(0), state(1)]).expect("a good disk");
        }
    }
}

/// Edits of four bytes each: file and offset, then the new value.
fn edit(disk: &SimulatedDisk, edits: &[u8], reseal_too: bool) {
    let mut names = disk.list().expect("a good disk");
    names.sort();
    for edit in edits.chunks_exact(4).take(16) {
        let name = &names[edit[0] as usize % names.len()];
        let mut bytes = disk.contents(name).expect("listed");
        let offset = u16::from_le_bytes([edit[1], edit[2]]) as usize % bytes.len();
        bytes[offset] = edit[3];
        if reseal_too {
            reseal(&mut bytes);
        }
        disk.set_contents(name, bytes);
    }
}

fn reseal(bytes: &mut [u8]) {
    if bytes.starts_with(b"PR-CHKPT") {
        let length = u64::from_le_bytes(bytes[24..32].try_into().expect("eight bytes")) as usize;
        let body = bytes.get(SECTOR..SECTOR.saturating_add(length)).map(crc32c::crc32c);
        bytes[32..36].copy_from_slice(&body.unwrap_or(0).to_le_bytes());
    }
    let header = crc32c::crc32c_append(crc32c::crc32c(&bytes[..12]), &bytes[16..SECTOR]);
    bytes[12..16].copy_from_slice(&header.to_le_bytes());
    for offset in (SECTOR..bytes.len()).step_by(SECTOR) {
        if bytes[offset..].starts_with(b"PRGR") {
            reseal_group(&mut bytes[offset..], offset as u64);
        }
    }
}

fn reseal_group(group: &mut [u8], offset: u64) {
    let count = u32::from_le_bytes(group[56..60].try_into().expect("four bytes")) as usize;
    if let Some(table) = group.get(64..64_usize.saturating_add(count.saturating_mul(24))) {
        let checksum = crc32c::crc32c(table).to_le_bytes();
        group[60..64].copy_from_slice(&checksum);
    }
    let checksum = crc32c::crc32c_append(crc32c::crc32c(&group[8..64]), &offset.to_le_bytes());
    group[4..8].copy_from_slice(&checksum.to_le_bytes());
}

/// All states and records that come back; `None` if the journal is refused.
fn replay(disk: &SimulatedDisk, keys: &Keys) -> Option<(Vec<Checkpoint>, Vec<StoredRecord>)> {
    let (mut journal, recovered) = open(disk, keys).ok()?;
    let states = recovered.checkpoints.iter().map(|state| state.read().expect("just verified")).collect();
    let records = recovered.records().map(|record| record.expect("just verified")).collect();
    for number in 1..=13 {
        for partition in [0, 1] {
            let _ = journal.read_many(PartitionId(partition), Position::new(number)?, 3, 4000);
        }
    }
    Some((states, records))
}
