//! Queues: make, list, describe, set, tag, purge and delete them.

use std::sync::Arc;

use postroad_model::{Destination, Event, LeaseAnswer, LeaseEvent, QueueDescription};
use postroad_sqs::{Code, Page, QueueState, Settings, SqsError, Texts, is_queue_name, list};
use serde_json::{Value, json};

use super::{Asked, ask, now_ms};

/// Names on one page if the client does not say how many.
const NAMES_MAX: u32 = 1000;

/// Queues that are looked at for one page of the sources of a dead-letter queue.
const LOOKED_AT_MAX: u32 = 2000;

impl Asked<'_> {
    pub(super) async fn create(
        &self,
        queue: String,
        attributes: Texts,
        tags: Texts,
    ) -> Result<Value, SqsError> {
        let answer = json!({ "QueueUrl": self.url(&queue) });
        let _changing = self.hub.changing(&queue).await;
        match self.describe(&queue).await {
            Ok(about) => {
                Settings::of(about.options.as_ref()).has(&queue, &attributes)?;
                return Ok(answer);
            }
            Err(error) if error.code == Code::QueueDoesNotExist => {}
            Err(error) => return Err(error),
        }
        let now_s = now_ms() / 1000;
        let mut settings = Settings::default();
        (settings.created_s, settings.modified_s) = (now_s, now_s);
        settings.set(&queue, &attributes, true)?;
        settings.tag(tags)?;
        self.check_redrive(&queue, (None, &settings), &attributes).await?;
        self.configure(&queue, &settings).await?;
        Ok(answer)
    }

    /// Has the broker keep the settings, and make the queue if it does not exist.
    pub(super) async fn configure(&self, queue: &str, settings: &Settings) -> Result<(), SqsError> {
        let (queue, options) = (Destination::queue(queue), settings.options());
        let event = |connection, ticket| LeaseEvent::Configure { queue, options, connection, ticket };
        ask(&self.client, event).await.map(drop)
    }

    /// A dead-letter queue exists, and allows this queue to use it. The broker writes to it, so one
    /// that was not `before` needs the user's permission to do so.
    async fn check_redrive(
        &self,
        queue: &str,
        (before, settings): (Option<&str>, &Settings),
        set: &Texts,
    ) -> Result<(), SqsError> {
        let Some((target, _)) = settings.dead_letter.as_ref().filter(|_| set.contains_key("RedrivePolicy"))
        else {
            return Ok(());
        };
        let value = &set["RedrivePolicy"];
        let about = self.describe(target).await.map_err(|error| match error.code {
            Code::QueueDoesNotExist => {
                SqsError::invalid("RedrivePolicy", value, "Dead letter target does not exist")
            }
            _ => error,
        })?;
        let new = Some(target.as_str()).filter(|target| before != Some(*target));
        let checked = self.client.check_writes(new.into_iter());
        checked.map_err(|refusal| SqsError::of_refusal(&refusal))?;
        match Settings::of(about.options.as_ref()).allows_redrive_of(queue) {
            true => Ok(()),
            false => {
                let reason = "The RedriveAllowPolicy of the dead-letter queue does not allow this queue";
                Err(SqsError::invalid("RedrivePolicy", value, reason))
            }
        }
    }

    /// Changes the settings of a queue that exists.
    pub(super) async fn change(
        &self,
        queue: &str,
        change: impl FnOnce(&mut Settings) -> Result<(), SqsError>,
    ) -> Result<Value, SqsError> {
        let _changing = self.hub.changing(queue).await;
        let mut settings = Settings::of(self.describe(queue).await?.options.as_ref());
        change(&mut settings)?;
        self.configure(queue, &settings).await?;
        Ok(Value::Null)
    }

    pub(super) async fn set(&self, queue: &str, attributes: &Texts) -> Result<Value, SqsError> {
        let _changing = self.hub.changing(queue).await;
        let mut settings = Settings::of(self.describe(queue).await?.options.as_ref());
        let before = settings.dead_letter.as_ref().map(|(target, _)| target.clone());
        settings.set(queue, attributes, false)?;
        self.check_redrive(queue, (before.as_deref(), &settings), attributes).await?;
        settings.modified_s = now_ms() / 1000;
        self.configure(queue, &settings).await?;
        Ok(Value::Null)
    }

    pub(super) async fn attributes(&self, queue: &str, names: &[String]) -> Result<Value, SqsError> {
        let about = self.describe(queue).await?;
        let attributes = Settings::of(about.options.as_ref()).asked_for(queue, names, state_of(&about))?;
        Ok(match attributes.is_empty() {
            true => json!({}),
            false => json!({ "Attributes": attributes }),
        })
    }

    pub(super) async fn list(&self, prefix: &str, page: Page) -> Result<Value, SqsError> {
        let max = page.max.unwrap_or(NAMES_MAX);
        let names = self.names(prefix, &page.after, max).await?;
        // Without a size there are no pages.
        let is_full = page.max.is_some() && max as usize <= names.len();
        let next = names.last().filter(|_| is_full).map(|name| name.to_string());
        let urls = names.iter().map(|name| json!(self.url(name))).collect();
        Ok(list("QueueUrls", urls, next))
    }

    /// Names of queues that SQS can name, in order.
    async fn names(&self, prefix: &str, after: &str, max: u32) -> Result<Vec<Arc<str>>, SqsError> {
        let (mut after, mut found): (Arc<str>, Vec<Arc<str>>) = (after.into(), Vec::new());
        loop {
            let (prefix, from) = (Arc::from(prefix), after.clone());
            let event = |connection, ticket| {
                let (after, count_max) = (from, max);
                LeaseEvent::List { prefix, after, count_max, connection, ticket }
            };
            let mut names: Vec<Arc<str>> = Vec::new();
            for answer in ask(&self.client, event).await? {
                if let LeaseAnswer::Listed(listed) = answer {
                    names.extend(listed);
                }
            }
            names.sort_unstable();
            names.truncate(max as usize);
            let is_last = names.len() < max as usize;
            after = names.last().cloned().unwrap_or(after);
            found.extend(names.into_iter().filter(|name| is_queue_name(name)));
            if is_last || max as usize <= found.len() {
                found.truncate(max as usize);
                return Ok(found);
            }
        }
    }

    /// Queues whose dead-letter queue this is.
    pub(super) async fn sources(&self, queue: &str, page: Page) -> Result<Value, SqsError> {
        self.describe(queue).await?;
        let max = page.max.unwrap_or(NAMES_MAX) as usize;
        let names = self.names("", &page.after, LOOKED_AT_MAX).await?;
        let mut next = names.last().filter(|_| LOOKED_AT_MAX as usize <= names.len()).cloned();
        let mut urls = Vec::new();
        for name in names {
            // Deleted meanwhile.
            let Ok(about) = self.describe(&name).await else { continue };
            let dead = Settings::of(about.options.as_ref()).dead_letter;
            if dead.is_some_and(|(target, _)| target == queue) {
                if max <= urls.len() {
                    break;
                }
                urls.push(json!(self.url(&name)));
                if max <= urls.len() {
                    next = Some(name);
                }
            }
        }
        let mut answer = list("queueUrls", urls, next.map(|next| next.to_string()));
        // Clients want the list even if it is empty.
        if answer.get("queueUrls").is_none() {
            answer["queueUrls"] = json!([]);
        }
        Ok(answer)
    }

    pub(super) async fn purge(&self, queue: &str) -> Result<Value, SqsError> {
        let queue = Destination::queue(queue);
        let event = |connection, ticket| LeaseEvent::Clear { queue, connection, ticket };
        ask(&self.client, event).await?;
        Ok(Value::Null)
    }

    pub(super) async fn delete_queue(&self, queue: &str) -> Result<Value, SqsError> {
        self.describe(queue).await?;
        let destination = Destination::queue(queue);
        let event = |connection, ticket| Event::Delete { destination, connection, ticket };
        let deleted = self.client.ask(event).await;
        deleted.map_err(|refusal| SqsError::of_refusal(&refusal))?;
        Ok(Value::Null)
    }
}

fn state_of(about: &QueueDescription) -> QueueState {
    let in_flight = about.leased + about.held;
    let visible = about.length.saturating_sub(in_flight + about.delayed);
    QueueState { visible, in_flight, delayed: about.delayed }
}
