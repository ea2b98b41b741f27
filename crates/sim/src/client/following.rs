//! Queues on the move: clients ask for that, and their consumers follow, as a router has them do.

use postroad_model::{
    Attach, ConsumerKey, Destination, DestinationKind, Event, PartitionId, Ticket, ToSession,
};

use super::{Client, Outgoing, World};

impl Client {
    /// Some lasting queue is to move to some partition.
    pub(super) fn move_any(&mut self, world: &mut World<'_>) -> Outgoing {
        let queues = world.scene.destinations.iter().chain([&world.scene.dead_letters]);
        let queues: Vec<Destination> =
            queues.filter(|queue| queue.kind == DestinationKind::Queue).cloned().collect();
        let Some(queue) = world.random.pick(&queues).cloned() else { return Vec::new() };
        let to = PartitionId(world.random.below(u64::from(world.places.partitions())) as u16);
        let (partition, ticket) = (self.to(world, &queue.name), Ticket(world.numbers.next()));
        vec![(partition, Event::Move { queue, to, connection: self.connection, ticket })]
    }

    /// The queue of a consumer has moved, and the consumer goes after it; or it has left where it
    /// was, and has its credit where it is now.
    pub fn follow(&mut self, world: &mut World<'_>, message: &ToSession) -> Outgoing {
        match message {
            ToSession::Moved { consumer } => self.go_after(world, *consumer),
            ToSession::Left { consumer, credit } if 0 < *credit => {
                let reader = self.readers.get(&consumer.number);
                let event = Event::Credit { consumer: *consumer, add: *credit };
                reader.map(|reader| (reader.at, event)).into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    fn go_after(&mut self, world: &mut World<'_>, consumer: ConsumerKey) -> Outgoing {
        let Some(reader) = self.readers.get_mut(&consumer.number) else { return Vec::new() };
        let there = world.places.partition_of(&reader.source.name);
        let ticket = Ticket(world.numbers.next());
        let attach = Attach { credit: 0, ticket, ..Attach::clone(&reader.attach) };
        let here = std::mem::replace(&mut reader.at, there);
        self.touched.insert(there);
        self.following.insert(ticket, consumer.number);
        vec![(here, Event::Leave { consumer }), (there, Event::Follow(attach))]
    }
}
