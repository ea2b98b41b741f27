//! The dialler: opens links to other brokers, and opens them again when they end.
//!
//! ```text
//!   connecting ──▶ introducing ──▶ linked ──▶ ended ──▶ waiting ──▶ connecting …
//! ```
//! Each change is a log line, and is shown on the board of links. A link that ends soon after it
//! was linked, or without that, waits longer each time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use postroad_model::LinkedPeer;
use postroad_net::{Places, TlsClient};
use postroad_openwire::network::{DialOptions, LinkShare};
use postroad_security::Door;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::config::{Bridge, BridgeConfig, PeerAddress};
use crate::runtime::links::{LinkBoard, LinkKey};
use crate::runtime::new_socket::{NewSocket, Service};

/// A link that was linked for this time begins with the first pause again.
const STABLE: Duration = Duration::from_secs(10);

/// Connections of a link by default, for each round-trip time that is shorter: one lost segment
/// stalls all that shares a connection, and the longer the farther away the peer is.
const LINKS_BY_ROUND_TRIP: [(Duration, u16); 2] =
    [(Duration::from_millis(20), 1), (Duration::from_millis(60), 2)];

/// Connections by default to a peer that is further away.
const LINKS_FAR: u16 = 4;

/// A peer that seems far away is connected to as often, since this machine may only be busy: the
/// quickest counts.
const PROBES: u32 = 2;

/// Changes that the dialler has not taken.
const NEWS_MAX: usize = 8;

/// Of these are kept for the two that must not be lost: that it is linked, and that it has ended.
const NEWS_KEPT: usize = 2;

/// Changes that a connection reports of its link.
#[derive(Clone, Debug)]
pub enum LinkChange {
    /// The peer has let it in.
    Linked(LinkedPeer),
    /// It goes on, and operators should know this.
    Remark(String),
    /// It has ended, with the reason.
    Ended(String),
}

/// The channel by which the connection of a link reports to the dialler.
#[derive(Clone, Debug)]
pub struct LinkReporter(mpsc::Sender<LinkChange>);

impl LinkReporter {
    /// Waits until the dialler has gone: the link is not wanted any more.
    pub async fn abandoned(&self) {
        self.0.closed().await;
    }

    /// Reports a change of the link without waiting: without room in the channel the report is
    /// lost.
    pub fn tell(&self, change: LinkChange) {
        let is_remark = matches!(change, LinkChange::Remark(_));
        if !is_remark || NEWS_KEPT < self.0.capacity() {
            let _ = self.0.try_send(change);
        }
    }
}

/// The options of each link that is opened, by its number. Sessions look them up once.
#[derive(Clone, Default)]
pub struct Dials(Arc<Mutex<BTreeMap<u16, DialOptions>>>);

impl Dials {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u16, DialOptions>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The options of a link; of one that has just been given up, those of none.
    pub fn of(&self, number: u16) -> DialOptions {
        self.lock().get(&number).cloned().unwrap_or_default()
    }

    fn add(&self, options: DialOptions) -> Option<u16> {
        let mut dials = self.lock();
        let number = (0..u16::MAX).find(|number| !dials.contains_key(number))?;
        dials.insert(number, options);
        Some(number)
    }

    fn remove(&self, number: u16) {
        self.lock().remove(&number);
    }
}

/// Links to other brokers that wait for their core.
const DIALLED_MAX: usize = 16;

/// The links that this broker opens, which follow the configuration.
pub struct Diallers {
    ways: Ways,
    running: BTreeMap<Arc<str>, Running>,
}

struct Running {
    config: BridgeConfig,
    task: JoinHandle<()>,
}

impl Drop for Diallers {
    fn drop(&mut self) {
        self.running.values().for_each(|running| running.task.abort());
    }
}

/// Where the connections of one bridge go, and where they are listed.
#[derive(Clone)]
struct Ways {
    sockets: mpsc::Sender<NewSocket>,
    board: LinkBoard,
    dials: Dials,
}

impl Diallers {
    /// Opens these links. Their sockets come by the receiver.
    pub fn start(
        board: LinkBoard,
        dials: Dials,
        bridges: Vec<Bridge>,
    ) -> (Diallers, mpsc::Receiver<NewSocket>) {
        let (sockets, dialled) = mpsc::channel(DIALLED_MAX);
        let mut diallers = Diallers { ways: Ways { sockets, board, dials }, running: BTreeMap::new() };
        diallers.follow(bridges);
        (diallers, dialled)
    }

    /// Opens links that are new or have changed, each in a task of its own, and ends those that are
    /// gone or have changed.
    pub fn follow(&mut self, bridges: Vec<Bridge>) {
        let is_kept = |name: &Arc<str>, running: &Running| {
            bridges.iter().any(|bridge| bridge.dial.name == *name && bridge.config == running.config)
        };
        let ended: Vec<_> = self.running.extract_if(.., |name, running| !is_kept(name, running)).collect();
        for (name, Running { task, .. }) in ended {
            task.abort();
            self.ways.board.given_up(&name);
            tracing::info!(bridge = &*name, "link given up: the configuration has changed");
        }
        for bridge in bridges {
            let name = bridge.dial.name.clone();
            if self.running.contains_key(&name) {
                continue;
            }
            let config = bridge.config.clone();
            let task = tokio::spawn(keep_linked(Arc::new(bridge), self.ways.clone()));
            self.running.insert(name, Running { config, task });
        }
    }
}

/// Keeps all connections of a bridge open. The first one finds out how many there are to be.
async fn keep_linked(bridge: Arc<Bridge>, ways: Ways) {
    let mut others = JoinSet::new();
    let mut first = Lane::new(&bridge, &ways, 0);
    let open_others = |of: u16| {
        for number in 1..of {
            let mut lane = Lane::new(&bridge, &ways, number);
            others.spawn(async move { lane.keep_open(Some(of), |_| ()).await });
        }
    };
    first.keep_open(bridge.links, open_others).await;
}

/// One connection of a bridge.
struct Lane {
    bridge: Arc<Bridge>,
    ways: Ways,
    key: LinkKey,
    number: u16,
    /// The options of its sessions, once it is known how many connections there are.
    dial: Option<Dial>,
    /// When the peer has let in the connection that is open, or was open last.
    linked_at: Option<Instant>,
}

/// Pauses between attempts.
struct Pauses {
    next: Duration,
    first: Duration,
    longest: Duration,
}

impl Pauses {
    fn new((first, longest): (Duration, Duration)) -> Pauses {
        Pauses { next: first, first, longest }
    }

    /// The pause after a link that was linked for this time. An attempt may take longer than that
    /// to fail.
    fn after(&mut self, linked: Option<Duration>) -> Duration {
        if linked.is_some_and(|linked| STABLE < linked) {
            self.next = self.first;
        }
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause
    }
}

/// Options of a link, while it is wanted.
struct Dial {
    dials: Dials,
    number: u16,
}

impl Drop for Dial {
    fn drop(&mut self) {
        self.dials.remove(self.number);
    }
}

impl Lane {
    fn new(bridge: &Arc<Bridge>, ways: &Ways, number: u16) -> Lane {
        let key = ways.board.opened(&bridge.dial.name, number, bridge.profile.name());
        Lane { bridge: bridge.clone(), ways: ways.clone(), key, number, dial: None, linked_at: None }
    }

    /// Opens the connection again and again. `known` is called once with the number of connections.
    async fn keep_open(&mut self, links: Option<u16>, known: impl FnOnce(u16)) {
        let (bridge, board) = (self.bridge.clone(), self.ways.board.clone());
        let mut known = Some(known);
        if let Some(of) = links {
            self.share(of, &mut known);
        }
        let mut pauses = Pauses::new(bridge.retry);
        for peer in bridge.addresses.iter().cycle() {
            self.linked_at = None;
            let Err(reason) = self.open(peer, &mut known).await else { return };
            let pause = pauses.after(self.linked_at.map(|since| since.elapsed()));
            let (seconds, address) = (pause.as_secs_f32(), &*peer.address);
            board.waits(&self.key, &reason, pause.as_secs());
            let (bridge, link) = (&*bridge.dial.name, self.number);
            tracing::warn!(bridge, link, address, reason, retry_in_seconds = seconds, "link ended");
            tokio::time::sleep(pause).await;
        }
    }

    /// As many connections share the destinations.
    fn share(&mut self, of: u16, known: &mut Option<impl FnOnce(u16)>) {
        let mut options = self.bridge.dial.clone();
        options.link.share = LinkShare { number: self.number, of };
        let dials = self.ways.dials.clone();
        self.dial = dials.add(options).map(|number| Dial { dials, number });
        known.take().into_iter().for_each(|known| known(of));
    }

    /// One connection from its beginning to its end.
    ///
    /// # Errors
    /// Why it ended. It ends without one when the broker stops.
    async fn open(
        &mut self,
        PeerAddress { address, tls }: &PeerAddress,
        known: &mut Option<impl FnOnce(u16)>,
    ) -> Result<(), String> {
        let (bridge, link) = (self.bridge.dial.name.clone(), self.number);
        self.ways.board.connects(&self.key, address);
        tracing::info!(bridge = &*bridge, link, address, "link connects");
        let within = self.bridge.connect_within;
        let connecting = tokio::time::timeout(within, connect(address)).await;
        let (stream, round_trip) = match connecting {
            Ok(connected) => connected.map_err(|error| format!("cannot connect: {error}"))?,
            Err(_) => return Err(format!("no connection after {} s", within.as_secs_f32())),
        };
        if self.dial.is_none() {
            let round_trip = quickest(round_trip, address).await;
            self.share(links_for(round_trip), known);
        }
        let Some(Dial { number, .. }) = self.dial else {
            return Err("this broker opens too many links".to_owned());
        };
        self.ways.board.introduces(&self.key);
        let (news, told) = mpsc::channel(NEWS_MAX);
        let socket = dressed(number, stream, (tls.clone(), LinkReporter(news)));
        let socket = socket.map_err(|error| error.to_string())?;
        if self.ways.sockets.send(socket).await.is_err() {
            return Ok(());
        }
        self.follow_news(address, told).await
    }

    async fn follow_news(
        &mut self,
        address: &str,
        mut told: mpsc::Receiver<LinkChange>,
    ) -> Result<(), String> {
        let (bridge, link, board) = (&*self.bridge.dial.name, self.number, &self.ways.board);
        loop {
            match told.recv().await {
                Some(LinkChange::Linked(peer)) => {
                    tracing::info!(bridge, link, address, peer = &*peer.peer_name, "linked");
                    board.linked(&self.key, peer);
                    self.linked_at = Some(Instant::now());
                }
                Some(LinkChange::Remark(remark)) => {
                    tracing::warn!(bridge, link, address, "{remark}");
                    board.remarks(&self.key, &remark);
                }
                Some(LinkChange::Ended(reason)) => return Err(reason),
                None => return Err("the connection has closed".to_owned()),
            }
        }
    }
}

/// A connection to `HOST:PORT`, and how long the peer took to accept it: a round trip.
async fn connect(address: &str) -> std::io::Result<(TcpStream, Duration)> {
    let mut last = std::io::Error::new(std::io::ErrorKind::NotFound, "the host has no address");
    for place in tokio::net::lookup_host(address).await? {
        let began = Instant::now();
        match TcpStream::connect(place).await {
            Ok(stream) => return Ok((stream, began.elapsed())),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The shortest of several round trips, if the first one is long.
async fn quickest(first: Duration, address: &str) -> Duration {
    let mut shortest = first;
    for _ in 0..PROBES {
        if links_for(shortest) == 1 {
            break;
        }
        if let Ok(Ok((_, round_trip))) = tokio::time::timeout(first, connect(address)).await {
            shortest = shortest.min(round_trip);
        }
    }
    shortest
}

fn links_for(round_trip: Duration) -> u16 {
    let shorter = |(than, _): &&(Duration, u16)| round_trip < *than;
    LINKS_BY_ROUND_TRIP.iter().find(shorter).map_or(LINKS_FAR, |(_, links)| *links)
}

fn dressed(
    number: u16,
    stream: TcpStream,
    (tls, news): (Option<TlsClient>, LinkReporter),
) -> std::io::Result<NewSocket> {
    stream.set_nodelay(true)?;
    let peer: SocketAddr = stream.peer_addr()?;
    let place = Places::new(1).take().ok_or(std::io::ErrorKind::Other)?;
    Ok(NewSocket {
        service: Service::Link { number },
        scheme: "tcp",
        socket: stream.into_std()?,
        peer,
        place,
        tls: None,
        tls_is_asked_for: false,
        websocket_bytes_max: None,
        door: watch::channel(Arc::new(Door::open())).1,
        tls_to_peer: tls,
        login: None,
        link: Some(news),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_until_a_link_was_linked_for_a_while() {
        let mut pauses = Pauses::new((Duration::from_secs(1), Duration::from_secs(5)));
        for (case, linked, want) in [
            ("not linked", None, 1),
            ("not linked again, whatever the attempt took", None, 2),
            ("linked for a moment", Some(Duration::from_secs(1)), 4),
            ("bounded", Some(STABLE), 5),
            ("it lasted", Some(STABLE + Duration::from_millis(1)), 1),
            ("gone again", None, 2),
        ] {
            assert_eq!(pauses.after(linked), Duration::from_secs(want), "case: {case}");
        }
    }

    #[test]
    fn the_default_number_of_connections_grows_with_the_round_trip() {
        for (millis, want) in [(0, 1), (19, 1), (20, 2), (59, 2), (60, 4), (300, 4)] {
            assert_eq!(links_for(Duration::from_millis(millis)), want, "{millis} ms");
        }
    }
}
