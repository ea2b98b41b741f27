//! `[store]`, or a `[[store]]` for each if there are several: the directories of messages, and
//! their limits.
//!
//! Never here: the contents of directories.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::bail;
use postroad_routing::MAIN_STORE;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};

use postroad_store::FurtherStore;

/// Four segments of 64 MiB: one that is written, one before it, and two that wait for checkpoints
/// or are compacted.
const DISK_BYTES_MIN: u64 = 256 << 20;

/// Each has a journal with threads of its own.
const STORES_MAX: usize = 64;

/// Names stand in metrics, logs and file names.
const NAME_BYTES_MAX: usize = 64;

/// All stores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoresConfig {
    /// The one in the data directory.
    pub main: StoreConfig,
    /// The others.
    pub further: Vec<FurtherStore>,
}

/// Disk space, and the time of syncs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    /// The limit of all files of the store, in bytes; 0 for the whole disk.
    disk_bytes_max: u64,
    /// The longest time, in any store, until messages that were confirmed before their sync are
    /// synced.
    pub async_sync_ms: u64,
}

impl Default for StoreConfig {
    fn default() -> StoreConfig {
        StoreConfig { disk_bytes_max: 0, async_sync_ms: 100 }
    }
}

impl StoreConfig {
    /// The limit, if there is one.
    pub fn disk_bytes_max(&self) -> Option<u64> {
        Some(self.disk_bytes_max).filter(|&bytes| bytes != 0)
    }
}

/// One `[[store]]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    path: Option<PathBuf>,
    partitions: Option<u16>,
    #[serde(default)]
    disk_bytes_max: u64,
    async_sync_ms: Option<u64>,
}

impl<'de> Deserialize<'de> for StoresConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<StoresConfig, D::Error> {
        deserializer.deserialize_any(OneOrMore)
    }
}

/// The table of the one, or a list.
struct OneOrMore;

impl<'de> Visitor<'de> for OneOrMore {
    type Value = StoresConfig;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the table [store], or a [[store]] for each store")
    }

    fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<StoresConfig, M::Error> {
        let main = StoreConfig::deserialize(MapAccessDeserializer::new(map))?;
        Ok(StoresConfig { main, further: Vec::new() })
    }

    fn visit_seq<S: SeqAccess<'de>>(self, list: S) -> Result<StoresConfig, S::Error> {
        let entries = Vec::<Entry>::deserialize(SeqAccessDeserializer::new(list))?;
        let mut stores = StoresConfig::default();
        for (number, entry) in (1..).zip(entries) {
            let wrong = |reason: &str| de::Error::custom(format!("[[store]] {number}: {reason}"));
            stores.add(entry).map_err(|reason| wrong(&reason))?;
        }
        Ok(stores)
    }
}

impl StoresConfig {
    fn add(&mut self, entry: Entry) -> Result<(), String> {
        let Entry { name, path, partitions, disk_bytes_max, async_sync_ms } = entry;
        if name == MAIN_STORE {
            if path.is_some() || partitions.is_some() {
                return Err(format!(
                    "{MAIN_STORE} is the store in the data directory: set its path with `data` and its partitions with `runtime.partitions`"
                ));
            }
            let fallback = StoreConfig::default().async_sync_ms;
            self.main = StoreConfig { disk_bytes_max, async_sync_ms: async_sync_ms.unwrap_or(fallback) };
            return Ok(());
        }
        let Some(path) = path.filter(|path| !path.as_os_str().is_empty()) else {
            return Err(format!("{name} needs a path to a directory of its own"));
        };
        if async_sync_ms.is_some() {
            return Err(format!("async_sync_ms applies to all stores; set it in {MAIN_STORE}"));
        }
        let partitions = partitions.unwrap_or(1);
        let disk_bytes_max = Some(disk_bytes_max).filter(|&bytes| bytes != 0);
        self.further.push(FurtherStore { name, path, partitions, disk_bytes_max });
        Ok(())
    }

    /// Checks that types cannot express. `data` is the data directory.
    ///
    /// # Errors
    /// The fault, by its key.
    pub fn check(&self, data: &Path) -> anyhow::Result<()> {
        let mut taken = vec![(MAIN_STORE, data, self.main.disk_bytes_max())];
        for FurtherStore { name, path, partitions, disk_bytes_max } in &self.further {
            let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_".contains(letter);
            if name.is_empty() || NAME_BYTES_MAX < name.len() || !name.chars().all(plain) {
                bail!(
                    "configuration: the name of a [[store]] is {name:?}; it has 1 to {NAME_BYTES_MAX} letters, digits, - and _"
                );
            }
            if let Some((other, ..)) = taken.iter().find(|(other, at, _)| other == name || at == path) {
                bail!("configuration: the [[store]] {name} has the name or the path of {other}");
            }
            if *partitions == 0 {
                bail!("configuration: partitions of the [[store]] {name} is 0; the least is 1");
            }
            taken.push((name, path, *disk_bytes_max));
        }
        if STORES_MAX < taken.len() {
            bail!("configuration: there are {} stores; the most is {STORES_MAX}", taken.len());
        }
        for (name, _, bytes) in taken {
            let Some(bytes) = bytes.filter(|&bytes| bytes < DISK_BYTES_MIN) else { continue };
            let key = if name == MAIN_STORE { "store".to_owned() } else { format!("store {name}") };
            bail!(
                "configuration: {key}.disk_bytes_max is {bytes}; the least is {DISK_BYTES_MIN}, or 0 for no limit"
            );
        }
        Ok(())
    }

    /// Whether there is a store of this name.
    ///
    /// # Errors
    /// There is none: with those that there are.
    pub fn check_name(&self, name: &str) -> anyhow::Result<()> {
        let mut names = vec![MAIN_STORE];
        names.extend(self.further.iter().map(|store| store.name.as_str()));
        if !names.contains(&name) {
            bail!("there is no store {name:?}; there are {}", names.join(", "));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    const PAGE: &str = include_str!("../../../../docs/features/stores.md");

    fn further(name: &str, path: &str, partitions: u16, disk_bytes_max: Option<u64>) -> FurtherStore {
        FurtherStore { name: name.to_owned(), path: PathBuf::from(path), partitions, disk_bytes_max }
    }

    #[test]
    fn one_store_is_a_table_and_several_are_a_list() {
        for (case, text, want) in [
            ("none", "", StoresConfig::default()),
            (
                "one",
                "[store]\ndisk_bytes_max = 7",
                StoresConfig {
                    main: StoreConfig { disk_bytes_max: 7, ..StoreConfig::default() },
                    further: Vec::new(),
                },
            ),
            (
                "several",
                "[[store]]\nname = 'fast'\npath = '/fast'\npartitions = 2\ndisk_bytes_max = 9\n\
                 [[store]]\nname = 'main'\nasync_sync_ms = 5\n[[store]]\nname = 'b'\npath = 'b'",
                StoresConfig {
                    main: StoreConfig { disk_bytes_max: 0, async_sync_ms: 5 },
                    further: vec![further("fast", "/fast", 2, Some(9)), further("b", "b", 1, None)],
                },
            ),
        ] {
            assert_eq!(Config::parse(text).unwrap().store, want, "case: {case}");
        }
    }

    #[test]
    fn what_makes_no_store_is_refused_by_its_name() {
        let fast = "[[store]]\nname = 'fast'\npath = '/fast'\n";
        for (text, want) in [
            ("[[store]]\nname = 'a'", "[[store]] 1: a needs a path to a directory of its own"),
            ("[[store]]\nname = 'main'\npath = 'x'", "[[store]] 1: main is the store in the data directory"),
            ("[[store]]\nname = 'a'\npath = 'a'\nasync_sync_ms = 1", "async_sync_ms applies to all stores"),
            ("[[store]]\npath = 'x'", "missing field `name`"),
            ("[[store]]\nname = 'a'\nplace = 'x'", "did you mean `name`"),
            ("store = 7", "the table [store], or a [[store]] for each store"),
            ("[[store]]\nname = 'a b'\npath = 'x'", "the name of a [[store]] is \"a b\""),
            ("[[store]]\nname = 'a'\npath = 'data'", "the [[store]] a has the name or the path of main"),
            ("[[store]]\nname = 'fast'\npath = 'x'", "the [[store]] fast has the name or the path of fast"),
            ("[[store]]\nname = 'a'\npath = 'x'\npartitions = 0", "partitions of the [[store]] a is 0"),
            (
                "[[store]]\nname = 'a'\npath = 'x'\ndisk_bytes_max = 5",
                "store a.disk_bytes_max is 5; the least is 268435456, or 0 for no limit",
            ),
            (
                "[[policy]]\ndestination = 'queue://a'\nstore = 'fats'",
                "store of [[policy]] 1: there is no store \"fats\"; there are main, fast",
            ),
            (
                "[[tenant]]\nname = 't'\ndestinations = ['queue://a']\nstore = 'fats'",
                "store of [[tenant]] 1: there is no store \"fats\"; there are main, fast",
            ),
        ] {
            let text = if text.starts_with("store") { text.to_owned() } else { format!("{fast}{text}") };
            let text = if want.contains("[[store]] 1") { text.replace(fast, "") } else { text };
            let checked = Config::parse(&text).and_then(|config| config.check());
            let error = format!("{:#}", checked.unwrap_err());
            assert!(error.contains(want), "case: {text}: {error}");
        }
    }

    #[test]
    fn the_example_of_the_page_is_understood() {
        let example = PAGE.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
        let config = Config::parse(example).unwrap();
        config.check().unwrap();
        let want = vec![
            further("fast", "/mnt/nvme/postroad", 2, None),
            further("bulk", "/mnt/disks/postroad", 1, Some(500_000_000_000)),
        ];
        assert_eq!(config.store.further, want);
        for key in ["name", "path", "partitions", "disk_bytes_max", "async_sync_ms"] {
            assert!(example.contains(&format!("{key} = ")), "{key}");
        }
    }
}
