//! The tracer of a core: reads trace contexts, has messages traced, and adds the time to each of
//! their steps.
//!
//! A core gathers points in a buffer of its own, and only tries the lock of the shared table: a
//! request that reads the table never holds a message up.
//! Never here: stages and their sums (`postroad_trace`), where traces are shown or sent.

use std::cell::RefCell;
use std::num::NonZeroU64;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use postroad_model::{
    Command, Delivery, Destination, EntryTag, LeaseEvent, Message, PartitionId, Protocol, Publish, QueueId,
    Sent, TraceKey, TracedStep,
};
use postroad_replication::WrittenTimes;
use postroad_selector::{Properties, Value};
use postroad_trace::{
    Begun, EntryOf, Point, Report, Sampler, Sampling, Span, TraceContext, TraceTable, TraceTime, What,
};

/// Points of a core that wait for the table. Further ones are dropped, and counted.
const POINTS_MAX: usize = 8192;

/// A message with a longer id is not found by it.
const MESSAGE_ID_BYTES_MAX: usize = 512;

/// The annotation in which messages that came by the API of SQS have their `AWSTraceHeader`.
const SQS_TRACE: &str = "x-opt-sqs-trace";

/// How messages are traced.
#[derive(Clone, Copy, Debug)]
pub struct TraceOptions {
    /// Which ones.
    pub sampling: Sampling,
    /// Messages that are kept to be shown.
    pub kept_max: usize,
    /// The store has replicas.
    pub replicated: bool,
    /// The monotone clock, in microseconds.
    pub now_us: fn() -> u64,
    /// The wall clock, in microseconds since 1970.
    pub wall_us: fn() -> u64,
    /// For the ids of traces and spans: another one in each process.
    pub seed: u64,
    /// Spans are made for a collector.
    pub exports: bool,
}

/// Counts since the start; they only rise, but for `kept`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TraceCounts {
    /// Messages that were traced.
    pub traced: u64,
    /// Messages that were to be traced, and were not for the sake of the rate.
    pub over_rate: u64,
    /// Contexts that could not be read.
    pub malformed: u64,
    /// Steps that were dropped, as the buffer of their core was full.
    pub dropped_points: u64,
    /// Messages that left the table while a queue still had them.
    pub left_early: u64,
    /// Spans that the collector has taken.
    pub exported_spans: u64,
    /// Spans that the collector did not get.
    pub lost_spans: u64,
    /// Messages in the table.
    pub kept: u64,
}

/// The traced messages of the process.
#[derive(Clone)]
pub struct TraceBook(Arc<Shared>);

struct Shared {
    options: TraceOptions,
    table: Mutex<TraceTable>,
    traced: AtomicU64,
    over_rate: AtomicU64,
    malformed: AtomicU64,
    dropped_points: AtomicU64,
    exported: AtomicU64,
    lost: AtomicU64,
}

impl TraceBook {
    /// A book without messages.
    pub fn new(options: TraceOptions) -> TraceBook {
        TraceBook(Arc::new(Shared {
            options,
            table: Mutex::new(match options.exports {
                true => TraceTable::new(options.kept_max).with_spans(options.replicated),
                false => TraceTable::new(options.kept_max),
            }),
            traced: AtomicU64::new(0),
            over_rate: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
            dropped_points: AtomicU64::new(0),
            exported: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }))
    }

    /// The tracer of one of these cores.
    pub fn tracer(&self, core: u16, cores: u16) -> Tracer {
        let Sampling { ratio, per_second } = self.0.options.sampling;
        let share = (per_second / u32::from(cores.max(1))).max(1).min(per_second);
        // Seeds of neighbours must not give the same numbers a step later.
        let seed = self.0.options.seed ^ (u64::from(core) + 1).wrapping_mul(0xd6e8_feb8_6659_fd93);
        Tracer {
            book: self.clone(),
            sampler: Sampler::new(Sampling { ratio, per_second: share }, seed),
            core,
            next: 1,
            points: Vec::new(),
        }
    }

    /// Where the last message of this id spent its time.
    pub fn report(&self, message_id: &str) -> Option<Report> {
        let now = TraceTime((self.0.options.now_us)());
        self.0.table.lock().ok()?.report(message_id, self.0.options.replicated, now)
    }

    /// As [`TraceBook::report`], of the message that is or was this entry of a queue.
    pub fn report_of_entry(&self, entry: (QueueId, EntryTag)) -> Option<Report> {
        let now = TraceTime((self.0.options.now_us)());
        self.0.table.lock().ok()?.report_of_entry(entry, self.0.options.replicated, now)
    }

    /// Takes the oldest spans for a collector, at most this number.
    pub fn take_spans(&self, count_max: usize) -> Vec<Span> {
        self.0.table.lock().map_or_else(|_| Vec::new(), |mut table| table.take_spans(count_max))
    }

    /// A collector has these spans, or will not get them.
    pub fn note_exported(&self, spans: u64, succeeded: bool) {
        let count = if succeeded { &self.0.exported } else { &self.0.lost };
        count.fetch_add(spans, Ordering::Relaxed);
    }

    /// See [`TraceCounts`].
    pub fn counts(&self) -> TraceCounts {
        let (kept, left_early, dropped) = match self.0.table.lock() {
            Ok(table) => (table.len(), table.left_early(), table.dropped_spans()),
            Err(_) => (0, 0, 0),
        };
        TraceCounts {
            traced: self.0.traced.load(Ordering::Relaxed),
            over_rate: self.0.over_rate.load(Ordering::Relaxed),
            malformed: self.0.malformed.load(Ordering::Relaxed),
            dropped_points: self.0.dropped_points.load(Ordering::Relaxed),
            left_early,
            exported_spans: self.0.exported.load(Ordering::Relaxed),
            lost_spans: dropped + self.0.lost.load(Ordering::Relaxed),
            kept: kept as u64,
        }
    }
}

/// A traced delivery on its way to its socket.
#[derive(Clone, Copy, Debug)]
pub struct Traced {
    trace: TraceKey,
    entry: EntryOf,
}

impl Traced {
    /// What is to be reported once the delivery has left; `None` if it is not traced.
    pub fn of(delivery: &Delivery) -> Option<Traced> {
        let (partition, queue) = delivery.queue;
        Some(Traced { trace: delivery.trace?, entry: (partition, queue, delivery.tag) })
    }
}

/// The tracer of a core, as its connections share it.
pub type SharedTracer = Rc<RefCell<Tracer>>;

/// See the head of this file.
pub struct Tracer {
    book: TraceBook,
    sampler: Sampler,
    core: u16,
    next: u64,
    points: Vec<Point>,
}

impl Tracer {
    /// The time now.
    pub fn now(&self) -> TraceTime {
        TraceTime((self.book.0.options.now_us)())
    }

    /// A message is on its way to its partition. `read_at` is when it was read from its socket.
    pub(crate) fn route(&mut self, publish: &mut Publish, read_at: Option<TraceTime>) {
        if !publish.is_notice {
            let in_transaction = publish.transaction.is_some();
            let Sent { to, message, .. } = &mut publish.sent;
            self.begin(message, to, in_transaction, read_at);
        }
    }

    /// Messages of a post are on their way to their partition.
    pub(crate) fn route_post(&mut self, event: &mut LeaseEvent, read_at: Option<TraceTime>) {
        let LeaseEvent::Post(post) = event else { return };
        for message in &mut post.messages {
            self.begin(message, &post.to, false, read_at);
        }
    }

    fn begin(
        &mut self,
        message: &mut Message,
        to: &Destination,
        in_transaction: bool,
        read_at: Option<TraceTime>,
    ) {
        if message.trace().is_some() {
            return;
        }
        let (context, now) = (self.context_of(message), self.now());
        match self.sampler.judge(context.as_ref(), now) {
            postroad_trace::Verdict::Traced => {}
            postroad_trace::Verdict::NotAsked => return,
            postroad_trace::Verdict::OverRate => {
                self.book.0.over_rate.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        let Some(number) = NonZeroU64::new(u64::from(self.core) << 48 | self.next) else { return };
        self.next += 1;
        self.book.0.traced.fetch_add(1, Ordering::Relaxed);
        let trace = TraceKey(number);
        let read_at = read_at.unwrap_or(now);
        let wall_us = (self.book.0.options.wall_us)();
        let mut own_id = || u128::from(self.sampler.id()) << 64 | u128::from(self.sampler.id());
        let (trace_id, parent_id, state) = match context {
            Some(context) => (context.trace_id, Some(context.parent_id), context.state),
            None => (own_id(), None, None),
        };
        let begun = Begun {
            read_at,
            read_wall_us: wall_us.saturating_sub(now.since(read_at)),
            trace_id,
            parent_id,
            state,
            span_id: self.sampler.id(),
            message_id: message_id_of(message),
            destination: to.clone(),
            bytes: message.size(),
            in_transaction,
        };
        self.push(Point { trace, at: now, what: What::Begun(Box::new(begun)) });
        *message = message.clone().with_trace(Some(trace));
    }

    /// A step of this message happens now.
    fn note(&mut self, trace: TraceKey, what: What) {
        let at = self.now();
        self.push(Point { trace, at, what });
    }

    /// A delivery was written to its socket, or a client inside the process has it.
    pub(crate) fn written(&mut self, delivery: &Traced) {
        self.note(delivery.trace, What::Written(delivery.entry));
    }

    /// A step of a message in this partition.
    pub(crate) fn step(&mut self, partition: PartitionId, TracedStep { trace, step }: TracedStep) {
        self.note(trace, What::Step(partition, step));
    }

    /// A partition takes this message from its inbox.
    pub(crate) fn taken(&mut self, message: &Message) {
        if let Some(trace) = message.trace() {
            self.note(trace, What::Taken);
        }
    }

    /// A partition takes the messages of a post.
    pub(crate) fn taken_post(&mut self, event: &LeaseEvent) {
        if let LeaseEvent::Post(post) = event {
            post.messages.iter().for_each(|message| self.taken(message));
        }
    }

    /// The record of this command is on its way to the log.
    pub(crate) fn proposed(&mut self, command: &Command) {
        for trace in sends_of(command).iter().filter_map(|sent| sent.message.trace()) {
            self.note(trace, What::Proposed);
        }
    }

    /// The record of this command is durable.
    pub(crate) fn committed(&mut self, command: &Command, written: Option<WrittenTimes>) {
        let micros = |WrittenTimes { began_us, ended_us }| (TraceTime(began_us), TraceTime(ended_us));
        for trace in sends_of(command).iter().filter_map(|sent| sent.message.trace()) {
            self.note(trace, What::Committed { written: written.map(micros) });
        }
    }

    fn push(&mut self, point: Point) {
        if POINTS_MAX <= self.points.len() {
            self.book.0.dropped_points.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.points.push(point);
    }

    /// Hands the gathered points to the table; `false` if it is being read at this moment.
    pub(crate) fn flush(&mut self) -> bool {
        if self.points.is_empty() {
            return true;
        }
        match self.book.0.table.try_lock() {
            Ok(mut table) => table.take(self.points.drain(..)),
            Err(std::sync::TryLockError::WouldBlock) => return false,
            Err(std::sync::TryLockError::Poisoned(_)) => self.points.clear(),
        }
        true
    }

    fn context_of(&mut self, message: &Message) -> Option<TraceContext> {
        let context = read_context(message)?;
        if context.is_none() {
            self.book.0.malformed.fetch_add(1, Ordering::Relaxed);
        }
        context
    }
}

/// The messages that a command sends.
fn sends_of(command: &Command) -> &[Sent] {
    match command {
        Command::Enqueue(sent) => std::slice::from_ref(sent),
        Command::Transact(changes) | Command::Prepare { changes, .. } => &changes.sends,
        _ => &[],
    }
}

/// The trace context in a message's properties: `traceparent` and `tracestate`, or the header of
/// AWS X-Ray. `None` if there is none, `Some(None)` if it is malformed.
fn read_context(message: &Message) -> Option<Option<TraceContext>> {
    let Message { bytes, encoding, expires_at_ms, .. } = message;
    match encoding.protocol {
        Protocol::OpenWire => context_in(&postroad_openwire::StoredProperties::of(bytes, encoding.version)),
        Protocol::Amqp => {
            let properties = postroad_amqp::message::StoredProperties::of(bytes, *expires_at_ms);
            let of_sqs = || Some(TraceContext::parse_aws(&properties.annotation(SQS_TRACE)?));
            context_in(&properties).or_else(of_sqs)
        }
    }
}

fn context_in(properties: &impl Properties) -> Option<Option<TraceContext>> {
    if let Some(Value::String(parent)) = properties.property("traceparent") {
        let state = match properties.property("tracestate") {
            Some(Value::String(state)) => Some(state),
            _ => None,
        };
        return Some(TraceContext::parse(&parent, state.as_deref()));
    }
    match properties.property("AWSTraceHeader") {
        Some(Value::String(header)) => Some(TraceContext::parse_aws(&header)),
        _ => None,
    }
}

fn message_id_of(message: &Message) -> Box<str> {
    match crate::translate::properties_of(message).property("JMSMessageID") {
        Some(Value::String(id)) if id.len() <= MESSAGE_ID_BYTES_MAX => id.as_ref().into(),
        _ => "".into(),
    }
}
