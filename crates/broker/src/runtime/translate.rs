//! The one place where protocols meet: who reads what came by which of them.

use postroad_model::portable::{Portable, TranslationError};
use postroad_model::{Message, Protocol};

/// A message as every protocol understands it.
///
/// # Errors
/// Its bytes are not what its protocol says they are.
pub fn read_portable(message: &Message) -> Result<Portable, TranslationError> {
    match message.encoding.protocol {
        Protocol::OpenWire => postroad_openwire::portable::read_portable(message),
        Protocol::Amqp => postroad_amqp::portable::read_portable(message),
    }
}
