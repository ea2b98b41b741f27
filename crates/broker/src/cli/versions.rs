//! Versions of the configuration, kept in the data directory: a file for each, readable by its
//! owner only, since texts may have secrets.

use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use postroad_admin::ConfigurationVersion;
use postroad_security::replace_file;
use serde::{Deserialize, Serialize};

/// Versions that are kept; beyond that the oldest are removed.
pub const VERSIONS_MAX: usize = 50;

/// A larger text is not a configuration.
pub const TEXT_BYTES_MAX: usize = 1 << 20;

/// The directory of the versions, in the data directory.
const FOLDER: &str = "configuration";

/// The versions of one broker.
pub struct Versions(PathBuf);

/// A version with its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptVersion {
    #[serde(flatten)]
    pub about: ConfigurationVersion,
    /// The configuration file as it was; empty without a file.
    pub text: String,
}

impl Versions {
    /// In this data directory.
    pub fn new(data: &Path) -> Versions {
        Versions(data.join(FOLDER))
    }

    /// The number of the newest; 0 if there is none.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn newest(&self) -> anyhow::Result<u64> {
        Ok(self.numbers()?.last().copied().unwrap_or(0))
    }

    /// All of them, the newest first. A file that cannot be read is left out.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn all(&self) -> anyhow::Result<Vec<ConfigurationVersion>> {
        let numbers = self.numbers()?;
        Ok(numbers.into_iter().rev().filter_map(|number| Some(self.read(number).ok()?.about)).collect())
    }

    /// One of them; `None` if it is not kept.
    ///
    /// # Errors
    /// Its file cannot be read.
    pub fn find(&self, number: u64) -> anyhow::Result<Option<KeptVersion>> {
        match self.numbers()?.binary_search(&number) {
            Ok(_) => self.read(number).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Keeps a version, which gets the next number. On success it is durable.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn add(&self, mut version: KeptVersion) -> anyhow::Result<u64> {
        let builder = &mut std::fs::DirBuilder::new();
        let place = || format!("cannot write to {}", self.0.display());
        builder.recursive(true).mode(0o700).create(&self.0).with_context(place)?;
        let numbers = self.numbers()?;
        version.about.version = numbers.last().map_or(1, |last| last + 1);
        replace(&self.file(version.about.version), &serde_json::to_string_pretty(&version)?, 0o600)?;
        let surplus = (numbers.len() + 1).saturating_sub(VERSIONS_MAX);
        for number in numbers.into_iter().take(surplus) {
            // A version too many is no harm.
            let _ = std::fs::remove_file(self.file(number));
        }
        Ok(version.about.version)
    }

    fn read(&self, number: u64) -> anyhow::Result<KeptVersion> {
        let file = self.file(number);
        let place = || format!("cannot read {}", file.display());
        let text = std::fs::read_to_string(&file).with_context(place)?;
        serde_json::from_str(&text).with_context(place)
    }

    fn file(&self, number: u64) -> PathBuf {
        self.0.join(format!("{number:08}.json"))
    }

    /// The numbers of all, in order.
    fn numbers(&self) -> anyhow::Result<Vec<u64>> {
        let entries = match std::fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", self.0.display())),
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut numbers: Vec<u64> =
            names.filter_map(|name| name.strip_suffix(".json")?.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }
}

fn replace(file: &Path, text: &str, mode: u32) -> anyhow::Result<()> {
    replace_file(file, text, mode).with_context(|| format!("cannot write {}", file.display()))
}

/// Replaces the content of a configuration file, which keeps its mode. A link keeps naming its
/// file.
///
/// # Errors
/// It cannot be written; the old content is still there.
pub fn replace_configuration(file: &Path, text: &str) -> anyhow::Result<()> {
    let target = file.canonicalize().with_context(|| format!("cannot read {}", file.display()))?;
    let mode = std::fs::metadata(&target).map(|metadata| metadata.mode() & 0o777);
    replace(&target, text, mode.unwrap_or(0o600))
}

/// Refuses a text that is too long.
///
/// # Errors
/// With its length.
pub fn check_length(text: &str) -> anyhow::Result<()> {
    if TEXT_BYTES_MAX < text.len() {
        bail!("the configuration has {} bytes; the most is {TEXT_BYTES_MAX}", text.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn version(text: &str) -> KeptVersion {
        let cause = "start".to_owned();
        let about = ConfigurationVersion { version: 0, at_ms: 7, cause, changes: 0, author: None };
        KeptVersion { about, text: text.to_owned() }
    }

    #[test]
    fn the_newest_versions_are_kept_for_their_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let versions = Versions::new(folder.path());
        assert_eq!((versions.newest().unwrap(), versions.find(1).unwrap()), (0, None));
        for number in 1..=VERSIONS_MAX as u64 + 3 {
            assert_eq!(versions.add(version(&format!("text {number}"))).unwrap(), number);
        }
        let all: Vec<u64> = versions.all().unwrap().into_iter().map(|version| version.version).collect();
        assert_eq!(all, (4..=VERSIONS_MAX as u64 + 3).rev().collect::<Vec<_>>());
        assert_eq!(versions.find(4).unwrap().unwrap().text, "text 4");
        assert_eq!(versions.find(3).unwrap(), None);
        let mode = std::fs::metadata(versions.file(4)).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(versions.file(5), "x").unwrap();
        assert_eq!(versions.all().unwrap().len(), VERSIONS_MAX - 1, "a damaged one is left out");
        assert!(versions.find(5).unwrap_err().to_string().contains("00000005.json"));
    }

    #[test]
    fn a_configuration_file_keeps_its_mode_and_its_link() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("real.toml"), folder.path().join("link.toml"));
        std::fs::write(&file, "a").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace_configuration(&link, "b").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "b");
        assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}
