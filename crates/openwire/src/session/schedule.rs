//! Messages that are due later, as ActiveMQ's clients ask for them: by properties
//! (`ScheduledMessage`).

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use postroad_model::{Event, JobsWanted, Message, Recurrence, Schedule};

use super::exception::Exception;
use super::replies::Then;
use super::{Done, OpenWireSession, Turn, names};
use crate::client::message_id_text;
use crate::codec::{
    self, Destination, MessageId, Primitive, PrimitiveMap, ProducerId, from_stored, to_stored,
};

const DELAY: &str = "AMQ_SCHEDULED_DELAY";
const PERIOD: &str = "AMQ_SCHEDULED_PERIOD";
const REPEAT: &str = "AMQ_SCHEDULED_REPEAT";
const CRON: &str = "AMQ_SCHEDULED_CRON";

/// The prefix of all of them.
pub(crate) const SCHEDULE_PREFIX: &str = "AMQ_SCHEDULED_";

/// The property by which a message that was scheduled names its job.
const JOB: &str = "scheduledJobId";

/// Where clients ask about jobs (`ScheduledMessage.AMQ_SCHEDULER_MANAGEMENT_DESTINATION`), a topic.
const MANAGEMENT: &str = "ActiveMQ.Scheduler.Management";

/// The request, and its time range.
const ACTION: &str = "AMQ_SCHEDULER_ACTION";
const START: &str = "ACTION_START_TIME";
const END: &str = "ACTION_END_TIME";

/// Who sends the messages of jobs that send several.
const PRODUCER: &str = "ID:postroad-schedule";

/// When the message is due, if its properties say so. A delay counts from now; without one a period
/// does, as in ActiveMQ (`JobSchedulerImpl.doSchedule`).
///
/// # Errors
/// A property is no number, or the period is negative.
pub fn schedule_of(message: &codec::Message, now_ms: u64) -> Result<Option<Schedule>, Exception> {
    let Some(marshalled) = message.marshalled_properties.as_ref().filter(|bytes| mentions_schedule(bytes))
    else {
        return Ok(None);
    };
    let unread = |error: codec::WireError| Exception::jms(&format!("the properties cannot be read: {error}"));
    let properties = PrimitiveMap::decode(marshalled).map_err(unread)?;
    let cron = properties.get(CRON).and_then(text).filter(|cron| !cron.trim().is_empty());
    let (delay, period) = (number(&properties, DELAY)?, number(&properties, PERIOD)?);
    if cron.is_none() && delay.is_none() && period.is_none() {
        return Ok(None);
    }
    let positive = |name: &str, value: Option<i64>| {
        let value = value.unwrap_or(0);
        u64::try_from(value).map_err(|_| {
            Exception::of("MessageFormatException", &format!("{name} is {value}; the minimum is 0"))
        })
    };
    // A moment that has passed already: applications compute the delay from it.
    let delay_ms = delay.map_or(0, |delay| u64::try_from(delay).unwrap_or(0));
    let period_ms = positive(PERIOD, period)?;
    // Below zero there is no end.
    let times = u32::try_from(number(&properties, REPEAT)?.unwrap_or(0)).ok();
    let job: Arc<str> = message.message_id.as_ref().map(message_id_text).unwrap_or_default().into();
    let wait_ms = if delay_ms > 0 { delay_ms } else { period_ms };
    Ok(Some(match cron {
        Some(cron) => {
            let again = Recurrence { period_ms, times, cron: Some(cron.as_str().into()), delay_ms };
            Schedule { job, due_ms: now_ms, again: Some(again), retry: None }
        }
        None => {
            let again = Recurrence { period_ms, times, cron: None, delay_ms: 0 };
            let again = Some(again).filter(|_| times != Some(0));
            Schedule { job, due_ms: now_ms.saturating_add(wait_ms), again, retry: None }
        }
    }))
}

/// Whether the message is a question about jobs.
pub fn is_management(message: &codec::Message) -> bool {
    matches!(&message.destination, Some(Destination::Topic(name)) if name.as_bytes() == MANAGEMENT.as_bytes())
}

impl OpenWireSession {
    /// As ActiveMQ's `SchedulerBroker.send`: jobs are ended, or copies of them are sent to where
    /// the answer is wanted.
    pub(super) fn manage_jobs(
        &mut self,
        message: &codec::Message,
        turn: &mut Turn<'_>,
    ) -> Result<Done, Exception> {
        let bad = |text: &str| Exception::of("MessageFormatException", text);
        let properties = message.marshalled_properties.as_ref().map(PrimitiveMap::decode).transpose();
        let properties =
            properties.map_err(|error| bad(&format!("the properties cannot be read: {error}")))?;
        let properties = properties.unwrap_or_default();
        let time =
            |name| Ok::<_, Exception>(number(&properties, name)?.and_then(|time| u64::try_from(time).ok()));
        let due_ms = time(START)?.unwrap_or(0)..=time(END)?.unwrap_or(u64::MAX);
        let job = properties.get(JOB).and_then(text);
        let action = properties.get(ACTION).and_then(text).unwrap_or_default();
        let (wanted, reply_to) = match (action.as_str(), &message.reply_to, job) {
            ("BROWSE", Some(reply_to), _) => {
                (JobsWanted { job: None, due_ms, only: None }, Some(names::to_model(reply_to)))
            }
            ("REMOVE", _, Some(job)) => {
                (JobsWanted { job: Some(job.as_str().into()), due_ms: 0..=u64::MAX, only: None }, None)
            }
            ("REMOVEALL", _, _) => (JobsWanted { job: None, due_ms, only: None }, None),
            ("BROWSE", None, _) => return Err(bad("BROWSE needs a JMSReplyTo")),
            ("REMOVE", _, None) => return Err(bad("REMOVE needs the property scheduledJobId")),
            (other, _, _) => {
                return Err(bad(&format!("{ACTION} is {other:?}; it is BROWSE, REMOVE or REMOVEALL")));
            }
        };
        let (connection, ticket) = (self.id, self.wait(1, None, Then::Respond));
        let event = match reply_to {
            Some(reply_to) => Event::BrowseJobs { wanted, reply_to, connection, ticket },
            None => Event::EndJobs { wanted, connection, ticket },
        };
        turn.events.push(event);
        Ok(Done::Later(ticket))
    }
}

fn mentions_schedule(marshalled: &Bytes) -> bool {
    let prefix = SCHEDULE_PREFIX.as_bytes();
    marshalled.windows(prefix.len()).any(|window| window == prefix)
}

fn text(value: &Primitive) -> Option<String> {
    match value {
        Primitive::String(text) => Some(text.to_str().into_owned()),
        _ => None,
    }
}

/// A number of any width, or one in words, as the reference converts them.
fn number(properties: &PrimitiveMap, name: &str) -> Result<Option<i64>, Exception> {
    let value = match properties.get(name) {
        None | Some(Primitive::Null) => return Ok(None),
        Some(Primitive::Byte(value)) => Some(i64::from(*value)),
        Some(Primitive::Short(value)) => Some(i64::from(*value)),
        Some(Primitive::Int(value)) => Some(i64::from(*value)),
        Some(Primitive::Long(value)) => Some(*value),
        Some(Primitive::String(text)) => text.to_str().trim().parse().ok(),
        Some(_) => None,
    };
    let no_number = || Exception::of("MessageFormatException", &format!("{name} is not a whole number"));
    value.map(Some).ok_or_else(no_number)
}

/// The message of a job as its consumers get it: it names its job, says no more that it is to be
/// scheduled, and lives as long from now on as it was meant to from its sending on. `number` gives
/// it an id of its own. One that cannot be read or encoded again stays as it was sent.
pub fn write_due(message: &Message, job: &str, now_ms: u64, number: Option<u64>) -> Message {
    rewrite(message, job, now_ms, number).unwrap_or_else(|| message.clone())
}

fn rewrite(message: &Message, job: &str, now_ms: u64, number: Option<u64>) -> Option<Message> {
    let version = message.encoding.version;
    let mut due = from_stored(&message.bytes, version).ok()?;
    let mut properties = PrimitiveMap::decode(due.marshalled_properties.as_ref()?).ok()?;
    let scheduling = [DELAY, PERIOD, REPEAT, CRON, JOB];
    properties.0.retain(|(name, _)| !scheduling.contains(&&*name.to_str()));
    properties.0.push((JOB.into(), Primitive::String(job.into())));
    let mut marshalled = BytesMut::new();
    properties.encode(&mut marshalled).ok()?;
    due.marshalled_properties = Some(marshalled.freeze());
    (due.transaction_id, due.original_transaction_id) = (None, None);
    let now = i64::try_from(now_ms).ok()?;
    if due.expiration_ms > 0 && due.timestamp_ms > 0 && due.timestamp_ms < now {
        due.expiration_ms = due.expiration_ms.saturating_add(now - due.timestamp_ms);
        due.timestamp_ms = now;
    }
    if let Some(number) = number {
        let producer_id = ProducerId { connection_id: Some(PRODUCER.into()), session_id: -1, value: -1 };
        let producer_sequence_id = (number >> 1) as i64;
        let producer_id = Some(producer_id);
        due.message_id = Some(MessageId { producer_id, producer_sequence_id, ..MessageId::default() });
    }
    let expires_at_ms = u64::try_from(due.expiration_ms).unwrap_or(0);
    Some(Message { expires_at_ms, bytes: to_stored(&due, version).ok()?, ..message.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::VERSION_MAX;

    fn message(properties: &[(&str, Primitive)]) -> codec::Message {
        let map =
            PrimitiveMap(properties.iter().map(|(name, value)| ((*name).into(), value.clone())).collect());
        let mut marshalled = BytesMut::new();
        map.encode(&mut marshalled).expect("sound properties");
        codec::Message {
            destination: Some(Destination::Queue("a".into())),
            marshalled_properties: Some(marshalled.freeze()),
            ..codec::Message::default()
        }
    }

    #[test]
    fn properties_say_when_a_message_is_due() {
        let long = Primitive::Long;
        let at = |due_ms, again| Ok(Some(Schedule { job: "".into(), due_ms, again, retry: None }));
        let every = |period_ms, times| Some(Recurrence { period_ms, times, cron: None, delay_ms: 0 });
        let cron = Primitive::String("* * * * *".into());
        for (name, properties, want) in [
            ("none", vec![("other", long(1))], Ok(None)),
            ("only a repeat", vec![(REPEAT, Primitive::Int(3))], Ok(None)),
            ("delay", vec![(DELAY, long(5))], at(105, None)),
            ("delay in words", vec![(DELAY, Primitive::String("5".into()))], at(105, None)),
            ("delay of nothing", vec![(DELAY, long(0))], at(100, None)),
            ("a moment that has passed", vec![(DELAY, long(-5))], at(100, None)),
            ("period", vec![(PERIOD, long(7))], at(107, None)),
            (
                "delay, then periods",
                vec![(DELAY, long(5)), (PERIOD, long(7)), (REPEAT, Primitive::Int(2))],
                at(105, every(7, Some(2))),
            ),
            (
                "without end",
                vec![(PERIOD, Primitive::Int(7)), (REPEAT, Primitive::Int(-1))],
                at(107, every(7, None)),
            ),
            (
                "cron",
                vec![(CRON, cron.clone()), (DELAY, long(5)), (PERIOD, long(7)), (REPEAT, Primitive::Int(1))],
                at(
                    100,
                    Some(Recurrence {
                        period_ms: 7,
                        times: Some(1),
                        cron: Some("* * * * *".into()),
                        delay_ms: 5,
                    }),
                ),
            ),
            (
                "no number",
                vec![(DELAY, Primitive::Boolean(true))],
                Err(Exception::of("MessageFormatException", "AMQ_SCHEDULED_DELAY is not a whole number")),
            ),
            (
                "a period below zero",
                vec![(PERIOD, long(-1))],
                Err(Exception::of("MessageFormatException", "AMQ_SCHEDULED_PERIOD is -1; the minimum is 0")),
            ),
        ] {
            assert_eq!(schedule_of(&message(&properties), 100), want, "case: {name}");
        }
    }

    #[test]
    fn a_message_that_is_due_names_its_job_and_is_not_scheduled_again() {
        let sent = codec::Message {
            timestamp_ms: 1000,
            expiration_ms: 1500,
            ..message(&[("other", Primitive::Int(1)), (DELAY, Primitive::Long(5)), (CRON, Primitive::Null)])
        };
        let stored = to_stored(&sent, VERSION_MAX).expect("a sound message");
        let stored = super::super::producer::to_model(&sent, stored, VERSION_MAX);
        for number in [None, Some(8)] {
            let due = write_due(&stored, "job", 5000, number);
            let read = from_stored(&due.bytes, VERSION_MAX).expect("a sound message");
            let properties = PrimitiveMap::decode(&read.marshalled_properties.expect("some")).expect("sound");
            let want = [("other".into(), Primitive::Int(1)), (JOB.into(), Primitive::String("job".into()))];
            assert_eq!(properties.0, want);
            assert_eq!((due.expires_at_ms, read.expiration_ms, read.timestamp_ms), (5500, 5500, 5000));
            assert_eq!(
                read.message_id.map(|id| id.producer_sequence_id),
                number.map(|number| (number / 2) as i64)
            );
        }
    }
}
