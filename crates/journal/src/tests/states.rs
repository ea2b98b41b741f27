//! States in checkpoints: read step by step, and never taken for other data.

use super::encryption::keys;
use super::in_memory;
use super::service::{OPTIONS, position, record};
use crate::disks::disk::write_all_at;
use crate::layout::format::{CHECKPOINT_MAGIC, SECTOR_BYTES, checkpoint_name, seal};
use crate::{Checkpoint, Disk, Fault, Journal, Keys, OpenError, Operation, Record, Recovered, SimulatedDisk};
use bytes::Bytes;
use postroad_model::PartitionId;
use std::io::IoSlice;

type Opened = Recovered<<SimulatedDisk as Disk>::File>;

/// Two and a half of the larger steps.
const STATE_BYTES: u64 = 5 << 19;

fn open(disk: &SimulatedDisk, keys: &Keys) -> (Journal<SimulatedDisk>, Opened) {
    Journal::open_with(disk.clone(), OPTIONS, keys.clone(), &mut |_, _| ()).unwrap()
}

fn state(partition: u16, number: u64) -> Checkpoint {
    let byte = |at: u64| ((at * at) >> 7) as u8 ^ number as u8 ^ partition as u8;
    let state = Bytes::from_iter((0..STATE_BYTES).map(byte)).into();
    Checkpoint { partition: PartitionId(partition), position: position(number), state }
}

/// With checkpoints of two partitions after their first records, and after their second.
fn with_states(keys: &Keys) -> SimulatedDisk {
    let disk = SimulatedDisk::new(1);
    let (mut journal, _) = open(&disk, keys);
    for number in 1..=2 {
        journal.commit(&[record(0, number, 10), record(1, number, 10)]).unwrap();
        journal.write_checkpoint(vec![state(0, number), state(1, number)]).unwrap();
    }
    disk
}

fn change(disk: &SimulatedDisk, name: &str, offset: u64, bytes: &[u8]) {
    write_all_at(&disk.open(name).unwrap(), &mut [IoSlice::new(bytes)], offset).unwrap();
}

#[test]
fn no_piece_is_longer_than_a_step() {
    for (keys, longest) in [(Keys::default(), 256 << 10), (keys(Some(1), &[]), 1 << 20)] {
        let (_, recovered) = open(&with_states(&keys), &keys);
        assert_eq!(in_memory(&recovered.checkpoints), [state(0, 2), state(1, 2)]);
        for checkpoint in &recovered.checkpoints {
            assert_eq!(checkpoint.state.byte_length(), STATE_BYTES);
            let lengths =
                checkpoint.state.read_by(|pieces| pieces.map(|piece| piece.len()).collect::<Vec<_>>());
            let lengths = lengths.unwrap();
            assert_eq!(lengths.iter().sum::<usize>(), STATE_BYTES as usize);
            assert_eq!(lengths.into_iter().max(), Some(longest), "{keys:?}");
        }
    }
}

#[test]
fn what_changes_or_cannot_be_read_behind_the_start_is_told_and_ends_the_pieces() {
    for keys in [Keys::default(), keys(Some(1), &[])] {
        let disk = with_states(&keys);
        let (_, recovered) = open(&disk, &keys);
        let [first, second] = &recovered.checkpoints[..] else { panic!("there are two") };
        let steps = first.state.read_by(|pieces| pieces.count()).unwrap();
        let mut met = 0;
        disk.fail(Operation::Read, 6, Fault::Broken);
        let refused = first.state.read_by(|pieces| met = pieces.count());
        assert!(matches!(refused, Err(OpenError::Io { .. })), "{refused:?}");
        assert!(0 < met && met < steps, "{met} of {steps}");
        assert_eq!(first.read().unwrap(), state(0, 2), "nothing is wrong with it");

        let name = checkpoint_name(2);
        let last = disk.contents(&name).unwrap().iter().rposition(|byte| *byte != 0).unwrap() as u64;
        change(&disk, &name, last, &[0]);
        let changed = second.state.read_by(|pieces| met = pieces.count()).unwrap_err().to_string();
        assert!(changed.contains(&name) && changed.contains("has changed while it was read"), "{changed}");
        assert_eq!(met, steps - 1, "all but the last");
        assert_eq!(first.read().unwrap(), state(0, 2), "the other is what it was");
    }
}

#[test]
fn states_of_any_length_stand_one_behind_the_other() {
    const STEP: usize = 1 << 20;
    for keys in [Keys::default(), keys(Some(1), &[])] {
        let disk = SimulatedDisk::new(1);
        let (mut journal, _) = open(&disk, &keys);
        let lengths = [2 * STEP, 0, 1, STEP, STEP - 1, 0, STEP + 1];
        let states: Vec<Checkpoint> = (0..)
            .zip(lengths)
            .map(|(partition, length)| {
                let bytes = Bytes::from(vec![partition as u8; length]);
                Checkpoint { partition: PartitionId(partition), position: position(1), state: bytes.into() }
            })
            .collect();
        let records: Vec<Record> = (0..7).map(|partition| record(partition, 1, 10)).collect();
        journal.commit(&records).unwrap();
        journal.write_checkpoint(states.clone()).unwrap();
        let (_, recovered) = open(&disk, &keys);
        assert_eq!(recovered.skipped_checkpoints.len(), 0, "{keys:?}");
        assert_eq!(in_memory(&recovered.checkpoints), states, "{keys:?}");
        let told: Vec<u64> = recovered.checkpoints.iter().map(|stored| stored.state.byte_length()).collect();
        assert_eq!(told, lengths.map(|length| length as u64), "{keys:?}");
    }
}

#[test]
fn a_state_that_is_not_what_was_encrypted_is_no_state_whatever_its_checksum() {
    let keys = keys(Some(1), &[]);
    for (altered, want, skipped) in [(0, 2, 0), (1, 1, 1)] {
        let disk = with_states(&keys);
        let name = checkpoint_name(2);
        let mut bytes = disk.contents(&name).unwrap();
        let body_bytes = u64::from_le_bytes(bytes[24..32].try_into().unwrap()) as usize;
        bytes[SECTOR_BYTES as usize + body_bytes - (1 << 20)] ^= altered;
        let checksum = crc32c::crc32c(&bytes[SECTOR_BYTES as usize..][..body_bytes]);
        let mut sector: [u8; SECTOR_BYTES as usize] = bytes[..SECTOR_BYTES as usize].try_into().unwrap();
        sector[32..36].copy_from_slice(&checksum.to_le_bytes());
        seal(CHECKPOINT_MAGIC, &mut sector);
        bytes[..SECTOR_BYTES as usize].copy_from_slice(&sector);
        disk.set_contents(&name, bytes);
        let (_, recovered) = open(&disk, &keys);
        assert_eq!(recovered.skipped_checkpoints.len(), skipped);
        assert_eq!(in_memory(&recovered.checkpoints), [state(0, want), state(1, want)]);
    }
}
