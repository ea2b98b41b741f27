//! Requests of IronMQ through the decoder. Settings of queues that they make are kept and read
//! again without a difference; an error has a status of clients and says something.
#![no_main]

use libfuzzer_sys::fuzz_target;
use postroad_ironmq::{Call, MessageId, Operation, Request, Settings};

const METHODS: &[&str] = &["GET", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"];
const PATHS: &[&str] = &[
    "", "/q", "/q/messages", "/q/messages/18446744073709551617", "/q/messages/18446744073709551617/touch",
    "/q/messages/18446744073709551617/release", "/q/messages/18446744073709551617/subscribers",
    "/q/reservations", "/q/subscribers", "/q/alerts", "/q/alerts/1", "/q/webhook",
];

fuzz_target!(|input: &[u8]| {
    let [method, path, rest @ ..] = input else { return };
    let method = METHODS[usize::from(*method) % METHODS.len()];
    let below = PATHS[usize::from(*path) % PATHS.len()];
    parsed(method, &format!("/3/projects/p/queues{below}"), "", rest);
    // Lines: the path, the query, the body.
    let Ok(text) = std::str::from_utf8(rest) else { return };
    let (path, rest) = text.split_once('\n').unwrap_or((text, ""));
    let (query, body) = rest.split_once('\n').unwrap_or((rest, ""));
    parsed(method, path, query, body.as_bytes());
    if let Some(id) = MessageId::parse(text) {
        assert_eq!(MessageId::parse(&id.to_string()), Some(id));
    }
});

fn parsed(method: &str, path: &str, query: &str, body: &[u8]) {
    let call = match Call::parse(&Request { method, path, query, body }) {
        Ok(call) => call,
        Err(error) => {
            assert!((400..500).contains(&error.status) && !error.msg.is_empty(), "{error:?}");
            return;
        }
    };
    let mut settings = Settings::default();
    let queue = match call.operation {
        Operation::Create { queue, change } => {
            let Ok(changed) = change.apply(settings, true) else { return };
            settings = changed;
            queue
        }
        Operation::Alert { queue, change } if settings.change_alerts(&change).is_ok() => queue,
        _ => return,
    };
    let Ok(options) = settings.options(&call.project, &queue) else { return };
    let again = Settings::of(Some(&options));
    assert_eq!(again.options(&call.project, &queue).as_ref(), Ok(&options), "{settings:?}");
}
