//! Tenants: who owns which destinations.

use std::sync::Arc;

use postroad_model::Destination;

use crate::pattern_map::PatternMap;
use crate::policy::{DestinationPattern, Limit, place};

/// An owner of destinations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its name; no two have the same name.
    pub name: Arc<str>,
    /// How much all that it owns may hold together. It never drops.
    pub limit: Limit,
    /// How many leases its queues may have together; `None` for any number.
    pub leases_max: Option<u64>,
    /// How many queues, connections and messages in a second it may have.
    pub quota: Quota,
}

impl Tenant {
    /// One with this limit of what it holds, and any number of all else.
    pub fn new(name: &str, limit: Limit) -> Tenant {
        Tenant { name: name.into(), limit, leases_max: None, quota: Quota::default() }
    }
}

/// What a tenant may have beside the contents of its queues; `None` for any number, where it does
/// not say otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Queues and durable subscriptions.
    pub queues_max: Option<u64>,
    /// Connections of its users, with their HTTP requests that are under way.
    pub connections_max: Option<u64>,
    /// Messages that its destinations take in a second.
    pub messages_per_second_max: Option<u64>,
    /// The weight of its fair share; `None` for [`SHARE_DEFAULT`].
    pub share: Option<u64>,
}

/// The weight of a tenant without one, and of all work that belongs to no tenant.
pub const SHARE_DEFAULT: u64 = 1;

/// The largest weight of a share: the least has still some of each turn then.
pub const SHARE_MAX: u64 = 1000;

impl Quota {
    /// The weight of its fair share.
    pub fn share(self) -> u64 {
        self.share.unwrap_or(SHARE_DEFAULT).clamp(1, SHARE_MAX)
    }

    /// Queues in one of this number of equal parts, rounded up.
    pub fn queues_part_of(self, parts: u64) -> Option<u64> {
        self.queues_max.map(|max| max.div_ceil(parts.max(1)))
    }
}

/// All tenants, and their patterns: a destination belongs to the tenant with the narrowest pattern
/// that matches it, or to none.
#[derive(Clone, Debug, Default)]
pub struct Tenants {
    tenants: Vec<Arc<Tenant>>,
    /// By kind; see [`place`].
    by_pattern: [PatternMap<Arc<Tenant>>; 4],
    /// The patterns of each, in the same order.
    patterns: Vec<Vec<DestinationPattern>>,
}

/// Why a tenant cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TenantError {
    /// Nothing would distinguish two of them.
    #[error("the tenant {0} is defined twice")]
    NameTaken(Arc<str>),
    /// The owner of the destinations would be ambiguous.
    #[error("{pattern} already belongs to the tenant {owner}")]
    PatternTaken {
        /// The pattern's name.
        pattern: String,
        /// Whose it is.
        owner: Arc<str>,
    },
}

impl Tenants {
    /// Adds a tenant and its patterns.
    ///
    /// # Errors
    /// [`TenantError`]: its name or one of the patterns is another's; nothing is added then.
    pub fn add(&mut self, tenant: Tenant, owns: &[DestinationPattern]) -> Result<(), TenantError> {
        if self.named(&tenant.name).is_some() {
            return Err(TenantError::NameTaken(tenant.name));
        }
        let owner_of = |pattern: &DestinationPattern| {
            self.by_pattern[place(pattern.kind, pattern.temporary)].get(&pattern.name)
        };
        if let Some((pattern, owner)) = owns.iter().find_map(|pattern| Some((pattern, owner_of(pattern)?))) {
            let (pattern, owner) = (pattern.name.text().to_owned(), owner.name.clone());
            return Err(TenantError::PatternTaken { pattern, owner });
        }
        let tenant = Arc::new(tenant);
        for pattern in owns {
            let map = &mut self.by_pattern[place(pattern.kind, pattern.temporary)];
            map.get_or_insert_with(&pattern.name, || tenant.clone());
        }
        self.tenants.push(tenant);
        self.patterns.push(owns.to_vec());
        Ok(())
    }

    /// Whether the same tenants own the same destinations, whatever their limits.
    pub fn own_as(&self, others: &Tenants) -> bool {
        let names = |tenants: &Tenants| tenants.iter().map(|tenant| tenant.name.clone()).collect::<Vec<_>>();
        self.patterns == others.patterns && names(self) == names(others)
    }

    /// The owner of the destination, if it has one.
    pub fn owner_of(&self, destination: &Destination) -> Option<&Arc<Tenant>> {
        if self.tenants.is_empty() {
            return None;
        }
        let map = &self.by_pattern[place(destination.kind, destination.temporary)];
        map.narrowest(&destination.name).map(|(_, tenant)| tenant)
    }

    /// The tenant of this name.
    pub fn named(&self, name: &str) -> Option<&Arc<Tenant>> {
        self.tenants.iter().find(|tenant| &*tenant.name == name)
    }

    /// All of them, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Tenant>> {
        self.tenants.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(texts: &[&str]) -> Vec<DestinationPattern> {
        texts.iter().map(|text| DestinationPattern::parse(text).unwrap()).collect()
    }

    fn tenants() -> Tenants {
        let mut tenants = Tenants::default();
        for (name, owns) in [
            ("acme", &["queue://acme.>", "topic://acme.>"][..]),
            ("lab", &["queue://acme.lab.>", "temp-queue://>"]),
        ] {
            tenants.add(Tenant::new(name, Limit::default()), &patterns(owns)).unwrap();
        }
        tenants
    }

    #[test]
    fn a_destination_is_owned_by_the_narrowest_pattern() {
        let tenants = tenants();
        let temporary = Destination { temporary: true, ..Destination::queue("x") };
        for (destination, want) in [
            (Destination::queue("acme.a"), Some("acme")),
            (Destination::topic("acme.lab.a"), Some("acme")),
            (Destination::queue("acme.lab.a"), Some("lab")),
            (temporary, Some("lab")),
            (Destination::queue("other"), None),
        ] {
            assert_eq!(tenants.owner_of(&destination).map(|tenant| &*tenant.name), want, "{destination:?}");
        }
        assert!(Tenants::default().owner_of(&Destination::queue("acme.a")).is_none());
    }

    #[test]
    fn what_is_anothers_is_refused_and_nothing_changes() {
        let mut tenants = tenants();
        for (name, owns, want) in [
            ("acme", "queue://b", "the tenant acme is defined twice"),
            ("new", "queue://acme.lab.>", "acme.lab.> already belongs to the tenant lab"),
        ] {
            let owns = patterns(&["queue://free", owns]);
            let error = tenants.add(Tenant::new(name, Limit::default()), &owns).unwrap_err();
            assert_eq!(error.to_string(), want);
            assert!(tenants.owner_of(&Destination::queue("free")).is_none());
        }
        assert_eq!(tenants.iter().map(|tenant| &*tenant.name).collect::<Vec<_>>(), ["acme", "lab"]);
    }
}
