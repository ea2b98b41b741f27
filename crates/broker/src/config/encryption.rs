//! Keys of the store: where they come from, and what is wrong with one that is none.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};
use postroad_journal::{KEY_BYTES, Key, KeySet, Keys};
use serde::Deserialize;

/// Others than owner and group may read, write or run a file.
const OTHERS: u32 = 0o007;

/// Longest text of a key: nobody means a file that is longer.
const TEXT_BYTES_MAX: u64 = 1024;

/// Keys of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EncryptionConfig {
    /// A file with the key for all that is new; empty for no encryption, unless a variable is named.
    key_file: PathBuf,
    /// An environment variable with it instead.
    key_env: String,
    /// Files with keys that were replaced.
    former_key_files: Vec<PathBuf>,
    /// Environment variables with such.
    former_key_envs: Vec<String>,
}

impl EncryptionConfig {
    /// Whether it says where one key is, and not twice.
    ///
    /// # Errors
    /// What is said twice.
    pub fn check(&self) -> anyhow::Result<()> {
        if !self.key_file.as_os_str().is_empty() && !self.key_env.is_empty() {
            bail!(
                "configuration: encryption.key_file and encryption.key_env both name the key; keep one of them"
            );
        }
        Ok(())
    }

    /// All keys.
    ///
    /// # Errors
    /// A key cannot be read or is none, or others may read its file.
    pub fn keys(&self) -> anyhow::Result<Keys> {
        self.check()?;
        let files = self.former_key_files.iter().map(|file| key_in_file(file));
        let former = files.chain(self.former_key_envs.iter().map(|name| key_in_variable(name)));
        let current = match (self.key_file.as_os_str().is_empty(), self.key_env.is_empty()) {
            (false, _) => Some(key_in_file(&self.key_file)?),
            (true, false) => Some(key_in_variable(&self.key_env)?),
            (true, true) => None,
        };
        let own = KeySet { current, former: former.collect::<anyhow::Result<_>>()? };
        let mut ids: Vec<_> = own.current.iter().chain(&own.former).map(Key::id).collect();
        ids.sort();
        if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            bail!("[encryption]: key {} is named twice; a key that was replaced is not used again", twice[0]);
        }
        Ok(Keys::new(own, []))
    }
}

/// The key in a file that only its owner, or its group, may read.
///
/// # Errors
/// There is none, or others may read it. No error shows any of it.
pub fn key_in_file(file: &Path) -> anyhow::Result<Key> {
    use std::os::unix::fs::PermissionsExt;
    let read = || {
        let metadata = std::fs::metadata(file).context("it cannot be read")?;
        let mode = metadata.permissions().mode();
        if mode & OTHERS != 0 {
            bail!("others may use it (mode {:03o}); chmod 600 keeps them out", mode & 0o777);
        }
        if TEXT_BYTES_MAX < metadata.len() {
            bail!("{} bytes are no key", metadata.len());
        }
        key_of(&std::fs::read_to_string(file).context("it cannot be read")?)
    };
    read().with_context(|| format!("key file {}", file.display()))
}

fn key_in_variable(name: &str) -> anyhow::Result<Key> {
    let read = || match std::env::var(name) {
        Ok(text) => key_of(&text),
        Err(std::env::VarError::NotPresent) => bail!("it is not set"),
        Err(std::env::VarError::NotUnicode(_)) => bail!("it is no text"),
    };
    read().with_context(|| format!("key in environment variable {name}"))
}

/// The key of 64 hexadecimal digits, or of base64 for 32 bytes; space around it does not count.
fn key_of(text: &str) -> anyhow::Result<Key> {
    let text = text.trim().as_bytes();
    let bytes = HEXLOWER_PERMISSIVE.decode(text).or_else(|_| BASE64.decode(text));
    let key = bytes.ok().and_then(|bytes| <[u8; KEY_BYTES]>::try_from(bytes).ok());
    match key {
        Some(key) if key.iter().all(|byte| *byte == key[0]) => bail!("all its bytes are alike: {RIGHT}"),
        Some(key) => Ok(Key::new(&key)),
        None => bail!("{} characters that are no key: {RIGHT}", text.len()),
    }
}

const RIGHT: &str =
    "a key is 32 random bytes as 64 hexadecimal digits or as base64; `postroad key new FILE` makes one";

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const HEX: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    const SAME_IN_BASE64: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    #[test]
    fn a_key_is_32_bytes_in_hexadecimal_or_base64() {
        let id = key_of(HEX).unwrap().id();
        for (case, text, want) in [
            ("upper case", HEX.to_uppercase(), Ok(id)),
            ("the end of a line", format!("{HEX}\n"), Ok(id)),
            ("base64", SAME_IN_BASE64.to_owned(), Ok(id)),
            ("too short", HEX[2..].to_owned(), Err(format!("62 characters that are no key: {RIGHT}"))),
            ("too long", format!("{HEX}00"), Err(format!("66 characters that are no key: {RIGHT}"))),
            (
                "a pass phrase",
                "correct horse".to_owned(),
                Err(format!("13 characters that are no key: {RIGHT}")),
            ),
            ("nothing", String::new(), Err(format!("0 characters that are no key: {RIGHT}"))),
            ("zeros", "00".repeat(32), Err(format!("all its bytes are alike: {RIGHT}"))),
        ] {
            let got = key_of(&text).map(|key| key.id()).map_err(|error| error.to_string());
            assert_eq!(got, want, "case: {case}");
        }
    }

    #[test]
    fn a_key_file_is_its_owners_alone() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        let said = |file: &Path| key_in_file(file).map(|_| ()).map_err(|error| format!("{error:#}"));
        let name = format!("key file {}", file.display());
        assert!(said(&file).unwrap_err().starts_with(&format!("{name}: it cannot be read: No such file")));
        std::fs::write(&file, HEX).unwrap();
        for (mode, want) in [
            (0o600, Ok(())),
            (0o440, Ok(())),
            (0o644, Err(format!("{name}: others may use it (mode 644); chmod 600 keeps them out"))),
        ] {
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(said(&file), want, "mode {mode:o}");
        }
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::write(&file, "x".repeat(5000)).unwrap();
        assert_eq!(said(&file), Err(format!("{name}: 5000 bytes are no key")));
    }

    #[test]
    fn keys_are_named_once() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        std::fs::write(&file, HEX).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        let id = key_of(HEX).unwrap().id();
        let of = |config: EncryptionConfig| {
            let keys = config.keys().map_err(|error| format!("{error:#}"));
            keys.map(|keys| (keys.current(), keys.ids().collect::<Vec<_>>()))
        };
        let none = EncryptionConfig::default();
        let missing = "POSTROAD_TEST_NO_SUCH_VARIABLE".to_owned();
        for (case, config, want) in [
            ("no encryption", none.clone(), Ok((None, vec![]))),
            ("a file", EncryptionConfig { key_file: file.clone(), ..none.clone() }, Ok((Some(id), vec![id]))),
            (
                "off, for what is encrypted still",
                EncryptionConfig { former_key_files: vec![file.clone()], ..none.clone() },
                Ok((None, vec![id])),
            ),
            (
                "twice",
                EncryptionConfig { key_file: file.clone(), former_key_files: vec![file.clone()], ..none.clone() },
                Err(format!("[encryption]: key {id} is named twice; a key that was replaced is not used again")),
            ),
            (
                "in two places",
                EncryptionConfig { key_file: file, key_env: missing.clone(), ..none.clone() },
                Err("configuration: encryption.key_file and encryption.key_env both name the key; keep one of them".into()),
            ),
            (
                "not set",
                EncryptionConfig { key_env: missing.clone(), ..none },
                Err(format!("key in environment variable {missing}: it is not set")),
            ),
        ] {
            assert_eq!(of(config), want, "case: {case}");
        }
    }
}
