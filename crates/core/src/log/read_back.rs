//! Reading back: the messages of a record that a partition asked for, once that is there.

use bytes::Bytes;
use postroad_model::{Command, Event, Message, MessageKey, PartitionId, Position, Sent};

use super::record::{RecordError, decode_record};

/// The events for these messages of a record, which the partition asked for by
/// [`postroad_model::Effect::Fetch`]. A record of a transaction has hundreds, so it is decoded
/// once, whatever their number.
pub fn read_back(
    position: Position,
    record: &Result<Bytes, String>,
    keys: Vec<MessageKey>,
) -> impl Iterator<Item = Event> {
    let sends = record.as_ref().map_err(Clone::clone);
    let sends = sends.and_then(|record| sends_in_record(record).map_err(|error| error.to_string()));
    let (mut bodies, mut recalled) = (Vec::with_capacity(keys.len()), Vec::new());
    for key in keys {
        let MessageKey::Durable { ordinal, .. } = key else { continue };
        let sent = sends.as_ref().map_err(Clone::clone).and_then(|sends| {
            let sent = sends.get(ordinal).cloned();
            sent.ok_or_else(|| format!("record {} has no message {ordinal}", position.get()))
        });
        match sent {
            Ok(sent) if sent.schedule.is_some() => {
                recalled.push(Event::Recalled { key, sent: Box::new(sent) });
            }
            sent => bodies.push((key, sent.map(|sent| sent.message))),
        }
    }
    let fetched = (!bodies.is_empty()).then_some(Event::Fetched { bodies });
    fetched.into_iter().chain(recalled)
}

/// Adds bodies to those of the partition's last event, if that is still to come; gives back those
/// that need an event of their own.
pub fn tell_together(last: Option<&mut Event>, event: Event) -> Option<Event> {
    match (last, event) {
        (Some(Event::Fetched { bodies }), Event::Fetched { bodies: more }) => {
            bodies.extend(more);
            None
        }
        (_, event) => Some(event),
    }
}

/// The messages of a record, with their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sends {
    all: Vec<Sent>,
    /// Of each, and rising, where they are not all from 0 on.
    ordinals: Option<Vec<u32>>,
}

impl Sends {
    /// The message of this ordinal, if the record has it, or has it still.
    pub fn get(&self, ordinal: u32) -> Option<&Sent> {
        let place = match &self.ordinals {
            Some(ordinals) => ordinals.binary_search(&ordinal).ok()?,
            None => ordinal as usize,
        };
        self.all.get(place)
    }

    /// All of them.
    pub fn into_sent(self) -> Vec<Sent> {
        self.all
    }
}

impl From<Vec<Sent>> for Sends {
    fn from(all: Vec<Sent>) -> Sends {
        Sends { all, ordinals: None }
    }
}

/// The messages of a record.
///
/// # Errors
/// [`RecordError`] as for [`decode_record`].
pub fn sends_in_record(record: &Bytes) -> Result<Sends, RecordError> {
    Ok(match decode_record(record)? {
        Command::Enqueue(sent) | Command::Fire { sent, .. } => vec![sent].into(),
        Command::Transact(changes) | Command::Prepare { changes, .. } => changes.sends.into(),
        Command::Left { sends } => {
            let (ordinals, all) = sends.into_iter().unzip();
            Sends { all, ordinals: Some(ordinals) }
        }
        _ => Sends::default(),
    })
}

/// The `ordinal`th message of a record, read back from the log, with its addresses.
///
/// # Errors
/// [`RecordError`] as for [`decode_record`]; `Ok(None)` if the record does not have it.
pub fn sent_in_record(record: &Bytes, ordinal: u32) -> Result<Option<Sent>, RecordError> {
    Ok(sends_in_record(record)?.get(ordinal).cloned())
}

/// The piece of a large body in a record.
///
/// # Errors
/// As for [`decode_record`]; `Ok(None)` if the record is another one.
pub fn chunk_in_record(record: &Bytes) -> Result<Option<Bytes>, RecordError> {
    match decode_record(record)? {
        Command::Chunk(bytes) => Ok(Some(bytes)),
        _ => Ok(None),
    }
}

/// The jobs in a record that has some: see [`Command::Shelve`].
///
/// # Errors
/// As for [`decode_record`]; `Ok(None)` if the record is another one.
pub fn jobs_in_record(record: &Bytes) -> Result<Option<Bytes>, RecordError> {
    match decode_record(record)? {
        Command::Shelve { jobs } => Ok(Some(jobs)),
        _ => Ok(None),
    }
}

/// The `ordinal`th message of a record alone.
///
/// # Errors
/// As for [`sent_in_record`].
pub fn message_in_record(record: &Bytes, ordinal: u32) -> Result<Option<Message>, RecordError> {
    Ok(sent_in_record(record, ordinal)?.map(|sent| sent.message))
}

/// The messages of the record that was read last: a reader of one message after the other in the
/// order of the log mostly wants the next of the same record, and decodes it once.
#[derive(Debug, Default)]
pub struct LastRecord {
    at: Option<(PartitionId, Position)>,
    sends: Sends,
}

impl LastRecord {
    /// The messages of this record, which is read if it is another one than before.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn sends<E>(
        &mut self,
        partition: PartitionId,
        position: Position,
        read: impl FnOnce() -> Result<Sends, E>,
    ) -> Result<&Sends, E> {
        if self.at != Some((partition, position)) {
            self.at = None;
            self.sends = read()?;
            self.at = Some((partition, position));
        }
        Ok(&self.sends)
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::{Changes, Command, Compression, Destination, Encoding, Message, Protocol, Schedule};

    use super::*;
    use crate::log::record::encode_record;

    fn sent(body: &'static str, schedule: Option<Box<Schedule>>) -> Sent {
        let encoding = Encoding { protocol: Protocol::OpenWire, version: 12 };
        let bytes = Bytes::from_static(body.as_bytes());
        let message =
            Message { encoding, persistent: true, priority: 4, expires_at_ms: 0, rare: None, bytes };
        Sent { schedule, ..Sent::new(Destination::queue("a"), message) }
    }

    fn record() -> Bytes {
        let later = Box::new(Schedule { job: "job".into(), due_ms: 7, again: None, retry: None });
        let sends = vec![sent("zero", None), sent("one", Some(later)), sent("two", None)];
        let command = Command::Transact(Changes { sends, ..Changes::default() });
        encode_record(&command, Compression::None).concat().into()
    }

    /// Bodies with their ordinals, and single events after a bar.
    fn told(events: impl Iterator<Item = Event>) -> String {
        let ordinal = |key| match key {
            MessageKey::Durable { ordinal, .. } => ordinal,
            MessageKey::Volatile(_) => u32::MAX,
        };
        let word = |event| match event {
            Event::Fetched { bodies } => {
                let body = |(key, message): (MessageKey, Result<Message, String>)| match message {
                    Ok(message) => format!("{} {:?}", ordinal(key), message.bytes),
                    Err(reason) => format!("{} {reason}", ordinal(key)),
                };
                bodies.into_iter().map(body).collect::<Vec<_>>().join(", ")
            }
            Event::Recalled { key, sent } => format!("later {} {:?}", ordinal(key), sent.message.bytes),
            other => panic!("{other:?}"),
        };
        events.map(word).collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn what_was_asked_for_of_a_record_is_told_together() {
        let position = Position::new(9).expect("from 1");
        let broken = record().slice(..30);
        for (case, record, ordinals, want) in [
            ("two", Ok(record()), &[2, 0][..], r#"2 b"two", 0 b"zero""#),
            ("one twice", Ok(record()), &[0, 0], r#"0 b"zero", 0 b"zero""#),
            ("a job for itself", Ok(record()), &[1, 2], r#"2 b"two" | later 1 b"one""#),
            ("a job alone", Ok(record()), &[1], r#"later 1 b"one""#),
            ("too far", Ok(record()), &[3, 0], r#"3 record 9 has no message 3, 0 b"zero""#),
            ("unread", Err("gone".to_owned()), &[0, 1], "0 gone, 1 gone"),
            ("broken", Ok(broken), &[0], "0 record ends at byte 28, where 4 more bytes belong"),
            ("nothing", Ok(record()), &[], ""),
        ] {
            let keys = ordinals.iter().map(|&ordinal| MessageKey::Durable { position, ordinal }).collect();
            assert_eq!(told(read_back(position, &record, keys)), want, "case: {case}");
        }
    }

    #[test]
    fn bodies_join_those_that_are_told_last() {
        let position = Position::new(9).expect("from 1");
        let of = |ordinal| {
            let keys = vec![MessageKey::Durable { position, ordinal }];
            read_back(position, &Ok(record()), keys).next().expect("an answer")
        };
        let mut last = of(0);
        assert!(tell_together(Some(&mut last), of(2)).is_none());
        let alone = tell_together(Some(&mut last), of(1));
        assert_eq!(told([last].into_iter().chain(alone)), r#"0 b"zero", 2 b"two" | later 1 b"one""#);
        assert_eq!(told(tell_together(None, of(2)).into_iter()), r#"2 b"two""#);
    }

    #[test]
    fn a_record_is_read_once_for_all_that_is_asked_of_it_in_a_row() {
        let (mut last, mut reads) = (LastRecord::default(), 0);
        let mut ask = |partition, number, sound| {
            let position = Position::new(number).expect("from 1");
            let sends = last.sends(PartitionId(partition), position, || {
                reads += 1;
                if sound { sends_in_record(&record()).map_err(drop) } else { Err(()) }
            });
            (sends.map(|sends| sends.clone().into_sent().len()), reads)
        };
        assert_eq!((ask(0, 1, true), ask(0, 1, true)), ((Ok(3), 1), (Ok(3), 1)));
        assert_eq!((ask(1, 1, true), ask(0, 1, true)), ((Ok(3), 2), (Ok(3), 3)));
        assert_eq!((ask(0, 2, false), ask(0, 2, false)), ((Err(()), 4), (Err(()), 5)));
        assert_eq!(ask(0, 1, true), (Ok(3), 6), "what failed is no record");
    }
}
