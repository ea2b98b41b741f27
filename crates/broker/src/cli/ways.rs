//! The ways to write to a store: chosen by a short measurement of the disk when the store is made,
//! and logged at each start.
//!
//! Never here: the stored result (the layout of the store), and the measurement (the bench room).

use std::path::Path;

use postroad_bench::disk::memory_kind;
use postroad_bench::ways::{self, Setting, Way};
use postroad_journal::Ways;

/// Looks at the disk of a store that is about to be made, and logs the choice with its reasons. A
/// disk that cannot be measured is written as usual: the store reports its faults better.
pub fn choose(directory: &Path) -> Ways {
    let store = directory.display();
    if let Some(kind) = memory_kind(directory) {
        tracing::warn!(%store, kind, "the store is on a file system in memory: all messages are lost when the machine stops");
    }
    match ways::look(directory) {
        Ok(rows) => {
            let choice = ways::choose(&rows);
            for reason in choice.reasons {
                tracing::info!(%store, "write mode chosen: {reason}");
            }
            let Way { direct, one_call, zeroed } = choice.way;
            Ways { direct, one_call, zeroed }
        }
        Err(error) => {
            tracing::warn!(%store, %error, "cannot measure the disk; using the default write mode for the new store");
            Ways::default()
        }
    }
}

/// Says how a store is written.
pub fn tell(name: &str, ways: Ways) {
    let Ways { direct, one_call, zeroed } = ways;
    let way = Way { direct, one_call, zeroed };
    let [cache, sync, segments] = Setting::ALL.map(|setting| setting.of(way));
    tracing::info!(store = name, cache, sync, segments, "write mode of the store");
}
