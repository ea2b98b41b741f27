//! Notifications: one for each rule and round in which alerts of it began to fire or were resolved.
//!
//! Each recipient has a queue and a task of its own, so that an endpoint that does not answer holds
//! up no other. A notification that fails is sent again with growing pauses, and is given up in the
//! end.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use postroad_model::portable::{Body, Headers, Id, Map, Portable};
use postroad_model::{Destination, NORMAL_PRIORITY, Sent};
use postroad_node::{ClientOptions, Clients, write_message};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::Alerts;
use super::rule::{AlertRule, Recipient};
use super::state::Change;

/// Changes that one notification lists; it has the number of the others.
const CHANGES_MAX: usize = 100;

/// Changes of one rule and round that have a line in the log.
const LINES_MAX: usize = 10;

/// Notifications that wait for one recipient; the newest are given up beyond that.
const WAITING_MAX: usize = 100;

/// Attempts for each notification.
const ATTEMPTS_MAX: u32 = 8;

/// The pause after the first attempt, and the longest; each is twice as long as the one before.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// An attempt takes no longer.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(10);

/// The answer to a request: why it failed, if it did.
pub type Posted = Pin<Box<dyn Future<Output = Result<(), String>> + Send>>;

/// Posts a JSON document to a URL.
pub type Post = Arc<dyn Fn(String, String) -> Posted + Send + Sync>;

/// How notifications leave the broker.
#[derive(Clone)]
pub struct NotificationTargets {
    pub broker_name: String,
    pub post: Post,
    pub clients: Clients,
}

/// See the head of this file.
pub struct Notifier {
    outlets: NotificationTargets,
    alerts: Alerts,
    recipients: BTreeMap<Recipient, mpsc::Sender<Arc<Notification>>>,
    /// Notifications so far.
    sent: u64,
}

/// A notification on its way.
struct Notification {
    id: String,
    at_ms: u64,
    text: String,
}

impl Notifier {
    pub fn new(outlets: NotificationTargets, alerts: Alerts) -> Notifier {
        Notifier { outlets, alerts, recipients: BTreeMap::new(), sent: 0 }
    }

    /// Ends the tasks of recipients that no rule names any more, once they are done.
    pub fn retain(&mut self, rules: &[AlertRule]) {
        self.recipients.retain(|recipient, _| rules.iter().any(|rule| rule.to.contains(recipient)));
    }

    /// Notifies the recipients of a rule.
    pub fn notify(&mut self, rule: &AlertRule, changes: &[Change], now_ms: u64) {
        if changes.is_empty() {
            return;
        }
        let text = self.document(rule, changes, now_ms).to_string();
        self.sent += 1;
        let id = format!("ID:postroad-alert-{now_ms:x}-{}", self.sent);
        let notification = Arc::new(Notification { id, at_ms: now_ms, text });
        for recipient in &rule.to {
            if *recipient == Recipient::Log {
                log(rule, changes);
                continue;
            }
            let sender = self.recipient(recipient);
            if sender.try_send(notification.clone()).is_err() {
                self.alerts.note_undelivered();
                tracing::warn!(alert = %rule.name, ?recipient, "a notification is given up: {WAITING_MAX} wait already");
            }
        }
    }

    fn document(&self, rule: &AlertRule, changes: &[Change], now_ms: u64) -> Value {
        let listed: Vec<Listed> =
            changes.iter().take(CHANGES_MAX).map(|change| Listed::of(rule, change)).collect();
        json!({
            "broker": self.outlets.broker_name,
            "alert": &*rule.name,
            "severity": rule.severity,
            "on": rule.on,
            "above": rule.above,
            "at_ms": now_ms,
            "changes": listed,
            "more_changes": changes.len().saturating_sub(CHANGES_MAX),
        })
    }

    fn recipient(&mut self, recipient: &Recipient) -> &mpsc::Sender<Arc<Notification>> {
        let (outlets, alerts) = (self.outlets.clone(), self.alerts.clone());
        self.recipients.entry(recipient.clone()).or_insert_with(|| {
            let (sender, waiting) = mpsc::channel(WAITING_MAX);
            tokio::spawn(deliver_all(recipient.clone(), waiting, outlets, alerts));
            sender
        })
    }
}

impl Notification {
    /// A text message; each attempt has the same id.
    fn message(&self, to: &Destination) -> Portable {
        Portable {
            properties: Map::default(),
            annotations: Vec::new(),
            headers: Headers {
                message_id: Some(Id::from_jms(&self.id.as_str().into())),
                destination: Some(to.clone()),
                timestamp_ms: i64::try_from(self.at_ms).ok(),
                priority: NORMAL_PRIORITY,
                persistent: true,
                ..Headers::default()
            },
            body: Body::Text(Some(self.text.as_str().into())),
        }
    }
}

/// A change in a notification.
#[derive(Serialize)]
struct Listed {
    subject: String,
    state: &'static str,
    value: u64,
    since_ms: u64,
    text: String,
}

impl Listed {
    fn of(rule: &AlertRule, change: &Change) -> Listed {
        Listed {
            subject: change.subject.to_string(),
            state: if change.fires { "firing" } else { "resolved" },
            value: change.value,
            since_ms: change.since_ms,
            text: format!("{}: {}", change.subject, rule.on.text(change.value)),
        }
    }
}

fn log(rule: &AlertRule, changes: &[Change]) {
    for change in changes.iter().take(LINES_MAX) {
        let (alert, severity, subject) = (&*rule.name, rule.severity.name(), &*change.subject);
        let text = rule.on.text(change.value);
        match change.fires {
            true => tracing::warn!(alert, severity, subject, "alert fires: {text}"),
            false => tracing::info!(alert, severity, subject, "alert is resolved: {text}"),
        }
    }
    if LINES_MAX < changes.len() {
        tracing::warn!(alert = %rule.name, "alert changes for {} more", changes.len() - LINES_MAX);
    }
}

async fn deliver_all(
    recipient: Recipient,
    mut waiting: mpsc::Receiver<Arc<Notification>>,
    outlets: NotificationTargets,
    alerts: Alerts,
) {
    while let Some(notification) = waiting.recv().await {
        if let Err(error) = deliver(&recipient, &notification, &outlets).await {
            alerts.note_undelivered();
            tracing::warn!(?recipient, error, "a notification is given up after {ATTEMPTS_MAX} attempts");
        }
    }
}

/// Tries until it arrives, or often enough.
async fn deliver(
    recipient: &Recipient,
    notification: &Notification,
    outlets: &NotificationTargets,
) -> Result<(), String> {
    let mut pause = PAUSE.0;
    for attempt in 1..=ATTEMPTS_MAX {
        let tried = tokio::time::timeout(ATTEMPT_WITHIN, attempt_of(recipient, notification, outlets)).await;
        let silent = || format!("no answer within {} seconds", ATTEMPT_WITHIN.as_secs());
        let error = match tried.unwrap_or_else(|_| Err(silent())) {
            Ok(()) => return Ok(()),
            Err(error) if attempt == ATTEMPTS_MAX => return Err(error),
            Err(error) => error,
        };
        tracing::debug!(?recipient, attempt, error, "a notification failed; it is sent again");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE.1);
    }
    Ok(())
}

async fn attempt_of(
    recipient: &Recipient,
    notification: &Notification,
    outlets: &NotificationTargets,
) -> Result<(), String> {
    match recipient {
        Recipient::Log => Ok(()),
        Recipient::Webhook(url) => (outlets.post)(url.clone(), notification.text.clone()).await,
        Recipient::Destination(to) => send(to, notification, &outlets.clients).await,
    }
}

async fn send(to: &Destination, notification: &Notification, clients: &Clients) -> Result<(), String> {
    let client = clients.connect(ClientOptions::named("alerts")).await.map_err(|error| error.to_string())?;
    client
        .publish(Sent::new(to.clone(), write_message(&notification.message(to))))
        .await
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::super::rule::{Measure, Severity};
    use super::*;

    fn rule(to: Vec<Recipient>) -> AlertRule {
        AlertRule {
            name: "deep".into(),
            severity: Severity::Critical,
            on: Measure::Depth,
            destinations: Vec::new(),
            above: 5,
            clear_at: 5,
            lasts: Duration::ZERO,
            to,
        }
    }

    fn change(subject: &str) -> Change {
        Change { subject: subject.into(), fires: true, value: 7, since_ms: 3 }
    }

    /// Answers in turn, and then with success; and the posted documents.
    type Answers = Arc<Mutex<(Vec<Result<(), String>>, Vec<String>)>>;

    fn notifier(answers: &Answers) -> Notifier {
        let answers = answers.clone();
        let post: Post = Arc::new(move |_, body| {
            let mut answers = answers.lock().unwrap();
            answers.1.push(body);
            let answer = if answers.0.is_empty() { Ok(()) } else { answers.0.remove(0) };
            Box::pin(async move { answer })
        });
        let (clients, _) = Clients::over(1);
        let outlets = NotificationTargets { broker_name: "one".to_owned(), post, clients };
        Notifier::new(outlets, Alerts::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_webhook_that_fails_is_tried_again_and_given_up_in_the_end() {
        for (case, failures, posted, undelivered) in
            [("at once", 0, 1, 0), ("after two failures", 2, 3, 0), ("never", 100, 8, 1)]
        {
            let answers = Answers::default();
            answers.lock().unwrap().0 = vec![Err("refused".to_owned()); failures];
            let mut notifier = notifier(&answers);
            let rule = rule(vec![Recipient::Webhook("http://a/".to_owned())]);
            notifier.notify(&rule, &[change("queue://a")], 9);
            tokio::time::sleep(Duration::from_secs(600)).await;
            assert_eq!(answers.lock().unwrap().1.len(), posted, "case: {case}");
            assert_eq!(notifier.alerts.undelivered(), undelivered, "case: {case}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn notifications_that_wait_are_bounded() {
        let answers = Answers::default();
        let mut notifier = notifier(&answers);
        let rule = rule(vec![Recipient::Webhook("http://a/".to_owned())]);
        for _ in 0..WAITING_MAX + 3 {
            notifier.notify(&rule, &[change("queue://a")], 9);
        }
        assert_eq!(notifier.alerts.undelivered(), 3);
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(answers.lock().unwrap().1.len(), WAITING_MAX);
    }

    #[tokio::test]
    async fn a_notification_lists_some_changes_and_counts_the_others() {
        let notifier = notifier(&Answers::default());
        let changes: Vec<Change> =
            (0..CHANGES_MAX + 2).map(|number| change(&format!("queue://{number}"))).collect();
        let document = notifier.document(&rule(Vec::new()), &changes, 9);
        assert_eq!(document["changes"].as_array().map(Vec::len), Some(CHANGES_MAX));
        assert_eq!((&document["more_changes"], &document["severity"]), (&json!(2), &json!("critical")));
        let first = json!({
            "subject": "queue://0", "state": "firing", "value": 7, "since_ms": 3,
            "text": "queue://0: 7 messages are in it",
        });
        assert_eq!(document["changes"][0], first);
    }
}
