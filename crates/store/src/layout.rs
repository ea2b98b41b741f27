//! The layout of a store's directory: the broker that it belongs to, and its partitions.
//!
//! Never here: journals, and the contents of partitions.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use postroad_journal::Ways;
use postroad_model::{PartitionId, PartitionRange, Placement};
use serde::{Deserialize, Serialize};

use crate::store::StoreError;

/// The file beside the journal that says how the directory is laid out.
pub const LAYOUT_FILE: &str = "layout.json";

/// The version of the layout; any other is refused.
const LAYOUT_VERSION: u32 = 1;

/// Number of random bytes of an identity.
const IDENTITY_BYTES: usize = 16;

/// Facts of a store's directory that never change after it was made, but for `starts`, and further
/// stores that are added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    version: u32,
    /// How many partitions it has.
    pub partitions: u16,
    /// How often it was opened: makes the transaction ids of each run its own.
    pub starts: u64,
    /// Distinguishes the store from all others; made with the first further store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// The further stores that belong to it, by their partitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stores: Vec<FurtherLayout>,
    /// The main store that it belongs to, if it is a further store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub further: Option<StoreMembership>,
    /// How its journal is written, if not as usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    written: Option<Written>,
}

/// As [`Ways`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    direct: bool,
    one_call: bool,
    zeroed: bool,
}

/// A store beside the main one, as that remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FurtherLayout {
    /// Its name.
    pub name: String,
    /// Its own [`Layout::identity`].
    pub identity: String,
    /// The first of its partitions.
    pub first: u16,
    /// How many it has.
    pub partitions: u16,
    /// Its directory is lost: the next start creates it in an empty one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub given_up: bool,
}

impl FurtherLayout {
    /// Its partitions.
    pub fn range(&self) -> PartitionRange {
        PartitionRange { first: PartitionId(self.first), count: self.partitions }
    }
}

/// Membership of a further store, as its own layout states it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoreMembership {
    /// Its name.
    pub name: String,
    /// The identity of the main store.
    pub of: String,
    /// The first of its partitions.
    pub first: u16,
}

impl Layout {
    /// Of a data directory.
    pub fn new(partitions: u16, starts: u64) -> Layout {
        let (identity, stores, further, written) = (None, Vec::new(), None, None);
        let (version, partitions) = (LAYOUT_VERSION, partitions.max(1));
        Layout { version, partitions, starts, identity, stores, further, written }
    }

    /// The same, of a store whose journal is written so.
    pub fn written(self, ways: Ways) -> Layout {
        let Ways { direct, one_call, zeroed } = ways;
        let written = Written { direct, one_call, zeroed };
        Layout { written: (ways != Ways::default()).then_some(written), ..self }
    }

    /// How its journal is written: as usual, unless something else was found to be better when it
    /// was made.
    pub fn ways(&self) -> Ways {
        let ways = |Written { direct, one_call, zeroed }| Ways { direct, one_call, zeroed };
        self.written.map_or_else(Ways::default, ways)
    }

    /// The layout for a copy of all stores: an identity is replaced by another, the same in all
    /// layouts that are given the same `fresh`. So a store of the copy is never taken for one of
    /// the original.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub fn copied(mut self, fresh: &mut BTreeMap<String, String>) -> io::Result<Layout> {
        let of = self.further.iter_mut().map(|further| &mut further.of);
        let listed = self.stores.iter_mut().map(|store| &mut store.identity);
        for identity in self.identity.iter_mut().chain(of).chain(listed) {
            if !fresh.contains_key(identity) {
                fresh.insert(identity.clone(), new_identity()?);
            }
            identity.clone_from(&fresh[identity]);
        }
        Ok(self)
    }

    /// The partitions that live in it.
    pub fn range(&self) -> PartitionRange {
        let first = self.further.as_ref().map_or(0, |further| further.first);
        PartitionRange { first: PartitionId(first), count: self.partitions }
    }

    /// The number after the last partition of all its stores.
    pub fn end(&self) -> u16 {
        self.stores.iter().map(|store| store.range().end()).fold(self.range().end(), u16::max)
    }

    /// Places of all partitions known here. The distribution of names over other stores is unknown
    /// here, and not needed.
    pub fn placement(&self) -> Placement {
        let hashed = if self.further.is_some() { self.range().first.0 } else { self.partitions };
        Placement { partitions: self.end(), hashed }
    }

    /// The layout in the directory; `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError::LayoutVersion`]; [`StoreError::Layout`] if it is damaged; [`StoreError::Io`].
    pub fn find(directory: &Path) -> Result<Option<Layout>, StoreError> {
        let file = directory.join(LAYOUT_FILE);
        match std::fs::read(&file) {
            Ok(bytes) => read_layout(&file, &bytes).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StoreError::Io { file, source }),
        }
    }

    /// Makes it the layout of the directory, durably.
    ///
    /// # Errors
    /// [`StoreError::Io`]: the former layout is unchanged.
    pub fn write(&self, directory: &Path) -> Result<(), StoreError> {
        let file = directory.join(LAYOUT_FILE);
        let io = |source| StoreError::Io { file: file.clone(), source };
        let text = serde_json::to_vec_pretty(self).map_err(|error| io(error.into()))?;
        let fresh = directory.join(unfinished());
        write_synced(&fresh, &text).map_err(io)?;
        std::fs::rename(&fresh, &file).map_err(io)?;
        std::fs::File::open(directory).and_then(|directory| directory.sync_all()).map_err(io)
    }
}

/// The layout's name while it is written.
pub fn unfinished() -> String {
    format!("{LAYOUT_FILE}.new")
}

/// A new identity, unlike any other.
///
/// # Errors
/// The system has no random bytes.
pub fn new_identity() -> io::Result<String> {
    let mut bytes = [0; IDENTITY_BYTES];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(data_encoding::HEXLOWER.encode(&bytes))
}

fn write_synced(file: &Path, text: &[u8]) -> io::Result<()> {
    use std::io::Write;
    let mut file = std::fs::File::create(file)?;
    file.write_all(text)?;
    file.sync_all()
}

/// Reads a layout file.
///
/// # Errors
/// [`StoreError::LayoutVersion`]; [`StoreError::Layout`] if it is damaged.
pub fn read_layout(file: &Path, bytes: &[u8]) -> Result<Layout, StoreError> {
    let wrong = |reason: String| StoreError::Layout { file: file.to_owned(), reason };
    // The version comes first: the other fields of a newer version are unknown.
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|error| wrong(error.to_string()))?;
    let known = LAYOUT_VERSION;
    match value.get("version").and_then(serde_json::Value::as_u64) {
        Some(version) if version == u64::from(known) => {}
        Some(found) => return Err(StoreError::LayoutVersion { file: PathBuf::from(file), found, known }),
        None => return Err(wrong("it has no layout version".to_owned())),
    }
    let layout: Layout = serde_json::from_value(value).map_err(|error| wrong(error.to_string()))?;
    if layout.partitions == 0 || layout.stores.iter().any(|store| store.partitions == 0) {
        return Err(wrong("partitions is 0; the minimum is 1".to_owned()));
    }
    let mut next = layout.range().end();
    for store in &layout.stores {
        if store.first != next || store.range().end() == u16::MAX {
            return Err(wrong(format!("the partitions of {} do not start at {next}", store.name)));
        }
        next = store.range().end();
    }
    if layout.further.as_ref().is_some_and(|further| further.first == 0 || !layout.stores.is_empty()) {
        return Err(wrong(
            "a further store cannot list further stores or contain the first partition".to_owned(),
        ));
    }
    Ok(layout)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(first: u16, partitions: u16) -> FurtherLayout {
        FurtherLayout { name: "fast".into(), identity: "f".into(), first, partitions, given_up: false }
    }

    fn read(text: &str) -> Result<Layout, String> {
        read_layout(Path::new("layout.json"), text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_layout_is_written_and_read() {
        let directory = tempfile::tempdir().unwrap();
        Layout::new(3, 7).write(directory.path()).unwrap();
        let text = std::fs::read_to_string(directory.path().join(LAYOUT_FILE)).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value, serde_json::json!({"version": 1, "partitions": 3, "starts": 7}));
        let further = listed(3, 2);
        let identity = Some("m".to_owned());
        let layout = Layout { identity, stores: vec![further], ..Layout::new(3, 7) };
        layout.write(directory.path()).unwrap();
        assert_eq!(Layout::find(directory.path()).unwrap(), Some(layout.clone()));
        assert_eq!((layout.end(), layout.placement()), (5, Placement { partitions: 5, hashed: 3 }));
        assert_eq!(Layout::find(&directory.path().join("none")).unwrap(), None);
    }

    #[test]
    fn stores_of_a_copy_belong_together_and_to_nobody_else() {
        let main = Layout { identity: Some("m".into()), stores: vec![listed(1, 1)], ..Layout::new(1, 1) };
        let further = Some(StoreMembership { name: "fast".into(), of: "m".into(), first: 1 });
        let fast = Layout { identity: Some("f".into()), further, ..Layout::new(1, 1) };
        let mut fresh = BTreeMap::new();
        let copies = [&main, &fast].map(|layout| layout.clone().copied(&mut fresh).unwrap());
        let own = copies.each_ref().map(|copy| copy.identity.clone().unwrap());
        assert!(own[0] != own[1] && own.iter().all(|identity| identity.len() == 2 * IDENTITY_BYTES));
        assert_eq!(
            (&copies[0].stores[0].identity, &copies[1].further.as_ref().unwrap().of),
            (&own[1], &own[0])
        );
        let alone = Layout::new(2, 3);
        assert_eq!(alone.clone().copied(&mut fresh).unwrap(), alone, "it has no identity that others know");
    }

    #[test]
    fn kept_layouts_are_read() {
        let further = || vec![listed(1, 1)];
        let with_further = Layout { identity: Some("m".into()), stores: further(), ..Layout::new(1, 1) };
        let given_up = vec![FurtherLayout { given_up: true, ..listed(1, 1) }];
        let with_given_up = Layout { stores: given_up, ..with_further.clone() };
        let ways = Ways { direct: false, ..Ways::default() };
        for (name, want) in [
            ("plain", Layout::new(1, 1)),
            ("further-store", with_further),
            ("written-otherwise", Layout::new(1, 1).written(ways)),
            ("abandoned-store", with_given_up),
        ] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/layout");
            let kept = std::fs::read(folder.join(format!("{name}.json"))).unwrap();
            assert_eq!(read_layout(Path::new("layout.json"), &kept).unwrap(), want, "case: {name}");
        }
    }

    #[test]
    fn a_layout_that_makes_no_sense_is_refused() {
        let further = r#"{"name":"a","identity":"x","first":FIRST,"partitions":1}"#;
        let stores =
            |first: &str| format!(r#""identity":"m","stores":[{}]"#, further.replace("FIRST", first));
        for (rest, want) in [
            (r#""partitions":0,"starts":1"#.to_owned(), "partitions is 0; the minimum is 1"),
            (
                format!(r#""partitions":2,"starts":1,{}"#, stores("1")),
                "the partitions of a do not start at 2",
            ),
            (
                format!(r#""partitions":65533,"starts":1,{}"#, stores("65534")),
                "the partitions of a do not start at 65533",
            ),
            (
                r#""partitions":1,"starts":1,"further":{"name":"a","of":"m","first":0}"#.to_owned(),
                "a further store cannot list further stores or contain the first partition",
            ),
        ] {
            let text = format!(r#"{{"version":1,{rest}}}"#);
            assert_eq!(read(&text).unwrap_err(), format!("layout.json: {want}"), "{rest}");
        }
        let newer = read(r#"{"version":2,"anything":1}"#).unwrap_err();
        assert_eq!(newer, "layout.json: layout version 2 is not supported; this build reads version 1");
    }
}
