//! `postroad queue`: queues move between the stores of a running broker.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use postroad_openwire::codec::Destination;

use crate::cli::control::ask;
use crate::cli::names::{destination_text, parse_queue};
use crate::control::{Answer, QueueMove, Request};

/// Interval of looks at a move while waiting.
const LOOK: Duration = Duration::from_millis(100);

/// Interval of progress lines.
const TELL: Duration = Duration::from_secs(1);

/// Commands for queues of a running broker.
#[derive(Debug, Subcommand)]
pub enum Queue {
    /// Move a queue with its messages to another store, while clients use it; deliveries pause
    /// meanwhile.
    Move(MoveArguments),
    /// List the queues that are moving, with their progress.
    Moves(DataArguments),
}

/// Which broker.
#[derive(Debug, Args)]
pub struct DataArguments {
    /// Data directory of a running broker.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
}

/// Which queue, and where to.
#[derive(Debug, Args)]
pub struct MoveArguments {
    /// Queue: queue://NAME or NAME.
    #[arg(value_name = "QUEUE", value_parser = parse_queue)]
    queue: Destination,
    /// Destination store: the name of a [[store]], or main.
    #[arg(long, value_name = "STORE")]
    to: String,
    /// Wait until the move is complete, and show its progress.
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    broker: DataArguments,
}

/// Asks the broker.
///
/// # Errors
/// It does not run, or says why not.
pub fn run(queue: &Queue) -> anyhow::Result<()> {
    match queue {
        Queue::Move(arguments) => begin(arguments),
        Queue::Moves(broker) => {
            let mut out = std::io::stdout().lock();
            for moving in moves(&broker.data)? {
                writeln!(out, "{}", told(&moving))?;
            }
            Ok(())
        }
    }
}

fn begin(arguments: &MoveArguments) -> anyhow::Result<()> {
    let (data, name) = (&arguments.broker.data, destination_text(&arguments.queue));
    let request = Request::Move { queue: name.clone(), to: arguments.to.clone() };
    let begun = Instant::now();
    let Answer::Moving { queue, to } = ask(data, &request)? else {
        bail!("unexpected answer from the broker")
    };
    if !arguments.wait {
        eprintln!("{name} is being moved to {to}: see `postroad queue moves`");
        return Ok(());
    }
    let mut next = begun + TELL;
    while let Some(moving) =
        find(data, &queue).context("the move continues at the next start of the broker")?
    {
        if moving.is_stuck {
            bail!(moving.stuck());
        }
        if next <= Instant::now() {
            eprintln!("{}", told(&moving));
            next += TELL;
        }
        std::thread::sleep(LOOK);
    }
    eprintln!("{name} has moved to {to} in {:.1} s", begun.elapsed().as_secs_f64());
    Ok(())
}

fn find(data: &Path, queue: &str) -> anyhow::Result<Option<QueueMove>> {
    Ok(moves(data)?.into_iter().find(|moving| moving.queue == queue))
}

fn moves(data: &Path) -> anyhow::Result<Vec<QueueMove>> {
    match ask(data, &Request::Moves)? {
        Answer::Moves(moves) => Ok(moves),
        other => bail!("unexpected answer from the broker: {other:?}"),
    }
}

/// Its progress, and the reason of a wait.
fn told(moving: &QueueMove) -> String {
    let QueueMove { queue, to, moved, left, held, transactions, uploads, refused, is_stuck: _ } = moving;
    let mut text = format!("queue://{queue} to {to}: {moved} moved, {left} left");
    if 0 < *held {
        text += &format!(", {held} of them in flight");
    }
    if 0 < *transactions {
        text += &format!(", {transactions} open or prepared transactions send to it");
    }
    if 0 < *uploads {
        text += &format!(", {uploads} uploads of large messages in progress");
    }
    if let Some(reason) = refused {
        text += &format!("; retrying, because it was refused: {reason}");
    }
    text
}
