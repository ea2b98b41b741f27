//! The driver: carries the engine's actions out, and reports the results.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use postroad_ironmq::push::{Acknowledged, Action, Answer, Attempt, Engine, Fresh, LEASE_MS, Pushed};
use postroad_ironmq::{ApiError, Deleted, MessageId, Settings, queue_name};
use postroad_model::{
    Destination, Handle, HandleAction, HandleEntries, LeaseAnswer, LeaseEvent, LeaseId, QueueOptions,
    Refusal, Reserve, Reserved, Stale, Take,
};
use rustc_hash::FxHashMap;
use tokio::sync::{Notify, mpsc, oneshot};

use super::alerting::Alerting;
use super::hub::ToPusher;
use super::sender::{Outgoing, headers};
use super::{PushOptions, sender};
use crate::runtime::connection::CoreHandle;
use crate::runtime::http::bodies::Room;
use crate::runtime::http::client::FrontClient;
use crate::runtime::http::ironmq::{post_bodies, wall_ms};
use crate::runtime::http::stored::Extras;
use crate::runtime::http::stored::{BODY_BYTES_MAX, push_headers_of, raw_body_of};

/// Pause after a reserve that finds nothing.
const WAIT_MS: u64 = 30_000;
/// Pause after a refusal.
pub(super) const PAUSE: Duration = Duration::from_secs(1);
/// Queues on one page of the list that is read at the start.
const PAGE: u32 = 500;
/// Reports that are taken in before the engine is asked again, at most.
const BATCH_MAX: usize = 256;
/// The engine is asked again so soon at the latest.
const IDLE_MAX: Duration = Duration::from_secs(60);

/// The inputs of the driver.
pub struct Pusher {
    /// Requests of HTTP connections.
    pub asked: mpsc::Receiver<ToPusher>,
    /// The configuration.
    pub options: PushOptions,
}

/// The result of an action.
enum Report {
    Reserved {
        queue: Arc<str>,
        fresh: Vec<Fresh>,
    },
    Answered {
        attempt: Box<Attempt>,
        answer: Answer,
    },
    /// The body could not be read for now, so nothing was sent.
    Unread {
        attempt: Box<Attempt>,
        refusal: Refusal,
    },
    Lost {
        queue: Arc<str>,
        ids: Vec<(MessageId, LeaseId)>,
    },
    Gone {
        queue: Arc<str>,
    },
}

/// Pushes until `closing`.
pub async fn drive(handle: CoreHandle, pusher: Pusher, closing: Rc<Notify>) {
    let Pusher { asked, options } = pusher;
    let requests = match sender::start(options.allowed.clone()) {
        Ok(requests) => requests,
        Err(error) => {
            tracing::error!(%error, "push queues are disabled: the thread for endpoint requests did not start");
            return;
        }
    };
    // Long polls have a client of their own: nothing else waits for them.
    let client = FrontClient::new(&handle, &closing);
    let polls = FrontClient::new(&handle, &closing);
    // One report for each action that is under way: the engine bounds these.
    let (reports, reported) = mpsc::unbounded_channel();
    let driver = Driver {
        engine: Engine::new(options.requests_max),
        projects: FxHashMap::default(),
        deletes: FxHashMap::default(),
        alerting: Alerting::default(),
        outside: Rc::new(Outside { client, polls, requests, reports, url: options.url }),
        began: Instant::now(),
    };
    tokio::select! {
        () = driver.run(asked, reported) => {}
        () = closing.notified() => {}
    }
}

/// Waits for the outcome of a deletion.
type Deletion = oneshot::Sender<Result<Acknowledged, ApiError>>;

struct Driver {
    engine: Engine,
    /// Project and name within it, of each queue that pushes.
    projects: FxHashMap<Arc<str>, Rc<Named>>,
    /// Who waits until a message is deleted.
    deletes: FxHashMap<(Arc<str>, MessageId), Deletion>,
    alerting: Alerting,
    outside: Rc<Outside>,
    began: Instant,
}

/// A queue as its project names it.
pub(super) struct Named {
    pub project: String,
    pub queue: String,
}

impl Named {
    fn of(project: String, queue: &str) -> Named {
        let own = if project == "default" { 0 } else { project.len() + 1 };
        Named { queue: queue.get(own..).unwrap_or_default().to_owned(), project }
    }
}

/// The means of tasks that carry actions out.
pub(super) struct Outside {
    pub client: Rc<FrontClient>,
    pub polls: Rc<FrontClient>,
    requests: mpsc::Sender<Outgoing>,
    reports: mpsc::UnboundedSender<Report>,
    url: String,
}

impl Driver {
    async fn run(
        mut self,
        mut asked: mpsc::Receiver<ToPusher>,
        mut reported: mpsc::UnboundedReceiver<Report>,
    ) {
        for (queue, options) in self.outside.configured().await {
            let Some(project) = Settings::project_of(&options) else { continue };
            let Settings { push, alerts, .. } = Settings::of(Some(&options));
            self.hear(ToPusher::Configured { queue, project, push, alerts });
        }
        let mut actions = Vec::new();
        loop {
            self.engine.poll(self.now_ms(), &mut actions);
            self.act(&mut actions);
            let left_ms = self.engine.next_ms().map(|at_ms| at_ms.saturating_sub(self.now_ms()));
            let left = left_ms.map_or(IDLE_MAX, |ms| Duration::from_millis(ms).min(IDLE_MAX));
            tokio::select! {
                Some(report) = reported.recv() => {
                    self.learn(report, &mut actions);
                    for _ in 1..BATCH_MAX {
                        let Ok(report) = reported.try_recv() else { break };
                        self.learn(report, &mut actions);
                    }
                }
                request = asked.recv() => match request {
                    Some(request) => self.hear(request),
                    None => return,
                },
                () = tokio::time::sleep(left) => {}
            }
            self.act(&mut actions);
        }
    }

    fn now_ms(&self) -> u64 {
        self.began.elapsed().as_millis() as u64
    }

    fn hear(&mut self, request: ToPusher) {
        match request {
            ToPusher::Configured { queue, project, push, alerts } => {
                let named = Rc::new(Named::of(project, &queue));
                self.alerting.configure(&queue, &named, &alerts, &self.outside);
                match push {
                    Some(settings) => {
                        self.projects.insert(queue.clone(), named);
                        self.engine.configure(&queue, settings, self.now_ms());
                    }
                    None => self.remove(&queue),
                }
            }
            ToPusher::Acknowledge { queue, message, answer } => self.acknowledge(queue, &message, answer),
            ToPusher::Status { queue, id, answer } => {
                let (now_ms, wall) = (self.now_ms(), wall_ms());
                let of_day = |at_ms: u64| wall.saturating_sub(now_ms.saturating_sub(at_ms));
                let settings = self.engine.settings(&queue);
                let found = self.engine.message(&queue, id).zip(settings).map(|(message, settings)| {
                    message.deliveries.iter().map(|delivery| delivery.shown(settings, of_day)).collect()
                });
                // Who asked may have gone, here and below.
                let _ = answer.send(found);
            }
        }
    }

    fn remove(&mut self, queue: &Arc<str>) {
        self.engine.remove(queue);
        self.projects.remove(queue);
    }

    /// The answer waits until the message is deleted, if this was the last subscriber.
    fn acknowledge(
        &mut self,
        queue: Arc<str>,
        message: &Deleted,
        answer: oneshot::Sender<Result<Acknowledged, ApiError>>,
    ) {
        let mut actions = Vec::new();
        let (handle, subscriber) = ((message.id, message.reservation), message.subscriber.as_deref());
        let result = self.engine.acknowledge(&queue, handle, subscriber, &mut actions);
        match result == Acknowledged::Done && !actions.is_empty() {
            true => drop(self.deletes.insert((queue, message.id), answer)),
            false => drop(answer.send(Ok(result))),
        }
        self.act(&mut actions);
    }

    fn learn(&mut self, report: Report, actions: &mut Vec<Action>) {
        let now_ms = self.now_ms();
        match report {
            Report::Reserved { queue, fresh } => self.engine.reserved(&queue, fresh, now_ms, actions),
            Report::Answered { attempt, answer } => {
                if !(200..300).contains(&answer.status) {
                    let (queue, url) = (&attempt.key.queue, &attempt.url);
                    tracing::debug!(%queue, %url, status = answer.status, error = answer.error, "a push failed");
                }
                self.engine.answered(&attempt, answer, now_ms, actions);
            }
            Report::Unread { attempt, refusal } => {
                let queue = &attempt.key.queue;
                tracing::debug!(%queue, %refusal, "a message to be pushed cannot be read now, retrying");
                self.engine.unread(&attempt, refusal.to_string(), now_ms);
            }
            Report::Lost { queue, ids } => {
                ids.into_iter().for_each(|(id, lease)| self.engine.lost(&queue, id, lease));
            }
            Report::Gone { queue } => self.remove(&queue),
        }
    }

    /// Each action has a task of its own: none waits for another.
    fn act(&mut self, actions: &mut Vec<Action>) {
        for action in actions.drain(..) {
            let outside = self.outside.clone();
            match action {
                Action::Reserve { queue, messages_max } => {
                    tokio::task::spawn_local(async move { outside.reserve(queue, messages_max).await });
                }
                Action::Send(attempt) => {
                    let Some(named) = self.projects.get(&attempt.key.queue).cloned() else {
                        let error = "the queue is no longer a push queue".to_owned();
                        let answer = Answer { error, ..Answer::default() };
                        outside.tell(Report::Answered { attempt, answer });
                        continue;
                    };
                    tokio::task::spawn_local(async move { outside.send(attempt, &named).await });
                }
                Action::Extend { queue, handles } => {
                    tokio::task::spawn_local(async move { outside.extend(queue, handles).await });
                }
                Action::Delete { queue, id, lease } => {
                    let waits = self.deletes.remove(&(queue.clone(), id));
                    tokio::task::spawn_local(async move {
                        outside.delete(&queue, (id, lease), waits).await;
                    });
                }
                Action::Report { queue, error_queue, message } => {
                    let Some(named) = self.projects.get(&queue).cloned() else { continue };
                    let waits = self.deletes.remove(&(queue.clone(), message.id));
                    tokio::task::spawn_local(async move {
                        outside.report(&queue, &named, &error_queue, *message, waits).await;
                    });
                }
                Action::Release { queue, handles } => {
                    tokio::task::spawn_local(async move {
                        let action = HandleAction::Release { delay_ms: 0 };
                        if let Err(refusal) = outside.handle(&queue, &handles, action).await {
                            tracing::debug!(%queue, %refusal, "messages return to the queue when their leases expire");
                        }
                    });
                }
            }
        }
    }
}

impl Outside {
    fn tell(&self, report: Report) {
        // The driver may have ended.
        let _ = self.reports.send(report);
    }

    /// Queues with options.
    async fn configured(&self) -> Vec<(Arc<str>, QueueOptions)> {
        let (mut all, mut last): (Vec<(Arc<str>, QueueOptions)>, Arc<str>) = (Vec::new(), "".into());
        loop {
            let after = last.clone();
            let event =
                |connection, ticket| LeaseEvent::Configured { after, count_max: PAGE, connection, ticket };
            let answers = match self.client.lease(event).await {
                Ok(answers) => answers,
                Err(refusal) => {
                    tracing::warn!(%refusal, "the list of push queues is not available yet, retrying");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            let mut page: Vec<(Arc<str>, QueueOptions)> = Vec::new();
            for answer in answers {
                if let LeaseAnswer::Configured(found) = answer {
                    page.extend(found);
                }
            }
            page.sort_unstable_by(|one, other| one.0.cmp(&other.0));
            page.truncate(PAGE as usize);
            let Some((name, _)) = page.last() else { return all };
            last = name.clone();
            all.extend(page);
        }
    }

    async fn ask_reserve(
        &self,
        client: &FrontClient,
        queue: &str,
        (messages_max, wait_ms): (u32, u64),
        take: Take,
    ) -> Result<Vec<Reserved>, Refusal> {
        let (queue, selector) = (Destination::queue(queue), Arc::default());
        let reserve =
            |connection, ticket| Reserve { connection, ticket, queue, messages_max, selector, wait_ms, take };
        client.reserve(reserve, BODY_BYTES_MAX).await
    }

    async fn reserve(&self, queue: Arc<str>, messages_max: u32) {
        let take = Take::Lease { lasts_ms: LEASE_MS };
        let fresh = match self.ask_reserve(&self.polls, &queue, (messages_max, WAIT_MS), take).await {
            Ok(reserved) => reserved.iter().filter_map(fresh).collect(),
            Err(Refusal::NoSuchQueue(_)) => return self.tell(Report::Gone { queue }),
            Err(refusal) => {
                tracing::warn!(%queue, %refusal, "push failed, retrying");
                tokio::time::sleep(PAUSE).await;
                Vec::new()
            }
        };
        self.tell(Report::Reserved { queue, fresh });
    }

    /// The body of a message that is large, or waited for a retry. Its memory is free again when
    /// the room is dropped.
    async fn body(&self, queue: &str, id: MessageId) -> Result<Option<(Bytes, Room)>, Refusal> {
        let mut found = self.ask_reserve(&self.client, queue, (1, 0), Take::Get(id.tag)).await?;
        found.retain(|found| found.queue == id.queue);
        let room = self.client.complete(&mut found).await?;
        Ok(found.pop().map(|found| (raw_body_of(&found.message), room)))
    }

    async fn send(&self, mut attempt: Box<Attempt>, named: &Named) {
        let body = match attempt.body.take() {
            Some(body) => Ok(Some((body, Room::default()))),
            None => self.body(&attempt.key.queue, attempt.key.id).await,
        };
        let answer = match body {
            Ok(Some((body, _room))) => self.push(&attempt, named, body).await,
            Ok(None) => {
                let ids = vec![(attempt.key.id, attempt.lease)];
                self.tell(Report::Lost { queue: attempt.key.queue.clone(), ids });
                Answer { error: "the message no longer exists".to_owned(), ..Answer::default() }
            }
            Err(refusal @ Refusal::NoSuchQueue(_)) => {
                Answer { error: refusal.to_string(), ..Answer::default() }
            }
            Err(refusal) => return self.tell(Report::Unread { attempt, refusal }),
        };
        self.tell(Report::Answered { attempt, answer });
    }

    async fn push(&self, attempt: &Attempt, named: &Named, body: Bytes) -> Answer {
        if let Some(queue) = attempt.url.strip_prefix("ironmq:///") {
            return self.pass_on(&named.project, queue, body).await;
        }
        let (answer, answered) = oneshot::channel();
        let request = Outgoing {
            url: attempt.url.to_string(),
            headers: headers(self.headers_of(attempt, named)),
            body,
            within: Duration::from_millis(attempt.timeout_ms),
            answer,
        };
        let ended = || Answer { error: "the broker is shutting down".to_owned(), ..Answer::default() };
        match self.requests.send(request).await {
            Ok(()) => answered.await.unwrap_or_else(|_| ended()),
            Err(_) => ended(),
        }
    }

    /// Those of the message and of the subscriber win over the first two, and the broker's own over
    /// all.
    fn headers_of(&self, attempt: &Attempt, named: &Named) -> Vec<(String, String)> {
        let id = attempt.key.id;
        let Named { project, queue } = named;
        let path = format!("/3/projects/{}/queues/{}/messages/{id}", encoded(project), encoded(queue));
        let mut headers = vec![
            ("User-Agent".to_owned(), "IronMQ Pusherd".to_owned()),
            ("Content-Type".to_owned(), "text/plain; encoding=utf-8".to_owned()),
        ];
        headers.extend(attempt.headers.iter().cloned());
        headers.extend([
            ("Iron-Message-Id".to_owned(), id.to_string()),
            ("Iron-Reservation-Id".to_owned(), attempt.lease.0.to_string()),
            ("Iron-Subscriber-Name".to_owned(), encoded_header(&attempt.subscriber)),
            ("Iron-Subscriber-Message-Id".to_owned(), id.to_string()),
            ("Iron-Subscriber-Message-Url".to_owned(), format!("{}{path}", self.url)),
        ]);
        headers
    }

    /// Posts to a queue of a project.
    pub async fn post(&self, project: &str, queue: &str, body: Bytes) -> Result<(), ApiError> {
        let to = Destination::queue(&queue_name(project, queue)?);
        post_bodies(&self.client, to, vec![(body, 0, Extras::default())]).await.map(drop)
    }

    /// The endpoint is a queue of the same project.
    async fn pass_on(&self, project: &str, queue: &str, body: Bytes) -> Answer {
        match self.post(project, queue, body).await {
            Ok(()) => Answer { status: 200, ..Answer::default() },
            Err(ApiError { status, msg }) => Answer { status, error: msg, retry_after_ms: None },
        }
    }

    async fn extend(&self, queue: Arc<str>, handles: Vec<(MessageId, LeaseId)>) {
        let results = self.handle(&queue, &handles, HandleAction::Extend { lasts_ms: LEASE_MS }).await;
        // If all was refused, it is tried again before the leases end.
        let Ok(results) = results else { return };
        let lost = handles.into_iter().zip(results).filter(|(_, result)| result.is_err());
        let ids: Vec<_> = lost.map(|(handle, _)| handle).collect();
        if !ids.is_empty() {
            self.tell(Report::Lost { queue, ids });
        }
    }

    async fn delete(
        &self,
        queue: &str,
        handle: (MessageId, LeaseId),
        waits: Option<oneshot::Sender<Result<Acknowledged, ApiError>>>,
    ) {
        let result = self.handle(queue, &[handle], HandleAction::Delete { even_expired: true }).await;
        if let Err(refusal) = &result {
            tracing::warn!(queue, %refusal, "could not delete a pushed message: it will be pushed again");
        }
        let Some(waits) = waits else { return };
        let result = match result.map(|mut results| results.pop()) {
            Ok(Some(Err(stale))) => Err(ApiError::of_stale(stale)),
            Ok(_) => Ok(Acknowledged::Done),
            Err(refusal) => Err(ApiError::of_refusal(&refusal)),
        };
        // Who asked may have gone.
        let _ = waits.send(result);
    }

    /// Reports a message that could not be delivered, and deletes it. If it cannot be reported, it
    /// stays, and is pushed again.
    async fn report(
        &self,
        queue: &str,
        named: &Named,
        error_queue: &str,
        mut message: Pushed,
        waits: Option<oneshot::Sender<Result<Acknowledged, ApiError>>>,
    ) {
        let body = match message.body.take() {
            Some(body) => Some((body, Room::default())),
            None => self.body(queue, message.id).await.ok().flatten(),
        };
        let Some((body, _room)) = body else { return };
        let report = message.report(&String::from_utf8_lossy(&body)).to_string();
        match self.post(&named.project, error_queue, Bytes::from(report)).await {
            Ok(()) => self.delete(queue, (message.id, message.lease), waits).await,
            Err(error) => {
                tracing::warn!(queue, error_queue, error = error.msg, "a failed push could not be reported");
            }
        }
    }

    async fn handle(
        &self,
        queue: &str,
        handles: &[(MessageId, LeaseId)],
        action: HandleAction,
    ) -> Result<Vec<Result<(), Stale>>, Refusal> {
        let queue = Destination::queue(queue);
        let handle =
            |(id, lease): &(MessageId, LeaseId)| Handle { queue: id.queue, tag: id.tag, lease: Some(*lease) };
        let handles = handles.iter().map(handle).collect();
        let event = |connection, ticket| {
            let all_or_none = false;
            let entries = HandleEntries { queue, connection, ticket, handles, action, all_or_none };
            LeaseEvent::Handle(entries)
        };
        let answers = self.client.lease(event).await?;
        let results = answers.into_iter().find_map(|answer| match answer {
            LeaseAnswer::Handled(results) => Some(results),
            _ => None,
        });
        Ok(results.unwrap_or_default())
    }
}

fn fresh(reserved: &Reserved) -> Option<Fresh> {
    Some(Fresh {
        id: MessageId { queue: reserved.queue, tag: reserved.tag },
        lease: reserved.lease?,
        // A large one is read when it is sent.
        body: reserved.message.chunks().is_none().then(|| raw_body_of(&reserved.message)),
        headers: push_headers_of(&reserved.message),
    })
}

/// A word of a path.
fn encoded(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    word.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// A header's value is ASCII.
fn encoded_header(text: &str) -> String {
    match text.bytes().all(|byte| (32..127).contains(&byte)) {
        true => text.to_owned(),
        false => encoded(text),
    }
}
