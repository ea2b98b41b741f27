//! `postroad redrive`: dead letters go back to where they were.
//!
//! Each batch is a transaction of the broker's: what is sent back leaves the dead letters, or nothing of it happens.

use std::time::{Duration, Instant};

use clap::Args;
use postroad_bench::{Link, Waited};
use postroad_openwire::client::{
    ClientEvent, ConsumerNumber, Incoming, Subscription, Verdict, origin_of_dead_letter, revived,
};
use postroad_openwire::codec::Destination;

use crate::cli::link::ConnectArguments;
use crate::cli::names::{destination_text, parse_queue};
use crate::cli::progress::Progress;
use crate::cli::stop::Stop;

/// How many messages the broker may send ahead, and how many are sent back in one transaction.
const BATCH: u16 = 100;

/// What `redrive` can be told.
#[derive(Debug, Args)]
pub struct RedriveArguments {
    /// The queue of dead letters: queue://NAME or NAME.
    #[arg(value_name = "QUEUE", default_value = "ActiveMQ.DLQ", value_parser = parse_queue)]
    dead_letters: Destination,
    #[command(flatten)]
    connect: ConnectArguments,
    /// Where to, instead of where each message was.
    #[arg(long, value_name = "QUEUE", value_parser = parse_queue)]
    to: Option<Destination>,
    /// Only messages that were in this queue.
    #[arg(long, value_name = "QUEUE", value_parser = parse_queue)]
    origin: Option<Destination>,
    /// Only messages that this condition selects.
    #[arg(long, value_name = "CONDITION")]
    selector: Option<String>,
    /// How many messages at most [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max: Option<u64>,
    /// How long to wait for another message before it is over, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    timeout: u64,
}

/// Sends back, and says how many were and how many stayed.
pub fn run(arguments: &RedriveArguments) -> anyhow::Result<()> {
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
    /// One that this very command has sent back is dead again: to go on would be to go round in a circle.
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

    /// What is at hand, or the next that comes in time; empty when nothing does.
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
                // It stays, and makes room for those behind it.
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

    /// Where the message goes; `None` if it is not asked for, or was in a subscription: all others would get it, too.
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
        if self.stayed > 0 {
            eprintln!("{} stayed: not asked for, or without a queue to go back to (see --to)", self.stayed);
        }
        if self.came_back {
            eprintln!("stopped: a message that was sent back is dead again");
        }
        Ok(())
    }
}
