//! The engine: takes messages in, hands attempts out, and decides on each answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use postroad_model::LeaseId;

use super::delivery::{Delivery, Fresh, Key, Pushed, State, back_off_ms};
use super::endpoint::{Allowed, Endpoint, May};
use super::settings::{PushKind, PushSettings};
use crate::MessageId;

/// Messages of one queue that are held, at most: some 300 bytes each, with one subscriber.
const HELD_MAX: usize = 10_000;
/// Messages of all queues that are held, at most.
const ALL_HELD_MAX: usize = 200_000;
/// Messages of one queue that are held with their bodies, at most.
const BODIES_MAX: usize = 64;
/// How long a message is leased. If the broker ends, its subscribers get it after this time at the
/// latest.
pub const LEASE_MS: u64 = 90_000;
/// Leases are extended this often.
const EXTEND_EVERY_MS: u64 = 30_000;
/// Leases that one extension names, at most.
const EXTENDED_MAX: usize = 1000;
/// A body that the broker cannot read for now is tried again after this time.
const UNREAD_MS: u64 = 1000;
/// Longest `Retry-After` of an endpoint that is followed.
const RETRY_AFTER_MS_MAX: u64 = 86_400_000;

/// A request that is to be sent.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// Its message and delivery: the answer names it.
    pub key: Key,
    /// The reservation.
    pub lease: LeaseId,
    /// To whom.
    pub subscriber: Arc<str>,
    /// Where.
    pub url: Arc<str>,
    /// Those of the message, and then those of the subscriber.
    pub headers: Vec<(String, String)>,
    /// The body; `None`: it is to be read from the queue.
    pub body: Option<Bytes>,
    /// The endpoint answers within this time.
    pub timeout_ms: u64,
}

/// The answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The status; 0 if there was none.
    pub status: u16,
    /// Why there was none.
    pub error: String,
    /// The endpoint asks for this pause before the next request.
    pub retry_after_ms: Option<u64>,
}

/// A task for the driver.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "fields are named as above")]
pub enum Action {
    /// Reserve messages for [`LEASE_MS`], and report them, none too.
    Reserve { queue: Arc<str>, messages_max: u32 },
    /// Send a request, and report the answer.
    Send(Box<Attempt>),
    /// Extend leases by [`LEASE_MS`], and report those that are lost.
    Extend { queue: Arc<str>, handles: Vec<(MessageId, LeaseId)> },
    /// The message is done with.
    Delete { queue: Arc<str>, id: MessageId, lease: LeaseId },
    /// As before, but first its failure is reported to the error queue.
    Report { queue: Arc<str>, error_queue: String, message: Box<Pushed> },
    /// Give messages back.
    Release { queue: Arc<str>, handles: Vec<(MessageId, LeaseId)> },
}

/// The result of a delete by a subscriber.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acknowledged {
    /// The message is not held.
    NotHeld,
    /// It is, but not by this reservation.
    WrongReservation,
    /// It is not for this subscriber.
    NoSuchSubscriber,
    /// The subscriber, or all of them, are done with it.
    Done,
}

#[derive(Debug)]
struct Queue {
    settings: PushSettings,
    held: BTreeMap<MessageId, Pushed>,
    bodies: usize,
    is_reserving: bool,
    /// With unicast: which subscriber is the next message's first.
    turn: usize,
}

/// See the head of this folder. Times are those of one monotone clock.
#[derive(Debug, Default)]
pub struct Engine {
    queues: BTreeMap<Arc<str>, Queue>,
    endpoints: BTreeMap<Arc<str>, Endpoint>,
    /// Deliveries that wait for a time.
    due: BTreeSet<(u64, Key)>,
    /// Endpoints that are to be looked at.
    looks: BTreeSet<(u64, Arc<str>)>,
    /// Queues whose leases are to be extended.
    extends: BTreeSet<(u64, Arc<str>)>,
    /// Queues that may take more messages.
    hungry: BTreeSet<Arc<str>>,
    held: usize,
    /// Requests that are on their way, and how many may be: each takes a connection.
    requests: usize,
    requests_max: usize,
    /// Endpoints that wait until there are fewer.
    stalled: BTreeSet<Arc<str>>,
}

impl Engine {
    /// An engine without queues.
    pub fn new(requests_max: usize) -> Engine {
        Engine { requests_max, ..Engine::default() }
    }

    /// The queue pushes from now on, and if it does already, in this way.
    pub fn configure(&mut self, queue: &Arc<str>, settings: PushSettings, now_ms: u64) {
        match self.queues.get_mut(queue) {
            Some(known) => known.settings = settings,
            None => {
                let (held, bodies, is_reserving, turn) = (BTreeMap::new(), 0, false, 0);
                self.queues.insert(queue.clone(), Queue { settings, held, bodies, is_reserving, turn });
                self.extends.insert((now_ms + EXTEND_EVERY_MS, queue.clone()));
            }
        }
        self.hungry.insert(queue.clone());
        let urls = self.queues.get(queue).map(|queue| queue.settings.subscribers.clone()).unwrap_or_default();
        for subscriber in urls {
            self.looks.insert((now_ms, subscriber.url.as_str().into()));
        }
    }

    /// The queue does not push any more, or is gone.
    pub fn remove(&mut self, queue: &Arc<str>) {
        let Some(removed) = self.queues.remove(queue) else { return };
        self.held -= removed.held.len();
        self.hungry.remove(queue);
        self.due.retain(|(_, key)| key.queue != *queue);
        self.extends.retain(|(_, name)| name != queue);
        // Others may have waited for the room.
        self.hungry.extend(self.queues.keys().cloned());
    }

    /// How the queue pushes, if it does.
    pub fn settings(&self, queue: &str) -> Option<&PushSettings> {
        self.queues.get(queue).map(|queue| &queue.settings)
    }

    /// A message, if it is held.
    pub fn message(&self, queue: &str, id: MessageId) -> Option<&Pushed> {
        self.queues.get(queue)?.held.get(&id)
    }

    /// When [`Engine::poll`] is to be called next at the latest.
    pub fn next_ms(&self) -> Option<u64> {
        let firsts = [
            self.due.first().map(|(at_ms, _)| *at_ms),
            self.looks.first().map(|(at_ms, _)| *at_ms),
            self.extends.first().map(|(at_ms, _)| *at_ms),
        ];
        firsts.into_iter().flatten().min()
    }

    /// Gathers the actions that are due.
    pub fn poll(&mut self, now_ms: u64, actions: &mut Vec<Action>) {
        while let Some((at_ms, key)) = self.due.first().cloned().filter(|(at_ms, _)| *at_ms <= now_ms) {
            self.due.remove(&(at_ms, key.clone()));
            self.is_due(&key, now_ms, actions);
        }
        while let Some((at_ms, url)) = self.looks.first().cloned().filter(|(at_ms, _)| *at_ms <= now_ms) {
            self.looks.remove(&(at_ms, url.clone()));
            self.send(&url, now_ms, actions);
        }
        while let Some((at_ms, queue)) = self.extends.first().cloned().filter(|(at_ms, _)| *at_ms <= now_ms) {
            self.extends.remove(&(at_ms, queue.clone()));
            self.extend(&queue, now_ms, actions);
            self.extends.insert((now_ms + EXTEND_EVERY_MS, queue));
        }
        for queue in std::mem::take(&mut self.hungry) {
            self.reserve(queue, actions);
        }
    }

    fn reserve(&mut self, name: Arc<str>, actions: &mut Vec<Action>) {
        let all_room = ALL_HELD_MAX.saturating_sub(self.held);
        let Some(queue) = self.queues.get_mut(&name) else { return };
        let room = BODIES_MAX.saturating_sub(queue.bodies);
        let room = room.min(HELD_MAX.saturating_sub(queue.held.len())).min(all_room);
        if room == 0 || queue.is_reserving || queue.settings.subscribers.is_empty() {
            return;
        }
        queue.is_reserving = true;
        actions.push(Action::Reserve { queue: name, messages_max: room as u32 });
    }

    /// A reserve is answered.
    pub fn reserved(&mut self, name: &Arc<str>, fresh: Vec<Fresh>, now_ms: u64, actions: &mut Vec<Action>) {
        let is_read = |queue: &&mut Queue| !queue.settings.subscribers.is_empty();
        if let Some(queue) = self.queues.get_mut(name) {
            queue.is_reserving = false;
        }
        let Some(queue) = self.queues.get_mut(name).filter(is_read) else {
            let handles: Vec<_> = fresh.iter().map(|fresh| (fresh.id, fresh.lease)).collect();
            if !handles.is_empty() {
                actions.push(Action::Release { queue: name.clone(), handles });
            }
            return;
        };
        let mut ids = Vec::with_capacity(fresh.len());
        for fresh in fresh {
            let mut pushed = Pushed::new(fresh, &queue.settings);
            pushed.leased_until_ms = now_ms + LEASE_MS;
            ids.push(pushed.id);
            queue.bodies += usize::from(pushed.body.is_some());
            // Its lease was lost, which is not known here yet: it begins again.
            if let Some(former) = queue.held.insert(pushed.id, pushed) {
                queue.bodies -= usize::from(former.body.is_some());
                let is_its = |key: &Key| key.queue == *name && key.id == former.id;
                self.due.retain(|(_, key)| !is_its(key));
            } else {
                self.held += 1;
            }
        }
        for id in ids {
            self.begin(name, id, now_ms);
        }
        self.hungry.insert(name.clone());
    }

    /// Puts the deliveries of a new message in line.
    fn begin(&mut self, name: &Arc<str>, id: MessageId, now_ms: u64) {
        let Some(queue) = self.queues.get_mut(name) else { return };
        let count = queue.held.get(&id).map_or(0, |pushed| pushed.deliveries.len());
        match queue.settings.kind {
            PushKind::Multicast => {
                (0..count).for_each(|number| self.line_up(Key { queue: name.clone(), id, number }, now_ms));
            }
            PushKind::Unicast => {
                queue.turn = queue.turn.wrapping_add(1);
                let first = queue.turn.wrapping_sub(1);
                self.line_up_next(name, id, first, now_ms);
            }
        }
    }

    /// With unicast: one more subscriber gets a chance, rather one that is well. Returns whether
    /// there was one.
    fn line_up_next(&mut self, name: &Arc<str>, id: MessageId, first: usize, now_ms: u64) -> bool {
        let Some(pushed) = self.queues.get(name).and_then(|queue| queue.held.get(&id)) else { return false };
        let count = pushed.deliveries.len().max(1);
        let idle = (0..pushed.deliveries.len())
            .map(|number| (first % count + number) % count)
            .filter(|number| pushed.deliveries[*number].state == State::Idle);
        let is_suspect = |number: &usize| {
            let url = &pushed.deliveries[*number].url;
            self.endpoints.get(url).is_some_and(Endpoint::is_suspect)
        };
        let number = idle.clone().find(|number| !is_suspect(number)).or_else(|| idle.clone().next());
        let Some(number) = number else { return false };
        self.line_up(Key { queue: name.clone(), id, number }, now_ms);
        true
    }

    fn line_up(&mut self, key: Key, now_ms: u64) {
        let Some(delivery) = self.delivery(&key) else { return };
        delivery.state = State::InLine;
        let url = delivery.url.clone();
        let endpoint = self.endpoints.entry(url.clone()).or_default();
        let is_suspect = endpoint.is_suspect();
        endpoint.line.push_back(key.clone());
        self.looks.insert((now_ms, url));
        if is_suspect {
            self.drop_body(&key.queue, key.id);
        }
    }

    /// The message is not sent soon: its body is read again then.
    fn drop_body(&mut self, name: &Arc<str>, id: MessageId) {
        let Some(queue) = self.queues.get_mut(name) else { return };
        if queue.held.get_mut(&id).is_some_and(|pushed| pushed.body.take().is_some()) {
            queue.bodies -= 1;
            self.hungry.insert(name.clone());
        }
    }

    fn delivery(&mut self, key: &Key) -> Option<&mut Delivery> {
        self.queues.get_mut(&key.queue)?.held.get_mut(&key.id)?.deliveries.get_mut(key.number)
    }

    fn is_due(&mut self, key: &Key, now_ms: u64, actions: &mut Vec<Action>) {
        match self.delivery(key).map(|delivery| delivery.state) {
            Some(State::Waiting { .. }) => self.line_up(key.clone(), now_ms),
            Some(State::Accepted { .. }) => {
                if let Some(delivery) = self.delivery(key) {
                    delivery.error = "the endpoint answered 202 and did not delete the message".to_owned();
                }
                // The time that it had was the wait.
                self.failed(key, now_ms, None, actions);
            }
            _ => {}
        }
    }

    /// Sends the requests that the endpoint may get.
    fn send(&mut self, url: &Arc<str>, now_ms: u64, actions: &mut Vec<Action>) {
        while let Some(key) = self.endpoints.get_mut(url).and_then(|endpoint| endpoint.line.front().cloned())
        {
            let Some(allowed) = self.allowed(&key, url, now_ms, actions) else { continue };
            if self.requests_max <= self.requests {
                self.stalled.insert(url.clone());
                return;
            }
            let Some(endpoint) = self.endpoints.get_mut(url) else { return };
            match endpoint.may_send(now_ms, allowed) {
                May::Now => {}
                May::AfterAnAnswer => return,
                May::At(at_ms) => {
                    self.looks.insert((at_ms, url.clone()));
                    return;
                }
            }
            endpoint.line.pop_front();
            let Some(attempt) = self.attempt(key, url, now_ms) else { continue };
            if let Some(endpoint) = self.endpoints.get_mut(url) {
                endpoint.sent(now_ms, allowed);
                self.requests += 1;
                actions.push(Action::Send(Box::new(attempt)));
            }
        }
        if self.endpoints.get(url).is_some_and(|endpoint| endpoint.is_idle(now_ms)) {
            self.endpoints.remove(url);
        }
    }

    /// The limits of an attempt; `None`: it is obsolete, and has left the line.
    fn allowed(
        &mut self,
        key: &Key,
        url: &Arc<str>,
        now_ms: u64,
        actions: &mut Vec<Action>,
    ) -> Option<Allowed> {
        let found = self.queues.get_mut(&key.queue).and_then(|queue| {
            let delivery = queue.held.get_mut(&key.id)?.deliveries.get_mut(key.number)?;
            Some((&queue.settings, delivery)).filter(|(_, delivery)| delivery.state == State::InLine)
        });
        if let Some((settings, delivery)) = found {
            match settings.subscriber(&delivery.name) {
                Some(subscriber) if *subscriber.url == **url => {
                    let PushSettings { concurrency, rate_limit: rate, .. } = *settings;
                    return Some(Allowed { concurrency, rate });
                }
                // It has moved.
                Some(subscriber) => {
                    delivery.url = subscriber.url.as_str().into();
                    self.line_up(key.clone(), now_ms);
                }
                None => self.removed(key, now_ms, actions),
            }
        }
        self.endpoints.get_mut(url)?.line.pop_front();
        None
    }

    fn attempt(&mut self, key: Key, url: &Arc<str>, now_ms: u64) -> Option<Attempt> {
        let queue = self.queues.get_mut(&key.queue)?;
        let pushed = queue.held.get_mut(&key.id)?;
        let delivery = pushed.deliveries.get_mut(key.number)?;
        delivery.state = State::Sending;
        delivery.tries += 1;
        delivery.last_try_ms = Some(now_ms);
        let subscriber = queue.settings.subscriber(&delivery.name)?;
        let mut headers = pushed.headers.clone();
        headers.extend(subscriber.headers.iter().map(|(name, value)| (name.clone(), value.clone())));
        Some(Attempt {
            lease: pushed.lease,
            subscriber: delivery.name.clone(),
            url: url.clone(),
            headers,
            body: pushed.body.clone(),
            timeout_ms: queue.settings.timeout_s * 1000,
            key,
        })
    }

    /// A request is answered, or there is no answer.
    pub fn answered(&mut self, attempt: &Attempt, answer: Answer, now_ms: u64, actions: &mut Vec<Action>) {
        let Answer { status, error, retry_after_ms } = answer;
        let retry_after_ms = retry_after_ms.map(|ms| ms.min(RETRY_AFTER_MS_MAX));
        self.request_has_ended(now_ms);
        let rest_ms = retry_after_ms.filter(|_| matches!(status, 429 | 503)).unwrap_or(0);
        if let Some(endpoint) = self.endpoints.get_mut(&attempt.url) {
            endpoint.answered(now_ms, status == 0 || 500 <= status, rest_ms);
            if endpoint.is_suspect() {
                for key in endpoint.line.clone() {
                    self.drop_body(&key.queue, key.id);
                }
            }
            self.looks.insert((now_ms, attempt.url.clone()));
        }
        let key = &attempt.key;
        let delay_ms = self.queues.get(&key.queue).map_or(0, |queue| queue.settings.retries_delay_s * 1000);
        let Some(delivery) = self.sending(attempt) else { return };
        delivery.status = status;
        delivery.error = error;
        match status {
            202 => {
                let until_ms = now_ms + delay_ms;
                delivery.state = State::Accepted { until_ms };
                self.due.insert((until_ms, key.clone()));
                self.drop_body(&key.queue, key.id);
            }
            200..300 => {
                delivery.state = State::Done;
                self.finish(key, actions);
            }
            _ => {
                let settings = self.queues.get(&key.queue).map(|queue| queue.settings.clone());
                let tries = self.delivery(key).map_or(0, |delivery| delivery.tries);
                let wait_ms = settings.map_or(0, |settings| back_off_ms(&settings, tries));
                let at_ms = now_ms + wait_ms.max(retry_after_ms.unwrap_or(0));
                self.failed(key, now_ms, Some(at_ms), actions);
            }
        }
    }

    /// The broker could not read the body for now, so the endpoint was not asked: the attempt does
    /// not count, and is made again after a pause.
    pub fn unread(&mut self, attempt: &Attempt, reason: String, now_ms: u64) {
        self.request_has_ended(now_ms);
        if let Some(endpoint) = self.endpoints.get_mut(&attempt.url) {
            endpoint.not_asked();
            self.looks.insert((now_ms, attempt.url.clone()));
        }
        let Some(delivery) = self.sending(attempt) else { return };
        let at_ms = now_ms + UNREAD_MS;
        delivery.state = State::Waiting { at_ms };
        delivery.tries = delivery.tries.saturating_sub(1);
        delivery.last_try_ms = delivery.last_try_ms.filter(|_| 0 < delivery.tries);
        delivery.error = reason;
        self.due.insert((at_ms, attempt.key.clone()));
    }

    /// There is room for another request.
    fn request_has_ended(&mut self, now_ms: u64) {
        self.requests = self.requests.saturating_sub(1);
        for url in std::mem::take(&mut self.stalled) {
            self.looks.insert((now_ms, url));
        }
    }

    /// The delivery of an attempt, unless the message was reserved again since, or is done with.
    fn sending(&mut self, attempt: &Attempt) -> Option<&mut Delivery> {
        let key = &attempt.key;
        let is_its = self.message(&key.queue, key.id).is_some_and(|pushed| pushed.lease == attempt.lease);
        self.delivery(key).filter(|delivery| is_its && delivery.state == State::Sending)
    }

    /// An attempt has failed: the next one is at this time, or at once.
    fn failed(&mut self, key: &Key, now_ms: u64, at_ms: Option<u64>, actions: &mut Vec<Action>) {
        let Some(queue) = self.queues.get_mut(&key.queue) else { return };
        let (kind, retries) = (queue.settings.kind, queue.settings.retries);
        let Some(delivery) =
            queue.held.get_mut(&key.id).and_then(|pushed| pushed.deliveries.get_mut(key.number))
        else {
            return;
        };
        let is_spent = retries < delivery.tries;
        delivery.state = State::Failed;
        if kind == PushKind::Unicast {
            if self.line_up_next(&key.queue, key.id, key.number + 1, now_ms) {
                return;
            }
            if !is_spent && let Some(pushed) = self.held_mut(key) {
                // Another round.
                let failed = pushed.deliveries.iter_mut().filter(|found| found.state == State::Failed);
                failed.for_each(|found| found.state = State::Idle);
            }
        }
        match (is_spent, at_ms, self.delivery(key)) {
            (true, ..) | (_, _, None) => self.finish(key, actions),
            (false, None, _) => self.line_up(key.clone(), now_ms),
            (false, Some(at_ms), Some(delivery)) => {
                delivery.state = State::Waiting { at_ms };
                self.due.insert((at_ms, key.clone()));
                self.drop_body(&key.queue, key.id);
            }
        }
    }

    /// The subscriber has left the queue: with unicast it is another one's turn.
    fn removed(&mut self, key: &Key, now_ms: u64, actions: &mut Vec<Action>) {
        if let Some(delivery) = self.delivery(key) {
            delivery.state = State::Removed;
        }
        let Some(queue) = self.queues.get(&key.queue) else { return };
        if queue.settings.kind == PushKind::Unicast {
            let deliveries = queue.held.get(&key.id).map_or(&[][..], |pushed| &pushed.deliveries);
            let failed = deliveries.iter().enumerate().filter(|(_, found)| found.state == State::Failed);
            let next = failed.min_by_key(|(_, found)| found.tries);
            // If all others have been asked, another round begins by one that has retries left.
            let next = next.map(|(number, found)| (number, back_off_ms(&queue.settings, found.tries)));
            if self.line_up_next(&key.queue, key.id, key.number + 1, now_ms) {
                return;
            }
            if let Some((number, wait_ms)) = next {
                let key = Key { number, ..key.clone() };
                return self.failed(&key, now_ms, Some(now_ms + wait_ms), actions);
            }
        }
        self.finish(key, actions);
    }

    fn held_mut(&mut self, key: &Key) -> Option<&mut Pushed> {
        self.queues.get_mut(&key.queue)?.held.get_mut(&key.id)
    }

    /// Takes the message out if nothing more is to be done for it.
    fn finish(&mut self, key: &Key, actions: &mut Vec<Action>) {
        let Some(queue) = self.queues.get(&key.queue) else { return };
        let kind = queue.settings.kind;
        if !queue.held.get(&key.id).is_some_and(|pushed| pushed.is_over(kind)) {
            return;
        }
        let Some(pushed) = self.forget(&key.queue, key.id) else { return };
        let error_queue = self.settings(&key.queue).and_then(|settings| settings.error_queue.clone());
        let queue = key.queue.clone();
        if pushed.lost_all_subscribers() {
            // The present subscribers get it with the next reserve, or it waits for some.
            return actions.push(Action::Release { queue, handles: vec![(pushed.id, pushed.lease)] });
        }
        actions.push(match error_queue.filter(|_| pushed.has_failed(kind)) {
            Some(error_queue) => Action::Report { queue, error_queue, message: Box::new(pushed) },
            None => Action::Delete { queue, id: pushed.id, lease: pushed.lease },
        });
    }

    /// The message is not held any more.
    fn forget(&mut self, name: &Arc<str>, id: MessageId) -> Option<Pushed> {
        let queue = self.queues.get_mut(name)?;
        let pushed = queue.held.remove(&id)?;
        queue.bodies -= usize::from(pushed.body.is_some());
        self.held -= 1;
        for (number, delivery) in pushed.deliveries.iter().enumerate() {
            if let State::Waiting { at_ms } | State::Accepted { until_ms: at_ms } = delivery.state {
                self.due.remove(&(at_ms, Key { queue: name.clone(), id, number }));
            }
        }
        self.hungry.insert(name.clone());
        Some(pushed)
    }

    fn extend(&mut self, name: &Arc<str>, now_ms: u64, actions: &mut Vec<Action>) {
        let Some(queue) = self.queues.get_mut(name) else { return };
        let mut handles = Vec::new();
        for pushed in queue.held.values_mut() {
            if pushed.leased_until_ms <= now_ms + LEASE_MS - EXTEND_EVERY_MS {
                pushed.leased_until_ms = now_ms + LEASE_MS;
                handles.push((pushed.id, pushed.lease));
            }
        }
        for handles in handles.chunks(EXTENDED_MAX) {
            actions.push(Action::Extend { queue: name.clone(), handles: handles.to_vec() });
        }
    }

    /// The lease was lost: another client has deleted the message, or it has expired.
    pub fn lost(&mut self, name: &Arc<str>, id: MessageId, lease: LeaseId) {
        if self.message(name, id).is_some_and(|pushed| pushed.lease == lease) {
            self.forget(name, id);
        }
    }

    /// A subscriber deletes a message, or a client does for all of them.
    pub fn acknowledge(
        &mut self,
        name: &Arc<str>,
        (id, lease): (MessageId, Option<LeaseId>),
        subscriber: Option<&str>,
        actions: &mut Vec<Action>,
    ) -> Acknowledged {
        let Some(queue) = self.queues.get_mut(name) else { return Acknowledged::NotHeld };
        let Some(pushed) = queue.held.get_mut(&id) else { return Acknowledged::NotHeld };
        if lease != Some(pushed.lease) {
            return Acknowledged::WrongReservation;
        }
        let is_meant = |delivery: &Delivery| subscriber.is_none_or(|name| *delivery.name == *name);
        if !pushed.deliveries.iter().any(is_meant) {
            return Acknowledged::NoSuchSubscriber;
        }
        let mut timers = Vec::new();
        let mut last = Key { queue: name.clone(), id, number: 0 };
        for (number, delivery) in pushed.deliveries.iter_mut().enumerate() {
            if !is_meant(delivery) || delivery.is_over() {
                continue;
            }
            last.number = number;
            if let State::Waiting { at_ms } | State::Accepted { until_ms: at_ms } = delivery.state {
                timers.push((at_ms, last.clone()));
            }
            delivery.state = State::Done;
        }
        for timer in timers {
            self.due.remove(&timer);
        }
        self.finish(&last, actions);
        Acknowledged::Done
    }
}

#[cfg(test)]
mod tests;
