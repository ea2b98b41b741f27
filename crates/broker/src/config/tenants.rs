//! Who owns which destinations, as the configuration file says it.

use anyhow::{Context, bail};
use postroad_routing::{DestinationPattern, Homes, Limit, Tenant, Tenants};
use serde::Deserialize;

use super::StoresConfig;
use super::destinations::AtSharedLimitConfig;

/// One `[[tenant]]`: an owner of destinations.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// Its name.
    pub name: String,
    /// Its destinations: names or patterns, as for a policy.
    pub destinations: Vec<String>,
    /// The store in which they live that do not exist yet when the broker starts, unless a policy
    /// names another.
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
}

impl TenantConfig {
    /// Notes the store of its destinations.
    ///
    /// # Errors
    /// There is no such store, or a pattern cannot be read.
    pub fn place(&self, stores: &StoresConfig, homes: &mut Homes) -> anyhow::Result<()> {
        self.store.as_deref().map_or(Ok(()), |name| stores.check_name(name))?;
        for pattern in &self.destinations {
            homes.set_tenant(&DestinationPattern::parse(pattern)?, self.store.as_deref());
        }
        Ok(())
    }

    fn add_to(&self, tenants: &mut Tenants) -> anyhow::Result<()> {
        if self.name.is_empty() {
            bail!("its name is empty");
        }
        let owns = self.destinations.iter().map(|pattern| DestinationPattern::parse(pattern));
        let owns = owns.collect::<Result<Vec<_>, _>>()?;
        let leases_max = Some(self.leases_max).filter(|max| *max > 0);
        Ok(tenants.add(Tenant { leases_max, ..Tenant::new(&self.name, self.limit()) }, &owns)?)
    }

    fn limit(&self) -> Limit {
        let some = |max: u64| Some(max).filter(|max| *max > 0);
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

/// The tenants of a file.
///
/// # Errors
/// One cannot be: with its number.
pub fn tenants(configs: &[TenantConfig]) -> anyhow::Result<Tenants> {
    let mut tenants = Tenants::default();
    for (number, config) in (1..).zip(configs) {
        config.add_to(&mut tenants).with_context(|| format!("configuration: [[tenant]] {number}"))?;
    }
    Ok(tenants)
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
