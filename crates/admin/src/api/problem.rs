//! Errors of the API: a status, the fault, and its correction.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use postroad_model::Refusal;
use postroad_node::ClientError;
use serde::Serialize;

/// When to try again, where a service does not answer.
const RETRY_SECONDS: u64 = 5;

/// When to ask again for a list, where too many are being made: each takes milliseconds.
const LIST_SECONDS: u64 = 1;

/// Why a request was not carried out.
#[derive(Debug, PartialEq, Eq)]
pub struct Problem {
    pub status: u16,
    pub message: String,
    /// When to try again, if that helps.
    pub retry_after_seconds: Option<u64>,
}

#[derive(Serialize)]
struct Body {
    status: u16,
    error: String,
}

impl Problem {
    pub fn new(status: u16, message: String) -> Problem {
        Problem { status, message, retry_after_seconds: None }
    }

    /// Who could tell does not answer.
    pub fn away(reason: String) -> Problem {
        Problem { retry_after_seconds: Some(RETRY_SECONDS), ..Problem::new(503, reason) }
    }

    /// The refusal of a login after too many failures.
    pub fn locked(left: Duration) -> Problem {
        let retry_after_seconds = Some(left.as_secs().max(1));
        Problem { retry_after_seconds, ..Problem::new(429, postroad_security::locked(left)) }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Problem { status, message: error, retry_after_seconds } = self;
        let code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (code, Json(Body { status, error })).into_response();
        if code == StatusCode::UNAUTHORIZED {
            let basic = HeaderValue::from_static("Basic realm=\"postroad\", charset=\"UTF-8\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, basic);
        }
        if let Some(seconds) = retry_after_seconds {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl From<ClientError> for Problem {
    fn from(error: ClientError) -> Problem {
        let status = match &error {
            ClientError::Refused(refusal) => return refusal.clone().into(),
            ClientError::TooLarge { .. } => 413,
            ClientError::Unreadable { .. } => 500,
            _ => 503,
        };
        Problem::new(status, error.to_string())
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Problem {
        let retry_after_seconds = matches!(refusal, Refusal::TooManyLists { .. }).then_some(LIST_SECONDS);
        Problem { retry_after_seconds, ..Problem::new(status_of(&refusal), refusal.to_string()) }
    }
}

fn status_of(refusal: &Refusal) -> u16 {
    match refusal {
        Refusal::BadSelector { .. } | Refusal::BadSchedule { .. } => 400,
        Refusal::NotOwner(_) | Refusal::NotPermitted { .. } | Refusal::OtherStore { .. } => 403,
        Refusal::NoSuchDestination(_)
        | Refusal::NoSuchQueue(_)
        | Refusal::NoSuchSubscription { .. }
        | Refusal::NoSuchSchedule { .. } => 404,
        Refusal::QueueFull { .. }
        | Refusal::QuotaFull { .. }
        | Refusal::StoreFull { .. }
        | Refusal::DocumentTooLarge { .. }
        | Refusal::TooManyQueues { .. } => 507,
        Refusal::StoreFailed { .. }
        | Refusal::NotLeader
        | Refusal::OutcomeUnknown
        | Refusal::Draining
        | Refusal::TooManyLists { .. } => 503,
        _ => 409,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_learns_when_to_ask_for_its_list_again() {
        let refusals = [Refusal::TooManyLists { max: 64 }, Refusal::NotLeader];
        for (refusal, after) in refusals.into_iter().zip([Some("1"), None]) {
            for problem in [Problem::from(refusal.clone()), ClientError::Refused(refusal.clone()).into()] {
                let said = problem.message.clone();
                let response = problem.into_response();
                let header = response.headers().get(header::RETRY_AFTER);
                let header = header.and_then(|value| value.to_str().ok());
                assert_eq!(header, after, "{said}");
                assert_eq!(response.status().as_u16(), 503, "{said}");
            }
        }
        let problem = Problem::from(Refusal::TooManyLists { max: 64 });
        assert!(problem.message.contains("64") && problem.message.contains("again"), "{}", problem.message);
    }
}
