//! Names of destinations: from the wire to the model and back, remembering the last one.

use postroad_model::{Destination, DestinationKind};

use crate::codec::{self, WireString};

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

/// The model's destination of this name. Options behind a `?` are the client's own business.
pub fn to_model(wire: &codec::Destination) -> Destination {
    let kind = if wire.is_queue() { DestinationKind::Queue } else { DestinationKind::Topic };
    let text = wire.name().to_str();
    let name = text.split_once('?').map_or(&*text, |(name, _)| name);
    Destination { kind, temporary: wire.is_temporary(), name: name.into() }
}

/// The destinations of a list such as `a,topic://b`; each part is of the whole's kind unless it says otherwise.
pub fn parts(wire: &codec::Destination) -> Vec<codec::Destination> {
    let text = wire.name().to_str();
    let part = |part: &str| {
        let name = |prefix: &str| part.strip_prefix(prefix).map(WireString::from);
        if let Some(name) = name("queue://") {
            codec::Destination::Queue(name)
        } else if let Some(name) = name("topic://") {
            codec::Destination::Topic(name)
        } else {
            with_name(wire, part.into())
        }
    };
    text.split(',').map(str::trim).filter(|part_text| !part_text.is_empty()).map(part).collect()
}

/// Whether the name lists several destinations.
pub fn is_composite(wire: &codec::Destination) -> bool {
    wire.name().as_bytes().contains(&b',')
}

/// Whether a consumer of this name would read from every destination that it matches.
pub fn is_wildcard(wire: &codec::Destination) -> bool {
    wire.name().to_str().split('.').any(|part| part == "*" || part == ">")
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
            ("list", topic("a, b,queue://c"), vec![topic("a"), topic("b"), queue("c")]),
        ] {
            assert_eq!(parts(&wire), want, "case: {case}");
        }
        for (case, wire, want) in
            [("plain", "a.b", false), ("star", "a.*", true), ("rest", "a.>", true), ("no part", "a>", false)]
        {
            assert_eq!(is_wildcard(&queue(wire)), want, "case: {case}");
        }
    }
}
