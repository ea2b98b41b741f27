//! The stores as the configuration wants them: for a broker that serves, and for one that is filled
//! while it does not run.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use postroad_core::Settings;
use postroad_journal::{Journal, Keys, RealDisk, SpillFile};
use postroad_model::{PartitionId, Placement, Spill};
use postroad_routing::{Addressing, MAIN_STORE, Policies};
use postroad_store::{Directories, Stores};

use crate::cli::ways;
use crate::config::{Config, Shares, StoreKeys};
use crate::runtime::{self, Admitted, ClusterOptions, Following, TenantKeys};

/// Open transactions of a partition may hold this much, however little memory there is for each.
const OPEN_BYTES_MIN: u64 = 1 << 20;

/// Topics of a partition may retain this much, however little memory there is for each: all
/// advisories of a kind lie in one.
const RETAINED_BYTES_MIN: u64 = 1 << 20;

/// Opens or makes them, in the data directory that the configuration names and beside it; logs the
/// keys of new data.
///
/// # Errors
/// The fault of a directory, or of the configuration of addresses.
pub fn open(
    config: &Config,
    policies: &Arc<Policies>,
    keys: StoreKeys,
) -> anyhow::Result<(Stores, TenantKeys)> {
    let directories = directories(config);
    let shares = Shares::of(config.memory_bytes);
    let settings = settings(config, &shares, policies, &keys.journal);
    let addressing = Addressing { routes: policies.routes.clone(), ..config.addressing()? };
    let mut stores = Stores::open(directories, keys.journal, addressing, settings)
        .with_context(|| format!("cannot open the store {}", config.data.display()))?;
    let journals = stores.stores.len() as u64;
    for store in &mut stores.stores {
        ways::tell(&store.name, store.disk.ways());
        tune(&mut store.journal, &shares, journals);
    }
    Ok((stores, TenantKeys { tenants: policies.tenants.clone(), keys: keys.tenants }))
}

fn directories(config: &Config) -> Directories<'_> {
    Directories {
        main: &config.data,
        partitions: config.runtime.partitions,
        disk_bytes_max: config.store.main.disk_bytes_max(),
        further: &config.store.further,
        choose: ways::choose,
    }
}

fn tune(journal: &mut Journal<RealDisk>, shares: &Shares, journals: u64) {
    journal.bound_indexes(shares.indexes / journals);
    journal.sort_by(postroad_core::sort_key_of_record, shares.sorting / journals);
    journal.shorten_by(postroad_core::shorten_record);
}

/// Opens or makes the replica of this node, and has it take part in the cluster.
///
/// # Errors
/// As [`open`]; or a port is not to be had.
pub fn follow(
    config: &Config,
    policies: &Arc<Policies>,
    keys: StoreKeys,
    (cluster, admitted): (&ClusterOptions, &Admitted),
) -> anyhow::Result<(Following, TenantKeys)> {
    let shares = Shares::of(config.memory_bytes);
    let settings = settings(config, &shares, policies, &keys.journal);
    let prepare = |journal: &mut Journal<RealDisk>, disk: &RealDisk| {
        ways::tell(MAIN_STORE, disk.ways());
        tune(journal, &shares, 1);
    };
    let sync_within = Duration::from_millis(config.store.main.async_sync_ms);
    let following = runtime::follow(
        directories(config),
        keys.journal,
        settings,
        (cluster, admitted),
        prepare,
        sync_within,
    )
    .with_context(|| format!("cannot open the store {}", config.data.display()))?;
    Ok((following, TenantKeys { tenants: policies.tenants.clone(), keys: keys.tenants }))
}

/// The settings of partitions, each of which has its part.
fn settings<'c>(
    config: &'c Config,
    shares: &Shares,
    policies: &'c Arc<Policies>,
    keys: &Keys,
) -> impl Fn(PartitionId, Placement, u64) -> Settings + use<'c> {
    let Shares { messages, durable, volatile, transactions: open, recent, retained, .. } = *shares;
    // The contents of messages in a page would be there unencrypted.
    let may_spill = !keys.encrypts();
    let spill = may_spill.then(|| Arc::new(SpillFile::new(&config.data)) as Arc<dyn Spill>);
    move |id, placement, incarnation| Settings {
        id,
        placement,
        addressing: Arc::default(),
        incarnation,
        resident_bytes_max: durable / u64::from(placement.partitions),
        messages_bytes_max: messages / u64::from(placement.partitions),
        page_entries: postroad_core::PAGE_ENTRIES,
        volatile_bytes_max: volatile / u64::from(placement.partitions),
        recent_bytes_max: config.limits.retroactive_bytes.min(recent) / u64::from(placement.partitions),
        retained_bytes_max: (retained / u64::from(placement.partitions)).max(RETAINED_BYTES_MIN),
        transaction_bytes_max: config.limits.transaction_bytes,
        open_bytes_max: (open / u64::from(placement.partitions)).max(OPEN_BYTES_MIN),
        transaction_ms_max: config.limits.transaction_ms_max(),
        slice_changes: postroad_core::SLICE_CHANGES,
        audited_producers_max: config.limits.audited_producers,
        outbox_bytes_max: config.limits.outbox_bytes,
        spill: spill.clone(),
        policies: policies.clone(),
    }
}
