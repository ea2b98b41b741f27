//! A node's replica, from its directory to the moment at which it leads.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail};
use postroad_cluster::{Config, HelloError, JournalLog, Members, NodeId, Term, VoteError, VoteFile};
use postroad_core::{Partition, Settings};
use postroad_journal::{Journal, Keys, Options, RealDisk};
use postroad_model::{PartitionId, PartitionRange, Placement};
use postroad_node::ThreadWaker;
use postroad_replication::{LogWriter, Replica};
use postroad_routing::Addressing;
use tokio::sync::watch;

use crate::runtime::cluster::copies::{self, Copies};
use crate::runtime::cluster::copy::{self, Outgoing};
use crate::runtime::cluster::damage::{self, StoreDamaged};
use crate::runtime::cluster::forward::ForwardedClients;
use crate::runtime::cluster::identity::Identities;
use crate::runtime::cluster::joining::Membership;
use crate::runtime::cluster::newcomer::Admitted;
use crate::runtime::cluster::participant::Participant;
use crate::runtime::cluster::peers::{self, Started};
use crate::runtime::cluster::restart::restart;
use crate::runtime::cluster::view::ClusterView;
use crate::runtime::cluster::{ClusterOptions, identity};
use crate::runtime::journal::{self, JournalLinks, NamedDoor};
use postroad_node::equip;
use postroad_store::{Directories, Found, Layout, Opening, Restored, Stores, find_all, restore_all};

/// Payload of proposals that are not committed; cores wait with more.
const UNCOMMITTED_BYTES_MAX: u64 = 64 << 20;

/// Payload of entries that are kept in memory for followers.
const CACHE_BYTES_MAX: u64 = 16 << 20;

/// A leader that ends waits for another to take over, at most for this time.
const HANDED_OVER_WITHIN: Duration = Duration::from_secs(1);

/// A replica that takes part, whether it follows or leads.
pub struct NodeReplica {
    /// How the cluster is.
    pub view: ClusterView,
    /// The replica's journal.
    pub door: NamedDoor,
    /// The partitions that live in it.
    pub range: PartitionRange,
    /// Wakes the journal's thread.
    pub waker: Arc<ThreadWaker>,
    /// Ends it.
    pub stop: Arc<AtomicBool>,
    leading: watch::Receiver<Option<Term>>,
    placement: Placement,
    thread: JoinHandle<()>,
}

/// A replica whose partitions follow, or will in a moment.
pub struct Following {
    /// The replica.
    pub replica: NodeReplica,
    /// Clients that other nodes carry here.
    pub clients: ForwardedClients,
}

/// A store that this node leads.
pub struct LeaderStore {
    /// Its partitions and where addresses live.
    pub stores: Stores,
    /// Clients that other nodes carry here.
    pub clients: ForwardedClients,
    /// The term, which no other leader has.
    pub term: Term,
    /// The replica.
    pub replica: NodeReplica,
}

/// Opens or makes the replica of the store in a data directory, and has it take part. `tune`
/// prepares its journal. If the store is damaged, and others can fill it, the process begins again
/// without it: see `damage`.
///
/// # Errors
/// The directory is no replica, or of another node; or a port or thread is not to be had.
pub fn follow(
    directories: Directories<'_>,
    keys: Keys,
    settings: impl Fn(PartitionId, Placement, u64) -> Settings,
    (cluster, admitted): (&ClusterOptions, &Admitted),
    tune: impl FnOnce(&mut Journal<RealDisk>, &RealDisk),
    sync_within: Duration,
) -> anyhow::Result<Following> {
    let (data, number) = (directories.main, admitted.number);
    if data.is_dir() {
        copy::install(data, &cluster.cluster, number)
            .context("cannot install a copy of the leader's store")?;
        damage::set_aside(data, &cluster.cluster, number)
            .context("cannot set the files of the damaged store aside")?;
    }
    let mut members = admitted.members.clone();
    let opened = open(directories, keys, settings, (cluster, number, &mut members), tune, sync_within);
    if let Err(error) = &opened
        && let Some(damaged) = StoreDamaged::of(error)
        && damage::note(data, (&cluster.cluster, number), &members, &damaged)?
    {
        restart(&format!("its store is damaged: {damaged}"));
    }
    opened
}

fn open(
    directories: Directories<'_>,
    keys: Keys,
    settings: impl Fn(PartitionId, Placement, u64) -> Settings,
    (cluster, number, members): (&ClusterOptions, NodeId, &mut Members),
    tune: impl FnOnce(&mut Journal<RealDisk>, &RealDisk),
    sync_within: Duration,
) -> anyhow::Result<Following> {
    let opening = Opening::begin();
    let data = directories.main;
    let Found { name, path, disk, mut layout, .. } = find_all(directories)?.remove(0);
    let (placement, range, starts) = (layout.placement(), layout.range(), layout.starts + 1);
    let vote = open_vote(&disk, &path, &layout)?;
    if let Some(latest) = vote.members() {
        members.clone_from(latest);
    }
    let disk = disk.written(layout.ways());
    let settings = |id| settings(id, placement, starts);
    let Restored { journal, recovered, mut partitions } =
        restore_all(&disk, range, &keys, &settings, &opening)?;
    if let Some(damage) = StoreDamaged::in_recovered(&recovered) {
        return Err(damage.into());
    }
    if let Some(damage) = recovered.damaged.first() {
        bail!("{damage}: this replica cannot continue");
    }
    for id in range.iter() {
        partitions.entry(id).or_insert_with(|| Partition::new(settings(id)));
    }
    partitions.values_mut().for_each(equip);
    let mut log = JournalLog::over(disk.clone(), (Options::default(), keys.clone()), journal, &recovered)
        .with_context(|| format!("the store {} does not belong to a cluster", path.display()))?;
    if let Some(journal) = log.journal_mut() {
        for (id, partition) in &partitions {
            journal.recount(*id, partition.live_messages());
        }
        tune(journal, &disk);
    }
    opening.end(0);
    drop(recovered);
    let identities = Identities::open(&path, &cluster.cluster, number)?;
    layout.starts = starts;
    layout.write(&path)?;
    let waker = Arc::new(ThreadWaker::default());
    check_level(cluster, members)?;
    let membership = Arc::new(Membership::new(identities, number, members, vote.vote().term));
    let admitted = Admitted { number, members: members.clone() };
    let Started { shared, send, messages, clients } =
        peers::start(cluster, &admitted, membership.clone(), Outgoing::new(data), waker.clone())?;
    let copies = Arc::new(Copies::default());
    let arrivals = copies::start(shared.clone(), membership.clone(), copies.clone(), (data, keys))?;
    let config = group_config(admitted);
    let applied = partitions.iter().filter_map(|(id, partition)| Some((*id, partition.applied()?)));
    let replica = Replica::open(&config, log, vote, applied, send).context("the replica cannot join")?;
    let writer = LogWriter::new(replica, range.iter());
    let ((status, shown), (terms, leading)) = (watch::channel(None), watch::channel(None));
    let filling = (copies.clone(), arrivals);
    let participant = Participant::new(messages, shared.clone(), filling, partitions, (status, terms));
    let stop = Arc::new(AtomicBool::new(false));
    let links = JournalLinks { from_cores: Vec::new(), to_cores: Vec::new(), stop: stop.clone() };
    let (thread, door) = journal::start(None, disk, (writer, Some(participant)), links, sync_within, &waker)?;
    shared.outgoing().open(door.clone());
    let view = ClusterView::new((cluster, number), shared, (membership, copies), (door.clone(), shown));
    let door = NamedDoor { store: name.into(), path, door };
    let replica = NodeReplica { view, door, range, waker, stop, leading, placement, thread };
    Ok(Following { replica, clients })
}

/// A node does not start in a cluster whose level it does not speak.
fn check_level(cluster: &ClusterOptions, members: &Members) -> Result<(), HelloError> {
    let (levels, level) = (cluster.levels, members.level);
    if levels.contain(level) { Ok(()) } else { Err(HelloError::OwnLevel { levels, cluster: level }) }
}

fn group_config(Admitted { number, members }: Admitted) -> Config {
    Config {
        node: number,
        members,
        seed: number.get(),
        uncommitted_bytes_max: UNCOMMITTED_BYTES_MAX,
        cache_bytes_max: CACHE_BYTES_MAX,
    }
}

/// The vote of a replica; a new one if the store is new.
fn open_vote(
    disk: &RealDisk,
    path: &Path,
    layout: &Layout,
) -> anyhow::Result<VoteFile<<RealDisk as postroad_journal::Disk>::File>> {
    match VoteFile::open(disk) {
        Ok(vote) => Ok(vote),
        Err(VoteError::Io(error)) if error.kind() == std::io::ErrorKind::NotFound => {
            let is_known = path.join(identity::FILE).exists();
            if 0 < layout.starts {
                let path = path.display();
                match is_known {
                    true => {
                        let place = format!("{path}: the vote of this replica is missing");
                        return Err(StoreDamaged { place, lost_vote: true }.into());
                    }
                    false => bail!(
                        "{path}: the store was created by a standalone broker and cannot join a cluster"
                    ),
                }
            }
            VoteFile::create(disk)
                .with_context(|| format!("cannot create the vote file of {}", path.display()))
        }
        Err(error) => Err(error).with_context(|| format!("in {}", path.display())),
    }
}

impl Following {
    /// Comes back once this node leads, and has applied all that is committed.
    pub async fn led(&mut self) {
        // If the journal's thread has ended, the process does.
        let _ = self.replica.leading.wait_for(Option::is_some).await;
    }

    /// Takes over the store; `Err` if this node leads no more, or its partitions are not back yet:
    /// to be tried again.
    ///
    /// # Errors
    /// The configuration of addresses is not valid.
    pub fn lead(self, addressing: Addressing) -> anyhow::Result<Result<LeaderStore, Following>> {
        let Some((partitions, term)) = self.replica.door.door.lead() else { return Ok(Err(self)) };
        let Following { replica, clients } = self;
        let placement = replica.placement;
        let mut stores = Stores { stores: Vec::new(), partitions, placement, addressing: Arc::default() };
        stores.settle(addressing)?;
        Ok(Ok(LeaderStore { stores, clients, term, replica }))
    }
}

impl NodeReplica {
    /// Comes back once this node does not lead in this term any more.
    pub async fn deposed(&mut self, term: Term) {
        let _ = self.leading.wait_for(|leading| *leading != Some(term)).await;
    }

    /// Hands leadership to another node, and waits until that leads; `false` if none takes it in
    /// time.
    pub async fn hands_over(&mut self, term: Term) -> bool {
        // An order may be under way: that is waited for.
        if let Some(turn) = self.view.handover.take_turn()
            && !self.view.hand_over(turn, None).await
        {
            return false;
        }
        tokio::time::timeout(HANDED_OVER_WITHIN, self.deposed(term)).await.is_ok()
    }

    /// Ends the replica's part.
    pub fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        if self.thread.join().is_err() {
            tracing::error!("the journal thread had panicked");
        }
    }
}
