//! Credit: a Postroad at the other end of a link asks how many messages of a queue consumers here
//! would take at once.
//!
//! ```text
//!   peer: ControlCommand "postroad credit queue://NAME\nSELECTOR" ──▶ IntegerResponse
//! ```
//! The answer is half of the credit, so that two peers which ask at the same time do not both send
//! all of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use postroad_model::{
    Ask, ConsumerMode, ConsumerRow, Destination, DestinationKind, Event, Order, Page, Parting, Question,
    Refusal, Row, Ticket,
};

use super::replies::Then;
use super::spreading::Spreading;
use super::{Done, OpenWireSession, Turn};
use crate::codec::{ControlCommand, IntegerResponse};
use crate::network::{CreditQuestion, FORWARDER_NUMBER};

/// Prefix of a question.
const QUESTION: &str = "postroad credit ";

/// Consumers at brokers behind this one count, too.
const ONWARD: &str = "onward ";

/// Rows of the consumers of one queue that are counted.
const ROWS_MAX: u32 = Ask::ROWS_MAX;

/// Questions of the peer that the core has not answered.
#[derive(Default)]
pub struct CreditAsks(BTreeMap<Ticket, Counting>);

struct Counting {
    /// The command of the peer.
    request: i32,
    selector: Arc<str>,
    onward: bool,
    credit: u32,
}

impl OpenWireSession {
    /// Answers a question of the peer once the core has counted its consumers; any other text has
    /// no meaning for this broker.
    pub(super) fn control(&mut self, info: &ControlCommand, turn: &mut Turn<'_>) -> Done {
        let text = info.command.as_ref().map(|text| text.to_str()).unwrap_or_default();
        if let Some(clients) = Spreading::read_report(&text) {
            self.network.peer_has_clients(clients);
            return Done::Now;
        }
        let question = text.strip_prefix(QUESTION).filter(|_| self.network.linked().is_some());
        let Some(question) = question else { return Done::Now };
        let (onward, question) = match question.strip_prefix(ONWARD) {
            Some(rest) => (true, rest),
            None => (false, question),
        };
        let (queue, selector) = question.split_once('\n').unwrap_or((question, ""));
        let Some(queue) = queue.strip_prefix("queue://") else { return Done::Now };
        let of = Some(Destination::queue(queue));
        let ticket = self.wait(1, None, Then::Credit);
        let counting = Counting { request: info.command_id, selector: selector.into(), onward, credit: 0 };
        self.network.asks.0.insert(ticket, counting);
        let (question, order) = (Question::Consumers { of }, Order::default());
        let ask = Ask { question, after: None, rows: ROWS_MAX, order };
        turn.events.push(Event::Ask { ask: Arc::new(ask), connection: self.id, ticket });
        Done::Later(ticket)
    }

    /// The consumers of one partition.
    pub(super) fn add_consumers(&mut self, ticket: Ticket, page: &Page) {
        let own = self.id;
        let Some(counting) = self.network.asks.0.get_mut(&ticket) else { return };
        let counts = |row: &&ConsumerRow| {
            let is_link = row.consumer.number & FORWARDER_NUMBER != 0;
            let may_take = if is_link { counting.onward && row.consumer.connection != own } else { true };
            may_take && row.mode != ConsumerMode::Browse && (is_link || row.selector == counting.selector)
        };
        let rows = page.rows.iter().filter_map(|row| match row {
            Row::Consumer(row) if row.destination.kind == DestinationKind::Queue => Some(row),
            _ => None,
        });
        let credit: u32 = rows.filter(counts).fold(0, |all, row| all.saturating_add(row.credit));
        counting.credit = counting.credit.saturating_add(credit);
    }

    /// The core has counted all consumers.
    pub(super) fn credit_counted(&mut self, ticket: Ticket, refusal: Option<&Refusal>, turn: &mut Turn<'_>) {
        let Some(Counting { request, credit, .. }) = self.network.asks.0.remove(&ticket) else { return };
        let credit = if refusal.is_none() { credit.div_ceil(2) } else { 0 };
        let result = i32::try_from(credit).unwrap_or(i32::MAX);
        let response = IntegerResponse { correlation_id: request, result, ..IntegerResponse::default() };
        self.send(response.into(), turn);
    }

    /// Asks the peer as far as a question is due.
    pub(super) fn ask_credit(&mut self, turn: &mut Turn<'_>) {
        while let Some(question) = self.network.question(turn.now.ticks_ms) {
            let CreditQuestion { source, selector, onward, .. } = &question;
            let onward = if *onward { ONWARD } else { "" };
            let text = format!("{QUESTION}{onward}queue://{}\n{selector}", source.name);
            let command = Some(text.as_str().into());
            let command = ControlCommand { command, response_required: true, ..ControlCommand::default() };
            self.send(command.into(), turn);
            self.network.asked(self.next_command_id, &question);
        }
    }

    /// The peer has answered.
    pub(super) fn credit_answered(
        &mut self,
        answer: &IntegerResponse,
        turn: &mut Turn<'_>,
    ) -> Result<(), Parting> {
        let credit = u32::try_from(answer.result).unwrap_or(0);
        self.network.credit(answer.correlation_id, credit, turn.now.ticks_ms, turn.events);
        Ok(())
    }
}
