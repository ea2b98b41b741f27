//! A queue with a long backlog, compared with the same queue when it was empty and with an empty
//! one: the rates at both ends, the memory of a waiting message, and the time until a killed broker
//! delivers the first one.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use postroad_openwire::client::ClientEvent;
use postroad_openwire::codec::Destination;
use serde::Serialize;

use crate::load::{drain, subscription};
use crate::{BrokerUrl, Link, LinkError, ServerTime, Waited, backlog};

/// How long a killed broker may take to start again.
const START_MAX: Duration = Duration::from_secs(600);

/// How often it is tried whether it has.
const KNOCK: Duration = Duration::from_millis(5);

/// A broker is idle if it takes next to no processor time during this time: [`REST_SPENT_MAX`].
const REST: Duration = Duration::from_millis(250);

const REST_SPENT_MAX: Duration = Duration::from_millis(10);

/// It is not waited for longer.
const REST_WAIT_MAX: Duration = Duration::from_secs(60);

/// How it is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The broker.
    pub url: BrokerUrl,
    /// Its process, if it is on this machine.
    pub server: Option<ServerTime>,
    /// Messages of the backlog.
    pub messages: u64,
    /// Queues that share it; the paces are those of the first.
    pub queues: u32,
    /// Messages that are published and consumed to measure a pace.
    pub probe: u64,
    /// Times that an empty queue beside the backlog and the deep one are measured in turn, after
    /// the first measure of both.
    pub rounds: u32,
    /// Publishers, each with a connection of its own.
    pub publishers: u32,
    /// Sends that each publisher keeps unconfirmed.
    pub window: u32,
    /// Bytes of each body.
    pub body_bytes: usize,
    /// The command that starts the broker again, to be killed and started; needs the process.
    pub restart: Option<Vec<String>>,
    /// Distinguishes queues of different runs.
    pub run: String,
}

/// How fast the ends of the queue are.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pace {
    /// Confirmed sends per second.
    pub published_per_second: f64,
    /// Messages per second to one consumer, from the front.
    pub consumed_per_second: f64,
    /// The server's processor time for each message that was published, in µs: others on the
    /// machine change it less than the paces.
    pub publishing_micros: Option<f64>,
    /// For each that was consumed.
    pub consuming_micros: Option<f64>,
}

/// Two paces, one right after the other: a disk that slows down from one minute to the next slows
/// both.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Round {
    /// Of an empty queue, beside the backlog.
    pub empty: Pace,
    /// Of the deep queue.
    pub deep: Pace,
}

/// The broker after it was killed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Restart {
    /// From its start to a connection.
    pub connected_seconds: f64,
    /// From its start to the first delivery.
    pub delivered_seconds: f64,
    /// Its memory then.
    pub resident_mib: Option<f64>,
}

/// All of it.
#[derive(Clone, Debug, Serialize)]
pub struct Measurement {
    /// Messages of the backlog.
    pub messages: u64,
    /// With an empty queue.
    pub empty: Pace,
    /// With the backlog.
    pub deep: Pace,
    /// In turn.
    pub rounds: Vec<Round>,
    /// The server's memory before the backlog.
    pub resident_before_mib: Option<f64>,
    /// With the backlog.
    pub resident_mib: Option<f64>,
    /// How long the server had work with the backlog after the last of it was confirmed.
    pub rested_seconds: Option<f64>,
    /// If it was killed.
    pub restart: Option<Restart>,
}

impl Measurement {
    /// Memory of the server for one waiting message.
    pub fn bytes_per_message(&self) -> Option<f64> {
        let grown = self.resident_mib? - self.resident_before_mib?;
        Some(grown * 1024.0 * 1024.0 / self.messages as f64)
    }
}

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DepthError {
    /// The broker did not do as it should.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Messages that should be there did not come.
    #[error("{want} messages were to be consumed, and {found} came")]
    Missing {
        /// How many.
        want: u64,
        /// How many came.
        found: u64,
    },
    /// The broker that was started ended before it could be reached; it has said why itself.
    #[error("the broker that was started has ended: {status}")]
    Ended {
        /// How.
        status: std::process::ExitStatus,
    },
    /// The broker cannot be killed or started.
    #[error("{what}: {source}")]
    Process {
        /// The failed operation.
        what: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// Measures the empty queue, fills it, waits until the broker has no more work with that, measures
/// again, and kills the broker if it is to be started again. Its messages stay in the queue.
///
/// # Errors
/// The broker cannot be reached, refuses something, loses messages, or does not start; the
/// measurement was stopped.
pub fn run(
    plan: &Plan,
    stop: &Arc<AtomicBool>,
    mut each: impl FnMut(&backlog::Look),
) -> Result<Measurement, DepthError> {
    // The first messages pay for initialisation.
    pace(plan, &plan.run, plan.probe / 4, stop)?;
    rest(plan, stop);
    let empty = pace(plan, &plan.run, plan.probe, stop)?;
    let resident_before_mib = plan.server.and_then(ServerTime::resident_mib);
    publish(&load(plan, &plan.run, plan.messages, plan.queues), stop, &mut each)?;
    let resident_mib = plan.server.and_then(ServerTime::resident_mib);
    let rested_seconds = rest(plan, stop);
    let deep = pace(plan, &plan.run, plan.probe, stop)?;
    let beside = format!("{}.beside", plan.run);
    let round = |_| {
        let empty = pace(plan, &beside, plan.probe, stop)?;
        Ok(Round { empty, deep: pace(plan, &plan.run, plan.probe, stop)? })
    };
    let rounds = (0..plan.rounds).map(round).collect::<Result<_, DepthError>>()?;
    let restart = match (&plan.restart, plan.server) {
        (Some(command), Some(server)) => Some(restart(plan, command, server, stop)?),
        _ => None,
    };
    let messages = plan.messages;
    Ok(Measurement {
        messages,
        empty,
        deep,
        rounds,
        resident_before_mib,
        resident_mib,
        rested_seconds,
        restart,
    })
}

/// Waits until the broker has nothing to do, which is known of a process on this machine; returns
/// for how long.
fn rest(plan: &Plan, stop: &AtomicBool) -> Option<f64> {
    let (server, begin) = (plan.server?, Instant::now());
    loop {
        let (waited, before) = (begin.elapsed(), server.spent()?);
        thread::sleep(REST);
        let rests = server.spent()?.saturating_sub(before) <= REST_SPENT_MAX;
        if rests || waited > REST_WAIT_MAX || stop.load(Ordering::Acquire) {
            return Some(waited.as_secs_f64());
        }
    }
}

fn load(plan: &Plan, run: &str, messages: u64, queues: u32) -> backlog::Plan {
    backlog::Plan {
        url: plan.url.clone(),
        server: plan.server,
        targets: 1,
        turns: queues,
        publishers: plan.publishers,
        window: plan.window,
        messages,
        time_max: None,
        due: None,
        body_bytes: plan.body_bytes,
        persistent: true,
        interval: Duration::from_secs(5),
        run: run.to_owned(),
    }
}

fn publish(
    load: &backlog::Plan,
    stop: &Arc<AtomicBool>,
    each: impl FnMut(&backlog::Look),
) -> Result<f64, DepthError> {
    Ok(backlog::run(load, stop, each)?.published_per_second)
}

/// The first queue of this run.
fn queue(plan: &Plan, run: &str) -> Destination {
    backlog::destination(&load(plan, run, 0, 1), 0)
}

/// Publishes this number to the end of a run's first queue, and consumes as many from the front.
fn pace(plan: &Plan, run: &str, messages: u64, stop: &Arc<AtomicBool>) -> Result<Pace, DepthError> {
    let spent = || plan.server.and_then(ServerTime::spent);
    let micros = |from: Option<Duration>, to: Option<Duration>| {
        Some((to? - from?).as_secs_f64() * 1e6 / messages as f64)
    };
    let before = spent();
    let published_per_second = publish(&load(plan, run, messages, 1), stop, |_| ())?;
    let (published, begin) = (spent(), Instant::now());
    let found = drain(&plan.url, queue(plan, run), messages, stop)?;
    if found < messages {
        return Err(DepthError::Missing { want: messages, found });
    }
    let consumed_per_second = messages as f64 / begin.elapsed().as_secs_f64();
    let (publishing_micros, consuming_micros) = (micros(before, published), micros(published, spent()));
    Ok(Pace { published_per_second, consumed_per_second, publishing_micros, consuming_micros })
}

fn restart(
    plan: &Plan,
    command: &[String],
    server: ServerTime,
    stop: &Arc<AtomicBool>,
) -> Result<Restart, DepthError> {
    let failed = |what: &str| {
        let what = what.to_owned();
        |source| DepthError::Process { what, source }
    };
    let (program, arguments) =
        command.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    Command::new("kill").args(["-9", &server.pid().to_string()]).status().map_err(failed("kill"))?;
    while server.is_alive() {
        thread::sleep(KNOCK);
    }
    let begin = Instant::now();
    let child = Command::new(program).args(arguments).stdout(Stdio::null()).spawn();
    let mut child = child.map_err(failed(program))?;
    let measured = first_delivery(plan, begin, &mut child, stop);
    let ended = child.kill().and_then(|()| child.wait());
    let measured = measured?;
    ended.map_err(failed(program))?;
    Ok(measured)
}

fn first_delivery(
    plan: &Plan,
    begin: Instant,
    child: &mut Child,
    stop: &Arc<AtomicBool>,
) -> Result<Restart, DepthError> {
    let mut link = loop {
        let error = match Link::open(&plan.url, None, None, stop.clone()) {
            Ok(link) => break link,
            Err(error) => error,
        };
        if let Ok(Some(status)) = child.try_wait() {
            return Err(DepthError::Ended { status });
        }
        if begin.elapsed() > START_MAX || stop.load(Ordering::Acquire) {
            return Err(error.into());
        }
        thread::sleep(KNOCK);
    };
    let connected_seconds = begin.elapsed().as_secs_f64();
    link.client().subscribe(&subscription(queue(plan, &plan.run))).map_err(LinkError::from)?;
    loop {
        match link.wait(Some(begin + START_MAX))? {
            Waited::Event(ClientEvent::Delivered(_)) => break,
            Waited::Event(_) => {}
            Waited::Timeout => return Err(DepthError::Missing { want: 1, found: 0 }),
            Waited::Stopped => return Err(LinkError::Stopped.into()),
        }
    }
    Ok(Restart {
        connected_seconds,
        delivered_seconds: begin.elapsed().as_secs_f64(),
        resident_mib: ServerTime::of(child.id()).resident_mib(),
    })
}
