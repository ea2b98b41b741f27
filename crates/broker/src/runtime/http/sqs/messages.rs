//! Messages: send, receive, delete, and change their visibility.

use std::collections::BTreeMap;
use std::sync::Arc;

use postroad_model::portable::Portable;
use postroad_model::{
    Destination, EntryTag, Handle, HandleAction, HandleEntries, LeaseAnswer, LeaseEvent, Message, QueueId,
    Reserve, Reserved, Stale, Take,
};
use postroad_node::{read_portable, write_message};
use postroad_sqs::{
    Code, Entry, MESSAGE_BYTES_MAX, NewMessage, Receipt, Receive, Settings, SqsError, Visibility, batch,
    is_fifo, list, random_id, received,
};
use serde_json::{Value, json};

use super::super::client::passed_over;
use super::super::stored::as_text;
use super::{Asked, ask, now_ms, random};

/// Milliseconds that a message stays invisible from its receive, at most.
const INVISIBLE_MS_MAX: u64 = 43_200_000;

impl Asked<'_> {
    pub(super) async fn send(&self, queue: &str, message: NewMessage) -> Result<Value, SqsError> {
        let settings = Settings::of(self.describe(queue).await?.options.as_ref());
        message.check(queue, &settings)?;
        let mut answers = self.post(queue, &settings, vec![message]).await?;
        answers.pop().ok_or_else(SqsError::no_such_queue)
    }

    pub(super) async fn send_batch(
        &self,
        queue: &str,
        entries: Vec<Entry<NewMessage>>,
    ) -> Result<Value, SqsError> {
        let settings = Settings::of(self.describe(queue).await?.options.as_ref());
        let (mut good, mut ids, mut results) = (Vec::new(), Vec::new(), Vec::new());
        for Entry { id, content } in entries {
            let checked = content.and_then(|message| message.check(queue, &settings).map(|()| message));
            match checked {
                Ok(message) => {
                    good.push(message);
                    ids.push(id);
                }
                Err(error) => results.push((id, Err(error))),
            }
        }
        if !good.is_empty() {
            let answers = self.post(queue, &settings, good).await?;
            results.extend(ids.into_iter().zip(answers.into_iter().map(Ok)));
        }
        Ok(batch(results))
    }

    /// Sends messages, all or none, and answers for each.
    async fn post(
        &self,
        queue: &str,
        settings: &Settings,
        messages: Vec<NewMessage>,
    ) -> Result<Vec<Value>, SqsError> {
        let now_ms = now_ms();
        let (mut sent, mut posted) = (Vec::new(), Vec::new());
        for message in messages {
            let id = random_id(random()?);
            sent.push(message.sent(id.clone()));
            posted.push(self.stored(queue, settings, (message, id), now_ms));
        }
        let answers = self.client.post(Destination::queue(queue), posted).await;
        let Some(answers) = answers.map_err(|refusal| SqsError::of_refusal(&refusal))? else {
            // They may be in any number of queues: numbers that grow take the places of their
            // entries.
            let tags = (0..).map(|index| EntryTag(now_ms << 16 | index));
            let answers =
                sent.into_iter().zip(tags).map(|(sent, tag)| sent.to_answer(queue, (QueueId(0), tag)));
            return Ok(answers.collect());
        };
        let at = answers.into_iter().find_map(|answer| match answer {
            LeaseAnswer::Posted { queue, first, duplicates } => Some((queue, first, duplicates)),
            _ => None,
        });
        let (id, first, duplicates) = at.ok_or_else(SqsError::no_such_queue)?;
        let mut tags = first.0..;
        let answer = |(index, sent): (usize, postroad_sqs::Sent)| match duplicates
            .iter()
            .find(|duplicate| duplicate.index == index)
        {
            Some(first) => sent.of_first(first.id).to_answer(queue, (id, first.tag)),
            None => sent.to_answer(queue, (id, EntryTag(tags.next().unwrap_or_default()))),
        };
        Ok(sent.into_iter().enumerate().map(answer).collect())
    }

    fn stored(
        &self,
        queue: &str,
        settings: &Settings,
        (message, id): (NewMessage, postroad_model::portable::Id),
        now_ms: u64,
    ) -> Message {
        let delay_s = message.delay_s.unwrap_or_else(|| settings.delay_s());
        let ends_ms = now_ms + settings.retention_s() * 1000;
        let visible_at_ms = if delay_s == 0 { 0 } else { now_ms + delay_s * 1000 };
        let deduplication = message.deduplication(queue, settings, &id, now_ms);
        let portable = message.portable(queue, id, self.user.as_deref(), (now_ms, ends_ms));
        write_message(&portable).with_visible_at_ms(visible_at_ms).with_deduplication(deduplication)
    }

    pub(super) async fn receive(&self, queue: &str, receive: &Receive) -> Result<Value, SqsError> {
        let settings = Settings::of(self.describe(queue).await?.options.as_ref());
        let lasts_ms = receive.visibility_s.unwrap_or_else(|| settings.visibility_s()) * 1000;
        let wait_ms = receive.wait_s.unwrap_or_else(|| settings.wait_s()) * 1000;
        let (name, messages_max, selector) =
            (Destination::queue(queue), receive.messages_max, Arc::default());
        let reserve = |connection, ticket| {
            let (queue, take) = (name, Take::Lease { lasts_ms });
            Reserve { connection, ticket, queue, messages_max, selector, wait_ms, take }
        };
        let messages = self.client.reserve_whole(reserve, MESSAGE_BYTES_MAX).await;
        let messages = messages.map_err(|refusal| SqsError::of_refusal(&refusal))?;
        let received_ms = now_ms();
        let shown = messages.iter().filter_map(|message| shown(queue, message, received_ms, receive));
        Ok(list("Messages", shown.collect(), None))
    }

    pub(super) async fn delete(&self, queue: &str, one: (String, Receipt)) -> Result<Value, SqsError> {
        let mut results = self.delete_all(queue, vec![one]).await?;
        results.pop().unwrap_or(Ok(())).map(|()| Value::Null)
    }

    pub(super) async fn delete_batch(
        &self,
        queue: &str,
        entries: Vec<Entry<(String, Receipt)>>,
    ) -> Result<Value, SqsError> {
        let (ids, good, mut results) = parted(entries);
        let deleted = self.delete_all(queue, good).await?;
        results.extend(ids.into_iter().zip(deleted.into_iter().map(|result| result.map(|()| json!({})))));
        Ok(batch(results))
    }

    /// Deletes messages. In a standard queue an old receipt handle is no error: the message is
    /// gone, or was received again.
    async fn delete_all(
        &self,
        queue: &str,
        receipts: Vec<(String, Receipt)>,
    ) -> Result<Vec<Result<(), SqsError>>, SqsError> {
        let action = HandleAction::Delete { even_expired: !is_fifo(queue) };
        let handles: Vec<String> = receipts.iter().map(|(handle, _)| handle.clone()).collect();
        let results = self.handle(queue, receipts, action).await?;
        let answer = |(handle, result): (String, Result<(), Ended>)| match result {
            Err(Ended::OfAnotherQueue) => Err(of_another_queue(&handle)),
            Err(Ended::Stale(Stale::Expired | Stale::Taken)) if is_fifo(queue) => {
                Err(SqsError::invalid("ReceiptHandle", &handle, "The receipt handle has expired"))
            }
            Ok(()) | Err(Ended::Stale(_)) => Ok(()),
        };
        Ok(handles.into_iter().zip(results).map(answer).collect())
    }

    pub(super) async fn change_visibility(&self, queue: &str, change: Visibility) -> Result<Value, SqsError> {
        let mut results = self.change_all(queue, vec![change]).await?;
        results.pop().unwrap_or(Ok(())).map(|()| Value::Null)
    }

    pub(super) async fn change_visibilities(
        &self,
        queue: &str,
        entries: Vec<Entry<Visibility>>,
    ) -> Result<Value, SqsError> {
        let (ids, good, mut results) = parted(entries);
        let changed = self.change_all(queue, good).await?;
        results.extend(ids.into_iter().zip(changed.into_iter().map(|result| result.map(|()| json!({})))));
        Ok(batch(results))
    }

    async fn change_all(
        &self,
        queue: &str,
        changes: Vec<Visibility>,
    ) -> Result<Vec<Result<(), SqsError>>, SqsError> {
        let now_ms = now_ms();
        let mut results: Vec<Result<(), SqsError>> = Vec::new();
        let mut by_timeout: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (index, (_, receipt, timeout_s)) in changes.iter().enumerate() {
            if receipt.received_ms + INVISIBLE_MS_MAX < now_ms + timeout_s * 1000 {
                let reason = "Total VisibilityTimeout for the message is beyond the limit [43200 seconds]";
                results.push(Err(SqsError::invalid("VisibilityTimeout", &timeout_s.to_string(), reason)));
            } else {
                results.push(Ok(()));
                by_timeout.entry(*timeout_s).or_default().push(index);
            }
        }
        for (timeout_s, indices) in by_timeout {
            let action = match timeout_s {
                0 => HandleAction::Release { delay_ms: 0 },
                _ => HandleAction::Extend { lasts_ms: timeout_s * 1000 },
            };
            let receipts =
                indices.iter().map(|index| (changes[*index].0.clone(), changes[*index].1)).collect();
            let handled = self.handle(queue, receipts, action).await?;
            for (index, result) in indices.into_iter().zip(handled) {
                let handle = &changes[index].0;
                results[index] = result.map_err(|ended| match ended {
                    Ended::OfAnotherQueue => of_another_queue(handle),
                    Ended::Stale(stale) => SqsError::of_stale(stale, handle),
                });
            }
        }
        Ok(results)
    }

    /// Has something done with received messages.
    async fn handle(
        &self,
        queue: &str,
        receipts: Vec<(String, Receipt)>,
        action: HandleAction,
    ) -> Result<Vec<Result<(), Ended>>, SqsError> {
        let id = self.describe(queue).await?.queue;
        if receipts.is_empty() {
            return Ok(Vec::new());
        }
        let is_foreign = |receipt: &Receipt| receipt.queue != id;
        let foreign: Vec<bool> = receipts.iter().map(|(_, receipt)| is_foreign(receipt)).collect();
        let handles = receipts.iter().map(|(_, receipt)| handle_of(receipt)).collect();
        let queue = Destination::queue(queue);
        let event = |connection, ticket| {
            let all_or_none = false;
            LeaseEvent::Handle(HandleEntries { queue, connection, ticket, handles, action, all_or_none })
        };
        let mut handled = Vec::new();
        for answer in ask(&self.client, event).await? {
            if let LeaseAnswer::Handled(results) = answer {
                handled.extend(results);
            }
        }
        let results = handled.into_iter().zip(foreign).map(|(result, is_foreign)| match is_foreign {
            true => Err(Ended::OfAnotherQueue),
            false => result.map_err(Ended::Stale),
        });
        Ok(results.collect())
    }
}

/// Why a receipt handle does not apply.
enum Ended {
    OfAnotherQueue,
    Stale(Stale),
}

fn of_another_queue(handle: &str) -> SqsError {
    let message = format!("The input receipt handle \"{handle}\" is not valid for this queue.");
    Code::ReceiptHandleIsInvalid.because(message)
}

fn handle_of(receipt: &Receipt) -> Handle {
    Handle { queue: receipt.queue, tag: receipt.tag, lease: Some(receipt.lease) }
}

/// A message as its receiver gets it; `None` if it cannot be read or is too large, which is logged.
fn shown(queue: &str, reserved: &Reserved, received_ms: u64, asked: &Receive) -> Option<Value> {
    let Reserved { queue: id, tag, lease, deliveries, message, .. } = reserved;
    let portable = match read_portable(message) {
        Ok(portable) => Portable { body: as_text(portable.body), ..portable },
        Err(error) => {
            tracing::warn!(queue, %error, "a message cannot be read for SQS");
            return None;
        }
    };
    let receipt = Receipt { queue: QueueId(id.0), tag: *tag, lease: (*lease)?, received_ms };
    let shown = received(queue, receipt, *deliveries, &portable, asked);
    let body_bytes = shown["Body"].as_str().map_or(0, str::len) as u64;
    if MESSAGE_BYTES_MAX < body_bytes {
        passed_over(queue, body_bytes, MESSAGE_BYTES_MAX);
        return None;
    }
    Some(shown)
}

/// Results of the entries of a batch, by their ids.
type Results = Vec<(String, Result<Value, SqsError>)>;

/// The good entries of a batch with their ids, and the results of the others.
fn parted<T>(entries: Vec<Entry<T>>) -> (Vec<String>, Vec<T>, Results) {
    let (mut ids, mut good, mut results) = (Vec::new(), Vec::new(), Vec::new());
    for Entry { id, content } in entries {
        match content {
            Ok(content) => {
                ids.push(id);
                good.push(content);
            }
            Err(error) => results.push((id, Err(error))),
        }
    }
    (ids, good, results)
}
