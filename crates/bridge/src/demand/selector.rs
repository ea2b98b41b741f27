//! Selectors of the link's subscriptions: which messages may go to the peer, by the brokers that
//! they have passed.

use std::sync::Arc;

/// The property with the brokers that a message has passed.
pub const PATH: &str = "JMSActiveMQBrokerPath";

/// The selector of the link's subscription: the consumers' own, for messages that have not passed
/// the peer and fewer brokers than allowed.
pub(super) fn selector_for(own: &str, (peer, may_return): (&str, bool), message_ttl: i32) -> Arc<str> {
    let peer = peer.replace('\\', "\\\\").replace('%', "\\%").replace('_', "\\_").replace('\'', "''");
    let avoids = format!("{PATH} NOT LIKE '%{peer}%' ESCAPE '\\'");
    let path = match message_ttl {
        _ if may_return => returning(&peer, message_ttl),
        0 => "1 = 0".to_owned(),
        1 => format!("{PATH} IS NULL"),
        // Ids in the path stand behind each other with a comma in between.
        2..=64 => {
            let long = ", %".repeat(message_ttl as usize - 1);
            format!("({PATH} IS NULL OR ({avoids} AND {PATH} NOT LIKE '%{long}'))")
        }
        _ => format!("({PATH} IS NULL OR {avoids})"),
    };
    match (own.is_empty(), path.is_empty()) {
        (_, true) => own.into(),
        (true, false) => path.into(),
        (false, false) => format!("({own}) AND {path}").into(),
    }
}

/// A message may return to a broker in its path: its path is then as it was there.
fn returning(peer: &str, message_ttl: i32) -> String {
    let returns = format!("{PATH} LIKE '%{peer}%' ESCAPE '\\'");
    match message_ttl {
        0 => returns,
        1 => format!("({PATH} IS NULL OR {returns})"),
        2..=64 => {
            let long = ", %".repeat(message_ttl as usize - 1);
            format!("({PATH} IS NULL OR {returns} OR {PATH} NOT LIKE '%{long}')")
        }
        _ => String::new(),
    }
}
