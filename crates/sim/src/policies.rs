//! What operators have decided in a run.

use postroad_model::{Compression, Destination, Durability};
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
