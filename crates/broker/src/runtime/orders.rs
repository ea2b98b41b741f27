//! Orders: what operators decide about transactions and dead letters, said to the partitions by a connection of the broker's own.
//!
//! Never here: sockets, and what operators type.

use postroad_model::{
    BranchId, BranchStanding, Decision, Destination, Event, Moving, PartitionId, Redrive, Refusal, Ticket,
    ToSession,
};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use crate::runtime::connection::CoreHandle;
use postroad_node::Router;
use postroad_node::Taken;
use postroad_node::{Core, Places};

/// Orders that wait; whoever gives more waits too.
const ORDERS_MAX: usize = 4;

/// What an operator wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// To know of all branches that wait for a word of their managers.
    List,
    /// To end a branch in place of its manager.
    Overrule {
        /// Which.
        branch: BranchId,
        /// Whether what was done in it is carried out.
        commit: bool,
    },
    /// That dead letters go back.
    Redrive(Redrive),
    /// That a queue moves to another store.
    Move {
        /// The queue.
        queue: Destination,
        /// The store's name.
        store: String,
    },
    /// To know of all queues that are on the move.
    ListMoves,
    /// That a manager is told no more how a branch was ended.
    Forget {
        /// Which.
        branch: BranchId,
    },
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// The branches that were asked for, or none.
    pub branches: Vec<(BranchId, BranchStanding)>,
    /// Dead letters that have gone back, even if not all could.
    pub moved: u64,
    /// Dead letters that were looked at, and stayed.
    pub stayed: u64,
    /// The queues on the move that were asked for, each with the store that it moves to, or none.
    pub moves: Vec<(Moving, String)>,
    /// Whether all was done.
    pub result: Result<(), Refusal>,
}

/// An order, and who waits.
pub struct Given {
    order: Order,
    answer: oneshot::Sender<Outcome>,
}

/// The way of orders to the partitions.
#[derive(Clone)]
pub struct Orders(mpsc::Sender<Given>);

impl Orders {
    /// A way, and its other end.
    pub fn channel() -> (Orders, mpsc::Receiver<Given>) {
        let (sender, receiver) = mpsc::channel(ORDERS_MAX);
        (Orders(sender), receiver)
    }

    /// Gives an order, and waits until what follows from it is durable. `None`: the broker is about to end.
    pub async fn give(&self, order: Order) -> Option<Outcome> {
        let (answer, answered) = oneshot::channel();
        self.0.send(Given { order, answer }).await.ok()?;
        answered.await.ok()
    }
}

/// Carries out orders, a few of them at the same time: one that takes long holds up no others.
pub async fn obey(handle: CoreHandle, mut given: mpsc::Receiver<Given>) {
    let mut under_way = JoinSet::new();
    while let Some(Given { order, answer }) = given.recv().await {
        if under_way.len() >= ORDERS_MAX {
            under_way.join_next().await;
        }
        let handle = handle.clone();
        under_way.spawn_local(async move {
            let outcome = carry_out(&handle, order).await;
            // Whoever gave it may have gone.
            let _ = answer.send(outcome);
        });
    }
}

async fn carry_out(handle: &CoreHandle, order: Order) -> Outcome {
    let (connection, mailbox) = handle.core.borrow_mut().join();
    let places = handle.core.borrow().places();
    let mut router = Router::new(connection, places.clone(), handle.share.clone());
    let ticket = Ticket(0);
    let event = match order {
        Order::List => Event::ListBranches { connection, ticket },
        Order::Overrule { branch, commit } => {
            Event::DecideBranch { branch, decision: Decision::Overrule { commit }, connection, ticket }
        }
        Order::Forget { branch } => Event::ForgetBranch { branch, connection, ticket },
        Order::Redrive(wanted) => Event::Redrive { wanted: Box::new(wanted), connection, ticket },
        Order::Move { queue, store } => match target(&places.borrow(), &queue, &store) {
            Ok(to) => Event::Move { queue, to, connection, ticket },
            Err(refusal) => {
                handle.core.borrow_mut().leave(connection);
                return Outcome::refused(refusal);
            }
        },
        Order::ListMoves => Event::ListMoves { connection, ticket },
    };
    at_once(handle, |core| router.route(event, |partition, event| core.submit(partition, event)));
    let (mut found, mut back, mut moves) = (Vec::new(), (0, 0), Vec::new());
    let result = loop {
        mailbox.filled((Taken::All, false)).await;
        mailbox.each_answered(|ticket| router.answered(ticket));
        match mailbox.take(Taken::All).and_then(|message| router.merge(message)) {
            Some(ToSession::Branches { branches, .. }) => found.extend(branches),
            Some(ToSession::Redriven { moved, stayed, .. }) => back = (moved, stayed),
            Some(ToSession::Moves { moves: some, .. }) => moves.extend(some),
            Some(ToSession::Reply { result, .. }) => break result,
            _ => {}
        }
    };
    at_once(handle, |core| router.close(|partition, event| core.submit(partition, event)));
    handle.core.borrow_mut().leave(connection);
    let store_of = |moving: &Moving| places.borrow().addressing.homes.store_of(moving.to).to_owned();
    let moves = moves.into_iter().map(|moving| (moving.clone(), store_of(&moving))).collect();
    Outcome { branches: found, moved: back.0, stayed: back.1, moves, result }
}

/// The partition of the store that the queue is to live in.
fn target(places: &Places, queue: &Destination, store: &str) -> Result<PartitionId, Refusal> {
    let no = |reason: String| Refusal::NotMovable { queue: queue.clone(), reason };
    let range = places.addressing.homes.range_of(places.placement, store);
    let range = range.ok_or_else(|| no(format!("there is no store {store}")))?;
    // Whoever has it says so, if it is there already.
    let place = places.partition_of(queue);
    Ok(if range.contains(place) { place } else { range.partition_of(&queue.name) })
}

impl Outcome {
    fn refused(refusal: Refusal) -> Outcome {
        Outcome { branches: Vec::new(), moved: 0, stayed: 0, moves: Vec::new(), result: Err(refusal) }
    }
}

/// Says something to the core, and has it done.
fn at_once(handle: &CoreHandle, say: impl FnOnce(&mut Core)) {
    let mut core = handle.core.borrow_mut();
    say(&mut core);
    core.run();
    drop(core);
    handle.wake.notify_one();
}
