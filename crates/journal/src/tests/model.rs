//! The simulation's model of a journal's user: partitions whose records enqueue and settle.

use super::in_memory;
use crate::{Checkpoint, Disk, Payload, Record, Recovered, SimulatedDisk};
use bytes::{Buf, BufMut, Bytes};
use postroad_model::{PartitionId, Position};
use std::collections::{BTreeMap, BTreeSet};

/// The effect of one record on its partition.
pub(super) enum Step {
    /// The record itself is live from now on.
    Enqueue,
    /// An earlier record is not live any more.
    Settle(Position),
}

pub(super) fn decode_step(mut payload: &[u8]) -> Step {
    match Position::new(payload.get_u64_le()) {
        None => Step::Enqueue,
        Some(target) => Step::Settle(target),
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    last: u64,
    live: BTreeSet<Position>,
}

impl State {
    fn apply(&mut self, position: Position, payload: &[u8]) {
        assert_eq!(position.get(), self.last + 1, "positions are dense");
        self.last += 1;
        match decode_step(payload) {
            Step::Enqueue => assert!(self.live.insert(position)),
            Step::Settle(target) => assert!(self.live.remove(&target)),
        }
    }

    fn encode(&self) -> Bytes {
        let mut bytes = Vec::new();
        bytes.put_u64_le(self.last);
        self.live.iter().for_each(|position| bytes.put_u64_le(position.get()));
        bytes.into()
    }

    fn decode(mut bytes: Bytes) -> State {
        let last = bytes.get_u64_le();
        let mut live = BTreeSet::new();
        while bytes.has_remaining() {
            live.insert(Position::new(bytes.get_u64_le()).unwrap());
        }
        State { last, live }
    }
}

#[derive(Debug, Default)]
pub(super) struct Model {
    states: BTreeMap<PartitionId, State>,
    /// Payloads of all durable records; index 0 is position 1.
    payloads: BTreeMap<PartitionId, Vec<Bytes>>,
    /// The group that failed, while its fate is open.
    pub open_group: Option<Vec<Record>>,
    /// Groups that were appended and not synced, and the states before them.
    lagging: Vec<Vec<Record>>,
    synced: BTreeMap<PartitionId, State>,
}

impl Model {
    fn next(&self, group: &[Record], partition: PartitionId) -> Position {
        let before = group.iter().filter(|record| record.partition == partition).count() as u64;
        Position::new(self.states.get(&partition).map_or(0, |state| state.last) + before + 1).unwrap()
    }

    pub(super) fn enqueue(&self, group: &mut Vec<Record>, partition: PartitionId, bytes: usize, fill: u8) {
        let position = self.next(group, partition);
        let payload = Payload::from([Bytes::from_static(&[0; 8]), vec![fill; bytes].into()]);
        group.push(Record { partition, position, payload, reserve: false, key: None });
    }

    /// Adds a settle of the `nth` live record; false if there is none that the group does not
    /// settle already.
    pub(super) fn settle(&self, group: &mut Vec<Record>, partition: PartitionId, nth: u64) -> bool {
        let Some(state) = self.states.get(&partition) else { return false };
        let mine = settled(group, partition);
        let free: Vec<Position> =
            state.live.iter().copied().filter(|target| !mine.contains(&target.get())).collect();
        if free.is_empty() {
            return false;
        }
        let target = free[nth as usize % free.len()];
        let position = self.next(group, partition);
        let payload = Payload::from(Bytes::copy_from_slice(&target.get().to_le_bytes()));
        group.push(Record { partition, position, payload, reserve: true, key: None });
        true
    }

    pub(super) fn acknowledged(&mut self, group: &[Record]) {
        for record in group {
            let payload = record.payload.to_bytes();
            self.states.entry(record.partition).or_default().apply(record.position, &payload);
            self.payloads.entry(record.partition).or_default().push(payload);
        }
    }

    /// A group was written and not synced.
    pub(super) fn appended(&mut self, group: Vec<Record>) {
        if self.lagging.is_empty() {
            self.synced = self.states.clone();
        }
        self.acknowledged(&group);
        self.lagging.push(group);
    }

    /// Everything acknowledged is durable.
    pub(super) fn all_synced(&mut self) {
        self.lagging.clear();
    }

    /// After a power failure: goes back to the recovered state, if that is all but the last of the
    /// unsynced groups.
    fn lose_tail(&mut self, recovered: &BTreeMap<PartitionId, State>) -> bool {
        let mut states = std::mem::take(&mut self.synced);
        for group in std::mem::take(&mut self.lagging) {
            if states == *recovered {
                for (partition, payloads) in &mut self.payloads {
                    payloads.truncate(states.get(partition).map_or(0, |state| state.last as usize));
                }
                self.states = states;
                return true;
            }
            for record in &group {
                let payload = record.payload.to_bytes();
                states.entry(record.partition).or_default().apply(record.position, &payload);
            }
        }
        false
    }

    pub(super) fn checkpoints(&self) -> Vec<Checkpoint> {
        let checkpoint = |(&partition, state): (&PartitionId, &State)| {
            let position = Position::new(state.last)?;
            Some(Checkpoint { partition, position, state: state.encode().into() })
        };
        self.states.iter().filter_map(checkpoint).collect()
    }

    /// Checks the recovered state: everything acknowledged, and of the failed group all or nothing.
    /// A power failure may have taken the last of the unsynced groups. Returns the states, and
    /// whether it has.
    pub(super) fn recover(
        &mut self,
        power_cut: bool,
        recovered: &Recovered<<SimulatedDisk as Disk>::File>,
    ) -> (BTreeMap<PartitionId, State>, bool) {
        let mut states: BTreeMap<PartitionId, State> = BTreeMap::new();
        for checkpoint in in_memory(&recovered.checkpoints) {
            let state = State::decode(checkpoint.state.to_bytes());
            assert_eq!(state.last, checkpoint.position.get());
            states.insert(checkpoint.partition, state);
        }
        let mut records = Vec::new();
        for record in recovered.records() {
            let record = record.unwrap();
            states.entry(record.partition).or_default().apply(record.position, &record.payload);
            records.push(record);
        }
        let lost = states != self.states && power_cut && self.lose_tail(&states);
        if states != self.states {
            let group = self.open_group.take().expect("something differs, though no group failed");
            self.acknowledged(&group);
        }
        assert_eq!(states, self.states);
        for record in records {
            assert_eq!(record.payload, self.payload(record.partition, record.position));
        }
        self.open_group = None;
        self.lagging.clear();
        (states, lost)
    }

    pub(super) fn take_over(&mut self, states: BTreeMap<PartitionId, State>) {
        self.states = states;
    }

    pub(super) fn payload(&self, partition: PartitionId, position: Position) -> Bytes {
        self.payloads[&partition][position.get() as usize - 1].clone()
    }

    pub(super) fn live(&self) -> Vec<(PartitionId, Position)> {
        let live = |(&partition, state): (&PartitionId, &State)| {
            state.live.iter().map(|&position| (partition, position)).collect::<Vec<_>>()
        };
        self.states.iter().flat_map(live).collect()
    }

    pub(super) fn pick(&self, partition: PartitionId, nth: u64) -> Option<(PartitionId, Position)> {
        let live = &self.states.get(&partition)?.live;
        let count = live.len();
        (0 < count).then(|| (partition, *live.iter().nth(nth as usize % count).unwrap()))
    }
}

fn settled(group: &[Record], partition: PartitionId) -> BTreeSet<u64> {
    let mine = group.iter().filter(|record| record.partition == partition);
    mine.map(|record| (&record.payload.to_bytes()[..8]).get_u64_le()).collect()
}
