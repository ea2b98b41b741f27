//! A connection to a broker: a blocking socket around the sans-IO OpenWire client.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Buf;
use postroad_openwire::client::{
    BrokerException, ClientError, ClientEvent, ClientOptions, OpenWireClient, RequestId,
};
use postroad_openwire::codec::WireError;

use crate::BrokerUrl;

/// How long a broker may take to accept a connection, and how long to answer the greeting.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// How often a wait looks at the clock and at the stop signal.
const LOOK: Duration = Duration::from_millis(100);

/// A broker without a sign of life for this time is considered dead, unless it asks for less.
const INACTIVITY_MS_MAX: i64 = 30_000;

/// The size of a read from the socket.
const READ_BYTES: usize = 64 << 10;

/// Why a conversation with a broker came to nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The host has no address.
    #[error("{url}: no address for `{}`", url.host)]
    NoAddress {
        /// Where to.
        url: BrokerUrl,
        /// The system's error, if there was one.
        source: Option<io::Error>,
    },
    /// The connection was refused.
    #[error(
        "cannot connect to {url}: connection refused; start a broker with `postroad serve`, or name another with --url"
    )]
    NobodyListens {
        /// Where to.
        url: BrokerUrl,
    },
    /// The connection could not be made.
    #[error("cannot connect to {url}")]
    Connect {
        /// Where to.
        url: BrokerUrl,
        /// The system's error.
        source: io::Error,
    },
    /// The server does not answer.
    #[error("{url}: no answer within {} s; is it a broker?", CONNECT_MAX.as_secs())]
    NoAnswer {
        /// Where to.
        url: BrokerUrl,
    },
    /// It answers something else than it was asked.
    #[error("{url}: unexpected answer {event}")]
    Unexpected {
        /// Where to.
        url: BrokerUrl,
        /// Its error.
        event: String,
    },
    /// The measurement was stopped.
    #[error("interrupted")]
    Stopped,
    /// The broker refused something.
    #[error("the broker at {url} said no: {exception}")]
    Refused {
        /// Which broker.
        url: BrokerUrl,
        /// Its error.
        exception: BrokerException,
    },
    /// The broker takes its leave.
    #[error("the broker at {url} is shutting down")]
    Leaving {
        /// Which broker.
        url: BrokerUrl,
    },
    /// The broker hung up.
    #[error("the broker at {url} closed the connection")]
    Closed {
        /// Which broker.
        url: BrokerUrl,
    },
    /// The network failed.
    #[error("lost {url}")]
    Lost {
        /// Which broker.
        url: BrokerUrl,
        /// The system's error.
        source: io::Error,
    },
    /// The broker broke the protocol, or went silent.
    #[error("lost {url}")]
    Protocol {
        /// Which broker.
        url: BrokerUrl,
        /// How.
        source: ClientError,
    },
    /// The command does not fit the protocol.
    #[error(transparent)]
    Wire(#[from] WireError),
}

/// An open connection.
pub struct Link {
    stream: TcpStream,
    client: OpenWireClient,
    url: BrokerUrl,
    stop: Arc<AtomicBool>,
    input: Vec<u8>,
}

/// The end of a wait.
#[derive(Debug)]
pub enum Waited {
    /// The broker said something.
    Event(ClientEvent),
    /// It said nothing in time.
    Timeout,
    /// The measurement was stopped.
    Stopped,
}

impl Link {
    /// Connects, and waits until the broker has accepted. `stop` ends any wait once it is set.
    ///
    /// # Errors
    /// There is no server, it is not a broker, or it refuses: each error has the URL.
    pub fn open(
        url: &BrokerUrl,
        user: Option<String>,
        password: Option<String>,
        stop: Arc<AtomicBool>,
    ) -> Result<Link, LinkError> {
        let url = url.clone();
        let stream = connect(&url)?;
        let connection_id = connection_id();
        let options = ClientOptions { connection_id, user, password, max_inactivity_ms: INACTIVITY_MS_MAX };
        let client = OpenWireClient::new(options, now_ms())?;
        let mut link = Link { stream, client, url, stop, input: vec![0; READ_BYTES] };
        match link.wait(Some(Instant::now() + CONNECT_MAX))? {
            Waited::Event(ClientEvent::Connected) => Ok(link),
            Waited::Event(event) => Err(LinkError::Unexpected { url: link.url, event: format!("{event:?}") }),
            Waited::Timeout => Err(LinkError::NoAnswer { url: link.url }),
            Waited::Stopped => Err(LinkError::Stopped),
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

    /// An event that was read and decoded already.
    ///
    /// # Errors
    /// The broker said no to something.
    pub fn at_hand(&mut self) -> Result<Option<ClientEvent>, LinkError> {
        self.client.next_event().map(|event| self.judge(event)).transpose()
    }

    /// Writes due commands, and waits for an event of the broker: until `end`, or for as long as it
    /// lives.
    ///
    /// # Errors
    /// The connection broke, or the broker said no to something.
    pub fn wait(&mut self, end: Option<Instant>) -> Result<Waited, LinkError> {
        loop {
            if let Some(event) = self.at_hand()? {
                return Ok(Waited::Event(event));
            }
            if self.stop.load(Ordering::Acquire) {
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

    /// Writes all pending commands, and reads available events, without waiting for more.
    ///
    /// # Errors
    /// The connection broke.
    pub fn exchange(&mut self) -> Result<(), LinkError> {
        self.write()?;
        self.read(None).map(|_| ())
    }

    /// Waits until the broker has carried out a request; other events before that are given to
    /// `each`.
    ///
    /// # Errors
    /// The connection broke, or the broker said no.
    pub fn wait_for(
        &mut self,
        request: RequestId,
        mut each: impl FnMut(ClientEvent),
    ) -> Result<(), LinkError> {
        self.listen_until(|event| {
            let done = event == ClientEvent::Done(request);
            if !done {
                each(event);
            }
            done
        })
    }

    /// Passes the broker's events to `is_last`, until it returns true. A signal to stop does not
    /// end it: the broker's answer is worth the wait, and a second signal ends the process.
    ///
    /// # Errors
    /// The connection broke, or the broker said no.
    pub fn listen_until(&mut self, mut is_last: impl FnMut(ClientEvent) -> bool) -> Result<(), LinkError> {
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
    pub fn close(mut self) -> Result<(), LinkError> {
        let request = self.client.leave()?;
        self.wait_for(request, |_| ())?;
        self.client.shut_down()?;
        self.write()
    }

    fn judge(&self, event: ClientEvent) -> Result<ClientEvent, LinkError> {
        let url = || self.url.clone();
        match event {
            ClientEvent::Refused { exception, .. } | ClientEvent::Failed(exception) => {
                Err(LinkError::Refused { url: url(), exception })
            }
            ClientEvent::Leaving => Err(LinkError::Leaving { url: url() }),
            event => Ok(event),
        }
    }

    fn protocol(&self, source: ClientError) -> LinkError {
        LinkError::Protocol { url: self.url.clone(), source }
    }

    fn write(&mut self) -> Result<(), LinkError> {
        self.client.wake(now_ms()).map_err(|error| self.protocol(error))?;
        let output = self.client.output();
        let written = self.stream.write_all(output);
        output.advance(output.len());
        if written.is_err() {
            self.last_words()?;
        }
        written.map_err(|source| LinkError::Lost { url: self.url.clone(), source })
    }

    /// A broker that closes a connection says why, before the failure that we see.
    fn last_words(&mut self) -> Result<(), LinkError> {
        while self.read(None).is_ok_and(|bytes| bytes > 0) {}
        while self.at_hand()?.is_some() {}
        Ok(())
    }

    /// Reads once, and says how many bytes: waits for this time, or not at all.
    fn read(&mut self, wait: Option<Duration>) -> Result<usize, LinkError> {
        let read = self.read_socket(wait);
        match read {
            Ok(0) => Err(LinkError::Closed { url: self.url.clone() }),
            Ok(bytes) => {
                let understood = self.client.receive(&self.input[..bytes], now_ms());
                understood.map_err(|error| self.protocol(error))?;
                Ok(bytes)
            }
            Err(error) if is_pause(error.kind()) => Ok(0),
            Err(source) => Err(LinkError::Lost { url: self.url.clone(), source }),
        }
    }

    fn read_socket(&mut self, wait: Option<Duration>) -> io::Result<usize> {
        match wait {
            Some(wait) => self.stream.set_read_timeout(Some(wait))?,
            None => self.stream.set_nonblocking(true)?,
        }
        let read = self.stream.read(&mut self.input);
        if wait.is_none() {
            self.stream.set_nonblocking(false)?;
        }
        read
    }
}

fn is_pause(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// Tries each address of the host.
fn connect(url: &BrokerUrl) -> Result<TcpStream, LinkError> {
    let addresses = (url.host.as_str(), url.port).to_socket_addrs();
    let addresses =
        addresses.map_err(|source| LinkError::NoAddress { url: url.clone(), source: Some(source) })?;
    let mut failure = LinkError::NoAddress { url: url.clone(), source: None };
    for address in addresses {
        let made = TcpStream::connect_timeout(&address, CONNECT_MAX)
            .and_then(|stream| stream.set_nodelay(true).map(|()| stream));
        failure = match made {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                LinkError::NobodyListens { url: url.clone() }
            }
            Err(source) => LinkError::Connect { url: url.clone(), source },
        };
    }
    Err(failure)
}

/// A name that no other connection has: this process, this moment, this count.
fn connection_id() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let nanoseconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("ID:postroad-{}-{nanoseconds}-{count}", std::process::id())
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
