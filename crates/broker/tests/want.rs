//! A broker that has run out of what the system gives, for a while.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod running;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use running::Broker;

/// A question to any broker, and the answer of one that is well.
const QUESTION: &[u8] = b"{\"request\":\"transactions\"}\n";
const NONE: &str = "{\"transactions\":[]}\n";

/// Asks for the branches that wait for their managers.
fn ask(mut control: UnixStream) -> String {
    control.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    control.write_all(QUESTION).unwrap();
    let mut answer = String::new();
    BufReader::new(control).read_line(&mut answer).unwrap();
    answer
}

#[test]
fn commands_are_answered_once_there_are_descriptors_again() {
    let broker = Broker::start();
    assert_eq!(ask(broker.control()), NONE);
    broker.limit_descriptors(Some(3));
    let early = broker.control();
    std::thread::sleep(Duration::from_millis(300));
    broker.limit_descriptors(None);
    assert_eq!(ask(early), NONE);
}
