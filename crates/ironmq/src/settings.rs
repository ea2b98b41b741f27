//! Settings of a queue, as clients set them and as the broker keeps them.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use postroad_model::QueueOptions;
use serde_json::{Map, Value, json};

use crate::ApiError;
use crate::alerts::{AlertChange, Alerts};
use crate::fields::Fields;
use crate::id::queue_name;
use crate::push::{self, PushKind, PushSettings, Subscriber};

/// Seconds that a reservation lasts by default.
const MESSAGE_TIMEOUT_S: u64 = 60;
/// Seconds that a reservation lasts at most.
pub(crate) const TIMEOUT_S_MAX: u64 = 86_400;
/// Seconds that a message lives by default, and that it may be delayed: a week.
pub(crate) const EXPIRATION_S: u64 = 604_800;
/// Seconds that a message may live.
pub(crate) const EXPIRATION_S_MAX: u64 = 2_592_000;
/// All settings of a queue, with its subscribers, at most.
const DOCUMENT_BYTES_MAX: usize = 64 << 10;
/// Reservations before a message is dead, by default.
const RESERVATIONS: u64 = 10;

/// A change of the subscribers of a push queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SubscriberChange {
    /// Adds these, in place of those of the same names.
    Add(Vec<Subscriber>),
    /// These are all.
    Replace(Vec<Subscriber>),
    /// Removes those with these names.
    Remove(Vec<String>),
}

/// Settings of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Seconds that a reservation lasts.
    pub message_timeout_s: u64,
    /// Seconds that a message lives.
    pub message_expiration_s: u64,
    /// The queue of dead messages, and the reservations before one is dead.
    pub dead_letter: Option<(String, u64)>,
    /// Whom it pushes to; `None` for a pull queue.
    pub push: Option<PushSettings>,
    /// Messages about its size.
    pub alerts: Alerts,
    /// The queue of dead messages as the broker names it, if its name has not changed since.
    kept_dead_letters: Option<(String, Arc<str>)>,
    /// Fields of other front ends.
    others: Map<String, Value>,
}

/// The fields of the queue's document that are this front end's; others are kept.
const FIELDS: &[&str] = &[
    "message_timeout",
    "message_expiration",
    "dead_letter",
    "type",
    "push",
    "alerts",
    "last_alert",
    "project",
];

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            message_timeout_s: MESSAGE_TIMEOUT_S,
            message_expiration_s: EXPIRATION_S,
            dead_letter: None,
            push: None,
            alerts: Alerts::default(),
            kept_dead_letters: None,
            others: Map::new(),
        }
    }
}

impl Settings {
    /// The type of the queue, in the word of the API.
    pub fn kind(&self) -> &'static str {
        self.push.as_ref().map_or("pull", |push| push.kind.name())
    }

    /// Takes over the settings of a request, and leaves the rest. `is_new`: none were made yet, so
    /// the type may be chosen.
    pub(crate) fn update(&mut self, fields: &mut Fields, is_new: bool) -> Result<(), ApiError> {
        let kind = fields.text("type")?.filter(|kind| !kind.is_empty());
        let mut push = fields.object("push")?;
        let kind = match kind.as_deref() {
            None if is_new && push.is_some() => Some(PushKind::Multicast),
            None => self.push.as_ref().map(|push| push.kind),
            Some("pull") => None,
            Some("multicast") => Some(PushKind::Multicast),
            Some("unicast") => Some(PushKind::Unicast),
            Some(other) => {
                let msg = format!("type is to be pull, multicast or unicast, and is {other}");
                return Err(ApiError::bad(msg));
            }
        };
        if kind != self.push.as_ref().map(|push| push.kind) {
            if !is_new {
                let msg = format!("the type of a queue cannot be changed: it is {}", self.kind());
                return Err(ApiError::bad(msg));
            }
            self.push = kind.map(PushSettings::new);
        }
        match (&mut self.push, &mut push) {
            (Some(settings), Some(push)) => settings.update(push)?,
            (None, Some(_)) => return Err(ApiError::no_push_queue()),
            (_, None) => {}
        }
        if let Some(timeout) = fields.number("message_timeout", 1, TIMEOUT_S_MAX)? {
            self.message_timeout_s = timeout;
        }
        if let Some(expiration) = fields.number("message_expiration", 1, EXPIRATION_S_MAX)? {
            self.message_expiration_s = expiration;
        }
        if let Some(mut dead) = fields.object("dead_letter")? {
            let name = dead.text("queue_name")?;
            let reservations = dead.number("max_reservations", 1, u64::from(u32::MAX))?;
            let before = self.dead_letter.take();
            let name = name.or(before.as_ref().map(|(name, _)| name.clone())).unwrap_or_default();
            let reservations = reservations.or(before.map(|(_, max)| max)).unwrap_or(RESERVATIONS);
            // An empty name switches it off.
            self.dead_letter = (!name.is_empty()).then_some((name, reservations));
        }
        if self.push.is_some() && self.dead_letter.is_some() {
            return Err(ApiError::bad("a push queue has no dead_letter queue: use push.error_queue"));
        }
        Ok(())
    }

    /// Changes who is subscribed.
    ///
    /// # Errors
    /// It is a pull queue, or would have too many.
    pub fn subscribe(&mut self, change: &SubscriberChange) -> Result<(), ApiError> {
        let settings = self.push.as_mut().ok_or_else(ApiError::no_push_queue)?;
        match change {
            SubscriberChange::Add(more) => push::add(&mut settings.subscribers, more.clone())?,
            SubscriberChange::Replace(all) => settings.subscribers.clone_from(all),
            SubscriberChange::Remove(names) => {
                settings.subscribers.retain(|subscriber| !names.contains(&subscriber.name));
            }
        }
        Ok(())
    }

    /// Changes the alerts.
    ///
    /// # Errors
    /// It is a push queue, one that is to be removed does not exist, or it would have too many.
    pub fn change_alerts(&mut self, change: &AlertChange) -> Result<(), ApiError> {
        self.alerts.change(change)?;
        match self.push.is_some() && !self.alerts.is_empty() {
            true => Err(ApiError::bad("a push queue has no alerts: its messages do not wait in it")),
            false => Ok(()),
        }
    }

    /// The options that the broker keeps with this queue of the project.
    ///
    /// # Errors
    /// The name of the queue of dead messages or of an alert cannot be one, or there is too much.
    pub fn options(&self, project: &str, queue: &str) -> Result<QueueOptions, ApiError> {
        for target in self.alerts.targets() {
            queue_name(project, target)?;
            if target == queue {
                return Err(ApiError::bad("the queue of an alert is to be another queue"));
            }
        }
        let dead_letters = self.dead_letters(project)?;
        let deliveries_max = self.dead_letter.as_ref().map_or(0, |(_, max)| *max as u32);
        let dead = self.dead_letter.as_ref().map(|(name, _)| name);
        let mut document = Value::Object(self.others.clone());
        document["message_timeout"] = json!(self.message_timeout_s);
        document["message_expiration"] = json!(self.message_expiration_s);
        document["dead_letter"] = json!(dead);
        if let Some(push) = &self.push {
            document["type"] = json!(push.kind.name());
            document["push"] = push.shown();
        }
        self.alerts.document(&mut document);
        if self.push.is_some() || !self.alerts.is_empty() {
            document["project"] = json!(project);
        }
        let document = document.to_string();
        if DOCUMENT_BYTES_MAX < document.len() {
            let msg = format!("the settings of a queue take at most {DOCUMENT_BYTES_MAX} bytes in all");
            return Err(ApiError::bad(msg));
        }
        Ok(QueueOptions { deliveries_max, dead_letters, document: Bytes::from(document) })
    }

    /// The broker's name of the queue of dead messages.
    fn dead_letters(&self, project: &str) -> Result<Option<Arc<str>>, ApiError> {
        let Some((name, _)) = &self.dead_letter else { return Ok(None) };
        match self.kept_dead_letters.as_ref().filter(|(kept, _)| kept == name) {
            Some((_, kept)) => Ok(Some(kept.clone())),
            None => queue_name(project, name).map(|name| Some(name.into())),
        }
    }

    /// The queues that the broker writes to for this queue of the project, by the broker's names:
    /// those of subscribers, of failed pushes, of alerts and of dead messages. Names that cannot be
    /// those of queues are left out.
    pub fn targets(&self, project: &str) -> BTreeSet<Arc<str>> {
        let subscribers = self.push.iter().flat_map(|push| &push.subscribers);
        let errors = self.push.iter().filter_map(|push| push.error_queue.as_deref());
        let named = subscribers.filter_map(Subscriber::queue).chain(errors).chain(self.alerts.targets());
        let named = named.filter_map(|name| queue_name(project, name).ok()).map(Arc::from);
        named.chain(self.dead_letters(project).ok().flatten()).collect()
    }

    /// The settings in the options of a queue.
    pub fn of(options: Option<&QueueOptions>) -> Settings {
        let mut settings = Settings::default();
        let Some(options) = options else { return settings };
        let document: Value = serde_json::from_slice(&options.document).unwrap_or_default();
        let number = |name: &str, otherwise| document[name].as_u64().unwrap_or(otherwise);
        settings.message_timeout_s = number("message_timeout", MESSAGE_TIMEOUT_S);
        settings.message_expiration_s = number("message_expiration", EXPIRATION_S);
        settings.alerts = Alerts::of(&document);
        if let Some(dead) = options.dead_letters.as_ref().filter(|_| 0 < options.deliveries_max) {
            // Another front end may have set another one.
            let is_it = |name: &&str| {
                dead.strip_suffix(*name).is_some_and(|project| project.is_empty() || project.ends_with('.'))
            };
            let name = document["dead_letter"].as_str().filter(is_it).unwrap_or(dead).to_owned();
            settings.dead_letter = Some((name.clone(), u64::from(options.deliveries_max)));
            settings.kept_dead_letters = Some((name, dead.clone()));
        }
        if let Value::Object(fields) = &document {
            let is_other = |(name, _): &(&String, &Value)| !FIELDS.contains(&&***name);
            let others = fields.iter().filter(is_other);
            settings.others = others.map(|(name, value)| (name.clone(), value.clone())).collect();
        }
        if let Value::Object(_) = &document["push"] {
            let pushing = json!({ "type": document["type"], "push": document["push"] });
            // Written by this file: it can be read.
            if let Ok(mut fields) = Fields::of(pushing, "the document of a queue") {
                let _ = settings.update(&mut fields, true);
            }
        }
        settings
    }

    /// The project of a queue with subscribers or alerts, as the broker has kept it.
    pub fn project_of(options: &QueueOptions) -> Option<String> {
        let document: Value = serde_json::from_slice(&options.document).ok()?;
        document["project"].as_str().map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(before: Settings, change: Value) -> Settings {
        let (mut settings, is_new) = (before.clone(), before == Settings::default());
        settings.update(&mut Fields::of(change, "queue").unwrap(), is_new).unwrap();
        settings
    }

    #[test]
    fn targets_are_all_queues_that_the_broker_writes_to() {
        let push = json!({
            "subscribers": [
                { "name": "one", "url": "ironmq:///one" },
                { "name": "two", "url": "http://two/" },
                { "name": "no queue", "url": "ironmq:///>" },
            ],
            "error_queue": "errors",
        });
        let pushing = set(Settings::default(), json!({ "type": "multicast", "push": push }));
        let dead = json!({ "dead_letter": { "queue_name": "dead", "max_reservations": 2 } });
        let mut alerting = set(Settings::default(), dead);
        let alert = json!({ "type": "fixed", "trigger": 1, "queue": "alerts" });
        alerting.change_alerts(&AlertChange::Add(Alerts::parse(vec![alert]).unwrap())).unwrap();
        let kept = alerting.options("p", "q").unwrap();
        for (case, settings, project, want) in [
            ("none", &Settings::default(), "p", &[][..]),
            ("push", &pushing, "p", &["p.errors", "p.one"]),
            ("push in the default project", &pushing, "default", &["errors", "one"]),
            ("alerts and dead letters", &alerting, "p", &["p.alerts", "p.dead"]),
            (
                "the queue of dead letters keeps its name",
                &Settings::of(Some(&kept)),
                "x",
                &["p.dead", "x.alerts"],
            ),
        ] {
            let targets = settings.targets(project);
            assert_eq!(targets.iter().map(|name| &**name).collect::<Vec<_>>(), want, "case: {case}");
        }
    }
}
