//! Profiles of links: defaults for a peer in the same data centre, and for one far away.
//!
//! A key of the `[[bridge]]` wins over its profile.

use serde::Deserialize;

/// The `profile` of a `[[bridge]]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// For any distance: the number of connections follows the round-trip time.
    #[default]
    Auto,
    /// The peer is in the same data centre: a break is short, and is to be noticed soon.
    Lan,
    /// The peer is far away: round trips are long, segments get lost, breaks last.
    Wan,
}

/// The defaults that depend on the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkDefaults {
    /// Connections that share the destinations; 0: as the round-trip time suggests.
    pub links: u16,
    /// Messages in flight for each subscription.
    pub prefetch: u32,
    /// A peer that accepts no connection within this time is tried again later.
    pub connect_ms: u64,
    /// A peer that is silent for this time is gone; `None`: as for all OpenWire connections.
    pub max_inactivity_ms: Option<u64>,
    /// The first pause before a link that ended is opened again.
    pub retry_ms: u64,
    /// The longest pause.
    pub retry_max_ms: u64,
}

impl Profile {
    /// Its name in the configuration and in lists.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Auto => "auto",
            Profile::Lan => "lan",
            Profile::Wan => "wan",
        }
    }

    /// Its defaults.
    pub fn defaults(self) -> LinkDefaults {
        let auto = LinkDefaults {
            links: 0,
            prefetch: 1000,
            connect_ms: 10_000,
            max_inactivity_ms: None,
            retry_ms: 1000,
            retry_max_ms: 30_000,
        };
        match self {
            Profile::Auto => auto,
            Profile::Lan => LinkDefaults {
                links: 1,
                connect_ms: 3000,
                max_inactivity_ms: Some(5000),
                retry_ms: 250,
                retry_max_ms: 5000,
                ..auto
            },
            // 10,000 messages in flight are 100,000 in a second at a round trip of 100 ms.
            Profile::Wan => LinkDefaults {
                links: 4,
                prefetch: 10_000,
                connect_ms: 30_000,
                max_inactivity_ms: Some(30_000),
                retry_max_ms: 60_000,
                ..auto
            },
        }
    }
}
