//! Destinations that clients make and delete.

use std::collections::BTreeSet;

use postroad_model::{self as model, Event};

use super::exception::Exception;
use super::replies::{self, Then};
use super::{Done, OpenWireSession, Turn, names};
use crate::codec::DestinationInfo;

/// Temporary destinations of one connection: clients that make one for each request delete it with
/// the reply.
const TEMPORARIES_MAX: usize = 16_384;

/// The temporary destinations of a connection.
#[derive(Default)]
pub struct Temporaries {
    made: BTreeSet<model::Destination>,
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
        let steals =
            if destination.temporary { self.introduction.client().map(|client| client.heir()) } else { None };
        turn.events.push(Event::Declare { destination, connection: self.id, steals, ticket });
        Done::Later(ticket)
    }

    /// A destination exists now, and was announced.
    pub(super) fn declared(&mut self, destination: &model::Destination) {
        if destination.temporary {
            self.temporaries.made.insert(destination.clone());
        }
    }

    /// A destination is gone.
    pub(super) fn deleted(&mut self, destination: &model::Destination) {
        self.temporaries.made.remove(destination);
    }
}
