//! Settings of a queue: what clients set, and what the broker keeps with it.

use bytes::Bytes;
use postroad_model::QueueOptions;
use serde_json::json;

use crate::ApiError;
use crate::fields::Fields;
use crate::id::queue_name;

/// Seconds that a reservation lasts by default.
const MESSAGE_TIMEOUT_S: u64 = 60;
/// Seconds that a reservation lasts at most.
pub(crate) const TIMEOUT_S_MAX: u64 = 86_400;
/// Seconds that a message lives by default, and that it may be delayed: a week.
pub(crate) const EXPIRATION_S: u64 = 604_800;
/// Seconds that a message may live.
const EXPIRATION_S_MAX: u64 = 2_592_000;
/// Reservations before a message is dead, by default.
const RESERVATIONS: u64 = 10;

/// Settings of a pull queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Seconds that a reservation lasts.
    pub message_timeout_s: u64,
    /// Seconds that a message lives.
    pub message_expiration_s: u64,
    /// The queue of dead messages, and the reservations before one is dead.
    pub dead_letter: Option<(String, u64)>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            message_timeout_s: MESSAGE_TIMEOUT_S,
            message_expiration_s: EXPIRATION_S,
            dead_letter: None,
        }
    }
}

impl Settings {
    /// Takes over what a request sets, and leaves the rest.
    pub(crate) fn update(&mut self, fields: &mut Fields) -> Result<(), ApiError> {
        if let Some(kind) = fields.text("type")?.filter(|kind| kind != "pull") {
            return Err(ApiError {
                status: 400,
                msg: format!("queues of type {kind} are not supported: only pull"),
            });
        }
        for name in ["push", "alerts"] {
            if fields.take(name).is_some() {
                return Err(ApiError { status: 400, msg: format!("{name} is not supported") });
            }
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
        Ok(())
    }

    /// What the broker keeps with a queue of this project.
    ///
    /// # Errors
    /// The name of the queue of dead messages cannot be one.
    pub fn options(&self, project: &str) -> Result<QueueOptions, ApiError> {
        let (dead_letters, deliveries_max) = match &self.dead_letter {
            Some((name, max)) => (Some(queue_name(project, name)?.into()), *max as u32),
            None => (None, 0),
        };
        let dead = self.dead_letter.as_ref().map(|(name, _)| name);
        let document = json!({
            "message_timeout": self.message_timeout_s,
            "message_expiration": self.message_expiration_s,
            "dead_letter": dead,
        });
        Ok(QueueOptions { deliveries_max, dead_letters, document: Bytes::from(document.to_string()) })
    }

    /// What the broker has kept.
    pub fn of(options: Option<&QueueOptions>) -> Settings {
        let mut settings = Settings::default();
        let Some(options) = options else { return settings };
        let document: serde_json::Value = serde_json::from_slice(&options.document).unwrap_or_default();
        let number = |name: &str, otherwise| document[name].as_u64().unwrap_or(otherwise);
        settings.message_timeout_s = number("message_timeout", MESSAGE_TIMEOUT_S);
        settings.message_expiration_s = number("message_expiration", EXPIRATION_S);
        let dead = document["dead_letter"].as_str();
        settings.dead_letter = dead.map(|name| (name.to_owned(), u64::from(options.deliveries_max)));
        settings
    }
}
