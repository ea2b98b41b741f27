//! Who owns which destinations, as the configuration file says it.

use std::sync::Arc;

use anyhow::{Context, bail};
use postroad_routing::{
    AtLimit, DestinationPattern, FIRST_STORE, Homes, Limit, MAIN_STORE, Policies, Quota, SHARE_MAX, Tenant,
};
use postroad_security::{TenantBook, TenantEntry};
use serde::{Deserialize, Deserializer};

use super::StoresConfig;
use super::destinations::AtSharedLimitConfig;

/// One `[[tenant]]`: an owner of destinations.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// Its name.
    pub name: String,
    /// Its destinations: names or patterns, as for a policy; `queue://NAME.>` and `topic://NAME.>`
    /// without any.
    #[serde(default)]
    pub destinations: Vec<String>,
    /// The store in which they live that do not exist yet when the broker starts, unless a policy
    /// names another; in a cluster the number of its store.
    #[serde(default, deserialize_with = "name_or_number")]
    pub store: Option<String>,
    /// Messages that all of it may hold together; 0 for any number.
    #[serde(default)]
    pub messages_max: u64,
    /// Bytes of their bodies; 0 for any number.
    #[serde(default)]
    pub bytes_max: u64,
    /// Of these bytes those that lie on the disk; 0 for any number.
    #[serde(default)]
    pub disk_bytes_max: u64,
    /// Leases that its queues may have together; 0 for any number.
    #[serde(default)]
    pub leases_max: u64,
    /// The action at these limits.
    #[serde(default)]
    pub at_limit: AtSharedLimitConfig,
    /// How long sends wait before they fail.
    #[serde(default)]
    pub at_limit_wait_ms: u64,
    /// Queues and durable subscriptions; 0 for any number.
    #[serde(default)]
    pub queues_max: u64,
    /// Connections of its users, with their HTTP requests under way; 0 for any number.
    #[serde(default)]
    pub connections_max: u64,
    /// Messages in a second; 0 for any number.
    #[serde(default)]
    pub messages_per_second_max: u64,
    /// Weight of its fair share; 0 for the default.
    #[serde(default)]
    pub share: u64,
}

impl TenantConfig {
    /// Notes the store of its destinations.
    ///
    /// # Errors
    /// There is no such store, or a pattern cannot be read.
    pub fn place(&self, stores: &StoresConfig, homes: &mut Homes) -> anyhow::Result<()> {
        self.store.as_deref().map_or(Ok(()), |name| stores.check_name(name))?;
        for pattern in &self.owns()? {
            homes.set_tenant(pattern, self.store.as_deref());
        }
        Ok(())
    }

    /// The number of its store in a cluster with this many of them.
    ///
    /// # Errors
    /// There is no such store.
    pub fn store_of(&self, stores: u16) -> anyhow::Result<u16> {
        let Some(store) = self.store.as_ref().filter(|store| *store != MAIN_STORE) else {
            return Ok(FIRST_STORE);
        };
        let number = store.parse().ok().filter(|number| (FIRST_STORE..=stores).contains(number));
        number.with_context(|| match stores {
            1 => format!("store is {store}; this cluster has one, with number 1: see cluster.stores"),
            _ => {
                format!("store is {store}; the stores of this cluster are 1 to {stores}: see cluster.stores")
            }
        })
    }

    fn add_to(&self, policies: &mut Policies) -> anyhow::Result<()> {
        if self.name.is_empty() {
            bail!("its name is empty");
        }
        if SHARE_MAX < self.share {
            bail!("share = {} is too much: the maximum is {SHARE_MAX}", self.share);
        }
        let (leases_max, quota) = (some(self.leases_max), self.quota());
        let tenant = Tenant { leases_max, quota, ..Tenant::new(&self.name, self.limit()) };
        add(policies, tenant, self.owns()?)
    }

    /// Its destinations.
    pub fn owns(&self) -> anyhow::Result<Vec<DestinationPattern>> {
        let own = TenantEntry::destinations_of(&self.name);
        let named = if self.destinations.is_empty() { &own[..] } else { &self.destinations };
        let owns = named.iter().map(|pattern| DestinationPattern::parse(pattern));
        Ok(owns.collect::<Result<_, _>>()?)
    }

    fn quota(&self) -> Quota {
        Quota {
            queues_max: some(self.queues_max),
            connections_max: some(self.connections_max),
            messages_per_second_max: some(self.messages_per_second_max),
            share: some(self.share),
        }
    }

    fn limit(&self) -> Limit {
        Limit {
            messages_max: some(self.messages_max),
            bytes_max: some(self.bytes_max),
            disk_bytes_max: some(self.disk_bytes_max),
            action: self.at_limit.into(),
            wait_ms: self.at_limit_wait_ms,
            waits_for_disk: false,
        }
    }
}

/// The name of a store, or the number of one of a cluster.
fn name_or_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Named {
        Number(u16),
        Name(String),
    }
    Ok(Some(match Named::deserialize(deserializer)? {
        Named::Number(number) => number.to_string(),
        Named::Name(name) => name,
    }))
}

/// 0 is any number.
fn some(max: u64) -> Option<u64> {
    Some(max).filter(|max| *max > 0)
}

/// Adds the tenants of a configuration file.
///
/// # Errors
/// One cannot be: with its number.
pub fn add_all(configs: &[TenantConfig], policies: &mut Policies) -> anyhow::Result<()> {
    for (number, config) in (1..).zip(configs) {
        config.add_to(policies).with_context(|| format!("configuration: [[tenant]] {number}"))?;
    }
    Ok(())
}

/// Adds the tenants that were made while the broker ran.
///
/// # Errors
/// One cannot be beside those of the configuration: it is named.
pub fn add_made(book: &TenantBook, policies: &mut Policies) -> anyhow::Result<()> {
    for (name, entry) in book.all().iter() {
        let TenantEntry { messages_max, bytes_max, disk_bytes_max, .. } = *entry;
        let owns = TenantEntry::destinations_of(name);
        let owns = owns.iter().map(|pattern| DestinationPattern::parse(pattern));
        let owns = owns.collect::<Result<Vec<_>, _>>()?;
        let limit =
            Limit { messages_max, bytes_max, disk_bytes_max, action: AtLimit::Fail, ..Limit::default() };
        let quota = Quota {
            queues_max: entry.queues_max,
            connections_max: entry.connections_max,
            messages_per_second_max: entry.messages_per_second_max,
            share: entry.share,
        };
        let tenant = Tenant { quota, ..Tenant::new(name, limit) };
        if let Some(places) = Arc::make_mut(&mut policies.permissions).places_mut() {
            places.add_tenant(name, &owns, entry.store.unwrap_or(FIRST_STORE));
        }
        add(policies, tenant, owns).with_context(|| format!("tenant {name} of the data directory"))?;
    }
    Ok(())
}

fn add(policies: &mut Policies, tenant: Tenant, owns: Vec<DestinationPattern>) -> anyhow::Result<()> {
    let name = tenant.name.clone();
    policies.tenants.add(tenant, &owns)?;
    Arc::make_mut(&mut policies.permissions).add_tenant(&name, owns);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use postroad_model::Destination;
    use postroad_routing::{AtLimit, Limit};

    #[test]
    fn a_tenant_owns_what_the_file_says_or_is_refused_by_its_number() {
        let read = |text: &str| Config::parse(text).unwrap().policies().map_err(|error| format!("{error:#}"));
        let good = "[[tenant]]\nname = \"acme\"\ndestinations = [\"queue://acme.>\"]\n";
        let tenants = read(good).unwrap().tenants;
        assert_eq!(&*tenants.owner_of(&Destination::queue("acme.a")).unwrap().name, "acme");
        let limited =
            format!("{good}messages_max = 7\ndisk_bytes_max = 9\nat_limit = \"fail\"\nat_limit_wait_ms = 5");
        let limit = read(&limited).unwrap().tenants.named("acme").unwrap().limit;
        let want = Limit {
            messages_max: Some(7),
            disk_bytes_max: Some(9),
            action: AtLimit::Fail,
            wait_ms: 5,
            ..Limit::default()
        };
        assert_eq!(limit, want);
        let leases_max = |text: &str| read(text).unwrap().tenants.named("acme").unwrap().leases_max;
        assert_eq!((leases_max(good), leases_max(&format!("{good}leases_max = 7"))), (None, Some(7)));
        assert!(Config::parse(&format!("{good}at_limit = \"drop-oldest\"")).is_err(), "whose would it drop?");
        let share = |text: &str| read(text).unwrap().tenants.named("acme").unwrap().quota.share();
        assert_eq!((share(good), share(&format!("{good}share = 1000"))), (1, 1000));
        let error = read(&format!("{good}share = 1001")).unwrap_err();
        assert!(error.contains("[[tenant]] 1: share = 1001 is too much: the maximum is 1000"), "{error}");
        let broker = read("[limits]\nmessages_max = 7\nbytes_max = 9").unwrap().limit;
        assert_eq!(broker, Limit { messages_max: Some(7), bytes_max: Some(9), ..Limit::default() });
        for (name, owns, want) in [
            ("", "queue://b", "[[tenant]] 2: its name is empty"),
            ("acme", "queue://b", "[[tenant]] 2: the tenant acme is defined twice"),
            ("lab", "queue://acme.>", "[[tenant]] 2: acme.> already belongs to the tenant acme"),
            ("lab", "b", "[[tenant]] 2: \"b\" must start with queue://"),
        ] {
            let text = format!("{good}[[tenant]]\nname = \"{name}\"\ndestinations = [\"{owns}\"]");
            let error = read(&text).unwrap_err();
            assert!(error.contains(want), "{error}");
        }
    }
}
