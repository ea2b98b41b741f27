//! The judge of leases: one account for each message, with its holder and the deadline as far as
//! clients can know them.
//!
//! A request is carried out at some moment between its call and its answer, so most times are a
//! least and a most. What is certain is judged strictly: while a lease is certain to hold, its
//! handle works and no other gets the message; once it is certain to be over, its handle is stale.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use postroad_model::{Handle, HandleAction, LeaseId, Now, PartitionId, QueueId, Refusal, Stale};

use super::lease_counts::LeaseReport;
use crate::selectors::wants;

/// Queue with consumers beside its reservers.
pub const SHARED_QUEUE: usize = 1;

/// Queue whose messages are dead after some deliveries.
pub const BURYING_QUEUE: usize = 2;

/// The message group of a message, if it has one.
pub fn group_of(number: u64) -> Option<&'static str> {
    match number % 6 {
        0 => Some("red"),
        3 => Some("blue"),
        _ => None,
    }
}

/// A queue as one partition has it.
type Place = (PartitionId, QueueId);

/// Since when the handles that are given are of the place where their queue is: a serial.
pub type Settled = Option<u64>;

/// The moment of a call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    at_ms: u64,
    serial: u64,
    /// No other request about this message was open.
    is_alone: bool,
    epoch: u64,
    was_gone: bool,
}

/// The result of a request about one handle; an error if the log refused it.
pub type Handled = Result<Result<(), Stale>, ()>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    least: u64,
    most: u64,
}

impl Span {
    fn plus(self, add: u64) -> Span {
        Span { least: self.least + add, most: self.most + add }
    }
}

/// What keeps a message from others: a lease, or a delay.
#[derive(Clone, Debug)]
struct Hold {
    /// `None` for a delay.
    lease: Option<LeaseId>,
    /// Its end in ticks.
    until: Span,
    /// Its end as a time of day.
    ends: Span,
    lasts: Span,
    /// Nothing that may have happened since would have changed it.
    is_certain: bool,
    /// When the answer that it follows from was here.
    noted: u64,
}

impl Hold {
    /// Something has happened to it, or not.
    fn doubt(&mut self, least: u64) {
        self.until = Span { least: self.until.least.min(least), most: u64::MAX };
        self.is_certain = false;
    }

    fn holds_at(&self, now_ms: u64) -> bool {
        now_ms < self.until.least
    }
}

#[derive(Debug, Default)]
struct Account {
    queue: usize,
    is_confirmed: bool,
    expires_at_ms: u64,
    /// When a delete was confirmed, and the lease that it named.
    gone: Option<(u64, Option<LeaseId>)>,
    /// A delete has an unknown outcome.
    may_be_gone: bool,
    /// Deletes that are on their way.
    deletes: u32,
    /// It was read at the end of the run.
    is_read_out: bool,
    hold: Option<Hold>,
    /// The number of the last lease; zero for none.
    last_lease: u64,
    /// Where the last reserve found it, and the serial of that call.
    place: Option<(Place, u64)>,
    /// The consumer that has it.
    consumer: Option<u64>,
    /// Requests about it that are on their way.
    open: u32,
    /// Grows with each request and answer.
    epoch: u64,
    /// A lease that its client never heard of may hold it, unless one was asked for after this
    /// serial.
    unheard: u64,
    /// A handle was refused because another holds it: one of these reserves must be the one.
    takers: Option<BTreeSet<u64>>,
}

impl Account {
    fn doubt(&mut self) {
        if let Some(hold) = &mut self.hold {
            hold.doubt(0);
        }
        self.epoch += 1;
    }

    /// The serial of the reserve that got it last.
    fn batch(&self) -> Option<u64> {
        self.place.map(|(_, serial)| serial)
    }

    /// Whether a client is certain to have it.
    fn is_held_at(&self, now_ms: u64) -> bool {
        let may_be_gone = self.gone.is_some() || self.may_be_gone || 0 < self.deletes;
        let is_leased = self.hold.as_ref().is_some_and(|hold| hold.lease.is_some() && hold.holds_at(now_ms));
        !may_be_gone && (is_leased || self.consumer.is_some())
    }
}

/// See the head of this file.
pub struct LeaseLedger {
    clock: Rc<Cell<Now>>,
    accounts: BTreeMap<u64, Account>,
    /// From ticks to the time of day, since when.
    offsets: Vec<(u64, i64)>,
    serial: u64,
    /// Answers before this serial are synced: a later durable request was confirmed.
    synced: u64,
    /// The queues of reserves that wait for their answers.
    reserves: BTreeMap<u64, usize>,
    last_consumer: u64,
    /// How many partitions there are.
    pub partitions: u16,
    /// The queues that were asked to move; `None`: one is perhaps about to leave.
    moved: BTreeMap<usize, Settled>,
    /// The first broken promise.
    pub broken: Option<String>,
    /// What happened.
    pub counts: LeaseReport,
}

impl LeaseLedger {
    /// Nothing was posted.
    pub fn new(clock: &Rc<Cell<Now>>) -> Rc<RefCell<LeaseLedger>> {
        let mut ledger = LeaseLedger {
            clock: clock.clone(),
            accounts: BTreeMap::new(),
            offsets: Vec::new(),
            serial: 0,
            synced: 0,
            reserves: BTreeMap::new(),
            last_consumer: 0,
            partitions: 1,
            moved: BTreeMap::new(),
            broken: None,
            counts: LeaseReport::default(),
        };
        ledger.offsets.push((0, ledger.offset()));
        Rc::new(RefCell::new(ledger))
    }

    fn now_ms(&self) -> u64 {
        self.clock.get().ticks_ms
    }

    fn offset(&self) -> i64 {
        let now = self.clock.get();
        now.wall_ms.cast_signed() - now.ticks_ms.cast_signed()
    }

    fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    fn call(&mut self) -> Call {
        let (at_ms, serial) = (self.now_ms(), self.next_serial());
        Call { at_ms, serial, is_alone: true, epoch: 0, was_gone: false }
    }

    /// The times of day at which something between the call and now may have happened.
    fn walls_since(&self, call: Call) -> Span {
        let before = self.offsets.iter().rposition(|(since_ms, _)| *since_ms <= call.at_ms).unwrap_or(0);
        let offsets = self.offsets[before..].iter().map(|(_, offset)| *offset);
        let least = call.at_ms.saturating_add_signed(offsets.clone().min().unwrap_or(0));
        let most = self.now_ms().saturating_add_signed(offsets.max().unwrap_or(0));
        Span { least, most }
    }

    /// A hold that began between the call and now.
    fn hold(&mut self, lease: Option<LeaseId>, call: Call, lasts_ms: u64) -> Hold {
        let until = Span { least: call.at_ms, most: self.now_ms() }.plus(lasts_ms);
        let (ends, lasts) = (self.walls_since(call).plus(lasts_ms), Span { least: lasts_ms, most: lasts_ms });
        Hold { lease, until, ends, lasts, is_certain: true, noted: self.next_serial() }
    }

    /// A promise is broken.
    pub fn breaks(&mut self, what: String) {
        let now_ms = self.now_ms();
        self.broken.get_or_insert_with(|| format!("at {now_ms}: {what}"));
    }

    /// The time may have been enough for the message to expire, by one of the clocks that were.
    fn may_have_expired(&self, account: &Account) -> bool {
        let latest = self.offsets.iter().map(|(_, offset)| *offset).max().unwrap_or(0);
        account.expires_at_ms != 0 && account.expires_at_ms <= self.now_ms().saturating_add_signed(latest)
    }

    /// The message may leave its queue, and not be deleted: it expires, or becomes a dead letter.
    fn may_leave(&self, number: u64) -> bool {
        let account = self.accounts.get(&number);
        account.is_none_or(|account| account.queue == BURYING_QUEUE || self.may_have_expired(account))
    }

    /// Messages that may be in the queues.
    pub fn alive(&self) -> usize {
        self.accounts.values().filter(|account| account.gone.is_none()).count()
    }

    /// A message is posted now, to be delivered after a delay.
    pub fn posting(&mut self, queue: usize, delay_ms: u64, expires_at_ms: u64) -> (u64, Call) {
        let number = self.accounts.len() as u64 + 1;
        let call = self.call();
        let until_ms = call.at_ms + delay_ms;
        let ends_ms = self.clock.get().wall_ms + delay_ms;
        let delay = Hold {
            lease: None,
            until: Span { least: until_ms, most: until_ms },
            ends: Span { least: ends_ms, most: ends_ms },
            // Read from the log, it knows the end alone.
            lasts: Span { least: 0, most: u64::MAX },
            is_certain: true,
            noted: call.serial,
        };
        let hold = (0 < delay_ms).then_some(delay);
        self.accounts.insert(number, Account { queue, expires_at_ms, hold, ..Account::default() });
        (number, call)
    }

    /// The broker has the message.
    pub fn posted(&mut self, number: u64, call: Call) {
        self.counts.add("posted", 1);
        self.synced = self.synced.max(call.serial);
        let passed_ms = self.now_ms() - call.at_ms;
        let Some(account) = self.accounts.get_mut(&number) else { return };
        account.is_confirmed = true;
        if let Some(hold) = &mut account.hold
            && hold.lease.is_none()
        {
            hold.lasts.least = hold.until.least.saturating_sub(call.at_ms).saturating_sub(passed_ms);
        }
    }

    /// A reserve begins.
    pub fn reserving(&mut self, queue: usize) -> Call {
        let call = self.call();
        self.reserves.insert(call.serial, queue);
        call
    }

    /// A reserve was refused, or is cancelled: then it may be carried out at any time from now on.
    pub fn reserve_failed(&mut self, call: Call, is_cancelled: bool) {
        let unheard = if is_cancelled { u64::MAX } else { self.next_serial() };
        let Some(queue) = self.reserves.remove(&call.serial) else { return };
        for account in self.accounts.values_mut().filter(|account| account.queue == queue) {
            account.unheard = account.unheard.max(unheard);
            account.epoch += 1;
            account.takers = None;
        }
    }

    /// A reserve has its answer.
    pub fn reserved(&mut self, call: Call, lasts_ms: u64, messages: &[(u64, Handle)]) {
        self.reserves.remove(&call.serial);
        for (number, handle) in messages {
            self.granted(*number, call, lasts_ms, handle);
        }
        let own: BTreeSet<u64> = messages.iter().map(|(number, _)| *number).collect();
        own.iter().for_each(|number| self.check_group(*number, &own));
        let mut broken = None;
        for (number, account) in &mut self.accounts {
            if account.takers.as_mut().is_some_and(|takers| takers.remove(&call.serial) && takers.is_empty())
            {
                broken = Some(format!("message {number} was said to be taken, and no reserve has got it"));
            }
        }
        broken.into_iter().for_each(|what| self.breaks(what));
    }

    fn granted(&mut self, number: u64, call: Call, lasts_ms: u64, handle: &Handle) {
        self.counts.add("granted", 1);
        let (place, lease) = (self.place_of(*handle), handle.lease);
        let now_ms = self.now_ms();
        let new = self.hold(lease, call, lasts_ms);
        let Some(LeaseId(lease)) = lease else { return self.breaks(format!("{number} has no lease")) };
        let Some(account) = self.accounts.get_mut(&number) else {
            return self.breaks(format!("message {number} was reserved, and never posted"));
        };
        // Its client may have seen the answer after that of a later one. Leases of two places do
        // not follow one another; calls do.
        let is_elsewhere = account.place.is_some_and(|(before, _)| before != place);
        let is_late = match account.place {
            Some((_, serial)) if is_elsewhere => call.serial < serial,
            _ => lease < account.last_lease,
        };
        let by_later = |by: Option<LeaseId>| !is_elsewhere && by.is_some_and(|LeaseId(by)| by < lease);
        let comes_again = account.gone.is_some_and(|(at, by)| at < call.serial || by_later(by));
        let other = account.hold.as_ref().filter(|hold| hold.holds_at(now_ms)).cloned();
        let is_again = account.hold.as_ref().is_some_and(|hold| hold.lease.is_some());
        let consumer = account.consumer.filter(|_| new.holds_at(now_ms));
        let two_at_once = other.filter(|_| !is_late || new.holds_at(now_ms));
        let is_strict = new.holds_at(now_ms);
        if !is_late {
            account.hold = Some(new);
            account.last_lease = lease;
            account.place = Some((place, call.serial));
            if account.unheard < call.serial {
                account.unheard = 0;
            }
        }
        account.epoch += 1;
        account.takers = None;
        self.counts.add("granted again", u64::from(is_again && !is_late));
        self.counts.add("granted in time", u64::from(is_strict));
        self.counts.add("granted elsewhere", u64::from(is_elsewhere));
        if comes_again {
            self.breaks(format!("message {number} was reserved after its delete was confirmed"));
        }
        if let Some(hold) = two_at_once {
            self.breaks(format!("message {number} was reserved ({lease:x}) while held: {hold:?}"));
        }
        if let Some(consumer) = consumer {
            self.breaks(format!("message {number} was reserved while consumer {consumer} has it"));
        }
    }

    /// A message came to a client that selects.
    pub fn selected(&mut self, number: u64, selector: &str) {
        self.counts.add("selected", u64::from(!selector.is_empty()));
        if !wants(selector, number) {
            self.breaks(format!("message {number} came to a client that wants {selector}"));
        }
    }

    /// A client has got these messages together, one of which is this: no other client may have one
    /// of its group.
    fn check_group(&mut self, number: u64, own: &BTreeSet<u64>) {
        let now_ms = self.now_ms();
        let (Some(group), Some(account)) = (group_of(number), self.accounts.get(&number)) else { return };
        // The answer may be so late that its own lease is over.
        if !account.is_held_at(now_ms) {
            return;
        }
        let others = self.accounts.iter().filter(|(other, _)| !own.contains(other));
        let of_group =
            others.filter(|(other, found)| group_of(**other) == Some(group) && found.queue == account.queue);
        let held =
            of_group.filter(|(_, found)| found.consumer != account.consumer || found.consumer.is_none());
        // An earlier answer comes late: these were given together after that.
        let held = held.filter(|(_, found)| found.batch().is_none_or(|batch| account.batch() != Some(batch)));
        let held = held.filter(|(_, found)| found.is_held_at(now_ms)).map(|(other, _)| *other).next();
        self.counts.add("grouped", 1);
        if let Some(other) = held {
            self.breaks(format!("message {number} of group {group} came while another has {other}"));
        }
    }

    /// A queue is asked to move; returns what was known before.
    pub fn moving(&mut self, queue: usize) -> Settled {
        self.moved.insert(queue, None).unwrap_or(Some(0))
    }

    /// The answer: it is leaving, for certain; or it is not; or this is not known.
    pub fn moves(&mut self, queue: usize, before: Settled, result: Result<(), Refusal>) {
        let serial = self.next_serial();
        let settled = match result {
            Ok(()) => Some(serial),
            Err(Refusal::NotMovable { .. } | Refusal::QueueMoving(_)) => before,
            Err(_) => None,
        };
        self.counts.add("moves", u64::from(result.is_ok()));
        self.moved.insert(queue, settled);
    }

    fn is_perhaps_elsewhere(&self, number: u64, handle: Handle) -> bool {
        self.accounts.get(&number).is_some_and(|account| self.may_be_elsewhere(account, handle))
    }

    /// Whether the queue may have moved since the handle was given.
    fn may_be_elsewhere(&self, account: &Account, handle: Handle) -> bool {
        let Some(settled) = self.moved.get(&account.queue) else { return false };
        let place = self.place_of(handle);
        let is_here =
            |since: u64| account.place.is_some_and(|(known, serial)| known == place && since <= serial);
        !settled.is_some_and(is_here)
    }

    /// Whether the handle may name the message no more, or no lease of where it is. But a queue
    /// waits for its leases.
    fn may_have_left(&self, account: &Account, handle: Handle, is_judged: bool) -> bool {
        let now_ms = self.now_ms();
        let holds = |hold: &Hold| hold.lease == handle.lease && hold.is_certain && hold.holds_at(now_ms);
        let is_held = handle.lease.is_some() && account.hold.as_ref().is_some_and(holds);
        !(is_judged && is_held) && self.may_be_elsewhere(account, handle)
    }

    /// Where a handle was given: leases name their partition.
    fn place_of(&self, handle: Handle) -> Place {
        let gave = |id: &PartitionId| handle.lease.is_some_and(|lease| lease.is_of(*id, self.partitions));
        ((0..self.partitions).map(PartitionId).find(gave).unwrap_or(PartitionId(0)), handle.queue)
    }

    /// A consumer begins.
    pub fn attached(&mut self) -> u64 {
        self.last_consumer += 1;
        self.last_consumer
    }

    /// A consumer has got a message.
    pub fn consumed(&mut self, number: u64, consumer: u64) {
        self.counts.add("consumed", 1);
        let now_ms = self.now_ms();
        let Some(account) = self.accounts.get_mut(&number) else {
            return self.breaks(format!("message {number} was never posted"));
        };
        account.epoch += 1;
        account.takers = None;
        let before = account.consumer.replace(consumer);
        let (is_gone, hold) = (account.gone.is_some(), account.hold.clone());
        if is_gone {
            self.breaks(format!("message {number} came to a consumer after its delete was confirmed"));
        }
        if let Some(hold) = hold.filter(|hold| hold.holds_at(now_ms)) {
            self.breaks(format!("message {number} came to a consumer while held: {hold:?}"));
        }
        if let Some(before) = before.filter(|before| *before != consumer) {
            self.breaks(format!("message {number} is with consumer {before}, and came to {consumer}"));
        }
        self.check_group(number, &BTreeSet::from([number]));
    }

    /// A consumer asks for the end of a message.
    pub fn settling(&mut self, number: u64) -> Call {
        let call = self.call();
        if let Some(account) = self.accounts.get_mut(&number) {
            account.deletes += 1;
            account.epoch += 1;
            account.consumer = None;
        }
        call
    }

    /// The end of the message is durable, or was refused.
    pub fn settled(&mut self, number: u64, call: Call, is_done: bool) {
        let serial = self.next_serial();
        if is_done {
            self.synced = self.synced.max(call.serial);
        }
        let Some(account) = self.accounts.get_mut(&number) else { return };
        account.deletes -= 1;
        account.epoch += 1;
        match is_done {
            true => account.gone = account.gone.or(Some((serial, None))),
            false => account.may_be_gone = true,
        }
    }

    /// A consumer ends: its deliveries go back.
    pub fn detaching(&mut self, consumer: u64) {
        for account in self.accounts.values_mut().filter(|account| account.consumer == Some(consumer)) {
            account.consumer = None;
            account.epoch += 1;
        }
    }

    /// A client uses a handle now.
    pub fn handling(&mut self, number: u64, handle: Handle, action: HandleAction) -> Call {
        let call = self.call();
        let Some(account) = self.accounts.get_mut(&number) else { return call };
        account.epoch += 1;
        account.open += 1;
        let least = match action {
            HandleAction::Delete { .. } => {
                account.deletes += 1;
                None
            }
            HandleAction::Extend { lasts_ms } | HandleAction::Renew { lasts_ms } => Some(lasts_ms),
            HandleAction::Release { delay_ms } => Some(delay_ms),
        };
        let own = account.hold.as_mut().filter(|hold| handle.lease.is_some() && hold.lease == handle.lease);
        if let (Some(least), Some(hold)) = (least, own) {
            hold.until.least = hold.until.least.min(call.at_ms + least);
        }
        let (is_alone, epoch, was_gone) = (account.open == 1, account.epoch, account.gone.is_some());
        Call { is_alone, epoch, was_gone, ..call }
    }

    /// The answer. `is_done`: all of the request was carried out as far as handles were good.
    pub fn handled(
        &mut self,
        (number, handle, action): (u64, Handle, HandleAction),
        call: Call,
        (result, is_done): (Handled, bool),
        renewed: Option<LeaseId>,
    ) {
        let serial = self.next_serial();
        let Some(account) = self.accounts.get_mut(&number) else { return };
        let is_delete = matches!(action, HandleAction::Delete { .. });
        let is_undisturbed = call.is_alone && account.epoch == call.epoch;
        account.open -= 1;
        account.deletes -= u32::from(is_delete);
        account.epoch += 1;
        // Good handles of a request that was not carried out have done nothing.
        self.count(action, if result == Ok(Ok(())) && !is_done { Err(()) } else { result });
        if let Ok(answer) = result {
            self.judge(number, handle, action, (call, is_undisturbed), answer);
        }
        let may_leave = self.may_leave(number) || self.is_perhaps_elsewhere(number, handle);
        let Some(account) = self.accounts.get_mut(&number) else { return };
        match (result, is_delete) {
            // A request that finds it gone has waited for the delete, which is final.
            (Ok(Err(Stale::Gone)), _) if !may_leave => {
                account.gone = account.gone.or(Some((serial, None)));
            }
            (Ok(Ok(())), true) if is_done => {
                // Even if its lease had expired: then there may have been later ones before.
                let is_last = action == HandleAction::Delete { even_expired: false };
                account.gone = account.gone.or(Some((serial, handle.lease.filter(|_| is_last))));
                self.synced = self.synced.max(call.serial);
            }
            (Err(()), true) => {
                account.may_be_gone = true;
                // The deadline of a lease waits while a delete is on its way.
                let own = account.hold.as_mut().filter(|hold| hold.lease == handle.lease);
                own.into_iter().for_each(|hold| hold.doubt(u64::MAX));
            }
            (Ok(Ok(())), false) if is_done => {
                self.held_anew((number, handle, action), call, is_undisturbed, renewed);
            }
            (Err(()), false) if account.hold.as_ref().is_some_and(|hold| hold.lease == handle.lease) => {
                account.hold.iter_mut().for_each(|hold| hold.doubt(u64::MAX));
            }
            _ => {}
        }
    }

    /// A touch or release was carried out.
    fn held_anew(
        &mut self,
        (number, handle, action): (u64, Handle, HandleAction),
        call: Call,
        is_undisturbed: bool,
        renewed: Option<LeaseId>,
    ) {
        let (lease, lasts_ms) = match action {
            HandleAction::Renew { lasts_ms } => (renewed, lasts_ms),
            HandleAction::Extend { lasts_ms } => (handle.lease, lasts_ms),
            HandleAction::Release { delay_ms } => (None, delay_ms),
            HandleAction::Delete { .. } => return,
        };
        let mut new = self.hold(lease, call, lasts_ms);
        let Some(account) = self.accounts.get_mut(&number) else { return };
        account.last_lease = account.last_lease.max(renewed.map_or(0, |LeaseId(lease)| lease));
        let Some(hold) = account.hold.as_mut().filter(|hold| hold.lease == handle.lease) else { return };
        if !is_undisturbed {
            new.doubt(hold.until.least);
        }
        *hold = new;
    }

    fn judge(
        &mut self,
        number: u64,
        handle: Handle,
        action: HandleAction,
        (call, is_undisturbed): (Call, bool),
        answer: Result<(), Stale>,
    ) {
        let Some(account) = self.accounts.get(&number) else { return };
        let name = |why: &str| format!("message {number}: {action:?} by {handle:?} got {answer:?} {why}");
        let may_be_gone = account.may_be_gone
            || 0 < account.deletes
            || account.gone.is_some()
            || account.queue == BURYING_QUEUE
            || self.may_have_expired(account);
        let is_stale = matches!(answer, Err(Stale::Gone | Stale::Expired));
        if is_stale && self.may_have_left(account, handle, is_undisturbed && !may_be_gone) {
            return self.counts.add("judged elsewhere", 1);
        }
        self.counts.add("judged gone", u64::from(call.was_gone));
        if call.was_gone && answer != Err(Stale::Gone) {
            return self.breaks(name("after its delete was confirmed"));
        }
        if answer == Err(Stale::Gone) && !may_be_gone {
            return self.breaks(name("but was never deleted"));
        }
        if call.was_gone || answer == Err(Stale::Gone) {
            return;
        }
        let is_certain = account.hold.as_ref().is_none_or(|hold| hold.is_certain);
        if !is_undisturbed || !is_certain {
            return;
        }
        let now_ms = self.now_ms();
        let even_expired = matches!(action, HandleAction::Delete { even_expired: true });
        let hold = account.hold.as_ref();
        let holds = hold.is_some_and(|hold| hold.holds_at(now_ms));
        let is_over = hold.is_some_and(|hold| hold.until.most <= call.at_ms);
        let lease = hold.and_then(|hold| hold.lease);
        let is_own = handle.lease.is_some() && lease == handle.lease;
        let taken = if handle.lease.is_some() { Stale::Taken } else { Stale::Held };
        // Who else is certain to have it.
        let is_others = account.consumer.is_some() || holds && lease.is_some() && !is_own;
        let (ok, free) = match handle.lease {
            _ if is_others => (false, false),
            _ if is_own && holds => (true, false),
            _ if is_own && !is_over => (true, true),
            Some(_) => (even_expired, true),
            None => (true, false),
        };
        let may_be_taken = is_others || !holds;
        let is_right = match answer {
            Ok(()) => ok,
            Err(Stale::Expired) => free,
            Err(stale) => stale == taken && may_be_taken,
        };
        // The holder that is known may hold it still.
        let may_be_known = lease.is_some() && !is_own && !is_over;
        let needs_taker = answer == Err(taken) && !is_others && !may_be_known;
        self.counts.add("judged valid", u64::from(is_own && holds));
        self.counts.add("judged taken", u64::from(is_others));
        self.counts.add("judged expired", u64::from(is_own && is_over));
        if !is_right {
            return self.breaks(name(&format!("with {hold:?}", hold = self.accounts[&number].hold)));
        }
        if needs_taker {
            self.find_taker(number, &name);
        }
    }

    /// Another has the message: its reserve must be one of those that are open.
    fn find_taker(&mut self, number: u64, name: &dyn Fn(&str) -> String) {
        let Some(account) = self.accounts.get(&number) else { return };
        // A consumer may have it and have said nothing yet.
        if 0 < account.unheard || account.queue == SHARED_QUEUE {
            return;
        }
        let here = self.reserves.iter().filter(|(_, queue)| **queue == account.queue);
        let takers: BTreeSet<u64> = here.map(|(reserve, _)| *reserve).collect();
        match takers.is_empty() {
            true => self.breaks(name("and no other has reserved it")),
            false => {
                self.counts.add("takers sought", 1);
                self.accounts.entry(number).or_default().takers = Some(takers);
            }
        }
    }

    fn count(&mut self, action: HandleAction, result: Handled) {
        let what = match (result, action) {
            (Ok(Ok(())), HandleAction::Delete { .. }) => "deleted",
            (Ok(Ok(())), HandleAction::Release { .. }) => "released",
            (Ok(Ok(())), HandleAction::Extend { .. }) => "extended",
            (Ok(Ok(())), HandleAction::Renew { .. }) => "renewed",
            (Ok(Err(Stale::Gone)), _) => "stale: gone",
            (Ok(Err(Stale::Expired)), _) => "stale: expired",
            (Ok(Err(Stale::Taken)), _) => "stale: taken",
            (Ok(Err(Stale::Held)), _) => "stale: held",
            (Err(()), _) => "not carried out",
        };
        self.counts.add(what, 1);
    }

    /// The wall clock was set.
    pub fn clock_set(&mut self) {
        self.counts.add("clock steps", 1);
        self.offsets.push((self.now_ms(), self.offset()));
        // The delay of a message on its way may count from either time.
        self.accounts.values_mut().filter(|account| !account.is_confirmed).for_each(Account::doubt);
    }

    /// The process has ended at that time, with all clients; it starts again now.
    pub fn crashed(&mut self, ended_ms: u64, of_machine: bool) {
        let (now, synced, serial) = (self.clock.get(), self.synced, self.next_serial());
        let busy: BTreeSet<usize> = std::mem::take(&mut self.reserves).into_values().collect();
        let mut leased = false;
        for account in self.accounts.values_mut() {
            if busy.contains(&account.queue) || 0 < account.unheard {
                account.unheard = serial;
            }
            account.may_be_gone |= 0 < std::mem::take(&mut account.deletes);
            account.consumer = None;
            account.takers = None;
            account.epoch += 1;
            let is_open = 0 < std::mem::take(&mut account.open) || !account.is_confirmed;
            let Some(hold) = &mut account.hold else { continue };
            leased |= hold.lease.is_some() && hold.holds_at(ended_ms) && account.gone.is_none();
            let is_kept = !of_machine || hold.noted <= synced;
            if is_open || !is_kept || !hold.is_certain || !hold.holds_at(ended_ms) {
                hold.doubt(0);
                continue;
            }
            let left = |ends_ms: u64, lasts_ms: u64| ends_ms.saturating_sub(now.wall_ms).min(lasts_ms);
            hold.until.least = now.ticks_ms + left(hold.ends.least, hold.lasts.least);
            hold.until.most = now.ticks_ms + left(hold.ends.most, hold.lasts.most);
        }
        // A queue whose move was in the log is leaving since the start; any other stays.
        self.moved.values_mut().filter(|settled| settled.is_none()).for_each(|known| *known = Some(serial));
        self.counts.add("crashes", 1);
        self.counts.add("crashes with leases", u64::from(leased));
        self.counts.add("kept leases", self.holds() as u64);
    }

    /// Leases that are certain to hold now.
    fn holds(&self) -> usize {
        let now_ms = self.now_ms();
        let holds = |account: &&Account| {
            let hold = account.hold.as_ref().filter(|hold| hold.lease.is_some());
            account.gone.is_none() && hold.is_some_and(|hold| hold.holds_at(now_ms))
        };
        self.accounts.values().filter(holds).count()
    }

    /// At the end of the run the message was in its queue, or among the dead letters.
    pub fn read_out(&mut self, number: u64, is_dead: bool) {
        self.counts.add("read out", 1);
        self.counts.add("buried", u64::from(is_dead));
        let Some(account) = self.accounts.get_mut(&number) else {
            return self.breaks(format!("message {number} was never posted"));
        };
        let is_again = std::mem::replace(&mut account.is_read_out, true);
        let is_gone = account.gone.is_some();
        self.counts.add("deletes undone", u64::from(account.may_be_gone));
        if is_gone {
            self.breaks(format!("message {number} is there, and its delete was confirmed"));
        }
        if is_again {
            self.breaks(format!("message {number} is there twice"));
        }
    }

    /// All queues are empty: every message is accounted for.
    pub fn ended(&mut self) {
        let is_lost = |account: &Account| {
            let is_known = account.gone.is_some() || account.may_be_gone || account.is_read_out;
            account.is_confirmed && !is_known && !self.may_have_expired(account)
        };
        let lost = self.accounts.iter().find(|(_, account)| is_lost(account)).map(|(number, _)| *number);
        lost.into_iter()
            .for_each(|number| self.breaks(format!("message {number} was confirmed, and is lost")));
    }
}

#[cfg(test)]
mod tests {
    use postroad_model::{EntryTag, QueueId};

    use super::*;

    const DELETE: HandleAction = HandleAction::Delete { even_expired: false };

    /// A ledger, and its clock.
    struct Story(Rc<Cell<Now>>, Rc<RefCell<LeaseLedger>>);

    impl Story {
        fn pass(&self, ms: u64) {
            let now = self.0.get();
            self.0.set(Now { ticks_ms: now.ticks_ms + ms, wall_ms: now.wall_ms + ms });
        }

        /// Message 1 is leased for 100 ms at once.
        fn grant(&self, lease: u64) {
            let mut ledger = self.1.borrow_mut();
            let call = ledger.reserving(0);
            ledger.reserved(call, 100, &[(1, handle(lease))]);
        }

        fn act(&self, lease: u64, action: HandleAction, answer: Handled) {
            let mut ledger = self.1.borrow_mut();
            let call = ledger.handling(1, handle(lease), action);
            ledger.handled((1, handle(lease), action), call, (answer, true), None);
        }

        fn crash(&self, of_machine: bool) {
            let ended_ms = self.0.get().ticks_ms;
            self.1.borrow_mut().crashed(ended_ms, of_machine);
        }

        fn read_out(&self) {
            self.1.borrow_mut().read_out(1, false);
        }
    }

    fn handle(lease: u64) -> Handle {
        Handle { queue: QueueId(1), tag: EntryTag(0), lease: Some(LeaseId(lease)) }
    }

    #[test]
    fn broken_promises_are_found() {
        type Run = fn(&Story);
        let cases: [(&str, Run, Option<&str>); 16] = [
            ("a second lease", |story| story.grant(2), Some("while held")),
            ("when it has expired", |story| (story.pass(100), story.grant(2)).1, None),
            ("a moment before", |story| (story.pass(99), story.grant(2)).1, Some("while held")),
            ("a consumer", |story| story.1.borrow_mut().consumed(1, 7), Some("while held")),
            ("the process ended", |story| (story.crash(false), story.grant(2)).1, Some("while held")),
            ("the machine ended", |story| (story.crash(true), story.grant(2)).1, None),
            (
                "a valid handle",
                |story| story.act(1, DELETE, Ok(Err(Stale::Expired))),
                Some("got Err(Expired)"),
            ),
            (
                "a stale handle",
                |story| (story.pass(100), story.act(1, DELETE, Ok(Ok(())))).1,
                Some("got Ok(())"),
            ),
            (
                "taken by no other",
                |story| (story.pass(100), story.act(1, DELETE, Ok(Err(Stale::Taken)))).1,
                Some("no other has reserved it"),
            ),
            (
                "taken by another",
                |story| {
                    story.pass(100);
                    story.grant(2);
                    story.act(1, DELETE, Ok(Err(Stale::Expired)));
                },
                Some("got Err(Expired)"),
            ),
            ("not gone", |story| story.act(1, DELETE, Ok(Err(Stale::Gone))), Some("was never deleted")),
            (
                "gone",
                |story| (story.act(1, DELETE, Ok(Ok(()))), story.grant(2)).1,
                Some("delete was confirmed"),
            ),
            (
                "gone, and there at the end",
                |story| (story.act(1, DELETE, Ok(Ok(()))), story.read_out()).1,
                Some("its delete was confirmed"),
            ),
            ("unknown delete", |story| (story.act(1, DELETE, Err(())), story.read_out()).1, None),
            (
                "released",
                |story| {
                    story.act(1, HandleAction::Release { delay_ms: 20 }, Ok(Ok(())));
                    story.pass(19);
                    story.grant(2);
                },
                Some("while held"),
            ),
            ("lost", |_| (), Some("is lost")),
        ];
        for (name, run, want) in cases {
            let clock = Rc::new(Cell::new(Now { ticks_ms: 10, wall_ms: 1000 }));
            let story = Story(clock.clone(), LeaseLedger::new(&clock));
            let (number, call) = story.1.borrow_mut().posting(0, 0, 0);
            story.1.borrow_mut().posted(number, call);
            story.grant(1);
            run(&story);
            if want == Some("is lost") {
                story.1.borrow_mut().ended();
            }
            let broken = story.1.borrow_mut().broken.take();
            let is_right = match (&broken, want) {
                (Some(broken), Some(want)) => broken.contains(want),
                (None, None) => true,
                _ => false,
            };
            assert!(is_right, "case {name}: {broken:?}");
        }
    }
}
