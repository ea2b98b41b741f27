//! The control socket: commands of the same machine to a running broker. See
//! docs/protocols/control.md.
//!
//! A Unix domain socket in the data directory: who may read that may speak here. HTTP is answered
//! by the admin API; older commands send one line of JSON, and so is their answer.
//!
//! Never here: the partitions' work on an order, anything for clients of the broker.

mod backup;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use axum::Router;
use postroad_admin::Peer;
use postroad_model::{BranchId, BranchStanding, Destination, Moving, Redrive, RedriveWay, Refusal};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::config::nearest;
use crate::runtime::{NamedDoor, Order, Orders, Outcome, StatsCollector};

/// Its name in the data directory.
pub const SOCKET_NAME: &str = "control.sock";

/// A request is not longer.
const REQUEST_BYTES_MAX: u64 = 64 << 10;

/// The request must arrive within this time.
const PATIENCE: Duration = Duration::from_secs(10);

/// After a failed accept (out of descriptors, say), how long until the next.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Requests that are served at the same time; others wait.
const CONVERSATIONS_MAX: usize = 4;

/// The requests.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase", deny_unknown_fields)]
pub enum Request {
    /// A directory with all that is durable now.
    Backup {
        /// Where: a new directory on the same file system, by its full path.
        to: PathBuf,
        /// As that, for each store beside the main one.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        stores: BTreeMap<String, PathBuf>,
    },
    /// All branches that wait for a word of their managers.
    Transactions,
    /// A branch that is to end in place of its manager's word.
    Overrule {
        /// Which, as [`Listed::branch`].
        branch: String,
        /// Whether its changes are applied.
        commit: bool,
    },
    /// Dead letters that are to go back to where they were.
    Redrive {
        /// The queue that they are in.
        from: String,
        /// Where to, instead of where each was.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        to: Option<String>,
        /// Only those that were in this queue.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        origin: Option<String>,
        /// Only those that this selects.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        selector: Option<String>,
        /// The maximum number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max: Option<u64>,
    },
    /// A queue that is to move to another store, while it is in use.
    Move {
        /// The queue.
        queue: String,
        /// The store.
        to: String,
    },
    /// All queues that are on the move.
    Moves,
    /// A branch whose outcome need not be remembered any longer.
    Forget {
        /// Which, as [`Listed::branch`].
        branch: String,
    },
}

/// A branch that waits for a word of its manager.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// Its format, transaction and qualifier, as the command line has them.
    pub branch: String,
    /// `prepared`, or how an operator has ended it: `committed`, `rolled back`.
    pub state: String,
}

impl Listed {
    fn new((branch, standing): (BranchId, BranchStanding)) -> Listed {
        let state = match standing {
            BranchStanding::Prepared => "prepared",
            BranchStanding::Overruled { committed: true } => "committed",
            BranchStanding::Overruled { committed: false } => "rolled back",
        };
        Listed { branch: branch.to_string(), state: state.to_owned() }
    }
}

/// A queue that is on the move.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueMove {
    /// The queue.
    pub queue: String,
    /// The store where it lives now.
    pub to: String,
    /// Messages that have moved since the broker started.
    pub moved: u64,
    /// Messages that have not.
    pub left: u64,
    /// How many of these consumers have, or are about to go.
    pub held: u64,
    /// Transactions that are open or prepared and send to it: they end first.
    pub transactions: u64,
    /// Large messages that are on their way in since before it moved: they are waited for.
    #[serde(default)]
    pub uploads: u64,
    /// Why the last messages were refused where they are to go, if they were; it is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
    /// It has moved, except for the rest, which cannot be read.
    #[serde(default)]
    pub is_stuck: bool,
}

impl QueueMove {
    fn new((moving, to): (Moving, String)) -> QueueMove {
        let Moving { queue, moved, left, held, transactions, uploads, refused, .. } = moving;
        let is_stuck = matches!(refused, Some(Refusal::Unreadable { .. }));
        let (refused, queue) = (refused.map(|refusal| refusal.to_string()), queue.name.to_string());
        QueueMove { queue, to, moved, left, held, transactions, uploads, refused, is_stuck }
    }

    /// The remedy for the rest of a stuck one.
    pub fn stuck(&self) -> String {
        let QueueMove { queue, to, left, .. } = self;
        format!(
            "queue://{queue} is now in {to}, except {left} unreadable messages, which stay in the old store: \
             stop the broker and run `postroad store repair` to list and remove them"
        )
    }
}

/// The answer.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The backup is whole and durable.
    Backup {
        /// Files of the journals in it.
        files: u64,
        /// Segments that are gone from the journals, and not in it. Brokers of earlier builds do
        /// not say.
        #[serde(default)]
        missing: Vec<PathBuf>,
    },
    /// The branches.
    Transactions(Vec<Listed>),
    /// The branch has ended, durably.
    Ended {
        /// Which.
        branch: String,
        /// Whether its changes are applied.
        committed: bool,
    },
    /// The branch's outcome is forgotten.
    Forgotten {
        /// Which.
        branch: String,
    },
    /// Dead letters have gone back, durably.
    Redriven {
        /// How many.
        moved: u64,
        /// How many were looked at, and stayed: not asked for, or without a queue to go back to.
        stayed: u64,
    },
    /// The queue is on its way, whatever happens.
    Moving {
        /// The queue.
        queue: String,
        /// Where to.
        to: String,
    },
    /// The queues that are on the move.
    Moves(Vec<QueueMove>),
    /// Nothing was done, or not all; why.
    Error(String),
}

/// The longest path that fits into the address of a socket on Linux.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Where the socket of a directory is.
pub struct SocketPath {
    /// A way to it that fits into an address: through the open directory where the usual one is too
    /// long.
    pub path: PathBuf,
    /// To be held for as long as the way is used.
    _directory: Option<File>,
}

impl SocketPath {
    /// Of this data directory.
    ///
    /// # Errors
    /// The directory cannot be opened.
    pub fn of(data: &Path) -> io::Result<SocketPath> {
        let path = data.join(SOCKET_NAME);
        if path.as_os_str().len() <= SOCKET_PATH_BYTES_MAX {
            return Ok(SocketPath { path, _directory: None });
        }
        let directory = File::open(data)?;
        let path = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET_NAME}", directory.as_raw_fd()));
        Ok(SocketPath { path, _directory: Some(directory) })
    }
}

/// The socket of a broker that runs.
pub struct Listening {
    task: JoinHandle<()>,
    socket: SocketPath,
    file: FileId,
}

/// A device, and the number of a file on it.
type FileId = (u64, u64);

fn id_of(file: &Path) -> io::Result<FileId> {
    let found = file.symlink_metadata()?;
    Ok((found.dev(), found.ino()))
}

impl Listening {
    /// Stops listening. A socket, or directory, that another process has put in its place stays.
    pub fn end(self) {
        self.task.abort();
        if id_of(&self.socket.path).is_ok_and(|found| found == self.file) {
            let _ = std::fs::remove_file(&self.socket.path);
        }
    }
}

/// The service at the control socket.
#[derive(Clone)]
pub struct Served {
    /// The ways to the journals.
    pub journals: Vec<NamedDoor>,
    /// The channel for orders of operators.
    pub orders: Orders,
    /// Who knows how the broker is.
    pub everybody: StatsCollector,
    /// The admin API.
    pub api: Router,
}

/// Listens in a directory whose lock this process holds, and serves a few requests at a time.
///
/// # Errors
/// There can be no socket there.
pub fn serve(data: &Path, served: Served) -> io::Result<Listening> {
    let socket = SocketPath::of(data)?;
    let path = &socket.path;
    // Of a process that is gone: the lock says so.
    let _ = std::fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    let file = id_of(path)?;
    let task = tokio::spawn(async move {
        let mut conversations = JoinSet::new();
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a command at the control socket");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            if conversations.len() >= CONVERSATIONS_MAX {
                conversations.join_next().await;
            }
            let served = served.clone();
            conversations.spawn(async move {
                if let Err(error) = converse(stream, served).await {
                    tracing::warn!(%error, "a connection to the control socket was closed early");
                }
            });
        }
    });
    Ok(Listening { task, socket, file })
}

async fn converse(stream: UnixStream, served: Served) -> io::Result<()> {
    let mut stream = BufReader::new(stream);
    let first = tokio::time::timeout(PATIENCE, stream.fill_buf());
    let first = first.await.map_err(|_| io::ErrorKind::TimedOut)??.first().copied();
    let Served { journals, orders, everybody, api } = served;
    // HTTP begins with the name of a method.
    if first.is_some_and(|byte| byte.is_ascii_uppercase()) {
        let served = postroad_admin::serve_on(stream, Peer::ControlSocket, everybody, api);
        return served.await.map_err(io::Error::other);
    }
    let mut line = String::new();
    let mut request = (&mut stream).take(REQUEST_BYTES_MAX);
    let read = tokio::time::timeout(PATIENCE, request.read_line(&mut line));
    read.await.map_err(|_| io::ErrorKind::TimedOut)??;
    let answer = match serde_json::from_str(&line) {
        Ok(request) => {
            let done = carry_out(request, journals, &orders).await;
            done.unwrap_or_else(|error| Answer::Error(format!("{error:#}")))
        }
        Err(error) => Answer::Error(format!("the request is malformed: {error}")),
    };
    let mut text = serde_json::to_vec(&answer)?;
    text.push(b'\n');
    stream.write_all(&text).await
}

async fn carry_out(request: Request, journals: Vec<NamedDoor>, orders: &Orders) -> anyhow::Result<Answer> {
    match request {
        Request::Backup { to, stores } => {
            // It waits for disks.
            tokio::task::spawn_blocking(move || backup::back_up(&journals, &to, &stores)).await?
        }
        Request::Transactions => {
            let Outcome { branches, .. } = give(orders, Order::List).await?;
            Ok(Answer::Transactions(branches.into_iter().map(Listed::new).collect()))
        }
        Request::Overrule { branch, commit } => {
            give(orders, Order::Overrule { branch: branch.parse()?, commit }).await?;
            tracing::warn!(branch, commit, "an operator has resolved an XA branch");
            Ok(Answer::Ended { branch, committed: commit })
        }
        Request::Redrive { from, to, origin, selector, max } => {
            let wanted = Redrive {
                from: queue(&from)?,
                to: to.as_deref().map(queue).transpose()?,
                origin: origin.as_deref().map(queue).transpose()?,
                selector: selector.unwrap_or_default().into(),
                messages_max: max.unwrap_or(u64::MAX),
                way: RedriveWay::Back(None),
                by: None,
            };
            let Outcome { moved, stayed, .. } = give(orders, Order::Redrive(wanted)).await?;
            tracing::info!(from, moved, stayed, "an operator has redriven dead letters");
            Ok(Answer::Redriven { moved, stayed })
        }
        Request::Move { queue: name, to } => {
            let queue = queue(&name)?;
            let target = known_store(&journals, &to)?.clone();
            if let Some(reason) = broken(target).await? {
                bail!("the store {to} is not writable now, and a move cannot be cancelled: {reason}");
            }
            // Holders of in-flight messages do not delay the answer: two would wait for one
            // another.
            let Outcome { moves, .. } = give(orders, Order::ListMoves).await?;
            let moving = moves.into_iter().find(|(moving, _)| moving.queue == queue).map(QueueMove::new);
            match moving {
                Some(moving) if moving.is_stuck => bail!(moving.stuck()),
                Some(_) => return Err(Refusal::QueueMoving(queue).into()),
                None => {}
            }
            give(orders, Order::Move { queue: queue.clone(), store: to.clone() }).await?;
            tracing::info!(%queue, to, "an operator moves a queue to another store");
            Ok(Answer::Moving { queue: queue.name.to_string(), to })
        }
        Request::Moves => {
            let Outcome { moves, .. } = give(orders, Order::ListMoves).await?;
            let mut moves: Vec<QueueMove> = moves.into_iter().map(QueueMove::new).collect();
            for moving in moves.iter_mut().filter(|moving| moving.refused.is_none()) {
                let target = known_store(&journals, &moving.to)?.clone();
                moving.refused = broken(target).await?;
            }
            Ok(Answer::Moves(moves))
        }
        Request::Forget { branch } => {
            give(orders, Order::Forget { branch: branch.parse()? }).await?;
            Ok(Answer::Forgotten { branch })
        }
    }
}

async fn give(orders: &Orders, order: Order) -> anyhow::Result<Outcome> {
    let outcome = orders.give(order).await.context("the broker is shutting down")?;
    match outcome.result {
        Err(refusal) if outcome.moved > 0 => {
            Err(refusal).with_context(|| format!("{} were redriven before that", outcome.moved))
        }
        Err(refusal) => Err(refusal.into()),
        Ok(()) => Ok(outcome),
    }
}

/// A lasting queue by its name, or by `queue://` and its name.
fn queue(text: &str) -> anyhow::Result<Destination> {
    let name = text.strip_prefix("queue://").unwrap_or(text);
    if name.is_empty() || name.contains("://") {
        bail!("{text:?} is not a queue; use queue://NAME or NAME");
    }
    Ok(Destination::queue(name))
}

/// See [`NamedDoor::broken`], which may have to wait for a sync.
async fn broken(journal: NamedDoor) -> anyhow::Result<Option<String>> {
    Ok(tokio::task::spawn_blocking(move || journal.broken()).await?)
}

/// The store of this name; refuses one that there is not.
fn known_store<'j>(journals: &'j [NamedDoor], store: &str) -> anyhow::Result<&'j NamedDoor> {
    if let Some(journal) = journals.iter().find(|journal| &*journal.store == store) {
        return Ok(journal);
    }
    let names: Vec<&str> = journals.iter().map(|journal| &*journal.store).collect();
    match nearest(store, names.iter().copied()) {
        Some(nearest) => bail!("there is no store {store}; did you mean {nearest}?"),
        None => bail!("there is no store {store}; there are {}", names.join(", ")),
    }
}
