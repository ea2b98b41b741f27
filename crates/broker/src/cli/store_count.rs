//! The number of stores of a node's cluster, as it was when the node was made: another one would
//! leave stores behind, or their clients.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, bail};
use postroad_security::replace_file;
use serde::{Deserialize, Serialize};

use crate::config::Config;

/// The file in the data directory. A node with one store has none.
const FILE: &str = "stores.json";
/// The replica of a node that was started before.
const REPLICA: &str = "replica.json";
const VERSION: u32 = 1;
const FILE_MODE: u32 = 0o644;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    version: u32,
    stores: u16,
}

/// Refuses a number of stores that is not that of the cluster, and records the one of a new node.
///
/// # Errors
/// It is another, or the file cannot be read or written.
pub fn check(config: &Config) -> anyhow::Result<()> {
    if config.cluster.node.is_empty() {
        return Ok(());
    }
    check_in(&config.data, config.cluster.stores)
}

fn check_in(data: &Path, stores: u16) -> anyhow::Result<()> {
    let file = data.join(FILE);
    let recorded = match std::fs::read_to_string(&file) {
        Ok(text) => {
            let Text { version, stores } =
                serde_json::from_str(&text).with_context(|| format!("in {}", file.display()))?;
            if version != VERSION {
                bail!("{}: version {version} is not supported", file.display());
            }
            Some(stores)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => data.join(REPLICA).exists().then_some(1),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", file.display())),
    };
    match recorded {
        Some(recorded) if recorded != stores => bail!(
            "cluster.stores is {stores}, and {} is that of a node with {recorded}: the number is recorded when \
             a cluster is made, and cannot change",
            data.display()
        ),
        None if 1 < stores => {
            std::fs::create_dir_all(data).with_context(|| format!("cannot create {}", data.display()))?;
            let text = serde_json::to_string_pretty(&Text { version: VERSION, stores })?;
            replace_file(&file, &text, FILE_MODE).with_context(|| format!("cannot write {}", file.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_stores_is_that_of_the_first_start() {
        let home = tempfile::tempdir().unwrap();
        let (one, three) = (home.path().join("one"), home.path().join("three"));
        check_in(&one, 1).unwrap();
        assert!(!one.exists(), "a node with one store has no further file");
        std::fs::create_dir(&one).unwrap();
        std::fs::write(one.join(REPLICA), "").unwrap();
        check_in(&one, 1).unwrap();
        check_in(&three, 3).unwrap();
        check_in(&three, 3).unwrap();
        for (data, stores, want) in
            [(&one, 3, "a node with 1:"), (&three, 2, "a node with 3:"), (&three, 1, "a node with 3:")]
        {
            let error = check_in(data, stores).unwrap_err().to_string();
            assert!(error.contains(want) && error.contains("cannot change"), "{error}");
        }
        std::fs::write(three.join(FILE), "{\"version\": 2, \"stores\": 3}").unwrap();
        assert!(check_in(&three, 3).unwrap_err().to_string().contains("version 2"));
    }
}
