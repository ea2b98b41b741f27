//! Requests of SQS through the decoder: JSON and forms as actions, and signatures. Settings that an
//! action makes are kept and read again without a difference; no signature without the secret is
//! right.
#![no_main]

use libfuzzer_sys::fuzz_target;
use postroad_sqs::{
    Action, Call, Credentials, Protocol, Receipt, Request, Settings, Signed, SqsError, error_xml,
};

const ACTIONS: &[&str] = &[
    "CreateQueue", "GetQueueUrl", "ListQueues", "GetQueueAttributes", "SetQueueAttributes", "DeleteQueue",
    "PurgeQueue", "TagQueue", "UntagQueue", "ListQueueTags", "ListDeadLetterSourceQueues", "SendMessage",
    "SendMessageBatch", "ReceiveMessage", "DeleteMessage", "DeleteMessageBatch", "ChangeMessageVisibility",
    "ChangeMessageVisibilityBatch", "StartMessageMoveTask", "CancelMessageMoveTask", "ListMessageMoveTasks",
];

fuzz_target!(|input: &[u8]| {
    let [selector, rest @ ..] = input else { return };
    let action = ACTIONS[usize::from(*selector) % ACTIONS.len()];
    json(action, rest);
    form(action, rest);
    signature(rest);
});

fn json(action: &str, body: &[u8]) {
    let target = format!("AmazonSQS.{action}");
    parsed(&Request { path: "/", query: "", target: Some(&target), body });
}

fn form(action: &str, rest: &[u8]) {
    let body = [format!("Action={action}&").as_bytes(), rest].concat();
    parsed(&Request { path: "/000000000000/q", query: "", target: None, body: &body });
    if let Ok(query) = std::str::from_utf8(&body) {
        parsed(&Request { path: "/000000000000/q", query, target: None, body: b"" });
    }
}

fn parsed(request: &Request<'_>) {
    match Call::parse(request) {
        Ok(Call { action: Action::CreateQueue { queue, attributes, tags }, .. }) => {
            let mut settings = Settings::default();
            if settings.set(&queue, &attributes, true).is_ok() && settings.tag(tags).is_ok() {
                let options = settings.options();
                assert_eq!(Settings::of(Some(&options)), settings);
                assert_eq!(settings.has(&queue, &attributes), Ok(()));
            }
        }
        Ok(_) => {}
        Err(error) => readable(&error, request.protocol()),
    }
}

/// An error can be written in both protocols, and says something.
fn readable(error: &SqsError, protocol: Protocol) {
    assert!(!error.message.is_empty(), "{protocol:?}");
    assert!((400..600).contains(&error.code.status()));
    assert!(error_xml(error, "id").contains(error.code.query()));
    assert!(error.to_json().is_object());
}

/// Lines: the method, the path, the query, then headers; an empty line; the body.
fn signature(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let _ = Receipt::parse(text);
    let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let mut lines = head.split('\n');
    let mut next = || lines.next().unwrap_or_default();
    let (method, path, query) = (next(), next(), next());
    let headers: Vec<(&str, &str)> = lines.filter_map(|line| line.split_once(": ")).collect();
    let signed = Signed { method, path, query, headers: &headers, body: body.as_bytes() };
    match Credentials::of(&signed) {
        Ok(Some(credentials)) => {
            let secret = "a secret that no input knows";
            assert!(credentials.verify(&signed, secret, 1_700_000_000).is_err());
        }
        Ok(None) => {}
        Err(error) => readable(&error, Protocol::Query),
    }
}
