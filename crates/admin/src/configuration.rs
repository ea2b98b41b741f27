//! The seam to the configuration of the broker: orders, and their answers. The assembly, which
//! reads the file, carries them out.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Carries out orders about the configuration, one after the other.
pub type Configuration = Arc<
    dyn Fn(
            ConfigurationOrder,
        ) -> Pin<Box<dyn Future<Output = Result<ConfigurationAnswer, ConfigurationFault>> + Send>>
        + Send
        + Sync,
>;

/// An order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigurationOrder {
    /// The settings in force.
    Get,
    /// The difference between the file and the settings in force.
    Diff,
    /// The changes that another configuration would make.
    Plan(ConfigurationSource),
    /// That another configuration takes the place of the file and is followed.
    Apply(ConfigurationSource, ConfigurationAuthor),
    /// That the file as it is now is followed.
    Reload(ConfigurationAuthor),
    /// The versions that are kept, the newest first.
    History,
    /// One version, with its text.
    Version(u64),
}

/// Where a configuration comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigurationSource {
    /// The text of a file.
    Text(String),
    /// A version that is kept.
    Version(u64),
}

/// Who changes the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigurationAuthor {
    /// The user, if its name is known.
    pub user: Option<String>,
    /// From where.
    pub peer: String,
}

/// The answer to an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigurationAnswer {
    /// Of `Get`, by key.
    Settings(Vec<Setting>),
    /// Of `Diff`, `Plan`, `Apply` and `Reload`.
    Plan(ConfigurationPlan),
    /// Of `History`.
    Versions(Vec<ConfigurationVersion>),
    /// Of `Version`; secrets are masked in the text.
    Version(ConfigurationVersion, String),
}

/// Why an order was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigurationFault {
    /// The configuration is invalid.
    Invalid(String),
    /// The broker is not in a state for this order.
    Conflict(String),
    /// There is no such version.
    Missing(String),
    /// A file cannot be read or written.
    Failed(String),
    /// The broker is shutting down.
    Ended,
}

/// Where the value of a key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SettingOrigin {
    /// The key is not in the file.
    Default,
    /// The configuration file.
    File,
    /// An option of `postroad serve`.
    CommandLine,
}

/// One key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// As `limits.messages_max`, or `route[orders].from` for an element of a list.
    pub key: String,
    /// As TOML; secrets are masked.
    pub value: String,
    /// Where it comes from.
    pub origin: SettingOrigin,
    /// Whether a change of it is followed at the next start only.
    pub needs_restart: bool,
}

/// The change of one key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SettingChange {
    /// As in [`Setting`]; `policy[]` for the order of a list.
    pub key: String,
    /// The value in force; none for a key without one.
    pub from: Option<String>,
    /// The value after the change.
    pub to: Option<String>,
    /// Whether it is followed at the next start only.
    pub needs_restart: bool,
}

/// Changes of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigurationPlan {
    /// The configuration file; none if the broker has none.
    pub file: Option<String>,
    /// The newest version that is kept; of a change that was applied, its own.
    pub version: u64,
    /// By key.
    pub changes: Vec<SettingChange>,
}

/// A version that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigurationVersion {
    /// Rises by one with each.
    pub version: u64,
    /// When it came into force, in milliseconds since 1970.
    pub at_ms: u64,
    /// `start`, `reload` or `apply`.
    pub cause: String,
    /// Keys that it changed.
    pub changes: u64,
    /// Who it was; unknown of a start and a signal.
    pub author: Option<ConfigurationAuthor>,
}
