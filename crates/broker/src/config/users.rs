//! Who is let in, as the configuration and the files of users and tokens say it.

use std::sync::Arc;

use anyhow::{Context, bail};
use postroad_routing::Policies;
use postroad_security::ldap::LDAP_PREFIX;
use postroad_security::oidc::OIDC_PREFIX;
use postroad_security::{Attempts, Documents, Door, TenantBook, Text, TokenBook, UserFile, Users};

use super::{Config, tenants};

/// The access keys of users, in the data directory of the node.
pub const ACCESS_KEYS_FILE: &str = "access-keys";

impl Config {
    /// The access keys of users.
    pub fn access_keys(&self, documents: &Arc<Documents>) -> Text {
        Text::new(ACCESS_KEYS_FILE, &self.node_data().join(ACCESS_KEYS_FILE), documents)
    }

    /// Who is let in.
    ///
    /// # Errors
    /// The users or tokens cannot be read.
    pub fn door(&self) -> anyhow::Result<Door> {
        let documents = self.documents();
        let users = self.users_of(self.users_text(&documents).as_ref())?;
        self.door_of(users, &Arc::new(self.tokens(&documents)?), &Arc::default())
    }

    fn door_of(
        &self,
        users: Option<Users>,
        tokens: &Arc<TokenBook>,
        attempts: &Arc<Attempts>,
    ) -> anyhow::Result<Door> {
        let Some(users) = users else { return Ok(Door::open()) };
        let door = Door::of(users, self.security.anonymous).context("security.users")?;
        let door = door.with_tokens(tokens.clone()).with_attempts(attempts.clone());
        let door = door.with_metrics_login(self.security.metrics_login);
        let rules = self.certificate_rules()?;
        Ok(if rules.0.is_empty() { door } else { door.with_certificates(rules) })
    }

    /// Policies and users, where users may be members of groups.
    ///
    /// # Errors
    /// The users cannot be read, or as [`Config::policies`].
    pub fn identities(
        &self,
        users: Option<&UserFile>,
        tokens: &Arc<TokenBook>,
        attempts: &Arc<Attempts>,
        made_tenants: &TenantBook,
    ) -> anyhow::Result<(Policies, Door)> {
        let (users, mut policies) = (self.users_of(users)?, self.policies()?);
        tenants::add_made(made_tenants, &mut policies)?;
        let permissions = Arc::make_mut(&mut policies.permissions);
        for (user, groups) in users.iter().flat_map(Users::groups_of_all) {
            groups.for_each(|group| permissions.add_member(&group.into(), user));
        }
        Ok((policies, self.door_of(users, tokens, attempts)?))
    }

    /// The users; `None` to admit all clients without a check.
    pub(super) fn users_of(&self, file: Option<&UserFile>) -> anyhow::Result<Option<Users>> {
        let known = file.map(|file| file.users().context("security.users")).transpose()?;
        if !self.has_other_logins() {
            return Ok(known);
        }
        for (is_set, prefix, section) in [
            (self.security.oidc.is_set(), OIDC_PREFIX, "[security.oidc]"),
            (self.security.ldap.is_set(), LDAP_PREFIX, "[security.ldap]"),
        ] {
            let like = known.iter().flat_map(Users::names).find(|name| is_set && name.starts_with(prefix));
            if let Some(name) = like {
                bail!("security.users: {name} could be a user of {section}; give it another name");
            }
        }
        Ok(Some(known.unwrap_or_default()))
    }
}
