//! `postroad browse`: the messages of a queue, seen and left there.

use std::io::{BufWriter, Write};

use anyhow::Context;
use clap::Args;
use postroad_bench::{Link, Stop};
use postroad_openwire::client::{ClientEvent, Incoming, Subscription, Verdict};
use postroad_openwire::codec::Destination;

use crate::cli::link::ConnectArguments;
use crate::cli::names::{destination_text, parse_queue};
use crate::cli::progress::Progress;
use crate::cli::show::{Form, show};

/// How many messages the broker may send ahead.
const PREFETCH: u16 = 100;

/// Arguments of `browse`.
#[derive(Debug, Args)]
pub struct BrowseArguments {
    /// Queue: queue://NAME or NAME.
    #[arg(value_name = "QUEUE", value_parser = parse_queue)]
    destination: Destination,
    #[command(flatten)]
    connect: ConnectArguments,
    /// Maximum number of messages [default: all].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max: Option<u64>,
    /// Only messages that match this JMS selector.
    #[arg(long, value_name = "CONDITION")]
    selector: Option<String>,
    /// Print one JSON object for each message, with headers and properties.
    #[arg(long)]
    json: bool,
}

/// Prints the messages that are there now, oldest first.
pub fn run(arguments: &BrowseArguments) -> anyhow::Result<()> {
    let mut link = arguments.connect.open(&Stop::never())?;
    let max = arguments.max.unwrap_or(u64::MAX);
    let subscription = Subscription {
        destination: arguments.destination.clone(),
        prefetch: max.min(PREFETCH.into()) as u16,
        browses: true,
        selector: arguments.selector.clone(),
    };
    let (_, consumer) = link.client().subscribe(&subscription)?;
    let form = if arguments.json { Form::Json } else { Form::Plain };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut progress = Progress::new("browsed", arguments.max);
    while progress.count() < max {
        let Some(incoming) = next(&mut link)? else { break };
        show(&incoming, form, &mut out).context("cannot write to standard output")?;
        progress.add(1);
        link.client().acknowledge(&incoming, &incoming, 1, Verdict::Seen, false)?;
    }
    out.flush().context("cannot write to standard output")?;
    let place = destination_text(&arguments.destination);
    let summary = progress.summary(&format!("in {place}"));
    let request = link.client().unsubscribe(consumer, None)?;
    link.wait_for(request, |_| ())?;
    link.close()?;
    eprintln!("{summary}");
    Ok(())
}

/// The next message; `None` when the browser has seen all.
fn next(link: &mut Link) -> anyhow::Result<Option<Incoming>> {
    let mut next = None;
    link.listen_until(|event| match event {
        ClientEvent::Delivered(incoming) => {
            next = Some(incoming);
            true
        }
        ClientEvent::NothingMore(_) => true,
        _ => false,
    })?;
    Ok(next)
}
