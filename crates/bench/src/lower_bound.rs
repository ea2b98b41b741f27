//! The work that every broker needs: a server that takes each message in, writes it to the disk,
//! hands it on, answers, and takes the acknowledgement, and does nothing else. Its processor time
//! is the lower bound for any broker on this machine.
//!
//! Senders have one message under way each, and wait for its confirmation. All messages that the
//! server finds when it wakes go to the disk together.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use serde::Serialize;

use crate::disk::{DIRECT_ALIGN, aligned, write_all, zeroed_file};
use crate::process::own_thread_time;

/// The confirmation of a send and of a receipt: as large as by OpenWire.
const ANSWER_BYTES: usize = 20;
const ACKNOWLEDGEMENT_BYTES: usize = 120;

/// The file is written round and round.
const FILE_BYTES: u64 = 64 << 20;

/// Read from one connection at a time.
const READ_BYTES: usize = 1 << 20;

/// How it is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    /// A directory on the disk that is written to.
    pub directory: PathBuf,
    /// Connections that send.
    pub producers: usize,
    /// Connections that receive, in turn; none: messages are only taken in.
    pub consumers: usize,
    /// Bytes of each message, as they are sent.
    pub message_bytes: usize,
    /// How long, without the disk and with it each.
    pub time: Duration,
}

/// One way.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Whether messages were on the disk before they were answered.
    pub synced: bool,
    /// Messages answered in a second.
    pub per_second: f64,
    /// Messages that the server found together, in the mean.
    pub together: f64,
    /// Processor time of the server's thread for each, in microseconds.
    pub server_us: f64,
}

/// Measures without the disk and with it.
///
/// # Errors
/// The directory cannot be written, a connection fails, or the system does not report a thread's
/// time.
pub fn run(plan: &Plan) -> io::Result<[Row; 2]> {
    Ok([measure(plan, None)?, run_synced(plan)?])
}

/// Measures only with the disk.
///
/// # Errors
/// Those of [`run`].
pub fn run_synced(plan: &Plan) -> io::Result<Row> {
    let file = zeroed_file(&plan.directory, FILE_BYTES)?;
    measure(plan, Some(&file))
}

fn measure(plan: &Plan, file: Option<&OwnedFd>) -> io::Result<Row> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let (mut clients, mut served) = (Vec::new(), Vec::new());
    for number in 0..plan.producers + plan.consumers {
        let client = TcpStream::connect(listener.local_addr()?)?;
        let (stream, _) = listener.accept()?;
        client.set_nodelay(true)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        clients.push(client);
        served.push(Served { stream, sends: number < plan.producers, bytes: 0 });
    }
    let began = Instant::now();
    let counts = thread::scope(|scope| {
        let consumers = clients.split_off(plan.producers);
        let server = scope.spawn(|| Server::new(plan, file, served)?.serve());
        for client in clients {
            scope.spawn(move || produce(client, plan.message_bytes, began + plan.time));
        }
        for client in consumers {
            scope.spawn(move || consume(client, plan.message_bytes));
        }
        server.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
    })?;
    let messages = counts.messages as f64;
    Ok(Row {
        synced: file.is_some(),
        per_second: messages / began.elapsed().as_secs_f64(),
        together: messages / counts.turns.max(1) as f64,
        server_us: counts.spent.as_secs_f64() * 1e6 / messages,
    })
}

/// Sends once at least, and waits for each answer, until the time is up; then the connection ends.
fn produce(mut stream: TcpStream, message_bytes: usize, until: Instant) -> io::Result<()> {
    let (message, mut answer) = (vec![0; message_bytes], [0; ANSWER_BYTES]);
    loop {
        stream.write_all(&message)?;
        stream.read_exact(&mut answer)?;
        if until <= Instant::now() {
            return Ok(());
        }
    }
}

/// Acknowledges each message until the server ends.
fn consume(mut stream: TcpStream, message_bytes: usize) -> io::Result<()> {
    let mut message = vec![0; message_bytes];
    loop {
        stream.read_exact(&mut message)?;
        stream.write_all(&[0; ACKNOWLEDGEMENT_BYTES])?;
    }
}

/// A connection at the server.
struct Served {
    stream: TcpStream,
    sends: bool,
    /// The state of the next message.
    bytes: usize,
}

#[derive(Default)]
struct Counts {
    messages: u64,
    turns: u64,
    spent: Duration,
}

struct Server<'p> {
    plan: &'p Plan,
    file: Option<&'p OwnedFd>,
    served: Vec<Served>,
    epoll: OwnedFd,
    /// The data for the disk; its contents do not matter.
    block: Vec<u8>,
    offset: u64,
    next_consumer: usize,
}

impl<'p> Server<'p> {
    fn new(plan: &'p Plan, file: Option<&'p OwnedFd>, served: Vec<Served>) -> io::Result<Server<'p>> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        for (number, Served { stream, .. }) in served.iter().enumerate() {
            let data = EventData::new_u64(number as u64);
            epoll::add(&epoll, stream, data, EventFlags::IN | EventFlags::ET)?;
        }
        let most = (plan.producers * plan.message_bytes).next_multiple_of(DIRECT_ALIGN);
        let block = vec![1; most + DIRECT_ALIGN];
        Ok(Server { plan, file, served, epoll, block, offset: 0, next_consumer: 0 })
    }

    /// Until the last sender has gone.
    fn serve(mut self) -> io::Result<Counts> {
        let (mut counts, mut senders, before) = (Counts::default(), self.plan.producers, own_thread_time()?);
        let (mut events, mut buffer) = (Vec::with_capacity(self.served.len()), vec![0; READ_BYTES]);
        let message = vec![0; self.plan.message_bytes];
        while senders > 0 {
            events.clear();
            epoll::wait(&self.epoll, spare_capacity(&mut events), None)?;
            let mut came = Vec::new();
            for event in &events {
                let number = event.data.u64() as usize;
                match self.take(number, &mut buffer)? {
                    Taken::Message => came.push(number),
                    Taken::End => senders -= 1,
                    Taken::Nothing => {}
                }
            }
            if !came.is_empty() {
                self.write(came.len())?;
                counts.turns += 1;
                counts.messages += came.len() as u64;
            }
            for number in came {
                if self.plan.consumers > 0 {
                    let consumer = self.plan.producers + self.next_consumer;
                    self.next_consumer = (self.next_consumer + 1) % self.plan.consumers;
                    self.served[consumer].stream.write_all(&message)?;
                }
                self.served[number].stream.write_all(&[0; ANSWER_BYTES])?;
            }
        }
        counts.spent = own_thread_time()?.saturating_sub(before);
        Ok(counts)
    }

    fn take(&mut self, number: usize, buffer: &mut [u8]) -> io::Result<Taken> {
        let served = &mut self.served[number];
        match served.stream.read(buffer) {
            Ok(0) if served.sends => Ok(Taken::End),
            Ok(read) if served.sends => {
                served.bytes += read;
                let is_whole = served.bytes >= self.plan.message_bytes;
                served.bytes %= self.plan.message_bytes;
                Ok(if is_whole { Taken::Message } else { Taken::Nothing })
            }
            Ok(_) => Ok(Taken::Nothing),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Taken::Nothing),
            Err(error) => Err(error),
        }
    }

    /// As many messages as one write, and its sync.
    fn write(&mut self, messages: usize) -> io::Result<()> {
        let Some(file) = self.file else { return Ok(()) };
        let bytes = (messages * self.plan.message_bytes).next_multiple_of(DIRECT_ALIGN);
        if FILE_BYTES < self.offset + bytes as u64 {
            self.offset = 0;
        }
        write_all(file, aligned(&self.block, bytes), self.offset)?;
        self.offset += bytes as u64;
        Ok(rustix::fs::fdatasync(file)?)
    }
}

/// The result of one look at a connection.
enum Taken {
    Message,
    Nothing,
    End,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_measured_and_nothing_is_left() {
        let directory =
            std::env::temp_dir().join(format!("postroad-bench-lower-bound-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        for (producers, consumers) in [(1, 1), (3, 2), (2, 0)] {
            let plan = Plan {
                directory: directory.clone(),
                producers,
                consumers,
                message_bytes: 5000,
                time: Duration::from_millis(20),
            };
            let rows = run(&plan).unwrap();
            assert_eq!(rows.map(|row| row.synced), [false, true]);
            for Row { per_second, together, server_us, .. } in rows {
                assert!(per_second > 0.0 && server_us > 0.0, "{producers}+{consumers}: {rows:?}");
                assert!((1.0..=producers as f64).contains(&together), "{producers}+{consumers}: {rows:?}");
            }
        }
        std::fs::remove_dir(&directory).expect("it is empty");
    }
}
