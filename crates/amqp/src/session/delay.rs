//! Messages that are due later: two annotations, which `qpid-jms` (`JMS_DELIVERY_TIME`) and Artemis
//! share.

use std::sync::Arc;

use bytes::Bytes;
use postroad_model::{Now, Schedule};

use super::AmqpSession;
use super::fault::error;
use crate::codec::{Error, Properties, Value, ValueMap};
use crate::message::annotate;
use crate::portable::read_id;

/// Who offers this takes messages that are due later, for the connection and for each link that
/// leads to it.
pub const DELAYED_DELIVERY: &str = "DELAYED_DELIVERY";

/// When a message is due, in ms since 1970.
const TIME: &str = "x-opt-delivery-time";

/// How long after it was taken in a message is due, in ms. It counts where no time is given.
const DELAY: &str = "x-opt-delivery-delay";

/// When the message is due, if its annotations ask for a moment that is still to come.
///
/// A delay is put into `message` as the resulting time: each receiver reads the same, and
/// forwarding it does not delay it again.
///
/// # Errors
/// An annotation is no number.
pub fn schedule_of(
    message: &mut Bytes,
    annotations: &ValueMap,
    properties: &Properties,
    now: Now,
) -> Result<Option<Schedule>, Error> {
    let due_ms = match (number(annotations, TIME)?, number(annotations, DELAY)?) {
        // Times before 1970 are due.
        (Some(time_ms), _) => u64::try_from(time_ms).unwrap_or(0),
        (None, Some(delay_ms)) => {
            // A delay below zero leads to a moment that has passed.
            let due_ms = now.wall_ms.saturating_add_signed(delay_ms);
            let time = Value::Long(i64::try_from(due_ms).unwrap_or(i64::MAX));
            let changed = annotate(message, [(DELAY, None), (TIME, Some(time))]);
            *message = changed.map_err(|wire| error("amqp:decode-error", format!("the message: {wire}")))?;
            due_ms
        }
        (None, None) => return Ok(None),
    };
    let id = properties.message_id.as_ref().and_then(read_id);
    let job: Arc<str> = id.map_or_else(|| "".into(), |id| id.to_jms_message_id().as_str().into());
    Ok((now.wall_ms < due_ms).then(|| Schedule::once(job, due_ms)))
}

/// Milliseconds, as any of the whole numbers or as a timestamp.
fn number(annotations: &ValueMap, name: &str) -> Result<Option<i64>, Error> {
    match annotations.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Timestamp(at_ms)) => Ok(Some(*at_ms)),
        Some(_) => AmqpSession::number_in(Some(annotations), name).map(Some).ok_or_else(|| {
            error("amqp:invalid-field", format!("{name} is not a whole number of milliseconds"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Field;
    use crate::message::Sections;

    const BARE: &[u8] = b"\0\x53\x77\xa1\x01a";

    fn scheduled(annotations: &[(&'static str, Value)]) -> (Result<Option<u64>, String>, Bytes) {
        let mut map = ValueMap::default();
        annotations.iter().for_each(|(name, value)| map.push(name, value.clone()));
        let mut out = bytes::BytesMut::from(&b"\0\x53\x72"[..]);
        map.write(&mut out);
        out.extend_from_slice(BARE);
        let mut message = out.freeze();
        let properties = Properties { message_id: Some("7".into()), ..Properties::default() };
        let now = Now { ticks_ms: 0, wall_ms: 1_000 };
        let schedule = schedule_of(&mut message, &map, &properties, now);
        let due = schedule.map(|schedule| {
            schedule.map(|schedule| {
                assert_eq!((&*schedule.job, &schedule.again), ("ID:AMQP_NO_PREFIX:7", &None));
                schedule.due_ms
            })
        });
        (due.map_err(|error| error.description.unwrap_or_default().to_string()), message)
    }

    #[test]
    fn annotations_say_when_a_message_is_due() {
        let no_number = |name: &str| Err(format!("{name} is not a whole number of milliseconds"));
        for (case, annotations, want) in [
            ("none", vec![("other", Value::Long(5_000))], Ok(None)),
            ("a time", vec![(TIME, Value::Long(5_000))], Ok(Some(5_000))),
            ("a timestamp", vec![(TIME, Value::Timestamp(5_000))], Ok(Some(5_000))),
            ("a delay", vec![(DELAY, Value::Uint(30))], Ok(Some(1_030))),
            ("both: the time counts", vec![(DELAY, Value::Uint(30)), (TIME, Value::Long(9))], Ok(None)),
            ("the past", vec![(TIME, Value::Long(1_000))], Ok(None)),
            ("long past", vec![(TIME, Value::Long(-1))], Ok(None)),
            ("no delay", vec![(DELAY, Value::Long(0))], Ok(None)),
            ("null", vec![(DELAY, Value::Null)], Ok(None)),
            ("no number", vec![(TIME, "soon".into())], no_number(TIME)),
            ("beyond a long", vec![(DELAY, Value::Ulong(u64::MAX))], no_number(DELAY)),
            ("a negative delay", vec![(DELAY, Value::Int(-1))], Ok(None)),
        ] {
            assert_eq!(scheduled(&annotations).0, want, "case: {case}");
        }
    }

    #[test]
    fn a_delay_is_stored_as_the_time_that_it_leads_to() {
        let (due, message) = scheduled(&[("mine", true.into()), (DELAY, Value::Long(30))]);
        assert_eq!(due, Ok(Some(1_030)));
        let sections = Sections::scan(&message).expect("sound sections");
        let mut want = ValueMap::default();
        want.push("mine", true);
        want.push(TIME, Value::Long(1_030));
        assert_eq!(sections.message_annotations(&message).expect("sound annotations"), want);
        assert!(message.ends_with(BARE));
        let (_, untouched) = scheduled(&[(TIME, Value::Long(5_000))]);
        let sections = Sections::scan(&untouched).expect("sound sections");
        assert_eq!(untouched.len(), sections.bare + BARE.len());
    }
}
