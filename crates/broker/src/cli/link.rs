//! A connection from the command line to a broker: a blocking socket around the sans-IO client.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow, bail};
use bytes::Buf;
use clap::Args;
use postroad_openwire::client::{ClientEvent, ClientOptions, OpenWireClient, RequestId};

use crate::cli::names::{BrokerUrl, parse_url};
use crate::cli::stop::Stop;
use crate::runtime::now_ms;

/// How long a broker may take to accept a connection, and how long to answer the greeting.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// How often a wait looks at the clock and at the stop signal.
const LOOK: Duration = Duration::from_millis(100);

/// A broker that shows no sign of life for so long is taken for dead, unless it asks for less.
const INACTIVITY_MS_MAX: i64 = 30_000;

/// What is read from the socket at once.
const READ_BYTES: usize = 64 << 10;

/// How to reach a broker.
#[derive(Clone, Debug, Args)]
pub struct ConnectArguments {
    /// The broker's URL.
    #[arg(long, value_name = "URL", default_value = "tcp://127.0.0.1:61616", value_parser = parse_url)]
    pub url: BrokerUrl,
    /// Who to connect as.
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// The user's password.
    #[arg(long, value_name = "TEXT")]
    pub password: Option<String>,
}

/// An open connection.
pub struct Link {
    stream: TcpStream,
    client: OpenWireClient,
    url: BrokerUrl,
    stop: Stop,
    input: Vec<u8>,
}

/// What a wait ended with.
#[derive(Debug)]
pub enum Waited {
    /// The broker said something.
    Event(ClientEvent),
    /// It said nothing in time.
    Timeout,
    /// Somebody asked us to stop.
    Stopped,
}

impl Link {
    /// Connects, and waits until the broker has accepted.
    ///
    /// # Errors
    /// Nobody listens there, it is no broker, or it refuses: each says the URL.
    pub fn open(arguments: &ConnectArguments, stop: Stop) -> anyhow::Result<Link> {
        let url = arguments.url.clone();
        let stream = connect(&url)?;
        let options = ClientOptions {
            connection_id: connection_id(),
            user: arguments.user.clone(),
            password: arguments.password.clone(),
            max_inactivity_ms: INACTIVITY_MS_MAX,
        };
        let client = OpenWireClient::new(options, now_ms())?;
        let mut link = Link { stream, client, url, stop, input: vec![0; READ_BYTES] };
        match link.wait(Some(Instant::now() + CONNECT_MAX))? {
            Waited::Event(ClientEvent::Connected) => Ok(link),
            Waited::Event(event) => bail!("{}: unexpected answer {event:?}", link.url),
            Waited::Timeout => {
                bail!("{}: no answer within {} s; is it a broker?", link.url, CONNECT_MAX.as_secs())
            }
            Waited::Stopped => bail!("interrupted"),
        }
    }

    /// The conversation, to make requests of it.
    pub fn client(&mut self) -> &mut OpenWireClient {
        &mut self.client
    }

    /// Bytes that wait to be written.
    pub fn unwritten_bytes(&mut self) -> usize {
        self.client.output().len()
    }

    /// What has been read and understood already.
    ///
    /// # Errors
    /// The broker said no to something.
    pub fn at_hand(&mut self) -> anyhow::Result<Option<ClientEvent>> {
        self.client.next_event().map(|event| self.judge(event)).transpose()
    }

    /// Writes what is due, and waits for the broker to say something: until `end`, or for as long as it lives.
    ///
    /// # Errors
    /// The connection broke, or the broker said no to something.
    pub fn wait(&mut self, end: Option<Instant>) -> anyhow::Result<Waited> {
        loop {
            if let Some(event) = self.at_hand()? {
                return Ok(Waited::Event(event));
            }
            if self.stop.asked() {
                return Ok(Waited::Stopped);
            }
            self.write()?;
            let left = end.map_or(LOOK, |end| end.saturating_duration_since(Instant::now()).min(LOOK));
            if left.is_zero() {
                return Ok(Waited::Timeout);
            }
            self.read(Some(left))?;
        }
    }

    /// Writes all that waits, and reads what is there, without waiting for more.
    ///
    /// # Errors
    /// The connection broke.
    pub fn exchange(&mut self) -> anyhow::Result<()> {
        self.write()?;
        self.read(None).map(|_| ())
    }

    /// Waits until the broker has carried out a request; other events before that are given to `each`.
    ///
    /// # Errors
    /// The connection broke, or the broker said no.
    pub fn wait_for(&mut self, request: RequestId, mut each: impl FnMut(ClientEvent)) -> anyhow::Result<()> {
        self.listen_until(|event| {
            let done = event == ClientEvent::Done(request);
            if !done {
                each(event);
            }
            done
        })
    }

    /// Gives what the broker says to `is_last`, until it says yes. A signal to stop does not end it: the broker's word
    /// is worth the wait, and a second signal ends the process.
    ///
    /// # Errors
    /// The connection broke, or the broker said no.
    pub fn listen_until(&mut self, mut is_last: impl FnMut(ClientEvent) -> bool) -> anyhow::Result<()> {
        loop {
            while let Some(event) = self.at_hand()? {
                if is_last(event) {
                    return Ok(());
                }
            }
            self.write()?;
            self.read(Some(LOOK))?;
        }
    }

    /// Takes leave: all that was asked must have been answered before.
    ///
    /// # Errors
    /// The connection broke, or the broker said no to something.
    pub fn close(mut self) -> anyhow::Result<()> {
        let request = self.client.leave()?;
        self.wait_for(request, |_| ())?;
        self.client.shut_down()?;
        self.write()
    }

    fn judge(&self, event: ClientEvent) -> anyhow::Result<ClientEvent> {
        match event {
            ClientEvent::Refused { exception, .. } | ClientEvent::Failed(exception) => {
                Err(anyhow!("the broker at {} said no: {exception}", self.url))
            }
            ClientEvent::Leaving => Err(anyhow!("the broker at {} is shutting down", self.url)),
            event => Ok(event),
        }
    }

    fn write(&mut self) -> anyhow::Result<()> {
        self.client.wake(now_ms()).with_context(|| format!("lost {}", self.url))?;
        let output = self.client.output();
        let written = self.stream.write_all(output);
        output.advance(output.len());
        if written.is_err() {
            self.last_words()?;
        }
        written.with_context(|| format!("lost {}", self.url))
    }

    /// A broker that closes a connection says why, ahead of the failure that we see.
    fn last_words(&mut self) -> anyhow::Result<()> {
        while self.read(None).is_ok_and(|bytes| bytes > 0) {}
        while self.at_hand()?.is_some() {}
        Ok(())
    }

    /// Reads once, and says how many bytes: waits for so long, or not at all.
    fn read(&mut self, wait: Option<Duration>) -> anyhow::Result<usize> {
        let lost = || format!("lost {}", self.url);
        match wait {
            Some(wait) => self.stream.set_read_timeout(Some(wait))?,
            None => self.stream.set_nonblocking(true)?,
        }
        let read = self.stream.read(&mut self.input);
        if wait.is_none() {
            self.stream.set_nonblocking(false)?;
        }
        match read {
            Ok(0) => Err(anyhow!("the broker at {} closed the connection", self.url)),
            Ok(bytes) => {
                self.client.receive(&self.input[..bytes], now_ms()).with_context(lost)?;
                Ok(bytes)
            }
            Err(error) if is_pause(error.kind()) => Ok(0),
            Err(error) => Err(error).with_context(lost),
        }
    }
}

fn is_pause(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Tries each address of the host.
fn connect(url: &BrokerUrl) -> anyhow::Result<TcpStream> {
    let addresses = (url.host.as_str(), url.port).to_socket_addrs();
    let addresses = addresses.with_context(|| format!("{url}: no address for `{}`", url.host))?;
    let mut failure = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, CONNECT_MAX) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failure = Some(error),
        }
    }
    match failure {
        Some(error) if error.kind() == ErrorKind::ConnectionRefused => Err(anyhow!(
            "cannot connect to {url}: connection refused; start a broker with `postroad serve`, or name another with --url"
        )),
        Some(error) => Err(error).with_context(|| format!("cannot connect to {url}")),
        None => Err(anyhow!("{url}: no address for `{}`", url.host)),
    }
}

/// A name that no other connection has: this process, this moment.
fn connection_id() -> String {
    let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    format!("ID:postroad-{}-{nanoseconds}", std::process::id())
}
