//! The scene of a run: destinations, durable subscriptions, and the special ones among them.

use std::sync::Arc;

use postroad_model::{Destination, DestinationKind, Placement};
use postroad_routing::{AtLimit, Limit, Redelivery, Slow};

use crate::policies::{SELECTING, limit, slow};
use crate::random::Random;

/// A durable subscription, its topic, and whether several may read it.
pub type Subscription = (Arc<str>, Destination, bool);

/// Destinations whose failed messages rest, and come again.
#[derive(Clone, Debug)]
pub struct Resting {
    /// A destination.
    pub at: Destination,
    /// How long, and how often.
    pub redelivery: Redelivery,
    /// A message that fails too often is no dead letter: it ends.
    pub is_dropped: bool,
}

/// See the head of this file.
pub struct Scene {
    /// The lasting destinations.
    pub destinations: Vec<Destination>,
    /// Where dead letters go.
    pub dead_letters: Destination,
    /// The destinations of redrives, if there are any: no client sends there.
    pub revived: Option<Destination>,
    /// Durable subscriptions that clients read and end. If there are any, messages have several
    /// targets too, and none becomes a dead letter: it would be one for each place.
    pub names: Vec<Subscription>,
    /// Queues that a topic feeds, and whether with their consumers' selection alone. Messages to
    /// several addresses are not sent there, for it would come twice.
    pub fed: Vec<(Destination, bool)>,
    /// Whether consumers have selectors.
    pub selects: bool,
    /// This queue's confirmations are synced a little later.
    pub lagging: Option<Destination>,
    /// Messages to this queue alone are in memory alone.
    pub forgetful: Option<Destination>,
    /// A destination with a limit.
    pub limited: Option<(Destination, Limit)>,
    /// Of messages there with the same value the last is kept.
    pub last_values: Option<Destination>,
    /// Much is scheduled, and far ahead: so much that some of it leaves memory.
    pub plans_ahead: bool,
    /// Whose consumers must not be slow.
    pub slow: Option<(Destination, Slow)>,
    /// Longest time of an open transaction.
    pub transaction_ms_max: Option<u64>,
    /// Queues move from partition to partition.
    pub moves: bool,
    /// Some jobs send more than one message.
    pub repeats: bool,
    /// Failed messages there rest, and come again.
    pub rests: Vec<Resting>,
}

/// A topic that feeds queues.
pub const FEEDING: &str = "VirtualTopic.v";

impl Scene {
    /// Some scene.
    pub fn choose(random: &mut Random, placement: Placement) -> Scene {
        let mut destinations: Vec<Destination> =
            ["red", "invoices", "orders.white", "q10"].into_iter().map(Destination::queue).collect();
        destinations.extend([Destination::topic("t"), Destination::topic("u")]);
        let selects = random.one_in(3);
        let names = if random.one_in(2) { subscriptions() } else { Vec::new() };
        let fed = if !names.is_empty() && random.one_in(2) { fed_queues(placement) } else { Vec::new() };
        if !fed.is_empty() {
            // The others would get all the rest.
            destinations.retain(|other| !matches!(&*other.name, "orders.white" | "q10"));
            destinations.push(Destination::topic(FEEDING));
            destinations.extend(fed.iter().map(|(queue, _)| queue.clone()));
        }
        let lagging = random.one_in(2).then(|| destinations[0].clone());
        let queue = destinations.get(2).filter(|other| other.kind == DestinationKind::Queue);
        let forgetful = queue.cloned().filter(|_| random.one_in(3));
        let mut may_be_limited = vec![destinations[1].clone(), Destination::topic("t")];
        may_be_limited.extend(fed.iter().map(|(queue, _)| queue.clone()));
        let limited = random.pick(&may_be_limited).cloned().filter(|_| random.one_in(2));
        let limited = limited.map(|at| (at, limit(random)));
        let last_values = [destinations[1].clone(), Destination::topic("t"), Destination::topic("u")];
        let last_values = random.pick(&last_values).cloned().filter(|_| random.one_in(3));
        // Messages that leave by a limit are counted apart.
        let has_limit = |at: &Destination| limited.as_ref().is_some_and(|(limited, _)| limited == at);
        let last_values = last_values.filter(|at| !has_limit(at));
        let slow_at = random.pick(&destinations).cloned().filter(|_| random.one_in(3));
        let slow = slow_at.map(|at| (at, slow(random)));
        let transaction_ms_max = random.one_in(4).then(|| 50 + random.below(500));
        let dead_letters = Destination::queue("dead");
        let plans_ahead = random.one_in(4);
        let revived = random.one_in(3).then(|| Destination::queue("revived"));
        Scene {
            destinations,
            dead_letters,
            revived,
            names,
            fed,
            selects,
            lagging,
            forgetful,
            limited,
            last_values,
            plans_ahead,
            slow,
            transaction_ms_max,
            moves: false,
            repeats: false,
            rests: Vec::new(),
        }
    }

    /// Time passes in steps of at most this: long ones if a consumer may be too slow, or a move
    /// goes on a little later, and longer ones than else if something rests.
    pub fn step_ms_max(&self) -> u64 {
        let limits = self.slow.is_some() || self.transaction_ms_max.is_some();
        match (limits || self.moves, self.rests.is_empty()) {
            (true, _) => 300,
            (_, true) => 20,
            (_, false) => 60,
        }
    }

    /// Whether failed messages there rest.
    pub fn has_rests(&self, at: &Destination) -> bool {
        self.rests.iter().any(|resting| resting.at == *at)
    }

    /// A queue that refuses messages beyond its limit.
    pub fn refusing(&self) -> Option<&Destination> {
        let refuses = |(_, limit): &&(Destination, Limit)| limit.action == AtLimit::Fail;
        self.limited.as_ref().filter(refuses).map(|(at, _)| at)
    }
}

/// Durable subscriptions with their topics; several may read those that are shared.
fn subscriptions() -> Vec<Subscription> {
    let subscription =
        |(name, topic, shared): (&str, &str, bool)| (name.into(), Destination::topic(topic), shared);
    [("one", "t", false), ("many", "t", true), ("other", "u", false)].map(subscription).to_vec()
}

/// Queues that the topic feeds, and whether with their consumers' selection alone. Each lives where
/// its name says, as any other: clients and oracle need not know the rules.
fn fed_queues(placement: Placement) -> Vec<(Destination, bool)> {
    let home = placement.partition_of(FEEDING);
    let named = |prefix: &str, from: u32| {
        let names = (from..).map(|number| format!("{prefix}.{number}.{FEEDING}"));
        names.into_iter().find(|name| placement.partition_of(name) == home).unwrap_or_default()
    };
    let wanted = [("Consumer", 0, false), ("Consumer", 100, false), (SELECTING, 0, true)];
    wanted.map(|(prefix, from, selects)| (Destination::queue(&named(prefix, from)), selects)).to_vec()
}
