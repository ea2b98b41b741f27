//! Batches of 10 as the AWS SDKs send them, in the JSON protocol, without signatures.

use std::borrow::Cow;
use std::sync::atomic::AtomicBool;

use serde::Deserialize;

use super::wire::{HttpError, HttpUrl, Wire, request};
use super::{HttpLoad, SQS_CLIENTS, Sample, Shape, measure};
use crate::ServerTime;

/// Messages of one request: no more are allowed.
const BATCH: usize = 10;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Made {
    queue_url: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Sent {
    successful: Vec<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Received<'a> {
    #[serde(borrow, default)]
    messages: Vec<Message<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Message<'a> {
    #[serde(borrow)]
    receipt_handle: Cow<'a, str>,
}

fn call(action: &str, body: &str) -> Vec<u8> {
    let headers = format!("X-Amz-Target: AmazonSQS.{action}\r\nContent-Type: application/x-amz-json-1.0\r\n");
    request("POST", "/", &headers, body)
}

/// Measures both shapes.
pub fn round(
    plan: &HttpLoad,
    url: &HttpUrl,
    server: Option<ServerTime>,
    run: &str,
    stop: &AtomicBool,
) -> Result<Vec<(Shape, Sample)>, HttpError> {
    let mut wire = Wire::open(url)?;
    let attributes = r#"{"VisibilityTimeout":"600"}"#;
    let create = format!(r#"{{"QueueName":"bench-http-{run}","Attributes":{attributes}}}"#);
    let queue = wire.ask_json::<Made>(&call("CreateQueue", &create))?.queue_url;
    let clients = (0..SQS_CLIENTS).map(|_| producer(&queue, plan.sqs_body_bytes)).collect();
    let sent = measure(url, server, Some(plan.window), clients, stop)?;
    let clients = (0..SQS_CLIENTS).map(|_| consumer(&queue)).collect();
    let mut received = measure(url, server, None, clients, stop)?;
    received.lost = sent.messages.saturating_sub(received.messages);
    wire.ask(&call("DeleteQueue", &format!(r#"{{"QueueUrl":"{queue}"}}"#)))?;
    Ok(vec![(Shape::SqsProducers, sent), (Shape::SqsConsumers, received)])
}

fn producer(
    queue: &str,
    body_bytes: usize,
) -> impl FnMut(&mut Wire) -> Result<u64, HttpError> + Send + use<> {
    let body = "x".repeat(body_bytes);
    let entries: Vec<String> =
        (0..BATCH).map(|number| format!(r#"{{"Id":"{number}","MessageBody":"{body}"}}"#)).collect();
    let send = format!(r#"{{"QueueUrl":"{queue}","Entries":[{}]}}"#, entries.join(","));
    let send = call("SendMessageBatch", &send);
    move |wire| Ok(wire.ask_json::<Sent>(&send)?.successful.len() as u64)
}

fn consumer(queue: &str) -> impl FnMut(&mut Wire) -> Result<u64, HttpError> + Send + use<> {
    let queue = queue.to_owned();
    let receive = format!(r#"{{"QueueUrl":"{queue}","MaxNumberOfMessages":{BATCH},"WaitTimeSeconds":0}}"#);
    let receive = call("ReceiveMessage", &receive);
    move |wire| {
        let messages = wire.ask_json::<Received<'_>>(&receive)?.messages;
        let handle = |(number, message): (usize, &Message<'_>)| {
            format!(r#"{{"Id":"{number}","ReceiptHandle":"{}"}}"#, message.receipt_handle)
        };
        let handles: Vec<String> = messages.iter().enumerate().map(handle).collect();
        if !handles.is_empty() {
            let body = format!(r#"{{"QueueUrl":"{queue}","Entries":[{}]}}"#, handles.join(","));
            wire.ask(&call("DeleteMessageBatch", &body))?;
        }
        Ok(handles.len() as u64)
    }
}
