//! `[[bridge]]`: links that this broker opens to others.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use postroad_bridge::urls_of;
use postroad_model::Destination;
use postroad_net::TlsClient;
use postroad_openwire::network::{DialOptions, LinkOptions, LinkShare};
use postroad_security::tls::{TlsClientFiles, load_client};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::Deserialize;

use crate::config::link_profile::{LinkDefaults, Profile};
use crate::config::secrets::{text_in_file, text_in_variable};

/// Links that one broker may open: each is a connection and a task.
const BRIDGES_MAX: usize = 256;

/// The longest pause that can be asked for: an hour.
const RETRY_MS_MAX: u64 = 3_600_000;

/// The longest wait for a peer that can be asked for: ten minutes.
const WAIT_MS_MAX: u64 = 600_000;

/// One link.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BridgeConfig {
    /// Its name, for operators and the peer.
    name: String,
    /// Where the peer may be reached, tried in turn.
    to: Vec<String>,
    /// Whether the peer forwards messages here over the same connection.
    duplex: bool,
    /// Who this broker is at the peer.
    user: String,
    /// Its password.
    password: Password,
    /// A file with the password, in its place.
    password_file: PathBuf,
    /// An environment variable with the password, in its place.
    password_env: String,
    /// For `ssl://`.
    tls: BridgeTlsConfig,
    /// Only these destinations, if any are named.
    include: Vec<String>,
    /// Not these.
    exclude: Vec<String>,
    /// Defaults of the keys that are options below.
    profile: Profile,
    /// Connections that share the destinations among them; 0: as the round-trip time suggests.
    links: Option<u16>,
    /// These are forwarded without demand.
    #[serde(rename = "static")]
    statics: Vec<String>,
    /// Messages in flight for each subscription.
    prefetch: Option<u32>,
    /// Brokers that a message may pass; negative for any number.
    message_ttl: i32,
    /// Brokers over which a consumer is known; negative for any number.
    consumer_ttl: i32,
    /// Priority beside local consumers.
    priority: i8,
    /// Whether the priority is lower for brokers further away.
    decrease_priority: bool,
    /// Whether temporary destinations of the peer exist here too.
    temporary: bool,
    /// Whether nothing but the static destinations is forwarded.
    only_static: bool,
    /// A peer that accepts no connection within this time is tried again later.
    connect_ms: Option<u64>,
    /// A peer that is silent for this time is gone; 0: never.
    max_inactivity_ms: Option<u64>,
    /// The first pause before a link that ended is opened again; each further one is twice as long.
    retry_ms: Option<u64>,
    /// The longest pause.
    retry_max_ms: Option<u64>,
}

/// TLS of one link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BridgeTlsConfig {
    /// Certificates of trusted authorities, or of the peer itself.
    trust: PathBuf,
    /// The certificate that this broker shows to the peer; empty for none.
    certificate: PathBuf,
    /// Its private key.
    key: PathBuf,
    /// The name that the peer's certificate must have; empty for the host of the URL.
    name: String,
}

/// A secret that no log shows.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Password(String);

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// A link as the runtime needs it.
#[derive(Clone, Debug)]
pub struct Bridge {
    /// Where the peer may be reached, tried in turn.
    pub addresses: Vec<PeerAddress>,
    /// Options of the conversation over the link.
    pub dial: DialOptions,
    /// Its connections; `None`: as the round-trip time suggests.
    pub links: Option<u16>,
    /// A peer that accepts no connection within this time is tried again later.
    pub connect_within: Duration,
    /// The first and the longest pause before a link that ended is opened again.
    pub retry: (Duration, Duration),
    /// Its profile.
    pub profile: Profile,
    /// The table that it is made of, to see a change.
    pub config: BridgeConfig,
}

/// Where a peer may be reached.
#[derive(Clone, Debug)]
pub struct PeerAddress {
    /// `HOST:PORT`.
    pub address: String,
    /// For `ssl://`.
    pub tls: Option<TlsClient>,
}

impl BridgeTlsConfig {
    /// The certificates; `None` if none are named.
    fn config(&self) -> anyhow::Result<Option<Arc<ClientConfig>>> {
        let is_named = |file: &PathBuf| !file.as_os_str().is_empty();
        let own = match (is_named(&self.certificate), is_named(&self.key)) {
            (true, true) => Some((self.certificate.clone(), self.key.clone())),
            (false, false) => None,
            (true, false) => bail!("tls.certificate needs tls.key"),
            (false, true) => bail!("tls.key needs tls.certificate"),
        };
        match (is_named(&self.trust), own) {
            (true, own) => Ok(Some(load_client(&TlsClientFiles { trust: self.trust.clone(), own })?)),
            (false, None) => Ok(None),
            (false, Some(_)) => bail!("tls.certificate needs tls.trust"),
        }
    }

    /// An address of the peer with the certificates for it.
    fn peer(&self, url: &str, config: Option<&Arc<ClientConfig>>) -> anyhow::Result<PeerAddress> {
        let (address, is_tls) = address_of(url)?;
        if !is_tls {
            return Ok(PeerAddress { address, tls: None });
        }
        let Some(config) = config else {
            bail!("ssl:// needs tls.trust: a PEM file with the certificates of trusted authorities")
        };
        let host = address.rsplit_once(':').map_or(&*address, |(host, _)| host);
        let name = if self.name.is_empty() { host.trim_matches(['[', ']']) } else { &self.name };
        let server = ServerName::try_from(name.to_owned());
        let server =
            server.map_err(|_| anyhow::anyhow!("{name:?} is neither a host name nor an IP address"))?;
        Ok(PeerAddress { address, tls: Some(TlsClient { config: config.clone(), name: server }) })
    }
}

impl Default for BridgeConfig {
    fn default() -> BridgeConfig {
        let LinkOptions { message_ttl, consumer_ttl, priority, .. } = LinkOptions::default();
        let LinkOptions { decreases_priority, temporaries, only_statics, .. } = LinkOptions::default();
        BridgeConfig {
            name: String::new(),
            to: Vec::new(),
            duplex: false,
            user: String::new(),
            password: Password::default(),
            password_file: PathBuf::new(),
            password_env: String::new(),
            tls: BridgeTlsConfig::default(),
            include: Vec::new(),
            exclude: Vec::new(),
            profile: Profile::default(),
            links: None,
            statics: Vec::new(),
            prefetch: None,
            message_ttl,
            consumer_ttl,
            priority,
            decrease_priority: decreases_priority,
            temporary: temporaries,
            only_static: only_statics,
            connect_ms: None,
            max_inactivity_ms: None,
            retry_ms: None,
            retry_max_ms: None,
        }
    }
}

/// All links.
///
/// # Errors
/// A name is missing or taken, or a value cannot be understood.
pub fn bridges(configs: &[BridgeConfig]) -> anyhow::Result<Vec<Bridge>> {
    if BRIDGES_MAX < configs.len() {
        bail!("configuration: {} [[bridge]]; the most is {BRIDGES_MAX}", configs.len());
    }
    let mut names = BTreeSet::new();
    let mut bridges = Vec::with_capacity(configs.len());
    for (number, config) in (1..).zip(configs) {
        let bridge = config.bridge().with_context(|| format!("configuration: [[bridge]] {number}"))?;
        if !names.insert(&*config.name) {
            bail!("configuration: [[bridge]] {number}: the name {} is taken", config.name);
        }
        bridges.push(bridge);
    }
    Ok(bridges)
}

impl BridgeConfig {
    /// Messages in flight of one subscription; more would only be more to send again.
    pub const PREFETCH_MAX: u32 = 100_000;

    /// All destinations that it may forward from here; `None` if these are not limited.
    pub fn addresses(&self) -> Option<Vec<&str>> {
        let is_limited = !self.include.is_empty() || self.only_static;
        is_limited.then(|| self.include.iter().chain(&self.statics).map(String::as_str).collect())
    }

    /// Leaves out passwords and certificates, which may not exist yet, for checks of the rest.
    pub fn forget_files(&mut self) {
        self.password_file = PathBuf::new();
        self.password_env = String::new();
        if std::mem::take(&mut self.tls) != BridgeTlsConfig::default() {
            for url in &mut self.to {
                *url = url.replace("nio+ssl://", "tcp://").replace("ssl://", "tcp://");
            }
        }
    }

    /// The password, wherever it is.
    fn secret(&self) -> anyhow::Result<Password> {
        let file = Some(&*self.password_file).filter(|file| !file.as_os_str().is_empty());
        let variable = Some(&*self.password_env).filter(|name| !name.is_empty());
        let text = match (!self.password.0.is_empty(), file, variable) {
            (_, None, None) => return Ok(self.password.clone()),
            (false, Some(file), None) => {
                text_in_file(file, "password").with_context(|| format!("password_file {}", file.display()))?
            }
            (false, None, Some(name)) => {
                text_in_variable(name).with_context(|| format!("password_env {name}"))?
            }
            _ => bail!("set one of password, password_file and password_env"),
        };
        let text = text.trim_end_matches(['\r', '\n']);
        if text.is_empty() {
            bail!("password_file or password_env is empty");
        }
        Ok(Password(text.to_owned()))
    }

    fn bridge(&self) -> anyhow::Result<Bridge> {
        let legal = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '-' | '_' | '.');
        if self.name.is_empty() || !self.name.chars().all(legal) {
            bail!("name is {:?}; use letters, digits, '-', '_' and '.'", self.name);
        }
        let of = self.effective()?;
        let tls = self.tls.config()?;
        let mut addresses = Vec::new();
        for url in &self.to {
            let peers = urls_of(url).into_iter().map(|url| self.tls.peer(url, tls.as_ref()));
            let peers: anyhow::Result<Vec<_>> = peers.collect();
            addresses.extend(peers.with_context(|| format!("to = {url:?}"))?);
        }
        if addresses.is_empty() {
            bail!("to names no broker; use to = [\"tcp://HOST:PORT\"]");
        }
        let password = self.secret()?;
        let some = |text: &str| (!text.is_empty()).then(|| text.into());
        let dial = DialOptions {
            name: self.name.as_str().into(),
            duplex: self.duplex,
            user: some(&self.user),
            password: some(&password.0),
            max_inactivity_ms: of.max_inactivity_ms,
            link: LinkOptions {
                prefetch: of.prefetch,
                message_ttl: self.message_ttl,
                consumer_ttl: self.consumer_ttl,
                priority: self.priority,
                include: destinations("include", &self.include)?,
                exclude: destinations("exclude", &self.exclude)?,
                statics: destinations("static", &self.statics)?,
                decreases_priority: self.decrease_priority,
                temporaries: self.temporary,
                only_statics: self.only_static,
                ..LinkOptions::default()
            },
        };
        let retry = (Duration::from_millis(of.retry_ms), Duration::from_millis(of.retry_max_ms));
        let connect_within = Duration::from_millis(of.connect_ms);
        let links = Some(of.links).filter(|links| 0 < *links);
        // With the password itself: if the file has another one at the next reading, the link
        // changes.
        let config = BridgeConfig { password, ..self.clone() };
        let profile = self.profile;
        Ok(Bridge { addresses, dial, links, connect_within, retry, profile, config })
    }

    /// The keys of the table, and the defaults of its profile for the others.
    ///
    /// # Errors
    /// A value is out of its range.
    fn effective(&self) -> anyhow::Result<LinkDefaults> {
        let defaults = self.profile.defaults();
        let (retry_ms, retry_max_ms) = match (self.retry_ms, self.retry_max_ms) {
            // One of the two moves the other.
            (Some(first), None) => (first, defaults.retry_max_ms.max(first)),
            (None, Some(longest)) => (defaults.retry_ms.min(longest), longest),
            (first, longest) => {
                (first.unwrap_or(defaults.retry_ms), longest.unwrap_or(defaults.retry_max_ms))
            }
        };
        let of = LinkDefaults {
            links: self.links.unwrap_or(defaults.links),
            prefetch: self.prefetch.unwrap_or(defaults.prefetch),
            connect_ms: self.connect_ms.unwrap_or(defaults.connect_ms),
            max_inactivity_ms: self.max_inactivity_ms.or(defaults.max_inactivity_ms),
            retry_ms,
            retry_max_ms,
        };
        if !(1..=BridgeConfig::PREFETCH_MAX).contains(&of.prefetch) {
            bail!("prefetch is {}; it must be from 1 to {}", of.prefetch, BridgeConfig::PREFETCH_MAX);
        }
        if LinkShare::MAX < of.links {
            bail!("links is {}; it must be from 1 to {}, or 0 for a default", of.links, LinkShare::MAX);
        }
        if !(1..=WAIT_MS_MAX).contains(&of.connect_ms) {
            bail!("connect_ms is {}; it must be from 1 to {WAIT_MS_MAX}", of.connect_ms);
        }
        if of.max_inactivity_ms.is_some_and(|ms| WAIT_MS_MAX < ms) {
            let ms = of.max_inactivity_ms.unwrap_or_default();
            bail!("max_inactivity_ms is {ms}; it must be at most {WAIT_MS_MAX}, or 0 for never");
        }
        if of.retry_ms == 0 || of.retry_max_ms < of.retry_ms || RETRY_MS_MAX < of.retry_max_ms {
            let (first, last) = (of.retry_ms, of.retry_max_ms);
            bail!(
                "retry_ms is {first} and retry_max_ms {last}; use 1 <= retry_ms <= retry_max_ms <= {RETRY_MS_MAX}"
            );
        }
        Ok(of)
    }
}

impl fmt::Display for Bridge {
    /// What `postroad config check` says of it: the options that follow from its profile.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Bridge { dial, links, connect_within, retry: (first, longest), profile, .. } = self;
        let links = links.map_or_else(|| "by round-trip time".to_owned(), |links| links.to_string());
        let silent = dial.max_inactivity_ms.map_or_else(
            || "openwire.max_inactivity_ms".to_owned(),
            |ms| if ms == 0 { "never".to_owned() } else { format!("{ms} ms") },
        );
        write!(
            out,
            "bridge {}: profile {}, links {links}, prefetch {}, connect within {} ms, silent peer gone after {silent}, \
             retry after {} to {} ms",
            dial.name,
            profile.name(),
            dial.link.prefetch,
            connect_within.as_millis(),
            first.as_millis(),
            longest.as_millis(),
        )
    }
}

/// The `HOST:PORT` of a URL, and whether TLS is spoken there.
fn address_of(url: &str) -> anyhow::Result<(String, bool)> {
    let wrong = || anyhow::anyhow!("expected tcp://HOST:PORT or ssl://HOST:PORT, got {url:?}");
    let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
    let is_tls = match scheme {
        "tcp" | "nio" => false,
        "ssl" | "nio+ssl" => true,
        _ => return Err(wrong()),
    };
    let address = rest.split('?').next().unwrap_or_default();
    let port = address
        .rsplit_once(':')
        .and_then(|(host, port)| port.parse::<u16>().ok().filter(|port| !host.is_empty() && 0 < *port));
    if port.is_none() {
        return Err(wrong());
    }
    Ok((address.to_owned(), is_tls))
}

/// `queue://NAME` or `topic://NAME`, with wildcards.
fn destinations(key: &str, names: &[String]) -> anyhow::Result<Vec<Destination>> {
    let each = |name: &String| match (name.strip_prefix("queue://"), name.strip_prefix("topic://")) {
        (Some(queue), _) if !queue.is_empty() => Ok(Destination::queue(queue)),
        (_, Some(topic)) if !topic.is_empty() => Ok(Destination::topic(topic)),
        _ => bail!("{key} has {name:?}; use queue://NAME or topic://NAME"),
    };
    names.iter().map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, to: &str) -> BridgeConfig {
        BridgeConfig { name: name.to_owned(), to: vec![to.to_owned()], ..BridgeConfig::default() }
    }

    #[test]
    fn urls_become_addresses() {
        for (to, want) in [
            ("tcp://a:1", &["a:1"][..]),
            ("tcp://[::1]:61616?wireFormat.x=1", &["[::1]:61616"]),
            ("failover:(tcp://a:1,tcp://b:2)?x=1", &["a:1", "b:2"]),
            ("static:(tcp://a:1)", &["a:1"]),
            ("static:(failover:(tcp://a:1,tcp://b:2)?x=1)", &["a:1", "b:2"]),
            ("static:(tcp://a:1?x=1, tcp://b:2?x=2)?y=3", &["a:1", "b:2"]),
        ] {
            let bridges = bridges(&[named("n", to)]).unwrap();
            let addresses = bridges[0].addresses.iter().map(|peer| &*peer.address);
            assert_eq!(addresses.collect::<Vec<_>>(), want, "{to}");
        }
    }

    #[test]
    fn what_makes_no_link_is_refused_with_its_reason() {
        let with = |change: fn(&mut BridgeConfig)| {
            let mut config = named("n", "tcp://a:1");
            change(&mut config);
            vec![config]
        };
        for (configs, want) in [
            (with(|bridge| bridge.name.clear()), "name is \"\""),
            (with(|bridge| bridge.to.clear()), "to names no broker"),
            (with(|bridge| bridge.to = vec!["tcp://a".to_owned()]), "expected tcp://HOST:PORT"),
            (with(|bridge| bridge.to = vec!["http://a:1".to_owned()]), "expected tcp://HOST:PORT or ssl://"),
            (with(|bridge| bridge.to = vec!["ssl://a:1".to_owned()]), "ssl:// needs tls.trust"),
            (with(|bridge| bridge.tls.key = "k".into()), "tls.key needs tls.certificate"),
            (with(|bridge| bridge.tls.trust = "/no/such".into()), "cannot read /no/such"),
            (with(|bridge| bridge.prefetch = Some(0)), "prefetch is 0; it must be from 1 to 100000"),
            (with(|bridge| bridge.connect_ms = Some(0)), "connect_ms is 0; it must be from 1 to 600000"),
            (
                with(|bridge| bridge.max_inactivity_ms = Some(600_001)),
                "max_inactivity_ms is 600001; it must be",
            ),
            (with(|bridge| bridge.links = Some(17)), "links is 17; it must be from 1 to 16"),
            (with(|bridge| bridge.retry_ms = Some(0)), "retry_ms is 0"),
            (
                with(|bridge| (bridge.retry_ms, bridge.retry_max_ms) = (Some(20), Some(10))),
                "retry_ms is 20 and retry_max_ms 10",
            ),
            (with(|bridge| bridge.include = vec!["a".to_owned()]), "include has \"a\""),
            (vec![named("n", "tcp://a:1"), named("n", "tcp://b:1")], "the name n is taken"),
        ] {
            let error = format!("{:#}", bridges(&configs).unwrap_err());
            assert!(error.contains(want) && error.contains("[[bridge]]"), "{error}");
        }
    }

    #[test]
    fn a_profile_has_defaults_that_keys_of_the_table_replace() {
        let of = |profile: &str, more: &str| -> String {
            let text = format!("name = 'n'\nto = ['tcp://a:1']\n{profile}{more}");
            bridges(&[toml::from_str(&text).unwrap()]).unwrap()[0].to_string()
        };
        for (profile, more, want) in [
            (
                "",
                "",
                "bridge n: profile auto, links by round-trip time, prefetch 1000, connect within 10000 ms, \
                 silent peer gone after openwire.max_inactivity_ms, retry after 1000 to 30000 ms",
            ),
            (
                "profile = 'lan'\n",
                "",
                "bridge n: profile lan, links 1, prefetch 1000, connect within 3000 ms, silent peer gone after 5000 ms, \
                 retry after 250 to 5000 ms",
            ),
            (
                "profile = 'wan'\n",
                "",
                "bridge n: profile wan, links 4, prefetch 10000, connect within 30000 ms, \
                 silent peer gone after 30000 ms, retry after 1000 to 60000 ms",
            ),
            (
                "profile = 'wan'\n",
                "links = 0\nprefetch = 7\nconnect_ms = 8\nmax_inactivity_ms = 0\nretry_max_ms = 9\n",
                "bridge n: profile wan, links by round-trip time, prefetch 7, connect within 8 ms, \
                 silent peer gone after never, retry after 9 to 9 ms",
            ),
        ] {
            assert_eq!(of(profile, more), want);
        }
        let unknown = toml::from_str::<BridgeConfig>("profile = 'moon'").unwrap_err().to_string();
        assert!(unknown.contains("expected one of `auto`, `lan`, `wan`"), "{unknown}");
    }

    #[test]
    fn passwords_come_from_files_and_variables() {
        use std::os::unix::fs::PermissionsExt;

        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str, mode: u32| {
            let file = directory.path().join(name);
            std::fs::write(&file, text).unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            BridgeConfig { password_file: file, ..named("n", "tcp://a:1") }
        };
        let variable = |name: &str| BridgeConfig { password_env: name.to_owned(), ..named("n", "tcp://a:1") };
        let home = std::env::var("HOME").unwrap();
        for (case, config, want) in [
            ("none", named("n", "tcp://a:1"), Ok(None)),
            ("a file", file("a", "secret\n", 0o600), Ok(Some("secret"))),
            ("a variable", variable("HOME"), Ok(Some(&*home))),
            ("spaces belong to it", file("b", " s \r\n", 0o640), Ok(Some(" s "))),
            ("for all to read", file("c", "secret", 0o644), Err("other users can access it (mode 644)")),
            ("empty", file("d", "\n", 0o600), Err("password_file or password_env is empty")),
            ("too long", file("e", &"x".repeat(1025), 0o600), Err("1025 bytes are not a password")),
            ("as long as may be", file("f", &"x".repeat(1024), 0o600), Ok(Some(&*"x".repeat(1024)))),
            (
                "no file",
                BridgeConfig { password_file: "/no/such".into(), ..named("n", "tcp://a:1") },
                Err("password_file /no/such: it cannot be read"),
            ),
            (
                "no variable",
                variable("POSTROAD_NO_SUCH"),
                Err("password_env POSTROAD_NO_SUCH: it is not set"),
            ),
            (
                "two of them",
                BridgeConfig { password: Password("p".into()), ..variable("HOME") },
                Err("set one of password, password_file and password_env"),
            ),
        ] {
            let got = bridges(&[config]).map_err(|error| format!("{error:#}"));
            match (got, want) {
                (Ok(bridges), Ok(want)) => {
                    assert_eq!(bridges[0].dial.password.as_deref(), want, "case: {case}")
                }
                (Err(error), Err(want)) => {
                    assert!(error.contains(want) && !error.contains("secret"), "case: {case}: {error}");
                }
                (got, _) => panic!("case: {case}: {got:?}"),
            }
        }
    }

    #[test]
    fn passwords_are_not_shown() {
        let config = BridgeConfig { password: Password("secret".to_owned()), ..named("n", "tcp://a:1") };
        assert!(!format!("{config:?}").contains("secret"));
    }
}
