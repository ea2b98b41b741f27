//! Messages that a job sends again and again: each has a number of its own, and that of the message
//! that made the job.

use bytes::Bytes;
use postroad_core::Firing;
use postroad_model::{Destination, DestinationKind, Message, Recurrence};

use crate::oracle::{MessageNumber, number_of};
use crate::random::Random;
use crate::scene::Scene;

/// Numbers of jobs' messages begin here: no client gives them.
const FIRED: MessageNumber = 1 << 63;

/// How a job that sends there goes on, by chance: where a queue drops or forgets nothing, so that
/// all of it must come.
pub fn again(random: &mut Random, scene: &Scene, to: &Destination, message: &Message) -> Option<Recurrence> {
    if !scene.repeats || !random.one_in(2) {
        return None;
    }
    let limited = scene.limited.as_ref().map(|(at, _)| at);
    let special = [limited, scene.last_values.as_ref(), scene.forgetful.as_ref(), scene.lagging.as_ref()];
    let is_plain = to.kind == DestinationKind::Queue && !special.contains(&Some(to));
    let lasts = message.persistent && message.expires_at_ms == 0;
    let (period_ms, times) = (1 + random.below(40), Some(random.below(4) as u32));
    (is_plain && lasts).then_some(Recurrence { period_ms, times, cron: None, delay_ms: 0 })
}

/// The message of a job, as the assembly writes it.
pub fn fired(message: &Message, firing: &Firing<'_>) -> Message {
    let (Some(firing), Some(first)) = (firing.number, number_of(message)) else { return message.clone() };
    let number = FIRED | (firing ^ first.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 1;
    repeated(message, first, number)
}

/// The message of this number that a job sends, which the message of the number `first` has made.
pub fn repeated(message: &Message, first: MessageNumber, number: MessageNumber) -> Message {
    let body = message.bytes.get(8..).unwrap_or_default();
    let bytes: Bytes = [&number.to_le_bytes(), body, &first.to_le_bytes()].concat().into();
    Message { bytes, ..message.clone() }
}

/// The number of the message that made the job, if a job that goes on has sent this one.
pub fn first_of(message: &Message) -> Option<MessageNumber> {
    number_of(message).filter(|number| is_fired(*number))?;
    let tail = message.bytes.last_chunk::<8>()?;
    Some(u64::from_le_bytes(*tail))
}

/// Whether a job that goes on gave the number.
pub fn is_fired(number: MessageNumber) -> bool {
    FIRED <= number
}
