//! Permissions and groups, as the configuration file has them.

use std::sync::Arc;

use anyhow::{Context, bail};
use postroad_model::Action;
use postroad_routing::{DestinationPattern, Grantee, Permission, Permissions};
use serde::Deserialize;

/// One `[[security.permission]]`: actions on destinations that users are granted.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PermissionConfig {
    /// Users by name; `*` for every user who has logged in.
    #[serde(default)]
    pub users: Vec<String>,
    /// Groups by name.
    #[serde(default)]
    pub groups: Vec<String>,
    /// For every client, also of the anonymous user.
    #[serde(default)]
    pub everyone: bool,
    /// Destination patterns, as for a policy.
    pub destinations: Vec<String>,
    /// Granted actions.
    pub actions: Vec<ActionConfig>,
}

/// One `[[security.group]]`: users with the same permissions.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupConfig {
    /// The group's name.
    pub name: String,
    /// Its members, beside those that the file of users has.
    #[serde(default)]
    pub users: Vec<String>,
}

/// See [`Action`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActionConfig {
    /// [`Action::Read`].
    Read,
    /// [`Action::Write`].
    Write,
    /// [`Action::Create`].
    Create,
    /// [`Action::Manage`].
    Manage,
    /// [`Action::Admin`].
    Admin,
}

impl From<ActionConfig> for Action {
    fn from(action: ActionConfig) -> Action {
        match action {
            ActionConfig::Read => Action::Read,
            ActionConfig::Write => Action::Write,
            ActionConfig::Create => Action::Create,
            ActionConfig::Manage => Action::Manage,
            ActionConfig::Admin => Action::Admin,
        }
    }
}

/// The permissions of a file.
///
/// # Errors
/// One is incomplete, names an unknown group, or has a malformed pattern: with its number.
/// Permissions without users would refuse every client, as without users no client logs in.
pub fn permissions(
    permissions: &[PermissionConfig],
    groups: &[GroupConfig],
    has_users: bool,
) -> anyhow::Result<Permissions> {
    if !has_users && !permissions.is_empty() {
        bail!(
            "configuration: [[security.permission]] needs security.users, [security.oidc], \
             [security.ldap] or [[security.certificate]]: without users no client logs in"
        );
    }
    let mut all = Permissions::default();
    for (number, group) in (1..).zip(groups) {
        if group.name.is_empty() {
            bail!("configuration: [[security.group]] {number}: its name is empty");
        }
        if groups.iter().filter(|other| other.name == group.name).count() > 1 {
            bail!("configuration: [[security.group]] {number}: {} is defined twice", group.name);
        }
        let name: Arc<str> = group.name.as_str().into();
        group.users.iter().for_each(|user| all.add_member(&name, user));
    }
    for (number, config) in (1..).zip(permissions) {
        let permission = read(config, groups);
        all.add(permission.with_context(|| format!("configuration: [[security.permission]] {number}"))?);
    }
    Ok(all)
}

fn read(config: &PermissionConfig, groups: &[GroupConfig]) -> anyhow::Result<Permission> {
    let PermissionConfig { users, groups: of, everyone, destinations, actions } = config;
    if let Some(unknown) = of.iter().find(|name| !groups.iter().any(|group| group.name == **name)) {
        bail!("there is no [[security.group]] {unknown}");
    }
    let everyone = everyone.then_some(Grantee::Everyone).into_iter();
    let users = users.iter().map(|name| match name.as_str() {
        "*" => Grantee::LoggedIn,
        name => Grantee::User(name.into()),
    });
    let groups = of.iter().map(|name| Grantee::Group(name.as_str().into()));
    let grantees: Vec<_> = everyone.chain(users).chain(groups).collect();
    if grantees.is_empty() {
        bail!("it applies to no user: set users, groups or everyone = true");
    }
    if actions.is_empty() || destinations.is_empty() {
        bail!("it grants nothing: set destinations and actions");
    }
    let destinations = destinations.iter().map(|pattern| DestinationPattern::parse(pattern));
    let destinations = destinations.collect::<Result<Vec<_>, _>>()?;
    Ok(Permission { grantees, destinations, actions: actions.iter().map(|&action| action.into()).collect() })
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use postroad_model::{Action, Destination, Principal};

    const USERS: &str = "[security]\nusers = \"users\"\n";

    #[test]
    fn permissions_and_groups_are_read() {
        let text = format!(
            "{USERS}[[security.group]]\nname = \"billing\"\nusers = [\"bob\"]\n\
             [[security.permission]]\ngroups = [\"billing\"]\ndestinations = [\"queue://bills.>\"]\n\
             actions = [\"read\", \"manage\"]\n"
        );
        let permissions = Config::parse(&text).unwrap().policies().unwrap().permissions;
        let bob = permissions.grants_of(&Principal::User("bob".into()));
        for (action, want) in Action::ALL.into_iter().zip([true, false, false, true, false]) {
            assert_eq!(bob.permit(action, &Destination::queue("bills.a")), want, "{action}");
        }
    }

    #[test]
    fn permissions_that_cannot_be_meant_are_refused_by_number() {
        let rule = "destinations = [\"queue://a\"]\nactions = [\"read\"]\n";
        for (text, want) in [
            (
                format!("[[security.permission]]\nusers = [\"a\"]\n{rule}"),
                "[[security.permission]] needs security.users, [security.oidc],",
            ),
            (
                format!("{USERS}[[security.permission]]\n{rule}"),
                "[[security.permission]] 1: it applies to no user",
            ),
            (
                format!("{USERS}[[security.permission]]\ngroups = [\"x\"]\n{rule}"),
                "there is no [[security.group]] x",
            ),
            (
                format!(
                    "{USERS}[[security.permission]]\neveryone = true\ndestinations = []\nactions = [\"read\"]\n"
                ),
                "[[security.permission]] 1: it grants nothing",
            ),
            (
                format!(
                    "{USERS}[[security.permission]]\neveryone = true\ndestinations = [\"a\"]\nactions = [\"read\"]\n"
                ),
                "must start with queue://",
            ),
            (
                format!(
                    "{USERS}[[security.group]]\nname = \"g\"\nusers = []\n[[security.group]]\nname = \"g\"\nusers = []\n"
                ),
                "[[security.group]] 1: g is defined twice",
            ),
        ] {
            let error = format!("{:#}", Config::parse(&text).unwrap().policies().unwrap_err());
            assert!(error.contains(want), "{text}: {error}");
        }
        let error = Config::parse(&format!(
            "{USERS}[[security.permission]]\neveryone = true\ndestinations = [\"queue://a\"]\nactions = [\"delete\"]\n"
        ));
        let error = format!("{:#}", error.unwrap_err());
        assert!(error.contains("unknown variant `delete`"), "{error}");
    }
}
