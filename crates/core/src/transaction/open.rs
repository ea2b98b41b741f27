//! Open transactions, and those that end within one partition.

use std::collections::BTreeMap;

use postroad_model::{
    Changes, Command, ConnectionId, ConsumerKey, Effect, EntryTag, MessageKey, PartitionId, Peer, Publish,
    QueueId, Refusal, Sent, SettleCause, Settlement, Ticket, TransactionId, TransactionKey, Urgency,
};

use crate::Partition;
use crate::addresses::binding::bind_new_queues;
use crate::entries::entry_at;
use crate::intake::audit::came_before;
use crate::intake::chunks::finish_peers_uploads;
use crate::intake::limit::{full_refusal, is_full_for};
use crate::intake::publish::{
    Admitted, admit, answer_request, dispatch_all, goes_both_ways, publish_volatile, without_idle_client,
};
use crate::leader::{Leader, Transactions};
use crate::log::completion::Completion;
use crate::log::propose::propose;
use crate::memory::bodies::apart;
use crate::moving::transacted_behind_windows;
use crate::partition::reply;
use crate::queue::EntryState;
use crate::settings::Settings;
use crate::settling::carrying::Body;
use crate::settling::settle::{end_entry, end_held, give_back_all, settle_leaving};
use crate::transaction::closing::{Answers, Close, Kinds, close};
use crate::transaction::coordinator::{coordinate, tell};
use crate::transaction::senders::SentTo;
use crate::transaction::timeout::watch_age;

/// Memory of a message of an open transaction, without its body.
pub(super) const SENT_BYTES: u64 = 320;

/// Memory of a settlement of an open transaction.
pub(super) const SETTLED_BYTES: u64 = 96;

/// Work of a transaction in this partition so far.
#[derive(Default, Debug)]
pub struct OpenTransaction {
    pub(super) sends: Vec<Sent>,
    /// Where those go.
    pub(super) sent_to: SentTo,
    pub(super) settled: Vec<(ConsumerKey, Settlement)>,
    /// Entries that are leaving already: the same consumer settled them outside of the transaction.
    pub(super) settled_again: Vec<Settlement>,
    bytes: u64,
    /// Memory that the transaction takes.
    held_bytes: u64,
    /// The client has said everything that belongs to it.
    sealed: bool,
    /// The coordinator's request, which waits for the seal.
    pub(super) asked: Option<Asked>,
    /// Something of it was refused: it can only be rolled back.
    pub(super) refused: Option<Refusal>,
    /// When it was first heard of here.
    pub(super) begun_ms: u64,
}

/// Messages that move to one partition, and the uploads that are their bodies, each with the index
/// of its message.
type Share = (Vec<Sent>, Vec<(usize, u64)>);

/// A coordinator's request about an open transaction.
#[derive(Debug)]
pub enum Asked {
    /// To be prepared, together with others.
    Prepare(Vec<TransactionKey>, TransactionId),
    /// To be undone.
    Discard {
        /// It was open for too long.
        timed_out: bool,
    },
}

impl OpenTransaction {
    /// No more work follows; returns the request that waits for that.
    pub(super) fn seal(&mut self) -> Option<Asked> {
        self.sealed = true;
        self.asked.take()
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.sealed
    }

    /// Keeps the request until the seal comes.
    pub(super) fn ask(&mut self, asked: Asked) {
        self.asked = Some(asked);
    }

    /// The transaction that a coordinator wants it to be prepared for.
    pub(crate) fn asked_to_prepare(&self) -> Option<TransactionId> {
        match self.asked {
            Some(Asked::Prepare(_, id)) => Some(id),
            _ => None,
        }
    }

    /// Whether its time can run out: its end was not requested, and it has not timed out already.
    pub(super) fn ages(&self) -> bool {
        !self.sealed && self.asked.is_none() && !self.has_timed_out()
    }

    fn has_timed_out(&self) -> bool {
        matches!(self.refused, Some(Refusal::TransactionTimedOut { .. }))
    }

    /// Memory that it takes.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// The part of it that its settlements take.
    fn settled_bytes(&self) -> u64 {
        (self.settled.len() + self.settled_again.len()) as u64 * SETTLED_BYTES
    }

    /// Drops all settlements so far, and returns them.
    pub(super) fn take_settled(&mut self) -> Vec<(ConsumerKey, Settlement)> {
        std::mem::take(&mut self.settled)
    }

    /// Messages that it sends, and when it was first heard of here.
    pub(crate) fn sends(&self) -> (&[Sent], u64) {
        (&self.sends, self.begun_ms)
    }

    /// The entries that it settles.
    pub(crate) fn settled(&self) -> impl Iterator<Item = &Settlement> {
        self.settled.iter().map(|(_, end)| end)
    }

    /// Queues of the entries that it settles, each as often as it has entries.
    pub(crate) fn settled_queues(&self) -> impl Iterator<Item = QueueId> {
        self.settled().map(|end| end.queue)
    }

    /// Its changes.
    pub(crate) fn len(&self) -> usize {
        self.sends.len() + self.settled.len() + self.settled_again.len()
    }

    /// How often [`check_open`] looks at it.
    pub(super) fn checks(&self) -> usize {
        1 + self.settled_again.len() + self.sends.len()
    }

    /// Nothing more will be said, and nothing can come of it.
    pub(super) fn end(&mut self, refusal: Refusal) {
        self.sealed = true;
        self.refused = Some(refusal);
    }
}

/// The part of a transaction that only memory knows.
#[derive(Default, Debug)]
pub struct VolatileChanges {
    /// Non-persistent messages, and those for topics without durable subscriptions.
    pub sends: Vec<(ConnectionId, Sent)>,
    /// Entries of non-persistent messages and volatile queues.
    pub settlements: Vec<Settlement>,
    /// Who has sent each message that the log must know, in their order.
    pub senders: Vec<ConnectionId>,
    /// The holder of each settled entry, whether or not the log must know: it holds the entry again
    /// if the transaction fails.
    pub holders: Vec<(ConsumerKey, Settlement)>,
    /// Entries that a command ahead in the log settles: that command must complete first.
    pub settled_again: Vec<Settlement>,
}

impl VolatileChanges {
    /// Entries that return if nothing comes of the transaction, and who had settled each.
    /// `settlements` are those in the log.
    pub fn returning(self, settlements: &[Settlement]) -> Vec<(Option<ConsumerKey>, Settlement)> {
        // Without holders it was the broker itself that moved messages.
        let all = settlements.iter().copied().chain(self.settlements).map(|end| (None, end));
        let held = self.holders.iter().map(|(by, end)| (Some(*by), *end));
        if self.holders.is_empty() { all.collect() } else { held.collect() }
    }

    /// Who has sent the message of this key.
    pub fn sender_of(&self, key: MessageKey) -> Option<ConnectionId> {
        match key {
            MessageKey::Durable { ordinal, .. } => self.senders.get(ordinal as usize).copied(),
            MessageKey::Volatile(_) => None,
        }
    }

    /// The rest of the transaction is carried out.
    pub(crate) fn carry_out(self, partition: &mut Partition, effects: &mut Vec<Effect>) {
        for settlement in self.settlements {
            end_entry(partition, settlement.queue, settlement.tag, settlement.cause, effects);
        }
        for (connection, sent) in self.sends {
            publish_volatile(partition, sent, Some(connection), effects);
        }
    }
}

impl OpenTransaction {
    /// It can only be rolled back.
    pub fn refuse(&mut self, refusal: Refusal) {
        self.refused.get_or_insert(refusal);
    }
}

/// Makes one of the checks of an open transaction, and notes the kind of a message that it looks
/// at.
pub fn check_open(
    partition: &mut Partition,
    open: &OpenTransaction,
    number: usize,
    kinds: &mut Kinds,
) -> Option<Refusal> {
    let Some(number) = number.checked_sub(1) else { return open.refused.clone() };
    if let Some(end) = open.settled_again.get(number) {
        let entry = entry_at(partition, end.queue, end.tag);
        let has_come_back = entry.is_some_and(|entry| entry.state != EntryState::Leaving);
        return has_come_back.then_some(Refusal::TakenBack);
    }
    let sent = open.sends.get(number - open.settled_again.len())?;
    kinds.both_ways |= goes_both_ways(&partition.state, &partition.settings, sent);
    match admit(&partition.state, &partition.leader, &partition.settings, &partition.clock, sent) {
        Ok(Admitted::NeedsQueue) => kinds.needs_queue[usize::from(sent.message.persistent)] = true,
        Ok(Admitted::Durable | Admitted::Volatile) => {}
        Err(refusal) => return Some(refusal),
    }
    None
}

/// Adds a message to the changes that the log must know, or to those that only memory knows.
pub fn sort_sent(
    partition: &Partition,
    (connection, kinds): (ConnectionId, Kinds),
    sent: Sent,
    (changes, volatile): (&mut Changes, &mut VolatileChanges),
) {
    // The other persistent messages, or the other non-persistent ones, keep their place before
    // one that goes through the log for the sake of another address or of a new queue.
    let persistent = sent.message.persistent;
    let follows = kinds.both_ways && persistent || kinds.needs_queue[usize::from(persistent)];
    let past_log = !(follows && sent.targets().all(|to| !to.temporary));
    match admit(&partition.state, &partition.leader, &partition.settings, &partition.clock, &sent) {
        // A queue that does not exist yet is made by the record that holds the message.
        Ok(Admitted::Volatile) if past_log => volatile.sends.push((connection, sent)),
        _ => {
            volatile.senders.push(connection);
            changes.sends.push(without_idle_client(&partition.state, sent));
        }
    }
}

/// As [`sort_sent`], for an entry that is leaving.
pub fn sort_settled(
    partition: &mut Partition,
    (consumer, settlement): (ConsumerKey, Settlement),
    (changes, volatile): (&mut Changes, &mut VolatileChanges),
) {
    end_held(&mut partition.leader, partition.now_ms, consumer, &[settlement.tag]);
    let durable = !settlement.queue.is_volatile();
    let Some(entry) = entry_at(partition, settlement.queue, settlement.tag) else { return };
    volatile.holders.push((consumer, settlement));
    match entry.key {
        MessageKey::Durable { .. } if durable => {
            entry.state = EntryState::Leaving;
            changes.settlements.push(settlement);
        }
        _ => volatile.settlements.push(settlement),
    }
}

impl Transactions {
    /// It can only be rolled back: its sends so far are dropped.
    pub(super) fn refuse_open(&mut self, key: TransactionKey, refusal: Refusal) {
        let Some(open) = self.open.get_mut(&key) else { return };
        // Its settled entries stay with their consumers until it is rolled back.
        let settled_bytes = open.settled_bytes();
        self.open_bytes -= std::mem::replace(&mut open.held_bytes, settled_bytes) - settled_bytes;
        (open.sends, open.bytes, open.refused) = (Vec::new(), 0, Some(refusal));
        let sent_to = std::mem::take(&mut open.sent_to);
        self.senders.end(sent_to);
    }

    /// Whether the memory counted for open transactions is right, and where they send.
    pub fn has_counted_open(&self) -> bool {
        let Transactions { open, open_bytes, senders, branches, closings, .. } = &self;
        let bytes = open.values().map(|open| open.held_bytes).sum::<u64>() + closings.held_bytes();
        let sent_to = open.values().map(|open| &open.sent_to).chain(closings.sent_to());
        bytes == *open_bytes && senders.are_of(sent_to.chain(branches.held_by_prepared.sent_to()))
    }

    /// The error for a transaction that was open for too long.
    pub fn timed_out_refusal(&self, key: TransactionKey) -> Option<Refusal> {
        self.open.get(&key).filter(|open| open.has_timed_out())?.refused.clone()
    }

    /// Takes and drops all settlements of an open transaction.
    pub(super) fn take_settled_of(&mut self, key: TransactionKey) -> Option<Vec<(ConsumerKey, Settlement)>> {
        let open = self.open.get_mut(&key)?;
        let settled = open.take_settled();
        let bytes = settled.len() as u64 * SETTLED_BYTES;
        open.held_bytes -= bytes;
        self.open_bytes -= bytes;
        Some(settled)
    }
}

pub fn take_open(leader: &mut Leader, key: TransactionKey) -> Option<OpenTransaction> {
    if let Some(connection) = leader.connections.get_mut(&key.connection) {
        connection.transactions.remove(&key);
    }
    let taken = leader.transactions.open.remove(&key)?;
    leader.transactions.by_age.remove(&(taken.begun_ms, key));
    leader.transactions.open_bytes -= taken.held_bytes;
    Some(taken)
}

pub fn open_transaction<'l>(
    leader: &'l mut Leader,
    settings: &Settings,
    now_ms: u64,
    key: TransactionKey,
) -> &'l mut OpenTransaction {
    leader.connections.get_or_make(key.connection).transactions.insert(key);
    watch_age(leader, settings, now_ms);
    let begun_ms = now_ms;
    let Transactions { open, by_age, .. } = &mut leader.transactions;
    open.entry(key).or_insert_with(|| {
        by_age.insert((begun_ms, key));
        OpenTransaction { begun_ms, ..OpenTransaction::default() }
    })
}

/// These messages belong to the open transaction too.
fn add_sends(leader: &mut Leader, settings: &Settings, now_ms: u64, key: TransactionKey, sends: Vec<Sent>) {
    open_transaction(leader, settings, now_ms, key);
    let Transactions { open, senders, .. } = &mut leader.transactions;
    if let Some(open) = open.get_mut(&key) {
        sends.iter().for_each(|sent| senders.note(&mut open.sent_to, sent));
        open.sends.extend(sends);
    }
}

/// Adds another partition's sends to a transaction that it has begun here.
pub fn enlist(
    leader: &mut Leader,
    settings: &Settings,
    now_ms: u64,
    key: TransactionKey,
    mut sends: Vec<Sent>,
    uploads: Vec<(usize, u64)>,
) {
    finish_peers_uploads(leader, settings, now_ms, key, &mut sends, uploads);
    add_sends(leader, settings, now_ms, key, sends);
    open_transaction(leader, settings, now_ms, key).sealed = true;
}

/// Refuses a message: if it belongs to a transaction, that can only be rolled back. Committing the
/// rest without this would do half of it.
pub fn refuse_publish(
    partition: &mut Partition,
    publish: &Publish,
    refusal: Refusal,
    effects: &mut Vec<Effect>,
) {
    if let Some(key) = publish.transaction {
        open_transaction(&mut partition.leader, &partition.settings, partition.now_ms, key)
            .refuse(refusal.clone());
    }
    reply(publish.connection, publish.ticket, Err(refusal), effects);
}

pub fn publish_in_transaction(partition: &mut Partition, publish: Publish, effects: &mut Vec<Effect>) {
    let Some(publish) = transacted_behind_windows(partition, publish, effects) else { return };
    let Publish { connection, ticket, .. } = publish;
    let result = put_in_transaction(partition, publish);
    reply(connection, ticket, result, effects);
}

/// The message belongs to its transaction from now on, or the transaction can only be rolled
/// back.
pub fn put_in_transaction(partition: &mut Partition, publish: Publish) -> Result<(), Refusal> {
    let came_before = came_before(&partition.state, &partition.protocols, &publish);
    let Publish { connection, mut sent, transaction: Some(key), .. } = publish else { return Ok(()) };
    if came_before {
        partition.counters.duplicates += 1;
        open_transaction(&mut partition.leader, &partition.settings, partition.now_ms, key);
        return Ok(());
    }
    let (bytes, max_bytes) = (sent.message.bytes.len() as u64, partition.settings.transaction_bytes_max);
    let open_bytes_max = partition.settings.open_bytes_max;
    let admitted = admit(&partition.state, &partition.leader, &partition.settings, &partition.clock, &sent)
        .and_then(|admitted| match is_full_for(partition, &sent, connection) {
            true => Err(full_refusal(partition, &sent, connection)),
            false => Ok(admitted),
        });
    let (held_bytes, all_bytes) = (bytes + SENT_BYTES, partition.leader.transactions.open_bytes);
    open_transaction(&mut partition.leader, &partition.settings, partition.now_ms, key);
    let Transactions { open, senders, .. } = &mut partition.leader.transactions;
    let Some(open) = open.get_mut(&key) else { return Ok(()) };
    let result = match open.refused.clone().map_or(admitted, Err) {
        Ok(_) if open.bytes + bytes > max_bytes => Err(Refusal::TransactionTooLarge { max_bytes }),
        Ok(_) if all_bytes + held_bytes > open_bytes_max => {
            Err(Refusal::TransactionsFull { max_bytes: open_bytes_max })
        }
        Ok(_) => Ok(()),
        Err(refusal) => Err(refusal),
    };
    match &result {
        Ok(()) => {
            open.bytes += bytes;
            open.held_bytes += held_bytes;
            apart(&mut sent.message.bytes);
            senders.note(&mut open.sent_to, &sent);
            open.sends.push(sent);
            partition.leader.transactions.open_bytes += held_bytes;
        }
        Err(refusal) => partition.leader.transactions.refuse_open(key, refusal.clone()),
    }
    result
}

/// The consumer's verdicts belong to the transaction from now on, all of them or none.
///
/// # Errors
/// There is no room for them: the transaction can only be rolled back.
pub fn settle_in_transaction(
    partition: &mut Partition,
    queue: QueueId,
    consumer: ConsumerKey,
    tags: &[EntryTag],
    cause: SettleCause,
    transaction: TransactionKey,
) -> Result<(), Refusal> {
    let bytes = tags.len() as u64 * SETTLED_BYTES;
    let max_bytes = partition.settings.open_bytes_max;
    if partition.leader.transactions.open_bytes + bytes > max_bytes {
        open_transaction(&mut partition.leader, &partition.settings, partition.now_ms, transaction);
        let refusal = Refusal::TransactionsFull { max_bytes };
        partition.leader.transactions.refuse_open(transaction, refusal.clone());
        return Err(refusal);
    }
    let held = EntryState::Held { by: consumer, in_transaction: false };
    let (mut settled, mut settled_again) = (Vec::with_capacity(tags.len()), Vec::new());
    for tag in tags {
        let settlement = Settlement { queue, tag: *tag, cause };
        match entry_at(partition, queue, *tag) {
            Some(entry) if entry.state == held => {
                entry.state = EntryState::Held { by: consumer, in_transaction: true };
                settled.push((consumer, settlement));
            }
            Some(entry) if entry.state == EntryState::Leaving => settled_again.push(settlement),
            _ => {}
        }
    }
    let bytes = (settled.len() + settled_again.len()) as u64 * SETTLED_BYTES;
    let open = open_transaction(&mut partition.leader, &partition.settings, partition.now_ms, transaction);
    open.settled.extend(settled);
    open.settled_again.extend(settled_again);
    open.held_bytes += bytes;
    partition.leader.transactions.open_bytes += bytes;
    Ok(())
}

pub fn roll_back(
    partition: &mut Partition,
    key: TransactionKey,
    ticket: Option<Ticket>,
    effects: &mut Vec<Effect>,
) {
    let answer = ticket.map(|ticket| (key.connection, ticket));
    let answers = Answers { answer, ..Answers::default() };
    close(partition, &[key], (None, Close::Undo(answers)), effects);
}

pub fn begin_commit(
    partition: &mut Partition,
    key: TransactionKey,
    participants: &[PartitionId],
    ticket: Ticket,
    effects: &mut Vec<Effect>,
) {
    let answer = Some((key.connection, ticket));
    match participants {
        [] => answer_request(partition, answer, Ok(()), effects),
        [one] if *one == partition.settings.id => commit_here(partition, &[key], Vec::new(), answer, effects),
        _ => coordinate(&mut partition.leader, &partition.settings, key, participants, answer, effects),
    }
}

/// Commits the part of it in this partition. `shares` are notified of the end.
pub fn commit_here(
    partition: &mut Partition,
    keys: &[TransactionKey],
    shares: Vec<TransactionKey>,
    answer: Option<(ConnectionId, Ticket)>,
    effects: &mut Vec<Effect>,
) {
    let answers = Answers { shares, answer, done: None };
    close(partition, keys, (None, Close::Commit(answers)), effects);
}

/// A closed transaction failed: consumers that are still there hold their settled entries
/// again, the rest returns to its place.
pub fn put_back(
    partition: &mut Partition,
    settlements: Vec<Settlement>,
    volatile: VolatileChanges,
    effects: &mut Vec<Effect>,
) {
    let touched = return_to_holders(partition, &settlements, volatile);
    dispatch_all(partition, touched, effects);
}

/// As `put_back`; the queues that it returns are to be dispatched.
pub fn return_to_holders(
    partition: &mut Partition,
    settlements: &[Settlement],
    volatile: VolatileChanges,
) -> Vec<QueueId> {
    let orphans: Vec<Settlement> = (volatile.returning(settlements).into_iter())
        .filter(|(by, end)| !by.is_some_and(|by| hold_again(partition, by, end)))
        .map(|(_, end)| end)
        .collect();
    give_back_all(partition, &orphans)
}

/// Whether the log must know of it.
fn is_in_log(partition: &mut Partition, end: &Settlement) -> bool {
    let key = entry_at(partition, end.queue, end.tag).map(|entry| entry.key);
    !end.queue.is_volatile() && !matches!(key, Some(MessageKey::Volatile(_)))
}

pub fn hold_again(partition: &mut Partition, by: ConsumerKey, end: &Settlement) -> bool {
    let attached =
        partition.leader.delivery.consumers.get_mut(&by).filter(|consumer| consumer.queue == end.queue);
    let Some(consumer) = attached else { return false };
    consumer.held.push(partition.leader.delivery.next_hold, end.tag, partition.now_ms);
    partition.leader.delivery.next_hold += 1;
    if let Some(entry) = entry_at(partition, end.queue, end.tag) {
        entry.state = EntryState::Held { by, in_transaction: false };
    }
    true
}

/// As `move_messages`; the bodies that go to another partition are there already.
pub fn move_at_once(
    partition: &mut Partition,
    sends: Vec<Sent>,
    bodies: &[Body],
    settlements: Vec<Settlement>,
    answer: Option<(ConnectionId, Ticket)>,
    effects: &mut Vec<Effect>,
) {
    if sends.is_empty() {
        return settle_leaving(partition, settlements, answer, effects);
    }
    let here = partition.settings.id;
    let mut shares: BTreeMap<PartitionId, Share> = BTreeMap::new();
    for (index, sent) in sends.into_iter().enumerate() {
        let body = bodies.iter().find(|body| body.index == index);
        let to = body.map_or_else(|| partition.settings.partition_of(&sent.to), |body| body.to);
        let (sends, uploads) = shares.entry(to).or_default();
        uploads.extend(body.map(|body| (sends.len(), body.upload)));
        sends.push(sent);
    }
    let (own, _) = shares.remove(&here).unwrap_or_default();
    if shares.is_empty() {
        bind_new_queues(partition, &own, effects);
        let (settlements, in_memory): (Vec<Settlement>, Vec<Settlement>) =
            settlements.into_iter().partition(|end| is_in_log(partition, end));
        let volatile = VolatileChanges { settlements: in_memory, ..VolatileChanges::default() };
        let completion =
            Completion::Transacted { settlements: settlements.clone(), volatile, shares: Vec::new(), answer };
        let changes = Changes { sends: own, settlements };
        return propose(partition, Command::Transact(changes), Urgency::Waiting, completion, effects);
    }
    let key = TransactionKey {
        connection: ConnectionId::internal(here),
        number: partition.leader.transactions.next_transaction,
    };
    partition.leader.transactions.next_transaction += 1;
    let nobody = ConsumerKey::new(key.connection, 0);
    for settlement in &settlements {
        if let Some(entry) = entry_at(partition, settlement.queue, settlement.tag) {
            entry.state = EntryState::Held { by: nobody, in_transaction: true };
        }
    }
    add_sends(&mut partition.leader, &partition.settings, partition.now_ms, key, own);
    let open = open_transaction(&mut partition.leader, &partition.settings, partition.now_ms, key);
    open.settled = settlements.into_iter().map(|end| (nobody, end)).collect();
    open.sealed = true;
    let participants: Vec<PartitionId> = std::iter::once(here).chain(shares.keys().copied()).collect();
    for (there, (sends, uploads)) in shares {
        tell(there, Peer::Enlist { transaction: key, sends, uploads }, effects);
    }
    coordinate(&mut partition.leader, &partition.settings, key, &participants, answer, effects);
}
