//! The table of traced messages: those that are still held, and the last that have gone.
//!
//! Bounded: at [`KEPT_MAX`] or the number that was configured the oldest that has gone makes room,
//! and without one the oldest.

use std::collections::{BTreeMap, VecDeque};

use postroad_model::{
    ConsumerKey, Destination, EntryTag, Outcome, QueueId, SettleCause, TraceKey, TraceStep,
};
use rustc_hash::FxHashMap;

use crate::point::{Begun, EntryOf, Point, TraceTime, What};
use crate::span::Span;

/// Messages that a table may keep: some 30 MB, if each has the most queues and deliveries.
pub const KEPT_MAX: usize = 10_000;

/// Queues of one message; the core reports no more of one partition.
const LEGS_MAX: usize = 8;

/// Deliveries of one message on one queue. Of more the last is kept.
const ATTEMPTS_MAX: usize = 4;

/// Spans that wait for the collector: some 6 MB. Further ones are dropped.
pub const SPANS_MAX: usize = 4096;

/// One traced message.
#[derive(Clone, Debug)]
pub(crate) struct Trace {
    pub begun: Begun,
    pub routed: TraceTime,
    pub taken: Option<TraceTime>,
    pub proposed: Option<TraceTime>,
    pub written: Option<(TraceTime, TraceTime)>,
    pub committed: Option<TraceTime>,
    pub scheduled: Option<TraceTime>,
    pub legs: Vec<Leg>,
    pub is_followed: bool,
    /// Partitions that have it and have not reported its end.
    open: i64,
    pub ended: Option<TraceTime>,
    /// The span of its way in was made.
    is_told: bool,
}

/// One queue that has the message.
#[derive(Clone, Debug)]
pub(crate) struct Leg {
    pub entry: EntryOf,
    pub queue: Destination,
    pub ahead: u64,
    pub consumers: u64,
    pub ready: TraceTime,
    pub attempts: Vec<Attempt>,
    /// Deliveries that are not kept.
    pub attempts_left_out: u64,
    pub ended: Option<(TraceTime, SettleCause)>,
    /// Deliveries with a span, or 1 for a message that left without one.
    told: usize,
}

/// One delivery.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    pub delivered: TraceTime,
    pub consumer: ConsumerKey,
    /// A request for messages took it: its client has it with the answer.
    pub is_leased: bool,
    pub written: Option<TraceTime>,
    pub settled: Option<(TraceTime, Outcome)>,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub struct TraceTable {
    kept_max: usize,
    next: u64,
    /// In the order in which they came.
    traces: BTreeMap<u64, (TraceKey, Trace)>,
    by_key: FxHashMap<TraceKey, u64>,
    /// The last message of each id.
    by_id: FxHashMap<Box<str>, u64>,
    /// Those that have gone, in that order.
    gone: VecDeque<u64>,
    left_early: u64,
    exports: Option<Exports>,
}

/// Spans on their way to a collector.
#[derive(Debug)]
struct Exports {
    replicated: bool,
    spans: VecDeque<Span>,
    dropped: u64,
}

impl Exports {
    fn add(&mut self, span: Span) {
        if SPANS_MAX <= self.spans.len() {
            self.dropped += 1;
            return;
        }
        self.spans.push_back(span);
    }
}

impl TraceTable {
    /// A table of this number of messages, or of [`KEPT_MAX`] if that is less.
    pub fn new(kept_max: usize) -> TraceTable {
        TraceTable { kept_max: kept_max.clamp(1, KEPT_MAX), ..TraceTable::default() }
    }

    /// The same table, which also makes spans for a collector.
    #[must_use]
    pub fn with_spans(mut self, replicated: bool) -> TraceTable {
        self.exports = Some(Exports { replicated, spans: VecDeque::new(), dropped: 0 });
        self
    }

    /// Takes the oldest spans that are ready, at most this number.
    pub fn take_spans(&mut self, count_max: usize) -> Vec<Span> {
        let Some(exports) = &mut self.exports else { return Vec::new() };
        let count = exports.spans.len().min(count_max);
        exports.spans.drain(..count).collect()
    }

    /// Spans that were dropped, as too many waited for the collector.
    pub fn dropped_spans(&self) -> u64 {
        self.exports.as_ref().map_or(0, |exports| exports.dropped)
    }

    /// Notes points. Those of a message come in the order of their times, but for those of other
    /// threads.
    pub fn take(&mut self, points: impl IntoIterator<Item = Point>) {
        for Point { trace, at, what } in points {
            match what {
                What::Begun(begun) => self.begin(trace, *begun, at),
                what => self.note(trace, at, what),
            }
        }
    }

    /// Messages in the table.
    pub fn len(&self) -> usize {
        self.traces.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.traces.is_empty()
    }

    /// Messages that made room while a queue still had them.
    pub fn left_early(&self) -> u64 {
        self.left_early
    }

    pub(crate) fn find(&self, message_id: &str) -> Option<&Trace> {
        let (_, trace) = self.traces.get(self.by_id.get(message_id)?)?;
        Some(trace)
    }

    /// The last message that was this entry of a queue. Looks at all messages.
    pub(crate) fn find_entry(&self, queue: QueueId, tag: EntryTag) -> Option<&Trace> {
        let is_it = |leg: &Leg| (leg.entry.1, leg.entry.2) == (queue, tag);
        self.traces.values().rev().map(|(_, trace)| trace).find(|trace| trace.legs.iter().any(is_it))
    }

    fn begin(&mut self, key: TraceKey, begun: Begun, at: TraceTime) {
        while self.kept_max <= self.traces.len() {
            let oldest = || self.traces.first_key_value().map(|(number, _)| *number);
            let Some(number) = self.gone.pop_front().or_else(oldest) else { break };
            self.forget(number);
        }
        let number = self.next;
        self.next += 1;
        if !begun.message_id.is_empty() {
            self.by_id.insert(begun.message_id.clone(), number);
        }
        self.by_key.insert(key, number);
        let trace = Trace {
            begun,
            routed: at,
            taken: None,
            proposed: None,
            written: None,
            committed: None,
            scheduled: None,
            legs: Vec::new(),
            is_followed: true,
            open: 0,
            ended: None,
            is_told: false,
        };
        self.traces.insert(number, (key, trace));
    }

    fn forget(&mut self, number: u64) {
        let Some((key, trace)) = self.traces.remove(&number) else { return };
        self.by_key.remove(&key);
        if self.by_id.get(&trace.begun.message_id) == Some(&number) {
            self.by_id.remove(&trace.begun.message_id);
        }
        self.left_early += u64::from(trace.ended.is_none());
    }

    fn note(&mut self, key: TraceKey, at: TraceTime, what: What) {
        let Some(number) = self.by_key.get(&key).copied() else { return };
        let Some((_, trace)) = self.traces.get_mut(&number) else { return };
        let had_ended = trace.ended.is_some();
        trace.note(at, what);
        if let Some(exports) = &mut self.exports {
            trace.make_spans(exports);
        }
        if trace.ended.is_some() && !had_ended {
            self.gone.push_back(number);
        }
    }
}

impl Trace {
    fn note(&mut self, at: TraceTime, what: What) {
        match what {
            What::Begun(_) => {}
            What::Taken => {
                self.taken.get_or_insert(at);
                self.open += 1;
            }
            What::Proposed => {
                self.proposed.get_or_insert(at);
            }
            What::Committed { written } => {
                self.committed = Some(at);
                self.written = written.or(self.written);
            }
            What::Step(partition, step) => self.step(at, partition, step),
            What::Written(entry) => {
                let attempt = self.leg(entry).and_then(|leg| leg.attempts.last_mut());
                if let Some(attempt) = attempt.filter(|attempt| attempt.written.is_none()) {
                    attempt.written = Some(at);
                }
            }
        }
    }

    fn step(&mut self, at: TraceTime, partition: postroad_model::PartitionId, step: TraceStep) {
        let of = |(queue, tag)| (partition, queue, tag);
        match step {
            TraceStep::Ready { entry, queue, ahead, consumers } => {
                if self.legs.len() < LEGS_MAX {
                    let (attempts, attempts_left_out, ended) = (Vec::new(), 0, None);
                    let (entry, ready) = (of(entry), at);
                    self.legs.push(Leg {
                        entry,
                        queue,
                        ahead,
                        consumers,
                        ready,
                        attempts,
                        attempts_left_out,
                        ended,
                        told: 0,
                    });
                }
            }
            TraceStep::Delivered { entry, consumer, is_leased } => {
                let Some(leg) = self.leg(of(entry)) else { return };
                if ATTEMPTS_MAX <= leg.attempts.len() {
                    leg.attempts.pop();
                    leg.attempts_left_out += 1;
                    leg.told = leg.told.min(leg.attempts.len());
                }
                leg.attempts.push(Attempt {
                    delivered: at,
                    consumer,
                    is_leased,
                    written: None,
                    settled: None,
                });
            }
            TraceStep::Settled { entry, outcome } => {
                let attempt = self.leg(of(entry)).and_then(|leg| leg.attempts.last_mut());
                if let Some(attempt) = attempt.filter(|attempt| attempt.settled.is_none()) {
                    attempt.settled = Some((at, outcome));
                }
            }
            TraceStep::Ended { entry, cause } => {
                if let Some(leg) = self.leg(of(entry)) {
                    leg.ended = Some((at, cause));
                }
            }
            TraceStep::Scheduled => {
                self.scheduled = Some(at);
                self.close(at);
            }
            TraceStep::NotFollowed => {
                self.is_followed = false;
                self.close(at);
            }
            TraceStep::Gone => self.close(at),
        }
    }

    fn close(&mut self, at: TraceTime) {
        self.open -= 1;
        if self.open <= 0 {
            self.ended = Some(at);
        }
    }

    /// Makes the spans of the parts that are over.
    fn make_spans(&mut self, exports: &mut Exports) {
        let ready = self.legs.iter().map(|leg| leg.ready).min();
        if let (false, Some(end)) = (self.is_told, ready.or(self.ended)) {
            self.is_told = true;
            exports.add(self.intake_span(exports.replicated, end));
        }
        for number in 0..self.legs.len() {
            while let Some(end) = self.legs[number].next_end() {
                let leg = &self.legs[number];
                exports.add(self.delivery_span(leg, leg.told, end));
                self.legs[number].told += 1;
            }
        }
    }

    fn leg(&mut self, entry: EntryOf) -> Option<&mut Leg> {
        self.legs.iter_mut().find(|leg| leg.entry == entry)
    }
}

impl Leg {
    /// When the next part without a span was over, if it is.
    fn next_end(&self) -> Option<TraceTime> {
        let ended = self.ended.map(|(at, _)| at);
        let Some(attempt) = self.attempts.get(self.told) else {
            return ended.filter(|_| self.attempts.is_empty() && self.told == 0);
        };
        let next = self.attempts.get(self.told + 1).map(|next| next.delivered);
        let settled = attempt.settled.map(|(at, _)| at);
        match attempt.settled {
            Some((at, Outcome::Rejected | Outcome::Released { .. })) => Some(at),
            _ if next.is_some() => settled.or(next),
            _ => ended,
        }
    }
}
