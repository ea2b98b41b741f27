//! Orders: operators' decisions about transactions and dead letters, sent to the partitions by a
//! client inside the process.
//!
//! Never here: sockets, and the syntax of the command line.

use postroad_model::{
    BranchId, BranchStanding, Decision, Destination, Event, Moving, PartitionId, Redrive, Refusal, ToSession,
};
use postroad_node::{Answer, ClientOptions, Clients, LocalClient, Places};

/// An operator's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// To know of all branches that wait for a word of their managers.
    List,
    /// To end a branch in place of its manager.
    Overrule {
        /// Which.
        branch: BranchId,
        /// Whether its work is carried out.
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
    /// The outcome of a branch need not be remembered for its manager any longer.
    Forget {
        /// Which.
        branch: BranchId,
    },
}

/// The result of an order.
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

/// The way of orders to the partitions: a client of its own for each.
#[derive(Clone)]
pub struct Orders(Clients);

impl Orders {
    /// Given by clients of the broker itself.
    pub fn new(clients: Clients) -> Orders {
        Orders(clients)
    }

    /// Gives an order, and waits until its result is durable. `None`: the broker is shutting down.
    pub async fn give(&self, order: Order) -> Option<Outcome> {
        let client = self.0.connect(ClientOptions::named("operator")).await.ok()?;
        client.run(|local| carry_out(local, order)).await.ok()?
    }
}

async fn carry_out(client: LocalClient, order: Order) -> Option<Outcome> {
    let places = client.core().core.borrow().places();
    let to = match &order {
        Order::Move { queue, store } => match target(&places.borrow(), queue, store) {
            Ok(to) => to,
            Err(refusal) => return Some(Outcome::refused(refusal)),
        },
        _ => PartitionId(0),
    };
    let make = |connection, ticket| match order {
        Order::List => Event::ListBranches { connection, ticket },
        Order::Overrule { branch, commit } => {
            Event::DecideBranch { branch, decision: Decision::Overrule { commit }, connection, ticket }
        }
        Order::Forget { branch } => Event::ForgetBranch { branch, connection, ticket },
        Order::Redrive(wanted) => Event::Redrive { wanted: Box::new(wanted), connection, ticket },
        Order::Move { queue, .. } => Event::Move { queue, to, connection, ticket },
        Order::ListMoves => Event::ListMoves { connection, ticket },
    };
    let Answer { result, collected } = client.request(make).await.ok()?;
    let mut outcome = Outcome { result, ..Outcome::default() };
    for message in collected {
        match message {
            ToSession::Branches { branches, .. } => outcome.branches.extend(branches),
            ToSession::Redriven { counts, .. } => {
                (outcome.moved, outcome.stayed) = (counts.moved, counts.stayed);
            }
            ToSession::Moves { moves, .. } => {
                let places = places.borrow();
                let named = |moving: Moving| {
                    let store = places.addressing.homes.store_of(moving.to).to_owned();
                    (moving, store)
                };
                outcome.moves.extend(moves.into_iter().map(named));
            }
            _ => {}
        }
    }
    Some(outcome)
}

/// The partition of the store that the queue is to live in.
fn target(places: &Places, queue: &Destination, store: &str) -> Result<PartitionId, Refusal> {
    let no = |reason: String| Refusal::NotMovable { queue: queue.clone(), reason };
    let range = places.addressing.homes.range_of(places.placement, store);
    let range = range.ok_or_else(|| no(format!("there is no store {store}")))?;
    // The partition that has the queue answers, if the queue exists.
    let place = places.partition_of(queue);
    Ok(if range.contains(place) { place } else { range.partition_of(&queue.name) })
}

impl Default for Outcome {
    fn default() -> Outcome {
        Outcome { branches: Vec::new(), moved: 0, stayed: 0, moves: Vec::new(), result: Ok(()) }
    }
}

impl Outcome {
    fn refused(refusal: Refusal) -> Outcome {
        Outcome { result: Err(refusal), ..Outcome::default() }
    }
}
