//! Jobs that repeat: each sends the requested number of messages, no sooner than requested, and
//! none of them twice.

use std::collections::{BTreeMap, BTreeSet};

use postroad_model::{DestinationKind, Message, Recurrence, Schedule, Sent};

use crate::repeating::{first_of, repeated};

use super::{AT_ONCE, Checked, Fate, Letter, MessageNumber, Oracle, Place, number_of};

/// The results of jobs that go on, by the message that made each.
#[derive(Default)]
pub(super) struct Repeats {
    seen: BTreeMap<MessageNumber, BTreeSet<MessageNumber>>,
}

impl Letter {
    /// How the job goes on that it made.
    fn again(&self) -> Option<&Recurrence> {
        self.sent.schedule.as_ref()?.again.as_ref()
    }
}

impl Oracle {
    /// Messages that jobs which go on have sent.
    pub fn repeated(&self) -> u64 {
        self.repeats.seen.values().map(|seen| seen.len() as u64).sum()
    }

    /// Whether the message makes a job that goes on: then others come in its place.
    pub(super) fn is_repeating(&self, message: MessageNumber) -> bool {
        self.letters.get(&message).is_some_and(|letter| letter.again().is_some())
    }

    /// A message that perhaps a job has sent is seen for the first time: then it was due, and is a
    /// letter like any other.
    pub(super) fn repeats(&mut self, now_ms: u64, message: &Message) -> Checked {
        let (Some(first), Some(number)) = (first_of(message), number_of(message)) else { return Ok(()) };
        if self.letters.contains_key(&number) {
            return Ok(());
        }
        let letter = self.letters.get(&first).ok_or("a job sends what nobody gave it")?;
        let (Some(again), Some(schedule)) = (letter.again(), letter.sent.schedule.as_ref()) else {
            return Err(format!("message {first} is repeated, which nobody asked for"));
        };
        let seen = self.repeats.seen.entry(first).or_default();
        seen.insert(number);
        let before = seen.len() as u64 - 1;
        if u64::from(again.times.unwrap_or(u32::MAX)) < before {
            return Err(format!("the job of message {first} sends {} messages: {again:?}", before + 1));
        }
        let due_ms = schedule.due_ms + before * again.period_ms;
        if now_ms < due_ms {
            return Err(format!("the job of message {first} is ahead of its time at {now_ms}: {schedule:?}"));
        }
        let schedule = Schedule::once(schedule.job.clone(), due_ms);
        let fresh = Letter {
            sent: Sent {
                message: repeated(&letter.sent.message, first, number),
                schedule: Some(Box::new(schedule)),
                ..letter.sent.clone()
            },
            operation: AT_ONCE,
            ..*letter
        };
        let operation = letter.operation;
        let queues: Vec<_> =
            fresh.sent.targets().filter(|to| to.kind == DestinationKind::Queue).cloned().collect();
        for queue in queues {
            self.copy((Place::Queue(queue), number), AT_ONCE, false);
        }
        self.letters.insert(number, fresh);
        self.resolve(operation, true, || format!("what the job of message {first} sends"))
    }

    /// Everything was due long ago, and every queue was emptied.
    pub(super) fn check_repeats(&self) -> Checked {
        for (message, letter) in &self.letters {
            let Some(times) = letter.again().and_then(|again| again.times) else { continue };
            let seen = self.repeats.seen.get(message).map_or(0, BTreeSet::len);
            let is_made = self.operations[letter.operation].fate == Fate::Committed;
            if is_made && seen != times as usize + 1 {
                return Err(format!(
                    "the job of message {message} has sent {seen} messages, not {times} more than one"
                ));
            }
        }
        Ok(())
    }
}
