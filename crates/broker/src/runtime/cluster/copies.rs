//! The thread that fills this node's store when it must be: see `copy` and `joining`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::bail;
use postroad_cluster::{Purpose, Term};
use postroad_journal::Keys;
use postroad_routing::FIRST_STORE;

use crate::runtime::cluster::copy::{Fetched, Fetcher, Progress, announce};
use crate::runtime::cluster::joining::Membership;
use crate::runtime::cluster::peers::Shared;

/// How often it is looked whether the store must be filled.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// From one attempt to the next.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the parts of a copy that is not needed any more are kept.
const KEPT: Duration = Duration::from_secs(120);
/// The journal's thread answers within this time.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);
/// The same failure is logged once in this time.
const LOG_EVERY: Duration = Duration::from_secs(5);

/// A complete copy, on its way to the journal's thread, which restarts the process from it or says
/// why not.
pub struct Arrived {
    /// The copy.
    pub copy: Fetched,
    data: PathBuf,
    new_vote: bool,
    refusal: SyncSender<String>,
}

impl Arrived {
    /// The next start installs the copy.
    ///
    /// # Errors
    /// The disk refuses.
    pub fn accept(&self) -> anyhow::Result<()> {
        announce(&self.data, &self.copy, self.new_vote)
    }

    /// Whether the store is that of a node that has not joined, which has no log of its own to
    /// lose.
    pub fn fills_empty_store(&self) -> bool {
        self.new_vote
    }

    /// It is of no use.
    pub fn refuse(&self, reason: String) {
        let _ = self.refusal.try_send(reason);
    }
}

/// The state of copies of this node, shared by its threads.
#[derive(Default)]
pub struct Copies {
    /// This node's log ends before the leader's begins.
    pub lags: AtomicBool,
    /// How far the copy has come.
    pub progress: Progress,
}

/// Starts the thread. Complete copies arrive at the receiver.
///
/// # Errors
/// The system starts no thread.
pub fn start(
    shared: Arc<Shared>,
    membership: Arc<Membership>,
    copies: Arc<Copies>,
    (data, keys): (&Path, Keys),
) -> std::io::Result<Receiver<Arrived>> {
    let (arrivals, receiver) = sync_channel(1);
    let is_further = shared.part().number() != FIRST_STORE;
    let (fetcher, data) = (Fetcher::new(data, keys, is_further), data.to_owned());
    let filling = Filling { shared, membership, copies, fetcher, data, arrivals };
    thread::Builder::new().name("copies".to_owned()).spawn(move || filling.run())?;
    Ok(receiver)
}

struct Filling {
    shared: Arc<Shared>,
    membership: Arc<Membership>,
    copies: Arc<Copies>,
    fetcher: Fetcher,
    data: PathBuf,
    arrivals: SyncSender<Arrived>,
}

impl Filling {
    fn run(self) {
        let (mut needed_at, mut logged_at): (Option<Instant>, Option<Instant>) = (None, None);
        loop {
            thread::sleep(LOOK_EVERY);
            self.shared.outgoing().tidy();
            let empty_from = self.membership.fills_from();
            if empty_from.is_none() && !self.copies.lags.load(Ordering::Acquire) {
                if needed_at.take_if(|at| KEPT < at.elapsed()).is_some() {
                    self.fetcher.discard();
                }
                continue;
            }
            needed_at = Some(Instant::now());
            if let Err(error) = self.fill(empty_from)
                && logged_at.is_none_or(|at| LOG_EVERY < at.elapsed())
            {
                logged_at = Some(Instant::now());
                tracing::warn!(
                    error = format!("{error:#}"),
                    "the store needs a copy of the leader's, and has none yet"
                );
            }
            thread::sleep(AGAIN);
        }
    }

    /// Asks all nodes in turn; the leader has a copy. Comes back if there is none, or it is of no
    /// use.
    fn fill(&self, empty_from: Option<Term>) -> anyhow::Result<()> {
        let mut failure = anyhow::anyhow!("no other node is known");
        let least = self.fetcher.round(empty_from.unwrap_or_default());
        for peer in self.shared.peers().all().iter() {
            let (wire, introduced) = match self.shared.connect(peer, Purpose::Copy) {
                Ok(connected) => connected,
                Err(error) => {
                    failure = error.context(format!("node {}", peer.node.get()));
                    continue;
                }
            };
            let (of, former) =
                ((&wire, introduced.name()), empty_from.is_some() && self.fetcher.has_former());
            let fetched = match former {
                true => self.fetcher.take_former(of, least),
                false => self.fetcher.fetch(of, least, &self.copies.progress),
            };
            let copy = match fetched {
                Ok(copy) => copy,
                Err(error) => {
                    failure = error.context(format!("node {}", peer.node.get()));
                    continue;
                }
            };
            // The author may remove its files.
            let _ = wire.write_frame(&[]);
            return self.hand_over(copy, empty_from.is_some());
        }
        Err(failure)
    }

    fn hand_over(&self, copy: Fetched, new_vote: bool) -> anyhow::Result<()> {
        let (refusal, refused) = sync_channel(1);
        if self.arrivals.send(Arrived { copy, data: self.data.clone(), new_vote, refusal }).is_err() {
            bail!("the journal thread has ended");
        }
        self.shared.wake();
        match refused.recv_timeout(ANSWERED_WITHIN) {
            Ok(reason) => bail!(reason),
            Err(_) => bail!("the journal thread does not answer"),
        }
    }
}
