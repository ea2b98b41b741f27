//! The `postroad` binary as people and scripts use it: real processes, real sockets, loopback only.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// No step here takes longer, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn postroad(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postroad"));
    command.args(arguments).env_remove("POSTROAD_LOG");
    command
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

fn configuration(directory: &Path, port: u16, more: &str) -> PathBuf {
    let file = directory.join(format!("postroad-{port}.toml"));
    let ports = format!("openwire = {port}\namqp = 0\namqp_websocket = 0\nhttp = 0");
    fs::write(&file, format!("[ports]\n{ports}\n[runtime]\ncores = 2\n{more}")).unwrap();
    file
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A process that is ended with the test, however the test ends.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// The exit code; `None` if a signal ended it.
    fn wait(&mut self) -> Option<i32> {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < end, "the process does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// A broker on a free port with a directory of its own.
struct Broker {
    process: Process,
    output: BufReader<ChildStdout>,
    directory: TempDir,
    port: u16,
    announced: Vec<String>,
}

impl Broker {
    fn start() -> Broker {
        Broker::configured("")
    }

    /// With these lines added to its configuration.
    fn configured(more: &str) -> Broker {
        Broker::start_in(tempfile::tempdir().unwrap(), more)
    }

    fn start_in(directory: TempDir, more: &str) -> Broker {
        // Another test may take the free port first: then try the next.
        for _ in 0..20 {
            let port = free_port();
            let config = configuration(directory.path(), port, more);
            let data = directory.path().join("data");
            let mut command = postroad(&["serve", "--config", text(&config), "--data", text(&data)]);
            let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            let mut output = BufReader::new(child.stdout.take().unwrap());
            let process = Process(child);
            let mut announced: Vec<String> = Vec::new();
            for line in (&mut output).lines().map(Result::unwrap) {
                announced.push(line);
                if announced.last().is_some_and(|line| line == "postroad ready") {
                    break;
                }
            }
            if announced.last().is_some_and(|line| line == "postroad ready") {
                return Broker { process, output, directory, port, announced };
            }
        }
        panic!("no broker comes up");
    }

    fn url(&self) -> String {
        format!("tcp://127.0.0.1:{}", self.port)
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// A client's command that talks to this broker.
    fn client(&self, arguments: &[&str]) -> Command {
        let mut command = postroad(arguments);
        command.args(["--url", &self.url()]);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.client(arguments).stdin(Stdio::null()).output().unwrap()
    }

    /// The output of a command that has to succeed.
    fn says(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn objects(&self, arguments: &[&str]) -> Vec<Value> {
        self.says(arguments).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn pipe(&self, arguments: &[&str], input: &[u8]) -> Output {
        let mut command = self.client(arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        child.wait_with_output().unwrap()
    }

    /// Stops it with a signal; its directory is left.
    fn stop(mut self, signal: Signal) -> TempDir {
        self.process.signal(signal);
        let want = (signal != Signal::KILL).then_some(0);
        assert_eq!(self.process.wait(), want, "{signal:?}: it drains and exits with 0, unless it is killed");
        self.directory
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn strings<'a>(objects: &'a [Value], key: &str) -> Vec<&'a str> {
    objects.iter().map(|object| object[key].as_str().unwrap_or_default()).collect()
}

#[test]
fn a_message_comes_back_with_all_its_headers() {
    let broker = Broker::start();
    let sent = broker.objects(&[
        "send",
        "orders",
        "--body",
        "größe 😀",
        "--property",
        "colour=blue",
        "--property",
        "n:long=7",
        "--property",
        "JMSXGroupID=g",
        "--type",
        "order",
        "--correlation-id",
        "c-1",
        "--reply-to",
        "topic://answers",
        "--priority",
        "7",
        "--ttl",
        "60000",
        "--json",
    ]);
    assert_eq!(sent.len(), 1);
    assert_eq!((&sent[0]["sent"], &sent[0]["destination"]), (&1.into(), &"queue://orders".into()));
    let mut got = broker.objects(&["receive", "queue://orders", "--timeout", "10000", "--json"]);
    assert_eq!(got.len(), 1);
    let message = got[0].as_object_mut().unwrap();
    assert_eq!(message.remove("message_id"), Some(sent[0]["first_message_id"].clone()));
    let times = ["timestamp_ms", "expires_at_ms"].map(|name| message.remove(name).unwrap().as_i64().unwrap());
    assert_eq!(times[1] - times[0], 60_000);
    assert_eq!(
        got[0],
        serde_json::json!({
            "destination": "queue://orders", "kind": "text", "persistent": true, "priority": 7,
            "redelivered": false, "delivery_count": 1, "correlation_id": "c-1", "reply_to": "topic://answers",
            "type": "order", "group_id": "g", "group_sequence": 0,
            "properties": { "colour": "blue", "n": 7 }, "body": "größe 😀",
        })
    );
    assert_eq!(broker.says(&["browse", "orders"]), "", "it was acknowledged");
}

#[test]
fn sources_of_bodies() {
    let broker = Broker::start();
    let sent = broker.pipe(&["send", "q", "--lines", "--window", "10"], b"one\ntwo\r\n\nfour");
    assert_eq!(sent.status.code(), Some(0), "{}", errors(&sent));
    assert_eq!(broker.says(&["receive", "q", "--count", "4", "--timeout", "10000"]), "one\ntwo\n\nfour\n");

    let large: Vec<u8> = (0..1 << 20).map(|byte: u32| (byte % 251) as u8).collect();
    let file = broker.directory.path().join("large");
    fs::write(&file, &large).unwrap();
    broker.says(&["send", "q", "--file", text(&file), "--bytes"]);
    let got = broker.run(&["receive", "q", "--raw", "--timeout", "10000"]);
    assert!(got.stdout == large, "1 MiB of bytes: {} came", got.stdout.len());

    let refused = broker.run(&["send", "q", "--file", text(&file)]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(errors(&refused).contains("use --bytes to send it as bytes"), "{}", errors(&refused));

    let large = "x".repeat(1 << 20);
    let sent = broker.pipe(&["send", "q", "--file", "-"], large.as_bytes());
    assert_eq!(sent.status.code(), Some(0), "{}", errors(&sent));
    assert!(broker.says(&["receive", "q", "--timeout", "10000"]) == large + "\n", "1 MiB of text");

    broker.says(&["send", "q", "--body", "\u{1}ab", "--bytes"]);
    assert_eq!(broker.objects(&["browse", "q", "--json"])[0]["body_base64"], "AWFi");
    assert_eq!(broker.says(&["receive", "q", "--timeout", "10000"]), "[bytes, 3 bytes, base64] AWFi\n");
}

#[test]
fn a_browser_sees_all_and_takes_nothing() {
    let broker = Broker::start();
    assert_eq!(broker.says(&["browse", "q"]), "", "a queue that nobody knows is empty");
    let sent =
        broker.says(&["send", "q", "--body", "x", "--count", "250", "--window", "50", "--non-persistent"]);
    assert!(sent.starts_with("sent 250 messages to queue://q in "), "{sent}");
    assert_eq!(broker.says(&["browse", "q"]), "x\n".repeat(250), "more than the broker sends ahead");
    let objects = broker.objects(&["browse", "queue://q", "--max", "3", "--json"]);
    assert_eq!(strings(&objects, "body"), ["x"; 3]);
    assert_eq!(objects[0]["persistent"], false);
    let taken = broker.says(&["receive", "q", "--follow", "--timeout", "500"]);
    assert_eq!(taken, "x\n".repeat(250), "they were all there still");
}

#[test]
fn what_is_not_acknowledged_comes_again_and_what_was_not_printed_is_untouched() {
    let broker = Broker::start();
    broker.pipe(&["send", "q", "--lines"], b"1\n2\n3\n");
    let seen =
        broker.objects(&["receive", "q", "--ack", "none", "--count", "2", "--timeout", "10000", "--json"]);
    assert_eq!(strings(&seen, "body"), ["1", "2"]);
    let mut again = Vec::new();
    for _ in 0..3 {
        again.extend(broker.objects(&["receive", "q", "--timeout", "10000", "--json"]));
    }
    assert_eq!(strings(&again, "body"), ["1", "2", "3"], "in order");
    let redelivered: Vec<_> = again.iter().map(|message| message["redelivered"].as_bool().unwrap()).collect();
    assert_eq!(redelivered, [true, true, false]);
}

#[test]
fn output_that_nobody_takes_is_not_acknowledged() {
    let broker = Broker::start();
    broker.says(&["send", "q", "--body", "x"]);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = broker.client(&["receive", "q", "--timeout", "10000"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(errors(&output).contains("cannot write to standard output"), "{}", errors(&output));
    assert_eq!(broker.says(&["receive", "q", "--timeout", "10000"]), "x\n");
}

#[test]
fn a_timeout_has_an_exit_code_of_its_own() {
    let broker = Broker::start();
    broker.says(&["send", "q", "--body", "x"]);
    let output = broker.run(&["receive", "q", "--count", "2", "--timeout", "200"]);
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"x\n"[..]));
    assert!(errors(&output).contains("timeout: 1 of 2 messages"), "{}", errors(&output));
    assert_eq!(broker.says(&["browse", "q"]), "", "what did come is acknowledged");
}

#[test]
fn a_topic_is_followed_until_a_signal() {
    let broker = Broker::start();
    let mut command = broker.client(&["receive", "topic://news", "--follow"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut process = Process(child);
    let mut said = BufReader::new(process.0.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "receiving from topic://news\n", "said once the subscription stands");
    broker.says(&["send", "topic://news", "--body", "hello"]);
    let mut output = BufReader::new(process.0.stdout.take().unwrap());
    line.clear();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, "hello\n");
    process.signal(Signal::INT);
    assert_eq!(process.wait(), Some(0));
}

#[test]
fn what_the_broker_refuses_is_shown_with_class_and_message() {
    let broker = Broker::start();
    let output = broker.run(&["receive", "q", "--selector", "a = ", "--timeout", "1"]);
    assert_eq!(output.status.code(), Some(1));
    let want = format!("the broker at {} said no: javax.jms.InvalidSelectorException: ", broker.url());
    assert!(errors(&output).contains(&want), "{}", errors(&output));
}

#[test]
fn what_was_sent_before_a_failure_is_told() {
    let broker = Broker::configured("[openwire]\nmax_frame_bytes = 2048\n");
    let output = broker.pipe(&["send", "q", "--lines"], format!("small\n{}\n", "x".repeat(3000)).as_bytes());
    assert_eq!(output.status.code(), Some(1));
    for want in ["postroad: sent 1 message to queue://q in ", ", then stopped: ", "exceeds the limit of 2048"]
    {
        assert!(errors(&output).contains(want), "{want}: {}", errors(&output));
    }
    assert_eq!(broker.says(&["browse", "q"]), "small\n");
}

#[test]
fn connections_that_fail_name_the_url() {
    let port = free_port();
    let refused = postroad(&["receive", "q", "--url", &format!("tcp://127.0.0.1:{port}")]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let want = format!(
        "postroad: cannot connect to tcp://127.0.0.1:{port}: connection refused; start a broker with `postroad serve`, \
         or name another with --url\n"
    );
    assert_eq!(errors(&refused), want);

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("tcp://{}", listener.local_addr().unwrap());
    let web = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        // Stays open until the client has gone, so that its bytes cause no reset before ours.
        let _ = std::io::copy(&mut socket, &mut std::io::sink());
    });
    let output = postroad(&["browse", "q", "--url", &url]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(errors(&output), format!("postroad: lost {url}: the server does not speak OpenWire\n"));
    web.join().unwrap();
}

#[test]
fn misuse_exits_with_2() {
    for arguments in [
        &["send", "q"][..],
        &["send", "q", "--body", "x", "--lines"],
        &["send", "q", "--body", "x", "--priority", "10"],
        &["send", "q", "--body", "x", "--property", "novalue"],
        &["send", "q", "--body", "x", "--window", "0"],
        &["send", "mailto://q", "--body", "x"],
        &["send", "q", "--body", "x", "--url", "http://127.0.0.1"],
        &["receive", "q", "--count", "2", "--follow"],
        &["receive", "q", "--json", "--raw"],
        &["browse", "topic://t"],
        &["serve", "--port-offset", "70000"],
        &["serve", "--memory", "64M"],
        &["unknown"],
    ] {
        let output = postroad(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", errors(&output));
    }
}

#[test]
fn the_version_is_told() {
    let plain = postroad(&["version"]).output().unwrap();
    assert_eq!(String::from_utf8(plain.stdout).unwrap(), format!("postroad {}\n", env!("CARGO_PKG_VERSION")));
    let json = postroad(&["version", "--json"]).output().unwrap();
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    let want = serde_json::json!({
        "name": "postroad", "version": env!("CARGO_PKG_VERSION"), "openwire_version_max": 12,
    });
    assert_eq!(json, want);
}

#[test]
fn messages_outlive_a_stop_by_either_signal() {
    let mut directory = tempfile::tempdir().unwrap();
    for (round, signal) in [Signal::TERM, Signal::INT].into_iter().enumerate() {
        let mut broker = Broker::start_in(directory, "");
        let want = [
            format!("postroad {}, store {}", env!("CARGO_PKG_VERSION"), broker.data().display()),
            format!("  OpenWire   {}", broker.url()),
            "postroad ready".to_owned(),
        ];
        let any = |line: &String| line.starts_with("  AMQP ") || line.starts_with("  HTTP ");
        let (any, others): (Vec<_>, Vec<_>) = broker.announced.iter().cloned().partition(any);
        assert_eq!(others, want);
        for (line, wanted) in
            any.iter().zip(["AMQP       amqp://", "AMQP       amqpws://", "HTTP       http://"])
        {
            assert!(line.starts_with(&format!("  {wanted}127.0.0.1:")), "{any:?}");
        }
        assert_eq!(any.len(), 3, "{any:?}");
        assert_eq!(broker.says(&["browse", "q"]), "x\n".repeat(round));
        broker.says(&["send", "q", "--body", "x"]);
        // A client that stays must not keep the broker from stopping.
        let idle = broker.client(&["receive", "other"]).stderr(Stdio::null()).spawn().unwrap();
        let _idle = Process(idle);
        let mut rest = String::new();
        broker.process.signal(signal);
        std::io::Read::read_to_string(&mut broker.output, &mut rest).unwrap();
        assert_eq!((broker.process.wait(), rest.as_str()), (Some(0), ""), "{signal:?}");
        directory = broker.directory;
    }
}

#[test]
fn a_stop_is_heard_from_the_moment_of_ready() {
    let broker = Broker::start();
    broker.stop(Signal::TERM);
}

#[test]
fn serve_says_what_keeps_it_from_starting() {
    let broker = Broker::start();
    let directory = broker.directory.path();
    let file = |name: &str, text: &str| {
        let file = directory.join(name);
        fs::write(&file, text).unwrap();
        file
    };
    let other = configuration(directory, free_port(), "");
    let same = configuration(directory, broker.port, "");
    let newer = directory.join("newer");
    fs::create_dir(&newer).unwrap();
    fs::write(newer.join("layout.json"), "{\"version\": 99, \"nodes\": 3}").unwrap();
    let fresh = directory.join("fresh");
    let data = broker.data();
    let pid = broker.process.0.id();
    let cases = [
        (
            "store in use",
            &other,
            &data,
            vec![format!("in use by another process, id {pid}"), text(&data).to_owned()],
        ),
        ("port taken", &same, &fresh, vec![format!("127.0.0.1:{} is in use", broker.port)]),
        ("store is a file", &other, &file("plain", ""), vec!["is a file".to_owned()]),
        ("newer layout", &other, &newer, vec!["layout version 99 is not supported".to_owned()]),
        (
            "unknown key",
            &file("a", "\nport_ofset = 1"),
            &fresh,
            vec!["line 2".into(), "did you mean `port_offset`?".into()],
        ),
        (
            "wrong type",
            &file("b", "[ports]\nopenwire = \"x\""),
            &fresh,
            vec!["line 2".into(), "expected u16".into()],
        ),
        ("no TOML", &file("c", "[ports"), &fresh, vec!["line 1".into()]),
        ("no such file", &directory.join("none"), &fresh, vec!["cannot read".into(), "none".into()]),
        ("a directory", &directory.to_owned(), &fresh, vec!["cannot read".into()]),
        ("beyond 65535", &file("d", "port_offset = 60000"), &fresh, vec!["exceeds 65535".into()]),
        (
            "no frame fits",
            &file("e", "[openwire]\nmax_frame_bytes = 1"),
            &fresh,
            vec!["openwire.max_frame_bytes".into()],
        ),
    ];
    for (case, config, data, wants) in cases {
        let output = postroad(&["serve", "--config", text(config), "--data", text(data)]).output().unwrap();
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(1), &b""[..]), "case: {case}");
        for want in wants {
            assert!(errors(&output).contains(&want), "case: {case}: {}", errors(&output));
        }
    }
    assert!(!fresh.exists(), "what does not start leaves nothing behind");
}

#[test]
fn policies_are_read_anew_on_sighup_or_stay_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let config = configuration(directory.path(), 0, "");
    let mut command = postroad(&["serve", "--config", text(&config), "--data", text(&data)]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut process = Process(child);
    assert!((&mut output).lines().any(|line| line.unwrap() == "postroad ready"));
    for (more, wants) in [
        ("[[policy]]\ndestination = \"queue://a\"", vec!["configuration reloaded"]),
        (
            "[[policy]]\ndestination = \"a\"",
            vec!["reloading the configuration failed; the old one stays in use", "[[policy]] 1", "queue://"],
        ),
        (
            "[[policy]]\ncolour = 1",
            vec!["reloading the configuration failed; the old one stays in use", "line 9", "colour"],
        ),
    ] {
        configuration(directory.path(), 0, more);
        process.signal(Signal::HUP);
        let line = log.find(|line| line.contains("configuration")).unwrap();
        for want in wants {
            assert!(line.contains(want), "{more}: {line}");
        }
    }
    process.signal(Signal::TERM);
    assert_eq!(process.wait(), Some(0));
}

/// A command for a directory, without a broker.
fn offline(arguments: &[&str]) -> Output {
    postroad(arguments).stdin(Stdio::null()).output().unwrap()
}

fn works(arguments: &[&str]) -> String {
    let output = offline(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", errors(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// A stopped broker's directory with three messages in one queue and one in another.
fn stopped() -> TempDir {
    left_by(Signal::TERM)
}

/// The same of one that ended by this signal: behind a kill a start applies its journal, behind an
/// end it has a checkpoint.
fn left_by(signal: Signal) -> TempDir {
    let broker = Broker::start();
    for body in ["one", "two", "three"] {
        broker.says(&["send", "orders", "--body", body]);
    }
    broker.says(&["send", "other", "--body", "four"]);
    let running = offline(&["store", "verify", text(&broker.data())]);
    assert!(errors(&running).contains("in use by another process"), "{}", errors(&running));
    broker.stop(signal)
}

#[test]
fn messages_move_to_another_directory_by_export_and_import() {
    let directory = stopped();
    let data = directory.path().join("data");
    let file = directory.path().join("all.jsonl");
    works(&["store", "export", text(&data), "--to", text(&file)]);
    let again = offline(&["store", "export", text(&data), "--to", text(&file)]);
    assert!(errors(&again).contains("it must not exist"), "{}", errors(&again));
    let lines: Vec<Value> =
        fs::read_to_string(&file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0], serde_json::json!({"postroad_export": 2}));
    let checksum = &lines[5]["crc32c"];
    assert!(checksum.is_u64(), "{}", lines[5]);
    assert_eq!(lines[5], serde_json::json!({"messages": 4, "unreadable": 0, "crc32c": checksum}));
    assert_eq!(
        strings(&lines[1..5], "destination"),
        ["queue://orders", "queue://orders", "queue://orders", "queue://other"]
    );

    let elsewhere = tempfile::tempdir().unwrap();
    let target = elsewhere.path().join("data");
    let cut = directory.path().join("cut.jsonl");
    let all = fs::read_to_string(&file).unwrap();
    for (name, content, want) in [
        (
            "cut off",
            &all[..all.rfind("{\"messages").unwrap()],
            "the last line, which has the counts, is missing",
        ),
        (
            "newer",
            &*all.replace("export\":2", "export\":7"),
            "export format 7 is not supported; this build reads 2",
        ),
        (
            "a line gone",
            &*all.replacen(all.lines().nth(2).unwrap(), "", 1).replace("\n\n", "\n"),
            "checksum mismatch",
        ),
        ("a line changed", &*all.replacen("\"priority\":4", "\"priority\":5", 1), "checksum mismatch"),
        (
            "a line gone, without a checksum",
            &*all
                .replacen(all.lines().nth(2).unwrap(), "", 1)
                .replace("\n\n", "\n")
                .replace(&format!(",\"crc32c\":{checksum}"), ""),
            "but the file has",
        ),
        ("no record", &*all.replacen("\"record\":\"", "\"record\":\"*", 1), "line 2"),
    ] {
        fs::write(&cut, content).unwrap();
        let refused = offline(&["store", "import", text(&target), "--from", text(&cut)]);
        assert_eq!(refused.status.code(), Some(1), "case: {name}");
        assert!(errors(&refused).contains(want), "case: {name}: {}", errors(&refused));
        assert!(!target.exists(), "case: {name}");
    }
    works(&["store", "import", text(&target), "--from", text(&file)]);
    let mut piped = postroad(&["store", "import", text(&target), "--from", "-"]);
    let mut import = piped.stdin(Stdio::piped()).spawn().unwrap();
    let mut export = postroad(&["store", "export", text(&data), "--to", "-"]);
    let exported = export.stdout(import.stdin.take().unwrap()).status().unwrap();
    drop(export);
    assert!(exported.success() && import.wait().unwrap().success());
    let named = directory.path().join("named");
    assert!(Command::new("mkfifo").arg(&named).status().unwrap().success());
    let mut import = postroad(&["store", "import", text(&target), "--from", text(&named)]).spawn().unwrap();
    works(&["store", "export", text(&data), "--to", text(&named)]);
    assert!(import.wait().unwrap().success());
    let broker = Broker::start_in(elsewhere, "");
    let got = broker.says(&["receive", "orders", "--count", "9", "--timeout", "10000"]);
    assert_eq!(got, "one\ntwo\nthree\n".repeat(3));
}

#[test]
fn a_directory_with_a_long_path_has_a_control_socket() {
    let home = tempfile::Builder::new().prefix(&"long".repeat(40)).tempdir().unwrap();
    let broker = Broker::start_in(home, "");
    let elsewhere = tempfile::tempdir().unwrap();
    let to = elsewhere.path().join("copy");
    works(&["store", "backup", "--data", text(&broker.data()), "--to", text(&to)]);
    assert!(to.join("layout.json").exists());
}

#[test]
fn the_control_socket_goes_with_its_broker_and_no_other_does() {
    let directory = Broker::start().stop(Signal::TERM);
    assert!(!directory.path().join("data/control.sock").exists());
    let broker = Broker::start_in(directory, "");
    let (data, away) = (broker.data(), broker.directory.path().join("away"));
    fs::rename(&data, &away).unwrap();
    fs::create_dir(&data).unwrap();
    let of_another = data.join("control.sock");
    fs::write(&of_another, "").unwrap();
    let _directory = broker.stop(Signal::TERM);
    assert!(of_another.exists());
}

#[test]
fn a_segment_that_there_is_not_is_named_by_dump() {
    let directory = stopped();
    let data = directory.path().join("data");
    let refused = offline(&["store", "dump", text(&data), "--segment", "999"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(errors(&refused).contains("there is no segment 999; they go from 1 to "), "{}", errors(&refused));
}

#[test]
fn an_import_beyond_a_limit_is_refused_and_changes_nothing() {
    let directory = stopped();
    let file = directory.path().join("all.jsonl");
    works(&["store", "export", text(&directory.path().join("data")), "--to", text(&file)]);
    let policy = |limit: &str| format!("[[policy]]\ndestination = \"queue://orders\"\n{limit}\n");
    let tenant =
        |limit: &str| format!("[[tenant]]\nname = \"own\"\ndestinations = [\"queue://>\"]\n{limit}\n");
    for (case, limits, want) in [
        (
            "a queue that fails",
            policy("messages_max = 2\nat_limit = \"fail\""),
            Some("queue://orders is at the limit"),
        ),
        (
            "one that drops",
            policy("messages_max = 2\nat_limit = \"drop-oldest\""),
            Some("queue://orders is at the limit"),
        ),
        ("its bytes", policy("bytes_max = 10"), Some("queue://orders is at the limit")),
        ("a tenant", tenant("messages_max = 3"), Some("the tenant own is at the limit")),
        ("the broker", "[limits]\nmessages_max = 3\n".to_owned(), Some("the broker is at the limit")),
        ("room for all", policy("messages_max = 3\nat_limit = \"drop-oldest\""), None),
    ] {
        let elsewhere = tempfile::tempdir().unwrap();
        let (target, config) = (elsewhere.path().join("data"), elsewhere.path().join("postroad.toml"));
        fs::write(&config, &limits).unwrap();
        let arguments = ["store", "import", text(&target), "--from", text(&file), "--config", text(&config)];
        let left = match want {
            Some(want) => {
                let refused = offline(&arguments);
                assert_eq!(refused.status.code(), Some(1), "{case}");
                assert!(errors(&refused).contains(want), "{case}: {}", errors(&refused));
                assert!(errors(&refused).contains("nothing was imported"), "{case}: {}", errors(&refused));
                0
            }
            None => {
                works(&arguments);
                4
            }
        };
        let exported = offline(&["store", "export", text(&target)]);
        let last = String::from_utf8(exported.stdout).unwrap().lines().last().unwrap().to_owned();
        assert!(last.contains(&format!("\"messages\":{left},")), "{case}: {last}");
        if want.is_none() {
            // A new message would be refused now: those that are there count.
            let refused = offline(&arguments);
            assert!(errors(&refused).contains("queue://orders is at the limit"), "{}", errors(&refused));
            let broker = Broker::start_in(elsewhere, &limits);
            let got = broker.says(&["receive", "orders", "--count", "3", "--timeout", "10000"]);
            assert_eq!(got, "one\ntwo\nthree\n", "{case}");
        }
    }
}

#[test]
fn messages_that_are_due_later_move_by_export_and_import_too() {
    let broker = Broker::start();
    let later = "AMQ_SCHEDULED_DELAY:long=3600000";
    broker.says(&["send", "orders", "--body", "now"]);
    broker.says(&["send", "orders", "--body", "later", "--count", "3", "--property", later]);
    let again = ["--property", "AMQ_SCHEDULED_REPEAT:int=4", "--property", "AMQ_SCHEDULED_PERIOD:long=5000"];
    broker.says(&[&["send", "topic://news", "--body", "again", "--property", later][..], &again].concat());
    let cron = "AMQ_SCHEDULED_CRON=0 3 1 1 *";
    broker.says(&["send", "orders", "--body", "each year", "--property", cron]);
    let directory = broker.stop(Signal::TERM);
    let export = |data: &Path, to: &str| {
        let file = directory.path().join(to);
        let done = offline(&["store", "export", text(data), "--to", text(&file)]);
        assert_eq!(done.status.code(), Some(0), "{}", errors(&done));
        assert!(errors(&done).contains("6 messages, 5 of them scheduled"), "{}", errors(&done));
        let lines = fs::read_to_string(&file).unwrap();
        (file, lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>())
    };
    let (file, lines) = export(&directory.path().join("data"), "all.jsonl");
    assert_eq!((&lines[7]["messages"], &lines[7]["unreadable"]), (&Value::from(6), &Value::from(0)));
    let told: Vec<(&str, u64, &Value, &Value, &Value)> = lines[2..7]
        .iter()
        .map(|line| {
            let schedule = &line["schedule"];
            let [period, times, cron] = ["period_ms", "times", "cron"].map(|key| &schedule[key]);
            let due_ms = schedule["due_ms"].as_u64().unwrap();
            (line["destination"].as_str().unwrap(), due_ms, period, times, cron)
        })
        .collect();
    assert!(told.is_sorted_by_key(|(_, due_ms, ..)| *due_ms), "{told:?}");
    let mut kinds: Vec<String> =
        told.iter().map(|(to, _, period, times, cron)| format!("{to} {period} {times} {cron}")).collect();
    kinds.sort();
    let once = "queue://orders null null null";
    let want = ["queue://orders null 0 \"0 3 1 1 *\"", once, once, once, "topic://news 5000 4 null"];
    assert_eq!(kinds, want);
    let target = directory.path().join("other");
    works(&["store", "import", text(&target), "--from", text(&file)]);
    let (_, copied) = export(&target, "copied.jsonl");
    let what = |lines: &[Value]| -> Vec<Value> {
        lines[1..7].iter().map(|line| serde_json::json!([line["schedule"], line["record"]])).collect()
    };
    assert_eq!(what(&copied), what(&lines), "they are due when they would have been");
}

#[test]
fn an_export_of_version_1_is_imported() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/export/version-1.jsonl");
    works(&["store", "import", text(&data), "--from", text(&kept)]);
    let broker = Broker::start_in(directory, "");
    for (queue, count, want) in [("orders", "3", "one\ntwo\nthree\n"), ("other", "1", "four\n")] {
        assert_eq!(broker.says(&["receive", queue, "--count", count, "--timeout", "10000"]), want);
    }
}

#[test]
fn damage_is_named_by_file_and_offset() {
    let directory = stopped();
    let data = directory.path().join("data");
    assert!(works(&["store", "verify", text(&data)]).contains(" 0 damaged places"));
    let records: Vec<Value> = works(&["store", "dump", text(&data), "--json"])
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|record: &Value| record["record"] == "Enqueue")
        .collect();
    assert_eq!(records.len(), 4);
    let segment = data.join(format!("{:016x}.segment", records[1]["segment"].as_u64().unwrap()));
    let mut bytes = fs::read(&segment).unwrap();
    let offset = records[1]["offset"].as_u64().unwrap() as usize;
    bytes[offset + 40] ^= 4;
    fs::write(&segment, &bytes).unwrap();
    let found = offline(&["store", "verify", text(&data)]);
    let said = String::from_utf8(found.stdout.clone()).unwrap();
    assert_eq!(found.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("{}: byte {offset}: checksum of the record", text(&segment))), "{said}");
    assert_eq!(fs::read(&segment).unwrap(), bytes, "nothing is changed");
}

/// The answer to a GET at the HTTP port of the broker: its status, and its body. The record of the
/// message with this number among those that were sent, as `dump` shows it: its segment, and where
/// in it.
fn sent_record(data: &Path, number: usize) -> (PathBuf, usize) {
    let dump = works(&["store", "dump", text(data), "--json"]);
    let records = dump.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let record = records.filter(|record| record["record"] == "Enqueue").nth(number).unwrap();
    let segment = data.join(format!("{:016x}.segment", record["segment"].as_u64().unwrap()));
    (segment, record["offset"].as_u64().unwrap() as usize)
}

fn flip(file: &Path, offset: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[offset] ^= 4;
    fs::write(file, bytes).unwrap();
}

/// A broker on the data directory of a repaired store; its messages in `orders`, oldest first.
fn received(directory: TempDir) -> (String, TempDir) {
    let broker = Broker::start_in(directory, "");
    let got = broker.run(&["receive", "orders", "--timeout", "1000", "--count", "9"]);
    (String::from_utf8(got.stdout).unwrap(), broker.stop(Signal::TERM))
}

#[test]
fn a_flipped_bit_hits_its_message_alone_behind_an_end_and_is_told_behind_a_kill() {
    for (signal, status, well, want) in
        [(Signal::TERM, 200, "ready\n", "one\nthree\n"), (Signal::KILL, 503, "stopped for damage: ", "")]
    {
        let directory = left_by(signal);
        let (segment, offset) = sent_record(&directory.path().join("data"), 1);
        flip(&segment, offset + 200);
        let broker = Broker::start_in(directory, "");
        let got = broker.run(&["receive", "orders", "--timeout", "1000", "--count", "9"]);
        assert_eq!(String::from_utf8(got.stdout).unwrap(), want, "{signal:?}");
        let (code, said) = get(&broker, "/health/ready");
        assert!(code == status && said.starts_with(well), "{signal:?}: {code} {said}");
        let metrics = get(&broker, "/metrics").1;
        let told = match signal {
            Signal::KILL => {
                assert!(said.contains(text(&segment)) && said.contains(&format!("byte {offset}")), "{said}");
                "postroad_journal_stopped_partitions{store=\"main\"} 1\n"
            }
            _ => "postroad_damaged_messages_total{partition=\"0\"} 1\n",
        };
        assert!(metrics.contains(told), "{signal:?}: {metrics}");
        assert!(
            metrics.contains("postroad_journal_damaged_ranges{store=\"main\"} 1\n"),
            "{signal:?}: {metrics}"
        );
    }
}

#[test]
fn a_repaired_directory_starts_with_all_that_can_be_read() {
    [Signal::TERM, Signal::KILL].into_iter().for_each(repaired_behind);
}

fn repaired_behind(signal: Signal) {
    for (name, damage, want, lost) in [
        (
            "a body",
            (|data: &Path| {
                let (segment, offset) = sent_record(data, 1);
                flip(&segment, offset + 200);
            }) as fn(&Path),
            "one\nthree\n",
            1,
        ),
        (
            "the header of a group",
            |data| {
                let (segment, offset) = sent_record(data, 1);
                flip(&segment, offset / 512 * 512 + 9);
            },
            "one\ntwo\nthree\n",
            0,
        ),
        ("the header of the segment", |data| flip(&sent_record(data, 0).0, 20), "one\ntwo\nthree\n", 0),
        ("the layout file", |data| fs::write(data.join("layout.json"), "{").unwrap(), "one\ntwo\nthree\n", 0),
        ("no layout file", |data| fs::remove_file(data.join("layout.json")).unwrap(), "one\ntwo\nthree\n", 0),
    ] {
        let directory = left_by(signal);
        let data = directory.path().join("data");
        damage(&data);
        let told = offline(&["store", "repair", text(&data), "--json"]);
        assert_eq!(told.status.code(), Some(1), "case: {name}: {}", errors(&told));
        assert!(errors(&told).contains("nothing was changed; with --write"), "case: {name}");
        let done = works(&["store", "repair", text(&data), "--json", "--write"]);
        let lines: Vec<Value> = done.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (repaired, report) = lines.split_last().unwrap();
        assert_eq!(String::from_utf8(told.stdout).unwrap(), done[..done.trim_end().rfind('\n').unwrap() + 1]);
        assert_eq!(repaired["kind"], "repaired", "case: {name}");
        let aside = PathBuf::from(repaired["aside"].as_str().unwrap());
        assert_eq!(aside, data.join("damaged-1"), "case: {name}");
        let kept = fs::read_to_string(aside.join("report.jsonl")).unwrap();
        assert_eq!(kept.lines().count(), report.len(), "case: {name}");
        let sum = report.last().unwrap();
        let all_lost =
            ["lost_records", "lost_messages"].map(|of| sum[of].as_u64().unwrap()).iter().sum::<u64>();
        assert_eq!(all_lost, lost, "case: {name}: {done}");
        assert!(works(&["store", "verify", text(&data)]).contains(" 0 damaged places"), "case: {name}");
        assert!(works(&["store", "repair", text(&data)]).contains("nothing to repair"), "case: {name}");
        let (got, directory) = received(directory);
        assert_eq!(got, want, "case: {name}");
        assert_eq!(received(directory).0, "", "case: {name}: what was taken is gone");
    }
}

#[test]
fn a_damaged_message_is_reported_with_its_queue_and_id() {
    let directory = left_by(Signal::KILL);
    let data = directory.path().join("data");
    // Its text is the last of it.
    let (segment, offset) = sent_record(&data, 1);
    let bytes = fs::read(&segment).unwrap();
    let body = bytes[offset..].windows(3).position(|window| window == b"two").unwrap();
    flip(&segment, offset + body);
    let told = String::from_utf8(offline(&["store", "repair", text(&data)]).stdout).unwrap();
    let record = told.lines().find(|line| line.contains("is lost")).unwrap();
    assert!(record.contains("its damaged bytes read as Enqueue, message ID:"), "{told}");
    assert!(record.ends_with("to queue://orders"), "{told}");
    assert!(told.contains("1 record and 0 messages are lost, 3 entries of queues are kept"), "{told}");
    let verified = offline(&["store", "verify", text(&data)]);
    assert_eq!(verified.status.code(), Some(1), "it was only told");
}

fn get(broker: &Broker, path: &str) -> (u16, String) {
    let line = broker.announced.iter().find_map(|line| line.strip_prefix("  HTTP       http://")).unwrap();
    let mut stream = std::net::TcpStream::connect(line).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: postroad\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut stream, &mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn metrics_count_what_happened_and_the_broker_is_well() {
    let broker = Broker::start();
    for body in ["one", "two", "three"] {
        broker.says(&["send", "orders", "--body", body]);
    }
    broker.says(&["receive", "orders", "--timeout", "10000"]);
    assert_eq!(get(&broker, "/health/live"), (200, "live\n".to_owned()));
    assert_eq!(get(&broker, "/health/ready"), (200, "ready\n".to_owned()));
    let (status, metrics) = get(&broker, "/metrics");
    assert_eq!(status, 200);
    for want in [
        "postroad_connections_opened_total{protocol=\"OpenWire\"} 4",
        "postroad_queue_depth{destination=\"queue://orders\"} 2",
        "postroad_queue_enqueued_total{destination=\"queue://orders\"} 3",
        "postroad_queue_dequeued_total{destination=\"queue://orders\"} 1",
        "postroad_delivered_total{partition=\"0\"}",
        "postroad_journal_segments{store=\"main\"} 1",
        "postroad_journal_full{store=\"main\"} 0",
    ] {
        assert!(metrics.lines().any(|line| line.starts_with(want)), "no {want} in\n{metrics}");
    }
    let value = |name: &str| -> f64 {
        let line = metrics.lines().find(|line| line.split(' ').next() == Some(name));
        line.unwrap_or_else(|| panic!("no {name} in\n{metrics}")).split(' ').nth(1).unwrap().parse().unwrap()
    };
    assert!(
        4.0 <= value("postroad_journal_group_records_sum{store=\"main\"}"),
        "three sends and an acknowledgement"
    );
    let seconds = |of: &str| value(&format!("postroad_journal_{of}_seconds_sum{{store=\"main\"}}"));
    assert!(0.0 < seconds("sync"), "what the syncs took");
    assert!(0.0 < seconds("group"));
    assert!(
        value("postroad_journal_syncs_total{store=\"main\"}")
            <= value("postroad_journal_sync_seconds_count{store=\"main\"}")
    );
    assert!(
        value("postroad_journal_group_records_count{store=\"main\"}")
            <= value("postroad_journal_syncs_total{store=\"main\"}")
    );
}

/// The groups of a segment: where each begins, and how many records it has.
fn groups(segment: &[u8]) -> Vec<(usize, u32)> {
    let sectors = segment.chunks(512).enumerate().filter(|(_, sector)| sector.starts_with(b"PRGR"));
    sectors
        .map(|(index, sector)| (512 * index, u32::from_le_bytes(sector[56..60].try_into().unwrap())))
        .collect()
}

#[test]
fn damage_to_the_last_message_of_a_broker_that_was_at_rest_is_no_torn_tail() {
    let mut broker = Broker::start();
    broker.says(&["send", "orders", "--body", "m"]);
    let segment = broker.data().join("0000000000000001.segment");
    let end = Instant::now() + PATIENCE;
    let found = loop {
        let found = groups(&fs::read(&segment).unwrap());
        if found.len() > 1 && found.last().is_some_and(|(_, records)| *records == 0) {
            break found;
        }
        assert!(Instant::now() < end, "no empty group comes: {found:?}");
        std::thread::sleep(Duration::from_millis(50));
    };
    broker.process.signal(Signal::KILL);
    broker.process.wait();
    let (last, _) = *found.iter().rfind(|(_, records)| 0 < *records).unwrap();
    let bytes = fs::read(&segment).unwrap();
    for offset in [last, last + 20, last + 70, last + 100] {
        let mut damaged = bytes.clone();
        damaged[offset] ^= 16;
        fs::write(&segment, &damaged).unwrap();
        let verified = offline(&["store", "verify", text(&broker.data())]);
        let said = String::from_utf8_lossy(&verified.stdout).into_owned() + &errors(&verified);
        assert!(verified.status.code() == Some(1) && !said.contains("unconfirmed write"), "{offset}: {said}");
    }
}

#[test]
fn a_backup_under_load_has_all_that_was_confirmed_before_it() {
    let mut broker = Broker::start();
    broker.says(&["send", "kept", "--body", "before"]);
    let load =
        broker.client(&["send", "load", "--count", "100000", "--body", "m"]).stderr(Stdio::null()).spawn();
    let load = Process(load.unwrap());
    let copy = tempfile::tempdir().unwrap();
    let data = broker.data();
    for round in 0..5 {
        broker.says(&["send", "kept", "--body", &round.to_string()]);
        let to = copy.path().join(format!("{round}/data"));
        fs::create_dir(to.parent().unwrap()).unwrap();
        works(&["store", "backup", "--data", text(&data), "--to", text(&to)]);
        let again = offline(&["store", "backup", "--data", text(&data), "--to", text(&to)]);
        assert!(errors(&again).contains("exists; a backup needs a new directory"), "{}", errors(&again));
        assert!(works(&["store", "verify", text(&to)]).contains(" 0 damaged places"));
    }
    for inside in ["copy", "new/copy"] {
        let to = data.join(inside);
        let refused = offline(&["store", "backup", "--data", text(&data), "--to", text(&to)]);
        assert!(errors(&refused).contains("is inside the directory of a store"), "{}", errors(&refused));
    }
    assert!(!data.join("new").exists());
    drop(load);
    broker.process.signal(Signal::KILL);
    broker.process.wait();
    let gone = offline(&["store", "backup", "--data", text(&data), "--to", text(&copy.path().join("x"))]);
    assert!(errors(&gone).contains("no broker answers"), "{}", errors(&gone));
    for (round, want) in [(0, "before\n0\n"), (4, "before\n0\n1\n2\n3\n4\n")] {
        let directory = tempfile::tempdir().unwrap();
        fs::rename(copy.path().join(format!("{round}/data")), directory.path().join("data")).unwrap();
        assert_eq!(Broker::start_in(directory, "").says(&["browse", "kept"]), want);
    }
}

#[test]
fn a_backup_that_fails_leaves_nothing_behind() {
    let home = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let (fast, copies) = (elsewhere.path().join("fast"), elsewhere.path().join("copies"));
    fs::create_dir(&copies).unwrap();
    let store = format!("[[store]]\nname = 'fast'\npath = '{}'\n", text(&fast));
    let broker = Broker::start_in(home, &store);
    let back_up = |to: &str, part: &str| {
        let (to, part) = (copies.join(to), format!("fast={}", text(&copies.join(part))));
        offline(&["store", "backup", "--data", text(&broker.data()), "--to", text(&to), "--store", &part])
    };
    let each_its_own = "are the same directory or nested: each store needs its own";
    let layout = fast.join("layout.json");
    let gone = format!("{} is missing", text(&layout));
    let fails = |case: &str, to: &str, part: &str, want: &str| {
        let said = back_up(to, part);
        assert_eq!(said.status.code(), Some(1), "{case}");
        assert!(errors(&said).contains(want), "{case}: {}", errors(&said));
        assert_eq!(errors(&said).matches("nothing was backed up").count(), 1, "{case}: {}", errors(&said));
        assert_eq!(fs::read_dir(&copies).unwrap().count(), 0, "{case}");
    };
    for (case, to, part, want) in [
        ("the same", "one", "one", each_its_own),
        ("one by another way", "one", "../copies/one", each_its_own),
        ("in the other", "one/main", "one", each_its_own),
        ("and the reverse", "one", "one/fast", each_its_own),
        ("the other's name until it is whole", "one", "one.unfinished", each_its_own),
        ("by way of nowhere", "none/../one", "two", "its .. has no parent directory"),
    ] {
        fails(case, to, part, want);
    }
    let kept = fs::read(&layout).unwrap();
    fs::remove_file(&layout).unwrap();
    fails("a store without its layout", "new/one", "new/two/part", &gone);
    fs::write(&layout, kept).unwrap();
    let made = back_up("new/one", "new/two/part");
    assert_eq!(made.status.code(), Some(0), "{}", errors(&made));
    let parts = format!("{} and {}", text(&copies.join("new/one")), text(&copies.join("new/two/part")));
    assert!(errors(&made).ends_with(&format!(" files in {parts}\n")), "{}", errors(&made));
    for part in ["new/one", "new/two/part"] {
        assert!(works(&["store", "verify", text(&copies.join(part))]).contains(" 0 damaged places"));
    }
}

#[test]
fn a_broker_says_which_branches_wait_and_why_it_ends_none() {
    let broker = Broker::start();
    let data = broker.directory.path().join("data");
    assert_eq!(works(&["transactions", "list", "--data", text(&data)]), "");
    for (case, branch, want) in [
        ("unknown", "1:61:62", "no such branch: it was not begun, or has ended"),
        ("no branch", "1:61", "a branch is FORMAT:TRANSACTION:QUALIFIER, with 2 colons; this has 1"),
        ("no number", "x::", "the format \"x\" is no number of 32 bits"),
        ("no bytes", "1:6:", "\"6\" is not hexadecimal, two digits to a byte, of at most 64 bytes"),
    ] {
        for word in ["commit", "rollback", "forget"] {
            let output = offline(&["transactions", word, branch, "--data", text(&data)]);
            assert_ne!(output.status.code(), Some(0), "case: {case}, {word}");
            assert!(errors(&output).contains(want), "case: {case}, {word}: {}", errors(&output));
        }
    }
    let stopped = offline(&["transactions", "list", "--data", text(data.parent().unwrap())]);
    assert!(errors(&stopped).contains("no broker answers"), "{}", errors(&stopped));
}

#[test]
fn what_outlives_the_process_is_what_its_policy_says() {
    let policies = "[store]\nasync_sync_ms = 60000
        [[policy]]\ndestination = \"queue://fast\"\ndurability = \"async\"
        [[policy]]\ndestination = \"queue://lost\"\ndurability = \"memory\"";
    let mut broker = Broker::configured(policies);
    for body in ["one", "two"] {
        for queue in ["safe", "fast", "lost"] {
            broker.says(&["send", queue, "--body", body]);
        }
    }
    assert_eq!(broker.says(&["receive", "fast", "--timeout", "10000"]), "one\n");
    broker.process.signal(Signal::KILL);
    assert_eq!(broker.process.wait(), None);
    let broker = Broker::start_in(broker.directory, policies);
    for (queue, want) in [("safe", "one\ntwo\n"), ("fast", "two\n"), ("lost", "")] {
        assert_eq!(broker.says(&["browse", queue]), want, "{queue}");
    }
}

#[test]
fn compressed_bodies_take_less_room_and_are_plain_for_everybody() {
    for way in ["lz4", "zstd"] {
        check_compressed(way);
    }
}

fn check_compressed(way: &str) {
    let policy = format!("[[policy]]\ndestination = \"queue://dense\"\ncompression = \"{way}\"\n");
    let broker = Broker::configured(&policy);
    let body = "<item colour='red'/>".repeat(100);
    for queue in ["dense", "plain"] {
        broker.says(&["send", queue, "--body", &body]);
    }
    assert_eq!(broker.says(&["browse", "dense"]), format!("{body}\n"));
    let directory = broker.stop(Signal::TERM);
    let data = directory.path().join("data");
    let dump = works(&["store", "dump", text(&data), "--json"]);
    let records = dump.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let bytes: Vec<u64> = (records.filter(|record| record["record"] == "Enqueue"))
        .map(|record| record["bytes"].as_u64().unwrap())
        .collect();
    assert!(bytes[0] < 500 && 2000 < bytes[1], "{bytes:?}");
    let export = works(&["store", "export", text(&data)]);
    let exported: Vec<Value> = export.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(exported[1]["body_bytes"], exported[2]["body_bytes"]);
    let lengths = [1, 2].map(|line: usize| exported[line]["record"].as_str().unwrap().len());
    assert!(2000 < lengths[0] && lengths[0].abs_diff(lengths[1]) < 100, "{lengths:?}");
    // Without the policy, messages on the disk are read as before.
    let broker = Broker::start_in(directory, "");
    assert_eq!(broker.says(&["receive", "dense", "--count", "1", "--timeout", "10000"]), format!("{body}\n"));
}

#[test]
fn a_start_that_is_held_up_says_where_it_is() {
    let directory = stopped();
    let data = directory.path().join("data");
    let layout = data.join("layout.json");
    let content = fs::read(&layout).unwrap();
    // Reading a pipe blocks until another process writes to it.
    fs::remove_file(&layout).unwrap();
    let made = Command::new("mkfifo").arg(&layout).status().unwrap();
    assert!(made.success());
    let config = configuration(directory.path(), 0, "");
    let mut command = postroad(&["serve", "--config", text(&config), "--data", text(&data)]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (output, told) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let mut process = Process(child);
    let mut told = BufReader::new(told).lines().map(Result::unwrap);
    let where_it_is = told.find(|line| line.contains("starting")).expect("a line while it waits");
    assert!(where_it_is.contains("opens the directory"), "{where_it_is}");
    fs::write(&layout, content).unwrap();
    let opened = told.find(|line| line.contains("the store is open")).expect("a line when it is over");
    assert!(opened.contains("seconds="), "{opened}");
    let ready = BufReader::new(output).lines().map(Result::unwrap).find(|line| line == "postroad ready");
    assert!(ready.is_some(), "it serves then");
    process.signal(Signal::TERM);
    assert_eq!(process.wait(), Some(0));
}

#[test]
fn a_store_whose_segments_are_gone_is_refused() {
    let directory = stopped();
    for entry in fs::read_dir(directory.path().join("data")).unwrap() {
        let file = entry.unwrap().path();
        if file.extension().is_some_and(|extension| extension == "segment") {
            fs::remove_file(file).unwrap();
        }
    }
    let refused =
        offline(&["serve", "--data", text(&directory.path().join("data")), "--port-offset", "1200"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(errors(&refused).contains("all its segments are missing"), "{}", errors(&refused));
}

#[test]
fn a_store_whose_layout_is_gone_is_refused_until_it_is_repaired() {
    let directory = stopped();
    let data = directory.path().join("data");
    let layout = data.join("layout.json");
    fs::remove_file(&layout).unwrap();
    let want = format!("{} is missing, but there is a journal (segments: ", text(&layout));
    for command in [
        vec!["serve", "--port-offset", "1201", "--data"],
        vec!["store", "verify"],
        vec!["store", "stats"],
        vec!["store", "dump"],
        vec!["store", "export"],
    ] {
        let refused = offline(&[&command[..], &[text(&data)]].concat());
        assert_eq!(refused.status.code(), Some(1), "{command:?}");
        let said = errors(&refused);
        assert!(said.contains(&want) && said.contains("`postroad store repair "), "{command:?}: {said}");
        assert!(!layout.exists(), "{command:?}");
    }
    works(&["store", "repair", text(&data), "--write"]);
    assert_eq!(received(directory).0, "one\ntwo\nthree\n");
}

#[test]
fn a_directory_that_is_none_of_a_broker_is_called_so_and_nothing_is_made_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let (empty, letters) = (directory.path().join("empty"), directory.path().join("letters"));
    fs::create_dir(&empty).unwrap();
    fs::create_dir(&letters).unwrap();
    fs::write(letters.join("a.txt"), "text").unwrap();
    for (data, files, want) in [
        (&empty, 0, "not a data directory: it has no layout.json and no journal"),
        (&letters, 1, "not a data directory: it has no layout.json and no journal"),
        (&directory.path().join("none"), 0, "No such file or directory"),
    ] {
        for command in ["verify", "stats", "dump", "export"] {
            let refused = offline(&["store", command, text(data)]);
            assert_eq!(refused.status.code(), Some(1), "{command} {}", data.display());
            assert!(errors(&refused).contains(want), "{command}: {}", errors(&refused));
            let there = fs::read_dir(data).map_or(0, Iterator::count);
            assert_eq!(there, files, "{command} {}", data.display());
        }
    }
}

#[test]
fn dead_letters_go_back_to_where_they_were() {
    let broker = Broker::start();
    for (queue, body) in [("orders", "m"), ("bills", "n")] {
        broker.says(&["send", queue, "--body", body, "--ttl", "1", "--property", "k=v"]);
    }
    let end = Instant::now() + PATIENCE;
    let dead = || broker.objects(&["browse", "ActiveMQ.DLQ", "--json"]).len();
    while dead() < 2 {
        assert!(Instant::now() < end, "both messages expire: {}", dead());
        std::thread::sleep(Duration::from_millis(50));
    }
    let one = broker.run(&["redrive", "--origin", "orders", "--timeout", "300"]);
    assert_eq!((one.status.code(), errors(&one).contains("1 stayed")), (Some(0), true), "{}", errors(&one));
    // The broker by itself, which counts them; the other is a client as any.
    let inside =
        postroad(&["redrive", "--to", "elsewhere", "--data", text(&broker.data())]).output().unwrap();
    assert!(errors(&inside).starts_with("1 sent back"), "{}", errors(&inside));
    for (queue, body) in [("orders", "m"), ("elsewhere", "n")] {
        let message = &broker.objects(&["receive", queue, "--json", "--timeout", "10000"])[0];
        assert_eq!(
            (&message["body"], &message["properties"]),
            (&Value::from(body), &serde_json::json!({ "k": "v" })),
            "{queue}"
        );
    }
    assert_eq!(dead(), 0);
    let metrics = get(&broker, "/metrics").1;
    let line = "postroad_redriven_total{partition=\"0\"} 1";
    assert!(metrics.lines().any(|found| found == line), "no {line} in\n{metrics}");
}

/// Files of a directory that have these bytes in them.
fn files_with(data: &Path, bytes: &str) -> Vec<String> {
    let found = Command::new("grep").args(["-rlaF", bytes, text(data)]).output().unwrap();
    String::from_utf8(found.stdout).unwrap().lines().map(str::to_owned).collect()
}

/// Names and contents of the files that a broker keeps messages in.
fn kept(data: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    let others = ["LOCK", "control.sock", "configuration"];
    let kept =
        files.filter(|file| file.file_name().is_some_and(|name| others.iter().all(|other| name != *other)));
    let mut kept: Vec<_> = kept.map(|file| (file.clone(), fs::read(&file).unwrap())).collect();
    kept.sort();
    kept
}

#[test]
fn the_layout_of_one_of_several_stores_is_made_anew_from_the_others() {
    let home = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let at = |name: &str| elsewhere.path().join(name);
    let mut config = "partitions = 2\n".to_owned();
    for (name, partitions) in [("fast", 1), ("bulk", 2)] {
        config +=
            &format!("[[store]]\nname = '{name}'\npath = '{}'\npartitions = {partitions}\n", text(&at(name)));
        config += &format!("[[policy]]\ndestination = 'queue://{name}.>'\nstore = '{name}'\n");
    }
    let broker = Broker::start_in(home, &config);
    for queue in ["own", "fast.a", "bulk.a"] {
        broker.says(&["send", queue, "--body", queue]);
    }
    let home = broker.stop(Signal::TERM);
    let data = home.path().join("data");
    let layouts = [&data, &at("fast"), &at("bulk")].map(|store| store.join("layout.json"));
    let before = layouts.each_ref().map(|layout| fs::read_to_string(layout).unwrap());

    fs::remove_file(&layouts[0]).unwrap();
    for (case, arguments, want) in [
        ("one is missing", ["--store", text(&at("bulk")), "--partitions", "2"], "it has 3 partitions, not 2"),
        ("it is none", ["--store", text(home.path()), "--partitions", "2"], "there is no layout.json in"),
        ("not enough", ["--store", text(&at("fast")), "--partitions", "1"], "it has 2 partitions, not 1"),
    ] {
        let said = offline(&[&["store", "repair", text(&data)][..], &arguments].concat());
        assert_eq!(said.status.code(), Some(1), "{case}");
        assert!(errors(&said).contains(want), "{case}: {}", errors(&said));
    }
    let (fast, bulk) = (at("fast"), at("bulk"));
    works(&["store", "repair", text(&data), "--store", text(&bulk), "--store", text(&fast), "--write"]);
    fs::write(&layouts[2], "{").unwrap();
    works(&["store", "repair", text(&bulk), "--of", text(&data), "--write"]);
    // The best way to write is measured again: on a busy disk it may be another.
    let lasting = |layout: &str| {
        let mut layout: Value = serde_json::from_str(layout).unwrap();
        layout.as_object_mut().unwrap().retain(|key, _| key != "starts" && key != "written");
        layout
    };
    for (layout, before) in layouts.iter().zip(&before) {
        let now = fs::read_to_string(layout).unwrap();
        assert_eq!(lasting(&now), lasting(before), "{}", layout.display());
    }
    let broker = Broker::start_in(home, &config);
    for queue in ["own", "fast.a", "bulk.a"] {
        let got = broker.says(&["receive", queue, "--timeout", "10000"]);
        assert_eq!(got, format!("{queue}\n"));
    }
}

#[test]
fn a_store_that_is_lost_is_given_up_and_the_others_go_on() {
    let home = tempfile::tempdir().unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let (fast, away) = (elsewhere.path().join("fast"), elsewhere.path().join("away"));
    let policy = "[[policy]]\ndestination = 'queue://fast.>'\nstore = 'fast'\n";
    let config = format!("[[store]]\nname = 'fast'\npath = '{}'\n{policy}", text(&fast));
    let broker = Broker::start_in(home, &config);
    for queue in ["own", "fast.a"] {
        broker.says(&["send", queue, "--body", "old"]);
    }
    let home = broker.stop(Signal::KILL);
    let data = home.path().join("data");
    fs::rename(&fast, &away).unwrap();
    for (case, arguments, want) in [
        ("not yet", [text(&data), "--store", "fast"], "nothing was changed"),
        ("another", [text(&data), "--store", "fest"], "did you mean fast?"),
        ("none", [text(&away), "--store", "fast"], "has no further stores"),
        ("no directory", [text(home.path()), "--store", "fast"], "not a data directory"),
    ] {
        let said = offline(&[&["store", "abandon"][..], &arguments].concat());
        assert_eq!(said.status.code(), Some(1), "{case}");
        assert!(errors(&said).contains(want), "{case}: {}", errors(&said));
    }
    works(&["store", "abandon", text(&data), "--store", "fast", "--write"]);
    let broker = Broker::start_in(home, &config);
    assert_eq!(broker.says(&["browse", "own"]), "old\n");
    assert_eq!(broker.says(&["browse", "fast.a"]), "");
    broker.says(&["send", "fast.a", "--body", "new"]);
    let broker = Broker::start_in(broker.stop(Signal::KILL), &config);
    assert_eq!(broker.says(&["browse", "fast.a"]), "new\n");
    let exported = works(&["store", "export", text(&away)]);
    assert!(exported.contains("queue://fast.a"), "{exported}");
}

#[test]
fn an_encrypted_store_can_be_read_with_its_key_alone_and_comes_to_another_by_itself() {
    let keys = tempfile::tempdir().unwrap();
    let new_key = |name: &str| {
        let file = keys.path().join(name);
        let id = works(&["key", "new", text(&file)]);
        assert_eq!(works(&["key", "id", text(&file)]), id);
        (file, id.trim().to_owned())
    };
    let ((one, one_id), (two, two_id)) = (new_key("one"), new_key("two"));
    let body = "the salary of each of us";
    let send = |broker: &Broker| {
        broker.says(&["send", "secret.queue", "--body", body, "--property", "colour=ultramarine"]);
        let large = body.repeat(100_000);
        let sent = broker.pipe(&["send", "secret.queue", "--file", "-"], large.as_bytes());
        assert_eq!(sent.status.code(), Some(0), "{}", errors(&sent));
        large
    };
    // Without a key the bytes are readable: the search finds them.
    let plain = Broker::start();
    send(&plain);
    let directory = plain.stop(Signal::TERM);
    assert_eq!(files_with(&directory.path().join("data"), body).len(), 1);
    // With an encryption key the files cannot be read, not even those from before.
    let first = format!("[encryption]\nkey_file = {:?}\n", text(&one));
    let broker = Broker::start_in(directory, &first);
    let large = send(&broker);
    let data = broker.data();
    let until_needed_are = |broker: &Broker, ids: &[&str]| {
        let end = Instant::now() + PATIENCE;
        loop {
            let metrics = get(broker, "/metrics").1;
            let keys = metrics
                .lines()
                .filter_map(|line| line.strip_prefix("postroad_journal_key_bytes{store=\"main\",key=\""));
            let keys: Vec<&str> = keys.map(|rest| rest.split('"').next().unwrap()).collect();
            if keys == ids {
                return;
            }
            assert!(Instant::now() < end, "{keys:?} are needed still");
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    until_needed_are(&broker, &[&one_id]);
    broker.process.signal(Signal::KILL);
    let Broker { mut process, directory, .. } = broker;
    assert_eq!(process.wait(), None);
    for secret in [body, "ultramarine", "secret.queue"] {
        assert_eq!(files_with(&data, secret), Vec::<String>::new(), "{secret}");
    }
    // Without the key, or with another, nothing starts and nothing changes.
    let before = kept(&data);
    let wrong = format!("[encryption]\nkey_file = {:?}\n", text(&two));
    let needs = format!("encrypted with key {one_id}");
    let serve = |more: &str| {
        let config = configuration(directory.path(), 0, more);
        errors(&postroad(&["serve", "--config", text(&config), "--data", text(&data)]).output().unwrap())
    };
    for (case, more, told) in [
        ("none", "", "no key is given".to_owned()),
        ("another", &wrong, format!("the keys given are {two_id}")),
    ] {
        let said = serve(more);
        assert!(said.contains(&needs) && said.contains(&told), "{case}: {said}");
        assert!(said.contains("set its file in [encryption]"), "{case}: {said}");
        assert!(kept(&data) == before, "{case}: something changed");
    }
    let config = configuration(directory.path(), 1, &first);
    let offline_config = text(&config);
    let verified = works(&["store", "verify", text(&data)]);
    assert!(verified.contains("records are encrypted: their checksums are valid"), "{verified}");
    let stats = works(&["store", "stats", text(&data)]);
    assert!(stats.contains(&format!("key {one_id}: ")), "{stats}");
    for command in ["dump", "export", "repair"] {
        let refused = errors(&offline(&["store", command, text(&data)]));
        assert!(refused.contains(&needs), "{command}: {refused}");
        works(&["store", command, text(&data), "--config", offline_config]);
    }
    let verified = works(&["store", "verify", text(&data), "--config", offline_config]);
    assert!(!verified.contains("are encrypted") && verified.contains(": 0 damaged places"), "{verified}");
    assert!(kept(&data) == before, "who looks changes nothing");
    // Another key takes its place while the broker runs; then the former one is needed no more.
    let both = format!("[encryption]\nkey_file = {:?}\nformer_key_files = [{:?}]\n", text(&two), text(&one));
    let broker = Broker::start_in(directory, &both);
    until_needed_are(&broker, &[&two_id]);
    let broker = Broker::start_in(broker.stop(Signal::TERM), &wrong);
    for want in [body, &large, body, &large] {
        let got = broker.says(&["receive", "secret.queue", "--count", "1", "--timeout", "10000"]);
        assert!(got == format!("{want}\n"), "{} bytes instead of {}", got.len(), want.len());
    }
    assert_eq!(files_with(&data, body), Vec::<String>::new());
}

#[test]
fn a_tenants_messages_are_encrypted_with_the_tenants_key() {
    let keys = tempfile::tempdir().unwrap();
    let [(one, one_id), (two, two_id)] = ["one", "two"].map(|name| {
        let file = keys.path().join(name);
        let id = works(&["key", "new", text(&file)]);
        (file, id.trim().to_owned())
    });
    let own = format!("[encryption]\nkey_file = {:?}\n", text(&one));
    let tenant = "[[tenant]]\nname = \"acme\"\ndestinations = [\"queue://acme.>\"]\n";
    let all =
        format!("{own}[[encryption.tenant_key]]\ntenant = \"acme\"\nkey_file = {:?}\n{tenant}", text(&two));
    let broker = Broker::configured(&all);
    for queue in ["acme.orders", "orders"] {
        broker.says(&["send", queue, "--body", "a body of some length, that is"]);
    }
    let large = keys.path().join("large");
    std::fs::write(&large, "large ".repeat(500_000)).unwrap();
    broker.says(&["send", "acme.large", "--file", text(&large)]);
    let directory = broker.stop(Signal::TERM);
    let data = directory.path().join("data");
    let (config, file) = (configuration(directory.path(), 0, &all), keys.path().join("all.jsonl"));
    works(&["store", "export", text(&data), "--to", text(&file), "--config", text(&config)]);
    let copy = keys.path().join("copy");
    works(&["store", "import", text(&copy), "--from", text(&file), "--config", text(&config)]);
    for (case, data) in [("as they came", &data), ("imported", &copy)] {
        let stats = works(&["store", "stats", text(data)]);
        let bytes_of = |id: &str| {
            let line = stats.lines().find_map(|line| line.strip_prefix(&format!("key {id}: ")));
            let bytes = line.and_then(|line| line.split(' ').next()?.parse::<u64>().ok());
            bytes.unwrap_or_else(|| panic!("{case}: {id}: {stats}"))
        };
        let [brokers, tenants] = [&one_id, &two_id].map(|id| bytes_of(id));
        assert!((1..100_000).contains(&brokers), "{case}: the broker's: {stats}");
        assert!(3_000_000 < tenants, "{case}: the tenant's, with the pieces of the large one: {stats}");
    }
    let config = configuration(directory.path(), 0, &format!("{own}{tenant}"));
    let refused = errors(&offline(&["serve", "--config", text(&config), "--data", text(&data)]));
    let want = format!("encrypted with key {two_id}, and the keys given are {one_id}");
    assert!(refused.contains(&want), "{refused}");
    let broker = Broker::start_in(directory, &all);
    for queue in ["acme.orders", "orders"] {
        let got = broker.says(&["receive", queue, "--count", "1", "--timeout", "10000"]);
        assert_eq!(got, "a body of some length, that is\n");
    }
}

#[test]
fn an_import_copies_no_password_and_says_where_to_put_it() {
    let home = tempfile::tempdir().unwrap();
    let (xml, toml, secret) = ("activemq.xml", "postroad.toml", "password");
    let [xml, toml, secret] = [xml, toml, secret].map(|name| home.path().join(name));
    fs::write(
        &xml,
        "<broker brokerName='b'><networkConnectors><networkConnector name='east' uri='static:(tcp://127.0.0.1:1)'
         userName='link' password='s3cret'/></networkConnectors></broker>",
    )
    .unwrap();
    let import = offline(&["config", "import", text(&xml), "--output", text(&toml)]);
    let (written, notes) = (fs::read_to_string(&toml).unwrap(), errors(&import));
    assert!(import.status.success() && !written.contains("s3cret") && !notes.contains("s3cret"), "{notes}");
    let named = "east.password";
    assert!(notes.contains(&format!("write it into {named}")) && written.contains(named), "{notes}{written}");
    // A broker reads it there, before it opens anything.
    let moved = written.replace(named, text(&secret));
    fs::write(&toml, format!("memory_bytes = 67108864\n{moved}")).unwrap();
    let data = home.path().join("data");
    let refused = offline(&["serve", "--config", text(&toml), "--data", text(&data)]);
    let want = format!("[[bridge]] 1: password_file {}: it cannot be read", secret.display());
    assert_eq!(refused.status.code(), Some(1));
    assert!(errors(&refused).contains(&want) && !data.exists(), "{}", errors(&refused));
}

#[test]
fn the_reference_of_the_configuration_is_a_valid_file() {
    let home = tempfile::tempdir().unwrap();
    let [reference, wrong] = ["reference.toml", "wrong.toml"].map(|name| home.path().join(name));
    let printed = offline(&["config", "reference"]);
    assert!(printed.status.success());
    fs::write(&reference, &printed.stdout).unwrap();
    let checked = offline(&["config", "check", text(&reference)]);
    assert!(checked.status.success() && errors(&checked).contains("is valid"), "{}", errors(&checked));
    for (case, content, want) in [
        ("an unknown key", "brokr_name = \"b\"\n", "did you mean `broker_name`?"),
        ("no file of users", "[security]\nusers = \"/nonexistent\"\n", "security.users: /nonexistent"),
        ("no certificate", "[ports]\nopenwire_tls = 1\n", "ports.openwire_tls is 1, but [tls] names no"),
        ("no users", "bind = \"0.0.0.0\"\n", "without users every client of the network is let in"),
    ] {
        fs::write(&wrong, content).unwrap();
        let refused = offline(&["config", "check", text(&wrong)]);
        assert_eq!(refused.status.code(), Some(1), "case: {case}");
        assert!(errors(&refused).contains(want), "case: {case}: {}", errors(&refused));
    }
}
