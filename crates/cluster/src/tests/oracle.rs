//! Rules that must hold under any fault.

use std::collections::BTreeMap;

use crate::{Entry, EntryId, EntryKind, Index, Term};

#[derive(Default)]
pub struct Oracle {
    /// The entry that was first applied at each index.
    chosen: Vec<Entry>,
    /// Payloads by the identity under which a leader took them.
    proposed: BTreeMap<(u64, u64), u64>,
    /// Payload and its place.
    acknowledged: BTreeMap<u64, EntryId>,
    leaders: BTreeMap<Term, usize>,
}

pub fn payload(entry: &Entry) -> Option<u64> {
    let bytes = entry.payload.get(..8)?;
    (entry.kind == EntryKind::Batch).then(|| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

impl Oracle {
    pub fn proposed(&mut self, id: EntryId, payload: u64) -> Result<(), String> {
        match self.proposed.insert((id.index.0, id.term.0), payload) {
            None => Ok(()),
            Some(_) => Err(format!("{id:?} was given to two proposals")),
        }
    }

    pub fn applied(&mut self, node: usize, entry: &Entry) -> Result<(), String> {
        let place = entry.id.index.0 as usize - 1;
        let expected = self.proposed.get(&(entry.id.index.0, entry.id.term.0)).copied();
        if payload(entry) != expected {
            return Err(format!("{:?} holds {:?}, proposed was {expected:?}", entry.id, payload(entry)));
        }
        match self.chosen.get(place) {
            Some(chosen) if chosen != entry => {
                Err(format!("node {node} applies {:?}, another applied {:?}", entry.id, chosen.id))
            }
            Some(_) => Ok(()),
            None if place == self.chosen.len() => {
                self.chosen.push(entry.clone());
                Ok(())
            }
            None => Err(format!("node {node} applies {:?} after a gap", entry.id)),
        }
    }

    pub fn acknowledged(&mut self, payload: u64, id: EntryId) {
        self.acknowledged.insert(payload, id);
    }

    pub fn leads(&mut self, node: usize, term: Term) -> Result<(), String> {
        match self.leaders.insert(term, node) {
            Some(other) if other != node => Err(format!("nodes {other} and {node} lead in term {}", term.0)),
            _ => Ok(()),
        }
    }

    pub fn acknowledgements(&self) -> u64 {
        self.acknowledged.len() as u64
    }

    /// Entries that some node has applied.
    pub fn applied_count(&self) -> usize {
        self.chosen.len()
    }

    pub fn terms(&self) -> u64 {
        self.leaders.len() as u64
    }

    /// The entries that a replica has applied in the end: all, once, in the order of the log.
    pub fn end(&self, node: usize, applied: &[Entry]) -> Result<(), String> {
        let mut places = BTreeMap::new();
        for (place, entry) in applied.iter().enumerate() {
            if entry.id.index != Index(place as u64 + 1) {
                return Err(format!("node {node} has {:?} at place {place}", entry.id));
            }
            if let Some(payload) = payload(entry)
                && places.insert(payload, entry.id).is_some()
            {
                return Err(format!("node {node} has payload {payload} twice"));
            }
        }
        let lost = |(payload, id): &(&u64, &EntryId)| places.get(*payload) != Some(*id);
        match self.acknowledged.iter().find(lost) {
            Some((payload, id)) => Err(format!("node {node} lost payload {payload}, acknowledged at {id:?}")),
            None if applied != self.chosen => Err(format!("node {node} has another sequence")),
            None => Ok(()),
        }
    }
}
