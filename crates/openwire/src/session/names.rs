//! Names of destinations: from the wire to the model and back, remembering the last one.

use std::sync::Arc;

use postroad_model::{Destination, DestinationKind, address};

use super::exception::Exception;
use crate::codec::{self, WireString};

pub use postroad_model::address::LIST_MAX;

/// Most producers send to one destination all the time: the last conversion is kept.
#[derive(Default)]
pub struct Names {
    last: Option<(codec::Destination, Destination)>,
}

impl Names {
    /// The model's destination.
    pub fn model(&mut self, wire: &codec::Destination) -> Destination {
        if let Some((known, destination)) = &self.last
            && known == wire
        {
            return destination.clone();
        }
        let destination = to_model(wire);
        self.last = Some((own(wire), destination.clone()));
        destination
    }
}

/// The model's destination of this name. Options after a `?` are the client's own business.
pub fn to_model(wire: &codec::Destination) -> Destination {
    let (kind, temporary) = kind_of(wire);
    address::read_one(&wire.name().to_str(), kind, temporary)
}

/// The kind that the command says.
fn kind_of(wire: &codec::Destination) -> (DestinationKind, bool) {
    let kind = if wire.is_queue() { DestinationKind::Queue } else { DestinationKind::Topic };
    (kind, wire.is_temporary())
}

/// The name of a consumer or producer in notices: see [`postroad_model::ConsumerNotice::name`].
pub fn of_client(connection: &Option<WireString>, session: i64, value: i64) -> Arc<str> {
    let connection = connection.as_ref().map(WireString::to_str).unwrap_or_default();
    format!("{connection}:{session}:{value}").into()
}

/// Refuses a destination without a name: nothing can be sent to it or read from it.
///
/// # Errors
/// An `InvalidDestinationException`.
pub fn check(destination: &Destination) -> Result<(), Exception> {
    if destination.name.trim().is_empty() {
        return Err(Exception::of("InvalidDestinationException", "the destination has no name"));
    }
    Ok(())
}

/// The destinations of a list such as `a,topic://b`; each part is of the whole's kind unless it
/// says otherwise.
pub fn parts(wire: &codec::Destination) -> Vec<codec::Destination> {
    let (kind, temporary) = kind_of(wire);
    let of_wire = |Destination { kind, temporary, name }: Destination| match (kind, temporary) {
        (DestinationKind::Queue, false) => codec::Destination::Queue((*name).into()),
        (DestinationKind::Topic, false) => codec::Destination::Topic((*name).into()),
        (DestinationKind::Queue, true) => codec::Destination::TempQueue((*name).into()),
        (DestinationKind::Topic, true) => codec::Destination::TempTopic((*name).into()),
    };
    address::read(&wire.name().to_str(), kind, temporary).into_iter().map(of_wire).collect()
}

/// The model's destinations of a list.
pub fn model_parts(wire: &codec::Destination) -> Vec<Destination> {
    parts(wire).iter().map(to_model).collect()
}

/// The destinations of a list in an option of a network connection, such as `queue://a,topic://b`;
/// queues if it does not say.
pub fn destinations_of(list: &str) -> Vec<Destination> {
    let list = list.trim().trim_start_matches('[').trim_end_matches(']');
    model_parts(&codec::Destination::Queue(list.into()))
}

/// Every destination that a message of this address is for.
pub fn targets(wire: &codec::Destination) -> Vec<Destination> {
    if is_composite(wire) { parts(wire).iter().map(to_model).collect() } else { vec![to_model(wire)] }
}

/// Whether the name lists several destinations.
pub fn is_composite(wire: &codec::Destination) -> bool {
    wire.name().as_bytes().contains(&b',')
}

/// Whether a consumer of this name would read from every destination that it matches.
pub fn is_wildcard(wire: &codec::Destination) -> bool {
    parts(wire).iter().any(|part| to_model(part).is_pattern())
}

/// The same destination in memory of its own.
pub fn own(wire: &codec::Destination) -> codec::Destination {
    with_name(wire, super::own(wire.name()))
}

fn with_name(wire: &codec::Destination, name: WireString) -> codec::Destination {
    match wire {
        codec::Destination::Queue(_) => codec::Destination::Queue(name),
        codec::Destination::Topic(_) => codec::Destination::Topic(name),
        codec::Destination::TempQueue(_) => codec::Destination::TempQueue(name),
        codec::Destination::TempTopic(_) => codec::Destination::TempTopic(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_destinations() {
        let queue = |name: &str| codec::Destination::Queue(name.into());
        let topic = |name: &str| codec::Destination::Topic(name.into());
        for (case, wire, want) in [
            ("queue", queue("a.b"), Destination::queue("a.b")),
            ("topic", topic("a"), Destination::topic("a")),
            ("the kind in the name wins", topic("queue://a"), Destination::queue("a")),
            ("prefix and options", queue("topic://a?x=1"), Destination::topic("a")),
            (
                "temporary in the name",
                queue("temp-topic://a"),
                Destination { temporary: true, ..Destination::topic("a") },
            ),
            ("options are left out", queue("a?consumer.prefetchSize=1"), Destination::queue("a")),
            (
                "temporary",
                codec::Destination::TempQueue("ID:1".into()),
                Destination { temporary: true, ..Destination::queue("ID:1") },
            ),
        ] {
            assert_eq!(to_model(&wire), want, "case: {case}");
        }
        for (case, wire, want) in [
            ("one", queue("a"), vec![queue("a")]),
            ("nothing", queue(" , "), vec![]),
            ("twice", queue("a,b,queue://a"), vec![queue("a"), queue("b")]),
            ("options are left out", queue("a?x=1,topic://b?y=2"), vec![queue("a"), topic("b")]),
            ("list", topic("a, b,queue://c"), vec![topic("a"), topic("b"), queue("c")]),
        ] {
            assert_eq!(parts(&wire), want, "case: {case}");
        }
        for (case, wire, want) in [
            ("plain", "a.b", false),
            ("star", "a.*", true),
            ("rest", "a.>", true),
            ("in a list", "a,queue://*", true),
            ("no part", "a>", false),
        ] {
            assert_eq!(is_wildcard(&queue(wire)), want, "case: {case}");
        }
    }

    #[test]
    fn a_destination_has_a_name() {
        for (name, want) in [("a", true), ("", false), (" ", false), ("?x=1", false), ("queue://", false)] {
            let wire = codec::Destination::Queue(name.into());
            assert_eq!(check(&to_model(&wire)).is_ok(), want, "{name:?}");
        }
    }
}
