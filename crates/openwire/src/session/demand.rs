//! Advisories of the peer of a link: its consumers and subscriptions, as demand for the forwarder.

use std::sync::Arc;

use postroad_model::{Destination as Address, Parting};

use super::{OpenWireSession, Turn, names};
use crate::codec::{Destination, Message, MessageAck, Primitive, find_property};
use crate::network::{self, DURABLE_PROPERTY, SINCE_PROPERTY, demand_of};

/// Prefix of the topics with advisories about consumers of one topic.
const TOPIC_ADVISORY: &str = "ActiveMQ.Advisory.Consumer.Topic.";

/// Advisories that one acknowledgement covers.
const ADVISORY_ACK_EVERY: i32 = 250;

/// The peer's demand may have changed.
pub fn take_advisory(
    session: &mut OpenWireSession,
    message: &Message,
    turn: &mut Turn<'_>,
) -> Result<(), Parting> {
    if let Some(forwarder) = &mut session.network.forwarder
        && let Some(mut demand) = message.data_structure.as_deref().and_then(demand_of)
    {
        match &mut demand {
            network::Demand::Unsubscribed { topic, .. } => {
                *topic = message.destination.as_ref().and_then(topic_of);
            }
            network::Demand::Consumer(consumer) => {
                if let Some((name, since_ms)) = durable_in(message) {
                    (consumer.durable, consumer.since_ms) = (Some(name), since_ms);
                }
            }
            _ => {}
        }
        forwarder.demand(demand, turn.events).map_err(Parting::Fault)?;
    }
    acknowledge(session, message, turn);
    Ok(())
}

fn acknowledge(session: &mut OpenWireSession, message: &Message, turn: &mut Turn<'_>) {
    let (count, first) = &mut session.network.unacknowledged;
    *count += 1;
    first.get_or_insert_with(|| message.message_id.clone().unwrap_or_default());
    if *count < ADVISORY_ACK_EVERY {
        return;
    }
    let (message_count, first_message_id) = std::mem::take(&mut session.network.unacknowledged);
    let ack = MessageAck {
        destination: message.destination.clone(),
        consumer_id: Some(session.consumer_at_peer()),
        ack_type: MessageAck::STANDARD,
        first_message_id,
        last_message_id: message.message_id.clone(),
        message_count,
        ..MessageAck::default()
    };
    session.send(ack.into(), turn);
}

/// Whether the message is about consumers, and is for the link itself.
pub fn is_for_link(message: &Message) -> bool {
    let destination = message.destination.as_ref();
    destination.is_some_and(|destination| network::is_for_link(&names::to_model(destination)))
}

/// The peer's name of the durable subscription that the consumer of an advisory reads, and when
/// that began.
fn durable_in(advisory: &Message) -> Option<(Arc<str>, u64)> {
    let properties = advisory.marshalled_properties.as_ref()?;
    let value = |name| find_property(properties, name).ok()??.value().ok();
    match (value(DURABLE_PROPERTY)?, value(SINCE_PROPERTY)?) {
        (Primitive::String(name), Primitive::Long(since_ms)) => {
            Some((name.to_str().into(), u64::try_from(since_ms).ok()?))
        }
        _ => None,
    }
}

/// The topic that an advisory is about; `None` if it has several.
fn topic_of(advisory: &Destination) -> Option<Address> {
    let name = names::to_model(advisory).name;
    let topic = name.strip_prefix(TOPIC_ADVISORY)?;
    (!topic.contains([',', '&'])).then(|| Address::topic(topic))
}
