//! `postroad ctl explain`: why messages are not delivered, and the smallest change that would
//! deliver them.

use std::io::Write;

use clap::{Args, Subcommand};
use serde_json::Value;

use super::QueueArguments;
use super::http::{BrokerArguments, Method, encoded, request};

/// A queue or a message.
#[derive(Debug, Subcommand)]
pub enum ExplainCommand {
    /// Explain why the next message of a queue is not delivered, consumer by consumer, and whether
    /// and why the queue grows.
    Queue(ExplainQueueArguments),
    /// Explain why a message is not delivered, consumer by consumer.
    Message(MessageArguments),
}

/// Which queue.
#[derive(Debug, Args)]
pub struct ExplainQueueArguments {
    #[command(flatten)]
    of: QueueArguments,
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
}

/// Which message.
#[derive(Debug, Args)]
pub struct MessageArguments {
    /// JMSMessageID of the message.
    #[arg(value_name = "ID")]
    id: String,
    /// The queue that has it [default: all queues are searched].
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,
    #[command(flatten)]
    broker: BrokerArguments,
    /// Print the answer as JSON.
    #[arg(long)]
    json: bool,
}

pub fn run(command: &ExplainCommand) -> anyhow::Result<()> {
    let (path, broker, json) = match command {
        ExplainCommand::Queue(ExplainQueueArguments { of, json }) => {
            (format!("/api/v1/queues/{}/explain", encoded(&of.queue)), &of.broker, *json)
        }
        ExplainCommand::Message(MessageArguments { id, queue, broker, json }) => {
            let of_queue =
                queue.as_ref().map_or_else(String::new, |queue| format!("queues/{}/", encoded(queue)));
            (format!("/api/v1/{of_queue}messages/{}/explain", encoded(id)), broker, *json)
        }
    };
    let answer = request(broker, Method::Get, &path, None)?;
    let mut out = std::io::stdout().lock();
    if json {
        writeln!(out, "{answer}")?;
        return Ok(());
    }
    let Some(queues) = answer["queues"].as_array() else { return print(&answer, &mut out) };
    for queue in queues {
        writeln!(out, "{}", text(&queue["queue"]))?;
        print(queue, &mut out)?;
    }
    if answer["is_complete"] == false {
        let searched = &answer["searched"];
        writeln!(out, "Only {searched} queues were searched in time; --queue NAME names the queue.")?;
    }
    Ok(())
}

fn print(answer: &Value, out: &mut impl Write) -> anyhow::Result<()> {
    writeln!(out, "{}", text(&answer["summary"]))?;
    if let Some(remedy) = answer["remedy"].as_str() {
        writeln!(out, "Smallest change: {remedy}")?;
    }
    for verdict in answer["queue_verdicts"].as_array().into_iter().flatten() {
        writeln!(out, "  {}", text(&verdict["text"]))?;
    }
    for verdict in answer["consumer_verdicts"].as_array().into_iter().flatten() {
        writeln!(out, "  {}: {}", text(&verdict["consumer"]), text(&verdict["text"]))?;
    }
    print_growth(&answer["growth"], out)
}

/// The last minute of a queue, with the work of its consumers.
fn print_growth(growth: &Value, out: &mut impl Write) -> anyhow::Result<()> {
    let Some(said) = growth["text"].as_str() else { return Ok(()) };
    writeln!(out, "Last minute: {said}")?;
    if let Some(remedy) = growth["remedy"].as_str() {
        writeln!(out, "To keep up: {remedy}")?;
    }
    for consumer in growth["consumers"].as_array().into_iter().flatten() {
        let Some(settled) = consumer["settled_per_second"].as_f64() else { continue };
        let held =
            consumer["held_ms"].as_u64().map_or_else(String::new, |ms| format!(", each after {ms} ms"));
        let (waiting, prefetch) = (&consumer["waiting_percent"], &consumer["prefetch"]);
        let name = text(&consumer["consumer"]);
        writeln!(
            out,
            "  {name}: acknowledges {settled} messages/s{held}, without credit {waiting}% of the time, prefetch {prefetch}"
        )?;
    }
    match growth["consumers_left_out"].as_u64() {
        Some(more) if 0 < more => Ok(writeln!(out, "  and {more} more consumers")?),
        _ => Ok(()),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
