//! Which store of a cluster has which names: a tenant is in one of them, and everything else in the
//! first.
//!
//! Never here: where a store is led, the stores of a broker that stands alone.

use std::collections::BTreeMap;
use std::sync::Arc;

use postroad_model::Destination;

use crate::pattern::{Pattern, is_wildcard};
use crate::policy::DestinationPattern;

/// The store of all names that belong to no tenant.
pub const FIRST_STORE: u16 = 1;

/// Names with this beginning are those of the broker, and are in each store.
const OF_BROKER: &str = "ActiveMQ.";

/// See the head of this file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorePlaces {
    own: u16,
    /// How many stores there are.
    count: u16,
    /// The stores of tenants.
    tenants: BTreeMap<Arc<str>, u16>,
    /// Destinations of tenants, with their stores.
    names: Vec<(DestinationPattern, u16)>,
    /// Dead letters stay in the store of their queue.
    in_each: Vec<Pattern>,
}

impl StorePlaces {
    /// As seen in the store of this number, of this count of them.
    pub fn of_store(own: u16, count: u16) -> StorePlaces {
        StorePlaces { own, count, tenants: BTreeMap::new(), names: Vec::new(), in_each: Vec::new() }
    }

    /// The number of this store.
    pub fn own(&self) -> u16 {
        self.own
    }

    /// How many stores there are.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// The store for a new tenant: that with the fewest, and the first one of these.
    pub fn for_new_tenant(&self) -> u16 {
        let tenants = |store: &u16| self.tenants.values().filter(|of| *of == store).count();
        (FIRST_STORE..=self.count).min_by_key(tenants).unwrap_or(FIRST_STORE)
    }

    /// This tenant, with its destinations, is in this store.
    pub fn add_tenant(&mut self, tenant: &str, owns: &[DestinationPattern], store: u16) {
        self.tenants.insert(tenant.into(), store);
        self.names.extend(owns.iter().map(|pattern| (pattern.clone(), store)));
    }

    /// Dead letters go to queues of this name, in which `*` stands for that of their queue.
    pub fn add_dead_letters(&mut self, name: &str) {
        let (before, is_whole) = name.split_once('*').map_or((name, true), |(before, _)| (before, false));
        let pattern = if is_whole { before.to_owned() } else { format!("{before}>") };
        self.in_each.extend(Pattern::parse(&pattern));
    }

    /// The store of a tenant.
    pub fn of_tenant(&self, tenant: &str) -> u16 {
        self.tenants.get(tenant).copied().unwrap_or(FIRST_STORE)
    }

    /// The store of a destination, if it is another one.
    pub fn elsewhere(&self, destination: &Destination) -> Option<u16> {
        self.store_of(destination).filter(|store| *store != self.own)
    }

    /// The store of a destination; `None` if each has one of this name.
    pub fn store_of(&self, destination: &Destination) -> Option<u16> {
        if destination.temporary || destination.name.starts_with(OF_BROKER) {
            return None;
        }
        let asked = pattern_of(destination);
        let has = |pattern: &Pattern| match &asked {
            Some(asked) => pattern.covers(asked),
            None => pattern.matches(&destination.name),
        };
        if self.in_each.iter().any(has) {
            return None;
        }
        let of_tenant = self.of_kind(destination).find(|(name, _)| has(name));
        Some(of_tenant.map_or(FIRST_STORE, |(_, store)| store))
    }

    /// Whether all names that a destination stands for are in one store. A pattern that begins with
    /// a wildcard, or like the names of a tenant in another store, may be in several.
    pub fn is_in_one_store(&self, destination: &Destination) -> bool {
        if pattern_of(destination).is_none() {
            return true;
        }
        let own = self.store_of(destination);
        let first = |name: &str| name.split('.').next().map(str::to_owned);
        let begins = first(&destination.name);
        self.of_kind(destination).filter(|(_, store)| own.is_some_and(|own| own != *store)).all(
            |(name, _)| {
                let other = first(&name.to_string());
                let is_wild = |word: &Option<String>| word.as_deref().is_none_or(is_wildcard);
                !is_wild(&begins) && !is_wild(&other) && begins != other
            },
        )
    }

    /// The names of tenants among queues or topics, with their stores.
    fn of_kind(&self, destination: &Destination) -> impl Iterator<Item = (&Pattern, u16)> {
        let kind = destination.kind;
        let names = self.names.iter().filter(move |(name, _)| name.kind == kind && !name.temporary);
        names.map(|(pattern, store)| (&pattern.name, *store))
    }
}

fn pattern_of(destination: &Destination) -> Option<Pattern> {
    destination.is_pattern().then(|| Pattern::parse(&destination.name).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_tenant_gets_the_store_with_the_fewest() {
        let mut places = StorePlaces::of_store(1, 3);
        for (tenant, want) in [("a", 1), ("b", 2), ("c", 3), ("d", 1), ("e", 2)] {
            let store = places.for_new_tenant();
            assert_eq!(store, want, "{tenant}");
            places.add_tenant(tenant, &[], store);
        }
        places.add_tenant("f", &[], 1);
        assert_eq!(places.for_new_tenant(), 3);
    }

    #[test]
    fn a_name_is_in_the_store_of_its_tenant_and_every_other_one_in_the_first() {
        let owns = |text: &str| [DestinationPattern::parse(text).unwrap()];
        let places = |own| {
            let mut places = StorePlaces::of_store(own, 3);
            places.add_tenant("acme", &owns("queue://acme.>"), 2);
            places.add_tenant("lab", &owns("topic://lab.>"), 1);
            places.add_dead_letters("DLQ.*");
            places
        };
        let (queue, topic) = (Destination::queue, Destination::topic);
        for (destination, first, second) in [
            (queue("acme.a"), Some(2), None),
            (queue("acme.>"), Some(2), None),
            (topic("acme.a"), None, Some(1)),
            (topic("lab.a"), None, Some(1)),
            (queue("shared"), None, Some(1)),
            (queue(">"), None, Some(1)),
            (queue("DLQ.acme.a"), None, None),
            (topic("ActiveMQ.Advisory.TempQueue"), None, None),
            (Destination { temporary: true, ..queue("x") }, None, None),
        ] {
            let got = (places(1).elsewhere(&destination), places(2).elsewhere(&destination));
            assert_eq!(got, (first, second), "{destination}");
        }
        for (destination, want) in [
            (queue("acme.a"), true),
            (queue("acme.a.>"), true),
            (queue("orders.>"), true),
            (queue("orders.*"), true),
            (queue(">"), false),
            (queue("*.a"), false),
            (queue("acme.*.x"), true),
            (topic("acme.>"), true),
        ] {
            assert_eq!(places(1).is_in_one_store(&destination), want, "{destination}");
        }
        let mut narrow = places(1);
        narrow.add_tenant("part", &owns("queue://wide.part.>"), 3);
        assert!(!narrow.is_in_one_store(&queue("wide.>")));
        assert_eq!(["acme", "lab", "made"].map(|name| places(1).of_tenant(name)), [2, 1, 1]);
    }
}
