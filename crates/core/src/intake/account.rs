//! Accounts: the contents and limits of all queues of a tenant together, and of all queues of the
//! broker.
//!
//! A queue is in two accounts at most: its tenant's, and the broker's if that has a limit. A
//! message in two queues of a tenant counts twice, as it does in the two queues. Each partition has
//! an equal part of every limit and keeps its own accounts.
//!
//! Who waits for room in an account waits in a line of its own: those of other tenants are not
//! asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use postroad_model::{Destination, DestinationKind, QueueId, Refusal, Sent};
use postroad_routing::{Limit, Policies, Tenant};

use crate::Partition;
use crate::intake::blocked::BlockedOn;
use crate::intake::queue_quota;
use crate::leader::Leader;
use crate::queue::{Load, Queue};
use crate::settings::Settings;
use crate::state::State;

/// Which account of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccountNumber(u16);

/// The accounts that a queue is in: its tenant's and the broker's.
pub type Owners = [Option<AccountNumber>; 2];

/// See the head of this file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Whose it is; `None` for the broker's.
    pub owner: Option<Arc<str>>,
    /// This partition's part of how much it may hold.
    pub limit: Limit,
    /// The contents of its queues.
    pub load: Load,
    /// Bytes of that which are only in memory.
    pub volatile_bytes: u64,
    /// Messages on their way to the log that will be in them.
    pub incoming: Load,
    /// Messages on their way to the log that will be in queues made for them.
    pub unborn: Load,
    /// This partition's part of how many leases there may be; `None` for any number.
    pub leases_max: Option<u64>,
    /// Leases of its queues.
    pub leases: u64,
    /// Its lasting queues, with durable subscriptions.
    pub queues: u64,
    /// Queues on their way into the log.
    pub unborn_queues: u64,
    /// This partition's part of how many queues it may have.
    pub queues_max: Option<u64>,
}

impl Account {
    /// Whether this much more may come; an empty account takes anything. Only persistent messages
    /// take disk space.
    fn has_room_for(&self, more: Load, persistent: bool) -> bool {
        let mut held = self.load;
        held.add_all(self.incoming);
        held.add_all(self.unborn);
        let is_empty = held.messages == 0;
        held.add_all(more);
        let on_disk = if persistent { held.bytes.saturating_sub(self.volatile_bytes) } else { 0 };
        is_empty || held.is_within(&self.limit, on_disk)
    }
}

/// All accounts of a partition.
#[derive(Debug, Default)]
pub struct Accounts {
    all: Vec<Account>,
    by_owner: BTreeMap<Option<Arc<str>>, AccountNumber>,
    /// One of them has a limit of leases.
    limits_leases: bool,
}

impl Accounts {
    /// Empty accounts for tenants, and for the broker if it is limited; `parts` partitions share
    /// each limit.
    fn new(policies: &Policies, parts: u64) -> Accounts {
        let broker = (!policies.limit.is_none()).then_some((None, policies.limit, None, None));
        let of = |tenant: &Arc<Tenant>| {
            let queues_max = tenant.quota.queues_part_of(parts);
            (Some(tenant.name.clone()), tenant.limit, tenant.leases_max, queues_max)
        };
        let all = broker.into_iter().chain(policies.tenants.iter().map(of));
        let mut accounts = Accounts::default();
        for (owner, limit, leases_max, queues_max) in all {
            // More tenants than that are held by their queues' limits alone.
            let Ok(number) = u16::try_from(accounts.all.len()) else { break };
            accounts.by_owner.insert(owner.clone(), AccountNumber(number));
            let (limit, leases_max) =
                (limit.part_of(parts), leases_max.map(|max| max.div_ceil(parts.max(1))));
            accounts.limits_leases |= leases_max.is_some();
            accounts.all.push(Account { owner, limit, leases_max, queues_max, ..Account::default() });
        }
        accounts
    }

    /// Takes the limits of others. `false`: they have other owners, or leases were not counted.
    fn take_limits_of(&mut self, others: &Accounts) -> bool {
        if self.by_owner != others.by_owner || !self.limits_leases && others.limits_leases {
            return false;
        }
        self.limits_leases = others.limits_leases;
        for (account, other) in self.all.iter_mut().zip(&others.all) {
            (account.limit, account.leases_max) = (other.limit, other.leases_max);
            account.queues_max = other.queues_max;
            account.leases = if self.limits_leases { account.leases } else { 0 };
        }
        true
    }

    /// The accounts that the queues of this address are in.
    fn owners_of(&self, address: &Destination, policies: &Policies) -> Owners {
        if self.all.is_empty() {
            return Owners::default();
        }
        let tenant = policies.tenants.owner_of(address).map(|tenant| Some(tenant.name.clone()));
        let number = |owner: Option<Arc<str>>| self.by_owner.get(&owner).copied();
        [tenant.and_then(number), number(None)]
    }

    fn get_mut(&mut self, number: AccountNumber) -> Option<&mut Account> {
        self.all.get_mut(usize::from(number.0))
    }

    fn of_owners(&mut self, owners: Owners, mut change: impl FnMut(&mut Account)) {
        for number in owners.into_iter().flatten() {
            self.get_mut(number).into_iter().for_each(&mut change);
        }
    }

    /// A queue has one message more, with this number of bytes in memory only.
    pub fn add(&mut self, owners: Owners, bytes: u64, volatile_bytes: u64) {
        self.of_owners(owners, |account| {
            account.load.add(bytes);
            account.volatile_bytes += volatile_bytes;
        });
    }

    /// It holds it no more.
    pub fn remove(&mut self, owners: Owners, bytes: u64, volatile_bytes: u64) {
        self.of_owners(owners, |account| {
            account.load.remove(bytes);
            account.volatile_bytes = account.volatile_bytes.saturating_sub(volatile_bytes);
        });
    }

    /// A message is on its way to the log.
    pub fn expect(&mut self, owners: Owners, bytes: u64) {
        self.of_owners(owners, |account| account.incoming.add(bytes));
    }

    /// It is there, or never will be.
    pub fn expected(&mut self, owners: Owners, bytes: u64) {
        self.of_owners(owners, |account| account.incoming.remove(bytes));
    }

    /// A message is on its way to the log, which will make its queue.
    pub fn expect_unborn(&mut self, owners: Owners, bytes: u64) {
        self.of_owners(owners, |account| account.unborn.add(bytes));
    }

    /// It is there, or never will be.
    pub fn expected_unborn(&mut self, owners: Owners, bytes: u64) {
        self.of_owners(owners, |account| account.unborn.remove(bytes));
    }

    /// Whether leases are counted.
    pub fn limits_leases(&self) -> bool {
        self.limits_leases
    }

    /// A queue had `before` leases, and has `now`.
    pub fn leased(&mut self, owners: Owners, before: u64, now: u64) {
        if self.limits_leases {
            self.of_owners(owners, |account| account.leases = (account.leases + now).saturating_sub(before));
        }
    }

    /// How many more leases there may be in a queue of these owners; refused if there may be none.
    pub fn leases_left(&self, owners: Owners) -> Result<u64, Refusal> {
        let mut left = u64::MAX;
        let limited = owners.into_iter().flatten().filter_map(|number| self.all.get(usize::from(number.0)));
        for (account, max) in limited.filter_map(|account| Some((account, account.leases_max?))) {
            left = left.min(max.saturating_sub(account.leases));
            if left == 0 {
                let tenant = account.owner.clone().unwrap_or_default();
                return Err(Refusal::TooManyTenantLeases { tenant, max });
            }
        }
        Ok(left)
    }

    /// All that the queue holds.
    fn open(&mut self, queue: &Queue) {
        self.begin(queue);
        self.of_owners(queue.owners, |account| {
            account.load.add_all(queue.load);
            account.incoming.add_all(queue.incoming);
            account.volatile_bytes += queue.volatile_bytes;
        });
    }

    /// The queue is there, and holds nothing yet.
    pub fn begin(&mut self, queue: &Queue) {
        let counted = u64::from(!queue.id.is_volatile());
        self.of_owners(queue.owners, |account| account.queues += counted);
    }

    /// A queue of this owner is on its way into the log, or is not any more.
    pub(super) fn expect_queue(&mut self, owners: Owners, is_expected: bool) {
        self.of_owners(owners, |account| match is_expected {
            true => account.unborn_queues += 1,
            false => account.unborn_queues = account.unborn_queues.saturating_sub(1),
        });
    }

    /// The queue is gone with all that it held.
    pub fn close(&mut self, queue: &Queue) {
        let counted = u64::from(!queue.id.is_volatile());
        self.of_owners(queue.owners, |account| {
            account.queues = account.queues.saturating_sub(counted);
            account.load.remove_all(queue.load);
            account.incoming.remove_all(queue.incoming);
            account.volatile_bytes = account.volatile_bytes.saturating_sub(queue.volatile_bytes);
        });
    }

    pub fn account(&self, number: AccountNumber) -> &Account {
        &self.all[usize::from(number.0)]
    }
}

impl Partition {
    /// The accounts of tenants, and of the broker if it has a limit, each with the number of
    /// addresses that wait for room in it.
    pub fn accounts(&self) -> impl Iterator<Item = (&Account, u64)> {
        let numbered = (0..).map(AccountNumber).zip(&self.leader.intake.accounts.all);
        numbered.map(|(number, account)| {
            (account, self.leader.intake.lines.waiting_for(BlockedOn::Account(number)))
        })
    }

    /// The first limit for which so much more in these queues would be too much: of a queue, also
    /// one that drops it then, or of all that a tenant or the broker holds here.
    pub fn limit_exceeded_by(&self, more: &BTreeMap<Destination, Load>) -> Option<Refusal> {
        let of_queue = more.iter().find_map(|(to, more)| {
            let limit = self.settings.policies.of(to).limit;
            let queue = self.state.addresses.own_queue(to).and_then(|id| self.state.queues.get(&id));
            let mut load = queue.map(|queue| queue.load).unwrap_or_default();
            load.add_all(*more);
            let exceeded = 1 < load.messages && !load.is_within(&limit, load.bytes);
            exceeded.then(|| Refusal::QueueFull { to: to.clone(), limit: limit.to_string().into() })
        });
        of_queue.or_else(|| quota_exceeded_by(&self.state, &self.settings, more))
    }
}

pub fn owners_of(leader: &Leader, settings: &Settings, address: &Destination) -> Owners {
    leader.intake.accounts.owners_of(address, &settings.policies)
}

/// An account that is not the sum of its queues: there must be none.
pub fn is_misaccounted(state: &State, leader: &Leader) -> bool {
    let all = leader.intake.accounts.all.iter().map(|account| Account {
        load: Load::default(),
        incoming: Load::default(),
        volatile_bytes: 0,
        leases: 0,
        queues: 0,
        ..account.clone()
    });
    let limits_leases = leader.intake.accounts.limits_leases;
    let mut sums = Accounts { all: all.collect(), by_owner: BTreeMap::new(), limits_leases };
    for queue in state.queues.values() {
        sums.open(queue);
        sums.leased(queue.owners, 0, state.leases.counts(queue.id).leased);
    }
    sums.all != leader.intake.accounts.all
}

/// The first account for which so much more in these queues would be too much.
fn quota_exceeded_by(
    state: &State,
    settings: &Settings,
    more: &BTreeMap<Destination, Load>,
) -> Option<Refusal> {
    let policies = &settings.policies;
    let mut accounts = Accounts::new(policies, u64::from(settings.placement.partitions));
    let held = state.queues.values().map(|queue| (&queue.source, queue.load));
    for (address, load) in held.chain(more.iter().map(|(to, load)| (to, *load))) {
        let owners = accounts.owners_of(address, policies);
        accounts.of_owners(owners, |account| account.load.add_all(load));
    }
    let exceeded = |account: &&Account| {
        1 < account.load.messages && !account.load.is_within(&account.limit, account.load.bytes)
    };
    let account = accounts.all.iter().find(exceeded)?;
    let number = accounts.by_owner.get(&account.owner).copied();
    let to = more.keys().find(|to| accounts.owners_of(to, policies).contains(&number))?.clone();
    let (owner, limit) = (account.owner.clone(), policies.limit_of(account.owner.as_deref()));
    Some(Refusal::QuotaFull { to, owner, limit: limit.to_string().into() })
}

/// Owners have changed, or recovery has ended: every queue is counted again.
pub fn account_anew(state: &mut State, leader: &mut Leader, settings: &Settings) {
    let parts = u64::from(settings.placement.partitions);
    let accounts = Accounts::new(&settings.policies, parts);
    for queue in state.queues.values_mut() {
        queue.owners = accounts.owners_of(&queue.source, &settings.policies);
    }
    leader.intake.accounts = accounts;
    queue_quota::expect_anew(leader, settings);
    for queue in state.queues.values() {
        leader.intake.accounts.open(queue);
        let leased = state.leases.counts(queue.id).leased;
        leader.intake.accounts.leased(queue.owners, 0, leased);
    }
}

/// Policies have changed. Queues are counted again only if some may have another owner.
pub fn limit_accounts(state: &mut State, leader: &mut Leader, settings: &Settings, before: &Policies) {
    let policies = &settings.policies;
    let accounts = Accounts::new(policies, u64::from(settings.placement.partitions));
    let keep_owners = before.tenants.own_as(&policies.tenants);
    if !keep_owners || !leader.intake.accounts.take_limits_of(&accounts) {
        account_anew(state, leader, settings);
    }
}

/// The accounts that have no room for the message, or, after others that wait, any that it
/// would be in.
pub fn full_accounts(
    partition: &Partition,
    sent: &Sent,
    receivers: &[QueueId],
    is_behind: bool,
) -> Vec<AccountNumber> {
    if partition.leader.intake.accounts.all.is_empty() {
        return Vec::new();
    }
    let queues = receivers.iter().filter_map(|id| partition.state.queues.get(id)).map(|queue| queue.owners);
    let mut shares: Vec<(AccountNumber, Load)> = Vec::new();
    for number in queues.chain(owners_of_unborn(partition, sent)).flatten().flatten() {
        let known = shares.iter().position(|(known, _)| *known == number);
        let place = known.unwrap_or_else(|| {
            shares.push((number, Load::default()));
            shares.len() - 1
        });
        shares[place].1.add(sent.message.size());
    }
    let is_full = |(number, share): &(AccountNumber, Load)| {
        let account = &partition.leader.intake.accounts.all[usize::from(number.0)];
        !account.limit.is_none() && (is_behind || !account.has_room_for(*share, sent.message.persistent))
    };
    shares.iter().filter(|share| is_full(share)).map(|(number, _)| *number).collect()
}

/// The accounts of the queues that the message is the first of.
pub fn owners_of_unborn(partition: &Partition, sent: &Sent) -> impl Iterator<Item = Owners> {
    // Scheduled messages count when they are due.
    let counts = !partition.leader.intake.accounts.all.is_empty() && sent.schedule.is_none();
    let queues = sent.targets().filter(move |to| counts && to.kind == DestinationKind::Queue);
    queues
        .filter(|to| partition.state.addresses.get(to).is_none())
        .map(|to| owners_of(&partition.leader, &partition.settings, to))
}
