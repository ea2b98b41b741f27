//! The fate of a consumer's messages when it leaves, alone or with its connection.

use postroad_model::{
    ConnectionId, ConsumerKey, Delivered, Destination, DestinationKind, EntryTag, PartitionId,
};

use super::{Fate, Hold, Number, Oracle, Place, Reader, Spot};

impl Oracle {
    pub(super) fn leaves(&mut self, key: ConsumerKey, delivered: Delivered) {
        match self.readers.get_mut(&key).filter(|reader| !reader.attached && !reader.follows) {
            Some(reader) => reader.leaves = Some(delivered),
            None => self.detached(key, delivered),
        }
    }

    /// The turn of a partition is over.
    pub fn turned(&mut self) {
        self.rests.turned();
        let gone = |reader: &Reader| reader.attached && reader.leaves.is_some();
        let gone: Vec<ConsumerKey> =
            self.readers.iter().filter(|(_, reader)| gone(reader)).map(|(key, _)| *key).collect();
        for key in gone {
            self.detached(key, Delivered::None);
        }
    }

    fn detached(&mut self, key: ConsumerKey, delivered: Delivered) {
        let Some(reader) = self.readers.remove(&key) else { return };
        self.groups.retain(|_, owner| *owner != key);
        if let Some(line) = self.lines.get_mut(&reader.source) {
            line.retain(|other| *other != key);
        }
        let seen = match delivered {
            Delivered::All => reader.held.len(),
            Delivered::None | Delivered::InDoubt { .. } => 0,
            Delivered::Through { tag: last, .. } => {
                reader.held.iter().position(|(tag, _)| *tag == last).map_or(0, |index| index + 1)
            }
        };
        // One that came back from a transaction may have its place after others by now.
        let is_last = |(tag, _): &&(EntryTag, Spot)| matches!(delivered, Delivered::Through { tag: last, .. } if last == *tag);
        let last = reader.held.iter().find(is_last).and_then(|(_, spot)| self.copies.get(spot));
        let is_open = last.is_some_and(|copy| copy.again);
        for (index, (_, spot)) in reader.held.iter().enumerate() {
            let Some(copy) = self.copies.get_mut(spot) else { continue };
            if copy.hold == Hold::Held(key) {
                copy.hold = Hold::Free;
                let again = std::mem::take(&mut copy.again) || is_open;
                copy.count(u32::from(index < seen && !again), u32::from(index < seen || again));
            }
        }
        if reader.source.kind == DestinationKind::Topic {
            self.copies.retain(|(place, _), _| *place != Place::Subscription(key));
        }
    }

    pub(super) fn closed(&mut self, partition: PartitionId, connection: ConnectionId) {
        let own: Vec<Number> = (self.transactions.iter())
            .filter(|(key, _)| key.connection == connection)
            .map(|(_, number)| *number)
            .collect();
        for number in own {
            let open = self.operations[number].fate == Fate::Open;
            if open {
                self.operations[number].fate = Fate::Aborted;
            }
            if self.operations[number].fate == Fate::Committed {
                continue;
            }
            let asked = self.operations[number].fate == Fate::Asked;
            let is_branch = self.branches.values().any(|branch| *branch == number);
            for spot in self.operations[number].settles.clone() {
                let here = self.is_in(&spot, partition);
                let Some(copy) = self.copies.get_mut(&spot) else { continue };
                let Hold::InTransaction(by, consumer) = copy.hold else { continue };
                if by != number {
                    continue;
                }
                // Of a branch the coordinator may have heard of the end first, and reported it.
                let told = copy.ended.is_none();
                // A consumer that left after that gave it back by its own word, and before it as
                // seen.
                let seen = !told || self.readers.contains_key(&consumer);
                match (asked, here) {
                    (true, _) => copy.count(0, u32::from(here)),
                    (false, true) => {
                        copy.count(u32::from(seen), u32::from(!told));
                        (copy.ended, copy.hold) = (None, Hold::Free);
                    }
                    (false, false) if is_branch && !told => {
                        copy.count(0, 1);
                        (copy.ended, copy.perhaps_held) = (None, true);
                    }
                    (false, false) => {}
                }
            }
        }
        let placement = self.placement;
        let here = |destination: &Destination| placement.partition_of(&destination.name) == partition;
        let readers: Vec<ConsumerKey> = (self.readers.iter())
            .filter(|(key, reader)| key.connection == connection && reader.at == partition && !reader.follows)
            .map(|(key, _)| *key)
            .collect();
        for key in readers {
            self.detached(key, Delivered::All);
        }
        let temporary: Vec<Destination> = (self.temporary.iter())
            .filter(|(destination, owner)| **owner == connection && here(destination))
            .map(|(destination, _)| destination.clone())
            .collect();
        for destination in temporary {
            self.deleted(&destination);
        }
    }
}
