//! The functions by which a partition reads and writes messages of the protocols.

use postroad_core::{Firing, Partition};
use postroad_model::{DeadLetter, Destination, Message, Origin, Protocol, Revived};

use crate::translate::{change_headers, properties_of};

/// Sets in a partition how the protocols read and write their messages.
pub fn equip(partition: &mut Partition) {
    partition.read_properties_by(properties_of);
    partition.read_origins_by(origin_of);
    partition.name_messages_by(name_of);
    partition.write_due_by(write_due);
    partition.mark_dead_letters_by(mark_dead_letter);
    partition.change_headers_by(change_headers);
    partition.revive_by(revive_dead_letter);
    partition.count_retained_by(postroad_openwire::count_retained);
}

fn write_due(message: &Message, firing: &Firing<'_>) -> Message {
    match message.encoding.protocol {
        Protocol::OpenWire => postroad_openwire::write_due(message, firing.job, firing.now_ms, firing.number),
        // When it is due stays in it, for consumers to read (JMS 2.0, section 3.4.13).
        Protocol::Amqp => message.clone(),
    }
}

fn origin_of(message: &Message) -> Option<Origin> {
    match message.encoding.protocol {
        Protocol::OpenWire => postroad_openwire::origin_of(&message.bytes, message.encoding.version),
        // AMQP clients settle messages of the former connection over the next one themselves.
        Protocol::Amqp => None,
    }
}

fn name_of(message: &Message, topic: &Destination) -> Option<u128> {
    match message.encoding.protocol {
        Protocol::OpenWire => {
            postroad_openwire::name_of(&message.bytes, message.encoding.version, &topic.name)
        }
        // Other brokers know it by an id that is made when it is forwarded.
        Protocol::Amqp => None,
    }
}

fn mark_dead_letter(message: &Message, past: &DeadLetter) -> Message {
    match message.encoding.protocol {
        Protocol::OpenWire => postroad_openwire::mark_dead_letter(message, past),
        Protocol::Amqp => postroad_amqp::message::mark_dead_letter(message, past),
    }
}

fn revive_dead_letter(message: &Message) -> Revived {
    match message.encoding.protocol {
        Protocol::OpenWire => postroad_openwire::revive_dead_letter(message),
        Protocol::Amqp => postroad_amqp::message::revive_dead_letter(message),
    }
}
