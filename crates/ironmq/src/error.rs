//! Errors as clients parse them: `{"msg": "..."}`.

use postroad_model::{Refusal, Stale};

/// An answer that says no.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// The HTTP status.
    pub status: u16,
    /// The mistake, and the right form.
    pub msg: String,
}

impl ApiError {
    /// The request makes no sense.
    pub fn bad(msg: impl Into<String>) -> ApiError {
        ApiError { status: 400, msg: msg.into() }
    }

    /// Clients compare this text.
    pub fn queue_not_found() -> ApiError {
        ApiError { status: 404, msg: "Queue not found".to_owned() }
    }

    /// Clients compare this text.
    pub fn message_not_found() -> ApiError {
        ApiError { status: 404, msg: "Message not found".to_owned() }
    }

    /// Only push queues have subscribers.
    pub fn no_push_queue() -> ApiError {
        ApiError::bad("a pull queue has no subscribers: its type is to be multicast or unicast")
    }

    /// No such path.
    pub fn no_such_path(path: &str) -> ApiError {
        ApiError { status: 404, msg: format!("Not found: {path}") }
    }

    /// A refusal of the core.
    pub fn of_refusal(refusal: &Refusal) -> ApiError {
        let status = match refusal {
            Refusal::NoSuchQueue(_) | Refusal::NoSuchDestination(_) => return ApiError::queue_not_found(),
            Refusal::InUse { .. }
            | Refusal::NotOwner(_)
            | Refusal::NotPermitted { .. }
            | Refusal::OtherStore { .. }
            | Refusal::TooManyQueues { .. } => 403,
            // Clients try again.
            Refusal::StoreFull { .. }
            | Refusal::QueueFull { .. }
            | Refusal::QuotaFull { .. }
            | Refusal::TooManyConnections { .. }
            | Refusal::TooFast { .. }
            | Refusal::StoreFailed { .. }
            | Refusal::NotLeader
            | Refusal::OutcomeUnknown
            | Refusal::TooManyLeases { .. }
            | Refusal::TooManyTenantLeases { .. }
            | Refusal::TooManyWaiting { .. }
            | Refusal::TooManyLists { .. }
            | Refusal::Draining
            | Refusal::QueueMoving(_) => 503,
            _ => 400,
        };
        ApiError { status, msg: refusal.to_string() }
    }

    /// A handle that does not apply any more.
    pub fn of_stale(stale: Stale) -> ApiError {
        let msg = match stale {
            Stale::Gone => return ApiError::message_not_found(),
            Stale::Expired => "Reservation has timed out",
            Stale::Taken => "Reservation has timed out, and the message was reserved again",
            Stale::Held => "Message is reserved: its reservation_id is needed",
        };
        ApiError { status: 403, msg: msg.to_owned() }
    }
}
