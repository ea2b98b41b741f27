//! The flow of the last minute, of queues and of their consumers: explanations of why a queue grows
//! stand on it.
//!
//! Counted in slots of some seconds, as messages come and go: a message costs an addition. Memory
//! is bounded: [`FLOWS_MAX`] queues of a partition are measured at the same time, and one without
//! traffic for a minute is given up for another. Known to the leader of this run alone.
//! Never here: which figures matter (`postroad_model::judge`).

use std::collections::{HashMap, VecDeque};

use postroad_model::{
    ConsumerFlow, ConsumerKey, ConsumerMode, Destination, DestinationKind, QueueFlow, QueueId, SettleCause,
};
use rustc_hash::FxBuildHasher;

use crate::Partition;
use crate::delivery::consumer::Consumer;
use crate::explain::Explainer;
use crate::queue::Queue;

/// The time of one slot...
const SLOT_MS: u64 = 10_000;

/// ... and how many make a minute.
const SLOTS: usize = 6;

/// Queues of a partition that are measured at the same time: some 300 bytes each.
const FLOWS_MAX: usize = 16_384;

/// Queues that are looked at, each time, for one without traffic.
const LOOKED_AT: usize = 64;

/// Sums of the last minute.
#[derive(Clone, Debug, Default)]
pub struct Minute<T> {
    /// The number of the newest slot, counted from the beginning of the clock.
    newest: u64,
    since_ms: u64,
    slots: [T; SLOTS],
}

impl<T: Copy + Default> Minute<T> {
    /// Nothing yet.
    fn begin(now_ms: u64) -> Minute<T> {
        Minute { newest: now_ms / SLOT_MS, since_ms: now_ms, slots: [T::default(); SLOTS] }
    }

    /// The slot of this time, which is not before that of any earlier call.
    fn at(&mut self, now_ms: u64) -> &mut T {
        let slot = now_ms / SLOT_MS;
        if self.newest < slot {
            for passed in (self.newest + 1..=slot).take(SLOTS) {
                self.slots[(passed % SLOTS as u64) as usize] = T::default();
            }
            self.newest = slot;
        }
        &mut self.slots[(slot % SLOTS as u64) as usize]
    }

    /// The slots of the last minute.
    fn last(&self, now_ms: u64) -> impl Iterator<Item = &T> {
        let first = first_slot(now_ms);
        let numbers =
            (self.newest.saturating_sub(SLOTS as u64 - 1)..=self.newest).filter(move |at| first <= *at);
        numbers.map(|number| &self.slots[(number % SLOTS as u64) as usize])
    }

    /// The time that they cover.
    fn window_ms(&self, now_ms: u64) -> u64 {
        now_ms.saturating_sub(self.since_ms.max(first_slot(now_ms) * SLOT_MS))
    }

    fn is_idle(&self, now_ms: u64) -> bool {
        self.newest < first_slot(now_ms)
    }
}

fn first_slot(now_ms: u64) -> u64 {
    (now_ms / SLOT_MS).saturating_sub(SLOTS as u64 - 1)
}

/// The events of a queue in the time of a slot.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passed {
    came: u32,
    consumed: u32,
    dead_lettered: u32,
    expired: u32,
    removed: u32,
    redelivered: u32,
}

impl Passed {
    /// A message comes.
    pub fn comes(&mut self) {
        self.came = self.came.saturating_add(1);
    }

    /// A message leaves.
    pub fn leaves(&mut self, cause: SettleCause) {
        let count = match cause {
            SettleCause::Consumed => &mut self.consumed,
            SettleCause::Expired => &mut self.expired,
            SettleCause::DeadLettered => &mut self.dead_lettered,
            SettleCause::Dropped | SettleCause::Replaced | SettleCause::Moved => &mut self.removed,
        };
        *count = count.saturating_add(1);
    }

    /// A message is delivered once more.
    pub fn comes_again(&mut self) {
        self.redelivered = self.redelivered.saturating_add(1);
    }
}

/// The work of a consumer in the time of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Work {
    settled: u32,
    waiting_ms: u32,
    held_ms: u64,
}

/// The flow of a consumer.
#[derive(Default)]
pub struct Pulse {
    work: Option<Box<Minute<Work>>>,
    /// Its credit ended then.
    waits_since_ms: Option<u64>,
}

impl Pulse {
    fn work(&mut self, now_ms: u64) -> &mut Work {
        self.work.get_or_insert_with(|| Box::new(Minute::begin(now_ms))).at(now_ms)
    }

    /// It gets a message, and its credit has ended with that.
    pub fn waits(&mut self, now_ms: u64) {
        self.work(now_ms);
        self.waits_since_ms.get_or_insert(now_ms);
    }

    /// It has credit again, or nothing to acknowledge.
    pub fn stops_waiting(&mut self, now_ms: u64) {
        let Some(since_ms) = self.waits_since_ms.take() else { return };
        self.work(now_ms);
        let Some(minute) = &mut self.work else { return };
        // Each slot gets its part of the time.
        for slot in (since_ms / SLOT_MS).max(first_slot(now_ms))..=now_ms / SLOT_MS {
            let (from, to) = (since_ms.max(slot * SLOT_MS), now_ms.min((slot + 1) * SLOT_MS));
            minute.slots[(slot % SLOTS as u64) as usize].waiting_ms += to.saturating_sub(from) as u32;
        }
    }

    /// It settles a message that it got then.
    pub fn settles(&mut self, sent_ms: u64, now_ms: u64) {
        let work = self.work(now_ms);
        work.settled = work.settled.saturating_add(1);
        work.held_ms += now_ms.saturating_sub(sent_ms);
    }
}

/// The queues that are measured.
#[derive(Default)]
pub struct Flows {
    measured: HashMap<QueueId, Minute<Passed>, FxBuildHasher>,
    /// In turn: one without traffic, or one that is gone, is found sooner or later.
    turns: VecDeque<QueueId>,
    /// All are busy: not before this time is looked again.
    full_until_ms: u64,
}

impl Flows {
    /// Notes what happens to a queue, if it is measured, or there is room to measure it.
    pub fn note(&mut self, queue: &Queue, now_ms: u64, what: impl FnOnce(&mut Passed)) {
        // Subscriptions are not explained.
        if queue.source.kind != DestinationKind::Queue {
            return;
        }
        if let Some(flow) = self.measured.get_mut(&queue.id) {
            return what(flow.at(now_ms));
        }
        if self.measured.len() < FLOWS_MAX || self.makes_room(now_ms) {
            let flow = self.measured.entry(queue.id).or_insert_with(|| Minute::begin(now_ms));
            what(flow.at(now_ms));
            self.turns.push_back(queue.id);
        }
    }

    /// A queue without traffic is measured no more, if one is found.
    fn makes_room(&mut self, now_ms: u64) -> bool {
        if now_ms < self.full_until_ms {
            return false;
        }
        for _ in 0..LOOKED_AT {
            let Some(id) = self.turns.pop_front() else { return true };
            if self.measured.get(&id).is_none_or(|flow| flow.is_idle(now_ms)) {
                self.measured.remove(&id);
                return true;
            }
            self.turns.push_back(id);
        }
        self.full_until_ms = now_ms + 1;
        false
    }
}

/// The flow of a queue; `None` without such a queue.
pub fn flow_of(partition: &Partition, queue: &Destination) -> Option<QueueFlow> {
    let id = partition.state.addresses.get(queue)?.bound.own()?;
    let (queue, now_ms) = (partition.state.queues.get(&id)?, partition.now_ms);
    let (messages, in_flight) = (queue.len(), queue.away.messages);
    let mut flow = QueueFlow { messages, in_flight, ..QueueFlow::default() };
    if let Some(minute) = partition.leader.flows.measured.get(&id) {
        flow.window_ms = minute.window_ms(now_ms);
        for passed in minute.last(now_ms) {
            flow.came += u64::from(passed.came);
            flow.consumed += u64::from(passed.consumed);
            flow.dead_lettered += u64::from(passed.dead_lettered);
            flow.expired += u64::from(passed.expired);
            flow.removed += u64::from(passed.removed);
            flow.redelivered += u64::from(passed.redelivered);
        }
    }
    add_consumers(partition, queue, &mut flow);
    Some(flow)
}

fn add_consumers(partition: &Partition, queue: &Queue, flow: &mut QueueFlow) {
    let consumers = queue.consumers.iter().filter_map(|key| {
        let consumer = partition.leader.delivery.consumers.get(key)?;
        (consumer.mode != ConsumerMode::Browse).then_some((*key, consumer))
    });
    for (key, consumer) in consumers {
        match flow.consumers.len() < QueueFlow::CONSUMERS_MAX {
            true => flow.consumers.push(flow_of_consumer(partition, key, consumer)),
            false => flow.consumers_left_out += 1,
        }
    }
}

fn flow_of_consumer(partition: &Partition, key: ConsumerKey, consumer: &Consumer) -> ConsumerFlow {
    let now_ms = partition.now_ms;
    let explainer = Explainer(partition);
    let notice = explainer.notice_of(key, consumer);
    let mut flow = ConsumerFlow {
        consumer: key,
        name: notice.map(|notice| notice.name.clone()).unwrap_or_default(),
        is_link: notice.is_some_and(|notice| notice.network.is_some()),
        window_ms: 0,
        settled: 0,
        held_ms: 0,
        waiting_ms: 0,
        prefetch: u64::from(consumer.credit) + consumer.held.len() as u64,
    };
    // A consumer of several queues has its credit for all of them.
    let Some(minute) = consumer.pulse.work.as_ref().filter(|_| key.member == 0) else { return flow };
    flow.window_ms = minute.window_ms(now_ms);
    for work in minute.last(now_ms) {
        flow.settled += u64::from(work.settled);
        flow.held_ms += work.held_ms;
        flow.waiting_ms += u64::from(work.waiting_ms);
    }
    let waits_ms = consumer.pulse.waits_since_ms.map_or(0, |since_ms| now_ms.saturating_sub(since_ms));
    flow.waiting_ms = flow.waiting_ms.saturating_add(waits_ms).min(flow.window_ms);
    flow
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_measured_up_to_the_bound_and_give_way_when_they_are_idle() {
        let mut flows = Flows::default();
        let queue = |number: u64| Queue::new(QueueId(number), Destination::queue("q"), 4);
        for number in 0..FLOWS_MAX as u64 + 5 {
            flows.note(&queue(number), 1_000, Passed::comes);
        }
        assert_eq!((flows.measured.len(), flows.turns.len()), (FLOWS_MAX, FLOWS_MAX));
        let last = queue(FLOWS_MAX as u64 + 4);
        assert!(!flows.measured.contains_key(&last.id));
        flows.note(&last, 90_000, Passed::comes);
        assert!(flows.measured.contains_key(&last.id));
        assert_eq!((flows.measured.len(), flows.turns.len()), (FLOWS_MAX, FLOWS_MAX));
    }

    #[test]
    fn a_minute_has_what_happened_in_its_slots() {
        for (name, at, now_ms, want, window_ms) in [
            ("all of it", &[1_000, 9_999, 10_000, 59_999][..], 59_999, 4, 58_999),
            ("the first slot is over", &[1_000, 9_999, 10_000, 59_999], 60_000, 2, 50_000),
            ("a pause of some slots", &[1_000, 35_000], 65_000, 1, 55_000),
            ("a pause of a minute and more", &[1_000, 200_000], 200_000, 1, 50_000),
            ("nothing since", &[1_000, 20_000], 500_000, 0, 50_000),
        ] {
            let mut minute = Minute::<u32>::begin(1_000);
            at.iter().for_each(|at| *minute.at(*at) += 1);
            assert_eq!(minute.last(now_ms).sum::<u32>(), want, "case: {name}");
            assert_eq!(minute.window_ms(now_ms), window_ms, "case: {name}");
        }
    }

    #[test]
    fn waiting_counts_in_the_slots_in_which_it_was() {
        let mut pulse = Pulse::default();
        pulse.waits(5_000);
        pulse.stops_waiting(25_000);
        pulse.settles(5_000, 25_000);
        let minute = pulse.work.as_ref().unwrap();
        let waiting = |now_ms| minute.last(now_ms).map(|work| work.waiting_ms).sum::<u32>();
        assert_eq!((waiting(25_000), waiting(60_000), waiting(70_000)), (20_000, 15_000, 5_000));
        assert_eq!(minute.last(25_000).map(|work| work.held_ms).sum::<u64>(), 20_000);
    }
}
