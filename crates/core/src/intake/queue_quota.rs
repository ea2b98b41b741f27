//! How many queues a tenant may have.
//!
//! Queues on their way into the log count, so that sends that follow each other closely make no
//! more than the quota permits. A queue that a transaction or a waiting send makes is not on its
//! way before that ends, as its messages do not count before that either; moves by the broker and
//! routes are not refused.
//!
//! Never here: the contents of queues.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use postroad_model::{Attach, Command, Destination, DestinationKind, Refusal, Sent};

use crate::Partition;
use crate::intake::account::{AccountNumber, owners_of};
use crate::intake::waiting::proposals_ended;
use crate::leader::Leader;
use crate::settings::Settings;

/// A queue that a proposal makes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Unborn {
    /// A queue by its address.
    Queue(Destination),
    /// A durable subscription of a topic.
    Subscription { name: Arc<str>, topic: Destination },
}

impl Unborn {
    /// The address whose owner it counts for.
    fn address(&self) -> &Destination {
        match self {
            Unborn::Queue(queue) => queue,
            Unborn::Subscription { topic, .. } => topic,
        }
    }
}

/// See the head of this file.
#[derive(Debug, Default)]
pub struct QueuesOnTheWay {
    /// Each with the number of proposals that must have come back until it is there.
    all: BTreeMap<Unborn, u64>,
    /// The same by that number, which only rises.
    order: VecDeque<(u64, Unborn)>,
}

/// Whether the owners of the new queues among the targets may have them.
pub fn check_sends(partition: &mut Partition, sends: &[Sent]) -> Result<(), Refusal> {
    if !partition.settings.policies.any_queue_quota() {
        return Ok(());
    }
    let targets = sends.iter().filter(|sent| sent.schedule.is_none()).flat_map(Sent::targets);
    let lasting = targets.filter(|to| to.kind == DestinationKind::Queue && !to.temporary);
    check_unborn(partition, &lasting.map(|to| Unborn::Queue(to.clone())).collect::<Vec<_>>())
}

/// As [`check_sends`], for one queue.
pub fn check_queue(partition: &mut Partition, queue: &Destination) -> Result<(), Refusal> {
    match partition.settings.policies.any_queue_quota() {
        true => check_unborn(partition, &[Unborn::Queue(queue.clone())]),
        false => Ok(()),
    }
}

/// As [`check_sends`], for the queue or subscription that a reader needs.
pub fn check_reader(partition: &mut Partition, attach: &Attach) -> Result<(), Refusal> {
    match &attach.subscription {
        None => check_queue(partition, &attach.source),
        Some(_) if !partition.settings.policies.any_queue_quota() => Ok(()),
        Some(name) => {
            let (name, topic) = (name.clone(), attach.source.clone());
            check_unborn(partition, &[Unborn::Subscription { name, topic }])
        }
    }
}

fn check_unborn(partition: &mut Partition, wanted: &[Unborn]) -> Result<(), Refusal> {
    forget_born(&mut partition.leader, &partition.settings);
    let mut new: BTreeMap<AccountNumber, Vec<&Unborn>> = BTreeMap::new();
    for unborn in wanted.iter().filter(|unborn| is_new(partition, unborn)) {
        let [Some(number), _] = owners_of(&partition.leader, &partition.settings, unborn.address()) else {
            continue;
        };
        let of_tenant = new.entry(number).or_default();
        if !of_tenant.contains(&unborn) {
            of_tenant.push(unborn);
        }
        let account = partition.leader.intake.accounts.account(number);
        let all = account.queues + account.unborn_queues + of_tenant.len() as u64;
        if account.queues_max.is_some_and(|max| max < all) {
            let tenant = account.owner.clone().unwrap_or_default();
            let quota = partition.settings.policies.tenants.named(&tenant).map(|tenant| tenant.quota);
            let max = quota.and_then(|quota| quota.queues_max).unwrap_or_default();
            return Err(Refusal::TooManyQueues { tenant, max });
        }
    }
    Ok(())
}

/// Whether it is neither there nor on its way.
fn is_new(partition: &Partition, unborn: &Unborn) -> bool {
    let exists = match unborn {
        Unborn::Queue(queue) => partition.state.addresses.own_queue(queue).is_some(),
        Unborn::Subscription { name, .. } => partition.state.subscriptions.contains_key(name),
    };
    !exists && !partition.leader.intake.queues_on_the_way.all.contains_key(unborn)
}

/// A command was proposed: the queues that it makes are on their way.
pub fn expect(partition: &mut Partition, command: &Command) {
    if !partition.settings.policies.any_queue_quota() {
        return;
    }
    let queues = |sends: &[Sent]| -> Vec<Unborn> {
        let targets = sends.iter().flat_map(Sent::targets);
        let queues = targets.filter(|to| to.kind == DestinationKind::Queue && !to.temporary);
        queues.map(|to| Unborn::Queue(to.clone())).collect()
    };
    let made = match command {
        Command::Enqueue(sent) => queues(std::slice::from_ref(sent)),
        Command::Transact(changes) => queues(&changes.sends),
        Command::Declare { queue } | Command::Configure { queue, .. } => {
            vec![Unborn::Queue(queue.clone())]
        }
        Command::Subscribe(wanted) => {
            vec![Unborn::Subscription { name: wanted.name.clone(), topic: wanted.topic.clone() }]
        }
        _ => return,
    };
    for unborn in made {
        if !is_new(partition, &unborn) {
            continue;
        }
        let owners = owners_of(&partition.leader, &partition.settings, unborn.address());
        if owners[0].is_some() {
            let until = partition.leader.log.made;
            partition.leader.intake.queues_on_the_way.all.insert(unborn.clone(), until);
            partition.leader.intake.queues_on_the_way.order.push_back((until, unborn));
            partition.leader.intake.accounts.expect_queue(owners, true);
        }
    }
}

/// Proposals have come back: what they made is counted where it is now.
fn forget_born(leader: &mut Leader, settings: &Settings) {
    let ended = proposals_ended(leader);
    while let Some((_, unborn)) =
        leader.intake.queues_on_the_way.order.pop_front_if(|(until, _)| *until <= ended)
    {
        leader.intake.queues_on_the_way.all.remove(&unborn);
        let owners = owners_of(leader, settings, unborn.address());
        leader.intake.accounts.expect_queue(owners, false);
    }
}

/// The accounts are new: queues on their way count in them.
pub fn expect_anew(leader: &mut Leader, settings: &Settings) {
    let on_their_way = std::mem::take(&mut leader.intake.queues_on_the_way.order);
    for (_, unborn) in &on_their_way {
        let owners = owners_of(leader, settings, unborn.address());
        leader.intake.accounts.expect_queue(owners, true);
    }
    leader.intake.queues_on_the_way.order = on_their_way;
}
