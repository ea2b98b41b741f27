//! Destinations that clients make and delete, and the advisories by which other clients learn of temporary ones.
//!
//! A client publishes to a temporary destination only after an advisory told it of that destination
//! (`ActiveMQConnection.isDeleted`), so they are published to two topics that keep one message for each destination
//! that exists: a client that connects later is told of all.

use std::collections::BTreeSet;

use postroad_model::{self as model, DestinationKind, Event, Publish, Retain, Sent};

use super::exception::Exception;
use super::replies::{self, Then};
use super::{Done, OpenWireSession, Turn, names, producer};
use crate::codec::{
    Command, ConnectionId, DataStructure, Destination, DestinationInfo, Message, MessageId, ProducerId,
    VERSION_MAX, to_stored,
};

/// Where clients listen for temporary queues and topics.
const ADVISORY_QUEUE: &str = "ActiveMQ.Advisory.TempQueue";
const ADVISORY_TOPIC: &str = "ActiveMQ.Advisory.TempTopic";

/// Temporary destinations of one connection: clients that make one for each request delete it with the reply.
const TEMPORARIES_MAX: usize = 16_384;

/// The temporary destinations of a connection.
#[derive(Default)]
pub struct Temporaries {
    made: BTreeSet<model::Destination>,
    advisories: i64,
}

impl OpenWireSession {
    pub(super) fn change_destination(
        &mut self,
        info: &DestinationInfo,
        turn: &mut Turn<'_>,
    ) -> Result<Done, Exception> {
        let Some(wire) = &info.destination else {
            return Err(Exception::of("InvalidDestinationException", "DestinationInfo names no destination"));
        };
        let destination = names::to_model(wire);
        names::check(&destination)?;
        match info.operation_type {
            DestinationInfo::ADD => {
                let count = if destination.temporary { self.temporaries.made.len() } else { 0 };
                replies::check_bound("temporary destinations", count, TEMPORARIES_MAX)?;
                Ok(self.make(destination, turn))
            }
            DestinationInfo::REMOVE => {
                let ticket = self.wait(1, None, Then::Deleted(destination.clone()));
                turn.events.push(Event::Delete { destination, connection: self.id, ticket });
                Ok(Done::Later(ticket))
            }
            other => Err(Exception::jms(&format!("destination operation {other} is unknown"))),
        }
    }

    fn make(&mut self, destination: model::Destination, turn: &mut Turn<'_>) -> Done {
        let ticket = self.wait(1, None, Then::Declared(destination.clone()));
        turn.events.push(Event::Declare { destination, connection: self.id, ticket });
        Done::Later(ticket)
    }

    /// A destination exists now. The client's response comes after others were told of a temporary one.
    pub(super) fn declared(
        &mut self,
        destination: &model::Destination,
        respond: Option<i32>,
        turn: &mut Turn<'_>,
    ) {
        if !destination.temporary {
            return self.respond(respond, turn);
        }
        self.temporaries.made.insert(destination.clone());
        let ticket = self.wait(1, respond, Then::Respond);
        let advisory = self.advisory(destination, true, ticket);
        turn.events.push(advisory);
    }

    /// A destination is gone: clients that knew of it are told.
    pub(super) fn deleted(&mut self, destination: &model::Destination, turn: &mut Turn<'_>) {
        if self.temporaries.made.remove(destination) {
            let ticket = self.wait(1, None, Then::Nothing);
            let advisory = self.advisory(destination, false, ticket);
            turn.events.push(advisory);
        }
    }

    /// The connection ends, and its temporary destinations with it.
    pub(super) fn remove_temporaries(&mut self, events: &mut Vec<Event>) {
        for destination in std::mem::take(&mut self.temporaries.made) {
            let ticket = self.wait(1, None, Then::Nothing);
            let advisory = self.advisory(&destination, false, ticket);
            events.push(advisory);
        }
    }

    fn advisory(&mut self, destination: &model::Destination, exists: bool, ticket: model::Ticket) -> Event {
        self.temporaries.advisories += 1;
        let name = destination.name.as_ref();
        let (topic, wire) = match destination.kind {
            DestinationKind::Queue => (ADVISORY_QUEUE, Destination::TempQueue(name.into())),
            DestinationKind::Topic => (ADVISORY_TOPIC, Destination::TempTopic(name.into())),
        };
        let connection_id = self.introduction.client().map(|client| client.connection_id.clone());
        let info = DestinationInfo {
            connection_id: connection_id.clone().map(|value| ConnectionId { value: Some(value) }),
            destination: Some(wire),
            operation_type: if exists { DestinationInfo::ADD } else { DestinationInfo::REMOVE },
            ..DestinationInfo::default()
        };
        let producer_id = ProducerId { connection_id, session_id: -1, value: -1 };
        let message = Message {
            producer_id: Some(producer_id.clone()),
            destination: Some(Destination::Topic(topic.into())),
            message_id: Some(MessageId {
                producer_id: Some(producer_id),
                producer_sequence_id: self.temporaries.advisories,
                ..MessageId::default()
            }),
            message_type: Some("Advisory".into()),
            data_structure: Some(Box::new(DataStructure::Command(Box::new(Command::DestinationInfo(info))))),
            ..Message::default()
        };
        let stored = to_stored(&message, VERSION_MAX).unwrap_or_default();
        let sent =
            Sent::new(model::Destination::topic(topic), producer::to_model(&message, stored, VERSION_MAX));
        Event::Publish(Publish {
            retain: Some(Retain { key: name.into(), keep: exists }),
            ..Publish::plain(self.id, ticket, sent)
        })
    }
}
