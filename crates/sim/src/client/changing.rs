//! The changes that an explanation proposes, as a client makes them. Names are those that the
//! broker knows of the client.

use std::sync::Arc;

use postroad_model::{
    Attach, ClientNotice, ConnectionId, ConsumerKey, ConsumerMode, ConsumerNotice, Decision, Delivered,
    Destination, EntryTag, Event, Outcome, PartitionId, Settle, Ticket, TransactionKey,
};

use super::{Client, Outgoing, Reader, World};

/// The name that a client has for its connection.
pub fn name_of(connection: ConnectionId) -> String {
    format!("client-{}-{}", connection.core(), connection.number())
}

/// The notice of a consumer, with its connection and its number as its name.
pub(super) fn notice_of(attach: &Attach) -> ConsumerNotice {
    let ConsumerKey { connection, number, .. } = attach.consumer;
    ConsumerNotice {
        name: format!("{}:{number}", name_of(connection)).into(),
        source: attach.source.clone(),
        mode: attach.mode,
        prefetch: attach.credit,
        priority: attach.priority,
        no_local: attach.no_local,
        retroactive: attach.retroactive,
        selector: attach.selector.clone(),
        subscription: attach.subscription.clone(),
        client_id: "".into(),
        network: None,
        durable: None,
        since_ms: 0,
    }
}

impl Client {
    /// The client says its name, as the router has it: to the first partition.
    pub fn introduce(&mut self) -> Outgoing {
        self.is_named = true;
        let (first, name) = (PartitionId(0), name_of(self.connection).into());
        self.touched.insert(first);
        let client = Arc::new(ClientNotice { name, client_id: "".into(), user: None });
        vec![(first, Event::Introduce { connection: self.connection, client })]
    }

    /// Attaches a consumer without a selector.
    pub fn attach_plain(&mut self, world: &mut World<'_>, queue: Destination, credit: u32) -> Outgoing {
        let mut events = self.attach_to(world, queue, ConsumerMode::Shared, credit);
        for (_, event) in &mut events {
            let Event::Attach(attach) = event else { continue };
            attach.no_local = false;
        }
        events
    }

    /// An operator pauses or resumes a queue.
    pub fn pause(&mut self, world: &mut World<'_>, queue: &Destination, paused: bool) -> Outgoing {
        let (partition, ticket) = (self.to(world, &queue.name), Ticket(world.numbers.next()));
        let (queue, connection) = (queue.clone(), self.connection);
        vec![(partition, Event::Pause { queue, paused, connection, ticket })]
    }

    /// A consumer accepts all that it has outside of transactions, and asks for as many.
    pub fn settle_all_of(&mut self, world: &mut World<'_>, number: u32) -> Outgoing {
        let consumer = ConsumerKey::new(self.connection, number);
        let Some(Reader { at, held, .. }) = self.readers.get_mut(&number) else { return Vec::new() };
        let at = *at;
        let tags: Vec<EntryTag> = held.extract_if(.., |(_, tied)| *tied == 0).map(|(tag, _)| tag).collect();
        if tags.is_empty() {
            // What it has settled in a transaction that was refused is its own after a rollback.
            let is_refused = self.open.as_ref().is_some_and(|open| open.is_refused);
            return if is_refused { self.end_transactions(world, false) } else { Vec::new() };
        }
        let (add, ticket) = (tags.len() as u32, Some(Ticket(world.numbers.next())));
        let outcome = Outcome::Accepted;
        let settle = Settle { consumer, tags, outcome, transaction: None, reason: None, ticket };
        vec![(at, Event::Settle(settle)), (at, Event::Credit { consumer, add })]
    }

    /// A consumer asks for a message.
    pub fn credit_one(&self, number: u32) -> Outgoing {
        let consumer = ConsumerKey::new(self.connection, number);
        let reader = self.readers.get(&number);
        reader.map(|reader| (reader.at, Event::Credit { consumer, add: 1 })).into_iter().collect()
    }

    /// A consumer ends.
    pub fn detach_one(&mut self, world: &mut World<'_>, number: u32) -> Outgoing {
        let Some(reader) = self.readers.remove(&number) else { return Vec::new() };
        let consumer = ConsumerKey::new(self.connection, number);
        let ticket = Some(Ticket(world.numbers.next()));
        vec![(reader.at, Event::Detach { consumer, delivered: Delivered::None, ticket })]
    }

    /// The number of its next consumer.
    pub fn next_consumer(&self) -> (ConnectionId, u32) {
        (self.connection, self.next_reader)
    }

    /// Ends its consumers from this number of this connection on: all of those of another one.
    pub fn detach_from(&mut self, world: &mut World<'_>, first: Option<(ConnectionId, u32)>) -> Outgoing {
        let first = first.filter(|(connection, _)| *connection == self.connection).map_or(0, |first| first.1);
        let numbers: Vec<u32> = self.readers.range(first..).map(|(number, _)| *number).collect();
        numbers.into_iter().flat_map(|number| self.detach_one(world, number)).collect()
    }

    /// Ends its consumers of a queue.
    pub fn detach_all_of(&mut self, world: &mut World<'_>, queue: &Destination) -> Outgoing {
        let own = self.readers.iter().filter(|(_, reader)| reader.source == *queue && !reader.browses);
        let numbers: Vec<u32> = own.map(|(number, _)| *number).collect();
        numbers.into_iter().flat_map(|number| self.detach_one(world, number)).collect()
    }

    /// The client ends its transaction and its branches, in one way or the other.
    pub fn end_transactions(&mut self, world: &mut World<'_>, commits: bool) -> Outgoing {
        let mut outgoing = self.end_upload(true);
        for branch in std::mem::take(&mut self.left_open) {
            let decision = if commits { Decision::CommitOnePhase } else { Decision::Rollback };
            outgoing.extend(self.decide(world, branch, decision));
        }
        let Some(open) = self.open.take() else { return outgoing };
        let transaction = TransactionKey { connection: self.connection, number: open.number };
        let (participants, ticket) = (open.touched.into_iter().collect(), Ticket(world.numbers.next()));
        let ends = match commits {
            true => self.commit(transaction, participants, ticket),
            false => self.roll_back(transaction, participants, ticket),
        };
        outgoing.extend(ends);
        outgoing
    }

    /// A branch in doubt is decided.
    pub fn decide_one(&mut self, world: &mut World<'_>, name: &str) -> Option<Outgoing> {
        let branch = world.branches.iter().find(|branch| branch.to_string() == name)?.clone();
        let decision = if world.random.one_in(2) { Decision::Rollback } else { Decision::Commit };
        Some(self.decide(world, branch, decision))
    }
}
