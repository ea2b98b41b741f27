//! Spans: the parts of a trace that go to a collector of OpenTelemetry.
//!
//! One span for the way of a message into the broker, and one for each delivery. Names and
//! attributes are those of the semantic conventions for messaging; the stages are attributes of
//! their own, `postroad.stage.<name>_us`.

use postroad_model::{DestinationKind, Outcome, SettleCause};

use crate::point::TraceTime;
use crate::report::{Rows, cause_text, outcome_text};
use crate::table::{Leg, Trace};

/// One span.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Its trace.
    pub trace_id: u128,
    /// Itself.
    pub span_id: u64,
    /// The span that it is part of.
    pub parent_id: Option<u64>,
    /// The sender's `tracestate`.
    pub state: Option<Box<str>>,
    /// Its name.
    pub name: String,
    /// Whether it is the way in; otherwise it is a delivery.
    pub is_intake: bool,
    /// Its begin, in microseconds since 1970.
    pub began_us: u64,
    /// Its end.
    pub ended_us: u64,
    /// Its attributes.
    pub attributes: Vec<(String, Attribute)>,
    /// The failure, if it is one.
    pub failure: Option<&'static str>,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    /// Text.
    Text(String),
    /// A number.
    Number(u64),
}

impl Trace {
    /// The way into the broker, which is over.
    pub(crate) fn intake_span(&self, replicated: bool, ended: TraceTime) -> Span {
        let mut rows = Rows::new(self.begun.read_at, ended);
        self.intake(replicated, &mut rows);
        let mut span = self.span("publish", self.begun.span_id, (self.begun.read_at, ended), &rows);
        span.is_intake = true;
        span.parent_id = self.begun.parent_id;
        span.attributes.push(("messaging.operation.type".to_owned(), Attribute::Text("send".to_owned())));
        span
    }

    /// A delivery of this leg that is over, by its place; without any, the time in the queue.
    pub(crate) fn delivery_span(&self, leg: &Leg, place: usize, ended: TraceTime) -> Span {
        let mut rows = Rows::new(self.begun.read_at, ended);
        let attempt = leg.attempts.get(place);
        let before = place.checked_sub(1).and_then(|before| leg.attempts.get(before));
        let began = before.map_or(leg.ready, |before| before.settled.map_or(before.delivered, |(at, _)| at));
        match before {
            None => leg.credit(&mut rows),
            Some(_) => rows.redelivery(leg, began, attempt.map(|attempt| attempt.delivered)),
        }
        if let Some(attempt) = attempt {
            leg.attempt(attempt, None, &mut rows);
        }
        let number =
            leg.entry.1.0 ^ leg.entry.2.0.rotate_left(17) ^ (leg.attempts_left_out + place as u64) << 56;
        let mut span = self.span("deliver", mixed(self.begun.span_id, number), (began, ended), &rows);
        span.parent_id = Some(self.begun.span_id);
        let mut add = |name: &str, value: Attribute| span.attributes.push((name.to_owned(), value));
        add("postroad.queue", Attribute::Text(leg.queue.name.to_string()));
        let deliveries = leg.attempts_left_out + place as u64 + u64::from(attempt.is_some());
        add("postroad.deliveries", Attribute::Number(deliveries));
        let settled = attempt.and_then(|attempt| attempt.settled).map(|(_, outcome)| outcome);
        let text = match (settled, leg.ended) {
            (Some(outcome), _) => outcome_text(outcome),
            (None, Some((_, cause))) => cause_text(cause),
            (None, None) => "not settled",
        };
        add("postroad.settlement", Attribute::Text(text.to_owned()));
        let is_done = match (settled, leg.ended) {
            (Some(outcome), _) => outcome == Outcome::Accepted,
            (None, ended) => ended.is_some_and(|(_, cause)| cause == SettleCause::Consumed),
        };
        span.failure = (!is_done).then_some(text);
        span
    }

    fn span(
        &self,
        operation: &str,
        span_id: u64,
        (began, ended): (TraceTime, TraceTime),
        rows: &Rows,
    ) -> Span {
        let begun = &self.begun;
        let wall = |at: TraceTime| begun.read_wall_us.saturating_add(at.since(begun.read_at));
        let text = |name: &str, text: &str| (name.to_owned(), Attribute::Text(text.to_owned()));
        let kind = match begun.destination.kind {
            DestinationKind::Queue => "queue",
            DestinationKind::Topic => "topic",
        };
        let mut attributes = vec![
            text("messaging.system", "postroad"),
            text("messaging.operation.name", operation),
            text("messaging.destination.name", &begun.destination.name),
            text("postroad.destination.kind", kind),
            ("messaging.message.envelope.size".to_owned(), Attribute::Number(begun.bytes)),
        ];
        if !begun.message_id.is_empty() {
            attributes.push(text("messaging.message.id", &begun.message_id));
        }
        attributes.extend(rows.stages.iter().filter(|stage| !stage.is_open).map(|stage| {
            (format!("postroad.stage.{}_us", stage.kind.name()), Attribute::Number(stage.micros))
        }));
        Span {
            trace_id: begun.trace_id,
            span_id,
            parent_id: None,
            state: begun.state.clone(),
            name: format!("{operation} {}", begun.destination.name),
            is_intake: false,
            began_us: wall(began),
            ended_us: wall(ended),
            attributes,
            failure: None,
        }
    }
}

/// Another id for each number, never zero (the finaliser of MurmurHash3).
fn mixed(id: u64, number: u64) -> u64 {
    let mut mixed = id ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed = (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (mixed ^ mixed >> 33).max(1)
}
