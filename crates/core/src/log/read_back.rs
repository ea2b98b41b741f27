//! Reading back: what a partition asked for of a record, once that is there.

use bytes::Bytes;
use postroad_model::{Event, MessageKey, Position};

use super::record::sends_in_record;

/// What tells the partition of these messages of a record, which it asked for by [`postroad_model::Effect::Fetch`]. A record of a
/// transaction has hundreds, so it is decoded once, whatever their number.
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
            let sent = sends.get(ordinal as usize).cloned();
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

/// Adds bodies to those that the partition is told of last, if that is still to come; gives back what has to be told for itself.
pub fn tell_together(last: Option<&mut Event>, event: Event) -> Option<Event> {
    match (last, event) {
        (Some(Event::Fetched { bodies }), Event::Fetched { bodies: more }) => {
            bodies.extend(more);
            None
        }
        (_, event) => Some(event),
    }
}
