//! Sort keys: records with the same key are read together.

use std::hash::Hasher;

use bytes::Bytes;
use rustc_hash::FxHasher;

use super::read_back::sends_in_record;
use super::record::{VERSION, kind};

/// The common number of records that are read together: the address of their first message, as a
/// rule.
pub fn sort_key_of_record(record: &[u8]) -> u32 {
    // Nearly all that wait long: the rest of such a record need not be looked at.
    let name = match record {
        [kind::ENQUEUE, VERSION, _, rest @ ..] => rest
            .split_first_chunk::<4>()
            .and_then(|(length, rest)| rest.get(..u32::from_le_bytes(*length) as usize)),
        _ => None,
    };
    let mut hasher = FxHasher::default();
    match name {
        Some(name) => hasher.write(name),
        None => {
            let sends = sends_in_record(&Bytes::copy_from_slice(record)).unwrap_or_default();
            hasher.write(sends.into_sent().first().map_or(&[], |sent| sent.to.name.as_bytes()));
        }
    }
    // The last bits are those that differ least.
    (hasher.finish() >> 32) as u32
}

#[cfg(test)]
mod tests {
    use postroad_model::{Changes, Command, Compression, Destination, Encoding, Message, Protocol, Sent};

    use super::*;
    use crate::log::record::encode_record;

    fn to(name: &str) -> Sent {
        let encoding = Encoding { protocol: Protocol::OpenWire, version: 12 };
        let bytes = Bytes::from_static(b"body");
        let message =
            Message { encoding, persistent: true, priority: 7, expires_at_ms: 0, rare: None, bytes };
        Sent::new(Destination::queue(name), message)
    }

    #[test]
    fn records_are_kin_by_the_address_of_their_first_message() {
        let sort_key = |command: Command| {
            let record = encode_record(&command, Compression::None).concat();
            // Whatever is left of it has some sort_key.
            let _ = (0..record.len()).map(|end| sort_key_of_record(&record[..end])).max();
            sort_key_of_record(&record)
        };
        let also = Sent { also: vec![Destination::queue("b")], ..to("a") };
        let transact = |sends| Command::Transact(Changes { sends, ..Changes::default() });
        let [a, b, nothing] =
            [Command::Enqueue(to("a")), Command::Enqueue(to("b")), transact(vec![])].map(sort_key);
        for (case, command, want) in [
            ("the same address", Command::Enqueue(to("a")), a),
            ("more addresses", Command::Enqueue(also), a),
            ("a transaction", transact(vec![to("b"), to("a")]), b),
            ("no message", Command::Declare { queue: Destination::queue("a") }, nothing),
        ] {
            assert_eq!(sort_key(command), want, "case: {case}");
        }
        assert!(a != b && a != nothing && b != nothing);
    }
}
