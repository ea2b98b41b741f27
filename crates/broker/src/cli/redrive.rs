//! `postroad redrive`: dead letters go back to where they were.
//!
//! The broker that runs in a directory moves them itself, each in its own form. Any other is asked
//! as a client may, and then each batch is a transaction: its messages leave the dead letters, or
//! nothing of it happens.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::bail;

use clap::Args;
use postroad_bench::{Link, Stop, Waited};
use postroad_openwire::client::{
    ClientEvent, ConsumerNumber, Incoming, Subscription, Verdict, origin_of_dead_letter, revived,
};
use postroad_openwire::codec::Destination;

use crate::cli::control::ask;
use crate::cli::link::ConnectArguments;
use crate::cli::names::{destination_text, parse_queue};
use crate::cli::progress::Progress;
use crate::control::{Answer, Request};

/// How many messages the broker may send ahead, and how many are sent back in one transaction.
const BATCH: u16 = 100;

/// Arguments of `redrive`.
#[derive(Debug, Args)]
pub struct RedriveArguments {
    /// Dead-letter queue: queue://NAME or NAME.
    #[arg(value_name = "QUEUE", default_value = "ActiveMQ.DLQ", value_parser = parse_queue)]
    dead_letters: Destination,
    /// Data directory of a running broker, which then moves the messages itself, unchanged.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["url", "user", "password", "timeout"])]
    data: Option<PathBuf>,
    #[command(flatten)]
    connect: ConnectArguments,
    /// Destination for all messages, instead of their original queues.
    #[arg(long, value_name = "QUEUE", value_parser = parse_queue)]
    to: Option<Destination>,
    /// Only messages from this original queue.
    #[arg(long, value_name = "QUEUE", value_parser = parse_queue)]
    origin: Option<Destination>,
    /// Only messages that match this JMS selector.
    #[arg(long, value_name = "CONDITION")]
    selector: Option<String>,
    /// Maximum number of messages [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max: Option<u64>,
    /// End when no message comes for this time, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    timeout: u64,
}

/// Sends back, and says how many were and how many stayed.
///
/// # Errors
/// The broker does not run, refuses, or was lost.
pub fn run(arguments: &RedriveArguments) -> anyhow::Result<()> {
    match &arguments.data {
        Some(data) => inside(data, arguments),
        None => over_openwire(arguments),
    }
}

fn inside(data: &Path, arguments: &RedriveArguments) -> anyhow::Result<()> {
    let request = Request::Redrive {
        from: destination_text(&arguments.dead_letters),
        to: arguments.to.as_ref().map(destination_text),
        origin: arguments.origin.as_ref().map(destination_text),
        selector: arguments.selector.clone(),
        max: arguments.max,
    };
    let begun = Instant::now();
    match ask(data, &request)? {
        Answer::Redriven { moved, stayed } => {
            let place = destination_text(&arguments.dead_letters);
            eprintln!("{moved} sent back in {:.1} s from {place}", begun.elapsed().as_secs_f64());
            tell_stayed(stayed);
            Ok(())
        }
        other => bail!("unexpected answer from the broker: {other:?}"),
    }
}

fn tell_stayed(stayed: u64) {
    if stayed > 0 {
        eprintln!("{stayed} stayed: filtered out, or without an original queue (see --to)");
    }
}

fn over_openwire(arguments: &RedriveArguments) -> anyhow::Result<()> {
    let mut link = arguments.connect.open(&Stop::on_signal()?)?;
    let subscription = Subscription {
        destination: arguments.dead_letters.clone(),
        prefetch: BATCH,
        browses: false,
        selector: arguments.selector.clone(),
    };
    let (request, consumer) = link.client().subscribe(&subscription)?;
    let mut early = Vec::new();
    link.wait_for(request, |event| early.extend(delivered(event)))?;
    let progress = Progress::new("sent back", arguments.max);
    let mut redrive = Redrive { link, arguments, progress, early, stayed: 0, came_back: false };
    redrive.run()?;
    redrive.leave(consumer)
}

fn delivered(event: ClientEvent) -> Option<Incoming> {
    match event {
        ClientEvent::Delivered(incoming) => Some(incoming),
        _ => None,
    }
}

struct Redrive<'a> {
    link: Link,
    arguments: &'a RedriveArguments,
    progress: Progress,
    /// Deliveries that came while something else was awaited.
    early: Vec<Incoming>,
    /// Messages that are left where they are.
    stayed: u64,
    /// One that this very command has sent back is dead again: to go on would be to go round in a
    /// circle.
    came_back: bool,
}

impl Redrive<'_> {
    fn run(&mut self) -> anyhow::Result<()> {
        while !self.came_back && self.left() > 0 {
            let batch = self.next_batch()?;
            if batch.is_empty() {
                break;
            }
            self.send_back(batch)?;
        }
        Ok(())
    }

    fn left(&self) -> u64 {
        self.arguments.max.map_or(u64::MAX, |max| max.saturating_sub(self.progress.count()))
    }

    /// The available messages, or the next that comes in time; empty when none does.
    fn next_batch(&mut self) -> anyhow::Result<Vec<Incoming>> {
        let mut batch = std::mem::take(&mut self.early);
        let end = Instant::now() + Duration::from_millis(self.arguments.timeout);
        while batch.is_empty() {
            match self.link.wait(Some(end))? {
                Waited::Timeout | Waited::Stopped => return Ok(batch),
                Waited::Event(event) => batch.extend(delivered(event)),
            }
        }
        while batch.len() < BATCH.into()
            && let Some(event) = self.link.at_hand()?
        {
            batch.extend(delivered(event));
        }
        Ok(batch)
    }

    fn send_back(&mut self, batch: Vec<Incoming>) -> anyhow::Result<()> {
        let transaction = self.link.client().begin()?;
        let mut sent = 0;
        for incoming in batch {
            self.came_back |= self.link.client().has_sent(&incoming.message);
            let to = self.place_of(&incoming).filter(|_| !self.came_back && sent < self.left());
            let Some(to) = to else {
                // It stays, and makes room for those after it.
                self.link.client().acknowledge(&incoming, &incoming, 1, Verdict::Seen, false)?;
                self.stayed += 1;
                continue;
            };
            let message = revived(&incoming.message, to, transaction.clone())?;
            self.link.client().send(message, false)?;
            self.link.client().acknowledge_in(&transaction, &incoming)?;
            sent += 1;
        }
        let request = self.link.client().commit(&transaction)?;
        let early = &mut self.early;
        self.link.wait_for(request, |event| early.extend(delivered(event)))?;
        self.progress.add(sent);
        Ok(())
    }

    /// Where the message goes; `None` if it is not asked for, or was in a subscription: all others
    /// would get it, too.
    fn place_of(&self, incoming: &Incoming) -> Option<Destination> {
        let origin = origin_of_dead_letter(&incoming.message);
        let asked = self.arguments.origin.is_none() || self.arguments.origin == origin;
        let to = self.arguments.to.clone().or_else(|| origin.filter(Destination::is_queue));
        to.filter(|_| asked)
    }

    fn leave(mut self, consumer: ConsumerNumber) -> anyhow::Result<()> {
        let place = destination_text(&self.arguments.dead_letters);
        let request = self.link.client().unsubscribe(consumer, None)?;
        self.link.wait_for(request, |_| ())?;
        self.link.close()?;
        eprintln!("{}", self.progress.summary(&format!("from {place}")));
        tell_stayed(self.stayed);
        if self.came_back {
            eprintln!("stopped: a redriven message became a dead letter again");
        }
        Ok(())
    }
}
