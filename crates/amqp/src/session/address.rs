//! Addresses: from a client's text to a destination of the broker, and the names of dynamic nodes.
//!
//! Names are read as `postroad_model::address` has it: with options, in lists, with the kind ahead.
//! Besides:
//!
//! | written | means |
//! |---|---|
//! | `topic://a` | a destination of that kind |
//! | `a` with the capability `queue`, `topic`, `temporary-queue` or `temporary-topic` | the kind of the capability |
//! | `a` | the queue `a` |

use postroad_model::address::{self, LIST_MAX};
use postroad_model::{Destination, DestinationKind};

use crate::codec::{Error, Symbol};

/// The capabilities of a terminus.
pub const CAPABILITIES: [(&str, DestinationKind, bool); 4] = [
    ("queue", DestinationKind::Queue, false),
    ("topic", DestinationKind::Topic, false),
    ("temporary-queue", DestinationKind::Queue, true),
    ("temporary-topic", DestinationKind::Topic, true),
];

/// The kind that an address has without a prefix.
pub type Kind = (DestinationKind, bool);

/// The kind that the capabilities of a terminus name; a queue unless they say otherwise.
pub fn kind_of(capabilities: &[Symbol]) -> Kind {
    let named =
        CAPABILITIES.iter().find(|(name, ..)| capabilities.iter().any(|capability| capability == name));
    named.map_or((DestinationKind::Queue, false), |(_, kind, temporary)| (*kind, *temporary))
}

/// The kind that a message's own annotation gives its address: `x-opt-jms-dest` of the client
/// `qpid-jms`.
pub fn kind_of_annotation(number: i64) -> Option<Kind> {
    match number {
        0 => Some((DestinationKind::Queue, false)),
        1 => Some((DestinationKind::Topic, false)),
        2 => Some((DestinationKind::Queue, true)),
        3 => Some((DestinationKind::Topic, true)),
        _ => None,
    }
}

/// The destination of an address that a message has, which is never a list.
///
/// # Errors
/// `amqp:invalid-field`: it has no name.
pub fn destination(address: &str, (kind, temporary): Kind) -> Result<Destination, Error> {
    let destination = address::read_one(address, kind, temporary);
    if destination.name.is_empty() { Err(nameless()) } else { Ok(destination) }
}

/// The destinations of an address that a client attaches to, or sends to.
///
/// # Errors
/// `amqp:invalid-field`: it has no name, or too many.
pub fn destinations(address: &str, (kind, temporary): Kind) -> Result<Vec<Destination>, Error> {
    let destinations = address::read(address, kind, temporary);
    match destinations.len() {
        0 => Err(nameless()),
        1..=LIST_MAX => Ok(destinations),
        count => {
            let text = format!("the address lists {count} destinations; the limit is {LIST_MAX}");
            Err(super::fault::error("amqp:invalid-field", text))
        }
    }
}

fn nameless() -> Error {
    super::fault::error("amqp:invalid-field", "the address has no name")
}

/// The address of a destination in a message. Clients without kinds reply to it as it stands: a
/// queue is the default for sends, anything else has its kind before it.
pub fn plain_address(destination: &Destination) -> String {
    match (destination.kind, destination.temporary) {
        (DestinationKind::Queue, false) => destination.name.to_string(),
        _ => destination.to_string(),
    }
}

/// The address of a dynamic node: with its kind before it, so that a reply needs no more.
pub fn dynamic_address(destination: &Destination) -> String {
    destination.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_become_destinations() {
        let temporary = |destination| Destination { temporary: true, ..destination };
        for (case, address, capabilities, want) in [
            ("no capability", "a.b", &[][..], Destination::queue("a.b")),
            ("queue", "a", &["queue"], Destination::queue("a")),
            ("topic", "a", &["other", "topic"], Destination::topic("a")),
            ("temporary queue", "a", &["temporary-queue"], temporary(Destination::queue("a"))),
            ("temporary topic", "a", &["temporary-topic"], temporary(Destination::topic("a"))),
            ("a prefix wins", "topic://a", &["queue"], Destination::topic("a")),
            ("reply to a dynamic node", "temp-queue://a", &[], temporary(Destination::queue("a"))),
        ] {
            let capabilities: Vec<Symbol> =
                capabilities.iter().map(|name| Symbol::from_static(name)).collect();
            let got = destination(address, kind_of(&capabilities));
            assert_eq!(got, Ok(want.clone()), "case: {case}");
            assert_eq!(destination(&dynamic_address(&want), kind_of(&[])), Ok(want), "case: {case}");
        }
        for nameless in ["", " ", "topic://"] {
            assert!(destination(nameless, kind_of(&[])).is_err(), "{nameless:?}");
        }
    }
}
