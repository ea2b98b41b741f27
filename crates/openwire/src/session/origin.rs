//! Who sent a message, as the audit of duplicates wants to know it.
//!
//! A Postroad that forwards an entry of a queue names queue and entry in the producer id, which
//! otherwise nothing reads in a forwarded message: see [`link_producer`].

use bytes::Bytes;
use postroad_model::{EntryTag, Origin, PartitionId, QueueId};

use crate::codec::{
    Destination, Message, MessageId, ProducerId, WireString, peek_message_id, peek_producer_named,
};
use crate::portable::is_made_up;

/// Prefix of the connection id of a producer that is a queue of another broker.
const LINK_PREFIX: &str = "postroad-link:";

/// Of a tag: the lane of the queue is above these bits, the place in the lane below.
const SEQUENCE_BITS: u32 = EntryTag::SEQUENCE_BITS;

/// The producer id of an entry that is forwarded: its queue, and its number there. `None` for an
/// entry in memory, whose number means something else after a restart.
pub fn link_producer(
    broker_id: &str,
    (partition, queue): (PartitionId, QueueId),
    tag: EntryTag,
) -> Option<ProducerId> {
    let (lane, sequence) = (tag.0 >> SEQUENCE_BITS, tag.0 & ((1 << SEQUENCE_BITS) - 1));
    let is_durable = !queue.is_volatile() && lane & 1 == 0;
    let name = || format!("{LINK_PREFIX}{broker_id}:{}:{}:{lane}", partition.0, queue.0);
    let id =
        || ProducerId { connection_id: Some(name().as_str().into()), session_id: 1, value: sequence as i64 };
    is_durable.then(id)
}

/// Whether the producer is the entry of another broker's queue.
pub fn is_link_producer(id: &ProducerId) -> bool {
    id.connection_id.as_ref().is_some_and(|name| name.as_bytes().starts_with(LINK_PREFIX.as_bytes()))
}

/// The queue and number that the other broker has named.
fn link_origin(stored: &Bytes, version: u8) -> Option<Origin> {
    let id = peek_producer_named(stored, version, LINK_PREFIX.as_bytes())?;
    let sequence = u64::try_from(id.value).ok()?;
    Some(Origin { producer: digest(&ProducerId { value: 0, ..id }), sequence, from_link: true })
}

/// The producer and the number that it gave the message (`MessageId.producerId`,
/// `producerSequenceId`); `None` if the message cannot be read or names no producer.
pub fn origin_of(stored: &Bytes, version: u8) -> Option<Origin> {
    if let Some(origin) = link_origin(stored, version) {
        return Some(origin);
    }
    let id = peek_message_id(stored, version).ok()??;
    let sequence = u64::try_from(id.producer_sequence_id).ok()?;
    Some(Origin { producer: digest(&id.producer_id?), sequence, from_link: false })
}

/// Names a topic message that may come by several links, by its id and its topic: brokers that
/// forward it keep them. `None` for any other, without an id, and where a broker has made up the
/// id for want of one.
pub fn once(message: &Message) -> Option<u128> {
    let Destination::Topic(topic) = message.destination.as_ref()? else { return None };
    named(message.message_id.as_ref()?, topic)
}

/// As [`once`], of a message as it is stored, which was sent to this topic.
pub fn name_of(stored: &Bytes, version: u8, topic: &str) -> Option<u128> {
    let id = peek_message_id(stored, version).ok()??;
    named(&id, &topic.into())
}

fn named(id: &MessageId, topic: &WireString) -> Option<u128> {
    let producer = id.producer_id.as_ref().filter(|producer| !is_made_up(producer))?;
    let producer = digest(producer);
    let to = digest(&ProducerId {
        connection_id: Some(topic.clone()),
        session_id: id.producer_sequence_id,
        value: 0,
    });
    Some(producer.rotate_left(1) ^ to)
}

/// 128 bits that stand for a producer, in every build alike, for they are kept: two producers that
/// share them would cost a message, so there are more of them than chance can match.
fn digest(producer: &ProducerId) -> u128 {
    let name = producer.connection_id.as_ref().map_or(&b""[..], |name| name.as_bytes());
    let numbers = [producer.session_id as u64, producer.value as u64, name.len() as u64];
    let (chunks, rest) = name.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)).chain([u64::from_le_bytes(last)]);
    let (mut left, mut right) = (0x9e37_79b9_7f4a_7c15_u64, 0xc2b2_ae3d_27d4_eb4f_u64);
    for word in numbers.into_iter().chain(words) {
        left = mix(left ^ word);
        right = mix(right.rotate_left(32) ^ word).wrapping_add(left);
    }
    u128::from(left) << 64 | u128::from(right)
}

/// The finaliser of SplitMix64: every bit of the input changes half of the output's.
fn mix(mut word: u64) -> u64 {
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::codec::{Destination, Message, MessageId, VERSION_MAX, to_stored};
    use crate::portable::id_by_every_way;

    fn producer(name: &str, session_id: i64, value: i64) -> ProducerId {
        ProducerId { connection_id: Some(name.into()), session_id, value }
    }

    #[test]
    fn producers_differ_by_each_part_of_their_names() {
        let mut seen = HashSet::new();
        for name in ["", "a", "a\u{1}", "ID:host-1-1:1", "ID:host-1-1:2", "ID:host-1-1:11"] {
            for (session_id, value) in [(0, 0), (0, 1), (1, 0), (1, 1), (-1, 1)] {
                assert!(
                    seen.insert(digest(&producer(name, session_id, value))),
                    "{name} {session_id} {value}"
                );
            }
        }
        // Digests kept by one build are known to the next one.
        let kept = digest(&producer("ID:host-1-1:1", 1, 2));
        assert_eq!(kept, KEPT, "{kept:#x}");
    }

    const KEPT: u128 = 0x52d5_5e38_f5ef_ff8e_659e_6ebf_1312_1dab;

    #[test]
    fn an_entry_that_a_link_forwards_is_known_by_its_queue_and_number() {
        let at = |partition, queue| (PartitionId(partition), QueueId(queue));
        let volatile = EntryTag(1 << SEQUENCE_BITS | 7);
        assert_eq!(link_producer("ID:a", at(0, 1), volatile), None, "in memory");
        assert_eq!(link_producer("ID:a", at(0, 1 << 63), EntryTag(7)), None, "of a queue in memory");
        let mut seen = HashSet::new();
        for (broker, at, lane) in [
            ("ID:a", at(0, 1), 0),
            ("ID:b", at(0, 1), 0),
            ("ID:a", at(1, 1), 0),
            ("ID:a", at(0, 2), 0),
            ("ID:a", at(0, 1), 2),
        ] {
            let id = link_producer(broker, at, EntryTag(lane << SEQUENCE_BITS | 7)).expect("durable");
            let message_id =
                Some(MessageId { producer_id: Some(producer("ID:x", 1, 1)), ..MessageId::default() });
            let message = Message { producer_id: Some(id), message_id, ..Message::default() };
            for version in 1..=VERSION_MAX {
                let stored = to_stored(&message, version).expect("a sound message");
                let origin = origin_of(&stored, version).expect("it is named");
                assert!(origin.from_link && origin.sequence == 7, "{origin:?}");
                assert_eq!(seen.insert(origin.producer), version == 1, "{broker} {at:?} {lane}");
            }
        }
    }

    #[test]
    fn a_topic_message_has_one_name_whichever_broker_forwards_it() {
        let message = |producer_id: &str, sequence, to: Destination, by: &str| Message {
            destination: Some(to),
            producer_id: Some(producer(by, 1, 1)),
            message_id: Some(MessageId {
                producer_id: Some(producer(producer_id, 1, 1)),
                producer_sequence_id: sequence,
                ..MessageId::default()
            }),
            ..Message::default()
        };
        let topic = |name: &str| Destination::Topic(name.into());
        let name = once(&message("ID:x", 7, topic("t"), "ID:a")).expect("it has one");
        assert_eq!(once(&message("ID:x", 7, topic("t"), "ID:b")), Some(name), "by another broker");
        for other in [
            message("ID:x", 8, topic("t"), "ID:a"),
            message("ID:y", 7, topic("t"), "ID:a"),
            message("ID:x", 7, topic("u"), "ID:a"),
            message("ID:x", 9, topic("t"), "ID:a"),
        ] {
            assert!(once(&other).is_some_and(|other| other != name), "{other:?}");
        }
        assert_eq!(once(&message("ID:x", 7, Destination::Queue("t".into()), "ID:a")), None, "a queue");
        let made_up = message("ID:postroad-translated", 1, topic("t"), "ID:a");
        assert_eq!(once(&made_up), None, "equal messages have equal ids");
        assert_eq!(once(&Message { destination: Some(topic("t")), ..Message::default() }), None, "no id");
        let of_amqp = |shown: Option<&str>, tag| {
            let producer_id = ProducerId { value: tag, ..producer("ID:postroad-translated", 5, 0) };
            let text_view = shown.map(Into::into);
            MessageId { text_view, producer_id: Some(producer_id), ..MessageId::default() }
        };
        let by_link = |shown, tag, stored: &[u8]| {
            let message_id = id_by_every_way(&of_amqp(shown, tag), stored);
            once(&Message { message_id, ..message("", 0, topic("t"), "ID:a") })
        };
        let name = by_link(Some("ID:m"), 1, b"x").expect("its client has named it");
        assert_eq!(by_link(Some("ID:m"), 2, b"x"), Some(name), "at another place in another queue");
        assert!(by_link(Some("ID:n"), 1, b"x").is_some_and(|other| other != name));
        assert!(by_link(Some("ID:m"), 1, b"y").is_some_and(|other| other != name));
        assert_eq!(by_link(None, 1, b"x"), None, "its client has not named it");
    }

    #[test]
    fn the_origin_is_read_from_every_version() {
        for version in 1..=VERSION_MAX {
            let producer_id = producer("ID:x", 3, 4);
            let message = Message {
                destination: Some(Destination::Queue("a".into())),
                producer_id: Some(producer_id.clone()),
                message_id: Some(MessageId {
                    producer_id: Some(producer_id.clone()),
                    producer_sequence_id: 9,
                    ..MessageId::default()
                }),
                ..Message::default()
            };
            let stored = to_stored(&message, version).expect("a sound message");
            let want = Origin { producer: digest(&producer_id), sequence: 9, from_link: false };
            assert_eq!(origin_of(&stored, version), Some(want), "version {version}");
            let cut = stored.slice(..12);
            assert_eq!(origin_of(&cut, version), None, "version {version}, cut");
        }
    }
}
