//! The dialler: opens links to other brokers, and opens them again when they end.
//!
//! ```text
//!   connecting ──▶ introducing ──▶ linked ──▶ ended ──▶ waiting ──▶ connecting …
//! ```
//! Each change is a log line, and is shown on the board of links. A link that ends soon after it began waits longer each time.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use postroad_model::LinkedPeer;
use postroad_net::{Places, TlsClient};
use postroad_openwire::network::DialOptions;
use postroad_security::Door;
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::config::{Bridge, BridgeConfig, PeerAddress};
use crate::runtime::links::{LinkBoard, LinkKey};
use crate::runtime::threads::{NewSocket, Service};

/// A peer that accepts no connection for so long is tried again later.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// A link that lasted so long begins with the first pause again.
const STABLE: Duration = Duration::from_secs(10);

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
pub struct LinkNews(mpsc::Sender<LinkChange>);

impl LinkNews {
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
    sockets: mpsc::Sender<NewSocket>,
    board: LinkBoard,
    dials: Dials,
    running: BTreeMap<Arc<str>, Running>,
}

struct Running {
    config: BridgeConfig,
    number: u16,
    task: JoinHandle<()>,
}

impl Diallers {
    /// Opens these links. Their sockets come by the receiver.
    pub fn start(
        board: LinkBoard,
        dials: Dials,
        bridges: Vec<Bridge>,
    ) -> (Diallers, mpsc::Receiver<NewSocket>) {
        let (sockets, dialled) = mpsc::channel(DIALLED_MAX);
        let mut diallers = Diallers { sockets, board, dials, running: BTreeMap::new() };
        diallers.follow(bridges);
        (diallers, dialled)
    }

    /// Opens links that are new or have changed, each in a task of its own, and ends those that are gone or have changed.
    pub fn follow(&mut self, bridges: Vec<Bridge>) {
        let is_kept = |name: &Arc<str>, running: &Running| {
            bridges.iter().any(|bridge| bridge.dial.name == *name && bridge.config == running.config)
        };
        let ended: Vec<_> = self.running.extract_if(.., |name, running| !is_kept(name, running)).collect();
        for (name, Running { number, task, .. }) in ended {
            task.abort();
            self.dials.remove(number);
            self.board.given_up(&name);
            tracing::info!(bridge = &*name, "link given up: the configuration has changed");
        }
        for bridge in bridges {
            let name = bridge.dial.name.clone();
            if self.running.contains_key(&name) {
                continue;
            }
            let Some(number) = self.dials.add(bridge.dial.clone()) else { continue };
            let config = bridge.config.clone();
            let task = tokio::spawn(keep_linked(number, bridge, self.sockets.clone(), self.board.clone()));
            self.running.insert(name, Running { config, number, task });
        }
    }
}

/// Opens the link of this number again and again.
async fn keep_linked(number: u16, bridge: Bridge, sockets: mpsc::Sender<NewSocket>, board: LinkBoard) {
    let name = bridge.dial.name.clone();
    let key = board.opened(&name);
    let (pause_min, pause_max) = bridge.retry;
    let mut pause = pause_min;
    for PeerAddress { address, tls } in bridge.addresses.iter().cycle() {
        let began = Instant::now();
        match link(number, (&name, address, tls.clone()), &sockets, (&board, &key)).await {
            Ok(()) => return,
            Err(reason) => {
                pause = if STABLE < began.elapsed() { pause_min } else { pause };
                let seconds = pause.as_secs_f32();
                board.waits(&key, &reason, pause.as_secs());
                tracing::warn!(bridge = &*name, address, reason, retry_in_seconds = seconds, "link ended");
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(pause_max);
    }
}

/// One connection from its beginning to its end.
///
/// # Errors
/// Why the link ended. It ends without one when the broker stops.
async fn link(
    number: u16,
    (name, address, tls): (&str, &str, Option<TlsClient>),
    sockets: &mpsc::Sender<NewSocket>,
    (board, key): (&LinkBoard, &LinkKey),
) -> Result<(), String> {
    board.connects(key, address);
    tracing::info!(bridge = name, address, "link connects");
    let connecting = tokio::time::timeout(CONNECT_WITHIN, TcpStream::connect(address)).await;
    let stream = match connecting {
        Ok(connected) => connected.map_err(|error| format!("cannot connect: {error}"))?,
        Err(_) => return Err(format!("no connection after {} s", CONNECT_WITHIN.as_secs())),
    };
    board.introduces(key);
    let (news, mut told) = mpsc::channel(NEWS_MAX);
    let socket = dressed(number, stream, (tls, LinkNews(news))).map_err(|error| error.to_string())?;
    if sockets.send(socket).await.is_err() {
        return Ok(());
    }
    loop {
        match told.recv().await {
            Some(LinkChange::Linked(peer)) => {
                tracing::info!(bridge = name, address, peer = &*peer.peer_name, "linked");
                board.linked(key, peer);
            }
            Some(LinkChange::Remark(remark)) => {
                tracing::warn!(bridge = name, address, "{remark}");
                board.remarks(key, &remark);
            }
            Some(LinkChange::Ended(reason)) => return Err(reason),
            None => return Err("the connection has closed".to_owned()),
        }
    }
}

fn dressed(
    number: u16,
    stream: TcpStream,
    (tls, news): (Option<TlsClient>, LinkNews),
) -> std::io::Result<NewSocket> {
    stream.set_nodelay(true)?;
    let peer: SocketAddr = stream.peer_addr()?;
    let place = Places::new(1).take().ok_or(std::io::ErrorKind::Other)?;
    Ok(NewSocket {
        service: Service::Link { number },
        socket: stream.into_std()?,
        peer,
        place,
        tls: None,
        tls_is_asked_for: false,
        websocket_bytes_max: None,
        door: watch::channel(Arc::new(Door::open())).1,
        tls_to_peer: tls,
        link: Some(news),
    })
}
