//! A broker that has run out of what the system gives, for a while.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod running;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
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

#[test]
fn a_broker_that_cannot_begin_whole_does_not_say_that_it_is_ready() {
    let directory = tempfile::tempdir().unwrap();
    let (data, config) = (directory.path().join("data"), directory.path().join("postroad.toml"));
    let ports = ["openwire", "amqp", "amqp_websocket", "http"];
    std::fs::write(&config, format!("[ports]\n{} = 0\n", ports.join(" = 0\n"))).unwrap();
    let mut ready = 0;
    for descriptors in 8..60 {
        let mut command = Command::new("sh");
        command.arg("-c").arg(format!("ulimit -n {descriptors}; exec \"$0\" \"$@\""));
        command.arg(env!("CARGO_BIN_EXE_postroad")).arg("serve").arg("--config").arg(&config);
        let process = command.arg("--data").arg(&data).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut process = process.unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut answer = String::new();
        // With a descriptor less than it needs for that, it cannot accept the request.
        if lines.any(|line| line.unwrap() == "postroad ready")
            && let Ok(mut control) = UnixStream::connect(data.join("control.sock"))
        {
            ready += 1;
            control.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            control.write_all(QUESTION).unwrap();
            let _ = BufReader::new(control).read_line(&mut answer);
        }
        let _ = process.kill();
        process.wait().unwrap();
        assert!(answer.is_empty() || answer == NONE, "{descriptors} descriptors: {answer}");
    }
    assert!(0 < ready, "it needs more");
}
