//! Jobs seen and ended by those who ask.

use std::sync::Arc;

use postroad_model::{
    Command, ConnectionId, Destination, Due, Effect, JobsWanted, MessageKey, Peer, Sent, Ticket, Urgency,
};

use super::{Firing, digest, key_of};
use crate::Partition;
use crate::log::completion::Completion;

/// Jobs that one record ends.
const ENDED_MAX: usize = 10_000;

/// Jobs that one question is answered with: the earliest.
const BROWSED_MAX: usize = 10_000;

/// A copy of a job's message, as soon as it is read.
pub struct Browsed {
    due: Due,
    reply_to: Destination,
}

impl Partition {
    fn wanted(&self, wanted: &JobsWanted) -> impl Iterator<Item = Due> {
        let name = wanted.job.as_deref().map(digest);
        let (from, until) = wanted.due_ms.clone().into_inner();
        let jobs = self.jobs.waiting.from(from).take_while(move |(due, _)| due.at_ms <= until);
        jobs.filter(move |(_, job)| name.is_none_or(|name| name == job.name)).map(|(due, _)| due)
    }

    /// The answer comes once none of them can come again.
    pub(crate) fn end_jobs(
        &mut self,
        wanted: &JobsWanted,
        connection: ConnectionId,
        ticket: Ticket,
        effects: &mut Vec<Effect>,
    ) {
        let jobs: Vec<Due> = self.wanted(wanted).collect();
        let mut records = jobs.chunks(ENDED_MAX).peekable();
        if records.peek().is_none() {
            return self.reply(connection, ticket, Ok(()), effects);
        }
        while let Some(jobs) = records.next() {
            let last = records.peek().is_none();
            let completion =
                if last { Completion::Reply { connection, ticket } } else { Completion::Nothing };
            let command = Command::Unschedule { jobs: jobs.to_vec() };
            self.propose(command, Urgency::Waiting, completion, effects);
        }
    }

    pub(crate) fn browse_jobs(
        &mut self,
        wanted: &JobsWanted,
        reply_to: &Destination,
        effects: &mut Vec<Effect>,
    ) {
        let found: Vec<Due> = self.wanted(wanted).take(BROWSED_MAX).collect();
        let mut keys = Vec::with_capacity(found.len());
        for due in found {
            let copies = self.jobs.browsed.entry(key_of(due)).or_default();
            copies.push(Browsed { due, reply_to: reply_to.clone() });
            keys.push(key_of(due));
        }
        if !keys.is_empty() {
            effects.push(Effect::Fetch { keys });
        }
    }

    /// Somebody wanted to see the message.
    pub(super) fn send_copies(&mut self, key: MessageKey, stored: &Sent, effects: &mut Vec<Effect>) {
        for Browsed { due, reply_to } in self.jobs.browsed.remove(&key).unwrap_or_default() {
            let job: Arc<str> =
                stored.schedule.as_ref().map_or_else(|| "".into(), |schedule| schedule.job.clone());
            let number = Some(digest(&format!("{due:?} {reply_to}")));
            let mut message =
                (self.write_due)(&stored.message, &Firing { job: &job, now_ms: self.now_ms, number });
            message.persistent = false;
            let to = self.partition_of(&reply_to);
            let sent = Box::new(Sent::new(reply_to, message));
            self.tell(to, Peer::Offer { sent }, effects);
        }
    }

    /// Nobody waits for it: it goes to whoever is there.
    pub(crate) fn take_offer(&mut self, sent: Sent, effects: &mut Vec<Effect>) {
        if self.addresses.get(&sent.to).is_some() {
            self.publish_volatile(sent, None, effects);
        }
    }
}
