//! Dead letters go back, as an operator has them do.

use postroad_model::{Event, Redrive, RedriveWay, Ticket};

use super::{Client, Outgoing, World};

impl Client {
    /// Some of them, or all, go to a queue of their own.
    pub fn redrive(&mut self, world: &mut World<'_>) -> Outgoing {
        let (from, to) = (world.scene.dead_letters.clone(), world.scene.revived.clone());
        let messages_max = if world.random.one_in(2) { 1 + world.random.below(4) } else { u64::MAX };
        let (partition, ticket) = (self.to(world, &from.name), Ticket(world.numbers.next()));
        let way = RedriveWay::Back(None);
        let wanted = Redrive { from, to, origin: None, selector: "".into(), messages_max, way, by: None };
        vec![(partition, Event::Redrive { wanted: Box::new(wanted), connection: self.connection, ticket })]
    }
}
