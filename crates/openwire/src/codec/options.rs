//! The options of one side of a connection: the contents of `WireFormatInfo`.

use bytes::BytesMut;
use postroad_model::Silences;

use super::{Magic, Primitive, PrimitiveMap, VERSION_MAX, WireError, WireFormatInfo};

/// The options in a `WireFormatInfo`. Missing ones are false or 0,
/// as the reference reads it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field is the property of its name; units are in the names")]
pub struct WireFormatOptions {
    /// Highest version this side speaks.
    pub version: i32,
    pub tight_encoding: bool,
    pub cache: bool,
    /// Slots of each marshalling cache; 0 for the default.
    pub cache_size: i32,
    pub size_prefix_disabled: bool,
    pub tcp_no_delay: bool,
    pub stack_traces: bool,
    /// A side that hears nothing for this time closes; 0 for never.
    pub max_inactivity_ms: i64,
    pub max_inactivity_initial_delay_ms: i64,
    /// 0 for no opinion.
    pub max_frame_bytes: i64,
    pub max_frame_size_enabled: bool,
    pub host: Option<String>,
    pub provider_name: Option<String>,
    pub provider_version: Option<String>,
    pub platform_details: Option<String>,
}

impl WireFormatOptions {
    /// The agreed inactivity: the shorter of both values. Each side writes every third of that
    /// time, as ActiveMQ's inactivity monitor does.
    pub fn silences(&self, theirs: &WireFormatOptions) -> Silences {
        let max_ms = u64::try_from(self.max_inactivity_ms.min(theirs.max_inactivity_ms)).ok();
        let peer_ms_max = max_ms.filter(|max| *max > 0);
        Silences { peer_ms_max, peer_from_ms: 0, write_every_ms: peer_ms_max.map(|max| max / 3) }
    }

    /// Options of a broker that passes messages through as they are: loose,
    /// uncached, newest version.
    pub fn pass_through(max_frame_bytes: i64) -> WireFormatOptions {
        WireFormatOptions {
            version: VERSION_MAX.into(),
            tcp_no_delay: true,
            max_inactivity_ms: 30_000,
            max_inactivity_initial_delay_ms: 10_000,
            max_frame_bytes,
            max_frame_size_enabled: true,
            ..WireFormatOptions::default()
        }
    }

    /// Reads a peer's options.
    ///
    /// # Errors
    /// The properties are no primitive map.
    pub fn from_info(info: &WireFormatInfo) -> Result<WireFormatOptions, WireError> {
        let map = match &info.marshalled_properties {
            Some(bytes) => PrimitiveMap::decode(bytes)?,
            None => PrimitiveMap::default(),
        };
        let flag = |name| matches!(map.get(name), Some(Primitive::Boolean(true)));
        let text = |name| match map.get(name) {
            Some(Primitive::String(text)) => Some(text.to_str().into_owned()),
            _ => None,
        };
        Ok(WireFormatOptions {
            version: info.version,
            tight_encoding: flag("TightEncodingEnabled"),
            cache: flag("CacheEnabled"),
            cache_size: i32::try_from(whole_number(&map, "CacheSize")).unwrap_or(i32::MAX),
            size_prefix_disabled: flag("SizePrefixDisabled"),
            tcp_no_delay: flag("TcpNoDelayEnabled"),
            stack_traces: flag("StackTraceEnabled"),
            max_inactivity_ms: whole_number(&map, "MaxInactivityDuration"),
            max_inactivity_initial_delay_ms: whole_number(&map, "MaxInactivityDurationInitalDelay"),
            max_frame_bytes: whole_number(&map, "MaxFrameSize"),
            max_frame_size_enabled: flag("MaxFrameSizeEnabled"),
            host: text("Host"),
            provider_name: text("ProviderName"),
            provider_version: text("ProviderVersion"),
            platform_details: text("PlatformDetails"),
        })
    }

    /// The frame that states these options to a peer.
    ///
    /// # Errors
    /// A text is longer than its length field can say.
    pub fn to_info(&self) -> Result<WireFormatInfo, WireError> {
        let mut map: PrimitiveMap = [
            ("TightEncodingEnabled", Primitive::Boolean(self.tight_encoding)),
            ("CacheEnabled", Primitive::Boolean(self.cache)),
            ("CacheSize", Primitive::Int(self.cache_size)),
            ("SizePrefixDisabled", Primitive::Boolean(self.size_prefix_disabled)),
            ("TcpNoDelayEnabled", Primitive::Boolean(self.tcp_no_delay)),
            ("StackTraceEnabled", Primitive::Boolean(self.stack_traces)),
            ("MaxInactivityDuration", Primitive::Long(self.max_inactivity_ms)),
            ("MaxInactivityDurationInitalDelay", Primitive::Long(self.max_inactivity_initial_delay_ms)),
            ("MaxFrameSize", Primitive::Long(self.max_frame_bytes)),
            ("MaxFrameSizeEnabled", Primitive::Boolean(self.max_frame_size_enabled)),
        ]
        .into_iter()
        .collect();
        for (name, text) in [
            ("Host", &self.host),
            ("ProviderName", &self.provider_name),
            ("ProviderVersion", &self.provider_version),
            ("PlatformDetails", &self.platform_details),
        ] {
            if let Some(text) = text {
                map.0.push((name.into(), Primitive::String(text.as_str().into())));
            }
        }
        let mut bytes = BytesMut::new();
        map.encode(&mut bytes)?;
        Ok(WireFormatInfo {
            magic: Magic,
            version: self.version,
            marshalled_properties: Some(bytes.freeze()),
        })
    }
}

/// Clients in other languages do not agree on the width of these.
fn whole_number(map: &PrimitiveMap, name: &str) -> i64 {
    match map.get(name) {
        Some(Primitive::Long(value)) => *value,
        Some(Primitive::Int(value)) => i64::from(*value),
        Some(Primitive::Short(value)) => i64::from(*value),
        Some(Primitive::Byte(value)) => i64::from(*value),
        _ => 0,
    }
}
