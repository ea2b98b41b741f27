//! The board of links: how each link to another broker is, for operators.
//!
//! Diallers and connections write it when a state changes; operators read all of it. Never on a
//! message's way.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use postroad_admin::{BridgeFigures, BridgeWait};
use postroad_model::{Destination, LinkBar, LinkedPeer, QueuesOfLink};

use crate::runtime::link_watch::{Cause, WatchedLink};
use crate::runtime::now_ms;

/// Links that other brokers have opened and that have ended: as many are remembered, the latest.
const ENDED_MAX: usize = 256;

/// How far a link is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// A connection is being opened.
    Connecting,
    /// The connection is there; the peer has not let the link in yet.
    Introducing,
    /// Messages can flow.
    Linked,
    /// It has ended, and is opened again after a pause.
    Waiting,
    /// It has ended; the peer may open it again.
    Ended,
}

impl LinkState {
    /// Its name in lists and metrics.
    fn name(&self) -> &'static str {
        match self {
            LinkState::Connecting => "connecting",
            LinkState::Introducing => "introducing",
            LinkState::Linked => "linked",
            LinkState::Waiting => "waiting",
            LinkState::Ended => "ended",
        }
    }
}

/// Which link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkKey {
    name: String,
    /// The id of the peer that has opened it; empty if this broker does.
    opened_by: String,
    /// Distinguishes links that are otherwise alike.
    number: u16,
}

struct Row {
    state: LinkState,
    since_ms: u64,
    /// The profile of a link that this broker opens.
    profile: &'static str,
    address: String,
    peer: Option<LinkedPeer>,
    /// Why it ended, or a message was refused.
    reason: String,
    retry_seconds: u64,
    links: u64,
    past: Past,
    /// The queues that the peer had demand for when the link ended.
    last_queues: QueuesOfLink,
    /// Messages that wait for the link.
    wait: Option<Wait>,
}

/// Messages that wait for a link for more than a second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Why the message waits that has waited longest.
    pub cause: Cause,
    /// Its queue, if it is still in one.
    pub queue: String,
    /// Messages that wait although a consumer could have them.
    pub stuck_messages: u64,
    /// How long that message has waited.
    pub longest_ms: u64,
}

/// Counts of earlier connections of the same link.
#[derive(Clone, Copy, Default)]
struct Past {
    dispatched: u64,
    dispatched_bytes: u64,
    forwarded: u64,
    refused: u64,
    received: u64,
}

impl Past {
    fn with(mut self, peer: Option<&LinkedPeer>) -> Past {
        if let Some(LinkedPeer { figures, .. }) = peer {
            self.dispatched += figures.dispatched.get();
            self.dispatched_bytes += figures.dispatched_bytes.get();
            self.forwarded += figures.forwarded.get();
            self.refused += figures.refused.get();
            self.received += figures.received.get();
        }
        self
    }
}

/// A broker at the other end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedBroker {
    /// Its name.
    pub name: String,
    /// Where its clients reach it.
    pub url: String,
    /// How many clients it has, if it says so.
    pub clients: Option<u64>,
}

/// See the head of this file.
#[derive(Clone, Default)]
pub struct LinkBoard(Arc<Mutex<BTreeMap<LinkKey, Row>>>);

impl LinkBoard {
    fn rows(&self) -> MutexGuard<'_, BTreeMap<LinkKey, Row>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A link that this broker opens, or one of its connections.
    pub fn opened(&self, name: &str, number: u16, profile: &'static str) -> LinkKey {
        let key = LinkKey { name: name.to_owned(), opened_by: String::new(), number };
        let row = Row { profile, ..Row::new(LinkState::Connecting, String::new()) };
        self.rows().insert(key.clone(), row);
        key
    }

    /// A link is not opened any more.
    pub fn given_up(&self, name: &str) {
        self.rows().retain(|key, _| key.name != name || !key.opened_by.is_empty());
    }

    /// A peer has opened a link, and was let in.
    pub fn accepted(&self, peer: LinkedPeer, address: SocketAddr) -> LinkKey {
        let mut rows = self.rows();
        let numbered =
            |number| LinkKey { name: peer.link.to_string(), opened_by: peer.peer_id.to_string(), number };
        let is_free = |key: &LinkKey| rows.get(key).is_none_or(|row| row.state == LinkState::Ended);
        let key = (0..u16::MAX).map(numbered).find(is_free).unwrap_or_else(|| numbered(u16::MAX));
        let row = rows.entry(key.clone()).or_insert_with(|| Row::new(LinkState::Linked, String::new()));
        row.address = address.to_string();
        row.links(peer);
        key
    }

    /// The link is about to be opened, at this address.
    pub fn connects(&self, key: &LinkKey, address: &str) {
        self.change(key, |row| {
            row.address = address.to_owned();
            row.enter(LinkState::Connecting);
        });
    }

    /// The connection of the link is there.
    pub fn introduces(&self, key: &LinkKey) {
        self.change(key, |row| row.enter(LinkState::Introducing));
    }

    /// The peer has let the link in.
    pub fn linked(&self, key: &LinkKey, peer: LinkedPeer) {
        self.change(key, |row| row.links(peer));
    }

    /// The link has ended and is opened again after a pause.
    pub fn waits(&self, key: &LinkKey, reason: &str, retry_seconds: u64) {
        self.change(key, |row| {
            row.ends(LinkState::Waiting, reason);
            row.retry_seconds = retry_seconds;
        });
    }

    /// A link that a peer has opened has ended.
    pub fn ended(&self, key: &LinkKey, reason: &str) {
        let mut rows = self.rows();
        if let Some(row) = rows.get_mut(key) {
            row.ends(LinkState::Ended, reason);
        }
        let ended = || rows.iter().filter(|(_, row)| row.state == LinkState::Ended);
        if ENDED_MAX < ended().count()
            && let Some(oldest) = ended().min_by_key(|(_, row)| row.since_ms).map(|(key, _)| key.clone())
        {
            rows.remove(&oldest);
        }
    }

    /// Something that operators should know of a link that goes on.
    pub fn remarks(&self, key: &LinkKey, remark: &str) {
        self.change(key, |row| row.reason = remark.to_owned());
    }

    /// The brokers that are linked now.
    pub fn brokers(&self) -> Vec<LinkedBroker> {
        let of_peer = |peer: &LinkedPeer| LinkedBroker {
            name: peer.peer_name.to_string(),
            url: peer.peer_url.to_string(),
            clients: peer.figures.clients.get().checked_sub(1),
        };
        // Clients stay in their swimlane.
        let is_near = |peer: &&LinkedPeer| !peer.crosses_swimlanes;
        self.rows().values().filter_map(|row| row.peer.as_ref()).filter(is_near).map(of_peer).collect()
    }

    /// The links that are there, and those that this broker opens, for the watch.
    pub fn watched(&self) -> BTreeMap<LinkKey, WatchedLink> {
        let rows = self.rows();
        let watched = rows.iter().filter_map(|(key, row)| Some((key.clone(), row.watched(key)?)));
        watched.collect()
    }

    /// Links that do not serve the queue, though consumers at the peer read it: name, number, and
    /// why not.
    pub fn barring(&self, queue: &Destination) -> Vec<(String, u16, LinkBar)> {
        let bar_of = |link: &WatchedLink| {
            let excludes = link.queues.excluded.iter().any(|(other, _)| other == queue);
            let bars =
                link.queues.barred.iter().filter(|(other, _, _)| other == queue).map(|(_, _, bar)| *bar);
            excludes.then_some(LinkBar::Excluded).into_iter().chain(bars).min()
        };
        let watched = self.watched().into_iter();
        let barring = watched.filter(|(_, link)| !link.queues.read.values().any(|read| read == queue));
        barring.filter_map(|(key, link)| Some((key.name, key.number, bar_of(&link)?))).collect()
    }

    /// Messages wait for the link, or none does. A change is logged.
    pub fn judge(&self, key: &LinkKey, wait: Option<Wait>) {
        self.change(key, |row| {
            let stuck = |wait: &Option<Wait>| wait.as_ref().map(|wait| wait.cause).filter(|of| of.is_stuck());
            let (before, now) = (stuck(&row.wait), stuck(&wait));
            let bridge = &*key.name;
            if let Some(Wait { cause, queue, stuck_messages, longest_ms }) = &wait
                && now.is_some()
                && now != before
            {
                let (stuck_messages, longest_ms, cause) = (*stuck_messages, *longest_ms, cause.text());
                tracing::warn!(bridge, queue, stuck_messages, longest_ms, cause, "messages are stuck");
            }
            if before.is_some() && now.is_none() {
                tracing::info!(bridge, "messages are no longer stuck");
            }
            row.wait = wait;
        });
    }

    fn change(&self, key: &LinkKey, change: impl FnOnce(&mut Row)) {
        if let Some(row) = self.rows().get_mut(key) {
            change(row);
        }
    }

    /// All links, by name.
    pub fn figures(&self) -> Vec<BridgeFigures> {
        let now_ms = now_ms();
        self.rows().iter().map(|(key, row)| row.figures(key, now_ms)).collect()
    }
}

impl Row {
    fn new(state: LinkState, address: String) -> Row {
        Row {
            state,
            since_ms: now_ms(),
            profile: "",
            address,
            peer: None,
            reason: String::new(),
            retry_seconds: 0,
            links: 0,
            past: Past::default(),
            last_queues: QueuesOfLink::default(),
            wait: None,
        }
    }

    fn enter(&mut self, state: LinkState) {
        (self.state, self.since_ms, self.retry_seconds) = (state, now_ms(), 0);
    }

    fn links(&mut self, peer: LinkedPeer) {
        self.enter(LinkState::Linked);
        self.links += 1;
        self.reason.clear();
        self.peer = Some(peer);
    }

    fn ends(&mut self, state: LinkState, reason: &str) {
        self.enter(state);
        reason.clone_into(&mut self.reason);
        let Some(peer) = self.peer.take() else { return };
        self.past = self.past.with(Some(&peer));
        self.last_queues = peer.figures.queues.copy();
        if self.state == LinkState::Ended {
            (self.wait, self.last_queues) = (None, QueuesOfLink::default());
        }
    }

    /// A link that a peer has opened and that has ended may never come back.
    fn watched(&self, key: &LinkKey) -> Option<WatchedLink> {
        match &self.peer {
            Some(LinkedPeer { figures, peer_id, .. }) => Some(WatchedLink {
                is_down: false,
                peer_id: peer_id.to_string(),
                queues: figures.queues.copy(),
                in_flight: figures.in_flight.get(),
                oldest_sent_ms: figures.oldest_sent_ms.get(),
                heard_ms: figures.heard_ms.get(),
                resting: figures.resting.get(),
            }),
            None if key.opened_by.is_empty() => {
                let queues = self.last_queues.clone();
                Some(WatchedLink { is_down: true, queues, ..WatchedLink::default() })
            }
            None => None,
        }
    }

    fn figures(&self, key: &LinkKey, now_ms: u64) -> BridgeFigures {
        let all = self.past.with(self.peer.as_ref());
        let of_peer = |read: fn(&LinkedPeer) -> u64| self.peer.as_ref().map_or(0, read);
        let oldest_sent_ms = of_peer(|peer| peer.figures.oldest_sent_ms.get());
        let text = |read: fn(&LinkedPeer) -> &Arc<str>| {
            self.peer.as_ref().map_or_else(String::new, |peer| read(peer).to_string())
        };
        let wait = self.wait.as_ref();
        BridgeFigures {
            bridge: key.name.clone(),
            number: key.number,
            direction: if key.opened_by.is_empty() { "opened" } else { "accepted" },
            state: self.state.name(),
            since_ms: self.since_ms,
            profile: self.profile,
            address: self.address.clone(),
            peer: text(|peer| &peer.peer_name),
            swimlane: text(|peer| &peer.swimlane),
            peer_id: if key.opened_by.is_empty() {
                text(|peer| &peer.peer_id)
            } else {
                key.opened_by.clone()
            },
            is_duplex: self.peer.as_ref().is_some_and(|peer| peer.is_duplex),
            reason: self.reason.clone(),
            retry_seconds: self.retry_seconds,
            dispatched: all.dispatched,
            dispatched_bytes: all.dispatched_bytes,
            forwarded: all.forwarded,
            refused: all.refused,
            received: all.received,
            demand: of_peer(|peer| peer.figures.demand.get()),
            in_flight: of_peer(|peer| peer.figures.in_flight.get()),
            oldest_in_flight_ms: if oldest_sent_ms == 0 { 0 } else { now_ms.saturating_sub(oldest_sent_ms) },
            reconnects: self.links.saturating_sub(1),
            wait: BridgeWait {
                stuck_messages: wait.map_or(0, |wait| wait.stuck_messages),
                longest_wait_ms: wait.map_or(0, |wait| wait.longest_ms),
                wait_cause: wait.map_or("", |wait| wait.cause.code()),
                wait_queue: wait.map_or_else(String::new, |wait| wait.queue.clone()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(link: &str, id: &str) -> LinkedPeer {
        LinkedPeer {
            link: link.into(),
            peer_id: id.into(),
            peer_name: "depot".into(),
            peer_url: "tcp://depot:61616".into(),
            swimlane: "".into(),
            crosses_swimlanes: false,
            is_duplex: true,
            figures: Arc::default(),
        }
    }

    fn states(board: &LinkBoard) -> Vec<(String, u16, &'static str, u64, u64)> {
        let rows = board.figures();
        rows.into_iter().map(|of| (of.bridge, of.number, of.state, of.forwarded, of.reconnects)).collect()
    }

    #[test]
    fn counts_of_a_link_outlive_its_connections() {
        let board = LinkBoard::default();
        let east = board.opened("east", 0, "wan");
        for round in 1..=2 {
            board.connects(&east, "a:1");
            board.introduces(&east);
            let peer = peer("east", "ID:a");
            peer.figures.forwarded.add(5);
            board.linked(&east, peer.clone());
            assert_eq!(states(&board), [("east".to_owned(), 0, "linked", 5 * round, round - 1)]);
            board.waits(&east, "the cable is cut", 4);
            peer.figures.forwarded.add(100);
        }
        let [row] = &board.figures()[..] else { panic!() };
        assert_eq!((&*row.reason, row.retry_seconds, row.forwarded), ("the cable is cut", 4, 10));
        assert_eq!(row.profile, "wan");
    }

    #[test]
    fn links_of_peers_are_told_apart_and_ended_ones_are_bounded() {
        let board = LinkBoard::default();
        let address: SocketAddr = "127.0.0.1:1".parse().unwrap();
        let first = board.accepted(peer("NC", "ID:a"), address);
        let second = board.accepted(peer("NC", "ID:a"), address);
        assert_ne!(first, second, "two at the same time");
        board.ended(&first, "gone");
        assert_eq!(board.accepted(peer("NC", "ID:a"), address), first, "come back");
        let each = |(name, number, state, _, again): (String, u16, &'static str, u64, u64)| {
            format!("{name}{number} {state} {again}")
        };
        let rows: Vec<String> = states(&board).into_iter().map(each).collect();
        assert_eq!(rows, ["NC0 linked 1", "NC1 linked 0"]);
        for number in 0..2 * ENDED_MAX {
            let key = board.accepted(peer("NC", &format!("ID:b{number}")), address);
            board.ended(&key, "gone");
        }
        assert_eq!(board.figures().len(), 2 + ENDED_MAX);
    }
}
