//! A node that has no number yet asks the others to join, until an operator admits it.
//!
//! ```text
//!  newcomer                                member
//!  name, address, identity of the store ──▶ remembers it for a while; operators see that it asks
//!                          ◀── waits │ refused: the name is used │ admitted: its number
//! ```
//! It asks all nodes that it knows, as it does not know which one leads. Once the list of members
//! has its name and address, each of them admits it. Never here: changes of the list (`orders`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use postroad_cluster::{
    Hello, MEMBERS_MAX, Members, NODE_ADDRESS_BYTES_MAX, NODE_NAME_BYTES_MAX, NONCE_BYTES, NodeId, Purpose,
    VoteError, VoteFile,
};
use postroad_journal::RealDisk;
use postroad_routing::FIRST_STORE;
use postroad_security::nodes::NodeTls;
use postroad_store::Layout;
use serde::{Deserialize, Serialize};

use crate::runtime::cluster::ClusterOptions;
use crate::runtime::cluster::identity::{Damage, FILE, Identities};
use crate::runtime::cluster::peers::{PATIENCE, prove_each_other};
use crate::runtime::cluster::wire::{Wire, dial, host_of};

const VERSION: u32 = 1;
/// Bytes of a question or an answer.
const FRAME_BYTES_MAX: usize = 4096;
/// From one round of questions to the next.
const AGAIN: Duration = Duration::from_millis(500);
/// An unchanged answer is logged once in this time.
const LOG_EVERY: Duration = Duration::from_secs(30);
/// One that has not asked again within this time is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(15);

/// The place of this node in its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admitted {
    /// Its number.
    pub number: NodeId,
    /// The members, as far as is known.
    pub members: Members,
}

/// What a newcomer says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asker {
    version: u32,
    /// How it calls itself.
    pub name: String,
    /// Where it listens.
    pub address: String,
    /// Its store.
    pub identity: String,
}

impl Asker {
    /// With this name, address and store.
    pub fn new(name: &str, address: &str, identity: &str) -> Asker {
        let (name, address, identity) = (name.to_owned(), address.to_owned(), identity.to_owned());
        Asker { version: VERSION, name, address, identity }
    }
}

/// The answer of a member.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
enum Answer {
    /// An operator has to admit it.
    Waits,
    /// It cannot join as it is.
    Refused(String),
    /// It is a member.
    Admitted(u64),
}

/// Newcomers that have asked a moment ago.
#[derive(Default)]
pub struct Askers(Mutex<BTreeMap<String, (Asker, Instant)>>);

impl Askers {
    /// Those that still ask, by name.
    pub fn all(&self) -> Vec<Asker> {
        let Ok(mut askers) = self.0.lock() else { return Vec::new() };
        askers.retain(|_, (_, at)| at.elapsed() < FORGOTTEN_AFTER);
        askers.values().map(|(asker, _)| asker.clone()).collect()
    }

    fn note(&self, asker: Asker) -> Answer {
        let Ok(mut askers) = self.0.lock() else { return Answer::Waits };
        askers.retain(|_, (_, at)| at.elapsed() < FORGOTTEN_AFTER);
        if MEMBERS_MAX <= askers.len() && !askers.contains_key(&asker.name) {
            return Answer::Refused(format!("{MEMBERS_MAX} nodes ask to join already"));
        }
        if let Some((other, _)) = askers.get(&asker.name)
            && other.identity != asker.identity
        {
            let Asker { name, address, .. } = other;
            return Answer::Refused(format!("another node {name} asks to join, at {address}"));
        }
        askers.insert(asker.name.clone(), (asker, Instant::now()));
        Answer::Waits
    }
}

/// Answers a newcomer. `name_of` knows the names of members.
///
/// # Errors
/// The connection has ended, or the question makes no sense.
pub fn answer(
    wire: &Wire,
    askers: &Askers,
    members: &Members,
    name_of: impl Fn(NodeId) -> Option<String>,
) -> anyhow::Result<()> {
    let question = wire.read_frame(FRAME_BYTES_MAX)?;
    let asker: Asker = serde_json::from_slice(&question).context("malformed question of a newcomer")?;
    let answer = decide(&asker, members, name_of).unwrap_or_else(|| askers.note(asker));
    Ok(wire.write_frame(&serde_json::to_vec(&answer)?)?)
}

/// The answer if the list of members says it; `None` if an operator has to.
fn decide(asker: &Asker, members: &Members, name_of: impl Fn(NodeId) -> Option<String>) -> Option<Answer> {
    let Asker { version, name, address, .. } = asker;
    if *version != VERSION {
        let reason =
            format!("version {version} of questions to join is not supported; this node has {VERSION}");
        return Some(Answer::Refused(reason));
    }
    if let Err(error) = check(name, address) {
        return Some(Answer::Refused(error.to_string()));
    }
    for node in members.all() {
        let at = members.record(node).map_or("", |record| &record.address);
        let known = name_of(node).unwrap_or_default();
        match (known == *name, at == address) {
            // A member of a new group has its number from its seeds.
            (true, true) if members.record(node).is_some_and(|record| record.identity.is_empty()) => {
                let reason = format!(
                    "{name} at {address} is node {} of the cluster since it was formed: start it with its own \
                     address in cluster.seeds",
                    node.get()
                );
                return Some(Answer::Refused(reason));
            }
            (true, true) => return Some(Answer::Admitted(node.get())),
            (true, false) => {
                let reason = format!(
                    "the name {name} is that of the node at {at}: choose another, or remove that node by `postroad ctl \
                     cluster leave {name}`"
                );
                return Some(Answer::Refused(reason));
            }
            (false, true) => {
                let reason = format!("the address {address} is that of the node {known:?}");
                return Some(Answer::Refused(reason));
            }
            (false, false) => {}
        }
    }
    None
}

/// Whether a list of members can have this node.
///
/// # Errors
/// The reason why not.
pub fn check(name: &str, address: &str) -> anyhow::Result<()> {
    if name.is_empty() || NODE_NAME_BYTES_MAX < name.len() || name.chars().any(char::is_control) {
        bail!("cluster.node is {name:?}; a name of 1 to {NODE_NAME_BYTES_MAX} bytes is wanted");
    }
    if !address.contains(':') || NODE_ADDRESS_BYTES_MAX < address.len() {
        bail!("cluster.listen is {address:?}; HOST:PORT of at most {NODE_ADDRESS_BYTES_MAX} bytes is wanted");
    }
    Ok(())
}

/// The place of a node that is not among its seeds: as its data directory says, or as the other
/// nodes say once they have admitted it. `None` if it is to stop first.
///
/// # Errors
/// The directory cannot be used, or belongs to another cluster.
pub fn admitted(
    options: &ClusterOptions,
    data: &Path,
    stop: &AtomicBool,
) -> anyhow::Result<Option<Admitted>> {
    std::fs::create_dir_all(data).with_context(|| format!("cannot create {}", data.display()))?;
    let is_new = !data.join(FILE).exists();
    if is_new && Layout::find(data)?.is_some_and(|layout| 0 < layout.starts) {
        bail!("{}: a store that was created by a standalone broker cannot join a cluster", data.display());
    }
    let identities = Identities::of_newcomer(data, &options.cluster)?;
    if let Some(number) = identities.number().filter(|_| identities.has_vote()) {
        match VoteFile::open(&RealDisk::open(data)?) {
            Ok(vote) => return former_place(options, data, (number, vote.members())).map(Some),
            Err(error) if is_lost(&error) => {
                let place = format!("{}: {error}", data.join("vote").display());
                identities.note_damage(Damage { place, lost_vote: true, ..Damage::default() })?;
            }
            Err(error) => return Err(error).with_context(|| data.display().to_string()),
        }
    }
    let asks = Asks {
        options,
        identity: identities.own(),
        tls: options.tls.as_ref().map(NodeTls::load).transpose()?,
    };
    let admitted = asks.until_admitted(stop)?;
    if let Some(Admitted { number, .. }) = &admitted {
        identities.admit(*number)?;
        tracing::info!(number = number.get(), "the cluster has admitted this node");
    }
    Ok(admitted)
}

/// Whether a node has lost its vote, so that the others have to name the members again.
fn is_lost(error: &VoteError) -> bool {
    match error {
        VoteError::Damaged => true,
        VoteError::Io(error) => error.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

/// The place of a node that has joined before, as its data directory says.
fn former_place(
    options: &ClusterOptions,
    data: &Path,
    (number, members): (NodeId, Option<&Members>),
) -> anyhow::Result<Admitted> {
    match members {
        Some(members) => Ok(Admitted { number, members: members.clone() }),
        None => bail!(
            "{} is that of node {} of a cluster whose members never changed: cluster.listen, {}, has to be in cluster.seeds ({})",
            data.display(),
            number.get(),
            options.listen,
            options.seeds.join(",")
        ),
    }
}

struct Asks<'o> {
    options: &'o ClusterOptions,
    identity: String,
    tls: Option<NodeTls>,
}

impl Asks<'_> {
    fn until_admitted(&self, stop: &AtomicBool) -> anyhow::Result<Option<Admitted>> {
        let mut logged: Option<(String, Instant)> = None;
        let mut known = Members::default();
        while !stop.load(Ordering::Acquire) {
            let further = known.records.values().map(|record| record.address.clone());
            let of_first = self.options.part.addresses().into_iter();
            let mut addresses: Vec<String> =
                self.options.seeds.iter().cloned().chain(further).chain(of_first).collect();
            addresses.retain(|address| *address != self.options.listen);
            addresses.sort_unstable();
            addresses.dedup();
            let mut said = None;
            for address in addresses {
                match self.ask(&address) {
                    Ok((answer, members)) => {
                        if !known.is_later_than(&members) {
                            known = members;
                        }
                        match answer {
                            Answer::Admitted(number) => {
                                let known_number =
                                    NodeId::new(number).filter(|number| known.contains(*number));
                                if let Some(number) = known_number {
                                    return Ok(Some(Admitted { number, members: known }));
                                }
                                // The list came ahead of the answer, and may be older: asked again.
                                said.get_or_insert(format!(
                                    "{address} admits this node as number {number}, which its list of members lacks"
                                ));
                            }
                            Answer::Refused(reason) => {
                                said = Some(format!("{address} refuses this node: {reason}"))
                            }
                            _ => {
                                said.get_or_insert(self.waits());
                            }
                        }
                    }
                    Err(error) => {
                        said.get_or_insert(format!("cannot ask {address} to join: {error:#}"));
                    }
                }
            }
            let is_known =
                |(text, at): &(String, Instant)| Some(text) == said.as_ref() && at.elapsed() < LOG_EVERY;
            if let Some(text) = said.clone().filter(|_| !logged.as_ref().is_some_and(is_known)) {
                tracing::warn!("{text}");
                logged = Some((text, Instant::now()));
            }
            thread::sleep(AGAIN);
        }
        Ok(None)
    }

    fn waits(&self) -> String {
        let ClusterOptions { node, cluster, part, .. } = self.options;
        match part.number() {
            FIRST_STORE => format!(
                "this node asks to join the cluster {cluster:?}; `postroad ctl cluster join {node}` at its leader \
                 admits it"
            ),
            store => format!("this node asks to join store {store}, whose leader admits it"),
        }
    }

    fn ask(&self, address: &str) -> anyhow::Result<(Answer, Members)> {
        let options = self.options;
        let wire = Wire::dialled(dial(address, PATIENCE)?, PATIENCE, (self.tls.as_ref(), host_of(address)))?;
        let mut hello = Hello {
            damage: String::new(),
            space: None,
            cluster: options.cluster.clone(),
            members: Members::default(),
            node: Hello::NEWCOMER,
            name: options.node.clone(),
            identity: self.identity.clone(),
            endpoints: String::new(),
            zone: options.zone.clone(),
            levels: options.levels,
            nonce: [0; NONCE_BYTES],
            purpose: Purpose::Join,
            joined: false,
            weight: options.weight,
            asks_to_leave: true,
            takes_clients: true,
        };
        let peer = prove_each_other(&options.secret, (&wire, None), &mut hello, None)?;
        let asker = Asker::new(&options.node, &options.listen, &self.identity);
        wire.write_frame(&serde_json::to_vec(&asker)?)?;
        Ok((serde_json::from_slice(&wire.read_frame(FRAME_BYTES_MAX)?)?, peer.members))
    }
}

#[cfg(test)]
mod tests {
    use postroad_cluster::{MemberChange, NodeRecord};

    use super::*;

    fn asker(name: &str, address: &str) -> Asker {
        Asker::new(name, address, &format!("store of {name}"))
    }

    #[test]
    fn a_name_and_an_address_are_those_of_one_node() {
        let four = NodeId::new(4).unwrap();
        let mut members = Members::founders(["a:1", "b:1", "c:1"]).after(MemberChange::Add(four)).unwrap();
        let record = NodeRecord {
            name: "n4".to_owned(),
            address: "d:1".to_owned(),
            identity: "store".to_owned(),
            ..NodeRecord::default()
        };
        members.describe(&[(four, record)].into());
        let name_of = |node: NodeId| Some(format!("n{}", node.get()));
        let long = "n".repeat(NODE_NAME_BYTES_MAX + 1);
        for (case, asker, want) in [
            ("admitted", asker("n4", "d:1"), Some(Ok(4))),
            ("unknown", asker("n5", "e:1"), None),
            ("a used name", asker("n4", "e:1"), Some(Err("the name n4 is that of the node at d:1"))),
            ("a used address", asker("n5", "d:1"), Some(Err("the address d:1 is that of the node \"n4\""))),
            ("of the first", asker("n2", "b:1"), Some(Err("start it with its own address in cluster.seeds"))),
            ("a long name", asker(&long, "e:1"), Some(Err("a name of 1 to 64 bytes"))),
            ("no port", asker("n5", "e"), Some(Err("HOST:PORT"))),
            ("a version", Asker { version: 9, ..asker("n5", "e:1") }, Some(Err("version 9 of questions"))),
        ] {
            match (decide(&asker, &members, name_of), want) {
                (None, None) => {}
                (Some(Answer::Admitted(got)), Some(Ok(number))) => assert_eq!(got, number, "case: {case}"),
                (Some(Answer::Refused(reason)), Some(Err(part))) => {
                    assert!(reason.contains(part), "case: {case}: {reason}");
                }
                (got, want) => panic!("case: {case}: {got:?}, expected {want:?}"),
            }
        }
    }

    #[test]
    fn those_that_ask_are_remembered_up_to_a_bound_and_each_name_once() {
        let askers = Askers::default();
        for number in 0..MEMBERS_MAX {
            assert_eq!(askers.note(asker(&format!("n{number}"), "a:1")), Answer::Waits);
        }
        assert_eq!(askers.note(asker("n1", "a:2")), Answer::Waits, "again, from elsewhere");
        assert!(matches!(askers.note(asker("more", "a:1")), Answer::Refused(_)));
        let other = Asker { identity: "other".to_owned(), ..asker("n1", "b:1") };
        assert!(matches!(askers.note(other), Answer::Refused(reason) if reason.contains("another node n1")));
        assert_eq!(askers.all().len(), MEMBERS_MAX);
    }
}
