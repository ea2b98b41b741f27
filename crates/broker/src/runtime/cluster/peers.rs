//! Connections between nodes: one for each pair, which the node with the lower number opens. If it
//! does not, as it may not know the other, the other one does after a while.
//!
//! The other nodes are those of the latest list of members that this node has seen: its own, or
//! that of a node which connects.
//!
//! Each peer has a thread that writes; its queue is bounded, and messages that find no room or no
//! connection are dropped, which Raft permits. Each connection has a thread that reads. Messages
//! that come go to the journal's thread.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use postroad_cluster::{
    DiskSpace, FORWARD_KEY_BYTES, HELLO_BYTES_MAX, Hello, HelloError, Level, Levels, MESSAGE_BYTES_MAX,
    Members, Message, NONCE_BYTES, NodeId, NodeRecord, PROOF_BYTES, Purpose, VERDICT_BYTES, Verdict, Weight,
    decode, encode, prove, verify,
};
use postroad_model::Endpoint;
use postroad_node::{ThreadWaker, Wake};
use postroad_replication::Outlet;
use postroad_security::nodes::NodeTls;

use crate::runtime::cluster::ClusterOptions;
use crate::runtime::cluster::copy::Outgoing;
use crate::runtime::cluster::forward::{ForwardedClients, ForwardedIntake};
use crate::runtime::cluster::joining::Membership;
use crate::runtime::cluster::leaving::{PeerLeaving, takes_notice};
use crate::runtime::cluster::newcomer::{self, Admitted, Askers};
use crate::runtime::cluster::node_port::NodePort;
use crate::runtime::cluster::peer_table::{Known, PeerTable};
use crate::runtime::cluster::space::PeerSpace;
use crate::runtime::cluster::store_part::StorePart;
use crate::runtime::cluster::wire::{Wire, dial, host_of};

/// Messages that wait for one peer's connection.
const OUTGOING_MAX: usize = 4096;
/// Their bytes.
const OUTGOING_BYTES_MAX: u64 = 64 << 20;
/// Messages that wait for the journal's thread.
const INCOMING_MAX: usize = 4096;
/// A peer connects, and says who it is, within this time; and reads within it.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);
/// A peer that is silent for this time is given up: its machine is gone, or the network.
const SILENCE_MAX: Duration = if cfg!(test) { Duration::from_secs(3) } else { Duration::from_secs(20) };
/// An empty frame is sent after this time without a message: followers have nothing to say to each
/// other.
const KEEP_ALIVE: Duration = if cfg!(test) { Duration::from_millis(200) } else { Duration::from_secs(2) };
/// From one attempt to connect to the next.
pub(super) const REDIAL: Duration = Duration::from_millis(200);
/// The same after a peer was refused.
const REDIAL_REFUSED: Duration = Duration::from_secs(5);

/// A node that the other one, which should, has not connected to within this time connects itself.
const STRANDED: Duration = Duration::from_secs(3);

/// Input of the thread that writes to a peer.
enum Post {
    Message(Bytes),
    Wire(Arc<Wire>),
}

/// What a peer has said of itself.
#[derive(Default)]
struct Introduction {
    zone: String,
    levels: Option<Levels>,
    weight: Weight,
    /// Where its clients connect.
    endpoints: Vec<Endpoint>,
    /// For connections of clients that are carried to it.
    forward_key: [u8; FORWARD_KEY_BYTES],
    /// See [`Hello::takes_clients`].
    takes_clients: bool,
}

/// Another node, as far as it is known.
pub struct Peer {
    /// Its number.
    pub node: NodeId,
    /// Where it listens.
    pub address: String,
    /// How it calls itself, once it has connected.
    pub name: OnceLock<String>,
    /// As it said when it last connected.
    introduced: Mutex<Introduction>,
    /// The last damage of its store, as it said when it last connected; empty if there was none.
    damage: Mutex<String>,
    /// Its store is damaged, and not filled yet.
    pub damaged: AtomicBool,
    /// The space of its disk, as it said last.
    pub space: PeerSpace,
    /// Notices about leaving a damaged store.
    pub leaving: PeerLeaving,
    /// Whether there is a connection.
    pub connected: AtomicBool,
    /// Connections since the start.
    pub sockets: AtomicU64,
    /// Bytes of messages sent since the start.
    pub sent_bytes: AtomicU64,
    /// Bytes of copies of the store sent since the start.
    pub copied_bytes: AtomicU64,
    queued_bytes: AtomicU64,
    queue: SyncSender<Post>,
    /// It is no member any more: its threads end.
    gone: AtomicBool,
}

impl Peer {
    fn new(node: NodeId, record: &NodeRecord, queue: SyncSender<Post>) -> Peer {
        let name = OnceLock::new();
        if !record.name.is_empty() {
            let _ = name.set(record.name.clone());
        }
        Peer {
            node,
            address: record.address.clone(),
            name,
            introduced: Mutex::new(Introduction { zone: record.zone.clone(), ..Introduction::default() }),
            damage: Mutex::default(),
            damaged: AtomicBool::new(false),
            space: PeerSpace::default(),
            leaving: PeerLeaving::default(),
            connected: AtomicBool::new(false),
            sockets: AtomicU64::new(0),
            sent_bytes: AtomicU64::new(0),
            copied_bytes: AtomicU64::new(0),
            queued_bytes: AtomicU64::new(0),
            queue,
            gone: AtomicBool::new(false),
        }
    }

    /// The last damage of its store, and its outcome; empty if there was none.
    pub fn damage(&self) -> String {
        self.damage.lock().map_or_else(|_| String::new(), |damage| damage.clone())
    }

    fn note_damage(&self, hello: &Hello) {
        let is_damaged = !hello.joined && !hello.damage.is_empty();
        if let Ok(mut known) = self.damage.lock()
            && *known != hello.damage
        {
            if !hello.damage.is_empty() {
                tracing::warn!(
                    node = hello.name,
                    damage = hello.damage,
                    "the store of a node is damaged, or was"
                );
            }
            known.clone_from(&hello.damage);
        }
        self.damaged.store(is_damaged, Ordering::Release);
    }

    /// Says how much space this node has, if the peer takes such notices.
    fn tell_space(&self, space: DiskSpace) {
        if self.space.is_told() {
            self.tell(&space.notice());
        }
    }

    /// Sends a notice, if there is a connection and room. All of them are said again.
    pub fn tell(&self, notice: &[u8]) {
        if !self.connected.load(Ordering::Acquire) {
            return;
        }
        let notice = Bytes::copy_from_slice(notice);
        let length = notice.len() as u64;
        self.queued_bytes.fetch_add(length, Ordering::AcqRel);
        if self.queue.try_send(Post::Message(notice)).is_err() {
            self.queued_bytes.fetch_sub(length, Ordering::AcqRel);
        }
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Acquire)
    }

    /// Ends its threads and its connection.
    fn leave(&self) {
        self.gone.store(true, Ordering::Release);
        // So that the writing thread looks.
        let _ = self.queue.try_send(Post::Message(Bytes::new()));
    }

    /// Where its clients connect by URLs of this scheme, as far as it has said so.
    pub fn endpoint(&self, scheme: &str) -> Option<Endpoint> {
        self.introduction(|known| known.endpoints.iter().find(|endpoint| endpoint.scheme == scheme).cloned())
    }

    /// Where it is, as far as it has said so; empty if it has not.
    pub fn zone(&self) -> String {
        self.introduction(|known| known.zone.clone())
    }

    /// The levels that it speaks, once it has connected.
    pub fn levels(&self) -> Option<Levels> {
        self.introduction(|known| known.levels)
    }

    /// Its share of the leaders.
    pub fn weight(&self) -> Weight {
        self.introduction(|known| known.weight)
    }

    /// Where its clients connect, as far as it has said so.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        self.introduction(|known| known.endpoints.clone())
    }

    /// The key for connections of clients that are carried to it.
    pub fn forward_key(&self) -> [u8; FORWARD_KEY_BYTES] {
        self.introduction(|known| known.forward_key)
    }

    /// Whether it takes clients that have not logged in by its own nonce: nodes of a version before
    /// do not.
    pub fn takes_clients(&self) -> bool {
        self.introduction(|known| known.takes_clients)
    }

    fn introduction<T: Default>(&self, of: impl FnOnce(&Introduction) -> T) -> T {
        self.introduced.lock().map_or_else(|_| T::default(), |known| of(&known))
    }
}

/// The other nodes.
pub type Peers = Arc<PeerTable>;

/// Shared by all threads of this room.
pub struct Shared {
    hello: Hello,
    secret: Vec<u8>,
    tls: Option<NodeTls>,
    intake: ForwardedIntake,
    membership: Arc<Membership>,
    outgoing: Outgoing,
    askers: Askers,
    peers: Peers,
    incoming: SyncSender<Message>,
    waker: Arc<ThreadWaker>,
    /// The space of this node's disk.
    space: AtomicU8,
    /// Which of the stores of its process this is.
    part: StorePart,
}

impl Shared {
    /// The space of this node's disk.
    pub fn space(&self) -> DiskSpace {
        DiskSpace::of_byte(self.space.load(Ordering::Acquire))
    }

    /// Tells all others of the space of this node's disk.
    pub fn tell_space(&self, space: DiskSpace) {
        self.space.store(space.byte(), Ordering::Release);
        self.peers.all().iter().for_each(|peer| peer.tell_space(space));
    }

    /// The other nodes.
    pub fn peers(&self) -> &Peers {
        &self.peers
    }

    /// The number of this node.
    pub fn own(&self) -> NodeId {
        self.hello.node
    }

    /// The levels that this node speaks.
    pub fn levels(&self) -> Levels {
        self.hello.levels
    }

    /// Which of the stores of its process this is.
    pub(super) fn part(&self) -> &StorePart {
        &self.part
    }

    /// The name of the group of nodes that keep this store.
    pub(super) fn group(&self) -> &str {
        &self.hello.cluster
    }

    /// TLS between the nodes.
    pub(super) fn tls(&self) -> Option<&NodeTls> {
        self.tls.as_ref()
    }

    /// Where this node is.
    pub fn zone(&self) -> &str {
        &self.hello.zone
    }

    /// The share of the leaders that this node gets.
    pub fn weight(&self) -> Weight {
        self.hello.weight
    }

    /// The highest level that all members speak; `None` while one is not reached.
    pub fn common_level(&self) -> Option<Level> {
        let peers = self.peers.all();
        let newest = |peer: &Arc<Peer>| {
            let reached = peer.connected.load(Ordering::Acquire);
            Some(peer.levels().filter(|_| reached)?.newest)
        };
        peers.iter().map(newest).chain([Some(self.hello.levels.newest)]).min().flatten()
    }

    /// Whether this node takes part.
    pub fn membership(&self) -> &Arc<Membership> {
        &self.membership
    }

    /// Copies for others.
    pub fn outgoing(&self) -> &Outgoing {
        &self.outgoing
    }

    /// Connections of clients, on their way to the leader that this node is.
    pub fn intake(&self) -> &ForwardedIntake {
        &self.intake
    }

    /// Newcomers that ask to join.
    pub fn askers(&self) -> &Askers {
        &self.askers
    }

    /// What a list of members should say of those that it says nothing of.
    pub fn names(&self) -> BTreeMap<NodeId, NodeRecord> {
        let Known { members, peers } = self.peers.known();
        let mut records = members.records.clone();
        for (node, record) in &mut records {
            let (name, zone) = match peers.iter().find(|peer| peer.node == *node) {
                Some(peer) => (peer.name.get().cloned(), peer.zone()),
                None if *node == self.hello.node => (Some(self.hello.name.clone()), self.hello.zone.clone()),
                None => continue,
            };
            record.name = name.unwrap_or_else(|| std::mem::take(&mut record.name));
            record.zone = zone;
        }
        records
    }

    /// Follows a later list of members.
    ///
    /// # Errors
    /// The system starts no thread.
    pub fn adopt(self: &Arc<Shared>, members: &Members) -> io::Result<()> {
        let own = self.hello.node;
        let Ok(mut known) = self.peers.0.write() else { return Ok(()) };
        if !known.members.voters.is_empty() && !members.is_later_than(&known.members) {
            return Ok(());
        }
        let mut peers = Vec::new();
        for node in members.all().into_iter().filter(|node| *node != own) {
            if let Some(peer) = known.peers.iter().find(|peer| peer.node == node) {
                peers.push(peer.clone());
                continue;
            }
            let (queue, posts) = sync_channel(OUTGOING_MAX);
            let mut record = members.record(node).cloned().unwrap_or_default();
            record.name = self.membership.name(node).unwrap_or(record.name);
            let peer = Arc::new(Peer::new(node, &record, queue));
            let (writes, number) = (peer.clone(), node.get());
            named(format!("peer-{number}-out"), move || write_all(&writes, &posts))?;
            let (shared, dialled) = (self.clone(), peer.clone());
            named(format!("peer-{number}"), move || keep_dialled(&shared, &dialled))?;
            peers.push(peer);
        }
        let left = known.peers.iter().filter(|peer| !members.contains(peer.node));
        left.for_each(|peer| peer.leave());
        *known = Known { members: Arc::new(members.clone()), peers: Arc::new(peers) };
        drop(known);
        self.membership.follow(own, members);
        Ok(())
    }

    /// Wakes the journal's thread.
    pub fn wake(&self) {
        self.waker.wake();
    }

    /// Connects to a node.
    ///
    /// # Errors
    /// It is not reached, or one of the two refuses the other.
    pub fn connect(self: &Arc<Shared>, peer: &Peer, purpose: Purpose) -> anyhow::Result<(Wire, Introduced)> {
        let (address, tls) = (&peer.address, self.tls.as_ref());
        let wire = Wire::dialled(dial(address, PATIENCE)?, PATIENCE, (tls, host_of(address)))?;
        match introduce(self, &wire, (purpose, None), Some(peer.node))? {
            Some(introduced) => Ok((wire, introduced)),
            None => bail!("the peer has no number yet"),
        }
    }
}

/// The other end of a connection.
pub struct Introduced {
    hello: Hello,
    /// Its verdict about this node.
    theirs: Verdict,
    /// The verdict of this node.
    ours: Verdict,
    /// For connections of clients that are carried to it.
    forward_key: [u8; FORWARD_KEY_BYTES],
}

impl Introduced {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.hello.name
    }
}

/// What [`start`] returns.
pub struct Started {
    /// All that the threads share.
    pub shared: Arc<Shared>,
    /// The way to the other nodes.
    pub send: Outlet,
    /// Their messages.
    pub messages: Receiver<Message>,
    /// Connections of clients that they carry here.
    pub clients: ForwardedClients,
}

/// Listens, and connects. The waker is woken for each message that comes.
///
/// # Errors
/// The address cannot be listened on, or the system starts no thread.
pub fn start(
    options: &ClusterOptions,
    Admitted { number: own, members }: &Admitted,
    membership: Arc<Membership>,
    outgoing: Outgoing,
    waker: Arc<ThreadWaker>,
) -> anyhow::Result<Started> {
    let port = match options.part.port() {
        Some(port) => port,
        None => NodePort::bind(options)?,
    };
    let (incoming, messages) = sync_channel(INCOMING_MAX);
    let (intake, clients) = ForwardedIntake::new().context("the system provides no random bytes")?;
    let hello = Hello {
        cluster: options.cluster.clone(),
        members: Members::default(),
        node: *own,
        name: options.node.clone(),
        identity: membership.identity(),
        endpoints: options.endpoints.iter().map(Endpoint::to_string).collect::<Vec<_>>().join(" "),
        zone: options.zone.clone(),
        levels: options.levels,
        nonce: [0; NONCE_BYTES],
        purpose: Purpose::Messages,
        joined: false,
        damage: String::new(),
        space: None,
        weight: options.weight,
        asks_to_leave: true,
        takes_clients: true,
    };
    let tls = options.tls.as_ref().map(NodeTls::load).transpose().context("cluster.tls")?;
    let (secret, sent_by) = (options.secret.clone(), membership.clone());
    let (peers, askers) = (Peers::default(), Askers::default());
    let sends_to = peers.clone();
    let space = AtomicU8::new(DiskSpace::Ample.byte());
    let part = options.part.clone();
    let shared = Arc::new(Shared {
        hello,
        secret,
        tls,
        intake,
        membership,
        outgoing,
        askers,
        peers,
        incoming,
        waker,
        space,
        part,
    });
    shared.adopt(members)?;
    port.serve(shared.clone())?;
    let send = Box::new(move |message| {
        sent_by.sends(&message);
        send(&sends_to, &message);
    });
    Ok(Started { shared, send, messages, clients })
}

pub(super) fn named(name: String, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name).spawn(run).map(|_| ())
}

/// Puts a message on its way, or drops it.
fn send(peers: &Peers, message: &Message) {
    let Some(peer) = peers.find(message.to) else { return };
    if !peer.connected.load(Ordering::Acquire) || peer.space.drops(&message.body) {
        return;
    }
    let bytes = match encode(message) {
        Ok(bytes) => bytes,
        Err(error) => return tracing::error!(%error, "cannot encode a message to another node"),
    };
    let length = bytes.len() as u64;
    let queued = peer.queued_bytes.fetch_add(length, Ordering::AcqRel);
    let fits = queued == 0 || queued + length <= OUTGOING_BYTES_MAX;
    if !fits || peer.queue.try_send(Post::Message(bytes)).is_err() {
        peer.queued_bytes.fetch_sub(length, Ordering::AcqRel);
    }
}

/// Writes queued messages to the latest connection of a peer.
fn write_all(peer: &Peer, posts: &Receiver<Post>) {
    let mut wire: Option<Arc<Wire>> = None;
    loop {
        let post = match posts.recv_timeout(KEEP_ALIVE) {
            Ok(post) => post,
            Err(RecvTimeoutError::Timeout) => Post::Message(Bytes::new()),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if peer.is_gone() {
            wire.into_iter().for_each(|wire| wire.shut_down());
            peer.connected.store(false, Ordering::Release);
            return;
        }
        match post {
            Post::Wire(new) => {
                if let Some(old) = wire.replace(new) {
                    old.shut_down();
                }
                peer.sockets.fetch_add(1, Ordering::AcqRel);
                peer.connected.store(true, Ordering::Release);
            }
            Post::Message(bytes) => {
                peer.queued_bytes.fetch_sub(bytes.len() as u64, Ordering::AcqRel);
                let Some(open) = &wire else { continue };
                peer.sent_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
                if let Err(error) = open.write_frame(&bytes) {
                    tracing::debug!(node = peer.node.get(), %error, "cannot reach a node");
                    open.shut_down();
                    peer.connected.store(false, Ordering::Release);
                    wire = None;
                }
            }
        }
    }
}

/// Talks with a node that has connected and said this.
///
/// # Errors
/// It is refused.
pub(super) fn meet(
    shared: &Arc<Shared>,
    wire: Wire,
    (hello, met): (Vec<u8>, impl FnOnce()),
) -> anyhow::Result<()> {
    let introduced = introduce(shared, &wire, (Purpose::Messages, Some(hello)), None);
    met();
    match introduced? {
        None => answer_newcomer(shared, &wire),
        Some(introduced) if introduced.hello.purpose == Purpose::Copy => {
            send_copy(shared, &wire, &introduced.hello)
        }
        Some(introduced) => talk(shared, wire, &introduced),
    }
}

/// Sends a copy of the store to a peer.
fn send_copy(shared: &Shared, wire: &Wire, peer: &Hello) -> anyhow::Result<()> {
    let known = shared.peers.find(peer.node);
    let known = known.with_context(|| format!("node {} is not a member", peer.node.get()))?;
    shared.outgoing.serve(wire, &peer.name, &known.copied_bytes)
}

/// Answers a node that asks to join.
fn answer_newcomer(shared: &Shared, wire: &Wire) -> anyhow::Result<()> {
    let (members, records) = (shared.peers.members(), shared.names());
    newcomer::answer(wire, &shared.askers, &members, |node| Some(records.get(&node)?.name.clone()))
}

/// Connects to a peer, again and again, until it is gone.
fn keep_dialled(shared: &Arc<Shared>, peer: &Peer) {
    let waits = peer.node < shared.hello.node;
    while !peer.is_gone() && !shared.membership.removed() {
        if waits || peer.connected.load(Ordering::Acquire) {
            thread::sleep(STRANDED);
            if peer.connected.load(Ordering::Acquire) || peer.is_gone() {
                continue;
            }
        }
        let talked = shared
            .connect(peer, Purpose::Messages)
            .and_then(|(wire, introduced)| talk(shared, wire, &introduced));
        let pause = match talked {
            Ok(()) => REDIAL,
            Err(error) if is_away(&error) => {
                tracing::debug!(node = peer.node.get(), error = format!("{error:#}"), "cannot reach a node");
                REDIAL
            }
            Err(error) => {
                tracing::warn!(node = peer.node.get(), error = format!("{error:#}"), "refused a node");
                REDIAL_REFUSED
            }
        };
        thread::sleep(pause);
    }
}

/// Whether the connection has just ended. Bytes that make no sense, and certificates, are refusals.
fn is_away(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
    kind.is_some_and(|kind| !matches!(kind, io::ErrorKind::InvalidData | io::ErrorKind::PermissionDenied))
}

/// Finds out who is at the other end, and whether each may vote; `None` if the peer has no number
/// yet. Its hello may have come already.
fn introduce(
    shared: &Arc<Shared>,
    wire: &Wire,
    (purpose, hello_of_peer): (Purpose, Option<Vec<u8>>),
    expected: Option<NodeId>,
) -> anyhow::Result<Option<Introduced>> {
    let members = Members::clone(&shared.peers.members());
    let (joined, damage) = (shared.membership.joined(), shared.membership.damage());
    let space = Some(shared.space());
    let mut hello = Hello { purpose, members, joined, damage, space, ..shared.hello.clone() };
    let peer = prove_each_other(&shared.secret, (wire, hello_of_peer), &mut hello, expected)?;
    if peer.purpose == Purpose::Join {
        return Ok(None);
    }
    match hello.later_members(&peer) {
        Ok(members) => shared.adopt(members)?,
        Err(HelloError::Removed(node)) if node == hello.node => {
            shared.adopt(&peer.members)?;
            bail!("{} says that this node was removed from the cluster", peer.name);
        }
        Err(error) => return Err(error.into()),
    }
    let ours = shared.membership.judge(&peer)?;
    if let Some(known) = shared.peers.find(peer.node) {
        known.note_damage(&peer);
        known.space.introduced(peer.space);
        known.leaving.introduced(peer.asks_to_leave);
    }
    // The key is for proven nodes alone.
    wire.write_frame(&[&ours.encode()[..], &shared.intake.key()].concat())?;
    let frame = wire.read_frame(VERDICT_BYTES + FORWARD_KEY_BYTES)?;
    let (theirs, key) = frame.split_at(frame.len().min(VERDICT_BYTES));
    let (theirs, forward_key) =
        (Verdict::decode(theirs)?, key.try_into().context("no key for forwarded clients")?);
    shared.membership.judged(peer.node, theirs)?;
    Ok(Some(Introduced { hello: peer, theirs, ours, forward_key }))
}

/// Both say who they are, and prove that they know the secret. Returns the words of the peer, which
/// may have come already.
pub(super) fn prove_each_other(
    secret: &[u8],
    (wire, hello_of_peer): (&Wire, Option<Vec<u8>>),
    hello: &mut Hello,
    expected: Option<NodeId>,
) -> anyhow::Result<Hello> {
    rustix::rand::getrandom(&mut hello.nonce, rustix::rand::GetRandomFlags::empty())?;
    let own = hello.encode();
    wire.write_frame(&own)?;
    let bytes = hello_of_peer.map_or_else(|| wire.read_frame(HELLO_BYTES_MAX), Ok)?;
    let peer = Hello::decode(&bytes)?;
    hello.check(&peer, expected)?;
    wire.write_frame(&prove(secret, &own, &bytes))?;
    verify(secret, &own, &bytes, &wire.read_frame(PROOF_BYTES)?)?;
    Ok(peer)
}

/// Exchanges messages with a peer until the connection ends.
///
/// # Errors
/// One of the two has a store that was replaced.
fn talk(shared: &Shared, wire: Wire, introduced: &Introduced) -> anyhow::Result<()> {
    let Introduced { hello: peer, theirs, ours, forward_key } = introduced;
    let name = &peer.name;
    if ours.replaced {
        bail!(
            "{name} comes with another store: its disk was replaced. It takes part once a copy has filled it"
        );
    }
    if theirs.replaced && shared.membership.joined() {
        bail!(
            "{name} knows a later store of this node, which may have entries that this one lacks: stop this node, \
             remove its data directory and start it again"
        );
    }
    if theirs.replaced {
        bail!("{name} knows another store of this node: this one takes part once a copy has filled it");
    }
    let Some(known) = shared.peers.find(peer.node) else {
        bail!("node {} is not a member", peer.node.get());
    };
    wire.expect_within(SILENCE_MAX)?;
    let _ = known.name.set(peer.name.clone());
    if let Ok(mut introduced) = known.introduced.lock() {
        *introduced = Introduction {
            zone: peer.zone.clone(),
            levels: Some(peer.levels),
            weight: peer.weight,
            endpoints: peer.endpoints.split_whitespace().filter_map(Endpoint::parse).collect(),
            forward_key: *forward_key,
            takes_clients: peer.takes_clients,
        };
    }
    tracing::info!(node = peer.name, number = peer.node.get(), "connected to a node");
    let wire = Arc::new(wire);
    known.queue.send(Post::Wire(wire.clone())).context("the writing thread is gone")?;
    read_all(shared, &known, &wire);
    Ok(())
}

/// Reads messages until the connection ends.
fn read_all(shared: &Shared, peer: &Peer, wire: &Wire) {
    let reason = loop {
        let frame = match wire.read_frame(MESSAGE_BYTES_MAX) {
            Ok(frame) if frame.is_empty() => continue,
            Ok(frame) if takes_notice(&frame, &peer.space, &peer.leaving) => continue,
            Ok(frame) => frame,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                break format!("it was silent for {} seconds", SILENCE_MAX.as_secs());
            }
            Err(error) => break error.to_string(),
        };
        match decode(frame.into()) {
            Ok(message) if message.from == peer.node => {
                // With too many in the queue it is dropped; the sender repeats it.
                let _ = shared.incoming.try_send(message);
                shared.waker.wake();
            }
            Ok(_) => break "a message with the id of another node".to_owned(),
            Err(error) => break error.to_string(),
        }
    };
    tracing::info!(node = peer.node.get(), reason, "a connection to a node has ended");
    wire.shut_down();
}

/// The address of a socket in tests.
#[cfg(test)]
fn free_address() -> std::net::SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::cluster::identity::Identities;
    use postroad_cluster::{Body, Index, MemberChange, Term};
    use std::time::Instant;

    struct Node {
        peers: Peers,
        send: Outlet,
        messages: Receiver<Message>,
        shared: Arc<Shared>,
        _home: tempfile::TempDir,
    }

    fn node(number: usize, seeds: &[String], secret: &str) -> Node {
        let home = tempfile::tempdir().unwrap();
        let options = ClusterOptions {
            cluster: "c".to_owned(),
            node: format!("n{number}"),
            listen: seeds[number - 1].clone(),
            seeds: seeds.to_vec(),
            secret: secret.as_bytes().to_vec(),
            endpoints: vec![Endpoint { scheme: "tcp".to_owned(), host: format!("h{number}"), port: 61616 }],
            ..ClusterOptions::default()
        };
        let admitted = options.founder().unwrap().unwrap();
        let identities = Identities::open(home.path(), "c", admitted.number).unwrap();
        let Admitted { number, members } = &admitted;
        let membership = Arc::new(Membership::new(identities, *number, members, Term(0)));
        let outgoing = Outgoing::new(home.path());
        let Started { shared, send, messages, .. } =
            start(&options, &admitted, membership, outgoing, Arc::default()).unwrap();
        Node { peers: shared.peers.clone(), send, messages, shared, _home: home }
    }

    fn is_connected(node: &Node, other: u64) -> bool {
        node.peers.reached().contains(&NodeId::new(other).unwrap())
    }

    fn wait(event: &str, mut done: impl FnMut() -> bool) {
        let until = Instant::now() + Duration::from_secs(20);
        while !done() {
            assert!(Instant::now() < until, "{event}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The connection between two followers carries no messages of theirs.
    #[test]
    fn a_connection_without_messages_stays() {
        let seeds: Vec<String> = (0..3).map(|_| free_address().to_string()).collect();
        let (one, two) = (node(1, &seeds, "secret"), node(2, &seeds, "secret"));
        wait("one and two connect", || is_connected(&one, 2) && is_connected(&two, 1));
        let sockets = |node: &Node| node.peers.all()[0].sockets.load(Ordering::Acquire);
        let before = sockets(&one);
        thread::sleep(SILENCE_MAX + SILENCE_MAX / 2);
        assert_eq!((sockets(&one), is_connected(&one, 2)), (before, true));
        assert!(two.messages.try_recv().is_err(), "an empty frame is no message");
    }

    #[test]
    fn nodes_of_one_secret_exchange_messages_and_another_is_refused() {
        let seeds: Vec<String> = (0..3).map(|_| free_address().to_string()).collect();
        let (mut one, two) = (node(1, &seeds, "secret"), node(2, &seeds, "secret"));
        let three = node(3, &seeds, "guess");
        wait("one and two connect", || is_connected(&one, 2) && is_connected(&two, 1));
        let endpoints =
            |node: &Node| node.peers.all().iter().map(|it| it.endpoint("tcp")).collect::<Vec<_>>();
        assert_eq!(endpoints(&one), [Endpoint::parse("tcp://h2:61616"), None]);
        let number = |number| NodeId::new(number).unwrap();
        let body = Body::Heartbeat { commit: Index(7) };
        let message = Message { from: number(1), to: number(2), term: Term(3), body };
        (one.send)(message.clone());
        assert_eq!(two.messages.recv_timeout(Duration::from_secs(20)), Ok(message.clone()));
        (one.send)(Message { to: number(3), ..message });
        assert!(!is_connected(&one, 3) && !is_connected(&three, 1) && !is_connected(&three, 2));
        assert!(three.messages.try_recv().is_err());
    }

    #[test]
    fn a_node_learns_of_later_members_as_it_connects_also_that_it_is_none_any_more() {
        let seeds: Vec<String> = (0..3).map(|_| free_address().to_string()).collect();
        let number = |number| NodeId::new(number).unwrap();
        let one = node(1, &seeds, "secret");
        let changed = Members::clone(&one.peers.members());
        let changed = changed.after(MemberChange::Add(number(4))).unwrap();
        let changed = Members { since: Index(9), ..changed.after(MemberChange::Remove(number(3))).unwrap() };
        one.shared.adopt(&changed).unwrap();
        let two = node(2, &seeds, "secret");
        wait("two learns of four", || two.peers.find(number(4)).is_some());
        assert!(two.peers.find(number(3)).is_none());
        wait("one and two connect", || is_connected(&two, 1));
        let three = node(3, &seeds, "secret");
        wait("three learns that it was removed", || three.shared.membership.removed());
        assert!(!three.shared.membership.joined() && !is_connected(&one, 3));
        // An earlier list changes nothing.
        let earlier = Members { since: Index(8), ..Members::founders(["a:1"]) };
        two.shared.adopt(&earlier).unwrap();
        assert_eq!(two.peers.members().since, Index(9));
    }
}
