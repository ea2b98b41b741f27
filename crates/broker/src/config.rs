//! Configuration: one TOML file that may be absent, overruled by the command line.

mod alerts;
mod bridges;
mod certificates;
mod cluster;
mod destinations;
mod encryption;
mod http;
mod ldap;
mod link_profile;
mod memory;
mod oidc;
mod permissions;
mod push;
mod routes;
mod secrets;
mod settings;
mod stores;
mod tenant_rules;
mod tenants;
mod tls;
mod tracing;
pub mod users;

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use postroad_admin::AlertRule;
use postroad_net::TlsConfig;
use postroad_node::WRITTEN_STEP_BYTES;
use postroad_routing::{Addressing, Homes, Limit, Policies};
use postroad_security::{Documents, TenantBook, Text, TokenBook, UserFile};
use serde::Deserialize;

use crate::cli::ServeArguments;

pub use alerts::AlertConfig;
pub use bridges::{Bridge, BridgeConfig, PeerAddress};
pub use cluster::ClusterConfig;
pub use encryption::{EncryptionConfig, StoreKeys, key_in_file};
pub use http::HttpConfig;
pub use ldap::{DirectoryServer, LdapConfig};
pub use memory::{Shares, parse_bytes, password_checks_max};
pub use oidc::{KeySource, OidcConfig, key_url, keys_in_file};
pub use permissions::{GroupConfig, PermissionConfig};
pub use push::PushConfig;
pub use routes::RouteConfig;
pub use settings::{REFERENCE, Settings, is_masked, without_secrets};
pub use stores::StoresConfig;
pub use tenant_rules::TenantRuleBook;
pub use tls::TlsFileConfig;
pub use tracing::TracingConfig;

use certificates::CertificateConfig;
use destinations::AtSharedLimitConfig;
pub use destinations::{CompositeConfig, MirroredQueuesConfig, PolicyConfig, VirtualTopicConfig};
pub use tenants::TenantConfig;

/// Everything that can be configured, with its defaults.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Name of the broker.
    pub broker_name: String,
    /// Where messages are kept.
    pub data: PathBuf,
    /// The address to listen on.
    pub bind: IpAddr,
    /// Added to every port.
    pub port_offset: u16,
    /// For all of the broker, in bytes.
    pub memory_bytes: u64,
    /// Where messages go that can never be processed.
    pub dead_letter_queue: String,
    /// Ports, before the offset.
    pub ports: Ports,
    /// Certificates.
    pub tls: TlsFileConfig,
    /// Who is let in.
    pub security: SecurityConfig,
    /// Where messages are kept beside `data`, and disk space.
    pub store: StoresConfig,
    /// Encryption at rest.
    pub encryption: EncryptionConfig,
    /// Threads and partitions.
    pub runtime: RuntimeConfig,
    /// The nodes that keep the same messages.
    pub cluster: ClusterConfig,
    /// OpenWire alone.
    pub openwire: OpenWireConfig,
    /// AMQP alone.
    pub amqp: AmqpConfig,
    /// Queues over HTTP.
    pub http: HttpConfig,
    /// Push queues over HTTP.
    pub push: PushConfig,
    /// Bounds.
    pub limits: Limits,
    /// Policies of destinations, by pattern.
    pub policy: Vec<PolicyConfig>,
    /// Who owns which destinations.
    pub tenant: Vec<TenantConfig>,
    /// Conditions that operators are notified of.
    pub alert: Vec<AlertConfig>,
    /// Topics that feed queues.
    pub virtual_topic: Vec<VirtualTopicConfig>,
    /// Addresses that forward their messages to others.
    pub composite: Vec<CompositeConfig>,
    /// Rules that move or copy messages to other addresses.
    pub route: Vec<RouteConfig>,
    /// Links to other brokers.
    pub bridge: Vec<BridgeConfig>,
    /// Queues with a topic for those who look on.
    pub mirrored_queues: MirroredQueuesConfig,
}

/// The clients that a broker lets in without a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenTo {
    /// Those that send no user name.
    Unnamed,
    /// All of this machine.
    Machine,
    /// All of the network.
    Network,
}

/// Ports, before the offset.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Ports {
    /// OpenWire.
    pub openwire: u16,
    /// OpenWire by TLS; `None` for the default.
    openwire_tls: Option<u16>,
    /// AMQP 1.0.
    pub amqp: u16,
    /// AMQP 1.0 by TLS; `None` for the default.
    amqp_tls: Option<u16>,
    /// AMQP 1.0 inside of WebSockets.
    pub amqp_websocket: u16,
    /// The same by TLS; `None` for the default.
    amqp_websocket_tls: Option<u16>,
    /// Metrics and health.
    pub http: u16,
}

/// Who is let in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SecurityConfig {
    /// The file of users; empty to admit all clients.
    users: PathBuf,
    /// With users, whether those are let in too who do not say who they are.
    anonymous: bool,
    /// Whether metrics need a user with `admin` everywhere.
    metrics_login: bool,
    /// Which user may do which action; none for every action to every client.
    permission: Vec<PermissionConfig>,
    /// Groups of users.
    group: Vec<GroupConfig>,
    /// Tokens of an identity provider in place of passwords.
    pub oidc: OidcConfig,
    /// Users of a directory.
    pub ldap: LdapConfig,
    /// Which users certificates of clients stand for.
    certificate: Vec<CertificateConfig>,
}

/// Threads and partitions.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RuntimeConfig {
    /// Threads that serve connections.
    pub cores: u16,
    /// Partitions of a new store; an existing store keeps its number.
    pub partitions: u16,
    /// Whether each thread stays on one processor.
    pub pin: bool,
    /// Traces of messages.
    pub tracing: TracingConfig,
}

/// OpenWire alone.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OpenWireConfig {
    /// Largest frame that a client may send.
    pub max_frame_bytes: u64,
    /// Offer the tight encoding.
    pub tight_encoding: bool,
    /// Offer marshalling caches.
    pub cache: bool,
    /// A client that is silent for this time is considered dead; 0 for never.
    pub max_inactivity_ms: i64,
    /// Where clients and other brokers reach this broker; empty for the address of the port.
    pub published_url: String,
    /// The swimlane that this broker belongs to; empty for none.
    pub swimlane: String,
    /// Tell `failover:` clients of the brokers that this one is linked to.
    pub update_clients: bool,
    /// Take brokers whose link has ended off the list.
    pub update_clients_on_remove: bool,
    /// Names of the brokers that clients are offered, with `*`; empty for all.
    pub update_clients_filter: Vec<String>,
    /// Ask some clients to move when another broker has fewer.
    pub rebalance_clients: bool,
}

/// AMQP alone.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AmqpConfig {
    /// Largest frame that a client may send.
    pub max_frame_bytes: u32,
    /// Largest message that a client may send, in as many frames as it takes.
    pub max_message_bytes: u64,
    /// A client that is silent for this time is considered dead; 0 for never.
    pub max_inactivity_ms: u64,
}

/// Bounds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Bytes that a transaction may hold before it commits.
    pub transaction_bytes: u64,
    /// How long a transaction may be open until it is prepared, in milliseconds; 0 for ever.
    transaction_ms: u64,
    /// Bytes that may wait in one connection's outbox.
    pub outbox_bytes: u64,
    /// From this size on a message is passed on in pieces, and is never in memory as a whole.
    pub large_message_bytes: u64,
    /// Bytes of messages that all topics keep for later subscribers.
    pub retroactive_bytes: u64,
    /// Producers whose last message is remembered.
    pub audited_producers: usize,
    /// Messages that all queues together may hold; 0 for any number.
    messages_max: u64,
    /// Bytes of their bodies; 0 for any number.
    bytes_max: u64,
    /// The reaction to these limits.
    at_limit: AtSharedLimitConfig,
    /// How long sends wait before they fail.
    at_limit_wait_ms: u64,
    /// How long a durable subscription may be without a reader, in milliseconds; 0 for ever.
    offline_subscription_ms: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            broker_name: "postroad".to_owned(),
            data: PathBuf::from("data"),
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port_offset: 0,
            memory_bytes: memory::machine_bytes() / 4,
            dead_letter_queue: "ActiveMQ.DLQ".to_owned(),
            ports: Ports::default(),
            tls: TlsFileConfig::default(),
            security: SecurityConfig::default(),
            store: StoresConfig::default(),
            encryption: EncryptionConfig::default(),
            runtime: RuntimeConfig::default(),
            cluster: ClusterConfig::default(),
            openwire: OpenWireConfig::default(),
            amqp: AmqpConfig::default(),
            http: HttpConfig::default(),
            push: PushConfig::default(),
            limits: Limits::default(),
            policy: Vec::new(),
            tenant: Vec::new(),
            alert: Vec::new(),
            virtual_topic: vec![VirtualTopicConfig::default()],
            composite: Vec::new(),
            route: Vec::new(),
            bridge: Vec::new(),
            mirrored_queues: MirroredQueuesConfig::default(),
        }
    }
}

impl Default for Ports {
    fn default() -> Ports {
        Ports {
            openwire: 61616,
            openwire_tls: None,
            amqp: 5672,
            amqp_tls: None,
            amqp_websocket: 61614,
            amqp_websocket_tls: None,
            http: 8161,
        }
    }
}

impl Ports {
    /// OpenWire by TLS.
    pub fn openwire_tls(&self) -> u16 {
        self.openwire_tls.unwrap_or(61617)
    }

    /// AMQP 1.0 by TLS.
    pub fn amqp_tls(&self) -> u16 {
        self.amqp_tls.unwrap_or(5671)
    }

    /// AMQP 1.0 inside of WebSockets, by TLS.
    pub fn amqp_websocket_tls(&self) -> u16 {
        self.amqp_websocket_tls.unwrap_or(61619)
    }

    /// A TLS port that the file sets, and its key.
    fn tls_port_set(&self) -> Option<(&'static str, u16)> {
        let set = [
            ("openwire_tls", self.openwire_tls),
            ("amqp_tls", self.amqp_tls),
            ("amqp_websocket_tls", self.amqp_websocket_tls),
        ];
        set.into_iter().find_map(|(key, port)| Some((key, port?)))
    }
}

impl Default for RuntimeConfig {
    fn default() -> RuntimeConfig {
        // One processor is left to the journal and the clients' other needs.
        let processors =
            std::thread::available_parallelism().map_or(1, |processors| processors.get().min(64));
        let cores = processors.saturating_sub(1).max(1) as u16;
        RuntimeConfig { cores, partitions: 1, pin: false, tracing: TracingConfig::default() }
    }
}

impl Default for OpenWireConfig {
    fn default() -> OpenWireConfig {
        OpenWireConfig {
            max_frame_bytes: 100 << 20,
            tight_encoding: false,
            cache: false,
            max_inactivity_ms: 30_000,
            published_url: String::new(),
            swimlane: String::new(),
            update_clients: false,
            update_clients_on_remove: false,
            update_clients_filter: Vec::new(),
            rebalance_clients: false,
        }
    }
}

impl Default for AmqpConfig {
    fn default() -> AmqpConfig {
        AmqpConfig { max_frame_bytes: 1 << 20, max_message_bytes: 100 << 20, max_inactivity_ms: 60_000 }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            transaction_bytes: 256 << 20,
            transaction_ms: 0,
            outbox_bytes: 1 << 20,
            large_message_bytes: 1 << 20,
            retroactive_bytes: 64 << 20,
            audited_producers: 10_000,
            messages_max: 0,
            bytes_max: 0,
            at_limit: AtSharedLimitConfig::Block,
            at_limit_wait_ms: 0,
            offline_subscription_ms: 0,
        }
    }
}

impl Limits {
    /// The limit, if there is one.
    pub fn transaction_ms_max(&self) -> Option<u64> {
        Some(self.transaction_ms).filter(|&limit_ms| limit_ms != 0)
    }

    /// How much all queues together may hold.
    fn shared(&self) -> Limit {
        let some = |max: u64| Some(max).filter(|max| *max > 0);
        Limit {
            messages_max: some(self.messages_max),
            bytes_max: some(self.bytes_max),
            action: self.at_limit.into(),
            wait_ms: self.at_limit_wait_ms,
            ..Limit::default()
        }
    }
}

/// Half of it holds bodies; less would read every other message back from disk.
const MEMORY_BYTES_MIN: u64 = 1 << 20;

/// Smaller ones are no burden, and would take more records than they are worth.
const LARGE_MESSAGE_BYTES_MIN: u64 = 512 << 10;

/// OpenWire's sizes of frames have 31 bits.
const FRAME_BYTES_MAX: u64 = i32::MAX as u64;

/// The size of a message has 32 bits in snapshots, and includes the bytes ahead of its body.
const MESSAGE_BYTES_MAX: u64 = 3 << 30;

/// A message that is confirmed before its sync is lost with the machine: a minute of them is the
/// most that anyone would accept.
const ASYNC_SYNC_MS_MAX: u64 = 60_000;

/// The file of tokens in the data directory.
const TOKENS_FILE: &str = "tokens";

/// Tenants that were made while the broker ran, in the data directory.
const TENANTS_FILE: &str = "tenants";

/// Routes and alerts that tenants have declared, in the data directory.
const TENANT_RULES_FILE: &str = "tenant-rules";

/// The document of the users, whatever the name of their file is.
const USERS: &str = "users";

/// A greeting and a small message fit in it.
const FRAME_BYTES_MIN: u64 = 1024;

impl Config {
    /// Reads the file, if there is one, and the options of the command line, which take precedence.
    ///
    /// # Errors
    /// The file cannot be read, or has an unknown key or a wrong value: the error names the line
    /// and the nearest known key.
    pub fn load(arguments: &ServeArguments) -> anyhow::Result<Config> {
        let config = match &arguments.config {
            Some(file) => Config::read(file)?,
            None => Config::default(),
        };
        config.overruled(arguments)
    }

    /// As [`Config::load`], of the text of a file.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn load_text(text: &str, arguments: &ServeArguments) -> anyhow::Result<Config> {
        Config::parse(text)?.overruled(arguments)
    }

    /// Under the options of the command line, and checked.
    fn overruled(mut self, arguments: &ServeArguments) -> anyhow::Result<Config> {
        let config = &mut self;
        if let Some(data) = &arguments.data {
            config.data.clone_from(data);
        }
        if let Some(bind) = arguments.bind {
            config.bind = bind;
        }
        if let Some(offset) = arguments.port_offset {
            config.port_offset = offset;
        }
        if let Some(bytes) = arguments.memory {
            config.memory_bytes = bytes;
        }
        config.security.anonymous |= arguments.anonymous;
        config.cluster.follow(arguments);
        config.follow_store();
        config.check()?;
        config.check_reach()?;
        Ok(self)
    }

    /// Names the file of users of another configuration.
    pub fn keep_users_of(&mut self, other: &Config) {
        self.security.users.clone_from(&other.security.users);
    }

    /// Checks that no type makes: numbers with which a broker would be unusable.
    fn check(&self) -> anyhow::Result<()> {
        let OpenWireConfig { max_frame_bytes, max_inactivity_ms, .. } = self.openwire;
        for (key, value, least) in [
            ("memory_bytes", self.memory_bytes, MEMORY_BYTES_MIN),
            ("runtime.cores", self.runtime.cores.into(), 1),
            ("runtime.partitions", self.runtime.partitions.into(), 1),
            ("openwire.max_frame_bytes", max_frame_bytes, FRAME_BYTES_MIN),
            ("amqp.max_frame_bytes", self.amqp.max_frame_bytes.into(), FRAME_BYTES_MIN),
            ("amqp.max_message_bytes", self.amqp.max_message_bytes, FRAME_BYTES_MIN),
            ("store.async_sync_ms", self.store.main.async_sync_ms, 1),
            ("limits.transaction_bytes", self.limits.transaction_bytes, 1),
            ("limits.outbox_bytes", self.limits.outbox_bytes, WRITTEN_STEP_BYTES),
            ("limits.large_message_bytes", self.limits.large_message_bytes, LARGE_MESSAGE_BYTES_MIN),
        ] {
            if value < least {
                bail!("configuration: {key} is {value}; the least is {least}");
            }
        }
        for (key, value, most) in [
            ("openwire.max_frame_bytes", max_frame_bytes, FRAME_BYTES_MAX),
            ("amqp.max_message_bytes", self.amqp.max_message_bytes, MESSAGE_BYTES_MAX),
            ("store.async_sync_ms", self.store.main.async_sync_ms, ASYNC_SYNC_MS_MAX),
        ] {
            if most < value {
                bail!("configuration: {key} is {value}; the most is {most}");
            }
        }
        self.store.check(&self.data)?;
        if max_inactivity_ms < 0 {
            bail!("configuration: openwire.max_inactivity_ms is {max_inactivity_ms}; use 0 to disable it");
        }
        if let (None, Some((key, port))) = (self.tls.files()?, self.ports.tls_port_set()) {
            bail!(
                "configuration: ports.{key} is {port}, but [tls] names no certificate: set tls.certificate and \
                 tls.key, or remove ports.{key}"
            );
        }
        self.addressing()?;
        self.bridges()?;
        self.security.oidc.check()?;
        self.security.ldap.check()?;
        if self.security.metrics_login && !self.asks_login() {
            bail!("configuration: security.metrics_login needs users: see security.users");
        }
        self.check_certificates()?;
        self.runtime.tracing.check()?;
        self.check_spreading()?;
        self.check_cluster()?;
        self.alert_rules()?;
        self.encryption.check(&self.policies()?.tenants)
    }

    /// Without users only this machine is served, unless the network is meant.
    fn check_reach(&self) -> anyhow::Result<()> {
        let bind = self.bind;
        if self.open_to() != Some(OpenTo::Network) || self.security.anonymous {
            return Ok(());
        }
        bail!(
            "configuration: bind is {bind}, and without users every client of the network is let in: set \
             security.users to the file of `postroad user add`, or [security.oidc], \
             [security.ldap], [[security.certificate]] or security.anonymous = true to allow that"
        );
    }

    /// Whether clients have to log in.
    fn asks_login(&self) -> bool {
        self.users_file().is_some() || self.has_other_logins()
    }

    /// Whether users log in that are not in the file of users.
    fn has_other_logins(&self) -> bool {
        let SecurityConfig { oidc, ldap, certificate, .. } = &self.security;
        oidc.is_set() || ldap.is_set() || !certificate.is_empty()
    }

    /// The clients that are let in without a password; `None` if no client is.
    pub fn open_to(&self) -> Option<OpenTo> {
        match (self.asks_login(), self.security.anonymous) {
            (true, false) => None,
            (true, true) => Some(OpenTo::Unnamed),
            (false, _) if self.bind.is_loopback() => Some(OpenTo::Machine),
            (false, _) => Some(OpenTo::Network),
        }
    }

    /// Certificates and keys for TLS listeners; `None` if no certificate is named.
    ///
    /// # Errors
    /// A file is missing, cannot be used, or does not match another.
    pub fn tls(&self) -> anyhow::Result<Option<TlsConfig>> {
        let files = self.tls.files()?;
        files.map(|files| postroad_security::tls::load(&files)).transpose().context("[tls]")
    }

    /// The keys of the store.
    ///
    /// # Errors
    /// One cannot be read, is none, or is named twice.
    pub fn keys(&self) -> anyhow::Result<StoreKeys> {
        self.encryption.keys()
    }

    /// Checks a file as `serve` does, with the files that it names.
    ///
    /// # Errors
    /// As [`Config::load`]; or a named file of users, keys or certificates cannot be used.
    pub fn check_file(file: &Path) -> anyhow::Result<Config> {
        let config = Config::of(Some(file))?;
        config.check_reach()?;
        config.tls().and_then(|_| config.runtime.tracing.headers())?;
        config.users_of(config.users_text(&config.documents()).as_ref())?;
        config.keys()?;
        Ok(config)
    }

    /// The configuration of a file, for commands that need no more of it; without a file the
    /// defaults.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn of(file: Option<&Path>) -> anyhow::Result<Config> {
        let config = file.map_or_else(|| Ok(Config::default()), Config::read)?;
        config.check()?;
        Ok(config)
    }

    /// Where the texts of users, tokens and tenants are.
    pub fn documents(&self) -> Arc<Documents> {
        let is_node = !self.cluster.node.is_empty();
        Arc::new(if is_node { Documents::replicated() } else { Documents::default() })
    }

    /// A text whose file is in the data directory, under the name of the document.
    pub fn text(&self, name: &'static str, documents: &Arc<Documents>) -> Text {
        Text::new(name, &self.data.join(name), documents)
    }

    /// The tokens of users.
    ///
    /// # Errors
    /// The text cannot be read.
    pub fn tokens(&self, documents: &Arc<Documents>) -> anyhow::Result<TokenBook> {
        Ok(TokenBook::open(self.text(TOKENS_FILE, documents))?)
    }

    /// Tenants that were made while the broker ran.
    ///
    /// # Errors
    /// The text cannot be read.
    pub fn made_tenants(&self, documents: &Arc<Documents>) -> anyhow::Result<TenantBook> {
        Ok(TenantBook::open(self.text(TENANTS_FILE, documents))?)
    }

    /// Routes and alerts that tenants have declared.
    ///
    /// # Errors
    /// The text cannot be read.
    pub fn tenant_rules(&self, documents: &Arc<Documents>) -> anyhow::Result<TenantRuleBook> {
        TenantRuleBook::open(self.text(TENANT_RULES_FILE, documents))
    }

    /// The users, if any are configured.
    pub fn users_text(&self, documents: &Arc<Documents>) -> Option<UserFile> {
        self.users_file().map(|file| UserFile::new(Text::new(USERS, file, documents)))
    }

    /// The file of users, if there is one.
    pub fn users_file(&self) -> Option<&Path> {
        Some(&*self.security.users).filter(|file| !file.as_os_str().is_empty())
    }

    /// The rules of alerts.
    ///
    /// # Errors
    /// One is incomplete or malformed.
    pub fn alert_rules(&self) -> anyhow::Result<Vec<AlertRule>> {
        alerts::rules(&self.alert)
    }

    /// Clients must not be sent to an address that means another machine for each of them.
    fn check_spreading(&self) -> anyhow::Result<()> {
        let OpenWireConfig { published_url, update_clients, rebalance_clients, swimlane, .. } =
            &self.openwire;
        if *rebalance_clients && !update_clients {
            bail!("configuration: openwire.rebalance_clients needs openwire.update_clients = true");
        }
        if published_url.is_empty() && *update_clients && self.bind.is_unspecified() {
            let bind = self.bind;
            bail!(
                "configuration: openwire.update_clients needs openwire.published_url while bind is {bind}; \
                 use published_url = \"tcp://HOST:PORT\""
            );
        }
        let is_url = published_url.contains("://") && !published_url.contains([',', ' ']);
        if !published_url.is_empty() && !is_url {
            bail!("configuration: openwire.published_url is {published_url:?}; use tcp://HOST:PORT");
        }
        let legal = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '-' | '_' | '.');
        if !swimlane.chars().all(legal) {
            bail!("configuration: openwire.swimlane is {swimlane:?}; use letters, digits, '-', '_' and '.'");
        }
        Ok(())
    }

    /// The links to other brokers.
    ///
    /// # Errors
    /// A link's settings are missing or contradict each other.
    pub fn bridges(&self) -> anyhow::Result<Vec<Bridge>> {
        self.bridges_of_store(bridges::bridges(&self.bridge)?)
    }

    /// Rules by which names decide where addresses live and which topics feed them.
    ///
    /// # Errors
    /// A pattern cannot be read, or a rule would make a topic feed queues that the rule cannot tell
    /// apart from it.
    pub fn addressing(&self) -> anyhow::Result<Addressing> {
        let mut addressing =
            destinations::addressing(&self.virtual_topic, &self.composite, &self.mirrored_queues)?;
        addressing.homes = self.homes()?;
        Ok(addressing)
    }

    /// Which addresses live in which store.
    fn homes(&self) -> anyhow::Result<Homes> {
        let mut homes = Homes::default();
        for (number, config) in (1..).zip(&self.policy) {
            config
                .place(&self.store, &mut homes)
                .with_context(|| format!("configuration: store of [[policy]] {number}"))?;
        }
        // In a cluster it is one of the stores of that.
        let placed = self.tenant.iter().filter(|_| self.cluster.node.is_empty());
        for (number, config) in (1..).zip(placed) {
            config
                .place(&self.store, &mut homes)
                .with_context(|| format!("configuration: store of [[tenant]] {number}"))?;
        }
        Ok(homes)
    }

    /// Policies of destinations; all of them can be replaced while the broker runs.
    ///
    /// # Errors
    /// A pattern cannot be read, or two tenants would own the same.
    pub fn policies(&self) -> anyhow::Result<Policies> {
        let mut policies = destinations::policies(&self.policy, &self.dead_letter_queue)?;
        policies.limit = self.limits.shared();
        policies.offline_subscription_ms = Some(self.limits.offline_subscription_ms).filter(|ms| 0 < *ms);
        let addressing =
            destinations::addressing(&self.virtual_topic, &self.composite, &self.mirrored_queues)?;
        policies.routes = Arc::new(routes::routes(&self.route, &addressing)?);
        let (permission, group) = (&self.security.permission, &self.security.group);
        let mut permissions = permissions::permissions(permission, group, self.asks_login())?;
        let has_federation = self.security.oidc.is_set() || self.security.ldap.is_set();
        if has_federation || self.certificate_rules()?.have_groups() {
            permissions.expect_federation();
        }
        policies.permissions = permissions.into();
        tenants::add_all(&self.tenant, &mut policies)?;
        if let Some(places) = self.store_places()? {
            Arc::make_mut(&mut policies.permissions).place(places);
        }
        Ok(policies)
    }

    fn read(file: &Path) -> anyhow::Result<Config> {
        let text =
            std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        Config::parse(&text).with_context(|| format!("in {}", file.display()))
    }

    /// Checks the text of a configuration whose files of passwords and certificates may not exist
    /// yet.
    ///
    /// # Errors
    /// The error that the same text in a file would get.
    pub fn check_text(text: &str) -> anyhow::Result<()> {
        let mut config = Config::parse(text)?;
        config.bridge.iter_mut().for_each(BridgeConfig::forget_files);
        config.check()
    }

    pub(crate) fn parse(text: &str) -> anyhow::Result<Config> {
        toml::from_str(text).map_err(|error| {
            let known = nearest_key(error.message());
            let hint = known.map(|known| format!("\ndid you mean `{known}`?")).unwrap_or_default();
            anyhow::anyhow!("{}{hint}", error.to_string().trim_end())
        })
    }

    /// A port with the offset added.
    ///
    /// # Errors
    /// There is no such port.
    pub fn port(&self, port: u16) -> anyhow::Result<u16> {
        match port.checked_add(self.port_offset) {
            Some(port) => Ok(port),
            None => bail!("port {port} with offset {} exceeds 65535", self.port_offset),
        }
    }
}

/// The known key that an unknown one comes nearest to, from serde's message, which quotes both in
/// back-ticks.
fn nearest_key(message: &str) -> Option<String> {
    if !message.starts_with("unknown field") {
        return None;
    }
    let mut quoted = message.split('`').skip(1).step_by(2);
    let unknown = quoted.next()?;
    nearest(unknown, quoted).map(str::to_owned)
}

/// The known name that an unknown one comes nearest to, if it is near enough to have been meant.
pub fn nearest<'n>(unknown: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let distance = |known: &str| strsim::damerau_levenshtein(unknown, known);
    known.min_by_key(|known| distance(known)).filter(|known| distance(known) <= unknown.len().div_ceil(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_overrules_defaults_and_nothing_else() {
        for (case, text, want) in [
            ("empty", "", Config::default()),
            ("top level", "port_offset = 7", Config { port_offset: 7, ..Config::default() }),
            (
                "table",
                "[ports]\nopenwire = 1234",
                Config { ports: Ports { openwire: 1234, ..Ports::default() }, ..Config::default() },
            ),
        ] {
            assert_eq!(Config::parse(text).unwrap(), want, "case: {case}");
        }
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line_and_the_nearest_known_one() {
        for (case, text, want) in [
            ("mistyped", "port_ofset = 7", "did you mean `port_offset`?"),
            ("in a table", "[openwire]\nmax_frame_byte = 1", "did you mean `max_frame_bytes`?"),
            ("line", "bind = \"127.0.0.1\"\ncolour = 1", "line 2"),
            ("wrong type", "port_offset = \"x\"", "invalid type"),
        ] {
            let error = format!("{:#}", Config::parse(text).unwrap_err());
            assert!(error.contains(want), "case: {case}: {error}");
        }
        let error = format!("{:#}", Config::parse("colour = 1").unwrap_err());
        assert!(!error.contains("did you mean"), "nothing is near: {error}");
    }

    #[test]
    fn numbers_that_make_no_broker_are_refused_by_name() {
        for (text, want) in [
            ("memory_bytes = 0", "memory_bytes is 0; the least is 1048576"),
            ("[runtime]\ncores = 0", "runtime.cores is 0; the least is 1"),
            ("[runtime]\npartitions = 0", "runtime.partitions is 0; the least is 1"),
            ("[openwire]\nmax_frame_bytes = 0", "openwire.max_frame_bytes is 0; the least is 1024"),
            ("[openwire]\nmax_inactivity_ms = -1", "openwire.max_inactivity_ms is -1; use 0 to disable it"),
            (
                "[openwire]\nrebalance_clients = true",
                "openwire.rebalance_clients needs openwire.update_clients = true",
            ),
            (
                "bind = \"0.0.0.0\"\n[openwire]\nupdate_clients = true",
                "openwire.update_clients needs openwire.published_url while bind is 0.0.0.0; use published_url = \"tcp://HOST:PORT\"",
            ),
            (
                "[openwire]\npublished_url = \"east:61616\"",
                "openwire.published_url is \"east:61616\"; use tcp://HOST:PORT",
            ),
            (
                "[openwire]\nswimlane = \"a b\"",
                "openwire.swimlane is \"a b\"; use letters, digits, '-', '_' and '.'",
            ),
            ("[amqp]\nmax_frame_bytes = 0", "amqp.max_frame_bytes is 0; the least is 1024"),
            ("[amqp]\nmax_message_bytes = 1", "amqp.max_message_bytes is 1; the least is 1024"),
            ("[limits]\ntransaction_bytes = 0", "limits.transaction_bytes is 0; the least is 1"),
            ("[limits]\noutbox_bytes = 262143", "limits.outbox_bytes is 262143; the least is 262144"),
            ("[store]\nasync_sync_ms = 0", "store.async_sync_ms is 0; the least is 1"),
            (
                "[ports]\namqp_tls = 5671",
                "ports.amqp_tls is 5671, but [tls] names no certificate: set tls.certificate and tls.key, or remove ports.amqp_tls",
            ),
            ("[tls]\nkey = 'k'", "tls.key needs tls.certificate"),
            ("[tls]\ncertificate = 'c'", "tls.certificate needs tls.key"),
            (
                "[tls]\ncertificate = 'c'\nkey = 'k'\nclients = 'required'",
                "tls.clients is \"required\": it needs tls.client_authorities",
            ),
            (
                "[store]\ndisk_bytes_max = 1000",
                "store.disk_bytes_max is 1000; the least is 268435456, or 0 for no limit",
            ),
        ] {
            let error = Config::parse(text).unwrap().check().unwrap_err();
            assert_eq!(error.to_string(), format!("configuration: {want}"), "case: {text}");
        }
        Config::default().check().unwrap();
        let ports = "[ports]\nopenwire_tls = 1\namqp_tls = 2\namqp_websocket_tls = 3";
        let with_files = format!("{ports}\n[tls]\ncertificate = 'c'\nkey = 'k'");
        Config::parse(&with_files).unwrap().check().unwrap();
    }

    const EXAMPLE: &str = include_str!("../../../docs/postroad.toml");

    #[test]
    fn the_example_file_says_the_defaults() {
        assert_eq!(Config::parse(EXAMPLE).unwrap(), Config::default());
        // Settings that depend on the machine are commented out; uncommented they must be
        // understood too.
        let uncomment =
            |line: &str| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).map(str::to_owned);
        let all: Vec<String> =
            EXAMPLE.lines().map(|line| uncomment(line).unwrap_or_else(|| line.to_owned())).collect();
        let mut all = Config::parse(&all.join("\n")).unwrap();
        all.security.users = "users".into();
        let Config { memory_bytes, runtime: RuntimeConfig { cores, .. }, .. } = Config::default();
        let runtime = RuntimeConfig { cores, ..all.runtime.clone() };
        let fallback = Config::default().policies().unwrap().fallback().clone();
        let shown = all.policies().unwrap();
        assert_eq!(*shown.of(&postroad_model::Destination::queue("orders.new")), fallback);
        assert_eq!(all.addressing().unwrap().composites.len(), 1);
        assert_eq!(shown.tenants.iter().count(), 1);
        assert!(all.encryption.has_tenant_keys());
        assert_eq!(all.alert_rules().unwrap().len(), 1);
        assert_eq!(all.bridge.len(), 1);
        assert_eq!(shown.routes.rules().count(), 1);
        assert!(!shown.permissions.permit_all());
        let default = Ports::default();
        assert_eq!(all.ports.openwire_tls, Some(default.openwire_tls()));
        assert_eq!(all.ports.amqp_tls, Some(default.amqp_tls()));
        assert_eq!(all.ports.amqp_websocket_tls, Some(default.amqp_websocket_tls()));
        let (policy, tenant, alert, composite) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let without = Config {
            memory_bytes,
            ports: default,
            runtime,
            policy,
            tenant,
            alert,
            encryption: EncryptionConfig::default(),
            composite,
            bridge: Vec::new(),
            route: Vec::new(),
            security: SecurityConfig::default(),
            ..all
        };
        assert_eq!(without, Config::default());
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let mut arguments = ServeArguments::default();
        assert_eq!(Config::load(&arguments).unwrap(), Config::default());
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "memory_bytes = 4194304\nport_offset = 3").unwrap();
        arguments.config = Some(file.path().to_owned());
        let of_file = Config { memory_bytes: 4 << 20, port_offset: 3, ..Config::default() };
        assert_eq!(Config::load(&arguments).unwrap(), of_file);
        arguments.memory = Some(64 << 20);
        assert_eq!(Config::load(&arguments).unwrap(), Config { memory_bytes: 64 << 20, ..of_file });
        arguments.memory = Some(1);
        let error = Config::load(&arguments).unwrap_err().to_string();
        assert_eq!(error, "configuration: memory_bytes is 1; the least is 1048576");
    }

    #[test]
    fn without_users_only_a_loopback_address_is_served_unless_that_is_meant() {
        let everywhere = Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("postroad.toml");
        let (users, anonymous) = ("[security]\nusers = \"users\"\n", "[security]\nanonymous = true\n");
        for (text, bind, flag, want) in [
            ("", None, false, Ok(Some(OpenTo::Machine))),
            ("bind = \"::1\"\n", None, false, Ok(Some(OpenTo::Machine))),
            ("", everywhere, false, Err("without users every client of the network is let in")),
            ("bind = \"10.0.0.1\"\n", None, false, Err("bind is 10.0.0.1")),
            ("", everywhere, true, Ok(Some(OpenTo::Network))),
            (anonymous, everywhere, false, Ok(Some(OpenTo::Network))),
            (users, everywhere, false, Ok(None)),
            (users, everywhere, true, Ok(Some(OpenTo::Unnamed))),
        ] {
            std::fs::write(&file, text).unwrap();
            let config = Some(file.clone());
            let got = Config::load(&ServeArguments { config, bind, anonymous: flag, ..Default::default() });
            match (got, want) {
                (Ok(got), Ok(want)) => assert_eq!(got.open_to(), want, "{text:?} {bind:?}"),
                (Err(error), Err(want)) => assert!(error.to_string().contains(want), "{error}"),
                (got, want) => panic!("{text:?} {bind:?}: {got:?}, want {want:?}"),
            }
        }
    }

    /// The keys that are understood in a table, as the error about an unknown one lists them.
    fn known_keys(table: &str) -> Vec<String> {
        let headers = match table {
            "" => vec![String::new()],
            table => vec![format!("[{table}]\n"), format!("[[{table}]]\n")],
        };
        let message = |header: &String| {
            let error = toml::from_str::<Config>(&format!("{header}no-such-key = 1")).unwrap_err();
            Some(error.message().strip_prefix("unknown field `no-such-key`")?.to_owned())
        };
        let keys = headers.iter().find_map(message).unwrap_or_default();
        keys.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn the_example_file_has_every_key() {
        let mut keys = Vec::new();
        for key in known_keys("") {
            let inner = known_keys(&key);
            if inner.is_empty() {
                keys.push((String::new(), key));
            } else {
                keys.extend(inner.into_iter().map(|inner| (key.clone(), inner)));
            }
        }
        assert!(keys.len() > 10, "{keys:?}");
        for (table, key) in keys {
            let find = |header: String| EXAMPLE.find(&header);
            let start = match table.as_str() {
                "" => Some(0),
                table => find(format!("\n[{table}]\n"))
                    .or_else(|| find(format!("\n[[{table}]]\n")))
                    .or_else(|| find(format!("\n#[[{table}]]\n"))),
            };
            let text = &EXAMPLE[start.unwrap_or_else(|| panic!("no table [{table}]"))..];
            let text = text[1..].split("\n[").next().unwrap_or_default();
            let text = text.split("\n#[").next().unwrap_or_default();
            let says = |line: &str| line.trim_start_matches('#').starts_with(&format!("{key} = "));
            let inner = known_keys(&format!("{table}.{key}"));
            let is_table = ["#[[", "["]
                .iter()
                .zip(["]]", "]"])
                .any(|(open, close)| EXAMPLE.contains(&format!("\n{open}{table}.{key}{close}\n")));
            assert!(is_table || text.lines().any(says), "no key `{key}` in [{table}]");
            let says_inner = |key: &String| {
                EXAMPLE.contains(&format!("\n#{key} = ")) || EXAMPLE.contains(&format!("\n{key} = "))
            };
            assert!(inner.iter().all(says_inner), "a key of {inner:?} in [[{table}.{key}]]");
        }
    }

    #[test]
    fn ports_end_at_65535() {
        let config = Config { port_offset: 5000, ..Config::default() };
        assert_eq!(config.port(60_535).ok(), Some(65_535));
        assert!(config.port(61_616).is_err());
    }
}
