//! Message groups: which consumer of a queue has which group.
//!
//! A group belongs to the consumer that was sent its first message, until the consumer leaves, a
//! message ends the group, or a consumer that joins takes it over while nothing of it is under way.
//! Up to [`GROUPS_MAX`] groups have an owner each; beyond that, groups share the owners of
//! [`BUCKETS`] buckets, so that memory is bounded and order is kept all the same. Owners are known
//! to this run alone.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

use postroad_model::ConsumerKey;
use rustc_hash::{FxBuildHasher, FxHashSet};

use super::offers::Offers;

/// Groups of one queue with an owner of their own: 400 KB. ActiveMQ remembers 1,024 and forgets the
/// oldest, whose order is then lost.
const GROUPS_MAX: usize = 16_384;

/// Owners for all groups beyond: the number that ActiveMQ's buckets have.
const BUCKETS: u64 = 1024;

/// One group, or one bucket of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum GroupKey {
    /// By the hash of its name; two groups of the same hash share their owner.
    Group(u64),
    /// By a part of the hash.
    Bucket(u64),
}

/// See the head of this file.
#[derive(Default)]
pub struct Groups {
    owners: HashMap<GroupKey, Owner, FxBuildHasher>,
    /// How many of them are groups of their own.
    groups: usize,
    /// Entries that leases hold, by the hash of their group: no consumer begins such a group.
    leased: HashMap<u64, u32, FxBuildHasher>,
    /// Messages that are free again.
    pub offers: Offers,
}

struct Owner {
    consumer: ConsumerKey,
    /// It was sent a message of the group already.
    knows: bool,
}

impl Groups {
    /// How many groups and buckets have an owner.
    pub fn len(&self) -> usize {
        self.owners.len()
    }

    /// Whose owner is the group's.
    pub fn key_of(&self, group: &str) -> GroupKey {
        let hash = hash_of(group);
        let (own, bucket) = (GroupKey::Group(hash), GroupKey::Bucket(hash % BUCKETS));
        let shares = !self.owners.contains_key(&own)
            && (self.groups >= GROUPS_MAX || self.owners.contains_key(&bucket));
        if shares { bucket } else { own }
    }

    /// Whether the consumer may be sent messages of the group: it has no other owner.
    pub fn admits(&self, group: &str, consumer: ConsumerKey) -> bool {
        match self.owners.get(&self.key_of(group)) {
            Some(owner) => owner.consumer == consumer,
            None => self.leased.is_empty() || !self.leased.contains_key(&hash_of(group)),
        }
    }

    /// The consumer that has the group.
    pub fn owner(&self, group: &str) -> Option<ConsumerKey> {
        self.owners.get(&self.key_of(group)).map(|owner| owner.consumer)
    }

    /// A lease holds one more message of the group.
    pub fn lease(&mut self, group: &str) {
        *self.leased.entry(hash_of(group)).or_default() += 1;
    }

    /// A lease holds one less; returns whether it was the last.
    pub fn end_lease(&mut self, group: &str) -> bool {
        let hash = hash_of(group);
        let Some(count) = self.leased.get_mut(&hash) else { return false };
        *count -= 1;
        let is_free = *count == 0;
        if is_free {
            self.leased.remove(&hash);
        }
        is_free
    }

    /// The consumer is sent a message of the group, and has it from now on; `true` if it is the
    /// first one.
    pub fn take(&mut self, group: &str, consumer: ConsumerKey) -> bool {
        let key = self.key_of(group);
        if let Some(owner) = self.owners.get_mut(&key) {
            return !std::mem::replace(&mut owner.knows, true);
        }
        self.groups += usize::from(matches!(key, GroupKey::Group(_)));
        self.owners.insert(key, Owner { consumer, knows: true });
        true
    }

    /// The group is over: its next message begins it again. Groups that share a bucket stay with
    /// the bucket's owner.
    pub fn end(&mut self, group: &str) -> bool {
        let key = self.key_of(group);
        let ended = matches!(key, GroupKey::Group(_)) && self.owners.remove(&key).is_some();
        self.groups -= usize::from(ended);
        ended
    }

    /// The consumer has left; `true` if it had any group.
    pub fn leave(&mut self, consumer: ConsumerKey) -> bool {
        let before = self.owners.len();
        self.owners.retain(|_, owner| owner.consumer != consumer);
        self.groups = self.owners.keys().filter(|key| matches!(key, GroupKey::Group(_))).count();
        self.owners.len() < before
    }

    /// A consumer has joined, as the last of `consumers`: it takes its fair share of the groups
    /// from those that have more than theirs, except `busy` ones and those of `keepers`. Returns
    /// from whom.
    pub fn join(
        &mut self,
        consumers: &[ConsumerKey],
        (busy, keepers): (&FxHashSet<GroupKey>, &FxHashSet<ConsumerKey>),
    ) -> Vec<ConsumerKey> {
        let Some(joined) = consumers.last().copied() else { return Vec::new() };
        let (total, sharing) = (self.owners.len(), consumers.len());
        let mut counts: HashMap<ConsumerKey, usize, FxBuildHasher> = HashMap::default();
        for owner in self.owners.values() {
            *counts.entry(owner.consumer).or_default() += 1;
        }
        let (mut wanted, fair) = (total / sharing, total.div_ceil(sharing));
        let mut from = Vec::new();
        let is_free =
            |key: &GroupKey, owner: &Owner| !busy.contains(key) && !keepers.contains(&owner.consumer);
        for (_, owner) in self.owners.iter_mut().filter(|(key, owner)| is_free(key, owner)) {
            let count = counts.entry(owner.consumer).or_default();
            if wanted > 0 && *count > fair {
                (wanted, *count) = (wanted - 1, *count - 1);
                from.push(std::mem::replace(owner, Owner { consumer: joined, knows: false }).consumer);
            }
        }
        from.sort_unstable();
        from.dedup();
        from
    }
}

fn hash_of(group: &str) -> u64 {
    let mut hasher = FxBuildHasher.build_hasher();
    hasher.write(group.as_bytes());
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consumer(number: u32) -> ConsumerKey {
        ConsumerKey::new(postroad_model::ConnectionId::new(0, 1), number)
    }

    #[test]
    fn a_group_stays_with_its_owner_until_one_of_them_ends() {
        let mut groups = Groups::default();
        let (one, two) = (consumer(1), consumer(2));
        assert_eq!((groups.take("g", one), groups.take("g", one)), (true, false));
        assert_eq!((groups.admits("g", one), groups.admits("g", two)), (true, false));
        assert_eq!((groups.end("g"), groups.end("g"), groups.admits("g", two)), (true, false, true));
        groups.take("g", two);
        assert_eq!((groups.leave(one), groups.leave(two), groups.admits("g", one)), (false, true, true));
    }

    #[test]
    fn beyond_the_bound_groups_share_owners_and_keep_them() {
        let mut groups = Groups::default();
        let one = consumer(1);
        for number in 0..GROUPS_MAX + 50_000 {
            groups.take(&format!("group {number}"), one);
        }
        assert_eq!((groups.groups, groups.owners.len()), (GROUPS_MAX, GROUPS_MAX + BUCKETS as usize));
        let (first, last) = ("group 0", format!("group {}", GROUPS_MAX + 49_999));
        assert!(groups.end(first) && !groups.end(&last), "only a group with an owner of its own ends");
        assert!(!groups.admits(&last, consumer(2)), "the bucket still has its owner");
        assert!(groups.leave(one) && groups.owners.is_empty() && groups.groups == 0);
    }

    #[test]
    fn who_joins_gets_a_fair_share_of_what_is_idle() {
        for (case, busy, keeps, want) in [
            ("all idle", 0, false, 5),
            ("some busy", 7, false, 3),
            ("all busy", 10, false, 0),
            ("with too many under way", 0, true, 0),
        ] {
            let mut groups = Groups::default();
            let (one, two) = (consumer(1), consumer(2));
            let names: Vec<String> = (0..10).map(|number| format!("g{number}")).collect();
            for name in &names {
                groups.take(name, one);
            }
            let busy = names[..busy].iter().map(|name| groups.key_of(name)).collect();
            let keepers = keeps.then_some(one).into_iter().collect();
            let from = groups.join(&[one, two], (&busy, &keepers));
            let moved = names.iter().filter(|name| groups.admits(name, two)).count();
            assert_eq!((from.len(), moved), (usize::from(want > 0), want), "case: {case}");
        }
    }
}
