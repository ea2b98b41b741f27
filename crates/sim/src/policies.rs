//! The operators' policies in a run.

use std::sync::Arc;

use postroad_core::Settings;
use postroad_model::{Compression, DestinationKind, Durability, PartitionId, Placement};
use postroad_routing::{
    Addressing, AtLimit, DeadLetterQueue, DestinationPattern, Factor, Limit, Pattern, Policies, Policy,
    Redelivery, Slow, SlowAction, VirtualTopic,
};

use crate::random::Random;
use crate::scene::{Resting, Scene};
use crate::selectors::VALUE;
use crate::spill::SimulatedSpill;

/// Chance of its own, so that all else in a run is as it would be without rests.
const RESTS_STREAM: u64 = 0x9e6c_63d0_876a_68e5;

/// Dead letters of all go to one queue, and bodies for all are written alike; the rest is as the
/// scene says.
pub fn policies(scene: &Scene, compression: Compression) -> Result<Policies, String> {
    let usual = Policies::with_dead_letters_in(&scene.dead_letters.name);
    let fallback = Policy { compression, ..usual.fallback().clone() };
    let mut policies = Policies::new(fallback.clone());
    for at in &scene.destinations {
        let mut policy = fallback.clone();
        if scene.lagging.as_ref() == Some(at) {
            policy.durability = Durability::Async;
        }
        if scene.forgetful.as_ref() == Some(at) {
            policy.durability = Durability::Memory;
        }
        if let Some((_, limit)) = scene.limited.as_ref().filter(|(limited, _)| limited == at) {
            policy.limit = *limit;
        }
        if scene.last_values.as_ref() == Some(at) {
            policy.last_value = Some(VALUE.into());
        }
        if let Some((_, slow)) = scene.slow.as_ref().filter(|(slow, _)| slow == at) {
            policy.slow = *slow;
        }
        if let Some(resting) = scene.rests.iter().find(|resting| resting.at == *at) {
            policy.redelivery = resting.redelivery;
            if resting.is_dropped {
                policy.dead_letters.queue = DeadLetterQueue::Nowhere;
            }
        }
        if policy != fallback {
            let name = Pattern::parse(&at.name).map_err(|error| error.to_string())?;
            policies.set(&DestinationPattern { kind: at.kind, temporary: false, name }, policy);
        }
    }
    Ok(policies)
}

/// How bodies are written in the run of this seed.
pub fn compression_of(seed: u64) -> Compression {
    [Compression::Lz4, Compression::None, Compression::Zstd, Compression::None][(seed % 4) as usize]
}

/// Some limit, so low that it is met.
pub fn limit(random: &mut Random) -> Limit {
    let actions = [AtLimit::Block, AtLimit::Fail, AtLimit::DropOldest, AtLimit::DropNewest];
    Limit {
        messages_max: Some(1 + random.below(4)),
        bytes_max: random.one_in(3).then_some(200),
        action: *random.pick(&actions).unwrap_or(&AtLimit::Block),
        wait_ms: random.below(60),
        ..Limit::default()
    }
}

/// The action on a consumer that settles nothing for some time.
pub fn slow(random: &mut Random) -> Slow {
    let then = if random.one_in(3) { SlowAction::Detach } else { SlowAction::Requeue };
    Slow { after_ms: Some(20 + random.below(400)), then }
}

/// The resting policy of the run of this seed: in one run of three.
pub fn rests(seed: u64, scene: &Scene) -> Vec<Resting> {
    let mut random = Random::new(seed.wrapping_mul(RESTS_STREAM));
    if !random.one_in(3) {
        return Vec::new();
    }
    let mut rests = Vec::new();
    for at in &scene.destinations {
        // A message that several have would become several dead letters, and one that is in memory
        // alone becomes one that is kept.
        let is_kept_by_several = !scene.names.is_empty() || at.kind == DestinationKind::Topic;
        let is_dropped = is_kept_by_several || scene.forgetful.as_ref() == Some(at);
        let delay_ms = 1 + random.below(20);
        let redelivery = Redelivery {
            count_max: 1 + random.below(2) as u32,
            delay_ms,
            multiplier: Factor::of(1.0 + random.below(3) as f64).unwrap_or(Factor::ONE),
            delay_ms_max: delay_ms + random.below(60),
            ..Redelivery::default()
        };
        if !random.one_in(3) {
            rests.push(Resting { at: at.clone(), redelivery, is_dropped });
        }
    }
    rests
}

/// Settings of the first partition, with bounds so low that they are met.
pub fn settings(random: &mut Random, placement: Placement, scene: &Scene, policies: Policies) -> Settings {
    let large = 1 << 20;
    Settings {
        id: PartitionId(0),
        placement,
        incarnation: 0,
        resident_bytes_max: *random.pick(&[0, 500, 4000, 12_000, large]).unwrap_or(&large),
        messages_bytes_max: *random.pick(&[1000, 8000, 3 * large]).unwrap_or(&large),
        page_entries: *random.pick(&[1, 2, 4, 16]).unwrap_or(&4),
        volatile_bytes_max: *random.pick(&[300, 3000, large]).unwrap_or(&large),
        transaction_ms_max: scene.transaction_ms_max,
        slice_changes: *random.pick(&[1, 2, 1000]).unwrap_or(&1000),
        transaction_bytes_max: *random.pick(&[2000, large]).unwrap_or(&large),
        open_bytes_max: *random.pick(&[4000, large, large]).unwrap_or(&large),
        recent_bytes_max: 0,
        retained_bytes_max: 0,
        audited_producers_max: 8,
        outbox_bytes_max: *random.pick(&[200, 2000, large]).unwrap_or(&large),
        addressing: Arc::new(addressing()),
        spill: Some(Arc::new(SimulatedSpill)),
        policies: Arc::new(policies),
    }
}

/// The prefix of queues that take their consumers' selection of a virtual topic.
pub const SELECTING: &str = "Selecting";

/// The usual virtual topics, and those whose queues select.
fn addressing() -> Addressing {
    let usual = Addressing::default();
    let selecting = |rule: &VirtualTopic| VirtualTopic {
        prefix: format!("{SELECTING}.*.").into(),
        selector_aware: true,
        ..rule.clone()
    };
    let virtual_topics =
        usual.virtual_topics.iter().flat_map(|rule| [rule.clone(), selecting(rule)]).collect();
    Addressing { virtual_topics, ..usual }
}
