//! The first words of two nodes that connect: who each is, and the proof that it knows the secret
//! of the cluster.
//!
//! ```text
//! both at once:  magic 8 │ version u8 │ levels: oldest, newest, of the cluster, u8 each │ node u64
//!                │ nonce 16 │ purpose u8 │ joined u8
//!                │ cluster, name, identity, endpoints, zone: each length u16 and UTF-8
//!                │ since u64 │ length u16 │ members │ damage: length u16 and UTF-8
//!                │ from version 7 on: space u8 ([`DiskSpace`])
//!                │ weight u8, from version 8 on
//!                │ nothing, from version 9 on: it takes notices of [`crate::LeaveNotice`]
//!                │ nothing, from version 10 on: it takes [`crate::Handed`] without a login
//!                │ fields of later versions
//! then:          HMAC-SHA-256 by the secret over the own hello and the peer's, 32 bytes
//! then:          verdict u8 │ term u64 │ forward key 32, unless one has no number yet
//! ```
//! A node reads a hello of a later version as far as it knows it, so that a cluster gets a new
//! version node by node ([`crate::Level`]). The members are those that the sender knows, and are
//! not looked at if the level of its cluster is above those that this program speaks.
//!
//! Little endian; each in a frame: length u32, content. Later frames have one message each. Nonces
//! make a proof useless for another connection; node numbers differ, so that no proof can be sent
//! back to its author.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use ring::hmac;

use crate::balance::Weight;
use crate::codec::NUMBER_MAX;
use crate::entry::{Index, NodeId, Term};
use crate::level::{Level, Levels};
use crate::members::{MEMBERS_BYTES_MAX, Members};
use crate::space::DiskSpace;

const VERSION: u8 = 10;
/// Hellos of earlier versions are not read.
const OLDEST_VERSION: u8 = 6;
/// From this version on a node says how much space it has.
const SPACE_VERSION: u8 = 7;
/// From this version on a node says its share of the leaders.
const WEIGHT_VERSION: u8 = 8;

/// From this version on a node asks the leader before it leaves a damaged store.
const LEAVE_VERSION: u8 = 9;
/// From this version on a node takes clients that have not logged in as it takes those that have.
const CLIENTS_VERSION: u8 = 10;

/// Bytes of the random part.
pub const NONCE_BYTES: usize = 16;
/// Bytes of a proof.
pub const PROOF_BYTES: usize = 32;
/// Bytes of a verdict.
pub const VERDICT_BYTES: usize = 9;
/// A hello is not longer.
pub const HELLO_BYTES_MAX: usize = 5120 + MEMBERS_BYTES_MAX + LATER_BYTES_MAX;
/// Each text of a hello.
const TEXT_BYTES_MAX: usize = 682;
/// Room for fields of later versions.
const LATER_BYTES_MAX: usize = 1024;

const MAGIC: [u8; 8] = *b"PRpeer\r\n";

/// Why a peer is not talked to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// It is no node of a cluster.
    #[error("the peer does not speak as a node of a Postroad cluster")]
    Malformed,
    /// An earlier version.
    #[error(
        "the peer introduces itself by version {got}, which this node, with version {known}, does not read"
    )]
    Version {
        /// Of the peer.
        got: u8,
        /// Of this node.
        known: u8,
    },
    /// The peer does not speak the level of the cluster.
    #[error(
        "{name} speaks levels {levels}, and the cluster has level {cluster}: start it with the version of the other \
         nodes, and without cluster.level_max"
    )]
    PeerLevel {
        /// Name of the peer.
        name: String,
        /// The levels that it speaks.
        levels: Levels,
        /// The level in force.
        cluster: Level,
    },
    /// This node does not speak the level of the cluster.
    #[error(
        "the cluster has level {cluster}, and this node speaks levels {levels}: start it with the version of the \
         other nodes, and without cluster.level_max"
    )]
    OwnLevel {
        /// The levels that this node speaks.
        levels: Levels,
        /// The level in force.
        cluster: Level,
    },
    /// Another cluster.
    #[error("the peer belongs to cluster {got:?}, this node to {own:?}")]
    Cluster {
        /// Of the peer.
        got: String,
        /// Of this node.
        own: String,
    },
    /// Another list of members of a new group.
    #[error("the peer's seeds are {got}, those of this node {own}: they must be the same, in the same order")]
    Seeds {
        /// Of the peer.
        got: String,
        /// Of this node.
        own: String,
    },
    /// It is not the node that was expected at this address, or says that it is this one.
    #[error("the peer says that it is node {}", .0.get())]
    Node(NodeId),
    /// It does not know the secret.
    #[error("the peer has another cluster secret")]
    Proof,
    /// It was removed from the cluster.
    #[error("node {} was removed from the cluster", .0.get())]
    Removed(NodeId),
}

/// See the head of this file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The cluster's name.
    pub cluster: String,
    /// The members in force, as far as the node knows; none if it has yet to join.
    pub members: Members,
    /// The number of the node; [`Hello::NEWCOMER`] if it has yet to join.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Id that distinguishes its store from all others.
    pub identity: String,
    /// Where its clients connect: URLs, joined by spaces.
    pub endpoints: String,
    /// Its room or site; empty if it has none.
    pub zone: String,
    /// The levels that it speaks.
    pub levels: Levels,
    /// Random.
    pub nonce: [u8; NONCE_BYTES],
    /// The use of the connection.
    pub purpose: Purpose,
    /// Its store takes part in votes: it was there when the cluster was formed, or was filled by a
    /// copy since.
    pub joined: bool,
    /// The last damage of its store, and its outcome, for operators; empty if there was none.
    pub damage: String,
    /// The space of its disk; `None` if its version says nothing of it, and takes no notices.
    pub space: Option<DiskSpace>,
    /// Its share of the leaders.
    pub weight: Weight,
    /// It asks the leader before it leaves a damaged store, and answers others that ask.
    pub asks_to_leave: bool,
    /// It takes [`crate::Handed`] without a login.
    pub takes_clients: bool,
}

/// The use of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// Messages of the replica group, both ways.
    #[default]
    Messages,
    /// A copy of the store of the node that accepts, to the node that connects.
    Copy,
    /// A node that has no number yet asks to join.
    Join,
}

/// The decision of a node about the store of its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The peer has another store than before, which was not filled: it must not vote, and gets a
    /// copy.
    pub replaced: bool,
    /// The latest term that the author of the verdict has seen.
    pub term: Term,
}

impl Verdict {
    /// The bytes of it.
    pub fn encode(self) -> Bytes {
        let mut out = BytesMut::with_capacity(VERDICT_BYTES);
        out.put_u8(u8::from(self.replaced));
        out.put_u64_le(self.term.0);
        out.freeze()
    }

    /// Reads that of a peer.
    ///
    /// # Errors
    /// [`HelloError::Malformed`].
    pub fn decode(mut bytes: &[u8]) -> Result<Verdict, HelloError> {
        if bytes.len() != VERDICT_BYTES {
            return Err(HelloError::Malformed);
        }
        let replaced = flag(bytes.get_u8())?;
        Ok(Verdict { replaced, term: Term(bytes.get_u64_le()) })
    }
}

/// A text with its length before it.
fn text(bytes: &mut &[u8]) -> Result<String, HelloError> {
    let length = usize::from(bytes.try_get_u16_le().map_err(|_| HelloError::Malformed)?);
    let text = bytes.get(..length).ok_or(HelloError::Malformed)?.to_vec();
    bytes.advance(length);
    String::from_utf8(text).map_err(|_| HelloError::Malformed)
}

fn flag(byte: u8) -> Result<bool, HelloError> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(HelloError::Malformed),
    }
}

impl Hello {
    /// The number of a node that has none yet.
    pub const NEWCOMER: NodeId = NodeId::new(NUMBER_MAX).expect("numbers begin at 1");

    /// The bytes of it.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.put_slice(&MAGIC);
        out.put_u8(VERSION);
        for level in [self.levels.oldest, self.levels.newest, self.members.level] {
            out.put_u8(level.get());
        }
        out.put_u64_le(self.node.get());
        out.put_slice(&self.nonce);
        out.put_u8(match self.purpose {
            Purpose::Messages => 0,
            Purpose::Copy => 1,
            Purpose::Join => 2,
        });
        out.put_u8(u8::from(self.joined));
        for text in [&self.cluster, &self.name, &self.identity, &self.endpoints, &self.zone] {
            let text = &text.as_bytes()[..text.floor_char_boundary(TEXT_BYTES_MAX)];
            out.put_u16_le(text.len() as u16);
            out.put_slice(text);
        }
        let members = if self.members.voters.is_empty() { Bytes::new() } else { self.members.encode() };
        out.put_u64_le(self.members.since.0);
        out.put_u16_le(members.len() as u16);
        out.put_slice(&members);
        let damage = &self.damage.as_bytes()[..self.damage.floor_char_boundary(TEXT_BYTES_MAX)];
        out.put_u16_le(damage.len() as u16);
        out.put_slice(damage);
        out.put_u8(self.space.unwrap_or_default().byte());
        out.put_u8(self.weight.get());
        out.freeze()
    }

    /// Reads that of a peer.
    ///
    /// # Errors
    /// [`HelloError::Malformed`], [`HelloError::Version`] and [`HelloError::OwnLevel`].
    pub fn decode(mut bytes: &[u8]) -> Result<Hello, HelloError> {
        if bytes.len() < MAGIC.len() + 1 || HELLO_BYTES_MAX < bytes.len() || !bytes.starts_with(&MAGIC) {
            return Err(HelloError::Malformed);
        }
        bytes.advance(MAGIC.len());
        let got = bytes.get_u8();
        if got < OLDEST_VERSION {
            return Err(HelloError::Version { got, known: VERSION });
        }
        let mut level = || bytes.try_get_u8().ok().and_then(Level::new).ok_or(HelloError::Malformed);
        let (oldest, newest, cluster) = (level()?, level()?, level()?);
        if !cluster.is_known() {
            return Err(HelloError::OwnLevel { levels: Levels::default(), cluster });
        }
        let levels = Levels { oldest, newest };
        let node = bytes.try_get_u64_le().ok().and_then(NodeId::new).ok_or(HelloError::Malformed)?;
        let mut nonce = [0; NONCE_BYTES];
        bytes.try_copy_to_slice(&mut nonce).map_err(|_| HelloError::Malformed)?;
        let purpose = match bytes.try_get_u8() {
            Ok(0) => Purpose::Messages,
            Ok(1) => Purpose::Copy,
            Ok(2) => Purpose::Join,
            _ => return Err(HelloError::Malformed),
        };
        let joined = flag(bytes.try_get_u8().map_err(|_| HelloError::Malformed)?)?;
        let (cluster, name, identity) = (text(&mut bytes)?, text(&mut bytes)?, text(&mut bytes)?);
        let (endpoints, zone) = (text(&mut bytes)?, text(&mut bytes)?);
        let members = members(&mut bytes).ok_or(HelloError::Malformed)?;
        let damage = text(&mut bytes)?;
        let space = match SPACE_VERSION <= got {
            true => Some(DiskSpace::of_byte(bytes.try_get_u8().map_err(|_| HelloError::Malformed)?)),
            false => None,
        };
        let weight = match WEIGHT_VERSION <= got {
            true => weight(&mut bytes).ok_or(HelloError::Malformed)?,
            false => Weight::default(),
        };
        if got <= VERSION && !bytes.is_empty() {
            return Err(HelloError::Malformed);
        }
        Ok(Hello {
            cluster,
            members,
            node,
            name,
            identity,
            endpoints,
            zone,
            levels,
            nonce,
            purpose,
            joined,
            damage,
            space,
            weight,
            asks_to_leave: LEAVE_VERSION <= got,
            takes_clients: CLIENTS_VERSION <= got,
        })
    }

    /// Whether the peer is a node of the same cluster, and the one that is `expected` if one is.
    ///
    /// # Errors
    /// See [`HelloError`].
    pub fn check(&self, peer: &Hello, expected: Option<NodeId>) -> Result<(), HelloError> {
        if peer.cluster != self.cluster {
            return Err(HelloError::Cluster { got: peer.cluster.clone(), own: self.cluster.clone() });
        }
        let level = peer.members.level.max(self.members.level);
        if !self.levels.contain(level) {
            return Err(HelloError::OwnLevel { levels: self.levels, cluster: level });
        }
        if !peer.levels.contain(level) {
            return Err(HelloError::PeerLevel {
                name: peer.name.clone(),
                levels: peer.levels,
                cluster: level,
            });
        }
        let joins = |hello: &Hello| hello.node == Hello::NEWCOMER;
        if (joins(peer) || joins(self)) && (joins(peer) != joins(self)) {
            return match (peer.purpose == Purpose::Join) == joins(peer) {
                true => Ok(()),
                false => Err(HelloError::Malformed),
            };
        }
        let is_new = |hello: &Hello| hello.members.since == Index(0);
        let (got, own) = (addresses(&peer.members), addresses(&self.members));
        if is_new(peer) && is_new(self) && got != own {
            return Err(HelloError::Seeds { got, own });
        }
        let is_expected = expected.is_none_or(|expected| expected == peer.node);
        if peer.node == self.node || !is_expected || peer.purpose == Purpose::Join {
            return Err(HelloError::Node(peer.node));
        }
        Ok(())
    }

    /// The later one of both lists of members. To be asked for once the peer has given its proof.
    ///
    /// # Errors
    /// One of the two nodes is not a member.
    pub fn later_members<'h>(&'h self, peer: &'h Hello) -> Result<&'h Members, HelloError> {
        let peer_is_later = peer.members.is_later_than(&self.members);
        let later = if peer_is_later { &peer.members } else { &self.members };
        match [peer.node, self.node].into_iter().find(|node| later.is_former(*node)) {
            Some(node) => Err(HelloError::Removed(node)),
            None if !later.contains(peer.node) => Err(HelloError::Node(peer.node)),
            None => Ok(later),
        }
    }
}

fn weight(bytes: &mut &[u8]) -> Option<Weight> {
    bytes.try_get_u8().ok().and_then(Weight::new)
}

/// The list of members in a hello.
fn members(bytes: &mut &[u8]) -> Option<Members> {
    let since = Index(bytes.try_get_u64_le().ok().filter(|since| *since <= NUMBER_MAX)?);
    let length = usize::from(bytes.try_get_u16_le().ok()?);
    let list = bytes.get(..length)?;
    bytes.advance(length);
    match length {
        0 => (since == Index(0)).then(Members::default),
        _ => Members::decode(since, list),
    }
}

/// The addresses of all members, by number.
fn addresses(members: &Members) -> String {
    let addresses = members.records.values().map(|record| &*record.address);
    addresses.collect::<Vec<_>>().join(",")
}

/// Shows a peer that this node knows the secret: `own` and `peer` are the encoded hellos.
pub fn prove(secret: &[u8], own: &[u8], peer: &[u8]) -> Bytes {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    Bytes::copy_from_slice(hmac::sign(&key, &[own, peer].concat()).as_ref())
}

/// Whether the peer's proof is right.
///
/// # Errors
/// [`HelloError::Proof`].
pub fn verify(secret: &[u8], own: &[u8], peer: &[u8], proof: &[u8]) -> Result<(), HelloError> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    hmac::verify(&key, &[peer, own].concat(), proof).map_err(|_| HelloError::Proof)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::members::MemberChange;

    fn hello(node: u64) -> Hello {
        Hello {
            cluster: "depot".to_owned(),
            members: Members::founders(["a:1", "b:1", "c:1"]),
            node: NodeId::new(node).unwrap(),
            name: format!("n{node}"),
            identity: format!("identity {node}"),
            endpoints: format!("tcp://h{node}:61616 amqp://h{node}:5672"),
            zone: format!("room {node}"),
            levels: Levels::default(),
            nonce: [node as u8; NONCE_BYTES],
            purpose: if node == 2 { Purpose::Copy } else { Purpose::Messages },
            joined: node == 2,
            damage: if node == 2 { "damaged".to_owned() } else { String::new() },
            space: Some(DiskSpace::Low),
            weight: if node == 2 { Weight::MAX } else { Weight::default() },
            asks_to_leave: true,
            takes_clients: true,
        }
    }

    #[test]
    fn a_verdict_comes_back_as_it_was_and_a_damaged_one_is_refused() {
        for replaced in [false, true] {
            let verdict = Verdict { replaced, term: Term(7) };
            let bytes = verdict.encode();
            assert_eq!(Verdict::decode(&bytes), Ok(verdict));
            assert_eq!(Verdict::decode(&bytes[1..]), Err(HelloError::Malformed));
        }
        assert_eq!(Verdict::decode(&[2; VERDICT_BYTES]), Err(HelloError::Malformed));
    }

    #[test]
    fn a_hello_comes_back_as_it_was_and_a_damaged_one_is_refused() {
        let bytes = hello(2).encode();
        assert_eq!(Hello::decode(&bytes), Ok(hello(2)));
        for length in 0..bytes.len() {
            assert_eq!(Hello::decode(&bytes[..length]), Err(HelloError::Malformed), "{length} bytes");
        }
        let version_at = MAGIC.len();
        for place in (0..bytes.len()).filter(|place| *place != version_at) {
            let mut changed = bytes.to_vec();
            changed[place] ^= 0x80;
            assert_ne!(Hello::decode(&changed), Ok(hello(2)), "byte {place}");
        }
        let earlier = [&MAGIC[..], &[4]].concat();
        assert!(matches!(Hello::decode(&earlier), Err(HelloError::Version { got: 4, .. })));
    }

    #[test]
    fn a_later_version_is_read_as_far_as_it_is_known() {
        let bytes = hello(2).encode();
        let longer = [&bytes[..], &[7; LATER_BYTES_MAX]].concat();
        assert_eq!(Hello::decode(&longer), Err(HelloError::Malformed), "of this version");
        let later = [&MAGIC[..], &[VERSION + 1], &longer[MAGIC.len() + 1..]].concat();
        assert_eq!(Hello::decode(&later), Ok(hello(2)));
        // The lists of that level may look otherwise: the level says enough.
        let above = Level::NEWEST.next();
        let later = [&MAGIC[..], &[VERSION + 1, 1, above.get(), above.get()]].concat();
        let want = HelloError::OwnLevel { levels: Levels::default(), cluster: above };
        assert_eq!(Hello::decode(&later), Err(want));
    }

    #[test]
    fn hellos_of_versions_before_lack_what_came_later() {
        let bytes = hello(2).encode();
        let before = Hello { takes_clients: false, ..hello(2) };
        let weightless = Hello { weight: Weight::default(), asks_to_leave: false, ..before.clone() };
        for (version, lacks, want) in [
            (OLDEST_VERSION, 2, Hello { space: None, ..weightless.clone() }),
            (SPACE_VERSION, 1, weightless),
            (LEAVE_VERSION, 0, before),
        ] {
            let fields = &bytes[MAGIC.len() + 1..bytes.len() - lacks];
            let of_before = [&MAGIC[..], &[version], fields].concat();
            assert_eq!(Hello::decode(&of_before), Ok(want), "version {version}");
            let longer = [&of_before[..], &[1]].concat();
            assert_eq!(Hello::decode(&longer), Err(HelloError::Malformed), "version {version}");
        }
    }

    #[test]
    fn nodes_talk_if_both_speak_the_level_of_the_cluster() {
        let level = |number| Level::new(number).unwrap();
        let of = |node: u64, newest: u8, cluster: u8| {
            let members = Members { level: level(cluster), ..hello(node).members };
            Hello { members, levels: Levels::up_to(level(newest)), ..hello(node) }
        };
        for (case, own, peer, want) in [
            ("both old", of(1, 1, 1), of(2, 1, 1), ""),
            ("the peer is new", of(1, 1, 1), of(2, 2, 1), ""),
            ("this one is new", of(1, 2, 1), of(2, 1, 1), ""),
            ("the peer lags behind the level", of(1, 2, 2), of(2, 2, 1), ""),
            (
                "the peer cannot follow",
                of(1, 2, 2),
                of(2, 1, 1),
                "n2 speaks levels 1 to 1, and the cluster has level 2",
            ),
            ("this one cannot follow", of(1, 1, 1), of(2, 2, 2), "this node speaks levels 1 to 1"),
        ] {
            let refused = own.check(&peer, None).map_or_else(|error| error.to_string(), |()| String::new());
            assert!(
                refused.contains(want) && refused.is_empty() == want.is_empty(),
                "case: {case}: {refused}"
            );
        }
    }

    #[test]
    fn a_peer_must_be_the_expected_node_of_the_same_cluster() {
        let node = |number| NodeId::new(number);
        let newcomer =
            Hello { node: Hello::NEWCOMER, members: Members::default(), purpose: Purpose::Join, ..hello(9) };
        let others = Members::founders(["a:1", "c:1", "b:1"]);
        let later = Members { since: Index(7), ..others.clone() };
        for (name, peer, expected, want) in [
            ("any other member", hello(2), None, true),
            ("the expected one", hello(2), node(2), true),
            ("another than expected", hello(3), node(2), false),
            ("this node itself", hello(1), None, false),
            ("another cluster", Hello { cluster: "yard".to_owned(), ..hello(2) }, None, false),
            ("other seeds", Hello { members: others, ..hello(2) }, None, false),
            ("members that changed", Hello { members: later, ..hello(2) }, None, true),
            ("one that asks to join", newcomer.clone(), None, true),
            ("one without a number", Hello { purpose: Purpose::Copy, ..newcomer.clone() }, None, false),
            ("a member that asks to join", Hello { purpose: Purpose::Join, ..hello(2) }, None, false),
        ] {
            assert_eq!(hello(1).check(&peer, expected).is_ok(), want, "case: {name}");
        }
        assert!(newcomer.check(&hello(2), None).is_ok(), "whoever it asks");
        assert_eq!(Hello::decode(&newcomer.encode()), Ok(newcomer));
    }

    #[test]
    fn the_later_list_of_members_counts_for_both() {
        let changed = |change: MemberChange, since: u64| {
            let after = hello(1).members.after(change).unwrap();
            Members { since: Index(since), ..after }
        };
        let node = |number| NodeId::new(number).unwrap();
        let (more, less) =
            (changed(MemberChange::Add(node(4)), 7), changed(MemberChange::Remove(node(3)), 9));
        let with = |number: u64, members: &Members| Hello { members: members.clone(), ..hello(number) };
        for (name, own, peer, want) in [
            ("the same", hello(1), hello(2), Ok(0)),
            ("the peer's", hello(1), with(4, &more), Ok(7)),
            ("the own", with(4, &more), hello(1), Ok(7)),
            ("a peer of which nobody knows", hello(1), hello(4), Err(HelloError::Node(node(4)))),
            ("a peer that was removed", with(1, &less), hello(3), Err(HelloError::Removed(node(3)))),
            ("this node was removed", hello(3), with(1, &less), Err(HelloError::Removed(node(3)))),
        ] {
            let later = own.later_members(&peer).map(|members| members.since.0);
            assert_eq!(later, want, "case: {name}");
        }
    }

    #[test]
    fn a_proof_is_good_for_one_secret_one_peer_and_one_connection() {
        let (one, two) = (hello(1).encode(), hello(2).encode());
        let again = Hello { nonce: [9; NONCE_BYTES], ..hello(1) }.encode();
        let proof = prove(b"secret", &two, &one);
        assert_eq!(proof.len(), PROOF_BYTES);
        for (name, secret, own, peer, want) in [
            ("as it was made", &b"secret"[..], &one, &two, true),
            ("another secret", b"guess", &one, &two, false),
            ("sent back", b"secret", &two, &one, false),
            ("another connection", b"secret", &again, &two, false),
        ] {
            assert_eq!(verify(secret, own, peer, &proof).is_ok(), want, "case: {name}");
        }
    }
}
