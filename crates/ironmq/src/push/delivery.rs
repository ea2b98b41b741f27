//! Messages that are held for pushing, and how far each subscriber is with them.

use std::sync::Arc;

use bytes::Bytes;
use postroad_model::LeaseId;
use serde_json::{Value, json};

use super::settings::{PushKind, PushSettings};
use crate::MessageId;

/// The longest wait between two retries, unless the first one is longer.
const BACK_OFF_S_MAX: u64 = 3600;

/// One attempt: a message of a queue, for one of its subscribers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// The broker's name of the queue.
    pub queue: Arc<str>,
    /// The message.
    pub id: MessageId,
    /// Which of its deliveries.
    pub number: usize,
}

/// How far a delivery is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It is another subscriber's turn.
    Idle,
    /// It waits for its endpoint.
    InLine,
    /// A request is on its way.
    Sending,
    /// It is tried again then.
    Waiting { at_ms: u64 },
    /// The endpoint has it, and is to delete it before then.
    Accepted { until_ms: u64 },
    /// The endpoint has taken it.
    Done,
    /// It has not, and is not asked again.
    Failed,
    /// Its subscriber has left the queue before the endpoint was asked.
    Removed,
}

/// A message for one subscriber.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The subscriber.
    pub name: Arc<str>,
    /// Where it was sent last.
    pub url: Arc<str>,
    pub(crate) state: State,
    /// Requests so far.
    pub tries: u32,
    /// The status of the last answer; 0 for none.
    pub status: u16,
    /// The last failure.
    pub error: String,
    /// When the last request was sent, by the driver's clock.
    pub last_try_ms: Option<u64>,
}

impl Delivery {
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, State::Done | State::Failed | State::Removed)
    }

    /// As the API shows it; `wall_ms` turns a time of the driver's clock into a time of day.
    pub fn shown(&self, settings: &PushSettings, wall_ms: impl Fn(u64) -> u64) -> Value {
        json!({
            "name": &*self.name,
            "subscriber_name": &*self.name,
            "url": &*self.url,
            "tries": self.tries,
            "retries_remaining": (settings.retries + 1).saturating_sub(self.tries),
            "status_code": self.status,
            "msg": self.error,
            "last_try_at": self.last_try_ms.map(|at_ms| wall_ms(at_ms) / 1000),
        })
    }
}

/// A message that was reserved to be pushed.
#[derive(Clone, Debug)]
pub struct Fresh {
    /// Which.
    pub id: MessageId,
    /// By which lease.
    pub lease: LeaseId,
    /// Its body; `None`: it is large, and read from the queue when it is sent.
    pub body: Option<Bytes>,
    /// Headers for all subscribers.
    pub headers: Vec<(String, String)>,
}

/// A message that is held for pushing.
#[derive(Clone, Debug)]
pub struct Pushed {
    /// Which.
    pub id: MessageId,
    /// By which lease.
    pub lease: LeaseId,
    /// Headers for all subscribers.
    pub headers: Vec<(String, String)>,
    /// Its body, while it is about to be sent.
    pub body: Option<Bytes>,
    /// The subscribers.
    pub deliveries: Vec<Delivery>,
    pub(crate) leased_until_ms: u64,
}

impl Pushed {
    /// A message for the subscribers of a queue: none of them has it yet.
    pub(crate) fn new(fresh: Fresh, settings: &PushSettings) -> Pushed {
        let Fresh { id, lease, body, headers } = fresh;
        let delivery = |subscriber: &super::Subscriber| Delivery {
            name: subscriber.name.as_str().into(),
            url: subscriber.url.as_str().into(),
            state: State::Idle,
            tries: 0,
            status: 0,
            error: String::new(),
            last_try_ms: None,
        };
        let deliveries = settings.subscribers.iter().map(delivery).collect();
        Pushed { id, lease, headers, body, deliveries, leased_until_ms: 0 }
    }

    /// Whether nothing more is to be done for it.
    pub(crate) fn is_over(&self, kind: PushKind) -> bool {
        match kind {
            PushKind::Multicast => self.deliveries.iter().all(Delivery::is_over),
            PushKind::Unicast => {
                let is_done = |delivery: &Delivery| delivery.state == State::Done;
                self.deliveries.iter().any(is_done) || self.deliveries.iter().all(Delivery::is_over)
            }
        }
    }

    /// Whether an endpoint has not taken it that should have.
    pub(crate) fn has_failed(&self, kind: PushKind) -> bool {
        let has = |state: State| self.deliveries.iter().any(|delivery| delivery.state == state);
        let all_are_over = self.deliveries.iter().all(Delivery::is_over);
        match kind {
            PushKind::Multicast => has(State::Failed),
            PushKind::Unicast => all_are_over && has(State::Failed) && !has(State::Done),
        }
    }

    /// Whether all subscribers for which it was reserved have left the queue.
    pub(crate) fn lost_all_subscribers(&self) -> bool {
        self.deliveries.iter().all(|delivery| delivery.state == State::Removed)
    }

    /// The message for the error queue.
    pub fn report(&self, body: &str) -> Value {
        let failed = self.deliveries.iter().filter(|delivery| delivery.state == State::Failed);
        let failed = failed.map(|delivery| {
            let Delivery { name, url, status, error, .. } = delivery;
            json!({ "name": &**name, "url": &**url, "code": status, "msg": error })
        });
        let headers: serde_json::Map<String, Value> =
            self.headers.iter().map(|(name, value)| (name.clone(), json!(value))).collect();
        json!({
            "source_msg_id": self.id.to_string(),
            "body": body,
            "headers": headers,
            "subscribers": failed.collect::<Vec<Value>>(),
        })
    }
}

/// How long to wait after this number of attempts: longer each time.
pub(crate) fn back_off_ms(settings: &PushSettings, tries: u32) -> u64 {
    let first_s = settings.retries_delay_s;
    let doubled = first_s.saturating_mul(1 << tries.saturating_sub(1).min(20));
    doubled.min(BACK_OFF_S_MAX.max(first_s)).saturating_mul(1000)
}
