//! Handles: who holds a lease deletes, extends or releases its entry, from any connection.

use postroad_model::{
    Command, ConnectionId, Effect, EntryTag, Handle, HandleAction, HandleEntries, LeaseAnswer, LeaseEnd,
    LeaseId, MessageKey, QueueId, SettleCause, Settlement, Stale, Ticket, Urgency,
};

use crate::Partition;
use crate::log::completion::Completion;
use crate::queue::EntryState;

impl Partition {
    pub(crate) fn handle_entries(&mut self, asked: HandleEntries, effects: &mut Vec<Effect>) {
        let HandleEntries { queue, connection, ticket, mut handles, action, all_or_none } = asked;
        let own = self.own_queue(&queue);
        let mut seen = std::collections::BTreeSet::new();
        let mut results: Vec<Result<(), Stale>> = Vec::with_capacity(handles.len());
        for handle in &handles {
            let result = match own == Some(handle.queue) {
                true => self.check_handle(handle, action),
                false => Err(Stale::Gone),
            };
            results.push(result);
        }
        if all_or_none && results.iter().any(Result::is_err) {
            return self.answer_handled(connection, ticket, results, effects);
        }
        let mut good = results.iter().map(Result::is_ok);
        handles.retain(|handle| good.next() == Some(true) && seen.insert(handle.tag));
        let Some(id) = own.filter(|_| !handles.is_empty()) else {
            return self.answer_handled(connection, ticket, results, effects);
        };
        match action {
            HandleAction::Delete { .. } => {
                self.delete_entries(id, &handles, (connection, ticket), results, effects)
            }
            HandleAction::Extend { lasts_ms } => {
                let end = LeaseEnd { wall_ms: self.wall_ms().saturating_add(lasts_ms), lasts_ms };
                let entries = handles.iter().map(|handle| (handle.tag, handle.lease)).collect();
                let handling = Handling::new((connection, ticket), results);
                self.touch_entries(id, Some(end), entries, handling, effects);
            }
            HandleAction::Renew { lasts_ms } => {
                let end = LeaseEnd { wall_ms: self.wall_ms().saturating_add(lasts_ms), lasts_ms };
                let renewed: Vec<LeaseId> = handles
                    .iter()
                    .map(|_| self.leader.leasing.next_lease(self.settings.incarnation))
                    .collect();
                let entries =
                    handles.iter().zip(&renewed).map(|(handle, lease)| (handle.tag, Some(*lease))).collect();
                let handling = Handling { renewed, ..Handling::new((connection, ticket), results) };
                self.touch_entries(id, Some(end), entries, handling, effects);
            }
            HandleAction::Release { delay_ms } => {
                let end = LeaseEnd { wall_ms: self.wall_ms().saturating_add(delay_ms), lasts_ms: delay_ms };
                let entries = handles.iter().map(|handle| (handle.tag, None)).collect();
                let until = Some(end).filter(|_| 0 < delay_ms);
                let handling = Handling::new((connection, ticket), results);
                self.touch_entries(id, until, entries, handling, effects);
            }
        }
    }

    /// Whether the handle still holds its entry, and if not, why.
    fn check_handle(&mut self, handle: &Handle, action: HandleAction) -> Result<(), Stale> {
        let current = self.state.leases.get(handle.queue, handle.tag).map(|lease| lease.id);
        let state = self.entry(handle.queue, handle.tag).map(|entry| entry.state).ok_or(Stale::Gone)?;
        let even_expired = matches!(action, HandleAction::Delete { even_expired: true });
        match (state, handle.lease, current) {
            (EntryState::Leaving, ..) => Err(Stale::Gone),
            (EntryState::Leased, Some(lease), Some(Some(held))) if lease == held => Ok(()),
            // A delay: the entry has no holder.
            (EntryState::Leased, None, Some(None)) => Ok(()),
            (EntryState::Leased, Some(_), Some(None)) if even_expired => Ok(()),
            (EntryState::Leased, Some(_), Some(None)) => Err(Stale::Expired),
            (EntryState::Leased, Some(_), _) => Err(Stale::Taken),
            (EntryState::Ready | EntryState::Resting, None, _) => Ok(()),
            (EntryState::Ready | EntryState::Resting, Some(_), _) if even_expired => Ok(()),
            (EntryState::Ready | EntryState::Resting, Some(_), _) => Err(Stale::Expired),
            (EntryState::Held { .. }, Some(_), _) => Err(Stale::Taken),
            (EntryState::Held { .. } | EntryState::Leased, None, _) => Err(Stale::Held),
        }
    }

    fn delete_entries(
        &mut self,
        id: QueueId,
        handles: &[Handle],
        (connection, ticket): (ConnectionId, Ticket),
        results: Vec<Result<(), Stale>>,
        effects: &mut Vec<Effect>,
    ) {
        let tags: Vec<EntryTag> = handles.iter().map(|handle| handle.tag).collect();
        let settlements = self.leave(id, &tags, SettleCause::Consumed, effects);
        if settlements.is_empty() {
            return self.answer_handled(connection, ticket, results, effects);
        }
        let command = Command::Settle(settlements.clone());
        let handling = Handling { settlements, ..Handling::new((connection, ticket), results) };
        self.propose(command, Urgency::Waiting, Completion::Handled(handling), effects);
    }

    fn touch_entries(
        &mut self,
        queue: QueueId,
        until: Option<LeaseEnd>,
        entries: Vec<(EntryTag, Option<LeaseId>)>,
        handling: Handling,
        effects: &mut Vec<Effect>,
    ) {
        let durable = |(tag, _): &&(EntryTag, Option<LeaseId>)| {
            let key =
                self.state.queues.get(&queue).and_then(|queue| queue.entry_ref(*tag)).map(|entry| entry.key);
            matches!(key, Some(MessageKey::Durable { .. })) && !queue.is_volatile()
        };
        let logged: Vec<_> = entries.iter().filter(durable).copied().collect();
        self.touch(queue, until, &entries);
        match logged.is_empty() {
            true => self.handled(handling, effects),
            false => {
                let command = Command::Touch { queue, until, entries: logged };
                self.propose(command, Urgency::Waiting, Completion::Handled(handling), effects);
            }
        }
        if until.is_none() {
            for (tag, _) in &entries {
                self.bury_if_spent(queue, *tag, effects);
            }
        }
        self.dispatch(queue, effects);
    }

    /// Gives entries new deadlines, or makes them ready.
    fn touch(&mut self, id: QueueId, until: Option<LeaseEnd>, entries: &[(EntryTag, Option<LeaseId>)]) {
        for (tag, lease) in entries {
            let state = self.entry(id, *tag).map(|entry| entry.state);
            if !matches!(state, Some(EntryState::Ready | EntryState::Resting | EntryState::Leased)) {
                continue;
            }
            match until {
                Some(end) => {
                    let group = self.state.leases.get(id, *tag).and_then(|lease| lease.group.clone());
                    self.begin_lease(id, *tag, (*lease, end), group);
                }
                None => self.end_lease(id, *tag),
            }
        }
    }

    /// The log says so: known here already, unless it is replayed.
    pub(crate) fn apply_touch(
        &mut self,
        id: QueueId,
        until: Option<LeaseEnd>,
        entries: &[(EntryTag, Option<LeaseId>)],
    ) {
        if !self.leader.is_live {
            self.touch(id, until, entries);
        }
    }

    /// The log has leases: known here already, unless it is replayed. The deliveries are counted in
    /// any case.
    pub(crate) fn apply_lease(
        &mut self,
        id: QueueId,
        before_first: LeaseId,
        end: LeaseEnd,
        tags: &[EntryTag],
    ) {
        for (tag, count) in tags.iter().zip(1..) {
            let Some(entry) = self.entry(id, *tag) else { continue };
            entry.failed_deliveries += 1;
            if self.leader.is_live {
                if let Some(entry) = self.entry(id, *tag) {
                    entry.uncounted_deliveries = entry.uncounted_deliveries.saturating_sub(1);
                }
                continue;
            }
            let group = self.group_of(id, *tag);
            self.begin_lease(id, *tag, (Some(before_first.plus(count)), end), group);
        }
    }

    /// The message group of an entry.
    pub(crate) fn group_of(&mut self, id: QueueId, tag: EntryTag) -> Option<std::sync::Arc<str>> {
        let sought = self.sought(id, tag)?;
        let (headers, _) = self.state.bodies.headers(sought)?;
        headers.group().map(|group| group.id.clone())
    }

    /// The log has the requested change.
    pub(crate) fn handled(&mut self, handling: Handling, effects: &mut Vec<Effect>) {
        let Handling { connection, ticket, results, renewed, .. } = handling;
        if !renewed.is_empty() {
            effects.push(Effect::Lease { connection, ticket, answer: LeaseAnswer::Renewed(renewed) });
        }
        self.answer_handled(connection, ticket, results, effects);
    }

    fn answer_handled(
        &self,
        connection: ConnectionId,
        ticket: Ticket,
        results: Vec<Result<(), Stale>>,
        effects: &mut Vec<Effect>,
    ) {
        effects.push(Effect::Lease { connection, ticket, answer: LeaseAnswer::Handled(results) });
        self.reply(connection, ticket, Ok(()), effects);
    }
}

/// The requested changes of entries, on their way to the log.
#[derive(Debug)]
pub struct Handling {
    /// Who waits.
    pub(crate) connection: ConnectionId,
    /// The change.
    pub(crate) ticket: Ticket,
    results: Vec<Result<(), Stale>>,
    /// The new leases of entries.
    renewed: Vec<LeaseId>,
    /// Entries that are leaving.
    pub(crate) settlements: Vec<Settlement>,
}

impl Handling {
    fn new((connection, ticket): (ConnectionId, Ticket), results: Vec<Result<(), Stale>>) -> Handling {
        Handling { connection, ticket, results, renewed: Vec::new(), settlements: Vec::new() }
    }
}
