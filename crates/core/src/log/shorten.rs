//! The rest of a compacted record: its messages that are still needed, as they are. The other parts
//! of a transaction's record were applied long ago, and are in every checkpoint that a start may
//! begin with.

use bytes::{BufMut, Bytes};

use super::reader::Reader;
use super::record::{RecordError, VERSION, kind};

/// The record with nothing but those of its messages that are needed, each under its ordinal, and
/// how many these are; `None` where it would not be shorter, or is no record with several messages.
/// A share of a transaction stays whole while all of its messages are needed: it may still be
/// undecided.
pub fn shorten_record(record: &[u8], is_needed: &dyn Fn(u32) -> bool) -> Option<(u32, Vec<u8>)> {
    // Nearly all that wait long have one message, and nothing besides.
    let (&kind, &version) = (record.first()?, record.get(1)?);
    if !matches!(kind, kind::TRANSACT | kind::PREPARE | kind::LEFT) {
        return None;
    }
    let (all, needed) = needed(&Bytes::copy_from_slice(record), is_needed).ok()??;
    let left = needed.len() as u32;
    if kind == kind::PREPARE && left == all {
        return None;
    }
    let mut shorter = vec![kind::LEFT, version];
    shorter.put_u32_le(left);
    for (ordinal, sent) in needed {
        shorter.put_u32_le(ordinal);
        shorter.extend_from_slice(&sent);
    }
    (shorter.len() < record.len()).then_some((left, shorter))
}

/// How many messages a record has, and those that are needed, by their ordinals and as they are in
/// it.
type Found = (u32, Vec<(u32, Bytes)>);

/// `None`: this build does not know the record's version.
fn needed(record: &Bytes, is_needed: &dyn Fn(u32) -> bool) -> Result<Option<Found>, RecordError> {
    let mut input = Reader::new(record.clone());
    let kind = input.u8()?;
    let version = input.u8()?;
    if version != VERSION {
        return Ok(None);
    }
    if kind == kind::PREPARE {
        input.transaction()?;
    }
    if kind != kind::LEFT {
        input.settlements()?;
    }
    let (all, mut needed) = (input.u32()?, Vec::new());
    for place in 0..all {
        let ordinal = if kind == kind::LEFT { input.u32()? } else { place };
        let begin = input.place();
        input.sent()?;
        if is_needed(ordinal) {
            needed.push((ordinal, record.slice(begin..input.place())));
        }
    }
    input.end()?;
    Ok(Some((all, needed)))
}

#[cfg(test)]
mod tests {
    use postroad_model::{
        Changes, Command, Compression, Destination, Encoding, EntryTag, Message, PartitionId, Protocol,
        QueueId, Sent, SettleCause, Settlement, TransactionId,
    };

    use super::*;
    use crate::log::read_back::sends_in_record;
    use crate::log::record::encode_record;

    const ID: TransactionId = TransactionId { coordinator: PartitionId(1), incarnation: 2, number: 3 };

    fn sent(number: u8) -> Sent {
        let encoding = Encoding { protocol: Protocol::OpenWire, version: 12 };
        let bytes = Bytes::from(vec![number; 400]);
        let message =
            Message { encoding, persistent: true, priority: 4, expires_at_ms: 0, rare: None, bytes };
        Sent::new(Destination::queue("a"), message)
    }

    fn settled() -> Vec<Settlement> {
        vec![Settlement { queue: QueueId(1), tag: EntryTag(2), cause: SettleCause::Consumed }; 30]
    }

    fn written(command: &Command, compression: Compression) -> Vec<u8> {
        encode_record(command, compression).concat()
    }

    #[test]
    fn what_is_needed_is_left_under_its_ordinal_and_left_again() {
        let sends: Vec<Sent> = (0..9).map(sent).collect();
        let changes = |settlements| Changes { settlements, sends: sends.clone() };
        for (name, command) in [
            ("a transaction", Command::Transact(changes(Vec::new()))),
            ("one that settles too", Command::Transact(changes(settled()))),
            ("a share of one", Command::Prepare { id: ID, changes: changes(settled()) }),
            ("what was left before", Command::Left { sends: (0..).zip(sends.clone()).collect() }),
        ] {
            for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
                let mut record = written(&command, compression);
                for needed in [&[0, 2, 7, 8][..], &[2, 8], &[8], &[]] {
                    let shorter = shorten_record(&record, &|ordinal| needed.contains(&ordinal));
                    let (left, shorter) =
                        shorter.unwrap_or_else(|| panic!("{name}, {compression:?}: {needed:?}"));
                    assert_eq!(left as usize, needed.len(), "{name}: {needed:?}");
                    assert!(shorter.len() < record.len(), "{name}: {needed:?}");
                    let left = sends_in_record(&shorter.clone().into()).expect("a record");
                    for ordinal in 0..10 {
                        let want = Some(ordinal).filter(|ordinal| needed.contains(ordinal));
                        let want = want.and_then(|ordinal| sends.get(ordinal as usize));
                        assert_eq!(left.get(ordinal), want, "{name}: {ordinal} of {needed:?}");
                    }
                    record = shorter;
                }
            }
        }
    }

    #[test]
    fn what_would_not_be_shorter_stays_as_it_is() {
        let one = Changes { settlements: Vec::new(), sends: vec![sent(1)] };
        let changes = Changes { settlements: settled(), sends: vec![sent(1), sent(2)] };
        for (name, command) in [
            ("one message", Command::Enqueue(sent(1))),
            ("a transaction of one", Command::Transact(one)),
            ("all that was left", Command::Left { sends: vec![(3, sent(1)), (9, sent(2))] }),
            ("no message", Command::Settle(settled())),
            ("a share that may be undecided", Command::Prepare { id: ID, changes: changes.clone() }),
        ] {
            assert_eq!(shorten_record(&written(&command, Compression::None), &|_| true), None, "{name}");
        }
        let (cut, all) = (
            written(
                &Command::Transact(Changes { settlements: settled(), sends: vec![sent(1)] }),
                Compression::None,
            ),
            |_| true,
        );
        for end in 0..cut.len() {
            assert_eq!(shorten_record(&cut[..end], &all), None, "cut at {end}");
        }
        assert!(shorten_record(&cut, &all).is_some(), "what was settled is dropped");
        let mut newer = cut;
        newer[1] = 200;
        assert_eq!(shorten_record(&newer, &all), None, "of a version that this build does not know");
    }
}
