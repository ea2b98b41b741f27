//! Protocols: how the assembly reads and writes messages, which the core does not understand.

use postroad_model::{DeadLetter, Message, Revived};

use crate::delivery::selection::{self, PropertiesOf};
use crate::intake::audit::OriginOf;
use crate::intake::homes::NameOf;
use crate::intake::routes::ChangeHeaders;
use crate::schedule::WriteDue;
use crate::settling::redrive::Revive;

/// How the assembly writes a dead letter's past into a message, whatever its protocol.
pub type MarkDead = fn(&Message, &DeadLetter) -> Message;

/// How the assembly writes into a message that a topic keeps how many it keeps with it.
pub type CountRetained = fn(&Message, u64) -> Message;

/// How to read and write messages, which only their protocols know.
pub(crate) struct Protocols {
    /// Writes a dead letter's past into it.
    pub mark_dead: MarkDead,
    /// Takes a dead letter's past out of it.
    pub revive: Revive,
    /// Writes into a message that a topic keeps how many it keeps.
    pub count_retained: CountRetained,
    /// Reads the properties that selectors need.
    pub properties_of: PropertiesOf,
    /// Reads who sent a message.
    pub origin_of: OriginOf,
    /// Names a message of a topic.
    pub name_of: NameOf,
    /// Changes headers of a message.
    pub change_headers: ChangeHeaders,
    /// Writes a message that is due now.
    pub write_due: WriteDue,
}

impl Default for Protocols {
    fn default() -> Protocols {
        Protocols {
            mark_dead: |message, _| message.clone(),
            revive: |message| Revived { origin: None, reason: None, message: message.clone() },
            count_retained: |message, _| message.clone(),
            properties_of: selection::no_properties,
            origin_of: |_| None,
            name_of: |_, _| None,
            change_headers: |message, _| message.clone(),
            write_due: |message, _| message.clone(),
        }
    }
}
