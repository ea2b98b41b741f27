//! A consumer's verdicts.

use postroad_model::{ConsumerKey, ConsumerMode, Destination, DestinationKind, EntryTag, Event, Outcome};

use super::{Client, Outgoing, Reader, World};

/// Some outcome that a message from there may have.
pub(super) fn any_outcome(world: &mut World<'_>, source: &Destination) -> Outcome {
    if world.scene.has_rests(source) && world.random.one_in(2) {
        return Outcome::Rejected;
    }
    let spreads = !world.scene.names.is_empty();
    let may_reject = !spreads
        && !source.temporary
        && source.kind == DestinationKind::Queue
        && *source != world.scene.dead_letters;
    // A dead letter is kept, unlike the message before.
    let forgets = world.scene.forgetful.as_ref() == Some(source);
    match world.random.below(12) {
        0 if may_reject && !forgets => Outcome::Rejected,
        1 => Outcome::Released { failed: true },
        2 => Outcome::Released { failed: false },
        3 => Outcome::Retried,
        4 if !spreads && !forgets => Outcome::Expired,
        _ => Outcome::Accepted,
    }
}

impl Client {
    /// Gives up on something that rests then; if it has nothing of that kind it asks for some.
    pub(super) fn give_up_any(&mut self, world: &mut World<'_>) -> Outgoing {
        let is_one =
            |reader: &Reader| reader.attached && !reader.browses && world.scene.has_rests(&reader.source);
        let readers = self.readers.iter().filter(|(_, reader)| is_one(reader));
        let readers: Vec<u32> = readers.map(|(number, _)| *number).collect();
        let chosen = world.random.pick(&readers).copied();
        let Some((number, reader)) = chosen.and_then(|number| Some((number, self.readers.get(&number)?)))
        else {
            let source = world.random.pick(&world.scene.rests).map(|resting| resting.at.clone());
            return source.map_or(Vec::new(), |at| self.attach_to(world, at, ConsumerMode::Shared, 2));
        };
        let consumer = ConsumerKey::new(self.connection, number);
        let free: Vec<EntryTag> =
            reader.held.iter().filter(|(_, tied)| *tied == 0).map(|(tag, _)| *tag).collect();
        let at = reader.at;
        let first = world.random.below(free.len() as u64) as usize;
        match free.get(first..) {
            None | Some([]) => vec![(at, Event::Credit { consumer, add: 2 })],
            Some(tags) => self.settle_as(world, (consumer, at), tags.to_vec(), Outcome::Rejected),
        }
    }
}
