//! Who owns which destinations, as the configuration file says it.

use anyhow::{Context, bail};
use postroad_routing::{DestinationPattern, Tenant, Tenants};
use serde::Deserialize;

/// One `[[tenant]]`: an owner of destinations.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// What it is called.
    pub name: String,
    /// What it owns: names or patterns, as for a policy.
    pub destinations: Vec<String>,
}

impl TenantConfig {
    fn add_to(&self, tenants: &mut Tenants) -> anyhow::Result<()> {
        if self.name.is_empty() {
            bail!("its name is empty");
        }
        let owns = self.destinations.iter().map(|pattern| DestinationPattern::parse(pattern));
        let owns = owns.collect::<Result<Vec<_>, _>>()?;
        Ok(tenants.add(Tenant { name: self.name.as_str().into() }, &owns)?)
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

    #[test]
    fn a_tenant_owns_what_the_file_says_or_is_refused_by_its_number() {
        let read = |text: &str| Config::parse(text).unwrap().policies().map_err(|error| format!("{error:#}"));
        let good = "[[tenant]]\nname = \"acme\"\ndestinations = [\"queue://acme.>\"]\n";
        let tenants = read(good).unwrap().tenants;
        assert_eq!(&*tenants.owner_of(&Destination::queue("acme.a")).unwrap().name, "acme");
        for (name, owns, want) in [
            ("", "queue://b", "[[tenant]] 2: its name is empty"),
            ("acme", "queue://b", "[[tenant]] 2: there is a tenant acme already"),
            ("lab", "queue://acme.>", "[[tenant]] 2: acme.> belongs to the tenant acme already"),
            ("lab", "b", "[[tenant]] 2: \"b\" begins with none of queue://"),
        ] {
            let text = format!("{good}[[tenant]]\nname = \"{name}\"\ndestinations = [\"{owns}\"]");
            let error = read(&text).unwrap_err();
            assert!(error.contains(want), "{error}");
        }
    }
}
