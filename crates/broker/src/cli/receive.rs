//! `postroad receive`: messages of a queue or topic to standard output, acknowledged once they are
//! there.

use std::io::{BufWriter, StdoutLock, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use postroad_bench::{Link, Stop, Waited};
use postroad_openwire::client::{ClientEvent, ConsumerNumber, Incoming, Subscription, Verdict};
use postroad_openwire::codec::Destination;

use crate::cli::EXIT_TIMEOUT;
use crate::cli::link::ConnectArguments;
use crate::cli::names::{destination_text, parse_destination};
use crate::cli::progress::Progress;
use crate::cli::show::{Form, show};

/// How many messages the broker may send ahead: enough to keep both sides busy, few enough to leave
/// others some.
const PREFETCH: u16 = 100;

const NO_OUTPUT: &str = "cannot write to standard output";

/// Arguments of `receive`.
#[derive(Debug, Args)]
pub struct ReceiveArguments {
    /// Source: queue://NAME, topic://NAME, or NAME for a queue.
    #[arg(value_parser = parse_destination)]
    destination: Destination,
    #[command(flatten)]
    connect: ConnectArguments,
    /// Number of messages.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "follow", value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Continue until SIGTERM or Ctrl-C, or until no message comes within --timeout.
    #[arg(long)]
    follow: bool,
    /// Time to wait for each message, in milliseconds [default: no limit].
    #[arg(long, value_name = "MS")]
    timeout: Option<u64>,
    /// Acknowledgement mode.
    #[arg(long, value_enum, default_value_t = Acknowledgement::Auto)]
    ack: Acknowledgement,
    /// Only messages that match this JMS selector.
    #[arg(long, value_name = "CONDITION")]
    selector: Option<String>,
    /// Print one JSON object for each message, with headers and properties.
    #[arg(long, conflicts_with = "raw")]
    json: bool,
    /// Print the bytes of bodies only, without line ends.
    #[arg(long)]
    raw: bool,
}

/// The verdict on a printed message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Acknowledgement {
    /// Acknowledge each message after it is written to standard output.
    Auto,
    /// Leave messages in the queue; they are redelivered.
    None,
}

/// Why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Complete,
    Timeout,
    Stopped,
}

/// Receives, and says by the exit code whether there were as many as asked.
pub fn run(arguments: &ReceiveArguments) -> anyhow::Result<ExitCode> {
    let mut link = arguments.connect.open(&Stop::on_signal()?)?;
    let wanted = (!arguments.follow).then_some(arguments.count);
    let prefetch = wanted.map_or(PREFETCH, |count| count.clamp(1, PREFETCH.into()) as u16);
    let subscription = Subscription {
        destination: arguments.destination.clone(),
        prefetch,
        browses: false,
        selector: arguments.selector.clone(),
    };
    let (request, consumer) = link.client().subscribe(&subscription)?;
    let mut receiver = Receiver {
        link,
        consumer,
        arguments,
        wanted,
        out: BufWriter::new(std::io::stdout().lock()),
        early: Vec::new(),
        unconfirmed: 0,
        last_seen: None,
        progress: Progress::new("received", wanted),
    };
    let early = &mut receiver.early;
    receiver.link.wait_for(request, |event| early.extend(delivered(event)))?;
    let place = destination_text(&arguments.destination);
    if matches!(arguments.destination, Destination::Topic(_)) || arguments.follow {
        eprintln!("receiving from {place}");
    }
    let end = receiver.receive();
    let summary = receiver.progress.summary(&format!("from {place}"));
    let end = end.with_context(|| format!("{summary}, then stopped"))?;
    let received = receiver.progress.count();
    receiver.leave()?;
    match (end, wanted) {
        (End::Timeout, Some(wanted)) => {
            eprintln!(
                "postroad: timeout: {received} of {wanted} messages within {} ms",
                arguments.timeout.unwrap_or(0)
            );
            Ok(ExitCode::from(EXIT_TIMEOUT))
        }
        (End::Stopped, Some(wanted)) => bail!("interrupted: {received} of {wanted} messages"),
        _ => {
            eprintln!("{summary}");
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn delivered(event: ClientEvent) -> Option<Incoming> {
    match event {
        ClientEvent::Delivered(incoming) => Some(incoming),
        _ => None,
    }
}

struct Receiver<'a> {
    link: Link,
    consumer: ConsumerNumber,
    arguments: &'a ReceiveArguments,
    wanted: Option<u64>,
    out: BufWriter<StdoutLock<'static>>,
    /// Deliveries before the answer to the subscription.
    early: Vec<Incoming>,
    /// Acknowledgements without answer.
    unconfirmed: u64,
    /// The delivery that was printed last.
    last_seen: Option<i64>,
    progress: Progress,
}

impl Receiver<'_> {
    fn receive(&mut self) -> anyhow::Result<End> {
        let mut batch = std::mem::take(&mut self.early);
        let timeout = self.arguments.timeout.map(Duration::from_millis);
        loop {
            self.print(batch)?;
            if self.left() == 0 {
                return Ok(End::Complete);
            }
            // The clock starts again with each message; other events of the broker do not count.
            let end = timeout.map(|timeout| Instant::now() + timeout);
            batch = loop {
                match self.link.wait(end)? {
                    Waited::Timeout => return Ok(End::Timeout),
                    Waited::Stopped => return Ok(End::Stopped),
                    Waited::Event(event) => {
                        if let Some(incoming) = self.take(event) {
                            break self.batch_of(incoming)?;
                        }
                    }
                }
            };
        }
    }

    fn left(&self) -> u64 {
        self.wanted.map_or(u64::MAX, |wanted| wanted.saturating_sub(self.progress.count()))
    }

    /// A message, or the answer to an acknowledgement.
    fn take(&mut self, event: ClientEvent) -> Option<Incoming> {
        if let ClientEvent::Done(_) = event {
            self.unconfirmed = self.unconfirmed.saturating_sub(1);
        }
        delivered(event)
    }

    /// The messages in it.
    fn batch_of(&mut self, first: Incoming) -> anyhow::Result<Vec<Incoming>> {
        let mut batch = vec![first];
        while batch.len() < PREFETCH.into()
            && let Some(event) = self.link.at_hand()?
        {
            batch.extend(self.take(event));
        }
        Ok(batch)
    }

    /// Prints, flushes, and then acknowledges, as many as are wanted.
    fn print(&mut self, mut batch: Vec<Incoming>) -> anyhow::Result<()> {
        batch.truncate(usize::try_from(self.left()).unwrap_or(usize::MAX));
        let form = match (self.arguments.json, self.arguments.raw) {
            (true, _) => Form::Json,
            (false, true) => Form::Raw,
            (false, false) => Form::Plain,
        };
        for incoming in &batch {
            show(incoming, form, &mut self.out).context(NO_OUTPUT)?;
        }
        self.out.flush().context(NO_OUTPUT)?;
        self.progress.add(batch.len() as u64);
        self.acknowledge(&batch)
    }

    fn acknowledge(&mut self, batch: &[Incoming]) -> anyhow::Result<()> {
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return Ok(()) };
        let taken = self.arguments.ack == Acknowledgement::Auto;
        let verdict = if taken { Verdict::Consumed } else { Verdict::Seen };
        let count = i32::try_from(batch.len())?;
        self.link.client().acknowledge(first, last, count, verdict, taken)?;
        if taken {
            self.unconfirmed += 1;
        }
        self.last_seen = Some(last.sequence());
        Ok(self.link.exchange()?)
    }

    /// Ends the consumer once every acknowledgement is confirmed; unprinted messages go back
    /// untouched.
    fn leave(mut self) -> anyhow::Result<()> {
        let unconfirmed = &mut self.unconfirmed;
        if *unconfirmed > 0 {
            self.link.listen_until(|event| {
                *unconfirmed -= u64::from(matches!(event, ClientEvent::Done(_)));
                *unconfirmed == 0
            })?;
        }
        let request = self.link.client().unsubscribe(self.consumer, self.last_seen)?;
        self.link.wait_for(request, |_| ())?;
        Ok(self.link.close()?)
    }
}
