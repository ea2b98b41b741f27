//! Names and ids: queue names, ARNs, URLs, receipt handles, message ids.

use bytes::Bytes;
use data_encoding::{BASE64URL_NOPAD, HEXLOWER};
use postroad_model::portable::{Id, uuid_text};
use postroad_model::{EntryTag, LeaseId, QueueId};

use crate::error::{Code, SqsError};
use crate::md5;

/// The account of all queues, in URLs and ARNs.
pub const ACCOUNT: &str = "000000000000";

/// The start of all ARNs: the same for every client, whatever region it names.
const ARN: &str = "arn:aws:sqs:us-east-1:000000000000:";

/// Characters of a queue's name, with the suffix of FIFO queues.
const NAME_CHARS_MAX: usize = 80;

/// The names of FIFO queues end so.
const FIFO_SUFFIX: &str = ".fifo";

/// Whether queues of this name are FIFO queues.
pub fn is_fifo(name: &str) -> bool {
    name.ends_with(FIFO_SUFFIX)
}

/// Whether a queue of the broker has a name that SQS allows.
pub fn is_queue_name(name: &str) -> bool {
    let stem = name.strip_suffix(FIFO_SUFFIX).unwrap_or(name);
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    !stem.is_empty() && name.len() <= NAME_CHARS_MAX && stem.chars().all(is_good)
}

/// The name of a queue that is to be made or looked up.
///
/// # Errors
/// No queue can have it.
pub fn checked_name(name: String) -> Result<String, SqsError> {
    if is_queue_name(&name) {
        return Ok(name);
    }
    let reason = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length; the \
                  name of a FIFO queue ends in .fifo";
    Err(SqsError::invalid("QueueName", &name, reason))
}

/// The URL of a queue at the host that the client has asked.
pub fn queue_url(scheme: &str, host: &str, name: &str) -> String {
    format!("{scheme}://{host}/{ACCOUNT}/{name}")
}

/// The queue of a URL, or of the path of one: `/ACCOUNT/NAME`.
///
/// # Errors
/// It is no URL of a queue.
pub fn queue_of_url(url: &str) -> Result<String, SqsError> {
    let path = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (above, name) = path.rsplit_once('/').unwrap_or(("", path));
    let account = above.rsplit('/').next().unwrap_or_default();
    let is_account = !account.is_empty() && account.bytes().all(|byte| byte.is_ascii_digit());
    // A name alone is taken too, as some clients give it.
    if name.is_empty() || !is_account && !above.is_empty() {
        let message =
            format!("The address {url} is not valid for this endpoint: it ends in /{ACCOUNT}/NAME.");
        return Err(Code::InvalidAddress.because(message));
    }
    // Percent-encoded, as no name of a queue is, it does not exist.
    if is_queue_name(name) { Ok(name.to_owned()) } else { Err(SqsError::no_such_queue()) }
}

/// The ARN of a queue.
pub fn arn(name: &str) -> String {
    format!("{ARN}{name}")
}

/// The queue of an ARN of any region and account: clients configure them with those they know.
pub fn queue_of_arn(arn: &str) -> Option<String> {
    let mut parts = arn.split(':');
    let fixed = [parts.next()?, parts.next()?, parts.next()?];
    let (_region, _account, name) = (parts.next()?, parts.next()?, parts.next()?);
    let is_arn = fixed[0] == "arn" && fixed[2] == "sqs" && parts.next().is_none();
    (is_arn && is_queue_name(name)).then(|| name.to_owned())
}

/// The receipt of one delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// The queue.
    pub queue: QueueId,
    /// The entry.
    pub tag: EntryTag,
    /// The lease.
    pub lease: LeaseId,
    /// When it was received, in milliseconds since 1970.
    pub received_ms: u64,
}

/// The version of receipt handles, and their bytes with a checksum.
const RECEIPT_VERSION: u8 = 1;
const RECEIPT_BYTES: usize = 1 + 4 * 8;
const CHECK_BYTES: usize = 4;

impl Receipt {
    /// As a client gets it.
    pub fn to_handle(self) -> String {
        let mut bytes = vec![RECEIPT_VERSION];
        for number in [self.queue.0, self.tag.0, self.lease.0, self.received_ms] {
            bytes.extend_from_slice(&number.to_be_bytes());
        }
        let check = md5(&bytes);
        bytes.extend_from_slice(&check[..CHECK_BYTES]);
        BASE64URL_NOPAD.encode(&bytes)
    }

    /// As a client gives it back.
    ///
    /// # Errors
    /// It was not made by [`Receipt::to_handle`].
    pub fn parse(handle: &str) -> Result<Receipt, SqsError> {
        let wrong = || {
            let shown: String = handle.chars().take(100).collect();
            Code::ReceiptHandleIsInvalid
                .because(format!("The input receipt handle \"{shown}\" is not valid."))
        };
        let bytes = BASE64URL_NOPAD.decode(handle.as_bytes()).map_err(|_| wrong())?;
        let (body, check) = bytes.split_at_checked(RECEIPT_BYTES).ok_or_else(wrong)?;
        if body[0] != RECEIPT_VERSION || md5(body)[..CHECK_BYTES] != *check {
            return Err(wrong());
        }
        let mut numbers = body[1..]
            .chunks_exact(8)
            .map(|bytes| bytes.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)));
        let mut next = || numbers.next().ok_or_else(wrong);
        let (queue, tag) = (QueueId(next()?), EntryTag(next()?));
        Ok(Receipt { queue, tag, lease: LeaseId(next()?), received_ms: next()? })
    }
}

/// The id of a message in the form of SQS: its own, or one made of it.
pub fn message_id(id: Option<&Id>, queue: QueueId, tag: EntryTag) -> String {
    let made = match id {
        Some(Id::Uuid(uuid)) => *uuid,
        Some(id) => match id.to_jms_message_id().as_str() {
            // As OpenWire clients forward it.
            text if text.starts_with("ID:AMQP_UUID:") => match Id::from_jms(&text.into()) {
                Id::Uuid(uuid) => uuid,
                _ => md5(text.as_bytes()),
            },
            text => md5(text.as_bytes()),
        },
        None => md5(&[queue.0.to_be_bytes(), tag.0.to_be_bytes()].concat()),
    };
    uuid_text(&made)
}

/// A message id of random bytes (RFC 9562, version 4).
pub fn random_id(mut random: [u8; 16]) -> Id {
    random[6] = random[6] & 0x0f | 0x40;
    random[8] = random[8] & 0x3f | 0x80;
    Id::Uuid(random)
}

/// The sequence number of a message in a FIFO queue: rises within the queue.
pub fn sequence_number(tag: EntryTag) -> String {
    format!("{:020}", tag.0)
}

/// The MD5 digest of bytes in the form of SQS.
pub fn md5_hex(bytes: &[u8]) -> String {
    HEXLOWER.encode(&md5(bytes))
}

/// A handle of a message move task: the source queue, and the number of the task.
pub fn task_handle(source: &str, number: u64) -> String {
    BASE64URL_NOPAD.encode(format!("{number} {source}").as_bytes())
}

/// The source queue and the number of a task.
pub fn parse_task_handle(handle: &str) -> Option<(String, u64)> {
    let text = Bytes::from(BASE64URL_NOPAD.decode(handle.as_bytes()).ok()?);
    let (number, source) = std::str::from_utf8(&text).ok()?.split_once(' ')?;
    is_queue_name(source).then(|| number.parse().ok().map(|number| (source.to_owned(), number)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_and_arns_name_a_queue() {
        for (url, want) in [
            ("http://h:8161/000000000000/q", Ok("q")),
            ("https://sqs.eu-west-1.amazonaws.com/123456789012/q.fifo", Ok("q.fifo")),
            ("/000000000000/q", Ok("q")),
            ("q", Ok("q")),
            ("http://h/queue/q", Err(Code::InvalidAddress)),
            ("http://h/000000000000/", Err(Code::InvalidAddress)),
            ("http://h/000000000000/a%20b", Err(Code::QueueDoesNotExist)),
        ] {
            let got = queue_of_url(url);
            assert_eq!(got.as_deref().map_err(|error| error.code), want, "{url}");
        }
        assert_eq!(queue_of_arn(&arn("q.fifo")).as_deref(), Some("q.fifo"));
        assert_eq!(queue_of_arn("arn:aws-cn:sqs:cn-north-1:1:q").as_deref(), Some("q"));
        for wrong in ["", "q", "arn:aws:sns:us-east-1:1:q", "arn:aws:sqs:us-east-1:1:q:x", "arn:aws:sqs::"] {
            assert_eq!(queue_of_arn(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn queue_names_are_those_of_sqs() {
        for (name, good) in [
            ("a", true),
            ("a-b_C9.fifo", true),
            ("", false),
            (".fifo", false),
            ("a.b", false),
            ("a b", false),
            (&"x".repeat(80), true),
            (&"x".repeat(81), false),
        ] {
            assert_eq!(is_queue_name(name), good, "{name}");
        }
    }

    #[test]
    fn receipts_come_back_and_others_are_refused() {
        let receipt =
            Receipt { queue: QueueId(7), tag: EntryTag(u64::MAX), lease: LeaseId(9), received_ms: 1 << 40 };
        let handle = receipt.to_handle();
        assert_eq!(Receipt::parse(&handle), Ok(receipt));
        let changed = handle.replacen('A', "B", 1);
        for wrong in ["", "x", "größe", &changed, &handle[1..]] {
            assert_eq!(Receipt::parse(wrong).map_err(|error| error.code), Err(Code::ReceiptHandleIsInvalid));
        }
    }

    #[test]
    fn ids_of_messages_are_uuids() {
        let (queue, tag) = (QueueId(1), EntryTag(2));
        let own = random_id([0xff; 16]);
        assert_eq!(message_id(Some(&own), queue, tag), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        let forwarded = Id::Text(own.to_jms_message_id());
        assert_ne!(message_id(Some(&forwarded), queue, tag), "");
        assert_ne!(message_id(None, queue, tag), message_id(None, queue, EntryTag(3)));
        let text = Id::Text("ID:host-1".into());
        assert_eq!(message_id(Some(&text), queue, tag), message_id(Some(&text), QueueId(5), tag));
        assert_eq!(parse_task_handle(&task_handle("q", 5)), Some(("q".to_owned(), 5)));
        assert_eq!(parse_task_handle("x"), None);
    }
}
