//! Alert rules in the assembly: values of queues and disks, and the way to webhooks.

use std::path::PathBuf;
use std::sync::Arc;

use postroad_admin::{AlertSources, Disks, WatchQueues, watch};
use postroad_routing::MAIN_STORE;

use crate::config::Config;
use crate::runtime::{NamedDoor, Runtime, now_ms, webhooks};

/// Watches the rules that the runtime follows, without end.
pub fn watch_rules(config: &Config, runtime: &Runtime) -> impl Future<Output = ()> + Send + 'static {
    let alerts = runtime.alerts();
    let everybody = runtime.everybody();
    let queues: WatchQueues = Arc::new(move |request| {
        let everybody = everybody.clone();
        Box::pin(async move { everybody.watch(request).await })
    });
    let sources = AlertSources {
        broker_name: config.broker_name.clone(),
        queues,
        disks: disks(config, runtime.journals()),
        memory_bytes_max: config.memory_bytes,
        post: webhooks(),
        clients: runtime.clients(),
        now_ms,
    };
    watch(alerts, sources)
}

/// A store's directory, and its own limit.
struct Place {
    store: String,
    path: PathBuf,
    bytes_max: Option<u64>,
}

fn disks(config: &Config, journals: Vec<NamedDoor>) -> Disks {
    let (path, bytes_max) = (config.data.clone(), config.store.main.disk_bytes_max());
    let main = Place { store: MAIN_STORE.to_owned(), path, bytes_max };
    let further = config.store.further.iter().map(|store| Place {
        store: store.name.clone(),
        path: store.path.clone(),
        bytes_max: store.disk_bytes_max,
    });
    let places: Vec<Place> = std::iter::once(main).chain(further).collect();
    Arc::new(move || places.iter().map(|place| (place.store.clone(), place.percent(&journals))).collect())
}

impl Place {
    /// The part of its file system, or of its own limit, that is in use: the higher of the two.
    fn percent(&self, journals: &[NamedDoor]) -> u64 {
        let of_disk = rustix::fs::statvfs(&self.path).map_or(0, |disk| {
            // As `df` counts: without the blocks that are reserved for the administrator.
            let used = disk.f_blocks.saturating_sub(disk.f_bfree);
            percent(used, used.saturating_add(disk.f_bavail))
        });
        let Some(bytes_max) = self.bytes_max else { return of_disk };
        let door = journals.iter().find(|door| *door.store == *self.store);
        of_disk.max(door.map_or(0, |door| percent(door.figures().file_bytes, bytes_max)))
    }
}

fn percent(part: u64, whole: u64) -> u64 {
    let percent = u128::from(part) * 100 / u128::from(whole.max(1));
    u64::try_from(percent).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_of_a_store_is_in_use_in_part() {
        let place = Place { store: "main".to_owned(), path: std::env::temp_dir(), bytes_max: None };
        assert!(place.percent(&[]) <= 100);
        assert_eq!((percent(1, 3), percent(5, 0), percent(u64::MAX, 1)), (33, 500, u64::MAX));
    }
}
