//! Proposals: commands on their way to the log, each with what follows once it is durable.

use std::sync::Arc;

use postroad_model::{Command, Destination, Effect, Urgency};

use crate::intake::queue_quota;
use crate::log::completion::Completion;
use crate::log::durability::{compression_of, durability_of};
use crate::partition::Partition;

pub fn propose(
    partition: &mut Partition,
    command: Command,
    urgency: Urgency,
    completion: Completion,
    effects: &mut Vec<Effect>,
) {
    propose_for(partition, None, command, urgency, completion, effects);
}

/// As `propose`, for the message that is sent to these addresses.
pub fn propose_for(
    partition: &mut Partition,
    addresses: Option<Arc<[Destination]>>,
    command: Command,
    urgency: Urgency,
    completion: Completion,
    effects: &mut Vec<Effect>,
) {
    partition.leader.log.pending.push_back(completion);
    partition.leader.log.made += 1;
    queue_quota::expect(partition, &command);
    let durability = durability_of(&partition.state, &partition.settings, &command);
    let compression = compression_of(&partition.settings, &command);
    effects.push(Effect::Propose { command, urgency, durability, compression, addresses });
}
