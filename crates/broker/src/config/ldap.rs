//! The directory whose users are let in.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use hyper::Uri;
use postroad_security::ldap::{Filter, LdapRules, Placeholder, Service};
use serde::Deserialize;

use super::secrets::{text_in_file, text_in_variable};

/// Servers of one directory, at most.
const URLS_MAX: usize = 8;

/// The directory has between these times for an answer.
const TIMEOUT_MS: std::ops::RangeInclusive<u64> = 100..=30_000;

/// Answers are not remembered longer: a removed user could log in until then.
const REMEMBERED_SECONDS_MAX: u64 = 3_600;

/// See the head of this file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LdapConfig {
    /// Servers, the first that answers is asked; empty for none.
    urls: Vec<String>,
    /// Whether TLS begins inside of a connection to an `ldap://` URL.
    start_tls: bool,
    /// Authorities of the certificates of the servers; empty for those of the system.
    authorities: PathBuf,
    /// Whom the broker logs in as to search; empty for an anonymous search.
    bind_dn: String,
    /// The file with its password.
    bind_password_file: PathBuf,
    /// The environment variable with its password.
    bind_password_env: String,
    /// Where users are.
    user_base: String,
    /// Which entry is the user.
    user_filter: String,
    /// The attribute with the name of the user.
    user_attribute: String,
    /// The attribute of a user with its groups; empty for none.
    groups_attribute: String,
    /// Where groups are; empty for none.
    group_base: String,
    /// Which groups a user is in.
    group_filter: String,
    /// The attribute with the name of a group.
    group_attribute: String,
    /// Names of groups here, by those of the directory.
    group_names: BTreeMap<String, String>,
    /// The time for one login.
    timeout_ms: u64,
    /// How long a good password is remembered.
    cache_seconds: u64,
}

/// One server of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryServer {
    /// Its host, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Whether TLS begins with the connection.
    pub is_tls: bool,
}

impl Default for LdapConfig {
    fn default() -> LdapConfig {
        LdapConfig {
            urls: Vec::new(),
            start_tls: false,
            authorities: PathBuf::new(),
            bind_dn: String::new(),
            bind_password_file: PathBuf::new(),
            bind_password_env: String::new(),
            user_base: String::new(),
            user_filter: "(uid={user})".to_owned(),
            user_attribute: "uid".to_owned(),
            groups_attribute: String::new(),
            group_base: String::new(),
            group_filter: "(member={dn})".to_owned(),
            group_attribute: "cn".to_owned(),
            group_names: BTreeMap::new(),
            timeout_ms: 3_000,
            cache_seconds: 60,
        }
    }
}

impl LdapConfig {
    /// Whether users of a directory are let in.
    pub fn is_set(&self) -> bool {
        !self.urls.is_empty()
    }

    /// Authorities of the certificates of the servers, if they are not those of the system.
    pub fn authorities(&self) -> Option<&Path> {
        Some(&*self.authorities).filter(|file| !file.as_os_str().is_empty())
    }

    /// Whether TLS begins inside of a connection.
    pub fn start_tls(&self) -> bool {
        self.start_tls
    }

    /// The time for one login.
    pub fn timeout(&self) -> Duration {
        Duration::from_millis(self.timeout_ms)
    }

    /// How long a good password is remembered.
    pub fn remembered(&self) -> Duration {
        Duration::from_secs(self.cache_seconds)
    }

    /// Checks all but the files.
    ///
    /// # Errors
    /// A part is missing, or lets others in by mistake.
    pub fn check(&self) -> anyhow::Result<()> {
        if *self == LdapConfig::default() {
            return Ok(());
        }
        self.check_parts().context("configuration: [security.ldap]")
    }

    fn check_parts(&self) -> anyhow::Result<()> {
        if self.urls.is_empty() || URLS_MAX < self.urls.len() {
            bail!("urls needs 1 to {URLS_MAX} servers, such as \"ldaps://directory.example\"");
        }
        self.servers()?;
        if self.user_base.is_empty() {
            bail!("user_base is empty: name the entry above the users, such as \"ou=people,dc=example\"");
        }
        if self.user_attribute.is_empty() || self.group_attribute.is_empty() {
            bail!("user_attribute and group_attribute name attributes; \"uid\" and \"cn\" are the defaults");
        }
        let rules = self.rules()?;
        if !rules.user_filter.has(Placeholder::User) {
            bail!("user_filter {:?} has no {{user}}: every name would be the same user", self.user_filter);
        }
        if rules.user_filter.has(Placeholder::Dn) {
            bail!("user_filter {:?} has {{dn}}, which is not known before", self.user_filter);
        }
        if !rules.group_filter.has(Placeholder::User) && !rules.group_filter.has(Placeholder::Dn) {
            bail!("group_filter {:?} has neither {{dn}} nor {{user}}", self.group_filter);
        }
        let has_password =
            !self.bind_password_file.as_os_str().is_empty() || !self.bind_password_env.is_empty();
        if self.bind_dn.is_empty() == has_password {
            bail!("bind_dn needs bind_password_file or bind_password_env, and these need bind_dn");
        }
        if !self.bind_password_file.as_os_str().is_empty() && !self.bind_password_env.is_empty() {
            bail!("bind_password_file and bind_password_env cannot be set both");
        }
        if !TIMEOUT_MS.contains(&self.timeout_ms) {
            let (least, most) = (TIMEOUT_MS.start(), TIMEOUT_MS.end());
            bail!("timeout_ms is {}; use {least} to {most}", self.timeout_ms);
        }
        if REMEMBERED_SECONDS_MAX < self.cache_seconds {
            bail!("cache_seconds is {}; at most {REMEMBERED_SECONDS_MAX}", self.cache_seconds);
        }
        Ok(())
    }

    /// The servers, in order.
    ///
    /// # Errors
    /// A URL is not one of a directory, or passwords would cross the network in clear text.
    pub fn servers(&self) -> anyhow::Result<Vec<DirectoryServer>> {
        self.urls.iter().map(|url| self.server(url)).collect()
    }

    fn server(&self, text: &str) -> anyhow::Result<DirectoryServer> {
        let url: Uri = text.parse().with_context(|| format!("{text:?} is not a URL"))?;
        let is_tls = match url.scheme_str() {
            Some("ldaps") => true,
            Some("ldap") => false,
            _ => bail!("{text:?} is not an ldap:// or ldaps:// URL"),
        };
        let host = url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() || !matches!(url.path(), "" | "/") || url.query().is_some() {
            bail!("{text:?}: ldaps://HOST or ldaps://HOST:PORT is right; user_base names the entry");
        }
        if is_tls && self.start_tls {
            bail!("{text:?} has TLS from the start: remove start_tls");
        }
        let is_here = host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        if !is_tls && !self.start_tls && !is_here {
            bail!(
                "{text:?}: passwords would cross the network in clear text; use ldaps:// or start_tls = true"
            );
        }
        let port = url.port_u16().unwrap_or(if is_tls { 636 } else { 389 });
        Ok(DirectoryServer { host, port, is_tls })
    }

    /// How users are found.
    ///
    /// # Errors
    /// A filter is malformed.
    pub fn rules(&self) -> anyhow::Result<LdapRules> {
        let filter = |name: &str, text: &str| {
            Filter::parse(text).with_context(|| format!("{name} {text:?} is not a filter (RFC 4515)"))
        };
        let seconds = u32::try_from(self.timeout_ms.div_ceil(1_000)).unwrap_or(u32::MAX);
        Ok(LdapRules {
            user_base: self.user_base.clone(),
            user_filter: filter("user_filter", &self.user_filter)?,
            user_attribute: self.user_attribute.clone(),
            groups_attribute: self.groups_attribute.clone(),
            group_base: self.group_base.clone(),
            group_filter: filter("group_filter", &self.group_filter)?,
            group_attribute: self.group_attribute.clone(),
            group_names: self.group_names.clone(),
            seconds_max: seconds,
        })
    }

    /// The login of the broker, with its password as it is now.
    ///
    /// # Errors
    /// The password cannot be read.
    pub fn service(&self) -> anyhow::Result<Arc<Service>> {
        let password = if !self.bind_password_file.as_os_str().is_empty() {
            let file = &self.bind_password_file;
            let context = || format!("security.ldap.bind_password_file {}", file.display());
            text_in_file(file, "password").with_context(context)?.trim_end_matches(['\n', '\r']).to_owned()
        } else if !self.bind_password_env.is_empty() {
            let context = || format!("security.ldap.bind_password_env {}", self.bind_password_env);
            text_in_variable(&self.bind_password_env).with_context(context)?
        } else {
            String::new()
        };
        if password.is_empty() && !self.bind_dn.is_empty() {
            bail!("the password of security.ldap.bind_dn is empty: the search would be anonymous");
        }
        Ok(Arc::new(Service { dn: self.bind_dn.clone(), password }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    #[test]
    fn a_directory_that_would_let_others_in_is_refused() {
        let good = "urls = [\"ldaps://a.example\"]\nuser_base = \"dc=x\"\n";
        let of = |text: &str| Config::check_text(&format!("[security.ldap]\n{text}"));
        of(good).unwrap();
        of("urls = [\"ldap://localhost:10389\"]\nuser_base = \"dc=x\"\n").unwrap();
        of("urls = [\"ldap://a\", \"ldap://b:1389\"]\nstart_tls = true\nuser_base = \"dc=x\"\n").unwrap();
        for (case, text, want) in [
            ("no server", "user_base = \"dc=x\"\n".to_owned(), "urls needs 1 to 8"),
            ("clear text", good.replace("ldaps", "ldap"), "in clear text; use ldaps:// or start_tls"),
            ("TLS twice", format!("{good}start_tls = true\n"), "remove start_tls"),
            ("another scheme", good.replace("ldaps", "https"), "not an ldap:// or ldaps:// URL"),
            ("a path", good.replace("a.example", "a.example/dc=x"), "user_base names the entry"),
            ("no base", "urls = [\"ldaps://a\"]\n".to_owned(), "user_base is empty"),
            ("no user", format!("{good}user_filter = \"(uid=ann)\"\n"), "has no {user}"),
            (
                "the entry too early",
                format!("{good}user_filter = \"(&(uid={{user}})(x={{dn}}))\"\n"),
                "has {dn}",
            ),
            ("not a filter", format!("{good}user_filter = \"uid={{user}}\"\n"), "expected ( at"),
            ("all groups", format!("{good}group_filter = \"(cn=*)\"\n"), "neither {dn} nor {user}"),
            ("no password", format!("{good}bind_dn = \"cn=a\"\n"), "bind_dn needs bind_password_file"),
            ("a password for nobody", format!("{good}bind_password_env = \"A\"\n"), "these need bind_dn"),
            ("a long wait", format!("{good}timeout_ms = 60000\n"), "use 100 to 30000"),
            ("a long memory", format!("{good}cache_seconds = 86400\n"), "at most 3600"),
            ("a typing error", format!("{good}user_bse = \"x\"\n"), "did you mean `user_base`?"),
        ] {
            let error = format!("{:#}", of(&text).unwrap_err());
            assert!(error.contains(want), "case: {case}: {error}");
        }
    }

    #[test]
    fn with_a_directory_clients_have_to_log_in() {
        let text = "[security.ldap]\nurls = [\"ldaps://a\"]\nuser_base = \"dc=x\"\n";
        let config: Config = toml::from_str(text).unwrap();
        assert_eq!(config.users_of(None).unwrap(), Some(postroad_security::Users::default()));
        assert!(config.open_to().is_none());
    }
}
