//! Addresses as clients write them: one reading for all protocols.
//!
//! | written | means |
//! |---|---|
//! | `a` | the destination `a`, of the kind that the protocol says |
//! | `queue://a`, `topic://a`, `temp-queue://a`, `temp-topic://a` | the kind that the prefix says |
//! | `a?consumer.prefetchSize=5` | `a`: options are for the client |
//! | `a, topic://b` | both; a name that is listed twice counts once |
//! | blanks around a name | nothing |

use crate::{Destination, DestinationKind};

/// Destinations in one list: for a consumer each costs as much as a consumer, for a message as much
/// as an entry.
pub const LIST_MAX: usize = 1024;

/// The prefixes of names, with the kind that each says and whether it is temporary.
const PREFIXES: [(&str, DestinationKind, bool); 4] = [
    ("queue://", DestinationKind::Queue, false),
    ("topic://", DestinationKind::Topic, false),
    ("temp-queue://", DestinationKind::Queue, true),
    ("temp-topic://", DestinationKind::Topic, true),
];

/// The destination of an address that is no list. Its name may be empty.
pub fn read_one(text: &str, kind: DestinationKind, temporary: bool) -> Destination {
    let text = text.trim();
    let prefixed = PREFIXES
        .iter()
        .find_map(|(prefix, kind, temporary)| Some((text.strip_prefix(prefix)?, *kind, *temporary)));
    let (name, kind, temporary) = prefixed.unwrap_or((text, kind, temporary));
    let name = name.split_once('?').map_or(name, |(name, _)| name).trim();
    Destination { kind, temporary, name: name.into() }
}

/// The destinations of an address, in order, each once; those without a name are left out.
pub fn read(text: &str, kind: DestinationKind, temporary: bool) -> Vec<Destination> {
    let mut seen = std::collections::BTreeSet::new();
    let listed = text.split(',').map(|part| read_one(part, kind, temporary));
    listed.filter(|part| !part.name.is_empty() && seen.insert(part.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_openwire_clients_write_it() {
        let (queue, topic) = (Destination::queue, Destination::topic);
        let temporary = |destination| Destination { temporary: true, ..destination };
        for (text, want) in [
            ("a.b", vec![queue("a.b")]),
            ("topic://a", vec![topic("a")]),
            ("temp-queue://ID:1", vec![temporary(queue("ID:1"))]),
            ("temp-topic://ID:1", vec![temporary(topic("ID:1"))]),
            (" a ", vec![queue("a")]),
            ("queue:// a ?x=1", vec![queue("a")]),
            ("a?consumer.prefetchSize=5", vec![queue("a")]),
            ("b,c", vec![queue("b"), queue("c")]),
            ("b, topic://c?x=1 ,,b", vec![queue("b"), topic("c")]),
            ("", vec![]),
            (" , queue://,?x=1", vec![]),
        ] {
            assert_eq!(read(text, DestinationKind::Queue, false), want, "{text:?}");
        }
        assert_eq!(read_one("a", DestinationKind::Topic, true), temporary(topic("a")));
    }
}
