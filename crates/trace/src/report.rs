//! Reports: where one message spent its time, stage by stage.
//!
//! ```text
//! read ─socket─► routed ─inbox─► taken ─admission─► proposed ─journal_wait─► first byte ─sync─► synced
//!   ─replica─► committed ─apply─► ready ─credit─► delivered ─dispatch─► written ─client─► settled
//!   ─settle─► gone
//! ```
//! From `ready` on there is a row of stages for each queue, and from `delivered` on for each
//! delivery. A message that is only in memory has nothing between `taken` and `ready`.

use postroad_model::{ConsumerKey, Destination, EntryTag, Outcome, QueueId, SettleCause};

use crate::point::TraceTime;
use crate::table::{Attempt, Leg, Trace, TraceTable};

/// A part of the life of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageKind {
    /// From the read that completed it until it is routed.
    Socket,
    /// In the inbox of its partition, behind earlier events.
    Inbox,
    /// For room in its queue, for its producer's earlier messages, or for its queue to be made.
    Admission,
    /// For the commit of its transaction.
    Transaction,
    /// For the journal, which writes an earlier group.
    JournalWait,
    /// The write and the sync of its group here.
    Sync,
    /// For the other replicas: a majority has it at the end.
    Replica,
    /// For its partition to carry out the record.
    Apply,
    /// In the queue: for its turn, and for a consumer with credit.
    Credit,
    /// From the decision to deliver it until it is written to the consumer's socket.
    Dispatch,
    /// At the client, until it settles it.
    Client,
    /// After a delivery that failed, until the next one.
    Redelivery,
    /// The record of its settlement.
    Settle,
}

impl StageKind {
    /// Its name for operators and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            StageKind::Socket => "socket",
            StageKind::Inbox => "inbox",
            StageKind::Admission => "admission",
            StageKind::Transaction => "transaction",
            StageKind::JournalWait => "journal_wait",
            StageKind::Sync => "sync",
            StageKind::Replica => "replica",
            StageKind::Apply => "apply",
            StageKind::Credit => "credit",
            StageKind::Dispatch => "dispatch",
            StageKind::Client => "client",
            StageKind::Redelivery => "redelivery",
            StageKind::Settle => "settle",
        }
    }
}

/// One stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    /// Which.
    pub kind: StageKind,
    /// The queue, if the stage is of one.
    pub queue: Option<Destination>,
    /// The consumer, if the stage is of one.
    pub consumer: Option<ConsumerKey>,
    /// When it began, in microseconds after the message was read.
    pub offset_us: u64,
    /// How long it took, or has taken until now.
    pub micros: u64,
    /// It goes on.
    pub is_open: bool,
    /// More about it; empty if there is nothing to say.
    pub note: String,
}

/// Where a message spent its time.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Its `JMSMessageID`.
    pub message_id: Box<str>,
    /// Its trace.
    pub trace_id: u128,
    /// The span of its sender, if that has sent a context.
    pub parent_id: Option<u64>,
    /// Where it was sent.
    pub destination: Destination,
    /// Its bytes.
    pub bytes: u64,
    /// When it was read, in microseconds since 1970.
    pub read_wall_us: u64,
    /// From then until it was gone, or until now.
    pub micros: u64,
    /// No queue has it any more.
    pub is_gone: bool,
    /// The stages, in order.
    pub stages: Vec<Stage>,
    /// The longest one, by its place.
    pub longest: Option<usize>,
    /// Reasons why stages are missing; empty if none is.
    pub gaps: Vec<&'static str>,
}

impl TraceTable {
    /// The report of the last message with this id, as of `now`. The store has replicas if it is
    /// said to be `replicated`.
    pub fn report(&self, message_id: &str, replicated: bool, now: TraceTime) -> Option<Report> {
        Some(self.find(message_id)?.report(replicated, now))
    }

    /// As [`TraceTable::report`], of the message that is or was this entry of a queue.
    pub fn report_of_entry(
        &self,
        (queue, tag): (QueueId, EntryTag),
        replicated: bool,
        now: TraceTime,
    ) -> Option<Report> {
        Some(self.find_entry(queue, tag)?.report(replicated, now))
    }
}

impl Trace {
    /// See [`TraceTable::report`].
    pub(crate) fn report(&self, replicated: bool, now: TraceTime) -> Report {
        let mut rows = Rows::new(self.begun.read_at, now);
        self.intake(replicated, &mut rows);
        for leg in &self.legs {
            leg.stages(&mut rows);
        }
        let Rows { stages, .. } = rows;
        let longest = (0..stages.len()).rev().max_by_key(|place| stages[*place].micros);
        let mut gaps = Vec::new();
        if !self.is_followed {
            gaps.push("too many traced messages were in the broker: this one was not followed further");
        }
        if self.legs.iter().any(|leg| 0 < leg.attempts_left_out) {
            gaps.push("of many deliveries on one queue only the first and the last are shown");
        }
        if self.scheduled.is_some() {
            gaps.push("it is scheduled: its delivery is not traced");
        }
        Report {
            message_id: self.begun.message_id.clone(),
            trace_id: self.begun.trace_id,
            parent_id: self.begun.parent_id,
            destination: self.begun.destination.clone(),
            bytes: self.begun.bytes,
            read_wall_us: self.begun.read_wall_us,
            micros: self.ended.unwrap_or(now).since(self.begun.read_at),
            is_gone: self.ended.is_some(),
            stages,
            longest,
            gaps,
        }
    }

    /// The stages until the first queue has it.
    pub(crate) fn intake(&self, replicated: bool, rows: &mut Rows) {
        let ready = self.legs.iter().map(|leg| leg.ready).min();
        // A message that goes to no queue ends here.
        let end = ready.or(self.scheduled).or(self.ended);
        let admission = if self.begun.in_transaction { StageKind::Transaction } else { StageKind::Admission };
        rows.add(StageKind::Socket, Some(self.begun.read_at), Some(self.routed));
        rows.add(StageKind::Inbox, Some(self.routed), self.taken.or(end));
        rows.add(admission, self.taken, self.proposed.or(end));
        let Some(proposed) = self.proposed else { return };
        let Some(committed) = self.committed else {
            return rows.add(StageKind::JournalWait, Some(proposed), None);
        };
        let last = match self.written {
            Some((began, ended)) => {
                rows.add(StageKind::JournalWait, Some(proposed), Some(began));
                rows.add(StageKind::Sync, Some(began), Some(ended));
                ended
            }
            None => {
                rows.add(StageKind::Sync, Some(proposed), Some(committed));
                committed
            }
        };
        let applied = match replicated {
            true => {
                rows.add(StageKind::Replica, Some(last), Some(committed));
                committed
            }
            false => last,
        };
        rows.add(StageKind::Apply, Some(applied), end);
    }
}

impl Leg {
    fn stages(&self, rows: &mut Rows) {
        self.credit(rows);
        for (place, attempt) in self.attempts.iter().enumerate() {
            let next = self.attempts.get(place + 1);
            self.attempt(attempt, next, rows);
        }
        // An entry that left without a consumer's word.
        if let (Some((at, cause)), true) = (self.ended, self.attempts.is_empty()) {
            rows.add(StageKind::Settle, Some(at), Some(at));
            rows.of(self, None, cause_text(cause).to_owned());
        }
    }

    /// The wait in the queue, before the first delivery.
    pub(crate) fn credit(&self, rows: &mut Rows) {
        let first = self.attempts.first().map(|first| first.delivered);
        let ended = self.ended.map(|(at, _)| at);
        rows.add(StageKind::Credit, Some(self.ready), first.or(ended));
        rows.of(self, None, self.note());
    }

    /// The stages of a delivery.
    pub(crate) fn attempt(&self, attempt: &Attempt, next: Option<&Attempt>, rows: &mut Rows) {
        let Attempt { delivered, consumer, is_leased, written, settled } = *attempt;
        let ended = self.ended.map(|(at, _)| at);
        let next_at = next.map(|next| next.delivered);
        let settled_at = settled.map(|(at, _)| at);
        let mut at_client = delivered;
        if !is_leased {
            // A client that settles on its own may be faster than the report of the write.
            let left = written.or(settled_at).or(next_at).or(ended);
            rows.add(StageKind::Dispatch, Some(delivered), left);
            rows.of(self, Some(consumer), String::new());
            let Some(left) = left else { return };
            at_client = left;
        }
        rows.add(StageKind::Client, Some(at_client), settled_at.or(next_at).or(ended));
        let note = match settled {
            Some((_, outcome)) => outcome_text(outcome),
            None if next.is_some() => "not settled, delivered again",
            None => "",
        };
        rows.of(self, Some(consumer), note.to_owned());
        let Some((settled_at, outcome)) = settled else { return };
        let is_last = matches!(outcome, Outcome::Accepted | Outcome::Expired);
        if next.is_some() || !is_last {
            rows.redelivery(self, settled_at, next_at.or(ended));
        } else {
            rows.add(StageKind::Settle, Some(settled_at), ended);
            let note = self.ended.map_or("", |(_, cause)| cause_text(cause));
            rows.of(self, None, note.to_owned());
        }
    }

    fn note(&self) -> String {
        let consumers = match self.consumers {
            0 => "no consumer".to_owned(),
            1 => "1 consumer".to_owned(),
            count => format!("{count} consumers"),
        };
        let messages = if self.ahead == 1 { "message" } else { "messages" };
        format!("{consumers} and {} {messages} ahead when it came", self.ahead)
    }
}

/// Stages that are being gathered.
pub(crate) struct Rows {
    from: TraceTime,
    now: TraceTime,
    pub stages: Vec<Stage>,
}

impl Rows {
    /// None yet. Offsets count from the first time; open stages last until the second.
    pub fn new(from: TraceTime, now: TraceTime) -> Rows {
        Rows { from, now, stages: Vec::new() }
    }

    /// The wait after a delivery that failed.
    pub fn redelivery(&mut self, leg: &Leg, began: TraceTime, ended: Option<TraceTime>) {
        self.add(StageKind::Redelivery, Some(began), ended);
        self.of(leg, None, String::new());
    }

    /// A stage that has begun, and has ended or goes on.
    fn add(&mut self, kind: StageKind, began: Option<TraceTime>, ended: Option<TraceTime>) {
        let Some(began) = began else { return };
        self.stages.push(Stage {
            kind,
            queue: None,
            consumer: None,
            offset_us: began.since(self.from),
            micros: ended.unwrap_or(self.now).since(began),
            is_open: ended.is_none(),
            note: String::new(),
        });
    }

    /// The last stage is of this queue.
    fn of(&mut self, leg: &Leg, consumer: Option<ConsumerKey>, note: String) {
        if let Some(stage) = self.stages.last_mut() {
            (stage.queue, stage.consumer, stage.note) = (Some(leg.queue.clone()), consumer, note);
        }
    }
}

pub(crate) fn outcome_text(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Accepted => "acknowledged",
        Outcome::Expired => "expired at the client",
        Outcome::Rejected => "rejected",
        Outcome::Released { .. } => "released",
        Outcome::Retried => "failed, kept by the client",
    }
}

pub(crate) fn cause_text(cause: SettleCause) -> &'static str {
    match cause {
        SettleCause::Consumed => "consumed",
        SettleCause::Expired => "expired",
        SettleCause::DeadLettered => "moved to the dead letters",
        SettleCause::Dropped => "dropped at the limit of its queue",
        SettleCause::Replaced => "replaced by a newer message of its value",
        SettleCause::Moved => "moved with its queue",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::point::{Begun, Point, What};
    use postroad_model::{ConnectionId, EntryTag, PartitionId, QueueId, TraceKey, TraceStep};
    use std::num::NonZeroU64;

    const PARTITION: PartitionId = PartitionId(0);
    const ENTRY: (QueueId, EntryTag) = (QueueId(3), EntryTag(9));

    fn key(number: u64) -> TraceKey {
        TraceKey(NonZeroU64::new(number).unwrap())
    }

    fn begun(number: u64, in_transaction: bool) -> What {
        What::Begun(Box::new(Begun {
            read_at: TraceTime(100),
            read_wall_us: 5_000_000,
            trace_id: 7,
            parent_id: Some(8),
            state: None,
            span_id: 9,
            message_id: format!("ID:{number}").into(),
            destination: Destination::queue("orders"),
            bytes: 10,
            in_transaction,
        }))
    }

    fn consumer() -> ConsumerKey {
        ConsumerKey::new(ConnectionId::new(0, 1), 1)
    }

    fn step(step: TraceStep) -> What {
        What::Step(PARTITION, step)
    }

    fn ready(consumers: u64) -> What {
        step(TraceStep::Ready { entry: ENTRY, queue: Destination::queue("orders"), ahead: 2, consumers })
    }

    fn delivered(is_leased: bool) -> What {
        step(TraceStep::Delivered { entry: ENTRY, consumer: consumer(), is_leased })
    }

    fn written() -> What {
        What::Written((PARTITION, ENTRY.0, ENTRY.1))
    }

    fn settled(outcome: Outcome) -> What {
        step(TraceStep::Settled { entry: ENTRY, outcome })
    }

    fn ended(cause: SettleCause) -> What {
        step(TraceStep::Ended { entry: ENTRY, cause })
    }

    fn committed(began: u64, ended: u64) -> What {
        What::Committed { written: Some((TraceTime(began), TraceTime(ended))) }
    }

    /// `kind offset+micros`, with `…` if it goes on and `*` for the longest.
    fn told(points: Vec<(u64, What)>, replicated: bool, now: u64) -> String {
        let mut table = TraceTable::new(10);
        table.take(points.into_iter().map(|(at, what)| Point { trace: key(1), at: TraceTime(at), what }));
        let report = table.report("ID:1", replicated, TraceTime(now)).unwrap();
        let rows = report.stages.iter().enumerate().map(|(place, stage)| {
            let open = if stage.is_open { "…" } else { "" };
            let longest = if report.longest == Some(place) { "*" } else { "" };
            format!("{} {}+{}{open}{longest}", stage.kind.name(), stage.offset_us, stage.micros)
        });
        rows.collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn each_stage_begins_where_the_one_before_ended() {
        let intake = || vec![(110, begun(1, false)), (120, What::Taken), (125, What::Proposed)];
        let with = |more: Vec<(u64, What)>| intake().into_iter().chain(more).collect::<Vec<_>>();
        let stored = || with(vec![(160, committed(130, 150)), (160, ready(1))]);
        let and = |more: Vec<(u64, What)>| stored().into_iter().chain(more).collect::<Vec<_>>();
        let before = "socket 0+10, inbox 10+10, admission 20+5, journal_wait 25+5, sync 30+20, apply 50+10";
        for (name, points, replicated, now, want) in [
            ("on its way", vec![(110, begun(1, false))], false, 150, "socket 0+10, inbox 10+40…*".to_owned()),
            (
                "it waits for the commit of its transaction",
                vec![(110, begun(1, true)), (120, What::Taken)],
                false,
                150,
                "socket 0+10, inbox 10+10, transaction 20+30…*".to_owned(),
            ),
            (
                "not durable yet",
                intake(),
                false,
                200,
                "socket 0+10, inbox 10+10, admission 20+5, journal_wait 25+75…*".to_owned(),
            ),
            (
                "only in memory",
                vec![(110, begun(1, false)), (120, What::Taken), (121, ready(0))],
                false,
                200,
                "socket 0+10, inbox 10+10, admission 20+1, credit 21+79…*".to_owned(),
            ),
            (
                "no consumer has credit",
                stored(),
                true,
                1160,
                "socket 0+10, inbox 10+10, admission 20+5, journal_wait 25+5, sync 30+20, replica 50+10, \
                 apply 60+0, credit 60+1000…*"
                    .to_owned(),
            ),
            (
                "its consumer does not read its socket",
                and(vec![(161, delivered(false))]),
                false,
                561,
                format!("{before}, credit 60+1, dispatch 61+400…*"),
            ),
            (
                "a slow client",
                and(vec![
                    (161, delivered(false)),
                    (165, written()),
                    (1000, settled(Outcome::Accepted)),
                    (1010, ended(SettleCause::Consumed)),
                    (1010, step(TraceStep::Gone)),
                ]),
                false,
                9000,
                format!("{before}, credit 60+1, dispatch 61+4, client 65+835*, settle 900+10"),
            ),
            (
                "a client that has it as the answer to a request",
                and(vec![(161, delivered(true))]),
                false,
                561,
                format!("{before}, credit 60+1, client 61+400…*"),
            ),
            (
                "the second delivery succeeds",
                and(vec![
                    (161, delivered(false)),
                    (165, written()),
                    (170, settled(Outcome::Released { failed: true })),
                    (1170, delivered(false)),
                    (1175, written()),
                    (1180, settled(Outcome::Accepted)),
                    (1190, ended(SettleCause::Consumed)),
                ]),
                false,
                9000,
                format!(
                    "{before}, credit 60+1, dispatch 61+4, client 65+5, redelivery 70+1000*, \
                     dispatch 1070+5, client 1075+5, settle 1080+10"
                ),
            ),
            (
                "a connection ends before its client settles",
                and(vec![(161, delivered(false)), (165, written()), (265, delivered(false))]),
                false,
                265,
                format!("{before}, credit 60+1, dispatch 61+4, client 65+100*, dispatch 165+0…"),
            ),
            (
                "expired in its queue",
                and(vec![(900, ended(SettleCause::Expired))]),
                false,
                9000,
                format!("{before}, credit 60+740*, settle 800+0"),
            ),
            (
                "a topic without subscriptions",
                with(vec![(160, committed(130, 150)), (161, step(TraceStep::Gone))]),
                false,
                9000,
                "socket 0+10, inbox 10+10, admission 20+5, journal_wait 25+5, sync 30+20*, apply 50+11"
                    .to_owned(),
            ),
        ] {
            assert_eq!(told(points, replicated, now), want, "case: {name}");
        }
    }

    #[test]
    fn the_table_keeps_the_number_it_may_and_first_forgets_what_has_gone() {
        let mut table = TraceTable::new(3);
        let mut take = |number: u64, what: What| {
            table.take([Point { trace: key(number), at: TraceTime(number), what }]);
            let kept = (1..9).filter(|number| table.find(&format!("ID:{number}")).is_some());
            (kept.collect::<Vec<_>>(), table.len(), table.left_early())
        };
        for number in 1..=3 {
            take(number, begun(number, false));
        }
        take(2, What::Taken);
        assert_eq!(take(2, step(TraceStep::Gone)), (vec![1, 2, 3], 3, 0), "the last that has gone is kept");
        assert_eq!(take(4, begun(4, false)), (vec![1, 3, 4], 3, 0), "what has gone makes room");
        assert_eq!(take(5, begun(5, false)), (vec![3, 4, 5], 3, 1), "then the oldest");
        assert_eq!(take(1, written()), (vec![3, 4, 5], 3, 1), "late points are dropped");
    }

    #[test]
    fn each_part_that_is_over_becomes_a_span() {
        let mut table = TraceTable::new(10).with_spans(false);
        let points = [
            (110, begun(1, false)),
            (120, What::Taken),
            (125, What::Proposed),
            (160, committed(130, 150)),
            (160, ready(1)),
            (161, delivered(false)),
            (165, written()),
            (170, settled(Outcome::Released { failed: true })),
            (1170, delivered(false)),
            (1175, written()),
            (1180, settled(Outcome::Accepted)),
            (1190, ended(SettleCause::Consumed)),
            (1190, step(TraceStep::Gone)),
        ];
        table.take(points.into_iter().map(|(at, what)| Point { trace: key(1), at: TraceTime(at), what }));
        let spans = table.take_spans(9);
        let told = spans.iter().map(|span| {
            let (began, took) = (span.began_us - 5_000_000, span.ended_us - span.began_us);
            format!("{} {began}+{took} {}", span.name, span.failure.unwrap_or("ok"))
        });
        let want = ["publish orders 0+60 ok", "deliver orders 60+10 released", "deliver orders 70+1020 ok"];
        assert_eq!(told.collect::<Vec<_>>(), want);
        let parents: Vec<_> = spans.iter().map(|span| span.parent_id).collect();
        assert_eq!(parents, [Some(8), Some(9), Some(9)], "the sender's, then that of the way in");
        assert_eq!((spans[0].span_id, spans[1].span_id == spans[2].span_id), (9, false));
        let stages = |place: usize| {
            let names =
                spans[place].attributes.iter().filter_map(|(name, _)| name.strip_prefix("postroad.stage."));
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(stages(0), "socket_us inbox_us admission_us journal_wait_us sync_us apply_us");
        assert_eq!(stages(1), "credit_us dispatch_us client_us");
        assert_eq!(stages(2), "redelivery_us dispatch_us client_us settle_us");
    }

    #[test]
    fn spans_that_have_no_room_are_dropped_and_counted() {
        let mut table = TraceTable::new(10).with_spans(false);
        for number in 1..=crate::SPANS_MAX as u64 + 2 {
            let points = [begun(number, false), ready(1)];
            table.take(points.map(|what| Point { trace: key(number), at: TraceTime(number), what }));
        }
        assert_eq!((table.dropped_spans(), table.take_spans(usize::MAX).len()), (2, crate::SPANS_MAX));
        assert!(table.take_spans(1).is_empty());
    }

    #[test]
    fn queues_and_deliveries_of_one_message_are_bounded() {
        let mut table = TraceTable::new(1);
        let mut take = |at: u64, what: What| table.take([Point { trace: key(1), at: TraceTime(at), what }]);
        take(110, begun(1, false));
        for number in 0..20 {
            let (entry, queue) = ((QueueId(number), EntryTag(1)), Destination::queue("orders"));
            take(120, step(TraceStep::Ready { entry, queue, ahead: 0, consumers: 1 }));
            for at in 0..10 {
                let delivered = TraceStep::Delivered { entry, consumer: consumer(), is_leased: false };
                take(200 + at, step(delivered));
            }
        }
        let trace = table.find("ID:1").unwrap();
        let attempts: Vec<_> =
            trace.legs.iter().map(|leg| (leg.attempts.len(), leg.attempts_left_out)).collect();
        assert_eq!(attempts, vec![(4, 6); 8]);
        let last = trace.legs[0].attempts.last().map(|attempt| attempt.delivered);
        assert_eq!(last, Some(TraceTime(209)), "the last is kept");
    }

    #[test]
    fn a_message_ends_when_each_partition_that_has_it_is_done_with_it() {
        let mut table = TraceTable::new(1);
        let mut is_gone = |what: What| {
            table.take([Point { trace: key(1), at: TraceTime(200), what }]);
            table.report("ID:1", false, TraceTime(200)).is_some_and(|report| report.is_gone)
        };
        assert!(!is_gone(begun(1, false)));
        assert!(!is_gone(What::Taken) && !is_gone(What::Taken));
        assert!(!is_gone(step(TraceStep::Gone)));
        assert!(is_gone(step(TraceStep::Gone)));
    }
}
