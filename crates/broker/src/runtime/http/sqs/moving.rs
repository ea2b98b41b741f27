//! Message move tasks: dead letters go back to where they were, or to another queue.
//!
//! A task is kept with the queue that it empties, and carried out by the core whose connection has
//! started it. Its progress is shared by all cores. It does not outlive the broker: a task that
//! runs, and is not under way, has failed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use postroad_model::{Destination, Event, LeaseEvent, Redrive, RedriveWay};
use postroad_sqs::{
    Code, Settings, SqsError, Task, TaskStatus, is_fifo, list, parse_task_handle, task_handle,
};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::super::client::FrontClient;
use super::super::push::PushHub;
use super::{Asked, ask, describe, now_ms};

/// Messages that are moved in one step.
const STEP_MESSAGES: u64 = 500;

/// Tasks that are remembered of one queue.
const TASKS_MAX: usize = 10;

/// Why a task of an earlier run has ended.
const ENDED_WITH_BROKER: &str = "The broker was restarted: start the task again.";

/// Messages that were sent to the dead-letter queue itself have no source.
const NO_SOURCE: &str = "CouldNotDetermineMessageSource";

/// How far a task is.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    moved: u64,
    is_cancelled: bool,
}

/// The tasks that are under way, by their handles: one for each queue at most.
#[derive(Clone, Debug, Default)]
pub struct Tasks(Arc<watch::Sender<BTreeMap<String, Progress>>>);

impl Tasks {
    fn get(&self, handle: &str) -> Option<Progress> {
        self.0.borrow().get(handle).copied()
    }

    /// Begins a task; returns whether there was none of this handle.
    fn begin(&self, handle: &str) -> bool {
        self.0.send_if_modified(|tasks| match tasks.contains_key(handle) {
            true => false,
            false => tasks.insert(handle.to_owned(), Progress::default()).is_none(),
        })
    }

    /// Changes a task that is under way; returns whether it is.
    fn change(&self, handle: &str, change: impl FnOnce(&mut Progress)) -> bool {
        self.0.send_if_modified(|tasks| tasks.get_mut(handle).map(change).is_some())
    }

    fn end(&self, handle: &str) {
        self.0.send_if_modified(|tasks| tasks.remove(handle).is_some());
    }

    /// Waits until the task is cancelled.
    async fn cancelled(&self, handle: &str) {
        let is_cancelled = |tasks: &BTreeMap<String, Progress>| {
            tasks.get(handle).is_none_or(|progress| progress.is_cancelled)
        };
        // The sender is this one's own: it does not end.
        let _ = self.0.subscribe().wait_for(is_cancelled).await;
    }
}

impl Asked<'_> {
    pub(super) async fn start_task(
        &self,
        source: String,
        destination: Option<String>,
        per_second: Option<u64>,
    ) -> Result<Value, SqsError> {
        let _changing = self.hub.changing(&source).await;
        let about = self.describe(&source).await.map_err(|error| not_found(error, "source"))?;
        if let Some(destination) = &destination {
            self.describe(destination).await.map_err(|error| not_found(error, "destination"))?;
            if is_fifo(destination) != is_fifo(&source) || *destination == source {
                let reason = "It must be another queue of the same type as the source";
                return Err(SqsError::invalid("DestinationArn", destination, reason));
            }
        }
        if !self.is_dead_letter_queue(&source).await? {
            let reason = "Source queue must be configured as a Dead Letter Queue";
            return Err(SqsError::invalid("SourceArn", &source, reason));
        }
        let mut settings = Settings::of(about.options.as_ref());
        let is_under_way = |task: &Task| self.tasks.get(&task_handle(&source, task.number)).is_some();
        let is_busy = settings.tasks.iter().any(is_under_way);
        let number = settings.tasks.iter().map(|task| task.number).max().unwrap_or(0) + 1;
        let task = Task {
            number,
            status: TaskStatus::Running,
            destination,
            per_second,
            moved: 0,
            to_move: about.length,
            started_ms: now_ms(),
            failure: None,
        };
        settings.tasks.insert(0, task.clone());
        settings.tasks.truncate(TASKS_MAX);
        let handle = task_handle(&source, number);
        if is_busy || !self.tasks.begin(&handle) {
            let message = "There is already a task running. Only one active task is allowed for a source queue \
                           arn at a given time.";
            return Err(Code::UnsupportedOperation.because(message));
        }
        if let Err(error) = self.configure(&source, &settings).await {
            self.tasks.end(&handle);
            return Err(error);
        }
        let (client, hub, tasks) = (self.client.another(), self.hub.clone(), self.tasks.clone());
        let mover = Mover { client, hub, tasks, source, handle: handle.clone(), task };
        tokio::task::spawn_local(mover.run());
        Ok(json!({ "TaskHandle": handle }))
    }

    async fn is_dead_letter_queue(&self, queue: &str) -> Result<bool, SqsError> {
        let mut page = postroad_sqs::Page { max: Some(1), after: String::new() };
        loop {
            let answer = self.sources(queue, page).await?;
            if answer["queueUrls"].as_array().is_some_and(|urls| !urls.is_empty()) {
                return Ok(true);
            }
            let Some(next) = answer["NextToken"].as_str() else { return Ok(false) };
            page = postroad_sqs::Page { max: Some(1), after: next.to_owned() };
        }
    }

    pub(super) async fn cancel_task(&self, handle: &str) -> Result<Value, SqsError> {
        let unknown = || Code::ResourceNotFound.because("The task handle does not name a running task.");
        let (source, _) = parse_task_handle(handle).ok_or_else(unknown)?;
        self.describe(&source).await.map_err(|error| not_found(error, "source"))?;
        let moved = self.tasks.get(handle).ok_or_else(unknown)?.moved;
        if !self.tasks.change(handle, |progress| progress.is_cancelled = true) {
            return Err(unknown());
        }
        Ok(json!({ "ApproximateNumberOfMessagesMoved": moved }))
    }

    pub(super) async fn list_tasks(&self, source: &str, max: usize) -> Result<Value, SqsError> {
        let about = self.describe(source).await.map_err(|error| not_found(error, "source"))?;
        let settings = Settings::of(about.options.as_ref());
        let shown = |task: Task| match self.tasks.get(&task_handle(source, task.number)) {
            Some(Progress { moved, is_cancelled: false }) => Task { moved, ..task },
            Some(Progress { moved, .. }) => Task { moved, status: TaskStatus::Cancelling, ..task },
            None if task.status == TaskStatus::Running => {
                Task { status: TaskStatus::Failed, failure: Some(ENDED_WITH_BROKER.to_owned()), ..task }
            }
            None => task,
        };
        let tasks = settings.tasks.into_iter().take(max).map(|task| shown(task).to_answer(source));
        Ok(list("Results", tasks.collect(), None))
    }
}

fn not_found(error: SqsError, which: &str) -> SqsError {
    match error.code {
        Code::QueueDoesNotExist => {
            Code::ResourceNotFound.because(format!("The {which} queue of the task does not exist."))
        }
        _ => error,
    }
}

/// A task that is carried out.
struct Mover {
    client: FrontClient,
    hub: PushHub,
    tasks: Tasks,
    source: String,
    handle: String,
    task: Task,
}

impl Mover {
    async fn run(mut self) {
        while self.task.status == TaskStatus::Running {
            let began = Instant::now();
            if let Err(error) = self.step().await {
                self.task.status = TaskStatus::Failed;
                self.task.failure = Some(error.message);
            }
            self.tasks.change(&self.handle, |progress| progress.moved = self.task.moved);
            if self.task.status == TaskStatus::Running {
                self.wait(began).await;
            }
        }
        // Of a queue that was deleted there is nothing to keep.
        if let Err(error) = self.keep().await {
            tracing::warn!(
                queue = self.source,
                error = error.message,
                "cannot record the end of a message move task"
            );
        }
        self.tasks.end(&self.handle);
    }

    /// Waits for the next second if the task has a rate; ends it if it is cancelled.
    async fn wait(&mut self, began: Instant) {
        let second = if self.task.per_second.is_some() { Duration::from_secs(1) } else { Duration::ZERO };
        tokio::select! {
            biased;
            () = self.tasks.cancelled(&self.handle) => self.task.status = TaskStatus::Cancelled,
            () = tokio::time::sleep(second.saturating_sub(began.elapsed())) => {}
        }
    }

    /// Moves some messages.
    async fn step(&mut self) -> Result<(), SqsError> {
        let step = self.task.per_second.unwrap_or(STEP_MESSAGES).min(STEP_MESSAGES);
        let wanted = Redrive {
            from: Destination::queue(&self.source),
            to: self.task.destination.as_deref().map(Destination::queue),
            origin: None,
            selector: Arc::default(),
            messages_max: step,
            way: RedriveWay::Back(None),
            by: None,
        };
        let event = |connection, ticket| Event::Redrive { wanted: Box::new(wanted), connection, ticket };
        let moved = self.client.ask_redriven(event).await;
        let (moved, stayed) = moved.map_err(|refusal| SqsError::of_refusal(&refusal))?;
        self.task.moved += moved;
        if moved < step {
            (self.task.status, self.task.failure) = match (0 < stayed, &self.task.destination) {
                (true, None) => (TaskStatus::Failed, Some(NO_SOURCE.to_owned())),
                _ => (TaskStatus::Completed, None),
            };
        }
        Ok(())
    }

    /// Keeps the end of the task with its queue.
    async fn keep(&self) -> Result<(), SqsError> {
        let _changing = self.hub.changing(&self.source).await;
        let mut settings = Settings::of(describe(&self.client, &self.source).await?.options.as_ref());
        let kept = settings.tasks.iter_mut().find(|kept| kept.number == self.task.number);
        let Some(kept) = kept else { return Ok(()) };
        *kept = self.task.clone();
        let (queue, options) = (Destination::queue(&self.source), settings.options());
        let event = |connection, ticket| LeaseEvent::Configure { queue, options, connection, ticket };
        ask(&self.client, event).await.map(drop)
    }
}
