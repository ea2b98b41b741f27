//! Restricted types: fields that allow few of a primitive type's values.

use bytes::BytesMut;

use super::reader::Reader;
use super::{Field, Symbol, Value, WireError};

/// Milliseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub i64);

impl Field for Timestamp {
    const TYPE: &'static str = "timestamp";

    fn read(reader: &mut Reader<'_>) -> Result<Timestamp, WireError> {
        let offset = reader.offset();
        match reader.byte()? {
            0x83 => Ok(Timestamp(i64::from_be_bytes(reader.fixed()?))),
            code => Err(WireError::UnexpectedType { code, wanted: Self::TYPE, offset }),
        }
    }

    fn write(&self, out: &mut BytesMut) {
        Value::Timestamp(self.0).encode(out);
    }
}

macro_rules! kinds {
    ($( $(#[$meta:meta])* $Name:ident $title:literal of $Source:ty {
        $( $(#[$choice:meta])* $Variant:ident = $value:expr, )*
    } )*) => { $(
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub enum $Name { $( $(#[$choice])* $Variant, )* }

        impl Field for $Name {
            const TYPE: &'static str = $title;

            fn read(reader: &mut Reader<'_>) -> Result<$Name, WireError> {
                let offset = reader.offset();
                let value = <$Source>::read(reader)?;
                $( if value == $value {
                    return Ok($Name::$Variant);
                } )*
                Err(WireError::BadValue { got: value.to_string(), wanted: $title, offset })
            }

            fn write(&self, out: &mut BytesMut) {
                match self {
                    $( $Name::$Variant => <$Source>::from($value).write(out), )*
                }
            }
        }
    )* };
}

kinds! {
    /// Which end of a link speaks (2.8.1).
    Role "role" of bool {
        /// It sends.
        #[default]
        Sender = false,
        /// It receives.
        Receiver = true,
    }

    /// How a sender settles (2.8.2).
    SenderSettleMode "sender-settle-mode" of u8 {
        /// It waits for the outcome.
        Unsettled = 0,
        /// It does not.
        Settled = 1,
        /// One way or the other.
        #[default]
        Mixed = 2,
    }

    /// How a receiver settles (2.8.3).
    ReceiverSettleMode "receiver-settle-mode" of u8 {
        /// At once.
        #[default]
        First = 0,
        /// After the sender did.
        Second = 1,
    }

    /// The part of a terminus that survives (3.5.5).
    TerminusDurability "terminus-durability" of u32 {
        /// Nothing.
        #[default]
        None = 0_u32,
        /// That it exists, and how.
        Configuration = 1_u32,
        /// The state of its deliveries too.
        UnsettledState = 2_u32,
    }

    /// When a terminus begins to expire (3.5.6).
    TerminusExpiry "terminus-expiry-policy" of Symbol {
        /// When its link is detached.
        LinkDetach = "link-detach",
        /// When its session ends.
        #[default]
        SessionEnd = "session-end",
        /// When its connection is closed.
        ConnectionClose = "connection-close",
        /// Not at all.
        Never = "never",
    }

    /// Whether a link moves or copies the messages of its node (3.5.7).
    DistributionMode "std-dist-mode" of Symbol {
        /// It takes them.
        #[default]
        Move = "move",
        /// It leaves them there.
        Copy = "copy",
    }

    /// How authentication went (5.3.3.6).
    SaslCode "sasl-code" of u8 {
        /// Well.
        #[default]
        Ok = 0,
        /// The credentials are not good.
        Auth = 1,
        /// The system failed.
        System = 2,
        /// The system failed, and will again.
        SystemPermanent = 3,
        /// The system failed for now.
        SystemTemporary = 4,
    }
}

/// When a dynamic node is deleted (3.5.10 to 3.5.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// When the link is closed.
    DeleteOnClose,
    /// When no link is left.
    DeleteOnNoLinks,
    /// When no message is left.
    DeleteOnNoMessages,
    /// When neither is left.
    DeleteOnNoLinksOrMessages,
}

impl Lifetime {
    const ALL: [(u64, &'static str, Lifetime); 4] = [
        (0x2b, "amqp:delete-on-close:list", Lifetime::DeleteOnClose),
        (0x2c, "amqp:delete-on-no-links:list", Lifetime::DeleteOnNoLinks),
        (0x2d, "amqp:delete-on-no-messages:list", Lifetime::DeleteOnNoMessages),
        (0x2e, "amqp:delete-on-no-links-or-messages:list", Lifetime::DeleteOnNoLinksOrMessages),
    ];

    /// The policy that a described value of dynamic-node-properties names.
    pub fn of(value: &Value) -> Option<Lifetime> {
        let Value::Described(described) = value else { return None };
        let is_it = |code: u64, name: &str| match &described.descriptor {
            Value::Ulong(got) => *got == code,
            Value::Symbol(got) => *got == *name,
            _ => false,
        };
        Lifetime::ALL.iter().find(|(code, name, _)| is_it(*code, name)).map(|(_, _, lifetime)| *lifetime)
    }
}
