//! Posts: several messages for one queue, in one record, and the entries that they become.

use postroad_model::{
    Changes, Command, ConnectionId, Destination, Effect, EntryTag, LeaseAnswer, LeaseEnd, Message,
    NORMAL_PRIORITY, Post, QueueId, Refusal, Sent, Ticket, Urgency,
};

use crate::Partition;
use crate::intake::limit::Expecting;
use crate::log::completion::Completion;
use crate::queue::{EntryState, LaneNumber, tag};

/// A post on its way to the log.
#[derive(Debug)]
pub struct Posting {
    connection: ConnectionId,
    ticket: Ticket,
    to: Destination,
    count: u64,
    /// Where each message counts, and its size.
    expecting: Vec<(Expecting, u64)>,
}

impl Partition {
    /// Takes messages in, all or none. At a limit they are refused: nobody waits in line for them.
    pub(crate) fn post(&mut self, post: Post, effects: &mut Vec<Effect>) {
        let Post { connection, ticket, to, messages } = post;
        let sends: Vec<Sent> = messages.into_iter().map(|message| self.posted(&to, message)).collect();
        let expecting = match self.admit_post(&to, &sends, connection) {
            Ok(expecting) => expecting,
            Err(refusal) => return self.reply(connection, ticket, Err(refusal), effects),
        };
        self.bind_new_queues(&sends, effects);
        let count = sends.len() as u64;
        let command = Command::Transact(Changes { sends, settlements: Vec::new() });
        let posting = Posting { connection, ticket, to, count, expecting };
        self.propose(command, Urgency::Waiting, Completion::Posted(posting), effects);
    }

    fn posted(&self, to: &Destination, message: Message) -> Sent {
        let mut sent =
            Sent::new(to.clone(), Message { priority: NORMAL_PRIORITY, persistent: true, ..message });
        let end_ms =
            self.settings.policies.end_ms(sent.targets(), sent.message.expires_at_ms, self.wall_ms());
        sent.message.expires_at_ms = end_ms;
        self.note_last_value(&mut sent);
        sent
    }

    fn admit_post(
        &mut self,
        to: &Destination,
        sends: &[Sent],
        from: ConnectionId,
    ) -> Result<Vec<(Expecting, u64)>, Refusal> {
        if !self.leader.log.space_ample {
            return Err(Refusal::StoreFull { to: to.clone() });
        }
        let mut expecting = Vec::new();
        for sent in sends {
            if self.is_full_for(sent, from) {
                self.post_ended(&expecting);
                return Err(self.full(sent, from));
            }
            let receivers = self.receivers_of(sent, Some(from));
            expecting.push((self.expect(sent, &receivers), sent.message.size()));
        }
        Ok(expecting)
    }

    fn post_ended(&mut self, expecting: &[(Expecting, u64)]) {
        expecting.iter().for_each(|(expecting, bytes)| self.expected(expecting, *bytes));
    }

    /// The log has the messages, and the queue their entries.
    pub(crate) fn has_posted(&mut self, posting: Posting, effects: &mut Vec<Effect>) {
        self.post_ended(&posting.expecting);
        let Posting { connection, ticket, to, count, expecting } = posting;
        let lane = LaneNumber::of(NORMAL_PRIORITY, false);
        let id = self.own_queue(&to);
        let next =
            id.and_then(|id| self.state.queues.get(&id)?.lanes.get(lane)).map(|lane| lane.next_sequence());
        if let (Some(queue), Some(next)) = (id, next) {
            let first: EntryTag = tag(lane.0, next.saturating_sub(count));
            let answer = LeaseAnswer::Posted { queue, first };
            effects.push(Effect::Lease { connection, ticket, answer });
        }
        self.reply(connection, ticket, Ok(()), effects);
        for (expecting, _) in &expecting {
            self.unpark_held_by_any(expecting, effects);
        }
    }

    /// The log has not.
    pub(crate) fn post_failed(&mut self, posting: &Posting, refusal: &Refusal, effects: &mut Vec<Effect>) {
        self.post_ended(&posting.expecting);
        self.reply(posting.connection, posting.ticket, Err(refusal.clone()), effects);
        for (expecting, _) in &posting.expecting {
            self.unpark_held_by_any(expecting, effects);
        }
    }

    /// The message of a new entry says when it may be delivered: until then it is delayed. Returns whether it is.
    pub(crate) fn delay_new(&mut self, id: QueueId, entry: EntryTag, visible_at_ms: u64) -> bool {
        let left_ms = visible_at_ms.saturating_sub(self.wall_ms());
        // The time is not known while the log is read.
        if visible_at_ms == 0 || self.leader.is_live && left_ms == 0 {
            return false;
        }
        let end = LeaseEnd { wall_ms: visible_at_ms, lasts_ms: left_ms };
        // The group keeps its order: what comes behind it waits too.
        let group = self.group_of(id, entry);
        self.begin_lease(id, entry, (None, end), group);
        debug_assert!(self.entry(id, entry).is_some_and(|entry| entry.state == EntryState::Leased));
        true
    }
}
