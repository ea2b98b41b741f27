//! Sends `failover:` clients the list of brokers that they may use, and moves some of them between
//! transactions.

use std::sync::Arc;

use postroad_model::Deadline;

use super::{OpenWireSession, Turn};
use crate::codec::{Command, ConnectionControl, ControlCommand};
use crate::spread::{ClientSpread, CountedClient};

/// Interval in which brokers report their number of clients.
const REPORT_EVERY_MS: u64 = 2000;

/// A client that was asked to move is not asked again for this time.
const MOVED_PAUSE_MS: u64 = 10_000;

/// Prefix of a broker's report.
const REPORT: &str = "postroad clients ";

/// A client of a session, as far as it can move; or a broker, to which the number of clients is
/// reported.
#[derive(Debug)]
pub struct Spreading {
    spread: Arc<ClientSpread>,
    /// The client reconnects by itself.
    is_failover: bool,
    counted: Option<CountedClient>,
    /// The version of the list that it has.
    told: u64,
    /// When it was last asked to move.
    moved_ms: Deadline,
    /// When a peer gets the number of clients next.
    report_ms: u64,
}

impl Spreading {
    /// The other end is not let in yet.
    pub fn new(spread: Arc<ClientSpread>, is_failover: bool) -> Spreading {
        Spreading { spread, is_failover, counted: None, told: 0, moved_ms: None, report_ms: 0 }
    }

    /// The client was let in.
    pub fn begin(&mut self) {
        self.counted = Some(CountedClient::new(self.spread.clone()));
    }

    /// When a broker gets the number of clients here next.
    pub fn report_ms(&self) -> u64 {
        self.report_ms
    }

    /// The number of clients that a broker has, if the text is its report.
    pub fn read_report(text: &str) -> Option<u64> {
        text.strip_prefix(REPORT)?.parse().ok()
    }

    fn report(&mut self, now_ms: u64) -> Option<Command> {
        if now_ms < self.report_ms {
            return None;
        }
        self.report_ms = now_ms + REPORT_EVERY_MS;
        let command = Some(format!("{REPORT}{}", self.spread.clients()).as_str().into());
        Some(ControlCommand { command, ..ControlCommand::default() }.into())
    }

    /// The list, if it has changed; or a request to connect again, if the client is to move and
    /// `may_move`.
    fn control(&mut self, may_move: bool, now_ms: u64) -> Vec<Command> {
        if !self.is_failover || self.counted.is_none() {
            return Vec::new();
        }
        let version = self.spread.version();
        if self.told != version {
            self.told = version;
            return vec![control_of(&self.spread.brokers(), false)];
        }
        let is_rested = self.moved_ms.is_none_or(|moved_ms| moved_ms + MOVED_PAUSE_MS <= now_ms);
        let onward = (may_move && is_rested).then(|| self.spread.take_move()).flatten();
        let Some(onward) = onward else { return Vec::new() };
        self.moved_ms = Some(now_ms);
        // A client ignores a list of the same brokers, in whatever order.
        vec![control_of(&self.spread.brokers(), false), control_of(&onward, true)]
    }
}

fn control_of(brokers: &str, rebalance_connection: bool) -> Command {
    let connected_brokers = Some(brokers.into());
    ConnectionControl { connected_brokers, rebalance_connection, ..ConnectionControl::default() }.into()
}

/// Sends the other end all reports that are due.
pub fn say_due(session: &mut OpenWireSession, turn: &mut Turn<'_>) {
    let now_ms = turn.now.ticks_ms;
    let (reports, may_move) = (session.network.counts_clients(), session.transactions.are_none_open());
    let Some(spreading) = &mut session.spreading else { return };
    let due = match reports {
        true => spreading.report(now_ms).into_iter().collect(),
        false => spreading.control(may_move, now_ms),
    };
    for command in due {
        session.send(command, turn);
    }
}
