//! Alerting: queues with alerts are watched, and messages about their sizes are posted.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use postroad_ironmq::alerts::{Alert, Alerts, Watching};
use postroad_model::{Destination, LeaseAnswer, LeaseEvent, Refusal, Watch};
use rustc_hash::FxHashMap;
use tokio::task::JoinHandle;

use super::driver::{Named, Outside, PAUSE};
use crate::runtime::http::ironmq::wall_ms;

/// The queues with alerts, each with a task that waits until its size passes a threshold.
#[derive(Default)]
pub struct Alerting {
    queues: FxHashMap<Arc<str>, Watched>,
}

/// Sizes and snoozes, which outlive a change of the alerts.
struct Followed {
    began: Instant,
    watching: RefCell<Watching>,
}

/// A queue with alerts. Dropped, it is not watched any more.
struct Watched {
    followed: Rc<Followed>,
    alerts: Alerts,
    task: JoinHandle<()>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Alerting {
    /// The queue has these alerts from now on.
    pub fn configure(&mut self, queue: &Arc<str>, named: &Rc<Named>, alerts: &Alerts, outside: &Rc<Outside>) {
        let before = self.queues.remove(queue);
        if alerts.is_empty() {
            return;
        }
        let before = before.filter(|watched| !watched.task.is_finished());
        let watched = match before {
            Some(watched) if watched.alerts == *alerts => watched,
            before => {
                let new = || Rc::new(Followed { began: Instant::now(), watching: RefCell::default() });
                let followed = before.as_ref().map_or_else(new, |watched| watched.followed.clone());
                followed.watching.borrow_mut().set(alerts);
                let task = follow(queue.clone(), named.clone(), followed.clone(), outside.clone());
                Watched { followed, alerts: alerts.clone(), task: tokio::task::spawn_local(task) }
            }
        };
        self.queues.insert(queue.clone(), watched);
    }
}

/// Watches a queue until it is deleted.
async fn follow(queue: Arc<str>, named: Rc<Named>, followed: Rc<Followed>, outside: Rc<Outside>) {
    loop {
        let bounds = followed.watching.borrow().bounds();
        let event = |connection, ticket| {
            let (queue, (rises_to, falls_to)) = (Destination::queue(&queue), bounds);
            LeaseEvent::Watch(Watch { connection, ticket, queue, rises_to, falls_to })
        };
        let size = match outside.polls.lease(event).await {
            Ok(answers) => answers.into_iter().find_map(|answer| match answer {
                LeaseAnswer::Described(about) => Some(about.length),
                _ => None,
            }),
            Err(Refusal::NoSuchQueue(_)) => return,
            Err(refusal) => {
                tracing::warn!(%queue, %refusal, "the queue's alerts cannot be watched for now: trying again");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Some(size) = size else { continue };
        let now_ms = followed.began.elapsed().as_millis() as u64;
        let fired = followed.watching.borrow_mut().observe(size, now_ms);
        for alert in fired {
            post(&alert, size, &named, &outside).await;
        }
    }
}

async fn post(alert: &Alert, size: u64, named: &Named, outside: &Outside) {
    let body = Bytes::from(alert.body(&named.queue, size, wall_ms()));
    if let Err(error) = outside.post(&named.project, &alert.queue, body).await {
        let (queue, target) = (&named.queue, &alert.queue);
        tracing::warn!(queue, target, error = error.msg, "an alert could not be posted: it is omitted");
    }
}
