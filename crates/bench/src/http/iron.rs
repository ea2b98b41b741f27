//! Batches of 100 as IronMQ's clients send them.

use std::fmt::Write as _;
use std::sync::atomic::AtomicBool;

use serde::Deserialize;

use super::wire::{HttpError, Wire, request};
use super::{HttpLoad, PRODUCERS, QUEUES, Sample, Shape, measure};

/// Messages of one request.
const BATCH: usize = 100;

const HEADERS: &str = "Authorization: OAuth any\r\nContent-Type: application/json\r\n";

#[derive(Deserialize)]
struct Posted<'a> {
    #[serde(borrow)]
    ids: Vec<&'a str>,
}

#[derive(Deserialize)]
struct Reserved<'a> {
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    id: &'a str,
    reservation_id: &'a str,
}

/// Measures the three shapes with bodies of one size.
pub fn round(
    plan: &HttpLoad,
    run: &str,
    body_bytes: usize,
    stop: &AtomicBool,
) -> Result<Vec<(Shape, Sample)>, HttpError> {
    let queue = |name: &str| format!("/3/projects/default/queues/bench-http-{run}-{body_bytes}-{name}");
    let server = plan.server;
    let names: Vec<String> = (0..QUEUES).map(|number| queue(&number.to_string())).collect();
    let clients = names.iter().flat_map(|name| std::iter::repeat_n(name, PRODUCERS));
    let clients = clients.map(|name| producer(name, body_bytes)).collect();
    let many = measure(&plan.url, server, Some(plan.window), clients, stop)?;
    let one = queue("one");
    let produced = measure(&plan.url, server, Some(plan.window), vec![producer(&one, body_bytes)], stop)?;
    let mut consumed = measure(&plan.url, server, None, vec![consumer(&one)], stop)?;
    consumed.lost = produced.messages.saturating_sub(consumed.messages);
    let mut wire = Wire::open(&plan.url)?;
    for name in names.iter().chain([&one]) {
        wire.ask(&request("DELETE", name, HEADERS, "{}"))?;
    }
    Ok(vec![(Shape::ManyProducers, many), (Shape::OneProducer, produced), (Shape::OneConsumer, consumed)])
}

fn producer(
    queue: &str,
    body_bytes: usize,
) -> impl FnMut(&mut Wire) -> Result<u64, HttpError> + Send + use<> {
    let message = format!("{{\"body\":\"{}\"}}", "x".repeat(body_bytes));
    let body = format!("{{\"messages\":[{}]}}", vec![message.as_str(); BATCH].join(","));
    let post = request("POST", &format!("{queue}/messages"), HEADERS, &body);
    move |wire| Ok(wire.ask_json::<Posted<'_>>(&post)?.ids.len() as u64)
}

/// The loop of the published measurement: reserve a batch, delete it.
fn consumer(queue: &str) -> impl FnMut(&mut Wire) -> Result<u64, HttpError> + Send + use<> {
    let reserve = format!("{{\"n\":{BATCH},\"timeout\":60,\"wait\":0}}");
    let reserve = request("POST", &format!("{queue}/reservations"), HEADERS, &reserve);
    let (path, mut body) = (format!("{queue}/messages"), String::new());
    move |wire| {
        let messages = wire.ask_json::<Reserved<'_>>(&reserve)?.messages;
        let taken = messages.len() as u64;
        body.clear();
        for Message { id, reservation_id } in &messages {
            let before = if body.is_empty() { "{\"ids\":[" } else { "," };
            // A string takes all that is written.
            let _ = write!(body, "{before}{{\"id\":\"{id}\",\"reservation_id\":\"{reservation_id}\"}}");
        }
        if 0 < taken {
            body.push_str("]}");
            wire.ask(&request("DELETE", &path, HEADERS, &body))?;
        }
        Ok(taken)
    }
}
