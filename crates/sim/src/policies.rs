//! What operators have decided in a run.

use std::sync::Arc;

use postroad_core::Settings;
use postroad_model::{Compression, Destination, Durability, PartitionId, Placement};
use postroad_routing::{AtLimit, DestinationPattern, Limit, Pattern, Policies, Policy};

use crate::random::Random;

/// Dead letters of all go to one queue, and bodies for all are written alike; what the `lagging` queue confirms is synced a
/// little later.
pub fn policies(
    dead_letters: &Destination,
    compression: Compression,
    lagging: Option<&Destination>,
    limited: Option<&(Destination, Limit)>,
) -> Result<Policies, String> {
    let usual = Policies::with_dead_letters_in(&dead_letters.name);
    let fallback = Policy { compression, ..usual.fallback().clone() };
    let mut policies = Policies::new(fallback.clone());
    let lagging = lagging.map(|queue| (queue, Policy { durability: Durability::Async, ..fallback.clone() }));
    let limited = limited.map(|(queue, limit)| (queue, Policy { limit: *limit, ..fallback }));
    for (queue, policy) in lagging.into_iter().chain(limited) {
        let name = Pattern::parse(&queue.name).map_err(|error| error.to_string())?;
        let pattern = DestinationPattern { kind: queue.kind, temporary: false, name };
        policies.set(&pattern, policy);
    }
    Ok(policies)
}

/// How bodies are written in the run of this seed.
pub fn compression_of(seed: u64) -> Compression {
    if seed.is_multiple_of(2) { Compression::Lz4 } else { Compression::None }
}

/// Some limit, so low that it is met.
pub fn limit(random: &mut Random) -> Limit {
    let actions = [AtLimit::Block, AtLimit::DropOldest, AtLimit::DropNewest];
    Limit {
        messages_max: Some(1 + random.below(4)),
        bytes_max: random.one_in(3).then_some(200),
        action: *random.pick(&actions).unwrap_or(&AtLimit::Block),
        ..Limit::default()
    }
}

/// Settings of the first partition, with bounds so low that they are met.
pub fn settings(random: &mut Random, placement: Placement, policies: Policies) -> Settings {
    let large = 1 << 20;
    Settings {
        id: PartitionId(0),
        placement,
        incarnation: 0,
        resident_bytes_max: *random.pick(&[0, 500, 4000, large]).unwrap_or(&large),
        page_entries: *random.pick(&[1, 2, 4, 16]).unwrap_or(&4),
        volatile_bytes_max: *random.pick(&[300, 3000, large]).unwrap_or(&large),
        transaction_ms_max: None,
        transaction_bytes_max: *random.pick(&[2000, large]).unwrap_or(&large),
        recent_bytes_max: 0,
        audited_producers_max: 8,
        outbox_bytes_max: *random.pick(&[200, 2000, large]).unwrap_or(&large),
        addressing: Arc::default(),
        policies: Arc::new(policies),
    }
}
