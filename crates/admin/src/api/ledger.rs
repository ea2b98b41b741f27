//! The ledger of all queues together, as it was checked last.

use axum::Json;
use axum::extract::State;
use serde::Serialize;

use super::Api;
use crate::alerts::Ledger;

#[derive(Debug, Serialize)]
pub struct ShownLedger {
    /// When the last check ended; null before the first.
    checked_ms: Option<u64>,
    checks: u64,
    queues: u64,
    sent: u64,
    held: u64,
    in_flight: u64,
    consumed: u64,
    expired: u64,
    dead_lettered: u64,
    dropped: u64,
    moved: u64,
    difference: u64,
    differing_queues: u64,
    /// Some of these queues.
    differing: Vec<Differing>,
}

#[derive(Debug, Serialize)]
struct Differing {
    queue: String,
    difference: i64,
}

impl From<Ledger> for ShownLedger {
    fn from(Ledger { checked_ms, checks, sums, differing }: Ledger) -> ShownLedger {
        let row = |(queue, difference): (std::sync::Arc<str>, i64)| Differing {
            queue: queue.to_string(),
            difference,
        };
        ShownLedger {
            checked_ms,
            checks,
            queues: sums.queues,
            sent: sums.sent,
            held: sums.held,
            in_flight: sums.in_flight,
            consumed: sums.consumed,
            expired: sums.expired,
            dead_lettered: sums.dead_lettered,
            dropped: sums.dropped,
            moved: sums.moved,
            difference: sums.difference,
            differing_queues: sums.differing,
            differing: differing.into_iter().map(row).collect(),
        }
    }
}

pub async fn show(State(api): State<Api>) -> Json<ShownLedger> {
    Json(api.0.options.alerts.ledger().into())
}
