//! Keys of the store: their sources, and the errors of a malformed one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use data_encoding::{BASE64, HEXLOWER_PERMISSIVE};
use postroad_journal::{KEY_BYTES, Key, KeyId, KeySet, Keys};
use postroad_routing::Tenants;
use serde::Deserialize;

use crate::config::secrets::{text_in_file, text_in_variable};

/// Keys of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EncryptionConfig {
    /// A file with the key for all that is new; empty for no encryption, unless a variable is
    /// named.
    key_file: PathBuf,
    /// An environment variable with it instead.
    key_env: String,
    /// Files with keys that were replaced.
    former_key_files: Vec<PathBuf>,
    /// Environment variables with such.
    former_key_envs: Vec<String>,
    /// Whether a store in which something is not encrypted is refused.
    required: bool,
    /// Keys of tenants.
    tenant_key: Vec<TenantKeyConfig>,
}

/// One `[[encryption.tenant_key]]`: the keys of a tenant; the other fields are those of
/// [`EncryptionConfig`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TenantKeyConfig {
    /// The name of a `[[tenant]]`.
    tenant: String,
    key_file: PathBuf,
    key_env: String,
    former_key_files: Vec<PathBuf>,
    former_key_envs: Vec<String>,
}

/// All keys of a store.
#[derive(Clone, Debug)]
pub struct StoreKeys {
    /// Keys that the journal may need.
    pub journal: Keys,
    /// The current keys of those tenants that have one of their own.
    pub tenants: BTreeMap<Arc<str>, KeyId>,
}

/// Where the keys of one owner are.
struct KeyPlaces<'c> {
    file: &'c Path,
    variable: &'c str,
    former_files: &'c [PathBuf],
    former_variables: &'c [String],
}

impl KeyPlaces<'_> {
    fn check(&self) -> anyhow::Result<()> {
        if !self.file.as_os_str().is_empty() && !self.variable.is_empty() {
            bail!("key_file and key_env are both set; set one of them");
        }
        Ok(())
    }

    fn names_key(&self) -> bool {
        !self.file.as_os_str().is_empty() || !self.variable.is_empty()
    }

    fn read(&self) -> anyhow::Result<KeySet> {
        let current = match (self.names_key(), self.variable) {
            (false, _) => None,
            (true, "") => Some(key_in_file(self.file)?),
            (true, variable) => Some(key_in_variable(variable)?),
        };
        let files = self.former_files.iter().map(|file| key_in_file(file));
        let former = files.chain(self.former_variables.iter().map(|name| key_in_variable(name)));
        Ok(KeySet { current, former: former.collect::<anyhow::Result<_>>()? })
    }
}

impl TenantKeyConfig {
    fn places(&self) -> KeyPlaces<'_> {
        KeyPlaces {
            file: &self.key_file,
            variable: &self.key_env,
            former_files: &self.former_key_files,
            former_variables: &self.former_key_envs,
        }
    }
}

impl EncryptionConfig {
    fn places(&self) -> KeyPlaces<'_> {
        KeyPlaces {
            file: &self.key_file,
            variable: &self.key_env,
            former_files: &self.former_key_files,
            former_variables: &self.former_key_envs,
        }
    }

    /// Checks that each key has one source and one owner.
    ///
    /// # Errors
    /// A key with two sources, or of an unknown tenant.
    pub fn check(&self, tenants: &Tenants) -> anyhow::Result<()> {
        self.places().check().context("configuration: [encryption]")?;
        if self.required && !self.places().names_key() {
            bail!("configuration: encryption.required is true, but [encryption] has no key");
        }
        let mut names = BTreeSet::new();
        for (number, keys) in (1..).zip(&self.tenant_key) {
            let mut check = || {
                keys.places().check()?;
                if tenants.named(&keys.tenant).is_none() {
                    bail!("there is no [[tenant]] {:?}", keys.tenant);
                }
                if !names.insert(&keys.tenant) {
                    bail!("the keys of {} are set twice", keys.tenant);
                }
                if keys.places().names_key() && !self.places().names_key() {
                    bail!(
                        "[encryption] has no key: it is needed for data that belongs to no single tenant (names, states, pieces of large bodies)"
                    );
                }
                Ok(())
            };
            check().with_context(|| format!("configuration: [[encryption.tenant_key]] {number}"))?;
        }
        Ok(())
    }

    /// Whether any tenant has keys of its own.
    pub fn has_tenant_keys(&self) -> bool {
        !self.tenant_key.is_empty()
    }

    /// All keys.
    ///
    /// # Errors
    /// A key cannot be read or is none, or others may read its file, or it is named twice.
    pub fn keys(&self) -> anyhow::Result<StoreKeys> {
        let own = self.places().read()?;
        let mut sets = Vec::new();
        let mut current = BTreeMap::new();
        for keys in &self.tenant_key {
            let set = keys.places().read()?;
            current.extend(set.current.as_ref().map(|key| (Arc::from(keys.tenant.as_str()), key.id())));
            sets.push(set);
        }
        let all = std::iter::once(&own).chain(&sets).flat_map(|set| set.current.iter().chain(&set.former));
        let mut ids: Vec<KeyId> = all.map(Key::id).collect();
        ids.sort();
        if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
            bail!("[encryption]: key {} is named twice; a former key cannot be the current one", twice[0]);
        }
        let keys = Keys::new(own, sets);
        let journal = if self.required { keys.requiring_encryption() } else { keys };
        Ok(StoreKeys { journal, tenants: current })
    }
}

/// The key in a file that only its owner, or its group, may read.
///
/// # Errors
/// There is none, or others may read it. No error shows any of it.
pub fn key_in_file(file: &Path) -> anyhow::Result<Key> {
    let read = || key_of(&text_in_file(file, "key")?);
    read().with_context(|| format!("key file {}", file.display()))
}

fn key_in_variable(name: &str) -> anyhow::Result<Key> {
    let read = || key_of(&text_in_variable(name)?);
    read().with_context(|| format!("key in environment variable {name}"))
}

/// The key of 64 hexadecimal digits, or of base64 for 32 bytes; space around it does not count.
fn key_of(text: &str) -> anyhow::Result<Key> {
    let text = text.trim().as_bytes();
    let bytes = HEXLOWER_PERMISSIVE.decode(text).or_else(|_| BASE64.decode(text));
    let key = bytes.ok().and_then(|bytes| <[u8; KEY_BYTES]>::try_from(bytes).ok());
    match key {
        Some(key) if key.iter().all(|byte| *byte == key[0]) => bail!("all its bytes are equal: {RIGHT}"),
        Some(key) => Ok(Key::new(&key)),
        None => bail!("{} characters that are not a key: {RIGHT}", text.len()),
    }
}

const RIGHT: &str =
    "a key is 32 random bytes as 64 hexadecimal digits or as base64; `postroad key new FILE` creates one";

#[cfg(test)]
mod tests {
    use super::*;
    use postroad_routing::{Limit, Tenant};
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
            ("too short", HEX[2..].to_owned(), Err(format!("62 characters that are not a key: {RIGHT}"))),
            ("too long", format!("{HEX}00"), Err(format!("66 characters that are not a key: {RIGHT}"))),
            (
                "a pass phrase",
                "correct horse".to_owned(),
                Err(format!("13 characters that are not a key: {RIGHT}")),
            ),
            ("nothing", String::new(), Err(format!("0 characters that are not a key: {RIGHT}"))),
            ("zeros", "00".repeat(32), Err(format!("all its bytes are equal: {RIGHT}"))),
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
            (0o644, Err(format!("{name}: other users can access it (mode 644); run chmod 600"))),
        ] {
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(said(&file), want, "mode {mode:o}");
        }
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        std::fs::write(&file, "x".repeat(5000)).unwrap();
        assert_eq!(said(&file), Err(format!("{name}: 5000 bytes are not a key")));
    }

    #[test]
    fn keys_are_named_once() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        std::fs::write(&file, HEX).unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        let id = key_of(HEX).unwrap().id();
        let mut tenants = Tenants::default();
        tenants.add(Tenant::new("acme", Limit::default()), &[]).unwrap();
        let of = |config: EncryptionConfig, tenant_key: Vec<TenantKeyConfig>| {
            let config = EncryptionConfig { tenant_key, ..config };
            let keys = config.check(&tenants).and_then(|()| config.keys());
            let keys = keys.map_err(|error| format!("{error:#}"))?;
            Ok::<_, String>((keys.journal.current(), keys.journal.ids().collect::<Vec<_>>(), keys.tenants))
        };
        let tenant = |name: &str, key_file: &Path| TenantKeyConfig {
            tenant: name.to_owned(),
            key_file: key_file.to_owned(),
            ..TenantKeyConfig::default()
        };
        let other = directory.path().join("other");
        std::fs::write(&other, "ab".repeat(16) + &"cd".repeat(16)).unwrap();
        std::fs::set_permissions(&other, PermissionsExt::from_mode(0o600)).unwrap();
        let other_id = key_in_file(&other).unwrap().id();
        let both = {
            let mut both = vec![id, other_id];
            both.sort();
            both
        };
        let no_tenants = BTreeMap::new();
        let none = EncryptionConfig::default();
        let missing = "POSTROAD_TEST_NO_SUCH_VARIABLE".to_owned();
        let own = EncryptionConfig { key_file: file.clone(), ..none.clone() };
        let twice = format!("[encryption]: key {id} is named twice; a former key cannot be the current one");
        let wrong = |what: &str| Err(format!("configuration: {what}"));
        for (case, config, tenant_keys, want) in [
            ("no encryption", none.clone(), vec![], Ok((None, vec![], no_tenants.clone()))),
            ("a file", own.clone(), vec![], Ok((Some(id), vec![id], no_tenants.clone()))),
            (
                "off, for what is encrypted still",
                EncryptionConfig { former_key_files: vec![file.clone()], ..none.clone() },
                vec![],
                Ok((None, vec![id], no_tenants)),
            ),
            (
                "twice",
                EncryptionConfig { former_key_files: vec![file.clone()], ..own.clone() },
                vec![],
                Err(twice.clone()),
            ),
            (
                "in two places",
                EncryptionConfig { key_env: missing.clone(), ..own.clone() },
                vec![],
                wrong("[encryption]: key_file and key_env are both set; set one of them"),
            ),
            (
                "not set",
                EncryptionConfig { key_env: missing.clone(), ..none.clone() },
                vec![],
                Err(format!("key in environment variable {missing}: it is not set")),
            ),
            (
                "a tenant's",
                own.clone(),
                vec![tenant("acme", &other)],
                Ok((Some(id), both, BTreeMap::from([("acme".into(), other_id)]))),
            ),
            (
                "a tenant's alone",
                none,
                vec![tenant("acme", &other)],
                wrong(
                    "[[encryption.tenant_key]] 1: [encryption] has no key: it is needed for data that belongs to no single tenant (names, states, pieces of large bodies)",
                ),
            ),
            (
                "nobody's",
                own.clone(),
                vec![tenant("lab", &other)],
                wrong("[[encryption.tenant_key]] 1: there is no [[tenant]] \"lab\""),
            ),
            (
                "a tenant's twice",
                own.clone(),
                vec![tenant("acme", &other), tenant("acme", &other)],
                wrong("[[encryption.tenant_key]] 2: the keys of acme are set twice"),
            ),
            ("a tenant's is everybody's", own, vec![tenant("acme", &file)], Err(twice)),
        ] {
            assert_eq!(of(config, tenant_keys), want, "case: {case}");
        }
    }
}
