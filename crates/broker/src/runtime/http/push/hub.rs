//! The hub: how HTTP connections reach the driver.

use std::hash::{BuildHasher, BuildHasherDefault};
use std::sync::Arc;

use postroad_ironmq::alerts::Alerts;
use postroad_ironmq::push::{Acknowledged, PushSettings};
use postroad_ironmq::{ApiError, Deleted, MessageId};
use rustc_hash::FxHasher;
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard, mpsc, oneshot};

/// Requests that wait for the driver, at most: others wait for room.
const WAITING_MAX: usize = 1024;

/// Changes of queues whose names fall into one part follow one another.
const PARTS: usize = 64;

/// A request to the driver.
pub enum ToPusher {
    /// The queue was made, has other settings, or was deleted.
    Configured {
        /// The broker's name of the queue.
        queue: Arc<str>,
        /// Its project.
        project: String,
        /// How it pushes; `None`: not at all.
        push: Option<PushSettings>,
        /// Its alerts.
        alerts: Alerts,
    },
    /// A subscriber is done with a message.
    Acknowledge {
        /// The queue.
        queue: Arc<str>,
        /// The message.
        message: Deleted,
        /// Hears the result once it is durable.
        answer: oneshot::Sender<Result<Acknowledged, ApiError>>,
    },
    /// How far subscribers are with a message.
    Status {
        /// The queue.
        queue: Arc<str>,
        /// The message.
        id: MessageId,
        /// Hears it; `None` if the driver does not hold the message.
        answer: oneshot::Sender<Option<Vec<Value>>>,
    },
}

/// See the head of this file.
#[derive(Clone)]
pub struct PushHub {
    driver: mpsc::Sender<ToPusher>,
    changing: Arc<[Mutex<()>]>,
}

impl PushHub {
    /// A hub, and the driver's end of it.
    pub fn new() -> (PushHub, mpsc::Receiver<ToPusher>) {
        let (driver, asked) = mpsc::channel(WAITING_MAX);
        let changing = (0..PARTS).map(|_| Mutex::new(())).collect();
        (PushHub { driver, changing }, asked)
    }

    /// The right to change the settings of the queue, one holder at a time.
    pub async fn changing(&self, queue: &str) -> MutexGuard<'_, ()> {
        let hash = BuildHasherDefault::<FxHasher>::default().hash_one(queue);
        self.changing[hash as usize % PARTS].lock().await
    }

    /// Sends a request to the driver.
    pub async fn tell(&self, request: ToPusher) {
        // Without a driver the broker is shutting down.
        let _ = self.driver.send(request).await;
    }

    /// Asks the driver.
    ///
    /// # Errors
    /// The broker is about to end.
    pub async fn ask<A>(&self, request: impl FnOnce(oneshot::Sender<A>) -> ToPusher) -> Result<A, ApiError> {
        let (answer, answered) = oneshot::channel();
        self.tell(request(answer)).await;
        answered.await.map_err(|_| ApiError { status: 503, msg: "the broker is shutting down".to_owned() })
    }
}
