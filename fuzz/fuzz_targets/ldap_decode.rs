//! Any bytes as messages of a directory (LDAP): frames are cut out within their limit, and a check
//! of a password goes on with them or ends. Any text as a filter of the configuration.
#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use postroad_security::ldap::{
    ANSWERS_BYTES_MAX, Conversation, Filter, LdapRules, MESSAGE_BYTES_MAX, Service, Turn, frame_bytes, read,
};

/// Users that one conversation goes on with.
const USERS_MAX: usize = 4;

fuzz_target!(|input: &[u8]| {
    if let Ok(text) = std::str::from_utf8(input) {
        let _ = Filter::parse(text);
    }
    for group_base in ["", "dc=x"] {
        converse(input, group_base);
    }
});

fn rules(group_base: &str) -> LdapRules {
    let filter = |text: &str| Filter::parse(text).expect("a sound filter");
    LdapRules {
        user_base: "dc=x".to_owned(),
        user_filter: filter("(&(objectClass=person)(uid={user}))"),
        user_attribute: "uid".to_owned(),
        groups_attribute: "memberOf".to_owned(),
        group_base: group_base.to_owned(),
        group_filter: filter("(member={dn})"),
        group_attribute: "cn".to_owned(),
        group_names: BTreeMap::new(),
        seconds_max: 3,
    }
}

fn converse(mut input: &[u8], group_base: &str) {
    let service = Service { dn: "cn=broker".to_owned(), password: "secret".to_owned() };
    let (mut conversation, bind) = Conversation::begin(Arc::new(rules(group_base)), &service, "ann", None);
    assert_eq!(frame_bytes(&bind), Ok(Some(bind.len())), "the broker's own messages are frames");
    let (mut users, mut bytes) = (0, 0);
    while let Ok(Some(length)) = frame_bytes(input) {
        assert!(0 < length && length <= MESSAGE_BYTES_MAX.min(input.len()));
        let (message, rest) = input.split_at(length);
        input = rest;
        let is_sound = read(message).is_ok();
        let turn = conversation.receive(message);
        assert!(is_sound || turn.is_err(), "malformed messages have no effect");
        bytes += length;
        assert!(bytes <= ANSWERS_BYTES_MAX || turn.is_err());
        match turn {
            Ok(Turn::Wait) => continue,
            Ok(Turn::Send(request)) => assert_eq!(frame_bytes(&request), Ok(Some(request.len()))),
            Ok(Turn::Done(_)) | Err(_) => {
                users += 1;
                if USERS_MAX < users {
                    return;
                }
                let request = conversation.again("bob");
                assert_eq!(frame_bytes(&request), Ok(Some(request.len())));
                bytes = 0;
            }
        }
    }
}
