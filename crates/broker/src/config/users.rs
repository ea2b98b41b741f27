//! Who is let in, as the configuration and the files of users and tokens say it.

use std::sync::Arc;

use anyhow::{Context, bail};
use postroad_routing::Policies;
use postroad_security::oidc::OIDC_PREFIX;
use postroad_security::{Attempts, Door, TenantBook, TokenBook, UserFile, Users};

use super::{Config, tenants};

impl Config {
    /// Who is let in.
    ///
    /// # Errors
    /// The users or tokens cannot be read.
    pub fn door(&self) -> anyhow::Result<Door> {
        let documents = self.documents();
        let users = self.users_of(self.users_text(&documents).as_ref())?;
        Config::door_of(users, self.security.anonymous, &Arc::new(self.tokens(&documents)?), &Arc::default())
    }

    fn door_of(
        users: Option<Users>,
        anonymous: bool,
        tokens: &Arc<TokenBook>,
        attempts: &Arc<Attempts>,
    ) -> anyhow::Result<Door> {
        let Some(users) = users else { return Ok(Door::open()) };
        let door = Door::of(users, anonymous).context("security.users")?;
        Ok(door.with_tokens(tokens.clone()).with_attempts(attempts.clone()))
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
        Ok((policies, Config::door_of(users, self.security.anonymous, tokens, attempts)?))
    }

    /// The users; `None` to admit all clients without a check.
    pub(super) fn users_of(&self, file: Option<&UserFile>) -> anyhow::Result<Option<Users>> {
        let known = file.map(|file| file.users().context("security.users")).transpose()?;
        if !self.security.oidc.is_set() {
            return Ok(known);
        }
        let like = known.iter().flat_map(Users::names).find(|name| name.starts_with(OIDC_PREFIX));
        if let Some(name) = like {
            bail!("security.users: {name} could be a user of [security.oidc]; give it another name");
        }
        Ok(Some(known.unwrap_or_default()))
    }
}
