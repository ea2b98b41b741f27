//! Attributes and tags of queues: as clients set them, and as the broker keeps them with the queue.

use bytes::Bytes;
use postroad_model::QueueOptions;
use serde_json::{Map, Value, json};

use crate::error::{Code, SqsError};
use crate::id::{arn, is_fifo, queue_of_arn};
use crate::params::Texts;
use crate::tasks::Task;

/// The field of the queue's document that is SQS's; others belong to other front ends and are kept.
const FIELD: &str = "sqs";

/// Tags of one queue, and characters of a key and of a value.
const TAGS_MAX: usize = 50;
const TAG_KEY_CHARS_MAX: usize = 128;
const TAG_VALUE_CHARS_MAX: usize = 256;

/// Bytes of a message, at most and by default.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 20;

/// Queues that one dead-letter queue may name in its `RedriveAllowPolicy`.
const ALLOWED_SOURCES_MAX: usize = 10;

/// An attribute that is a number: its name, least and largest value, and default.
const NUMBERS: &[(&str, u64, u64, u64)] = &[
    ("DelaySeconds", 0, 900, 0),
    ("MaximumMessageSize", 1024, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX),
    ("MessageRetentionPeriod", 60, 1_209_600, 345_600),
    ("ReceiveMessageWaitTimeSeconds", 0, 20, 0),
    ("VisibilityTimeout", 0, 43_200, 30),
];

/// An attribute that is one of some words: its name, the words with the default first, and whether
/// it is for FIFO queues.
const WORDS: &[(&str, &[&str], bool)] = &[
    ("SqsManagedSseEnabled", &["false", "true"], false),
    ("ContentBasedDeduplication", &["false", "true"], true),
    ("DeduplicationScope", &["queue", "messageGroup"], true),
    ("FifoThroughputLimit", &["perQueue", "perMessageGroupId"], true),
];

/// Attributes of AWS's own services, which have no place here.
const FOREIGN: &[&str] = &["Policy", "KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds"];

/// Messages of a queue, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueState {
    /// They may be received.
    pub visible: u64,
    /// They were received.
    pub in_flight: u64,
    /// They wait for their delay.
    pub delayed: u64,
}

/// A queue as its clients have set it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The attributes that were set, but for the redrive policy.
    attributes: Texts,
    /// The dead-letter queue, and the receives after which a message goes there.
    pub dead_letter: Option<(String, u32)>,
    /// The tags.
    pub tags: Texts,
    /// When it was made, in seconds since 1970.
    pub created_s: u64,
    /// When its attributes were changed last.
    pub modified_s: u64,
    /// The last message move tasks out of this queue, newest first.
    pub tasks: Vec<Task>,
    /// Fields of other front ends.
    others: Map<String, Value>,
}

impl Settings {
    /// Reads the options that the broker has kept.
    pub fn of(options: Option<&QueueOptions>) -> Settings {
        let Some(options) = options else { return Settings::default() };
        let document = serde_json::from_slice(&options.document).unwrap_or_default();
        let Value::Object(mut others) = document else { return Settings::default() };
        let own = others.remove(FIELD).unwrap_or_default();
        let texts = |value: &Value| -> Texts {
            let pairs = value.as_object().into_iter().flatten();
            pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
        };
        let dead = options.dead_letters.as_ref().filter(|_| 0 < options.deliveries_max);
        Settings {
            attributes: texts(&own["attributes"]),
            dead_letter: dead.map(|name| (name.to_string(), options.deliveries_max)),
            tags: texts(&own["tags"]),
            created_s: own["created"].as_u64().unwrap_or(0),
            modified_s: own["modified"].as_u64().unwrap_or(0),
            tasks: own["tasks"].as_array().into_iter().flatten().filter_map(Task::of_json).collect(),
            others,
        }
    }

    /// The options for the broker to keep.
    pub fn options(&self) -> QueueOptions {
        let mut document = self.others.clone();
        let tasks: Vec<Value> = self.tasks.iter().map(Task::to_json).collect();
        let own = json!({
            "attributes": self.attributes,
            "tags": self.tags,
            "created": self.created_s,
            "modified": self.modified_s,
            "tasks": tasks,
        });
        document.insert(FIELD.to_owned(), own);
        let (dead_letters, deliveries_max) = match &self.dead_letter {
            Some((name, max)) => (Some(name.as_str().into()), *max),
            None => (None, 0),
        };
        QueueOptions {
            deliveries_max,
            dead_letters,
            document: Bytes::from(Value::Object(document).to_string()),
        }
    }

    fn number(&self, name: &str) -> u64 {
        let default = NUMBERS.iter().find(|(known, ..)| *known == name).map_or(0, |(.., default)| *default);
        self.attributes.get(name).and_then(|text| text.parse().ok()).unwrap_or(default)
    }

    /// Seconds that a message is delayed if it does not say so itself.
    pub fn delay_s(&self) -> u64 {
        self.number("DelaySeconds")
    }

    /// Bytes that a message has at most.
    pub fn message_bytes_max(&self) -> u64 {
        self.number("MaximumMessageSize")
    }

    /// Seconds that a message is kept.
    pub fn retention_s(&self) -> u64 {
        self.number("MessageRetentionPeriod")
    }

    /// Seconds that a receive waits if it does not say so itself.
    pub fn wait_s(&self) -> u64 {
        self.number("ReceiveMessageWaitTimeSeconds")
    }

    /// Seconds that a received message stays invisible if the receive does not say so itself.
    pub fn visibility_s(&self) -> u64 {
        self.number("VisibilityTimeout")
    }

    /// Whether the body of a message is its deduplication id.
    pub fn deduplicates_by_content(&self) -> bool {
        self.attributes.get("ContentBasedDeduplication").is_some_and(|word| word == "true")
    }

    /// Whether deduplication ids count within their message group alone.
    pub fn deduplicates_by_group(&self) -> bool {
        self.attributes.get("DeduplicationScope").is_some_and(|word| word == "messageGroup")
    }

    /// Sets attributes of the queue `name`, all or none.
    ///
    /// # Errors
    /// One of them cannot be set, or not so.
    pub fn set(&mut self, name: &str, attributes: &Texts, is_new: bool) -> Result<(), SqsError> {
        let mut changed = self.clone();
        for (attribute, value) in attributes {
            changed.set_one(name, attribute, value, is_new)?;
        }
        if is_new && is_fifo(name) && !attributes.contains_key("FifoQueue") {
            let reason =
                "The name of a queue ends in .fifo if its attribute FifoQueue is true, and only then";
            return Err(SqsError::invalid("QueueName", name, reason));
        }
        *self = changed;
        Ok(())
    }

    fn set_one(&mut self, name: &str, attribute: &str, value: &str, is_new: bool) -> Result<(), SqsError> {
        let wrong = |reason: &str| {
            let message = format!("Invalid value for the parameter {attribute}. Reason: {reason}.");
            Err(Code::InvalidAttributeValue.because(message))
        };
        if let Some((_, min, max, _)) = NUMBERS.iter().find(|(known, ..)| *known == attribute) {
            let is_good = value.parse().is_ok_and(|number: u64| (min..=max).contains(&&number));
            if !is_good {
                return wrong(&format!("Must be a number from {min} to {max}"));
            }
        } else if let Some((_, words, of_fifo)) = WORDS.iter().find(|(known, ..)| *known == attribute) {
            if *of_fifo && !is_fifo(name) {
                let message = format!("Unknown Attribute {attribute}: it is for FIFO queues.");
                return Err(Code::InvalidAttributeName.because(message));
            }
            if !words.contains(&value) {
                return wrong(&format!("Must be {}", words.join(" or ")));
            }
        } else {
            match attribute {
                "FifoQueue" if is_fifo(name) && value == "true" => return Ok(()),
                "FifoQueue" if is_new && is_fifo(name) => {
                    return wrong("The name of the queue ends in .fifo");
                }
                "FifoQueue" => return wrong("The name of a FIFO queue ends in .fifo, and it stays one"),
                "RedrivePolicy" => return self.set_redrive(name, value),
                "RedriveAllowPolicy" if value.is_empty() => {}
                "RedriveAllowPolicy" if Allowed::of(value).is_none() => {
                    return wrong("It is JSON with redrivePermission and, with byQueue, sourceQueueArns");
                }
                "RedriveAllowPolicy" => {}
                _ if FOREIGN.contains(&attribute) && value.is_empty() => return Ok(()),
                _ if FOREIGN.contains(&attribute) => {
                    return wrong("It is not supported here: use the broker's users and its encryption");
                }
                _ => {
                    return Err(Code::InvalidAttributeName.because(format!("Unknown Attribute {attribute}.")));
                }
            }
        }
        // An empty policy is none.
        match value {
            "" => drop(self.attributes.remove(attribute)),
            _ => drop(self.attributes.insert(attribute.to_owned(), value.to_owned())),
        }
        Ok(())
    }

    fn set_redrive(&mut self, name: &str, value: &str) -> Result<(), SqsError> {
        if value.is_empty() {
            self.dead_letter = None;
            return Ok(());
        }
        let wrong = |reason: &str| {
            let message = format!("Value {value} for parameter RedrivePolicy is invalid. Reason: {reason}.");
            Err(Code::InvalidParameterValue.because(message))
        };
        let Some((target, max)) = redrive(value) else {
            return wrong("It is JSON with deadLetterTargetArn and maxReceiveCount, which is from 1 to 1000");
        };
        if is_fifo(&target) != is_fifo(name) {
            return wrong("The dead-letter queue of a FIFO queue is one, and of a standard queue none");
        }
        if target == name {
            return wrong("A queue is not its own dead-letter queue");
        }
        self.dead_letter = Some((target, max));
        Ok(())
    }

    /// Whether a queue that exists has these attributes, as one that would be made with them.
    pub fn has(&self, name: &str, attributes: &Texts) -> Result<(), SqsError> {
        let mut asked = Settings::default();
        asked.set(name, attributes, true)?;
        for attribute in attributes.keys() {
            let same = match attribute.as_str() {
                "RedrivePolicy" => asked.dead_letter == self.dead_letter,
                attribute => asked.value(attribute) == self.value(attribute),
            };
            if !same {
                let message = format!(
                    "A queue already exists with the same name and a different value for attribute {attribute}"
                );
                return Err(Code::QueueNameExists.because(message));
            }
        }
        Ok(())
    }

    /// The value of an attribute that clients set, with its default.
    fn value(&self, attribute: &str) -> Option<String> {
        if let Some(value) = self.attributes.get(attribute) {
            return Some(value.clone());
        }
        let number = NUMBERS.iter().find(|(known, ..)| *known == attribute);
        let word = || WORDS.iter().find(|(known, ..)| *known == attribute);
        match number {
            Some((.., default)) => Some(default.to_string()),
            None => word().map(|(_, words, _)| words[0].to_owned()),
        }
    }

    /// The attributes of the queue `name` that are asked for.
    ///
    /// # Errors
    /// There is no such attribute.
    pub fn asked_for(&self, name: &str, names: &[String], state: QueueState) -> Result<Texts, SqsError> {
        let all = self.all(name, state);
        if names.iter().any(|asked| asked == "All") {
            return Ok(all);
        }
        let is_known = |asked: &str| {
            let of_fifo = WORDS.iter().any(|(known, _, _)| *known == asked);
            let others = ["FifoQueue", "RedrivePolicy", "RedriveAllowPolicy"];
            of_fifo || others.contains(&asked) || FOREIGN.contains(&asked) || all.contains_key(asked)
        };
        if let Some(unknown) = names.iter().find(|asked| !is_known(asked)) {
            return Err(Code::InvalidAttributeName.because(format!("Unknown Attribute {unknown}.")));
        }
        Ok(all.into_iter().filter(|(known, _)| names.contains(known)).collect())
    }

    fn all(&self, name: &str, state: QueueState) -> Texts {
        let mut all = self.attributes.clone();
        for (attribute, .., default) in NUMBERS {
            all.entry((*attribute).to_owned()).or_insert_with(|| default.to_string());
        }
        for (attribute, words, of_fifo) in WORDS {
            if !of_fifo || is_fifo(name) {
                all.entry((*attribute).to_owned()).or_insert_with(|| words[0].to_owned());
            }
        }
        if is_fifo(name) {
            all.insert("FifoQueue".to_owned(), "true".to_owned());
        }
        if let Some((target, max)) = &self.dead_letter {
            let policy = json!({ "deadLetterTargetArn": arn(target), "maxReceiveCount": max });
            all.insert("RedrivePolicy".to_owned(), policy.to_string());
        }
        for (attribute, number) in [
            ("ApproximateNumberOfMessages", state.visible),
            ("ApproximateNumberOfMessagesNotVisible", state.in_flight),
            ("ApproximateNumberOfMessagesDelayed", state.delayed),
            ("CreatedTimestamp", self.created_s),
            ("LastModifiedTimestamp", self.modified_s),
        ] {
            all.insert(attribute.to_owned(), number.to_string());
        }
        all.insert("QueueArn".to_owned(), arn(name));
        all
    }

    /// Whether the queue `source` may have this one as its dead-letter queue.
    pub fn allows_redrive_of(&self, source: &str) -> bool {
        let policy = self.attributes.get("RedriveAllowPolicy").and_then(|text| Allowed::of(text));
        match policy {
            None | Some(Allowed::All) => true,
            Some(Allowed::None) => false,
            Some(Allowed::Some(sources)) => sources.iter().any(|allowed| allowed == source),
        }
    }

    /// Adds tags, or changes them.
    ///
    /// # Errors
    /// There are too many, or one is too long.
    pub fn tag(&mut self, tags: Texts) -> Result<(), SqsError> {
        for (key, value) in &tags {
            let lengths = (key.chars().count(), value.chars().count());
            if lengths.0 == 0 || TAG_KEY_CHARS_MAX < lengths.0 || TAG_VALUE_CHARS_MAX < lengths.1 {
                let reason = "A key has 1 to 128 characters, and a value at most 256";
                return Err(SqsError::invalid("Tags", key, reason));
            }
        }
        let mut all = self.tags.clone();
        all.extend(tags);
        if TAGS_MAX < all.len() {
            let reason = format!("A queue has at most {TAGS_MAX} tags");
            return Err(SqsError::invalid("Tags", &all.len().to_string(), &reason));
        }
        self.tags = all;
        Ok(())
    }
}

/// A redrive policy: the dead-letter queue, and the receives before a message goes there.
fn redrive(text: &str) -> Option<(String, u32)> {
    let policy: Value = serde_json::from_str(text).ok()?;
    let target = queue_of_arn(policy["deadLetterTargetArn"].as_str()?)?;
    let max = &policy["maxReceiveCount"];
    let max = max.as_u64().or_else(|| max.as_str()?.parse().ok())?;
    (1..=1000).contains(&max).then_some((target, max as u32))
}

/// Which queues may have a queue as their dead-letter queue.
enum Allowed {
    All,
    None,
    Some(Vec<String>),
}

impl Allowed {
    fn of(text: &str) -> Option<Allowed> {
        let policy: Value = serde_json::from_str(text).ok()?;
        let sources = policy.get("sourceQueueArns").and_then(Value::as_array);
        match (policy["redrivePermission"].as_str()?, sources) {
            ("allowAll", None) => Some(Allowed::All),
            ("denyAll", None) => Some(Allowed::None),
            ("byQueue", Some(arns)) if (1..=ALLOWED_SOURCES_MAX).contains(&arns.len()) => {
                let names = arns.iter().map(|arn| queue_of_arn(arn.as_str()?));
                names.collect::<Option<_>>().map(Allowed::Some)
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(pairs: &[(&str, &str)]) -> Texts {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn settings_come_back_as_they_were_kept() {
        let mut settings = Settings { created_s: 5, modified_s: 6, ..Settings::default() };
        let policy = r#"{"deadLetterTargetArn":"arn:aws:sqs:eu-west-1:1:dead","maxReceiveCount":"3"}"#;
        settings.set("q", &texts(&[("VisibilityTimeout", "7"), ("RedrivePolicy", policy)]), true).unwrap();
        settings.tag(texts(&[("k", "v")])).unwrap();
        settings.others.insert("message_timeout".to_owned(), json!(60));
        let options = settings.options();
        assert_eq!((options.deliveries_max, options.dead_letters.as_deref()), (3, Some("dead")));
        let again = Settings::of(Some(&options));
        assert_eq!(again, settings);
        assert_eq!(again.visibility_s(), 7);
        let all = again.asked_for("q", &["All".to_owned()], QueueState::default()).unwrap();
        let shown =
            r#"{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:000000000000:dead","maxReceiveCount":3}"#;
        assert_eq!(all["RedrivePolicy"], shown);
        assert_eq!((all["DelaySeconds"].as_str(), all["CreatedTimestamp"].as_str()), ("0", "5"));
        settings.set("q", &texts(&[("RedrivePolicy", "")]), false).unwrap();
        assert_eq!(settings.options().dead_letters, None);
    }

    #[test]
    fn wrong_attributes_are_refused_and_change_nothing() {
        let dead = |name: &str, max: &str| {
            format!(r#"{{"deadLetterTargetArn":"arn:aws:sqs:us-east-1:1:{name}","maxReceiveCount":{max}}}"#)
        };
        let (own, fifo, zero) = (dead("q", "3"), dead("q.fifo", "3"), dead("d", "0"));
        for (name, attribute, value, code) in [
            ("q", "VisibilityTimeout", "43201", Code::InvalidAttributeValue),
            ("q", "VisibilityTimeout", "x", Code::InvalidAttributeValue),
            ("q", "Unknown", "1", Code::InvalidAttributeName),
            ("q", "QueueArn", "x", Code::InvalidAttributeName),
            ("q", "FifoQueue", "true", Code::InvalidAttributeValue),
            ("q.fifo", "FifoQueue", "false", Code::InvalidAttributeValue),
            ("q", "ContentBasedDeduplication", "true", Code::InvalidAttributeName),
            ("q", "Policy", "{}", Code::InvalidAttributeValue),
            ("q", "RedriveAllowPolicy", "{}", Code::InvalidAttributeValue),
            ("q", "RedrivePolicy", "x", Code::InvalidParameterValue),
            ("q", "RedrivePolicy", &own, Code::InvalidParameterValue),
            ("q", "RedrivePolicy", &fifo, Code::InvalidParameterValue),
            ("q", "RedrivePolicy", &zero, Code::InvalidParameterValue),
        ] {
            let mut settings = Settings::default();
            let given = texts(&[("DelaySeconds", "3"), (attribute, value)]);
            let error = settings.set(name, &given, false).unwrap_err();
            assert_eq!(error.code, code, "{attribute} {value}: {}", error.message);
            assert_eq!(settings, Settings::default());
        }
        let error = Settings::default().set("q.fifo", &Texts::new(), true).unwrap_err();
        assert_eq!(error.code, Code::InvalidParameterValue);
    }

    #[test]
    fn a_queue_made_again_is_to_have_the_same_attributes() {
        let mut settings = Settings::default();
        settings.set("q", &texts(&[("DelaySeconds", "3")]), true).unwrap();
        for (given, same) in [
            (texts(&[]), true),
            (texts(&[("DelaySeconds", "3"), ("VisibilityTimeout", "30")]), true),
            (texts(&[("DelaySeconds", "4")]), false),
        ] {
            assert_eq!(settings.has("q", &given).is_ok(), same, "{given:?}");
        }
    }

    #[test]
    fn a_dead_letter_queue_may_choose_its_sources() {
        let by_queue = r#"{"redrivePermission":"byQueue","sourceQueueArns":["arn:aws:sqs:us-east-1:1:a"]}"#;
        for (policy, want) in [
            ("", [true, true]),
            (r#"{"redrivePermission":"allowAll"}"#, [true, true]),
            (r#"{"redrivePermission":"denyAll"}"#, [false, false]),
            (by_queue, [true, false]),
        ] {
            let mut settings = Settings::default();
            settings.set("q", &texts(&[("RedriveAllowPolicy", policy)]), false).unwrap();
            assert_eq!(["a", "b"].map(|source| settings.allows_redrive_of(source)), want, "{policy}");
        }
    }

    #[test]
    fn tags_are_bounded() {
        let mut settings = Settings::default();
        let many = (0..50).map(|number| (number.to_string(), String::new())).collect();
        settings.tag(many).unwrap();
        settings.tag(texts(&[("7", "changed")])).unwrap();
        for (key, value) in [("50", ""), ("", ""), ("7", &*"x".repeat(257))] {
            assert!(settings.tag(texts(&[(key, value)])).is_err(), "{key}");
        }
        assert_eq!(settings.tags["7"], "changed");
    }
}
